// Inclusive prefix sums, in place: each block by itself, then the sums before it are added. Whole numbers wrap alike.
#ifndef WG
#define WG 64
#endif
#ifndef PER_ITEM
#define PER_ITEM 4
#endif
#define BLOCK (WG * PER_ITEM)

uint scan_group(local uint *sums, const uint own)  // the sum of all items before this one; sums[WG - 1]: of all
{
    const int item = get_local_id(0);
    sums[item] = own;
    for (int reach = 1; reach < WG; reach *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint other = item >= reach ? sums[item - reach] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        sums[item] += other;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return sums[item] - own;
}

kernel void scan_blocks(const int N, global uint *x, global uint *ends)
{
    local uint sums[WG];
    const int first = get_group_id(0) * BLOCK + get_local_id(0) * PER_ITEM;
    uint mine[PER_ITEM], sum = 0;
    for (int i = 0; i < PER_ITEM; ++i) {
        sum += first + i < N ? x[first + i] : 0;
        mine[i] = sum;
    }
    const uint before = scan_group(sums, sum);
    for (int i = 0; i < PER_ITEM && first + i < N; ++i)
        x[first + i] = before + mine[i];
    if (get_local_id(0) == WG - 1)
        ends[get_group_id(0)] = sums[WG - 1];
}

kernel void add_before(const int N, global uint *x, global const uint *ends)
{
    local uint sums[WG];
    const int block = get_group_id(0);
    uint own = 0;
    for (int i = get_local_id(0); i < block; i += WG)
        own += ends[i];
    scan_group(sums, own);
    const uint before = sums[WG - 1];
    for (int i = get_local_id(0); i < BLOCK && block * BLOCK + i < N; i += WG)
        x[block * BLOCK + i] += before;
}
