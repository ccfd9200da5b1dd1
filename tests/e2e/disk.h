/*
 * A disk that forgets: replays the calls of a program (preload/record.c) one by one, as the power
 * may fail after any of them. A file then has the content it had when it was last synced, or any
 * later one. A folder has the entries it had when it was last synced, or, independently for each
 * name, its present entry.
 */
#ifndef TESTS_DISK_H
#define TESTS_DISK_H

#include "test.h"

typedef struct disk disk;
typedef struct disk_node disk_node;

disk *disk_new(const char *root); /* an empty folder whose own entry is on the disk */
void disk_free(disk *d);
/* Replays one line that record.c wrote. */
bool disk_play(disk *d, const char *line);

/*
 * The node at the path if it is certain to be there after a power cut, NULL otherwise: every entry
 * on the way is on the disk and has not changed since. below: where the path starts; NULL: at the
 * root.
 */
const disk_node *disk_safe(const disk *d, const disk_node *below, const char *path);
/* The node at the path as the running system sees it. */
const disk_node *disk_now(const disk *d, const disk_node *below, const char *path);
/*
 * What `name` in the folder may be after a power cut: its entry on the disk (now false) or its
 * present entry (now true); NULL where it is missing.
 */
const disk_node *disk_either(const disk_node *folder, const char *name, bool now);
/* The name of entry i of the folder, on the disk or at present; NULL after the last. */
const char *disk_name(const disk_node *folder, int i, bool now);

bool disk_synced(const disk_node *file); /* all its bytes are on the disk */
int disk_synced_lines(const disk_node *file);
const char *disk_text(const disk_node *file); /* its text, if it is short */

/*
 * From here on, the calls of programs that this test starts are recorded into the file log, as far
 * as they concern the test's folder. exchange false: as on a file system without RENAME_EXCHANGE.
 */
void disk_record(const char *log, bool exchange);
void disk_record_end(void);
#endif
