/*
 * Window entropy and the tokens that reach a threshold (ARES;
 * docs/aepo.md#entropy-windows-and-hwe-tokens). Everything is in double and no sum runs on from
 * window to window: what is compared with a threshold must not depend on where it stands, and with
 * a running sum the same window would have other bits in a longer answer.
 */
#include "stats.h"

#include <math.h>
#include <string.h>
#include <utf8proc.h>

#include "ares/kernels.h"

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

/*
 * w terms a window, added from the left for a block of windows at a time: the inner loops are over
 * windows, so they vectorise.
 */
static void short_windows(const double *h, int64_t windows, int64_t w, double *window)
{
    double divisor = (double)w;
    for (int64_t at = 0; at < windows; at += BLOCK) {
        int64_t n = ARES_MIN(BLOCK, windows - at);
        double *restrict sum = window + at;
        const double *restrict from = h + at + 1;
        if (w == 4) { /* the usual one, in one pass */
            for (int64_t i = 0; i < n; i++)
                sum[i] = (((from[i] + from[i + 1]) + from[i + 2]) + from[i + 3]) / divisor;
            continue;
        }
        for (int64_t i = 0; i < n; i++) sum[i] = from[i];
        for (int64_t j = 1; j < w; j++)
            for (int64_t i = 0; i < n; i++) sum[i] += from[i + j];
        for (int64_t i = 0; i < n; i++) sum[i] /= divisor;
    }
}

/*
 * Of cuts at every w-th token, a window holds exactly one: its sum is that of the terms before the
 * cut, added towards it, and that of the terms from the cut on, added away from it (van Herk 1992).
 * Two additions a token whatever w is, and none older than the window.
 */
static void long_windows(const double *h, int64_t n, int64_t windows, int64_t w, double *window)
{
    /* behind: sums from the cut at or before a token to it; ahead: from a token to the next cut */
    double *behind = ares_malloc((size_t)n * 2 * sizeof *behind), *ahead = behind + n;
    for (int64_t cut = 0; cut < n; cut += w) {
        int64_t end = ARES_MIN(cut + w, n);
        behind[cut] = h[cut];
        for (int64_t i = cut + 1; i < end; i++) behind[i] = behind[i - 1] + h[i];
        ahead[end - 1] = h[end - 1];
        for (int64_t i = end - 2; i >= cut; i--) ahead[i] = h[i] + ahead[i + 1];
    }
    for (int64_t t = 0; t < windows; t++) window[t] = (ahead[t + 1] + behind[t + w]) / (double)w;
    /* a window between two cuts */
    for (int64_t t = w - 1; t < windows; t += w) window[t] = ahead[t + 1] / (double)w;
    ares_free(behind);
}

int64_t entropy_windows(const double *h, int64_t n, int64_t w, double *window)
{
    ARES_ASSERT(w > 0);
    int64_t windows = ARES_MAX(0, n - w);
    if (w <= DIRECT) short_windows(h, windows, w, window);
    else if (windows) long_windows(h, n, windows, w, window);
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
