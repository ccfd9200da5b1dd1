/* Rows as other programs write them: what a run makes of each, from the file to the answers. */
#include "e2e.h"
#include "vision_runs.h"

#include <stdio.h>

static const char tools[] = "{%- if tools %}TOOLS:{% for t in tools %} {{ t.function.name }}"
                            "{% endfor %}{% endif %}{% for m in messages %}{{ m.content }}"
                            "{% endfor %}{% if enable_thinking %}<think>{% endif %}";
#define MUL "[{\"type\":\"function\",\"function\":{\"name\":\"mul\",\"parameters\":{}}}]"

/* One step on the rows. */
static int run_rows(ares_str *out, const char *rows, const char *words)
{
    const char *config = e2e_train_words("run");
    CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("run")), 0);
    return e2e_program(out,
                       "--config '%s' 'data.train_files=[%s]' trainer.max_steps=1 "
                       "data.rollout_batch_size=1 worker.actor.global_batch_size=1 %s",
                       config, e2e_write("rows.jsonl", rows), words);
}

static void check_run(const char *rows, const char *words)
{
    ares_str out = { 0 };
    int rc = run_rows(&out, rows, words);
    CHECK_MSG(rc == 0, "%s: exit code %d\n%s", words, rc, out.data ? out.data : "");
    ares_str_fini(&out);
}

static void check_refused(const char *rows, const char *words, const char *message)
{
    ares_str out = { 0 };
    int rc = run_rows(&out, rows, words);
    CHECK_MSG(rc == 1, "%s: exit code %d", words, rc);
    CHECK_CONTAINS(out.data, message);
    ares_str_fini(&out);
}

static void check_answers(const char *key, const char *value)
{
    ares_str values = { 0 };
    e2e_values("run/rollouts/step_000001.jsonl", key, &values);
    CHECK_CONTAINS(values.data, value);
    ares_str_fini(&values);
}

TEST(rows_of_verl_run_as_they_are)
{
    static const char rows[] =
        "{\"data_source\":\"openai/gsm8k\",\"prompt\":[{\"role\":\"user\",\"content\":\"2 + 8?\"}],"
        "\"ability\":\"math\",\"reward_model\":{\"ground_truth\":\"10\",\"style\":\"rule\"},"
        "\"extra_info\":{\"answer\":\"It is #### 10\",\"index\":0}}\n";
#define AUTO " 'worker.reward.rewards=[{name: auto}]'"
    check_run(rows, AUTO);
    check_answers("ground_truth", " 10 10");
    check_run(rows, "data.answer_key=extra_info.answer" AUTO);
    check_answers("ground_truth", " It is #### 10");
    check_refused(rows, "data.answer_key=reward_model" AUTO,
                  "is a list or an object, and this verifier compares a text");
}

TEST(what_a_row_brings_for_the_template_reaches_the_model)
{
    static const char *const rows[] = {
        "{\"prompt\":\"6 x 7?\",\"answer\":\"42\",\"tools\":" MUL ",\"enable_thinking\":true}\n",
        "{\"prompt\":\"6 x 7?\",\"answer\":\"42\",\"tools\":\"[{\\\"function\\\":{\\\"name\\\":"
        "\\\"mul\\\"}}]\",\"chat_template_kwargs\":{\"enable_thinking\":true}}\n",
    };
    const char *template = e2e_write("tools.jinja", tools);
    ares_str out = { 0 };
    char words[600], more[700];
    snprintf(words, sizeof words, "'data.override_chat_template=%s'", template);
    for (int i = 0; i < 2; i++) {
        check_run(rows[i], words);
        check_answers("prompt", " TOOLS: mul6 x 7?<think>");
    }
    snprintf(more, sizeof more, "%s data.chat_template_kwargs.enable_thinking=true", words);
    check_run("{\"prompt\":\"6 x 7?\",\"answer\":\"42\"}\n", more);
    check_answers("prompt", " 6 x 7?<think>");
    CHECK(run_rows(&out, rows[0], "") == 0);
    CHECK_CONTAINS(out.data, "1 of 1 rows have 'tools', and the chat template does not read them");
    ares_str_fini(&out);
    check_refused("{\"prompt\":\"6 x 7?\",\"answer\":\"42\",\"tools\":\"mul\"}\n", words,
                  "rows.jsonl:1: template: 'tools' is a text and no JSON");
}

TEST(prompt_options_that_reach_no_row_are_told)
{
    static const char rows[] =
        "{\"prompt\":[{\"role\":\"user\",\"content\":\"a\"}],\"answer\":\"b\"}\n"
        "{\"prompt\":\"c\",\"answer\":\"b\"}\n";
    ares_str out = { 0 };
    CHECK(run_rows(&out, rows, "data.system_prompt=Sys") == 0);
    CHECK_CONTAINS(out.data, "data.system_prompt: 1 of 2 rows are lists of messages");
    ares_str_fini(&out);
}

TEST(lengths_beyond_the_models_positions_are_refused_before_anything_loads)
{
    static const struct {
        const char *words, *message; /* NULL: it is good */
    } cases[] = {
        { "data.max_prompt_length=1000 data.max_response_length=1100",
          "data.max_response_length = 1100: data.max_prompt_length and it take 2100 tokens, and "
          "the model has 2048 positions" },
        { "data.max_prompt_length=1000 data.max_response_length=1100 "
          "worker.actor.model.override_config.max_position_embeddings=2100",
          NULL },
        { "data.max_prompt_length=1000 data.max_response_length=1048", NULL },
        { "data.val_files=examples/data/sums/val.jsonl "
          "worker.rollout.val_override_config.max_new_tokens=2001",
          "data.max_prompt_length and max_new_tokens take" },
        { "worker.rollout.max_model_len=4096", "prompt and response take 4096 tokens" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        int rc =
            e2e_program(&out, "--check --config '%s' %s", e2e_train_words("run"), cases[i].words);
        CHECK_MSG(rc == (cases[i].message ? 2 : 0), "%s: exit code %d\n%s", cases[i].words, rc,
                  out.data);
        if (cases[i].message) CHECK_CONTAINS(out.data, cases[i].message);
        ares_str_fini(&out);
    }
}

/* One warning by option, with what would read it; none where something does. */
TEST(options_that_nothing_reads_are_told)
{
    static const struct {
        const char *words, *message; /* NULL: none */
    } cases[] = {
        { "vapor.beta=0.5", "vapor.beta = 0.5: has no effect, because nothing in this run reads it "
                            "(it is for worker.actor.loss_type=vapor)" },
        { "worker.actor.loss_type=sapo worker.actor.clip_ratio_low=0.1",
          "worker.actor.clip_ratio_low = 0.1: has no effect" },
        { "worker.actor.loss_type=cispo worker.actor.clip_ratio_dual=4",
          "it is for worker.actor.loss_type=default|dapo|gspo|gspo_token|dppo_tv|dppo_kl)" },
        { "worker.actor.loss_type=dapo worker.actor.clip_ratio_dual=4", NULL },
        { "algorithm.filter_low=0.2", "it is for algorithm.online_filtering=true)" },
        { "algorithm.kl_target=0.3", "it is for algorithm.kl_type=adaptive)" },
        { "algorithm.hwe_kl_scale=0.1", "it is for worker.actor.dynamic_kl_loss=true)" },
        { "algorithm.kl_lambda_lr=0.1", "it is for worker.actor.dynamic_kl_loss=true)" },
        { "worker.actor.rollout_is_threshold_lower=0.1",
          "it is for worker.actor.rollout_is=token|sequence|geometric|true|True)" },
        { "algorithm.disable_kl=false algorithm.use_kl_in_reward=false algorithm.kl_coef=0.1",
          "it is for algorithm.use_kl_loss=true, algorithm.use_kl_in_reward=true)" },
        { "algorithm.kl_penalty=abs",
          "algorithm.kl_penalty = abs: has no effect, because nothing in this run reads it (it is "
          "for algorithm.disable_kl=false)" },
        { "worker.critic.optim.lr=1e-4", "it is for algorithm.adv_estimator=gae|bi_level_gae)" },
        { "'worker.reward.reward_function_kwargs={a: 1}'",
          "it is for worker.reward.reward_function)" },
        { "'worker.reward.reward_weights=[2.0]'", "it is for worker.reward.reward_funcs)" },
        { "worker.actor.optim.min_lr_ratio=0.1",
          "it is for worker.actor.optim.lr_scheduler_type=linear|cosine)" },
        { "worker.actor.optim.lr_warmup_ratio=0.5 worker.actor.optim.lr_warmup_steps=1",
          "it is for worker.actor.optim.lr_warmup_steps=null)" },
        { "trainer.max_try_make_batch=3", "it is for algorithm." },
        { "trainer.max_try_make_batch=3 algorithm.online_filtering=true "
          "algorithm.filter_key=overall",
          NULL },
        { "worker.reward.reward_function_name=f", "it is for worker.reward.reward_function)" },
        { "worker.reward.python=/usr/bin/python3", "it is for a reward in Python)" },
        { "trainer.rollout_log=text trainer.rollout_log_tokens=5",
          "it is for trainer.rollout_log=tokens)" },
        { "trainer.rollout_log=none trainer.rollout_log_freq=5",
          "it is for trainer.rollout_log=text|tokens)" },
        { "trainer.rollout_log_tokens=5 trainer.rollout_log_freq=5", NULL },
        { "env.max_turns=3", "env.max_turns = 3: has no effect" },
        { "env.train.groups=3", "it is for env.train.tags)" },
        { "env.mask_template_tokens=false", "it is for env.train.tags)" },
        { "curriculum.step_unit=rollout", "it is for curriculum.weights, curriculum.reward_caps)" },
        { "'curriculum.weights=[1.0]' curriculum.step_unit=rollout", NULL },
        { "curriculum.recycle_surplus=true", "it is for curriculum.over_sampling_batch_size)" },
        { "curriculum.mask_offpolicy_in_partial_rollout=true",
          "it is for curriculum.partial_rollout=true)" },
        { "algorithm.use_kl_in_reward=false algorithm.kl_coef=0.0", NULL },
        { "algorithm.disable_kl=false algorithm.use_kl_loss=true algorithm.kl_coef=0.1 "
          "algorithm.kl_penalty=mse",
          NULL },
        { "worker.actor.optim.min_lr_ratio=0.1 worker.actor.optim.lr_scheduler_type=cosine", NULL },
        { "algorithm.adv_estimator=gae worker.critic.optim.lr=1e-4", NULL },
        { "algorithm.norm_adv_by_std_in_grpo=false", NULL },
        { "algorithm.filter_low=0.01 algorithm.kl_target=0.10", NULL }, /* the defaults */
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        int rc =
            e2e_program(&out, "--check --config '%s' %s", e2e_train_words("run"), cases[i].words);
        CHECK_MSG(rc == 0, "%s: exit code %d\n%s", cases[i].words, rc, out.data);
        if (cases[i].message) CHECK_CONTAINS(out.data, cases[i].message);
        else CHECK_MSG(!strstr(out.data, "no effect"), "%s\n%s", cases[i].words, out.data);
        ares_str_fini(&out);
    }
}

/* What stands before the last message of a stored answer. */
TEST(pairs_answer_the_prompt_of_their_row)
{
#define PAIR(prompt, before)                                                                   \
    "{" prompt "\"answer\":\"a\",\"chosen\":[" before                                          \
    "{\"role\":\"assistant\",\"content\":\"<RESPONSE>yes</RESPONSE>\"}],\"rejected\":[" before \
    "{\"role\":\"assistant\",\"content\":\"<RESPONSE>no</RESPONSE>\"}]}\n"
#define USER "{\"role\":\"user\",\"content\":\"Name a nut.\"},"
    static const char words[] = "algorithm.adv_estimator=vapor worker.actor.loss_type=vapor";
    static const char *const good[] = {
        PAIR("\"prompt\":\"Name a nut.\",", USER),
        PAIR("\"prompt\":\"Name a nut.\",", ""),
        PAIR("", USER),
        PAIR("\"prompt\":[{\"role\":\"user\",\"content\":\"Name a nut.\"}],", USER),
    };
    for (int i = 0; i < ARES_COUNT(good); i++) {
        ares_str out = { 0 };
        int rc = run_rows(&out, good[i], words);
        CHECK_MSG(rc == 0, "%s: exit code %d\n%s", good[i], rc, out.data ? out.data : "");
        CHECK_CONTAINS(out.data, "vapor: 1 of 1 rows have a pair of answers");
        ares_str_fini(&out);
    }
    check_refused(PAIR("\"prompt\":\"Name a fruit.\",", USER), words,
                  "rows.jsonl:1: 'chosen' is a conversation of 2 messages, and what stands before "
                  "its last one is not 'prompt': message 0 differs");
    check_refused(PAIR("\"prompt\":\"Name a nut.\",",
                       "{\"role\":\"system\",\"content\":\"In French.\"}," USER),
                  words, "message 0 differs");
    check_refused(PAIR("\"prompt\":[{\"role\":\"user\",\"content\":\"Name a nut.\"},{\"role\":"
                       "\"user\",\"content\":\"Now.\"}],",
                       USER),
                  words, "message 1 differs");
}

/* ------------------------------------------------------------------ --check */
static const char chat_rows[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
    "\"b\"}]}\n";

/* What a check and a run say of the same words: the same fault, or nothing. */
static void check_as_run(const char *verb, const char *words, const char *message)
{
    static const char *const ways[] = { "trainer.max_steps=1", "--check" };
    bool sft = strcmp(verb, "sft") == 0;
    int code = 0;
    const char *config = sft ? e2e_sft_words("run") : e2e_train_words("run");
    for (int i = 0; i < ARES_COUNT(ways); i++) {
        ares_str out = { 0 };
        int rc = e2e_program(&out, "%s --config '%s' %s %s", verb, config, words, ways[i]);
        CHECK_MSG(i ? rc == code : (rc != 0) == (message != NULL), "%s %s %s: exit code %d\n%s",
                  verb, ways[i], words, rc, out.data);
        code = rc;
        if (message) CHECK_CONTAINS(out.data, message);
        ares_str_fini(&out);
        CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("run")), 0);
    }
}

TEST(a_check_reads_the_first_rows_as_the_run_does)
{
    static const struct {
        const char *verb, *rows, *words, *message; /* NULL: they are good */
    } cases[] = {
        { "sft", chat_rows, "sft.batch_size=1", NULL },
        { "sft", "{\"prompt\":\"1\",\"answer\":\"2\"}\n", "",
          "rows.jsonl:1: row has neither 'messages' nor 'prompt' and 'response'" },
        { "sft", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n", "",
          "rows.jsonl:1: no message of the assistant" },
        { "sft", "{\"prompt\":\"1\",\"response\":\"12345678\"}\n",
          "sft.max_length=3 sft.truncation=error", "rows.jsonl:1: row of" },
        { "train", "{\"prompt\":\"1\",\"answer\":\"2\",\"images\":[\"a.png\"]}\n", "",
          "rows.jsonl:1: 'images' holds images or videos, and the model reads text alone" },
        { "train", "{\"prompt\":\"12345678\",\"answer\":\"2\"}\n",
          "data.max_prompt_length=3 data.filter_overlong_prompts=false",
          "rows.jsonl:1: prompt of" },
        { "train", "{\"prompt\":[{\"role\":\"user\",\"content\":\"a\"}],\"answer\":\"b\"}\n",
          "data.apply_chat_template=false", "rows.jsonl:1: a list of messages needs a chat" },
        { "train", "{\"prompt\":\"a\",\"answer\":\"b\",\"chosen\":\"c\",\"rejected\":\"c\"}\n",
          "algorithm.name=vapor algorithm.adv_estimator=vapor",
          "rows.jsonl:1: 'chosen' and 'rejected' are the same text" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char words[700];
        snprintf(words, sizeof words, "data.train_files='%s' %s %s",
                 e2e_write("rows.jsonl", cases[i].rows), cases[i].words,
                 strcmp(cases[i].verb, "sft") ? "data.rollout_batch_size=1 "
                                                "worker.actor.global_batch_size=1"
                                              : "");
        check_as_run(cases[i].verb, words, cases[i].message);
    }
}

/* What the first rows alone cannot tell, or this machine does not have, is no fault. */
TEST(a_check_warns_where_it_cannot_know)
{
    static const struct {
        const char *verb, *words, *message;
    } cases[] = {
        { "sft", "worker.actor.model.model_path=none", "no such directory; rows are checked" },
        { "train", "worker.actor.model.model_path=none", "no such directory; rows are checked" },
        { "sft", "data.train_files=none.jsonl", "no such file; none of its rows was checked" },
        { "sft", "sft.max_length=3 sft.truncation=drop", "these are its first rows alone" },
        { "train", "data.max_prompt_length=1", "these are its first rows alone" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        bool sft = strcmp(cases[i].verb, "sft") == 0;
        int rc = e2e_program(&out, "%s --check --config '%s' %s", cases[i].verb,
                             sft ? e2e_sft_words("run") : e2e_train_words("run"), cases[i].words);
        CHECK_MSG(rc == 0, "%s: exit code %d\n%s", cases[i].words, rc, out.data);
        CHECK_CONTAINS(out.data, cases[i].message);
        ares_str_fini(&out);
    }
}

TEST(a_check_looks_at_the_checkpoint_that_is_named)
{
    const char *first = test_file("first"), *other = test_file("other");
    char words[700];
    CHECK_EQ(e2e_program(NULL,
                         "sft --config '%s' trainer.run_dir='%s' trainer.max_steps=1 "
                         "trainer.save_freq=1",
                         e2e_sft_words("run"), first),
             0);
    CHECK_EQ(test_shell(NULL,
                        "'%s' init --arch qwen2 --hidden 16 --layers 1 --heads 2 --kv-heads 1 "
                        "--intermediate 16 --out '%s'",
                        test_program(), other),
             0);
    check_as_run("sft", "trainer.load_checkpoint_path=nowhere", "'nowhere': no such folder");
    check_as_run("train", "trainer.load_checkpoint_path=nowhere", "'nowhere': no such folder");
    snprintf(words, sizeof words, "trainer.load_checkpoint_path='%s'", e2e_model());
    check_as_run("sft", words, "neither a checkpoint (no state.json) nor a run with one");
    snprintf(words, sizeof words,
             "trainer.load_checkpoint_path='%s' worker.actor.model.model_path='%s'", first, other);
    check_as_run("sft", words, "the state is of another model");
    snprintf(words, sizeof words, "trainer.load_checkpoint_path='%s'", first);
    check_as_run("sft", words, NULL);
    CHECK_EQ(test_shell(NULL, "rm '%s'/checkpoints/*/optimizer.safetensors", first), 0);
    check_as_run("sft", words, "a model without optimizer states");
}

/* A conversation's last answer may be the ground truth, and is never the prompt. */
TEST(conversations_of_sharegpt_are_prompts)
{
    static const char rows[] =
        "{\"conversations\":[{\"from\":\"human\",\"value\":\"2 + 8?\"},{\"from\":\"gpt\","
        "\"value\":\"10\"}],\"system\":\"Sys\"}\n";
    ares_str out = { 0 };
    CHECK_EQ(run_rows(&out, rows,
                      "data.prompt_key=conversations "
                      "'data.answer_key=conversations[-1].value'"),
             0);
    CHECK_CONTAINS(out.data, "1 conversations end with an answer, which is not part of the prompt");
    check_answers("ground_truth", " 10 10");
    check_answers("prompt", "Sys");
    ares_str_clear(&out);
    CHECK_EQ(run_rows(&out, "{\"prompt\":\"1\",\"answer\":\"2\",\"system\":\"Sys\"}\n", ""), 0);
    CHECK_CONTAINS(out.data, "1 of 1 rows have 'system', and the chat template does not read them");
    ares_str_fini(&out);
    check_refused("{\"prompt\":\"1\",\"answer\":\"2\",\"conversations\":[]}\n",
                  "data.prompt_key=conversations", "'conversations' is an empty list of messages");
}

TEST(rows_of_sft_that_say_what_is_learnt_twice_are_told)
{
#define TURN                                                                                    \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":" \
    "\"b\"}],"
    static const struct {
        const char *row, *message;
        bool warns;
    } cases[] = {
        { TURN "\"prompt\":\"c\",\"response\":\"d\"}\n",
          "1 of 1 rows have 'messages' as well as 'prompt' and 'response'", true },
        { TURN "\"prompt\":\"a\"}\n", "1 of 1 rows have 'prompt' beside 'messages', which is not",
          false },
    };
#undef TURN
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        CHECK_EQ(e2e_program(&out, "sft --check --config '%s' data.train_files='%s'",
                             e2e_sft_words("run"), e2e_write("rows.jsonl", cases[i].row)),
                 0);
        CHECK_CONTAINS(out.data, cases[i].message);
        CHECK((strstr(out.data, "warning") != NULL) == cases[i].warns);
        ares_str_fini(&out);
    }
}

TEST(stored_answers_may_be_of_sharegpt)
{
    ares_str out = { 0 };
    CHECK_EQ(run_rows(&out,
                      "{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"}],\"answer\":\"b\","
                      "\"chosen\":{\"from\":\"gpt\",\"value\":\"c\"},\"rejected\":[{\"from\":"
                      "\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"d\"}]}\n",
                      "algorithm.name=vapor algorithm.adv_estimator=vapor "
                      "data.prompt_key=conversations vapor.dpo_coef=0.1"),
             0);
    CHECK_CONTAINS(out.data, "vapor: 1 of 1 rows have a pair of answers");
    ares_str_fini(&out);
}

TEST(lines_of_verbs_may_be_of_sharegpt)
{
    static const char line[] = "{\"messages\":[{\"from\":\"human\",\"value\":\"Hi\"}],\"system\":"
                               "\"Sys\",\"add_generation_prompt\":true}\n";
    ares_str out = { 0 };
    const char *path = e2e_write("line.jsonl", line);
    CHECK_EQ(e2e_program(&out, "render --model '%s' --input '%s'", e2e_model(), path), 0);
    CHECK_CONTAINS(out.data, "system\\nSys");
    CHECK_CONTAINS(out.data, "user\\nHi");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "generate --model '%s' --input '%s'", e2e_model(),
                         e2e_write("line.jsonl", "{\"messages\":[{\"from\":\"alien\",\"value\":"
                                                 "\"Hi\"}]}\n")),
             1);
    CHECK_CONTAINS(out.data, "'messages'[0]: from = 'alien' is no role");
    ares_str_fini(&out);
}

/* What is typed is what helps: without rows no frequency does. */
TEST(a_validation_without_rows_names_the_files_that_it_lacks)
{
    for (int sft = 0; sft < 2; sft++) {
        ares_str out = { 0 };
        CHECK_EQ(
            e2e_program(&out, "%s --check --config '%s' trainer.val_only=true data.val_files=[]",
                        sft ? "sft" : "eval", sft ? e2e_sft_words("run") : e2e_train_words("run")),
            2);
        CHECK_CONTAINS(out.data, "data.val_files");
        CHECK_CONTAINS(out.data, "validation is asked for and has no rows; name a JSONL file");
        CHECK(!strstr(out.data, "val_freq"));
        ares_str_clear(&out);
        CHECK_EQ(e2e_program(&out,
                             "%s --check --config '%s' trainer.max_steps=2 "
                             "trainer.total_training_steps=null",
                             sft ? "sft" : "train",
                             sft ? e2e_sft_words("run") : e2e_train_words("run")),
                 0);
        ares_str_fini(&out);
    }
}

/* ------------------------------------------------------------------ facts of the model */
TEST(words_of_a_generation_config_that_are_not_followed_are_told)
{
    ares_str out = { 0 };
    char words[600];
    snprintf(words, sizeof words, "%s/generation_config.json", e2e_model());
    static const char file[] =
        "{\"temperature\": 0.7, \"top_p\": 1.0, \"top_k\": 20, \"repetition_penalty\": 1.05, "
        "\"suppress_tokens\": [], \"bad_words_ids\": [[5]], \"min_p\": null}\n";
    CHECK_OK(ares_file_write(words, file, sizeof file - 1));
    CHECK(run_rows(&out, "{\"prompt\":\"1\",\"answer\":\"2\"}\n",
                   "worker.rollout.temperature=0.9") == 0);
    CHECK_CONTAINS(out.data,
                   "generation_config.json: not followed: temperature = 0.7 "
                   "(worker.rollout.temperature = 0.9), top_k = 20 (worker.rollout.top_k = -1), "
                   "repetition_penalty = 1.05 (nothing here does that), bad_words_ids = [[5]] "
                   "(nothing here does that)\n");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out,
                         "generate --model '%s' --prompt 1 --max-new-tokens 1 "
                         "--temperature 0.7 --top-k 20",
                         e2e_model()),
             0);
    CHECK_CONTAINS(out.data, "not followed: repetition_penalty = 1.05 (nothing");
    ares_str_fini(&out);
}

TEST(a_type_of_weights_that_the_files_do_not_have_is_told)
{
    ares_str out = { 0 };
    CHECK_EQ(test_shell(NULL,
                        "sed -i 's/\"torch_dtype\": *\"[a-z0-9]*\"/\"torch_dtype\": \"float16\"/' "
                        "'%s/config.json'",
                        e2e_model()),
             0);
    CHECK_EQ(e2e_program(&out, "generate --model '%s' --prompt 1 --max-new-tokens 1", e2e_model()),
             0);
    CHECK_CONTAINS(out.data, "config.json says float16, and the first matrix, ");
    ares_str_fini(&out);
}

/* ------------------------------------------------------------------ rows with pictures */
TEST(a_picture_under_a_key_that_is_not_read_is_told_or_refused)
{
    static const struct {
        const char *before, *after, *message; /* the path of the picture between them */
        bool refused;
    } cases[] = {
        { "\"image\":\"", "\"",
          "rows.jsonl:1: row has 'image' and nothing under 'images', where it", true },
        { "\"images\":[],\"image\":\"", "\"", "set data.image_key=image, or rename it", true },
        { "\"images\":[\"", "\"],\"image\":\"x.png\"",
          "1 of 1 rows have 'image', which is not read: images are read from 'images'", false },
    };
    const char *picture = vision_noise("a.png", 24, 24, 1);
    for (int sft = 0; sft < 2; sft++)
        for (int i = 0; i < ARES_COUNT(cases); i++) {
            char row[1000];
            ares_str out = { 0 };
            (void)snprintf(row, sizeof row,
                           "{\"prompt\":\"<image>a\",\"answer\":\"b\",\"response\":\"b\",%s%s%s}\n",
                           cases[i].before, picture, cases[i].after);
            int rc = e2e_program(
                &out,
                "%s --check --config '%s' data.train_files='%s' "
                "worker.actor.model.model_path='%s' data.max_prompt_length=200 %s",
                sft ? "sft" : "train", sft ? e2e_sft_words("run") : e2e_train_words("run"),
                e2e_write("rows.jsonl", row), vision_model(), sft ? "sft.batch_size=1" : "");
            CHECK_MSG((rc != 0) == cases[i].refused, "%s: exit code %d\n%s", row, rc, out.data);
            CHECK_CONTAINS(out.data, cases[i].message);
            ares_str_fini(&out);
        }
}
