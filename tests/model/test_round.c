/*
 * A round, block after block over all its micro-batches, has the bits of one micro-batch after the
 * other: hidden states and every gradient, with weights on the device or in host memory. Seen to
 * fail where the micro-batches of a block went backward in the opposite order, and where a slot was
 * filled with the region before.
 */
#include <stdio.h>

#include "ares/model.h"
#include "test.h"

enum { MICRO = 3, ROWS = 90, SEGMENTS = 4 };

/* Micro-batches of different shapes: one sequence; two; a prompt that two responses share. */
typedef struct round_of {
    int32_t ids[MICRO][ROWS], positions[MICRO][ROWS], out[MICRO][ROWS], start[MICRO][SEGMENTS],
        prefix_len[MICRO][SEGMENTS], prefix_row[MICRO][SEGMENTS];
    ares_packed packed[MICRO];
    float *d_hidden[MICRO];
    int n;
} round_of;

static void segment(round_of *r, int micro, int32_t rows, int32_t prefix)
{
    ares_packed *p = &r->packed[micro];
    int32_t s = p->seg.n++;
    r->prefix_len[micro][s] = prefix;
    for (int32_t i = 0; i < rows; i++, p->rows++) {
        r->ids[micro][p->rows] = (p->rows * 7 + 3 + micro * 11) % 60;
        r->positions[micro][p->rows] = prefix + i;
        if (i % 3 != 1) r->out[micro][p->n_out++] = p->rows;
    }
    r->start[micro][s + 1] = p->rows;
}

static void make_round(round_of *r, int n, int32_t hidden)
{
    *r = (round_of){ .n = n };
    segment(r, 0, 37, 0);
    segment(r, 1, 12, 0);
    segment(r, 1, 70, 0);
    segment(r, 2, 9, 0);
    segment(r, 2, 21, 9);
    segment(r, 2, 5, 9);
    for (int i = 0; i < MICRO; i++) {
        ares_packed *p = &r->packed[i];
        p->ids = r->ids[i];
        p->positions = r->positions[i];
        p->out_rows = r->out[i];
        p->seg.rows = p->rows;
        p->seg.start = r->start[i];
        p->seg.prefix_len = r->prefix_len[i];
        p->seg.prefix_row = r->prefix_row[i];
        r->d_hidden[i] = ares_calloc((size_t)(p->n_out * hidden), sizeof(float));
        for (int32_t k = 0; k < p->n_out * hidden; k++)
            r->d_hidden[i][k] = (float)((k * 13 + i * 5) % 17 - 8) / 64;
    }
}

static void free_round(round_of *r)
{
    for (int i = 0; i < MICRO; i++) ares_free(r->d_hidden[i]);
}

/* What a round has left: its hidden states one after the other, and the arena of gradients. */
typedef struct result {
    float hidden[MICRO * ROWS * 128];
    size_t floats, grads_bytes;
    float *grads;
} result;

static void add_hidden(result *to, const ares_model *m, const ares_packed *p, const void *hidden)
{
    size_t n = (size_t)(p->n_out * m->cfg.hidden);
    REQUIRE(to->floats + n <= (size_t)ARES_COUNT(to->hidden));
    memcpy(to->hidden + to->floats, hidden, n * sizeof *to->hidden);
    to->floats += n;
}

typedef enum { ONE_BY_ONE, ROUND, FORWARD_FIRST } way;

static void compute(const char *path, const round_of *r, ares_keep keep, bool on_host, way how,
                    result *out)
{
    ares_device d;
    ares_model *m;
    ares_workspace *w;
    void *hidden[MICRO];
    ares_model_share share = { .weights_on_host = on_host };
    ares_model_options opt = { .storage = ARES_F32, .trainable = true, .share = &share };
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    REQUIRE_OK(ares_model_load(path, &d, &opt, &m));
    REQUIRE_OK(ares_workspace_new(m, keep, &w));
    ares_model_zero_grad(m);
    if (how == FORWARD_FIRST)
        CHECK_OK(ares_model_forward_round(m, w, r->packed, r->n, false, hidden));
    for (int i = 0; i < r->n && how == ONE_BY_ONE; i++) {
        CHECK_OK(ares_model_forward(m, w, &r->packed[i], hidden));
        add_hidden(out, m, &r->packed[i], hidden[0]);
        CHECK_OK(
            ares_model_backward_round(m, w, &r->packed[i], 1, (const void *[]){ r->d_hidden[i] }));
    }
    if (how != ONE_BY_ONE) {
        CHECK_OK(ares_model_forward_round(m, w, r->packed, r->n, true, hidden));
        for (int i = 0; i < r->n; i++) add_hidden(out, m, &r->packed[i], hidden[i]);
        CHECK_OK(
            ares_model_backward_round(m, w, r->packed, r->n, (const void *const *)r->d_hidden));
    }
    out->grads = ares_malloc(m->grads_bytes);
    out->grads_bytes = m->grads_bytes;
    memcpy(out->grads, m->grads, m->grads_bytes);
    /* nobody may read weights that nobody holds */
    for (int i = 0; i < m->n_params && on_host; i++)
        CHECK((m->params[i].weight.data == NULL) == (m->params[i].rank == 2));
    ares_workspace_free(w);
    ares_model_free(m);
    ares_device_close(&d);
}

static void check_same(const char *path, const round_of *r, const result *want, ares_keep keep,
                       bool on_host, way how)
{
    result *got = ares_calloc(1, sizeof *got);
    compute(path, r, keep, on_host, how, got);
    CHECK_EQ((int64_t)got->grads_bytes, (int64_t)want->grads_bytes);
    CHECK_EQ((int64_t)got->floats, (int64_t)want->floats);
    CHECK_MEM(got->hidden, want->hidden, want->floats * sizeof *want->hidden);
    CHECK_MEM(got->grads, want->grads, want->grads_bytes);
    ares_free(got->grads);
    ares_free(got);
}

TEST(a_round_has_the_bits_of_one_micro_batch_after_the_other)
{
    static const char *const variants[] = { "qwen2_tied", "qwen2_untied", "qwen3_tied_bias" };
    static const int counts[] = { 0, 1, 3 };
    for (int v = 0; v < ARES_COUNT(variants); v++)
        for (int c = 0; c < ARES_COUNT(counts); c++) {
            char path[600];
            round_of r;
            ares_model_config cfg;
            (void)snprintf(path, sizeof path, "%s/%s", test_source("tests/golden/models"),
                           variants[v]);
            REQUIRE_OK(ares_model_config_load(path, &cfg));
            make_round(&r, counts[c], cfg.hidden);
            result *want = ares_calloc(1, sizeof *want);
            compute(path, &r, ARES_KEEP_ALL, false, ONE_BY_ONE, want);
            CHECK(counts[c] == 0 || want->floats > 0);
            check_same(path, &r, want, ARES_KEEP_INPUTS, false, ROUND);
            check_same(path, &r, want, ARES_KEEP_ALL, false, ROUND);
            check_same(path, &r, want, ARES_KEEP_INPUTS, false, FORWARD_FIRST);
            check_same(path, &r, want, ARES_KEEP_ALL, true, ONE_BY_ONE);
            check_same(path, &r, want, ARES_KEEP_INPUTS, true, FORWARD_FIRST);
            ares_free(want->grads);
            ares_free(want);
            free_round(&r);
        }
}
