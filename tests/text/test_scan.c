/* Words of known patterns, against the same patterns run by PCRE2. */
#include <stdio.h>

#include "test.h"
#include "tokenizer.h"

static const struct {
    scan_kind kind;
    const char *source;
} known[] = { { SCAN_GPT2, GPT2_PATTERN },
              { SCAN_ONE_DIGIT, QWEN2_PATTERN },
              { SCAN_THREE_DIGITS, CL100K_PATTERN("\\p{N}{1,3}") } };

/* Whether both cut the text alike; writes the first difference. */
static bool same_words(scan_kind kind, const pattern *p, pattern_scratch *s, ares_view text)
{
    pattern_match it = { 0 };
    const unsigned char *begin = (const unsigned char *)text.data, *at = begin;
    while (pattern_next(p, s, begin, text.len, &it) == 1) {
        const unsigned char *end = scan_word(kind, at, begin + text.len);
        if (it.start != (size_t)(at - begin) || it.end != (size_t)(end - begin)) {
            fprintf(stderr, "kind %d, '%.*s': byte %zu to %zu, not %zu\n", (int)kind, (int)text.len,
                    text.data, (size_t)(at - begin), (size_t)(end - begin), it.end);
            return false;
        }
        at = end;
    }
    return at == begin + text.len;
}

TEST(words_are_those_of_the_pattern_beside_every_character)
{
    pattern_scratch *s = pattern_scratch_new();
    ares_str text = { 0 };
    for (int k = 0; k < ARES_COUNT(known); k++) {
        pattern *p;
        REQUIRE_OK(pattern_new("x.json: key", ares_view_of(known[k].source), false, &p));
        REQUIRE(scan_find(ares_view_of(known[k].source)) == known[k].kind);
        bool same = true;
        for (uint32_t c = 1; c < 0x110000 && same; c++) {
            /* all that Unicode 16 has letters in, and some of the rest; one kind has all of these
             */
            uint32_t step = c > 0x32400 && (c < 0xe0000 || c > 0xe0200) ? 251 : k == 1 ? 1 : 3;
            unsigned char bytes[4];
            if (c % step || (c >= 0xd800 && c < 0xe000)) continue;
            ares_view one = { (char *)bytes, (size_t)unicode_put(c, bytes) };
            ares_str_add_char(&text, 'x');
            ares_str_add_view(&text, one);
            ares_str_add_view(&text, one);
            ares_str_add_char(&text, '1');
            ares_str_add_view(&text, one);
            ares_str_add_view(&text, c % 2 ? ARES_VIEW(" ") : ARES_VIEW("'s"));
            ares_str_add_view(&text, one);
            if (text.len < 500) continue;
            same = same_words(known[k].kind, p, s, ares_str_view(&text));
            ares_str_clear(&text);
        }
        CHECK(same);
        ares_str_clear(&text);
        pattern_free(p);
    }
    ares_str_fini(&text);
    pattern_scratch_free(s);
}

TEST(words_are_those_of_the_pattern_in_random_texts)
{
    static const char *const parts[] = { "a",
                                         "Zebra",
                                         "word",
                                         "longer words than eight bytes",
                                         "'",
                                         "'s",
                                         "'RE",
                                         "'ll",
                                         "'Ve",
                                         "'\u017f",
                                         "'x",
                                         " ",
                                         "  ",
                                         "\n",
                                         "\r\n",
                                         "\t",
                                         "0",
                                         "12345",
                                         "\u0663",
                                         "\u00b2",
                                         "!",
                                         "...",
                                         "_",
                                         "\u3002",
                                         "\u00e9",
                                         "\u0421\u043b\u043e\u0432\u043e",
                                         "\u4e2d\u6587",
                                         "\u0301",
                                         "\u00a0",
                                         "\u3000",
                                         "\u2028",
                                         "\u180e",
                                         "\U0001f600",
                                         "\U00020000",
                                         "\U0001d7ce",
                                         "\u017f" };
    pattern_scratch *s = pattern_scratch_new();
    ares_rng_key key = ares_rng_root(3, ARES_RNG_TEST);
    for (int k = 0; k < ARES_COUNT(known); k++) {
        pattern *p;
        REQUIRE_OK(pattern_new("x.json: key", ares_view_of(known[k].source), false, &p));
        bool same = true;
        for (uint64_t i = 0; i < 3000 && same; i++) {
            ares_str text = { 0 };
            /* few different parts in a text, so that they meet in every order */
            uint64_t from = ares_rng_below(key, i << 8, ARES_COUNT(parts)),
                     most = 2 + ares_rng_below(key, i << 8 | 1, ARES_COUNT(parts) - 1);
            for (uint64_t n = 0; n < 2 + i % 60; n++)
                ares_str_add_z(&text, parts[(from + ares_rng_below(key, i << 8 | (n + 2), most)) %
                                            ARES_COUNT(parts)]);
            same = same_words(known[k].kind, p, s, ares_str_view(&text));
            ares_str_fini(&text);
        }
        CHECK(same);
        pattern_free(p);
    }
    pattern_scratch_free(s);
}

TEST(a_pattern_that_differs_in_one_byte_is_not_known)
{
    for (int k = 0; k < ARES_COUNT(known); k++) {
        char source[256];
        size_t len = strlen(known[k].source);
        memcpy(source, known[k].source, len + 1);
        CHECK(scan_find((ares_view){ source, len - 1 }) == SCAN_NONE);
        for (size_t i = 0; i < len; i++) {
            source[i] ^= 1;
            CHECK(scan_find((ares_view){ source, len }) == SCAN_NONE);
            source[i] ^= 1;
        }
    }
}
