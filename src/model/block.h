#ifndef ARES_MODEL_BLOCK_H
#define ARES_MODEL_BLOCK_H

#include "ares/model.h"

/*
 * What a block keeps for its backward, in device memory. Q = heads x head_dim, K = kv_heads x
 * head_dim, I = intermediate.
 */
typedef struct block_saved {
    float *x_in, *rstd_in; /* [rows][hidden], [rows] */
    float *q, *k, *v;      /* [rows][Q], [rows][K] x 2, after norm and rotation */
    /* Qwen 3 only, otherwise NULL: q and k before their norm, its factors per row and head */
    float *q_raw, *k_raw, *q_rstd, *k_rstd;
    float *attn, *lse;       /* [rows][Q], [rows][heads] */
    float *x_mid, *rstd_mid; /* the residual stream between attention and MLP */
    float *gate, *up;        /* [rows][I] */
} block_saved;

/* Buffers that every block uses and none keeps; those named d_ are for backward. */
typedef struct block_scratch {
    float *h, *act; /* [rows][hidden], [rows][I] */
    float *d_h, *d_act, *d_gate, *d_up, *d_attn, *d_q, *d_k, *d_v;
} block_scratch;

/* The tokens of one pass: arrays in device memory. */
typedef struct block_pass {
    int32_t rows;
    ares_segments seg;
    const float *cos_sin; /* [rows][head_dim] */
    const int32_t *slots;
    float *cache; /* this layer's; NULL: packed */
} block_pass;

/* x_out = the residual stream after the layer; it may be s->x_in. */
void block_forward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                   const block_scratch *t, float *x_out);
/* dx [rows][hidden]: d loss / d x_out on entry, d loss / d x_in on return. */
void block_backward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                    const block_scratch *t, float *dx);
#endif
