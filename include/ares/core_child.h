/*
 * core: users' programs with variables of their own (core.h has the rest of what there is about
 * them).
 */
#ifndef ARES_CORE_CHILD_H
#define ARES_CORE_CHILD_H

#include "ares/core.h"

/*
 * As ares_child_start, with the variables `more` ("NAME=value", NULL at the end) in place of those
 * of the same names; NULL: none.
 */
int ares_child_start_with(ares_child *c, char *const *argv, const char *const *more,
                          int64_t memory_bytes);

#endif
