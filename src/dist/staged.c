/*
 * Groups of ranks with cards, over the host: a piece of an array goes from the card to pinned
 * memory, by MPI to the other ranks' pinned memory, and to their cards, which add. It needs no
 * library of a vendor, and works for ranks that share a card.
 *
 * Work is queued on the group's own stream. The host waits for it only before MPI reads what the
 * card has sent; what arrives is queued, and the call returns. As the stream keeps its order, that
 * wait is also the one for copies that still read what the last piece brought.
 */
#include "group.h"

enum { STAGED_BYTES = 8 << 20 }; /* of each of the three buffers */

int staged_open(ares_group *g)
{
    ares_device *d = g->device;
    ares_cuda_dist_twins_fn *twins;
    *(void **)&twins = ares_device_symbol(d, "ares_cuda_dist_twins");
    ARES_ASSERT(twins); /* the library and the program are of one build */
    g->twins = twins();
    g->side = (ares_dist_side){ .device = d, .bytes = STAGED_BYTES };
    int rc = g->twins->open(&g->side);
    if (rc == ARES_OK) {
        g->side.on_device = d->k->alloc(d, STAGED_BYTES);
        if (!g->side.on_device)
            rc = ares_fail(ARES_EDEVICE, "dist: no %d MiB left on the card for a group of ranks",
                           STAGED_BYTES >> 20);
    }
    return rc;
}

void staged_close(ares_group *g)
{
    if (!g->twins) return;
    g->twins->close(&g->side);
    if (g->side.on_device) g->device->k->release(g->device, g->side.on_device, STAGED_BYTES);
}

/* ---------------- pieces */
/* Bytes of a piece of each rank. */
static size_t most_of_each(const ares_group *g)
{
    return STAGED_BYTES / (size_t)g->size / 64 * 64;
}

static void queue(ares_group *g, void *to, const void *from, size_t bytes)
{
    g->twins->copy(&g->side, to, from, bytes);
}

/* What was queued is done, and MPI may move it; then its own result. The other ranks come to this
 * collective and would wait for ever: a rank that cannot go on ends them. */
static void moved(ares_group *g, int rc)
{
    if (rc != ARES_OK) ares_world_abort(g->world, rc);
}
static void sent(ares_group *g)
{
    moved(g, g->twins->wait(&g->side));
}

/* The pieces of all ranks, one after the other, into side.arrived. */
static void gather_piece(ares_group *g, const void *own, size_t bytes)
{
    char *arrived = g->side.arrived;
    queue(g, arrived + (size_t)g->rank * bytes, own, bytes);
    sent(g);
    moved(g, dist_comm_gather(g->world, g->comm, NULL, arrived, 1, bytes, bytes, bytes));
}

/* What other ranks sent goes to the card; the place of the own piece is left as it is. */
static void receive(ares_group *g, size_t bytes)
{
    char *to = (char *)g->side.on_device, *from = g->side.arrived;
    size_t before = (size_t)g->rank * bytes, after = before + bytes;
    queue(g, to, from, before);
    queue(g, to + after, from + after, (size_t)g->size * bytes - after);
}

/* ---------------- calls */
ares_ticket staged_gather(ares_group *g, const void *mine, void *all, size_t bytes)
{
    char *to = all, *own = to + (size_t)g->rank * bytes;
    size_t most = most_of_each(g), piece;
    g->twins->begin(&g->side);
    if (mine != own) queue(g, own, mine, bytes);
    for (size_t at = 0; at < bytes; at += piece) {
        piece = ARES_MIN(bytes - at, most);
        gather_piece(g, own + at, piece);
        for (int r = 0; r < g->size; r++)
            if (r != g->rank)
                queue(g, to + (size_t)r * bytes + at, g->side.arrived + (size_t)r * piece, piece);
    }
    return g->twins->end(&g->side);
}

ares_ticket staged_gather_columns(ares_group *g, const void *mine, void *all, int64_t rows,
                                  size_t bytes)
{
    size_t row = bytes * (size_t)g->size;
    int64_t most = (int64_t)(STAGED_BYTES / row), n;
    ARES_ASSERT(most > 0);
    g->twins->begin(&g->side);
    for (int64_t at = 0; at < rows; at += n) {
        n = ARES_MIN(rows - at, most);
        queue(g, g->side.sent, (const char *)mine + (size_t)at * bytes, (size_t)n * bytes);
        sent(g);
        moved(g, dist_comm_gather(g->world, g->comm, g->side.sent, g->side.arrived, n, bytes, row,
                                  bytes));
        queue(g, (char *)all + (size_t)at * row, g->side.arrived, (size_t)n * row);
    }
    return g->twins->end(&g->side);
}

ares_ticket staged_sum_scatter(ares_group *g, const float *all, float *mine, int64_t n, bool add)
{
    int64_t most = (int64_t)(most_of_each(g) / sizeof *all), piece;
    g->twins->begin(&g->side);
    for (int64_t at = 0; at < n; at += piece) {
        piece = ARES_MIN(n - at, most);
        size_t bytes = (size_t)piece * sizeof *all;
        for (int r = 0; r < g->size; r++)
            if (r != g->rank) queue(g, g->side.sent + (size_t)r * bytes, all + r * n + at, bytes);
        sent(g);
        moved(g,
              dist_comm_exchange(g->world, g->comm, g->side.sent, bytes, g->side.arrived, bytes));
        receive(g, bytes);
        g->twins->merge(&g->side, all + g->rank * n + at, g->side.on_device, mine + at, piece,
                        g->size, g->rank, add);
    }
    return g->twins->end(&g->side);
}

ares_ticket staged_sum(ares_group *g, float *x, int64_t n)
{
    int64_t most = (int64_t)(most_of_each(g) / sizeof *x), piece;
    g->twins->begin(&g->side);
    for (int64_t at = 0; at < n; at += piece) {
        piece = ARES_MIN(n - at, most);
        size_t bytes = (size_t)piece * sizeof *x;
        gather_piece(g, x + at, bytes);
        receive(g, bytes);
        g->twins->merge(&g->side, x + at, g->side.on_device, x + at, piece, g->size, g->rank,
                        false);
    }
    return g->twins->end(&g->side);
}
