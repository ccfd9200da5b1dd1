/*
 * Supervised fine-tuning: a learner without rollouts. A row of the batch is a prompt and an answer
 * as in reinforcement learning, so that packing, head and optimizer are the same. Ranks take rows
 * in turn, and the loss divides by the trained tokens of all ranks, so that neither micro-batches
 * nor the rank count change the weight of a token.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "options/device.h"
#include "options/pixels.h"
#include "options/sharing.h"
#include "roles/sight.h"
#include "run/check_files.h"
#include "run/run.h"
#include "sft_data.h"

ARES_OPTION_TABLE(sft_options, ares_sft_config, ARES_SFT_OPTIONS);

typedef struct sft_trainer {
    training run;          /* first: a run's training is its trainer */
    ares_train_config cfg; /* the run's options, with temperature 1 and no shared prompts */
    learner policy;
    sft_rows train, val;
    ares_batch batch;
} sft_trainer;

/* TRL's words; beside rewards max_length is another thing. */
static const ares_config_alias sft_aliases[] = {
    { "max_length", "sft.max_length", NULL, NULL },
    { "max_seq_length", "sft.max_length", NULL, NULL },
};

void ares_sft_declare(ares_config *cfg, ares_train_config *out)
{
    ares_config_add_aliases(cfg, sft_aliases, ARES_COUNT(sft_aliases));
    ares_config_add_options(cfg, "sft", sft_options, &out->sft);
}

int ares_sft_check(ares_config *cfg, const ares_train_config *c, int world)
{
    if (!c->trainer.val_only && !c->data.train_files.count)
        ares_config_fault(cfg, "data.train_files",
                          "no training rows; name a JSONL file, or set trainer.val_only=true");
    if ((c->trainer.val_only || c->trainer.val_freq > 0) && !c->data.val_files.count)
        ares_config_fault(cfg, "data.val_files",
                          "validation is asked for and has no rows; name a JSONL file%s",
                          c->trainer.val_only ? "" : ", or set trainer.val_freq=-1");
    if (c->curriculum.names.count || c->curriculum.weights->type != ARES_JSON_NULL)
        ares_config_fault(cfg,
                          c->curriculum.names.count ? "curriculum.names" : "curriculum.weights",
                          "supervised runs read data.train_files as one data set; leave it out");
    if (c->eval.datasets->count)
        ares_config_fault(cfg, "eval.datasets",
                          "supervised runs validate on data.val_files alone; leave it out");
    if (c->sft.batch_size % world)
        ares_config_fault(cfg, "sft.batch_size",
                          "rows are dealt out to %d ranks; set a multiple of %d", world, world);
    pixels_check(cfg, &c->data);
    device_check(cfg, &c->trainer);
    sharing_check(cfg, c, world);
    return ares_config_finish(cfg);
}

/* ------------------------------------------------------------------ setting up */
static int open_rows(sft_trainer *t, const ares_texts *files, const ares_order *order,
                     ares_source *source, sft_rows *rows)
{
    const sft_encoder e = { &t->cfg, t->run.encoder, t->run.tokenizer, &t->run.model->cfg };
    ares_dataset *d;
    const char *keys[3];
    sft_row_keys(&t->cfg, keys);
    ARES_TRY(ares_dataset_load_rows(files, keys, &d));
    int rc = sft_rows_encode(d, &e, t->run.device.pool, rows);
    if (rc == ARES_OK && rows->count < order->draw)
        rc =
            ares_fail(ARES_ECONFIG,
                      "data: %lld rows are fewer than sft.batch_size = %lld; lower it, or add rows",
                      (long long)rows->count, (long long)order->draw);
    if (rc == ARES_OK) rc = ares_source_of_dataset(d, order, source);
    if (rc != ARES_OK) ares_dataset_free(d);
    return rc;
}

static int open_training_rows(sft_trainer *t)
{
    const ares_train_config *c = &t->cfg;
    const ares_order order = { .draw = c->sft.batch_size,
                               .shuffle = c->data.shuffle,
                               .seed = (uint64_t)c->data.seed,
                               .option = "sft.batch_size" };
    ARES_TRY(open_rows(t, &c->data.train_files, &order, &t->run.source, &t->train));
    t->run.total_steps = c->trainer.max_steps == ARES_NULL_I64
                             ? ares_source_epoch_draws(&t->run.source) * c->trainer.total_epochs
                             : c->trainer.max_steps;
    return ARES_OK;
}

static int open_encoder(sft_trainer *t)
{
    ares_data_config *data = &t->cfg.data;
    if (!data->override_chat_template && !ares_tokenizer_chat_template(t->run.tokenizer, NULL).data)
        data->apply_chat_template = false;
    return training_open_encoder(&t->run, data, &t->run.encoder);
}

/* optim: of the configuration itself, not of its copy, since a schedule changes it. */
static int open_parts(sft_trainer *t, const ares_optim_config *optim, const char *weights)
{
    ares_train_config *c = &t->cfg;
    ARES_TRY(training_open_device(&t->run));
    ARES_TRY(training_open_model(&t->run, weights));
    ARES_TRY(open_encoder(t));
    if (!c->trainer.val_only) ARES_TRY(open_training_rows(t));
    if (c->data.val_files.count)
        ARES_TRY(
            open_rows(t, &c->data.val_files, &(ares_order){ .draw = 1 }, &t->run.val, &t->val));
    t->run.validates = ares_source_count(&t->run.val);
    return learner_open(
        &t->policy, t->run.model,
        &(learner_options){ .role = "actor",
                            .world = t->run.world,
                            .features = t->run.features,
                            .optim = c->trainer.val_only ? NULL : optim,
                            .total_steps = t->run.total_steps,
                            .gradient_checkpointing = c->actor.gradient_checkpointing,
                            .round_tokens = c->actor.round_tokens });
}

static sft_trainer *sft_new(const ares_train_config *c, ares_world *world)
{
    sft_trainer *t = ares_calloc(1, sizeof *t);
    t->cfg = *c;
    t->cfg.rollout.temperature = 1;
    t->cfg.actor.share_prompts = false; /* every row has a prompt of its own */
    training_init(&t->run, &t->cfg, world);
    t->run.policy = &t->policy;
    ares_batch_init(&t->batch);
    return t;
}

static int open_sft(ares_config *cfg, const ares_train_config *c, ares_world *world,
                    const char *weights, training **out)
{
    (void)cfg;
    sft_trainer *t = sft_new(c, world);
    *out = &t->run;
    return ares_world_agree(world, open_parts(t, &c->optim, weights));
}

static sft_trainer *trainer_of(training *t)
{
    return (sft_trainer *)(void *)t; /* which it is the first member of */
}

static void close_sft(training *run)
{
    sft_trainer *t = trainer_of(run);
    learner_close(&t->policy);
    sft_rows_fini(&t->train);
    sft_rows_fini(&t->val);
    ares_batch_fini(&t->batch);
    training_close(run);
    ares_free(t);
}

/* ------------------------------------------------------------------ --check */
static int check_rows(const sft_trainer *t, const char *path)
{
    ares_dataset *d;
    const char *keys[3];
    sft_row_keys(&t->cfg, keys);
    ARES_TRY(check_open_rows(&(ares_row_file){ .path = path, .keys = keys }, NULL, false, &d));
    if (d && t->run.model) {
        sft_rows rows;
        sft_encoder e = { &t->cfg, t->run.encoder, t->run.tokenizer, &t->run.model->cfg };
        int rc = sft_rows_encode(d, &e, t->run.device.pool, &rows);
        sft_rows_fini(&rows);
        ares_dataset_free(d);
        return check_lengths(rc, strcmp(t->cfg.sft.truncation, "error") != 0);
    }
    ares_dataset_free(d);
    return ARES_OK;
}

int ares_sft_check_files(ares_config *cfg, const ares_train_config *c)
{
    (void)cfg;
    sft_trainer *t = sft_new(c, NULL);
    const ares_texts *lists[] = { c->trainer.val_only ? NULL : &c->data.train_files,
                                  &c->data.val_files };
    int rc = check_open_model(&t->run);
    if (rc == ARES_OK && t->run.model) rc = open_encoder(t);
    for (int k = 0; k < ARES_COUNT(lists); k++)
        for (int64_t i = 0; lists[k] && i < lists[k]->count && rc == ARES_OK; i++)
            rc = check_rows(t, lists[k]->items[i]);
    close_sft(&t->run);
    return rc;
}

/* ------------------------------------------------------------------ batches */
static void add_row(ares_batch *b, const sft_row *row)
{
    ares_sample s = { .draw = row->row->id,
                      .row = row->row,
                      .prompt = row->ids,
                      .prompt_len = row->prompt,
                      .sight = row->sight };
    ares_batch_begin_group(b);
    ares_batch_add_row(b, &s, row->n - row->prompt);
}

/* rows [b->rows]: the rows that were added */
static void fill(ares_batch *b, const sft_row *const *rows)
{
    ARES_PUT(b, responses);
    ARES_PUT(b, response_mask);
    for (int64_t r = 0; r < b->rows; r++) {
        size_t n = (size_t)(rows[r]->n - rows[r]->prompt);
        memcpy(b->responses + b->row_start[r], rows[r]->ids + rows[r]->prompt,
               n * sizeof *b->responses);
        memcpy(b->response_mask + b->row_start[r], rows[r]->trained + rows[r]->prompt, n);
    }
}

/* This rank's rows of the step. */
static int next_batch(sft_trainer *t, ares_batch *b)
{
    int64_t size = t->cfg.sft.batch_size, ranks = ares_world_size(t->run.world),
            rank = ares_world_rank(t->run.world);
    ares_batch_clear(b);
    ares_drawn *drawn = ares_arena_alloc(&b->arena, (size_t)size * sizeof *drawn);
    const sft_row **rows = ares_arena_alloc(&b->arena, (size_t)size * sizeof *rows);
    ARES_TRY(ares_source_next(&t->run.source, size, &b->arena, drawn));
    for (int64_t i = rank; i < size; i += ranks) {
        rows[b->rows] = &t->train.items[drawn[i].id];
        add_row(b, rows[b->rows]);
    }
    fill(b, rows);
    return ARES_OK;
}

/* ------------------------------------------------------------------ the step */
/* Passes over n micro-batches, which may be none. d_log_prob: of the batch's tokens; loss: is added
 * to */
static int pass_over(learner *l, const ares_batch *b, const ares_micro_batch *m, int64_t n,
                     const float *d_log_prob, double *loss)
{
    const learner_scoring scoring = { .temperature = 1 };
    ARES_TRY(learner_add_gradients(l, &scoring, b, m, n, d_log_prob, loss));
    if (isfinite(*loss)) return ARES_OK;
    const ares_row *row = b->samples[m->row].row;
    return ares_fail(ARES_ENUMERIC,
                     "loss is %g in a micro-batch of %lld rows that begins with %s:%lld; lower "
                     "the learning rate, or look at these rows",
                     *loss, (long long)(m[n - 1].end - m->row), row->file, (long long)row->line);
}

/* The rounds of the step's rows: a micro-batch after the other, or all together. */
static int all_rounds(sft_trainer *t, const float *d_log_prob, double *loss)
{
    ares_batch *b = &t->batch;
    learner *l = &t->policy;
    learner_rounds rounds;
    ares_micro_batch *plan = ares_arena_alloc(&b->arena, (size_t)(b->rows + 1) * sizeof *plan);
    ARES_TRY(learner_cut_rounds(l, b, 0, b->rows, false, &b->arena, &rounds));
    for (int64_t r = 0; r < rounds.n; r++) {
        int64_t i = 0, n = ares_pack_plan(b, rounds.round[r].row, rounds.round[r].end,
                                          t->cfg.actor.max_token_len, false, plan);
        int rc;
        ares_work_expect(ARES_WORK_MICRO_BATCHES, n);
        do { /* once where there is no row, too: all ranks make the same passes */
            int64_t k = learner_together(l, NULL, n - i);
            rc = pass_over(l, b, plan + i, k, d_log_prob, loss);
            i += k;
        } while (i < n && rc == ARES_OK);
        ARES_TRY(learner_end_round(l, rc));
    }
    return ARES_OK;
}

typedef struct step_sums {
    double loss;            /* mean of -log p over the trained tokens */
    double trained, tokens; /* trained tokens, all tokens with those of the prompts */
    bool finite;            /* the loss is, on every rank; else the last failure says where not */
} step_sums;

/* Gradients of the mean loss over all trained tokens of the step; sums over all ranks. */
static int backward(sft_trainer *t, step_sums *out)
{
    ares_batch *b = &t->batch;
    learner *l = &t->policy;
    ares_agg_counts counts = { 0 };
    ares_agg_count(b, 0, b->rows, &counts);
    double sums[3] = { counts.tokens, counts.rows, (double)b->tokens };
    for (int64_t r = 0; r < b->rows; r++) sums[2] += b->samples[r].prompt_len;
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, 3));
    counts = (ares_agg_counts){ .tokens = sums[0], .rows = sums[1] };
    if (sums[0] == 0)
        return ares_fail(ARES_ESTATE, "sft: step %lld: no token of its rows is trained",
                         (long long)l->step + 1);
    float *weight = ares_arena_calloc(&b->arena, (size_t)b->tokens + 1, sizeof *weight);
    ARES_TRY(ares_agg_weights("token-mean", b, 0, b->rows, &counts, weight));
    for (int64_t t = 0; t < b->tokens; t++) weight[t] = -weight[t]; /* of the loss by log-probs */

    double loss = 0;
    ARES_TRY(learner_zero_grad(l, NULL));
    int rc = ares_world_agree(t->run.world, all_rounds(t, weight, &loss));
    *out = (step_sums){
        .loss = loss, .trained = sums[0], .tokens = sums[2], .finite = rc != ARES_ENUMERIC
    };
    if (!out->finite) return ARES_OK;
    return rc == ARES_OK ? ares_world_sum_f64(t->run.world, &out->loss, 1) : rc;
}

static int step_sft(training *run, ares_metrics *m)
{
    sft_trainer *t = trainer_of(run);
    learner *l = &t->policy;
    char what[64];
    step_sums sums;
    double norm = NAN, lr = learner_lr(l), started = ares_now_s();
    ares_work_begin("update");
    ARES_TRY(next_batch(t, &t->batch));
    ares_metrics_set(m, "timing_s/data", ares_now_s() - started);
    started = ares_now_s();
    snprintf(what, sizeof what, "sft: step %lld", (long long)l->step + 1);
    ARES_TRY(backward(t, &sums));
    ARES_TRY(learner_step(l, sums.finite ? ARES_OK : ARES_ENUMERIC, t->cfg.actor.max_grad_norm,
                          what, &norm));
    l->step++;
    ares_metrics_set(m, "timing_s/update_actor", ares_now_s() - started);
    if (sums.finite) ares_metrics_set(m, "train/loss", sums.loss);
    ares_metrics_set(m, "train/tokens", sums.trained);
    ares_metrics_set(m, "actor/skipped_updates", isnan(norm));
    if (!isnan(norm)) ares_metrics_set(m, "actor/grad_norm", norm);
    ares_metrics_set(m, "actor/lr", lr);
    ares_metrics_set(m, "perf/total_num_tokens", sums.tokens);
    if (l->features) ares_features_trim(l->features);
    return sight_report(l, NULL, &t->batch, m);
}

/* ------------------------------------------------------------------ validation */
enum { VALIDATED_AT_ONCE = 64 };

/*
 * The next VALIDATED_AT_ONCE of rows first, first + stride, ...: adds the sum of -log p over their
 * trained tokens to sums[0], the number of these to sums[1].
 */
static int score(sft_trainer *t, int64_t first, int64_t stride, double sums[2])
{
    ares_batch *b = &t->batch;
    const sft_row *rows[VALIDATED_AT_ONCE];
    ares_batch_clear(b);
    for (int64_t i = first; i < t->val.count && b->rows < VALIDATED_AT_ONCE; i += stride) {
        rows[b->rows] = &t->val.items[i];
        add_row(b, rows[b->rows]);
    }
    fill(b, rows);
    float *log_probs = ares_arena_alloc(&b->arena, (size_t)(b->tokens + 1) * sizeof *log_probs);
    const learner_scoring scoring = learner_scoring_of(&t->cfg);
    ARES_TRY(learner_log_probs(&t->policy, &scoring, b, 0, b->rows, log_probs, NULL));
    ares_work_done(ARES_WORK_ROWS, b->rows);
    if (t->policy.features) ares_features_trim(t->policy.features);
    for (int64_t i = 0; i < b->tokens; i++) {
        if (!b->response_mask[i]) continue;
        sums[0] -= (double)log_probs[i];
        sums[1]++;
    }
    return ARES_OK;
}

static int validate_sft(training *run, ares_metrics *m, ares_str *samples)
{
    (void)samples;
    sft_trainer *t = trainer_of(run);
    int64_t ranks = ares_world_size(t->run.world), stride = ranks * VALIDATED_AT_ONCE;
    double sums[2] = { 0 };
    int rc = ARES_OK;
    ares_work_expect(ARES_WORK_ROWS,
                     (t->val.count + ranks - 1 - ares_world_rank(t->run.world)) / ranks);
    for (int64_t at = 0; at < t->val.count && rc == ARES_OK; at += stride) /* as often everywhere */
        rc = score(t, at + ares_world_rank(t->run.world), ranks, sums);
    ARES_TRY(ares_world_agree(t->run.world, rc));
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, 2));
    double loss = sums[0] / sums[1];
    if (!isfinite(loss))
        return ares_fail(ARES_ENUMERIC, "sft: step %lld: the validation loss is %g",
                         (long long)t->run.step, loss);
    ares_metrics_set(m, "val/loss", loss);
    ares_metrics_set(m, "val/perplexity", exp(loss));
    return ARES_OK;
}

static void declare_all(ares_config *cfg, ares_train_config *out)
{
    ares_train_config_declare(cfg, out);
    ares_sft_declare(cfg, out);
}

int ares_sft_run(ares_config *cfg, const ares_train_config *c, ares_world *world)
{
    static const run_kind kind = { .declare = declare_all,
                                   .open = open_sft,
                                   .close = close_sft,
                                   .step = step_sft,
                                   .validate = validate_sft };
    return train_run(&kind, cfg, c, world);
}
