/* Trajectories: the batch that they become, and the bytes that they are sent and saved as. */
#include "ares/data.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

enum { GROUPS = 3 };
static const int32_t prompt[] = { 11, 12, 13 }, other[] = { 11, 12, 13, 14, 15 };
static const ares_row data_rows[GROUPS] = {
    { .id = 40, .prompt = prompt, .prompt_len = 3 },
    { .id = 41, .prompt = prompt, .prompt_len = 2 },
    { .id = 42, .prompt = prompt, .prompt_len = 3 },
};

/* A row whose numbers tell where they come from; every third token is not the policy's. */
static void make_row(ares_trajectory_row *x, const int32_t *ids, int32_t length, int32_t n,
                     int base, bool marks, ares_arena *a)
{
    ares_trajectory_row_init(x, ids, length, n, a);
    if (marks) x->turn_ends = ares_arena_calloc(a, (size_t)n + 1, 1);
    if (marks) x->turn_scores = ares_arena_calloc(a, (size_t)n + 1, sizeof(float));
    for (int32_t i = 0; i < n; i++) {
        x->responses[i] = base + i;
        x->response_mask[i] = i % 3 != 2;
        x->rollout_log_probs[i] = -(float)(base + i);
        x->entropies[i] = (float)(base + i) / 2;
        x->entropies_1[i] = (float)(base + i) / 4;
        x->weight_versions[i] = i % 3 == 2 ? ARES_NOT_SAMPLED : i;
        if (!marks) continue;
        x->turn_ends[i] = i == 1 || i == n - 1;
        x->turn_scores[i] = x->turn_ends[i] ? (float)base : 0;
    }
}

/* Group 0: two answers of one row; 1: an episode of two rows; 2: three answers, one without words.
 */
static void make_groups(ares_group *g, bool marks, ares_arena *a)
{
    static const int sizes[GROUPS] = { 2, 1, 3 };
    int base = 1000;
    for (int i = 0; i < GROUPS; i++) {
        g[i] = (ares_group){ .draw = 7 + i,
                             .place = 5 - i,
                             .baseline = 0.5f + (float)i,
                             .row = &data_rows[i],
                             .n = sizes[i],
                             .items = ares_arena_calloc(a, 4, sizeof *g[i].items) };
        for (int k = 0; k < sizes[i]; k++) {
            ares_trajectory *y = &g[i].items[k];
            *y = (ares_trajectory){ .index = k,
                                    .stopped = k == 1,
                                    .score = (float)(10 * i + k),
                                    .unshaped = (float)k,
                                    .accuracy = 1,
                                    .n_rows = i == 1 ? 2 : 1,
                                    .n_parts = 2,
                                    .response = ARES_VIEW("words") };
            y->parts = ares_arena_calloc(a, 2, sizeof *y->parts);
            y->parts[1] = (float)base;
            y->rows = ares_arena_calloc(a, 2, sizeof *y->rows);
            for (int r = 0; r < y->n_rows; r++, base += 100)
                make_row(&y->rows[r], r ? other : data_rows[i].prompt,
                         r ? 5 : data_rows[i].prompt_len, i == 2 && k == 1 ? 0 : 4 + k + r, base,
                         marks, a);
        }
    }
}

TEST(groups_become_rows_with_every_column)
{
    ares_arena a = { 0 };
    ares_group g[GROUPS];
    ares_batch b;
    ares_batch_init(&b);
    make_groups(g, true, &a);
    ares_batch_fill(&b, g, GROUPS);
    REQUIRE(b.rows == 7 && b.groups == GROUPS && b.tokens == 4 + 5 + 4 + 5 + 4 + 0 + 6);
    CHECK(b.group_start[1] == 2 && b.group_start[2] == 4);
    CHECK(b.turn_ends && b.turn_scores && !b.hwe_candidates);
    CHECK(b.samples[0].draw == 7 && b.samples[1].index == 1 && b.samples[1].stopped);
    CHECK(b.samples[0].prompt == prompt && b.samples[3].prompt == other);
    /* rows of an episode have a number of their own, a row alone has none */
    CHECK(b.samples[2].episode && b.samples[2].episode == b.samples[3].episode);
    CHECK(!b.samples[0].episode && !b.samples[1].episode && !b.samples[6].episode);
    CHECK_NEAR(b.samples[3].score, 10, 0);
    CHECK_NEAR(b.samples[4].baseline, 2.5, 0);
    CHECK(b.samples[0].place == 5 && b.samples[3].place == 4 && b.samples[6].place == 3);
    CHECK(b.samples[3].row == &data_rows[1] && b.samples[3].prompt_len == 5);
    CHECK_NEAR(b.samples[5].accuracy, 1, 0);
    CHECK_NEAR(b.samples[1].reward_parts[1], 1100, 0);
    CHECK(ares_view_eq(b.samples[6].response, ARES_VIEW("words")));
    const int64_t at = b.row_start[3];
    CHECK_EQ(b.responses[at + 2], 1302);
    CHECK(b.response_mask[at + 1] == 1 && b.response_mask[at + 2] == 0);
    CHECK_NEAR(b.rollout_log_probs[at + 4], -1304, 0);
    CHECK_NEAR(b.entropies[at], 650, 0);
    CHECK_NEAR(b.entropies_1[at], 325, 0);
    CHECK(b.weight_versions[at + 2] == ARES_NOT_SAMPLED && b.weight_versions[at + 3] == 3);
    CHECK(b.turn_ends[at + 4] == 1 && b.turn_ends[at + 3] == 0);
    CHECK_NEAR(b.turn_scores[at + 1], 1300, 0);
    ares_batch_fini(&b);
    ares_arena_fini(&a);
}

TEST(what_is_masked_or_discarded_has_mask_0_and_what_is_thinned_has_no_row)
{
    ares_arena a = { 0 };
    ares_group g[GROUPS];
    ares_batch b;
    ares_batch_init(&b);
    make_groups(g, false, &a);
    g[0].masked = 1;
    g[1].items[0].discarded = 1;
    g[2].items[0].discarded = 1;
    g[2].drops_discarded = 1;
    ares_batch_fill(&b, g, GROUPS);
    REQUIRE(b.rows == 6 && b.tokens == 4 + 5 + 4 + 5 + 0 + 6);
    CHECK(b.samples[4].index == 1 && b.samples[5].index == 2);
    for (int64_t i = 0; i < b.row_start[4]; i++) CHECK_EQ(b.response_mask[i], 0);
    CHECK_EQ(b.response_mask[b.row_start[5]], 1);
    CHECK(!b.turn_ends && !b.turn_scores);
    ares_batch_fini(&b);
    ares_arena_fini(&a);
}

/* How a child ends that makes groups, changes them and fills a batch. */
static int status_of(void (*change)(ares_group *g))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ares_arena a = { 0 };
        ares_group g[GROUPS];
        ares_batch b;
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(9);
        ares_batch_init(&b);
        make_groups(g, true, &a);
        if (change) change(g);
        ares_batch_fill(&b, g, GROUPS);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 1000 + WEXITSTATUS(status);
}

static void unmark_first(ares_group *g)
{
    g[0].items[0].rows[0].turn_scores = NULL;
}
static void unmark_last(ares_group *g)
{
    g[2].items[2].rows[0].turn_scores = NULL;
}
static void empty(ares_group *g)
{
    g[1].items[0].n_rows = 0;
}

TEST(marks_of_some_rows_only_and_answers_without_a_row_abort)
{
    CHECK_EQ(status_of(NULL), 1000);
    CHECK_EQ(status_of(unmark_first), SIGABRT);
    CHECK_EQ(status_of(unmark_last), SIGABRT);
    CHECK_EQ(status_of(empty), SIGABRT);
}

TEST(no_groups_make_an_empty_batch_whose_columns_are_there)
{
    ares_batch b;
    ares_batch_init(&b);
    ares_batch_fill(&b, NULL, 0);
    CHECK(b.rows == 0 && b.responses && b.rollout_log_probs && !b.turn_ends);
    ares_batch_fini(&b);
}

/* The groups as bytes and back make the same batch. */
static void same_batch(const ares_batch *x, const ares_batch *y)
{
    REQUIRE(x->rows == y->rows && x->groups == y->groups && x->tokens == y->tokens);
    CHECK_MEM(x->row_start, y->row_start, (size_t)(x->rows + 1) * sizeof *x->row_start);
    CHECK_MEM(x->group_start, y->group_start, (size_t)(x->groups + 1) * sizeof *x->group_start);
#define SAME(type, name, stage, doc) \
    CHECK(!x->name == !y->name);     \
    if (x->name) CHECK_MEM(x->name, y->name, (size_t)x->tokens * sizeof *x->name);
    ARES_BATCH_SAMPLED(SAME)
#undef SAME
    for (int64_t r = 0; r < x->rows; r++) {
        const ares_sample *s = &x->samples[r], *z = &y->samples[r];
        CHECK(s->draw == z->draw && s->index == z->index && s->episode == z->episode);
        CHECK(s->row == z->row && s->stopped == z->stopped && s->prompt_len == z->prompt_len);
        CHECK_MEM(s->prompt, z->prompt, (size_t)s->prompt_len * sizeof *s->prompt);
        CHECK(ares_view_eq(s->response, z->response));
        CHECK_NEAR(s->score, z->score, 0);
        CHECK_NEAR(s->accuracy, z->accuracy, 0);
        CHECK_NEAR(s->baseline, z->baseline, 0);
        CHECK_MEM(s->reward_parts, z->reward_parts, 2 * sizeof(float));
    }
}

TEST(groups_come_back_from_their_bytes)
{
    ares_arena a = { 0 };
    ares_group g[GROUPS], back[GROUPS];
    ares_str bytes = { 0 };
    ares_batch b, c;
    ares_batch_init(&b);
    ares_batch_init(&c);
    make_groups(g, true, &a);
    g[2].drops_discarded = 1;
    g[2].items[2].discarded = 1;
    g[1].masked = 1;
    /* two rows whose prompt is that of the data row */
    g[0].items[0].rows[1] = g[0].items[0].rows[0];
    g[0].items[0].n_rows = 2;
    for (int i = 0; i < GROUPS; i++) ares_group_write(&g[i], &bytes);
    ares_view in = ares_str_view(&bytes);
    for (int i = 0; i < GROUPS; i++) {
        int64_t row;
        REQUIRE_OK(ares_group_read(&in, &a, &back[i], &row));
        CHECK_EQ(row, 40 + i);
        ares_group_set_row(&back[i], &data_rows[i]);
        CHECK_EQ(back[i].place, 5 - i);
        CHECK_NEAR(back[i].items[0].unshaped, 0, 0);
    }
    CHECK_EQ(in.len, 0);
    ares_batch_fill(&b, g, GROUPS);
    ares_batch_fill(&c, back, GROUPS);
    same_batch(&b, &c);
    ares_batch_fini(&b);
    ares_batch_fini(&c);
    ares_str_fini(&bytes);
    ares_arena_fini(&a);
}

TEST(bytes_that_end_early_are_refused_and_changed_ones_do_no_harm)
{
    ares_arena a = { 0 };
    ares_group g[GROUPS], back;
    ares_str bytes = { 0 };
    int64_t row;
    make_groups(g, true, &a);
    ares_group_write(&g[1], &bytes);
    for (size_t n = 0; n < bytes.len; n++) {
        char *part = ares_malloc(n + 1); /* of its exact size, for sanitizers */
        memcpy(part, bytes.data, n);
        ares_view in = { part, n };
        CHECK_FAIL(ares_group_read(&in, &a, &back, &row), ARES_EFORMAT, "answered prompt");
        CHECK(in.data == part && in.len == n);
        ares_free(part);
    }
    bytes.data[3] ^= 1; /* of the fields' names */
    ares_view other = ares_str_view(&bytes);
    CHECK_FAIL(ares_group_read(&other, &a, &back, &row), ARES_EFORMAT, "another version");
    bytes.data[3] ^= 1;
    for (size_t n = 8; n < bytes.len; n++) {
        char *changed = ares_malloc(bytes.len);
        memcpy(changed, bytes.data, bytes.len);
        changed[n] = (char)(changed[n] ^ 0x81);
        ares_view in = { changed, bytes.len };
        if (ares_group_read(&in, &a, &back, &row) == ARES_OK) {
            ares_group_set_row(&back, &data_rows[1]);
            for (int32_t i = 0; i < back.n; i++) CHECK(ares_trajectory_tokens(&back.items[i]) >= 0);
        }
        ares_free(changed);
    }
    ares_str_fini(&bytes);
    ares_arena_fini(&a);
}
