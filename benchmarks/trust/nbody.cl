#ifndef GROUP
#define GROUP 128
#endif
#ifndef UNROLL
#define UNROLL 1
#endif
#ifndef LOCAL
#define LOCAL 1
#endif
#ifndef FAST
#define FAST 1
#endif


kernel void nbody(const int N, global const float4 *position, global float4 *force)
{
    local float4 shared[LOCAL ? GROUP : 1];
    const int i = get_global_id(0), me = get_local_id(0);
    const float4 mine = position[i];
    float4 sum = 0;
    for (int first = 0; first < N; first += GROUP) {
        if (LOCAL) {
            barrier(CLK_LOCAL_MEM_FENCE);
            shared[LOCAL ? me : 0] = position[first + me];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#pragma unroll UNROLL
        for (int j = 0; j < GROUP; ++j) {
            const float4 d = (LOCAL ? shared[LOCAL ? j : 0] : position[first + j]) - mine;
            const float square = d.x * d.x + d.y * d.y + d.z * d.z + 0.01f;
            const float r = FAST ? native_rsqrt(square) : rsqrt(square);
            sum += d * (r * r * r);
        }
    }
    force[i] = sum;
}
