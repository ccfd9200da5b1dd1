/*
 * serve: what the server of the Tinker training API needs of a learner. The room train gives these
 * functions to the server, so that the server sees no optimizer and the learner no protocol: a loss
 * is a callback that turns log-probs into derivatives.
 *
 * One thread, the server's worker, calls them, one at a time, between two steps of decoding. They
 * return ARES_OK or a failure, whose message the client reads. A failure is the client's mistake
 * (ARES_EUSE, ARES_EFORMAT, ARES_ENUMERIC, ARES_ELIMIT ...) or the server's trouble (ARES_EIO,
 * ARES_EDEVICE).
 */
#ifndef ARES_SERVE_TINKER_H
#define ARES_SERVE_TINKER_H

#include "ares/core.h"
#include "ares/model.h"

/* A new adapter: alpha is 32, A uniform within 1 / sqrt(inputs), B zero. At least one is true. */
typedef struct ares_tinker_lora {
    int32_t rank;            /* 1 or more; it may exceed a side of a matrix */
    uint64_t seed;           /* what A is drawn with */
    bool attn, mlp, unembed; /* q k v o; gate up down; lm_head */
} ares_tinker_lora;

/*
 * One sequence: targets[i][0 .. k - 1] are scored given tokens 0 .. i; they are shifted already.
 * All ids lie in the vocabulary, and n within the context.
 */
typedef struct ares_tinker_datum {
    int32_t n, k;           /* positions; targets per position, 1 or more */
    const int32_t *tokens;  /* [n] */
    const int32_t *targets; /* [n][k] */
} ares_tinker_datum;

/*
 * d [n][k] of datum `index`, written: derivatives of the loss by its log-probs, which are complete
 * now. Called once for each datum, in their order.
 */
typedef void ares_tinker_derive(void *own, int64_t index, float *d);

/* Decoupled AdamW of torch; grad_clip_norm 0: no clipping. */
typedef struct ares_tinker_adam {
    double learning_rate, beta1, beta2, eps, weight_decay, grad_clip_norm;
} ares_tinker_adam;

typedef struct ares_tinker_learner {
    void *ctx;
    /* *model: an adapter with its gradients, all zero, and optimizer states, t = 0 */
    int (*create)(void *ctx, const ares_tinker_lora *lora, void **model);
    /*
     * log_probs[i] [n][k] of datum i, written: the targets' log-softmax at temperature 1, the bits
     * of `ares-train score` and of the rollout. derive NULL: nothing else. Otherwise the gradients
     * of the loss that derive differentiates are added to the model's, with the same bits however
     * data are cut into calls. After a failure the model's gradients are zero.
     */
    int (*forward)(void *ctx, void *model, const ares_tinker_datum *data, int64_t n,
                   float *const *log_probs, ares_tinker_derive *derive, void *own);
    /*
     * AdamW with the gradients that have added up, none being 0; clears them. *grad_norm: before
     * clipping. A gradient that is not finite: no step, cleared all the same, ARES_ENUMERIC.
     */
    int (*step)(void *ctx, void *model, const ares_tinker_adam *adam, double *grad_norm);
    /*
     * Writes adapter_config.json and adapter_model.safetensors (docs/adapters.md) into the folder,
     * and with `optimizer` the moments and their count as optimizer.safetensors; all synced.
     */
    int (*save)(void *ctx, void *model, const char *dir, bool optimizer);
    /*
     * Replaces the adapter's numbers by those of such a folder, of the same rank and layers, and
     * the moments with `optimizer`, which are 0 otherwise, as t is. Gradients become 0.
     */
    int (*load)(void *ctx, void *model, const char *dir, bool optimizer);
    /* A copy of the adapter as it is, for sampling: later steps do not move it. The caller frees
     * it. */
    int (*snapshot)(void *ctx, void *model, ares_adapter **out);
    /* Writes a snapshot as `save` writes a model without optimizer. */
    int (*save_snapshot)(void *ctx, const ares_adapter *snapshot, const char *dir);
    /* Reads one, or the adapter of any folder that `save` wrote. The caller frees it. */
    int (*load_snapshot)(void *ctx, const char *dir, ares_adapter **out);
    void (*free_snapshot)(void *ctx, ares_adapter *snapshot);
    void (*free_model)(void *ctx, void *model);
} ares_tinker_learner;
#endif
