/* What a row must have. A fault names its file and line, and the option that names the key. */

#include "dataset.h"

/* option: the one that names the key. */
static int missing_key(const char *file, int64_t line, const char *option, const char *key,
                       const ares_json *row)
{
    ares_str keys = { 0 };
    for (int64_t i = 0; i < row->count && i < 12; i++) {
        if (i) ares_str_add_z(&keys, ", ");
        ares_str_add_view(&keys, row->members[i].key);
    }
    int rc = ares_fail(ARES_EFORMAT, "data: %s:%lld: row has no key '%s' (keys: %s); set %s", file,
                       (long long)line, key, keys.len ? keys.data : "none", option);
    ares_str_fini(&keys);
    return rc;
}

static int check_messages(const char *file, int64_t line, const char *key,
                          const ares_json *messages)
{
    for (int64_t i = 0; i < messages->count; i++) {
        const ares_json *role = ares_json_get(&messages->items[i], "role");
        if (!role || role->type != ARES_JSON_STRING)
            return ares_fail(ARES_EFORMAT,
                             "data: %s:%lld: '%s'[%lld] is not a message: it has no string 'role'",
                             file, (long long)line, key, (long long)i);
    }
    if (!messages->count)
        return ares_fail(ARES_EFORMAT, "data: %s:%lld: '%s' is an empty list of messages", file,
                         (long long)line, key);
    return ARES_OK;
}

/* NULL: the row has no answer; JSON's null counts as none. */
const ares_json *row_answer(const ares_data_config *cfg, const ares_json *row)
{
    const ares_json *v = ares_json_get(row, cfg->answer_key);
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
    return missing_key(file, line, "data.answer_key", cfg->answer_key, row);
}

int row_check(const ares_data_config *cfg, const char *file, int64_t line, const ares_json *row,
              bool need_answer)
{
    const ares_json *prompt = ares_json_get(row, cfg->prompt_key);
    if (!prompt) return missing_key(file, line, "data.prompt_key", cfg->prompt_key, row);
    if (prompt->type != ARES_JSON_STRING && prompt->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT,
                         "data: %s:%lld: '%s' is neither a string nor a list of messages", file,
                         (long long)line, cfg->prompt_key);
    if (prompt->type == ARES_JSON_ARRAY)
        ARES_TRY(check_messages(file, line, cfg->prompt_key, prompt));
    return need_answer ? check_answer(cfg, file, line, row) : ARES_OK;
}
