/* Parquet files: every type against pyarrow's own reading, damage, and what is refused. */
#include "test.h"

#include <stdio.h>

#include "golden_rows.h"

/* A test that needs Parquet skips where the build leaves it out. */
static bool can_read(void)
{
    int64_t rows;
    int rc = count_rows(golden_rows("empty.parquet"), &rows);
    if (rc == ARES_EUNSUPPORTED) {
        CHECK_CONTAINS(ares_error_message(), "scripts/setup.sh --parquet");
        test_skip("this build reads no Parquet (scripts/setup.sh --parquet)");
        return false;
    }
    return CHECK_OK(rc);
}

TEST(rows_of_parquet_are_what_pyarrow_reads)
{
    if (!can_read()) return;
    check_same_rows(golden_rows("snappy.parquet"), golden_rows("rows.jsonl"));
    check_same_rows(golden_rows("zstd.parquet"), golden_rows("rows.jsonl"));
    int64_t rows;
    CHECK_OK(count_rows(golden_rows("empty.parquet"), &rows));
    CHECK_EQ(rows, 0);
}

TEST(numbers_that_are_not_finite_become_null)
{
    if (!can_read()) return;
    ares_jsonl *r;
    const ares_json *row;
    static const char *const lines[] = { "{\"x\":null}", "{\"x\":null}", "{\"x\":1.5}" };
    REQUIRE_OK(ares_jsonl_open(golden_rows("nan.parquet"), &r));
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(ares_jsonl_next(r, &row, NULL), 1);
        CHECK_VIEW(ares_jsonl_line(r), lines[i]);
    }
    ares_jsonl_close(r);
}

static void check_lines(const char *file, const char *const *lines, int n)
{
    ares_jsonl *r;
    const ares_json *row;
    REQUIRE_OK(ares_jsonl_open(golden_rows(file), &r));
    for (int i = 0; i < n; i++) {
        CHECK_EQ(ares_jsonl_next(r, &row, NULL), 1);
        CHECK_VIEW(ares_jsonl_line(r), lines[i]);
    }
    CHECK_EQ(ares_jsonl_next(r, &row, NULL), 0);
    ares_jsonl_close(r);
}

TEST(a_column_of_a_type_that_is_not_read_is_left_out)
{
    if (!can_read()) return;
    static const char *const lines[] = { "{\"q\":\"a\"}", "{\"q\":\"b\"}" };
    check_lines("odd.parquet", lines, ARES_COUNT(lines));
}

TEST(decimals_views_and_values_of_fixed_size_are_read)
{
    if (!can_read()) return;
    static const char *const lines[] = {
        "{\"price\":-0.05,\"whole\":-7,\"code\":\"ab\",\"pair\":[1,2],\"view\":\"\xc3\xa9\"}",
        "{\"price\":12345678901234567890123456789012345.67,\"code\":\"/wA=\",\"pair\":[0,5]}",
        "{\"price\":0.00,\"whole\":0,\"pair\":[3,4],\"view\":\"a text of more than twelve bytes\"}",
    };
    check_lines("kinds.parquet", lines, ARES_COUNT(lines));
}

TEST(bytes_that_are_no_text_are_base64)
{
    if (!can_read()) return;
    static const char *const lines[] = { "{\"q\":\"a\",\"image\":{}}",
                                         "{\"q\":\"b\",\"image\":{\"bytes\":\"iVBORw==\"}}" };
    check_lines("image.parquet", lines, ARES_COUNT(lines));
}

TEST(a_parquet_file_is_known_by_its_content_and_by_its_name)
{
    if (!can_read()) return;
    ares_str text = { 0 };
    const char *path = test_file("x.jsonl");
    REQUIRE_OK(ares_file_read(golden_rows("snappy.parquet"), &text));
    CHECK_OK(ares_file_write(path, text.data, text.len));
    check_same_rows(path, golden_rows("rows.jsonl"));
    path = test_file("x.parquet");
    int64_t rows;
    CHECK_OK(ares_file_write(path, "{}\n{}\n", 6));
    CHECK_OK(count_rows(path, &rows));
    CHECK_EQ(rows, 2);
    CHECK_OK(ares_file_write(path, "a,b\n1,2\n", 8));
    CHECK_FAIL(count_rows(path, &rows), ARES_EFORMAT, "x.parquet: not a Parquet file");
    CHECK_OK(ares_file_write(path, "", 0));
    CHECK_FAIL(count_rows(path, &rows), ARES_EFORMAT, "file size is 0 bytes");
    ares_str_fini(&text);
}

TEST(a_parquet_file_cut_anywhere_is_refused)
{
    if (!can_read()) return;
    ares_str text = { 0 };
    const char *path = test_file("cut.parquet");
    REQUIRE_OK(ares_file_read(golden_rows("zstd.parquet"), &text));
    for (size_t n = 0; n < text.len; n += 97) {
        int64_t rows;
        CHECK_OK(ares_file_write(path, text.data, n));
        CHECK_FAIL(count_rows(path, &rows), ARES_EFORMAT, "cut.parquet: not a Parquet file");
    }
    ares_str_fini(&text);
}

/* Bytes turned one at a time: each gives rows or a message, and never ends the program. */
TEST(damaged_parquet_gives_rows_or_a_message)
{
    if (!can_read()) return;
    ares_str text = { 0 };
    const char *path = test_file("damaged.parquet");
    REQUIRE_OK(ares_file_read(golden_rows("zstd.parquet"), &text));
    int failed = 0, tried = 0;
    for (size_t i = 0; i < text.len; i += 13, tried++) {
        int64_t rows;
        text.data[i] ^= 0x55;
        CHECK_OK(ares_file_write(path, text.data, text.len));
        int rc = count_rows(path, &rows);
        if (rc != ARES_OK) CHECK_CONTAINS(ares_error_message(), "damaged.parquet");
        failed += rc != ARES_OK;
        text.data[i] ^= 0x55;
    }
    CHECK(failed > tried / 8);
    ares_str_fini(&text);
}

TEST(a_missing_library_names_the_remedy)
{
    if (!can_read()) return;
    char command[9000];
    snprintf(command, sizeof command,
             "ARES_PARQUET_LIB=/nowhere/lib.so %s/test_io rows_of_parquet_are >%s 2>&1",
             ARES_BINARY_DIR, test_file("log"));
    CHECK_EQ(system(command), 0);
    ares_str text = { 0 };
    CHECK_OK(ares_file_read(test_file("log"), &text));
    CHECK_CONTAINS(text.data, "SKIP");
    ares_str_fini(&text);
}
