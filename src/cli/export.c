/* ares-train export: a model directory as one file that llama.cpp and its kin load. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include "ares/core.h"
#include "ares/model.h"

int ares_cli_export(int argc, char **argv)
{
    static const char *const types[] = { "f32", "f16", "bf16", "q8_0", NULL };
    const char *model = NULL, *adapter = NULL, *path = NULL, *type = "f32";
    bool force = false, helped;
    const cli_option options[] = {
        CLI_OPTION(TEXT, model, "--model", "DIR", "a model, checkpoint or run directory",
                   .required = true),
        CLI_OPTION(TEXT, adapter, "--adapter", "DIR",
                   "an adapter (LoRA) to add to its weights: a PEFT directory, checkpoint or run",
                   .once = true),
        CLI_OPTION(TEXT, path, "--gguf", "FILE", "the file to write", .required = true),
        CLI_OPTION(TEXT, type, "--type", "f32|f16|bf16|q8_0",
                   "of matrices (f32); f32 alone promises the same answers", .choices = types),
        CLI_OPTION(FLAG, force, "--force", NULL, "replace a file that is there"),
    };
    const cli_command command = {
        .name = "export",
        .usage = "--model DIR --gguf FILE [options]",
        .about = "Writes the model with its tokenizer and chat template as one GGUF file "
                 "(docs/export.md), a run of an adapter as its base with the adapter added. Llama, "
                 "Qwen 2 and Qwen 3.",
        .example = "ares-train export --model runs/quickstart/aepo --gguf aepo.gguf --type q8_0",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    if (path[strlen(path) - 1] == '/' || ares_dir_exists(path))
        return ares_fail(ARES_EUSE, "export: --gguf = '%s': a folder; name a file", path);
    if (!force && ares_file_exists(path))
        return ares_fail(ARES_EUSE,
                         "export: --gguf = '%s': is there; name another file, or add "
                         "--force",
                         path);
    ARES_TRY(ares_gguf_export(model, adapter, type, path));
    ares_str line = { 0 };
    ares_str_addf(&line, "%s: %s\n", path, type);
    int rc = cli_print("export", &line);
    ares_str_fini(&line);
    return rc;
}
