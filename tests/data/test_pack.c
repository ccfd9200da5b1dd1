/*
 * Micro-batches and packed tokens. Walking the segment of a packed token gives the tokens it sees,
 * which must be those of its row in the batch.
 */
#include "test.h"

#include "data_test.h"

enum { GROUPS = 4 };
static const int sizes[] = { 2, 1, 3, 2 }, prompts[] = { 4, 1, 3, 5 },
                 lens[] = { 3, 1, 2, 5, 1, 4, 1, 1 };

/* The tokens that packed token `row` sees, itself included, in order; returns their number. */
static int context(const ares_packed *p, int row, int32_t *out)
{
    int n = 0, s = 0;
    while (p->seg.start[s + 1] <= row) s++;
    for (int i = 0; i < p->seg.prefix_len[s]; i++) out[n++] = p->ids[p->seg.prefix_row[s] + i];
    for (int i = p->seg.start[s]; i <= row; i++) out[n++] = p->ids[i];
    CHECK_EQ(p->positions[row], n - 1);
    return n;
}

/*
 * Every response token of the set is predicted from exactly its prompt and the tokens before it.
 */
static void check_packed_set(const ares_batch *b, const ares_micro_set *m, bool share)
{
    ares_arena arena = { 0 };
    ares_packed p;
    const int32_t *targets;
    ares_pack_build(b, m, share, &arena, &p, &targets);
    CHECK(p.rows == m->tokens && p.seg.rows == p.rows && p.n_out == m->out && p.seg.start[0] == 0 &&
          p.seg.start[p.seg.n] == p.rows);
    int32_t seen[64];
    int at = 0;
    for (int64_t i = 0; i < m->n; i++)
        for (int64_t r = m->runs[i].row; r < m->runs[i].end; r++)
            for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++, at++) {
                const ares_sample *s = &b->samples[r];
                int64_t before = t - b->row_start[r];
                CHECK_EQ(targets[at], b->responses[t]);
                int n = context(&p, p.out_rows[at], seen);
                if (!CHECK_EQ(n, s->prompt_len + before)) continue;
                CHECK_MEM(seen, s->prompt, sizeof(int32_t) * (size_t)s->prompt_len);
                CHECK_MEM(seen + s->prompt_len, b->responses + b->row_start[r],
                          sizeof(int32_t) * (size_t)before);
            }
    CHECK_EQ(at, p.n_out);
    for (int s = 0; s < p.seg.n; s++) {
        int fed = p.seg.start[s + 1] - p.seg.start[s];
        CHECK(fed > 0 && p.length[s] >= p.seg.prefix_len[s] + fed);
        if (!p.seg.prefix_len[s]) continue;
        int prompt = 0; /* a prefix is itself a whole segment before s */
        while (prompt < s && p.seg.start[prompt] != p.seg.prefix_row[s]) prompt++;
        CHECK(share && prompt < s && p.seg.prefix_len[prompt] == 0 &&
              p.seg.start[prompt + 1] - p.seg.start[prompt] == p.seg.prefix_len[s]);
    }
    ares_arena_fini(&arena);
}

static void check_packed(const ares_batch *b, const ares_micro_batch *m, bool share)
{
    check_packed_set(b, &(ares_micro_set){ 1, m, m->tokens, m->out }, share);
}

TEST(plans_cover_all_rows_in_order_within_the_limit_and_split_no_shared_group)
{
    ares_batch b;
    make_batch(&b, GROUPS, sizes, prompts, lens);
    for (int share = 0; share < 2; share++)
        for (int64_t limit = 1; limit < 60; limit++) {
            ares_micro_batch m[8];
            int64_t n = ares_pack_plan(&b, 0, b.rows, limit, share, m), row = 0, out = 0;
            for (int64_t i = 0; i < n; i++) {
                CHECK_EQ(m[i].row, row);
                CHECK(m[i].end > row);
                int64_t groups = b.samples[m[i].end - 1].draw - b.samples[row].draw + 1;
                CHECK(m[i].tokens <= limit || (share ? groups == 1 : m[i].end == row + 1));
                if (share && m[i].end < b.rows)
                    CHECK(b.samples[m[i].end].draw != b.samples[m[i].end - 1].draw);
                if (i > 0) { /* the first piece would not have fitted before */
                    ares_micro_batch one[8];
                    ares_pack_plan(&b, m[i].row, m[i].end, 1, share, one);
                    CHECK(m[i - 1].tokens + one[0].tokens > limit);
                }
                check_packed(&b, &m[i], share);
                row = m[i].end;
                out += m[i].out;
            }
            CHECK(row == b.rows && out == b.tokens);
            if (limit == 59) CHECK_EQ(n, 1);
        }
    ares_batch_fini(&b);
}

TEST(sharing_feeds_each_prompt_once)
{
    ares_batch b;
    ares_micro_batch m[8];
    make_batch(&b, GROUPS, sizes, prompts, lens);
    CHECK_EQ(ares_pack_plan(&b, 0, b.rows, 1000, true, m), 1);
    CHECK_EQ(m[0].tokens, (4 + 2 + 0) + (1 + 1) + (3 + 4 + 0 + 3) + (5 + 0 + 0));
    CHECK_EQ(ares_pack_plan(&b, 0, b.rows, 1000, false, m), 1);
    CHECK_EQ(m[0].tokens, (4 + 2) + 4 + (1 + 1) + (3 + 4) + 3 + (3 + 3) + 5 + 5);
    CHECK_EQ(m[0].out, b.tokens);
    ares_batch_fini(&b);
}

/* Rows 0 and 2, of two groups, are masked as a whole; row 5 has a trained token at its end. */
TEST(rows_that_train_nothing_are_not_fed)
{
    ares_batch b;
    make_batch(&b, GROUPS, sizes, prompts, lens);
    ARES_PUT(&b, response_mask);
    memset(b.response_mask, 1, (size_t)b.tokens);
    memset(b.response_mask, 0, 3);                  /* row 0: 3 tokens */
    memset(b.response_mask + b.row_start[2], 0, 2); /* row 2: 2 tokens */
    memset(b.response_mask + b.row_start[5], 0, 3); /* row 5: 3 of 4 tokens */
    float x[32], column[32];
    for (int i = 0; i < ARES_COUNT(x); i++) x[i] = column[i] = (float)i + 1;
    for (int share = 0; share < 2; share++) {
        ares_micro_batch m[8];
        ares_arena arena = { 0 };
        ares_packed p;
        const int32_t *targets;
        CHECK_EQ(ares_pack_plan(&b, 0, b.rows, 1000, share, m), 1);
        CHECK_EQ(m->tokens, share ? (1 + 4 + 0) + 1 + (3 + 4 + 0 + 3) + (5 + 0 + 0)
                                  : 1 + 4 + 1 + (3 + 4) + 3 + (3 + 3) + 5 + 5);
        CHECK_EQ(m->out, b.tokens);
        const ares_micro_set set = { 1, m, m->tokens, m->out };
        ares_pack_build(&b, &set, share, &arena, &p, &targets);
        for (int64_t t = 0; t < 3; t++) CHECK_EQ(p.out_rows[t], 0);
        CHECK_EQ(p.seg.start[1], 1); /* one token, that no other row reads */
        CHECK_EQ(p.seg.prefix_len[1], 0);
        ares_pack_scatter(&b, &set, x, 0, column);
        for (int64_t r = 0; r < b.rows; r++)
            for (int64_t t = b.row_start[r]; t < b.row_start[r + 1]; t++)
                CHECK_EQ(column[t], r == 0 || r == 2 ? 0 : x[t]);
        ares_arena_fini(&arena);
    }
    ares_batch_fini(&b);
}

TEST(a_cut_inside_a_group_takes_the_prompt_along)
{
    ares_batch b;
    ares_micro_batch m[8];
    make_batch(&b, GROUPS, sizes, prompts, lens);
    for (int share = 0; share < 2; share++)
        for (int64_t row = 0; row < b.rows; row++)
            for (int64_t end = row + 1; end <= b.rows; end++) {
                int64_t n = ares_pack_plan(&b, row, end, 9, share, m);
                CHECK(m[0].row == row && m[n - 1].end == end);
                for (int64_t i = 0; i < n; i++) check_packed(&b, &m[i], share);
            }
    CHECK_EQ(ares_pack_plan(&b, 3, 3, 9, true, m), 0);
    ares_batch_fini(&b);
}

TEST(single_tokens_need_no_segment_of_their_own)
{
    ares_batch b;
    ares_micro_batch m[3];
    ares_arena arena = { 0 };
    ares_packed p;
    const int32_t *targets;
    make_batch(&b, 1, (const int[]){ 3 }, (const int[]){ 4 }, (const int[]){ 1, 1, 1 });
    REQUIRE(ares_pack_plan(&b, 0, 3, 100, true, m) == 1);
    ares_pack_build(&b, &(ares_micro_set){ 1, m, m->tokens, m->out }, true, &arena, &p, &targets);
    CHECK(p.rows == 4 && p.seg.n == 1 && p.n_out == 3);
    for (int i = 0; i < 3; i++) CHECK(p.out_rows[i] == 3 && targets[i] == 100000 + 1000 * i);
    ares_arena_fini(&arena);
    ares_batch_fini(&b);
}

TEST(a_row_without_tokens_is_packed_and_asks_for_nothing)
{
    ares_batch b;
    ares_micro_batch m[3];
    make_batch(&b, 1, (const int[]){ 3 }, (const int[]){ 2 }, (const int[]){ 0, 3, 0 });
    for (int share = 0; share < 2; share++) {
        REQUIRE(ares_pack_plan(&b, 0, 3, 100, share, m) == 1);
        CHECK_EQ(m[0].out, 3);
        check_packed(&b, m, share);
    }
    ares_batch_fini(&b);
}

TEST(rows_of_a_group_share_only_a_prompt_that_is_the_same)
{
    static const int32_t other[] = { 1000, 1001, 7, 1003 },
                         longer[] = { 1000, 1001, 1002, 1003, 1004 },
                         copy[] = { 1000, 1001, 1002, 1003 };
    ares_batch b;
    make_batch(&b, 2, (const int[]){ 1, 6 }, (const int[]){ 3, 4 },
               (const int[]){ 2, 3, 1, 4, 2, 3, 2 });
    /*
     * Prompts of the second group: its own, another, a copy of its own, a longer one, the other,
     * its own.
     */
    ares_sample *s = b.samples + 1;
    s[1].prompt = s[4].prompt = other;
    s[2].prompt = copy;
    s[3].prompt = longer, s[3].prompt_len = 5;
    for (int64_t limit = 1; limit < 60; limit++) {
        ares_micro_batch m[8];
        int64_t n = ares_pack_plan(&b, 0, b.rows, limit, true, m);
        for (int64_t i = 0; i < n; i++) check_packed(&b, &m[i], true);
        if (limit < 59) continue;
        CHECK_EQ(n, 1);
        CHECK_EQ(m[0].tokens, (3 + 1) + (4 + 4 + 5) + (2 + 0 + 3 + 1 + 2 + 1));
    }
    for (int64_t row = 0; row < b.rows; row++)
        for (int64_t end = row + 1; end <= b.rows; end++) {
            ares_micro_batch m[8];
            int64_t n = ares_pack_plan(&b, row, end, 1000, true, m);
            for (int64_t i = 0; i < n; i++) check_packed(&b, &m[i], true);
        }
    ares_batch_fini(&b);
}

TEST(a_score_belongs_to_the_last_token_that_the_policy_wrote)
{
    ares_batch b;
    make_batch(&b, 1, (const int[]){ 4 }, (const int[]){ 2 }, (const int[]){ 3, 3, 2, 0 });
    ARES_PUT(&b, response_mask);
    memcpy(b.response_mask, (const uint8_t[]){ 1, 1, 1, 1, 1, 0, 0, 0 }, 8);
    CHECK_EQ(ares_batch_last_token(&b, 0), 2);
    CHECK_EQ(ares_batch_last_token(&b, 1), 4); /* the environment wrote the last token */
    CHECK_EQ(ares_batch_last_token(&b, 2), 7); /* no token has mask 1: the last one */
    CHECK_EQ(ares_batch_last_token(&b, 3), -1);
    ares_batch_fini(&b);
}

/* Every row is in exactly one set. *most, *least: tokens of the largest and the smallest set. */
static void check_sets(const ares_batch *b, int64_t limit, bool share, int64_t *n, int64_t *most,
                       int64_t *least)
{
    ares_arena arena = { 0 };
    ares_micro_set *sets;
    int seen[64] = { 0 };
    float x[512], column[512];
    ARES_ASSERT(b->rows <= 64 && b->tokens <= 512);
    REQUIRE_OK(ares_pack_sets(b, 0, b->rows, limit, share, &arena, &sets, n));
    *most = 0, *least = INT64_MAX;
    for (int64_t i = 0; i < *n; i++) {
        const ares_micro_set *m = &sets[i];
        ares_packed p;
        const int32_t *targets;
        ares_pack_build(b, m, share, &arena, &p, &targets);
        CHECK(p.rows == m->tokens && p.n_out == m->out && m->n > 0);
        CHECK(m->tokens <= limit || m->n == 1);
        *most = ARES_MAX(*most, m->tokens);
        *least = ARES_MIN(*least, m->tokens);
        for (int64_t k = 0; k < m->n; k++)
            for (int64_t r = m->runs[k].row; r < m->runs[k].end; r++) seen[r]++;
        for (int64_t t = 0; t < p.n_out; t++) x[t] = (float)targets[t];
        ares_pack_scatter(b, m, x, 0, column);
    }
    for (int64_t r = 0; r < b->rows; r++) CHECK_EQ(seen[r], 1);
    for (int64_t t = 0; t < b->tokens; t++) CHECK_EQ((int32_t)column[t], b->responses[t]);
    ares_arena_fini(&arena);
}

TEST(sets_are_bounded_hold_every_row_once_and_are_no_more_than_cuts)
{
    enum { MANY = 12 };
    static const int one_each[MANY] = { 1, 2, 1, 3, 1, 1, 2, 1, 1, 1, 2, 1 },
                     prompt[MANY] = { 20, 1, 1, 2, 15, 1, 2, 3, 18, 1, 1, 2 };
    int lens[17];
    ares_batch b;
    for (int i = 0; i < 17; i++) lens[i] = 1 + i * 7 % 11;
    make_batch(&b, MANY, one_each, prompt, lens);
    for (int share = 0; share < 2; share++)
        for (int64_t limit = 1; limit < 250; limit++) {
            ares_micro_batch cut[32];
            int64_t n, most, least, cuts = ares_pack_plan(&b, 0, b.rows, limit, share, cut);
            check_sets(&b, limit, share, &n, &most, &least);
            CHECK_MSG(n <= cuts, "limit %lld: %lld sets, %lld cuts", (long long)limit, (long long)n,
                      (long long)cuts);
        }
    ares_batch_fini(&b);
}

TEST(sets_of_a_skewed_batch_are_fewer_and_more_even_than_cuts)
{
    enum { MANY = 16 };
    int one_each[MANY], prompt[MANY], lens[MANY];
    ares_batch b;
    for (int i = 0; i < MANY; i++)
        one_each[i] = lens[i] = 1,
        prompt[i] = i % 2 ? 3 : 60; /* the longest 20 times the shortest */
    ares_micro_batch cut[MANY];
    make_batch(&b, MANY, one_each, prompt, lens);
    int64_t n, most, least, cuts = ares_pack_plan(&b, 0, b.rows, 122, true, cut), low = INT64_MAX;
    for (int64_t i = 0; i < cuts; i++) low = ARES_MIN(low, cut[i].tokens);
    check_sets(&b, 122, true, &n, &most, &least);
    CHECK_MSG(n < cuts, "%lld sets, %lld cuts", (long long)n, (long long)cuts);
    CHECK_MSG(least > low, "the smallest set has %lld tokens, the smallest cut %lld",
              (long long)least, (long long)low);
    ares_batch_fini(&b);
}

TEST(groups_of_the_same_prompt_share_it_in_sets_and_not_in_cuts)
{
    ares_batch b;
    ares_micro_batch cut[8];
    ares_micro_set *sets;
    ares_arena arena = { 0 };
    int64_t n;
    /* the prompts of the first, second and fourth group are the same */
    make_batch(&b, 4, (const int[]){ 2, 1, 1, 2 }, (const int[]){ 4, 4, 3, 4 },
               (const int[]){ 3, 1, 2, 5, 2, 3 });
    static const int32_t copy[] = { 0, 1, 2, 3 };
    b.samples[2].prompt = copy;
    b.samples[4].prompt = b.samples[5].prompt = b.samples[0].prompt;
    CHECK_EQ(ares_pack_plan(&b, 0, b.rows, 1000, true, cut), 1);
    CHECK_EQ(cut[0].tokens, (4 + 2 + 0) + (4 + 1) + (3 + 4) + (4 + 1 + 2));
    check_packed(&b, cut, true);
    for (int share = 0; share < 2; share++) {
        REQUIRE_OK(ares_pack_sets(&b, 0, b.rows, 1000, share, &arena, &sets, &n));
        CHECK_EQ(n, 1);
        /* another prompt lies between the second and the fourth */
        CHECK_EQ(sets[0].tokens, share ? (4 + 2 + 0) + 1 + (3 + 4) + (4 + 1 + 2)
                                       : (4 + 2) + 4 + (4 + 1) + (3 + 4) + (4 + 1) + (4 + 2));
        check_packed_set(&b, sets, share);
    }
    REQUIRE_OK(ares_pack_sets(&b, 0, 3, 7, true, &arena, &sets, &n));
    for (int64_t i = 0; i < n; i++) check_packed_set(&b, &sets[i], true);
    ares_arena_fini(&arena);
    ares_batch_fini(&b);
}

TEST(rows_that_were_taken_share_the_prompt_of_their_group)
{
    ares_batch b;
    ares_micro_batch m[8];
    make_batch(&b, GROUPS, sizes, prompts, lens);
    ares_batch_take(&b, (const int64_t[]){ 3, 3, 4, 0, 3 }, 5);
    CHECK_EQ(ares_pack_plan(&b, 0, b.rows, 1000, true, m), 1);
    CHECK_EQ(m[0].tokens, (3 + 4 + 4 + 0) + (4 + 2) + (3 + 4));
    check_packed(&b, m, true);
    CHECK_EQ(ares_pack_plan(&b, 1, b.rows, 1000, true, m), 1); /* as a mini-batch of rows may cut */
    CHECK_EQ(m[0].tokens, (3 + 4 + 0) + (4 + 2) + (3 + 4));
    check_packed(&b, m, true);
    ares_batch_fini(&b);
}
