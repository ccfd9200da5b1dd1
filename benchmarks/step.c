/*
 * Decoding, the update and a whole GRPO step of the trainer's own parts, as JSON lines like those
 * of the scripts in peers/ (benchmarks/run.sh runs both sides in turn). tiny is the random Qwen2
 * with 0.85 M parameters of docs/performance.md#models-and-machine; any other model is a directory.
 *
 *   bench_step decode [model=tiny] [batch=1] [prompt=32] [new=64] [dtype=fp32] [threads=0]
 *       [repeat=3] [device=cpu] [kernels=native]
 *   bench_step drafts [model=tiny] [new=128] [dtype=fp32] [threads=0] [repeat=3]
 *       both sides of worker.rollout.speculation in turn, of answers that copy and that do not
 *   bench_step update [model=tiny] [rows=128] [tokens=96] [micro=1024] [recompute=0] [dead=0]
 *       dead: share of the groups of `samples` rows whose advantages are 0. Where it is above 0,
 *       updates that leave their backward pass out and updates that compute it take turns, with
 *       some where all groups or none are such, and the machine's limit is measured beside them
 *   bench_step grpo   [model=tiny] [prompts=16] [samples=8] [prompt=32] [new=64] [beta=0]
 *                     [micro=1024] [lora=0]    lora: rank of an adapter beside the frozen model
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "limit.h"
#include "options.h"
#include "trainer.h"

typedef struct options {
    const char *model, *dtype, *device, *kernels;
    int64_t recompute, batch, prompt, new, threads, repeat, rows, tokens, prompts, samples, micro,
        lora;
    double beta, dead;
} options;

static int set(options *o, const char *word)
{
    const bench_option known[] = {
        { "model", .text = &o->model },
        { "dtype", .text = &o->dtype },
        { "device", .text = &o->device },
        { "kernels", .text = &o->kernels },
        { "recompute", .number = &o->recompute },
        { "batch", .number = &o->batch, .least = 1 },
        { "prompt", .number = &o->prompt, .least = 1 },
        { "new", .number = &o->new, .least = 1 },
        { "threads", .number = &o->threads },
        { "repeat", .number = &o->repeat, .least = 1 },
        { "rows", .number = &o->rows, .least = 1 },
        { "tokens", .number = &o->tokens, .least = 1 },
        { "prompts", .number = &o->prompts, .least = 1 },
        { "samples", .number = &o->samples, .least = 1 },
        { "micro", .number = &o->micro, .least = 1 },
        { "lora", .number = &o->lora },
        { "beta", .real = &o->beta },
        { "dead", .real = &o->dead },
    };
    return bench_set("bench_step", known, ARES_COUNT(known), word);
}

static int open_model(const options *o, ares_device *d, bool trainable, ares_model **m)
{
    const ares_model_config tiny = bench_tiny();
    ares_model_options opt = { .storage = strcmp(o->dtype, "bf16") == 0 ? ARES_BF16 : ARES_F32,
                               .trainable = trainable };
    ARES_TRY(ares_device_open_table(o->device, o->kernels, opt.storage, (int)o->threads, d));
    return strcmp(o->model, "tiny") == 0 ? ares_model_new(&tiny, d, &opt, 1, m)
                                         : ares_model_load(o->model, d, &opt, m);
}

/*
 * Arithmetic of a phase in GFLOP, as the algorithm needs it: 2 per weight and token of the
 * products, 4 per channel of a head and visible token of the attention. A backward pass counts
 * twice its forward pass; norms, activations and AdamW are not counted.
 */
static double block_flop(const ares_model_config *c)
{
    double heads = (double)c->heads * c->head_dim, kv = (double)c->kv_heads * c->head_dim,
           hidden = c->hidden;
    return 2.0 * c->layers * (hidden * (2 * heads + 2 * kv) + 3 * hidden * c->intermediate);
}
static double head_flop(const ares_model_config *c)
{
    return 2.0 * c->hidden * c->vocab;
}
/* Of n tokens at positions from..from+n-1, each of which sees all before it and itself. */
static double attention_flop(const ares_model_config *c, double from, double n)
{
    return 4.0 * c->layers * c->heads * c->head_dim * (n * from + n * (n + 1) / 2);
}
/*
 * Rows that share prompts: each prompt once, then each sample's tokens but the last; the head once
 * for each of their tokens.
 */
static double forward_gflop(const ares_model_config *c, double prompts, double prompt,
                            double samples, double new)
{
    double tokens = prompts * (prompt + samples * (new - 1));
    double attention =
        prompts * (attention_flop(c, 0, prompt) + samples * attention_flop(c, prompt, new - 1));
    return (tokens * block_flop(c) + attention + prompts * samples * new *head_flop(c)) * 1e-9;
}

/*
 * A decoded token reads the keys and values of its own sample; the weights are read once per step
 * of all samples.
 */
static double cache_bytes(const ares_model *m, double prompt, double new)
{
    return 2.0 * m->cfg.layers * m->cfg.kv_heads * m->cfg.head_dim *
           (double)ares_dtype_bytes(m->device->k->act) * (prompt + new / 2);
}

static void random_ids(int32_t vocab, uint64_t which, int64_t n, int32_t *ids)
{
    ares_rng_key key = ares_rng_sub(ares_rng_root(5, ARES_RNG_TEST), which, 0);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)ares_rng_below(key, (uint64_t)i, (uint64_t)vocab);
}

/* The measurements of `repeat` runs, and the best of them. */
typedef struct values {
    double v[64];
    int n, best;
} values;

static void keep(values *all, double v, bool high_is_good)
{
    if (all->n == ARES_COUNT(all->v)) return;
    if (all->n == 0 || (high_is_good ? v > all->v[all->best] : v < all->v[all->best]))
        all->best = all->n;
    all->v[all->n++] = v;
}

static void emit(const options *o, const ares_device *d, const char *measure, const values *all,
                 const char *unit, const char *more)
{
    printf("{\"measure\":\"%s\",\"side\":\"ares\",\"model\":\"%s\",\"dtype\":\"%s\",\"isa\":\"%s\","
           "\"threads\":%d,\"value\":%.6g,\"unit\":\"%s\",\"all\":[",
           measure, o->model, o->dtype, d->k->name, ares_pool_threads(d->pool), all->v[all->best],
           unit);
    for (int i = 0; i < all->n; i++) printf("%s%.6g", i ? "," : "", all->v[i]);
    values sorted = *all;
    printf("],\"median\":%.6g,\"peak_gib\":%.3f%s}\n", bench_median(sorted.v, sorted.n),
           (double)ares_peak_memory_bytes() / 1073741824.0, more);
    fflush(stdout);
}

/*
 * All samples of the batch decode together while time is taken: those whose prompts came first have
 * tokens to spare, so that none ends before `new` more of each are decoded.
 */
static int decode(const options *o)
{
    enum { STEP = 4096 }; /* tokens */
    ares_device d;
    ares_model *m;
    ares_rollout *r;
    ARES_TRY(open_model(o, &d, false, &m));
    int64_t longest = o->new + o->batch * o->prompt / STEP + 16;
    ares_rollout_options ro = { .max_num_seqs = (int32_t)o->batch,
                                .max_num_batched_tokens = STEP,
                                .max_model_len = (int32_t)(o->prompt + longest),
                                .cache_tokens = (o->batch + 1) * (o->prompt + longest + 64) };
    ares_sampling s = { .temperature = 1,
                        .top_p = 1,
                        .top_k = -1,
                        .max_new_tokens = (int32_t)longest,
                        .ignore_eos = true };
    ARES_TRY(ares_rollout_new(m, NULL, &ro, &r));
    int32_t *prompt = ares_malloc((size_t)o->prompt * sizeof *prompt);
    values all = { .n = 0 };
    double rows = 0,
           seen = 0; /* of the last run: rows of a step, and tokens before a decoded one */
    for (int64_t k = 0; k <= o->repeat; k++) {
        int64_t active = 1;
        ares_rollout_stats stats;
        ares_work_begin("prompts");
        ares_rollout_clear(r);
        ares_rollout_get_stats(r, &stats);
        int64_t none = stats.decoded_tokens, prompts = stats.prefill_tokens;
        for (int64_t b = 0; b < o->batch; b++) {
            random_ids(m->cfg.vocab, (uint64_t)b, o->prompt, prompt);
            ARES_TRY(ares_rollout_add(
                r,
                &(ares_request){ .prompt = prompt,
                                 .prompt_len = (int32_t)o->prompt,
                                 .n = 1,
                                 .sampling = s,
                                 .key = ares_rng_root((uint64_t)b, ARES_RNG_SAMPLE) },
                NULL));
        }
        do { /* the prompts' own pass is not counted */
            ARES_TRY(ares_rollout_step(r, &active));
            ares_rollout_get_stats(r, &stats);
        } while (stats.prefill_tokens - prompts < o->batch * o->prompt);
        int64_t before = stats.decoded_tokens, steps = stats.steps;
        ares_work_begin("decode");
        double t = ares_now_s();
        while (active && stats.decoded_tokens - before < o->batch * (o->new - 1)) {
            ARES_TRY(ares_rollout_step(r, &active));
            ares_rollout_get_stats(r, &stats);
        }
        t = ares_now_s() - t;
        if (k) keep(&all, (double)(stats.decoded_tokens - before) / t, true);
        rows = (double)(stats.decoded_tokens - before) / (double)(stats.steps - steps);
        seen = (double)o->prompt + (double)(before - none) / (double)o->batch;
    }
    double counted = (double)(o->new - 1),
           flop = counted * (block_flop(&m->cfg) + head_flop(&m->cfg)) +
                  attention_flop(&m->cfg, seen, counted);
    double bytes =
        (double)m->params.weights_bytes / (double)o->batch + cache_bytes(m, seen, counted);
    char more[192];
    snprintf(more, sizeof more,
             ",\"batch\":%lld,\"rows\":%.1f,\"seen\":%.1f,\"gflop_per_token\":%.6g,"
             "\"bytes_per_token\":%.6g",
             (long long)o->batch, rows, seen, flop / counted * 1e-9, bytes);
    emit(o, &d, "decode", &all, "tokens/s", more);
    ares_device_close(&d); /* says times, where they are taken; the rest goes with the program */
    return ARES_OK;
}

/* ---------------------------------------------------------------- drafts of the rollout */
/* One prompt and its answers. text NULL: random ids, which also stand for it in the tiny model. */
typedef struct draft_case {
    const char *name, *text;
    float temperature;
    int32_t n;
} draft_case;
#define USER(text) "<|im_start|>user\n" text "<|im_end|>\n<|im_start|>assistant\n"
#define STORY                                                                                 \
    "The lighthouse keeper climbed the narrow stairs every evening to light the lamp. On "    \
    "clear nights he could see the fishing boats far out on the water, and on stormy nights " \
    "he heard only the wind and the waves against the rocks below. One morning a letter "     \
    "came from his sister in the city, who asked him to visit her before the winter."
/* Continued as they are: a small model edits and adds better in a pattern than when asked to. */
#define CODE                                                                                       \
    "class Box:\n    def __init__(self, width, height, depth):\n        self.width = width\n"      \
    "        self.height = height\n        self.depth = depth\n\n    def get_width(self):\n"       \
    "        return self.width\n\n    def set_width(self, value):\n        if value < 0:\n"        \
    "            raise ValueError(\"width must not be negative\")\n        self.width = value\n\n" \
    "    def get_height(self):\n"
#define SUMS                                                                                    \
    "Sum: 2 + 4 + 6 + 8 + 10\n6 + 6 + 8 + 10\n12 + 8 + 10\n20 + 10\n30\n\n"                     \
    "Sum: 1 + 3 + 5 + 7 + 9\n4 + 5 + 7 + 9\n9 + 7 + 9\n16 + 9\n25\n\n"                          \
    "Sum: 3 + 2 + 5 + 1 + 4 + 2\n5 + 5 + 1 + 4 + 2\n10 + 1 + 4 + 2\n11 + 4 + 2\n15 + 2\n17\n\n" \
    "Sum: 1 + 1 + 2 + 3 + 5 + 8\n"
static const draft_case draft_cases[] = {
    { "a text is repeated", USER("Repeat the following text exactly, word for word:\n\n" STORY), 0,
      1 },
    { "code is edited", CODE, 0, 1 },
    { "sums step by step", SUMS, 0, 1 },
    { "a text is repeated, 16 answers",
      USER("Repeat the following text exactly, word for word:\n\n" STORY), 0.7f, 16 },
    { "a free answer", USER("Write a short story about a journey by train."), 1, 1 },
    { "random ids", NULL, 1, 1 },
    { "random ids, 16 answers", NULL, 1, 16 },
};

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What one side took after the prompt's pass; *hash: of all ids in their order. */
typedef struct draft_side {
    double wall_s, cpu_s;
    int64_t tokens, steps, drafted, accepted;
    uint64_t hash;
} draft_side;

static int draft_run(const options *o, const draft_case *x, const ares_ids *ids, ares_rollout *r,
                     draft_side *out)
{
    int64_t active = 1;
    ares_rollout_stats stats;
    ares_completion c;
    ares_rollout_clear(r);
    ARES_TRY(ares_rollout_add(r,
                              &(ares_request){ .prompt = ids->ids,
                                               .prompt_len = (int32_t)ids->n,
                                               .n = x->n,
                                               .sampling = { .temperature = x->temperature,
                                                             .top_p = 1,
                                                             .max_new_tokens = (int32_t)o->new },
                                               .key = ares_rng_root(1, ARES_RNG_SAMPLE) },
                              NULL));
    do {
        ARES_TRY(ares_rollout_step(r, &active));
        ares_rollout_get_stats(r, &stats);
    } while (stats.prefill_tokens < ids->n);
    int64_t steps = stats.steps, tokens = stats.decoded_tokens;
    double wall = ares_now_s(), cpu = cpu_s();
    while (active) ARES_TRY(ares_rollout_step(r, &active));
    *out = (draft_side){ .wall_s = ares_now_s() - wall, .cpu_s = cpu_s() - cpu };
    ares_rollout_get_stats(r, &stats);
    out->steps = stats.steps - steps;
    out->tokens = stats.decoded_tokens - tokens;
    out->drafted = stats.drafted_tokens;
    out->accepted = stats.accepted_tokens;
    while (ares_rollout_next(r, &c))
        for (int32_t i = 0; i < c.n_tokens; i++)
            out->hash += ((uint64_t)c.index << 32 | (uint64_t)i) * 0x9E3779B97F4A7C15ULL *
                         (uint64_t)(c.ids[i] + 1);
    return ARES_OK;
}

static int drafts(const options *o)
{
    ares_device d;
    ares_model *m;
    ares_tokenizer *t = NULL;
    ares_rollout *r[2];
    bool tiny = strcmp(o->model, "tiny") == 0;
    ARES_TRY(open_model(o, &d, false, &m));
    if (!tiny) ARES_TRY(ares_tokenizer_load(o->model, &t));
    ares_rollout_options ro = { .max_num_seqs = 16,
                                .max_num_batched_tokens = 2048,
                                .max_model_len = 512 + (int32_t)o->new,
                                .cache_tokens = 17 * (512 + o->new) };
    for (int on = 0; on < 2; on++) {
        ro.drafts_tokens = on;
        ARES_TRY(ares_rollout_new(m, NULL, &ro, &r[on]));
    }
    for (int i = 0; i < ARES_COUNT(draft_cases); i++) {
        const draft_case *x = &draft_cases[i];
        ares_ids ids = { 0 };
        values all[2] = { 0 }, cpu[2] = { 0 };
        draft_side last[2];
        int32_t random[64];
        random_ids(m->cfg.vocab, 7, ARES_COUNT(random), random);
        if (t && x->text) ARES_TRY(ares_tokenizer_encode(t, ares_view_of(x->text), false, &ids));
        else
            for (int k = 0; k < ARES_COUNT(random); k++) ares_ids_add(&ids, random[k], 0, 0);
        for (int64_t k = 0; k <= o->repeat; k++)
            for (int on = 0; on < 2; on++) {
                ARES_TRY(draft_run(o, x, &ids, r[on], &last[on]));
                if (k) keep(&all[on], (double)last[on].tokens / last[on].wall_s, true);
                if (k) keep(&cpu[on], (double)last[on].tokens / last[on].cpu_s, true);
            }
        if (last[0].hash != last[1].hash || last[0].tokens != last[1].tokens)
            return ares_fail(ARES_ENUMERIC, "bench_step: '%s': the answers differ", x->name);
        double load = 0;
        (void)getloadavg(&load, 1);
        /* limit: of the ratio, if a row more in a forward cost nothing */
        char more[512];
        snprintf(more, sizeof more,
                 ",\"case\":\"%s\",\"none\":%.6g,\"ratio\":%.3f,\"ratio_cpu\":%.3f,"
                 "\"limit\":%.3f,\"tokens\":%lld,\"drafted\":%lld,\"accepted\":%lld,\"load\":%.1f",
                 x->name, all[0].v[all[0].best], all[1].v[all[1].best] / all[0].v[all[0].best],
                 cpu[1].v[cpu[1].best] / cpu[0].v[cpu[0].best],
                 (double)last[0].steps / (double)last[1].steps, (long long)last[1].tokens,
                 (long long)last[1].drafted, (long long)last[1].accepted, load);
        emit(o, &d, "drafts", &all[1], "tokens/s", more);
        ares_ids_fini(&ids);
    }
    return ARES_OK;
}

/* Every option has its default but those that the measure is about. */
static void train_config(const options *o, int64_t groups, ares_train_config *c)
{
    ares_config *cfg = ares_config_new(); /* owns the texts of c: it stays */
    ares_train_config_declare(cfg, c);
    ares_config_resolve(cfg);
    c->data.max_response_length = o->new;
    c->algorithm.adv_estimator = "grpo";
    c->algorithm.kl_penalty = "low_var_kl";
    c->algorithm.use_kl_loss = o->beta > 0;
    c->algorithm.disable_kl = !(o->beta > 0);
    c->algorithm.kl_coef = o->beta;
    c->actor.model_path = o->model;
    c->actor_lora.rank = o->lora;
    c->actor.dtype = o->dtype;
    c->actor.global_batch_size = groups;
    c->actor.max_token_len = o->micro;
    c->actor.gradient_checkpointing = o->recompute != 0;
    c->loss.clip_ratio_high = 0.2;
    c->loss.clip_ratio_dual = 10;
    c->optim.weight_decay = 0;
    c->ref.dtype = "fp32";
    c->rollout.n = o->samples;
}

/*
 * One update of made-up rows; advantages are 0 in a share of the groups, evenly among the others.
 * seconds: of the clock, of the processors
 */
static int one_update(const options *o, actor *a, ares_batch *b, double dead, bool skip,
                      double seconds[2], double *active)
{
    ares_metrics *metrics = ares_metrics_new();
    ares_batch_clear(b);
    for (int64_t r = 0; r < o->rows; r++) {
        int32_t *ids = ares_arena_alloc(&b->arena, (size_t)o->tokens * sizeof *ids);
        random_ids(a->learner.model->cfg.vocab, (uint64_t)r, o->tokens, ids);
        ares_sample s = { .draw = r, .prompt = ids, .prompt_len = 1 };
        ares_batch_begin_group(b);
        ares_batch_add_row(b, &s, o->tokens - 1);
    }
    ARES_PUT(b, responses);
    ARES_PUT(b, response_mask);
    ARES_PUT(b, rollout_log_probs);
    ARES_PUT(b, advantages);
    for (int64_t r = 0; r < b->rows; r++)
        memcpy(b->responses + b->row_start[r], b->samples[r].prompt + 1,
               (size_t)(o->tokens - 1) * sizeof(int32_t));
    for (int64_t r = 0; r < b->rows; r++) {
        double group = (double)(r / o->samples);
        /* whether the count of such groups grows with this one */
        bool zero = (int64_t)((group + 1) * dead + 1e-9) > (int64_t)(group * dead + 1e-9);
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            b->response_mask[t] = 1;
            b->advantages[t] = zero ? 0.0f : t % 2 ? 1.0f : -1.0f;
        }
    }
    ARES_PUT(b, old_log_probs);
    a->learner.skip_zero = skip;
    ares_workspace_skip_zero(a->learner.workspace, skip);
    double t = ares_now_s(), cpu = cpu_s();
    int rc = actor_update(a, b, NULL, metrics);
    seconds[0] = ares_now_s() - t;
    seconds[1] = cpu_s() - cpu;
    *active = 1;
    ares_metrics_get(metrics, "perf/backward_frac", active);
    ares_metrics_free(metrics);
    return rc;
}

/*
 * Updates of which a share of the groups is dead, in turn with others, by the clock and by the
 * processors' seconds (cpu_): a line each of the best and of the medians. ratio: computing all over
 * leaving out. law: the update over forward + 2 x forward x active share, with the update of dead
 * groups alone, which goes forward and steps, as forward; of_full: the same with what a full update
 * has beside its forward in place of 2 x forward.
 */
static int bench_dead(const options *o, actor *a, ares_batch *b)
{
    enum { SKIPPED, COMPUTED, FORWARD, FULL, SIDES };
    static const bool skip[SIDES] = { true, false, true, true };
    const double dead[SIDES] = { o->dead, o->dead, 1, 0 };
    values all[2][SIDES] = { 0 };
    double share = 1;
    for (int64_t k = 0; k <= o->repeat; k++)
        for (int i = 0; i < SIDES; i++) {
            double active, s[2];
            ARES_TRY(one_update(o, a, b, dead[i], skip[i], s, &active));
            for (int t = 0; k && t < 2; t++) keep(&all[t][i], s[t], false);
            if (i == SKIPPED) share = active;
        }
    for (int t = 0; t < 4; t++) {
        double s[SIDES];
        char more[400];
        bool cpu = t % 2, median = t / 2;
        for (int i = 0; i < SIDES; i++) {
            values v = all[cpu][i];
            s[i] = v.v[v.best];
            if (median) s[i] = bench_median(v.v, v.n);
        }
        snprintf(more, sizeof more,
                 ",\"of\":\"%s\",\"dead\":%g,\"active_frac\":%.4f,\"skipped_s\":%.5g,"
                 "\"computed_s\":%.5g,\"forward_s\":%.5g,\"full_s\":%.5g,\"ratio\":%.4g,"
                 "\"law\":%.4g,\"of_full\":%.4g",
                 median ? "median" : "best", o->dead, share, s[SKIPPED], s[COMPUTED], s[FORWARD],
                 s[FULL], s[COMPUTED] / s[SKIPPED], s[SKIPPED] / (s[FORWARD] * (1 + 2 * share)),
                 s[SKIPPED] / (s[FORWARD] + (s[FULL] - s[FORWARD]) * share));
        emit(o, a->learner.model->device, cpu ? "update_dead_cpu" : "update_dead",
             &all[cpu][SKIPPED], "s", more);
    }
    return ARES_OK;
}

static int bench_update(const options *o)
{
    ares_device d;
    ares_model *m;
    actor a;
    ares_batch b;
    ares_train_config cfg;
    train_config(o, o->rows, &cfg);
    cfg.actor.share_prompts = false;
    ARES_TRY(open_model(o, &d, true, &m));
    ARES_TRY(actor_open(&a, &cfg, m, NULL, NULL, NULL, 100));
    ares_batch_init(&b);
    if (o->dead > 0) {
        bench_limit(d.pool, 5);
        ARES_TRY(bench_dead(o, &a, &b));
        bench_limit(d.pool, 5);
        return ARES_OK;
    }
    values all = { .n = 0 };
    for (int64_t k = 0; k <= o->repeat; k++) {
        double s[2], active;
        ARES_TRY(one_update(o, &a, &b, 0, true, s, &active));
        if (k) keep(&all, (double)(o->rows * o->tokens) / s[0], true);
    }
    char more[64]; /* rows of one prompt token each */
    snprintf(more, sizeof more, ",\"gflop_per_token\":%.6g",
             3 * forward_gflop(&m->cfg, (double)o->rows, 1, 1, (double)(o->tokens - 1)) /
                 (double)(o->rows * o->tokens));
    emit(o, &d, "update", &all, "tokens/s", more);
    return ARES_OK;
}

/* One step: sample, old log-probs, reference, advantages of made-up rewards, update. */
static int grpo_step(const options *o, ares_model *m, ares_rollout *r, reference *ref, actor *a,
                     ares_batch *b, int64_t step, double *gen)
{
    ares_sampling s = { .temperature = 1,
                        .top_p = 1,
                        .top_k = -1,
                        .max_new_tokens = (int32_t)o->new,
                        .ignore_eos = true };
    ares_metrics *metrics = ares_metrics_new();
    int64_t active = 1;
    double t = ares_now_s();
    ares_batch_clear(b);
    b->kl_coef = o->beta;
    ares_rollout_clear(r);
    ares_completion *all = ares_arena_calloc(&b->arena, (size_t)(o->prompts * o->samples),
                                             sizeof *all),
                    c;
    int32_t **prompts = ares_arena_alloc(&b->arena, (size_t)o->prompts * sizeof *prompts);
    for (int64_t p = 0; p < o->prompts; p++) {
        prompts[p] = ares_arena_alloc(&b->arena, (size_t)o->prompt * sizeof(int32_t));
        random_ids(m->cfg.vocab, (uint64_t)(step * o->prompts + p), o->prompt, prompts[p]);
        ARES_TRY(
            ares_rollout_add(r,
                             &(ares_request){ .prompt = prompts[p],
                                              .prompt_len = (int32_t)o->prompt,
                                              .n = (int32_t)o->samples,
                                              .sampling = s,
                                              .adapter = a->learner.adapter,
                                              .key = ares_rng_sub(ares_rng_root(1, ARES_RNG_SAMPLE),
                                                                  (uint64_t)step, (uint64_t)p) },
                             NULL));
    }
    ares_work_begin("gen");
    while (active) {
        ARES_TRY(ares_rollout_step(r, &active));
        while (ares_rollout_next(r, &c)) all[c.request * o->samples + c.index] = c;
    }
    *gen = ares_now_s() - t;
    for (int64_t i = 0; i < o->prompts * o->samples; i++) {
        if (i % o->samples == 0) ares_batch_begin_group(b);
        ares_sample row = { .draw = i / o->samples,
                            .prompt = prompts[i / o->samples],
                            .prompt_len = (int32_t)o->prompt };
        ares_batch_add_row(b, &row, all[i].n_tokens);
    }
    ARES_PUT(b, responses);
    ARES_PUT(b, response_mask);
    ARES_PUT(b, rollout_log_probs);
    ARES_PUT(b, weight_versions);
    ARES_PUT(b, token_level_rewards);
    for (int64_t t = 0; t < b->tokens; t++)
        b->weight_versions[t] = (int32_t)a->learner.optim.updates;
    for (int64_t i = 0; i < b->rows; i++) {
        memcpy(b->responses + b->row_start[i], all[i].ids,
               (size_t)all[i].n_tokens * sizeof(int32_t));
        memcpy(b->rollout_log_probs + b->row_start[i], all[i].log_probs,
               (size_t)all[i].n_tokens * sizeof(float));
        memset(b->response_mask + b->row_start[i], 1, (size_t)all[i].n_tokens);
        b->token_level_rewards[b->row_start[i + 1] - 1] =
            (float)ares_rng_uniform(ares_rng_root(2, ARES_RNG_TEST), (uint64_t)i);
    }
    ares_work_begin("old and ref");
    ARES_TRY(actor_log_probs(a, b));
    if (ref) ARES_TRY(reference_log_probs(ref, a->cfg->rollout.temperature, b));
    ARES_TRY(ares_adv_find("grpo")->compute(&a->cfg->algorithm, NULL, b));
    ares_work_begin("update_actor");
    int rc = actor_update(a, b, NULL, metrics);
    double exact = -1;
    ares_metrics_get(metrics, "exact/rollout_train_max_abs", &exact);
    if (rc == ARES_OK && exact != 0 && strcmp(o->device, "cpu") == 0 &&
        strcmp(o->kernels, "native") == 0)
        rc = ares_fail(ARES_ENUMERIC, "bench_step: rollout and update differ by %g", exact);
    ares_metrics_free(metrics);
    return rc;
}

static int grpo(const options *o)
{
    ares_device d;
    ares_model *m;
    ares_adapter *adapter = NULL;
    actor a;
    ares_rollout *r;
    reference ref;
    ares_batch b;
    ares_train_config cfg;
    train_config(o, o->prompts, &cfg);
    ARES_TRY(open_model(o, &d, o->lora == 0, &m));
    /* an adapter and a reference have a model's folder; that of the tiny one goes again */
    char folder[64];
    (void)snprintf(folder, sizeof folder, "/tmp/bench_step_%.9f", ares_now_s());
    bool kept = strcmp(o->model, "tiny") == 0 && (o->lora || o->beta > 0);
    if (kept) {
        ARES_TRY(ares_dir_make(folder));
        ARES_TRY(ares_model_save(m, folder, NULL, NULL));
        cfg.actor.model_path = folder;
    }
    if (o->lora)
        ARES_TRY(ares_adapter_new(
            m, cfg.actor.model_path,
            &(ares_adapter_options){ .lora = &cfg.actor_lora, .seed = 1, .trainable = true },
            &adapter));
    ARES_TRY(actor_open(&a, &cfg, m, adapter, NULL, NULL, 100));
    training run = { .cfg = &cfg, .device = d, .model = m, .adapter = adapter };
    if (o->beta > 0) ARES_TRY(reference_open(&ref, &run, NULL, false));
    if (kept) ARES_TRY(ares_dir_remove(folder));
    ares_rollout_options ro = { .max_num_seqs = (int32_t)(o->prompts * o->samples),
                                .max_num_batched_tokens = 2048,
                                .max_model_len = (int32_t)(o->prompt + o->new),
                                .adapter_rank = (int32_t)o->lora,
                                .cache_tokens = (o->prompts * o->samples + o->prompts) *
                                                (o->prompt + o->new + 64) };
    ARES_TRY(ares_rollout_new(m, NULL, &ro, &r));
    ares_batch_init(&b);
    values all = { .n = 0 };
    double gen = 0, gen_of_best = 0;
    for (int64_t k = 0; k <= o->repeat; k++) {
        double t = ares_now_s();
        ARES_TRY(grpo_step(o, m, r, o->beta > 0 ? &ref : NULL, &a, &b, k, &gen));
        t = ares_now_s() - t;
        if (k) keep(&all, t, false);
        if (k && all.best == all.n - 1) gen_of_best = gen;
    }
    /*
     * Sampling computes the same tokens as a forward pass of the update; update_s includes the
     * forward pass of the reference. A frozen model has no gradients of weights: its backward pass
     * counts as much as its forward pass.
     */
    double steps = (double)(o->new - 1), of_adapter = 0, weights = (double)m->params.weights_bytes;
    if (adapter) {
        of_adapter = 2e-9 * (double)ares_params_count(&adapter->params) *
                     (double)(o->prompts * (o->prompt + o->samples * (o->new - 1)));
        weights += (double)adapter->params.weights_bytes;
    }
    double base = forward_gflop(&m->cfg, (double)o->prompts, (double)o->prompt, (double)o->samples,
                                (double)o->new),
           update = (adapter ? 2 : 3) * base + 3 * of_adapter + (o->beta > 0 ? base : 0),
           bytes = steps * (weights + (double)(o->prompts * o->samples) *
                                          cache_bytes(m, (double)o->prompt, steps));
    char more[256];
    snprintf(more, sizeof more,
             ",\"beta\":%g,\"lora\":%lld,\"prompts\":%lld,\"samples\":%lld,\"generate_s\":%.4f,"
             "\"update_s\":%.4f,\"generate_gflop\":%.6g,\"generate_bytes\":%.6g,"
             "\"update_gflop\":%.6g",
             o->beta, (long long)o->lora, (long long)o->prompts, (long long)o->samples, gen_of_best,
             all.v[all.best] - gen_of_best, base + of_adapter, bytes, update);
    emit(o, &d, "grpo_step", &all, "s", more);
    ares_device_close(&d);
    return ARES_OK;
}

int main(int argc, char **argv)
{
    options o = { .model = "tiny",
                  .dtype = "fp32",
                  .device = "cpu",
                  .kernels = "native",
                  .batch = 1,
                  .prompt = 32,
                  .new = 64,
                  .repeat = 3,
                  .rows = 128,
                  .tokens = 96,
                  .prompts = 16,
                  .samples = 8,
                  .micro = 1024 };
    int rc = argc < 2 ? ares_fail(ARES_EUSE,
                                  "usage: bench_step decode|drafts|update|grpo [key=value ...]")
                      : ARES_OK;
    for (int i = 2; i < argc && rc == ARES_OK; i++) rc = set(&o, argv[i]);
    if (rc == ARES_OK) {
        if (strcmp(argv[1], "decode") == 0) rc = decode(&o);
        else if (strcmp(argv[1], "drafts") == 0) rc = drafts(&o);
        else if (strcmp(argv[1], "update") == 0) rc = bench_update(&o);
        else if (strcmp(argv[1], "grpo") == 0) rc = grpo(&o);
        else
            rc = ares_fail(ARES_EUSE,
                           "bench_step: '%s': unknown (choices: decode, drafts, update, grpo)",
                           argv[1]);
    }
    if (rc != ARES_OK) fprintf(stderr, "%s\n", ares_error_message());
    return rc == ARES_OK ? 0 : 1;
}
