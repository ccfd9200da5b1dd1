/*
 * The reward manager: entries of worker.reward.rewards, each a built-in verifier or a user's process, added up by weight.
 * Built-ins run on the pool's idle threads while others decode; users' processes work beside us and are asked for their
 * answers at the end.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "child.h"

ARES_OPTION_TABLE(ares_reward_options, ares_reward_config, ARES_REWARD_OPTIONS)

#define ENTRY_OPTIONS(X)                                                                                                                \
    X(text, name, "name", "null", "", "a built-in verifier; with function or command: what metrics call it")                            \
    X(f64, weight, "weight", "1.0", "", "factor of its score")                                                                          \
    X(text, function, "function", "null", "nonempty", "FILE.so:SYMBOL, a C function of the user's (examples/reward_function)")          \
    X(texts, command, "command", "[]", "", "program and arguments: a JSON line in, a JSON line out (examples/reward_command)")          \
    X(f64, timeout_s, "timeout_s", "10", "(0,)", "function and command: time for one response")                                         \
    X(i64, memory_mb, "memory_mb", "4096", "[16,)", "function and command: address space")                                              \
    X(f64, failure_score, "failure_score", "0.0", "", "function and command: score of a response on which it failed")
ARES_OPTION_STRUCT(entry_options, ENTRY_OPTIONS);
static ARES_OPTION_TABLE(entry_table, entry_options, ENTRY_OPTIONS)

typedef struct entry {
    entry_options o;
    const ares_verifier *verifier;
    void *options;               /* the verifier's own */
    reward_child *child;
    char *name, *failed_metric;
} entry;

typedef struct job {
    struct ares_reward *owner;
    ares_reward_item *item;
    reward_call *calls;          /* [entries], of the users' ones */
    int rc;
    char *message;
} job;

struct ares_reward {
    ares_reward_config cfg;
    ares_pool *pool;
    entry *entries;
    int n;
    job **jobs;
    int64_t n_jobs, cap;
    ares_str line;
};

/* ---------------------------------------------------------------- opening */
static int open_builtin(ares_config *cfg, const char *path, entry *e)
{
    int n, i;
    const char *const *names = ares_verifier_names(&n);
    if (!e->o.name) {
        ares_config_fault(cfg, path, "an entry needs a name (a built-in verifier), a function or a command");
        return ARES_OK;
    }
    if (ares_lookup(ARES_ECONFIG, "", e->o.name, names, n, &i) != ARES_OK) {
        char named[80]; /* the fault names the option and its value itself */
        snprintf(named, sizeof named, "%s.name", path);
        const char *why = strstr(ares_error_message(), "': ");
        ares_config_fault(cfg, named, "%s", why ? why + 3 : ares_error_message());
        return ARES_OK;
    }
    e->verifier = ares_verifier_find(names[i]);
    e->options = ares_calloc(1, e->verifier->options_size + 1);
    if (e->verifier->options) ares_config_bind(cfg, path, e->verifier->options, e->options);
    if (e->verifier->check && e->verifier->check(e->options) != ARES_OK) ares_config_fault(cfg, path, "%s", ares_error_message());
    return ARES_OK;
}

static int open_child(ares_config *cfg, const char *path, entry *e)
{
    char **argv = ares_calloc((size_t)e->o.command.count + 6, sizeof *argv);
    int n = 0;
    if (e->o.function) {
        const char *colon = strrchr(e->o.function, ':');
        char *file = ares_strdup(e->o.function);
        if (colon) file[colon - e->o.function] = 0;
        if (!colon || !colon[1]) ares_config_fault(cfg, path, "function = '%s': write FILE.so:SYMBOL", e->o.function);
        else if (!ares_file_exists(file)) ares_config_fault(cfg, path, "function = '%s': no such file", e->o.function);
        argv[n++] = ares_strdup("/proc/self/exe");
        argv[n++] = ares_strdup("__reward");
        argv[n++] = file;
        argv[n++] = ares_strdup(colon ? colon + 1 : "");
    }
    for (int64_t i = 0; i < e->o.command.count; i++) argv[n++] = ares_strdup(e->o.command.items[i]);
    if (e->o.function && e->o.command.count) ares_config_fault(cfg, path, "function and command exclude each other");
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
    reward_child_options o = { .name = e->name, .argv = argv, .timeout_s = e->o.timeout_s, .memory_bytes = ARES_MIN(e->o.memory_mb, INT64_MAX >> 20) << 20 };
    e->child = reward_child_new(&o);
    for (int i = 0; i < n; i++) ares_free(argv[i]);
    ares_free(argv);
    return ARES_OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int open_entry(ares_config *cfg, const char *path, entry *e)
{
    ares_config_bind(cfg, path, entry_table, &e->o);
    bool user = e->o.function || e->o.command.count;
    const char *name = e->o.name ? e->o.name : e->o.function ? base_name(e->o.function) : e->o.command.count ? base_name(e->o.command.items[0]) : "unnamed";
    char metric[160];
    snprintf(metric, sizeof metric, "reward/failed/%s", name);
    e->name = ares_strdup(name);
    e->failed_metric = ares_strdup(metric);
    return user ? open_child(cfg, path, e) : open_builtin(cfg, path, e);
}

int ares_reward_open(ares_config *cfg, const ares_reward_config *rc, ares_pool *pool, ares_reward **out)
{
    *out = NULL;
    ares_reward *r = ares_calloc(1, sizeof *r);
    r->cfg = *rc;
    r->pool = pool;
    r->n = (int)rc->rewards->count;
    r->entries = ares_calloc((size_t)r->n + 1, sizeof *r->entries);
    if (r->n == 0) ares_config_fault(cfg, "worker.reward.rewards", "no reward; name one, as in [{name: exact}]");
    for (int i = 0; i < r->n; i++) {
        char path[64];
        snprintf(path, sizeof path, "worker.reward.rewards.%d", i);
        if (rc->rewards->items[i].type != ARES_JSON_OBJECT) ares_config_fault(cfg, path, "an entry is a map, as in {name: exact, weight: 1}");
        else open_entry(cfg, path, &r->entries[i]);
    }
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
    ares_free(j->calls);
    ares_free(j->message);
    ares_free(j);
}

void ares_reward_close(ares_reward *r)
{
    if (!r) return;
    ares_pool_drain(r->pool); /* a run that ends early may have responses that nobody waited for */
    for (int64_t k = 0; k < r->n_jobs; k++) free_job(r->jobs[k]);
    for (int i = 0; i < r->n; i++) {
        ares_free(r->entries[i].options);
        ares_free(r->entries[i].name);
        ares_free(r->entries[i].failed_metric);
        reward_child_free(r->entries[i].child);
    }
    ares_free(r->entries);
    ares_free(r->jobs);
    ares_str_fini(&r->line);
    ares_free(r);
}

int ares_reward_count(const ares_reward *r) { return r->n; }
const char *ares_reward_name(const ares_reward *r, int i) { return r->entries[i].name; }

/* ---------------------------------------------------------------- judging */
static void judge(void *ctx)
{
    job *j = ctx;
    const ares_reward *r = j->owner;
    for (int i = 0; i < r->n && j->rc == ARES_OK; i++) {
        const entry *e = &r->entries[i];
        if (!e->verifier) continue;
        ares_verify_in in = j->item->in;
        ares_verify_out out = { .accuracy = NAN };
        in.options = e->options;
        j->rc = e->verifier->verify(&in, &out);
        j->item->parts[i] = (float)out.score;
        if (isnan(j->item->accuracy)) j->item->accuracy = (float)out.accuracy;
        ares_str_fini(&out.details);
    }
    if (j->rc != ARES_OK) j->message = ares_strdup(ares_error_message());
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
    *j = (job){ .owner = r, .item = item, .calls = ares_calloc((size_t)r->n + 1, sizeof *j->calls) };
    item->accuracy = NAN;
    item->failed = false;
    r->jobs[r->n_jobs++] = j;
    bool users = false, builtins = false;
    for (int i = 0; i < r->n; i++) {
        users = users || r->entries[i].child;
        builtins = builtins || r->entries[i].verifier;
    }
    if (users) write_line(r, &item->in);
    for (int i = 0; i < r->n && users; i++)
        if (r->entries[i].child) reward_child_send(r->entries[i].child, ares_str_view(&r->line), &j->calls[i]);
    if (builtins) ares_pool_post(r->pool, judge, j);
}

/* Adds up one response, telling each failure of a user's reward once a step and counting all. */
static void add_up(ares_reward *r, job *j, int64_t *failures, int64_t *told)
{
    ares_reward_item *item = j->item;
    double score = 0;
    for (int i = 0; i < r->n; i++) {
        const entry *e = &r->entries[i];
        const reward_call *call = &j->calls[i];
        if (e->child) {
            item->parts[i] = (float)(call->failed ? e->o.failure_score : call->score);
            if (!call->failed && isnan(item->accuracy)) item->accuracy = (float)call->accuracy;
            if (call->failed) {
                item->failed = true;
                failures[i]++;
                if ((*told)++ < 3) ares_warn("reward: %s: %s; scored %g", e->name, call->why, e->o.failure_score);
            }
        }
        score += e->o.weight * (double)item->parts[i];
    }
    if (!item->in.stopped && !ares_is_null_f64(r->cfg.unfinished_score)) score = r->cfg.unfinished_score;
    item->score = (float)score;
}

int ares_reward_wait(ares_reward *r, ares_metrics *m)
{
    bool timed_out = false, users = false;
    int rc = ARES_OK;
    char *message = ares_strdup(ares_error_message()); /* of what made the caller end early, who waits all the same */
    double before;
    int64_t told = 0, *failures = ares_calloc((size_t)r->n + 1, sizeof *failures);
    for (int i = 0; i < r->n; i++) {
        users = users || r->entries[i].child;
        if (r->entries[i].child) reward_child_wait(r->entries[i].child, &timed_out);
    }
    ares_pool_drain(r->pool);
    for (int64_t k = 0; k < r->n_jobs; k++) {
        job *j = r->jobs[k];
        if (j->rc != ARES_OK && rc == ARES_OK) rc = ares_fail(j->rc, "%s", j->message);
        add_up(r, j, failures, &told);
        free_job(j);
    }
    r->n_jobs = 0;
    for (int i = 0; m && i < r->n; i++)
        if (r->entries[i].child) ares_metrics_add(m, r->entries[i].failed_metric, (double)failures[i]);
    if (m && users) ares_metrics_set(m, "reward/replayable", !timed_out && (!ares_metrics_get(m, "reward/replayable", &before) || before != 0));
    if (rc == ARES_OK && *message) ares_fail(ARES_ESTATE, "%s", message);
    ares_free(message);
    ares_free(failures);
    return rc;
}
