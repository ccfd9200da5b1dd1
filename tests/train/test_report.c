/*
 * The usual metrics of a batch count only tokens of the policy and answers that are not masked,
 * whatever else the batch holds, and an answer once.
 */
#include <math.h>

#include "report/report.h"
#include "tiny_trainer.h"

static double metric(const ares_metrics *m, const char *name)
{
    double x = NAN;
    ares_metrics_get(m, name, &x);
    return x;
}

/* A row of a batch made by hand. mask: a character per token. */
typedef struct answer {
    const char *mask;
    float score, accuracy;
    bool stopped;
    int episode, turn; /* of a conversation with a row per turn */
    int turns, cut;    /* of a conversation */
    float turn_score;
    int group; /* 0, 1 .. in order; a later one has a longer prompt */
} answer;

/* turn_scores: a row's tokens have the score of its turn, and not the whole episode's. */
static void fill(ares_batch *b, const answer *answers, int64_t rows, bool turn_scores)
{
    for (int64_t r = 0; r < rows; r++) {
        if (!r || answers[r].group != answers[r - 1].group) ares_batch_begin_group(b);
        ares_batch_add_row(b,
                           &(ares_sample){ .draw = answers[r].group,
                                           .index = (int32_t)r,
                                           .prompt_len = 5 + 2 * answers[r].group,
                                           .score = answers[r].score,
                                           .accuracy = answers[r].accuracy,
                                           .stopped = answers[r].stopped,
                                           .episode = answers[r].episode,
                                           .turn = answers[r].turn,
                                           .turn_count = answers[r].turns,
                                           .turns_cut = answers[r].cut,
                                           .reward_parts = &answers[r].score },
                           (int64_t)strlen(answers[r].mask));
    }
    ARES_PUT(b, responses), ARES_PUT(b, response_mask), ARES_PUT(b, entropies);
    ARES_PUT(b, advantages), ARES_PUT(b, returns), ARES_PUT(b, values);
    ARES_PUT(b, token_level_scores), ARES_PUT(b, token_level_rewards);
    if (turn_scores) ARES_PUT(b, turn_scores);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t t = b->row_start[r], i = 0; t < b->row_start[r + 1]; t++, i++) {
            bool own = answers[r].mask[i] == '1';
            b->response_mask[t] = own;
            b->entropies[t] = own ? 0.5F + 0.25F * (float)r : 100;
            b->advantages[t] = own ? (float)r - 0.5F : -100;
            b->returns[t] = own ? (float)r + 1 : 100;
            b->values[t] = own ? 2 * (float)r : -100;
        }
        float score = turn_scores ? answers[r].turn_score : answers[r].score;
        b->token_level_scores[b->row_start[r + 1] - 1] = score;
        b->token_level_rewards[b->row_start[r + 1] - 1] = score - 0.25F;
    }
}

/* Tokens of an environment among those of the policy, and an answer whose tokens are all masked. */
TEST(metrics_of_a_batch_are_of_unmasked_tokens_and_of_answers_that_count)
{
    static const answer answers[] = { { "1101", 1, 1, .stopped = true },
                                      { "0000000", 9, 0, .stopped = true },
                                      { "10", 0.5F, 0, .stopped = false },
                                      { "1111111", 0.75F, 0, .stopped = true, .group = 1 },
                                      { "011", 0.75F, NAN, .stopped = false, .group = 1 } };
    static const struct {
        const char *name;
        double mean, max, min;
    } want[] = {
        { "critic/advantages", (3 * -0.5 + 1.5 + 7 * 2.5 + 2 * 3.5) / 13, 3.5, -0.5 },
        { "critic/returns", (3 * 1 + 3 + 7 * 4 + 2 * 5) / 13.0, 5, 1 },
        { "critic/values", (4 + 7 * 6 + 2 * 8) / 13.0, 8, 0 },
        { "critic/score", 0.75, 1, 0.5 },
        { "critic/rewards", 0.5, 0.75, 0.25 },
        { "response_length", 16 / 4.0, 7, 2 },
        { "prompt_length", 6, 7, 5 },
    };
    static const struct {
        const char *name;
        double value;
    } one[] = {
        { "rollout/entropy", (3 * 0.5 + 1 + 7 * 1.25 + 2 * 1.5) / 13 },
        { "reward/overall", 0.75 },
        { "reward/exact", 0.75 },
        { "reward/batch_accuracy", 1 / 3.0 },
        { "rollout/mixed_groups_frac", 1 / 2.0 },
        { "response_length/clip_ratio", 1 / 2.0 }, /* not the one that ends with its last token */
        { "perf/total_num_tokens", 3 * 5 + 2 * 7 + 4 + 7 + 2 + 7 + 3 },
    };
    opened o;
    char name[64];
    if (CHECK_OK(open_trainer(&o, "algorithm.adv_estimator=grpo", "data.max_response_length=7"))) {
        fill(&o.t.batch, answers, ARES_COUNT(answers), false);
        CHECK_OK(report_batch(&o.t, &o.t.batch, o.m));
        for (int i = 0; i < ARES_COUNT(want); i++)
            for (int k = 0; k < 3; k++) {
                static const char *const of[] = { "mean", "max", "min" };
                double x = k == 0 ? want[i].mean : k == 1 ? want[i].max : want[i].min;
                snprintf(name, sizeof name, "%s/%s", want[i].name, of[k]);
                CHECK_MSG(fabs(metric(o.m, name) - x) < 1e-7, "%s is %g, expected %g", name,
                          metric(o.m, name), x);
            }
        for (int i = 0; i < ARES_COUNT(one); i++)
            CHECK_MSG(fabs(metric(o.m, one[i].name) - one[i].value) < 1e-7, "%s is %g, expected %g",
                      one[i].name, metric(o.m, one[i].name), one[i].value);
    }
    close_trainer(&o);
}

/*
 * Three turns of which one was cut, with a copy of the last; a conversation of one row; two turns
 * of which the first does not count. The KL of 0.25 is taken from each row.
 */
TEST(an_episode_counts_once_however_many_rows_it_has)
{
    static const answer rows[] = {
        { "11", -1, 0, .episode = 1, .turn = 0, .turns = 3, .cut = 1, .turn_score = 0.5F },
        { "1", -1, 0, .episode = 1, .turn = 1, .turns = 3, .cut = 1, .turn_score = -2 },
        { "111", -1, 0, .episode = 1, .turn = 2, .turns = 3, .cut = 1, .turn_score = 0.25F },
        { "111", -1, 0, .episode = 1, .turn = 2, .turns = 3, .cut = 1, .turn_score = 0.25F },
        { "1101", 1, 1, .turns = 2, .cut = 2, .turn_score = 1, .stopped = true },
        { "0", 0.5F, 1, .episode = 3, .turn = 0, .turns = 2, .turn_score = 8, .stopped = true },
        { "1", 0.5F, 1, .episode = 3, .turn = 1, .turns = 2, .turn_score = 4, .stopped = true },
    };
    static const double scores[2][3] = { { -1, 1, 0.5 }, { -1.25, 1, 4 } };
    static const double kl[3] = { 0.75, 0.25, 0.25 };
    for (int k = 0; k < 2; k++) {
        opened o;
        double score = 0, reward = 0;
        for (int i = 0; i < 3; i++) score += scores[k][i] / 3;
        for (int i = 0; i < 3; i++) reward += (scores[k][i] - kl[i]) / 3;
        if (CHECK_OK(
                open_trainer(&o, "algorithm.adv_estimator=grpo", "data.max_response_length=7"))) {
            fill(&o.t.batch, rows, ARES_COUNT(rows), k == 1);
            CHECK_OK(report_batch(&o.t, &o.t.batch, o.m));
            CHECK_NEAR(metric(o.m, "critic/score/mean"), score, 1e-7);
            CHECK_NEAR(metric(o.m, "critic/score/min"), scores[k][0], 1e-7);
            CHECK_NEAR(metric(o.m, "critic/rewards/mean"), reward, 1e-7);
            CHECK_NEAR(metric(o.m, "reward/overall"), score, 1e-7);
            CHECK_NEAR(metric(o.m, "reward/batch_accuracy"), 2 / 3.0, 1e-7);
            CHECK_NEAR(metric(o.m, "response_length/clip_ratio"), 3 / 7.0, 1e-7);
            CHECK_NEAR(metric(o.m, "response_length/mean"), (2 + 1 + 3 + 3 + 4 + 1) / 6.0, 1e-7);
        }
        close_trainer(&o);
    }
}
