/* Options whose value changes with the step: one such value, then lists of them. */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Values that change with the step, and the schedules that have names. The named ones are those of
 * slime's examples/curriculum_learning (weight_scheduler.py, reward_cap_scheduler.py), with names
 * of its older revisions.
 */

/* The curves of the named schedules; several names may share one. */
typedef enum {
    RISING,        /* 0.1 -> 0.9 in 200 steps */
    FALLING,       /* 0.9 -> 0.1 in 200 steps */
    WEIGHT_DECAY,  /* 1 -> 0.1, exponential; the same for caps, but slower, below */
    WEIGHT_WARMUP, /* 0 -> 0.9 */
    CAP_DECREASE,
    CAP_INCREASE,
    LEVELS_UP,   /* four levels of 50 steps */
    LEVELS_DOWN, /* the same levels in the other order */
    CAP_STEPS,
    CAP_WARMUP /* 0.1 -> 0.6 in 500 steps */
} curve;

static double curve_at(curve which, double step)
{
    /* expl, so that the double library of a machine decides no bit (expression.c) */
    double rate = which == WEIGHT_DECAY || which == WEIGHT_WARMUP ? 0.015 : 0.003;
    double decay = 0.9 * (double)expl(-rate * step) + 0.1;
    switch (which) {
    case RISING: return 0.1 + 0.8 * fmin(step / 200, 1);
    case FALLING: return 0.9 - 0.8 * fmin(step / 200, 1);
    case WEIGHT_DECAY:
    case CAP_DECREASE: return decay;
    case WEIGHT_WARMUP:
    case CAP_INCREASE: return 1 - decay;
    case LEVELS_UP: return step < 50 ? 0.5 : step < 100 ? 0.6 : step < 150 ? 0.7 : 0.8;
    case LEVELS_DOWN: return step < 50 ? 0.8 : step < 100 ? 0.7 : step < 150 ? 0.6 : 0.5;
    case CAP_STEPS: return step < 200 ? 0.2 : step < 500 ? 0.5 : 0.8;
    case CAP_WARMUP: return step < 500 ? 0.1 + 0.5 * step / 500 : 0.6;
    }
    return NAN;
}

typedef struct schedule {
    const char *name;
    curve curve;
} schedule;
/* The names of the two modules. */
static const schedule weights[] = {
    { "decreasing_weight", FALLING },      { "increasing_weight", RISING },
    { "exponential_decay", WEIGHT_DECAY }, { "exponential_warmup", WEIGHT_WARMUP },
    { "level_increasing", LEVELS_UP },     { "level_decreasing", LEVELS_DOWN },
    { "easy_to_hard", FALLING },           { "hard_to_easy", RISING },
};
static const schedule caps[] = {
    { "increasing_cap", RISING },
    { "decreasing_cap", FALLING },
    { "exponential_increase", CAP_INCREASE },
    { "exponential_decrease", CAP_DECREASE },
    { "level_increasing", LEVELS_UP },
    { "level_decreasing", LEVELS_DOWN },
    { "step_function_cap", CAP_STEPS },
    { "warmup_then_constant", CAP_WARMUP },
};
static const struct {
    const char *module;
    const schedule *table;
    int count;
} tables[] = {
    [ARES_SCHEDULE_WEIGHT] = { "weight_scheduler", weights, ARES_COUNT(weights) },
    [ARES_SCHEDULE_CAP] = { "reward_cap_scheduler", caps, ARES_COUNT(caps) },
};

/* A name of a schedule, or a path that ends in one; `step` alone is an expression. */
static bool is_path(const char *text)
{
    for (const char *p = text; *p; p++)
        if (!strchr("._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", *p))
            return false;
    return strcmp(text, "step") != 0;
}

enum { NAME_BYTES = 200 }; /* no name is as long: it is not searched for */

/* A number in quotes, the name of a schedule, or else an expression. */
static int read_text(ares_arena *arena, ares_view text, ares_schedule_list list, scheduled *out)
{
    char *end;
    text = ares_view_trim(text);
    out->text = ares_arena_copy(arena, text.data, text.len);
    if (!text.len)
        return ares_fail(ARES_ECONFIG, "an empty text is no schedule; write a number, a name or an "
                                       "expression in step");
    double number = strtod(out->text, &end);
    /* strtod alone would take "inf" and "nan" too */
    if (!*end && (*out->text == '-' || *out->text == '+' || *out->text == '.' ||
                  (*out->text >= '0' && *out->text <= '9'))) {
        *out = (scheduled){ SCHEDULED_CONSTANT, .constant = number, .text = out->text };
        return isfinite(number) ? ARES_OK : ares_fail(ARES_ECONFIG, "the number is too large");
    }
    if (is_path(out->text) && text.len > NAME_BYTES)
        return ares_fail(ARES_ECONFIG, "no schedule has so long a name");
    if (is_path(out->text)) {
        /*
         * the last component names the schedule, the one before it the module:
         * "examples.curriculum_learning.weight_scheduler.easy_to_hard"
         */
        const char *name = strrchr(out->text, '.');
        if (name) {
            const char *start = name;
            /* back to the dot before the module */
            while (start > out->text && start[-1] != '.') start--;
            for (int i = 0; i < ARES_COUNT(tables); i++)
                if (ares_view_eq((ares_view){ start, (size_t)(name - start) },
                                 ares_view_of(tables[i].module)))
                    list = (ares_schedule_list)i;
        }
        name = name ? name + 1 : out->text;
        const char *names[ARES_COUNT(weights) + ARES_COUNT(caps)];
        int k;
        for (k = 0; k < tables[list].count; k++) names[k] = tables[list].table[k].name;
        if (ares_lookup(ARES_ECONFIG, "schedule", name, names, k, &k) != ARES_OK)
            return ares_fail_in(ARES_ECONFIG, "a schedule of your own is an expression, such as "
                                              "'0.2 + 0.6 * min(step / 100, 1)'");
        out->kind = SCHEDULED_NAMED;
        out->named = tables[list].table[k].curve;
        return ARES_OK;
    }
    out->kind = SCHEDULED_EXPRESSION;
    return expression_parse(arena, text, list == ARES_SCHEDULE_CAP, &out->expression);
}

/* A value of the configuration, as JSON, to one that can be asked per step. */
int scheduled_parse(ares_arena *arena, const ares_json *value, ares_schedule_list list,
                    scheduled *out)
{
    *out = (scheduled){ .kind = SCHEDULED_NONE, .text = "null" };
    switch (value->type) {
    case ARES_JSON_NULL:
        /* a cap may be null: there is no cap */
        if (list == ARES_SCHEDULE_CAP) return ARES_OK;
        break;
    case ARES_JSON_BOOL:
        *out = (scheduled){ SCHEDULED_CONSTANT, .constant = value->boolean,
                            .text = value->boolean ? "true" : "false" };
        return ARES_OK;
    case ARES_JSON_INT:
    case ARES_JSON_FLOAT:
        if (isnan(value->number)) return ares_fail(ARES_ECONFIG, "it is no number (NaN)");
        *out = (scheduled){ SCHEDULED_CONSTANT, .constant = value->number,
                            .text = isinf(value->number) ? value->number > 0 ? "inf" : "-inf"
                                                         : ares_arena_copy(arena, value->text.data,
                                                                           value->text.len) };
        return ARES_OK;
    case ARES_JSON_STRING: return read_text(arena, value->text, list, out);
    default: break;
    }
    return ares_fail(ARES_ECONFIG, "neither a number nor the name of a schedule nor an expression");
}

/* The value at a step, counted from 0; of a cap that is null NaN. */
int scheduled_at(const scheduled *s, int64_t step, double *value)
{
    switch (s->kind) {
    case SCHEDULED_NONE: *value = NAN; return ARES_OK;
    case SCHEDULED_CONSTANT: *value = s->constant; return ARES_OK;
    case SCHEDULED_NAMED: *value = curve_at((curve)s->named, (double)step); return ARES_OK;
    case SCHEDULED_EXPRESSION: return expression_at(s->expression, step, value);
    }
    return ARES_OK;
}

/* ---- lists of values that change with the step, for the rooms that read them */

/* Whether it is a weight or a cap: which of both a value of the map is, only its use tells. */
static bool is_schedule(ares_config *cfg, const config_node *value)
{
    scheduled s;
    return !value->json ||
           scheduled_parse(&cfg->arena, value->json, ARES_SCHEDULE_WEIGHT, &s) == ARES_OK ||
           scheduled_parse(&cfg->arena, value->json, ARES_SCHEDULE_CAP, &s) == ARES_OK;
}

/* Every value of the map must be a schedule, also those that no list uses. */
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

/* The schedules of a list, in its order; NULL after a fault, which is noted. */
const ares_scheduled *const *ares_config_schedules(ares_config *cfg, const char *path,
                                                   ares_schedule_list list, const char *own,
                                                   int64_t *n)
{
    const config_node *node = config_walk(cfg->root, path), *map = config_walk(cfg->root, own);
    bool good = true;
    ARES_ASSERT(cfg->resolved);
    *n = 0;
    if (!node || node->kind != CONFIG_LIST) return NULL;
    const ares_scheduled **items =
        ares_arena_calloc(&cfg->arena, (size_t)node->count + 1, sizeof *items);
    for (const config_node *item = node->first; item; item = item->next, ++*n) {
        const char *place = ares_arena_printf(&cfg->arena, "%s.%lld", path, (long long)*n);
        ares_scheduled *s = ares_arena_alloc(&cfg->arena, sizeof *s);
        /* an item that is a name of the map stands for the value there */
        const config_node *value = NULL;
        if (item->kind == CONFIG_SCALAR && item->text && map && map->kind == CONFIG_MAP)
            value = config_node_find(map, item->text, strlen(item->text));
        if (!value) value = item;
        if (value->json && scheduled_parse(&cfg->arena, value->json, list, s) == ARES_OK) {
            items[*n] = s;
            continue;
        }
        good = false;
        if (value->json && (value == item || is_schedule(cfg, value))) {
            (void)scheduled_parse(&cfg->arena, value->json, list, s); /* for its error message */
            config_value_fault(cfg, value, place, "%s", ares_error_message());
        } /* else ares_config_check_schedules says what is wrong */
    }
    return good ? items : NULL;
}

int ares_scheduled_at(const ares_scheduled *s, int64_t step, double *value)
{
    int rc = scheduled_at(s, step, value);
    /* NaN is None where the expression has one, and else a mistake in it */
    if (rc == ARES_OK && s->kind == SCHEDULED_EXPRESSION && isnan(*value) &&
        !expression_may_be_none(s->expression))
        rc = ares_fail(ARES_ECONFIG, "at step %lld: it is no number (NaN)", (long long)step);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", s->text);
}

const char *ares_scheduled_text(const ares_scheduled *s)
{
    return s->text;
}
