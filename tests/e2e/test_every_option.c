/*
 * Each option of configs/base.yaml is set once, and the run must show the effect that its text
 * there promises; the table is in options.h. The run of an entry differs from the run of its
 * situation only by that option, so an option that is read and then ignored fails here.
 */
#include "options.h"
#include "vapor_runs.h"
#include "vision_runs.h"

#include "agent_runs.h"
#include "ares/io.h"
#include "e2e.h"

#include <math.h>
#include <stdio.h>

/* ---------------------------------------------------------------- files of the situations */
static void write_rows(const char *name, int n)
{
    ares_str rows = { 0 };
    for (int i = 0; i < n; i++)
        ares_str_addf(&rows,
                      "{\"prompt\":\"ask %d%s\",\"answer\":\"key %d\","
                      "\"question\":\"say %d\",\"solution\":\"sol %d\","
                      "\"level\":%d,\"pictures\":[\"a.png\"],\"films\":[\"a.mp4\"]}\n",
                      i, i ? "" : ", and this is the longest of all prompts", i, i, i, i % 2);
    e2e_write(name, rows.data);
    ares_str_fini(&rows);
}

static void write_files(void)
{
    write_rows("rows.jsonl", 8);
    write_rows("two.jsonl", 2);
    e2e_write("digits.jsonl",
              "{\"prompt\":\"1\",\"answer\":\"7\"}\n{\"prompt\":\"2\",\"answer\":\"5\"}\n"
              "{\"prompt\":\"3\",\"answer\":\"3\"}\n{\"prompt\":\"4\",\"answer\":\"2\"}\n");
    e2e_write("format.jinja", "<<{{ content | trim }}>>");
    e2e_write("long.jinja", "All of these questions begin with words that are the same for each of "
                            "them. {{ content }}");
    e2e_write("chat.jinja", "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}");
    e2e_write("letters.json", "[\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\"]");
    vision_model();
    vision_rows();
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && { cat pictures.jsonl; sed -n '1s/a.png/none.png/p' "
                        "pictures.jsonl; } > pictures_and_none.jsonl",
                        test_dir()),
             0);
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2 --hidden 48 --layers 2 --heads 2 --kv-heads 1 --seed 4 "
                         "--out '%s'",
                         test_file("wide")),
             0);
    /* the same tokenizer, except that its template calls the user "asker" */
    CHECK_EQ(test_shell(NULL,
                        "cp -r '%s' '%s' && sed -i \"s/message\\['role'\\]/'asker'/g\" "
                        "'%s'/tokenizer_config.json",
                        e2e_model(), test_file("asker"), test_file("asker")),
             0);
}

/* ---------------------------------------------------------------- runs */
typedef struct seen_run {
    const char *name;
    int rc;
    ares_str said;
} seen_run;

/*
 * $RUN and $BASE are folders of runs, $DIR contains them. rollouts and base_rollouts print the rows
 * of step 1; column KEY prints the number of that key in each row.
 */
static const char prelude[] = "rollouts() { cat \"$RUN\"/rollouts/step_000001.jsonl; }\n"
                              "base_rollouts() { cat \"$BASE\"/rollouts/step_000001.jsonl; }\n"
                              "column() { sed \"s/.*\\\"$1\\\":\\([^,}]*\\).*/\\1/\"; }\n";

static void start(const situation *s, const char *name, const char *option, const char *value,
                  seen_run *out)
{
    ares_str said = { 0 };
    char last[400] = "";
    if (option) snprintf(last, sizeof last, "\"%s=%s\"", option, value);
    const char *words = e2e_train_words(name);
    int rc = test_shell(&said,
                        "cd '%s' && export DIR=\"$PWD\" && '%s' --config '%s' trainer.max_steps=1 "
                        "trainer.threads=1 %s %s 2>&1",
                        test_dir(), test_program(), words, s->words, last);
    char file[80];
    ares_str_add_z(&said, "\n"); /* so that data is not NULL */
    snprintf(file, sizeof file, "%s.said", name);
    e2e_write(file, said.data);
    *out = (seen_run){ .name = name, .rc = rc, .said = said };
}

/* ---------------------------------------------------------------- what a run has to show */

/*
 * The norm of all f32 tensors whose name contains `part` and ends with `end`; of their difference
 * from another file, if one is given.
 */
static double norm_of(const char *path, const char *other, const char *part, const char *end)
{
    ares_safetensors *a = NULL, *b = NULL;
    double sum = 0;
    if (ares_safetensors_open(path, &a) != ARES_OK ||
        (other && ares_safetensors_open(other, &b) != ARES_OK))
        sum = NAN;
    for (int64_t i = 0; !isnan(sum) && i < ares_safetensors_count(a); i++) {
        const ares_tensor_info *x = ares_safetensors_at(a, i),
                               *y = b ? ares_safetensors_find(b, x->name) : NULL;
        size_t length = strlen(x->name), n = strlen(end);
        if (!strstr(x->name, part) || length < n || strcmp(x->name + length - n, end) != 0 ||
            strcmp(x->dtype_name, "F32") != 0)
            continue;
        if (b && (!y || y->count != x->count)) continue;
        for (int64_t k = 0; k < x->count; k++) {
            float v, w = 0;
            memcpy(&v, (const char *)x->data + 4 * k, 4);
            if (y) memcpy(&w, (const char *)y->data + 4 * k, 4);
            sum += ((double)v - (double)w) * ((double)v - (double)w);
        }
    }
    ares_safetensors_close(a);
    ares_safetensors_close(b);
    return sqrt(sum);
}

/*
 * A number of the last checkpoint: saved:KEY is a number of state.json, weights:PART the norm of
 * the tensors with PART in their names, moved:PART the norm of their difference from the model with
 * which the run began, m:PART, v:PART and master:PART the norms of optimizer states. With critic_
 * before it: of the critic.
 */
static double of_checkpoint(const char *run, const char *name)
{
    ares_str latest = { 0 }, text = { 0 };
    ares_arena arena = { 0 };
    char dir[300], path[400], kind[40];
    const char *part = strchr(name, ':') + 1;
    double value = NAN;
    snprintf(dir, sizeof dir, "%s/checkpoints", run);
    snprintf(kind, sizeof kind, "%.*s", (int)(part - 1 - name), name);
    if (ares_checkpoint_latest(test_file(dir), &latest) != ARES_OK || !latest.len) return NAN;
    bool critic = strncmp(kind, "critic_", 7) == 0;
    const char *of = critic ? kind + 7 : kind, *model = test_file("model/model.safetensors");
    if (strcmp(of, "saved") == 0) {
        const ares_json *state;
        snprintf(path, sizeof path, "%s/%s/state.json", dir, latest.data);
        if (ares_file_read(test_file(path), &text) == ARES_OK &&
            ares_json_parse(&arena, ares_str_view(&text), path, &state) == ARES_OK &&
            ares_json_get(state, part))
            value = ares_json_get(state, part)->number;
    } else if (strcmp(of, "weights") == 0 || strcmp(of, "moved") == 0) {
        snprintf(path, sizeof path, "%s/%s/%s/model.safetensors", dir, latest.data,
                 critic ? "critic" : "model");
        value = norm_of(test_file(path), of[0] == 'm' ? model : NULL, part, "");
    } else {
        char suffix[48];
        snprintf(suffix, sizeof suffix, ".%s", of);
        snprintf(path, sizeof path, "%s/%s/%soptimizer.safetensors", dir, latest.data,
                 critic ? "critic_" : "");
        value = norm_of(test_file(path), NULL, part, suffix);
    }
    ares_str_fini(&latest);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return value;
}

/*
 * The value of a number, of [base:]METRIC[@STEP] (step 1 where none is named), or of a word of
 * of_checkpoint.
 */
static double number(const char *word, const seen_run *run, const seen_run *base)
{
    char name[120], *end;
    int64_t step = 1;
    double value = strtod(word, &end);
    if (!*end) return value;
    const seen_run *of = strncmp(word, "base:", 5) == 0 ? base : run;
    snprintf(name, sizeof name, "%s", of == base ? word + 5 : word);
    char *at = strchr(name, '@');
    if (at) {
        step = atoi(at + 1);
        *at = 0;
    }
    char file[300];
    if (strchr(name, ':')) return of_checkpoint(of->name, name);
    snprintf(file, sizeof file, "%s/metrics.jsonl", of->name);
    return ares_file_exists(test_file(file)) ? e2e_metric(of->name, step, name) : NAN;
}

/* Whether the word is one of a list of operators. */
static bool is_word(const char *word, const char *among)
{
    const char *at = strstr(among, word);
    return at && strlen(word) <= 2 && (at[strlen(word)] == ' ' || !at[strlen(word)]) &&
           (at == among || at[-1] == ' ');
}

/* The value of a sum of products. *at: its first word; then the first word after it. */
static double sum_of(char **words, int *at, int n, const seen_run *run, const seen_run *base)
{
    double sum = 0, sign = 1;
    for (;;) {
        double product = number(words[(*at)++], run, base);
        while (*at + 1 < n && is_word(words[*at], "* /")) {
            double factor = number(words[*at + 1], run, base);
            product = words[*at][0] == '*' ? product * factor : product / factor;
            *at += 2;
        }
        sum += sign * product;
        if (*at + 1 >= n || !is_word(words[*at], "+ -")) return sum;
        sign = words[(*at)++][0] == '+' ? 1 : -1;
    }
}

/* ~ allows for the rounding of floats; a size below 0.01 counts as 0.01. */
static bool compares(double a, const char *op, double b)
{
    double size = fmax(fabs(a), fabs(b));
    switch (op[0]) {
    case '=': return fabs(a - b) <= 1e-12 * size;
    case '~': return fabs(a - b) <= 1e-5 * fmax(size, 1e-2);
    case '!': return fabs(a - b) > 1e-9 * size;
    case '<': return op[1] ? a <= b : a < b;
    case '>': return op[1] ? a >= b : a > b;
    }
    return false;
}

static void check_numbers(const option_case *o, const char *condition, const seen_run *run,
                          const seen_run *base)
{
    char text[1500], *words[40], *save = NULL;
    int n = 0, at = 0;
    snprintf(text, sizeof text, "%s", condition);
    for (char *w = strtok_r(text, " ", &save); w && n < ARES_COUNT(words);
         w = strtok_r(NULL, " ", &save))
        words[n++] = w;
    double a = sum_of(words, &at, n, run, base);
    if (!CHECK_MSG(at + 1 < n && is_word(words[at], "== != < <= > >= ~"),
                   "%s: '%s' is no condition", o->option, condition))
        return;
    const char *op = words[at++];
    double b = sum_of(words, &at, n, run, base);
    CHECK_MSG(at == n && compares(a, op, b), "%s=%s: %s: %.9g and %.9g; it said\n%s", o->option,
              o->value, condition, a, b, run->said.data);
}

static void check_condition(const option_case *o, const char *condition, const seen_run *run,
                            const seen_run *base)
{
    int code = 0, at = 0;
    if (condition[0] == '$') {
        ares_str out = { 0 };
        int rc =
            test_shell(&out, "export DIR='%s' RUN='%s' BASE='%s' && cd \"$DIR\"\n%s%s", test_dir(),
                       test_file(run->name), test_file(base->name), prelude, condition + 1);
        CHECK_MSG(rc == 0, "%s=%s: exit code %d of %s\n%s%s", o->option, o->value, rc, condition,
                  out.data ? out.data : "", run->said.data);
        ares_str_fini(&out);
    } else if (strncmp(condition, "says not ", 9) == 0)
        CHECK_MSG(!strstr(run->said.data, condition + 9) && strstr(base->said.data, condition + 9),
                  "%s=%s: '%s' is there, or not without it:\n%s", o->option, o->value,
                  condition + 9, run->said.data);
    else if (strncmp(condition, "says ", 5) == 0)
        CHECK_MSG(strstr(run->said.data, condition + 5) && !strstr(base->said.data, condition + 5),
                  "%s=%s: '%s' is missing, or also there without it:\n%s", o->option, o->value,
                  condition + 5, run->said.data);
    else if (sscanf(condition, "fails %d %n", &code, &at) == 1)
        CHECK_MSG(run->rc == code && strstr(run->said.data, condition + at) &&
                      !strstr(base->said.data, condition + at),
                  "%s=%s: exit code %d, not %d with '%s':\n%s", o->option, o->value, run->rc, code,
                  condition + at, run->said.data);
    else if (strcmp(condition, "same") == 0)
        CHECK_MSG(e2e_same_runs(run->name, base->name, (int)number("saved:step", run, base)),
                  "%s=%s: not the run that it is without", o->option, o->value);
    else if (strncmp(condition, "there ", 6) == 0)
        CHECK_MSG(!isnan(number(condition + 6, run, base)), "%s=%s: no %s; it said\n%s", o->option,
                  o->value, condition + 6, run->said.data);
    else if (strncmp(condition, "absent ", 7) == 0)
        CHECK_MSG(isnan(number(condition + 7, run, base)), "%s=%s: %s is %g", o->option, o->value,
                  condition + 7, number(condition + 7, run, base));
    else check_numbers(o, condition, run, base);
}

/* Checks each condition on the run of the option and that of its situation. */
static void check_seen(const option_case *o, const seen_run *run, const seen_run *base)
{
    char text[1500];
    snprintf(text, sizeof text, "%s", o->seen);
    for (char *at = text, *end; at; at = end) {
        end = *at == '$' ? NULL : strstr(at, "; "); /* a shell command may contain "; " */
        if (end) {
            *end = 0;
            end += 2;
        }
        check_condition(o, at, run, base);
    }
    if (strncmp(o->seen, "fails", 5) != 0)
        CHECK_MSG(run->rc == 0, "%s=%s: exit code %d\n%s", o->option, o->value, run->rc,
                  run->said.data);
}

static bool begins(const char *option, const char *prefixes)
{
    for (const char *at = prefixes; *at; at += strcspn(at, " ") + 1)
        if (strncmp(option, at, strcspn(at, " ")) == 0) return true;
    return false;
}

/* The options of a test below, by what they begin with; a blank follows each prefix. */
enum {
    DATA,
    ALGORITHM,
    ROLLOUT,
    ACTOR,
    OTHER_MODELS,
    REWARD,
    ENVIRONMENTS,
    VAPOR_PART,
    DISTILLATION,
    RUN,
    PARTS
};
static const char *const parts[PARTS] = {
    [DATA] = "data. curriculum. eval. ",
    [ALGORITHM] = "algorithm. ",
    [ROLLOUT] = "worker.rollout. ",
    [ACTOR] = "worker.actor. ",
    [OTHER_MODELS] = "worker.ref. worker.critic. ",
    [REWARD] = "worker.reward. ",
    [ENVIRONMENTS] = "env. ",
    [VAPOR_PART] = "vapor. ",
    [DISTILLATION] = "distillation. ",
    [RUN] = "worker.hybrid_engine trainer. report. ",
};

static void check_options(int part)
{
    seen_run bases[ARES_COUNT(situations)] = { 0 };
    write_files();
    for (int i = 0; i < ARES_COUNT(options); i++) {
        const option_case *o = &options[i];
        seen_run run;
        int s = 0;
        if (!o->value || !begins(o->option, parts[part])) continue;
        while (s < ARES_COUNT(situations) && strcmp(situations[s].name, o->in) != 0) s++;
        if (!CHECK_MSG(s < ARES_COUNT(situations), "%s: no situation '%s'", o->option, o->in))
            continue;
        if (!bases[s].name) start(&situations[s], situations[s].name, NULL, NULL, &bases[s]);
        char name[24];
        snprintf(name, sizeof name, "option_%d", i);
        start(&situations[s], name, o->option, o->value, &run);
        check_seen(o, &run, &bases[s]);
        ares_str_fini(&run.said);
    }
    for (int s = 0; s < ARES_COUNT(situations); s++) ares_str_fini(&bases[s].said);
}

TEST_SLOW(options_of_data_do_what_base_yaml_says)
{
    check_options(DATA);
}
TEST_SLOW(options_of_algorithms_do_what_base_yaml_says)
{
    check_options(ALGORITHM);
}
TEST_SLOW(options_of_the_rollout_do_what_base_yaml_says)
{
    check_options(ROLLOUT);
}
TEST_SLOW(options_of_the_actor_do_what_base_yaml_says)
{
    check_options(ACTOR);
}
TEST_SLOW(options_of_reference_and_critic_do_what_base_yaml_says)
{
    check_options(OTHER_MODELS);
}
TEST_SLOW(options_of_rewards_do_what_base_yaml_says)
{
    check_options(REWARD);
}
TEST_SLOW(options_of_environments_do_what_base_yaml_says)
{
    (void)agent_model();
    check_options(ENVIRONMENTS);
}
TEST_SLOW(options_of_vapor_do_what_base_yaml_says)
{
    (void)vapor_model();
    (void)vapor_rows();
    check_options(VAPOR_PART);
}
TEST_SLOW(options_of_distillation_do_what_base_yaml_says)
{
    check_options(DISTILLATION);
}
TEST_SLOW(options_of_the_run_do_what_base_yaml_says)
{
    check_options(RUN);
}

/* ---------------------------------------------------------------- the table itself */

static int count_of(const char *option)
{
    int n = 0;
    for (int i = 0; i < ARES_COUNT(options); i++) n += strcmp(options[i].option, option) == 0;
    return n;
}

/* Calls see() with the path of each option of configs/base.yaml. */
static int walk_base(const char *yaml, void (*see)(const char *path))
{
    char path[8][64] = { 0 }, whole[400];
    int n = 0;
    for (const char *line = yaml; *line; line = strchr(line, '\n') + 1) {
        int indent = (int)strspn(line, " "), length = (int)strcspn(line + indent, ":#\n"),
            depth = indent / 2;
        if (line[indent + length] != ':' || depth >= 8 || length >= 64) continue;
        snprintf(path[depth], sizeof path[depth], "%.*s", length, line + indent);
        if (line[indent + length + 1] == '\n') continue; /* a section */
        whole[0] = 0;
        for (int i = 0; i <= depth; i++)
            snprintf(whole + strlen(whole), sizeof whole - strlen(whole), "%s%s", i ? "." : "",
                     path[i]);
        see(whole);
        n++;
    }
    return n;
}

static void check_entry(const char *path)
{
    int tests = 0;
    for (int i = 0; i < PARTS; i++) tests += begins(path, parts[i]);
    CHECK_MSG(tests == 1, "%s: belongs to %d of the parts that are tested, not to one", path,
              tests);
    CHECK_MSG(count_of(path) == 1,
              "%s: %d entries in tests/e2e/options.h; one must show what it does", path,
              count_of(path));
}

TEST(every_option_of_base_yaml_has_an_entry_that_shows_it_at_work)
{
    ares_str yaml = { 0 };
    CHECK_EQ(e2e_program(&yaml, "--help-config"), 0);
    int n = walk_base(yaml.data, check_entry);
    CHECK(n > 200);
    CHECK_EQ(ARES_COUNT(options), n);
    ares_str_fini(&yaml);
}

TEST_SLOW(tests_that_stand_for_an_option_are_there)
{
    char program[400];
    for (int i = 0; i < ARES_COUNT(options); i++) {
        const option_case *o = &options[i];
        if (o->value || strcmp(o->in, "-") == 0) continue;
        snprintf(program, sizeof program, "%s/%s", ARES_BINARY_DIR, o->in);
        if (!ares_file_exists(program)) SKIP("a test program that it asks is not built");
        int rc = test_shell(NULL, "'%s' --list | grep -qw '%s'", program, o->seen);
        CHECK_MSG(rc == 0, "%s: %s has no test '%s'", o->option, o->in, o->seen);
    }
}
