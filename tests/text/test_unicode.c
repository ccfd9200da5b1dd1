#include "test.h"
#include "unicode.h"

static const char *normal(unicode_form form, const char *text, int32_t *changes)
{
    static unsigned char out[256];
    unicode_changes list = { 0 };
    size_t n = 0;
    unicode_normalize(form, (const unsigned char *)text, strlen(text), &list);
    for (int64_t i = 0; i < list.n; i++) {
        n += (size_t)unicode_put(list.items[i].c, out + n);
        if (changes) changes[i] = list.items[i].change;
    }
    out[n] = 0;
    ares_free(list.items);
    return (const char *)out;
}

TEST(the_byte_alphabet_is_one_to_one)
{
    bool seen[0x200] = { 0 };
    for (int byte = 0; byte < 256; byte++) {
        uint32_t c = unicode_of_byte[byte];
        CHECK_MSG(c < 0x144 && !seen[c] && unicode_byte_of(c) == byte, "byte %d is U+%04X", byte,
                  c);
        seen[c] = true;
    }
    for (uint32_t c = 0; c < 0x200; c++)
        CHECK_MSG(seen[c] || unicode_byte_of(c) == -1, "U+%04X", c);
    CHECK_EQ(unicode_of_byte[' '], 0x120);
    CHECK_EQ(unicode_of_byte['\n'], 0x10a);
}

TEST(every_code_point_survives_utf8)
{
    for (uint32_t c = 1; c < 0x110000; c++) {
        unsigned char text[4];
        int n = unicode_put(c, text);
        bool surrogate = c >= 0xd800 && c <= 0xdfff, open;
        if ((unicode_valid(text, (size_t)n) == (size_t)n) == surrogate)
            CHECK_MSG(false, "U+%04X", c);
        if (surrogate) continue;
        const unsigned char *p = text;
        if (unicode_next(&p) != c || p != text + n || unicode_piece(text, (size_t)n, &open) != n)
            CHECK_MSG(false, "U+%04X", c);
    }
}

TEST(broken_utf8_gives_one_replacement_for_each_maximal_piece)
{
    static const struct {
        const char *broken, *repaired;
    } cases[] = {
        { "a\x80z", "a\uFFFDz" },
        { "\xc3", "\uFFFD" },
        { "\xe2\x82", "\uFFFD" },
        { "\xe2\x82x", "\uFFFDx" },
        { "\xf0\x9f\x98", "\uFFFD" },
        { "\xf0\x80\x80", "\uFFFD\uFFFD\uFFFD" },           /* overlong */
        { "\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD" },           /* a surrogate */
        { "\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD" }, /* beyond U+10FFFF */
        { "\xe2\xe2\x82\xac", "\uFFFD\u20AC" },
        { "\xc0\xaf", "\uFFFD\uFFFD" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        unicode_repair(&out, (const unsigned char *)cases[i].broken, strlen(cases[i].broken));
        CHECK_STR(out.data, cases[i].repaired);
        ares_str_fini(&out);
    }
}

TEST(normal_forms_tell_where_characters_come_from)
{
    int32_t change[16];
    CHECK_STR(normal(UNICODE_NFC, "e\u0301x", change), "\u00e9x");
    CHECK_EQ(change[0], -1), CHECK_EQ(change[1], 0);
    CHECK_STR(normal(UNICODE_NFD, "\u00e9x", change), "e\u0301x");
    CHECK_EQ(change[0], 0), CHECK_EQ(change[1], 1), CHECK_EQ(change[2], 0);
    CHECK_STR(normal(UNICODE_NFC, "\u1112\u1161\u11ab", change), "\ud55c");
    CHECK_EQ(change[0], -2);
    CHECK_STR(normal(UNICODE_NFKC, "\ufb01\u00b2", NULL), "fi2");
}

TEST(normal_forms_reorder_compose_and_block_as_the_standard_says)
{
    /* classes 230, 220: sorted, then joined */
    CHECK_STR(normal(UNICODE_NFC, "a\u0301\u0316", NULL), "\u00e1\u0316");
    /* a second mark of the same class is blocked */
    CHECK_STR(normal(UNICODE_NFC, "a\u0300\u0301", NULL), "\u00e0\u0301");
    /* a singleton; a composition excluded */
    CHECK_STR(normal(UNICODE_NFC, "\u212b\u0958", NULL), "\u00c5\u0915\u093c");
    /* U+11A7 is no final */
    CHECK_STR(normal(UNICODE_NFC, "\uac00\u11a7", NULL), "\uac00\u11a7");
    /* marks without a base */
    CHECK_STR(normal(UNICODE_NFC, "\u0327\u0301", NULL), "\u0327\u0301");
    CHECK_STR(normal(UNICODE_NFD, "\u1e69", NULL), "s\u0323\u0307");
}

TEST(code_points_newer_than_the_librarys_normal_forms_stay_as_they_are)
{
    /* class 230 in Unicode 16 */
    CHECK_STR(normal(UNICODE_NFC, "a\u0897\u0334", NULL), "a\u0897\u0334");
    /* a pair of Unicode 13 */
    CHECK_STR(normal(UNICODE_NFC, "\U00011935\U00011930", NULL), "\U00011935\U00011930");
    CHECK_STR(normal(UNICODE_NFKD, "\U0001fbf0", NULL), "\U0001fbf0");
}

TEST(the_quick_check_never_says_normal_of_what_is_not)
{
    for (uint32_t c = 1; c < 0x110000; c++) {
        if (c >= 0xd800 && c <= 0xdfff) continue;
        /* alone, after a letter, after a Hangul syllable */
        for (int before = 0; before < 3; before++) {
            unsigned char text[9];
            size_t n = before ? (size_t)unicode_put(before == 1 ? 'a' : 0xac00, text) : 0;
            n += (size_t)unicode_put(c, text + n);
            text[n] = 0;
            if (unicode_is_normal(UNICODE_NFC, text, n) &&
                strcmp(normal(UNICODE_NFC, (char *)text, NULL), (char *)text) != 0)
                CHECK_MSG(false, "U+%04X, before %d", c, before);
        }
    }
}

TEST(long_runs_of_marks_are_sorted_and_keep_the_order_of_equals)
{
    ares_str text = { 0 };
    unicode_changes list = { 0 };
    ares_str_add_z(&text, "q");
    for (int i = 0; i < 3000; i++)
        ares_str_add_z(&text, i % 3 == 0 ? "\u0302" : i % 3 == 1 ? "\u0316" : "\u030c");
    unicode_normalize(UNICODE_NFC, (unsigned char *)text.data, text.len, &list);
    REQUIRE(list.n == 3001);
    for (int i = 0; i < 1000; i++) CHECK_EQ(list.items[1 + i].c, 0x316);
    for (int i = 0; i < 2000; i++) CHECK_EQ(list.items[1001 + i].c, i % 2 ? 0x30c : 0x302);
    ares_free(list.items);
    ares_str_fini(&text);
}

TEST(properties_know_unicode_16)
{
    CHECK(unicode_is_numeric(0x10d40) && unicode_is_numeric(0xbd) && unicode_is_numeric(0x2167) &&
          !unicode_is_numeric('x'));
    CHECK(unicode_is_word(0x1c89) && unicode_is_word('_') && unicode_is_word(0x200d) &&
          unicode_is_word(0x24b6));
    CHECK(!unicode_is_word('-') && !unicode_is_word(0xbd) && !unicode_is_word(' '));
    CHECK(unicode_is_space(0x3000) && unicode_is_space(0x85) && !unicode_is_space(0x180e) &&
          !unicode_is_space(0x200b));
}

/* All sequences of five of the bytes at which UTF-8 changes its rules. */
TEST(valid_utf8_ends_where_reading_it_character_by_character_ends)
{
    static const unsigned char edges[] = { 'a',  0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1,
                                           0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf4, 0xf5 };
    enum { N = ARES_COUNT(edges) };
    int64_t wrong = 0;
    for (int i = 0; i < N * N * N * N * N; i++) {
        unsigned char text[5];
        for (int k = 0, x = i; k < 5; k++, x /= N) text[k] = edges[x % N];
        size_t good = 0;
        for (bool open; good < 5;) {
            int n = unicode_piece(text + good, 5 - good, &open);
            if (n < 0) break;
            good += (size_t)n;
        }
        wrong += unicode_valid(text, 5) != good;
    }
    CHECK_EQ(wrong, 0);
}
