/*
 * One token per row, drawn in the pass over the vocabulary that also computes its log-prob and
 * entropy: Gumbel-max, the argmax of z - log E with E exponential, from Philox keyed by row and
 * token id. E is computed only where a bound from its exponent could beat the best token so far,
 * which saves most logarithms. Only rows with top-k or top-p keep their logits; the tokens that
 * these leave (the nucleus) are found by weighted selection among the likely ones.
 */
#include "vocab.h"

enum { MASS_BITS = 20 };

typedef struct sample_job {
    ares_device *d;
    const ares_sample_args *a;
    int64_t row, rows, rows_per_task, chunks;
    int64_t first, own;        /* the chunks of w: [first, first + own) */
    row_plan *plan;            /* [rows] */
    vocab_part *part, *part_1; /* [rows][chunks]; at temperature 1: NULL when not wanted */
    best *best;                /* [rows][chunks] */
    /* [lists][rows][n_likely]: of the chunks that a worker, or a part, took, most likely first */
    likely *likely;
    int32_t *n_likely; /* [lists][rows] */
    int lists;
} sample_job;

/* Sixteen counters at once: the words of tokens 4 c .. 4 c + 63, in token order. */
static inline void philox_64(uint32_t counter, const uint32_t key[2], uint32_t word[64])
{
    v16i c0 = v16i_add(v16i_set1(counter), v16i_iota()), c1 = v16i_set1(0), c2 = c1, c3 = c1;
    const v16i m0 = v16i_set1(0xD2511F53u), m1 = v16i_set1(0xCD9E8D57u);
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        v16i a_hi, a_lo, b_hi, b_lo;
        v16i_mul_wide(c0, m0, &a_hi, &a_lo);
        v16i_mul_wide(c2, m1, &b_hi, &b_lo);
        c0 = v16i_xor(v16i_xor(b_hi, c1), v16i_set1(k0));
        c2 = v16i_xor(v16i_xor(a_hi, c3), v16i_set1(k1));
        c1 = b_lo;
        c3 = a_lo;
    }
    typedef uint32_t u4 __attribute__((vector_size(16), aligned(4), may_alias));
    uint32_t lane[4][16];
    v16i_store(lane[0], c0), v16i_store(lane[1], c1), v16i_store(lane[2], c2),
        v16i_store(lane[3], c3);
    for (int i = 0; i < 16; i += 4) {
        u4 a = *(const u4 *)(lane[0] + i), b = *(const u4 *)(lane[1] + i),
           c = *(const u4 *)(lane[2] + i), e = *(const u4 *)(lane[3] + i);
        u4 ab0 = V4_SHUFFLE(a, b, 0, 4, 1, 5), ab1 = V4_SHUFFLE(a, b, 2, 6, 3, 7);
        u4 ce0 = V4_SHUFFLE(c, e, 0, 4, 1, 5), ce1 = V4_SHUFFLE(c, e, 2, 6, 3, 7);
        *(u4 *)(word + 4 * i) = V4_SHUFFLE(ab0, ce0, 0, 1, 4, 5);
        *(u4 *)(word + 4 * i + 4) = V4_SHUFFLE(ab0, ce0, 2, 3, 6, 7);
        *(u4 *)(word + 4 * i + 8) = V4_SHUFFLE(ab1, ce1, 0, 1, 4, 5);
        *(u4 *)(word + 4 * i + 12) = V4_SHUFFLE(ab1, ce1, 2, 3, 6, 7);
    }
}

/* Unsigned lanes as floats, rounded once or twice: the relative error is below 2^-23. */
static inline v16 from_unsigned(v16i w)
{
    v16 high = v16_from_int(v16i_shr(w, 16)), low = v16_from_int(v16i_and(w, v16i_set1(0xffff)));
    return v16_fma(high, v16_set1(65536.0f), low);
}

/*
 * -log E, with E = -log(1 - u) and u = (w + 1/2) 2^-32. The token that wins usually has a tiny u,
 * which f32 represents well but 1 - u not. So log(1 - u) is log(y) u / (1 - y) with the rounded
 * y = 1 - u (Kahan), and for u > 1/2 it comes from the complement of w.
 */
static __attribute__((noinline)) v16 gumbel(v16i w)
{
    const v16 one = v16_set1(1.0f), half = v16_set1(0.5f), unit = v16_set1(0x1p-32f);
    v16 u = v16_mul(v16_add(from_unsigned(w), half), unit);
    v16 rest = v16_mul(v16_add(from_unsigned(v16i_xor(w, v16i_set1(0xffffffffu))), half), unit);
    v16 y = v16_sub(one, u), gap = v16_sub(one, y);
    v16m exact = v16_eq(gap, v16_zero()), upper = v16_gt(u, half);
    v16 small =
        v16_select(exact, u, v16_mul(v16_neg(v16_log(y)), v16_div(u, v16_select(exact, one, gap))));
    return v16_neg(v16_log(v16_select(upper, v16_neg(v16_log(rest)), small)));
}

/* An upper bound of gumbel(w): -log 2^floor(log2 u) plus a margin. */
static inline v16 gumbel_bound(v16i w)
{
    v16 u = v16_add(from_unsigned(w), v16_set1(0.5f));
    v16 exponent = v16_from_int(v16i_sub(v16i_shr(v16_bits(u), 23), v16i_set1(127 + 32)));
    return v16_fma(exponent, v16_set1(-0.69314718f), v16_set1(0.01f));
}

/* Of equal keys the lower id wins. */
static inline void take_better(best *b, float key, float logit, int32_t token)
{
    if (b->token >= 0 && !(key > b->key || (key == b->key && token < b->token))) return;
    *b = (best){ key, logit, token };
}

/* The best token of a chunk by z + Gumbel. */
static void gumbel_chunk(const float *z, int n, int32_t first, float inv_temperature,
                         const uint32_t key[2], best *b)
{
    v16 scale = v16_set1(inv_temperature);
    uint32_t word[64];
    for (int i = 0; i < n; i += 16) {
        /* four random words per counter, so token t has word t % 4 of counter t / 4 */
        if (i % 64 == 0) philox_64((uint32_t)(first + i) / 4, key, word);
        v16i w = v16i_load(word + i % 64);
        v16 logit = vocab_load(z + i, n - i, scale);
        /* the bound is cheap; the two logarithms follow only for lanes that may win, soon few */
        uint32_t may = v16m_bits(v16_ge(v16_add(logit, gumbel_bound(w)), v16_set1(b->key)));
        if (n - i < 16) may &= (1u << (n - i)) - 1;
        if (!may) continue;
        float value[16];
        v16_store(value, v16_add(logit, gumbel(w)));
        for (; may; may &= may - 1) {
            int j = __builtin_ctz(may);
            take_better(b, value[j], z[i + j], first + i + j);
        }
    }
}

/* The order of likely tokens: higher logit, then lower id. */
static inline bool likelier(likely a, likely b)
{
    return a.z > b.z || (a.z == b.z && a.token < b.token);
}

/*
 * Inserts x into a list of the n most likely. No two tokens are equal in that order, so the result
 * does not depend on the order in which they come.
 */
static inline int list_likely(likely *list, int n, int most, likely x)
{
    if (n == most && !likelier(x, list[n - 1])) return n;
    int at = n < most ? n : n - 1;
    for (; at > 0 && likelier(x, list[at - 1]); at--) list[at] = list[at - 1];
    list[at] = x;
    return n < most ? n + 1 : n;
}

/*
 * The list continues from chunk to chunk. Only logits that reach its last entry are compared with
 * it, and soon these are few.
 */
static int likely_chunk(const float *z, int width, int32_t first, int most, likely *list, int n)
{
    for (int i = 0; i < width; i += 16) {
        v16 logit = vocab_load(z + i, width - i, v16_set1(1.0f));
        uint32_t may = v16m_bits(n < most ? v16_gt(logit, v16_set1(-INFINITY))
                                          : v16_ge(logit, v16_set1(list[n - 1].z)));
        for (; may; may &= may - 1) {
            int j = __builtin_ctz(may);
            n = list_likely(list, n, most, (likely){ z[i + j], first + i + j });
        }
    }
    return n;
}

/* One chunk of some rows: its logits, its statistics, and its best token or its copy for later. */
static void chunk_task(void *ctx, int64_t task, int worker)
{
    const sample_job *j = ctx;
    const ares_sample_args *a = j->a;
    int64_t first = task / j->own * j->rows_per_task,
            rows = ARES_MIN(j->rows_per_task, j->rows - first), chunk = j->first + task % j->own;
    int width = vocab_width(a->vocab, chunk);
    int32_t token = (int32_t)(chunk * VOCAB_CHUNK);
    const float *logits = a->logits ? a->logits + (j->row + first) * a->vocab + token : NULL;
    int64_t ld = logits ? a->vocab : VOCAB_CHUNK;
    if (!logits) {
        vocab_memory memory = vocab_memory_of(j->d, worker, rows, a->w, NULL);
        vocab_logits(a->w, a->vocab - j->first * VOCAB_CHUNK, chunk - j->first,
                     (const float *)a->x + (j->row + first) * a->ldx, a->ldx, rows, memory.z,
                     VOCAB_CHUNK, memory.packed, a->adapter, j->row + first);
        logits = memory.z;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *z = logits + r * ld;
        int64_t at = (first + r) * j->chunks + chunk, row = j->row + first + r;
        const row_plan *p = &j->plan[first + r];
        j->part[at] = vocab_part_of(z, width, p->inv_temperature);
        if (j->part_1)
            j->part_1[at] =
                p->inv_temperature == 1.0f ? j->part[at] : vocab_part_of(z, width, 1.0f);
        float copy[VOCAB_CHUNK];
        /* what tokens are drawn from: z itself, or where ids of the chunk are barred a copy with
         * -inf there */
        const float *from = z;
        for (int i = 0; i < a->n_barred; i++) {
            int32_t place = a->barred[i] - token;
            if (place < 0 || place >= width) continue;
            if (from == z) memcpy(copy, z, (size_t)width * sizeof *copy);
            copy[place] = -INFINITY;
            from = copy;
        }
        best b = { -INFINITY, 0.0f, -1 };
        if (p->kind == GUMBEL)
            gumbel_chunk(from, width, token, p->inv_temperature, a->key[row].k, &b);
        else if (p->kind == GREEDY) {
            for (int i = 0; i < width; i += 16) {
                uint32_t may = v16m_bits(
                    v16_gt(vocab_load(from + i, width - i, v16_set1(1.0f)), v16_set1(b.key)));
                for (; may; may &= may - 1) {
                    int lane = __builtin_ctz(may);
                    take_better(&b, from[i + lane], from[i + lane], token + i + lane);
                }
            }
        }
        /* top-k and top-p need the whole row: its logits are kept for pick_filtered */
        else if (p->kind == FILTERED)
            memcpy(p->logits + token, from, (size_t)width * sizeof(float));
        j->best[at] = b;
        if (!a->n_likely) continue;
        int64_t list = worker * j->rows + first + r;
        j->n_likely[list] = likely_chunk(z, width, token, a->n_likely,
                                         j->likely + list * a->n_likely, j->n_likely[list]);
    }
}

/* ------------------------------------------------------------------ top-k and top-p */

/* The order of candidates: higher logit, then lower id. */
static bool above(const candidate *a, const candidate *b)
{
    return a->z > b->z || (a->z == b->z && a->token < b->token);
}

/*
 * Moves the highest candidates to the front, as few as have weights (masses, or 1 each with
 * `count`) that sum to `need`, and returns how many they are; n where all of them do not. Weighted
 * quickselect.
 */
static int64_t select_top(candidate *c, int64_t n, bool count, uint64_t need)
{
    int64_t lo = 0, hi = n;
    while (hi - lo > 1) {
        candidate *mid = &c[lo + (hi - lo) / 2], *x = &c[lo], *y = &c[hi - 1];
        candidate pivot = above(x, mid) ? (above(mid, y) ? *mid
                                           : above(x, y) ? *y
                                                         : *x)
                                        : (above(x, y)     ? *x
                                           : above(mid, y) ? *y
                                                           : *mid);
        int64_t i = lo, k = hi - 1;
        uint64_t front = 0;
        for (;;) { /* [lo, i) is at or above the pivot, (k, hi) below it */
            while (i <= k && !above(&pivot, &c[i])) front += count ? 1 : c[i].mass, i++;
            while (i <= k && above(&pivot, &c[k])) k--;
            if (i >= k) break;
            candidate swap = c[i];
            c[i] = c[k], c[k] = swap;
        }
        if (i == hi) { /* the pivot was the lowest: put it last, so that the range shrinks */
            int64_t at = lo;
            while (c[at].token != pivot.token) at++;
            c[at] = c[hi - 1], c[hi - 1] = pivot;
            front -= count ? 1 : pivot.mass;
            i = hi - 1;
        }
        if (front >= need) hi = i;
        else need -= front, lo = i;
    }
    return hi;
}

/* floor(e 2^40) for e in [0, 1], in two exact steps of 2^20. */
static inline uint64_t mass_of(float e)
{
    float high = truncf(e * 0x1p20f);
    return ((uint64_t)high << MASS_BITS) + (uint64_t)((e * 0x1p20f - high) * 0x1p20f);
}
/* mass_of over all tokens, 16 at a time: whole numbers, so that their order does not matter. */
static uint64_t total_mass(const float *z, int64_t n, float inv_temperature, float max)
{
    uint64_t total = 0;
    for (int64_t c = 0; c < n; c += VOCAB_CHUNK) {
        v16i high = v16i_set1(0), low = high;
        for (int64_t i = c; i < ARES_MIN(n, c + VOCAB_CHUNK); i += 16) {
            v16 e = v16_exp(
                v16_sub(vocab_load(z + i, (int)ARES_MIN(16, n - i), v16_set1(inv_temperature)),
                        v16_set1(max)));
            v16 scaled = v16_mul(e, v16_set1(0x1p20f));
            v16i whole = v16_trunc(scaled);
            high = v16i_add(high, whole);
            low = v16i_add(
                low, v16_trunc(v16_mul(v16_sub(scaled, v16_from_int(whole)), v16_set1(0x1p20f))));
        }
        uint32_t h[16], l[16];
        v16i_store(h, high), v16i_store(l, low);
        for (int i = 0; i < 16; i++) total += ((uint64_t)h[i] << MASS_BITS) + l[i];
    }
    return total;
}

/* Candidates at most `depth` below the maximum; *mass is the sum of their masses. */
static int64_t gather(const float *z, int64_t n, float inv_temperature, float max, float depth,
                      candidate *c, uint64_t *mass)
{
    int64_t count = 0;
    *mass = 0;
    for (int64_t i = 0; i < n; i += 16) {
        v16 logit = vocab_load(z + i, (int)ARES_MIN(16, n - i), v16_set1(inv_temperature)),
            d = v16_sub(logit, v16_set1(max));
        uint32_t near = v16m_bits(v16_ge(d, v16_set1(-depth)));
        if (n - i < 16) near &= (1u << (n - i)) - 1;
        if (!near) continue;
        float e[16], value[16];
        v16_store(e, v16_exp(d));
        v16_store(value, logit);
        for (; near; near &= near - 1) {
            int j = __builtin_ctz(near);
            c[count] = (candidate){ value[j], (int32_t)(i + j), mass_of(e[j]) };
            *mass += c[count++].mass;
        }
    }
    return count;
}

/* The mass that top_p of the total is, at least 1 so that a token remains. */
static uint64_t need_of(float top_p, uint64_t total)
{
    double need = ceil((double)top_p * (double)total);
    return need < 1.0 ? 1 : need >= (double)total ? total : (uint64_t)need;
}

/*
 * Top-k first, then top-p of the mass that it leaves (as transformers and vLLM do), then Gumbel-max
 * over the remaining tokens.
 */
static best pick_filtered(const sample_job *j, int64_t r, float max, int worker)
{
    const ares_sample_args *a = j->a;
    const row_plan *p = &j->plan[r];
    int64_t row = j->row + r, n = a->vocab, count = 0;
    int64_t top_k = a->top_k && a->top_k[row] > 0 ? ARES_MIN((int64_t)a->top_k[row], n) : 0;
    float top_p = a->top_p ? a->top_p[row] : 1.0f;
    uint64_t total = top_k ? 0 : total_mass(p->logits, n, p->inv_temperature, max), mass = 0;
    uint64_t need = top_k ? 0 : need_of(top_p, total);
    candidate *c = kernels_scratch(j->d, worker, (size_t)n * sizeof(candidate));
    /* most rows have enough mass near the maximum: look deeper only where it is not enough */
    static const float depth[] = { 8.0f, 20.0f, INFINITY };
    for (int i = 0; i < ARES_COUNT(depth); i++) {
        count = gather(p->logits, n, p->inv_temperature, max, depth[i], c, &mass);
        if (top_k ? count >= top_k : mass >= need) break;
    }
    if (top_k) {
        count = select_top(c, count, true, (uint64_t)top_k);
        total = 0;
        for (int64_t i = 0; i < count; i++) total += c[i].mass;
        need = need_of(top_p, total);
    }
    if (top_p < 1.0f) count = select_top(c, count, false, need);
    best b = { -INFINITY, 0.0f, -1 };
    for (int64_t i = 0; i < count; i += 16) {
        uint32_t word[16] = { 0 };
        float value[16] = { 0 };
        int width = (int)ARES_MIN(16, count - i);
        for (int l = 0; l < width; l++) {
            uint32_t out[4];
            ares_philox((uint32_t[]){ (uint32_t)c[i + l].token / 4, 0, 0, 0 }, a->key[row].k, out);
            word[l] = out[c[i + l].token % 4];
            value[l] = c[i + l].z;
        }
        v16_store(value, v16_add(v16_load(value), gumbel(v16i_load(word))));
        for (int l = 0; l < width; l++)
            take_better(&b, value[l], p->logits[c[i + l].token], c[i + l].token);
    }
    return b;
}

/* ------------------------------------------------------------------ rows */

/* Merges the lists of a row; returns its length. */
static int join_lists(const sample_job *j, int64_t r, likely *list)
{
    int n = 0, most = j->a->n_likely;
    for (int64_t at = r; at < j->lists * j->rows; at += j->rows)
        for (int i = 0; i < j->n_likely[at]; i++)
            n = list_likely(list, n, most, j->likely[at * most + i]);
    return n;
}

/* One row, from what its chunks left. */
static void row_task(void *ctx, int64_t r, int worker)
{
    const sample_job *j = ctx;
    const ares_sample_args *a = j->a;
    int64_t row = j->row + r;
    const row_plan *p = &j->plan[r];
    vocab_total t = vocab_merge(j->part + r * j->chunks, j->chunks);
    best b = { -INFINITY, 0.0f, -1 };
    if (p->kind == FILTERED) b = pick_filtered(j, r, t.max, worker);
    else
        for (int64_t c = 0; c < j->chunks; c++) {
            const best *one = &j->best[r * j->chunks + c];
            if (one->token >= 0) take_better(&b, one->key, one->logit, one->token);
        }
    if (b.token < 0) b = (best){ NAN, NAN, 0 }; /* every logit is NaN: the log-prob says so */
    a->token[row] = b.token;
    a->log_prob[row] = vocab_log_prob(&t, b.logit * p->inv_temperature);
    a->entropy[row] = t.entropy;
    if (!j->part_1) return;
    vocab_total one =
        p->inv_temperature == 1.0f ? t : vocab_merge(j->part_1 + r * j->chunks, j->chunks);
    if (a->n_likely) {
        likely list[ARES_LIKELY_MAX];
        int most = a->n_likely, n = join_lists(j, r, list);
        for (int i = 0; i < most; i++) {
            a->likely_token[row * most + i] = i < n ? list[i].token : -1;
            a->likely_log_prob[row * most + i] =
                i < n ? vocab_log_prob(&one, list[i].z) : -INFINITY;
        }
    }
    if (!a->log_prob_1) return;
    a->log_prob_1[row] = vocab_log_prob(&one, b.logit);
    a->entropy_1[row] = one.entropy;
}

/* Whether top-k or top-p cuts anything of a row; greedy rows need neither. */
static bool is_filtered(const ares_sample_args *a, int64_t row)
{
    return a->temperature[row] > 0.0f &&
           ((a->top_p && a->top_p[row] < 1.0f) ||
            (a->top_k && a->top_k[row] > 0 && a->top_k[row] < a->vocab));
}

/* ------------------------------------------------------------------ a head in parts */

/*
 * What a part sends: of each row its chunks and its most likely tokens (token -1 ends a list), of
 * each filtered row its logits. Every part sends as much as the largest.
 */
typedef struct wire {
    chunk_result *chunk; /* [rows][each] */
    likely *likely;      /* [rows][n_likely] */
    float *logits;       /* [filtered][each * VOCAB_CHUNK] */
    int64_t each;
} wire;
static wire wire_at(char *base, const sample_job *j, int64_t each)
{
    wire w = { .each = each, .chunk = (void *)base };
    w.likely = (void *)(w.chunk + j->rows * each);
    w.logits = (void *)(w.likely + j->rows * j->a->n_likely);
    return w;
}

/* Every part gets what all parts know; then each makes the same rows of it. */
static void join_parts(sample_job *j, int64_t filtered)
{
    const ares_sample_args *a = j->a;
    const ares_vocab_parts *parts = a->parts;
    int64_t each = vocab_chunks(ares_vocab_part_first(a->vocab, parts->parts, 1));
    size_t bytes = (size_t)(j->rows * each) * sizeof(chunk_result) +
                   (size_t)(j->rows * a->n_likely) * sizeof(likely) +
                   (size_t)(filtered * each * VOCAB_CHUNK) * sizeof(float);
    char *mine = ares_malloc(bytes), *all = ares_malloc(bytes * (size_t)parts->parts);
    wire w = wire_at(mine, j, each);
    memset(mine, 0, bytes);
    int64_t kept = 0, most = j->a->n_likely;
    for (int64_t r = 0; r < j->rows; r++) {
        const row_plan *p = &j->plan[r];
        for (int64_t c = 0; c < j->own; c++) {
            int64_t at = r * j->chunks + j->first + c;
            w.chunk[r * w.each + c] =
                (chunk_result){ j->part[at], j->part_1 ? j->part_1[at] : (vocab_part){ 0 },
                                j->best[at] };
        }
        likely list[ARES_LIKELY_MAX];
        int n = most ? join_lists(j, r, list) : 0;
        for (int i = 0; i < most; i++)
            w.likely[r * most + i] = i < n ? list[i] : (likely){ -INFINITY, -1 };
        if (p->kind != FILTERED) continue;
        int64_t first = j->first * VOCAB_CHUNK,
                n_own = ARES_MIN((int64_t)j->a->vocab - first, j->own * VOCAB_CHUNK);
        if (j->own)
            memcpy(w.logits + kept * w.each * VOCAB_CHUNK, p->logits + first,
                   (size_t)n_own * sizeof(float));
        kept++;
    }
    parts->gather(parts->ctx, mine, all, bytes);
    j->lists = parts->parts;
    for (int i = 0; i < parts->parts; i++) {
        int64_t first = ares_vocab_part_first(a->vocab, parts->parts, i),
                end = ares_vocab_part_first(a->vocab, parts->parts, i + 1);
        w = wire_at(all + (size_t)i * bytes, j, each);
        /* its chunks, from chunk `begin` on, and its lists */
        int64_t begin = vocab_chunks(first);
        int64_t own = vocab_chunks(end) - vocab_chunks(first);
        int64_t taken = 0;
        for (int64_t r = 0; r < j->rows; r++) {
            for (int64_t c = 0; c < own; c++) {
                const chunk_result *x = &w.chunk[r * w.each + c];
                int64_t at = r * j->chunks + begin + c;
                j->part[at] = x->part;
                if (j->part_1) j->part_1[at] = x->part_1;
                j->best[at] = x->best;
            }
            int64_t list = i * j->rows + r;
            int n = 0;
            for (; n < most && w.likely[r * most + n].token >= 0; n++)
                j->likely[list * most + n] = w.likely[r * most + n];
            if (most) j->n_likely[list] = n;
            if (j->plan[r].kind != FILTERED) continue;
            int64_t at = begin * VOCAB_CHUNK;
            if (own)
                memcpy(j->plan[r].logits + at, w.logits + taken * w.each * VOCAB_CHUNK,
                       (size_t)ARES_MIN((int64_t)j->a->vocab - at, own * VOCAB_CHUNK) *
                           sizeof(float));
            taken++;
        }
    }
    ares_free(mine);
    ares_free(all);
}

/* The rows [0, rows) of a job whose scratch is laid out: chunk by chunk, then row by row. */
static void run_rows(sample_job *j, int64_t filtered)
{
    ares_device *d = j->d;
    const ares_sample_args *a = j->a;
    int64_t own = ARES_MIN((int64_t)a->vocab - j->first * VOCAB_CHUNK, j->own * VOCAB_CHUNK);
    j->rows_per_task = vocab_rows_per_task(j->rows, j->own, ares_pool_threads(d->pool));
    if (j->own)
        kernels_run(
            d, a->logits ? (double)(j->rows * a->vocab) / 1e3 : vocab_work_us(a->w, j->rows, own),
            (j->rows + j->rows_per_task - 1) / j->rows_per_task * j->own, chunk_task, j);
    if (a->parts) join_parts(j, filtered);
    kernels_run(d, (double)(j->rows * j->chunks) / 50 + (double)(filtered * a->vocab) / 1e3,
                j->rows, row_task, j);
}

void ARES_K(sample)(ares_device *d, const ares_sample_args *a)
{
    const ares_vocab_parts *cut = a->parts;
    int32_t begin = cut ? ares_vocab_part_first(a->vocab, cut->parts, cut->part) : 0,
            end = cut ? ares_vocab_part_first(a->vocab, cut->parts, cut->part + 1) : a->vocab;
    ARES_ASSERT(a->logits || (vocab_serves(a->w) && end - begin <= a->w->n));
    ARES_ASSERT(!cut || !a->logits);
    ARES_ASSERT(!a->log_prob_1 == !a->entropy_1 && a->n_likely >= 0 &&
                a->n_likely <= ARES_LIKELY_MAX);
    int64_t chunks = vocab_chunks(a->vocab), filtered = 0, rows;
    int workers = ares_pool_threads(d->pool), most_lists = ARES_MAX(workers, cut ? cut->parts : 1);
    for (int64_t row = 0; row < a->rows; row += rows) {
        /* as many rows as scratch holds: parts of all, logits of the filtered ones */
        for (rows = filtered = 0; row + rows < a->rows && rows < SAMPLED_ROWS; rows++) {
            bool keeps = is_filtered(a, row + rows);
            if (keeps && filtered == scratch_filtered(a->vocab)) break;
            filtered += keeps;
        }
        size_t parts = (size_t)(rows * chunks),
               lists = a->n_likely ? (size_t)(most_lists * rows) : 0;
        char *scratch = kernels_scratch(d, KERNELS_SHARED,
                                        scratch_sample(rows, chunks, filtered, a->vocab) +
                                            scratch_likely((int64_t)lists, a->n_likely));
        sample_job j = { .d = d,
                         .a = a,
                         .row = row,
                         .rows = rows,
                         .chunks = chunks,
                         .first = vocab_chunks(begin),
                         .own = vocab_chunks(end) - vocab_chunks(begin),
                         .plan = (void *)scratch,
                         .lists = workers };
        j.part = (void *)(j.plan + rows);
        j.part_1 = a->log_prob_1 || a->n_likely ? j.part + parts : NULL;
        j.best = (void *)(j.part + 2 * parts);
        j.likely = (void *)(j.best + parts);
        j.n_likely = (void *)(j.likely + lists * (size_t)a->n_likely);
        float *kept = (void *)(j.n_likely + lists);
        if (lists) memset(j.n_likely, 0, lists * sizeof *j.n_likely);
        for (int64_t r = 0; r < rows; r++) {
            bool greedy = !(a->temperature[row + r] > 0.0f);
            j.plan[r] = (row_plan){ greedy                    ? GREEDY
                                    : is_filtered(a, row + r) ? FILTERED
                                                              : GUMBEL,
                                    ares_inv_temperature(a->temperature[row + r]), NULL };
            if (j.plan[r].kind == FILTERED) {
                j.plan[r].logits = kept;
                kept += a->vocab;
            }
        }
        run_rows(&j, filtered);
    }
}
