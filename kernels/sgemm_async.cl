// Asynchronous copies from global to local memory: NVIDIA's cp.async (compute capability 8.0 and up): part of sgemm.cl.

// Starts a copy of 4, 8 or 16 bytes; of zeros where it is not `valid`.
static inline void copy_async(__local void *to, __global const void *from, const int bytes, const bool valid)
{
  const uint address = (uint)(size_t)to;
  const uint read = valid ? bytes : 0;
  if (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(read) : "memory");
  else if (bytes == 8)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address), "l"(from), "r"(read) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(read) : "memory");
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
