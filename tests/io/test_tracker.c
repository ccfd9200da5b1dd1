/* metrics.jsonl and the event files, read back by a small reader of their own. */
#include "ares/io.h"
#include "events.h"

#include <math.h>
#include <unistd.h>

/* ---------------------------------------------------------------- tests */

static int open_tracker(const char *dir, int64_t from, bool tensorboard, ares_tracker **t)
{
    static const char *const loggers[] = { "console", "tensorboard" };
    return ares_tracker_open(
        &(ares_tracker_run){
            .dir = dir, .from_step = from, .loggers = loggers, .n_loggers = 1 + tensorboard },
        t);
}

static int log_step(ares_tracker *t, int64_t step, double reward)
{
    ares_metrics *m = ares_metrics_new();
    ares_metrics_set(m, "critic/score/mean", reward);
    ares_metrics_set(m, "timing_s/gen", 1.5);
    int rc = ares_tracker_log(t, step, m);
    ares_metrics_free(m);
    return rc;
}

static void run(int64_t from, int64_t end, bool tensorboard)
{
    ares_tracker *t;
    REQUIRE_OK(open_tracker(test_dir(), from, tensorboard, &t));
    for (int64_t step = from; step < end; step++) CHECK_OK(log_step(t, step, (double)step / 8));
    CHECK_OK(ares_tracker_close(t, true));
}

static void check_metrics(const char *expected)
{
    ares_str s = { 0 };
    CHECK_OK(ares_file_read(test_file("metrics.jsonl"), &s));
    CHECK_STR(s.data, expected);
    ares_str_fini(&s);
}

TEST(metrics_are_a_line_of_json_a_step)
{
    ares_tracker *t;
    ares_metrics *m = ares_metrics_new();
    REQUIRE_OK(open_tracker(test_dir(), 0, false, &t));
    CHECK_OK(log_step(t, 1, 0.1));
    ares_metrics_set(m, "a \"quoted\" name", NAN);
    CHECK_OK(ares_tracker_log(t, 2, m));
    CHECK_OK(ares_tracker_text(t, 2, "sample", ARES_VIEW("x"))); /* nothing to write to: fine */
    CHECK_OK(ares_tracker_close(t, true));
    check_metrics("{\"step\":1,\"critic/score/mean\":0.1,\"timing_s/"
                  "gen\":1.5}\n{\"step\":2,\"a_\\\"quoted\\\"_name\":null}\n");
    ares_metrics_free(m);
    CHECK_OK(ares_tracker_close(NULL, true));
    CHECK_FAIL(open_tracker(test_file("none"), 0, false, &t), ARES_EIO, "No such file");
}

/* A path that is long enough for metrics.jsonl and too long for the name of an event file. */
TEST(an_event_file_that_cannot_be_made_is_named_with_the_reason)
{
    ares_str dir = { 0 };
    ares_tracker *t;
    ares_str_add_z(&dir, test_dir());
    while (dir.len < 4070) ares_str_add_z(&dir, "/.");
    CHECK_FAIL(open_tracker(dir.data, 0, true, &t), ARES_EIO, "File name too long");
    CHECK_CONTAINS(ares_error_message(), "/events.out.tfevents.");
    ares_str_fini(&dir);
}

/* A disk may report what it could not write as late as at the end: here the file is gone already.
 */
TEST(an_event_file_that_cannot_be_closed_is_named)
{
    ares_tracker *t;
    int next = dup(STDIN_FILENO); /* metrics.jsonl takes this descriptor, the event file the next */
    REQUIRE(next >= 0 && close(next) == 0);
    REQUIRE_OK(open_tracker(test_dir(), 0, true, &t));
    CHECK(close(next + 1) == 0);
    CHECK_FAIL(ares_tracker_close(t, true), ARES_EIO, "Bad file descriptor");
    CHECK_CONTAINS(ares_error_message(), "/events.out.tfevents.");
}

TEST(a_resumed_run_cuts_the_steps_it_repeats)
{
    ares_str s = { 0 };
    run(0, 4, false);
    run(2, 3, false);
    check_metrics("{\"step\":0,\"critic/score/mean\":0.0,\"timing_s/"
                  "gen\":1.5}\n{\"step\":1,\"critic/score/mean\":0.125,\"timing_s/gen\":1.5}\n"
                  "{\"step\":2,\"critic/score/mean\":0.25,\"timing_s/gen\":1.5}\n");
    CHECK_OK(ares_file_read(test_file("metrics.jsonl"), &s));
    ares_str_add_z(&s, "{\"step\":3,\"critic/sc"); /* killed while writing */
    CHECK_OK(ares_file_write(test_file("metrics.jsonl"), s.data, s.len));
    run(9, 9, false); /* only the torn line is cut */
    ares_str_clear(&s);
    CHECK_OK(ares_file_read(test_file("metrics.jsonl"), &s));
    CHECK(s.len && s.data[s.len - 1] == '\n' && !strstr(s.data, "\"step\":3"));
    CHECK_STR(ares_error_message(), "");
    run(0, 0, false); /* a fresh start */
    check_metrics("");
    ares_str_fini(&s);
}

TEST(scalars_of_an_event_file_read_back)
{
    ares_str file = { 0 };
    ares_view e = { 0 };
    field f = { 0 }, g = { 0 };
    run(0, 3, true);
    REQUIRE(events_of(test_dir(), 0, &file));
    REQUIRE(event(&file, 0, &e));
    REQUIRE(get(e, 3, 0, &f));
    CHECK_VIEW(f.bytes, "brain.Event:2");
    for (int step = 0; step < 3; step++) {
        REQUIRE(event(&file, step + 1, &e));
        REQUIRE(get(e, 1, 0, &f));
        CHECK(as_double(&f) > 1.6e9); /* seconds since 1970 */
        REQUIRE(get(e, 2, 0, &f));
        CHECK_EQ(f.value, step);
        REQUIRE(get(e, 5, 0, &f));
        ares_view summary = f.bytes;
        REQUIRE(get(summary, 1, 0, &f));
        REQUIRE(get(f.bytes, 1, 0, &g));
        CHECK_VIEW(g.bytes, "critic/score/mean");
        REQUIRE(get(f.bytes, 2, 0, &g));
        CHECK_NEAR(as_float(&g), step / 8.0, 0);
        REQUIRE(get(summary, 1, 1, &f));
        REQUIRE(get(f.bytes, 1, 0, &g));
        CHECK_VIEW(g.bytes, "timing_s/gen");
        CHECK(!get(summary, 1, 2, &f));
    }
    CHECK(!event(&file, 4, &e));
    ares_str_fini(&file);
}

TEST(a_resumed_run_opens_another_event_file_that_takes_the_old_steps_back)
{
    ares_str first = { 0 }, before = { 0 }, second = { 0 };
    ares_view e = { 0 };
    field f = { 0 }, g = { 0 };
    run(0, 4, true);
    REQUIRE(events_of(test_dir(), 0, &before));
    run(2, 3, true); /* within the same second */
    REQUIRE(events_of(test_dir(), 0, &first) && events_of(test_dir(), 1, &second));
    CHECK(ares_view_eq(ares_str_view(&first), ares_str_view(&before)));
    REQUIRE(event(&second, 1, &e));
    REQUIRE(get(e, 2, 0, &f));
    CHECK_EQ(f.value, 2);
    REQUIRE(get(e, 7, 0, &f) && get(f.bytes, 1, 0, &g)); /* SessionLog.status */
    CHECK_EQ(g.value, 1);                                /* START */
    CHECK(event(&second, 2, &e) && !event(&second, 3, &e));
    ares_str_fini(&first);
    ares_str_fini(&before);
    ares_str_fini(&second);
}

TEST(text_is_a_string_tensor_of_the_text_plugin)
{
    ares_tracker *t;
    ares_str file = { 0 };
    ares_view e = { 0 };
    field f = { 0 }, g = { 0 };
    REQUIRE_OK(open_tracker(test_dir(), 0, true, &t));
    CHECK_OK(ares_tracker_text(t, 300, "samples/0", ARES_VIEW("a\0b \xc3\xa9")));
    CHECK_OK(ares_tracker_close(t, true));
    REQUIRE(events_of(test_dir(), 0, &file) && event(&file, 1, &e));
    REQUIRE(get(e, 2, 0, &f));
    CHECK_EQ(f.value, 300); /* two bytes of varint */
    REQUIRE(get(e, 5, 0, &f) && get(f.bytes, 1, 0, &f));
    ares_view value = f.bytes;
    REQUIRE(get(value, 1, 0, &g));
    CHECK_VIEW(g.bytes, "samples/0");
    REQUIRE(get(value, 9, 0, &g) && get(g.bytes, 1, 0, &g) && get(g.bytes, 1, 0, &g));
    CHECK_VIEW(g.bytes, "text");
    REQUIRE(get(value, 8, 0, &f) && get(f.bytes, 1, 0, &g));
    CHECK_EQ(g.value, 7); /* DT_STRING */
    REQUIRE(get(f.bytes, 8, 0, &g));
    CHECK(ares_view_eq(g.bytes, ARES_VIEW("a\0b \xc3\xa9")));
    ares_str_fini(&file);
}

/* Reads the nth histogram of the file: its moments, and the sum of the counts of its bins. */
static void read_histogram(const ares_str *file, int nth, double moments[5], double *counted,
                           double limits[2], int *bins)
{
    ares_view e = { 0 };
    field f = { 0 }, g = { 0 };
    REQUIRE(event(file, nth + 1, &e));
    REQUIRE(get(e, 5, 0, &f) && get(f.bytes, 1, 0, &f) && get(f.bytes, 5, 0, &f));
    for (int i = 0; i < 5; i++) {
        REQUIRE(get(f.bytes, i + 1, 0, &g));
        moments[i] = as_double(&g);
    }
    REQUIRE(get(f.bytes, 6, 0, &g));
    *bins = (int)(g.bytes.len / 8);
    memcpy(&limits[0], g.bytes.data, 8);
    memcpy(&limits[1], g.bytes.data + g.bytes.len - 8, 8);
    REQUIRE(get(f.bytes, 7, 0, &g));
    CHECK_EQ(g.bytes.len / 8, *bins);
    *counted = 0;
    for (size_t i = 0; i < g.bytes.len; i += 8) {
        double n;
        memcpy(&n, g.bytes.data + i, 8);
        *counted += n;
    }
}

/*
 * Bins of several widths: a value counts as the middle of its bin; the range covers only bins with
 * values.
 */
TEST(a_histogram_of_counts_has_the_moments_of_the_middles_of_its_bins)
{
    static const double edge[] = { 0, 1, 3, 7, 9 }, count[] = { 0, 2, 1, 0 }, none[4] = { 0 };
    static const double ends[] = { 3, 0, 0, 5 };
    ares_tracker *t;
    ares_str file = { 0 };
    double m[5], counted, limits[2];
    int bins;
    ares_view e;
    REQUIRE_OK(open_tracker(test_dir(), 0, false, &t));
    CHECK_OK(ares_tracker_bins(t, 1, "h", edge, count, 4)); /* no event file: fine */
    CHECK_OK(ares_tracker_close(t, true));
    REQUIRE_OK(open_tracker(test_dir(), 0, true, &t));
    CHECK_OK(ares_tracker_bins(t, 1, "h", edge, none, 4)); /* no values: nothing written */
    CHECK_OK(ares_tracker_bins(t, 1, "h", edge, count, 4));
    CHECK_OK(ares_tracker_bins(t, 1, "h", edge, ends, 4));
    CHECK_OK(ares_tracker_close(t, true));
    REQUIRE(events_of(test_dir(), 0, &file));
    read_histogram(&file, 0, m, &counted, limits, &bins);
    CHECK_NEAR(m[0], 1, 0);
    CHECK_NEAR(m[1], 7, 0);
    CHECK_NEAR(m[2], 3, 0);
    CHECK_NEAR(m[3], 2 * 2 + 5, 0);
    CHECK_NEAR(m[4], 2 * 4 + 25, 0);
    CHECK_NEAR(counted, 3, 0);
    CHECK_NEAR(limits[0], 1, 0);
    CHECK_NEAR(limits[1], 9, 0);
    CHECK_EQ(bins, 4);
    read_histogram(&file, 1, m, &counted, limits, &bins);
    CHECK_NEAR(m[0], 0, 0);
    CHECK_NEAR(m[1], 9, 0);
    CHECK_NEAR(m[2], 8, 0);
    CHECK_NEAR(m[3], 3 * 0.5 + 5 * 8, 0);
    CHECK_NEAR(m[4], 3 * 0.25 + 5 * 64, 0);
    CHECK(!event(&file, 3, &e));
    ares_str_fini(&file);
}
