kernel void nbody(const int N, global const float4 *position, global float4 *force)
{
    local float4 shared[LOCAL ? GROUP : 1];
    const int me = get_local_id(0), first_mine = get_group_id(0) * GROUP * ITEMS + me;
    float4 mine[ITEMS], sum[ITEMS];
    for (int item = 0; item < ITEMS; ++item) {
        mine[item] = position[first_mine + item * GROUP];
        sum[item] = 0;
    }
    for (int first = 0; first < N; first += GROUP) {
        if (LOCAL) {
            barrier(CLK_LOCAL_MEM_FENCE);
            shared[LOCAL ? me : 0] = position[first + me];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#pragma unroll UNROLL
        for (int j = 0; j < GROUP; ++j) {
            const float4 other = LOCAL ? shared[LOCAL ? j : 0] : position[first + j];
            for (int item = 0; item < ITEMS; ++item) {
                const float4 d = other - mine[item];
                const float square = d.x * d.x + d.y * d.y + d.z * d.z + 0.01f;
                const float r = FAST ? native_rsqrt(square) : rsqrt(square);
                sum[item] += d * (r * r * r);
            }
        }
    }
    for (int item = 0; item < ITEMS; ++item)
        force[first_mine + item * GROUP] = sum[item];
}
