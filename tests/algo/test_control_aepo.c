#include "ares/algo.h"
#include "ares/algo_control.h"
#include "control/aepo.h"
#include "control_test.h"
#include "faults.h"
#include "test.h"
#include "work.h"

#include <math.h>
#include <stdio.h>

/* ---------------------------------------------------------------- batches of chance */

enum { PROMPTS = 24, SAMPLES = 4, GROUPS = 9 };

static ares_row rows[PROMPTS];
static char gids[PROMPTS][16];

static void name_rows(void)
{
    for (int i = 0; i < PROMPTS; i++) {
        snprintf(gids[i], sizeof gids[i], "q/\"%d\"", i);
        rows[i] = (ares_row){ .id = i, .gid = gids[i], .gid_given = true };
    }
}

static double uniform(int64_t step, int64_t i)
{
    return ares_rng_uniform(ares_rng_sub(ares_rng_root(11, ARES_RNG_TEST), (uint64_t)step, 0),
                            (uint64_t)i);
}

/*
 * Groups first, first + every, ... of a step's GROUPS. A prompt may come twice. kl: about how far
 * the policy is from the reference.
 */
static void chance_batch(ares_batch *b, int64_t step, int first, int every, double kl)
{
    ares_batch_init(b);
    for (int g = first; g < GROUPS; g += every) {
        int prompt = (int)(uniform(step, g) * PROMPTS);
        ares_batch_begin_group(b);
        for (int i = 0; i < SAMPLES; i++) {
            int64_t length = uniform(step, 1000 + g * SAMPLES + i) < 0.1
                                 ? 1
                                 : 2 + (int64_t)(uniform(step, 2000 + g * SAMPLES + i) * 40);
            float accuracy =
                uniform(step, 3000 + g * SAMPLES + i) < (double)prompt / PROMPTS ? 1 : 0;
            ares_batch_add_row(b,
                               &(ares_sample){ .draw = step * GROUPS + g,
                                               .index = i,
                                               .row = &rows[prompt],
                                               .accuracy = accuracy,
                                               .score = accuracy },
                               length);
        }
    }
    ARES_PUT(b, response_mask);
    ARES_PUT(b, entropies);
    ARES_PUT(b, kl);
    int64_t at = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t key = b->samples[r].draw % GROUPS * SAMPLES + b->samples[r].index;
        for (int64_t t = 0; at < b->row_start[r + 1]; t++, at++) {
            b->response_mask[at] = 1;
            b->entropies[at] =
                (float)(uniform(step, 10000 + key * 64 + t) * (1 + uniform(step, 5000 + key)));
            b->kl[at] = (float)(kl * uniform(step, 30000 + key * 64 + t));
        }
    }
}

typedef struct subject {
    const ares_control *c;
    ares_config *cfg;
    void *options, *state;
    ares_control_env env;
    ares_algorithm_config algorithm;
} subject;

/*
 * As the actor does: so many passes over mini-batches of 3 groups of the step; passes over nothing
 * on a rank without any of them.
 */
static void update(ares_batch *b, int passes)
{
    for (int p = 0; p < passes; p++)
        for (int u = 0, g = 0; u < GROUPS / 3; u++) {
            int first = g;
            while (g < b->groups && b->samples[b->group_start[g]].draw % GROUPS / 3 == u) g++;
            ares_kl_record_rows(b, b->group_start[first], b->group_start[g], b->kl, NULL);
        }
}

static bool open_subject(subject *s, const char *name, const char *const *words, int n)
{
    s->c = control_named(name);
    s->options = control_options(s->c, words, n, &s->cfg);
    if (!CHECK(s->options != NULL)) return false;
    s->algorithm.kl_penalty = "low_var_kl";
    if (s->algorithm.kl_coef == 0) s->algorithm.kl_coef = 1e-3;
    s->env.algorithm = &s->algorithm;
    return CHECK_OK(s->c->open(s->options, &s->env, &s->state));
}

static void close_subject(subject *s)
{
    s->c->close(s->state);
    ares_config_free(s->cfg);
    ares_free(s->options);
}

/* A fresh state with what the old one saved. */
static bool resume(subject *s)
{
    ares_arena arena = { 0 };
    ares_str saved = { 0 };
    const ares_json *json;
    s->c->save(s->state, &saved);
    s->c->close(s->state);
    s->state = NULL;
    bool ok = CHECK_OK(ares_json_parse(&arena, ares_str_view(&saved), "state", &json)) &&
              CHECK_OK(s->c->open(s->options, &s->env, &s->state)) &&
              CHECK_OK(s->c->load(s->state, json));
    ares_str_fini(&saved);
    ares_arena_fini(&arena);
    return ok;
}

static bool same_state(const subject *a, const subject *b)
{
    ares_str x = { 0 }, y = { 0 };
    a->c->save(a->state, &x);
    b->c->save(b->state, &y);
    bool same = CHECK_STR(x.data, y.data);
    ares_str_fini(&x);
    ares_str_fini(&y);
    return same;
}

static double metric(const ares_metrics *m, const char *prefix, int d)
{
    char name[64];
    double value = NAN;
    snprintf(name, sizeof name, "%s/%s", prefix, ares_difficulty_names[d]);
    ares_metrics_get(m, name, &value);
    return value;
}

static bool same_samples(const ares_batch *a, const ares_batch *b)
{
    bool same = true;
    for (int64_t r = 0; r < a->rows; r++) {
        const ares_sample *x = &a->samples[r], *y = &b->samples[r];
        same = same && CHECK_EQ(x->difficulty, y->difficulty) &&
               CHECK_EQ(x->hwe_count, y->hwe_count) &&
               CHECK_NEAR(x->hwe_target, y->hwe_target, 0) &&
               CHECK_NEAR(x->entropy_alpha, y->entropy_alpha, 0);
    }
    return same && CHECK_MEM(a->hwe, b->hwe, a->tokens) &&
           (!a->kl_weight ||
            CHECK_MEM(a->kl_weight, b->kl_weight, (size_t)a->tokens * sizeof(float)));
}

/* ---------------------------------------------------------------- what must hold at every step */

typedef struct before {
    double alpha[ARES_DIFFICULTIES], target[ARES_DIFFICULTIES], lambda[ARES_DIFFICULTIES];
} before;

static bool check_step(before *old, const ares_metrics *m, int64_t step, double kl)
{
    static const double budget[ARES_DIFFICULTIES] = { 0, 0.05, 0.1, 0.2 };
    bool held = true;
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        double alpha = metric(m, "aepo/alpha", d), target = metric(m, "aepo/target", d),
               lambda = metric(m, "aepo/kl_lambda", d), hwe = metric(m, "aepo/hwe_num", d),
               seen_kl = metric(m, "aepo/kl", d), count = 0;
        char name[64];
        snprintf(name, sizeof name, "reward/%s/count", ares_difficulty_names[d]);
        ares_metrics_get(m, name, &count);
        held = held && CHECK(alpha >= 0 && alpha <= 2) && CHECK(lambda >= 0);
        if (isnan(hwe)) { /* a difficulty nobody had: nothing moves */
            held = held && (step == 0 || CHECK_NEAR(alpha, old->alpha[d], 0)) &&
                   CHECK_NEAR(lambda, old->lambda[d], 0);
        } else if (!isnan(old->target[d])) {
            double towards = d == ARES_HARD ? old->target[d] - hwe : hwe - old->target[d],
                   want = old->alpha[d] + 0.05 * towards;
            held = held && CHECK_NEAR(alpha, fmin(fmax(want, 0), 2), 1e-12);
        }
        if (!isnan(hwe)) held = held && CHECK(fabs(target - hwe) <= 0.5);
        if (count >= 8) {
            if (kl < 0.05) held = held && CHECK(lambda < old->lambda[d] || lambda == 0);
            if (kl > 0.8) held = held && CHECK(lambda > old->lambda[d]);
            held =
                held &&
                CHECK_NEAR(lambda, fmax(0, old->lambda[d] + 0.01 * (seen_kl - budget[d])), 1e-12);
        } else held = held && CHECK_NEAR(lambda, old->lambda[d], 0);
        old->alpha[d] = alpha;
        old->target[d] = target;
        old->lambda[d] = lambda;
        if (!held) printf("step %lld, %s\n", (long long)step, ares_difficulty_names[d]);
    }
    return held;
}

/* ---------------------------------------------------------------- directions */

/* Eight answers of nine tokens to a prompt, `right` of them right. */
static void add_prompt(ares_batch *b, int prompt, int right)
{
    ares_batch_begin_group(b);
    for (int i = 0; i < 8; i++)
        ares_batch_add_row(
            b,
            &(ares_sample){
                .draw = prompt, .index = i, .row = &rows[prompt], .accuracy = i < right ? 1 : 0 },
            9);
}

/*
 * An easy, a medium and a hard prompt: of an answer's eight windows of one token, high[d] are loud
 * and the others quiet.
 */
static void three_prompts(ares_batch *b, const int high[ARES_DIFFICULTIES], float quiet, float loud,
                          const double kl[ARES_DIFFICULTIES])
{
    static const int right[ARES_DIFFICULTIES] = { 0, 8, 4, 1 };
    ares_batch_init(b);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) add_prompt(b, d, right[d]);
    ARES_PUT(b, response_mask);
    ARES_PUT(b, entropies);
    ARES_PUT(b, kl);
    for (int64_t t = 0; t < b->tokens; t++) {
        int d = ARES_EASY + (int)(t / 72);
        b->response_mask[t] = 1;
        b->entropies[t] = t % 9 >= 1 && t % 9 <= high[d] ? loud : quiet;
        b->kl[t] = (float)kl[d];
    }
}

/*
 * The control after a first step in which every answer had 4 HWE tokens: that is the target then,
 * alphas are 0.5, lambdas 1.
 */
static bool open_directions(subject *s)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true",
                                         "worker.rollout.window_size=1",
                                         "algorithm.entropy_percentile=50" };
    static const double at_budget[ARES_DIFFICULTIES] = { 0, 0.05, 0.1, 0.2 };
    ares_batch b;
    name_rows();
    *s = (subject){ 0 };
    if (!open_subject(s, "aepo", words, ARES_COUNT(words))) return false;
    three_prompts(&b, (const int[ARES_DIFFICULTIES]){ 0, 4, 4, 4 }, 0, 2, at_budget);
    bool ok =
        CHECK_OK(s->c->observe(s->state, &b, NULL)) && CHECK_OK(s->c->adapt(s->state, &b, NULL));
    for (int64_t r = 0; r < b.rows && ok; r++)
        ok = CHECK_EQ(b.samples[r].difficulty, ARES_EASY + r / 8) &&
             CHECK_EQ(b.samples[r].hwe_count, 4) && CHECK_NEAR(b.samples[r].hwe_target, 4, 0);
    ares_batch_fini(&b);
    return ok;
}

/* The second step: its metrics, and what the first answer of each difficulty is told. */
static void second_step(subject *s, const int high[ARES_DIFFICULTIES],
                        const double kl[ARES_DIFFICULTIES], ares_metrics *m,
                        ares_sample told[ARES_DIFFICULTIES])
{
    ares_batch b;
    three_prompts(&b, high, 0, 2, kl);
    CHECK_OK(s->c->observe(s->state, &b, m));
    CHECK_OK(s->c->adapt(s->state, &b, m));
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) told[d] = b.samples[(d - ARES_EASY) * 8];
    ares_batch_fini(&b);
}

TEST(alpha_falls_below_the_target_and_rises_above_it_and_for_hard_prompts_the_other_way_round)
{
    static const double kl[ARES_DIFFICULTIES] = { 0 };
    /*
     * alpha scales a penalty for HWE tokens of easy and medium prompts, and a bonus for those of
     * hard ones
     */
    static const struct {
        int high;
        double alpha[ARES_DIFFICULTIES];
    } cases[] = {
        { 1, { 0, 0.5 - 0.05 * 3, 0.5 - 0.05 * 3, 0.5 + 0.05 * 3 } },
        { 4, { 0, 0.5, 0.5, 0.5 } },
        { 7, { 0, 0.5 + 0.05 * 3, 0.5 + 0.05 * 3, 0.5 - 0.05 * 3 } },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        subject s;
        ares_sample told[ARES_DIFFICULTIES];
        ares_metrics *m = ares_metrics_new();
        if (!open_directions(&s)) return;
        second_step(
            &s, (const int[ARES_DIFFICULTIES]){ 0, cases[i].high, cases[i].high, cases[i].high },
            kl, m, told);
        for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
            CHECK_EQ(told[d].hwe_count, cases[i].high);
            CHECK_NEAR(metric(m, "aepo/alpha", d), cases[i].alpha[d], 1e-12);
            /* the answers of this step are scored with it */
            CHECK_NEAR(told[d].entropy_alpha, cases[i].alpha[d], 1e-6);
            /* and the target has followed */
            CHECK_NEAR(metric(m, "aepo/target", d), cases[i].high, 0);
            CHECK_NEAR(told[d].hwe_target, cases[i].high, 0);
        }
        ares_metrics_free(m);
        close_subject(&s);
    }
}

TEST(a_difficulty_moves_by_its_own_answers_alone)
{
    static const double kl[ARES_DIFFICULTIES] = { 0, 0.05, 0.1, 1.2 };
    subject s;
    ares_sample told[ARES_DIFFICULTIES];
    ares_metrics *m = ares_metrics_new();
    if (!open_directions(&s)) return;
    second_step(&s, (const int[ARES_DIFFICULTIES]){ 0, 4, 6, 4 }, kl, m, told);
    CHECK_NEAR(metric(m, "aepo/alpha", ARES_EASY), 0.5, 0);
    CHECK_NEAR(metric(m, "aepo/alpha", ARES_MEDIUM), 0.6, 1e-12);
    CHECK_NEAR(metric(m, "aepo/alpha", ARES_HARD), 0.5, 0);
    CHECK_NEAR(metric(m, "aepo/kl_lambda", ARES_MEDIUM), 1, 1e-9);
    CHECK_NEAR(metric(m, "aepo/kl_lambda", ARES_HARD), 1.01, 1e-8);
    ares_metrics_free(m);
    close_subject(&s);
}

TEST(lambda_rises_above_the_kl_budget_and_falls_below_it)
{
    static const double budget[ARES_DIFFICULTIES] = { 0, 0.05, 0.1, 0.2 },
                        off[] = { -0.05, 0, 0.5 };
    for (int i = 0; i < ARES_COUNT(off); i++) {
        subject s;
        ares_sample told[ARES_DIFFICULTIES];
        double kl[ARES_DIFFICULTIES];
        ares_metrics *m = ares_metrics_new();
        if (!open_directions(&s)) return;
        for (int d = 0; d < ARES_DIFFICULTIES; d++) kl[d] = budget[d] + off[i];
        second_step(&s, (const int[ARES_DIFFICULTIES]){ 0, 4, 4, 4 }, kl, m, told);
        for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
            double lambda = metric(m, "aepo/kl_lambda", d);
            CHECK_NEAR(lambda, 1 + 0.01 * off[i], 1e-8);
            if (off[i] != 0) CHECK((lambda > 1) == (off[i] > 0));
        }
        ares_metrics_free(m);
        close_subject(&s);
    }
}

TEST(tau_moves_towards_the_median_of_the_answers)
{
    static const double kl[ARES_DIFFICULTIES] = { 0 };
    /* all windows alike: the percentile of every answer is their entropy */
    static const int high[ARES_DIFFICULTIES] = { 0, 8, 8, 8 };
    static const float entropies[] = { 1, 1.5F, 0.5F };
    subject s;
    ares_batch b;
    ares_metrics *m = ares_metrics_new();
    static const char *const words[] = { "algorithm.aepo=true", "worker.rollout.window_size=1" };
    double tau = 0, last = 1;
    name_rows();
    s = (subject){ 0 };
    if (!open_subject(&s, "aepo", words, 2)) return;
    for (int i = 0; i < 3; i++) {
        three_prompts(&b, high, 0, entropies[i], kl);
        CHECK_OK(s.c->observe(s.state, &b, m));
        /* counted with the tau of before */
        CHECK_EQ(b.samples[0].hwe_count, (double)entropies[i] >= last ? 8 : 0);
        CHECK(ares_metrics_get(m, "aepo/tau", &tau));
        CHECK_NEAR(tau, i == 0 ? 1 : 0.99 * last + 0.01 * (double)entropies[i], 1e-12);
        CHECK(i == 0 || (tau > last) == (i == 1));
        last = tau;
        ares_batch_fini(&b);
    }
    ares_metrics_free(m);
    close_subject(&s);
}

static void run_property(const char *const *words, int n, bool dual)
{
    enum { STEPS = 2000 };
    subject whole = { 0 }, resumed = { 0 };
    name_rows();
    if (!open_subject(&whole, "aepo", words, n) || !open_subject(&resumed, "aepo", words, n))
        return;
    before old = { .alpha = { 0, 0.5, 0.5, 0.5 },
                   .target = { NAN, NAN, NAN, NAN },
                   .lambda = { 0, 1, 1, 1 } };
    ares_metrics *m = ares_metrics_new();
    bool ok = true;
    for (int64_t step = 0; step < STEPS && ok; step++) {
        double kl = step < STEPS / 2 ? 0.02 : 1.0; /* under every budget, then over every one */
        ares_batch a, b;
        chance_batch(&a, step, 0, 1, kl);
        chance_batch(&b, step, 0, 1, kl);
        ares_metrics_clear(m);
        ok = CHECK_OK(whole.c->generated(whole.state, &a)) &&
             CHECK_OK(whole.c->observe(whole.state, &a, m));
        update(&a, 1);
        update(&b, 1);
        ok = ok && CHECK_OK(whole.c->adapt(whole.state, &a, m));
        ok = ok && resume(&resumed) && CHECK_OK(resumed.c->generated(resumed.state, &b)) &&
             CHECK_OK(resumed.c->observe(resumed.state, &b, NULL)) &&
             CHECK_OK(resumed.c->adapt(resumed.state, &b, NULL));
        ok = ok && same_samples(&a, &b) && same_state(&whole, &resumed) &&
             (!dual || check_step(&old, m, step, kl));
        ares_batch_fini(&a);
        ares_batch_fini(&b);
    }
    ares_metrics_free(m);
    close_subject(&whole);
    close_subject(&resumed);
}

TEST(two_thousand_steps_keep_their_bounds_and_a_state_saved_at_every_step_has_the_same_future)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true" };
    run_property(words, 1, true);
}

TEST(the_other_controllers_and_options_resume_too)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true",
                                         "algorithm.kl_bucket_controller=log_space",
                                         "algorithm.kl_beta_update_interval=3",
                                         "algorithm.hwe_kl_scope=window",
                                         "algorithm.difficulty_aware_kl_penalty=true",
                                         "worker.actor.enable_second_chance_kl=true",
                                         "algorithm.drop_easy_prompts=true",
                                         "algorithm.target_update_interval=5",
                                         "worker.rollout.window_size=2" };
    run_property(words, ARES_COUNT(words), false);
}

/*
 * A token's forward and backward through a model of a million parameters are six million
 * operations: AEPO adds next to nothing to them, also where answers are long (the percentile of a
 * row is a selection or a sort of it).
 */
TEST(the_stages_of_aepo_cost_little_work_per_token)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true" };
    enum { ROWS = 32, TOKENS = 4000 };
    subject s = { 0 };
    ares_batch b;
    name_rows();
    if (!open_subject(&s, "aepo", words, 1)) return;
    ares_metrics *m = ares_metrics_new();
    ares_batch_init(&b);
    for (int r = 0; r < ROWS; r++) {
        if (r % SAMPLES == 0) ares_batch_begin_group(&b);
        ares_batch_add_row(&b,
                           &(ares_sample){ .draw = r / SAMPLES,
                                           .index = r % SAMPLES,
                                           .row = &rows[r / SAMPLES],
                                           .accuracy = (float)(r % 3 == 0),
                                           .score = (float)(r % 3 == 0) },
                           TOKENS);
    }
    ARES_PUT(&b, response_mask);
    ARES_PUT(&b, entropies);
    ARES_PUT(&b, kl);
    for (int64_t t = 0; t < b.tokens; t++) {
        b.response_mask[t] = 1;
        b.entropies[t] = (float)uniform(0, t);
        b.kl[t] = (float)uniform(1, t);
    }
    int64_t before = work_done();
    CHECK_OK(s.c->generated(s.state, &b));
    CHECK_OK(s.c->observe(s.state, &b, m));
    CHECK_OK(s.c->adapt(s.state, &b, m));
    double work = (double)(work_done() - before) / (double)b.tokens;
    CHECK_MSG(work > 1 && work < 150, "%g units of work per token", work);
    ares_metrics_free(m);
    ares_batch_fini(&b);
    close_subject(&s);
}

/* ---------------------------------------------------------------- the weight of a token's KL */

/* One prompt of n right answers (of SAMPLES), each with these entropies. */
static void one_prompt(ares_batch *b, int prompt, int right, const float *h, int64_t n)
{
    ares_batch_init(b);
    ares_batch_begin_group(b);
    for (int i = 0; i < SAMPLES; i++)
        ares_batch_add_row(
            b,
            &(ares_sample){
                .draw = prompt, .index = i, .row = &rows[prompt], .accuracy = i < right ? 1 : 0 },
            n);
    ARES_PUT(b, response_mask);
    ARES_PUT(b, entropies);
    for (int64_t t = 0; t < b->tokens; t++) {
        b->response_mask[t] = 1;
        b->entropies[t] = h[t % n];
    }
}

TEST(kl_weighs_less_at_high_entropy_tokens_and_by_difficulty)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true",
                                         "worker.rollout.window_size=2",
                                         "algorithm.difficulty_aware_kl_penalty=true",
                                         "worker.actor.enable_second_chance_kl=true" };
    /* windows 2 1 0 0, padded by their mean 0.75: the 95th percentile is 1.75 */
    static const float h[6] = { 0, 2, 2, 0, 0, 0 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, ARES_COUNT(words))) return;
    ares_batch b;
    one_prompt(&b, 0, 3, h, 6);
    if (CHECK_OK(s.c->observe(s.state, &b, NULL))) {
        CHECK_EQ(b.samples[0].difficulty, ARES_EASY);
        CHECK_EQ(b.samples[0].hwe_count, 1);
        CHECK_MEM(b.hwe, ((uint8_t[]){ 1, 0, 0, 0, 0, 0 }), 6);
        CHECK_NEAR(b.kl_weight[0], 1, 0); /* 2 for an easy prompt, half of it at the HWE token */
        CHECK_NEAR(b.kl_weight[1], 2, 0);
        /* the wrong answer's soft cost is 0.25: no second chance */
        CHECK_NEAR(b.kl_weight[18], 1, 0);
    }
    ares_batch_fini(&b);
    close_subject(&s);
}

/*
 * The soft cost of every answer is 0.25; three of four are right where the prompt is easy, one
 * where it is hard.
 */
TEST(a_second_chance_is_for_wrong_answers_to_easy_prompts_unless_told_otherwise)
{
    static const struct {
        const char *word;
        int right;
        double first, last;
    } cases[] = {
        { "algorithm.aepo=true", 3, 1, 0.67 },
        { "algorithm.aepo=true", 1, 1, 1 },
        { "worker.actor.second_chance_incorrect_only=false", 3, 0.67, 0.67 },
        { "worker.actor.second_chance_easy_only=false", 1, 1, 0.67 },
        { "worker.actor.second_chance_kl_relax=0.25", 3, 1, 0.25 },
        { "worker.actor.second_chance_soft_cost_min=0.3", 3, 1, 1 },
    };
    static const float h[6] = { 0, 2, 2, 0, 0, 0 };
    name_rows();
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const char *words[] = { "worker.actor.dynamic_kl_loss=true", "worker.rollout.window_size=2",
                                "worker.actor.enable_second_chance_kl=true",
                                "worker.actor.second_chance_soft_cost_min=0.2", cases[i].word };
        subject s = { 0 };
        ares_batch b;
        if (!open_subject(&s, "aepo", words, ARES_COUNT(words))) return;
        one_prompt(&b, 0, cases[i].right, h, 6);
        if (CHECK_OK(s.c->observe(s.state, &b, NULL))) { /* the second token is no HWE token */
            CHECK_MSG(fabs((double)b.kl_weight[1] - cases[i].first) < 1e-6,
                      "%s: %g for a right answer, expected %g", cases[i].word,
                      (double)b.kl_weight[1], cases[i].first);
            CHECK_MSG(fabs((double)b.kl_weight[19] - cases[i].last) < 1e-6,
                      "%s: %g for a wrong answer, expected %g", cases[i].word,
                      (double)b.kl_weight[19], cases[i].last);
        }
        ares_batch_fini(&b);
        close_subject(&s);
    }
}

TEST(without_dynamic_kl_every_token_weighs_one_whatever_the_other_factors)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=false",
                                         "worker.rollout.window_size=2",
                                         "algorithm.difficulty_aware_kl_penalty=true",
                                         "worker.actor.enable_second_chance_kl=true",
                                         "worker.actor.second_chance_soft_cost_min=0" };
    static const float h[6] = { 0, 2, 2, 0, 0, 0 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, ARES_COUNT(words))) return;
    ares_batch b;
    one_prompt(&b, 0, 3, h, 6);
    if (CHECK_OK(s.c->observe(s.state, &b, NULL))) CHECK(b.kl_weight == NULL); /* which means 1 */
    ares_batch_fini(&b);
    close_subject(&s);
}

/* ---------------------------------------------------------------- KL budgets */

/* Three easy prompts of SAMPLES answers of 2 tokens; the reference is in the loss. */
static bool open_budgets(subject *s, ares_batch *b, const char *const *words, int n)
{
    static const float h[2] = { 1, 1 };
    name_rows();
    *s = (subject){ .algorithm = { .use_kl_loss = true } };
    if (!open_subject(s, "aepo", words, n)) return false;
    ares_batch_init(b);
    for (int g = 0; g < 3; g++) {
        ares_batch_begin_group(b);
        for (int i = 0; i < SAMPLES; i++)
            ares_batch_add_row(
                b, &(ares_sample){ .draw = g, .index = i, .row = &rows[g], .accuracy = 1 }, 2);
    }
    ARES_PUT(b, response_mask);
    ARES_PUT(b, entropies);
    for (int64_t t = 0; t < b->tokens; t++) b->response_mask[t] = 1, b->entropies[t] = h[t % 2];
    return CHECK_OK(s->c->observe(s->state, b, NULL));
}

/*
 * An optimizer step on groups [group, end) that measures this KL everywhere, and passes over rows
 * before `passed` alone.
 */
static void optimizer_step(ares_batch *b, int64_t group, int64_t end, float kl, int64_t passed)
{
    float seen[64];
    bool reached[64];
    for (int64_t t = 0; t < b->tokens; t++) seen[t] = kl;
    for (int64_t r = 0; r < b->rows; r++) reached[r] = r < passed;
    ares_kl_record_rows(b, b->group_start[group], b->group_start[end], seen, reached);
}

TEST(kl_budgets_are_of_the_rows_that_the_update_passed_over_in_all_of_its_passes)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true" };
    static const struct {
        int64_t reached[2];
        double kl, lambda;
    } cases[] = {
        { { 12, 12 }, 0.3, 1 + 0.01 * (0.3 - 0.05) }, /* the mean of 0.1 and 0.5 */
        { { 12, 8 },
          (8 * 0.3 + 4 * 0.1) / 12,
          1 + 0.01 * (2.8 / 12 - 0.05) }, /* the last four stopped early in the second pass */
        { { 8, 8 }, 0.3, 1 + 0.01 * (0.3 - 0.05) }, /* they were never passed over: not as zeros */
        { { 7, 7 }, 0.3, 1 }, /* too few samples, however often they were seen */
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        subject s;
        ares_batch b;
        if (!open_budgets(&s, &b, words, 1)) return;
        ares_metrics *m = ares_metrics_new();
        optimizer_step(&b, 0, 3, 0.1F, cases[i].reached[0]);
        optimizer_step(&b, 0, 3, 0.5F, cases[i].reached[1]);
        CHECK_OK(s.c->adapt(s.state, &b, m));
        CHECK_NEAR(metric(m, "aepo/kl", ARES_EASY), cases[i].kl, 1e-8);
        CHECK_NEAR(metric(m, "aepo/kl_lambda", ARES_EASY), cases[i].lambda, 1e-9);
        ares_metrics_free(m);
        ares_batch_fini(&b);
        close_subject(&s);
    }
}

TEST(kl_budgets_rest_in_a_step_without_an_update_of_the_actor)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true" };
    subject s;
    ares_batch b;
    if (!open_budgets(&s, &b, words, 1)) return;
    ares_metrics *m = ares_metrics_new();
    CHECK_OK(s.c->adapt(s.state, &b, m));
    CHECK(isnan(metric(m, "aepo/kl", ARES_EASY)));
    CHECK_NEAR(metric(m, "aepo/kl_lambda", ARES_EASY), 1, 0);
    ares_metrics_free(m);
    ares_batch_fini(&b);
    close_subject(&s);
}

TEST(log_space_moves_once_for_every_optimizer_step_by_what_that_step_saw)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true",
                                         "algorithm.kl_bucket_controller=log_space",
                                         "algorithm.kl_beta_update_interval=1" };
    /* two passes over mini-batches of two groups and one */
    static const float kl[4] = { 0, 0.02F, 0.5F, 0.7F };
    static const log_beta_config cfg = { .target = 0.01,
                                         .lr = 0.05,
                                         .clip = 0.2,
                                         .ema = 0.97,
                                         .deadzone = 0.02,
                                         .min = 1e-4,
                                         .max = 100,
                                         .interval = 1 };
    subject s;
    ares_batch b;
    ares_str saved = { 0 };
    log_beta want = { .beta = 1 };
    if (!open_budgets(&s, &b, words, ARES_COUNT(words))) return;
    ares_metrics *m = ares_metrics_new();
    for (int u = 0; u < 4; u++) {
        optimizer_step(&b, u % 2 ? 2 : 0, u % 2 ? 3 : 2, kl[u], b.rows);
        log_beta_step(&cfg, u + 1, (double)kl[u], &want);
    }
    CHECK_OK(s.c->adapt(s.state, &b, m));
    CHECK_NEAR(metric(m, "aepo/kl_beta", ARES_EASY), want.beta, 1e-12);
    s.c->save(s.state, &saved);
    CHECK_CONTAINS(saved.data, "\"kl_beta\":{\"updates\":4,");
    ares_str_fini(&saved);
    ares_metrics_free(m);
    ares_batch_fini(&b);
    close_subject(&s);
}

TEST(without_an_option_that_weighs_kl_there_is_no_such_column)
{
    static const char *const words[] = { "algorithm.aepo=true" };
    static const float h[1] = { 1.5F };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, 1)) return;
    CHECK(s.c->wanted(s.options, &s.env));
    ares_batch b;
    /* one-token answers: no window, no HWE token, and tau is that token's entropy */
    one_prompt(&b, 0, 0, h, 1);
    ares_metrics *m = ares_metrics_new();
    if (CHECK_OK(s.c->observe(s.state, &b, m))) {
        double tau = 0;
        CHECK(b.kl_weight == NULL);
        CHECK_EQ(b.samples[0].hwe_count, 0);
        CHECK_NEAR(b.samples[0].hwe_target, 0, 0);
        CHECK(ares_metrics_get(m, "aepo/tau", &tau));
        CHECK_NEAR(tau, 1.5, 0);
        CHECK(isnan(metric(m, "aepo/hwe_num", ARES_EASY)));
    }
    ares_metrics_free(m);
    ares_batch_fini(&b);
    close_subject(&s);
}

TEST(tokens_between_turns_have_no_part_in_a_window)
{
    static const char *const words[] = { "algorithm.aepo=true", "worker.rollout.window_size=2" };
    static const float plain[6] = { 0, 2, 2, 0, 0, 0 },
                       turns[9] = { 0, 2, NAN, NAN, 2, 0, NAN, 0, 0 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, ARES_COUNT(words))) return;
    ares_batch a, b;
    one_prompt(&a, 0, 3, plain, 6);
    one_prompt(&b, 0, 3, turns, 9);
    for (int64_t t = 0; t < b.tokens; t++)
        if (isnan(turns[t % 9])) b.response_mask[t] = 0;
    if (CHECK_OK(s.c->observe(s.state, &a, NULL)) && CHECK_OK(s.c->observe(s.state, &b, NULL))) {
        CHECK_EQ(b.samples[0].hwe_count, a.samples[0].hwe_count);
        CHECK_MEM(b.hwe, ((uint8_t[]){ 1, 0, 0, 0, 0, 0, 0, 0, 0 }), 9);
    }
    ares_batch_fini(&a);
    ares_batch_fini(&b);
    close_subject(&s);
}

/* ---------------- bootstrap, validation, dropping */

/* What a state keeps of the bootstrap pass is what the pass reported: two numbers that differ. */
static void check_baseline(const subject *s, const ares_metrics *m)
{
    ares_arena arena = { 0 };
    ares_str saved = { 0 };
    const ares_json *json;
    int differ = 0;
    s->c->save(s->state, &saved);
    if (!CHECK_OK(ares_json_parse(&arena, ares_str_view(&saved), "state", &json))) return;
    const ares_json *all = ares_json_get(json, "bootstrap_baseline");
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        const ares_json *one = ares_json_get(all, ares_difficulty_names[d]);
        static const char *const names[] = { "acc_mean", "len_mean" };
        double told[2] = { NAN, NAN };
        for (int i = 0; i < 2; i++) {
            char name[64];
            snprintf(name, sizeof name, "bootstrap/%s/%s", ares_difficulty_names[d], names[i]);
            bool known = ares_metrics_get(m, name, &told[i]);
            if (CHECK_EQ(known, one != NULL) && one)
                CHECK_NEAR(ares_json_get(one, names[i])->number, told[i], 0);
        }
        differ += one && told[0] != told[1];
    }
    CHECK(differ > 1);
    ares_str_fini(&saved);
    ares_arena_fini(&arena);
}

TEST(a_bootstrap_cut_off_and_resumed_ends_like_a_whole_one)
{
    static const char *const words[] = { "data.bootstrap=true", "data.bootstrap_batch_size=9" };
    name_rows();
    subject whole = { 0 }, cut = { 0 };
    if (!open_subject(&whole, "aepo", words, 2) || !open_subject(&cut, "aepo", words, 2)) return;
    CHECK(whole.c->wanted(whole.options, &whole.env));
    for (int64_t step = 0; step < 12; step++) {
        ares_batch b;
        int64_t done = -1;
        CHECK_EQ(cut.c->bootstrap(cut.state, &done), 9);
        CHECK_EQ(done, step * GROUPS);
        chance_batch(&b, step, 0, 1, 0);
        CHECK_OK(whole.c->bootstrap_add(whole.state, &b, NULL));
        CHECK_OK(cut.c->bootstrap_add(cut.state, &b, NULL));
        resume(&cut);
        ares_batch_fini(&b);
    }
    ares_metrics *m = ares_metrics_new();
    CHECK_OK(whole.c->bootstrap_finish(whole.state, m));
    CHECK_OK(cut.c->bootstrap_finish(cut.state, NULL));
    resume(&cut);
    same_state(&whole, &cut);
    check_baseline(&cut, m);
    int64_t done;
    CHECK_EQ(cut.c->bootstrap(cut.state, &done), 0);
    double prompts = 0, of;
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        char name[64];
        snprintf(name, sizeof name, "bootstrap/%s/count", ares_difficulty_names[d]);
        if (ares_metrics_get(m, name, &of)) prompts += of;
        CHECK_NEAR(metric(m, "aepo/target", d), rint(metric(m, "aepo/target", d)), 0);
    }
    CHECK_NEAR(prompts, PROMPTS, 0); /* 108 draws out of 24 miss none of them here */
    ares_metrics_free(m);
    close_subject(&whole);
    close_subject(&cut);
}

TEST(validation_teaches_nothing_but_a_first_threshold)
{
    static const char *const words[] = { "algorithm.aepo=true", "worker.rollout.window_size=2" };
    static const float h[6] = { 0, 2, 2, 0, 0, 0 };
    name_rows();
    subject s = { 0 }, fresh = { 0 };
    if (!open_subject(&s, "aepo", words, 2) || !open_subject(&fresh, "aepo", words, 2)) return;
    ares_batch b;
    one_prompt(&b, 3, 4, h, 6);
    for (int64_t r = 0; r < b.rows; r++) b.samples[r].accuracy = NAN;
    ares_metrics *m = ares_metrics_new();
    if (CHECK_OK(s.c->validate(s.state, &b, m))) {
        double tau = 0;
        CHECK_EQ(b.samples[0].difficulty, ARES_MEDIUM); /* nobody has seen the prompt */
        CHECK_EQ(b.samples[0].hwe_count, 1);
        CHECK(ares_metrics_get(m, "val/aepo/tau", &tau));
        CHECK_NEAR(tau, 1.75, 1e-12);
    }
    ares_batch_fini(&b);
    one_prompt(&b, 3, 4, h, 6);
    /* the first step's own median starts the average all the same */
    CHECK_OK(s.c->observe(s.state, &b, NULL));
    ares_batch_fini(&b);
    one_prompt(&b, 3, 4, h, 6);
    CHECK_OK(fresh.c->observe(fresh.state, &b, NULL));
    same_state(&s, &fresh);
    ares_batch_fini(&b);
    one_prompt(&b, 3, 4, h, 6);
    CHECK_OK(s.c->validate(s.state, &b, NULL));
    CHECK_EQ(b.samples[0].difficulty, ARES_EASY);
    same_state(&s, &fresh);
    ares_batch_fini(&b);
    ares_metrics_free(m);
    close_subject(&s);
    close_subject(&fresh);
}

/* Two rows without a global_id, one of each data set, may be given the same one. */
TEST(a_made_up_id_says_nothing_across_data_sets)
{
    static const char *const words[] = { "algorithm.aepo=true", "worker.rollout.window_size=2" };
    static const float h[6] = { 0, 2, 2, 0, 0, 0 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, 2)) return;
    for (int given = 0; given < 2; given++) {
        ares_batch b;
        rows[3].gid_given = given;
        one_prompt(&b, 3, 4, h, 6);
        CHECK_OK(s.c->observe(s.state, &b, NULL));
        CHECK_EQ(b.samples[0].difficulty,
                 ARES_EASY); /* within training it is an id like any other */
        ares_batch_fini(&b);
        one_prompt(&b, 3, 4, h, 6);
        CHECK_OK(s.c->validate(s.state, &b, NULL));
        CHECK_EQ(b.samples[0].difficulty, given ? ARES_EASY : ARES_MEDIUM);
        ares_batch_fini(&b);
    }
    close_subject(&s);
}

/* Answers to validation prompts, each with `high` of eight windows at the threshold of 1. */
static void validation_batch(ares_batch *b, const int *high, int prompts)
{
    ares_batch_init(b);
    for (int p = 0; p < prompts; p++) {
        ares_batch_begin_group(b);
        ares_batch_add_row(b, &(ares_sample){ .draw = p, .row = &rows[p], .accuracy = 0 }, 9);
    }
    ARES_PUT(b, response_mask);
    ARES_PUT(b, entropies);
    for (int64_t t = 0; t < b->tokens; t++)
        b->response_mask[t] = 1, b->entropies[t] = t % 9 >= 1 && t % 9 <= high[t / 9] ? 2 : 0;
}

TEST(validation_before_the_first_target_aims_at_its_own_mean)
{
    static const char *const words[] = { "algorithm.aepo=true", "worker.rollout.window_size=1",
                                         "algorithm.entropy_percentile=50",
                                         "algorithm.target_coef_medium=2" };
    static const int high[4] = { 2, 3, 7, 4 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, ARES_COUNT(words))) return;
    ares_batch b;
    ares_metrics *m = ares_metrics_new();
    validation_batch(&b, high, 4);
    CHECK_OK(s.c->validate(s.state, &b, m));
    for (int64_t r = 0; r < b.rows; r++) {
        CHECK_EQ(b.samples[r].difficulty, ARES_MEDIUM);
        CHECK_EQ(b.samples[r].hwe_count, high[r]);
        CHECK_NEAR(b.samples[r].hwe_target, 8, 0); /* twice the mean of 2, 3, 7 and 4 */
    }
    CHECK(isnan(metric(m, "val/aepo/target", ARES_MEDIUM)));
    ares_str saved = { 0 };
    s.c->save(s.state, &saved);
    CHECK_CONTAINS(saved.data, "\"target\":{}"); /* training has none yet */
    ares_str_fini(&saved);
    ares_batch_fini(&b);
    ares_metrics_free(m);
    close_subject(&s);
}

/*
 * A threshold of 1 that stays: half of the first step's windows lie above it. A step's mean becomes
 * the target where it is renewed.
 */
TEST(targets_are_renewed_in_every_step_that_the_interval_divides)
{
    enum { STEPS = 6 };
    static const int high[STEPS] = { 4, 6, 2, 7, 3, 5 };
    static const int64_t want[3][STEPS] = { { 4, 6, 2, 7, 3, 5 },
                                            { 4, 6, 6, 7, 7, 5 },
                                            { 4, 4, 2, 2, 2, 5 } };
    name_rows();
    for (int interval = 1; interval <= 3; interval++) {
        char word[64];
        (void)snprintf(word, sizeof word, "algorithm.target_update_interval=%d", interval);
        const char *words[] = { "algorithm.aepo=true", "worker.rollout.window_size=1",
                                "algorithm.entropy_percentile=50",
                                "algorithm.entropy_threshold_ema=1", word };
        subject s = { 0 };
        if (!open_subject(&s, "aepo", words, ARES_COUNT(words))) return;
        ares_metrics *m = ares_metrics_new();
        for (int step = 0; step < STEPS; step++) {
            float h[9] = { 0 };
            ares_batch b;
            for (int t = 1; t <= high[step]; t++) h[t] = 2;
            one_prompt(&b, 0, 4, h, 9);
            ares_metrics_clear(m);
            CHECK_OK(s.c->observe(s.state, &b, m));
            CHECK_EQ(b.samples[0].hwe_count, high[step]);
            CHECK_MSG(metric(m, "aepo/target", ARES_EASY) == (double)want[interval - 1][step],
                      "interval %d, step %d: target %g, expected %lld", interval, step + 1,
                      metric(m, "aepo/target", ARES_EASY), (long long)want[interval - 1][step]);
            ares_batch_fini(&b);
        }
        ares_metrics_free(m);
        close_subject(&s);
    }
}

TEST(prompts_that_are_always_right_without_thinking_are_dropped_also_when_they_were_filtered_out)
{
    static const char *const words[] = { "algorithm.drop_easy_prompts=true",
                                         "worker.rollout.window_size=1",
                                         "algorithm.alpha_entropy_lr=0" };
    static const float flat[8] = { 0, 0, 0, 0, 0, 0, 0, 0 }, busy[8] = { 3, 3, 3, 3, 3, 3, 3, 3 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, ARES_COUNT(words))) return;
    ares_batch easy_busy, easy_flat, kept;
    ares_view gid;
    for (int step = 0; step < 2; step++) {
        one_prompt(&kept, 1, 3, busy, 8); /* easy, with 7 HWE tokens: the target */
        one_prompt(&easy_busy, 2, 4, busy, 8);
        one_prompt(&easy_flat, 5, 4, flat, 8);
        /*
         * Both wholly right prompts are filtered out; in the first step neither a threshold nor a
         * target is known.
         */
        CHECK_OK(s.c->generated(s.state, &easy_busy));
        CHECK_OK(s.c->generated(s.state, &easy_flat));
        CHECK_OK(s.c->generated(s.state, &kept));
        CHECK_OK(s.c->observe(s.state, &kept, NULL));
        CHECK_EQ(s.c->dropped(s.state, 0, &gid), step == 1);
        ares_batch_fini(&kept);
        ares_batch_fini(&easy_busy);
        ares_batch_fini(&easy_flat);
    }
    if (CHECK(s.c->dropped(s.state, 0, &gid))) CHECK_VIEW(gid, gids[5]);
    CHECK(!s.c->dropped(s.state, 1, &gid));
    resume(&s);
    CHECK(s.c->dropped(s.state, 0, &gid));
    close_subject(&s);
}

TEST(how_little_an_easy_prompt_makes_the_model_think_is_compared_with_easy_prompts_alone)
{
    /* seen to fail: with the least of all prompts, which is 0 of the hard one */
    static const char *const words[] = { "algorithm.drop_easy_prompts=true",
                                         "algorithm.drop_easy_ratio=0.1",
                                         "worker.rollout.window_size=1",
                                         "algorithm.alpha_entropy_lr=0" };
    static const float flat[8] = { 0, 0, 0, 0, 0, 0, 0, 0 }, few[8] = { 0, 0, 3, 0, 0, 0, 0, 0 },
                       busy[8] = { 3, 3, 3, 3, 3, 3, 3, 3 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, ARES_COUNT(words))) return;
    ares_batch kept, easy, hard;
    ares_view gid;
    for (int step = 0; step < 2; step++) {
        one_prompt(&kept, 1, 3, busy, 8);
        one_prompt(&easy, 5, 4, few, 8);
        one_prompt(&hard, 6, 0, flat, 8);
        CHECK_OK(s.c->generated(s.state, &easy));
        CHECK_OK(s.c->generated(s.state, &hard));
        CHECK_OK(s.c->generated(s.state, &kept));
        CHECK_OK(s.c->observe(s.state, &kept, NULL));
        CHECK_EQ(s.c->dropped(s.state, 0, &gid), step == 1);
        ares_batch_fini(&kept);
        ares_batch_fini(&easy);
        ares_batch_fini(&hard);
    }
    if (CHECK(s.c->dropped(s.state, 0, &gid))) CHECK_VIEW(gid, gids[5]);
    CHECK(!s.c->dropped(s.state, 1, &gid));
    close_subject(&s);
}

/* ---------------------------------------------------------------- discarded answers */

/*
 * Every row once more, wrong, silent and of mask 0, before or after the rows of its group; all of
 * them in a group of their own, too.
 */
static void add_discarded(ares_batch *b, const ares_batch *from, int64_t step)
{
    ares_batch_init(b);
    for (int64_t g = 0; g < from->groups; g++) {
        ares_batch_begin_group(b);
        for (int k = 0; k < 2; k++)
            for (int64_t r = from->group_start[g]; r < from->group_start[g + 1]; r++) {
                bool kept = (k == 0) == (r % 2 == 0);
                ares_sample s = from->samples[r];
                s.index = s.index * 2 + !kept;
                if (!kept) s.accuracy = NAN;
                ares_batch_add_row(b, &s, from->row_start[r + 1] - from->row_start[r]);
            }
        ares_batch_begin_group(b);
        ares_batch_add_row(b,
                           &(ares_sample){ .draw = (1 + step) * 100000 + g,
                                           .index = 1,
                                           .row = &rows[(g + step) % PROMPTS],
                                           .accuracy = 0 },
                           5);
    }
    ARES_PUT(b, response_mask);
    ARES_PUT(b, entropies);
    ARES_PUT(b, kl);
    for (int64_t r = 0; r < b->rows; r++) {
        const ares_sample *s = &b->samples[r];
        for (int64_t i = 0; i < from->rows; i++) {
            if (s->draw != from->samples[i].draw || s->index != from->samples[i].index * 2)
                continue;
            int64_t at = b->row_start[r], of = from->row_start[i], n = from->row_start[i + 1] - of;
            memset(b->response_mask + at, 1, (size_t)n);
            memcpy(b->entropies + at, from->entropies + of, (size_t)n * sizeof *b->entropies);
            memcpy(b->kl + at, from->kl + of, (size_t)n * sizeof *b->kl);
        }
    }
}

static bool same_metrics(const ares_metrics *a, const ares_metrics *b)
{
    bool same = CHECK_EQ(ares_metrics_count(a), ares_metrics_count(b));
    for (int i = 0; i < ares_metrics_count(a) && same; i++) {
        double x = ares_metrics_value(a, i), y = NAN;
        ares_metrics_get(b, ares_metrics_name(a, i), &y);
        same = CHECK_MSG(x == y || (isnan(x) && isnan(y)), "%s: %g, and with discarded answers %g",
                         ares_metrics_name(a, i), x, y);
    }
    return same;
}

static void ignores_discarded(const char *control, const char *const *words, int n)
{
    name_rows();
    subject plain = { 0 }, more = { 0 };
    if (!open_subject(&plain, control, words, n) || !open_subject(&more, control, words, n)) return;
    ares_metrics *m[2] = { ares_metrics_new(), ares_metrics_new() };
    bool ok = true;
    for (int64_t step = 0; step < 40 && ok; step++) {
        ares_batch a, b;
        chance_batch(&a, step, 0, 1, 0.3);
        add_discarded(&b, &a, step);
        for (int k = 0; k < 2; k++) {
            const subject *s = k ? &more : &plain;
            ares_batch *x = k ? &b : &a;
            ares_metrics_clear(m[k]);
            ok = ok && (!s->c->generated || CHECK_OK(s->c->generated(s->state, x))) &&
                 CHECK_OK(s->c->observe(s->state, x, m[k])) &&
                 (!s->c->adapt || CHECK_OK(s->c->adapt(s->state, x, m[k])));
        }
        ok = ok && same_metrics(m[0], m[1]) && same_state(&plain, &more);
        for (int64_t r = 0; r < b.rows && ok; r++)
            if (!ares_batch_row_counts(&b, r))
                ok = CHECK_EQ(b.samples[r].difficulty, ARES_DIFFICULTY_NONE);
        ares_batch_fini(&a);
        ares_batch_fini(&b);
    }
    for (int k = 0; k < 2; k++) ares_metrics_free(m[k]);
    close_subject(&plain);
    close_subject(&more);
}

TEST(discarded_answers_count_nowhere)
{
    static const char *const aepo[] = { "worker.actor.dynamic_kl_loss=true",
                                        "algorithm.drop_easy_prompts=true",
                                        "worker.rollout.window_size=2" },
                             *const kl[] = { "algorithm.kl_type=adaptive" };
    ignores_discarded("aepo", aepo, ARES_COUNT(aepo));
    ignores_discarded("adaptive_kl", kl, ARES_COUNT(kl));
}

TEST(discarded_answers_have_no_part_in_the_deviation_that_ends_a_run)
{
    static const char *const words[] = { "algorithm.early_stop_rv_window=3" };
    static const char name[] = "rollout/in_group_reward_std";
    subject s = { 0 };
    ares_metrics *m = ares_metrics_new();
    ares_batch a, b;
    double plain = 0, more = 0;
    name_rows();
    if (open_subject(&s, "early_stop", words, 1)) {
        chance_batch(&a, 0, 0, 1, 0);
        add_discarded(&b, &a, 0);
        CHECK_OK(s.c->observe(s.state, &a, m));
        CHECK(ares_metrics_get(m, name, &plain) && plain > 0);
        CHECK_OK(s.c->observe(s.state, &b, m));
        CHECK(ares_metrics_get(m, name, &more));
        CHECK_NEAR(more, plain, 1e-12); /* added in another order */
        ares_batch_fini(&a);
        ares_batch_fini(&b);
        close_subject(&s);
    }
    ares_metrics_free(m);
}

TEST(a_step_without_a_score_is_no_gap_in_a_row_of_low_deviations)
{
    static const char *const words[] = { "algorithm.early_stop_rv_window=2" };
    static const ares_row row = { 0 };
    /* steps of the base, then low, none, low */
    static const float scores[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.01f, 0, 0.01f };
    subject s = { 0 };
    ares_batch b;
    if (!open_subject(&s, "early_stop", words, 1)) return;
    for (int i = 0; i < ARES_COUNT(scores); i++) {
        ares_batch_init(&b);
        ares_batch_begin_group(&b);
        for (int k = 0; k < 2 && scores[i] > 0; k++)
            ares_batch_add_row(
                &b, &(ares_sample){ .row = &row, .index = k, .score = k ? scores[i] : -scores[i] },
                0);
        CHECK_OK(s.c->observe(s.state, &b, NULL));
        CHECK_EQ(s.c->stop(s.state) != NULL, i + 1 == ARES_COUNT(scores));
        ares_batch_fini(&b);
    }
    close_subject(&s);
}

TEST(a_batch_of_discarded_answers_leaves_the_state_as_it_was)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true",
                                         "worker.rollout.window_size=2" };
    static const float h[6] = { 0, 2, 2, 0, 0, 0 };
    name_rows();
    subject s = { 0 }, other = { 0 };
    if (!open_subject(&s, "aepo", words, 2) || !open_subject(&other, "aepo", words, 2)) return;
    ares_metrics *m = ares_metrics_new();
    for (int round = 0; round < 2; round++) { /* before the first threshold, and after it */
        ares_batch b;
        double tau, empty;
        one_prompt(&b, 3, 4, h, 6);
        memset(b.response_mask, 0, (size_t)b.tokens);
        ARES_PUT(&b, kl);
        ares_metrics_clear(m);
        CHECK_OK(s.c->provisional(s.state, &b));
        CHECK_EQ(b.samples[0].difficulty, ARES_DIFFICULTY_NONE);
        CHECK_OK(s.c->observe(s.state, &b, m));
        CHECK_OK(s.c->adapt(s.state, &b, m));
        CHECK_EQ(ares_metrics_get(m, "aepo/tau", &tau), round == 1);
        CHECK(!ares_metrics_get(m, "reward/empty_responses", &empty));
        same_state(&s, &other);
        ares_batch_fini(&b);
        one_prompt(&b, 3, 4, h, 6);
        CHECK_OK(s.c->observe(s.state, &b, NULL));
        ares_batch_fini(&b);
        one_prompt(&b, 3, 4, h, 6);
        CHECK_OK(other.c->observe(other.state, &b, NULL));
        ares_batch_fini(&b);
    }
    ares_metrics_free(m);
    close_subject(&s);
    close_subject(&other);
}

TEST(an_answer_without_a_token_counts_as_one_without_entropy)
{
    static const char *const words[] = { "algorithm.aepo=true", "worker.rollout.window_size=2",
                                         "algorithm.entropy_threshold_ema=0" };
    static const float h[6] = { 2, 2, 0.25F, 0.25F, 2, 2 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, 3)) return;
    ares_batch b;
    ares_metrics *m = ares_metrics_new();
    one_prompt(&b, 0, 2, h, 6);
    /* the first three answers end before they begin; the last one has all the tokens */
    b.row_start[1] = b.row_start[2] = b.row_start[3] = 0;
    if (CHECK_OK(s.c->observe(s.state, &b, m))) {
        double tau = NAN, count = 0;
        CHECK(ares_metrics_get(m, "aepo/tau", &tau));
        CHECK_NEAR(tau, 0, 0); /* the median of 0, 0, 0, 2 */
        /* above the median, not the mean, of the first step: of its 22 windows 4 are low */
        CHECK_EQ(b.samples[3].hwe_count, 22);
        CHECK(ares_metrics_get(m, "reward/medium/count", &count));
        CHECK_EQ(count, 4);
    }
    ares_metrics_free(m);
    ares_batch_fini(&b);
    close_subject(&s);
}

/* ---------------------------------------------------------------- bad input */

TEST(an_empty_batch_a_missing_judge_and_a_broken_entropy_are_named)
{
    static const char *const words[] = { "algorithm.aepo=true" };
    static const float h[3] = { 1, 1, 1 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, 1)) return;
    ares_batch b;
    chance_batch(&b, 0, GROUPS, 1, 0);
    CHECK_FAIL(s.c->observe(s.state, &b, NULL), ARES_ESTATE, "no answer on any rank");
    CHECK_FAIL(s.c->provisional(s.state, &b), ARES_ESTATE, "no answer on any rank");
    CHECK_FAIL(s.c->bootstrap_add(s.state, &b, NULL), ARES_ESTATE, "no answer on any rank");
    ares_batch_fini(&b);
    one_prompt(&b, 0, 1, h, 3);
    b.samples[2].accuracy = NAN;
    CHECK_FAIL(s.c->observe(s.state, &b, NULL), ARES_ECONFIG, "row 2 has the accuracy nan");
    ares_batch_fini(&b);
    one_prompt(&b, 0, 1, h, 3);
    b.entropies[4] = INFINITY;
    CHECK_FAIL(s.c->observe(s.state, &b, NULL), ARES_ENUMERIC, "row 1, token 1");
    const ares_row without_id = { .id = 0 };
    b.samples[1].row = &without_id;
    b.hwe = NULL;
    b.window_entropies = NULL;
    CHECK_FAIL(s.c->observe(s.state, &b, NULL), ARES_ESTATE, "row 1 has no global_id");
    b.entropies = NULL;
    b.hwe = NULL;
    b.window_entropies = NULL;
    CHECK_FAIL(s.c->observe(s.state, &b, NULL), ARES_ESTATE, "'entropies'");
    ares_batch_fini(&b);
    close_subject(&s);
}

TEST(a_state_of_another_data_set_or_with_a_member_that_does_not_fit_is_refused_by_name)
{
    static const char *const words[] = { "algorithm.aepo=true" };
    static const struct {
        const char *from, *to, *message;
    } faults[] = {
        { "\"tau\":", "\"tao\":", "'tau'" },
        { "\"alpha\":{\"easy\"", "\"alpha\":{\"simple\"", "'alpha'" },
        { "\"steps\":1", "\"steps\":\"1\"", "'steps'" },
        { "\"kl_lambda\":{\"easy\":1.0", "\"kl_lambda\":{\"easy\":null", "kl_lambda" },
        { ":\"hard\"", ":\"harder\"", "'difficulty' of" },
        { "\"skip_gid\":[]", "\"skip_gid\":[\"q77\"]", "'q77'" },
        { "\"seen\":{}", "\"seen\":{\"q\":[0,1.0,1.0,1.0]}", "is no list of four sums" },
        { "\"seen\":{}", "\"seen\":{\"q\":[1,true,1.0,1.0]}", "is no list of four sums" },
        { "\"seen\":{}", "\"seen\":{\"q\":1}", "is no list of four sums" },
    };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, 1)) return;
    ares_batch b;
    static const float h[2] = { 1, 1 };
    one_prompt(&b, 0, 0, h, 2);
    CHECK_OK(s.c->observe(s.state, &b, NULL));
    ares_batch_fini(&b);
    ares_str saved = { 0 };
    ares_map *known = ares_map_new();
    ares_map_put(known, ares_view_of(gids[0]), 0);
    s.c->save(s.state, &saved);
    for (int i = 0; i < ARES_COUNT(faults); i++) {
        const char *at = strstr(saved.data, faults[i].from);
        if (!CHECK_MSG(at != NULL, "%s in %s", faults[i].from, saved.data)) continue;
        ares_str broken = { 0 };
        ares_arena arena = { 0 };
        const ares_json *json;
        subject t = { .env = { .gids = known } };
        ares_str_add(&broken, saved.data, (size_t)(at - saved.data));
        ares_str_add_z(&broken, faults[i].to);
        ares_str_add_z(&broken, at + strlen(faults[i].from));
        if (CHECK_OK(ares_json_parse(&arena, ares_str_view(&broken), "state", &json)) &&
            open_subject(&t, "aepo", words, 1)) {
            int rc = t.c->load(t.state, json);
            CHECK(rc == ARES_EFORMAT || rc == ARES_ESTATE);
            CHECK_CONTAINS(ares_error_message(), faults[i].message);
            close_subject(&t);
        }
        ares_str_fini(&broken);
        ares_arena_fini(&arena);
    }
    ares_map_free(known);
    ares_str_fini(&saved);
    close_subject(&s);
}

TEST(options_that_make_no_sense_together_are_refused)
{
    static const struct {
        const char *word, *fault; /* NULL: there is none */
        bool unjudged;
    } cases[] = {
        { "algorithm.alpha_entropy_min=3",
          "algorithm.alpha_entropy_min = 3: lies above alpha_entropy_max = 2", false },
        { "algorithm.kl_beta_min=200", "algorithm.kl_beta_min = 200: lies above kl_beta_max = 100",
          false },
        { "algorithm.alpha_entropy_init_easy=2.5",
          "algorithm.alpha_entropy_init_easy = 2.5: lies above alpha_entropy_max = 2", false },
        { "algorithm.alpha_entropy_init_medium=2.5",
          "algorithm.alpha_entropy_init_medium = 2.5: lies above alpha_entropy_max = 2", false },
        { "algorithm.alpha_entropy_init_hard=2.5",
          "algorithm.alpha_entropy_init_hard = 2.5: lies above alpha_entropy_max = 2", false },
        { "algorithm.alpha_entropy_init_hard=2", NULL, false },
        { "algorithm.kl_beta_init=1e-5", "algorithm.kl_beta_init = 1e-5: lies below kl_beta_min",
          false },
        { "algorithm.kl_beta_init=101", "algorithm.kl_beta_init = 101: lies above kl_beta_max",
          false },
        { "worker.actor.dynamic_kl_loss=true", "algorithm.disable_kl leaves no KL to weigh",
          false },
        { "algorithm.aepo=true", "none says whether an answer is right", true },
        { "algorithm.aepo=true", NULL, false },
    };
    const ares_control *c = control_named("aepo");
    ares_algorithm_config algorithm = { .disable_kl = true };
    ares_control_env env = { .algorithm = &algorithm };
    ares_config *cfg;
    void *options;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        options = control_options(c, &cases[i].word, 1, &cfg);
        env.judges = !cases[i].unjudged;
        if (CHECK(options != NULL)) c->check(cfg, options, &env);
        CHECK_EQ(ares_config_fault_count(cfg), cases[i].fault != NULL);
        if (cases[i].fault) CHECK_CONTAINS(faults_text(cfg), cases[i].fault);
        ares_free(options);
        ares_config_free(cfg);
    }
    options = control_options(c, NULL, 0, &cfg);
    CHECK(options && !c->wanted(options, &env));
    env.entropy_reward = true;
    CHECK(options && c->wanted(options, &env));
    ares_free(options);
    ares_config_free(cfg);
}

/* ---------------------------------------------------------------- what is reported */

static void check_metric(const ares_metrics *m, const char *prefix, int d, const char *suffix,
                         double want)
{
    char name[96];
    double value = NAN;
    snprintf(name, sizeof name, "%s/%s%s", prefix, ares_difficulty_names[d], suffix);
    ares_metrics_get(m, name, &value);
    CHECK_MSG(fabs(value - want) < 1e-6, "%s = %g, expected %g", name, value, want);
}

TEST(prompts_count_alike_whatever_the_number_of_their_answers)
{
    aepo_buckets out;
    aepo_prompt prompts[] = { { .samples = 2, .accuracy = 2, .hwe = 4, .length = 8 },
                              { .samples = 4, .accuracy = 3, .hwe = 4, .length = 40 } };
    aepo_bucket(prompts, ARES_COUNT(prompts), &out);
    CHECK_EQ(out.prompts[ARES_EASY], 2);
    CHECK_NEAR(out.accuracy[ARES_EASY], 0.875, 0);
    CHECK_NEAR(out.hwe[ARES_EASY], 1.5, 0);
    CHECK_NEAR(out.length[ARES_EASY], 7, 0);
}

/* Of each difficulty eight answers of 3 to 10 tokens, of which the i-th has i HWE tokens. */
TEST(a_difficulty_is_reported_by_its_own_answers)
{
    static const int right[ARES_DIFFICULTIES] = { 0, 8, 4, 1 };
    static const double in_bin[3] = { 2, 2, 4 }, right_in[ARES_DIFFICULTIES][3] = {
        { 0 }, { 2, 2, 4 }, { 2, 2, 0 }, { 1, 0, 0 }
    };
    subject s;
    ares_batch b;
    ares_metrics *m = ares_metrics_new();
    if (!open_directions(&s)) return;
    ares_batch_init(&b);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        ares_batch_begin_group(&b);
        for (int i = 0; i < 8; i++)
            ares_batch_add_row(&b,
                               &(ares_sample){ .draw = d,
                                               .index = i,
                                               .row = &rows[d - ARES_EASY],
                                               .accuracy = i < right[d] ? 1 : 0 },
                               3 + i);
    }
    ARES_PUT(&b, response_mask);
    ARES_PUT(&b, entropies);
    for (int64_t r = 0; r < b.rows; r++)
        for (int64_t t = 0; t < 3 + r % 8; t++) {
            b.response_mask[b.row_start[r] + t] = 1;
            b.entropies[b.row_start[r] + t] = t >= 1 && t <= r % 8 ? 2 : 0;
        }
    CHECK_OK(s.c->observe(s.state, &b, m));
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        check_metric(m, "reward", d, "/count", 8);
        check_metric(m, "reward", d, "/accuracy", right[d] / 8.0);
        check_metric(m, "train", d, "/acc_mean", right[d] / 8.0);
        check_metric(m, "train", d, "/len_mean", 6.5);
        check_metric(m, "response_length", d, "/mean", 6.5);
        check_metric(m, "response_length", d, "/min", 3);
        check_metric(m, "response_length", d, "/max", 10);
        check_metric(m, "reasoning_tokens_statistics", d, "/valid_mean", 3.5);
        /* windows below tau */
        check_metric(m, "reasoning_tokens_statistics", d, "/invalid_mean", 2);
        for (int i = 0; i < 3; i++) { /* counts 0 to 7 in bins that begin at 0, 2 and 4 */
            char suffix[32];
            snprintf(suffix, sizeof suffix, "/count/bin%d", i + 1);
            check_metric(m, "entropy_vs_acc", d, suffix, in_bin[i]);
            snprintf(suffix, sizeof suffix, "/accuracy/bin%d", i + 1);
            check_metric(m, "entropy_vs_acc", d, suffix, right_in[d][i] / in_bin[i]);
            snprintf(suffix, sizeof suffix, "/bin%d", i + 1);
            check_metric(m, "aepo/acc_by_hwe", d, suffix, right_in[d][i] / in_bin[i]);
        }
    }
    double share = 0;
    CHECK(ares_metrics_get(m, "aepo/hwe_frac", &share));
    CHECK_NEAR(share, 28.0 / 52, 1e-12);
    ares_metrics_free(m);
    ares_batch_fini(&b);
    close_subject(&s);
}

/* ---------------------------------------------------------------- the adaptive coefficient */

TEST(the_adaptive_coefficient_follows_the_kl_and_resumes)
{
    static const char *const words[] = { "algorithm.kl_type=adaptive", "algorithm.kl_target=0.1",
                                         "algorithm.kl_horizon=1000" };
    name_rows();
    subject s = { .algorithm = { .kl_coef = 0.01 } };
    if (!open_subject(&s, "adaptive_kl", words, ARES_COUNT(words))) return;
    CHECK(s.c->wanted(s.options, &s.env));
    double last = 0.01;
    for (int64_t step = 0; step < 50; step++) {
        ares_batch b;
        bool over = step < 25;
        chance_batch(&b, step, 0, 1, over ? 2.0 : 0.05);
        CHECK_OK(s.c->observe(s.state, &b, NULL));
        if (step > 0) CHECK(step <= 25 ? b.kl_coef > last : b.kl_coef < last);
        else CHECK_NEAR(b.kl_coef, 0.01, 0);
        last = b.kl_coef;
        CHECK_OK(s.c->adapt(s.state, &b, NULL));
        if (!resume(&s)) break;
        ares_batch_fini(&b);
    }
    s.algorithm.kl_coef = 0; /* stays 0, whatever it is multiplied by */
    CHECK(!s.c->wanted(s.options, &s.env));
    s.algorithm.kl_coef = 0.01;
    s.algorithm.use_kl_loss = true; /* a loss term's coefficient is a constant */
    CHECK(!s.c->wanted(s.options, &s.env));
    close_subject(&s);
}

/* More samples per step than the horizon: the KL was still measured only once. */
TEST(no_number_of_samples_moves_the_adaptive_coefficient_by_more_than_a_fifth_per_step)
{
    static const char *const words[] = { "algorithm.kl_type=adaptive", "algorithm.kl_target=0.1",
                                         "algorithm.kl_horizon=0.5" };
    name_rows();
    subject s = { .algorithm = { .kl_coef = 0.1 } };
    if (!open_subject(&s, "adaptive_kl", words, ARES_COUNT(words))) return;
    double coef = 0.1;
    for (int64_t step = 0; step < 6; step++) {
        ares_batch b;
        bool over = step % 3 == 0;
        chance_batch(&b, step, 0, 1, over ? 2.0 : 0);
        CHECK_OK(s.c->observe(s.state, &b, NULL));
        CHECK_NEAR(b.kl_coef, coef, 1e-15);
        coef *= over ? 1.2 : 0.8;
        CHECK_OK(s.c->adapt(s.state, &b, NULL));
        ares_batch_fini(&b);
        if (!resume(&s)) break; /* a coefficient below 0 is refused */
    }
    close_subject(&s);
}

/*
 * Rows of 0.05, 0.1, 0.15 and 0.14, without the tokens that the policy did not write: a tenth above
 * the target.
 */
TEST(the_kl_of_a_row_without_a_kl_column_is_the_mean_over_its_own_tokens)
{
    static const char *const words[] = { "algorithm.kl_type=adaptive", "algorithm.kl_target=0.1",
                                         "algorithm.kl_horizon=1000" };
    static const double of[SAMPLES] = { 0.05, 0.1, 0.15, 0.14 };
    static const float h[5] = { 0 };
    double next = 0;
    name_rows();
    subject s = { .algorithm = { .kl_coef = 0.01 } };
    if (!open_subject(&s, "adaptive_kl", words, ARES_COUNT(words))) return;
    s.algorithm.kl_penalty = "kl";
    ares_batch b;
    ares_metrics *m = ares_metrics_new();
    one_prompt(&b, 0, 2, h, 5);
    ARES_PUT(&b, old_log_probs), ARES_PUT(&b, ref_log_probs);
    for (int64_t t = 0; t < b.tokens; t++) {
        b.response_mask[t] = t % 5 != 2;
        b.ref_log_probs[t] = -3;
        b.old_log_probs[t] = t % 5 == 2 ? 0 : (float)(of[t / 5] * (t % 5 < 2 ? 0.5 : 1.5) - 3);
    }
    CHECK_OK(s.c->adapt(s.state, &b, m));
    CHECK(ares_metrics_get(m, "critic/kl_coef_next", &next));
    CHECK_NEAR(next, 0.01 * (1 + 0.1 * SAMPLES / 1000), 1e-10);
    ares_metrics_free(m);
    ares_batch_fini(&b);
    close_subject(&s);
}

TEST(the_exact_kl_is_not_guessed_from_log_probs)
{
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true" };
    static const float h[3] = { 1, 2, 3 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, 1)) return;
    s.algorithm.kl_penalty = "full";
    ares_batch b;
    one_prompt(&b, 0, 2, h, 3);
    CHECK_OK(s.c->observe(s.state, &b, NULL));
    ARES_PUT(&b, old_log_probs), ARES_PUT(&b, ref_log_probs);
    CHECK_FAIL(s.c->adapt(s.state, &b, NULL), ARES_ESTATE, "needs column 'kl'");
    s.algorithm.use_kl_loss = true; /* a step in which the actor did not learn */
    CHECK_OK(s.c->adapt(s.state, &b, NULL));
    ares_batch_fini(&b);
    close_subject(&s);
}

/* ---------------------------------------------------------------- ranks */

TEST_MPI(two_ranks_remember_what_one_would)
{
    if (!test_as_ranks(2, "two_ranks_remember_what_one_would")) return;
    static const char *const words[] = { "worker.actor.dynamic_kl_loss=true",
                                         "algorithm.drop_easy_prompts=true",
                                         "algorithm.kl_bucket_controller=log_space",
                                         "algorithm.kl_beta_update_interval=2" };
    ares_world *w;
    REQUIRE_OK(ares_world_open(&w));
    name_rows();
    int rank = ares_world_rank(w), ranks = ares_world_size(w);
    subject part = { .env = { .world = w } }, whole = { 0 };
    if (!open_subject(&part, "aepo", words, ARES_COUNT(words)) ||
        !open_subject(&whole, "aepo", words, ARES_COUNT(words)))
        return;
    for (int64_t step = 0; step < 60; step++) {
        ares_batch mine, all;
        chance_batch(&mine, step, rank, ranks, 0.1);
        chance_batch(&all, step, 0, 1, 0.1);
        CHECK_OK(part.c->generated(part.state, &mine));
        CHECK_OK(part.c->observe(part.state, &mine, NULL));
        update(&mine, 2);
        update(&all, 2);
        CHECK_OK(part.c->adapt(part.state, &mine, NULL));
        CHECK_OK(whole.c->generated(whole.state, &all));
        CHECK_OK(whole.c->observe(whole.state, &all, NULL));
        CHECK_OK(whole.c->adapt(whole.state, &all, NULL));
        for (int64_t r = 0, i = 0; r < all.rows; r++) {
            if (all.samples[r].draw % GROUPS % ranks != rank) continue;
            const ares_sample *x = &mine.samples[i++], *y = &all.samples[r];
            CHECK_EQ(x->difficulty, y->difficulty);
            CHECK_EQ(x->hwe_count, y->hwe_count);
            CHECK_NEAR(x->entropy_alpha, y->entropy_alpha, 0);
        }
        ares_batch_fini(&mine);
        ares_batch_fini(&all);
        if (!same_state(&part, &whole)) break;
    }
    close_subject(&part);
    close_subject(&whole);
    ares_world_close(w);
}

TEST(groups_on_trial_are_told_what_is_known_and_teach_nothing)
{
    static const char *const words[] = { "algorithm.aepo=true", "worker.rollout.window_size=2" };
    static const float h[6] = { 0, 2, 2, 0, 0, 0 };
    name_rows();
    subject s = { 0 }, other = { 0 };
    if (!open_subject(&s, "aepo", words, 2) || !open_subject(&other, "aepo", words, 2)) return;
    ares_batch b;
    for (int round = 0; round < 2; round++) {
        one_prompt(&b, 3, 2, h, 6); /* right but for what is discarded: easy, whatever training has
                                       seen */
        memset(b.response_mask + b.row_start[2], 0, (size_t)(b.tokens - b.row_start[2]));
        CHECK_OK(s.c->provisional(s.state, &b));
        for (int r = 0; r < 2; r++) {
            CHECK_EQ(b.samples[r].difficulty, ARES_EASY);
            CHECK_EQ(b.samples[r].hwe_count, 1);
            CHECK_NEAR(b.samples[r].hwe_target, 1,
                       0); /* the group's own mean; then the target that the step has set */
            CHECK_NEAR(b.samples[r].entropy_alpha, 0.5, 0);
        }
        CHECK(!b.hwe && !b.kl_weight);
        ares_batch_fini(&b);
        same_state(&s, &other);
        one_prompt(&b, 3, 4, h, 6);
        CHECK_OK(s.c->observe(s.state, &b, NULL));
        ares_batch_fini(&b);
        one_prompt(&b, 3, 4, h, 6);
        CHECK_OK(other.c->observe(other.state, &b, NULL));
        ares_batch_fini(&b);
    }
    close_subject(&s);
    close_subject(&other);
}

TEST(a_window_longer_than_any_answer_marks_nothing_and_tau_is_the_first_entropy)
{
    static const char *const words[] = { "algorithm.aepo=true", "worker.rollout.window_size=50",
                                         "worker.actor.dynamic_kl_loss=true" };
    static const float h[6] = { 0.5, 2, 2, 0, 0, 0 };
    name_rows();
    subject s = { 0 };
    if (!open_subject(&s, "aepo", words, 3)) return;
    ares_batch b;
    ares_metrics *m = ares_metrics_new();
    one_prompt(&b, 3, 2, h, 6);
    if (CHECK_OK(s.c->observe(s.state, &b, m))) {
        double tau = 0;
        CHECK(ares_metrics_get(m, "aepo/tau", &tau));
        CHECK_NEAR(tau, 0.5, 1e-12);
        for (int64_t i = 0; i < b.tokens; i++)
            CHECK(!b.hwe[i] && b.window_entropies[i] == -1 && b.kl_weight[i] == 1);
        CHECK_NEAR(b.samples[0].hwe_target, 0, 0);
    }
    ares_metrics_free(m);
    ares_batch_fini(&b);
    close_subject(&s);
}
