/* A data set: first which files and rows a path names, then reading and checking its rows. */
#include "internal.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "ares/core.h"

/*
 * What a path of rows stands for: a file, the files of a folder, a split of them, a slice. Splits
 * are told by the names that data sets on a hub have (train-00000-of-00001.parquet,
 * data/test.jsonl, validation/part.jsonl), with the words of the Python package `datasets`. Files
 * that name no split are of the split train.
 */

/* ------------------------------------------------------------------ slices and names */
/* The digits before `end`, back to the character after `stop`; NULL: there is something else. */
static const char *digits_back(const char *text, const char *end, char stop)
{
    while (end > text && end[-1] >= '0' && end[-1] <= '9') end--;
    return end > text && end[-1] == stop ? end : NULL;
}

/* "a.jsonl@[5:10]" -> 5, 10 and the length of "a.jsonl"; "a.jsonl@[:10]" has no first. */
path_rows path_slice(const char *path, size_t *length)
{
    const char *end = path + strlen(path), *last, *first;
    path_rows none = { 0 }, s = { 0 };
    *length = (size_t)(end - path);
    if (end == path || end[-1] != ']') return none;
    if (!(last = digits_back(path, end - 1, ':'))) return none;
    if (!(first = digits_back(path, last - 1, '['))) return none;
    if (first - path < 2 || first[-2] != '@') return none;
    if ((s.has_first = first < last - 1)) s.first = strtoll(first, NULL, 10);
    if ((s.has_end = last < end - 1)) s.end = strtoll(last, NULL, 10);
    *length = (size_t)(first - path) - 2;
    return s;
}

/* "data/math.train.jsonl.gz@[:100]" -> "math.train" */
ares_view path_name(const char *path)
{
    size_t length;
    (void)path_slice(path, &length);
    while (length > 1 && path[length - 1] == '/') length--;
    size_t at = length;
    while (at && path[at - 1] != '/') at--;
    ares_view name = { path + at, length - at };
    if (name.len > 3 && !memcmp(name.data + name.len - 3, ".gz", 3)) name.len -= 3;
    if (name.len > 4 && !memcmp(name.data + name.len - 4, ".zst", 4)) name.len -= 4;
    for (size_t i = name.len; i > 1; i--)
        if (name.data[i - 1] == '.') return (ares_view){ name.data, i - 1 };
    return name;
}

/* ------------------------------------------------------------------ splits */
static const struct {
    const char *word, *split;
} words[] = {
    { "train", "train" },      { "training", "train" }, { "validation", "validation" },
    { "valid", "validation" }, { "val", "validation" }, { "dev", "validation" },
    { "test", "test" },        { "testing", "test" },   { "eval", "test" },
    { "evaluation", "test" },
};

/* The split that a word of the list stands for, or the word itself. */
static ares_view split_called(ares_view name)
{
    for (int i = 0; i < ARES_COUNT(words); i++)
        if (ares_view_is(name, words[i].word)) return ares_view_of(words[i].split);
    return name;
}

/* The length of "-00000-of-00001" at the text's beginning; 0: there is none. */
static size_t shard_number(const char *s)
{
    size_t a = strspn(s + (*s == '-'), "0123456789");
    if (*s != '-' || a < 5 || strncmp(s + 1 + a, "-of-", 4) != 0) return 0;
    size_t b = strspn(s + 5 + a, "0123456789");
    return b < 5 ? 0 : 5 + a + b;
}

/* The split that a part of a path names, the last one that it names; len 0: none. */
static ares_view split_in(ares_view part)
{
    ares_view found = { NULL, 0 };
    /* words are runs of letters: "my_test-v2" -> my, test, v */
    for (size_t i = 0; i < part.len;) {
        size_t n = 0;
        while (i + n < part.len && isalpha((unsigned char)part.data[i + n])) n++;
        ares_view split = split_called((ares_view){ part.data + i, n });
        if (split.data != part.data + i) found = split;
        i += n ? n : 1;
    }
    return found;
}

/* The split of a file, by its path from the searched folder on: its own name before folders'. */
static ares_view split_of(const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    /* "train-00000-of-00003.parquet" -> "train"; a split with any name may have shards */
    for (const char *p = name; (p = strchr(p, '-')); p++)
        if (p > name && shard_number(p))
            return split_called((ares_view){ name, (size_t)(p - name) });
    ares_view split = split_in(ares_view_of(name));
    while (!split.len && slash) {
        const char *end = slash;
        while (slash > file && slash[-1] != '/') slash--;
        split = split_in((ares_view){ slash, (size_t)(end - slash) });
        slash = slash > file ? slash - 1 : NULL;
    }
    return split;
}

/* ------------------------------------------------------------------ folders */
/* Files of rows that a folder is searched for. */
static bool has_rows_name(const char *name)
{
    static const char *const ends[] = { ".jsonl", ".json", ".jsonl.gz", ".jsonl.zst", ".parquet" },
                             *const about[] = { "config.json", "dataset_info.json",
                                                "dataset_infos.json", "dataset_dict.json" };
    for (int i = 0; i < ARES_COUNT(about); i++)
        if (strcmp(name, about[i]) == 0) return false;
    for (int i = 0; i < ARES_COUNT(ends); i++)
        if (ares_ends_with(name, ends[i])) return true;
    return false;
}

typedef struct listing {
    char **names; /* [n] from the folder on */
    int n;
} listing;

enum { DEEPEST = 8 }; /* links may make a circle */
/* Adds the files of folder/inside. What cannot be opened has none. */
static void list_folder(const char *folder, const char *inside, int depth, listing *out)
{
    ares_str path = { 0 }, name = { 0 };
    DIR *dir = opendir(*inside ? ares_path_join(&path, folder, inside) : folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        /* hidden files, and .cache of downloads */
        if (e->d_name[0] == '.') continue;
        ares_str_clear(&name);
        ares_str_addf(&name, "%s%s%s", inside, *inside ? "/" : "", e->d_name);
        bool is_folder = ares_dir_exists(ares_path_join(&path, folder, name.data));
        if (is_folder && depth < DEEPEST) list_folder(folder, name.data, depth + 1, out);
        if (is_folder || !has_rows_name(e->d_name)) continue;
        out->names = ares_realloc(out->names, (size_t)(out->n + 1) * sizeof *out->names);
        out->names[out->n++] = ares_strdup(name.data);
    }
    if (dir) closedir(dir);
    ares_str_fini(&path);
    ares_str_fini(&name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether a data set's card names several configurations, each in a folder of its own. */
static bool has_configurations(const char *folder)
{
    static const ares_view key = { "config_name:", 12 };
    ares_str path = { 0 }, text = { 0 };
    ares_path_join(&path, folder, "README.md");
    bool several = false;
    if (ares_file_exists(path.data) && ares_file_read(path.data, &text) == ARES_OK) {
        ares_view card = ares_str_view(&text);
        int64_t end = ares_view_find(card, ARES_VIEW("\n---"), 3), at;
        /* only the YAML header, between lines of "---", counts */
        card.len = card.len > 3 && !memcmp(card.data, "---", 3) && end > 0 ? (size_t)end : 0;
        several = (at = ares_view_find(card, key, 0)) >= 0 &&
                  ares_view_find(card, key, (size_t)at + key.len) >= 0;
    }
    ares_error_clear();
    ares_str_fini(&path);
    ares_str_fini(&text);
    return several;
}

static bool has_split(const char *folder, const char *split)
{
    listing l = { 0 };
    bool has = false;
    list_folder(folder, "", 0, &l);
    for (int i = 0; i < l.n; i++) {
        has = has || ares_view_eq(split_of(l.names[i]), split_called(ares_view_of(split)));
        ares_free(l.names[i]);
    }
    ares_free(l.names);
    return has;
}

/* Calls f for each file of a path without a slice, in order. */
typedef int path_file(void *ctx, const char *file);

/* The files of a folder, by name. split NULL: all of them, which may not be of several splits. */
static int each_of_folder(const char *path, const char *split, path_file *f, void *ctx)
{
    ares_str file = { 0 }, splits = { 0 };
    listing l = { 0 };
    bool named = false, top = false; /* whether a file names a split, or lies in no folder within */
    int64_t n = 0;                   /* different splits, listed as in "test, train" */
    int rc = ARES_OK, read = 0;
    list_folder(path, "", 0, &l);
    if (l.n) qsort(l.names, (size_t)l.n, sizeof *l.names, by_name);
    for (int i = 0; i < l.n; i++) top = top || !strchr(l.names[i], '/');
    for (int i = 0; i < l.n; i++) {
        ares_view own = split_of(l.names[i]);
        bool first = own.len > 0;
        for (int k = 0; k < i && first; k++) first = !ares_view_eq(split_of(l.names[k]), own);
        if (!first) continue;
        named = true;
        ares_str_add_z(&splits, n++ ? ", " : "");
        ares_str_add_view(&splits, own);
    }
    /* what an error offers as an example: train where there is one */
    const char *train = n > 1 ? strstr(splits.data, "train") : NULL,
               *one = train ? train : splits.data;
    if (!l.n)
        rc = ares_fail(ARES_EIO,
                       "data: %s: the folder has no file of rows (*.jsonl, *.json, *.jsonl.gz, "
                       "*.jsonl.zst, *.parquet)",
                       path);
    else if (!top && has_configurations(path))
        rc = ares_fail(ARES_ECONFIG,
                       "data: %s: the data set has several configurations, each in a folder; name "
                       "one of them, as in %s/%.*s",
                       path, path, (int)strcspn(l.names[0], "/"), l.names[0]);
    /* training on a test split by mistake is worse than having to name one */
    else if (!split && n > 1)
        rc = ares_fail(ARES_ECONFIG,
                       "data: %s: the folder has several splits (%s); name one: %s@%.*s", path,
                       splits.data, path, (int)strcspn(one, ","), one);
    for (int i = 0; i < l.n && rc == ARES_OK; i++) {
        /* in a folder where no file names a split, all of them are train */
        ares_view own = named ? split_of(l.names[i]) : ARES_VIEW("train");
        if (split && !ares_view_eq(own, split_called(ares_view_of(split)))) continue;
        read++;
        rc = f(ctx, ares_path_join(&file, path, l.names[i]));
    }
    if (rc == ARES_OK && !read)
        rc = ares_fail(ARES_ECONFIG, "data: %s: the folder has no split '%s' (splits: %s)", path,
                       split, named ? splits.data : "train");
    for (int i = 0; i < l.n; i++) ares_free(l.names[i]);
    ares_free(l.names);
    ares_str_fini(&file);
    ares_str_fini(&splits);
    return rc;
}

/* ------------------------------------------------------------------ paths */
/*
 * Reads a path as NAME@SPLIT or NAME/SPLIT, divided at `cut`. false: there is no such file or
 * folder, or no such split in a folder named without @. *rc: of the reading, else not written.
 */
static bool each_of_split(const char *path, const char *cut, path_file *f, void *ctx, int *rc)
{
    char *name = ares_strdup(path);
    const char *split = cut + 1;
    name[cut - path] = 0;
    bool folder = ares_dir_exists(name) && (*cut == '@' || has_split(name, split)),
         there = folder || (*cut == '@' && ares_file_exists(name));
    if (there && *split == '[')
        *rc = ares_fail(ARES_ECONFIG,
                        "data: %s: a slice is @[a:b] with numbers from 0 on, either of which may "
                        "be left out",
                        path);
    else if (folder) *rc = each_of_folder(name, split, f, ctx);
    else if (there) {
        ares_view own = split_of(strrchr(name, '/') ? strrchr(name, '/') + 1 : name);
        if (strcmp(split, "train") == 0 || ares_view_eq(own, split_called(ares_view_of(split))))
            *rc = f(ctx, name);
        else
            *rc = ares_fail(ARES_ECONFIG,
                            "data: %s: a file has one split, train or the one that its name says; "
                            "name the file that holds '%s'",
                            path, split);
    }
    ares_free(name);
    return there;
}

/* Calls f for each file that a path without a slice means. */
static int path_each(const char *path, path_file *f, void *ctx)
{
    if (!strcmp(path, "-"))
        return ares_fail(ARES_ECONFIG,
                         "data: '-': a data set cannot be read from stdin; name a file");
    if (ares_dir_exists(path)) return each_of_folder(path, NULL, f, ctx);
    if (ares_file_exists(path)) return f(ctx, path);
    /* EasyR1 writes path@split, and some write folder/split */
    const char *at = strrchr(path, '@'), *slash = strrchr(path, '/');
    int rc;
    if (at && each_of_split(path, at, f, ctx, &rc)) return rc;
    if (slash && slash > path && slash[1] && !has_rows_name(path) &&
        each_of_split(path, slash, f, ctx, &rc))
        return rc;
    bool hub = slash && slash == strchr(path, '/') && !strchr("./", path[0]);
    return ares_fail(ARES_EIO, "data: %s: no such file%s", path,
                     hub && !has_rows_name(path)
                         ? "; if it is a name on a hub, download the rows first and name their "
                           "folder"
                         : "");
}

/*
 * Rows of JSON lines or Parquet, checked as they are read: an error names file and line. A file
 * with the ending .json may also be one list of rows.
 */

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

/* Reads the rows of one path. */
typedef struct reader {
    ares_dataset *d;
    const ares_data_config *cfg; /* NULL: the rows' keys are not checked */
    bool need_answer;
    const ares_row_file *from;
    int32_t part;
    path_rows slice;
    int64_t last;     /* no more rows are read once the data set has so many */
    int64_t seen;     /* rows of the path so far */
    int64_t other;    /* rows that have verl's answer beside another one */
    int64_t answered; /* rows whose conversation ended with an answer */
} reader;

/* Whether the slice leaves out row number `at` of the path, counted over all its files. */
static bool is_left_out(const path_rows *s, int64_t at)
{
    return (s->has_first && at < s->first) || (s->has_end && at >= s->end);
}

/* An object of a's members, without those that b has too, and then b's. */
static const ares_json *merged(ares_arena *arena, const ares_json *a, const ares_json *b)
{
    int64_t n = 0, of_a = a && a->type == ARES_JSON_OBJECT ? a->count : 0;
    ares_json_member *m = ares_arena_alloc(arena, (size_t)(of_a + b->count + 1) * sizeof *m);
    for (int64_t i = 0; i < of_a; i++)
        if (!ares_json_find(b, a->members[i].key)) m[n++] = a->members[i];
    for (int64_t i = 0; i < b->count; i++) m[n++] = b->members[i];
    ares_json *out = ares_arena_calloc(arena, 1, sizeof *out);
    *out = (ares_json){ .type = ARES_JSON_OBJECT, .members = m, .count = n };
    return out;
}

/*
 * Gives the row its metadata under the key "metadata", where all others look for it: from the key
 * that is configured, and with what its origin adds.
 */
static int with_metadata(const reader *r, const char *file, int64_t line, const ares_json **row)
{
    static const char usual[] = "metadata";
    static const ares_json none = { .type = ARES_JSON_OBJECT };
    const char *key = r->cfg && r->cfg->metadata_key ? r->cfg->metadata_key : usual;
    bool own_key = strcmp(key, usual) != 0;
    const ares_json *own = ares_row_at(*row, key), *added = r->from->metadata;
    if (!own_key && !added) return ARES_OK;
    if (!is_there(own)) own = NULL;
    if (own && own->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT,
                         "data: %s:%lld: '%s' is no map, and data.metadata_key says that it holds "
                         "the row's metadata; name another key",
                         file, (long long)line, key);
    ares_json_member m = { ares_view_of(usual), merged(&r->d->arena, own, added ? added : &none) };
    *row = merged(&r->d->arena, *row,
                  &(ares_json){ .type = ARES_JSON_OBJECT, .members = &m, .count = 1 });
    return ARES_OK;
}

/*
 * A row of preferences without a prompt, as TRL knows it: the prompt is what stands before the last
 * message of both answers.
 */
static void with_prompt(const reader *r, const ares_json **row)
{
    const ares_json *won = ares_json_get(*row, "chosen"), *lost = ares_json_get(*row, "rejected");
    if (!r->cfg || ares_row_at(*row, r->cfg->prompt_key)) return;
    if (!won || !lost || won->type != ARES_JSON_ARRAY || lost->type != ARES_JSON_ARRAY) return;
    if (won->count < 2 || lost->count < 2) return;
    ares_json *before = ares_arena_calloc(&r->d->arena, 1, sizeof *before);
    *before = *won;
    before->count--;
    ares_json_member m = { ares_view_of(r->cfg->prompt_key), before };
    *row = merged(&r->d->arena, *row,
                  &(ares_json){ .type = ARES_JSON_OBJECT, .members = &m, .count = 1 });
}

/*
 * Another program's row in our form. ShareGPT's conversations end with the answer to learn, which
 * is no part of a prompt.
 */
static int adopt(reader *r, const char *file, int64_t line, const ares_json **row)
{
    const char *const own[] = { r->cfg ? r->cfg->prompt_key : NULL, NULL };
    const char *const *keys = r->cfg ? own : r->from->keys;
    const ares_json *given = *row;
    for (; keys && *keys && *row == given; keys++) {
        int rc = ares_row_adopt(given, *keys, !keys[1], &r->d->arena, row);
        if (rc != ARES_OK) return ares_fail_in(rc, "data: %s:%lld", file, (long long)line);
        const ares_json *v = ares_row_at(*row, *keys);
        if (is_there(v)) break;
    }
    if (*row == given || !r->cfg) return ARES_OK;
    ares_json *list = (ares_json *)ares_json_get(*row, *own); /* made above */
    const ares_json *role =
        list->type == ARES_JSON_ARRAY ? ares_json_get(&list->items[list->count - 1], "role") : NULL;
    if (!role || !ares_view_is(role->text, "assistant")) return ARES_OK;
    list->count--;
    r->answered++;
    return ARES_OK;
}

/* Before a row is checked, its metadata get their usual key, and other programs' forms become ours.
 */
static int add_row(reader *r, const char *file, int64_t line, const ares_json *row)
{
    ares_dataset *d = r->d;
    const ares_data_config *cfg = r->cfg;
    if (is_left_out(&r->slice, r->seen++)) return ARES_OK;
    if (row->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "data: %s:%lld: row is not a JSON object", file,
                         (long long)line);
    ARES_TRY(with_metadata(r, file, line, &row));
    with_prompt(r, &row);
    const ares_json *given = row;
    ARES_TRY(adopt(r, file, line, &row));
    if (cfg) ARES_TRY(row_check(cfg, file, line, row, given, r->need_answer));
    const ares_json *answer = cfg ? row_answer(cfg, given) : NULL,
                    *source = ares_json_get(row, "data_source");
    if (d->count == d->cap) {
        d->cap = d->cap * 2 + 256;
        d->rows = ares_realloc(d->rows, (size_t)d->cap * sizeof *d->rows);
    }
    d->rows[d->count] = (ares_row){
        .json = row,
        .file = file,
        .line = line,
        .id = d->count,
        .ground_truth = answer ? text_of(d, answer) : (ares_view){ "", 0 },
        .structured =
            answer && (answer->type == ARES_JSON_ARRAY || answer->type == ARES_JSON_OBJECT),
        .part = r->part,
        .data_source = r->from->source ? r->from->source
                       : source && source->type == ARES_JSON_STRING
                           ? ares_arena_copy(&d->arena, source->text.data, source->text.len)
                           : file
    };
    ares_row *added = &d->rows[d->count];
    const ares_json *id = ares_json_get(row, "global_id");
    added->gid_given = is_there(id);
    if (!added->gid_given) /* a name by place, the same in every run over these files */
        added->gid = ares_arena_printf(&d->arena, "example-%06lld", (long long)d->count);
    else if (id->type != ARES_JSON_STRING && id->type != ARES_JSON_INT &&
             id->type != ARES_JSON_FLOAT)
        return ares_fail(ARES_EFORMAT,
                         "data: %s:%lld: 'global_id' is neither a string nor a number", file,
                         (long long)line);
    else if (memchr(id->text.data, 0, id->text.len) || !id->text.len)
        return ares_fail(ARES_EFORMAT, "data: %s:%lld: 'global_id' is empty or holds a NUL", file,
                         (long long)line);
    else added->gid = ares_arena_copy(&d->arena, id->text.data, id->text.len);
    const ares_json *verls = answer ? ares_row_at(row, ROW_VERL_ANSWER) : NULL;
    r->other += verls && verls != answer && strcmp(cfg->answer_key, "answer") == 0 &&
                !ares_view_eq(text_of(d, verls), added->ground_truth);
    d->count++;
    return ARES_OK;
}

/* A path_file: reads the rows of one file. */
static int read_rows(void *ctx, const char *path)
{
    reader *r = ctx;
    ares_dataset *d = r->d;
    ares_jsonl *lines;
    const ares_json *row;
    int64_t line, before = r->seen;
    const char *file = ares_arena_copy(&d->arena, path, strlen(path));
    if (d->count >= r->last || (r->slice.has_end && r->seen >= r->slice.end)) return ARES_OK;
    int rc = ARES_OK;
    if (ares_ends_with(path,
                       ".json")) { /* may be one list; a row's place in it stands for its line */
        const ares_json *list = NULL;
        ares_str text = { 0 };
        rc = ares_file_read(path, &text);
        size_t at = rc == ARES_OK && text.len ? strspn(text.data, " \t\r\n") : 0;
        if (rc == ARES_OK && at < text.len && text.data[at] == '[') {
            ares_view kept = { ares_arena_copy(&d->arena, text.data, text.len), text.len };
            rc = ares_json_parse(&d->arena, kept, file, &list);
        }
        ares_str_fini(&text);
        for (int64_t i = 0; rc == ARES_OK && list && i < list->count; i++)
            rc = add_row(r, file, i + 1, &list->items[i]);
        if (rc == ARES_OK && list && !list->count)
            rc = ares_fail(ARES_EFORMAT, "data: %s: no rows", file);
        if (rc != ARES_OK || list) return rc;
    }
    ARES_TRY(ares_jsonl_open(path, &lines));
    while ((rc = ares_jsonl_next(lines, &row, &line)) > 0) {
        if (is_left_out(&r->slice, r->seen)) {
            r->seen++;
            continue;
        }
        /* the reader's row lives until the next call, so the line is parsed into our own arena */
        ares_view raw = ares_jsonl_line(lines);
        rc = ares_json_parse(&d->arena, raw, path, &row);
        if (rc == ARES_OK) rc = add_row(r, file, line, row);
        if (rc != ARES_OK || d->count >= r->last || (r->slice.has_end && r->seen >= r->slice.end))
            break;
    }
    ares_jsonl_close(lines);
    if (rc == ARES_OK && r->seen == before) rc = ares_fail(ARES_EFORMAT, "data: %s: no rows", path);
    return rc;
}

static int read_file(ares_dataset *d, const ares_row_file *file, int32_t part,
                     const ares_data_config *cfg, bool need_answer)
{
    size_t length;
    int64_t before = d->count;
    reader r = { .d = d, .cfg = cfg, .need_answer = need_answer, .part = part };
    ares_row_file own = *file; /* of the data set's life */
    if (own.source) own.source = ares_arena_copy(&d->arena, own.source, strlen(own.source));
    r.from = &own;
    /* the limit is per path, the count is of the whole data set */
    r.last = file->limit ? before + file->limit : INT64_MAX;
    r.slice = path_slice(file->path, &length);
    const char *path = ares_arena_copy(&d->arena, file->path, length);
    ARES_TRY(path_each(path, read_rows, &r));
    if (r.other)
        ares_warn("data: %s: %lld rows have an 'answer' that is not their '" ROW_VERL_ANSWER
                  "'; the first is read; for the other set data.answer_key=" ROW_VERL_ANSWER,
                  file->path, (long long)r.other);
    if (r.answered)
        ares_info("data: %s: %lld conversations end with an answer, which is not part of the "
                  "prompt (as a ground truth: data.answer_key=%s[-1].value)",
                  file->path, (long long)r.answered, cfg->prompt_key);
    if (d->count > before) return ARES_OK;
    return ares_fail(ARES_EFORMAT, "data: %s: no rows there; the file has %lld", file->path,
                     (long long)r.seen);
}

int ares_dataset_load_files(const ares_row_file *files, int64_t n, const ares_data_config *cfg,
                            bool need_answer, ares_dataset **out)
{
    *out = NULL;
    ares_dataset *d = ares_calloc(1, sizeof *d);
    int rc = n ? ARES_OK : ares_fail(ARES_ECONFIG, "data: no file of rows is given");
    for (int64_t i = 0; i < n && rc == ARES_OK; i++)
        rc = read_file(d, &files[i], (int32_t)i, cfg, need_answer);
    if (rc != ARES_OK) {
        ares_dataset_free(d);
        return rc;
    }
    *out = d;
    return ARES_OK;
}

static int load(const ares_texts *files, const ares_data_config *cfg, const char *const *keys,
                bool need_answer, ares_dataset **out)
{
    ares_row_file *list = ares_calloc((size_t)files->count + 1, sizeof *list);
    for (int64_t i = 0; i < files->count; i++)
        list[i] = (ares_row_file){ .path = files->items[i], .keys = keys };
    int rc = ares_dataset_load_files(list, files->count, cfg, need_answer, out);
    ares_free(list);
    return rc;
}

int dataset_load(const ares_texts *files, const ares_data_config *cfg, bool need_answer,
                 ares_dataset **out)
{
    return load(files, cfg, NULL, need_answer, out);
}

/* A path_file: mixes a file's name and bytes into the hash. Folders do not count: data may move. */
static int add_file(void *ctx, const char *path)
{
    uint64_t *h = ctx;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    *h = ares_fnv1a(*h, name, strlen(name) + 1);
    return ares_file_hash(path, h);
}

int ares_rows_fingerprint(const char *path, uint64_t *out)
{
    size_t length;
    (void)path_slice(path, &length);
    char *whole = ares_strdup(path);
    whole[length] = 0;
    *out = ARES_FNV1A;
    int rc = path_each(whole, add_file, out);
    ares_free(whole);
    return rc;
}

int ares_dataset_load_rows(const ares_texts *files, const char *const *keys, ares_dataset **out)
{
    return load(files, NULL, keys, false, out);
}

/* Arenas that already exist stay: rows point into them. */
ares_arena *ares_dataset_arenas(ares_dataset *d, const ares_pool *pool)
{
    int n = ares_pool_threads(pool);
    if (n > d->n_workers)
        d->of_worker = ares_realloc(d->of_worker, (size_t)n * sizeof *d->of_worker);
    while (d->n_workers < n) d->of_worker[d->n_workers++] = (ares_arena){ 0 };
    return d->of_worker;
}

void ares_dataset_free(ares_dataset *d)
{
    if (!d) return;
    for (int i = 0; i < d->n_workers; i++) ares_arena_fini(&d->of_worker[i]);
    ares_free(d->of_worker);
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

/* Ids are places in the list, so the rows that stay get new ones. */
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
