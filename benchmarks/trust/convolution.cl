#ifndef X
#define X 16
#endif
#ifndef Y
#define Y 8
#endif
#ifndef ITEMS
#define ITEMS 1
#endif
#ifndef LOCAL
#define LOCAL 0
#endif


kernel void convolution(const int N, global const float *a, global const float *weights, global float *b)
{
    local float shared[LOCAL ? 25 : 1];
    const int me = get_local_id(1) * X + get_local_id(0);
    if (LOCAL) {
        for (int i = me; i < 25; i += X * Y)
            shared[i] = weights[i];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const int x = get_global_id(0), first = get_global_id(1) * ITEMS;
    if (x >= N)
        return;
    for (int y = first; y < min(first + ITEMS, N); ++y) {
        float sum = 0;
        for (int r = -2; r <= 2; ++r)
            for (int c = -2; c <= 2; ++c) {
                const int k = (r + 2) * 5 + c + 2;
                const float w = LOCAL ? shared[LOCAL ? k : 0] : weights[k];
                sum += w * a[clamp(y + r, 0, N - 1) * N + clamp(x + c, 0, N - 1)];
            }
        b[y * N + x] = sum;
    }
}
