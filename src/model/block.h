#ifndef ARES_MODEL_BLOCK_H
#define ARES_MODEL_BLOCK_H

#include "ares/model.h"

/*
 * What a block leaves for its backward. All in device memory; Q = heads x head_dim, K = kv_heads x
 * head_dim, I = intermediate.
 */
typedef struct block_saved {
    float *x_in, *rstd_in;                  /* [rows][hidden], [rows] */
    float *q, *k, *v;                       /* [rows][Q], [rows][K] x 2, after norm and rotation */
    float *q_raw, *k_raw, *q_rstd, *k_rstd; /* before the norm of Qwen 3; NULL elsewhere */
    float *attn, *lse;                      /* [rows][Q], [rows][heads] */
    float *x_mid, *rstd_mid;                /* the stream between attention and MLP */
    float *gate, *up;                       /* [rows][I] */
} block_saved;

/* Buffers every block uses and none keeps. The d_ ones are for backward. */
typedef struct block_scratch {
    float *h, *act; /* [rows][hidden], [rows][I] */
    float *d_h, *d_act, *d_gate, *d_up, *d_attn, *d_q, *d_k, *d_v;
} block_scratch;

/* One pass's tokens as the kernels want them: arrays in device memory. */
typedef struct block_pass {
    int32_t rows;
    ares_segments seg;
    const float *cos_sin; /* [rows][head_dim] */
    const int32_t *slots;
    float *cache; /* this layer's; NULL: packed */
} block_pass;

/* x_out = the stream behind layer i; may be s->x_in. */
void block_forward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                   const block_scratch *t, float *x_out);
/* dx [rows][hidden]: in, d loss / d x_out; out, d loss / d x_in. */
void block_backward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                    const block_scratch *t, float *dx);
#endif
