#ifndef X
#define X 32
#endif
#ifndef Y
#define Y 4
#endif
#ifndef Z
#define Z 1
#endif
#ifndef DEPTH
#define DEPTH 1
#endif


#pragma OPENCL EXTENSION cl_khr_fp64 : enable

kernel void stencil(const int N, global const double *a, global double *b)
{
    const int x = get_global_id(0), y = get_global_id(1), first = get_global_id(2) * DEPTH;
    if (x >= N || y >= N)
        return;
    for (int z = first; z < min(first + DEPTH, N); ++z) {
        const int i = (z * N + y) * N + x;
        const bool inside = x > 0 && x < N - 1 && y > 0 && y < N - 1 && z > 0 && z < N - 1;
        b[i] = inside ? 0.4 * a[i] + 0.1 * (a[i - 1] + a[i + 1] + a[i - N] + a[i + N] + a[i - N * N] + a[i + N * N])
                      : a[i];
    }
}
