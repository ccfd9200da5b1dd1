/* The table of shapers. To add one: a file in shape/ and a word here. */
#include "shaper.h"

#include <string.h>

#define SHAPE_LIST(X) X(aepo)

#define DECLARE(name) extern const reward_shaper reward_shaper_##name;
#define ENTRY(name) &reward_shaper_##name,
SHAPE_LIST(DECLARE)
static const reward_shaper *const table[] = { SHAPE_LIST(ENTRY) };

const reward_shaper *reward_shaper_find(const char *name)
{
    for (int i = 0; i < ARES_COUNT(table); i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}
