/* The parameters of a vision tower (docs/vision.md#tower). */
#include "vision/tower.h"

static void add_norm(const listing *l, const char *weight, const char *bias, int index)
{
    const ares_vision_config *v = &l->m->cfg.vision;
    param_add(l, v->width, 0, weight, index);
    if (!v->gated) param_add(l, v->width, 0, bias, index);
}

static void list_block(const listing *l, int i)
{
    const ares_vision_config *v = &l->m->cfg.vision;
    add_norm(l, "blocks.%d.norm1.weight", "blocks.%d.norm1.bias", i);
    add_norm(l, "blocks.%d.norm2.weight", "blocks.%d.norm2.bias", i);
    param_add_linear(l, 3 * v->width, v->width, true, "blocks.%d.attn.qkv", i);
    param_add_linear(l, v->width, v->width, true, "blocks.%d.attn.proj", i);
    if (v->gated) {
        param_add_linear(l, v->intermediate, v->width, true, "blocks.%d.mlp.gate_proj", i);
        param_beside(
            param_add_linear(l, v->intermediate, v->width, true, "blocks.%d.mlp.up_proj", i));
        param_add_linear(l, v->width, v->intermediate, true, "blocks.%d.mlp.down_proj", i);
    } else {
        param_add_linear(l, v->intermediate, v->width, true, "blocks.%d.mlp.fc1", i);
        param_add_linear(l, v->width, v->intermediate, true, "blocks.%d.mlp.fc2", i);
    }
}

void tower_list(listing *l)
{
    const ares_vision_config *v = &l->m->cfg.vision;
    int first = l->m->n_regions;
    l->stem = l->m->cfg.vision_names ? l->m->cfg.vision_names : "visual";
    l->vectors = first + v->depth + 1;
    l->region = first;
    ares_param *patches = param_add(l, v->width, v->channels * v->temporal * v->patch * v->patch,
                                    "patch_embed.proj.weight", 0);
    patches->rank = 5;
    const int64_t shape[] = { v->width, v->channels, v->temporal, v->patch, v->patch };
    for (int i = 0; i < patches->rank; i++) patches->shape[i] = shape[i];
    for (int i = 0; i < v->depth; i++) {
        l->region++;
        list_block(l, i);
    }
    l->region = first;
    int32_t merged = v->width * v->merge * v->merge;
    add_norm(l, "merger.ln_q.weight", "merger.ln_q.bias", 0);
    param_add_linear(l, merged, merged, true, "merger.mlp.0", 0);
    param_add_linear(l, v->out, merged, true, "merger.mlp.2", 0);
}
