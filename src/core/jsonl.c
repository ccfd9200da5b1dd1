/* JSON lines. Only \n ends a line: U+2028 and \r belong to the row. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ares/io.h"
#include "compressed.h"
#include "jsonl.h"
#include "parquet.h"
#include "write.h"

struct ares_jsonl {
    parquet *parquet; /* the rows come from there, as text */
    ares_str text;
    FILE *file;
    const char *why; /* a compressed file could not be read */
    char *path;
    char *line;
    size_t cap;
    ssize_t len;
    int64_t number;
    ares_arena arena;
};

static int open_lines(const char *path, bool input, ares_jsonl **out)
{
    ares_jsonl *r = ares_calloc(1, sizeof *r);
    bool is_stdin = input && strcmp(path, "-") == 0;
    int rc = ARES_OK;
    r->file = stdin;
    if (!is_stdin && parquet_is(path)) rc = parquet_open(path, &r->parquet);
    else if (!is_stdin) rc = compressed_open(path, input, &r->file, &r->why);
    if (rc != ARES_OK) {
        ares_free(r);
        return rc;
    }
    r->path = ares_strdup(is_stdin ? "stdin" : path);
    *out = r;
    return ARES_OK;
}

int ares_jsonl_open(const char *path, ares_jsonl **out)
{
    return open_lines(path, false, out);
}

int ares_jsonl_open_input(const char *path, ares_jsonl **out)
{
    return open_lines(path, true, out);
}

static bool blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') return false;
    return true;
}

/* Reads the next line that is not blank into r->line, without its newline: 1, or 0 at the end. */
static int next_line(ares_jsonl *r)
{
    for (;;) {
        errno = 0;
        r->len = getline(&r->line, &r->cap, r->file);
        if (ferror(r->file)) /* also where getline gives a part of a line */
            return ares_fail(ARES_EIO, "io: %s: after line %lld: %s", r->path, (long long)r->number,
                             r->why ? r->why : strerror(errno ? errno : EIO));
        if (r->len < 0) return 0;
        r->number++;
        if (r->len && r->line[r->len - 1] == '\n') r->line[--r->len] = 0;
        if (r->number == 1 && r->len >= 3 && memcmp(r->line, "\xef\xbb\xbf", 3) == 0) {
            r->len -= 3;
            memmove(r->line, r->line + 3, (size_t)r->len + 1);
        }
        if (!blank(r->line, (size_t)r->len)) return 1;
    }
}

/* ---------------- files that are something else */
#define READ "rows are read from JSON lines (also *.gz, *.zst), JSON lists (*.json) and Parquet"

/* Formats that are told by their first bytes, and what to do; a path follows where it is typed. */
static const struct {
    const char *begins, *what, *how;
    bool typed;
} formats[] = {
    { "PAR1", "Parquet that is packed once more", "unpack it: Parquet is compressed itself",
      false },
#define CONVERT(open)                                                          \
    "convert it: python3 -c 'import pyarrow as p, pyarrow.parquet as q, sys; " \
    "q.write_table(p.ipc." open "(p.memory_map(sys.argv[1])).read_all(), \"rows.parquet\")'"
    { "ARROW1", "Arrow", CONVERT("open_file"), true },
    { "\xff\xff\xff\xff", "Arrow", CONVERT("open_stream"), true },
#undef CONVERT
    { "PK\3\4", "a zip archive, as a spreadsheet is", "unpack it, or save it as one of these",
      false },
    { "BZh", "packed by bzip2", "unpack it: bunzip2 -k", true },
    { "\xfd\x37zXZ", "packed by xz", "unpack it: unxz -k", true },
    { "<!DOCTYPE", "a page of HTML", "download the file itself", false },
    { "<html", "a page of HTML", "download the file itself", false },
    { "SQLite format 3", "a database of SQLite", "write its rows as one of these", false },
    { "Obj\1", "Avro", "write its rows as one of these", false },
    { "ORC", "ORC", "write its rows as one of these", false },
};

static bool ends(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

/* The first line is no JSON: says what the file is, if that can be told. */
static int refuse_format(const ares_jsonl *r, int rc)
{
    ares_view line = ares_jsonl_line(r);
    bool csv = ends(r->path, ".csv"), tsv = ends(r->path, ".tsv");
    for (int i = 0; i < ARES_COUNT(formats); i++) {
        bool typed = formats[i].typed;
        if (ares_view_starts(line, ares_view_of(formats[i].begins)))
            return ares_fail(ARES_EFORMAT, "io: %s: this is %s, and " READ "; %s%s%s%s", r->path,
                             formats[i].what, formats[i].how, typed ? " '" : "",
                             typed ? r->path : "", typed ? "'" : "");
    }
    if (csv || tsv)
        return ares_fail(ARES_EFORMAT,
                         "io: %s: %s is not read; " READ "; convert it: python3 -c 'import csv, "
                         "json, sys; [print(json.dumps(r)) for r in csv.DictReader(open("
                         "sys.argv[1], newline=\"\")%s)]' '%s' > rows.jsonl",
                         r->path, csv ? "CSV" : "TSV", csv ? "" : ", delimiter=\"\\t\"", r->path);
    if (line.len && line.data[0] == '{') return ares_fail_in(rc, "io");
    if (line.len && line.data[0] == '[')
        return ares_fail_in(rc, "io: a list of rows is read from a file whose name ends in .json, "
                                "and a line of JSON lines is an object");
    return ares_fail_in(rc, "io: " READ);
}

int ares_jsonl_next(ares_jsonl *r, const ares_json **row, int64_t *line_number)
{
    int rc = r->parquet ? parquet_next(r->parquet, &r->text) : next_line(r);
    if (r->parquet && rc > 0) r->number++;
    if (line_number) *line_number = r->number;
    if (rc <= 0) return rc;
    ares_arena_reset(&r->arena);
    rc = ares_json_parse_line(&r->arena, ares_jsonl_line(r), r->path, r->number, row);
    if (r->number == 1 && !r->parquet && rc != ARES_OK) return refuse_format(r, rc);
    return rc == ARES_OK ? 1 : ares_fail_in(rc, "io");
}

ares_view ares_jsonl_line(const ares_jsonl *r)
{
    if (r->parquet) return ares_str_view(&r->text);
    return (ares_view){ r->line, r->len > 0 ? (size_t)r->len : 0 };
}

void ares_jsonl_close(ares_jsonl *r)
{
    if (!r) return;
    parquet_close(r->parquet);
    ares_str_fini(&r->text);
    if (r->file != stdin) fclose(r->file);
    ares_free(r->path);
    free(r->line); /* getline's */
    ares_arena_fini(&r->arena);
    ares_free(r);
}

struct jsonl_writer {
    int fd;
    char *path;
    ares_str buffer;
};

/*
 * Bytes of the file's first `rows` complete lines, of all of them for rows < 0; -1: cannot be read.
 */
static off_t whole_lines(int fd, int64_t rows)
{
    char block[1 << 16];
    off_t at = 0, keep = 0;
    ssize_t n = 0;
    for (; rows != 0 && (n = pread(fd, block, sizeof block, at)) > 0; at += n)
        for (ssize_t i = 0; i < n && rows != 0; i++) {
            if (block[i] != '\n') continue;
            keep = at + i + 1;
            if (rows > 0) rows--;
        }
    return n < 0 ? -1 : keep;
}

int jsonl_create(const char *path, int64_t keep_rows, jsonl_writer **out)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return ares_fail(ARES_EIO, "io: %s: %s", path, strerror(errno));
    off_t keep = whole_lines(fd, keep_rows);
    if (keep < 0 || ftruncate(fd, keep) != 0 || lseek(fd, keep, SEEK_SET) < 0) {
        int rc = ares_fail(ARES_EIO, "io: %s: %s", path, strerror(errno));
        close(fd);
        return rc;
    }
    int rc = ares_path_sync(path);
    if (rc != ARES_OK) {
        close(fd);
        return rc;
    }
    jsonl_writer *w = ares_calloc(1, sizeof *w);
    w->fd = fd;
    w->path = ares_strdup(path);
    *out = w;
    return ARES_OK;
}

int jsonl_write(jsonl_writer *w, const char *line, size_t len)
{
    ares_str_clear(&w->buffer);
    ares_str_add(&w->buffer, line, len);
    ares_str_add_char(&w->buffer, '\n');
    return io_write_all(w->fd, w->path, w->buffer.data, w->buffer.len);
}

int jsonl_sync(jsonl_writer *w)
{
    return fsync(w->fd) == 0 ? ARES_OK
                             : ares_fail(ARES_EIO, "io: %s: fsync: %s", w->path, strerror(errno));
}

int jsonl_finish(jsonl_writer *w)
{
    if (!w) return ARES_OK;
    int rc =
        close(w->fd) == 0 ? ARES_OK : ares_fail(ARES_EIO, "io: %s: %s", w->path, strerror(errno));
    ares_free(w->path);
    ares_str_fini(&w->buffer);
    ares_free(w);
    return rc;
}
