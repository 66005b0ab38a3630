// Taking A and B apart for tensor cores, and what both methods on tensor cores share: part of sgemm.cl.
//
// Tensor cores multiply bfloat16: 8 significant bits and the exponents of float32, which has 24 bits. So a float is
// the sum of three bfloat16, its parts:
//     high = x rounded,    middle = (x - high) rounded,    low = x - high - middle, exactly
// and of the nine products of the parts of a and b the six largest are added:
//     a * b = high * low + low * high + middle * middle + high * middle + middle * high + high * high
// The three that are left out are at most 2^-25 of the whole together, and of either sign.
//
// Tensor cores cut off what is more than about 25 bits below the largest number of a sum. So the small products are
// added first; and every sum is short: no longer than a slice, and the slices' sums are added outside of the tensor
// cores, rounded, first to chunks and these to totals: so rounding costs less than in one long sum. Three bfloat16: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype
// For Higher-Precision Computations", 2019; adding outside: Ootomo and Yokota, "Recovering single precision accuracy
// from Tensor Cores while surpassing the FP32 theoretical peak performance", 2022.
//
// An infinity becomes NaN: it has no parts. Below 2^-110 a float loses its last bits, as bfloat16 ends at 2^-133.

#define HIGH 0
#define MIDDLE 1
#define LOW 2
#define PARTS 3

// The parts lie in global memory in the order in which they are copied and multiplied: tile by tile, within a tile
// panel by panel (a panel is 8 deep), within a panel part by part, and there row by row of A, or column by column of
// B: 8 parts in 16 bytes, an `octet`. Outside of the matrices they are zero. So all edges are met here, slices are
// contiguous, and where a tensor core reads 8 rows they are 128 contiguous bytes, free of bank conflicts.
typedef uint4 octet;
#define PANEL_A (PARTS * TILE_M)  // octets
#define PANEL_B (PARTS * TILE_N)
#define SLICE_A (TILE_K / 8 * PANEL_A)
#define SLICE_B (TILE_K / 8 * PANEL_B)
#define STAGE (SLICE_A + SLICE_B)

// x as a bfloat16 in the upper half: rounded, where that leaves it finite, and else cut.
static inline uint as_bfloat16(const float x)
{
  const uint bits = as_uint(x);
  const bool finite = (bits & 0x7fffffff) < 0x7f7f8000;
  return (finite ? bits + 0x7fff + (bits >> 16 & 1) : bits) & 0xffff0000;
}

// The upper halves of two words in one.
static inline uint upper_halves(const uint first, const uint second)
{
  return first >> 16 | second;
}

// Takes 8 floats apart; the octets of their parts are `stride` octets apart.
static inline void decompose_8(const float *x, __global octet *parts, const int stride)
{
  uint part[PARTS][8];
  UNROLL
  for (int i = 0; i < 8; ++i) {
    part[HIGH][i] = as_bfloat16(x[i]);
    const float rest = x[i] - as_float(part[HIGH][i]);
    part[MIDDLE][i] = as_bfloat16(rest);
    part[LOW][i] = as_bfloat16(rest - as_float(part[MIDDLE][i]));
  }
  UNROLL
  for (int p = 0; p < PARTS; ++p) {
    octet o;
    o.x = upper_halves(part[p][0], part[p][1]);
    o.y = upper_halves(part[p][2], part[p][3]);
    o.z = upper_halves(part[p][4], part[p][5]);
    o.w = upper_halves(part[p][6], part[p][7]);
    parts[p * stride] = o;
  }
}

// Where the high parts of a row (column) in a panel lie, in octets, with `panels` panels in a tile.
static inline size_t place_of(const int row, const int panel, const int panels, const int tile)
{
  return ((size_t)(row / tile) * panels + panel) * PARTS * tile + row % tile;
}

// A work-item takes 8 floats of a row of A, or of a column of B, apart: the first work-items along dimension 0 two
// panels of A's rows, row by row, so that neighbours read 64 contiguous bytes; the others two panels of B's columns,
// panel by panel, so that neighbours read neighbouring columns.
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void decompose(const int M, const int N, const int K, __global const float *restrict A,
               __global const float *restrict B, __global octet *restrict parts_A, __global octet *restrict parts_B)
{
  const int rows = (M + TILE_M - 1) / TILE_M * TILE_M;
  const int columns = (N + TILE_N - 1) / TILE_N * TILE_N;
  const int panels = (K + TILE_K - 1) / TILE_K * (TILE_K / 8);
  const int of_A = get_global_id(0);
  const int of_B = of_A - 2 * rows;
  float x[8];
  if (of_B < 0) {
    const int row = of_A / 2;
    const int panel = 2 * get_global_id(1) + of_A % 2;
    const int k = panel * 8;
    __global const float *a = A + (size_t)row * K + k;
    if (row < M && k + 8 <= K && K % 4 == 0) {
      *(float4 *)&x[0] = *(__global const float4 *)a;
      *(float4 *)&x[4] = *(__global const float4 *)(a + 4);
    } else {
      UNROLL
      for (int i = 0; i < 8; ++i)
        x[i] = row < M && k + i < K ? a[i] : 0.0f;
    }
    decompose_8(x, parts_A + place_of(row, panel, panels, TILE_M), TILE_M);
  } else if (of_B < 2 * columns) {
    const int column = of_B % columns;
    const int panel = 2 * get_global_id(1) + of_B / columns;
    const int k = panel * 8;
    UNROLL
    for (int i = 0; i < 8; ++i)
      x[i] = column < N && k + i < K ? B[(size_t)(k + i) * N + column] : 0.0f;
    decompose_8(x, parts_B + place_of(column, panel, panels, TILE_N), TILE_N);
  }
}

// The address of local memory as NVIDIA's instructions want it.
static inline uint local_address(__local const void *pointer)
{
  return (uint)(size_t)pointer;
}

// An element of C: the sum of chunks of CHUNK slices (256 deep), the last one apart.
#define CHUNK (256 / TILE_K)
typedef struct {
  float sum, chunk;
} total;

static inline void close_chunk(total *t)
{
  t->sum += t->chunk;
  t->chunk = 0.0f;
}

// Writes two adjacent totals to C, those that lie inside. Rows of C start at an even place where N is even.
static inline void write_pair(__global float *C, const int M, const int N, const int row, const int column,
                              const total *pair)
{
  const float first = pair[0].sum + pair[0].chunk;
  const float second = pair[1].sum + pair[1].chunk;
  __global float *c = C + (size_t)row * N + column;
  if (row < M && column < N) {
    if (N % 2 == 0) {
      *(__global float2 *)c = (float2)(first, second);
    } else {
      c[0] = first;
      if (column + 1 < N)
        c[1] = second;
    }
  }
}
