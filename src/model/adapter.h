/*
 * Private to model: LoRA (Hu et al., arXiv 2106.09685) beside a frozen base, in the forms of PEFT
 * (adapter.c; docs/adapters.md).
 *
 * A module is a linear layer y = x W' + bias, W [out][in]. Its adapter is A [rank][in] and B
 * [out][rank]: y += scale (x A') B', where scale is alpha / rank, or alpha / sqrt(rank) with
 * use_rslora.
 */
#ifndef ARES_MODEL_ADAPTER_H
#define ARES_MODEL_ADAPTER_H

#include "internal.h"

#define LORA_PREFIX "base_model.model."   /* of names of tensors */
#define LORA_BASE_NOTE "base_fingerprint" /* in the metadata of adapter_model.safetensors */

typedef struct lora_module {
    const char *name; /* transformers' name of the layer, whatever the base's files call it */
    int32_t number;   /* among the candidates: ares_linear.number; after the blocks the head */
    int32_t in, out, rank;
    double alpha;
    float scale;
} lora_module;

/*
 * The linear layers of a model, rank 0: of each block q, k, v, o, gate, up, down, or of a delta net
 * qkv, z, b, a, out in place of the first four; lm_head; with `tower` those of the blocks of a
 * vision tower and of its merger. In the arena.
 */
const lora_module *lora_candidates(const ares_model_config *base, bool tower, ares_arena *arena,
                                   int32_t *n);

/* Which modules have an adapter, and how large: the meaning of an adapter_config.json. */
typedef struct lora_config {
    int64_t rank;
    double alpha;
    bool rslora;
    const lora_module *modules; /* [n] in the order of the candidates */
    int32_t n;
} lora_config;
/*
 * By PEFT's rules, in its order (docs/adapters.md#which-modules): r, lora_alpha, use_rslora,
 * target_modules, exclude_modules, layers_to_transform, layers_pattern, rank_pattern and
 * alpha_pattern of `config`. where: what messages begin with; a key follows. tell: warn of what
 * takes no layer. The result lives in the arena.
 */
int lora_select(const ares_model_config *base, bool tower, bool tell, const ares_json *config,
                const char *where, ares_arena *arena, lora_config *out);

/*
 * The options as an adapter_config.json has them: r, lora_alpha, use_rslora, target_modules,
 * exclude_modules, rank_pattern, alpha_pattern, layers_to_transform, layers_pattern. A text of
 * plain names with commas between them, which no expression over whole names is, becomes their
 * list. In the arena.
 */
const ares_json *lora_peft_config(const ares_lora_options *o, ares_arena *arena);

/* An adapter's directory, read: numbers widened to f32, in host memory. */
typedef struct peft_adapter {
    lora_config lora;
    float **a, **b; /* [lora.n] of [rank][in], [out][rank] */
    /* TOKEN_CLS, a critic's: its head [hidden] and bias; NULL: CAUSAL_LM */
    float *score, *score_bias;
    const char *base_print; /* the base's fingerprint, in hexadecimal; NULL: it does not say */
} peft_adapter;
/*
 * path: a directory with adapter_config.json and adapter_model.safetensors, or a checkpoint or run
 * directory that has one. Stricter than PEFT: every module needs both tensors in their shapes, no
 * tensor is left over, every number is finite. base_dir: the base's model directory, whose tensors
 * are compared with those that PEFT stores beside an adapted head. A vision tower has candidates
 * where the file has tensors of it. tell: warn of what is not read.
 * In the arena.
 */
int peft_open(const char *path, const char *base_dir, const ares_model_config *base, bool tell,
              ares_arena *arena, peft_adapter *out);
/* Warns where the adapter of `path` was trained beside other weights than those of base_dir. */
int peft_compare_base(const char *base_dir, const char *path, const peft_adapter *peft);

/*
 * An adapter whose numbers are added to those of the base's files (adapter.c): W + scale (B A), a
 * chain in f32 over the rank, then one product and one sum. peft_open_to_merge refuses a critic's
 * and warns as peft_compare_base does; verb: what a message begins with
 */
int peft_open_to_merge(const char *verb, const char *path, const char *base_dir,
                       const ares_model_config *base, ares_arena *arena, peft_adapter *out);
/* The module whose weight a tensor of the base's files is; -1: none. */
int32_t peft_module_of(const peft_adapter *p, const ares_model_config *base, const char *tensor);
/* sum: row `row` of module i's W + scale (B A); w: that of W. Both [in], apart */
void peft_add_row(const peft_adapter *p, int32_t i, int64_t row, const float *w, float *sum);

#endif
