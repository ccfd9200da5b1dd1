/*
 * vision_config, which names its sizes in two ways: in Qwen2-VL `hidden_size` is the width of the
 * features and `embed_dim` that of the tower, in Qwen2.5-VL `out_hidden_size` and `hidden_size`.
 */
#include "hf_config.h"

enum { MAX_DEPTH = 64 }; /* bits of full_blocks */

static void read_full_blocks(config_reader *r, ares_vision_config *v)
{
    static const int published[] = { 7, 15, 23, 31 };
    const ares_json *list = ares_json_get(r->root, "fullatt_block_indexes");
    if (r->rc != ARES_OK) return;
    if (!list || list->type == ARES_JSON_NULL) {
        for (int i = 0; i < ARES_COUNT(published); i++) v->full_blocks |= 1ull << published[i];
        return;
    }
    bool right = list->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; right && i < list->count; i++) {
        const ares_json *x = &list->items[i];
        right = x->type == ARES_JSON_INT && x->integer >= 0;
        if (right && x->integer < MAX_DEPTH) v->full_blocks |= 1ull << x->integer;
    }
    if (!right)
        r->rc = ares_fail(ARES_EFORMAT, "'fullatt_block_indexes' is not a list of block numbers");
}

static void read_activation(config_reader *r, bool gated, ares_vision_config *v)
{
    static const struct {
        const char *name;
        ares_activation f;
    } known[] = { { "quick_gelu", ARES_QUICK_GELU },
                  { "gelu", ARES_GELU },
                  { "gelu_pytorch_tanh", ARES_GELU_TANH } };
    ares_view act = { 0 };
    if (r->rc != ARES_OK) return;
    r->rc = ares_json_get_string(r->root, "hidden_act", gated ? "silu" : "quick_gelu", &act);
    if (r->rc != ARES_OK || (gated && ares_view_is(act, "silu"))) return;
    for (int i = 0; i < ARES_COUNT(known) && !gated; i++)
        if (ares_view_is(act, known[i].name)) {
            v->activation = known[i].f;
            return;
        }
    r->rc =
        ares_fail(ARES_EUNSUPPORTED, "hidden_act = '%.*s' is not supported (choices: %s)",
                  (int)act.len, act.data, gated ? "silu" : "quick_gelu, gelu, gelu_pytorch_tanh");
}

static void read_sizes(config_reader *r, bool gated, ares_vision_config *v)
{
    v->gated = gated;
    const ares_json *o = r->root;
    enum { WIDEST = 1 << 16 };
    v->depth = config_i32(r, o, "depth", 32, 1, MAX_DEPTH);
    v->width =
        config_i32(r, o, gated ? "hidden_size" : "embed_dim", gated ? 3584 : 1280, 1, WIDEST);
    v->out = config_i32(r, o, gated ? "out_hidden_size" : "hidden_size", 3584, 1, 1 << 18);
    v->heads = config_i32(r, o, "num_heads", 16, 1, WIDEST);
    if (gated) v->intermediate = config_i32(r, o, "intermediate_size", 3420, 1, 1 << 20);
    else v->intermediate = (int32_t)(v->width * config_double(r, o, "mlp_ratio", 4, 0.25, 64));
    v->channels = config_i32(r, o, "in_channels", config_i32(r, o, "in_chans", 3, 1, 64), 1, 64);
    v->patch = config_i32(r, o, "patch_size", 14, 1, 1024);
    v->merge = config_i32(r, o, "spatial_merge_size", 2, 1, 64);
    v->temporal = config_i32(r, o, "temporal_patch_size", 2, 1, 64);
    if (gated) {
        v->window = config_i32(r, o, "window_size", 112, 1, 1 << 16);
        v->tokens_per_second = config_double(r, o, "tokens_per_second", 4, 1e-3, 1e4);
        read_full_blocks(r, v);
    }
    read_activation(r, gated, v);
}

static int check_sizes(const ares_vision_config *v, const ares_model_config *c)
{
    if (v->out != c->hidden)
        return ares_fail(ARES_EFORMAT,
                         "the tower's features have %d numbers, the text part's "
                         "hidden_size is %d",
                         v->out, c->hidden);
    if (v->width % v->heads || v->width / v->heads % 4)
        return ares_fail(ARES_EFORMAT,
                         "a width of %d and %d heads: the width of a head must be a "
                         "multiple of 4",
                         v->width, v->heads);
    if (v->gated && v->window / v->merge / v->patch < 1)
        return ares_fail(ARES_EFORMAT, "window_size = %d is smaller than a token of %d x %d pixels",
                         v->window, v->merge * v->patch, v->merge * v->patch);
    return ARES_OK;
}

/* At the top only: files of some versions repeat the keys in text_config, with null. */
static void read_ids(config_reader *top, ares_vision_config *v, int32_t vocab)
{
    static const char *const keys[] = { "image_token_id", "video_token_id", "vision_start_token_id",
                                        "vision_end_token_id" };
    static const int32_t published[] = { 151655, 151656, 151652, 151653 };
    int32_t ids[ARES_COUNT(keys)];
    for (int i = 0; i < ARES_COUNT(keys); i++) {
        ids[i] = config_i32(top, top->root, keys[i], published[i], 0, INT32_MAX);
        if (top->rc == ARES_OK && ids[i] >= vocab)
            top->rc = ares_fail(ARES_EFORMAT, "'%s' = %d lies outside the vocabulary of %d",
                                keys[i], ids[i], vocab);
        for (int j = 0; j < i && top->rc == ARES_OK; j++)
            if (ids[i] == ids[j])
                top->rc =
                    ares_fail(ARES_EFORMAT, "'%s' and '%s' are both %d", keys[j], keys[i], ids[i]);
    }
    v->image_token = ids[0];
    v->video_token = ids[1];
    v->vision_start = ids[2];
    v->vision_end = ids[3];
}

void config_read_vision(config_reader *top, bool gated, ares_model_config *c)
{
    config_reader r = { ares_json_get(top->root, "vision_config"), top->path, top->rc };
    if (!r.root || r.root->type != ARES_JSON_OBJECT) {
        top->rc = ares_fail(ARES_EFORMAT, "'vision_config' is not an object");
        return;
    }
    read_sizes(&r, gated, &c->vision);
    if (r.rc == ARES_OK) r.rc = check_sizes(&c->vision, c);
    if (r.rc != ARES_OK) r.rc = ares_fail_in(r.rc, "vision_config");
    top->rc = r.rc;
    if (top->rc == ARES_OK) read_ids(top, &c->vision, c->vocab);
}
