/* The verifier `json`: what is JSON, fenced or not, and texts nested too deep. */
#include "test.h"

#include <math.h>

#include "ares/grade.h"

/* Judges a response with option=value words up to a NULL; the caller's details get the details. */
static double judge(ares_view response, const char *const *words, ares_str *details)
{
    ares_judge *j;
    void *options;
    ares_verify_in in = { .response = response, .response_tokens = -1 };
    ares_verify_out out = { .accuracy = NAN };
    if (!CHECK_OK(ares_judge_new("json", &j))) return NAN;
    ares_config *cfg = ares_config_new();
    ares_option_table *table = ares_judge_options(j, &options);
    ares_config_add_options(cfg, "", table, options);
    for (; words && *words; words++) ares_config_override(cfg, *words);
    ares_config_resolve(cfg);
    if (ares_config_fault_count(cfg) == 0) ares_judge_check(j, cfg, "");
    int rc = ares_config_finish(cfg);
    if (rc == ARES_OK) rc = ares_judge_run(j, &in, &out);
    if (rc == ARES_OK) CHECK_NEAR(out.accuracy, out.score, 0);
    if (details) ares_str_add_view(details, ares_str_view(&out.details));
    ares_str_fini(&out.details);
    ares_judge_free(j);
    ares_config_free(cfg);
    return rc == ARES_OK ? out.score : NAN;
}

static double plain(const char *response)
{
    return judge(ares_view_of(response), NULL, NULL);
}

/* n times `open`, then n times `close`. */
static ares_str nested(int n, const char *open, const char *close)
{
    ares_str s = { 0 };
    for (int i = 0; i < n; i++) ares_str_add_z(&s, open);
    for (int i = 0; i < n; i++) ares_str_add_z(&s, close);
    return s;
}

TEST(a_response_is_one_json_text_or_none)
{
    static const char *const valid[] = {
        "{}",
        " [1, 2]\n",
        "\"a\"",
        "null",
        "-0",
        "1e308",
        "{\"a\": 1, \"a\": 2}",
        "\"\\ud800\"",
        "123456789012345678901234567890",
    };
    static const char *const wrong[] = {
        "",        "{} {}",   "NaN",    "[Infinity]", "{'a': 1}",       "[1,]",  "01",    "1.",
        "+1",      "{\"a\"}", "\"a",    "\"\t\"",     "\"\xff\"",       "tru",   "1e999", "answer",
        "// c\n1", "[1] x",   "{a: 1}", "\"\\x41\"",  "\xef\xbb\xbf{}", "[1 2]",
    };
    for (int i = 0; i < ARES_COUNT(valid); i++)
        CHECK_MSG(plain(valid[i]) == 1, "'%s' is JSON", valid[i]);
    for (int i = 0; i < ARES_COUNT(wrong); i++)
        CHECK_MSG(plain(wrong[i]) == 0, "'%s' is not JSON", wrong[i]);
    CHECK(judge(ARES_VIEW("1\0"), NULL, NULL) == 0);
    ares_str details = { 0 };
    judge(ARES_VIEW("[1,\n 2,]"), NULL, &details);
    CHECK_CONTAINS(details.data, "response:2:4: not JSON: ");
    CHECK_STR(ares_error_message(), "");
    ares_str_fini(&details);
}

TEST(the_last_closed_json_fence_can_be_judged)
{
    static const struct {
        const char *text;
        double score;
    } cases[] = {
        { "Here:\n```json\n{\"a\": 1}\n```\nDone.", 1 },
        { "```json\n{}\n```\n```json\n{\n```", 0 },
        { "```json\n{\n```\n```json\n{}\n```", 1 },
        { "```json\n{}\n```\n```c\n{\n```", 1 },
        { "```json\n{}", 0 },
        { "```json\n```", 0 },
        { "```json", 0 },
        { "```c\n```json\n{}\n```", 0 },
        { "{}", 0 },
        { "", 0 },
    };
    const char *const words[] = { "fenced=true", NULL };
    for (int i = 0; i < ARES_COUNT(cases); i++)
        CHECK_MSG(judge(ares_view_of(cases[i].text), words, NULL) == cases[i].score,
                  "'%s' should score %g", cases[i].text, cases[i].score);
    CHECK(plain("```json\n{}\n```") == 0);
}

TEST(a_schema_is_refused_with_the_options_there_are)
{
    CHECK(isnan(judge(ARES_VIEW("1"), (const char *const[]){ "schema=year.json", NULL }, NULL)));
    CHECK_CONTAINS(ares_error_message(), "schema: no such option");
    CHECK_CONTAINS(ares_error_message(), "fenced");
}

TEST(nesting_ends_at_512_levels)
{
    ares_str deep = nested(512, "[", "]"), too_deep = nested(513, "[", "]"),
             open = nested(1000000, "[", "");
    CHECK(plain(deep.data) == 1 && plain(too_deep.data) == 0 && plain(open.data) == 0);
    ares_str_fini(&deep);
    ares_str_fini(&too_deep);
    ares_str_fini(&open);
}
