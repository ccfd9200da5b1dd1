/* ares-train report: a run, or several, as one page that explains itself. */
#include "cli.h"

#include "ares/look.h"

int ares_cli_report(int argc, char **argv)
{
    ares_report_options o = { 0 };
    bool json = false, helped;
    o.budget_mb = 20;
    const cli_option options[] = {
        CLI_OPTION(TEXT, o.out, "--out", "FILE", "the page (RUN_DIR/report.html)"),
        CLI_OPTION(F64, o.budget_mb, "--budget-mb", "MB",
                   "the file's size at most, in 10^6 bytes; answers that do not fit are left out, "
                   "and the page says how many (20)"),
        CLI_OPTION(FLAG, json, "--json", NULL,
                   "the headline and the verdicts to stdout, a line per run, in place of a page"),
    };
    const cli_command command = {
        .name = "report",
        .usage = "RUN_DIR [RUN_DIR ...] [--out FILE] [--budget-mb MB]\n"
                 "RUN_DIR [RUN_DIR ...] --json",
        .about = "Writes what a run has learnt and whether it is healthy, with its curves, its "
                 "answers token by token, its validation before and after, its times and options, "
                 "as one HTML file that opens from disk and needs nothing else (docs/report.md). A "
                 "run may be under way or have died. A run writes its own at its end "
                 "(trainer.report). Several runs: a table of them, and their curves together.",
        .example = "ares-train report runs/quickstart/aepo\n"
                   "ares-train report runs/study/aepo_1 runs/study/grpo_1 --out study.html",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = CLI_WORDS,
    };
    ares_str text = { 0 };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    if (argc < 2)
        return ares_fail(ARES_EUSE, "report: no run directory is named (see ares-train report "
                                    "--help)");
    if (!(o.budget_mb >= 0.5 && o.budget_mb <= 1000))
        return ares_fail(ARES_EUSE, "report: --budget-mb = %g: a page takes 0.5 to 1000 MB",
                         o.budget_mb);
    if (json && o.out)
        return ares_fail(ARES_EUSE, "report: --json writes no page, so that --out has nothing to "
                                    "name; leave one of them out");
    const char *const *dirs = (const char *const *)argv + 1;
    int rc = json ? ares_report_json(dirs, argc - 1, &text)
                  : ares_report_write(dirs, argc - 1, &o, &text);
    if (rc == ARES_OK && !json) {
        ares_str path = { 0 };
        ares_str_add_z(&path, "report: ");
        cli_add_line(&path, ares_str_view(&text)); /* a name may hold any bytes */
        ares_str_add_char(&path, '\n');
        rc = cli_print("report", &path);
        ares_str_fini(&path);
    } else if (rc == ARES_OK) rc = cli_print("report", &text);
    else if (rc == ARES_EIO && !json && !o.out)
        ares_fail_in(rc, "report: --out FILE writes it elsewhere");
    else ares_fail_in(rc, "report");
    ares_str_fini(&text);
    return rc;
}
