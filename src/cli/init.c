/*
 * ares-train init: a new model directory with random weights, which transformers can open too. The
 * options become a config.json, which is then read and checked like any other, so that the meaning
 * of an architecture stays in one place. What only a vision model has stands first.
 */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ares/core.h"
#include "ares/train.h"

/* What --vision-layers, --vision-width, --vision-heads and --vision-patch say of the tower. */
typedef struct vision_options {
    bool gated; /* Qwen2.5-VL's tower; otherwise Qwen2-VL's */
    int64_t depth, width, heads, patch;
} vision_options;

/* Special tokens of a vision model, whose ids config.json names under token_keys. */
enum { VISION_TOKENS = 4 };
static const char *const vision_tokens[VISION_TOKENS] = { "<|vision_start|>", "<|vision_end|>",
                                                          "<|image_pad|>", "<|video_pad|>" };
static const char *const token_keys[VISION_TOKENS] = { "vision_start_token_id",
                                                       "vision_end_token_id", "image_token_id",
                                                       "video_token_id" };

/* The options of the command, and what was found out for config.json. */
typedef struct job {
    const char *arch, *out, *dtype, *tokenizer;
    const char *layer_types; /* NULL: as the architecture has them */
    int64_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocab, max_position, seed;
    int64_t window; /* -1: the architecture's own */
    int64_t experts, experts_used, expert_width;
    int64_t net_k_heads, net_v_heads, net_head_dim; /* of delta nets; 0: as of attention */
    double rope_theta, range;
    bool tied, untied, sees; /* sees: the architecture has a vision tower */
    vision_options vision;
    int32_t vision_token[VISION_TOKENS]; /* ids */
    ares_str dir;                        /* being written; renamed to `out` when it is whole */
    int32_t bos, eos, pad, tokens; /* of the tokenizer: ids (-1: none), and how many ids it has */
} job;

/* Patches of a side that become one token, frames of a patch, tokens of a side of a window. */
enum { MERGE = 2, TEMPORAL = 2, WINDOW_TOKENS = 4 };

/* A template of ChatML whose messages have text, or parts of text, images and videos. */
static const char vision_template[] =
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

/* Members of the object that is open. */
static void add_text(ares_str *s, const char *key, const char *text)
{
    ares_json_write_string(ares_json_key(s, key), ares_view_of(text));
}
static void add_flag(ares_str *s, const char *key, bool x)
{
    ares_json_write_bool(ares_json_key(s, key), x);
}
static void add_null(ares_str *s, const char *key)
{
    ares_json_write_null(ares_json_key(s, key));
}
static void add_number(ares_str *s, const char *key, int64_t x)
{
    ares_json_write_i64(ares_json_key(s, key), x);
}

/* --head-dim, or the residual stream's width divided among the heads. */
static int64_t head_dim_of(const job *j)
{
    return j->head_dim ? j->head_dim : j->hidden / j->heads;
}

/*
 * Members of config.json. In rotary embeddings a quarter of the angles turns by time, and three
 * eighths each by row and column, as in Qwen's files.
 */
static void add_vision_config(const job *j, ares_str *s)
{
    const vision_options *v = &j->vision;
    /* pairs of numbers that turn together; space: those of a row or a column */
    int64_t half = head_dim_of(j) / 2, space = half * 3 / 8,
            sections[] = { half - 2 * space, space, space };
    bool bf16 = strcmp(j->dtype, "bf16") == 0;
    /* the class that transformers opens the directory with */
    ares_json_begin(ares_json_key(s, "architectures"), '[');
    ares_json_write_string(s, v->gated ? ARES_VIEW("Qwen2_5_VLForConditionalGeneration")
                                       : ARES_VIEW("Qwen2VLForConditionalGeneration"));
    ares_json_end(s, ']');
    ares_json_write_string(ares_json_key(s, "torch_dtype"),
                           bf16 ? ARES_VIEW("bfloat16") : ARES_VIEW("float32"));
    ares_json_write_string(ares_json_key(s, "hidden_act"), ARES_VIEW("silu"));
    ares_json_write_bool(ares_json_key(s, "use_sliding_window"), false);
    ares_json_write_double(ares_json_key(s, "rms_norm_eps"), 1e-6);
    ares_json_write_double(ares_json_key(s, "rope_theta"), j->rope_theta);
    ares_json_begin(ares_json_key(s, "rope_scaling"), '{');
    ares_json_write_string(ares_json_key(s, "type"), ARES_VIEW("mrope"));
    ares_json_begin(ares_json_key(s, "mrope_section"), '[');
    for (int i = 0; i < ARES_COUNT(sections); i++) ares_json_write_i64(s, sections[i]);
    ares_json_end(s, ']');
    ares_json_end(s, '}');
    /* the ids by which a prompt shows where pictures stand */
    for (int i = 0; i < VISION_TOKENS; i++) add_number(s, token_keys[i], j->vision_token[i]);
    /* the tower; the two families name some of its members differently */
    ares_json_begin(ares_json_key(s, "vision_config"), '{');
    add_number(s, "depth", v->depth);
    add_number(s, v->gated ? "hidden_size" : "embed_dim", v->width);
    add_number(s, v->gated ? "out_hidden_size" : "hidden_size", j->hidden);
    add_number(s, "num_heads", v->heads);
    add_number(s, "in_channels", 3);
    add_number(s, "patch_size", v->patch);
    add_number(s, "spatial_merge_size", MERGE);
    add_number(s, "temporal_patch_size", TEMPORAL);
    if (v->gated) {
        add_number(s, "intermediate_size", 3 * v->width);
        add_number(s, "window_size", WINDOW_TOKENS * MERGE * v->patch);
        add_number(s, "tokens_per_second", 2);
        ares_json_begin(ares_json_key(s, "fullatt_block_indexes"), '[');
        ares_json_write_i64(s, v->depth - 1); /* the last block sees the whole picture */
        ares_json_end(s, ']');
    } else add_number(s, "mlp_ratio", 4);
    ares_json_write_string(ares_json_key(s, "hidden_act"),
                           ares_view_of(v->gated ? "silu" : "quick_gelu"));
    ares_json_end(s, '}');
}

/* Appends preprocessor_config.json. */
static void add_processor(const vision_options *v, ares_str *s)
{
    /* of the pictures that CLIP was trained on, as in Qwen's files */
    static const double mean[] = { 0.48145466, 0.4578275, 0.40821073 },
                        std[] = { 0.26862954, 0.26130258, 0.27577711 };
    /* pixels of a side of what becomes one token */
    int64_t token = (int64_t)MERGE * v->patch;
    ares_json_begin(s, '{');
    add_number(s, "min_pixels", token * token);
    add_number(s, "max_pixels", 1024 * token * token);
    add_number(s, "patch_size", v->patch);
    add_number(s, "merge_size", MERGE);
    add_number(s, "temporal_patch_size", TEMPORAL);
    ares_json_begin(ares_json_key(s, "image_mean"), '[');
    for (int i = 0; i < ARES_COUNT(mean); i++) ares_json_write_double(s, mean[i]);
    ares_json_end(s, ']');
    ares_json_begin(ares_json_key(s, "image_std"), '[');
    for (int i = 0; i < ARES_COUNT(std); i++) ares_json_write_double(s, std[i]);
    ares_json_end(s, ']');
    add_number(s, "resample", 3); /* bicubic, in PIL's numbering */
    ares_json_write_string(ares_json_key(s, "image_processor_type"),
                           ARES_VIEW("Qwen2VLImageProcessor"));
    ares_json_write_string(ares_json_key(s, "processor_class"),
                           v->gated ? ARES_VIEW("Qwen2_5_VLProcessor")
                                    : ARES_VIEW("Qwen2VLProcessor"));
    ares_json_end(s, '}');
}

/* ------------------------------------------------------------------ one token per byte */
/* ids of bytes; special tokens of every model */
enum { BYTES = 256, SPECIALS = 3 };
static const char *const specials[SPECIALS] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
/* Special tokens follow the bytes: 256 and on; those of images and videos last. */
static int n_specials(const job *j)
{
    return SPECIALS + (j->sees ? VISION_TOKENS : 0);
}
/* ChatML for messages of text */
static const char chat_template[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/* Members of a special token, and the end of its object. */
static void add_special(ares_str *s, int i)
{
    add_text(s, "content", i < SPECIALS ? specials[i] : vision_tokens[i - SPECIALS]);
    add_flag(s, "single_word", false);
    add_flag(s, "lstrip", false);
    add_flag(s, "rstrip", false);
    add_flag(s, "normalized", false);
    add_flag(s, "special", true);
    ares_json_end(s, '}');
}

/* The step that turns bytes into GPT-2's letters, or back where it is the decoder. */
static void add_byte_level(ares_str *s, const char *key)
{
    ares_json_begin(ares_json_key(s, key), '{');
    add_text(s, "type", "ByteLevel");
    add_flag(s, "add_prefix_space", false);
    add_flag(s, "trim_offsets", true);
    add_flag(s, "use_regex", false);
    ares_json_end(s, '}');
}

/* levels: objects and arrays down to this depth have a line for each item. */
static int write_json(const job *j, const char *name, const ares_str *json, int levels)
{
    ares_str path = { 0 }, text = { 0 };
    /* people read these files, too */
    ares_json_indent(&text, ares_str_view(json), levels);
    ares_str_add_char(&text, '\n');
    int rc = ares_file_write(ares_path_join(&path, j->dir.data, name), text.data, text.len);
    ares_str_fini(&text);
    ares_str_fini(&path);
    return rc;
}

/* tokenizer.json as the tokenizers library writes it, with every member that it expects. */
static int write_byte_tokenizer(const job *j)
{
    ares_str s = { 0 };
    ares_json_begin(&s, '{');
    add_text(&s, "version", "1.0");
    add_null(&s, "truncation");
    add_null(&s, "padding");
    ares_json_begin(ares_json_key(&s, "added_tokens"), '[');
    for (int i = 0; i < n_specials(j); i++) {
        ares_json_begin(&s, '{');
        add_number(&s, "id", BYTES + i);
        add_special(&s, i);
    }
    ares_json_end(&s, ']');
    add_null(&s, "normalizer");
    add_byte_level(&s, "pre_tokenizer");
    add_null(&s, "post_processor");
    add_byte_level(&s, "decoder");
    /* a byte-level BPE without merges: each byte stays a token of its own */
    ares_json_begin(ares_json_key(&s, "model"), '{');
    add_text(&s, "type", "BPE");
    add_null(&s, "dropout");
    add_null(&s, "unk_token");
    add_null(&s, "continuing_subword_prefix");
    add_null(&s, "end_of_word_suffix");
    add_flag(&s, "fuse_unk", false);
    add_flag(&s, "byte_fallback", false);
    add_flag(&s, "ignore_merges", false);
    ares_json_begin(ares_json_key(&s, "vocab"), '{');
    /* GPT-2's letter for a byte: itself where it prints, else the next code point from 256 on */
    for (int b = 0, next = BYTES; b < BYTES; b++) {
        bool prints = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        int code = prints ? b : next++; /* below 0x800: two bytes of UTF-8 at most */
        const char utf8[] = { (char)(code < 0x80 ? code : 0xc0 | code >> 6),
                              (char)(0x80 | (code & 0x3f)) };
        ares_json_write_i64(ares_json_key_view(&s, (ares_view){ utf8, code < 0x80 ? 1 : 2 }), b);
    }
    ares_json_end(&s, '}');
    ares_json_begin(ares_json_key(&s, "merges"), '[');
    ares_json_end(&s, ']');
    ares_json_end(&s, '}');
    ares_json_end(&s, '}');
    int rc = write_json(j, "tokenizer.json", &s, 2);
    ares_str_fini(&s);
    return rc;
}

/* tokenizer_config.json: the special tokens by id, their roles, the chat template. */
static int write_byte_tokenizer_config(const job *j)
{
    ares_str s = { 0 };
    char id[16];
    ares_json_begin(&s, '{');
    ares_json_begin(ares_json_key(&s, "added_tokens_decoder"), '{');
    for (int i = 0; i < n_specials(j); i++) {
        snprintf(id, sizeof id, "%d", BYTES + i);
        ares_json_begin(ares_json_key(&s, id), '{');
        add_special(&s, i);
    }
    ares_json_end(&s, '}');
    add_flag(&s, "add_prefix_space", false);
    add_null(&s, "bos_token");
    /* an answer ends with <|im_end|>; rows are padded with <|endoftext|> */
    add_text(&s, "eos_token", specials[2]);
    add_text(&s, "pad_token", specials[0]);
    add_null(&s, "unk_token");
    add_flag(&s, "clean_up_tokenization_spaces", false);
    add_number(&s, "model_max_length", j->max_position);
    add_text(&s, "tokenizer_class", "PreTrainedTokenizerFast");
    add_text(&s, "chat_template", j->sees ? vision_template : chat_template);
    ares_json_end(&s, '}');
    int rc = write_json(j, "tokenizer_config.json", &s, 2);
    ares_str_fini(&s);
    return rc;
}

/* Looks up the ids of the tokens that stand for images and videos. */
static int find_vision_tokens(job *j, const ares_tokenizer *t)
{
    for (int i = 0; i < VISION_TOKENS && j->sees; i++) {
        ares_ids ids = { 0 };
        int rc = ares_tokenizer_encode(t, ares_view_of(vision_tokens[i]), false, &ids);
        int64_t n = ids.n;
        j->vision_token[i] = n == 1 ? ids.ids[0] : -1;
        ares_ids_fini(&ids);
        ARES_TRY(rc);
        if (n != 1)
            return ares_fail(ARES_EUSE,
                             "init: --tokenizer = '%s': '%s' is no token of it, which a %s needs; "
                             "name a vision model's directory, or chars",
                             j->tokenizer, vision_tokens[i], j->arch);
    }
    return ARES_OK;
}

/* The tokenizer's files, and what config.json must know of them. */
static int put_tokenizer(job *j)
{
    ares_tokenizer *t;
    int rc;
    /* chars: one token per byte, written here; else the files of another model */
    if (strcmp(j->tokenizer, "chars") == 0) {
        rc = write_byte_tokenizer(j);
        if (rc == ARES_OK) rc = write_byte_tokenizer_config(j);
    } else if (!ares_dir_exists(j->tokenizer))
        rc = ares_fail(
            ARES_EUSE,
            "init: --tokenizer = '%s': no such directory; name one with a tokenizer.json, or chars",
            j->tokenizer);
    else rc = ares_train_copy_tokenizer(j->tokenizer, j->dir.data);
    ARES_TRY(rc);
    ARES_TRY(ares_tokenizer_load(j->dir.data, &t));
    j->bos = ares_tokenizer_role_id(t, ARES_TOKEN_BOS);
    j->eos = ares_tokenizer_role_id(t, ARES_TOKEN_EOS);
    j->pad = ares_tokenizer_role_id(t, ARES_TOKEN_PAD);
    j->tokens = (int32_t)ares_tokenizer_vocab_size(t);
    rc = find_vision_tokens(j, t);
    ares_tokenizer_free(t);
    ARES_TRY(rc);
    if (j->bos < 0) j->bos = j->pad; /* as Qwen's files name <|endoftext|> */
    /* a multiple of 64, as matrix kernels like it */
    if (j->vocab == 0) j->vocab = ARES_MAX(512, (j->tokens + 63) / 64 * 64);
    if (j->vocab < j->tokens)
        return ares_fail(ARES_EUSE,
                         "init: --vocab = %lld: the tokenizer has ids up to %d; set %d or more",
                         (long long)j->vocab, j->tokens - 1, j->tokens);
    return ARES_OK;
}

/* ------------------------------------------------------------------ the model */
/* Roles that the tokenizer has no token for are left out. */
static void add_token_ids(const job *j, ares_str *s)
{
    if (j->bos >= 0) add_number(s, "bos_token_id", j->bos);
    if (j->eos >= 0) add_number(s, "eos_token_id", j->eos);
    if (j->pad >= 0) add_number(s, "pad_token_id", j->pad);
}

/* config.json, with the members that transformers needs to open it. */
static int put_config(const job *j)
{
    ares_str s = { 0 };
    ares_json_begin(&s, '{');
    add_text(&s, "model_type", j->arch);
    add_number(&s, "vocab_size", j->vocab);
    add_number(&s, "hidden_size", j->hidden);
    add_number(&s, "num_hidden_layers", j->layers);
    add_number(&s, "num_attention_heads", j->heads);
    add_number(&s, "num_key_value_heads", j->kv_heads);
    if (!j->sees) add_number(&s, "head_dim", head_dim_of(j));
    int64_t wide = j->intermediate ? j->intermediate : 3 * j->hidden,
            expert = j->expert_width ? j->expert_width : j->hidden;
    /* of an OLMoE it is the width inside an expert */
    add_number(&s, "intermediate_size", strcmp(j->arch, "olmoe") == 0 ? expert : wide);
    add_number(&s, "max_position_embeddings", j->max_position);
    add_flag(&s, "tie_word_embeddings", !j->untied);
    if (j->sees) add_vision_config(j, &s);
    else ares_json_write_double(ares_json_key(&s, "rope_theta"), j->rope_theta);
    if (!j->sees) { /* what only some architectures read */
        add_number(&s, "query_pre_attn_scalar", head_dim_of(j));
        add_number(&s, "moe_intermediate_size", expert);
        add_number(&s, "num_experts", j->experts ? j->experts : 8);
        add_number(&s, "num_experts_per_tok", j->experts_used ? j->experts_used : 2);
        add_flag(&s, "norm_topk_prob", true);
        int64_t net_dim = j->net_head_dim ? j->net_head_dim : head_dim_of(j);
        add_number(&s, "linear_num_key_heads", j->net_k_heads ? j->net_k_heads : j->kv_heads);
        add_number(&s, "linear_num_value_heads", j->net_v_heads ? j->net_v_heads : j->heads);
        add_number(&s, "linear_key_head_dim", net_dim);
        add_number(&s, "linear_value_head_dim", net_dim);
        if (j->layer_types) {
            ares_json_key(&s, "layer_types");
            ares_json_begin(&s, '[');
            for (const char *p = j->layer_types, *end; *p; p = *end ? end + 1 : end) {
                end = p + strcspn(p, ",");
                ares_json_write_string(&s, (ares_view){ p, (size_t)(end - p) });
            }
            ares_json_end(&s, ']');
        }
    }
    if (j->window > 0) add_number(&s, "sliding_window", j->window);
    if (j->window == 0) add_null(&s, "sliding_window");
    if (j->window > 0) add_flag(&s, "use_sliding_window", true); /* where it is asked for */
    if (j->window > 0) add_number(&s, "max_window_layers", 0);
    ares_json_write_double(ares_json_key(&s, "initializer_range"), j->range);
    add_token_ids(j, &s);
    ares_json_end(&s, '}');
    int rc = write_json(j, "config.json", &s, 0);
    ares_str_fini(&s);
    return rc;
}

/* What transformers needs beside a vision model's weights to read pictures. */
static int put_processor(const job *j)
{
    ares_str s = { 0 }, path = { 0 };
    int rc = ARES_OK;
    /* unless it came with the tokenizer's files */
    if (!ares_file_exists(ares_path_join(&path, j->dir.data, "preprocessor_config.json"))) {
        add_processor(&j->vision, &s);
        rc = write_json(j, "preprocessor_config.json", &s, 0);
    }
    if (rc == ARES_OK && strcmp(j->tokenizer, "chars") == 0) {
        /* transformers takes a processor's template from here, not from the tokenizer's file */
        ares_str_clear(&s);
        ares_json_begin(&s, '{');
        add_text(&s, "chat_template", vision_template);
        ares_json_end(&s, '}');
        rc = write_json(j, "chat_template.json", &s, 2);
    }
    ares_str_fini(&s);
    ares_str_fini(&path);
    return rc;
}

/* Draws the weights for config.json, which was just written, and saves them. */
static int put_model(const job *j, int64_t *parameters)
{
    ares_model_config c;
    ares_device d;
    ares_model *m;
    ares_model_options opt = { .storage = strcmp(j->dtype, "bf16") == 0 ? ARES_BF16 : ARES_F32 };
    ARES_TRY(ares_model_config_load(j->dir.data, &c));
    if (j->window > 0 && !c.window)
        return ares_fail(ARES_EUSE, "init: --window = %lld: no layer of this %s has a window%s",
                         (long long)j->window, j->arch,
                         j->layers < 4 ? "; set --layers to 4 or more, or leave it out" : "");
    if ((j->net_k_heads || j->net_v_heads || j->net_head_dim) && !c.net.v_heads)
        return ares_fail(
            ARES_EUSE,
            "init: --linear-key-heads, --linear-value-heads, --linear-head-dim: a %s has "
            "no delta nets; take qwen3_5_text, or leave them out",
            j->arch);
    if ((j->experts || j->experts_used || j->expert_width) && !c.experts)
        return ares_fail(ARES_EUSE,
                         "init: --experts, --experts-per-token, --expert-width: a %s has no "
                         "experts; take qwen3_moe or olmoe, or leave them out",
                         j->arch);
    ARES_TRY(ares_device_open("cpu", 0, &d));
    int rc = ares_model_new(&c, &d, &opt, (uint64_t)j->seed, &m);
    if (rc == ARES_OK) {
        if (j->sees) { /* a vision model's config.json is saved as it was written */
            ares_str path = { 0 }, text = { 0 };
            rc = ares_file_read(ares_path_join(&path, j->dir.data, "config.json"), &text);
            if (rc == ARES_OK) m->config_text = ares_strdup(text.data);
            ares_str_fini(&path);
            ares_str_fini(&text);
        }
        if (rc == ARES_OK) rc = ares_model_save(m, j->dir.data, NULL, NULL);
        *parameters = ares_params_count(&m->params);
        ares_model_free(m);
    }
    ares_device_close(&d);
    return rc;
}

/* Relations between options that no option's own range tells. */
static int check(const job *j)
{
    if (j->tied && j->untied)
        return ares_fail(ARES_EUSE, "init: --tied and --untied exclude each other");
    if (!(j->range > 0) || j->range > 10)
        return ares_fail(ARES_EUSE, "init: --initializer-range = %g: must lie in (0, 10]",
                         j->range);
    if (!j->head_dim && j->hidden % j->heads)
        return ares_fail(
            ARES_EUSE, "init: --hidden = %lld is no multiple of --heads = %lld; set --head-dim too",
            (long long)j->hidden, (long long)j->heads);
    /* each head of keys and values serves the same number of query heads */
    if (j->heads % j->kv_heads)
        return ares_fail(ARES_EUSE, "init: --heads = %lld is no multiple of --kv-heads = %lld",
                         (long long)j->heads, (long long)j->kv_heads);
    int64_t values = j->net_v_heads ? j->net_v_heads : j->heads,
            keys = j->net_k_heads ? j->net_k_heads : j->kv_heads;
    if (values % keys)
        return ares_fail(ARES_EUSE,
                         "init: a delta net's %lld value heads are no multiple of its %lld key "
                         "heads; set --linear-value-heads, or --linear-key-heads",
                         (long long)values, (long long)keys);
    if (head_dim_of(j) % 2)
        return ares_fail(ARES_EUSE, "init: --head-dim: must be even; rotary embeddings turn pairs");
    if (!j->sees) return ARES_OK;
    if (j->head_dim && j->head_dim * j->heads != j->hidden)
        return ares_fail(ARES_EUSE, "init: --head-dim: a %s has heads of hidden / heads", j->arch);
    const vision_options *v = &j->vision;
    if (v->width % v->heads || v->width / v->heads % 4)
        return ares_fail(ARES_EUSE,
                         "init: --vision-width = %lld and --vision-heads = %lld: the width of a "
                         "head must be a multiple of 4",
                         (long long)v->width, (long long)v->heads);
    if (head_dim_of(j) % 8)
        return ares_fail(ARES_EUSE,
                         "init: heads of %lld numbers: positions of a vision model divide them in "
                         "eighths; set --hidden and --heads for a multiple of 8",
                         (long long)head_dim_of(j));
    return ARES_OK;
}

/* Kinds of layers, which also say how many there are. */
static int check_layer_types(job *j)
{
    static const char *const kinds[] = { "linear_attention", "full_attention" };
    const char *p = j->layer_types;
    int64_t n = 0;
    if (!p) return ARES_OK;
    if (strcmp(j->arch, "qwen3_5_text") != 0)
        return ares_fail(ARES_EUSE,
                         "init: --layer-types: the layers of a %s are of the kinds that its "
                         "architecture has; leave it out, or take --arch qwen3_5_text",
                         j->arch);
    for (bool more = true; more; n++) {
        char kind[40];
        size_t length = strcspn(p, ",");
        int which;
        (void)snprintf(kind, sizeof kind, "%.*s", (int)length, p);
        ARES_TRY(ares_lookup(ARES_EUSE, "init: --layer-types", kind, kinds, 2, &which));
        more = p[length] == ',';
        p += length + more;
    }
    if (j->layers && j->layers != n)
        return ares_fail(ARES_EUSE,
                         "init: --layers = %lld, and --layer-types names %lld; leave --layers out",
                         (long long)j->layers, (long long)n);
    j->layers = n;
    return ARES_OK;
}

/* An existing directory must be empty; nothing is ever written over. */
static int check_free(const char *out)
{
    DIR *d = opendir(out);
    if (!d)
        return errno == ENOENT ? ARES_OK
                               : ares_fail(ARES_EIO, "init: %s: %s", out, strerror(errno));
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n ? ares_fail(ARES_EUSE,
                         "init: %s: the directory is not empty; name another, or empty it", out)
             : ARES_OK;
}

/* Writes the directory under another name and renames it when it is whole. */
static int make(job *j)
{
    int64_t parameters = 0;
    ares_str_add_z(&j->dir, j->out);
    while (j->dir.len > 1 && j->dir.data[j->dir.len - 1] == '/') j->dir.data[--j->dir.len] = 0;
    ares_str_add_z(&j->dir, ".partial"); /* what an earlier try left there is removed */
    int rc = ares_dir_remove(j->dir.data);
    if (rc == ARES_OK) rc = ares_dir_make(j->dir.data);
    /* first the tokenizer: config.json has its ids, and the model reads config.json */
    if (rc == ARES_OK) rc = put_tokenizer(j);
    if (rc == ARES_OK) rc = put_config(j);
    if (rc == ARES_OK) {
        /* with the token ids alone, unless the file came with the tokenizer's */
        ares_str s = { 0 }, path = { 0 };
        if (!ares_file_exists(ares_path_join(&path, j->dir.data, "generation_config.json"))) {
            ares_json_begin(&s, '{');
            add_token_ids(j, &s);
            ares_json_end(&s, '}');
            rc = write_json(j, "generation_config.json", &s, 0);
        }
        ares_str_fini(&s);
        ares_str_fini(&path);
    }
    if (rc == ARES_OK && j->sees) rc = put_processor(j);
    if (rc == ARES_OK) rc = put_model(j, &parameters);
    if (rc == ARES_OK && rename(j->dir.data, j->out) != 0)
        rc = ares_fail(ARES_EIO, "init: %s: %s", j->out, strerror(errno));
    if (rc == ARES_OK)
        printf("%s: %s with %lld parameters, %lld tokens\n", j->out, j->arch, (long long)parameters,
               (long long)j->vocab);
    else ares_dir_remove(j->dir.data);
    ares_str_fini(&j->dir);
    return rc;
}

int ares_cli_init(int argc, char **argv)
{
    job j = { .dtype = "fp32",
              .tokenizer = "chars",
              .hidden = 128,
              .heads = 4,
              .kv_heads = 2,
              .max_position = 2048,
              .window = -1,
              .vision = { .depth = 2, .width = 64, .heads = 4, .patch = 14 },
              .seed = 1,
              .rope_theta = 10000,
              .range = 0.02 };
    static const char *const archs[] = { "qwen2",     "qwen3", "llama",        "mistral",
                                         "smollm3",   "olmo2", "olmo3",        "gemma3_text",
                                         "qwen3_moe", "olmoe", "qwen3_5_text", "qwen2_vl",
                                         "qwen2_5_vl" };
#define SIZE(field, option, smallest, doc) \
    CLI_OPTION(I64, j.field, option, "N", doc, .least = smallest, .most = 1 << 24)
    const cli_option options[] = {
        CLI_OPTION(
            TEXT, j.arch, "--arch", "NAME",
            "architecture: qwen2, qwen3, llama, mistral, smollm3, olmo2, olmo3, gemma3_text, "
            "qwen3_moe, olmoe, qwen3_5_text; "
            "qwen2_vl and qwen2_5_vl see images and videos",
            .required = true, .offered = archs, .n_offered = ARES_COUNT(archs)),
        CLI_OPTION(TEXT, j.out, "--out", "DIR", "the directory to write", .required = true),
        SIZE(hidden, "--hidden", 1, "width of the residual stream"),
        SIZE(layers, "--layers", 1,
             "decoder layers; left out: 4, or one for each of --layer-types"),
        CLI_OPTION(TEXT, j.layer_types, "--layer-types", "A,B,...",
                   "of qwen3_5_text: linear_attention (a gated delta net) or full_attention for "
                   "each layer; left out: every fourth one is full_attention"),
        SIZE(heads, "--heads", 1, "attention heads"),
        SIZE(kv_heads, "--kv-heads", 1, "heads of keys and values"),
        SIZE(head_dim, "--head-dim", 0, "width of a head; 0: hidden / heads"),
        SIZE(intermediate, "--intermediate", 0, "width inside an MLP; 0: 3 x hidden"),
        SIZE(vocab, "--vocab", 0, "rows of the embedding; 0: 512, or what the tokenizer needs"),
        SIZE(max_position, "--max-position", 1, "tokens of a sequence at most"),
        CLI_OPTION(I64, j.window, "--window", "N",
                   "keys that a layer with a sliding window sees; 0: all; -1: as many as the "
                   "architecture has by itself, which may be no window",
                   .least = -1, .most = 1 << 24),
        SIZE(experts, "--experts", 0, "experts of a layer of qwen3_moe or olmoe; 0: 8"),
        SIZE(experts_used, "--experts-per-token", 0, "how many of them a token has; 0: 2"),
        SIZE(expert_width, "--expert-width", 0, "width inside an expert; 0: hidden"),
        SIZE(net_k_heads, "--linear-key-heads", 0,
             "key heads of a delta net of qwen3_5_text; 0: as --kv-heads"),
        SIZE(net_v_heads, "--linear-value-heads", 0,
             "its value heads, a multiple of its key heads; 0: as --heads"),
        SIZE(net_head_dim, "--linear-head-dim", 0, "width of both; 0: as --head-dim"),
        SIZE(vision.depth, "--vision-layers", 1, "blocks of a vision tower"),
        SIZE(vision.width, "--vision-width", 4, "its width"),
        SIZE(vision.heads, "--vision-heads", 1, "its attention heads"),
        SIZE(vision.patch, "--vision-patch", 1,
             "pixels of a side of its patches; 2 x 2 of them are a token"),
        CLI_OPTION(F64, j.rope_theta, "--rope-theta", "X", "base of the rotary embeddings"),
        CLI_OPTION(F64, j.range, "--initializer-range", "X",
                   "standard deviation of the weights; narrow models learn sooner from about "
                   "1 / sqrt(hidden)"),
        CLI_OPTION(FLAG, j.tied, "--tied", NULL, "one matrix for embedding and head (the default)"),
        CLI_OPTION(FLAG, j.untied, "--untied", NULL, "two matrices"),
        CLI_DTYPE(j.dtype),
        CLI_OPTION(I64, j.seed, "--seed", "N", "of the weights", .most = INT64_MAX),
        CLI_OPTION(TEXT, j.tokenizer, "--tokenizer", "DIR|chars",
                   "files to copy; chars: one token per byte with <|endoftext|>, <|im_start|>, "
                   "<|im_end|> and a ChatML template, of a vision model the tokens of images "
                   "and videos, too",
                   .offered = (const char *const[]){ "chars" }, .n_offered = 1),
    };
#undef SIZE
    const cli_command command = {
        .name = "init",
        .usage = "--arch NAME --out DIR [options]",
        .about = "Writes a model directory with random weights: config.json, model.safetensors, "
                 "tokenizer files.",
        .example = "ares-train init --arch qwen2 --out models/tiny --seed 1",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    bool helped;
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    /* what only --arch tells */
    j.vision.gated = strcmp(j.arch, "qwen2_5_vl") == 0;
    j.sees = j.vision.gated || strcmp(j.arch, "qwen2_vl") == 0;
    ARES_TRY(check_layer_types(&j));
    if (!j.layers) j.layers = 4;
    ARES_TRY(check(&j));
    ARES_TRY(check_free(j.out));
    return make(&j);
}
