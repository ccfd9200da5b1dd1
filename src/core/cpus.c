/*
 * How many CPUs are ours. A container often sees all of the machine's CPUs and may use two of them; a thread
 * too many is worse than one too few, because the whole process stands still when its quota is spent.
 */
#include "cpus.h"
#include "ares/core.h"

#include <limits.h>
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
        return quota > 0 && period > 0 ? quota / period : INT_MAX;
    if (read_numbers(folder, "cpu.cfs_quota_us", &quota, &unused) && quota > 0 &&
        read_numbers(folder, "cpu.cfs_period_us", &period, &unused) && period > 0)
        return quota / period;
    return INT_MAX;
}

/* The tightest limit from <base><path> up to <base>. A path that is not there is that of the host: only
 * base counts. */
static double least_upwards(const char *base, const char *path)
{
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s%s", base, path) >= (int)sizeof folder) return INT_MAX;
    double least = INT_MAX;
    for (size_t base_len = strlen(base);;) {
        double here = folder_cpus(folder);
        least = ARES_MIN(least, here);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < base_len) return least;
        *slash = 0;
    }
}

int core_cgroup_cpus(const char *membership, const char *root)
{
    FILE *file = fopen(membership, "re");
    if (!file) return INT_MAX;
    double least = INT_MAX;
    char line[PATH_MAX + 256], base[PATH_MAX];
    while (fgets(line, sizeof line, file)) { /* id:controllers:path */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *controllers++ = 0;
        *path++ = 0;
        bool unified = *controllers == 0, has_cpu = false;
        for (char *save, *word = strtok_r(controllers, ",", &save); word; word = strtok_r(NULL, ",", &save))
            has_cpu |= strcmp(word, "cpu") == 0;
        if (!unified && !has_cpu) continue;
        snprintf(base, sizeof base, "%s%s", root, unified ? "" : "/cpu");
        double here = least_upwards(base, path);
        least = ARES_MIN(least, here);
    }
    fclose(file);
    return least >= INT_MAX ? INT_MAX : ARES_MAX(1, (int)(least + 0.5));
}

/* A machine may have more CPUs than a cpu_set_t has bits: the mask is made larger until the kernel takes
 * it. */
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
    return ARES_MAX(1, ARES_MIN(affinity_cpus(), core_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup")));
}
