/*
 * Parameters from and to Hugging Face's files, and new ones. Files always hold row-major tensors;
 * panels exist in memory only.
 */
#include "hf_config.h"
#include "param.h"
#include "region.h"
#include "transfer.h"

#include <stdio.h>
#include <string.h>

/* Tensors of files that no model needs: the head of a tied model, rotary tables of old files. */
static bool superfluous(const ares_model *m, const char *name)
{
    size_t n = strlen(name);
    if (m->cfg.tied && strcmp(name, "lm_head.weight") == 0) return true;
    return n > 20 && strcmp(name + n - 20, ".rotary_emb.inv_freq") == 0;
}

static const char *shape_text(ares_str *s, int rank, const int64_t *shape)
{
    ares_str_clear(s);
    ares_str_add_char(s, '[');
    for (int i = 0; i < rank; i++) ares_str_addf(s, i ? ", %lld" : "%lld", (long long)shape[i]);
    ares_str_add_char(s, ']');
    return s->data;
}

static int load_param(ares_model *m, const ares_param *p, const ares_tensor_info *t,
                      const char *dir)
{
    ares_str want = { 0 }, have = { 0 };
    int rc = ARES_OK;
    shape_text(&want, p->rank, p->shape);
    if (!t)
        rc = ares_fail(ARES_EFORMAT, "model: %s: tensor '%s' is missing; expected shape %s", dir,
                       p->name, want.data);
    else if (!t->is_float)
        rc = ares_fail(ARES_EUNSUPPORTED, "model: %s: tensor '%s' is %s (choices: F32, BF16, F16)",
                       t->file, p->name, t->dtype_name);
    else if (t->rank != p->rank || t->shape[0] != p->shape[0] ||
             (p->rank == 2 && t->shape[1] != p->shape[1]))
        rc = ares_fail(ARES_EFORMAT, "model: %s: tensor '%s' has shape %s; config.json asks for %s",
                       t->file, p->name, shape_text(&have, t->rank, t->shape), want.data);
    else rc = model_put(m, &p->weight, t->data, t->dtype);
    ares_str_fini(&want);
    ares_str_fini(&have);
    return rc;
}

/* A value head that the files lack: the weight as transformers draws it, the bias 0. */
static int new_value_head(ares_model *m, uint64_t seed)
{
    float *rows = ares_calloc((size_t)m->cfg.hidden, sizeof *rows), zero = 0;
    ares_rng_key key = ares_rng_sub(ares_rng_root(seed, ARES_RNG_INIT), UINT64_MAX, 0);
    for (int32_t i = 0; i < m->cfg.hidden; i++)
        rows[i] = (float)(0.02 * ares_rng_normal(key, (uint64_t)i));
    int rc = model_put(m, &m->value->weight, rows, ARES_F32);
    if (rc == ARES_OK) rc = model_put(m, &m->value_bias->weight, &zero, ARES_F32);
    ares_free(rows);
    return rc;
}

static int load_weights(ares_model *m, const char *dir, uint64_t value_seed)
{
    ares_safetensors *s;
    ARES_TRY(ares_safetensors_open(dir, &s));
    int rc = ARES_OK;
    for (int64_t i = 0; i < ares_safetensors_count(s) && rc == ARES_OK; i++) {
        const ares_tensor_info *t = ares_safetensors_at(s, i);
        if (!model_param(m, t->name) && !superfluous(m, t->name))
            rc = ares_fail(ARES_EFORMAT,
                           "model: %s: tensor '%s' belongs to no parameter of a %s; is config.json "
                           "of another model?",
                           t->file, t->name, m->cfg.model_type);
    }
    bool fresh_head = m->value && !ares_safetensors_find(s, m->value->name);
    for (int i = 0; i < m->n_params && rc == ARES_OK; i++)
        if (!fresh_head || (&m->params[i] != m->value && &m->params[i] != m->value_bias))
            rc = load_param(m, &m->params[i], ares_safetensors_find(s, m->params[i].name), dir);
    if (rc == ARES_OK && fresh_head) rc = new_value_head(m, value_seed);
    if (rc == ARES_OK) rc = regions_refresh(m);
    ares_safetensors_close(s);
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
    } else if (!dir->len && !ares_dir_exists(path))
        rc = ares_fail(ARES_EIO, "model: %s: no such directory", path);
    else if (!dir->len)
        rc = ares_fail(ARES_EFORMAT,
                       "model: %s: neither a model (no config.json), nor a checkpoint (no "
                       "model/config.json), nor a run (no checkpoints/)",
                       path);
    ares_str_fini(&probe);
    ares_str_fini(&name);
    return rc;
}

int ares_model_load(const char *path, ares_device *device, const ares_model_options *opt,
                    ares_model **out)
{
    ares_str dir = { 0 };
    ares_model_config cfg;
    ares_model *m = NULL;
    int rc = ares_model_find(path, &dir);
    if (rc == ARES_OK) rc = ares_model_config_load(dir.data, &cfg);
    if (rc == ARES_OK) rc = model_allocate(&cfg, device, opt, &m);
    if (rc == ARES_OK) rc = load_weights(m, dir.data, opt->value_seed);
    ares_str_fini(&dir);
    if (rc != ARES_OK) {
        ares_model_free(m);
        return rc;
    }
    *out = m;
    return ARES_OK;
}

typedef struct init_job {
    ares_rng_key key;
    float *rows;
    int64_t n;
    double std;
} init_job;

enum { INIT_CHUNK = 1 << 14 };

static void init_chunk(void *ctx, int64_t task, int worker)
{
    (void)worker;
    init_job *j = ctx;
    int64_t end = ARES_MIN(j->n, (task + 1) * INIT_CHUNK);
    for (int64_t i = task * INIT_CHUNK; i < end; i++)
        j->rows[i] = (float)(j->std * ares_rng_normal(j->key, (uint64_t)i));
}

int ares_model_new(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   uint64_t seed, ares_model **out)
{
    ares_model *m;
    ARES_TRY(model_allocate(cfg, device, opt, &m));
    int rc = ARES_OK;
    for (int i = 0; i < m->n_params && rc == ARES_OK; i++) {
        const ares_param *p = &m->params[i];
        int64_t n = (int64_t)p->weight.n * p->weight.k;
        float *rows = ares_calloc((size_t)n, sizeof *rows);
        size_t length = strlen(p->name);
        bool norm = p->rank == 1 && strcmp(p->name + length - 7, ".weight") == 0;
        if (norm)
            for (int64_t e = 0; e < n; e++) rows[e] = 1.0f;
        if (p->rank == 2) {
            /* keyed by the name, so that a parameter's values do not depend on the others */
            uint64_t h = ares_fnv1a(ARES_FNV1A, p->name, length);
            init_job job = { ares_rng_sub(ares_rng_root(seed, ARES_RNG_INIT), h, 0), rows, n,
                             cfg->initializer_range };
            ares_pool_run(device->pool, (n + INIT_CHUNK - 1) / INIT_CHUNK, init_chunk, &job);
        }
        rc = model_put(m, &p->weight, rows, ARES_F32);
        ares_free(rows);
    }
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

/* Parameters [first, end) into one file. */
static int save_shard(const ares_model *m, const char *path, int first, int end)
{
    ares_safetensors_writer *w;
    ARES_TRY(ares_safetensors_create(path, &w));
    for (int i = first; i < end; i++)
        ares_safetensors_declare(w, m->params[i].name, m->cfg.file_dtype, m->params[i].rank,
                                 m->params[i].shape);
    int rc = ARES_OK;
    for (int i = first; i < end && rc == ARES_OK; i++) {
        size_t bytes = (size_t)file_bytes(m, &m->params[i]);
        void *rows = ares_malloc(bytes);
        rc = model_get(m, &m->params[i].weight, rows, m->cfg.file_dtype);
        if (rc == ARES_OK) rc = ares_safetensors_write(w, rows, bytes);
        ares_free(rows);
    }
    int finished = ares_safetensors_finish(w);
    return rc != ARES_OK ? rc : finished;
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

static int save_sharded(const ares_model *m, const char *dir, int shards)
{
    ares_str index = { 0 }, path = { 0 };
    int64_t total = 0;
    for (int i = 0; i < m->n_params; i++) total += file_bytes(m, &m->params[i]);
    ares_json_begin(&index, '{');
    ares_json_begin(ares_json_key(&index, "metadata"), '{');
    ares_json_write_i64(ares_json_key(&index, "total_size"), total);
    ares_json_end(&index, '}');
    ares_json_begin(ares_json_key(&index, "weight_map"), '{');
    int rc = ARES_OK, first = 0;
    for (int s = 1; s <= shards && rc == ARES_OK; s++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s, shards);
        int end = shard_end(m, first);
        for (int i = first; i < end; i++)
            ares_json_write_string(ares_json_key(&index, m->params[i].name), ares_view_of(name));
        rc = save_shard(m, ares_path_join(&path, dir, name), first, end);
        first = end;
    }
    ares_json_end(&index, '}');
    ares_json_end(&index, '}');
    ares_str_add_char(&index, '\n');
    if (rc == ARES_OK)
        rc = ares_file_write(ares_path_join(&path, dir, "model.safetensors.index.json"), index.data,
                             index.len);
    ares_str_fini(&index);
    ares_str_fini(&path);
    return rc;
}

int ares_model_save(const ares_model *m, const char *dir)
{
    ARES_TRY(ares_dir_make(dir));
    ARES_TRY(model_config_save(&m->cfg, dir));
    int shards = 0;
    for (int i = 0; i < m->n_params; i = shard_end(m, i)) shards++;
    if (shards > 1) return save_sharded(m, dir, shards);
    ares_str path = { 0 };
    int rc = save_shard(m, ares_path_join(&path, dir, "model.safetensors"), 0, m->n_params);
    ares_str_fini(&path);
    return rc;
}
