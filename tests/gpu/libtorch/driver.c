/*
 * The few functions of the driver (libcuda.so.1) that libtorch asks for before its first kernel,
 * for the runtime beside it. A context is there from the beginning.
 */
#include <stddef.h>

int cuInit(unsigned flags);
int cuCtxGetCurrent(void **context);
int cuCtxSetCurrent(void *context);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);

static char context_of_all;

int cuInit(unsigned flags)
{
    return 0;
}
int cuCtxGetCurrent(void **context)
{
    *context = &context_of_all;
    return 0;
}
int cuCtxSetCurrent(void *context)
{
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    return cuCtxGetCurrent(context);
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = 1;
    return 0;
}
