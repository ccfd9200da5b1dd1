#include "test.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>

TEST(strings_hold_nul_and_end_with_one)
{
    ares_str s = { 0 };
    CHECK_VIEW(ares_str_view(&s), "");
    ares_str_add(&s, "a\0b", 3);
    ares_str_add_char(&s, 'c');
    CHECK_EQ(s.len, 4);
    CHECK_MEM(s.data, "a\0bc", 5);
    ares_str_clear(&s);
    CHECK_STR(s.data, "");
    ares_str_fini(&s);
}

TEST(addf_grows_to_what_it_prints)
{
    ares_str s = { 0 };
    for (int i = 0; i < 200; i++) ares_str_addf(&s, "%0*d,", i, 7);
    CHECK_EQ(s.len, strlen(s.data));
    CHECK_EQ(s.len, 1 + 199 * 200 / 2 + 200); /* a width of 0 prints one digit too */
    ares_str_fini(&s);
}

TEST(take_hands_out_the_bytes)
{
    ares_str s = { 0 };
    char *empty = ares_str_take(&s);
    CHECK_STR(empty, "");
    ares_str_add_z(&s, "abc");
    char *abc = ares_str_take(&s);
    CHECK_STR(abc, "abc");
    CHECK_EQ(s.len, 0);
    CHECK(s.data == NULL);
    ares_free(empty);
    ares_free(abc);
}

TEST(views_compare_find_and_trim)
{
    ares_view v = ARES_VIEW("one two two");
    CHECK(ares_view_is(v, "one two two"));
    CHECK(!ares_view_is(v, "one two"));
    CHECK(ares_view_starts(v, ARES_VIEW("one")));
    CHECK(ares_view_starts(v, ARES_VIEW("")));
    CHECK(!ares_view_starts(ARES_VIEW("on"), ARES_VIEW("one")));
    CHECK_EQ(ares_view_find(v, ARES_VIEW("two"), 0), 4);
    CHECK_EQ(ares_view_find(v, ARES_VIEW("two"), 5), 8);
    CHECK_EQ(ares_view_find(v, ARES_VIEW("two"), 9), -1);
    CHECK_EQ(ares_view_find(v, ARES_VIEW(""), 11), 11);
    CHECK_EQ(ares_view_find(v, ARES_VIEW(""), 12), -1);
    CHECK_VIEW(ares_view_trim(ARES_VIEW(" \t\n a b\v\f\r ")), "a b");
    CHECK_VIEW(ares_view_trim(ARES_VIEW(" \n ")), "");
    CHECK_VIEW(ares_view_of(NULL), "");
}

static void check_double(double x, const char *text)
{
    ares_str s = { 0 };
    ares_str_add_double(&s, x);
    CHECK_STR(s.data, text);
    ares_str_fini(&s);
}

static void check_float(float x, const char *text)
{
    ares_str s = { 0 };
    ares_str_add_float(&s, x);
    CHECK_STR(s.data, text);
    ares_str_fini(&s);
}

TEST(doubles_are_written_as_pythons_repr)
{
    check_double(0.1, "0.1");
    check_double(1, "1.0");
    check_double(-0.0, "-0.0");
    check_double(1e-6, "1e-06");
    check_double(1e-4, "0.0001");
    check_double(1.5e-5, "1.5e-05");
    check_double(123456.789, "123456.789");
    check_double(1e15, "1000000000000000.0");
    check_double(1e16, "1e+16");
    check_double(12345678901234567890.0, "1.2345678901234567e+19");
    check_double(-2.5e100, "-2.5e+100");
    check_double(1.0 / 3, "0.3333333333333333");
    check_double(0x1p-1074, "5e-324");
    check_double(0x1.fffffffffffffp1023, "1.7976931348623157e+308");
    check_double(9007199254740993.0, "9007199254740992.0");
    check_double(NAN, "nan");
    check_double(-INFINITY, "-inf");
    check_float(0.1f, "0.1");
    check_float(1.0f / 3, "0.33333334");
    check_float(16777216.0f, "16777216.0");
    check_float(0x1p-149f, "1e-45");
    check_float(0x1.fffffep127f, "3.4028235e+38");
}

TEST(every_number_reads_back_as_itself)
{
    ares_rng_key key = ares_rng_root(1, ARES_RNG_TEST);
    ares_str s = { 0 };
    int wrong = 0, longer = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = ares_rng_u64(key, i);
        double x, back;
        memcpy(&x, &bits, sizeof x);
        /* also short numbers as people write them */
        if (i % 2) x = (double)(int64_t)(bits >> 40) * 1e-5;
        if (!isfinite(x)) continue;
        ares_str_clear(&s);
        ares_str_add_double(&s, x);
        if (!ares_parse_double(ares_str_view(&s), &back) || memcmp(&x, &back, sizeof x) != 0)
            wrong++;
        char one_less[64]; /* no text with fewer digits reads back, leading zeros not counted */
        int digits = 0;
        for (const char *p = s.data; *p && *p != 'e'; p++)
            digits += (*p >= '1' && *p <= '9') || (*p == '0' && digits);
        for (const char *p = s.data + strcspn(s.data, "e");
             p > s.data && (p[-1] == '0' || p[-1] == '.'); p--)
            if (p[-1] == '0') digits--;
        if (digits > 1) {
            snprintf(one_less, sizeof one_less, "%.*e", digits - 2, x);
            if (strtod(one_less, NULL) == x) longer++;
        }
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(longer, 0);
    ares_str_fini(&s);
}

static bool parses(const char *text, double *out)
{
    return ares_parse_double(ares_view_of(text), out);
}

TEST(numbers_are_read_strictly)
{
    static const char *const bad[] = { "",    " 1",  "1 ", "0x10", "nan",  "inf",   "1e",
                                       "1e+", "--1", ".",  "+",    "1..2", "1e999", "1,5" };
    double x = 0;
    for (int i = 0; i < ARES_COUNT(bad); i++)
        CHECK_MSG(!parses(bad[i], &x), "'%s' gave %g", bad[i], x);
    CHECK(parses("1e-6", &x) && x == 1e-6);
    CHECK(parses("+.5", &x) && x == 0.5);
    CHECK(parses("5.", &x) && x == 5);
    CHECK(parses("-0", &x) && signbit(x));
    CHECK(parses("1e-999", &x) && x == 0);
    CHECK(parses("9007199254740993", &x) && x == 9007199254740992.0);
    CHECK(parses("123456789012345678901234567890", &x) && x == 123456789012345678901234567890.0);
    CHECK(parses("0.000000000000000000000000000001", &x) && x == 1e-30);
    char longest[512];
    snprintf(longest, sizeof longest, "17976931348623157%0*d", 292, 0);
    CHECK(parses(longest, &x) && x == 0x1.fffffffffffffp1023);
}

TEST(reading_agrees_with_strtod)
{
    ares_rng_key key = ares_rng_root(2, ARES_RNG_TEST);
    for (uint64_t i = 0; i < 20000; i++) {
        char text[64];
        uint64_t r = ares_rng_u64(key, i);
        snprintf(text, sizeof text, "%llu.%0*llue%d", (unsigned long long)(r >> (r % 50)),
                 (int)(r % 7), (unsigned long long)(r & 0xFFFF), (int)(r % 61) - 30);
        double x = 0;
        if (!CHECK_MSG(parses(text, &x) && x == strtod(text, NULL), "%s", text)) return;
    }
}

TEST(integers_are_read_to_their_limits)
{
    int64_t x = 0;
    CHECK(ares_parse_i64(ARES_VIEW("-9223372036854775808"), &x) && x == INT64_MIN);
    CHECK(ares_parse_i64(ARES_VIEW("+9223372036854775807"), &x) && x == INT64_MAX);
    CHECK(!ares_parse_i64(ARES_VIEW("9223372036854775808"), &x));
    CHECK(!ares_parse_i64(ARES_VIEW("-9223372036854775809"), &x));
    CHECK(!ares_parse_i64(ARES_VIEW(""), &x));
    CHECK(!ares_parse_i64(ARES_VIEW("-"), &x));
    CHECK(!ares_parse_i64(ARES_VIEW("1.0"), &x));
}

TEST(a_locale_with_commas_changes_no_number)
{
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8"))
        SKIP("no such locale here");
    double x = 0;
    check_double(0.1 + 0.2, "0.30000000000000004");
    CHECK(parses("0.30000000000000004", &x) && x == 0.1 + 0.2);
    setlocale(LC_NUMERIC, "C");
}

TEST(arenas_align_and_keep_their_memory)
{
    ares_arena a = { 0 };
    for (int round = 0; round < 3; round++) {
        char *last = NULL;
        for (size_t bytes = 1; bytes < 300000; bytes = bytes * 3 + 1) {
            char *p = ares_arena_alloc(&a, bytes);
            CHECK_EQ((uintptr_t)p % 16, 0);
            CHECK(p != last);
            memset(p, round, bytes);
            last = p;
        }
        int *zero = ares_arena_calloc(&a, 100, sizeof(int));
        for (int i = 0; i < 100; i++) CHECK_EQ(zero[i], 0);
        CHECK_STR(ares_arena_printf(&a, "%d-%s", 5, "x"), "5-x");
        CHECK_STR(ares_arena_copy(&a, "abcdef", 3), "abc");
        CHECK(a.used > 300000);
        ares_arena_reset(&a);
        CHECK_EQ(a.used, 0);
    }
    ares_arena_fini(&a);
}

TEST(maps_keep_order_and_replace_values)
{
    ares_map *m = ares_map_new();
    char key[32];
    CHECK(!ares_map_get(m, ARES_VIEW("k1"), NULL));
    for (int i = 0; i < 10000; i++) {
        int len = snprintf(key, sizeof key, "key%d", i);
        ares_map_put(m, (ares_view){ key, (size_t)len }, i);
    }
    ares_map_put(m, ARES_VIEW("key77"), -1);
    ares_map_put(m, ARES_VIEW(""), 5);
    ares_map_put(m, (ares_view){ "a\0b", 3 }, 6);
    ares_map_put(m, (ares_view){ "a\0c", 3 }, 7);
    CHECK_EQ(ares_map_count(m), 10003);
    int64_t v = 0;
    for (int i = 0; i < 10000; i++) {
        int len = snprintf(key, sizeof key, "key%d", i);
        if (!CHECK(ares_map_get(m, (ares_view){ key, (size_t)len }, &v))) break;
        if (!CHECK_EQ(v, i == 77 ? -1 : i) || !CHECK(ares_view_is(ares_map_key(m, i), key))) break;
    }
    CHECK(ares_map_get(m, (ares_view){ "a\0c", 3 }, &v) && v == 7);
    CHECK(ares_map_get(m, ARES_VIEW(""), &v) && v == 5);
    CHECK(!ares_map_get(m, ARES_VIEW("key10000"), &v));
    CHECK_EQ(ares_map_value(m, 77), -1);
    ares_map_free(m);
}

TEST(sha_256_is_that_of_the_standard_in_pieces_of_any_size)
{
    static const struct {
        const char *text, *hex;
        int times;
    } cases[] = {
        /* FIPS 180-2, appendix B, and the empty text */
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 1 },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 1 },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1", 1 },
        { "aaaaaaaaaa", "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0", 100000 }
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_sha256 s;
        unsigned char hash[32];
        char hex[65] = { 0 };
        ares_sha256_init(&s);
        for (int k = 0; k < cases[i].times; k++)
            ares_sha256_add(&s, cases[i].text, strlen(cases[i].text));
        ares_sha256_end(&s, hash);
        for (int k = 0; k < 32; k++) snprintf(hex + 2 * k, 3, "%02x", hash[k]);
        CHECK_STR(hex, cases[i].hex);
    }
}
