/* Which options differ between two configurations, in words. (differ.c) */
#ifndef ARES_TRAIN_RUN_DIFFER_H
#define ARES_TRAIN_RUN_DIFFER_H

#include "ares/config.h"

enum { DIFFER_MOST = 5 }; /* that a message names */

typedef struct differing {
    const ares_config *cfg;
    bool (*may)(const ares_config *cfg, const char *path); /* whether an option may differ */
    const char *between; /* stands between the two values of an option */
    ares_str *text;      /* gets the first that differ, each with both values */
    int n;               /* how many do */
} differing;
/* a, b: values of one option, or of a section, which is walked; NULL: there is none. */
void differ(differing *x, const ares_json *a, const ares_json *b, const char *path);
#endif
