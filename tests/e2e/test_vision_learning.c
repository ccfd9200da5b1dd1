/*
 * A model made here learns from pictures: supervised, then by reward, over three seeds. A learning
 * rate of 0 learns nothing, and neither do rows whose pictures were shuffled among them: what is
 * learnt is what the pictures show.
 */
#include <math.h>
#include <stdio.h>

#include "../media/pictures.h"
#include "vision_runs.h"

enum { SIDE = 24, COLOURS = 4, ROWS = 480, STEPS = 60, WINDOW = 5 };
static const char *const colours[COLOURS] = { "red", "green", "blue", "yellow" };
static const uint8_t rgb_of[COLOURS][3] = {
    { 210, 40, 40 }, { 40, 170, 60 }, { 50, 80, 210 }, { 220, 190, 40 }
};

/* Any number below n, the same for the same row. */
static int draw(int row, int what, int n)
{
    ares_rng_key key = ares_rng_root(11, ARES_RNG_TEST);
    return (int)ares_rng_below(key, (uint64_t)(row * 8 + what), (uint64_t)n);
}

/* A square of the row's colour on a grey ground, of any shade, size and place: no two are equal. */
static ares_view picture_of(ares_arena *arena, int row, int colour)
{
    uint8_t *rgb = ares_arena_alloc(arena, SIDE * SIDE * 3);
    int side = 12 + draw(row, 1, 8), x0 = draw(row, 2, SIDE - side), y0 = draw(row, 3, SIDE - side),
        shade = draw(row, 4, 30);
    memset(rgb, 225 + shade, SIDE * SIDE * 3);
    for (int y = y0; y < y0 + side; y++)
        for (int x = x0; x < x0 + side; x++)
            for (int c = 0; c < 3; c++)
                rgb[(y * SIDE + x) * 3 + c] =
                    (uint8_t)(rgb_of[colour][c] + draw(row, 5 + c % 2, 30));
    return picture_base64(arena, picture_png(arena, rgb, SIDE, SIDE));
}

/* hint: one answer of so many is right by will, the others by chance; shuffled: see above. */
static void write_rows(const char *name, int first, int hint, bool shuffled)
{
    ares_arena arena = { 0 };
    ares_str out = { 0 };
    for (int i = first; i < first + ROWS; i++) {
        int answer = draw(i, 0, COLOURS), said = i % hint ? draw(i, 7, COLOURS) : answer,
            shown = shuffled ? draw(i + 5000, 0, COLOURS) : answer;
        ares_str_addf(&out,
                      "{\"prompt\":\"<image>Colour?\",\"images\":[\"data:image/png;base64,%s\"],"
                      "\"response\":\"%s\",\"answer\":\"%s\"}\n",
                      picture_of(&arena, i, shown).data, colours[said], colours[answer]);
    }
    e2e_write(name, out.data);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
}

#define DATA "data.min_pixels=null data.max_pixels=null data.max_prompt_length=64 "

static void start(const char *run, const char *rows, int steps)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out,
                         "sft " DATA "data.train_files='%s' sft.batch_size=32 sft.max_length=80 "
                         "worker.actor.model.model_path='%s' worker.actor.optim.lr=3e-3 "
                         "worker.actor.optim.weight_decay=0 worker.actor.optim.betas=[0.9,0.99] "
                         "trainer.max_steps=%d trainer.run_dir='%s'",
                         test_file(rows), vision_model(), steps, test_file(run));
    CHECK_MSG(rc == 0, "%s", out.data);
    ares_str_fini(&out);
}

/* Mean reward of the last steps minus that of the first. */
static double gain(const char *run, const char *rows, int seed, const char *more)
{
    double first = 0, last = 0;
    ares_str out = { 0 };
    int rc =
        e2e_program(&out,
                    DATA "data.train_files='%s' data.seed=%d data.max_response_length=8 "
                         "data.rollout_batch_size=8 worker.actor.global_batch_size=8 "
                         "worker.actor.model.model_path='%s' worker.rollout.n=8 "
                         "worker.actor.optim.lr=1e-3 worker.actor.optim.betas=[0.9,0.99] "
                         "worker.actor.optim.weight_decay=0 worker.rollout.seed=%d "
                         "algorithm.adv_estimator=grpo algorithm.disable_kl=true "
                         "'worker.reward.rewards=[{name: exact}]' trainer.max_steps=%d "
                         "trainer.run_dir='%s' %s",
                    test_file(rows), seed, test_file("start"), seed, STEPS, test_file(run), more);
    if (!CHECK_MSG(rc == 0, "%s", out.data)) return NAN;
    ares_str_fini(&out);
    for (int i = 0; i < WINDOW; i++) {
        first += e2e_metric(run, 1 + i, "reward/overall") / WINDOW;
        last += e2e_metric(run, STEPS - i, "reward/overall") / WINDOW;
    }
    printf("  %s: mean reward of %d steps %.3f at first, %.3f at last\n", run, WINDOW, first, last);
    return last - first;
}

TEST_SLOW(reward_rises_over_pictures_and_not_without_a_rate_or_with_pictures_of_other_rows)
{
    char name[32];
    write_rows("start.jsonl", 0, 4, false);
    write_rows("train.jsonl", 1000, 1, false);
    write_rows("shuffled.jsonl", 1000, 1, true);
    start("start", "start.jsonl", 60);
    for (int seed = 1; seed <= 3; seed++) {
        snprintf(name, sizeof name, "seed_%d", seed);
        CHECK(gain(name, "train.jsonl", seed, "") > 0.3);
    }
    CHECK(gain("tower", "train.jsonl", 1, "worker.actor.model.freeze_vision_tower=false") > 0.3);
    CHECK(!(fabs(gain("still", "train.jsonl", 1, "worker.actor.optim.lr=0")) > 0.1));
    CHECK(!(gain("shuffled", "shuffled.jsonl", 1, "") > 0.15));
}

/* The share of the rows that a model answers rightly. */
static double accuracy(const char *run, const char *rows)
{
    double share = NAN;
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "eval " DATA "data.val_files='%s' data.max_response_length=8 "
                         "worker.actor.model.model_path='%s' trainer.run_dir='%s_eval' "
                         "worker.rollout.val_override_config.temperature=0 "
                         "'worker.reward.rewards=[{name: exact}]'",
                         test_file(rows), test_file(run), test_file(run)),
             0);
    const char *at = strstr(out.data, "val/accuracy");
    if (CHECK_MSG(at, "%s", out.data)) share = strtod(at + strcspn(at, "0123456789"), NULL);
    printf("  %s: %.3f of the rows\n", run, share);
    ares_str_fini(&out);
    return share;
}

TEST_SLOW(supervised_rows_teach_what_pictures_show_and_shuffled_ones_do_not)
{
    write_rows("right.jsonl", 0, 1, false);
    write_rows("shuffled.jsonl", 0, 1, true);
    write_rows("val.jsonl", 2000, 1, false);
    start("right", "right.jsonl", 80);
    start("shuffled", "shuffled.jsonl", 80);
    CHECK(accuracy("right", "val.jsonl") > 0.9);
    CHECK(accuracy("shuffled", "val.jsonl") < 0.5);
}
