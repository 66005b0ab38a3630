/* A host program in C99 and C++ that a header of saxpy serves: runs it on the first CPU device and checks the result.
   Prints how the entry was chosen, and the build options.  host N [DEVICE_NAME] */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "saxpy_tuned.h"

#define CHECK(status) do { if ((status) != CL_SUCCESS) { printf("line %d: %d\n", __LINE__, (int)(status)); return 1; } } while (0)

int main(int count, char **words) {
    static const char *const matches[] = { "none", "exact", "nearest size", "same architecture", "default" };
    const long long n = atoll(words[1]);
    char name[256], options[SAXPY_LONGEST_OPTIONS];
    const char *source[SAXPY_SOURCE_COUNT];
    cl_platform_id platforms[8];
    cl_device_id device = 0;
    cl_uint platform_count, i;
    cl_int status;
    CHECK(clGetPlatformIDs(8, platforms, &platform_count));
    for (i = 0; i < platform_count && !device; ++i)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_CPU, 1, &device, NULL) != CL_SUCCESS) device = 0;
    if (!device) { printf("no CPU device\n"); return 77; }
    CHECK(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL));

    const SAXPY_selection s = SAXPY_select(count > 2 ? words[2] : name, n);
    printf("%s\n", matches[s.match]);
    if (!s.entry) return 0;
    SAXPY_BUILD_OPTIONS(s, options, sizeof options, n);
    printf("%s\n", options);

    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    CHECK(status);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    CHECK(status);
    for (i = 0; i < SAXPY_SOURCE_COUNT; ++i) source[i] = SAXPY_source[i];
    cl_program program = clCreateProgramWithSource(context, SAXPY_SOURCE_COUNT, source, NULL, &status);
    CHECK(status);
    CHECK(clBuildProgram(program, 1, &device, options, NULL, NULL));

    const size_t bytes = SAXPY_BYTES_x(s, n);
    float *x = (float *)malloc(bytes), *y = (float *)malloc(bytes);
    long long k;
    for (k = 0; k < n; ++k) { x[k] = (float)(k % 7); y[k] = 1.0f; }
    cl_mem in = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, bytes, x, &status);
    CHECK(status);
    cl_mem out = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, SAXPY_BYTES_y(s, n), y, &status);
    CHECK(status);
    const cl_int length = (cl_int)SAXPY_SCALAR_N(s, n);
    const cl_float alpha = (cl_float)SAXPY_SCALAR_alpha(s, n);
    for (i = 0; i < SAXPY_LAUNCHES(s); ++i) {
        size_t global[3], local[3];
        cl_uint at, axis;
        if (!SAXPY_ACTIVE(s, i, n)) continue;
        cl_kernel kernel = clCreateKernel(program, SAXPY_KERNEL(s, i), &status);
        CHECK(status);
        for (at = 0; SAXPY_ARGUMENT(s, i, at); ++at) {
            const char *argument = SAXPY_ARGUMENT(s, i, at);
            if (!strcmp(argument, "N")) CHECK(clSetKernelArg(kernel, at, sizeof length, &length));
            else if (!strcmp(argument, "alpha")) CHECK(clSetKernelArg(kernel, at, sizeof alpha, &alpha));
            else if (!strcmp(argument, "x")) CHECK(clSetKernelArg(kernel, at, sizeof in, &in));
            else CHECK(clSetKernelArg(kernel, at, sizeof out, &out));
        }
        for (axis = 0; axis < SAXPY_DIMENSIONS(s, i); ++axis) {
            global[axis] = SAXPY_GLOBAL_SIZE(s, i, axis, n);
            local[axis] = SAXPY_LOCAL_SIZE(s, i, axis, n);
        }
        CHECK(clEnqueueNDRangeKernel(queue, kernel, SAXPY_DIMENSIONS(s, i), NULL, global,
                                     SAXPY_HAS_LOCAL(s, i) ? local : NULL, 0, NULL, NULL));
        clReleaseKernel(kernel);
    }
    CHECK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, bytes, y, 0, NULL, NULL));
    for (k = 0; k < n; ++k)
        if (y[k] != 1.0f + 2.5f * (float)(k % 7)) { printf("wrong at %lld: %g\n", k, (double)y[k]); return 1; }
    printf("right\n");
    free(x);
    free(y);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return 0;
}
