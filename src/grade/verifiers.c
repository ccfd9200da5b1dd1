/* The table of built-in verifiers. To add one: a file in this folder and a word here. */
#include "ares/grade.h"

/* clang-format off */
#define VERIFY_LIST(X) \
    X(exact) X(number) X(boxed) X(math) X(deepscaler) X(dapo) X(gsm8k) X(math_hendrycks) \
    X(math_verify) X(format) X(regex) X(format_think) X(format_think_boxed) X(gpqa) \
    X(multiple_choice) X(f1) X(ifbench) X(ifeval) X(format_verify) X(math_format) X(aepo) X(r1v) \
    X(dapo_overlong) X(length) X(overlong) X(repetition) X(random) X(none) X(auto)
/* clang-format on */

#define DECLARE(name) extern const ares_verifier ares_verifier_##name;
#define ENTRY(name) &ares_verifier_##name,
#define NAME(name) #name,
VERIFY_LIST(DECLARE)
static const ares_verifier *const table[] = { VERIFY_LIST(ENTRY) };
static const char *const names[] = { VERIFY_LIST(NAME) };

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
