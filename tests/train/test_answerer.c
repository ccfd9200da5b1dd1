/*
 * An answerer of this test's own, in place of the engine's: conversations of two turns with words
 * of an environment between them. A step takes them as it takes single answers.
 */
#include <math.h>
#include <string.h>

#include "ares/algo_adv.h"
#include "collect/answer.h"
#include "collect/collect.h"
#include "test.h"
#include "tiny_trainer.h"

enum { SAID = 3, TURN = 6 }; /* words of the environment, of a turn at most */
static const int32_t said[SAID] = { 40, 41, 42 };
static bool row_per_turn, uneven;

/* One sample: its words join `all` from *n on, and their numbers the row from `at` on. */
static int turn(ares_trainer *t, ares_rng_key key, int index, int number, int32_t *all, int32_t *n,
                ares_trajectory_row *x, int32_t at)
{
    ares_completion c;
    int64_t active = 1;
    const ares_request q = {
        .prompt = all,
        .prompt_len = *n,
        .n = 1,
        .first_index = index,
        .turn = (uint64_t)number,
        .sampling = { .temperature = 0.8f, .top_p = 1, .max_new_tokens = TURN },
        .key = key
    };
    ARES_TRY(ares_rollout_add(t->rollout, &q, NULL));
    while (active) ARES_TRY(ares_rollout_step(t->rollout, &active));
    if (!ares_rollout_next(t->rollout, &c)) return ARES_ESTATE;
    for (int32_t i = 0; i < c.n_tokens; i++) {
        all[*n] = x->responses[at + i] = c.ids[i];
        *n += 1;
        x->response_mask[at + i] = 1;
        x->rollout_log_probs[at + i] = c.log_probs[i];
        x->entropies[at + i] = c.entropies[i];
        x->entropies_1[at + i] = c.entropies_1[i];
        x->weight_versions[at + i] = (int32_t)t->actor.learner.optim.updates;
    }
    x->turn_ends[at + c.n_tokens - 1] = 1;
    x->turn_scores[at + c.n_tokens - 1] = (float)(number + 1) + (float)index / 4;
    x->n_tokens = at + c.n_tokens;
    return ARES_OK;
}

static ares_trajectory_row *new_row(ares_trajectory_row *x, const int32_t *prompt, int32_t length,
                                    ares_arena *a)
{
    ares_trajectory_row_init(x, prompt, length, 2 * TURN + SAID, a);
    x->turn_ends = ares_arena_calloc(a, 2 * TURN + SAID, 1);
    x->turn_scores = ares_arena_calloc(a, 2 * TURN + SAID, sizeof(float));
    return x;
}

static int converse(ares_trainer *t, const ares_row *row, ares_rng_key key, int index,
                    ares_arena *a, ares_trajectory *y)
{
    int32_t n = row->prompt_len, *all = ares_arena_alloc(a, 4096 * sizeof *all);
    memcpy(all, row->prompt, (size_t)n * sizeof *all);
    *y = (ares_trajectory){ .index = index,
                            .stopped = 1,
                            .score = (float)index,
                            .unshaped = (float)index,
                            .accuracy = (float)(index % 2),
                            .n_parts = 1,
                            .parts = ares_arena_calloc(a, 1, sizeof *y->parts),
                            .n_rows = row_per_turn ? 2 : 1,
                            .rows = ares_arena_calloc(a, 2, sizeof *y->rows),
                            .response = ARES_VIEW("a conversation") };
    ares_trajectory_row *x = new_row(&y->rows[0], row->prompt, row->prompt_len, a);
    ARES_TRY(turn(t, key, index, 0, all, &n, x, 0));
    memcpy(all + n, said, sizeof said);
    if (row_per_turn) x = new_row(&y->rows[1], all, n + SAID, a);
    for (int i = 0; i < SAID && !row_per_turn; i++) {
        x->responses[x->n_tokens] = said[i];
        x->rollout_log_probs[x->n_tokens] = NAN; /* nobody may read it */
        x->weight_versions[x->n_tokens++] = ARES_NOT_SAMPLED;
    }
    n += SAID;
    return turn(t, key, index, 1, all, &n, x, row_per_turn ? 0 : x->n_tokens);
}

static int answer_in_turns(ares_trainer *t, const answer_job *job, ares_arena *a, ares_group *out)
{
    ares_rollout_clear(t->rollout);
    for (int64_t p = 0; p < job->n_prompts; p++) {
        ares_rng_key key = ares_rng_sub(job->key, (uint64_t)t->run.step, (uint64_t)job->draws[p]);
        int32_t n = uneven && job->draws[p] % 2 ? job->n - 1 : job->n;
        out[p] = (ares_group){ .draw = job->draws[p],
                               .row = job->rows[p],
                               .n = n,
                               .items = ares_arena_calloc(a, (size_t)n, sizeof *out[p].items) };
        for (int i = 0; i < n; i++)
            ARES_TRY(converse(t, job->rows[p], key, i, a, &out[p].items[i]));
    }
    return ARES_OK;
}
static const answerer in_turns = { "turns", answer_in_turns };

static double metric(const opened *o, const char *name)
{
    double x = NAN;
    return ares_metrics_get(o->m, name, &x) ? x : NAN;
}

/* A step of conversations; the batch stays for the checks. */
static void step(opened *o, const char *word, bool per_turn, bool of_odd_sizes)
{
    row_per_turn = per_turn;
    uneven = of_odd_sizes;
    REQUIRE_OK(open_trainer(o, "algorithm.adv_estimator=grpo", word));
    o->t.answerer = &in_turns;
    REQUIRE_OK(ares_train_step(&o->t, o->m));
}

/* What training computes for the words of every turn is what the engine recorded, to the bit. */
TEST(a_step_trains_on_conversations_of_one_row)
{
    opened o;
    step(&o, "worker.actor.rollout_is=token", false, false);
    const ares_batch *b = &o.t.batch;
    CHECK(b->rows == 16 && b->groups == 4);
    CHECK_NEAR(metric(&o, "exact/rollout_train_max_abs"), 0, 0);
    CHECK(metric(&o, "actor/grad_norm") > 0);
    for (int64_t r = 0; r < b->rows; r++) {
        double sum = 0;
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
            sum += (double)b->token_level_scores[i];
            CHECK((b->token_level_scores[i] != 0) == (b->turn_ends[i] == 1));
            if (!b->response_mask[i]) CHECK_NEAR(b->advantages[i], 0, 0);
        }
        CHECK_NEAR(sum, 3 + 2 * (double)b->samples[r].index / 4, 0);
    }
    close_trainer(&o);
}

TEST(a_step_trains_on_a_row_per_turn)
{
    opened o;
    step(&o, "worker.actor.share_prompts=true", true, false);
    const ares_batch *b = &o.t.batch;
    CHECK(b->rows == 32 && b->groups == 4);
    CHECK_NEAR(metric(&o, "exact/rollout_train_max_abs"), 0, 0);
    CHECK(metric(&o, "actor/grad_norm") > 0);
    for (int64_t r = 0; r < b->rows; r += 2) {
        CHECK(b->samples[r].episode && b->samples[r].episode == b->samples[r + 1].episode);
        CHECK(b->samples[r + 1].prompt_len > b->samples[r].prompt_len);
    }
    close_trainer(&o);
}

/* Filters compare the answers of each group, however many there are. */
TEST(groups_of_different_sizes_are_filtered_and_trained)
{
    opened o;
    step(&o, "algorithm.filter_groups={enable: true, metric: acc}", false, true);
    const ares_batch *b = &o.t.batch;
    REQUIRE(b->groups == 4);
    for (int64_t g = 0; g < b->groups; g++) {
        int64_t draw = b->samples[b->group_start[g]].draw;
        CHECK_EQ(b->group_start[g + 1] - b->group_start[g], draw % 2 ? 3 : 4);
    }
    CHECK_NEAR(metric(&o, "filter/kept_groups"), 4, 0);
    CHECK_NEAR(metric(&o, "exact/rollout_train_max_abs"), 0, 0);
    close_trainer(&o);
}
