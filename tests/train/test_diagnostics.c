/*
 * What is measured of a step besides its training: collapse metrics from turns that are known, and
 * gradients by reward deviation, compared with the update's own.
 */
#include <math.h>
#include <string.h>

#include "agents/agents.h"
#include "ares/algo.h"
#include "collect/collect.h"
#include "report/report.h"
#include "test.h"
#include "tiny_trainer.h"

static double metric(const opened *o, const char *name)
{
    double x = NAN;
    return ares_metrics_get(o->m, name, &x) ? x : NAN;
}

/* ---------------------------------------------------------------- collapse */
enum { EPISODES = 4, TURNS = 2, LONGEST = 40 };
/* two groups of two episodes of two turns; members of a group begin with the same prompt */
typedef struct talk {
    int32_t x[TURNS][LONGEST], z[TURNS][LONGEST];
} talk;

static void make_turns(talk *c, collapse_turn *out)
{
    for (int e = 0; e < EPISODES; e++)
        for (int k = 0; k < TURNS; k++) {
            int32_t x_len = 9 + 4 * k + e / 2, z_len = 3 + e + 5 * k;
            for (int i = 0; i < x_len; i++) c[e].x[k][i] = 60 + (i * 7 + (k ? e : e / 2) * 11) % 50;
            for (int i = 0; i < z_len; i++) c[e].z[k][i] = 60 + (i * 5 + e * 3 + k) % 50;
            out[e * TURNS + k] = (collapse_turn){ .x = c[e].x[k],
                                                  .x_len = x_len,
                                                  .z = c[e].z[k],
                                                  .z_len = z_len,
                                                  .group = e / 2,
                                                  .episode = e % 2,
                                                  .turn = k };
        }
}

/* Sum of the log-probs of a thought after a prompt, in a pass by itself. */
static double score_alone(opened *o, const collapse_turn *prompt, const collapse_turn *thought)
{
    ares_batch b;
    float log_probs[LONGEST];
    double sum = 0;
    ares_batch_init(&b);
    ares_batch_begin_group(&b);
    ares_batch_add_row(&b, &(ares_sample){ .prompt = prompt->x, .prompt_len = prompt->x_len },
                       thought->z_len);
    ARES_PUT(&b, responses);
    memcpy(b.responses, thought->z, (size_t)thought->z_len * sizeof *b.responses);
    CHECK_OK(ares_train_log_probs(o->t.run.model, NULL, o->t.actor.learner.workspace, NULL, &o->c,
                                  &b, 0, 1, log_probs, NULL));
    for (int i = 0; i < thought->z_len; i++) sum += (double)log_probs[i];
    ares_batch_fini(&b);
    return sum;
}

TEST(first_turns_are_scored_after_the_prompts_of_both_groups)
{
    opened o;
    talk c[EPISODES];
    collapse_turn turns[EPISODES * TURNS];
    REQUIRE_OK(
        open_trainer(&o, "report.collapse.freq=5", "worker.actor.max_token_len_per_device=20"));
    make_turns(c, turns);
    CHECK_OK(report_collapse(&o.t, turns, EPISODES * TURNS, o.m));
    double x[2][EPISODES * 2], matched[EPISODES], marginal[EPISODES];
    for (int e = 0; e < EPISODES; e++)
        for (int g = 0; g < 2; g++) {
            const collapse_turn *thought = &turns[e * TURNS];
            x[0][e * 2 + g] = score_alone(&o, &turns[g * 2 * TURNS], thought);
            x[1][e * 2 + g] = x[0][e * 2 + g] / thought->z_len;
        }
    static const int64_t own[] = { 0, 0, 1, 1 }, text[] = { 0, 1 };
    ares_collapse want[2];
    for (int i = 0; i < 2; i++)
        ares_collapse_measure(&(ares_collapse_scores){ EPISODES, 2, x[i], own, text }, matched,
                              marginal, &want[i]);
    CHECK(want[1].mi != 0);
    CHECK_NEAR(metric(&o, "collapse_first_turn_sample/mi_estimate"), want[1].mi, 0);
    CHECK_NEAR(metric(&o, "collapse_first_turn_sample/mi_upper_bound"), log(2), 1e-15);
    CHECK_NEAR(metric(&o, "collapse_first_turn_sample/mi_seq_estimate"), want[0].mi, 0);
    CHECK_NEAR(metric(&o, "collapse_first_turn_sample/marginal_std_seq"), want[0].marginal_std, 0);
    CHECK_NEAR(metric(&o, "collapse_first_turn_sample/retrieval_accuracy"), want[1].accuracy[0], 0);
    CHECK_NEAR(metric(&o, "collapse_first_turn_sample/retrieval_chance_level"), 0.5, 0);
    CHECK_NEAR(metric(&o, "collapse/first_turn_num_total"), EPISODES, 0);
    CHECK_NEAR(metric(&o, "collapse/valid_thinking_rate"), 1, 0);
    /* eight draws of turns, each with a prompt of its own */
    CHECK_NEAR(metric(&o, "collapse_trajectory_sample/mi_upper_bound"), log(8), 1e-12);
    CHECK(metric(&o, "collapse_trajectory_sample/retrieval_chance_level") >= 1.0 / 8);
    close_trainer(&o);
}

/* The thought ends before the token with which </think> begins, whatever that token holds too. */
TEST(a_thought_is_what_was_sampled_before_the_tag_that_closes_it)
{
    static const struct {
        const char *text, *thought;
    } cases[] = {
        { "go left</think><answer>Left</answer>", "go left" },
        { "a\xc3\xa9</think>", "a\xc3\xa9" },
        { "x</think>y</think><answer>Up</answer>", "x" },
        { " \n </think><answer>Up</answer>", "" },
        { "</think><answer>Up</answer>", "" },
        { "no tag <answer>Up</answer>", "" },
        { "", "" },
    };
    opened o;
    ares_arena arena = { 0 };
    REQUIRE_OK(open_trainer(&o, "report.collapse.freq=5", "report.collapse.samples=6"));
    const ares_tokenizer *tokenizer = o.t.run.tokenizer;
    const conversation_style style = { .tokenizer = tokenizer };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_ids ids = { 0 };
        ares_str text = { 0 };
        ares_trajectory y = { 0 };
        const int32_t prompt[] = { 60, 61 };
        REQUIRE_OK(ares_tokenizer_encode(tokenizer, ares_view_of(cases[i].text), false, &ids));
        conversation_turn turn = {
            .prompt = prompt, .prompt_len = 2, .ids = ids.ids, .n = (int32_t)ids.n
        };
        conversation_thoughts(&(conversation){ .style = &style, .turns = &turn, .n = 1 }, &arena,
                              &y);
        CHECK_EQ(y.n_thoughts, 1);
        CHECK(y.thoughts[0].prompt == prompt && y.thoughts[0].prompt_len == 2);
        CHECK_OK(ares_tokenizer_decode(tokenizer, ids.ids, y.thoughts[0].n, false, &text));
        CHECK_VIEW(ares_str_view(&text), cases[i].thought);
        ares_ids_fini(&ids);
        ares_str_fini(&text);
    }
    ares_arena_fini(&arena);
    close_trainer(&o);
}

TEST(turns_without_a_thought_are_counted_and_never_drawn)
{
    opened o;
    talk c[EPISODES];
    collapse_turn turns[EPISODES * TURNS];
    REQUIRE_OK(open_trainer(&o, "report.collapse.freq=5", "report.collapse.samples=6"));
    make_turns(c, turns);
    for (int e = 0; e < EPISODES; e++) turns[e * TURNS].z_len = 0;
    CHECK_OK(report_collapse(&o.t, turns, EPISODES * TURNS, o.m));
    CHECK_NEAR(metric(&o, "collapse/valid_thinking_rate"), 0.5, 0);
    CHECK_NEAR(metric(&o, "collapse/first_turn_num_total"), EPISODES, 0);
    CHECK_NEAR(metric(&o, "collapse/first_turn_num_valid"), 0, 0);
    CHECK(isnan(metric(&o, "collapse_first_turn_sample/mi_estimate")));
    CHECK_NEAR(metric(&o, "collapse_trajectory_sample/mi_upper_bound"), log(4), 1e-15);
    /* nobody thinks, or nobody has said anything: no metrics, and no fault */
    for (int i = 0; i < EPISODES * TURNS; i++) turns[i].z_len = 0;
    for (int n = 0; n <= EPISODES * TURNS; n += EPISODES * TURNS) {
        ares_metrics_clear(o.m);
        CHECK_OK(report_collapse(&o.t, turns, n, o.m));
        CHECK(isnan(metric(&o, "collapse_trajectory_sample/mi_estimate")));
    }
    close_trainer(&o);
}

TEST(the_first_step_and_every_multiple_are_measured)
{
    opened o;
    static const int due[] = { 1, 0, 1, 0, 0, 1, 0, 0, 1 }; /* steps 1 to 9 */
    REQUIRE_OK(open_trainer(&o, "report.collapse.freq=3", "report.gradient_analysis.every=3"));
    for (int step = 0; step < ARES_COUNT(due); step++) {
        o.t.run.step = step;
        CHECK_EQ(report_collapse_due(&o.t), due[step]);
    }
    close_trainer(&o);
}

/* ---------------------------------------------------------------- gradients */
#define VARIED "worker.reward.rewards=[{name: random}]"

TEST(the_gradient_of_all_groups_and_the_only_term_is_that_of_the_update)
{
    opened o;
    REQUIRE_OK(open_trainer(&o, VARIED, "report.gradient_analysis.every=1"));
    CHECK_OK(ares_train_step(&o.t, o.m));
    CHECK(metric(&o, "actor/grad_norm") > 0);
    CHECK_NEAR(metric(&o, "grad_norm/all/task"), metric(&o, "actor/grad_norm"), 0);
    CHECK_NEAR(metric(&o, "grad_norm/all/loss/policy"), metric(&o, "actor/pg_loss"), 0);
    CHECK_NEAR(metric(&o, "grad_norm/all/loss/total"), metric(&o, "actor/final_loss"), 0);
    CHECK(isnan(metric(&o, "grad_norm/all/entropy")) && isnan(metric(&o, "grad_norm/all/kl")));
    CHECK_NEAR(metric(&o, "grad_norm/all/sample_count"), 16, 0);
    CHECK_NEAR(metric(&o, "grad_norm/all/per_sample/task"), metric(&o, "actor/grad_norm") / 16, 0);
    CHECK_NEAR(metric(&o, "grad_norm/not_finite"), 0, 0);
    double before = 0, rows = 0;
    for (int k = 1; k <= 4; k++) { /* four groups: four buckets, by deviation */
        char name[64];
        snprintf(name, sizeof name, "grad_norm/bucket_%d/reward_std_mean", k);
        CHECK(metric(&o, name) >= before);
        before = metric(&o, name);
        snprintf(name, sizeof name, "grad_norm/bucket_%d/sample_count", k);
        rows += metric(&o, name);
    }
    CHECK_NEAR(rows, 16, 0);
    CHECK(isnan(metric(&o, "grad_norm/bucket_5/sample_count")));
    close_trainer(&o);
}

/* Two rows are a mini-batch; those of one have no token that counts. */
TEST(a_mini_batch_without_a_token_is_in_no_mean)
{
    opened o;
    double sum = 0, of_short = 0;
    REQUIRE_OK(open_trainer(&o, VARIED, "report.gradient_analysis.every=1"));
    o.c.actor.mini_batch_unit = "rows";
    o.c.actor.global_batch_size = 2;
    o.c.trainer.balance_batch = false;
    CHECK_OK(ares_train_step(&o.t, o.m));
    ares_batch *b = &o.t.batch;
    memset(b->response_mask, 0, (size_t)b->row_start[2]);
    ares_metrics_clear(o.m);
    CHECK_OK(report_gradients(&o.t, b, o.m));
    for (int k = 1; k <= 4; k++) {
        char task[64], count[64];
        snprintf(task, sizeof task, "grad_norm/bucket_%d/task", k);
        snprintf(count, sizeof count, "grad_norm/bucket_%d/sample_count", k);
        bool is_short = metric(&o, count) == 2;
        CHECK(is_short || metric(&o, count) == 4);
        sum += (is_short ? 1 : 2) * metric(&o, task);
        if (is_short) of_short += metric(&o, task);
    }
    CHECK(of_short > 0);
    CHECK_NEAR(metric(&o, "grad_norm/all/task"), sum / 7, 1e-9 * sum);
    close_trainer(&o);
}

TEST(the_entropy_term_alone_gives_the_gradient_of_an_update_that_has_no_other)
{
    opened o;
    REQUIRE_OK(
        open_trainer(&o, "worker.actor.entropy_coeff=0.1", "report.gradient_analysis.every=1"));
    CHECK_OK(ares_train_step(&o.t, o.m)); /* every score is 0, and so is every advantage */
    CHECK(metric(&o, "actor/grad_norm") > 0);
    CHECK_NEAR(metric(&o, "grad_norm/all/entropy"), metric(&o, "actor/grad_norm"), 0);
    CHECK_NEAR(metric(&o, "grad_norm/all/task"), 0, 0);
    CHECK_NEAR(metric(&o, "grad_norm/all/sample_pct"), 1, 0); /* groups of equal scores count */
    CHECK_NEAR(metric(&o, "grad_norm/all/loss/entropy"), -0.1 * metric(&o, "actor/entropy_loss"),
               1e-15);
    close_trainer(&o);
}

TEST(fixed_bands_hold_what_lies_in_them_and_empty_ones_are_left_out)
{
    opened o;
    REQUIRE_OK(open_trainer(&o, VARIED, "report.gradient_analysis.bucket_mode=fixed"));
    o.c.gradients.every = 1;
    CHECK_OK(ares_train_step(&o.t, o.m));
    CHECK_NEAR(metric(&o, "grad_norm/bucket_1/group_rv_count"), 4, 0); /* below 1 */
    CHECK(isnan(metric(&o, "grad_norm/bucket_2/group_rv_count")));
    CHECK_NEAR(metric(&o, "grad_norm/bucket_1/task"), metric(&o, "grad_norm/all/task"), 0);
    close_trainer(&o);
}
