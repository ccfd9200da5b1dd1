/* What a row must have. A fault names its file and line, and the option that names the key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

const ares_json *ares_row_at(const ares_json *row, const char *path)
{
    const ares_json *v = ares_json_get(row, path);
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
            if (i < 0) i += v->count;
            v = i >= 0 && i < v->count ? &v->items[i] : NULL;
            p = end + 1;
        }
        if (*p == '.' && !*++p) return NULL;
    }
    return v;
}

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
    snprintf(of_null, sizeof of_null, "a value there, or %s", option);
    if (null) option = of_null;
    return ares_fail_in(ares_row_lacks(row, what, option), "data: %s:%lld", file, (long long)line);
}

int row_check_messages(const ares_json *messages, const char *key)
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

/* NULL: the row has no answer; JSON's null counts as none. */
const ares_json *row_answer(const ares_data_config *cfg, const ares_json *row)
{
    const ares_json *v = cfg->answer_key ? ares_row_at(row, cfg->answer_key) : NULL;
    if (cfg->answer_key && (!v || v->type == ARES_JSON_NULL) &&
        strcmp(cfg->answer_key, "answer") == 0)
        v = ares_row_at(row, ROW_VERL_ANSWER);
    return v && v->type != ARES_JSON_NULL ? v : NULL;
}

/* Whether the row or its "metadata" has the key with a value other than null. */
static bool has(const ares_json *row, const char *key)
{
    const ares_json *v = ares_json_get(row, key),
                    *inner = ares_json_get(ares_json_get(row, "metadata"), key);
    return (v && v->type != ARES_JSON_NULL) || (inner && inner->type != ARES_JSON_NULL);
}

/* A row needs an answer, unless it names instructions that the response must follow. */
static int check_answer(const ares_data_config *cfg, const char *file, int64_t line,
                        const ares_json *row)
{
    if (row_answer(cfg, row) || has(row, "instruction_id_list") || has(row, "checkers"))
        return ARES_OK;
    if (has(row, "functions"))
        return ares_fail(ARES_EFORMAT,
                         "data: %s:%lld: the row has 'functions' in Python, which is not run, and "
                         "neither 'checkers' nor '%s'; give it checkers: [{\"id\": \"..\", "
                         "\"kwargs\": {..}}], or set data.answer_key",
                         file, (long long)line, cfg->answer_key);
    const char *key = cfg->answer_key;
    if (strcmp(key, "answer") == 0 && !ares_row_at(row, key) && ares_row_at(row, ROW_VERL_ANSWER))
        key = ROW_VERL_ANSWER;
    return missing_key(file, line, "data.answer_key", key, row);
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
    return need_answer ? check_answer(cfg, file, line, given) : ARES_OK;
}
