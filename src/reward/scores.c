/*
 * Verdicts -> scores and metrics, by ares_reward_wait, in the order of submission, so that no sum
 * depends on which thread was faster.
 */
#include <math.h>
#include <string.h>

#include "manager.h"

enum {
    MAX_WARNINGS = 3, /* failures of a step that are named one by one */
    MAX_FIELDS = 32   /* numbers of one entry that become metrics */
};

static void count_failure(ares_reward *r, reward_job *j, const reward_verdict *v, double score,
                          int64_t *warnings)
{
    tally_add(r->tally, TALLY_TOTAL, 1, 1, "reward/failed/%s", v->judged_by);
    if (ares_signal_poll() != ARES_OK) return; /* the signal's fault; nobody will use the score */
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

/* reward/format of aepo is reward/aepo/format where another entry is called format. */
static void count_part(ares_reward *r, const reward_verdict *v, const ares_verify_value *part)
{
    static const char before[] = "reward/";
    const char *name = part->name, *own = "";
    if (strncmp(name, before, sizeof before - 1) == 0) name += sizeof before - 1;
    for (int i = 0; i < r->n && name != part->name; i++)
        if (strcmp(r->entries[i].name, name) == 0 && strcmp(v->judged_by, name) != 0)
            own = v->judged_by;
    if (*own) tally_add(r->tally, TALLY_MEAN, part->sum, part->count, "reward/%s/%s", own, name);
    else tally_add(r->tally, TALLY_MEAN, part->sum, part->count, "%s", part->name);
}

static void count_verdict(ares_reward *r, const reward_verdict *v)
{
    if (v->abstains) return;
    tally_add(r->tally, TALLY_MEAN, v->score, 1, "reward/%s/mean", v->judged_by);
    if (!isnan(v->accuracy))
        tally_add(r->tally, TALLY_MEAN, v->accuracy, 1, "reward/%s/accuracy", v->judged_by);
    for (int i = 0; i < v->n_values; i++) count_part(r, v, &v->values[i]);
}

/* The answer of a user's process, as a verdict. */
static reward_verdict verdict_of_call(const reward_entry *e, const reward_call *call)
{
    return (reward_verdict){ .score = call->score,
                             .plain = call->score,
                             .accuracy = call->accuracy,
                             .judged_by = e->name,
                             .said = call->said,
                             .abstains = call->abstains,
                             .failure = call->failed ? ares_strdup(call->why) : NULL };
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

/* Numbers, true and false of a user's process. */
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

/* What processes said of the response, and why an entry could not judge it, by entry. */
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

double reward_score(const ares_reward_config *c, bool right, double own)
{
    bool correct = !ares_is_null_f64(c->correct), incorrect = !ares_is_null_f64(c->incorrect),
         scale = !ares_is_null_f64(c->scale);
    if (!correct && !incorrect && !scale) return own;
    double worth = right ? (correct ? c->correct : 1.0) : (incorrect ? c->incorrect : -1.0);
    return worth * (scale ? c->scale : 1.0);
}

/* A penalty of length stays as it is. */
static void replace_score(const ares_reward_config *c, reward_verdict *v)
{
    if (v->failure || isnan(v->accuracy)) return;
    double penalty = v->score - v->plain, plain = reward_score(c, v->accuracy > 0.5, v->plain);
    if (plain == v->plain) return;
    v->plain = plain;
    v->score = plain + penalty;
}

/* Whether verdict i (r->n: accuracy_judge's) may say what the response's accuracy is. */
static bool decides_accuracy(const ares_reward *r, int i)
{
    if (i == r->n) return true;
    return r->accuracy_entry == i || (r->accuracy_entry < 0 && !r->accuracy_judge);
}

static void add_up(ares_reward *r, reward_job *j, int64_t *warnings)
{
    ares_reward_item *item = j->item;
    double score = 0, unshaped = 0;
    bool no_answer = false, exhausted = false, scored = false;
    const char *answer = NULL;
    int verdicts = r->n + (r->accuracy_judge != NULL);
    for (int i = 0; i < r->n; i++)
        if (r->entries[i].child) j->verdicts[i] = verdict_of_call(&r->entries[i], &j->calls[i]);
    for (int i = 0; i < r->n; i++) scored = scored || !j->verdicts[i].abstains;
    if (!scored && r->n) { /* the others are none the wiser */
        j->verdicts[0].abstains = false;
        j->verdicts[0].failure = ares_strdup("no reward has a score for the response");
    }
    for (int i = 0; i < verdicts; i++) {
        reward_entry *e = i < r->n ? &r->entries[i] : NULL;
        reward_verdict *v = &j->verdicts[i];
        if (e) replace_score(&r->cfg, v);
        double failure_score = e && !ares_is_null_f64(e->o.failure_score) ? e->o.failure_score : 0;
        if (v->failure) count_failure(r, j, v, failure_score, warnings);
        else count_verdict(r, v);
        if (v->said) count_fields(r, e, v->said);
        if (item->asks_answer && v->said && !v->failure)
            v->answer = reward_answer_of(ares_view_of(v->said));
        if (v->answer && !answer) answer = v->answer; /* of the first that tells one */
        if (decides_accuracy(r, i) && !v->failure && isnan(item->accuracy))
            item->accuracy =
                (float)(r->cfg.accuracy && isnan(v->accuracy) ? v->score : v->accuracy);
        no_answer = no_answer || v->no_answer;
        exhausted = exhausted || v->exhausted;
        if (!e) continue;
        item->parts[i] = v->abstains || (v->failure && r->discards)
                             ? NAN
                             : (float)(v->failure ? failure_score : v->score);
        if (v->abstains) continue;
        score += e->o.weight * (double)(float)(v->failure ? failure_score : v->score);
        unshaped += e->o.weight * (v->failure ? failure_score : v->plain);
    }
    if (!item->in.stopped && !ares_is_null_f64(r->cfg.unfinished_score))
        score = unshaped = r->cfg.unfinished_score;
    item->score = (float)score;
    item->unshaped = (float)unshaped;
    write_details(r, j);
    item->answer = (ares_view){ 0 };
    if (answer && item->arena)
        item->answer =
            (ares_view){ ares_arena_copy(item->arena, answer, strlen(answer)), strlen(answer) };
    tally_add(r->tally, TALLY_MEAN, no_answer, 1, "reward/extract_fail_rate");
    tally_add(r->tally, TALLY_TOTAL, exhausted, 1, "reward/exhausted");
}

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
