/* The table of types, and what types share (types.c, env.c). */
#ifndef ENV_TYPES_H
#define ENV_TYPES_H

#include "ares/env.h"

const ares_env_type *env_type_find(const char *name); /* NULL and an error: unknown */
const char *const *env_type_names(int *n);
/* Replaces or adds a number about the step; what does not fit into info is left out. */
void env_tell(ares_env_outcome *o, const char *name, double value);

#endif
