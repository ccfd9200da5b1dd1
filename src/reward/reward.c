/*
 * The reward manager: an answer's way from submission to its score. In order: running the
 * verifiers; from verdicts to scores and metrics; opening the entries of worker.reward.rewards;
 * opening and closing the manager; the table of shapers; shaping, which adds to the scores of a
 * whole batch.
 */
#include "internal.h"
#include "verifier.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Runs the judges. Built-in verifiers run on the pool's idle threads while other responses decode;
 * users' processes get a JSON line and are asked for their answers by ares_reward_wait.
 */

/*
 * What a verifier's details call the answer: its text, or "" where none was found. NULL: they do
 * not tell one. members: JSON members, or an object.
 */
static char *reward_answer_of(ares_view members)
{
    static const char *const names[] = { "pred", "extracted" };
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    const ares_json *all, *answer = NULL;
    bool object = members.len && members.data[0] == '{';
    if (!object) ares_str_add_char(&text, '{');
    ares_str_add_view(&text, members);
    if (!object) ares_str_add_char(&text, '}');
    if (ares_json_parse(&arena, ares_str_view(&text), "details", &all) == ARES_OK)
        for (int i = 0; i < ARES_COUNT(names) && !answer; i++)
            answer = ares_json_get(all, names[i]);
    else ares_error_clear();
    ares_str_clear(&text);
    if (answer && answer->type == ARES_JSON_STRING) ares_str_add_view(&text, answer->text);
    else if (answer && answer->type != ARES_JSON_NULL) ares_json_write(&text, answer);
    char *out = answer ? ares_strdup(text.data && text.len ? text.data : "") : NULL;
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return out;
}

/* The text that a process's answer has as its "feedback", in the arena; empty: none. */
static ares_view feedback_of(const char *said, ares_arena *arena)
{
    ares_arena parsed = { 0 };
    const ares_json *all, *text = NULL;
    ares_view out = { 0 };
    if (ares_json_parse(&parsed, ares_view_of(said), "answer", &all) == ARES_OK)
        text = ares_json_get(all, "feedback");
    else ares_error_clear();
    if (text && text->type == ARES_JSON_STRING)
        out =
            (ares_view){ ares_arena_copy(arena, text->text.data, text->text.len), text->text.len };
    ares_arena_fini(&parsed);
    return out;
}

/* name: what metrics call the judge, unless it hands the response on to another one (auto). */
static void judge_response(const ares_judge *judge, const char *name, const ares_reward_item *item,
                           reward_verdict *v)
{
    ares_verify_out out = { .accuracy = NAN, .plain = NAN };
    if (ares_judge_run(judge, &item->in, &out) != ARES_OK)
        v->failure = ares_strdup(ares_error_message());
    v->score = out.score;
    v->plain = isnan(out.plain) ? out.score : out.plain;
    v->accuracy = out.accuracy;
    v->judged_by = out.judged_by ? out.judged_by : name; /* `auto` names the one it chose */
    v->no_answer = out.no_answer;
    v->exhausted = out.exhausted;
    v->n_values = v->failure ? 0 : out.n_values;
    if (v->n_values) {
        v->values = ares_malloc((size_t)v->n_values * sizeof *v->values);
        memcpy(v->values, out.values, (size_t)v->n_values * sizeof *v->values);
    }
    if (item->asks_answer) v->answer = reward_answer_of(ares_str_view(&out.details));
    ares_str_fini(&out.details);
}

/* On a thread of the pool. */
static void run_verifiers(void *ctx)
{
    reward_job *j = ctx;
    const ares_reward *r = j->owner;
    for (int i = 0; i < r->n; i++) {
        const reward_entry *e = &r->entries[i];
        if (e->judge) judge_response(e->judge, e->name, j->item, &j->verdicts[i]);
    }
    if (r->accuracy_judge)
        judge_response(r->accuracy_judge, r->accuracy_judge->name, j->item, &j->verdicts[r->n]);
    reward_judged(&j->left);
}

/* Writes r->line, which a user's process reads: the texts, and the row they belong to. */
static void write_line(ares_reward *r, const ares_verify_in *in)
{
    ares_str *s = &r->line;
    ares_str_clear(s);
    ares_json_begin(s, '{');
    ares_json_write_string(ares_json_key(s, "response"), in->response);
    ares_json_write_string(ares_json_key(s, "ground_truth"), in->ground_truth);
    ares_json_write_string(ares_json_key(s, "prompt"), in->prompt);
    ares_json_write_bool(ares_json_key(s, "finished"), in->stopped);
    ares_json_write_i64(ares_json_key(s, "response_length"), in->response_tokens);
    if (r->tells_ids) {
        ares_json_begin(ares_json_key(s, "completion_ids"), '[');
        for (int64_t i = 0; i < in->response_tokens && in->ids; i++)
            ares_json_write_i64(s, in->ids[i]);
        ares_json_end(s, ']');
    }
    ares_json_key(s, "row");
    if (in->row) ares_json_write(s, in->row);
    else ares_json_write_null(s);
    ares_json_end(s, '}');
}

/* Jobs are allocated one by one: tasks of the pool hold pointers to them while the list grows. */
void ares_reward_submit(ares_reward *r, ares_reward_item *item)
{
    if (r->n_jobs == r->capacity) {
        r->capacity = r->capacity * 2 + 256;
        r->jobs = ares_realloc(r->jobs, (size_t)r->capacity * sizeof *r->jobs);
    }
    reward_job *j = ares_calloc(1, sizeof *j);
    *j = (reward_job){ .owner = r,
                       .item = item,
                       .calls = ares_calloc((size_t)r->n + 1, sizeof *j->calls),
                       .verdicts = ares_calloc((size_t)r->n + 1, sizeof *j->verdicts) };
    item->accuracy = NAN;
    item->failed = false;
    r->jobs[r->n_jobs++] = j;
    bool builtins = r->accuracy_judge != NULL;
    for (int i = 0; i < r->n; i++) {
        builtins = builtins || r->entries[i].judge;
        j->left += r->entries[i].child != NULL;
    }
    j->left += builtins; /* all verifiers of this process count as one, since one task runs them */
    if (r->users) write_line(r, &item->in);
    for (int i = 0; i < r->n && r->users; i++)
        if (r->entries[i].child)
            reward_child_send(r->entries[i].child, ares_str_view(&r->line), &j->calls[i], &j->left);
    if (builtins) ares_pool_post(r->pool, run_verifiers, j);
}

/* Frees a job with its verdicts, of which the last one is accuracy_judge's. */
static void reward_job_free(reward_job *j)
{
    for (int i = 0; i <= j->owner->n; i++) {
        ares_free(j->verdicts[i].failure);
        ares_free(j->verdicts[i].said);
        ares_free(j->verdicts[i].values);
        ares_free(j->verdicts[i].answer);
    }
    ares_free(j->verdicts);
    ares_free(j->calls);
    ares_free(j);
}

int ares_reward_try(ares_reward *r, const ares_row *row)
{
    const ares_verify_in in = { .response = row->ground_truth,
                                .ground_truth = row->ground_truth,
                                .prompt = row->prompt_text,
                                .stopped = true,
                                .row = row->json };
    int rc = ARES_OK;
    write_line(r, &in);
    for (int i = 0; i < r->n && rc == ARES_OK; i++) {
        reward_child *child = r->entries[i].child;
        reward_call call = { 0 };
        bool timed_out = false;
        if (!child) continue;
        reward_child_send(child, ares_str_view(&r->line), &call, NULL);
        reward_child_wait(&child, 1, &timed_out);
        if (call.failed)
            rc = ares_fail(ARES_ECHILD, "reward: %s: %s", r->entries[i].name, call.why);
        ares_free(call.said);
    }
    return rc;
}

/* ---------------- rows that no response can be judged on */

/*
 * Judges an empty response to the row, which shows what is wrong with the row itself. *judged: set
 * where the response has an accuracy.
 */
static int check_row(const ares_judge *judge, const ares_row *row, bool *judged)
{
    static const int32_t none;
    ares_verify_out out = { .accuracy = NAN };
    ares_verify_in in = { .response = ARES_VIEW(""),
                          .ground_truth = row->ground_truth,
                          .structured = row->structured,
                          .prompt = row->prompt_text,
                          .stopped = true,
                          .row = row->json,
                          .ids = &none };
    int rc = ares_judge_run(judge, &in, &out);
    ares_str_fini(&out.details);
    *judged = *judged || !isnan(out.accuracy);
    if (rc == ARES_OK) return ARES_OK;
    const char *reason = ares_error_message();
    if (strncmp(reason, "reward: ", 8) == 0) reason += 8;
    return ares_fail(ARES_EFORMAT, "data: %s:%lld: %s%s", row->file, (long long)row->line, reason,
                     rc == ARES_EFORMAT ? "; mend the row, or leave it out" : "");
}

bool ares_reward_reads_truth(const ares_reward *r)
{
    bool reads = r->accuracy_judge && judge_reads_truth(r->accuracy_judge);
    for (int i = 0; i < r->n; i++)
        reads = reads || (r->entries[i].judge ? judge_reads_truth(r->entries[i].judge)
                                              : r->cfg.reward_funcs.count == 0);
    return reads;
}

int ares_reward_check_rows(const ares_reward *r, const ares_dataset *d, bool need_accuracy)
{
    /* with worker.reward.accuracy, the score stands in where a verifier gives no accuracy */
    if (r->cfg.accuracy) need_accuracy = false;
    for (int64_t k = 0; k < ares_dataset_count(d); k++) {
        const ares_row *row = ares_dataset_row(d, k);
        bool judged = false;
        for (int i = 0; i < r->n; i++) {
            judged = judged || r->entries[i].child; /* a process may give one */
            if (r->entries[i].judge) ARES_TRY(check_row(r->entries[i].judge, row, &judged));
        }
        if (r->accuracy_judge) ARES_TRY(check_row(r->accuracy_judge, row, &judged));
        if (need_accuracy && !judged)
            return ares_fail(ARES_EFORMAT,
                             "data: %s:%lld: nothing says of its answers whether they are right, "
                             "and a filter of groups needs that; choose a verifier that judges it "
                             "in worker.reward.accuracy, or leave such rows out",
                             row->file, (long long)row->line);
    }
    return ARES_OK;
}

/*
 * Verdicts -> scores and metrics, by ares_reward_wait, in the order of submission, so that no sum
 * depends on which thread was faster.
 */

enum {
    MAX_WARNINGS = 3, /* failures of a step that are named one by one */
    MAX_FIELDS = 32   /* numbers of one entry that become metrics */
};

/* Counts a failure and warns of the first ones; the error of a signal is none. */
static void count_failure(ares_reward *r, reward_job *j, const reward_verdict *v, double score,
                          int64_t *warnings)
{
    tally_add(r->tally, TALLY_TOTAL, 1, 1, "reward/failed/%s", v->judged_by);
    /* a signal ends the run, and with it the processes: the response is not to blame */
    if (ares_signal_poll() != ARES_OK) return;
    j->item->failed = true;
    ares_str why = { 0 };
    if (strncmp(v->failure, "reward: ", 8) != 0) /* a verifier's message names it already */
        ares_str_addf(&why, "%s: %s", v->judged_by, v->failure);
    else ares_str_add_z(&why, v->failure + 8);
    ares_free(r->last_failure);
    r->last_failure = ares_strdup(why.data);
    if ((*warnings)++ < MAX_WARNINGS && r->discards) ares_warn("reward: %s; discarded", why.data);
    else if (*warnings <= MAX_WARNINGS) ares_warn("reward: %s; scored %g", why.data, score);
    ares_str_fini(&why);
}

/* The metrics of a verdict: mean score, accuracy, and the verifier's own values. */
static void count_verdict(ares_reward *r, const reward_verdict *v)
{
    if (v->abstains) return;
    tally_add(r->tally, TALLY_MEAN, v->score, 1, "reward/%s/mean", v->judged_by);
    if (!isnan(v->accuracy))
        tally_add(r->tally, TALLY_MEAN, v->accuracy, 1, "reward/%s/accuracy", v->judged_by);
    for (int k = 0; k < v->n_values; k++) {
        const ares_verify_value *part = &v->values[k];
        const char *name = part->name, *own = "";
        /* reward/format of aepo is reward/aepo/format where another entry is called format */
        if (strncmp(name, "reward/", 7) == 0) name += 7;
        for (int i = 0; i < r->n && name != part->name; i++)
            if (strcmp(r->entries[i].name, name) == 0 && strcmp(v->judged_by, name) != 0)
                own = v->judged_by;
        if (*own)
            tally_add(r->tally, TALLY_MEAN, part->sum, part->count, "reward/%s/%s", own, name);
        else tally_add(r->tally, TALLY_MEAN, part->sum, part->count, "%s", part->name);
    }
}

/* Whether a number that a user's process names is a metric; one entry has MAX_FIELDS of them. */
static bool is_metric(reward_entry *e, ares_view name)
{
    int64_t unused;
    bool printable = name.len > 0 && name.len <= 64;
    for (size_t i = 0; i < name.len && printable; i++)
        printable = name.data[i] > ' ' && name.data[i] < 0x7f;
    if (!printable || ares_view_is(name, "mean") || ares_view_is(name, "score") ||
        ares_view_is(name, "accuracy"))
        return false; /* the last three are counted of every verdict */
    if (!e->fields) e->fields = ares_map_new();
    if (ares_map_get(e->fields, name, &unused)) return true;
    int64_t n = ares_map_count(e->fields);
    if (n < MAX_FIELDS) ares_map_put(e->fields, name, n);
    else if (!e->told_fields)
        ares_warn("reward: %s: '%.*s' and other numbers beyond the first %d are no metrics; "
                  "rollouts/ has them all",
                  e->name, (int)name.len, name.data, MAX_FIELDS);
    e->told_fields = e->told_fields || n >= MAX_FIELDS;
    return n < MAX_FIELDS;
}

/* Adds the numbers, true and false of a process's answer to the metrics. */
static void count_fields(ares_reward *r, reward_entry *e, const char *said)
{
    ares_arena arena = { 0 };
    const ares_json *v;
    if (ares_json_parse(&arena, ares_view_of(said), e->name, &v) != ARES_OK) ares_error_clear();
    else
        for (int64_t i = 0; i < v->count; i++) {
            const ares_json *x = v->members[i].value;
            ares_view key = v->members[i].key;
            bool yes_or_no = x->type == ARES_JSON_BOOL;
            if (!yes_or_no && x->type != ARES_JSON_INT && x->type != ARES_JSON_FLOAT) continue;
            double value = yes_or_no ? x->boolean : x->number;
            if (isfinite(value) && is_metric(e, key))
                tally_add(r->tally, TALLY_MEAN, value, 1, "reward/%s/%.*s", e->name, (int)key.len,
                          key.data);
        }
    ares_arena_fini(&arena);
}

/* Writes item->details: for each entry what its process said, or why it could not judge. */
static void write_details(const ares_reward *r, const reward_job *j)
{
    ares_reward_item *item = j->item;
    ares_str out = { 0 };
    for (int i = 0; i < r->n; i++) {
        const reward_verdict *v = &j->verdicts[i];
        if (!v->failure && !v->said) continue;
        if (!out.len) ares_json_begin(&out, '{');
        ares_json_key(&out, r->entries[i].name);
        if (!v->failure) {
            ares_json_splice(&out, ares_view_of(v->said));
            continue;
        }
        ares_json_begin(&out, '{');
        ares_json_write_string(ares_json_key(&out, "failure"), ares_view_of(v->failure));
        ares_json_end(&out, '}');
    }
    if (out.len) ares_json_end(&out, '}');
    item->details = (ares_view){ 0 };
    if (out.len && item->arena)
        item->details = (ares_view){ ares_arena_copy(item->arena, out.data, out.len), out.len };
    ares_str_fini(&out);
}

/*
 * The score of a right or a wrong answer: worker.reward.correct, incorrect and scale in place of
 * the verifier's own (docs/dapo.md#reward-of-an-answer).
 */
static double reward_score(const ares_reward_config *c, bool right, double own)
{
    bool correct = !ares_is_null_f64(c->correct), incorrect = !ares_is_null_f64(c->incorrect),
         scale = !ares_is_null_f64(c->scale);
    if (!correct && !incorrect && !scale) return own;
    double worth = right ? (correct ? c->correct : 1.0) : (incorrect ? c->incorrect : -1.0);
    return worth * (scale ? c->scale : 1.0);
}

/* Adds the verdicts on a response up: its score, accuracy, details and metrics. */
static void add_up(ares_reward *r, reward_job *j, int64_t *warnings)
{
    ares_reward_item *item = j->item;
    double score = 0, unshaped = 0;
    bool no_answer = false, exhausted = false, scored = false;
    const char *answer = NULL;
    int verdicts = r->n + (r->accuracy_judge != NULL);
    for (int i = 0; i < r->n; i++) {
        const reward_call *call = &j->calls[i];
        if (!r->entries[i].child) continue;
        j->verdicts[i] =
            (reward_verdict){ .score = call->score,
                              .plain = call->score,
                              .accuracy = call->accuracy,
                              .judged_by = r->entries[i].name,
                              .said = call->said,
                              .abstains = call->abstains,
                              .failure = call->failed ? ares_strdup(call->why) : NULL };
    }
    for (int i = 0; i < r->n; i++) scored = scored || !j->verdicts[i].abstains;
    if (!scored && r->n) { /* an abstention leaves the score to others, and there are none */
        j->verdicts[0].abstains = false;
        j->verdicts[0].failure = ares_strdup("no reward has a score for the response");
    }
    for (int i = 0; i < verdicts; i++) {
        reward_entry *e = i < r->n ? &r->entries[i] : NULL;
        reward_verdict *v = &j->verdicts[i];
        if (e && !v->failure && !isnan(v->accuracy)) {
            /* judged: the configured score replaces its own; its penalty of length stays */
            double penalty = v->score - v->plain,
                   plain = reward_score(&r->cfg, v->accuracy > 0.5, v->plain);
            if (plain != v->plain) { /* else the sum could change the last bit of the score */
                v->plain = plain;
                v->score = plain + penalty;
            }
        }
        double failure_score = e && !ares_is_null_f64(e->o.failure_score) ? e->o.failure_score : 0;
        if (v->failure) count_failure(r, j, v, failure_score, warnings);
        else count_verdict(r, v);
        if (v->said) count_fields(r, e, v->said);
        if (item->asks_answer && v->said && !v->failure)
            v->answer = reward_answer_of(ares_view_of(v->said));
        if (v->answer && !answer) answer = v->answer; /* of the first that tells one */
        /* the accuracy of worker.reward.accuracy's verifier, or else the first that there is */
        bool decides =
            !e || r->accuracy_entry == i || (r->accuracy_entry < 0 && !r->accuracy_judge);
        if (decides && !v->failure && isnan(item->accuracy))
            item->accuracy =
                (float)(r->cfg.accuracy && isnan(v->accuracy) ? v->score : v->accuracy);
        no_answer = no_answer || v->no_answer;
        exhausted = exhausted || v->exhausted;
        if (!e) continue;
        item->parts[i] = v->abstains || (v->failure && r->discards)
                             ? NAN
                             : (float)(v->failure ? failure_score : v->score);
        if (v->abstains) continue;
        /* through f32, as parts[i] has it: the weighted sum of the parts is the score */
        score += e->o.weight * (double)(float)(v->failure ? failure_score : v->score);
        unshaped += e->o.weight * (v->failure ? failure_score : v->plain);
    }
    /* a response cut by length has this score, whatever its verdicts are */
    if (!item->in.stopped && !ares_is_null_f64(r->cfg.unfinished_score))
        score = unshaped = r->cfg.unfinished_score;
    /* parts are summed in double; the batch keeps f32 */
    item->score = (float)score;
    item->unshaped = (float)unshaped;
    write_details(r, j);
    item->answer = item->feedback = (ares_view){ 0 };
    for (int i = 0; i < r->n && item->arena && !item->feedback.len; i++) {
        const reward_verdict *v = &j->verdicts[i];
        if (v->said && !v->failure) item->feedback = feedback_of(v->said, item->arena);
    }
    if (answer && item->arena)
        item->answer =
            (ares_view){ ares_arena_copy(item->arena, answer, strlen(answer)), strlen(answer) };
    tally_add(r->tally, TALLY_MEAN, no_answer, 1, "reward/extract_fail_rate");
    tally_add(r->tally, TALLY_TOTAL, exhausted, 1, "reward/exhausted");
}

/* Waits for users' processes first: the pool goes on with the built-in verifiers meanwhile. */
void ares_reward_wait(ares_reward *r)
{
    bool timed_out = false;
    int64_t warnings = 0;
    /* a caller that failed waits too, and keeps its pending error */
    char *message = ares_strdup(ares_error_message());
    reward_child **children = ares_calloc((size_t)r->n + 1, sizeof(reward_child *));
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (r->entries[i].child) children[n++] = r->entries[i].child;
    reward_child_wait(children, n, &timed_out);
    ares_free(children);
    ares_pool_drain(r->pool);
    /* every step has the metric, also one without failures */
    for (int i = 0; i < r->n; i++)
        tally_add(r->tally, TALLY_TOTAL, 0, 0, "reward/failed/%s", r->entries[i].name);
    for (int64_t k = 0; k < r->n_jobs; k++) {
        add_up(r, r->jobs[k], &warnings);
        reward_job_free(r->jobs[k]);
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

/*
 * Opens the entries of worker.reward.rewards: built-in verifiers, users' processes, and the entries
 * that other options stand for (reward_function, safe_length).
 */

static ARES_OPTION_TABLE(entry_table, reward_entry_options, REWARD_ENTRY_OPTIONS);

/* ares_judge_new; a name that is no verifier's is a fault of the option at path. */
static int reward_open_judge(ares_config *cfg, const char *path, const char *name, ares_judge **out)
{
    int n, i;
    const char *const *names = ares_verifier_names(&n);
    size_t prefix = sizeof ARES_BOXED_PREFIX - 1;
    /* the names that are suggested for a misspelled one are without the prefix */
    const char *plain = strncmp(name, ARES_BOXED_PREFIX, prefix) == 0 ? name + prefix : name;
    int rc = ares_lookup(ARES_ECONFIG, NULL, plain, names, n, &i);
    if (rc == ARES_OK) return ares_judge_new(name, out);
    ares_config_fault(cfg, path, "%s", ares_error_message()); /* names the option and its value */
    return rc;
}

/* A built-in verifier with the entry's other options as its own. */
static void open_verifier(ares_config *cfg, const char *path, reward_entry *e)
{
    void *options;
    if (!e->o.name) {
        ares_config_fault(cfg, path,
                          "an entry needs a name (a built-in verifier), a function or a command");
        return;
    }
    char name_path[80];
    snprintf(name_path, sizeof name_path, "%s.name", path);
    if (reward_open_judge(cfg, name_path, e->o.name, &e->judge) != ARES_OK) return;
    ares_option_table *table = ares_judge_options(e->judge, &options);
    if (table) ares_config_bind(cfg, path, table, options);
    ares_judge_check(e->judge, cfg, path);
}

/* A user's process with the options of its entry; memory_mb 0: no limit. */
static reward_child *new_child(const reward_entry *e, char *const *argv, bool batch,
                               int64_t memory_mb)
{
    reward_child_options o = { .name = e->name,
                               .argv = argv,
                               .timeout_s = e->o.timeout_s,
                               .start_timeout_s = e->o.start_timeout_s,
                               .processes = e->o.processes,
                               .batch = batch,
                               .memory_bytes = ARES_MIN(memory_mb, INT64_MAX >> 20) << 20 };
    return reward_child_new(&o);
}

/* A command, or function: FILE.so:SYMBOL as `ares-train __reward FILE.so SYMBOL`. */
static void open_child(ares_config *cfg, const char *path, reward_entry *e)
{
    char **argv = ares_calloc((size_t)e->o.command.count + 5, sizeof *argv);
    const char *function = e->o.function;
    int n = 0;
    if (function) {
        const char *colon = strrchr(function, ':');
        char *file = ares_strdup(function), self[4096];
        if (colon) file[colon - function] = 0;
        if (!colon || !colon[1])
            ares_config_fault(cfg, path, "function = '%s': write FILE.so:SYMBOL", function);
        else if (!ares_file_exists(file))
            ares_config_fault(cfg, path, "function = '%s': no such file", function);
        /* this program by its path: a child would find itself under /proc/self */
        ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        self[ARES_MAX(length, 0)] = 0;
        argv[n++] = ares_strdup(length > 0 ? self : "/proc/self/exe");
        argv[n++] = ares_strdup("__reward");
        argv[n++] = file;
        argv[n++] = ares_strdup(colon ? colon + 1 : "");
    }
    for (int64_t i = 0; i < e->o.command.count; i++) argv[n++] = ares_strdup(e->o.command.items[i]);
    if (e->o.function && e->o.command.count)
        ares_config_fault(cfg, path, "function and command exclude each other");
    if (e->o.function && e->o.batch)
        ares_config_fault(cfg, path, "a C function is asked one by one; leave batch out");
    e->child =
        new_child(e, argv, e->o.batch, e->o.memory_mb == ARES_NULL_I64 ? 4096 : e->o.memory_mb);
    for (int i = 0; i < n; i++) ares_free(argv[i]);
    ares_free(argv);
}

/* ---------------- Python functions
 * share/python_reward.py, a command that speaks batches, calls them in the forms of verl, EasyR1
 * and TRL.
 */
/* FILE.py or FILE.py:NAME */
static bool is_python(const char *function)
{
    const char *colon = strrchr(function, ':');
    size_t n = colon ? (size_t)(colon - function) : strlen(function);
    return n > 3 && memcmp(function + n - 3, ".py", 3) == 0;
}

/* Whether reward/<name> is a metric of every run, so that no entry can have the name. */
static bool is_taken(const char *name)
{
    static const char *const taken[] = {
        "accuracy",  "overall", "batch_accuracy",    "accuracy_normalized", "empty_responses",
        "exhausted", "failed",  "extract_fail_rate", "inverted_frac",       "replayable"
    };
    bool found = false;
    for (int i = 0; i < ARES_COUNT(taken); i++) found = found || strcmp(name, taken[i]) == 0;
    return found;
}

/* What a line NAME = "text" of a module says, as EasyR1's REWARD_NAME; NULL: there is none. */
static char *constant_of(ares_view source, const char *name)
{
    const char *end = source.data + source.len, *next;
    for (const char *p = source.data; p < end; p = next) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        next = stop + 1;
        size_t n = strlen(name);
        if ((size_t)(stop - p) < n || memcmp(p, name, n) != 0) continue;
        for (p += n; p < stop && *p == ' ';) p++; /* NAME = "text" with any blanks */
        if (p == stop || *p++ != '=') continue;
        while (p < stop && *p == ' ') p++;
        const char *quote = p < stop && strchr("'\"", *p) ? p : NULL,
                   *close = quote ? memchr(quote + 1, *quote, (size_t)(stop - quote - 1)) : NULL;
        if (!close || close == quote + 1) continue;
        char *text = ares_calloc((size_t)(close - quote), 1);
        memcpy(text, quote + 1, (size_t)(close - quote - 1));
        return text;
    }
    return NULL;
}

/*
 * The name of a function of Python in metrics, where no option gives one: its module's REWARD_NAME,
 * else its own, else, of those that most files have, the file's.
 */
static char *python_name(const char *file, const char *function, ares_view source)
{
    char *said = constant_of(source, "REWARD_NAME");
    if (said && !strpbrk(said, "/ \t") && !is_taken(said)) return said;
    ares_free(said);
    bool usual = !*function || strcmp(function, "compute_score") == 0 ||
                 strcmp(function, "main") == 0 || is_taken(function);
    if (!usual) return ares_strdup(function);
    char *stem = ares_strdup(ares_after_last(file, '/')), *end = strstr(stem, ".py");
    if (end && end != stem) *end = 0;
    if (!is_taken(stem)) return stem;
    ares_free(stem);
    return ares_strdup(ares_after_last(file, '/'));
}

/* What calls a function: FILE.py or MODULE, its NAME ("": the usual one), and how. */
typedef struct python_function {
    const char *file, *name, *form, *type;
    const ares_json *kwargs;
} python_function;

/* Starts share/python_reward.py with a function, whose file may say how metrics call it. */
static void open_python(ares_config *cfg, const char *path, ares_reward *r,
                        const python_function *f, reward_entry *e)
{
    ares_str kwargs = { 0 }, source = { 0 };
    char adapter[4200];
    ares_path_of_program(NULL, "python_reward.py", adapter, sizeof adapter);
    if (!ares_file_exists(adapter))
        ares_config_fault(cfg, path,
                          "no %s, which calls Python functions; it is built beside the program and "
                          "installed with it (cmake --install)",
                          adapter);
    if (is_python(f->file) && ares_file_read(f->file, &source) != ARES_OK) {
        ares_config_fault(cfg, path, "'%s': %s", f->file, ares_error_message());
        ares_error_clear();
    }
    if (!e->name) e->name = python_name(f->file, f->name, ares_str_view(&source));
    if (f->kwargs) ares_json_write(&kwargs, f->kwargs);
    const char *words[] = { r->cfg.python,
                            adapter,
                            f->file,
                            f->name,
                            "--form",
                            f->form,
                            "--kwargs",
                            kwargs.len ? kwargs.data : "{}",
                            f->type ? "--type" : NULL,
                            f->type,
                            NULL };
    if (ares_file_exists(adapter))
        e->child = new_child(e, (char *const *)(uintptr_t)words, true,
                             e->o.memory_mb == ARES_NULL_I64 ? 0 : e->o.memory_mb);
    r->calls_python = true;
    /* ids are long, and few functions read them: the file says whether this one does */
    r->tells_ids = r->tells_ids || !is_python(f->file) ||
                   ares_view_find(ares_str_view(&source), ARES_VIEW("completion_ids"), 0) >= 0;
    ares_str_fini(&kwargs);
    ares_str_fini(&source);
}

/* FILE.py:NAME as its parts, in memory of *file; without a name: fallback. */
static const char *split_function(const char *function, const char *fallback, char **file)
{
    *file = ares_strdup(function);
    char *colon = strrchr(*file, ':');
    if (!colon) return fallback ? fallback : "";
    *colon = 0;
    return colon + 1;
}

/*
 * The name of a command in metrics: the script's where an interpreter runs one, as in `python3
 * my_reward.py` or `uv run python -m judges.math`, else the program's.
 */
static char *command_name(const ares_texts *words)
{
    static const char *const interpreters[] = { "python", "pypy", "uv",    "env",  "sh",     "bash",
                                                "dash",   "zsh",  "node",  "deno", "bun",    "perl",
                                                "ruby",   "lua",  "julia", "php",  "Rscript" };
    const char *name = ares_after_last(words->items[0], '/');
    bool interpreted = false;
    for (int i = 0; i < ARES_COUNT(interpreters); i++)
        interpreted = interpreted || strncmp(name, interpreters[i], strlen(interpreters[i])) == 0;
    for (int64_t i = 1; i < words->count && interpreted; i++) {
        const char *word = words->items[i], *base = ares_after_last(word, '/'),
                   *dot = strrchr(base, '.');
        bool module = strcmp(words->items[i - 1], "-m") == 0;
        if (!*base || *word == '-' || strpbrk(word, " \t\n;|&$()<>") ||
            (!module && !(dot && dot != base && !isdigit((unsigned char)dot[1]))))
            continue;
        char *script = ares_strdup(base);
        if (!module) script[dot - base] = 0;
        return script;
    }
    return ares_strdup(name);
}

/* Whether DAPO's options ask for an entry {name: length}. */
static bool wants_length(const ares_reward_config *rc)
{
    return rc->safe_length != ARES_NULL_I64 || !ares_is_null_f64(rc->len_reward_penalty);
}

/*
 * What metrics call the i-th of reward_funcs: `name`, or, where that is taken, the word that the
 * option has, as "math.py.accuracy" of "a/math.py:accuracy".
 */
static char *function_name(ares_config *cfg, const char *path, const ares_reward *r, int i,
                           const char *name, const char *word)
{
    char *own = ares_strdup(name);
    for (int tries = 0;; tries++) {
        bool known = is_taken(own) || (wants_length(&r->cfg) && strcmp(own, "length") == 0);
        for (int k = 0; k < i; k++) known = known || strcmp(own, r->entries[k].name) == 0;
        if (!known) return own;
        if (tries) {
            ares_config_fault(cfg, path,
                              "'%s': another function is called '%s', too, and metrics are named "
                              "after functions; rename one of their files",
                              word, own);
            return own;
        }
        ares_free(own);
        own = ares_strdup(ares_after_last(word, '/'));
        char *colon = strrchr(own, ':');
        if (colon) *colon = '.';
    }
}

/* An entry of worker.reward.rewards: a verifier, a C or Python function, or a command. */
static void open_entry(ares_config *cfg, const char *path, ares_reward *r, reward_entry *e)
{
    ares_config_bind(cfg, path, entry_table, &e->o);
    bool user = e->o.function || e->o.command.count,
         python = e->o.function && is_python(e->o.function);
    if (e->o.as || e->o.name || !user)
        e->name = ares_strdup(e->o.as ? e->o.as : e->o.name ? e->o.name : "unnamed");
    else if (python) e->name = NULL; /* the file says */
    else if (e->o.function) e->name = ares_strdup(ares_after_last(e->o.function, '/'));
    else e->name = command_name(&e->o.command);
    if (python) {
        char *file;
        const char *name = split_function(e->o.function, NULL, &file);
        if (e->o.command.count)
            ares_config_fault(cfg, path, "function and command exclude each other");
        open_python(cfg, path, r, &(python_function){ file, name, e->o.form, NULL, e->o.kwargs },
                    e);
        ares_free(file);
    } else if (user) open_child(cfg, path, e);
    else {
        open_verifier(cfg, path, e);
        /* a printed configuration has these options with their defaults: they are no fault */
        reward_entry_options usual;
        ares_config *defaults = ares_config_new();
        ares_config_add_options(defaults, "", entry_table, &usual);
        ares_config_resolve(defaults);
        const char *option = e->o.timeout_s != usual.timeout_s               ? "timeout_s"
                             : e->o.start_timeout_s != usual.start_timeout_s ? "start_timeout_s"
                             : e->o.processes != usual.processes             ? "processes"
                             : e->o.batch != usual.batch                     ? "batch"
                             : e->o.memory_mb != usual.memory_mb             ? "memory_mb"
                                                                             : NULL;
        ares_config_free(defaults);
        if (option)
            ares_config_fault(
                cfg, path,
                "%s: has no effect: a verifier runs in this process, and only function "
                "and command start another; leave it out",
                option);
    }
    if (!python && (e->o.kwargs->count || strcmp(e->o.form, "auto") != 0))
        ares_config_fault(cfg, path, "kwargs and form are of Python functions; leave them out");
    if (r->discards && !ares_is_null_f64(e->o.failure_score))
        ares_config_fault(cfg, path,
                          "failure_score = %g: a response that could not be judged is discarded; "
                          "set worker.reward.on_failure=score, or leave failure_score out",
                          e->o.failure_score);
}

/* An entry without a map of options in the configuration: it takes the defaults. */
static void open_plain(char *name, reward_entry *e)
{
    ares_config *defaults = ares_config_new();
    ares_config_add_options(defaults, "", entry_table, &e->o);
    ares_config_resolve(defaults);
    e->o.form = NULL; /* texts, lists and maps end with the configuration */
    e->o.command = (ares_texts){ 0 };
    e->o.kwargs = NULL;
    ares_config_free(defaults);
    e->name = name; /* NULL: open_python asks the file */
}

/*
 * worker.reward.reward_function: a file of Python that is there is run; another published path, or
 * a name, is one entry whose options are reward_function_kwargs.
 */
static void open_reward_function(ares_config *cfg, ares_reward *r, reward_entry *e)
{
    static const char path[] = "worker.reward.reward_function";
    const ares_reward_config *rc = &r->cfg;
    void *options;
    char *file;
    const char *function = split_function(rc->reward_function, rc->reward_function_name, &file);
    if (is_python(rc->reward_function) && ares_file_exists(file)) {
        open_plain(NULL, e);
        open_python(cfg, path, r,
                    &(python_function){ file, function, "auto", rc->reward_type,
                                        rc->reward_function_kwargs },
                    e);
        ares_free(file);
        return;
    }
    ares_free(file);
    const char *name = reward_function_verifier(cfg, rc);
    *e = (reward_entry){ .o = { .weight = 1 }, .name = ares_strdup(name ? name : "unnamed") };
    if (!name) return;
    int opened = ares_judge_new(name, &e->judge);
    ARES_ASSERT(opened == ARES_OK);
    ares_option_table *table = ares_judge_options(e->judge, &options);
    if (table) ares_config_bind(cfg, "worker.reward.reward_function_kwargs", table, options);
    ares_judge_check(e->judge, cfg, "worker.reward.reward_function_kwargs");
}

/* An entry of the verifier with weight 1 and the defaults of its options. */
static void open_with_defaults(reward_entry *e, const char *verifier)
{
    *e = (reward_entry){ .o = { .weight = 1 }, .name = ares_strdup(verifier) };
    int rc = ares_judge_new(e->name, &e->judge);
    ARES_ASSERT(rc == ARES_OK);
    judge_use_defaults(e->judge);
}

/*
 * DAPO's options, as the entry {name: length, ...} that they stand for
 * (docs/dapo.md#penalty-of-length).
 */
static void open_length(ares_config *cfg, const ares_reward_config *rc, reward_entry *e)
{
    void *options;
    open_with_defaults(e, "length");
    (void)ares_judge_options(e->judge, &options);
    ares_length_options *o = options;
    if (rc->safe_length != ARES_NULL_I64) o->safe_length = rc->safe_length;
    if (rc->max_length != ARES_NULL_I64) o->max_length = rc->max_length;
    if (!ares_is_null_f64(rc->len_reward_penalty)) o->len_reward_penalty = rc->len_reward_penalty;
    if (o->safe_length < o->max_length) return;
    if (rc->safe_length != ARES_NULL_I64)
        ares_config_fault(cfg, "worker.reward.safe_length",
                          "not below max_length = %lld; between the two the penalty grows",
                          (long long)o->max_length);
    else if (o->len_reward_penalty > 0)
        ares_config_fault(cfg, "worker.reward.safe_length",
                          "is not set, and the %lld tokens that it then has are not below "
                          "max_length = %lld; set the tokens from which the penalty grows",
                          (long long)o->safe_length, (long long)o->max_length);
}

/* "" where the entry could not be opened, which is a fault already. */
static const char *name_of(const reward_entry *e)
{
    return e->judge || e->child ? e->name : "";
}

/* worker.reward.reward_funcs: TRL's own names, modules and files, each with its weight. */
static void open_reward_funcs(ares_config *cfg, ares_reward *r)
{
    static const char path[] = "worker.reward.reward_funcs";
    static const struct {
        const char *name, *verifier;
    } own[] = { { "accuracy_reward", "math_verify" }, { "think_format_reward", "format_think" } };
    const ares_reward_config *rc = &r->cfg;
    if (rc->reward_weights.count && rc->reward_weights.count != r->n)
        ares_config_fault(cfg, "worker.reward.reward_weights", "%lld weights for %d functions",
                          (long long)rc->reward_weights.count, r->n);
    for (int i = 0; i < r->n; i++) {
        reward_entry *e = &r->entries[i];
        const char *named = rc->reward_funcs.items[i], *verifier = NULL;
        for (int k = 0; k < ARES_COUNT(own); k++)
            if (strcmp(named, own[k].name) == 0) verifier = own[k].verifier;
        if (verifier) {
            open_with_defaults(e, verifier);
            ares_free(e->name);
            e->name = ares_strdup(named);
        } else {
            char *module;
            const char *function = split_function(named, NULL, &module);
            char *dot = is_python(named) ? NULL : strrchr(module, '.');
            if (dot && !*function) { /* MODULE.NAME */
                *dot = 0;
                function = dot + 1;
            }
            open_plain(function_name(cfg, path, r, i, *function ? function : module, named), e);
            if (!*function)
                ares_config_fault(
                    cfg, path,
                    "'%s': neither accuracy_reward nor think_format_reward, which are "
                    "built in; write MODULE.NAME or FILE.py:NAME",
                    named);
            else
                open_python(cfg, path, r,
                            &(python_function){ .file = module, .name = function, .form = "trl" },
                            e);
            ares_free(module);
        }
        /* without weights every function counts once, as in TRL */
        e->o.weight = i < rc->reward_weights.count ? rc->reward_weights.items[i] : 1;
    }
}

/* Fills r->entries, r->n, r->users and r->tells_ids from r->cfg; faults go to cfg. */
static void reward_open_entries(ares_config *cfg, ares_reward *r)
{
    const ares_reward_config *rc = &r->cfg;
    bool listed = rc->rewards && rc->rewards->type != ARES_JSON_NULL, twice = false;
    r->n = listed                   ? (int)rc->rewards->count
           : rc->reward_funcs.count ? (int)rc->reward_funcs.count
                                    : 1;
    r->entries = ares_calloc((size_t)r->n + 2, sizeof *r->entries); /* {name: length} included */
    if (listed + (rc->reward_function != NULL) + (rc->reward_funcs.count > 0) > 1)
        ares_config_fault(cfg, listed ? "worker.reward.rewards" : "worker.reward.reward_funcs",
                          "worker.reward.%s says what is rewarded; set one of them",
                          rc->reward_function ? "reward_function" : "reward_funcs");
    else if (rc->reward_function) open_reward_function(cfg, r, &r->entries[0]);
    else if (rc->reward_funcs.count) open_reward_funcs(cfg, r);
    else if (!listed) open_with_defaults(&r->entries[0], "exact");
    if (listed && r->n == 0)
        ares_config_fault(cfg, "worker.reward.rewards",
                          "no reward; name one, as in [{name: exact}]");
    for (int i = 0; listed && i < r->n; i++) {
        char path[64];
        snprintf(path, sizeof path, "worker.reward.rewards.%d", i);
        if (rc->rewards->items[i].type != ARES_JSON_OBJECT)
            ares_config_fault(cfg, path, "an entry is a map, as in {name: exact, weight: 1}");
        else open_entry(cfg, path, r, &r->entries[i]);
    }
    int n = r->n;
    for (int i = 0; i < n; i++) {
        const reward_entry *e = &r->entries[i];
        int64_t limit;
        double penalty;
        r->users = r->users || e->child;
        twice = twice || (e->judge && judge_limit(e->judge, &limit, &penalty));
    }
    if (wants_length(rc)) open_length(cfg, rc, &r->entries[r->n++]);
    if (wants_length(rc) && twice)
        ares_config_fault(
            cfg, rc->reward_function ? "worker.reward.reward_function" : "worker.reward.rewards",
            "worker.reward.safe_length and len_reward_penalty add {name: length} themselves; "
            "leave the penalty of length here out, or them");
    else {
        int named = listed ? n : 0;
        for (int i = 0; i < named; i++) {
            const reward_entry *e = &r->entries[i];
            const char *name = name_of(e);
            char path[64];
            snprintf(path, sizeof path, "worker.reward.rewards.%d%s", i,
                     e->o.as     ? ".as"
                     : e->o.name ? ".name"
                                 : "");
            if (is_taken(name))
                ares_config_fault(
                    cfg, path,
                    "reward/%s is a metric of every run; give the entry another name in "
                    "metrics: as: my_%s",
                    name, name);
            for (int k = i + 1; *name && k < r->n; k++)
                if (strcmp(name, name_of(&r->entries[k])) == 0)
                    ares_config_fault(
                        cfg, path,
                        "another entry is called '%s', too, and metrics are named after "
                        "entries; give one of them another name in metrics: as: "
                        "other_%s",
                        name, name);
        }
    }
}

/* Opens and closes the reward manager; which accuracy counts, and the one limit of length. */

ARES_OPTION_TABLE(ares_reward_options, ares_reward_config, ARES_REWARD_OPTIONS);

int ares_reward_open(ares_config *cfg, const ares_reward_config *rc, ares_pool *pool,
                     ares_reward **out)
{
    *out = NULL;
    ares_reward *r = ares_calloc(1, sizeof *r);
    r->cfg = *rc;
    r->pool = pool;
    r->discards = strcmp(rc->on_failure, "discard") == 0;
    r->tally = tally_new();
    int before = ares_config_fault_count(cfg);
    /* the later steps read what the entries are, so they wait until these are sound */
    reward_open_entries(cfg, r);
    r->accuracy_entry = -1;
    if (rc->accuracy && ares_config_fault_count(cfg) == before) {
        /* the name of an entry, or of a verifier that is opened for the accuracy alone */
        for (int i = 0; i < r->n; i++)
            if (strcmp(r->entries[i].name, rc->accuracy) == 0) r->accuracy_entry = i;
        if (r->accuracy_entry < 0 && reward_open_judge(cfg, "worker.reward.accuracy", rc->accuracy,
                                                       &r->accuracy_judge) == ARES_OK)
            judge_use_defaults(r->accuracy_judge);
    }
    if (ares_config_fault_count(cfg) == before) {
        /* several options can set the limit of length; two that differ are a fault */
        char path[64], first[64] = "worker.reward.max_length";
        int64_t limit;
        double penalty;
        r->max_length = r->cfg.max_length;
        for (int i = 0; i < r->n; i++) {
            if (!r->entries[i].judge || !judge_limit(r->entries[i].judge, &limit, &penalty))
                continue;
            if (r->cfg.reward_function)
                snprintf(path, sizeof path, "worker.reward.reward_function_kwargs");
            else snprintf(path, sizeof path, "worker.reward.rewards.%d", i);
            /* the first entry with a limit sets it; a later one must have the same */
            if (r->max_length == ARES_NULL_I64) memcpy(first, path, sizeof first);
            else if (r->max_length != limit)
                ares_config_fault(
                    cfg, path,
                    "ends at %lld tokens, and %s at %lld; there is one limit of length, "
                    "so give both the same",
                    (long long)limit, first, (long long)r->max_length);
            if (r->max_length == ARES_NULL_I64) r->max_length = limit;
        }
    }
    int failed = ares_config_finish(cfg);
    if (ares_config_fault_count(cfg) > before) {
        ares_reward_close(r);
        return failed;
    }
    *out = r;
    return ARES_OK;
}

ares_reward *ares_reward_open_none(void)
{
    ares_reward *r = ares_calloc(1, sizeof *r);
    r->tally = tally_new();
    r->max_length = ARES_NULL_I64;
    return r;
}

/* Takes a manager that was opened in part, too: ares_reward_open closes it after a fault. */
void ares_reward_close(ares_reward *r)
{
    if (!r) return;
    ares_pool_drain(r->pool); /* a run that ends early may leave responses in the pool */
    for (int64_t k = 0; k < r->n_jobs; k++) reward_job_free(r->jobs[k]);
    for (int i = 0; i < r->n; i++) {
        ares_judge_free(r->entries[i].judge);
        ares_free(r->entries[i].name);
        ares_map_free(r->entries[i].fields);
        reward_child_free(r->entries[i].child);
    }
    ares_judge_free(r->accuracy_judge);
    ares_free(r->entries);
    ares_free(r->jobs);
    tally_free(r->tally);
    ares_free(r->last_failure);
    ares_str_fini(&r->line);
    ares_free(r);
}

bool ares_reward_users(const ares_reward *r)
{
    return r->users;
}

const char *ares_reward_last_failure(const ares_reward *r)
{
    return r->last_failure;
}

int ares_reward_count(const ares_reward *r)
{
    return r->n;
}

const char *ares_reward_name(const ares_reward *r, int i)
{
    return r->entries[i].name;
}

int64_t ares_reward_max_length(const ares_reward *r)
{
    return r->max_length;
}

bool ares_reward_calls_python(const ares_reward *r)
{
    return r->calls_python;
}

bool ares_reward_judges(const ares_reward *r)
{
    bool judges = r->accuracy_entry >= 0 || r->accuracy_judge;
    for (int i = 0; i < r->n; i++)
        judges = judges || r->entries[i].child || judge_judges(r->entries[i].judge);
    return judges;
}

bool ares_reward_worth(const ares_reward *r, double *right, double *wrong, double *penalty)
{
    bool judged = false;
    *right = *wrong = *penalty = 0;
    for (int i = 0; i < r->n; i++) {
        const reward_entry *e = &r->entries[i];
        double most;
        int64_t limit;
        if (e->child) return false;
        const ares_verifier *v = e->judge->verifier;
        if (judge_limit(e->judge, &limit, &most)) *penalty += e->o.weight * most;
        if (v->right == v->wrong) continue; /* it does not judge, or its scores vary */
        judged = true;
        *right += e->o.weight * reward_score(&r->cfg, true, v->right);
        *wrong += e->o.weight * reward_score(&r->cfg, false, v->wrong);
    }
    return judged;
}

/* The table of shapers. To add one: a file shape_NAME.c in this folder and a word here. */

#define SHAPE_LIST(X) X(aepo)

#define DECLARE(name) extern const reward_shaper reward_shaper_##name;
#define ENTRY(name) &reward_shaper_##name,
SHAPE_LIST(DECLARE)
static const reward_shaper *const table[] = { SHAPE_LIST(ENTRY) };

/* What shapers add to the scores of a batch, and how often that reverses right and wrong. */

/* The shaper of the entry's verifier, which has the same name; NULL: it has none. */
static const reward_shaper *shaper_of(const reward_entry *e)
{
    for (int i = 0; e->judge && i < ARES_COUNT(table); i++)
        if (strcmp(table[i]->name, e->judge->name) == 0) return table[i];
    return NULL;
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
        const reward_shaper *shaper = shaper_of(&r->entries[e]);
        if (shaper) added += r->entries[e].o.weight * shaper->shape(s);
    }
    return added;
}

void ares_reward_shape(ares_reward *r, ares_batch *b)
{
    if (!ares_reward_shapes(r)) return;
    for (int e = 0; e < r->n; e++) {
        const reward_shaper *shaper = shaper_of(&r->entries[e]);
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
    /* share of the right answers that now score below the best other answer of their group */
    double inverted = 0, right = 0;
    for (int64_t g = 0; g < b->groups; g++) {
        float best_other = -INFINITY;
        for (int64_t i = b->group_start[g]; i < b->group_start[g + 1]; i++)
            if (ares_batch_row_counts(b, i) && b->samples[i].accuracy < 1)
                best_other = fmaxf(best_other, b->samples[i].score);
        for (int64_t i = b->group_start[g]; i < b->group_start[g + 1]; i++) {
            if (!ares_batch_row_counts(b, i)) continue;
            right += b->samples[i].accuracy == 1;
            inverted += b->samples[i].accuracy == 1 && b->samples[i].score < best_other;
        }
    }
    tally_add(r->tally, TALLY_MEAN, inverted, right, "reward/inverted_frac");
}
