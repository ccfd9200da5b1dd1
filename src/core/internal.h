/*
 * Private to core: elementary functions, hashes, UTF-8, the terminal, and readers and writers of
 * row files.
 */
#ifndef ARES_CORE_INTERNAL_H
#define ARES_CORE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "ares/core.h"

/*
 * CPUs that the control groups of a process allow it, rounded to the nearest integer, at least 1;
 * INT_MAX when they set no limit. Reads both layouts: version 2 (cpu.max) and version 1
 * (cpu/cpu.cfs_quota_us). `membership` is a file like /proc/self/cgroup, `root` a folder like
 * /sys/fs/cgroup.
 */
int core_cgroup_cpus(const char *membership, const char *root);
/*
 * Bytes that these control groups allow (memory.max, or memory.limit_in_bytes); infinite when they
 * set no limit.
 */
double core_cgroup_memory(const char *membership, const char *root);
/* Bytes that could be taken now within the tightest of them; infinite without a limit. */
double core_cgroup_free(const char *membership, const char *root);

/*
 * Logarithm, exponential and cosine from sums, products and quotients only: the same bits on every
 * machine, which C libraries do not promise. For numbers that affect weights: initial values and
 * learning rates. The error is about 2 ulp.
 */

double core_log(double x);    /* x positive and normal */
double core_exp(double x);    /* |x| < 700 */
double core_cos_pi(double x); /* cos(pi x) */

/*
 * The hash of ares_map and of the JSON reader's search for duplicate keys: fast, without a seed,
 * not cryptographic.
 */

static inline uint64_t core_hash_mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t core_hash(const char *data, size_t len)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ len;
    for (; len > 0;) {
        uint64_t word = 0;
        size_t take = len < 8 ? len : 8;
        memcpy(&word, data, take);
        hash = core_hash_mix(hash ^ word, 0xD6E8FEB86659FD93u) + 0xA0761D6478BD642Fu;
        data += take;
        len -= take;
    }
    return core_hash_mix(hash, 0xE7037ED1A0B428DBu);
}

/*
 * Logs an error without allocating memory, for when there is none left. Cut at 500 bytes. (log.c)
 */
void log_last_words(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * What the thread of a progress does several times a second: draws the moving line, or, without a
 * terminal, logs it when it is due. (log.c)
 */
struct ares_progress;
void core_progress_tick(struct ares_progress *p, double now);

/*
 * Arrow's C data and stream interfaces (arrow.apache.org/docs/format/CDataInterface.html): three
 * plain structs of fixed layout, declared here so that the program builds without Arrow.
 */

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

/*
 * Which of n checkpoints, newest first, are to be removed when `keep` are to be left: spared ones
 * stay and count among the kept, the rest of the kept are the newest. The newest of all always
 * stays, so keep 1 may leave two. keep <= 0 keeps all. EasyR1's rule (docs/design.md#checkpoints).
 */
void io_checkpoint_excess(const bool *spared, int n, int keep, bool *remove);

/* Writing JSON lines (rows.c). Reading them is public. */

/*
 * Appending writer; each row reaches the system whole. The file is cut after its first keep_rows
 * rows: 0 empties it, -1 keeps all complete rows (a torn last line is dropped).
 */
typedef struct jsonl_writer jsonl_writer;
int jsonl_create(const char *path, int64_t keep_rows, jsonl_writer **out);
/* without the newline */
int jsonl_write(jsonl_writer *w, const char *line, size_t len);
int jsonl_sync(jsonl_writer *w); /* fsync: what was written is on the disk */
int jsonl_finish(jsonl_writer *w);

/* What the writers of this room share. */

/*
 * Writes all bytes to fd, however many calls it takes, from byte `at` of the file on; at < 0: after
 * what was written last. A failure names path.
 */
int io_write_all(int fd, const char *path, const void *data, size_t bytes, int64_t at);
#endif
