/*
 * Norms of the gradients of the policy loss, the entropy bonus and the KL loss, each by itself,
 * over groups of similar reward deviation: they show which groups move the policy, and by which
 * term (RAGEN's gradient analysis; docs/diagnostics.md#gradients-by-reward-variance).
 *
 * A pass is the update of the actor over rows that are copied from the batch, without an optimizer
 * step: it uses the gradients' memory, which the next update clears, and nothing else of the run.
 * Buckets and mini-batches are made of the groups of all ranks, in the order in which they were
 * drawn, so that they do not depend on the number of ranks.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/algo.h"
#include "report.h"
#include "roles.h"

/* A group with an answer that counts, of any rank. */
typedef struct known_group {
    int64_t place, index; /* they order groups; index: in the order of ranks, then of the batch */
    int64_t group;        /* in the batch of its rank */
    int64_t rows, tokens; /* numbers of those that count */
    double std;
} known_group;

typedef struct analysis {
    ares_trainer *t;
    const ares_batch *b;
    ares_metrics *m;
    ares_arena arena;
    known_group *groups; /* [n], in the order in which they were drawn */
    int64_t n, rows;
    int64_t own, end; /* groups with index in [own, end) are this rank's */
    int64_t failed;   /* passes whose gradient is no finite number */
} analysis;

bool report_gradients_due(const ares_trainer *t)
{
    int64_t every = t->run.cfg->gradients.every;
    return every > 0 && t->run.step % every == 0;
}

/* All ranks learn the groups of all that have an answer that counts. */
static int gather(analysis *a)
{
    const ares_batch *b = a->b;
    ares_world *world = a->t->run.world;
    ares_str all = { 0 };
    int64_t mine = 0;
    size_t *start =
        ares_arena_alloc(&a->arena, (size_t)(ares_world_size(world) + 1) * sizeof *start);
    known_group *own = ares_arena_alloc(&a->arena, ((size_t)b->groups + 1) * sizeof *own);
    for (int64_t g = 0; g < b->groups; g++) {
        known_group *k = &own[mine];
        int64_t first = b->group_start[g], end = b->group_start[g + 1];
        *k = (known_group){ .place = b->samples[first].place, .group = g };
        for (int64_t r = first; r < end; r++) k->rows += ares_batch_row_counts(b, r);
        for (int64_t i = b->row_start[first]; i < b->row_start[end]; i++)
            k->tokens += b->response_mask[i];
        mine += ares_group_reward_std(b, g, &k->std); /* false: no answer counts */
    }
    int rc = ares_world_gather_all(world, own, (size_t)mine * sizeof *own, &all, start);
    if (rc == ARES_OK) {
        a->n = (int64_t)(all.len / sizeof *own);
        a->groups = ares_arena_alloc(&a->arena, all.len + sizeof *own);
        if (all.len) memcpy(a->groups, all.data, all.len);
        a->own = (int64_t)(start[ares_world_rank(world)] / sizeof *own);
        a->end = a->own + mine;
    }
    ares_str_fini(&all);
    for (int64_t i = 0; i < a->n; i++) {
        a->groups[i].index = i;
        a->rows += a->groups[i].rows;
    }
    ares_sort_records(a->groups, a->n, sizeof *a->groups);
    return rc;
}

/* ---------------------------------------------------------------- a bucket */
typedef struct bucket {
    const char *name;
    const bool *has; /* [analysis.n] */
    int64_t groups, rows, tokens;
    double std, std_min, std_max; /* std: mean */
    ares_batch batch;             /* this rank's rows of it */
    mini_batches minis;
} bucket;

/*
 * Copies this rank's rows, and cuts them into mini-batches of as many prompts as the update's; the
 * last may have fewer.
 */
static int take_rows(const analysis *a, bucket *k)
{
    const ares_batch *b = a->b;
    const mini_batch_size size = mini_batch_size_of_actor(a->t->run.cfg);
    int64_t taken = 0, position = 0, cut = 0, n = (k->groups + size.count - 1) / size.count;
    int64_t *order = ares_arena_alloc(&k->batch.arena, ((size_t)b->rows + 1) * sizeof *order),
            *start = ares_arena_alloc(&k->batch.arena, ((size_t)n + 1) * sizeof *start);
    for (int64_t i = 0; i < a->n; i++) {
        const known_group *g = &a->groups[i];
        if (!k->has[i]) continue;
        while (cut <= position / size.count) start[cut++] = taken;
        position++;
        if (g->index < a->own || g->index >= a->end) continue;
        for (int64_t r = b->group_start[g->group]; r < b->group_start[g->group + 1]; r++)
            order[taken++] = r;
    }
    start[n] = taken;
    ares_batch_copy(b, order, taken, &k->batch);
    k->minis = (mini_batches){ .n = n, .start = start, .batch = &k->batch };
    return size.rows ? mini_batches_cut(&size, &k->batch, a->t->run.world, &k->minis) : ARES_OK;
}

/* ---------------------------------------------------------------- a term of the loss */
/* Over the mini-batches that gave a gradient: their mean norm, and the sums of their losses. */
typedef struct pass {
    double norm, mini_batches;
    ares_loss_sums sums;
} pass;

static int go_over(analysis *a, bucket *k, update *u, pass *out)
{
    learner *l = &a->t->actor.learner;
    ares_world *world = l->world;
    *out = (pass){ 0 };
    ARES_TRY(ares_world_share_error(world, update_prepare(u)));
    for (int64_t i = 0; i < k->minis.n; i++) {
        bool idle = false;
        double norm = NAN;
        int rc = ares_world_share_error(
            world, update_mini_batch(u, k->minis.start[i], k->minis.start[i + 1], &idle));
        if (rc == ARES_OK && !idle) rc = optim_norm(learner_params(l), &norm);
        if (rc == ARES_ENUMERIC) { /* the update will meet it, too, and warn of it */
            ares_error_clear();
            rc = ARES_OK;
        }
        ARES_TRY(rc);
        if (idle) continue;
        a->failed += !isfinite(norm);
        out->norm += norm;
        out->mini_batches++;
    }
    out->norm /= out->mini_batches;
    out->sums = u->sums;
    return ares_loss_sums_reduce(&out->sums, world);
}

static int one_pass(analysis *a, bucket *k, update_part part, pass *out)
{
    update u = { .actor = &a->t->actor, .batch = k->minis.batch, .part = part };
    int rc = go_over(a, k, &u, out);
    update_finish(&u);
    return rc;
}

static void put(const analysis *a, const bucket *k, const char *what, double x)
{
    char name[96];
    (void)snprintf(name, sizeof name, "grad_norm/%s/%s", k->name, what);
    if (isfinite(x)) ares_metrics_set(a->m, name, x);
}

/* A pass for each term that the loss has. */
static int analyse_terms(analysis *a, bucket *k)
{
    const ares_train_config *cfg = a->t->run.cfg;
    double entropy_coeff = cfg->loss.entropy_coeff, kl_coef = k->batch.kl_coef;
    bool in_loss = ares_kl_acts(&cfg->algorithm) == ARES_KL_IN_LOSS;
    const struct {
        const char *name;
        update_part part;
        bool there;
    } terms[] = { { "task", UPDATE_TASK, true },
                  { "entropy", UPDATE_ENTROPY, entropy_coeff != 0 },
                  { "kl", UPDATE_KL, in_loss } };
    for (int i = 0; i < ARES_COUNT(terms); i++) {
        pass p;
        char name[48];
        if (!terms[i].there) continue;
        ARES_TRY(one_pass(a, k, terms[i].part, &p));
        if (p.mini_batches == 0) continue;
        put(a, k, terms[i].name, p.norm);
        (void)snprintf(name, sizeof name, "per_sample/%s", terms[i].name);
        put(a, k, name, p.norm / (double)k->rows);
        (void)snprintf(name, sizeof name, "per_token/%s", terms[i].name);
        put(a, k, name, p.norm / (double)k->tokens);
        if (terms[i].part != UPDATE_TASK) continue;
        /* the first pass computes all terms: here with the loss's weights and signs */
        double n = p.mini_batches;
        put(a, k, "loss/policy", p.sums.loss / n);
        if (entropy_coeff != 0) put(a, k, "loss/entropy", -entropy_coeff * p.sums.entropy / n);
        if (in_loss) put(a, k, "loss/kl", kl_coef * p.sums.kl / n);
        put(a, k, "loss/total", ares_loss_total(&p.sums, entropy_coeff, kl_coef) / n);
    }
    return ARES_OK;
}

static int analyse(analysis *a, const char *name, const bool *has)
{
    bucket k = { .name = name, .has = has, .std_min = INFINITY, .std_max = -INFINITY };
    for (int64_t i = 0; i < a->n; i++) {
        const known_group *g = &a->groups[i];
        if (!has[i]) continue;
        k.groups++;
        k.rows += g->rows;
        k.tokens += g->tokens;
        k.std += g->std;
        k.std_min = fmin(k.std_min, g->std);
        k.std_max = fmax(k.std_max, g->std);
    }
    k.std /= (double)k.groups;
    if (!k.groups || !k.tokens) return ARES_OK;
    ares_batch_init(&k.batch);
    int rc = take_rows(a, &k);
    if (rc == ARES_OK) rc = analyse_terms(a, &k);
    mini_batches_fini(&k.minis);
    ares_batch_fini(&k.batch);
    if (rc != ARES_OK) return ares_fail_in(rc, "gradient analysis: %s", name);
    put(a, &k, "sample_count", (double)k.rows);
    put(a, &k, "sample_pct", (double)k.rows / (double)a->rows);
    put(a, &k, "group_rv_count", (double)k.groups);
    put(a, &k, "reward_std_mean", k.std);
    put(a, &k, "reward_std_min", k.std_min);
    put(a, &k, "reward_std_max", k.std_max);
    return ARES_OK;
}

static int analyse_buckets(analysis *a)
{
    const ares_gradients_config *cfg = &a->t->run.cfg->gradients;
    size_t n = (size_t)a->n + 1, most = (size_t)ARES_MAX(cfg->buckets, ARES_STD_BANDS) + 1;
    double *std = ares_arena_alloc(&a->arena, n * sizeof *std);
    int64_t *order = ares_arena_alloc(&a->arena, n * sizeof *order),
            *start = ares_arena_alloc(&a->arena, most * sizeof *start);
    bool *has = ares_arena_alloc(&a->arena, n * sizeof *has);
    for (int64_t i = 0; i < a->n; i++) std[i] = a->groups[i].std;
    int64_t buckets = strcmp(cfg->bucket_mode, "fixed") == 0
                          ? ares_std_bands(std, a->n, order, start)
                          : ares_std_quantiles(std, a->n, cfg->buckets, order, start);
    for (int64_t k = 0; k < buckets; k++) {
        char name[40];
        (void)snprintf(name, sizeof name, "bucket_%lld", (long long)k + 1);
        memset(has, 0, n * sizeof *has);
        for (int64_t i = start[k]; i < start[k + 1]; i++) has[order[i]] = true;
        ARES_TRY(analyse(a, name, has));
    }
    memset(has, 1, n * sizeof *has);
    return analyse(a, "all", has);
}

int report_gradients(ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    analysis a = { .t = t, .b = b, .m = m };
    ARES_TRY(ARES_NEED(b, "gradient_analysis", old_log_probs));
    ARES_TRY(ARES_NEED(b, "gradient_analysis", advantages));
    int rc = gather(&a);
    if (rc == ARES_OK) rc = analyse_buckets(&a);
    if (rc == ARES_OK) ares_metrics_set(m, "grad_norm/not_finite", (double)a.failed);
    ares_arena_fini(&a.arena);
    return rc;
}
