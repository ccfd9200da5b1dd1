/*
 * Rotary angles as transformers computes them: inverse frequencies rounded to f32, the angle as an
 * f32 product, then cosine and sine of that f32 angle. Rows are computed in slabs of consecutive
 * positions and kept. Dynamic scaling depends on the length of the whole sequence, so rows of
 * sequences beyond max_position are computed at every call.
 */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "internal.h"

enum { ROWS_PER_SLAB = 1024, MAX_SLABS = 1 << 14 };

struct ares_rope {
    ares_rope_config c;
    int32_t head_dim, max_position;
    float scale;     /* factor of cosines and sines */
    float *inv_freq; /* [head_dim / 2] */
    float *slab[MAX_SLABS];
    pthread_mutex_t lock;
};

static const double pi = 3.14159265358979323846;

/* YaRN (Peng et al., arXiv 2309.00071), in transformers' form: the scale of cosines and sines. */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * ares_f64_log(factor) + 1;
}

/* The dimension whose angle turns so many times over the trained positions. */
static double yarn_dim(double rotations, double dim, double base, double max_position)
{
    return dim * ares_f64_log(max_position / (rotations * 2 * pi)) / (2 * ares_f64_log(base));
}

/* inv_freq [head_dim / 2]: the frequencies for this theta, scaled as the kind of rope says. */
static void fill(const ares_rope_config *c, int32_t head_dim, double theta, float *inv_freq)
{
    int32_t half = head_dim / 2;
    double low = 0, high = 0;
    if (c->kind == ARES_ROPE_YARN) {
        low = yarn_dim(c->beta_fast, head_dim, theta, c->original_max_position);
        high = yarn_dim(c->beta_slow, head_dim, theta, c->original_max_position);
        if (c->truncate) {
            low = floor(low);
            high = ceil(high);
        }
        low = ARES_MAX(low, 0);
        high = ARES_MIN(high, head_dim - 1);
        if (low == high) high += 0.001;
    }
    for (int32_t i = 0; i < half; i++) {
        float base = (float)ares_f64_pow(theta, (double)(float)((float)(2 * i) / (float)head_dim));
        float f = 1.0f / base, factor = (float)c->factor;
        if (c->kind == ARES_ROPE_LINEAR) f /= factor;
        if (c->kind == ARES_ROPE_YARN) {
            float ramp = (float)(((double)i - low) / (high - low)),
                  interpolated = 1.0f / (factor * base);
            float own = 1.0f - ARES_MIN(ARES_MAX(ramp, 0.0f), 1.0f);
            f = interpolated * (1.0f - own) + f * own;
        }
        if (c->kind == ARES_ROPE_LLAMA3) {
            double wavelength = 2 * pi / (double)f, old = c->original_max_position;
            if (wavelength > old / c->low_freq_factor) f /= factor;
            else if (!(wavelength < old / c->high_freq_factor)) {
                float smooth = (float)((old / wavelength - c->low_freq_factor) /
                                       (c->high_freq_factor - c->low_freq_factor));
                f = (1.0f - smooth) * f / factor + smooth * f;
            }
        }
        inv_freq[i] = f;
    }
}

ares_rope *rope_new(const ares_rope_config *c, int32_t head_dim, int32_t max_position)
{
    ares_rope *r = ares_calloc(1, sizeof *r);
    r->c = *c;
    r->head_dim = head_dim;
    r->max_position = max_position;
    pthread_mutex_init(&r->lock, NULL);
    r->scale = 1;
    if (r->c.kind == ARES_ROPE_YARN) {
        double s = r->c.attention_factor;
        if (s < 0 && r->c.mscale != 0 && r->c.mscale_all_dim != 0)
            s = yarn_mscale(r->c.factor, r->c.mscale) /
                yarn_mscale(r->c.factor, r->c.mscale_all_dim);
        else if (s < 0) s = yarn_mscale(r->c.factor, 1);
        r->scale = (float)s;
    }
    r->inv_freq = ares_malloc((size_t)(r->head_dim / 2) * sizeof(float));
    fill(&r->c, r->head_dim, r->c.theta, r->inv_freq);
    return r;
}

void rope_free(ares_rope *r)
{
    if (!r) return;
    for (int i = 0; i < MAX_SLABS; i++) ares_free(r->slab[i]);
    pthread_mutex_destroy(&r->lock);
    ares_free(r->inv_freq);
    ares_free(r);
}

static void write_row(const ares_rope *r, const float *inv_freq, int32_t position, float *row)
{
    int32_t half = r->head_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        float angle = (float)position * inv_freq[i];
        row[i] = (float)ares_f64_cos((double)angle) * r->scale;
        row[half + i] = (float)ares_f64_sin((double)angle) * r->scale;
    }
}

void rope_row(ares_rope *r, int32_t position, int32_t length, float *cos_sin)
{
    size_t bytes = (size_t)r->head_dim * sizeof(float);
    if (r->c.kind == ARES_ROPE_DYNAMIC && length > r->max_position) {
        double stretch = r->c.factor * length / r->max_position - (r->c.factor - 1);
        double theta =
            r->c.theta * ares_f64_pow(stretch, (double)r->head_dim / (double)(r->head_dim - 2));
        float *inv_freq = ares_malloc(bytes / 2);
        fill(&r->c, r->head_dim, theta, inv_freq);
        write_row(r, inv_freq, position, cos_sin);
        ares_free(inv_freq);
        return;
    }
    int32_t s = position / ROWS_PER_SLAB;
    ARES_ASSERT(position >= 0 && s < MAX_SLABS);
    float *slab = __atomic_load_n(&r->slab[s], __ATOMIC_ACQUIRE);
    if (!slab) {
        pthread_mutex_lock(&r->lock);
        slab = r->slab[s];
        if (!slab) {
            slab = ares_malloc(ROWS_PER_SLAB * bytes);
            for (int32_t i = 0; i < ROWS_PER_SLAB; i++)
                write_row(r, r->inv_freq, s * ROWS_PER_SLAB + i,
                          slab + (size_t)i * (size_t)r->head_dim);
            __atomic_store_n(&r->slab[s], slab, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&r->lock);
    }
    memcpy(cos_sin, slab + (size_t)(position % ROWS_PER_SLAB) * (size_t)r->head_dim, bytes);
}

void rope_row_of_three(ares_rope *r, const int32_t position[3], int32_t length, float *cos_sin)
{
    const int32_t *section = r->c.section, half = r->head_dim / 2;
    rope_row(r, position[0], length, cos_sin);
    if (position[1] == position[0] && position[2] == position[0]) return;
    float *other = ares_malloc((size_t)half * 2 * sizeof *other);
    for (int a = 1, at = section[0]; a < 3; at += section[a++]) {
        size_t bytes = (size_t)section[a] * sizeof *other;
        rope_row(r, position[a], length, other);
        memcpy(cos_sin + at, other + at, bytes);
        memcpy(cos_sin + half + at, other + half + at, bytes);
    }
    ares_free(other);
}
