/*
 * What a path of rows stands for: a file, the files of a folder, a split of them, a slice. Splits
 * are told by the names that data sets on a hub have (train-00000-of-00001.parquet,
 * data/test.jsonl, validation/part.jsonl), with the words of the Python package `datasets`. Files
 * that name no split are of the split train.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "ares/core_file.h"
#include "dataset.h"

/* ------------------------------------------------------------------ slices and names */
/* The digits before `end`, back to the character after `stop`; NULL: there is something else. */
static const char *digits_back(const char *text, const char *end, char stop)
{
    while (end > text && end[-1] >= '0' && end[-1] <= '9') end--;
    return end > text && end[-1] == stop ? end : NULL;
}

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

bool path_ends(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
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
    for (size_t i = 0; i < part.len;) {
        size_t n = 0;
        while (i + n < part.len && isalpha((unsigned char)part.data[i + n])) n++;
        ares_view split = split_called((ares_view){ part.data + i, n });
        if (split.data != part.data + i) found = split;
        i += n ? n : 1;
    }
    return found;
}

/* Of a file in a folder, by its path from there: its own name counts before the folders'. */
static ares_view split_of(const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
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
        if (path_ends(name, ends[i])) return true;
    return false;
}

typedef struct listing {
    char **names; /* [n] from the folder on */
    int n;
} listing;

enum { DEEPEST = 8 };
static void list_folder(const char *folder, const char *inside, int depth, listing *out)
{
    ares_str path = { 0 }, name = { 0 };
    DIR *dir = opendir(*inside ? ares_path_join(&path, folder, inside) : folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
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

/* The different splits of the files, "test, train"; *named: whether any file names one. */
static int64_t splits_of(const listing *l, ares_str *out, bool *named)
{
    int64_t n = 0;
    *named = false;
    for (int i = 0; i < l->n; i++) {
        ares_view split = split_of(l->names[i]);
        bool first = split.len > 0;
        for (int k = 0; k < i && first; k++) first = !ares_view_eq(split_of(l->names[k]), split);
        if (!first) continue;
        *named = true;
        ares_str_add_z(out, n++ ? ", " : "");
        ares_str_add_view(out, split);
    }
    return n;
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

/* The files of a folder, by name. split NULL: all of them, which may not be of several splits. */
static int each_of_folder(const char *path, const char *split, path_file *f, void *ctx)
{
    ares_str file = { 0 }, splits = { 0 };
    listing l = { 0 };
    bool named, top = false;
    int rc = ARES_OK, read = 0;
    list_folder(path, "", 0, &l);
    if (l.n) qsort(l.names, (size_t)l.n, sizeof *l.names, by_name);
    for (int i = 0; i < l.n; i++) top = top || !strchr(l.names[i], '/');
    int64_t n = splits_of(&l, &splits, &named);
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
    else if (!split && n > 1)
        rc = ares_fail(ARES_ECONFIG,
                       "data: %s: the folder has several splits (%s); name one: %s@%.*s", path,
                       splits.data, path, (int)strcspn(one, ","), one);
    for (int i = 0; i < l.n && rc == ARES_OK; i++) {
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
/* A folder or file of the name before `cut`, and a split; *rc where there is one. */
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

int path_each(const char *path, path_file *f, void *ctx)
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
