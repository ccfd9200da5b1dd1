/* Where parameters lie in their regions. */
#include <stdio.h>
#include <string.h>

#include "ares/model.h"
#include "test.h"

typedef struct shape {
    const char *variant;
    ares_dtype storage;
    bool value_head;
    ares_layout layout;
} shape;
/* Tied and not, q and k with norms, biases of all kinds, panels that are not full, a tower. */
static const shape shapes[] = {
    { "qwen2_tied", ARES_F32, false, ARES_PANEL32 },
    { "qwen2_untied", ARES_F32, false, ARES_ROWS },
    { "qwen2_bf16", ARES_BF16, false, ARES_PANEL32 },
    { "qwen2_bf16", ARES_BF16, false, ARES_ROWS },
    { "qwen3_untied", ARES_BF16, false, ARES_PANEL32 },
    { "qwen3_untied", ARES_BF16, false, ARES_PANEL32_PAIRS },
    { "llama_gqa_9_3", ARES_BF16, true, ARES_PANEL32_PAIRS },
    { "qwen2_5_vl_flat", ARES_BF16, false, ARES_PANEL32_PAIRS },
    { "qwen3_tied_bias", ARES_F32, true, ARES_ROWS },
    { "llama_biases", ARES_BF16, false, ARES_ROWS },
    { "llama_gqa_9_3", ARES_F32, true, ARES_PANEL32 },
    { "qwen2_5_vl_flat", ARES_BF16, false, ARES_ROWS },
    { "qwen2_vl_flat", ARES_F32, false, ARES_PANEL32 },
};

/* The CPU's functions, and the layout of weights that is asked for. */
static ares_kernels table;

static bool load(const shape *s, ares_dtype states, ares_device *d, ares_model **m)
{
    bool pairs = s->layout == ARES_PANEL32_PAIRS;
    ares_model_options opt = { .storage = s->storage,
                               .arithmetic = pairs ? ARES_BF16 : ARES_F32,
                               .trainable = true,
                               .value_head = s->value_head };
    char path[300];
    (void)snprintf(path, sizeof path, "tests/golden/models/%s", s->variant);
    if (!CHECK_OK(ares_device_open("cpu", 1, d))) return false;
    table = *d->k;
    table.layout = pairs ? ARES_PANEL32 : s->layout;
    d->k = &table;
    return CHECK_OK(ares_model_load(test_source(path), d, &opt, m)) &&
           CHECK_OK(ares_params_zero_grad(&(*m)->params)) &&
           CHECK_OK(ares_params_optimizer_alloc(&(*m)->params, states));
}

static void close_model(ares_device *d, ares_model *m)
{
    ares_model_free(m);
    ares_device_close(d);
}

TEST(every_parameter_has_its_own_place_in_one_region)
{
    for (int c = 0; c < ARES_COUNT(shapes); c++) {
        ares_device d;
        ares_model *m;
        int64_t elements = 0;
        if (!load(&shapes[c], ARES_F32, &d, &m)) return;
        int32_t tower = m->cfg.vision.depth ? m->cfg.vision.depth + 1 : 0;
        CHECK_EQ(m->params.n_regions,
                 m->cfg.layers + 2 + !m->cfg.tied + shapes[c].value_head + tower);
        CHECK_EQ(m->params.n_frozen, 0);
        for (int i = 0; i < m->params.n_regions; i++) {
            const ares_region *r = &m->params.regions[i];
            uint8_t *owners = ares_calloc((size_t)r->elements, 1);
            for (int k = 0; k < m->params.n; k++) {
                const ares_param *p = &m->params.list[k];
                if (p->region != i) continue;
                CHECK_EQ(p->rank > 1, i < m->params.n_regions - 1);
                if (!CHECK(p->at >= 0 && p->at + p->elements <= r->elements)) break;
                for (int64_t e = 0; e < p->elements; e++) owners[p->at + e]++;
                CHECK(p->weight.data ==
                      (char *)r->weights + (size_t)p->at * ares_dtype_bytes(r->dtype));
                CHECK(p->grad.data == r->grad + p->at);
                CHECK_EQ(r->dtype, p->weight.dtype);
                elements += p->elements;
            }
            for (int64_t e = 0; e < r->elements; e++)
                if (!CHECK(owners[e] <= 1)) break;
            if (i < m->params.n_regions - 1) CHECK_EQ(r->elements % ARES_SUM_CHUNK, 0);
            CHECK_EQ(r->decay, i < m->params.n_regions - 1);
            CHECK((r->master != NULL) == (r->dtype == ARES_BF16) && r->m && r->v);
            ares_free(owners);
        }
        int64_t all = 0;
        for (int k = 0; k < m->params.n; k++) all += m->params.list[k].elements;
        CHECK_EQ(elements, all);
        close_model(&d, m);
    }
}

static bool at_256(const void *p)
{
    return (uintptr_t)p % 256 == 0;
}

/* a, then b directly behind it, as a block of both. */
static void check_adjacent(const ares_param *a, const ares_param *b)
{
    if (!a || !b) {
        CHECK(!a && !b);
        return;
    }
    CHECK(b->weight.data ==
          (char *)a->weight.data + (size_t)a->elements * ares_dtype_bytes(a->weight.dtype));
    CHECK(b->grad.data == (float *)a->grad.data + a->elements);
}

TEST(weights_that_one_product_may_read_lie_side_by_side)
{
    for (int c = 0; c < ARES_COUNT(shapes); c++) {
        ares_device d;
        ares_model *m;
        if (!load(&shapes[c], ARES_F32, &d, &m)) return;
        const char *base = m->params.weights, *grads = (char *)m->params.grads;
        CHECK(m->embed->weight.data == base && m->embed->grad.data == grads);
        for (int i = 0; i < m->cfg.layers; i++) {
            const ares_model_layer *l = &m->layer[i];
            check_adjacent(l->q.w, l->k.w), check_adjacent(l->k.w, l->v.w);
            check_adjacent(l->gate.w, l->up.w);
            check_adjacent(l->q.bias, l->k.bias), check_adjacent(l->k.bias, l->v.bias);
            check_adjacent(l->gate.bias, l->up.bias);
            const ares_param *apart[] = { l->q.w,
                                          l->o.w,
                                          l->gate.w,
                                          l->down.w,
                                          l->norm[ARES_BEFORE_ATTENTION],
                                          l->norm[ARES_BEFORE_MLP],
                                          l->q.bias,
                                          l->o.bias,
                                          l->gate.bias,
                                          m->final_norm,
                                          m->lm_head };
            for (int k = 0; k < ARES_COUNT(apart); k++) {
                if (!apart[k]) continue;
                /* the arenas lie where alloc gives memory; on a card that is a multiple of 256 */
                CHECK(at_256((void *)((const char *)apart[k]->weight.data - base)));
                CHECK(at_256((void *)((const char *)apart[k]->grad.data - grads)));
            }
        }
        for (int i = 0; i < m->cfg.vision.depth; i++) {
            const ares_tower_layer *l = &m->tower.layer[i];
            if (!l->up.w) continue;
            check_adjacent(l->gate.w, l->up.w);
            check_adjacent(l->gate.bias, l->up.bias);
        }
        close_model(&d, m);
    }
}

TEST(a_frozen_tower_has_neither_gradients_nor_states_nor_a_place_in_the_norm)
{
    static const char *const variants[] = { "qwen2_vl_nested", "qwen2_5_vl_flat" };
    for (int v = 0; v < ARES_COUNT(variants); v++) {
        int64_t squares[2];
        for (int frozen = 0; frozen < 2; frozen++) {
            ares_device d;
            ares_model *m;
            ares_model_options opt = { .storage = ARES_F32,
                                       .trainable = true,
                                       .freeze_vision = frozen };
            char path[300];
            (void)snprintf(path, sizeof path, "tests/golden/models/%s", variants[v]);
            CHECK_OK(ares_device_open("cpu", 1, &d));
            REQUIRE_OK(ares_model_load(test_source(path), &d, &opt, &m));
            REQUIRE_OK(ares_params_zero_grad(&m->params));
            REQUIRE_OK(ares_params_optimizer_alloc(&m->params, ARES_F32));
            for (int i = 0; i < m->params.n; i++) {
                const ares_param *p = &m->params.list[i];
                bool rests = frozen && strstr(p->name, "visual.");
                CHECK_EQ(p->region >= m->params.n_regions, rests);
                CHECK_EQ(p->grad.data == NULL, rests);
                CHECK_EQ(m->params.regions[p->region].m == NULL, rests);
            }
            squares[frozen] = m->params.n_squares;
            close_model(&d, m);
        }
        CHECK(squares[1] < squares[0]);
    }
}

TEST(states_of_16_bits_take_6_bytes_of_a_weight_in_place_of_12)
{
    static const shape s = { "qwen2_bf16", ARES_BF16, false, ARES_PANEL32 };
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        ares_device d;
        ares_model *m;
        int64_t matrices = 0;
        if (!load(&s, i ? ARES_BF16 : ARES_F32, &d, &m)) return;
        for (int r = 0; r < m->params.n_regions - 1; r++) matrices += m->params.regions[r].elements;
        size_t vectors = (size_t)m->params.regions[m->params.n_regions - 1].elements * 8;
        CHECK_EQ(m->params.states_bytes, (size_t)matrices * (i ? 6 : 12) + vectors);
        CHECK_EQ(d.allocated, m->params.weights_bytes + m->params.grads_bytes +
                                  m->params.states_bytes +
                                  (size_t)m->params.n_squares * sizeof(double));
        bytes[i] = d.most_allocated;
        close_model(&d, m);
    }
    CHECK(bytes[1] < bytes[0]);
}
