/* Which answers count as repeating themselves. */
#include "test.h"

#include "report/report.h"

static bool repeats(const ares_str *text)
{
    return repetition_in(ares_str_view(text));
}

/* n characters of `word` again and again, after n_before that are all different in some way. */
static void fill(ares_str *text, int n_before, const char *word, int n)
{
    ares_str_clear(text);
    for (int i = 0; text->len < (size_t)n_before; i++)
        ares_str_addf(text, "%08x", (unsigned)i * 2654435761u);
    for (int i = 0; i < n; i++) ares_str_add_z(text, word);
}

TEST(answers_that_repeat_themselves_are_long_and_their_end_compresses_well)
{
    ares_str text = { 0 };
    if (!repetition_known()) SKIP("this build has no zlib");
    fill(&text, 0, "a", 10000);
    CHECK(!repeats(&text)); /* not longer */
    ares_str_add_char(&text, 'a');
    CHECK(repeats(&text));
    fill(&text, 16000, "", 0);
    CHECK(!repeats(&text));
    fill(&text, 16000, "again and ", 1000); /* only the end counts */
    CHECK(repeats(&text));
    ares_str_add_z(&text, "it ends well: ");
    for (int i = 0; i < 400; i++) ares_str_addf(&text, "%08x", (unsigned)i * 2654435761u);
    CHECK(!repeats(&text));
    /* characters, not bytes: 5001 of them are no more than 10000, 10001 are */
    fill(&text, 0, "\xc3\xa9", 5001);
    CHECK(!repeats(&text));
    fill(&text, 0, "\xc3\xa9", 10001);
    CHECK(repeats(&text));
    CHECK(!repetition_in((ares_view){ "", 0 }));
    ares_str_fini(&text);
}
