#include "find_name.h"

#include <string.h>

#include "ares/core.h"

int algo_find(const char *subject, const char *name, const char *const *words, int n, int *index)
{
    enum { MOST = 32, WIDTH = 32 };
    char first[MOST][WIDTH];
    const char *names[MOST];
    size_t len = strlen(name);
    ARES_ASSERT(n <= MOST);
    for (int i = 0; i < n; i++) {
        for (const char *w = words[i]; len; w = strchr(w, '=') + 1) {
            if (strncmp(w, name, len) == 0 && (w[len] == '=' || !w[len])) {
                *index = i;
                return ARES_OK;
            }
            if (!strchr(w, '=')) break;
        }
        size_t own = strcspn(words[i], "=");
        ARES_ASSERT(own < WIDTH);
        memcpy(first[i], words[i], own);
        first[i][own] = 0;
        names[i] = first[i];
    }
    return ares_lookup(ARES_ECONFIG, subject, name, names, n, index);
}
