/* Several adapters that are trained at once beside one frozen model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "learner.h"
#include "test.h"

enum { TRAINED = 3, STEPS = 3, ROWS = 3 };
static const char *const targets[TRAINED] = { "all-linear", "[q_proj, lm_head]", ".*up_proj" };
static const int64_t ranks[TRAINED] = { 8, 3, 33 };

typedef struct setup {
    ares_device device;
    ares_model *model;
    ares_batch batch;
    int32_t prompts[ROWS];
    float *c;
    ares_adapter *adapter[TRAINED];
    learner learner[TRAINED];
    ares_optim_config optim;
} setup;

static const char *base(void)
{
    return test_source("tests/golden/lora/base_qwen2_gqa");
}

static const ares_json *targets_of(ares_arena *arena, int i)
{
    const ares_json *out = NULL;
    char text[64];
    if (*targets[i] == '[') {
        CHECK_OK(ares_json_parse(arena, ARES_VIEW("[\"q_proj\",\"lm_head\"]"), "targets", &out));
        return out;
    }
    snprintf(text, sizeof text, "\"%s\"", targets[i]);
    CHECK_OK(ares_json_parse(arena, ares_view_of(text), "targets", &out));
    return out;
}

static bool open_adapter(setup *s, int i, ares_arena *arena)
{
    static const ares_json null = { .type = ARES_JSON_NULL };
    const ares_lora_options lora = { .rank = ranks[i],
                                     .alpha = 16,
                                     .target_modules = targets_of(arena, i),
                                     .exclude_modules = &null,
                                     .rank_pattern = &null,
                                     .alpha_pattern = &null,
                                     .layers_to_transform = &null,
                                     .layers_pattern = &null,
                                     .init = i ? "gaussian" : "kaiming",
                                     .seed = ARES_NULL_I64 };
    const ares_adapter_options opt = { .lora = &lora, .seed = 7, .trainable = true };
    const learner_options how = { .role = "actor",
                                  .optim = &s->optim,
                                  .total_steps = STEPS,
                                  .gradient_checkpointing = i == 1,
                                  .round_tokens = ARES_NULL_I64 };
    learner_options with = how;
    if (!CHECK_OK(ares_adapter_new(s->model, base(), &opt, &s->adapter[i]))) return false;
    with.adapter = s->adapter[i];
    return CHECK_OK(learner_open(&s->learner[i], s->model, &with));
}

static bool set_up(setup *s)
{
    static const double betas[] = { 0.9, 0.99 };
    memset(s, 0, sizeof *s);
    s->optim = (ares_optim_config){ .lr = 0.02,
                                    .betas = { betas, 2 },
                                    .eps = 1e-8,
                                    .weight_decay = 0.1,
                                    .strategy = "adamw",
                                    .scheduler = "constant",
                                    .warmup_steps = 0 };
    if (!CHECK_OK(ares_device_open("cpu", 2, &s->device)) ||
        !CHECK_OK(
            ares_model_load(base(), &s->device, &(ares_model_options){ TEST_TYPES }, &s->model)))
        return false;
    ares_batch *b = &s->batch;
    ares_batch_init(b);
    for (int r = 0; r < ROWS; r++) {
        s->prompts[r] = 3 + r;
        ares_batch_begin_group(b);
        ares_batch_add_row(
            b, &(ares_sample){ .draw = r, .place = r, .prompt = &s->prompts[r], .prompt_len = 1 },
            9 + 4 * r);
    }
    ARES_PUT(b, responses), ARES_PUT(b, response_mask);
    s->c = ares_arena_alloc(&b->arena, (size_t)b->tokens * sizeof *s->c);
    for (int64_t t = 0; t < b->tokens; t++) {
        b->responses[t] = (int32_t)ares_rng_below(ares_rng_root(4, ARES_RNG_TEST), (uint64_t)t,
                                                  (uint64_t)s->model->cfg.vocab);
        b->response_mask[t] = 1;
        s->c[t] = (float)ares_rng_normal(ares_rng_root(5, ARES_RNG_TEST), (uint64_t)t);
    }
    return true;
}

static void tear_down(setup *s)
{
    for (int i = 0; i < TRAINED; i++) {
        learner_close(&s->learner[i]);
        ares_adapter_free(s->adapter[i]);
    }
    ares_batch_fini(&s->batch);
    ares_model_free(s->model);
    ares_device_close(&s->device);
}

static const learner_scoring scoring = { .max_token_len = 20, .temperature = 0.7 };

static void step(setup *s, int i)
{
    ares_micro_batch plan[ROWS];
    double norm;
    int64_t n = ares_pack_plan(&s->batch, 0, ROWS, scoring.max_token_len, false, plan);
    CHECK_OK(learner_zero_grad(&s->learner[i], NULL));
    CHECK_OK(learner_add_gradients(&s->learner[i], &scoring, &s->batch, plan, n, s->c, NULL));
    CHECK_OK(learner_step(&s->learner[i], ARES_OK, 1, "step", &norm));
    CHECK(norm > 0);
}

TEST_BITS(adapters_that_are_trained_in_turns_become_what_each_becomes_alone)
{
    ares_arena arena = { 0 };
    setup together, alone;
    uint64_t before = 0, after = 0, states;
    if (!set_up(&together)) return;
    CHECK_OK(ares_params_sum(&together.model->params, NULL, &before, &states));
    for (int i = 0; i < TRAINED; i++)
        if (!open_adapter(&together, i, &arena)) return;
    for (int k = 0; k < STEPS; k++)
        for (int i = TRAINED - 1; i >= 0; i--) step(&together, i);
    CHECK_OK(ares_params_sum(&together.model->params, NULL, &after, &states));
    CHECK(before == after); /* the model is frozen */
    for (int i = 0; i < TRAINED; i++) {
        if (!set_up(&alone) || !open_adapter(&alone, i, &arena)) return;
        for (int k = 0; k < STEPS; k++) step(&alone, i);
        const ares_params *a = &alone.adapter[i]->params, *b = &together.adapter[i]->params;
        CHECK_EQ(a->weights_bytes, b->weights_bytes);
        CHECK_MEM(b->weights, a->weights, a->weights_bytes);
        CHECK_EQ(a->states_bytes, b->states_bytes);
        CHECK_MEM(b->states, a->states, a->states_bytes);
        CHECK_EQ((int64_t)together.adapter[i]->version, STEPS);
        tear_down(&alone);
    }
    CHECK(together.adapter[0]->id != together.adapter[1]->id);
    tear_down(&together);
    ares_arena_fini(&arena);
}

TEST_BITS(an_adapter_whose_b_is_zero_gives_the_models_bits_and_one_that_is_off_too)
{
    ares_arena arena = { 0 };
    setup s;
    if (!set_up(&s)) return;
    size_t n = (size_t)s.batch.tokens;
    float *log_probs = ares_arena_alloc(&arena, 6 * n * sizeof *log_probs), *at = log_probs;
    for (int i = 0; i < TRAINED; i++)
        if (!open_adapter(&s, i, &arena)) return;
    for (int i = 0; i < 2; i++, at += 2 * n) {
        learner *l = &s.learner[i];
        if (i) l->adapter = NULL, step(&s, 0); /* the other one moves */
        CHECK_OK(learner_log_probs(l, &scoring, &s.batch, 0, ROWS, at, at + n));
        l->adapter = s.adapter[i];
    }
    CHECK_MEM(log_probs + 2 * n, log_probs, 2 * n * sizeof *log_probs);
    CHECK_OK(learner_log_probs(&s.learner[0], &scoring, &s.batch, 0, ROWS, at, at + n));
    CHECK(memcmp(at, log_probs, n * sizeof *at) != 0);
    tear_down(&s);
    ares_arena_fini(&arena);
}

/* Its head's part too (adapter 1). */
TEST_BITS(an_adapter_whose_scale_is_zero_gives_the_models_bits_and_has_no_gradient)
{
    /* seen to fail: with a scale of 0 given to the kernels, to which it says that there is none */
    ares_arena arena = { 0 };
    setup s;
    if (!set_up(&s)) return;
    size_t n = (size_t)s.batch.tokens;
    float *log_probs = ares_arena_alloc(&arena, 4 * n * sizeof *log_probs), *at = log_probs;
    for (int i = 0; i < 2; i++) {
        if (!open_adapter(&s, i, &arena)) return;
        learner *l = &s.learner[i];
        step(&s, i); /* B is not 0 from here on */
        for (int k = 0; k < s.adapter[i]->n_modules; k++) s.adapter[i]->module[k].scale = 0;
        for (int with = 0; with < 2; with++) {
            l->adapter = with ? s.adapter[i] : NULL;
            CHECK_OK(learner_log_probs(l, &scoring, &s.batch, 0, ROWS, at + with * 2 * n,
                                       at + with * 2 * n + n));
        }
        CHECK_MEM(at + 2 * n, at, 2 * n * sizeof *at);
        ares_micro_batch plan[ROWS];
        double norm;
        int64_t micros = ares_pack_plan(&s.batch, 0, ROWS, scoring.max_token_len, false, plan);
        CHECK_OK(learner_zero_grad(l, NULL));
        CHECK_OK(learner_add_gradients(l, &scoring, &s.batch, plan, micros, s.c, NULL));
        CHECK_OK(learner_step(l, ARES_OK, 1, "step", &norm));
        CHECK(norm == 0);
    }
    tear_down(&s);
    ares_arena_fini(&arena);
}

/* The module whose A has this name; NULL if there is none. */
static const ares_adapter_module *module_of(const ares_adapter *a, const char *name)
{
    for (int32_t i = 0; i < a->n_modules; i++)
        if (a->module[i].a && strcmp(a->module[i].a->name, name) == 0) return &a->module[i];
    return NULL;
}

TEST(a_number_of_a_new_adapter_depends_neither_on_its_rank_nor_on_other_layers)
{
    /* seen to fail: with the number of the layer in the key in place of its name */
    ares_arena arena = { 0 };
    setup s;
    if (!set_up(&s)) return;
    for (int i = 0; i < TRAINED; i++)
        if (!open_adapter(&s, i, &arena)) return;
    /* q_proj of block 1, of rank 3 among two kinds of layers; gaussian, so of deviation 1 / rank */
    static const char name[] = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight";
    const ares_adapter_module *few = module_of(s.adapter[1], name),
                              *uniform = module_of(s.adapter[0], name);
    REQUIRE(few && uniform);
    float *rows = ares_arena_alloc(&arena, sizeof(float) * 4096);
    ares_matrix_unpack(&few->a->weight, rows, ARES_F32);
    ares_rng_key key = ares_rng_sub(ares_rng_root(7, ARES_RNG_LORA),
                                    ares_fnv1a(ARES_FNV1A, few->a->name, strlen(few->a->name)), 0);
    for (int64_t k = 0; k < 3 * few->a->weight.k; k++)
        CHECK(rows[k] == (float)(ares_rng_normal(key, (uint64_t)k) / 3));
    double bound = 1 / sqrt((double)uniform->a->weight.k), largest = 0;
    ares_matrix_unpack(&uniform->a->weight, rows, ARES_F32);
    for (int64_t k = 0; k < 8 * uniform->a->weight.k; k++) {
        CHECK(rows[k] == (float)((2 * ares_rng_uniform(key, (uint64_t)k) - 1) * bound));
        largest = fmax(largest, fabs((double)rows[k]));
    }
    CHECK(largest > 0.9 * bound && largest <= bound);
    tear_down(&s);
    ares_arena_fini(&arena);
}

TEST(an_adapter_is_saved_when_the_folder_of_its_base_is_gone)
{
    /* seen to fail: with config.json and the fingerprint read when it is saved */
    static const char *const files[] = { "config.json", "model.safetensors" };
    setup s;
    ares_adapter *first = NULL, *again = NULL;
    char dir[300], out[300], from[800], to[400];
    ares_str read = { 0 };
    uint64_t sum = 0;
    if (!set_up(&s)) return;
    snprintf(dir, sizeof dir, "%s", test_file("base"));
    snprintf(out, sizeof out, "%s", test_file("out"));
    CHECK_OK(ares_dir_make(dir));
    for (int i = 0; i < ARES_COUNT(files); i++) {
        snprintf(from, sizeof from, "%s/%s", base(), files[i]);
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        CHECK_OK(ares_file_read(from, &read));
        CHECK_OK(ares_file_write(to, read.data, read.len));
        ares_str_clear(&read);
    }
    snprintf(from, sizeof from, "%s/../qwen2_r8", base());
    if (CHECK_OK(ares_adapter_load(s.model, dir, from, &first))) {
        CHECK_OK(ares_dir_remove(dir));
        CHECK_OK(ares_adapter_save(first, out, NULL, &sum));
        CHECK(sum != 0);
        CHECK_OK(ares_adapter_load(s.model, base(), out, &again));
        CHECK_MEM(again->params.weights, first->params.weights, first->params.weights_bytes);
    }
    ares_adapter_free(first);
    ares_adapter_free(again);
    tear_down(&s);
    ares_str_fini(&read);
}
