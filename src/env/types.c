/* The table of environment types. To add one: a file in this folder and a word here. */
#include "types.h"

#define TYPE_LIST(X) \
    X(sokoban)       \
    X(frozen_lake)   \
    X(bandit) X(countdown) X(metamathqa) X(game_2048) X(rubikscube) X(command) X(openenv)

#define DECLARE(name) extern const ares_env_type ares_env_type_##name;
#define ENTRY(name) &ares_env_type_##name,
#define NAME(name) #name,
TYPE_LIST(DECLARE)
static const ares_env_type *const table[] = { TYPE_LIST(ENTRY) };
static const char *const names[] = { TYPE_LIST(NAME) };

const char *const *env_type_names(int *n)
{
    *n = ARES_COUNT(names);
    return names;
}

const ares_env_type *env_type_find(const char *name)
{
    int i;
    return ares_lookup(ARES_ECONFIG, "env: type", name, names, ARES_COUNT(names), &i) == ARES_OK
               ? table[i]
               : NULL;
}
