/*
 * The optimizer over regions: the same bits as parameter by parameter, a norm of fixed chunks, and
 * ranks.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "learner.h"
#include "test.h"

typedef struct setting {
    const char *variant, *strategy;
    ares_dtype storage;
    bool value_head;
    ares_dtype arithmetic;
} setting;
static const setting settings[] = {
    { "qwen2_tied", "adamw", ARES_F32, false, ARES_F32 },
    { "qwen2_untied", "adamw", ARES_F32, false, ARES_F32 },
    { "qwen3_untied", "adamw", ARES_BF16, false, ARES_F32 },
    { "qwen3_tied_bias", "adamw_bf16", ARES_BF16, false, ARES_F32 },
    { "llama_biases", "adamw_bf16", ARES_BF16, false, ARES_F32 },
    { "llama_gqa_9_3", "adamw", ARES_F32, true, ARES_F32 },
    { "qwen2_5_vl_flat", "adamw", ARES_F32, false, ARES_F32 },
    { "qwen2_vl_nested", "adamw_bf16", ARES_BF16, false, ARES_F32 },
    { "llama_gqa_9_3", "adamw", ARES_BF16, true, ARES_BF16 },
    { "qwen2_5_vl_flat", "adamw_bf16", ARES_BF16, false, ARES_BF16 },
};

typedef struct trained {
    ares_device d;
    ares_train_config cfg;
    ares_config *options;
    ares_group *g; /* NULL: none */
    ares_model *m;
    optim o;
} trained;

static void options_open(const setting *s, trained *t)
{
    char strategy[100];
    snprintf(strategy, sizeof strategy, "worker.actor.optim.strategy=%s", s->strategy);
    const char *const words[] = { strategy, "worker.actor.optim.lr=1e-3",
                                  "worker.actor.optim.weight_decay=0.1" };
    memset(t, 0, sizeof *t);
    t->options = ares_config_new();
    ares_train_config_declare(t->options, &t->cfg);
    ares_config_read_args(t->options, ARES_COUNT(words), words);
    ares_config_resolve(t->options);
}

/* table NULL: the CPU's */
static bool trained_open_on(const setting *s, const ares_kernels *table, trained *t)
{
    ares_model_options opt = { .storage = s->storage,
                               .arithmetic = s->arithmetic,
                               .trainable = true,
                               .value_head = s->value_head };
    char path[300];
    snprintf(path, sizeof path, "tests/golden/models/%s", s->variant);
    options_open(s, t);
    if (!CHECK_OK(ares_device_open("cpu", 2, &t->d))) return false;
    if (table) t->d.k = table;
    return CHECK_OK(ares_model_load(test_source(path), &t->d, &opt, &t->m)) &&
           CHECK_OK(optim_init(&t->o, &t->cfg.optim, 100)) &&
           CHECK_OK(optim_alloc_states(&t->o, &t->m->params));
}
static bool trained_open(const setting *s, trained *t)
{
    return trained_open_on(s, NULL, t);
}
static void trained_close(trained *t)
{
    ares_model_free(t->m);
    ares_group_close(t->g);
    ares_device_close(&t->d);
    ares_config_free(t->options);
}

static void give_gradient(ares_model *m, int region, uint64_t step, float scale)
{
    ares_region_grad(&m->params, region);
    for (int i = 0; i < m->params.n; i++) {
        const ares_param *p = &m->params.list[i];
        if (p->region != region) continue;
        int64_t n = (int64_t)p->weight.n * p->weight.k;
        float *rows = ares_malloc((size_t)n * sizeof *rows);
        ares_rng_key key = ares_rng_sub(ares_rng_root(9, ARES_RNG_TEST), step, (uint64_t)i);
        for (int64_t e = 0; e < n; e++) rows[e] = scale * (float)ares_rng_normal(key, (uint64_t)e);
        ares_matrix_pack(&p->grad, rows, ARES_F32);
        ares_free(rows);
    }
}

/* Gradients of a step: normal numbers, keyed by parameter; padding stays zero. */
static void give_gradients(ares_model *m, uint64_t step, float scale)
{
    if (!CHECK_OK(ares_params_zero_grad(&m->params))) return;
    for (int i = 0; i < m->params.n_regions; i++) {
        give_gradient(m, i, step, scale);
        /* as a backward does */
        if (m->params.regions[i].in_parts) ares_region_sum(&m->params, i);
    }
}

/* A parameter's arrays, apart from its region. */
typedef struct alone {
    uint8_t *w, *master, *m, *v;
} alone;

static uint8_t *copy_of(const void *region, const ares_param *p, ares_dtype dtype)
{
    if (!region) return NULL;
    size_t one = ares_dtype_bytes(dtype), bytes = (size_t)p->elements * one;
    uint8_t *out = ares_malloc(bytes);
    memcpy(out, (const uint8_t *)region + (size_t)p->at * one, bytes);
    return out;
}

static void check_bytes(const char *what, const ares_param *p, const void *region, ares_dtype dtype,
                        const uint8_t *want)
{
    uint8_t *got = copy_of(region, p, dtype);
    CHECK_MSG(!got || memcmp(got, want, (size_t)p->elements * ares_dtype_bytes(dtype)) == 0,
              "%s of %s", what, p->name);
    ares_free(got);
}

TEST(regions_take_the_steps_that_their_parameters_would_take_one_by_one)
{
    enum { STEPS = 3 };
    for (int c = 0; c < ARES_COUNT(settings); c++) {
        trained t;
        double norm;
        if (!trained_open(&settings[c], &t)) return;
        ares_model *m = t.m;
        alone *a = ares_calloc((size_t)m->params.n, sizeof *a);
        for (int i = 0; i < m->params.n; i++) {
            const ares_param *p = &m->params.list[i];
            const ares_region *r = &m->params.regions[p->region];
            a[i] = (alone){ copy_of(r->weights, p, r->dtype), copy_of(r->master, p, r->states),
                            copy_of(r->m, p, r->states), copy_of(r->v, p, r->states) };
        }
        for (int step = 1; step <= STEPS; step++) {
            give_gradients(m, (uint64_t)step, 1);
            CHECK_OK(
                optim_step(&t.o, &m->params, NULL, 1e-3, 1e9, "test", &norm)); /* not clipped */
            for (int i = 0; i < m->params.n; i++) {
                const ares_param *p = &m->params.list[i];
                ares_adamw_args one = { .n = p->elements,
                                        .w = a[i].w,
                                        .dtype = p->weight.dtype,
                                        .kahan = p->rank > 1 &&
                                                 strcmp(settings[c].strategy, "adamw_bf16") == 0,
                                        .master = a[i].master,
                                        .grad = p->grad.data,
                                        .m = a[i].m,
                                        .v = a[i].v,
                                        .lr = 1e-3,
                                        .beta1 = t.cfg.optim.betas.items[0],
                                        .beta2 = t.cfg.optim.betas.items[1],
                                        .eps = t.cfg.optim.eps,
                                        .weight_decay = p->rank > 1 ? 0.1 : 0,
                                        .grad_scale = 1,
                                        .step = step };
                t.d.k->adamw(&t.d, &one);
            }
        }
        for (int i = 0; i < m->params.n; i++) {
            const ares_param *p = &m->params.list[i];
            const ares_region *r = &m->params.regions[p->region];
            check_bytes("weight", p, r->weights, r->dtype, a[i].w);
            check_bytes("m", p, r->m, r->states, a[i].m);
            check_bytes("v", p, r->v, r->states, a[i].v);
            check_bytes("master", p, r->master, r->states, a[i].master);
            ares_free(a[i].w), ares_free(a[i].master), ares_free(a[i].m), ares_free(a[i].v);
        }
        ares_free(a);
        trained_close(&t);
    }
}

/* The copy of norms and biases holds their weights, rounded; parameters point at it. */
static void check_copy(const ares_model *m, const char *when)
{
    const ares_region *r = &m->params.regions[m->params.n_regions - 1];
    if (!CHECK(r->act)) return;
    ares_matrix rounded = { ares_malloc((size_t)r->elements * 2), ARES_BF16, ARES_ROWS,
                            (int32_t)r->elements, 1 };
    ares_matrix_pack(&rounded, r->weights, ARES_F32);
    CHECK_MSG(memcmp(r->act, rounded.data, (size_t)r->elements * 2) == 0, "%s", when);
    for (int i = 0; i < m->params.n; i++)
        if (m->params.list[i].rank == 1)
            CHECK(m->params.list[i].act == (uint16_t *)r->act + m->params.list[i].at);
        else CHECK(!m->params.list[i].act);
    ares_free(rounded.data);
}

TEST(norms_and_biases_in_the_type_of_activations_follow_their_weights)
{
    static const char *const strategies[] = { "adamw", "adamw_bf16" };
    for (int c = 0; c < ARES_COUNT(strategies); c++) {
        setting s = { "llama_biases", strategies[c], ARES_BF16, false, ARES_F32 };
        trained t, plain;
        ares_model *other;
        double norm;
        if (!trained_open(&s, &plain)) return;
        ares_kernels table = *plain.d.k; /* the CPU's, but for what it says of activations */
        table.act = ARES_BF16;
        if (!trained_open_on(&s, &table, &t)) return;
        check_copy(t.m, "loaded");
        for (uint64_t step = 1; step <= 2; step++) {
            give_gradients(plain.m, step, 1), give_gradients(t.m, step, 1);
            CHECK_OK(optim_step(&plain.o, &plain.m->params, NULL, 1e-2, 1, "test", &norm));
            CHECK_OK(optim_step(&t.o, &t.m->params, NULL, 1e-2, 1, "test", &norm));
            check_copy(t.m, "trained");
        }
        /* the weights are those of a model without the copy */
        CHECK_MEM(t.m->params.weights, plain.m->params.weights, plain.m->params.weights_bytes);
        CHECK_MEM(t.m->params.states, plain.m->params.states, plain.m->params.states_bytes);
        CHECK_OK(ares_params_optimizer_save(&t.m->params, test_file("states"), NULL, NULL));
        ares_model_options opt = { .storage = ARES_BF16, .trainable = true };
        CHECK_OK(ares_model_new(&t.m->cfg, &t.d, &opt, 1, &other));
        check_copy(other, "new");
        CHECK_OK(ares_params_optimizer_alloc(&other->params, c ? ARES_BF16 : ARES_F32));
        CHECK_OK(ares_params_optimizer_load(&other->params, test_file("states")));
        check_copy(other, "with states");
        CHECK(memcmp(other->layer[0].q.bias->act, t.m->layer[0].q.bias->act, 8) == 0);
        CHECK_OK(ares_model_interpolate(other, plain.m, 0.5));
        check_copy(other, "mixed");
        ares_model_free(other);
        trained_close(&t);
        trained_close(&plain);
    }
}

/* Whether every element that belongs to no parameter is zero. */
static bool padding_is_zero(const ares_model *m, int region, const void *array, ares_dtype dtype)
{
    if (!array) return true;
    const ares_region *r = &m->params.regions[region];
    size_t one = ares_dtype_bytes(dtype), bytes = (size_t)r->elements * one;
    uint8_t *x = ares_malloc(bytes), any = 0;
    memcpy(x, array, bytes);
    for (int i = 0; i < m->params.n; i++)
        if (m->params.list[i].region == region)
            memset(x + (size_t)m->params.list[i].at * one, 0,
                   (size_t)m->params.list[i].elements * one);
    for (size_t i = 0; i < bytes; i++) any |= x[i];
    ares_free(x);
    return any == 0;
}

TEST(padding_of_regions_stays_zero)
{
    for (int c = 0; c < ARES_COUNT(settings); c++) {
        trained t;
        double norm;
        if (!trained_open(&settings[c], &t)) return;
        for (uint64_t step = 1; step <= 3; step++) {
            give_gradients(t.m, step, 1);
            CHECK_OK(optim_step(&t.o, &t.m->params, NULL, 1e-3, 1, "test", &norm));
        }
        for (int i = 0; i < t.m->params.n_regions; i++) {
            const ares_region *r = &t.m->params.regions[i];
            CHECK(padding_is_zero(t.m, i, r->weights, r->dtype));
            CHECK(padding_is_zero(t.m, i, r->grad, ARES_F32));
            CHECK(padding_is_zero(t.m, i, r->m, r->states));
            CHECK(padding_is_zero(t.m, i, r->v, r->states));
            CHECK(padding_is_zero(t.m, i, r->master, r->states));
        }
        trained_close(&t);
    }
}

TEST(the_norm_is_that_of_all_gradients)
{
    for (int c = 0; c < ARES_COUNT(settings); c++) {
        trained t;
        double norm, sum = 0;
        if (!trained_open(&settings[c], &t)) return;
        give_gradients(t.m, 5, 1);
        for (int i = 0; i < t.m->params.n; i++) {
            const float *g = t.m->params.list[i].grad.data;
            for (int64_t e = 0; e < t.m->params.list[i].elements; e++)
                sum += (double)g[e] * (double)g[e];
        }
        CHECK_OK(optim_norm(&t.m->params, &norm));
        CHECK_NEAR(norm, sqrt(sum), 1e-12 * sqrt(sum)); /* f64, another order */
        trained_close(&t);
    }
}

/* A model whose embedding has more states than come to the device at once. */
static bool large_open(const char *device, const char *strategy, bool on_host, trained *t)
{
    const ares_model_share share = { .weights_on_host = on_host, .states_on_host = on_host };
    const ares_model_options opt = { .storage = ARES_BF16, .trainable = true, .share = &share };
    const setting s = { NULL, strategy, ARES_BF16, false, ARES_F32 };
    ares_model_config c;
    options_open(&s, t);
    if (!CHECK_OK(ares_device_open(device, 2, &t->d)) ||
        !CHECK_OK(ares_model_config_load(test_source("tests/golden/models/qwen2_tied"), &c)))
        return false;
    c.vocab = (1 << 21) / c.hidden + 3000;
    return CHECK_OK(ares_model_new(&c, &t->d, &opt, 1, &t->m)) &&
           CHECK_OK(optim_init(&t->o, &t->cfg.optim, 100)) &&
           CHECK_OK(optim_alloc_states(&t->o, &t->m->params));
}

/* How often the host has waited, where the emulator is the card; else 0. */
static int64_t waits_of(const ares_device *d)
{
    int64_t (*count)(const char *, const char *);
    *(void **)&count = ares_device_symbol(d, "ares_emulate_count");
    return count ? count("wait", NULL) : 0;
}

/* What lies in host memory is all there at the end of a step: later copies change nothing. */
static void check_stored(trained *t)
{
    const ares_model *m = t->m;
    const struct {
        const void *p;
        size_t bytes;
    } of[] = { { m->params.states, m->params.states_bytes },
               { m->params.host_weights, m->params.host_weights_bytes } };
    void *then[ARES_COUNT(of)];
    for (int i = 0; i < ARES_COUNT(of); i++)
        then[i] = memcpy(ares_malloc(of[i].bytes), of[i].p, of[i].bytes);
    if (t->d.k->brought) t->d.k->brought(&t->d);
    CHECK_OK(t->d.k->sync(&t->d));
    for (int i = 0; i < ARES_COUNT(of); i++) {
        CHECK(memcmp(then[i], of[i].p, of[i].bytes) == 0);
        ares_free(then[i]);
    }
}

/* Gives the waits of the optimizer step. */
static int64_t step_large(trained *t, int step)
{
    ares_model *m = t->m;
    double norm;
    if (!CHECK_OK(ares_params_zero_grad(&m->params))) return 0;
    float *g = ares_malloc(m->params.grads_bytes);
    for (size_t i = 0; i < m->params.grads_bytes / sizeof *g; i++)
        g[i] = (float)((i * 7919 + (size_t)step) % 1013) * 1e-3f - 0.5f;
    t->d.k->copy_in(&t->d, m->params.grads, g, m->params.grads_bytes);
    CHECK_OK(t->d.k->sync(&t->d));
    int64_t before = waits_of(&t->d);
    CHECK_OK(optim_step(&t->o, &m->params, NULL, 1e-2, 1, "test", &norm));
    int64_t waits = waits_of(&t->d) - before;
    if (m->params.windows) check_stored(t);
    ares_free(g);
    return waits;
}

/* Weights and states as files hold them. */
static void sums_of(trained *t, uint64_t sums[2])
{
    CHECK_OK(ares_params_sum(&t->m->params, NULL, &sums[0], &sums[1]));
}

static void states_step_anywhere(const char *device, const char *strategy)
{
    trained on_device, on_host;
    uint64_t want[2], got[2];
    if (!large_open(device, strategy, false, &on_device) ||
        !large_open(device, strategy, true, &on_host))
        return;
    CHECK(on_host.m->params.regions[0].own > 1 << 21);
    for (int step = 0; step < 2; step++) {
        int64_t waits = step_large(&on_device, step);
        CHECK_EQ(step_large(&on_host, step), waits);
    }
    sums_of(&on_device, want);
    sums_of(&on_host, got);
    CHECK(want[0] == got[0]);
    CHECK(want[1] == got[1]);
    trained_close(&on_device);
    trained_close(&on_host);
}

TEST(states_in_host_memory_take_the_steps_of_states_on_the_device)
{
    states_step_anywhere("cpu", "adamw");
    states_step_anywhere("cpu", "adamw_bf16");
}

/* And a step waits no more often for it. */
TEST_GPU(states_in_pinned_memory_take_the_steps_of_states_on_the_card)
{
    ares_device d;
    if (ares_device_open("cuda", 1, &d) != ARES_OK) SKIP(ares_error_message());
    ares_device_close(&d);
    states_step_anywhere("cuda", "adamw");
}

/* Calls of a table, counted. */
static const ares_kernels *counted;
static int adamw_calls, sum_calls, reads;
static void count_adamw(ares_device *d, const ares_adamw_args *a)
{
    adamw_calls++;
    counted->adamw(d, a);
}
static void count_sums(ares_device *d, const float *x, int64_t n, double *of_chunk)
{
    sum_calls++;
    counted->square_sums(d, x, n, of_chunk);
}
static void count_out(ares_device *d, void *host, const void *device, size_t bytes)
{
    reads++;
    counted->copy_out(d, host, device, bytes);
}

TEST(a_step_reads_the_device_once_and_calls_it_twice_per_region)
{
    for (int c = 0; c < ARES_COUNT(settings); c++) {
        trained t;
        double norm;
        if (!trained_open(&settings[c], &t)) return;
        counted = t.d.k;
        ares_kernels table = *counted;
        table.adamw = count_adamw;
        table.square_sums = count_sums;
        table.copy_out = count_out;
        t.d.k = &table;
        adamw_calls = sum_calls = reads = 0;
        give_gradients(t.m, 1, 1);
        CHECK_OK(optim_step(&t.o, &t.m->params, NULL, 1e-3, 1, "test", &norm));
        CHECK_EQ(adamw_calls, t.m->params.n_regions);
        CHECK_EQ(sum_calls, t.m->params.n_regions);
        CHECK_EQ(reads, 1);
        t.d.k = counted;
        trained_close(&t);
    }
}

/* A step that is left out: the weights stay, and *out is what it tells on stderr. */
static void told_step(trained *t, ares_world *w, ares_str *out, double *norm)
{
    char path[600];
    size_t n = t->m->params.weights_bytes;
    uint8_t *before = ares_malloc(n);
    memcpy(before, t->m->params.weights, n);
    snprintf(path, sizeof path, "%s", test_file("stderr"));
    ares_log_set(ARES_LOG_INFO, 0); /* another test may have silenced it */
    int kept = dup(STDERR_FILENO), file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    CHECK_OK(optim_step(&t->o, &t->m->params, w, 1e-3, 1, "test", norm));
    dup2(kept, STDERR_FILENO);
    close(kept), close(file);
    CHECK_OK(ares_file_read(path, out));
    CHECK_MEM(t->m->params.weights, before, n);
    ares_free(before);
}

TEST(a_gradient_that_is_no_number_is_named_by_parameter_and_region)
{
    static const struct {
        const char *parameter, *region;
    } places[] = {
        { "model.embed_tokens.weight", "the embedding" },
        { "model.layers.1.mlp.up_proj.weight", "block 1" },
        { "lm_head.weight", "the head" },
        { "model.layers.0.self_attn.k_norm.weight", "norms and biases" },
    };
    for (int c = 0; c < ARES_COUNT(places); c++) {
        trained t;
        double norm = 0;
        char want[200];
        ares_str out = { 0 };
        if (!trained_open(&settings[2], &t)) return;
        give_gradients(t.m, 1, 1);
        for (int i = 0; i < t.m->params.n; i++)
            if (strcmp(t.m->params.list[i].name, places[c].parameter) == 0)
                ((float *)t.m->params.list[i].grad.data)[t.m->params.list[i].elements - 1] =
                    c % 2 ? INFINITY : NAN;
        told_step(&t, NULL, &out, &norm);
        CHECK(isnan(norm));
        snprintf(want, sizeof want, "the gradient of '%s' (%s) holds NaN or infinity",
                 places[c].parameter, places[c].region);
        CHECK_CONTAINS(out.data ? out.data : "", want);
        CHECK_EQ(t.o.skipped, 1);
        ares_str_fini(&out);
        trained_close(&t);
    }
}

/* ---------------------------------------------------------------- ranks */
/*
 * Random weights of the setting's shapes, but so many of them that the embedding and the blocks are
 * cut among ranks. w NULL: one process alone.
 */
static bool wide_open(const setting *s, ares_world *w, ares_sharing how, trained *t)
{
    ares_model_config c;
    char path[300];
    snprintf(path, sizeof path, "tests/golden/models/%s", s->variant);
    options_open(s, t);
    if (!CHECK_OK(ares_model_config_load(test_source(path), &c)) ||
        !CHECK_OK(ares_device_open("cpu", 2, &t->d)))
        return false;
    c.vocab = 4000;
    c.intermediate = 900;
    c.vision.intermediate = 4000;
    if (!CHECK_OK(ares_group_open(w, &t->d, ares_world_size(w), 1, &t->g))) return false;
    const ares_model_share share = { .group = t->g, .how = how };
    const ares_model_options opt = { .storage = s->storage,
                                     .arithmetic = s->arithmetic,
                                     .trainable = true,
                                     .value_head = s->value_head,
                                     .share = &share };
    return CHECK_OK(ares_model_new(&c, &t->d, &opt, 1, &t->m)) &&
           CHECK_OK(optim_init(&t->o, &t->cfg.optim, 100)) &&
           CHECK_OK(optim_alloc_states(&t->o, &t->m->params));
}

/* Runs the test again as ranks; true in them, whose world is *w. */
static bool as_ranks(int n, const char *name, ares_world **w)
{
    return test_as_ranks(n, name) && CHECK_OK(ares_world_open(w));
}

/* b has a part of a's array, from element `first` on. */
static void check_part(const void *b, const void *a, int64_t first, int64_t n, ares_dtype dtype)
{
    size_t one = ares_dtype_bytes(dtype);
    if (CHECK((a != NULL) == (b != NULL)) && a)
        CHECK_MEM(b, (const char *)a + (size_t)first * one, (size_t)n * one);
}

/*
 * shared has the weights of `whole`, which trained alone, and the states of its own parts. Padding
 * at the ends of regions depends on the number of ranks.
 */
static void check_shared(const ares_model *shared, const ares_model *whole)
{
    for (int i = 0; i < shared->params.n_regions; i++) {
        const ares_region *r = &shared->params.regions[i], *a = &whole->params.regions[i];
        int64_t n = ARES_MIN(r->elements, a->elements),
                own = ARES_MAX(0, ARES_MIN(r->own, a->elements - r->own_first));
        if (r->weights) check_part(r->weights, a->weights, 0, n, r->dtype);
        if (!own) continue;
        check_part(r->own_weights, a->weights, r->own_first, own, r->dtype);
        check_part(r->m, a->m, r->own_first, own, r->states);
        check_part(r->v, a->v, r->own_first, own, r->states);
        check_part(r->master, a->master, r->own_first, own, r->states);
    }
}

/*
 * The gradients of three ranks are g, g / 2 and g / 4. Their sum, rounded once, is 7/4 g rounded
 * once, so one process with that has the same weights and states, and its norm the same sums of
 * chunks, whatever ranks share.
 */
TEST_LABELLED(ranks_take_the_step_of_the_sum_of_their_gradients, "mpi,slow")
{
    static const float scales[] = { 1, 0.5f, 0.25f };
    ares_world *w = NULL;
    if (!as_ranks(ARES_COUNT(scales), "ranks_take_the_step_of_the_sum_of_their_gradients", &w))
        return;
    int rank = ares_world_rank(w);
    for (int c = 0; c < ARES_COUNT(settings) * 3; c++) {
        trained all, one;
        double norm[2] = { 0 };
        const setting *s = &settings[c / 3];
        ares_sharing how = (ares_sharing)(c % 3);
        if (!wide_open(s, w, how, &all) || !wide_open(s, NULL, ARES_SHARE_NONE, &one)) return;
        CHECK(all.m->params.states_bytes < one.m->params.states_bytes || how == ARES_SHARE_NONE);
        for (uint64_t step = 1; step <= 3; step++) {
            give_gradients(all.m, step, scales[rank]);
            give_gradients(one.m, step, 1.75f);
            CHECK_OK(optim_step(&all.o, &all.m->params, w, 1e-3, 1, "ranks", &norm[0]));
            CHECK_OK(optim_step(&one.o, &one.m->params, NULL, 1e-3, 1, "one", &norm[1]));
            CHECK(norm[0] == norm[1]);
        }
        check_shared(all.m, one.m);
        trained_close(&all);
        trained_close(&one);
    }
    ares_world_close(w);
}

/*
 * What a step sends: every gradient once to the rank that adds it, and back from there what the
 * others lack: the sum, or the weights that it gave and the chunks' sums of squares. Where weights
 * are shared gradients have left before, and weights do not come back.
 */
TEST_MPI(a_step_sends_no_more_than_it_must)
{
    ares_world *w = NULL;
    if (!as_ranks(2, "a_step_sends_no_more_than_it_must", &w)) return;
    for (int c = 0; c < 6; c++) {
        trained t;
        double norm;
        const setting *s = &settings[c < 3 ? 1 : 2];
        ares_sharing how = (ares_sharing)(c % 3);
        if (!wide_open(s, w, how, &t)) return;
        const ares_region *vectors = &t.m->params.regions[t.m->params.n_regions - 1];
        int64_t matrices = 0, own;
        for (int i = 0; i < t.m->params.n_regions - 1; i++)
            matrices += t.m->params.regions[i].elements;
        own = matrices / 2;
        int64_t weights = own * (int64_t)ares_dtype_bytes(s->storage),
                squares = own / ARES_SUM_CHUNK * (int64_t)sizeof(double),
                want = vectors->elements * 4;
        want += how == ARES_SHARE_NONE     ? own * 4 + own * 4
                : how == ARES_SHARE_STATES ? own * 4 + weights + squares
                                           : squares;
        give_gradients(t.m, 1, 1);
        int64_t before = ares_group_bytes(t.g);
        CHECK_OK(optim_step(&t.o, &t.m->params, w, 1e-3, 1, "test", &norm));
        CHECK_EQ(ares_group_bytes(t.g) - before, want);
        trained_close(&t);
    }
    ares_world_close(w);
}

TEST_MPI(the_rank_that_owns_a_gradient_names_it_where_it_is_no_number)
{
    ares_world *w = NULL;
    if (!as_ranks(2, "the_rank_that_owns_a_gradient_names_it_where_it_is_no_number", &w)) return;
    for (int c = 0; c < 2; c++) {
        trained t;
        double norm = 0;
        ares_str out = { 0 };
        if (!wide_open(&settings[0], w, ARES_SHARE_STATES, &t)) return;
        give_gradients(t.m, 1, 1);
        ares_param *embed = t.m->embed;
        /* only one rank has it: in its own part, and in the other's */
        if (ares_world_rank(w) == c) ((float *)embed->grad.data)[embed->elements - 1] = NAN;
        told_step(&t, w, &out, &norm);
        CHECK(isnan(norm));
        CHECK_EQ(t.o.skipped, 1);
        if (ares_world_rank(w) == 0)
            CHECK_CONTAINS(out.data ? out.data : "",
                           "rank 1: the gradient of 'model.embed_tokens.weight' (the embedding) "
                           "holds NaN or infinity");
        ares_str_fini(&out);
        trained_close(&t);
    }
    ares_world_close(w);
}
