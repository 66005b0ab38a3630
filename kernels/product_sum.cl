/* C[x] = sum over y of A[x] * B[y], for float A and C of X elements and B of Y, at every size.

   All 2 * X * Y operations are executed: A[x] is not taken out of the sum, each term is one multiplication and
   one addition (one fused multiply-add where the device has it), and the terms are added in the order of y.
   The kernel is a small stand-in for all-pairs computations, which cannot be factored.

   The ladder, one idea per step, chosen by VARIANT:

     NAIVE            A work-item owns x and reads every B[y] from global memory.
     LOCAL            The work-group first copies all of B to local memory.
     LOCAL_CHUNKS     The same in chunks of CHUNK elements: B may be of any length.
     FLOAT4           A work-item owns four neighbours of x as one float4: a read of B[y] serves all four.
     FLOAT8           The same with eight.
     FLOAT8_UNROLLED  B is read as float8 as well and used component by component: one wide read for 64 terms.
     FLOAT8_LOCAL     The same with B in chunks in local memory; what eight does not divide comes last.

   In every step a work-item owns WPT (work per thread) such elements or vectors, GROUP_SIZE apart: WPT times
   the terms for a read of B, and as many independent sums to hide the latency of an addition. */

#define NAIVE 0
#define LOCAL 1
#define LOCAL_CHUNKS 2
#define FLOAT4 3
#define FLOAT8 4
#define FLOAT8_UNROLLED 5
#define FLOAT8_LOCAL 6

#ifndef VARIANT
#define VARIANT FLOAT8_LOCAL
#endif
#ifndef GROUP_SIZE /* work-items per work-group (threads per block) */
#define GROUP_SIZE 64
#endif
#ifndef WPT        /* elements or vectors of A per work-item */
#define WPT 1
#endif
#ifndef CHUNK      /* LOCAL_CHUNKS, FLOAT8_LOCAL: elements of B in local memory at a time, a multiple of 8 */
#define CHUNK 1024
#endif
#ifndef UNROLL     /* steps along B that the compiler unrolls */
#define UNROLL 1
#endif

#if VARIANT >= FLOAT8
#define WIDTH 8
typedef float8 element;
#elif VARIANT == FLOAT4
#define WIDTH 4
typedef float4 element;
#else
#define WIDTH 1
typedef float element;
#endif

/* A[x] to A[x + WIDTH - 1], with zeros beyond the end. x is a multiple of WIDTH, so a whole vector is aligned. */
element read_elements(__global const float *A, const size_t x, const int X)
{
    if (x + WIDTH <= X) return *(__global const element *)(A + x);
    element value = 0.0f;
#if WIDTH > 1
    if (x + 0 < X) value.s0 = A[x + 0];
    if (x + 1 < X) value.s1 = A[x + 1];
    if (x + 2 < X) value.s2 = A[x + 2];
#endif
#if WIDTH > 4
    if (x + 3 < X) value.s3 = A[x + 3];
    if (x + 4 < X) value.s4 = A[x + 4];
    if (x + 5 < X) value.s5 = A[x + 5];
    if (x + 6 < X) value.s6 = A[x + 6];
#endif
    return value;
}

/* The reverse: writes what lies inside C. */
void write_elements(__global float *C, const size_t x, const int X, const element value)
{
    if (x + WIDTH <= X) {
        *(__global element *)(C + x) = value;
        return;
    }
#if WIDTH > 1
    if (x + 0 < X) C[x + 0] = value.s0;
    if (x + 1 < X) C[x + 1] = value.s1;
    if (x + 2 < X) C[x + 2] = value.s2;
#endif
#if WIDTH > 4
    if (x + 3 < X) C[x + 3] = value.s3;
    if (x + 4 < X) C[x + 4] = value.s4;
    if (x + 5 < X) C[x + 5] = value.s5;
    if (x + 6 < X) C[x + 6] = value.s6;
#endif
}

/* The term of one element of B, for all that a work-item owns. */
void add_term(element *sum, const element *a, const float b)
{
    #pragma unroll
    for (int w = 0; w < WPT; w++)
        sum[w] += a[w] * b;
}

/* The terms of eight neighbours in B, component by component. */
void add_eight_terms(element *sum, const element *a, const float8 b)
{
    add_term(sum, a, b.s0);
    add_term(sum, a, b.s1);
    add_term(sum, a, b.s2);
    add_term(sum, a, b.s3);
    add_term(sum, a, b.s4);
    add_term(sum, a, b.s5);
    add_term(sum, a, b.s6);
    add_term(sum, a, b.s7);
}

/* The work-group copies `count` elements to local memory; all its work-items must call this. */
void copy_to_local(__local float *to, __global const float *from, const int count)
{
    for (int i = get_local_id(0); i < count; i += GROUP_SIZE)
        to[i] = from[i];
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* LOCAL takes one argument more, local memory for the whole of B. */
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1)))
void product_sum(const int X, const int Y,
                 __global const float *restrict A, __global const float *restrict B, __global float *restrict C
#if VARIANT == LOCAL
                 , __local float *all_of_b
#endif
                 )
{
    const size_t x0 = (get_group_id(0) * GROUP_SIZE * WPT + get_local_id(0)) * WIDTH;
    element a[WPT], sum[WPT];
    #pragma unroll
    for (int w = 0; w < WPT; w++) {
        a[w] = read_elements(A, x0 + w * GROUP_SIZE * WIDTH, X);
        sum[w] = 0.0f;
    }

#if VARIANT == NAIVE || VARIANT == FLOAT4 || VARIANT == FLOAT8

    #pragma unroll UNROLL
    for (int y = 0; y < Y; y++)
        add_term(sum, a, B[y]);

#elif VARIANT == LOCAL

    copy_to_local(all_of_b, B, Y);
    #pragma unroll UNROLL
    for (int y = 0; y < Y; y++)
        add_term(sum, a, all_of_b[y]);

#elif VARIANT == LOCAL_CHUNKS

    __local float chunk[CHUNK];
    for (int y0 = 0; y0 < Y; y0 += CHUNK) {
        const int count = min(CHUNK, Y - y0);
        copy_to_local(chunk, B + y0, count);
        #pragma unroll UNROLL
        for (int y = 0; y < count; y++)
            add_term(sum, a, chunk[y]);
        barrier(CLK_LOCAL_MEM_FENCE); /* the chunk may be overwritten */
    }

#elif VARIANT == FLOAT8_UNROLLED

    const int eights = Y / 8 * 8;
    #pragma unroll UNROLL
    for (int y = 0; y < eights; y += 8)
        add_eight_terms(sum, a, *(__global const float8 *)(B + y));
    for (int y = eights; y < Y; y++)
        add_term(sum, a, B[y]);

#else /* FLOAT8_LOCAL */

    __local float chunk[CHUNK] __attribute__((aligned(32)));
    for (int y0 = 0; y0 < Y; y0 += CHUNK) {
        const int count = min(CHUNK, Y - y0), eights = count / 8 * 8;
        copy_to_local(chunk, B + y0, count);
        #pragma unroll UNROLL
        for (int y = 0; y < eights; y += 8)
            add_eight_terms(sum, a, *(__local const float8 *)(chunk + y));
        for (int y = eights; y < count; y++)
            add_term(sum, a, chunk[y]);
        barrier(CLK_LOCAL_MEM_FENCE); /* the chunk may be overwritten */
    }

#endif

    #pragma unroll
    for (int w = 0; w < WPT; w++)
        write_elements(C, x0 + w * GROUP_SIZE * WIDTH, X, sum[w]);
}
