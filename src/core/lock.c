/* One process per run directory: an fcntl lock, which the system releases when the process ends. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ares/io.h"

/* "<name>.tmp.<pid>", as ares_file_write_atomic calls a file until it is whole. */
static bool is_leftover(const char *name)
{
    const char *pid = strrchr(name, '.');
    if (!pid || pid - name < 4 || strncmp(pid - 4, ".tmp", 4) != 0) return false;
    return pid[1] && strspn(pid + 1, "0123456789") == strlen(pid + 1);
}

/* Removes what processes left that were killed while they wrote. */
static int remove_leftovers(const char *dir)
{
    ares_str path = { 0 };
    DIR *d = opendir(dir);
    int rc = d ? ARES_OK : ares_fail(ARES_EIO, "io: %s: %s", dir, strerror(errno));
    for (struct dirent *e; rc == ARES_OK && (e = readdir(d));)
        if (is_leftover(e->d_name)) rc = ares_dir_remove(ares_path_join(&path, dir, e->d_name));
    if (d) closedir(d);
    ares_str_fini(&path);
    return rc;
}

int ares_lock_take(const char *dir, int *out)
{
    ares_str path = { 0 };
    ares_path_join(&path, dir, "lock");
    int fd = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0644), rc = ARES_OK;
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    char text[300] = "", host[128] = "";
    if (fd < 0) rc = ares_fail(ARES_EIO, "io: %s: %s", path.data, strerror(errno));
    else if (fcntl(fd, F_SETLK, &all) != 0) {
        int why = errno;
        ssize_t n = pread(fd, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        rc = why == EACCES || why == EAGAIN
                 ? ares_fail(ARES_ESTATE, "%s is in use by %s; wait for it, or stop it", dir,
                             *text ? text : "another process")
                 : ares_fail(ARES_EIO, "io: %s: lock: %s", path.data, strerror(why));
        close(fd);
    } else {
        gethostname(host, sizeof host - 1);
        int n = snprintf(text, sizeof text, "process %ld on %s", (long)getpid(), host);
        if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
            rc = ares_fail(ARES_EIO, "io: %s: %s", path.data, strerror(errno));
        if (rc == ARES_OK) rc = remove_leftovers(dir);
        if (rc == ARES_OK) *out = fd;
        else close(fd);
    }
    ares_str_fini(&path);
    return rc;
}

void ares_lock_drop(int fd)
{
    if (fd >= 0) close(fd);
}
