#ifndef TILE
#define TILE 16
#endif
#ifndef ROWS
#define ROWS 1
#endif
#ifndef PAD
#define PAD 1
#endif


kernel void transpose(const int N, global const float *a, global float *b)
{
    local float tile[TILE][TILE + PAD];
    const int x = get_local_id(0), y = get_local_id(1), step = TILE / ROWS;
    const int column = get_group_id(0) * TILE, row = get_group_id(1) * TILE;
    for (int r = 0; r < TILE; r += step)
        tile[y + r][x] = a[(row + y + r) * N + column + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = 0; r < TILE; r += step)
        b[(column + y + r) * N + row + x] = tile[x][y + r];
}
