/*
 * Groups: collectives on the memory of the devices of several ranks. Bytes are only moved between
 * ranks; the device of a rank adds them, from rank 0 up in double. On the CPU ("host") MPI moves
 * them, in pieces, so that buffers stay small however long an array is; on a card: staged.c,
 * nccl.c.
 */
#include "group.h"

#include <string.h>

enum {
    PIECE_BYTES = 1 << 28,    /* of a gather, a rank: MPI counts in int */
    PIECE_ELEMENTS = 1 << 20, /* of a sum, a rank: 4 MiB of buffer */
    TASK_ELEMENTS = 1 << 15   /* of a sum, for one thread */
};

/* A rank's side between cards, by the way that all ranks take. A collective of the world. */
static int open_side(ares_group *g)
{
    ares_cuda_dist_twins_fn *twins;
    *(void **)&twins = ares_device_symbol(g->device, "ares_cuda_dist_twins");
    ARES_ASSERT(twins); /* the library and the program are of one build */
    g->twins = twins();
    g->side = (ares_dist_side){ .device = g->device, .size = g->size, .rank = g->rank };
    ARES_TRY(dist_way_choose(g));
    return ares_world_agree(g->world, g->way->open(g)); /* a wait that is watched */
}

int dist_side_memory(ares_group *g, size_t bytes)
{
    g->side.bytes = bytes;
    g->side.on_device = g->device->k->alloc(g->device, bytes);
    return g->side.on_device
               ? ARES_OK
               : ares_fail(ARES_EDEVICE, "dist: no %zu MiB left on the card for a group of ranks",
                           bytes >> 20);
}

void dist_must(ares_group *g, int rc)
{
    if (rc != ARES_OK) ares_world_abort(g->world, rc);
}

int ares_group_open(ares_world *w, ares_device *d, int size, int stride, ares_group **out)
{
    if (d->counting) { /* the first of as many ranks, none of which is there */
        *out = ares_calloc(1, sizeof **out);
        **out = (ares_group){ .device = d, .size = size };
        return ARES_OK;
    }
    ARES_ASSERT(size > 0 && stride > 0 && ares_world_size(w) % (size * stride) == 0);
    *out = NULL;
    ares_group *g = ares_calloc(1, sizeof *g);
    *g = (ares_group){ .world = w,
                       .device = d,
                       .size = size,
                       .stride = stride,
                       .rank = ares_world_rank(w) / stride % size };
    int rc = ARES_OK;
    if (size > 1 && d->index >= 0) rc = open_side(g);
    else if (size > 1) rc = ares_world_agree(w, ARES_OK); /* a wait that is watched */
    if (rc == ARES_OK && size > 1)
        rc = g->way && g->way->connect ? g->way->connect(g)
                                       : dist_comm_open(w, size, stride, &g->comm);
    if (rc != ARES_OK) {
        ares_group_close(g);
        return rc;
    }
    *out = g;
    return ARES_OK;
}

void ares_group_close(ares_group *g)
{
    if (!g) return;
    if (g->twins) {
        dist_nccl_close(g);
        g->twins->close(&g->side);
        g->device->k->release(g->device, g->side.on_device, g->side.bytes);
    }
    dist_comm_close(g->comm);
    ares_str_fini(&g->message);
    ares_free(g);
}

int ares_group_rank(const ares_group *g)
{
    return g ? g->rank : 0;
}

int ares_group_size(const ares_group *g)
{
    return g ? g->size : 1;
}

int ares_group_on_card(const ares_group *g)
{
    return g->on_card > 1 ? g->on_card : 1;
}

int ares_group_agree(ares_group *g, int rc)
{
    return ares_world_agree(g->world, rc);
}

int64_t ares_group_bytes(const ares_group *g)
{
    return g->bytes;
}

int64_t ares_group_sum_bytes(const ares_group *g, int64_t n)
{
    int64_t ranks = ares_group_size(g);
    return ranks > 1 ? ranks * ARES_MIN(n, PIECE_ELEMENTS) * (int64_t)sizeof(float) : 0;
}

/* Counts a call, and mixes it into what ares_world_agree compares. */
static void begin(ares_group *g, dist_kind kind, int64_t size, int64_t bytes)
{
    ares_world *w = g->world;
    g->bytes += bytes * (g->size - 1);
    if (g->way == &dist_nccl) dist_nccl_issue(g, kind, size);
    else dist_watch_name(w, kind, size);
    if (g->size < w->size) return; /* other groups may make other calls */
    uint64_t call = (uint64_t)size * 31 + (uint64_t)kind;
    w->calls = (w->calls ^ call) * 0x9e3779b97f4a7c15u;
    w->calls ^= w->calls >> 29;
}

static bool keep(ares_group *g, int rc)
{
    if (rc != ARES_OK && g->failure == ARES_OK) {
        g->failure = rc;
        ares_str_clear(&g->message);
        ares_str_add_z(&g->message, ares_error_message());
    }
    return rc == ARES_OK;
}

/* ---------------- gathering */
static void copy(ares_group *g, void *to, const void *from, size_t bytes)
{
    if (to != from && bytes > 0) g->device->k->copy(g->device, to, from, bytes);
}

ares_ticket ares_group_gather(ares_group *g, const void *mine, void *all, size_t bytes)
{
    char *own = (char *)all + (size_t)g->rank * bytes;
    if (g->size > 1) begin(g, DIST_GROUP_GATHER, (int64_t)bytes, (int64_t)bytes);
    if (g->way) return g->way->gather(g, mine, all, bytes);
    copy(g, own, mine, bytes);
    if (g->size == 1) return 0;
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t piece = ARES_MIN(bytes - at, (size_t)PIECE_BYTES);
        if (!keep(g, dist_comm_gather(g->world, g->comm, NULL, (char *)all + at, 1, piece, piece,
                                      bytes)))
            break;
    }
    return 0;
}

ares_ticket ares_group_gather_columns(ares_group *g, const void *mine, void *all, int64_t rows,
                                      size_t bytes)
{
    size_t row = bytes * (size_t)g->size;
    ARES_ASSERT(rows >= 0 && bytes > 0 && bytes <= PIECE_BYTES);
    if (g->size == 1) {
        copy(g, all, mine, (size_t)rows * bytes);
        return 0;
    }
    int64_t most = (int64_t)(PIECE_BYTES / bytes);
    begin(g, DIST_GROUP_COLUMNS, rows * (int64_t)bytes, rows * (int64_t)bytes);
    if (g->way) return g->way->gather_columns(g, mine, all, rows, bytes);
    for (int64_t at = 0; at < rows; at += most)
        if (!keep(g, dist_comm_gather(g->world, g->comm, (const char *)mine + (size_t)at * bytes,
                                      (char *)all + (size_t)at * row, ARES_MIN(rows - at, most),
                                      bytes, row, bytes)))
            break;
    return 0;
}

/* ---------------- sums */
typedef struct merge {
    const float *slices; /* [size][n] */
    float *to;
    int64_t n;
    int size;
    bool add;
} merge;

static void merge_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const merge *m = ctx;
    int64_t end = ARES_MIN((task + 1) * TASK_ELEMENTS, m->n);
    for (int64_t i = task * TASK_ELEMENTS; i < end; i++) {
        double sum = (double)m->slices[i];
        for (int r = 1; r < m->size; r++) sum += (double)m->slices[r * m->n + i];
        m->to[i] = m->add ? m->to[i] + (float)sum : (float)sum;
    }
}

static void merge_slices(ares_group *g, merge m)
{
    int64_t tasks = (m.n + TASK_ELEMENTS - 1) / TASK_ELEMENTS;
    ares_pool_run(g->device->pool, tasks, merge_task, &m);
}

static float *slices_of(ares_group *g, int64_t n)
{
    return (float *)dist_buffer(g->world, (size_t)g->size * (size_t)n * sizeof(float));
}

ares_ticket ares_group_sum_scatter(ares_group *g, const float *all, float *mine, int64_t n,
                                   bool add)
{
    ARES_ASSERT(n >= 0);
    if (g->size == 1) {
        if (add) g->device->k->add(g->device, mine, all, n);
        else copy(g, mine, all, (size_t)n * sizeof *mine);
        return 0;
    }
    begin(g, DIST_GROUP_SUM_SCATTER, n, n * (int64_t)sizeof *all);
    if (g->way) return g->way->sum_scatter(g, all, mine, n, add);
    for (int64_t at = 0; at < n; at += PIECE_ELEMENTS) {
        int64_t piece = ARES_MIN(n - at, PIECE_ELEMENTS);
        float *slices = slices_of(g, piece);
        if (!keep(g, dist_comm_exchange(g->world, g->comm, all + at, (size_t)n * sizeof *all,
                                        slices, (size_t)piece * sizeof *all)))
            break;
        merge_slices(g, (merge){ slices, mine + at, piece, g->size, add });
    }
    return 0;
}

ares_ticket ares_group_sum(ares_group *g, float *x, int64_t n)
{
    ARES_ASSERT(n >= 0);
    if (g->size == 1) return 0;
    begin(g, DIST_GROUP_SUM, n, n * (int64_t)sizeof *x);
    if (g->way) return g->way->sum(g, x, n);
    for (int64_t at = 0; at < n; at += PIECE_ELEMENTS) {
        int64_t piece = ARES_MIN(n - at, PIECE_ELEMENTS);
        size_t bytes = (size_t)piece * sizeof *x;
        float *slices = slices_of(g, piece);
        if (!keep(g, dist_comm_gather(g->world, g->comm, x + at, slices, 1, bytes, bytes, bytes)))
            break;
        merge_slices(g, (merge){ slices, x + at, piece, g->size, false });
    }
    return 0;
}

/* ---------------- waiting */
void ares_group_join(ares_group *g, ares_ticket t)
{
    if (g->twins) g->twins->join(&g->side, t);
    else ARES_ASSERT(t == 0);
}

int ares_group_sync(ares_group *g)
{
    int rc = g->failure;
    g->failure = ARES_OK;
    if (rc != ARES_OK) return ares_fail(rc, "%s", g->message.data);
    if (g->twins) ARES_TRY(g->twins->wait(&g->side));
    return g->device->k->sync(g->device);
}
