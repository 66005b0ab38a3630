// What a device can do at most: multiply-add, read, copy. benchmarks/kernels.py measures studies against these.

#ifndef CHAINS
#define CHAINS 8   // independent multiply-add chains per work-item, each of WIDTH floats
#endif
#ifndef STEPS
#define STEPS 16   // multiply-adds of a chain in one turn of the loop
#endif
#ifndef WIDTH
#define WIDTH 1    // floats per chain: 1 on GPUs, the vector unit on CPUs
#endif
#ifndef UNROLL
#define UNROLL 4   // float4 in flight per work-item
#endif
#ifndef CONTIGUOUS
#define CONTIGUOUS 0  // 0: neighbours read neighbouring float4, for GPUs; 1: each its own part, for CPUs
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#if WIDTH == 1
typedef float floats;
#else
typedef JOIN(float, WIDTH) floats;
#endif

#pragma OPENCL FP_CONTRACT ON // one instruction: fma() is a library call on some CPUs, and this is what studies write

// A chain waits for its own last result; the others fill the time. `never` is a value that no sum takes, which only
// the caller knows: so nothing is written, and nothing can be left out.
kernel void multiply_add(const int turns, const float a, const float b, const float never, global float *result)
{
    floats sums[CHAINS];
    #pragma unroll
    for (int i = 0; i < CHAINS * WIDTH; ++i)
        ((float *)sums)[i] = get_local_id(0) + i;
    for (int turn = 0; turn < turns; ++turn) {
        #pragma unroll
        for (int step = 0; step < STEPS; ++step)
            #pragma unroll
            for (int i = 0; i < CHAINS; ++i)
                sums[i] = sums[i] * a + b;
    }
    float total = 0.0f;
    #pragma unroll
    for (int i = 0; i < CHAINS * WIDTH; ++i)
        total += ((const float *)sums)[i];
    if (total == never)
        result[get_global_id(0)] = total;
}

kernel void read_all(const ulong count, global const float4 *restrict data, const float never, global float *result)
{
    const ulong share = (count + get_global_size(0) - 1) / get_global_size(0);
    const ulong stride = CONTIGUOUS ? 1 : get_global_size(0);
    ulong i = CONTIGUOUS ? share * get_global_id(0) : get_global_id(0);
    const ulong end = CONTIGUOUS ? min(i + share, count) : count;
    float4 sums[UNROLL];
    #pragma unroll
    for (int u = 0; u < UNROLL; ++u)
        sums[u] = 0.0f;
    for (; i + (UNROLL - 1) * stride < end; i += UNROLL * stride) {
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            sums[u] += data[i + u * stride];
    }
    for (; i < end; i += stride)
        sums[0] += data[i];
    float4 total = 0.0f;
    #pragma unroll
    for (int u = 0; u < UNROLL; ++u)
        total += sums[u];
    const float sum = total.x + total.y + total.z + total.w;
    if (sum == never)
        result[get_global_id(0)] = sum;
}

kernel void copy_all(const ulong count, global const float4 *restrict from, global float4 *restrict to)
{
    const ulong share = (count + get_global_size(0) - 1) / get_global_size(0);
    const ulong stride = CONTIGUOUS ? 1 : get_global_size(0);
    ulong i = CONTIGUOUS ? share * get_global_id(0) : get_global_id(0);
    const ulong end = CONTIGUOUS ? min(i + share, count) : count;
    for (; i + (UNROLL - 1) * stride < end; i += UNROLL * stride) {
        float4 values[UNROLL];
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            values[u] = from[i + u * stride];
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            to[i + u * stride] = values[u];
    }
    for (; i < end; i += stride)
        to[i] = from[i];
}

// Data that no compression and no zero page makes cheaper: all words differ. All are positive.
kernel void initialise(const ulong count, global float4 *data)
{
    for (ulong i = get_global_id(0); i < count; i += get_global_size(0)) {
        const uint4 mixed = ((uint)i * 4u + (uint4)(0, 1, 2, 3)) * 2654435761u;
        data[i] = convert_float4(mixed >> 8) * 0x1p-24f;
    }
}
