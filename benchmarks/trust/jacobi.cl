#ifndef X
#define X 32
#endif
#ifndef Y
#define Y 8
#endif
#ifndef ITEMS
#define ITEMS 1
#endif


kernel void jacobi(const int N, global const float *from, global float *to)
{
    const int first = get_global_id(0) * ITEMS, y = get_global_id(1);
    if (y >= N)
        return;
    for (int x = first; x < min(first + ITEMS, N); ++x) {
        const int i = y * N + x;
        const bool inside = x > 0 && x < N - 1 && y > 0 && y < N - 1;
        to[i] = inside ? 0.25f * (from[i - 1] + from[i + 1] + from[i - N] + from[i + N]) : from[i];
    }
}
