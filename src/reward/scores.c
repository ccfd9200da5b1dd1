/*
 * Verdicts -> scores and metrics, by ares_reward_wait, in the order of submission, so that no sum
 * depends on which thread was faster.
 */
#include <math.h>
#include <string.h>

#include "manager.h"

enum { MAX_WARNINGS = 3 }; /* failures of a step that are named one by one */

static void count_failure(ares_reward *r, reward_job *j, const reward_verdict *v, double score,
                          int64_t *warnings)
{
    j->item->failed = true;
    tally_add(r->tally, TALLY_TOTAL, 1, 1, "reward/failed/%s", v->judged_by);
    if (ares_signal_poll() != ARES_OK) return; /* nobody will use the score */
    if ((*warnings)++ >= MAX_WARNINGS) return;
    if (strncmp(v->failure, "reward: ", 8) == 0) /* a verifier's message names it already */
        ares_warn("%s; scored %g", v->failure, score);
    else ares_warn("reward: %s: %s; scored %g", v->judged_by, v->failure, score);
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
                             .failure = call->failed ? ares_strdup(call->why) : NULL };
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
    bool no_answer = false, exhausted = false;
    int verdicts = r->n + (r->accuracy_judge != NULL);
    for (int i = 0; i < verdicts; i++) {
        const reward_entry *e = i < r->n ? &r->entries[i] : NULL;
        reward_verdict *v = &j->verdicts[i];
        if (e && e->child) *v = verdict_of_call(e, &j->calls[i]);
        if (e) replace_score(&r->cfg, v);
        double failure_score = e ? e->o.failure_score : 0;
        if (v->failure) count_failure(r, j, v, failure_score, warnings);
        else count_verdict(r, v);
        if (decides_accuracy(r, i) && !v->failure && isnan(item->accuracy))
            item->accuracy =
                (float)(r->cfg.accuracy && isnan(v->accuracy) ? v->score : v->accuracy);
        no_answer = no_answer || v->no_answer;
        exhausted = exhausted || v->exhausted;
        if (!e) continue;
        item->parts[i] = (float)(v->failure ? failure_score : v->score);
        score += e->o.weight * (double)item->parts[i];
        unshaped += e->o.weight * (v->failure ? failure_score : v->plain);
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
    int64_t warnings = 0;
    /* a caller that failed waits too, and keeps its pending error */
    char *message = ares_strdup(ares_error_message());
    for (int i = 0; i < r->n; i++)
        if (r->entries[i].child) reward_child_wait(r->entries[i].child, &timed_out);
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
