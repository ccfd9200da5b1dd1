/*
 * Validation: every row of data.val_files, sampled as val_override_config says, judged by the same
 * rewards.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "controls.h"
#include "generate.h"

#define VAL_OPTIONS(X)                                                         \
    X(i64, n, "n", "1", "[1,)", "samples of a prompt")                         \
    X(f64, temperature, "temperature", "null", "[0,)", "null: as in training") \
    X(f64, top_p, "top_p", "null", "(0,1]", "null: as in training")            \
    X(i64, top_k, "top_k", "null", "-1|[1,)", "null: as in training")          \
    X(flag, do_sample, "do_sample", "true", "", "false: greedy")               \
    X(i64, max_new_tokens, "max_new_tokens", "null", "[1,)", "null: data.max_response_length")
ARES_OPTION_STRUCT(val_options, VAL_OPTIONS);
static ARES_OPTION_TABLE(val_option_table, val_options, VAL_OPTIONS);

/* Sums of one part of the rows: all of them, or those of one value of data.val_group_key. */
typedef struct tally {
    const char *name;
    double rows, score, accuracy, judged, tokens, stopped, *parts;
} tally;

static void count(tally *y, const generate_sample *s, int parts)
{
    y->rows++;
    y->score += (double)s->item.score;
    if (!isnan(s->item.accuracy)) {
        y->accuracy += (double)s->item.accuracy;
        y->judged++;
    }
    y->tokens += s->completion.n_tokens;
    y->stopped += s->item.in.stopped;
    for (int i = 0; i < parts; i++) y->parts[i] += (double)s->item.parts[i];
}

static int put(const ares_trainer *t, tally *y, int parts, ares_metrics *m)
{
    double *sums = ares_malloc((size_t)(6 + parts) * sizeof *sums);
    memcpy(sums, (double[]){ y->rows, y->score, y->accuracy, y->judged, y->tokens, y->stopped },
           6 * sizeof *sums);
    memcpy(sums + 6, y->parts, (size_t)parts * sizeof *sums);
    int rc = ares_world_sum_f64(t->run.world, sums, 6 + parts);
    char key[200];
    const char *slash = y->name ? "/" : "", *name = y->name ? y->name : "";
    if (rc == ARES_OK && sums[0] > 0) {
        snprintf(key, sizeof key, "val%s%s/reward_score", slash, name);
        ares_metrics_set(m, key, sums[1] / sums[0]);
        snprintf(key, sizeof key, "val%s%s/accuracy", slash, name);
        if (sums[3] > 0) ares_metrics_set(m, key, sums[2] / sums[3]);
        /* as EasyR1 calls it */
        if (sums[3] > 0 && !y->name) ares_metrics_set(m, "val/accuracy_reward", sums[2] / sums[3]);
        snprintf(key, sizeof key, "val%s%s/response_length", slash, name);
        ares_metrics_set(m, key, sums[4] / sums[0]);
        for (int i = 0; i < parts && !y->name; i++) {
            snprintf(key, sizeof key, "val/%s_reward", ares_reward_name(t->reward, i));
            ares_metrics_set(m, key, sums[6 + i] / sums[0]);
        }
        snprintf(key, sizeof key, "val/finished_frac");
        if (!y->name) ares_metrics_set(m, key, sums[5] / sums[0]);
    }
    ares_free(sums);
    return rc;
}

/*
 * The part a row belongs to by data.val_group_key, as "<key>=<value>"; the list is the same on
 * every rank.
 */
static tally *group_of(const ares_trainer *t, const ares_row *row, ares_map *names, tally *groups,
                       int *n, int parts, ares_arena *arena)
{
    const char *key = t->run.cfg->data.val_group_key;
    const ares_json *v = key ? ares_json_get(row->json, key) : NULL;
    if (!v) return NULL;
    ares_view value =
        v->type == ARES_JSON_BOOL ? (v->boolean ? ARES_VIEW("true") : ARES_VIEW("false")) : v->text;
    int64_t i;
    if (!value.data) return NULL;
    if (ares_map_get(names, value, &i)) return &groups[i];
    if (*n == 64) return NULL; /* a key with more values than that does not name groups */
    ares_map_put(names, value, *n);
    groups[*n] =
        (tally){ .name = ares_arena_printf(arena, "%s=%.*s", key, (int)value.len, value.data),
                 .parts = ares_arena_calloc(arena, (size_t)parts + 1, sizeof(double)) };
    return &groups[(*n)++];
}

static void write_sample(const ares_trainer *t, const ares_row *row, int64_t index,
                         const generate_sample *s, ares_str *out)
{
    ares_str_addf(out, "{\"step\":%lld,\"row\":%lld,\"sample\":%lld,\"question\":",
                  (long long)t->run.step, (long long)row->id, (long long)index);
    const ares_json *question = ares_json_get(row->json, t->run.cfg->data.prompt_key);
    ares_json_write_string(out, question && question->type == ARES_JSON_STRING ? question->text
                                                                               : row->prompt_text);
    ares_str_add_z(out, ",\"prompt\":");
    ares_json_write_string(out, row->prompt_text);
    ares_str_add_z(out, ",\"response\":");
    ares_json_write_string(out, s->item.in.response);
    ares_str_add_z(out, ",\"ground_truth\":");
    ares_json_write_string(out, row->ground_truth);
    ares_str_add_z(out, ",\"score\":");
    ares_json_write_float(out, s->item.score);
    ares_str_add_z(out, ",\"accuracy\":");
    ares_json_write_float(out, s->item.accuracy);
    ares_str_addf(out, ",\"n_tokens\":%d,\"finished\":%s}\n", s->completion.n_tokens,
                  s->item.in.stopped ? "true" : "false");
}

void validation_sampling(ares_config *cfg, const ares_train_config *c, ares_sampling *s, int64_t *n)
{
    val_options o;
    ares_config_bind(cfg, "worker.rollout.val_override_config", val_option_table, &o);
    generate_sampling(c, s);
    if (!ares_is_null_f64(o.temperature)) s->temperature = (float)o.temperature;
    if (!o.do_sample) s->temperature = 0;
    if (!ares_is_null_f64(o.top_p)) s->top_p = (float)o.top_p;
    if (o.top_k != ARES_NULL_I64) s->top_k = (int32_t)o.top_k;
    if (o.max_new_tokens != ARES_NULL_I64)
        s->max_new_tokens = (int32_t)ARES_MIN(o.max_new_tokens, c->data.max_response_length);
    *n = o.n;
}

/* val_response_length and val_prompt_length, as EasyR1 has them. */
static int lengths(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    /* largest, and less the smallest, of response and prompt */
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

int ares_trainer_validate(ares_trainer *t, ares_metrics *m, ares_str *samples)
{
    int64_t total = ares_dataset_count(t->run.val), at = 0, ranks = ares_world_size(t->run.world),
            rank = ares_world_rank(t->run.world);
    int64_t batch = t->run.cfg->data.val_batch_size > 0 ? t->run.cfg->data.val_batch_size : total;
    int parts = ares_reward_count(t->reward), n_groups = 0, rc = ARES_OK;
    ares_arena arena = { 0 };
    ares_batch b;
    ares_batch_init(&b);
    generate_group *answered = ares_arena_calloc(&arena, (size_t)total + 1, sizeof *answered);
    int64_t n_answered = 0, n = t->val_n;
    ares_map *names = ares_map_new();
    tally all = { .parts = ares_arena_calloc(&arena, (size_t)parts + 1, sizeof(double)) },
          groups[64];
    for (int64_t i = 0; i < total; i++)
        group_of(t, ares_dataset_row(t->run.val, i), names, groups, &n_groups, parts, &arena);
    for (; at < total && rc == ARES_OK; at += batch) {
        int64_t count = 0, end = ARES_MIN(total, at + batch);
        const ares_row **rows = ares_arena_alloc(&arena, (size_t)(end - at) * sizeof *rows);
        int64_t *draws = ares_arena_alloc(&arena, (size_t)(end - at) * sizeof *draws);
        for (int64_t i = at; i < end; i++) {
            if (i % ranks != rank) continue;
            rows[count] = ares_dataset_row(t->run.val, i);
            draws[count++] = i;
        }
        /* a key of its own: validation never shifts what training samples */
        generate_job job = { .n_prompts = count,
                             .n = n,
                             .rows = rows,
                             .draws = draws,
                             .sampling = &t->val_sampling,
                             .key = ares_rng_sub(
                                 ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_SAMPLE),
                                 UINT64_MAX, 0) };
        generate_sample *out = NULL;
        rc = generate_samples(t, &job, &arena, &out);
        if (rc == ARES_OK) generate_keep(out, count * n, &arena);
        for (int64_t g = 0; g < count && rc == ARES_OK; g++)
            answered[n_answered++] =
                (generate_group){ .draw = draws[g], .row = rows[g], .samples = out + g * n };
    }
    rc = ares_world_agree(t->run.world, rc);
    if (rc == ARES_OK) generate_fill(&b, answered, n_answered, n, t->actor.learner.optim.updates);
    if (rc == ARES_OK) rc = controls_validate(t->run.controls, &b, m);
    if (rc == ARES_OK) ares_reward_shape(t->reward, &b);
    for (int64_t r = 0; r < b.rows && rc == ARES_OK; r++) {
        const ares_row *row = b.samples[r].row;
        generate_sample *s = &answered[r / n].samples[r % n];
        tally *g = group_of(t, row, names, groups, &n_groups, parts, &arena);
        s->item.score = b.samples[r].score; /* a shaper may have added to it */
        count(&all, s, parts);
        if (g) count(g, s, parts);
        if (samples) write_sample(t, row, r % n, s, samples);
    }
    rc = ares_world_agree(t->run.world, rc);
    if (rc == ARES_OK) rc = put(t, &all, parts, m);
    if (rc == ARES_OK) rc = ares_reward_report(t->reward, t->run.world, "val/", m);
    double format;
    if (rc == ARES_OK && ares_metrics_get(m, "val/reward/format", &format))
        ares_metrics_set(m, "val/format_reward", format);
    if (rc == ARES_OK) rc = lengths(t, &b, m);
    ares_batch_fini(&b);
    for (int g = 0; g < n_groups && rc == ARES_OK; g++) rc = put(t, &groups[g], parts, m);
    ares_map_free(names);
    ares_arena_fini(&arena);
    return rc;
}
