#include "golden.h"

#include <stdlib.h>
#include <unistd.h>

#include "../../src/data/internal.h"

/* A row in a file, as a run reads it; its stored answers, as they are looked for in it. */
GOLDEN(vapor, validate_row)
{
    static const ares_pair_options o = { .chosen_key = "chosen", .rejected_key = "rejected" };
    const ares_data_config cfg = { .prompt_key = "prompt", .answer_key = "answer" };
    char file[] = "/tmp/ares_golden_XXXXXX";
    const char *path = file, *said = "error";
    ares_arena arena = { 0 };
    ares_str line = { 0 };
    ares_dataset *d = NULL;
    ares_view chosen, rejected;
    bool there;
    ares_json_write(&line, g->inputs);
    close(mkstemp(file));
    if (!golden_ok(g, ares_file_write(path, line.data, line.len))) return;
    int rc = dataset_load(&(ares_texts){ &path, 1 }, &cfg, false, &d);
    if (rc == ARES_OK)
        rc = data_pair_texts(ares_dataset_row(d, 0)->json, &o, &arena, &chosen, &rejected, &there);
    if (rc == ARES_OK) said = there ? "ok" : "ok_neutral_preference";
    ares_dataset_free(d);
    ares_arena_fini(&arena);
    ares_str_fini(&line);
    golden_in_single(g);
    golden_text(g, "row", ares_view_of(said), g->expected);
    unlink(path);
}
