/*
 * Runs the judges. Built-in verifiers run on the pool's idle threads while other responses decode;
 * users' processes get a JSON line and are asked for their answers by ares_reward_wait.
 */
#include <math.h>
#include <string.h>

#include "manager.h"

/*
 * What a verifier's details call the answer: its text, or "" where none was found. NULL: they do
 * not tell one. members: JSON members, or an object.
 */
char *reward_answer_of(ares_view members)
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

/* name: the judge's in metrics, unless it hands on to another. */
static void judge_response(const ares_judge *judge, const char *name, const ares_reward_item *item,
                           reward_verdict *v)
{
    ares_verify_out out = { .accuracy = NAN, .plain = NAN };
    if (ares_judge_run(judge, &item->in, &out) != ARES_OK)
        v->failure = ares_strdup(ares_error_message());
    v->score = out.score;
    v->plain = isnan(out.plain) ? out.score : out.plain;
    v->accuracy = out.accuracy;
    v->judged_by = out.judged_by ? out.judged_by : name;
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
        judge_response(r->accuracy_judge, ares_judge_name(r->accuracy_judge), j->item,
                       &j->verdicts[r->n]);
    reward_judged(&j->left);
}

/* What a user's process reads: the texts, and the row they belong to. */
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
    j->left += builtins;
    if (r->users) write_line(r, &item->in);
    for (int i = 0; i < r->n && r->users; i++)
        if (r->entries[i].child)
            reward_child_send(r->entries[i].child, ares_str_view(&r->line), &j->calls[i], &j->left);
    if (builtins) ares_pool_post(r->pool, run_verifiers, j);
}

void reward_job_free(reward_job *j)
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
 * An empty response shows what is wrong with the row, whatever the response. *judged: set where it
 * has an accuracy.
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
    bool reads = r->accuracy_judge && ares_judge_reads_truth(r->accuracy_judge);
    for (int i = 0; i < r->n; i++)
        reads = reads || (r->entries[i].judge ? ares_judge_reads_truth(r->entries[i].judge)
                                              : r->cfg.reward_funcs.count == 0);
    return reads;
}

int ares_reward_check_rows(const ares_reward *r, const ares_dataset *d, bool need_accuracy)
{
    if (r->cfg.accuracy) need_accuracy = false; /* a score without one is the accuracy then */
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
