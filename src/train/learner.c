/*
 * The learner: a model, its passes over rows of a batch, and its gradients, which actor, critic,
 * reference and supervised training all use. First the columns of a batch on the device, then
 * images and videos in a pass, then the learner itself: opening, cutting rows into rounds,
 * forward and backward passes, log-probs, and the optimizer's step.
 */
#include "learner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Columns on the device; all of it does nothing where the device's memory is the host's. */

enum { ALIGN = 256 }; /* bytes, as of a card's own allocations */
static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

int dc_open(device_columns *c, ares_device *d, const char *role, size_t bytes, int arrays)
{
    c->device = d;
    c->used = 0;
    bytes += (size_t)arrays * ALIGN; /* each array may be padded */
    if (dc_shared(c) || c->bytes >= bytes) return ARES_OK;
    d->k->release(d, c->block, c->bytes);
    c->block = d->k->alloc(d, bytes);
    c->bytes = c->block ? bytes : 0;
    if (c->block) return ARES_OK;
    return ares_device_full(d, role, "columns", bytes, false,
                            "lower data.rollout_batch_size or data.max_response_length");
}

void *dc_place(device_columns *c, void *host, size_t bytes)
{
    if (dc_shared(c) || !host) return host;
    char *p = c->block + c->used;
    c->used += aligned(bytes);
    ARES_ASSERT(c->used <= c->bytes);
    return p;
}

void dc_upload(const device_columns *c, void *device, const void *host, size_t bytes)
{
    if (device != host && bytes) c->device->k->copy_in(c->device, device, host, bytes);
}

void dc_download(device_columns *c, const column_part *part, int n)
{
    ares_device *d = c->device;
    const ares_kernels *k = d->k;
    size_t bytes = 0, at = 0;
    if (dc_shared(c)) return;
    for (int i = 0; i < n; i++) bytes += aligned(part[i].bytes);
    if (c->staged_bytes < bytes) {
        if (c->staged) k->release(d, c->staged, c->staged_bytes);
        c->staged = k->alloc(d, bytes);
        c->staged_bytes = c->staged ? bytes : 0;
        c->host_staged = ares_realloc(c->host_staged, c->staged_bytes);
    }
    if (c->staged_bytes < bytes) { /* the card is full: as many waits as arrays */
        for (int i = 0; i < n; i++) k->copy_out(d, part[i].host, part[i].device, part[i].bytes);
        return;
    }
    /* gathered on the card, so that the host waits for one copy only */
    for (int i = 0; i < n; at += aligned(part[i++].bytes))
        k->copy(d, c->staged + at, part[i].device, part[i].bytes);
    k->copy_out(d, c->host_staged, c->staged, bytes);
    at = 0;
    for (int i = 0; i < n; at += aligned(part[i++].bytes))
        memcpy(part[i].host, c->host_staged + at, part[i].bytes);
}

int dc_sync_if_host(const device_columns *c)
{
    return dc_shared(c) ? c->device->k->sync(c->device) : ARES_OK;
}

/* Images and videos in the passes of a learner. */

/*
 * Features of what stands in the passes, in the learner's arena. keep: for a backward. A trained
 * tower makes those of an update anew, so that exact/vision_max_abs compares two computations.
 */
static int media_show(learner *l, ares_packed *packed, int n, bool keep)
{
    size_t row = (size_t)l->model->cfg.hidden * sizeof(float);
    bool fresh = keep && l->trains_tower;
    if (l->features && !fresh) ares_features_at(l->features, learner_version(l));
    for (int i = 0; i < n; i++) {
        ares_packed *p = &packed[i];
        if (!p->n_features) continue;
        if (!l->features)
            return ares_fail(ARES_EUNSUPPORTED,
                             "%s: rows have images or videos, which this model does not see; leave "
                             "such rows out",
                             l->role);
        float *in = ares_arena_alloc(&l->arena, (size_t)p->n_features * row);
        ARES_TRY(fresh ? ares_features_show_fresh(l->features, p, in, &l->features_off)
                       : ares_features_show(l->features, p, in));
    }
    return ARES_OK;
}

static bool some_derivative(const float *d, int32_t width, const ares_shown *s)
{
    for (int64_t i = (int64_t)s->at * width; i < ((int64_t)s->at + s->n) * width; i++)
        if (d[i] != 0) return true;
    return false;
}

/* The derivatives by features go back through a trained tower, pass by pass. */
static int media_backward(learner *l, const ares_packed *packed, int n)
{
    ares_model *m = l->model;
    if (!l->trains_tower) return ARES_OK;
    for (int i = 0; i < n; i++) {
        const ares_packed *p = &packed[i];
        if (!p->n_features) continue;
        const ares_matrix by = { p->d_features, m->device->k->act, ARES_ROWS, p->n_features,
                                 m->cfg.hidden };
        float *d = ares_malloc((size_t)p->n_features * (size_t)m->cfg.hidden * sizeof *d);
        ares_matrix_unpack(&by, d, ARES_F32);
        ares_packed some = *p; /* pictures that some derivative reaches */
        ares_shown *shown = ares_arena_alloc(&l->arena, (size_t)p->n_shown * sizeof *shown);
        some.shown = shown;
        some.n_shown = 0;
        for (int32_t s = 0; s < p->n_shown; s++)
            if (!l->skip_zero || some_derivative(d, m->cfg.hidden, &p->shown[s]))
                shown[some.n_shown++] = p->shown[s];
        int rc = ares_features_backward(l->features, l->tower_keep, &some, d);
        ares_free(d);
        ARES_TRY(rc);
    }
    return ARES_OK;
}

int media_report(learner *l, learner *other, const ares_batch *b, ares_metrics *m)
{
    if (!l->features) return ARES_OK;
    int64_t tokens = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        const ares_row_media *s = b->samples[r].row_media;
        bool again = r > 0 && s == b->samples[r - 1].row_media; /* another answer to the prompt */
        for (int32_t i = 0; s && !again && i < s->n_places; i++) tokens += s->places[i].n;
    }
    ARES_TRY(ares_world_sum_i64(l->world, &tokens, 1));
    ares_metrics_set(m, "data/image_tokens", (double)tokens);
    double seconds = ares_features_seconds(l->features); /* which begin anew */
    if (other && other->features) seconds += ares_features_seconds(other->features);
    ares_metrics_set(m, "timing_s/vision", seconds);
    if (!l->trains_tower) return ARES_OK;
    ARES_TRY(ares_world_max_f64(l->world, &l->features_off, 1));
    ares_metrics_set(m, "exact/vision_max_abs", l->features_off);
    l->features_off = 0;
    return ARES_OK;
}

/* A model, its passes over rows of a batch, and its updates: the same for every role. */

int learner_check_storage(const char *role, ares_dtype storage, const ares_device *d)
{
    if (d->k->act == ARES_F32 || storage == ARES_BF16) return ARES_OK;
    return ares_fail(
        ARES_ECONFIG,
        "config: worker.%s.fsdp.torch_dtype = 'fp32': this device computes in bf16, as "
        "worker.actor.fsdp.torch_dtype asks; set worker.%s.fsdp.torch_dtype=bf16",
        role, role);
}

/*
 * Tokens that go through a model together without a backward, where weights come region by region.
 * A card of 600 TFLOP/s computes six times as long with a weight as it takes from the host at 55
 * GB/s; hidden states of 3,584 numbers take 1.4 GB. It changes no bit.
 */
enum { LEARNER_SCORED = 65536 };

static int open_workspace(learner *l, ares_keep keep)
{
    ARES_TRY(ares_workspace_new(l->model, keep, &l->workspace));
    ares_workspace_skip_zero(l->workspace, l->skip_zero);
    if (l->adapter) (void)ares_workspace_adapt(l->workspace, l->adapter->rank);
    return ARES_OK;
}

int learner_open(learner *l, ares_model *m, const learner_options *o)
{
    *l = (learner){ .role = o->role,
                    .model = m,
                    .adapter = o->adapter,
                    .adapted = { .adapter = o->adapter, .end = INT32_MAX },
                    .features = o->features,
                    .trains_tower = o->features && ares_features_trained(o->features),
                    .skip_zero = o->skip_zero,
                    .scored_tokens = LEARNER_SCORED,
                    .world = o->world };
    ares_params *ps = learner_params(l);
    /* the world's ranks make the same passes; a plan has no world */
    ARES_ASSERT(!o->world || !ps->share.group ||
                ares_params_ranks(ps) == ares_world_size(o->world));
    if (o->round_tokens != ARES_NULL_I64)
        l->scored_tokens = ARES_MIN(o->round_tokens, (int64_t)LEARNER_SCORED);
    /* weights that stay as they are: no pass is followed by a backward */
    if (!o->optim) return open_workspace(l, ARES_KEEP_NOTHING);
    l->round_tokens = o->round_tokens == ARES_NULL_I64 ? 0 : o->round_tokens;
    ARES_TRY(optim_init(&l->optim, o->optim, o->total_steps));
    ARES_TRY(optim_alloc_states(&l->optim, ps));
    /* a round of several micro-batches computes blocks again in any case */
    bool inputs = o->gradient_checkpointing || ares_params_by_region(&m->params);
    l->tower_keep = o->gradient_checkpointing ? ARES_KEEP_INPUTS : ARES_KEEP_ALL;
    return open_workspace(l, inputs ? ARES_KEEP_INPUTS : ARES_KEEP_ALL);
}

static void close_columns(learner *l)
{
    device_columns *all[] = { &l->targets, &l->stats, &l->columns };
    for (int i = 0; i < ARES_COUNT(all); i++) { /* some of them may never have been opened */
        device_columns *c = all[i];
        if (c->block) c->device->k->release(c->device, c->block, c->bytes);
        if (c->staged) c->device->k->release(c->device, c->staged, c->staged_bytes);
        ares_free(c->host_staged);
        *c = (device_columns){ 0 };
    }
}

void learner_close(learner *l)
{
    if (!l->model) return;
    ares_device *d = l->model->device;
    ares_phase_give_back(d, &l->scratch);
    ares_workspace_free(l->workspace);
    close_columns(l);
    ares_arena_fini(&l->arena);
    *l = (learner){ 0 };
}

/* Makes the scratch hold so many bytes; what it held is lost where it grows. */
static int learner_reserve(learner *l, size_t bytes)
{
    ares_device *d = l->model->device;
    l->scratch_bytes = ARES_MAX(l->scratch_bytes, bytes);
    if (ares_phase_take(d, ARES_PHASE_TRAIN, &l->scratch, l->scratch_bytes)) return ARES_OK;
    l->scratch_bytes = 0; /* a smaller round may still fit */
    char remedy[80];
    snprintf(remedy, sizeof remedy, "lower worker.%s.max_token_len_per_device", l->role);
    return ares_device_full(d, l->role, "derivatives of a round", bytes, false, remedy);
}

bool learner_by_region(const learner *l, const learner *with)
{
    return ares_params_by_region(&l->model->params) ||
           (with && ares_params_by_region(&with->model->params));
}

int64_t learner_micro_batches_per_round(const learner *l, const learner *with, int64_t n)
{
    return learner_by_region(l, with) ? n : ARES_MIN(n, 1);
}

int64_t learner_scored_together(const learner *l, const learner *with, int64_t n, int64_t tokens)
{
    int64_t most = ARES_MAX(1, l->scored_tokens / ARES_MAX(1, tokens));
    return ARES_MIN(learner_micro_batches_per_round(l, with, n), most);
}

int learner_cut_scored(const learner *l, const learner *with, const ares_micro_set *sets, int64_t n,
                       bool meet, ares_arena *arena, learner_scored *out)
{
    int64_t rounds = 0, most, together = 0;
    int64_t *first = ares_arena_alloc(arena, (size_t)(n + 2) * sizeof *first);
    bool each = !learner_by_region(l, with);
    ares_work_expect(ARES_WORK_MICRO_BATCHES, n);
    first[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        bool full = each || together + sets[i].tokens > l->scored_tokens;
        if (i && full) first[++rounds] = i, together = 0;
        together += sets[i].tokens;
    }
    most = ++rounds;
    if (meet) ARES_TRY(ares_world_max_i64(l->world, &most, 1));
    *out = (learner_scored){ most, ares_arena_alloc(arena, (size_t)(most + 1) * sizeof *first) };
    /* where other ranks have more rounds, empty ones follow */
    for (int64_t i = 0; i <= most; i++) out->first[i] = i < rounds ? first[i] : n;
    return ARES_OK;
}

int learner_cut_rounds(const learner *l, const ares_batch *b, int64_t row, int64_t end, bool share,
                       ares_arena *arena, learner_rounds *out)
{
    int64_t n = 1, most;
    ares_micro_batch *own = ares_arena_alloc(arena, (size_t)(end - row + 1) * sizeof *own);
    *own = (ares_micro_batch){ .row = row, .end = end };
    if (l->round_tokens) n = ares_pack_plan(b, row, end, l->round_tokens, share, own);
    most = n;
    if (l->round_tokens) ARES_TRY(ares_world_max_i64(l->world, &most, 1));
    ares_micro_batch *all = ares_arena_alloc(arena, (size_t)(most + 1) * sizeof *all);
    most = ARES_MAX(most, 1);
    for (int64_t i = 0; i < most; i++) /* where other ranks have more rounds, empty ones follow */
        all[i] = i < n ? own[i] : (ares_micro_batch){ .row = end, .end = end };
    *out = (learner_rounds){ most, all };
    return ARES_OK;
}

int learner_share_round_error(const learner *l, int rc)
{
    return l->round_tokens ? ares_world_share_error(l->world, rc) : rc;
}

int learner_end_round(const learner *l, int rc)
{
    ARES_TRY(learner_share_round_error(l, rc));
    if (l->round_tokens) ares_params_end_round(learner_params(l));
    return ARES_OK;
}

/* What became of this rank's part, before passes that gather the model's weights. */
static int agree(const learner *l, int rc)
{
    const ares_model_share *s = &l->model->params.share;
    return s->how == ARES_SHARE_ALL ? ares_group_agree(s->group, rc) : rc;
}

/* Packs the rows, and brings the targets to the device. */
static int pack_round(learner *l, const ares_batch *b, const ares_micro_set *sets, int64_t n,
                      bool share_prompts, learner_pass *out)
{
    const int32_t **targets = ares_arena_alloc(&l->arena, (size_t)(n + 1) * sizeof *targets);
    size_t bytes = 0;
    ARES_TRY(ares_signal_poll()); /* between rounds is where a run can stop */
    for (int64_t i = 0; i < n; i++) {
        out[i] = (learner_pass){ 0 };
        ares_pack_build(b, &sets[i], share_prompts, &l->arena, &out[i].packed, &targets[i]);
        bytes += (size_t)out[i].packed.n_out * sizeof **targets;
    }
    ARES_TRY(dc_open(&l->targets, l->model->device, l->role, bytes, (int)n));
    for (int64_t i = 0; i < n; i++) {
        size_t size = (size_t)out[i].packed.n_out * sizeof **targets;
        int32_t *on = dc_place(&l->targets, (int32_t *)(uintptr_t)targets[i], size);
        dc_upload(&l->targets, on, targets[i], size);
        out[i].targets = on;
    }
    return ARES_OK;
}

/* The passes that have a response token, as the model takes them; returns how many. */
static int packed_of(learner *l, const learner_pass *p, int64_t n, ares_packed **packed)
{
    int present = 0;
    *packed = ares_arena_alloc(&l->arena, (size_t)(n + 1) * sizeof **packed);
    for (int64_t i = 0; i < n; i++) {
        if (!p[i].packed.n_out) continue;
        (*packed)[present] = p[i].packed; /* which another learner may have packed */
        (*packed)[present].adapted = &l->adapted;
        (*packed)[present++].n_adapted = l->adapter != NULL;
    }
    return present;
}

/* The forward of model l->model over passes that l, or another learner, has packed. */
static int run_round(learner *l, const learner_pass *p, int64_t n, bool keep, void **hidden)
{
    ares_packed *packed;
    void **found = ares_arena_alloc(&l->arena, (size_t)(n + 1) * sizeof *found);
    int present = packed_of(l, p, n, &packed);
    ARES_TRY(agree(l, media_show(l, packed, present, keep)));
    ARES_TRY(ares_model_forward_round(l->model, l->workspace, packed, present, keep, found));
    for (int64_t i = 0, k = 0; i < n; i++) hidden[i] = p[i].packed.n_out ? found[k++] : NULL;
    return ARES_OK;
}

static int forward_sets(learner *l, const ares_batch *b, const ares_micro_set *sets, int64_t n,
                        bool share_prompts, bool keep, learner_pass *out)
{
    ares_arena_reset(&l->arena);
    void **hidden = ares_arena_alloc(&l->arena, (size_t)(n + 1) * sizeof *hidden);
    ARES_TRY(agree(l, pack_round(l, b, sets, n, share_prompts, out)));
    ARES_TRY(run_round(l, out, n, keep, hidden));
    for (int64_t i = 0; i < n; i++) out[i].hidden = hidden[i];
    return ARES_OK;
}

int learner_forward_round(learner *l, const ares_batch *b, const ares_micro_set *sets, int64_t n,
                          bool share_prompts, bool keep, learner_pass *out)
{
    ares_work_done(ARES_WORK_MICRO_BATCHES, n); /* they have begun */
    return forward_sets(l, b, sets, n, share_prompts, keep, out);
}

int learner_forward_beside(learner *l, const ares_batch *b, const ares_micro_set *sets, int64_t n,
                           bool share_prompts, learner_pass *pass)
{
    return forward_sets(l, b, sets, n, share_prompts, false, pass);
}

int learner_forward_packed(learner *l, learner_pass *p, bool keep)
{
    void *hidden;
    ARES_TRY(run_round(l, p, 1, keep, &hidden));
    p->hidden = hidden;
    return ARES_OK;
}

int learner_forward_same_rows(learner *l, const learner_pass *p, int64_t n, void **hidden)
{
    ares_arena_reset(&l->arena);
    return run_round(l, p, n, false, hidden);
}

ares_micro_set *learner_sets_of(const ares_micro_batch *m, int64_t n, ares_arena *arena)
{
    ares_micro_set *sets = ares_arena_alloc(arena, (size_t)(n + 1) * sizeof *sets);
    for (int64_t i = 0; i < n; i++) sets[i] = (ares_micro_set){ 1, &m[i], m[i].tokens, m[i].out };
    return sets;
}

/* Of the derivatives of a pass. */
static size_t derivative_bytes(const learner *l, int32_t rows)
{
    size_t row = (size_t)l->model->cfg.hidden * ares_dtype_bytes(l->model->device->k->act);
    return ares_phase_size((size_t)rows * row);
}

int learner_reserve_round(learner *l, learner_pass *p, int64_t n, size_t more, void **rest)
{
    size_t at = 0;
    for (int64_t i = 0; i < n; i++) at += derivative_bytes(l, p[i].packed.n_out);
    ARES_TRY(learner_reserve(l, at + more));
    char *to = l->scratch.data;
    for (int64_t i = 0; i < n; i++) {
        p[i].d_hidden = to;
        to += derivative_bytes(l, p[i].packed.n_out);
    }
    if (rest) *rest = to;
    return ARES_OK;
}

void learner_hold_head(const learner *l)
{
    ares_region_load(&l->model->params, ares_model_head_region(l->model));
}

void learner_drop_head(const learner *l)
{
    ares_region_unload(&l->model->params, ares_model_head_region(l->model));
}

ares_head_args learner_head(const learner *l, learner_pass *p, double temperature)
{
    bool adapted =
        ares_model_adapt_head(l->workspace, l->adapter, p->hidden, p->packed.n_out, &p->head);
    return (ares_head_args){ .rows = p->packed.n_out,
                             .vocab = l->model->cfg.vocab,
                             .x = p->hidden,
                             .ldx = l->model->cfg.hidden,
                             .w = ares_model_head(l->model),
                             .adapter = adapted ? &p->head : NULL,
                             .target = p->targets,
                             .inv_temperature = ares_inv_temperature((float)temperature) };
}

void learner_head_beside(const learner *ref, learner_pass *p, const void *hidden, ares_head_args *h)
{
    h->ref_x = hidden;
    h->ld_ref = ref->model->cfg.hidden;
    h->ref_w = ares_model_head(ref->model);
    if (ares_model_adapt_head(ref->workspace, ref->adapter, hidden, p->packed.n_out, &p->ref_head))
        h->ref_adapter = &p->ref_head;
}

int learner_reserve_backward(learner *l, int32_t rows, int64_t n, size_t more)
{
    return learner_reserve(l, (size_t)n * derivative_bytes(l, rows) + more);
}

size_t learner_expect_backward(learner *l, int32_t rows, int64_t n, size_t more)
{
    size_t bytes = (size_t)n * derivative_bytes(l, rows) + more;
    l->scratch_bytes = ARES_MAX(l->scratch_bytes, bytes);
    return ares_phase_size(l->scratch_bytes);
}

void learner_head_backward(const learner *l, const learner_pass *p, ares_head_args *h)
{
    ares_region_grad(&l->model->params, ares_model_head_region(l->model));
    h->dx = p->d_hidden;
    h->lddx = l->model->cfg.hidden;
    h->dw = ares_model_head_grad(l->model);
    h->skip_zero = l->skip_zero;
}

int learner_sync(const learner *l)
{
    ares_model *m = l->model;
    bool gathered = m->params.share.how == ARES_SHARE_ALL; /* weights come from other ranks */
    if (m->tp) ARES_TRY(ares_group_sync(m->tp));
    return gathered ? ares_params_sync(&m->params) : m->device->k->sync(m->device);
}

int learner_share_error(const learner *l, const learner *with, int rc)
{
    return learner_by_region(l, with) ? ares_world_share_error(l->world, rc) : rc;
}

int learner_zero_grad(const learner *l, const learner *with)
{
    return learner_share_error(l, with, ares_params_zero_grad(learner_params(l)));
}

int learner_backward_round(learner *l, const learner_pass *p, int64_t n)
{
    ares_packed *packed;
    const void **d_hidden = ares_arena_alloc(&l->arena, (size_t)(n + 1) * sizeof *d_hidden);
    int present = packed_of(l, p, n, &packed);
    size_t row = (size_t)l->model->cfg.hidden * ares_dtype_bytes(l->model->device->k->act);
    for (int i = 0; i < present && l->trains_tower;
         i++) /* memory for the derivatives by features */
        packed[i].d_features = ares_arena_alloc(&l->arena, (size_t)packed[i].n_features * row + 1);
    for (int64_t i = 0, k = 0; i < n; i++) {
        if (!p[i].packed.n_out) continue;
        if (p[i].head.b) /* the head's own backward has written du */
            ares_model_adapt_head_backward(l->workspace, l->adapter, &p[i].head, p[i].hidden,
                                           p[i].packed.n_out, p[i].d_hidden);
        d_hidden[k++] = p[i].d_hidden;
    }
    ARES_TRY(ares_model_backward_round(l->model, l->workspace, packed, present, d_hidden));
    return media_backward(l, packed, present);
}

learner_scoring learner_scoring_of(const ares_train_config *cfg)
{
    return (learner_scoring){ .max_token_len = cfg->actor.max_token_len,
                              .share_prompts = cfg->actor.share_prompts,
                              .temperature = cfg->rollout.temperature };
}

/* What the head finds of n rows: log-probs, entropies and log-sum-exps, on the device. */
static void head_writes(ares_head_args *h, float *stats, size_t n)
{
    h->log_prob = stats;
    h->entropy = stats + n;
    h->lse = stats + 2 * n;
}

/* stats [3][n]: of the sets, one after the other, on the host once all have been computed. */
static int score_all(learner *l, const learner_scoring *s, const ares_batch *b,
                     const ares_micro_set *sets, int64_t n_sets, ares_arena *arena, float *stats,
                     size_t n)
{
    ares_device *d = l->model->device;
    size_t bytes = 3 * n * sizeof *stats;
    ares_vocab_parts parts;
    if (l->model->tp) parts = ares_model_head_parts(l->model);
    learner_pass *p = ares_arena_alloc(arena, (size_t)(n_sets + 1) * sizeof *p);
    ARES_TRY(agree(l, dc_open(&l->stats, d, l->role, bytes, 1)));
    float *on = dc_place(&l->stats, stats, bytes), *at = on;
    learner_scored rounds;
    bool meet =
        l->model->params.share.how == ARES_SHARE_ALL; /* ranks gather weights in each round */
    ARES_TRY(learner_cut_scored(l, NULL, sets, n_sets, meet, arena, &rounds));
    for (int64_t r = 0; r < rounds.n; r++) {
        int64_t i = rounds.first[r], end = rounds.first[r + 1];
        ARES_TRY(learner_forward_round(l, b, sets + i, end - i, s->share_prompts, false, p));
        learner_hold_head(l);
        for (int64_t k = 0; i < end; at += sets[i++].out, k++) {
            if (!p[k].packed.n_out) continue;
            ares_head_args h = learner_head(l, &p[k], s->temperature);
            h.parts = l->model->tp ? &parts : NULL;
            head_writes(&h, at, n);
            d->k->head(d, &h);
        }
        learner_drop_head(l);
        ARES_TRY(dc_sync_if_host(&l->stats));
    }
    /* the log-sum-exps stay behind: only the head needs them */
    dc_download(&l->stats, &(column_part){ stats, on, 2 * n * sizeof *stats }, 1);
    return learner_sync(l);
}

/*
 * Log-probs and entropies of all runs, in one pass over their sets. log_probs, entropies (NULL: not
 * wanted): their first number is of the batch's token `first`.
 */
static int score_runs(learner *l, const learner_scoring *s, const ares_batch *b,
                      const learner_rows *runs, int64_t n_runs, int64_t first, float *log_probs,
                      float *entropies)
{
    ares_arena plan = { 0 };
    int64_t n_sets = 0, rows = 0, n = 0;
    for (int64_t i = 0; i < n_runs; i++) {
        rows += runs[i].end - runs[i].row;
        n += b->row_start[runs[i].end] - b->row_start[runs[i].row];
    }
    ares_micro_set *sets = ares_arena_alloc(&plan, (size_t)(rows + 1) * sizeof *sets);
    int rc = ARES_OK;
    for (int64_t i = 0; i < n_runs && rc == ARES_OK; i++) {
        ares_micro_set *more;
        int64_t count = 0;
        rc = ares_pack_sets(b, runs[i].row, runs[i].end, s->max_token_len, s->share_prompts, &plan,
                            &more, &count);
        if (rc == ARES_OK && count) memcpy(sets + n_sets, more, (size_t)count * sizeof *sets);
        n_sets += rc == ARES_OK ? count : 0;
    }
    float *stats = ares_arena_alloc(&plan, ((size_t)n * 3 + 1) * sizeof *stats);
    rc = agree(l, rc);
    if (rc == ARES_OK) rc = score_all(l, s, b, sets, n_sets, &plan, stats, (size_t)n);
    for (int64_t i = 0, at = 0; rc == ARES_OK && i < n_sets; at += sets[i++].out) {
        if (log_probs) ares_pack_scatter(b, &sets[i], stats + at, first, log_probs);
        if (entropies) ares_pack_scatter(b, &sets[i], stats + n + at, first, entropies);
    }
    ares_arena_fini(&plan);
    return rc;
}

int learner_log_probs(learner *l, const learner_scoring *s, const ares_batch *b, int64_t row,
                      int64_t end, float *log_probs, float *entropies)
{
    return score_runs(l, s, b, &(learner_rows){ row, end }, 1, b->row_start[row], log_probs,
                      entropies);
}

int learner_log_probs_of(learner *l, const learner_scoring *s, const ares_batch *b,
                         const learner_rows *runs, int64_t n, float *column)
{
    return score_runs(l, s, b, runs, n, 0, column, NULL);
}

int ares_train_log_probs(ares_model *m, ares_adapter *adapter, ares_workspace *w,
                         ares_features *features, const ares_train_config *cfg, const ares_batch *b,
                         int64_t row, int64_t end, float *log_probs, float *entropies)
{
    /* not opened: the caller has the workspace, and no optimizer is wanted */
    learner l = { .role = "actor",
                  .model = m,
                  .adapter = adapter,
                  .adapted = { adapter, INT32_MAX },
                  .workspace = w,
                  .features = features,
                  .scored_tokens = LEARNER_SCORED };
    learner_scoring s = learner_scoring_of(cfg);
    int rc = learner_log_probs(&l, &s, b, row, end, log_probs, entropies);
    close_columns(&l);
    ares_arena_fini(&l.arena);
    return rc;
}

/* The coefficients of a loss that is linear in the log-probs. */
typedef struct linear_loss {
    ares_device *device;
    const float *d_log_prob;
} linear_loss;

/* Called by the head for a chunk of rows: the derivatives are given, whatever the log-probs. */
static void linear_losses(void *ctx, int32_t row, int32_t n, const float *log_prob,
                          const float *entropy, float *c_log_prob, float *c_entropy)
{
    (void)log_prob;
    (void)entropy;
    (void)c_entropy;
    const linear_loss *x = ctx;
    x->device->k->copy(x->device, c_log_prob, x->d_log_prob + row, (size_t)n * sizeof(float));
}

/* Numbers of a round of a linear loss, one per response token: on the host, on the device. */
typedef struct linear_columns {
    float *host_stats, *stats;  /* [3][n] */
    float *host_d, *d_log_prob; /* [n] */
    size_t n;
} linear_columns;

/* Brings the coefficients of n micro-batches to the device, with room for what the head finds. */
static int linear_open(learner *l, const ares_batch *b, const ares_micro_batch *m, int64_t n,
                       const float *d_log_prob, linear_columns *out)
{
    *out = (linear_columns){ 0 };
    for (int64_t i = 0; i < n; i++) out->n += (size_t)m[i].out;
    size_t bytes = out->n * sizeof(float);
    float *to = out->host_d = ares_arena_alloc(&l->arena, bytes + 1);
    out->host_stats = ares_arena_calloc(&l->arena, 3 * out->n + 1, sizeof(float));
    for (int64_t i = 0; i < n; to += m[i++].out)
        if (m[i].out)
            memcpy(to, d_log_prob + b->row_start[m[i].row], (size_t)m[i].out * sizeof *to);
    ARES_TRY(dc_open(&l->stats, l->model->device, l->role, 4 * bytes, 2));
    out->stats = dc_place(&l->stats, out->host_stats, 3 * bytes);
    out->d_log_prob = dc_place(&l->stats, out->host_d, bytes);
    dc_upload(&l->stats, out->d_log_prob, out->host_d, bytes);
    return ARES_OK;
}

/* One round of learner_add_gradients. p [n]: scratch */
static int add_gradients(learner *l, const learner_scoring *s, const ares_batch *b,
                         const ares_micro_batch *m, int64_t n, learner_pass *p,
                         const float *d_log_prob, double *sum)
{
    ares_device *d = l->model->device;
    ares_arena arena = { 0 };
    int rc =
        learner_forward_round(l, b, learner_sets_of(m, n, &arena), n, s->share_prompts, true, p);
    ares_arena_fini(&arena); /* the sets; what the passes need is in the learner's arena */
    ARES_TRY(rc);
    linear_columns c;
    rc = linear_open(l, b, m, n, d_log_prob, &c);
    if (rc == ARES_OK) rc = learner_reserve_round(l, p, n, 0, NULL);
    ARES_TRY(agree(l, rc));
    learner_hold_head(l);
    for (int64_t i = 0, at = 0; i < n; at += m[i++].out) {
        if (!p[i].packed.n_out) continue;
        linear_loss loss = { d, c.d_log_prob + at };
        ares_head_args h = learner_head(l, &p[i], s->temperature);
        head_writes(&h, c.stats + at, c.n);
        learner_head_backward(l, &p[i], &h);
        d->k->head_fused(d, &h, linear_losses, &loss);
    }
    learner_drop_head(l);
    ARES_TRY(learner_backward_round(l, p, n));
    if (!sum) return ARES_OK;
    dc_download(&l->stats, &(column_part){ c.host_stats, c.stats, c.n * sizeof(float) }, 1);
    ARES_TRY(d->k->sync(d));
    for (size_t i = 0; i < c.n; i++)
        if (c.host_d[i] != 0) /* others may have probability 0 */
            *sum += (double)c.host_d[i] * (double)c.host_stats[i];
    return ARES_OK;
}

int learner_add_gradients(learner *l, const learner_scoring *s, const ares_batch *b,
                          const ares_micro_batch *m, int64_t n, const float *d_log_prob,
                          double *sum)
{
    learner_pass *p = ares_malloc((size_t)(n + 1) * sizeof *p);
    int64_t i = 0;
    int rc;
    do {
        int64_t k = learner_micro_batches_per_round(l, NULL, n - i);
        rc = add_gradients(l, s, b, m + i, k, p, d_log_prob, sum);
        i += k;
    } while (i < n && rc == ARES_OK);
    ares_free(p);
    return rc;
}

double learner_lr(const learner *l)
{
    return optim_lr(&l->optim, l->step);
}

int learner_report_backward(learner *l, ares_metrics *m)
{
    int64_t all[2] = { l->rows.all, l->rows.active };
    l->rows = (ares_backward_rows){ 0 };
    ARES_TRY(ares_world_sum_i64(l->world, all, 2));
    if (all[0]) ares_metrics_set(m, "perf/backward_frac", (double)all[1] / (double)all[0]);
    return ARES_OK;
}

int learner_report_routing(learner *l, ares_metrics *m)
{
    const ares_model_config *c = &l->model->cfg;
    size_t n = (size_t)c->layers * (size_t)c->experts;
    if (!n) return ARES_OK;
    int64_t *sums = ares_calloc(n + 2, sizeof *sums), unused = 0;
    const ares_routing own = ares_workspace_routing(l->workspace, sums);
    double worst = 0;
    sums[n] = own.rows;
    sums[n + 1] = own.entropy;
    int rc = ares_world_sum_i64(l->world, sums, (int)n + 2);
    for (int32_t i = 0; i < c->layers && rc == ARES_OK && sums[n]; i++) {
        int64_t all = 0, most = 0, *of = sums + (size_t)i * (size_t)c->experts;
        if (!(c->layer[i] & ARES_LAYER_EXPERTS)) continue;
        for (int32_t e = 0; e < c->experts; e++) {
            all += of[e];
            most = ARES_MAX(most, of[e]);
            unused += of[e] == 0;
        }
        worst = fmax(worst, (double)most / (double)all * c->experts);
    }
    if (rc == ARES_OK && sums[n]) {
        ares_metrics_set(m, "moe/load_max", worst);
        ares_metrics_set(m, "moe/load_unused", (double)unused);
        ares_metrics_set(m, "moe/router_entropy", (double)sums[n + 1] * 0x1p-32 / (double)sums[n]);
    }
    ares_free(sums);
    return rc;
}

int learner_step(learner *l, int rc, double max_grad_norm, const char *what, double *norm)
{
    const ares_backward_rows rows = ares_workspace_rows(l->workspace);
    int64_t left_out = l->left_out;
    l->left_out = 0;
    if (rc == ARES_OK || rc == ARES_ENUMERIC)
        ares_signal_expect(ARES_SIGNAL_WAITS); /* what moves weights ends as a whole step */
    if (rc == ARES_ENUMERIC) {
        optim_skip(&l->optim, l->world, what);
        *norm = NAN;
        return ARES_OK;
    }
    if (rc == ARES_OK)
        rc = optim_step(&l->optim, learner_params(l), l->world, learner_lr(l), max_grad_norm, what,
                        norm);
    if (rc == ARES_OK && l->adapter) l->adapter->version++;
    if (rc == ARES_OK && !isnan(*norm)) {
        l->rows.all += rows.all + left_out;
        l->rows.active += rows.active;
    }
    return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", what);
}
