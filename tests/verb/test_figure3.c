/* The figure of a sweep, on invented metrics, so that every point is known. */
#include <stdio.h>

#include "figure.h"
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
