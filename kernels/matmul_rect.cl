/* C = A * B, for row-major A (M x K), B (K x N) and C (M x N) of int or float, at every size, with rectangular tiles.

   As in the last step of matmul.cl, a work-group computes a TILE x TILE square of C in steps of TILE_K along K, and
   a work-item WPT_M x WPT_N elements of it. Here the tile of A (TILE rows, TILE_K columns) and that of B (TILE_K
   rows, TILE columns) need not be square: TILE is ASPECT * TILE_K. At equal local memory, twice the length and half
   the depth serve each fetched element twice as often, for twice as many barriers.

   Two ways to treat the edges, chosen by EDGES:

     CHECKED  Every fetch and every store is checked against the matrix; beyond the edges the tiles hold zeros.
     PADDED   pad_a and pad_b first copy A and B into matrices that whole tiles cover, zeros beyond the edges; the
              multiplication then checks nothing. C, too, has the padded layout: rows of ROUND_UP(N, TILE) elements,
              the product in its upper left corner. */

#define CHECKED 0
#define PADDED 1

#ifndef EDGES
#define EDGES CHECKED
#endif
#ifndef T            /* element type: int or float */
#define T float
#endif
#ifndef ASPECT       /* length of a tile over its depth: 1 is square, 4 is 4:1 */
#define ASPECT 4
#endif
#ifndef TILE_K       /* depth of the tiles: the step along K */
#define TILE_K 8
#endif
#ifndef WPT_M        /* rows of C per work-item */
#define WPT_M 4
#endif
#ifndef WPT_N        /* columns of C per work-item */
#define WPT_N 4
#endif
#ifndef VECTOR_WIDTH /* neighbouring elements that one read from local memory fetches: 1, 2 or 4 */
#define VECTOR_WIDTH 1
#endif
#ifndef PAD          /* unused elements after each row of a tile, against bank conflicts */
#define PAD 0
#endif
#ifndef UNROLL       /* steps along K that the compiler unrolls */
#define UNROLL 4
#endif

#define TILE (ASPECT * TILE_K)  /* side of the square of C that a work-group computes */
#define ITEMS_M (TILE / WPT_M)  /* work-items along its rows */
#define ITEMS_N (TILE / WPT_N)  /* and along its columns */
#define ITEMS (ITEMS_M * ITEMS_N)
#define ROUND_UP(value, multiple) (((value) + (multiple) - 1) / (multiple) * (multiple))

/* Copies a matrix into the upper left corner of a larger one that is zero elsewhere: one element per work-item. */
void pad(const int rows, const int columns, __global const T *from, const int padded_columns, __global T *to)
{
    const size_t element = get_global_id(0);
    const size_t row = element / padded_columns, column = element % padded_columns;
    to[element] = row < rows && column < columns ? from[row * columns + column] : 0;
}

__kernel void pad_a(const int M, const int K, __global const T *restrict A, __global T *restrict padded_a)
{
    pad(M, K, A, ROUND_UP(K, TILE_K), padded_a);
}

__kernel void pad_b(const int K, const int N, __global const T *restrict B, __global T *restrict padded_b)
{
    pad(K, N, B, ROUND_UP(N, TILE), padded_b);
}

/* Element (row, column) of a matrix. Zero beyond the edges, which padding has moved out of reach. */
T fetch(__global const T *matrix, const int row, const int column, const int rows, const int columns)
{
#if EDGES == CHECKED
    if (row >= rows || column >= columns) return 0;
#endif
    return matrix[(size_t)row * columns + column];
}

/* Which row (of ITEMS_M) or column (of ITEMS_N) of the tile is the i-th of work-item `item`: runs of
   VECTOR_WIDTH neighbours, the runs of one work-item spread over the tile. Neighbouring work-items thus read
   neighbouring runs, from different banks, and a run is one vector. */
#define OFFSET(i, item, items) ((i) / VECTOR_WIDTH * VECTOR_WIDTH * (items) + (item) * VECTOR_WIDTH + (i) % VECTOR_WIDTH)

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#if VECTOR_WIDTH == 1
#define VECTOR T
#else
#define VECTOR JOIN(T, VECTOR_WIDTH)
#endif

/* Copies a run of VECTOR_WIDTH elements from local memory into registers by one aligned read. */
void read_run(T *to, __local const T *from)
{
    const VECTOR run = *(__local const VECTOR *)from;
#if VECTOR_WIDTH == 1
    to[0] = run;
#else
    to[0] = run.s0;
    to[1] = run.s1;
#if VECTOR_WIDTH == 4
    to[2] = run.s2;
    to[3] = run.s3;
#endif
#endif
}

/* M, N and K are those of the unpadded matrices, whatever EDGES is. */
__kernel __attribute__((reqd_work_group_size(ITEMS_N, ITEMS_M, 1)))
void matmul_rect(const int M, const int N, const int K,
                 __global const T *restrict A, __global const T *restrict B, __global T *restrict C)
{
    /* The tile of A is stored transposed: what a step along K needs lies side by side in both tiles. */
    __local T tile_a[TILE_K][TILE + PAD] __attribute__((aligned(sizeof(VECTOR))));
    __local T tile_b[TILE_K][TILE + PAD] __attribute__((aligned(sizeof(VECTOR))));
    const int item_n = get_local_id(0), item_m = get_local_id(1);
    const int item = item_m * ITEMS_N + item_n;
    const int m0 = get_group_id(1) * TILE, n0 = get_group_id(0) * TILE;
#if EDGES == PADDED
    const int rows = ROUND_UP(M, TILE), columns = ROUND_UP(N, TILE), depth = ROUND_UP(K, TILE_K);
#else
    const int rows = M, columns = N, depth = K;
#endif

    T sum[WPT_M][WPT_N];
    #pragma unroll
    for (int i = 0; i < WPT_M; i++)
        #pragma unroll
        for (int j = 0; j < WPT_N; j++)
            sum[i][j] = 0;

    for (int k0 = 0; k0 < depth; k0 += TILE_K) {
        /* All work-items fetch together, along the rows of A and of B: coalesced, whatever the tile's shape. */
        #pragma unroll
        for (int first = 0; first < TILE * TILE_K; first += ITEMS) {
            const int e = first + item;
            if (TILE * TILE_K % ITEMS != 0 && e >= TILE * TILE_K) break;
            tile_a[e % TILE_K][e / TILE_K] = fetch(A, m0 + e / TILE_K, k0 + e % TILE_K, rows, depth);
        }
        #pragma unroll
        for (int first = 0; first < TILE * TILE_K; first += ITEMS) {
            const int e = first + item;
            if (TILE * TILE_K % ITEMS != 0 && e >= TILE * TILE_K) break;
            tile_b[e / TILE][e % TILE] = fetch(B, k0 + e / TILE, n0 + e % TILE, depth, columns);
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* the tiles are complete */

        #pragma unroll UNROLL
        for (int k = 0; k < TILE_K; k++) {
            /* WPT_M + WPT_N values from local memory serve WPT_M * WPT_N multiplications. */
            T a[WPT_M], b[WPT_N];
            #pragma unroll
            for (int i = 0; i < WPT_M; i += VECTOR_WIDTH)
                read_run(a + i, &tile_a[k][OFFSET(i, item_m, ITEMS_M)]);
            #pragma unroll
            for (int j = 0; j < WPT_N; j += VECTOR_WIDTH)
                read_run(b + j, &tile_b[k][OFFSET(j, item_n, ITEMS_N)]);
            #pragma unroll
            for (int i = 0; i < WPT_M; i++)
                #pragma unroll
                for (int j = 0; j < WPT_N; j++)
                    sum[i][j] += a[i] * b[j];
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* the tiles may be overwritten */
    }

    #pragma unroll
    for (int i = 0; i < WPT_M; i++)
        #pragma unroll
        for (int j = 0; j < WPT_N; j++) {
            const int m = m0 + OFFSET(i, item_m, ITEMS_M), n = n0 + OFFSET(j, item_n, ITEMS_N);
            if (EDGES == PADDED || (m < M && n < N)) C[(size_t)m * columns + n] = sum[i][j];
        }
}
