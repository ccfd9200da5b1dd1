/* JSON lines in gzip and zstd: whole, cut short, damaged, and under another name. */
#include "test.h"

#include <stdio.h>

#include "ares/io.h"
#include "golden_rows.h"

static const char *const packed[] = { "rows.jsonl.gz", "rows.jsonl.zst" };

/* Whether this build reads compressed rows; a test that needs them skips otherwise. */
static bool can_unpack(void)
{
    ares_jsonl *r = NULL;
    int rc = ares_jsonl_open(golden_rows(packed[0]), &r);
    ares_jsonl_close(r);
    if (rc == ARES_EUNSUPPORTED) {
        CHECK_CONTAINS(ares_error_message(), "install zlib1g-dev and libzstd-dev");
        test_skip("this build has no zlib or no libzstd");
        return false;
    }
    return CHECK_OK(rc);
}

TEST(compressed_lines_are_the_lines_that_were_packed)
{
    if (!can_unpack()) return;
    for (int i = 0; i < 2; i++) check_same_rows(golden_rows(packed[i]), golden_rows("rows.jsonl"));
}

TEST(the_content_tells_a_compressed_file_from_a_plain_one)
{
    if (!can_unpack()) return;
    ares_str text = { 0 };
    for (int i = 0; i < 2; i++) {
        const char *path = test_file("x.jsonl");
        REQUIRE_OK(ares_file_read(golden_rows(packed[i]), &text));
        CHECK_OK(ares_file_write(path, text.data, text.len));
        check_same_rows(path, golden_rows("rows.jsonl"));
        REQUIRE_OK(ares_file_read(golden_rows("rows.jsonl"), &text));
        path = test_file(i ? "plain.jsonl.zst" : "plain.jsonl.gz");
        CHECK_OK(ares_file_write(path, text.data, text.len));
        check_same_rows(path, golden_rows("rows.jsonl"));
    }
    ares_str_fini(&text);
}

TEST(a_compressed_file_cut_anywhere_is_refused)
{
    if (!can_unpack()) return;
    ares_str text = { 0 };
    for (int i = 0; i < 2; i++) {
        text.len = 0;
        REQUIRE_OK(ares_file_read(golden_rows(packed[i]), &text));
        const char *path = test_file("cut");
        int failed = 0, whole = 0;
        for (size_t n = 4; n < text.len; n += 7) {
            CHECK_OK(ares_file_write(path, text.data, n));
            int64_t rows = 0;
            int rc = count_rows(path, &rows);
            failed += rc != ARES_OK;
            whole += rc == ARES_OK; /* only at the border of two members */
        }
        CHECK(failed > 100 && whole <= 2);
        CHECK_OK(ares_file_write(path, text.data, text.len - 9));
        int64_t rows;
        CHECK_FAIL(count_rows(path, &rows), ARES_EIO, "the file ends early");
    }
    ares_str_fini(&text);
}

TEST(damage_that_gzip_can_see_is_named)
{
    if (!can_unpack()) return;
    ares_str text = { 0 };
    REQUIRE_OK(ares_file_read(golden_rows(packed[0]), &text));
    text.data[text.len - 6] ^= 1; /* the check sum */
    const char *path = test_file("x.jsonl.gz");
    CHECK_OK(ares_file_write(path, text.data, text.len));
    int64_t rows;
    CHECK_FAIL(count_rows(path, &rows), ARES_EIO, "check sum");
    ares_str_fini(&text);
}

TEST(bytes_after_the_last_gzip_member_are_refused_unless_they_are_zeros)
{
    if (!can_unpack()) return;
    ares_str text = { 0 };
    REQUIRE_OK(ares_file_read(golden_rows(packed[0]), &text));
    const char *path = test_file("x.jsonl.gz");
    size_t len = text.len;
    int64_t rows, before;
    CHECK_OK(ares_file_write(path, text.data, len));
    REQUIRE_OK(count_rows(path, &before));
    ares_str_add(&text, "\0\0\0\0\0", 5);
    CHECK_OK(ares_file_write(path, text.data, text.len));
    CHECK_OK(count_rows(path, &rows));
    CHECK_EQ(rows, before);
    text.len = len;
    ares_str_add_z(&text, "what follows is lost");
    CHECK_OK(ares_file_write(path, text.data, text.len));
    CHECK_FAIL(count_rows(path, &rows), ARES_EIO, "bytes that are not gzip follow");
    ares_str_fini(&text);
}
