/* The table of types, and what types share (types.c, env.c). */
#ifndef ENV_TYPES_H
#define ENV_TYPES_H

#include "ares/env.h"

const ares_env_type *env_type_find(const char *name); /* NULL and an error: unknown */
const char *const *env_type_names(int *n);
/* Adds a number about the step, which has none of this name; one too many is counted alone. */
static inline void env_tell(ares_env_outcome *o, const char *name, double value)
{
    if (o->n_info < ARES_ENV_INFO) o->info[o->n_info++] = (ares_env_info){ name, value };
    else o->dropped++;
}
/* Replaces the number of this name, or adds it. (env.c) */
void env_tell_again(ares_env_outcome *o, const char *name, double value);

#endif
