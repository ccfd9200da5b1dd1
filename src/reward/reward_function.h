/* The reward functions published with EasyR1 and ARES, by their names in configurations. */
#ifndef ARES_REWARD_REWARD_FUNCTION_H
#define ARES_REWARD_REWARD_FUNCTION_H

#include "ares/reward.h"

/*
 * The verifier that worker.reward.reward_function stands for; NULL after a fault. Checks
 * reward_type too (docs/rewards.md#published-reward-functions).
 */
const char *reward_function_verifier(ares_config *cfg, const ares_reward_config *rc);
#endif
