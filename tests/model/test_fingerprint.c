/* A model's fingerprint: the same for the same weights wherever they lie, another for others. Seen to fail: with names and shapes alone. */
#include "ares/io.h"
#include "ares/model.h"
#include "test.h"

#include <stdio.h>

enum { ROWS = 40, COLUMNS = 64 };

/* Two tensors in a folder of their own, all of their numbers made from the seed. */
static uint64_t fingerprint(const char *folder, const char *name, float seed)
{
    static float x[ROWS * COLUMNS];
    char file[80];
    uint64_t h = 0;
    ares_safetensors_writer *w;
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = seed + (float)i;
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    CHECK_OK(ares_dir_make(test_file(folder)));
    CHECK_OK(ares_safetensors_create(test_file(file), &w));
    ares_safetensors_declare(w, name, ARES_F32, 2, (int64_t[]){ ROWS, COLUMNS });
    ares_safetensors_declare(w, "norm.weight", ARES_F32, 1, (int64_t[]){ 1 });
    CHECK_OK(ares_safetensors_write(w, x, sizeof x));
    CHECK_OK(ares_safetensors_write(w, x, sizeof *x));
    CHECK_OK(ares_safetensors_finish(w));
    CHECK_OK(ares_model_fingerprint(test_file(folder), &h));
    return h;
}

TEST(a_fingerprint_tells_other_weights_and_names)
{
    uint64_t h = fingerprint("a", "embed.weight", 1);
    CHECK(h == fingerprint("b", "embed.weight", 1));
    CHECK(h != fingerprint("c", "embed.weight", 2));
    CHECK(h != fingerprint("d", "lm_head.weight", 1));
    CHECK(ares_model_fingerprint(test_file("nothing"), &h) != ARES_OK);
}
