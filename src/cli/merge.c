/* ares-train merge: a model directory and an adapter as one model directory. */
#include "cli.h"

#include "ares/core.h"
#include "ares/model.h"

int ares_cli_merge(int argc, char **argv)
{
    static const char *const dtypes[] = { "fp32", "bf16", "f16", NULL };
    const char *model = NULL, *adapter = NULL, *out = NULL, *dtype = NULL;
    bool helped;
    const cli_option options[] = {
        CLI_OPTION(TEXT, model, "--model", "DIR",
                   "the base: a model, checkpoint or run directory; one of an adapter is its base "
                   "and its adapter",
                   .required = true),
        CLI_OPTION(TEXT, adapter, "--adapter", "DIR",
                   "an adapter of PEFT's form, or a checkpoint or run that has one", .once = true),
        CLI_OPTION(TEXT, out, "--out", "DIR", "the directory to write, which must not exist",
                   .required = true),
        CLI_OPTION(TEXT, dtype, "--dtype", "fp32|bf16|f16", "type of all tensors (the base's own)",
                   .choices = dtypes),
    };
    const cli_command command = {
        .name = "merge",
        .usage = "--model DIR [--adapter DIR] --out DIR [--dtype TYPE]",
        .about =
            "Writes base + adapter as a whole model (docs/adapters.md): W + scale B A, rounded "
            "once. Other tensors and files are copied.",
        .example = "ares-train merge --model models/SmolLM2-135M-Instruct --adapter runs/p/e --out "
                   "merged",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    ares_merge_report report;
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    ARES_TRY(ares_adapter_merge(model, adapter, out, dtype, &report));
    ares_str line = { 0 };
    ares_str_addf(&line,
                  "%s: %d modules; largest change %.3g; %.2f %% of %lld numbers did not move\n",
                  out, report.modules, report.largest,
                  100.0 * (double)(report.numbers - report.moved) /
                      (double)ARES_MAX(report.numbers, (int64_t)1),
                  (long long)report.numbers);
    int rc = cli_print("merge", &line);
    ares_str_fini(&line);
    return rc;
}
