/* The algorithm. What each stage reads and writes: docs/architecture.md#the-way-of-a-batch. */
#include <string.h>

#include "ares/algo_control.h"
#include "ares/algo_loss.h"
#include "collect/collect.h"
#include "learner.h"
#include "report/report.h"
#include "teacher_texts.h"
#include "trainer.h"
#include "vapor.h"

/* A stage that fails ends the step; one that succeeds leaves its time in timing_s/<name>. */
#define STAGE(name, expr)                                               \
    do {                                                                \
        double started_ = ares_now_s();                                 \
        ares_work_begin(name);                                          \
        ARES_TRY(expr);                                                 \
        ares_metrics_set(m, "timing_s/" name, ares_now_s() - started_); \
    } while (0)

/*
 * What a rank computes by itself may fail on that rank alone. All ranks learn of it before they
 * meet in the next sum, where they would wait forever.
 */
#define LOCAL(expr) ares_world_share_error(t->run.world, (expr))

/*
 * The score of a response goes to the last token that the policy wrote; scores of single turns go
 * to the ends of their turns. A response without a token of the policy is counted in a metric.
 */
static int put_scores(ares_trainer *t, ares_batch *b, ares_metrics *m)
{
    int64_t empty = 0;
    if (ares_reward_shapes(t->reward)) {
        /* shaping adds to the score of a whole response, which scores of turns take the place of */
        int rc = ARES_OK;
        if (b->turn_scores)
            rc = ares_fail(ARES_ECONFIG,
                           "train: the turns of a response have scores of their own, to which no "
                           "reward adds by difficulty; leave the reward aepo out, or the scores of "
                           "turns (env.use_turn_scores)");
        ARES_TRY(LOCAL(rc));
    }
    ares_reward_shape(t->reward, b);
    ARES_PUT(b, token_level_scores);
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t last = ares_batch_last_token(b, r);
        if (last < 0) empty++;
        else if (!b->turn_scores) b->token_level_scores[last] = b->samples[r].score;
    }
    for (int64_t i = 0; i < b->tokens && b->turn_scores; i++)
        b->token_level_scores[i] = b->turn_scores[i];
    ARES_TRY(ares_world_sum_i64(t->run.world, &empty, 1));
    ares_metrics_set(m, "reward/empty_responses", (double)empty);
    return ARES_OK;
}

/* Token rewards are scores, minus the KL to the reference where that is part of the reward. */
static int shape_rewards(ares_trainer *t, ares_batch *b, ares_metrics *m)
{
    ARES_TRY(ARES_NEED(b, "shape", token_level_scores));
    ARES_PUT(b, token_level_rewards);
    double sums[2] = { 0 };
    if (ares_kl_acts(&t->run.cfg->algorithm) != ARES_KL_IN_REWARD) {
        memcpy(b->token_level_rewards, b->token_level_scores,
               (size_t)b->tokens * sizeof *b->token_level_rewards);
        return ARES_OK;
    }
    if (t->actor.kl->value) ARES_TRY(LOCAL(ares_kl_column(t->actor.kl, b)));
    else
        ARES_TRY(
            LOCAL(reference_kl(t->ref, &t->actor.learner, t->run.cfg->rollout.temperature, b)));
    ares_kl_in_reward(b, b->kl_coef, sums);
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, 2));
    if (sums[1] > 0) ares_metrics_set(m, "critic/kl", sums[0] / sums[1]);
    ares_metrics_set(m, "critic/kl_coef", b->kl_coef);
    return ARES_OK;
}

static void scale_advantages(ares_batch *b)
{
    for (int64_t i = 0; i < b->tokens && b->advantage_scale != 1; i++)
        b->advantages[i] *= (float)b->advantage_scale;
}

static void put_no_advantages(ares_batch *b)
{
    ARES_PUT(b, advantages);
    ARES_PUT(b, returns);
}

/* What the teacher reads, and what it says of sampled tokens where no head compares the two. */
static int hear_teacher(ares_trainer *t, ares_batch *b, ares_metrics *m)
{
    ARES_TRY(teacher_texts_fill(t->teacher->texts, t->run.world, b, m));
    if (ares_distills_vocabulary(&t->run.cfg->distillation)) return ARES_OK;
    return LOCAL(teacher_log_probs(t->teacher, b));
}

/* The tokens that it teaches, and its part of the advantages, which comes after all others. */
static int distill(ares_trainer *t, ares_batch *b)
{
    const ares_distillation_config *c = &t->run.cfg->distillation;
    double seen[2] = { 0 };
    (void)ares_distill_tokens(c, b);
    return c->use_policy_gradient ? ares_distill_advantages(c, c->coef, b, seen) : ARES_OK;
}

int ares_train_step(ares_trainer *t, ares_metrics *m)
{
    const ares_train_config *cfg = t->run.cfg;
    ares_batch *b = &t->batch;
    const actor_second *second = NULL; /* VAPOR's, which learns with the batch */
    ares_batch_clear(b);
    b->kl_coef = cfg->algorithm.kl_coef;

    STAGE("gen", collect_groups(t, b, m)); /* prompt -> rollout -> accuracy -> filter, until full */
    ARES_TRY(LOCAL(ares_signal_poll()));   /* answers that a signal has cut short are no answers */
    STAGE("observe", controls_observe(t->run.controls, b, m));
    if (controls_stop(t->run.controls)) return ARES_OK;      /* the run ends without this update */
    if (t->teacher) STAGE("teacher", hear_teacher(t, b, m)); /* by the scores as they were judged */
    STAGE("score", put_scores(t, b, m)); /* shaped by what the controls have written */
    /* the rollout's own where they are still exact: docs/design.md#old-log-probs */
    STAGE("old", LOCAL(actor_log_probs(&t->actor, b)));
    if (t->adv->needs & ARES_NEEDS_SUM_PI_SQUARED && !teacher_alone(cfg))
        STAGE("sum_pi_squared", LOCAL(actor_sum_pi_squared(&t->actor, b)));
    if (t->ref) STAGE("ref", LOCAL(reference_log_probs(t->ref, cfg->rollout.temperature, b)));
    if (t->vapor && !t->run.replays)
        STAGE("pairs", vapor_pairs(t->vapor, t->ref, t->run.world, b, &second, m));
    if (t->critic) STAGE("values", LOCAL(critic_values(t->critic, b)));
    STAGE("shape", shape_rewards(t, b, m));
    if (ares_rollout_corrects(&cfg->loss)) /* answers may lose tokens until ares_rollout_restore */
        STAGE("correct", ares_rollout_correct(&cfg->loss, t->run.world, b, m));
    if (teacher_alone(cfg)) put_no_advantages(b);
    else STAGE("adv", LOCAL(t->adv->compute(&cfg->algorithm, t->run.world, b)));
    scale_advantages(b); /* the critic's returns stay as they are */
    if (t->teacher) ARES_TRY(LOCAL(distill(t, b)));
    if (t->run.replays) return ARES_OK; /* ares-train verify: the batch is what is compared */
    bool learns = !cfg->gradients.only;
    if (t->critic && learns) STAGE("update_critic", critic_update(t->critic, b, m));
    if (report_gradients_due(t)) STAGE("gradient_analysis", report_gradients(t, b, m));
    if (learns && t->run.step >= cfg->trainer.critic_warmup)
        STAGE("update_actor", actor_update(&t->actor, b, second, m));
    if (t->teacher) ARES_TRY(LOCAL(teacher_sync(t->teacher, t->run.step + 1)));
    if (t->vapor)
        STAGE("sync_ref", LOCAL(vapor_sync(t->vapor, t->ref, &t->actor.learner, t->run.step + 1)));
    ares_signal_expect(ARES_SIGNAL_WAITS); /* what follows belongs to the update */
    STAGE("adapt", controls_adapt(t->run.controls, b, &t->run.source, m));
    ares_rollout_restore(b);
    ARES_TRY(media_report(&t->actor.learner, t->ref ? &t->ref->learner : NULL, b, m));
    STAGE("report", report_batch(t, b, m));
    return ARES_OK;
}
