/* Micro-batches and packed tokens. What a packed row stands for is found by walking its segment, and must be what the batch says. */
#include "test.h"

#include "data_test.h"

enum { GROUPS = 4 };
static const int sizes[] = { 2, 1, 3, 2 }, prompts[] = { 4, 1, 3, 5 }, lens[] = { 3, 1, 2, 5, 1, 4, 1, 1 };

/* The tokens that packed row `row` sees, itself included, in order; gives their number. */
static int context(const ares_packed *p, int row, int32_t *out)
{
    int n = 0, s = 0;
    while (p->seg.start[s + 1] <= row) s++;
    for (int i = 0; i < p->seg.prefix_len[s]; i++) out[n++] = p->ids[p->seg.prefix_row[s] + i];
    for (int i = p->seg.start[s]; i <= row; i++) out[n++] = p->ids[i];
    CHECK_EQ(p->positions[row], n - 1);
    return n;
}

/* Every response token of the micro-batch is predicted from exactly its prompt and the tokens before it. */
static void check_packed(const ares_batch *b, const ares_micro_batch *m, bool share)
{
    ares_arena arena = { 0 };
    ares_packed p;
    const int32_t *targets;
    ares_pack_build(b, m, share, &arena, &p, &targets);
    CHECK(p.rows == m->tokens && p.seg.rows == p.rows && p.n_out == m->out && p.seg.start[0] == 0 && p.seg.start[p.seg.n] == p.rows);
    int32_t seen[64];
    int at = 0;
    for (int64_t r = m->row; r < m->end; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++, at++) {
            const ares_sample *s = &b->samples[r];
            int64_t before = t - b->row_start[r];
            CHECK_EQ(targets[at], b->responses[t]);
            int n = context(&p, p.out_rows[at], seen);
            if (!CHECK_EQ(n, s->prompt_len + before)) continue;
            CHECK_MEM(seen, s->prompt, sizeof(int32_t) * (size_t)s->prompt_len);
            CHECK_MEM(seen + s->prompt_len, b->responses + b->row_start[r], sizeof(int32_t) * (size_t)before);
        }
    CHECK_EQ(at, p.n_out);
    for (int s = 0; s < p.seg.n; s++) {
        int fed = p.seg.start[s + 1] - p.seg.start[s];
        CHECK(fed > 0 && p.length[s] >= p.seg.prefix_len[s] + fed);
        if (!p.seg.prefix_len[s]) continue;
        int prompt = 0; /* a prefix is itself a whole segment before s */
        while (prompt < s && p.seg.start[prompt] != p.seg.prefix_row[s]) prompt++;
        CHECK(share && prompt < s && p.seg.prefix_len[prompt] == 0 && p.seg.start[prompt + 1] - p.seg.start[prompt] == p.seg.prefix_len[s]);
    }
    ares_arena_fini(&arena);
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
                if (share && m[i].end < b.rows) CHECK(b.samples[m[i].end].draw != b.samples[m[i].end - 1].draw);
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
    ares_pack_build(&b, m, true, &arena, &p, &targets);
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
                         twin[] = { 1000, 1001, 1002, 1003 };
    ares_batch b;
    make_batch(&b, 2, (const int[]){ 1, 6 }, (const int[]){ 3, 4 },
               (const int[]){ 2, 3, 1, 4, 2, 3, 2 });
    ares_sample *s =
        b.samples +
        1; /* of the second group: its prompt, another, its prompt elsewhere, a longer one, the other again, its prompt */
    s[1].prompt = s[4].prompt = other;
    s[2].prompt = twin;
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
    CHECK_EQ(ares_batch_last_token(&b, 1), 4); /* the environment has the last word */
    CHECK_EQ(ares_batch_last_token(&b, 2), 7); /* masked as a whole: its last */
    CHECK_EQ(ares_batch_last_token(&b, 3), -1);
    ares_batch_fini(&b);
}
