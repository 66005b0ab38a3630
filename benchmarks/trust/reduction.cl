#ifndef GROUP
#define GROUP 256
#endif
#ifndef GROUPS
#define GROUPS 512
#endif
#ifndef VECTOR
#define VECTOR 1
#endif


int sum_of_group(int mine, local int *shared)
{
    const int i = get_local_id(0);
    shared[i] = mine;
    for (int half_ = GROUP / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (i < half_)
            shared[i] += shared[i + half_];
    }
    return shared[0];
}

kernel void partial_sums(const int N, global const int *a, global int *partial)
{
    local int shared[GROUP];
    int sum = 0;
    for (int i = get_global_id(0); i < N / VECTOR; i += GROUP * GROUPS) {
#if VECTOR == 1
        sum += a[i];
#elif VECTOR == 2
        const int2 v = vload2(i, a);
        sum += v.x + v.y;
#else
        const int4 v = vload4(i, a);
        sum += v.x + v.y + v.z + v.w;
#endif
    }
    sum = sum_of_group(sum, shared);
    if (get_local_id(0) == 0)
        partial[get_group_id(0)] = sum;
}

kernel void total_sum(global const int *partial, global int *total)
{
    local int shared[GROUP];
    int sum = 0;
    for (int i = get_local_id(0); i < GROUPS; i += GROUP)
        sum += partial[i];
    sum = sum_of_group(sum, shared);
    if (get_local_id(0) == 0)
        total[0] = sum;
}
