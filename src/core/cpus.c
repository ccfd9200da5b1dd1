/*
 * How many CPUs and how much memory this process may use. A container often sees all of the
 * machine's but may use only a part. One thread too many is worse than one too few: when the CPU
 * quota is used up, the whole process stops until the next period.
 */
#include "cpus.h"
#include "ares/core.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* First and second number of <folder>/<name>; a word such as "max" reads as -1. */
static bool read_numbers(const char *folder, const char *name, double *first, double *second)
{
    char path[PATH_MAX], text[64] = "";
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    char *end = text;
    *first = strtod(text, &end);
    if (end == text) *first = -1;
    *second = strtod(strchr(text, ' ') ? strchr(text, ' ') : "", NULL);
    return read;
}

static double folder_cpus(const char *folder)
{
    double quota, period, unused;
    if (read_numbers(folder, "cpu.max", &quota, &period))
        return quota > 0 && period > 0 ? quota / period : INFINITY;
    if (read_numbers(folder, "cpu.cfs_quota_us", &quota, &unused) && quota > 0 &&
        read_numbers(folder, "cpu.cfs_period_us", &period, &unused) && period > 0)
        return quota / period;
    return INFINITY;
}

/* Where there is no limit, version 1 gives a number of bytes that no machine has. */
static double folder_memory(const char *folder)
{
    double bytes, unused;
    if (!read_numbers(folder, "memory.max", &bytes, &unused) &&
        !read_numbers(folder, "memory.limit_in_bytes", &bytes, &unused))
        return INFINITY;
    return bytes > 0 ? bytes : INFINITY;
}

typedef double folder_limit(const char *folder);

/*
 * The tightest limit from <base><path> up to <base>. In a container the path may be the host's and
 * not exist here; then only base counts.
 */
static double least_upwards(const char *base, const char *path, folder_limit *limit)
{
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s%s", base, path) >= (int)sizeof folder) return INFINITY;
    double least = INFINITY;
    for (size_t base_len = strlen(base);;) {
        double here = limit(folder);
        least = ARES_MIN(least, here);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < base_len) return least;
        *slash = 0;
    }
}

/*
 * The tightest limit over the control groups of `membership`: version 2's, and version 1's of
 * controller.
 */
static double least_of(const char *membership, const char *root, const char *controller,
                       folder_limit *limit)
{
    FILE *file = fopen(membership, "re");
    if (!file) return INFINITY;
    double least = INFINITY;
    char line[PATH_MAX + 256], base[PATH_MAX];
    while (fgets(line, sizeof line, file)) { /* id:controllers:path */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'),
             *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *controllers++ = 0;
        *path++ = 0;
        bool unified = *controllers == 0, ours = false;
        for (char *save, *word = strtok_r(controllers, ",", &save); word;
             word = strtok_r(NULL, ",", &save))
            ours |= strcmp(word, controller) == 0;
        if (!unified && !ours) continue;
        snprintf(base, sizeof base, "%s%s%s", root, unified ? "" : "/", unified ? "" : controller);
        double here = least_upwards(base, path, limit);
        least = ARES_MIN(least, here);
    }
    fclose(file);
    return least;
}

int core_cgroup_cpus(const char *membership, const char *root)
{
    double least = least_of(membership, root, "cpu", folder_cpus);
    return least >= INT_MAX ? INT_MAX : ARES_MAX(1, (int)(least + 0.5));
}

double core_cgroup_memory(const char *membership, const char *root)
{
    return least_of(membership, root, "memory", folder_memory);
}

/* A machine may have more CPUs than a cpu_set_t has bits: enlarges the mask until it fits. */
static int affinity_cpus(void)
{
    for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)bits);
        size_t bytes = CPU_ALLOC_SIZE((size_t)bits);
        int count = set && sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return count;
    }
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int ares_cpu_count(void)
{
    return ARES_MAX(
        1, ARES_MIN(affinity_cpus(), core_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup")));
}

double ares_memory_bytes(void)
{
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double group = core_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup");
    return ARES_MIN(machine, group);
}
