/* Log-probs at a temperature that is not the rollout's, against libtorch's. */
#include "gradient.h"

#include "roles.h"

/* The run's own model once more, as a reference. */
static bool reference_of(const run *r, reference *ref)
{
    static char path[500];
    ares_model_options opt = { .storage = ARES_F32 };
    snprintf(path, sizeof path, "%s/qwen2_tied", test_source("tests/golden/models"));
    *ref = (reference){ .cfg = &r->cfg };
    return CHECK_OK(ares_model_load(path, (ares_device *)&r->device, &opt, &ref->own)) &&
           CHECK_OK(learner_open(&ref->learner, ref->own, &(learner_options){ .role = "ref" }));
}

/* [tokens] in f64, at cfg.rollout.temperature */
static bool plain_log_probs(const run *r, double *out)
{
    at_scope *s = at_scope_open("temperature");
    oracle o = { .r = r, .dtype = AT_F64 };
    leaves_of(&o, r->model, false);
    for (int row = 0; row < ROWS && !at_scope_failed(); row++)
        at_read(taken(&o, row, row_log_p(&o, row)), AT_F64, out + r->batch.row_start[row]);
    return CHECK_OK(at_scope_close(s, NULL));
}

static void check_near(const run *r, const char *what, double temperature, const float *have,
                       const double *want)
{
    for (int64_t t = 0; t < r->batch.tokens; t++)
        CHECK_MSG(fabs((double)have[t] - want[t]) < 2e-5, "%s at %g: token %lld is %.7g, not %.7g",
                  what, temperature, (long long)t, (double)have[t], want[t]);
}

TEST(policy_and_reference_give_log_probs_at_any_temperature)
{
    static const double temperatures[] = { 1, 0.7, 2 };
    for (int share = 0; share < 2; share++) {
        run r;
        reference ref;
        if (!run_open(&r, "qwen2_tied", "token-mean", share) || !reference_of(&r, &ref)) return;
        ares_batch *b = &r.batch;
        for (int i = 0; i < ARES_COUNT(temperatures); i++) {
            float *log_probs = ares_arena_calloc(&b->arena, (size_t)b->tokens, sizeof *log_probs);
            double *want = ares_arena_calloc(&b->arena, (size_t)b->tokens, sizeof *want);
            learner_scoring scoring = learner_scoring_of(&r.cfg);
            scoring.temperature = temperatures[i];
            b->ref_log_probs = NULL;
            CHECK_OK(learner_log_probs(&r.actor.learner, &scoring, b, 0, b->rows, log_probs, NULL));
            CHECK_OK(reference_log_probs(&ref, temperatures[i], b));
            double rollout = r.cfg.rollout.temperature;
            r.cfg.rollout.temperature = temperatures[i]; /* which the oracle reads */
            if (plain_log_probs(&r, want)) {
                check_near(&r, "policy", temperatures[i], log_probs, want);
                check_near(&r, "reference", temperatures[i], b->ref_log_probs, want);
            }
            r.cfg.rollout.temperature = rollout;
        }
        reference_close(&ref);
        run_close(&r);
    }
}
