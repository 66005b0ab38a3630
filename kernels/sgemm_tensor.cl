// Multiplying slices on NVIDIA's tensor cores (compute capability 8.0 and up), at the accuracy of float32: part of
// sgemm.cl.
//
// Tensor cores multiply TF32: float32 with 11 significant bits instead of 24. So every number is split into a high
// and a low part of 11 bits, and of the four products of the parts the three largest are added:
//     a * b = low_a * high_b + high_a * low_b + high_a * high_b
// Tensor cores truncate where they add, and a long sum would drift towards zero. So they add up one slice at a time;
// the sums of the slices are added outside of them, rounded. Both ideas: Ootomo and Yokota, "Recovering single
// precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance", 2022.
//
// Infinities, and numbers that round to one as TF32 (from 0x1.ffep127 on), become NaN: they have no low part. Sums
// that come as near to the largest float may become infinite.

// The product that is left out is at most 2^-22 of the whole. It averages out in a long sum; a short one goes by
// fused multiply-adds: all of K below this.
#define SHORT_K 256

// In a slice, a number is truncated TILE_K * 3 / 8 times, by half a unit in its last place on average while it grows.
// What this factor gives back was measured on an H200: it halves the error of sums of positive numbers.
#define TRUNCATED (1.0f + TILE_K * 0x1p-27f)

// One instruction multiplies 16 rows of A by 8 columns of B, 8 deep, in a patch of 32 work-items (a warp). The l-th
// gives rows l / 4 and l / 4 + 8 of A and column l / 4 of B, all at depths l % 4 and l % 4 + 4, and holds 2 x 2 sums:
// rows l / 4 and l / 4 + 8, columns 2 * (l % 4) and the one after.
//
// A's rows are those of the tile. B's columns are dealt out so that a work-item reads 4 adjacent ones as a vector:
// column c of the j-th of four instructions is column 4 * c + j of the tile. So 8 adjacent columns of C are its own.
// This is the layout of LANES_M = 8, VECTOR_M = 1 and VECTOR_N = 8.
#define STEP_K 8  // depth of a fragment
#define FRAGMENT_A(lane) ((lane) % 16 * ROW_A + (lane) / 16 * 4)  // see read_16x8
#define FRAGMENT_B(lane) ((lane) % 4 * STRIDE_B + (lane) / 4 * 4)
#define PATCH_M (WPT_M / 2)  // instructions that cover a patch
#define PATCH_N (WPT_N / 2)

typedef struct {
  float total[WPT_M][WPT_N] __attribute__((aligned(64)));
  float slice[PATCH_M][PATCH_N][4];  // as the instructions hold it
} accumulator;

typedef struct {
  float a[PATCH_M][4];
  float b[2][PATCH_N] __attribute__((aligned(16)));  // [upper and lower half of the depth][column]
} fragment;

static inline void clear(accumulator *sums)
{
  UNROLL
  for (int i = 0; i < WPT_M; ++i)
    UNROLL
    for (int j = 0; j < WPT_N; ++j)
      sums->total[i][j] = 0.0f;
}

static inline void begin_slice(accumulator *sums)
{
  UNROLL
  for (int i = 0; i < PATCH_M; ++i)
    UNROLL
    for (int j = 0; j < PATCH_N; ++j)
      UNROLL
      for (int x = 0; x < 4; ++x)
        sums->slice[i][j][x] = 0.0f;
}

static inline void end_slice(accumulator *sums)
{
  UNROLL
  for (int i = 0; i < PATCH_M; ++i)
    UNROLL
    for (int j = 0; j < PATCH_N; ++j)
      UNROLL
      for (int x = 0; x < 4; ++x) {
        float *total = &sums->total[2 * i + x / 2][j / 4 * 8 + x % 2 * 4 + j % 4];
        *total = fma(sums->slice[i][j][x], TRUNCATED, *total);
      }
}

// Reads 16 rows of 8 numbers, in the instruction's order. The l-th work-item tells where the (l % 16)-th row begins,
// or its second half.
static inline void read_16x8(float *a, __local const float *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=f"(a[0]), "=f"(a[1]), "=f"(a[2]), "=f"(a[3])
               : "r"((uint)(size_t)row)
               : "memory");
}

static inline void read_fragment(fragment *f, __local const float *a, __local const float *b)
{
  UNROLL
  for (int i = 0; i < PATCH_M; ++i)
    read_16x8(f->a[i], a + i * 16 * ROW_A);
  UNROLL
  for (int lower = 0; lower < 2; ++lower)
    UNROLL
    for (int j = 0; j < PATCH_N; j += 4)
      AT(float4, f->b[lower][j]) = *(__local const float4 *)(b + lower * 4 * STRIDE_B + j * 8);
}

// x = high + low, exactly. The high part is x rounded to TF32, by adding half of its last place and cutting the rest.
// Of the low part tensor cores ignore what is beyond TF32: at most 2^-23 of x.
static inline void split(const float x, uint *high, uint *low)
{
  *high = (as_uint(x) + 0x1000) & 0xffffe000;
  *low = as_uint(x - as_float(*high));
}

// sums += a * b in TF32: the instruction.
static inline void multiply_16x8x8(float *sums, const uint *a, const uint upper_b, const uint lower_b)
{
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(upper_b), "r"(lower_b));
}

// sums += one part of A (high or low) * one part of B, through the whole patch: no instruction waits for the one before
// it. The order decides which operands are at hand.
static inline void multiply_parts(accumulator *sums, uint a[PATCH_M][4], uint b[2][PATCH_N])
{
#if FMA_ORDER == COLUMN
  UNROLL
  for (int j = 0; j < PATCH_N; ++j)
    UNROLL
    for (int step = 0; step < PATCH_M; ++step) {
      const int i = j % 2 ? PATCH_M - 1 - step : step;
      multiply_16x8x8(sums->slice[i][j], a[i], b[0][j], b[1][j]);
    }
#else
  UNROLL
  for (int i = 0; i < PATCH_M; ++i)
    UNROLL
    for (int step = 0; step < PATCH_N; ++step) {
      const int j = FMA_ORDER == SERPENTINE && i % 2 ? PATCH_N - 1 - step : step;
      multiply_16x8x8(sums->slice[i][j], a[i], b[0][j], b[1][j]);
    }
#endif
}

static inline void multiply(accumulator *sums, const fragment *f)
{
  uint high_a[PATCH_M][4], low_a[PATCH_M][4], high_b[2][PATCH_N], low_b[2][PATCH_N];
  UNROLL
  for (int lower = 0; lower < 2; ++lower)
    UNROLL
    for (int j = 0; j < PATCH_N; ++j)
      split(f->b[lower][j], &high_b[lower][j], &low_b[lower][j]);
  UNROLL
  for (int i = 0; i < PATCH_M; ++i)
    UNROLL
    for (int x = 0; x < 4; ++x)
      split(f->a[i][x], &high_a[i][x], &low_a[i][x]);
  multiply_parts(sums, low_a, high_b);
  multiply_parts(sums, high_a, low_b);
  multiply_parts(sums, high_a, high_b);
}

// total += a slice of A x a slice of B by fused multiply-adds, from this work-item's first row and column on.
static inline void multiply_slice(accumulator *sums, __local const float *a, __local const float *b)
{
  _Pragma("unroll 1")
  for (int k = 0; k < TILE_K; ++k)
    UNROLL
    for (int j = 0; j < WPT_N; ++j)
      UNROLL
      for (int i = 0; i < WPT_M; ++i)
        sums->total[i][j] = fma(a[i * LANES_M * ROW_A + k], b[k * STRIDE_B + j / 8 * 32 + j % 8], sums->total[i][j]);
}
