/*
 * Layers of experts on the CPU: which experts a row goes to, the sum of their outputs, and the
 * gradients of both. Their products are those of linear.c, one per expert and matrix.
 */
#include "isa.h"

enum { ROUTE_ROWS = 16, COMBINE_ROWS = 4 };

typedef struct route_job {
    ares_device *d;
    const ares_route_args *a;
} route_job;

/* p = softmax(l) of n numbers. Returns its entropy: ln(sum e^z) - sum e^z z / sum e^z, z = l - max.
 */
static float softmax(const float *l, int32_t n, float *p)
{
    const v16 least = v16_set1(-INFINITY);
    v16 max = least, sum = v16_zero(), sum_z = v16_zero();
    /* lanes beyond the last number hold -infinity, whose e^z is 0 */
    for (int32_t i = 0; i < n; i += 16) {
        v16 v = v16_select(v16m_first(ARES_MIN(16, n - i)),
                           v16_load_first(l + i, ARES_MIN(16, n - i)), least);
        max = v16_max(v, max);
    }
    const v16 top = v16_set1(v16_max_lane(max));
    for (int32_t i = 0; i < n; i += 16) {
        v16m own = v16m_first(ARES_MIN(16, n - i));
        v16 z = v16_sub(v16_load_first(l + i, ARES_MIN(16, n - i)), top),
            e = v16_select(own, v16_exp(z), v16_zero());
        sum = v16_add(sum, e);
        /* an e of 0 counts nothing, also where z is -infinity */
        sum_z = v16_fma(e, v16_select(v16_gt(e, v16_zero()), z, v16_zero()), sum_z);
        v16_store_first(p + i, e, ARES_MIN(16, n - i));
    }
    const float total = v16_sum(sum);
    for (int32_t i = 0; i < n; i += 16) {
        int here = ARES_MIN(16, n - i);
        v16_store_first(p + i, v16_div(v16_load_first(p + i, here), v16_set1(total)), here);
    }
    return (float)ares_f64_log((double)total) - v16_sum(sum_z) / total;
}

/*
 * The numbers of the `used` largest of n logits, ascending. A logit takes a place from those it is
 * larger than, so of equal ones the first that comes stays; what is not a number stays where it
 * comes while there is room, so that there are always `used` of them.
 */
static void choose(const float *l, int32_t n, int32_t used, int32_t *expert)
{
    for (int32_t e = 0, place; e < n; e++) {
        place = ARES_MIN(e, used);
        if (place == used && !(l[e] > l[expert[--place]])) continue;
        for (; place > 0 && l[e] > l[expert[place - 1]]; place--) expert[place] = expert[place - 1];
        expert[place] = e;
    }
    for (int32_t i = 1; i < used; i++) {
        int32_t e = expert[i], place = i;
        for (; place > 0 && expert[place - 1] > e; place--) expert[place] = expert[place - 1];
        expert[place] = e;
    }
}

static void route_task(void *ctx, int64_t task, int worker)
{
    const route_job *j = ctx;
    const ares_route_args *a = j->a;
    float *p = kernels_scratch(j->d, worker, (size_t)a->experts * sizeof *p);
    int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * ROUTE_ROWS);
    for (int64_t r = task * ROUTE_ROWS; r < end; r++) {
        const float *l = (const float *)a->logits + r * a->ldl;
        int32_t *expert = a->expert + r * a->used;
        float *weight = a->weight + r * a->used, sum = 0;
        float entropy = softmax(l, a->experts, p);
        choose(l, a->experts, a->used, expert);
        for (int32_t i = 0; i < a->used; i++) sum += weight[i] = p[expert[i]];
        for (int32_t i = 0; a->norm && i < a->used; i++) weight[i] /= sum;
        if (a->entropy) a->entropy[r] = entropy;
    }
}

void ARES_K(route)(ares_device *d, const ares_route_args *a)
{
    route_job j = { d, a };
    ARES_ASSERT(a->used >= 1 && a->used <= a->experts);
    kernels_run(d, (double)a->rows * a->experts / 200, (a->rows + ROUTE_ROWS - 1) / ROUTE_ROWS,
                route_task, &j);
    kernels_sort_rows(a, kernels_scratch(d, KERNELS_SHARED, (size_t)a->experts * sizeof(int32_t)));
}

static void route_backward_task(void *ctx, int64_t task, int worker)
{
    const route_job *j = ctx;
    const ares_route_args *a = j->a;
    float *p = kernels_scratch(j->d, worker, (size_t)a->experts * sizeof *p);
    int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * ROUTE_ROWS);
    for (int64_t r = task * ROUTE_ROWS; r < end; r++) {
        const int32_t *expert = a->expert + r * a->used;
        const float *weight = a->weight + r * a->used, *c = a->c + r * a->used;
        float *dl = (float *)a->dl + r * a->lddl, sum = 0;
        for (int32_t i = 0; i < a->used; i++) sum = fmaf(weight[i], c[i], sum);
        if (a->norm) memset(dl, 0, (size_t)a->experts * sizeof *dl);
        else { /* all logits lie in the softmax's denominator */
            softmax((const float *)a->logits + r * a->ldl, a->experts, p);
            for (int32_t e = 0; e < a->experts; e++) dl[e] = p[e] * (0 - sum);
        }
        for (int32_t i = 0; i < a->used; i++) dl[expert[i]] = weight[i] * (c[i] - sum);
    }
}

void ARES_K(route_backward)(ares_device *d, const ares_route_args *a)
{
    route_job j = { d, a };
    kernels_run(d, (double)a->rows * a->experts / (a->norm ? 2e3 : 400),
                (a->rows + ROUTE_ROWS - 1) / ROUTE_ROWS, route_backward_task, &j);
}

static void combine_task(void *ctx, int64_t task, int worker)
{
    const ares_combine_args *a = ctx;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * COMBINE_ROWS);
    for (int64_t r = task * COMBINE_ROWS; r < end; r++) {
        const int32_t *slot = a->slot_of + r * a->used;
        const float *weight = a->weight ? a->weight + r * a->used : NULL,
                    *residual = a->residual ? (const float *)a->residual + r * a->ldr : NULL;
        float *y = (float *)a->y + r * a->ldy;
        for (int32_t i = 0; i < a->width; i += 16) {
            int n = ARES_MIN(16, a->width - i);
            v16 sum = v16_zero();
            for (int32_t j = 0; j < a->used; j++) {
                v16 o = v16_load_first((const float *)a->out + slot[j] * a->ldo + i, n),
                    w = v16_set1(weight ? weight[j] : 1.0f);
                sum = j ? v16_fma(w, o, sum) : v16_mul(w, o);
            }
            if (residual) sum = v16_add(v16_load_first(residual + i, n), sum);
            v16_store_first(y + i, sum, n);
        }
    }
}

void ARES_K(combine)(ares_device *d, const ares_combine_args *a)
{
    ares_combine_args own = *a;
    kernels_run(d, (double)a->rows * a->used * a->width / 5e3,
                (a->rows + COMBINE_ROWS - 1) / COMBINE_ROWS, combine_task, &own);
}

static void combine_backward_task(void *ctx, int64_t task, int worker)
{
    const ares_combine_args *a = ctx;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * COMBINE_ROWS);
    for (int64_t at = task * COMBINE_ROWS * a->used; at < end * a->used; at++) {
        const float *dy = (const float *)a->dy + at / a->used * a->lddy,
                    *out = (const float *)a->out + a->slot_of[at] * a->ldo;
        float *d_out = (float *)a->d_out + a->slot_of[at] * a->lddo;
        v16 sum = v16_zero(), weight = v16_set1(a->weight[at]);
        for (int32_t i = 0; i < a->width; i += 16) {
            int n = ARES_MIN(16, a->width - i);
            v16 g = v16_load_first(dy + i, n);
            sum = v16_fma(g, v16_load_first(out + i, n), sum);
            v16_store_first(d_out + i, v16_mul(weight, g), n);
        }
        a->c[at] = v16_sum(sum);
    }
}

void ARES_K(combine_backward)(ares_device *d, const ares_combine_args *a)
{
    ares_combine_args own = *a;
    kernels_run(d, (double)a->rows * a->used * a->width / 3e3,
                (a->rows + COMBINE_ROWS - 1) / COMBINE_ROWS, combine_backward_task, &own);
}
