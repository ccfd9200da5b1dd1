/* Writing to file descriptors until everything is written. */
#include "write.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "ares/core.h"

int io_write_all(int fd, const char *path, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = write(fd, (const char *)data + at, bytes - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return ares_fail(ARES_EIO, "io: %s: %s", path,
                             n < 0 ? strerror(errno) : "nothing written");
        at += (size_t)n;
    }
    return ARES_OK;
}

int io_write_all_at(int fd, const char *path, const void *data, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n =
            pwrite(fd, (const char *)data + done, bytes - done, (off_t)(at + (uint64_t)done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return ares_fail(ARES_EIO, "io: %s: %s", path,
                             n < 0 ? strerror(errno) : "nothing written");
        done += (size_t)n;
    }
    return ARES_OK;
}
