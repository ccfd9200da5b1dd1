/*
 * Feeds files to a fuzz target, for builds without libFuzzer: replay FILE_OR_FOLDER ... Each file
 * is a case that once failed or nearly did; the target aborts when it fails, so the name of the
 * file is printed before it runs.
 */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int passed;
static char current[4096];

static void die_of(int sig)
{
    signal(sig, SIG_DFL);
    printf("FAIL %s: %s\nreplay: %d passed, 1 failed\n", current,
           sig == SIGALRM ? "took too long" : "crashed", passed);
    fflush(stdout);
    raise(sig);
}

static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        return 1;
    }
    if (S_ISDIR(st.st_mode)) {
        struct dirent **entries;
        int n = scandir(path, &entries, NULL, alphasort), bad = n < 0;
        for (int i = 0; i < n; i++) {
            char inner[4096];
            if (entries[i]->d_name[0] != '.' && snprintf(inner, sizeof inner, "%s/%s", path,
                                                         entries[i]->d_name) < (int)sizeof inner)
                bad |= replay(inner);
            free(entries[i]);
        }
        if (n >= 0) free(entries);
        return bad;
    }
    FILE *f = fopen(path, "rb");
    /* Exactly as many bytes as the file has, so that a sanitizer sees the first one read beyond. */
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    if (!f || !data || fread(data, 1, size, f) != size) {
        perror(path);
        return 1;
    }
    fclose(f);
    snprintf(current, sizeof current, "%s", path);
    alarm(60);
    LLVMFuzzerTestOneInput(data, size);
    alarm(0);
    free(data);
    passed++;
    return 0;
}

int main(int argc, char **argv)
{
    int bad = 0;
    signal(SIGALRM, die_of);
    signal(SIGABRT, die_of);
#ifndef __SANITIZE_ADDRESS__
    signal(SIGSEGV, die_of);
#endif
    for (int i = 1; i < argc; i++) bad |= replay(argv[i]);
    printf("replay: %d passed, %d failed\n", passed, bad);
    return bad;
}
