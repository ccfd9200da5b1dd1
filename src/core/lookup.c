/*
 * A name among names, and the name that was probably meant. Distance: insertions, deletions,
 * replacements and swaps of neighbours (optimal string alignment); case, and '-' against '_', do
 * not count. A name is near when it may be the word misspelt: the distance is at most a third of
 * the longer word, rounded, and at most 2, and both have the same digits.
 */
#include "ares/core.h"

#include <ctype.h>
#include <string.h>

enum { MAX_WORD = 128 };

static int folded(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static int distance(const char *a, int na, const char *b, int nb)
{
    int rows[3][MAX_WORD + 1], *before = rows[0], *above = rows[1], *row = rows[2];
    for (int j = 0; j <= nb; j++) above[j] = j;
    for (int i = 1; i <= na; i++) {
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int differ = folded(a[i - 1]) != folded(b[j - 1]);
            int best = ARES_MIN(above[j - 1] + differ, ARES_MIN(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                folded(a[i - 2]) == folded(b[j - 1]))
                best = ARES_MIN(best, before[j - 2] + 1);
            row[j] = best;
        }
        int *oldest = before;
        before = above, above = row, row = oldest;
    }
    return above[nb];
}

static bool same_digits(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a && !isdigit((unsigned char)*a)) a++;
        while (*b && !isdigit((unsigned char)*b)) b++;
        if (*a != *b) return false;
        if (!*a) return true;
    }
}

const char *ares_nearest(const char *word, const char *const *names, int n)
{
    const char *nearest = NULL;
    size_t len = strlen(word);
    int least = MAX_WORD;
    if (len > MAX_WORD) return NULL;
    for (int i = 0; i < n; i++) {
        size_t other = strlen(names[i]);
        if (other > MAX_WORD || !same_digits(word, names[i])) continue;
        int d = distance(word, (int)len, names[i], (int)other),
            near = ARES_MIN(2, ((int)ARES_MAX(len, other) + 1) / 3);
        if (d > near || d >= least) continue;
        least = d;
        nearest = names[i];
    }
    return nearest;
}

int ares_lookup(int code, const char *subject, const char *name, const char *const *names, int n,
                int *index)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *index = i;
        return ARES_OK;
    }
    ares_str choices = { 0 };
    for (int i = 0; i < n; i++) ares_str_addf(&choices, "%s%s", i ? ", " : "", names[i]);
    const char *nearest = ares_nearest(name, names, n);
    ares_fail(code, "unknown;%s%s%s (choices: %s)", nearest ? " did you mean '" : "",
              nearest ? nearest : " choose one of these", nearest ? "'?" : "",
              n ? choices.data : "none");
    ares_str_fini(&choices);
    return subject ? ares_fail_in(code, "%s = '%s'", subject, name) : code;
}
