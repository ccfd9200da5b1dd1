/* The table of policy losses. To add one: a file in this folder and a word in list.h. */
#include "choice.h"
#include "plain.h"
#include "walk.h"

#define ENTRY(name) &ares_loss_##name,
static const ares_loss *const table[] = { LOSS_LIST(ENTRY) };

const char *const *ares_loss_names(int *n)
{
    static _Thread_local const char *words[ARES_COUNT(table)];
    for (int i = 0; i < ARES_COUNT(table); i++) words[i] = table[i]->words;
    *n = ARES_COUNT(table);
    return words;
}

const ares_loss *const *loss_list(int *n)
{
    *n = ARES_COUNT(table);
    return table;
}

const ares_loss *ares_loss_find(const char *name)
{
    const char *names[ARES_COUNT(table)];
    int i;
    for (i = 0; i < ARES_COUNT(table); i++) {
        if (choice_has(table[i]->words, name)) return table[i];
        names[i] = table[i]->name;
    }
    (void)ares_lookup(ARES_ECONFIG, "config: worker.actor.loss_type", name, names,
                      ARES_COUNT(table), &i);
    return NULL;
}
