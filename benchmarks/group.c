/*
 * What ranks exchange, as JSON lines of rank 0: sums of which each rank has a part, and gathers,
 * with bytes sent per second. Under mpirun, or alone:
 *
 *   mpirun -n 2 bench_group [device=cuda] [transport=auto] [mib=512] [repeat=10]
 *
 * mib: of a rank's part. benchmarks/gpu/peer.py reduce_scatter measures NCCL's own sum beside it.
 */
#include "ares/dist.h"
#include "options.h"

#include <stdio.h>
#include <string.h>

typedef struct bench {
    const char *device, *transport;
    int64_t mib, repeat;
    ares_world *world;
    ares_device d;
    ares_group *group;
    float *whole, *part;
} bench;

static int set(bench *b, const char *word)
{
    const bench_option known[] = {
        { "device", .text = &b->device },
        { "transport", .text = &b->transport },
        { "mib", .number = &b->mib, .least = 1 },
        { "repeat", .number = &b->repeat, .least = 1 },
    };
    return bench_set("bench_group", known, ARES_COUNT(known), word);
}

static int open_all(bench *b)
{
    char card[24];
    ARES_TRY(ares_world_open(&b->world));
    ares_world_set_transport(b->world, b->transport);
    ares_log_set(ARES_LOG_INFO, ares_world_rank(b->world));
    snprintf(card, sizeof card, "cuda:%d", ares_world_local_rank(b->world));
    ARES_TRY(ares_device_open(strcmp(b->device, "cuda") == 0 ? card : b->device, 0, &b->d));
    ARES_TRY(ares_group_open(b->world, &b->d, ares_world_size(b->world), 1, &b->group));
    size_t bytes = (size_t)b->mib << 20;
    b->whole = b->d.k->alloc(&b->d, bytes * (size_t)ares_group_size(b->group));
    b->part = b->d.k->alloc(&b->d, bytes);
    return b->whole && b->part
               ? ARES_OK
               : ares_fail(ARES_EDEVICE, "bench_group: %lld MiB do not fit", (long long)b->mib);
}

/* The best of several, from a moment when all ranks have come until this one is done. */
static int measure(bench *b, const char *what, bool sums)
{
    int64_t n = (b->mib << 20) / (int64_t)sizeof *b->part, sent = ares_group_bytes(b->group);
    double best = 1e9;
    for (int64_t i = 0; i <= b->repeat; i++) {
        ARES_TRY(ares_world_share_error(b->world, b->d.k->sync(&b->d)));
        double begun = ares_now_s();
        ares_ticket t = sums ? ares_group_sum_scatter(b->group, b->whole, b->part, n, true)
                             : ares_group_gather(b->group, b->part, b->whole, (size_t)n * 4);
        ares_group_join(b->group, t);
        ARES_TRY(ares_group_sync(b->group));
        double took = ares_now_s() - begun;
        ARES_TRY(ares_world_max_f64(b->world, &took, 1));
        if (i > 0) best = ARES_MIN(best, took); /* the first one connects */
    }
    double each = (double)(ares_group_bytes(b->group) - sent) / (double)(b->repeat + 1);
    if (ares_world_rank(b->world) == 0)
        printf("{\"side\": \"ares\", \"what\": \"%s\", \"ranks\": %d, \"mib\": %lld, \"seconds\": "
               "%.6g, \"sent_gb_per_s\": %.4g}\n",
               what, ares_group_size(b->group), (long long)b->mib, best, each / best / 1e9);
    return ARES_OK;
}

int main(int argc, char **argv)
{
    bench b = { .device = "cuda", .transport = "auto", .mib = 512, .repeat = 10 };
    int rc = ARES_OK;
    for (int i = 1; i < argc && rc == ARES_OK; i++) rc = set(&b, argv[i]);
    if (rc == ARES_OK) rc = open_all(&b);
    if (rc == ARES_OK) rc = measure(&b, "sum_scatter", true);
    if (rc == ARES_OK) rc = measure(&b, "gather", false);
    if (rc != ARES_OK && b.world) ares_world_abort(b.world, rc);
    if (rc != ARES_OK) (void)fprintf(stderr, "%s\n", ares_error_message());
    if (!b.group) return 1;
    b.d.k->release(&b.d, b.whole, (size_t)b.mib * (size_t)ares_group_size(b.group) << 20);
    b.d.k->release(&b.d, b.part, (size_t)b.mib << 20);
    ares_group_close(b.group);
    ares_device_close(&b.d);
    ares_world_close(b.world);
    return 0;
}
