/*
 * The usual metrics of a batch count only tokens of the policy and answers that are not masked,
 * whatever else the batch holds.
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
} answer;

static void fill(ares_batch *b, const answer *answers, int64_t rows)
{
    ares_batch_begin_group(b);
    for (int64_t r = 0; r < rows; r++)
        ares_batch_add_row(b,
                           &(ares_sample){ .draw = 0,
                                           .index = (int32_t)r,
                                           .prompt_len = 5,
                                           .score = answers[r].score,
                                           .accuracy = answers[r].accuracy,
                                           .reward_parts = &answers[r].score },
                           (int64_t)strlen(answers[r].mask));
    ARES_PUT(b, responses), ARES_PUT(b, response_mask), ARES_PUT(b, entropies);
    ARES_PUT(b, advantages), ARES_PUT(b, returns), ARES_PUT(b, values);
    ARES_PUT(b, token_level_scores), ARES_PUT(b, token_level_rewards);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t t = b->row_start[r], i = 0; t < b->row_start[r + 1]; t++, i++) {
            bool own = answers[r].mask[i] == '1';
            b->response_mask[t] = own;
            b->entropies[t] = own ? 0.5F : 100;
            b->advantages[t] = own ? (float)r - 0.5F : -100;
            b->returns[t] = own ? (float)r + 1 : 100;
            b->values[t] = own ? 2 * (float)r : -100;
        }
        b->token_level_scores[b->row_start[r + 1] - 1] = answers[r].score;
        b->token_level_rewards[b->row_start[r + 1] - 1] = answers[r].score - 0.25F;
    }
}

/* Tokens of an environment among those of the policy, and an answer whose tokens are all masked. */
TEST(metrics_of_a_batch_are_of_unmasked_tokens_and_of_answers_that_count)
{
    static const answer answers[] = { { "1101", 1, 1 }, { "0000000", 9, 0 }, { "10", 0.5F, 0 } };
    static const struct {
        const char *name;
        double mean, max, min;
    } want[] = {
        { "critic/advantages", (3 * -0.5 + 1.5) / 4, 1.5, -0.5 },
        { "critic/returns", (3 * 1 + 3) / 4.0, 3, 1 },
        { "critic/values", 4 / 4.0, 4, 0 },
        { "critic/score", 0.75, 1, 0.5 },
        { "critic/rewards", 0.5, 0.75, 0.25 },
        { "response_length", 3, 4, 2 },
    };
    static const struct {
        const char *name;
        double value;
    } one[] = {
        { "rollout/entropy", 0.5 },
        { "reward/overall", 0.75 },
        { "reward/exact", 0.75 },
        { "reward/batch_accuracy", 0.5 },
        { "rollout/mixed_groups_frac", 1 },
        { "response_length/clip_ratio", 0 },
        { "perf/total_num_tokens", 15 + 4 + 7 + 2 },
    };
    opened o;
    char name[64];
    if (CHECK_OK(open_trainer(&o, "algorithm.adv_estimator=grpo", "data.max_response_length=7"))) {
        fill(&o.t.batch, answers, ARES_COUNT(answers));
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
