/*
 * The update of the actor by one mini-batch: forward, loss, backward. First the update's columns
 * on a card, then update_mini_batch with its orders of passes (which one depends on what the loss
 * needs to see at once), last what all mini-batches of an update have in common.
 */
#include "roles.h"

#include <math.h>
#include <string.h>

#include "ares/algo_loss.h"

/*
 * An update's columns on a card: copied there once, and what the host wants of a mini-batch copied
 * back in one wait. On the CPU the columns are the host's.
 */

/* Gives the columns their places on the device, and copies there those that are read. */
static int update_card_open(update *u)
{
    learner *l = &u->actor->learner;
    ares_batch *b = u->batch;
    device_columns *c = &l->columns;
    size_t n = (size_t)b->tokens + 1, rows = (size_t)b->rows + 1, bytes = 0;
    int count = 3; /* of a card: row_start, right and sums */
#define COUNT(type, name) bytes += u->host.name ? n * sizeof(type) : 0, count++;
    UPDATE_COLUMNS(COUNT)
#undef COUNT
    bytes += rows * (sizeof(int64_t) + 1) + sizeof(ares_card_sums);
    ARES_TRY(dc_open(c, l->model->device, l->role, bytes, count));
#define PLACE(type, name) u->col.name = dc_place(c, u->host.name, n * sizeof(type));
    UPDATE_COLUMNS(PLACE)
#undef PLACE
    /* the other columns are written before they are read */
#define COPY(name) dc_upload(c, u->col.name, u->host.name, (n - 1) * sizeof *u->host.name);
    COPY(old_log_prob)
    COPY(advantage)
    COPY(mask)
    if (u->host.ref_log_prob) COPY(ref_log_prob)
    if (u->host.kl_weight) COPY(kl_weight)
    if (u->host.rollout_weight) COPY(rollout_weight)
    if (u->host.seen_kl) COPY(seen_kl)
    if (u->host.ratio) COPY(ratio)
    if (u->host.clipped) COPY(clipped)
#undef COPY
    if (dc_shared(c)) return ARES_OK;
    /* what only a card has: rows as its losses read them, and their sums */
    uint8_t *right = ares_arena_calloc(&b->arena, rows, 1);
    for (int64_t r = 0; r < b->rows; r++) right[r] = ares_loss_right(&b->samples[r]);
    ares_card_sums *sums = ares_arena_calloc(&b->arena, 1, sizeof *sums);
    ares_loss_card *card = ares_arena_calloc(&b->arena, 1, sizeof *card);
    int64_t *start = dc_place(c, b->row_start, rows * sizeof *start);
    uint8_t *on = dc_place(c, right, rows);
    dc_upload(c, start, b->row_start, rows * sizeof *start);
    dc_upload(c, on, right, rows);
    *card = (ares_loss_card){ .row_start = start,
                              .right = on,
                              .sums = dc_place(c, sums, sizeof *sums) };
    u->card = card;
    return ARES_OK;
}

/* A column's part of rows [row, end), to be copied from the device to the host. */
static column_part part_of(const update *u, float *host, const float *col, int64_t row, int64_t end)
{
    int64_t first = u->batch->row_start[row], last = u->batch->row_start[end];
    return (column_part){ host + first, col + first, (size_t)(last - first) * sizeof *host };
}

/*
 * A loss sees the log-probs that its definition needs (ARES_LOSS_*): of single tokens, of rows, or
 * of the mini-batch. A loss of tokens runs inside the head, chunk by chunk; a loss of rows runs
 * between head forward and head backward of a micro-batch. Where the mini-batch decides
 * (covariances, early stop), all micro-batches go forward first, then the loss runs, and each
 * micro-batch goes forward again before its backward; with one micro-batch the first forward is
 * kept. Rounds (docs/ranks.md#rounds) are cuts of the mini-batch whose gradients are summed apart:
 * there, too, all go forward before the loss, and none of these forwards is kept where there are
 * several. A loss of pairs takes the rollout's log-probs where they are still the policy's, and
 * needs no forward before it. In all these ways the derivatives of a token are the same, and so are
 * the gradients, bit for bit.
 *
 * Losses compute where the head does (ares/algo_loss.h), with columns that lie there for the whole
 * update. On a card the host waits for them once a mini-batch, and once more where it decides
 * between the two passes; its own code (choices, early stop, pairs) works on u->host.
 */

static bool exact_kl(const actor *a)
{
    return !a->kl->value && ares_kl_acts(&a->cfg->algorithm) == ARES_KL_IN_LOSS;
}

/* Whether the head compares the policy with a teacher over the vocabulary. */
static bool diverges(const actor *a)
{
    return a->teacher && ares_distills_vocabulary(&a->cfg->distillation);
}

/* Whether the policy loss has no part in what is learnt: the teacher alone teaches. */
static bool taught_alone(const actor *a)
{
    const ares_distillation_config *c = &a->cfg->distillation;
    return a->teacher && !c->use_task_rewards && !c->use_policy_gradient;
}

bool actor_current(const actor *a, const ares_batch *b, int64_t token)
{
    return b->weight_versions && b->weight_versions[token] == a->learner.optim.updates &&
           a->cfg->rollout.temperature > 0;
}

/* Whether the loss sees all of the mini-batch at once. */
static bool sees_mini_batch(const actor *a)
{
    return a->loss->flags & (ARES_LOSS_BATCH | ARES_LOSS_PAIRS);
}

static bool stops_by_micro_batch(const actor *a)
{
    return !ares_is_null_f64(a->cfg->loss.early_stop_imp_ratio) &&
           strcmp(a->cfg->loss.early_stop_scope, "micro") == 0;
}

/* Consecutive tokens of the batch that a loss looks at together. */
typedef struct span {
    int64_t row, end; /* within these rows */
    int64_t first, n; /* batch tokens [first, first + n) */
    /* [n]: under the weights as they are */
    const float *log_prob, *entropy;
    /* [n]: written: derivatives of the loss */
    float *c_log_prob, *c_entropy;
} span;

/* All tokens of rows [row, end), in these columns. */
static span span_of(const update *u, const update_columns *c, int64_t row, int64_t end)
{
    int64_t first = u->batch->row_start[row];
    return (span){ .row = row,
                   .end = end,
                   .first = first,
                   .n = u->batch->row_start[end] - first,
                   .log_prob = c->log_prob + first,
                   .entropy = c->entropy + first,
                   .c_log_prob = c->c_log_prob + first,
                   .c_entropy = c->c_entropy + first };
}

/*
 * The largest difference between the update's log-probs and those that rollout recorded, over rows
 * [row, end) whose loss has been computed. Under the same weights it should be 0.
 */
static void compare_with_rollout(update *u, int64_t row, int64_t end)
{
    const ares_batch *b = u->batch;
    /* also what rollout_rs has rejected, which is where they differ */
    const uint8_t *mask = b->kept_mask ? b->kept_mask : b->response_mask;
    for (int64_t r = row; r < end; r++) {
        if (u->passed[r] && !u->met[r]) u->met[r] = u->compare ? 1 : 2;
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1] && u->passed[r] && u->compare;
             i++) {
            if (!mask[i] || !actor_current(u->actor, b, i)) continue;
            double difference = (double)u->host.log_prob[i] - (double)b->rollout_log_probs[i];
            u->max_abs = fmax(u->max_abs, fabs(difference));
            u->compared = 1;
            if (difference == 0 || u->differs) continue;
            u->differs = true;
            u->differs_row = r;
            u->differs_token = i - b->row_start[r];
        }
    }
}

void update_count_compared(const update *u, exactness *out)
{
    const actor *a = u->actor;
    const ares_batch *b = u->batch;
    const uint8_t *mask = b->kept_mask ? b->kept_mask : b->response_mask;
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
            int64_t version = b->weight_versions ? b->weight_versions[i] : ARES_NOT_SAMPLED;
            exactness_reason why = !mask[i]                           ? EXACT_not_trained
                                   : a->cfg->rollout.temperature <= 0 ? EXACT_greedy
                                   : version == ARES_NOT_SAMPLED      ? EXACT_not_sampled
                                   : version != u->version            ? EXACT_older_weights
                                   : u->met[r] == 2                   ? EXACT_after_update
                                   : u->met[r] == 0                   ? EXACT_no_forward
                                                                      : EXACT_REASONS;
            if (why == EXACT_REASONS) out->compared++;
            else out->not_compared[why]++;
        }
}

/* cfg: the options of the loss, without the terms that are not wanted of this part of it. */
static ares_loss_args args_of(update *u, const update_columns *c, const span *s,
                              const ares_loss_config *cfg)
{
    const actor *a = u->actor;
    const ares_batch *b = u->batch;
    int64_t t = s->first;
    ares_loss_args args = { .cfg = cfg,
                            .n = s->n,
                            .log_prob = s->log_prob,
                            .old_log_prob = c->old_log_prob + t,
                            .advantage = c->advantage + t,
                            .weight = c->weight + t,
                            .rollout_weight = c->rollout_weight ? c->rollout_weight + t : NULL,
                            .mask = c->mask + t,
                            .chosen = c->chosen ? c->chosen + t : NULL,
                            .entropy = s->entropy,
                            .d_log_prob = s->c_log_prob,
                            .d_entropy = s->c_entropy,
                            .ratio = c->ratio ? c->ratio + t : NULL,
                            .clipped = c->clipped ? c->clipped + t : NULL,
                            .sums = &u->sums,
                            .row = s->row,
                            .end = s->end,
                            .first = t,
                            .row_start = b->row_start,
                            .samples = b->samples,
                            .world = a->learner.world,
                            .update = u->pass,
                            .key = ares_rng_root((uint64_t)a->cfg->rollout.seed, ARES_RNG_LOSS),
                            .card = u->card };
    args.key = ares_rng_sub(args.key, (uint64_t)a->learner.step, 0);
    return args;
}

/* The arguments of the loss's KL term, from token t on. */
static ares_kl_args update_kl_args(const update *u, const update_columns *c, int64_t t)
{
    bool acts = u->part == UPDATE_WHOLE || u->part == UPDATE_KL;
    return (ares_kl_args){ .kl = u->actor->kl,
                           .coef = acts ? u->batch->kl_coef : 0,
                           .ref_log_prob = c->ref_log_prob ? c->ref_log_prob + t : NULL,
                           .weight = c->kl_weight ? c->kl_weight + t : NULL,
                           .out = c->seen_kl ? c->seen_kl + t : NULL,
                           .full = c->kl ? c->kl + t : NULL,
                           .d_full = c->c_kl ? c->c_kl + t : NULL };
}

/* The columns of what an update's first pass over each token found, for metrics. */
typedef struct seen_columns {
    float *divergence, *reverse_kl, *forward_kl, *teacher_entropy, *is_weight;
    uint8_t *agree, *clamped, *seen;
} seen_columns;

static void record(update *u, int64_t t, double value, double weight, bool clamped)
{
    seen_columns *f = u->first;
    const ares_batch *b = u->batch;
    const ares_divergence_row *row = u->row ? &u->row[t] : NULL;
    if (f->seen[t]) return;
    f->seen[t] = 1;
    f->divergence[t] = (float)value;
    f->reverse_kl[t] = row ? row->reverse_kl
                           : (float)((double)b->old_log_probs[t] - (double)b->teacher_log_probs[t]);
    f->is_weight[t] = (float)weight;
    f->clamped[t] = clamped;
    if (!row) return;
    f->forward_kl[t] = row->forward_kl;
    f->teacher_entropy[t] = row->ref_entropy;
    f->agree[t] = row->agrees != 0;
}

/*
 * The teacher's term of some tokens (docs/distillation.md): the derivative by the divergence, which
 * the head's backward takes on, or by the log-prob. Its weight is the policy loss's own.
 */
static int taught(update *u, const span *s)
{
    const ares_distillation_config *c = &u->actor->cfg->distillation;
    const ares_batch *b = u->batch;
    const ares_kl *kl = u->row ? NULL : ares_kl_find(c->loss_mode);
    for (int64_t i = 0; i < s->n; i++) {
        int64_t t = s->first + i, row = s->row;
        double log_prob = (double)s->log_prob[i], value, factor, derivative = 0, ratio = 1;
        bool clamped;
        if (!b->distilled[t]) continue;
        if (!ares_is_null_f64(c->is_clip))
            ratio = ares_distill_is_weight(log_prob, (double)b->old_log_probs[t], c->is_clip);
        double corrected = u->host.rollout_weight ? (double)u->host.rollout_weight[t] : 1,
               weight = (double)u->taught[t] * ratio * corrected;
        if (u->row) {
            double found = (double)u->row[t].value;
            value = ares_distill_clamp(found, c->loss_max_clamp, &factor);
            clamped = value != found;
            derivative = factor;
            u->col.c_divergence[t] = (float)(weight * factor);
        } else {
            value = ares_distill_token(kl, log_prob, (double)b->teacher_log_probs[t],
                                       c->loss_max_clamp, &derivative, &clamped);
            s->c_log_prob[i] += (float)(weight * derivative);
        }
        while (b->row_start[row + 1] <= t) row++;
        if (!isfinite(value * weight) || !isfinite(derivative))
            return ares_fail(ARES_ENUMERIC,
                             "distillation: row %lld, token %lld has divergence %g and weight %g: "
                             "must be finite where the teacher teaches",
                             (long long)row, (long long)(t - b->row_start[row]), value, weight);
        u->distilled += value * weight;
        record(u, t, value, ratio, clamped);
    }
    return ARES_OK;
}

/* Counts the tokens that have a derivative, of those that are trained. */
static void count_active(update *u, const span *s)
{
    const float *c_kl = u->col.c_kl ? u->col.c_kl + s->first : NULL,
                *c_divergence = u->row ? u->col.c_divergence + s->first : NULL;
    for (int64_t t = 0; t < s->n; t++) {
        if (!u->col.mask[s->first + t]) continue;
        u->trained++;
        u->active += s->c_log_prob[t] != 0 || (s->c_entropy && s->c_entropy[t] != 0) ||
                     (c_kl && c_kl[t] != 0) || (c_divergence && c_divergence[t] != 0);
    }
}

/* The loss of some tokens, with its KL and entropy terms. */
static int losses(update *u, const span *s)
{
    const actor *a = u->actor;
    ares_device *d = a->learner.model->device;
    ares_loss_config cfg = a->cfg->loss;
    if (u->part == UPDATE_TASK || u->part == UPDATE_KL) cfg.entropy_coeff = 0;
    const ares_loss_args args = args_of(u, &u->col, s, &cfg);
    const ares_kl_args kl = update_kl_args(u, &u->col, s->first),
                       *with = u->host.seen_kl ? &kl : NULL;
    bool pairs = a->loss->flags & ARES_LOSS_PAIRS;
    if (pairs) ARES_TRY(pair_loss(u, s->row, s->end));
    memset(u->passed + s->row, 1, (size_t)(s->end - s->row));
    if (u->known) return ARES_OK; /* the terms need entropies, which no forward has given yet */
    bool terms_alone =
        pairs || u->part == UPDATE_ENTROPY || u->part == UPDATE_KL || taught_alone(u->actor);
    /* the tokens that it treats apart are chosen on the host */
    if (!terms_alone && u->col.chosen) {
        const span all = span_of(u, &u->host, s->row, s->end);
        const ares_loss_args host = args_of(u, &u->host, &all, &a->cfg->loss);
        uint8_t *chosen = u->host.chosen + s->first;
        bool any;
        memset(chosen, 0, (size_t)s->n);
        ARES_TRY(a->loss->choose(&host, chosen, &any));
        dc_upload(&a->learner.columns, u->col.chosen + s->first, chosen, (size_t)s->n);
    }
    ARES_TRY(terms_alone ? ares_loss_terms(d, &args, with)
                         : ares_loss_compute(d, a->loss, &args, with));
    if (u->taught) ARES_TRY(taught(u, s));
    if (!u->card) count_active(u, s);
    return ARES_OK;
}

/* Called by the head for each chunk of rows it has logits for. */
static void token_losses(void *ctx, int32_t row, int32_t n, const float *log_prob,
                         const float *entropy, float *c_log_prob, float *c_entropy)
{
    update *u = ctx;
    const span s = { .row = u->micro->row,
                     .end = u->micro->end,
                     .first = u->batch->row_start[u->micro->row] + row,
                     .n = n,
                     .log_prob = log_prob,
                     .entropy = entropy,
                     .c_log_prob = c_log_prob,
                     .c_entropy = c_entropy };
    if (u->rc == ARES_OK) u->rc = losses(u, &s);
}

/* The micro-batches of a round, each between its forward and its backward. */
typedef struct round_pass {
    const ares_micro_batch *micro; /* [n] */
    int64_t n;
    learner_pass *rows;
    ares_head_args *head;
} round_pass;

learner *actor_beside(const actor *a)
{
    return exact_kl(a) ? &a->ref->learner : diverges(a) ? a->teacher->learner : NULL;
}

/* The same in this update: the terms that a teacher has no part in are differentiated without it.
 */
static learner *beside(const update *u)
{
    return diverges(u->actor) && !u->row ? NULL : actor_beside(u->actor);
}

/* The head of a micro-batch, which writes to the columns of its tokens. */
static ares_head_args head_of(const update *u, const ares_micro_batch *m, learner_pass *rows)
{
    const actor *a = u->actor;
    const update_columns *c = &u->col;
    int64_t t = u->batch->row_start[m->row];
    ares_head_args h = learner_head(&a->learner, rows, a->cfg->rollout.temperature);
    h.log_prob = c->log_prob + t;
    h.entropy = c->entropy + t;
    h.lse = c->lse + t;
    h.c_log_prob = c->c_log_prob + t;
    h.c_entropy = a->cfg->loss.entropy_coeff != 0 ? c->c_entropy + t : NULL;
    learner_head_backward(&a->learner, rows, &h);
    if (u->row) {
        ares_divergence_args *by = ares_arena_alloc(&u->batch->arena, sizeof *by);
        *by = (ares_divergence_args){
            .beta = (float)a->cfg->distillation.beta,
            .inv_temperature = ares_inv_temperature((float)a->teacher->temperature),
            .vocab = (int32_t)ARES_MIN(a->teacher->readable,
                                       (int64_t)a->teacher->learner->model->cfg.vocab),
            .row = u->row + t,
            .c = c->c_divergence + t
        };
        h.divergence = by;
    }
    if (!exact_kl(a)) return h;
    h.kl = c->kl + t;
    h.ref_lse = c->ref_lse + t;
    h.c_kl = c->c_kl + t;
    return h;
}

/*
 * The forward pass of n micro-batches, up to the head, whose arguments are made ready. keep: for a
 * backward
 */
static int forward(update *u, const ares_micro_batch *m, int64_t n, bool keep, round_pass *p)
{
    learner *l = &u->actor->learner, *ref = beside(u);
    ares_arena *arena = &u->batch->arena;
    size_t count = (size_t)n + 1;
    *p = (round_pass){ .micro = m,
                       .n = n,
                       .rows = ares_arena_alloc(arena, count * sizeof *p->rows),
                       .head = ares_arena_alloc(arena, count * sizeof *p->head) };
    int rc = learner_forward_round(l, u->batch, learner_sets_of(m, n, arena), n,
                                   u->actor->cfg->actor.share_prompts, keep, p->rows);
    if (rc == ARES_OK) rc = learner_reserve_round(l, p->rows, n, 0, NULL);
    ARES_TRY(learner_share_error(l, ref, rc));
    for (int64_t i = 0; i < n; i++) p->head[i] = head_of(u, &m[i], &p->rows[i]);
    if (!ref) return ARES_OK;
    /* the reference over the same rows, for the heads to compare with */
    void **hidden = ares_arena_alloc(arena, count * sizeof *hidden);
    if (u->row) { /* the teacher's rows have prompts of their own */
        learner_pass *own = ares_arena_alloc(arena, count * sizeof *own);
        ARES_TRY(teacher_forward(u->actor->teacher, &u->beside, m, n, arena, own));
        for (int64_t i = 0; i < n; i++) hidden[i] = own[i].hidden;
    } else ARES_TRY(learner_forward_same_rows(ref, p->rows, n, hidden));
    for (int64_t i = 0; i < n; i++) learner_head_beside(ref, &p->rows[i], hidden[i], &p->head[i]);
    return ARES_OK;
}

/*
 * Visits the micro-batches that have a response token, with the weights of the heads on the device.
 * Fails on every rank where one has failed.
 */
static int visit(update *u, const round_pass *p,
                 int (*each)(update *u, const ares_micro_batch *m, ares_head_args *h))
{
    const actor *a = u->actor;
    int rc = ARES_OK;
    learner_hold_head(&a->learner);
    if (beside(u)) learner_hold_head(beside(u));
    for (int64_t i = 0; i < p->n && rc == ARES_OK; i++)
        if (p->rows[i].packed.n_out) rc = each(u, &p->micro[i], &p->head[i]);
    learner_drop_head(&a->learner);
    if (beside(u)) learner_drop_head(beside(u));
    return learner_share_error(&a->learner, beside(u), rc);
}

static int head(update *u, const ares_micro_batch *m, ares_head_args *h)
{
    (void)m;
    ares_device *d = u->actor->learner.model->device;
    d->k->head(d, h);
    return dc_sync_if_host(&u->actor->learner.columns);
}

static int head_backward(update *u, const ares_micro_batch *m, ares_head_args *h)
{
    (void)m;
    ares_device *d = u->actor->learner.model->device;
    d->k->head_backward(d, h);
    return ARES_OK;
}

/* Head, loss and the head's backward of a micro-batch whose loss needs no other micro-batch. */
static int head_and_loss(update *u, const ares_micro_batch *m, ares_head_args *h)
{
    actor *a = u->actor;
    ares_device *d = a->learner.model->device;
    if ((a->loss->flags & ARES_LOSS_LOCAL) && !exact_kl(a)) {
        u->micro = m;
        d->k->head_fused(d, h, token_losses, u);
        return u->rc;
    }
    ARES_TRY(head(u, m, h));
    const span s = span_of(u, &u->col, m->row, m->end);
    ARES_TRY(losses(u, &s));
    return head_backward(u, m, h);
}

/*
 * Micro-batches as loss_norm and early_stop_scope count them: runs of `size` rows. The cuts that
 * bound memory are others (make_cuts).
 */
static int64_t runs_of(int64_t row, int64_t end, int64_t size, ares_micro_batch *out)
{
    int64_t n = 0;
    for (; row < end; row += size)
        out[n++] = (ares_micro_batch){ .row = row, .end = ARES_MIN(row + size, end) };
    return n;
}

/*
 * Which micro-batches are left out because the mean importance ratio of their tokens, or of the
 * mini-batch's, is too large (docs/dapo.md#early-stop).
 */
static int stop_early(update *u, const ares_micro_batch *plan, int64_t n, bool *stopped)
{
    const ares_batch *b = u->batch;
    const ares_loss_config *c = &u->actor->cfg->loss;
    int ranks = ares_world_size(u->actor->learner.world),
        rank = ares_world_rank(u->actor->learner.world);
    bool by_micro = stops_by_micro_batch(u->actor);
    double total[2] = { 0 };
    int64_t most = n;
    if (ares_is_null_f64(c->early_stop_imp_ratio)) return ARES_OK;
    ARES_TRY(ares_world_max_i64(u->actor->learner.world, &most, 1));
    double *mean = ares_arena_calloc(&u->batch->arena, (size_t)ranks, sizeof *mean),
           *seen = ares_arena_calloc(&u->batch->arena, (size_t)ranks, sizeof *seen);
    for (int64_t i = 0; i < most; i++) {
        double own[2] = { 0 };
        if (i < n) {
            int64_t t = b->row_start[plan[i].row];
            ares_ratio_sum(&(ares_loss_args){ .n = b->row_start[plan[i].end] - t,
                                              .log_prob = u->host.log_prob + t,
                                              .old_log_prob = b->old_log_probs + t,
                                              .mask = b->response_mask + t },
                           &own[0], &own[1]);
        }
        total[0] += own[0];
        total[1] += own[1];
        if (!by_micro) continue;
        memset(mean, 0, (size_t)ranks * sizeof *mean);
        memset(seen, 0, (size_t)ranks * sizeof *seen);
        mean[rank] = own[1] > 0 ? own[0] / own[1] : 0;
        seen[rank] = own[1] > 0;
        ARES_TRY(ares_world_sum_f64(u->actor->learner.world, mean, ranks));
        ARES_TRY(ares_world_sum_f64(u->actor->learner.world, seen, ranks));
        int present = 0;
        for (int r = 0; r < ranks; r++)
            if (seen[r] > 0) mean[present++] = mean[r];
        if (i < n && present)
            stopped[i] = ares_early_stop(mean, present, c->early_stop_imp_ratio, NULL);
    }
    if (by_micro) return ARES_OK;
    ARES_TRY(ares_world_sum_f64(u->actor->learner.world, total, 2));
    double ratio = total[0] / total[1];
    bool stop = ares_early_stop(&ratio, 1, c->early_stop_imp_ratio, NULL);
    for (int64_t i = 0; i < n; i++) stopped[i] = stop;
    return ARES_OK;
}

/* The loss of a mini-batch after the forward passes of all its micro-batches. */
static int mini_batch_losses(update *u, int64_t row, int64_t end, const ares_micro_batch *plan,
                             int64_t n, const bool *stopped)
{
    if (sees_mini_batch(u->actor)) {
        const span all = span_of(u, &u->col, row, end);
        return n && stopped[0] ? ARES_OK /* as on every other rank */ : losses(u, &all);
    }
    for (int64_t i = 0; i < n; i++) {
        const span s = span_of(u, &u->col, plan[i].row, plan[i].end);
        if (!stopped[i]) ARES_TRY(losses(u, &s));
    }
    return ARES_OK;
}

/*
 * Cuts of a mini-batch that bound memory. No cut crosses the end of a round, nor, where an early
 * stop decides by micro-batch, of a run of micro_batch_size rows.
 */
typedef struct cuts {
    ares_micro_batch *runs, *plan;
    int64_t n_runs, n, *first; /* run i has the cuts [first[i], first[i + 1]) */
    learner_rounds rounds;
} cuts;

static int make_cuts(const update *u, int64_t row, int64_t end, cuts *out)
{
    const ares_actor_config *c = &u->actor->cfg->actor;
    ares_arena *arena = &u->batch->arena;
    size_t most = (size_t)(end - row + 1);
    *out = (cuts){ .runs = ares_arena_alloc(arena, most * sizeof *out->runs),
                   .plan = ares_arena_alloc(arena, most * sizeof *out->plan),
                   .first = ares_arena_alloc(arena, most * sizeof *out->first) };
    ARES_TRY(learner_cut_rounds(&u->actor->learner, u->batch, row, end, c->share_prompts, arena,
                                &out->rounds));
    int64_t size = stops_by_micro_batch(u->actor) ? c->micro_batch_size : end - row;
    const ares_micro_batch *round = out->rounds.round;
    out->n_runs = runs_of(row, end, size, out->runs);
    for (int64_t i = 0; i < out->n_runs; i++) {
        int64_t at = out->runs[i].row, last = out->runs[i].end, stop;
        out->first[i] = out->n;
        for (; at < last; at = stop) {
            while (round->end <= at) round++;
            stop = ARES_MIN(last, round->end);
            out->n += ares_pack_plan(u->batch, at, stop, c->max_token_len, c->share_prompts,
                                     out->plan + out->n);
        }
    }
    out->first[out->n_runs] = out->n;
    return ARES_OK;
}

/* How many of n cuts, ascending, lie in rounds up to this one. */
static int64_t until_round(const ares_micro_batch *cut, int64_t n, const ares_micro_batch *round)
{
    int64_t i = 0;
    while (i < n && cut[i].row < round->end) i++;
    return i;
}

/*
 * A loss of pairs needs nothing of the responses but their log-probs. Where the weights are still
 * those of the rollout, it takes the recorded ones: the forward passes before the loss are left
 * out, and the one before each backward is the first. How the mini-batch is cut changes none of it.
 */
static int take_log_probs(update *u, int64_t row, int64_t end)
{
    const ares_batch *b = u->batch;
    const actor *a = u->actor;
    int64_t first = b->row_start[row], last = b->row_start[end];
    int64_t passes = !(a->loss->flags & ARES_LOSS_PAIRS); /* 1: some token needs a forward pass */
    for (int64_t i = first; i < last && !passes; i++) passes = !actor_current(a, b, i);
    /* where weights come by region, all ranks go forward, or none */
    if (learner_by_region(&a->learner, beside(u)))
        ARES_TRY(ares_world_max_i64(a->learner.world, &passes, 1));
    u->known = !passes;
    if (u->known)
        memcpy(u->host.log_prob + first, b->rollout_log_probs + first,
               (size_t)(last - first) * sizeof *u->host.log_prob);
    return ARES_OK;
}

/* Of tokens whose loss took the rollout's log-probs: their entropy term is still to be added. */
static int known_loss(update *u, const ares_micro_batch *m, ares_head_args *h)
{
    const actor *a = u->actor;
    const span s = span_of(u, &u->col, m->row, m->end);
    const ares_loss_args args = args_of(u, &u->col, &s, &a->cfg->loss);
    ARES_TRY(head(u, m, h));
    ARES_TRY(ares_loss_terms(a->learner.model->device, &args, NULL));
    return head_backward(u, m, h);
}

static int forward_all(update *u, const cuts *c, round_pass *p)
{
    const actor *a = u->actor;
    bool keep = c->rounds.n == 1; /* maybe for the backward */
    for (int64_t i = 0, r = 0; r < c->rounds.n; r++) {
        int64_t stop = until_round(c->plan, c->n, &c->rounds.round[r]);
        do {
            int64_t k = learner_micro_batches_per_round(&a->learner, beside(u), stop - i);
            ARES_TRY(forward(u, c->plan + i, k, keep, p));
            ARES_TRY(visit(u, p, head));
            i += k;
        } while (i < stop);
    }
    return ARES_OK;
}

/*
 * The backward of n micro-batches that an early stop has left, round after round, each after
 * another forward. The first forward, in p, serves where it was one round of which no micro-batch
 * is left out.
 */
static int backward_all(update *u, const cuts *c, const ares_micro_batch *left, int64_t n,
                        round_pass *p)
{
    learner *l = &u->actor->learner, *ref = beside(u);
    int64_t stopped = c->n - n;
    if (learner_by_region(l, ref)) ARES_TRY(ares_world_max_i64(l->world, &stopped, 1));
    bool kept = !u->known && !stopped && c->rounds.n == 1 &&
                learner_micro_batches_per_round(l, ref, c->n) == c->n;
    for (int64_t i = 0, r = 0; r < c->rounds.n; r++) {
        int64_t stop = until_round(left, n, &c->rounds.round[r]);
        int rc;
        do {
            int64_t k = learner_micro_batches_per_round(l, ref, stop - i);
            rc = kept ? ARES_OK : forward(u, left + i, k, true, p);
            if (rc == ARES_OK) rc = visit(u, p, u->known ? known_loss : head_backward);
            if (rc == ARES_OK) rc = learner_backward_round(l, p->rows, k);
            i += k;
        } while (i < stop && rc == ARES_OK);
        ARES_TRY(learner_end_round(l, rc));
    }
    return ARES_OK;
}

/*
 * Whether no token of a micro-batch has a derivative, as far as the host knows. One whose
 * statistics are not finite has: it must reach the gradient.
 */
static bool has_no_derivative(const update *u, const ares_micro_batch *m)
{
    const update_columns *c = &u->host;
    for (int64_t t = u->batch->row_start[m->row]; t < u->batch->row_start[m->end]; t++)
        if (c->c_log_prob[t] != 0 || c->c_entropy[t] != 0 || (c->c_kl && c->c_kl[t] != 0) ||
            (u->row && (c->c_divergence[t] != 0 || !isfinite(u->row[t].value))) ||
            !isfinite(c->lse[t]) || !isfinite(c->entropy[t]))
            return false;
    return true;
}

/*
 * Leaves micro-batches without any derivative out of the n that go forward again and backward;
 * returns how many are left. Where all go together none does: their first forward may serve.
 */
static int64_t leave_out(update *u, ares_micro_batch *left, int64_t n)
{
    learner *l = &u->actor->learner;
    int64_t kept = 0;
    if (!l->skip_zero || !l->model->device->k->rows_move || u->known ||
        learner_by_region(l, beside(u)))
        return n;
    for (int64_t i = 0; i < n; i++)
        if (has_no_derivative(u, &left[i])) l->left_out += left[i].tokens;
        else left[kept++] = left[i];
    return kept;
}

/* All micro-batches forward, then the loss, then all backward. */
static int in_two_passes(update *u, int64_t row, int64_t end, bool *idle)
{
    const actor *a = u->actor;
    const learner *l = &a->learner, *ref = beside(u);
    round_pass p = { 0 };
    cuts c;
    ARES_TRY(make_cuts(u, row, end, &c));
    bool *run_stopped =
        ares_arena_calloc(&u->batch->arena, (size_t)c.n_runs + 1, sizeof *run_stopped);
    bool *stopped = ares_arena_calloc(&u->batch->arena, (size_t)c.n + 1, sizeof *stopped);
    ares_micro_batch *left = ares_arena_alloc(&u->batch->arena, (size_t)(c.n + 1) * sizeof *left);
    int rc = a->loss->flags & ARES_LOSS_PAIRS ? pair_log_probs(u, row, end) : ARES_OK;
    ARES_TRY(take_log_probs(u, row, end));
    if (rc == ARES_OK && !u->known) rc = forward_all(u, &c, &p);
    if (rc == ARES_OK && !u->known) { /* the host waits for the log-probs */
        const column_part part = part_of(u, u->host.log_prob, u->col.log_prob, row, end);
        dc_download(&u->actor->learner.columns, &part, 1);
        rc = l->model->device->k->sync(l->model->device);
    }
    ARES_TRY(ares_world_share_error(l->world, rc)); /* what follows adds over ranks */
    ARES_TRY(stop_early(u, c.runs, c.n_runs, run_stopped));
    int64_t n = 0;
    for (int64_t r = 0; r < c.n_runs; r++) {
        u->stopped_micro += run_stopped[r];
        for (int64_t k = c.first[r]; k < c.first[r + 1]; k++) {
            stopped[k] = run_stopped[r];
            if (!stopped[k]) left[n++] = c.plan[k];
        }
    }
    /* has the early stop left no token to train on, on any rank? */
    ares_agg_counts trains = { 0 };
    for (int64_t r = 0; r < c.n_runs; r++)
        if (!run_stopped[r]) ares_agg_count(u->batch, c.runs[r].row, c.runs[r].end, &trains);
    ARES_TRY(ares_world_sum_f64(l->world, &trains.tokens, 1));
    *idle = trains.tokens == 0;
    u->stopped_mini += *idle;
    if (*idle) return ARES_OK;
    rc = learner_share_round_error(l, mini_batch_losses(u, row, end, c.plan, c.n, stopped));
    ARES_TRY(learner_share_error(l, ref, rc));
    return backward_all(u, &c, left, leave_out(u, left, n), &p);
}

/* The weight of every token of the mini-batch. *tokens: tokens with mask 1 over all ranks. */
static int weigh(update *u, int64_t row, int64_t end, double *tokens)
{
    const ares_loss_config *c = &u->actor->cfg->loss;
    const ares_batch *b = u->batch;
    double width = ares_is_null_f64(c->loss_scale_factor)
                       ? (double)u->actor->cfg->data.max_response_length
                       : c->loss_scale_factor;
    ares_agg_counts counts = { 0 };
    ares_agg_count(b, row, end, &counts);
    double totals[2] = { counts.tokens, counts.rows };
    ARES_TRY(ares_world_sum_f64(u->actor->learner.world, totals, 2));
    *tokens = totals[0];
    counts = (ares_agg_counts){ totals[0], totals[1], width };
    if (strcmp(c->valid_token_scope, "rollout") == 0)
        counts = (ares_agg_counts){ u->rollout.tokens, u->rollout.rows, width };
    float *weight = u->host.weight + b->row_start[row];
    if (strcmp(c->loss_norm, "micro") != 0)
        return ares_agg_weights(c->loss_avg_mode, b, row, end, &counts, weight);
    ares_micro_batch *runs =
        ares_arena_alloc(&u->batch->arena, (size_t)(end - row + 1) * sizeof *runs);
    int64_t n = runs_of(row, end, u->actor->cfg->actor.micro_batch_size, runs), total = n;
    /* ranks may have different numbers of rows */
    ARES_TRY(ares_world_sum_i64(u->actor->learner.world, &total, 1));
    return ares_agg_weights_micro(c->loss_avg_mode, b, runs, n, total, width, weight);
}

/*
 * Forward, loss and backward of rows [row, end), round after round: one micro-batch after the
 * other, or all of a round together.
 */
static int in_one_pass(update *u, int64_t row, int64_t end)
{
    const ares_actor_config *c = &u->actor->cfg->actor;
    learner *l = &u->actor->learner, *ref = beside(u);
    ares_arena *arena = &u->batch->arena;
    ares_micro_batch *plan = ares_arena_alloc(arena, (size_t)(end - row + 1) * sizeof *plan);
    learner_rounds rounds;
    ARES_TRY(learner_cut_rounds(l, u->batch, row, end, c->share_prompts, arena, &rounds));
    for (int64_t r = 0; r < rounds.n; r++) {
        int64_t i = 0, n = ares_pack_plan(u->batch, rounds.round[r].row, rounds.round[r].end,
                                          c->max_token_len, c->share_prompts, plan);
        round_pass p;
        int rc;
        do { /* once where there is no row, too: all ranks make the same passes */
            int64_t k = learner_micro_batches_per_round(l, ref, n - i);
            rc = forward(u, plan + i, k, true, &p);
            if (rc == ARES_OK) rc = visit(u, &p, head_and_loss);
            if (rc == ARES_OK) rc = learner_backward_round(l, p.rows, k);
            i += k;
        } while (i < n && rc == ARES_OK);
        ARES_TRY(learner_end_round(l, rc));
    }
    return ARES_OK;
}

/*
 * What a card's losses have left of rows [row, end): sums, log-probs, KL and what is logged, all on
 * the host after one wait, or the error that names a number that the loss cannot compute with. On
 * the CPU they are there.
 */
static int update_card_end(update *u, int64_t row, int64_t end)
{
    const actor *a = u->actor;
    learner *l = &u->actor->learner;
    ares_device *d = l->model->device;
    ares_card_sums sums;
    if (!u->card) return ARES_OK;
    int n = 2;
    column_part part[5] = { { &sums, u->card->sums, sizeof sums },
                            part_of(u, u->host.log_prob, u->col.log_prob, row, end) };
    if (u->host.seen_kl) part[n++] = part_of(u, u->host.seen_kl, u->col.seen_kl, row, end);
    if (u->host.ratio) {
        int64_t first = u->batch->row_start[row], last = u->batch->row_start[end];
        part[n++] = part_of(u, u->host.ratio, u->col.ratio, row, end);
        part[n++] = (column_part){ u->host.clipped + first, u->col.clipped + first,
                                   (size_t)(last - first) };
    }
    dc_download(&l->columns, part, n);
    ARES_TRY(d->k->sync(d));
    if (sums.fault == UINT64_MAX) {
        ares_card_sums_add(&sums, &u->sums);
        return ARES_OK;
    }
    /* the message is the CPU's, which needs all inputs of the loss */
    part[0] = part_of(u, u->host.entropy, u->col.entropy, row, end);
    if (u->host.kl) part[1] = part_of(u, u->host.kl, u->col.kl, row, end);
    dc_download(&l->columns, part, u->host.kl ? 2 : 1);
    ARES_TRY(d->k->sync(d));
    const span s = span_of(u, &u->host, row, end);
    const ares_loss_args args = args_of(u, &u->host, &s, &a->cfg->loss);
    const ares_kl_args kl = update_kl_args(u, &u->host, args.first);
    bool terms =
        (a->loss->flags & ARES_LOSS_PAIRS) || u->part == UPDATE_ENTROPY || u->part == UPDATE_KL;
    return ares_loss_fault(terms ? NULL : a->loss, &args, u->host.seen_kl ? &kl : NULL);
}

/*
 * Weighs the teacher's term of n tokens from `first` on. *trained: becomes 0 where no token of any
 * rank has a derivative: none is taught, and nothing else teaches.
 */
static int teach(update *u, int64_t first, int64_t n, double *trained)
{
    const actor *a = u->actor;
    const ares_distillation_config *c = &a->cfg->distillation;
    double tokens = 0;
    if (!a->teacher) return ARES_OK;
    if (u->taught)
        ares_distill_weights(c, c->coef, u->host.weight + first, u->batch->distilled + first, n,
                             NULL, u->taught + first);
    if (c->use_task_rewards || a->cfg->loss.entropy_coeff != 0 ||
        (u->host.seen_kl && u->batch->kl_coef != 0))
        return ARES_OK;
    for (int64_t t = first; t < first + n; t++) tokens += u->batch->distilled[t];
    ARES_TRY(ares_world_sum_f64(a->learner.world, &tokens, 1));
    if (tokens == 0) *trained = 0;
    return ARES_OK;
}

int update_mini_batch(update *u, int64_t row, int64_t end, bool *idle)
{
    actor *a = u->actor;
    ares_device *d = a->learner.model->device;
    int64_t first = u->batch->row_start[row];
    size_t n = (size_t)(u->batch->row_start[end] - first);
    float *const zeroed[] = { u->col.c_log_prob, u->col.c_entropy, u->col.c_kl,
                              u->col.c_divergence };
    double trained;
    memset(u->passed + row, 0, (size_t)(end - row));
    for (int i = 0; i < ARES_COUNT(zeroed); i++)
        if (zeroed[i] && n) d->k->zero(d, zeroed[i] + first, n * sizeof(float));
    ARES_TRY(weigh(u, row, end, &trained));
    dc_upload(&a->learner.columns, u->col.weight + first, u->host.weight + first,
              n * sizeof(float));
    if (u->card) { /* its sums begin at 0 */
        ares_card_sums sums;
        ares_card_sums_init(&sums);
        dc_upload(&a->learner.columns, u->card->sums, &sums, sizeof sums);
    }
    if (trained > 0) ARES_TRY(teach(u, first, (int64_t)n, &trained));
    *idle = trained == 0;
    u->empty += *idle && !u->fills;
    if (*idle) return ARES_OK;
    ARES_TRY(learner_zero_grad(&a->learner, beside(u)));
    if (sees_mini_batch(a) || !ares_is_null_f64(a->cfg->loss.early_stop_imp_ratio))
        ARES_TRY(in_two_passes(u, row, end, idle));
    else ARES_TRY(in_one_pass(u, row, end));
    if (*idle) return ARES_OK;
    u->mini_batches++;
    if (u->second) ARES_TRY(second_add_gradients(a, u->second, row, end));
    ARES_TRY(update_card_end(u, row, end));
    compare_with_rollout(u, row, end);
    return ARES_OK;
}

/* What a teacher adds to an update: its batch, and columns of the tokens that it teaches. */
static int prepare_teacher(update *u)
{
    const ares_distillation_config *c = &u->actor->cfg->distillation;
    ares_batch *b = u->batch;
    size_t n = (size_t)b->tokens + 1;
    ARES_TRY(ARES_NEED(b, "update_actor", distilled));
    u->first = ares_arena_calloc(&b->arena, 1, sizeof *u->first);
    seen_columns *f = u->first;
    float **const numbers[] = { &f->divergence, &f->reverse_kl, &f->forward_kl, &f->teacher_entropy,
                                &f->is_weight };
    uint8_t **const flags[] = { &f->agree, &f->clamped, &f->seen };
    for (int i = 0; i < ARES_COUNT(numbers); i++)
        *numbers[i] = ares_arena_calloc(&b->arena, n, sizeof(float));
    for (int i = 0; i < ARES_COUNT(flags); i++) *flags[i] = ares_arena_calloc(&b->arena, n, 1);
    bool whole = diverges(u->actor);
    u->seen =
        (ares_distill_seen){ .divergence = f->divergence,
                             .reverse_kl = f->reverse_kl,
                             .forward_kl = whole ? f->forward_kl : NULL,
                             .teacher_entropy = whole ? f->teacher_entropy : NULL,
                             .is_weight = ares_is_null_f64(c->is_clip) ? NULL : f->is_weight,
                             .agree = whole ? f->agree : NULL,
                             .clamped = ares_is_null_f64(c->loss_max_clamp) ? NULL : f->clamped,
                             .seen = f->seen };
    if (!whole) ARES_TRY(ARES_NEED(b, "update_actor", teacher_log_probs));
    if (c->use_policy_gradient) { /* it is in the advantages already */
        double factor;
        for (int64_t t = 0; t < b->tokens; t++) {
            if (!b->distilled[t]) continue;
            double d = (double)b->old_log_probs[t] - (double)b->teacher_log_probs[t],
                   value = ares_distill_clamp(d, c->loss_max_clamp, &factor);
            record(u, t, value, 1, value != d);
        }
        return ARES_OK;
    }
    if (u->part != UPDATE_WHOLE && u->part != UPDATE_TASK) return ARES_OK;
    u->taught = ares_arena_calloc(&b->arena, n, sizeof *u->taught);
    if (!whole) return ARES_OK;
    u->row = ares_arena_calloc(&b->arena, n, sizeof *u->row);
    u->host.c_divergence = ares_arena_calloc(&b->arena, n, sizeof(float));
    ares_batch_init(&u->beside);
    teacher_batch(b, &u->beside);
    return ARES_OK;
}

float update_distilled(const update *u, int64_t row)
{
    double sum = 0, n = 0;
    for (int64_t t = u->batch->row_start[row]; t < u->batch->row_start[row + 1]; t++) {
        if (!u->first->seen[t]) continue;
        sum += (double)u->first->divergence[t];
        n++;
    }
    return n > 0 ? (float)(sum / n) : NAN;
}

void update_finish(update *u)
{
    ares_batch_fini(&u->beside);
}

int update_prepare(update *u)
{
    actor *a = u->actor;
    ares_batch *b = u->batch;
    const ares_train_config *cfg = a->cfg;
    bool kl = ares_kl_acts(&cfg->algorithm) == ARES_KL_IN_LOSS, exact = kl && !a->kl->value;
    u->lr = learner_lr(&a->learner);
    ares_loss_sums_init(&u->sums);
    ares_vapor_sums_init(&u->pairs);
    if (exact && !a->ref)
        return ares_fail(
            ARES_ESTATE,
            "actor: algorithm.kl_penalty = 'full': there is no reference model to compare with");
    if (kl && !exact) ARES_TRY(ARES_NEED(b, "update_actor", ref_log_probs));
    if (strcmp(a->cfg->loss.rollout_is, "none") != 0)
        ARES_TRY(ARES_NEED(b, "update_actor", rollout_is_weights));
    /* the columns on the host: the batch's, and those that this update computes, in its arena */
    update_columns *c = &u->host;
    size_t n = (size_t)b->tokens + 1;
    float **const wanted[] = { &c->weight, &c->log_prob,   &c->entropy,
                               &c->lse,    &c->c_log_prob, &c->c_entropy };
    float **const of_kl[] = { &c->kl, &c->ref_lse, &c->c_kl };
    *c = (update_columns){ .old_log_prob = b->old_log_probs,
                           .advantage = b->advantages,
                           .rollout_weight = b->rollout_is_weights,
                           .ref_log_prob = b->ref_log_probs,
                           .kl_weight = b->kl_weight,
                           .mask = b->response_mask };
    for (int i = 0; i < ARES_COUNT(wanted); i++)
        *wanted[i] = ares_arena_calloc(&b->arena, n, sizeof(float));
    for (int i = 0; exact && i < ARES_COUNT(of_kl); i++)
        *of_kl[i] = ares_arena_calloc(&b->arena, n, sizeof(float));
    if (kl) c->seen_kl = b->kl ? b->kl : ARES_PUT(b, kl);
    if (u->logs) {
        c->ratio = b->ratio ? b->ratio : ARES_PUT(b, ratio);
        c->clipped = b->clipped ? b->clipped : ARES_PUT(b, clipped);
    }
    if (a->teacher) ARES_TRY(prepare_teacher(u));
    if (a->loss->choose) c->chosen = ares_arena_calloc(&b->arena, n, 1);
    u->passed = ares_arena_calloc(&b->arena, (size_t)b->rows + 1, sizeof *u->passed);
    u->met = ares_arena_calloc(&b->arena, (size_t)b->rows + 1, sizeof *u->met);
    u->version = a->learner.optim.updates;
    ares_agg_count(b, 0, b->rows, &u->rollout);
    double totals[2] = { u->rollout.tokens, u->rollout.rows };
    ARES_TRY(ares_world_sum_f64(a->learner.world, totals, 2));
    u->rollout = (ares_agg_counts){ .tokens = totals[0], .rows = totals[1] };
    if (a->learner.adapter &&
        u->part == UPDATE_WHOLE) /* this rank may fail alone: no sum follows */
        ARES_TRY(ares_adapter_norm(a->learner.adapter, &u->adapter_norm));
    return update_card_open(u);
}
