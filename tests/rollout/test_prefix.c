/*
 * The prefix cache: what it saves, and that it decides no bit. Requests that go on with a response,
 * samples that are cut, requests that arrive while others decode.
 */
#include <string.h>

#include "ares/kernels.h"
#include "ares/rollout.h"
#include "ares/text.h"
#include "internal.h"
#include "test.h"

enum { VOCAB = 100, TURNS = 5, MOST = 400 };

static ares_device device;
static ares_model *model;

static bool open_model(void)
{
    ares_model_options opt = { TEST_TYPES };
    const char *path = test_source("tests/golden/models/qwen2_tied");
    return CHECK_OK(ares_device_open("cpu", 2, &device)) &&
           CHECK_OK(ares_model_load(path, &device, &opt, &model));
}

static void close_model(void)
{
    ares_model_free(model);
    ares_device_close(&device);
}

static ares_rollout *open_rollout(int64_t cache_tokens, int32_t batched, bool no_prefix_cache)
{
    ares_rollout *r = NULL;
    ares_rollout_options o = { .cache_tokens = cache_tokens,
                               .max_num_seqs = 8,
                               .max_num_batched_tokens = batched,
                               .max_model_len = MOST,
                               .no_prefix_cache = no_prefix_cache };
    CHECK_OK(ares_rollout_new(model, NULL, &o, &r));
    return r;
}

static ares_request request_of(const int32_t *prompt, int32_t len, int32_t n, int32_t new, int key)
{
    return (ares_request){
        .prompt = prompt,
        .prompt_len = len,
        .n = n,
        .sampling = { .temperature = 1, .top_p = 1, .max_new_tokens = new, .ignore_eos = true },
        .key = ares_rng_root((uint64_t)key, ARES_RNG_SAMPLE)
    };
}

/* Any ids, the same for the same seed. */
static void fill(int32_t *ids, int32_t n, int seed)
{
    ares_rng_key key = ares_rng_root((uint64_t)seed, 0);
    for (int32_t i = 0; i < n; i++) ids[i] = (int32_t)ares_rng_below(key, (uint64_t)i, VOCAB);
}

static ares_completion finish_one(ares_rollout *r)
{
    ares_completion c = { 0 };
    int64_t active = 1;
    while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
    CHECK(ares_rollout_next(r, &c));
    return c;
}

/* ---------------------------------------------------------------- conversations */
typedef struct talk {
    int32_t ids[MOST], n;
    float log_probs[TURNS][40];
} talk;

/* A turn: something is said, 20 + 3 turn tokens, and the model answers with 19. */
static void turn_of(ares_rollout *r, talk *t, int who, int turn, ares_rollout_stats *stats)
{
    int32_t said = 20 + 3 * turn;
    fill(t->ids + t->n, said, 100 * who + turn);
    t->n += said;
    ares_request q = request_of(t->ids, t->n, 1, 19, who);
    q.turn = (uint64_t)turn;
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    ares_completion c = finish_one(r);
    CHECK_EQ(c.n_tokens, 19);
    memcpy(t->ids + t->n, c.ids, 19 * sizeof(int32_t));
    memcpy(t->log_probs[turn], c.log_probs, 19 * sizeof(float));
    t->n += 19;
    ares_rollout_get_stats(r, stats);
}

/* Of what was sampled, the last token has never been computed. */
TEST(a_turn_of_a_conversation_costs_its_new_tokens)
{
    if (!open_model()) return;
    ares_rollout *r = open_rollout(2048, 64, false);
    ares_rollout_stats stats = { 0 };
    talk t = { 0 };
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t before = stats.prefill_tokens, reused = stats.reused_tokens;
        turn_of(r, &t, 1, turn, &stats);
        int64_t cost = stats.prefill_tokens - before;
        CHECK_EQ(cost, 20 + 3 * turn + (turn > 0));
        CHECK_EQ(cost + stats.reused_tokens - reused, t.n - 19);
    }
    CHECK(stats.reused_tokens > 200);
    ares_rollout_clear(r);
    ares_request q = request_of(t.ids, t.n, 1, 2, 1);
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    (void)finish_one(r);
    ares_rollout_get_stats(r, &stats);
    CHECK_EQ(stats.reused_tokens, 0);
    CHECK_EQ(stats.prefill_tokens, t.n);
    ares_rollout_free(r);
    close_model();
}

/* Also where several samples went on from the same prompt, and two of them said the same. */
TEST(each_sample_of_a_group_goes_on_in_its_own_last_block)
{
    enum { SAMPLES = 4, PROMPT = 40, NEW = 11, SAID = 9 };
    int32_t ids[SAMPLES][PROMPT + NEW + SAID];
    if (!open_model()) return;
    ares_rollout *r = open_rollout(2048, 64, false);
    ares_completion c;
    ares_rollout_stats stats;
    int64_t active = 1;
    for (int i = 0; i < SAMPLES; i++) fill(ids[i], PROMPT, 5);
    ares_request q = request_of(ids[0], PROMPT, SAMPLES - 1, NEW, 1);
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    q.n = 1; /* the first sample once more */
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
    while (ares_rollout_next(r, &c))
        memcpy(ids[c.request ? SAMPLES - 1 : c.index] + PROMPT, c.ids, NEW * sizeof(int32_t));
    CHECK_MEM(ids[0], ids[SAMPLES - 1], (PROMPT + NEW) * sizeof(int32_t));
    ares_rollout_get_stats(r, &stats);
    int64_t before = stats.prefill_tokens;
    for (int i = 0; i < SAMPLES; i++) {
        fill(ids[i] + PROMPT + NEW, SAID, 20 + i);
        q = request_of(ids[i], PROMPT + NEW + SAID, 1, NEW, 2);
        CHECK_OK(ares_rollout_add(r, &q, NULL));
    }
    for (active = 1; active && CHECK_OK(ares_rollout_step(r, &active));) {}
    ares_rollout_get_stats(r, &stats);
    CHECK_EQ(stats.prefill_tokens - before, SAMPLES * (SAID + 1));
    ares_rollout_free(r);
    close_model();
}

/* Two conversations in turns: alone, together, in a cache that holds both, one, or nothing kept. */
TEST_BITS(the_cache_decides_no_bit_of_a_conversation)
{
    static const int64_t cache[] = { 2048, 2048, 320, 288 };
    static const int32_t batched[] = { 64, 64, 17, 9 };
    talk first[2] = { 0 };
    int64_t reused[4];
    if (!open_model()) return;
    for (int k = 0; k < 4; k++) {
        ares_rollout *r = open_rollout(cache[k], batched[k], k == 0);
        ares_rollout_stats stats = { 0 };
        talk t[2] = { 0 };
        for (int i = 0; i < 2 * TURNS; i++) turn_of(r, &t[i % 2], i % 2, i / 2, &stats);
        reused[k] = stats.reused_tokens;
        if (k == 0) memcpy(first, t, sizeof t);
        CHECK_MEM(t, first, sizeof t);
        ares_rollout_free(r);
    }
    CHECK_EQ(reused[0], 0);
    CHECK(reused[1] > 400);
    CHECK(reused[2] > 0 && reused[2] < reused[1]); /* some blocks were given away */
    close_model();
}

/*
 * A prompt that fills its blocks, asked twice with two keys: its last token is computed again, for
 * the hidden state. The turn is part of the key.
 */
TEST(a_prompt_of_whole_blocks_is_found_but_for_its_last_one)
{
    int32_t ids[2 * ARES_KV_BLOCK], answers[2][3][20];
    if (!open_model()) return;
    fill(ids, 2 * ARES_KV_BLOCK, 11);
    for (int cache = 0; cache < 2; cache++) {
        ares_rollout *r = open_rollout(2048, 64, cache == 0);
        ares_rollout_stats stats;
        for (int i = 0; i < 3; i++) {
            ares_request q = request_of(ids, 2 * ARES_KV_BLOCK, 1, 20, i > 0);
            q.turn = i > 1;
            CHECK_OK(ares_rollout_add(r, &q, NULL));
            ares_completion c = finish_one(r);
            CHECK_EQ(c.n_tokens, 20);
            memcpy(answers[cache][i], c.ids, sizeof answers[0][0]);
        }
        ares_rollout_get_stats(r, &stats);
        CHECK_EQ(stats.reused_tokens, cache ? 2 * ARES_KV_BLOCK : 0);
        CHECK_EQ(stats.prefill_tokens + stats.reused_tokens, 3 * 2 * ARES_KV_BLOCK);
        ares_rollout_free(r);
    }
    CHECK_MEM(answers[1], answers[0], sizeof answers[0]);
    CHECK(memcmp(answers[0][0], answers[0][1], sizeof answers[0][0]) != 0);
    CHECK(memcmp(answers[0][1], answers[0][2], sizeof answers[0][0]) != 0);
    close_model();
}

/* ---------------------------------------------------------------- many requests */
enum { ASKED = 12, SAMPLES = 3, NEW = 41 };

/* Prompts with a common beginning of 0, 33 or 64 tokens. */
static void ask(ares_rollout *r, int i)
{
    int32_t ids[128], common = i % 3 == 0 ? 0 : i % 3 == 1 ? 33 : 64, len = common + 5 + 7 * i % 50;
    fill(ids, 64, 7);
    fill(ids + common, len - common, 1000 + i / 4); /* some are the same prompt with another key */
    ares_request q = request_of(ids, len, SAMPLES, NEW - i, i);
    int64_t id;
    CHECK_OK(ares_rollout_add(r, &q, &id));
}

/*
 * A prompt whose blocks are all alike, answered alone and then beside a shorter one, in a cache of
 * six blocks: the answer goes back to waiting, and its prompt finds its two whole blocks again,
 * each at its own place.
 */
TEST(a_prompt_that_lost_its_blocks_finds_them_again_in_their_order)
{
    enum { PROMPT = 65, NEW = 90 };
    int32_t alike[PROMPT], other[4] = { 5, 9, 3, 14 }, ids[2][NEW] = { 0 };
    if (!open_model()) return;
    for (int i = 0; i < PROMPT; i++) alike[i] = 7;
    ares_rollout *r = open_rollout(6 * ARES_KV_BLOCK, 64, false);
    ares_request q = request_of(alike, PROMPT, 1, NEW, 1), beside = request_of(other, 4, 1, 70, 2);
    ares_completion c;
    ares_rollout_stats stats;
    int64_t active = 1, id = -1;
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    c = finish_one(r);
    memcpy(ids[0], c.ids, sizeof ids[0]);
    CHECK_OK(ares_rollout_add(r, &beside, NULL));
    CHECK_OK(ares_rollout_step(r, &active));
    CHECK_OK(ares_rollout_add(r, &q, &id));
    while (active && CHECK_OK(ares_rollout_step(r, &active)))
        while (ares_rollout_next(r, &c))
            if (c.request == id) memcpy(ids[1], c.ids, sizeof ids[1]);
    ares_rollout_get_stats(r, &stats);
    CHECK_EQ(stats.preemptions, 1);
    CHECK_EQ(stats.reused_tokens, 2 * 2 * ARES_KV_BLOCK);
    CHECK_MEM(ids[1], ids[0], sizeof ids[0]);
    ares_rollout_free(r);
    close_model();
}

TEST_BITS(no_order_no_size_and_no_arrival_changes_a_sample)
{
    static int32_t want[ASKED][SAMPLES][NEW], got[ASKED][SAMPLES][NEW];
    static float want_p[ASKED][SAMPLES][NEW], got_p[ASKED][SAMPLES][NEW];
    if (!open_model()) return;
    for (int k = 0; k < 6; k++) {
        int64_t order[ASKED], active = 1, steps = 0;
        int asked = 0;
        ares_completion c;
        for (int i = 0; i < ASKED; i++) order[i] = i;
        if (k) ares_rng_shuffle(ares_rng_root((uint64_t)k, 0), order, ASKED);
        ares_rollout *r = open_rollout(k % 2 ? 256 : 4096, k % 3 ? 50 : 500, k == 0);
        memset(got, 0, sizeof got), memset(got_p, 0, sizeof got_p);
        while (active || asked < ASKED) {
            /* a few at the start, the others while those decode */
            while (asked < ASKED && (asked < 3 || steps > 4 * asked || !active))
                ask(r, (int)order[asked++]), active = 1;
            if (!CHECK_OK(ares_rollout_step(r, &active))) break;
            steps++;
            while (ares_rollout_next(r, &c)) {
                int64_t i = order[c.request];
                memcpy(got[i][c.index], c.ids, (size_t)c.n_tokens * sizeof(int32_t));
                memcpy(got_p[i][c.index], c.log_probs, (size_t)c.n_tokens * sizeof(float));
            }
        }
        if (k == 0) memcpy(want, got, sizeof want), memcpy(want_p, got_p, sizeof want_p);
        CHECK_MEM(got, want, sizeof want);
        CHECK_MEM(got_p, want_p, sizeof want_p);
        CHECK_EQ(rollout_blocks_available(&r->blocks), r->blocks.total);
        ares_rollout_free(r);
    }
    close_model();
}

/* ---------------------------------------------------------------- going on, and cutting */
TEST_BITS(a_request_goes_on_with_a_response_as_if_it_had_never_stopped)
{
    if (!open_model()) return;
    int32_t ids[128];
    fill(ids, 40, 3);
    for (int cache = 0; cache < 2; cache++) {
        ares_rollout *r = open_rollout(2048, 64, cache == 0);
        ares_request q = request_of(ids, 40, 4, 60, 9);
        q.turn = 2;
        CHECK_OK(ares_rollout_add(r, &q, NULL));
        ares_completion whole[4], c;
        int64_t active = 1;
        while (active && CHECK_OK(ares_rollout_step(r, &active)))
            while (ares_rollout_next(r, &c)) whole[c.index] = c;
        for (int32_t cut = 1; cut < 60; cut += 29) {
            int32_t longer[128];
            memcpy(longer, ids, 40 * sizeof(int32_t));
            memcpy(longer + 40, whole[2].ids, (size_t)cut * sizeof(int32_t));
            ares_request rest = q;
            rest.prompt = longer;
            rest.prompt_len = 40 + cut;
            rest.response_len = cut;
            rest.n = 1;
            rest.first_index = 2;
            CHECK_OK(ares_rollout_add(r, &rest, NULL));
            c = finish_one(r);
            CHECK_EQ(c.index, 2);
            CHECK_EQ(c.n_tokens, 60 - cut);
            CHECK_EQ(c.finish, ARES_FINISH_LENGTH);
            CHECK_MEM(c.ids, whole[2].ids + cut, (size_t)c.n_tokens * sizeof(int32_t));
            CHECK_MEM(c.log_probs, whole[2].log_probs + cut, (size_t)c.n_tokens * sizeof(float));
            CHECK_MEM(c.entropies, whole[2].entropies + cut, (size_t)c.n_tokens * sizeof(float));
        }
        ares_request none = q;
        none.response_len = 40;
        CHECK_FAIL(ares_rollout_add(r, &none, NULL), ARES_ECONFIG, "response_len = 40");
        none.response_len = 20;
        none.sampling.max_new_tokens = 20;
        CHECK_FAIL(ares_rollout_add(r, &none, NULL), ARES_ECONFIG, "max_new_tokens = 20");
        ares_rollout_free(r);
    }
    close_model();
}

TEST(a_sample_ends_where_it_is_cut_and_its_neighbours_do_not_notice)
{
    if (!open_model()) return;
    int32_t ids[64], want[4][50];
    fill(ids, 37, 5);
    ares_request q = request_of(ids, 37, 4, 50, 4);
    ares_rollout *r = open_rollout(2048, 64, false);
    ares_completion c;
    int64_t active = 1, id = -1;
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    while (active && CHECK_OK(ares_rollout_step(r, &active)))
        while (ares_rollout_next(r, &c)) memcpy(want[c.index], c.ids, sizeof want[0]);
    CHECK_OK(ares_rollout_add(r, &q, &id));
    CHECK(ares_rollout_cut(r, id, 3, 0)); /* before it has begun */
    for (int i = 0; i < 20; i++) CHECK_OK(ares_rollout_step(r, &active));
    CHECK(ares_rollout_cut(r, id, 0, 12)); /* has more */
    CHECK(ares_rollout_cut(r, id, 1, 31)); /* will have more */
    CHECK(ares_rollout_cut(r, id, 2, 70)); /* beyond its end */
    CHECK(ares_rollout_cut(r, id, 2, 50)); /* where its length ends it in any case */
    CHECK(!ares_rollout_cut(r, id, 0, 5)); /* has finished */
    static const int32_t lengths[] = { 12, 31, 50, 0 };
    int seen = 0;
    do {
        while (ares_rollout_next(r, &c)) {
            CHECK_EQ(c.n_tokens, lengths[c.index]);
            CHECK_EQ(c.finish, c.index == 2 ? ARES_FINISH_LENGTH : ARES_FINISH_CUT);
            if (c.n_tokens) CHECK_MEM(c.ids, want[c.index], (size_t)c.n_tokens * sizeof(int32_t));
            seen++;
        }
    } while (active && CHECK_OK(ares_rollout_step(r, &active)));
    while (ares_rollout_next(r, &c)) seen++;
    CHECK_EQ(seen, 4);
    CHECK_OK(ares_rollout_add(r, &q, &id)); /* all cut before they begin */
    for (int i = 0; i < 4; i++) CHECK(ares_rollout_cut(r, id, i, 0));
    CHECK_OK(ares_rollout_step(r, &active));
    CHECK_EQ(active, 0);
    CHECK_EQ(rollout_blocks_available(&r->blocks), r->blocks.total);
    ares_rollout_free(r);
    close_model();
}

/* The text of tokens [0, n), and where each begins. */
static void text_of(const ares_tokenizer *t, const int32_t *ids, int32_t n, ares_str *out,
                    size_t *begins)
{
    ares_decoder d;
    ares_decoder_init(&d, t, false);
    ares_str_clear(out);
    for (int32_t i = 0; i < n; i++) {
        begins[i] = out->len;
        ares_decoder_add(&d, ids[i], out);
    }
    begins[n] = out->len;
}

/* Stop strings of the end of a token and the beginning of the next one. */
TEST(a_stop_string_is_found_over_two_tokens_also_where_an_answer_goes_on)
{
    /* seen to fail: with matches looked for in the new token's text alone, and without the text of
     * the tokens that an answer has already */
    enum { TOKENS = 40, PROMPT = 9 };
    if (!open_model()) return;
    const ares_rollout_options o = {
        .cache_tokens = 1024, .max_num_seqs = 4, .max_num_batched_tokens = 64, .max_model_len = 128
    };
    ares_tokenizer *t = NULL;
    ares_rollout *r = NULL;
    ares_str text = { 0 };
    int32_t ids[PROMPT + TOKENS];
    size_t begins[TOKENS + 1];
    int64_t active = 1;
    int tried = 0;
    ares_completion c = { 0 };
    fill(ids, PROMPT, 5);
    ares_request q = request_of(ids, PROMPT, 1, TOKENS, 4);
    q.sampling.ignore_eos = true;
    REQUIRE_OK(ares_tokenizer_load(test_source("tests/golden/tokenizer/qwen2"), &t));
    REQUIRE_OK(ares_rollout_new(model, t, &o, &r));
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
    REQUIRE(ares_rollout_next(r, &c) && c.n_tokens == TOKENS);
    memcpy(ids + PROMPT, c.ids, TOKENS * sizeof *ids);
    text_of(t, ids + PROMPT, TOKENS, &text, begins);
    for (int at = 4; at < TOKENS - 1 && tried < 5; at += 3) {
        size_t end = begins[at + 1];
        if (begins[at] == end || begins[at + 2] == end || end < 1) continue;
        char stop[3] = { text.data[end - 1], text.data[end], 0 };
        const char *stops[] = { stop };
        int64_t found = ares_view_find(ares_str_view(&text), ares_view_of(stop), 0);
        if (!stop[0] || !stop[1] || found + 1 != (int64_t)end) continue; /* it stands before, too */
        tried++;
        for (int begun = 0; begun < 2; begun++) { /* from the prompt; from the token before on */
            ares_request s = q;
            s.sampling.n_stop_strings = 1;
            s.sampling.stop_strings = stops;
            if (begun) s.prompt_len = PROMPT + at + 1, s.response_len = at + 1;
            ares_rollout_clear(r);
            CHECK_OK(ares_rollout_add(r, &s, NULL));
            for (active = 1; active && CHECK_OK(ares_rollout_step(r, &active));) {}
            REQUIRE(ares_rollout_next(r, &c));
            CHECK_EQ(c.n_tokens, begun ? 1 : at + 2);
            CHECK_EQ(c.finish, ARES_FINISH_STOP);
        }
    }
    CHECK(tried > 1);
    ares_str_fini(&text);
    ares_rollout_free(r);
    ares_tokenizer_free(t);
    close_model();
}

/* ---------------------------------------------------------------- blocks */
TEST(the_block_idle_longest_is_given_away_first_and_found_blocks_stay)
{
    rollout_blocks b;
    int32_t ids[4][ARES_KV_BLOCK], block[4];
    uint64_t serial[4];
    rollout_blocks_init(&b, 4);
    for (int i = 0; i < 4; i++) {
        fill(ids[i], ARES_KV_BLOCK, i);
        block[i] = rollout_block_take(&b);
        serial[i] = rollout_block_keep(&b, block[i], i == 3 ? serial[0] : 0, ids[i], ARES_KV_BLOCK);
    }
    CHECK_EQ(rollout_block_take(&b), -1);
    CHECK_EQ(rollout_block_find(&b, 0, ids[1]), block[1]);
    CHECK_EQ(rollout_block_find(&b, serial[1], ids[1]), -1); /* the same tokens elsewhere */
    CHECK_EQ(rollout_block_find(&b, serial[0], ids[3]), block[3]);
    /* after any other block, whichever bucket that leads to */
    for (uint64_t parent = 100; parent < 1100; parent++)
        CHECK_EQ(rollout_block_find(&b, parent, ids[1]), -1);
    CHECK_EQ(rollout_block_keep(&b, block[2], 0, ids[1], ARES_KV_BLOCK), serial[1]);
    rollout_block_drop(&b, block[2]);
    rollout_block_drop(&b, block[0]);
    rollout_block_drop(&b, block[1]);
    CHECK_EQ(rollout_blocks_available(&b), 3);
    rollout_block_ref(&b, block[2]); /* in use again: the oldest idle one is 0 now */
    CHECK_EQ(rollout_block_take(&b), block[0]);
    CHECK_EQ(rollout_block_find(&b, 0, ids[0]), -1);
    CHECK_EQ(rollout_block_find(&b, 0, ids[1]), block[1]);
    CHECK_EQ(rollout_block_take(&b), block[1]);
    CHECK_EQ(rollout_block_take(&b), -1);
    rollout_blocks_fini(&b);
}

TEST(the_longest_part_of_a_block_that_fits_is_taken_once)
{
    rollout_blocks b;
    int32_t ids[ARES_KV_BLOCK], other[ARES_KV_BLOCK], block[4];
    rollout_blocks_init(&b, 4);
    fill(ids, ARES_KV_BLOCK, 1);
    fill(other, ARES_KV_BLOCK, 2);
    static const int32_t filled[4] = { 3, 9, 20, 9 };
    for (int i = 0; i < 4; i++) {
        block[i] = rollout_block_take(&b);
        CHECK(rollout_block_keep(&b, block[i], 7, i == 3 ? other : ids, filled[i]) > 0);
    }
    for (int i = 0; i < 4; i++) rollout_block_drop(&b, block[i]);
    CHECK_EQ(rollout_block_take_part(&b, 8, ids, 30), -1);
    CHECK_EQ(rollout_block_take_part(&b, 7, ids, 2), -1);
    CHECK_EQ(rollout_block_take_part(&b, 7, ids, 19), block[1]);
    CHECK_EQ(rollout_block_take_part(&b, 7, ids, 19), block[0]);
    CHECK_EQ(rollout_block_take_part(&b, 7, ids, 19), -1);
    CHECK_EQ(rollout_blocks_available(&b), 2);
    CHECK_EQ(rollout_block_take(&b), block[2]); /* for its memory: it is forgotten */
    CHECK_EQ(rollout_block_take_part(&b, 7, ids, 30), -1);
    CHECK_EQ(rollout_block_take_part(&b, 7, other, 9), block[3]);
    CHECK_EQ(rollout_block_take(&b), -1);
    rollout_blocks_fini(&b);
}

/* What a card has left for the cache: filled to the last block, and refused below one sample. */
TEST(a_cache_keeps_to_its_budget_of_bytes)
{
    ares_rollout *r = NULL;
    ares_rollout_stats stats;
    if (!open_model()) return;
    const ares_model_config *c = &model->cfg;
    int64_t block = (int64_t)c->layers * 2 * ARES_KV_BLOCK * c->kv_heads * c->head_dim * 4;
    ares_rollout_options o = { .cache_bytes = 20 * block + block / 2,
                               .max_num_seqs = 64,
                               .max_num_batched_tokens = 64,
                               .max_model_len = MOST };
    CHECK_OK(ares_rollout_new(model, NULL, &o, &r));
    ares_rollout_get_stats(r, &stats);
    CHECK_EQ(stats.total_blocks, 20);
    ares_rollout_free(r);
    o.cache_bytes = 14 * block; /* 400 tokens and a block more take 15 */
    CHECK_FAIL(ares_rollout_new(model, NULL, &o, &r), ARES_ELIMIT, "one sample of 400 tokens");
    close_model();
}

/*
 * The larger phase decides how much memory the two share. What training has there in any case is
 * the cache's, too, unless its size or its budget says less.
 */
TEST(a_cache_has_what_training_needs_in_any_case_within_its_budget)
{
    if (!open_model()) return;
    const ares_model_config *c = &model->cfg;
    int64_t block = (int64_t)c->layers * 2 * ARES_KV_BLOCK * c->kv_heads * c->head_dim * 4;
    const struct {
        int64_t tokens, budget, training, blocks, shared;
    } cases[] = { { 0, 100 * block, 0, 28, 28 },
                  { 0, 100 * block, 40 * block, 39, 40 },
                  { 0, 30 * block, 40 * block, 30, 40 },
                  { 512, 30 * block, 40 * block, 16, 40 },
                  { 512, 30 * block, 10 * block, 16, 16 } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_rollout *r = NULL;
        ares_rollout_stats stats;
        ares_rollout_options o = { .cache_tokens = cases[i].tokens,
                                   .cache_bytes = cases[i].budget,
                                   .training_bytes = (size_t)cases[i].training,
                                   .lends_cache = true,
                                   .max_num_seqs = 2,
                                   .max_num_batched_tokens = 64,
                                   .max_model_len = MOST };
        if (!CHECK_OK(ares_rollout_new(model, NULL, &o, &r))) continue;
        ares_rollout_get_stats(r, &stats);
        CHECK_EQ(stats.total_blocks, cases[i].blocks);
        CHECK_EQ((int64_t)ares_phases_bytes(model->device), cases[i].shared * block);
        ares_rollout_free(r);
    }
    close_model();
}
