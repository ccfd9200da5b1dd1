/* Numbers that follow from the options. */
#include "golden.h"

#include <string.h>

#include "../../src/train/collect/collect.h"
#include "../../src/train/plan/plan.h"
#include "../../src/train/trainer.h"
#include "ares/train.h"

static int64_t whole(golden *g, const char *key)
{
    const ares_json *v = ares_json_get(g->inputs, key);
    return !v || v->type == ARES_JSON_NULL ? ARES_NULL_I64 : (int64_t)golden_value(v);
}

GOLDEN(aepo, training_steps)
{
    golden_equal(g, "steps",
                 train_total_steps(whole(g, "num_examples"), whole(g, "mini_rollout_batch_size"),
                                   whole(g, "rollout_batch_size"), whole(g, "total_epochs"),
                                   whole(g, "max_steps")),
                 g->expected);
}

/* Rollouts are numbered from 0. */
GOLDEN(curriculum, periodic_action)
{
    int64_t total = whole(g, "num_rollout"), every = whole(g, "interval"),
            epoch = whole(g, "num_rollout_per_epoch");
    golden_equal(g, "due",
                 train_is_due((int64_t)golden_number(g, "rollout_id") + 1,
                              total == ARES_NULL_I64 ? INT64_MAX : total, every,
                              epoch == ARES_NULL_I64 ? 0 : epoch),
                 g->expected);
}

static void add_member(ares_str *yaml, const char *name, const ares_json *v)
{
    if (!v || v->type == ARES_JSON_NULL) return;
    ares_str_addf(yaml, "%s: ", name);
    ares_json_write(yaml, v);
    ares_str_add_z(yaml, ", ");
}

/* A configuration of the case's levels, read by the program. */
GOLDEN(curriculum, eval_dataset_resolve)
{
    static const struct {
        const char *of_eval, *of_rollout, *option;
    } levels[] = { { "eval_temperature", "rollout_temperature", "temperature" },
                   { "eval_top_p", "rollout_top_p", "top_p" },
                   { "eval_top_k", "rollout_top_k", "top_k" },
                   { "eval_max_response_len", NULL, "max_new_tokens" },
                   { "n_samples_per_eval_prompt", NULL, "n" } };
    const ares_json *global = golden_in(g, "global_");
    ares_str yaml = { 0 };
    ares_train_config c;
    eval_sets e;
    ares_str_add_z(&yaml, "eval: {defaults: ");
    ares_json_write(&yaml, golden_in(g, "defaults"));
    ares_str_add_z(&yaml, ", datasets: [");
    ares_json_write(&yaml, golden_in(g, "dataset"));
    ares_str_add_z(&yaml, "]}\nworker: {rollout: {");
    for (int i = 0; i < ARES_COUNT(levels); i++)
        if (levels[i].of_rollout)
            add_member(&yaml, levels[i].option, ares_json_get(global, levels[i].of_rollout));
    ares_str_add_z(&yaml, "val_override_config: {");
    for (int i = 0; i < ARES_COUNT(levels); i++)
        add_member(&yaml, levels[i].option, ares_json_get(global, levels[i].of_eval));
    ares_str_add_z(&yaml, "}}}\ndata: {");
    add_member(&yaml, "max_response_length", ares_json_get(global, "rollout_max_response_len"));
    ares_str_add_z(&yaml, "}\n");
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    ares_config_load_text(cfg, "case", ares_str_view(&yaml));
    ares_config_override(cfg, "worker.actor.model.model_path=m");
    ares_config_resolve(cfg);
    eval_sets_read(cfg, &c, &e);
    if (golden_ok(g, ares_config_finish(cfg)) && e.n == 1) {
        golden_in_single(g);
        golden_near(g, "temperature", (double)e.items->sampling.temperature,
                    golden_want(g, "temperature"));
        golden_near(g, "top_p", (double)e.items->sampling.top_p, golden_want(g, "top_p"));
        golden_equal(g, "top_k", e.items->sampling.top_k, golden_want(g, "top_k"));
        golden_equal(g, "max_response_len", e.items->sampling.max_new_tokens,
                     golden_want(g, "max_response_len"));
        golden_equal(g, "n", e.items->n, golden_want(g, "n_samples_per_eval_prompt"));
    } else golden_fail(g, "%lld data sets", (long long)e.n);
    ares_config_free(cfg);
    ares_str_fini(&yaml);
}

GOLDEN(aepo, derived_batch_sizes)
{
    train_sizes s =
        train_sizes_of(whole(g, "rollout_batch_size"), whole(g, "global_batch_size"), whole(g, "n"),
                       whole(g, "world_size"), whole(g, "ulysses"), whole(g, "micro"));
    golden_equal(g, "global_samples", s.global_samples, golden_want(g, "global_samples"));
    golden_equal(g, "per_device", s.per_device, golden_want(g, "per_device"));
    golden_equal(g, "accumulation", s.accumulation, golden_want(g, "accumulation"));
    golden_equal(g, "optimizer steps", s.updates, golden_want(g, "optimizer_steps_per_train_step"));
}

/* ---------------- answers that go on */
GOLDEN(curriculum, partial_budget)
{
    int32_t left = partial_budget((int32_t)golden_number(g, "max_response_len"),
                                  (int32_t)golden_number(g, "response_length"));
    golden_equal(g, "max_new_tokens", left, golden_want(g, "max_new_tokens"));
    golden_equal(g, "truncated", left == 0, golden_want(g, "truncated"));
}

GOLDEN(curriculum, partial_loss_mask)
{
    int32_t had = (int32_t)golden_number(g, "previous_tokens"),
            n = (int32_t)golden_number(g, "new_tokens");
    const ares_json *masks = golden_in(g, "mask_offpolicy");
    uint8_t *mask = ares_arena_alloc(g->arena, (size_t)(had + n) + 1);
    double *got = ares_arena_alloc(g->arena, ((size_t)(had + n) + 1) * sizeof *got);
    memset(mask, 1, (size_t)had);
    partial_mask(mask, had, n, masks->boolean);
    for (int32_t i = 0; i < had + n; i++) got[i] = mask[i];
    golden_numbers(g, "mask", got, had + n, g->expected);
}

static int64_t size_of(golden *g, const char *key, int64_t absent)
{
    const ares_json *v = ares_json_get(golden_in(g, "config"), key);
    return !v || v->type == ARES_JSON_NULL ? absent : (int64_t)golden_value(v);
}

GOLDEN(aepo, estimate_tflops)
{
    int64_t n;
    const double *length = golden_flat(g, golden_in(g, "seqlens"), &n);
    double tokens = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) tokens += length[i], squares += length[i] * length[i];
    flops_config c = { size_of(g, "hidden_size", 0),
                       size_of(g, "vocab_size", 0),
                       size_of(g, "num_hidden_layers", 0),
                       size_of(g, "num_attention_heads", 0),
                       size_of(g, "num_key_value_heads", 0),
                       size_of(g, "intermediate_size", 0),
                       size_of(g, "head_dim", 0) };
    golden_near(g, "TFLOP/s", train_tflops(&c, tokens, squares, golden_number(g, "seconds")),
                g->expected);
}
