/*
 * Statistics whose bits depend neither on the order of values nor on the number of ranks: sums,
 * moments and pass@k first, then percentiles by selection; the entropy of windows of tokens, which
 * AEPO counts; last groups in buckets by the deviation of their rewards.
 */
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "ares/algo.h"
#include "ares/kernels.h"

/*
 * Sums that depend neither on the order of rows nor on the number of ranks: the few values of a
 * group are sorted before they are added, and a whole batch is added exactly, in a fixed-point
 * number as wide as the range of doubles that is rounded once.
 */

/* A sorted copy; release it with ares_free. */
static double *sorted(const double *x, int64_t n)
{
    double *s = ares_malloc((size_t)n * sizeof *s);
    memcpy(s, x, (size_t)n * sizeof *s);
    ares_sort_f64(s, n);
    return s;
}

/*
 * Distances from the smallest value are added, so that equal values have exactly that value as
 * their mean.
 */
double stats_mean(const double *x, int64_t n)
{
    if (n <= 0) return 0;
    double *s = sorted(x, n), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += s[i] - s[0];
    double mean = s[0] + sum / (double)n;
    ares_free(s);
    return mean;
}

double stats_std(const double *x, int64_t n, double mean)
{
    if (n < 2) return 0;
    double *s = sorted(x, n), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (s[i] - mean) * (s[i] - mean);
    ares_free(s);
    return sqrt(sum / (double)(n - 1));
}

/* ---------------- exact sums: limb i counts units of 2^(32 i - 1152) */
enum { BIAS = 1152, CARRY_AFTER = 1 << 28 };

/* Brings the limbs into [0, 2^32); returns what is left over at the top, -1 for a negative sum. */
static int64_t carry(exact_sum *s)
{
    int64_t c = 0;
    for (int i = 0; i < EXACT_LIMBS; i++) {
        int64_t v = s->limb[i] + c;
        s->limb[i] = v & 0xffffffff;
        c = (v - s->limb[i]) / ((int64_t)1 << 32);
    }
    s->added = 0;
    return c;
}

/*
 * The digits come out of the bits of x: subnormals have the exponent of the smallest normal number,
 * and no leading 1.
 */
void exact_add(exact_sum *s, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    /* sign: all bits 1 where x is below 0, so that (v ^ sign) - sign is v or -v */
    int64_t exponent = (int64_t)(bits >> 52 & 2047), sign = -(int64_t)(bits >> 63);
    ARES_ASSERT(exponent < 2047);
    uint64_t m = (bits & 0xfffffffffffff) | (uint64_t)(exponent > 0) << 52;
    int64_t at = exponent + (exponent == 0) - 1075 + BIAS, shift = at % 32;
    int64_t *limb = s->limb + at / 32;
    uint64_t low = (m & 0xffffffff) << shift, high = (m >> 32) << shift; /* the latter below 2^53 */
    limb[0] += ((int64_t)(low & 0xffffffff) ^ sign) - sign;
    limb[1] += ((int64_t)((low >> 32) + (high & 0xffffffff)) ^ sign) - sign;
    limb[2] += ((int64_t)(high >> 32) ^ sign) - sign;
    /* the sign stays in the top limb */
    if (++s->added == CARRY_AFTER && carry(s) < 0) s->limb[EXACT_LIMBS - 1] -= (int64_t)1 << 32;
}

int exact_ranks(exact_sum *s, int n, ares_world *world)
{
    for (int i = 0; i < n; i++)
        if (carry(&s[i]) < 0) s[i].limb[EXACT_LIMBS - 1] -= (int64_t)1 << 32;
    return ares_world_sum_i64(world, s->limb, (int64_t)n * (int64_t)(sizeof *s / sizeof *s->limb));
}

double exact_value(const exact_sum *s)
{
    exact_sum c = *s;
    double sign = 1;
    if (carry(&c) < 0) {
        sign = -1;
        for (int i = 0; i < EXACT_LIMBS; i++) c.limb[i] = -s->limb[i];
        carry(&c);
    }
    int top = EXACT_LIMBS - 1;
    while (top > 2 && c.limb[top] == 0) top--;
    __extension__ typedef unsigned __int128 u128;
    u128 digits = (u128)(uint64_t)c.limb[top] << 64 | (u128)(uint64_t)c.limb[top - 1] << 32 |
                  (u128)(uint64_t)c.limb[top - 2];
    for (int i = 0; i < top - 2; i++)
        if (c.limb[i]) digits |= 1; /* at least 65 digits: the last only breaks ties */
    return sign * ldexp((double)digits, 32 * (top - 2) - BIAS);
}

/* ---------------- over the tokens of a mask, all ranks together */
/*
 * As in stats_mean, distances from the smallest value are added: equal values have exactly that
 * value as their mean and 0 as their variance, on any number of ranks.
 */
int stats_masked_moments(ares_world *world, const double *x, const uint8_t *mask, int64_t n,
                         stats_moments *out)
{
    exact_sum *s = ares_calloc(1, sizeof *s);
    int64_t count = 0;
    double least = INFINITY, negative;
    for (int64_t i = 0; i < n; i++) {
        if (!mask[i]) continue;
        least = fmin(least, x[i]);
        count++;
    }
    negative = -least;
    int rc = ares_world_max_f64(world, &negative, 1);
    least = -negative;
    for (int64_t i = 0; i < n; i++)
        if (mask[i]) exact_add(s, x[i] - least);
    if (rc == ARES_OK) rc = exact_ranks(s, 1, world);
    if (rc == ARES_OK) rc = ares_world_sum_i64(world, &count, 1);
    double m = (double)count;
    *out = (stats_moments){ .count = m, .mean = count ? least + exact_value(s) / m : 0 };
    *s = (exact_sum){ 0 };
    for (int64_t i = 0; i < n; i++)
        if (mask[i]) exact_add(s, (x[i] - out->mean) * (x[i] - out->mean));
    if (rc == ARES_OK) rc = exact_ranks(s, 1, world);
    if (count) out->population_var = exact_value(s) / m;
    if (count > 1) out->var = exact_value(s) / (m - 1);
    ares_free(s);
    return rc;
}

/* eps: added to the variance here, to the standard deviation in stats_masked_normalize. */
int stats_masked_whiten(ares_world *world, double *x, const uint8_t *mask, int64_t n)
{
    stats_moments m;
    ARES_TRY(stats_masked_moments(world, x, mask, n, &m));
    double scale = 1 / sqrt(m.var + 1e-8);
    for (int64_t i = 0; i < n; i++) x[i] = mask[i] ? (x[i] - m.mean) * scale : 0;
    return ARES_OK;
}

int stats_masked_normalize(ares_world *world, double *x, const uint8_t *mask, int64_t n)
{
    stats_moments m;
    ARES_TRY(stats_masked_moments(world, x, mask, n, &m));
    double std = sqrt(m.population_var);
    for (int64_t i = 0; i < n; i++) x[i] = mask[i] ? (x[i] - m.mean) / (std + 1e-5) : 0;
    return ARES_OK;
}

double ares_pass_at_k(int64_t n, int64_t correct, int64_t k)
{
    double missed = 1;
    if (n - correct < k) return 1;
    for (int64_t j = n - correct + 1; j <= n; j++) missed *= 1 - (double)k / (double)j;
    return 1 - missed;
}

int ares_pass_at_k_count(int64_t n)
{
    int count = 0;
    for (int64_t k = 1; n > 1 && k <= n; k *= 2) count++;
    return count;
}

/* The chance that the i-th of n in ascending order is the greatest of k draws. */
static double is_greatest(int64_t i, int64_t n, int64_t k)
{
    return pow((double)(i + 1) / (double)n, (double)k) - pow((double)i / (double)n, (double)k);
}

double ares_best_at_k(const double *values, int64_t n, int64_t k, double *std)
{
    double *x = sorted(values, n), best = 0, variance = 0;
    for (int64_t i = 0; i < n; i++) best += x[i] * is_greatest(i, n, k);
    for (int64_t i = 0; i < n; i++)
        variance += (x[i] - best) * (x[i] - best) * is_greatest(i, n, k);
    *std = sqrt(variance);
    ares_free(x);
    return best;
}

/* A vote that some answers give: their share of all answers, and the mean of their values. */
typedef struct vote {
    double share, value;
} vote;

/* The mean over all k draws with replacement of the value of the vote that most draws have. */
static double expected_of_majority(const double *values, const int32_t *votes, int64_t n, int64_t k)
{
    vote *v = ares_calloc((size_t)n + 1, sizeof *v);
    int64_t count = 0;
    double value = 0;
    for (int64_t i = 0; i < n; i++) {
        v[votes[i]].share++;
        v[votes[i]].value += values[i];
    }
    for (int64_t i = 0; i < n; i++)
        if (v[i].share > 0) v[count++] = (vote){ v[i].share / (double)n, v[i].value / v[i].share };
    double *choose = ares_calloc((size_t)((k + 1) * (k + 1)), sizeof *choose);
    for (int64_t i = 0; i <= k; i++) /* Pascal's triangle */
        for (int64_t j = 0; j <= i; j++)
            choose[i * (k + 1) + j] = j == 0 || j == i ? 1
                                                       : choose[(i - 1) * (k + 1) + j - 1] +
                                                             choose[(i - 1) * (k + 1) + j];
    for (int64_t most = 1; most <= k; most++) { /* the winning vote has `most` of the k draws */
        int64_t ties = k / most;
        size_t size = (size_t)((k + 1) * (ties + 1));
        double *weight = ares_calloc(2 * size, sizeof *weight), *sum = weight + size, part = 0;
        weight[0] = 1;
        /*
         * Dynamic programming over votes: each is added to the tables.
         *
         *   weight [k+1][ties+1]   weight[s][t]: the probability that s draws went to the votes so
         *                          far, none of which has more than `most`, and t of which have
         *                          exactly `most`
         *   sum    [k+1][ties+1]   the same, times the sum of these t votes' values
         */
        for (int64_t i = 0; i < count; i++) {
            const vote *one = &v[i];
            int64_t wide = ties + 1;
            for (int64_t s = k; s >= 0; s--)
                for (int64_t t = ties; t >= 0; t--) {
                    double w = 0, x = 0, power = 1;
                    for (int64_t c = 0; c <= ARES_MIN(s, most); c++, power *= one->share) {
                        int64_t from = (s - c) * wide + t - (c == most);
                        if (c == most && t == 0) break;
                        double p = choose[(k - s + c) * (k + 1) + c] * power;
                        w += p * weight[from];
                        x += p * (sum[from] + (c == most ? one->value * weight[from] : 0));
                    }
                    weight[s * wide + t] = w;
                    sum[s * wide + t] = x;
                }
        }
        /* those who tie are equally likely to have been drawn first */
        for (int64_t t = 1; t <= ties; t++) part += sum[k * (ties + 1) + t] / (double)t;
        value += part;
        ares_free(weight);
    }
    ares_free(choose);
    ares_free(v);
    return value;
}

double ares_maj_at_k(const double *values, const int32_t *votes, int64_t n, int64_t k, double *std)
{
    double mean = expected_of_majority(values, votes, n, k),
           *squares = ares_malloc((size_t)n * sizeof *squares);
    for (int64_t i = 0; i < n; i++) squares[i] = (values[i] - mean) * (values[i] - mean);
    *std = sqrt(expected_of_majority(squares, votes, n, k));
    ares_free(squares);
    return mean;
}

/* Percentiles by selection, O(n), with few branches that depend on the data. */

/* Insertion sort, for a few values. */
static void sort_few(double *x, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        double v = x[i];
        int64_t j = i;
        for (; j > 0 && x[j - 1] > v; j--) x[j] = x[j - 1];
        x[j] = v;
    }
}

/*
 * The k-th smallest of x [n], which is reordered. A histogram over the range finds the bin that
 * holds it, and only that bin is searched further: until few values are left no branch depends on
 * the data, where the processor would predict half of the comparisons wrongly.
 */
static double select_kth(double *x, int64_t n, int64_t k)
{
    enum { BINS = 256, FEW = 48 };
    for (int round = 0; n > FEW && round < 16; round++) {
        double low = x[0], high = x[0];
        for (int64_t i = 1; i < n; i++) low = x[i] < low ? x[i] : low;
        for (int64_t i = 1; i < n; i++) high = x[i] > high ? x[i] : high;
        double scale = (BINS - 1) / (high - low);
        if (low == high) return low;
        if (!(scale > 0 && scale < 1e300)) break;
        int64_t bins[BINS] = { 0 }, below = 0, kept = 0;
        for (int64_t i = 0; i < n; i++) bins[(int)((x[i] - low) * scale)]++;
        int bin = 0;
        while (below + bins[bin] <= k) below += bins[bin++];
        for (int64_t i = 0; i < n; i++) {
            double v = x[i];
            x[kept] = v;
            kept += (int)((v - low) * scale) == bin;
        }
        k -= below;
        n = kept;
    }
    if (n > FEW) ares_sort_f64(x, n);
    else sort_few(x, n);
    return x[k];
}

/*
 * The neighbours of the k-th smallest of original [n]: its values between two values of a sorted
 * sample. They are written to x [*kept] and a second time after that; *below values are smaller.
 * false: the k-th or the next one is not among them, or they are too many.
 */
static bool neighbours(double *x, const double *original, int64_t n, int64_t k, int64_t *below,
                       int64_t *kept)
{
    enum { SAMPLE = 32 };
    double s[SAMPLE], part = (double)k / (double)n;
    int at = (int)(part * SAMPLE), margin = 2 + (int)(3 * sqrt(SAMPLE * part * (1 - part)));
    for (int i = 0; i < SAMPLE; i++) s[i] = original[i * n / SAMPLE];
    sort_few(s, SAMPLE);
    double low = at - margin < 0 ? -INFINITY : s[at - margin],
           high = at + margin >= SAMPLE ? INFINITY : s[at + margin];
    int64_t less = 0, m = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = original[i];
        x[m] = v;
        less += v < low;
        m += (v >= low) & (v <= high);
    }
    *below = less;
    *kept = m;
    if (k < less || k + 1 >= less + m || 2 * m > n) return false;
    memcpy(x + m, x, (size_t)m * sizeof *x);
    return true;
}

/* x [n] is overwritten. */
static double percentile_of(double *x, const double *original, int64_t n, double q)
{
    if (n == 0) return 0;
    double rank = (double)(n - 1) * (q / 100);
    int64_t k = (int64_t)ARES_MIN(ARES_MAX(floor(rank), 0.0), (double)(n - 1));
    double part = rank - (double)k;
    int64_t below, kept;
    if (n >= 256) {
        if (neighbours(x, original, n, k, &below, &kept)) {
            n = kept;
            k -= below;
            original = x + kept;
        } else memcpy(x, original, (size_t)n * sizeof *x);
    }
    double low = select_kth(x, n, k);
    if (part <= 0 || k + 1 >= n) return low;
    int64_t up_to = 0;
    double next = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        up_to += original[i] <= low;
        next = original[i] > low && original[i] < next ? original[i] : next;
    }
    if (up_to > k + 1) next = low; /* the value occurs more than once */
    return low + (next - low) * part;
}

double stats_percentile(const double *x, int64_t n, double q)
{
    double few[512], *copy = n <= ARES_COUNT(few) ? few : ares_malloc((size_t)n * sizeof *copy);
    if (n && n < 256) memcpy(copy, x, (size_t)n * sizeof *copy);
    double value = percentile_of(copy, x, n, q);
    if (copy != few) ares_free(copy);
    return value;
}

double stats_median(const double *x, int64_t n)
{
    return stats_percentile(x, n, 50);
}

/*
 * Window entropy and the tokens that reach a threshold (ARES;
 * docs/aepo.md#entropy-windows-and-hwe-tokens). Everything is in double and no sum runs on from
 * window to window: what is compared with a threshold must not depend on where it stands, and with
 * a running sum the same window would have other bits in a longer answer.
 */

double ares_entropy_top_k(const double *log_probs, int64_t n, bool tail)
{
    double h = 0, mass = 0;
    for (int64_t k = 0; k < n; k++) {
        double p = ares_f64_exp(log_probs[k]);
        if (p > 0) h -= p * log_probs[k]; /* p log p is 0 at p = 0, and -inf is a log-prob */
        mass += p;
    }
    double rest = fmax(0, 1 - mass);
    if (tail && rest > 0) h -= rest * ares_f64_log(fmax(rest, 1e-12));
    return h;
}

/* ---------------------------------------------------------------- windows */

enum { DIRECT = 32, BLOCK = 512 };

int64_t entropy_windows(const double *h, int64_t n, int64_t w, double *window)
{
    ARES_ASSERT(w > 0);
    int64_t windows = ARES_MAX(0, n - w);
    if (w <= DIRECT) {
        /*
         * w terms a window, added from the left for a block of windows at a time: the inner loops
         * are over windows, so they vectorise
         */
        double divisor = (double)w;
        for (int64_t at = 0; at < windows; at += BLOCK) {
            int64_t m = ARES_MIN(BLOCK, windows - at);
            double *restrict sum = window + at;
            const double *restrict from = h + at + 1;
            if (w == 4) { /* the usual one, in one pass */
                for (int64_t i = 0; i < m; i++)
                    sum[i] = (((from[i] + from[i + 1]) + from[i + 2]) + from[i + 3]) / divisor;
                continue;
            }
            for (int64_t i = 0; i < m; i++) sum[i] = from[i];
            for (int64_t j = 1; j < w; j++)
                for (int64_t i = 0; i < m; i++) sum[i] += from[i + j];
            for (int64_t i = 0; i < m; i++) sum[i] /= divisor;
        }
    } else if (windows) {
        /*
         * Of cuts at every w-th token, a window holds exactly one: its sum is that of the terms
         * before the cut, added towards it, and that of the terms from the cut on, added away from
         * it (van Herk 1992). Two additions a token whatever w is, and none older than the window.
         * behind: sums from the cut at or before a token to it; ahead: from a token to the next cut
         */
        double *behind = ares_malloc((size_t)n * 2 * sizeof *behind), *ahead = behind + n;
        for (int64_t cut = 0; cut < n; cut += w) {
            int64_t end = ARES_MIN(cut + w, n);
            behind[cut] = h[cut];
            for (int64_t i = cut + 1; i < end; i++) behind[i] = behind[i - 1] + h[i];
            ahead[end - 1] = h[end - 1];
            for (int64_t i = end - 2; i >= cut; i--) ahead[i] = h[i] + ahead[i + 1];
        }
        for (int64_t t = 0; t < windows; t++)
            window[t] = (ahead[t + 1] + behind[t + w]) / (double)w;
        /* a window between two cuts */
        for (int64_t t = w - 1; t < windows; t += w) window[t] = ahead[t + 1] / (double)w;
        ares_free(behind);
    }
    return windows;
}

void entropy_pad_windows(const double *h, int64_t n, const double *window, int64_t windows,
                         double *padded)
{
    if (n == 0) return;
    double lane[8] = { 0 }, sum = 0;
    int64_t t8 = windows - windows % 8;
    for (int64_t t = 0; t < t8; t += 8)
        for (int i = 0; i < 8; i++) lane[i] += window[t + i];
    for (int64_t t = t8; t < windows; t++) sum += window[t];
    sum +=
        ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    double mean = windows ? sum / (double)windows : h[0];
    if (windows && padded != window) memcpy(padded, window, (size_t)windows * sizeof *padded);
    for (int64_t t = windows; t < n; t++) padded[t] = mean;
}

double entropy_sample_threshold(const double *h, int64_t n, int64_t w, double q)
{
    double *padded = ares_malloc((size_t)(n + 1) * sizeof *padded);
    int64_t windows = entropy_windows(h, n, w, padded);
    entropy_pad_windows(h, n, padded, windows, padded);
    double value = stats_percentile(padded, n, q);
    ares_free(padded);
    return value;
}

double entropy_threshold_step(bool started, double tau, const double *x, int64_t n, double ema,
                              double *median)
{
    *median = stats_median(x, n);
    return started ? ema * tau + (1 - ema) * *median : *median;
}

/* ---------------------------------------------------------------- high-window-entropy tokens */

hwe_marked hwe_mark(const double *window, int64_t windows, int64_t n, double tau,
                    const uint8_t *candidates, uint8_t *mask)
{
    hwe_marked out = { 0 };
    if (mask && n) memset(mask, 0, (size_t)n);
    for (int64_t t = 0; t < windows; t++) {
        if (candidates && !candidates[t]) continue;
        bool high = window[t] >= tau;
        out.count += high;
        out.invalid += !high;
        if (high) out.soft_cost += window[t] - tau;
        if (mask) mask[t] = high;
    }
    return out;
}

void hwe_widen(const uint8_t *mask, int64_t n, int64_t w, uint8_t *wide)
{
    int64_t until = -1; /* the last token a window seen so far reaches */
    for (int64_t t = 0; t < n; t++) {
        if (mask[t]) until = t + w;
        wide[t] = t <= until;
    }
}

static bool is_space(utf8proc_int32_t c)
{
    if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32); /* as Python's str.strip */
    utf8proc_category_t category = utf8proc_category(c);
    return c == 0x85 || category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
           category == UTF8PROC_CATEGORY_ZP;
}

void ares_trigger_normalize(ares_view token, ares_str *out)
{
    /* how SentencePiece and byte-level vocabularies write a space */
    enum { SENTENCEPIECE_SPACE = 0x2581, BYTE_LEVEL_SPACE = 0x120 };
    bool marks = true, leading = true;
    size_t end = 0; /* of the last character that is no white space */
    ares_str_clear(out);
    for (size_t at = 0; at < token.len;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)token.data + at,
                                              (utf8proc_ssize_t)(token.len - at), &c);
        if (n <= 0) { /* half a character: a byte-level token may be one */
            ares_str_add_char(out, token.data[at++]);
            marks = leading = false;
            end = out->len;
            continue;
        }
        at += (size_t)n;
        marks = marks && (c == SENTENCEPIECE_SPACE || c == BYTE_LEVEL_SPACE);
        if (marks) continue;
        leading = leading && is_space(c);
        if (leading) continue;
        utf8proc_uint8_t lower[4];
        ares_str_add(out, (const char *)lower,
                     (size_t)utf8proc_encode_char(utf8proc_tolower(c), lower));
        if (!is_space(c)) end = out->len;
    }
    if (out->data) {
        out->len = end;
        out->data[end] = 0;
    }
}

/*
 * Groups in buckets by the standard deviation of their rewards (RAGEN's gradient analysis;
 * docs/diagnostics.md#gradients-by-reward-variance).
 */

typedef struct ranked {
    double std;
    int64_t index;
} ranked;

static int ascending(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->std != y->std ? ARES_CMP(x->std, y->std) : ARES_CMP(x->index, y->index);
}

static void sort(const double *std, int64_t n, int64_t *order)
{
    ranked *r = ares_malloc(((size_t)n + 1) * sizeof *r);
    for (int64_t i = 0; i < n; i++) r[i] = (ranked){ std[i], i };
    qsort(r, (size_t)n, sizeof *r, ascending);
    for (int64_t i = 0; i < n; i++) order[i] = r[i].index;
    ares_free(r);
}

int64_t ares_std_quantiles(const double *std, int64_t n, int64_t count, int64_t *order,
                           int64_t *start)
{
    int64_t buckets = ARES_MIN(count, n);
    sort(std, n, order);
    for (int64_t k = 0; k < buckets; k++) start[k] = k * (n / buckets);
    start[buckets] = n;
    return buckets;
}

int64_t ares_std_bands(const double *std, int64_t n, int64_t *order, int64_t *start)
{
    int64_t at = 0;
    sort(std, n, order);
    for (int64_t k = 0; k < ARES_STD_BANDS; k++) {
        start[k] = at;
        while (at < n && (k == ARES_STD_BANDS - 1 || std[order[at]] < (double)(k + 1))) at++;
    }
    start[ARES_STD_BANDS] = n;
    return ARES_STD_BANDS;
}

/* Whether an earlier row of the group (rows from `first` on) belongs to the same answer. */
static bool seen(const ares_batch *b, int64_t first, int64_t row)
{
    const ares_sample *s = &b->samples[row];
    for (int64_t r = first; r < row; r++) {
        const ares_sample *x = &b->samples[r];
        if (!ares_batch_row_counts(b, r) || x->episode != s->episode) continue;
        if (s->episode || x->index == s->index) return true;
    }
    return false;
}

bool ares_group_reward_std(const ares_batch *b, int64_t group, double *std)
{
    int64_t first = b->group_start[group], end = b->group_start[group + 1], n = 0;
    double *score = ares_malloc((size_t)(end - first + 1) * sizeof *score);
    for (int64_t r = first; r < end; r++)
        if (ares_batch_row_counts(b, r) && !seen(b, first, r))
            score[n++] = (double)b->samples[r].unshaped;
    *std = stats_std(score, n, stats_mean(score, n));
    ares_free(score);
    return n > 0;
}
