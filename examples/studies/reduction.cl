// The sum of x in two launches: GROUPS work-groups add up a part each, one work-group adds up the parts.
#ifndef WG
#define WG 128
#endif
#ifndef GROUPS
#define GROUPS 64
#endif

void add_up(local float *mine, global float *result)
{
    const int item = get_local_id(0);
    for (int width = WG / 2; width > 0; width /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < width)
            mine[item] += mine[item + width];
    }
    if (item == 0)
        *result = mine[0];
}

kernel void partial_sums(const int N, global const float *x, global float *part)
{
    local float mine[WG];
    float sum = 0.0f;
    for (int i = get_global_id(0); i < N; i += GROUPS * WG)
        sum += x[i];
    mine[get_local_id(0)] = sum;
    add_up(mine, part + get_group_id(0));
}

kernel void whole_sum(global const float *part, global float *total)
{
    local float mine[WG];
    float sum = 0.0f;
    for (int i = get_local_id(0); i < GROUPS; i += WG)
        sum += part[i];
    mine[get_local_id(0)] = sum;
    add_up(mine, total);
}
