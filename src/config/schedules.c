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

/* Of any list: what a name stands for is not known to be a weight or a cap until it is used. */
static bool is_schedule(ares_config *cfg, const config_node *value)
{
    scheduled s;
    return !value->json ||
           scheduled_parse(&cfg->arena, value->json, ARES_SCHEDULE_WEIGHT, &s) == ARES_OK ||
           scheduled_parse(&cfg->arena, value->json, ARES_SCHEDULE_CAP, &s) == ARES_OK;
}

void ares_config_check_schedules(ares_config *cfg, const char *own)
{
    const config_node *map = config_walk(cfg->root, own);
    if (!map || map->kind != CONFIG_MAP) return;
    for (const config_node *value = map->first; value; value = value->next) {
        const char *path = ares_arena_printf(&cfg->arena, "%s.%s", own, value->key);
        if (!is_schedule(cfg, value))
            config_value_fault(cfg, value, path, "%s", ares_error_message());
    }
}

static const ares_scheduled *read_item(ares_config *cfg, const config_node *item, const char *path,
                                       ares_schedule_list list, const char *own)
{
    ares_scheduled *s = ares_arena_alloc(&cfg->arena, sizeof *s);
    const config_node *value = behind(cfg, item, own);
    if (value->json && scheduled_parse(&cfg->arena, value->json, list, s) == ARES_OK) return s;
    if (value->json && (value == item || is_schedule(cfg, value))) {
        (void)scheduled_parse(&cfg->arena, value->json, list, s);
        config_value_fault(cfg, value, path, "%s", ares_error_message());
    } /* else ares_config_check_schedules says what is wrong */
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
