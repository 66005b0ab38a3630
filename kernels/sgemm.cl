// SGEMM: C = A * B in single precision; row-major A (M x K), B (K x N) and C (M x N); every size >= 1.
//
// A work-group computes one tile of C. It walks along K in steps of TILE_K: a slice of A and a slice of B
// are copied to local memory and multiplied there; every work-item keeps WPT_M x WPT_N sums in registers.
// The copies of the next slices run while this one is multiplied.
//
// There are three methods. FMA runs everywhere (sgemm_fma.cl). The other two use NVIDIA's tensor cores, at the
// accuracy of float32: `decompose` takes A and B apart into parts that tensor cores multiply (sgemm_parts.cl), and
// `multiply_parts` multiplies them, by MMA (sgemm_mma.cl) or by WGMMA (sgemm_wgmma.cl).

#ifndef METHOD
#define METHOD 0  // FMA, MMA or WGMMA
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
#define MMA 1
#define WGMMA 2
#define REGISTERS 0
#define ASYNC 1
#define ROW 0
#define SERPENTINE 1
#define COLUMN 2

#define THREADS (TILE_M / WPT_M * (TILE_N / WPT_N))
#define UNROLL _Pragma("unroll")

// Where a loop of branches ends the kernel: compilers for CPUs spend more time on them unrolled than on all the rest.
#if defined(__x86_64__) || defined(__aarch64__)
#define ON_CPU 1
#define UNROLL_ON_GPU _Pragma("nounroll")
#else
#define ON_CPU 0
#define UNROLL_ON_GPU UNROLL
#endif

// Block order: walk GROUP_M rows of tiles column by column, so that groups near in time share A and B. Gives the
// tile of this work-group, counted in tiles.
static inline void find_tile(const int M, const int N, int *tile_row, int *tile_column)
{
  const int tiles_m = (M + TILE_M - 1) / TILE_M;
  const int tiles_n = (N + TILE_N - 1) / TILE_N;
  const int group = get_group_id(0) / (GROUP_M * tiles_n);
  const int place = get_group_id(0) % (GROUP_M * tiles_n);
  const int rows_of_tiles = min(GROUP_M, tiles_m - group * GROUP_M);
  *tile_row = group * GROUP_M + place % rows_of_tiles;
  *tile_column = place / rows_of_tiles;
}

// The slices of this split: from the first one on, before the end.
static inline int first_slice(const int K)
{
  const int count = (K + TILE_K - 1) / TILE_K;
  return get_group_id(1) * ((count + SPLIT_K - 1) / SPLIT_K);
}

static inline int end_of_slices(const int K, const int first)
{
  const int count = (K + TILE_K - 1) / TILE_K;
  return min(first + (count + SPLIT_K - 1) / SPLIT_K, count);
}

#if METHOD == FMA
#include "sgemm_fma.cl"
#else
#include "sgemm_parts.cl"
#if METHOD == MMA
#include "sgemm_mma.cl"
#else
#include "sgemm_wgmma.cl"
#endif
#endif

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
