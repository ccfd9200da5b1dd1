/*
 * Rows of JSON lines, checked as they are read: an error names file and line. A file named *.json
 * may also be one list of rows.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

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

/* Strings as they are, anything else as JSON. */
static ares_view text_of(ares_dataset *d, const ares_json *v)
{
    if (v->type == ARES_JSON_STRING) return v->text;
    ares_str s = { 0 };
    ares_json_write(&s, v);
    ares_view out = { ares_arena_copy(&d->arena, s.data, s.len), s.len };
    ares_str_fini(&s);
    return out;
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
static const ares_json *answer_of(const ares_data_config *cfg, const ares_json *row)
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
    if (answer_of(cfg, row) || has(row, "instruction_id_list") || has(row, "checkers"))
        return ARES_OK;
    if (has(row, "functions"))
        return ares_fail(ARES_EFORMAT,
                         "data: %s:%lld: the row has 'functions' in Python, which is not run, and "
                         "neither 'checkers' nor '%s'; give it checkers: [{\"id\": \"..\", "
                         "\"kwargs\": {..}}], or set data.answer_key",
                         file, (long long)line, cfg->answer_key);
    return missing_key(file, line, "data.answer_key", cfg->answer_key, row);
}

static int check_media(const char *file, int64_t line, const char *key, const ares_json *row)
{
    const ares_json *v = key ? ares_json_get(row, key) : NULL;
    if (!v || v->type == ARES_JSON_NULL || (v->type == ARES_JSON_ARRAY && !v->count))
        return ARES_OK;
    return ares_fail(
        ARES_EUNSUPPORTED,
        "data: %s:%lld: '%s' holds images or videos, and models read only text so far; "
        "leave such rows out",
        file, (long long)line, key);
}

static int check_row(const ares_data_config *cfg, const char *file, int64_t line,
                     const ares_json *row, bool need_answer)
{
    const ares_json *prompt = ares_json_get(row, cfg->prompt_key);
    if (!prompt) return missing_key(file, line, "data.prompt_key", cfg->prompt_key, row);
    if (prompt->type != ARES_JSON_STRING && prompt->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT,
                         "data: %s:%lld: '%s' is neither a string nor a list of messages", file,
                         (long long)line, cfg->prompt_key);
    if (prompt->type == ARES_JSON_ARRAY)
        ARES_TRY(check_messages(file, line, cfg->prompt_key, prompt));
    ARES_TRY(check_media(file, line, cfg->image_key, row));
    ARES_TRY(check_media(file, line, cfg->video_key, row));
    return need_answer ? check_answer(cfg, file, line, row) : ARES_OK;
}

/* JSON's null counts as no global_id. */
static int gid_of(ares_dataset *d, const char *file, int64_t line, const ares_json *row,
                  ares_row *out)
{
    const ares_json *id = ares_json_get(row, "global_id");
    out->gid_given = id && id->type != ARES_JSON_NULL;
    if (!out->gid_given) {
        out->gid = ares_arena_printf(&d->arena, "example-%06lld", (long long)d->count);
        return ARES_OK;
    }
    if (id->type != ARES_JSON_STRING && id->type != ARES_JSON_INT && id->type != ARES_JSON_FLOAT)
        return ares_fail(ARES_EFORMAT,
                         "data: %s:%lld: 'global_id' is neither a string nor a number", file,
                         (long long)line);
    if (memchr(id->text.data, 0, id->text.len) || !id->text.len)
        return ares_fail(ARES_EFORMAT, "data: %s:%lld: 'global_id' is empty or holds a NUL", file,
                         (long long)line);
    out->gid = ares_arena_copy(&d->arena, id->text.data, id->text.len);
    return ARES_OK;
}

/* cfg NULL: the row's keys are not checked. */
static int add_row(ares_dataset *d, const ares_data_config *cfg, const char *file, int64_t line,
                   const ares_json *row, bool need_answer)
{
    if (row->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "data: %s:%lld: row is not a JSON object", file,
                         (long long)line);
    if (cfg) ARES_TRY(check_row(cfg, file, line, row, need_answer));
    const ares_json *answer = cfg ? answer_of(cfg, row) : NULL,
                    *source = ares_json_get(row, "data_source");
    if (d->count == d->cap) {
        d->cap = d->cap * 2 + 256;
        d->rows = ares_realloc(d->rows, (size_t)d->cap * sizeof *d->rows);
    }
    d->rows[d->count] =
        (ares_row){ .json = row,
                    .file = file,
                    .line = line,
                    .id = d->count,
                    .ground_truth = answer ? text_of(d, answer) : (ares_view){ "", 0 },
                    .data_source =
                        source && source->type == ARES_JSON_STRING
                            ? ares_arena_copy(&d->arena, source->text.data, source->text.len)
                            : file };
    ARES_TRY(gid_of(d, file, line, row, &d->rows[d->count]));
    d->count++;
    return ARES_OK;
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

/* A file that is one list of rows; a row's place in it, from 1, stands for its line. */
static int read_list(ares_dataset *d, const ares_data_config *cfg, const char *file, ares_view text,
                     bool need_answer)
{
    const ares_json *list;
    ARES_TRY(ares_json_parse(&d->arena, text, file, &list));
    for (int64_t i = 0; i < list->count; i++)
        ARES_TRY(add_row(d, cfg, file, i + 1, &list->items[i], need_answer));
    return list->count ? ARES_OK : ares_fail(ARES_EFORMAT, "data: %s: no rows", file);
}

/* *list: the text of a file that is one list; empty for JSON lines. */
static int look_for_list(ares_dataset *d, const char *path, ares_view *list)
{
    ares_str text = { 0 };
    *list = (ares_view){ NULL, 0 };
    if (!ends_with(path, ".json")) return ARES_OK;
    int rc = ares_file_read(path, &text);
    size_t at = rc == ARES_OK && text.len ? strspn(text.data, " \t\r\n") : 0;
    if (rc == ARES_OK && at < text.len && text.data[at] == '[')
        *list = (ares_view){ ares_arena_copy(&d->arena, text.data, text.len), text.len };
    ares_str_fini(&text);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_path(ares_dataset *d, const ares_data_config *cfg, const char *path,
                     bool need_answer);

/* Every *.jsonl and *.json of a folder, by name. */
static int read_folder(ares_dataset *d, const ares_data_config *cfg, const char *path,
                       bool need_answer)
{
    ares_str file = { 0 };
    char **names = NULL;
    int n = 0, rc = ARES_OK;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.' ||
            (!ends_with(e->d_name, ".jsonl") && !ends_with(e->d_name, ".json")))
            continue;
        names = ares_realloc(names, (size_t)(n + 1) * sizeof *names);
        names[n++] = ares_strdup(e->d_name);
    }
    if (dir) closedir(dir);
    if (n) qsort(names, (size_t)n, sizeof *names, by_name);
    else
        rc = ares_fail(ARES_EIO, "data: %s: the folder has neither a *.jsonl nor a *.json file",
                       path);
    for (int i = 0; i < n; i++) {
        if (rc == ARES_OK)
            rc = read_path(d, cfg, ares_path_join(&file, path, names[i]), need_answer);
        ares_free(names[i]);
    }
    ares_free(names);
    ares_str_fini(&file);
    return rc;
}

/*
 * A path that does not exist. EasyR1 writes path@split: a local file has one split, train. A path
 * with one slash may be the name of a data set on a hub.
 */
static int read_split(ares_dataset *d, const ares_data_config *cfg, const char *path,
                      bool need_answer)
{
    const char *at = strrchr(path, '@');
    char *name = ares_strdup(path);
    if (at) name[at - path] = 0;
    bool there = at && (ares_file_exists(name) || ares_dir_exists(name)),
         one_slash =
             strchr(path, '/') && strchr(path, '/') == strrchr(path, '/') && !strchr("./", path[0]);
    int rc;
    if (there && strcmp(at, "@train") == 0) rc = read_path(d, cfg, name, need_answer);
    else if (there)
        rc = ares_fail(ARES_ECONFIG,
                       "data: %s: a local file has one split, train; name the file that holds '%s'",
                       path, at + 1);
    else if (one_slash && !ends_with(path, ".jsonl") && !ends_with(path, ".json"))
        rc = ares_fail(ARES_EIO,
                       "data: %s: no such file; if it is a name on a hub, download the rows as "
                       "JSON lines first and name that file",
                       path);
    else rc = ares_fail(ARES_EIO, "data: %s: no such file", path);
    ares_free(name);
    return rc;
}

static int read_path(ares_dataset *d, const ares_data_config *cfg, const char *path,
                     bool need_answer)
{
    ares_jsonl *reader;
    const ares_json *row;
    int64_t line, before = d->count;
    const char *file = ares_arena_copy(&d->arena, path, strlen(path));
    ares_view list;
    if (!strcmp(path, "-"))
        return ares_fail(ARES_ECONFIG,
                         "data: '-': a data set cannot be read from stdin; name a file");
    if (ares_dir_exists(path)) return read_folder(d, cfg, path, need_answer);
    if (!ares_file_exists(path)) return read_split(d, cfg, path, need_answer);
    ARES_TRY(look_for_list(d, path, &list));
    if (list.len) return read_list(d, cfg, file, list, need_answer);
    ARES_TRY(ares_jsonl_open(path, &reader));
    int rc;
    while ((rc = ares_jsonl_next(reader, &row, &line)) > 0) {
        /* the reader's row lives until the next call, so the line is parsed into our own arena */
        ares_view raw = ares_jsonl_line(reader);
        rc = ares_json_parse(&d->arena, raw, path, &row);
        if (rc == ARES_OK) rc = add_row(d, cfg, file, line, row, need_answer);
        if (rc != ARES_OK) break;
    }
    ares_jsonl_close(reader);
    if (rc == ARES_OK && d->count == before)
        rc = ares_fail(ARES_EFORMAT, "data: %s: no rows", path);
    return rc;
}

int ares_dataset_load(const ares_texts *files, const ares_data_config *cfg, bool need_answer,
                      ares_dataset **out)
{
    *out = NULL;
    ares_dataset *d = ares_calloc(1, sizeof *d);
    int rc = ARES_OK;
    for (int64_t i = 0; i < files->count && rc == ARES_OK; i++)
        rc = read_path(d, cfg, files->items[i], need_answer);
    if (files->count == 0) rc = ares_fail(ARES_ECONFIG, "data: no file of rows is given");
    if (rc != ARES_OK) {
        ares_dataset_free(d);
        return rc;
    }
    *out = d;
    return ARES_OK;
}

int ares_dataset_load_rows(const ares_texts *files, ares_dataset **out)
{
    return ares_dataset_load(files, NULL, false, out);
}

void ares_dataset_free(ares_dataset *d)
{
    if (!d) return;
    ares_free(d->rows);
    ares_arena_fini(&d->arena);
    ares_free(d);
}

int64_t ares_dataset_count(const ares_dataset *d)
{
    return d->count;
}
const ares_row *ares_dataset_row(const ares_dataset *d, int64_t i)
{
    return &d->rows[i];
}

void ares_dataset_keep(ares_dataset *d, const bool *keep)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < d->count; i++) {
        if (!keep[i]) continue;
        d->rows[kept] = d->rows[i];
        d->rows[kept].id = kept;
        kept++;
    }
    d->count = kept;
}

ARES_OPTION_TABLE(ares_data_options, ares_data_config, ARES_DATA_OPTIONS);
