/*
 * ReMax (arXiv 2310.10505): A = s less the score of the greedy answer to the same prompt (samples'
 * baseline).
 */
#include "adv.h"

static int remax(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    adv_estimate p;
    ARES_TRY(adv_open(&p, &ares_adv_remax, cfg, world, b));
    for (int64_t r = 0; r < b->rows; r++) p.row[r] = p.score[r] - (double)b->samples[r].baseline;
    adv_spread(&p);
    return adv_close(&p);
}

const ares_adv ares_adv_remax = { "remax",
                                  "reward less that of the greedy answer",
                                  "A = s - s_greedy",
                                  "arXiv 2310.10505",
                                  ARES_NEEDS_BASELINE,
                                  remax,
                                  NULL };
