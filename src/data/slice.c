/* Slices of files, and the names of data sets that follow from paths. */
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

/* The digits before `end`, back to the character after `stop`; NULL: there is something else. */
static const char *digits_back(const char *text, const char *end, char stop)
{
    while (end > text && end[-1] >= '0' && end[-1] <= '9') end--;
    return end > text && end[-1] == stop ? end : NULL;
}

row_slice slice_of(const char *path, size_t *length)
{
    const char *end = path + strlen(path), *last, *first;
    row_slice none = { 0 }, s = { 0 };
    *length = (size_t)(end - path);
    if (end == path || end[-1] != ']') return none;
    if (!(last = digits_back(path, end - 1, ':'))) return none;
    if (!(first = digits_back(path, last - 1, '['))) return none;
    if (first - path < 2 || first[-2] != '@') return none;
    if ((s.has_first = first < last - 1)) s.first = strtoll(first, NULL, 10);
    if ((s.has_end = last < end - 1)) s.end = strtoll(last, NULL, 10);
    *length = (size_t)(first - path) - 2;
    return s;
}

ares_view slice_name(const char *path)
{
    size_t length;
    (void)slice_of(path, &length);
    while (length > 1 && path[length - 1] == '/') length--;
    size_t at = length;
    while (at && path[at - 1] != '/') at--;
    ares_view name = { path + at, length - at };
    if (name.len > 3 && !memcmp(name.data + name.len - 3, ".gz", 3)) name.len -= 3;
    if (name.len > 4 && !memcmp(name.data + name.len - 4, ".zst", 4)) name.len -= 4;
    for (size_t i = name.len; i > 1; i--)
        if (name.data[i - 1] == '.') return (ares_view){ name.data, i - 1 };
    return name;
}
