/* Stretches of regions as rectangles of files, and files that several ranks write. */
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"
#include "test.h"

/* ---------------- rectangles */
typedef struct seen {
    const ares_model *m;
    int region;
    uint8_t *in_files,
        *in_memory;        /* how often each number was met: of all tensors, of the region */
    const int64_t *first;  /* of each parameter in in_files */
    int64_t partial, last; /* rectangles that are no whole rows or panels; the last number */
} seen;

/* Where the number stands in its region, by the definition of the layout. */
static int64_t place(const ares_param *p, int64_t row, int64_t column)
{
    int64_t k = p->weight.k, even = (k + 1) / 2 * 2;
    if (p->weight.layout == ARES_PANEL32_PAIRS)
        return p->at + row / 32 * 32 * even + column / 2 * 64 + row % 32 * 2 + 1 - column % 2;
    return p->at + (p->weight.layout == ARES_ROWS ? row * k + column
                                                  : row / 32 * 32 * k + column * 32 + row % 32);
}

static void meet(void *ctx, const ares_param *p, int64_t row, int64_t rows, int64_t column,
                 int64_t columns, int64_t at)
{
    seen *s = ctx;
    int64_t k = p->weight.k, first = s->first[p - s->m->params.list];
    CHECK_EQ(p->region, s->region);
    if (!CHECK(rows > 0 && columns > 0 && row + rows <= p->weight.n && column + columns <= k))
        return;
    CHECK_EQ(place(p, row, column), p->weight.layout == ARES_PANEL32_PAIRS ? at + 1 : at);
    CHECK(first + row * k + column > s->last); /* in the order of files */
    s->last = first + row * k + column;
    s->partial += columns < k;
    for (int64_t i = row; i < row + rows; i++)
        for (int64_t j = column; j < column + columns; j++) {
            s->in_files[first + i * k + j]++;
            s->in_memory[place(p, i, j)]++;
        }
}

/* How many of n numbers were not met exactly `times` times. */
static int64_t wrong(const uint8_t *n_met, int64_t n, int times)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += n_met[i] != times;
    return bad;
}

/* Cuts every region for 1 to 9 ranks and looks at the rectangles of all of them. */
static void check_cuts(const ares_model *m)
{
    int64_t *first = ares_calloc((size_t)m->params.n + 1, sizeof *first), total;
    for (int i = 0; i < m->params.n; i++)
        first[i + 1] = first[i] + (int64_t)m->params.list[i].weight.n * m->params.list[i].weight.k;
    total = first[m->params.n];
    for (int ranks = 1; ranks <= 9; ranks++) {
        uint8_t *in_files = ares_calloc((size_t)total, 1);
        for (int i = 0; i < m->params.n_regions; i++) {
            const ares_region *r = &m->params.regions[i];
            seen s = { m, i, in_files, ares_calloc((size_t)r->elements, 1), first, 0, -1 };
            /* as for that many ranks, but small models are cut too, inside rows and panels */
            int64_t share = (r->elements / ranks + 63) / 64 * 64;
            for (int64_t at = 0; at < r->elements; at += share) {
                s.partial = 0;
                pieces_of_region(&m->params, i, at, ARES_MIN(share, r->elements - at), meet, &s);
                CHECK(s.partial <= 2);
            }
            for (int p = 0; p < m->params.n; p++) {
                const ares_param *x = &m->params.list[p];
                for (int64_t e = 0; x->region == i && e < first[p + 1] - first[p]; e++)
                    s.in_memory[place(x, e / x->weight.k, e % x->weight.k)]--;
            }
            CHECK_EQ(wrong(s.in_memory, r->elements, 0), 0);
            ares_free(s.in_memory);
        }
        CHECK_EQ(wrong(in_files, total, 1), 0);
        ares_free(in_files);
    }
    ares_free(first);
}

TEST(rectangles_of_all_ranks_hold_every_number_once)
{
    static const char *const variants[] = { "qwen2_tied",   "qwen2_untied",    "qwen2_bf16",
                                            "qwen3_untied", "qwen3_tied_bias", "llama_biases",
                                            "llama_plain",  "llama_gqa_9_3" };
    for (int i = 0; i < ARES_COUNT(variants); i++)
        for (int c = 0; c < 6; c++) {
            ares_device d;
            ares_model *m;
            ares_model_config cfg;
            char path[300];
            (void)snprintf(path, sizeof path, "tests/golden/models/%s", variants[i]);
            REQUIRE_OK(ares_model_config_load(test_source(path), &cfg));
            REQUIRE_OK(ares_device_open("cpu", 1, &d));
            ares_kernels table = *d.k;
            table.layout = c % 2 && c < 4 ? ARES_ROWS : ARES_PANEL32;
            d.k = &table;
            bool pairs = c > 3;
            if (pairs) cfg.intermediate |= 1; /* odd: the last input of down has no partner */
            ares_model_options opt = { .storage = pairs ? ARES_BF16 : ARES_F32,
                                       .arithmetic = pairs ? ARES_BF16 : ARES_F32,
                                       .value_head = c / 2 % 2 };
            if (CHECK_OK(ares_model_new(&cfg, &d, &opt, 1, &m))) check_cuts(m);
            ares_model_free(m);
            ares_device_close(&d);
        }
}

/* ---------------- files of several ranks */
static void fill(void *state, int64_t n, uint64_t stream)
{
    float *x = state;
    ares_rng_key key = ares_rng_sub(ares_rng_root(1, ARES_RNG_TEST), stream, 0);
    for (int64_t i = 0; i < n; i++) x[i] = (float)ares_rng_normal(key, (uint64_t)i);
}

/* Regions of several chunks, and of one; the last panels of some are not full. */
static bool open_model(ares_device *d, ares_model **m)
{
    ares_model_config cfg;
    ares_model_options opt = { .storage = ARES_BF16, .arithmetic = ARES_BF16, .trainable = true };
    if (!CHECK_OK(ares_model_config_load(test_source("tests/golden/models/qwen2_untied"), &cfg)) ||
        !CHECK_OK(ares_device_open("cpu", 1, d)))
        return false;
    cfg.vocab = 3001;
    cfg.intermediate = 2101; /* odd: the last of them has no partner */
    if (!CHECK_OK(ares_model_new(&cfg, d, &opt, 5, m)) ||
        !CHECK_OK(ares_params_optimizer_alloc(&(*m)->params, ARES_F32)))
        return false;
    for (int i = 0; i < (*m)->params.n_regions; i++) {
        const ares_region *r = &(*m)->params.regions[i];
        fill(r->m, r->own, (uint64_t)i * 3);
        fill(r->v, r->own, (uint64_t)i * 3 + 1);
        if (r->master) fill(r->master, r->own, (uint64_t)i * 3 + 2);
    }
    return true;
}

static void save_in(const ares_model *m, const char *dir, const ares_writers *by, uint64_t sums[2])
{
    ares_str path = { 0 };
    CHECK_OK(ares_model_save(m, ares_path_join(&path, dir, "model"), by, &sums[0]));
    CHECK_OK(ares_params_optimizer_save(
        &m->params, ares_path_join(&path, dir, "optimizer.safetensors"), by, &sums[1]));
    ares_str_fini(&path);
}

/* Training goes on before anything is written, and must not be seen in the files. */
static void write_behind(ares_model *m, ares_write_queue *behind)
{
    const ares_region *r = &m->params.regions[1];
    uint32_t *of_m = r->m, *of_weights = r->weights;
    of_m[0] ^= 1, of_weights[0] ^= 1;
    ares_write_queue_begin(behind);
    CHECK_OK(ares_write_queue_end(behind));
    of_m[0] ^= 1, of_weights[0] ^= 1;
}

static void save_together(ares_world *w, ares_model *m, const char *dir)
{
    static const char *const files[] = { "model/config.json", "model/model.safetensors",
                                         "optimizer.safetensors" };
    uint64_t alone[2], sums[2], again[2];
    char own[400], all[400];
    (void)snprintf(own, sizeof own, "%s/alone_%d", dir, ares_world_rank(w));
    REQUIRE_OK(ares_dir_make(own));
    save_in(m, own, NULL, alone);
    CHECK_OK(ares_params_sum(&m->params, w, &again[0], &again[1]));
    CHECK_EQ(again[0], alone[0]);
    CHECK_EQ(again[1], alone[1]);
    for (int way = 0; way < 3; way++) { /* sent to rank 0; by each rank; by a thread of each */
        const ares_writers by = { w, way > 0, way == 2 ? ares_write_queue_new() : NULL };
        (void)snprintf(all, sizeof all, "%s/together_%d", dir, way);
        CHECK_OK(ares_dir_make(all));
        save_in(m, all, &by, sums);
        if (by.behind) write_behind(m, by.behind);
        CHECK_OK(ares_world_share_error(w, ARES_OK)); /* all have written */
        CHECK_EQ(sums[0], alone[0]);
        CHECK_EQ(sums[1], alone[1]);
        for (int f = 0; f < ARES_COUNT(files); f++)
            CHECK_EQ(test_shell(NULL, "cmp '%s/%s' '%s/%s'", own, files[f], all, files[f]), 0);
    }
}

/* Files of one rank, opened by ranks of which `size` share the model, and saved again. */
static void load_and_save(ares_world *w, ares_device *d, const char *dir, ares_sharing how,
                          int size)
{
    static const char *const files[] = { "model/model.safetensors", "optimizer.safetensors" };
    const ares_writers by = { w, true, NULL };
    ares_group *group, *replicas;
    ares_model *m;
    uint64_t sums[2];
    ares_str path = { 0 };
    char again[400];
    (void)snprintf(again, sizeof again, "%s/again_%d_%d", dir, (int)how, size);
    REQUIRE_OK(ares_group_open(w, d, size, 1, &group));
    REQUIRE_OK(ares_group_open(w, d, ares_world_size(w) / size, size, &replicas));
    ares_model_share share = { .group = group, .replicas = replicas, .how = how };
    ares_model_options opt = {
        .storage = ARES_BF16, .arithmetic = ARES_BF16, .trainable = true, .share = &share
    };
    CHECK_OK(ares_dir_make(again));
    if (CHECK_OK(ares_model_load(ares_path_join(&path, dir, "alone_0/model"), d, &opt, &m)) &&
        CHECK_OK(ares_params_optimizer_alloc(&m->params, ARES_F32)) &&
        CHECK_OK(ares_params_optimizer_load(
            &m->params, ares_path_join(&path, dir, "alone_0/optimizer.safetensors"))))
        save_in(m, again, &by, sums);
    CHECK_OK(ares_world_share_error(w, ARES_OK));
    for (int f = 0; f < ARES_COUNT(files); f++)
        CHECK_EQ(test_shell(NULL, "cmp '%s/alone_0/%s' '%s/%s'", dir, files[f], again, files[f]),
                 0);
    ares_model_free(m);
    ares_group_close(replicas);
    ares_group_close(group);
    ares_str_fini(&path);
}

TEST_MPI(files_that_ranks_write_together_are_those_of_one)
{
    if (!test_in_mpi()) {
        setenv("ARES_TEST_DIR", test_file("."), 1);
        for (int ranks = 2; ranks <= 4; ranks++)
            (void)test_as_ranks(ranks, "files_that_ranks_write_together_are_those_of_one");
        return;
    }
    ares_world *w;
    ares_device d;
    ares_model *m;
    char dir[300];
    REQUIRE_OK(ares_world_open(&w));
    (void)snprintf(dir, sizeof dir, "%s/%d_ranks", getenv("ARES_TEST_DIR"), ares_world_size(w));
    if (open_model(&d, &m)) {
        save_together(w, m, dir);
        int ranks = ares_world_size(w);
        for (int size = ranks; size > 1; size /= 2) { /* 2; 3; 4 and 2 */
            load_and_save(w, &d, dir, ARES_SHARE_STATES, size);
            load_and_save(w, &d, dir, ARES_SHARE_ALL, size);
        }
        ares_model_free(m);
        ares_device_close(&d);
    }
    ares_world_close(w);
}
