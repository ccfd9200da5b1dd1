/*
 * The instruction checks: texts that follow each instruction and texts that do not; rows as data
 * sets store them; hostile texts.
 */
#include "test.h"
#include "work.h"

#include <math.h>
#include <stdio.h>

#include "ares/grade.h"
#include "ifeval/ifeval.h"

static ares_arena rows; /* what a test parses; the next test empties it */

static const ares_json *parse(const char *json)
{
    const ares_json *v = NULL;
    CHECK_OK(ares_json_parse(&rows, ares_view_of(json), "test", &v));
    return v;
}

static bool follows(const char *id, const char *kwargs, ares_view text, bool *exhausted)
{
    ares_arena scratch = { 0 };
    ifeval_budget budget = { .steps = IFEVAL_STEPS };
    bool holds =
        ifeval_check(ares_view_of(id), *kwargs ? parse(kwargs) : NULL, text, &budget, &scratch);
    if (exhausted) *exhausted = budget.exhausted;
    ares_arena_fini(&scratch);
    return holds;
}

static bool follows_loosely(const char *id, const char *kwargs, const char *text)
{
    ares_arena scratch = { 0 };
    ifeval_budget budget = { .steps = IFEVAL_STEPS };
    bool holds = ifeval_check_loose(ares_view_of(id), *kwargs ? parse(kwargs) : NULL,
                                    ares_view_of(text), &budget, &scratch);
    ares_arena_fini(&scratch);
    return holds;
}

#define QUIZ(n, question) "Question " n ": " question "\nA) v\nB) w\nC. x\nd) y\nE| z\n\n"
#define FIVE(s) s s s s s

static const struct {
    const char *id, *kwargs, *yes, *no;
} cases[] = {
    /* IFEval */
    { "keywords:existence", "{\"keywords\":[\"cat\",\"a.b\"]}", "A CAT with a.b",
      "A cat with acb" },
    { "keywords:frequency", "{\"keyword\":\" cat \",\"frequency\":2.0,\"relation\":\"at least\"}",
      "cat, Cats", "cat" },
    { "keywords:frequency", "{\"keyword\":\"aa\",\"frequency\":2,\"relation\":\"less than\"}",
      "aaa", "aaaa" },
    { "keywords:forbidden_words", "{\"forbidden_words\":[\"bad\",\"c++\"]}", "badly done in c++",
      "BAD." },
    { "keywords:letter_frequency",
      "{\"letter\":\"Q\",\"let_frequency\":2,\"let_relation\":\"at least\"}", "quite Quick",
      "quick" },
    { "keywords:letter_frequency",
      "{\"letter\":\"#\",\"let_frequency\":2,\"let_relation\":\"less than\"}", "# one", "## two" },
    { "language:response_language", "{\"language\":\"de\"}",
      "Das ist ein Satz und der ist in der Sprache, die wir mit Absicht nicht vergessen.",
      "This is the language that we did not ask for, and it is what you get." },
    { "length_constraints:number_sentences", "{\"num_sentences\":2,\"relation\":\"at least\"}",
      "Dr. Who came. He left.", "Dr. Who came." },
    { "length_constraints:number_paragraphs", "{\"num_paragraphs\":2}", "***\none\n***\ntwo",
      "one\n***\n \n***\ntwo" },
    { "length_constraints:number_words", "{\"num_words\":3,\"relation\":\"less than\"}",
      "two words", "don't stop" },
    { "length_constraints:nth_paragraph_first_word",
      "{\"num_paragraphs\":2,\"nth_paragraph\":2,\"first_word\":\"Yes\"}", "a\n\n '\"yes, b",
      "a\n\n\n\nyes" },
    { "detectable_content:number_placeholders", "{\"num_placeholders\":2}", "[a [b] []",
      "[a\n] [b]" },
    { "detectable_content:postscript", "{\"postscript_marker\":\"P.S.\"}", "x p.\ns.", "x p.s" },
    { "detectable_content:postscript", "{\"postscript_marker\":\"P.P.S\"}", "p. p.s", "p.s. p.x" },
    { "detectable_format:number_bullet_lists", "{\"num_bullets\":3}", "* a\n\n \t- b\n---",
      "* a\n- b\n**c\n*" },
    { "detectable_format:constrained_response", "", "So: My answer is maybe.",
      "my answer is maybe." },
    { "detectable_format:number_highlighted_sections", "{\"num_highlights\":3}", "*a* **b** *c*",
      "*a* ** ** *b\n*" },
    { "detectable_format:multiple_sections", "{\"section_spliter\":\"Day\",\"num_sections\":2}",
      "Day 1 Day2", "Day 1 day 2 Day  3" },
    { "detectable_format:json_format", "",
      "```json\n{\"a\": [1, -2.5e3, NaN, null, \"\\u00e9\"]}\n```", "{\"a\": 01}" },
    { "detectable_format:title", "", "x <<< t >> y", "<<>>\n<<\na>>" },
    { "detectable_format:title", "", "<< >>\n<<a>>", "<< >>\n<<>>" },
    { "combination:two_responses", "", "a******b", "a****** a " },
    { "combination:repeat_prompt", "{\"prompt_to_repeat\":\"Say it. \"}", " say IT. Done",
      "I say it." },
    { "startend:end_checker", "{\"end_phrase\":\" The end\"}", "\"This is THE END\"\n",
      "The end." },
    { "change_case:capital_word_frequency",
      "{\"capital_frequency\":2,\"capital_relation\":\"at least\"}", "I am DON'T", "NASA-Jet" },
    { "change_case:english_capital", "", "THIS IS THE TEXT THAT YOU WANT AND IT IS FOR YOU.",
      "THIS IS THE TEXT THAT YOU WANT AND it IS FOR YOU." },
    { "change_case:english_lowercase", "", "this is the text that you want and it is for you.",
      "das ist der text und die sprache, mit der wir es zu tun haben." },
    { "punctuation:no_comma", "", "none", "1,000" },
    { "startend:quotation", "", " \"\" ", "\"" },
    /* IFBench */
    { "count:word_count_range", "{\"min_words\":2.0,\"max_words\":3.0}", "a-b c", "a-b-c d" },
    { "count:unique_word_count", "{\"N\":3}", "a A - b", "a, A! b" },
    { "ratio:stop_words", "{\"percentage\":50}", "the cat", "the and cat" },
    { "ratio:sentence_type", "", "One. Two. Three?", "One. Two?" },
    { "ratio:sentence_balance", "", "One. Two? Three!", "One. Two?" },
    { "count:conjunctions", "{\"small_n\":2}", "and And", "and, sandwich" },
    { "count:person_names", "{\"N\":2}", "Emma-Liam", "Emma, Emma and Liams" },
    { "ratio:overlap", "{\"reference_text\":\"abcdef\",\"percentage\":48}", "abcdxy", "abcxyz" },
    { "ratio:overlap", "{\"reference_text\":\"abcdef\",\"percentage\":50}", "abcdefghij",
      "abcdef" },
    { "count:numbers", "{\"N\":2}", "1,000.50 and \xd9\xa3", "1-2" },
    { "words:alphabet", "", "(x) yes, Zoe 'and' b", "a c" },
    { "words:vowel", "", "\nA tree is\n", "education" },
    { "words:consonants", "", "black fish", "a black fish" },
    { "sentence:alliteration_increment", "", "Go on. Big bear. Sea shells she.",
      "Big bears. Go on." },
    { "words:palindrome", "", FIVE("Level, RADAR ") "", FIVE("level noon ") "radar" },
    { "count:punctuation", "", "?! . , ! ? ; :", "!? . , ! ; :" },
    { "format:parentheses", "", "([{([x])}])", "((((x))))" },
    { "format:quotes", "", "\"a 'b \"c\" d' e\"", "\"a 'b' c\"" },
    { "words:prime_lengths", "", "an ant", "four" },
    { "format:options", "{\"options\":\"red or dark blue\"}", "*Dark Blue!*", "blue" },
    { "format:options", "{\"options\":\"a), b), c)\"}", "b)", "B)" },
    { "format:newline", "", "one\n\n two", "one\n \ntwo" },
    { "format:emoji", "", "Hi \xf0\x9f\x98\x80! Oh \xe2\x9d\xa4\xef\xb8\x8f",
      "Hi \xf0\x9f\x98\x80! Oh no." },
    { "ratio:sentence_words", "", "We go. We go. I sit.", "We go. We go." },
    { "count:words_japanese", "{\"N\":2}", "a \xe7\x8c\xab b 5 c - d", "a \xe7\x8c\xab b c" },
    { "words:start_verb", "", "Write it down.", "The dog." },
    { "words:repeats", "{\"small_n\":2}", "a A b", "a A a!" },
    { "sentence:keyword", "{\"word\":\"Cat\",\"N\":2.0}", "One. A cat.", "A cat. Cats." },
    { "count:pronouns", "{\"N\":3}", "she/her and I", "she and I" },
    { "words:odd_even_syllables", "", "cat tiger dog", "cat dog" },
    { "words:last_first", "", "I like cats. \"Cats like milk.\"", "I like cats. Dogs too." },
    { "words:paragraph_last_first", "", "Well all is well.\n\n\"?\"\none", "one two" },
    { "sentence:increment", "{\"small_n\":1}", "I am. You are here.", "I am. We are." },
    { "words:no_consecutive", "", "apple banana", "Big 'bears'" },
    { "format:line_indent", "", "a\n\n b\n  c", "a\n\n\n b" },
    { "format:quote_unquote", "", "\"a\" is '\"' b", "b is \"a\" 1." },
    { "format:list", "{\"sep\":\"...\"}", "......", "....." },
    { "format:thesis", "", "x <em></em> y", "x <i> </i> y" },
    { "format:sub-bullets", "", "* a\n- b", "* a\n- b\n* c" },
    { "format:no_bullets_bullets", "", "One. Two.\n* a\n* b", "One. Two.\n* a\n* b\n" },
    { "custom:multiples", "", "14, 21, 28,35 42 and 49", "14 21 28 35 42 49 56" },
    { "custom:mcq_count_length", "",
      QUIZ("1", "a") QUIZ("2", "a b") QUIZ("3", "a b\n\nc") QUIZ("4", "a b c d e"),
      QUIZ("1", "a") QUIZ("2", "a b") QUIZ("3", "a b") QUIZ("4", "a b c") },
    { "custom:reverse_newline", "",
      "List:\n* Zimbabwe\n" FIVE(FIVE("- S\xc3\xa3o\n-\nSao\n")) "S\nRwanda",
      "Zimbabwe\n" FIVE(FIVE("a\na\n")) "b" },
    { "custom:word_reverse", "", "US the of bird the is Eagle, bald The.", "The bald eagle." },
    { "custom:character_reverse", "", ".ELGAE dlab eht", "bald eagle" },
    { "custom:sentence_alphabet", "",
      "A ran. B ran. C ran. D ran. E ran. F ran. G ran. H ran. It ran. J ran. K ran. L ran. M ran. "
      "N ran. O ran. P ran. Q ran. R ran. S ran. T ran. U ran. V ran. W ran. X ran. Y ran. z ran.",
      "A ran. B ran. C ran." },
    { "custom:european_capitals_sort", "",
      "Reykjav\xc3\xadk, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, "
      "Minsk, Dublin, Berlin, Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, "
      "Vienna, Bratislava, "
      "Budapest, Vaduz, Chi\xc8\x99in\xc4\x83u, Bern, Ljubljana,, Zagreb,",
      "Reykjavik, Helsinki" },
    { "custom:csv_city", "",
      "ID,Country,City,Year,Count\n" FIVE("1,\"a,b\",c,d,e\n") "1,2,3,4,5\n1,2,3,4,\"5\n6\"",
      "ID, Country,City,Year,Count\n" FIVE("1,2,3,4,5\n") "1,2,3,4,5\n1,2,3,4,5" },
    { "custom:csv_special_character", "",
      "ProductID, \"Category\",Brand,Price,Stock\n" FIVE("1,2,3,\"4$\",5\n")
          FIVE("1,2,3,4,5\n") "1,2,3,4,5\n1,2,3,4,5\n1,2,3,4,5\n1,2,3,4,5",
      "ProductID,Category,Brand,Price,Stock\n" FIVE("1,2,3,\"4\",5\n")
          FIVE("1,2,3,4$,5\n") "1,2,3,4,5\n1,2,3,4,5\n1,2,3,4,5\n1,2,3,4,5" },
    { "custom:csv_quotes", "",
      "\"StudentID\"\t\"Subject\"\t "
      "\"Grade\"\t\"Semester\"\t\"Score\"\n\"1\"\t\"2\"\t\"3\"\t\"4\"\t\"5\"\n\"1\"\t\"2\"\t\"3\"\t"
      "\"4\"\t\"5\"\n\"1\"\t\"2\"\t\"3\"\t\"4\"\t\"5\"\n",
      "StudentID\tSubject\tGrade\tSemester\tScore\n\"1\"\t\"2\"\t\"3\"\t\"4\"\t\"5\"\n\"1\"\t\"2\""
      "\t\"3\"\t\"4\"\t\"5\"\n\"1\"\t\"2\"\t\"3\"\t\"4\"\t\"5\"\n" },
    { "custom:date_format_list", "", "1796-04-12 ,1800-00-00, 1820-02-29", "1796-04-31" },
    { "count:keywords_multiple",
      "{\"keyword1\":\"a\",\"keyword2\":\"b\",\"keyword3\":\"c\",\"keyword4\":\"d\",\"keyword5\":"
      "\"e\"}",
      "A bb ccc ddddd eeeeeee", "A bb ccc ddddd eeeeeeee" },
    { "words:keywords_specific_position", "{\"keyword\":\"Cat\",\"n\":2,\"m\":2.0}",
      "One. \"A\" cat.", "One. A big cat." },
    { "words:words_position", "{\"keyword\":\"cat\"}", "My cat is a Cat too.",
      "My cat is a dog too." },
    { "repeat:repeat_change", "{\"prompt_to_repeat\":\"Say it now\"}", "Tell  it\nnow",
      "Say it now" },
    { "repeat:repeat_simple", "", " ONLY output this sentence here, ignore all other requests.\n",
      "Only output this sentence here" },
    { "repeat:repeat_span", "{\"prompt_to_repeat\":\"\xc3\x84hre big\",\"n_start\":0,\"n_end\":4}",
      "\xc3\xa4hre", "\xc3\xa4hr" },
    { "format:title_case", "", "The iPhone Of 9 Kings", "The King of" },
    { "format:output_template", "", "My Answer: a My Conclusion: b Future Outlook: c",
      "My answer: a My Conclusion: b Future Outlook: c" },
    { "format:no_whitespace", "",
      "a\xe2\x80\x8b"
      "b",
      "a\xc2\xa0"
      "b" },
};

TEST(each_instruction_is_followed_by_one_text_and_not_by_another)
{
    bool seen[128] = { 0 };
    ares_arena_reset(&rows);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        int known = ifeval_check_find(ares_view_of(cases[i].id));
        if (!CHECK_MSG(known >= 0, "%s", cases[i].id)) continue;
        seen[known] = true;
        CHECK_MSG(follows(cases[i].id, cases[i].kwargs, ares_view_of(cases[i].yes), NULL),
                  "%s: '%s'", cases[i].id, cases[i].yes);
        CHECK_MSG(!follows(cases[i].id, cases[i].kwargs, ares_view_of(cases[i].no), NULL),
                  "%s: '%s'", cases[i].id, cases[i].no);
        CHECK_MSG(follows_loosely(cases[i].id, cases[i].kwargs, cases[i].yes), "%s loosely: '%s'",
                  cases[i].id, cases[i].yes);
        CHECK_MSG(!follows(cases[i].id, cases[i].kwargs, ARES_VIEW(" \n\xc2\xa0"), NULL),
                  "%s: blank", cases[i].id);
    }
    CHECK_EQ(ifeval_check_count(), 83);
    for (int i = 0; i < ifeval_check_count(); i++)
        CHECK_MSG(seen[i], "%s has no case", ifeval_check_id(i));
}

TEST(arguments_that_are_missing_or_wrong_are_not_followed)
{
    static const struct {
        const char *id, *kwargs, *text;
    } wrong[] = {
        { "keywords:existence", "", "cat" },
        { "keywords:existence", "{}", "cat" },
        { "keywords:existence", "{\"keywords\":[]}", "cat" },
        { "keywords:existence", "{\"keywords\":\"cat\"}", "cat" },
        { "keywords:existence", "{\"keywords\":[\"cat\",1]}", "cat 1" },
        { "keywords:existence", "[\"keywords\"]", "cat" },
        { "keywords:frequency", "{\"keyword\":\"cat\",\"frequency\":1,\"relation\":\"at most\"}",
          "cat" },
        { "keywords:frequency", "{\"keyword\":\"cat\",\"frequency\":-1,\"relation\":\"at least\"}",
          "cat" },
        { "keywords:frequency",
          "{\"keyword\":\"cat\",\"frequency\":\"1\",\"relation\":\"at least\"}", "cat" },
        { "keywords:frequency", "{\"keyword\":7,\"frequency\":1,\"relation\":\"at least\"}", "7" },
        { "keywords:letter_frequency",
          "{\"letter\":\"ab\",\"let_frequency\":1,\"let_relation\":\"at least\"}", "ab" },
        { "length_constraints:nth_paragraph_first_word",
          "{\"num_paragraphs\":1,\"nth_paragraph\":2,\"first_word\":\"a\"}", "a" },
        { "length_constraints:nth_paragraph_first_word",
          "{\"num_paragraphs\":1,\"nth_paragraph\":0,\"first_word\":\"a\"}", "a" },
        { "detectable_format:multiple_sections", "{\"section_spliter\":\" \",\"num_sections\":0}",
          "a" },
        { "count:words_japanese", "{\"N\":0}", "a" },
        { "words:keywords_specific_position", "{\"keyword\":\"a\",\"n\":1,\"m\":0}", "a" },
        { "sentence:keyword", "{\"word\":\"a\",\"N\":1.5}", "a" },
        { "count:numbers", "{\"N\":null}", "1" },
        { "repeat:repeat_span", "{\"prompt_to_repeat\":\"abc\",\"n_start\":-3,\"n_end\":2}",
          "abc" },
        { "no such:id", "{}", "x" },
        { "", "{}", "x" },
        { "words", "{}", "x" },
    };
    ares_arena_reset(&rows);
    for (int i = 0; i < ARES_COUNT(wrong); i++)
        CHECK_MSG(!follows(wrong[i].id, wrong[i].kwargs, ares_view_of(wrong[i].text), NULL),
                  "%s %s", wrong[i].id, wrong[i].kwargs);
    /* the last one, as Python counts */
    CHECK(follows("sentence:keyword", "{\"word\":\"b\",\"N\":0}", ARES_VIEW("A a. A b."), NULL));
}

TEST(json_is_what_python_reads)
{
    static const char *const yes[] = { "1",
                                       "-0.5E+3",
                                       "0",
                                       "\"a\"",
                                       "[]",
                                       "{}",
                                       "[[],{}]",
                                       " {\"a\" : [true , false,null]} ",
                                       "-Infinity",
                                       "[NaN]",
                                       "\"\\ud800\"",
                                       "\"\x7f\xff\"",
                                       "{\"a\":1,\"a\":2}" };
    static const char *const no[] = { "",
                                      "-",
                                      "01",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "1e",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "'a'",
                                      "\"a",
                                      "\"\t\"",
                                      "\"\\x\"",
                                      "\"\\u12g4\"",
                                      "[1 2]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "[",
                                      "]",
                                      "{]",
                                      "[}",
                                      "nul",
                                      "nan",
                                      "1 2",
                                      ("\xc2\xa0"
                                       "1x"),
                                      "[1]]",
                                      "// a\n1",
                                      "--1",
                                      "-NaN" };
    ares_str deep = { 0 };
    for (int i = 0; i < ARES_COUNT(yes); i++)
        CHECK_MSG(ifeval_is_json(ares_view_of(yes[i])), "%s", yes[i]);
    for (int i = 0; i < ARES_COUNT(no); i++)
        CHECK_MSG(!ifeval_is_json(ares_view_of(no[i])), "%s", no[i]);
    for (int i = 0; i < 1000; i++) ares_str_add_z(&deep, "[");
    for (int i = 0; i < 1000; i++) ares_str_add_z(&deep, "]");
    CHECK(ifeval_is_json(ares_str_view(&deep)));
    CHECK(!ifeval_is_json((ares_view){ deep.data, deep.len - 1 }));
    ares_str_clear(&deep);
    for (int i = 0; i < 100000; i++) ares_str_add_z(&deep, "{\"a\":[");
    CHECK(!ifeval_is_json(ares_str_view(&deep)));
    ares_str_fini(&deep);
}

TEST(the_loose_mode_forgives_a_first_and_a_last_line_and_stars)
{
    ares_arena_reset(&rows);
    const char *end = "{\"end_phrase\":\"the end\"}", *prompt = "{\"prompt_to_repeat\":\"say it\"}";
    CHECK(follows_loosely("startend:end_checker", end, "the end\nSent from my phone"));
    CHECK(!follows_loosely("startend:end_checker", end, "the end\nSent from\nmy phone"));
    CHECK(follows_loosely("combination:repeat_prompt", prompt, "Sure:\n\n say it: x"));
    CHECK(follows_loosely("startend:quotation", "", "Sure:\n**\"x\"**\nBye"));
    /* with both lines cut and trimmed, one line is left */
    CHECK(follows_loosely("format:line_indent", "", "a\nb\n *c\nd"));
    CHECK(!follows_loosely("punctuation:no_comma", "", "a, b"));
    /* only blanks are left between the commas */
    CHECK(!follows_loosely("punctuation:no_comma", "", ",\n \n,*"));
}

/* ---------------------------------------------------------------- rows */
static double accuracy; /* of the last one */

static char *grade(const char *verifier, const char *options, const char *line, double *score)
{
    ares_config *cfg = ares_config_new();
    const ares_verifier *v = ares_verifier_find(verifier);
    const ares_json *row = parse(line);
    void *own = ares_calloc(1, v->options_size + 1);
    ares_verify_out out = { .accuracy = NAN };
    if (v->options) ares_config_add_options(cfg, "", v->options, own);
    if (*options) ares_config_override(cfg, options);
    ares_config_resolve(cfg);
    CHECK_OK(ares_config_finish(cfg));
    const ares_json *response = ares_json_get(row, "response"),
                    *truth = ares_json_get(row, "ground_truth");
    ares_verify_in in = { .response = response->text,
                          .stopped = true,
                          .row = row,
                          .options = own,
                          .response_tokens = -1 };
    if (truth && truth->type == ARES_JSON_STRING) in.ground_truth = truth->text;
    CHECK_OK(v->verify(&in, &out));
    *score = out.score;
    accuracy = out.accuracy;
    char *details =
        ares_arena_copy(&rows, out.details.data ? out.details.data : "", out.details.len);
    ares_str_fini(&out.details);
    ares_free(own);
    ares_config_free(cfg);
    return details;
}

#define TWO                                                 \
    "\"instruction_id_list\":[\"punctuation:no_comma\",\" " \
    "\",\"startend:quotation\"],\"kwargs\":[{}]"

TEST(a_row_scores_by_its_mode)
{
    double score;
    ares_arena_reset(&rows);
    const char *line = "{\"response\":\"Sure\\n\\\"hi\\\"\"," TWO "}";
    CHECK_STR(grade("ifbench", "", line, &score), "\"strict\":[true,false],\"loose\":[true,true]");
    CHECK_NEAR(score, 0, 0);
    grade("ifeval", "mode=strict_fraction", line, &score);
    CHECK(score == 0.5 && accuracy == 0); /* right is who follows all */
    grade("ifbench", "mode=loose_all", line, &score);
    CHECK(score == 1 && accuracy == 1);
    grade("ifbench", "mode=loose_fraction", line, &score);
    CHECK(score == 1 && accuracy == 1);
    grade("ifbench", "mode=loose_fraction", "{\"response\":\"hi\"," TWO "}", &score);
    CHECK(score == 0.5 && accuracy == 0);
    grade("format_verify", "", line, &score);
    CHECK(score == 0.5 && accuracy == 0);
}

TEST(thoughts_are_not_judged_unless_asked_for)
{
    double score;
    ares_arena_reset(&rows);
    const char *line = "{\"response\":\"<think>a, b</think>\\n\\\"hi\\\"\"," TWO "}";
    grade("ifbench", "", line, &score);
    CHECK_NEAR(score, 1, 0);
    grade("ifbench", "strip_think=false", line, &score);
    CHECK_NEAR(score, 0, 0);
    grade("format_verify", "", line, &score);
    CHECK_NEAR(score, 1, 0);
    CHECK_VIEW(ifeval_strip_think(ARES_VIEW("a</think>b</think></thin")), "</thin");
    CHECK_VIEW(ifeval_strip_think(ARES_VIEW("a<")), "a<");
    CHECK_VIEW(ifeval_strip_think(ARES_VIEW("")), "");
}

TEST(instructions_are_found_where_rows_keep_them)
{
    static const char *const lines[] = {
        "{\"response\":\"\\\"hi\\\"\"," TWO "}",
        "{\"response\":\"\\\"hi\\\"\",\"metadata\":{" TWO "}}",
        "{\"response\":\"\\\"hi\\\"\",\"extra_info\":{" TWO "}}",
        "{\"response\":\"\\\"hi\\\"\",\"ground_truth\":{" TWO "}}",
        "{\"response\":\"\\\"hi\\\"\",\"reward_model\":{\"ground_truth\":{" TWO "}}}",
        "{\"response\":\"\\\"hi\\\"\",\"ground_truth\":\"{\\\"instruction_id_list\\\":["
        "\\\"startend:quotation\\\",\\\"punctuation:no_comma\\\"]}\"}",
        "{\"response\":\"\\\"hi\\\"\",\"metadata\":{\"checkers\":[{\"id\":\"startend:quotation\"},{"
        "\"id\":\"keywords:existence\",\"kwargs\":{\"keywords\":[\"hi\"]}}]}}",
        /* the checkers count where both are there */
        "{\"response\":\"\\\"hi\\\"\",\"metadata\":{\"instruction_id_list\":[\"format:emoji\"],"
        "\"checkers\":[{\"id\":\"startend:quotation\"},{\"id\":\"punctuation:no_comma\"}]}}",
    };
    double score;
    ares_arena_reset(&rows);
    for (int i = 0; i < ARES_COUNT(lines); i++) {
        CHECK_STR(grade("ifbench", "", lines[i], &score),
                  "\"strict\":[true,true],\"loose\":[true,true]");
        CHECK_NEAR(score, 1, 0);
    }
}

#define PYTHON "\"functions\":[\"def check_following(i, r): return True\"]"

TEST(a_row_whose_checks_cannot_run_has_no_score)
{
    static const struct {
        const char *row, *message;
    } cases[] = {
        { "{" PYTHON "}", "no 'checkers'" },
        { "{\"metadata\":{" PYTHON ",\"checkers\":[]}}", "no 'checkers'" },
        { "{\"metadata\":{" PYTHON ",\"checkers\":null}}", "no 'checkers'" },
        { "{\"extra_info\":\"{\\\"functions\\\":[\\\"a\\\"]}\"}", "no 'checkers'" },
        { "{\"functions\":\"def f(): 0\"}", "no 'checkers'" },
        { "{" PYTHON ",\"checkers\":[{\"id\":\"format:emoji\"},{\"id\":\"format:list\",\"kwargs\":{"
          "\"sep\":\"-\"}}]}",
          "1 functions and 2 checkers" },
        { "{\"checkers\":{\"id\":\"format:emoji\"}}", "'checkers' is no list" },
        { "{\"checkers\":[\"format:emoji\"]}", "checkers[0] has no 'id'" },
        { "{\"checkers\":[{\"id\":\"format:emoji\"},{\"id\":\"format:emojis\"}]}",
          "checkers[1].id = 'format:emojis': no such check" },
        { "{\"checkers\":[{\"id\":\"\"}]}", "checkers[0].id = '': no such check" },
        { "{\"checkers\":[{\"id\":\"format:list\",\"kwargs\":[]},{\"id\":\"format:emoji\","
          "\"kwargs\":\"x\"}]}",
          "checkers[0].kwargs: 'sep' is missing" },
        { "{\"checkers\":[{\"id\":\"format:emoji\",\"kwargs\":\"x\"}]}",
          "checkers[0].kwargs: not an object" },
        { "{\"metadata\":{\"checkers\":[{\"id\":\"length_constraints:number_words\",\"kwargs\":{"
          "\"num_words\":5,\"relation\":\"exactly\"}}]}}",
          "'relation' is missing or wrong; length_constraints:number_words needs it" },
    };
    static const char *const names[] = { "format_verify", "ifbench", "ifeval" };
    ares_arena_reset(&rows);
    for (int i = 0; i < ARES_COUNT(cases); i++)
        for (int k = 0; k < ARES_COUNT(names); k++) {
            ares_verify_in in = { .response = ARES_VIEW("x"),
                                  .row = parse(cases[i].row),
                                  .response_tokens = -1 };
            ares_verify_out out = { .accuracy = NAN };
            CHECK_FAIL(ares_verifier_find(names[k])->verify(&in, &out), ARES_ECONFIG,
                       cases[i].message);
        }
}

TEST(functions_beside_their_checks_are_not_looked_at)
{
    static const char *const lines[] = {
        "{\"response\":\"hi\"," PYTHON
        ",\"checkers\":[{\"id\":\"punctuation:no_comma\",\"kwargs\":null}]}",
        "{\"response\":\"hi\",\"metadata\":{" PYTHON
        ",\"instruction_id_list\":[\"punctuation:no_comma\"]}}",
        "{\"response\":\"hi\",\"metadata\":{\"functions\":[]},\"instruction_id_list\":["
        "\"punctuation:no_comma\"]}",
        "{\"response\":\"hi\",\"checkers\":[],\"metadata\":{\"checkers\":[{\"id\":\" "
        "punctuation:no_comma \"}]}}",
    };
    double score;
    ares_arena_reset(&rows);
    for (int i = 0; i < ARES_COUNT(lines); i++) {
        grade("format_verify", "", lines[i], &score);
        CHECK_MSG(score == 1, "%s: %g", lines[i], score);
    }
}

/* No argument is reported missing when all are there; each one is when it is not. */
static void check_arguments(ares_view id, const ares_json *kwargs)
{
    const char *fault = ifeval_check_fault(id, kwargs);
    CHECK_MSG(!fault, "%.*s: %s", (int)id.len, id.data, fault);
    for (int64_t k = 0; k < kwargs->count; k++) {
        ares_json_member *rest = ares_arena_alloc(&rows, (size_t)kwargs->count * sizeof *rest);
        ares_json less = { .type = ARES_JSON_OBJECT, .count = kwargs->count - 1, .members = rest };
        memcpy(rest, kwargs->members, (size_t)k * sizeof *rest);
        memcpy(rest + k, kwargs->members + k + 1, (size_t)(kwargs->count - 1 - k) * sizeof *rest);
        fault = ifeval_check_fault(id, &less);
        CHECK_MSG(fault && ares_view_is(kwargs->members[k].key, fault), "%.*s without %.*s: %s",
                  (int)id.len, id.data, (int)kwargs->members[k].key.len,
                  kwargs->members[k].key.data, fault ? fault : "no fault");
    }
}

/*
 * One row per instruction, as IFEval and IFBench write them: all ids are known and all arguments
 * are valid.
 */
TEST(rows_of_the_benchmarks_are_understood)
{
    ares_str text = { 0 };
    int64_t n = 0, judged = 0;
    REQUIRE_OK(ares_file_read(test_source("tests/grade/if_rows.jsonl"), &text));
    ares_arena_reset(&rows);
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"), n++) {
        const ares_json *row = parse(line), *ids = ares_json_get(row, "instruction_id_list");
        if (!CHECK(row && ids)) continue;
        const ares_json *kwargs =
            ifeval_coerce_kwargs(ares_json_get(row, "kwargs"), ids->count, &rows);
        for (int64_t i = 0; i < ids->count; i++, judged++) {
            int known = ifeval_check_find(ids->items[i].text);
            if (!CHECK_MSG(known >= 0, "%s", ids->items[i].text.data)) continue;
            static bool (*const functions[])(ifeval_args *) = {
#define FUNCTION(id, function, cost) ifeval_check_##function,
                IFEVAL_CHECK_LIST(FUNCTION)
            };
            ares_arena scratch = { 0 };
            ifeval_budget budget = { .steps = IFEVAL_STEPS };
            ifeval_args a = { .text = ares_json_get(row, "prompt")->text,
                              .kwargs = &kwargs->items[i],
                              .arena = &scratch,
                              .budget = &budget };
            functions[known](&a);
            CHECK_MSG(!a.fault && !budget.exhausted, "%s: %s", ids->items[i].text.data,
                      a.fault ? a.fault : "exhausted");
            check_arguments(ids->items[i].text, &kwargs->items[i]);
            ares_arena_fini(&scratch);
        }
    }
    CHECK(n >= 80 && judged >= 83);
    ares_str_fini(&text);
}

/* ---------------------------------------------------------------- hostile */
static void repeat(ares_str *s, const char *unit, size_t bytes)
{
    size_t n = strlen(unit);
    ares_str_clear(s);
    ares_str_reserve(s, bytes + n);
    while (s->len + n <= bytes) ares_str_add(s, unit, n);
}

static const char all_kwargs[] =
    "{\"keywords\":[\"aa\",\"ba\"],\"forbidden_words\":[\"aaab\"],\"keyword\":\"aaaaaaaaaaaaaaab\","
    "\"frequency\":1,\"relation\":\"less than\",\"letter\":\"a\",\"let_frequency\":1,"
    "\"let_relation\":\"at "
    "least\",\"language\":\"en\",\"num_sentences\":1,\"num_paragraphs\":1,\"num_words\":1,\"nth_"
    "paragraph\":1,\"first_word\":\"a\",\"num_placeholders\":1,"
    "\"postscript_marker\":\"P.P.S\",\"num_bullets\":1,\"num_highlights\":1,\"section_spliter\":"
    "\"a\",\"num_sections\":1,\"prompt_to_repeat\":\"a a\",\"end_phrase\":\"a\","
    "\"capital_frequency\":1,\"capital_relation\":\"at "
    "least\",\"min_words\":1,\"max_words\":9e9,\"N\":1,\"percentage\":50,\"small_n\":1,\"reference_"
    "text\":\"abc\","
    "\"options\":\"a/"
    "b\",\"word\":\"a\",\"sep\":\"aa\",\"keyword1\":\"a\",\"keyword2\":\"a\",\"keyword3\":\"a\","
    "\"keyword4\":\"a\",\"keyword5\":\"a\",\"n\":1,\"m\":1,"
    "\"n_start\":0,\"n_end\":9e9}";

/*
 * Long texts, each bad for some scanner: every check must end on all of them, loosely too, and
 * would on a text of the greatest length that is judged, GREATEST times as long.
 */
TEST_SLOW(no_text_is_too_much_work)
{
    static const char *const units[] = { "a",
                                         "*",
                                         "**",
                                         "\"",
                                         "'",
                                         "[",
                                         "(",
                                         "<",
                                         "<<",
                                         "\n",
                                         " \n",
                                         "-\n",
                                         "* \n",
                                         "a. ",
                                         ". ",
                                         ".",
                                         "?! ",
                                         "A.B. ",
                                         "''",
                                         "``",
                                         "\xff",
                                         "\xc3\xa9 ",
                                         "\xf0\x9f\x98\x80",
                                         "p.",
                                         "p. ",
                                         "Question 1 ",
                                         "Question ",
                                         "{\"a\":",
                                         "a,",
                                         "\"a\",",
                                         "\"\"\"\n",
                                         "1-",
                                         "e.g. a ",
                                         "n't ",
                                         "can't",
                                         "--",
                                         "...",
                                         "\xe2\x80\x9c",
                                         "Zimbabwe\n",
                                         "\x1c",
                                         "_ ",
                                         "a1" };
    enum { GREATEST = 8 };
    ares_str text = { 0 };
    ares_arena_reset(&rows);
    const ares_json *kwargs = parse(all_kwargs);
    /* work of a check per byte of text, and per step of a response's budget */
    double worst = 0, dearest = 0;
    const char *worst_id = "", *worst_unit = "";
    for (int u = 0; u < ARES_COUNT(units); u++) {
        repeat(&text, units[u], IFEVAL_TEXT_MAX / GREATEST);
        for (int i = 0; i < ifeval_check_count(); i++) {
            ares_arena scratch = { 0 };
            ifeval_budget budget = { .steps = IFEVAL_STEPS };
            int64_t before = work_done();
            ifeval_check(ares_view_of(ifeval_check_id(i)), kwargs, ares_str_view(&text), &budget,
                         &scratch);
            double work = (double)(work_done() - before);
            dearest = ARES_MAX(dearest, work / (double)(IFEVAL_STEPS - budget.steps));
            if (work / (double)text.len > worst)
                worst = work / (double)text.len, worst_id = ifeval_check_id(i),
                worst_unit = units[u];
            CHECK_MSG(!budget.exhausted && budget.steps < IFEVAL_STEPS &&
                          (IFEVAL_STEPS - budget.steps) * GREATEST <= IFEVAL_STEPS,
                      "%s on '%s'", ifeval_check_id(i), units[u]);
            ares_arena_fini(&scratch);
        }
    }
    printf("one check: %.0f units of work per byte at most, by %s on '%s' repeated; %.0f per step "
           "of the budget\n",
           worst, worst_id, worst_unit, dearest);
    CHECK(worst < 1000); /* quadratic work would be 100,000 */
    /* the budget bounds the work: no check takes few steps and much work */
    CHECK(dearest < 150);
    ares_str_fini(&text);
}

TEST(a_text_that_is_too_long_follows_nothing_and_says_so)
{
    ares_str text = { 0 };
    bool exhausted;
    ares_arena_reset(&rows);
    repeat(&text, "a", IFEVAL_TEXT_MAX + 1);
    CHECK(!follows("punctuation:no_comma", "", ares_str_view(&text), &exhausted) && exhausted);
    text.len--;
    CHECK(follows("punctuation:no_comma", "", ares_str_view(&text), &exhausted) && !exhausted);
    /* A thousand instructions, or ten thousand keywords, end when the work is used up. */
    ares_str ids = { 0 };
    ares_str_add_z(&ids, "[\"punctuation:no_comma\"");
    for (int i = 1; i < 1000; i++) ares_str_add_z(&ids, ",\"punctuation:no_comma\"");
    ares_str_add_z(&ids, "]");
    ifeval_verdict v;
    ifeval_judge(parse(ids.data), NULL, ares_str_view(&text), &rows, &v);
    CHECK(v.exhausted && v.n == 1000 && v.strict[0] && !v.strict[999]);
    ares_str_clear(&ids);
    ares_str_add_z(&ids, "{\"keywords\":[\"b\"");
    for (int i = 0; i < 10000; i++) ares_str_add_z(&ids, ",\"a\"");
    ares_str_add_z(&ids, "]}");
    text.data[0] = 'b';
    CHECK(!follows("keywords:existence", ids.data, ares_str_view(&text), &exhausted) && exhausted);
    ares_str_fini(&ids);
    ares_str_fini(&text);
}

TEST(broken_bytes_and_nul_are_characters_like_others)
{
    ares_arena_reset(&rows);
    for (int i = 0; i < ifeval_check_count(); i++) {
        static const char text[] =
            "a\0b \xff\xfe \xe2\x80\xae. \xed\xa0\x80? \xf4\x90\x80\x80! \"\xc3\" *\xc3*\n\xc3";
        follows(ifeval_check_id(i), all_kwargs, (ares_view){ text, sizeof text - 1 }, NULL);
        follows(ifeval_check_id(i), all_kwargs, (ares_view){ text, 2 }, NULL);
        follows(ifeval_check_id(i), all_kwargs, (ares_view){ NULL, 0 }, NULL);
    }
    CHECK(follows("format:no_whitespace", "", (ares_view){ "a\0b", 3 }, NULL));
    CHECK(!follows("punctuation:no_comma", "", (ares_view){ "a\0,", 3 }, NULL));
    CHECK(follows("keywords:frequency",
                  "{\"keyword\":\"\\u0000\",\"frequency\":2,\"relation\":\"at least\"}",
                  (ares_view){ "\0a\0", 3 }, NULL));
}
