// Multiplying slices on NVIDIA's tensor cores (compute capability 8.0 and up), at the accuracy of float32: part of
// sgemm.cl.
//
// The tensor cores multiply TF32: floats whose last 13 bits are ignored. So every float is split into a high part
// that TF32 holds exactly and a low part, and A * B = high * high + high * low + low * high; low * low is below
// float32's own rounding. Sums inside the tensor cores are truncated, not rounded, which adds up to a bias: the sum
// of each slice is therefore added to a float32 total outside of them.
// Infinities, and floats that the split rounds up to infinity (within 2^-11 of the largest), become NaN.
//
// A patch of 32 work-items is a warp. One instruction multiplies 16 x 8 by 8 x 8: lane l gives rows l / 4 and
// l / 4 + 8 of A and column l / 4 of B, both at depths l % 4 and l % 4 + 4, and holds columns 2 (l % 4) and
// 2 (l % 4) + 1 of the sums. Which rows and columns of the tile these are is ours to choose. Lane l takes 4 adjacent
// rows of A and 4 adjacent columns of B, read as one vector: the instruction's rows r and r + 8 are rows 4 r + 2 i
// and 4 r + 2 i + 1 in the i-th instruction of two, its column c is column 4 c + j in the j-th of four. A lane then
// holds 4 rows by 8 adjacent columns of C, which is the layout of LANES_M = 8 and VECTOR_N = 8.

#define STEP_K 8  // depth of a fragment
#define FRAGMENT_A(lane) ((lane) % 4 * STRIDE_A + (lane) / 4 * 4)
#define FRAGMENT_B(lane) ((lane) % 4 * STRIDE_B + (lane) / 4 * 4)

typedef struct {
  float total[WPT_M][WPT_N] __attribute__((aligned(64)));
  float slice[WPT_M][WPT_N];
} accumulator;

typedef struct {
  float a[2][WPT_M];      // [half of the depth][row]
  float b[2][WPT_N / 2];  // [half of the depth][column]
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
  for (int i = 0; i < WPT_M; ++i)
    UNROLL
    for (int j = 0; j < WPT_N; ++j)
      sums->slice[i][j] = 0.0f;
}

static inline void end_slice(accumulator *sums)
{
  UNROLL
  for (int i = 0; i < WPT_M; ++i)
    UNROLL
    for (int j = 0; j < WPT_N; ++j)
      sums->total[i][j] += sums->slice[i][j];
}

static inline void read_fragment(fragment *f, __local const float *a, __local const float *b)
{
  UNROLL
  for (int part = 0; part < 2; ++part) {
    UNROLL
    for (int i = 0; i < WPT_M; i += 4)
      AT(float4, f->a[part][i]) = *(__local const float4 *)(a + 4 * part * STRIDE_A + 8 * i);
    UNROLL
    for (int j = 0; j < WPT_N / 2; j += 4)
      AT(float4, f->b[part][j]) = *(__local const float4 *)(b + 4 * part * STRIDE_B + 8 * j);
  }
}

// x = high + low, exactly; the high part is x rounded to TF32.
static inline void split(const float x, uint *high, uint *low)
{
  *high = (as_uint(x) + 0x1000) & 0xffffe000;
  *low = as_uint(x - as_float(*high));
}

// (c0 c1; c2 c3) += (a0 a2; a1 a3) * (b0; b1), each a part of the warp's matrices.
static inline void multiply_tf32(float *c0, float *c1, float *c2, float *c3, const uint a0, const uint a1,
                                 const uint a2, const uint a3, const uint b0, const uint b1)
{
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(*c0), "+f"(*c1), "+f"(*c2), "+f"(*c3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// sums += one part of A (high or low) times one part of B.
static inline void multiply_parts(accumulator *sums, uint a[2][WPT_M], uint b[2][WPT_N / 2])
{
  UNROLL
  for (int i = 0; i < WPT_M; i += 2)
    UNROLL
    for (int j = 0; j < WPT_N / 2; ++j) {
      const int n = j / 4 * 8 + j % 4;
      multiply_tf32(&sums->slice[i][n], &sums->slice[i][n + 4], &sums->slice[i + 1][n], &sums->slice[i + 1][n + 4],
                    a[0][i], a[0][i + 1], a[1][i], a[1][i + 1], b[0][j], b[1][j]);
    }
}

static inline void multiply(accumulator *sums, const fragment *f)
{
  uint high_a[2][WPT_M], low_a[2][WPT_M], high_b[2][WPT_N / 2], low_b[2][WPT_N / 2];
  UNROLL
  for (int part = 0; part < 2; ++part) {
    UNROLL
    for (int i = 0; i < WPT_M; ++i)
      split(f->a[part][i], &high_a[part][i], &low_a[part][i]);
    UNROLL
    for (int j = 0; j < WPT_N / 2; ++j)
      split(f->b[part][j], &high_b[part][j], &low_b[part][j]);
  }
  multiply_parts(sums, low_a, high_b);
  multiply_parts(sums, high_a, low_b);
  multiply_parts(sums, high_a, high_b);
}
