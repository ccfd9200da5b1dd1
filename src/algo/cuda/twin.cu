/* The table of algo's twins, their memory, and the clock around their kernels. */
#include "twin.cuh"

static cudaEvent_t begun, ended; /* of the process, because a rank has one card */
static bool timed;

twin_memory twin_open(ares_device *d, size_t bytes, int arrays)
{
    cuda_context *c = cuda_enter(d);
    size_t whole = bytes + (size_t)(arrays + 1) * 256;
    char *p = (char *)cuda_scratch(c, CUDA_TWIN, whole);
    return { d, p ? c : NULL, p, p + (p ? whole : 0) };
}

void *twin_bytes(twin_memory *m, size_t bytes)
{
    if (!m->c) return NULL;
    char *p = m->at;
    m->at += (bytes + 255) / 256 * 256;
    ARES_ASSERT(m->at <= m->end);
    return p;
}

void twin_begin(twin_memory *m)
{
    if (!m->c) return;
    if (!begun) {
        cuda_check(m->c, cudaEventCreate(&begun), "event");
        cuda_check(m->c, cudaEventCreate(&ended), "event");
    }
    timed = false;
    if (!m->c->failed) cuda_check(m->c, cudaEventRecord(begun, m->c->stream), "event");
}
void twin_end(twin_memory *m)
{
    if (m->c && !m->c->failed)
        timed = cuda_check(m->c, cudaEventRecord(ended, m->c->stream), "event");
}
int twin_close(twin_memory *m)
{
    return m->d->k->sync(m->d);
}

static double kernel_s(ares_device *d)
{
    float ms = 0;
    cuda_context *c = cuda_enter(d);
    if (!timed || c->failed || !cuda_check(c, cudaEventElapsedTime(&ms, begun, ended), "event"))
        return (double)NAN;
    return (double)ms * 1e-3;
}

static void clock_begin(ares_device *d)
{
    twin_memory none = { d, cuda_enter(d), NULL, NULL };
    twin_begin(&none);
}
static void clock_end(ares_device *d)
{
    twin_memory none = { d, cuda_enter(d), NULL, NULL };
    twin_end(&none);
}

static const algo_twins table = {
    .loss = cuda_algo_loss,
    .value = cuda_algo_value,
    .kl = cuda_algo_kl,
    .rollout_weights = cuda_algo_rollout_weights,
    .gae = cuda_algo_gae,
    .windows = cuda_algo_windows,
    .kernel_s = kernel_s,
    .clock_begin = clock_begin,
    .clock_end = clock_end,
};

extern "C" {
const algo_twins *ares_cuda_algo_twins(void);
}
const algo_twins *ares_cuda_algo_twins(void)
{
    return &table;
}
