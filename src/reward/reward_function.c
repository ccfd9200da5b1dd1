/*
 * worker.reward.reward_function: names and paths of published reward functions -> the verifiers
 * that compute the same.
 */
#include "reward_function.h"

#include <string.h>

static const struct {
    const char *name, *type, *verifier;
} functions[] = {
    { "aepo", "batch", "aepo" },
    { "math", "batch", "math_format" },
    { "dapo", "batch", "dapo_overlong" },
    { "r1v", "sequential", "r1v" },
};

/* "math" from "math" or "./examples/reward_function/math.py:compute_score"; NULL after a fault. */
static char *function_name(ares_config *cfg, const char *value)
{
    static const char path[] = "worker.reward.reward_function";
    const char *colon = strrchr(value, ':'), *slash = strrchr(value, '/'),
               *stem = slash ? slash + 1 : value;
    size_t length = strcspn(stem, ":");
    bool file = slash || colon || (length > 3 && memcmp(stem + length - 3, ".py", 3) == 0);
    if (length > 3 && memcmp(stem + length - 3, ".py", 3) == 0) length -= 3;
    if (file && (!colon || colon < stem || strcmp(colon + 1, "compute_score") != 0)) {
        ares_config_fault(cfg, path,
                          "there is no such file; write FILE.py:NAME, or of a published function "
                          "its name: aepo, math, dapo, r1v");
        return NULL;
    }
    char *name = ares_strdup(stem);
    name[length] = 0;
    return name;
}

const char *reward_function_verifier(ares_config *cfg, const ares_reward_config *rc)
{
    const char *names[ARES_COUNT(functions)];
    int i;
    char *name = function_name(cfg, rc->reward_function);
    if (!name) return NULL;
    for (int k = 0; k < ARES_COUNT(functions); k++) names[k] = functions[k].name;
    int failed = ares_lookup(ARES_ECONFIG, NULL, name, names, ARES_COUNT(names), &i);
    ares_free(name);
    if (failed) {
        ares_config_fault(cfg, "worker.reward.reward_function", "%s", ares_error_message());
        return NULL;
    }
    if (rc->reward_type && strcmp(rc->reward_type, functions[i].type) != 0)
        ares_config_fault(cfg, "worker.reward.reward_type",
                          "reward_function '%s' is %s; set that, or leave reward_type out",
                          names[i], functions[i].type);
    return functions[i].verifier;
}
