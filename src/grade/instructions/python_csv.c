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

static bool run(ares_view text, char delimiter, sink *s)
{
    enum { START_ROW, START_FIELD, IN_FIELD, QUOTED, QUOTE_IN_QUOTED, LINE_END } state = START_ROW;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        switch (state) {
        case START_ROW:
            if (c == '\n' || c == '\r') {
                state = LINE_END;
                break;
            }
            /* fallthrough */
        case START_FIELD:
            if (c == '"') {
                state = QUOTED;
                break;
            }
            /* fallthrough */
        case IN_FIELD:
            if (c == '\n' || c == '\r') {
                end_field(s);
                state = LINE_END;
            } else if (c == delimiter) {
                end_field(s);
                state = START_FIELD;
            } else {
                add(s, c);
                state = IN_FIELD;
            }
            break;
        case QUOTED:
            if (c == '"') state = QUOTE_IN_QUOTED;
            else add(s, c);
            break;
        case QUOTE_IN_QUOTED:
            if (c == '"') {
                add(s, c);
                state = QUOTED;
            } else if (c == delimiter) {
                end_field(s);
                state = START_FIELD;
            } else if (c == '\n' || c == '\r') {
                end_field(s);
                state = LINE_END;
            } else {
                add(s, c);
                state = IN_FIELD;
            }
            break;
        case LINE_END:
            if (c != '\n' && c != '\r') return false;
            break;
        }
        if (s->field_chars > FIELD_MAX) return false;
        if (c == '\n' && state == LINE_END) { /* the end of one of the stream's lines */
            end_row(s);
            state = START_ROW;
        }
    }
    if (state == START_FIELD || state == IN_FIELD || state == QUOTED || state == QUOTE_IN_QUOTED)
        end_field(s);
    if (state != START_ROW) end_row(s);
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
