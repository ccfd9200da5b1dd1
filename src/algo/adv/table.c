/* The table of advantage estimators. To add one: a file in this folder and a word in adv.h. */
#include "adv.h"

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

const ares_adv *ares_adv_find(const char *name)
{
    int i;
    return ares_lookup(ARES_ECONFIG, "config: algorithm.adv_estimator", name, names,
                       ARES_COUNT(names), &i) == ARES_OK
               ? table[i]
               : NULL;
}
