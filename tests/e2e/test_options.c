/*
 * A run with an option does what base.yaml says of it. It is compared with a run without the option
 * or with another value.
 */
#include "e2e.h"

#include "ares/io.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int runs(const char *run, int steps, const char *options)
{
    return e2e_program(NULL, "--config '%s' trainer.max_steps=%d %s", e2e_train_words(run), steps,
                       options);
}

/* The values of a key in the rollouts of step 1. */
static const char *rollout_values(const char *run, const char *key, ares_str *out)
{
    char file[64];
    snprintf(file, sizeof file, "%s/rollouts/step_000001.jsonl", run);
    e2e_values(file, key, out);
    return out->data;
}

static void check_differ(const char *a, const char *b)
{
    CHECK_MSG(strcmp(a, b) != 0, "both are '%s'", a);
}

/* ------------------------------------------------------------------ data */

TEST(data_seed_alone_draws_the_order_of_rows)
{
    ares_str rows = { 0 }, other = { 0 }, answers = { 0 }, others = { 0 };
    CHECK_EQ(runs("first", 1, ""), 0);
    CHECK_EQ(runs("sampled", 1, "worker.rollout.seed=7"), 0);
    CHECK_EQ(runs("ordered", 1, "data.seed=7"), 0);
    rollout_values("first", "row", &rows);
    rollout_values("first", "response", &answers);
    CHECK_STR(rollout_values("sampled", "row", &other), rows.data);
    check_differ(rollout_values("sampled", "response", &others), answers.data);
    check_differ(rollout_values("ordered", "row", &other), rows.data);
    CHECK_EQ(runs("lying", 1, "data.shuffle=false"), 0);
    CHECK_STR(rollout_values("lying", "row", &other), " 0 0 0 0 1 1 1 1 2 2 2 2 3 3 3 3");
    ares_str_fini(&rows), ares_str_fini(&other), ares_str_fini(&answers), ares_str_fini(&others);
}

TEST(data_seed_alone_draws_the_order_of_supervised_rows)
{
    static const char *const names[] = { "first", "sampled", "ordered" };
    static const char *const more[] = { "", "worker.rollout.seed=7", "data.seed=7" };
    double loss[3];
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(e2e_program(NULL, "sft --config '%s' trainer.max_steps=1 %s",
                             e2e_sft_words(names[i]), more[i]),
                 0);
        loss[i] = e2e_metric(names[i], 1, "train/loss");
    }
    CHECK_NEAR(loss[1], loss[0], 0);
    CHECK_MSG(fabs(loss[2] - loss[0]) > 1e-6, "the loss is %g with both orders", loss[0]);
}

TEST(files_are_read_in_turn_and_those_of_a_folder_by_name)
{
    static const char names[] = "zebhagdcf"; /* in the order they are written; z lies outside */
    ares_str out = { 0 };
    CHECK_OK(ares_dir_make(test_file("rows")));
    for (const char *name = names; *name; name++) {
        char file[32], row[64];
        snprintf(file, sizeof file, "%s%c.jsonl", *name == 'z' ? "" : "rows/", *name);
        snprintf(row, sizeof row, "{\"prompt\":\"1\",\"answer\":\"%c\"}\n", *name);
        e2e_write(file, row);
    }
    char words[500];
    snprintf(words, sizeof words,
             "'data.train_files=[%s, %s]' data.shuffle=false data.rollout_batch_size=9 "
             "worker.actor.global_batch_size=9 worker.rollout.n=1 "
             "algorithm.adv_estimator=reinforce_plus_plus",
             test_file("z.jsonl"), test_file("rows"));
    CHECK_EQ(runs("run", 1, words), 0);
    CHECK_STR(rollout_values("run", "ground_truth", &out), " z a b c d e f g h");
    ares_str_fini(&out);
}

/* A row with 'ask' and 'key' in place of 'prompt' and 'answer'. */
static const char *asked(void)
{
    return e2e_write("asked.jsonl", "{\"ask\":\" 1+1? \",\"key\":\"2\"}\n");
}

#define ASKED                                                                                  \
    "data.train_files='%s' data.prompt_key=ask data.answer_key=key data.rollout_batch_size=1 " \
    "worker.actor.global_batch_size=1 worker.rollout.n=2 "

TEST(a_prompt_is_made_as_the_options_of_data_say)
{
    char words[900];
    ares_str out = { 0 };
    const char *rows = asked(), *format = e2e_write("format.jinja", "Q: {{ content | trim }}!"),
               *chat = e2e_write("chat.jinja", "{{ messages[0].role }}={{ messages[-1].content }}");
    snprintf(words, sizeof words, ASKED "data.format_prompt='%s' 'data.system_prompt=Be brief.'",
             rows, format);
    CHECK_EQ(runs("system", 1, words), 0);
    rollout_values("system", "prompt", &out);
    CHECK_CONTAINS(out.data, "system\nBe brief.<|im_end|>");
    CHECK_CONTAINS(out.data, "user\nQ: 1+1?!<|im_end|>");
    CHECK_STR(rollout_values("system", "ground_truth", &out), " 2 2");
    snprintf(words, sizeof words, ASKED "data.override_chat_template='%s'", rows, chat);
    CHECK_EQ(runs("chat", 1, words), 0);
    CHECK_STR(rollout_values("chat", "prompt", &out), " user= 1+1?  user= 1+1? ");
    snprintf(words, sizeof words, ASKED "data.apply_chat_template=false", rows);
    CHECK_EQ(runs("plain", 1, words), 0);
    CHECK_STR(rollout_values("plain", "prompt", &out), "  1+1?   1+1? ");
    ares_str_fini(&out);
}

TEST(prompts_that_are_too_long_are_dropped_or_an_error)
{
    char words[600];
    ares_str out = { 0 };
    const char *rows =
        e2e_write("rows.jsonl", "{\"prompt\":\"1\",\"answer\":\"a\"}\n"
                                "{\"prompt\":\"123456789 123456789\",\"answer\":\"b\"}\n"
                                "{\"prompt\":\"3\",\"answer\":\"c\"}\n");
    snprintf(words, sizeof words,
             "data.train_files='%s' data.shuffle=false data.apply_chat_template=false "
             "data.max_prompt_length=18 data.rollout_batch_size=2 worker.actor.global_batch_size=2 "
             "worker.rollout.n=2 data.filter_overlong_prompts=",
             rows);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=1 %strue", e2e_train_words("run"),
                         words),
             0);
    CHECK_CONTAINS(out.data, "1 of 3 prompts dropped: longer than data.max_prompt_length = 18");
    CHECK_STR(rollout_values("run", "ground_truth", &out), " a a c c");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=1 %sfalse",
                         e2e_train_words("error"), words),
             1);
    CHECK_CONTAINS(out.data,
                   "rows.jsonl:2: prompt of 19 tokens exceeds data.max_prompt_length = 18");
    ares_str_fini(&out);
}

TEST(the_batch_and_its_answers_have_the_sizes_asked_for)
{
    ares_str out = { 0 };
    CHECK_EQ(runs("run", 1,
                  "data.rollout_batch_size=2 worker.actor.global_batch_size=2 worker.rollout.n=3 "
                  "data.max_response_length=5 worker.rollout.ignore_eos=true data.shuffle=false"),
             0);
    CHECK_STR(rollout_values("run", "row", &out), " 0 0 0 1 1 1");
    CHECK_STR(rollout_values("run", "sample", &out), " 0 1 2 0 1 2");
    CHECK_STR(rollout_values("run", "n_tokens", &out), " 5 5 5 5 5 5");
    ares_str_fini(&out);
}

/* More groups than the step's arrays begin with. */
TEST(a_batch_of_many_groups_has_each_prompt_once_with_its_own_answers)
{
    ares_str rows = { 0 }, want = { 0 };
    CHECK_EQ(runs("run", 1,
                  "data.rollout_batch_size=200 worker.actor.global_batch_size=200 "
                  "worker.rollout.n=2 data.max_response_length=2 data.shuffle=false"),
             0);
    for (int i = 0; i < 400; i++) ares_str_addf(&want, " %d", i / 2);
    CHECK_STR(rollout_values("run", "row", &rows), want.data);
    ares_str_fini(&rows), ares_str_fini(&want);
}

/* ------------------------------------------------------------------ validation */

/* The values of a key in the validation before the first step. */
static const char *validation_values(const char *run, const char *key, ares_str *out)
{
    char file[64];
    snprintf(file, sizeof file, "%s/validation/step_000000.jsonl", run);
    e2e_values(file, key, out);
    return out->data;
}

static int validates(const char *run, int steps, const char *options)
{
    char words[900];
    const char *rows = e2e_write("val.jsonl", "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n"
                                              "{\"prompt\":\"2+3=?\",\"answer\":\"5\"}\n");
    snprintf(words, sizeof words, "data.val_files='%s' worker.rollout.ignore_eos=true %s", rows,
             options);
    return runs(run, steps, words);
}

TEST(validation_answers_as_its_own_options_say)
{
    ares_str out = { 0 };
    CHECK_EQ(validates("run", 1, "'worker.rollout.val_override_config={n: 3, max_new_tokens: 5}'"),
             0);
    CHECK_STR(validation_values("run", "row", &out), " 0 0 0 1 1 1");
    CHECK_STR(validation_values("run", "n_tokens", &out), " 5 5 5 5 5 5");
    CHECK_EQ(e2e_metric("run", 0, "val/response_length"), 5);
    CHECK_STR(rollout_values("run", "n_tokens", &out),
              " 12 12 12 12 12 12 12 12 12 12 12 12 12 12 12 12");
    ares_str_fini(&out);
}

TEST(validation_may_answer_longer_than_training)
{
    ares_str out = { 0 };
    const char *longer = "'worker.rollout.val_override_config={max_new_tokens: 20}'";
    CHECK_EQ(validates("run", 0, longer), 0);
    CHECK_STR(validation_values("run", "n_tokens", &out), " 20 20");
    char words[200];
    snprintf(words, sizeof words, "worker.rollout.max_model_len=30 %s", longer);
    CHECK_EQ(validates("short", 0, words), 2);
    ares_str_fini(&out);
}

TEST(validation_is_greedy_in_each_of_the_ways_to_ask_for_it)
{
    static const char *const ways[] = { "temperature: 0", "do_sample: false", "top_k: 1",
                                        "top_p: 1e-6" };
    ares_str sampled = { 0 }, first = { 0 }, out = { 0 };
    CHECK_EQ(validates("sampled", 0, ""), 0);
    validation_values("sampled", "response", &sampled);
    for (int i = 0; i < ARES_COUNT(ways); i++) {
        char run[16], words[100];
        snprintf(run, sizeof run, "run%d", i);
        snprintf(words, sizeof words, "'worker.rollout.val_override_config={%s}'", ways[i]);
        CHECK_EQ(validates(run, 0, words), 0);
        const char *greedy = validation_values(run, "response", i ? &out : &first);
        CHECK_STR(greedy, first.data);
        check_differ(greedy, sampled.data);
    }
    ares_str_fini(&sampled), ares_str_fini(&first), ares_str_fini(&out);
}

TEST(validation_before_the_first_step_can_be_left_out)
{
    CHECK_EQ(validates("with", 1, ""), 0);
    CHECK(e2e_metric("with", 0, "val/response_length") == 12);
    CHECK_EQ(validates("without", 1, "trainer.val_before_train=false"), 0);
    CHECK(isnan(e2e_metric("without", 0, "val/response_length")));
    CHECK(!ares_file_exists(test_file("without/validation/step_000000.jsonl")));
    CHECK_EQ(e2e_metric("without", 1, "val/response_length"), 12); /* the last step's */
}

TEST(validation_at_the_end_can_be_left_out)
{
    CHECK_EQ(validates("run", 1, "trainer.val_freq=0"), 0);
    CHECK_EQ(e2e_metric("run", 0, "val/response_length"), 12);
    CHECK(isnan(e2e_metric("run", 1, "val/response_length")));
    CHECK(!ares_file_exists(test_file("run/validation/step_000001.jsonl")));
}

/* Number i of a list of e2e_values. */
static double number(const char *list, int i)
{
    char *at = (char *)(uintptr_t)list;
    double v = NAN;
    for (; i >= 0; i--) v = strtod(at, &at);
    return v;
}

TEST(results_of_validation_are_split_by_the_values_of_a_key)
{
    char words[600];
    ares_str scores = { 0 };
    const char *rows =
        e2e_write("levels.jsonl", "{\"prompt\":\"1\",\"answer\":\"1\",\"level\":\"low\"}\n"
                                  "{\"prompt\":\"2\",\"answer\":\"2\",\"level\":7}\n");
    const char *more =
        e2e_write("more.jsonl", "{\"prompt\":\"3\",\"answer\":\"3\",\"level\":\"low\"}\n");
    snprintf(words, sizeof words,
             "'data.val_files=[%s, %s]' data.val_group_key=level "
             "'worker.reward.rewards=[{name: random}]' "
             "'worker.rollout.val_override_config={n: 4}'",
             rows, more);
    CHECK_EQ(runs("run", 0, words), 0);
    validation_values("run", "score", &scores);
    double sums[2] = { 0 };
    for (int i = 0; i < 12; i++) sums[i / 4 == 1] += number(scores.data, i);
    CHECK(sums[0] > 0 && sums[0] < 8);
    CHECK_NEAR(e2e_metric("run", 0, "val/level=low/reward_score"), sums[0] / 8, 1e-9);
    CHECK_NEAR(e2e_metric("run", 0, "val/level=7/reward_score"), sums[1] / 4, 1e-9);
    ares_str_fini(&scores);
}

/* ------------------------------------------------------------------ rollout */

static bool is_repeated(const ares_str *s)
{
    return s->len % 2 == 0 && memcmp(s->data, s->data + s->len / 2, s->len / 2) == 0;
}

TEST(training_samples_by_temperature_top_k_and_top_p)
{
    static const char *const ways[] = { "temperature=1e-5", "top_k=1", "top_p=1e-6" };
    ares_str out = { 0 }, first = { 0 };
    char base[300];
    snprintf(base, sizeof base, ASKED "worker.rollout.ignore_eos=true", asked());
    CHECK_EQ(runs("sampled", 1, base), 0);
    rollout_values("sampled", "response", &out);
    CHECK_MSG(!is_repeated(&out), "'%s' are two answers that are the same", out.data);
    for (int i = 0; i < ARES_COUNT(ways); i++) {
        char run[16], words[400];
        snprintf(run, sizeof run, "run%d", i);
        snprintf(words, sizeof words, "%s worker.rollout.%s", base, ways[i]);
        CHECK_EQ(runs(run, 1, words), 0);
        ares_str *answers = i ? &out : &first;
        rollout_values(run, "response", answers);
        CHECK_MSG(is_repeated(answers), "%s: '%s' are two answers that differ", ways[i],
                  answers->data);
        CHECK_STR(answers->data, first.data);
    }
    ares_str_fini(&out), ares_str_fini(&first);
}

/* How many of 16 answers of at most 12 tokens ended; checks that shorter ones did. */
static int ended(const char *run)
{
    ares_str tokens = { 0 }, finished = { 0 };
    int n = 0;
    rollout_values(run, "n_tokens", &tokens);
    const char *at = rollout_values(run, "finished", &finished);
    for (int i = 0; i < 16; i++, at += strcspn(at + 1, " ") + 1) {
        bool stopped = strncmp(at, " true", 5) == 0;
        if (number(tokens.data, i) < 12) CHECK(stopped);
        n += stopped;
    }
    ares_str_fini(&tokens), ares_str_fini(&finished);
    return n;
}

static int ended_with(const char *run, const char *options)
{
    CHECK_EQ(runs(run, 1, options), 0);
    return ended(run);
}

TEST(answers_end_at_ids_and_strings_that_are_asked_for)
{
    ares_str ids = { 0 };
    e2e_model();
    e2e_write("model/generation_config.json",
              "{\"eos_token_id\": [7, 17, 27, 37, 47, 57, 67, 77, 87]}");
    int own = ended_with("own", "");
    CHECK_MSG(own > 0 && own < 16, "%d of 16 answers end in one of the model's ten ids", own);
    CHECK_EQ(ended_with("free", "worker.rollout.ignore_eos=true"), 0);
    ares_str_add_z(&ids, "worker.rollout.ignore_eos=true worker.rollout.stop_token_ids=[0");
    for (int i = 1; i < 256; i++) ares_str_addf(&ids, ",%d", i);
    ares_str_add_z(&ids, "]");
    CHECK_EQ(ended_with("ids", ids.data), 16); /* at every other token of the vocabulary */
    int stopped = ended_with("strings", "worker.rollout.ignore_eos=true "
                                        "'worker.rollout.stop=[\"0\", \"1\", a, e, i, o, u]'");
    CHECK_MSG(stopped > 0 && stopped < 16, "%d of 16 answers end in one of seven letters", stopped);
    ares_str_fini(&ids);
}

TEST(what_cuts_the_work_of_rollout_costs_passes)
{
    static const char *const cuts[] = {
        "max_num_seqs=4", "max_num_seqs=16 worker.rollout.max_num_batched_tokens=16"
    };
    char words[100];
    CHECK_EQ(runs("whole", 1, ""), 0);
    double passes = e2e_metric("whole", 1, "rollout/forward_passes");
    CHECK_EQ(e2e_metric("whole", 1, "rollout/preemptions"), 0);
    for (int i = 0; i < ARES_COUNT(cuts); i++) {
        char run[16];
        snprintf(run, sizeof run, "cut%d", i);
        snprintf(words, sizeof words, "worker.rollout.%s", cuts[i]);
        CHECK_EQ(runs(run, 1, words), 0);
        double more = e2e_metric(run, 1, "rollout/forward_passes");
        CHECK_MSG(more >= 1.25 * passes, "%s: %g passes, %g without it", cuts[i], more, passes);
    }
}

static void allocated(const char *run, const char *options, double *gb)
{
    CHECK_EQ(runs(run, 1, options), 0);
    *gb = e2e_metric(run, 1, "perf/max_memory_allocated_gb");
}

/* The keys and values of a sample take 256 bytes per token with this model. */
TEST(max_model_len_is_what_the_cache_has_room_for_and_holds_prompt_and_answer)
{
    ares_str out = { 0 };
    double shortest, longest, fixed;
    allocated("short", "worker.rollout.max_model_len=60", &shortest);
    allocated("long", "worker.rollout.max_model_len=2048", &longest);
    allocated("fixed", "worker.rollout.max_model_len=2048 worker.rollout.cache_tokens=640", &fixed);
    CHECK_NEAR(longest - shortest, 128 * (2048 - 64) * 256.0 / 1073741824.0, 1e-3);
    CHECK_MSG(fixed < shortest, "%g GB with a cache of 640 tokens, %g with one of 128 samples",
              fixed, shortest);
    CHECK_EQ(
        e2e_program(&out, "--config '%s' worker.rollout.max_model_len=59", e2e_train_words("less")),
        2);
    CHECK_CONTAINS(out.data, "worker.rollout.max_model_len = 59: data.max_prompt_length + "
                             "data.max_response_length = 60 do not fit");
    ares_str_fini(&out);
}

/* ------------------------------------------------------------------ the model */

/* How the model continues three tokens: the ids of its answer, and why it ended. */
static void continued(const char *model, const char *options, ares_str *ids, ares_str *finish)
{
    const char *line = e2e_write("line.jsonl", "{\"input_ids\":[1,2,3]}\n"),
               *file = test_file("answer");
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && '%s' generate --model '%s' --input '%s' --max-new-tokens 20 %s "
                        "2>told > '%s'",
                        test_dir(), test_program(), model, line, options, file),
             0);
    e2e_values("answer", "output_ids", ids);
    e2e_values("answer", "finish_reason", finish);
}

/* The length of the text before the comma after item n. */
static size_t items_end(const char *list, int n)
{
    const char *at = list;
    while (*at && (*at != ',' || --n > 0)) at++;
    return (size_t)(at - list);
}

TEST(ids_of_generation_config_end_an_answer_beside_those_of_config)
{
    ares_str ids = { 0 }, same = { 0 }, finish = { 0 };
    char text[100], words[700];
    const char *model = e2e_model(), *trained = test_file("run/checkpoints/step_000001/model");
    continued(model, "", &ids, &finish);
    CHECK_STR(finish.data, " length");
    size_t three = items_end(ids.data, 3), four = items_end(ids.data, 4);
    int fourth = atoi(ids.data + three + 1);
    CHECK_MSG(strstr(ids.data, ids.data + three) == ids.data + three, "the fourth id is new: %s",
              ids.data);
    snprintf(text, sizeof text, "{\"eos_token_id\": [300, %d]}\n", fourth);
    e2e_write("model/generation_config.json", text);
    ids.data[four] = 0;
    const char *models[] = { model, trained };
    snprintf(words, sizeof words, "worker.actor.optim.lr=0 worker.actor.model.model_path='%s'",
             model);
    CHECK_EQ(runs("run", 1, words), 0);
    for (int i = 0; i < 2; i++) {
        continued(models[i], "", &same, &finish);
        CHECK_STR(finish.data, " stop");
        same.data[same.len - 1] = 0; /* its bracket */
        CHECK_STR(same.data, ids.data);
        continued(models[i], "--ignore-eos", &same, &finish);
        CHECK_STR(finish.data, " length");
    }
    e2e_write("model/generation_config.json", "{}\n");
    snprintf(words, sizeof words,
             "sed -i 's/\"eos_token_id\": 258/\"eos_token_id\": %d/' '%s/config.json'", fourth,
             model);
    CHECK_EQ(test_shell(NULL, "%s", words), 0);
    continued(model, "", &same, &finish);
    CHECK_STR(finish.data, " stop");
    ares_str_fini(&ids), ares_str_fini(&same), ares_str_fini(&finish);
}

/* Its eos_token ends a turn of the chat template, also where the other files name another token. */
TEST(the_tokenizers_end_token_ends_an_answer_and_is_written)
{
    ares_str ids = { 0 }, same = { 0 }, finish = { 0 }, out = { 0 };
    char words[700];
    const char *model = e2e_model(), *trained = test_file("run/checkpoints/step_000001/model");
    continued(model, "", &ids, &finish);
    char *third = strstr(ids.data, ",114,"); /* the letter r */
    REQUIRE(third != NULL);
    third[4] = 0;
    CHECK_EQ(test_shell(NULL,
                        "sed -i 's/\"eos_token\": \"<|im_end|>\"/\"eos_token\": \"r\"/' "
                        "'%s/tokenizer_config.json'",
                        model),
             0);
    snprintf(words, sizeof words, "worker.actor.optim.lr=0 worker.actor.model.model_path='%s'",
             model);
    CHECK_EQ(runs("run", 1, words), 0);
    for (int i = 0; i < 2; i++) { /* of the checkpoint, config.json alone says it, too */
        continued(i ? trained : model, "", &same, &finish);
        CHECK_STR(finish.data, " stop");
        same.data[same.len - 1] = 0; /* its bracket */
        CHECK_STR(same.data, ids.data);
        CHECK_EQ(test_shell(NULL, "rm -f '%s/tokenizer_config.json'", trained), 0);
    }
    test_shell(&out,
               "grep -A3 eos_token_id '%s/config.json' '%s/generation_config.json' | tr -d ' \\n'",
               trained, trained);
    CHECK_CONTAINS(out.data, "/config.json:\"eos_token_id\":[");
    CHECK_CONTAINS(out.data, "generation_config.json:\"eos_token_id\":[");
    const char *one = strstr(out.data, "114,"), *two = one ? strstr(one + 1, "114,") : NULL;
    CHECK(one && two && strstr(one, "258") && strstr(two, "258"));
    ares_str_clear(&out);
    continued(model, "", &same, &finish);
    CHECK_OK(ares_file_read(test_file("told"), &out));
    CHECK_CONTAINS(out.data, "the tokenizer's eos_token (id 114)");
    CHECK_CONTAINS(out.data, "names 258");
    ares_str_fini(&ids), ares_str_fini(&same), ares_str_fini(&finish), ares_str_fini(&out);
}

TEST(a_checkpoint_has_the_tokenizer_that_was_used)
{
    static const char *const paths[] = { "other", "other/tokenizer.json" };
    char words[1500], run[16];
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && mkdir other && cp '%s'/tokenizer*.json other && "
                        "sed -i 's/$/ /' other/tokenizer*.json",
                        test_dir(), e2e_model()),
             0);
    for (int i = 0; i < ARES_COUNT(paths); i++) {
        snprintf(run, sizeof run, "run%d", i);
        snprintf(words, sizeof words,
                 "worker.actor.optim.lr=0 data.apply_chat_template=false "
                 "worker.actor.model.tokenizer_path='%s'",
                 test_file(paths[i]));
        CHECK_EQ(runs(run, 1, words), 0);
        CHECK_EQ(test_shell(NULL,
                            "cd '%s' && M=%s/checkpoints/step_000001/model && "
                            "cmp other/tokenizer.json $M/tokenizer.json && "
                            "cmp model/generation_config.json $M/generation_config.json && "
                            "if [ %d = 0 ]; then cmp other/tokenizer_config.json "
                            "$M/tokenizer_config.json; else ! ls $M/tokenizer_config.json; fi",
                            test_dir(), run, i),
                 0);
    }
}

/* ------------------------------------------------------------------ the actor */

TEST(valid_token_scope_says_which_tokens_an_update_divides_by)
{
    static const char base[] = "worker.rollout.ignore_eos=true worker.actor.global_batch_size=2 "
                               "worker.actor.optim.lr=0 worker.actor.valid_token_scope=";
    char words[300];
    snprintf(words, sizeof words, "%sminibatch", base);
    CHECK_EQ(runs("mini", 1, words), 0);
    snprintf(words, sizeof words, "%srollout", base);
    CHECK_EQ(runs("whole", 1, words), 0);
    double mini = e2e_metric("mini", 1, "actor/grad_norm"),
           whole = e2e_metric("whole", 1, "actor/grad_norm");
    CHECK(mini > 0);
    CHECK_NEAR(whole, mini / 2, 1e-6 * mini); /* each of the two has half of the step's tokens */
}

TEST_MPI(two_ranks_divide_by_the_tokens_of_both)
{
    static const char words[] =
        "trainer.max_steps=1 trainer.threads=1 worker.actor.global_batch_size=2 "
        "worker.actor.optim.lr=0 worker.actor.valid_token_scope=rollout";
    E2E_NEEDS_MPI();
    CHECK_EQ(e2e_program(NULL, "--config '%s' %s", e2e_train_words("one"), words), 0);
    CHECK_EQ(e2e_program(NULL, "--ranks 2 --config '%s' %s", e2e_train_words("two"), words), 0);
    double norm = e2e_metric("one", 1, "actor/grad_norm");
    CHECK(norm > 0);
    CHECK_NEAR(e2e_metric("two", 1, "actor/grad_norm"), norm, 1e-6 * norm);
}

/* Checks the learning rates of an actor (1e-3) and a critic (1e-2) in a run of four steps. */
static void check_rates(const char *run, const char *schedule, const double *shares)
{
    char words[600];
    snprintf(words, sizeof words,
             "algorithm.adv_estimator=gae worker.critic.optim.lr=1e-2 "
             "worker.actor.optim.lr_scheduler_type=%s worker.critic.optim.lr_scheduler_type=%s "
             "worker.actor.optim.min_lr_ratio=0.4 worker.critic.optim.min_lr_ratio=0.4",
             schedule, schedule);
    CHECK_EQ(runs(run, 4, words), 0);
    for (int step = 1; step <= 4; step++) {
        CHECK_NEAR(e2e_metric(run, step, "actor/lr"), 1e-3 * shares[step - 1], 1e-9);
        CHECK_NEAR(e2e_metric(run, step, "critic/lr"), 1e-2 * shares[step - 1], 1e-8);
    }
}

TEST(min_lr_ratio_is_what_the_learning_rate_falls_to)
{
    static const double linear[] = { 1, 0.85, 0.7, 0.55 },
                        cosine[] = { 1, 0.7 + 0.3 * 0.70710678118654752, 0.7,
                                     0.7 - 0.3 * 0.70710678118654752 };
    check_rates("linear", "linear", linear);
    check_rates("cosine", "cosine", cosine);
}

/* Answers with equal rewards have no gradient: only weight decay changes the weights. */
TEST(weight_decay_leaves_norms_and_biases_alone)
{
    static const char first[] = "worker.actor.optim.lr=0.05",
                      second[] = "checkpoints/step_000001/model";
    char words[700], folder[64];
    ares_safetensors *before, *after;
    CHECK_EQ(runs("moved", 1, first), 0); /* biases are 0 and norms 1 before this */
    snprintf(folder, sizeof folder, "moved/%s", second);
    const char *model = test_file(folder);
    snprintf(words, sizeof words,
             "'worker.reward.rewards=[{name: none}]' worker.actor.optim.lr=0.5 "
             "worker.actor.optim.weight_decay=0.5 worker.actor.model.model_path='%s'",
             model);
    CHECK_EQ(runs("decayed", 1, words), 0);
    CHECK_EQ(e2e_metric("decayed", 1, "actor/grad_norm"), 0);
    snprintf(folder, sizeof folder, "decayed/%s", second);
    REQUIRE_OK(ares_safetensors_open(model, &before));
    REQUIRE_OK(ares_safetensors_open(test_file(folder), &after));
    int kinds[2] = { 0 };
    for (int64_t i = 0; i < ares_safetensors_count(before); i++) {
        const ares_tensor_info *x = ares_safetensors_at(before, i),
                               *y = ares_safetensors_find(after, x->name);
        if (!CHECK(y && y->count == x->count)) continue;
        float was = 0, is = 0;
        for (int64_t k = 0; k < x->count && fabsf(was) < 1e-3f; k++) {
            memcpy(&was, (const char *)x->data + k * 4, 4);
            memcpy(&is, (const char *)y->data + k * 4, 4);
        }
        kinds[x->rank > 1]++;
        double factor = x->rank > 1 ? 0.75 : 1;
        CHECK_MSG(was != 0 && fabs((double)is - factor * (double)was) < 1e-6, "%s: %g, and then %g",
                  x->name, (double)was, (double)is);
    }
    CHECK(kinds[0] > 0 && kinds[1] > 0);
    ares_safetensors_close(before);
    ares_safetensors_close(after);
}

TEST(gae_over_turns_says_that_single_answers_have_no_turns)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' trainer.max_steps=1 algorithm.adv_estimator=gae "
                         "algorithm.bi_level_gae=true",
                         e2e_train_words("run")),
             0);
    CHECK_CONTAINS(out.data, "algorithm.bi_level_gae: has no effect: answers of this run are");
    ares_str_fini(&out);
}

/* ------------------------------------------------------------------ what --check finds */

/*
 * What controls, filters and presets would end a run for later, and the words that each message
 * tells to set: with them the configuration is good.
 */
TEST(faults_of_controls_filters_and_presets_are_found_by_a_check_and_their_remedies_work)
{
#define UNJUDGED " 'worker.reward.rewards=[{name: random}]'"
#define JUDGED " 'worker.reward.rewards=[{name: exact}]'"
    static const struct {
        const char *words, *fault, *remedy;
    } cases[] = {
        { "algorithm.aepo=true" UNJUDGED, "name one that does in worker.reward.accuracy",
          "worker.reward.accuracy=random" },
        { "algorithm.aepo=true algorithm.alpha_entropy_min=3" JUDGED,
          "lies above alpha_entropy_max = 2", "algorithm.alpha_entropy_min=0.1" },
        { "algorithm.aepo=true algorithm.alpha_entropy_init_hard=3" JUDGED,
          "lies above alpha_entropy_max = 2; set a value within the bounds",
          "algorithm.alpha_entropy_init_hard=2" },
        { "worker.actor.dynamic_kl_loss=true" JUDGED,
          "disable_kl leaves no KL to weigh; set one of them", "algorithm.disable_kl=false" },
        { "worker.actor.dynamic_kl_loss=true" JUDGED,
          "disable_kl leaves no KL to weigh; set one of them",
          "worker.actor.dynamic_kl_loss=false" },
        { "algorithm.online_filtering=true" UNJUDGED, "worker.reward.accuracy, or set overall",
          "algorithm.filter_key=overall" },
        { "algorithm.filter_groups.enable=true" UNJUDGED, "worker.reward.accuracy, or set score",
          "algorithm.filter_groups.metric=score" },
        { "algorithm.filter_groups.enable=true" UNJUDGED, "worker.reward.accuracy, or set score",
          "worker.reward.accuracy=exact" },
        { "algorithm.early_stop_low_success=0.1 trainer.val_freq=1 data.val_files="
          "examples/data/sums/val.jsonl" UNJUDGED,
          "set worker.reward.accuracy to a reward that judges", "worker.reward.accuracy=exact" },
        { "algorithm.name=dapo curriculum.over_sampling_batch_size=8 "
          "algorithm.on_exhausted=error" JUDGED,
          "says how often prompts are drawn; set null", "algorithm.max_resample=null" },
        { "algorithm.name=dapo curriculum.over_sampling_batch_size=8 "
          "algorithm.max_resample=null" JUDGED,
          "until the batch is full, or the run ends; set error", "algorithm.on_exhausted=error" },
        { "'algorithm.gamma=\"1 if step < 3 else 0.9\"'", "discounts nothing; set 1.0",
          "algorithm.gamma=1.0" },
    };
#undef UNJUDGED
#undef JUDGED
    ares_str out = { 0 };
    const char *config = e2e_train_words("run");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&out);
        int rc = e2e_program(&out, "--check --config '%s' %s", config, cases[i].words);
        CHECK_MSG(rc == 2 && strstr(out.data, cases[i].fault), "%s: %d\n%s", cases[i].words, rc,
                  out.data);
        ares_str_clear(&out);
        rc = e2e_program(&out, "--check --config '%s' %s %s", config, cases[i].words,
                         cases[i].remedy);
        CHECK_MSG(rc == 0, "%s %s: %d\n%s", cases[i].words, cases[i].remedy, rc, out.data);
    }
    /* all at once */
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out,
                         "--check --config '%s' 'worker.reward.rewards=[{name: nubmer}]' "
                         "algorithm.aepo=true algorithm.alpha_entropy_min=3 "
                         "algorithm.online_filtering=true algorithm.filter_low=2",
                         config),
             2);
    CHECK_CONTAINS(out.data, "did you mean 'number'?");
    CHECK_CONTAINS(out.data, "lies above alpha_entropy_max = 2");
    CHECK_CONTAINS(out.data, "no mean lies above it");
    ares_str_fini(&out);
}
