/*
 * Instruction following (IFEval, IFBench): arguments of an instruction, the table of checks with
 * the loose mode, and verdicts with their score. The checks are in checks_text.c and
 * checks_form.c.
 */
#include "ifeval.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/*
 * Arguments of an instruction, and the steps that it may take. Where an argument is missing or
 * negative, the reference draws a random number; here it is a fault.
 */

const ares_json *ifeval_coerce_kwargs(const ares_json *kwargs, int64_t n, ares_arena *arena)
{
    bool list = kwargs && kwargs->type == ARES_JSON_ARRAY;
    int64_t have = list ? ARES_MIN(kwargs->count, n) : ARES_MIN(n, 1);
    ares_json *items = ares_arena_alloc(arena, ((size_t)n + 1) * sizeof *items),
              *out = ares_arena_calloc(arena, 1, sizeof *out);
    for (int64_t i = 0; i < n; i++) {
        /* the last object counts for all instructions after it */
        items[i] = have && i >= have ? items[have - 1] : (ares_json){ .type = ARES_JSON_OBJECT };
        const ares_json *v = i >= have ? NULL : list ? &kwargs->items[i] : kwargs;
        if (!v || v->type != ARES_JSON_OBJECT) continue;
        ares_json_member *kept = ares_arena_alloc(arena, ((size_t)v->count + 1) * sizeof *kept);
        items[i].members = kept;
        for (int64_t k = 0; k < v->count; k++)
            if (v->members[k].value->type != ARES_JSON_NULL) kept[items[i].count++] = v->members[k];
    }
    *out = (ares_json){ .type = ARES_JSON_ARRAY, .count = n, .items = items };
    return out;
}

bool ifeval_spend(ifeval_args *a, int64_t steps)
{
    ifeval_budget *b = a->budget;
    if (b->steps < steps) b->exhausted = true;
    else b->steps -= steps;
    return !b->exhausted;
}

/* Notes the first argument that is wrong; false, for the caller to return. */
static bool fault(ifeval_args *a, const char *key)
{
    if (!a->fault) a->fault = key;
    return false;
}

bool ifeval_arg_number(ifeval_args *a, const char *key, double *out)
{
    const ares_json *v = ares_json_get(a->kwargs, key);
    if (!v || (v->type != ARES_JSON_INT && v->type != ARES_JSON_FLOAT) || !(v->number >= 0) ||
        isinf(v->number))
        return fault(a, key);
    *out = v->number;
    return true;
}

/* 3.0 is whole, too: data sets write counts as floats. */
bool ifeval_arg_whole(ifeval_args *a, const char *key, int64_t *out)
{
    double x = 0;
    if (!ifeval_arg_number(a, key, &x)) return false;
    if (x != floor(x) || x > 1e15) return fault(a, key);
    *out = (int64_t)x;
    return true;
}

/* Takes steps for the length: a row may hold a text as long as it likes. */
bool ifeval_arg_text(ifeval_args *a, const char *key, ares_view *out)
{
    const ares_json *v = ares_json_get(a->kwargs, key);
    if (!v || v->type != ARES_JSON_STRING) return fault(a, key);
    *out = v->text;
    return ifeval_spend(a, (int64_t)v->text.len);
}

/* A text that is not empty: an empty keyword would occur everywhere. */
bool ifeval_arg_filled(ifeval_args *a, const char *key, ares_view *out)
{
    return ifeval_arg_text(a, key, out) && (out->len || fault(a, key));
}

bool ifeval_arg_texts(ifeval_args *a, const char *key, const ares_json **out)
{
    const ares_json *v = ares_json_get(a->kwargs, key);
    if (!v || v->type != ARES_JSON_ARRAY || v->count == 0) return fault(a, key);
    for (int64_t i = 0; i < v->count; i++)
        if (v->items[i].type != ARES_JSON_STRING) return fault(a, key);
    *out = v;
    return true;
}

bool ifeval_arg_relation(ifeval_args *a, const char *relation_key, const char *number_key,
                         double count)
{
    ares_view relation = { 0 };
    double n = 0;
    if (!ifeval_arg_number(a, number_key, &n) || !ifeval_arg_text(a, relation_key, &relation))
        return false;
    bool less = ares_view_is(relation, "less than");
    if (!less && !ares_view_is(relation, "at least")) return fault(a, relation_key);
    return less ? count < n : count >= n;
}

/*
 * The table of checks, what all of them have in common, and the eight variants of the loose mode.
 */

typedef struct check {
    ares_view id;
    bool (*holds)(ifeval_args *a);
    int64_t cost; /* steps per byte of the text */
} check;

#define ENTRY(id, function, cost) { { id, sizeof(id) - 1 }, ifeval_check_##function, cost },
static const check table[] = { IFEVAL_CHECK_LIST(ENTRY) };

int ifeval_check_count(void)
{
    return ARES_COUNT(table);
}
const char *ifeval_check_id(int i)
{
    return table[i].id.data;
}

int ifeval_check_find(ares_view id)
{
    for (int i = 0; i < ARES_COUNT(table); i++)
        if (ares_view_eq(table[i].id, id)) return i;
    return -1;
}

/* ---------------------------------------------------------------- warnings, once per id */
static atomic_bool warned[ARES_COUNT(table)]; /* of an argument */

/* ---------------------------------------------------------------- judging */
/* Frees what a check has made; the memory of a large text goes back to the system. */
static void forget(ares_arena *scratch)
{
    if (scratch->used > (size_t)1 << 20) ares_arena_fini(scratch);
    else ares_arena_reset(scratch);
}

/* Check i of the table on one variant of a text; takes its steps from the budget first. */
static bool judge(int i, const ares_json *kwargs, ares_view text, ifeval_budget *budget,
                  ares_arena *scratch)
{
    ifeval_args a = { .text = text, .kwargs = kwargs, .arena = scratch, .budget = budget };
    if (text.len > IFEVAL_TEXT_MAX) budget->exhausted = true;
    if (budget->exhausted || !ifeval_spend(&a, 64 + (int64_t)text.len * table[i].cost) ||
        ifeval_is_blank(text))
        return false;
    bool holds = table[i].holds(&a);
    forget(scratch);
    if (a.fault && !atomic_exchange(&warned[i], true))
        ares_warn("reward: instruction '%s': '%s' is missing or wrong in its kwargs; counted as "
                  "not followed",
                  table[i].id.data, a.fault);
    return holds && !a.fault && !budget->exhausted;
}

/*
 * Index of a check; -1 when the id is unknown, with a warning. Unknown ids come from the data and
 * can be many, so only the first 32 are named.
 */
static int find(ares_view id)
{
    static _Atomic uint64_t seen[32]; /* hashes of the ids named */
    int found = ifeval_check_find(id);
    if (found >= 0) return found;
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < id.len; i++) hash = (hash ^ (unsigned char)id.data[i]) * 1099511628211u;
    hash |= 1; /* 0 is a free place */
    for (int i = 0; i < ARES_COUNT(seen); i++) {
        uint64_t free_place = 0;
        if (atomic_compare_exchange_strong(&seen[i], &free_place, hash)) {
            ares_warn("reward: instruction '%.*s': unknown; counted as not followed",
                      (int)ARES_MIN(id.len, 80), id.data ? id.data : "");
            break;
        }
        if (free_place == hash) break;
    }
    return -1;
}

bool ifeval_check(ares_view id, const ares_json *kwargs, ares_view text, ifeval_budget *budget,
                  ares_arena *scratch)
{
    int i = find(id);
    return i >= 0 && judge(i, kwargs, text, budget, scratch);
}

const char *ifeval_check_fault(ares_view id, const ares_json *kwargs)
{
    int i = ifeval_check_find(id);
    ares_arena own = { 0 };
    ifeval_budget budget = { .steps = IFEVAL_STEPS };
    /* a check reads its arguments before it judges, so any text will do that is not blank */
    ifeval_args a = { .text = ARES_VIEW("One two, three. Four five six!\n\nSeven?"),
                      .arena = &own,
                      .budget = &budget,
                      .kwargs = &ifeval_coerce_kwargs(kwargs, 1, &own)->items[0] };
    if (i >= 0) table[i].holds(&a); /* whether it holds does not matter */
    ares_arena_fini(&own);
    return a.fault;
}

/* ---------------------------------------------------------------- loose */
/* "a\nb\nc" -> "a\nb"; a text of one line -> "". */
static ares_view without_last_line(ares_view v)
{
    const char *end = v.len ? memrchr(v.data, '\n', v.len) : NULL;
    return end ? (ares_view){ v.data, (size_t)(end - v.data) } : (ares_view){ "", 0 };
}

bool ifeval_check_loose(ares_view id, const ares_json *kwargs, ares_view text,
                        ifeval_budget *budget, ares_arena *scratch)
{
    int i = find(id);
    if (i < 0) return false;
    if (text.len > IFEVAL_TEXT_MAX) {
        budget->exhausted = true;
        return false;
    }
    const char *line = text.len ? memchr(text.data, '\n', text.len) : NULL;
    ares_view tail = line ? ifeval_from(text, (size_t)(line - text.data) + 1) : ARES_VIEW("");
    /* as it is, without its first line ("Sure, here it is:"), without its last one, without both */
    const ares_view cuts[] = { text, ifeval_trim(tail), ifeval_trim(without_last_line(text)),
                               ifeval_trim(without_last_line(tail)) };
    ares_arena own = { 0 };
    bool holds = false;
    for (int k = 0; k < ARES_COUNT(cuts) && !holds; k++) {
        /* texts of few lines have fewer variants */
        if (k > 1 && ares_view_eq(cuts[k], cuts[1])) continue;
        holds = judge(i, kwargs, cuts[k], budget, scratch);
        if (holds || !memchr(cuts[k].data, '*', cuts[k].len)) continue;
        holds = judge(i, kwargs, ifeval_replace(cuts[k], ARES_VIEW("*"), ARES_VIEW(""), &own),
                      budget, scratch);
        forget(&own);
    }
    ares_arena_fini(&own);
    return holds;
}

/* A row's instructions -> verdicts, and verdicts -> a score. */

/* From the end, because the last tag counts. */
ares_view ifeval_strip_think(ares_view text)
{
    static const char tag[] = "</think>";
    const size_t n = sizeof tag - 1;
    for (const char *p = text.data + text.len;
         text.len >= n && (p = memrchr(text.data, '<', (size_t)(p - text.data)));)
        if ((size_t)(text.data + text.len - p) >= n && memcmp(p, tag, n) == 0)
            return ifeval_from(text, (size_t)(p - text.data) + n);
    return text;
}

void ifeval_judge(const ares_json *ids, const ares_json *kwargs, ares_view text, ares_arena *arena,
                  ifeval_verdict *out)
{
    bool list = ids && ids->type == ARES_JSON_ARRAY;
    int64_t count = list ? ids->count : ids != NULL;
    *out =
        (ifeval_verdict){ .ids = ares_arena_alloc(arena, ((size_t)count + 1) * sizeof *out->ids) };
    for (int64_t i = 0; i < count; i++) {
        const ares_json *id = list ? &ids->items[i] : ids;
        if (id->type != ARES_JSON_STRING && id->type != ARES_JSON_INT &&
            id->type != ARES_JSON_FLOAT)
            continue;
        ares_view v = ifeval_trim(id->text);
        if (v.len) out->ids[out->n++] = v;
    }
    out->strict = ares_arena_calloc(arena, (size_t)out->n + 1, sizeof *out->strict);
    out->loose = ares_arena_calloc(arena, (size_t)out->n + 1, sizeof *out->loose);
    const ares_json *own = ifeval_coerce_kwargs(kwargs, out->n, arena);
    ares_arena scratch = { 0 };
    /*
     * Strict verdicts first: a text that is too much work loses its loose verdicts before any
     * strict one.
     */
    ifeval_budget budget = { .steps = IFEVAL_STEPS };
    for (int64_t i = 0; i < out->n; i++)
        out->strict[i] = ifeval_check(out->ids[i], &own->items[i], text, &budget, &scratch);
    for (int64_t i = 0; i < out->n; i++)
        out->loose[i] = out->strict[i] ||
                        ifeval_check_loose(out->ids[i], &own->items[i], text, &budget, &scratch);
    out->exhausted = budget.exhausted;
    ares_arena_fini(&scratch);
}

/* 0 of 0 instructions is 0: a row without any earns nothing. */
double ifeval_fraction(int64_t followed, int64_t n)
{
    return n ? (double)followed / (double)n : 0;
}

double ifeval_score(const ifeval_verdict *v, ifeval_mode mode)
{
    const bool *followed =
        mode == IFEVAL_MODE_loose_all || mode == IFEVAL_MODE_loose_fraction ? v->loose : v->strict;
    int64_t count = 0;
    for (int64_t i = 0; i < v->n; i++) count += followed[i];
    bool all = mode == IFEVAL_MODE_strict_all || mode == IFEVAL_MODE_loose_all;
    return all ? v->n > 0 && count == v->n : ifeval_fraction(count, v->n);
}
