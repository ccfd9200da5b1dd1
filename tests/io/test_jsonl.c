/* JSON lines: what counts as a row, messages of failures, what a resumed file keeps. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "ares/io.h"
#include "internal.h"

static const char *file_of(const char *name, ares_view text)
{
    const char *path = test_file(name);
    CHECK_OK(ares_file_write(path, text.data, text.len));
    return path;
}

/* Values of "a" of all rows, "!" for a bad one, with the line numbers: "1:7 3:! ". */
static void read_all(const char *path, ares_str *out)
{
    ares_jsonl *r;
    const ares_json *row;
    int64_t line, a;
    ares_str_clear(out);
    REQUIRE_OK(ares_jsonl_open(path, &r));
    for (int rc; (rc = ares_jsonl_next(r, &row, &line)) != 0;) {
        if (rc < 0) ares_str_addf(out, "%lld:! ", (long long)line);
        else if (CHECK_OK(ares_json_get_i64(row, "a", -1, &a)))
            ares_str_addf(out, "%lld:%lld ", (long long)line, (long long)a);
    }
    ares_jsonl_close(r);
}

TEST(rows_are_split_at_newlines_alone_and_blank_lines_and_a_byte_order_mark_are_skipped)
{
    ares_str s = { 0 };
    read_all(
        file_of("x.jsonl", ARES_VIEW("\xef\xbb\xbf{\"a\":1}\n\n "
                                     "\t\r\n{\"a\":2,\"b\":\"\xe2\x80\xa8\\u0000\"}\r\n{\"a\":3}")),
        &s);
    CHECK_STR(s.data, "1:1 4:2 5:3 ");
    read_all(file_of("empty.jsonl", ARES_VIEW("")), &s);
    CHECK_VIEW(ares_str_view(&s), "");
    ares_str_fini(&s);
}

TEST(reading_goes_on_behind_a_bad_row)
{
    ares_str s = { 0 };
    read_all(
        file_of("x.jsonl", ARES_VIEW("{\"a\":1}\n{\"a\":\n{\"a\":3}\n[\0]\n{\"a\":5}\n\"\xff\"\n")),
        &s);
    CHECK_STR(s.data, "1:1 2:! 3:3 4:! 5:5 6:! ");
    ares_str_fini(&s);
}

TEST(a_bad_row_is_named_by_file_line_and_column)
{
    ares_jsonl *r;
    const ares_json *row;
    char place[512];
    const char *path = file_of("x.jsonl", ARES_VIEW("{}\n\n{\"a\" 1}\n"));
    REQUIRE_OK(ares_jsonl_open(path, &r));
    CHECK_EQ(ares_jsonl_next(r, &row, NULL), 1);
    snprintf(place, sizeof place, "io: %s:3:6: not JSON", path);
    CHECK_FAIL(ares_jsonl_next(r, &row, NULL), ARES_EFORMAT, place);
    CHECK_VIEW(ares_jsonl_line(r), "{\"a\" 1}");
    CHECK_EQ(ares_jsonl_next(r, &row, NULL), 0);
    ares_jsonl_close(r);
}

TEST(a_file_of_another_format_is_named_by_it)
{
    static const struct {
        const char *name, *text, *message;
    } cases[] = {
        { "x.csv", "prompt,answer\n1,2\n",
          "x.csv: CSV is not read; rows are read from JSON lines" },
        { "y.csv", "[a],b\n", "csv.DictReader(open(sys.argv[1], newline=\"\"))" },
        { "x.tsv", "prompt\tanswer\n", "x.tsv: TSV is not read" },
        { "x.txt", "prompt\n", "JSON lists (*.json) and Parquet: " },
        { "x.jsonl", "[\n{},\n{}]\n", "from a file whose name ends in .json" },
        { "z.jsonl", "PAR1\1\2", "z.jsonl: this is Parquet that is packed once more" },
        { "x.arrow", "ARROW1", "ipc.open_file(" },
        { "y.arrow", "\xff\xff\xff\xff\x10", "ipc.open_stream(" },
        { "x.zip", "PK\3\4", "x.zip: this is a zip archive" },
        { "y.jsonl", "<!DOCTYPE html>\n", "y.jsonl: this is a page of HTML" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_jsonl *r;
        const ares_json *row;
        const char *path = file_of(cases[i].name, ares_view_of(cases[i].text));
        if (strcmp(cases[i].name, "z.jsonl") == 0) { /* in gzip, as a file of that begin is read */
            CHECK_EQ(test_shell(NULL, "gzip -f '%s'; mv '%s.gz' '%s'", path, path, path), 0);
        }
        REQUIRE_OK(ares_jsonl_open(path, &r));
        CHECK_FAIL(ares_jsonl_next(r, &row, NULL), ARES_EFORMAT, cases[i].message);
        ares_jsonl_close(r);
    }
}

TEST(a_missing_file_and_a_folder_are_failures)
{
    ares_jsonl *r;
    CHECK_FAIL(ares_jsonl_open(test_file("none"), &r), ARES_EIO, "none: No such file");
    CHECK_FAIL(ares_jsonl_open(test_dir(), &r), ARES_EIO, "a folder");
}

static void check_kept(const char *before, int64_t keep, const char *after)
{
    jsonl_writer *w;
    ares_str s = { 0 };
    const char *path = file_of("out.jsonl", ares_view_of(before));
    REQUIRE_OK(jsonl_create(path, keep, &w));
    CHECK_OK(jsonl_write(w, "NEW", 3));
    CHECK_OK(jsonl_finish(w));
    CHECK_OK(ares_file_read(path, &s));
    CHECK_STR(s.data, after);
    ares_str_fini(&s);
}

TEST(a_writer_keeps_the_rows_asked_for_and_never_a_torn_one)
{
    check_kept("1\n2\n3\n", 0, "NEW\n");
    check_kept("1\n2\n3\n", 2, "1\n2\nNEW\n");
    check_kept("1\n2\n3\n", 9, "1\n2\n3\nNEW\n");
    check_kept("1\n2\n{\"tor", -1, "1\n2\nNEW\n");
    check_kept("1\n2\n{\"tor", 3, "1\n2\nNEW\n");
    check_kept("{\"tor", -1, "NEW\n");
    check_kept("", -1, "NEW\n");
}

TEST(a_writer_finds_row_ends_far_into_a_file)
{
    ares_str before = { 0 }, after = { 0 };
    jsonl_writer *w;
    /* more than one block */
    for (int i = 0; i < 40000; i++) ares_str_addf(&before, "{\"i\":%d}\n", i);
    const char *path = file_of("out.jsonl", ares_str_view(&before));
    REQUIRE_OK(jsonl_create(path, 39999, &w));
    CHECK_OK(jsonl_finish(w));
    CHECK_OK(ares_file_read(path, &after));
    CHECK_EQ(after.len, before.len - strlen("{\"i\":39999}\n"));
    ares_str_fini(&before);
    ares_str_fini(&after);
}
