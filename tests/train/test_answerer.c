/*
 * An answerer of this test's own, in place of the engine's: conversations of two turns with words
 * of an environment between them. A step takes them as it takes single answers.
 */
#include <math.h>
#include <string.h>

#include "ares/algo.h"
#include "collect/collect.h"
#include "run/run.h"
#include "saved_source.h"
#include "test.h"
#include "tiny_trainer.h"

enum { SAID = 3, TURN = 6 }; /* words of the environment, of a turn at most */
static const int32_t said[SAID] = { 40, 41, 42 };
static bool row_per_turn, uneven, last_word;

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
    if (x->turn_scores)
        x->turn_scores[at + c.n_tokens - 1] = (float)(number + 1) + (float)index / 4;
    x->n_tokens = at + c.n_tokens;
    return ARES_OK;
}

static ares_trajectory_row *new_row(ares_trajectory_row *x, const int32_t *prompt, int32_t length,
                                    ares_arena *a)
{
    ares_trajectory_row_init(x, prompt, length, 2 * (TURN + SAID), a);
    x->turn_ends = ares_arena_calloc(a, 2 * (TURN + SAID), 1);
    if (!last_word) x->turn_scores = ares_arena_calloc(a, 2 * TURN + SAID, sizeof(float));
    return x;
}

static void environment_says(ares_trajectory_row *x)
{
    for (int i = 0; i < SAID; i++) {
        x->responses[x->n_tokens] = said[i];
        x->rollout_log_probs[x->n_tokens] = NAN; /* nobody may read it */
        x->weight_versions[x->n_tokens++] = ARES_NOT_SAMPLED;
    }
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
    if (!row_per_turn) environment_says(x);
    n += SAID;
    ARES_TRY(turn(t, key, index, 1, all, &n, x, row_per_turn ? 0 : x->n_tokens));
    if (last_word) environment_says(x);
    return ARES_OK;
}

static int answer_in_turns(ares_trainer *t, const answer_job *job, ares_arena *a, ares_group *out)
{
    ares_rollout_clear(t->rollout);
    for (int64_t p = 0; p < job->n_prompts; p++) {
        ares_rng_key key =
            ares_rng_sub(job->key, (uint64_t)t->run.step, (uint64_t)job->prompts[p].draw);
        const ares_row *row = job->prompts[p].row;
        int32_t n = uneven && job->prompts[p].draw % 2 ? job->n - 1 : job->n;
        out[p] = (ares_group){ .draw = job->prompts[p].draw,
                               .row = row,
                               .n = n,
                               .items = ares_arena_calloc(a, (size_t)n, sizeof *out[p].items) };
        for (int i = 0; i < n; i++) ARES_TRY(converse(t, row, key, i, a, &out[p].items[i]));
    }
    return ARES_OK;
}
static const generator in_turns = { .answer = answer_in_turns };

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
    o->t.generator = &in_turns;
    REQUIRE_OK(ares_train_step(&o->t, o->m));
}

TEST(scores_of_turns_are_not_shaped)
{
    opened o;
    REQUIRE_OK(open_trainer(&o, "worker.reward.rewards=[{name: aepo}]", "worker.rollout.seed=1"));
    o.t.generator = &in_turns;
    CHECK_FAIL(ares_train_step(&o.t, o.m), ARES_ECONFIG, "env.use_turn_scores");
    close_trainer(&o);
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

TEST(the_score_of_a_conversation_stands_at_the_last_token_of_the_policy)
{
    opened o;
    last_word = true;
    step(&o, "worker.actor.rollout_is=token", false, false);
    const ares_batch *b = &o.t.batch;
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
            bool last = i == b->row_start[r + 1] - SAID - 1;
            CHECK_NEAR(b->token_level_scores[i], last ? b->samples[r].index : 0, 0);
        }
    CHECK_NEAR(metric(&o, "reward/empty_responses"), 0, 0);
    close_trainer(&o);
    last_word = false;
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

/* Each answer of a validation keeps its own score, however many rows the others have. */
TEST(a_validation_judges_conversations_of_several_rows)
{
    opened o;
    ares_str files = { 0 }, samples = { 0 };
    row_per_turn = true;
    uneven = false;
    ares_str_addf(&files, "data.val_files=%s", test_source("examples/data/sums/val.jsonl"));
    REQUIRE_OK(open_trainer(&o, files.data, "worker.rollout.val_override_config={n: 3}"));
    o.t.generator = &in_turns;
    REQUIRE_OK(trainer_validate(&o.t, o.m, &samples));
    CHECK_NEAR(metric(&o, "val/reward_score"), 1, 1e-12); /* 0, 1 and 2 */
    ares_view rest = ares_str_view(&samples);
    int64_t n = 0;
    for (; rest.len; n++) {
        const ares_json *line;
        size_t end = (size_t)((const char *)memchr(rest.data, '\n', rest.len) - rest.data);
        REQUIRE_OK(ares_json_parse(&o.t.batch.arena, (ares_view){ rest.data, end }, "", &line));
        CHECK_NEAR(ares_json_get(line, "score")->number, ares_json_get(line, "sample")->number, 0);
        rest = (ares_view){ rest.data + end + 1, rest.len - end - 1 };
    }
    CHECK_EQ(n, 3 * ares_source_count(&o.t.run.val));
    ares_str_fini(&files);
    ares_str_fini(&samples);
    close_trainer(&o);
}

/* What filters compare: the policy's own words, over all rows of an answer. */
TEST(numbers_of_an_answer_are_over_its_rows_and_leave_the_environment_out)
{
    opened o;
    REQUIRE_OK(open_trainer(&o, "algorithm.adv_estimator=grpo",
                            "algorithm.filter_groups={enable: true, metric: acc}"));
    ares_arena *a = &o.t.batch.arena;
    ares_trajectory_row rows[2];
    ares_drawn prompt;
    bool keep[1];
    REQUIRE_OK(ares_source_next(&o.t.run.source, 1, a, &prompt));
    const ares_row *row = ares_source_row(&o.t.run.source, prompt.id);
    for (int r = 0; r < 2; r++) {
        ares_trajectory_row_init(&rows[r], row->prompt, row->prompt_len, 3, a);
        for (int i = 0; i < 3; i++) rows[r].entropies_1[i] = i == 1 ? NAN : (float)(r + i);
        for (int i = 0; i < 3; i++) rows[r].response_mask[i] = i != 1;
    }
    ares_trajectory y[2] = {
        { .score = 5, .unshaped = 4, .accuracy = 1, .n_rows = 2, .rows = rows },
        { .index = 1, .accuracy = 0, .discarded = 1, .n_rows = 1, .rows = rows }
    };
    ares_group g = { .draw = prompt.draw, .row = row, .n = 2, .items = y };
    step_draws r = { .looks = true,
                     .keep = keep,
                     .last = { .total = 1, .count = 1, .prompts = &prompt, .groups = &g } };
    ares_filter_stages(&o.c.filter, &r.of_draws, &r.of_batch);
    REQUIRE_OK(filter_last_draw(&o.t, &r, a, o.m));
    CHECK(r.first[1] == 2 && r.prompts[0].id == prompt.id);
    const answer_numbers *x = r.numbers;
    CHECK(x[0].score == 4 && x[0].overall == 5 && x[0].accuracy == 1 && x[0].valid);
    CHECK_NEAR(x[0].length, 6, 0);
    CHECK_NEAR(x[0].entropy, (0.0 + 2 + 1 + 3) / 4, 0);
    CHECK_NEAR(x[1].entropy, 1, 0);
    CHECK(!x[1].valid && x[1].length == 3);
    close_trainer(&o);
}

/*
 * One draw of the engine's answers, of prompts that may come with some begun; those that do not are
 * answered for the attempt.
 */
static ares_group *answers(opened *o, const ares_drawn *d, int64_t n, int64_t attempt)
{
    ares_arena *a = &o->t.batch.arena;
    answer_prompt *prompts = ares_arena_calloc(a, (size_t)n, sizeof *prompts);
    ares_group *out = ares_arena_calloc(a, (size_t)n, sizeof *out);
    ares_sampling sampling;
    answer_sampling(&o->c, &sampling);
    for (int64_t i = 0; i < n; i++) prompts[i] = answer_prompt_of(&o->t.run.source, &d[i]);
    const answer_job job = { .n_prompts = n,
                             .n = 4,
                             .attempt = attempt,
                             .prompts = prompts,
                             .sampling = &sampling,
                             .key = ares_rng_root(1, ARES_RNG_SAMPLE) };
    CHECK_OK(generate_single_turn.answer(&o->t, &job, a, out));
    return out;
}

/* As if the engine had been told to cut answer i after `tokens` tokens. */
static void cut(ares_trajectory *y, int32_t tokens)
{
    if (y->rows[0].n_tokens <= tokens) return;
    y->rows[0].n_tokens = tokens;
    y->cut = 1;
}

/*
 * Answers that were cut, given back, saved and loaded go on, also in a later step, as if nothing
 * had happened; only that their versions tell what was sampled when.
 */
TEST(answers_that_were_cut_go_on_to_the_same_bits)
{
    enum { PROMPTS = 4 };
    opened o;
    ares_drawn d[PROMPTS], again[PROMPTS];
    ares_str state = { 0 };
    const ares_json *json;
    REQUIRE_OK(open_trainer(&o, "algorithm.adv_estimator=grpo", "worker.rollout.seed=1"));
    ares_arena *a = &o.t.batch.arena;
    REQUIRE_OK(ares_source_next(&o.t.run.source, PROMPTS, a, d));
    const ares_group *whole = answers(&o, d, PROMPTS, 2);
    ares_group *part = answers(&o, d, PROMPTS, 2);
    int cuts = 0;
    for (int g = 0; g < PROMPTS; g++) {
        for (int i = 0; i < 4; i++) {
            cut(&part[g].items[i], (g * 4 + i) % 3 == 2 ? 24 : g + 5 * i);
            cuts += part[g].items[i].cut;
        }
        ares_source_give_back(&o.t.run.source, &part[g]);
    }
    CHECK(cuts > 4);
    saved_source(&o.t.run.source, &state);
    REQUIRE_OK(ares_json_parse(a, ares_str_view(&state), "state", &json));
    REQUIRE_OK(ares_source_load(&o.t.run.source, json, false));
    o.t.run.step += 3;
    o.t.actor.learner.optim.updates = 5; /* said to be other weights, so that versions differ */
    REQUIRE_OK(ares_source_next(&o.t.run.source, PROMPTS, a, again));
    const ares_group *rest = answers(&o, again, PROMPTS, 1); /* the attempt is theirs */
    for (int g = 0; g < PROMPTS; g++)
        for (int i = 0; i < 4; i++) {
            const ares_trajectory *x = &whole[g].items[i], *y = &rest[g].items[i];
            const ares_trajectory_row *p = &x->rows[0], *q = &y->rows[0];
            int32_t had = part[g].items[i].rows[0].n_tokens;
            REQUIRE(!y->cut && y->index == i && p->n_tokens == q->n_tokens);
            CHECK(x->stopped == y->stopped && ares_view_eq(x->response, y->response));
            CHECK_NEAR(x->score, y->score, 0);
            size_t n = (size_t)p->n_tokens;
            CHECK_MEM(p->responses, q->responses, n * sizeof *p->responses);
            CHECK_MEM(p->rollout_log_probs, q->rollout_log_probs, n * sizeof(float));
            CHECK_MEM(p->entropies, q->entropies, n * sizeof(float));
            CHECK_MEM(p->entropies_1, q->entropies_1, n * sizeof(float));
            for (int32_t t = 0; t < p->n_tokens; t++)
                CHECK_EQ(q->weight_versions[t], t < had ? 0 : 5);
        }
    ares_str_fini(&state);
    close_trainer(&o);
}

/* The answers of a group that go on need not be all that there were. */
TEST(some_of_the_answers_go_on_in_their_own_places)
{
    enum { SOME = 2 };
    static const int chosen[SOME] = { 1, 3 };
    opened o;
    ares_drawn d;
    REQUIRE_OK(open_trainer(&o, "algorithm.adv_estimator=grpo", "worker.rollout.seed=1"));
    ares_arena *a = &o.t.batch.arena;
    REQUIRE_OK(ares_source_next(&o.t.run.source, 1, a, &d));
    const ares_group *whole = answers(&o, &d, 1, 0);
    ares_group *part = answers(&o, &d, 1, 0);
    for (int i = 0; i < SOME; i++) {
        cut(&part->items[chosen[i]], 2);
        CHECK(part->items[chosen[i]].cut);
        part->items[i] = part->items[chosen[i]];
    }
    part->n = SOME;
    d.partial = part;
    const ares_group *rest = answers(&o, &d, 1, 0);
    REQUIRE(rest->n == SOME);
    for (int i = 0; i < SOME; i++) {
        const ares_trajectory *x = &whole->items[chosen[i]], *y = &rest->items[i];
        REQUIRE(!y->cut && y->index == chosen[i] && y->n_rows == 1);
        REQUIRE(x->rows[0].n_tokens == y->rows[0].n_tokens);
        CHECK_MEM(x->rows[0].responses, y->rows[0].responses,
                  (size_t)x->rows[0].n_tokens * sizeof(int32_t));
    }
    close_trainer(&o);
}

/* The score says what was asked for: a greedy answer, and of which prompt, or one that goes on. */
static int answer_by_prompt(ares_trainer *t, const answer_job *job, ares_arena *a, ares_group *out)
{
    (void)t;
    bool greedy = job->sampling->temperature == 0;
    for (int64_t p = 0; p < job->n_prompts; p++) {
        const answer_prompt *x = &job->prompts[p];
        ares_trajectory *y = ares_arena_calloc(a, (size_t)job->n, sizeof *y);
        ares_trajectory_row *row = ares_arena_calloc(a, 1, sizeof *row);
        row->n_tokens = greedy ? 5 : 3;
        for (int i = 0; i < job->n; i++)
            y[i] = (ares_trajectory){ .index = i,
                                      .stopped = 1,
                                      .n_rows = 1,
                                      .rows = row,
                                      .score = x->partial ? 7
                                               : greedy   ? -(float)x->draw - 1
                                                          : 0 };
        out[p] = (ares_group){ .draw = x->draw, .row = x->row, .n = job->n, .items = y };
    }
    return ARES_OK;
}
static const generator by_prompt = { .answer = answer_by_prompt };

/*
 * The greedy baseline of a prompt is answered anew where its answers go on, and it is the prompt's
 * own. A prompt that is drawn again begins afresh.
 */
TEST(a_baseline_is_the_prompts_own_and_a_prompt_drawn_again_begins_afresh)
{
    enum { PROMPTS = 3 };
    opened o;
    prompt_draw fresh, d;
    bool keep[PROMPTS] = { false, true, false };
    row_per_turn = uneven = false;
    REQUIRE_OK(open_trainer(&o, "algorithm.adv_estimator=remax", "worker.rollout.seed=1"));
    ares_arena *a = &o.t.batch.arena;
    REQUIRE_OK(draw_prompts(&o.t, a, PROMPTS, &fresh));
    o.t.generator = &by_prompt;
    REQUIRE_OK(draw_answer(&o.t, a, &fresh, NULL));
    CHECK_EQ(fresh.tokens, PROMPTS * (fresh.groups[0].n * 3 + 5)); /* greedy answers, too */
    d = fresh;
    for (int i = 0; i < PROMPTS; i++) fresh.prompts[i].partial = &fresh.groups[i];
    REQUIRE_OK(draw_answer(&o.t, a, &d, NULL));
    for (int i = 0; i < PROMPTS; i++) {
        CHECK_NEAR(fresh.groups[i].baseline, -(float)fresh.prompts[i].draw - 1, 0);
        CHECK_NEAR(d.groups[i].baseline, fresh.groups[i].baseline, 0);
        CHECK_NEAR(d.groups[i].items[0].score, 7, 0); /* it went on */
    }
    draw_again(a, keep, &d);
    REQUIRE(d.total == 2 && d.attempt == 1);
    CHECK(d.prompts[0].id == fresh.prompts[0].id && d.prompts[1].id == fresh.prompts[2].id);
    CHECK(!d.prompts[0].partial && !d.prompts[1].partial);
    close_trainer(&o);
}

static bool same_words(const ares_group *x, const ares_group *y)
{
    for (int i = 0; i < x->n; i++) {
        const ares_trajectory_row *p = &x->items[i].rows[0], *q = &y->items[i].rows[0];
        if (p->n_tokens != q->n_tokens ||
            memcmp(p->responses, q->responses, (size_t)p->n_tokens * sizeof *p->responses) != 0)
            return false;
    }
    return true;
}

/* One prompt, answered for these reasons; all under the same weights. */
TEST(a_prompt_is_answered_afresh_for_every_reason)
{
    enum { STEP, AGAIN, VALIDATION, BOOTSTRAP, REASONS };
    opened o;
    int64_t n;
    ares_group *x[REASONS], *y;
    prompt_draw d;
    ares_sampling sampling;
    REQUIRE_OK(open_trainer(&o, "data.shuffle=false", "worker.rollout.seed=1"));
    ares_arena *a = &o.t.batch.arena;
    answer_sampling(&o.c, &sampling);
    REQUIRE_OK(draw_prompts(&o.t, a, 1, &d));
    REQUIRE(d.prompts[0].draw == 0 && d.prompts[0].id == 0);
    for (d.attempt = 0; d.attempt < 2; d.attempt++) {
        REQUIRE_OK(draw_answer(&o.t, a, &d, NULL));
        x[d.attempt ? AGAIN : STEP] = d.groups;
    }
    answer_pass pass = { .source = &o.t.run.source, .sampling = &sampling, .n = 4 };
    pass.key = ANSWER_VALIDATION;
    REQUIRE_OK(answer_rows(&o.t, &pass, 0, 1, a, &x[VALIDATION], &n));
    pass.key = ANSWER_BOOTSTRAP;
    REQUIRE_OK(answer_rows(&o.t, &pass, 0, 1, a, &x[BOOTSTRAP], &n));
    REQUIRE_OK(answer_rows(&o.t, &pass, 0, 1, a, &y, &n));
    for (int i = 0; i < REASONS; i++)
        for (int k = 0; k < i; k++) CHECK_MSG(!same_words(x[i], x[k]), "%d as %d", i, k);
    CHECK(same_words(x[BOOTSTRAP], y));
    close_trainer(&o);
}

enum { SHORT = 4, LONG = 12 };
/* Answers to every other prompt are too long; to the first prompt only one is. */
static int answer_at_length(ares_trainer *t, const answer_job *job, ares_arena *a, ares_group *out)
{
    (void)t;
    for (int64_t p = 0; p < job->n_prompts; p++) {
        const answer_prompt *x = &job->prompts[p];
        ares_trajectory *y = ares_arena_calloc(a, (size_t)job->n, sizeof *y);
        for (int i = 0; i < job->n; i++) {
            bool is_long = x->draw % 2 || (x->draw == 0 && i == 1);
            ares_trajectory_row *row = ares_arena_alloc(a, sizeof *row);
            ares_trajectory_row_init(row, x->row->prompt, x->row->prompt_len,
                                     is_long ? LONG : SHORT, a);
            memset(row->response_mask, 1, (size_t)row->n_tokens);
            y[i] = (ares_trajectory){
                .index = i, .stopped = 1, .score = (float)i, .n_rows = 1, .rows = row
            };
        }
        out[p] = (ares_group){ .draw = x->draw, .row = x->row, .n = job->n, .items = y };
    }
    return ARES_OK;
}
static const generator at_length = { .answer = answer_at_length };

TEST(a_group_whose_answers_are_all_dropped_leaves_the_batch)
{
    opened o;
    REQUIRE_OK(
        open_trainer(&o, "worker.reward.max_length=10", "algorithm.over_length_action=drop"));
    o.t.generator = &at_length;
    const ares_batch *b = &o.t.batch;
    REQUIRE_OK(collect_groups(&o.t, &o.t.batch, o.m));
    REQUIRE(b->groups == 2);
    CHECK(b->rows == 3 + 4 && b->tokens == 7 * SHORT);
    CHECK(b->samples[0].draw == 0 && b->samples[3].draw == 2);
    CHECK(b->samples[0].place == 0 && b->samples[3].place == 1);
    CHECK_NEAR(metric(&o, "dapo/discarded_frac"), 9.0 / 16, 0);
    close_trainer(&o);
}

TEST(a_step_has_moved_what_its_checkpoint_would_hold)
{
    opened o;
    REQUIRE_OK(open_trainer(&o, "algorithm.adv_estimator=gae", "worker.rollout.seed=1"));
    training *t = &o.t.run;
    for (int i = 0; i < 4; i++) {
        state_begin_step(t);
        CHECK(state_unmoved(t));
        if (i == 0) t->policy->optim.updates++;
        if (i == 1) t->critic->optim.updates++;
        if (i == 2) ares_source_skip(&t->source, 0);
        CHECK_EQ(state_unmoved(t), i == 3);
    }
    close_trainer(&o);
}
