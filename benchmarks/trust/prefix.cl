#ifndef GROUP
#define GROUP 256
#endif
#ifndef ITEMS
#define ITEMS 8
#endif


/* Inclusive prefix sums of one value per work-item. */
int scan_group(int mine, local int *shared, int size)
{
    const int i = get_local_id(0);
    shared[i] = mine;
    for (int step = 1; step < size; step *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const int before = i >= step ? shared[i - step] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        shared[i] += before;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return shared[i];
}

kernel void scan(global const int *a, global int *b, global int *sums)
{
    local int shared[GROUP];
    const int first = get_global_id(0) * ITEMS;
    int v[ITEMS], sum = 0;
    for (int i = 0; i < ITEMS; ++i)
        v[i] = sum += a[first + i];
    const int upto = scan_group(sum, shared, GROUP);
    for (int i = 0; i < ITEMS; ++i)
        b[first + i] = v[i] + upto - sum;
    if (get_local_id(0) == GROUP - 1)
        sums[get_group_id(0)] = upto;
}

kernel void scan_sums(global int *sums)
{
    local int shared[256];
    const int count = BLOCKS, each = (count + 255) / 256, first = get_local_id(0) * each;
    int sum = 0;
    for (int i = first; i < min(first + each, count); ++i)
        sum += sums[i];
    int before = scan_group(sum, shared, 256) - sum;
    for (int i = first; i < min(first + each, count); ++i) {
        before += sums[i];
        sums[i] = before;
    }
}

kernel void add(global const int *sums, global int *b)
{
    const int first = get_global_id(0) * ITEMS, before = get_group_id(0) > 0 ? sums[get_group_id(0) - 1] : 0;
    for (int i = 0; i < ITEMS; ++i)
        b[first + i] += before;
}
