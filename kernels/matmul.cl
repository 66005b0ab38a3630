/* C = A * B, for row-major A (M x K), B (K x N) and C (M x N) of int or float, at every size.

   The ladder, one idea per step, chosen by VARIANT:

     NAIVE  One work-item computes one element of C; every operand comes from global memory.
     TILED  A work-group computes a TILE x TILE square of C. It walks along K in steps of TILE and
            keeps one square of A and one of B in local memory, so that each operand is fetched
            from global memory once per work-group instead of once per work-item.
     WPT    As TILED, with more work per thread: a work-item computes WPT_M x WPT_N elements in
            registers. Every value it reads from local memory serves several multiplications.

   Tiles are filled with zeros beyond the edges of A and B and only elements inside C are stored:
   no size has to be a multiple of anything. All work-items reach all barriers. */

#define NAIVE 0
#define TILED 1
#define WPT 2

#ifndef VARIANT
#define VARIANT WPT
#endif
#ifndef T            /* element type: int or float */
#define T float
#endif
#ifndef TILE         /* side of the square of C that a work-group computes */
#define TILE 32
#endif
#ifndef TILE_K       /* WPT: depth of the tiles in local memory (NAIVE has none, TILED uses TILE) */
#define TILE_K 16
#endif
#ifndef WPT_M        /* WPT: rows of C per work-item */
#define WPT_M 4
#endif
#ifndef WPT_N        /* WPT: columns of C per work-item */
#define WPT_N 4
#endif
#ifndef VECTOR_WIDTH /* WPT: neighbouring elements that one read from local memory fetches: 1, 2 or 4 */
#define VECTOR_WIDTH 1
#endif
#ifndef PAD          /* WPT: unused elements after each row of a tile, against bank conflicts */
#define PAD 0
#endif
#ifndef UNROLL       /* steps along K that the compiler unrolls */
#define UNROLL 4
#endif

#if VARIANT == NAIVE

__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void matmul(const int M, const int N, const int K,
            __global const T *restrict A, __global const T *restrict B, __global T *restrict C)
{
    const int n = get_global_id(0); /* neighbouring work-items take neighbouring columns: coalesced reads of B */
    const int m = get_global_id(1);
    if (m >= M || n >= N) return;

    T sum = 0;
    #pragma unroll UNROLL
    for (int k = 0; k < K; k++)
        sum += A[(size_t)m * K + k] * B[(size_t)k * N + n];
    C[(size_t)m * N + n] = sum;
}

#elif VARIANT == TILED

__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void matmul(const int M, const int N, const int K,
            __global const T *restrict A, __global const T *restrict B, __global T *restrict C)
{
    __local T tile_a[TILE][TILE];
    __local T tile_b[TILE][TILE];
    const int column = get_local_id(0), row = get_local_id(1);
    const int n = get_global_id(0), m = get_global_id(1);

    T sum = 0;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        /* Each work-item fetches one element of either tile. */
        tile_a[row][column] = m < M && k0 + column < K ? A[(size_t)m * K + k0 + column] : 0;
        tile_b[row][column] = k0 + row < K && n < N ? B[(size_t)(k0 + row) * N + n] : 0;
        barrier(CLK_LOCAL_MEM_FENCE); /* the tiles are complete */

        #pragma unroll UNROLL
        for (int k = 0; k < TILE; k++)
            sum += tile_a[row][k] * tile_b[k][column];
        barrier(CLK_LOCAL_MEM_FENCE); /* the tiles may be overwritten */
    }
    if (m < M && n < N) C[(size_t)m * N + n] = sum;
}

#else /* WPT */

#define ITEMS_M (TILE / WPT_M) /* work-items along the rows of the tile */
#define ITEMS_N (TILE / WPT_N) /* and along its columns */
#define ITEMS (ITEMS_M * ITEMS_N)

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

__kernel __attribute__((reqd_work_group_size(ITEMS_N, ITEMS_M, 1)))
void matmul(const int M, const int N, const int K,
            __global const T *restrict A, __global const T *restrict B, __global T *restrict C)
{
    /* The tile of A is stored transposed: what a step along K needs lies side by side in both tiles. */
    __local T tile_a[TILE_K][TILE + PAD] __attribute__((aligned(sizeof(VECTOR))));
    __local T tile_b[TILE_K][TILE + PAD] __attribute__((aligned(sizeof(VECTOR))));
    const int item_n = get_local_id(0), item_m = get_local_id(1);
    const int item = item_m * ITEMS_N + item_n;
    const int m0 = get_group_id(1) * TILE, n0 = get_group_id(0) * TILE;

    T sum[WPT_M][WPT_N];
    #pragma unroll
    for (int i = 0; i < WPT_M; i++)
        #pragma unroll
        for (int j = 0; j < WPT_N; j++)
            sum[i][j] = 0;

    for (int k0 = 0; k0 < K; k0 += TILE_K) {
        /* All work-items fetch together, along the rows of A and of B: coalesced, whatever the tile's shape. */
        #pragma unroll
        for (int first = 0; first < TILE * TILE_K; first += ITEMS) {
            const int e = first + item;
            if (TILE * TILE_K % ITEMS != 0 && e >= TILE * TILE_K) break;
            const int m = m0 + e / TILE_K, k = k0 + e % TILE_K;
            tile_a[e % TILE_K][e / TILE_K] = m < M && k < K ? A[(size_t)m * K + k] : 0;
        }
        #pragma unroll
        for (int first = 0; first < TILE * TILE_K; first += ITEMS) {
            const int e = first + item;
            if (TILE * TILE_K % ITEMS != 0 && e >= TILE * TILE_K) break;
            const int k = k0 + e / TILE, n = n0 + e % TILE;
            tile_b[e / TILE][e % TILE] = k < K && n < N ? B[(size_t)k * N + n] : 0;
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
            if (m < M && n < N) C[(size_t)m * N + n] = sum[i][j];
        }
}

#endif
