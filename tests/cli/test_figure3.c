/* The figure of a sweep, on invented metrics, so that every point is known. */
#include <stdio.h>

#include "cli.h"
#include "test.h"

/* Metrics of a run: success rises by `slope` per step to step 6 and falls again, on top of 0.1. */
static void make_run(const char *name, double slope, int last, const char *done)
{
    char path[100];
    ares_str rows = { 0 };
    for (int i = 0; i <= last; i++) {
        ares_str_addf(&rows, "{\"step\":%d", i);
        if (i % 2 == 0)
            ares_str_addf(&rows, ",\"val-env/CoordSokoban/success\":%g",
                          0.1 + slope * ARES_MIN(i, 12 - i));
        if (i)
            ares_str_addf(&rows,
                          ",\"train/CoordSokoban/success\":%g,\"actor/entropy\":1.5,"
                          "\"rollout/filter_kept_ratio\":1",
                          0.1 + slope * ARES_MIN(i, 12 - i));
        ares_str_add_z(&rows, "}\n");
    }
    snprintf(path, sizeof path, "sweep/%s", name);
    CHECK_OK(ares_dir_make(test_file(path)));
    snprintf(path, sizeof path, "sweep/%s/metrics.jsonl", name);
    CHECK_OK(ares_file_write(test_file(path), rows.data, rows.len));
    snprintf(path, sizeof path, "sweep/%s/DONE", name);
    if (done) CHECK_OK(ares_file_write(test_file(path), done, strlen(done)));
    ares_str_fini(&rows);
}

/* Values 0, 0.1 and nofilter, two seeds each; one of 0.1 stops early, one of nofilter is missing.
 */
static void make_sweep(void)
{
    static const char *const runs[][2] = { { "a1", "0" }, { "b1", "0.1" }, { "c1", "nofilter" },
                                           { "a2", "0" }, { "b2", "0.1" }, { "c2", "nofilter" } };
    ares_str json = { 0 };
    make_run("a1", 0.05, 10, "{\"stopped\":null}");
    make_run("a2", 0.07, 10, "{\"stopped\":null}");
    make_run("b1", 0.04, 10, "{\"stopped\":null}");
    make_run("b2", 0.01, 6, "{\"stopped\":\"reward_variance_collapse\"}");
    make_run("c1", 0.02, 10, NULL);
    ares_str_add_z(&json, "{\"sweep\":\"a <b>\",\"from\":\"/nowhere\",\"parameters\":[\"top_p\"],"
                          "\"runs\":[");
    for (int i = 0; i < ARES_COUNT(runs); i++)
        ares_str_addf(&json, "%s{\"run\":\"%s\",\"variant\":\"%s\",\"run_dir\":\"sweep/%s\"}",
                      i ? "," : "", runs[i][0], runs[i][1], runs[i][0]);
    ares_str_add_z(&json, "]}\n");
    CHECK_OK(ares_file_write(test_file("sweep/sweep.json"), json.data, json.len));
    ares_str_fini(&json);
}

static int occurrences(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

/* Checks how many points the first thin line has, which begins at the end of a thick one. */
static void check_thin(const char *svg, int points)
{
    char begin[64];
    const char *thin = strstr(svg, "stroke-width=\"1\""), *d = thin ? strstr(thin, " d=\"M") : NULL;
    if (!CHECK(d)) return;
    const char *end = strchr(d + 4, '"'), *next = strpbrk(d + 5, "L\"");
    int n = 1;
    for (const char *at = d + 5; at < end; at++) n += *at == 'L';
    CHECK_EQ(n, points);
    snprintf(begin, sizeof begin, "L%.*s\"/>", (int)(next - d - 5), d + 5);
    CHECK_CONTAINS(svg, begin);
}

TEST(compare_draws_the_figure_of_a_sweep)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 }, svg = { 0 };
    make_sweep();
    CHECK_EQ(test_shell(&out, "cd '%s' && '%s' compare sweep 2>&1", test_dir(), test_program()), 0);
    /* best and last of each run: mean over seeds, lowest and highest */
    CHECK_CONTAINS(out.data, "| 0        | 2/2   | 0.460 (0.400 to 0.520)   | 0.220 (0.200 to "
                             "0.240)   | 0             |\n");
    CHECK_CONTAINS(out.data, "| 0.1      | 2/2   | 0.250 (0.160 to 0.340)   | 0.170 (0.160 to "
                             "0.180)   | 1             |\n");
    CHECK_CONTAINS(out.data, "| nofilter | 1/2   | 0.220                    | 0.140            "
                             "        | 0             |\n");
    CHECK_CONTAINS(out.data, "figure: sweep/figure3.svg");
    REQUIRE_OK(ares_file_read(test_file("sweep/figure3.svg"), &svg));
    CHECK_CONTAINS(svg.data, "<title>a &lt;b&gt;</title>");
    CHECK_CONTAINS(svg.data, "band: lowest to highest");
    CHECK_CONTAINS(svg.data, ">val-env/CoordSokoban/success (share of episodes)</text>");
    CHECK_CONTAINS(svg.data, ">best and last</text>");
    CHECK_CONTAINS(svg.data, ">train/CoordSokoban/success (share of episodes)</text>");
    CHECK_CONTAINS(svg.data, ">actor/entropy (nats)</text>");
    CHECK(!strstr(svg.data, "kl_loss") && !strstr(svg.data, "kept_ratio")); /* always 1 */
    /* in each of the four panels the run that was stopped has its cross */
    CHECK_EQ(occurrences(svg.data, "class=\"stopped\""), 4);
    CHECK_CONTAINS(svg.data, "×: stopped early");
    /* the other seed of 0.1 goes on alone */
    CHECK_EQ(occurrences(svg.data, "stroke-width=\"1\""), 3);
    CHECK_CONTAINS(svg.data, "; thin: one seed, others ended");
    check_thin(svg.data, 3); /* steps 6, 8 and 10 */
    /* the values' names, below the panel and in the legend */
    CHECK_EQ(occurrences(svg.data, ">nofilter</text>"), 2);
    CHECK(!strstr(svg.data, "nan") && !strstr(svg.data, "inf"));
    CHECK_EQ(test_shell(&out,
                        "python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' '%s' "
                        "2>&1 || ! command -v python3",
                        test_file("sweep/figure3.svg")),
             0);
    /* the folder as a whole may be moved */
    CHECK_EQ(test_shell(&out, "cd '%s' && mv sweep moved && '%s' compare moved 2>&1", test_dir(),
                        test_program()),
             0);
    CHECK_CONTAINS(out.data, "| 0.1      | 2/2   | 0.250 (0.160 to 0.340)");
    ares_str_fini(&out);
    ares_str_fini(&svg);
}

/* The metric that is named takes the place of success; a name that no run has is an error. */
TEST(compare_draws_the_metric_that_is_named_of_a_sweep)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 }, svg = { 0 };
    make_sweep();
    CHECK_EQ(test_shell(&out, "cd '%s' && '%s' compare --metric actor/entropy sweep 2>&1",
                        test_dir(), test_program()),
             0);
    CHECK_CONTAINS(out.data, "\nactor/entropy: mean over seeds");
    CHECK_CONTAINS(out.data, "| highest ");
    REQUIRE_OK(ares_file_read(test_file("sweep/figure3.svg"), &svg));
    CHECK_CONTAINS(svg.data, ">actor/entropy (nats)</text>");
    CHECK_CONTAINS(svg.data, ">highest and last</text>");
    CHECK(!strstr(svg.data, "success"));
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "cd '%s' && '%s' compare --metric actor/entropi sweep 2>&1",
                        test_dir(), test_program()),
             2);
    CHECK_CONTAINS(out.data, "'actor/entropi': no run has it");
    CHECK_CONTAINS(out.data, "did you mean 'actor/entropy'?");
    CHECK_EQ(test_shell(&out, "cd '%s' && '%s' compare --columns actor/entropy sweep 2>&1",
                        test_dir(), test_program()),
             2);
    ares_str_fini(&out);
    ares_str_fini(&svg);
}

/* <name>/metrics.jsonl of these lines, below a folder that is made. */
static void write_run(const char *name, const char *lines)
{
    char path[100];
    CHECK_OK(ares_dir_make(test_file(name)));
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    CHECK_OK(ares_file_write(test_file(path), lines, strlen(lines)));
}

/* Runs compare on other/ with this sweep.json, and reads its figure where there is one. */
static int compare_other(const char *json, const char *words, ares_str *out, ares_str *svg)
{
    ares_str_clear(out);
    ares_str_clear(svg);
    CHECK_OK(ares_dir_make(test_file("other")));
    CHECK_OK(ares_file_write(test_file("other/sweep.json"), json, strlen(json)));
    test_shell(NULL, "rm -f '%s'", test_file("other/figure3.svg"));
    int rc =
        test_shell(out, "cd '%s' && '%s' compare %s other 2>&1", test_dir(), test_program(), words);
    if (ares_file_exists(test_file("other/figure3.svg")))
        CHECK_OK(ares_file_read(test_file("other/figure3.svg"), svg));
    return rc;
}

/*
 * Six tags of which the first four have panels, a share of kept groups below 1 in one run, a value
 * of which nothing was logged, and two seeds without a step in common.
 */
TEST(a_figure_has_the_panels_of_what_was_logged)
{
    static const char json[] =
        "{\"sweep\":\"s\",\"parameters\":[\"a\",\"b\"],\"runs\":["
        "{\"run\":\"r1\",\"variant\":\"x\",\"run_dir\":\"nowhere/r1\"},"
        "{\"run\":\"r2\",\"variant\":\"x\",\"run_dir\":\"nowhere/r2\"},"
        "{\"run\":\"r3\",\"variant\":\"nothing\",\"run_dir\":\"nowhere/r3\"},"
        "{\"run\":\"r4\",\"variant\":\"only_start\",\"run_dir\":\"nowhere/r4\"}]}";
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 }, svg = { 0 };
    /* found beside sweep.json by their names; what an earlier pattern has hides later ones */
    write_run("other/r1",
              "{\"step\":1,\"val-env/A/success\":0.25,\"val-env/B/success\":0.5,\"val-env/C/"
              "success\":0.5,\"val-env/D/success\":0.5,\"val-env/E/success\":0.5,\"val-env/F/"
              "success\":0.5,\"val-env/A/x/success\":1,\"reward/overall\":3,"
              "\"val/accuracy\":0.125,\"rollout/filter_kept_ratio\":1}\n"
              "{\"step\":3,\"val-env/A/success\":0.125,\"rollout/filter_kept_ratio\":0.5}\n");
    write_run("other/r2", "{\"step\":2,\"val-env/A/success\":0.75,\"reward/accuracy\":0.5}\n"
                          "{\"step\":4,\"val-env/A/success\":0.5}\n");
    write_run("other/r3", "{\"step\":1,\"loss\":1}\n");
    write_run("other/r4", "{\"step\":0,\"val-env/A/success\":0.375}\n");
    CHECK_EQ(compare_other(json, "--smooth 1", &out, &svg), 0);
    CHECK_CONTAINS(out.data, "\nval-env/A/success: mean over seeds (lowest to highest)\n");
    CHECK_CONTAINS(out.data, "| value      | runs  | best ");
    CHECK_CONTAINS(out.data, "| x          | 2/2   | 0.500 (0.250 to 0.750)   | 0.312 (0.125 to "
                             "0.500)   | 0             |\n");
    CHECK_CONTAINS(out.data, "| nothing    | 0/1   | -                        | -              ");
    CHECK_CONTAINS(out.data, "| only_start | 1/1   | 0.375                    | 0.375          ");
    for (const char *tag = "ABCD"; *tag; tag++) {
        char title[64];
        snprintf(title, sizeof title, ">val-env/%c/success (share of episodes)</text>", *tag);
        CHECK_CONTAINS(svg.data, title);
    }
    CHECK(!strstr(svg.data, "val-env/E") && !strstr(svg.data, "A/x"));
    CHECK(!strstr(svg.data, "val/accuracy") && !strstr(svg.data, "reward/overall"));
    CHECK_CONTAINS(svg.data, ">reward/accuracy (share of answers right)</text>");
    CHECK_CONTAINS(svg.data, ">rollout/filter_kept_ratio (share)</text>");
    CHECK_EQ(occurrences(svg.data, ">best and last</text>"), 1);
    /* the two seeds of x share no step: two thin lines in the first panel, no band of both */
    CHECK_EQ(occurrences(svg.data, "stroke-width=\"1\""), 2);
    CHECK_CONTAINS(svg.data, ">mean of seeds, band: lowest to highest; thin: one seed, others "
                             "ended</text>");
    CHECK(!strstr(svg.data, "stopped early") && !strstr(svg.data, "nan"));
    CHECK_CONTAINS(svg.data, "<title>s</title>");
    CHECK_EQ(compare_other(json, "--title 'T & t' --smooth 2 --svg named.svg", &out, &svg), 0);
    CHECK_CONTAINS(out.data, "figure: named.svg\n");
    CHECK_EQ(svg.len, 0); /* none in the folder */
    ares_str_clear(&svg);
    REQUIRE_OK(ares_file_read(test_file("named.svg"), &svg));
    CHECK_CONTAINS(svg.data, "<title>T &amp; t</title>");
    CHECK_CONTAINS(svg.data, "; training: mean over 2 steps</text>");
    CHECK_EQ(compare_other(json, "--columns loss", &out, &svg), 2);
    CHECK_CONTAINS(out.data, "compare: --columns: 'other' is the folder of a sweep");
    CHECK_EQ(compare_other(json, "other/r1", &out, &svg), 2);
    CHECK_CONTAINS(out.data, "compare: 'other': no metrics.jsonl there");
    CHECK_EQ(compare_other(json, "--x loss", &out, &svg), 2);
    CHECK_CONTAINS(out.data, "compare: --x: 'other' is the folder of a sweep");
    ares_str_fini(&out);
    ares_str_fini(&svg);
}

/* Runs are looked for where they were, then below `from`, then beside the list. */
TEST(a_sweep_is_read_where_its_runs_are_and_with_what_it_says)
{
    static const char named[] =
        "{\"sweep\":\"s\",\"from\":\"there\",\"parameters\":[\"a\"],\"runs\":["
        "{\"run\":\"r1\",\"variant\":\"1\",\"run_dir\":\"p/r1\"},"
        "{\"run\":\"r2\",\"variant\":\"2\",\"run_dir\":\"p/r2\"},"
        "{\"run\":\"r3\",\"variant\":\"3\",\"run_dir\":\"p/r3\"}]}";
    static const struct {
        const char *json, *why;
    } bad[] = {
        { "{\"runs\":[]}", "not a sweep's list of runs" },
        { "{\"sweep\":1,\"runs\":[]}", "not a sweep's list of runs" },
        { "{\"sweep\":\"s\"}", "not a sweep's list of runs" },
        { "{\"sweep\":\"s\",\"runs\":{}}", "not a sweep's list of runs" },
        { "{\"sweep\":\"s\",\"runs\":[]}", "no run of the sweep has metrics to show yet" },
        { "{\"sweep\":\"s\",\"runs\":[{\"run\":\"bare\",\"variant\":\"1\",\"run_dir\":\"p\"}]}",
          "no run of the sweep has metrics to show yet" },
        { "{\"sweep\":\"s\",\"runs\":[{\"run\":\"r\",\"variant\":\"1\"}]}",
          "runs.0: needs run, variant and run_dir" },
        { "{\"sweep\":\"s\",\"runs\":[{\"run\":\"r\",\"run_dir\":\"p\"}]}",
          "runs.0: needs run, variant and run_dir" },
        { "{\"sweep\":\"s\",\"runs\":[{\"run\":\"r\",\"variant\":\"1\",\"run_dir\":"
          "\"p\"},{\"variant\":\"1\",\"run_dir\":\"p\"}]}",
          "runs.1: needs run, variant and run_dir" },
    };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 }, svg = { 0 };
    write_run("p/r1", "{\"step\":1,\"val/accuracy\":0.125}\n");
    write_run("there/p/r1", "{\"step\":1,\"val/accuracy\":0.5}\n");
    write_run("there/p/r2", "{\"step\":1,\"val/accuracy\":0.25}\n");
    write_run("other/r2", "{\"step\":1,\"val/accuracy\":0.5}\n");
    write_run("other/r3", "{\"step\":1,\"val/accuracy\":0.375}\n");
    write_run("other/bare", "{\"step\":1,\"loss\":0.375}\n");
    CHECK_EQ(compare_other(named, "--smooth 1", &out, &svg), 0);
    CHECK_CONTAINS(out.data, "| a | runs  | best ");
    CHECK_CONTAINS(out.data, "| 1 | 1/1   | 0.125 ");
    CHECK_CONTAINS(out.data, "| 2 | 1/1   | 0.250 ");
    CHECK_CONTAINS(out.data, "| 3 | 1/1   | 0.375 ");
    CHECK_CONTAINS(svg.data, ">one run per value</text>");
    for (int i = 0; i < ARES_COUNT(bad); i++) {
        CHECK(compare_other(bad[i].json, "", &out, &svg) != 0);
        CHECK_CONTAINS(out.data, bad[i].why);
    }
    ares_str_fini(&out);
    ares_str_fini(&svg);
}

/* Words among numbers are black; where half are words, all have a colour, every second one dashes.
 */
TEST(values_that_are_words_stand_out_among_numbers)
{
    static const struct {
        const char *values[3];
        int black, dashed;
    } cases[] = {
        { { "0", "0.5", "none" }, 1, 1 },
        { { "1", "none", "all" }, 0, 1 },
        { { "1", "2", "3" }, 0, 1 },
        { { "all", "none", "some" }, 0, 1 },
    };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 }, svg = { 0 }, json = { 0 };
    write_run("other/r", "{\"step\":1,\"actor/entropy\":0.125}\n"
                         "{\"step\":2,\"actor/entropy\":0.25}\n");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&json);
        ares_str_add_z(&json, "{\"sweep\":\"s\",\"runs\":[");
        for (int k = 0; k < 3; k++)
            ares_str_addf(&json, "%s{\"run\":\"r\",\"variant\":\"%s\",\"run_dir\":\"none\"}",
                          k ? "," : "", cases[i].values[k]);
        ares_str_add_z(&json, "]}");
        CHECK_EQ(compare_other(json.data, "--smooth 1", &out, &svg), 0);
        CHECK_EQ(occurrences(svg.data, "stroke=\"#000000\"") > 0, cases[i].black);
        CHECK_EQ(occurrences(svg.data, "stroke-dasharray=\"2 3\"") > 0, cases[i].black);
        CHECK_EQ(occurrences(svg.data, "stroke-dasharray=\"8 3\"") > 0, cases[i].dashed);
        CHECK(occurrences(svg.data, "stroke-dasharray=\"\"") > 0);
        /* colours go to the end of their range whatever there is beside them */
        CHECK_CONTAINS(svg.data, "#440154");
        CHECK_CONTAINS(svg.data, "#d69600");
        /* only success has a table, and a panel of best and last */
        CHECK(!strstr(out.data, "mean over seeds") && !strstr(svg.data, "best and last"));
    }
    ares_str_fini(&out);
    ares_str_fini(&svg);
    ares_str_fini(&json);
}

/* Validations are few: their curves are drawn as they are, those of training over a window. */
TEST(curves_of_validations_are_not_smoothed)
{
    static const char json[] = "{\"sweep\":\"s\",\"runs\":[{\"run\":\"r\",\"variant\":\"1\","
                               "\"run_dir\":\"none\"}]}";
    static const char *const metrics[] = { "val/accuracy", "actor/entropy" };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 }, plain = { 0 }, smooth = { 0 };
    for (int i = 0; i < 2; i++) {
        char rows[300];
        snprintf(rows, sizeof rows,
                 "{\"step\":1,\"%s\":0}\n{\"step\":2,\"%s\":0.5}\n{\"step\":3,\"%s\":0}\n",
                 metrics[i], metrics[i], metrics[i]);
        write_run("other/r", rows);
        CHECK_EQ(compare_other(json, "--smooth 1", &out, &plain), 0);
        CHECK_EQ(compare_other(json, "--smooth 2", &out, &smooth), 0);
        const char *a = strstr(plain.data, "<path fill=\"none\""),
                   *b = strstr(smooth.data, "<path fill=\"none\"");
        REQUIRE(a && b);
        CHECK_EQ(strcmp(a, b) == 0, i == 0);
        CHECK(!strstr(plain.data, "training: mean over"));
        /* a run that was stopped has a cross; what DONE says that is no reason has none */
        static const char *const dones[] = { "{\"stopped\":\"x\"}", "{\"stopped\":5}", "{\"stop" };
        for (int k = 0; k < ARES_COUNT(dones); k++) {
            CHECK_OK(ares_file_write(test_file("other/r/DONE"), dones[k], strlen(dones[k])));
            CHECK_EQ(compare_other(json, "--smooth 1", &out, &plain), 0);
            CHECK_EQ(strstr(plain.data, "stopped early") != NULL, k == 0);
        }
        CHECK_EQ(test_shell(NULL, "rm '%s'", test_file("other/r/DONE")), 0);
    }
    ares_str_fini(&out);
    ares_str_fini(&plain);
    ares_str_fini(&smooth);
}

TEST(the_untrained_model_is_not_the_best_of_a_run)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    static const char rows[] = "{\"step\":0,\"val/accuracy\":0.9}\n"
                               "{\"step\":1,\"val/accuracy\":0.5}\n"
                               "{\"step\":2,\"val/accuracy\":0.25}\n",
                      json[] = "{\"sweep\":\"x\",\"parameters\":[\"lr\"],\"runs\":[{\"run\":\"r\","
                               "\"variant\":\"0\",\"run_dir\":\"r\"}]}";
    CHECK_OK(ares_dir_make(test_file("worse/r")));
    CHECK_OK(ares_file_write(test_file("worse/sweep.json"), json, sizeof json - 1));
    CHECK_OK(ares_file_write(test_file("worse/r/metrics.jsonl"), rows, sizeof rows - 1));
    CHECK_EQ(test_shell(&out, "cd '%s' && '%s' compare worse 2>&1", test_dir(), test_program()), 0);
    CHECK_CONTAINS(out.data, "| 0.500                    | 0.250 ");
    ares_str_fini(&out);
}

TEST(a_sweep_without_metrics_has_no_figure)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    CHECK_OK(ares_dir_make(test_file("sweep")));
    static const char json[] = "{\"sweep\":\"x\",\"parameters\":[],\"runs\":[{\"run\":\"r\","
                               "\"variant\":\"0\",\"run_dir\":\"r\"}]}";
    CHECK_OK(ares_file_write(test_file("sweep/sweep.json"), json, sizeof json - 1));
    CHECK_EQ(test_shell(&out, "cd '%s' && '%s' compare sweep 2>&1", test_dir(), test_program()), 2);
    CHECK_CONTAINS(out.data, "no run of the sweep has metrics to show yet");
    CHECK_OK(ares_file_write(test_file("sweep/sweep.json"), json, 30));
    CHECK(test_shell(&out, "cd '%s' && '%s' compare sweep 2>&1", test_dir(), test_program()) != 0);
    CHECK_CONTAINS(out.data, "sweep/sweep.json:1:");
    ares_str_fini(&out);
}

TEST(colours_of_ordered_values_go_from_dark_to_light)
{
    char first[8], middle[8], last[8];
    figure_ordered_colour(0, 6, first);
    figure_ordered_colour(3, 7, middle);
    figure_ordered_colour(5, 6, last);
    CHECK_STR(first, "#440154");
    CHECK_STR(middle, "#21918c");
    CHECK_STR(last, "#d69600");
}
