/* ares-train report: what it refuses, what fits into a page, and which answers it keeps. */
#include "test.h"

#include <stdio.h>
#include <unistd.h>

static void put(const char *name, const char *text)
{
    CHECK_OK(ares_file_write_atomic(test_file(name), text, strlen(text)));
}

/* Runs `ares-train report` in the test's directory; its exit code, and what it says into out. */
static int report(ares_str *out, const char *words)
{
    ares_str_clear(out);
    return test_shell(out, "cd '%s' && '%s' report %s 2>&1", test_dir(), test_program(), words);
}

TEST(a_directory_that_is_no_run_is_refused_and_nothing_is_written)
{
    ares_str said = { 0 };
    REQUIRE_OK(ares_dir_make(test_file("empty")));
    REQUIRE_OK(ares_dir_make(test_file("run")));
    put("run/metrics.jsonl", "{\"step\":1,\"reward/accuracy\":0.5}\n");
    static const struct {
        const char *words, *why;
    } cases[] = {
        { "", "no run directory is named" },
        { "empty", "report: 'empty': no metrics.jsonl: not a run directory" },
        { "run/metrics.jsonl", "report: 'run/metrics.jsonl': no metrics.jsonl: not a run" },
        { "run empty --out both.html", "report: 'empty': no metrics.jsonl" },
        { "run --budget-mb 0.1", "--budget-mb = 0.1: a page takes 0.5 to 1000 MB" },
        { "run --json --out x.html", "--json writes no page" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_EQ(report(&said, cases[i].words), 2);
        CHECK_CONTAINS(said.data, cases[i].why);
    }
    CHECK_EQ(report(&said, "run --out none/x.html"), 1);
    CHECK_CONTAINS(said.data, "none/x.html");
    CHECK_EQ(test_shell(NULL, "cd '%s' && test -z \"$(find . -name '*.html*')\"", test_dir()), 0);
    ares_str_fini(&said);
}

/* 12 steps of 6 groups, each with a spread of advantage of its own and a text of 2,000 bytes. */
static void put_rollouts(void)
{
    ares_str metrics = { 0 }, rows = { 0 };
    char name[64], text[2001];
    memset(text, 'x', 2000);
    text[2000] = 0;
    REQUIRE_OK(ares_dir_make(test_file("run/rollouts")));
    for (int s = 1; s <= 12; s++) {
        ares_str_addf(&metrics, "{\"step\":%d,\"reward/accuracy\":0.5}\n", s);
        ares_str_clear(&rows);
        for (int g = 0; g < 6; g++)
            for (int k = 0; k < 8; k++)
                ares_str_addf(&rows,
                              "{\"step\":%d,\"draw\":%d,\"sample\":%d,\"row\":%d,\"prompt\":\"p\","
                              "\"response\":\"%s%d\",\"accuracy\":1.0,\"advantage\":%d,"
                              "\"n_tokens\":5}\n",
                              s, g, k, g, text, k, k == 0 ? (g + s) % 6 : 0);
        snprintf(name, sizeof name, "run/rollouts/step_%06d.jsonl", s);
        put(name, rows.data);
    }
    put("run/metrics.jsonl", metrics.data);
    ares_str_fini(&metrics);
    ares_str_fini(&rows);
}

/* The page is held under its budget; what is in it is each step's widest groups, by rounds. */
TEST(a_page_keeps_the_widest_groups_of_every_step_and_its_budget)
{
    ares_str said = { 0 };
    REQUIRE_OK(ares_dir_make(test_file("run")));
    put_rollouts();
    CHECK_EQ(report(&said, "run --budget-mb 0.6 --out small.html"), 0);
    CHECK_EQ(test_shell(NULL, "test $(stat -c %%s '%s') -le 600000", test_file("small.html")), 0);
    ares_str_clear(&said);
    CHECK_EQ(test_shell(
                 &said,
                 "python3 - '%s' <<'END'\n"
                 "import json, re, sys\n"
                 "t = open(sys.argv[1], encoding='utf-8').read()\n"
                 "r = json.loads(re.search('id=\"data\">(.*?)</script>', t, re.S)[1])['runs'][0]\n"
                 "by = {}\n"
                 "for g in r['groups']:\n"
                 "    by.setdefault(g['step'], []).append(max(a['adv'] for a in g['answers']))\n"
                 "print(len(r['map']), sum(m[3] for m in r['map']) == len(r['groups']),\n"
                 "      r['groups_all'], sorted(by) == list(range(1, 13)),\n"
                 "      all(x == sorted(range(6), reverse=True)[:len(x)] for x in by.values()),\n"
                 "      max(map(len, by.values())) - min(map(len, by.values())) <= 1,\n"
                 "      [g['step'] for g in r['groups'][:3]])\n"
                 "END",
                 test_file("small.html")),
             0);
    CHECK_STR(said.data, "72 True 72 True True True [1, 12, 2]\n");
    /* all of them fit where there is room */
    CHECK_EQ(report(&said, "run"), 0);
    CHECK_STR(said.data, "report: run/report.html\n");
    ares_str_fini(&said);
}

/* A folder's name may hold what a terminal obeys; what cannot be written says where it can. */
TEST(names_of_any_bytes_and_folders_that_cannot_be_written)
{
    static const char name[] = "a\033[31m\nb";
    ares_str said = { 0 };
    char path[64];
    REQUIRE_OK(ares_dir_make(test_file(name)));
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    put(path, "{\"step\":1,\"reward/overall\":1}\n");
    CHECK_EQ(report(&said, "'a\033[31m\nb'"), 0);
    CHECK_STR(said.data, "report: a\\x1b[31m b/report.html\n");
    CHECK_EQ(test_shell(&said, "cd '%s' && '%s' compare 'a\033[31m\nb' 2>&1", test_dir(),
                        test_program()),
             0);
    CHECK_CONTAINS(said.data, "\n| a\\x1b[31m b ");
    CHECK_CONTAINS(said.data, "not finished: a\\x1b[31m b, step 1\n");
    CHECK(!strchr(said.data, '\033'));
    /* a folder of that name takes the temporary file's place: root may write everywhere else */
    REQUIRE_OK(ares_dir_make(test_file("full")));
    put("full/metrics.jsonl", "{\"step\":1}\n");
    REQUIRE_OK(ares_dir_make(test_file("full/report.html")));
    CHECK(report(&said, "full") != 0);
    CHECK_CONTAINS(said.data, "report: --out FILE writes it elsewhere: ");
    CHECK_EQ(report(&said, "full --out page.html"), 0);
    ares_str_fini(&said);
}

TEST(verdicts_come_as_json_for_scripts)
{
    ares_str said = { 0 };
    ares_arena arena = { 0 };
    const ares_json *line;
    REQUIRE_OK(ares_dir_make(test_file("run")));
    put("run/metrics.jsonl", "{\"step\":1,\"actor/skipped_updates\":1}\n{\"step\":2");
    CHECK_EQ(report(&said, "run --json"), 0);
    REQUIRE_OK(ares_json_parse(&arena, ares_str_view(&said), "line", &line));
    CHECK_STR(ares_json_get(line, "state")->text.data, "died");
    CHECK_STR(ares_json_get(line, "headline")->text.data,
              "1 step, without a validation at both ends");
    const ares_json *first = &ares_json_get(line, "verdicts")->items[0];
    CHECK_STR(ares_json_get(first, "id")->text.data, "gradient");
    CHECK_STR(ares_json_get(first, "level")->text.data, "bad");
    CHECK_CONTAINS(ares_json_get(line, "notes")->items[0].text.data, "metrics.jsonl:2:");
    ares_arena_fini(&arena);
    ares_str_fini(&said);
}
