/*
 * The data sets of the examples are right: every answer, every working, and no validation question
 * among the training ones.
 */
#include "ares/io.h"
#include "test.h"

#include <stdio.h>

/* Calls each row's check; gives the number of rows. */
static int64_t each_row(const char *path,
                        void (*check)(const ares_json *row, const char *prompt, const char *answer))
{
    ares_jsonl *r;
    const ares_json *row;
    int64_t n = 0;
    if (!CHECK_OK(ares_jsonl_open(test_source(path), &r))) return 0;
    for (; ares_jsonl_next(r, &row, NULL) > 0; n++) {
        const ares_json *prompt = ares_json_get(row, "prompt"),
                        *answer = ares_json_get(row, "answer");
        if (CHECK(prompt && answer && prompt->type == ARES_JSON_STRING &&
                  answer->type == ARES_JSON_STRING))
            check(row, prompt->text.data, answer->text.data);
    }
    ares_jsonl_close(r);
    return n;
}

static ares_map *trained;
static int64_t levels[4];

static void check_question(const ares_json *row, const char *prompt, const char *answer)
{
    static const int most[] = { 0, 10, 100, 1000 };
    int a = -1, b = -1;
    char op = 0, right[16];
    int64_t level = 0, id = -1;
    CHECK_EQ(sscanf(prompt, "What is %d %c %d?", &a, &op, &b), 3);
    snprintf(right, sizeof right, "%d", op == '+' ? a + b : a - b);
    CHECK_STR(answer, right);
    CHECK_OK(ares_json_get_i64(row, "level", 0, &level));
    CHECK_OK(ares_json_get_i64(row, "global_id", -1, &id));
    if (!CHECK(level >= 1 && level <= 3)) return;
    CHECK(id >= 0 && a < most[level] && b < most[level] &&
          (level == 1 || (a >= most[level - 1] && b >= most[level - 1])) &&
          (op == '+' || (op == '-' && level > 1 && a >= b)));
    levels[level]++;
}

static void remember(const ares_json *row, const char *prompt, const char *answer)
{
    check_question(row, prompt, answer);
    ares_map_put(trained, ares_view_of(prompt), 1);
}

static void check_new(const ares_json *row, const char *prompt, const char *answer)
{
    check_question(row, prompt, answer);
    CHECK_MSG(!ares_map_get(trained, ares_view_of(prompt), NULL), "%s", prompt);
}

TEST(arithmetic_questions_are_right_and_apart)
{
    trained = ares_map_new();
    memset(levels, 0, sizeof levels);
    CHECK_EQ(each_row("examples/data/arithmetic/train.jsonl", remember), 1800);
    for (int i = 1; i <= 3; i++) CHECK_EQ(levels[i], 600);
    memset(levels, 0, sizeof levels);
    CHECK_EQ(each_row("examples/data/arithmetic/val.jsonl", check_new), 160);
    CHECK_EQ(levels[1], 40);
    CHECK_EQ(levels[2], 60);
    CHECK_EQ(levels[3], 60);
    ares_map_free(trained);
}

static void check_sum(const ares_json *row, const char *prompt, const char *answer)
{
    const ares_json *response = ares_json_get(row, "response");
    int a = 0, b = 0, carry = 0;
    char right[96];
    CHECK_EQ(sscanf(prompt, "%3d+%3d=?", &a, &b), 2);
    snprintf(right, sizeof right, "%d", a + b);
    CHECK_STR(answer, right);
    CHECK_MSG(!ares_map_get(trained, ares_view_of(prompt), NULL), "%s", prompt);
    ares_map_put(trained, ares_view_of(prompt), 1);
    if (!response) return;
    int n = snprintf(right, sizeof right, "<think>");
    for (int place = 1; place <= 100; place *= 10) {
        int x = a / place % 10, y = b / place % 10, sum = x + y + carry;
        n += snprintf(right + n, sizeof right - (size_t)n, "%s%d+%d+%d=%d", place > 1 ? " " : "", x,
                      y, carry, sum);
        carry = sum / 10;
    }
    snprintf(right + n, sizeof right - (size_t)n, "</think>\\boxed{%d}", a + b);
    CHECK_VIEW(response->text, right);
}

TEST(worked_sums_are_right_and_apart)
{
    trained = ares_map_new();
    CHECK_EQ(each_row("examples/data/sums/sft.jsonl", check_sum), 3000);
    CHECK_EQ(each_row("examples/data/sums/train.jsonl", check_sum), 2000);
    CHECK_EQ(each_row("examples/data/sums/val.jsonl", check_sum), 200);
    ares_map_free(trained);
}
