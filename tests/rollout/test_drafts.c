/*
 * Drafts: several tokens of a sample in one forward. They change how many steps it takes, and no
 * bit of what is recorded.
 */
#include <stdio.h>
#include <string.h>

#include "ares/rollout.h"
#include "internal.h"
#include "test.h"

enum { PROMPTS = 200, LONG = 60, NEW = 40, MOST_N = 3, LIKELY = 3 };

static ares_device device;
static ares_model *model;
static ares_tokenizer *tokenizer;

static bool open_model(const char *name, int threads)
{
    char path[600];
    ares_model_options opt = { TEST_TYPES };
    snprintf(path, sizeof path, "%s/%s", test_source("tests/golden/models"), name);
    return CHECK_OK(ares_device_open("cpu", threads, &device)) &&
           CHECK_OK(ares_model_load(path, &device, &opt, &model)) &&
           CHECK_OK(ares_tokenizer_load(test_source("tests/golden/tokenizer/qwen2"), &tokenizer));
}

static void close_model(void)
{
    ares_tokenizer_free(tokenizer);
    ares_model_free(model);
    ares_device_close(&device);
}

typedef struct answer {
    int32_t n;
    ares_finish finish;
#define COLUMN(type, name, recorded, text) type name[NEW];
    ARES_ROLLOUT_COLUMNS(COLUMN)
#undef COLUMN
    int32_t likely_tokens[NEW * LIKELY];
    float likely_log_probs[NEW * LIKELY];
    double looked; /* of the logits that were shown, with their places */
    int32_t looks;
} answer;

static const ares_rollout_options roomy = { .cache_tokens = 16384,
                                            .max_num_seqs = 16,
                                            .max_num_batched_tokens = 256,
                                            .max_model_len = LONG + NEW + 28,
                                            .entropy_top_k = 5,
                                            .most_likely = true,
                                            .n_likely = LIKELY };

/* Every second prompt repeats itself, so that its end stands in it before. */
static int32_t make_prompt(int i, int32_t *ids)
{
    ares_rng_key key = ares_rng_sub(ares_rng_root(3, ARES_RNG_TEST), (uint64_t)i, 0);
    int32_t n = 4 + (int32_t)ares_rng_below(key, 0, LONG - 4), again = i % 2 ? n : 5 + i % 7;
    for (int32_t k = 0; k < n; k++)
        ids[k] = k >= again
                     ? ids[k - again]
                     : (int32_t)ares_rng_below(key, (uint64_t)k + 1, (uint64_t)model->cfg.vocab);
    return n;
}

static void look(void *ctx, int32_t index, int32_t at, int32_t token, const float *logits)
{
    answer *a = (answer *)ctx + index;
    CHECK_EQ(at, a->looks++);
    a->looked += (double)logits[token] * (at + 1);
}

/* Asks as prompt i does. */
static void ask(ares_rollout *r, int i, const int32_t *ids, int32_t len, answer *out)
{
    static const int32_t stop[] = { 11, 40 };
    static const char *const text[] = { "e" };
    static const float temperatures[] = { 0, 0, 0.2f, 0.5f, 1 };
    ares_request q = { .prompt = ids,
                       .prompt_len = len,
                       .n = 1 + i % MOST_N,
                       .response_len = i % 4 == 3 ? 3 : 0,
                       .n_likely = i % 3 ? 0 : LIKELY,
                       .sampling = { .temperature = temperatures[i % 5],
                                     .top_p = i % 3 == 1 ? 0.8f : 1,
                                     .top_k = i % 7 == 2 ? 4 : 0,
                                     .max_new_tokens = NEW - i % 5,
                                     .ignore_eos = i % 2 == 0,
                                     .n_stop_ids = i % 6 == 1 ? 2 : 0,
                                     .stop_ids = stop,
                                     .n_stop_strings = i % 11 == 4 && r->tokenizer ? 1 : 0,
                                     .stop_strings = text },
                       .key = ares_rng_root((uint64_t)i, ARES_RNG_SAMPLE) };
    if (out && i % 4 == 0) q.look = look, q.look_ctx = out;
    CHECK_OK(ares_rollout_add(r, &q, NULL));
}

static void take(const ares_completion *c, answer *a)
{
    size_t bytes = (size_t)c->n_tokens * 4;
    a->n = c->n_tokens;
    a->finish = c->finish;
#define TAKE(type, name, recorded, text) \
    if (c->name) memcpy(a->name, c->name, bytes);
    ARES_ROLLOUT_COLUMNS(TAKE)
#undef TAKE
    if (!c->n_likely) return;
    CHECK_EQ(c->n_likely, LIKELY);
    memcpy(a->likely_tokens, c->likely_tokens, bytes * LIKELY);
    memcpy(a->likely_log_probs, c->likely_log_probs, bytes * LIKELY);
}

/* What is in the index is what somebody's prompt and answer begin with, never a guess. */
static void check_index(const ares_rollout *r)
{
    for (const request *q = r->first; q; q = q->next)
        for (int32_t i = 0; i < q->n; i++) {
            const sequence *s = &q->samples[i];
            CHECK(s->cached <= q->prompt_len + s->n && s->n_draft == 0 && s->under_way == 0);
            CHECK(s->blocks.n <= blocks_for(ARES_MAX(s->cached, q->prompt_len)));
            for (int32_t b = 0; b < s->blocks.n; b++) {
                int32_t block = s->blocks.block[b];
                if (!r->blocks.serial[block]) continue;
                for (int32_t k = 0; k < r->blocks.filled[block]; k++) {
                    int32_t at = b * ARES_KV_BLOCK + k,
                            id = at < q->prompt_len ? q->prompt[at] : s->ids[at - q->prompt_len];
                    CHECK(at < q->prompt_len + s->n &&
                          r->blocks.ids[block * ARES_KV_BLOCK + k] == id);
                }
            }
        }
}

/* Answers to prompts [first, first + n), then to each a second turn that begins with both. */
static ares_rollout_stats answer_all(const ares_rollout_options *o, int first, int n,
                                     answer (*out)[MOST_N])
{
    ares_rollout_stats stats = { 0 };
    ares_rollout *r = NULL;
    if (!CHECK_OK(ares_rollout_new(model, tokenizer, o, &r))) return stats;
    static int32_t prompts[PROMPTS][LONG + NEW + 8], len[PROMPTS];
    memset(out, 0, sizeof(answer[2 * PROMPTS][MOST_N]));
    for (int turn = 0; turn < 2; turn++) {
        int64_t active = 1, before = turn * n;
        ares_completion c;
        for (int i = 0; i < n; i++) {
            answer *a = out[turn * PROMPTS + i];
            if (turn) { /* the first answer, and a word more */
                const answer *said = out[i];
                for (int32_t k = 0; k < said->n && len[i] < LONG + 20; k++)
                    prompts[i][len[i]++] = said->ids[k];
                prompts[i][len[i]++] = 7;
            } else len[i] = make_prompt(first + i, prompts[i]);
            ask(r, first + i, prompts[i], len[i], a);
        }
        while (active && CHECK_OK(ares_rollout_step(r, &active))) {
            check_index(r);
            while (ares_rollout_next(r, &c))
                take(&c, &out[turn * PROMPTS + c.request - before][c.index]);
        }
    }
    ares_rollout_get_stats(r, &stats);
    ares_rollout_free(r);
    return stats;
}

/*
 * seen to fail: with every draft taken for right; with the key of a sample's first row for all;
 * with hidden states one row off; with blocks of drafts kept; with drafts counted as cached
 */
static void draft_two_hundred(const char *name, int few)
{
    static answer plain[2 * PROMPTS][MOST_N], drafted[2 * PROMPTS][MOST_N];
    const struct {
        int32_t seqs, rows;
        int64_t cache;
        bool no_prefixes;
        int threads;
    } ways[] = { { 16, 256, 16384, false, 2 },
                 { few, 20, 16384, true, 1 },
                 { few + 1, 64, 7 * ARES_KV_BLOCK, false, 1 } };
    if (!open_model(name, 1)) return;
    answer_all(&roomy, 0, PROMPTS, plain);
    close_model();
    for (int w = 0; w < ARES_COUNT(ways); w++) {
        if (!open_model(name, ways[w].threads)) return;
        ares_rollout_options o = roomy;
        o.max_num_seqs = ways[w].seqs;
        o.max_num_batched_tokens = ways[w].rows;
        o.cache_tokens = ways[w].cache;
        o.no_prefix_cache = ways[w].no_prefixes;
        o.drafts_tokens = true;
        ares_rollout_stats stats = answer_all(&o, 0, PROMPTS, drafted);
        printf("  %d at once: %lld tokens, %lld steps, %lld drafted, %lld right\n", ways[w].seqs,
               (long long)stats.decoded_tokens, (long long)stats.steps,
               (long long)stats.drafted_tokens, (long long)stats.accepted_tokens);
        CHECK(w == 0 || stats.accepted_tokens > 500);
        CHECK(w == 0 || stats.drafted_tokens > stats.accepted_tokens + 200);
        CHECK(w != 2 || stats.preemptions > 0);
        CHECK_MEM(drafted, plain, sizeof plain);
        close_model();
    }
}
TEST_BITS(drafts_change_no_bit_of_two_hundred_prompts)
{
    draft_two_hundred("qwen2_tied", 3);
}
/* Seen to fail: with the state of a wrong draft, and with that of before a right one. */
TEST(nor_of_a_model_with_delta_nets)
{
    draft_two_hundred("qwen3_5_interval", 1);
}

/*
 * A cut is made between steps, and a clock holds samples: neither sees more tokens than asked. Seen
 * to fail: with drafts that do not stop at the clock.
 */
TEST_BITS(held_and_cut_samples_with_drafts_go_on_as_without)
{
    enum { N = 24, EACH = 7 };
    static answer whole[2 * PROMPTS][MOST_N];
    if (!open_model("qwen2_tied", 1)) return;
    ares_rollout_options o = roomy;
    answer_all(&o, 0, N, whole);
    o.drafts_tokens = true;
    o.max_num_seqs = 3;
    ares_rollout *r;
    ares_rollout_stats stats;
    REQUIRE_OK(ares_rollout_new(model, tokenizer, &o, &r));
    int32_t prompts[N][LONG], len[N];
    answer got[N][MOST_N] = { 0 };
    for (int i = 0; i < N; i++) {
        len[i] = make_prompt(i, prompts[i]);
        ask(r, i, prompts[i], len[i], NULL);
    }
    for (int64_t until = EACH; until < NEW + EACH; until += EACH) {
        int64_t active = 1;
        ares_completion c;
        ares_rollout_hold(r, until);
        while (active && CHECK_OK(ares_rollout_step(r, &active)))
            while (ares_rollout_next(r, &c)) take(&c, &got[c.request][c.index]);
        for (const request *q = r->first; q; q = q->next)
            for (int32_t k = 0; k < q->n; k++) {
                CHECK(q->samples[k].n <= until);
                CHECK(q->samples[k].n == until || q->samples[k].state == SEQ_FINISHED);
            }
        check_index(r);
        if (until < 3 * EACH) continue;
        for (int i = 0; i < N; i += 2) { /* what has not ended is cut to an earlier place */
            if (!ares_rollout_cut(r, i, 0, 2 * EACH + 1)) continue;
            CHECK(ares_rollout_next(r, &c) && c.n_tokens == 2 * EACH + 1);
            take(&c, &got[i][0]);
            CHECK_EQ(got[i][0].finish, ARES_FINISH_CUT);
        }
    }
    int cuts = 0;
    for (int i = 0; i < N; i++)
        for (int k = 0; k <= i % MOST_N; k++) {
            const answer *a = &got[i][k], *b = &whole[i][k];
            bool cut = a->finish == ARES_FINISH_CUT;
            size_t bytes = (size_t)a->n * 4;
            cuts += cut;
            CHECK(cut || (a->finish == b->finish && a->n == b->n));
#define SAME(type, name, recorded, text) CHECK_MEM(a->name, b->name, bytes);
            ARES_ROLLOUT_COLUMNS(SAME)
#undef SAME
        }
    ares_rollout_get_stats(r, &stats);
    CHECK(cuts > 3 && stats.accepted_tokens > 50);
    ares_rollout_free(r);
    close_model();
}

/* seen to fail: with drafts made whatever they cost */
TEST(nothing_is_drafted_in_a_large_batch_and_little_where_guesses_are_wrong)
{
    if (!open_model("qwen2_tied", 1)) return;
    ares_rollout_options o = roomy;
    o.drafts_tokens = true;
    for (int large = 0; large < 2; large++) {
        ares_rollout *r;
        ares_rollout_stats stats;
        int32_t ids[LONG];
        int64_t active = 1;
        REQUIRE_OK(ares_rollout_new(model, NULL, &o, &r));
        for (int32_t k = 0; k < LONG; k++) ids[k] = k % 4; /* every end stands there before */
        for (int i = 0; i < 1 + 15 * large; i++)
            CHECK_OK(ares_rollout_add(
                r,
                &(ares_request){ .prompt = ids,
                                 .prompt_len = LONG,
                                 .n = 1,
                                 .sampling = { .temperature = large ? 0 : 3,
                                               .top_p = 1,
                                               .max_new_tokens = NEW,
                                               .ignore_eos = true },
                                 .key = ares_rng_root((uint64_t)i, ARES_RNG_SAMPLE) },
                NULL));
        while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
        ares_rollout_get_stats(r, &stats);
        if (large) CHECK_EQ(stats.drafted_tokens, 0);
        else CHECK(stats.drafted_tokens < NEW / 4);
        ares_rollout_free(r);
    }
    close_model();
}
