/*
 * Generalised advantage estimation (Schulman et al., arXiv 1506.02438), and over two levels: first
 * over the turns of an episode, then over the tokens of each turn (RAGEN's bi_level_gae;
 * docs/update.md#gae-over-turns). Advantages are whitened over all tokens of the batch, returns = A
 * + V are not. Masked tokens (tool output between turns) pass the next value and advantage through,
 * so credit crosses them; a reward on such a token reaches nothing.
 */
#include "adv.h"
#include "stats.h"

/*
 * GAE over one row's tokens, from the last to the first. With ends [tokens] (1 on the last token of
 * a turn; NULL: none) no value or advantage is carried from a turn into the turn before it.
 */
static void token_level(const adv_estimate *p, int64_t row, const double *reward,
                        const uint8_t *ends, double gamma)
{
    const ares_batch *b = p->b;
    double next_value = 0, carried = 0;
    for (int64_t t = b->row_start[row + 1] - 1; t >= b->row_start[row]; t--) {
        if (!b->response_mask[t]) continue;
        if (ends && ends[t]) next_value = carried = 0;
        double value = (double)b->values[t];
        carried = reward[t] + gamma * next_value - value + gamma * p->cfg->lam * carried;
        next_value = value;
        p->token[t] = carried;
        p->returned[t] = carried + value;
    }
}

/*
 * GAE over one row's turns, each at its last token. The reward there becomes the turn's advantage
 * plus its value: what the turn is worth, later turns included.
 */
static void turn_level(const adv_estimate *p, int64_t row, const uint8_t *ends, double *reward)
{
    const ares_batch *b = p->b;
    double next_value = 0, carried = 0, hg = p->cfg->high_level_gamma;
    for (int64_t t = b->row_start[row + 1] - 1; t >= b->row_start[row]; t--) {
        if (!ends[t]) continue;
        double value = (double)b->values[t];
        carried = reward[t] + hg * next_value - value + hg * p->cfg->lam * carried;
        next_value = value;
        reward[t] = carried + value;
    }
}

bool ares_adv_sees_turns(const ares_adv *adv, const ares_algorithm_config *cfg)
{
    return adv == &ares_adv_bi_level_gae || (adv == &ares_adv_gae && cfg->bi_level_gae);
}

/*
 * The batch's turn_ends; where they are NULL, a row is one turn, which ends on its last token of
 * mask 1. Allocated from the batch's arena.
 */
static int turn_ends(const adv_estimate *p, const uint8_t **out)
{
    const ares_batch *b = p->b;
    uint8_t *ends = ares_arena_calloc(&p->b->arena, (size_t)b->tokens + 1, 1);
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t first = b->row_start[r], last = -1;
        for (int64_t t = first; t < b->row_start[r + 1]; t++) {
            if (b->response_mask[t]) last = t;
            if (!b->turn_ends) continue;
            if (b->turn_ends[t] > 1 || (b->turn_ends[t] && !b->response_mask[t]))
                return ares_fail(ARES_EFORMAT,
                                 "adv: %s: row %lld, token %lld: turn_ends = %d where "
                                 "response_mask = %d: a turn ends on a token of the policy",
                                 p->adv->name, (long long)r, (long long)(t - first),
                                 b->turn_ends[t], b->response_mask[t]);
            ends[t] = b->turn_ends[t];
        }
        if (!b->turn_ends && last >= 0) ends[last] = 1;
    }
    *out = ends;
    return ARES_OK;
}

static int estimate(const ares_adv *adv, const ares_algorithm_config *cfg, ares_world *world,
                    ares_batch *b)
{
    adv_estimate p;
    const uint8_t *ends = NULL;
    bool bi_level = ares_adv_sees_turns(adv, cfg);
    ARES_TRY(adv_open(&p, adv, cfg, world, b));
    if (bi_level) ARES_TRY(turn_ends(&p, &ends));
    double *reward = ares_arena_alloc(&b->arena, ((size_t)b->tokens + 1) * sizeof *reward);
    for (int64_t t = 0; t < b->tokens; t++) reward[t] = (double)b->token_level_rewards[t];
    for (int64_t r = 0; r < b->rows; r++) {
        if (bi_level) turn_level(&p, r, ends, reward);
        token_level(&p, r, reward, ends, cfg->gamma);
    }
    ARES_TRY(stats_masked_whiten(world, p.token, b->response_mask, b->tokens));
    return adv_close(&p);
}

static int gae(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    return estimate(&ares_adv_gae, cfg, world, b);
}
static int bi_level_gae(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    return estimate(&ares_adv_bi_level_gae, cfg, world, b);
}

const ares_adv ares_adv_gae = {
    "gae",
    "generalised advantages from a critic's values, whitened over the batch",
    "A_t = d_t + gamma lam A_{t+1}, d_t = r_t + gamma V_{t+1} - V_t",
    "arXiv 1506.02438",
    ARES_NEEDS_VALUES,
    gae,
    "algorithm.gamma algorithm.lam algorithm.bi_level_gae"
};
const ares_adv ares_adv_bi_level_gae = {
    "bi_level_gae",
    "gae over the turns of an episode, then over the tokens of each turn",
    "gae of turns at high_level_gamma; their values are the rewards of gae over tokens",
    "RAGEN, arXiv 2504.20073",
    ARES_NEEDS_VALUES,
    bi_level_gae,
    "algorithm.gamma algorithm.lam algorithm.high_level_gamma"
};
