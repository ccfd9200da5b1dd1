/*
 * Values that change with the step. A constant, a named schedule or an expression; all are
 * read once, when the configuration is, and no other code ever runs.
 */
#ifndef ARES_CONFIG_SCHEDULED_H
#define ARES_CONFIG_SCHEDULED_H

#include "ares/config.h"

/* ---------------- expressions (expression.c)
 * `lambda NAME: EXPR`, or EXPR alone, whose name is then `step`. The grammar and the meaning are
 * Python's over floats:
 *
 *     a if c else b    or and not    < <= > >= == != (chained)    + - * / // % **    ( )
 *     numbers, True, False, None, pi, e, inf
 *     abs ceil cos exp float floor int log log2 log10 max min pow round sin sqrt tan tanh
 *
 * Constants and functions of Python's math module may have the prefix `math.`. None is a whole
 * branch and means "no value". What is beyond the grammar is ARES_ECONFIG with its column; the
 * caller names the text.
 */
typedef struct expression expression;
enum { EXPRESSION_BYTES = 4096 }; /* longest text */
/* none_allowed: whether None may be a value. The expression and its text lie in the arena. */
int expression_parse(ares_arena *arena, ares_view text, bool none_allowed, const expression **out);
/*
 * *value: NaN for None. ARES_ECONFIG where Python would raise an exception: division by zero, the
 * logarithm of 0, an overflow of exp or **, a power that is no real number. The same bits on every
 * x86 machine.
 */
int expression_at(const expression *e, int64_t step, double *value);
bool expression_may_be_none(const expression *e);

/* ---------------- scheduled values (scheduled.c)
 * A number is a constant. A text is a number in quotes, an expression, or the name of a schedule,
 * with or without a path before it
 * (`examples.curriculum_learning.weight_scheduler.level_increasing`). The module `weight_scheduler`
 * or `reward_cap_scheduler` chooses the table of names; without one the list does. The tables
 * differ: exponential caps change five times more slowly than weights.
 */
typedef enum {
    SCHEDULED_NONE,
    SCHEDULED_CONSTANT,
    SCHEDULED_NAMED,
    SCHEDULED_EXPRESSION,
} scheduled_kind;
struct ares_scheduled {
    scheduled_kind kind;
    double constant;
    double (*named)(double step);
    const expression *expression;
    const char *text; /* as written; of a number its shortest form */
};
typedef ares_scheduled scheduled;
/* Texts and expressions lie in the arena. Anything else than the above is ARES_ECONFIG. */
int scheduled_parse(ares_arena *arena, const ares_json *value, ares_schedule_list list,
                    scheduled *out);
/* *value: NaN for none. step counts from 0. Fails as expression_at does. */
int scheduled_at(const scheduled *s, int64_t step, double *value);
#endif
