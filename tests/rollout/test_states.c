/*
 * Models with delta nets: what a sequence carries from token to token decides no bit, however a
 * prompt is cut, whoever decodes beside it, and whether it has lost its blocks. Seen to fail with a
 * sample that goes on in its prompt's own slot, and with states that are not dropped with blocks.
 */
#include <string.h>

#include "internal.h"
#include "test.h"

enum { ASKED = 6, SAMPLES = 3, NEW = 80, LONGEST = 73 };

static ares_device device;
static ares_model *model;

static bool open_model(ares_dtype storage, ares_dtype arithmetic)
{
    ares_model_options opt = { .storage = storage, .arithmetic = arithmetic };
    const char *path = test_source("tests/golden/models/qwen3_5_interval");
    return CHECK_OK(ares_device_open("cpu", 2, &device)) &&
           CHECK_OK(ares_model_load(path, &device, &opt, &model));
}

/* Prompt i, of some length up to LONGEST. */
static int32_t prompt_of(int i, int32_t ids[static LONGEST])
{
    static const int32_t lengths[ASKED] = { 1, LONGEST, 32, 33, 64, 7 };
    ares_rng_key key = ares_rng_root((uint64_t)i, 0);
    for (int32_t t = 0; t < lengths[i]; t++)
        ids[t] = (int32_t)ares_rng_below(key, (uint64_t)t, 250);
    return lengths[i];
}

typedef struct answers {
    int32_t ids[ASKED][SAMPLES][NEW];
    float log_probs[ASKED][SAMPLES][NEW];
} answers;

static void ask(ares_rollout *r, int i)
{
    int32_t ids[LONGEST], n = prompt_of(i, ids);
    CHECK_OK(ares_rollout_add(
        r,
        &(ares_request){
            .prompt = ids,
            .prompt_len = n,
            .n = SAMPLES,
            .sampling = { .temperature = 1, .top_p = 1, .max_new_tokens = NEW, .ignore_eos = true },
            .key = ares_rng_root((uint64_t)i, ARES_RNG_SAMPLE) },
        NULL));
}

/* All requests in that order, some of which arrive while others decode. */
static void sample(const ares_rollout_options *o, const int64_t *order, answers *got,
                   ares_rollout_stats *stats)
{
    ares_rollout *r;
    ares_completion c;
    int64_t active = 1;
    int asked = 0;
    memset(got, 0, sizeof *got);
    REQUIRE_OK(ares_rollout_new(model, NULL, o, &r));
    for (int64_t steps = 0; active || asked < ASKED; steps++) {
        while (asked < ASKED && (asked < 2 || steps > 5 * asked || !active))
            ask(r, (int)order[asked++]), active = 1;
        if (!CHECK_OK(ares_rollout_step(r, &active))) break;
        while (ares_rollout_next(r, &c)) {
            int64_t i = order[c.request];
            CHECK_EQ(c.n_tokens, NEW);
            CHECK_EQ(c.cached_tokens, 0);
            memcpy(got->ids[i][c.index], c.ids, NEW * sizeof *c.ids);
            memcpy(got->log_probs[i][c.index], c.log_probs, NEW * sizeof *c.log_probs);
        }
    }
    ares_rollout_get_stats(r, stats);
    CHECK_EQ(rollout_blocks_available(&r->blocks), r->blocks.total);
    CHECK_EQ(r->states.n_free, r->states.cap);
    ares_rollout_free(r);
}

static void in_every_way(void)
{
    static const ares_rollout_options ways[] = {
        { .cache_tokens = 8192, .max_num_seqs = 32, .max_num_batched_tokens = 500 },
        { .cache_tokens = 8192, .max_num_seqs = 1, .max_num_batched_tokens = 5 },
        { .cache_tokens = 256, .max_num_seqs = 8, .max_num_batched_tokens = 50 },
        { .cache_tokens = 8192,
          .max_num_seqs = 5,
          .max_num_batched_tokens = 17,
          .drafts_tokens = true },
    };
    static answers want, got;
    int64_t preempted = 0, order[ASKED];
    for (int k = 0; k < ARES_COUNT(ways); k++) {
        ares_rollout_options o = ways[k];
        ares_rollout_stats stats;
        o.max_model_len = 200;
        for (int i = 0; i < ASKED; i++) order[i] = i;
        if (k) ares_rng_shuffle(ares_rng_root((uint64_t)k, 0), order, ASKED);
        sample(&o, order, k ? &got : &want, &stats);
        preempted += stats.preemptions;
        if (k) CHECK_MEM(&got, &want, sizeof want);
    }
    CHECK(preempted > 0);
}

TEST(no_order_no_size_and_no_arrival_changes_a_sample_of_a_model_with_delta_nets)
{
    if (!open_model(ARES_F32, ARES_F32)) return;
    in_every_way();
    ares_model_free(model);
    ares_device_close(&device);
}

TEST(nor_does_it_in_bf16_arithmetic)
{
    if (!open_model(ARES_BF16, ARES_BF16)) return;
    in_every_way();
    ares_model_free(model);
    ares_device_close(&device);
}

/* Each sample's n-th token has the log-prob that a pass over the whole sequence gives it. */
TEST(what_is_sampled_has_the_bits_of_a_pass_over_the_sequence)
{
    static answers got;
    ares_rollout_stats stats;
    ares_rollout_options o = {
        .cache_tokens = 4096, .max_num_seqs = 7, .max_num_batched_tokens = 30, .max_model_len = 200
    };
    int64_t order[ASKED] = { 0, 1, 2, 3, 4, 5 };
    ares_workspace *w;
    if (!open_model(ARES_F32, ARES_F32)) return;
    sample(&o, order, &got, &stats);
    CHECK_OK(ares_workspace_new(model, ARES_KEEP_NOTHING, &w));
    for (int i = 0; i < ASKED; i++) {
        int32_t ids[SAMPLES * (LONGEST + NEW)], positions[SAMPLES * (LONGEST + NEW)],
            start[SAMPLES + 1] = { 0 }, out[SAMPLES * NEW], target[SAMPLES * NEW];
        float log_prob[SAMPLES * NEW], entropy[SAMPLES * NEW], lse[SAMPLES * NEW];
        for (int s = 0; s < SAMPLES; s++) {
            int32_t *at = ids + start[s], n = prompt_of(i, at);
            memcpy(at + n, got.ids[i][s], NEW * sizeof *at);
            for (int32_t t = 0; t < n + NEW; t++) positions[start[s] + t] = t;
            for (int32_t t = 0; t < NEW; t++) {
                out[s * NEW + t] = start[s] + n - 1 + t;
                target[s * NEW + t] = got.ids[i][s][t];
            }
            start[s + 1] = start[s] + n + NEW;
        }
        ares_packed p = { .rows = start[SAMPLES],
                          .ids = ids,
                          .positions = positions,
                          .seg = { .n = SAMPLES, .rows = start[SAMPLES], .start = start },
                          .n_out = SAMPLES * NEW,
                          .out_rows = out };
        void *hidden;
        REQUIRE_OK(ares_model_forward(model, w, &p, &hidden));
        device.k->head(&device, &(ares_head_args){ .rows = SAMPLES * NEW,
                                                   .vocab = model->cfg.vocab,
                                                   .x = hidden,
                                                   .ldx = model->cfg.hidden,
                                                   .w = ares_model_head(model),
                                                   .inv_temperature = 1,
                                                   .target = target,
                                                   .log_prob = log_prob,
                                                   .entropy = entropy,
                                                   .lse = lse });
        CHECK_MEM(log_prob, got.log_probs[i], sizeof log_prob);
    }
    ares_workspace_free(w);
    ares_model_free(model);
    ares_device_close(&device);
}
