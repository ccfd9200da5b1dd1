/* Lists of values that change with the step, for the rooms that read them. */
#include "tree.h"

#include <math.h>
#include <string.h>

/* The value that an item stands for: its own, or that of a name of the map. */
static const config_node *behind(const ares_config *cfg, const config_node *item, const char *own)
{
    const config_node *map = config_walk(cfg->root, own), *found = NULL;
    if (item->kind == CONFIG_SCALAR && item->text && map && map->kind == CONFIG_MAP)
        found = config_node_find(map, item->text, strlen(item->text));
    return found ? found : item;
}

static const ares_scheduled *read_item(ares_config *cfg, const config_node *item, const char *path,
                                       ares_schedule_list list, const char *own)
{
    ares_scheduled *s = ares_arena_alloc(&cfg->arena, sizeof *s);
    const config_node *value = behind(cfg, item, own);
    if (value->json && scheduled_parse(&cfg->arena, value->json, list, s) == ARES_OK) return s;
    if (value->json) config_value_fault(cfg, value, path, "%s", ares_error_message());
    return NULL;
}

const ares_scheduled *const *ares_config_schedules(ares_config *cfg, const char *path,
                                                   ares_schedule_list list, const char *own,
                                                   int64_t *n)
{
    const config_node *node = config_walk(cfg->root, path);
    bool good = true;
    ARES_ASSERT(cfg->resolved);
    *n = 0;
    if (!node || node->kind != CONFIG_LIST) return NULL;
    const ares_scheduled **items =
        ares_arena_calloc(&cfg->arena, (size_t)node->count + 1, sizeof *items);
    for (const config_node *item = node->first; item; item = item->next, ++*n) {
        const char *place = ares_arena_printf(&cfg->arena, "%s.%lld", path, (long long)*n);
        good = (items[*n] = read_item(cfg, item, place, list, own)) && good;
    }
    return good ? items : NULL;
}

int ares_scheduled_at(const ares_scheduled *s, int64_t step, double *value)
{
    int rc = scheduled_at(s, step, value);
    if (rc == ARES_OK && s->kind == SCHEDULED_EXPRESSION && isnan(*value) &&
        !expression_may_be_none(s->expression))
        rc = ares_fail(ARES_ECONFIG, "at step %lld: it is no number (NaN)", (long long)step);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", s->text);
}

const char *ares_scheduled_text(const ares_scheduled *s)
{
    return s->text;
}
