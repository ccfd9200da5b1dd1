/*
 * The reward functions that were published with EasyR1 and ARES, by their names in configurations.
 */
#ifndef ARES_REWARD_REWARD_FUNCTION_H
#define ARES_REWARD_REWARD_FUNCTION_H

#include "ares/reward.h"

/*
 * The verifier that worker.reward.reward_function means; NULL after a fault. Checks reward_type.
 * (aepo.md 3.1)
 */
const char *reward_function_verifier(ares_config *cfg, const ares_reward_config *rc);
#endif
