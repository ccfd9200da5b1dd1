/* Data sets of an evaluation: their rows, their answers, their metrics. */
#include "run/eval_sets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collect/answerer.h"
#include "run/several.h"
#include "run/validate.h"

/* ---------------------------------------------------------------- opening */
static int open_set(ares_trainer *t, eval_set *e)
{
    const ares_row_file file = { .path = e->path, .source = e->name, .metadata = e->metadata };
    ares_dataset *d;
    ARES_TRY(training_open_encoder(&t->run, &e->data, &e->encoder));
    ARES_TRY(ares_dataset_load_files(&file, 1, &e->data, ares_reward_reads_truth(t->reward), &d));
    int rc = trainer_take_rows(t, d, e->encoder, false);
    if (rc == ARES_OK) rc = ares_source_of_dataset(d, &(ares_order){ .draw = 1 }, &e->source);
    if (rc != ARES_OK) ares_dataset_free(d);
    return rc;
}

int eval_sets_open(ares_trainer *t)
{
    for (int64_t i = 0; i < t->evals.n; i++) {
        int rc = open_set(t, &t->evals.items[i]);
        if (rc != ARES_OK) return ares_fail_in(rc, "eval.datasets: '%s'", t->evals.items[i].name);
    }
    return ARES_OK;
}

void eval_sets_close(eval_sets *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        ares_source_close(&e->items[i].source);
        ares_prompt_encoder_free(e->items[i].encoder);
    }
    *e = (eval_sets){ 0 };
}

/* ---------------------------------------------------------------- metrics */
typedef struct answered {
    int64_t row, index;
    double score, accuracy, length, stopped;
    bool failed, scored; /* failed, but scored: with on_failure: score */
} answered;

static int by_row(const void *a, const void *b)
{
    const answered *x = a, *y = b;
    return x->row != y->row ? (x->row > y->row) - (x->row < y->row)
                            : (x->index > y->index) - (x->index < y->index);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void put(ares_metrics *m, const char *set, const char *name, double value)
{
    char key[200];
    (void)snprintf(key, sizeof key, "eval/%s%s", set, name);
    ares_metrics_set(m, key, value);
}

/* Of prompts with n answers each. */
static void put_pass_at_k(ares_metrics *m, const eval_set *e, const answered *x, int64_t n)
{
    for (int i = 0; i < ares_pass_at_k_count(e->n); i++) {
        char name[40];
        int64_t k = (int64_t)1 << i;
        double sum = 0, prompts = 0;
        for (int64_t p = 0; p < n; p += e->n) {
            int64_t right = 0, scored = 0;
            for (int64_t a = p; a < p + e->n; a++) {
                right += x[a].scored && x[a].score == 1;
                scored += x[a].scored;
            }
            if (scored < k) continue;
            sum += ares_pass_at_k(scored, right, k);
            prompts++;
        }
        (void)snprintf(name, sizeof name, "-pass@%lld", (long long)k);
        if (prompts > 0) put(m, e->name, name, sum / prompts);
    }
}

static void put_set(ares_metrics *m, const eval_set *e, const answered *x, int64_t n)
{
    double score = 0, tokens = 0, cut = 0, right = 0, judged = 0, scored = 0, failed = 0;
    double *length = ares_malloc(((size_t)n + 1) * sizeof *length);
    for (int64_t i = 0; i < n; i++) {
        failed += x[i].failed;
        scored += x[i].scored;
        if (x[i].scored) score += x[i].score;
        tokens += length[i] = x[i].length;
        cut += !(x[i].stopped > 0);
        if (isnan(x[i].accuracy) || !x[i].scored) continue;
        right += x[i].accuracy;
        judged++;
    }
    qsort(length, (size_t)n, sizeof *length, ascending);
    if (scored > 0) put(m, e->name, "", score / scored);
    put(m, e->name, "/failed_frac", failed / (double)n);
    if (judged > 0) put(m, e->name, "/accuracy", right / judged);
    put(m, e->name, "/response_len/mean", tokens / (double)n);
    put(m, e->name, "/response_len/median",
        n % 2 ? length[n / 2] : (length[n / 2 - 1] + length[n / 2]) / 2);
    put(m, e->name, "/response_len/max", length[n - 1]);
    put(m, e->name, "/response_len/min", length[0]);
    put(m, e->name, "/truncated_ratio", cut / (double)n);
    put(m, e->name, "-truncated_ratio", cut / (double)n);
    put_pass_at_k(m, e, x, n);
    ares_free(length);
}

/* ---------------------------------------------------------------- answering */
static int gather(ares_trainer *t, const eval_set *e, const ares_group *groups, int64_t count,
                  ares_metrics *m)
{
    int64_t n = 0;
    char prefix[200];
    several together = { 0 };
    answered *mine = ares_malloc(((size_t)(count * e->n) + 1) * sizeof *mine);
    for (int64_t g = 0; g < count; g++) several_add(&together, t, &groups[g]);
    for (int64_t g = 0; g < count; g++)
        for (int32_t i = 0; i < groups[g].n; i++) {
            const ares_trajectory *y = &groups[g].items[i];
            mine[n++] = (answered){ groups[g].row->id,
                                    y->index,
                                    (double)y->score,
                                    (double)y->accuracy,
                                    (double)ares_trajectory_tokens(y),
                                    y->stopped,
                                    y->failed,
                                    !(y->failed && answer_discards_failures(t)) };
        }
    ares_str all = { 0 };
    int rc = ares_world_gather_all(t->run.world, mine, (size_t)n * sizeof *mine, &all, NULL);
    ares_free(mine);
    if (rc == ARES_OK) {
        n = (int64_t)(all.len / sizeof *mine);
        answered *x = ares_malloc(((size_t)n + 1) * sizeof *x);
        memcpy(x, all.data, all.len);
        qsort(x, (size_t)n, sizeof *x, by_row);
        put_set(m, e, x, n);
        ares_free(x);
    }
    ares_str_fini(&all);
    (void)snprintf(prefix, sizeof prefix, "eval/%s/", e->name);
    return rc == ARES_OK ? several_put(&together, t->run.world, e->n, prefix, m) : rc;
}

static int answer(ares_trainer *t, const answer_pass *pass, ares_arena *arena, ares_group *out,
                  int64_t *count)
{
    int64_t total = ares_source_count(pass->source), size = t->run.cfg->data.val_batch_size;
    if (size <= 0) size = total;
    *count = 0;
    for (int64_t at = 0; at < total; at += size) {
        ares_group *groups;
        int64_t n;
        ARES_TRY(answer_rows(t, pass, at, ARES_MIN(total, at + size), arena, &groups, &n));
        if (n) memcpy(out + *count, groups, (size_t)n * sizeof *out);
        *count += n;
    }
    return ARES_OK;
}

static int validate_set(ares_trainer *t, int64_t which, ares_arena *arena, ares_metrics *m,
                        ares_str *samples)
{
    const eval_set *e = &t->evals.items[which];
    const answer_pass pass = {
        .source = &e->source, .sampling = &e->sampling, .n = e->n, .key = ANSWER_EVALUATION + which
    };
    int64_t count;
    char prefix[200];
    ares_group *groups =
        ares_arena_calloc(arena, (size_t)ares_source_count(&e->source) + 1, sizeof *groups);
    ARES_TRY(ares_world_agree(t->run.world, answer(t, &pass, arena, groups, &count)));
    ARES_TRY(gather(t, e, groups, count, m));
    for (int64_t g = 0; g < count && samples; g++)
        for (int32_t i = 0; i < groups[g].n; i++)
            validation_write(t, e->name, groups[g].row, &groups[g].items[i], samples);
    (void)snprintf(prefix, sizeof prefix, "eval/%s/", e->name);
    return ares_reward_report(t->reward, t->run.world, prefix, m);
}

int eval_sets_validate(ares_trainer *t, ares_metrics *m, ares_str *samples)
{
    double sum = 0, value = 0, sets = 0;
    for (int64_t i = 0; i < t->evals.n; i++) {
        ares_arena arena = { 0 };
        int rc = validate_set(t, i, &arena, m, samples);
        ares_arena_fini(&arena);
        if (rc != ARES_OK) return ares_fail_in(rc, "eval '%s'", t->evals.items[i].name);
        char key[200];
        (void)snprintf(key, sizeof key, "eval/%s", t->evals.items[i].name);
        if (!ares_metrics_get(m, key, &value)) continue; /* nothing of it could be judged */
        sum += value;
        sets++;
    }
    /* what checkpoints are compared by, unless there are data.val_files */
    if (sets > 0 && !ares_metrics_get(m, "val/reward_score", &value))
        ares_metrics_set(m, "val/reward_score", sum / sets);
    return ARES_OK;
}
