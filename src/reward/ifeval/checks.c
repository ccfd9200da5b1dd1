/*
 * The table of checks, what all of them have in common, and the eight variants of the loose mode.
 */
#include <stdatomic.h>
#include <string.h>

#include "check_tools.h"

typedef struct check {
    ares_view id;
    bool (*holds)(if_args *a);
    int64_t cost;
} check;

#define ENTRY(id, function, cost) { { id, sizeof(id) - 1 }, if_check_##function, cost },
static const check table[] = { IF_CHECK_LIST(ENTRY) };

int if_check_count(void)
{
    return ARES_COUNT(table);
}
const char *if_check_id(int i)
{
    return table[i].id.data;
}

int if_check_find(ares_view id)
{
    for (int i = 0; i < ARES_COUNT(table); i++)
        if (ares_view_eq(table[i].id, id)) return i;
    return -1;
}

/* ---------------------------------------------------------------- once per id */
static atomic_bool warned[ARES_COUNT(table)];

static void warn_argument(int i, const char *fault)
{
    if (!atomic_exchange(&warned[i], true))
        ares_warn("reward: instruction '%s': '%s' is missing or wrong in its kwargs; counted as "
                  "not followed",
                  table[i].id.data, fault);
}

/*
 * Unknown ids come from data and can be many: hashes of the first ones warned of; no warnings
 * beyond them.
 */
static void warn_unknown(ares_view id)
{
    static _Atomic uint64_t seen[32];
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < id.len; i++) hash = (hash ^ (unsigned char)id.data[i]) * 1099511628211u;
    hash |= 1; /* 0 is a free place */
    for (int i = 0; i < ARES_COUNT(seen); i++) {
        uint64_t free_place = 0;
        if (atomic_compare_exchange_strong(&seen[i], &free_place, hash)) {
            ares_warn("reward: instruction '%.*s': unknown; counted as not followed",
                      (int)ARES_MIN(id.len, 80), id.data ? id.data : "");
            return;
        }
        if (free_place == hash) return;
    }
}

/* ---------------------------------------------------------------- judging */
/* the memory for one large text is not kept */
static void forget(ares_arena *scratch)
{
    if (scratch->used > (size_t)1 << 20) ares_arena_fini(scratch);
    else ares_arena_reset(scratch);
}

static bool judge(int i, const ares_json *kwargs, ares_view text, if_budget *budget,
                  ares_arena *scratch)
{
    if (text.len > IF_TEXT_MAX) budget->exhausted = true;
    if (budget->exhausted || !if_take(budget, 64 + (int64_t)text.len * table[i].cost) ||
        if_is_blank(text))
        return false;
    if_args a = { .text = text, .kwargs = kwargs, .arena = scratch, .budget = budget };
    bool holds = table[i].holds(&a);
    forget(scratch);
    if (a.fault) warn_argument(i, a.fault);
    return holds && !a.fault && !budget->exhausted;
}

static int find(ares_view id)
{
    int i = if_check_find(id);
    if (i < 0) warn_unknown(id);
    return i;
}

bool if_check(ares_view id, const ares_json *kwargs, ares_view text, if_budget *budget,
              ares_arena *scratch)
{
    int i = find(id);
    return i >= 0 && judge(i, kwargs, text, budget, scratch);
}

const char *if_check_fault(ares_view id, const ares_json *kwargs)
{
    int i = if_check_find(id);
    ares_arena own = { 0 };
    if_budget budget = { .steps = IF_STEPS };
    if_args a = { .text = ARES_VIEW("One two, three. Four five six!\n\nSeven?"),
                  .arena = &own,
                  .budget = &budget,
                  .kwargs = &if_coerce_kwargs(kwargs, 1, &own)->items[0] };
    if (i >= 0) table[i].holds(&a);
    ares_arena_fini(&own);
    return a.fault;
}

/* ---------------------------------------------------------------- loose */
static ares_view without_first_line(ares_view v)
{
    const char *end = v.len ? memchr(v.data, '\n', v.len) : NULL;
    return end ? if_from(v, (size_t)(end - v.data) + 1) : (ares_view){ "", 0 };
}

static ares_view without_last_line(ares_view v)
{
    const char *end = v.len ? memrchr(v.data, '\n', v.len) : NULL;
    return end ? (ares_view){ v.data, (size_t)(end - v.data) } : (ares_view){ "", 0 };
}

bool if_check_loose(ares_view id, const ares_json *kwargs, ares_view text, if_budget *budget,
                    ares_arena *scratch)
{
    int i = find(id);
    if (i < 0) return false;
    if (text.len > IF_TEXT_MAX) {
        budget->exhausted = true;
        return false;
    }
    ares_view tail = without_first_line(text);
    const ares_view cuts[] = { text, if_trim(tail), if_trim(without_last_line(text)),
                               if_trim(without_last_line(tail)) };
    ares_arena own = { 0 };
    bool holds = false;
    for (int k = 0; k < ARES_COUNT(cuts) && !holds; k++) {
        /* texts of few lines have fewer variants */
        if (k > 1 && ares_view_eq(cuts[k], cuts[1])) continue;
        holds = judge(i, kwargs, cuts[k], budget, scratch);
        if (holds || !memchr(cuts[k].data, '*', cuts[k].len)) continue;
        holds = judge(i, kwargs, if_replace(cuts[k], ARES_VIEW("*"), ARES_VIEW(""), &own), budget,
                      scratch);
        forget(&own);
    }
    ares_arena_fini(&own);
    return holds;
}
