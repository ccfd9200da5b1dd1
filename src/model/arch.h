/* The architectures, one entry each: what their config.json means where it is silent. */
#ifndef ARES_MODEL_ARCH_H
#define ARES_MODEL_ARCH_H

#include "ares/model.h"

typedef struct model_arch {
    const char *name;       /* model_type */
    const char *class_name; /* for `architectures` */
    int32_t vocab, hidden, intermediate, layers, heads, kv_heads /* 0: heads */,
        head_dim /* 0: hidden / heads */, max_position;
    int32_t bos, eos;        /* -1: none */
    bool qkv_bias;           /* without a key for it */
    bool attention_bias_key; /* `attention_bias` gives q, k, v and o a bias */
    bool mlp_bias_key;
    bool qk_norm;
    bool window_keys; /* sliding_window, use_sliding_window, max_window_layers */
} model_arch;

/* NULL and a message that lists the choices when there is none of this name. */
const model_arch *model_arch_find(const char *model_type);
#endif
