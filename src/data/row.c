/*
 * One row of a data set: what it must have, and how forms of other programs (ShareGPT, Alpaca)
 * become ours.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a row must have. A fault names its file and line, and the option that names the key. */

/* "extra.choices[-1].text" -> the text of the last choice; NULL where a step leads nowhere. */
const ares_json *ares_row_at(const ares_json *row, const char *path)
{
    const ares_json *v = ares_json_get(row, path); /* a key may hold dots itself */
    if (v) return v;
    v = row;
    for (const char *p = path; v && (*p || p == path);) {
        size_t n = strcspn(p, ".[");
        if (n) {
            v = ares_json_find(v, (ares_view){ p, n });
            p += n;
        } else {
            char *end = NULL;
            long long i = *p == '[' ? strtoll(p + 1, &end, 10) : 0;
            if (*p != '[' || end == p + 1 || *end != ']' || v->type != ARES_JSON_ARRAY) return NULL;
            if (i < 0) i += v->count; /* as in Python: -1 is the last */
            v = i >= 0 && i < v->count ? &v->items[i] : NULL;
            p = end + 1;
        }
        if (*p == '.' && !*++p) return NULL; /* "a." names nothing */
    }
    return v;
}

/* Appends up to 12 keys; those inside an object are written as paths. */
static void add_keys(const ares_json *object, const char *before, int *n, ares_str *out)
{
    for (int64_t i = 0; i < object->count && *n < 12; i++) {
        const ares_json_member *m = &object->members[i];
        if (!*before && m->value->type == ARES_JSON_OBJECT && m->value->count) {
            char inside[80];
            snprintf(inside, sizeof inside, "%.*s.", (int)ARES_MIN(m->key.len, 70), m->key.data);
            add_keys(m->value, inside, n, out);
            continue;
        }
        ares_str_addf(out, "%s%s", (*n)++ ? ", " : "", before);
        ares_str_add_view(out, m->key);
    }
}

/* Names the keys that the row has, since most such faults are a key under another name. */
int ares_row_lacks(const ares_json *row, const char *what, const char *option)
{
    ares_str keys = { 0 };
    int n = 0;
    add_keys(row, "", &n, &keys);
    int rc = ares_fail(ARES_EFORMAT, "row has %s (keys: %s); set %s", what,
                       keys.len ? keys.data : "none", option);
    ares_str_fini(&keys);
    return rc;
}

/* option: the one that names the key. */
static int missing_key(const char *file, int64_t line, const char *option, const char *key,
                       const ares_json *row)
{
    char what[130], of_null[80];
    bool null = ares_row_at(row, key) != NULL; /* a value would have been taken */
    snprintf(what, sizeof what, null ? "null as its '%.100s'" : "no key '%.100s'", key);
    /* the key may be right and this row alone without a value: offer that first */
    snprintf(of_null, sizeof of_null, "a value there, or %s", option);
    if (null) option = of_null;
    return ares_fail_in(ares_row_lacks(row, what, option), "data: %s:%lld", file, (long long)line);
}

/* Fails where one of the messages under `key` has no role, or the list is empty. */
static int row_check_messages(const ares_json *messages, const char *key)
{
    for (int64_t i = 0; i < messages->count; i++) {
        const ares_json *m = &messages->items[i], *role = ares_json_get(m, "role");
        if (role && role->type == ARES_JSON_STRING) continue;
        ares_str keys = { 0 };
        int n = 0;
        if (m->type == ARES_JSON_OBJECT) add_keys(m, "", &n, &keys);
        int rc = ares_fail(ARES_EFORMAT,
                           "'%s'[%lld] is not a message: it has no string 'role' (keys: %s)", key,
                           (long long)i, keys.len ? keys.data : "none");
        ares_str_fini(&keys);
        return rc;
    }
    return messages->count ? ARES_OK
                           : ares_fail(ARES_EFORMAT, "'%s' is an empty list of messages", key);
}

const ares_json *row_answer(const ares_data_config *cfg, const ares_json *row)
{
    const ares_json *v = cfg->answer_key ? ares_row_at(row, cfg->answer_key) : NULL;
    if (cfg->answer_key && !is_there(v) && strcmp(cfg->answer_key, "answer") == 0)
        v = ares_row_at(row, ROW_VERL_ANSWER);
    return is_there(v) ? v : NULL;
}

/* Whether the row or its "metadata" has the key with a value other than null. */
static bool has(const ares_json *row, const char *key)
{
    return is_there(ares_json_get(row, key)) ||
           is_there(ares_json_get(ares_json_get(row, "metadata"), key));
}

int row_check(const ares_data_config *cfg, const char *file, int64_t line, const ares_json *row,
              const ares_json *given, bool need_answer)
{
    const ares_json *prompt = ares_row_at(row, cfg->prompt_key);
    if (!prompt) return missing_key(file, line, "data.prompt_key", cfg->prompt_key, row);
    if (prompt->type != ARES_JSON_STRING && prompt->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT,
                         "data: %s:%lld: '%s' is neither a string nor a list of messages", file,
                         (long long)line, cfg->prompt_key);
    int rc =
        prompt->type == ARES_JSON_ARRAY ? row_check_messages(prompt, cfg->prompt_key) : ARES_OK;
    if (rc != ARES_OK) return ares_fail_in(rc, "data: %s:%lld", file, (long long)line);
    /* a row needs an answer, unless it names instructions that the response must follow */
    if (!need_answer || row_answer(cfg, given) || has(given, "instruction_id_list") ||
        has(given, "checkers"))
        return ARES_OK;
    if (has(given, "functions"))
        return ares_fail(ARES_EFORMAT,
                         "data: %s:%lld: the row has 'functions' in Python, which is not run, and "
                         "neither 'checkers' nor '%s'; give it checkers: [{\"id\": \"..\", "
                         "\"kwargs\": {..}}], or set data.answer_key",
                         file, (long long)line, cfg->answer_key);
    const char *key = cfg->answer_key;
    if (strcmp(key, "answer") == 0 && !ares_row_at(given, key) &&
        ares_row_at(given, ROW_VERL_ANSWER))
        key = ROW_VERL_ANSWER;
    return missing_key(file, line, "data.answer_key", key, given);
}

/*
 * Rows as other programs write them, in our form: ShareGPT's conversations of {from, value}, and
 * Alpaca's instruction, input and history, with a `system` beside either. Whoever reads rows from
 * files sees our form alone.
 */

/* The string under the key; data NULL where there is none, or a value of another type. */
static ares_view string_of(const ares_json *row, const char *key)
{
    const ares_json *v = ares_json_get(row, key);
    return v && v->type == ARES_JSON_STRING ? v->text : (ares_view){ NULL, 0 };
}
/* ---------------------------------------------------------------- ShareGPT */
/* {from, value}; a message that also has a role is read by that. */
static bool is_of_sharegpt(const ares_json *message)
{
    return string_of(message, "from").data && !ares_json_get(message, "role");
}

int ares_row_messages(const ares_json *list, const char *key, ares_arena *arena,
                      const ares_json **out)
{
    if (list->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "'%s' is no list of messages", key);
    ares_json *copy = ares_arena_calloc(arena, 1, sizeof *copy),
              *items = ares_arena_calloc(arena, (size_t)list->count + 1, sizeof *items);
    *copy = (ares_json){ .type = ARES_JSON_ARRAY, .count = list->count, .items = items };
    for (int64_t i = 0; i < list->count; i++) {
        items[i] = list->items[i];
        if (!is_of_sharegpt(&items[i])) continue;
        ares_json_member *m = ares_arena_alloc(arena, (size_t)(items[i].count + 2) * sizeof *m);
        memcpy(m, items[i].members, (size_t)items[i].count * sizeof *m);
        /* `role` and `content`, for which the members have room */
        const ares_json *message = &items[i];
        static const struct {
            const char *from, *role;
        } roles[] = { { "human", "user" },          { "user", "user" },     { "gpt", "assistant" },
                      { "assistant", "assistant" }, { "system", "system" }, { "tool", "tool" },
                      { "observation", "tool" } };
        ares_view from = string_of(message, "from");
        const ares_json *value = ares_json_get(message, "value");
        int k = 0;
        /* unknown speakers are refused: a guess would turn an answer into part of a prompt */
        while (k < ARES_COUNT(roles) && !ares_view_is(from, roles[k].from)) k++;
        if (k == ARES_COUNT(roles) || !value)
            return ares_fail(ARES_EFORMAT,
                             "'%s'[%lld]: from = '%.*s'%s; write human, gpt, system or tool with a "
                             "'value', or messages of 'role' and 'content'",
                             key, (long long)i, (int)ARES_MIN(from.len, 60), from.data,
                             value ? " is no role" : " has no 'value'");
        ares_json *role = ares_arena_calloc(arena, 1, sizeof *role);
        *role = (ares_json){ .type = ARES_JSON_STRING, .text = ares_view_of(roles[k].role) };
        m[message->count] = (ares_json_member){ ARES_VIEW("role"), role };
        m[message->count + 1] = (ares_json_member){ ARES_VIEW("content"), value };
        items[i].count += 2;
        items[i].members = m;
    }
    *out = copy;
    return row_check_messages(copy, key);
}

/* ---------------------------------------------------------------- a list that grows */
void row_add_message(ares_json *list, const char *role, ares_view content, ares_arena *arena)
{
    ares_json *texts = ares_arena_calloc(arena, 2, sizeof *texts);
    ares_json_member *m = ares_arena_calloc(arena, 2, sizeof *m);
    texts[0] = (ares_json){ .type = ARES_JSON_STRING, .text = ares_view_of(role) };
    texts[1] = (ares_json){ .type = ARES_JSON_STRING, .text = content };
    m[0] = (ares_json_member){ ARES_VIEW("role"), &texts[0] };
    m[1] = (ares_json_member){ ARES_VIEW("content"), &texts[1] };
    ((ares_json *)list->items)[list->count++] =
        (ares_json){ .type = ARES_JSON_OBJECT, .count = 2, .members = m };
}

/* An empty list with room for `most` messages. */
static ares_json *new_list(int64_t most, ares_arena *arena)
{
    ares_json *list = ares_arena_calloc(arena, 1, sizeof *list);
    list->type = ARES_JSON_ARRAY;
    list->items = ares_arena_calloc(arena, (size_t)most, sizeof *list);
    return list;
}

/* The row with v under the key, and without the keys that v has taken in (a NULL ends them). */
static const ares_json *with(const ares_json *row, const char *key, const ares_json *v,
                             const char *const *taken, ares_arena *arena)
{
    ares_json *out = ares_arena_calloc(arena, 1, sizeof *out);
    ares_json_member *m = ares_arena_alloc(arena, (size_t)(row->count + 1) * sizeof *m);
    *out = (ares_json){ .type = ARES_JSON_OBJECT, .members = m };
    for (int64_t i = 0; i < row->count; i++) {
        bool kept = !ares_view_is(row->members[i].key, key);
        for (int k = 0; taken[k]; k++) kept = kept && !ares_view_is(row->members[i].key, taken[k]);
        if (kept) m[out->count++] = row->members[i];
    }
    m[out->count++] = (ares_json_member){ ares_view_of(key), v };
    return out;
}

/* Messages of {role, content} under the key, with the row's `system` before them. */
static int adopt_sharegpt(const ares_json *row, const char *key, const ares_json *list,
                          ares_arena *arena, const ares_json **out)
{
    static const char *const taken[] = { "system", NULL }, *const none[] = { NULL };
    ares_view system = string_of(row, "system");
    ARES_TRY(ares_row_messages(list, key, arena, &list));
    /* two texts of the system could say different things, so one has to go */
    bool own = ares_view_is(string_of(&list->items[0], "role"), "system");
    if (system.len && own)
        return ares_fail(ARES_EFORMAT,
                         "the row has 'system', and '%s' begins with a message of the system; "
                         "leave one of them out",
                         key);
    if (system.len) {
        ares_json *all = new_list(list->count + 1, arena);
        row_add_message(all, "system", system, arena);
        memcpy((ares_json *)all->items + 1, list->items, (size_t)list->count * sizeof *list);
        all->count += list->count; /* row_add_message has counted the first */
        list = all;
    }
    *out = with(row, key, list, system.data ? taken : none, arena);
    return ARES_OK;
}

/* ---------------------------------------------------------------- Alpaca */
/* 'instruction' alone is also the key of plain prompts: an answer beside it tells the two apart. */
bool ares_row_is_alpaca(const ares_json *row)
{
    return string_of(row, "instruction").data &&
           (is_there(ares_json_get(row, "output")) || is_there(ares_json_get(row, "chosen")));
}
/* instruction and input, a line each; with `system` or `history` the last of messages. */
static int adopt_alpaca(const ares_json *row, const char *key, ares_arena *arena,
                        const ares_json **out)
{
    static const char *const taken[] = { "system", "input", "history", NULL };
    const ares_json *history = ares_json_get(row, "history");
    ares_view first = string_of(row, "instruction"), input = string_of(row, "input"),
              system = string_of(row, "system"), text = first;
    if (is_there(history) && history->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "'history' is no list of questions with their answers");
    if (input.len) {
        /* "Translate:" and "good day" -> "Translate:\ngood day" */
        size_t before = first.len ? first.len + 1 : 0;
        char *joined = ares_arena_calloc(arena, before + input.len + 1, 1);
        if (before) memcpy(joined, first.data, first.len), joined[before - 1] = '\n';
        memcpy(joined + before, input.data, input.len);
        text = (ares_view){ joined, before + input.len };
    }
    ares_json *prompt = ares_arena_calloc(arena, 1, sizeof *prompt);
    *prompt = (ares_json){ .type = ARES_JSON_STRING, .text = text };
    /* [["question", "answer"], ..], the oldest first */
    bool turns = is_there(history) && history->count;
    if (system.len || turns) {
        prompt = new_list(2 + (turns ? 2 * history->count : 0), arena);
        if (system.len) row_add_message(prompt, "system", system, arena);
        for (int64_t i = 0; turns && i < history->count; i++) {
            const ares_json *turn = &history->items[i];
            if (turn->type != ARES_JSON_ARRAY || turn->count != 2 ||
                turn->items[0].type != ARES_JSON_STRING || turn->items[1].type != ARES_JSON_STRING)
                return ares_fail(ARES_EFORMAT,
                                 "'history'[%lld] is not what Alpaca's rows have there: a list of "
                                 "a question and its answer",
                                 (long long)i);
            row_add_message(prompt, "user", turn->items[0].text, arena);
            row_add_message(prompt, "assistant", turn->items[1].text, arena);
        }
        row_add_message(prompt, "user", text, arena);
    }
    *out = with(row, key, prompt, taken, arena);
    return ARES_OK;
}

int ares_row_adopt(const ares_json *row, const char *key, bool prompt, ares_arena *arena,
                   const ares_json **out)
{
    const ares_json *v = ares_row_at(row, key);
    *out = row;
    if (is_there(v) && v->type == ARES_JSON_ARRAY && v->count && is_of_sharegpt(&v->items[0]))
        return adopt_sharegpt(row, key, v, arena, out);
    /* data.prompt_key=instruction asks for Alpaca; with another key that has a value it is not */
    bool alpaca = strcmp(key, "instruction") == 0 ? v && v->type == ARES_JSON_STRING
                                                  : !is_there(v) && ares_row_is_alpaca(row);
    return prompt && alpaca ? adopt_alpaca(row, key, arena, out) : ARES_OK;
}
