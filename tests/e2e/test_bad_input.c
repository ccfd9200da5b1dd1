/*
 * Bad input gives one message that names the place and the remedy, and exit code 2 (wrong use) or 1
 * (failed run); no crash, no hang.
 */
#include "e2e.h"

#include <stdio.h>

enum { RUN = 1, USE = 2, NOT_FINITE = 3 };

static int lines_of(const ares_str *s)
{
    int n = 0;
    for (size_t i = 0; i < s->len; i++) n += s->data[i] == '\n';
    return n;
}

/*
 * Checks that the usual training run ends with `code` and one line that contains `message`. Before
 * it the shell runs `change` in this test's folder, where M is a new copy of the model; `words` are
 * added to the arguments.
 */
static void refuses(const char *change, const char *words, int code, const char *message)
{
    ares_str out = { 0 };
    const char *config = e2e_train_words("run");
    CHECK_EQ(test_shell(NULL, "cd '%s' && rm -rf run M && cp -r model M && { %s\n}", test_dir(),
                        *change ? change : "true"),
             0);
    int rc = test_shell(&out, "cd '%s' && timeout 60 '%s' --config '%s' %s 2>&1", test_dir(),
                        test_program(), config, words);
    CHECK_MSG(rc == code, "exit code %d instead of %d: %s | %s", rc, code, change, words);
    CHECK_MSG(lines_of(&out) == 1, "%d lines instead of one: %s | %s\n%s", lines_of(&out), change,
              words, out.data);
    CHECK_CONTAINS(out.data ? out.data : "", message);
    ares_str_fini(&out);
}

static void refuses_model(const char *change, const char *message)
{
    refuses(change, "worker.actor.model.model_path=M", RUN, message);
}

TEST(a_model_that_is_none_is_named)
{
    refuses("", "worker.actor.model.model_path=/no/such/model", RUN,
            "/no/such/model: no such directory");
    refuses("", "worker.actor.model.model_path=/etc", RUN, "neither a model (no config.json)");
    refuses_model("rm M/model.safetensors", "no model.safetensors");
    refuses_model("rm M/tokenizer.json", "no tokenizer in it");
    refuses_model("sed -i s/qwen2/gpt9/ M/config.json",
                  "model_type = 'gpt9': this architecture is not built");
    refuses_model("echo '{' > M/config.json", "config.json:2:1: not JSON");
}

TEST(a_damaged_model_file_is_named)
{
    refuses_model("truncate -s 100000 M/model.safetensors", "truncated or damaged");
    refuses_model("truncate -s 5 M/model.safetensors", "model.safetensors");
    refuses_model("printf '\\377\\377\\377\\377\\377\\377\\377\\177' | dd of=M/model.safetensors "
                  "conv=notrunc 2>/dev/null",
                  "does not fit in the file");
    refuses_model("printf X | dd of=M/model.safetensors seek=20 bs=1 conv=notrunc 2>/dev/null",
                  "model.safetensors");
    refuses_model("sed -i 's/\\[0,/[4,/' M/model.safetensors", "model.safetensors");
    refuses_model("rm M/model.safetensors; echo "
                  "'{\"weight_map\":{\"model.norm.weight\":\"model-00001-of-00002.safetensors\"}}' "
                  "> M/model.safetensors.index.json",
                  "model-00001-of-00002.safetensors");
    refuses_model("sed -i 's/\"vocab_size\": 512/\"vocab_size\": 400/' M/config.json",
                  "has shape [512, 32]; config.json asks for [400, 32]");
}

/* A pipe that nobody writes to, a folder and an endless device in the place of each file. */
TEST(what_is_no_file_is_named_and_not_waited_for)
{
    static const char *const files[] = { "config.json", "model.safetensors", "tokenizer.json",
                                         "tokenizer_config.json", "generation_config.json" };
    static const struct {
        const char *make, *told;
    } kinds[] = { { "mkfifo", "not a regular file" }, { "ln -s /dev/zero", "not a regular file" } };
    char change[200], told[200];
    for (int i = 0; i < ARES_COUNT(files); i++)
        for (int k = 0; k < ARES_COUNT(kinds); k++) {
            snprintf(change, sizeof change, "rm -f M/%s && %s M/%s", files[i], kinds[k].make,
                     files[i]);
            refuses_model(change, kinds[k].told);
            snprintf(told, sizeof told, "M/%s", files[i]);
            refuses_model(change, told);
        }
    refuses("rm -f pipe.jsonl && mkfifo pipe.jsonl", "data.train_files=pipe.jsonl", RUN,
            "pipe.jsonl: not a regular file");
    refuses("rm -f pipe.json && mkfifo pipe.json", "data.train_files=pipe.json", RUN,
            "pipe.json': cannot be opened: not a regular file");
    refuses("rm -f pipe.parquet && mkfifo pipe.parquet", "data.train_files=pipe.parquet", RUN,
            "pipe.parquet: not a regular file");
    refuses("", "data.format_prompt=pipe.parquet", RUN, "not a regular file");
}

/* As a shell's <(command), /dev/stdin and a named pipe give it. */
TEST(what_a_command_line_names_as_input_may_be_a_pipe)
{
    ares_str out = { 0 };
    static const char *const forms[] = {
        "score --model '%s' --input <(cat in.jsonl)",
        "score --model '%s' --input /dev/stdin",
        "score --model '%s' --input pipe",
        "score --model '%s' <in.jsonl",
        "generate --model '%s' --temperature 0 --max-new-tokens 2 --input <(cat in.jsonl)",
        "plan --config <(cat run.yaml) worker.actor.model.model_path='%s'"
    };
    e2e_write("in.jsonl", "{\"input_ids\":[5,6,7]}\n");
    CHECK_EQ(test_shell(NULL, "cd '%s' && cp '%s' run.yaml && mkfifo pipe", test_dir(),
                        e2e_train_words("run")),
             0);
    for (int i = 0; i < ARES_COUNT(forms); i++) {
        char words[800];
        snprintf(words, sizeof words, forms[i], e2e_model());
        const char *script = e2e_write("script", words);
        ares_str_clear(&out);
        CHECK_EQ(test_shell(&out,
                            "cd '%s' && { timeout 20 sh -c 'cat in.jsonl >pipe' & cat in.jsonl | "
                            "timeout 20 bash -c \"'%s' $(cat '%s')\"; code=$?; kill $! "
                            "2>/dev/null; exit $code; } 2>&1",
                            test_dir(), test_program(), script),
                 0);
        CHECK_MSG(out.len > 20, "%s: %s", words, out.data ? out.data : "nothing");
    }
    ares_str_fini(&out);
}

TEST(a_number_of_the_model_that_is_out_of_range_is_named)
{
    static const char *const verbs[] = { "plan --config '%s' worker.actor.model.model_path=M",
                                         "score --model M --input in.jsonl # %s" };
    ares_str out = { 0 };
    refuses_model("sed -i 's/\"rms_norm_eps\": [^,]*/\"rms_norm_eps\": -1/' M/config.json",
                  "M/config.json: 'rms_norm_eps' = -1 is out of range; expected 1e-12 to 1");
    e2e_write("in.jsonl", "{\"input_ids\":[5,6,7]}\n");
    for (int i = 0; i < ARES_COUNT(verbs); i++) {
        char words[600];
        snprintf(words, sizeof words, verbs[i], e2e_train_words("run"));
        CHECK_EQ(test_shell(&out, "cd '%s' && '%s' %s 2>&1", test_dir(), test_program(), words),
                 RUN);
        CHECK_CONTAINS(out.data, "M/config.json: 'rms_norm_eps' = -1 is out of range");
    }
    ares_str_fini(&out);
}

/* The last weight of the file is no number: every log-prob is none. */
TEST(weights_that_are_not_finite_fail_score_and_generate)
{
    ares_str out = { 0 };
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && cp -r '%s' M && printf '\\0\\0\\300\\177' | dd bs=1 "
                        "of=M/model.safetensors conv=notrunc seek=$(($(stat -c %%s "
                        "M/model.safetensors) - 4)) 2>/dev/null",
                        test_dir(), e2e_model()),
             0);
    e2e_write("in.jsonl", "{\"input_ids\":[5]}\n{\"input_ids\":[5,6,7]}\n");
    CHECK_EQ(test_shell(&out, "cd '%s' && '%s' score --model M --input in.jsonl 2>&1", test_dir(),
                        test_program()),
             RUN);
    CHECK_CONTAINS(out.data,
                   "{\"log_probs\":[],\"entropies\":[]}\n{\"error\":\"score: log-prob nan "
                   "and entropy nan of token 1 (of 0 to 2); the weights hold NaN or "
                   "infinity\"}\n");
    CHECK_CONTAINS(out.data, "score: in.jsonl: 1 of 2 lines are bad, the first is line 2");
    for (int prompt = 0; prompt < 2; prompt++) {
        ares_str_clear(&out);
        CHECK_EQ(test_shell(&out, "cd '%s' && '%s' generate --model M %s 2>&1", test_dir(),
                            test_program(), prompt ? "--prompt x" : "--input in.jsonl"),
                 NOT_FINITE);
        CHECK_CONTAINS(out.data,
                       "rollout: request 0, sample 0, token 0: log-prob nan, entropy nan; "
                       "the weights hold NaN or infinity");
        CHECK_EQ(lines_of(&out), 1);
    }
    ares_str_fini(&out);
}

TEST(a_tokenizer_that_does_not_fit_or_is_damaged_is_named)
{
    refuses_model("head -c 500 model/tokenizer.json > M/tokenizer.json", "tokenizer.json");
    refuses_model("echo '[]' > M/tokenizer.json", "not a JSON object");
    refuses_model("sed -i 's/: 200,/: 700,/' M/tokenizer.json",
                  "ids up to 700, the embedding 512 rows");
}

TEST(a_template_that_raises_or_does_not_parse_is_named)
{
    refuses("echo \"{{ raise_exception('no system role') }}\" > t.jinja",
            "data.override_chat_template=t.jinja", RUN, "no system role");
    refuses("echo '{{ foo( }}' > t.jinja", "data.override_chat_template=t.jinja", RUN,
            "t.jinja:1:");
    refuses("", "data.override_chat_template=none.jinja", RUN, "none.jinja");
}

TEST(bad_rows_are_named_with_file_and_line)
{
    static const char words[] =
        "data.train_files=rows.jsonl data.rollout_batch_size=1 worker.actor.global_batch_size=1";
    refuses("", "data.train_files=rows.jsonl", RUN, "rows.jsonl: no such file");
    refuses(": > rows.jsonl", words, RUN, "rows.jsonl: no rows");
    refuses("printf '{\"prompt\":\"1\",\"answer\":\"2\"}\\n{\"prompt\":\\n' > rows.jsonl", words,
            RUN, "rows.jsonl:2:11: not JSON");
    refuses("printf '{\"prompt\":\"1\",\"answer\":\"2\"}\\n{\"question\":\"1\"}\\n' > rows.jsonl",
            words, RUN, "rows.jsonl:2: row has no key 'prompt' (keys: question)");
    refuses("printf '{\"prompt\":\"1\",\"solution\":\"2\"}\\n' > rows.jsonl",
            "data.train_files=rows.jsonl data.rollout_batch_size=1 "
            "worker.actor.global_batch_size=1 'worker.reward.rewards=[{name: exact}]'",
            RUN, "rows.jsonl:1: row has no key 'answer' (keys: prompt, solution)");
    refuses("printf '{\"prompt\":\"1\",\"answer\":\"2\"}\\n' > rows.jsonl",
            "data.train_files=rows.jsonl", USE,
            "1 rows are fewer than data.rollout_batch_size = 4");
    refuses("", "data.max_prompt_length=3", RUN,
            "prompts are longer than data.max_prompt_length = 3");
}

/* A text model's row with images or videos is refused, whichever key holds them. */
TEST(rows_of_images_and_videos_are_named_with_file_and_line)
{
    static const struct {
        const char *key, *option;
    } cases[] = { { "images", "" },
                  { "videos", "" },
                  { "pages", "data.image_key=pages" },
                  { "clips", "data.video_key=clips" } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char change[300], words[200], message[100];
        snprintf(change, sizeof change,
                 "printf '{\"prompt\":\"1\",\"answer\":\"2\",\"%s\":[]}\\n"
                 "{\"prompt\":\"1\",\"answer\":\"2\",\"%s\":[\"a.bin\"]}\\n' > rows.jsonl",
                 cases[i].key, cases[i].key);
        snprintf(words, sizeof words,
                 "data.train_files=rows.jsonl data.rollout_batch_size=1 "
                 "worker.actor.global_batch_size=1 %s",
                 cases[i].option);
        snprintf(message, sizeof message, "rows.jsonl:2: '%s' holds images or videos",
                 cases[i].key);
        refuses(change, words, RUN, message);
    }
}

/*
 * Checks that a row that no verifier can judge stops the run when it is read, in training and in
 * validation.
 */
static void refuses_row_by(const char *rewards, const char *row, const char *message)
{
    char change[800], words[600], at[400];
    const char *good = "{\"prompt\":\"1\",\"answer\":\"2\",\"rm_type\":\"number\","
                       "\"instruction_id_list\":[\"punctuation:no_comma\"],\"kwargs\":[{}]}";
    snprintf(change, sizeof change,
             "cat > rows.jsonl <<'END'\n%s\n%s\nEND\ncat > good.jsonl <<'END'\n%s\nEND", good, row,
             good);
    snprintf(at, sizeof at, "rows.jsonl:2: %s", message);
    snprintf(words, sizeof words,
             "%s "
             "data.rollout_batch_size=1 worker.actor.global_batch_size=1 "
             "data.train_files=rows.jsonl",
             rewards);
    refuses(change, words, RUN, at);
    snprintf(words, sizeof words,
             "%s "
             "data.rollout_batch_size=1 worker.actor.global_batch_size=1 "
             "data.train_files=good.jsonl data.val_files=rows.jsonl",
             rewards);
    refuses(change, words, RUN, at);
    strcat(words, " trainer.val_only=true");
    refuses(change, words, RUN, at);
}

static void refuses_row(const char *reward, const char *row, const char *message)
{
    char words[200];
    snprintf(words, sizeof words, "'worker.reward.rewards=[{name: %s}]'", reward);
    refuses_row_by(words, row, message);
}

TEST(rows_that_no_verifier_can_judge_are_named_with_file_and_line)
{
    refuses_row("auto", "{\"prompt\":\"1\",\"answer\":\"2\"}",
                "auto: the row has neither rm_type nor data_source");
    refuses_row("auto", "{\"prompt\":\"1\",\"answer\":\"2\",\"metadata\":{\"rm_type\":\"nubmer\"}}",
                "auto: rm_type = 'nubmer': no such verifier; did you mean 'number'?");
    refuses_row("auto", "{\"prompt\":\"1\",\"answer\":\"2\",\"data_source\":\"my/rows\"}",
                "auto: data_source = 'my/rows': stands for no verifier");
    refuses_row("auto", "{\"prompt\":\"1\",\"answer\":\"2\",\"rm_type\":\"regex\"}",
                "auto: rm_type = 'regex': it needs options");
    refuses_row("auto",
                "{\"prompt\":\"1\",\"metadata\":{\"rm_type\":\"format_verify\",\"functions\":["
                "\"def f(): 0\"]}}",
                "the row has 'functions' in Python, which is not run");
    refuses_row("format_verify",
                "{\"prompt\":\"1\",\"answer\":\"2\",\"metadata\":{\"rm_type\":\"format_verify\","
                "\"functions\":[\"def f(): 0\"]}}",
                "the row has 'functions' in Python, which is not run");
    refuses_row_by("'worker.reward.rewards=[{name: random}]' worker.reward.accuracy=auto",
                   "{\"prompt\":\"1\",\"answer\":\"2\"}",
                   "auto: the row has neither rm_type nor data_source");
}

TEST(mistakes_of_configuration_are_named)
{
    refuses("", "worker.rollout.cache_tokens=64", USE,
            "worker.rollout.cache_tokens = 64: one sample");
    refuses("", "trainer.max_stpes=1", USE, "did you mean 'trainer.max_steps'?");
    refuses("", "worker.rollout.n=1", USE, "worker.rollout.n = 1: grpo compares");
    refuses("", "worker.rollout.top_p=1.5", USE, "worker.rollout.top_p = 1.5: must be in (0,1]");
    refuses("", "worker.rollout.temperature=hot", USE,
            "worker.rollout.temperature = 'hot': must be a number");
    refuses("", "algorithm.adv_estimator=grop", USE, "did you mean 'grpo'?");
    refuses("", "worker.actor.global_batch_size=3", USE,
            "data.rollout_batch_size = 4 is no multiple of it");
    refuses("", "trainer.device=tpu", USE, "choices: cpu, cuda");
    refuses("", "trainer.val_freq=1", USE, "data.val_files = []: validation is asked for");
    refuses("", "nonsense", USE, "'nonsense': neither an option (key=value) nor --config FILE");
    refuses("", "--config none.yaml", USE, "none.yaml");
    refuses("echo 'a: [' > y.yaml", "--config y.yaml", USE, "y.yaml:2");
    refuses("printf 'data:\\n  shufle: true\\n' > y.yaml", "--config y.yaml", USE,
            "y.yaml:2: data.shufle: no such option; did you mean 'data.shuffle'?");
    refuses("", "'worker.reward.rewards=[{name: nubmer}]'", USE, "did you mean 'number'?");
    refuses("", "'worker.reward.rewards=[]'", USE, "no reward");
    refuses("", "'worker.reward.rewards=[{function: /no/such.so:f}]'", USE,
            "/no/such.so:f': no such file");
    refuses("", "'worker.reward.rewards=[{name: format, pattern: \"(\"}]'", USE, "pattern = '('");
    refuses("", "trainer.run_dir=/proc/none", RUN, "/proc/none");
    refuses(
        "mkdir 'at%d' && printf 'data: {sed: 1}\\nworker: {actor: {model: {model_path: M}}}\\n' > "
        "'at%d/config.yaml'",
        "trainer.run_dir='at%d'", USE, "at%d/config.yaml: config: at%d/config.yaml:1: data.sed");
}

TEST(all_mistakes_are_told_in_one_go)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' worker.rollout.top_p=1.5 data.sed=3 trainer.max_steps=x",
                         e2e_train_words("run")),
             USE);
    CHECK_CONTAINS(out.data, "worker.rollout.top_p");
    CHECK_CONTAINS(out.data, "data.sed");
    CHECK_CONTAINS(out.data, "trainer.max_steps");
    CHECK(!ares_dir_exists(test_file("run")));
    ares_str_fini(&out);
}

TEST(cuda_where_there_is_none_is_told_in_a_line)
{
    if (test_shell(NULL, "nvidia-smi >/dev/null 2>&1") == 0) SKIP("this machine has a CUDA device");
    refuses("", "trainer.device=cuda", USE, "no CUDA device");
}

TEST(nccl_between_ranks_without_cards_is_refused)
{
    refuses("", "trainer.comm_transport=nccl", USE,
            "trainer.comm_transport = 'nccl': nccl moves bytes between cards, and "
            "trainer.device=cpu is none; set auto");
}

/* A user's reward that never works ends the run with its reason. */
TEST(a_reward_command_that_judges_nothing_ends_the_run)
{
    static const struct {
        const char *reward, *told;
    } cases[] = {
        { "{command: [/bin/false]}", "ended with exit code 1" },
        { "{command: [sh, -c, 'kill -SEGV $$']}", "signal 11" },
        { "{command: [sleep, 100], timeout_s: 0.05, start_timeout_s: 0}",
          "gave no answer within 0.05 s" },
        { "{command: [sh, -c, 'while read l; do echo garbage; done']}", "answered 'garbage'" },
        { "{command: [yes]}", "answered 'y'" },
        { "{command: [/no/such]}", "cannot be started" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        char file[64], text[300];
        snprintf(file, sizeof file, "reward_%d.yaml", i);
        snprintf(text, sizeof text, "worker: {reward: {rewards: [%s]}}\n", cases[i].reward);
        const char *words = e2e_train_words("run"), *reward = e2e_write(file, text);
        CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("run")), 0);
        int rc =
            e2e_program(&out, "--config '%s' --config '%s' trainer.max_steps=1", words, reward);
        CHECK_MSG(rc == 1, "%s: exit code %d\n%s", cases[i].reward, rc, out.data);
        CHECK_CONTAINS(out.data, cases[i].told);
        CHECK_CONTAINS(out.data, "step 1: reward: none of the 16 answers could be judged: ");
        CHECK(!ares_file_exists(test_file("run/DONE")));
        ares_str_fini(&out);
    }
}

TEST(words_of_other_verbs_are_checked)
{
    static const struct {
        const char *words, *message;
        int code;
    } cases[] = {
        { "tarin", "did you mean 'train'?", USE },
        { "--ranks x", "--ranks = 'x'", USE },
        { "worker.actor.model.model_path=x --config", "--config: needs a file", USE },
        { "generate", "--model is missing", USE },
        { "generate --promt x", "did you mean '--prompt'?", USE },
        { "grade --verifier nmber </dev/null", "did you mean 'number'?", USE },
        { "init --arch qwen2", "--out is missing", USE },
        { "play --env CoordSokobn", "did you mean 'CoordSokoban'?", USE },
        { "score --model /no/such", "/no/such", RUN },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        int rc = e2e_program(&out, "%s", cases[i].words);
        CHECK_MSG(rc == cases[i].code, "%s: exit code %d", cases[i].words, rc);
        CHECK_MSG(lines_of(&out) == 1, "%s: %s", cases[i].words, out.data);
        CHECK_CONTAINS(out.data, cases[i].message);
        ares_str_fini(&out);
    }
}
