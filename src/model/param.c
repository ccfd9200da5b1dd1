/* The parameters of a configuration, and which of them are trained. */
#include "internal.h"

#include <ctype.h>
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

const char *const *model_norm_names(const ares_model_config *c)
{
    static const char *const llama[ARES_BLOCK_NORMS] = {
        [ARES_BEFORE_ATTENTION] = "input_layernorm", [ARES_BEFORE_MLP] = "post_attention_layernorm"
    };
    return c->norm_names ? c->norm_names : llama;
}

/* The norm of a block at this place, if there is one. */
static void add_norm(const listing *l, int i, ares_block_norm place)
{
    const char *name = model_norm_names(&l->m->cfg)[place];
    char format[96];
    if (!name) return;
    snprintf(format, sizeof format, "layers.%%d.%s.weight", name);
    l->m->layer[i].norm[place] = param_add(l, l->m->cfg.hidden, 0, format, i);
}

/* The router, and expert after expert; files have one matrix of each. */
static void list_experts(const listing *l, int i)
{
    const ares_model_config *c = &l->m->cfg;
    ares_model_layer *y = &l->m->layer[i];
    char name[64];
    y->router = add_linear(l, c->experts, c->hidden, false, "mlp.gate");
    y->router.number = -1;
    y->expert = ares_calloc((size_t)c->experts, sizeof *y->expert);
    for (int32_t e = 0; e < c->experts; e++) {
        ares_expert *x = &y->expert[e];
        snprintf(name, sizeof name, "mlp.experts.%d.gate_proj", e);
        x->gate = add_linear(l, c->expert_width, c->hidden, false, name);
        snprintf(name, sizeof name, "mlp.experts.%d.up_proj", e);
        x->up = param_beside(add_linear(l, c->expert_width, c->hidden, false, name));
        snprintf(name, sizeof name, "mlp.experts.%d.down_proj", e);
        x->down = add_linear(l, c->hidden, c->expert_width, false, name);
        x->gate.number = x->up.number = x->down.number = -1;
    }
}

static void list_attention(const listing *l, int i)
{
    const ares_model_config *c = &l->m->cfg;
    ares_model_layer *y = &l->m->layer[i];
    int32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    y->q = add_linear(l, c->attention_gate ? 2 * q : q, c->hidden, c->qkv_bias, "self_attn.q_proj");
    y->k = add_linear(l, kv, c->hidden, c->qkv_bias, "self_attn.k_proj");
    if (!c->attention_gate) y->k = param_beside(y->k);
    y->v = param_beside(add_linear(l, kv, c->hidden, c->qkv_bias, "self_attn.v_proj"));
    if (c->qk_norm) {
        bool row = c->qk_norm == ARES_QK_NORM_ROW;
        y->q_norm = param_add(l, row ? q * l->parts : c->head_dim, 0,
                              "layers.%d.self_attn.q_norm.weight", i);
        y->k_norm = param_add(l, row ? kv * l->parts : c->head_dim, 0,
                              "layers.%d.self_attn.k_norm.weight", i);
    }
    y->o = add_linear(l, c->hidden / l->parts, q * l->parts, c->o_bias, "self_attn.o_proj");
}

static void list_net(const listing *l, int i)
{
    const ares_model_config *c = &l->m->cfg;
    ares_net *y = &l->m->layer[i].net;
    int32_t heads = c->net.v_heads, values = heads * c->net.v_dim, width = net_width(c);
    y->qkv = add_linear(l, width, c->hidden, false, "linear_attn.in_proj_qkv");
    y->z = add_linear(l, values, c->hidden, false, "linear_attn.in_proj_z");
    y->b = add_linear(l, heads, c->hidden, false, "linear_attn.in_proj_b");
    y->a = add_linear(l, heads, c->hidden, false, "linear_attn.in_proj_a");
    y->conv = param_add(l, width, c->net.kernel, "layers.%d.linear_attn.conv1d.weight", i);
    y->conv->rank = 3;
    y->conv->shape[1] = 1;
    y->conv->shape[2] = c->net.kernel;
    y->dt_bias = param_add(l, heads, 0, "layers.%d.linear_attn.dt_bias", i);
    y->a_log = param_add(l, heads, 0, "layers.%d.linear_attn.A_log", i);
    y->norm = param_add(l, c->net.v_dim, 0, "layers.%d.linear_attn.norm.weight", i);
    y->a_log->wide = y->norm->wide = true;
    l->m->layer[i].o = add_linear(l, c->hidden, values, false, "linear_attn.out_proj");
}

/*
 * In the order in which a block reads them; of a slice, o and down have rows for this rank alone,
 * and norms are whole.
 */
static void list_block(const listing *l, int i)
{
    const ares_model_config *c = &l->m->cfg;
    ares_model_layer *y = &l->m->layer[i];
    int32_t wide = c->intermediate;
    y->first = l->m->params.n;
    add_norm(l, i, ARES_BEFORE_ATTENTION);
    if (model_has_net(c, i)) list_net(l, i);
    else list_attention(l, i);
    add_norm(l, i, ARES_AFTER_ATTENTION);
    add_norm(l, i, ARES_BEFORE_MLP);
    if (c->layer[i] & ARES_LAYER_EXPERTS) list_experts(l, i);
    else {
        y->gate = add_linear(l, wide, c->hidden, c->mlp_bias, "mlp.gate_proj");
        y->up = param_beside(add_linear(l, wide, c->hidden, c->mlp_bias, "mlp.up_proj"));
        y->down =
            add_linear(l, c->hidden / l->parts, wide * l->parts, c->mlp_bias, "mlp.down_proj");
    }
    add_norm(l, i, ARES_AFTER_MLP);
    bool net = model_has_net(c, i);
    ares_linear *const all[LORA_OF_BLOCK] = { net ? &y->net.qkv : &y->q,
                                              net ? &y->net.z : &y->k,
                                              net ? &y->net.b : &y->v,
                                              &y->net.a,
                                              &y->o,
                                              &y->gate,
                                              &y->up,
                                              &y->down };
    for (int j = 0; j < LORA_OF_BLOCK; j++) all[j]->number = i * LORA_OF_BLOCK + j;
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
    enum { OF_BLOCK = ARES_BLOCK_NORMS + 2 + 7 * 2 }; /* norms, and products with their biases */
    size_t of_experts = 0;
    for (int32_t i = 0; i < c->layers; i++)
        if (c->layer[i] & ARES_LAYER_EXPERTS) of_experts += 1 + 3 * (size_t)c->experts;
    m->params.list =
        ares_calloc((size_t)c->layers * OF_BLOCK + of_experts + 5 + (size_t)tower * 14 + 7,
                    sizeof *m->params.list);
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

/* Regions by name, for messages: AdamW names the one whose gradient is not finite. Marks a tower's.
 */
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
    if (!m->tower.patches) return;
    n = m->tower.patches->region;
    r[n].tower = true;
    snprintf(r[n++].name, sizeof r->name, "patches and merger");
    for (int i = 0; i < m->cfg.vision.depth; i++) {
        r[n].tower = true;
        snprintf(r[n++].name, sizeof r->name, "vision block %d", i);
    }
    if (!ps->n_frozen) return;
    r[n].tower = true;
    snprintf(r[n].name, sizeof r->name, "the tower's norms and biases");
}

/*
 * What is trained (docs/update.md#training-a-part-of-the-model). Parameters are listed as if all
 * of them were; then the regions of which a part is frozen are divided.
 */

/* transformers' name, whatever the model's files call the parameter. */
static const char *full_name(const ares_model *m, const ares_param *p, char name[static 160])
{
    const ares_model_config *c = &m->cfg;
    const char *stem = c->text_names ? c->text_names : "model", *to = "model";
    if (p == m->value || p == m->value_bias || (p == m->lm_head && p != m->embed)) return p->name;
    if (c->vision.depth || c->wrapped) to = "model.language_model";
    if (m->tower.patches && p >= m->tower.patches) {
        stem = c->vision_names ? c->vision_names : "visual";
        to = "model.visual";
    }
    size_t skip = strlen(stem);
    snprintf(name, 160, "%s.%s", to, p->name + skip + (skip > 0));
    return name;
}

enum { WORD = 40 };

/* The next run of letters, digits and underscores; false: there is none. */
static bool next_word(const char **at, char word[static WORD])
{
    const char *c = *at;
    int n = 0;
    while (*c && !isalnum((unsigned char)*c) && *c != '_') c++;
    for (; isalnum((unsigned char)*c) || *c == '_'; c++)
        if (n < WORD - 1) word[n++] = *c;
    word[n] = 0;
    *at = c;
    return n > 0;
}

/* A word that names have and that one of the expression's is most like; NULL: none. In the arena.
 */
static const char *near_word(const ares_params *ps, const char *expression, ares_arena *arena)
{
    enum { MOST = 64 };
    const char *words[MOST] = { "lm_head" }, *near = NULL; /* a tied one, too, has a name */
    char word[WORD];
    int n = 1;
    for (int i = 0; i < ps->n && n < MOST; i++)
        for (const char *at = ps->list[i].name; n < MOST && next_word(&at, word);) {
            int k = 0;
            while (k < n && strcmp(words[k], word) != 0) k++;
            if (k == n) words[n++] = ares_arena_copy(arena, word, strlen(word));
        }
    for (const char *at = expression; !near && next_word(&at, word);) {
        near = ares_nearest(word, words, n);
        if (near && strcmp(near, word) == 0) near = NULL;
    }
    return near;
}

/* An expression without a match: why, and the nearest name. */
static int refuse_expression(const ares_model *m, const char *expression)
{
    const ares_params *ps = &m->params;
    char name[160], text[160];
    const char *embed = full_name(m, m->embed, name);
    bool head = false, tower = false;
    ARES_TRY(model_matches("model", expression, MODEL_MATCH_INSIDE, "lm_head.weight", &head));
    if (head && m->value)
        return ares_fail(
            ARES_ECONFIG,
            "model: '%s' matches no parameter: a critic has score.weight and score.bias "
            "in place of lm_head",
            expression);
    if (head)
        return ares_fail(ARES_ECONFIG,
                         "model: '%s' matches no parameter: the head is tied to the embedding, and "
                         "the name of both is %s",
                         expression, embed);
    for (int i = 0; i < ps->n && !tower; i++)
        ARES_TRY(model_matches("model", expression, MODEL_MATCH_INSIDE,
                               full_name(m, &ps->list[i], text), &tower));
    if (tower)
        return ares_fail(
            ARES_ECONFIG,
            "model: '%s' matches parameters of the vision tower alone, which keeps its "
            "weights; set worker.actor.model.freeze_vision_tower=false",
            expression);
    ares_arena arena = { 0 };
    const char *near = near_word(ps, expression, &arena);
    if (near && m->lm_head == m->embed && strcmp(near, "lm_head") == 0)
        near = m->value ? "score" : "embed_tokens"; /* what it is called here */
    int rc = ares_fail(ARES_ECONFIG,
                       "model: '%s' matches no parameter%s%s%s (names are such as %s and "
                       "...layers.%d.self_attn.q_proj.weight)",
                       expression, near ? "; did you mean '" : "", near ? near : "",
                       near ? "'?" : "", embed, m->cfg.layers - 1);
    ares_arena_fini(&arena);
    return rc;
}

/* trained [n]: whether an expression takes the parameter; one that takes none is refused. */
static int select_trained(const ares_model *m, const ares_texts *expressions, bool *trained)
{
    const ares_params *ps = &m->params;
    for (int64_t e = 0; e < expressions->count; e++) {
        bool any = false;
        for (int i = 0; i < ps->n; i++) {
            char name[160];
            bool takes = false;
            if (ps->list[i].region >= ps->n_regions) continue; /* of a frozen tower */
            ARES_TRY(model_matches("model", expressions->items[e], MODEL_MATCH_INSIDE,
                                   full_name(m, &ps->list[i], name), &takes));
            trained[i] |= takes;
            any |= takes;
        }
        if (!any) return refuse_expression(m, expressions->items[e]);
    }
    return ARES_OK;
}

/* Gives what is not trained of each region a region of its own, after those that are trained. */
static void divide_regions(ares_model *m, const bool *trained)
{
    ares_params *ps = &m->params;
    int before = regions_count(ps), vectors = ps->n_regions - 1, n = 0;
    struct {
        bool trained, frozen; /* it has such parameters */
        int to[2];            /* where its frozen ones go, and its trained ones */
        int last;             /* where the one before went */
    } *of = ares_calloc((size_t)before, sizeof *of);
    for (int i = 0; i < ps->n; i++)
        *(trained[i] ? &of[ps->list[i].region].trained : &of[ps->list[i].region].frozen) = true;
    ares_region *regions = ares_calloc(2 * (size_t)before, sizeof *regions);
    for (int r = 0; r < before; r++)
        if (of[r].trained || r == vectors) {
            regions[n] = ps->regions[r];
            of[r].to[true] = n++;
        }
    ps->n_regions = n;
    for (int r = 0; r < before; r++)
        if (of[r].frozen) {
            regions[n] = ps->regions[r];
            of[r].to[false] = n++;
        }
    ps->n_frozen = n - ps->n_regions;
    ares_free(ps->regions);
    ps->regions = regions;
    for (int i = 0; i < ps->n; i++) {
        ares_param *p = &ps->list[i];
        int from = p->region;
        p->region = of[from].to[trained[i]];
        p->adjacent &= of[from].last == p->region;
        of[from].last = p->region;
    }
    ares_free(of);
}

static int train_part(ares_model *m, const ares_texts *expressions)
{
    bool *trained = ares_calloc((size_t)m->params.n, sizeof *trained);
    int rc = select_trained(m, expressions, trained);
    if (rc == ARES_OK) divide_regions(m, trained);
    ares_free(trained);
    return rc;
}

/* Adds the region of a parameter to those of its block. */
static void note_region(const ares_params *ps, const ares_param *p, ares_block_regions *in)
{
    if (p) *(p->region < ps->n_regions ? &in->trained : &in->frozen) = p->region;
}

/* Where the blocks lie, and how far down a backward goes. */
static void find_blocks(ares_model *m)
{
    const ares_params *ps = &m->params;
    const ares_block_regions none = { -1, -1 };
    for (int32_t i = 0; i < m->cfg.layers; i++) {
        ares_model_layer *y = &m->layer[i];
        const ares_param *p = ps->list + y->first,
                         *end = i + 1 < m->cfg.layers ? ps->list + y[1].first : m->final_norm;
        y->in = none;
        for (; p < end; p++)
            if (p->rank > 1) note_region(ps, p, &y->in);
    }
    for (int32_t i = 0; i < m->cfg.vision.depth; i++) {
        ares_tower_layer *y = &m->tower.layer[i];
        const ares_param *const all[] = { y->qkv.w, y->proj.w, y->gate.w, y->up.w, y->down.w };
        y->in = none;
        for (int k = 0; k < ARES_COUNT(all); k++) note_region(ps, all[k], &y->in);
    }
    m->tower.in = none;
    if (m->tower.patches) {
        note_region(ps, m->tower.patches, &m->tower.in);
        note_region(ps, m->tower.merge.w, &m->tower.in);
        note_region(ps, m->tower.out.w, &m->tower.in);
    }
    for (const ares_param *p = m->tower.patches; p && p < ps->list + ps->n; p++)
        m->tower.trained |= region_trained(ps, p->region);
    m->lowest = 0;
    if (!ps->trainable || region_trained(ps, m->embed->region) || m->tower.trained) return;
    /* a block's parameters are listed together, from its first norm to that of the next one */
    for (; m->lowest < m->cfg.layers; m->lowest++) {
        bool last = m->lowest + 1 == m->cfg.layers;
        const ares_param *p = ps->list + m->layer[m->lowest].first,
                         *end = last ? m->final_norm : ps->list + m->layer[m->lowest + 1].first;
        while (p < end && !region_trained(ps, p->region)) p++;
        if (p < end) return;
    }
}

static void free_params(ares_model *m)
{
    for (int i = 0; i < m->params.n; i++) ares_free((char *)m->params.list[i].name);
    for (int32_t i = 0; m->layer && i < m->cfg.layers; i++) ares_free(m->layer[i].expert);
    ares_map_free(m->params.names);
    ares_free(m->params.list);
    ares_free(m->layer);
    ares_free(m->tower.layer);
    ares_free(m->config_text);
    if (m->unread) ares_safetensors_close(m->unread);
}

/* Where delta nets are not built yet. */
static int check_nets(const ares_model_config *c, const ares_device *d, bool sliced)
{
    if (d->index >= 0) /* plan's own table has no kernels to look at */
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: the delta nets of a %s are not computed on cards; set "
                         "trainer.device=cpu (of commands: --device cpu)",
                         c->model_type);
    if (d->k->layout == ARES_ROWS && d->k->act != ARES_F32)
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: libtorch computes the delta nets of a %s in fp32 alone; set "
                         "worker.actor.fsdp.torch_dtype=fp32, or trainer.kernels=native",
                         c->model_type);
    if (sliced)
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: the delta nets of a %s are not divided among ranks; set "
                         "worker.rollout.tensor_parallel_size=1",
                         c->model_type);
    return ARES_OK;
}

int model_allocate(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   const model_slice *slice, ares_model **out)
{
    if (opt->value_head && cfg->no_value_head)
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: a critic that starts as a %s is not offered; use an estimator "
                         "without a critic, or a critic of another model",
                         cfg->model_type);
    if (cfg->experts && device->index >= 0 && !device->k->route)
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: a %s has experts, which a card does not compute yet; set "
                         "trainer.device=cpu",
                         cfg->model_type);
    if (cfg->net.v_heads) ARES_TRY(check_nets(cfg, device, slice && slice->tp));
    ares_model *m = ares_calloc(1, sizeof *m);
    m->params.slice = slice != NULL;
    m->tp = slice ? slice->tp : NULL;
    m->cfg = *cfg;
    m->cfg.file_dtype = opt->storage;
    m->cfg.value_head = opt->value_head;
    if (device->k->act == ARES_BF16 && cfg->embed_scale > 0) { /* as the model was trained */
        uint16_t rounded;
        model_narrow(&rounded, ARES_BF16, &cfg->embed_scale, 1);
        model_widen(&m->cfg.embed_scale, &rounded, ARES_BF16, 1);
    }
    /* with a value head there is no lm_head of its own */
    m->cfg.tied = cfg->tied || opt->value_head;
    m->device = m->params.device = device;
    m->params.file_dtype = opt->storage;
    m->params.tied = m->cfg.tied;
    if (opt->share) m->params.share = *opt->share;
    bool tower = (opt->trainable && !opt->freeze_vision) || opt->like_trained;
    /* elsewhere the table's own type is that of products */
    ares_layout layout = device->k->layout;
    if (layout == ARES_PANEL32 && opt->arithmetic == ARES_BF16) {
        ARES_ASSERT(opt->storage == ARES_BF16);
        layout = ARES_PANEL32_PAIRS;
        m->arithmetic = ARES_BF16;
    }
    list_params(m, opt->storage, layout, tower);
    m->params.names = ares_map_new();
    for (int i = 0; i < m->params.n; i++)
        ares_map_put(m->params.names, ares_view_of(m->params.list[i].name), i);
    m->params.embed = m->embed;
    name_regions(m);
    int32_t turned = cfg->turned;
    m->rope[0] = rope_new(&cfg->rope, turned ? turned : cfg->head_dim, cfg->max_position);
    for (int32_t i = 0; i < cfg->layers && !m->rope[1]; i++)
        if (cfg->layer[i] & ARES_LAYER_LOCAL_ROPE)
            m->rope[1] = rope_new(&cfg->rope_local, cfg->head_dim, cfg->max_position);
    int rc = opt->trained.items ? train_part(m, &opt->trained) : ARES_OK;
    m->params.trainable = opt->trainable;
    find_blocks(m);
    if (rc == ARES_OK) rc = regions_allocate(&m->params, opt->trainable);
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
    for (int k = 0; k < ARES_ROPES; k++) rope_free(m->rope[k]);
    ares_free(m);
}

ares_param *model_param(const ares_model *m, const char *name)
{
    int64_t i;
    return ares_map_get(m->params.names, ares_view_of(name), &i) ? &m->params.list[i] : NULL;
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

int32_t ares_model_config_caches(const ares_model_config *cfg)
{
    int32_t n = 0;
    for (int32_t i = 0; i < cfg->layers; i++) n += !model_has_net(cfg, i);
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

double ares_model_config_mlp_width(const ares_model_config *cfg)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < cfg->layers; i++)
        sum += cfg->layer[i] & ARES_LAYER_EXPERTS ? (int64_t)cfg->experts_used * cfg->expert_width
                                                  : cfg->intermediate;
    return (double)sum / cfg->layers;
}

int64_t ares_model_config_active(const ares_model_config *cfg)
{
    int64_t n = ares_model_config_count(cfg),
            idle = 3ll * cfg->hidden * cfg->expert_width * (cfg->experts - cfg->experts_used);
    for (int32_t i = 0; i < cfg->layers; i++)
        if (cfg->layer[i] & ARES_LAYER_EXPERTS) n -= idle;
    return n;
}

int ares_model_config_trained(const ares_model_config *cfg, const ares_model_options *opt,
                              int64_t *count)
{
    ares_model m = { .cfg = *cfg };
    m.cfg.value_head = opt->value_head;
    m.cfg.tied = cfg->tied || opt->value_head;
    list_params(&m, ARES_F32, ARES_ROWS, !opt->freeze_vision);
    bool *trained = ares_calloc((size_t)m.params.n, sizeof *trained);
    int rc = select_trained(&m, &opt->trained, trained);
    *count = 0;
    for (int i = 0; i < m.params.n; i++)
        if (trained[i]) *count += (int64_t)m.params.list[i].weight.n * m.params.list[i].weight.k;
    ares_free(trained);
    free_params(&m);
    return rc;
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
    return region_trained(&m->params, m->lm_head->region) ? &m->lm_head->grad : NULL;
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
