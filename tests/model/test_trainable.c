/*
 * A part of a model is trained: it has the gradients that it has when all is trained, bit for bit,
 * and the rest has neither gradients nor states, wherever weights lie. Seen to fail where a region
 * kept the mark `adjacent` behind a frozen parameter, where a frozen weight took the gradient of
 * its bias along, and where the backward ended a block too early.
 */
#include <stdio.h>
#include <string.h>

#include "ares/kernels.h"
#include "ares/model.h"
#include "test.h"

enum { ROWS = 41, MOST = 4 };

typedef struct choice {
    const char *words[MOST];
} choice;

static ares_texts texts_of(const choice *c)
{
    ares_texts t = { .items = c->words };
    while (t.count < MOST && c->words[t.count]) t.count++;
    return t;
}

/* The CPU's functions; products going back are counted. */
static ares_kernels table;
static void (*product_back)(ares_device *d, const ares_linear_backward_args *a, int n);
static int products;

static void counted(ares_device *d, const ares_linear_backward_args *a, int n)
{
    products += n;
    product_back(d, a, n);
}

/* What one pass leaves: gradients [n] by parameter, row-major; NULL: there is none. */
typedef struct result {
    ares_device d;
    ares_model *m;
    float **grad;
    int products;
} result;

static const char *path_of(const char *variant)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", test_source("tests/golden/models"), variant);
    return path;
}

static void open_model(const char *variant, const choice *c, bool value_head, bool on_host,
                       ares_dtype storage, result *r)
{
    const ares_model_share share = { .weights_on_host = on_host };
    ares_model_options opt = { .storage = test_arithmetic == ARES_BF16 ? ARES_BF16 : storage,
                               .arithmetic = test_arithmetic,
                               .trainable = true,
                               .value_head = value_head,
                               .share = &share };
    if (c) opt.trained = texts_of(c);
    *r = (result){ 0 };
    REQUIRE_OK(ares_device_open("cpu", 2, &r->d));
    table = *r->d.k;
    product_back = table.linear_backward;
    table.linear_backward = counted;
    r->d.k = &table;
    REQUIRE_OK(ares_model_load(path_of(variant), &r->d, &opt, &r->m));
    REQUIRE_OK(ares_params_zero_grad(&r->m->params));
}

/* Some derivatives of the head, where it is trained. */
static void write_head_gradient(ares_model *m)
{
    const ares_matrix *g = m->value ? &m->value->grad : ares_model_head_grad(m);
    ares_region_grad(&m->params, ares_model_head_region(m));
    for (int i = 0; g && g->data && i < 32; i++)
        ((float *)g->data)[i] += (float)(i * 7 % 11 - 5) / 32;
}

/* A pass over two micro-batches, forward and back. */
static void train(const char *variant, const choice *c, bool value_head, bool on_host,
                  ares_keep keep, result *r)
{
    int32_t ids[ROWS], positions[ROWS], out[ROWS], start[] = { 0, ROWS };
    ares_workspace *w;
    void *hidden[2];
    open_model(variant, c, value_head, on_host, ARES_F32, r);
    ares_model *m = r->m;
    ares_packed packed[2];
    float *d_hidden = ares_calloc((size_t)(ROWS * m->cfg.hidden), sizeof *d_hidden);
    for (int i = 0; i < ROWS; i++) {
        ids[i] = (i * 7 + 3) % 60;
        positions[i] = out[i] = i;
    }
    for (int i = 0; i < ROWS * m->cfg.hidden; i++) d_hidden[i] = (float)(i * 13 % 17 - 8) / 64;
    packed[0] = (ares_packed){ .rows = ROWS,
                               .n_out = ROWS,
                               .ids = ids,
                               .positions = positions,
                               .out_rows = out,
                               .seg = { .n = 1, .rows = ROWS, .start = start } };
    packed[1] = packed[0];
    packed[1].n_out = 11;
    REQUIRE_OK(ares_workspace_new(m, keep, &w));
    CHECK_OK(ares_model_forward_round(m, w, packed, 2, true, hidden));
    write_head_gradient(m);
    products = 0;
    CHECK_OK(
        ares_model_backward_round(m, w, packed, 2, (const void *const[]){ d_hidden, d_hidden }));
    r->products = products;
    ares_params_join_embed_grad(&m->params);
    r->grad = ares_calloc((size_t)m->params.n, sizeof *r->grad);
    for (int i = 0; i < m->params.n; i++) {
        const ares_matrix *g = &m->params.list[i].grad;
        if (!g->data) continue;
        r->grad[i] = ares_malloc((size_t)(g->n * (int64_t)g->k) * sizeof(float));
        ares_matrix_unpack(g, r->grad[i], ARES_F32);
    }
    ares_workspace_free(w);
    ares_free(d_hidden);
}

static void close_result(result *r)
{
    for (int i = 0; r->grad && i < r->m->params.n; i++) ares_free(r->grad[i]);
    ares_free(r->grad);
    ares_model_free(r->m);
    ares_device_close(&r->d);
}

static void check_same(const result *want, const result *got, const char *what, int *trained)
{
    const ares_params *ps = &got->m->params;
    *trained = 0;
    for (int i = 0; i < ps->n; i++) {
        const ares_param *p = &ps->list[i];
        CHECK_EQ(p->region >= ps->n_regions, got->grad[i] == NULL);
        if (!got->grad[i]) continue;
        size_t bytes = (size_t)(p->weight.n * (int64_t)p->weight.k) * sizeof(float);
        CHECK_MSG(memcmp(got->grad[i], want->grad[i], bytes) == 0, "%s: the gradient of %s", what,
                  p->name);
        ++*trained;
    }
}

TEST_BITS(what_is_trained_has_the_gradients_that_it_has_when_all_is)
{
    static const struct {
        const char *variant;
        bool value_head;
        choice choice;
        int trained; /* parameters; -1: all */
    } cases[] = {
        { "qwen2_tied", false, { { ".*" } }, -1 },
        { "qwen2_tied", false, { { "embed_tokens" } }, 1 },
        { "qwen2_tied", false, { { "q_proj" } }, 4 },
        { "qwen2_tied", false, { { "k_proj.weight", "up_proj" } }, 4 },
        { "qwen2_tied", false, { { "q_proj.bias", "v_proj" } }, 6 },
        { "qwen2_tied", false, { { "bias$" } }, 6 },
        { "qwen2_tied", false, { { "^model\\.layers\\.1\\." } }, 12 },
        { "qwen2_tied", false, { { "layers\\.0\\.mlp", "norm" } }, 8 },
        { "qwen2_untied", false, { { "lm_head" } }, 1 },
        { "qwen2_untied", false, { { "embed_tokens", "v_proj" } }, 5 },
        { "qwen3_tied_bias", true, { { "score" } }, 2 },
        { "qwen3_tied_bias", true, { { "score.bias", "k_norm", "down" } }, -2 },
        { "llama_biases", false, { { "o_proj", "gate_proj.bias" } }, 6 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        result want, got;
        int trained;
        train(cases[i].variant, NULL, cases[i].value_head, false, ARES_KEEP_ALL, &want);
        for (int way = 0; way < 4; way++) {
            train(cases[i].variant, &cases[i].choice, cases[i].value_head, way & 1,
                  way & 2 ? ARES_KEEP_INPUTS : ARES_KEEP_ALL, &got);
            check_same(&want, &got, cases[i].choice.words[0], &trained);
            if (cases[i].trained > 0) CHECK_EQ(trained, cases[i].trained);
            if (cases[i].trained == -1) CHECK_EQ(trained, got.m->params.n);
            close_result(&got);
        }
        close_result(&want);
    }
}

TEST(naming_all_parameters_lays_a_model_out_as_naming_none)
{
    static const choice all = { { ".*" } };
    result a, b;
    open_model("qwen3_tied_bias", NULL, true, false, ARES_F32, &a);
    open_model("qwen3_tied_bias", &all, true, false, ARES_F32, &b);
    const ares_params *x = &a.m->params, *y = &b.m->params;
    CHECK_EQ(y->n_regions, x->n_regions);
    CHECK_EQ(y->n_frozen, 0);
    CHECK_EQ((int64_t)y->weights_bytes, (int64_t)x->weights_bytes);
    CHECK_MEM(y->weights, x->weights, x->weights_bytes);
    for (int i = 0; i < x->n; i++) {
        CHECK_EQ(y->list[i].region, x->list[i].region);
        CHECK_EQ(y->list[i].at, x->list[i].at);
        CHECK_EQ(y->list[i].adjacent, x->list[i].adjacent);
    }
    close_result(&a);
    close_result(&b);
}

TEST(a_backward_ends_below_the_first_block_with_anything_to_train)
{
    enum { OF_BLOCK = 8 }; /* products; that of down goes back in two halves */
    static const struct {
        choice choice;
        int lowest, products;
    } cases[] = {
        { { { ".*" } }, 0, 2 * OF_BLOCK },
        { { { "embed_tokens" } }, 0, 2 * (OF_BLOCK - 1) },
        { { { "layers\\.0\\.input_layernorm" } }, 0, 2 * (OF_BLOCK - 1) },
        { { { "layers\\.1\\." } }, 1, OF_BLOCK },
        { { { "layers\\.1\\.self_attn.q_proj.bias" } }, 1, OF_BLOCK - 1 },
        { { { "lm_head" } }, 2, 0 },
        { { { "^model.norm", "lm_head" } }, 2, 0 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        result r;
        train("qwen2_untied", &cases[i].choice, false, false, ARES_KEEP_ALL, &r);
        CHECK_EQ(r.m->cfg.layers, 2);
        CHECK_EQ(r.m->lowest, cases[i].lowest);
        CHECK_EQ(r.products, 2 * cases[i].products); /* of two micro-batches */
        close_result(&r);
    }
}

/* The matrix, or the vector, that is listed before this one. */
static const ares_param *neighbour(const ares_params *ps, const ares_param *p)
{
    const ares_param *q = p - 1;
    while (q > ps->list && (q->rank > 1) != (p->rank > 1)) q--;
    return q;
}

TEST(what_rests_has_its_own_place_and_neither_gradients_nor_states)
{
    static const char *const variants[] = { "qwen2_tied", "qwen2_bf16", "qwen2_5_vl_flat" };
    static const choice choices[] = { { { "k_proj", "gate_proj" } },
                                      { { "layers\\.1\\.", "norm" } },
                                      { { "bias" } } };
    for (int c = 0; c < ARES_COUNT(variants) * ARES_COUNT(choices); c++) {
        result r;
        const char *variant = variants[c / ARES_COUNT(choices)];
        bool bf16 = strcmp(variant, "qwen2_bf16") == 0;
        open_model(variant, &choices[c % ARES_COUNT(choices)], false, false,
                   bf16 ? ARES_BF16 : ARES_F32, &r);
        const ares_params *ps = &r.m->params;
        REQUIRE_OK(ares_params_optimizer_alloc(&r.m->params, ARES_F32));
        int64_t states = 0;
        CHECK(ps->n_frozen > 0 && !ps->regions[ps->n_regions - 1].decay);
        for (int i = 0; i < ps->n_regions + ps->n_frozen; i++) {
            const ares_region *x = &ps->regions[i];
            uint8_t *owners = ares_calloc((size_t)x->elements + 1, 1);
            const ares_param *before = NULL; /* of the region */
            if (i < ps->n_regions) states += x->elements * (x->dtype == ARES_BF16 ? 12 : 8);
            for (int k = 0; k < ps->n; k++) {
                const ares_param *p = &ps->list[k];
                if (p->region != i) continue;
                CHECK_EQ(p->rank > 1, x->decay);
                if (!CHECK(p->at >= 0 && p->at + p->elements <= x->elements)) break;
                /* beside the parameter that a product reads with it, or where a line begins */
                if (!p->adjacent) CHECK_EQ(p->at % 128, 0);
                else if (CHECK(before && before == neighbour(ps, p)))
                    CHECK_EQ(p->at, before->at + before->elements);
                before = p;
                for (int64_t e = 0; e < p->elements; e++) owners[p->at + e]++;
                CHECK(p->weight.data ==
                      (char *)x->weights + (size_t)p->at * ares_dtype_bytes(x->dtype));
                CHECK(p->grad.data == (i < ps->n_regions ? x->grad + p->at : NULL));
                CHECK_EQ(x->m == NULL, i >= ps->n_regions);
            }
            for (int64_t e = 0; e < x->elements; e++)
                if (!CHECK(owners[e] <= 1)) break;
            ares_free(owners);
        }
        CHECK_EQ((int64_t)ps->states_bytes, states);
        close_result(&r);
    }
}

TEST(an_optimizers_file_holds_what_is_trained_and_fits_that_alone)
{
    static const choice some = { { "layers\\.1\\." } }, more = { { "layers" } },
                        fewer = { { "layers\\.1\\.mlp" } };
    result a, b;
    ares_safetensors *s;
    const char *path = test_file("states.safetensors");
    open_model("qwen2_tied", &some, false, false, ARES_F32, &a);
    REQUIRE_OK(ares_params_optimizer_alloc(&a.m->params, ARES_F32));
    REQUIRE_OK(ares_params_optimizer_save(&a.m->params, path, NULL, NULL));
    REQUIRE_OK(ares_safetensors_open(path, &s));
    CHECK_EQ(ares_safetensors_count(s), 2 * 12);
    for (int64_t i = 0; i < ares_safetensors_count(s); i++)
        CHECK(strstr(ares_safetensors_at(s, i)->name, "layers.1."));
    ares_safetensors_close(s);
    CHECK_OK(ares_params_optimizer_load(&a.m->params, path));
    open_model("qwen2_tied", &more, false, false, ARES_F32, &b);
    REQUIRE_OK(ares_params_optimizer_alloc(&b.m->params, ARES_F32));
    CHECK_FAIL(ares_params_optimizer_load(&b.m->params, path), ARES_EFORMAT,
               "its run trained other parameters");
    close_result(&b);
    open_model("qwen2_tied", &fewer, false, false, ARES_F32, &b);
    REQUIRE_OK(ares_params_optimizer_alloc(&b.m->params, ARES_F32));
    CHECK_FAIL(ares_params_optimizer_load(&b.m->params, path), ARES_EFORMAT,
               "has states of 'model.layers.1.input_layernorm.weight', which model.trainable");
    close_result(&b);
    close_result(&a);
}

/* Stored in bf16, a model's files round norms, of which memory has more digits. */
TEST(norms_that_rest_come_back_from_a_checkpoint_of_bf16_unrounded)
{
    static const choice some = { { "layers\\.1\\.mlp" } };
    result a, b;
    const char *path = test_file("states.safetensors");
    open_model("qwen2_bf16", &some, false, false, ARES_BF16, &a);
    open_model("qwen2_bf16", &some, false, false, ARES_BF16, &b);
    REQUIRE_OK(ares_params_optimizer_alloc(&a.m->params, ARES_F32));
    REQUIRE_OK(ares_params_optimizer_alloc(&b.m->params, ARES_F32));
    float *norm = a.m->final_norm->weight.data, *loaded = b.m->final_norm->weight.data;
    norm[0] = 1.00390625f + 0x1p-20f;
    REQUIRE_OK(ares_params_optimizer_save(&a.m->params, path, NULL, NULL));
    REQUIRE_OK(ares_params_optimizer_load(&b.m->params, path));
    CHECK_NEAR(loaded[0], norm[0], 0);
    close_result(&a);
    close_result(&b);
}

TEST_BITS(a_slice_is_filled_from_a_model_of_which_a_part_is_trained)
{
    static const choice some = { { "k_proj", "layers\\.1\\.mlp" } };
    for (int on_host = 0; on_host < 2; on_host++) {
        result r;
        ares_model *slice;
        open_model("qwen2_untied", &some, false, on_host, ARES_F32, &r);
        REQUIRE_OK(ares_model_slice(r.m, NULL, &slice));
        REQUIRE_OK(ares_model_slice_fill(slice, r.m));
        CHECK_EQ(slice->params.n, r.m->params.n);
        for (int i = 0; i < slice->params.n; i++) {
            const ares_param *to = &slice->params.list[i], *from = &r.m->params.list[i];
            ares_region_load(&r.m->params, from->region);
            CHECK_MEM(to->weight.data, from->weight.data,
                      (size_t)from->elements * ares_dtype_bytes(from->weight.dtype));
            ares_region_unload(&r.m->params, from->region);
        }
        ares_model_free(slice);
        close_result(&r);
    }
}

TEST(an_expression_that_names_nothing_is_refused_with_what_was_meant)
{
    static const struct {
        const char *variant, *expression;
        bool value_head, train_tower;
        const char *says; /* NULL: it is accepted */
    } cases[] = {
        { "qwen2_tied", "self_atn", false, false, "did you mean 'self_attn'?" },
        { "qwen2_tied", "lm_haed", false, false, "did you mean 'embed_tokens'?" },
        { "qwen2_untied", "lm_haed", false, false, "did you mean 'lm_head'?" },
        { "qwen2_untied", "lm_haed", true, false, "did you mean 'score'?" },
        { "qwen2_tied", "layers\\.7\\.", false, false, "'layers\\.7\\.' matches no parameter" },
        { "qwen2_tied", "lm_head", false, false,
          "tied to the embedding, and the name of both is model.embed_tokens.weight" },
        { "qwen2_untied", "lm_head", false, false, NULL },
        { "qwen2_untied", "lm_head", true, false, "score.weight and score.bias in place of" },
        { "qwen2_tied", "(q_proj", false, false, "the expression '(q_proj' cannot be used" },
        { "qwen2_tied", "^(([a-z0-9._]+)*)*[A-Z]$", false, false, "cannot be used: match limit" },
        { "qwen2_vl_flat", "visual", false, false, "freeze_vision_tower=false" },
        { "qwen2_vl_flat", "visual\\.merger", false, true, NULL },
        { "qwen2_vl_flat", "^model\\.language_model\\.layers\\.0\\.", false, false, NULL },
        { "qwen2_vl_flat", "norm", false, false, NULL },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_model_config c;
        ares_model_options opt = { .freeze_vision = !cases[i].train_tower,
                                   .value_head = cases[i].value_head,
                                   .trained = { &cases[i].expression, 1 } };
        int64_t count;
        REQUIRE_OK(ares_model_config_load(path_of(cases[i].variant), &c));
        int rc = ares_model_config_trained(&c, &opt, &count);
        if (cases[i].says) CHECK_FAIL(rc, ARES_ECONFIG, cases[i].says);
        else if (CHECK_OK(rc)) CHECK(count > 0 && count < ares_model_config_count(&c));
    }
}
