/*
 * Files: whole files and folders, the lock of a run directory, writing until everything is
 * written.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ares/core.h"
#include "ares/io.h"

/* Whole files and folders: read, write, make, remove, sync. */

/* "file: 'a/b': cannot be read: No such file or directory" */
static int refused(const char *path, const char *what)
{
    return ares_fail(ARES_EIO, "file: '%s': cannot be %s: %s", path, what, strerror(errno));
}

/*
 * Why a file cannot be read: opening a device may act on it, and a pipe without a writer makes its
 * reader wait. NULL: it can. input: a pipe that the user names is fine.
 */
static const char *unfit(int failed, const struct stat *st, bool input)
{
    if (failed) return strerror(errno);
    if (S_ISDIR(st->st_mode)) return "a folder";
    return S_ISREG(st->st_mode) || (input && !S_ISBLK(st->st_mode)) ? NULL : "not a regular file";
}

/* Looks before opening, and again at what was opened. */
static int open_to_read(const char *path, bool input, const char **why)
{
    static const char lfs[] = "version https://git-lfs";
    char begin[sizeof lfs - 1];
    struct stat st;
    if ((*why = unfit(stat(path, &st), &st, input))) return -1;
    /* O_NONBLOCK: another file may have taken the name since */
    int fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC | (input ? 0 : O_NONBLOCK));
    *why = unfit(fd < 0 || fstat(fd, &st) != 0, &st, input);
    /* what a clone has in the place of a large file where Git LFS is not set up */
    if (!*why && S_ISREG(st.st_mode) && st.st_size < 1024 &&
        pread(fd, begin, sizeof begin, 0) == (ssize_t)sizeof begin &&
        memcmp(begin, lfs, sizeof begin) == 0)
        *why = "a Git LFS pointer, not the file itself; run 'git lfs pull' in its folder";
    if (!*why || fd < 0) return fd;
    close(fd);
    return -1;
}

int ares_file_open(const char *path, const char **why)
{
    return open_to_read(path, false, why);
}

int ares_input_open(const char *path, const char **why)
{
    return open_to_read(path, true, why);
}

/* A file of known size is read into memory that fits it at once; input: "-" is stdin. */
static int read_whole(const char *path, bool input, ares_str *out)
{
    struct stat st;
    const char *why = NULL;
    bool is_stdin = input && strcmp(path, "-") == 0;
    ares_str_clear(out);
    int fd = is_stdin ? STDIN_FILENO : open_to_read(path, input, &why);
    if (why) return ares_fail(ARES_EIO, "file: '%s': cannot be opened: %s", path, why);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
        ares_str_reserve(out, (size_t)st.st_size + 4096);
    ssize_t n;
    do {
        if (out->cap - out->len < 4096)
            ares_str_reserve(out, ARES_MAX(out->len * 2, (size_t)65536));
        n = read(fd, out->data + out->len, out->cap - out->len - 1);
        if (n <= 0) continue;
        out->len += (size_t)n;
        out->data[out->len] = 0;
    } while (n > 0 || (n < 0 && errno == EINTR));
    int rc = n < 0 ? refused(path, "read") : ARES_OK;
    if (!is_stdin) close(fd);
    return rc;
}

int ares_file_read(const char *path, ares_str *out)
{
    return read_whole(path, false, out);
}

int ares_input_read(const char *path, ares_str *out)
{
    return read_whole(path, true, out);
}

bool ares_file_line(const char *path, const char *begins, ares_str *out)
{
    ares_str text = { 0 };
    bool found = false;
    ares_str_clear(out);
    if (ares_file_read(path, &text) != ARES_OK) ares_error_clear();
    for (const char *at = text.data; at && *at && !found;) {
        const char *end = strchrnul(at, '\n'), *colon = memchr(at, ':', (size_t)(end - at));
        found = colon && strncmp(at, begins, strlen(begins)) == 0;
        if (found)
            ares_str_add_view(out,
                              ares_view_trim((ares_view){ colon + 1, (size_t)(end - colon - 1) }));
        at = *end ? end + 1 : end;
    }
    ares_str_fini(&text);
    return found;
}

/* FNV-1a over the bytes, on top of *h. */
int ares_file_hash(const char *path, uint64_t *h)
{
    char piece[1 << 16];
    const char *why;
    ssize_t n;
    int fd = ares_file_open(path, &why);
    if (why) return ares_fail(ARES_EIO, "file: '%s': cannot be opened: %s", path, why);
    while ((n = read(fd, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0) *h = ares_fnv1a(*h, piece, (size_t)n);
    int rc = n < 0 ? refused(path, "read") : ARES_OK;
    close(fd);
    return rc;
}

/* sync: the bytes are on the disk when it returns. */
static int write_file(const char *path, const void *data, size_t len, bool sync)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return refused(path, "opened for writing");
    int rc = 0;
    for (const char *at = data; len > 0 && rc == 0;) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) rc = -1;
        else at += n, len -= (size_t)n;
    }
    if (rc == 0 && sync) rc = fsync(fd);
    if (rc < 0) rc = refused(path, "written");
    /* network file systems report a full disk at the close */
    if (close(fd) < 0 && rc == 0) rc = refused(path, "written");
    return rc;
}

int ares_file_write(const char *path, const void *data, size_t len)
{
    return write_file(path, data, len, false);
}

int ares_path_sync(const char *path)
{
    const char *slash = strrchr(path, '/');
    ares_str folder = { 0 };
    ares_str_add(&folder, path, slash ? (size_t)(slash - path) + 1 : 0);
    if (folder.len == 0) ares_str_add_char(&folder, '.');
    int fd = open(folder.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = ARES_OK;
    /*
     * EINVAL and EROFS: some network file systems cannot sync a folder. EACCES: the folder may be
     * written but not read. Nothing more can be done then.
     */
    bool done = fd < 0 ? errno == EACCES : fsync(fd) == 0 || errno == EINVAL || errno == EROFS;
    if (!done) rc = refused(folder.data, "synced");
    if (fd >= 0) close(fd);
    ares_str_fini(&folder);
    return rc;
}

/* A reader sees the old file or the new one, also after a crash. */
int ares_file_write_atomic(const char *path, const void *data, size_t len)
{
    ares_str temporary = { 0 };
    ares_str_addf(&temporary, "%s.tmp.%d", path, (int)getpid());
    int rc = write_file(temporary.data, data, len, true);
    if (rc == ARES_OK && rename(temporary.data, path) < 0) rc = refused(path, "replaced");
    if (rc != ARES_OK) unlink(temporary.data);
    else rc = ares_path_sync(path);
    ares_str_fini(&temporary);
    return rc;
}

/* Anything but a folder: a pipe may be an input. */
bool ares_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

bool ares_dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Makes one folder of the path after the other; durable: syncs each that was new. */
static int make_dirs(const char *path, bool durable)
{
    char *copy = ares_strdup(path);
    int rc = ARES_OK;
    for (char *p = copy; rc == ARES_OK && *p; p++) { /* "a/b/c": a, then a/b, then a/b/c */
        if (p[1] != '/' && p[1] != 0) continue;
        char kept = p[1];
        p[1] = 0;
        bool made = mkdir(copy, 0777) == 0;
        int why = errno;
        if (!made && !ares_dir_exists(copy)) {
            errno = why; /* the cause is mkdir's, not that of the look for a folder */
            rc = refused(copy, "made");
        }
        if (made && durable) rc = ares_path_sync(copy);
        p[1] = kept;
    }
    ares_free(copy);
    return rc;
}

int ares_dir_make(const char *path)
{
    return make_dirs(path, false);
}

int ares_dir_make_durable(const char *path)
{
    return make_dirs(path, true);
}

/* shown: the path for messages. Symbolic links are removed, never followed. */
static int remove_at(int parent, const char *name, const char *shown)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) return ARES_OK; /* gone is gone */
    /* a folder: Linux says EISDIR, POSIX EPERM */
    if (errno != EISDIR && errno != EPERM) return refused(shown, "removed");
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int rc = refused(shown, "removed");
        if (fd >= 0) close(fd);
        return rc;
    }
    int rc = ARES_OK;
    ares_str inner = { 0 };
    for (struct dirent *e; rc == ARES_OK && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        rc = remove_at(fd, e->d_name, ares_path_join(&inner, shown, e->d_name));
    }
    ares_str_fini(&inner);
    closedir(dir);
    if (rc == ARES_OK && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        rc = refused(shown, "removed");
    return rc;
}

int ares_dir_remove(const char *path)
{
    return remove_at(AT_FDCWD, path, path);
}

/* "a" and "b" give "a/b", "a/" and "b" too; an absolute b stays as it is. */
const char *ares_path_join(ares_str *out, const char *a, const char *b)
{
    ares_str joined = { 0 }; /* a or b may lie in out */
    if (b[0] != '/' && a[0]) {
        ares_str_add_z(&joined, a);
        if (b[0] && joined.data[joined.len - 1] != '/') ares_str_add_char(&joined, '/');
    }
    ares_str_add_z(&joined, b);
    ares_str_fini(out);
    *out = joined;
    return out->data;
}

/* Looks beside the program, as installed and as built; the variable, where it is set, wins. */
void ares_path_of_program(const char *variable, const char *name, char *path, size_t size)
{
    static const char *const places[] = { "../lib/ares-train/", "../share/ares-train/", "" };
    char self[4096];
    const char *given = variable ? getenv(variable) : NULL;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    for (int i = 0; i < ARES_COUNT(places); i++) { /* a build folder has none of the first two */
        snprintf(path, size, "%.*s/%s%s", slash ? (int)(slash - self) : 0, self, places[i], name);
        if (access(path, R_OK) == 0) break;
    }
    if (given && *given) snprintf(path, size, "%s", given);
}

/*
 * One process per run directory: a lock of the open file, which the system releases when the
 * process ends, and not, as it does with a process's own locks, when another reader in the process
 * closes the same file.
 */

/* The lock file says which process has it, so that the message to another one can name it. */
int ares_lock_take(const char *dir, int *out)
{
    ares_str path = { 0 };
    ares_path_join(&path, dir, "lock");
    int fd = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0644), rc = ARES_OK;
    /* length 0: the whole file */
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    char text[300] = "", host[128] = "";
    if (fd < 0) rc = ares_fail(ARES_EIO, "io: %s: %s", path.data, strerror(errno));
    else if (fcntl(fd, F_OFD_SETLK, &all) != 0) {
        int why = errno;
        ssize_t n = pread(fd, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        rc = why == EACCES || why == EAGAIN
                 ? ares_fail(ARES_ESTATE, "%s is in use by %s; wait for it, or stop it", dir,
                             *text ? text : "another process")
                 : ares_fail(ARES_EIO, "io: %s: lock: %s", path.data, strerror(why));
        close(fd);
    } else {
        /* the folder may be on a network, where another host reads this */
        gethostname(host, sizeof host - 1);
        int n = snprintf(text, sizeof text, "process %ld on %s", (long)getpid(), host);
        if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
            rc = ares_fail(ARES_EIO, "io: %s: %s", path.data, strerror(errno));
        if (rc == ARES_OK) {
            /* what killed processes left: "<name>.tmp.<pid>" (ares_file_write_atomic) */
            ares_str left = { 0 };
            DIR *d = opendir(dir);
            if (!d) rc = ares_fail(ARES_EIO, "io: %s: %s", dir, strerror(errno));
            for (struct dirent *e; rc == ARES_OK && (e = readdir(d));) {
                const char *pid = strrchr(e->d_name, '.');
                if (!pid || pid - e->d_name < 4 || strncmp(pid - 4, ".tmp", 4) != 0) continue;
                if (!pid[1] || strspn(pid + 1, "0123456789") != strlen(pid + 1)) continue;
                rc = ares_dir_remove(ares_path_join(&left, dir, e->d_name));
            }
            if (d) closedir(d);
            ares_str_fini(&left);
        }
        if (rc == ARES_OK) *out = fd;
        else close(fd);
    }
    ares_str_fini(&path);
    return rc;
}

bool ares_lock_held(const char *dir)
{
    ares_str path = { 0 };
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    const char *why;
    int fd = ares_file_open(ares_path_join(&path, dir, "lock"), &why);
    bool held = fd >= 0 && fcntl(fd, F_OFD_GETLK, &all) == 0 && all.l_type != F_UNLCK;
    if (fd >= 0) close(fd);
    ares_str_fini(&path);
    return held;
}

/* Closing releases the lock; the file stays, because another process may wait on it. */
void ares_lock_drop(int fd)
{
    if (fd >= 0) close(fd);
}

/* Writing to file descriptors until everything is written. */

/* write may take a part, or be interrupted: goes on until all bytes are taken. */
int io_write_all(int fd, const char *path, const void *data, size_t bytes, int64_t at)
{
    for (size_t done = 0; done < bytes;) {
        const char *rest = (const char *)data + done;
        ssize_t n = at < 0 ? write(fd, rest, bytes - done)
                           : pwrite(fd, rest, bytes - done, (off_t)(at + (int64_t)done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return ares_fail(ARES_EIO, "io: %s: %s", path,
                             n < 0 ? strerror(errno) : "nothing written");
        done += (size_t)n;
    }
    return ARES_OK;
}
