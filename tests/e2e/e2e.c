#include "e2e.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int e2e_program(ares_str *out, const char *format, ...)
{
    char words[6000];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    return test_shell(out, "cd '%s' && '%s' %s 2>&1", test_source("."), test_program(), words);
}

const char *e2e_model(void)
{
    const char *dir = test_file("model");
    if (!ares_dir_exists(dir))
        CHECK_EQ(e2e_program(NULL,
                             "init --arch qwen2 --hidden 32 --layers 2 --heads 2 --kv-heads 1 "
                             "--seed 3 --out '%s'",
                             dir),
                 0);
    return dir;
}

void e2e_learn(const char *run, const char *rows, const char *more)
{
    ares_str out = { 0 };
    int rc = e2e_program(
        &out,
        "sft data.train_files='%s' worker.actor.model.model_path='%s' worker.actor.optim.lr=1e-2 "
        "trainer.max_steps=120 trainer.run_dir='%s' %s",
        rows, e2e_model(), run, more);
    CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
    ares_str_fini(&out);
}

#define LEARNED "checkpoints/step_000120/model"
const char *e2e_learned(const char *run, void (*learn)(const char *run))
{
    char name[120];
    struct stat st;
    if (lstat(test_file(run), &st) != 0)
        CHECK_EQ(symlink(test_kept(run, LEARNED, learn), test_file(run)), 0);
    snprintf(name, sizeof name, "%s/" LEARNED, run);
    return test_file(name);
}

const char *e2e_write(const char *name, const char *text)
{
    const char *path = test_file(name);
    CHECK_OK(ares_file_write(path, text, strlen(text)));
    return path;
}

static const char *config(const char *name, const char *run, const char *rest)
{
    char text[2000], file[64];
    snprintf(text, sizeof text, "trainer: {run_dir: '%s', max_steps: 6, logger: [console]}\n%s",
             test_file(run), rest);
    snprintf(file, sizeof file, "%s_%s.yaml", name, run);
    return e2e_write(file, text);
}

const char *e2e_train_words(const char *run)
{
    char rest[1500], words[64];
    snprintf(rest, sizeof rest,
             "data: {train_files: '%s', max_prompt_length: 48, max_response_length: 12, "
             "rollout_batch_size: 4}\n"
             "algorithm: {adv_estimator: grpo, disable_kl: true}\n"
             "worker:\n"
             "  actor: {model: {model_path: '%s'}, global_batch_size: 4, optim: {lr: 1.0e-3, "
             "weight_decay: 0.0}}\n"
             "  rollout: {n: 4}\n"
             "  reward: {rewards: [{name: format, pattern: '.*[0-9].*', finished: false}]}\n",
             test_source("examples/data/sums/train.jsonl"), e2e_model());
    snprintf(words, sizeof words, "train_%s.yaml", run);
    config("train", run, rest);
    return test_file(words);
}

const char *e2e_sft_words(const char *run)
{
    char rest[1500], words[64];
    snprintf(rest, sizeof rest,
             "data: {train_files: '%s'}\n"
             "sft: {batch_size: 8, max_length: 128}\n"
             "worker: {actor: {model: {model_path: '%s'}, optim: {lr: 1.0e-3}}}\n",
             test_source("examples/data/sums/sft.jsonl"), e2e_model());
    snprintf(words, sizeof words, "sft_%s.yaml", run);
    config("sft", run, rest);
    return test_file(words);
}

int e2e_stop(const char *run, const char *signal, int rows, const char *format, ...)
{
    char words[4000];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    const char *dir = test_file(run);
    return test_shell(NULL,
                      "cd '%s'; '%s' %s >'%s.out' 2>&1 & pid=$!\n"
                      "while kill -0 $pid 2>/dev/null && [ \"$(cat '%s/metrics.jsonl' 2>/dev/null "
                      "| wc -l)\" -lt %d ]; do sleep 0.01; done\n"
                      "kill -%s $pid 2>/dev/null; wait $pid",
                      test_source("."), test_program(), words, dir, dir, rows, signal);
}

bool e2e_go_back(const char *run, const char *whole, int step)
{
    int rc = test_shell(
        NULL,
        "set -e; run='%s'; whole='%s'; step=%d\n"
        "[ -d \"$whole\" ] || mv \"$run\" \"$whole\"\n"
        "rm -rf \"$run\"; cp -r \"$whole\" \"$run\"; cd \"$run\"; rm -f DONE summary.txt\n"
        "name=$(printf step_%%06d $step); test -d checkpoints/$name; printf $name "
        ">checkpoints/latest\n"
        "for f in checkpoints/step_* rollouts/step_* validation/step_*; do\n"
        "  n=${f##*/step_}; n=${n%%%%.*}\n"
        "  if [ -e \"$f\" ] && [ \"$n\" -gt $step ]; then rm -r \"$f\"; fi\n"
        "done\n"
        "sed '/^{\"step\":'$step',/q' \"$whole\"/metrics.jsonl >metrics.jsonl",
        test_file(run), test_file(whole), step);
    return CHECK_EQ(rc, 0);
}

/* The rows of a JSON-lines file, in the arena. */
static const ares_json **rows_of(ares_arena *arena, const char *path, int64_t *n)
{
    ares_str text = { 0 };
    *n = 0;
    if (!CHECK_OK(ares_file_read(path, &text))) return NULL;
    const char *at = ares_arena_copy(arena, text.data, text.len), *end = at + text.len;
    const ares_json **rows = ares_arena_alloc(arena, (text.len + 1) * sizeof *rows);
    for (const char *line_end; at < end && (line_end = memchr(at, '\n', (size_t)(end - at)));
         at = line_end + 1)
        if (CHECK_OK(ares_json_parse(arena, (ares_view){ at, (size_t)(line_end - at) }, path,
                                     &rows[*n])))
            ++*n;
    ares_str_fini(&text);
    return rows;
}

static const char *in_run(const char *run, const char *file)
{
    char name[300];
    snprintf(name, sizeof name, "%s/%s", run, file);
    return test_file(name);
}

const ares_json **e2e_rows(ares_arena *arena, const char *run, const char *file, int64_t *n)
{
    return rows_of(arena, in_run(run, file), n);
}

double e2e_number(const ares_json *row, const char *key)
{
    const ares_json *v = ares_json_get(row, key);
    return v && v->type != ARES_JSON_NULL ? v->number : NAN;
}

double e2e_metric(const char *run, int64_t step, const char *name)
{
    ares_arena arena = { 0 };
    double value = NAN;
    int64_t n, at;
    const ares_json **rows = rows_of(&arena, in_run(run, "metrics.jsonl"), &n);
    for (int64_t i = 0; i < n; i++) {
        const ares_json *v = ares_json_get(rows[i], name);
        if (ares_json_get_i64(rows[i], "step", -1, &at) == ARES_OK && at == step && v)
            value = v->number;
    }
    ares_arena_fini(&arena);
    return value;
}

void e2e_values(const char *file, const char *key, ares_str *out)
{
    ares_arena arena = { 0 };
    int64_t n;
    const ares_json **rows = rows_of(&arena, test_file(file), &n);
    ares_str_add_char(out, ' '); /* so that data is not NULL where there is no row */
    ares_str_clear(out);
    for (int64_t i = 0; i < n; i++) {
        const ares_json *v = ares_json_get(rows[i], key);
        ares_str_add_char(out, ' ');
        if (v && v->type == ARES_JSON_STRING) ares_str_add_view(out, v->text);
        else if (v) ares_json_write(out, v);
    }
    ares_arena_fini(&arena);
}

bool e2e_of_speed(ares_view key)
{
    return ares_view_starts(key, ARES_VIEW("timing_")) ||
           ares_view_starts(key, ARES_VIEW("timing_per_token_ms/")) ||
           ares_view_starts(key, ARES_VIEW("perf/")) ||
           ares_view_starts(key, ARES_VIEW("dist/")) || /* none with one rank */
           (key.len > 6 && memcmp(key.data + key.len - 6, "/own_s", 6) == 0) || /* of programs */
           ares_view_is(key, "rollout/forward_passes") ||
           ares_view_is(key, "rollout/drafted_tokens") ||
           ares_view_is(key, "rollout/accepted_tokens") ||
           ares_view_is(key, "rollout/draft_accept_frac") ||
           ares_view_is(key, "rollout/preemptions") || ares_view_is(key, "rollout/graph_steps") ||
           ares_view_is(key, "rollout/refused_graphs");
}

/* Counts the metrics of x that y has with the same value, except those of e2e_of_speed. */
static int64_t within(const ares_json *x, const ares_json *y, const char *run, const char *other,
                      int64_t row)
{
    int64_t n = 0;
    for (int64_t k = 0; k < x->count; k++) {
        ares_view key = x->members[k].key;
        if (e2e_of_speed(key)) continue;
        const ares_json *mine = x->members[k].value, *v = ares_json_find(y, key);
        if (v)
            CHECK_MSG(v->number == mine->number, "row %lld: %.*s is %.17g in %s, %.17g in %s",
                      (long long)row, (int)key.len, key.data, mine->number, run, v->number, other);
        else
            CHECK_MSG(v, "row %lld: %.*s is in %s alone, not in %s", (long long)row, (int)key.len,
                      key.data, run, other);
        n += v && v->number == mine->number;
    }
    return n;
}

static int64_t members(const ares_json *x)
{
    int64_t n = 0;
    for (int64_t k = 0; k < x->count; k++) n += !e2e_of_speed(x->members[k].key);
    return n;
}

static bool same_metrics(const char *a, const char *b)
{
    ares_arena arena = { 0 };
    int64_t n, m, compared = 0;
    const ares_json **x = rows_of(&arena, in_run(a, "metrics.jsonl"), &n),
                    **y = rows_of(&arena, in_run(b, "metrics.jsonl"), &m);
    bool same = CHECK_EQ(n, m);
    for (int64_t i = 0; i < n && same; i++) {
        int64_t both = within(x[i], y[i], a, b, i), other = members(y[i]);
        same = both == members(x[i]) && both == other;
        if (both < other) within(y[i], x[i], b, a, i); /* to name the metric that differs */
        compared += both;
    }
    same = same && CHECK(compared > 5 * n);
    ares_arena_fini(&arena);
    return same;
}

/* Whether a folder of two runs has the same files with the same bytes. */
static bool same_files(const char *a, const char *b, const char *folder)
{
    ares_str out = { 0 };
    bool same = test_shell(&out, "diff -rq '%s' '%s'", in_run(a, folder), in_run(b, folder)) == 0;
    CHECK_MSG(same, "%s", out.data ? out.data : "");
    ares_str_fini(&out);
    return same;
}

bool e2e_same_runs(const char *a, const char *b, int step)
{
    char checkpoint[64];
    snprintf(checkpoint, sizeof checkpoint, "checkpoints/step_%06d", step);
    bool same = same_metrics(a, b);
    same = same_files(a, b, checkpoint) && same;
    bool rollouts =
        ares_dir_exists(in_run(a, "rollouts")) || ares_dir_exists(in_run(b, "rollouts"));
    return (!rollouts || same_files(a, b, "rollouts")) && same;
}

/* drop: a program of sed for each row */
static bool same_rows(const char *a, const char *b, int step, const char *drop)
{
    char file[64];
    snprintf(file, sizeof file, "rollouts/step_%06d.jsonl", step);
    return test_shell(NULL,
                      "cd '%s' && sed -E '%s' '%s' | sort > rows_a && sed -E '%s' '%s' | sort > "
                      "rows_b && test -s rows_a && cmp rows_a rows_b",
                      test_dir(), drop, in_run(a, file), drop, in_run(b, file)) == 0;
}

bool e2e_same_rollouts(const char *a, const char *b, int step)
{
    return same_rows(a, b, step, "");
}

bool e2e_same_samples(const char *a, const char *b, int step)
{
    return same_rows(a, b, step,
                     "s/,\"(ratio|kl)\":\\[[^]]*\\]//g; "
                     "s/,\"clipped\":\\[(\\[[0-9,]*\\],?)*\\]//");
}

const char *const e2e_shared[E2E_SHARED] = {
    "worker.actor.fsdp.fsdp_size=1 worker.critic.fsdp.fsdp_size=1", "",
    ("worker.actor.fsdp.enable_full_shard=true worker.critic.fsdp.enable_full_shard=true "
     "worker.ref.fsdp.enable_full_shard=true")
};

bool e2e_has_mpi(void)
{
    return test_shell(NULL, "command -v mpirun && ldd '%s' | grep libmpi", test_program()) == 0;
}
