/* Metrics, lookup, schedules, progress. */
#include "../../src/core/internal.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(metrics_keep_the_order_of_first_mention)
{
    ares_metrics *m = ares_metrics_new();
    double v = 0;
    ares_metrics_set(m, "b", 1);
    ares_metrics_add(m, "a", 2);
    ares_metrics_add(m, "a", 3);
    ares_metrics_set(m, "b", 4);
    ares_metrics_add(m, "c", 17.5);
    REQUIRE(ares_metrics_count(m) == 3);
    CHECK_STR(ares_metrics_name(m, 0), "b");
    CHECK_STR(ares_metrics_name(m, 2), "c");
    CHECK_NEAR(ares_metrics_value(m, 0), 4, 0);
    CHECK_NEAR(ares_metrics_value(m, 1), 5, 0);
    CHECK(ares_metrics_get(m, "c", &v));
    CHECK_NEAR(v, 17.5, 0);
    CHECK(!ares_metrics_get(m, "none", &v));
    ares_metrics_clear(m);
    CHECK_EQ(ares_metrics_count(m), 0);
    for (int i = 0; i < 500; i++) {
        char name[16];
        snprintf(name, sizeof name, "m/%d", i);
        ares_metrics_add(m, name, i);
    }
    CHECK(ares_metrics_get(m, "m/499", &v) && v == 499);
    ares_metrics_free(m);
}

static const char *const estimators[] = { "gae", "grpo", "rloo", "reinforce_pp" };

TEST(nearest_finds_slips_and_nothing_else)
{
    CHECK_STR(ares_nearest("grop", estimators, 4), "grpo");
    CHECK_STR(ares_nearest("GRPO", estimators, 4), "grpo");
    CHECK_STR(ares_nearest("gea", estimators, 4), "gae");
    CHECK_STR(ares_nearest("reinforce-pp", estimators, 4), "reinforce_pp");
    CHECK_STR(ares_nearest("reinforcepp", estimators, 4), "reinforce_pp");
    /* a third of the longer word may differ, whichever that is */
    CHECK_STR(ares_nearest("wrmp", (const char *const[]){ "warmup" }, 1), "warmup");
    CHECK(ares_nearest("wrm", (const char *const[]){ "warmup" }, 1) == NULL);
    CHECK(ares_nearest("banana", estimators, 4) == NULL);
    CHECK(ares_nearest("", estimators, 4) == NULL);
    static const char *const options[] = { "top_k", "top_p" };
    /* a swap counts as one change; top_k needs two */
    CHECK(ares_nearest("clip_ratio_c", (const char *const[]){ "clip_ratio_low" }, 1) == NULL);
    CHECK(ares_nearest("qwen3_vl", (const char *const[]){ "qwen2_vl" }, 1) == NULL);
    CHECK_STR(ares_nearest("tpo_p", options, 2), "top_p");
    char longer[4000];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    CHECK(ares_nearest(longer, options, 2) == NULL);
}

TEST(lookup_fails_with_a_suggestion_and_the_choices)
{
    int index = -1;
    CHECK_OK(ares_lookup(ARES_ECONFIG, "algorithm.adv_estimator", "rloo", estimators, 4, &index));
    CHECK_EQ(index, 2);
    CHECK_EQ(ares_lookup(ARES_ECONFIG, "algorithm.adv_estimator", "grop", estimators, 4, &index),
             ARES_ECONFIG);
    CHECK_STR(ares_error_message(),
              "algorithm.adv_estimator = 'grop': unknown; did you mean 'grpo'? "
              "(choices: gae, grpo, rloo, reinforce_pp)");
    CHECK_FAIL(ares_lookup(ARES_EUSE, "verb", "zzz", estimators, 2, &index), ARES_EUSE,
               "verb = 'zzz': unknown; choose one of these (choices: gae, grpo)");
    CHECK_EQ(ares_lookup(ARES_EUSE, NULL, "gea", estimators, 2, &index), ARES_EUSE);
    CHECK_STR(ares_error_message(), "unknown; did you mean 'gae'? (choices: gae, grpo)");
}

static double at(const char *name, double warmup, double total, double ratio, double cycles,
                 int64_t step)
{
    ares_schedule s = { .name = name,
                        .base = 2,
                        .min_ratio = ratio,
                        .warmup_steps = warmup,
                        .total_steps = total,
                        .cycles = cycles };
    CHECK_OK(ares_schedule_check(&s));
    return ares_schedule_at(&s, step) / 2;
}

TEST(constant_warms_up_from_zero_and_has_the_full_value_without_a_warm_up)
{
    CHECK_NEAR(at("constant", 0, 0, 0, 0, 0), 1, 0);
    CHECK_NEAR(at("constant", 4, 0, 0, 0, 0), 0, 0);
    CHECK_NEAR(at("constant", 4, 0, 0, 0, 2), 0.5, 0);
    CHECK_NEAR(at("constant", 4, 0, 0, 0, 4), 1, 0);
    CHECK_NEAR(at("constant", 4, 0, 0, 0, 1000), 1, 0);
}

/* 0.65013442028 is EasyR1's value at step 6 of (3, 10, 0.1). */
TEST(cosine_is_verls)
{
    CHECK_NEAR(at("cosine", 3, 10, 0.1, 0.5, 0), 0, 0);
    CHECK_NEAR(at("cosine", 3, 10, 0.1, 0.5, 3), 1, 1e-15);
    CHECK_NEAR(at("cosine", 3, 10, 0.1, 0.5, 6), 0.65013442028, 1e-11);
    CHECK_NEAR(at("cosine", 3, 10, 0.1, 0.5, 10), 0.1, 1e-15);
    CHECK_NEAR(at("cosine", 3, 10, 0.1, 0.5, 99), 0.1, 1e-15); /* it does not rise again */
    CHECK_NEAR(at("cosine", 0, 8, 0, 1, 4), 0, 1e-15);
    CHECK_NEAR(at("cosine", 0, 8, 0, 1, 6), 0.5, 1e-15);
    for (int64_t step = 0; step < 20; step++)
        CHECK_NEAR(at("cosine", 0, 20, 0.2, 0.5, step),
                   0.4 * cos(acos(-1.0) * (double)step / 20) + 0.6, 1e-15);
}

TEST(linear_exponential_and_level_end_at_min_ratio)
{
    CHECK_NEAR(at("linear", 2, 12, 0.5, 0, 7), 0.75, 1e-15);
    CHECK_NEAR(at("linear", 2, 12, 0.5, 0, 50), 0.5, 0);
    CHECK_NEAR(at("linear", 0, 200, 9, 0, 100), 5, 1e-15);
    CHECK_NEAR(at("exponential", 0, 10, 0.01, 0, 5), 0.1, 1e-15);
    CHECK_NEAR(at("exponential", 0, 10, 0.01, 0, 10), 0.01, 1e-16);
    static const double level[] = { 0.8, 0.7, 0.6, 0.5, 0.5 };
    for (int k = 0; k < 5; k++) {
        CHECK_NEAR(0.8 * at("level", 0, 200, 0.625, 4, 50 * k), level[k], 1e-15);
        CHECK_NEAR(0.8 * at("level", 0, 200, 0.625, 4, 50 * k + 49), level[k], 1e-15);
    }
}

static void refused(ares_schedule s, const char *part)
{
    CHECK_FAIL(ares_schedule_check(&s), ARES_ECONFIG, part);
}

TEST(impossible_schedules_are_refused)
{
    refused((ares_schedule){ "cosin", .base = 1 },
            "schedule: name = 'cosin': unknown; did you mean 'cosine'?");
    refused((ares_schedule){ NULL, .base = 1 }, "unknown");
    refused((ares_schedule){ "cosine", .base = 1, .cycles = 0.5 }, "needs to know its end");
    refused(
        (ares_schedule){ "cosine", .base = 1, .cycles = 0.5, .total_steps = 5, .warmup_steps = 6 },
        "must be shorter than the whole run");
    refused(
        (ares_schedule){ "cosine", .base = 1, .cycles = 0.5, .total_steps = 5, .warmup_steps = 5 },
        "warmup_steps = 5: must be shorter than the whole run of 5 steps");
    CHECK_OK(ares_schedule_check(&(ares_schedule){ "cosine", .base = 1, .cycles = 0.5,
                                                   .total_steps = 5, .warmup_steps = 4 }));
    refused(
        (ares_schedule){ "cosine", .base = 1, .cycles = 0.5, .total_steps = 5, .min_ratio = 1.5 },
        "min_ratio = 1.5");
    refused((ares_schedule){ "cosine", .base = 1, .total_steps = 5 }, "cycles = 0");
    refused((ares_schedule){ "exponential", .base = 1, .total_steps = 5 }, "min_ratio = 0");
    refused((ares_schedule){ "level", .base = 1, .total_steps = 5, .cycles = 1 }, "2 or more");
    refused((ares_schedule){ "constant", .base = NAN }, "must be finite");
    refused((ares_schedule){ "constant", .base = 1, .warmup_steps = -1 }, "0 or more");
}

TEST(progress_writes_plain_lines_where_there_is_no_terminal)
{
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    FILE *to = fopen(test_file("out"), "w");
    REQUIRE(kept >= 0 && to);
    dup2(fileno(to), STDOUT_FILENO);
    /* what is left decides how long it takes, not what there is in all */
    ares_progress *p = ares_progress_new("step", "auto");
    ares_progress_begin(p, 9000000000001, 9000000000003);
    ares_progress_step(p, 9000000000002, "reward 0.5");
    ares_progress_step(p, 9000000000003, NULL);
    ares_progress_free(p);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    fclose(to);
    ares_str out = { 0 };
    REQUIRE_OK(ares_file_read(test_file("out"), &out));
    CHECK_STR(out.data, "step 9000000000002/9000000000003 | reward 0.5 | 0.00 s | eta 0:00\n"
                        "step 9000000000003/9000000000003 | 0.00 s\n");
    ares_str_fini(&out);
}

/* The last line of the file that stderr goes to while this runs. */
static const char *logged_at(ares_progress *p, double now)
{
    static char last[400];
    ares_str text = { 0 };
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    FILE *to = fopen(test_file("log"), "w");
    if (!CHECK(kept >= 0 && to)) return "";
    dup2(fileno(to), STDERR_FILENO);
    core_progress_tick(p, now);
    dup2(kept, STDERR_FILENO);
    close(kept);
    fclose(to);
    CHECK_OK(ares_file_read(test_file("log"), &text));
    snprintf(last, sizeof last, "%.*s", (int)text.len, text.data ? text.data : "");
    ares_str_fini(&text);
    return last;
}

TEST(progress_logs_what_is_done_every_30_s_where_there_is_no_terminal)
{
    double now = ares_now_s();
    ares_progress *p = ares_progress_new("step", "line"), *none = ares_progress_new("step", "none");
    ares_work_begin("gen");
    ares_work_expect(ARES_WORK_ANSWERS, 16);
    ares_work_done(ARES_WORK_ANSWERS, 4);
    ares_work_done(ARES_WORK_JUDGED, 3);
    CHECK_STR(logged_at(p, now + 29), "");
    CHECK_STR(logged_at(p, now + 40), "gen: 4 of 16 answers, 3 judged | 0:40, eta 2:00\n");
    CHECK_STR(logged_at(p, now + 69), "");
    ares_work_done(ARES_WORK_ANSWERS, 14); /* more than were expected */
    CHECK_STR(logged_at(p, now + 70), "gen: 18 of 18 answers, 3 judged | 1:10, eta 0:00\n");
    ares_progress_begin(p, 4, 20);
    ares_work_begin("update_actor");
    ares_work_expect(ARES_WORK_MICRO_BATCHES, 8);
    ares_work_done(ARES_WORK_MICRO_BATCHES, 3);
    CHECK_STR(logged_at(p, now + 110),
              "step 5/20 update_actor: micro-batch 3 of 8 | 1:50, eta 5:30\n");
    ares_progress_tell(p, "2 of 6 runs");
    CHECK_STR(logged_at(p, now + 150), "2 of 6 runs\n");
    ares_progress_free(p);
    ares_progress_free(none);
    ares_work_begin("");
}

/* The other rank is a child process. */
TEST(progress_tells_the_sum_of_the_ranks_that_are_in_the_same_stage)
{
    double now = ares_now_s();
    size_t bytes = ares_work_bytes(3);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    ares_progress *p = ares_progress_new("step", "line");
    ares_work_share(memory, 3, 0, 2);
    ares_work_begin("gen");
    ares_work_expect(ARES_WORK_ANSWERS, 16);
    ares_work_done(ARES_WORK_ANSWERS, 4);
    for (int ahead = 0; ahead < 2; ahead++) {
        pid_t child = fork();
        if (child == 0) {
            ares_work_share(memory, 3, 1, 2);
            ares_work_begin(ahead ? "score" : "gen");
            ares_work_expect(ARES_WORK_ANSWERS, 8);
            ares_work_done(ARES_WORK_ANSWERS, 5);
            _exit(0);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child && status == 0);
        CHECK_STR(logged_at(p, now + 40 * (1 + ahead)),
                  ahead ? "gen: 4 of 16 answers (on 2 of 3 ranks) | 1:20, eta 4:00\n"
                        : "gen: 9 of 24 answers (on 2 of 3 ranks) | 0:40, eta 1:07\n");
    }
    ares_progress_free(p);
    ares_work_share(NULL, 1, 0, 1);
    ares_work_begin("");
    munmap(memory, bytes);
}

TEST(the_clock_goes_forward_and_memory_is_counted)
{
    double before = ares_now_s();
    CHECK(ares_now_s() >= before);
    size_t bytes = (size_t)32 << 20;
    char *pages = ares_pages_new(bytes);
    CHECK_EQ((uintptr_t)pages % 4096, 0);
    for (size_t i = 0; i < bytes; i += 4096) {
        if (pages[i] != 0) {
            CHECK(pages[i] == 0);
            break;
        }
        pages[i] = 1;
    }
    CHECK(ares_peak_memory_bytes() >= (int64_t)bytes);
    ares_pages_free(pages, bytes);
}

TEST(numbers_are_sorted_in_ascending_order)
{
    double x[] = { 3, -INFINITY, 0.5, -2, 3, INFINITY };
    const double x_sorted[] = { -INFINITY, -2, 0.5, 3, 3, INFINITY };
    int64_t i[] = { 0, INT64_MAX, INT64_MIN, -1, 0 };
    const int64_t i_sorted[] = { INT64_MIN, -1, 0, 0, INT64_MAX };
    ares_sort_f64(x, ARES_COUNT(x));
    for (int k = 0; k < ARES_COUNT(x); k++) CHECK_EQ(x[k], x_sorted[k]);
    ares_sort_i64(i, ARES_COUNT(i));
    for (int k = 0; k < ARES_COUNT(i); k++) CHECK_EQ(i[k], i_sorted[k]);
    ares_sort_f64(NULL, 0);
    ares_sort_i64(NULL, 0);
}

TEST(records_are_sorted_by_their_first_two_numbers_and_keep_the_rest)
{
    struct record {
        int64_t first, second;
        char rest;
    } r[] = {
        { 2, -1, 'd' }, { 1, INT64_MAX, 'c' }, { INT64_MIN, 7, 'a' }, { 2, 0, 'e' }, { 1, -5, 'b' }
    };
    ares_sort_records(r, ARES_COUNT(r), sizeof *r);
    for (int k = 0; k < ARES_COUNT(r); k++) CHECK_EQ(r[k].rest, "abcde"[k]);
    ares_sort_records(NULL, 0, sizeof *r);
}
