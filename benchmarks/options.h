/* The words key=value of benchmarks, and the tiny model. */
#ifndef ARES_BENCHMARKS_OPTIONS_H
#define ARES_BENCHMARKS_OPTIONS_H

#include "ares/model.h"

#include <stdlib.h>
#include <string.h>

/* One of the three: a number of at least `least`, a real number or a text. */
typedef struct bench_option {
    const char *name;
    int64_t *number, least;
    double *real;
    const char **text;
} bench_option;

/* Of n measurements, which it sorts; what lies in the middle is no luck of a single run. */
static inline int bench_ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static inline double bench_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, bench_ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static inline bool bench_take(const bench_option *o, const char *value)
{
    if (o->text) *o->text = value;
    else if (o->real) return ares_parse_double(ares_view_of(value), o->real);
    else return ares_parse_i64(ares_view_of(value), o->number) && *o->number >= o->least;
    return true;
}

static inline int bench_set(const char *program, const bench_option *known, int n, const char *word)
{
    size_t length = strcspn(word, "=");
    for (int i = 0; word[length] && i < n; i++)
        if (strlen(known[i].name) == length && strncmp(known[i].name, word, length) == 0 &&
            bench_take(&known[i], word + length + 1))
            return ARES_OK;
    return ares_fail(ARES_EUSE, "%s: '%s': no such option, or no such value", program, word);
}

/* The random Qwen2 with 0.85 M parameters of docs/performance.md#models-and-machine. */
static inline ares_model_config bench_tiny(void)
{
    return (ares_model_config){ .model_type = "qwen2",
                                .vocab = 512,
                                .hidden = 128,
                                .layers = 4,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 32,
                                .intermediate = 384,
                                .max_position = 2048,
                                .rms_norm_eps = 1e-6f,
                                .tied = true,
                                .qkv_bias = true,
                                .initializer_range = 0.02,
                                .bos = -1,
                                .pad = -1,
                                .rope = {
                                    .theta = 10000, .factor = 1, .original_max_position = 2048 } };
}

#endif
