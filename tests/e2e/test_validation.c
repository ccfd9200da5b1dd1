/*
 * Metrics of validation are means over the answers in its file, however these are divided into
 * batches; an answer that no verifier called right or wrong counts in no accuracy; and neither
 * validation nor the bootstrap pass samples what training samples.
 */
#include "e2e.h"

#include <math.h>
#include <stdio.h>

/* ---------------------------------------------------------------- metrics of validation */
/* The verifier "random" calls no answer right or wrong. */
static const char rows[] = "{\"prompt\":\"1\",\"answer\":\"1\",\"rm_type\":\"number\"}\n"
                           "{\"prompt\":\"22\",\"answer\":\"2\",\"rm_type\":\"random\"}\n"
                           "{\"prompt\":\"333\",\"rm_type\":\"ifbench\",\"kwargs\":[{}],"
                           "\"instruction_id_list\":[\"punctuation:no_comma\"]}\n"
                           "{\"prompt\":\"55555\",\"answer\":\"5\",\"rm_type\":\"random\"}\n"
                           "{\"prompt\":\"4444\",\"answer\":\"4\",\"rm_type\":\"number\"}\n";

/* Stop strings make answers of many lengths. */
#define WORDS                                                                        \
    "trainer.max_steps=1 trainer.val_freq=1 'worker.reward.rewards=[{name: auto}]' " \
    "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m, o]' "              \
    "'worker.rollout.val_override_config={n: 2}' data.val_group_key=rm_type "

typedef struct part {
    const char *name; /* of rm_type; NULL: all rows */
    double rows, score, accuracy, judged, tokens, finished, most, least;
} part;

static void add(part *p, const ares_json *row)
{
    double accuracy = e2e_number(row, "accuracy"), tokens = e2e_number(row, "n_tokens");
    p->rows++;
    p->score += e2e_number(row, "score");
    p->tokens += tokens;
    p->finished += ares_json_get(row, "finished")->boolean;
    p->most = p->rows > 1 ? fmax(p->most, tokens) : tokens;
    p->least = p->rows > 1 ? fmin(p->least, tokens) : tokens;
    if (isnan(accuracy)) return;
    p->accuracy += accuracy;
    p->judged++;
}

static void check(const char *run, int step, const char *part, const char *name, double want)
{
    char key[120];
    snprintf(key, sizeof key, "val/%s%s%s", part ? part : "", part ? "/" : "", name);
    double have = e2e_metric(run, step, key);
    CHECK_MSG(isnan(want) ? isnan(have) : fabs(have - want) < 1e-6, "%s is %g, expected %g", key,
              have, want);
}

static void check_part(const char *run, int step, const part *p)
{
    char name[60] = "";
    if (p->name) snprintf(name, sizeof name, "rm_type=%s", p->name);
    const char *of = p->name ? name : NULL;
    check(run, step, of, "reward_score", p->score / p->rows);
    check(run, step, of, "accuracy", p->judged > 0 ? p->accuracy / p->judged : NAN);
    check(run, step, of, "response_length", p->tokens / p->rows);
    if (p->name) return;
    check(run, step, of, "accuracy_reward", p->accuracy / p->judged);
    check(run, step, of, "finished_frac", p->finished / p->rows);
    check(run, step, of, "auto_reward", p->score / p->rows);
    CHECK_NEAR(e2e_metric(run, step, "val_response_length/mean"), p->tokens / p->rows, 1e-9);
    CHECK_EQ(e2e_metric(run, step, "val_response_length/max"), p->most);
    CHECK_EQ(e2e_metric(run, step, "val_response_length/min"), p->least);
    CHECK_EQ(e2e_metric(run, step, "val_prompt_length/max"),
             e2e_metric(run, step, "val_prompt_length/min") + 4);
}

static void check_validation(const char *run, int step)
{
    part all = { 0 },
         parts[] = { { .name = "number" }, { .name = "random" }, { .name = "ifbench" } };
    static const int of[] = { 0, 1, 2, 1, 0 };
    int seen[5][2] = { 0 };
    ares_arena arena = { 0 };
    char file[80];
    int64_t n;
    snprintf(file, sizeof file, "validation/step_%06d.jsonl", step);
    const ares_json **lines = e2e_rows(&arena, run, file, &n);
    CHECK_EQ(n, 10);
    for (int64_t i = 0; i < n; i++) {
        add(&all, lines[i]);
        double row = e2e_number(lines[i], "row"), sample = e2e_number(lines[i], "sample");
        if (!CHECK(row < 5 && sample < 2)) break;
        CHECK_MSG(!seen[(int)row][(int)sample]++, "row %g, sample %g", row, sample);
        add(&parts[of[(int)e2e_number(lines[i], "row")]], lines[i]);
    }
    CHECK_EQ(all.judged, 6);
    CHECK(all.accuracy > 0 && all.least < all.most && all.finished > 0 && all.finished < 10);
    check_part(run, step, &all);
    for (int i = 0; i < ARES_COUNT(parts); i++) check_part(run, step, &parts[i]);
    ares_arena_fini(&arena);
}

static bool runs(const char *run, const char *before, const char *options)
{
    ares_str out = { 0 };
    const char *path = e2e_write("rows.jsonl", rows);
    int rc = e2e_program(
        &out, "%s --config '%s' 'data.train_files=[%s]' 'data.val_files=[%s]' " WORDS "%s", before,
        e2e_train_words(run), path, path, options);
    bool well = CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
    ares_str_fini(&out);
    return well;
}

TEST(validation_tells_the_means_of_the_answers_in_its_file)
{
    REQUIRE(runs("run", "", ""));
    check_validation("run", 0);
    check_validation("run", 1);
    REQUIRE(runs("batches", "", "data.val_batch_size=2"));
    CHECK_EQ(test_shell(NULL, "diff -r '%s' '%s'", test_file("run/validation"),
                        test_file("batches/validation")),
             0);
}

/* ---------------------------------------------------------------- several answers to a prompt */
enum { SEVERAL = 3 };

enum { BEST, WORST, MAJ, DRAWN };

/* All sequences of k answers drawn with replacement: the greatest value, the least, and that of the
 * vote that most of them have, of a tie the first; added to sums, and their deviations to stds.
 */
static void draw_all(const double *values, const int *vote, int k, double sums[DRAWN],
                     double stds[DRAWN])
{
    int sequences = 1;
    double mean[DRAWN] = { 0 }, squares[DRAWN] = { 0 };
    for (int i = 0; i < k; i++) sequences *= SEVERAL;
    for (int s = 0; s < sequences; s++) {
        int drawn[SEVERAL], count[100] = { 0 }, winner = 0;
        double value[DRAWN] = { 0, INFINITY, 0 };
        for (int i = 0, rest = s; i < k; i++, rest /= SEVERAL) {
            drawn[i] = rest % SEVERAL;
            value[BEST] = fmax(value[BEST], values[drawn[i]]);
            value[WORST] = fmin(value[WORST], values[drawn[i]]);
            count[vote[drawn[i]]]++;
        }
        for (int i = 1; i < k; i++)
            if (count[vote[drawn[i]]] > count[vote[drawn[winner]]]) winner = i;
        value[MAJ] = values[drawn[winner]];
        for (int i = 0; i < DRAWN; i++) {
            mean[i] += value[i] / sequences;
            squares[i] += value[i] * value[i] / sequences;
        }
    }
    for (int i = 0; i < DRAWN; i++) {
        sums[i] += mean[i];
        stds[i] += sqrt(fmax(0, squares[i] - mean[i] * mean[i]));
    }
}

/*
 * The metrics of the prompts whose question has so many characters (0: all) against the file. An
 * answer's value is its accuracy, or its score where one of the prompt's answers has no accuracy.
 */
static void check_several(const char *run, const char *part, int length)
{
    ares_arena arena = { 0 };
    int64_t n;
    static const char *const names[DRAWN] = { "best", "worst", "maj" };
    double mean = 0, std = 0, pass[SEVERAL] = { 0 }, sums[SEVERAL][DRAWN] = { 0 },
           stds[SEVERAL][DRAWN] = { 0 }, prompts = 0, passed = 0, late = 0;
    const ares_json **row = e2e_rows(&arena, run, "validation/step_000000.jsonl", &n);
    for (int64_t p = 0; p < n; p++) {
        if (e2e_number(row[p], "sample") != 0) continue;
        if (length && (int)ares_json_get(row[p], "question")->text.len != length) continue;
        double accuracy[SEVERAL], score[SEVERAL], sum = 0, squares = 0;
        bool judged = true;
        int vote[SEVERAL];
        for (int64_t i = 0; i < n; i++) {
            if (e2e_number(row[i], "row") != e2e_number(row[p], "row")) continue;
            int k = (int)e2e_number(row[i], "sample");
            const ares_json *said = ares_json_get(ares_json_get(row[i], "details"), "votes");
            accuracy[k] = e2e_number(row[i], "accuracy");
            score[k] = e2e_number(row[i], "score");
            vote[k] = (int)e2e_number(said, "pred");
            judged = judged && !isnan(accuracy[k]);
        }
        const double *values = judged ? accuracy : score;
        for (int k = 0; k < SEVERAL; k++) sum += values[k], squares += values[k] * values[k];
        prompts++;
        passed += judged;
        late += !judged && !isnan(accuracy[0]); /* of which the first one does not tell */
        mean += sum / SEVERAL;
        std += sqrt(fmax(0, squares / SEVERAL - sum / SEVERAL * (sum / SEVERAL)));
        for (int k = 1; k <= SEVERAL; k++) {
            draw_all(values, vote, k, sums[k - 1], stds[k - 1]);
            if (!judged) continue;
            /* of the 3 sets of two answers those without a right one */
            double wrong = SEVERAL - sum,
                   none[] = { wrong / 3, wrong > 1 ? wrong * (wrong - 1) / 6 : 0, sum == 0 };
            pass[k - 1] += 1 - none[k - 1];
        }
    }
    CHECK(prompts > 0 && (passed == prompts || late > 0));
    check(run, 0, part, "mean@3", mean / prompts);
    check(run, 0, part, "std@3", std / prompts);
    for (int k = 1; k <= SEVERAL; k++) {
        char name[40];
        snprintf(name, sizeof name, "pass@%d", k);
        check(run, 0, part, name, passed > 0 ? pass[k - 1] / passed : NAN);
        for (int i = 0; i < DRAWN; i++) {
            snprintf(name, sizeof name, "%s@%d/mean", names[i], k);
            check(run, 0, part, name, sums[k - 1][i] / prompts);
            snprintf(name, sizeof name, "%s@%d/std", names[i], k);
            check(run, 0, part, name, stds[k - 1][i] / prompts);
        }
    }
    ares_arena_fini(&arena);
}

#define SEVERAL_WORDS                                                                     \
    "trainer.max_steps=1 trainer.val_freq=1 data.val_files='%s' data.val_group_key=kind " \
    "'~worker.reward.rewards' 'worker.reward.rewards=[{command: [sh, %s]}]' "             \
    "'worker.rollout.stop=[a, b, c, d, e, f, g, h]' "                                     \
    "'worker.rollout.val_override_config={n: 3}'"

/* verl's metrics of n answers, over all prompts and over those of one value of the key. */
TEST(several_answers_to_a_prompt_are_told_by_pass_best_and_majority)
{
    static const char rows_of_kinds[] = "{\"prompt\":\"1\",\"answer\":\"1\",\"kind\":\"short\"}\n"
                                        "{\"prompt\":\"22\",\"answer\":\"2\",\"kind\":\"long\"}\n"
                                        "{\"prompt\":\"3\",\"answer\":\"3\",\"kind\":\"short\"}\n"
                                        "{\"prompt\":\"44\",\"answer\":\"4\",\"kind\":\"long\"}\n"
                                        "{\"prompt\":\"55\",\"answer\":\"5\",\"kind\":\"long\"}\n"
                                        "{\"prompt\":\"666\",\"answer\":\"6\",\"kind\":\"part\"}\n"
                                        "{\"prompt\":\"777\",\"answer\":\"6\",\"kind\":\"part\"}\n"
                                        "{\"prompt\":\"888\",\"answer\":\"6\",\"kind\":\"part\"}\n";
    char file[300], script[300];
    ares_str out = { 0 };
    snprintf(file, sizeof file, "%s", e2e_write("kinds.jsonl", rows_of_kinds));
    /* the vote is the length of what was said, and one of them is right; where the truth is 6, it
     * is not told of all answers whether they are */
    snprintf(script, sizeof script, "%s",
             e2e_write("votes.sh",
                       "while read -r l; do n=$(( ${#l} % 3 )); a=$(( n == 1 ));\n"
                       "  case \"$n$l\" in [12]*'\"ground_truth\":\"6\"'*) a=null;; esac\n"
                       "  echo \"{\\\"score\\\": $n, \\\"accuracy\\\": $a, \\\"pred\\\": $n}\"\n"
                       "done\n"));
    int rc =
        e2e_program(&out, "--config '%s' " SEVERAL_WORDS, e2e_train_words("run"), file, script);
    CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
    CHECK_CONTAINS(out.data, "val/kind=short/pass@2");
    CHECK_CONTAINS(out.data, "val/mean@3");
    CHECK(!strstr(out.data, "best@") && !strstr(out.data, "std@"));
    check_several("run", NULL, 0);
    check_several("run", "kind=short", 1);
    check_several("run", "kind=long", 2);
    check_several("run", "kind=part", 3);
    if (e2e_has_mpi()) {
        CHECK_EQ(e2e_program(NULL, "--ranks 2 --config '%s' " SEVERAL_WORDS, e2e_train_words("two"),
                             file, script),
                 0);
        check_several("two", NULL, 0);
        check_several("two", "kind=long", 2);
    }
    ares_str_fini(&out);
}

TEST_MPI(two_ranks_tell_the_means_of_the_answers_in_their_file)
{
    E2E_NEEDS_MPI();
    REQUIRE(runs("two", "--ranks 2", "trainer.threads=1"));
    check_validation("two", 0);
}

/* ---------------------------------------------------------------- apart from training */
enum { PROMPTS = 8, N = 2 };

/*
 * Compares answers to the same prompts with the same options: those of validation before training,
 * of the bootstrap pass and of step 1. A shared random stream would make them equal.
 */
TEST(validation_and_the_bootstrap_pass_sample_what_training_does_not)
{
    ares_str prompts = { 0 };
    for (int i = 0; i < PROMPTS; i++)
        ares_str_addf(&prompts, "{\"prompt\":\"%d+1=?\",\"answer\":\"1\",\"global_id\":\"p%d\"}\n",
                      i, i);
    const char *path = e2e_write("prompts.jsonl", prompts.data);
    ares_str_fini(&prompts);
    REQUIRE(e2e_program(
                NULL,
                "--config '%s' 'data.train_files=[%s]' 'data.val_files=[%s]' data.shuffle=false "
                "data.rollout_batch_size=8 trainer.max_steps=1 worker.rollout.n=2 "
                "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m, o]' "
                "'worker.rollout.val_override_config={n: 2}' worker.reward.accuracy=random "
                "algorithm.aepo=true data.bootstrap=true",
                e2e_train_words("run"), path, path) == 0);
    ares_arena arena = { 0 };
    int64_t of_training, of_validation, one;
    const ares_json **training =
                        e2e_rows(&arena, "run", "rollouts/step_000001.jsonl", &of_training),
                    **validation =
                        e2e_rows(&arena, "run", "validation/step_000000.jsonl", &of_validation),
                    **pass = e2e_rows(&arena, "run", "bootstrap.json", &one);
    CHECK_EQ(of_training, PROMPTS * N);
    CHECK_EQ(of_validation, PROMPTS * N);
    CHECK_EQ(one, 1);
    int same_texts = 0, as_training = 0, as_validation = 0;
    for (int r = 0; r < PROMPTS * N && one == 1 && of_training == of_validation; r++) {
        CHECK_EQ(e2e_number(training[r], "row"), e2e_number(validation[r], "row"));
        same_texts += ares_view_eq(ares_json_get(training[r], "response")->text,
                                   ares_json_get(validation[r], "response")->text);
    }
    CHECK_EQ(same_texts, 0);
    /* the bootstrap pass keeps sums per prompt: right answers and tokens */
    const ares_json *aepo = one == 1 ? ares_json_get(pass[0], "aepo") : NULL,
                    *seen = aepo ? ares_json_get(ares_json_get(aepo, "bootstrap"), "seen") : NULL;
    REQUIRE(seen && seen->count == PROMPTS && of_training == PROMPTS * N);
    for (int p = 0; p < PROMPTS; p++) {
        const ares_json *sums = seen->members[p].value;
        double right[2] = { 0 }, tokens[2] = { 0 };
        for (int i = 0; i < N; i++)
            for (int k = 0; k < 2; k++) {
                const ares_json *row = k ? validation[p * N + i] : training[p * N + i];
                right[k] += e2e_number(row, "accuracy");
                tokens[k] += e2e_number(row, "n_tokens");
            }
        CHECK_EQ(sums->items[0].number, N);
        as_training += sums->items[1].number == right[0] && sums->items[3].number == tokens[0];
        as_validation += sums->items[1].number == right[1] && sums->items[3].number == tokens[1];
    }
    CHECK_MSG(as_training < PROMPTS, "the pass answers %d of %d prompts as step 1 does",
              as_training, PROMPTS);
    CHECK_MSG(as_validation < PROMPTS, "the pass answers %d of %d prompts as validation does",
              as_validation, PROMPTS);
    ares_arena_fini(&arena);
}

/* ---------------------------------------------------------------- how answers are sampled */
/* Five ways to ask for the likeliest token, each for validation only. */
TEST(validation_is_sampled_as_its_own_options_say)
{
    static const char *const ways[] = { "do_sample: false", "temperature: 0", "top_k: 1",
                                        "top_p: 0.000001", "do_sample: false, temperature: 2" };
    char words[120], run[16];
    REQUIRE(runs("sampled", "", ""));
    for (int i = 0; i < ARES_COUNT(ways); i++) {
        snprintf(run, sizeof run, "way%d", i);
        snprintf(words, sizeof words, "'worker.rollout.val_override_config={n: 2, %s}'", ways[i]);
        REQUIRE(runs(run, "", words));
        ares_arena arena = { 0 };
        int64_t n;
        const ares_json **lines = e2e_rows(&arena, run, "validation/step_000000.jsonl", &n);
        int same = 0;
        for (int64_t k = 0; k + 1 < n; k += 2)
            same += ares_view_eq(ares_json_get(lines[k], "response")->text,
                                 ares_json_get(lines[k + 1], "response")->text);
        CHECK_MSG(same == 5, "%s: both answers are the same for %d of 5 prompts", ways[i], same);
        ares_arena_fini(&arena);
        CHECK_EQ(test_shell(NULL, "cmp '%s' '%s/validation/step_000000.jsonl'",
                            test_file("way0/validation/step_000000.jsonl"), test_file(run)),
                 0);
        CHECK_EQ(test_shell(NULL, "diff -r '%s' '%s/rollouts'", test_file("sampled/rollouts"),
                            test_file(run)),
                 0);
    }
}
