#ifndef ARES_MODEL_BLOCK_H
#define ARES_MODEL_BLOCK_H

#include "ares/model.h"

/*
 * What a block keeps for its backward, in device memory; void *: of the activations' type. Q =
 * heads x head_dim, K = kv_heads x head_dim, I = intermediate. What one product can compute lies in
 * one row: q, k and v; gate and up.
 */
typedef struct block_saved {
    void *x_in; /* [rows][hidden] */
    float *rstd_in;
    void *qkv; /* [rows][Q + 2 K], after norm and rotation */
    /*
     * Qwen 3 only: q and k before their norm, [rows][Q + K], and its factors per row and head. NULL
     * where there is no backward: then the norm is computed in place
     */
    void *qk_raw;
    float *q_rstd, *k_rstd;
    void *attn; /* [rows][Q] */
    float *lse; /* [rows][heads] */
    /* the residual stream between attention and MLP; may be x_in where there is no backward */
    void *x_mid;
    float *rstd_mid;
    void *gate_up; /* [rows][2 I] */
} block_saved;

/* Buffers that every block uses and none keeps; those named d_ are for backward. */
typedef struct block_scratch {
    void *h, *act; /* [rows][hidden], [rows][I] */
    /* of a slice: the attention or activation of all ranks, this rank's columns of the stream */
    void *all, *part;
    void *d_h, *d_act, *d_gate_up, *d_attn, *d_qkv;
    void *d_qk; /* Qwen 3 only: of q and k after their norm, in rows as long as d_qkv's */
} block_scratch;

/* The tokens of one pass: arrays in device memory. */
typedef struct block_pass {
    int32_t rows;
    ares_segments seg;
    const float *cos_sin; /* [rows][head_dim] */
    const int32_t *slots;
    void *cache; /* this layer's; NULL: packed */
} block_pass;

/* x_out = the residual stream after the layer; it may be s->x_in. */
void block_forward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                   const block_scratch *t, void *x_out);
/* dx [rows][hidden]: d loss / d x_out on entry, d loss / d x_in on return. */
void block_backward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                    const block_scratch *t, void *dx);
#endif
