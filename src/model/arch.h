/* The architectures, one entry each: what their config.json means where it lacks a key. */
#ifndef ARES_MODEL_ARCH_H
#define ARES_MODEL_ARCH_H

#include "ares/model.h"

typedef struct model_arch {
    const char *name;       /* model_type */
    const char *class_name; /* for `architectures` */
    int32_t vocab, hidden, intermediate, layers, heads, max_position;
    int32_t kv_heads, head_dim;      /* 0: heads, and hidden / heads */
    int32_t bos, eos;                /* -1: none */
    bool qkv_bias;                   /* q, k and v always have a bias */
    bool attention_bias_key;         /* `attention_bias` gives q, k, v and o a bias */
    bool mlp_bias_key;               /* `mlp_bias` gives gate, up and down a bias */
    bool qk_norm;                    /* an RMS norm per head of q and k */
    bool vision;                     /* text_config, vision_config, and a tower (docs/vision.md) */
    bool gated_tower;                /* the tower is Qwen2.5-VL's */
    double rope_theta, rms_norm_eps; /* 0: 10000, 1e-6 */
    int32_t window_layers;           /* max_window_layers; 0: no keys of sliding windows */
} model_arch;

/* NULL, with an error that lists the choices, where there is none of this name. */
const model_arch *model_arch_find(const char *model_type);
#endif
