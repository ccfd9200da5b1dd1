/*
 * The text tools of instruction following: properties that hold for every text, and single cases.
 */
#include "test.h"
#include "work.h"

#include "ifeval/words.h"

static ares_arena arena;

/* The items of a list, joined by |. */
static ares_view joined(ifeval_list list)
{
    ares_str s = { 0 };
    for (int64_t i = 0; i < list.n; i++) {
        if (i) ares_str_add_char(&s, '|');
        ares_str_add_view(&s, list.items[i]);
    }
    ares_view v = { ares_arena_copy(&arena, s.data ? s.data : "", s.len), s.len };
    ares_str_fini(&s);
    return v;
}

/* The text without white space and the characters of `without`. */
static void squeeze(ares_str *out, ares_view v, const char *without)
{
    for (const char *p = v.data, *end = p + v.len; p < end;) {
        const char *at = p;
        uint32_t c = ifeval_next(&p, end);
        if (ifeval_is_space(c) || (c && c < 0x80 && strchr(without, (int)c))) continue;
        ares_str_add(out, at, (size_t)(p - at));
    }
}

static void check_nothing_lost(ares_view text, ifeval_list list, const char *without)
{
    ares_str want = { 0 }, got = { 0 };
    squeeze(&want, text, without);
    for (int64_t i = 0; i < list.n; i++) {
        CHECK(list.items[i].len > 0);
        squeeze(&got, list.items[i], without);
    }
    if (CHECK_EQ(got.len, want.len) && want.len) CHECK_MEM(got.data, want.data, want.len);
    ares_str_fini(&want);
    ares_str_fini(&got);
}

static void check_all_tools(ares_view text)
{
    ares_arena scratch = { 0 };
    ifeval_list sentences = ifeval_sentences(text, &scratch);
    check_nothing_lost(text, sentences, "");
    for (int64_t i = 1; i < sentences.n; i++)
        CHECK(sentences.items[i].data >= sentences.items[i - 1].data + sentences.items[i - 1].len);
    check_nothing_lost(text, ifeval_tokens(text, &scratch), "\"'`");
    check_nothing_lost(text, ifeval_words(text, &scratch), "");
    CHECK_EQ(ifeval_split(text, ARES_VIEW("."), &scratch).n,
             ifeval_count(text, ARES_VIEW(".")) + 1);
    CHECK_EQ(ifeval_length(ifeval_lower(text, &scratch)), ifeval_length(text));
    CHECK(ifeval_trim(text).len <= text.len);
    CHECK_EQ(ifeval_trim(text).len == 0, ifeval_is_blank(text));
    CHECK(ifeval_count_words(text) <= ifeval_length(text));
    CHECK_EQ(ifeval_offset(text, ifeval_length(text)), text.len);
    CHECK(ifeval_syllables(text) >= 0);
    ifeval_language(text);
    ifeval_is_verb(text);
    ifeval_rows rows = ifeval_csv(text, ',', &scratch);
    CHECK(rows.n >= -1 && rows.n <= (int64_t)text.len);
    ares_view ascii = ifeval_ascii(text, &scratch);
    for (size_t i = 0; i < ascii.len; i++) CHECK(!(ascii.data[i] & 0x80));
    ifeval_delete_punct(text, &scratch);
    ares_arena_fini(&scratch);
}

TEST(no_tool_loses_a_character_of_a_random_text)
{
    static const char *const pieces[] = {
        "Mr",       "e.g",  "U.S",      "the",      "The", "In",    "3.5",  "cannot", "wanna",
        "'tis",     "n't",  "'s",       "Co",       "x",   "é",     "É",    "日本",   "。",
        ".",        ".",    "?",        "!",        ",",   ":",     "\"",   "'",      "`",
        "(",        ")",    "]",        "--",       "...", ". . .", "''",   "«",      "”",
        "’",        " ",    " ",        " ",        " ",   "\n",    "\n\n", "\t",     "\r",
        "\xc2\xa0", "\xff", "\xe2\x80", "\xf0\x9f", "😀",  "-",     "_",    "<i>"
    };
    ares_rng_key key = ares_rng_root(6, ARES_RNG_TEST);
    ares_str text = { 0 };
    for (uint64_t round = 0, draw = 0; round < 3000; round++) {
        ares_str_clear(&text);
        for (uint64_t n = ares_rng_below(key, draw++, 40); n > 0; n--)
            ares_str_add_z(&text,
                           pieces[ares_rng_below(key, draw++, (uint64_t)ARES_COUNT(pieces))]);
        check_all_tools(ares_str_view(&text));
    }
    ares_str_fini(&text);
}

TEST(every_tool_ends_on_a_mebibyte_of_anything)
{
    static const ares_view pieces[] = {
        ARES_VIEW("."),    ARES_VIEW("?"),    ARES_VIEW("\""),       ARES_VIEW("'"),
        ARES_VIEW(". "),   ARES_VIEW(".)"),   ARES_VIEW("Mr. )"),    ARES_VIEW("a-"),
        ARES_VIEW("\0"),   ARES_VIEW("\xff"), ARES_VIEW("\xe2\x80"), ARES_VIEW("\n"),
        ARES_VIEW("n't "), ARES_VIEW(",\""),  ARES_VIEW("“"),        ARES_VIEW("\r"),
        ARES_VIEW(" "),    ARES_VIEW("字"),   ARES_VIEW("cannot "),  ARES_VIEW(". . ")
    };
    for (int i = 0; i < ARES_COUNT(pieces); i++) {
        ares_str text = { 0 };
        while (text.len + pieces[i].len <= IFEVAL_TEXT_MAX) ares_str_add_view(&text, pieces[i]);
        int64_t before = work_done();
        ares_arena scratch = { 0 };
        ifeval_tokens(ares_str_view(&text), &scratch);
        CHECK_MSG(scratch.used <= 32u << 20, "%zu bytes in the arena for piece %d", scratch.used,
                  i);
        ares_arena_fini(&scratch);
        ifeval_language(ares_str_view(&text));
        CHECK(ifeval_syllables(ares_str_view(&text)) >= 0);
        double work = (double)(work_done() - before) / (double)text.len;
        /* quadratic work would be 1,000,000 */
        CHECK_MSG(work < 1000, "piece %d: %.0f units of work per byte", i, work);
        ares_str_fini(&text);
    }
}

TEST(broken_bytes_are_characters_of_their_own)
{
    ares_view v = ARES_VIEW("a\xff\xe2\x80z\xed\xa0\x80");
    CHECK_EQ(ifeval_length(v), 8);
    CHECK_EQ(ifeval_first((ares_view){ v.data + 1, 1 }), IFEVAL_BROKEN + 0xff);
    CHECK_EQ(ifeval_last(v), IFEVAL_BROKEN + 0x80);
    CHECK_EQ(ifeval_last((ares_view){ v.data, 4 }), IFEVAL_BROKEN + 0x80);
    CHECK_EQ(ifeval_count_words(v), 2);
    CHECK_VIEW(ifeval_lower(ARES_VIEW("A\xff\xc3Z\xc3\x89"), &arena), "a\xff\xc3z\xc3\xa9");
    CHECK_VIEW(ifeval_ascii(ARES_VIEW("A\xff\xc3\x89"), &arena), "AE");
    ares_arena_fini(&arena);
}

TEST(characters_have_the_kinds_python_gives_them)
{
    CHECK(ifeval_is_space(0x1c) && ifeval_is_space(0x85) && ifeval_is_space(0x3000) &&
          !ifeval_is_space(0x200b) && !ifeval_is_space(0));
    CHECK(ifeval_is_word('_') && ifeval_is_word(0xb2) && ifeval_is_word(0x5b57) &&
          !ifeval_is_word(0x301) && !ifeval_is_word('-'));
    CHECK(ifeval_is_digit(0x663) && !ifeval_is_digit(0xb2));
    CHECK(ifeval_is_upper(0x24b6) && ifeval_is_lower(0xaa) && !ifeval_is_upper(0x1c5) &&
          !ifeval_is_lower(0x1c5));
    CHECK(ifeval_upper_text(ARES_VIEW("ABC 1!")) && !ifeval_upper_text(ARES_VIEW("123")) &&
          !ifeval_upper_text(ARES_VIEW("AB\xc7\x85")));
    CHECK(ifeval_lower_text(ARES_VIEW("été 字")) && !ifeval_lower_text(ARES_VIEW("字")));
    CHECK(ifeval_is_emoji(0x1f600) && ifeval_is_emoji(0xa9) && !ifeval_is_emoji(0xfe0f) &&
          !ifeval_is_emoji('1'));
}

TEST(stripping_knows_the_blank_but_no_other_white_space)
{
    CHECK_VIEW(ifeval_strip(ARES_VIEW(" (a b)! ")), "a b");
    CHECK_VIEW(ifeval_strip(ARES_VIEW("\ta.\n")), "\ta.\n");
    CHECK_VIEW(ifeval_strip_left(ARES_VIEW("..a..")), "a..");
    CHECK_VIEW(ifeval_strip_right(ARES_VIEW("..a..")), "..a");
    CHECK_VIEW(ifeval_trim(ARES_VIEW("\xe3\x80\x80 .a\xc2\xa0\n")), ".a");
    CHECK_VIEW(ifeval_delete_punct(ARES_VIEW("a-b_c d’"), &arena), "abc d’");
    CHECK_VIEW(ifeval_ascii(ARES_VIEW("Chișinău ﬁ ½"), &arena), "Chisinau fi 12");
    CHECK_VIEW(joined(ifeval_split(ARES_VIEW(",a,,b"), ARES_VIEW(","), &arena)), "|a||b");
    CHECK_EQ(ifeval_count(ARES_VIEW("aaaaa"), ARES_VIEW("aa")), 2);
    CHECK(ifeval_has_word(ARES_VIEW("a caté cat."), ARES_VIEW("cat")) &&
          !ifeval_has_word(ARES_VIEW("caté"), ARES_VIEW("cat")));
    CHECK(!ifeval_has_word(ARES_VIEW("C++ x"), ARES_VIEW("C++")) &&
          ifeval_has_word(ARES_VIEW("C++x"), ARES_VIEW("C++")));
    ares_arena_fini(&arena);
}

TEST(sentences_end_where_punkt_ends_them)
{
    CHECK_VIEW(joined(ifeval_sentences(
                   ARES_VIEW("J. Bach wrote. In 1720. he paused (e.g. Then.) Yes!"), &arena)),
               "J. Bach wrote.|In 1720. he paused (e.g.|Then.)|Yes!");
    CHECK_VIEW(joined(ifeval_sentences(ARES_VIEW("Wait . . . what? \"Go.\" -- he said."), &arena)),
               "Wait .|.|.|what?|\"Go.\"|-- he said.");
    CHECK_EQ(ifeval_sentences(ARES_VIEW(" \n "), &arena).n, 0);
    CHECK_EQ(ifeval_sentences((ares_view){ "", 0 }, &arena).n, 0);
    ares_arena_fini(&arena);
}

TEST(tokens_are_those_of_the_treebank)
{
    CHECK_VIEW(
        joined(ifeval_tokens(ARES_VIEW("\"I cannot,\" he said: 'tis 3:30 -- wanna go?"), &arena)),
        "``|I|can|not|,|''|he|said|:|'t|is|3:30|--|wan|na|go|?");
    CHECK_VIEW(
        joined(ifeval_tokens(ARES_VIEW("They've (not) seen John's\nbook, a.b. c.\")"), &arena)),
        "They|'ve|(|not|)|seen|John's|book|,|a.b|.|c|.|''|)");
    ares_arena_fini(&arena);
}

TEST(languages_by_script_and_by_frequent_words)
{
    static const char *const texts[][2] = {
        { "en", "The weather is nice and people of the town are happy with it." },
        { "de", "dies ist ein deutscher satz über das wetter und die menschen in dieser stadt." },
        { "es", "El tiempo es bueno y la gente de la ciudad está contenta." },
        { "pt", "O tempo está bom e as pessoas da cidade não estão em casa." },
        { "fr", "Le temps est beau et les gens de la ville sont contents." },
        { "it", "Il tempo è bello e la gente della città è contenta di questo." },
        { "vi", "Thời tiết hôm nay rất đẹp và mọi người trong thành phố đều vui." },
        { "sw", "Hali ya hewa ni nzuri na watu wa mji wanafurahi katika siku hii." },
        { "pl", "Pogoda jest ładna i ludzie w mieście są z tego zadowoleni." },
        { "fi", "Sää on kaunis ja kaupungin ihmiset ovat iloisia, että aurinko paistaa." },
        { "ru", "Погода хорошая, и люди в этом городе довольны, что не идёт дождь." },
        { "uk", "Погода гарна, і люди в цьому місті задоволені, що немає дощу." },
        { "bg", "Времето е хубаво и хората в този град са доволни, че няма да вали дъжд." },
        { "ar", "الطقس جميل والناس في هذه المدينة سعداء" },
        { "fa", "هوا خوب است و مردم این شهر خوشحال هستند" },
        { "ur", "موسم اچھا ہے اور اس شہر کے لوگ خوش ہیں" },
        { "hi", "मौसम अच्छा है और इस शहर के लोग खुश हैं" },
        { "mr", "हवामान चांगले आहे आणि या शहरातील लोक आनंदी आहेत" },
        { "ne", "मौसम राम्रो छ र यो सहरका मानिसहरू खुसी छन्" },
        { "ko", "날씨가 좋습니다" },
        { "ja", "天気がいいです" },
        { "zh", "天气很好" },
        { "th", "อากาศดีมาก" },
        { "bn", "আবহাওয়া ভালো" },
        { "ta", "வானிலை நன்றாக" },
        { "te", "వాతావరణం బాగుంది" },
        { "kn", "ಹವಾಮಾನ ಚೆನ್ನಾಗಿದೆ" },
        { "ml", "കാലാവസ്ഥ നല്ലതാണ്" },
        { "gu", "હવામાન સારું છે" },
        { "pa", "ਮੌਸਮ ਚੰਗਾ ਹੈ" },
        { "he", "מזג האוויר יפה" },
        { "el", "Ο καιρός είναι καλός" }
    };
    for (int i = 0; i < ARES_COUNT(texts); i++)
        CHECK_STR(ifeval_language(ares_view_of(texts[i][1])), texts[i][0]);
    CHECK(ifeval_language(ARES_VIEW("12345 !!! 😀")) == NULL);
}

TEST(verbs_open_a_text)
{
    CHECK(ifeval_is_verb(ARES_VIEW("**Make** sure")) && ifeval_is_verb(ARES_VIEW("Is it?")) &&
          ifeval_is_verb(ARES_VIEW("Blogging helps")));
    CHECK(!ifeval_is_verb(ARES_VIEW("Please help")) &&
          !ifeval_is_verb(ARES_VIEW("Morning comes")) && !ifeval_is_verb(ARES_VIEW("")));
}

TEST(csv_reads_as_python_does)
{
    ifeval_rows rows = ifeval_csv(ARES_VIEW("a,\"b\"\"c\nd\"x,e\"f\r\n\n,\n\"g,"), ',', &arena);
    if (!CHECK_EQ(rows.n, 4)) return;
    CHECK_VIEW(joined(rows.items[0]), "a|b\"c\ndx|e\"f");
    CHECK_EQ(rows.items[1].n, 0);
    CHECK_VIEW(joined(rows.items[2]), "|");
    CHECK_VIEW(joined(rows.items[3]), "g,");
    CHECK_EQ(ifeval_csv(ARES_VIEW("a\rb"), ',', &arena).n, -1);
    CHECK_EQ(ifeval_csv((ares_view){ "", 0 }, ',', &arena).n, 0);
    CHECK_VIEW(joined(ifeval_csv(ARES_VIEW("a\tb,c"), '\t', &arena).items[0]), "a|b,c");
    ares_arena_fini(&arena);
}

TEST(word_lists_keep_their_order)
{
    CHECK_EQ(ifeval_table_count(IFEVAL_CAPITALS), 27);
    CHECK_VIEW(ifeval_table_item(IFEVAL_CAPITALS, 0), "Reykjavik");
    CHECK_VIEW(ifeval_table_item(IFEVAL_CAPITALS, 26), "Zagreb");
    CHECK_EQ(ifeval_table_count(IFEVAL_PERSON_NAMES), 50);
    CHECK(ifeval_table_has(IFEVAL_STOP_WORDS, ARES_VIEW("the")) &&
          !ifeval_table_has(IFEVAL_STOP_WORDS, ARES_VIEW("The")));
    for (int t = IFEVAL_STOP_WORDS; t <= IFEVAL_VERBS; t++)
        for (int i = 0; i < ifeval_table_count((ifeval_table)t); i++)
            CHECK(ifeval_table_has((ifeval_table)t, ifeval_table_item((ifeval_table)t, i)));
}
