// SGEMM: C = A * B in single precision; row-major A (M x K), B (K x N) and C (M x N); every size >= 1.
//
// A work-group computes one tile of C. It walks along K in steps of TILE_K: a slice of A and a slice of B
// are copied to local memory, and every work-item multiplies its rows of A by its columns of B there,
// keeping WPT_M x WPT_N sums in registers. The copies of the next slices run while this one is multiplied.

#ifndef METHOD
#define METHOD 0  // FMA: fused multiply-add; TENSOR: NVIDIA's tensor cores, see sgemm_tensor.cl
#endif
#ifndef TILE_M
#define TILE_M 64  // rows of C computed by a work-group
#endif
#ifndef TILE_N
#define TILE_N 64  // columns of C computed by a work-group
#endif
#ifndef TILE_K
#define TILE_K 16  // depth of a slice
#endif
#ifndef WPT_M
#define WPT_M 8  // rows of C computed by a work-item
#endif
#ifndef WPT_N
#define WPT_N 8  // columns of C computed by a work-item
#endif
#ifndef LANES_M
#define LANES_M 4  // 32 work-items in a row cover LANES_M x 32 / LANES_M places of the tile
#endif
#ifndef VECTOR_A
#define VECTOR_A 1  // floats in one global load of A; divides K
#endif
#ifndef VECTOR_B
#define VECTOR_B 1  // floats in one global load of B; divides N
#endif
#ifndef VECTOR_N
#define VECTOR_N 4  // adjacent columns of C in a work-item: floats in one read of B's slice
#endif
#ifndef FMA_WIDTH
#define FMA_WIDTH 4  // floats in one multiplication of the source: the vector unit of a CPU
#endif
#ifndef STAGES
#define STAGES 2  // slices in local memory at once; 1: copy, then multiply
#endif
#ifndef COPY_A
#define COPY_A 0  // how slices of A come to local memory: REGISTERS or ASYNC
#endif
#ifndef COPY_B
#define COPY_B 0
#endif
#ifndef PAD_A
#define PAD_A 4  // floats added to a row of A's slice, against bank conflicts
#endif
#ifndef PAD_B
#define PAD_B 0  // the same for B
#endif
#ifndef FMA_ORDER
#define FMA_ORDER 0  // order of the multiplications in the source: ROW, SERPENTINE or COLUMN
#endif
#ifndef GROUP_M
#define GROUP_M 1  // block order: this many rows of tiles are walked together, for the cache
#endif
#ifndef SPLIT_K
#define SPLIT_K 1  // work-groups that share the K of a tile; `sum_splits` adds their results
#endif

#define FMA 0
#define TENSOR 1
#define REGISTERS 0
#define ASYNC 1
#define ROW 0
#define SERPENTINE 1
#define COLUMN 2

#define THREADS_M (TILE_M / WPT_M)
#define THREADS_N (TILE_N / WPT_N)
#define THREADS (THREADS_M * THREADS_N)
#define LANES_N (32 / LANES_M)

// A slice of A lies in local memory as it does in A, or transposed. ROW_A: from a row of A to the next one; COLUMN_A:
// from a column to the next one; VECTOR_M: adjacent rows of C in a work-item.
#if METHOD == TENSOR
#define ROW_A (TILE_K + PAD_A)
#define COLUMN_A 1
#define SLICE_A (TILE_M * ROW_A)
#define VECTOR_M 1
#else
#define ROW_A 1
#define COLUMN_A (TILE_M + PAD_A)
#define SLICE_A (TILE_K * COLUMN_A)
#define VECTOR_M 4
#endif
#define STRIDE_B (TILE_N + PAD_B)
#define SLICE_B (TILE_K * STRIDE_B)
#define STAGE (SLICE_A + SLICE_B)

// Whether copies run while the work-group multiplies.
#if STAGES == 1
#define OVERLAP(K) false
#elif METHOD == TENSOR
#define OVERLAP(K) ((K) >= SHORT_K)
#else
#define OVERLAP(K) true
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define FLOAT_1 float
#define FLOAT_2 float2
#define FLOAT_4 float4
#define FLOAT_8 float8
#define FLOAT_16 float16
#define FLOATS(width) JOIN(FLOAT_, width)
#define UNROLL _Pragma("unroll")

typedef FLOATS(VECTOR_A) vector_a;
typedef FLOATS(VECTOR_B) vector_b;
typedef FLOATS(VECTOR_M) vector_m;
typedef FLOATS(VECTOR_N) vector_n;

// The vector that begins at x.
#define AT(vector, x) (*(vector *)&(x))

#include "sgemm_copy.cl"

#if METHOD == TENSOR
#include "sgemm_tensor.cl"
#else
#include "sgemm_fma.cl"
#endif

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

  // Block order: walk GROUP_M rows of tiles column by column, so that groups near in time share A and B.
  const int tiles_m = (M + TILE_M - 1) / TILE_M;
  const int tiles_n = (N + TILE_N - 1) / TILE_N;
  const int group = get_group_id(0) / (GROUP_M * tiles_n);
  const int place = get_group_id(0) % (GROUP_M * tiles_n);
  const int rows_of_tiles = min(GROUP_M, tiles_m - group * GROUP_M);
  const int first_row = (group * GROUP_M + place % rows_of_tiles) * TILE_M;
  const int first_column = place / rows_of_tiles * TILE_N;

  // The slices of this split. Slice 0 is the one that K leaves incomplete: all later ones need no check.
  const int count = (K + TILE_K - 1) / TILE_K;
  const int per_split = (count + SPLIT_K - 1) / SPLIT_K;
  int begin = get_group_id(1) * per_split;
  const int end = min(begin + per_split, count);

  // This work-item's place in the tile: 32 neighbours form a patch of LANES_M x LANES_N. Its rows and columns come
  // in vectors that lie LANES_M (LANES_N) vectors apart, so that neighbours read neighbouring vectors.
  const uint id = get_local_id(0);
  const uint patch = id / 32;
  const int patch_row = patch / (THREADS_N / LANES_N) * LANES_M * WPT_M;
  const int patch_column = patch % (THREADS_N / LANES_N) * LANES_N * WPT_N;
  const int row = patch_row + id % 32 / LANES_N * VECTOR_M;
  const int column = patch_column + id % LANES_N * VECTOR_N;
  const int from_a = patch_row * ROW_A + FRAGMENT_A(id % 32);  // where its fragments begin
  const int from_b = patch_column + FRAGMENT_B(id % 32);

  accumulator sums;
  clear(&sums);

  copier copy;
  start_copier(&copy, A, B, M, N, K, first_row, first_column, begin, id);

  // Copy, then multiply. This leaves nothing to do for what follows.
  if (!OVERLAP(K))
    for (; begin < end; ++begin) {
      barrier(CLK_LOCAL_MEM_FENCE);
      fetch(&copy, begin == 0, slices, slices + SLICE_A, id);
      deposit(&copy, slices, slices + SLICE_A, id);
      wait_for_all_copies();
      barrier(CLK_LOCAL_MEM_FENCE);
      multiply_slice(&sums, slices + row * ROW_A, slices + SLICE_A + column);
    }

#if STAGES > 1
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
  read_fragment(&fragments[0], slices + from_a, slices + SLICE_A + from_b);
  keep_order();
  __local float *full = slices;                         // the slice that is multiplied
  __local float *free = slices + (STAGES - 1) * STAGE;  // the one before it: all have multiplied what lies there
  for (int slice = begin; slice < end; ++slice) {
    if (slice + STAGES - 1 < end)
      fetch(&copy, false, free, free + SLICE_A, id);
    close_batch();
    begin_slice(&sums);
    UNROLL
    for (int step = 1; step < TILE_K / STEP_K; ++step) {
      const int k = step * STEP_K;
      read_fragment(&fragments[step % 2], full + k * COLUMN_A + from_a, full + SLICE_A + k * STRIDE_B + from_b);
      multiply(&sums, &fragments[(step - 1) % 2]);
    }
    // Behind the last slice this leaves rubbish in a stage that nobody multiplies. A branch around it would cost
    // more: compilers move the multiplications across.
    deposit(&copy, free, free + SLICE_A, id);
    wait_for_oldest_batch();
    barrier(CLK_LOCAL_MEM_FENCE);
    free = full;
    full = full == slices + (STAGES - 1) * STAGE ? slices : full + STAGE;
    read_fragment(&fragments[0], full + from_a, full + SLICE_A + from_b);
    keep_order();
    multiply(&sums, &fragments[1]);
    end_slice(&sums);
  }
#endif

  // Write what lies inside of C. Rows of C start on a vector only where the vector divides N.
  C += (size_t)get_group_id(1) * M * N;
  UNROLL
  for (int i = 0; i < WPT_M; ++i) {
    const int m = first_row + row + i / VECTOR_M * VECTOR_M * LANES_M + i % VECTOR_M;
    if (m < M) {
      UNROLL
      for (int j = 0; j < WPT_N; j += VECTOR_N) {
        const int n = first_column + column + j * LANES_N;
        __global float *c = C + (size_t)m * N + n;
        if (N % VECTOR_N == 0) {
          if (n < N)
            *(__global vector_n *)c = AT(vector_n, sums.total[i][j]);
        } else {
          UNROLL
          for (int x = 0; x < VECTOR_N; ++x)
            if (n + x < N)
              c[x] = sums.total[i][j + x];
        }
      }
    }
  }
}

// C = sum of the results of the splits, added in order.
__kernel void sum_splits(const int M, const int N, __global const float *restrict partial, __global float *restrict C)
{
  const size_t size = (size_t)M * N;
  const size_t i = get_global_id(0);
  if (i < size) {
    float sum = partial[i];
    for (int split = 1; split < SPLIT_K; ++split)
      sum += partial[split * size + i];
    C[i] = sum;
  }
}
