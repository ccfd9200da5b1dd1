/*
 * How the batch of a step is collected over several draws: what is counted of groups that are
 * replaced, and which answers fill a batch that the draws leave short. What is sampled depends on
 * the number of the prompt's draw and on the attempt: two draws of four prompts give the same
 * answers as one draw of eight.
 */
#include "e2e.h"

#include <math.h>
#include <stdio.h>

/* The score depends on the answer's text alone. Answers have many lengths; two per prompt. */
#define BY_CHANCE                                                                          \
    "worker.rollout.n=2 'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m, o]' " \
    "data.shuffle=false worker.reward.accuracy=random "
#define REFILLED BY_CHANCE "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=acc "
#define OFTEN_RIGHT "'worker.reward.rewards=[{name: random, p: 0.8}]' "

static bool runs(const char *run, int steps, const char *options)
{
    return CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=%d %s", e2e_train_words(run),
                                steps, options),
                    0);
}

/* A group of two answers is mixed, all right, or all wrong. */
TEST(the_accuracy_of_a_step_is_of_the_answers_of_every_draw)
{
    double draws = 0;
    REQUIRE(runs("run", 3,
                 REFILLED "'worker.reward.rewards=[{name: random}]' algorithm.max_resample=-1"));
    for (int step = 1; step <= 3; step++) {
        double groups = e2e_metric("run", step, "filter/generated_groups"),
               mixed = e2e_metric("run", step, "dapo/groups_kept") +
                       e2e_metric("run", step, "dapo/groups_surplus"),
               right = e2e_metric("run", step, "dapo/groups_all_correct");
        CHECK_NEAR(e2e_metric("run", step, "reward/accuracy"), (mixed + 2 * right) / (2 * groups),
                   1e-12);
        CHECK_EQ(e2e_metric("run", step, "reward/batch_accuracy"), 0.5);
        draws = fmax(draws, e2e_metric("run", step, "filter/tries"));
    }
    CHECK(draws > 1);
}

TEST(the_accuracy_of_a_step_leaves_discarded_answers_out)
{
    ares_arena arena = { 0 };
    int64_t n;
    double right = 0, all = 0, judged = 0;
    REQUIRE(runs("run", 1, BY_CHANCE OFTEN_RIGHT "algorithm.max_length=11"));
    const ares_json **rows = e2e_rows(&arena, "run", "rollouts/step_000001.jsonl", &n);
    for (int64_t i = 0; i < n; i++) {
        const ares_json *discarded = ares_json_get(rows[i], "discarded");
        double x = e2e_number(rows[i], "accuracy");
        all += x;
        if (discarded && discarded->boolean) continue;
        right += x;
        judged++;
    }
    CHECK(judged > 0 && judged < (double)n);
    CHECK(fabs(right / judged - all / (double)n) > 0.01);
    CHECK_NEAR(e2e_metric("run", 1, "reward/accuracy"), right / judged, 1e-9);
    ares_arena_fini(&arena);
}

/* ---------------------------------------------------------------- controls */
#define DROPS                                                                           \
    BY_CHANCE                                                                           \
    "algorithm.drop_easy_prompts=true algorithm.drop_easy_ratio=1 "                     \
    "algorithm.target_coef_easy=1000 "                                                  \
    "algorithm.entropy_percentile=70 worker.rollout.window_size=2 data.bootstrap=true " \
    "trainer.save_freq=1 "
#define DROPS_REFILLED \
    DROPS OFTEN_RIGHT "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=acc "

enum { ROWS = 12 };

static const char *train_files(void)
{
    static char words[300];
    ares_str rows = { 0 };
    for (int i = 0; i < ROWS; i++)
        ares_str_addf(&rows, "{\"prompt\":\"%d+%d=?\",\"answer\":\"%d\",\"global_id\":\"p%d\"}\n",
                      i, 3 * i, 4 * i, i);
    snprintf(words, sizeof words, "'data.train_files=[%s]'", e2e_write("rows.jsonl", rows.data));
    ares_str_fini(&rows);
    return words;
}

TEST(filters_that_keep_nothing_end_a_run_without_a_limit_of_draws)
{
    static const char *const limits[] = { "algorithm.max_resample=-1",
                                          "trainer.max_try_make_batch=0",
                                          "trainer.max_try_make_batch=0 "
                                          "algorithm.dynamic_sampling.mode=same_prompt",
                                          "curriculum.over_sampling_batch_size=4",
                                          "curriculum.over_sampling_batch_size=4 "
                                          "curriculum.partial_rollout=true" };
    for (int i = 0; i < ARES_COUNT(limits); i++) {
        ares_str out = { 0 };
        char run[16];
        snprintf(run, sizeof run, "idle%d", i);
        CHECK_EQ(e2e_program(&out,
                             "--config '%s' trainer.max_steps=1 data.rollout_batch_size=4 "
                             "worker.actor.global_batch_size=4 %s " REFILLED
                             "'worker.reward.rewards=[{name: random, p: 0}]' %s",
                             e2e_train_words(run), train_files(), limits[i]),
                 1);
        CHECK_CONTAINS(out.data, "filter: the last 20 draws gave 80 prompts, no fewer than there "
                                 "are, and no group of them is kept, while a batch takes 4 and has "
                                 "0; widen the filter");
        CHECK_CONTAINS(out.data, "(dropped: all_wrong: ");
        ares_str_fini(&out);
    }
}

/* The rows that, by the checkpoint of a step, must not be drawn again, as bits. */
static unsigned too_easy(const char *run, int step)
{
    char file[80], gid[16];
    unsigned bits = 0;
    int64_t n;
    ares_arena arena = { 0 };
    snprintf(file, sizeof file, "checkpoints/step_%06d/controls.json", step);
    const ares_json **state = e2e_rows(&arena, run, file, &n),
                    *list = n ? ares_json_get(ares_json_get(state[0], "aepo"), "skip_gid") : NULL;
    CHECK(list != NULL);
    for (int64_t k = 0; list && k < list->count; k++)
        for (int i = 0; i < ROWS; i++) {
            snprintf(gid, sizeof gid, "p%d", i);
            if (ares_view_is(list->items[k].text, gid)) bits |= 1u << i;
        }
    ares_arena_fini(&arena);
    return bits;
}

TEST(controls_learn_from_the_groups_of_every_draw)
{
    static const char *const same[] = { "filter/generated_groups", "reward/accuracy",
                                        "rollout/generated_tokens" };
    char words[1000];
    snprintf(words, sizeof words,
             DROPS_REFILLED "%s algorithm.max_resample=0 data.rollout_batch_size=8", train_files());
    REQUIRE(runs("once", 1, words));
    snprintf(words, sizeof words, DROPS_REFILLED "%s algorithm.max_resample=1", train_files());
    REQUIRE(runs("twice", 1, words));
    CHECK_EQ(e2e_metric("twice", 1, "filter/tries"), 2);
    for (int i = 0; i < ARES_COUNT(same); i++)
        CHECK_NEAR(e2e_metric("twice", 1, same[i]), e2e_metric("once", 1, same[i]), 1e-12);
    unsigned easy = too_easy("twice", 1);
    CHECK_EQ(easy, too_easy("once", 1));
    CHECK_MSG((easy & 0x0f) && (easy & 0xf0), "%x: prompts of both draws", easy);
    /* a prompt that is answered again is too easy where all of its answers were right */
    snprintf(words, sizeof words, DROPS_REFILLED "%s algorithm.max_resample=0", train_files());
    REQUIRE(runs("first", 1, words));
    snprintf(words, sizeof words,
             DROPS_REFILLED
             "%s algorithm.max_resample=1 algorithm.dynamic_sampling.mode=same_prompt",
             train_files());
    REQUIRE(runs("again", 1, words));
    unsigned first = too_easy("first", 1), again = too_easy("again", 1);
    CHECK_EQ(first, easy & 0x0f);
    CHECK_MSG((again & first) == again && again != first, "%x, and %x by the first answers alone",
              again, first);
}

TEST(prompts_that_became_too_easy_do_not_come_again)
{
    enum { STEPS = 6 };
    char words[1000], file[80];
    bool left_out = false;
    snprintf(words, sizeof words, DROPS "'worker.reward.rewards=[{name: random, p: 0.4}]' %s",
             train_files());
    REQUIRE(runs("run", STEPS, words));
    for (int step = 1; step <= STEPS; step++) {
        ares_arena arena = { 0 };
        int64_t n;
        int epoch = (int)e2e_metric("run", step, "epoch/id");
        unsigned easy = too_easy("run", step), before = epoch ? too_easy("run", step - 1) : 0;
        snprintf(file, sizeof file, "rollouts/step_%06d.jsonl", step);
        const ares_json **rows = e2e_rows(&arena, "run", file, &n);
        CHECK_EQ(n, 8);
        for (int64_t i = 0; i < n; i++) {
            int row = (int)e2e_number(rows[i], "row");
            CHECK_MSG(!(before & 1u << row), "step %d: row %d, of %x", step, row, before);
        }
        int rest = ROWS - __builtin_popcount(easy);
        CHECK_EQ(e2e_metric("run", step, "epoch/iter_num"), rest / 4);
        left_out = left_out || before;
        ares_arena_fini(&arena);
    }
    CHECK(left_out);
}

/* ---------------------------------------------------------------- a batch that is filled */
/* No answer is ever right, so that all groups of a batch only fill it. */
#define HOPELESS                                                  \
    "'worker.reward.rewards=[{name: exact}]' data.shuffle=false " \
    "algorithm.filter_groups.enable=true "                        \
    "algorithm.on_exhausted=fill_masked "

/*
 * The number of answers of step 1 that two runs have in common; -1 unless both have four answers to
 * each of the same four prompts.
 */
static int shared_answers(const char *a, const char *b)
{
    ares_arena arena = { 0 };
    int64_t n, m;
    int same = 0;
    const ares_json **x = e2e_rows(&arena, a, "rollouts/step_000001.jsonl", &n),
                    **y = e2e_rows(&arena, b, "rollouts/step_000001.jsonl", &m);
    if (n != 16 || m != 16) same = -1;
    for (int64_t i = 0; i < n && same >= 0; i++) {
        bool placed = e2e_number(x[i], "row") == (double)(i / 4) &&
                      e2e_number(y[i], "row") == (double)(i / 4) &&
                      e2e_number(y[i], "sample") == (double)(i % 4);
        ares_view text = ares_json_get(y[i], "response")->text;
        same = placed ? same + ares_view_eq(ares_json_get(x[i], "response")->text, text) : -1;
    }
    ares_arena_fini(&arena);
    return same;
}

TEST(a_batch_is_filled_with_the_earliest_prompts_and_their_latest_answers)
{
    REQUIRE(runs("one_draw", 1, HOPELESS "algorithm.max_resample=0"));
    REQUIRE(runs("new_prompts", 1, HOPELESS "algorithm.max_resample=2"));
    REQUIRE(runs("answered_twice", 1,
                 HOPELESS "algorithm.max_resample=1 algorithm.dynamic_sampling.mode=same_prompt"));
    REQUIRE(runs("answered_again", 1,
                 HOPELESS "algorithm.max_resample=2 algorithm.dynamic_sampling.mode=same_prompt"));
    CHECK_EQ(e2e_metric("answered_again", 1, "dapo/num_gen_rounds"), 3);
    CHECK_EQ(shared_answers("one_draw", "new_prompts"), 16);
    CHECK_EQ(shared_answers("one_draw", "answered_twice"), 0);
    CHECK_EQ(shared_answers("one_draw", "answered_again"), 0);
    CHECK_EQ(shared_answers("answered_twice", "answered_again"), 0);
}
