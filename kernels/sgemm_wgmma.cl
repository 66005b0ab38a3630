// Multiplying parts by wgmma, the tensor cores of NVIDIA's compute capability 9.0 (Hopper) at full speed: part of
// sgemm.cl.
//
// 128 work-items (a warp group) compute a patch of C of 64 x 4 * WPT_N, where WPT_M is 2. One instruction multiplies
// 64 rows of A by all columns of the patch, 16 deep, both from local memory and without waiting: the tensor cores work
// through the slice while one work-item starts the copies of later ones. Of the sums the l-th work-item of a warp
// holds rows l / 4 and l / 4 + 8 of the warp's 16, and of every 8 columns 2 * (l % 4) and the one after.
//
// wgmma belongs to the target sm_90a, and OpenCL compiles for sm_90: the directive in front of each instruction asks
// for it. PTX does not promise that, and NVIDIA's driver takes it (580).
#define PATCH_M 64
#define PATCH_N (4 * WPT_N)
#define SUMS (WPT_M * WPT_N)
#define GROUPS (THREADS / 128)
#define HOPPER ".target sm_90a\n"

// The sums as operands of the instruction, and their names in its text.
#define SUM(i) "+f"(sums[i])
#define SUMS_4(i) SUM(i), SUM(i + 1), SUM(i + 2), SUM(i + 3)
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12)
#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32 NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_48 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_64 NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#if WPT_N == 16
#define SHAPE "m64n64k16"
#define NAMES NAMES_32
#define NAME_A "%32"
#define NAME_B "%33"
#define NAME_ADD "%34"
#define OPERANDS SUMS_16(0), SUMS_16(16)
#elif WPT_N == 24
#define SHAPE "m64n96k16"
#define NAMES NAMES_48
#define NAME_A "%48"
#define NAME_B "%49"
#define NAME_ADD "%50"
#define OPERANDS SUMS_16(0), SUMS_16(16), SUMS_16(32)
#elif WPT_N == 32
#define SHAPE "m64n128k16"
#define NAMES NAMES_64
#define NAME_A "%64"
#define NAME_B "%65"
#define NAME_ADD "%66"
#define OPERANDS SUMS_16(0), SUMS_16(16), SUMS_16(32), SUMS_16(48)
#endif

// sums = a * b, added to what they were if `add`: the instruction.
static inline void multiply_patch(float *sums, const ulong a, const ulong b, const int add)
{
  asm volatile("{\n" HOPPER ".reg .pred add;\n"
               "setp.ne.b32 add, " NAME_ADD ", 0;\n"
               "wgmma.mma_async.sync.aligned." SHAPE ".f32.bf16.bf16 "
               "{" NAMES "}, " NAME_A ", " NAME_B ", add, 1, 1, 0, 0;\n}"
               : OPERANDS
               : "l"(a), "l"(b), "r"(add));
}

// Before the first instruction of a batch, after the last one, and until all have ended.
static inline void open_batch(void)
{
  asm volatile(HOPPER "wgmma.fence.sync.aligned;" ::: "memory");
}

static inline void close_batch(void)
{
  asm volatile(HOPPER "wgmma.commit_group.sync.aligned;" ::: "memory");
}

static inline void wait_for_batch(void)
{
  asm volatile(HOPPER "wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// How the instruction finds its operand: where it begins, in units of 16 bytes; how far its second panel is; and that
// 8 rows are 128 bytes.
static inline ulong describe(__local const octet *first, const int panel)
{
  return (ulong)(local_address(first) >> 4) | (ulong)panel << 16 | (ulong)(128 >> 4) << 32;
}

// sums += one part of a slice of A * one part of a slice of B; the first product of a slice begins the sums.
static inline void multiply_part(float *sums, const ulong a, const ulong b, const int part_a, const int part_b,
                                 const bool first)
{
  UNROLL
  for (int panel = 0; panel < TILE_K / 8; panel += 2)
    multiply_patch(sums, a + part_a * TILE_M + panel * PANEL_A, b + part_b * TILE_N + panel * PANEL_B,
                   !first || panel > 0);
}

// A gate counts arrivals, and bytes that copies bring, and opens when all that it awaits are there; then it counts
// anew. Its phase is even, then odd, and so on.
typedef ulong gate;

static inline void set_up(__local gate *g, const int arrivals)
{
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(local_address(g)), "r"(arrivals) : "memory");
}

static inline void arrive(__local gate *g)
{
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(local_address(g)) : "memory");
}

static inline void arrive_and_expect(__local gate *g, const uint bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(local_address(g)), "r"(bytes) : "memory");
}

static inline void wait_at(__local gate *g, const uint phase)
{
  asm volatile("{\n.reg .pred open;\n"
               "again_%=:\n"
               "mbarrier.try_wait.parity.shared.b64 open, [%0], %1;\n"
               "@!open bra again_%=;\n}" ::"r"(local_address(g)), "r"(phase % 2)
               : "memory");
}

// Starts one copy of any multiple of 16 bytes, whose arrival a gate awaits.
static inline void copy_bulk(__local octet *to, __global const octet *from, const uint bytes, __local gate *g)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   local_address(to)),
               "l"(from), "r"(bytes), "r"(local_address(g))
               : "memory");
}

static inline void copy_slice(__local octet *stage, __global const octet *a, __global const octet *b, __local gate *g)
{
  arrive_and_expect(g, STAGE * sizeof(octet));
  copy_bulk(stage, a, SLICE_A * sizeof(octet), g);
  copy_bulk(stage + SLICE_A, b, SLICE_B * sizeof(octet), g);
}

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void multiply_parts(const int M, const int N, const int K, __global const octet *restrict parts_A,
                    __global const octet *restrict parts_B, __global float *restrict C)
{
  // Every stage holds a slice of A and one of B. It is full when they have arrived, and free when all warp groups have
  // multiplied them. Groups wait for nothing else: while one adds its sums, the tensor cores work for another.
  __local octet slices[STAGES * STAGE] __attribute__((aligned(128)));
  __local gate full[STAGES], free[STAGES];

  int tile_row, tile_column;
  find_tile(M, N, &tile_row, &tile_column);
  const int begin = first_slice(K);
  const int end = end_of_slices(K, begin);
  const int count = (K + TILE_K - 1) / TILE_K;
  __global const octet *a = parts_A + ((size_t)tile_row * count + begin) * SLICE_A;
  __global const octet *b = parts_B + ((size_t)tile_column * count + begin) * SLICE_B;
  const int slices_here = end - begin;

  const int id = get_local_id(0);
  const int group = id / 128;
  const int patch_row = group / (TILE_N / PATCH_N) * PATCH_M;
  const int patch_column = group % (TILE_N / PATCH_N) * PATCH_N;
  const ulong described_a = describe(slices + patch_row, PANEL_A);
  const ulong described_b = describe(slices + SLICE_A + patch_column, PANEL_B);

  if (id == 0) {
    UNROLL
    for (int stage = 0; stage < STAGES; ++stage) {
      set_up(&full[stage], 1);
      set_up(&free[stage], GROUPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // for the copies
    for (int slice = 0; slice < min(STAGES, slices_here); ++slice)
      copy_slice(slices + slice * STAGE, a + slice * SLICE_A, b + slice * SLICE_B, &full[slice]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  total totals[SUMS] = {{0.0f, 0.0f}};
  float sums[SUMS];
  for (int slice = 0; slice < slices_here; ++slice) {
    const int stage = slice % STAGES;
    wait_at(&full[stage], slice / STAGES);
    const ulong slice_a = described_a + stage * STAGE, slice_b = described_b + stage * STAGE;
    open_batch();
    multiply_part(sums, slice_a, slice_b, HIGH, LOW, true);
    multiply_part(sums, slice_a, slice_b, LOW, HIGH, false);
    multiply_part(sums, slice_a, slice_b, MIDDLE, MIDDLE, false);
    multiply_part(sums, slice_a, slice_b, HIGH, MIDDLE, false);
    multiply_part(sums, slice_a, slice_b, MIDDLE, HIGH, false);
    multiply_part(sums, slice_a, slice_b, HIGH, HIGH, false);
    close_batch();

    // While they are multiplied: another slice to the stage of the slice before.
    const int before = slice - 1, next = before + STAGES;
    if (id == 0 && before >= 0 && next < slices_here) {
      wait_at(&free[before % STAGES], before / STAGES);
      copy_slice(slices + before % STAGES * STAGE, a + (size_t)next * SLICE_A, b + (size_t)next * SLICE_B,
                 &full[before % STAGES]);
    }
    wait_for_batch();
    if (id % 128 == 0)
      arrive(&free[stage]);
    UNROLL
    for (int i = 0; i < SUMS; ++i)
      totals[i].chunk += sums[i];
    if (slice % CHUNK == CHUNK - 1) {
      UNROLL
      for (int i = 0; i < SUMS; ++i)
        close_chunk(&totals[i]);
    }
  }

  C += (size_t)get_group_id(1) * M * N;
  const int row = tile_row * TILE_M + patch_row + id / 32 % 4 * 16 + id % 32 / 4;
  const int column = tile_column * TILE_N + patch_column + id % 4 * 2;
  UNROLL
  for (int j = 0; j < PATCH_N / 8; ++j) {
    write_pair(C, M, N, row, column + j * 8, &totals[4 * j]);
    write_pair(C, M, N, row + 8, column + j * 8, &totals[4 * j + 2]);
  }
}
