/*
 * `ares-train __reward FILE.so SYMBOL`: the process in which a user's C function runs. What the
 * function prints goes to stderr.
 */
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "ares/core_file.h"
#include "ares/io.h"
#include "ares/reward.h"

typedef double user_function(const char *response, const char *ground_truth, const char *row_json);

static const char *text_of(ares_arena *arena, const ares_json *line, const char *key)
{
    const ares_json *v = ares_json_get(line, key);
    return v && v->type == ARES_JSON_STRING ? ares_arena_copy(arena, v->text.data, v->text.len)
                                            : "";
}

int ares_reward_child_main(int argc, char **argv)
{
    if (argc != 3)
        return ares_fail(ARES_EUSE, "__reward: started by the trainer, with FILE.so and SYMBOL");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *path = strchr(argv[1], '/') ? ares_strdup(argv[1]) : NULL;
    if (!path) { /* dlopen searches system folders for a bare name */
        ares_str s = { 0 };
        ares_path_join(&s, ".", argv[1]);
        path = ares_str_take(&s);
    }
    const char *why;
    int fd = ares_file_open(path, &why); /* dlopen would wait for a pipe */
    if (fd >= 0) close(fd);
    void *library = why ? NULL : dlopen(path, RTLD_NOW);
    ares_free(path);
    if (why) return ares_fail(ARES_ECHILD, "reward: %s: %s", argv[1], why);
    if (!library) return ares_fail(ARES_ECHILD, "reward: %s", dlerror());
    user_function *function;
    *(void **)&function = dlsym(library, argv[2]);
    if (!function)
        return ares_fail(ARES_ECHILD, "reward: %s has no function '%s'", argv[1], argv[2]);

    FILE *answers = fdopen(dup(1), "w");
    dup2(2, 1);
    ares_jsonl *lines;
    const ares_json *line;
    ares_arena arena = { 0 };
    ares_str row = { 0 };
    int rc;
    ARES_TRY(ares_jsonl_open_input("-", &lines));
    while ((rc = ares_jsonl_next(lines, &line, NULL)) > 0) {
        const ares_json *v = ares_json_get(line, "row");
        ares_arena_reset(&arena);
        ares_str_clear(&row);
        if (v) ares_json_write(&row, v);
        double score =
            function(text_of(&arena, line, "response"), text_of(&arena, line, "ground_truth"),
                     row.data ? row.data : "null");
        if (isfinite(score)) fprintf(answers, "%.17g\n", score);
        else fputs("\"not a finite number\"\n", answers);
        fflush(answers);
    }
    ares_jsonl_close(lines);
    ares_arena_fini(&arena);
    ares_str_fini(&row);
    fclose(answers);
    return rc;
}
