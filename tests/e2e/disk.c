/*
 * A folder has two lists of names: now, and when it was last synced. Nodes are freed with the disk.
 */
#include "disk.h"

#include <stdio.h>

typedef struct entry {
    char *name;
    disk_node *node;
} entry;
typedef struct entries {
    entry *items;
    int n;
} entries;

struct disk_node {
    bool dirty; /* a file that has bytes which are not synced */
    int lines, synced_lines;
    char text[64];
    entries now, synced; /* of a folder */
    disk_node *next;     /* in the list of all nodes */
};

struct disk {
    char *root;
    disk_node *all, top;
};

static disk_node *find(const entries *list, const char *name, size_t len)
{
    for (int i = 0; i < list->n; i++)
        if (strlen(list->items[i].name) == len && strncmp(list->items[i].name, name, len) == 0)
            return list->items[i].node;
    return NULL;
}

/* Sets the entry of a name; node NULL removes it. */
static void set_entry(entries *list, const char *name, disk_node *node)
{
    int i = 0;
    while (i < list->n && strcmp(list->items[i].name, name) != 0) i++;
    if (i < list->n && node) list->items[i].node = node;
    else if (i < list->n) {
        ares_free(list->items[i].name);
        list->items[i] = list->items[--list->n];
    } else if (node) {
        list->items = ares_realloc(list->items, (size_t)(list->n + 1) * sizeof *list->items);
        list->items[list->n++] = (entry){ ares_strdup(name), node };
    }
}

static void clear(entries *list)
{
    for (int i = 0; i < list->n; i++) ares_free(list->items[i].name);
    ares_free(list->items);
    *list = (entries){ 0 };
}

disk *disk_new(const char *root)
{
    disk *d = ares_calloc(1, sizeof *d);
    d->root = ares_strdup(root);
    return d;
}

void disk_free(disk *d)
{
    clear(&d->top.now), clear(&d->top.synced);
    for (disk_node *n = d->all, *next; n; n = next) {
        next = n->next;
        clear(&n->now), clear(&n->synced);
        ares_free(n);
    }
    ares_free(d->root);
    ares_free(d);
}

/* Follows the path; safe: only as far as both lists agree. */
static const disk_node *walk(const disk *d, const disk_node *at, const char *path, bool safe)
{
    if (!at) at = &d->top;
    while (at && *path) {
        size_t len = strcspn(path, "/");
        const disk_node *next = find(&at->now, path, len);
        at = safe && next != find(&at->synced, path, len) ? NULL : next;
        path += len + (path[len] == '/');
    }
    return at;
}

const disk_node *disk_safe(const disk *d, const disk_node *below, const char *path)
{
    return walk(d, below, path, true);
}

const disk_node *disk_now(const disk *d, const disk_node *below, const char *path)
{
    return walk(d, below, path, false);
}

const disk_node *disk_either(const disk_node *folder, const char *name, bool now)
{
    return find(now ? &folder->now : &folder->synced, name, strlen(name));
}

const char *disk_name(const disk_node *folder, int i, bool now)
{
    const entries *list = now ? &folder->now : &folder->synced;
    return i < list->n ? list->items[i].name : NULL;
}

bool disk_synced(const disk_node *file)
{
    return !file->dirty;
}

int disk_synced_lines(const disk_node *file)
{
    return file->synced_lines;
}

const char *disk_text(const disk_node *file)
{
    return file->text;
}

/* The folder that contains an absolute path below the root; name: the last part of the path. */
static disk_node *folder_of(disk *d, const char *path, const char **name)
{
    char folder[1024];
    size_t root = strlen(d->root);
    *name = strrchr(path, '/') + 1;
    if (strncmp(path, d->root, root) != 0 || path[root] != '/') return NULL;
    snprintf(folder, sizeof folder, "%.*s", (int)(*name - path - (ptrdiff_t)root - 1),
             path + root + 1);
    return (disk_node *)disk_now(d, NULL, folder);
}

static disk_node *make(disk *d, disk_node *folder, const char *name)
{
    disk_node *n = ares_calloc(1, sizeof *n);
    n->next = d->all;
    d->all = n;
    set_entry(&folder->now, name, n);
    return n;
}

static void sync_node(disk_node *n)
{
    n->dirty = false;
    n->synced_lines = n->lines;
    clear(&n->synced);
    for (int i = 0; i < n->now.n; i++)
        set_entry(&n->synced, n->now.items[i].name, n->now.items[i].node);
}

bool disk_play(disk *d, const char *line)
{
    char what[16], path[1024], rest[1024] = "", text[64] = "";
    int lines = 0;
    if (!CHECK_MSG(sscanf(line, "%15s %1023s %1023s %63s", what, path, rest, text) >= 2, "%s",
                   line))
        return false;
    const char *name, *other_name;
    /* the root itself is only ever synced */
    if (strcmp(path, d->root) == 0) return sync_node(&d->top), true;
    disk_node *folder = folder_of(d, path, &name);
    if (!CHECK_MSG(folder, "no folder for: %s", line)) return false;
    disk_node *n = find(&folder->now, name, strlen(name));
    if (strcmp(what, "make") == 0) return make(d, folder, name);
    if (strcmp(what, "open") == 0) return n ? n : make(d, folder, name);
    if (!CHECK_MSG(n, "not there: %s", line)) return false;
    if (strcmp(what, "remove") == 0) set_entry(&folder->now, name, NULL);
    else if (strcmp(what, "sync") == 0) sync_node(n);
    else if (strcmp(what, "empty") == 0) n->lines = 0, n->text[0] = 0, n->dirty = true;
    else if (strcmp(what, "write") == 0) {
        sscanf(rest, "%d", &lines);
        n->lines += lines;
        n->dirty = true;
        snprintf(n->text, sizeof n->text, "%s", text);
    } else {
        disk_node *to = folder_of(d, rest, &other_name),
                  *was = to ? find(&to->now, other_name, strlen(other_name)) : NULL;
        if (!CHECK_MSG(to, "no folder for: %s", line)) return false;
        set_entry(&to->now, other_name, n);
        set_entry(&folder->now, name, strcmp(what, "exchange") == 0 ? was : NULL);
    }
    return true;
}

void disk_record(const char *log, bool exchange)
{
    ares_str options = { 0 };
    const char *asan = getenv("ASAN_OPTIONS");
    ares_str_addf(&options, "%s%sverify_asan_link_order=0", asan ? asan : "", asan ? ":" : "");
    setenv("ASAN_OPTIONS", options.data, 1);
    setenv("LD_PRELOAD", ARES_BINARY_DIR "/libares_test_record.so", 1);
    setenv("ARES_RECORD_ROOT", test_dir(), 1);
    setenv("ARES_RECORD_LOG", log, 1);
    if (!exchange) setenv("ARES_RECORD_NO_EXCHANGE", "1", 1);
    ares_str_fini(&options);
}

void disk_record_end(void)
{
    unsetenv("LD_PRELOAD");
    unsetenv("ARES_RECORD_ROOT");
    unsetenv("ARES_RECORD_LOG");
    unsetenv("ARES_RECORD_NO_EXCHANGE");
    unsetenv("ARES_RECORD_SIGNAL");
    unsetenv("ARES_RECORD_TRAP");
    unsetenv("ARES_RECORD_SLOW");
    unsetenv("ARES_RECORD_FAIL");
}
