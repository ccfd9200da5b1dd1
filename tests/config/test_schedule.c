/*
 * What the goldens of schedules leave open: messages with their column, limits, expressions without
 * `lambda`, names of a user's own.
 */
#include "test.h"

#include "internal.h"

#include <math.h>

static int parse(ares_arena *arena, const char *text, ares_schedule_list list, scheduled *s)
{
    ares_json value = { .type = ARES_JSON_STRING, .text = ares_view_of(text) };
    return scheduled_parse(arena, &value, list, s);
}

static double value_at(const char *text, int64_t step)
{
    ares_arena arena = { 0 };
    scheduled s;
    double value = NAN;
    CHECK_OK(parse(&arena, text, ARES_SCHEDULE_WEIGHT, &s));
    CHECK_OK(scheduled_at(&s, step, &value));
    ares_arena_fini(&arena);
    return value;
}

TEST(an_expression_in_step_needs_no_lambda)
{
    CHECK_EQ(value_at("0.2 + 0.6 * min(step / 100, 1)", 50), 0.5);
    CHECK_EQ(value_at(" 1e-3 if step < 10 else 1e-4 ", 9), 1e-3);
    CHECK_EQ(value_at(" 1e-3 if step < 10 else 1e-4 ", 10), 1e-4);
    CHECK_EQ(value_at("step", 7), 7);
    CHECK_EQ(value_at("0.5", 7), 0.5);
    CHECK_EQ(value_at("lambda exp: exp * 2", 7), 14);
}

TEST(what_is_no_expression_is_named_with_its_column)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "0.9 - 0.8 * steps", "column 13: unknown name" },
        { "lambda a, b: a", "column 9: ':' was expected after the one name" },
        { "lambda: 1", "column 7: the name of the step was expected" },
        { "(1 + step", "column 10: ')' was expected" },
        { "min(step)", "column 1: wrong number of arguments" },
        { "step.real + 1", "column 5: the expression should end here" },
        { "007 + 1", "column 1: a whole number begins with 0" },
        { "1 if step", "column 10: 'else' was expected" },
        { "1 + None", "None is only a whole branch" },
        { "1 if step < 3 else None", "None is a value of reward caps only" },
        { "no_such_schedule", "schedule = 'no_such_schedule'" },
        { "a.b.increasing_weigth", "did you mean 'increasing_weight'" },
        { "a.reward_cap_scheduler.increasing_weight", "'increasing_weight'" },
        { "", "an empty text is no schedule" },
    };
    ares_arena arena = { 0 };
    scheduled s;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_EQ(parse(&arena, cases[i].text, ARES_SCHEDULE_WEIGHT, &s), ARES_ECONFIG);
        CHECK_CONTAINS(ares_error_message(), cases[i].says);
    }
    ares_arena_fini(&arena);
}

TEST(an_error_at_a_step_names_the_step)
{
    ares_arena arena = { 0 };
    scheduled s;
    double value;
    CHECK_OK(parse(&arena, "1 / (step - 3)", ARES_SCHEDULE_WEIGHT, &s));
    CHECK_OK(scheduled_at(&s, 2, &value));
    CHECK_EQ(scheduled_at(&s, 3, &value), ARES_ECONFIG);
    CHECK_CONTAINS(ares_error_message(), "at step 3: division by zero");
    ares_arena_fini(&arena);
}

/* Long, deep and slow texts end with a message, whatever they would compute. */
TEST(an_expression_has_limits)
{
    ares_arena arena = { 0 };
    scheduled s;
    double value;
    ares_str text = { 0 };
    for (int i = 0; i < 2500; i++) ares_str_add_z(&text, "1+");
    CHECK_EQ(parse(&arena, text.data, ARES_SCHEDULE_WEIGHT, &s), ARES_ECONFIG);
    CHECK_CONTAINS(ares_error_message(), "at most 4096 characters");
    static const char *const openings[] = { "(", "-", "not ", "2**-" };
    for (int k = 0; k < ARES_COUNT(openings); k++) {
        ares_str_clear(&text);
        for (int i = 0; i < 1000; i++) ares_str_add_z(&text, openings[k]);
        CHECK_EQ(parse(&arena, text.data, ARES_SCHEDULE_WEIGHT, &s), ARES_ECONFIG);
        CHECK_CONTAINS(ares_error_message(), "nested too deeply");
    }
    /* Each operand in the middle is evaluated twice: 2 to the power of its depth. */
    ares_str_clear(&text);
    for (int i = 0; i < 40; i++) ares_str_add_z(&text, "0 < (");
    ares_str_add_z(&text, "1");
    for (int i = 0; i < 40; i++) ares_str_add_z(&text, ") < 2");
    CHECK_OK(parse(&arena, text.data, ARES_SCHEDULE_WEIGHT, &s));
    CHECK_EQ(scheduled_at(&s, 0, &value), ARES_ECONFIG);
    CHECK_CONTAINS(ares_error_message(), "too many operations");
    ares_str_fini(&text);
    ares_arena_fini(&arena);
}

TEST(texts_of_any_bytes_are_read_or_refused)
{
    static const char letters[] =
        "0123456789.e_+-*/%()<>=! \tstepifelandorntmahxNoTru,:lb\"'\\\x80";
    ares_arena arena = { 0 };
    ares_rng_key key = ares_rng_root(5, 0);
    uint64_t at = 0;
    scheduled s;
    double value;
    int read = 0;
    for (int i = 0; i < 20000; i++) {
        char text[24] = { 0 };
        uint64_t n = ares_rng_below(key, at++, sizeof text - 1);
        for (uint64_t k = 0; k < n; k++)
            text[k] = letters[ares_rng_below(key, at++, sizeof letters - 1)];
        if (parse(&arena, text, ARES_SCHEDULE_CAP, &s) != ARES_OK) continue;
        read++;
        (void)scheduled_at(&s, 3, &value);
        ares_arena_reset(&arena);
    }
    CHECK(read > 20);
    ares_arena_fini(&arena);
}
