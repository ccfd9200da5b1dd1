/* The parameters of a configuration, their arenas, and the optimizer's states. */
#include "param.h"

#include <stdio.h>
#include <string.h>

#include "rope_angles.h"
#include "transfer.h"

enum { ALIGN = 256 }; /* bytes; a parameter starts on its own cache lines */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Appends one parameter, k = 0: a vector of n. It gets memory when all are known. */
static ares_param *add_param(ares_model *m, const ares_model_options *opt, ares_layout layout,
                             int32_t n, int32_t k, const char *format, int index)
{
    char name[96];
    snprintf(name, sizeof name, format, index);
    ares_param *p = &m->params[m->n_params++];
    *p = (ares_param){
        .name = ares_strdup(name), .rank = k ? 2 : 1, .shape = { n, k }, .decay = k != 0
    };
    p->weight = (ares_matrix){ .dtype = k ? opt->storage : ARES_F32,
                               .layout = k ? layout : ARES_ROWS,
                               .n = n,
                               .k = k ? k : 1 };
    p->elements = ares_matrix_elements(p->weight.layout, n, p->weight.k);
    p->grad = p->weight;
    p->grad.dtype = ARES_F32;
    return p;
}

static ares_linear add_linear(ares_model *m, const ares_model_options *opt, ares_layout layout,
                              int32_t n, int32_t k, bool bias, const char *stem, int index)
{
    char format[96];
    snprintf(format, sizeof format, "model.layers.%%d.%s.weight", stem);
    ares_linear l = { .w = add_param(m, opt, layout, n, k, format, index) };
    snprintf(format, sizeof format, "model.layers.%%d.%s.bias", stem);
    if (bias) l.bias = add_param(m, opt, layout, n, 0, format, index);
    return l;
}

/* All parameters under Hugging Face's names, in the order in which a forward reads them. */
static void list_params(ares_model *m, const ares_model_options *opt, ares_layout layout)
{
    const ares_model_config *c = &m->cfg;
    int32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    m->params = ares_calloc((size_t)c->layers * 18 + 5, sizeof *m->params);
    m->layer = ares_calloc((size_t)c->layers, sizeof *m->layer);
    /* an embedding of its own is only looked up, and whole rows are read fastest */
    m->embed = add_param(m, opt, c->tied ? layout : ARES_ROWS, c->vocab, c->hidden,
                         "model.embed_tokens.weight", 0);
    for (int32_t i = 0; i < c->layers; i++) {
        ares_model_layer *l = &m->layer[i];
        l->input_norm =
            add_param(m, opt, layout, c->hidden, 0, "model.layers.%d.input_layernorm.weight", i);
        l->q = add_linear(m, opt, layout, q, c->hidden, c->qkv_bias, "self_attn.q_proj", i);
        l->k = add_linear(m, opt, layout, kv, c->hidden, c->qkv_bias, "self_attn.k_proj", i);
        l->v = add_linear(m, opt, layout, kv, c->hidden, c->qkv_bias, "self_attn.v_proj", i);
        if (c->qk_norm) {
            l->q_norm = add_param(m, opt, layout, c->head_dim, 0,
                                  "model.layers.%d.self_attn.q_norm.weight", i);
            l->k_norm = add_param(m, opt, layout, c->head_dim, 0,
                                  "model.layers.%d.self_attn.k_norm.weight", i);
        }
        l->o = add_linear(m, opt, layout, c->hidden, q, c->o_bias, "self_attn.o_proj", i);
        l->post_norm = add_param(m, opt, layout, c->hidden, 0,
                                 "model.layers.%d.post_attention_layernorm.weight", i);
        l->gate =
            add_linear(m, opt, layout, c->intermediate, c->hidden, c->mlp_bias, "mlp.gate_proj", i);
        l->up =
            add_linear(m, opt, layout, c->intermediate, c->hidden, c->mlp_bias, "mlp.up_proj", i);
        l->down =
            add_linear(m, opt, layout, c->hidden, c->intermediate, c->mlp_bias, "mlp.down_proj", i);
    }
    m->final_norm = add_param(m, opt, layout, c->hidden, 0, "model.norm.weight", 0);
    m->lm_head =
        c->tied ? m->embed : add_param(m, opt, layout, c->vocab, c->hidden, "lm_head.weight", 0);
    if (!c->value_head) return;
    m->value = add_param(m, opt, layout, 1, c->hidden, "score.weight", 0);
    m->value_bias = add_param(m, opt, layout, 1, 0, "score.bias", 0);
}

static void free_params(ares_model *m)
{
    for (int i = 0; i < m->n_params; i++) ares_free((char *)m->params[i].name);
    ares_free(m->params);
    ares_free(m->layer);
}

static int allocate(ares_model *m, const ares_model_options *opt)
{
    ares_device *d = m->device;
    for (int i = 0; i < m->n_params; i++) {
        m->weights_bytes +=
            aligned((size_t)m->params[i].elements * ares_dtype_bytes(m->params[i].weight.dtype));
        m->grads_bytes += aligned((size_t)m->params[i].elements * sizeof(float));
    }
    size_t embed_grad = m->cfg.tied ? aligned((size_t)m->embed->elements * sizeof(float)) : 0;
    m->grads_bytes = opt->trainable ? m->grads_bytes + embed_grad : 0;
    m->weights = d->k->alloc(d, m->weights_bytes);
    if (opt->trainable) m->grads = d->k->alloc(d, m->grads_bytes);
    if (!m->weights || (opt->trainable && !m->grads))
        return ares_fail(
            ARES_ELIMIT,
            "model: %.2f GiB of weights and %.2f GiB of gradients do not fit on the device",
            (double)m->weights_bytes / 1073741824.0, (double)m->grads_bytes / 1073741824.0);
    char *w = m->weights, *g = m->grads;
    for (int i = 0; i < m->n_params; i++) {
        ares_param *p = &m->params[i];
        p->weight.data = w;
        w += aligned((size_t)p->elements * ares_dtype_bytes(p->weight.dtype));
        if (!g) continue;
        p->grad.data = g;
        g += aligned((size_t)p->elements * sizeof(float));
    }
    m->embed_grad = m->embed->grad;
    if (g && m->cfg.tied) m->embed_grad.data = g;
    return ARES_OK;
}

int model_allocate(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   ares_model **out)
{
    ares_model *m = ares_calloc(1, sizeof *m);
    m->cfg = *cfg;
    m->cfg.file_dtype = opt->storage;
    m->cfg.value_head = opt->value_head;
    /* with a value head there is no lm_head of its own */
    m->cfg.tied = cfg->tied || opt->value_head;
    m->device = device;
    list_params(m, opt, device->k->layout);
    m->rope = rope_new(&m->cfg);
    int rc = allocate(m, opt);
    if (rc != ARES_OK) {
        ares_model_free(m);
        return rc;
    }
    *out = m;
    return ARES_OK;
}

void ares_model_free(ares_model *m)
{
    if (!m) return;
    ares_device *d = m->device;
    d->k->release(d, m->weights, m->weights_bytes);
    d->k->release(d, m->grads, m->grads_bytes);
    d->k->release(d, m->states, m->states_bytes);
    free_params(m);
    rope_free(m->rope);
    ares_free(m);
}

ares_param *model_param(const ares_model *m, const char *name)
{
    for (int i = 0; i < m->n_params; i++)
        if (strcmp(m->params[i].name, name) == 0) return &m->params[i];
    return NULL;
}

int64_t ares_model_count(const ares_model *m)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += (int64_t)m->params[i].weight.n * m->params[i].weight.k;
    return n;
}

int64_t ares_model_config_count(const ares_model_config *cfg)
{
    ares_model m = { .cfg = *cfg };
    list_params(&m, &(ares_model_options){ .storage = ARES_F32 }, ARES_ROWS);
    int64_t n = ares_model_count(&m);
    free_params(&m);
    return n;
}

void ares_model_zero_grad(ares_model *m)
{
    m->device->k->zero(m->device, m->grads, m->grads_bytes);
}

void ares_model_join_embed_grad(ares_model *m)
{
    if (m->cfg.tied && m->grads)
        m->device->k->add(m->device, m->lm_head->grad.data, m->embed_grad.data, m->embed->elements);
}

int ares_model_optimizer_alloc(ares_model *m)
{
    ares_device *d = m->device;
    ARES_ASSERT(m->grads && !m->states);
    size_t bytes = 0;
    for (int i = 0; i < m->n_params; i++)
        bytes += aligned((size_t)m->params[i].elements * sizeof(float)) *
                 (m->params[i].weight.dtype == ARES_F32 ? 2 : 3);
    char *s = m->states = d->k->alloc(d, bytes);
    m->states_bytes = s ? bytes : 0;
    if (!s)
        return ares_fail(ARES_ELIMIT, "model: %.2f GiB of optimizer state do not fit on the device",
                         (double)bytes / 1073741824.0);
    for (int i = 0; i < m->n_params; i++) {
        ares_param *p = &m->params[i];
        size_t one = aligned((size_t)p->elements * sizeof(float));
        p->m = (float *)s;
        p->v = (float *)(s + one);
        s += 2 * one;
        if (p->weight.dtype == ARES_F32) continue;
        p->master = (float *)s;
        s += one;
        ARES_TRY(model_fill_master(m, p));
    }
    return ARES_OK;
}

const ares_matrix *ares_model_head(const ares_model *m)
{
    return &m->lm_head->weight;
}
const ares_matrix *ares_model_head_grad(const ares_model *m)
{
    return m->grads ? &m->lm_head->grad : NULL;
}

int ares_model_check_ids(const ares_model *m, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->cfg.vocab)
            return ares_fail(ARES_EFORMAT,
                             "model: token %lld has id %d; the embedding holds 0 to %d; is this "
                             "the model's own tokenizer?",
                             (long long)i, ids[i], m->cfg.vocab - 1);
    return ARES_OK;
}
