/* What a fresh vision model has beside a text model: tokens, template, tower, processor. */
#include "init.h"

#include <string.h>

enum { MERGE = 2, TEMPORAL = 2, WINDOW_TOKENS = 4 };

const char *const init_vision_tokens[INIT_VISION_TOKENS] = { "<|vision_start|>", "<|vision_end|>",
                                                             "<|image_pad|>", "<|video_pad|>" };
static const char *const token_keys[INIT_VISION_TOKENS] = { "vision_start_token_id",
                                                            "vision_end_token_id", "image_token_id",
                                                            "video_token_id" };

const char init_vision_template[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% elif part['type'] == 'video' or 'video' in part %}"
    "{{ '<|vision_start|><|video_pad|><|vision_end|>' }}"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

int init_vision_check(const init_vision *v, int64_t head_dim)
{
    if (v->width % v->heads || v->width / v->heads % 4)
        return ares_fail(ARES_EUSE,
                         "init: --vision-width = %lld and --vision-heads = %lld: the width of a "
                         "head must be a multiple of 4",
                         (long long)v->width, (long long)v->heads);
    if (head_dim % 8)
        return ares_fail(ARES_EUSE,
                         "init: heads of %lld numbers: positions of a vision model divide them in "
                         "eighths; set --hidden and --heads for a multiple of 8",
                         (long long)head_dim);
    return ARES_OK;
}

static void number(ares_str *s, const char *key, int64_t x)
{
    ares_json_write_i64(ares_json_key(s, key), x);
}

static void add_tower(const init_vision *v, int64_t hidden, ares_str *s)
{
    ares_json_begin(ares_json_key(s, "vision_config"), '{');
    number(s, "depth", v->depth);
    number(s, v->gated ? "hidden_size" : "embed_dim", v->width);
    number(s, v->gated ? "out_hidden_size" : "hidden_size", hidden);
    number(s, "num_heads", v->heads);
    number(s, "in_channels", 3);
    number(s, "patch_size", v->patch);
    number(s, "spatial_merge_size", MERGE);
    number(s, "temporal_patch_size", TEMPORAL);
    if (v->gated) {
        number(s, "intermediate_size", 3 * v->width);
        number(s, "window_size", WINDOW_TOKENS * MERGE * v->patch);
        number(s, "tokens_per_second", 2);
        ares_json_begin(ares_json_key(s, "fullatt_block_indexes"), '[');
        ares_json_write_i64(s, v->depth - 1);
        ares_json_end(s, ']');
    } else number(s, "mlp_ratio", 4);
    ares_json_write_string(ares_json_key(s, "hidden_act"),
                           ares_view_of(v->gated ? "silu" : "quick_gelu"));
    ares_json_end(s, '}');
}

/* A quarter of the angles turns by time, three eighths each by row and column, as in Qwen's. */
void init_vision_config(const init_vision *v, const init_text *text, ares_str *s)
{
    int64_t half = text->head_dim / 2, space = half * 3 / 8,
            sections[] = { half - 2 * space, space, space };
    bool bf16 = strcmp(text->dtype, "bf16") == 0;
    ares_json_begin(ares_json_key(s, "architectures"), '[');
    ares_json_write_string(s, v->gated ? ARES_VIEW("Qwen2_5_VLForConditionalGeneration")
                                       : ARES_VIEW("Qwen2VLForConditionalGeneration"));
    ares_json_end(s, ']');
    ares_json_write_string(ares_json_key(s, "torch_dtype"),
                           bf16 ? ARES_VIEW("bfloat16") : ARES_VIEW("float32"));
    ares_json_write_string(ares_json_key(s, "hidden_act"), ARES_VIEW("silu"));
    ares_json_write_bool(ares_json_key(s, "use_sliding_window"), false);
    ares_json_write_double(ares_json_key(s, "rms_norm_eps"), 1e-6);
    ares_json_write_double(ares_json_key(s, "rope_theta"), text->rope_theta);
    ares_json_begin(ares_json_key(s, "rope_scaling"), '{');
    ares_json_write_string(ares_json_key(s, "type"), ARES_VIEW("mrope"));
    ares_json_begin(ares_json_key(s, "mrope_section"), '[');
    for (int i = 0; i < ARES_COUNT(sections); i++) ares_json_write_i64(s, sections[i]);
    ares_json_end(s, ']');
    ares_json_end(s, '}');
    for (int i = 0; i < INIT_VISION_TOKENS; i++) number(s, token_keys[i], text->token[i]);
    add_tower(v, text->hidden, s);
}

void init_vision_processor(const init_vision *v, ares_str *s)
{
    static const double mean[] = { 0.48145466, 0.4578275, 0.40821073 },
                        std[] = { 0.26862954, 0.26130258, 0.27577711 };
    int64_t token = (int64_t)MERGE * v->patch;
    ares_json_begin(s, '{');
    number(s, "min_pixels", token * token);
    number(s, "max_pixels", 1024 * token * token);
    number(s, "patch_size", v->patch);
    number(s, "merge_size", MERGE);
    number(s, "temporal_patch_size", TEMPORAL);
    ares_json_begin(ares_json_key(s, "image_mean"), '[');
    for (int i = 0; i < ARES_COUNT(mean); i++) ares_json_write_double(s, mean[i]);
    ares_json_end(s, ']');
    ares_json_begin(ares_json_key(s, "image_std"), '[');
    for (int i = 0; i < ARES_COUNT(std); i++) ares_json_write_double(s, std[i]);
    ares_json_end(s, ']');
    number(s, "resample", 3);
    ares_json_write_string(ares_json_key(s, "image_processor_type"),
                           ARES_VIEW("Qwen2VLImageProcessor"));
    ares_json_write_string(ares_json_key(s, "processor_class"),
                           v->gated ? ARES_VIEW("Qwen2_5_VLProcessor")
                                    : ARES_VIEW("Qwen2VLProcessor"));
    ares_json_end(s, '}');
}
