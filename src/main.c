/* Calls the verb that argv names and exits with its code: the only place that exits. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/dist.h"
#include "ares/reward.h"
#include "cli/cli.h"

/* A verb; on_ranks: --ranks and --restarts start it as several processes. */
typedef struct cli_entry {
    const char *name, *doc;
    int (*run)(int argc, char **argv);
    bool on_ranks;
} cli_entry;
#define ENTRY(name, on_ranks, doc) { #name, doc, ares_cli_##name, on_ranks },
static const cli_entry verbs[] = { CLI_LIST(ENTRY) };

/* *exit_code: of the launched processes, which main exits with; -1: by the returned failure. */
static int dispatch(int argc, char **argv, int *exit_code)
{
    int n;
    const char *const *names = cli_verbs(&n);
    *exit_code = -1;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        puts("usage: ares-train [VERB] [options]\n");
        for (int i = 0; i < ARES_COUNT(verbs); i++) printf("  %-13s %s\n", names[i], verbs[i].doc);
        puts("\nares-train VERB --help says more. Reinforcement learning:\n\n  ares-train --config "
             "examples/quickstart/config.yaml [key=value ...]");
        return ARES_OK;
    }
    if (strcmp(argv[1], "--version") == 0)
        return puts("ares-train " ARES_VERSION) < 0 ? ARES_EIO : ARES_OK;
    if (strcmp(argv[1], "__reward") == 0) return ares_reward_child_main(argc - 1, argv + 1);
    int verb = 0, first = 0;
    /* words of the configuration alone (--config, key=value, +key=value, ~key) mean train */
    bool named =
        argv[1][0] != '-' && argv[1][0] != '+' && argv[1][0] != '~' && !strchr(argv[1], '=');
    if (named) {
        ARES_TRY(ares_lookup(ARES_EUSE, "ares-train: verb", argv[1], names, n, &verb));
        first = 1;
    }
    if (verbs[verb].on_ranks) {
        int64_t ranks = 1, restarts = 0;
        const cli_option options[] = { CLI_RANKS(ranks), CLI_RESTARTS(restarts) };
        for (int i = 0; i < ARES_COUNT(options); i++)
            ARES_TRY(cli_take(names[verb], &options[i], &argc, argv));
        if (ranks > 1 || restarts > 0) {
            /* starts the same command without these options, as processes to watch */
            ares_str latest = { 0 };
            int rc = ARES_OK;
            if (restarts)
                rc = cli_latest_checkpoint(names[verb], argc - first, argv + first, &latest);
            bool helped = rc == ARES_OK && restarts && !latest.len; /* --help is printed once */
            ares_launch_plan plan = { .ranks = (int)ranks,
                                      .restarts = (int)restarts,
                                      .latest = latest.data };
            if (helped) *exit_code = 0;
            else if (rc == ARES_OK) rc = ares_launch(&plan, argc - 1, argv + 1, exit_code);
            ares_str_fini(&latest);
            return rc;
        }
    }
    argv[first] = (char *)names[verb];
    return verbs[verb].run(argc - first, argv + first);
}

int main(int argc, char **argv)
{
    /*
     * A parent may have closed descriptors 0 to 2. A file that is opened later would then take
     * such a number and receive what the program prints, so closed ones are opened on /dev/null.
     * Standard output is opened for reading only: writing results to it still fails, as it must.
     */
    static const int modes[] = { O_RDONLY, O_RDONLY, O_WRONLY }; /* of /dev/null, by fd */
    for (int fd = 0; fd < ARES_COUNT(modes); fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[fd]) != fd) {
            fprintf(stderr, "ares-train: file descriptor %d is closed, and /dev/null: %s\n", fd,
                    strerror(errno));
            exit(ares_error_exit_code(ARES_EIO));
        }
    signal(SIGCHLD, SIG_DFL); /* a parent may have ignored it; it says that a child has ended */
    int exit_code, rc = dispatch(argc, argv, &exit_code);
    fflush(stdout); /* in a file that has both, the failure comes last */
    if (rc != ARES_OK && *ares_error_message()) fprintf(stderr, "%s\n", ares_error_message());
    if (exit_code >= 0) exit(exit_code);
    if (rc == ARES_EINTERRUPTED) exit(ares_signal_exit_code(ares_signal_pending()));
    exit(rc == ARES_OK ? 0 : ares_error_exit_code(rc));
}
