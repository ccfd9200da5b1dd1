/*
 * A model directory as one GGUF file, which llama.cpp and what stands on it read (docs/export.md).
 * In order: the file's own forms; the tensors, their names and numbers; the tokenizer; writing.
 * The format is version 3 of ggml's.
 */
#include "adapter.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ares/text.h"

enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };
enum { GGML_F32 = 0, GGML_F16 = 1, GGML_Q8_0 = 8, GGML_BF16 = 30 };
enum { ALIGNMENT = 32, Q8_BLOCK = 32, Q8_BYTES = 34, MOST_NAME = 63 };

/* ---------------- the file's own forms, all little-endian like this program's machines */

static void put_u32(ares_str *s, uint32_t x)
{
    ares_str_add(s, (const char *)&x, sizeof x);
}
static void put_u64(ares_str *s, uint64_t x)
{
    ares_str_add(s, (const char *)&x, sizeof x);
}
static void put_text(ares_str *s, ares_view text)
{
    put_u64(s, text.len);
    ares_str_add_view(s, text);
}

/* The header's keys, as they are collected: "A.block_count" has the architecture for A. */
typedef struct key_list {
    ares_str bytes;
    uint64_t n;
    const char *arch;
} key_list;

static void put_key(key_list *k, const char *name, uint32_t type)
{
    char full[96];
    if (strncmp(name, "A.", 2) == 0) snprintf(full, sizeof full, "%s%s", k->arch, name + 1);
    else snprintf(full, sizeof full, "%s", name);
    put_text(&k->bytes, ares_view_of(full));
    put_u32(&k->bytes, type);
    k->n++;
}
static void key_u32(key_list *k, const char *name, int64_t x)
{
    put_key(k, name, GGUF_U32);
    put_u32(&k->bytes, (uint32_t)x);
}
static void key_f32(key_list *k, const char *name, double x)
{
    float f = (float)x;
    put_key(k, name, GGUF_F32);
    ares_str_add(&k->bytes, (const char *)&f, sizeof f);
}
static void key_bool(key_list *k, const char *name, bool x)
{
    put_key(k, name, GGUF_BOOL);
    ares_str_add_char(&k->bytes, (char)x);
}
static void key_text(key_list *k, const char *name, ares_view x)
{
    put_key(k, name, GGUF_STRING);
    put_text(&k->bytes, x);
}
static void key_array(key_list *k, const char *name, uint32_t type, int64_t n)
{
    put_key(k, name, GGUF_ARRAY);
    put_u32(&k->bytes, type);
    put_u64(&k->bytes, (uint64_t)n);
}

/* ---------------- tensors */

typedef struct gguf_tensor {
    char name[MOST_NAME + 1];
    const ares_tensor_info *from; /* NULL: rope_freqs.weight, whose numbers are `own` */
    const float *own;
    int64_t rows, columns; /* of a vector: 1 row */
    int rank;
    int type;         /* GGML_... */
    int32_t permuted; /* heads whose rows change from halves to neighbours; 0: none */
    int32_t module;   /* of the adapter, which is added to it; -1: none */
    uint64_t bytes, at;
} gguf_tensor;

typedef struct gguf_model {
    const char *dir;
    ares_model_config cfg;
    ares_safetensors *files;
    const peft_adapter *peft; /* NULL: none is added */
    ares_arena arena;
    gguf_tensor *tensors;
    int64_t n;
    int type; /* of matrices */
} gguf_model;

/* In the names of a block's tensors, after "model.layers.N.": theirs, ours. */
static const struct {
    const char *hf, *gguf;
} block_names[] = {
    { "input_layernorm.weight", "attn_norm.weight" },
    { "post_attention_layernorm.weight", "ffn_norm.weight" },
    { "self_attn.q_proj.weight", "attn_q.weight" },
    { "self_attn.q_proj.bias", "attn_q.bias" },
    { "self_attn.k_proj.weight", "attn_k.weight" },
    { "self_attn.k_proj.bias", "attn_k.bias" },
    { "self_attn.v_proj.weight", "attn_v.weight" },
    { "self_attn.v_proj.bias", "attn_v.bias" },
    { "self_attn.o_proj.weight", "attn_output.weight" },
    { "self_attn.o_proj.bias", "attn_output.bias" },
    { "self_attn.q_norm.weight", "attn_q_norm.weight" },
    { "self_attn.k_norm.weight", "attn_k_norm.weight" },
    { "mlp.gate_proj.weight", "ffn_gate.weight" },
    { "mlp.gate_proj.bias", "ffn_gate.bias" },
    { "mlp.up_proj.weight", "ffn_up.weight" },
    { "mlp.up_proj.bias", "ffn_up.bias" },
    { "mlp.down_proj.weight", "ffn_down.weight" },
    { "mlp.down_proj.bias", "ffn_down.bias" },
};

/* Writes the name that a tensor has in a GGUF file; false: it has no place there. */
static bool name_tensor(const gguf_model *g, const char *name, char out[static MOST_NAME + 1])
{
    static const struct {
        const char *hf, *gguf;
    } whole[] = { { "model.embed_tokens.weight", "token_embd.weight" },
                  { "model.norm.weight", "output_norm.weight" },
                  { "lm_head.weight", "output.weight" } };
    for (int i = 0; i < ARES_COUNT(whole); i++) {
        if (strcmp(name, whole[i].hf) != 0) continue;
        if (i == 2 && g->cfg.tied) return false; /* the loader takes token_embd for it */
        snprintf(out, MOST_NAME + 1, "%s", whole[i].gguf);
        return true;
    }
    int layer, end = 0;
    if (sscanf(name, "model.layers.%d.%n", &layer, &end) != 1 || !end) return false;
    for (int i = 0; i < ARES_COUNT(block_names); i++) {
        if (strcmp(name + end, block_names[i].hf) != 0) continue;
        snprintf(out, MOST_NAME + 1, "blk.%d.%s", layer, block_names[i].gguf);
        return true;
    }
    return false;
}

/*
 * The factors of a llama3 rope, which llama.cpp reads as a tensor: in float32 throughout, as the
 * official converter computes them.
 */
static const float *rope_factors(gguf_model *g)
{
    const ares_rope_config *r = &g->cfg.rope;
    int32_t half = g->cfg.head_dim / 2;
    float *f = ares_arena_alloc(&g->arena, (size_t)half * sizeof *f);
    float factor = (float)r->factor, low = (float)r->low_freq_factor,
          high = (float)r->high_freq_factor, length = (float)r->original_max_position,
          longest = length / low, shortest = length / high;
    for (int32_t i = 0; i < half; i++) {
        float power = (float)(2 * i) / (float)g->cfg.head_dim,
              frequency = 1.0F / powf((float)r->theta, power),
              wave = 2.0F * (float)M_PI / frequency, smooth = (length / wave - low) / (high - low);
        f[i] = wave < shortest  ? 1.0F
               : wave > longest ? factor
                                : 1.0F / ((1.0F - smooth) / factor + smooth);
    }
    return f;
}

static void add_tensor(gguf_model *g, gguf_tensor t)
{
    bool matrix = t.rank == 2;
    t.type = matrix ? g->type : GGML_F32; /* the loader reads norms and biases as F32 alone */
    if (t.type == GGML_Q8_0 && t.columns % Q8_BLOCK) t.type = GGML_F16;
    uint64_t count = (uint64_t)(t.rows * t.columns);
    t.bytes = t.type == GGML_F32    ? 4 * count
              : t.type == GGML_Q8_0 ? count / Q8_BLOCK * Q8_BYTES
                                    : 2 * count;
    const gguf_tensor *last = g->n ? &g->tensors[g->n - 1] : NULL;
    t.at = last ? (last->at + last->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
    g->tensors[g->n++] = t;
}

static int32_t module_of(const gguf_model *g, const char *tensor)
{
    return g->peft ? peft_module_of(g->peft, &g->cfg, tensor) : -1;
}

static int list_tensors(gguf_model *g)
{
    int64_t count = ares_safetensors_count(g->files);
    const ares_model_config *c = &g->cfg;
    bool llama = strcmp(c->model_type, "llama") == 0, head = module_of(g, "lm_head.weight") >= 0;
    g->tensors = ares_arena_calloc(&g->arena, (size_t)count + 2, sizeof *g->tensors);
    g->cfg.tied &= !head; /* an adapted head is a matrix of its own */
    if (c->rope.kind == ARES_ROPE_LLAMA3) {
        gguf_tensor t = {
            .own = rope_factors(g), .rows = 1, .columns = c->head_dim / 2, .rank = 1, .module = -1
        };
        snprintf(t.name, sizeof t.name, "rope_freqs.weight");
        add_tensor(g, t);
    }
    for (int64_t i = 0; i < count; i++) {
        const ares_tensor_info *from = ares_safetensors_at(g->files, i);
        gguf_tensor t = { .from = from,
                          .rank = from->rank,
                          .rows = 1,
                          .columns = from->shape[0],
                          .module = module_of(g, from->name) };
        if (model_name_ends(from->name, "rotary_emb.inv_freq") ||
            (c->tied && strcmp(from->name, "lm_head.weight") == 0))
            continue;
        if (!name_tensor(g, from->name, t.name) || from->rank > 2 || !from->is_float)
            return ares_fail(ARES_EUNSUPPORTED,
                             "export: %s: tensor '%s' has no place in a GGUF file of a %s",
                             from->file, from->name, c->model_type);
        if (from->rank == 2) t.rows = from->shape[0], t.columns = from->shape[1];
        /* Hugging Face rotates halves of a head, llama.cpp's llama neighbours */
        if (llama && strstr(t.name, ".attn_q.")) t.permuted = c->heads;
        if (llama && strstr(t.name, ".attn_k.")) t.permuted = c->kv_heads;
        add_tensor(g, t);
    }
    const ares_tensor_info *tied = ares_safetensors_find(g->files, "model.embed_tokens.weight");
    if (head && tied && !ares_safetensors_find(g->files, "lm_head.weight")) {
        gguf_tensor t = { .name = "output.weight",
                          .from = tied,
                          .rank = 2,
                          .rows = tied->shape[0],
                          .columns = tied->shape[1],
                          .module = module_of(g, "lm_head.weight") };
        add_tensor(g, t);
    }
    return ARES_OK;
}

/* Which row of the source is row `row` of a permuted tensor of `rows` rows. */
static int64_t source_row(int64_t row, int64_t rows, int32_t heads)
{
    if (!heads) return row;
    int64_t d = rows / heads, in_head = row % d;
    return row - in_head + in_head % 2 * (d / 2) + in_head / 2;
}

/* Blocks of 32: their scale in f16, then x / scale in 8 bits, halves away from zero (ggml). */
static bool pack_q8(const float *x, int64_t n, uint8_t *out)
{
    for (int64_t b = 0; b < n / Q8_BLOCK; b++, x += Q8_BLOCK, out += Q8_BYTES) {
        float most = 0;
        for (int i = 0; i < Q8_BLOCK; i++) most = fmaxf(most, fabsf(x[i]));
        float scale = most / 127.0F, inverse = scale != 0 ? 1.0F / scale : 0;
        uint16_t half;
        model_narrow(&half, ARES_F16, &scale, 1);
        if ((half & 0x7c00u) == 0x7c00u) return false; /* infinite, or not a number */
        memcpy(out, &half, sizeof half);
        for (int i = 0; i < Q8_BLOCK; i++) out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
    }
    return true;
}

/* The numbers of a tensor in its type: out has t->bytes. */
static int pack(const gguf_model *g, const gguf_tensor *t, uint8_t *out)
{
    int64_t n = t->columns, heads_rows = t->rank == 2 ? t->rows : t->columns,
            count = t->rows * t->columns;
    float *x = ares_malloc((size_t)count * sizeof *x);
    int rc = ARES_OK;
    if (t->own) memcpy(x, t->own, (size_t)count * sizeof *x);
    else if (t->rank == 2) {
        size_t each = ares_dtype_bytes(t->from->dtype);
        float *plain = ares_malloc((size_t)n * sizeof *plain);
        for (int64_t row = 0; row < t->rows; row++) {
            int64_t source = source_row(row, heads_rows, t->permuted);
            model_widen(t->module < 0 ? x + row * n : plain,
                        (const char *)t->from->data + (size_t)(source * n) * each, t->from->dtype,
                        n);
            if (t->module >= 0) peft_add_row(g->peft, t->module, source, plain, x + row * n);
        }
        ares_free(plain);
    } else {
        float *plain = ares_malloc((size_t)n * sizeof *plain);
        model_widen(plain, t->from->data, t->from->dtype, n);
        for (int64_t i = 0; i < n; i++) x[i] = plain[source_row(i, n, t->permuted)];
        ares_free(plain);
    }
    bool fits = true;
    if (t->type == GGML_F32) memcpy(out, x, (size_t)count * sizeof *x);
    else if (t->type == GGML_Q8_0) fits = pack_q8(x, count, out);
    else {
        for (int64_t row = 0; row < t->rows; row++)
            model_narrow(out + 2 * row * n, t->type == GGML_F16 ? ARES_F16 : ARES_BF16, x + row * n,
                         n);
        for (int64_t i = 0; i < count && fits && t->type == GGML_F16; i++)
            fits = fabsf(x[i]) < 65520.0F;
    }
    if (!fits)
        rc = ares_fail(ARES_EUNSUPPORTED,
                       "export: tensor '%s' has numbers that 16 bits do not hold; take --type f32 "
                       "or bf16",
                       t->from->name);
    ares_free(x);
    return rc;
}

/* ---------------- the configuration and the tokenizer */

static int check_model(const gguf_model *g)
{
    const ares_model_config *c = &g->cfg;
    static const char *const known[] = { "llama", "qwen2", "qwen3" };
    bool found = false;
    for (int i = 0; i < ARES_COUNT(known); i++) found |= strcmp(c->model_type, known[i]) == 0;
    if (!found)
        return ares_fail(
            ARES_EUNSUPPORTED,
            "export: a %s model: not yet offered as GGUF (choices: llama, qwen2, qwen3)",
            c->model_type);
    if (c->window)
        return ares_fail(ARES_EUNSUPPORTED,
                         "export: %s: sliding windows (config.json) have no place in a GGUF file "
                         "of a %s",
                         g->dir, c->model_type);
    if (c->rope.kind == ARES_ROPE_DYNAMIC)
        return ares_fail(ARES_EUNSUPPORTED,
                         "export: %s: rope of type 'dynamic' (config.json) has no place in a GGUF "
                         "file",
                         g->dir);
    return ARES_OK;
}

static void put_config(const gguf_model *g, key_list *k)
{
    const ares_model_config *c = &g->cfg;
    const char *name = strrchr(g->dir, '/');
    key_text(k, "general.architecture", ares_view_of(c->model_type));
    key_text(k, "general.type", ARES_VIEW("model"));
    key_text(k, "general.name", ares_view_of(name && name[1] ? name + 1 : g->dir));
    key_u32(k, "general.file_type", g->type == GGML_Q8_0 ? 7 : g->type == GGML_BF16 ? 32 : g->type);
    key_u32(k, "general.quantization_version", 2);
    key_u32(k, "A.block_count", c->layers);
    key_u32(k, "A.context_length", c->max_position);
    key_u32(k, "A.embedding_length", c->hidden);
    key_u32(k, "A.feed_forward_length", c->intermediate);
    key_u32(k, "A.attention.head_count", c->heads);
    key_u32(k, "A.attention.head_count_kv", c->kv_heads);
    key_u32(k, "A.attention.key_length", c->head_dim);
    key_u32(k, "A.attention.value_length", c->head_dim);
    key_f32(k, "A.attention.layer_norm_rms_epsilon", (double)c->rms_norm_eps);
    key_f32(k, "A.rope.freq_base", c->rope.theta);
    if (strcmp(c->model_type, "llama") == 0) {
        key_u32(k, "llama.vocab_size", c->vocab);
        key_u32(k, "llama.rope.dimension_count", c->head_dim);
    }
    if (c->rope.kind == ARES_ROPE_LINEAR || c->rope.kind == ARES_ROPE_YARN) {
        bool yarn = c->rope.kind == ARES_ROPE_YARN;
        key_text(k, "A.rope.scaling.type", yarn ? ARES_VIEW("yarn") : ARES_VIEW("linear"));
        key_f32(k, "A.rope.scaling.factor", c->rope.factor);
        if (yarn)
            key_u32(k, "A.rope.scaling.original_context_length", c->rope.original_max_position);
    }
}

/* The vocabulary as its files spell it, by id. */
typedef struct vocabulary {
    const ares_json *root; /* tokenizer.json; NULL: vocab.json and merges.txt */
    ares_view *text;       /* [n]; data NULL: no token has this id */
    int32_t *kind;         /* [n]: 1 normal, 3 control, 4 added by a user, 5 unused */
    int64_t n;
} vocabulary;
enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_ADDED = 4, TOKEN_UNUSED = 5 };

/* How llama.cpp splits a text into words: by the name of the split that tokenizer.json asks for. */
static int name_of_split(const gguf_model *g, const ares_json *root, const char **out)
{
    /* the parts that GPT-4's pattern and its kin differ in are numbers of digits together */
    static const struct {
        const char *pattern, *name;
    } known[] = {
        { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
          "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
          "qwen2" },
        { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
          "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
          "llama-bpe" },
    };
    const ares_json *pre = ares_json_get(root, "pre_tokenizer"),
                    *list = ares_json_get(pre, "pretokenizers");
    ares_view pattern = { 0 }, type = { 0 };
    bool digits = false, bytes = false;
    *out = NULL;
    for (int64_t i = 0; list && list->type == ARES_JSON_ARRAY && i < list->count; i++) {
        const ares_json *p = &list->items[i];
        ARES_TRY(ares_json_get_string(p, "type", "", &type));
        if (ares_view_is(type, "Digits"))
            ARES_TRY(ares_json_get_bool(p, "individual_digits", false, &digits));
        else if (ares_view_is(type, "ByteLevel"))
            ARES_TRY(ares_json_get_bool(p, "use_regex", true, &bytes));
        else if (ares_view_is(type, "Split"))
            ARES_TRY(ares_json_get_string(ares_json_get(p, "pattern"), "Regex", "", &pattern));
    }
    if (digits && bytes && !pattern.len && list->count == 2) *out = "smollm";
    for (int i = 0; i < ARES_COUNT(known) && !digits && !bytes; i++)
        if (ares_view_is(pattern, known[i].pattern)) *out = known[i].name;
    if (*out) return ARES_OK;
    return ares_fail(ARES_EUNSUPPORTED,
                     "export: %s/tokenizer.json: its pre_tokenizer is none that llama.cpp is known "
                     "to have (of SmolLM, Qwen2 and Llama 3)",
                     g->dir);
}

static void set_token(vocabulary *v, ares_arena *arena, ares_view text, int64_t id, int32_t kind)
{
    if (id >= v->n || id < 0) return; /* beyond the embedding: no model knows it */
    v->text[id] = (ares_view){ ares_arena_copy(arena, text.data, text.len), text.len };
    v->kind[id] = kind;
}

static bool looks_special(ares_view t)
{
    return t.len > 4 && memcmp(t.data, "<|", 2) == 0 && memcmp(t.data + t.len - 2, "|>", 2) == 0;
}

/*
 * The vocabulary: `spelled` has the tokens of byte-pair encoding in the byte alphabet; those that
 * were added to it are known to the loaded tokenizer, which has read every file that names one.
 */
static void read_vocabulary(gguf_model *g, const ares_tokenizer *t, const ares_json *spelled,
                            const ares_json *added, vocabulary *v)
{
    int64_t known = ARES_MIN(ares_tokenizer_vocab_size(t), v->n);
    v->text = ares_arena_calloc(&g->arena, (size_t)v->n, sizeof *v->text);
    v->kind = ares_arena_calloc(&g->arena, (size_t)v->n, sizeof *v->kind);
    for (int64_t i = 0; i < spelled->count; i++)
        set_token(v, &g->arena, spelled->members[i].key, spelled->members[i].value->integer,
                  TOKEN_NORMAL);
    for (int64_t i = 0; added && i < added->count; i++) { /* also those that byte pairs spell */
        int64_t id = -1;
        if (ares_json_get_i64(&added->items[i], "id", -1, &id) == ARES_OK && id >= 0 && id < v->n)
            v->text[id] = (ares_view){ 0 };
    }
    for (int64_t id = 0; id < v->n; id++) {
        if (v->text[id].data) continue;
        ares_view text = id < known ? ares_tokenizer_token_bytes(t, (int32_t)id) : (ares_view){ 0 };
        bool special =
            text.data && (ares_tokenizer_is_special(t, (int32_t)id) || looks_special(text));
        if (text.data) set_token(v, &g->arena, text, id, special ? TOKEN_CONTROL : TOKEN_ADDED);
        else
            set_token(v, &g->arena,
                      ares_view_of(ares_arena_printf(&g->arena, "[PAD%lld]", (long long)id)), id,
                      TOKEN_UNUSED);
    }
}

/* The merges "a b" of tokenizer.json, where a merge is a text or a pair; how many there are. */
static int64_t put_merges(const ares_json *merges, ares_str *out)
{
    ares_str pair = { 0 };
    for (int64_t i = 0; i < merges->count; i++) {
        const ares_json *m = &merges->items[i];
        ares_str_clear(&pair);
        if (m->type == ARES_JSON_STRING) ares_str_add_view(&pair, m->text);
        for (int64_t side = 0; m->type == ARES_JSON_ARRAY && side < m->count; side++) {
            ares_view part = m->items[side].text;
            if (side) ares_str_add_char(&pair, ' ');
            for (size_t c = 0; c < part.len;
                 c++) /* a space within a part: as the alphabet has it */
                if (part.data[c] == ' ') ares_str_add_z(&pair, "\u0120");
                else ares_str_add_char(&pair, part.data[c]);
        }
        put_text(out, ares_str_view(&pair));
    }
    ares_str_fini(&pair);
    return merges->count;
}

/* The same of merges.txt, whose first line may tell a version. */
static int64_t put_merge_lines(ares_view text, ares_str *out)
{
    int64_t n = 0;
    for (size_t at = 0, end; at < text.len; at = end + 1) {
        const char *newline = memchr(text.data + at, '\n', text.len - at);
        end = newline ? (size_t)(newline - text.data) : text.len;
        ares_view line = ares_view_trim((ares_view){ text.data + at, end - at });
        if (!line.len || (at == 0 && line.data[0] == '#')) continue;
        put_text(out, line);
        n++;
    }
    return n;
}

/* What a text begins and ends with, and the chat template. */
static int put_roles(const gguf_model *g, const ares_tokenizer *t, key_list *k)
{
    static const char *const names[] = {
        [ARES_TOKEN_BOS] = "tokenizer.ggml.bos_token_id",
        [ARES_TOKEN_EOS] = "tokenizer.ggml.eos_token_id",
        [ARES_TOKEN_PAD] = "tokenizer.ggml.padding_token_id",
        [ARES_TOKEN_UNK] = "tokenizer.ggml.unknown_token_id",
    };
    int32_t of_config[] = { [ARES_TOKEN_BOS] = g->cfg.bos,
                            [ARES_TOKEN_EOS] = g->cfg.n_eos ? g->cfg.eos[0] : -1,
                            [ARES_TOKEN_PAD] = g->cfg.pad,
                            [ARES_TOKEN_UNK] = -1 };
    int32_t bos = -1;
    for (int i = 0; i < ARES_COUNT(names); i++) {
        int32_t id = ares_tokenizer_role_id(t, (ares_token_role)i);
        if (id < 0) id = of_config[i];
        if (id >= 0) key_u32(k, names[i], id);
        if (i == ARES_TOKEN_BOS) bos = id;
    }
    ares_ids ids = { 0 };
    int rc = ares_tokenizer_encode(t, ARES_VIEW("a"), true, &ids);
    key_bool(k, "tokenizer.ggml.add_bos_token", bos >= 0 && ids.n && ids.ids[0] == bos);
    key_bool(k, "tokenizer.ggml.add_space_prefix", false);
    ares_ids_fini(&ids);
    ares_view template = ares_tokenizer_chat_template(t, NULL);
    if (template.data) key_text(k, "tokenizer.chat_template", template);
    return rc;
}

/* tokenizer.json, or vocab.json beside merges.txt. */
static int put_tokenizer(gguf_model *g, key_list *k)
{
    ares_str path = { 0 }, file = { 0 }, lines = { 0 }, merged = { 0 };
    const ares_json *root = NULL, *spelled = NULL, *merges = NULL, *added = NULL;
    const char *split = "qwen2";
    ares_tokenizer *t = NULL;
    vocabulary v = { .n = g->cfg.vocab };
    bool whole = ares_file_exists(ares_path_join(&path, g->dir, "tokenizer.json"));
    int rc = ares_tokenizer_load(g->dir, &t);
    if (rc == ARES_OK && !whole)
        rc = ares_file_read(ares_path_join(&path, g->dir, "merges.txt"), &lines);
    if (!whole) ares_path_join(&path, g->dir, "vocab.json");
    if (rc == ARES_OK) rc = ares_file_read(path.data, &file);
    if (rc == ARES_OK) rc = ares_json_parse(&g->arena, ares_str_view(&file), path.data, &root);
    if (rc == ARES_OK && whole) rc = name_of_split(g, root, &split);
    if (rc == ARES_OK && !whole) { /* the class says how texts are split */
        ares_view class;
        rc = ares_json_get_string(ares_tokenizer_config(t), "tokenizer_class", "", &class);
        if (rc == ARES_OK && ares_view_find(class, ARES_VIEW("Qwen2Tokenizer"), 0) != 0)
            rc = ares_fail(ARES_EUNSUPPORTED,
                           "export: %s: tokenizer_class = '%.*s': without a tokenizer.json only "
                           "Qwen2's way of splitting texts is known",
                           g->dir, (int)class.len, class.data);
    }
    if (rc == ARES_OK) {
        spelled = whole ? ares_json_get(ares_json_get(root, "model"), "vocab") : root;
        merges = whole ? ares_json_get(ares_json_get(root, "model"), "merges") : NULL;
        added = whole ? ares_json_get(root, "added_tokens") : NULL;
        read_vocabulary(g, t, spelled, added, &v);
        key_text(k, "tokenizer.ggml.model", ARES_VIEW("gpt2"));
        key_text(k, "tokenizer.ggml.pre", ares_view_of(split));
        key_array(k, "tokenizer.ggml.tokens", GGUF_STRING, v.n);
        for (int64_t id = 0; id < v.n; id++) put_text(&k->bytes, v.text[id]);
        key_array(k, "tokenizer.ggml.token_type", GGUF_I32, v.n);
        ares_str_add(&k->bytes, (const char *)v.kind, (size_t)v.n * sizeof *v.kind);
        int64_t n =
            merges ? put_merges(merges, &merged) : put_merge_lines(ares_str_view(&lines), &merged);
        key_array(k, "tokenizer.ggml.merges", GGUF_STRING, n);
        ares_str_add_view(&k->bytes, ares_str_view(&merged));
        rc = put_roles(g, t, k);
    }
    ares_tokenizer_free(t);
    ares_str_fini(&path);
    ares_str_fini(&file);
    ares_str_fini(&lines);
    ares_str_fini(&merged);
    return rc;
}

/* ---------------- writing */

int model_make_part(const char *verb, const char *path, int *fd, ares_str *part)
{
    for (int i = 0;; i++) {
        ares_str_clear(part);
        ares_str_addf(part, "%s.part", path);
        if (i) ares_str_addf(part, "%d", i);
        int made = fd ? open(part->data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
                      : mkdir(part->data, 0777);
        if (fd) *fd = made;
        if (made >= 0) return ARES_OK;
        if (errno != EEXIST)
            return ares_fail(ARES_EIO, "%s: '%s': cannot be made: %s", verb, part->data,
                             strerror(errno));
    }
}

static int write_all(int fd, const char *path, const void *data, size_t n)
{
    const char *at = data;
    while (n) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return ares_fail(ARES_EIO, "export: '%s': cannot be written: %s", path,
                             strerror(errno));
        at += done;
        n -= (size_t)done;
    }
    return ARES_OK;
}

static int write_tensors(const gguf_model *g, int fd, const char *path)
{
    for (int64_t i = 0; i < g->n; i++) {
        const gguf_tensor *t = &g->tensors[i];
        size_t padded = (t->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        uint8_t *bytes = ares_calloc(padded, 1);
        int rc = pack(g, t, bytes);
        if (rc == ARES_OK) rc = write_all(fd, path, bytes, padded);
        ares_free(bytes);
        ARES_TRY(rc);
    }
    return ARES_OK;
}

static int write_file(gguf_model *g, const key_list *k, const char *path)
{
    ares_str head = { 0 }, part = { 0 };
    ares_str_add(&head, "GGUF", 4);
    put_u32(&head, 3);
    put_u64(&head, (uint64_t)g->n);
    put_u64(&head, k->n);
    ares_str_add(&head, k->bytes.data, k->bytes.len);
    for (int64_t i = 0; i < g->n; i++) {
        const gguf_tensor *t = &g->tensors[i];
        put_text(&head, ares_view_of(t->name));
        put_u32(&head, (uint32_t)t->rank);
        put_u64(&head, (uint64_t)t->columns); /* the fastest first */
        if (t->rank == 2) put_u64(&head, (uint64_t)t->rows);
        put_u32(&head, (uint32_t)t->type);
        put_u64(&head, t->at);
    }
    while (head.len % ALIGNMENT) ares_str_add_char(&head, 0);
    int fd, rc = model_make_part("export", path, &fd, &part);
    if (rc == ARES_OK) rc = write_all(fd, part.data, head.data, head.len);
    if (rc == ARES_OK) rc = write_tensors(g, fd, part.data);
    if (rc == ARES_OK && fsync(fd) != 0)
        rc = ares_fail(ARES_EIO, "export: '%s': cannot be written: %s", part.data, strerror(errno));
    if (fd >= 0) close(fd);
    if (rc == ARES_OK && rename(part.data, path) != 0)
        rc = ares_fail(ARES_EIO, "export: '%s': cannot be made: %s", path, strerror(errno));
    if (rc != ARES_OK && fd >= 0) unlink(part.data);
    ares_str_fini(&head);
    ares_str_fini(&part);
    return rc;
}

static const char *const type_names[] = { "f32", "f16", "bf16", "q8_0" };
static const int types[] = { GGML_F32, GGML_F16, GGML_BF16, GGML_Q8_0 };

int ares_gguf_export(const char *model, const char *adapter, const char *type, const char *path)
{
    ares_str dir = { 0 };
    peft_adapter peft;
    gguf_model g = { 0 };
    key_list k = { 0 };
    int kind = 0;
    int rc = ares_lookup(ARES_EUSE, "--type", type, type_names, ARES_COUNT(type_names), &kind);
    if (rc == ARES_OK) rc = ares_model_adapter(model, adapter, &adapter);
    if (rc == ARES_OK) rc = ares_model_find(model, &dir);
    if (rc == ARES_OK) rc = ares_model_config_load(dir.data, &g.cfg);
    g.dir = dir.data;
    g.type = types[kind];
    k.arch = g.cfg.model_type;
    if (rc == ARES_OK) rc = check_model(&g);
    if (rc == ARES_OK) rc = ares_safetensors_open(dir.data, &g.files);
    if (rc == ARES_OK) model_untie(g.files, dir.data, &g.cfg);
    if (rc == ARES_OK && adapter) {
        rc = peft_open_to_merge("export", adapter, dir.data, &g.cfg, &g.arena, &peft);
        g.peft = &peft;
    }
    if (rc == ARES_OK) rc = list_tensors(&g);
    if (rc == ARES_OK) {
        put_config(&g, &k);
        rc = put_tokenizer(&g, &k);
    }
    if (rc == ARES_OK) rc = write_file(&g, &k, path);
    if (g.files) ares_safetensors_close(g.files);
    ares_arena_fini(&g.arena);
    ares_str_fini(&k.bytes);
    ares_str_fini(&dir);
    return rc;
}
