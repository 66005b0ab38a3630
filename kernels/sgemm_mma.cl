// Multiplying parts by mma.sync, NVIDIA's tensor cores from compute capability 8.0 on: part of sgemm.cl.
//
// 32 work-items (a warp) compute a patch of C of 8 * WPT_M x 4 * WPT_N. One instruction multiplies 16 rows of A by 8
// columns of B, 16 deep; of its sums the l-th work-item holds rows l / 4 and l / 4 + 8, columns 2 * (l % 4) and the
// one after.
#define PATCH_M (8 * WPT_M)
#define PATCH_N (4 * WPT_N)
#define BLOCKS_M (PATCH_M / 16)
#define BLOCKS_N (PATCH_N / 8)
#define AT_ONCE 4  // blocks of columns whose sums grow in turns, so that no instruction waits for the one before it

#include "sgemm_async.cl"

// Reads 16 rows, 16 deep, in the instruction's order: x[0] and x[1] are the upper and lower 8 rows of the first panel,
// x[2] and x[3] of the second. The l-th work-item tells where the (l % 16)-th row of the (l / 16)-th panel lies.
static inline void read_16x16(uint *x, __local const octet *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(local_address(row))
               : "memory");
}

// sums += a * b: the instruction.
static inline void multiply_16x8x16(float *sums, const uint *a, const uint upper_b, const uint lower_b)
{
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(upper_b), "r"(lower_b));
}

// sums += one part of 16 rows of A * one part of 8 * AT_ONCE columns of B.
static inline void multiply_part(float sums[AT_ONCE][4], const uint *a, uint (*b)[4])
{
  UNROLL
  for (int j = 0; j < AT_ONCE; ++j)
    multiply_16x8x16(sums[j], a, b[j / 2][j % 2], b[j / 2][j % 2 + 2]);
}

// totals += the patch's product of two panels of A and of B. The sums grow inside of the tensor cores through the six
// products only.
static inline void multiply_panels(total totals[BLOCKS_M][BLOCKS_N][4], __local const octet *a, __local const octet *b)
{
  uint part_b[BLOCKS_N / AT_ONCE][PARTS][AT_ONCE / 2][4];
  UNROLL
  for (int j = 0; j < BLOCKS_N / 2; ++j)
    UNROLL
    for (int part = 0; part < PARTS; ++part)
      read_16x16(part_b[j / (AT_ONCE / 2)][part][j % (AT_ONCE / 2)], b + part * TILE_N + j * 16);
  UNROLL
  for (int i = 0; i < BLOCKS_M; ++i) {
    uint part_a[PARTS][4];
    UNROLL
    for (int part = 0; part < PARTS; ++part)
      read_16x16(part_a[part], a + part * TILE_M + i * 16);
    UNROLL
    for (int j = 0; j < BLOCKS_N / AT_ONCE; ++j) {
      float sums[AT_ONCE][4] = {{0.0f}};
      multiply_part(sums, part_a[HIGH], part_b[j][LOW]);
      multiply_part(sums, part_a[LOW], part_b[j][HIGH]);
      multiply_part(sums, part_a[MIDDLE], part_b[j][MIDDLE]);
      multiply_part(sums, part_a[HIGH], part_b[j][MIDDLE]);
      multiply_part(sums, part_a[MIDDLE], part_b[j][HIGH]);
      multiply_part(sums, part_a[HIGH], part_b[j][HIGH]);
      UNROLL
      for (int x = 0; x < 4 * AT_ONCE; ++x)
        totals[i][j * AT_ONCE + x / 4][x % 4].chunk += sums[x / 4][x % 4];
    }
  }
}

// Starts the copies of a slice of A and of B to a stage, as one batch.
static inline void copy_slice(__local octet *stage, __global const octet *a, __global const octet *b, const int id)
{
  UNROLL
  for (int i = 0; i < SLICE_A; i += THREADS)
    copy_async(stage + i + id, a + i + id, sizeof(octet), true);
  UNROLL
  for (int i = 0; i < SLICE_B; i += THREADS)
    copy_async(stage + SLICE_A + i + id, b + i + id, sizeof(octet), true);
}

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void multiply_parts(const int M, const int N, const int K, __global const octet *restrict parts_A,
                    __global const octet *restrict parts_B, __global float *restrict C)
{
  // Every stage holds a slice of A and one of B.
  __local octet slices[STAGES * STAGE] __attribute__((aligned(128)));

  int tile_row, tile_column;
  find_tile(M, N, &tile_row, &tile_column);
  const int begin = first_slice(K);
  const int end = end_of_slices(K, begin);
  const int count = (K + TILE_K - 1) / TILE_K;
  __global const octet *a = parts_A + (size_t)tile_row * count * SLICE_A;
  __global const octet *b = parts_B + (size_t)tile_column * count * SLICE_B;

  const int id = get_local_id(0);
  const int lane = id % 32;
  const int patch_row = id / 32 / (TILE_N / PATCH_N) * PATCH_M;
  const int patch_column = id / 32 % (TILE_N / PATCH_N) * PATCH_N;
  const int from_a = patch_row + lane % 16 + lane / 16 * PANEL_A;  // see read_16x16
  const int from_b = SLICE_A + patch_column + lane % 16 + lane / 16 * PANEL_B;

  total totals[BLOCKS_M][BLOCKS_N][4] = {{{{0.0f, 0.0f}}}};
  for (int slice = begin; slice < begin + STAGES - 1; ++slice) {
    if (slice < end)
      copy_slice(slices + (slice - begin) * STAGE, a + (size_t)slice * SLICE_A, b + (size_t)slice * SLICE_B, id);
    close_batch();
  }
  __local octet *full = slices;                         // the slice that is multiplied
  __local octet *free = slices + (STAGES - 1) * STAGE;  // the one before it: all have multiplied what lies there
  for (int slice = begin; slice < end; ++slice) {
    wait_for_oldest_batch();
    barrier(CLK_LOCAL_MEM_FENCE);
    const int next = slice + STAGES - 1;
    if (next < end)
      copy_slice(free, a + (size_t)next * SLICE_A, b + (size_t)next * SLICE_B, id);
    close_batch();
    UNROLL
    for (int panel = 0; panel < TILE_K / 8; panel += 2)
      multiply_panels(totals, full + from_a + panel * PANEL_A, full + from_b + panel * PANEL_B);
    if (slice % CHUNK == CHUNK - 1) {
      UNROLL
      for (int i = 0; i < BLOCKS_M * BLOCKS_N * 4; ++i)
        close_chunk(&totals[i / 4 / BLOCKS_N][i / 4 % BLOCKS_N][i % 4]);
    }
    free = full;
    full = full == slices + (STAGES - 1) * STAGE ? slices : full + STAGE;
  }

  C += (size_t)get_group_id(1) * M * N;
  const int row = tile_row * TILE_M + patch_row + lane / 4;
  const int column = tile_column * TILE_N + patch_column + lane % 4 * 2;
  UNROLL
  for (int i = 0; i < BLOCKS_M; ++i)
    UNROLL
    for (int j = 0; j < BLOCKS_N; ++j) {
      write_pair(C, M, N, row + i * 16, column + j * 8, &totals[i][j][0]);
      write_pair(C, M, N, row + i * 16 + 8, column + j * 8, &totals[i][j][2]);
    }
}
