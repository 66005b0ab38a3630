/* Compares CLBlastSgemm with the library's own parameters and with those that autotune found (xgemm_tuned.h).
 *
 *     ./gemm [SIZE]
 *
 * Prints the milliseconds of a product of two SIZE x SIZE matrices with either, and fails if the products differ. */
#define CL_TARGET_OPENCL_VERSION 120
#include <clblast_c.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "xgemm_tuned.h"

static const char *names[] = {"GEMMK", "KREG", "KWG", "KWI",  "MDIMA", "MDIMC", "MWG", "NDIMB",
                              "NDIMC", "NWG",  "SA",  "SB",   "STRM",  "STRN",  "VWM", "VWN"};
static const size_t values[] = {GEMMK, KREG, KWG, KWI, MDIMA, MDIMC, MWG, NDIMB, NDIMC, NWG, SA, SB, STRM, STRN, VWM, VWN};

static void check(int status, const char *what) {
    if (status != 0) {
        fprintf(stderr, "%s: error %d\n", what, status);
        exit(1);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Run the product a few times; return the least milliseconds of a run, without the first run, which compiles. */
static double run(cl_command_queue queue, size_t n, cl_mem a, cl_mem b, cl_mem c, float *result) {
    double best = INFINITY;
    for (int round = 0; round < 4; ++round) {
        const double start = seconds();
        check(CLBlastSgemm(CLBlastLayoutColMajor, CLBlastTransposeNo, CLBlastTransposeYes, n, n, n, 1.0f, a, 0, n, b, 0, n,
                           0.0f, c, 0, n, &queue, NULL), "CLBlastSgemm");
        check(clFinish(queue), "clFinish");
        if (round > 0) best = fmin(best, (seconds() - start) * 1e3);
    }
    check(clEnqueueReadBuffer(queue, c, CL_TRUE, 0, n * n * sizeof *result, result, 0, NULL, NULL), "clEnqueueReadBuffer");
    return best;
}

int main(int argc, char **argv) {
    const size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 512, bytes = n * n * sizeof(float);
    cl_platform_id platform;
    cl_device_id device;
    cl_int status;
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    check(status, "clCreateCommandQueue");

    float *host = malloc(bytes), *before = malloc(bytes), *after = malloc(bytes);
    for (size_t i = 0; i < n * n; ++i) host[i] = (float)(i * 2654435761u % 1000) / 500.0f - 1.0f;
    cl_mem a = clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes, host, &status);
    cl_mem b = clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes, host, &status);
    cl_mem c = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &status);
    check(status, "clCreateBuffer");

    /* The library has another kernel for small products: let it use Xgemm at every size, before and after. */
    const char *least[] = {"XGEMM_MIN_INDIRECT_SIZE"};
    const size_t one[] = {1};
    check(CLBlastOverrideParameters(device, "GemmRoutine", CLBlastPrecisionSingle, 1, least, one), "GemmRoutine");
    const double own = run(queue, n, a, b, c, before);

    check(CLBlastOverrideParameters(device, "Xgemm", CLBlastPrecisionSingle, sizeof values / sizeof *values, names, values),
          "CLBlastOverrideParameters");
    const double tuned = run(queue, n, a, b, c, after);

    double worst = 0;
    for (size_t i = 0; i < n * n; ++i) worst = fmax(worst, fabs(before[i] - after[i]));
    printf("CLBlast's own parameters  %.3f ms\nautotune's                %.3f ms  (%.2f x as fast)\n", own, tuned, own / tuned);
    if (!(worst <= 1e-5 * n)) {
        fprintf(stderr, "the results differ by %g\n", worst);
        return 1;
    }
    return 0;
}
