/*
 * The reward manager: entries of worker.reward.rewards, each a built-in verifier or a user's
 * process, added up by weight. Built-ins run on the pool's idle threads while others decode; users'
 * processes work beside us and are asked for their answers at the end. What metrics count is added
 * up by ares_reward_wait, in the order of submission.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "reward_function.h"
#include "tally.h"

ARES_OPTION_TABLE(ares_reward_options, ares_reward_config, ARES_REWARD_OPTIONS);

#define ENTRY_OPTIONS(X)                                                                        \
    X(text, name, "name", "null", "",                                                           \
      "a built-in verifier; with function or command: what metrics call it")                    \
    X(f64, weight, "weight", "1.0", "", "factor of its score")                                  \
    X(text, function, "function", "null", "nonempty",                                           \
      "FILE.so:SYMBOL, a C function of the user's (examples/reward_function)")                  \
    X(texts, command, "command", "[]", "",                                                      \
      "program and arguments: a JSON line in, a JSON line out (examples/reward_command)")       \
    X(f64, timeout_s, "timeout_s", "10", "(0,)", "function and command: time for one response") \
    X(i64, memory_mb, "memory_mb", "4096", "[16,)", "function and command: address space")      \
    X(f64, failure_score, "failure_score", "0.0", "",                                           \
      "score of a response that could not be judged: bad ground truth, a failed process")
ARES_OPTION_STRUCT(entry_options, ENTRY_OPTIONS);
static ARES_OPTION_TABLE(entry_table, entry_options, ENTRY_OPTIONS);

typedef struct entry {
    entry_options o;
    ares_judge *judge; /* or */
    reward_child *child;
    char *name;
} entry;

/* What one judge said of one response. */
typedef struct verdict {
    double score, plain, accuracy;
    const char *judged_by;
    char *why; /* it failed */
    bool no_answer, exhausted;
    ares_verify_value *values;
    int n_values;
} verdict;

typedef struct job {
    struct ares_reward *owner;
    ares_reward_item *item;
    reward_call *calls; /* [entries], of the users' ones */
    verdict *verdicts;  /* [entries + 1], the last of worker.reward.accuracy */
} job;

struct ares_reward {
    ares_reward_config cfg;
    int64_t max_length; /* ares_reward_max_length */
    ares_pool *pool;
    entry *entries;
    int n;
    bool users; /* an entry is a process */
    /* whose accuracy counts; -1: the first that says something, or accuracy_judge's */
    int accuracy_entry;
    ares_judge *accuracy_judge;
    job **jobs;
    int64_t n_jobs, cap;
    tally *tally;
    ares_str line;
};

/* ---------------------------------------------------------------- opening */
static void open_builtin(ares_config *cfg, const char *path, entry *e)
{
    void *options;
    if (!e->o.name) {
        ares_config_fault(cfg, path,
                          "an entry needs a name (a built-in verifier), a function or a command");
        return;
    }
    if (ares_judge_new(e->o.name, &e->judge) != ARES_OK) {
        char named[80]; /* the fault names the option and its value itself */
        snprintf(named, sizeof named, "%s.name", path);
        const char *why = strstr(ares_error_message(), "': ");
        ares_config_fault(cfg, named, "%s", why ? why + 3 : ares_error_message());
        return;
    }
    ares_option_table *table = ares_judge_options(e->judge, &options);
    if (table) ares_config_bind(cfg, path, table, options);
    ares_judge_check(e->judge, cfg, path);
}

static void open_child(ares_config *cfg, const char *path, entry *e)
{
    char **argv = ares_calloc((size_t)e->o.command.count + 6, sizeof *argv);
    int n = 0;
    if (e->o.function) {
        const char *colon = strrchr(e->o.function, ':');
        char *file = ares_strdup(e->o.function);
        if (colon) file[colon - e->o.function] = 0;
        if (!colon || !colon[1])
            ares_config_fault(cfg, path, "function = '%s': write FILE.so:SYMBOL", e->o.function);
        else if (!ares_file_exists(file))
            ares_config_fault(cfg, path, "function = '%s': no such file", e->o.function);
        argv[n++] = ares_strdup("/proc/self/exe");
        argv[n++] = ares_strdup("__reward");
        argv[n++] = file;
        argv[n++] = ares_strdup(colon ? colon + 1 : "");
    }
    for (int64_t i = 0; i < e->o.command.count; i++) argv[n++] = ares_strdup(e->o.command.items[i]);
    if (e->o.function && e->o.command.count)
        ares_config_fault(cfg, path, "function and command exclude each other");
    if (e->o.function && n > 0) {
        /* the path of this program, which a child could not find under /proc/self */
        char self[4096];
        ssize_t length = readlink(argv[0], self, sizeof self - 1);
        if (length > 0) {
            self[length] = 0;
            ares_free(argv[0]);
            argv[0] = ares_strdup(self);
        }
    }
    reward_child_options o = { .name = e->name,
                               .argv = argv,
                               .timeout_s = e->o.timeout_s,
                               .memory_bytes = ARES_MIN(e->o.memory_mb, INT64_MAX >> 20) << 20 };
    e->child = reward_child_new(&o);
    for (int i = 0; i < n; i++) ares_free(argv[i]);
    ares_free(argv);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void open_entry(ares_config *cfg, const char *path, entry *e)
{
    ares_config_bind(cfg, path, entry_table, &e->o);
    bool user = e->o.function || e->o.command.count;
    e->name = ares_strdup(e->o.name            ? e->o.name
                          : e->o.function      ? base_name(e->o.function)
                          : e->o.command.count ? base_name(e->o.command.items[0])
                                               : "unnamed");
    if (user) open_child(cfg, path, e);
    else open_builtin(cfg, path, e);
}

/* worker.reward.reward_function: one entry, whose options are reward_function_kwargs. */
static void open_function(ares_config *cfg, const ares_reward_config *rc, entry *e)
{
    void *options;
    const char *name = reward_function_verifier(cfg, rc);
    *e = (entry){ .o = { .weight = 1 }, .name = ares_strdup(name ? name : "unnamed") };
    if (!name) return;
    int opened = ares_judge_new(name, &e->judge);
    ARES_ASSERT(opened == ARES_OK);
    ares_option_table *table = ares_judge_options(e->judge, &options);
    if (table) ares_config_bind(cfg, "worker.reward.reward_function_kwargs", table, options);
    ares_judge_check(e->judge, cfg, "worker.reward.reward_function_kwargs");
}

/* Nothing is said: the response is the ground truth, or it is not. */
static void open_default(entry *e)
{
    *e = (entry){ .o = { .weight = 1 }, .name = ares_strdup("exact") };
    int rc = ares_judge_new(e->name, &e->judge);
    ARES_ASSERT(rc == ARES_OK);
    ares_judge_use_defaults(e->judge);
}

static bool wants_length(const ares_reward_config *rc)
{
    return rc->safe_length != ARES_NULL_I64 || !ares_is_null_f64(rc->len_reward_penalty);
}

/* DAPO's keys, as the entry {name: length, ...} that they stand for (dapo.md 6.1). */
static void open_length(ares_config *cfg, const ares_reward_config *rc, entry *e, bool twice)
{
    void *options;
    *e = (entry){ .o = { .weight = 1 }, .name = ares_strdup("length") };
    int rc_new = ares_judge_new(e->name, &e->judge);
    ARES_ASSERT(rc_new == ARES_OK);
    ares_judge_use_defaults(e->judge);
    (void)ares_judge_options(e->judge, &options);
    ares_length_options *o = options;
    if (rc->safe_length != ARES_NULL_I64) o->safe_length = rc->safe_length;
    if (rc->max_length != ARES_NULL_I64) o->max_length = rc->max_length;
    if (!ares_is_null_f64(rc->len_reward_penalty)) o->len_reward_penalty = rc->len_reward_penalty;
    if (o->safe_length >= o->max_length)
        ares_config_fault(cfg, "worker.reward.safe_length",
                          "not below max_length = %lld; between the two the penalty grows",
                          (long long)o->max_length);
    if (twice)
        ares_config_fault(
            cfg, rc->reward_function ? "worker.reward.reward_function" : "worker.reward.rewards",
            "worker.reward.safe_length and len_reward_penalty add {name: length} themselves; "
            "leave the penalty of length here out, or them");
}

static bool of_length(const entry *e)
{
    int64_t limit;
    return e->judge && ares_judge_limit(e->judge, &limit);
}

/* One limit of length, wherever it stands: two that differ are a fault. */
static void find_limit(ares_config *cfg, ares_reward *r)
{
    char path[64], first[64] = "worker.reward.max_length";
    int64_t limit;
    r->max_length = r->cfg.max_length;
    for (int i = 0; i < r->n; i++) {
        if (!r->entries[i].judge || !ares_judge_limit(r->entries[i].judge, &limit)) continue;
        if (r->cfg.reward_function)
            snprintf(path, sizeof path, "worker.reward.reward_function_kwargs");
        else snprintf(path, sizeof path, "worker.reward.rewards.%d", i);
        if (r->max_length == ARES_NULL_I64) memcpy(first, path, sizeof first);
        else if (r->max_length != limit)
            ares_config_fault(cfg, path,
                              "ends at %lld tokens, and %s at %lld; there is one limit of length, "
                              "so give both the same",
                              (long long)limit, first, (long long)r->max_length);
        if (r->max_length == ARES_NULL_I64) r->max_length = limit;
    }
}

int64_t ares_reward_max_length(const ares_reward *r)
{
    return r->max_length;
}

static void open_accuracy(ares_config *cfg, ares_reward *r)
{
    r->accuracy_entry = -1;
    if (!r->cfg.accuracy) return;
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->entries[i].name, r->cfg.accuracy) == 0) r->accuracy_entry = i;
    if (r->accuracy_entry >= 0) return;
    if (ares_judge_new(r->cfg.accuracy, &r->accuracy_judge) == ARES_OK) {
        ares_judge_use_defaults(r->accuracy_judge);
        return;
    }
    const char *why = strstr(ares_error_message(), "': ");
    ares_config_fault(cfg, "worker.reward.accuracy", "%s", why ? why + 3 : ares_error_message());
}

int ares_reward_open(ares_config *cfg, const ares_reward_config *rc, ares_pool *pool,
                     ares_reward **out)
{
    static const ares_json none = { .type = ARES_JSON_NULL };
    *out = NULL;
    ares_reward *r = ares_calloc(1, sizeof *r);
    const ares_json *list = rc->rewards ? rc->rewards : &none;
    bool given = list->type != ARES_JSON_NULL;
    r->cfg = *rc;
    r->pool = pool;
    r->tally = tally_new();
    r->n = given ? (int)list->count : 1;
    r->entries = ares_calloc((size_t)r->n + 2, sizeof *r->entries);
    if (rc->reward_function && given)
        ares_config_fault(cfg, "worker.reward.rewards",
                          "worker.reward.reward_function says what is rewarded; set one of them");
    else if (rc->reward_function) open_function(cfg, rc, &r->entries[0]);
    else if (!given) open_default(&r->entries[0]);
    else if (r->n == 0)
        ares_config_fault(cfg, "worker.reward.rewards",
                          "no reward; name one, as in [{name: exact}]");
    for (int i = 0; i < r->n && given; i++) {
        char path[64];
        snprintf(path, sizeof path, "worker.reward.rewards.%d", i);
        if (list->items[i].type != ARES_JSON_OBJECT)
            ares_config_fault(cfg, path, "an entry is a map, as in {name: exact, weight: 1}");
        else open_entry(cfg, path, &r->entries[i]);
        r->users = r->users || r->entries[i].child;
    }
    if (wants_length(rc)) {
        bool twice = false;
        for (int i = 0; i < r->n; i++) twice = twice || of_length(&r->entries[i]);
        open_length(cfg, rc, &r->entries[r->n++], twice);
    }
    if (ares_config_fault_count(cfg) == 0) open_accuracy(cfg, r);
    if (ares_config_fault_count(cfg) == 0) find_limit(cfg, r);
    int failed = ares_config_finish(cfg);
    if (failed != ARES_OK) {
        ares_reward_close(r);
        return failed;
    }
    *out = r;
    return ARES_OK;
}

static void free_job(job *j)
{
    for (int i = 0; i <= j->owner->n; i++) {
        ares_free(j->verdicts[i].why);
        ares_free(j->verdicts[i].values);
    }
    ares_free(j->verdicts);
    ares_free(j->calls);
    ares_free(j);
}

void ares_reward_close(ares_reward *r)
{
    if (!r) return;
    ares_pool_drain(r->pool); /* a run that ends early may have responses that nobody waited for */
    for (int64_t k = 0; k < r->n_jobs; k++) free_job(r->jobs[k]);
    for (int i = 0; i < r->n; i++) {
        ares_judge_free(r->entries[i].judge);
        ares_free(r->entries[i].name);
        reward_child_free(r->entries[i].child);
    }
    ares_judge_free(r->accuracy_judge);
    ares_free(r->entries);
    ares_free(r->jobs);
    tally_free(r->tally);
    ares_str_fini(&r->line);
    ares_free(r);
}

int ares_reward_count(const ares_reward *r)
{
    return r->n;
}
const char *ares_reward_name(const ares_reward *r, int i)
{
    return r->entries[i].name;
}

/* ---------------------------------------------------------------- judging */
static void run(const ares_judge *judge, const ares_reward_item *item, verdict *v)
{
    ares_verify_out out = { .accuracy = NAN, .plain = NAN };
    if (ares_judge_run(judge, &item->in, &out) != ARES_OK)
        v->why = ares_strdup(ares_error_message());
    v->score = out.score;
    v->plain = isnan(out.plain) ? out.score : out.plain;
    v->accuracy = out.accuracy;
    v->judged_by = out.judged_by ? out.judged_by : ares_judge_name(judge);
    v->no_answer = out.no_answer;
    v->exhausted = out.exhausted;
    v->n_values = v->why ? 0 : out.n_values;
    if (v->n_values) {
        v->values = ares_malloc((size_t)v->n_values * sizeof *v->values);
        memcpy(v->values, out.values, (size_t)v->n_values * sizeof *v->values);
    }
    ares_str_fini(&out.details);
}

/* An empty response shows what is wrong with the row, whatever the response. */
static int check_row(const ares_judge *judge, const ares_row *row)
{
    ares_verify_out out = { .accuracy = NAN };
    ares_verify_in in = { .response = ARES_VIEW(""),
                          .ground_truth = row->ground_truth,
                          .prompt = row->prompt_text,
                          .stopped = true,
                          .row = row->json };
    int rc = ares_judge_run(judge, &in, &out);
    ares_str_fini(&out.details);
    if (rc != ARES_ECONFIG) return ares_error_clear(), ARES_OK;
    const char *why = ares_error_message();
    if (strncmp(why, "reward: ", 8) == 0) why += 8;
    return ares_fail(ARES_EFORMAT, "data: %s:%lld: %s", row->file, (long long)row->line, why);
}

int ares_reward_check_rows(const ares_reward *r, const ares_dataset *d)
{
    for (int64_t k = 0; k < ares_dataset_count(d); k++) {
        const ares_row *row = ares_dataset_row(d, k);
        for (int i = 0; i < r->n; i++)
            if (r->entries[i].judge) ARES_TRY(check_row(r->entries[i].judge, row));
        if (r->accuracy_judge) ARES_TRY(check_row(r->accuracy_judge, row));
    }
    return ARES_OK;
}

static void judge(void *ctx)
{
    job *j = ctx;
    const ares_reward *r = j->owner;
    for (int i = 0; i < r->n; i++)
        if (r->entries[i].judge) run(r->entries[i].judge, j->item, &j->verdicts[i]);
    if (r->accuracy_judge) run(r->accuracy_judge, j->item, &j->verdicts[r->n]);
}

/* What a user's process reads: the texts, and the row they belong to. */
static void write_line(ares_reward *r, const ares_verify_in *in)
{
    ares_str *s = &r->line;
    ares_str_clear(s);
    ares_str_add_z(s, "{\"response\":");
    ares_json_write_string(s, in->response);
    ares_str_add_z(s, ",\"ground_truth\":");
    ares_json_write_string(s, in->ground_truth);
    ares_str_add_z(s, ",\"prompt\":");
    ares_json_write_string(s, in->prompt);
    ares_str_addf(s, ",\"finished\":%s,\"row\":", in->stopped ? "true" : "false");
    if (in->row) ares_json_write(s, in->row);
    else ares_str_add_z(s, "null");
    ares_str_add_char(s, '}');
}

void ares_reward_submit(ares_reward *r, ares_reward_item *item)
{
    if (r->n_jobs == r->cap) {
        r->cap = r->cap * 2 + 256;
        r->jobs = ares_realloc(r->jobs, (size_t)r->cap * sizeof *r->jobs);
    }
    job *j = ares_calloc(1, sizeof *j);
    *j = (job){ .owner = r,
                .item = item,
                .calls = ares_calloc((size_t)r->n + 1, sizeof *j->calls),
                .verdicts = ares_calloc((size_t)r->n + 1, sizeof *j->verdicts) };
    item->accuracy = NAN;
    item->failed = false;
    r->jobs[r->n_jobs++] = j;
    bool builtins = r->accuracy_judge != NULL;
    for (int i = 0; i < r->n; i++) builtins = builtins || r->entries[i].judge;
    if (r->users) write_line(r, &item->in);
    for (int i = 0; i < r->n && r->users; i++)
        if (r->entries[i].child)
            reward_child_send(r->entries[i].child, ares_str_view(&r->line), &j->calls[i]);
    if (builtins) ares_pool_post(r->pool, judge, j);
}

/* ---------------------------------------------------------------- the answers */
/* A failure costs one score and is told, the first three of a step by name. */
static void fail(ares_reward *r, job *j, const char *name, const char *why, double score,
                 int64_t *told)
{
    j->item->failed = true;
    tally_add(r->tally, TALLY_TOTAL, 1, 1, "reward/failed/%s", name);
    bool placed = strncmp(why, "reward: ", 8) == 0; /* a verifier's message says so itself */
    if ((*told)++ < 3)
        ares_warn("%s%s%s%s; scored %g", placed ? "" : "reward: ", placed ? "" : name,
                  placed ? "" : ": ", why, score);
}

static void count(ares_reward *r, const verdict *v)
{
    tally_add(r->tally, TALLY_MEAN, v->score, 1, "reward/%s/mean", v->judged_by);
    if (!isnan(v->accuracy))
        tally_add(r->tally, TALLY_MEAN, v->accuracy, 1, "reward/%s/accuracy", v->judged_by);
    for (int i = 0; i < v->n_values; i++)
        tally_add(r->tally, TALLY_MEAN, v->values[i].sum, v->values[i].count, "%s",
                  v->values[i].name);
}

/* The answer of a user's process, as a verdict. */
static void hear(const entry *e, const reward_call *call, verdict *v)
{
    *v = (verdict){
        .score = call->score, .plain = call->score, .accuracy = call->accuracy, .judged_by = e->name
    };
    if (call->failed) v->why = ares_strdup(call->why);
}

/* worker.reward.correct, incorrect and scale (DAPO). A penalty of length stays as it is. */
static void set_worth(const ares_reward_config *c, verdict *v)
{
    bool correct = !ares_is_null_f64(c->correct), incorrect = !ares_is_null_f64(c->incorrect),
         scale = !ares_is_null_f64(c->scale);
    if ((!correct && !incorrect && !scale) || v->why || isnan(v->accuracy)) return;
    double worth =
               v->accuracy > 0.5 ? (correct ? c->correct : 1.0) : (incorrect ? c->incorrect : -1.0),
           penalty = v->score - v->plain;
    v->plain = worth * (scale ? c->scale : 1.0);
    v->score = v->plain + penalty;
}

static void add_up(ares_reward *r, job *j, int64_t *told)
{
    ares_reward_item *item = j->item;
    double score = 0, unshaped = 0;
    bool no_answer = false, exhausted = false;
    for (int i = 0; i <= r->n; i++) {
        const entry *e = i < r->n ? &r->entries[i] : NULL;
        verdict *v = &j->verdicts[i];
        if (!e && !r->accuracy_judge) break;
        if (e && e->child) hear(e, &j->calls[i], v);
        if (e) set_worth(&r->cfg, v);
        double failure_score = e ? e->o.failure_score : 0;
        if (v->why) fail(r, j, v->judged_by, v->why, failure_score, told);
        else count(r, v);
        bool decides =
            e ? (r->accuracy_entry == i || (r->accuracy_entry < 0 && !r->accuracy_judge)) : true;
        if (decides && !v->why && isnan(item->accuracy))
            item->accuracy =
                (float)(r->cfg.accuracy && isnan(v->accuracy) ? v->score : v->accuracy);
        no_answer = no_answer || v->no_answer;
        exhausted = exhausted || v->exhausted;
        if (!e) break;
        item->parts[i] = (float)(v->why ? failure_score : v->score);
        score += e->o.weight * (double)item->parts[i];
        unshaped += e->o.weight * (v->why ? failure_score : v->plain);
    }
    if (!item->in.stopped && !ares_is_null_f64(r->cfg.unfinished_score))
        score = unshaped = r->cfg.unfinished_score;
    item->score = (float)score;
    item->unshaped = (float)unshaped;
    tally_add(r->tally, TALLY_MEAN, no_answer, 1, "reward/extract_fail_rate");
    tally_add(r->tally, TALLY_TOTAL, exhausted, 1, "reward/exhausted");
}

void ares_reward_wait(ares_reward *r)
{
    bool timed_out = false;
    /* of what made the caller end early, who waits all the same */
    char *message = ares_strdup(ares_error_message());
    int64_t told = 0;
    for (int i = 0; i < r->n; i++)
        if (r->entries[i].child) reward_child_wait(r->entries[i].child, &timed_out);
    ares_pool_drain(r->pool);
    for (int i = 0; i < r->n; i++)
        tally_add(r->tally, TALLY_TOTAL, 0, 0, "reward/failed/%s", r->entries[i].name);
    for (int64_t k = 0; k < r->n_jobs; k++) {
        add_up(r, r->jobs[k], &told);
        free_job(r->jobs[k]);
    }
    r->n_jobs = 0;
    if (r->users) tally_add(r->tally, TALLY_NEVER, timed_out, 1, "reward/replayable");
    if (*message) ares_fail(ARES_ESTATE, "%s", message);
    ares_free(message);
}

int ares_reward_report(ares_reward *r, ares_world *w, const char *prefix, ares_metrics *m)
{
    return tally_report(r->tally, w, prefix, m);
}

/* ---------------------------------------------------------------- shaping */
static const ares_shaper *shaper_of(const entry *e)
{
    return e->judge ? ares_shaper_find(ares_judge_name(e->judge)) : NULL;
}

bool ares_reward_shapes(const ares_reward *r)
{
    bool any = false;
    for (int i = 0; i < r->n; i++) any = any || shaper_of(&r->entries[i]);
    return any;
}

double ares_reward_shaping(const ares_reward *r, const ares_sample *s)
{
    double added = 0;
    for (int e = 0; e < r->n; e++) {
        const ares_shaper *shaper = shaper_of(&r->entries[e]);
        if (shaper) added += r->entries[e].o.weight * shaper->shape(s);
    }
    return added;
}

/*
 * Right answers that score below the best wrong one of their group: shaping has turned the order
 * round.
 */
static void count_inverted(ares_reward *r, const ares_batch *b)
{
    double inverted = 0, right = 0;
    for (int64_t g = 0; g < b->groups; g++) {
        float best_wrong = -INFINITY;
        for (int64_t i = b->group_start[g]; i < b->group_start[g + 1]; i++)
            if (ares_batch_row_counts(b, i) && b->samples[i].accuracy < 1)
                best_wrong = fmaxf(best_wrong, b->samples[i].score);
        for (int64_t i = b->group_start[g]; i < b->group_start[g + 1]; i++) {
            if (!ares_batch_row_counts(b, i)) continue;
            right += b->samples[i].accuracy == 1;
            inverted += b->samples[i].accuracy == 1 && b->samples[i].score < best_wrong;
        }
    }
    tally_add(r->tally, TALLY_MEAN, inverted, right, "reward/inverted_frac");
}

void ares_reward_shape(ares_reward *r, ares_batch *b)
{
    if (!ares_reward_shapes(r)) return;
    for (int e = 0; e < r->n; e++) {
        const ares_shaper *shaper = shaper_of(&r->entries[e]);
        double sum = 0, count = 0;
        for (int64_t i = 0; i < b->rows && shaper; i++) {
            if (!ares_batch_row_counts(b, i)) continue;
            double added = shaper->shape(&b->samples[i]);
            b->samples[i].score += (float)(r->entries[e].o.weight * added);
            sum += added;
            count++;
        }
        if (shaper) tally_add(r->tally, TALLY_MEAN, sum, count, "%s", shaper->metric);
    }
    count_inverted(r, b);
}
