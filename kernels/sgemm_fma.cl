// Multiplying by fused multiply-adds: part of sgemm.cl.

#define THREADS_N (TILE_N / WPT_N)
#define LANES_N (32 / LANES_M)

// A slice of A lies transposed in local memory: from a column to the next one it is COLUMN_A floats. B lies as it does
// in global memory.
#define COLUMN_A (TILE_M + PAD_A)
#define SLICE_A (TILE_K * COLUMN_A)
#define SLICE_B (TILE_K * TILE_N)
#define STAGE (SLICE_A + SLICE_B)

#define VECTOR_M 4  // adjacent rows of C in a work-item

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define FLOAT_1 float
#define FLOAT_2 float2
#define FLOAT_4 float4
#define FLOAT_8 float8
#define FLOAT_16 float16
#define FLOATS(width) JOIN(FLOAT_, width)

typedef FLOATS(VECTOR_A) vector_a;
typedef FLOATS(VECTOR_B) vector_b;
typedef FLOATS(VECTOR_M) vector_m;
typedef FLOATS(VECTOR_N) vector_n;
typedef FLOATS(FMA_WIDTH) vector_f;

// C is written in vectors no wider than those that B is read in: these divide N.
#if VECTOR_B < VECTOR_N
#define VECTOR_C VECTOR_B
#else
#define VECTOR_C VECTOR_N
#endif
typedef FLOATS(VECTOR_C) vector_c;

// The vector that begins at x.
#define AT(vector, x) (*(vector *)&(x))

#include "sgemm_copy.cl"

typedef struct {
  float total[WPT_M][WPT_N] __attribute__((aligned(64)));
} accumulator;

static inline void clear(accumulator *sums)
{
  UNROLL
  for (int i = 0; i < WPT_M; ++i)
    UNROLL
    for (int j = 0; j < WPT_N; j += FMA_WIDTH)
      AT(vector_f, sums->total[i][j]) = 0.0f;
}

// The part of one row of the slices that this work-item multiplies.
typedef struct {
  float a[WPT_M] __attribute__((aligned(16)));
  float b[WPT_N] __attribute__((aligned(64)));
} fragment;

static inline void read_fragment(fragment *f, __local const float *a, __local const float *b)
{
  UNROLL
  for (int i = 0; i < WPT_M; i += VECTOR_M)
    AT(vector_m, f->a[i]) = *(__local const vector_m *)(a + i * LANES_M);
  UNROLL
  for (int j = 0; j < WPT_N; j += VECTOR_N)
    AT(vector_n, f->b[j]) = *(__local const vector_n *)(b + j * LANES_N);
}

// sums += column of A x row of B. The order decides which operands stay in the register file's reuse cache.
static inline void multiply(accumulator *sums, const fragment *f)
{
#if FMA_ORDER == COLUMN
  UNROLL
  for (int j = 0; j < WPT_N; j += FMA_WIDTH)
    UNROLL
    for (int step = 0; step < WPT_M; ++step) {
      const int i = j / FMA_WIDTH % 2 ? WPT_M - 1 - step : step;
      AT(vector_f, sums->total[i][j]) += f->a[i] * AT(const vector_f, f->b[j]);
    }
#else
  UNROLL
  for (int i = 0; i < WPT_M; ++i)
    UNROLL
    for (int step = 0; step < WPT_N; step += FMA_WIDTH) {
      const int j = FMA_ORDER == SERPENTINE && i % 2 ? WPT_N - FMA_WIDTH - step : step;
      AT(vector_f, sums->total[i][j]) += f->a[i] * AT(const vector_f, f->b[j]);
    }
#endif
}

// total += a slice of A x a slice of B, from this work-item's first row and column on.
static inline void multiply_slice(accumulator *sums, __local const float *a, __local const float *b)
{
  for (int k = 0; k < TILE_K; ++k) {
    fragment f;
    read_fragment(&f, a + k * COLUMN_A, b + k * TILE_N);
    multiply(sums, &f);
  }
}

// Compilers for NVIDIA move the read of a slice's first fragment behind the turn of the loop, where its latency shows.
static inline void keep_order(void)
{
#ifdef __NV_CL_C_VERSION
  asm volatile("" ::: "memory");
#endif
}

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void sgemm(const int M, const int N, const int K,
           __global const float *restrict A, __global const float *restrict B, __global float *restrict C)
{
  // Every stage holds a slice of A and one of B.
  __local float slices[STAGES * STAGE] __attribute__((aligned(64)));

  int first_row, first_column;
  find_tile(M, N, &first_row, &first_column);
  first_row *= TILE_M;
  first_column *= TILE_N;
  int begin = first_slice(K);
  const int end = end_of_slices(K, begin);

  // This work-item's place in the tile: 32 neighbours form a patch of LANES_M x LANES_N. Its rows and columns come
  // in vectors that lie LANES_M (LANES_N) vectors apart, so that neighbours read neighbouring vectors.
  const uint id = get_local_id(0);
  const uint patch = id / 32;
  const int patch_row = patch / (THREADS_N / LANES_N) * LANES_M * WPT_M;
  const int patch_column = patch % (THREADS_N / LANES_N) * LANES_N * WPT_N;
  const int row = patch_row + id % 32 / LANES_N * VECTOR_M;
  const int column = patch_column + id % LANES_N * VECTOR_N;

  accumulator sums;
  clear(&sums);

  copier copy;
  start_copier(&copy, A, B, M, N, K, first_row, first_column, begin, id);

#if STAGES == 1
  for (; begin < end; ++begin) {
    barrier(CLK_LOCAL_MEM_FENCE);
    fetch(&copy, begin == 0, slices, slices + SLICE_A, id);
    deposit(&copy, slices, slices + SLICE_A, id);
    barrier(CLK_LOCAL_MEM_FENCE);
    multiply_slice(&sums, slices + row, slices + SLICE_A + column);
  }
#else
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    __local float *free = slices + stage * STAGE;
    if (begin + stage < end) {
      fetch(&copy, begin + stage == 0, free, free + SLICE_A, id);
      deposit(&copy, free, free + SLICE_A, id);
    }
    close_batch();
  }
  wait_for_oldest_batch();
  barrier(CLK_LOCAL_MEM_FENCE);

  // Two fragments take turns: while one is multiplied the next is read, also from one slice to the next.
  fragment fragments[2];
  read_fragment(&fragments[0], slices + row, slices + SLICE_A + column);
  keep_order();
  __local float *full = slices;                         // the slice that is multiplied
  __local float *free = slices + (STAGES - 1) * STAGE;  // the one before it: all have multiplied what lies there
  for (int slice = begin; slice < end; ++slice) {
    if (slice + STAGES - 1 < end)
      fetch(&copy, false, free, free + SLICE_A, id);
    close_batch();
    UNROLL
    for (int k = 1; k < TILE_K; ++k) {
      read_fragment(&fragments[k % 2], full + k * COLUMN_A + row, full + SLICE_A + k * TILE_N + column);
      multiply(&sums, &fragments[(k - 1) % 2]);
    }
    // Behind the last slice this leaves rubbish in a stage that nobody multiplies. A branch around it would cost
    // more: compilers move the multiplications across.
    deposit(&copy, free, free + SLICE_A, id);
    wait_for_oldest_batch();
    barrier(CLK_LOCAL_MEM_FENCE);
    free = full;
    full = full == slices + (STAGES - 1) * STAGE ? slices : full + STAGE;
    read_fragment(&fragments[0], full + row, full + SLICE_A + column);
    keep_order();
    multiply(&sums, &fragments[1]);
  }
#endif

  // Write what lies inside of C. A loop that is not unrolled reads a copy: the sums themselves stay in registers.
#if ON_CPU
  const accumulator result = sums;
#else
#define result sums
#endif
  C += (size_t)get_group_id(1) * M * N;
  UNROLL_ON_GPU
  for (int i = 0; i < WPT_M; ++i) {
    const int m = first_row + row + i / VECTOR_M * VECTOR_M * LANES_M + i % VECTOR_M;
    if (m < M) {
      UNROLL_ON_GPU
      for (int j = 0; j < WPT_N; j += VECTOR_C) {
        const int n = first_column + column + j / VECTOR_N * VECTOR_N * LANES_N + j % VECTOR_N;
        if (n < N)
          AT(__global vector_c, C[(size_t)m * N + n]) = AT(const vector_c, result.total[i][j]);
      }
    }
  }
}
