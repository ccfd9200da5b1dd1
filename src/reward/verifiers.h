/* The verifiers that judge by themselves. To add one: a file in this folder and a word here. */
#ifndef ARES_GRADE_VERIFIERS_H
#define ARES_GRADE_VERIFIERS_H

#include "ares/grade.h"

/* clang-format off */
#define VERIFY_LIST(X) \
    X(exact) X(number) X(boxed) X(math) X(deepscaler) X(dapo) X(gsm8k) X(math_hendrycks) \
    X(math_verify) X(format) X(regex) X(json) X(format_think) X(format_think_boxed) X(gpqa) \
    X(multiple_choice) X(f1) X(ifbench) X(ifeval) X(format_verify) X(math_format) X(aepo) X(r1v) \
    X(dapo_overlong) X(length) X(overlong) X(repetition) X(random) X(none)
/* clang-format on */

#define VERIFY_DECLARE(name) extern const ares_verifier ares_verifier_##name;
#define VERIFY_ENTRY(name) &ares_verifier_##name,
VERIFY_LIST(VERIFY_DECLARE)
#endif
