/* The faults of a resolved configuration, as a run would print them. */
#ifndef TEST_FAULTS_H
#define TEST_FAULTS_H

#include <string.h>

#include "ares/config.h"

/* every fault, a line each; "" for none */
static inline const char *faults_text(ares_config *cfg)
{
    return ares_config_finish(cfg) == ARES_OK ? "" : ares_error_message();
}

/* how many of them speak of `what` */
static inline int faults_with(ares_config *cfg, const char *what)
{
    int found = 0;
    for (const char *line = faults_text(cfg); *line;) {
        size_t len = strcspn(line, "\n");
        found += memmem(line, len, what, strlen(what)) != NULL;
        line += len + (line[len] == '\n');
    }
    return found;
}

#endif
