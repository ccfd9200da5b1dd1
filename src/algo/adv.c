/* The table of advantage estimators. To add one: a file in adv/ and a word here. */
#include "ares/algo.h"

#define ADV_LIST(X) X(grpo)

#define DECLARE(name) extern const ares_adv ares_adv_##name;
#define ENTRY(name) &ares_adv_##name,
#define NAME(name) #name,
ADV_LIST(DECLARE)
static const ares_adv *const table[] = { ADV_LIST(ENTRY) };
static const char *const names[] = { ADV_LIST(NAME) };

const char *const *ares_adv_names(int *n)
{
    *n = ARES_COUNT(names);
    return names;
}

const ares_adv *ares_adv_find(const char *name)
{
    int i;
    return ares_lookup(ARES_ECONFIG, "config: algorithm.adv_estimator", name, names, ARES_COUNT(names), &i) == ARES_OK ? table[i] : NULL;
}
