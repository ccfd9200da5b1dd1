/*
 * Options in combination: each pair of levels trains in some run of two steps, or is refused. Each
 * combination trains twice: uninterrupted, and resumed from the checkpoint after its first step
 * with memory divided differently. Where answers are masked, it trains a third time with other
 * scores of the masked answers. The lists of estimators, losses, filters, controls and KL
 * estimators are the program's own, so that a new entry is combined with everything else.
 * docs/testing.md contains the tables that levels_print writes. Under sanitizers, which slow a run
 * down tenfold, each level is in some combination; the pairs are the plain build's.
 */
#include "laws.h"
#include "levels.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__
enum { EVERY_PAIR = false };
#else
enum { EVERY_PAIR = true };
#endif

static bool excluded(int f, int l, int g, int m)
{
    uint64_t a = factors[f].levels[l].tags, b = factors[g].levels[m].tags;
    /* filters would drop every group, for ever: nothing is scored, or all alike */
    bool hopeless = (a | b) & (ALL_MASKED | PAIRS);
    return ((a | b) & NEVER) || (f != g && levels_rule(levels_refused, a, b)) ||
           (hopeless && ((a | b) & OVERSAMPLES));
}

static bool hides_others(int f, int l)
{
    return factors[f].levels[l].tags & LEARNS_LITTLE;
}

static void open_array(covering *c)
{
    levels_build();
    *c = (covering){ .factors = FACTORS, .excluded = excluded, .hides_others = hides_others };
    for (int f = 0; f < FACTORS; f++) c->levels[f] = factors[f].n;
}

/* ---------------------------------------------------------------- runs */
#define COMMON                                                                                     \
    "trainer.max_steps=2 trainer.save_freq=1 trainer.threads=1 trainer.save_minutes=null "         \
    "algorithm.disable_kl=false algorithm.kl_coef=0.05 "                                           \
    "worker.reward.accuracy=random " REWARD(                                                       \
        "") "algorithm.entropy_percentile=70 worker.rollout.window_size=2 "                        \
            "'worker.rollout.stop_token_ids=[48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 97, 98, 99, " \
            "100, 101, 102, 103, "                                                                 \
            "104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115]' "
#define LEARNS "worker.actor.optim.lr=1e-2 worker.critic.optim.lr=1e-2 "
/* Other sizes of forward passes, caches and micro-batches. */
#define CUTS                                                                              \
    "worker.actor.max_token_len_per_device=60 worker.critic.max_token_len_per_device=70 " \
    "worker.rollout.max_num_seqs=3 worker.rollout.max_num_batched_tokens=40 "             \
    "worker.actor.model.enable_gradient_checkpointing=true "                              \
    "worker.critic.model.enable_gradient_checkpointing=false trainer.threads=2 "

typedef struct combination {
    const int *row;
    uint64_t tags;
    char names[1200], words[4500];
} combination;

static void describe(const int *row, int number, combination *c)
{
    ares_str names = { 0 }, words = { 0 };
    *c = (combination){ .row = row };
    ares_str_addf(&names, "combination %d (", number);
    for (int f = 0; f < FACTORS; f++) {
        const level *l = &factors[f].levels[row[f]];
        c->tags |= l->tags;
        ares_str_addf(&names, "%s%s: %s", f ? ", " : "", factors[f].name, l->name);
        if (l->words[0]) ares_str_addf(&words, "%s ", l->words);
    }
    snprintf(c->names, sizeof c->names, "%s)", names.data);
    snprintf(c->words, sizeof c->words, "%s", words.data ? words.data : "");
    ares_str_fini(&names);
    ares_str_fini(&words);
}

/* Eight prompts: two steps are an epoch, and draws of filters reach further prompts. */
static const char *rows(void)
{
    ares_str text = { 0 };
    for (int i = 0; i < 8; i++)
        ares_str_addf(&text,
                      "{\"prompt\":\"%d+%d=?\",\"answer\":\"%d\",\"global_id\":\"p%d\""
                      ",\"hint\":\"%d\"}\n",
                      i, i * i, i + i * i, i, i + i * i);
    const char *path = e2e_write("rows.jsonl", text.data);
    ares_str_fini(&text);
    return path;
}

static void open_runs(void)
{
    setenv("ARES_TEST_TRIGGERS",
           e2e_write("triggers.json", "[\"0\", \"1\", \"2\", \"a\", \"b\", \"c\", \"Q\", \"R\", "
                                      "\"S\", \"T\", \"x\", \"y\", \"z\"]"),
           1);
    setenv("ARES_TEST_TEACHER", test_file("teacher"), 1);
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2 --hidden 48 --layers 1 --heads 2 --kv-heads 1 --seed 5 "
                         "--out '%s'",
                         test_file("teacher")),
             0);
    CHECK_OK(ares_dir_make(test_file("runs")));
}

static bool trains(const combination *c, const char *launch, const char *run, const char *more)
{
    ares_str out = { 0 };
    int rc = e2e_program(
        &out, "%s --config '%s' trainer.run_dir='%s' data.train_files='%s' " COMMON "%s %s", launch,
        e2e_train_words("of"), test_file(run), rows(), c->words, more);
    bool good = CHECK_MSG(rc == 0, "%s: %s", c->names, out.data ? out.data : "");
    ares_str_fini(&out);
    return good;
}

/* Whether a folder of two runs has the same files. */
static bool same_files(const combination *c, const char *folder, const char *a, const char *b,
                       const char *without)
{
    ares_str out = { 0 };
    int rc = test_shell(&out, "cd '%s' && diff -rq %s %s/%s %s/%s", test_file("runs"), without, a,
                        folder, b, folder);
    bool good = CHECK_MSG(rc == 0, "%s: %s", c->names, out.data ? out.data : "");
    ares_str_fini(&out);
    return good;
}

#define LAST "checkpoints/step_000002"
#define WHOLE "runs/whole"
#define BEFORE "runs/before"
#define OTHER_RUN "runs/other"
#define TWO "runs/two"
/* an over-sampling source keeps the scores of masked answers whose group goes on later */
static const char *without_state(const combination *c)
{
    return c->tags & OVERSAMPLES ? "-x state.json -x source.json" : "-x state.json";
}

/*
 * Checks that the run, resumed from the checkpoint of step 1 with memory divided differently, is
 * the same.
 */
static bool goes_on_alike(const combination *c)
{
    int rc = test_shell(NULL,
                        "cd '%s' && cp -r whole before && cd whole && rm -r DONE " LAST
                        " && echo step_000001 > checkpoints/latest",
                        test_file("runs"));
    return CHECK_EQ(rc, 0) && trains(c, "", WHOLE, LEARNS CUTS) &&
           laws_same(BEFORE, WHOLE, 2, 0, NULL, c->names) &&
           same_files(c, LAST, "before", "whole", "") &&
           same_files(c, "rollouts", "before", "whole", "");
}

/*
 * Checks that scores of masked answers change nothing. A greedy baseline is left out: its answer is
 * judged however long it is.
 */
static bool masks_count_nowhere(const combination *c)
{
    static const char *const validation[] = { "val/", NULL };
    if (!(c->tags & MASKS) || (c->tags & BASELINE)) return true;
    return trains(c, "", OTHER_RUN, LEARNS "worker.reward.unfinished_score=1000") &&
           laws_same(WHOLE, OTHER_RUN, 2, 0, validation, c->names) &&
           same_files(c, LAST, "whole", "other", without_state(c));
}

/*
 * Checks that another run, in which masked answers or groups that fill the batch are absent, learns
 * the same from the rest.
 */
static bool learns_alike(const combination *c, const char *more)
{
    static const char *const of_rows[] = { "global_seqlen/", "filter/", "dapo/batch_fill",
                                           "reward/empty_responses", NULL };
    return trains(c, "", OTHER_RUN, more) && laws_same(WHOLE, OTHER_RUN, 2, 0, of_rows, c->names) &&
           same_files(c, LAST, "whole", "other", without_state(c));
}

static bool absent_is_as_masked(const combination *c)
{
    if (c->tags & (MINI | BY_RANK)) return true; /* mini-batches would have other groups */
    /* where all answers are absent there is no group, and where all are masked there are some */
    bool counted = (c->tags & ALL_MASKED) && (c->tags & COUNTS_EMPTY);
    if ((c->tags & MASKS) && !(c->tags & DROPS) && !counted &&
        !learns_alike(c, LEARNS "algorithm.over_length_action=drop"))
        return false;
    ares_dir_remove(test_file(OTHER_RUN));
    return !(c->tags & FILTERS) || !(c->tags & FILLS) ||
           learns_alike(c, LEARNS "algorithm.on_exhausted=smaller_batch");
}

static bool keeps_the_laws(const combination *c)
{
    bool masks_old = strstr(c->words, "mask_offpolicy_in_partial_rollout=true") != NULL;
    bool good = trains(c, "", WHOLE, LEARNS) &&
                laws_hold(WHOLE, 2, c->tags & ENTROPY ? 0.01 : 0, masks_old, c->names);
    if (good && (c->tags & MASKS) && !(c->tags & FILTERS))
        good = laws_of_finished(WHOLE, 2, c->names);
    good = good && goes_on_alike(c) && masks_count_nowhere(c);
    ares_dir_remove(test_file(OTHER_RUN));
    return good && absent_is_as_masked(c);
}

static void forget(void)
{
    static const char *const runs[] = { WHOLE, BEFORE, OTHER_RUN, TWO };
    for (int i = 0; i < ARES_COUNT(runs); i++) ares_dir_remove(test_file(runs[i]));
}

/* ARES_COMBINATION=17 runs only this combination. */
static bool asked_for(int number)
{
    const char *only = getenv("ARES_COMBINATION");
    return !only || strtol(only, NULL, 10) == number;
}

static const char *repeat(int number)
{
    static char text[100];
    snprintf(text, sizeof text, "ARES_COMBINATION=%d build/test_e2e combinations", number);
    return text;
}

static const char *dead_end(const covering *c)
{
    static char text[200];
    int n = 0;
    for (int f = 0; f < FACTORS; f++)
        if (c->row[c->rows][f] >= 0)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s: %s; ", factors[f].name,
                          factors[f].levels[c->row[c->rows][f]].name);
    return text;
}

static void run_part(int part, int parts)
{
    covering c;
    open_array(&c);
    open_runs();
    bool covered = covering_make(&c, EVERY_PAIR, 1);
    CHECK_MSG(covered, "a pair fits into no combination: %s", covered ? "" : dead_end(&c));
    int seen = 0, learnt = 0;
    if (getenv("ARES_COMBINATION")) printf("%d combinations\n", c.rows);
    for (int i = part; i < c.rows; i += parts) {
        combination k;
        if (!asked_for(i)) continue;
        describe(c.row[i], i, &k);
        if (!keeps_the_laws(&k)) printf("repeat: %s\n  options: %s\n", repeat(i), k.words);
        seen++;
        learnt += e2e_metric(WHOLE, 1, "actor/grad_norm") > 0 ||
                  e2e_metric(WHOLE, 2, "actor/grad_norm") > 0;
        forget();
    }
    CHECK_MSG(seen < 5 || 3 * learnt > 2 * seen, "only %d of %d combinations learnt anything",
              learnt, seen);
}

/* Divided into parts, so that none comes near the time limit of a test. */
#define EACH_PART(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define PART(n)                                                       \
    TEST(every_pair_of_levels_trains_in_some_combination_##n##_of_12) \
    {                                                                 \
        run_part(n - 1, 12);                                          \
    }
EACH_PART(PART)

/* ---------------------------------------------------------------- two ranks */
/*
 * Each level, except those that count by rank, is in some combination. AdamW's eps makes steps
 * proportional to gradients, so that a sum in another order stays a small difference after an
 * update.
 */
static void on_two_ranks(int part, int parts)
{
    static const char *const apart[] = { "global_seqlen/", NULL };
    static const char smooth[] = "worker.actor.optim.lr=0.1 worker.actor.optim.eps=1 "
                                 "worker.critic.optim.lr=0.1 worker.critic.optim.eps=1 ";
    covering c;
    E2E_NEEDS_MPI();
    open_array(&c);
    open_runs();
    for (int f = 0; f < FACTORS; f++)
        for (int l = 0; l < factors[f].n; l++)
            if (factors[f].levels[l].tags & BY_RANK) factors[f].levels[l].tags |= NEVER;
    CHECK(covering_make(&c, false, 2));
    for (int i = part; i < c.rows; i += parts) {
        combination k;
        if (!asked_for(i)) continue;
        describe(c.row[i], i, &k);
        bool good = trains(&k, "", WHOLE, smooth) && trains(&k, "--ranks 2", TWO, smooth);
        /* a last bit of a gradient turns the rounding of a weight or an input to bf16 now and then
         */
        double near = strstr(k.names, "products in bf16") ? 0x1p-8 : 1e-4;
        if (!good || !laws_same(WHOLE, TWO, 2, near, apart, k.names))
            printf("repeat: %s\n  options: %s\n", repeat(i), k.words);
        forget();
    }
}

TEST_MPI(every_level_trains_on_two_ranks_as_on_one_1_of_3)
{
    on_two_ranks(0, 3);
}
TEST_MPI(every_level_trains_on_two_ranks_as_on_one_2_of_3)
{
    on_two_ranks(1, 3);
}
TEST_MPI(every_level_trains_on_two_ranks_as_on_one_3_of_3)
{
    on_two_ranks(2, 3);
}

/* ---------------------------------------------------------------- refused, or without effect */
static void says(const level *a, const level *b, bool refused, const char *said)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out,
                         "--config '%s' data.train_files='%s' " COMMON
                         "trainer.max_steps=1 algorithm.adv_estimator=%s %s %s",
                         e2e_train_words("of"), rows(),
                         (a->tags | (b ? b->tags : 0)) & PAIRS ? "vapor" : "reinforce_plus_plus",
                         a->words, b ? b->words : "");
    CHECK_MSG((refused ? rc == 1 || rc == 2 : rc == 0) && strstr(out.data, said),
              "%s with %s: exit status %d, '%s' is not said: %s", a->name, b ? b->name : "anything",
              rc, said, out.data);
    ares_dir_remove(test_file("of"));
    ares_str_fini(&out);
}

static void each_pair(void (*see)(const level *a, const level *b))
{
    levels_build();
    open_runs();
    for (int f = 0; f < FACTORS; f++)
        for (int l = 0; l < factors[f].n; l++)
            for (int g = f + 1; g < FACTORS; g++)
                for (int m = 0; m < factors[g].n; m++)
                    if (!((factors[f].levels[l].tags | factors[g].levels[m].tags) & NEVER))
                        see(&factors[f].levels[l], &factors[g].levels[m]);
}

static void see_refused(const level *a, const level *b)
{
    const rule *r = levels_rule(levels_refused, a->tags, b->tags);
    if (r) says(a, b, true, r->said);
}

static void see_without_effect(const level *a, const level *b)
{
    const rule *r = levels_rule(levels_without_effect, a->tags, b->tags);
    if (r) says(a, b, false, r->said);
}

TEST(pairs_without_sense_are_refused_with_their_message)
{
    each_pair(see_refused);
}
TEST(pairs_of_which_one_has_no_effect_say_so)
{
    each_pair(see_without_effect);
}

TEST(what_goes_with_nothing_is_refused_with_its_message)
{
    levels_build();
    for (const refused_level *n = levels_refused_alone; n->name; n++) {
        const factor *f = &factors[n->factor];
        int l = 0;
        while (l < f->n && strcmp(f->levels[l].name, n->name) != 0) l++;
        if (CHECK_MSG(l < f->n, "no %s is called %s", f->name, n->name))
            says(&f->levels[l], NULL, true, n->said);
    }
}

/* ---------------------------------------------------------------- the page */
TEST(the_page_of_tests_names_what_is_combined_and_what_is_refused)
{
    ares_str tables = { 0 }, page = { 0 };
    levels_print(&tables);
    REQUIRE_OK(ares_file_read(test_source("docs/testing.md"), &page));
    if (!CHECK(strstr(page.data, tables.data)))
        printf("docs/testing.md, \"Combinations\": paste\n%s", tables.data);
    ares_str_fini(&tables);
    ares_str_fini(&page);
}
