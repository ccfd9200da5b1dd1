/* What a check is given, how it reads its arguments, and helpers that several families share. */
#ifndef ARES_GRADE_INSTRUCTIONS_CHECK_TOOLS_H
#define ARES_GRADE_INSTRUCTIONS_CHECK_TOOLS_H

#include "checks.h"

typedef struct if_args {
    ares_view text;          /* not blank */
    const ares_json *kwargs; /* an object, or NULL */
    ares_arena *arena;
    if_budget *budget;
    /*
     * set by a check: the argument that is missing or wrong; the instruction counts as not followed
     */
    const char *fault;
} if_args;
#define IF_CHECK_DECLARE_(id, function, cost) bool if_check_##function(if_args *a);
IF_CHECK_LIST(IF_CHECK_DECLARE_)
#undef IF_CHECK_DECLARE_

/* ---------------- arguments (args.c): false, and a->fault is set, when missing or wrong */
/* finite and not negative; 2.0 is 2 */
bool if_arg_number(if_args *a, const char *key, double *out);
bool if_arg_whole(if_args *a, const char *key, int64_t *out);    /* a number without fraction */
bool if_arg_text(if_args *a, const char *key, ares_view *out);   /* may be empty */
bool if_arg_filled(if_args *a, const char *key, ares_view *out); /* not empty */
/* an array of one or more strings */
bool if_arg_texts(if_args *a, const char *key, const ares_json **out);
/*
 * Compares count with the number by the relation, "less than" or "at least"; *holds is the result.
 */
bool if_arg_relation(if_args *a, const char *relation_key, const char *number_key, double count,
                     bool *holds);
bool if_take(if_budget *b, int64_t steps); /* false when none are left */
/* Takes steps beyond the check's own cost; false when none are left. */
bool if_spend(if_args *a, int64_t steps);

/* ---------------- helpers that several families use (scanners.c) */
bool if_has(ares_view text, const char *part);
bool if_ends(ares_view text, ares_view end);
ares_view if_from(ares_view v, size_t at); /* without the first `at` bytes */
/* every occurrence, from the left; part is not empty */
ares_view if_replace(ares_view text, ares_view part, ares_view by, ares_arena *arena);
ares_view if_skip_one_space(ares_view v); /* without its first character if that is white space */
/* the next run of decimal digits, and v moves past it; data NULL at the end */
ares_view if_next_digits(ares_view *v);
ares_view if_next_run(ares_view *v); /* the same for word characters */
/* the first run of characters that are no white space; may be empty */
ares_view if_first_word(ares_view v);
ares_view if_last_word(ares_view v);
/* for each item, the index of the first item equal to it */
uint32_t *if_group(if_list list, ares_arena *arena);
/* number of different items; *most (may be NULL): how often the commonest occurs */
int64_t if_distinct(if_list list, int64_t *most, ares_arena *arena);
/* whether Python's json.loads reads it, nested up to 1000 deep (python_json.c) */
bool if_is_json(ares_view text);
#endif
