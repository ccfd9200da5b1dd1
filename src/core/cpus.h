#ifndef ARES_CORE_CPUS_H
#define ARES_CORE_CPUS_H

/*
 * CPUs that the control groups of a process grant it, rounded to the nearest whole one, at least 1;
 * a large number when they set no limit. Both layouts: version 2 (cpu.max) and 1
 * (cpu/cpu.cfs_quota_us). `membership` is a file like /proc/self/cgroup, `root` a folder like
 * /sys/fs/cgroup.
 */
int core_cgroup_cpus(const char *membership, const char *root);
/* Bytes they grant it (memory.max, or memory.limit_in_bytes); infinite when they set no limit. */
double core_cgroup_memory(const char *membership, const char *root);

#endif
