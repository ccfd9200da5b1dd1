#include <stdio.h>

#include "test.h"
#include "tokenizer.h"

/* Twelve letters, and merges of random pairs of the tokens so far. */
enum { LETTERS = 12, MERGES = 400 };

static void random_model(uint64_t seed, bpe_config *config, bpe_merge *merges)
{
    ares_rng_key key = ares_rng_root(seed, ARES_RNG_TEST);
    *config = (bpe_config){ .merges = merges, .merge_count = MERGES, .unk_id = -1 };
    for (int byte = 0; byte < 256; byte++)
        config->byte_id[byte] = byte >= 'a' && byte < 'a' + LETTERS ? byte - 'a' : -1;
    for (int i = 0; i < MERGES; i++) {
        uint64_t most = (uint64_t)(LETTERS + i < 60 ? LETTERS + i : 60);
        merges[i].left = (int32_t)ares_rng_below(key, (uint64_t)i * 2, most);
        merges[i].right = (int32_t)ares_rng_below(key, (uint64_t)i * 2 + 1, most);
        merges[i].id = LETTERS + i;
    }
}

/* The definition: repeat the merge of least rank, of equal ones the leftmost. */
static int64_t merge_by_definition(const bpe_config *config, int32_t *ids, int64_t n)
{
    for (;;) {
        int64_t best = -1, at = 0;
        for (int64_t i = 0; i + 1 < n; i++) /* of two merges of a pair the later holds */
            for (int64_t k = config->merge_count - 1; k >= 0; k--) {
                if (config->merges[k].left != ids[i] || config->merges[k].right != ids[i + 1])
                    continue;
                if (best < 0 || k < best) best = k, at = i;
                break;
            }
        if (best < 0) return n;
        ids[at] = config->merges[best].id;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 2) * sizeof *ids);
        n--;
    }
}

static int64_t by_definition(const bpe_config *config, const unsigned char *word, size_t len,
                             int32_t *ids)
{
    for (size_t i = 0; i < len; i++) ids[i] = config->byte_id[word[i]];
    return merge_by_definition(config, ids, (int64_t)len);
}

static bpe_word encode(const bpe *m, bpe_scratch *s, const unsigned char *word, size_t len)
{
    bpe_query query;
    bpe_ask(s, word, len, word + len, &query);
    return bpe_answer(m, s, &query);
}

TEST(words_of_every_length_merge_by_rank_then_from_the_left)
{
    static bpe_merge merges[MERGES];
    static int32_t want[512];
    unsigned char word[512];
    bpe_scratch scratch = { 0 };
    for (uint64_t seed = 0; seed < 12; seed++) {
        bpe_config config;
        random_model(seed, &config, merges);
        bpe *m = bpe_new(&config);
        ares_rng_key key = ares_rng_root(seed, ARES_RNG_TEST);
        for (uint64_t i = 0; i < 150; i++) {
            /* both sides of SHORT_WORD */
            size_t len = 1 + (size_t)ares_rng_below(key, 10000 + i, i < 130 ? 100 : 500);
            uint64_t letters = 2 + i % (LETTERS - 1);
            for (size_t k = 0; k < len; k++)
                word[k] = (unsigned char)('a' + ares_rng_below(key, (i << 20) + k, letters));
            int64_t n = by_definition(&config, word, len, want);
            for (int again = 0; again < 2; again++) { /* the second time from the cache of words */
                bpe_word got = encode(m, &scratch, word, len);
                if (CHECK_EQ(got.n, n)) CHECK_MEM(got.ids, want, (size_t)n * sizeof *want);
                CHECK(!got.symbols);
            }
        }
        bpe_free(m);
        /* a scratch knows words of one model */
        bpe_scratch_fini(&scratch);
    }
}

/*
 * Characters of two to four bytes that share bytes. Their own merges, in either order of their
 * parts, come between merges of any two tokens so far, many of which cross the borders of
 * characters; equal texts are one token, as in a file.
 */
TEST(words_that_begin_as_characters_merge_as_their_bytes_would)
{
    static const char *const chars[] = { "\u00e9", "\u00ea", "\u0430", "\u4e2d", "\u4e2e",
                                         "\u4f2d", "\u6587", "a",      " ",      "\U0001f600" };
    static bpe_merge merges[MERGES];
    static int32_t want[1200];
    static struct {
        char bytes[16];
        size_t len;
    } texts[256 + MERGES];
    unsigned char word[1200];
    bpe_scratch scratch = { 0 };
    for (uint64_t seed = 0; seed < 120; seed++) {
        ares_rng_key key = ares_rng_root(seed, ARES_RNG_TEST);
        bpe_config config = { .merges = merges, .unk_id = -1 };
        uint64_t draw = 0;
        int32_t tokens = 256;
        for (int byte = 0; byte < 256; byte++) {
            config.byte_id[byte] = byte;
            texts[byte].bytes[0] = (char)byte;
            texts[byte].len = 1;
        }
        while (config.merge_count < 60) {
            /* any two tokens, or two parts of one character; often a byte */
            int32_t pick[2];
            const char *c = chars[ares_rng_below(key, draw++, ARES_COUNT(chars))],
                       *d = ares_rng_below(key, draw++, 8) < 6
                                ? c
                                : chars[ares_rng_below(key, draw++, ARES_COUNT(chars))];
            for (int k = 0; k < 2; k++) {
                const char *of = k ? d : c;
                pick[k] = tokens > 256 && ares_rng_below(key, draw++, 3)
                              ? 256 + (int32_t)ares_rng_below(key, draw++, (uint64_t)tokens - 256)
                              : (unsigned char)of[ares_rng_below(key, draw++, strlen(of))];
            }
            char joined[32];
            size_t len = texts[pick[0]].len + texts[pick[1]].len;
            if (len > 12) continue;
            memcpy(joined, texts[pick[0]].bytes, texts[pick[0]].len);
            memcpy(joined + texts[pick[0]].len, texts[pick[1]].bytes, texts[pick[1]].len);
            /* most are parts of text that can occur */
            bool part = false;
            for (int i = 0; i < ARES_COUNT(chars) * ARES_COUNT(chars) && !part; i++) {
                char two[16];
                snprintf(two, sizeof two, "%s%s", chars[i / ARES_COUNT(chars)],
                         chars[i % ARES_COUNT(chars)]);
                part = ares_view_find(ares_view_of(two), (ares_view){ joined, len }, 0) >= 0;
            }
            if (!part) continue;
            int32_t id = 256;
            while (id < tokens &&
                   (texts[id].len != len || memcmp(texts[id].bytes, joined, len) != 0))
                id++;
            if (id == tokens) {
                memcpy(texts[id].bytes, joined, len);
                texts[id].len = len;
                tokens++;
            }
            merges[config.merge_count++] = (bpe_merge){ pick[0], pick[1], id };
        }
        bpe *m = bpe_new(&config);
        for (uint64_t i = 0; i < 60; i++) {
            size_t len = 0;
            uint64_t count = 1 + ares_rng_below(key, draw++, i < 59 ? 12 : 200);
            for (uint64_t k = 0; k < count; k++) {
                const char *c = chars[ares_rng_below(key, draw++, ARES_COUNT(chars))];
                memcpy(word + len, c, strlen(c));
                len += strlen(c);
            }
            /* also words that a pattern cut inside a character */
            if (i % 8 == 7 && len > 1) len--;
            int64_t n = by_definition(&config, word, len, want);
            bpe_word got = encode(m, &scratch, word, len);
            if (CHECK_EQ(got.n, n)) CHECK_MEM(got.ids, want, (size_t)n * sizeof *want);
        }
        bpe_free(m);
        bpe_scratch_fini(&scratch);
    }
}

/*
 * A vocabulary of characters, with a token for every byte of others: the parts of a text merge as
 * the whole does, and have the lengths of what they stand for.
 */
TEST(a_text_of_characters_merges_in_parts_as_it_would_whole)
{
    static const char *const known[] = { "a", "b", "\u2581", "\u00e9", "\u65e5", "\U0001f600" };
    static const char *const others[] = { "x", "\u8a9e", "\u00fc" };
    enum { KNOWN = ARES_COUNT(known), ALL = KNOWN + ARES_COUNT(others), JOINS = 60, LEN = 400 };
    bpe_scratch scratch = { 0 };
    int64_t parts = 0, merged = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        ares_rng_key key = ares_rng_root(seed, ARES_RNG_TEST);
        ares_map *vocab = ares_map_new();
        ares_str texts[KNOWN + JOINS] = { 0 };
        bpe_merge merges[JOINS];
        bpe_config config = { .characters = vocab, .merges = merges, .unk_id = -1 };
        int32_t n_texts = 0;
        for (int byte = 0; byte < 256; byte++) config.byte_id[byte] = 1000 + byte;
        for (; n_texts < KNOWN; n_texts++) {
            ares_str_add_z(&texts[n_texts], known[n_texts]);
            ares_map_put(vocab, ares_str_view(&texts[n_texts]), n_texts);
        }
        /* few pairs at first, so that some characters never stand side by side in a token */
        for (uint64_t i = 0; i < 8 + 2 * seed; i++) {
            int32_t left = (int32_t)ares_rng_below(key, 2 * i, (uint64_t)n_texts);
            int32_t right = (int32_t)ares_rng_below(key, 2 * i + 1, (uint64_t)n_texts);
            ares_str *joined = &texts[n_texts];
            int64_t id = n_texts;
            ares_str_clear(joined);
            ares_str_add_view(joined, ares_str_view(&texts[left]));
            ares_str_add_view(joined, ares_str_view(&texts[right]));
            if (!ares_map_get(vocab, ares_str_view(joined), &id))
                ares_map_put(vocab, ares_str_view(&texts[n_texts++]), id);
            merges[config.merge_count++] = (bpe_merge){ left, right, (int32_t)id };
        }
        bpe *m = bpe_new(&config);
        for (uint64_t i = 0; i < 60; i++) {
            ares_str text = { 0 };
            int32_t want[4 * LEN];
            int64_t n = 0, got = 0;
            uint64_t len = 1 + ares_rng_below(key, 1000 + i, i % 4 ? 40 : LEN);
            for (uint64_t k = 0; k < len; k++) {
                uint64_t c = ares_rng_below(key, (i << 20) + k, i % 3 ? KNOWN : ALL);
                const char *of = c < KNOWN ? known[c] : others[c - KNOWN];
                ares_str_add_z(&text, of);
                if (c < KNOWN) want[n++] = (int32_t)c;
                else
                    for (; *of; of++) want[n++] = 1000 + (unsigned char)*of;
            }
            merged += n;
            n = merge_by_definition(&config, want, n);
            merged -= n;
            scratch.lengths = i % 2;
            const unsigned char *p = (const unsigned char *)text.data, *end = p + text.len;
            for (const unsigned char *next; p < end; p = next) {
                next = bpe_cut(m, p, end);
                bpe_word word = encode(m, &scratch, p, (size_t)(next - p));
                size_t covered = 0;
                for (int64_t k = 0; k < word.n && got + k < n; k++) {
                    CHECK_EQ(word.ids[k], want[got + k]);
                    if (word.symbols) covered += word.symbols[k].len;
                }
                CHECK_EQ(word.symbols != NULL, i % 2);
                if (word.symbols) CHECK_EQ(covered, (size_t)(next - p));
                got += word.n;
                parts++;
            }
            CHECK_EQ(got, n);
            ares_str_fini(&text);
        }
        bpe_free(m);
        bpe_scratch_fini(&scratch);
        ares_map_free(vocab);
        for (int i = 0; i < ARES_COUNT(texts); i++) ares_str_fini(&texts[i]);
    }
    /* most texts are cut, and merges happen */
    CHECK_MSG(parts > 5000 && merged > 5000, "%lld parts, %lld merges", (long long)parts,
              (long long)merged);
}

TEST(words_that_the_cache_drops_and_meets_again_keep_their_tokens)
{
    /* each of the letters a to p at its place of four: four letters are a token */
    static bpe_merge merges[32 + 256];
    bpe_config config = { .merges = merges, .unk_id = -1 };
    bpe_scratch scratch = { 0 };
    for (int byte = 0; byte < 256; byte++)
        config.byte_id[byte] = byte >= 'a' && byte < 'a' + 16 ? byte - 'a' : -1;
    for (int32_t i = 0; i < 32; i++)
        merges[i] = (bpe_merge){ i / 16 * 8 + i / 4 % 4, i / 16 * 8 + 4 + i % 4, 16 + i };
    for (int32_t i = 0; i < 256; i++)
        merges[32 + i] = (bpe_merge){ 16 + i / 16, 32 + i % 16, 48 + i };
    config.merge_count = 32 + 256;
    bpe *m = bpe_new(&config);
    int64_t wrong = 0;
    /* twice through more words of both kinds than there are slots */
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 200000; i++) {
            unsigned char word[24];
            size_t len = i % 2 ? 12 : 24, k;
            for (k = 0; k < len; k++)
                word[k] = (unsigned char)('a' + k % 4 * 4 + (k < 10 ? i >> 2 * k & 3 : k % 3));
            bpe_word got = encode(m, &scratch, word, len);
            wrong += got.n != (int64_t)len / 4;
            for (k = 0; k < len / 4; k++) {
                const unsigned char *p = word + 4 * k;
                wrong += got.ids[k] != 48 + ((p[0] - 'a') << 6 | (p[1] - 'e') << 4 |
                                             (p[2] - 'i') << 2 | (p[3] - 'm'));
            }
        }
    CHECK_EQ(wrong, 0);
    bpe_free(m);
    bpe_scratch_fini(&scratch);
}

TEST(unknown_bytes_vanish_or_become_unk_fused_or_not)
{
    bpe_merge merge = { 0, 1, 2 };
    bpe_config config = { .merges = &merge, .merge_count = 1 };
    bpe_scratch scratch = { 0 };
    const unsigned char *text = (const unsigned char *)"axyb";
    static const struct {
        int32_t unk;
        bool fuse;
        int32_t ids[4];
        uint32_t lens[4];
        int64_t n;
    } cases[] = {
        { -1,
          false,
          { 2 },
          { 2 },
          1 }, /* a and b become neighbours once the byte between them is left out */
        { 7, false, { 0, 7, 7, 1 }, { 1, 1, 1, 1 }, 4 },
        { 7, true, { 0, 7, 1 }, { 1, 2, 1 }, 3 },
    };
    for (int i = 0; i < 256; i++) config.byte_id[i] = i == 'a' ? 0 : i == 'b' ? 1 : -1;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        config.unk_id = cases[i].unk;
        config.fuse_unk = cases[i].fuse;
        bpe *m = bpe_new(&config);
        bpe_word word = encode(m, &scratch, text, 4);
        if (CHECK_EQ(word.n, cases[i].n) && CHECK(word.symbols != NULL))
            for (int64_t k = 0; k < word.n; k++) {
                CHECK_EQ(word.ids[k], cases[i].ids[k]);
                CHECK_EQ(word.symbols[k].len, cases[i].lens[k]);
            }
        bpe_free(m);
        bpe_scratch_fini(&scratch);
    }
}

static void check_refused(const char *source, const char *part)
{
    pattern *p = NULL;
    CHECK_FAIL(pattern_new("x.json: key", ares_view_of(source), false, &p), ARES_EUNSUPPORTED,
               part);
    CHECK(!p);
}

TEST(patterns_that_pcre2_would_read_in_another_way_are_refused)
{
    check_refused("a|\\w+", "at byte 2");
    check_refused("[a[b]]", "a class inside a class");
    check_refused("[\\p{L}&&\\p{Han}]", "an intersection");
    check_refused("^a", "anchors");
    check_refused("(?i)a", "this group");
    check_refused("(?i:ss)", "ligature");
    check_refused("(?i:[a-z])", "classes inside");
    check_refused("\\p{N}{1,3}+", "repeat count");
    check_refused("a{,3}", "repeat count");
    check_refused("\\p{Emoji}", "property");
    check_refused("\\bx", "escape");
    check_refused("a)", ") without (");
}

static void check_pieces(const char *source, const char *text, const char *expected)
{
    pattern *p = NULL;
    pattern_scratch *s = pattern_scratch_new();
    ares_str got = { 0 };
    REQUIRE_OK(pattern_new("x.json: key", ares_view_of(source), false, &p));
    pattern_match it = { 0 };
    while (pattern_next(p, s, (const unsigned char *)text, strlen(text), &it) == 1)
        ares_str_addf(&got, "%zu-%zu ", it.start, it.end);
    CHECK_STR(got.data ? got.data : "", expected);
    ares_str_fini(&got);
    pattern_scratch_free(s);
    pattern_free(p);
}

TEST(patterns_mean_what_they_mean_to_the_library)
{
    check_pieces("\\s", " \u180e\u3000\xc2\x85", "0-1 4-7 7-9 "); /* U+180E is not white space */
    check_pieces("(?i:'s)", "'s 'S '\u017f", "0-2 3-5 6-9 ");
    check_pieces("\\p{L}+", "a\u1c89\ua7cb", "0-7 "); /* letters of Unicode 16 */
    check_pieces("\\h+", "xfFg", "1-3 ");
    check_pieces("[^\\S\\n]+", "a \n\t\u3000b", "1-2 3-7 ");
    /* no empty match right after another match */
    check_pieces("x*", "axxb", "0-0 1-3 4-4 ");
    /* Script, not Script_Extensions */
    check_pieces("\\p{Han}", "\u3001\u4e00", "3-6 ");
}
