/*
 * Parameters from and to Hugging Face's files, and new ones. Files always hold row-major tensors;
 * panels exist in memory only.
 */
#include "hf_config.h"
#include "param.h"
#include "region.h"
#include "save.h"
#include "transfer.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A rotary table, which old files have per layer. */
static bool is_frequencies(const char *name)
{
    size_t n = strlen(name);
    return n > 20 && strcmp(name + n - 20, ".rotary_emb.inv_freq") == 0;
}

/* Tensors of files that no model needs; untie has compared a head. */
static bool superfluous(const ares_model *m, const char *name)
{
    return (m->cfg.tied && strcmp(name, "lm_head.weight") == 0) || is_frequencies(name);
}

/* Frequencies of a file against those that config.json asks for, which are used. */
static bool are_ours(const ares_model *m, const ares_tensor_info *t)
{
    const ares_rope_config *rope = &m->cfg.rope;
    if (rope->kind != ARES_ROPE_DEFAULT || !t->is_float || t->dtype != ARES_F32 ||
        t->count != m->cfg.head_dim / 2)
        return false;
    for (int64_t i = 0; i < t->count; i++) {
        float have;
        double want = pow(rope->theta, -2.0 * (double)i / m->cfg.head_dim);
        memcpy(&have, (const char *)t->data + i * (int64_t)sizeof have, sizeof have);
        if (!(fabs(have - want) <= 1e-3 * want)) return false;
    }
    return true;
}

/* What config.json says of quantised weights; *method lives in the arena. Data NULL: nothing. */
static void find_quantisation(const char *dir, ares_arena *arena, ares_view *method)
{
    ares_str path = { 0 }, text = { 0 };
    const ares_json *root = NULL;
    *method = (ares_view){ 0 };
    if (ares_file_read(ares_path_join(&path, dir, "config.json"), &text) == ARES_OK &&
        ares_json_parse(arena, ares_str_view(&text), path.data, &root) == ARES_OK) {
        const ares_json *q = ares_json_get(root, "quantization_config"),
                        *name = ares_json_get(q, "quant_method");
        if (q && q->type == ARES_JSON_OBJECT && q->count) *method = ARES_VIEW("unnamed scheme");
        if (name && name->type == ARES_JSON_STRING) *method = name->text;
    }
    ares_str_fini(&path);
    ares_str_fini(&text);
}

/* A tensor that belongs to no parameter, by what its name is known for. */
static int refuse_tensor(const ares_model *m, const ares_tensor_info *t, ares_view method)
{
    static const struct {
        const char *part, *scheme;
    } quantised[] = {
        { ".qweight", "GPTQ or AWQ" },
        { ".qzeros", "GPTQ or AWQ" },
        { ".scales", "GPTQ or AWQ" },
        { ".g_idx", "GPTQ" },
        { ".weight_scale", "FP8 or compressed-tensors" },
        { ".input_scale", "FP8 or compressed-tensors" },
        { ".weight_packed", "compressed-tensors" },
        { ".weight_zero_point", "compressed-tensors" },
        { ".absmax", "bitsandbytes" },
        { ".quant_", "bitsandbytes" },
        { ".SCB", "bitsandbytes" },
    };
    for (int i = 0; i < ARES_COUNT(quantised); i++)
        if (strstr(t->name, quantised[i].part)) {
            if (!method.data) method = ares_view_of(quantised[i].scheme);
            return ares_fail(ARES_EUNSUPPORTED,
                             "model: %s: tensor '%s' is of quantised weights (%.*s), which are not "
                             "read; take the unquantised model that they were made from",
                             t->file, t->name, (int)method.len, method.data);
        }
    if (strstr(t->name, ".lora_"))
        return ares_fail(
            ARES_EUNSUPPORTED,
            "model: %s: tensor '%s' is of an adapter, which is not read; merge it into "
            "its base model (in Python: PeftModel's merge_and_unload()) and save that",
            t->file, t->name);
    return ares_fail(ARES_EFORMAT,
                     "model: %s: tensor '%s' belongs to no parameter of a %s; is config.json of "
                     "another model?",
                     t->file, t->name, m->cfg.model_type);
}

static const char *shape_text(ares_str *s, int rank, const int64_t *shape)
{
    ares_str_clear(s);
    ares_str_add_char(s, '[');
    for (int i = 0; i < rank; i++) ares_str_addf(s, i ? ", %lld" : "%lld", (long long)shape[i]);
    ares_str_add_char(s, ']');
    return s->data;
}

static int check_param(const ares_param *p, const ares_tensor_info *t, const char *dir)
{
    ares_str want = { 0 }, have = { 0 };
    int rc = ARES_OK;
    shape_text(&want, p->rank, p->shape);
    if (!t)
        rc = ares_fail(ARES_EFORMAT, "model: %s: tensor '%s' is missing; expected shape %s", dir,
                       p->name, want.data);
    else if (!t->is_float)
        rc = ares_fail(ARES_EUNSUPPORTED,
                       "model: %s: tensor '%s' is %s, of quantised weights; take the model that "
                       "they were made from (choices: F32, BF16, F16)",
                       t->file, p->name, t->dtype_name);
    else if (!param_has_shape(p, t))
        rc = ares_fail(ARES_EFORMAT, "model: %s: tensor '%s' has shape %s; config.json asks for %s",
                       t->file, p->name, shape_text(&have, t->rank, t->shape), want.data);
    ares_str_fini(&want);
    ares_str_fini(&have);
    return rc;
}

typedef struct loading {
    ares_model *m;
    const ares_safetensors *s;
    float *fresh; /* the weight of a value head that the files lack; NULL: they have it */
} loading;

/*
 * As transformers 5: a model that config.json ties stays tied where the files lack a head of its
 * own or have the same numbers there; another head holds.
 */
static void untie(const ares_safetensors *s, const char *dir, ares_model_config *c)
{
    static const char head[] = "lm_head.weight";
    const ares_tensor_info *own = ares_safetensors_find(s, head), *shared = NULL;
    for (int64_t i = 0; own && i < ares_safetensors_count(s) && !shared; i++)
        if (strstr(ares_safetensors_at(s, i)->name, "embed_tokens.weight"))
            shared = ares_safetensors_at(s, i);
    if (!c->tied || !shared) return;
    if (own->bytes == shared->bytes && own->dtype == shared->dtype &&
        memcmp(own->data, shared->data, (size_t)own->bytes) == 0)
        return;
    c->tied = false;
    ares_warn("model: %s: tie_word_embeddings is true in config.json, but %s is not %s; the head "
              "of its own holds, as in transformers 5; set tie_word_embeddings to false",
              dir, head, shared->name);
}

/* transformers converts what it loads to the type that config.json names. */
static void compare_dtypes(const ares_safetensors *s, const char *dir, const ares_model_config *c)
{
    static const char *const names[] = {
        [ARES_F32] = "float32", [ARES_BF16] = "bfloat16", [ARES_F16] = "float16"
    };
    const ares_tensor_info *first = NULL;
    for (int64_t i = 0; c->says_dtype && i < ares_safetensors_count(s) && !first; i++)
        if (ares_safetensors_at(s, i)->is_float && ares_safetensors_at(s, i)->rank > 1)
            first = ares_safetensors_at(s, i);
    if (first && first->dtype != c->file_dtype)
        ares_warn("model: %s: config.json says %s, and the first matrix, '%s', is %s; weights are "
                  "read as they are stored, where transformers 5 converts them",
                  dir, names[c->file_dtype], first->name, first->dtype_name);
}

static int load_piece(void *ctx, const piece *x)
{
    static const float zero;
    loading *l = ctx;
    if (l->fresh && x->p == l->m->value) return piece_put(l->m, x, l->fresh, ARES_F32);
    if (l->fresh && x->p == l->m->value_bias) return piece_put(l->m, x, &zero, ARES_F32);
    const ares_tensor_info *t = ares_safetensors_find(l->s, x->p->name);
    return piece_put(l->m, x, t->data, t->dtype);
}

/* A value head that the files lack: the weight as transformers draws it, the bias 0. */
static float *new_value_head(const ares_model *m, uint64_t seed)
{
    float *rows = ares_calloc((size_t)m->cfg.hidden, sizeof *rows);
    ares_rng_key key = ares_rng_sub(ares_rng_root(seed, ARES_RNG_INIT), UINT64_MAX, 0);
    for (int32_t i = 0; i < m->cfg.hidden; i++)
        rows[i] = (float)(0.02 * ares_rng_normal(key, (uint64_t)i));
    return rows;
}

static int load_weights(ares_model *m, const ares_safetensors *s, const char *dir,
                        uint64_t value_seed)
{
    loading l = { .m = m, .s = s };
    ares_arena arena = { 0 };
    ares_view method;
    bool told = false;
    int rc = ARES_OK;
    find_quantisation(dir, &arena, &method);
    for (int64_t i = 0; i < ares_safetensors_count(s) && rc == ARES_OK; i++) {
        const ares_tensor_info *t = ares_safetensors_at(s, i);
        if (!model_param(m, t->name) && !superfluous(m, t->name)) rc = refuse_tensor(m, t, method);
        else if (is_frequencies(t->name) && !told && !are_ours(m, t)) {
            told = true;
            ares_warn("model: %s: tensor '%s' is not used, and differs from the rope that "
                      "config.json asks for (rope_theta %g), which holds, as in transformers 5",
                      t->file, t->name, m->cfg.rope.theta);
        }
    }
    bool fresh = m->value && !ares_safetensors_find(s, m->value->name);
    for (int i = 0; i < m->n_params && rc == ARES_OK; i++)
        if (!fresh || (&m->params[i] != m->value && &m->params[i] != m->value_bias))
            rc = check_param(&m->params[i], ares_safetensors_find(s, m->params[i].name), dir);
    if (rc == ARES_OK && method.data)
        ares_warn("model: %s/config.json: quantization_config (%.*s) is not applied: the weights "
                  "are not quantised, and are trained as they stand",
                  dir, (int)method.len, method.data);
    ares_arena_fini(&arena);
    if (fresh) l.fresh = new_value_head(m, value_seed);
    if (rc == ARES_OK) rc = pieces_held(m, OF_WEIGHTS, load_piece, &l);
    if (rc == ARES_OK) rc = regions_refresh(m);
    ares_free(l.fresh);
    return rc;
}

/* owner/name, as models are called on the Hugging Face hub. */
static bool is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    if (!slash || slash == path || !slash[1] || strchr(slash + 1, '/')) return false;
    for (const char *c = path; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("/-_.", *c)) return false;
    return path[0] != '.' && path[0] != '-';
}

static int refuse_path(const char *path)
{
    ares_str probe = { 0 }, text = { 0 };
    ares_arena arena = { 0 };
    int rc;
    if (!ares_dir_exists(path)) {
        size_t n = strlen(path);
        if (n > 5 && strcmp(path + n - 5, ".gguf") == 0)
            rc = ares_fail(ARES_EUNSUPPORTED,
                           "model: %s: GGUF is not read; take the model that it was made from, in "
                           "safetensors",
                           path);
        else if (ares_file_exists(path))
            rc = ares_fail(ARES_EIO, "model: %s: a file; name the directory that holds it", path);
        else if (is_hub_name(path))
            rc =
                ares_fail(ARES_EIO,
                          "model: %s: no such directory; models are not fetched: if this is a "
                          "name on the Hugging Face hub, run 'hf download %s --local-dir %s' first",
                          path, path, path);
        else rc = ares_fail(ARES_EIO, "model: %s: no such directory", path);
    } else if (ares_file_exists(ares_path_join(&probe, path, "adapter_config.json"))) {
        const ares_json *root = NULL, *base = NULL;
        if (ares_file_read(probe.data, &text) == ARES_OK &&
            ares_json_parse(&arena, ares_str_view(&text), probe.data, &root) == ARES_OK)
            base = ares_json_get(root, "base_model_name_or_path");
        bool named = base && base->type == ARES_JSON_STRING && base->text.len;
        rc = ares_fail(ARES_EUNSUPPORTED,
                       "model: %s: an adapter, not a model; merge it into %s%.*s (in Python: "
                       "PeftModel's merge_and_unload()) and name what that saves",
                       path, named ? "" : "its base model", named ? (int)base->text.len : 0,
                       named ? base->text.data : "");
    } else
        rc = ares_fail(ARES_EFORMAT,
                       "model: %s: neither a model (no config.json), nor a checkpoint (no "
                       "model/config.json), nor a run (no checkpoints/)",
                       path);
    ares_str_fini(&probe);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return rc;
}

int ares_model_find(const char *path, ares_str *dir)
{
    static const char *const inner[] = { "config.json", "model/config.json" };
    ares_str probe = { 0 }, name = { 0 };
    int rc = ARES_OK;
    ares_str_clear(dir);
    for (int i = 0; i < 2 && !dir->len; i++)
        if (ares_file_exists(ares_path_join(&probe, path, inner[i])))
            ares_str_add(dir, probe.data, probe.len - strlen("/config.json"));
    if (!dir->len && ares_dir_exists(ares_path_join(&probe, path, "checkpoints"))) {
        rc = ares_checkpoint_latest(probe.data, &name);
        if (rc == ARES_OK && !name.len)
            rc = ares_fail(ARES_EFORMAT, "model: %s: the run has no checkpoint yet", path);
        if (rc == ARES_OK) {
            ares_str_add_view(dir, ares_str_view(&probe));
            ares_str_addf(dir, "/%s/model", name.data);
        }
    } else if (!dir->len) rc = refuse_path(path);
    ares_str_fini(&probe);
    ares_str_fini(&name);
    return rc;
}

/* The two forms of a vision model's names, which say nothing about that of its config.json. */
static void find_names(const ares_safetensors *s, ares_model_config *c)
{
    for (int64_t i = 0; i < ares_safetensors_count(s) && c->vision.depth; i++) {
        const char *name = ares_safetensors_at(s, i)->name;
        if (strncmp(name, "model.language_model.", 21) == 0) c->text_names = "model.language_model";
        if (strncmp(name, "model.visual.", 13) == 0) c->vision_names = "model.visual";
    }
}

/* A vision model's config.json, of which nothing is made anew. */
static int keep_config(ares_model *m, const char *dir)
{
    ares_str path = { 0 }, text = { 0 };
    int rc = m->cfg.vision.depth ? ares_file_read(ares_path_join(&path, dir, "config.json"), &text)
                                 : ARES_OK;
    if (rc == ARES_OK && text.len) m->config_text = ares_strdup(text.data);
    ares_str_fini(&path);
    ares_str_fini(&text);
    return rc;
}

int ares_model_load(const char *path, ares_device *device, const ares_model_options *opt,
                    ares_model **out)
{
    ares_str dir = { 0 };
    ares_model_config cfg;
    ares_model *m = NULL;
    ares_safetensors *s = NULL;
    int rc = ares_model_find(path, &dir);
    if (rc == ARES_OK) rc = ares_model_config_load(dir.data, &cfg);
    if (rc == ARES_OK && !device->counting) rc = ares_safetensors_open(dir.data, &s);
    if (s) find_names(s, &cfg);
    if (s && !opt->value_head) untie(s, dir.data, &cfg);
    if (s && rc == ARES_OK) compare_dtypes(s, dir.data, &cfg);
    if (rc == ARES_OK) rc = model_allocate(&cfg, device, opt, NULL, &m);
    if (rc == ARES_OK) rc = keep_config(m, dir.data);
    if (rc == ARES_OK && s) rc = load_weights(m, s, dir.data, opt->value_seed);
    if (s) ares_safetensors_close(s);
    ares_str_fini(&dir);
    if (rc != ARES_OK) {
        ares_model_free(m);
        return rc;
    }
    *out = m;
    return ARES_OK;
}

typedef struct init_job {
    ares_model *m;
    uint64_t seed;
    ares_rng_key key; /* of this rectangle's parameter */
    const piece *x;
    float *rows;
} init_job;

enum { INIT_CHUNK = 1 << 14 };

static void init_chunk(void *ctx, int64_t task, int worker)
{
    (void)worker;
    init_job *j = ctx;
    const piece *x = j->x;
    int64_t end = ARES_MIN(x->rows * x->columns, (task + 1) * INIT_CHUNK);
    for (int64_t i = task * INIT_CHUNK; i < end; i++) {
        int64_t row = x->row + i / x->columns, column = x->column + i % x->columns;
        j->rows[i] = (float)(j->m->cfg.initializer_range *
                             ares_rng_normal(j->key, (uint64_t)(row * x->p->weight.k + column)));
    }
}

static int init_piece(void *ctx, const piece *x)
{
    init_job *j = ctx;
    int64_t n = x->rows * x->columns;
    size_t length = strlen(x->p->name);
    bool norm = x->p->rank == 1 && strcmp(x->p->name + length - 7, ".weight") == 0;
    float *rows = ares_calloc((size_t)n, sizeof *rows);
    if (norm)
        for (int64_t e = 0; e < n; e++) rows[e] = 1.0f;
    if (x->p->rank > 1) {
        /* keyed by the name, so that a parameter's values do not depend on the others */
        j->key = ares_rng_sub(ares_rng_root(j->seed, ARES_RNG_INIT),
                              ares_fnv1a(ARES_FNV1A, x->p->name, length), 0);
        j->x = x;
        j->rows = rows;
        ares_pool_run(j->m->device->pool, (n + INIT_CHUNK - 1) / INIT_CHUNK, init_chunk, j);
    }
    int rc = model_put(j->m, &x->memory, rows, ARES_F32);
    ares_free(rows);
    return rc;
}

int ares_model_new(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   uint64_t seed, ares_model **out)
{
    ares_model *m;
    ARES_TRY(model_allocate(cfg, device, opt, NULL, &m));
    init_job job = { .m = m, .seed = seed };
    int rc = pieces_held(m, OF_WEIGHTS, init_piece, &job);
    if (rc == ARES_OK) rc = regions_refresh(m);
    if (rc != ARES_OK) {
        ares_model_free(m);
        return rc;
    }
    *out = m;
    return ARES_OK;
}

static int64_t file_bytes(const ares_model *m, const ares_param *p)
{
    return (int64_t)p->weight.n * p->weight.k * (int64_t)ares_dtype_bytes(m->cfg.file_dtype);
}

static const int64_t shard_limit = 5000000000;

/* The first parameter after the shard that starts at `first`. */
static int shard_end(const ares_model *m, int first)
{
    int64_t bytes = 0;
    int i = first;
    for (; i < m->n_params; i++) {
        bytes += file_bytes(m, &m->params[i]);
        if (bytes > shard_limit && i > first) break;
    }
    return i;
}

/* Which file holds which tensor. */
static int save_index(const ares_model *m, const char *dir, int files)
{
    ares_str index = { 0 }, path = { 0 };
    int64_t total = 0;
    for (int i = 0; i < m->n_params; i++) total += file_bytes(m, &m->params[i]);
    ares_json_begin(&index, '{');
    ares_json_begin(ares_json_key(&index, "metadata"), '{');
    ares_json_write_i64(ares_json_key(&index, "total_size"), total);
    ares_json_end(&index, '}');
    ares_json_begin(ares_json_key(&index, "weight_map"), '{');
    for (int f = 1, first = 0; f <= files; f++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", f, files);
        int end = shard_end(m, first);
        for (int i = first; i < end; i++)
            ares_json_write_string(ares_json_key(&index, m->params[i].name), ares_view_of(name));
        first = end;
    }
    ares_json_end(&index, '}');
    ares_json_end(&index, '}');
    ares_str_add_char(&index, '\n');
    int rc = ares_file_write(ares_path_join(&path, dir, "model.safetensors.index.json"), index.data,
                             index.len);
    ares_str_fini(&index);
    ares_str_fini(&path);
    return rc;
}

static int save_files(const ares_model *m, const char *dir, int files, const ares_writers *by,
                      uint64_t *sum)
{
    ares_str path = { 0 };
    save_file file = save_weights(m, NULL);
    int rc = ARES_OK;
    for (int f = 1, first = 0; f <= files && rc != ARES_EDIST; f++) {
        char name[64] = "model.safetensors";
        if (files > 1) snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", f, files);
        file.path = ares_path_join(&path, dir, name);
        file.first = first;
        first = file.end = shard_end(m, first);
        int saved = save_tensors(m, &file, by, sum);
        if (rc == ARES_OK) rc = saved;
    }
    ares_str_fini(&path);
    return rc;
}

static int begin_save(const ares_model *m, const char *dir)
{
    ares_str path = { 0 };
    ARES_TRY(ares_dir_make(dir));
    if (!m->config_text) return model_config_save(&m->cfg, dir);
    int rc = ares_file_write(ares_path_join(&path, dir, "config.json"), m->config_text,
                             strlen(m->config_text));
    ares_str_fini(&path);
    return rc;
}

int ares_model_save(const ares_model *m, const char *dir, const ares_writers *by, uint64_t *sum)
{
    ares_world *world = by ? by->world : NULL;
    bool lead = ares_world_rank(world) == 0;
    uint64_t own = 0;
    int files = 0;
    for (int i = 0; i < m->n_params; i = shard_end(m, i)) files++;
    ARES_TRY(ares_world_agree(world, lead ? begin_save(m, dir) : ARES_OK));
    int rc = save_files(m, dir, files, by, &own);
    if (rc == ARES_OK && lead && files > 1) rc = save_index(m, dir, files);
    ARES_TRY(save_agree(by, rc, &own));
    if (sum) *sum = own;
    return ARES_OK;
}
