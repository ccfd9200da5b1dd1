/*
 * Collectives on the memory of devices, for groups of ranks. In order: the choice of a
 * transport between cards; the one by NCCL; the groups themselves, with what CPUs do; the transport
 * of cards through host memory.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * How the bytes of groups travel between cards. Every rank sends which card it has and
 * whether it has NCCL; all see what all have sent and come to the same choice.
 */

typedef struct card_info {
    uint8_t card[16];
    int version;
    char lacks[240]; /* why this rank has no NCCL; "": it has */
} card_info;

/* Whether two ranks use one card, which NCCL allows only where its own options say so. */
static bool find_shared(const card_info *t, int n, ares_str *why)
{
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (memcmp(t[a].card, t[b].card, sizeof t->card) == 0) {
                ares_str_addf(why, "ranks %d and %d share a card", a, b);
                return true;
            }
    return false;
}
/* Whether a rank has no NCCL, or another version than rank 0. */
static bool find_lack(const card_info *t, int n, ares_str *why)
{
    for (int r = 0; r < n; r++) {
        if (*t[r].lacks) ares_str_addf(why, "rank %d has no NCCL: %s", r, t[r].lacks);
        else if (t[r].version != t[0].version)
            ares_str_addf(why, "rank %d has another NCCL (%d) than rank 0 (%d)", r, t[r].version,
                          t[0].version);
        else continue;
        return true;
    }
    return false;
}

/* The transport for what the option asks; NULL: it cannot be had. why: the reason either way. */
static const dist_card_transport *choose(dist_transport wanted, const card_info *t, int n,
                                         ares_str *why)
{
    /* auto takes NCCL only where it is sure to work; nccl fails where it cannot */
    if (wanted == DIST_STAGED) ares_str_add_z(why, "trainer.comm_transport = staged");
    else if (wanted == DIST_NCCL) {
        if (find_lack(t, n, why)) return NULL;
        ares_str_add_z(why, "trainer.comm_transport = nccl");
    } else if (!find_shared(t, n, why) && !find_lack(t, n, why))
        ares_str_add_z(why, "each has a card of its own");
    else return &dist_staged;
    return wanted == DIST_STAGED ? &dist_staged : &dist_nccl;
}

/* What both transports share. */

/* Memory of the device for `bytes` of what other ranks send. */
static int side_memory(ares_group *g, size_t bytes)
{
    g->side.bytes = bytes;
    g->side.on_device = g->device->k->alloc(g->device, bytes);
    return g->side.on_device
               ? ARES_OK
               : ares_fail(ARES_EDEVICE, "dist: no %zu MiB left on the card for a group of ranks",
                           bytes >> 20);
}

/* What follows a failure between two ranks: the others have begun the call, and would wait. */
static void must(ares_group *g, int rc)
{
    if (rc != ARES_OK) ares_world_abort(g->world, rc);
}

/*
 * Groups of ranks with a card each, by NCCL: it moves bytes from card to card, and the cards add
 * what has come, as they do with what comes over the host: from rank 0 up, in double.
 *
 * A call is queued and the host goes on; what NCCL does later is only seen by who waits for the
 * card. While the host waits, it asks NCCL for failures, and shows the other ranks the collective
 * that its card is at (stall.c).
 */

enum { NCCL_BYTES = 64 << 20 }; /* of what other ranks send, on the card: a piece of each rank */

/* ---------------- where a rank stands */
/*
 * at: as in ares_dist_side.pause. A new wait begins whenever the card gets to another ticket, so
 * that the time in which it computes is not counted.
 */
static void pause_at(void *owner, ares_ticket at)
{
    ares_group *g = owner;
    if (!g->waits) g->stood = dist_watch_place(g->world);
    if (!g->waits || g->waits_at != at) {
        ares_ticket t = at == 0 ? g->tickets : ARES_MAX(at, -at);
        t = ARES_MAX(t, g->tickets - DIST_PLACES + 1); /* of older ones no place is kept */
        g->wait = (dist_wait){ .last = ares_now_s() };
        dist_watch_stand(g->world, at < 0 ? &g->behind[t % DIST_PLACES] : &g->at[t % DIST_PLACES],
                         at >= 0);
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
static int open_nccl(ares_group *g)
{
    g->side.owner = g;
    g->side.pause = pause_at;
    g->side.resume = resume;
    g->side.fail = end_all;
    ARES_TRY(g->ops->open(&g->side));
    return side_memory(g, NCCL_BYTES);
}

/* A rank whose connection fails ends the others, which wait for it. */
static int connect_side(ares_group *g)
{
    ares_world *w = g->world;
    /* the first rank of each group makes the id by which its ranks find each other */
    ares_str ids = { 0 };
    uint8_t id[DIST_NCCL_ID] = { 0 };
    int rc = ares_world_share_error(w, g->rank == 0 ? g->ops->id(id) : ARES_OK);
    if (rc == ARES_OK) rc = ares_world_gather_all(w, id, sizeof id, &ids, NULL);
    if (rc == ARES_OK) {
        const char *of_first = ids.data + (w->rank - g->rank * g->stride) * DIST_NCCL_ID;
        dist_watch_name(w, DIST_GROUP_OPEN, g->size);
        g->at[0] = dist_watch_issue(w, g->size, g->stride);
        rc = g->ops->connect(&g->side, (const uint8_t *)of_first);
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

/* ---------------- calls */
/* Elements of a piece of each rank. */
static int64_t nccl_most_of_each(const ares_group *g, size_t element)
{
    /* whole multiples of 64 bytes, so that pieces stay aligned */
    return (int64_t)(g->side.bytes / (size_t)g->size / 64 * 64 / element);
}

static ares_ticket nccl_gather(ares_group *g, const void *mine, void *all, size_t bytes)
{
    g->ops->begin(&g->side);
    must(g, g->ops->gather(&g->side, mine, all, bytes));
    return g->ops->end(&g->side);
}

static ares_ticket nccl_gather_columns(ares_group *g, const void *mine, void *all, int64_t rows,
                                       size_t bytes)
{
    size_t row = bytes * (size_t)g->size;
    int64_t most = nccl_most_of_each(g, bytes), n;
    ARES_ASSERT(most > 0);
    g->ops->begin(&g->side);
    for (int64_t at = 0; at < rows; at += n) {
        n = ARES_MIN(rows - at, most);
        /* each rank's rows arrive as one slab; copy_rows puts them side by side */
        size_t slab = (size_t)n * bytes;
        must(g, g->ops->gather(&g->side, (const char *)mine + (size_t)at * bytes, g->side.on_device,
                               slab));
        for (int r = 0; r < g->size; r++)
            g->ops->copy_rows(&g->side, (char *)all + (size_t)at * row + (size_t)r * bytes, row,
                              g->side.on_device + (size_t)r * slab, bytes, bytes, n);
    }
    return g->ops->end(&g->side);
}

static ares_ticket nccl_sum_scatter(ares_group *g, const float *all, float *mine, int64_t n,
                                    bool add)
{
    int64_t most = nccl_most_of_each(g, sizeof *all), piece;
    g->ops->begin(&g->side);
    for (int64_t at = 0; at < n; at += piece) {
        piece = ARES_MIN(n - at, most);
        must(g, g->ops->exchange(&g->side, all + at, (size_t)n * sizeof *all, g->side.on_device,
                                 (size_t)piece * sizeof *all));
        g->ops->merge(&g->side, all + g->rank * n + at, (float *)g->side.on_device, mine + at,
                      piece, add);
    }
    return g->ops->end(&g->side);
}

static ares_ticket nccl_sum(ares_group *g, float *x, int64_t n)
{
    int64_t most = nccl_most_of_each(g, sizeof *x), piece;
    g->ops->begin(&g->side);
    for (int64_t at = 0; at < n; at += piece) {
        piece = ARES_MIN(n - at, most);
        must(g, g->ops->gather(&g->side, x + at, g->side.on_device, (size_t)piece * sizeof *x));
        g->ops->merge(&g->side, x + at, (float *)g->side.on_device, x + at, piece, false);
    }
    return g->ops->end(&g->side);
}

const dist_card_transport dist_nccl = { .name = "nccl",
                                        .open = open_nccl,
                                        .connect = connect_side,
                                        .gather = nccl_gather,
                                        .gather_columns = nccl_gather_columns,
                                        .sum_scatter = nccl_sum_scatter,
                                        .sum = nccl_sum };

/*
 * Groups: collectives on the memory of the devices of several ranks. Bytes are only moved between
 * ranks; the device of a rank adds them, from rank 0 up in double. On the CPU ("host") MPI moves
 * them, in pieces, so that buffers stay small however long an array is; on a card: over the host
 * or by NCCL, each in a section of its own.
 */

enum {
    PIECE_BYTES = 1 << 28,    /* of a gather, a rank: MPI counts in int */
    PIECE_ELEMENTS = 1 << 20, /* of a sum, a rank: 4 MiB of buffer */
    TASK_ELEMENTS = 1 << 15   /* of a sum, for one thread */
};

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
    if (size > 1 && d->index >= 0) {
        ares_cuda_dist_ops_fn *ops;
        *(void **)&ops = ares_device_symbol(d, "ares_cuda_dist_ops");
        ARES_ASSERT(ops); /* the library and the program are of one build */
        g->ops = ops();
        g->side = (ares_dist_side){ .device = d, .size = size, .rank = g->rank };
        /* the transport, the same on every rank, and on_card: a collective of the world */
        card_info mine = { .version = -1 };
        ares_str all = { 0 }, why = { 0 };
        g->ops->card(g->device, mine.card);
        if (g->ops->find(&mine.version) != ARES_OK) {
            snprintf(mine.lacks, sizeof mine.lacks, "%s", ares_error_message());
            ares_error_clear();
        }
        rc = ares_world_gather_all(w, &mine, sizeof mine, &all, NULL);
        if (rc == ARES_OK) {
            const card_info *t = (const card_info *)(const void *)all.data;
            /* also without NCCL: kernels of ranks that share a card share its memory */
            g->on_card = 0;
            for (int r = 0; r < w->size; r++)
                g->on_card += memcmp(t[r].card, mine.card, sizeof mine.card) == 0;
            g->transport = choose(w->transport, t, w->size, &why);
            if (g->transport == &dist_nccl)
                ares_info("dist: groups of %d ranks exchange by NCCL %d.%d.%d: %s", g->size,
                          t->version / 10000, t->version / 100 % 100, t->version % 100, why.data);
            else if (g->transport)
                ares_info("dist: groups of %d ranks exchange over host memory: %s", g->size,
                          why.data);
            else
                rc = ares_fail(ARES_EUNSUPPORTED, "dist: trainer.comm_transport = 'nccl': %s",
                               why.data);
        }
        ares_str_fini(&all);
        ares_str_fini(&why);

        if (rc == ARES_OK) rc = ares_world_share_error(w, g->transport->open(g));
    } else if (size > 1) rc = ares_world_share_error(w, ARES_OK);
    /* ranks wait for each other there, where a missing one is found, and not in what follows */
    if (rc == ARES_OK && size > 1)
        rc = g->transport && g->transport->connect ? g->transport->connect(g)
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
    /* also called for a group that ares_group_open could not finish */
    if (g->ops) {
        ares_group **at = &g->world->groups; /* an NCCL group is in this list while it is open */
        while (*at && *at != g) at = &(*at)->next;
        if (*at) *at = g->next;
        g->ops->close(&g->side);
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
    return ares_world_share_error(g->world, rc);
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

/* Counts a call, and mixes it into what ares_world_share_error compares. */
static void begin(ares_group *g, dist_kind kind, int64_t size, int64_t bytes)
{
    ares_world *w = g->world;
    g->bytes += bytes * (g->size - 1);
    if (g->transport == &dist_nccl) { /* the call is queued: the card comes to it later */
        g->tickets++;
        g->behind[g->tickets % DIST_PLACES] = dist_watch_place(w);
        dist_watch_name(w, kind, size);
        g->at[g->tickets % DIST_PLACES] = dist_watch_issue(w, g->size, g->stride);
    } else dist_watch_name(w, kind, size);
    /* a hash of the sequence of calls, the same on all ranks unless the program is wrong */
    if (g->size < w->size) return; /* other groups may make other calls */
    uint64_t call = (uint64_t)size * 31 + (uint64_t)kind;
    w->calls = (w->calls ^ call) * 0x9e3779b97f4a7c15u;
    w->calls ^= w->calls >> 29;
}

/* Keeps the first failure for ares_group_sync; false: the call ends. */
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
/* Within the device; nothing where mine lies in its place. */
static void copy(ares_group *g, void *to, const void *from, size_t bytes)
{
    if (to != from && bytes > 0) g->device->k->copy(g->device, to, from, bytes);
}

ares_ticket ares_group_gather(ares_group *g, const void *mine, void *all, size_t bytes)
{
    char *own = (char *)all + (size_t)g->rank * bytes;
    if (g->size > 1) begin(g, DIST_GROUP_GATHER, (int64_t)bytes, (int64_t)bytes);
    if (g->transport) return g->transport->gather(g, mine, all, bytes);
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
    if (g->transport) return g->transport->gather_columns(g, mine, all, rows, bytes);
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
        /* in double and from rank 0 up: the same bits on every rank */
        double sum = (double)m->slices[i];
        for (int r = 1; r < m->size; r++) sum += (double)m->slices[r * m->n + i];
        m->to[i] = m->add ? m->to[i] + (float)sum : (float)sum;
    }
}

/* Adds the slices of all ranks, in parallel over elements. */
static void merge_slices(ares_group *g, merge m)
{
    int64_t tasks = (m.n + TASK_ELEMENTS - 1) / TASK_ELEMENTS;
    ares_pool_run(g->device->pool, tasks, merge_task, &m);
}

/* Host memory for n floats of every rank. */
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
    if (g->transport) return g->transport->sum_scatter(g, all, mine, n, add);
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
    if (g->transport) return g->transport->sum(g, x, n);
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
    if (g->ops) g->ops->join(&g->side, t);
    else ARES_ASSERT(t == 0);
}

int ares_group_sync(ares_group *g)
{
    int rc = g->failure;
    g->failure = ARES_OK;
    if (rc != ARES_OK) return ares_fail(rc, "%s", g->message.data);
    if (g->ops) ARES_TRY(g->ops->wait(&g->side));
    return g->device->k->sync(g->device);
}

/*
 * Groups of ranks with cards, over the host: a piece of an array goes from the card to pinned
 * memory, by MPI to the other ranks' pinned memory, and to their cards, which add. It needs no
 * library of a vendor, and works for ranks that share a card.
 *
 * Work is queued on the group's own stream. The host waits for it only before MPI reads what the
 * card has sent; what arrives is queued, and the call returns. As the stream keeps its order, that
 * wait is also the one for copies that still read what the last piece brought.
 */

enum { STAGED_BYTES = 8 << 20 }; /* of each of the three buffers */

static int open_staged(ares_group *g)
{
    g->side.host_bytes = STAGED_BYTES;
    int rc = g->ops->open(&g->side);
    return rc == ARES_OK ? side_memory(g, STAGED_BYTES) : rc;
}

/* ---------------- pieces */
/* Bytes of a piece of each rank. */
static size_t staged_most_of_each(const ares_group *g)
{
    return STAGED_BYTES / (size_t)g->size / 64 * 64;
}

static void queue(ares_group *g, void *to, const void *from, size_t bytes)
{
    g->ops->copy(&g->side, to, from, bytes);
}

/* What was queued is done, and MPI may move it. */
static void sent(ares_group *g)
{
    must(g, g->ops->wait(&g->side));
}

/* The pieces of all ranks, one after the other, into side.arrived. */
static void gather_piece(ares_group *g, const void *own, size_t bytes)
{
    char *arrived = g->side.arrived;
    queue(g, arrived + (size_t)g->rank * bytes, own, bytes);
    sent(g);
    must(g, dist_comm_gather(g->world, g->comm, NULL, arrived, 1, bytes, bytes, bytes));
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
    size_t most = staged_most_of_each(g), piece;
    g->ops->begin(&g->side);
    if (mine != own) queue(g, own, mine, bytes);
    for (size_t at = 0; at < bytes; at += piece) {
        piece = ARES_MIN(bytes - at, most);
        gather_piece(g, own + at, piece);
        for (int r = 0; r < g->size; r++)
            if (r != g->rank)
                queue(g, to + (size_t)r * bytes + at, g->side.arrived + (size_t)r * piece, piece);
    }
    return g->ops->end(&g->side);
}

static ares_ticket staged_gather_columns(ares_group *g, const void *mine, void *all, int64_t rows,
                                         size_t bytes)
{
    size_t row = bytes * (size_t)g->size;
    int64_t most = (int64_t)(STAGED_BYTES / row), n;
    ARES_ASSERT(most > 0);
    g->ops->begin(&g->side);
    for (int64_t at = 0; at < rows; at += n) {
        n = ARES_MIN(rows - at, most);
        queue(g, g->side.sent, (const char *)mine + (size_t)at * bytes, (size_t)n * bytes);
        sent(g);
        must(g, dist_comm_gather(g->world, g->comm, g->side.sent, g->side.arrived, n, bytes, row,
                                 bytes));
        queue(g, (char *)all + (size_t)at * row, g->side.arrived, (size_t)n * row);
    }
    return g->ops->end(&g->side);
}

static ares_ticket staged_sum_scatter(ares_group *g, const float *all, float *mine, int64_t n,
                                      bool add)
{
    int64_t most = (int64_t)(staged_most_of_each(g) / sizeof *all), piece;
    g->ops->begin(&g->side);
    for (int64_t at = 0; at < n; at += piece) {
        piece = ARES_MIN(n - at, most);
        size_t bytes = (size_t)piece * sizeof *all;
        for (int r = 0; r < g->size; r++)
            if (r != g->rank) queue(g, g->side.sent + (size_t)r * bytes, all + r * n + at, bytes);
        sent(g);
        must(g, dist_comm_exchange(g->world, g->comm, g->side.sent, bytes, g->side.arrived, bytes));
        receive(g, bytes);
        g->ops->merge(&g->side, all + g->rank * n + at, (float *)g->side.on_device, mine + at,
                      piece, add);
    }
    return g->ops->end(&g->side);
}

static ares_ticket staged_sum(ares_group *g, float *x, int64_t n)
{
    int64_t most = (int64_t)(staged_most_of_each(g) / sizeof *x), piece;
    g->ops->begin(&g->side);
    for (int64_t at = 0; at < n; at += piece) {
        piece = ARES_MIN(n - at, most);
        size_t bytes = (size_t)piece * sizeof *x;
        gather_piece(g, x + at, bytes);
        receive(g, bytes);
        g->ops->merge(&g->side, x + at, (float *)g->side.on_device, x + at, piece, false);
    }
    return g->ops->end(&g->side);
}

const dist_card_transport dist_staged = { .name = "staged",
                                          .open = open_staged,
                                          .gather = staged_gather,
                                          .gather_columns = staged_gather_columns,
                                          .sum_scatter = staged_sum_scatter,
                                          .sum = staged_sum };
