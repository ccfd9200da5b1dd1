/*
 * A model's fingerprint: the same for the same weights in any folder, different for other weights;
 * one thing differs at a time. Seen to fail: with names and shapes alone, with only the first bytes
 * of each tensor, without its name, its type, its shape or the second tensor.
 */
#include "ares/io.h"
#include "ares/model.h"
#include "test.h"

#include <stdio.h>

enum { ROWS = 40, COLUMNS = 64, NUMBERS = ROWS * COLUMNS, PARTS = 8 };

typedef struct weights {
    const char *name;
    ares_dtype dtype;
    int rows, columns;
    int first, end;  /* numbers of the first tensor that training has changed: [first, end) */
    uint16_t second; /* the only number of the other one */
} weights;

static const weights usual = { "embed.weight", ARES_BF16, ROWS, COLUMNS, 0, 0, 7 };

static uint64_t fingerprint(const char *folder, weights a)
{
    static uint16_t x[NUMBERS];
    char file[80];
    uint64_t h = 0;
    ares_safetensors_writer *w;
    for (int i = 0; i < NUMBERS; i++) x[i] = (uint16_t)(i + (i >= a.first && i < a.end ? 1 : 0));
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    CHECK_OK(ares_dir_make(test_file(folder)));
    CHECK_OK(ares_safetensors_create(test_file(file), &w));
    ares_safetensors_declare(w, a.name, a.dtype, 2, (int64_t[]){ a.rows, a.columns });
    ares_safetensors_declare(w, "norm.weight", ARES_BF16, 1, (int64_t[]){ 1 });
    CHECK_OK(ares_safetensors_write(w, x, sizeof x));
    CHECK_OK(ares_safetensors_write(w, &a.second, sizeof a.second));
    CHECK_OK(ares_safetensors_finish(w));
    CHECK_OK(ares_model_fingerprint(test_file(folder), &h));
    return h;
}

static void differs(const char *what, weights a)
{
    uint64_t h = fingerprint("usual", usual), other = fingerprint("other", a);
    CHECK_MSG(other != h, "%s differs: both are %016llx", what, (unsigned long long)h);
}

TEST(a_fingerprint_depends_on_no_folder)
{
    CHECK_EQ(fingerprint("a", usual), fingerprint("b", usual));
    uint64_t h;
    CHECK(ares_model_fingerprint(test_file("nothing"), &h) != ARES_OK);
}

TEST(a_fingerprint_tells_weights_that_differ_in_one_part_of_one_tensor)
{
    for (int i = 0; i < PARTS; i++) {
        weights a = usual;
        char what[40];
        snprintf(what, sizeof what, "part %d of %d", i + 1, PARTS);
        a.first = NUMBERS / PARTS * i;
        a.end = a.first + NUMBERS / PARTS;
        differs(what, a);
    }
    weights a = usual;
    a.second++;
    differs("the second tensor", a);
}

TEST(a_fingerprint_tells_names_types_and_shapes)
{
    weights a = usual;
    a.name = "lm_head.weight";
    differs("the name", a);
    a = usual, a.dtype = ARES_F16;
    differs("the type", a);
    a = usual, a.rows = COLUMNS, a.columns = ROWS;
    differs("the shape", a);
}
