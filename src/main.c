/* argv -> verb -> exit code. The only exit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/dist.h"
#include "ares/reward.h"
#include "verb/verb.h"

typedef int verb_fn(int argc, char **argv);
#define NAME(name, doc) #name,
#define DOC(name, doc) doc,
#define FUNCTION(name, doc) ares_verb_##name,
static const char *const names[] = { VERB_LIST(NAME) };
static const char *const docs[] = { VERB_LIST(DOC) };
static verb_fn *const functions[] = { VERB_LIST(FUNCTION) };

static int help(void)
{
    puts("usage: ares-train [VERB] [options]\n");
    for (int i = 0; i < ARES_COUNT(names); i++) printf("  %-11s %s\n", names[i], docs[i]);
    puts("\nares-train VERB --help says more. Reinforcement learning:\n\n  ares-train --config "
         "examples/quickstart/config.yaml [key=value ...]");
    return ARES_OK;
}

/* --ranks N: this program again, N times under mpirun, with the other words. */
static int take_ranks(int *argc, char **argv, int *ranks)
{
    int n = 0;
    *ranks = 0;
    for (int i = 0; i < *argc; i++) {
        const char *value = strncmp(argv[i], "--ranks=", 8) == 0 ? argv[i] + 8 : NULL;
        if (strcmp(argv[i], "--ranks") == 0) {
            if (i + 1 == *argc) return ares_fail(ARES_EUSE, "--ranks needs a number");
            value = argv[++i];
        }
        int64_t count;
        if (!value) argv[n++] = argv[i];
        else if (!ares_parse_i64(ares_view_of(value), &count) || count < 1 || count > 4096)
            return ares_fail(ARES_EUSE, "--ranks = '%s': not a number of processes", value);
        else *ranks = (int)count;
    }
    *argc = n;
    argv[n] = NULL;
    return ARES_OK;
}

static int dispatch(int argc, char **argv, int *exit_code)
{
    *exit_code = -1;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return help();
    if (strcmp(argv[1], "--version") == 0) return puts("ares-train 0.1") < 0 ? ARES_EIO : ARES_OK;
    if (strcmp(argv[1], "__reward") == 0) return ares_reward_child_main(argc - 1, argv + 1);
    int verb = 0, ranks, first = 0;
    bool named =
        argv[1][0] != '-' && argv[1][0] != '+' && argv[1][0] != '~' && !strchr(argv[1], '=');
    if (named) {
        ARES_TRY(
            ares_lookup(ARES_EUSE, "ares-train: verb", argv[1], names, ARES_COUNT(names), &verb));
        first = 1;
    }
    bool configured = verb < 3; /* train, sft, eval run on several ranks */
    if (configured) {
        ARES_TRY(take_ranks(&argc, argv, &ranks));
        if (ranks > 1) return ares_launch(ranks, argc - 1, argv + 1, exit_code);
    }
    argv[first] = (char *)names[verb];
    return functions[verb](argc - first, argv + first);
}

int main(int argc, char **argv)
{
    int exit_code, rc = dispatch(argc, argv, &exit_code);
    if (rc != ARES_OK && *ares_error_message()) fprintf(stderr, "%s\n", ares_error_message());
    if (exit_code >= 0) exit(exit_code);
    if (rc == ARES_EINTERRUPTED) exit(ares_signal_exit_code(ares_signal_pending()));
    exit(rc == ARES_OK ? 0 : ares_error_exit_code(rc));
}
