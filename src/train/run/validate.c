/*
 * Validation: every row of data.val_files, sampled as val_override_config says, judged by the same
 * rewards.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agents/agents.h"
#include "collect/answerer.h"
#include "controls.h"
#include "run/several.h"
#include "run/validate.h"

#define VAL_OPTIONS(X)                                                         \
    X(i64, n, "n", "1", "[1,)", "samples of a prompt")                         \
    X(f64, temperature, "temperature", "null", "[0,)", "null: as in training") \
    X(f64, top_p, "top_p", "null", "(0,1]", "null: as in training")            \
    X(i64, top_k, "top_k", "null", "-1|[1,)", "null: as in training")          \
    X(flag, do_sample, "do_sample", "true", "", "false: greedy")               \
    X(i64, max_new_tokens, "max_new_tokens", "null", "[1,)", "null: data.max_response_length")
ARES_OPTION_STRUCT(val_options, VAL_OPTIONS);
static ARES_OPTION_TABLE(val_option_table, val_options, VAL_OPTIONS);

enum { GROUPS_MAX = 64 }; /* a key with more values than that does not name groups */

/* Sums over some of the rows: all of them, or those of one value of data.val_group_key. */
typedef struct tally {
    const char *name; /* "<key>=<value>"; NULL: of all rows */
    double rows, score, accuracy, judged, tokens, stopped, failed, scored, *parts;
    several several; /* answers to a prompt */
} tally;

typedef struct validation {
    ares_trainer *t;
    int parts; /* rewards that a score is made of */
    tally all, groups[GROUPS_MAX];
    int n_groups;    /* the same on every rank, and so is their order */
    ares_map *names; /* value of the key -> its group */
    ares_arena arena;
} validation;

/* unscored: the answer could not be judged, and has no score. */
static void add(tally *y, const ares_trajectory *s, int parts, bool unscored)
{
    y->rows++;
    y->failed += s->failed;
    y->tokens += (double)ares_trajectory_tokens(s);
    y->stopped += s->stopped;
    if (unscored) return;
    y->scored++;
    y->score += (double)s->score;
    if (!isnan(s->accuracy)) {
        y->accuracy += (double)s->accuracy;
        y->judged++;
    }
    for (int i = 0; i < parts; i++) {
        if (isnan(s->parts[i])) continue; /* the reward has left it to the others */
        y->parts[i] += (double)s->parts[i];
        y->parts[parts + i]++;
    }
}

static int put(const validation *v, const tally *y, ares_metrics *m)
{
    const ares_trainer *t = v->t;
    int parts = v->parts;
    enum { NUMBERS = 8 };
    double *sums = ares_malloc((size_t)(NUMBERS + 2 * parts) * sizeof *sums);
    memcpy(sums,
           (double[NUMBERS]){ y->rows, y->score, y->accuracy, y->judged, y->tokens, y->stopped,
                              y->failed, y->scored },
           NUMBERS * sizeof *sums);
    memcpy(sums + NUMBERS, y->parts, (size_t)(2 * parts) * sizeof *sums);
    int rc = ares_world_sum_f64(t->run.world, sums, NUMBERS + 2 * parts);
    char key[200];
    const char *slash = y->name ? "/" : "", *name = y->name ? y->name : "";
    if (rc == ARES_OK && sums[0] > 0) {
        snprintf(key, sizeof key, "val%s%s/reward_score", slash, name);
        if (sums[7] > 0) ares_metrics_set(m, key, sums[1] / sums[7]);
        snprintf(key, sizeof key, "val%s%s/failed_frac", slash, name);
        ares_metrics_set(m, key, sums[6] / sums[0]);
        snprintf(key, sizeof key, "val%s%s/accuracy", slash, name);
        if (sums[3] > 0) ares_metrics_set(m, key, sums[2] / sums[3]);
        /* EasyR1's name for it */
        if (sums[3] > 0 && !y->name) ares_metrics_set(m, "val/accuracy_reward", sums[2] / sums[3]);
        snprintf(key, sizeof key, "val%s%s/response_length", slash, name);
        ares_metrics_set(m, key, sums[4] / sums[0]);
        for (int i = 0; i < parts && !y->name; i++) {
            double scored = sums[NUMBERS + parts + i];
            snprintf(key, sizeof key, "val/%s_reward", ares_reward_name(t->reward, i));
            if (scored > 0) ares_metrics_set(m, key, sums[NUMBERS + i] / scored);
        }
        snprintf(key, sizeof key, "val/finished_frac");
        if (!y->name) ares_metrics_set(m, key, sums[5] / sums[0]);
    }
    snprintf(key, sizeof key, "val%s%s/", slash, name);
    if (rc == ARES_OK) rc = several_put(&y->several, t->run.world, t->val_n, key, m);
    ares_free(sums);
    return rc;
}

/* The group of a row; NULL: the row has none. A value that is seen first makes a group. */
static tally *group_of(validation *v, const ares_row *row)
{
    const char *key = v->t->run.cfg->data.val_group_key;
    const ares_json *x = key ? ares_row_at(row->json, key) : NULL;
    if (!x) return NULL;
    ares_view value =
        x->type == ARES_JSON_BOOL ? (x->boolean ? ARES_VIEW("true") : ARES_VIEW("false")) : x->text;
    int64_t i;
    if (!value.data) return NULL;
    if (ares_map_get(v->names, value, &i)) return &v->groups[i];
    if (v->n_groups == GROUPS_MAX) return NULL;
    ares_map_put(v->names, value, v->n_groups);
    v->groups[v->n_groups] =
        (tally){ .name = ares_arena_printf(&v->arena, "%s=%.*s", key, (int)value.len, value.data),
                 .parts = ares_arena_calloc(&v->arena, (size_t)v->parts * 2 + 1, sizeof(double)) };
    return &v->groups[v->n_groups++];
}

void validation_write(const ares_trainer *t, const char *data_set, const ares_row *row,
                      const ares_trajectory *s, ares_str *out)
{
    const ares_json *question = ares_row_at(row->json, t->run.cfg->data.prompt_key);
    bool given = question && question->type == ARES_JSON_STRING;
    ares_json_begin(out, '{');
    ares_json_write_i64(ares_json_key(out, "step"), t->run.step);
    if (data_set) ares_json_write_string(ares_json_key(out, "data_set"), ares_view_of(data_set));
    ares_json_write_i64(ares_json_key(out, "row"), row->id);
    ares_json_write_i64(ares_json_key(out, "sample"), s->index);
    ares_json_write_string(ares_json_key(out, "question"),
                           given ? question->text : row->prompt_text);
    ares_json_write_string(ares_json_key(out, "prompt"), row->prompt_text);
    ares_json_write_string(ares_json_key(out, "response"), s->response);
    ares_json_write_string(ares_json_key(out, "ground_truth"), row->ground_truth);
    if (s->turns.len) ares_json_splice(ares_json_key(out, "turns"), s->turns);
    ares_json_write_float(ares_json_key(out, "score"),
                          s->failed && answer_discards_failures(t) ? NAN : s->score);
    ares_json_begin(ares_json_key(out, "rewards"), '{');
    for (int k = 0; k < ares_reward_count(t->reward); k++)
        ares_json_write_float(ares_json_key(out, ares_reward_name(t->reward, k)), s->parts[k]);
    ares_json_end(out, '}');
    if (s->failed) ares_json_write_bool(ares_json_key(out, "failed"), true);
    if (s->details.len) ares_json_splice(ares_json_key(out, "details"), s->details);
    ares_json_write_float(ares_json_key(out, "accuracy"), s->accuracy);
    ares_json_write_i64(ares_json_key(out, "n_tokens"), ares_trajectory_tokens(s));
    ares_json_write_bool(ares_json_key(out, "finished"), s->stopped);
    ares_json_end(out, '}');
    ares_str_add_char(out, '\n');
}

void validation_sampling(ares_config *cfg, const ares_train_config *c, ares_sampling *s, int64_t *n)
{
    val_options o;
    ares_config_bind(cfg, "worker.rollout.val_override_config", val_option_table, &o);
    answer_sampling(c, s);
    if (!ares_is_null_f64(o.temperature)) s->temperature = (float)o.temperature;
    if (!o.do_sample) s->temperature = 0;
    if (!ares_is_null_f64(o.top_p)) s->top_p = (float)o.top_p;
    if (o.top_k != ARES_NULL_I64) s->top_k = (int32_t)o.top_k;
    if (o.max_new_tokens != ARES_NULL_I64)
        s->max_new_tokens = (int32_t)ARES_MIN(o.max_new_tokens, INT32_MAX);
    *n = o.n;
}

int64_t validation_longest(const ares_train_config *c, const ares_sampling *validation,
                           const eval_sets *evals)
{
    bool validates = c->data.val_files.count || c->agents_val.tags.count;
    return ARES_MAX(validates ? validation->max_new_tokens : 0, eval_sets_longest(evals));
}

/* val_response_length and val_prompt_length, as EasyR1 has them. */
static int lengths(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    /* of response and prompt: the largest, and the negative smallest */
    double sums[3] = { (double)b->rows },
           bounds[4] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    for (int64_t r = 0; r < b->rows; r++) {
        const double length[2] = { (double)(b->row_start[r + 1] - b->row_start[r]),
                                   b->samples[r].prompt_len };
        for (int k = 0; k < 2; k++) {
            sums[1 + k] += length[k];
            bounds[2 * k] = fmax(bounds[2 * k], length[k]);
            bounds[2 * k + 1] = fmax(bounds[2 * k + 1], -length[k]);
        }
    }
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, 3));
    ARES_TRY(ares_world_max_f64(t->run.world, bounds, 4));
    for (int k = 0; k < 2 && sums[0] > 0; k++) {
        const char *const names[2][3] = {
            { "val_response_length/mean", "val_response_length/max", "val_response_length/min" },
            { "val_prompt_length/mean", "val_prompt_length/max", "val_prompt_length/min" }
        };
        ares_metrics_set(m, names[k][0], sums[1 + k] / sums[0]);
        ares_metrics_set(m, names[k][1], bounds[2 * k]);
        ares_metrics_set(m, names[k][2], -bounds[2 * k + 1]);
    }
    return ARES_OK;
}

/* All rows, this rank's share, answered in draws of val_batch_size. */
static int answer(ares_trainer *t, ares_arena *arena, ares_group *out, int64_t *count)
{
    int64_t total = ares_source_count(&t->run.val), size = t->run.cfg->data.val_batch_size;
    const answer_pass pass = {
        .source = &t->run.val, .sampling = &t->val_sampling, .n = t->val_n, .key = ANSWER_VALIDATION
    };
    if (size <= 0) size = total;
    *count = 0;
    for (int64_t at = 0; at < total; at += size) {
        ares_group *groups;
        int64_t n;
        ARES_TRY(answer_rows(t, &pass, at, ARES_MIN(total, at + size), arena, &groups, &n));
        if (n) memcpy(out + *count, groups, (size_t)n * sizeof *out);
        *count += n;
    }
    return ARES_OK;
}

/*
 * A first validation in which nothing could be judged ends the run, after a step once that is
 * saved; a later one says so.
 */
static int check_failures(ares_trainer *t, const ares_metrics *m)
{
    double failed = 0;
    const char *why = t->agents ? t->agents->last_failure : ares_reward_last_failure(t->reward);
    (void)ares_metrics_get(m, "val/failed_frac", &failed);
    if (failed < 1) return ARES_OK;
    if (t->run.step == 0 || t->run.cfg->trainer.val_only)
        return ares_fail(ARES_ECHILD, "%s: validation: nothing could be judged (%s)",
                         t->agents ? "env" : "reward", why && *why ? why : "on other ranks");
    if (ares_world_rank(t->run.world) == 0)
        ares_warn("validation: nothing could be judged; there is no score");
    t->run.unjudged = t->run.validated_step < 0;
    return ARES_OK;
}

static int report(validation *v, const ares_batch *b, ares_metrics *m)
{
    const ares_trainer *t = v->t;
    double format;
    ARES_TRY(put(v, &v->all, m));
    ARES_TRY(check_failures(v->t, m));
    if (t->answerer->report) ARES_TRY(t->answerer->report(v->t, "val-env/", m));
    ARES_TRY(ares_reward_report(t->reward, t->run.world, "val/", m));
    if (ares_metrics_get(m, "val/reward/format", &format))
        ares_metrics_set(m, "val/format_reward", format);
    ARES_TRY(lengths(t, b, m));
    for (int g = 0; g < v->n_groups; g++) ARES_TRY(put(v, &v->groups[g], m));
    return ARES_OK;
}

static int validate(ares_trainer *t, validation *v, ares_batch *b, ares_metrics *m,
                    ares_str *samples)
{
    int64_t total = ares_source_count(&t->run.val), row = 0, count;
    ares_group *answered = ares_arena_calloc(&v->arena, (size_t)total + 1, sizeof *answered);
    for (int64_t i = 0; i < total; i++) (void)group_of(v, ares_source_row(&t->run.val, i));
    ARES_TRY(ares_world_agree(t->run.world, answer(t, &v->arena, answered, &count)));
    ares_batch_fill(b, answered, count);
    ARES_TRY(ares_world_agree(t->run.world, controls_validate(t->run.controls, b, m)));
    ares_reward_shape(t->reward, b);
    for (int64_t g = 0; g < count; g++) {
        tally *named = group_of(v, answered[g].row);
        for (int32_t i = 0; i < answered[g].n; row += answered[g].items[i++].n_rows) {
            ares_trajectory *y = &answered[g].items[i];
            y->score = b->samples[row].score; /* a shaper may have added to it */
            bool unscored = y->failed && answer_discards_failures(t);
            add(&v->all, y, v->parts, unscored);
            if (named) add(named, y, v->parts, unscored);
            if (samples) validation_write(t, NULL, answered[g].row, y, samples);
        }
        several_add(&v->all.several, t, &answered[g]);
        if (named) several_add(&named->several, t, &answered[g]);
    }
    return report(v, b, m);
}

int trainer_validate(ares_trainer *t, ares_metrics *m, ares_str *samples)
{
    validation v = { .t = t, .parts = ares_reward_count(t->reward), .names = ares_map_new() };
    v.all.parts = ares_arena_calloc(&v.arena, (size_t)v.parts * 2 + 1, sizeof(double));
    ares_batch b;
    ares_batch_init(&b);
    answer_expect(t, answer_share(t, ares_source_count(&t->run.val)), t->val_n);
    for (int64_t i = 0; i < t->evals.n; i++)
        answer_expect(t, answer_share(t, ares_source_count(&t->evals.items[i].source)),
                      t->evals.items[i].n);
    int rc = ares_source_count(&t->run.val) ? validate(t, &v, &b, m, samples) : ARES_OK;
    if (rc == ARES_OK) rc = eval_sets_validate(t, m, samples);
    ares_batch_fini(&b);
    ares_map_free(v.names);
    ares_arena_fini(&v.arena);
    return rc;
}
