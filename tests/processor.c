/* Preloaded into C programs on a processor that PoCL's compiler has no name for: does what
   autotune/devices/processor.py does in Python, when a context is made. NAME is the name. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *text(const void *address)
{
    static char found[64];
    struct iovec here = {found, sizeof found - 1}, there = {(void *)address, sizeof found - 1};
    memset(found, 0, sizeof found);
    process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    return found;
}

static void name(char **description)
{
    for (int place = 0; place < 255; place++)
        if (strncmp(text(description[place]), "x86_64-", 7) == 0) {
            if (strcmp(text(description[place + 1]), "generic") == 0)
                description[place + 1] = strdup(NAME);
            return;
        }
}

cl_context clCreateContext(const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
                           void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data,
                           cl_int *error)
{
    cl_context (*real)(const cl_context_properties *, cl_uint, const cl_device_id *,
                       void(CL_CALLBACK *)(const char *, const void *, size_t, void *), void *, cl_int *);
    *(void **)&real = dlsym(RTLD_NEXT, "clCreateContext");
    for (cl_uint i = 0; i < count; i++)
        name((char **)devices[i]);
    return real(properties, count, devices, notify, data, error);
}
