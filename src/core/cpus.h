#ifndef ARES_CORE_CPUS_H
#define ARES_CORE_CPUS_H

/*
 * CPUs that the control groups of a process allow it, rounded to the nearest integer, at least 1;
 * INT_MAX when they set no limit. Reads both layouts: version 2 (cpu.max) and version 1
 * (cpu/cpu.cfs_quota_us). `membership` is a file like /proc/self/cgroup, `root` a folder like
 * /sys/fs/cgroup.
 */
int core_cgroup_cpus(const char *membership, const char *root);
/* Bytes that they allow (memory.max, or memory.limit_in_bytes); infinite when they set no limit. */
double core_cgroup_memory(const char *membership, const char *root);

#endif
