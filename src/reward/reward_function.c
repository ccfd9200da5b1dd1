/*
 * worker.reward.reward_function: names and paths of published reward functions -> the verifiers
 * that compute the same.
 */
#include "reward_function.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *type, *verifier;
} functions[] = {
    { "aepo", "batch", "aepo" },
    { "math", "batch", "math_format" },
    { "dapo", "batch", "dapo_overlong" },
    { "r1v", "sequential", "r1v" },
};

/* Fails with ARES_ECONFIG. */
static int no_file(void)
{
    return ares_fail(ARES_ECONFIG, "there is no such file; write FILE.py:NAME, or of a published "
                                   "function its name: aepo, math, dapo, r1v");
}

/* Of "math" or "./examples/reward_function/math.py:compute_score" the place in functions. */
static int find_function(const char *value, int *place)
{
    const char *names[ARES_COUNT(functions)];
    const char *colon = strrchr(value, ':'), *slash = strrchr(value, '/'),
               *stem = slash ? slash + 1 : value;
    size_t length = strcspn(stem, ":");
    bool file = slash || colon || (length > 3 && memcmp(stem + length - 3, ".py", 3) == 0);
    char name[32];
    if (length > 3 && memcmp(stem + length - 3, ".py", 3) == 0) length -= 3;
    if (file && (!colon || colon < stem || strcmp(colon + 1, "compute_score") != 0))
        return no_file();
    snprintf(name, sizeof name, "%.*s", (int)ARES_MIN(length, sizeof name - 1), stem);
    for (int k = 0; k < ARES_COUNT(functions); k++) names[k] = functions[k].name;
    int rc = ares_lookup(ARES_ECONFIG, NULL, name, names, ARES_COUNT(names), place);
    return rc != ARES_OK && file ? no_file() : rc;
}

const char *reward_function_verifier(ares_config *cfg, const ares_reward_config *rc)
{
    int i;
    if (find_function(rc->reward_function, &i) != ARES_OK) {
        ares_config_fault(cfg, "worker.reward.reward_function", "%s", ares_error_message());
        return NULL;
    }
    if (rc->reward_type && strcmp(rc->reward_type, functions[i].type) != 0)
        ares_config_fault(cfg, "worker.reward.reward_type",
                          "reward_function '%s' is %s; set that, or leave reward_type out",
                          functions[i].name, functions[i].type);
    return functions[i].verifier;
}
