/* The parameters of a vision tower (docs/vision.md#tower). */
#include "vision/tower.h"

static void add_norm(const listing *l, const char *stem, int index, ares_param **weight,
                     ares_param **bias)
{
    const ares_vision_config *v = &l->m->cfg.vision;
    ares_linear both = param_add_linear(l, v->width, 0, !v->gated, stem, index);
    *weight = both.w;
    *bias = both.bias;
}

static void list_block(const listing *l, int i)
{
    const ares_vision_config *v = &l->m->cfg.vision;
    ares_tower_layer *y = &l->m->tower.layer[i];
    int32_t width = v->width, wide = v->intermediate;
    add_norm(l, "blocks.%d.norm1", i, &y->norm1, &y->norm1_bias);
    add_norm(l, "blocks.%d.norm2", i, &y->norm2, &y->norm2_bias);
    y->qkv = param_add_linear(l, 3 * width, width, true, "blocks.%d.attn.qkv", i);
    y->proj = param_add_linear(l, width, width, true, "blocks.%d.attn.proj", i);
    y->gate = param_add_linear(l, wide, width, true,
                               v->gated ? "blocks.%d.mlp.gate_proj" : "blocks.%d.mlp.fc1", i);
    if (v->gated)
        y->up = param_beside(param_add_linear(l, wide, width, true, "blocks.%d.mlp.up_proj", i));
    y->down = param_add_linear(l, width, wide, true,
                               v->gated ? "blocks.%d.mlp.down_proj" : "blocks.%d.mlp.fc2", i);
}

void tower_list(listing *l)
{
    ares_tower *y = &l->m->tower;
    const ares_vision_config *v = &l->m->cfg.vision;
    int first = l->region;
    y->layer = ares_calloc((size_t)v->depth, sizeof *y->layer);
    l->stem = l->m->cfg.vision_names ? l->m->cfg.vision_names : "visual";
    y->patches = param_add(l, v->width, v->channels * v->temporal * v->patch * v->patch,
                           "patch_embed.proj.weight", 0);
    const int64_t shape[] = { v->width, v->channels, v->temporal, v->patch, v->patch };
    y->patches->rank = ARES_COUNT(shape);
    for (int i = 0; i < ARES_COUNT(shape); i++) y->patches->shape[i] = shape[i];
    for (int i = 0; i < v->depth; i++) {
        l->region++;
        list_block(l, i);
    }
    l->region = first;
    int32_t merged = v->width * v->merge * v->merge;
    add_norm(l, "merger.ln_q", 0, &y->norm, &y->norm_bias);
    y->merge = param_add_linear(l, merged, merged, true, "merger.mlp.0", 0);
    y->out = param_add_linear(l, v->out, merged, true, "merger.mlp.2", 0);
}
