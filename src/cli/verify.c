/* ares-train verify: a step of a run, made again and compared to the last bit. */
#include "cli.h"

#include <string.h>
#include <time.h>

#include "ares/train.h"

int ares_cli_verify(int argc, char **argv)
{
    ares_verify_options o = { .step = -1, .rows = 64 };
    int64_t ranks = 1; /* main takes it before the verb reads its words */
    bool helped;
    const cli_option options[] = {
        CLI_OPTION(
            I64, o.step, "--step", "N",
            "the step; without it the latest of which the run has its rollouts and the state "
            "that it began with",
            .least = 1, .most = INT64_MAX),
        CLI_OPTION(I64, o.rows, "--rows", "K",
                   "tokens, spread over the step, of which all logits are compared", .least = 0,
                   .most = 4096),
        CLI_RANKS(ranks),
        { .name = "key=value",
          .type = CLI_PASSED,
          .doc =
              "options that change no result, such as trainer.threads=1, and paths of models and "
              "data that have moved" },
    };
    const cli_command command = {
        .name = "verify",
        .usage = "RUN_DIR [--step N] [--rows K] [key=value ...]",
        .about = "Makes a step of a run again, from the state that it began with (the starting "
                 "model, or a kept checkpoint): the same prompts, answers, scores and advantages, "
                 "but no update. Compares what the run has written of it with what comes out, and "
                 "decoding with the training forward, bit for bit. Writes nothing into the run "
                 "directory, also of a run that is under way. Exit code 0: equal; 1: different; 2: "
                 "nothing was compared.",
        .example = "ares-train verify runs/ares/quickstart\n"
                   "ARES_ISA=plain ares-train verify runs/ares/quickstart --step 1 "
                   "trainer.threads=1",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = CLI_WORDS,
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    if (argc < 2)
        return ares_fail(ARES_EUSE,
                         "verify: no run directory is named (see ares-train verify --help)");
    o.run_dir = argv[1];
    o.n_words = argc - 2;
    o.words = (const char *const *)argv + 2;
    ares_str table = { 0 }, safe = { 0 };
    ares_world *world = NULL;
    int rc = ares_world_open(&world);
    if (rc == ARES_OK) {
        ares_log_set(ARES_LOG_ERROR, ares_world_rank(world)); /* what the run was told */
        rc = ares_verify_run(&o, world, &table);
    }
    bool lead = rc != ARES_OK && !world ? true : ares_world_rank(world) == 0;
    if (rc == ARES_OK && lead) ares_str_add_z(&table, "equal\n");
    ares_str why = { 0 }; /* it may hold what a model wrote */
    cli_add_safe(&why, ares_view_of(ares_error_message()));
    cli_add_safe(&safe, ares_str_view(&table));
    int printed = safe.len ? cli_print("verify", &safe) : ARES_OK;
    if (rc == ARES_OK) rc = printed;
    else (void)ares_fail(rc, "%s", why.len ? why.data : "");
    ares_str_fini(&why);
    ares_str_fini(&table);
    ares_str_fini(&safe);
    /* a failure on one rank must not leave the others waiting; rank 0 reports it first */
    if (rc != ARES_OK && world && ares_world_size(world) > 1) {
        if (!lead) nanosleep(&(struct timespec){ 0, 300000000 }, NULL);
        ares_world_abort(world, rc);
    }
    if (world) ares_world_close(world);
    return rc;
}
