/*
 * LoRA adapters as files: in order the linear layers of a model; PEFT's rules of selection; reading
 * a PEFT directory; merging one into its base. Formulas and rules: docs/adapters.md.
 */
#include "adapter.h"

#include "internal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include <pcre2.h>

ARES_OPTION_TABLE(ares_lora_option_table, ares_lora_options, ARES_LORA_OPTIONS);

/* ---------------- the linear layers of a model */

typedef struct candidates {
    lora_module *list;
    int32_t n, cap, number; /* number: of the next one */
    ares_arena *arena;
} candidates;

static void add_candidate(candidates *c, int32_t out, int32_t in, const char *format, int block)
{
    char name[128];
    (void)snprintf(name, sizeof name, format, block);
    ARES_ASSERT(c->n < c->cap);
    c->list[c->n] = (lora_module){ .name = ares_arena_copy(c->arena, name, strlen(name)),
                                   .number = c->number++,
                                   .in = in,
                                   .out = out };
    c->n++;
}

#define BLOCK "model.layers.%d."
#define BLOCK_VL "model.language_model.layers.%d."
#define TOWER_BLOCK "model.visual.blocks.%d."

const lora_module *lora_candidates(const ares_model_config *base, bool tower, ares_arena *arena,
                                   int32_t *n)
{
    static const char *const names[2][LORA_OF_BLOCK] = {
        { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", NULL, "self_attn.o_proj",
          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj" },
        { "linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.in_proj_b",
          "linear_attn.in_proj_a", "linear_attn.out_proj", "mlp.gate_proj", "mlp.up_proj",
          "mlp.down_proj" },
    };
    const ares_vision_config *v = &base->vision;
    int32_t q = base->heads * base->head_dim, kv = base->kv_heads * base->head_dim,
            hidden = base->hidden, wide = base->intermediate, of_net = base->net.v_heads,
            values = of_net * base->net.v_dim;
    candidates c = { .cap = base->layers * LORA_OF_BLOCK + 1 + v->depth * 5 + 2, .arena = arena };
    c.list = ares_arena_calloc(arena, (size_t)c.cap, sizeof *c.list);
    for (int32_t i = 0; i < base->layers; i++) {
        bool net = model_has_net(base, i);
        const int32_t out[2][LORA_OF_BLOCK] = {
            { base->attention_gate ? 2 * q : q, kv, kv, 0, hidden, wide, wide, hidden },
            { net_width(base), values, of_net, of_net, hidden, wide, wide, hidden }
        };
        const int32_t in[] = { hidden,           hidden, hidden, hidden,
                               net ? values : q, hidden, hidden, wide };
        for (int j = 0; j < LORA_OF_BLOCK; j++) {
            bool expert = j >= 5 && base->layer[i] & ARES_LAYER_EXPERTS;
            char format[64];
            snprintf(format, sizeof format, "%s%s", v->depth ? BLOCK_VL : BLOCK,
                     names[net][j] ? names[net][j] : "");
            if (expert || !names[net][j]) c.number++;
            else add_candidate(&c, out[net][j], in[j], format, i);
        }
    }
    add_candidate(&c, base->vocab, hidden, "lm_head", 0);
    for (int32_t i = 0; tower && i < v->depth; i++) {
        add_candidate(&c, 3 * v->width, v->width, TOWER_BLOCK "attn.qkv", i);
        add_candidate(&c, v->width, v->width, TOWER_BLOCK "attn.proj", i);
        if (v->gated) {
            add_candidate(&c, v->intermediate, v->width, TOWER_BLOCK "mlp.gate_proj", i);
            add_candidate(&c, v->intermediate, v->width, TOWER_BLOCK "mlp.up_proj", i);
            add_candidate(&c, v->width, v->intermediate, TOWER_BLOCK "mlp.down_proj", i);
        } else {
            add_candidate(&c, v->intermediate, v->width, TOWER_BLOCK "mlp.fc1", i);
            add_candidate(&c, v->width, v->intermediate, TOWER_BLOCK "mlp.fc2", i);
        }
    }
    if (tower && v->depth) {
        int32_t merged = v->width * v->merge * v->merge;
        add_candidate(&c, merged, merged, "model.visual.merger.mlp.0", 0);
        add_candidate(&c, v->out, merged, "model.visual.merger.mlp.2", 0);
    }
    *n = c.n;
    return c.list;
}

/* What a base's files call the weight of a module; the same for all its modules. */
static void weight_of_module(const ares_model_config *c, const char *module, ares_str *out)
{
    static const char text[] = "model.language_model.", tower[] = "model.visual.";
    ares_str_clear(out);
    const char *rest = module;
    if (strcmp(module, "lm_head") == 0) ares_str_add_z(out, "lm_head");
    else if (strncmp(module, tower, sizeof tower - 1) == 0) {
        rest = module + sizeof tower - 1;
        ares_str_addf(out, "%s.%s", c->vision_names ? c->vision_names : "visual", rest);
    } else {
        rest = module + (c->vision.depth ? sizeof text - 1 : strlen("model."));
        const char *stem = c->text_names ? c->text_names : "model";
        ares_str_addf(out, "%s%s%s", stem, *stem ? "." : "", rest);
    }
    ares_str_add_z(out, ".weight");
}

/* ---------------- selection by PEFT's rules */

enum { MATCH_LIMIT = 200000 };

/* As Python's re.fullmatch, re.match and re.search. */
int model_matches(const char *where, const char *pattern, model_match how, const char *name,
                  bool *takes)
{
    static const uint32_t anchors[] = { [MODEL_MATCH_WHOLE] = PCRE2_ANCHORED | PCRE2_ENDANCHORED,
                                        [MODEL_MATCH_START] = PCRE2_ANCHORED,
                                        [MODEL_MATCH_INSIDE] = 0 };
    int error;
    PCRE2_SIZE at;
    PCRE2_UCHAR said[120];
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, anchors[how], &error, &at, NULL);
    int found = error;
    if (code) {
        pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
        pcre2_match_context *context = pcre2_match_context_create(NULL);
        pcre2_set_match_limit(context, MATCH_LIMIT);
        found = pcre2_match(code, (PCRE2_SPTR)name, strlen(name), 0, 0, data, context);
        pcre2_match_context_free(context);
        pcre2_match_data_free(data);
        pcre2_code_free(code);
        *takes = found >= 0;
        if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return ARES_OK;
    }
    pcre2_get_error_message(found, said, sizeof said);
    return ares_fail(ARES_ECONFIG, "%s: the expression '%s' cannot be used: %s", where, pattern,
                     (const char *)said);
}

/* An entry of a list: the name, or the end of it after a dot. */
static bool entry_takes(ares_view entry, const char *name)
{
    size_t n = strlen(name);
    if (entry.len > n || memcmp(name + n - entry.len, entry.data, entry.len) != 0) return false;
    return entry.len == n || (entry.len && name[n - entry.len - 1] == '.');
}

enum { OF_RANK, OF_ALPHA };
static const char *const patterns[] = { "rank_pattern", "alpha_pattern" };

typedef struct selection {
    const char *where;
    ares_arena *arena;
    const ares_json *config;
    const lora_module *all; /* [n] candidates */
    int32_t n;
    bool tower; /* a vision model whose tower is frozen has none of it among the candidates */
    /* what was of use: [entries of target_modules, exclude_modules, layers_to_transform, the two
     * patterns]; a text is one entry */
    bool *taken, *excluded, *in_layer, *sized[2];
    bool named, numbered; /* entries of target_modules name a layer; one has a number */
    int32_t n_excluded;   /* of those that target_modules select */
} selection;

static const ares_json *given(const selection *s, const char *key)
{
    const ares_json *x = ares_json_get(s->config, key);
    return x && x->type != ARES_JSON_NULL ? x : NULL;
}

/* Keys that are texts or lists of texts. */
static int check_texts(const selection *s, const char *key, const ares_json *x)
{
    bool right = !x || x->type == ARES_JSON_STRING || x->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; right && x && x->type == ARES_JSON_ARRAY && i < x->count; i++)
        right = x->items[i].type == ARES_JSON_STRING;
    if (right) return ARES_OK;
    return ares_fail(ARES_ECONFIG, "%s: %s: neither a text nor a list of texts", s->where, key);
}

/* What a message about a key begins with. */
static const char *where_of(const selection *s, const char *key)
{
    return ares_arena_printf(s->arena, "%s: %s", s->where, key);
}

/* As many flags as a value has entries, and one more. */
static bool *flags_of(const selection *s, const ares_json *x)
{
    size_t n = 1;
    /* not `many ? count + 1 : 1` of a bool: GCC 14.2 makes it many * count + 1, and reads NULL */
    if (x && (x->type == ARES_JSON_ARRAY || x->type == ARES_JSON_OBJECT)) n += (size_t)x->count;
    return ares_arena_calloc(s->arena, n, sizeof(bool));
}

static int is_excluded(selection *s, const ares_json *exclude, const char *name, bool *out)
{
    *out = false;
    if (!exclude) return ARES_OK;
    if (exclude->type == ARES_JSON_STRING) {
        ARES_TRY(model_matches(where_of(s, "exclude_modules"), exclude->text.data,
                               MODEL_MATCH_WHOLE, name, out));
        s->excluded[0] |= *out;
    }
    for (int64_t i = 0; exclude->type == ARES_JSON_ARRAY && i < exclude->count; i++)
        if (entry_takes(exclude->items[i].text, name)) *out = s->excluded[i] = true;
    return ARES_OK;
}

/* The number of the layer that a name belongs to, as PEFT reads it; -1: none. */
static int layer_number(const selection *s, const ares_json *pattern, const char *name,
                        int64_t *out)
{
    *out = -1;
    int64_t n = !pattern ? 0 : pattern->type == ARES_JSON_STRING ? 1 : pattern->count;
    for (int64_t i = 0; i < n && *out < 0; i++) {
        ares_view p = pattern->type == ARES_JSON_STRING ? pattern->text : pattern->items[i].text;
        char expression[200];
        (void)snprintf(expression, sizeof expression, "(^|.*?\\.)%.*s\\.(\\d+)\\.", (int)p.len,
                       p.data);
        for (const char *at = name; *at && *out < 0; at++) { /* the text that the pattern ends at */
            bool takes = false;
            if (*at != '.' || !isdigit((unsigned char)at[1])) continue;
            int64_t digits = 1;
            while (isdigit((unsigned char)at[1 + digits])) digits++;
            if (at[1 + digits] != '.') continue;
            char *part = ares_arena_copy(s->arena, name, (size_t)(at + 2 + digits - name));
            ARES_TRY(model_matches(where_of(s, "layers_pattern"), expression, MODEL_MATCH_WHOLE,
                                   part, &takes));
            if (takes) *out = strtoll(at + 1, NULL, 10);
        }
    }
    if (n) return ARES_OK;
    int before = 0; /* components: the first number that has two of them in front of it */
    for (const char *at = name; (at = strchr(at, '.')); at++) {
        before++;
        char *end;
        long long number = strtoll(at + 1, &end, 10);
        if (before >= 2 && isdigit((unsigned char)at[1]) && *end == '.') {
            *out = number;
            break;
        }
    }
    return ARES_OK;
}

static int in_layers(selection *s, const char *name, bool *out)
{
    const ares_json *layers = given(s, "layers_to_transform");
    *out = true;
    if (!layers || (layers->type == ARES_JSON_ARRAY && layers->count == 0)) return ARES_OK;
    int64_t layer, n = layers->type == ARES_JSON_ARRAY ? layers->count : 1;
    ARES_TRY(layer_number(s, given(s, "layers_pattern"), name, &layer));
    s->numbered |= layer >= 0;
    *out = false;
    for (int64_t i = 0; i < n; i++) {
        const ares_json *x = layers->type == ARES_JSON_ARRAY ? &layers->items[i] : layers;
        if (x->type != ARES_JSON_INT)
            return ares_fail(ARES_ECONFIG, "%s: layers_to_transform: not a list of layers",
                             s->where);
        if (layer >= 0 && x->integer == layer) *out = s->in_layer[i] = true;
    }
    return ARES_OK;
}

static bool is_all_linear(const ares_json *target)
{
    return target && target->type == ARES_JSON_STRING &&
           strcasecmp(target->text.data, "all-linear") == 0;
}

static int is_target(selection *s, const ares_json *target, const char *name, bool *out)
{
    static const char *const by_default[] = { "q_proj", "v_proj" };
    *out = false;
    if (is_all_linear(target)) {
        *out = strcmp(name, "lm_head") != 0;
        return ARES_OK;
    }
    if (target && target->type == ARES_JSON_STRING)
        return model_matches(where_of(s, "target_modules"), target->text.data, MODEL_MATCH_WHOLE,
                             name, out);
    int64_t n = target ? target->count : ARES_COUNT(by_default);
    for (int64_t i = 0; i < n; i++) {
        ares_view entry = target ? target->items[i].text : ares_view_of(by_default[i]);
        bool takes = entry_takes(entry, name);
        s->named |= takes;
        if (takes) ARES_TRY(in_layers(s, name, &takes));
        if (takes && target) s->taken[i] = true;
        *out |= takes;
    }
    return ARES_OK;
}

/* The last parts of the candidates' names, each once: "q_proj, k_proj, ...". */
static int kinds_of(const selection *s, const char **out, int most)
{
    int n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        const char *dot = strrchr(s->all[i].name, '.'), *kind = dot ? dot + 1 : s->all[i].name;
        bool known = false;
        for (int k = 0; k < n; k++) known |= strcmp(out[k], kind) == 0;
        if (!known && n < most) out[n++] = kind;
    }
    return n;
}

static void add_kinds(const selection *s, ares_str *out)
{
    const char *kinds[24];
    int n = kinds_of(s, kinds, ARES_COUNT(kinds));
    for (int k = 0; k < n; k++) ares_str_addf(out, "%s%s", k ? ", " : "", kinds[k]);
}

/* Entries of a list that name something else than a linear layer. */
static int check_entries(const selection *s, const ares_json *target)
{
    static const char *const other[] = { "embed_tokens",
                                         "norm",
                                         "input_layernorm",
                                         "post_attention_layernorm",
                                         "mlp",
                                         "self_attn",
                                         "linear_attn",
                                         "conv1d",
                                         "layers",
                                         "q_norm",
                                         "k_norm",
                                         "model",
                                         "patch_embed",
                                         "rotary_emb",
                                         "act_fn",
                                         "visual",
                                         "experts",
                                         "gate",
                                         "pre_feedforward_layernorm",
                                         "post_feedforward_layernorm" };
    if (!target || target->type != ARES_JSON_ARRAY) return ARES_OK;
    for (int64_t i = 0; i < target->count; i++) {
        ares_view x = target->items[i].text;
        const char *last = strrchr(x.data, '.');
        for (int k = 0; k < ARES_COUNT(other); k++)
            if (strcmp(last ? last + 1 : x.data, other[k]) == 0)
                return ares_fail(ARES_EUNSUPPORTED,
                                 "%s: target_modules: '%s' is no linear layer; adapters of %s are "
                                 "not offered",
                                 s->where, x.data, other[k]);
    }
    return ARES_OK;
}

/* A list that names parts of an MLP and finds none outside of experts, or a text that means them.
 */
static int check_experts(const selection *s, const ares_json *target)
{
    static const char *const parts[] = { "gate_proj", "up_proj", "down_proj" };
    bool text = target && target->type == ARES_JSON_STRING && strstr(target->text.data, "experts");
    const char *named = text ? target->text.data : NULL;
    for (int64_t i = 0; target && target->type == ARES_JSON_ARRAY && i < target->count; i++)
        for (int k = 0; k < ARES_COUNT(parts); k++)
            if (!s->taken[i] && model_name_ends(target->items[i].text.data, parts[k]))
                named = target->items[i].text.data;
    if (!named) return ARES_OK;
    return ares_fail(ARES_EUNSUPPORTED,
                     "%s: target_modules: '%s' is of experts; adapters of experts and routers are "
                     "not offered; name layers of attention, or all-linear",
                     s->where, named);
}

/* Warns of what is written and takes no layer; PEFT says nothing, but of exclude_modules. */
static void tell_unused(const selection *s, const ares_json *target, const ares_json *exclude)
{
    const char *kinds[24];
    int n = kinds_of(s, kinds, ARES_COUNT(kinds));
    for (int64_t i = 0; target && target->type == ARES_JSON_ARRAY && i < target->count; i++) {
        if (s->taken[i]) continue;
        const char *near = ares_nearest(target->items[i].text.data, kinds, n);
        ares_warn("%s: target_modules: '%s' matches nothing%s%s%s", s->where,
                  target->items[i].text.data, near ? "; did you mean '" : "", near ? near : "",
                  near ? "'?" : "");
    }
    int64_t n_exclude = !exclude ? 0 : exclude->type == ARES_JSON_STRING ? 1 : exclude->count;
    for (int64_t i = 0; i < n_exclude; i++)
        if (!s->excluded[i])
            ares_warn("%s: exclude_modules: '%s' matches no linear layer", s->where,
                      exclude->type == ARES_JSON_STRING ? exclude->text.data
                                                        : exclude->items[i].text.data);
    const ares_json *layers = given(s, "layers_to_transform");
    int64_t n_layers = !layers ? 0 : layers->type == ARES_JSON_ARRAY ? layers->count : 1;
    for (int64_t i = 0; i < n_layers; i++)
        if (!s->in_layer[i])
            ares_warn("%s: layers_to_transform: target_modules select nothing in block %lld",
                      s->where,
                      (long long)(layers->type == ARES_JSON_ARRAY ? layers->items[i].integer
                                                                  : layers->integer));
    for (int a = 0; a < 2; a++) {
        const ares_json *o = given(s, patterns[a]);
        for (int64_t i = 0; o && i < o->count; i++)
            if (!s->sized[a][i])
                ares_warn("%s: %s: '%.*s' decides for no layer that has an adapter", s->where,
                          patterns[a], (int)o->members[i].key.len, o->members[i].key.data);
    }
}

static int refuse_nothing(const selection *s, const ares_json *target)
{
    if (s->n_excluded)
        return ares_fail(ARES_ECONFIG,
                         "%s: exclude_modules: leaves none of the %d layers that target_modules "
                         "select",
                         s->where, s->n_excluded);
    if (s->named && !s->numbered && given(s, "layers_pattern"))
        return ares_fail(ARES_ECONFIG,
                         "%s: layers_pattern: no layer that target_modules select has a number "
                         "after it (a name: %s)",
                         s->where, s->all[0].name);
    if (s->named)
        return ares_fail(ARES_ECONFIG,
                         "%s: layers_to_transform: target_modules select nothing in these blocks",
                         s->where);
    ares_str all = { 0 };
    add_kinds(s, &all);
    const char *kinds[24], *near = NULL;
    int n = kinds_of(s, kinds, ARES_COUNT(kinds));
    bool text = target && target->type == ARES_JSON_STRING;
    if (target && target->type == ARES_JSON_ARRAY && target->count)
        near = ares_nearest(target->items[0].text.data, kinds, n);
    else if (text) near = ares_nearest(target->text.data, kinds, n);
    static const char *const hints[][2] = {
        { "", "" },
        { "; did you mean '", "'?" },
        { "; a text must match the whole name: write '.*", "' or a list" },
    };
    int hint = near ? 1 + (text && strcmp(near, target->text.data) == 0) : 0;
    bool visual = text && strstr(target->text.data, "visual");
    int rc = ares_fail(
        ARES_ECONFIG, "%s: target_modules select no linear layer%s%s%s (the model has: %s%s)",
        s->where, hints[hint][0], near ? near : "", hints[hint][1], all.data,
        visual && !s->tower ? "; its tower has none while freeze_vision_tower is true" : "");
    ares_str_fini(&all);
    return rc;
}

/* What the first key of rank_pattern or alpha_pattern that takes the name says. */
static int by_pattern(const selection *s, int which, const char *name, const ares_json **out)
{
    const char *key = patterns[which];
    const ares_json *o = given(s, key);
    *out = NULL;
    if (!o) return ARES_OK;
    if (o->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_ECONFIG, "%s: %s: not a map from names to numbers", s->where, key);
    for (int64_t i = 0; i < o->count && !*out; i++) {
        bool takes = false;
        const char *expression = ares_arena_printf(
            s->arena, "^(.*\\.)?(%.*s)$", (int)o->members[i].key.len, o->members[i].key.data);
        ARES_TRY(model_matches(where_of(s, key), expression, MODEL_MATCH_START, name, &takes));
        if (!takes) continue;
        *out = o->members[i].value;
        s->sized[which][i] = true;
    }
    return ARES_OK;
}

static int read_rank(const selection *s, const char *key, const ares_json *x, int64_t *out)
{
    if (!x) return ARES_OK;
    if (x->type != ARES_JSON_INT || x->big || x->integer < 1 || x->integer > 1 << 16)
        return ares_fail(ARES_ECONFIG, "%s: %s: a rank is a whole number from 1 to 65536", s->where,
                         key);
    *out = x->integer;
    return ARES_OK;
}

static int read_alpha(const selection *s, const char *key, const ares_json *x, double *out)
{
    if (!x) return ARES_OK;
    if ((x->type != ARES_JSON_INT && x->type != ARES_JSON_FLOAT) || !isfinite(x->number))
        return ares_fail(ARES_ECONFIG, "%s: %s: not a number", s->where, key);
    *out = x->number;
    return ARES_OK;
}

static int size_module(const selection *s, const lora_config *all, lora_module *m)
{
    const ares_json *rank, *alpha;
    int64_t r = all->rank;
    m->alpha = all->alpha;
    ARES_TRY(by_pattern(s, OF_RANK, m->name, &rank));
    ARES_TRY(by_pattern(s, OF_ALPHA, m->name, &alpha));
    ARES_TRY(read_rank(s, "rank_pattern", rank, &r));
    ARES_TRY(read_alpha(s, "alpha_pattern", alpha, &m->alpha));
    m->rank = (int32_t)r;
    m->scale = (float)(m->alpha / (all->rslora ? sqrt((double)r) : (double)r));
    if (!isfinite(m->scale))
        return ares_fail(ARES_ECONFIG, "%s: %s: %g is too large: alpha / rank is no number in f32",
                         s->where, alpha ? "alpha_pattern" : "lora_alpha", m->alpha);
    return ARES_OK;
}

int lora_select(const ares_model_config *base, bool tower, bool tell, const ares_json *config,
                const char *where, ares_arena *arena, lora_config *out)
{
    selection s = { .where = where, .arena = arena, .config = config, .tower = tower };
    const ares_json *target = given(&s, "target_modules"), *exclude = given(&s, "exclude_modules"),
                    *layers = given(&s, "layers_to_transform"), *rank = ares_json_get(config, "r"),
                    *alpha = ares_json_get(config, "lora_alpha");
    s.all = lora_candidates(base, tower, arena, &s.n);
    *out = (lora_config){ .rank = 8, .alpha = 8 };
    ARES_TRY(read_rank(&s, "r", rank, &out->rank));
    ARES_TRY(read_alpha(&s, "lora_alpha", alpha, &out->alpha));
    ARES_TRY(ares_json_get_bool(config, "use_rslora", false, &out->rslora));
    ARES_TRY(check_texts(&s, "target_modules", target));
    ARES_TRY(check_texts(&s, "exclude_modules", exclude));
    ARES_TRY(check_texts(&s, "layers_pattern", given(&s, "layers_pattern")));
    if (target && target->type == ARES_JSON_ARRAY && target->count == 0)
        return ares_fail(ARES_ECONFIG, "%s: target_modules: an empty list selects nothing", where);
    if (layers && target && target->type == ARES_JSON_STRING)
        return ares_fail(ARES_ECONFIG,
                         "%s: layers_to_transform does not go with a text in target_modules; write "
                         "the layers into the expression, or the modules as a list",
                         where);
    if (!layers && given(&s, "layers_pattern"))
        return ares_fail(ARES_ECONFIG, "%s: layers_pattern needs layers_to_transform", where);

    lora_module *chosen = ares_arena_calloc(arena, (size_t)s.n, sizeof *chosen);
    s.taken = flags_of(&s, target);
    s.excluded = flags_of(&s, exclude);
    s.in_layer = flags_of(&s, layers);
    for (int a = 0; a < 2; a++) s.sized[a] = flags_of(&s, given(&s, patterns[a]));
    for (int32_t i = 0; i < s.n; i++) {
        bool excluded, targeted;
        ARES_TRY(is_excluded(&s, exclude, s.all[i].name, &excluded));
        ARES_TRY(is_target(&s, target, s.all[i].name, &targeted));
        s.n_excluded += excluded && targeted;
        if (excluded || !targeted) continue;
        chosen[out->n] = s.all[i];
        ARES_TRY(size_module(&s, out, &chosen[out->n]));
        out->n++;
    }
    out->modules = chosen;
    ARES_TRY(check_entries(&s, target));
    if (base->experts) ARES_TRY(check_experts(&s, target));
    if (!out->n) return refuse_nothing(&s, target);
    /* of use too: what keeps a tower out that is frozen anyway */
    int32_t n;
    const lora_module *all = lora_candidates(base, true, arena, &n);
    for (int32_t i = s.n; i < n; i++) {
        bool excluded;
        ARES_TRY(is_excluded(&s, exclude, all[i].name, &excluded));
    }
    if (tell) tell_unused(&s, target, exclude);
    return ARES_OK;
}

/* ---------------- adapters that options describe */

/* Whether a text is names with dots, and commas between them. */
static bool is_names(const ares_json *x)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *text = x->text.data;
    if (x->type != ARES_JSON_STRING || is_all_linear(x)) return false;
    for (const char *p = text; *p; p++)
        if (!strchr(letters, *p) && !strchr("., ", *p)) return false;
    return *text != 0;
}

/* Modules, for PEFT: names in a text, as a list; all-linear in a list, as the text. */
static void write_modules(ares_str *out, const char *key, const ares_json *x)
{
    if (x->type == ARES_JSON_ARRAY && x->count == 1 && is_all_linear(x->items)) x = x->items;
    if (x->type == ARES_JSON_NULL) return;
    ares_json_key(out, key);
    if (!is_names(x)) {
        ares_json_write(out, x);
        return;
    }
    ares_json_begin(out, '[');
    for (const char *p = x->text.data; *p;) {
        size_t skip = strspn(p, ", "), n = strcspn(p + skip, ", ");
        if (n) ares_json_write_string(out, (ares_view){ p + skip, n });
        p += skip + n;
    }
    ares_json_end(out, ']');
}

static void write_given(ares_str *out, const char *key, const ares_json *x)
{
    if (x->type != ARES_JSON_NULL) ares_json_write(ares_json_key(out, key), x);
}

const ares_json *lora_peft_config(const ares_lora_options *o, ares_arena *arena)
{
    ares_str text = { 0 };
    const ares_json *config = NULL;
    ares_json_begin(&text, '{');
    ares_json_write_i64(ares_json_key(&text, "r"), o->rank);
    ares_json_write_double(ares_json_key(&text, "lora_alpha"), o->alpha);
    ares_json_write_bool(ares_json_key(&text, "use_rslora"), o->use_rslora);
    write_modules(&text, "target_modules", o->target_modules);
    write_modules(&text, "exclude_modules", o->exclude_modules);
    write_given(&text, "rank_pattern", o->rank_pattern);
    write_given(&text, "alpha_pattern", o->alpha_pattern);
    write_given(&text, "layers_to_transform", o->layers_to_transform);
    write_given(&text, "layers_pattern", o->layers_pattern);
    ares_json_end(&text, '}');
    int rc = ares_json_parse(arena, ares_str_view(&text), "adapter", &config);
    ARES_ASSERT(rc == ARES_OK); /* it was just written */
    ares_str_fini(&text);
    return config;
}

/* ---------------- a PEFT directory */

int ares_adapter_find(const char *path, ares_str *dir)
{
    ares_str file = { 0 }, inner = { 0 }, name = { 0 };
    const char *found = NULL;
    ares_str_clear(dir);
    ares_str_add_z(dir, path);
    for (int form = 0; form < 3 && !found; form++) {
        if (form == 1) (void)ares_path_join(dir, path, "adapter");
        if (form == 2) {
            (void)ares_path_join(&inner, path, "checkpoints");
            if (!ares_dir_exists(inner.data) ||
                ares_checkpoint_latest(inner.data, &name) != ARES_OK || !name.len)
                break;
            (void)ares_path_join(&file, inner.data, name.data);
            (void)ares_path_join(dir, file.data, "adapter");
        }
        if (ares_file_exists(ares_path_join(&file, dir->data, "adapter_config.json")))
            found = dir->data;
    }
    int rc = ARES_OK;
    if (!found && ares_file_exists(ares_path_join(&file, path, "config.json")))
        rc = ares_fail(ARES_EUSE,
                       "adapter: '%s' is a whole model, not an adapter; it belongs to --model (or "
                       "worker.actor.model.model_path)",
                       path);
    else if (!found)
        rc = ares_fail(ARES_EIO,
                       "adapter: '%s': no adapter_config.json there, in its adapter/, nor in a "
                       "run's last checkpoint; name the directory that PEFT or a run has written",
                       path);
    else if (!ares_file_exists(ares_path_join(&file, found, "adapter_model.safetensors"))) {
        bool pickled = ares_file_exists(ares_path_join(&file, found, "adapter_model.bin"));
        rc = pickled ? ares_fail(ARES_EUNSUPPORTED,
                                 "adapter: %s: adapter_model.bin is a pickle, which is not read; "
                                 "convert it: python -c \"import torch, safetensors.torch as s; "
                                 "s.save_file(torch.load('adapter_model.bin'), "
                                 "'adapter_model.safetensors')\"",
                                 found)
                     : ares_fail(ARES_EIO, "adapter: %s: no adapter_model.safetensors", found);
    }
    ares_str_fini(&file);
    ares_str_fini(&inner);
    ares_str_fini(&name);
    return rc;
}

static bool is_empty(const ares_json *x)
{
    return x->type == ARES_JSON_NULL || (x->type == ARES_JSON_BOOL && !x->boolean) ||
           (x->type == ARES_JSON_ARRAY && !x->count);
}

static bool among(ares_view key, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (ares_view_is(key, names[i])) return true;
    return false;
}

/* Refuses what changes the forward pass in a way that is not built, and tells unknown keys. */
static int check_config(const char *where, const ares_json *config, bool tell, bool *critic)
{
    static const char *const honoured[] = {
        "r", "lora_alpha", "use_rslora", "target_modules", "exclude_modules", "rank_pattern",
        "alpha_pattern", "layers_to_transform", "layers_pattern", "peft_type", "task_type", "bias",
        /* past, or of no meaning for a trained adapter */
        "init_lora_weights", "lora_dropout", "loftq_config", "eva_config", "corda_config",
        "lora_ga_config", "base_model_name_or_path", "revision", "inference_mode", "auto_mapping",
        "peft_version", "megatron_config", "megatron_core", "fan_in_fan_out", "qalora_group_size",
        "runtime_config", "ensure_weight_tying"
    };
    static const char *const refused[] = {
        "modules_to_save",   "use_dora",    "lora_bias",     "layer_replication",
        "target_parameters", "use_qalora",  "use_bdlora",    "trainable_token_indices",
        "arrow_config",      "kasa_config", "velora_config", "alora_invocation_tokens",
        "monteclora_config"
    };
    ares_view type, task, bias;
    *critic = false;
    if (!config || config->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "%s: not a JSON object", where);
    ARES_TRY(ares_json_get_string(config, "peft_type", "", &type));
    if (!ares_view_is(type, "LORA"))
        return ares_fail(ARES_EUNSUPPORTED, "%s: peft_type = '%s': only LORA adapters are read",
                         where, type.len ? type.data : "null");
    ARES_TRY(ares_json_get_string(config, "task_type", "CAUSAL_LM", &task));
    *critic = ares_view_is(task, "TOKEN_CLS");
    if (!*critic && !ares_view_is(task, "CAUSAL_LM"))
        return ares_fail(ARES_EUNSUPPORTED,
                         "%s: task_type = '%s': not offered (CAUSAL_LM; of a critic TOKEN_CLS)",
                         where, task.data);
    ARES_TRY(ares_json_get_string(config, "bias", "none", &bias));
    if (!ares_view_is(bias, "none"))
        return ares_fail(ARES_EUNSUPPORTED,
                         "%s: bias = '%s': adapters that train biases are not offered", where,
                         bias.data);
    for (int64_t i = 0; i < config->count; i++) {
        ares_view key = config->members[i].key;
        const ares_json *x = config->members[i].value;
        if (among(key, honoured, ARES_COUNT(honoured)) || is_empty(x)) continue;
        if (among(key, refused, ARES_COUNT(refused))) {
            bool head =
                *critic && ares_view_is(key, "modules_to_save") && x->type == ARES_JSON_ARRAY;
            for (int64_t k = 0; head && k < x->count; k++)
                head = ares_view_is(x->items[k].text, "classifier") ||
                       ares_view_is(x->items[k].text, "score");
            if (head) continue;
            ares_str text = { 0 };
            ares_json_write(&text, x);
            int rc = ares_fail(ARES_EUNSUPPORTED,
                               "%s: %.*s = %.80s: changes the forward pass, and is not offered",
                               where, (int)key.len, key.data, text.data);
            ares_str_fini(&text);
            return rc;
        }
        if (x->type == ARES_JSON_OBJECT && !x->count) continue;
        if (tell)
            ares_warn("%s: %.*s: no key of an adapter that is known here; it is not read", where,
                      (int)key.len, key.data);
    }
    /* a rank or alpha that is null is no number, where an absent one is PEFT's default */
    static const char *const numbers[] = { "r", "lora_alpha" };
    for (int i = 0; i < ARES_COUNT(numbers); i++) {
        const ares_json *x = ares_json_get(config, numbers[i]);
        if (x && x->type == ARES_JSON_NULL)
            return ares_fail(ARES_ECONFIG, "%s: %s = null: not a number", where, numbers[i]);
    }
    return ARES_OK;
}

/*
 * The name of the module that a tensor of an adapter belongs to, as the candidates spell it: older
 * files of Qwen2-VL have transformers' former names, and of a wrapped Qwen3.5 they depend on the
 * class that PEFT was given.
 */
static const char *module_in(const ares_model_config *base, const char *name, size_t len,
                             ares_arena *arena)
{
    static const struct {
        const char *old, *now;
    } spelled[] = { { "model.visual.", "model.visual." },
                    { "visual.", "model.visual." },
                    { "model.language_model.", "model.language_model." },
                    { "language_model.model.", "model.language_model." },
                    { "model.layers.", "model.language_model.layers." } };
    static const char wrapped[] = "model.language_model.";
    char *own = ares_arena_copy(arena, name, len);
    if (base->wrapped && strncmp(own, wrapped, sizeof wrapped - 1) == 0)
        return ares_arena_printf(arena, "model.%s", own + sizeof wrapped - 1);
    for (int i = 0; base->vision.depth && i < ARES_COUNT(spelled); i++)
        if (strncmp(own, spelled[i].old, strlen(spelled[i].old)) == 0)
            return ares_arena_printf(arena, "%s%s", spelled[i].now, own + strlen(spelled[i].old));
    return own;
}

typedef struct peft_reading {
    const char *file;
    const ares_model_config *base;
    const char *base_dir;
    bool critic; /* it has a head of its own */
    ares_arena *arena;
    peft_adapter *out;
} peft_reading;

static int take_floats(const peft_reading *r, const ares_tensor_info *t, float **out)
{
    if (!t->is_float)
        return ares_fail(ARES_EFORMAT, "%s: tensor '%s' is of type %s; F32, F16 and BF16 are read",
                         r->file, t->name, t->dtype_name);
    ares_matrix to = { .dtype = ARES_F32, .layout = ARES_ROWS, .n = 1, .k = (int32_t)t->count };
    to.data = *out = ares_arena_alloc(r->arena, (size_t)t->count * sizeof(float));
    ares_matrix_pack(&to, t->data, t->dtype);
    for (int64_t i = 0; i < t->count; i++)
        if (!isfinite((*out)[i]))
            return ares_fail(ARES_EFORMAT, "%s: tensor '%s' has numbers that are not finite",
                             r->file, t->name);
    return ARES_OK;
}

static int take_matrix(const peft_reading *r, const ares_tensor_info *t, int64_t rows,
                       int64_t columns, bool other_base, float **out)
{
    if (t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns)
        return take_floats(r, t, out);
    return ares_fail(ARES_EFORMAT, "%s: tensor '%s' has shape [%lld, %lld], not [%lld, %lld]%s",
                     r->file, t->name, (long long)t->shape[0],
                     (long long)(t->rank > 1 ? t->shape[1] : 1), (long long)rows,
                     (long long)columns, other_base ? ": an adapter of another base" : "");
}

/* Embeddings and heads that PEFT stores beside an adapted head: they must be the base's. */
static int compare_with_base(const peft_reading *r, const ares_tensor_info *t, const char *module)
{
    ares_safetensors *s;
    ares_str name = { 0 };
    ARES_TRY(ares_safetensors_open(r->base_dir, &s));
    weight_of_module(r->base, module, &name);
    if (strstr(module, "embed_tokens")) {
        ares_str_clear(&name);
        const char *stem = r->base->text_names ? r->base->text_names : "model";
        ares_str_addf(&name, "%s%sembed_tokens.weight", stem, *stem ? "." : "");
    }
    const ares_tensor_info *own = ares_safetensors_find(s, name.data);
    if (!own && strcmp(module, "lm_head") == 0) { /* tied */
        weight_of_module(r->base, "model.embed_tokens", &name);
        if (r->base->vision.depth)
            weight_of_module(r->base, "model.language_model.embed_tokens", &name);
        own = ares_safetensors_find(s, name.data);
    }
    bool same = own && own->is_float && t->is_float && own->count == t->count;
    float *x = ares_malloc(2 * sizeof(float) * 4096), *y = x + 4096;
    for (int64_t at = 0; same && at < t->count; at += 4096) {
        int32_t n = (int32_t)ARES_MIN((int64_t)4096, t->count - at);
        ares_matrix to = { .dtype = ARES_F32, .layout = ARES_ROWS, .n = 1, .k = n, .data = x };
        size_t theirs = ares_dtype_bytes(t->dtype), ours = ares_dtype_bytes(own->dtype);
        ares_matrix_pack(&to, (const char *)t->data + (size_t)at * theirs, t->dtype);
        to.data = y;
        ares_matrix_pack(&to, (const char *)own->data + (size_t)at * ours, own->dtype);
        same = memcmp(x, y, (size_t)n * sizeof *x) == 0;
    }
    ares_free(x);
    ares_safetensors_close(s);
    ares_str_fini(&name);
    if (same) return ARES_OK;
    return ares_fail(
        ARES_EUNSUPPORTED,
        "%s: tensor '%s' holds a changed %s, not the base's; adapters that train whole "
        "layers are not offered",
        r->file, t->name, module);
}

/* A tensor that is no A or B of a module. */
static int take_other(const peft_reading *r, const ares_tensor_info *t)
{
    static const struct {
        const char *part, *what;
    } known[] = { { "lora_magnitude_vector", "a magnitude of DoRA" },
                  { ".lora_B.bias", "a bias of B" },
                  { "lora_embedding_", "an adapter of the embedding" },
                  { ".patch_embed.", "an adapter of the convolution that reads patches" } };
    for (int i = 0; i < ARES_COUNT(known); i++)
        if (strstr(t->name, known[i].part))
            return ares_fail(ARES_EUNSUPPORTED, "%s: tensor '%s' is %s, which is not offered",
                             r->file, t->name, known[i].what);
    if (strncmp(t->name, LORA_PREFIX, sizeof LORA_PREFIX - 1) != 0)
        return ares_fail(ARES_EFORMAT,
                         "%s: tensor '%s' does not begin with " LORA_PREFIX
                         ", as those of an adapter do",
                         r->file, t->name);
    const char *rest = t->name + sizeof LORA_PREFIX - 1, *end;
    bool weight = r->critic && strcmp(rest, "score.weight") == 0;
    if (weight) return take_matrix(r, t, 1, r->base->hidden, false, &r->out->score);
    if (r->critic && strcmp(rest, "score.bias") == 0 && t->count == 1)
        return take_floats(r, t, &r->out->score_bias);
    if ((end = strstr(rest, ".base_layer.weight")) || (end = strstr(rest, "lm_head.weight")) ||
        (end = strstr(rest, "embed_tokens.weight"))) {
        size_t n = strstr(rest, ".base_layer.weight") ? (size_t)(end - rest)
                                                      : strlen(rest) - strlen(".weight");
        return compare_with_base(r, t, module_in(r->base, rest, n, r->arena));
    }
    return ares_fail(ARES_EFORMAT,
                     "%s: tensor '%s' belongs to no module that adapter_config.json selects",
                     r->file, t->name);
}

/* The module and side of ".lora_A.weight", ".lora_B.default.weight" ...; NULL: it is another. */
static const char *side_of(const peft_reading *r, const char *name, bool *b)
{
    static const char *const ends[2][2] = { { ".lora_A.weight", ".lora_A.default.weight" },
                                            { ".lora_B.weight", ".lora_B.default.weight" } };
    size_t n = strlen(name);
    if (strncmp(name, LORA_PREFIX, sizeof LORA_PREFIX - 1) != 0) return NULL;
    for (int side = 0; side < 2; side++)
        for (int form = 0; form < 2; form++) {
            size_t m = strlen(ends[side][form]);
            if (n <= m + sizeof LORA_PREFIX - 1 || strcmp(name + n - m, ends[side][form]) != 0)
                continue;
            *b = side;
            return module_in(r->base, name + sizeof LORA_PREFIX - 1,
                             n - m - (sizeof LORA_PREFIX - 1), r->arena);
        }
    return NULL;
}

static int take_tensors(const peft_reading *r, const ares_safetensors *s)
{
    const lora_config *lora = &r->out->lora;
    ares_map *numbers = ares_map_new();
    int rc = ARES_OK;
    int64_t fit = 0;
    for (int32_t i = 0; i < lora->n; i++)
        ares_map_put(numbers, ares_view_of(lora->modules[i].name), i);
    /* where no shape fits although the ranks do, it was trained beside another base */
    for (int pass = 0; pass < 2 && rc == ARES_OK; pass++)
        for (int64_t k = 0; k < ares_safetensors_count(s) && rc == ARES_OK; k++) {
            const ares_tensor_info *t = ares_safetensors_at(s, k);
            bool b;
            int64_t i;
            const char *module = side_of(r, t->name, &b);
            bool ours = module && ares_map_get(numbers, ares_view_of(module), &i);
            if (!ours) {
                if (pass) rc = take_other(r, t);
                continue;
            }
            const lora_module *m = &lora->modules[i];
            int64_t rows = b ? m->out : m->rank, columns = b ? m->rank : m->in;
            if (!pass) fit += t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns;
            else
                rc = take_matrix(r, t, rows, columns, fit == 0 && t->shape[b ? 1 : 0] == m->rank,
                                 b ? &r->out->b[i] : &r->out->a[i]);
        }
    for (int32_t i = 0; i < lora->n && rc == ARES_OK; i++)
        if (!r->out->a[i] || !r->out->b[i])
            rc = ares_fail(ARES_EFORMAT,
                           "%s: no tensor '" LORA_PREFIX
                           "%s.lora_%c.weight', which adapter_config.json "
                           "selects",
                           r->file, lora->modules[i].name, r->out->a[i] ? 'B' : 'A');
    ares_map_free(numbers);
    return rc;
}

/* Whether tensors belong to layers of a vision tower. */
static bool has_tower(const peft_reading *r, const ares_safetensors *s)
{
    bool b, found = false;
    for (int64_t i = 0; r->base->vision.depth && i < ares_safetensors_count(s) && !found; i++) {
        const char *module = side_of(r, ares_safetensors_at(s, i)->name, &b);
        found = module && strncmp(module, "model.visual.", strlen("model.visual.")) == 0;
    }
    return found;
}

int peft_open(const char *path, const char *base_dir, const ares_model_config *base, bool tell,
              ares_arena *arena, peft_adapter *out)
{
    ares_str dir = { 0 }, file = { 0 }, text = { 0 };
    const ares_json *config;
    ares_safetensors *s = NULL;
    bool critic = false;
    *out = (peft_adapter){ 0 };
    int rc = ares_adapter_find(path, &dir);
    if (rc == ARES_OK)
        rc = ares_file_read(ares_path_join(&file, dir.data, "adapter_config.json"), &text);
    if (rc == ARES_OK) rc = ares_json_parse(arena, ares_str_view(&text), file.data, &config);
    const char *where = ares_arena_printf(arena, "adapter: %s", file.data ? file.data : path);
    if (rc == ARES_OK) rc = check_config(where, config, tell, &critic);
    if (rc == ARES_OK)
        rc =
            ares_safetensors_open(ares_path_join(&file, dir.data, "adapter_model.safetensors"), &s);
    peft_reading r = { .file =
                           ares_arena_printf(arena, "adapter: %s", file.data ? file.data : path),
                       .base = base,
                       .base_dir = base_dir,
                       .critic = critic,
                       .arena = arena,
                       .out = out };
    /* gate_proj is the tower's, too: the file says whether it was trained beside a frozen one */
    if (rc == ARES_OK)
        rc = lora_select(base, has_tower(&r, s), tell, config, where, arena, &out->lora);
    if (rc == ARES_OK) {
        size_t n = (size_t)out->lora.n;
        out->a = ares_arena_calloc(arena, n, sizeof *out->a);
        out->b = ares_arena_calloc(arena, n, sizeof *out->b);
        const char *print = ares_safetensors_note(s, LORA_BASE_NOTE);
        if (print) out->base_print = ares_arena_copy(arena, print, strlen(print));
        rc = take_tensors(&r, s);
        if (rc == ARES_OK && critic && (!out->score || !out->score_bias))
            rc = ares_fail(ARES_EFORMAT, "%s: no tensor '" LORA_PREFIX "score.weight' and its bias",
                           r.file);
    }
    if (s) ares_safetensors_close(s);
    ares_str_fini(&dir);
    ares_str_fini(&file);
    ares_str_fini(&text);
    return rc;
}

/* ---------------- merging */

int peft_open_to_merge(const char *verb, const char *path, const char *base_dir,
                       const ares_model_config *base, ares_arena *arena, peft_adapter *out)
{
    ARES_TRY(peft_open(path, base_dir, base, true, arena, out));
    if (!out->score) return peft_compare_base(base_dir, path, out);
    return ares_fail(ARES_EUNSUPPORTED,
                     "%s: '%s' is a critic's adapter (task_type TOKEN_CLS); it is not merged", verb,
                     path);
}

int32_t peft_module_of(const peft_adapter *p, const ares_model_config *base, const char *tensor)
{
    ares_str name = { 0 };
    int32_t found = -1;
    for (int32_t i = 0; i < p->lora.n && found < 0; i++) {
        weight_of_module(base, p->lora.modules[i].name, &name);
        if (strcmp(name.data, tensor) == 0) found = i;
    }
    ares_str_fini(&name);
    return found;
}

void peft_add_row(const peft_adapter *p, int32_t i, int64_t row, const float *w, float *sum)
{
    const lora_module *m = &p->lora.modules[i];
    const float *a = p->a[i], *b = p->b[i] + row * m->rank;
    memset(sum, 0, (size_t)m->in * sizeof *sum);
    for (int32_t r = 0; r < m->rank; r++)
        for (int32_t c = 0; c < m->in; c++) sum[c] += b[r] * a[(int64_t)r * m->in + c];
    for (int32_t c = 0; c < m->in; c++) sum[c] = w[c] + m->scale * sum[c];
}

typedef struct merging {
    const ares_model_config *base;
    const ares_safetensors *files;
    const peft_adapter *peft;
    const char *in, *out; /* directories */
    bool own_dtype;       /* each tensor keeps its type */
    ares_dtype dtype;     /* otherwise */
    bool untied;          /* the head of a tied base is adapted */
    const char *head;     /* the tensor that it is, where files have no head; otherwise NULL */
    const char *last;     /* the file that lm_head.weight then goes into */
    ares_merge_report *report;
} merging;

static ares_dtype dtype_written(const merging *m, const ares_tensor_info *t)
{
    return m->own_dtype ? t->dtype : m->dtype;
}

static int32_t module_of(const merging *m, const char *tensor)
{
    return peft_module_of(m->peft, m->base, tensor);
}

/* Rows of a tensor in the type of the file, with the adapter of module i added; i < 0: none. */
static int write_tensor(const merging *m, ares_safetensors_writer *w, const ares_tensor_info *t,
                        int32_t i)
{
    ares_dtype dtype = dtype_written(m, t);
    if (i < 0 && dtype == t->dtype) return ares_safetensors_write(w, t->data, (size_t)t->bytes);
    int64_t columns = t->rank > 1 ? t->count / t->shape[0] : t->count, rows = t->count / columns;
    size_t each = ares_dtype_bytes(dtype), theirs = ares_dtype_bytes(t->dtype);
    float *x = ares_malloc((size_t)columns * 3 * sizeof *x), *sum = x + columns,
          *back = x + 2 * columns;
    void *bytes = ares_malloc((size_t)columns * each);
    int rc = ARES_OK;
    for (int64_t row = 0; row < rows && rc == ARES_OK; row++) {
        model_widen(x, (const char *)t->data + (size_t)(row * columns) * theirs, t->dtype, columns);
        if (i >= 0) peft_add_row(m->peft, i, row, x, sum);
        model_narrow(bytes, dtype, i >= 0 ? sum : x, columns);
        for (int64_t c = 0; i >= 0 && c < columns; c++) {
            if (c == 0) model_widen(back, bytes, dtype, columns);
            m->report->numbers++;
            m->report->moved += back[c] != x[c];
            m->report->largest = fmax(m->report->largest, fabs((double)back[c] - (double)x[c]));
        }
        rc = ares_safetensors_write(w, bytes, (size_t)columns * each);
    }
    ares_free(x);
    ares_free(bytes);
    return rc;
}

/* All tensors of one of the base's files, in the order of its header. */
static int write_shard(const merging *m, const char *file)
{
    ares_safetensors_writer *w;
    ares_str path = { 0 };
    const char *slash = strrchr(file, '/');
    bool with_head = m->head && strcmp(file, m->last) == 0;
    const ares_tensor_info *tied = with_head ? ares_safetensors_find(m->files, m->head) : NULL;
    int rc = ares_safetensors_create(ares_path_join(&path, m->out, slash ? slash + 1 : file), &w);
    ares_str_fini(&path);
    ARES_TRY(rc);
    int64_t n = ares_safetensors_count(m->files);
    for (int64_t i = 0; i < n; i++) {
        const ares_tensor_info *t = ares_safetensors_at(m->files, i);
        if (strcmp(t->file, file) == 0)
            ares_safetensors_declare(w, t->name, dtype_written(m, t), t->rank, t->shape);
    }
    if (with_head)
        ares_safetensors_declare(w, "lm_head.weight", dtype_written(m, tied), 2, tied->shape);
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        const ares_tensor_info *t = ares_safetensors_at(m->files, i);
        if (strcmp(t->file, file) == 0) rc = write_tensor(m, w, t, module_of(m, t->name));
    }
    if (with_head && rc == ARES_OK) rc = write_tensor(m, w, tied, module_of(m, "lm_head.weight"));
    int end = ares_safetensors_finish(w);
    return rc != ARES_OK ? rc : end;
}

/* Whether config.json and the index of files are written anew. */
static bool says_otherwise(const merging *m)
{
    return m->untied || !m->own_dtype;
}

/* The base's other files; weights in other forms, and folders, stay behind. */
static int copy_files(const merging *m)
{
    static const char *const weights[] = { ".safetensors", ".bin",     ".pt", ".pth",
                                           ".gguf",        ".msgpack", ".h5", ".onnx" };
    ares_str from = { 0 }, to = { 0 }, text = { 0 };
    int rc = ARES_OK;
    DIR *d = opendir(m->in);
    if (!d) return ares_fail(ARES_EIO, "merge: '%s': cannot be listed: %s", m->in, strerror(errno));
    for (struct dirent *e; rc == ARES_OK && (e = readdir(d));) {
        struct stat st;
        bool skip = e->d_name[0] == '.' && (!e->d_name[1] || e->d_name[1] == '.');
        for (int i = 0; i < ARES_COUNT(weights); i++)
            skip |= model_name_ends(e->d_name, weights[i]);
        skip |= says_otherwise(m) && (model_name_ends(e->d_name, ".safetensors.index.json") ||
                                      strcmp(e->d_name, "config.json") == 0);
        if (skip || stat(ares_path_join(&from, m->in, e->d_name), &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        ares_str_clear(&text);
        rc = ares_file_read(from.data, &text);
        if (rc == ARES_OK)
            rc = ares_file_write(ares_path_join(&to, m->out, e->d_name), text.data, text.len);
    }
    closedir(d);
    ares_str_fini(&from);
    ares_str_fini(&to);
    ares_str_fini(&text);
    return rc;
}

/* An object of config.json; in those of its parts, only keys that are there are changed. */
static void write_keys(const merging *m, const ares_json *o, bool part, ares_str *out)
{
    static const char *const types[] = {
        [ARES_F32] = "float32", [ARES_BF16] = "bfloat16", [ARES_F16] = "float16"
    };
    bool typed = m->own_dtype || part, tie = m->untied && !part;
    ares_json_begin(out, '{');
    for (int64_t i = 0; i < o->count; i++) {
        const ares_json_member *x = &o->members[i];
        ares_str *to = ares_json_key_view(out, x->key);
        bool type = ares_view_is(x->key, "dtype") || ares_view_is(x->key, "torch_dtype"),
             tied = ares_view_is(x->key, "tie_word_embeddings"),
             inner = ares_view_is(x->key, "text_config") || ares_view_is(x->key, "vision_config");
        typed |= type;
        tie &= !tied;
        if (m->untied && tied) ares_json_write_bool(to, false);
        else if (!m->own_dtype && type) ares_json_write_string(to, ares_view_of(types[m->dtype]));
        else if (inner && x->value->type == ARES_JSON_OBJECT) write_keys(m, x->value, true, to);
        else ares_json_write(to, x->value);
    }
    if (tie) ares_json_write_bool(ares_json_key(out, "tie_word_embeddings"), false);
    if (!typed)
        ares_json_write_string(ares_json_key(out, "torch_dtype"), ares_view_of(types[m->dtype]));
    ares_json_end(out, '}');
}

/* config.json with the type of all tensors and without the tie of an adapted head; the index of
 * files, where there are several. */
static int write_config(const merging *m)
{
    ares_arena arena = { 0 };
    ares_str path = { 0 }, text = { 0 }, out = { 0 };
    const ares_json *root;
    int rc = ares_file_read(ares_path_join(&path, m->in, "config.json"), &text);
    if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), path.data, &root);
    if (rc == ARES_OK) {
        write_keys(m, root, false, &out);
        ares_str_clear(&text);
        ares_json_indent(&text, ares_str_view(&out), 2);
        ares_str_add_char(&text, '\n');
        rc = ares_file_write(ares_path_join(&path, m->out, "config.json"), text.data, text.len);
    }
    const char *index = ares_path_join(&path, m->in, "model.safetensors.index.json");
    if (rc == ARES_OK && ares_file_exists(index)) {
        int64_t bytes = 0;
        ares_str_clear(&out);
        ares_json_begin(&out, '{');
        ares_json_begin(ares_json_key(&out, "weight_map"), '{');
        for (int64_t i = 0; i < ares_safetensors_count(m->files); i++) {
            const ares_tensor_info *t = ares_safetensors_at(m->files, i);
            const char *slash = strrchr(t->file, '/');
            ares_json_write_string(ares_json_key(&out, t->name),
                                   ares_view_of(slash ? slash + 1 : t->file));
            bytes += t->count * (int64_t)ares_dtype_bytes(dtype_written(m, t)) *
                     (m->head && strcmp(t->name, m->head) == 0 ? 2 : 1);
        }
        const char *slash = strrchr(m->last, '/');
        if (m->head)
            ares_json_write_string(ares_json_key(&out, "lm_head.weight"),
                                   ares_view_of(slash ? slash + 1 : m->last));
        ares_json_end(&out, '}');
        ares_json_begin(ares_json_key(&out, "metadata"), '{');
        ares_json_write_i64(ares_json_key(&out, "total_size"), bytes);
        ares_json_end(&out, '}');
        ares_json_end(&out, '}');
        rc = ares_file_write(ares_path_join(&path, m->out, "model.safetensors.index.json"),
                             out.data, out.len);
    }
    ares_arena_fini(&arena);
    ares_str_fini(&path);
    ares_str_fini(&text);
    ares_str_fini(&out);
    return rc;
}

static int write_merged(merging *m)
{
    const char *done = NULL;
    for (int64_t i = 0; i < ares_safetensors_count(m->files); i++) {
        const ares_tensor_info *t = ares_safetensors_at(m->files, i);
        if (!t->is_float)
            return ares_fail(ARES_EUNSUPPORTED,
                             "merge: %s: tensor '%s' is of type %s, which is not written", t->file,
                             t->name, t->dtype_name);
        m->last = t->file;
    }
    for (int64_t i = 0; i < ares_safetensors_count(m->files); i++) {
        const char *file = ares_safetensors_at(m->files, i)->file;
        if (done && strcmp(done, file) == 0) continue; /* headers are read file after file */
        ARES_TRY(write_shard(m, file));
        done = file;
    }
    ARES_TRY(copy_files(m));
    return says_otherwise(m) ? write_config(m) : ARES_OK;
}

/* The folder that is renamed to `out` once it is whole, and those above it. */
static int make_part(const char *out, ares_str *part)
{
    const char *slash = strrchr(out, '/');
    if (slash && slash > out) {
        ares_str above = { 0 };
        ares_str_add(&above, out, (size_t)(slash - out));
        int rc = ares_dir_make(above.data);
        ares_str_fini(&above);
        ARES_TRY(rc);
    }
    return model_make_part("merge", out, NULL, part);
}

int ares_adapter_merge(const char *model, const char *adapter, const char *out, const char *dtype,
                       ares_merge_report *report)
{
    static const char *const names[] = { "fp32", "bf16", "f16" };
    static const ares_dtype types[] = { ARES_F32, ARES_BF16, ARES_F16 };
    ares_arena arena = { 0 };
    ares_str dir = { 0 }, part = { 0 }, to = { 0 };
    struct stat st;
    ares_model_config base;
    ares_safetensors *files = NULL;
    peft_adapter peft;
    int kind = 0;
    *report = (ares_merge_report){ 0 };
    if (dtype) ARES_TRY(ares_lookup(ARES_EUSE, "--dtype", dtype, names, 3, &kind));
    ARES_TRY(ares_model_adapter(model, adapter, &adapter));
    if (!adapter)
        return ares_fail(ARES_EUSE,
                         "merge: --adapter is missing; only a checkpoint or run of an adapter, "
                         "which '%s' is not, does without",
                         model);
    ares_str_add_z(&to, out);
    while (to.len > 1 && to.data[to.len - 1] == '/') to.data[--to.len] = 0;
    int rc =
        lstat(to.data, &st) == 0
            ? ares_fail(ARES_EUSE, "merge: --out = '%s': is there; name another directory", out)
            : ares_model_find(model, &dir);
    if (rc == ARES_OK) rc = ares_model_config_load(dir.data, &base);
    if (rc == ARES_OK) rc = ares_safetensors_open(dir.data, &files);
    if (rc == ARES_OK) model_find_names(files, &base);
    if (rc == ARES_OK) rc = peft_open_to_merge("merge", adapter, dir.data, &base, &arena, &peft);
    if (rc == ARES_OK) {
        ares_str name = { 0 };
        merging m = { .base = &base,
                      .files = files,
                      .peft = &peft,
                      .in = dir.data,
                      .own_dtype = !dtype,
                      .dtype = types[kind],
                      .report = report };
        report->modules = peft.lora.n;
        bool stored = ares_safetensors_find(files, "lm_head.weight");
        m.untied = (base.tied || !stored) && module_of(&m, "lm_head.weight") >= 0;
        if (m.untied && !stored) {
            weight_of_module(&base,
                             base.vision.depth ? "model.language_model.embed_tokens"
                                               : "model.embed_tokens",
                             &name);
            m.head = name.data;
        }
        rc = make_part(to.data, &part);
        if (rc == ARES_OK) {
            m.out = part.data;
            rc = write_merged(&m);
            if (rc == ARES_OK && rename(part.data, to.data) != 0)
                rc = ares_fail(ARES_EIO, "merge: '%s': cannot be made: %s", out, strerror(errno));
            if (rc != ARES_OK) (void)ares_dir_remove(part.data);
        }
        ares_str_fini(&name);
    }
    if (files) ares_safetensors_close(files);
    ares_arena_fini(&arena);
    ares_str_fini(&dir);
    ares_str_fini(&part);
    ares_str_fini(&to);
    return rc;
}
