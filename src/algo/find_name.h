/*
 * Choices of an option with their aliases, "name=alias=alias", as the configuration reads them.
 * (find_name.c)
 */
#ifndef ARES_ALGO_FIND_NAME_H
#define ARES_ALGO_FIND_NAME_H

/* Index of the entry that has this name or alias, or a failure with the choices. */
int algo_find(const char *subject, const char *name, const char *const *words, int n, int *index);
#endif
