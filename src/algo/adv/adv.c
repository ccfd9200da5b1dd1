/*
 * The advantage estimators: their table, what they share (groups, spreading a value over tokens,
 * normalising), and rules between their options. VAPOR's estimator, the shortest one, is here
 * too; the others have a file each.
 */
#include "adv.h"
#include "stats.h"

#include <math.h>

/* The table of advantage estimators. To add one: a file in this folder and a word in adv.h. */

#define ENTRY(name) &ares_adv_##name,
#define NAME(name) #name,
static const ares_adv *const table[] = { ADV_LIST(ENTRY) };
static const char *const names[] = { ADV_LIST(NAME) };

const char *const *ares_adv_names(int *n)
{
    *n = ARES_COUNT(names);
    return names;
}

const ares_adv *const *adv_list(int *n)
{
    *n = ARES_COUNT(table);
    return table;
}

/* NULL with an error that lists the names. */
const ares_adv *ares_adv_find(const char *name)
{
    int i;
    return ares_lookup(ARES_ECONFIG, "config: algorithm.adv_estimator", name, names,
                       ARES_COUNT(names), &i) == ARES_OK
               ? table[i]
               : NULL;
}

/* What the estimators share: opening, groups, spreading over tokens, closing (adv.h). */

/* Checks the numbers of a row, and sums its rewards and its tokens of mask 1. */
static int read_row(adv_estimate *p, int64_t r)
{
    const ares_batch *b = p->b;
    const char *name = p->adv->name;
    double sum = 0, length = 0;
    for (int64_t t = b->row_start[r], first = t; t < b->row_start[r + 1]; t++) {
        if (b->response_mask[t] > 1)
            return ares_fail(ARES_EFORMAT,
                             "adv: %s: row %lld, token %lld: response_mask = %d: neither 0 nor 1",
                             name, (long long)r, (long long)(t - first), b->response_mask[t]);
        if (!isfinite(b->token_level_rewards[t]))
            return ares_fail(
                ARES_ENUMERIC,
                "adv: %s: row %lld, token %lld: token_level_rewards = %g: no finite number", name,
                (long long)r, (long long)(t - first), (double)b->token_level_rewards[t]);
        if ((p->adv->needs & ARES_NEEDS_VALUES) && b->response_mask[t] && !isfinite(b->values[t]))
            return ares_fail(ARES_ENUMERIC,
                             "adv: %s: row %lld, token %lld: values = %g: no finite number", name,
                             (long long)r, (long long)(t - first), (double)b->values[t]);
        /* rewards count wherever they stand, lengths only where the policy wrote */
        sum += (double)b->token_level_rewards[t];
        length += b->response_mask[t];
    }
    if ((p->adv->needs & ARES_NEEDS_BASELINE) && !isfinite(b->samples[r].baseline))
        return ares_fail(ARES_ENUMERIC, "adv: %s: row %lld: baseline = %g: no finite number", name,
                         (long long)r, (double)b->samples[r].baseline);
    p->score[r] = sum;
    p->length[r] = length;
    return ARES_OK;
}

int adv_open(adv_estimate *p, const ares_adv *adv, const ares_algorithm_config *cfg,
             ares_world *world, ares_batch *b)
{
    char stage[64] = "adv: ";
    for (size_t i = 0; adv->name[i] && i < sizeof stage - 6; i++) stage[i + 5] = adv->name[i];
    *p = (adv_estimate){ .adv = adv, .cfg = cfg, .world = world, .b = b };
    ARES_TRY(ARES_NEED(b, stage, token_level_rewards));
    ARES_TRY(ARES_NEED(b, stage, response_mask));
    if (adv->needs & ARES_NEEDS_VALUES) ARES_TRY(ARES_NEED(b, stage, values));
    for (int64_t g = 0; g < b->groups; g++)
        if (b->group_start[g + 1] <= b->group_start[g])
            return ares_fail(ARES_ESTATE, "adv: %s: group %lld has no row", adv->name,
                             (long long)g);
    for (int64_t r = 0; r < b->rows; r++)
        if (b->row_start[r + 1] < b->row_start[r])
            return ares_fail(
                ARES_ESTATE, "adv: %s: row %lld: starts at token %lld and ends at %lld", adv->name,
                (long long)r, (long long)b->row_start[r], (long long)b->row_start[r + 1]);
    if (b->rows && (b->row_start[b->rows] != b->tokens || b->group_start[b->groups] != b->rows))
        return ares_fail(ARES_ESTATE,
                         "adv: %s: the groups hold %lld of %lld rows, the rows %lld of %lld tokens",
                         adv->name, (long long)b->group_start[b->groups], (long long)b->rows,
                         (long long)b->row_start[b->rows], (long long)b->tokens);
    /* doubles until adv_close writes the columns */
    size_t rows = (size_t)b->rows + 1, tokens = (size_t)b->tokens + 1;
    p->score = ares_arena_alloc(&b->arena, rows * sizeof(double));
    p->length = ares_arena_alloc(&b->arena, rows * sizeof(double));
    p->row = ares_arena_calloc(&b->arena, rows, sizeof(double));
    p->token = ares_arena_calloc(&b->arena, tokens, sizeof(double));
    p->returned = ares_arena_calloc(&b->arena, tokens, sizeof(double));
    int rc = ARES_OK;
    for (int64_t r = 0; r < b->rows && rc == ARES_OK; r++) rc = read_row(p, r);
    return ares_world_share_error(world, rc); /* estimators add over ranks next */
}

bool adv_counts(const adv_estimate *p, int64_t row)
{
    const ares_batch *b = p->b;
    bool written = p->length[row] > 0;
    for (int64_t t = b->row_start[row]; t < b->row_start[row + 1] && b->kept_mask && !written; t++)
        written = b->kept_mask[t]; /* at this stage the mask before rejection */
    return written;
}

/* The first row from `first` on of the same episode as row r: r itself where it is the first. */
static int64_t first_turn(const ares_batch *b, int64_t first, int64_t r)
{
    int64_t episode = b->samples[r].episode;
    /* episode 0: the row is an answer of its own */
    for (int64_t i = first; episode && i < r; i++)
        if (b->samples[i].episode == episode) return i;
    return r;
}

/*
 * Turns of an episode count as one answer of their group, with the score of the first turn that is
 * not left out and the length of all turns.
 */
void adv_groups(adv_estimate *p, adv_group_fn *fn)
{
    const ares_batch *b = p->b;
    size_t rows = (size_t)b->rows + 1;
    double *score = ares_malloc(3 * rows * sizeof *score), *length = score + rows,
           *advantage = score + 2 * rows;               /* [answers of the group] */
    int64_t *entry = ares_malloc(rows * sizeof *entry); /* [rows of the group]: its answer, or -1 */
    for (int64_t g = 0; g < b->groups; g++) {
        int64_t first = b->group_start[g], end = b->group_start[g + 1], n = 0, all = 0;
        for (int64_t r = first; r < end; r++) {
            int64_t turn = first_turn(b, first, r);
            int64_t *e = &entry[turn - first]; /* an episode's entry stands at its first turn */
            /* all: answers of the group, left out or not; n: those that count */
            all += turn == r;
            if (turn == r) *e = -1;
            if (*e < 0 && adv_counts(p, r)) {
                *e = n++;
                score[*e] = p->score[r];
                length[*e] = 0;
            }
            if (*e >= 0) length[*e] += p->length[r];
        }
        for (int64_t r = first; r < end; r++)
            entry[r - first] = entry[first_turn(b, first, r) - first];
        adv_group group = { .n = n, .score = score, .length = length, .mean = 0, .std = 1 };
        if (n > 1) {
            group.mean = stats_mean(score, n);
            group.std = stats_std(score, n, group.mean);
        }
        /* what an estimator leaves alone is 0 */
        for (int64_t i = 0; i < n; i++) advantage[i] = 0;
        /* a group that lost all but one of its answers has nothing to compare: advantage 0 */
        if (n > 1 || (n == 1 && all == 1)) fn(p, &group, advantage);
        for (int64_t r = first; r < end; r++)
            p->row[r] = entry[r - first] < 0 ? 0 : advantage[entry[r - first]];
    }
    ares_free(entry);
    ares_free(score);
}

void adv_spread(adv_estimate *p)
{
    const ares_batch *b = p->b;
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
            p->token[t] = p->returned[t] = b->response_mask[t] ? p->row[r] : 0;
}

/* ---------------- closing: normalised, zeroed and corrected as the options say */

/* x [tokens] becomes a float column, 0 where the mask is 0. */
static int write_column(const adv_estimate *p, const char *name, const double *x, float *column)
{
    const ares_batch *b = p->b;
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            column[t] = b->response_mask[t] ? (float)x[t] : 0;
            if (!isfinite(column[t]))
                return ares_fail(ARES_ENUMERIC,
                                 "adv: %s: row %lld, token %lld: %s = %g does not fit a float; "
                                 "scale the rewards",
                                 p->adv->name, (long long)r, (long long)(t - b->row_start[r]), name,
                                 x[t]);
        }
    return ARES_OK;
}

int adv_close(adv_estimate *p)
{
    ares_batch *b = p->b;
    if (p->cfg->normalize_advantages)
        ARES_TRY(stats_masked_normalize(p->world, p->token, b->response_mask, b->tokens));
    /* to train on other terms of the loss alone, such as KL or entropy */
    if (p->cfg->zero_task_advantage)
        for (int64_t t = 0; t < b->tokens; t++) p->token[t] = 0;
    ARES_PUT(b, advantages);
    ARES_PUT(b, returns);
    ARES_TRY(write_column(p, "advantages", p->token, b->advantages));
    ARES_TRY(write_column(p, "returns", p->returned, b->returns));
    return p->cfg->importance_sampling_fix ? adv_importance_fix(b, p->cfg->importance_sampling_clip)
                                           : ARES_OK;
}

int adv_importance_fix(ares_batch *b, double clip)
{
    ARES_TRY(ARES_NEED(b, "adv: importance_sampling_fix", advantages));
    ARES_TRY(ARES_NEED(b, "adv: importance_sampling_fix", old_log_probs));
    ARES_TRY(ARES_NEED(b, "adv: importance_sampling_fix", rollout_log_probs));
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            if (!b->response_mask[t]) continue;
            double x = (double)b->old_log_probs[t] - (double)b->rollout_log_probs[t];
            if (isnan(x))
                return ares_fail(ARES_ENUMERIC,
                                 "adv: importance_sampling_fix: row %lld, token %lld: "
                                 "old_log_probs = %g, rollout_log_probs = %g: no ratio",
                                 (long long)r, (long long)(t - b->row_start[r]),
                                 (double)b->old_log_probs[t], (double)b->rollout_log_probs[t]);
            b->advantages[t] =
                /* exp of 700 is finite, and clip cuts it */
                (float)((double)b->advantages[t] * fmin(ares_f64_exp(fmin(x, 700)), clip));
        }
    return ARES_OK;
}

int adv_of_groups(const ares_adv *adv, const ares_algorithm_config *cfg, ares_world *world,
                  ares_batch *b, adv_group_fn *fn)
{
    adv_estimate p;
    ARES_TRY(adv_open(&p, adv, cfg, world, b));
    adv_groups(&p, fn);
    adv_spread(&p);
    return adv_close(&p);
}

void adv_mean_free(const adv_estimate *p, const adv_group *g, double *advantage)
{
    (void)p;
    for (int64_t i = 0; i < g->n; i++) advantage[i] = g->score[i] - g->mean;
}

/* Options of the estimators that make no sense together. */

void ares_adv_check(ares_config *cfg, const ares_algorithm_config *a, int64_t n)
{
    const ares_adv *adv = ares_adv_find(a->adv_estimator);
    if (!adv) return; /* an unknown name has been reported already */
    bool grpo = adv == &ares_adv_grpo, gae = adv == &ares_adv_gae || adv == &ares_adv_bi_level_gae,
         discounted = gae || adv == &ares_adv_reinforce_plus_plus;
    if ((adv->needs & ARES_NEEDS_GROUPS) && n < 2)
        ares_config_fault(cfg, "worker.rollout.n",
                          "%s compares the responses of a prompt; set 2 or more", adv->name);
    if (a->bi_level_gae && !gae)
        ares_config_fault(cfg, "algorithm.bi_level_gae",
                          "%s knows no values; set algorithm.adv_estimator to gae, or leave it out",
                          adv->name);
    if (a->soft_advantage_reweight && !grpo)
        ares_config_fault(
            cfg, "algorithm.soft_advantage_reweight",
            "%s does not take it; set algorithm.adv_estimator to grpo, or leave it out", adv->name);
    if (a->grpo_advantage_length_weight && !grpo)
        ares_config_fault(
            cfg, "algorithm.grpo_advantage_length_weight",
            "%s does not take it; set algorithm.adv_estimator to grpo, or leave it out", adv->name);
    /* a schedule may begin with 1 and leave it later */
    if ((a->gamma != 1 || ares_config_scheduled(cfg, "algorithm.gamma")) && !discounted)
        ares_config_fault(
            cfg, "algorithm.gamma",
            "%s gives every token of a response the same advantage and discounts nothing; set 1.0",
            adv->name);
}

/*
 * VAPOR's group advantage (docs/vapor.md#advantage): A = s less the group's mean, where answers
 * without a verifiable span count with a score of 0. The formula is that of grpo without the std.
 * It has its own name because a group of one answer is allowed here; its advantage is 0.
 */

static void distance(const adv_estimate *p, const adv_group *g, double *advantage)
{
    if (g->n > 1) adv_mean_free(p, g, advantage);
}

static int vapor(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    return adv_of_groups(&ares_adv_vapor, cfg, world, b, distance);
}

const ares_adv ares_adv_vapor = {
    "vapor", "reward less its group's mean", "A = s - mean", "VAPOR", 0, vapor, NULL
};
