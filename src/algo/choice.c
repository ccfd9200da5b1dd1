#include "choice.h"

#include <string.h>

bool choice_has(const char *words, const char *name)
{
    size_t len = strlen(name);
    for (const char *w = words; len; w = strchr(w, '=') + 1) {
        if (strncmp(w, name, len) == 0 && (w[len] == '=' || !w[len])) return true;
        if (!strchr(w, '=')) break;
    }
    return false;
}
