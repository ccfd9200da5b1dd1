/* One process per run directory: an fcntl lock, which the system releases when the process ends. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ares/io.h"

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
