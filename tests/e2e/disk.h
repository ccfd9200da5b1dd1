/*
 * A disk that forgets: the calls of a program (preload/record.c) played once more, one by one.
 * After each of them the power may fail. What is on the disk then: of a file what it held when it
 * was last synced, or anything since; of a folder its entries when it was last synced, or, of each
 * name by itself, its entry now.
 */
#ifndef TESTS_DISK_H
#define TESTS_DISK_H

#include "test.h"

typedef struct disk disk;
typedef struct disk_node disk_node;

disk *disk_new(const char *root); /* whose own entry is safe, and which is empty */
void disk_free(disk *d);
/* One line of record.c's. */
bool disk_play(disk *d, const char *line);

/* What is certain to be there, NULL otherwise: every entry on the way is on the disk and is
 * still the same. below NULL: the root. */
const disk_node *disk_safe(const disk *d, const disk_node *below, const char *path);
/* As the running system sees it. */
const disk_node *disk_now(const disk *d, const disk_node *below, const char *path);
/* What `name` in the folder may be after a power cut: as on the disk (now false) or as it is now;
 * NULL: not there. */
const disk_node *disk_either(const disk_node *folder, const char *name, bool now);
/* Names in the folder, as on the disk or as it is now; NULL beyond the last. */
const char *disk_name(const disk_node *folder, int i, bool now);

bool disk_synced(const disk_node *file); /* all its bytes are on the disk */
int disk_synced_lines(const disk_node *file);
const char *disk_text(const disk_node *file); /* of a short file */

/* Programs that this test starts are recorded from here on, in the test's folder, into the file
 * log. exchange false: on a file system without RENAME_EXCHANGE. */
void disk_record(const char *log, bool exchange);
void disk_record_end(void);
#endif
