/*
 * model: Hugging Face decoders (Qwen 2, 2.5, 3, Llama) from config.json and safetensors, and their
 * one forward pass.
 *
 * Parameters lie in one arena a device, written in place by the optimizer and read by rollout,
 * log-prob passes and training alike. A block's forward and backward are written once, over packed
 * tokens, as calls through ares_kernels.
 */
#ifndef ARES_MODEL_H
#define ARES_MODEL_H

#include "ares/core.h"
#include "ares/data.h"
#include "ares/io.h"
#include "ares/kernels.h"

/* ------------------------------------------------------------------ config.json (hf_config.c) */
typedef enum {
    ARES_ROPE_DEFAULT,
    ARES_ROPE_LINEAR,
    ARES_ROPE_DYNAMIC,
    ARES_ROPE_YARN,
    ARES_ROPE_LLAMA3
} ares_rope_kind;
typedef struct ares_rope_config {
    ares_rope_kind kind;
    double theta, factor, attention_factor; /* attention_factor < 0: derived (yarn) */
    double low_freq_factor, high_freq_factor, beta_fast, beta_slow, mscale, mscale_all_dim;
    int32_t original_max_position; /* 0: max_position */
    bool truncate;                 /* yarn: whole correction bounds */
} ares_rope_config;

enum { ARES_MAX_EOS = 16 };
typedef struct ares_model_config {
    char model_type[32]; /* "qwen2", "qwen3", "llama" */
    int32_t vocab, hidden, layers, heads, kv_heads, head_dim, intermediate, max_position;
    float rms_norm_eps;
    bool tied, qkv_bias, o_bias, mlp_bias, qk_norm;
    /* one number a token (ares_model_options); there is no language model's head then */
    bool value_head;
    int32_t window, window_from_layer; /* sliding window in layers >= window_from_layer; 0: none */
    ares_rope_config rope;
    double initializer_range;
    ares_dtype file_dtype; /* what the files hold, kept when saving */
    /* -1: none; eos joins config.json and generation_config.json */
    int32_t bos, pad, n_eos, eos[ARES_MAX_EOS];
} ares_model_config;
int ares_model_config_load(const char *dir, ares_model_config *out);
/* the token ends a sequence: one of eos */
bool ares_model_ends(const ares_model_config *c, int32_t id);
/*
 * Both dialects of rope options are read by transformers 4.43 and later; written in the older one.
 */
int ares_model_config_save(const ares_model_config *c, const char *dir);

/* ---------------- parameters (param.c, weights.c) */
typedef struct ares_param {
    const char *name; /* Hugging Face's */
    int rank;
    int64_t shape[2];
    ares_matrix weight; /* matrices in the device's layout, vectors f32 ROWS */
    ares_matrix grad;   /* f32, the same layout; data NULL: frozen */
    /*
     * optimizer's; master only where the weight is not f32; NULL until ares_model_optimizer_alloc
     */
    float *master, *m, *v;
    int64_t elements; /* padding included */
    bool decay;       /* false for norms and biases */
} ares_param;

typedef struct ares_linear {
    ares_param *w, *bias;        /* bias may be NULL */
    ares_param *lora_a, *lora_b; /* NULL */
    float lora_scale;
} ares_linear;

typedef struct ares_model_layer {
    ares_param *input_norm, *post_norm, *q_norm, *k_norm;
    ares_linear q, k, v, o, gate, up, down;
} ares_model_layer;

typedef struct ares_model {
    ares_model_config cfg;
    ares_device *device; /* borrowed */
    ares_param *params;
    int n_params;
    /* lm_head == embed when tied, and where there is a value head */
    ares_param *embed, *final_norm, *lm_head;
    /* value head: [1][hidden] and [1], Hugging Face's token classification; else NULL */
    ares_param *value, *value_bias;
    /* tied: the embedding's own gradient, added to the head's once per optimizer step */
    ares_matrix embed_grad;
    ares_model_layer *layer;
    struct ares_rope *rope;
    void *weights, *grads, *states; /* the arenas */
    size_t weights_bytes, grads_bytes, states_bytes;
} ares_model;

typedef struct ares_model_options {
    ares_dtype storage; /* of matrices: ARES_F32 or ARES_BF16 */
    bool trainable;     /* allocate gradients */
    /*
     * score.weight, score.bias in place of the language model's head; files without them: normal(0,
     * 0.02), keyed by value_seed, and 0
     */
    bool value_head;
    uint64_t value_seed;
} ares_model_options;
/*
 * dir: a model directory, or a checkpoint (its model/), or a run directory (its latest checkpoint's
 * model/): see ares_model_find.
 */
int ares_model_load(const char *dir, ares_device *device, const ares_model_options *opt,
                    ares_model **out);
/*
 * Fresh weights: normal(0, initializer_range), norms 1, biases 0, keyed by (seed, parameter name).
 */
int ares_model_new(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   uint64_t seed, ares_model **out);
/*
 * config.json and model.safetensors (sharded above 5 GB), row-major, Hugging Face's names, in
 * cfg.file_dtype.
 */
int ares_model_save(const ares_model *m, const char *dir);
void ares_model_free(ares_model *m);
/* of a model directory's tensors: another model gives another number (fingerprint.c) */
int ares_model_fingerprint(const char *dir, uint64_t *out);
/* resolves model, checkpoint and run directories; names what was tried */
int ares_model_find(const char *path, ares_str *dir);
ares_param *ares_model_param(const ares_model *m, const char *name); /* NULL when absent */
int64_t ares_model_count(const ares_model *m); /* parameters, padding left out */
/* the same of a model that is not loaded; for plans */
int64_t ares_model_config_count(const ares_model_config *cfg);
void ares_model_zero_grad(ares_model *m);
/* tied: lm_head.grad += embed_grad; once per optimizer step */
void ares_model_join_embed_grad(ares_model *m);
int ares_model_optimizer_alloc(ares_model *m); /* m, v, master: zeroed, master = weight */
/* States as row-major f32 tensors <parameter>.m, .v, .master (states.c). */
int ares_model_optimizer_save(const ares_model *m, const char *path);
int ares_model_optimizer_load(ares_model *m, const char *path);

/* ---------------- the forward pass over packed tokens (forward.c, block.c) */
/* Buffers of passes up to max_rows tokens, kept from pass to pass. */
typedef struct ares_workspace ares_workspace;
/* for backward: nothing, block inputs (recompute), everything */
typedef enum { ARES_KEEP_NOTHING, ARES_KEEP_INPUTS, ARES_KEEP_ALL } ares_keep;
int ares_workspace_new(ares_model *m, ares_keep keep, ares_workspace **out);
void ares_workspace_free(ares_workspace *w);

/*
 * hidden (device memory of the workspace, valid until its next pass): [n_out][hidden], final norm
 * applied.
 */
int ares_model_forward(ares_model *m, ares_workspace *w, const ares_packed *p, float **hidden);
/*
 * After a forward of the same p with ARES_KEEP_INPUTS or _ALL. d_hidden [n_out][hidden] as hidden;
 * gradients are added to params' grad.
 */
int ares_model_backward(ares_model *m, ares_workspace *w, const ares_packed *p,
                        const float *d_hidden);
/* The head's weight and gradient. */
const ares_matrix *ares_model_head(const ares_model *m);
const ares_matrix *ares_model_head_grad(const ares_model *m); /* NULL when frozen */
/* every id in [0, vocab) */
int ares_model_check_ids(const ares_model *m, const int32_t *ids, int64_t n);

/*
 * Cosines then sines of one position: [head_dim] (rope.c). length: of the whole sequence, matters
 * to dynamic scaling only.
 */
void ares_rope_row(const ares_model *m, int32_t position, int32_t length, float *cos_sin);
#endif
