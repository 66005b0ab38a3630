/* What the studies beside it are verified against: simple, one output per work-item. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

kernel void histogram(global const int *a, global int *bins) { atomic_inc(bins + a[get_global_id(0)]); }

kernel void stencil(const int N, global const double *a, global double *b)
{
    const int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2), i = (z * N + y) * N + x;
    if (x == 0 || x == N - 1 || y == 0 || y == N - 1 || z == 0 || z == N - 1)
        b[i] = a[i];
    else
        b[i] = 0.4 * a[i] + 0.1 * (a[i - 1] + a[i + 1] + a[i - N] + a[i + N] + a[i - N * N] + a[i + N * N]);
}

kernel void convolution(const int N, global const float *a, global const float *weights, global float *b)
{
    const int x = get_global_id(0), y = get_global_id(1);
    float sum = 0;
    for (int r = -2; r <= 2; ++r)
        for (int c = -2; c <= 2; ++c)
            sum += weights[(r + 2) * 5 + c + 2] * a[clamp(y + r, 0, N - 1) * N + clamp(x + c, 0, N - 1)];
    b[y * N + x] = sum;
}

kernel void jacobi(const int N, global const float *from, global float *to)
{
    const int x = get_global_id(0), y = get_global_id(1), i = y * N + x;
    if (x == 0 || x == N - 1 || y == 0 || y == N - 1)
        to[i] = from[i];
    else
        to[i] = 0.25f * (from[i - 1] + from[i + 1] + from[i - N] + from[i + N]);
}

kernel void nbody(const int N, global const float4 *position, global float4 *force)
{
    const int i = get_global_id(0);
    float4 sum = 0;
    for (int j = 0; j < N; ++j) {
        const float4 d = position[j] - position[i];
        const float r = rsqrt(d.x * d.x + d.y * d.y + d.z * d.z + 0.01f);
        sum += d * (r * r * r);
    }
    force[i] = sum;
}
