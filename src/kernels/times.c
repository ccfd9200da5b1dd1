/*
 * Where time goes: a table that stands on a device's own, calls its entries, and takes the time of
 * each call. On a card a pair of events stands around a call, whatever library it launches from,
 * and times are read when many pairs have been recorded; nothing waits before. Steps of decoding
 * are not kept as graphs, in which there are no calls. On a CPU calls are complete on return, and a
 * clock does.
 */
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of an operation in a phase (a stage of the step, ares_work_begin). */
typedef struct total {
    const char *phase;
    char what[96];
    int64_t calls;
    double ms;
} total;

enum { PAIRS = 4096 };

typedef struct times {
    ares_kernels table; /* in use; first, because d->k points to it */
    const ares_kernels *under;
    /* of a card, in libares_cuda.so: records event i; ms[p] between the events 2 p and 2 p + 1 */
    void (*stamp)(ares_device *d, int i);
    void (*between)(ares_device *d, int pairs, float *ms);
    total *totals;
    int n, capacity, now; /* now: the total of the call under way, or of the last one */
    int depth;            /* calls within a call belong to it */
    int pairs, of_pair[PAIRS];
    double began;
} times;

static void linear(ares_device *d, const ares_linear_args *a, int n);

/* NULL: no times are taken, as of a device without kernels. */
static times *times_of(const ares_device *d)
{
    return d->k && d->k->linear == linear ? (times *)(uintptr_t)d->k : NULL;
}

/* Calls come in the same order again and again: the search begins behind the last one. */
static int find(times *t, const char *what)
{
    const char *phase = ares_work_stage();
    for (int i = 1; i <= t->n; i++) {
        int at = (t->now + i) % t->n;
        if (strcmp(t->totals[at].what, what) == 0 && strcmp(t->totals[at].phase, phase) == 0)
            return at;
    }
    if (t->n == t->capacity) {
        t->capacity = 2 * t->capacity + 64;
        t->totals = ares_realloc(t->totals, (size_t)t->capacity * sizeof *t->totals);
    }
    t->totals[t->n] = (total){ .phase = phase };
    snprintf(t->totals[t->n].what, sizeof t->totals[0].what, "%s", what);
    return t->n++;
}

/* Adds the times of all pairs so far; waits for them. */
static void read_pairs(ares_device *d, times *t)
{
    float ms[PAIRS] = { 0 };
    if (!t->pairs) return;
    t->between(d, t->pairs, ms);
    for (int i = 0; i < t->pairs; i++) t->totals[t->of_pair[i]].ms += ms[i];
    t->pairs = 0;
}

static times *begin(ares_device *d, const char *what)
{
    times *t = times_of(d);
    if (t->depth++) return t;
    if (t->stamp && t->pairs == PAIRS) read_pairs(d, t);
    t->now = find(t, what);
    if (t->stamp) t->stamp(d, 2 * t->pairs);
    else t->began = ares_now_s();
    return t;
}

static void end(ares_device *d, times *t)
{
    if (--t->depth) return;
    t->totals[t->now].calls++;
    if (t->stamp) {
        t->stamp(d, 2 * t->pairs + 1);
        t->of_pair[t->pairs++] = t->now;
    } else t->totals[t->now].ms += 1e3 * (ares_now_s() - t->began);
}

void ares_times_begin(ares_device *d, const char *what)
{
    if (times_of(d)) (void)begin(d, what);
}

void ares_times_end(ares_device *d)
{
    times *t = times_of(d);
    if (t) end(d, t);
}

/* ------------------------------------------------------------------ the entries */

/* X(entry, type of its arguments) of those that take a struct and no more */
#define PLAIN(X)                                 \
    X(copy_blocks, ares_copy_blocks_args)        \
    X(rms_norm, ares_rms_norm_args)              \
    X(rms_norm_backward, ares_rms_norm_args)     \
    X(layer_norm, ares_layer_norm_args)          \
    X(layer_norm_backward, ares_layer_norm_args) \
    X(activation, ares_activation_args)          \
    X(activation_backward, ares_activation_args) \
    X(gate_mul, ares_gate_mul_args)              \
    X(gate_mul_backward, ares_gate_mul_args)     \
    X(attention_backward, ares_attention_args)   \
    X(route, ares_route_args)                    \
    X(route_backward, ares_route_args)           \
    X(combine, ares_combine_args)                \
    X(combine_backward, ares_combine_args)       \
    X(conv, ares_conv_args)                      \
    X(conv_backward, ares_conv_args)             \
    X(delta, ares_delta_args)                    \
    X(delta_backward, ares_delta_args)           \
    X(head, ares_head_args)                      \
    X(head_backward, ares_head_args)             \
    X(sample, ares_sample_args)                  \
    X(adamw, ares_adamw_args)                    \
    X(rope_store, ares_rope_store_args)          \
    X(advance, ares_advance_args)                \
    X(gather_kv, ares_gather_args)               \
    X(sum_keys, ares_sum_keys_args)

/* X(entry, its parameters after the device, what is passed on) of the others */
#define OTHERS(X)                                                                                  \
    X(copy_in, (ares_device * d, void *to, const void *from, size_t bytes), (d, to, from, bytes))  \
    X(copy_out, (ares_device * d, void *to, const void *from, size_t bytes), (d, to, from, bytes)) \
    X(copy, (ares_device * d, void *to, const void *from, size_t bytes), (d, to, from, bytes))     \
    X(zero, (ares_device * d, void *p, size_t bytes), (d, p, bytes))                               \
    X(convert,                                                                                     \
      (ares_device * d, void *to, ares_dtype to_type, const void *from, ares_dtype type,           \
       int64_t n),                                                                                 \
      (d, to, to_type, from, type, n))                                                             \
    X(embedding,                                                                                   \
      (ares_device * d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y, int64_t ldy, \
       float scale),                                                                               \
      (d, e, ids, n, y, ldy, scale))                                                               \
    X(embedding_backward,                                                                          \
      (ares_device * d, const ares_matrix *de, const int32_t *ids, int32_t n, const void *dy,      \
       int64_t lddy, float scale),                                                                 \
      (d, de, ids, n, dy, lddy, scale))                                                            \
    X(rope,                                                                                        \
      (ares_device * d, int32_t rows, int32_t heads, int32_t head_dim, int32_t turned, void *x,    \
       int64_t ldx, const float *cos_sin, bool inverse),                                           \
      (d, rows, heads, head_dim, turned, x, ldx, cos_sin, inverse))                                \
    X(store_kv,                                                                                    \
      (ares_device * d, int32_t rows, int32_t n_kv, int32_t head_dim, const void *k,               \
       const void *v, int64_t ldkv, const int32_t *slots, void *cache, bool bf16),                 \
      (d, rows, n_kv, head_dim, k, v, ldkv, slots, cache, bf16))                                   \
    X(head_fused, (ares_device * d, const ares_head_args *a, ares_head_loss_fn *loss, void *ctx),  \
      (d, a, loss, ctx))                                                                           \
    X(square_sums, (ares_device * d, const float *x, int64_t n, double *of_chunk),                 \
      (d, x, n, of_chunk))                                                                         \
    X(add, (ares_device * d, float *y, const float *x, int64_t n), (d, y, x, n))

#define TIMED_PLAIN(entry, type)                     \
    static void entry(ares_device *d, const type *a) \
    {                                                \
        times *t = begin(d, #entry);                 \
        t->under->entry(d, a);                       \
        end(d, t);                                   \
    }
PLAIN(TIMED_PLAIN)
#define TIMED_OTHER(entry, parameters, passed) \
    static void entry parameters               \
    {                                          \
        times *t = begin(d, #entry);           \
        t->under->entry passed;                \
        end(d, t);                             \
    }
OTHERS(TIMED_OTHER)

/* Products by the shape of their weights, several that share an input as one. */
static const char *product(char *out, size_t size, const char *name, const ares_matrix *w,
                           int64_t outputs, int32_t m)
{
    snprintf(out, size, "%s %lldx%d%s", name, (long long)outputs, w->k,
             m <= 64                ? ", up to 64 rows"
             : m <= ARES_GRAPH_ROWS ? ", up to 512 rows"
                                    : "");
    return out;
}

static void linear(ares_device *d, const ares_linear_args *a, int n)
{
    int64_t outputs = 0;
    char name[96];
    for (int i = 0; i < n; i++) outputs += a[i].w->n;
    times *t = begin(d, n ? product(name, sizeof name, "linear", a->w, outputs, a->m) : "linear");
    t->under->linear(d, a, n);
    end(d, t);
}

static void linear_backward(ares_device *d, const ares_linear_backward_args *a, int n)
{
    int64_t outputs = 0;
    char name[96];
    for (int i = 0; i < n; i++) outputs += a[i].w->n;
    times *t = begin(d, n ? product(name, sizeof name, "linear_backward", a->w, outputs, a->m)
                          : "linear_backward");
    t->under->linear_backward(d, a, n);
    end(d, t);
}

static void attention(ares_device *d, const ares_attention_args *a)
{
    times *t = begin(d, !a->cache             ? "attention"
                        : a->seg.max_rows > 1 ? "attention, pieces of prompts"
                                              : "attention, rows alone");
    t->under->attention(d, a);
    end(d, t);
}

/* ------------------------------------------------------------------ opening and closing */

void times_open(ares_device *d)
{
    const char *wanted = getenv("ARES_KERNEL_TIMES");
    if (!wanted || !*wanted || strcmp(wanted, "0") == 0) return;
    times *t = ares_calloc(1, sizeof *t);
    t->under = d->k;
    t->table = *d->k;
#define PUT_PLAIN(entry, type) \
    if (d->k->entry) t->table.entry = entry;
#define PUT_OTHER(entry, parameters, passed) \
    if (d->k->entry) t->table.entry = entry;
    PLAIN(PUT_PLAIN)
    OTHERS(PUT_OTHER)
    t->table.linear = linear;
    t->table.linear_backward = linear_backward;
    t->table.attention = attention;
    t->table.graph_begin = NULL;
    *(void **)&t->stamp = ares_device_symbol(d, "ares_cuda_stamp");
    *(void **)&t->between = ares_device_symbol(d, "ares_cuda_stamps");
    d->k = &t->table;
}

/* Phases in the order in which they began, in each the longest operations first. */
static int by_time(const void *a, const void *b)
{
    const total *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

static void say(const times *t)
{
    double all = 0;
    for (int i = 0; i < t->n; i++) all += t->totals[i].ms;
    ares_info("kernel times, %s: %.1f ms in all",
              t->stamp ? "by the card's events, without graphs" : "by the clock", all);
    ares_info("  %-52s %9s %11s %10s %7s", "phase, operation", "calls", "total ms", "mean us",
              "share");
    for (int i = 0; i < t->n; i++) {
        const char *phase = t->totals[i].phase;
        int64_t calls = 0;
        double ms = 0;
        bool before = false;
        for (int j = 0; j < i; j++) before = before || strcmp(t->totals[j].phase, phase) == 0;
        if (before) continue;
        total *own = ares_malloc((size_t)t->n * sizeof *own);
        int n = 0;
        for (int j = i; j < t->n; j++) {
            if (strcmp(t->totals[j].phase, phase) != 0) continue;
            own[n++] = t->totals[j];
            calls += t->totals[j].calls;
            ms += t->totals[j].ms;
        }
        qsort(own, (size_t)n, sizeof *own, by_time);
        ares_info("  %-52s %9lld %11.3f %10s %5.1f %%", phase, (long long)calls, ms, "",
                  all > 0 ? 100 * ms / all : 0);
        for (int j = 0; j < n; j++)
            ares_info("    %-50s %9lld %11.3f %10.2f %5.1f %%", own[j].what,
                      (long long)own[j].calls, own[j].ms, 1e3 * own[j].ms / (double)own[j].calls,
                      all > 0 ? 100 * own[j].ms / all : 0);
        ares_free(own);
    }
}

void times_close(ares_device *d)
{
    times *t = times_of(d);
    if (!t) return;
    if (t->stamp) read_pairs(d, t);
    d->k = t->under;
    if (t->n) say(t);
    ares_free(t->totals);
    ares_free(t);
}
