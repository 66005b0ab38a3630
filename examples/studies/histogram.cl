// How often each of BINS values occurs: counted in local memory by atomics, then added to the whole.
#ifndef WG
#define WG 64
#endif
#ifndef GROUPS
#define GROUPS 16
#endif
#ifndef COPIES
#define COPIES 1
#endif

kernel void histogram(const int N, const int BINS, global const uchar *x, global uint *count, local uint *mine)
{
    const int item = get_local_id(0), copy = item % COPIES;
    for (int i = item; i < BINS * COPIES; i += WG)
        mine[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_global_id(0); i < N; i += GROUPS * WG)
        atomic_inc(mine + x[i] * COPIES + copy);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int bin = item; bin < BINS; bin += WG) {
        uint sum = 0;
        for (int i = 0; i < COPIES; ++i)
            sum += mine[bin * COPIES + i];
        if (sum)
            atomic_add(count + bin, sum);
    }
}
