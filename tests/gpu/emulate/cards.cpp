/*
 * The cards: as many as ARES_EMULATE_CARDS says, or one. A process uses one of them; each has its
 * own memory, and those of several processes on the same card are not counted together.
 */
#include "emulate.h"

#include <string.h>

static int cards(void)
{
    const char *n = getenv("ARES_EMULATE_CARDS");
    return n && *n ? atoi(n) : 1;
}
static bool is_card(int index)
{
    return index >= 0 && index < cards();
}

static int card = -1;
int emulate_card(void)
{
    return card;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = cards();
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int index)
{
    emulate_lock lock;
    size_t left, total;
    if (!is_card(index)) return emulate_error(cudaErrorInvalidDevice);
    cudaMemGetInfo(&left, &total);
    if (card >= 0 && card != index && left < total)
        emulate_end("a process with memory on card %d turns to card %d", card, index);
    card = index;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int index)
{
    if (!is_card(index)) return emulate_error(cudaErrorInvalidDevice);
    *p = {};
    snprintf(p->name, sizeof p->name, "emulated");
    memcpy(p->uuid.bytes, "emulated", 8);
    memcpy(p->uuid.bytes + 8, &index, sizeof index);
    size_t left;
    cudaMemGetInfo(&left, &p->totalGlobalMem);
    p->sharedMemPerBlockOptin = 227 * 1024;
    p->major = 9;
    p->multiProcessorCount = 132;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr what, int)
{
    *value = what == cudaDevAttrMultiProcessorCount       ? 132
             : what == cudaDevAttrComputeCapabilityMajor  ? 9
             : what == cudaDevAttrMaxSharedMemoryPerBlock ? 48 * 1024
                                                          : 227 * 1024;
    return cudaSuccess;
}

/* What the program asks for: libtorch cannot launch on this card. */
extern "C" {
extern const int ares_cuda_emulated;
const int ares_cuda_emulated = 1;
}
