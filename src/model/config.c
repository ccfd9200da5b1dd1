/*
 * The configuration of a model directory. In order: the table of architectures; the vision
 * tower's part; config.json, read and written; rules for pictures; what generation_config.json
 * asks for.
 */
#include "internal.h"

#include <math.h>
#include <string.h>

#include "ares/core.h"
#include "ares/model.h"

/*
 * The table of architectures: each is a list of its parts, which the one forward reads from
 * ares_model_config. No code elsewhere compares names. Defaults are those of transformers'
 * configuration classes.
 */

/* Which layers have a sliding window where config.json does not list them (layer_types). */
typedef enum {
    SLIDES_NONE,    /* no keys of sliding windows */
    SLIDES_ALL,     /* every layer; layer_types is not read */
    SLIDES_FROM,    /* those from max_window_layers on */
    SLIDES_PERIOD,  /* all but every slides_by-th */
    SLIDES_NO_ROPE, /* those without rope */
} slides;

typedef struct model_arch {
    const char *name;       /* model_type */
    const char *class_name; /* for `architectures` */
    int32_t vocab, hidden, intermediate, layers, heads, max_position;
    int32_t kv_heads, head_dim;      /* 0: heads, and hidden / heads */
    int32_t bos, eos, pad;           /* -1: none */
    double rope_theta, rms_norm_eps; /* 0: 10000, 1e-6 */
    bool tied;

    /* biases, and norms */
    bool qkv_bias;           /* q, k and v always have a bias */
    bool attention_bias_key; /* `attention_bias` gives q, k, v and o a bias */
    bool mlp_bias_key;       /* `mlp_bias` gives gate, up and down a bias */
    ares_qk_norm qk_norm;
    const char *const *norm_names; /* as in ares_model_config */
    bool norm_plus_one;

    /* activation and scales */
    const char *activation_key, *activation_name; /* NULL: hidden_act, silu */
    ares_activation activation;
    bool scales_embedding;   /* by sqrt(hidden), rounded to f32 */
    double attention_scalar; /* query_pre_attn_scalar where it is absent; 0: no such key */

    /* kinds of layers */
    slides slides;
    int32_t slides_by;         /* max_window_layers, or the period, where that key is absent */
    const char *slides_by_key; /* of the period; NULL: none */
    int32_t window;            /* sliding_window where it is absent; 0: none */
    bool window_asked;         /* windows only with `use_sliding_window` */
    int32_t no_rope_interval; /* `no_rope_layers`; absent: every so many-th layer. 0: no such key */

    double local_theta; /* of layers that slide, which have a rope of their own; 0: no */
    const char *local_theta_key;

    /* experts, where num_experts ... are absent; 0: no such keys */
    int32_t experts, experts_used;
    int32_t expert_width; /* moe_intermediate_size; 0: it is intermediate_size */
    bool some_layers;     /* decoder_sparse_step and mlp_only_layers say which layers have them */
    bool nets;            /* delta nets in some layers, and gates in the others (Qwen3.5) */
    bool wrapped;         /* text_config beside a tower that is not built */

    const char *refused[4]; /* keys of what is not built: only null and false are taken */
    bool no_value_head;
    bool vision;      /* text_config, vision_config, and a tower (docs/vision.md) */
    bool gated_tower; /* the tower is Qwen2.5-VL's */
} model_arch;

/* The norms of a block by place; the same name stands for other places in other architectures. */
static const char *const norms_after[ARES_BLOCK_NORMS] = { [ARES_AFTER_ATTENTION] =
                                                               "post_attention_layernorm",
                                                           [ARES_AFTER_MLP] =
                                                               "post_feedforward_layernorm" };
static const char *const norms_around[ARES_BLOCK_NORMS] = {
    [ARES_BEFORE_ATTENTION] = "input_layernorm",
    [ARES_AFTER_ATTENTION] = "post_attention_layernorm",
    [ARES_BEFORE_MLP] = "pre_feedforward_layernorm",
    [ARES_AFTER_MLP] = "post_feedforward_layernorm"
};

#define QWEN3_5                                                                             \
    .vocab = 248320, .hidden = 4096, .intermediate = 12288, .layers = 32, .heads = 16,      \
    .kv_heads = 4, .head_dim = 256, .max_position = 32768, .bos = -1, .eos = -1, .pad = -1, \
    .attention_bias_key = true, .qk_norm = ARES_QK_NORM_HEADS, .norm_plus_one = true, .nets = true
static const model_arch archs[] = {
    { .name = "qwen2",
      .class_name = "Qwen2ForCausalLM",
      .vocab = 151936,
      .hidden = 4096,
      .intermediate = 22016,
      .layers = 32,
      .heads = 32,
      .kv_heads = 32,
      .max_position = 32768,
      .bos = -1,
      .eos = -1,
      .pad = -1,
      .qkv_bias = true,
      .slides = SLIDES_FROM,
      .slides_by = 28,
      .window = 4096,
      .window_asked = true },
    { .name = "qwen3",
      .class_name = "Qwen3ForCausalLM",
      .vocab = 151936,
      .hidden = 4096,
      .intermediate = 22016,
      .layers = 32,
      .heads = 32,
      .kv_heads = 32,
      .head_dim = 128,
      .max_position = 32768,
      .bos = -1,
      .eos = -1,
      .pad = -1,
      .attention_bias_key = true,
      .qk_norm = ARES_QK_NORM_HEADS,
      .slides = SLIDES_FROM,
      .slides_by = 28,
      .window = 4096,
      .window_asked = true },
    { .name = "llama",
      .class_name = "LlamaForCausalLM",
      .vocab = 32000,
      .hidden = 4096,
      .intermediate = 11008,
      .layers = 32,
      .heads = 32,
      .max_position = 2048,
      .bos = 1,
      .eos = 2,
      .pad = -1,
      .attention_bias_key = true,
      .mlp_bias_key = true },
    { .name = "qwen2_vl",
      .class_name = "Qwen2VLForConditionalGeneration",
      .vocab = 152064,
      .hidden = 8192,
      .intermediate = 29568,
      .layers = 80,
      .heads = 64,
      .kv_heads = 8,
      .max_position = 32768,
      .bos = -1,
      .eos = -1,
      .pad = -1,
      .qkv_bias = true,
      .no_value_head = true,
      .vision = true,
      .rope_theta = 1e6,
      .rms_norm_eps = 1e-5,
      .slides = SLIDES_FROM,
      .slides_by = 80,
      .window = 4096,
      .window_asked = true },
    { .name = "qwen2_5_vl",
      .class_name = "Qwen2_5_VLForConditionalGeneration",
      .vocab = 152064,
      .hidden = 8192,
      .intermediate = 29568,
      .layers = 80,
      .heads = 64,
      .kv_heads = 8,
      .max_position = 32768,
      .bos = -1,
      .eos = -1,
      .pad = -1,
      .qkv_bias = true,
      .no_value_head = true,
      .vision = true,
      .gated_tower = true,
      .rope_theta = 1e6,
      .rms_norm_eps = 1e-5,
      .slides = SLIDES_FROM,
      .slides_by = 80,
      .window = 4096,
      .window_asked = true },
    { .name = "mistral",
      .class_name = "MistralForCausalLM",
      .vocab = 32000,
      .hidden = 4096,
      .intermediate = 14336,
      .layers = 32,
      .heads = 32,
      .kv_heads = 8,
      .max_position = 131072,
      .bos = 1,
      .eos = 2,
      .pad = -1,
      .slides = SLIDES_ALL,
      .window = 4096 },
    { .name = "smollm3",
      .class_name = "SmolLM3ForCausalLM",
      .vocab = 128256,
      .hidden = 2048,
      .intermediate = 11008,
      .layers = 36,
      .heads = 16,
      .kv_heads = 4,
      .max_position = 32768,
      .bos = 128000,
      .eos = 128001,
      .pad = 128004,
      .rope_theta = 2e6,
      .tied = true,
      .attention_bias_key = true,
      .mlp_bias_key = true,
      .slides = SLIDES_NO_ROPE,
      .window_asked = true,
      .no_rope_interval = 4 },
    { .name = "olmo2",
      .class_name = "Olmo2ForCausalLM",
      .vocab = 50304,
      .hidden = 4096,
      .intermediate = 11008,
      .layers = 32,
      .heads = 32,
      .max_position = 2048,
      .bos = -1,
      .eos = 50279,
      .pad = 1,
      .rms_norm_eps = 1e-5,
      .attention_bias_key = true,
      .qk_norm = ARES_QK_NORM_ROW,
      .norm_names = norms_after,
      .refused = { "clip_qkv" },
      .no_value_head = true },
    { .name = "olmo3",
      .class_name = "Olmo3ForCausalLM",
      .vocab = 50304,
      .hidden = 4096,
      .intermediate = 11008,
      .layers = 32,
      .heads = 32,
      .max_position = 2048,
      .bos = -1,
      .eos = 50279,
      .pad = 1,
      .rope_theta = 5e5,
      .rms_norm_eps = 1e-5,
      .attention_bias_key = true,
      .qk_norm = ARES_QK_NORM_ROW,
      .norm_names = norms_after,
      .slides = SLIDES_PERIOD,
      .slides_by = 4,
      .window = 4096,
      .local_theta = 5e5, /* whatever rope_theta says */
      .refused = { "clip_qkv" },
      .no_value_head = true },
    { .name = "gemma3_text",
      .class_name = "Gemma3ForCausalLM",
      .vocab = 262208,
      .hidden = 2304,
      .intermediate = 9216,
      .layers = 26,
      .heads = 8,
      .kv_heads = 4,
      .head_dim = 256,
      .max_position = 131072,
      .bos = 2,
      .eos = 1,
      .pad = 0,
      .rope_theta = 1e6,
      .tied = true,
      .attention_bias_key = true,
      .qk_norm = ARES_QK_NORM_HEADS,
      .norm_names = norms_around,
      .norm_plus_one = true,
      .activation_key = "hidden_activation",
      .activation_name = "gelu_pytorch_tanh",
      .activation = ARES_GELU_TANH,
      .scales_embedding = true,
      .attention_scalar = 256,
      .slides = SLIDES_PERIOD,
      .slides_by = 6,
      .slides_by_key = "sliding_window_pattern",
      .window = 4096,
      .local_theta = 1e4,
      .local_theta_key = "rope_local_base_freq",
      .refused = { "attn_logit_softcapping", "final_logit_softcapping",
                   "use_bidirectional_attention" },
      .no_value_head = true },
    { .name = "qwen3_moe",
      .class_name = "Qwen3MoeForCausalLM",
      .vocab = 151936,
      .hidden = 2048,
      .intermediate = 6144,
      .layers = 24,
      .heads = 32,
      .kv_heads = 4,
      .max_position = 32768,
      .bos = -1,
      .eos = -1,
      .pad = -1,
      .attention_bias_key = true,
      .qk_norm = ARES_QK_NORM_HEADS,
      .slides = SLIDES_ALL,
      .window = 4096,
      .window_asked = true,
      .experts = 128,
      .experts_used = 8,
      .expert_width = 768,
      .some_layers = true },
    { .name = "olmoe",
      .class_name = "OlmoeForCausalLM",
      .vocab = 50304,
      .hidden = 2048,
      .intermediate = 2048,
      .layers = 16,
      .heads = 16,
      .max_position = 4096,
      .bos = -1,
      .eos = 50279,
      .pad = 1,
      .rms_norm_eps = 1e-5,
      .attention_bias_key = true,
      .qk_norm = ARES_QK_NORM_ROW,
      .experts = 64,
      .experts_used = 8,
      .refused = { "clip_qkv" },
      .no_value_head = true },
    { .name = "qwen3_5_text", .class_name = "Qwen3_5ForCausalLM", QWEN3_5 },
    { .name = "qwen3_5",
      .class_name = "Qwen3_5ForConditionalGeneration",
      .no_value_head = true,
      .wrapped = true,
      QWEN3_5 },
};

/* Another architecture is never a misspelling of this one: no nearest name is offered. */
static const model_arch *model_arch_find(const char *model_type)
{
    ares_str names = { 0 };
    for (int i = 0; i < ARES_COUNT(archs); i++) {
        if (strcmp(archs[i].name, model_type) == 0) {
            ares_str_fini(&names);
            return &archs[i];
        }
        ares_str_addf(&names, "%s%s", i ? ", " : "", archs[i].name);
    }
    bool wraps = strcmp(model_type, "gemma3") == 0;
    ares_fail(
        ARES_EUNSUPPORTED,
        "model_type = '%s': this architecture is not built; take %sa model of one that is (%s)",
        model_type, wraps ? "its text part alone, a directory of model_type gemma3_text, or " : "",
        names.data);
    ares_str_fini(&names);
    return NULL;
}

/*
 * vision_config, which names its sizes in two ways: in Qwen2-VL `hidden_size` is the width of the
 * features and `embed_dim` that of the tower, in Qwen2.5-VL `out_hidden_size` and `hidden_size`.
 */

enum { MAX_DEPTH = 64 }; /* bits of full_blocks */

/*
 * A file being read. After a failure the getters do nothing; the caller adds the path to it. Each
 * number has its range, also where the key is absent.
 */
typedef struct config_reader {
    const ares_json *root;
    const char *path; /* for warnings */
    int rc;
} config_reader;

/* Blocks without windows; where the key is absent, those of the published models. */
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

static int32_t config_i32(config_reader *r, const ares_json *o, const char *key, int64_t absent,
                          int32_t least, int32_t most)
{
    int64_t v = absent;
    if (r->rc == ARES_OK) r->rc = ares_json_get_i64(o, key, absent, &v);
    if (r->rc == ARES_OK && (v < least || v > most))
        r->rc = ares_fail(ARES_EFORMAT, "'%s' = %lld is out of range; expected %d to %d", key,
                          (long long)v, least, most);
    return (int32_t)v;
}

static double config_double(config_reader *r, const ares_json *o, const char *key, double absent,
                            double least, double most)
{
    double v = absent;
    if (r->rc == ARES_OK) r->rc = ares_json_get_double(o, key, absent, &v);
    if (r->rc == ARES_OK && !(v >= least && v <= most)) /* NaN, too */
        r->rc = ares_fail(ARES_EFORMAT, "'%s' = %g is out of range; expected %g to %g", key, v,
                          least, most);
    return v;
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

static int check_tower_sizes(const ares_vision_config *v, const ares_model_config *c)
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

/*
 * The tower of a model whose config.json is `top`: vision_config and the ids of its tokens; gated:
 * of Qwen2.5-VL. The text part has been read.
 */
static void config_read_vision(config_reader *top, bool gated, ares_model_config *c)
{
    config_reader r = { ares_json_get(top->root, "vision_config"), top->path, top->rc };
    if (!r.root || r.root->type != ARES_JSON_OBJECT) {
        top->rc = ares_fail(ARES_EFORMAT, "'vision_config' is not an object");
        return;
    }
    read_sizes(&r, gated, &c->vision);
    if (r.rc == ARES_OK) r.rc = check_tower_sizes(&c->vision, c);
    if (r.rc != ARES_OK) r.rc = ares_fail_in(r.rc, "vision_config");
    top->rc = r.rc;
    if (top->rc == ARES_OK) read_ids(top, &c->vision, c->vocab);
}

/* config.json, in both dialects of rope options, and generation_config.json's stop ids. */

static bool get_bool(config_reader *r, const char *key, bool absent)
{
    bool v = absent;
    if (r->rc == ARES_OK) r->rc = ares_json_get_bool(r->root, key, absent, &v);
    return v;
}

/* Above 1: frequencies fall with the dimension, and yarn divides by its logarithm. */
#define CONFIG_ROPE_THETA 1.001, 1e15

static bool is_given(const ares_json *o, const char *key)
{
    const ares_json *x = ares_json_get(o, key);
    return x && x->type != ARES_JSON_NULL;
}

static const char *const rope_kinds[] = { "default", "linear", "dynamic", "yarn", "llama3" };

/* The kind of rope: `rope_type`, or `type` in older files. */
static void read_rope_kind(config_reader *r, const ares_json *o, bool sections, ares_rope_kind *out)
{
    ares_view type = ARES_VIEW("default");
    if (r->rc == ARES_OK) r->rc = ares_json_get_string(o, "type", "default", &type);
    if (r->rc == ARES_OK && ares_json_get(o, "rope_type"))
        r->rc = ares_json_get_string(o, "rope_type", "default", &type);
    if (r->rc != ARES_OK) return;
    if (sections && ares_view_is(type, "mrope")) type = ARES_VIEW("default");
    char name[64];
    if (type.len >= sizeof name) type.len = sizeof name - 1;
    memcpy(name, type.data, type.len);
    name[type.len] = 0;
    int kind = 0;
    r->rc = ares_lookup(ARES_EUNSUPPORTED, "rope_type", name, rope_kinds, ARES_COUNT(rope_kinds),
                        &kind);
    *out = (ares_rope_kind)kind;
}

/* The axes that angles turn by; without the key those of the published models, where they fit. */
static void read_sections(config_reader *r, const ares_json *o, ares_model_config *c)
{
    static const int32_t published[] = { 16, 24, 24 };
    const ares_json *list = ares_json_get(o, "mrope_section");
    if (r->rc != ARES_OK) return;
    if (!list || list->type == ARES_JSON_NULL) {
        if (c->head_dim == 128) memcpy(c->rope.section, published, sizeof published);
        return;
    }
    int64_t sum = 0;
    bool right = list->type == ARES_JSON_ARRAY && list->count == ARES_COUNT(published);
    for (int i = 0; right && i < ARES_COUNT(published); i++) {
        const ares_json *x = &list->items[i];
        right = x->type == ARES_JSON_INT && x->integer >= 0 && x->integer <= c->head_dim;
        c->rope.section[i] = right ? (int32_t)x->integer : 0;
        sum += c->rope.section[i];
    }
    if (!right || sum * 2 != c->head_dim)
        r->rc = ares_fail(ARES_EFORMAT,
                          "'mrope_section' is not three numbers whose sum is half of head_dim = %d",
                          c->head_dim);
}

/* The object of this name; NULL: it is missing, null or {}, which say the same. */
static const ares_json *rope_object(config_reader *r, const char *key)
{
    const ares_json *o = ares_json_get(r->root, key);
    if (!o || o->type == ARES_JSON_NULL) return NULL;
    if (o->type != ARES_JSON_OBJECT && r->rc == ARES_OK)
        r->rc = ares_fail(ARES_EFORMAT, "'%s' is not an object", key);
    return o->count ? o : NULL;
}

/* Fails on what would change rotations and is not offered. partial: a part of a head may turn */
static bool check_rope(config_reader *r, const ares_json *o, bool partial)
{
    if (!partial && config_double(r, o, "partial_rotary_factor", 1, 0, 1) != 1 && r->rc == ARES_OK)
        r->rc =
            ares_fail(ARES_EUNSUPPORTED, "a partial_rotary_factor other than 1 is not supported");
    for (int64_t i = 0; i < o->count && r->rc == ARES_OK && o != r->root; i++)
        if (o->members[i].value->type == ARES_JSON_OBJECT)
            r->rc = ares_fail(ARES_EUNSUPPORTED,
                              "rope parameters of their own for '%.*s' are not supported; all "
                              "layers share one set",
                              (int)ARES_MIN(o->members[i].key.len, 60), o->members[i].key.data);
    return r->rc == ARES_OK;
}

/* A number that may stand at two places, `first` before `second`; they should agree. */
static void tell_two(const config_reader *r, const char *key, const ares_json *first,
                     const char *place, const ares_json *second, const char *other)
{
    const ares_json *a = ares_json_get(first, key), *b = ares_json_get(second, key);
    if (is_given(first, key) && is_given(second, key) && a->number != b->number)
        ares_warn("model: %s: %s is %g %s and %g %s; the first holds, as in transformers 5",
                  r->path, key, a->number, place, b->number, other);
}

/* A rotation by the object o (NULL: the default kind) and a theta where o has none. */
static void read_one_rope(config_reader *r, const ares_json *o, double theta, bool sections,
                          const ares_model_config *c, ares_rope_config *rope)
{
    static const char original[] = "original_max_position_embeddings";
    const ares_json *top = r->root;
    if (r->rc != ARES_OK || (o && !check_rope(r, o, c->net.v_heads > 0))) return;
    *rope = (ares_rope_config){ .theta = theta,
                                .factor = 1,
                                .attention_factor = -1,
                                .beta_fast = 32,
                                .beta_slow = 1,
                                .truncate = true };
    rope->original_max_position = c->max_position;
    if (!o) return;
    rope->theta = config_double(r, o, "rope_theta", theta, CONFIG_ROPE_THETA);
    read_rope_kind(r, o, sections, &rope->kind);
    if (r->rc != ARES_OK || rope->kind == ARES_ROPE_DEFAULT) return;

    /* the trained length: at the top, else in the rope parameters, else max_position_embeddings */
    int32_t length = config_i32(r, top, original, 0, 0, INT32_MAX);
    if (length == 0) length = config_i32(r, o, original, 0, 0, INT32_MAX);
    if (length == 0) length = c->max_position;
    if (r->rc != ARES_OK) return;
    rope->original_max_position = length;
    if (rope->kind != ARES_ROPE_YARN && !is_given(o, "factor")) {
        r->rc = ares_fail(ARES_EFORMAT, "rope type '%s' needs a 'factor'", rope_kinds[rope->kind]);
        return;
    }
    rope->factor = config_double(r, o, "factor", (double)c->max_position / length, 1e-3, 1e6);
    rope->low_freq_factor = config_double(r, o, "low_freq_factor", 1, 1e-3, 1e6);
    rope->high_freq_factor = config_double(r, o, "high_freq_factor", 4, 1e-3, 1e6);
    if (is_given(o, "attention_factor"))
        rope->attention_factor = config_double(r, o, "attention_factor", 1, 1e-3, 1e3);
    rope->beta_fast = config_double(r, o, "beta_fast", 32, 1e-3, 1e6);
    rope->beta_slow = config_double(r, o, "beta_slow", 1, 1e-3, 1e6);
    rope->mscale = config_double(r, o, "mscale", 0, 0, 1e3);
    rope->mscale_all_dim = config_double(r, o, "mscale_all_dim", 0, 0, 1e3);
    if (r->rc == ARES_OK && rope->high_freq_factor <= rope->low_freq_factor)
        r->rc =
            ares_fail(ARES_EFORMAT, "'high_freq_factor' = %g is not above 'low_freq_factor' = %g",
                      rope->high_freq_factor, rope->low_freq_factor);
    if (r->rc == ARES_OK) r->rc = ares_json_get_bool(o, "truncate", true, &rope->truncate);
}

/*
 * The rotation of layers that slide and that of the others: an object each in rope_parameters; in
 * older files rope_theta and rope_scaling are of the others, and the first is never scaled.
 */
static void read_two_ropes(config_reader *r, const model_arch *a, ares_model_config *c)
{
    static const char *const kinds[] = { "full_attention", "sliding_attention" };
    const ares_json *newer = rope_object(r, "rope_parameters"),
                    *older = rope_object(r, "rope_scaling"), *of[2] = { NULL };
    for (int64_t i = 0; newer && i < newer->count && r->rc == ARES_OK; i++) {
        const ares_json *v = newer->members[i].value;
        int k = 0;
        while (k < 2 && !ares_view_is(newer->members[i].key, kinds[k])) k++;
        if (k < 2 && v->type == ARES_JSON_OBJECT) of[k] = v;
        else if (k == 2 || v->type != ARES_JSON_NULL)
            r->rc = ares_fail(ARES_EUNSUPPORTED,
                              "'rope_parameters' has '%.*s': a %s has an object for each kind of "
                              "layer there, {\"full_attention\": {..}, \"sliding_attention\": "
                              "{..}}; transformers opens no other form",
                              (int)ARES_MIN(newer->members[i].key.len, 60),
                              newer->members[i].key.data, c->model_type);
    }
    if (older && of[0] && r->rc == ARES_OK)
        r->rc = ares_fail(ARES_EUNSUPPORTED, "rope_scaling stands beside rope_parameters of "
                                             "'full_attention'; keep one of them");
    double theta = config_double(r, r->root, "rope_theta", a->rope_theta, CONFIG_ROPE_THETA),
           local = a->local_theta;
    if (a->local_theta_key)
        local = config_double(r, r->root, a->local_theta_key, local, CONFIG_ROPE_THETA);
    if (r->rc != ARES_OK || !check_rope(r, r->root, false)) return;
    if (of[0]) tell_two(r, "rope_theta", of[0], "in the rope parameters", r->root, "at the top");
    read_one_rope(r, older ? older : of[0], theta, false, c, &c->rope);
    read_one_rope(r, of[1], local, false, c, &c->rope_local);
}

static void read_rope(config_reader *r, const model_arch *a, ares_model_config *c)
{
    static const char theta_key[] = "rope_theta", original[] = "original_max_position_embeddings";
    const ares_json *top = r->root, *newer = rope_object(r, "rope_parameters"),
                    *older = rope_object(r, "rope_scaling"), *o = older ? older : newer;
    if (r->rc != ARES_OK || !check_rope(r, top, a->nets) || (o && !check_rope(r, o, a->nets)))
        return;
    double theta = config_double(r, top, theta_key, a->rope_theta > 0 ? a->rope_theta : 10000.0,
                                 CONFIG_ROPE_THETA);
    if (o) tell_two(r, theta_key, o, "in the rope parameters", top, "at the top");
    if (o) tell_two(r, original, top, "at the top", o, "in the rope parameters");
    if (older && newer) {
        double holds = config_double(r, older, theta_key, theta, CONFIG_ROPE_THETA);
        ares_warn("model: %s: rope_scaling stands beside rope_parameters and replaces all of it, "
                  "as in transformers 5 (rope_theta is %g); keep one of them",
                  r->path, holds);
    }
    read_one_rope(r, o, theta, a->vision, c, &c->rope);
    if (a->vision) read_sections(r, o, c);
    if (!a->nets || r->rc != ARES_OK) return;
    static const char part[] = "partial_rotary_factor";
    double all = config_double(r, top, part, 0.25, 0, 1),
           share = o ? config_double(r, o, part, all, 0, 1) : all;
    c->turned = (int32_t)(c->head_dim * share);
    if (r->rc == ARES_OK && (c->turned < 2 || c->turned % 2))
        r->rc = ares_fail(ARES_EFORMAT,
                          "partial_rotary_factor = %g turns %d of a head's %d numbers; rotary "
                          "embeddings rotate pairs",
                          share, c->turned, c->head_dim);
}

/* A list with an entry per layer, or with more where it may; NULL: it is absent or null. */
static const ares_json *layer_list(config_reader *r, const char *key, int32_t layers, bool more)
{
    const ares_json *x = ares_json_get(r->root, key);
    if (r->rc != ARES_OK || !x || x->type == ARES_JSON_NULL) return NULL;
    if (x->type != ARES_JSON_ARRAY)
        r->rc = ares_fail(ARES_EFORMAT, "'%s' is not a list of an entry per layer", key);
    else if (x->count < layers || (x->count > layers && !more))
        r->rc = ares_fail(ARES_EFORMAT, "'%s' has %lld entries for %d layers", key,
                          (long long)x->count, layers);
    return r->rc == ARES_OK ? x : NULL;
}

/* Whether layer_types says that layer i has a sliding window. */
static bool read_layer_type(config_reader *r, const ares_json *types, int32_t i)
{
    ares_view name = types->items[i].text;
    bool slides = ares_view_is(name, "sliding_attention");
    if (types->items[i].type != ARES_JSON_STRING ||
        (!slides && !ares_view_is(name, "full_attention")))
        r->rc = ares_fail(ARES_EUNSUPPORTED,
                          "'layer_types': entry %d is '%.*s', a kind of layer that is not "
                          "supported (choices: full_attention, sliding_attention)",
                          i, (int)ARES_MIN(name.len, 60), name.data ? name.data : "");
    return slides;
}

/* The window's size, which layers have it, and which are not rotated. */
static void read_layers(config_reader *r, const model_arch *a, ares_model_config *c)
{
    const ares_json *root = r->root, *size = ares_json_get(root, "sliding_window"), *types = NULL,
                    *ropes = NULL;
    int32_t by = a->slides_by, interval = a->no_rope_interval;
    c->window = 0;
    if (r->rc != ARES_OK) return;
    if (interval) {
        interval = config_i32(r, root, "no_rope_layer_interval", interval, 1, INT32_MAX);
        ropes = layer_list(r, "no_rope_layers", c->layers, true); /* 1: it has rope */
    }
    bool asked = a->slides && (!a->window_asked || get_bool(r, "use_sliding_window", false));
    if (asked && (size ? size->type != ARES_JSON_NULL : a->window)) /* null: no window */
        c->window = config_i32(r, root, "sliding_window", a->window, 1, INT32_MAX);
    if (c->window && a->slides == SLIDES_FROM)
        by = config_i32(r, root, "max_window_layers", by, 0, INT32_MAX);
    if (a->slides_by_key) by = config_i32(r, root, a->slides_by_key, by, 1, INT32_MAX);
    if (a->slides == SLIDES_PERIOD || (c->window && a->slides != SLIDES_ALL))
        types = layer_list(r, "layer_types", c->layers, false);
    for (int32_t i = 0; i < c->layers && r->rc == ARES_OK; i++) {
        bool turns = !interval || (ropes ? ropes->items[i].integer != 0 : (i + 1) % interval != 0);
        bool slid = types                         ? read_layer_type(r, types, i)
                    : a->slides == SLIDES_FROM    ? i >= by
                    : a->slides == SLIDES_PERIOD  ? (i + 1) % by != 0
                    : a->slides == SLIDES_NO_ROPE ? !turns
                                                  : a->slides == SLIDES_ALL;
        if (ropes && ropes->items[i].type != ARES_JSON_INT)
            r->rc = ares_fail(ARES_EFORMAT, "'no_rope_layers' is not a list of 0 and 1");
        c->layer[i] = (uint8_t)((c->window && slid ? ARES_LAYER_WINDOW : 0) |
                                (turns ? 0 : ARES_LAYER_NO_ROPE) |
                                (slid && a->local_theta > 0 ? ARES_LAYER_LOCAL_ROPE : 0));
    }
}

/* The sizes of experts, and which layers have them. */
static void read_experts(config_reader *r, const model_arch *a, ares_model_config *c)
{
    const ares_json *root = r->root, *plain = ares_json_get(root, "mlp_only_layers");
    if (!a->experts || r->rc != ARES_OK) return;
    /* transformers 5 writes the number of Qwen's under the second name */
    const char *key =
        ares_json_get(root, "num_experts") || !ares_json_get(root, "num_local_experts")
            ? "num_experts"
            : "num_local_experts";
    c->experts = config_i32(r, root, key, a->experts, 1, 1 << 12);
    c->experts_used = config_i32(r, root, "num_experts_per_tok", a->experts_used, 1, 1 << 12);
    if (r->rc == ARES_OK && c->experts_used > c->experts)
        r->rc = ares_fail(ARES_EFORMAT, "num_experts_per_tok = %d exceeds %s = %d", c->experts_used,
                          key, c->experts);
    c->expert_width = !a->expert_width ? c->intermediate
                                       : config_i32(r, root, "moe_intermediate_size",
                                                    a->expert_width, 1, 1 << 22);
    c->experts_norm = get_bool(r, "norm_topk_prob", false);
    int32_t step = a->some_layers ? config_i32(r, root, "decoder_sparse_step", 1, 1, INT32_MAX) : 1;
    for (int32_t i = 0; i < c->layers && r->rc == ARES_OK; i++)
        if ((i + 1) % step == 0) c->layer[i] |= ARES_LAYER_EXPERTS;
    if (!a->some_layers || !plain || plain->type == ARES_JSON_NULL || r->rc != ARES_OK) return;
    bool right = plain->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; right && i < plain->count; i++) {
        const ares_json *x = &plain->items[i];
        right = x->type == ARES_JSON_INT;
        if (right && x->integer >= 0 && x->integer < c->layers)
            c->layer[x->integer] &= (uint8_t)~ARES_LAYER_EXPERTS;
    }
    if (!right) r->rc = ares_fail(ARES_EFORMAT, "'mlp_only_layers' is not a list of layers");
}

/* The sizes of delta nets, and which layers have them in place of attention. */
static void read_nets(config_reader *r, ares_model_config *c)
{
    enum { MOST = 1 << 12 };
    const ares_json *o = r->root, *types;
    bool gate = get_bool(r, "attn_output_gate", true);
    ares_view type = { 0 };
    c->net.k_heads = config_i32(r, o, "linear_num_key_heads", 16, 1, MOST);
    c->net.v_heads = config_i32(r, o, "linear_num_value_heads", 32, 1, MOST);
    c->net.k_dim = config_i32(r, o, "linear_key_head_dim", 128, 1, MOST);
    c->net.v_dim = config_i32(r, o, "linear_value_head_dim", 128, 1, MOST);
    c->net.kernel = config_i32(r, o, "linear_conv_kernel_dim", 4, 1, ARES_CONV_MAX);
    int32_t interval = config_i32(r, o, "full_attention_interval", 4, 1, INT32_MAX);
    if (r->rc == ARES_OK) r->rc = ares_json_get_string(o, "mamba_ssm_dtype", "float32", &type);
    if (r->rc != ARES_OK) return;
    c->attention_gate = true;
    if (!gate || !ares_view_is(type, "float32"))
        r->rc = ares_fail(ARES_EUNSUPPORTED, "'%s' is supported as %s alone",
                          gate ? "mamba_ssm_dtype" : "attn_output_gate", gate ? "float32" : "true");
    else if (c->net.v_heads % c->net.k_heads)
        r->rc = ares_fail(ARES_EFORMAT,
                          "linear_num_value_heads = %d is not a multiple of linear_num_key_heads = "
                          "%d",
                          c->net.v_heads, c->net.k_heads);
    types = layer_list(r, "layer_types", c->layers, false);
    for (int32_t i = 0; i < c->layers && r->rc == ARES_OK; i++) {
        ares_view name = types ? types->items[i].text : (ares_view){ 0 };
        bool net = types ? ares_view_is(name, "linear_attention") : (i + 1) % interval != 0;
        if (types && (types->items[i].type != ARES_JSON_STRING ||
                      (!net && !ares_view_is(name, "full_attention"))))
            r->rc = ares_fail(ARES_EUNSUPPORTED,
                              "'layer_types': entry %d is '%.*s', a kind of layer that is not "
                              "supported (choices: full_attention, linear_attention)",
                              i, (int)ARES_MIN(name.len, 60), name.data ? name.data : "");
        c->layer[i] = net ? ARES_LAYER_NET : 0;
    }
}

/* Adds an id unless it is there already. */
static void put_eos(config_reader *r, int32_t id, ares_model_config *c)
{
    if (ares_model_ends(c, id)) return;
    if (c->n_eos == ARES_MAX_EOS)
        r->rc = ares_fail(ARES_ELIMIT, "more than %d ids in 'eos_token_id'", ARES_MAX_EOS);
    else c->eos[c->n_eos++] = id;
}

static void read_eos(config_reader *r, const ares_json *o, ares_model_config *c)
{
    const ares_json *e = ares_json_get(o, "eos_token_id");
    if (!e || e->type == ARES_JSON_NULL || r->rc != ARES_OK) return;
    const ares_json *ids = e->type == ARES_JSON_ARRAY ? e->items : e;
    int64_t n = e->type == ARES_JSON_ARRAY ? e->count : 1;
    for (int64_t i = 0; i < n && r->rc == ARES_OK; i++)
        if (ids[i].type != ARES_JSON_INT || ids[i].integer < 0 || ids[i].integer > INT32_MAX)
            r->rc = ares_fail(ARES_EFORMAT, "'eos_token_id' is not an id or a list of ids");
        else if (ids[i].integer >= c->vocab)
            r->rc = ares_fail(ARES_EFORMAT,
                              "eos_token_id = %lld is no token: vocab_size = %d, so that no answer "
                              "could end with it; take it out, or write the id of the tokenizer's "
                              "eos_token",
                              (long long)ids[i].integer, c->vocab);
        else put_eos(r, (int32_t)ids[i].integer, c);
}

/* The type of the tensors, under its new name or its old one. */
static void read_dtype(config_reader *r, ares_model_config *c)
{
    static const struct {
        const char *name;
        ares_dtype dtype;
    } types[] = { { "float32", ARES_F32 }, { "bfloat16", ARES_BF16 }, { "float16", ARES_F16 } };
    ares_view now, before;
    if ((r->rc = ares_json_get_string(r->root, "dtype", "", &now)) != ARES_OK) return;
    if ((r->rc = ares_json_get_string(r->root, "torch_dtype", "", &before)) != ARES_OK) return;
    if (now.len && before.len && !ares_view_eq(now, before))
        ares_warn("model: %s: dtype is %.*s and torch_dtype %.*s; the first holds, as in "
                  "transformers 5",
                  r->path, (int)now.len, now.data, (int)before.len, before.data);
    ares_view dtype = now.len ? now : before;
    if (ares_view_starts(dtype, ARES_VIEW("torch."))) dtype.data += 6, dtype.len -= 6;
    int i = 0;
    while (i < ARES_COUNT(types) && !ares_view_is(dtype, types[i].name)) i++;
    c->says_dtype = dtype.len > 0;
    c->file_dtype = c->says_dtype && i < ARES_COUNT(types) ? types[i].dtype : ARES_F32;
    if (c->says_dtype && i == ARES_COUNT(types))
        r->rc =
            ares_fail(ARES_EUNSUPPORTED,
                      "%s = '%.*s': no type of weights that is read (choices: float32, "
                      "bfloat16, float16)",
                      now.len ? "dtype" : "torch_dtype", (int)ARES_MIN(dtype.len, 60), dtype.data);
}

static void check_sizes(config_reader *r, const ares_model_config *c)
{
    if (r->rc != ARES_OK) return;
    if (c->heads % c->kv_heads)
        r->rc = ares_fail(ARES_EFORMAT,
                          "num_attention_heads = %d is not a multiple of num_key_value_heads = %d",
                          c->heads, c->kv_heads);
    else if (c->head_dim < 2 || c->head_dim % 2) /* of a vision model: hidden_size / heads */
        r->rc = ares_fail(ARES_EFORMAT,
                          "head_dim = %d is not 2, 4, 6 ...; rotary embeddings rotate pairs",
                          c->head_dim);
    else if ((int64_t)c->heads * c->head_dim > 1 << 20)
        r->rc = ares_fail(ARES_ELIMIT, "heads x head_dim = %lld exceeds the limit of 1048576",
                          (long long)c->heads * c->head_dim);
}

/*
 * Keys that transformers refuses as null; where they are missing it has a value of its own. Of the
 * others null is none, or as many as another key says.
 */
static void check_null(config_reader *r, const model_arch *a)
{
    const struct {
        const char *key;
        bool refused;
    } keys[] = {
        { "vocab_size", true },
        { "hidden_size", true },
        { "intermediate_size", true },
        { "num_hidden_layers", true },
        { "num_attention_heads", true },
        { "max_position_embeddings", true },
        { "rms_norm_eps", true },
        { "initializer_range", true },
        { a->activation_key ? a->activation_key : "hidden_act", true },
        { "query_pre_attn_scalar", a->attention_scalar > 0 },
        { "rope_theta", true },
        { "tie_word_embeddings", true },
        { "head_dim", a->head_dim > 0 },
        { "attention_bias", a->attention_bias_key },
        { "mlp_bias", a->mlp_bias_key },
        { "use_sliding_window", a->window_asked && !a->vision },
        { "max_window_layers", a->slides == SLIDES_FROM && !a->vision },
    };
    for (int i = 0; i < ARES_COUNT(keys) && r->rc == ARES_OK; i++) {
        const ares_json *v = ares_json_get(r->root, keys[i].key);
        if (keys[i].refused && v && v->type == ARES_JSON_NULL)
            r->rc = ares_fail(ARES_EFORMAT,
                              "'%s' is null, which transformers refuses; give its value, or leave "
                              "the key out for the default",
                              keys[i].key);
    }
}

/* null is none; `absent` is that of a missing key. */
static int32_t read_token(config_reader *r, const ares_json *o, const char *key, int32_t absent)
{
    const ares_json *v = ares_json_get(o, key);
    return config_i32(r, o, key, v && v->type == ARES_JSON_NULL ? -1 : absent, -1, INT32_MAX);
}

static void read_activation_and_scales(config_reader *r, const model_arch *a, ares_model_config *c)
{
    const char *key = a->activation_key ? a->activation_key : "hidden_act",
               *name = a->activation_name ? a->activation_name : "silu";
    ares_view act = { 0 };
    if (r->rc == ARES_OK) r->rc = ares_json_get_string(r->root, key, name, &act);
    if (r->rc == ARES_OK && !ares_view_is(act, name))
        r->rc = ares_fail(ARES_EUNSUPPORTED, "%s = '%.*s' is not supported (choices: %s)", key,
                          (int)act.len, act.data, name);
    c->norm_plus_one = a->norm_plus_one;
    c->mlp_activation = a->activation;
    if (a->scales_embedding) c->embed_scale = sqrtf((float)c->hidden);
    if (a->attention_scalar > 0)
        c->attention_scale = 1.0f / sqrtf((float)config_double(r, r->root, "query_pre_attn_scalar",
                                                               a->attention_scalar, 1e-3, 1e9));
    for (int i = 0; i < ARES_COUNT(a->refused) && a->refused[i] && r->rc == ARES_OK; i++) {
        const ares_json *v = ares_json_get(r->root, a->refused[i]);
        if (v && v->type != ARES_JSON_NULL && !(v->type == ARES_JSON_BOOL && !v->boolean))
            r->rc = ares_fail(ARES_EUNSUPPORTED,
                              "'%s' is set, which is not built; a %s is supported where it is null",
                              a->refused[i], a->name);
    }
}

static void read_config(config_reader *r, ares_model_config *c)
{
    ares_view type = { 0 };
    r->rc = ares_json_get_string(r->root, "model_type", NULL, &type);
    if (r->rc == ARES_OK && (!type.data || type.len == 0 || type.len >= sizeof c->model_type))
        r->rc = ares_fail(ARES_EFORMAT, "no 'model_type'; is this a Hugging Face model directory?");
    if (r->rc != ARES_OK) return;
    memcpy(c->model_type, type.data, type.len);
    const model_arch *a = model_arch_find(c->model_type);
    if (!a) {
        r->rc = ARES_EUNSUPPORTED;
        return;
    }
    config_reader top = *r; /* of keys that stand outside of text_config, too */
    const ares_json *text = a->vision || a->wrapped ? ares_json_get(r->root, "text_config") : NULL;
    if (text && text->type == ARES_JSON_OBJECT) r->root = text;
    const ares_json *o = r->root;
    c->wrapped = a->wrapped;
    check_null(r, a);
    /* The bounds are such that no product of sizes overflows 64 bits. */
    c->vocab = config_i32(r, o, "vocab_size", a->vocab, 1, 1 << 24);
    c->hidden = config_i32(r, o, "hidden_size", a->hidden, 1, 1 << 18);
    c->intermediate = config_i32(r, o, "intermediate_size", a->intermediate, 1, 1 << 22);
    c->layers = config_i32(r, o, "num_hidden_layers", a->layers, 1, 1 << 12);
    c->heads = config_i32(r, o, "num_attention_heads", a->heads, 1, 1 << 16);
    /* null, unlike a key that is absent, is as many as heads */
    bool own = a->kv_heads && !ares_json_get(o, "num_key_value_heads");
    c->kv_heads = config_i32(r, o, "num_key_value_heads", own ? a->kv_heads : c->heads, 1, 1 << 16);
    if (r->rc == ARES_OK && a->vision) c->head_dim = c->hidden / c->heads;
    else if (r->rc == ARES_OK)
        c->head_dim = config_i32(r, o, "head_dim", a->head_dim ? a->head_dim : c->hidden / c->heads,
                                 2, 1 << 16);
    c->max_position = config_i32(r, o, "max_position_embeddings", a->max_position, 1, 1 << 24);
    c->rms_norm_eps = (float)config_double(r, o, "rms_norm_eps",
                                           a->rms_norm_eps > 0 ? a->rms_norm_eps : 1e-6, 1e-12, 1);
    c->initializer_range = config_double(r, o, "initializer_range", 0.02, 0, 10);
    c->tied = get_bool(r, "tie_word_embeddings", a->tied);
    if (a->vision && !c->tied) c->tied = get_bool(&top, "tie_word_embeddings", false);
    if (a->wrapped) c->tied = get_bool(&top, "tie_word_embeddings", c->tied);
    if (top.rc != ARES_OK) r->rc = top.rc;
    bool attention_bias = a->attention_bias_key && get_bool(r, "attention_bias", false);
    c->qkv_bias = a->qkv_bias || attention_bias;
    c->o_bias = attention_bias;
    c->mlp_bias = a->mlp_bias_key && get_bool(r, "mlp_bias", false);
    c->qk_norm = a->qk_norm;
    c->norm_names = a->norm_names;
    c->no_value_head = a->no_value_head;
    read_activation_and_scales(r, a, c);
    /* an architecture's own ids are none of a smaller vocabulary */
    c->bos = read_token(r, o, "bos_token_id", a->bos < c->vocab ? a->bos : -1);
    c->pad = read_token(r, o, "pad_token_id", a->pad < c->vocab ? a->pad : -1);
    check_sizes(r, c);
    if (a->nets) read_nets(r, c);
    if (a->local_theta > 0) read_two_ropes(r, a, c);
    else read_rope(r, a, c);
    if (!a->nets) read_layers(r, a, c);
    read_experts(r, a, c);
    read_eos(r, r->root, c);
    if (c->n_eos == 0) read_eos(r, top.root, c);
    if (a->vision && r->rc == ARES_OK) {
        config_read_vision(&top, a->gated_tower, c);
        r->rc = top.rc;
    }

    if (r->rc == ARES_OK) read_dtype(&top, c);
    if (top.rc == ARES_OK && r->rc == ARES_OK && a->wrapped && !c->says_dtype) read_dtype(r, c);
    if (top.rc != ARES_OK) r->rc = top.rc;
}

bool ares_model_ends(const ares_model_config *c, int32_t id)
{
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id) return true;
    return false;
}

int ares_model_add_eos(ares_model_config *c, int32_t id, const char *dir)
{
    if (id < 0 || id >= c->vocab) return ARES_OK;
    if (!ares_model_ends(c, id)) {
        ares_str named = { 0 };
        for (int i = 0; i < c->n_eos; i++) ares_str_addf(&named, "%s%d", i ? ", " : "", c->eos[i]);
        if (dir)
            ares_warn("model: %s: answers end at the tokenizer's eos_token (id %d) as well; "
                      "eos_token_id in config.json and generation_config.json names %s",
                      dir, id, named.len ? named.data : "none");
        ares_str_fini(&named);
        config_reader r = { 0 };
        put_eos(&r, id, c);
        if (r.rc != ARES_OK)
            return ares_fail_in(r.rc, "model%s%s: with %d", dir ? ": " : "", dir ? dir : "", id);
    }
    for (int i = 0; i < c->n_eos; i++) /* the others keep their order */
        if (c->eos[i] == id) {
            memmove(c->eos + 1, c->eos, (size_t)i * sizeof *c->eos);
            c->eos[0] = id;
        }
    return ARES_OK;
}

int ares_model_config_load(const char *dir, ares_model_config *c)
{
    memset(c, 0, sizeof *c);
    ares_arena arena = { 0 };
    ares_str path = { 0 }, text = { 0 };
    config_reader r = { 0 };
    bool says_eos = false;
    if (!ares_dir_exists(dir)) {
        r.rc = ares_fail(ARES_EIO, "model: %s: no such directory", dir);
        goto end;
    }
    ares_path_join(&path, dir, "config.json");
    if (!ares_file_exists(path.data)) {
        r.rc = ares_fail(ARES_EFORMAT,
                         "model: %s: no config.json; not a Hugging Face model directory", dir);
        goto end;
    }
    r.rc = ares_file_read(path.data, &text);
    if (r.rc == ARES_OK) r.rc = ares_json_parse(&arena, ares_str_view(&text), path.data, &r.root);
    if (r.rc != ARES_OK) goto end;
    r.path = path.data;
    read_config(&r, c);
    says_eos = ares_json_get(r.root, "eos_token_id"); /* null, too */
    if (r.rc != ARES_OK) {
        ares_fail_in(r.rc, "model: %s", path.data);
        goto end;
    }
    ares_path_join(&path, dir, "generation_config.json");
    if (ares_file_exists(path.data)) {
        ares_str_clear(&text);
        r.rc = ares_file_read(path.data, &text);
        if (r.rc == ARES_OK)
            r.rc = ares_json_parse(&arena, ares_str_view(&text), path.data, &r.root);
        if (r.rc == ARES_OK) read_eos(&r, r.root, c);
        if (r.rc == ARES_OK && c->pad < 0)
            c->pad = config_i32(&r, r.root, "pad_token_id", -1, -1, INT32_MAX);
        if (r.rc != ARES_OK) ares_fail_in(r.rc, "model: %s", path.data);
    }
    if (r.rc == ARES_OK && c->n_eos == 0 && !says_eos) {
        const model_arch *a = model_arch_find(c->model_type);
        if (a->eos >= 0 && a->eos < c->vocab) c->eos[c->n_eos++] = a->eos;
    }
end:
    ares_str_fini(&path);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return r.rc;
}

static void put_string(ares_str *s, const char *key, const char *value)
{
    ares_json_write_string(ares_json_key(s, key), ares_view_of(value));
}

static void put_i64(ares_str *s, const char *key, int64_t value)
{
    ares_json_write_i64(ares_json_key(s, key), value);
}

static void put_bool(ares_str *s, const char *key, bool value)
{
    ares_json_write_bool(ares_json_key(s, key), value);
}

static const char *const file_dtypes[] = {
    [ARES_F32] = "float32", [ARES_BF16] = "bfloat16", [ARES_F16] = "float16"
};

/* Members of an object of rope parameters. */
static void write_rope_members(ares_str *s, const ares_rope_config *r)
{
    put_string(s, "rope_type", rope_kinds[r->kind]);
    if (r->kind == ARES_ROPE_DEFAULT) return;
    ares_json_write_double(ares_json_key(s, "factor"), r->factor);
    if (r->kind == ARES_ROPE_YARN || r->kind == ARES_ROPE_LLAMA3)
        put_i64(s, "original_max_position_embeddings", r->original_max_position);
    const struct {
        const char *key;
        double value;
        bool used;
    } more[] = {
        { "low_freq_factor", r->low_freq_factor, r->kind == ARES_ROPE_LLAMA3 },
        { "high_freq_factor", r->high_freq_factor, r->kind == ARES_ROPE_LLAMA3 },
        { "attention_factor", r->attention_factor,
          r->kind == ARES_ROPE_YARN && r->attention_factor >= 0 },
        { "beta_fast", r->beta_fast, r->kind == ARES_ROPE_YARN },
        { "beta_slow", r->beta_slow, r->kind == ARES_ROPE_YARN },
        { "mscale", r->mscale, r->kind == ARES_ROPE_YARN && r->mscale != 0 },
        { "mscale_all_dim", r->mscale_all_dim,
          r->kind == ARES_ROPE_YARN && r->mscale_all_dim != 0 },
    };
    for (int i = 0; i < ARES_COUNT(more); i++)
        if (more[i].used) ares_json_write_double(ares_json_key(s, more[i].key), more[i].value);
    if (r->kind == ARES_ROPE_YARN && !r->truncate) put_bool(s, "truncate", false);
}

/* One rope in the older form, two in the newer one, which transformers writes for them. */
static void write_rope(ares_str *s, const ares_model_config *c, const model_arch *a)
{
    const ares_rope_config *const both[] = { &c->rope, &c->rope_local };
    if (a->local_theta > 0) {
        ares_json_begin(ares_json_key(s, "rope_parameters"), '{');
        for (int i = 0; i < ARES_COUNT(both); i++) {
            ares_json_begin(ares_json_key(s, i ? "sliding_attention" : "full_attention"), '{');
            ares_json_write_double(ares_json_key(s, "rope_theta"), both[i]->theta);
            write_rope_members(s, both[i]);
            ares_json_end(s, '}');
        }
        ares_json_end(s, '}');
        return;
    }
    ares_json_write_double(ares_json_key(s, "rope_theta"), c->rope.theta);
    if (c->rope.kind == ARES_ROPE_DEFAULT) {
        ares_json_write_null(ares_json_key(s, "rope_scaling"));
        return;
    }
    ares_json_begin(ares_json_key(s, "rope_scaling"), '{');
    write_rope_members(s, &c->rope);
    ares_json_end(s, '}');
}

static void write_architecture(ares_str *s, const ares_model_config *c, const model_arch *a)
{
    const char *causal = strstr(a->class_name, "ForCausalLM");
    bool value =
        c->value_head && causal; /* one label per token: AutoModelForTokenClassification opens it */
    ares_str name = { 0 };
    ares_str_addf(&name, "%.*s%s",
                  value ? (int)(causal - a->class_name) : (int)strlen(a->class_name), a->class_name,
                  value ? "ForTokenClassification" : "");
    ares_json_begin(ares_json_key(s, "architectures"), '[');
    ares_json_write_string(s, ares_str_view(&name));
    ares_json_end(s, ']');
    ares_str_fini(&name);
    if (value) {
        ares_json_begin(ares_json_key(s, "id2label"), '{');
        put_string(s, "0", "value");
        ares_json_end(s, '}');
        ares_json_begin(ares_json_key(s, "label2id"), '{');
        put_i64(s, "value", 0);
        ares_json_end(s, '}');
    }
    put_string(s, "model_type", c->model_type);
}

/* The window, and the kinds of layers where they follow from nothing else. */
static void write_layers(ares_str *s, const ares_model_config *c, const model_arch *a)
{
    if (a->window_asked) put_bool(s, "use_sliding_window", c->window);
    if (a->slides && c->window) put_i64(s, "sliding_window", c->window);
    else if (a->slides && !a->window_asked)
        ares_json_write_null(ares_json_key(s, "sliding_window"));
    if (a->slides == SLIDES_PERIOD || (a->slides > SLIDES_ALL && c->window)) {
        ares_json_begin(ares_json_key(s, "layer_types"), '[');
        for (int32_t i = 0; i < c->layers; i++)
            ares_json_write_string(s, c->layer[i] & (ARES_LAYER_WINDOW | ARES_LAYER_LOCAL_ROPE)
                                          ? ARES_VIEW("sliding_attention")
                                          : ARES_VIEW("full_attention"));
        ares_json_end(s, ']');
    }
    if (a->no_rope_interval) {
        ares_json_begin(ares_json_key(s, "no_rope_layers"), '[');
        for (int32_t i = 0; i < c->layers; i++)
            ares_json_write_i64(s, !(c->layer[i] & ARES_LAYER_NO_ROPE));
        ares_json_end(s, ']');
    }
}

static void write_experts(ares_str *s, const ares_model_config *c, const model_arch *a)
{
    if (!a->experts) return;
    put_i64(s, "num_experts", c->experts);
    put_i64(s, "num_experts_per_tok", c->experts_used);
    put_bool(s, "norm_topk_prob", c->experts_norm);
    if (a->expert_width) put_i64(s, "moe_intermediate_size", c->expert_width);
    if (!a->some_layers) return;
    put_i64(s, "decoder_sparse_step", 1);
    ares_json_begin(ares_json_key(s, "mlp_only_layers"), '[');
    for (int32_t i = 0; i < c->layers; i++)
        if (!(c->layer[i] & ARES_LAYER_EXPERTS)) ares_json_write_i64(s, i);
    ares_json_end(s, ']');
}

/* Delta nets, kinds of layers, and the rotation, in the form that transformers writes. */
static void write_nets(ares_str *s, const ares_model_config *c)
{
    put_i64(s, "linear_num_key_heads", c->net.k_heads);
    put_i64(s, "linear_num_value_heads", c->net.v_heads);
    put_i64(s, "linear_key_head_dim", c->net.k_dim);
    put_i64(s, "linear_value_head_dim", c->net.v_dim);
    put_i64(s, "linear_conv_kernel_dim", c->net.kernel);
    ares_json_begin(ares_json_key(s, "layer_types"), '[');
    for (int32_t i = 0; i < c->layers; i++)
        ares_json_write_string(s, model_has_net(c, i) ? ARES_VIEW("linear_attention")
                                                      : ARES_VIEW("full_attention"));
    ares_json_end(s, ']');
    ares_json_begin(ares_json_key(s, "rope_parameters"), '{');
    write_rope_members(s, &c->rope);
    ares_json_write_double(ares_json_key(s, "rope_theta"), c->rope.theta);
    ares_json_write_double(ares_json_key(s, "partial_rotary_factor"),
                           (double)c->turned / c->head_dim);
    ares_json_end(s, '}');
    put_bool(s, "attn_output_gate", true);
    put_string(s, "mamba_ssm_dtype", "float32");
}

/* One id as a number, several as a list; none is null where a missing key would mean one. */
static void write_eos(ares_str *s, const ares_model_config *c)
{
    const model_arch *a = model_arch_find(c->model_type);
    if (!c->n_eos && a->eos >= 0) ares_json_write_null(ares_json_key(s, "eos_token_id"));
    if (c->n_eos == 1) put_i64(s, "eos_token_id", c->eos[0]);
    if (c->n_eos <= 1) return;
    ares_json_begin(ares_json_key(s, "eos_token_id"), '[');
    for (int i = 0; i < c->n_eos; i++) ares_json_write_i64(s, c->eos[i]);
    ares_json_end(s, ']');
}

static void write_token_ids(ares_str *s, const ares_model_config *c)
{
    const model_arch *a = model_arch_find(c->model_type);
    const struct {
        const char *key;
        int32_t id, absent;
    } ids[] = { { "bos_token_id", c->bos, a->bos }, { "pad_token_id", c->pad, a->pad } };
    for (int i = 0; i < ARES_COUNT(ids); i++)
        if (ids[i].id >= 0) put_i64(s, ids[i].key, ids[i].id);
        else if (ids[i].absent >= 0) ares_json_write_null(ares_json_key(s, ids[i].key));
    write_eos(s, c);
}

static int write_indented(const ares_str *compact, const char *path)
{
    ares_str s = { 0 };
    ares_json_indent(&s, ares_str_view(compact), 1);
    ares_str_add_char(&s, '\n');
    int rc = ares_file_write(path, s.data, s.len);
    ares_str_fini(&s);
    return rc;
}

int ares_model_save_eos(const ares_model *m, const char *dir)
{
    ares_model_config named = { .vocab = m->cfg.vocab };
    ares_arena arena = { 0 };
    ares_str path = { 0 }, text = { 0 }, out = { 0 };
    config_reader r = { 0 };
    ares_path_join(&path, dir, "generation_config.json");
    bool exists = ares_file_exists(path.data), same = true;
    /* without it, transformers reads config.json, which names all but in a vision model */
    if (!exists && !m->cfg.vision.depth && !m->cfg.wrapped) goto end;
    if (exists) r.rc = ares_file_read(path.data, &text);
    if (exists && r.rc == ARES_OK)
        r.rc = ares_json_parse(&arena, ares_str_view(&text), path.data, &r.root);
    if (exists && r.rc == ARES_OK) read_eos(&r, r.root, &named);
    for (int i = 0; i < m->cfg.n_eos; i++) same = same && ares_model_ends(&named, m->cfg.eos[i]);
    if (same || r.rc != ARES_OK) goto end;
    ares_json_begin(&out, '{');
    for (int64_t i = 0; exists && i < r.root->count; i++)
        if (!ares_view_is(r.root->members[i].key, "eos_token_id"))
            ares_json_write(ares_json_key_view(&out, r.root->members[i].key),
                            r.root->members[i].value);
    if (exists) write_eos(&out, &m->cfg);
    else write_token_ids(&out, &m->cfg);
    ares_json_end(&out, '}');
    r.rc = write_indented(&out, path.data);
end:
    ares_str_fini(&path);
    ares_str_fini(&text);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
    return r.rc;
}

int model_config_save(const ares_model_config *c, const char *dir)
{
    const model_arch *a = model_arch_find(c->model_type);
    if (!a) return ARES_EUNSUPPORTED;
    ares_str compact = { 0 }, *j = &compact, path = { 0 };
    ares_json_begin(j, '{');
    write_architecture(j, c, a);
    put_i64(j, "vocab_size", c->vocab);
    put_i64(j, "hidden_size", c->hidden);
    put_i64(j, "intermediate_size", c->intermediate);
    put_i64(j, "num_hidden_layers", c->layers);
    put_i64(j, "num_attention_heads", c->heads);
    put_i64(j, "num_key_value_heads", c->kv_heads);
    put_i64(j, "head_dim", c->head_dim);
    put_string(j, a->activation_key ? a->activation_key : "hidden_act",
               a->activation_name ? a->activation_name : "silu");
    if (a->attention_scalar > 0) { /* an integer in published files, which transformers asks for */
        double scalar = 1.0 / ((double)c->attention_scale * (double)c->attention_scale);
        put_i64(j, "query_pre_attn_scalar", (int64_t)(scalar + 0.5));
    }
    put_i64(j, "max_position_embeddings", c->max_position);
    ares_json_write_float(ares_json_key(j, "rms_norm_eps"), c->rms_norm_eps);
    ares_json_write_double(ares_json_key(j, "initializer_range"), c->initializer_range);
    put_bool(j, "tie_word_embeddings", c->tied);
    if (a->attention_bias_key) put_bool(j, "attention_bias", c->o_bias);
    if (a->mlp_bias_key) put_bool(j, "mlp_bias", c->mlp_bias);
    if (a->nets) write_nets(j, c);
    else write_layers(j, c, a);
    write_experts(j, c, a);
    if (!a->nets) write_rope(j, c, a);
    write_token_ids(j, c);
    put_string(j, "torch_dtype", file_dtypes[c->file_dtype]);
    put_bool(j, "use_cache", true);
    ares_json_end(j, '}');
    int rc = write_indented(j, ares_path_join(&path, dir, "config.json"));
    ares_str_fini(&compact);
    ares_str_fini(&path);
    return rc;
}

/*
 * config.json as it was read. Where the model differs from what it says, by a head of its own or
 * one for values, by the type of weights, by its positions, or by the tokenizer's end token, these
 * members are written anew; never those of a vision model.
 */
int model_config_keep(const ares_model *m, const char *dir)
{
    static const char *const anew[] = {
        "architectures",       "id2label",     "label2id",
        "model_type",          "eos_token_id", "dtype",
        "tie_word_embeddings", "torch_dtype",  "max_position_embeddings"
    };
    const ares_model_config *c = &m->cfg;
    const model_arch *a = model_arch_find(c->model_type);
    int64_t positions = a->max_position;
    ares_model_config was = { .vocab = c->vocab };
    ares_arena arena = { 0 };
    ares_str path = { 0 }, out = { 0 };
    config_reader r = { 0 };
    ares_path_join(&path, dir, "config.json");
    r.rc = ares_json_parse(&arena, ares_view_of(m->config_text), path.data, &r.root);
    if (r.rc == ARES_OK) read_eos(&r, r.root, &was);
    if (r.rc == ARES_OK)
        r.rc = ares_json_get_i64(r.root, "max_position_embeddings", positions, &positions);
    const ares_json *dtype = ares_json_get(r.root, "dtype");
    if (!dtype) dtype = ares_json_get(r.root, "torch_dtype");
    bool typed = dtype && dtype->type == ARES_JSON_STRING;
    bool same =
        !c->value_head && c->max_position == positions &&
        c->tied == get_bool(&r, "tie_word_embeddings", a->tied) &&
        (typed ? ares_view_is(dtype->text, file_dtypes[c->file_dtype]) : c->file_dtype == ARES_F32);
    for (int i = 0; i < c->n_eos; i++) same = same && ares_model_ends(&was, c->eos[i]);
    if (r.rc == ARES_OK && (same || c->vision.depth || c->wrapped))
        r.rc = ares_file_write(path.data, m->config_text, strlen(m->config_text));
    else if (r.rc == ARES_OK) {
        ares_json_begin(&out, '{');
        write_architecture(&out, c, a);
        for (int64_t i = 0; i < r.root->count; i++) {
            int k = 0;
            while (k < ARES_COUNT(anew) && !ares_view_is(r.root->members[i].key, anew[k])) k++;
            if (k == ARES_COUNT(anew))
                ares_json_write(ares_json_key_view(&out, r.root->members[i].key),
                                r.root->members[i].value);
        }
        put_i64(&out, "max_position_embeddings", c->max_position);
        put_bool(&out, "tie_word_embeddings", c->tied);
        write_eos(&out, c);
        put_string(&out, "torch_dtype", file_dtypes[c->file_dtype]);
        ares_json_end(&out, '}');
        r.rc = write_indented(&out, path.data);
    }
    ares_str_fini(&path);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
    return r.rc;
}

/* A model directory's rules for pictures, of its config.json and its processor's files. */

int ares_media_rules_load(const ares_model_config *cfg, const char *dir, ares_media_rules *out)
{
    const ares_vision_config *v = &cfg->vision;
    ARES_ASSERT(v->depth);
    *out = (ares_media_rules){ .image_token = v->image_token,
                               .video_token = v->video_token,
                               .tokens_per_second = v->tokens_per_second };
    ARES_TRY(ares_processor_load(dir, &out->processor));
    const ares_processor *p = &out->processor;
    if (v->channels != ARES_COUNT(p->mean))
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: %s: vision_config.in_channels = %d; pictures are read with %d",
                         dir, v->channels, ARES_COUNT(p->mean));
    if (p->patch == v->patch && p->merge == v->merge && p->temporal == v->temporal) return ARES_OK;
    return ares_fail(
        ARES_EFORMAT,
        "model: %s: the processor has patches of %d x %d pixels and %d frames, %d x %d "
        "of them a token; config.json has %d, %d and %d; they do not belong together",
        dir, p->patch, p->patch, p->temporal, p->merge, p->merge, v->patch, v->temporal, v->merge);
}

/*
 * How generation_config.json asks to sample. Its end tokens are followed (above); the rest is
 * not: a run samples as its options say, and whoever copies them from a model card must know that
 * the file adds nothing.
 */

/* Words that change what is sampled, and the value with which they do not; NaN: none but null. */
static const struct {
    const char *word;
    double neutral;
} words[] = {
    { "temperature", 1 },
    { "top_p", 1 },
    { "top_k", 0 },
    { "min_p", 0 },
    { "typical_p", 1 },
    { "epsilon_cutoff", 0 },
    { "eta_cutoff", 0 },
    { "repetition_penalty", 1 },
    { "encoder_repetition_penalty", 1 },
    { "no_repeat_ngram_size", 0 },
    { "encoder_no_repeat_ngram_size", 0 },
    { "penalty_alpha", 0 },
    { "guidance_scale", 1 },
    { "num_beams", 1 },
    { "diversity_penalty", 0 },
    { "min_length", 0 },
    { "min_new_tokens", 0 },
    { "exponential_decay_length_penalty", NAN },
    { "bad_words_ids", NAN },
    { "force_words_ids", NAN },
    { "suppress_tokens", NAN },
    { "begin_suppress_tokens", NAN },
    { "forced_bos_token_id", NAN },
    { "forced_eos_token_id", NAN },
    { "sequence_bias", NAN },
    { "stop_strings", NAN },
    { "watermarking_config", NAN },
};
int ares_model_tell_sampling(const char *dir, const ares_sampling_word *own, int n)
{
    enum { SHOWN = 40 }; /* characters of a value */
    ares_arena arena = { 0 };
    ares_str path = { 0 }, text = { 0 }, told = { 0 };
    const ares_json *root;
    int rc = ARES_OK;
    if (ares_file_exists(ares_path_join(&path, dir, "generation_config.json"))) {
        rc = ares_file_read(path.data, &text);
        if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), path.data, &root);
        for (int i = 0; rc == ARES_OK && i < ARES_COUNT(words); i++) {
            const ares_json *v = ares_json_get(root, words[i].word);
            const ares_sampling_word *as = NULL;
            for (int k = 0; k < n; k++)
                if (ares_view_eq(ares_view_of(own[k].word), ares_view_of(words[i].word)))
                    as = &own[k];
            if (!v || v->type == ARES_JSON_NULL) continue;
            bool list = v->type == ARES_JSON_ARRAY || v->type == ARES_JSON_OBJECT,
                 number = v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT;
            /* an empty list and the neutral number ask for nothing */
            if (list ? v->count == 0 : number && v->number == words[i].neutral) continue;
            if (as && v->type != ARES_JSON_STRING && v->number == as->value) continue;
            ares_str value = { 0 };
            ares_json_write(&value, v);
            ares_str_addf(&told, "%s%s = %.*s%s (", told.len ? ", " : "", words[i].word,
                          (int)ARES_MIN(value.len, SHOWN), value.data,
                          value.len > SHOWN ? ".." : "");
            if (as) ares_str_addf(&told, "%s = %g)", as->option, as->value);
            else ares_str_add_z(&told, "nothing here does that)");
            ares_str_fini(&value);
        }
        if (told.len) ares_info("model: %s: not followed: %s", path.data, told.data);
    }
    ares_str_fini(&told);
    ares_str_fini(&text);
    ares_str_fini(&path);
    ares_arena_fini(&arena);
    return rc;
}
