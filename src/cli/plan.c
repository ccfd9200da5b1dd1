/* ares-train plan: what a run would hold and send, from its configuration and config.json alone. */
#include <string.h>

#include "ares/train.h"
#include "verb.h"

typedef struct job {
    int64_t ranks;
    double memory, tflops, link;
    bool json;
} job;

static int print_plan(const job *j, ares_config *cfg, const ares_train_config *c)
{
    ares_plan_options o = {
        .memory = j->memory, .flops = j->tflops * 1e12, .link = j->link * 1e9, .json = j->json
    };
    o.ranks = j->ranks ? (int)j->ranks : ares_train_named_ranks(c);
    o.local_ranks = o.ranks;
    if (c->published.nnodes != ARES_NULL_I64)
        o.local_ranks = ARES_MAX(1, o.ranks / (int)c->published.nnodes);
    ares_str text = { 0 };
    ARES_TRY(ares_train_config_check(cfg, c, o.ranks));
    int rc = ares_train_plan(cfg, c, &o, &text);
    if (text.len && verb_print("plan", &text) != ARES_OK) rc = ARES_EIO;
    ares_str_fini(&text);
    return rc;
}

int ares_verb_plan(int argc, char **argv)
{
    job j = { 0 };
    bool helped;
    const verb_option options[] = {
        { .name = "--config",
          .type = VERB_PASSED,
          .value = "FILE",
          .doc = "YAML; several are read from left to right" },
        { .name = "key=value", .type = VERB_PASSED, .doc = "overrides, as in training" },
        VERB_OPTION(I64, j.ranks, "--ranks", "N",
                    "processes of the run; none are started (default: as trainer.n_gpus_per_node "
                    "says)",
                    .least = 1, .most = 4096),
        VERB_OPTION(F64, j.memory, "--memory", "BYTES",
                    "of a rank: a card's, or a share of the machine's (default: of this machine)"),
        VERB_OPTION(F64, j.tflops, "--tflops", "X",
                    "what a rank computes in a second, for the time of an update (default: 600 on "
                    "a card, 0.2 on the CPU)"),
        VERB_OPTION(F64, j.link, "--link-gb", "X",
                    "what a rank sends in a second (default: 370 on a card, 2 on the CPU)"),
        VERB_OPTION(FLAG, j.json, "--json", NULL, "print JSON instead of a table"),
    };
    const verb_command command = {
        .name = "plan",
        .usage = "--config FILE [key=value ...] [--ranks N] [--memory BYTES] [--json]",
        .about = "Prints the bytes that each rank of a run holds, by owner and phase, the longest "
                 "row and the largest micro-batch that fit, and what an update sends. It reads the "
                 "configuration and config.json and loads no weights. Fails where the run does not "
                 "fit, and names the options with which it would (docs/ranks.md).",
        .example = "ares-train plan --config examples/quickstart/config.yaml\n"
                   "ares-train plan --config run.yaml --ranks 8 --memory 149e9 --json",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = VERB_OVERRIDES,
    };
    ares_train_config c;
    ARES_TRY(verb_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    memset(&c, 0, sizeof c);
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, argc - 1, (const char *const *)argv + 1);
    bool unread = ares_config_fault_count(cfg) > 0;
    ares_config_resolve(cfg);
    int rc = unread ? ares_config_finish(cfg) : print_plan(&j, cfg, &c);
    ares_config_free(cfg);
    return rc;
}
