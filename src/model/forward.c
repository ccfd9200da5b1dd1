/* The forward and backward over all blocks, and their buffers. */
#include "internal.h"

#include <math.h>

#include "ares/kernels.h"

enum {
    INPUT_ALIGN = 256,
    /* rows move only where one of so many, at least, needs no backward: else it costs more */
    WORTH_MOVING = 16
};

/* Consecutive rows that a backward visits: rows [from, from + n) have moved to row `to`. */
typedef struct visited {
    int32_t from, n, to;
} visited;

/* A micro-batch of a round. */
typedef struct micro {
    block_pass pass;
    const int32_t *ids, *out; /* device */
    const float *features;    /* device */
    int32_t n_out;
    int64_t row, out_row; /* where its rows begin among those of the round */
    int64_t keys;         /* where its list of keys begins */
    visited all;        /* of a backward: every row, where it lies, unless leave_out found others */
    const visited *run; /* [n_runs] ascending */
    int32_t n_runs;
} micro;

/*
 * A pass is a round of micro-batches, often of one: block after block, each over all of them, so
 * that a block's weights are needed once. The residual stream before each block is kept for all
 * micro-batches; everything else is of the micro-batch at hand.
 */
struct ares_workspace {
    ares_model *model;
    ares_keep keep;
    int64_t rows, n_out, stream_rows; /* capacity of the buffers */
    int n_saved;                      /* 1, or one per layer */
    block_saved *saved;               /* [n_saved] */
    void **x; /* [layers + 1]: the residual stream before each block and after the last */
    block_scratch scratch;
    void *out, *hidden, *d_out;
    float *out_rstd;
    int32_t rank;                 /* of the largest adapter that passes may name; 0: none */
    void *head_u, *head_du;       /* [n_out][rank], of an adapted head */
    ares_held pass, stream, tail; /* by rows of a micro-batch, by rows and by n_out of a round */
    void *inputs;                 /* what a pass reads, on any device but the CPU */
    size_t inputs_bytes, inputs_used;
    float *cos_sin[ARES_ROPES]; /* host, [rows of a round][head_dim] */
    int64_t cos_sin_rows;
    int32_t *keys; /* host, of each packed micro-batch: key_start, then key_row */
    int64_t keys_cap;
    micro *micro; /* [n_micro]: the latest round */
    int n_micro, micro_cap;
    bool skip_zero; /* backward passes leave out rows */
    ares_backward_rows counted;
    /* of passes for a backward: how often each expert was chosen, [layers][experts], and the sum of
     * the choices' entropies in units of 2^-32, which no order of rows changes */
    int64_t *routed, routed_rows, entropy;
    ares_arena left; /* of a backward: the rows that are left of its micro-batches */
};

int ares_workspace_new(ares_model *m, ares_keep keep, ares_workspace **out)
{
    ares_workspace *w = ares_calloc(1, sizeof *w);
    w->model = m;
    w->keep = keep;
    w->n_saved = keep == ARES_KEEP_ALL ? m->cfg.layers : 1;
    w->saved = ares_calloc((size_t)w->n_saved, sizeof *w->saved);
    w->x = ares_calloc((size_t)m->cfg.layers + 1, sizeof *w->x);
    size_t experts = (size_t)m->cfg.experts;
    if (experts) {
        w->scratch.products = ares_calloc(2 * experts, sizeof *w->scratch.products);
        w->scratch.gradients = ares_calloc(2 * experts, sizeof *w->scratch.gradients);
        w->scratch.both = ares_calloc(2 * experts, sizeof *w->scratch.both);
        w->routed = ares_calloc((size_t)m->cfg.layers * experts, sizeof *w->routed);
    }
    *out = w;
    return ARES_OK;
}

void ares_workspace_free(ares_workspace *w)
{
    if (!w) return;
    ares_device *d = w->model->device;
    ares_phase_give_back(d, &w->pass);
    ares_phase_give_back(d, &w->stream);
    ares_phase_give_back(d, &w->tail);
    d->k->release(d, w->inputs, w->inputs_bytes);
    ares_free(w->micro);
    ares_arena_fini(&w->left);
    for (int k = 0; k < ARES_ROPES; k++) ares_free(w->cos_sin[k]);
    ares_free(w->keys);
    ares_free(w->saved);
    ares_free(w->scratch.products);
    ares_free(w->scratch.gradients);
    ares_free(w->scratch.both);
    ares_free(w->routed);
    ares_free(w->x);
    ares_free(w);
}

bool ares_workspace_adapt(ares_workspace *w, int32_t rank)
{
    if (rank <= w->rank) return false;
    w->rank = rank;
    if (!ares_workspace_bytes(w)) return false;
    w->rows = w->n_out = 0; /* what is there is too small */
    return true;
}

size_t ares_workspace_bytes(const ares_workspace *w)
{
    return w->pass.bytes + w->stream.bytes + w->tail.bytes;
}

/*
 * What a block keeps beside its input: X(name, type, numbers of a row), 0: nothing. Without a
 * backward x_mid is the stream, in place.
 */
#define SAVED_PARTS(X)                          \
    X(rstd_in, floats, n.before_attention)      \
    X(qkv, acts, n.q + 2 * n.kv)                \
    X(qk_raw, acts, n.q_norms ? n.q + n.kv : 0) \
    X(q_rstd, floats, n.q_norms)                \
    X(k_rstd, floats, n.k_norms)                \
    X(attn, acts, n.q)                          \
    X(lse, floats, n.heads)                     \
    X(o_out, acts, n.after_attention *n.hidden) \
    X(rstd_o, floats, n.after_attention)        \
    X(x_mid, acts, n.hidden)                    \
    X(rstd_mid, floats, n.before_mlp)           \
    X(gate_up, acts, n.gate_up)                 \
    X(down_out, acts, n.after_mlp *n.hidden)    \
    X(rstd_down, floats, n.after_mlp)           \
    X(logits, acts, n.experts)                  \
    X(expert, ints, n.used)                     \
    X(weight, floats, n.used)                   \
    X(slot_of, ints, n.used)                    \
    X(row_of, ints, n.used)                     \
    X(q_gate, acts, n.q_gate)                   \
    X(mixed, acts, n.mixed)                     \
    X(z, acts, n.values)                        \
    X(ba, acts, 2 * n.net_heads)                \
    X(net_o, floats, n.values)                  \
    X(net_rstd, floats, n.net_norms)

/* Numbers of a row; those that only a backward reads are 0 without one. */
typedef struct saved_widths {
    int64_t q, kv, gate_up, experts, used;                            /* in any pass */
    int64_t q_gate, mixed, values, net_heads;                         /* the same */
    int64_t heads, hidden, q_norms, k_norms, net_norms;               /* for a backward */
    int64_t before_attention, after_attention, before_mlp, after_mlp; /* 1: there is such a norm */
} saved_widths;

/* What a row has inside its MLP, or inside all of its experts. */
static int64_t mlp_width(const ares_model_config *c)
{
    return ARES_MAX((int64_t)c->intermediate, (int64_t)c->experts_used * c->expert_width);
}

/* What kinds of layers there are among those that buffers are for. */
enum { OF_ATTENTION = 1, OF_NETS = 2 };
static int kinds_of(const ares_model_config *c, int32_t first, int32_t end)
{
    int kinds = 0;
    for (int32_t i = first; i < end; i++) kinds |= model_has_net(c, i) ? OF_NETS : OF_ATTENTION;
    return kinds;
}

static saved_widths saved_widths_of(const ares_model_config *c, int kinds, bool back)
{
    const char *const *norms = model_norm_names(c);
    bool attends = kinds & OF_ATTENTION;
    saved_widths n = { .gate_up = 2 * mlp_width(c),
                       .experts = c->experts,
                       .used = c->experts_used };
    if (attends) {
        n.q = (int64_t)c->heads * c->head_dim;
        n.kv = (int64_t)c->kv_heads * c->head_dim;
        n.q_gate = c->attention_gate ? 2 * n.q : 0;
    }
    if (kinds & OF_NETS) {
        n.mixed = net_width(c);
        n.values = (int64_t)c->net.v_heads * c->net.v_dim;
        n.net_heads = c->net.v_heads;
    }
    if (!back) return n;
    n.hidden = c->hidden;
    n.net_norms = n.net_heads;
    if (attends) n.heads = c->heads;
    if (attends && c->qk_norm) n.q_norms = n.k_norms = 1;
    if (attends && c->qk_norm == ARES_QK_NORM_HEADS) n.q_norms = c->heads, n.k_norms = c->kv_heads;
    n.before_attention = norms[ARES_BEFORE_ATTENTION] != NULL;
    n.after_attention = norms[ARES_AFTER_ATTENTION] != NULL;
    n.before_mlp = norms[ARES_BEFORE_MLP] != NULL;
    n.after_mlp = norms[ARES_AFTER_MLP] != NULL;
    return n;
}

static void carve_saved(carver *v, const ares_model_config *c, int kinds, ares_keep keep,
                        int64_t rows, block_saved *s)
{
    bool back = keep != ARES_KEEP_NOTHING;
    const saved_widths n = saved_widths_of(c, kinds, back);
#define carve_acts carve
#define carve_ints(v, rows, width) carve_bytes(v, rows, width, sizeof(int32_t))
#define CARVE(name, type, width) s->name = (width) > 0 ? carve_##type(v, rows, width) : NULL;
    SAVED_PARTS(CARVE)
#undef CARVE
#undef carve_ints
#undef carve_acts
    if (n.experts) s->first = carve_bytes(v, 1, n.experts + 1, sizeof(int32_t));
    s->kept = back && n.values ? carve_floats(v, rows / ARES_DELTA_KEPT, ares_net_state(c)) : NULL;
}

static size_t carve_pass(ares_workspace *w, char *base, int64_t rows)
{
    const ares_model_config *c = &w->model->cfg;
    int64_t q = (int64_t)c->heads * c->head_dim, k = (int64_t)c->kv_heads * c->head_dim,
            qkv = q + 2 * k, wide = mlp_width(c), gate_up = 2 * wide, used = c->experts_used;
    carver v = { base, 0, w->model->device->k->act };
    block_scratch *t = &w->scratch;
    bool nets = c->net.v_heads > 0, gates = nets || c->attention_gate;
    int64_t values = (int64_t)c->net.v_heads * c->net.v_dim, mixed = nets ? net_width(c) : 0;
    for (int32_t i = 0; i < w->n_saved; i++) {
        int kinds = kinds_of(c, i, w->n_saved > 1 ? i + 1 : c->layers);
        carve_saved(&v, c, kinds, w->keep, rows, &w->saved[i]);
    }
    t->gated = gates ? carve(&v, rows, ARES_MAX(q, values)) : NULL;
    if (nets) {
        t->conv = carve_floats(&v, rows, mixed);
        t->normed = carve_floats(&v, rows, values);
        t->gates = carve_floats(&v, rows, 2 * c->net.v_heads);
        t->norms = carve_floats(&v, rows, 2 * c->net.k_heads);
    }
    t->h = carve(&v, rows, c->hidden);
    t->act = carve(&v, rows, wide);
    if (used) {
        t->packed = carve(&v, rows, used * c->hidden);
        t->out = carve(&v, rows, used * c->hidden);
    }
    t->rank = w->rank;
    t->u = w->rank ? carve(&v, 3 * rows, w->rank) : NULL;
    if (w->model->tp) {
        const ares_model_layer *l = &w->model->layer[0];
        t->all = carve(&v, rows, ARES_MAX(l->o.w->weight.k, l->down.w->weight.k));
        t->part = carve(&v, rows, l->o.w->weight.n);
        t->qk = c->qk_norm == ARES_QK_NORM_ROW ? carve(&v, rows, q + k) : NULL;
    }
    if (w->keep == ARES_KEEP_NOTHING) return v.at;
    t->d_h = carve(&v, rows, c->hidden);
    t->d_act = carve(&v, rows, wide);
    if (used) {
        t->c = carve_floats(&v, rows, used);
        t->d_logits = carve(&v, rows, c->experts);
        t->entropy = carve_floats(&v, rows, 1);
    }
    t->d_gate_up = carve(&v, rows, c->qk_norm ? ARES_MAX(gate_up, qkv) : gate_up);
    t->d_qk = c->qk_norm ? t->d_gate_up : NULL; /* it is free when attention's backward begins */
    t->d_attn = carve(&v, rows, ARES_MAX(q, values));
    t->d_q_gate = c->attention_gate ? carve(&v, rows, 2 * q) : NULL;
    if (nets) {
        t->d_z = carve(&v, rows, values);
        t->d_ba = carve(&v, rows, 2 * c->net.v_heads);
        t->d_conv = carve_floats(&v, rows, mixed);
        t->d_net_o = carve_floats(&v, rows, values);
    }
    t->d_qkv = carve(&v, rows, qkv);
    t->du = w->rank ? carve(&v, rows, w->rank) : NULL;
    return v.at;
}

/* Memory alone: a pass divides it by the blocks whose inputs it keeps. */
static size_t carve_stream(ares_workspace *w, char *base, int64_t rows)
{
    carver v = { base, 0, w->model->device->k->act };
    w->x[0] = carve(&v, rows, w->model->cfg.hidden);
    return v.at;
}

static size_t carve_tail(ares_workspace *w, char *base, int64_t n_out)
{
    carver v = { base, 0, w->model->device->k->act };
    int32_t hidden = w->model->cfg.hidden;
    w->out = carve(&v, n_out, hidden);
    w->hidden = carve(&v, n_out, hidden);
    w->out_rstd = carve_floats(&v, n_out, 1);
    w->head_u = w->rank ? carve(&v, n_out, w->rank) : NULL;
    if (w->keep == ARES_KEEP_NOTHING) return v.at;
    w->d_out = carve(&v, n_out, hidden);
    w->head_du = w->rank ? carve(&v, n_out, w->rank) : NULL;
    return v.at;
}

/* Bytes of a row of the residual stream. */
static size_t row_bytes(const ares_workspace *w)
{
    return (size_t)w->model->cfg.hidden * ares_dtype_bytes(w->model->device->k->act);
}

static int does_not_fit(const ares_device *d, size_t bytes)
{
    return ares_device_full(d, "model", "activations", bytes, false,
                            "lower the tokens of a micro-batch");
}
/* Each micro-batch begins where a pass of its own would be aligned. */
static int64_t aligned_rows(int64_t rows)
{
    return (rows + 63) / 64 * 64;
}

/*
 * Memory for `wanted` rows, or for as many as before where the phase has changed. Only what a
 * backward reads shares memory with the rollout's cache. *have, the capacity, is 0 while the buffer
 * grows, so that after a failure a smaller pass asks for memory again, too.
 */
static int fit(ares_workspace *w, ares_held *h, int64_t wanted, int64_t *have,
               size_t (*carve_all)(ares_workspace *, char *, int64_t))
{
    ares_device *d = w->model->device;
    if (wanted <= *have && (*have == 0 || ares_phase_holds(d, h))) return ARES_OK;
    int64_t rows = aligned_rows(ARES_MAX(wanted, *have));
    size_t bytes = carve_all(w, NULL, rows);
    *have = 0;
    if (w->keep != ARES_KEEP_NOTHING) (void)ares_phase_take(d, ARES_PHASE_TRAIN, h, bytes);
    else if (h->bytes < bytes) {
        ares_phase_give_back(d, h);
        *h = (ares_held){ d->k->alloc(d, bytes), bytes, 0 };
    }
    if (!h->data) {
        *h = (ares_held){ 0 };
        return does_not_fit(d, bytes);
    }
    carve_all(w, h->data, rows);
    *have = rows;
    return ARES_OK;
}

/* Memory for a micro-batch of `most` rows, and for all rows and outputs of a round. */
static int fit_round(ares_workspace *w, int64_t most, int64_t rows, int64_t n_out, bool keep)
{
    int32_t layers = w->model->cfg.layers;
    ARES_TRY(fit(w, &w->pass, most, &w->rows, carve_pass));
    ARES_TRY(fit(w, &w->stream, keep ? rows * (layers + 1) : rows, &w->stream_rows, carve_stream));
    for (int32_t i = 1; i <= layers; i++)
        w->x[i] = keep ? (char *)w->x[i - 1] + (size_t)rows * row_bytes(w) : w->x[0];
    return fit(w, &w->tail, n_out, &w->n_out, carve_tail);
}

/* The number of micro-batches, their places, and memory for their rows. keep: for a backward */
static int reserve(ares_workspace *w, const ares_packed *p, int n, bool keep)
{
    int32_t most = 0;
    int64_t rows = 0, n_out = 0;
    if (n > w->micro_cap) {
        w->micro_cap = n;
        w->micro = ares_realloc(w->micro, (size_t)n * sizeof *w->micro);
    }
    w->n_micro = n;
    for (int i = 0; i < n; i++) {
        w->micro[i] = (micro){
            .pass = { .rows = p[i].rows, .adapted = p[i].adapted, .n_adapted = p[i].n_adapted },
            .n_out = p[i].n_out,
            .row = rows,
            .out_row = n_out
        };
        most = ARES_MAX(most, p[i].rows);
        rows += aligned_rows(p[i].rows);
        n_out += aligned_rows(p[i].n_out);
    }
    return fit_round(w, most, rows, n_out, keep);
}

size_t ares_workspace_expect(ares_workspace *w, int32_t rows, int32_t n_out, int n, bool keep)
{
    int64_t all = aligned_rows(rows) * n, streams = keep ? w->model->cfg.layers + 1 : 1;
    ARES_ASSERT(w->keep != ARES_KEEP_NOTHING && !ares_workspace_bytes(w));
    w->rows = ARES_MAX(w->rows, aligned_rows(rows));
    w->stream_rows = ARES_MAX(w->stream_rows, all * streams);
    w->n_out = ARES_MAX(w->n_out, aligned_rows(n_out) * n);
    return ares_phase_size(carve_pass(w, NULL, w->rows)) +
           ares_phase_size(carve_stream(w, NULL, w->stream_rows)) +
           ares_phase_size(carve_tail(w, NULL, w->n_out));
}

void ares_workspace_forget(ares_workspace *w)
{
    ARES_ASSERT(!ares_workspace_bytes(w));
    w->rows = w->stream_rows = w->n_out = 0;
}

int ares_workspace_reserve(ares_workspace *w, int32_t rows, int32_t n_out, int n, bool keep)
{
    return fit_round(w, rows, aligned_rows(rows) * n, aligned_rows(n_out) * n,
                     keep && w->keep != ARES_KEEP_NOTHING);
}

/*
 * Only under dynamic scaling do rotations depend on the length of the sequence; a prompt that
 * samples share, or a sample that still grows, has no such length.
 */
int ares_model_check_length(const ares_model *m, int32_t length)
{
    const ares_model_config *c = &m->cfg;
    bool dynamic = c->rope.kind == ARES_ROPE_DYNAMIC;
    if (m->rope[1]) dynamic |= c->rope_local.kind == ARES_ROPE_DYNAMIC;
    if (!dynamic || length <= c->max_position) return ARES_OK;
    return ares_fail(ARES_EUNSUPPORTED,
                     "model: %d tokens: dynamic rope scaling changes the rotation of every token "
                     "as a sequence grows beyond max_position_embeddings = %d; "
                     "generate shorter sequences, or set rope_type to yarn or linear",
                     length, c->max_position);
}

/* Numbers of a row of angles. */
static int32_t turned(const ares_model_config *c)
{
    return c->turned ? c->turned : c->head_dim;
}

int ares_model_ropes(const ares_model *m)
{
    return m->rope[1] ? 2 : 1;
}

void ares_model_angles(const ares_model *m, int rope, int32_t n, float *angles)
{
    for (int32_t i = 0; i < n; i++)
        rope_row(m->rope[rope], i, 0, angles + (int64_t)i * turned(&m->cfg));
}

/* Rotary angles of a micro-batch, in host memory. */
static int fill_cos_sin(ares_workspace *w, const ares_packed *p, const micro *u)
{
    const ares_model_config *c = &w->model->cfg;
    for (int32_t s = 0; s < p->seg.n; s++) {
        int32_t prefix = p->seg.prefix_len ? p->seg.prefix_len[s] : 0,
                length = p->length ? p->length[s] : prefix + p->seg.start[s + 1] - p->seg.start[s];
        if (prefix || p->cache) ARES_TRY(ares_model_check_length(w->model, length));
        for (int32_t r = p->seg.start[s]; r < p->seg.start[s + 1]; r++) {
            int32_t t = p->positions[r];
            const int32_t axes[] = { t, p->positions_h ? p->positions_h[r] : t,
                                     p->positions_w ? p->positions_w[r] : t };
            for (int k = 0; k < ares_model_ropes(w->model); k++)
                rope_row_of_three(w->model->rope[k], axes, length,
                                  w->cos_sin[k] + (u->row + r) * turned(c));
        }
    }
    return ARES_OK;
}

static bool lists_keys(const ares_workspace *w, const ares_packed *p)
{
    return !p->cache && w->model->device->k->lists_keys;
}

/* What the host computes of all micro-batches: angles and, for devices that read them, key lists.
 */
static int begin_on_host(ares_workspace *w, const ares_packed *p)
{
    int64_t rows = 0, keys = 0;
    for (int i = 0; i < w->n_micro; i++) {
        micro *u = &w->micro[i];
        u->pass.seg = p[i].seg;
        ares_segments_measure(&u->pass.seg);
        u->keys = keys;
        if (lists_keys(w, &p[i])) keys += u->pass.seg.n + 1 + u->pass.seg.keys;
        rows = u->row + p[i].rows;
    }
    if (rows > w->cos_sin_rows) {
        w->cos_sin_rows = aligned_rows(rows);
        for (int k = 0; k < ares_model_ropes(w->model); k++) {
            ares_free(w->cos_sin[k]);
            w->cos_sin[k] = ares_malloc((size_t)(w->cos_sin_rows * turned(&w->model->cfg)) *
                                        sizeof *w->cos_sin[k]);
        }
    }
    if (keys > w->keys_cap) {
        ares_free(w->keys);
        w->keys_cap = keys + keys / 4;
        w->keys = ares_malloc((size_t)w->keys_cap * sizeof *w->keys);
    }
    for (int i = 0; i < w->n_micro; i++) {
        const micro *u = &w->micro[i];
        int32_t *start = w->keys + u->keys;
        ARES_TRY(fill_cos_sin(w, &p[i], u));
        if (lists_keys(w, &p[i]))
            ares_segments_list_keys(&u->pass.seg, start, start + u->pass.seg.n + 1);
    }
    return ARES_OK;
}

/*
 * An array where the device reads it: in place on the CPU, copied to any other. Where there is no
 * memory yet it only counts bytes.
 */
static const void *placed(ares_workspace *w, const void *host, size_t bytes)
{
    ares_device *d = w->model->device;
    if (d->index < 0 || !host || !bytes) return host;
    char *to = w->inputs ? (char *)w->inputs + w->inputs_used : NULL;
    w->inputs_used += (bytes + INPUT_ALIGN - 1) / INPUT_ALIGN * INPUT_ALIGN;
    if (w->inputs_used <= w->inputs_bytes) d->k->copy_in(d, to, host, bytes);
    return to;
}

/* Places all that the device reads of a micro-batch: once to count the bytes, then to copy. */
static void place_inputs(ares_workspace *w, const ares_packed *p, micro *u)
{
    size_t i32 = sizeof(int32_t), n = (size_t)p->seg.n, rows = (size_t)p->rows * i32;
    ares_segments *seg = &u->pass.seg;
    if (lists_keys(w, p)) {
        const int32_t *keys = w->keys + u->keys;
        seg->key_start = placed(w, keys, (n + 1) * i32);
        seg->key_row = placed(w, keys + n + 1, (size_t)seg->keys * i32);
    }
    seg->start = placed(w, p->seg.start, (n + 1) * i32);
    seg->prefix_len = placed(w, p->seg.prefix_len, n * i32);
    seg->prefix_row = placed(w, p->seg.prefix_row, n * i32);
    seg->block_table = placed(w, p->seg.block_table, n * (size_t)p->seg.table_stride * i32);
    u->ids = placed(w, p->ids, rows);
    u->out = placed(w, p->out_rows, (size_t)p->n_out * i32);
    u->features = placed(w, p->features,
                         (size_t)p->n_features * (size_t)w->model->cfg.hidden * sizeof(float));
    u->pass.slots = placed(w, p->slots, rows);
    u->pass.from = placed(w, p->state_from, n * i32);
    u->pass.to = placed(w, p->state_to, n * i32);
    size_t width = (size_t)turned(&w->model->cfg);
    for (int k = 0; k < ares_model_ropes(w->model); k++)
        u->pass.cos_sin[k] = placed(w, w->cos_sin[k] + (size_t)u->row * width,
                                    (size_t)p->rows * width * sizeof(float));
}

/* All that may fail before a pass: memory, angles, and the inputs on the device. */
static int begin(ares_workspace *w, const ares_packed *p, int n, bool keep)
{
    ares_device *d = w->model->device;
    ARES_TRY(reserve(w, p, n, keep));
    ARES_TRY(begin_on_host(w, p));
    w->inputs_used = 0;
    for (int i = 0; i < n; i++) place_inputs(w, &p[i], &w->micro[i]);
    if (w->inputs_used <= w->inputs_bytes) return ARES_OK;
    /* they have been counted alone: now that their bytes are known, they get memory */
    d->k->release(d, w->inputs, w->inputs_bytes);
    w->inputs = d->k->alloc(d, w->inputs_used);
    w->inputs_bytes = w->inputs ? w->inputs_used : 0;
    if (!w->inputs) return does_not_fit(d, w->inputs_used);
    w->inputs_used = 0;
    for (int i = 0; i < n; i++) place_inputs(w, &p[i], &w->micro[i]);
    return ARES_OK;
}

/* Rows of a micro-batch in the residual stream before block `layer`. */
static void *stream(const ares_workspace *w, int32_t layer, const micro *u)
{
    return (char *)w->x[layer] + (size_t)u->row * row_bytes(w);
}
/* Its rows in a buffer of what the head reads. */
static void *tail(const ares_workspace *w, void *buffer, const micro *u)
{
    return (char *)buffer + (size_t)u->out_row * row_bytes(w);
}

/* What a block keeps, or the one set of buffers that all blocks share, with x_in set to its input.
 */
static const block_saved *saved_of(ares_workspace *w, int32_t layer, const micro *u)
{
    block_saved *s = &w->saved[w->n_saved > 1 ? layer : 0];
    s->x_in = stream(w, layer, u);
    if (w->keep == ARES_KEEP_NOTHING) s->x_mid = s->x_in;
    return s;
}

/* Of the rows that the head reads; forward and backward share it. */
static ares_rms_norm_args final_norm(const ares_workspace *w, const micro *u)
{
    const ares_model *m = w->model;
    int32_t width = m->cfg.hidden;
    return (ares_rms_norm_args){ .rows = u->n_out,
                                 .k = width,
                                 .x = tail(w, w->out, u),
                                 .ldx = width,
                                 .w = m->final_norm->weight.data,
                                 .plus_one = m->cfg.norm_plus_one,
                                 .eps = m->cfg.rms_norm_eps,
                                 .rstd = w->out_rstd + u->out_row };
}

/* How many features from number i on stand in consecutive rows. */
static int32_t run_of_features(const ares_packed *p, int32_t i)
{
    int32_t n = 1;
    while (i + n < p->n_features && p->feature_rows[i + n] == p->feature_rows[i] + n) n++;
    return n;
}

/* The row of the residual stream that a feature takes the place of. */
static void *feature_row(const ares_workspace *w, int32_t layer, const micro *u,
                         const ares_packed *p, int32_t i)
{
    return (char *)stream(w, layer, u) + (size_t)p->feature_rows[i] * row_bytes(w);
}
/* Counts what the routers of a layer have chosen, once its forward is done. */
static void count_routed(ares_workspace *w, int32_t layer, int32_t rows, const block_saved *s)
{
    int32_t experts = w->model->cfg.experts;
    for (int32_t e = 0; e < experts; e++)
        w->routed[layer * experts + e] += s->first[e + 1] - s->first[e];
    for (int32_t r = 0; r < rows; r++) /* of logits that are not finite there is none */
        if (isfinite(w->scratch.entropy[r]))
            w->entropy += (int64_t)((double)w->scratch.entropy[r] * 0x1p32);
    w->routed_rows += rows;
}

ares_routing ares_workspace_routing(ares_workspace *w, int64_t *of_expert)
{
    const ares_model_config *c = &w->model->cfg;
    const ares_routing now = { w->routed_rows, w->entropy };
    size_t bytes = (size_t)c->layers * (size_t)c->experts * sizeof *w->routed;
    if (bytes && of_expert) memcpy(of_expert, w->routed, bytes);
    if (bytes) memset(w->routed, 0, bytes);
    w->routed_rows = w->entropy = 0;
    return now;
}

/* The pass over w->micro; hidden[i]: [n_out][hidden]; counts: routers' choices are counted */
static void run(ares_model *m, ares_workspace *w, const ares_packed *p, bool counts, void **hidden)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    int32_t width = m->cfg.hidden, layers = m->cfg.layers;
    int n = w->n_micro;
    int64_t cached = 0; /* layers so far that keep keys and values */
    ares_region_load(&m->params, m->embed->region);
    block_prefetch(&m->params, &m->layer[0].in);
    for (int j = 0; j < n; j++) {
        k->embedding(d, &m->embed->weight, w->micro[j].ids, p[j].rows, stream(w, 0, &w->micro[j]),
                     width, m->cfg.embed_scale);
        for (int32_t f = 0, run; f < p[j].n_features; f += run) {
            run = run_of_features(&p[j], f);
            k->convert(d, feature_row(w, 0, &w->micro[j], &p[j], f), k->act,
                       w->micro[j].features + (int64_t)f * width, ARES_F32, (int64_t)run * width);
        }
    }
    ares_region_unload(&m->params, m->embed->region);
    for (int32_t i = 0; i < layers; i++) {
        block_load(&m->params, &m->layer[i].in);
        if (i + 1 < layers) block_prefetch(&m->params, &m->layer[i + 1].in);
        else region_prefetch(&m->params, ares_model_head_region(m));
        for (int j = 0; j < n; j++) {
            micro *u = &w->micro[j];
            u->pass.cache =
                p[j].cache ? (char *)p[j].cache + cached * p[j].cache_layer_bytes : NULL;
            u->pass.states = p[j].states ? p[j].states[i] : NULL;
            u->pass.window = p[j].windows ? p[j].windows[i] : NULL;
            const block_saved *s = saved_of(w, i, u);
            block_forward(m, i, &u->pass, s, &w->scratch, stream(w, i + 1, u));
            if (counts && m->layer[i].expert) count_routed(w, i, u->pass.rows, s);
        }
        cached += !model_has_net(&m->cfg, i);
        block_unload(&m->params, &m->layer[i].in);
    }
    for (int j = 0; j < n; j++) {
        const micro *u = &w->micro[j];
        ares_matrix last = { stream(w, layers, u), k->act, ARES_ROWS, p[j].rows, width };
        /* the look-up of an embedding also gathers rows */
        k->embedding(d, &last, u->out, u->n_out, tail(w, w->out, u), width, 0);
        ares_rms_norm_args norm = final_norm(w, u);
        norm.y = hidden[j] = tail(w, w->hidden, u);
        norm.ldy = width;
        k->rms_norm(d, &norm);
    }
}

int ares_model_forward_round(ares_model *m, ares_workspace *w, const ares_packed *p, int n,
                             bool keep, void **hidden)
{
    ARES_ASSERT(w->model == m);
    bool kept = keep && w->keep != ARES_KEEP_NOTHING;
    int rc = begin(w, p, n, kept);
    /* from here on nothing fails on one rank alone */
    ARES_TRY(m->params.share.how == ARES_SHARE_ALL ? ares_group_agree(m->params.share.group, rc)
                                                   : rc);
    run(m, w, p, kept, hidden);
    return ARES_OK;
}

int ares_model_forward(ares_model *m, ares_workspace *w, const ares_packed *p, void **hidden)
{
    return ares_model_forward_round(m, w, p, 1, true, hidden);
}

int ares_model_launch(ares_model *m, ares_workspace *w, const ares_packed *p,
                      const float *const cos_sin[ARES_ROPES], void **hidden)
{
    ARES_ASSERT(w->model == m && p->rows > 0 && p->cache);
    ARES_TRY(reserve(w, p, 1, w->keep != ARES_KEEP_NOTHING));
    micro *u = w->micro;
    u->pass.seg = p->seg;
    for (int k = 0; k < ARES_ROPES; k++) u->pass.cos_sin[k] = cos_sin[k];
    u->pass.slots = p->slots;
    u->ids = p->ids;
    u->out = p->out_rows;
    u->features = p->features;
    run(m, w, p, false, hidden);
    return ARES_OK;
}

/*
 * Rows that no derivative reaches (docs/update.md#zero-gradients). A token's derivative reaches the
 * tokens before it in its sequence and none after it, so that a backward visits the rows of a
 * segment up to the last one whose d_hidden is not 0, and all of a prompt that such a segment sees.
 * They move together, in their order, and so do their kept activations: every kernel then sees a
 * smaller micro-batch, and sums the same numbers but for products with 0.
 */

void ares_workspace_skip_zero(ares_workspace *w, bool skip)
{
    w->skip_zero = skip;
}

ares_backward_rows ares_workspace_rows(ares_workspace *w)
{
    const ares_backward_rows counted = w->counted;
    w->counted = (ares_backward_rows){ 0 };
    return counted;
}

/* +0 or -0 everywhere; a NaN is none */
static bool all_zero(const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

/* Visited rows before row `end`. */
static int32_t visited_before(const micro *u, int32_t end)
{
    int32_t n = 0;
    for (int32_t i = 0; i < u->n_runs && u->run[i].from < end; i++)
        n += ARES_MIN(u->run[i].n, end - u->run[i].from);
    return n;
}

/* Where a row lies now, or -1; *n: how many rows from it on stay together, or are left out. */
static int32_t place_of(const micro *u, int32_t row, int32_t *n)
{
    int32_t i = 0;
    while (i < u->n_runs && u->run[i].from + u->run[i].n <= row) i++;
    bool there = i < u->n_runs && u->run[i].from <= row;
    *n = there ? u->run[i].from + u->run[i].n - row
               : (i < u->n_runs ? u->run[i].from : u->all.n) - row;
    return there ? u->run[i].to + row - u->run[i].from : -1;
}

/* visits [seg.n]: written: rows of each segment that a derivative reaches. Returns their sum. */
static int32_t count_visits(ares_workspace *w, const ares_packed *p, const float *d_hidden,
                            const int32_t *segment_of, int32_t *visits)
{
    const ares_segments *seg = &p->seg;
    int32_t width = w->model->cfg.hidden, sum = 0;
    memset(visits, 0, (size_t)seg->n * sizeof *visits);
    for (int32_t i = p->n_out - 1; i >= 0; i--) {
        int32_t s = segment_of[p->out_rows[i]], rows = p->out_rows[i] - seg->start[s] + 1;
        if (rows > visits[s] && !all_zero(d_hidden + (int64_t)i * width, width)) visits[s] = rows;
    }
    for (int32_t s = 0; s < seg->n; s++)
        if (visits[s] && seg->prefix_len && seg->prefix_len[s]) {
            int32_t *of_prefix = &visits[segment_of[seg->prefix_row[s]]];
            *of_prefix = ARES_MAX(*of_prefix, seg->prefix_len[s]);
        }
    for (int32_t s = 0; s < seg->n; s++) sum += visits[s];
    return sum;
}

/* Finds the rows of a micro-batch that its backward visits, and makes a pass of these alone. */
static void leave_out(ares_workspace *w, const ares_packed *p, micro *u, const float *d_hidden)
{
    const ares_segments *seg = &p->seg;
    ares_arena *arena = &w->left;
    size_t n = (size_t)seg->n + 1;
    int32_t *segment_of = ares_arena_alloc(arena, (size_t)(p->rows + 1) * sizeof *segment_of),
            *visits = ares_arena_alloc(arena, n * sizeof *visits),
            *place = ares_arena_alloc(arena, n * sizeof *place), runs = 0, to = 0;
    for (int32_t s = 0; s < seg->n; s++)
        for (int32_t r = seg->start[s]; r < seg->start[s + 1]; r++) segment_of[r] = s;
    int32_t active = count_visits(w, p, d_hidden, segment_of, visits);
    w->counted.all += p->rows;
    w->counted.active += active;
    if (!w->skip_zero || (p->rows - active) * (int64_t)WORTH_MOVING < p->rows) return;
    visited *run = ares_arena_alloc(arena, n * sizeof *run);
    int32_t *start = ares_arena_alloc(arena, n * sizeof *start),
            *prefix_len = ares_arena_alloc(arena, n * sizeof *prefix_len),
            *prefix_row = ares_arena_alloc(arena, n * sizeof *prefix_row),
            *kept_at = ares_arena_alloc(arena, n * sizeof *kept_at);
    ares_segments left = { .start = start };
    for (int32_t s = 0; s < seg->n; s++) {
        int32_t from = seg->start[s], prefix = seg->prefix_len ? seg->prefix_len[s] : 0;
        place[s] = to;
        if (!visits[s]) continue;
        prefix_len[left.n] = prefix;
        prefix_row[left.n] = prefix ? place[segment_of[seg->prefix_row[s]]] : 0;
        kept_at[left.n] = from / ARES_DELTA_KEPT; /* states of nets stay where they are */
        start[left.n++] = to;
        if (runs && run[runs - 1].from + run[runs - 1].n == from) run[runs - 1].n += visits[s];
        else run[runs++] = (visited){ from, visits[s], to };
        to += visits[s];
    }
    start[left.n] = to;
    if (seg->prefix_len) {
        left.prefix_len = prefix_len;
        left.prefix_row = prefix_row;
    }
    ares_segments_measure(&left);
    u->run = run;
    u->n_runs = runs;
    block_pass *pass = &u->pass;
    ares_adapted *adapted =
        ares_arena_alloc(arena, (size_t)(pass->n_adapted + 1) * sizeof *adapted);
    for (int32_t i = 0; i < pass->n_adapted; i++)
        adapted[i] =
            (ares_adapted){ pass->adapted[i].adapter, visited_before(u, pass->adapted[i].end) };
    pass->rows = active;
    pass->moved = true;
    pass->kept_at = kept_at;
    pass->seg = left;
    pass->adapted = adapted;
}

/* An array with so many bytes a row, whose visited rows move together. */
typedef struct moving {
    char *data;
    size_t row;
} moving;
typedef struct move_job {
    const micro *u;
    moving array[24];
    int n;
} move_job;

static void move_task(void *ctx, int64_t task, int worker)
{
    const move_job *j = ctx;
    const moving *m = &j->array[task];
    (void)worker;
    for (int32_t i = 0; i < j->u->n_runs; i++) {
        const visited *v = &j->u->run[i];
        if (v->to != v->from)
            memmove(m->data + (size_t)v->to * m->row, m->data + (size_t)v->from * m->row,
                    (size_t)v->n * m->row);
    }
}

/* width: numbers of a row, of 4 bytes, since tables with rows_move have activations in f32 */
static void add_moving(move_job *j, const void *data, int64_t width)
{
    ARES_ASSERT(j->n < ARES_COUNT(j->array));
    if (data && width)
        j->array[j->n++] = (moving){ (char *)(uintptr_t)data, (size_t)width * sizeof(float) };
}

/* Of a block: its input and, where it is not computed again, what else it keeps. */
static void move_block(const ares_workspace *w, const micro *u, const block_saved *s, bool again)
{
    const ares_model_config *c = &w->model->cfg;
    const saved_widths n = saved_widths_of(c, OF_ATTENTION | OF_NETS, true);
    move_job j = { .u = u };
    add_moving(&j, s->x_in, c->hidden);
#define MOVE(name, type, width) \
    if (!again) add_moving(&j, s->name, width);
    SAVED_PARTS(MOVE)
#undef MOVE
    ares_pool_run(w->model->device->pool, j.n, move_task, &j);
}

/* The same of what all blocks read: angles, and the derivatives of the stream. */
static void move_stream(const ares_workspace *w, const micro *u, void *dx)
{
    move_job j = { .u = u };
    for (int k = 0; k < ARES_ROPES; k++) add_moving(&j, u->pass.cos_sin[k], turned(&w->model->cfg));
    add_moving(&j, dx, w->model->cfg.hidden);
    ares_pool_run(w->model->device->pool, j.n, move_task, &j);
}

/* dx, the derivatives of the stream after the last block, which has been read by now. */
static void tail_backward(ares_workspace *w, const micro *u, const void *d_hidden, void *dx)
{
    const ares_model *m = w->model;
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    int32_t width = m->cfg.hidden, rows = u->all.n;
    void *d_out = tail(w, w->d_out, u);
    ares_rms_norm_args norm = final_norm(w, u);
    norm.dy = d_hidden;
    norm.lddy = width;
    norm.dx = d_out;
    norm.lddx = width;
    norm.dw = m->final_norm->grad.data;
    k->zero(d, d_out, (size_t)u->n_out * row_bytes(w));
    k->rms_norm_backward(d, &norm);
    k->zero(d, dx, (size_t)rows * row_bytes(w));
    ares_matrix last = { dx, k->act, ARES_ROWS, rows, width };
    k->embedding_backward(d, &last, u->out, u->n_out, d_out, width, 0);
}

/* The lowest block with anything to train: below it no derivative is wanted. */
static int32_t lowest_trained(const ares_workspace *w)
{
    int32_t lowest = w->model->cfg.layers;
    if (w->model->params.trainable) return w->model->lowest;
    for (int j = 0; j < w->n_micro; j++)
        for (int32_t i = 0; i < w->micro[j].pass.n_adapted; i++)
            if (w->micro[j].pass.adapted[i].adapter)
                lowest = ARES_MIN(lowest, w->micro[j].pass.adapted[i].adapter->lowest);
    return lowest;
}

/* From the derivatives of the stream before the first block to the features and the embedding. */
static void embed_backward(ares_model *m, ares_workspace *w, const ares_packed *p, int n)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    int32_t layers = m->cfg.layers;
    bool look_up = region_trained(&m->params, m->embed->region), wanted = look_up;
    for (int j = 0; j < n; j++) wanted |= p[j].d_features != NULL;
    if (!wanted) return;
    if (look_up) gradients_begin_look_up(&m->params);
    for (int j = 0; j < n; j++) {
        const micro *u = &w->micro[j];
        /* their derivatives go to the features, and none to the embeddings that they replaced */
        for (int32_t f = 0, run; f < p[j].n_features; f += run) {
            int32_t place = place_of(u, p[j].feature_rows[f], &run);
            run = ARES_MIN(run, run_of_features(&p[j], f));
            char *to = p[j].d_features, *row = (char *)stream(w, layers, u);
            size_t bytes = (size_t)run * row_bytes(w);
            if (to) to += (size_t)f * row_bytes(w);
            row += place < 0 ? 0 : (size_t)place * row_bytes(w);
            if (place < 0 && to) memset(to, 0, bytes);
            if (place < 0) continue;
            if (to) k->copy_out(d, to, row, bytes);
            k->zero(d, row, bytes);
        }
        for (int32_t i = 0; i < u->n_runs && look_up; i++)
            k->embedding_backward(d, &m->params.embed_grad, u->ids + u->run[i].from, u->run[i].n,
                                  (char *)stream(w, layers, u) +
                                      (size_t)u->run[i].to * row_bytes(w),
                                  m->cfg.hidden, m->cfg.embed_scale);
    }
    if (look_up) gradients_end_look_up(&m->params);
}

int ares_model_backward_round(ares_model *m, ares_workspace *w, const ares_packed *p, int n,
                              const void *const *d_hidden)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    int32_t layers = m->cfg.layers;
    int head = ares_model_head_region(m);
    /* what one micro-batch has left for its backward is the next one's after it */
    bool again = w->keep == ARES_KEEP_INPUTS || n > 1;
    ARES_ASSERT(w->keep != ARES_KEEP_NOTHING && w->n_micro == n);
    /* since ares_params_zero_grad; a frozen model has adapters that train */
    ARES_ASSERT(!m->params.trainable || ares_phase_holds(d, &m->params.of_training));
    int32_t lowest = lowest_trained(w);
    if (lowest < layers) block_prefetch(&m->params, &m->layer[layers - 1].in);
    ares_region_grad(&m->params, head); /* where no micro-batch has reached the head, too */
    if (head != m->embed->region) gradients_leave(&m->params, head);
    ares_arena_reset(&w->left);
    for (int j = 0; j < n; j++) {
        micro *u = &w->micro[j];
        ARES_ASSERT(u->pass.rows == p[j].rows && !p[j].cache);
        u->all = (visited){ 0, p[j].rows, 0 };
        u->run = &u->all;
        u->n_runs = 1;
        if (k->rows_move) leave_out(w, &p[j], u, d_hidden[j]);
        if (u->pass.rows == 0) continue;
        tail_backward(w, u, d_hidden[j], stream(w, layers, u));
        if (u->run != &u->all) move_stream(w, u, stream(w, layers, u));
    }
    for (int32_t i = layers - 1; i >= lowest; i--) {
        const ares_block_regions *in = &m->layer[i].in;
        block_load(&m->params, in);
        if (in->trained >= 0) ares_region_grad(&m->params, in->trained);
        if (i > lowest) block_prefetch(&m->params, &m->layer[i - 1].in);
        for (int j = 0; j < n; j++) {
            micro *u = &w->micro[j];
            const block_saved *s = saved_of(w, i, u);
            if (u->pass.rows == 0) continue;
            if (u->run != &u->all) move_block(w, u, s, again);
            if (again) u->pass.moved = false; /* all of the block is computed again */
            /* the same arithmetic, so the same bits; d_h only takes the output, which is not used
             */
            if (again) block_forward(m, i, &u->pass, s, &w->scratch, w->scratch.d_h);
            block_backward(m, i, &u->pass, s, &w->scratch, stream(w, layers, u));
        }
        block_unload(&m->params, in);
        if (in->trained >= 0) gradients_leave(&m->params, in->trained);
    }
    embed_backward(m, w, p, n);
    return m->params.share.how == ARES_SHARE_ALL ? ares_params_sync(&m->params) : k->sync(d);
}

/* The vocabulary head's part of an adapter; NULL: it has none. */
static const ares_adapter_module *of_head(const ares_adapter *a)
{
    return a ? adapter_module(a, a->head) : NULL;
}

bool ares_model_adapt_head(ares_workspace *w, const ares_adapter *a, const void *hidden,
                           int32_t rows, ares_head_adapter *out)
{
    const ares_adapter_module *x = of_head(a);
    ares_device *d = w->model->device;
    if (!x) return false;
    /* the rows among those of the round */
    int64_t row = ((const char *)hidden - (const char *)w->hidden) / (int64_t)row_bytes(w);
    void *u = acts_at(d, w->head_u, row * w->rank);
    ares_linear_args down = { .m = rows,
                              .x = hidden,
                              .ldx = w->model->cfg.hidden,
                              .w = &x->a->weight,
                              .y = u,
                              .ldy = x->rank,
                              .scale = x->scale };
    if (rows) d->k->linear(d, &down, 1);
    *out = (ares_head_adapter){
        .b = &x->b->weight,
        .u = u,
        .scale = x->scale,
        .du = w->head_du ? acts_at(d, w->head_du, row * w->rank) : NULL,
        .db = &x->b->grad,
    };
    return true;
}

void ares_model_adapt_head_backward(ares_workspace *w, const ares_adapter *a,
                                    const ares_head_adapter *h, const void *hidden, int32_t rows,
                                    void *d_hidden)
{
    const ares_adapter_module *x = of_head(a);
    int32_t width = w->model->cfg.hidden;
    ares_device *d = w->model->device;
    ares_linear_backward_args b = { .m = rows,
                                    .dy = h->du,
                                    .lddy = x->rank,
                                    .w = &x->a->weight,
                                    .dx = d_hidden,
                                    .lddx = width,
                                    .accumulate = true,
                                    .x = hidden,
                                    .ldx = width,
                                    .dw = &x->a->grad };
    d->k->linear_backward(d, &b, 1);
}
