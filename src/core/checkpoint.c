/*
 * Checkpoint directories appear and disappear whole or not at all: each is written under a
 * temporary name, every file and folder in it is fsynced, and it is renamed; before its files are
 * removed it is renamed again. `latest` is a file that holds the name of the newest checkpoint; it
 * is replaced after that checkpoint is in place. At most one rolling_* is kept, and it does not
 * count among the step_*. What a crash leaves behind begins with ".tmp-" or "latest.tmp.".
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ares/io.h"
#include "internal.h"

/* of directories in the making; of `latest`, as ares_file_write_atomic names it while it writes */
static const char prefix[] = ".tmp-", prefix_of_latest[] = "latest.tmp.";

/* fsync of a file or folder. */
static int sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ares_fail(ARES_EIO, "io: %s: %s", path, strerror(errno));
    int rc =
        fsync(fd) == 0 ? ARES_OK : ares_fail(ARES_EIO, "io: %s: fsync: %s", path, strerror(errno));
    close(fd);
    return rc;
}

/* Every file below path, then path itself: names in a folder are durable only with the folder. */
static int sync_tree(const char *path)
{
    DIR *d = opendir(path);
    if (!d) return ares_fail(ARES_EIO, "io: %s: %s", path, strerror(errno));
    ares_str inner = { 0 };
    int rc = ARES_OK;
    for (struct dirent *e; rc == ARES_OK && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        ares_path_join(&inner, path, e->d_name);
        rc = ares_dir_exists(inner.data) ? sync_tree(inner.data) : sync_path(inner.data);
    }
    closedir(d);
    ares_str_fini(&inner);
    return rc == ARES_OK ? sync_path(path) : rc;
}

/* Calls fn for the name of every entry of dir. */
static int each(const char *dir, int (*fn)(void *ctx, const char *dir, const char *name), void *ctx)
{
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? ARES_OK : ares_fail(ARES_EIO, "io: %s: %s", dir, strerror(errno));
    int rc = ARES_OK;
    for (struct dirent *e; rc == ARES_OK && (e = readdir(d));) rc = fn(ctx, dir, e->d_name);
    closedir(d);
    return rc;
}

/* Removes an entry that a writer which was killed has left. */
static int remove_leftover(void *ctx, const char *dir, const char *name)
{
    (void)ctx;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 &&
        strncmp(name, prefix_of_latest, sizeof prefix_of_latest - 1) != 0)
        return ARES_OK;
    ares_str path = { 0 };
    int rc = ares_dir_remove(ares_path_join(&path, dir, name));
    ares_str_fini(&path);
    return rc;
}

int ares_checkpoint_begin(const char *dir, const char *name, bool lead, ares_str *temporary)
{
    char hidden[256];
    snprintf(hidden, sizeof hidden, "%s%s", prefix, name);
    ares_path_join(temporary, dir, hidden);
    if (!lead) return ARES_OK;
    ARES_TRY(ares_dir_make_durable(dir));
    ARES_TRY(each(dir, remove_leftover, NULL));
    return ares_dir_make(temporary->data);
}

/* Renames <dir>/<name> to a name that no checkpoint has. */
static int set_aside(const char *dir, const char *name, ares_str *hidden)
{
    ares_str path = { 0 };
    ares_path_join(&path, dir, name);
    ares_path_join(hidden, dir, prefix);
    ares_str_addf(hidden, "old-%s", name);
    int rc = ares_dir_remove(hidden->data);
    if (rc == ARES_OK && rename(path.data, hidden->data) != 0)
        rc = ares_fail(ARES_EIO, "io: %s: rename: %s", path.data, strerror(errno));
    ares_str_fini(&path);
    return rc;
}

/* Removes <dir>/<name>. It is renamed first, because removing its files may take long. */
static int discard(const char *dir, const char *name)
{
    ares_str hidden = { 0 };
    int rc = set_aside(dir, name, &hidden);
    if (rc == ARES_OK) rc = sync_path(dir);
    if (rc == ARES_OK) rc = ares_dir_remove(hidden.data);
    ares_str_fini(&hidden);
    return rc;
}

int ares_checkpoint_seal(const char *temporary)
{
    return sync_tree(temporary);
}

int ares_checkpoint_commit(const char *dir, const char *name, const char *temporary)
{
    ares_str path = { 0 }, hidden = { 0 };
    int rc = ARES_OK;
    /*
     * A directory that is there already is the same step, saved again after a resume: the two are
     * exchanged, or the old one is set aside where the file system cannot exchange. It is removed
     * when the new one is in place.
     */
    bool there = ares_dir_exists(ares_path_join(&path, dir, name)),
         exchanged =
             there && renameat2(AT_FDCWD, temporary, AT_FDCWD, path.data, RENAME_EXCHANGE) == 0;
    if (there && !exchanged) rc = set_aside(dir, name, &hidden);
    if (rc == ARES_OK && !exchanged && rename(temporary, path.data) != 0)
        rc = ares_fail(ARES_EIO, "io: %s: rename: %s", path.data, strerror(errno));
    if (rc == ARES_OK && there) rc = sync_path(dir);
    if (rc == ARES_OK && there) rc = ares_dir_remove(exchanged ? temporary : hidden.data);
    if (rc == ARES_OK) rc = sync_path(dir);
    if (rc == ARES_OK)
        rc = ares_file_write_atomic(ares_path_join(&path, dir, "latest"), name, strlen(name));
    ares_str_fini(&path);
    ares_str_fini(&hidden);
    return rc;
}

/* The failure that led here stays the one that is reported. */
void ares_checkpoint_abandon(const char *temporary)
{
    char *message = ares_strdup(ares_error_message());
    ares_dir_remove(temporary);
    ares_fail(ARES_EIO, "%s", message);
    ares_free(message);
}

/* which checkpoints to collect; flags */
typedef enum { STEPS = 1, ROLLING = 2 } kinds;
typedef struct list {
    kinds wanted;
    char (*names)[64]; /* [n], newest first */
    int64_t *steps;    /* [n] */
    int n, cap;
} list;

/* Adds an entry of dir to the list if it is a checkpoint of a wanted kind: step_12, rolling_7. */
static int collect(void *ctx, const char *dir, const char *name)
{
    list *l = ctx;
    bool rolling = strncmp(name, "rolling_", 8) == 0;
    if (!rolling && strncmp(name, "step_", 5) != 0) return ARES_OK;
    if (strlen(name) >= 64 || !(l->wanted & (rolling ? ROLLING : STEPS))) return ARES_OK;
    const char *digits = strchr(name, '_') + 1;
    /* names pad with zeros: step_000012 */
    size_t n = strspn(digits, "0123456789"), zeros = strspn(digits, "0");
    int64_t step = 0;
    if (n == 0 || digits[n] || (zeros < n && !ares_parse_i64(ares_view_of(digits + zeros), &step)))
        return ARES_OK;
    ares_str path = { 0 };
    bool whole = ares_dir_exists(ares_path_join(&path, dir, name));
    ares_str_fini(&path);
    if (!whole) return ARES_OK;
    if (l->n == l->cap) {
        l->cap = l->cap * 2 + 16;
        l->names = ares_realloc(l->names, (size_t)l->cap * sizeof *l->names);
        l->steps = ares_realloc(l->steps, (size_t)l->cap * sizeof *l->steps);
    }
    int at = l->n++;
    for (; at > 0 && l->steps[at - 1] < step; at--) { /* newest first */
        memcpy(l->names[at], l->names[at - 1], sizeof l->names[0]);
        l->steps[at] = l->steps[at - 1];
    }
    snprintf(l->names[at], sizeof l->names[at], "%s", name);
    l->steps[at] = step;
    return ARES_OK;
}

/* The name of the checkpoint of the highest step; empty: there is none. */
static int newest(const char *dir, kinds wanted, ares_str *name)
{
    list l = { .wanted = wanted };
    ares_str_clear(name);
    int rc = each(dir, collect, &l);
    if (rc == ARES_OK && l.n) ares_str_add_z(name, l.names[0]);
    ares_free(l.names);
    ares_free(l.steps);
    return rc;
}

int ares_checkpoint_latest(const char *dir, ares_str *name)
{
    ares_str path = { 0 };
    ares_str_clear(name);
    int rc = ARES_OK;
    if (ares_file_exists(ares_path_join(&path, dir, "latest")))
        rc = ares_file_read(path.data, name);
    /* white space from an editor */
    while (name->len && strchr(" \t\r\n", name->data[name->len - 1])) name->data[--name->len] = 0;
    /* `latest` may name what a user has deleted since: then the newest one there counts */
    if (rc == ARES_OK && name->len && !ares_dir_exists(ares_path_join(&path, dir, name->data)))
        ares_str_clear(name);
    if (rc == ARES_OK && !name->len) rc = newest(dir, STEPS | ROLLING, name);
    ares_str_fini(&path);
    return rc;
}

int ares_checkpoint_rolling(const char *dir, ares_str *name)
{
    return newest(dir, ROLLING, name);
}

int ares_checkpoint_drop_rolling(const char *dir, const char *but)
{
    list l = { .wanted = ROLLING };
    int rc =
        each(dir, remove_leftover, NULL); /* of a run that failed while it removed an old one */
    if (rc == ARES_OK) rc = each(dir, collect, &l);
    for (int i = 0; i < l.n && rc == ARES_OK; i++)
        if (!but || strcmp(l.names[i], but) != 0) rc = discard(dir, l.names[i]);
    ares_free(l.names);
    ares_free(l.steps);
    return rc;
}

void io_checkpoint_excess(const bool *spared, int n, int keep, bool *remove)
{
    int n_spared = 0;
    for (int i = 1; i < n; i++) n_spared += spared[i];
    /* how many of the others stay: spared ones count among the kept; the newest always stays */
    int left = ARES_MAX(keep - n_spared, 1);
    for (int i = 0; i < n; i++) remove[i] = keep > 0 && !(i > 0 && spared[i]) && left-- <= 0;
}

int ares_checkpoint_prune(const char *dir, int keep, const char *const *spare)
{
    if (keep <= 0) return ARES_OK;
    list l = { .wanted = STEPS };
    int rc = each(dir, collect, &l);
    /* spared ones are named, as the best so far; both arrays are [n] */
    bool *spared = ares_calloc((size_t)l.n * 2 + 1, sizeof *spared), *remove = spared + l.n;
    for (int i = 0; i < l.n; i++)
        for (const char *const *s = spare; s && *s; s++)
            spared[i] = spared[i] || strcmp(*s, l.names[i]) == 0;
    io_checkpoint_excess(spared, l.n, keep, remove);
    for (int i = 0; i < l.n && rc == ARES_OK; i++)
        if (remove[i]) rc = discard(dir, l.names[i]);
    ares_free(spared);
    ares_free(l.names);
    ares_free(l.steps);
    return rc;
}
