/*
 * ares-train compare on invented metrics, so that every number of the table and every point of the
 * picture is known.
 */
#include <stdio.h>

#include "cli.h"
#include "test.h"

static int spent = 10;

/*
 * <name>/metrics.jsonl: accuracy base + slope x step at steps 1 to 4, `spent` tokens per step, a
 * validation at both ends.
 */
static void make_run(const char *name, double base, double slope, bool done)
{
    char path[64];
    ares_str rows = { 0 };
    ares_str_addf(&rows, "{\"step\":0,\"val/accuracy\":%g}\n", base);
    for (int i = 1; i <= 4; i++)
        ares_str_addf(&rows, "{\"step\":%d,\"reward/accuracy\":%g,\"tokens\":%d%s}\n", i,
                      base + slope * i, spent, i == 4 ? ",\"val/accuracy\":0.5" : "");
    if (!done)
        ares_str_add_z(&rows, "{\"step\":5,\"reward/acc"); /* a line that the run is writing */
    CHECK_OK(ares_dir_make(test_file(name)));
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    CHECK_OK(ares_file_write(test_file(path), rows.data, rows.len));
    snprintf(path, sizeof path, "%s/DONE", name);
    if (done) CHECK_OK(ares_file_write(test_file(path), "", 0));
    ares_str_fini(&rows);
}

static int compare(ares_str *out, const char *words)
{
    ares_str_clear(out);
    return test_shell(out, "cd '%s' && '%s' compare %s 2>&1", test_dir(), test_program(), words);
}

static bool has_program(void)
{
    return ares_file_exists(test_program());
}

TEST(compare_tells_means_deviations_and_paired_differences)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    make_run("a1", 0.1, 0.1, true);
    make_run("a2", 0.2, 0.1, true);
    make_run("b1", 0.1, 0.05, true);
    make_run("b2", 0.2, 0.05, false);
    CHECK_EQ(
        compare(
            &out,
            "--last 2 --columns val/accuracy,sum:tokens,none full=a1 full=a2 plain=b1 plain=b2"),
        0);
    /* (0.45 + 0.55) / 2 */
    CHECK_CONTAINS(out.data, "| full      | 2    | 0.500 ± 0.071    | 0.500 ± 0.000    | 40.00 ± "
                             "0.00     | -                |\n");
    CHECK_CONTAINS(out.data, "| plain     | 2    | 0.325 ± 0.071 ");
    CHECK_CONTAINS(out.data, "| less full | runs |");
    /* the difference run by run does not depend on the seed */
    CHECK_CONTAINS(out.data, "| plain     | 2    | -0.175 ± 0.000 ");
    CHECK_CONTAINS(out.data, "not finished: b2, step 4\n");
    CHECK(!strstr(out.data, "not finished: b1"));
    CHECK_EQ(compare(&out, "--last 1 a1"), 0);
    CHECK_CONTAINS(out.data, "| a1      | 1    | 0.500            |");
    ares_str_fini(&out);
}

TEST(compare_refuses_a_metric_that_no_run_has_and_names_one_like_it)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    make_run("a", 0.1, 0.1, true);
    CHECK_EQ(compare(&out, "--metric reward/acuracy a"), 2);
    CHECK_CONTAINS(out.data, "compare: --metric = 'reward/acuracy': no run has it in its "
                             "metrics.jsonl; did you mean 'reward/accuracy'?");
    ares_str_fini(&out);
}

/* <name>/metrics.jsonl of these lines. */
static void write_run(const char *name, const char *lines)
{
    char path[64];
    CHECK_OK(ares_dir_make(test_file(name)));
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    CHECK_OK(ares_file_write(test_file(path), lines, strlen(lines)));
}

/* Runs that end at different steps, a metric that not every step has, and a step that was done
 * twice. */
TEST(compare_takes_the_last_steps_of_each_run_and_the_last_value_of_each_step)
{
    static const char rows[] = "{\"step\":1,\"reward/accuracy\":0.1,\"cost\":-3}\n"
                               "{\"step\":2,\"reward/accuracy\":0.2,\"big\":1000}\n"
                               "{\"step\":3,\"reward/accuracy\":0.5,\"cost\":-5}\n"
                               "{\"step\":3,\"reward/accuracy\":0.4,\"cost\":-15}\n"
                               "{\"step\":4,\"reward/accuracy\":0.8,\"big\":500.5}\n"
                               "{\"step\":5,\"reward/accuracy\":0.9}\n"
                               "{\"step\":6,\"reward/accuracy\":0.3,\"cost\":-100}\n";
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    write_run("p", rows);
    write_run("q", "{\"step\":1,\"reward/accuracy\":0.25,\"cost\":0}\n"
                   "{\"step\":2,\"reward/accuracy\":0.5,\"cost\":8,\"big\":20}\n"
                   "{\"step\":3,\"reward/accuracy\":1,\"big\":30}\n");
    CHECK_EQ(compare(&out, "--last 2 --columns cost,big,sum:cost,sum:big p q"), 0);
    CHECK_CONTAINS(out.data,
                   "| variant | runs | reward/accuracy  | cost             | big          "
                   "    | sum:cost         | sum:big          |\n");
    CHECK_CONTAINS(out.data,
                   "| p       | 1    | 0.600            | -100.0           | -            "
                   "    | -118.0           | 1500             |\n");
    CHECK_CONTAINS(out.data,
                   "| q       | 1    | 0.750            | 8.000            | 25.00        "
                   "    | 8.000            | 50.00            |\n");
    CHECK_CONTAINS(out.data, "| less p  | runs |");
    CHECK_CONTAINS(out.data,
                   "| q       | 1    | +0.150           | +108.0           | -            "
                   "    | +126.0           | -1450            |\n");
    CHECK_CONTAINS(out.data, "not finished: p, step 6\nnot finished: q, step 3\n");
    /* four steps: those of p from 3 on */
    CHECK_EQ(compare(&out, "--last 4 --metric cost --columns big p"), 0);
    CHECK_CONTAINS(out.data, "| p       | 1    | -57.50           | 500.5            |\n");
    /* a variant of two runs between variants of one is a line without a difference */
    CHECK_EQ(compare(&out, "--last 1 --columns cost x=p two=p two=q z=q"), 0);
    CHECK_CONTAINS(out.data, "| two     | 2    | 0.650 ± 0.495    | ");
    CHECK_CONTAINS(out.data, "| z       | 1    | +0.700           |");
    CHECK(strstr(out.data, "| two ") == strstr(strstr(out.data, "| x "), "| two "));
    CHECK(!strstr(strstr(out.data, "less x"), "| two "));
    ares_str_fini(&out);
}

/* The first curve of a figure. */
static void curve_of(const char *words, ares_str *path)
{
    ares_str out = { 0 }, svg = { 0 };
    CHECK_EQ(compare(&out, words), 0);
    ares_str_clear(path);
    if (CHECK_OK(ares_file_read(test_file("c.svg"), &svg))) {
        const char *at = strstr(svg.data, "<path fill=\"none\" stroke=");
        if (CHECK(at != NULL)) ares_str_add(path, at, strcspn(at, ">"));
    }
    ares_str_fini(&out), ares_str_fini(&svg);
}

TEST(a_smoothed_curve_is_that_of_the_means_over_steps_that_went_before)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str smoothed = { 0 }, means = { 0 };
    write_run("v", "{\"step\":1,\"a\":0}\n{\"step\":2,\"a\":1}\n{\"step\":4,\"a\":0.5}\n"
                   "{\"step\":5,\"a\":0}\n{\"step\":6,\"b\":0}\n");
    write_run("w", "{\"step\":1,\"a\":0}\n{\"step\":2,\"a\":0.5}\n{\"step\":4,\"a\":0.5}\n"
                   "{\"step\":5,\"a\":0.5}\n");
    curve_of("--metric a --svg c.svg --smooth 3 v", &smoothed);
    curve_of("--metric a --svg c.svg --smooth 1 w", &means);
    CHECK_STR(smoothed.data, means.data);
    /* of two runs the steps that both have: 2 and 5 */
    int points = 0;
    write_run("u", "{\"step\":2,\"a\":0}\n{\"step\":3,\"a\":9}\n{\"step\":5,\"a\":1}\n");
    curve_of("--metric a --svg c.svg --smooth 1 x=v x=u", &means);
    for (const char *c = strstr(means.data, " d="); c && *c; c++) points += *c == 'M' || *c == 'L';
    CHECK_EQ(points, 2);
    ares_str_fini(&smoothed), ares_str_fini(&means);
}

/* Rows without a step or with values that are no numbers, and a step that is written twice. */
TEST(compare_reads_numbers_of_metrics_and_refuses_rows_that_are_none)
{
    static const struct {
        const char *rows, *cell;
    } cases[] = {
        { "{\"step\":1,\"a\":\"9\"}\n{\"step\":2,\"a\":null}\n{\"a\":7}\n{\"step\":2,\"a\":3}\n"
          "{\"step\":3,\"a\":[5]}\n{\"step\":3,\"a\":true}\n{\"step\":3,\"a\":0.5}\n",
          "| 1.750            |" },
        { "{\"step\":1,\"a\":4}\n{\"step\":1,\"a\":2}\n{\"step\":2,\"b\":0}\n",
          "| 2.000            |" },
        { "{\"step\":1,\"a\":4}\nno\n{\"step\":2,\"a\":1}\n", "metrics.jsonl:1:" },
        { "{\"step\":1,\"a\":4}\n{\"step\":\"x\",\"a\":1}\n{\"step\":3,\"a\":1}\n", "'step'" },
        { "", "| -                |" },
    };
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        write_run("m", cases[i].rows);
        compare(&out, i < 2 ? "--metric a m" : "--columns a m");
        CHECK_CONTAINS(out.data, cases[i].cell);
    }
    /* what DONE says of a run that was stopped is not needed for its numbers */
    static const char *const dones[] = { "", "{", "{\"stopped\":5}", "{\"stopped\":\"x\"}" };
    write_run("m", cases[1].rows);
    for (int i = 0; i < ARES_COUNT(dones); i++) {
        CHECK_OK(ares_file_write(test_file("m/DONE"), dones[i], strlen(dones[i])));
        CHECK_EQ(compare(&out, "--metric a m"), 0);
        CHECK_CONTAINS(out.data, cases[1].cell);
        CHECK(!strstr(out.data, "not finished"));
    }
    ares_str_fini(&out);
}

TEST(compare_refuses_what_it_cannot_read)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    make_run("a1", 0.1, 0.1, true);
    CHECK_EQ(compare(&out, ""), 2);
    CHECK_CONTAINS(out.data, "compare: no run directory is named");
    CHECK_EQ(compare(&out, "x=nowhere"), 2);
    CHECK_CONTAINS(out.data, "compare: 'nowhere': no metrics.jsonl there");
    CHECK_EQ(compare(&out, "a1 --metric reward/acuracy --svg x.svg"), 2);
    CHECK_CONTAINS(out.data, "--metric = 'reward/acuracy': no run has it");
    CHECK(!ares_file_exists(test_file("x.svg")));
    CHECK_EQ(compare(&out, "a1 --last 0"), 2);
    ares_str_fini(&out);
}

TEST(compare_draws_what_the_runs_have_in_common)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 }, svg = { 0 };
    make_run("a1", 0, 0.1, true);
    make_run("a2", 0, 0.3, true);
    CHECK_EQ(compare(&out, "--smooth 1 --title 'A <b> & c' --svg x.svg a=a1 a=a2"), 0);
    CHECK_CONTAINS(out.data, "figure: x.svg");
    REQUIRE_OK(ares_file_read(test_file("x.svg"), &svg));
    CHECK_CONTAINS(svg.data, "<title>A &lt;b&gt; &amp; c</title>");
    CHECK_CONTAINS(svg.data, ">a (2 runs)</text>");
    CHECK_CONTAINS(svg.data, ">training step</text>");
    CHECK_CONTAINS(svg.data, ">reward/accuracy (share of answers right)</text>");
    CHECK_EQ(test_shell(&out,
                        "python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' '%s' "
                        "2>&1 || ! command -v python3",
                        test_file("x.svg")),
             0);
    ares_str_fini(&out);
    ares_str_fini(&svg);
}

TEST(compare_draws_the_standard_error_of_the_mean)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 }, svg = { 0 };
    make_run("a1", 0, 0.1, true);
    make_run("a2", 0, 0.2, true);
    make_run("a3", 0, 0.3, true);
    CHECK_EQ(compare(&out, "--smooth 1 --band error --svg x.svg a=a1 a=a2 a=a3"), 0);
    REQUIRE_OK(ares_file_read(test_file("x.svg"), &svg));
    CHECK_CONTAINS(svg.data, "band: its standard error</text>");
    /* step 4: 0.8 with deviation 0.4, so 0.231 up and down, where 0.569 lies just above the middle
     */
    CHECK_CONTAINS(svg.data, "L716.0 77.3L716.0 250.6L");
    CHECK_EQ(compare(&out, "--band deviation --svg y.svg a1"), 2);
    CHECK_CONTAINS(out.data, "--band");
    CHECK(!ares_file_exists(test_file("y.svg")));
    ares_str_fini(&out);
    ares_str_fini(&svg);
}

TEST(compare_draws_over_what_was_spent)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 }, svg = { 0 };
    make_run("a1", 0, 0.1, true);
    spent = 30;
    make_run("a2", 0, 0.3, true);
    spent = 10;
    CHECK_EQ(compare(&out, "--smooth 1 --x tokens --svg x.svg a=a1 a=a2"), 0);
    REQUIRE_OK(ares_file_read(test_file("x.svg"), &svg));
    CHECK_CONTAINS(svg.data, ">total of tokens</text>");
    CHECK_CONTAINS(svg.data, ">20</text>"); /* the mean of 10 and 30 */
    CHECK_CONTAINS(svg.data, ">80</text>"); /* of 4 steps */
    CHECK(!strstr(svg.data, "training step"));
    CHECK_EQ(compare(&out, "--x token --svg y.svg a1"), 2);
    CHECK_CONTAINS(out.data, "--x = 'token': no run has it");
    CHECK(!ares_file_exists(test_file("y.svg")));
    ares_str_fini(&out);
    ares_str_fini(&svg);
}

TEST(a_figure_has_its_points_where_the_numbers_are)
{
    const double x[] = { 0, 10 }, mid[] = { 0, 1 }, low[] = { 0, 0.5 }, high[] = { 0.5, 1 },
                 none[] = { 3 };
    const figure_curve curves[] = {
        { .name = "line", .n = 2, .x = x, .mid = mid, .low = low, .high = high },
        { .name = "dot", .n = 1, .x = x, .mid = none, .low = none, .high = none },
        { .name = "nothing" }
    };
    ares_str svg = { 0 };
    figure_write_svg(&(figure){ .title = "t",
                                .subtitle = "s",
                                .x_label = "x",
                                .y_label = "y",
                                .curves = curves,
                                .n_curves = 1 },
                     &svg);
    /* 0 at the bottom, 1 just below the top */
    CHECK_CONTAINS(svg.data, "d=\"M76.0 424.0L716.0 77.8\"");
    CHECK(!strstr(svg.data, ">-0<"));
    /* up along high, back along low */
    CHECK_CONTAINS(svg.data, "d=\"M76.0 250.9L716.0 77.8L716.0 250.9L76.0 424.0Z\"");
    CHECK_CONTAINS(svg.data, "fill-opacity=\"0.14\"");
    ares_str_clear(&svg);
    figure_curve many[6]; /* their bands lie on each other */
    for (int i = 0; i < 6; i++) many[i] = curves[0];
    figure_write_svg(&(figure){ .title = "t",
                                .subtitle = "s",
                                .x_label = "x",
                                .y_label = "y",
                                .curves = many,
                                .n_curves = 6 },
                     &svg);
    CHECK_CONTAINS(svg.data, "fill-opacity=\"0.07\"");
    ares_str_clear(&svg);
    figure_write_svg(&(figure){ .title = "t",
                                .subtitle = "s",
                                .x_label = "x",
                                .y_label = "y",
                                .curves = curves + 1,
                                .n_curves = 2 },
                     &svg);
    CHECK_CONTAINS(svg.data, "<circle ");
    CHECK_CONTAINS(svg.data, ">nothing</text>");
    CHECK(!strstr(svg.data, "nan") && !strstr(svg.data, "inf"));
    ares_str_fini(&svg);
}

TEST(compare_shows_names_columns_and_runs_of_every_shape)
{
    static const struct {
        const char *words, *parts[4], *absent;
    } cases[] = {
        /* one run has nothing to be compared with, nor have two of another number of runs */
        { "a1", { "| a1      | 1    | 0.350            | -                    |\n" }, "less" },
        { "--last 1 x=a1 x=a2 y=a1", { "| x       | 2    | 0.550 ± 0.071    |" }, "less" },
        { "--last 1 x=a1 x=a1 y=a1 y=a2", { "| y       | 2    | +0.050 ± 0.071   |" }, NULL },
        /* the widest name makes the column, also of the second table */
        { "--last 1 x=a1 long_variant=a2",
          { "| variant      | runs |", "| x            | 1    |", "| less x       | runs |",
            "| long_variant | 1    | +0.100           |" },
          NULL },
        { "--last 1 --columns a_metric_of_many_letters,,tokens a1",
          { "| reward/accuracy  | a_metric_of_many_letters | tokens           |",
            "| 0.500            | -                        | 10.00            |" },
          NULL },
        /* a folder may have an equals sign in its name, and a variant is cut at the first one */
        { "--last 1 k=k=v k=v",
          { "| k       | 1    | 0.900            |", "| k=v     | 1    | 0.900            |",
            "| less k  | runs |" },
          NULL },
        /* decimals go with the size, without its sign */
        { "--last 1 --metric s --columns a,b,c,d,e,f sizes",
          { "| 9.990            | 10.00            | -99.90           | 100.0            | 999.0  "
            "          | 1000             | -1001            |" },
          NULL },
        { "--last 1 --metric none_of_it.svg a1",
          { "--metric = 'none_of_it.svg': no run has it in its metrics.jsonl; its keys are" },
          NULL },
    };
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    make_run("a1", 0.1, 0.1, true);
    make_run("a2", 0.2, 0.1, true);
    make_run("k=v", 0.5, 0.1, true);
    write_run("sizes", "{\"step\":1,\"s\":9.99,\"a\":10,\"b\":-99.9,\"c\":100,\"d\":999,\"e\":1000,"
                       "\"f\":-1001}\n");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        compare(&out, cases[i].words);
        for (int k = 0; k < 4 && cases[i].parts[k]; k++)
            CHECK_CONTAINS(out.data, cases[i].parts[k]);
        if (cases[i].absent)
            CHECK_MSG(!strstr(out.data, cases[i].absent), "%s: %s", cases[i].words, out.data);
    }
    ares_str_fini(&out);
}

/* Titles, labels and bands of one run and of two, of metrics with and without a unit. */
TEST(a_figure_says_what_it_shows)
{
    static const struct {
        const char *words, *parts[4], *absent;
    } cases[] = {
        { "--smooth 1 a=a1",
          { "<title>reward/accuracy</title>", ">as logged</text>", ">a</text>",
            ">training step</text>" },
          "band" },
        { "--smooth 3 a=a1 b=a2", { ">mean over 3 steps</text>", ">b</text>" }, "band" },
        { "--smooth 3 a=a1 a=a2 b=a1",
          { ">mean over 3 steps; line: mean of the runs, band: lowest to highest</text>",
            ">a (2 runs)</text>", ">b</text>" },
          "standard" },
        { "--smooth 1 --metric tokens --title T --x timing_s/step a=a1 a=timed",
          { "<title>T</title>", ">tokens</text>", ">total of timing_s/step (s)</text>",
            ">as logged; line: mean of the runs, band: lowest to highest</text>" },
          "training step" },
        /* one run has no deviation */
        { "--smooth 1 --band error --metric tokens a=a1", { ">tokens</text>" }, "nan" },
    };
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 }, svg = { 0 };
    char words[200];
    make_run("a1", 0.1, 0.1, true);
    make_run("a2", 0.2, 0.1, true);
    write_run("timed", "{\"step\":1,\"tokens\":3,\"timing_s/step\":2}\n"
                       "{\"step\":2,\"tokens\":5,\"timing_s/step\":4}\n");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        snprintf(words, sizeof words, "--svg f.svg %s", cases[i].words);
        CHECK_EQ(compare(&out, words), 0);
        ares_str_clear(&svg);
        REQUIRE_OK(ares_file_read(test_file("f.svg"), &svg));
        for (int k = 0; k < 4 && cases[i].parts[k]; k++)
            CHECK_CONTAINS(svg.data, cases[i].parts[k]);
        CHECK_MSG(!strstr(svg.data, cases[i].absent), "%s: has %s", words, cases[i].absent);
    }
    /* the band is that of the lowest and highest unless another one is asked for */
    ares_str range = { 0 };
    CHECK_EQ(compare(&out, "--svg f.svg a=a1 a=a2 a=a1"), 0);
    ares_str_clear(&svg);
    REQUIRE_OK(ares_file_read(test_file("f.svg"), &svg));
    CHECK_EQ(compare(&out, "--band range --svg f.svg a=a1 a=a2 a=a1"), 0);
    REQUIRE_OK(ares_file_read(test_file("f.svg"), &range));
    CHECK_STR(range.data, svg.data);
    ares_str_clear(&range);
    CHECK_EQ(compare(&out, "--band error --svg f.svg a=a1 a=a2 a=a1"), 0);
    REQUIRE_OK(ares_file_read(test_file("f.svg"), &range));
    const char *one = strstr(svg.data, "fill-opacity"), *other = strstr(range.data, "fill-opacity");
    CHECK(one && other && strncmp(one, other, strcspn(one, "Z")) != 0);
    ares_str_fini(&range);
    /* a metric that nobody named is missing in the figure alone */
    write_run("other", "{\"step\":1,\"loss\":2}\n");
    CHECK_EQ(compare(&out, "other"), 0);
    CHECK_CONTAINS(out.data, "| other      | 1    | -                | - ");
    CHECK_EQ(compare(&out, "--svg none.svg other"), 2);
    CHECK_CONTAINS(out.data, "--metric = 'reward/accuracy': no run has it in its metrics.jsonl");
    CHECK(!ares_file_exists(test_file("none.svg")));
    ares_str_fini(&out);
    ares_str_fini(&svg);
}
