/* The word lists. Their data is tables_data.h, which the build makes from tables.json. */
#include <string.h>

#include "tables.h"
#include "text_parts.h"

#include "tables_data.h"

static const if_set *const tables[] = {
    [IF_STOP_WORDS] = &stop_words,     [IF_PRONOUNS] = &pronouns, [IF_CONJUNCTIONS] = &conjunctions,
    [IF_PERSON_NAMES] = &person_names, [IF_CAPITALS] = &capitals, [IF_VERBS] = &verbs,
};

const if_entry *if_set_find(const if_set *s, const char *word, size_t len)
{
    if (len == 0 || len > s->longest) return NULL;
    for (uint32_t at = if_hash(word, len) & s->mask; s->slots[at]; at = (at + 1) & s->mask) {
        const if_entry *e = &s->entries[s->slots[at] - 1];
        if (e->len == len && memcmp(e->text, word, len) == 0) return e;
    }
    return NULL;
}

bool if_table_has(if_table t, ares_view word)
{
    return if_set_find(tables[t], word.data, word.len) != NULL;
}

int if_table_count(if_table t)
{
    return (int)tables[t]->count;
}

ares_view if_table_item(if_table t, int i)
{
    ARES_ASSERT(i >= 0 && i < (int)tables[t]->count);
    const if_entry *e = &tables[t]->entries[i];
    return (ares_view){ e->text, e->len };
}

bool if_is_emoji(uint32_t c)
{
    int low = 0, high = ARES_COUNT(emoji_ranges);
    if (c < emoji_ranges[0][0]) return false;
    while (low < high) {
        int middle = (low + high) / 2;
        if (c > emoji_ranges[middle][1]) low = middle + 1;
        else high = middle;
    }
    return low < ARES_COUNT(emoji_ranges) && c >= emoji_ranges[low][0];
}
