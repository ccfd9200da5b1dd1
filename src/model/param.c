/* The parameters of a configuration. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

ares_param *param_add(const listing *l, int32_t n, int32_t k, const char *format, int index)
{
    char own[96], name[128];
    snprintf(own, sizeof own, format, index);
    snprintf(name, sizeof name, "%s%s%s", l->stem, *l->stem ? "." : "", own);
    ares_model *m = l->m;
    ares_param *p = &m->params.list[m->params.n++];
    *p = (ares_param){ .name = ares_strdup(name),
                       .rank = k ? 2 : 1,
                       .shape = { n, k },
                       .region = k ? l->region : l->vectors };
    p->weight = (ares_matrix){ .dtype = k ? l->storage : ARES_F32,
                               .layout = k ? l->layout : ARES_ROWS,
                               .n = n,
                               .k = k ? k : 1 };
    p->elements = ares_matrix_elements(p->weight.layout, n, p->weight.k);
    p->grad = p->weight; /* the same layout */
    p->grad.dtype = ARES_F32;
    return p;
}

ares_linear param_add_linear(const listing *l, int32_t n, int32_t k, bool bias, const char *stem,
                             int index)
{
    char format[96];
    snprintf(format, sizeof format, "%s.weight", stem);
    ares_linear y = { .w = param_add(l, n, k, format, index) };
    snprintf(format, sizeof format, "%s.bias", stem);
    if (bias) y.bias = param_add(l, n, 0, format, index);
    return y;
}

/* Of the block that is listed now. */
static ares_linear add_linear(const listing *l, int32_t n, int32_t k, bool bias, const char *stem)
{
    char format[96];
    snprintf(format, sizeof format, "layers.%%d.%s", stem);
    return param_add_linear(l, n, k, bias, format, l->region - 1);
}

ares_linear param_beside(ares_linear l)
{
    l.w->adjacent = true;
    if (l.bias) l.bias->adjacent = true;
    return l;
}

/* In the order of files; of a slice, o and down have rows for this rank alone. */
static void list_block(const listing *l, int i)
{
    const ares_model_config *c = &l->m->cfg;
    ares_model_layer *y = &l->m->layer[i];
    int32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, wide = c->intermediate;
    y->input_norm = param_add(l, c->hidden, 0, "layers.%d.input_layernorm.weight", i);
    y->q = add_linear(l, q, c->hidden, c->qkv_bias, "self_attn.q_proj");
    y->k = param_beside(add_linear(l, kv, c->hidden, c->qkv_bias, "self_attn.k_proj"));
    y->v = param_beside(add_linear(l, kv, c->hidden, c->qkv_bias, "self_attn.v_proj"));
    if (c->qk_norm) {
        y->q_norm = param_add(l, c->head_dim, 0, "layers.%d.self_attn.q_norm.weight", i);
        y->k_norm = param_add(l, c->head_dim, 0, "layers.%d.self_attn.k_norm.weight", i);
    }
    y->o = add_linear(l, c->hidden / l->parts, q * l->parts, c->o_bias, "self_attn.o_proj");
    y->post_norm = param_add(l, c->hidden, 0, "layers.%d.post_attention_layernorm.weight", i);
    y->gate = add_linear(l, wide, c->hidden, c->mlp_bias, "mlp.gate_proj");
    y->up = param_beside(add_linear(l, wide, c->hidden, c->mlp_bias, "mlp.up_proj"));
    y->down = add_linear(l, c->hidden / l->parts, wide * l->parts, c->mlp_bias, "mlp.down_proj");
    ares_linear *const all[] = { &y->q, &y->k, &y->v, &y->o, &y->gate, &y->up, &y->down };
    for (int j = 0; j < ARES_COUNT(all); j++) all[j]->number = i * ARES_COUNT(all) + j;
}
/* All parameters under Hugging Face's names, in the order in which a forward reads them. */
static void list_params(ares_model *m, ares_dtype storage, ares_layout layout, bool train_tower)
{
    const ares_model_config *c = &m->cfg;
    int32_t tower = c->vision.depth;
    listing l = { .m = m,
                  .stem = c->text_names ? c->text_names : "model",
                  .storage = storage,
                  .layout = layout,
                  .parts = m->tp ? ares_group_size(m->tp) : 1 };
    m->params.list =
        ares_calloc((size_t)c->layers * 18 + 5 + (size_t)tower * 14 + 7, sizeof *m->params.list);
    m->layer = ares_calloc((size_t)c->layers, sizeof *m->layer);
    /* the embedding, blocks, the heads; then a trained tower; then norms and biases */
    int first_of_tower = 1 + c->layers + !c->tied + c->value_head;
    m->params.n_regions = first_of_tower + (train_tower && tower ? tower + 1 : 0) + 1;
    m->params.n_frozen = train_tower || !tower ? 0 : tower + 2;
    l.vectors = m->params.n_regions - 1;
    /* an embedding of its own is only looked up, and whole rows are read fastest */
    if (!c->tied) l.layout = ARES_ROWS;
    m->embed = param_add(&l, c->vocab, c->hidden, "embed_tokens.weight", 0);
    l.layout = layout;
    for (int32_t i = 0; i < c->layers; i++) {
        l.region++;
        list_block(&l, i);
    }
    m->final_norm = param_add(&l, c->hidden, 0, "norm.weight", 0);
    m->lm_head = m->embed; /* unless the head is not tied */
    l.stem = "";
    if (!c->tied) {
        l.region++;
        int32_t rows = c->vocab;
        if (m->tp) {
            int32_t part = ares_group_rank(m->tp);
            rows = ares_vocab_part_first(c->vocab, l.parts, part + 1) -
                   ares_vocab_part_first(c->vocab, l.parts, part);
        }
        m->lm_head = param_add(&l, rows, c->hidden, "lm_head.weight", 0);
    }
    if (c->value_head) {
        l.region++;
        m->value = param_add(&l, 1, c->hidden, "score.weight", 0);
        m->value_bias = param_add(&l, 1, 0, "score.bias", 0);
    }
    /* a frozen tower's regions come after all others */
    l.region = m->params.n_frozen ? m->params.n_regions : first_of_tower;
    if (m->params.n_frozen) l.vectors = m->params.n_regions + m->params.n_frozen - 1;
    if (tower) tower_list(&l);
}

/* Regions by name, for messages: AdamW names the one whose gradient is not finite. */
static void name_regions(ares_model *m)
{
    ares_params *ps = &m->params;
    ares_region *r = ps->regions = ares_calloc((size_t)regions_count(ps), sizeof *r);
    int n = 0;
    snprintf(r[n++].name, sizeof r->name, "the embedding");
    for (int i = 0; i < m->cfg.layers; i++) snprintf(r[n++].name, sizeof r->name, "block %d", i);
    if (!m->cfg.tied) snprintf(r[n++].name, sizeof r->name, "the head");
    if (m->value) snprintf(r[n++].name, sizeof r->name, "the value head");
    snprintf(r[ps->n_regions - 1].name, sizeof r->name, "norms and biases");
    if (ps->n_frozen)
        snprintf(r[regions_count(ps) - 1].name, sizeof r->name, "the tower's norms and biases");
    if (!m->tower.patches) return;
    n = ps->tower;
    snprintf(r[n++].name, sizeof r->name, "patches and merger");
    for (int i = 0; i < m->cfg.vision.depth; i++)
        snprintf(r[n++].name, sizeof r->name, "vision block %d", i);
}

static void free_params(ares_model *m)
{
    for (int i = 0; i < m->params.n; i++) ares_free((char *)m->params.list[i].name);
    ares_free(m->params.list);
    ares_free(m->layer);
    ares_free(m->tower.layer);
    ares_free(m->config_text);
}

int model_allocate(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   const model_slice *slice, ares_model **out)
{
    if (opt->value_head && cfg->vision.depth)
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: a critic that starts as a %s is not offered; use an estimator "
                         "without a critic, or a critic of another model",
                         cfg->model_type);
    ares_model *m = ares_calloc(1, sizeof *m);
    m->params.slice = slice != NULL;
    m->tp = slice ? slice->tp : NULL;
    m->cfg = *cfg;
    m->cfg.file_dtype = opt->storage;
    m->cfg.value_head = opt->value_head;
    /* with a value head there is no lm_head of its own */
    m->cfg.tied = cfg->tied || opt->value_head;
    m->device = m->params.device = device;
    m->params.file_dtype = opt->storage;
    m->params.tied = m->cfg.tied;
    if (opt->share) m->params.share = *opt->share;
    bool tower = (opt->trainable && !opt->freeze_vision) || opt->like_trained;
    list_params(m, opt->storage, device->k->layout, tower);
    m->params.embed = m->embed;
    if (m->tower.patches) {
        m->params.tower = m->tower.patches->region;
        m->params.tower_end = m->params.tower + m->cfg.vision.depth + 1;
    }
    name_regions(m);
    m->rope = rope_new(&m->cfg);
    int rc = regions_allocate(&m->params, opt->trainable);
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
    regions_release(&m->params);
    tower_close(m);
    free_params(m);
    rope_free(m->rope);
    ares_free(m);
}

ares_param *model_param(const ares_model *m, const char *name)
{
    for (int i = 0; i < m->params.n; i++)
        if (strcmp(m->params.list[i].name, name) == 0) return &m->params.list[i];
    return NULL;
}

bool param_has_shape(const ares_param *p, const ares_tensor_info *t)
{
    bool same = t->rank == p->rank;
    for (int i = 0; i < p->rank && same; i++) same = t->shape[i] == p->shape[i];
    return same;
}

int64_t ares_params_count(const ares_params *ps)
{
    int64_t n = 0;
    for (int i = 0; i < ps->n; i++) n += (int64_t)ps->list[i].weight.n * ps->list[i].weight.k;
    return n;
}

int64_t ares_model_config_count(const ares_model_config *cfg)
{
    ares_model m = { .cfg = *cfg }; /* parameters are listed, and get no memory */
    list_params(&m, ARES_F32, ARES_ROWS, false);
    int64_t n = ares_params_count(&m.params);
    free_params(&m);
    return n;
}

int ares_model_head_region(const ares_model *m)
{
    return m->value ? m->value->region : m->lm_head->region;
}
const ares_matrix *ares_model_head(const ares_model *m)
{
    return m->tp ? &m->head : &m->lm_head->weight;
}
const ares_matrix *ares_model_head_grad(const ares_model *m)
{
    return m->params.trainable ? &m->lm_head->grad : NULL;
}

int ares_model_check_ids(const ares_model *m, const int32_t *ids, int64_t n,
                         const ares_row_media *row_media)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->cfg.vocab)
            return ares_fail(ARES_EFORMAT,
                             "model: token %lld has id %d; the embedding holds 0 to %d; is this "
                             "the model's own tokenizer?",
                             (long long)i, ids[i], m->cfg.vocab - 1);
    const ares_vision_config *v = &m->cfg.vision;
    const ares_place *place = row_media ? row_media->places : NULL,
                     *end = row_media ? place + row_media->n_places : NULL;
    for (int64_t i = 0; i < n && v->depth; i++) { /* places ascend, as the ids do */
        while (place < end && i >= place->first + place->n) place++;
        bool is_place = ids[i] == v->image_token || ids[i] == v->video_token;
        if (is_place && (place == end || i < place->first))
            return ares_fail(ARES_EFORMAT,
                             "model: token %lld, id %d, stands for %s that is not given; leave it "
                             "out of the text",
                             (long long)i, ids[i],
                             ids[i] == v->image_token ? "an image" : "a video");
    }
    return ARES_OK;
}
