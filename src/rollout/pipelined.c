/*
 * Steps that are launched before the tokens of the step before have been read, on devices whose
 * table offers it: the host plans and uploads step n + 1 while the device computes step n, then
 * waits for the tokens of step n alone. All that a step needs from the host goes there in one copy;
 * the ids that are not known yet are taken from the tokens on the device. Block tables stay on the
 * device, and only entries that change are sent: one per sample and ARES_KV_BLOCK tokens.
 *
 * A step of decoding alone, with one row per sample, is padded to one of a few sizes and kept as a
 * graph per size, so that it costs one launch. The padding writes to a block of the cache that no
 * sample has.
 */
#include "internal.h"

#include <string.h>

/* What the host gives a step: X(type, name, count), [count]. */
#define INPUTS(X)                       \
    X(int32_t, ids, rows)               \
    X(int32_t, from, rows)              \
    X(int32_t, positions, rows)         \
    X(int32_t, positions_h, with_media) \
    X(int32_t, positions_w, with_media) \
    X(int32_t, slots, rows)             \
    X(int32_t, start, segments + 1)     \
    X(int32_t, prefix_len, segments)    \
    X(int32_t, out_rows, outs)          \
    X(float, temperature, outs)         \
    X(float, top_p, outs)               \
    X(int32_t, top_k, outs)             \
    X(ares_rng_key, key, outs)          \
    X(float, features, features)        \
    X(int32_t, changes, 1)              \
    X(int32_t, change, 2 * changed) /* of block tables; last, so that no address depends on it */
/* What it gives back: X(type, name, numbers per token). */
#define OUTPUTS(X)                   \
    X(int32_t, token, 1)             \
    X(float, log_prob, 1)            \
    X(float, entropy, 1)             \
    X(float, log_prob_1, 1)          \
    X(float, entropy_1, 1)           \
    X(int32_t, likely_token, likely) \
    X(float, likely_log_prob, likely)

typedef struct inputs {
#define FIELD(type, name, count) type *name;
    INPUTS(FIELD)
#undef FIELD
} inputs;
typedef struct outputs {
#define FIELD(type, name, width) type *name;
    OUTPUTS(FIELD)
#undef FIELD
} outputs;

typedef struct buffer {
    char *data;
    size_t bytes;
} buffer;

typedef struct step {
    int32_t rows, segments, outs;
    int32_t max_rows, max_keys; /* of one segment */
    int32_t changed;            /* entries of block tables */
    int32_t with_media;         /* rows, of a model whose positions have three axes; else 0 */
    int64_t features;           /* numbers that stand in place of embeddings */
    inputs in;                  /* on the device */
    outputs out;
    size_t out_bytes;
} step;

static const int32_t sizes[] = { 1,   2,   4,   8,   16,
                                 24,  32,  48,  64,  96,
                                 128, 192, 256, 384, ARES_GRAPH_ROWS };
/* A graph looks at KEYS, 2 KEYS, 4 KEYS ... keys, so that short sequences cost little. */
enum { KEYS = 1024, KEY_SIZES = 16 };
typedef struct graph {
    void *exec;
    bool warm;    /* launched without a graph before: all scratch is there */
    bool refused; /* the device cannot keep it */
} graph;

struct rollout_ahead {
    int32_t outs[2];        /* tokens that the plans' steps give back, padding included */
    buffer staged, in, out; /* staged: in host memory */
    buffer cos_sin[ARES_ROPES], angles[ARES_ROPES];
    /* the block tables on the device, and in host memory what they hold (-1: unknown) and changes
     */
    buffer table, sent, change;
    graph graphs[ARES_COUNT(sizes)][KEY_SIZES];
    uint64_t graphs_of; /* the adapter that graphs compute with; 0: none */
};

int rollout_ahead_new(ares_rollout *r, rollout_ahead **out)
{
    ares_device *d = r->model->device;
    *out = NULL;
    if (!d->k->advance) return ARES_OK;
    rollout_ahead *a = *out = ares_calloc(1, sizeof *a);
    int rc = ARES_OK;
    for (int k = 0; k < ares_model_ropes(r->model) && rc == ARES_OK; k++) {
        buffer *angles = &a->angles[k];
        angles->bytes = (size_t)r->max_len * (size_t)r->model->cfg.head_dim * sizeof(float);
        angles->data = d->k->alloc(d, angles->bytes);
        if (angles->data && !d->counting) { /* long to compute, and a plan reads none */
            float *host = ares_malloc(angles->bytes);
            ares_model_angles(r->model, k, r->max_len, host);
            d->k->copy_in(d, angles->data, host, angles->bytes);
            rc = d->k->sync(d);
            ares_free(host);
        }
        if (rc == ARES_OK && !angles->data)
            rc = ares_device_full(d, "rollout", "rotary angles", angles->bytes, false,
                                  "lower worker.rollout.max_model_len");
    }
    return rc;
}

static void free_graphs(ares_device *d, rollout_ahead *a)
{
    for (int i = 0; i < ARES_COUNT(sizes) * KEY_SIZES; i++) {
        graph *g = &a->graphs[i / KEY_SIZES][i % KEY_SIZES];
        if (g->exec) d->k->graph_free(d, g->exec);
        *g = (graph){ 0 };
    }
}

void rollout_ahead_forget(ares_rollout *r)
{
    free_graphs(r->model->device, r->ahead);
}

void rollout_ahead_free(ares_rollout *r, rollout_ahead *a)
{
    if (!a) return;
    ares_device *d = r->model->device;
    free_graphs(d, a);
    buffer *const all[] = { &a->in,        &a->out,       &a->cos_sin[0], &a->cos_sin[1],
                            &a->angles[0], &a->angles[1], &a->table };
    for (int i = 0; i < ARES_COUNT(all); i++) d->k->release(d, all[i]->data, all[i]->bytes);
    ares_free(a->staged.data), ares_free(a->sent.data), ares_free(a->change.data);
    ares_free(a);
}

/* ------------------------------------------------------------------ buffers */

static char *carved(char *base, size_t *at, size_t bytes)
{
    char *p = base ? base + *at : NULL;
    *at += (bytes + 31) / 32 * 32;
    return p;
}

/* Divides memory at base among the arrays; NULL: only counts the bytes. */
static size_t carve_inputs(inputs *in, char *base, const step *s)
{
    size_t at = 0;
    int64_t rows = s->rows, segments = s->segments, outs = s->outs, changed = s->changed,
            with_media = s->with_media, features = s->features;
#define CARVE(type, name, count) \
    in->name = (type *)(void *)carved(base, &at, (size_t)(count) * sizeof(type));
    INPUTS(CARVE)
#undef CARVE
    return at;
}
static size_t carve_outputs(outputs *out, char *base, int32_t n, int32_t likely)
{
    size_t at = 0;
#define CARVE(type, name, width) \
    out->name = (type *)(void *)carved(base, &at, (size_t)n * (size_t)(width) * sizeof(type));
    OUTPUTS(CARVE)
#undef CARVE
    return at;
}

/*
 * At least so many bytes. What is there stays: the tokens of the step before. Graphs find out by
 * themselves that memory has moved.
 */
static int ensure(ares_device *d, buffer *b, size_t bytes)
{
    if (b->bytes >= bytes) return ARES_OK;
    buffer more = { .bytes = bytes + bytes / 2 };
    more.data = d->k->alloc(d, more.bytes);
    if (!more.data)
        return ares_device_full(d, "rollout", "inputs of a step", more.bytes, false,
                                "lower worker.rollout.max_num_batched_tokens");
    if (b->data) d->k->copy(d, more.data, b->data, b->bytes);
    d->k->release(d, b->data, b->bytes);
    *b = more;
    return ARES_OK;
}

/* ------------------------------------------------------------------ one step */

/* The plan's arrays, and rows of padding: a sample of one token in the block that nobody has. */
static void fill(const ares_rollout *r, const plan *p, const step *s, const inputs *to)
{
#define COPY(name, n) memcpy(to->name, p->name, (size_t)(n) * sizeof *to->name)
    COPY(ids, p->rows);
    COPY(from, p->rows);
    COPY(positions, p->rows);
    if (s->with_media) {
        COPY(positions_h, p->rows);
        COPY(positions_w, p->rows);
    }
    if (s->features) COPY(features, s->features);
    COPY(slots, p->rows);
    COPY(start, p->n_seg + 1);
    COPY(prefix_len, p->n_seg);
    if (p->n_out) {
        COPY(out_rows, p->n_out);
        COPY(temperature, p->n_out);
        COPY(top_p, p->n_out);
        COPY(top_k, p->n_out);
        COPY(key, p->n_out);
    }
#undef COPY
    for (int32_t i = p->rows; i < s->rows; i++) {
        to->ids[i] = 0;
        to->from[i] = -1;
        to->positions[i] = 0;
        if (s->with_media) to->positions_h[i] = to->positions_w[i] = 0;
        to->slots[i] = r->blocks.total * ARES_KV_BLOCK;
        to->start[i + 1] = i + 1;
        to->prefix_len[i] = 0;
        to->out_rows[i] = i;
        to->temperature[i] = 0;
        to->top_p[i] = 1;
        to->top_k[i] = 0;
        to->key[i] = (ares_rng_key){ { 0, 0 } };
    }
    to->changes[0] = s->changed;
    if (s->changed) memcpy(to->change, r->ahead->change.data, 8 * (size_t)s->changed);
}

/* At least so many bytes of host memory; those that are new are `value`. */
static void ensure_host(buffer *b, size_t bytes, int value)
{
    if (b->bytes >= bytes) return;
    b->data = ares_realloc(b->data, bytes + bytes / 2);
    memset(b->data + b->bytes, value, bytes + bytes / 2 - b->bytes);
    b->bytes = bytes + bytes / 2;
}

/* Entry `at` of the block tables is to be `block`: it is sent unless the device has it already. */
static void change(rollout_ahead *a, step *s, int64_t at, int32_t block)
{
    int32_t *sent = (int32_t *)(void *)a->sent.data;
    if (sent[at] == block) return;
    sent[at] = block;
    ensure_host(&a->change, 8 * (size_t)(s->changed + 1), 0);
    int32_t *to = (int32_t *)(void *)a->change.data + 2 * s->changed++;
    to[0] = (int32_t)at;
    to[1] = block;
}

/* All that the step needs from the host goes to the device in one copy. */
static int upload(ares_rollout *r, const plan *p, step *s)
{
    ares_device *d = r->model->device;
    rollout_ahead *a = r->ahead;
    inputs host;
    /* what differs between the plan's block tables, and those of the padding, and the device's */
    int64_t stride = r->stride, all = s->segments * stride;
    ARES_ASSERT(all <= INT32_MAX);
    ARES_TRY(ensure(d, &a->table, (size_t)all * sizeof(int32_t)));
    ensure_host(&a->sent, (size_t)all * sizeof(int32_t), -1);
    for (int32_t i = 0; i < p->n_seg; i++) {
        int64_t keys = p->prefix_len[i] + p->start[i + 1] - p->start[i];
        for (int64_t c = 0; c * ARES_KV_BLOCK < keys; c++)
            change(a, s, i * stride + c, p->table[i * stride + c]);
    }
    for (int32_t i = p->n_seg; i < s->segments; i++) change(a, s, i * stride, r->blocks.total);
    size_t bytes = carve_inputs(&s->in, NULL, s);
    ARES_TRY(ensure(d, &a->in, bytes));
    for (int k = 0; k < ares_model_ropes(r->model); k++)
        ARES_TRY(ensure(d, &a->cos_sin[k],
                        (size_t)s->rows * (size_t)r->model->cfg.head_dim * sizeof(float)));
    ARES_TRY(ensure(d, &a->out, carve_outputs(&s->out, NULL, s->outs, r->n_likely)));
    ensure_host(&a->staged, bytes, 0);
    carve_inputs(&host, a->staged.data, s);
    carve_inputs(&s->in, a->in.data, s);
    s->out_bytes = carve_outputs(&s->out, a->out.data, s->outs, r->n_likely);
    fill(r, p, s, &host);
    d->k->copy_in(d, a->in.data, a->staged.data, bytes);
    return ARES_OK;
}

/* Launches the step: ids and angles, the forward, the tokens. */
static int enqueue(ares_rollout *r, const plan *p, const step *s)
{
    ares_device *d = r->model->device;
    rollout_ahead *a = r->ahead;
    ares_advance_args advance = { .rows = s->rows,
                                  .head_dim = r->model->cfg.head_dim,
                                  .from = s->in.from,
                                  .token = s->out.token,
                                  .positions = s->in.positions,
                                  .positions_h = s->with_media ? s->in.positions_h : NULL,
                                  .positions_w = s->in.positions_w,
                                  .by_time = r->model->cfg.rope.section[0],
                                  .by_row = r->model->cfg.rope.section[1],
                                  .ids = s->in.ids,
                                  .changes = s->in.changes,
                                  .change = s->in.change,
                                  .table = (int32_t *)(void *)a->table.data };
    ares_packed packed = rollout_packed(r);
    packed.rows = packed.seg.rows = s->rows;
    packed.ids = s->in.ids;
    packed.positions = s->in.positions;
    packed.n_features = p->n_features;
    packed.feature_rows = p->feature_rows;
    packed.features = s->in.features;
    packed.slots = s->in.slots;
    packed.n_out = s->outs;
    packed.out_rows = s->in.out_rows;
    packed.seg.n = s->segments;
    packed.seg.max_rows = s->max_rows;
    packed.seg.max_keys = s->max_keys;
    packed.seg.start = s->in.start;
    packed.seg.prefix_len = s->in.prefix_len;
    packed.seg.block_table = advance.table;
    ares_adapted of_all = { p->n_adapted ? p->adapted->adapter : NULL,
                            INT32_MAX }; /* padding too */
    packed.adapted = p->n_adapted == 1 ? &of_all : p->adapted;
    packed.n_adapted = p->n_adapted;
    if (s->max_rows > 1) { /* no padding: the host has the same segments */
        packed.seg.host_start = p->start;
        packed.seg.host_prefix_len = p->prefix_len;
    }
    ares_sample_args sample = rollout_sampler(r);
    void *hidden;
    const float *cos_sin[ARES_ROPES] = { NULL };
    for (int k = 0; k < ares_model_ropes(r->model); k++) { /* ids and tables come out the same */
        advance.angles = (const float *)(void *)a->angles[k].data;
        cos_sin[k] = advance.cos_sin = (float *)(void *)a->cos_sin[k].data;
        d->k->advance(d, &advance);
    }
    ARES_TRY(ares_model_launch(r->model, r->workspace, &packed, cos_sin, &hidden));
    if (!s->outs) return ARES_OK;
    sample.rows = s->outs;
    sample.x = hidden;
    sample.temperature = s->in.temperature;
    sample.top_p = s->in.top_p;
    sample.top_k = s->in.top_k;
    sample.key = s->in.key;
#define OUTPUT(type, name, width) sample.name = s->out.name;
    OUTPUTS(OUTPUT)
#undef OUTPUT
    rollout_sample(r, p, &sample);
    return ARES_OK;
}

/* Steps like this one are launched without a graph from now on. */
static void refuse(ares_rollout *r, const step *s, graph *g, const char *why)
{
    g->refused = true;
    if (r->stats.refused_graphs++) return;
    ares_warn("rollout: the device keeps no graph of a step of %d samples: %s; such steps are "
              "slower, and rollout/refused_graphs counts their sizes",
              s->rows, why);
}
/* Counts a step that was one launch. */
static int replayed(ares_rollout *r)
{
    r->stats.graph_steps++;
    return ARES_OK;
}

/* The same by the graph of its size, which the second step of the size makes. */
static int replay(ares_rollout *r, const plan *p, const step *s, graph *g)
{
    ares_device *d = r->model->device;
    const ares_kernels *k = d->k;
    if (g->exec) {
        if (k->graph_launch(d, g->exec)) return replayed(r);
        k->graph_free(d, g->exec);
        g->exec = NULL;
        g->warm = false;
    }
    if (!g->warm || g->refused) {
        g->warm = true;
        return enqueue(r, p, s);
    }
    if (!k->graph_begin(d)) {
        refuse(r, s, g, k->graph_refusal(d));
        return enqueue(r, p, s);
    }
    int rc = enqueue(r, p, s);
    g->exec = k->graph_end(d);
    if (rc != ARES_OK && g->exec) { /* half a step */
        k->graph_free(d, g->exec);
        g->exec = NULL;
    }
    ARES_TRY(rc);
    if (g->exec && k->graph_launch(d, g->exec)) return replayed(r);
    refuse(r, s, g, g->exec ? "it released memory" : k->graph_refusal(d));
    return enqueue(r, p, s);
}

/*
 * A graph holds the adapter of the step that it was made of: graphs of another one go, and a step
 * of several adapters has none.
 */
static bool keeps_graphs(ares_rollout *r, const plan *p)
{
    rollout_ahead *a = r->ahead;
    const ares_adapter *of = p->n_adapted ? p->adapted->adapter : NULL;
    uint64_t id = of ? of->id : 0;
    if (p->n_adapted > 1) return false;
    if (a->graphs_of == id) return true;
    free_graphs(r->model->device, a);
    a->graphs_of = id;
    return true;
}

/* Pads the step to the size of a graph where it is one of decoding alone, and launches it. */
static int launch(ares_rollout *r, const plan *p)
{
    ares_device *d = r->model->device;
    int size = -1, keys = 0;
    /*
     * The size that holds a plan of decoding alone; -1: none. A graph would place the features of
     * the step that it was made of in every later one.
     */
    if (d->k->graph_begin && p->n_seg == p->rows && p->n_out == p->rows && !p->n_features &&
        keeps_graphs(r, p))
        for (int i = ARES_COUNT(sizes) - 1; i >= 0; i--)
            if (p->rows <= sizes[i]) size = i;
    step s = { .rows = p->rows,
               .segments = p->n_seg,
               .outs = p->n_out,
               .features = (int64_t)p->n_features * r->model->cfg.hidden };
    for (int32_t i = 0; i < p->n_seg; i++) {
        int32_t rows = p->start[i + 1] - p->start[i];
        s.max_rows = ARES_MAX(s.max_rows, rows);
        s.max_keys = ARES_MAX(s.max_keys, p->prefix_len[i] + rows);
    }
    ARES_TRY(ares_model_check_length(r->model, s.max_keys));
    while (KEYS << keys < s.max_keys && keys < KEY_SIZES) keys++;
    if (keys == KEY_SIZES) size = -1;
    if (size >= 0) {
        s.rows = s.segments = s.outs = sizes[size];
        s.max_keys = KEYS << keys;
    }
    if (rollout_sees(r)) s.with_media = s.rows;
    ARES_TRY(upload(r, p, &s));
    if (size >= 0) ARES_TRY(replay(r, p, &s, &r->ahead->graphs[size][keys]));
    else ARES_TRY(enqueue(r, p, &s));
    r->ahead->outs[p - r->plans] = s.outs;
    if (p->n_out) d->k->fetch(d, (int)(p - r->plans), r->ahead->out.data, s.out_bytes);
    return ARES_OK;
}

int rollout_ahead_launch(ares_rollout *r, const plan *p)
{
    int rc = launch(r, p);
    /* the device may lack what was to be sent */
    if (rc != ARES_OK && r->ahead->sent.data) memset(r->ahead->sent.data, -1, r->ahead->sent.bytes);
    return rc;
}

int rollout_ahead_collect(ares_rollout *r, const plan *p)
{
    ares_device *d = r->model->device;
    const void *host;
    outputs out;
    if (!p->n_out) return ARES_OK;
    ARES_TRY(d->k->fetched(d, (int)(p - r->plans), &host));
    carve_outputs(&out, (char *)(uintptr_t)host, r->ahead->outs[p - r->plans], r->n_likely);
    int64_t likely = r->n_likely;
#define READ(type, name, width) \
    if (width) memcpy(p->name, out.name, (size_t)(p->n_out * (width)) * sizeof(type));
    OUTPUTS(READ)
#undef READ
    return ARES_OK;
}
