/* A control with its options, from words of a command line. */
#ifndef ARES_CONTROL_TEST_H
#define ARES_CONTROL_TEST_H

#include <string.h>

#include "ares/algo_control.h"

static inline const ares_control *control_named(const char *name)
{
    int n;
    const ares_control *const *list = ares_control_list(&n);
    for (int i = 0; i < n; i++)
        if (strcmp(list[i]->name, name) == 0) return list[i];
    return NULL;
}

/*
 * The options of a control; they live as long as *cfg. NULL and a message when a word does not fit.
 */
static inline void *control_options(const ares_control *c, const char *const *words, int n,
                                    ares_config **cfg)
{
    char *options = ares_calloc(1, c->options_size);
    *cfg = ares_config_new();
    for (int i = 0; i < ARES_CONTROL_SECTIONS && c->sections[i].options; i++)
        ares_config_add_options(*cfg, c->sections[i].section, c->sections[i].options,
                                options + c->sections[i].offset);
    for (int i = 0; i < n; i++) ares_config_override(*cfg, words[i]);
    ares_config_resolve(*cfg);
    if (ares_config_finish(*cfg) == ARES_OK) return options;
    ares_free(options);
    ares_config_free(*cfg);
    *cfg = NULL;
    return NULL;
}
#endif
