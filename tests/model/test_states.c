/* Optimizer states by name, models by folder, and weights in more than one file. */
#include <math.h>
#include <stdio.h>

#include "ares/model.h"
#include "test.h"

static bool load_for(const char *variant, ares_dtype storage, ares_dtype states, ares_device *d,
                     ares_model **m)
{
    ares_model_options opt = { .storage = storage,
                               .arithmetic = test_arithmetic,
                               .trainable = true };
    char path[300];
    (void)snprintf(path, sizeof path, "tests/golden/models/%s", variant);
    return CHECK_OK(ares_device_open("cpu", 1, d)) &&
           CHECK_OK(ares_model_load(test_source(path), d, &opt, m)) &&
           CHECK_OK(ares_params_optimizer_alloc(&(*m)->params, states));
}
static bool load(const char *variant, ares_dtype storage, ares_device *d, ares_model **m)
{
    return load_for(variant, storage, ARES_F32, d, m);
}

/* A state's tensor of the file: "<parameter>.<suffix>". */
static const ares_tensor_info *state(const ares_safetensors *s, const ares_param *p,
                                     const char *suffix)
{
    char name[200];
    (void)snprintf(name, sizeof name, "%s.%s", p->name, suffix);
    const ares_tensor_info *t = ares_safetensors_find(s, name);
    if (t) {
        CHECK_EQ(t->dtype, ARES_F32);
        CHECK_EQ(t->rank, p->rank);
        for (int i = 0; i < p->rank; i++) CHECK_EQ(t->shape[i], p->shape[i]);
    }
    return t;
}

/* A state of a parameter (m, v or master of its region): numbers that bf16 holds, too. */
static void fill(const ares_region *r, void *state, const ares_param *p, float first)
{
    if (!state) return;
    char *data = (char *)state + (size_t)p->at * ares_dtype_bytes(r->states);
    ares_matrix to = { data, r->states, p->weight.layout, p->weight.n, p->weight.k };
    int64_t n = (int64_t)p->weight.n * p->weight.k;
    float *rows = ares_malloc((size_t)n * sizeof *rows);
    for (int64_t i = 0; i < n; i++) rows[i] = first + (float)(i % 4) / 4;
    ares_matrix_pack(&to, rows, ARES_F32);
    ares_free(rows);
}

TEST(states_of_the_optimizer_are_saved_by_name_and_load_again)
{
    static const struct {
        const char *variant;
        ares_dtype storage, states;
        bool master;
        ares_dtype arithmetic;
    } cases[] = { { "qwen2_bf16", ARES_BF16, ARES_F32, true, ARES_F32 },
                  { "llama_biases", ARES_BF16, ARES_F32, true, ARES_BF16 },
                  { "qwen2_tied", ARES_BF16, ARES_BF16, true, ARES_BF16 },
                  { "qwen2_bf16", ARES_BF16, ARES_BF16, true, ARES_F32 },
                  { "llama_biases", ARES_F32, ARES_F32, false, ARES_F32 },
                  { "qwen2_tied", ARES_F32, ARES_F32, false, ARES_F32 } };
    for (int c = 0; c < ARES_COUNT(cases); c++) {
        ares_device d, e;
        ares_model *a, *b;
        ares_safetensors *s;
        const char *path = test_file("states.safetensors");
        test_arithmetic = cases[c].arithmetic;
        if (!load_for(cases[c].variant, cases[c].storage, cases[c].states, &d, &a) ||
            !load_for(cases[c].variant, cases[c].storage, cases[c].states, &e, &b))
            return;
        for (int i = 0; i < a->params.n; i++) {
            const ares_param *p = &a->params.list[i];
            const ares_region *r = &a->params.regions[p->region];
            fill(r, r->m, p, (float)(i % 32));
            fill(r, r->v, p, (float)(i % 32) + 32);
            fill(r, r->master, p, -(float)(i % 32));
        }
        REQUIRE_OK(ares_params_optimizer_save(&a->params, path, NULL, NULL));
        REQUIRE_OK(ares_safetensors_open(path, &s));
        CHECK_EQ(ares_safetensors_count(s), a->params.n * (cases[c].master ? 3 : 2));
        for (int i = 0; i < a->params.n; i++) {
            const ares_param *p = &a->params.list[i];
            const ares_tensor_info *m = state(s, p, "m"), *v = state(s, p, "v");
            float first = NAN;
            CHECK(m && v && (state(s, p, "master") != NULL) == cases[c].master);
            if (m) memcpy(&first, m->data, sizeof first);
            CHECK_NEAR(first, i % 32, 0);
            if (v) memcpy(&first, v->data, sizeof first);
            CHECK_NEAR(first, i % 32 + 32, 0);
        }
        ares_safetensors_close(s);
        REQUIRE_OK(ares_params_optimizer_load(&b->params, path));
        CHECK_MEM(b->params.states, a->params.states, a->params.states_bytes);
        ares_str again = { 0 }, want = { 0 };
        REQUIRE_OK(
            ares_params_optimizer_save(&b->params, test_file("again.safetensors"), NULL, NULL));
        CHECK_OK(ares_file_read(path, &want));
        CHECK_OK(ares_file_read(test_file("again.safetensors"), &again));
        if (CHECK_EQ(again.len, want.len)) CHECK_MEM(again.data, want.data, want.len);
        ares_str_fini(&again);
        ares_str_fini(&want);
        ares_model_free(a);
        ares_model_free(b);
        ares_device_close(&d);
        ares_device_close(&e);
        test_arithmetic = ARES_F32;
    }
}

TEST(a_model_is_found_in_its_own_folder_a_checkpoint_and_a_run)
{
    static const char *const folders[] = { "run/checkpoints/step_000001/model",
                                           "run/checkpoints/step_000002/model" };
    ares_str dir = { 0 };
    CHECK_FAIL(ares_model_find(test_file("run"), &dir), ARES_EIO, "no such directory");
    REQUIRE_OK(ares_dir_make(test_file("run")));
    CHECK_FAIL(ares_model_find(test_file("run"), &dir), ARES_EFORMAT, "neither a model");
    REQUIRE_OK(ares_dir_make(test_file("run/checkpoints")));
    CHECK_FAIL(ares_model_find(test_file("run"), &dir), ARES_EFORMAT,
               "the run has no checkpoint yet");
    for (int i = 0; i < ARES_COUNT(folders); i++) {
        ares_str file = { 0 };
        REQUIRE_OK(ares_dir_make(test_file(folders[i])));
        CHECK_OK(
            ares_file_write(ares_path_join(&file, test_file(folders[i]), "config.json"), "{}", 2));
        ares_str_fini(&file);
        CHECK_OK(ares_model_find(test_file("run"), &dir)); /* of the latest checkpoint */
        CHECK_STR(dir.data, test_file(folders[i]));
    }
    CHECK_OK(ares_model_find(test_file("run/checkpoints/step_000001"), &dir));
    CHECK_STR(dir.data, test_file(folders[0]));
    CHECK_OK(ares_model_find(test_file(folders[0]), &dir));
    CHECK_STR(dir.data, test_file(folders[0]));
    ares_str_fini(&dir);
}

/*
 * The test claims that the last parameter has more than 5 GB and puts a folder in the place of its
 * file: saving fails before it reads that much, and the first file is complete.
 */
TEST(a_model_of_more_than_5_gb_is_saved_in_several_files)
{
    ares_device d;
    ares_model *m;
    ares_safetensors *s;
    const char *second = test_file("out/model-00002-of-00002.safetensors");
    if (!load("llama_plain", ARES_F32, &d, &m)) return;
    ares_param *last = &m->params.list[m->params.n - 1];
    int32_t n = last->weight.n;
    REQUIRE_OK(ares_dir_make(second));
    REQUIRE_OK(ares_dir_make(test_file("out/model.safetensors")));
    last->weight.n = (int32_t)(5000000000 / 4 / last->weight.k + 1);
    CHECK_FAIL(ares_model_save(m, test_file("out"), NULL, NULL), ARES_EIO,
               "model-00002-of-00002.safetensors");
    last->weight.n = n;
    if (CHECK_OK(ares_safetensors_open(test_file("out/model-00001-of-00002.safetensors"), &s))) {
        CHECK_EQ(ares_safetensors_count(s), m->params.n - 1);
        for (int i = 0; i < m->params.n; i++)
            CHECK_EQ(ares_safetensors_find(s, m->params.list[i].name) != NULL, i < m->params.n - 1);
        ares_safetensors_close(s);
    }
    CHECK(!ares_file_exists(test_file("out/model.safetensors.index.json")));
    CHECK_OK(ares_model_save(m, test_file("whole"), NULL, NULL)); /* up to 5 GB: one file */
    CHECK(ares_file_exists(test_file("whole/model.safetensors")));
    ares_model_free(m);
    ares_device_close(&d);
}
