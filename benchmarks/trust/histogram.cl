#ifndef GROUP
#define GROUP 256
#endif
#ifndef GROUPS
#define GROUPS 264
#endif
#ifndef COPIES
#define COPIES 1
#endif
#ifndef VECTOR
#define VECTOR 1
#endif


kernel void histogram(const int N, global const int *a, global int *bins)
{
    local int counts[COPIES * 256];
    const int me = get_local_id(0);
    local int *mine = counts + 256 * (me % COPIES);
    for (int i = me; i < COPIES * 256; i += GROUP)
        counts[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_global_id(0); i < N / VECTOR; i += GROUP * GROUPS) {
#if VECTOR == 1
        atomic_inc(mine + a[i]);
#else
        const int4 v = vload4(i, a);
        atomic_inc(mine + v.x);
        atomic_inc(mine + v.y);
        atomic_inc(mine + v.z);
        atomic_inc(mine + v.w);
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = me; i < 256; i += GROUP) {
        int sum = 0;
        for (int copy = 0; copy < COPIES; ++copy)
            sum += counts[256 * copy + i];
        atomic_add(bins + i, sum);
    }
}
