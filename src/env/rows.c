#include "rows.h"

static int read_lines(const char *path, ares_view rest, int64_t most, ares_arena *arena,
                      int (*each)(void *ctx, const ares_json *row), void *ctx)
{
    int64_t rows = 0;
    for (int64_t line = 1; rest.len && (!most || rows < most); line++) {
        int64_t end = ares_view_find(rest, ARES_VIEW("\n"), 0);
        ares_view text = { rest.data, end < 0 ? rest.len : (size_t)end };
        size_t taken = text.len + (end >= 0);
        rest = (ares_view){ rest.data + taken, rest.len - taken };
        if (!ares_view_trim(text).len) continue;
        const ares_json *row;
        ARES_TRY(ares_json_parse_line(arena, text, path, line, &row));
        int rc = each(ctx, row);
        if (rc != ARES_OK) return ares_fail_in(rc, "env: %s:%lld", path, (long long)line);
        rows++;
    }
    return ARES_OK;
}

int env_rows_read(const char *path, int64_t most, ares_arena *arena,
                  int (*each)(void *ctx, const ares_json *row), void *ctx)
{
    ares_str text = { 0 };
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) rc = read_lines(path, ares_str_view(&text), most, arena, each, ctx);
    ares_str_fini(&text);
    return rc;
}
