/*
 * What stretches of regions are in files, as rectangles of tensors, and what of them a rank holds
 * and what it writes. A region is cut anywhere between its elements (PANEL32: between columns of a
 * panel), so the ends of a stretch are parts of a row or panel and everything between is whole
 * ones.
 */
#include "pieces.h"

#include <string.h>

#include "region.h"
#include "transfer.h"

/* Elements [low, high) of a parameter's memory. */
static void pieces_of(const ares_param *p, int64_t low, int64_t high, rectangle_fn *fn, void *ctx)
{
    bool panels = p->weight.layout == ARES_PANEL32;
    int64_t lanes = panels ? 32 : 1, k = p->weight.k, band = lanes * k;
    while (low < high) {
        int64_t row = low / band * lanes, inside = low % band, n;
        if (inside || high - low < band) {
            n = ARES_MIN(high - low, band - inside);
            ARES_ASSERT(inside % lanes == 0 && n % lanes == 0);
            fn(ctx, p, row, ARES_MIN(lanes, p->weight.n - row), inside / lanes, n / lanes,
               p->at + low);
        } else {
            n = (high - low) / band * band;
            fn(ctx, p, row, ARES_MIN(n / k, p->weight.n - row), 0, k, p->at + low);
        }
        low += n;
    }
}

void pieces_of_region(const ares_model *m, int r, int64_t first, int64_t n, rectangle_fn *fn,
                      void *ctx)
{
    for (int i = 0; i < m->n_params; i++) {
        const ares_param *p = &m->params[i];
        if (p->region != r) continue;
        int64_t low = ARES_MAX(first - p->at, 0), high = ARES_MIN(first + n - p->at, p->elements);
        if (low < high) pieces_of(p, low, high, fn, ctx);
    }
}

/* ---------------------------------------------------------------- in this rank's memory */
/* Elements [first, first + n) of a region, which lie at data; NULL: there are none. */
typedef struct stretch {
    int64_t first, n;
    char *data;
    ares_dtype dtype;
} stretch;

static stretch held_weights(const ares_region *r)
{
    if (r->in_parts && !r->weights)
        return (stretch){ r->own_first, r->own, r->host ? r->host : r->own_weights, r->dtype };
    return (stretch){ 0, r->elements, r->host && !r->in_parts ? r->host : r->weights, r->dtype };
}

static stretch held(const ares_model *m, const ares_region *r, piece_kind kind)
{
    char *data = kind == OF_M ? r->m : kind == OF_V ? r->v : r->master;
    if (kind != OF_WEIGHTS && r - m->regions >= m->n_regions) return (stretch){ 0 }; /* frozen */
    /* norms and biases are f32 in memory, though the model's files may round them */
    bool is_weight = kind == OF_MASTER && !data && m->cfg.file_dtype != ARES_F32;
    if (kind == OF_WEIGHTS || is_weight) return held_weights(r);
    return (stretch){ r->own_first, r->own, data, r->states };
}

bool pieces_exist(const ares_model *m, const ares_param *p, piece_kind kind)
{
    return held(m, &m->regions[p->region], kind).data != NULL;
}

/* The rectangle as it lies in a stretch. */
static ares_matrix lying(const stretch *s, const piece *x)
{
    ares_matrix y = { .dtype = s->dtype,
                      .layout = x->p->weight.layout,
                      .n = (int32_t)x->rows,
                      .k = (int32_t)x->columns };
    int64_t n = ares_matrix_elements(y.layout, y.n, y.k);
    ARES_ASSERT(x->at >= s->first && x->at + n <= s->first + s->n);
    y.data = s->data + (size_t)(x->at - s->first) * ares_dtype_bytes(s->dtype);
    return y;
}

ares_matrix pieces_other(const ares_model *other, const piece *x)
{
    stretch s = held_weights(&other->regions[x->p->region]);
    return lying(&s, x);
}

typedef struct visit {
    stretch held;
    piece_fn *fn;
    void *ctx;
    int rc;
} visit;

static void meet(void *ctx, const ares_param *p, int64_t row, int64_t rows, int64_t column,
                 int64_t columns, int64_t at)
{
    visit *v = ctx;
    if (v->rc != ARES_OK) return;
    piece x = { .p = p, .row = row, .rows = rows, .column = column, .columns = columns, .at = at };
    x.memory = lying(&v->held, &x);
    v->rc = v->fn(v->ctx, &x);
}

int pieces_held_of(const ares_model *m, int region, piece_kind kind, piece_fn *fn, void *ctx)
{
    visit v = { .held = held(m, &m->regions[region], kind), .fn = fn, .ctx = ctx };
    if (v.held.data) pieces_of_region(m, region, v.held.first, v.held.n, meet, &v);
    return v.rc;
}

int pieces_held(const ares_model *m, piece_kind kind, piece_fn *fn, void *ctx)
{
    int rc = ARES_OK;
    for (int i = 0; i < regions_count(m) && rc == ARES_OK; i++)
        rc = pieces_held_of(m, i, kind, fn, ctx);
    return rc;
}

/* ---------------------------------------------------------------- what each rank writes */
enum { TURN = 1 << 24 }; /* elements */

/* Of matrices each rank writes an equal run of chunks, of norms and biases rank 0 everything. */
static int64_t share_of(const ares_region *r, int ranks)
{
    int64_t chunks = ares_region_chunks(r);
    return r->decay ? (chunks + ranks - 1) / ranks * ARES_SUM_CHUNK : r->elements;
}

int64_t pieces_turns(const ares_region *r, int ranks)
{
    return (share_of(r, ranks) + TURN - 1) / TURN;
}

/* Which of these runs is rank's: ranks that have the same part of a region write it together. */
static int64_t run_of(const ares_model *m, int rank, int ranks)
{
    int shards = ares_model_shards(m), replicas = ranks / shards;
    return rank % shards * replicas + rank / shards;
}

int pieces_of_turn(const ares_model *m, int region, piece_kind kind, int rank, int ranks,
                   int64_t turn, piece_fn *fn, void *ctx)
{
    const ares_region *r = &m->regions[region];
    visit v = { .held = held(m, r, kind), .fn = fn, .ctx = ctx };
    int64_t share = share_of(r, ranks), run = run_of(m, rank, ranks) * share,
            first = run + turn * TURN,
            end = ARES_MIN(ARES_MIN(run + share, first + TURN), r->elements);
    if (!v.held.data || first >= end) return ARES_OK;
    ARES_ASSERT(first >= v.held.first && end <= v.held.first + v.held.n);
    pieces_of_region(m, region, first, end - first, meet, &v);
    return v.rc;
}

/* ---------------------------------------------------------------- rectangles of whole tensors */
int piece_put(ares_model *m, const piece *x, const void *tensor, ares_dtype dtype)
{
    size_t size = ares_dtype_bytes(dtype), row = (size_t)x->columns * size;
    int64_t k = x->p->weight.k;
    const char *from = (const char *)tensor + (size_t)(x->row * k + x->column) * size;
    if (x->columns == k) return model_put(m, &x->memory, from, dtype);
    char *rows = ares_malloc((size_t)x->rows * row);
    for (int64_t i = 0; i < x->rows; i++)
        memcpy(rows + (size_t)i * row, from + (size_t)(i * k) * size, row);
    int rc = model_put(m, &x->memory, rows, dtype);
    ares_free(rows);
    return rc;
}
