/*
 * Groups of ranks with a card each, by NCCL: it moves bytes from card to card, and the cards add
 * what has come, as they do with what comes over the host (staged.c): from rank 0 up, in double.
 *
 * A call is queued and the host goes on; what NCCL does later is only seen by who waits for the
 * card. While the host waits, it asks NCCL for failures, and shows the other ranks the collective
 * that its card is at (watch.c).
 */
#include "group.h"

#include <string.h>
#include <unistd.h>

enum {
    NCCL_BYTES = 64 << 20, /* of what other ranks send, on the card: a piece of each rank */
    ABORT_S = 5
};

/* ---------------- where a rank stands */
void dist_nccl_issue(ares_group *g, dist_kind kind, int64_t size)
{
    dist_place before = dist_watch_place(g->world);
    dist_watch_name(g->world, kind, size);
    g->tickets++;
    g->behind[g->tickets % DIST_PLACES] = before;
    g->at[g->tickets % DIST_PLACES] = dist_watch_issue(g->world, g->size, g->stride);
}

/* at: as in ares_dist_side */
static void show(ares_group *g, ares_ticket at)
{
    ares_ticket t = at == 0 ? g->tickets : ARES_MAX(at, -at);
    t = ARES_MAX(t, g->tickets - DIST_PLACES + 1); /* of older ones no place is kept */
    dist_watch_stand(g->world, at < 0 ? &g->behind[t % DIST_PLACES] : &g->at[t % DIST_PLACES],
                     at >= 0);
}

/* Time counts from when the card has come to where it is, and not while it computes. */
static void pause_at(void *owner, ares_ticket at)
{
    ares_group *g = owner;
    if (!g->waits) g->stood = dist_watch_place(g->world);
    if (!g->waits || g->waits_at != at) {
        g->wait = (dist_wait){ .last = ares_now_s() };
        show(g, at);
    }
    g->waits = true;
    g->waits_at = at;
    if (at < 0) dist_watch_rest(&g->wait);
    else dist_watch_pause(g->world, &g->wait);
}

static void resume(void *owner)
{
    ares_group *g = owner;
    if (g->waits) dist_watch_stand(g->world, &g->stood, false);
    g->waits = false;
}

static void end_all(void *owner)
{
    ares_world_abort(((ares_group *)owner)->world, ARES_EDIST);
}

/* ---------------- opening and closing */
static int open_side(ares_group *g)
{
    g->side.owner = g;
    g->side.pause = pause_at;
    g->side.resume = resume;
    g->side.fail = end_all;
    ARES_TRY(g->twins->open(&g->side));
    return dist_side_memory(g, NCCL_BYTES);
}

static int exchange_ids(ares_group *g, ares_str *all)
{
    uint8_t id[DIST_NCCL_ID] = { 0 };
    ARES_TRY(ares_world_agree(g->world, g->rank == 0 ? g->twins->id(id) : ARES_OK));
    return ares_world_gather_all(g->world, id, sizeof id, all, NULL);
}

/* A rank whose connection fails ends the others, which wait for it. */
static int connect_side(ares_group *g)
{
    ares_world *w = g->world;
    ares_str ids = { 0 };
    int rc = exchange_ids(g, &ids);
    if (rc == ARES_OK) {
        const char *of_first = ids.data + (w->rank - g->rank * g->stride) * DIST_NCCL_ID;
        dist_watch_name(w, DIST_GROUP_OPEN, g->size);
        g->at[0] = dist_watch_issue(w, g->size, g->stride);
        rc = g->twins->connect(&g->side, (const uint8_t *)of_first);
        if (rc != ARES_OK) {
            rc = ares_fail(rc, "%s; trainer.comm_transport=staged needs no NCCL",
                           ares_error_message());
            ares_world_abort(w, rc);
        }
        g->next = w->groups;
        w->groups = g;
    }
    ares_str_fini(&ids);
    return rc;
}

void dist_nccl_close(ares_group *g)
{
    ares_group **at = &g->world->groups;
    while (*at && *at != g) at = &(*at)->next;
    if (*at) *at = g->next;
}

/* NCCL may wait for ranks that are gone when it is asked to end: then the process ends by SIGALRM.
 */
void dist_groups_abort(const ares_world *w)
{
    if (w->groups) alarm(ABORT_S);
    for (ares_group *g = w->groups; g; g = g->next) g->twins->abort(&g->side);
}

/* ---------------- calls */
/* Elements of a piece of each rank. */
static int64_t most_of_each(const ares_group *g, size_t element)
{
    return (int64_t)(g->side.bytes / (size_t)g->size / 64 * 64 / element);
}

static ares_ticket nccl_gather(ares_group *g, const void *mine, void *all, size_t bytes)
{
    g->twins->begin(&g->side);
    dist_must(g, g->twins->gather(&g->side, mine, all, bytes));
    return g->twins->end(&g->side);
}

static ares_ticket nccl_gather_columns(ares_group *g, const void *mine, void *all, int64_t rows,
                                       size_t bytes)
{
    size_t row = bytes * (size_t)g->size;
    int64_t most = most_of_each(g, bytes), n;
    ARES_ASSERT(most > 0);
    g->twins->begin(&g->side);
    for (int64_t at = 0; at < rows; at += n) {
        n = ARES_MIN(rows - at, most);
        size_t slab = (size_t)n * bytes;
        dist_must(g, g->twins->gather(&g->side, (const char *)mine + (size_t)at * bytes,
                                      g->side.on_device, slab));
        for (int r = 0; r < g->size; r++)
            g->twins->copy_rows(&g->side, (char *)all + (size_t)at * row + (size_t)r * bytes, row,
                                g->side.on_device + (size_t)r * slab, bytes, bytes, n);
    }
    return g->twins->end(&g->side);
}

static ares_ticket nccl_sum_scatter(ares_group *g, const float *all, float *mine, int64_t n,
                                    bool add)
{
    int64_t most = most_of_each(g, sizeof *all), piece;
    g->twins->begin(&g->side);
    for (int64_t at = 0; at < n; at += piece) {
        piece = ARES_MIN(n - at, most);
        dist_must(g, g->twins->exchange(&g->side, all + at, (size_t)n * sizeof *all,
                                        g->side.on_device, (size_t)piece * sizeof *all));
        g->twins->merge(&g->side, all + g->rank * n + at, (float *)g->side.on_device, mine + at,
                        piece, add);
    }
    return g->twins->end(&g->side);
}

static ares_ticket nccl_sum(ares_group *g, float *x, int64_t n)
{
    int64_t most = most_of_each(g, sizeof *x), piece;
    g->twins->begin(&g->side);
    for (int64_t at = 0; at < n; at += piece) {
        piece = ARES_MIN(n - at, most);
        dist_must(g,
                  g->twins->gather(&g->side, x + at, g->side.on_device, (size_t)piece * sizeof *x));
        g->twins->merge(&g->side, x + at, (float *)g->side.on_device, x + at, piece, false);
    }
    return g->twins->end(&g->side);
}

const dist_way dist_nccl = { .name = "nccl",
                             .open = open_side,
                             .connect = connect_side,
                             .gather = nccl_gather,
                             .gather_columns = nccl_gather_columns,
                             .sum_scatter = nccl_sum_scatter,
                             .sum = nccl_sum };
