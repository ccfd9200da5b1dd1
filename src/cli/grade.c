/* ares-train grade: a verifier on lines of {response, ground_truth, ...}. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/io.h"
#include "ares/reward.h"
#include "cli.h"

typedef struct job {
    ares_judge *judge;
    ares_config *config; /* owns the texts of the judge's options */
    int64_t bad;         /* lines that could not be judged */
} job;

/* A member as text: strings as they are, any other value as JSON, as the rows of a data set. */
static ares_view text_of(const ares_json *line, const char *key, ares_str *storage)
{
    const ares_json *v = ares_json_get(line, key);
    ares_str_clear(storage);
    if (!v || v->type == ARES_JSON_NULL) return (ares_view){ "", 0 };
    if (v->type == ARES_JSON_STRING) return v->text;
    ares_json_write(storage, v);
    return ares_str_view(storage);
}

/* The response's length: of "output_ids", else "response_length", else "response_tokens". */
static int read_tokens(const ares_json *line, ares_ids *ids, ares_verify_in *in)
{
    /* response_tokens stays -1 where the line gives no length */
    const ares_json *list = ares_json_get(line, "output_ids");
    ARES_TRY(ares_json_get_i64(line, "response_tokens", -1, &in->response_tokens));
    ARES_TRY(ares_json_get_i64(line, "response_length", in->response_tokens, &in->response_tokens));
    if (!list || list->type == ARES_JSON_NULL) return ARES_OK;
    ARES_TRY(cli_read_ids("grade", line, "output_ids", ids));
    in->ids = ids->ids;
    in->response_tokens = ids->n;
    return ARES_OK;
}

/* A row that cannot be judged has an error for its answer; the others go on. */
static int grade_line(void *ctx, const ares_json *line, ares_str *out)
{
    job *j = ctx;
    ares_str response = { 0 }, truth = { 0 }, prompt = { 0 };
    ares_ids ids = { 0 };
    bool finished = true;
    if (!ares_json_get(line, "response"))
        return ares_fail(ARES_EFORMAT, "grade: the line has no 'response'");
    ARES_TRY(ares_json_get_bool(line, "finished", true, &finished));
    ares_verify_in in = { .response = text_of(line, "response", &response),
                          .ground_truth = text_of(line, "ground_truth", &truth),
                          .prompt = text_of(line, "prompt", &prompt),
                          .stopped = finished,
                          .row = line };
    const ares_json *given = ares_json_get(line, "ground_truth");
    if (!given || given->type == ARES_JSON_NULL) in.ground_truth.data = NULL; /* none; "" is one */
    in.structured = given && (given->type == ARES_JSON_ARRAY || given->type == ARES_JSON_OBJECT);
    /* a verifier that tells no accuracy leaves NaN */
    ares_verify_out result = { .accuracy = NAN };
    int rc = read_tokens(line, &ids, &in);
    if (rc == ARES_OK) {
        int judged = ares_judge_run(j->judge, &in, &result);
        if (judged == ARES_ECONFIG) rc = judged; /* the row's own fault: it has no score */
        else {
            /* where judging failed, the score is 0 and "error" says why */
            bool good = judged == ARES_OK;
            ares_json_begin(out, '{');
            ares_json_write_double(ares_json_key(out, "score"), good ? result.score : 0);
            if (result.judged_by)
                ares_json_write_string(ares_json_key(out, "judged_by"),
                                       ares_view_of(result.judged_by));
            if (good) ares_json_splice(out, ares_str_view(&result.details));
            if (result.exhausted) ares_json_write_bool(ares_json_key(out, "exhausted"), true);
            if (!good)
                ares_json_write_string(ares_json_key(out, "error"),
                                       ares_view_of(ares_error_message()));
            ares_json_end(out, '}');
        }
        j->bad += judged != ARES_OK && judged != ARES_ECONFIG;
    }
    ares_str_fini(&result.details);
    ares_str_fini(&response);
    ares_str_fini(&truth);
    ares_str_fini(&prompt);
    ares_ids_fini(&ids);
    return rc;
}

/* A text in a cell of a Markdown table. */
static void add_cell(ares_str *out, const char *text)
{
    for (; *text; text++) {
        /* characters that Markdown would read */
        if (*text == '|' || *text == '<' || *text == '\\') ares_str_add_char(out, '\\');
        ares_str_add_char(out, *text);
    }
}

/* --list: the table of docs/rewards.md. */
static int show_list(void)
{
    /* options: how many the verifier has */
    int n, options = 0;
    const char *const *names = ares_verifier_names(&n);
    /* rows: | `name` | doc | `option` (`default`): doc; .. | */
    ares_str text = { 0 }, *out = &text;
    ares_str_add_z(out, "| verifier | score | options |\n|---|---|---|\n");
    for (int i = 0; i < n; i++) {
        const ares_verifier *v = ares_verifier_find(names[i]);
        const ares_option *table = v->options ? v->options(&options) : NULL;
        ares_str_addf(out, "| `%s` | ", v->name);
        add_cell(out, v->doc);
        ares_str_add_z(out, " |");
        for (int k = 0; table && k < options; k++) {
            const char *unset = table[k].text;
            ares_str_addf(out, "%s `%s`%s", k ? ";" : "", table[k].path,
                          strcmp(unset, "???") == 0 ? " (required" : " (");
            if (strcmp(unset, "???") != 0) ares_str_addf(out, "`%s`", *unset ? unset : "\"\"");
            ares_str_add_z(out, "): ");
            add_cell(out, table[k].doc);
        }
        ares_str_add_z(out, " |\n");
    }
    int rc = cli_print("grade", &text);
    ares_str_fini(&text);
    return rc;
}

/* A verifier over lines, one by one. */
static int grade(const char *verifier, const char *input, const char *const *own_options)
{
    job j = { 0 };
    int rc = ares_judge_new(verifier, &j.judge);
    if (rc == ARES_OK) {
        /* the words are overrides of a configuration that has the verifier's options alone */
        void *options;
        ares_config *cfg = j.config = ares_config_new();
        ares_option_table *table = ares_judge_options(j.judge, &options);
        if (table) ares_config_add_options(cfg, "", table, options);
        for (; *own_options; own_options++) ares_config_override(cfg, *own_options);
        ares_config_resolve(cfg);
        if (ares_config_fault_count(cfg) == 0) ares_judge_check(j.judge, cfg, "");
        rc = ares_config_finish(cfg);
    }
    if (rc == ARES_OK) rc = cli_each_line("grade", input, grade_line, &j);
    if (rc == ARES_OK && j.bad)
        rc =
            ares_fail(ARES_EFORMAT,
                      "grade: %s: %lld lines could not be judged (each has its error in its place)",
                      input, (long long)j.bad);
    ares_judge_free(j.judge);
    ares_config_free(j.config);
    return rc;
}

/* ---------------- a reward of the user's own */
/* A line that the user's own reward judges. */
typedef struct graded {
    ares_reward_item item; /* a response, what it is judged by, and the result */
    float part;            /* the item's parts: there is one reward */
} graded;

/* Reads all lines of a file, or of the last rollouts of a run directory. */
static int read_graded(const char *input, ares_arena *arena, graded **out, int64_t *count)
{
    rollouts_step step;
    ares_jsonl *lines;
    const ares_json *line;
    int64_t cap = 0;
    int rc;
    *out = NULL;
    *count = 0;
    /* a run directory: the rollouts of its last step */
    if (ares_dir_exists(input)) {
        ARES_TRY(rollouts_read(arena, "grade", input, false, -1, &step));
        input = step.path;
    }
    ARES_TRY(ares_jsonl_open_input(input, &lines));
    /* texts of a line end with it, so what is kept is copied into the arena */
    while ((rc = ares_jsonl_next(lines, &line, NULL)) > 0) {
        ares_str text = { 0 };
        ares_ids ids = { 0 };
        bool finished = true;
        if (*count == cap) *out = ares_realloc(*out, (size_t)(cap = cap * 2 + 64) * sizeof **out);
        graded *g = &(*out)[(*count)++];
        *g = (graded){ .item.arena = arena };
        ares_verify_in *in = &g->item.in;
        /* a line of rollouts holds the data set's row; a row of data is one itself */
        const ares_json *row = ares_json_get(line, "row");
        ares_json_write(&text, row && row->type == ARES_JSON_OBJECT ? row : line);
        const ares_view copy = { ares_arena_copy(arena, text.data, text.len), text.len };
        rc = ares_json_parse(arena, copy, "row", &in->row); /* it outlives the line */
        if (rc == ARES_OK) rc = ares_json_get_bool(line, "finished", true, &finished);
        if (rc == ARES_OK) rc = read_tokens(line, &ids, in);
        in->stopped = finished;
        ares_str truth = { 0 };
        static const char *const keys[] = { "ground_truth", "answer" };
        /* else verl's data: {"reward_model": {"ground_truth": ..}} */
        const ares_json *of_model = ares_json_get(line, "reward_model");
        ares_view v = { "", 0 };
        for (int i = 0; i < ARES_COUNT(keys) && !v.len; i++) v = text_of(line, keys[i], &truth);
        if (!v.len && of_model) v = text_of(of_model, "ground_truth", &truth);
        v.data = ares_arena_copy(arena, v.data, v.len);
        ares_str_fini(&truth);
        in->ground_truth = v;
        in->response = in->ground_truth; /* a row of data has none: the right one is judged */
        if (ares_json_get(line, "response")) in->response = text_of(line, "response", &text);
        in->response.data = ares_arena_copy(arena, in->response.data, in->response.len);
        in->prompt = text_of(line, "prompt", &text);
        in->prompt.data = ares_arena_copy(arena, in->prompt.data, in->prompt.len);
        if (ids.n)
            in->ids = (const int32_t *)(const void *)ares_arena_copy(
                arena, (const char *)ids.ids, (size_t)ids.n * sizeof *ids.ids);
        ares_str_fini(&text);
        ares_ids_fini(&ids);
        if (rc != ARES_OK) break;
    }
    ares_jsonl_close(lines);
    return rc;
}

/* Submits all lines at once, as a training step does with its responses. */
static int grade_own(const char *command, const char *function, const char *input,
                     const char *const *words)
{
    /* the reward reads its options as in training */
    ares_config *cfg = ares_config_new();
    ares_reward_config options;
    ares_reward *reward = NULL;
    ares_arena arena = { 0 };
    ares_str out = { 0 };
    graded *all = NULL;
    int64_t n = 0, failed = 0;
    /* the reward that the words describe, as an entry of worker.reward.rewards */
    ares_str entry = { 0 };
    ares_config_add_options(cfg, "worker.reward", ares_reward_options, &options);
    ares_str_add_z(&entry, "worker.reward.rewards=[{");
    /* [{command: [sh, -c, "./judge"], as: command, timeout_s: 60}] */
    ares_str_add_z(&entry, command ? "command: [sh, -c, " : "function: ");
    ares_json_write_string(&entry, ares_view_of(command ? command : function));
    if (command) ares_str_add_z(&entry, "], as: command");
    for (; *words; words++) {
        const char *equals = strchr(*words, '=');
        if (strncmp(*words, "python=", 7) == 0) { /* an option of all rewards, not of an entry */
            ares_str python = { 0 };
            ares_str_addf(&python, "worker.reward.%s", *words);
            ares_config_override(cfg, python.data);
            ares_str_fini(&python);
            continue;
        }
        ares_str_addf(&entry, ", %.*s: %s", equals ? (int)(equals - *words) : (int)strlen(*words),
                      *words, equals ? equals + 1 : "");
    }
    ares_str_add_z(&entry, "}]");
    ares_config_override(cfg, entry.data);
    ares_str_fini(&entry);
    ares_config_resolve(cfg);
    int rc = ares_reward_open(cfg, &options, NULL, &reward); /* starts programs */
    if (rc == ARES_OK) rc = read_graded(input, &arena, &all, &n);
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        all[i].item.parts = &all[i].part; /* only now: reading moves the list */
        ares_reward_submit(reward, &all[i].item);
    }
    if (rc == ARES_OK) ares_reward_wait(reward);
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        const ares_reward_item *x = &all[i].item;
        ares_json_begin(&out, '{');
        ares_json_write_float(ares_json_key(&out, "score"), x->failed ? NAN : x->score);
        ares_json_write_float(ares_json_key(&out, "accuracy"), x->accuracy);
        if (x->failed) ares_json_write_bool(ares_json_key(&out, "failed"), true);
        if (x->details.len) ares_json_splice(ares_json_key(&out, "details"), x->details);
        ares_json_end(&out, '}');
        ares_str_add_char(&out, '\n');
        failed += x->failed;
    }
    if (rc == ARES_OK) rc = cli_print("grade", &out);
    if (rc == ARES_OK && failed)
        rc = ares_fail(ARES_ECHILD, "grade: %s: %lld of %lld could not be judged (%s)", input,
                       (long long)failed, (long long)n, ares_reward_last_failure(reward));
    ares_reward_close(reward);
    ares_config_free(cfg);
    ares_free(all);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
    return rc;
}

int ares_cli_grade(int argc, char **argv)
{
    const char *verifier = NULL, *input = "-", *command_line = NULL, *function = NULL;
    bool helped, list = false;
    ares_str verifiers = { 0 };
    int n;
    const char *const *names = ares_verifier_names(&n);
    const cli_option options[] = {
        CLI_OPTION(TEXT, verifier, "--verifier", "NAME", "one of the list below", .offered = names,
                   .n_offered = n),
        CLI_OPTION(TEXT, command_line, "--command", "'PROGRAM WORDS'",
                   "a reward of your own, as a shell would start it"),
        CLI_OPTION(TEXT, function, "--function", "FILE:NAME",
                   "a C function of a .so, or a Python function of a .py"),
        CLI_OPTION(TEXT, input, "--input", "FILE",
                   "JSON lines; - (the default) is stdin; of your own reward also rows of data, or "
                   "a run directory, whose last rollouts are graded"),
        CLI_OPTION(FLAG, list, "--list", NULL,
                   "prints every verifier with its options, as Markdown, and stops"),
        { .name = "option=value",
          .type = CLI_PASSED,
          .doc = "sets an option of the verifier, or of your reward (timeout_s=60, processes=8)" },
    };
    /* the list under --help */
    ares_str_add_z(&verifiers, "verifiers:\n");
    for (int i = 0; i < n; i++)
        ares_str_addf(&verifiers, "  %-20s %s\n", names[i], ares_verifier_find(names[i])->doc);
    const cli_command command = {
        .name = "grade",
        .usage = "--verifier NAME [--input FILE] [option=value ...]\n--command 'PROGRAM WORDS' "
                 "[--input FILE|RUN] [option=value ...]\n--list",
        .about = "Reads {\"response\":\"..\",\"ground_truth\":..} per line, writes "
                 "{\"score\":x, ..}. A line may also say \"finished\":false (cut by length), "
                 "\"prompt\", \"response_length\" or \"output_ids\" (for verifiers of length), and "
                 "what the verifier reads of a data row: \"rm_type\" or \"data_source\" (auto), "
                 "\"instruction_id_list\" and \"kwargs\" or \"checkers\" (ifbench), \"choices\" "
                 "(gpqa). With ground truth that cannot be used, the score is 0 and \"error\" says "
                 "why; a row that asks for what is not there (an unknown rm_type, \"functions\" "
                 "without \"checkers\") has no score, only \"error\". The prefix boxed_ before a "
                 "NAME judges the content of the last \\boxed{}.",
        .more = verifiers.data,
        .example = "echo '{\"response\":\"7 + 5 = 12\",\"ground_truth\":\"12\"}' | ares-train "
                   "grade --verifier number",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = CLI_WORDS,
    };
    int rc = cli_read(&command, &argc, argv, &helped);
    ares_str_fini(&verifiers);
    if (rc != ARES_OK || helped) return rc;
    if (list) return show_list();
    /* one of the three says who judges */
    if ((verifier != NULL) + (command_line != NULL) + (function != NULL) > 1)
        return ares_fail(ARES_EUSE,
                         "grade: --verifier, --command and --function exclude each other");
    if (command_line || function)
        return grade_own(command_line, function, input, (const char *const *)argv + 1);
    if (!verifier)
        return ares_fail(ARES_EUSE, "grade: --verifier, or --command of your own, is missing (see "
                                    "ares-train grade --help)");
    return grade(verifier, input, (const char *const *)argv + 1);
}
