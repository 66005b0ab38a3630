/* One program for many devices and sizes: scale_bests.h contains all stored bests and the kernel's text.
 *
 *     ./many N */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdlib.h>

#include "scale_bests.h"

static void check(cl_int status, const char *what) {
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s: error %d\n", what, status);
        exit(1);
    }
}

int main(int argc, char **argv) {
    static const char *const matches[] = {"none", "exact", "nearest size", "same architecture", "default"};
    const long long n = argc > 1 ? atoll(argv[1]) : 65536;
    cl_platform_id platform;
    cl_device_id device;
    cl_int status;
    char name[256], options[SCALE_LONGEST_OPTIONS];
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    check(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL), "clGetDeviceInfo");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    check(status, "clCreateCommandQueue");

    /* Chosen by the device's name and the size; s.match tells how near it is. */
    const SCALE_selection s = SCALE_select(name, n);
    if (!s.entry) return fprintf(stderr, "nothing stored may run at %lld\n", n), 1;
    SCALE_BUILD_OPTIONS(s, options, sizeof options, n);
    const size_t global = SCALE_GLOBAL_SIZE(s, 0, 0, n), local = SCALE_LOCAL_SIZE(s, 0, 0, n);
    const size_t bytes = SCALE_BYTES_x(s, n);

    const char *text[SCALE_SOURCE_COUNT];
    for (int i = 0; i < SCALE_SOURCE_COUNT; ++i) text[i] = SCALE_source[i];
    cl_program program = clCreateProgramWithSource(context, SCALE_SOURCE_COUNT, text, NULL, &status);
    check(status, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, options, NULL, NULL), "clBuildProgram");
    cl_kernel kernel = clCreateKernel(program, SCALE_KERNEL(s, 0), &status);
    check(status, "clCreateKernel");

    float *x = malloc(bytes), *y = malloc(bytes);
    for (long long i = 0; i < n; ++i) x[i] = (float)i;
    cl_mem in = clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes, x, &status);
    check(status, "clCreateBuffer");
    cl_mem out = clCreateBuffer(context, CL_MEM_WRITE_ONLY, SCALE_BYTES_y(s, n), NULL, &status);
    check(status, "clCreateBuffer");
    const cl_int count = (cl_int)SCALE_SCALAR_N(s, n);
    const cl_float factor = (cl_float)SCALE_SCALAR_factor(s, n);
    check(clSetKernelArg(kernel, 0, sizeof count, &count), "clSetKernelArg");
    check(clSetKernelArg(kernel, 1, sizeof factor, &factor), "clSetKernelArg");
    check(clSetKernelArg(kernel, 2, sizeof in, &in), "clSetKernelArg");
    check(clSetKernelArg(kernel, 3, sizeof out, &out), "clSetKernelArg");
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL), "clEnqueueNDRangeKernel");
    check(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, bytes, y, 0, NULL, NULL), "clEnqueueReadBuffer");

    for (long long i = 0; i < n; ++i)
        if (y[i] != factor * x[i]) return fprintf(stderr, "y[%lld] is %g\n", i, y[i]), 1;
    printf("right with %s (%s)\n", options, matches[s.match]);
    free(x);
    free(y);
    return 0;
}
