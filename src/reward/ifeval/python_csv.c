/*
 * CSV as Python's csv.reader takes it from a text stream (Modules/_csv.c): lines end at \n; quotes
 * count only at the start of a field; a field cut by the end of the text is kept. The machine runs
 * twice, to count and to fill.
 */
#include "text_parts.h"

enum { FIELD_MAX = 131072 }; /* characters: csv.field_size_limit */

typedef struct sink {
    if_list *rows; /* NULL: only count */
    ares_view *fields;
    char *bytes;
    int64_t row_count, field_count;
    int64_t field_chars, row_fields;
    char *field; /* where the open field begins */
} sink;

static void add(sink *s, char c)
{
    if (s->rows) *s->bytes++ = c;
    /* broken characters are counted by bytes, which is close enough */
    if (((unsigned char)c & 0xc0) != 0x80) s->field_chars++;
}

static void end_field(sink *s)
{
    if (s->rows) {
        s->fields[s->field_count] = (ares_view){ s->field, (size_t)(s->bytes - s->field) };
        s->field = s->bytes;
    }
    s->field_count++;
    s->row_fields++;
    s->field_chars = 0;
}

static void end_row(sink *s)
{
    if (s->rows)
        s->rows[s->row_count] =
            (if_list){ s->fields + s->field_count - s->row_fields, s->row_fields };
    s->row_count++;
    s->row_fields = 0;
}

typedef enum place {
    START_ROW,
    START_FIELD,
    IN_FIELD,
    QUOTED,
    QUOTE_IN_QUOTED,
    LINE_END,
    BROKEN /* something follows a \r on its line */
} place;

static bool ends_line(char c)
{
    return c == '\n' || c == '\r';
}

/* Outside quotes a character belongs to the field or ends it. */
static place outside_quotes(char c, char delimiter, sink *s)
{
    if (c == delimiter || ends_line(c)) {
        end_field(s);
        return c == delimiter ? START_FIELD : LINE_END;
    }
    add(s, c);
    return IN_FIELD;
}

static place after(place at, char c, char delimiter, sink *s)
{
    switch (at) {
    case START_ROW:
        if (ends_line(c)) return LINE_END;
        /* fallthrough */
    case START_FIELD:
        if (c == '"') return QUOTED;
        /* fallthrough */
    case IN_FIELD: return outside_quotes(c, delimiter, s);
    case QUOTED:
        if (c == '"') return QUOTE_IN_QUOTED;
        break;
    case QUOTE_IN_QUOTED:
        if (c != '"') return outside_quotes(c, delimiter, s);
        break;
    default: return ends_line(c) ? LINE_END : BROKEN;
    }
    add(s, c);
    return QUOTED;
}

static bool run(ares_view text, char delimiter, sink *s)
{
    place at = START_ROW;
    for (size_t i = 0; i < text.len; i++) {
        at = after(at, text.data[i], delimiter, s);
        if (at == BROKEN || s->field_chars > FIELD_MAX) return false;
        if (text.data[i] == '\n' && at == LINE_END) { /* the end of one of the stream's lines */
            end_row(s);
            at = START_ROW;
        }
    }
    if (at == START_ROW) return true;
    if (at != LINE_END) end_field(s);
    end_row(s);
    return true;
}

if_rows if_csv(ares_view text, char delimiter, ares_arena *arena)
{
    sink count = { 0 };
    if (!run(text, delimiter, &count)) return (if_rows){ NULL, -1 };
    sink s = {
        .rows = ares_arena_alloc(arena, (size_t)ARES_MAX(count.row_count, 1) * sizeof(if_list)),
        .fields =
            ares_arena_alloc(arena, (size_t)ARES_MAX(count.field_count, 1) * sizeof(ares_view)),
        .bytes = ares_arena_alloc(arena, text.len + 1),
    };
    s.field = s.bytes;
    run(text, delimiter, &s);
    return (if_rows){ s.rows, s.row_count };
}
