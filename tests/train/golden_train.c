/* Numbers that follow from the options. */
#include "golden.h"

#include "../../src/train/run/sizes.h"
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
