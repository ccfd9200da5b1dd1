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

static int open_side(ares_group *g)
{
    g->side.host_bytes = STAGED_BYTES;
    int rc = g->twins->open(&g->side);
    return rc == ARES_OK ? dist_side_memory(g, STAGED_BYTES) : rc;
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

/* What was queued is done, and MPI may move it. */
static void sent(ares_group *g)
{
    dist_must(g, g->twins->wait(&g->side));
}

/* The pieces of all ranks, one after the other, into side.arrived. */
static void gather_piece(ares_group *g, const void *own, size_t bytes)
{
    char *arrived = g->side.arrived;
    queue(g, arrived + (size_t)g->rank * bytes, own, bytes);
    sent(g);
    dist_must(g, dist_comm_gather(g->world, g->comm, NULL, arrived, 1, bytes, bytes, bytes));
}

/* What other ranks sent goes to the card; the place of the own piece is left as it is. */
static void receive(ares_group *g, size_t bytes)
{
    char *to = g->side.on_device, *from = g->side.arrived;
    size_t before = (size_t)g->rank * bytes, after = before + bytes;
    queue(g, to, from, before);
    queue(g, to + after, from + after, (size_t)g->size * bytes - after);
}

/* ---------------- calls */
static ares_ticket staged_gather(ares_group *g, const void *mine, void *all, size_t bytes)
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

static ares_ticket staged_gather_columns(ares_group *g, const void *mine, void *all, int64_t rows,
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
        dist_must(g, dist_comm_gather(g->world, g->comm, g->side.sent, g->side.arrived, n, bytes,
                                      row, bytes));
        queue(g, (char *)all + (size_t)at * row, g->side.arrived, (size_t)n * row);
    }
    return g->twins->end(&g->side);
}

static ares_ticket staged_sum_scatter(ares_group *g, const float *all, float *mine, int64_t n,
                                      bool add)
{
    int64_t most = (int64_t)(most_of_each(g) / sizeof *all), piece;
    g->twins->begin(&g->side);
    for (int64_t at = 0; at < n; at += piece) {
        piece = ARES_MIN(n - at, most);
        size_t bytes = (size_t)piece * sizeof *all;
        for (int r = 0; r < g->size; r++)
            if (r != g->rank) queue(g, g->side.sent + (size_t)r * bytes, all + r * n + at, bytes);
        sent(g);
        dist_must(
            g, dist_comm_exchange(g->world, g->comm, g->side.sent, bytes, g->side.arrived, bytes));
        receive(g, bytes);
        g->twins->merge(&g->side, all + g->rank * n + at, (float *)g->side.on_device, mine + at,
                        piece, add);
    }
    return g->twins->end(&g->side);
}

static ares_ticket staged_sum(ares_group *g, float *x, int64_t n)
{
    int64_t most = (int64_t)(most_of_each(g) / sizeof *x), piece;
    g->twins->begin(&g->side);
    for (int64_t at = 0; at < n; at += piece) {
        piece = ARES_MIN(n - at, most);
        size_t bytes = (size_t)piece * sizeof *x;
        gather_piece(g, x + at, bytes);
        receive(g, bytes);
        g->twins->merge(&g->side, x + at, (float *)g->side.on_device, x + at, piece, false);
    }
    return g->twins->end(&g->side);
}

const dist_way dist_staged = { .name = "staged",
                               .open = open_side,
                               .gather = staged_gather,
                               .gather_columns = staged_gather_columns,
                               .sum_scatter = staged_sum_scatter,
                               .sum = staged_sum };
