/* Rows of tests/golden/rows (scripts/golden/rows.py), and of other files, by ares_jsonl. */
#ifndef ARES_IO_GOLDEN_ROWS_H
#define ARES_IO_GOLDEN_ROWS_H

#include "ares/io.h"
#include "test.h"

static inline const char *golden_rows(const char *name)
{
    static char paths[4][4096];
    static int at;
    char *path = paths[at++ & 3];
    snprintf(path, sizeof paths[0], "%s/tests/golden/rows/%s", ARES_SOURCE_DIR, name);
    return path;
}

/* Reads to the end or the first failure; *rows: those before it. */
static inline int count_rows(const char *path, int64_t *rows)
{
    ares_jsonl *r;
    const ares_json *row;
    *rows = 0;
    ARES_TRY(ares_jsonl_open(path, &r));
    int rc;
    while ((rc = ares_jsonl_next(r, &row, NULL)) > 0) ++*rows;
    ares_jsonl_close(r);
    return rc;
}

/* Whether both files hold the same rows: types, keys in order, every digit. */
static inline void check_same_rows(const char *path, const char *expected)
{
    ares_jsonl *a, *b;
    const ares_json *x, *y;
    ares_str s = { 0 }, t = { 0 };
    int64_t at, rows = 0;
    int rc, end;
    if (!CHECK_OK(ares_jsonl_open(path, &a)) || !CHECK_OK(ares_jsonl_open(expected, &b))) return;
    while ((rc = ares_jsonl_next(a, &x, &at)) > 0 && (end = ares_jsonl_next(b, &y, NULL)) > 0) {
        ares_str_clear(&s), ares_str_clear(&t);
        ares_json_write(&s, x), ares_json_write(&t, y);
        CHECK_STR(s.data, t.data);
        CHECK_EQ(at, ++rows);
    }
    CHECK_OK(rc);
    CHECK(rc == 0 && ares_jsonl_next(b, &y, NULL) == 0 && rows > 0);
    ares_jsonl_close(a), ares_jsonl_close(b);
    ares_str_fini(&s), ares_str_fini(&t);
}
#endif
