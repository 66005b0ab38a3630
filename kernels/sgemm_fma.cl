// Multiplying slices by fused multiply-adds: part of sgemm.cl.

#define STEP_K 1  // depth of a fragment
#define FRAGMENT_A(lane) ((lane) / LANES_N * VECTOR_M)
#define FRAGMENT_B(lane) ((lane) % LANES_N * VECTOR_N)

typedef FLOATS(FMA_WIDTH) vector_f;

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

static inline void begin_slice(accumulator *sums) {}
static inline void end_slice(accumulator *sums) {}

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
    read_fragment(&f, a + k * COLUMN_A, b + k * STRIDE_B);
    multiply(sums, &f);
  }
}
