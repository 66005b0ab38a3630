/* Enqueues runs as a program in C may: without events, which pyopencl asks for with each launch. */

#include <stddef.h>

typedef int (*Enqueue)(void *queue, void *kernel, unsigned axes, const size_t *offset, const size_t *global,
                       const size_t *local, unsigned waits, const void *events, void *event);

struct Launch {
    void *kernel;
    unsigned axes;
    size_t global[3], local[3]; /* local[0] of 0: the driver chooses */
};

int enqueue(Enqueue launch, void *queue, const struct Launch *launches, int count, int runs) {
    for (int run = 0; run < runs; ++run)
        for (int i = 0; i < count; ++i) {
            const struct Launch *one = &launches[i];
            const size_t *local = one->local[0] ? one->local : NULL;
            int status = launch(queue, one->kernel, one->axes, NULL, one->global, local, 0, NULL, NULL);
            if (status)
                return status;
        }
    return 0;
}
