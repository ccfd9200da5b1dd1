/* The columns of a step. */
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data_test.h"
#include "keep_groups.h"

static const int sizes[] = { 2, 3, 1 }, prompts[] = { 4, 2, 3 }, lens[] = { 3, 1, 2, 5, 1, 4 };

TEST(rows_of_a_group_are_adjacent_and_own_their_tokens)
{
    ares_batch b;
    make_batch(&b, 3, sizes, prompts, lens);
    const int64_t row_start[] = { 0, 3, 4, 6, 11, 12, 16 }, group_start[] = { 0, 2, 5, 6 };
    CHECK(b.rows == 6 && b.groups == 3 && b.tokens == 16);
    CHECK_MEM(b.row_start, row_start, sizeof row_start);
    CHECK_MEM(b.group_start, group_start, sizeof group_start);
    CHECK(b.samples[4].draw == 1 && b.samples[4].index == 2);
    ares_batch_fini(&b);
}

TEST(a_group_begun_twice_is_one_and_an_empty_batch_is_fine)
{
    ares_batch b;
    ares_sample s = { 0 };
    ares_batch_init(&b);
    ares_batch_begin_group(&b);
    ares_batch_begin_group(&b);
    CHECK_EQ(ares_batch_add_row(&b, &s, 0), 0);
    CHECK_EQ(ares_batch_add_row(&b, &s, 2), 0);
    CHECK_EQ(ares_batch_add_row(&b, &s, 1), 2);
    CHECK(b.groups == 1 && b.group_start[1] == 3);
    ares_batch_clear(&b);
    CHECK(b.rows == 0 && b.groups == 0 && b.tokens == 0);
    keep_groups(&b, NULL);
    CHECK(b.rows == 0);
    ares_batch_fini(&b);
    ares_batch_init(&b);
    keep_groups(&b, NULL);
    CHECK(ARES_PUT(&b, advantages) != NULL);
    ares_batch_fini(&b);
}

TEST(dc_start_at_zero_and_clearing_forgets_them)
{
    ares_batch b;
    make_batch(&b, 3, sizes, prompts, lens);
    ARES_PUT(&b, advantages);
    for (int64_t t = 0; t < b.tokens; t++) {
        CHECK(b.advantages[t] == 0);
        b.advantages[t] = 1;
    }
    ares_batch_clear(&b);
    CHECK(!b.advantages && !b.responses);
    ares_batch_begin_group(&b);
    ares_sample s = { 0 };
    ares_batch_add_row(&b, &s, 16);
    ARES_PUT(&b, advantages); /* in the same memory */
    for (int64_t t = 0; t < b.tokens; t++) CHECK(b.advantages[t] == 0);
    ares_batch_fini(&b);
}

/* Exit status of a child that does this to a batch whose responses are put. */
static int status_of(void (*mistake)(ares_batch *b))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ares_batch b;
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(9);
        make_batch(&b, 3, sizes, prompts, lens);
        mistake(&b);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 1000 + WEXITSTATUS(status);
}

static void put_twice(ares_batch *b)
{
    ARES_PUT(b, responses);
}
static void add_late(ares_batch *b)
{
    ares_sample s = { 0 };
    ares_batch_add_row(b, &s, 1);
}
static void put_another(ares_batch *b)
{
    ARES_PUT(b, values);
}

TEST(a_column_put_twice_and_a_row_added_late_abort)
{
    CHECK_EQ(status_of(put_twice), SIGABRT);
    CHECK_EQ(status_of(add_late), SIGABRT);
    CHECK_EQ(status_of(put_another), 1000);
}

TEST(every_missing_column_is_named_with_the_stage_that_the_list_gives)
{
    ares_batch b;
    make_batch(&b, 3, sizes, prompts, lens);
    CHECK_OK(ARES_NEED(&b, "adv: gae", responses));
    b.responses = NULL;
#define CHECK_OWNED(type, column, owner, doc)                  \
    CHECK_FAIL(ARES_NEED(&b, "adv: gae", column), ARES_ESTATE, \
               "adv: gae: needs column '" #column "', which stage '" owner "' makes");
    ARES_BATCH_LIST(CHECK_OWNED)
#undef CHECK_OWNED
    CHECK_FAIL(ARES_NEED(&b, "update_critic", values), ARES_ESTATE,
               "update_critic: needs column 'values', which stage 'values' makes");
    ares_batch_fini(&b);
}

TEST(selecting_groups_takes_their_rows_and_every_column_along)
{
    for (unsigned set = 0; set < 8; set++) {
        ares_batch b;
        bool keep[3];
        make_batch(&b, 3, sizes, prompts, lens);
        ARES_PUT(&b, response_mask);
        ARES_PUT(&b, advantages);
        for (int64_t t = 0; t < b.tokens; t++) {
            b.response_mask[t] = b.responses[t] % 3 != 0;
            b.advantages[t] = (float)b.responses[t];
        }
        for (int g = 0; g < 3; g++) keep[g] = set >> g & 1;
        keep_groups(&b, keep);
        int64_t group = 0, row = 0, token = 0, old_row = 0;
        for (int g = 0; g < 3; g++)
            for (int k = 0; k < sizes[g]; k++, old_row++) {
                if (!keep[g]) continue;
                if (k == 0) CHECK_EQ(b.group_start[group++], row);
                CHECK(b.samples[row].draw == g && b.samples[row].index == k &&
                      b.samples[row].prompt_len == prompts[g]);
                CHECK_EQ(b.row_start[row], token);
                CHECK_EQ(b.row_start[row + 1] - token, lens[old_row]);
                for (; token < b.row_start[row + 1]; token++) {
                    CHECK_EQ(b.responses[token],
                             100000 + 1000 * old_row + token - b.row_start[row]);
                    CHECK(b.response_mask[token] == (b.responses[token] % 3 != 0) &&
                          b.advantages[token] == (float)b.responses[token]);
                }
                row++;
            }
        CHECK(b.groups == group && b.rows == row && b.tokens == token &&
              b.group_start[group] == row && !b.returns);
        ares_batch_fini(&b);
    }
}

/* Every column, each with numbers of its own. */
static void put_all(ares_batch *b)
{
    int column = 0;
#define PUT(type, name, owner, doc)                                     \
    if (!b->name) ARES_PUT(b, name);                                    \
    for (int64_t t = 0; t < b->tokens; t++)                             \
        b->name[t] = (ares_column_##type)((7 * t + 13 * column) % 251); \
    column++;
    ARES_BATCH_LIST(PUT)
#undef PUT
}

TEST(taking_rows_repeats_leaves_out_and_reorders_them_with_every_column)
{
    enum { MOST = 8 };
    static const struct {
        int n, groups;
        int64_t order[MOST], group_start[MOST];
    } cases[] = {
        { 6, 3, { 0, 1, 2, 3, 4, 5 }, { 0, 2, 5, 6 } },
        { 8, 3, { 0, 0, 1, 2, 4, 4, 4, 5 }, { 0, 3, 7, 8 } }, /* more than there were */
        { 5, 4, { 5, 3, 1, 0, 4 }, { 0, 1, 2, 4, 5 } },       /* the groups come apart */
        { 3, 2, { 1, 0, 2 }, { 0, 2, 3 } },
        { 1, 1, { 4 }, { 0, 1 } },
        { 0, 0, { 0 }, { 0 } },
    };
    for (int k = 0; k < 2 * ARES_COUNT(cases); k++) { /* taken, and copied to another batch */
        ares_batch b, old;
        int i = k / 2;
        const int64_t *order = cases[i].order;
        make_batch(&old, 3, sizes, prompts, lens);
        put_all(&old);
        if (k % 2) {
            ares_batch_init(&b);
            old.kl_coef = 0.25;
            ares_batch_copy(&old, order, cases[i].n, &b);
            CHECK_NEAR(b.kl_coef, 0.25, 0);
        } else {
            make_batch(&b, 3, sizes, prompts, lens);
            put_all(&b);
            ares_batch_take(&b, order, cases[i].n);
        }
        CHECK_EQ(b.rows, cases[i].n);
        REQUIRE(b.groups == cases[i].groups);
        CHECK_MEM(b.group_start, cases[i].group_start,
                  (size_t)(cases[i].groups + 1) * sizeof(int64_t));
        int64_t token = 0;
        for (int64_t r = 0; r < b.rows; r++) {
            int64_t from = old.row_start[order[r]], n = old.row_start[order[r] + 1] - from;
            CHECK_EQ(b.row_start[r], token);
            CHECK(b.samples[r].draw == old.samples[order[r]].draw &&
                  b.samples[r].index == old.samples[order[r]].index);
#define SAME(type, name, owner, doc) \
    CHECK_MEM(b.name + token, old.name + from, (size_t)n * sizeof *b.name);
            ARES_BATCH_LIST(SAME)
#undef SAME
            token += n;
        }
        CHECK(b.tokens == token && b.row_start[b.rows] == token);
        ares_batch_fini(&b);
        ares_batch_fini(&old);
    }
}

TEST(rows_taken_of_some_columns_put_no_other)
{
    ares_batch b;
    make_batch(&b, 3, sizes, prompts, lens);
    ares_batch_take(&b, (const int64_t[]){ 2, 2 }, 2);
    CHECK(b.responses && !b.advantages && !b.response_mask);
    CHECK(ARES_PUT(&b, advantages) != NULL);
    ares_batch_fini(&b);
}

TEST(a_batch_without_a_row_has_ends)
{
    ares_batch b;
    ares_batch_init(&b);
    ARES_PUT(&b, responses);
    CHECK(b.row_start && b.row_start[0] == 0 && b.group_start && b.group_start[0] == 0);
    ares_batch_fini(&b);
}
