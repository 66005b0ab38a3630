// Copying slices of A and B to local memory: part of sgemm.cl.
//
// A copy has two halves: `fetch` starts it, `deposit` ends it. With REGISTERS, `fetch` loads to registers and
// `deposit` stores to local memory: the loads travel while the work-group multiplies. With ASYNC (NVIDIA, compute
// capability 8.0 and up), `fetch` starts copies that need no registers; batches of them are waited for.
//
// Edges cost nothing in the main loop. Rows and columns beyond the matrix read its last ones instead: they only
// reach sums that are never written. Where TILE_K does not divide K, zeros are thought in front of it, so that
// slice 0 alone needs a check.

#define PER_ROW_A (TILE_K / VECTOR_A)  // vectors in a row of the slice
#define PER_ROW_B (TILE_N / VECTOR_B)
#define COPIES_A (TILE_M * PER_ROW_A / THREADS)  // vectors copied by a work-item
#define COPIES_B (TILE_K * PER_ROW_B / THREADS)

typedef struct {
  __global const float *a;  // the tile's first row of A
  __global const float *b;  // the tile's first column of B
  int offset_a[COPIES_A];   // from there to this work-item's vectors
  int offset_b[COPIES_B];
  int id;
  int zeros;  // in front of K
  int N;
#if COPY_A == REGISTERS
  vector_a held_a[COPIES_A];
#endif
#if COPY_B == REGISTERS
  vector_b held_b[COPIES_B];
#endif
} copier;

static inline void start_copier(copier *copy, __global const float *A, __global const float *B, const int M,
                                const int N, const int K, const int row, const int column, const int id)
{
  copy->a = A + (size_t)row * K;
  copy->b = B + column;
  copy->id = id;
  copy->zeros = (K + TILE_K - 1) / TILE_K * TILE_K - K;
  copy->N = N;
  UNROLL
  for (int i = 0; i < COPIES_A; ++i) {
    const int vector = id + i * THREADS;
    copy->offset_a[i] = min(vector / PER_ROW_A, M - 1 - row) * K + vector % PER_ROW_A * VECTOR_A;
  }
  UNROLL
  for (int i = 0; i < COPIES_B; ++i) {
    const int vector = id + i * THREADS;
    copy->offset_b[i] = vector / PER_ROW_B * N + min(vector % PER_ROW_B * VECTOR_B, N - VECTOR_B - column);
  }
}

#if COPY_A == ASYNC || COPY_B == ASYNC
// Starts a copy of 1, 2 or 4 floats; of zeros where it is not `valid`.
static inline void copy_async(__local float *to, __global const float *from, const int floats, const bool valid)
{
  const uint address = (uint)(size_t)to;
  const uint bytes = valid ? floats * 4 : 0;
  if (floats == 4)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
  else if (floats == 2)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

static inline void close_batch(void)
{
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// All but the newest STAGES - 2 batches have arrived afterwards.
static inline void wait_for_oldest_batch(void)
{
  asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
}
#else
static inline void close_batch(void) {}
static inline void wait_for_oldest_batch(void) {}
#endif

// Starts the copy of a slice to `a` and `b`. Only slice 0 is checked for the zeros in front of K.
static inline void fetch(copier *copy, const int slice, const bool check, __local float *a, __local float *b)
{
  const int first_k = slice * TILE_K - copy->zeros;
  __global const float *from_a = copy->a + first_k;
  __global const float *from_b = copy->b + (long)first_k * copy->N;
  UNROLL
  for (int i = 0; i < COPIES_A; ++i) {
    const int vector = copy->id + i * THREADS;
    const bool valid = !check || vector % PER_ROW_A * VECTOR_A >= copy->zeros;
#if COPY_A == ASYNC
    __local float *to = a + vector % PER_ROW_A * STRIDE_A + vector / PER_ROW_A;
    copy_async(to, from_a + copy->offset_a[i], VECTOR_A, valid);
#else
    copy->held_a[i] = valid ? *(__global const vector_a *)(from_a + copy->offset_a[i]) : (vector_a)(0.0f);
#endif
  }
  UNROLL
  for (int i = 0; i < COPIES_B; ++i) {
    const int vector = copy->id + i * THREADS;
    const bool valid = !check || vector / PER_ROW_B >= copy->zeros;
#if COPY_B == ASYNC
    __local float *to = b + vector / PER_ROW_B * STRIDE_B + vector % PER_ROW_B * VECTOR_B;
    copy_async(to, from_b + copy->offset_b[i], VECTOR_B, valid);
#else
    copy->held_b[i] = valid ? *(__global const vector_b *)(from_b + copy->offset_b[i]) : (vector_b)(0.0f);
#endif
  }
}

// Ends the copy of a slice that was fetched; A is transposed on its way.
static inline void deposit(const copier *copy, __local float *a, __local float *b)
{
#if COPY_A == REGISTERS
  UNROLL
  for (int i = 0; i < COPIES_A; ++i) {
    const int vector = copy->id + i * THREADS;
    __local float *to = a + vector % PER_ROW_A * VECTOR_A * STRIDE_A + vector / PER_ROW_A;
    UNROLL
    for (int x = 0; x < VECTOR_A; ++x)
      to[x * STRIDE_A] = ((const float *)&copy->held_a[i])[x];
  }
#endif
#if COPY_B == REGISTERS
  UNROLL
  for (int i = 0; i < COPIES_B; ++i) {
    const int vector = copy->id + i * THREADS;
    *(__local vector_b *)(b + vector / PER_ROW_B * STRIDE_B + vector % PER_ROW_B * VECTOR_B) = copy->held_b[i];
  }
#endif
}
