/* A program that runs a tuned kernel. autotune writes scale_tuned.h during the build, with the best WG and WPT.
 *
 *     ./scale scale.cl */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

#include <scale_tuned.h> /* of this build: with "" it could be a file that Make left beside this one */

enum { N = 65536 };

static void check(cl_int status, const char *what) {
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s: error %d\n", what, status);
        exit(1);
    }
}

int main(int argc, char **argv) {
    static char source[65536], options[64];
    static float x[N], y[N];
    FILE *file = fopen(argc > 1 ? argv[1] : "scale.cl", "r");
    if (!file) return perror("scale.cl"), 1;
    const size_t length = fread(source, 1, sizeof source, file);
    fclose(file);
    for (int i = 0; i < N; ++i) x[i] = (float)i;

    cl_platform_id platform;
    cl_device_id device;
    cl_int status;
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    check(status, "clCreateCommandQueue");

    /* The kernel and the launch use the same values. */
    const char *text = source;
    cl_program program = clCreateProgramWithSource(context, 1, &text, &length, &status);
    check(status, "clCreateProgramWithSource");
    snprintf(options, sizeof options, "-DWG=%d -DWPT=%d", WG, WPT);
    check(clBuildProgram(program, 1, &device, options, NULL, NULL), "clBuildProgram");
    cl_kernel kernel = clCreateKernel(program, "scale", &status);
    check(status, "clCreateKernel");
    const size_t local = WG, global = (N + WG * WPT - 1) / (WG * WPT) * WG;

    cl_mem in = clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof x, x, &status);
    check(status, "clCreateBuffer");
    cl_mem out = clCreateBuffer(context, CL_MEM_WRITE_ONLY, sizeof y, NULL, &status);
    check(status, "clCreateBuffer");
    const cl_int n = N;
    const cl_float factor = 2.0f;
    check(clSetKernelArg(kernel, 0, sizeof n, &n), "clSetKernelArg");
    check(clSetKernelArg(kernel, 1, sizeof factor, &factor), "clSetKernelArg");
    check(clSetKernelArg(kernel, 2, sizeof in, &in), "clSetKernelArg");
    check(clSetKernelArg(kernel, 3, sizeof out, &out), "clSetKernelArg");
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL), "clEnqueueNDRangeKernel");
    check(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof y, y, 0, NULL, NULL), "clEnqueueReadBuffer");

    for (int i = 0; i < N; ++i)
        if (y[i] != 2.0f * x[i]) return fprintf(stderr, "y[%d] is %g\n", i, y[i]), 1;
    printf("right with WG=%d WPT=%d\n", WG, WPT);
    return 0;
}
