/*
 * A whole loss over many tokens at once: chunks on the pool, each with sums of its own, which are
 * added in the order of the chunks. PPO with k3 or no KL, the usual pair, goes through blocks of
 * arrays, whose exponentials and selections the compiler vectorises; the formulas are those of
 * loss/. Any other loss of single tokens is called chunk by chunk.
 */
#include <math.h>
#include <string.h>

#include "ares/algo.h"
#include "ares/kernels.h"
#include "loss/kl.h"
#include "loss/pass.h"
#include "loss/ppo.h"

extern const ares_loss ares_loss_default, ares_loss_dapo;

enum { CHUNK = 8192, BLOCK = 256 };
#define INLINE inline __attribute__((always_inline))

/* Mask-1 tokens, gathered. */
typedef struct block {
    int n, at[BLOCK];
    /* weight: the loss's, rollout weight included */
    double log_ratio[BLOCK], bound[BLOCK], ratio[BLOCK], advantage[BLOCK], weight[BLOCK];
    double loss[BLOCK], gradient[BLOCK], clipped[BLOCK], clip_high[BLOCK], clip_low[BLOCK];
    double x[BLOCK], k[BLOCK], e[BLOCK], kl[BLOCK], slope[BLOCK], clamped[BLOCK];
} block;

typedef struct chunks {
    const ares_loss *loss;
    const ares_loss_args *a;
    const ares_kl_args *k; /* NULL: no term */
    bool blocks;
    double low, high, dual;
    ares_loss_sums *sums; /* by chunk */
    int *rc;
} chunks;

/*
 * Gathers from token t on; the first token it did not look at. A mask that is neither 0 nor 1 ends
 * the block with n = -1.
 */
static INLINE int64_t gather(const chunks *c, int64_t t, int64_t end, block *b)
{
    const ares_loss_args *a = c->a;
    int n = 0;
    for (; t < end && n < BLOCK; t++) {
        if (a->mask[t] > 1) {
            b->n = -1;
            return t;
        }
        b->at[n] = (int)(t - (end - CHUNK)); /* relative to a place before the chunk: fits an int */
        n += a->mask[t];
    }
    b->n = n;
    return t;
}

/* Whether all of it is finite: a difference with itself is 0, or NaN. */
static INLINE bool load(const chunks *c, int64_t base, block *b)
{
    const ares_loss_args *a = c->a;
    double odd = 0;
    for (int i = 0; i < b->n; i++) {
        int64_t t = base + b->at[i];
        double x = loss_log_ratio(a, t), w = loss_weight(a, t), advantage = (double)a->advantage[t];
        b->log_ratio[i] = x;
        b->advantage[i] = advantage;
        b->weight[i] = w;
        odd += (x - x) + (w - w) + (advantage - advantage);
    }
    for (int i = 0; i < b->n && c->k; i++) {
        int64_t t = base + b->at[i];
        b->x[i] = (double)a->log_prob[t] - (double)c->k->ref_log_prob[t];
    }
    for (int i = 0; i < b->n && c->k && c->k->weight; i++) {
        double w = (double)c->k->weight[base + b->at[i]];
        odd += w - w;
    }
    for (int i = 0; i < b->n && a->entropy; i++) {
        double h = (double)a->entropy[base + b->at[i]];
        odd += h - h;
    }
    return odd == 0;
}

static INLINE void terms_of_ppo(const chunks *c, block *restrict b)
{
    double low = c->low, high = c->high, dual = c->dual;
    int n = b->n;
    for (int i = 0; i < n; i++) b->bound[i] = ares_loss_bound(b->log_ratio[i]);
    ares_f64_exp_all(n, b->bound, b->ratio);
    for (int i = 0; i < n; i++) {
        ares_token_term e = ares_ppo_at(b->ratio[i], b->bound[i] != b->log_ratio[i],
                                        b->advantage[i], low, high, dual);
        b->loss[i] = e.loss;
        b->clipped[i] = ares_loss_clamp(b->ratio[i], low, high);
        b->gradient[i] = e.gradient;
        b->clip_high[i] = (double)e.clip_high;
        b->clip_low[i] = (double)e.clip_low;
    }
}

/* Whether every value is finite, as above. */
static INLINE bool terms_of_k3(block *restrict b)
{
    double odd = 0;
    int n = b->n;
    for (int i = 0; i < n; i++) b->k[i] = ares_loss_bound(-b->x[i]);
    ares_f64_exp_all(n, b->k, b->e);
    for (int i = 0; i < n; i++) {
        b->kl[i] = ares_kl_k3_at(b->e[i], b->k[i]);
        b->slope[i] = ares_kl_k3_derivative_at(b->e[i], b->x[i]);
        b->clamped[i] = (double)ares_kl_k3_clamped_at(b->e[i], b->x[i]);
    }
    for (int i = 0; i < n; i++) odd += b->kl[i] - b->kl[i];
    return odd == 0;
}

static INLINE void sum_block(const block *b, ares_loss_sums *into)
{
    ares_loss_sums s = *into; /* in registers */
    for (int i = 0; i < b->n; i++) {
        double x = b->bound[i], r = b->ratio[i];
        s.loss += b->loss[i] * b->weight[i];
        s.clip_high += b->clip_high[i];
        s.clip_low += b->clip_low[i];
        s.neg_log_ratio -= x;
        s.k2 += 0.5 * x * x;
        s.k3 += r - 1 - x;
        s.ratio += r;
        s.ratio_clipped += b->clipped[i];
        s.ratio_off += fabs(r - 1);
        s.loss_abs += fabs(b->loss[i]);
        s.saturated += (double)(x != b->log_ratio[i]);
        s.ratio_min = r < s.ratio_min ? r : s.ratio_min;
        s.ratio_max = r > s.ratio_max ? r : s.ratio_max;
    }
    s.tokens += b->n;
    for (int i = 0; i < b->n; i++)
        s.bins[(int)((ares_loss_clamp(b->bound[i], -2, 2 - 1e-9) + 2) * 16)] += 1;
    *into = s;
}

static INLINE void store(const chunks *c, int64_t base, const block *b, ares_loss_sums *s)
{
    const ares_loss_args *a = c->a;
    const ares_kl_args *k = c->k;
    double coeff = a->cfg->entropy_coeff, neg_log_prob = 0, kl = 0, kl_plain = 0, clamped = 0,
           entropy = 0;
    for (int i = 0; i < b->n; i++) {
        int64_t t = base + b->at[i];
        a->d_log_prob[t] += (float)(b->gradient[i] * b->weight[i]);
        neg_log_prob -= (double)a->weight[t] * (double)a->log_prob[t];
    }
    for (int i = 0; i < b->n && k; i++) {
        int64_t t = base + b->at[i];
        double w = (double)a->weight[t], scale = k->weight ? (double)k->weight[t] : 1;
        kl += w * scale * b->kl[i];
        kl_plain += w * b->kl[i];
        clamped += b->clamped[i];
        a->d_log_prob[t] += (float)(w * k->coef * scale * b->slope[i]);
    }
    for (int i = 0; i < b->n && k && k->out; i++) k->out[base + b->at[i]] = (float)b->kl[i];
    for (int i = 0; i < b->n && a->entropy; i++)
        entropy += (double)a->weight[base + b->at[i]] * (double)a->entropy[base + b->at[i]];
    for (int i = 0; i < b->n && coeff != 0 && a->d_entropy; i++)
        a->d_entropy[base + b->at[i]] -= (float)((double)a->weight[base + b->at[i]] * coeff);
    s->neg_log_prob += neg_log_prob;
    s->kl += kl;
    s->kl_plain += kl_plain;
    s->kl_tokens += k ? b->n : 0;
    s->kl_clamped += clamped;
    s->entropy += entropy;
}

static int64_t row_at(const ares_loss_args *a, int64_t t)
{
    int64_t low = a->row, high = a->end;
    while (low + 1 < high) {
        int64_t middle = (low + high) / 2;
        if (a->row_start[middle] <= a->first + t) low = middle;
        else high = middle;
    }
    return low;
}

/* Entropy over the answers that were right, and over the others. */
static void by_answer(const ares_loss_args *a, int64_t t, int64_t end, ares_loss_sums *s)
{
    if (!a->entropy || !a->samples || !a->row_start || t >= end) return;
    for (int64_t row = row_at(a, t); t < end; row++) {
        int64_t stop = row + 1 < a->end ? ARES_MIN(end, a->row_start[row + 1] - a->first) : end;
        double sum = 0, n = 0;
        for (; t < stop; t++) {
            if (!a->mask[t]) continue;
            sum += (double)a->entropy[t];
            n++;
        }
        if (isnan(a->samples[row].accuracy)) continue;
        bool right = a->samples[row].accuracy > 0.5f;
        *(right ? &s->entropy_right : &s->entropy_wrong) += sum;
        *(right ? &s->tokens_right : &s->tokens_wrong) += n;
    }
}

static INLINE int blocks(const chunks *c, int64_t from, int64_t end, ares_loss_sums *s)
{
    block b;
    for (int64_t t = from; t < end;) {
        t = gather(c, t, end, &b);
        if (b.n < 0 || !load(c, end - CHUNK, &b)) return ARES_ENUMERIC;
        terms_of_ppo(c, &b);
        if (c->k && !terms_of_k3(&b)) return ARES_ENUMERIC;
        sum_block(&b, s);
        store(c, end - CHUNK, &b, s);
    }
    by_answer(c->a, from, end, s);
    return ARES_OK;
}

/* The same bits with any instruction set: nothing is fused, and sums have one order. */
#ifdef __x86_64__
__attribute__((target("avx512f,avx512dq,avx512vl"))) static int
blocks_avx512(const chunks *c, int64_t from, int64_t end, ares_loss_sums *s)
{
    return blocks(c, from, end, s);
}
__attribute__((target("avx2"))) static int blocks_avx2(const chunks *c, int64_t from, int64_t end,
                                                       ares_loss_sums *s)
{
    return blocks(c, from, end, s);
}
#endif
static int by_blocks(const chunks *c, int64_t from, int64_t end, ares_loss_sums *s)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return blocks_avx512(c, from, end, s);
    if (__builtin_cpu_supports("avx2")) return blocks_avx2(c, from, end, s);
#endif
    return blocks(c, from, end, s);
}

#define PART(p, from) ((p) ? (p) + (from) : NULL)

static int by_call(const chunks *c, int64_t from, int64_t end, ares_loss_sums *s)
{
    ares_loss_args a = *c->a;
    ares_kl_args k = c->k ? *c->k : (ares_kl_args){ 0 };
    a.n = end - from;
    a.log_prob = PART(a.log_prob, from), a.old_log_prob = PART(a.old_log_prob, from),
    a.advantage = PART(a.advantage, from), a.weight = PART(a.weight, from);
    a.is_weight = PART(a.is_weight, from), a.mask = PART(a.mask, from),
    a.entropy = PART(a.entropy, from);
    a.d_log_prob = PART(a.d_log_prob, from), a.d_entropy = PART(a.d_entropy, from);
    k.ref_log_prob = PART(k.ref_log_prob, from), k.weight = PART(k.weight, from),
    k.out = PART(k.out, from), k.full = PART(k.full, from), k.d_full = PART(k.d_full, from);
    a.sums = s;
    if (a.row_start) a.row = row_at(&a, from);
    a.first += from;
    ARES_TRY(c->loss->compute(&a));
    return ares_loss_terms(&a, c->k ? &k : NULL);
}

static void chunk(void *ctx, int64_t i, int worker)
{
    chunks *c = ctx;
    int64_t from = i * CHUNK, end = ARES_MIN(c->a->n, from + CHUNK);
    (void)worker;
    ares_loss_sums_init(&c->sums[i]);
    c->rc[i] =
        c->blocks ? by_blocks(c, from, end, &c->sums[i]) : by_call(c, from, end, &c->sums[i]);
}

int ares_loss_pass(ares_pool *pool, const ares_loss *loss, const ares_loss_args *a,
                   const ares_kl_args *k)
{
    bool ppo = loss == &ares_loss_default || loss == &ares_loss_dapo,
         kl = k && (k->kl->value ? k->ref_log_prob != NULL : k->full != NULL);
    if (!(loss->flags & ARES_LOSS_LOCAL)) {
        ARES_TRY(loss->compute(a));
        return ares_loss_terms(a, k);
    }
    int64_t n = (a->n + CHUNK - 1) / CHUNK;
    chunks c = { .loss = loss,
                 .a = a,
                 .k = kl ? k : NULL,
                 .blocks = ppo && (!kl || strcmp(k->kl->name, "low_var_kl") == 0),
                 .low = 1 - a->cfg->clip_ratio_low,
                 .high = 1 + a->cfg->clip_ratio_high,
                 .dual = loss_dual(a->cfg, loss->flags & ARES_LOSS_DUAL ? 3 : INFINITY) };
    c.sums = ares_malloc((size_t)(n + 1) * sizeof *c.sums);
    c.rc = ares_malloc((size_t)(n + 1) * sizeof *c.rc);
    ares_pool_run(pool, n, chunk, &c);
    int rc = ARES_OK;
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        rc = c.rc[i];
        ares_loss_sums_merge(a->sums, &c.sums[i]);
    }
    ares_free(c.rc);
    ares_free(c.sums);
    if (rc == ARES_OK) return ARES_OK;
    ARES_TRY(loss->compute(a)); /* tells the first fault with its place */
    ARES_TRY(ares_loss_terms(a, k));
    return rc;
}
