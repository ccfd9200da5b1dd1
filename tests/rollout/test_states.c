/*
 * Models with delta nets: what a sequence carries from token to token decides no bit, however a
 * prompt is cut, whoever decodes beside it, whether it has lost its blocks, goes on from a snapshot
 * or has drafts. Seen to fail with a sample that goes on in its prompt's own slot, with states that
 * are not dropped with blocks; with snapshots that are not copied, found by their block alone, kept
 * over a change of weights, or given away newest first.
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
            memcpy(got->ids[i][c.index], c.ids, NEW * sizeof *c.ids);
            memcpy(got->log_probs[i][c.index], c.log_probs, NEW * sizeof *c.log_probs);
        }
    }
    ares_rollout_get_stats(r, stats);
    CHECK_EQ(rollout_blocks_available(&r->blocks), r->blocks.total);
    CHECK_EQ(r->states.n_free + r->states.n_snapshots, r->states.cap);
    CHECK(r->states.n_snapshots <= r->states.most);
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
        { .cache_tokens = 256,
          .max_num_seqs = 3,
          .max_num_batched_tokens = 40,
          .state_snapshots = 2,
          .drafts_tokens = true },
        { .cache_tokens = 512,
          .max_num_seqs = 4,
          .max_num_batched_tokens = 30,
          .state_snapshots = -1 },
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

/* ---------------------------------------------------------------- snapshots */
enum { TURNS = 5, MOST = 400, ANSWER = 19 };

static ares_rollout *open_rollout(int64_t cache_tokens, int32_t batched, int32_t snapshots,
                                  bool drafts)
{
    ares_rollout *r = NULL;
    ares_rollout_options o = { .cache_tokens = cache_tokens,
                               .max_num_seqs = 8,
                               .max_num_batched_tokens = batched,
                               .max_model_len = MOST,
                               .drafts_tokens = drafts,
                               .state_snapshots = snapshots };
    CHECK_OK(ares_rollout_new(model, NULL, &o, &r));
    return r;
}

static ares_request request_for(const int32_t *prompt, int32_t len, int32_t n, int32_t new, int key)
{
    return (ares_request){
        .prompt = prompt,
        .prompt_len = len,
        .n = n,
        .sampling = { .temperature = 1, .top_p = 1, .max_new_tokens = new, .ignore_eos = true },
        .key = ares_rng_root((uint64_t)key, ARES_RNG_SAMPLE)
    };
}

static void fill(int32_t *ids, int32_t n, int seed)
{
    ares_rng_key key = ares_rng_root((uint64_t)seed, 0);
    for (int32_t i = 0; i < n; i++) ids[i] = (int32_t)ares_rng_below(key, (uint64_t)i, 250);
}

static ares_completion finish_one(ares_rollout *r)
{
    ares_completion c = { 0 };
    int64_t active = 1;
    while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
    CHECK(ares_rollout_next(r, &c));
    return c;
}

static int64_t prefilled(const ares_rollout *r)
{
    ares_rollout_stats stats;
    ares_rollout_get_stats(r, &stats);
    return stats.prefill_tokens;
}

typedef struct talk {
    int32_t ids[MOST], n, cached[TURNS];
    float log_probs[TURNS][ANSWER];
} talk;

/* A turn: something is said, 20 + 3 turn tokens, and the model answers. Gives what was computed. */
static int64_t turn_of(ares_rollout *r, talk *t, int who, int turn)
{
    int64_t before = prefilled(r);
    int32_t said = 20 + 3 * turn;
    fill(t->ids + t->n, said, 100 * who + turn);
    t->n += said;
    ares_request q = request_for(t->ids, t->n, 1, ANSWER, who);
    q.turn = (uint64_t)turn;
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    ares_completion c = finish_one(r);
    CHECK_EQ(c.n_tokens, ANSWER);
    CHECK_EQ(c.cached_tokens + prefilled(r) - before, t->n);
    memcpy(t->ids + t->n, c.ids, sizeof(int32_t) * ANSWER);
    memcpy(t->log_probs[turn], c.log_probs, sizeof(float) * ANSWER);
    t->n += ANSWER;
    t->cached[turn] = c.cached_tokens;
    return prefilled(r) - before;
}

static void close_model(void)
{
    ares_model_free(model);
    ares_device_close(&device);
}

/* Of an answer the last token has never been computed; with drafts a few more are missing. */
TEST(a_turn_of_a_conversation_with_delta_nets_costs_its_new_tokens)
{
    if (!open_model(ARES_F32, ARES_F32)) return;
    for (int drafts = 0; drafts < 2; drafts++) {
        ares_rollout *r = open_rollout(4096, 64, 0, drafts);
        talk t = { 0 };
        for (int turn = 0; turn < TURNS; turn++) {
            int64_t cost = turn_of(r, &t, 1, turn), new = 20 + 3 * turn + (turn > 0);
            if (drafts) CHECK(cost >= new && cost <= new + ROLLOUT_DRAFT);
            else CHECK_EQ(cost, new);
        }
        ares_rollout_free(r);
    }
    close_model();
}

/*
 * Two conversations in turns. Each of them is found again where there is room for its end, the
 * other's, and that of the prompt that is answered.
 */
TEST(snapshots_and_blocks_that_were_given_away_change_no_bit_of_a_conversation)
{
    static const struct {
        int64_t cache;
        int32_t batched, snapshots, found; /* found: turns; -1: some */
        bool drafts;
    } ways[] = {
        { 4096, 64, -1, 0, false }, { 4096, 64, 1, 0, false }, { 4096, 64, 2, 4, false },
        { 4096, 9, 3, 8, false },   { 4096, 17, 0, 8, false }, { 4096, 64, 0, 8, true },
        { 448, 17, 0, -1, false },  { 448, 9, 3, -1, true },
    };
    talk first[2] = { 0 };
    if (!open_model(ARES_F32, ARES_F32)) return;
    for (int k = 0; k < ARES_COUNT(ways); k++) {
        ares_rollout *r =
            open_rollout(ways[k].cache, ways[k].batched, ways[k].snapshots, ways[k].drafts);
        talk t[2] = { 0 };
        int32_t found = 0;
        for (int i = 0; i < 2 * TURNS; i++) (void)turn_of(r, &t[i % 2], i % 2, i / 2);
        for (int i = 0; i < 2 * TURNS; i++) found += t[i % 2].cached[i / 2] > 0;
        if (ways[k].found >= 0) CHECK_EQ(found, ways[k].found);
        else CHECK(found > 0 && found < 8); /* some blocks were given away */
        if (k == 0) memcpy(first, t, sizeof t);
        for (int i = 0; i < 2; i++) {
            CHECK_MEM(t[i].ids, first[i].ids, sizeof t[i].ids);
            CHECK_MEM(t[i].log_probs, first[i].log_probs, sizeof t[i].log_probs);
        }
        CHECK(r->states.n_snapshots <= ARES_MAX(ways[k].snapshots ? ways[k].snapshots : 8, 0));
        CHECK_EQ(r->states.n_free + r->states.n_snapshots, r->states.cap);
        ares_rollout_free(r);
    }
    close_model();
}

/* Also inside a block, in chunks of 1, 7 and 32 rows, and more than once. */
TEST(a_prompt_goes_on_from_the_end_of_another_of_every_length)
{
    enum { LONG = 90, NEW = 6 };
    static const int32_t batched[] = { 64, 1, 7, 32 };
    int32_t ids[LONG], want[NEW];
    float want_p[NEW];
    if (!open_model(ARES_F32, ARES_F32)) return;
    fill(ids, LONG, 3);
    for (int32_t n = 0; n <= 70; n++) {
        ares_rollout_options o = { .cache_tokens = 2048,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = batched[n % 4],
                                   .max_model_len = MOST,
                                   .state_snapshots = 7 };
        ares_rollout *r;
        REQUIRE_OK(ares_rollout_new(model, NULL, &o, &r));
        ares_request q = request_for(ids, n, 1, 1, 1);
        if (n) {
            CHECK_OK(ares_rollout_add(r, &q, NULL));
            (void)finish_one(r);
        }
        for (int again = 0; again < 2; again++) {
            q = request_for(ids, LONG, 2, NEW, 2);
            CHECK_OK(ares_rollout_add(r, &q, NULL));
            int64_t active = 1;
            ares_completion c = { 0 };
            while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
            while (ares_rollout_next(r, &c)) {
                CHECK_EQ(c.cached_tokens, n);
                if (c.index) continue;
                if (!n && !again) memcpy(want, c.ids, sizeof want);
                if (!n && !again) memcpy(want_p, c.log_probs, sizeof want_p);
                CHECK_MEM(c.ids, want, sizeof want);
                CHECK_MEM(c.log_probs, want_p, sizeof want_p);
            }
        }
        ares_rollout_free(r);
    }
    close_model();
}

/* In one wave or in four, with snapshots or without; what was cut goes on from where it was. */
TEST(the_prompt_of_a_group_is_computed_once_and_cut_answers_go_on_from_a_snapshot)
{
    enum { PROMPT = 45, NEW = 30, GROUP = 4 };
    int32_t ids[PROMPT + NEW], want[GROUP][NEW];
    if (!open_model(ARES_F32, ARES_F32)) return;
    fill(ids, PROMPT, 8);
    for (int k = 0; k < 6; k++) {
        ares_rollout_options o = { .cache_tokens = 2048,
                                   .max_num_seqs = k % 3 == 0 ? 1 : k % 3 + 2,
                                   .max_num_batched_tokens = 16,
                                   .max_model_len = MOST,
                                   .state_snapshots = k < 3 ? -1 : 8 };
        ares_rollout *r;
        REQUIRE_OK(ares_rollout_new(model, NULL, &o, &r));
        ares_request q = request_for(ids, PROMPT, GROUP, NEW, 7);
        ares_completion c;
        int64_t active = 1, id;
        CHECK_OK(ares_rollout_add(r, &q, &id));
        while (active && CHECK_OK(ares_rollout_step(r, &active)))
            while (ares_rollout_next(r, &c)) {
                if (!k) memcpy(want[c.index], c.ids, sizeof want[0]);
                CHECK_MEM(c.ids, want[c.index], sizeof want[0]);
            }
        CHECK_EQ(prefilled(r), PROMPT);
        if (k != 3) {
            ares_rollout_free(r);
            continue;
        }
        /* once more: sample 0 is cut where it is, then back to before, and goes on */
        for (int back = 0; back < 2; back++) {
            q = request_for(ids, PROMPT, 1, NEW, 7);
            CHECK_OK(ares_rollout_add(r, &q, &id));
            for (int i = 0; i < 20; i++) CHECK_OK(ares_rollout_step(r, &active));
            ares_rollout_look(r, id, 0, &c);
            int32_t n = back ? 5 : c.n_tokens;
            CHECK(n > 4 && n < NEW);
            CHECK(ares_rollout_cut(r, id, 0, n));
            CHECK(ares_rollout_next(r, &c));
            memcpy(ids + PROMPT, want[0], (size_t)n * sizeof *ids);
            ares_request rest = q;
            rest.prompt_len += n;
            rest.response_len = n;
            CHECK_OK(ares_rollout_add(r, &rest, NULL));
            c = finish_one(r);
            /* the snapshot of the other one is there the second time, but further on */
            CHECK_EQ(c.cached_tokens, back ? PROMPT : PROMPT + n - 1);
            CHECK_EQ(c.n_tokens, NEW - n);
            CHECK_MEM(c.ids, want[0] + n, (size_t)c.n_tokens * sizeof *c.ids);
        }
        ares_rollout_free(r);
    }
    close_model();
}

/* The end lies inside a block; whoever comes second finds it, too, and so does a third. */
TEST(several_go_on_from_the_same_end)
{
    enum { PROMPT = 37, NEW = 11, SAID = 9, ALL = PROMPT + NEW + SAID };
    int32_t ids[3][ALL];
    if (!open_model(ARES_F32, ARES_F32)) return;
    ares_rollout *r = open_rollout(2048, 64, 0, false), *alone = open_rollout(2048, 64, -1, false);
    fill(ids[0], PROMPT, 5);
    ares_request q = request_for(ids[0], PROMPT, 1, NEW, 1);
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    ares_completion c = finish_one(r), want;
    memcpy(ids[0] + PROMPT, c.ids, NEW * sizeof **ids);
    for (int i = 0; i < 3; i++) {
        memcpy(ids[i], ids[0], (PROMPT + NEW) * sizeof **ids);
        fill(ids[i] + PROMPT + NEW, SAID, 20 + i);
        q = request_for(ids[i], ALL, 1, NEW, 2);
        CHECK_OK(ares_rollout_add(r, &q, NULL));
        CHECK_OK(ares_rollout_add(alone, &q, NULL));
        if (i == 1) continue; /* together with the last one */
        int64_t active = 1;
        while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
        while (ares_rollout_next(r, &c)) {
            CHECK_EQ(c.cached_tokens, PROMPT + NEW - 1);
            for (active = 1; active && CHECK_OK(ares_rollout_step(alone, &active));) {}
            CHECK(ares_rollout_next(alone, &want));
            CHECK_MEM(c.ids, want.ids, NEW * sizeof *c.ids);
            CHECK_MEM(c.log_probs, want.log_probs, NEW * sizeof *c.log_probs);
        }
    }
    ares_rollout_free(r);
    ares_rollout_free(alone);
    close_model();
}

/* The ids are the same; the state is another one. */
TEST(other_weights_find_no_state_of_the_weights_before)
{
    int32_t ids[70];
    if (!open_model(ARES_F32, ARES_F32)) return;
    ares_rollout *r = open_rollout(2048, 64, 0, false), *fresh = open_rollout(2048, 64, 0, false);
    fill(ids, 70, 9);
    ares_request q = request_for(ids, 50, 1, 1, 1), longer = request_for(ids, 70, 1, 8, 1);
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    (void)finish_one(r);
    CHECK_OK(ares_rollout_add(r, &longer, NULL));
    ares_completion c = finish_one(r), want;
    float before = c.log_probs[0];
    CHECK_EQ(c.cached_tokens, 50);
    for (int i = 0; i < model->params.n; i++)
        if (strstr(model->params.list[i].name, "dt_bias"))
            for (int64_t k = 0; k < model->params.list[i].shape[0]; k++)
                ((float *)model->params.list[i].weight.data)[k] += 1.5f;
    ares_rollout_clear(r);
    CHECK_EQ(r->states.n_snapshots, 0);
    CHECK_OK(ares_rollout_add(r, &longer, NULL));
    CHECK_OK(ares_rollout_add(fresh, &longer, NULL));
    c = finish_one(r);
    want = finish_one(fresh);
    CHECK_EQ(c.cached_tokens, 0);
    CHECK(c.log_probs[0] != before);
    CHECK_MEM(c.ids, want.ids, 8 * sizeof *c.ids);
    CHECK_MEM(c.log_probs, want.log_probs, 8 * sizeof *c.log_probs);
    ares_rollout_free(r);
    ares_rollout_free(fresh);
    close_model();
}
