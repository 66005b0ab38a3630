/* result[y] = factor * sum over k of vector[k] * matrix[y,k] * matrix2[y,k], for two row-major float matrices
   of Y rows and K columns, at every size. Each element of the matrices is used once: the speed to reach is that
   of reading memory.

   The ladder, one idea per step, chosen by VARIANT:

     NAIVE          A work-item computes one row. Neighbouring work-items read addresses a whole row apart.
     LOCAL_VECTOR   The same; the vector, which all rows need, is kept in local memory, CHUNK elements at a time.
     GROUP_PER_ROW  A work-group computes ROWS rows together: neighbouring work-items read neighbouring columns, add
                    up what they have read, and a reduction in local memory adds up their sums. The number of
                    work-groups is the host's to choose, whatever Y is: each goes on with the rows one grid
                    further (a grid stride). */

#define NAIVE 0
#define LOCAL_VECTOR 1
#define GROUP_PER_ROW 2

#ifndef VARIANT
#define VARIANT GROUP_PER_ROW
#endif
#ifndef GROUP_SIZE   /* work-items per work-group (threads per block); a power of two */
#define GROUP_SIZE 64
#endif
#ifndef CHUNK        /* LOCAL_VECTOR: elements of the vector in local memory at a time */
#define CHUNK 1024
#endif
#ifndef ROWS         /* GROUP_PER_ROW: rows at a time; each read of the vector serves all of them */
#define ROWS 1
#endif
#ifndef VECTOR_WIDTH /* GROUP_PER_ROW: columns per read, 1, 2 or 4; must divide K, so that all rows are aligned */
#define VECTOR_WIDTH 1
#endif
#ifndef UNROLL       /* steps along a row that the compiler unrolls: more reads in flight */
#define UNROLL 1
#endif

#if VARIANT == NAIVE

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1)))
void element_mult(const int Y, const int K, const float factor,
                  __global const float *restrict vector, __global const float *restrict matrix,
                  __global const float *restrict matrix2, __global float *restrict result)
{
    const int y = get_global_id(0);
    if (y >= Y) return;
    const size_t row = (size_t)y * K;

    float sum = 0.0f;
    #pragma unroll UNROLL
    for (int k = 0; k < K; k++)
        sum += vector[k] * matrix[row + k] * matrix2[row + k];
    result[y] = factor * sum;
}

#elif VARIANT == LOCAL_VECTOR

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1)))
void element_mult(const int Y, const int K, const float factor,
                  __global const float *restrict vector, __global const float *restrict matrix,
                  __global const float *restrict matrix2, __global float *restrict result)
{
    __local float chunk[CHUNK];
    const int y = get_global_id(0);
    /* A work-item beyond the last row computes that row again, unseen: it still has to reach the barriers. */
    const size_t row = (size_t)min(y, Y - 1) * K;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += CHUNK) {
        const int count = min(CHUNK, K - k0);
        for (int k = get_local_id(0); k < count; k += GROUP_SIZE)
            chunk[k] = vector[k0 + k];
        barrier(CLK_LOCAL_MEM_FENCE); /* the chunk is complete */

        #pragma unroll UNROLL
        for (int k = 0; k < count; k++)
            sum += chunk[k] * matrix[row + k0 + k] * matrix2[row + k0 + k];
        barrier(CLK_LOCAL_MEM_FENCE); /* the chunk may be overwritten */
    }
    if (y < Y) result[y] = factor * sum;
}

#else /* GROUP_PER_ROW */

#if VECTOR_WIDTH == 1
typedef float element;
#elif VECTOR_WIDTH == 2
typedef float2 element;
#else
typedef float4 element;
#endif

/* The sum of the components. */
float total(const element value)
{
#if VECTOR_WIDTH == 1
    return value;
#elif VECTOR_WIDTH == 2
    return value.x + value.y;
#else
    return (value.x + value.y) + (value.z + value.w);
#endif
}

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1)))
void element_mult(const int Y, const int K, const float factor,
                  __global const element *restrict vector, __global const element *restrict matrix,
                  __global const element *restrict matrix2, __global float *restrict result)
{
    __local float partial[ROWS][GROUP_SIZE];
    const int item = get_local_id(0);
    const int columns = K / VECTOR_WIDTH;

    /* y0 is the same for the whole work-group, and so is the number of barriers. */
    for (int y0 = get_group_id(0) * ROWS; y0 < Y; y0 += get_num_groups(0) * ROWS) {
        size_t row[ROWS];
        element sum[ROWS];
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            row[r] = (size_t)min(y0 + r, Y - 1) * columns; /* beyond the last row: that row again, unseen */
            sum[r] = 0.0f;
        }

        #pragma unroll UNROLL
        for (int k = item; k < columns; k += GROUP_SIZE) {
            const element v = vector[k];
            #pragma unroll
            for (int r = 0; r < ROWS; r++)
                sum[r] += v * matrix[row[r] + k] * matrix2[row[r] + k];
        }

        /* Halve the number of sums until one is left. */
        #pragma unroll
        for (int r = 0; r < ROWS; r++)
            partial[r][item] = total(sum[r]);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int half_size = GROUP_SIZE / 2; half_size > 0; half_size /= 2) {
            if (item < half_size)
                for (int r = 0; r < ROWS; r++)
                    partial[r][item] += partial[r][item + half_size];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (item < ROWS && y0 + item < Y) result[y0 + item] = factor * partial[item][0];
        barrier(CLK_LOCAL_MEM_FENCE); /* the sums may be overwritten */
    }
}

#endif
