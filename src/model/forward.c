/* The forward and backward over all blocks, and their buffers. */
#include "block.h"
#include "rope_angles.h"

#include "ares/kernels_phases.h"

typedef struct buffer {
    void *data;
    size_t bytes;
} buffer;

/* Arrays that a pass reads: used in place on the CPU, copied to any other device. */
enum {
    IN_IDS,
    IN_SLOTS,
    IN_OUT,
    IN_START,
    IN_PREFIX_LEN,
    IN_PREFIX_ROW,
    IN_TABLE,
    IN_COS_SIN,
    IN_KEY_START,
    IN_KEY_ROW,
    INPUTS
};

struct ares_workspace {
    ares_model *model;
    ares_keep keep;
    int32_t rows, n_out; /* capacity of the buffers */
    int n_saved;         /* 1, or one per layer */
    block_saved *saved;  /* [n_saved] */
    void **x; /* [layers + 1]: the residual stream before each block and after the last */
    block_scratch scratch;
    void *dx, *out, *hidden, *d_out;
    float *out_rstd;
    ares_held pass, tail; /* by rows, by n_out */
    buffer input[INPUTS];
    float *cos_sin; /* host, [rows][head_dim] */
    int32_t cos_sin_rows;
    int32_t *keys; /* host: key_start, then key_row of a packed pass */
    int64_t keys_cap;
    block_pass last;
    const int32_t *last_ids, *last_out;
};

int ares_workspace_new(ares_model *m, ares_keep keep, ares_workspace **out)
{
    ares_workspace *w = ares_calloc(1, sizeof *w);
    w->model = m;
    w->keep = keep;
    w->n_saved = keep == ARES_KEEP_ALL ? m->cfg.layers : 1;
    w->saved = ares_calloc((size_t)w->n_saved, sizeof *w->saved);
    w->x = ares_calloc((size_t)m->cfg.layers + 1, sizeof *w->x);
    *out = w;
    return ARES_OK;
}

void ares_workspace_free(ares_workspace *w)
{
    if (!w) return;
    ares_device *d = w->model->device;
    ares_phase_give_back(d, &w->pass);
    ares_phase_give_back(d, &w->tail);
    for (int i = 0; i < INPUTS; i++) d->k->release(d, w->input[i].data, w->input[i].bytes);
    ares_free(w->cos_sin);
    ares_free(w->keys);
    ares_free(w->saved);
    ares_free(w->x);
    ares_free(w);
}

size_t ares_workspace_bytes(const ares_workspace *w)
{
    return w->pass.bytes + w->tail.bytes;
}

/* Hands out consecutive pieces of one allocation; where base is NULL it only counts bytes. */
typedef struct carver {
    char *base;
    size_t at;
    ares_dtype act;
} carver;

static void *carve_bytes(carver *c, int64_t rows, int64_t width, size_t each)
{
    void *p = c->base ? c->base + c->at : NULL;
    c->at += ((size_t)(rows * width) * each + 63) / 64 * 64;
    return p;
}
static float *carve_floats(carver *c, int64_t rows, int64_t width)
{
    return carve_bytes(c, rows, width, sizeof(float));
}
static void *carve(carver *c, int64_t rows, int64_t width) /* activations */
{
    return carve_bytes(c, rows, width, ares_dtype_bytes(c->act));
}

/* stream: the residual stream, which a pass without backward overwrites in place. */
static void carve_saved(carver *v, const ares_model_config *c, ares_keep keep, int32_t rows,
                        void *stream, block_saved *s)
{
    int64_t q = (int64_t)c->heads * c->head_dim, k = (int64_t)c->kv_heads * c->head_dim;
    bool back = keep != ARES_KEEP_NOTHING;
    s->rstd_in = back ? carve_floats(v, rows, 1) : NULL;
    s->qkv = carve(v, rows, q + 2 * k);
    if (c->qk_norm && back) {
        s->qk_raw = carve(v, rows, q + k);
        s->q_rstd = carve_floats(v, rows, c->heads);
        s->k_rstd = carve_floats(v, rows, c->kv_heads);
    }
    s->attn = carve(v, rows, q);
    s->lse = back ? carve_floats(v, rows, c->heads) : NULL;
    s->x_mid = back ? carve(v, rows, c->hidden) : stream;
    s->rstd_mid = back ? carve_floats(v, rows, 1) : NULL;
    s->gate_up = carve(v, rows, 2 * (int64_t)c->intermediate);
}

static size_t carve_pass(ares_workspace *w, char *base, int32_t rows)
{
    const ares_model_config *c = &w->model->cfg;
    int64_t q = (int64_t)c->heads * c->head_dim, k = (int64_t)c->kv_heads * c->head_dim,
            qkv = q + 2 * k, gate_up = 2 * (int64_t)c->intermediate;
    carver v = { base, 0, w->model->device->k->act };
    block_scratch *t = &w->scratch;
    w->x[0] = carve(&v, rows, c->hidden);
    for (int32_t i = 1; i <= c->layers; i++)
        w->x[i] = w->keep == ARES_KEEP_NOTHING ? w->x[0] : carve(&v, rows, c->hidden);
    for (int i = 0; i < w->n_saved; i++) carve_saved(&v, c, w->keep, rows, w->x[0], &w->saved[i]);
    t->h = carve(&v, rows, c->hidden);
    t->act = carve(&v, rows, c->intermediate);
    if (w->model->tp) {
        const ares_model_layer *l = &w->model->layer[0];
        t->all = carve(&v, rows, ARES_MAX(l->o.w->weight.k, l->down.w->weight.k));
        t->part = carve(&v, rows, l->o.w->weight.n);
    }
    if (w->keep == ARES_KEEP_NOTHING) return v.at;
    t->d_h = carve(&v, rows, c->hidden);
    t->d_act = carve(&v, rows, c->intermediate);
    t->d_gate_up = carve(&v, rows, c->qk_norm ? ARES_MAX(gate_up, qkv) : gate_up);
    t->d_qk = c->qk_norm ? t->d_gate_up : NULL; /* it is free when attention's backward begins */
    t->d_attn = carve(&v, rows, q);
    t->d_qkv = carve(&v, rows, qkv);
    w->dx = carve(&v, rows, c->hidden);
    return v.at;
}

static size_t carve_tail(ares_workspace *w, char *base, int32_t n_out)
{
    carver v = { base, 0, w->model->device->k->act };
    int32_t hidden = w->model->cfg.hidden;
    w->out = carve(&v, n_out, hidden);
    w->hidden = carve(&v, n_out, hidden);
    w->out_rstd = carve_floats(&v, n_out, 1);
    if (w->keep != ARES_KEEP_NOTHING) w->d_out = carve(&v, n_out, hidden);
    return v.at;
}

static int does_not_fit(size_t bytes)
{
    return ares_fail(ARES_ELIMIT,
                     "model: %.2f GiB of activations do not fit on the device; lower the tokens of "
                     "a micro-batch",
                     (double)bytes / 1073741824.0);
}

static int ensure(ares_device *d, buffer *b, size_t bytes)
{
    if (b->bytes >= bytes) return ARES_OK;
    d->k->release(d, b->data, b->bytes);
    b->data = d->k->alloc(d, bytes);
    b->bytes = b->data ? bytes : 0;
    return b->data ? ARES_OK : does_not_fit(bytes);
}

/*
 * Memory for `wanted` rows, or for as many as before where the phase has changed. Only what a
 * backward reads shares memory with the rollout's cache. *have, the capacity, is 0 while the buffer
 * grows, so that after a failure a smaller pass asks for memory again, too.
 */
static int fit(ares_workspace *w, ares_held *h, int32_t wanted, int32_t *have,
               size_t (*carve_all)(ares_workspace *, char *, int32_t))
{
    ares_device *d = w->model->device;
    if (wanted <= *have && (*have == 0 || ares_phase_holds(d, h))) return ARES_OK;
    int32_t rows = (ARES_MAX(wanted, *have) + 63) / 64 * 64;
    size_t bytes = carve_all(w, NULL, rows);
    *have = 0;
    if (w->keep != ARES_KEEP_NOTHING) (void)ares_phase_take(d, ARES_PHASE_TRAIN, h, bytes);
    else if (h->bytes < bytes) {
        ares_phase_give_back(d, h);
        *h = (ares_held){ d->k->alloc(d, bytes), bytes, 0 };
    }
    if (!h->data) {
        *h = (ares_held){ 0 };
        return does_not_fit(bytes);
    }
    carve_all(w, h->data, rows);
    *have = rows;
    return ARES_OK;
}

int ares_workspace_reserve(ares_workspace *w, int32_t rows, int32_t n_out)
{
    ARES_TRY(fit(w, &w->pass, rows, &w->rows, carve_pass));
    return fit(w, &w->tail, n_out, &w->n_out, carve_tail);
}

static int upload(ares_workspace *w, int which, const void *host, size_t bytes, const void **out)
{
    ares_device *d = w->model->device;
    *out = host;
    if (d->index < 0 || !host || !bytes) return ARES_OK;
    ARES_TRY(ensure(d, &w->input[which], bytes));
    d->k->copy_in(d, w->input[which].data, host, bytes);
    *out = w->input[which].data;
    return ARES_OK;
}

/*
 * Only under dynamic scaling do rotations depend on the length of the sequence; a prompt that
 * samples share, or a sample that still grows, has no such length.
 */
int ares_model_check_length(const ares_model *m, int32_t length)
{
    const ares_model_config *c = &m->cfg;
    if (c->rope.kind != ARES_ROPE_DYNAMIC || length <= c->max_position) return ARES_OK;
    return ares_fail(ARES_EUNSUPPORTED,
                     "model: %d tokens: dynamic rope scaling changes the rotation of every token "
                     "as a sequence grows beyond max_position_embeddings = %d; "
                     "generate shorter sequences, or set rope_type to yarn or linear",
                     length, c->max_position);
}

void ares_model_angles(const ares_model *m, int32_t n, float *angles)
{
    for (int32_t i = 0; i < n; i++) rope_row(m, i, 0, angles + (int64_t)i * m->cfg.head_dim);
}

static int fill_cos_sin(ares_workspace *w, const ares_packed *p)
{
    const ares_model_config *c = &w->model->cfg;
    if (p->rows > w->cos_sin_rows) {
        ares_free(w->cos_sin);
        w->cos_sin_rows = (p->rows + 63) / 64 * 64;
        w->cos_sin = ares_malloc((size_t)w->cos_sin_rows * (size_t)c->head_dim * sizeof(float));
    }
    for (int32_t s = 0; s < p->seg.n; s++) {
        int32_t prefix = p->seg.prefix_len ? p->seg.prefix_len[s] : 0,
                length = p->length ? p->length[s] : prefix + p->seg.start[s + 1] - p->seg.start[s];
        if (prefix || p->cache) ARES_TRY(ares_model_check_length(w->model, length));
        for (int32_t r = p->seg.start[s]; r < p->seg.start[s + 1]; r++)
            rope_row(w->model, p->positions[r], length, w->cos_sin + (int64_t)r * c->head_dim);
    }
    return ARES_OK;
}

/* What the host knows of the segments, and for a packed pass, where asked, a list of their keys. */
static int begin_segments(ares_workspace *w, const ares_packed *p, ares_segments *seg)
{
    size_t i32 = sizeof(int32_t), n = (size_t)p->seg.n;
    *seg = p->seg;
    ares_segments_measure(seg);
    if (!p->cache && w->model->device->k->lists_keys) {
        int64_t wanted = (int64_t)n + 1 + seg->keys;
        if (wanted > w->keys_cap) {
            ares_free(w->keys);
            w->keys_cap = wanted + wanted / 4;
            w->keys = ares_malloc((size_t)w->keys_cap * i32);
        }
        ares_segments_list_keys(seg, w->keys, w->keys + n + 1);
        ARES_TRY(upload(w, IN_KEY_START, w->keys, (n + 1) * i32, (const void **)&seg->key_start));
        ARES_TRY(upload(w, IN_KEY_ROW, w->keys + n + 1, (size_t)seg->keys * i32,
                        (const void **)&seg->key_row));
    }
    ARES_TRY(upload(w, IN_START, seg->start, (n + 1) * i32, (const void **)&seg->start));
    ARES_TRY(upload(w, IN_PREFIX_LEN, seg->prefix_len, n * i32, (const void **)&seg->prefix_len));
    ARES_TRY(upload(w, IN_PREFIX_ROW, seg->prefix_row, n * i32, (const void **)&seg->prefix_row));
    return upload(w, IN_TABLE, seg->block_table, n * (size_t)seg->table_stride * i32,
                  (const void **)&seg->block_table);
}

static int begin(ares_workspace *w, const ares_packed *p)
{
    size_t i32 = sizeof(int32_t);
    block_pass *b = &w->last;
    ARES_TRY(ares_workspace_reserve(w, p->rows, p->n_out));
    ARES_TRY(fill_cos_sin(w, p));
    *b = (block_pass){ .rows = p->rows };
    ARES_TRY(begin_segments(w, p, &b->seg));
    ARES_TRY(upload(w, IN_IDS, p->ids, (size_t)p->rows * i32, (const void **)&w->last_ids));
    ARES_TRY(upload(w, IN_OUT, p->out_rows, (size_t)p->n_out * i32, (const void **)&w->last_out));
    ARES_TRY(upload(w, IN_SLOTS, p->slots, (size_t)p->rows * i32, (const void **)&b->slots));
    return upload(w, IN_COS_SIN, w->cos_sin,
                  (size_t)p->rows * (size_t)w->model->cfg.head_dim * sizeof(float),
                  (const void **)&b->cos_sin);
}

static const block_saved *saved_of(ares_workspace *w, int32_t layer)
{
    block_saved *s = &w->saved[w->n_saved > 1 ? layer : 0];
    s->x_in = w->x[layer];
    return s;
}

/* The pass over w->last; *hidden [n_out][hidden]. */
static void run(ares_model *m, ares_workspace *w, const ares_packed *p, void **hidden)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    int32_t width = m->cfg.hidden;
    k->embedding(d, &m->embed->weight, w->last_ids, p->rows, w->x[0], width);
    for (int32_t i = 0; i < m->cfg.layers; i++) {
        w->last.cache = p->cache ? (char *)p->cache + i * p->cache_layer_bytes : NULL;
        block_forward(m, i, &w->last, saved_of(w, i), &w->scratch, w->x[i + 1]);
    }
    ares_matrix stream = { w->x[m->cfg.layers], k->act, ARES_ROWS, p->rows, width };
    /* the look-up of an embedding also gathers rows */
    k->embedding(d, &stream, w->last_out, p->n_out, w->out, width);
    ares_rms_norm_args norm = { .rows = p->n_out,
                                .k = width,
                                .x = w->out,
                                .ldx = width,
                                .w = m->final_norm->weight.data,
                                .eps = m->cfg.rms_norm_eps,
                                .y = w->hidden,
                                .ldy = width,
                                .rstd = w->out_rstd };
    k->rms_norm(d, &norm);
    *hidden = w->hidden;
}

int ares_model_forward(ares_model *m, ares_workspace *w, const ares_packed *p, void **hidden)
{
    ARES_ASSERT(w->model == m && p->rows > 0);
    ARES_TRY(begin(w, p));
    run(m, w, p, hidden);
    return ARES_OK;
}

int ares_model_launch(ares_model *m, ares_workspace *w, const ares_packed *p, const float *cos_sin,
                      void **hidden)
{
    ARES_ASSERT(w->model == m && p->rows > 0 && p->cache);
    ARES_TRY(ares_workspace_reserve(w, p->rows, p->n_out));
    w->last = (block_pass){ .rows = p->rows, .seg = p->seg, .cos_sin = cos_sin, .slots = p->slots };
    w->last_ids = p->ids;
    w->last_out = p->out_rows;
    run(m, w, p, hidden);
    return ARES_OK;
}

int ares_model_backward(ares_model *m, ares_workspace *w, const ares_packed *p,
                        const void *d_hidden)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    int32_t width = m->cfg.hidden;
    size_t row = (size_t)width * ares_dtype_bytes(k->act);
    ARES_ASSERT(w->keep != ARES_KEEP_NOTHING && w->last.rows == p->rows && !p->cache && m->grads);
    k->zero(d, w->d_out, (size_t)p->n_out * row);
    ares_rms_norm_args norm = { .rows = p->n_out,
                                .k = width,
                                .x = w->out,
                                .ldx = width,
                                .w = m->final_norm->weight.data,
                                .rstd = w->out_rstd,
                                .dy = d_hidden,
                                .lddy = width,
                                .dx = w->d_out,
                                .lddx = width,
                                .dw = m->final_norm->grad.data };
    k->rms_norm_backward(d, &norm);
    k->zero(d, w->dx, (size_t)p->rows * row);
    ares_matrix stream = { w->dx, k->act, ARES_ROWS, p->rows, width };
    k->embedding_backward(d, &stream, w->last_out, p->n_out, w->d_out, width);
    for (int32_t i = m->cfg.layers - 1; i >= 0; i--) {
        const block_saved *s = saved_of(w, i);
        /* the same arithmetic, so the same bits; d_h only takes the output, which is not used */
        if (w->keep == ARES_KEEP_INPUTS)
            block_forward(m, i, &w->last, s, &w->scratch, w->scratch.d_h);
        block_backward(m, i, &w->last, s, &w->scratch, w->dx);
    }
    k->embedding_backward(d, &m->embed_grad, w->last_ids, p->rows, w->dx, width);
    return k->sync(d);
}
