#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static ares_arena arena;

static const ares_json *parsed(const char *text)
{
    const ares_json *value = NULL;
    CHECK_OK(ares_json_parse(&arena, ares_view_of(text), "t", &value));
    return value;
}

static void check_bad(const char *text, const char *message)
{
    const ares_json *value;
    CHECK_FAIL(ares_json_parse(&arena, ares_view_of(text), "t", &value), ARES_EFORMAT, message);
}

TEST(json_values_keep_their_kind)
{
    const ares_json *v = parsed(
        " { \"i\" : 1 , \"f\":1.0,\"e\":1e2,\"s\":\"x\",\"t\":true,\"n\":null,\"a\":[],\"o\":{}} ");
    REQUIRE(v && v->type == ARES_JSON_OBJECT);
    CHECK_EQ(v->count, 8);
    CHECK_VIEW(v->members[7].key, "o");
    CHECK_EQ(ares_json_get(v, "i")->type, ARES_JSON_INT);
    CHECK_EQ(ares_json_get(v, "i")->integer, 1);
    CHECK_EQ(ares_json_get(v, "f")->type, ARES_JSON_FLOAT);
    CHECK_EQ(ares_json_get(v, "f")->integer, 1);
    CHECK_VIEW(ares_json_get(v, "f")->text, "1.0");
    CHECK_NEAR(ares_json_get(v, "e")->number, 100, 0);
    CHECK(ares_json_get(v, "t")->boolean);
    CHECK_EQ(ares_json_get(v, "n")->type, ARES_JSON_NULL);
    CHECK_EQ(ares_json_get(v, "a")->count, 0);
    CHECK(ares_json_get(v, "absent") == NULL);
    CHECK(ares_json_get(ares_json_get(v, "a"), "x") == NULL);
    CHECK(ares_json_get(NULL, "x") == NULL);
    ares_arena_fini(&arena);
}

TEST(json_strings_unescape_in_full)
{
    const ares_json *v = parsed("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00 "
                                "\xF0\x9F\x98\x80 a\\u0000b\"");
    REQUIRE(v);
    CHECK_EQ(v->text.len, 27);
    CHECK_MEM(v->text.data,
              "\"\\/\b\f\n\r\tA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 \xF0\x9F\x98\x80 a\0b", 28);
    CHECK_VIEW(parsed("\"\\ud800x\"")->text, "\xEF\xBF\xBDx");
    CHECK_VIEW(parsed("\"\\udc00\\ud800\"")->text, "\xEF\xBF\xBD\xEF\xBF\xBD");
    CHECK_VIEW(parsed("\"\\ud800\\ud83d\\ude00\"")->text, "\xEF\xBF\xBD\xF0\x9F\x98\x80");
    CHECK_VIEW(parsed("\"\\ud800\\u0041\"")->text, "\xEF\xBF\xBD"
                                                   "A");
    ares_arena_fini(&arena);
}

TEST(json_numbers_keep_their_digits)
{
    const ares_json *v =
        parsed("[9007199254740993, -9223372036854775808, 9223372036854775808, -0, 1e-6, "
               "123456789012345678901234567890]");
    REQUIRE(v && v->count == 6);
    CHECK_EQ(v->items[0].integer, 9007199254740993);
    CHECK(!v->items[0].big);
    CHECK_EQ(v->items[1].integer, INT64_MIN);
    CHECK(!v->items[1].big);
    CHECK(v->items[2].big);
    CHECK_EQ(v->items[2].integer, INT64_MAX);
    CHECK_NEAR(v->items[2].number, 0x1p63, 0);
    CHECK(v->items[3].integer == 0 && signbit(v->items[3].number));
    CHECK_NEAR(v->items[4].number, 1e-6, 0);
    CHECK_VIEW(v->items[5].text, "123456789012345678901234567890");
    ares_arena_fini(&arena);
}

TEST(json_repeated_keys_keep_the_first_place_and_the_last_value)
{
    const ares_json *v = parsed("{\"a\":1,\"b\":2,\"a\":3}");
    REQUIRE(v && v->count == 2);
    CHECK_VIEW(v->members[0].key, "a");
    CHECK_EQ(v->members[0].value->integer, 3);
    ares_str text = { 0 };
    ares_str_add_char(&text, '{');
    for (int i = 0; i < 3000; i++) ares_str_addf(&text, "%s\"k%d\":%d", i ? "," : "", i % 1000, i);
    ares_str_add_char(&text, '}');
    v = parsed(text.data);
    REQUIRE(v && v->count == 1000);
    for (int i = 0; i < 1000; i++) CHECK_EQ(v->members[i].value->integer, 2000 + i);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
}

TEST(json_errors_name_line_and_column)
{
    check_bad("", "t:1:1: not JSON: the text ends where a value should be");
    check_bad("{\n \"\xC3\xA4\" 1}", "t:2:6: not JSON: '1' where ':' should be");
    check_bad("[1,]", "t:1:4: not JSON: ']' where a value should be");
    check_bad("{\"a\":1,}", "t:1:8: not JSON: '}' where a key in double quotes should be");
    check_bad("[1 2]", "t:1:4: not JSON: '2' where ',' or ']' should be");
    check_bad("[1", "the text ends where ',' or ']' should be");
    check_bad("1 2", "t:1:3: not JSON: something follows the value");
    check_bad("\"a", "t:1:1: not JSON: the string does not end");
    check_bad("\"a\nb\"", "a control character in a string must be escaped");
    check_bad("\"\\x\"", "t:1:2: not JSON: unknown escape in a string");
    check_bad("\"\\u12g4\"", "\\u needs four hexadecimal digits");
    check_bad("\"\\", "the text ends inside a string");
    check_bad("\xEF\xBB\xBF{}", "byte order mark");
    check_bad("nul", "'n' where a value should be");
    check_bad("NaN", "'N' where a value should be");
    check_bad("\x01", "byte 0x01 where a value should be");
}

TEST(json_numbers_follow_the_grammar)
{
    static const char *const bad[] = { "01",  "-",   "+1",  "1.",    ".5",  "1e",
                                       "1e+", "0x1", "-01", "1e999", "- 1", "1.e1" };
    const ares_json *value;
    for (int i = 0; i < ARES_COUNT(bad); i++)
        CHECK_MSG(ares_json_parse(&arena, ares_view_of(bad[i]), "t", &value) == ARES_EFORMAT, "%s",
                  bad[i]);
    ares_arena_fini(&arena);
}

TEST(json_strings_must_be_utf8)
{
    static const char *const bad[] = { "\"\x80\"",
                                       "\"\xC3\"",
                                       "\"\xC0\x80\"",
                                       "\"\xE0\x80\x80\"",
                                       "\"\xED\xA0\x80\"",
                                       "\"\xF4\x90\x80\x80\"",
                                       "\"\xF5\x80\x80\x80\"",
                                       "\"\xF0\x80\x80\x80\"",
                                       "\"\xE2\x82" };
    const ares_json *value;
    for (int i = 0; i < ARES_COUNT(bad); i++)
        CHECK_FAIL(ares_json_parse(&arena, ares_view_of(bad[i]), "t", &value), ARES_EFORMAT,
                   "t:1:2: not JSON: a string holds bytes");
    ares_arena_fini(&arena);
}

TEST(json_depth_is_bounded)
{
    for (int depth = 512; depth <= 513; depth++) {
        ares_str text = { 0 };
        for (int i = 0; i < depth; i++) ares_str_add_z(&text, i % 2 ? "{\"a\":" : "[");
        ares_str_add_z(&text, "1");
        for (int i = depth - 1; i >= 0; i--) ares_str_add_z(&text, i % 2 ? "}" : "]");
        if (depth == 512) parsed(text.data);
        else check_bad(text.data, "nested deeper than 512 levels");
        ares_str_fini(&text);
    }
    ares_arena_fini(&arena);
}

TEST(json_typed_lookups_default_and_refuse)
{
    const ares_json *v = parsed("{\"i\":3,\"f\":2.5,\"w\":2.0,\"s\":\"x\",\"b\":true,\"n\":null,"
                                "\"big\":99999999999999999999}");
    int64_t i = 0;
    double d = 0;
    bool b = false;
    ares_view s;
    CHECK_OK(ares_json_get_i64(v, "i", 7, &i));
    CHECK_EQ(i, 3);
    CHECK_OK(ares_json_get_i64(v, "w", 7, &i));
    CHECK_EQ(i, 2);
    CHECK_OK(ares_json_get_i64(v, "n", 7, &i));
    CHECK_EQ(i, 7);
    CHECK_FAIL(ares_json_get_i64(v, "f", 7, &i), ARES_EFORMAT,
               "key 'f' is a number, not an integer");
    CHECK_FAIL(ares_json_get_i64(v, "big", 7, &i), ARES_EFORMAT, "64 bits");
    CHECK_OK(ares_json_get_double(v, "i", 0, &d));
    CHECK_NEAR(d, 3, 0);
    CHECK_FAIL(ares_json_get_double(v, "s", 0, &d), ARES_EFORMAT,
               "key 's' is a string, not a number");
    CHECK_OK(ares_json_get_bool(v, "b", false, &b));
    CHECK(b);
    CHECK_FAIL(ares_json_get_bool(v, "i", false, &b), ARES_EFORMAT,
               "key 'i' is an integer, not true or false");
    CHECK_OK(ares_json_get_string(v, "none", "dft", &s));
    CHECK_VIEW(s, "dft");
    CHECK_FAIL(ares_json_get_string(v, "b", "", &s), ARES_EFORMAT,
               "key 'b' is a boolean, not a string");
    ares_arena_fini(&arena);
}

TEST(json_writes_what_python_writes)
{
    ares_str out = { 0 };
    ares_json_write(&out,
                    parsed("{ \"a\\u0001\\n\\\"\\u007f\" : [1, 1.0, 1E5, 1e-7, true, null, 1e16, "
                           "123456789012345678901, -0.0],\n\"\xC3\xA9\\u0000\": {} }"));
    CHECK_STR(out.data, "{\"a\\u0001\\n\\\"\x7F\":[1,1.0,100000.0,1e-07,true,null,1e+16,"
                        "123456789012345678901,-0.0],\"\xC3\xA9\\u0000\":{}}");
    ares_str_clear(&out);
    ares_json_write_string(&out, ARES_VIEW("a\xFF"
                                           "b\xE2\x82"
                                           "c\xF0\x9F\x98\xED\xA0\x80"));
#define FFFD "\xEF\xBF\xBD"
    CHECK_STR(out.data, "\"a" FFFD "b" FFFD "c" FFFD FFFD FFFD FFFD "\"");
    ares_str_clear(&out);
    ares_json_write_double(&out, NAN);
    ares_json_write_float(&out, INFINITY);
    ares_json_write_float(&out, 0.1f);
    CHECK_STR(out.data, "null,null,0.1");
    ares_str_fini(&out);
    ares_arena_fini(&arena);
}

TEST(rounded_numbers_are_those_of_printf)
{
    static const double special[] = { 0,      -0.0,    1,       -1,       0.5,  0.25,
                                      9.9995, 9.99949, 99999.5, 999999.5, 1e-4, 9.9995e-5,
                                      1e-5,   1e-12,   1e-13,   1e6,      1e5,  123456.5,
                                      1e300,  5e-324,  0.001,   1000,     2.5,  0.00015,
                                      1.0005, 1e22,    1.5e-7,  10 };
    ares_str out = { 0 };
    uint64_t state = 7;
    char want[40];
    for (int i = 0; i < 200000; i++) {
        double x;
        state = state * 6364136223846793005u + 1442695040888963407u;
        if (i < ARES_COUNT(special)) x = special[i];
        else if (i % 4 == 0) /* at or beside the middle of two numbers of few digits */
            x = ((double)(state >> 44) + 0.5) * pow(10, (double)(i % 15) - 12);
        else x = (double)(int64_t)state * pow(10, -19 - (double)(i % 13));
        for (int digits = 1; digits <= 7; digits++) {
            ares_str_clear(&out);
            ares_json_write_rounded(&out, x, digits);
            snprintf(want, sizeof want, "%.*g", digits, x);
            if (strcmp(out.data, want) != 0) CHECK_STR(out.data, want);
        }
    }
    static const int64_t whole[] = { 0, -1, 10, INT64_MAX, INT64_MIN };
    ares_str_clear(&out);
    for (int i = 0; i < ARES_COUNT(whole); i++) ares_json_write_i64(&out, whole[i]);
    CHECK_STR(out.data, "0,-1,10,9223372036854775807,-9223372036854775808");
    ares_str_fini(&out);
}

TEST(json_writer_puts_the_commas)
{
    ares_str out = { 0 }, indented = { 0 };
    ares_json_begin(&out, '{');
    ares_json_splice(&out, (ares_view){ 0 });
    ares_json_write_i64(ares_json_key(&out, "step"), -3);
    ares_json_write_bool(ares_json_key(&out, "done"), true);
    ares_json_begin(ares_json_key(&out, "list"), '[');
    ares_json_write_null(&out);
    ares_json_write_rounded(&out, 1.0 / 3, 3);
    ares_json_write_rounded(&out, NAN, 3);
    ares_json_begin(&out, '[');
    ares_json_end(&out, ']');
    ares_json_write_string(&out, ARES_VIEW("{\"["));
    ares_json_begin(&out, '{');
    ares_json_write_double(ares_json_key_view(&out, ARES_VIEW("a\"b")), 1e16);
    ares_json_end(&out, '}');
    ares_json_end(&out, ']');
    ares_json_splice(&out, ARES_VIEW("\"x\":1,\"y\":2"));
    ares_json_end(&out, '}');
    CHECK_STR(out.data, "{\"step\":-3,\"done\":true,\"list\":[null,0.333,null,[],\"{\\\"[\","
                        "{\"a\\\"b\":1e+16}],\"x\":1,\"y\":2}");
    ares_json_indent(&indented, ares_str_view(&out), 1);
    CHECK_STR(indented.data,
              "{\n  \"step\": -3,\n  \"done\": true,\n  \"list\": [null, 0.333, null, [], "
              "\"{\\\"[\", {\"a\\\"b\": 1e+16}],\n  \"x\": 1,\n  \"y\": 2\n}");
    ares_str_clear(&indented);
    ares_json_indent(&indented, ARES_VIEW("[[1,{}],[],{\"a\":[2]}]"), 2);
    CHECK_STR(indented.data, "[\n  [\n    1,\n    {}\n  ],\n  [],\n  {\n    \"a\": [2]\n  }\n]");
    ares_str_clear(&out); /* rows of a file follow one another without a comma */
    ares_str_add_z(&out, "1\n");
    ares_json_write_i64(&out, 2);
    CHECK_STR(out.data, "1\n2");
    ares_str_fini(&out);
    ares_str_fini(&indented);
}

TEST(json_copies_what_it_keeps)
{
    char text[] = "{\"key\":\"value\"}";
    const ares_json *v = parsed(text);
    memset(text, 'x', sizeof text);
    CHECK_VIEW(ares_json_get(v, "key")->text, "value");
    ares_arena_fini(&arena);
}
