/* Adapters' log-probs, gradients and optimizer steps beside PEFT's, through the learner. */
#include "golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ares/train.h"
#include "learner.h"

typedef struct setup {
    ares_device device;
    ares_model *model;
    ares_adapter *adapter;
    ares_batch batch;
    ares_optim_config optim;
    double betas[2];
    learner learner;
    float *c; /* [tokens], where the case has it */
} setup;

static const char *path_of(golden *g, const char *relative)
{
    return ares_arena_printf(g->arena, "%s/%s", g->folder, relative);
}

/* A row per sequence: its first id is the prompt. */
static void fill_batch(golden *g, setup *s)
{
    const ares_json *ids = golden_in(g, "input_ids"), *c = ares_json_get(g->inputs, "c");
    ares_batch_init(&s->batch);
    for (int64_t r = 0; r < ids->count; r++) {
        int32_t *prompt = ares_arena_alloc(g->arena, sizeof *prompt);
        *prompt = (int32_t)ids->items[r].items[0].integer;
        ares_batch_begin_group(&s->batch);
        ares_batch_add_row(
            &s->batch, &(ares_sample){ .draw = r, .place = r, .prompt = prompt, .prompt_len = 1 },
            (int32_t)ids->items[r].count - 1);
    }
    ARES_PUT(&s->batch, responses), ARES_PUT(&s->batch, response_mask);
    s->c = ares_arena_calloc(g->arena, (size_t)s->batch.tokens + 1, sizeof *s->c);
    for (int64_t r = 0, t = 0; r < ids->count; r++)
        for (int64_t i = 1; i < ids->items[r].count; i++, t++) {
            s->batch.responses[t] = (int32_t)ids->items[r].items[i].integer;
            s->batch.response_mask[t] = 1;
            if (c) s->c[t] = (float)c->items[r].items[i - 1].number;
        }
}

static bool set_up(golden *g, setup *s, bool trains)
{
    const char *base = path_of(g, golden_z(g, "model"));
    const ares_lora_options lora = { .adapter_path = path_of(g, golden_z(g, "adapter")),
                                     .alpha = 64,
                                     .seed = ARES_NULL_I64 };
    const ares_adapter_options opt = { .lora = &lora, .trainable = trains };
    memset(s, 0, sizeof *s);
    const ares_json *betas = ares_json_get(g->inputs, "betas");
    for (int i = 0; i < 2; i++) s->betas[i] = betas ? betas->items[i].number : 0;
    s->optim = (ares_optim_config){ .lr = golden_number_or(g, "lr", 0),
                                    .betas = { s->betas, 2 },
                                    .eps = golden_number_or(g, "eps", 1e-8),
                                    .weight_decay = golden_number_or(g, "weight_decay", 0),
                                    .strategy = "adamw",
                                    .scheduler = "constant",
                                    .warmup_steps = ARES_NULL_I64,
                                    .min_lr_ratio = (double)NAN };
    const learner_options how = { .role = "actor",
                                  .optim = trains ? &s->optim : NULL,
                                  .total_steps = 100,
                                  .round_tokens = ARES_NULL_I64 };
    if (!golden_ok(g, ares_device_open("cpu", 2, &s->device)) ||
        !golden_ok(g, ares_model_load(base, &s->device, &(ares_model_options){ 0 }, &s->model)) ||
        !golden_ok(g, ares_adapter_new(s->model, base, &opt, &s->adapter)))
        return false;
    learner_options with = how;
    with.adapter = s->adapter;
    fill_batch(g, s);
    return golden_ok(g, learner_open(&s->learner, s->model, &with));
}

static void tear_down(setup *s)
{
    learner_close(&s->learner);
    ares_batch_fini(&s->batch);
    ares_adapter_free(s->adapter);
    ares_model_free(s->model);
    ares_device_close(&s->device);
}

static const learner_scoring scoring = { .max_token_len = 40, .temperature = 1 };

/* Numbers by token against lists by sequence. */
static void compare(golden *g, const char *what, const float *got, const char *key, double within)
{
    int64_t n;
    const double *want = golden_flat(g, golden_want(g, key), &n);
    g->checks++;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= within)) {
            golden_fail(g, "%s[%lld] is %.9g, not %.9g", what, (long long)i, (double)got[i],
                        want[i]);
            return;
        }
}

GOLDEN(lora, lora_log_probs)
{
    setup s;
    if (set_up(g, &s, false)) {
        size_t n = (size_t)s.batch.tokens;
        float *log_probs = ares_arena_alloc(g->arena, 2 * n * sizeof *log_probs);
        double within = ares_json_get(g->root, "tolerance")->number;
        learner *l = &s.learner;
        if (golden_ok(g, learner_log_probs(l, &scoring, &s.batch, 0, s.batch.rows, log_probs,
                                           log_probs + n))) {
            compare(g, "log_probs", log_probs, "log_probs", within);
            compare(g, "entropies", log_probs + n, "entropies", within);
        }
        l->adapter = NULL; /* off */
        if (golden_ok(g, learner_log_probs(l, &scoring, &s.batch, 0, s.batch.rows, log_probs,
                                           log_probs + n)))
            compare(g, "base_log_probs", log_probs, "base_log_probs", within);
    }
    tear_down(&s);
}

/* The gradients of sum(c log_prob), times -1 where the loss has it so. */
static bool add_gradients(golden *g, setup *s, double sign, double *loss)
{
    const ares_batch *b = &s->batch;
    ares_micro_batch plan[8];
    float *c = ares_arena_alloc(g->arena, (size_t)b->tokens * sizeof *c);
    for (int64_t t = 0; t < b->tokens; t++) c[t] = (float)sign * s->c[t];
    int64_t n = ares_pack_plan(b, 0, b->rows, scoring.max_token_len, false, plan);
    *loss = 0;
    return golden_ok(g, learner_zero_grad(&s->learner, NULL)) &&
           golden_ok(g, learner_add_gradients(&s->learner, &scoring, b, plan, n, c, loss));
}

/* Every tensor within so much; beyond: entries that may differ by more, of 1000. */
static void compare_file(golden *g, const setup *s, const char *key, bool gradients,
                         double of_largest, double within, int64_t beyond)
{
    ares_safetensors *want;
    if (!golden_ok(g, ares_safetensors_open(path_of(g, golden_want(g, key)->text.data), &want)))
        return;
    const ares_params *ps = &s->adapter->params;
    if (ares_safetensors_count(want) != ps->n)
        golden_fail(g, "%lld tensors, not %d", (long long)ares_safetensors_count(want), ps->n);
    for (int i = 0; i < ps->n; i++) {
        const ares_param *p = &ps->list[i];
        const ares_tensor_info *t = ares_safetensors_find(want, p->name);
        int64_t n = p->shape[0] * p->shape[1], off = 0;
        g->checks++;
        if (!t || t->count != n) {
            golden_fail(g, "no tensor %s of its size", p->name);
            continue;
        }
        float *got = ares_arena_alloc(g->arena, (size_t)n * sizeof *got);
        ares_matrix_unpack(gradients ? &p->grad : &p->weight, got, ARES_F32);
        const float *x = t->data;
        double largest = 0, worst = 0;
        for (int64_t k = 0; k < n; k++) largest = fmax(largest, fabs((double)x[k]));
        double bound = within + of_largest * largest;
        for (int64_t k = 0; k < n; k++) {
            double d = fabs((double)got[k] - (double)x[k]);
            off += !(d <= bound);
            worst = fmax(worst, d);
        }
        if (off * 1000 > beyond * n)
            golden_fail(g, "%s is off by up to %g in %lld of %lld; the largest is %g", p->name,
                        worst, (long long)off, (long long)n, largest);
    }
    ares_safetensors_close(want);
}

GOLDEN(lora, lora_gradients)
{
    setup s;
    double loss, norm;
    if (set_up(g, &s, true) && add_gradients(g, &s, 1, &loss) &&
        golden_ok(g, optim_norm(&s.adapter->params, &norm))) {
        double within = ares_json_get(g->root, "tolerance_of_largest")->number;
        double want = golden_want(g, "loss")->number, of_norm = golden_want(g, "norm")->number;
        if (!(fabs(loss - want) <= 1e-4 * (1 + fabs(want))))
            golden_fail(g, "loss is %.9g, not %.9g", loss, want);
        if (!(fabs(norm - of_norm) <= 4 * within * of_norm))
            golden_fail(g, "norm is %.9g, not %.9g", norm, of_norm);
        compare_file(g, &s, "gradients", true, within, 0, 0);
    }
    tear_down(&s);
}

GOLDEN(lora, lora_adamw)
{
    setup s;
    int64_t n_losses, n_norms;
    const double *losses = golden_flat(g, golden_want(g, "losses"), &n_losses),
                 *norms = golden_flat(g, golden_want(g, "grad_norms"), &n_norms);
    int64_t steps = (int64_t)golden_number(g, "steps");
    bool well = set_up(g, &s, true);
    if (n_norms != steps || n_losses < steps) golden_fail(g, "%lld norms", (long long)n_norms);
    for (int64_t i = 0; i < steps && well; i++) {
        double loss = NAN, norm = NAN;
        well = add_gradients(g, &s, -1, &loss) &&
               golden_ok(g, learner_step(&s.learner, ARES_OK, golden_number(g, "max_grad_norm"),
                                         "step", &norm));
        if (!(fabs(loss - losses[i]) <= 1e-3 * (1 + fabs(losses[i]))))
            golden_fail(g, "loss %lld is %.9g, not %.9g", (long long)i, loss, losses[i]);
        if (!(fabs(norm - norms[i]) <= 1e-3 * norms[i]))
            golden_fail(g, "norm %lld is %.9g, not %.9g", (long long)i, norm, norms[i]);
    }
    /* the note of the cases: signs of gradients near 0 may differ in one entry of 1000 */
    if (well)
        compare_file(g, &s, "adapter", false, 0, ares_json_get(g->root, "tolerance")->number, 1);
    tear_down(&s);
}
