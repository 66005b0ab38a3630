// One turn of Jacobi's method for the heat equation on a grid whose rim stays as it is.
#ifndef WG_X
#define WG_X 16
#endif
#ifndef WG_Y
#define WG_Y 4
#endif
#ifndef ROWS_PER_ITEM
#define ROWS_PER_ITEM 1
#endif

kernel void sweep(const int WIDTH, const int HEIGHT, global const float *now, global float *next)
{
    const int x = get_global_id(0);
    for (int i = 0; i < ROWS_PER_ITEM; ++i) {
        const int y = get_global_id(1) * ROWS_PER_ITEM + i, at = y * WIDTH + x;
        if (x >= WIDTH || y >= HEIGHT)
            continue;
        const bool rim = x == 0 || y == 0 || x == WIDTH - 1 || y == HEIGHT - 1;
        next[at] = rim ? now[at] : 0.25f * (now[at - 1] + now[at + 1] + now[at - WIDTH] + now[at + WIDTH]);
    }
}
