/*
 * Lengths of the batch's sequences over all ranks, and what the step's stages did per token and
 * second (docs/update.md#metrics).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ares/data_balance.h"
#include "report.h"
#include "run/sizes.h"

typedef struct row_length {
    int64_t draw, index, length, rank;
} row_length;

/* In the order in which the prompts were drawn. */
static int by_draw(const void *a, const void *b)
{
    const row_length *x = a, *y = b;
    if (x->draw != y->draw) return x->draw < y->draw ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* The balance of tokens between ranks: as the rows were drawn, and as they were divided. */
static void report_balance(row_length *rows, int64_t n, int64_t ranks, ares_metrics *m)
{
    qsort(rows, (size_t)n, sizeof *rows, by_draw);
    int64_t *length = ares_malloc((size_t)n * 2 * sizeof *length), *part = length + n;
    for (int64_t i = 0; i < n; i++) {
        length[i] = rows[i].length;
        part[i] = rows[i].rank;
    }
    ares_balance_report(length, n, ranks, part, "global_seqlen", m);
    ares_free(length);
}

static void per_token(ares_metrics *m, const char *name, double tokens)
{
    char key[64];
    double seconds;
    snprintf(key, sizeof key, "timing_s/%s", name);
    if (tokens == 0 || !ares_metrics_get(m, key, &seconds)) return;
    snprintf(key, sizeof key, "timing_per_token_ms/%s", name);
    ares_metrics_set(m, key, seconds * 1000 / tokens);
}

/* Model FLOPs utilisation: the share of the device's peak; 0 where the peak is not known. */
static void report_mfu(const ares_trainer *t, const char *stage, const char *name,
                       const ares_model *model, int64_t epochs, double tokens, double squares,
                       ares_metrics *m)
{
    const ares_model_config *c = &model->cfg;
    flops_config f = { c->hidden,   c->vocab,        c->layers,  c->heads,
                       c->kv_heads, c->intermediate, c->head_dim };
    double seconds;
    if (!ares_metrics_get(m, stage, &seconds) || seconds <= 0) return;
    double done = train_tflops(&f, tokens, squares, seconds) * (double)epochs,
           peak = train_peak_tflops(ares_device_card(&t->run.device));
    ares_metrics_set(m, name,
                     isfinite(peak) ? done / (peak * (double)ares_world_size(t->run.world)) : 0);
}

int report_lengths(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    ares_str all = { 0 };
    row_length *mine = ares_calloc((size_t)b->rows + 1, sizeof *mine);
    double response = 0, tokens = 0, squares = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        const ares_sample *s = &b->samples[r];
        int64_t n = b->row_start[r + 1] - b->row_start[r];
        mine[r] =
            (row_length){ s->draw, s->index, s->prompt_len + n, ares_world_rank(t->run.world) };
        response += (double)n;
    }
    int rc = ares_world_gather_all(t->run.world, mine, (size_t)b->rows * sizeof *mine, &all, NULL);
    ares_free(mine);
    if (rc == ARES_OK) rc = ares_world_sum_f64(t->run.world, &response, 1);
    if (rc == ARES_OK) {
        row_length *rows = (row_length *)(void *)all.data;
        int64_t n = (int64_t)(all.len / sizeof *rows);
        for (int64_t i = 0; i < n; i++)
            tokens += (double)rows[i].length,
                squares += (double)rows[i].length * (double)rows[i].length;
        if (n) report_balance(rows, n, ares_world_size(t->run.world), m);
        static const char *const of_response[] = { "gen", "reward" }, *const of_all[] = {
            "old", "ref", "values", "adv", "update_critic", "update_actor"
        };
        for (int i = 0; i < ARES_COUNT(of_response); i++) per_token(m, of_response[i], response);
        for (int i = 0; i < ARES_COUNT(of_all); i++) per_token(m, of_all[i], tokens);
        report_mfu(t, "timing_s/update_actor", "perf/mfu_actor", t->run.model,
                   t->run.cfg->actor.ppo_epochs, tokens, squares, m);
        if (t->critic)
            report_mfu(t, "timing_s/update_critic", "perf/mfu_critic", t->critic->learner.model,
                       t->run.cfg->critic.ppo_epochs, tokens, squares, m);
    }
    ares_str_fini(&all);
    return rc;
}

int report_memory(const training *t, ares_metrics *m)
{
    double process = (double)ares_peak_memory_bytes(),
           gb[3] = { process, (double)t->device.most_allocated,
                     ares_device_memory_bytes(&t->device) };
    if (t->device.index < 0) gb[2] = process; /* on the CPU, the memory of the process */
    ARES_TRY(ares_world_max_f64(t->world, gb, 3));
    ares_metrics_set(m, "perf/cpu_memory_used_gb", gb[0] / 1073741824.0);
    ares_metrics_set(m, "perf/max_memory_allocated_gb",
                     gb[1] / 1073741824.0); /* weights, gradients, states, activations, caches */
    ares_metrics_set(m, "perf/max_memory_reserved_gb",
                     gb[2] / 1073741824.0); /* with what libraries and scratch take */
    return ARES_OK;
}
