// Copying slices of A and B to local memory: part of sgemm.cl.
//
// A copy has two halves: `fetch` starts it, `deposit` ends it. With REGISTERS, `fetch` loads to registers and
// `deposit` stores to local memory: the loads travel while the work-group multiplies. With ASYNC (NVIDIA, compute
// capability 8.0 and up), `fetch` starts copies that need no registers; batches of them are waited for.
//
// Edges cost nothing in the main loop. Rows and columns beyond the matrix read its last ones instead: they only
// reach sums that are never written. Where TILE_K does not divide K, zeros are thought in front of it, so that
// slice 0 alone needs a check.

// The i-th vector that a work-item copies, as row and vector of that row, where `width` vectors make a row.
// Of THREADS and `width` one divides the other: all its vectors lie at constant distances from its first.
#define COPY_ROW(i, width) (id / (width) + (i) * THREADS / (width))
#define COPY_VECTOR(i, width) (id % (width) + (i) * THREADS % (width))
#define WIDTH_A (TILE_K / VECTOR_A)
#define WIDTH_B (TILE_N / VECTOR_B)
#define COPIES_A (TILE_M * WIDTH_A / THREADS)
#define COPIES_B (TILE_K * WIDTH_B / THREADS)

// Where it goes, in a slice of A that begins at `a`.
#define PLACE_A(i, a) ((a) + COPY_ROW(i, WIDTH_A) + COPY_VECTOR(i, WIDTH_A) * VECTOR_A * COLUMN_A)

#if COPY_A == ASYNC || COPY_B == ASYNC
#include "sgemm_async.cl"
#else
static inline void close_batch(void) {}
static inline void wait_for_oldest_batch(void) {}
#endif

typedef struct {
  __global const float *a, *b;               // where the next slice begins, for this tile
  int offset_a[COPIES_A], offset_b[COPIES_B];  // from there to this work-item's vectors
  int step_b;                                // from slice to slice
  int zeros;                                 // in front of K
#if COPY_A == REGISTERS
  vector_a held_a[COPIES_A];
#endif
#if COPY_B == REGISTERS
  vector_b held_b[COPIES_B];
#endif
} copier;

// For the tile at (row, column), beginning with `slice`.
static inline void start_copier(copier *copy, __global const float *A, __global const float *B, const int M,
                                const int N, const int K, const int row, const int column, const int slice,
                                const uint id)
{
  copy->zeros = (K + TILE_K - 1) / TILE_K * TILE_K - K;
  const long first_k = (long)slice * TILE_K - copy->zeros;
  copy->a = A + (long)row * K + first_k;
  copy->b = B + first_k * N + column;
  copy->step_b = TILE_K * N;
  UNROLL
  for (int i = 0; i < COPIES_A; ++i)
    copy->offset_a[i] = min((int)COPY_ROW(i, WIDTH_A), M - 1 - row) * K + COPY_VECTOR(i, WIDTH_A) * VECTOR_A;
  UNROLL
  for (int i = 0; i < COPIES_B; ++i)
    copy->offset_b[i] = COPY_ROW(i, WIDTH_B) * N + min((int)COPY_VECTOR(i, WIDTH_B) * VECTOR_B, N - VECTOR_B - column);
}

// Starts the copy of the next slice to `a` and `b`. Slice 0 is checked for the zeros in front of K.
static inline void fetch(copier *copy, const bool check, __local float *a, __local float *b, const uint id)
{
  UNROLL
  for (int i = 0; i < COPIES_A; ++i) {
    __global const float *from = copy->a + copy->offset_a[i];
    const bool valid = !check || (int)COPY_VECTOR(i, WIDTH_A) * VECTOR_A >= copy->zeros;
#if COPY_A == ASYNC
    copy_async(PLACE_A(i, a), from, VECTOR_A * 4, valid);
#else
    copy->held_a[i] = valid ? *(__global const vector_a *)from : (vector_a)(0.0f);
#endif
  }
  UNROLL
  for (int i = 0; i < COPIES_B; ++i) {
    __global const float *from = copy->b + copy->offset_b[i];
    const bool valid = !check || (int)COPY_ROW(i, WIDTH_B) >= copy->zeros;
#if COPY_B == ASYNC
    copy_async(b + COPY_ROW(i, WIDTH_B) * TILE_N + COPY_VECTOR(i, WIDTH_B) * VECTOR_B, from, VECTOR_B * 4,
               valid);
#else
    copy->held_b[i] = valid ? *(__global const vector_b *)from : (vector_b)(0.0f);
#endif
  }
  copy->a += TILE_K;
  copy->b += copy->step_b;
}

// Ends the copy of the slice that was fetched last.
static inline void deposit(const copier *copy, __local float *a, __local float *b, const uint id)
{
#if COPY_A == REGISTERS
  UNROLL
  for (int i = 0; i < COPIES_A; ++i) {
    __local float *to = PLACE_A(i, a);
    UNROLL
    for (int x = 0; x < VECTOR_A; ++x)
      to[x * COLUMN_A] = ((const float *)&copy->held_a[i])[x];
  }
#endif
#if COPY_B == REGISTERS
  UNROLL
  for (int i = 0; i < COPIES_B; ++i)
    *(__local vector_b *)(b + COPY_ROW(i, WIDTH_B) * TILE_N + COPY_VECTOR(i, WIDTH_B) * VECTOR_B) = copy->held_b[i];
#endif
}
