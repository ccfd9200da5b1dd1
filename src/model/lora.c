/*
 * Adapters in memory (docs/adapters.md): in order their parameters; new numbers and those of a
 * PEFT directory; copies; writing; their norm. What a pass makes of them stands in block.c and
 * forward.c.
 */
#include "adapter.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OF_ADAPTER, OF_VALUE_HEAD }; /* regions; the last one, of norms and biases, follows */

/* A parameter of the file, without a place yet. */
static ares_param *add_param(ares_adapter *a, const char *name, int32_t n, int32_t k, int region)
{
    ares_params *ps = &a->params;
    ares_device *d = ps->device;
    ares_dtype dtype = d->k->act == ARES_BF16 ? ARES_BF16 : ARES_F32;
    ares_param *p = &ps->list[ps->n++];
    *p = (ares_param){ .name = ares_arena_copy(&a->arena, name, strlen(name)),
                       .rank = k ? 2 : 1,
                       .shape = { n, k },
                       .region = region };
    p->weight = (ares_matrix){ .dtype = k ? dtype : ARES_F32,
                               .layout = k ? d->k->layout : ARES_ROWS,
                               .n = n,
                               .k = k ? k : 1 };
    p->elements = ares_matrix_elements(p->weight.layout, n, p->weight.k);
    p->grad = p->weight;
    p->grad.dtype = ARES_F32;
    return p;
}

/* The base's fingerprint as files hold it. */
static int print_of(const char *base_dir, char text[static 17])
{
    uint64_t print;
    ARES_TRY(ares_model_fingerprint(base_dir, &print));
    snprintf(text, 17, "%016llx", (unsigned long long)print);
    return ARES_OK;
}

/* Which base it is beside, for the files that it will be written to. */
static int keep_base(ares_adapter *a, const ares_model *m, const char *dir)
{
    char *whole = realpath(dir, NULL);
    const char *name = whole ? whole : dir;
    a->base = m->cfg;
    a->base_dir = ares_arena_copy(&a->arena, name, strlen(name));
    free(whole);
    return m->device->counting ? ARES_OK : print_of(dir, a->base_print);
}

/* A copy of what was chosen, in the adapter's own memory. */
static void keep_config(ares_adapter *a, const lora_config *l)
{
    lora_module *modules = ares_arena_alloc(&a->arena, (size_t)l->n * sizeof *modules);
    for (int32_t i = 0; i < l->n; i++) {
        modules[i] = l->modules[i];
        modules[i].name = ares_arena_copy(&a->arena, modules[i].name, strlen(modules[i].name));
    }
    a->config = ares_arena_calloc(&a->arena, 1, sizeof *a->config);
    *a->config = *l;
    a->config->modules = modules;
}

/* Memory for the modules of a->config; all numbers are 0. c: of the model */
static int allocate(ares_adapter *a, const ares_model_config *c, const ares_adapter_options *opt)
{
    static atomic_ullong last_id;
    ares_params *ps = &a->params;
    const lora_config *l = a->config;
    int regions = opt->value_head ? 3 : 2;
    int32_t of_tower_block = c->vision.gated ? 5 : 4;
    a->id = atomic_fetch_add(&last_id, 1) + 1;
    a->head = LORA_OF_BLOCK * c->layers;
    a->n_modules = a->head + 1 + (c->vision.depth ? of_tower_block * c->vision.depth + 2 : 0);
    a->module = ares_arena_calloc(&a->arena, (size_t)a->n_modules, sizeof *a->module);
    a->lowest = c->layers;
    a->lowest_of_tower = c->vision.depth;
    ps->file_dtype = ARES_F32;
    ps->list = ares_arena_calloc(&a->arena, 2 * (size_t)l->n + 2, sizeof *ps->list);
    ps->regions = ares_calloc((size_t)regions, sizeof *ps->regions);
    ps->n_regions = regions;
    if (opt->share) ps->share = *opt->share;
    snprintf(ps->regions[OF_ADAPTER].name, sizeof ps->regions->name, "the adapter");
    snprintf(ps->regions[OF_VALUE_HEAD].name, sizeof ps->regions->name, "the value head");
    snprintf(ps->regions[regions - 1].name, sizeof ps->regions->name, "norms and biases");
    for (int32_t i = 0; i < l->n; i++) {
        const lora_module *x = &l->modules[i];
        char name[160];
        ARES_ASSERT(x->number < a->n_modules);
        ares_adapter_module *to = &a->module[x->number];
        snprintf(name, sizeof name, LORA_PREFIX "%s.lora_A.weight", x->name);
        to->a = add_param(a, name, x->rank, x->in, OF_ADAPTER);
        snprintf(name, sizeof name, LORA_PREFIX "%s.lora_B.weight", x->name);
        to->b = add_param(a, name, x->out, x->rank, OF_ADAPTER);
        to->rank = x->rank;
        to->scale = x->scale;
        to->alpha = x->alpha;
        a->rank = ARES_MAX(a->rank, x->rank);
        int32_t after = x->number - a->head - 1; /* among the tower's */
        a->lowest = after < 0 ? ARES_MIN(a->lowest, x->number / LORA_OF_BLOCK) : 0;
        if (after < 0) continue;
        a->tower = true;
        a->lowest_of_tower = ARES_MIN(a->lowest_of_tower, after / of_tower_block);
    }
    if (opt->value_head) {
        a->value = add_param(a, LORA_PREFIX "score.weight", 1, c->hidden, OF_VALUE_HEAD);
        a->value_bias = add_param(a, LORA_PREFIX "score.bias", 1, 0, regions - 1);
    }
    return regions_allocate(ps, opt->trainable);
}

/* Numbers of A as a new adapter has them; rows [rank][in]. */
static void draw(const lora_module *x, const ares_lora_options *o, uint64_t seed, float *rows)
{
    char name[160];
    snprintf(name, sizeof name, LORA_PREFIX "%s.lora_A.weight", x->name);
    ares_rng_key key = ares_rng_sub(ares_rng_root(seed, ARES_RNG_LORA),
                                    ares_fnv1a(ARES_FNV1A, name, strlen(name)), 0);
    bool normal = strcmp(o->init, "gaussian") == 0;
    double bound = 1 / sqrt((double)x->in);
    for (uint64_t i = 0; i < (uint64_t)x->rank * (uint64_t)x->in; i++)
        rows[i] = (float)(normal ? ares_rng_normal(key, i) / x->rank
                                 : (2 * ares_rng_uniform(key, i) - 1) * bound);
}

static int put(ares_adapter *a, const ares_param *p, const float *rows)
{
    return model_put(&a->params, &p->weight, rows, ARES_F32);
}

/* peft: the numbers of a directory; NULL: new ones. */
static int fill(ares_adapter *a, const ares_adapter_options *opt, const peft_adapter *peft)
{
    const ares_lora_options *o = opt->lora;
    const lora_config *l = a->config;
    uint64_t seed = o && o->seed != ARES_NULL_I64 ? (uint64_t)o->seed : opt->seed;
    int rc = ARES_OK;
    for (int32_t i = 0; i < l->n && rc == ARES_OK; i++) { /* A, B, A, B ... */
        const lora_module *x = &l->modules[i];
        const ares_param *p = &a->params.list[2 * i];
        float *rows = peft ? peft->a[i]
                           : ares_malloc(sizeof *rows * (size_t)p->weight.n * (size_t)p->weight.k);
        if (!peft) draw(x, o, seed, rows);
        rc = put(a, p, rows);
        if (!peft) ares_free(rows);
        if (rc == ARES_OK && peft) rc = put(a, p + 1, peft->b[i]); /* otherwise 0, as allocated */
    }
    if (rc != ARES_OK || !a->value) return rc;
    static const float zero;
    int32_t hidden = a->value->weight.k;
    float *head = ares_malloc((size_t)hidden * sizeof *head);
    model_draw_value_head(opt->value_seed, hidden, head);
    bool stored = peft && peft->score;
    rc = put(a, a->value, stored ? peft->score : head);
    if (rc == ARES_OK) rc = put(a, a->value_bias, stored ? peft->score_bias : &zero);
    ares_free(head);
    return rc;
}

/* The first of `modules` that `others` lacks; NULL: none. */
static const char *lacking(const lora_config *modules, const lora_config *others)
{
    for (int32_t i = 0; i < modules->n; i++) {
        int32_t k = 0;
        while (k < others->n && modules->modules[i].number != others->modules[k].number) k++;
        if (k == others->n) return modules->modules[i].name;
    }
    return NULL;
}

/* What the user wrote against what the file says. */
static int agree(const ares_model_config *base, const ares_lora_options *o,
                 const ares_lora_side *of, const char *path, const lora_config *l)
{
    if (of->says_alpha && o->alpha != l->alpha)
        return ares_fail(ARES_ECONFIG,
                         "adapter: lora.alpha = %g, and the adapter of %s has alpha %g; leave "
                         "lora.alpha out, or leave adapter_path out",
                         o->alpha, path, l->alpha);
    if (o->rank > 0 && o->rank != l->rank)
        return ares_fail(ARES_ECONFIG,
                         "adapter: lora.rank = %lld, and the adapter of %s has rank %lld; leave "
                         "lora.rank at 0, or leave adapter_path out",
                         (long long)o->rank, path, (long long)l->rank);
    if (!of->says_targets) return ARES_OK;
    ares_arena arena = { 0 };
    lora_config asked;
    ares_lora_options ranked = *o;
    ranked.rank = l->rank; /* which may be left to the file */
    int rc = lora_select(base, of->tower, false, lora_peft_config(&ranked, &arena),
                         "adapter: lora.target_modules", &arena, &asked);
    const char *more = rc == ARES_OK ? lacking(&asked, l) : NULL,
               *less = rc == ARES_OK ? lacking(l, &asked) : NULL;
    if (more || less)
        rc =
            ares_fail(ARES_ECONFIG,
                      "adapter: lora.target_modules select %d layers, and the adapter of %s is "
                      "beside %d (%s %s); leave lora.target_modules out, or leave adapter_path out",
                      asked.n, path, l->n, more ? "not beside" : "also beside", more ? more : less);
    ares_arena_fini(&arena);
    return rc;
}

/* The layers that options choose. A file may hold a scale of 0; who writes options means more. */
static int select_new(const ares_model_config *base, const ares_lora_options *o, bool tower,
                      bool tell, const char *where, ares_arena *arena, lora_config *out)
{
    const ares_json *alphas = o->alpha_pattern;
    ARES_TRY(lora_select(base, tower, tell, lora_peft_config(o, arena), where, arena, out));
    for (int64_t i = 0; alphas->type == ARES_JSON_OBJECT && i < alphas->count; i++)
        if (!(alphas->members[i].value->number > 0))
            return ares_fail(ARES_ECONFIG, "%s: alpha_pattern: that of '%.*s' must be above 0",
                             where, (int)alphas->members[i].key.len, alphas->members[i].key.data);
    for (int32_t i = 0; i < out->n; i++) {
        const lora_module *m = &out->modules[i];
        if (m->scale == 0)
            return ares_fail(ARES_ECONFIG,
                             "%s: %s: %g is too small: alpha / rank is 0 in f32, and nothing would "
                             "be trained",
                             where, m->alpha == out->alpha ? "lora_alpha" : "alpha_pattern",
                             m->alpha);
    }
    return ARES_OK;
}

/*
 * The adapter of a checkpoint against what the options ask for now: the layers with their ranks and
 * scales, or of a run that began with an adapter what stands beside its path.
 */
static int goes_on(const ares_adapter_options *opt, const ares_model_config *base,
                   const lora_config *l)
{
    const ares_lora_options *o = opt->lora;
    const char *path = opt->checkpoint;
    static const char remedy[] = "set it back, or give the run another trainer.experiment_name";
    ares_arena arena = { 0 };
    lora_config asked;
    if (o->adapter_path) return ARES_OK; /* which said everything when the run began */
    int rc = lora_select(base, opt->tower, false, lora_peft_config(o, &arena), "adapter", &arena,
                         &asked);
    const lora_module *own = l->modules, *now = rc == ARES_OK ? asked.modules : NULL;
    for (int32_t i = 0; rc == ARES_OK && i < ARES_MIN(l->n, asked.n); i++) {
        if (strcmp(own[i].name, now[i].name) != 0) break;
        if (own[i].rank != now[i].rank)
            rc = ares_fail(ARES_ESTATE,
                           "adapter: %s: of rank %d at %s, and the options of "
                           "worker.actor.model.lora or worker.critic.model.lora ask for %d; %s",
                           path, own[i].rank, own[i].name, now[i].rank, remedy);
        else if (own[i].scale != now[i].scale)
            rc = ares_fail(ARES_ESTATE,
                           "adapter: %s: scaled by %g at %s, and alpha and use_rslora of the "
                           "options ask for %g; %s",
                           path, (double)own[i].scale, own[i].name, (double)now[i].scale, remedy);
    }
    bool same = rc == ARES_OK && l->n == asked.n;
    for (int32_t i = 0; same && i < l->n; i++) same = strcmp(own[i].name, now[i].name) == 0;
    if (rc == ARES_OK && !same)
        rc = ares_fail(ARES_ESTATE,
                       "adapter: %s: beside %d layers, and target_modules of the options asks for "
                       "%d, or for others; %s",
                       path, l->n, asked.n, remedy);
    ares_arena_fini(&arena);
    return rc;
}

/* Layers that the passes of a critic, or of a run whose tower is frozen, have no adapters beside.
 */
static int refuse_layers(const lora_config *l, const ares_model_config *c, ares_lora_side of,
                         const char *where)
{
    for (int32_t i = 0; i < l->n; i++) {
        const lora_module *m = &l->modules[i];
        if (of.critic && m->number == LORA_OF_BLOCK * c->layers)
            return ares_fail(ARES_ECONFIG,
                             "%s: target_modules: they select lm_head, and no pass of a critic "
                             "reaches it; leave it out",
                             where);
        if (m->number > LORA_OF_BLOCK * c->layers && of.critic)
            return ares_fail(
                ARES_ECONFIG,
                "%s: it has layers of the vision tower, such as %s, and a critic reads "
                "text alone; give an adapter without them",
                where, m->name);
        if (m->number > LORA_OF_BLOCK * c->layers && !of.tower)
            return ares_fail(ARES_ECONFIG,
                             "%s: it has layers of the vision tower, such as %s, which is frozen; "
                             "set worker.actor.model.freeze_vision_tower=false",
                             where, m->name);
    }
    return ARES_OK;
}

int ares_lora_check(const ares_model_config *base, const ares_lora_options *o,
                    const ares_lora_side *of, const char *dir)
{
    ares_arena arena = { 0 };
    peft_adapter peft = { 0 };
    const char *where = o->adapter_path ? o->adapter_path : dir;
    int rc = o->adapter_path ? peft_open(o->adapter_path, dir, base, true, &arena, &peft)
                             : select_new(base, o, of->tower, true, dir, &arena, &peft.lora);
    if (rc == ARES_OK) rc = refuse_layers(&peft.lora, base, *of, where);
    if (rc == ARES_OK && o->adapter_path) rc = agree(base, o, of, o->adapter_path, &peft.lora);
    const lora_config lora = peft.lora;
    const lora_module *first = NULL;
    int32_t n = 0;
    for (int32_t i = 0; rc == ARES_OK && i < lora.n; i++) {
        const lora_module *m = &lora.modules[i];
        if (m->rank <= ARES_MIN(m->in, m->out)) continue;
        if (!first) first = m;
        n++;
    }
    if (first)
        ares_warn("%s: rank %d exceeds a side of %d layer%s, such as %s [%d][%d]; a smaller one "
                  "learns as much",
                  dir, first->rank, n, n == 1 ? "" : "s", first->name, first->out, first->in);
    ares_arena_fini(&arena);
    return rc;
}

/* A merged or converted base is legal, and its numbers differ. */
int peft_compare_base(const char *base_dir, const char *path, const peft_adapter *peft)
{
    char own[17];
    if (!peft->base_print) return ARES_OK;
    ARES_TRY(print_of(base_dir, own));
    if (strcmp(own, peft->base_print) != 0)
        ares_warn("adapter: %s: it was trained beside other weights than those of %s", path,
                  base_dir);
    return ARES_OK;
}

/* A run goes on beside its own base. */
static int check_base(const ares_adapter *a, const char *path, const peft_adapter *peft)
{
    if (!peft->base_print || strcmp(a->base_print, peft->base_print) == 0) return ARES_OK;
    return ares_fail(ARES_ESTATE,
                     "adapter: %s: it was trained beside other weights than those of %s; give the "
                     "model back that the run began with",
                     path, a->base_dir);
}

static int open_adapter(const ares_model *m, const char *base_dir, const char *path,
                        const ares_adapter_options *opt, ares_adapter **out)
{
    const ares_model_config *c = &m->cfg;
    ares_adapter *a = ares_calloc(1, sizeof *a);
    ares_arena file = { 0 }; /* all numbers of the file, and its names */
    peft_adapter peft = { 0 };
    a->params.device = m->device;
    int rc = keep_base(a, m, base_dir);
    if (rc == ARES_OK && path) {
        rc = peft_open(path, base_dir, c, !opt->lora, &file, &peft);
        if (rc == ARES_OK && opt->checkpoint) rc = goes_on(opt, c, &peft.lora);
        if (rc == ARES_OK && peft.score && !opt->value_head)
            rc = ares_fail(ARES_ECONFIG,
                           "adapter: %s: it is a critic's (task_type TOKEN_CLS), which says no "
                           "tokens; give a policy's",
                           path);
        if (rc == ARES_OK && !m->device->counting)
            rc = opt->checkpoint ? check_base(a, path, &peft)
                                 : peft_compare_base(base_dir, path, &peft);
    } else if (rc == ARES_OK) {
        rc = select_new(c, opt->lora, opt->tower, false, "adapter", &file, &peft.lora);
    }
    if (rc == ARES_OK)
        rc = refuse_layers(&peft.lora, c,
                           (ares_lora_side){ .critic = opt->value_head, .tower = opt->tower },
                           path ? path : "adapter");
    if (rc == ARES_OK) keep_config(a, &peft.lora);
    if (rc == ARES_OK) rc = allocate(a, c, opt);
    if (rc == ARES_OK && !m->device->counting) rc = fill(a, opt, path ? &peft : NULL);
    if (rc == ARES_OK) rc = regions_refresh(&a->params);
    ares_arena_fini(&file);
    if (rc != ARES_OK) {
        ares_adapter_free(a);
        return rc;
    }
    *out = a;
    return ARES_OK;
}

int ares_adapter_new(const ares_model *m, const char *base_dir, const ares_adapter_options *opt,
                     ares_adapter **out)
{
    return open_adapter(m, base_dir, opt->checkpoint ? opt->checkpoint : opt->lora->adapter_path,
                        opt, out);
}

int ares_adapter_load(const ares_model *m, const char *base_dir, const char *path,
                      ares_adapter **out)
{
    return open_adapter(m, base_dir, path, &(ares_adapter_options){ .tower = true }, out);
}

/* The first of a rank's outputs of a module, and where the next rank's begin. */
static int32_t first_output(const lora_module *x, const ares_adapter *a, const ares_model *of,
                            int32_t part)
{
    int32_t parts = ares_group_size(of->tp);
    return x->number == a->head ? ares_vocab_part_first(x->out, parts, part)
                                : x->out / parts * part;
}

int ares_adapter_slice(const ares_adapter *whole, const ares_model *slice, ares_adapter **out)
{
    ares_adapter *a = ares_calloc(1, sizeof *a);
    int32_t part = ares_group_rank(slice->tp);
    a->params.device = slice->device;
    keep_config(a, whole->config);
    while (a->config->n && whole->config->modules[a->config->n - 1].number > whole->head)
        a->config->n--; /* features come from the whole model */
    lora_module *own = ares_arena_alloc(&a->arena, (size_t)(a->config->n + 1) * sizeof *own);
    for (int32_t i = 0; i < a->config->n; i++) {
        const lora_module *x = &whole->config->modules[i];
        own[i] = a->config->modules[i];
        own[i].out = first_output(x, whole, slice, part + 1) - first_output(x, whole, slice, part);
    }
    a->config->modules = own;
    int rc = allocate(a, &slice->cfg, &(ares_adapter_options){ 0 });
    if (rc != ARES_OK) {
        ares_adapter_free(a);
        return rc;
    }
    *out = a;
    return ARES_OK;
}

int ares_adapter_slice_fill(ares_adapter *slice, const ares_adapter *whole, const ares_model *of)
{
    ares_device *d = of->device;
    for (int32_t i = 0; i < slice->config->n; i++) {
        const lora_module *x = &whole->config->modules[i];
        const ares_adapter_module *from = &whole->module[x->number],
                                  *to = &slice->module[x->number];
        matrix_copy_rows(d, &to->a->weight, &from->a->weight, 0);
        if (to->b->weight.n)
            matrix_copy_rows(d, &to->b->weight, &from->b->weight,
                             first_output(x, whole, of, ares_group_rank(of->tp)));
    }
    slice->version++;
    return d->k->sync(d);
}

int ares_adapter_copy(const ares_adapter *a, const ares_model *m, ares_adapter **out)
{
    ares_adapter *copy;
    ARES_TRY(ares_adapter_slice(a, m, &copy)); /* of a model that is whole: all of it */
    copy->base = a->base;
    copy->base_dir = ares_arena_copy(&copy->arena, a->base_dir, strlen(a->base_dir));
    memcpy(copy->base_print, a->base_print, sizeof copy->base_print);
    int rc = ares_adapter_slice_fill(copy, a, m);
    if (rc != ARES_OK) {
        ares_adapter_free(copy);
        return rc;
    }
    *out = copy;
    return ARES_OK;
}

void ares_adapter_free(ares_adapter *a)
{
    if (!a) return;
    if (a->params.regions) regions_release(&a->params);
    ares_arena_fini(&a->arena);
    ares_free(a);
}

/* ---------------- writing, as PEFT does */

static void write_key(ares_str *o, const char *key, const char *json)
{
    ares_json_key(o, key);
    ares_json_splice(o, ares_view_of(json));
}

/* The number as PEFT writes alpha: whole where it is. */
static void write_alpha(ares_str *o, double alpha)
{
    if (alpha == floor(alpha) && fabs(alpha) < 1e15) ares_json_write_i64(o, (int64_t)alpha);
    else ares_json_write_double(o, alpha);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/*
 * The end of a module's name that says its kind: the last part; of a tower's the last two, for
 * other modules of its are called proj, too, and numbers are.
 */
static const char *kind_of(const char *name)
{
    const char *last = strrchr(name, '.');
    if (!last) return name;
    if (strstr(name, ".merger.")) return strstr(name, "merger.");
    if (!strstr(name, ".visual.")) return last + 1;
    while (last[-1] != '.') last--;
    return last;
}

static bool has_text(const char *const *list, int32_t n, const char *text)
{
    for (int32_t i = 0; i < n; i++)
        if (strcmp(list[i], text) == 0) return true;
    return false;
}

/* Whether an entry of a list of target_modules is the name, or the end of it after a dot. */
static bool takes(const char *const *list, int32_t n, const char *name)
{
    for (int32_t i = 0; i < n; i++) {
        size_t skip = strlen(name) - ARES_MIN(strlen(name), strlen(list[i]));
        if (strcmp(name + skip, list[i]) == 0 && (!skip || name[skip - 1] == '.')) return true;
    }
    return false;
}

/*
 * target_modules: the kinds of layers where they select exactly the adapter's modules of `all`, a
 * tower's included, else all whole names; sorted.
 */
static void write_targets(ares_str *o, const lora_config *l, const lora_module *all, int32_t n)
{
    const char **list = ares_malloc((size_t)l->n * sizeof *list);
    int32_t kinds = 0, taken = 0;
    for (int32_t i = 0; i < l->n; i++) {
        const char *kind = kind_of(l->modules[i].name);
        if (!has_text(list, kinds, kind)) list[kinds++] = kind;
    }
    for (int32_t i = 0; i < n; i++) taken += takes(list, kinds, all[i].name);
    if (taken != l->n) /* a kind takes more than is adapted */
        for (kinds = 0; kinds < l->n; kinds++) list[kinds] = l->modules[kinds].name;
    qsort(list, (size_t)kinds, sizeof *list, by_text);
    ares_json_begin(ares_json_key(o, "target_modules"), '[');
    for (int32_t i = 0; i < kinds; i++) ares_json_write_string(o, ares_view_of(list[i]));
    ares_json_end(o, ']');
    ares_free(list);
}

/* Keys that cannot overlap: PEFT sorts patterns when it saves them, and their order counts. */
static void write_patterns(ares_str *o, const lora_config *l)
{
    for (int of_alpha = 0; of_alpha < 2; of_alpha++) {
        ares_json_begin(ares_json_key(o, of_alpha ? "alpha_pattern" : "rank_pattern"), '{');
        for (int32_t i = 0; i < l->n; i++) {
            const lora_module *x = &l->modules[i];
            if (of_alpha ? x->alpha == l->alpha : x->rank == l->rank) continue;
            ares_json_key(o, x->name);
            if (of_alpha) write_alpha(o, x->alpha);
            else ares_json_write_i64(o, x->rank);
        }
        ares_json_end(o, '}');
    }
}

static int write_config(const ares_adapter *a, const lora_module *all, int32_t n, const char *dir)
{
    const lora_config *l = a->config;
    ares_str o = { 0 }, path = { 0 };
    ARES_TRY(ares_dir_make(dir));
    ares_json_begin(&o, '{');
    write_patterns(&o, l);
    ares_json_write_string(ares_json_key(&o, "base_model_name_or_path"), ares_view_of(a->base_dir));
    write_key(&o, "bias", "\"none\"");
    write_key(&o, "exclude_modules", "null");
    write_key(&o, "fan_in_fan_out", "false");
    write_key(&o, "inference_mode", "true");
    write_key(&o, "init_lora_weights", "true");
    write_key(&o, "layers_pattern", "null");
    write_key(&o, "layers_to_transform", "null");
    write_alpha(ares_json_key(&o, "lora_alpha"), l->alpha);
    write_key(&o, "lora_dropout", "0.0");
    write_key(&o, "modules_to_save", a->value ? "[\"classifier\", \"score\"]" : "null");
    write_key(&o, "peft_type", "\"LORA\"");
    ares_json_write_i64(ares_json_key(&o, "r"), l->rank);
    write_key(&o, "revision", "null");
    write_targets(&o, l, all, n);
    write_key(&o, "task_type", a->value ? "\"TOKEN_CLS\"" : "\"CAUSAL_LM\"");
    write_key(&o, "use_rslora", l->rslora ? "true" : "false");
    ares_json_end(&o, '}');
    ares_str_add_char(&o, '\n');
    int rc = ares_file_write(ares_path_join(&path, dir, "adapter_config.json"), o.data, o.len);
    ares_str_fini(&o);
    ares_str_fini(&path);
    return rc;
}

int ares_adapter_save(const ares_adapter *a, const char *dir, const ares_writers *by, uint64_t *sum)
{
    ares_world *world = by ? by->world : NULL;
    ares_arena arena = { 0 };
    ares_str path = { 0 };
    int rc = ARES_OK;
    if (ares_world_rank(world) == 0) {
        int32_t n = 0;
        const lora_module *all = lora_candidates(&a->base, true, &arena, &n);
        rc = write_config(a, all, n, dir);
    }
    ares_arena_fini(&arena);
    rc = ares_world_share_error(world, rc);
    if (rc == ARES_OK)
        rc = params_save(&a->params, ares_path_join(&path, dir, "adapter_model.safetensors"), by,
                         LORA_BASE_NOTE, a->base_print, sum);
    ares_str_fini(&path);
    return rc;
}

/* ---------------- what it adds to weights */

typedef struct norm_job {
    const ares_adapter *a;
    double *of_module; /* squares */
    atomic_int rc;
} norm_job;

/* Sums over rows of products of two columns of x [n][r], or of two rows with `turned` [r][n]. */
static double inner(const float *x, int32_t n, int32_t r, bool turned, int32_t i, int32_t j)
{
    double sum = 0;
    for (int32_t k = 0; k < n; k++)
        sum += turned ? (double)x[(int64_t)i * n + k] * (double)x[(int64_t)j * n + k]
                      : (double)x[(int64_t)k * r + i] * (double)x[(int64_t)k * r + j];
    return sum;
}

/* |s B A|^2 = s^2 sum over i, j of (Bt B)[i][j] (A At)[i][j] */
static void norm_of_module(void *ctx, int64_t task, int worker)
{
    norm_job *j = ctx;
    const ares_adapter_module *x = &j->a->module[task];
    (void)worker;
    j->of_module[task] = 0;
    if (!x->a) return;
    int32_t r = x->rank, in = x->a->weight.k, n = x->b->weight.n;
    float *a = ares_malloc(sizeof *a * (size_t)r * (size_t)in),
          *b = ares_malloc(sizeof *b * (size_t)r * (size_t)n);
    int rc = model_get(&j->a->params, &x->a->weight, a, ARES_F32);
    if (rc == ARES_OK) rc = model_get(&j->a->params, &x->b->weight, b, ARES_F32);
    double sum = 0;
    for (int32_t i = 0; i < r && rc == ARES_OK; i++)
        for (int32_t k = 0; k <= i; k++)
            sum += (i == k ? 1 : 2) * inner(b, n, r, false, i, k) * inner(a, in, r, true, i, k);
    j->of_module[task] = sum * (double)x->scale * (double)x->scale;
    if (rc != ARES_OK) j->rc = rc;
    ares_free(a);
    ares_free(b);
}

int ares_adapter_norm(const ares_adapter *a, double *norm)
{
    ares_device *d = a->params.device;
    norm_job j = { .a = a, .of_module = ares_calloc((size_t)a->n_modules, sizeof(double)) };
    double sum = 0;
    /* a card's copies are made by one thread */
    if (d->index < 0) ares_pool_run(d->pool, a->n_modules, norm_of_module, &j);
    else
        for (int32_t i = 0; i < a->n_modules; i++) norm_of_module(&j, i, 0);
    for (int32_t i = 0; i < a->n_modules; i++) sum += j.of_module[i];
    ares_free(j.of_module);
    *norm = sqrt(ARES_MAX(sum, 0));
    return j.rc;
}
