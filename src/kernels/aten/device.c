/*
 * The devices whose kernels are libtorch's operators: first the tables and what a device keeps
 * for them, then which entries a card takes from libtorch and which stay our own.
 */
#include "aten.h"

#include "ares/core.h"

#include <stddef.h>
#include <stdio.h>

/*
 * The tables made of libtorch's operators, and what a device keeps for them: its first failure and
 * its scratch. On the CPU the table is complete, but its memory, and the sampler that draws tokens
 * from its logits, are the native table's; what a card takes stands at the end. The program finds
 * the ares_aten_ functions by name.
 */

enum { SLOTS = ATEN_SLOTS };

typedef struct aten_context {
    ares_kernels table;        /* in use: the one under it, and our entries */
    const ares_kernels *under; /* as the device was opened */
    bool told;                 /* that heads are not served */
    int code;                  /* of the first failure since the last sync */
    char message[512];
    struct {
        void *p;
        size_t bytes;
    } slot[SLOTS];
} aten_context;

const ares_kernels *aten_under(const ares_device *d)
{
    return ((const aten_context *)d->aten)->under;
}

/* Keeps the message of rc for sync if it is the first failure; returns rc. */
static int keep_failure(ares_device *d, int rc)
{
    aten_context *c = d->aten;
    if (rc != ARES_OK && c->code == ARES_OK) {
        c->code = rc;
        snprintf(c->message, sizeof c->message, "%s%s", ares_error_message(),
                 rc == ARES_ELIMIT ? "; lower worker.rollout.gpu_memory_utilization or the tokens "
                                     "of a micro-batch"
                                   : "");
    }
    if (rc != ARES_OK) ares_error_clear();
    return rc;
}

/* Called where libtorch lacks memory: a wait frees what was released. Its failure is kept. */
static bool free_released(void *ctx)
{
    ares_device *d = ctx;
    return keep_failure(d, aten_under(d)->sync(d)) == ARES_OK;
}

at_scope *aten_enter(ares_device *d, const char *entry)
{
    const aten_context *c = d->aten;
    if (c->code != ARES_OK) return NULL;
    at_scope *s = d->index < 0 ? at_scope_open_no_grad(entry)
                               : at_scope_open_stream(entry, d->index, d->stream);
    at_scope_retry(s, free_released, d);
    return s;
}

at_scope *aten_enter_graph(ares_device *d, const char *entry)
{
    ARES_ASSERT(d->index < 0);
    return ((aten_context *)d->aten)->code == ARES_OK ? at_scope_open(entry) : NULL;
}

void aten_leave(ares_device *d, at_scope *s)
{
    (void)keep_failure(d, at_scope_close(s, NULL));
}

float *aten_scratch(ares_device *d, aten_slot slot, int64_t floats)
{
    aten_context *c = d->aten;
    size_t bytes = (size_t)floats * sizeof(float);
    if (c->slot[slot].bytes < bytes) {
        ares_pages_free(c->slot[slot].p, c->slot[slot].bytes);
        c->slot[slot].bytes = (bytes + bytes / 4 + 65535) / 65536 * 65536;
        c->slot[slot].p = ares_pages_new(c->slot[slot].bytes);
    }
    return c->slot[slot].p;
}

/* ------------------------------------------------------------------ views */

static at_tensor rows_of(const ares_device *d, at_dtype type, const void *x, int64_t rows,
                         int64_t columns, int64_t ld)
{
    return at_view(x, type, d->index, (const int64_t[]){ rows, columns },
                   (const int64_t[]){ ld, 1 }, 2);
}
at_tensor aten_acts(const ares_device *d, const void *x, int64_t rows, int64_t columns, int64_t ld)
{
    return rows_of(d, aten_type(d->k->act), x, rows, columns, ld);
}
at_tensor aten_wide(const ares_device *d, const void *x, int64_t rows, int64_t columns, int64_t ld)
{
    return at_to(aten_acts(d, x, rows, columns, ld), AT_F32);
}
at_tensor aten_rows(const ares_device *d, const float *x, int64_t rows, int64_t columns, int64_t ld)
{
    return rows_of(d, AT_F32, x, rows, columns, ld);
}
at_tensor aten_vector(const ares_device *d, const float *x, int64_t n)
{
    return at_view(x, AT_F32, d->index, (const int64_t[]){ n }, (const int64_t[]){ 1 }, 1);
}
at_tensor aten_ids(const ares_device *d, const int32_t *ids, int64_t n)
{
    return at_view(ids, AT_I32, d->index, (const int64_t[]){ n }, (const int64_t[]){ 1 }, 1);
}
at_tensor aten_matrix(const ares_device *d, const ares_matrix *w)
{
    ARES_ASSERT(w->layout == ARES_ROWS);
    return rows_of(d, aten_type(w->dtype), w->data, w->n, w->k, w->k);
}

/* ------------------------------------------------------------------ the tables */

/* A sync's result: our first failure, of which that of the table below is a consequence; or that.
 */
static int aten_report(ares_device *d, int under)
{
    aten_context *c = d->aten;
    int rc = c->code;
    c->code = ARES_OK;
    return rc == ARES_OK ? under : ares_fail(rc, "kernels: aten: %s", c->message);
}
static int report(ares_device *d)
{
    return aten_report(d, aten_under(d)->sync(d));
}

ares_kernels *aten_put_on(ares_device *d)
{
    aten_context *c = ares_calloc(1, sizeof *c);
    c->under = d->k;
    c->table = *d->k;
    c->table.sync = report;
    d->aten = c;
    d->k = &c->table;
    return &c->table;
}

void ares_aten_open(ares_device *d, ares_dtype act);

/* Puts the complete table on an open native device of the CPU. */
void ares_aten_open(ares_device *d, ares_dtype act)
{
    ares_kernels *k = aten_put_on(d);
    k->name = act == ARES_F32 ? "aten cpu" : "aten cpu bf16";
    k->layout = ARES_ROWS;
    k->act = act;
    k->lists_keys = true;
    k->rows_move = false; /* its lse has rows side by side */
    aten_fill_products(k);
    aten_fill_rows(k);
    aten_fill_attention(k);
    aten_fill_experts(k);
    aten_fill_nets(k);
    if (act == ARES_F32) return;
    k->conv = k->conv_backward = NULL;
    k->delta = k->delta_backward = NULL;
}

void ares_aten_close(ares_device *d)
{
    aten_context *c = d->aten;
    for (int i = 0; i < SLOTS; i++) ares_pages_free(c->slot[i].p, c->slot[i].bytes);
    d->k = c->under;
    d->aten = NULL;
    ares_free(c);
}

/*
 * What a card takes from libtorch: in bf16, attention of packed segments and of pieces of prompts
 * over the paged cache, by FlashAttention-2. It runs on the device's stream, between our kernels.
 * All other entries are those of libares_cuda.so, and so are these where libtorch does not serve:
 * f32, heads whose size is not a multiple of 8 or above 256, rows alone (decoding), what is kept as
 * a graph.
 *
 * A kernel's failure shows when the stream is next waited for, which the table under this one does;
 * what libtorch itself refuses is kept until sync.
 *
 * Each side keeps memory that the other may lack. Where we lack some, libtorch frees its cache
 * (ares_cuda_trim_by); where libtorch does, we free what was released (aten_enter). Both try once
 * more.
 */

/* ------------------------------------------------------------------ attention */

/* Heads that libtorch does not take are told once: our kernel is many times slower. */
static bool served(ares_device *d, const ares_attention_args *a)
{
    aten_context *c = d->aten;
    bool takes = a->head_dim % 8 == 0 && a->head_dim <= 256;
    if (!takes && !c->told)
        ares_warn(
            "kernels: cuda:%d: heads of %d numbers: libtorch's attention takes multiples of 8 "
            "up to 256; our own, on CUDA cores, computes packed rows and is many times slower",
            d->index, a->head_dim);
    c->told = c->told || !takes;
    return takes;
}

/*
 * Pieces of prompts over the paged cache, then the rows alone, if there are any. What is kept as a
 * graph has no pieces.
 */
static void attention_paged(ares_device *d, const ares_attention_args *a)
{
    ares_attention_args alone = *a;
    alone.rows_alone = true;
    alone.seg.max_keys = 0;
    for (int32_t i = 0; i < a->seg.n; i++) {
        aten_seen g = aten_seen_by(a, i);
        if (g.rows == 1) alone.seg.max_keys = ARES_MAX(alone.seg.max_keys, (int32_t)g.end);
    }
    aten_attend_pieces(d, a, aten_under(d)->gather_kv);
    if (alone.seg.max_keys > 0) aten_under(d)->attention(d, &alone);
}

static void attention(ares_device *d, const ares_attention_args *a)
{
    bool pieces = a->cache && a->causal && a->seg.max_rows > 1;
    if (!served(d, a) || (a->cache && !pieces)) aten_under(d)->attention(d, a);
    else if (pieces) attention_paged(d, a);
    else aten_attention(d, a);
}
static void attention_backward(ares_device *d, const ares_attention_args *a)
{
    (served(d, a) ? aten_attention_backward : aten_under(d)->attention_backward)(d, a);
}

/* ------------------------------------------------------------------ the table */

static int fetched(ares_device *d, int slot, const void **host)
{
    return aten_report(d, aten_under(d)->fetched(d, slot, host));
}

int ares_aten_check(void);
int ares_aten_take(ares_device *d, void (**trim)(void));

/* Whether libtorch has what the entries above call. */
int ares_aten_check(void)
{
    static const char *const called[] = { "aten::index_select", "aten::zero_",
                                          "aten::_flash_attention_forward",
                                          "aten::_flash_attention_backward" };
    const char *lacks = at_cuda_lacks(called, ARES_COUNT(called));
    return lacks ? ares_fail(ARES_EUNSUPPORTED, "torch: device = 'cuda': libtorch has no %s there",
                             lacks)
                 : ARES_OK;
}

/* Rows, keys and numbers of a head in a first try; bytes of each of its arrays. */
enum { TRY = 16, TRY_HEADS = 2, TRY_BYTES = TRY * TRY_HEADS * TRY * (int)sizeof(float) };

/*
 * Packed: the second of two segments sees the first one's rows as well. Paged: a row alone, which
 * has a key before it, and a piece of a prompt.
 */
static void try_attention(ares_device *d, char *const *at)
{
    enum { HALF = TRY / 2 };
    static const int32_t alone_first[] = { 0, 1, TRY }, before[] = { 1, 0 };
    struct {
        int32_t start[3], prefix_len[2], prefix_row[2], key_start[3], key_row[TRY + HALF];
        int32_t paged_start[3], paged_len[2], table[2];
    } host = { .start = { 0, HALF, TRY },
               .prefix_len = { 0, HALF },
               .key_start = { 0, HALF, TRY + HALF },
               .paged_start = { 0, 1, TRY },
               .paged_len = { 1, 0 } },
      *on_card = (void *)at[7];
    for (int i = 0; i < TRY + HALF; i++) host.key_row[i] = i < HALF ? i : i - HALF;
    d->k->copy_in(d, on_card, &host, sizeof host);
    ares_attention_args a = { .seg = { .n = 2,
                                       .rows = TRY,
                                       .keys = TRY + HALF,
                                       .start = on_card->start,
                                       .prefix_len = on_card->prefix_len,
                                       .prefix_row = on_card->prefix_row,
                                       .key_start = on_card->key_start,
                                       .key_row = on_card->key_row,
                                       .max_rows = HALF,
                                       .max_keys = TRY },
                              .n_heads = TRY_HEADS,
                              .n_kv_heads = 1,
                              .head_dim = TRY,
                              .scale = 1,
                              .causal = true,
                              .q = at[8],
                              .ldq = TRY_HEADS * TRY,
                              .k = at[9],
                              .v = at[9],
                              .ldkv = TRY,
                              .out = at[10],
                              .ldo = TRY_HEADS * TRY,
                              .lse = (float *)(void *)at[11],
                              .d_out = at[12],
                              .dq = at[13],
                              .lddq = TRY_HEADS * TRY,
                              .dk = at[14],
                              .dv = at[15],
                              .lddkv = TRY };
    for (a.window = 0; a.window <= HALF; a.window += HALF) {
        aten_attention(d, &a);
        aten_attention_backward(d, &a);
    }
    a.window = 0;
    a.cache = at[9];
    a.lse = NULL;
    a.seg = (ares_segments){ .n = 2,
                             .rows = TRY,
                             .start = on_card->paged_start,
                             .prefix_len = on_card->paged_len,
                             .block_table = on_card->table,
                             .table_stride = 1,
                             .host_start = alone_first,
                             .host_prefix_len = before,
                             .max_rows = TRY - 1,
                             .max_keys = TRY - 1 };
    attention_paged(d, &a);
}

/*
 * Does each of the entries once, on zeros: what libtorch registers it may still refuse, for its
 * version, its settings or this card.
 */
static int try_entries(ares_device *d)
{
    enum { ARRAYS = 16 };
    const ares_kernels *k = d->k;
    char *p = k->alloc(d, ARRAYS * TRY_BYTES), *at[ARRAYS];
    if (!p) return ares_fail(ARES_ELIMIT, "torch: device = 'cuda': no memory for a first try");
    for (int i = 0; i < ARRAYS; i++) at[i] = p + i * TRY_BYTES;
    try_attention(d, at);
    int rc = k->sync(d);
    k->release(d, p, ARRAYS * TRY_BYTES);
    return rc;
}

/*
 * Puts these entries on an open CUDA device; after a failure it stays as it was. *trim frees what
 * libtorch keeps of the card. Of a device in bf16: in f32 nothing is taken.
 */
int ares_aten_take(ares_device *d, void (**trim)(void))
{
    *trim = NULL;
    ARES_TRY(at_cuda_open());
    ARES_TRY(ares_aten_check());
    ares_kernels *k = aten_put_on(d);
    int rc = try_entries(d);
    if (rc != ARES_OK) {
        ares_aten_close(d);
        return rc;
    }
    *trim = at_cuda_trim;
    k->lists_keys = true;
    k->attention = attention;
    k->attention_backward = attention_backward;
    k->fetched = fetched;
    return ARES_OK;
}
