/* The table of built-in verifiers by name: those of the list, and `auto`, which opens them. */
#include "verifiers.h"

#include <string.h>

#include "judge.h"

#define NAME(name) #name,
VERIFY_DECLARE(auto)
static const ares_verifier *const table[] = { VERIFY_LIST(VERIFY_ENTRY) VERIFY_ENTRY(auto) };
static const char *const names[] = { VERIFY_LIST(NAME) NAME(auto) };

const char *const *ares_verifier_names(int *n)
{
    *n = ARES_COUNT(names);
    return names;
}

const ares_verifier *ares_verifier_find(const char *name)
{
    int i;
    return ares_lookup(ARES_ECONFIG, "reward: verifier", name, names, ARES_COUNT(names), &i) ==
                   ARES_OK
               ? table[i]
               : NULL;
}

int ares_judge_new(const char *name, ares_judge **out)
{
    size_t prefix = sizeof ARES_BOXED_PREFIX - 1;
    bool boxed = strncmp(name, ARES_BOXED_PREFIX, prefix) == 0;
    const ares_verifier *v = ares_verifier_find(boxed ? name + prefix : name);
    *out = v ? judge_of(v, boxed) : NULL;
    return v ? ARES_OK : ARES_ECONFIG;
}
