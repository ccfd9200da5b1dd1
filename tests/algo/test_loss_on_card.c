/*
 * The losses on a card against the CPU's, on random ragged rows: on a card, or on the emulator
 * (tests/gpu/emulate), where the kernels' logic, barriers and shared memory are judged but not the
 * card's arithmetic. A double differs from the CPU's by the order of its sum, 1e-12 of the largest;
 * a float by one rounding of it, 1e-6.
 */
#include "test.h"

#include <math.h>
#include <stdio.h>

#include "loss/loss.h"
#include "loss_on_card.h"

static ares_device cpu = { .index = -1 };

static bool open_card(ares_device *d)
{
    int rc = ares_device_open("cuda", 0, d);
    const char *required = getenv("ARES_REQUIRE_CUDA");
    if (rc != ARES_OK && !(required && *required)) {
        test_skip(ares_error_message());
        return false;
    }
    return CHECK_OK(rc) && CHECK(d->losses);
}

#define CARD_TEST(name)                                             \
    static void check_##name(ares_device *d);                       \
    TEST_GPU(on_a_card_##name)                                      \
    {                                                               \
        ares_device d;                                              \
        if (open_card(&d)) check_##name(&d), ares_device_close(&d); \
    }                                                               \
    static void check_##name(ares_device *card)

/* ---------------------------------------------------------------- random batches */

static uint64_t drawn;
static double uniform(void)
{
    return (double)(ares_rng_u64(ares_rng_root(17, ARES_RNG_TEST), drawn++) >> 11) * 0x1p-53;
}
static double normal(void)
{
    return ares_rng_normal(ares_rng_root(18, ARES_RNG_TEST), drawn++);
}

/*
 * Rows of 0, 1 and 8193 tokens among them, one whose mask is all 0, masks with holes, answers
 * right, wrong and unknown.
 */
static void random_batch(ares_batch *b, uint64_t seed)
{
    static const int64_t lengths[] = { 5, 0, 1, 8193, 37, 64, 0, 256, 33, 300, 32, 513 };
    drawn = seed << 32;
    ares_batch_init(b);
    for (int r = 0; r < ARES_COUNT(lengths); r++) {
        if (r % 4 == 0) ares_batch_begin_group(b);
        ares_batch_add_row(b,
                           &(ares_sample){ .draw = r / 4,
                                           .index = r % 4,
                                           .accuracy = r % 3 == 2 ? NAN : (float)(r % 3) },
                           lengths[r]);
    }
    ARES_PUT(b, response_mask), ARES_PUT(b, old_log_probs), ARES_PUT(b, ref_log_probs),
        ARES_PUT(b, advantages), ARES_PUT(b, entropies), ARES_PUT(b, values),
        ARES_PUT(b, kl_weight);
    for (int64_t r = 0; r < b->rows; r++) {
        float advantage = (float)normal();
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            b->response_mask[t] = r != 7 && uniform() < 0.8;
            b->old_log_probs[t] = (float)(-3 * uniform());
            b->ref_log_probs[t] = b->old_log_probs[t] + (float)normal();
            b->advantages[t] = r == 8 ? (float)normal() : r == 9 ? 0 : advantage;
            b->entropies[t] = (float)fabs(normal());
            b->values[t] = (float)normal();
            b->kl_weight[t] = (float)(2 * uniform());
        }
    }
}
/* Log-probs near old ones; a few far enough for the clamps. */
static float *random_log_probs(const ares_batch *b, double spread)
{
    float *x = ares_malloc((size_t)(b->tokens + 1) * sizeof *x);
    for (int64_t t = 0; t < b->tokens; t++)
        x[t] = b->old_log_probs[t] + (float)((uniform() < 0.01 ? 20 : spread) * normal());
    return x;
}
static float *random_floats(int64_t n, double scale)
{
    float *x = ares_malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t t = 0; t < n; t++) x[t] = (float)(scale * uniform());
    return x;
}
static float *copy_of(const float *x, int64_t n)
{
    float *y = ares_malloc((size_t)(n + 1) * sizeof *y);
    memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

static bool floats_agree(const char *what, const float *got, const float *want, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= 1e-6 * fabs((double)want[i]) + 1e-9 * most))
            return CHECK_MSG(false, "%s[%lld] = %.9g, the CPU has %.9g", what, (long long)i,
                             (double)got[i], (double)want[i]);
    return true;
}
static bool doubles_agree(const char *what, const double *got, const double *want, int64_t n,
                          double tolerance)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, isfinite(want[i]) ? fabs(want[i]) : 0);
    for (int64_t i = 0; i < n; i++)
        if (!(got[i] == want[i] || fabs(got[i] - want[i]) <= tolerance * most))
            return CHECK_MSG(false, "%s[%lld] = %.17g, the CPU has %.17g", what, (long long)i,
                             got[i], want[i]);
    return true;
}
/* Member by member: each sum within 1e-11 of the largest that it could be, counts exactly. */
static void sums_agree(const char *what, const ares_loss_sums *got, const ares_loss_sums *want)
{
    double most = 0;
    const double *g = (const double *)(const void *)got, *w = (const double *)(const void *)want;
    for (size_t i = 0; i < sizeof *got / sizeof(double); i++)
        most = fmax(most, isfinite(w[i]) ? fabs(w[i]) : 0);
    for (size_t i = 0; i < sizeof *got / sizeof(double); i++)
        if (!(g[i] == w[i] || fabs(g[i] - w[i]) <= 1e-11 * fabs(w[i]) + 1e-15 * most))
            CHECK_MSG(false, "%s: sum %zu = %.17g, the CPU has %.17g", what, i, g[i], w[i]);
    CHECK_EQ(got->tokens, want->tokens);
    for (int i = 0; i < ARES_LOSS_BINS; i++) CHECK_EQ(got->bins[i], want->bins[i]);
}

/* ---------------------------------------------------------------- the loss pass */

typedef struct pass {
    ares_loss_sums sums;
    float *d_log_prob, *d_entropy, *kl, *d_full, *ratio;
    uint8_t *clipped;
} pass;
static void pass_open(pass *p, const float *d, int64_t n)
{
    ares_loss_sums_init(&p->sums);
    p->d_log_prob = copy_of(d, n), p->d_entropy = copy_of(d, n), p->kl = copy_of(d, n),
    p->d_full = copy_of(d, n), p->ratio = copy_of(d, n);
    p->clipped = ares_calloc((size_t)n + 1, 1);
}
static void pass_close(pass *p)
{
    ares_free(p->d_log_prob), ares_free(p->d_entropy), ares_free(p->kl), ares_free(p->d_full),
        ares_free(p->ratio), ares_free(p->clipped);
}

static int run_loss(ares_device *d, const ares_loss *loss, ares_loss_args a, const ares_kl_args *kl,
                    pass *p)
{
    a.sums = &p->sums;
    a.d_log_prob = p->d_log_prob;
    if (a.d_entropy) a.d_entropy = p->d_entropy;
    a.ratio = p->ratio, a.clipped = p->clipped;
    ares_kl_args k = kl ? *kl : (ares_kl_args){ 0 };
    if (k.out) k.out = p->kl;
    if (k.d_full) k.d_full = p->d_full;
    return on_card_loss(d, loss, &a, kl ? &k : NULL);
}

static void compare(ares_device *card, const char *what, const ares_loss *loss,
                    const ares_loss_args *a, const ares_kl_args *kl, const float *d)
{
    pass got, want;
    pass_open(&got, d, a->n), pass_open(&want, d, a->n);
    CHECK_OK(run_loss(&cpu, loss, *a, kl, &want));
    if (CHECK_OK(run_loss(card, loss, *a, kl, &got))) {
        sums_agree(what, &got.sums, &want.sums);
        floats_agree(what, got.d_log_prob, want.d_log_prob, a->n);
        floats_agree(what, got.d_entropy, want.d_entropy, a->n);
        floats_agree(what, got.kl, want.kl, a->n);
        floats_agree(what, got.d_full, want.d_full, a->n);
        floats_agree(what, got.ratio, want.ratio, a->n);
        CHECK_MEM(got.clipped, want.clipped, (size_t)a->n);
    }
    pass_close(&got), pass_close(&want);
}

static ares_loss_args args_of(const ares_loss_config *cfg, const ares_batch *b,
                              const float *log_prob, const float *weight, float *any)
{
    return (ares_loss_args){ .cfg = cfg,
                             .n = b->tokens,
                             .log_prob = log_prob,
                             .old_log_prob = b->old_log_probs,
                             .advantage = b->advantages,
                             .weight = weight,
                             .mask = b->response_mask,
                             .entropy = b->entropies,
                             .d_entropy = any,
                             .end = b->rows,
                             .row_start = b->row_start,
                             .samples = b->samples,
                             .key = ares_rng_root(3, ARES_RNG_TEST) };
}

CARD_TEST(losses_agree)
{
    ares_batch b;
    random_batch(&b, 1);
    ares_loss_config cfg = { .clip_ratio_low = 0.2,
                             .clip_ratio_high = 0.3,
                             .clip_ratio_dual = NAN,
                             .entropy_coeff = 0.01,
                             ARES_LOSS_DEFAULTS };
    cfg.clip_cov_ratio = cfg.kl_cov_ratio = 0.05;
    cfg.clip_cov_lb = 0.1;
    float *log_prob = random_log_probs(&b, 0.2), *weight = random_floats(b.tokens, 1e-3),
          *is = random_floats(b.tokens, 2), *d = random_floats(b.tokens, 1e-3);
    int n;
    const ares_loss *const *list = loss_list(&n);
    ares_loss_args a = args_of(&cfg, &b, log_prob, weight, d);
    for (int i = 0; i < n; i++) {
        if (list[i]->flags & ARES_LOSS_PAIRS) continue;
        for (int variant = 0; variant < 4; variant++) {
            char what[64];
            (void)snprintf(what, sizeof what, "%s, variant %d", list[i]->name, variant);
            a.rollout_weight = variant == 1 ? is : NULL;
            cfg.clip_ratio_dual = variant == 2 ? 1.5 : NAN;
            cfg.entropy_coeff = variant == 3 ? 0 : 0.01;
            compare(card, what, list[i], &a, NULL, d);
        }
    }
    ares_free(log_prob), ares_free(weight), ares_free(is), ares_free(d);
    ares_batch_fini(&b);
}

/* On the CPU: marks and ratios of tokens beside the derivatives of the same pass. */
TEST(a_token_is_marked_where_a_clip_has_taken_its_gradient_or_bounds_it)
{
    static const char *const takes[] = { "default", "dapo",    "gspo_token", "clip_cov",
                                         "dppo_tv", "dppo_kl", "gmpo",       "cispo" },
                             *const rows[] = { "gspo", "gspo_token" },
                             *const bounds[] = { "cispo", "dppo_tv", "dppo_kl" };
    ares_batch b;
    random_batch(&b, 5);
    ares_loss_config cfg = {
        .clip_ratio_low = 0.1, .clip_ratio_high = 0.15, .clip_ratio_dual = 1.4, ARES_LOSS_DEFAULTS
    };
    cfg.clip_cov_ratio = cfg.kl_cov_ratio = 0.05;
    cfg.clip_cov_lb = 0.1;
    float *log_prob = random_log_probs(&b, 0.2), *weight = random_floats(b.tokens, 1e-3),
          *zero = ares_calloc((size_t)b.tokens + 1, sizeof *zero);
    int n;
    const ares_loss *const *list = loss_list(&n);
    ares_loss_args a = args_of(&cfg, &b, log_prob, weight, NULL);
    for (int i = 0; i < n; i++) {
        pass p;
        bool taken = false, of_row = false, bounded = false;
        int64_t marked = 0, wrong = 0;
        if (list[i]->flags & ARES_LOSS_PAIRS) continue;
        for (int k = 0; k < ARES_COUNT(takes); k++)
            taken = taken || strcmp(takes[k], list[i]->name) == 0;
        for (int k = 0; k < ARES_COUNT(rows); k++)
            of_row = of_row || strcmp(rows[k], list[i]->name) == 0;
        for (int k = 0; k < ARES_COUNT(bounds); k++)
            bounded = bounded || strcmp(bounds[k], list[i]->name) == 0;
        pass_open(&p, zero, a.n);
        if (!CHECK_OK(run_loss(&cpu, list[i], a, NULL, &p))) break;
        for (int64_t r = 0; r < b.rows; r++) {
            double sum = 0, count = 0;
            for (int64_t t = b.row_start[r]; t < b.row_start[r + 1]; t++)
                if (b.response_mask[t])
                    sum += (double)log_prob[t] - (double)b.old_log_probs[t], count++;
            for (int64_t t = b.row_start[r]; t < b.row_start[r + 1]; t++) {
                double x = of_row ? sum / count : (double)log_prob[t] - (double)b.old_log_probs[t];
                bool none = p.d_log_prob[t] == 0, off = fabs(x) > 20, on = p.clipped[t] != 0;
                if (!b.response_mask[t]) {
                    wrong += p.ratio[t] != 0 || on;
                    continue;
                }
                marked += on;
                wrong += fabs((double)p.ratio[t] - exp(fmax(-20, fmin(20, x)))) >
                         1e-6 * (double)p.ratio[t];
                wrong += on && b.advantages[t] == 0;
                if (strcmp(list[i]->name, "gspo") == 0) continue; /* rows share one derivative */
                wrong += taken && none && !on && !off && b.advantages[t] != 0;
                wrong += on && !none && !bounded;
            }
        }
        CHECK_MSG(wrong == 0, "%s: %lld tokens are marked wrongly", list[i]->name,
                  (long long)wrong);
        CHECK_EQ(marked > 0, taken || strcmp(list[i]->name, "gspo") == 0);
        pass_close(&p);
    }
    ares_free(log_prob), ares_free(weight), ares_free(zero);
    ares_batch_fini(&b);
}

CARD_TEST(kl_terms_agree)
{
    ares_batch b;
    random_batch(&b, 2);
    ares_loss_config cfg = {
        .clip_ratio_low = 0.2, .clip_ratio_high = 0.3, .clip_ratio_dual = NAN, ARES_LOSS_DEFAULTS
    };
    float *log_prob = random_log_probs(&b, 0.2), *weight = random_floats(b.tokens, 1e-3),
          *d = random_floats(b.tokens, 1e-3), *full = random_floats(b.tokens, 3);
    static const char *const names[] = { "kl",   "abs",  "mse",         "low_var_kl", "kl+",
                                         "abs+", "mse+", "low_var_kl+", "full" };
    static const char *const losses[] = { "default", "gspo" };
    ares_loss_args a = args_of(&cfg, &b, log_prob, weight, d);
    for (int i = 0; i < ARES_COUNT(names); i++)
        for (int l = 0; l < ARES_COUNT(losses); l++) {
            const ares_loss *loss = ares_loss_find(losses[l]);
            ares_kl_args k = { .kl = ares_kl_find(names[i]),
                               .coef = 0.3,
                               .weight = l == 1 ? NULL : b.kl_weight,
                               .out = d };
            *(k.kl->value ? &k.ref_log_prob : &k.full) = k.kl->value ? b.ref_log_probs : full;
            if (!k.kl->value) k.d_full = d;
            compare(card, names[i], loss, &a, &k, d);
            if (l == 1) compare(card, "terms alone", NULL, &a, &k, d);
        }
    ares_free(log_prob), ares_free(weight), ares_free(d), ares_free(full);
    ares_batch_fini(&b);
}

/* A chunk of the head: tokens from the middle of one row into the middle of another. */
CARD_TEST(parts_of_rows_agree)
{
    ares_batch b;
    random_batch(&b, 3);
    ares_loss_config cfg = { .clip_ratio_low = 0.2,
                             .clip_ratio_high = 0.3,
                             .clip_ratio_dual = NAN,
                             .entropy_coeff = 0.01,
                             ARES_LOSS_DEFAULTS };
    float *log_prob = random_log_probs(&b, 0.2), *weight = random_floats(b.tokens, 1e-3),
          *d = random_floats(b.tokens, 1e-3);
    int64_t cuts[] = { 0, 1, 5, 6, 300, 8199, 8236, 8237, b.tokens - 1, b.tokens };
    for (int i = 0; i + 1 < ARES_COUNT(cuts); i++) {
        int64_t t = cuts[i];
        ares_loss_args a = args_of(&cfg, &b, log_prob + t, weight + t, d);
        a.n = cuts[i + 1] - t;
        a.first = t;
        a.old_log_prob += t, a.advantage += t, a.mask += t, a.entropy += t;
        compare(card, "part", ares_loss_find("default"), &a, NULL, d);
    }
    ares_free(log_prob), ares_free(weight), ares_free(d);
    ares_batch_fini(&b);
}

/*
 * An update copies the sums to the host once, after many launches: chunks of a loss of tokens, then
 * rows of another loss.
 */
CARD_TEST(launches_add_to_the_same_sums)
{
    ares_batch b;
    random_batch(&b, 9);
    ares_loss_config cfg = {
        .clip_ratio_low = 0.2, .clip_ratio_high = 0.3, .clip_ratio_dual = NAN, ARES_LOSS_DEFAULTS
    };
    float *log_prob = random_log_probs(&b, 0.2), *weight = random_floats(b.tokens, 1e-3),
          *d = random_floats(b.tokens, 1e-3);
    ares_loss_sums got, want;
    ares_card_sums sums;
    ares_card_sums_init(&sums);
    ares_loss_sums_init(&got), ares_loss_sums_init(&want);
    on_card c = { .d = card };
    size_t floats = (size_t)b.tokens * sizeof(float);
    ares_loss_card on_it = { .row_start = on_card_up(&c, b.row_start,
                                                     (size_t)(b.rows + 1) * sizeof(int64_t), false),
                             .sums = on_card_up(&c, &sums, sizeof sums, true) };
    ares_loss_args host = args_of(&cfg, &b, log_prob, weight, NULL), on = host;
    host.samples = on.samples = NULL;
    host.sums = &want, host.d_log_prob = d;
    on.card = &on_it;
    on.log_prob = on_card_up(&c, log_prob, floats, false);
    on.old_log_prob = on_card_up(&c, b.old_log_probs, floats, false);
    on.advantage = on_card_up(&c, b.advantages, floats, false);
    on.weight = on_card_up(&c, weight, floats, false);
    on.mask = on_card_up(&c, b.response_mask, (size_t)b.tokens, false);
    on.entropy = on_card_up(&c, b.entropies, floats, false);
    on.d_log_prob = on_card_up(&c, d, floats, false);
    const int64_t cut[] = { 0, 300, 8199, b.tokens };
    for (int i = 0; i < 3; i++) {
        ares_loss_args part = on;
        int64_t t = part.first = cut[i];
        part.n = cut[i + 1] - t;
        part.log_prob += t, part.old_log_prob += t, part.advantage += t, part.weight += t;
        part.mask += t, part.entropy += t, part.d_log_prob += t;
        CHECK_OK(ares_loss_compute(card, ares_loss_find("default"), &part, NULL));
    }
    CHECK_OK(ares_loss_compute(card, ares_loss_find("gspo"), &on, NULL));
    CHECK_OK(on_card_close(&c));
    CHECK_OK(ares_loss_compute(&cpu, ares_loss_find("default"), &host, NULL));
    CHECK_OK(ares_loss_compute(&cpu, ares_loss_find("gspo"), &host, NULL));
    ares_card_sums_add(&sums, &got);
    sums_agree("launches", &got, &want);
    ares_free(log_prob), ares_free(weight), ares_free(d);
    ares_batch_fini(&b);
}

CARD_TEST(faults_are_named_as_on_the_cpu)
{
    ares_batch b;
    random_batch(&b, 4);
    ares_loss_config cfg = {
        .clip_ratio_low = 0.2, .clip_ratio_high = 0.3, .clip_ratio_dual = NAN, ARES_LOSS_DEFAULTS
    };
    float *log_prob = random_log_probs(&b, 0.2), *weight = random_floats(b.tokens, 1e-3),
          *d = random_floats(b.tokens, 1e-3);
    static const char *const losses[] = { "default", "gspo", "gmpo", "kl_cov" };
    int64_t t = b.row_start[3] + 4000;
    b.response_mask[t] = 1;
    for (int i = 0; i < ARES_COUNT(losses); i++) {
        ares_loss_args a = args_of(&cfg, &b, log_prob, weight, d);
        pass p;
        float old = log_prob[t];
        pass_open(&p, d, b.tokens);
        log_prob[t] = NAN;
        CHECK_FAIL(run_loss(card, ares_loss_find(losses[i]), a, NULL, &p), ARES_ENUMERIC,
                   "row 3, token 4000");
        log_prob[t] = old;
        b.response_mask[t] = 2;
        CHECK_FAIL(run_loss(card, ares_loss_find(losses[i]), a, NULL, &p), ARES_ENUMERIC,
                   "mask of row 3, token 4000 is 2");
        b.response_mask[t] = 1;
        b.entropies[t] = INFINITY;
        CHECK_FAIL(run_loss(card, ares_loss_find(losses[i]), a, NULL, &p), ARES_ENUMERIC,
                   "entropy of row 3, token 4000");
        b.entropies[t] = 1;
        pass_close(&p);
    }
    ares_free(log_prob), ares_free(weight), ares_free(d);
    ares_batch_fini(&b);
}

CARD_TEST(value_loss_agrees)
{
    ares_batch b;
    random_batch(&b, 5);
    float *value = random_floats(b.tokens, 2), *target = random_floats(b.tokens, 2),
          *weight = random_floats(b.tokens, 1e-3), *d = random_floats(b.tokens, 1e-3);
    for (int clip = 0; clip < 2; clip++) {
        float *got = copy_of(d, b.tokens), *want = copy_of(d, b.tokens);
        ares_value_sums sums[2] = { { 0 } };
        ares_value_args a = { .n = b.tokens,
                              .value = value,
                              .old_value = b.values,
                              .target = target,
                              .weight = weight,
                              .mask = b.response_mask,
                              .cliprange_value = clip ? 0.5 : INFINITY,
                              .d_value = want,
                              .sums = &sums[0],
                              .row_start = b.row_start,
                              .end = b.rows };
        CHECK_OK(on_card_value_loss(&cpu, &a));
        a.d_value = got;
        a.sums = &sums[1];
        CHECK_OK(on_card_value_loss(card, &a));
        CHECK_MEM(got, want, (size_t)b.tokens * sizeof *got);
        doubles_agree("value sums", &sums[1].loss, &sums[0].loss, 4, 1e-12);
        CHECK(sums[0].clip > 0 || !clip);
        ares_free(got), ares_free(want);
    }
    float old = target[8000];
    b.response_mask[8000] = 1;
    target[8000] = NAN;
    ares_value_sums sums = { 0 };
    ares_value_args a = { .n = b.tokens,
                          .value = value,
                          .old_value = b.values,
                          .target = target,
                          .weight = weight,
                          .mask = b.response_mask,
                          .cliprange_value = 0.5,
                          .d_value = d,
                          .sums = &sums,
                          .row_start = b.row_start,
                          .end = b.rows };
    CHECK_FAIL(on_card_value_loss(card, &a), ARES_ENUMERIC, "return nan");
    target[8000] = old;
    ares_free(value), ares_free(target), ares_free(weight), ares_free(d);
    ares_batch_fini(&b);
}

/* Nothing to do is done without a launch. */
CARD_TEST(nothing_is_fine)
{
    ares_batch b;
    ares_batch_init(&b);
    ares_loss_config cfg = {
        .clip_ratio_low = 0.2, .clip_ratio_high = 0.3, .clip_ratio_dual = NAN, ARES_LOSS_DEFAULTS
    };
    ares_loss_sums sums;
    int64_t zero[2] = { 0, 0 };
    ares_loss_sums_init(&sums);
    ares_loss_args a = { .cfg = &cfg, .row_start = zero, .end = 1, .sums = &sums };
    CHECK_OK(on_card_loss(card, ares_loss_find("default"), &a, NULL));
    CHECK_OK(on_card_loss(card, ares_loss_find("gspo"), &a, NULL));
    CHECK_NEAR(sums.tokens, 0, 0);
    ares_batch_fini(&b);
}

TEST(a_cpu_has_no_losses_of_a_card)
{
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    CHECK(!d.losses);
    CHECK(!ares_device_symbol(&d, "ares_cuda_open"));
    ares_device_close(&d);
}
