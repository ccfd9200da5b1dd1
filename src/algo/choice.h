/* Choices of an option with their aliases, "name=alias=alias", as the configuration reads them. */
#ifndef ARES_ALGO_CHOICE_H
#define ARES_ALGO_CHOICE_H

#include <stdbool.h>

/* Whether name is the name or an alias among these words. (choice.c) */
bool choice_has(const char *words, const char *name);
#endif
