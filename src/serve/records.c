/*
 * Agents in training: seeds and turns, the rows that are trained on, and the lines that a program
 * writes.
 *
 * Everything is a function of ids and of what was sampled, never of the order in which requests
 * came: rows are made in an order of their own.
 */
#include "openai.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Little end first: as the machine has them. */
static uint64_t hash_ids(uint64_t h, const int32_t *ids, int64_t n)
{
    return ares_fnv1a(h, ids, (size_t)n * sizeof *ids);
}

uint64_t serve_seed(int64_t server_seed, const int32_t *ids, int64_t n, double temperature,
                    double top_p, int64_t top_k, int64_t k)
{
    int32_t count = (int32_t)n;
    if (top_k == 0) top_k = -1;
    uint64_t h = ares_fnv1a(ARES_FNV1A, &server_seed, sizeof server_seed);
    h = hash_ids(hash_ids(h, &count, 1), ids, n);
    h = ares_fnv1a(h, &temperature, sizeof temperature);
    h = ares_fnv1a(h, &top_p, sizeof top_p);
    h = ares_fnv1a(h, &top_k, sizeof top_k);
    return ares_fnv1a(h, &k, sizeof k) & INT64_MAX;
}

uint64_t serve_turn(const int32_t *ids, int64_t n, int64_t k, int64_t choice)
{
    uint64_t h = hash_ids(ARES_FNV1A, ids, n);
    h = ares_fnv1a(h, &k, sizeof k);
    return ares_fnv1a(h, &choice, sizeof choice);
}

/* ------------------------------------------------------------------ rows */
typedef struct placed {
    const ares_serve_record *record;
    int index; /* in the caller's list */
} placed;

int ares_serve_record_cmp(const ares_serve_record *r, const ares_serve_record *s)
{
    if (r->n_prompt != s->n_prompt) return ARES_CMP(r->n_prompt, s->n_prompt);
    for (int64_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] != s->prompt[i]) return ARES_CMP(r->prompt[i], s->prompt[i]);
    if (r->k != s->k) return ARES_CMP(r->k, s->k);
    return ARES_CMP(r->index, s->index);
}

static int by_prompt(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    int order = ares_serve_record_cmp(x->record, y->record);
    return order ? order : ARES_CMP(x->index, y->index);
}

static bool same_ids(const int32_t *a, const int32_t *b, int64_t n)
{
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* A row while it is made: the records that it is made of, in order. */
typedef struct growing {
    int64_t n_ids;      /* of all its ids: the last record's prompt and sampled ones */
    int last, *records; /* last: place in the sorted list */
    int n_records, cap;
} growing;

/* The longest row whose ids all begin the prompt, of equals the first; -1: none. */
static int row_to_extend(const growing *rows, int n, const placed *order,
                         const ares_serve_record *r)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        const growing *row = &rows[i];
        if (row->n_ids > r->n_prompt || (best >= 0 && row->n_ids <= rows[best].n_ids)) continue;
        /* a row's ids are the prompt and the sampled ids of its last record */
        const ares_serve_record *last = order[row->last].record;
        if (same_ids(r->prompt + last->n_prompt, last->ids, last->n) &&
            same_ids(r->prompt, last->prompt, last->n_prompt))
            best = i;
    }
    return best;
}

static void fill_row(ares_arena *arena, const growing *from, const ares_serve_record *records,
                     ares_serve_row *row)
{
    const ares_serve_record *first = &records[from->records[0]];
    int64_t n = from->n_ids - first->n_prompt;
    size_t most = (size_t)n + 1; /* an arena gives no memory of no bytes */
    *row = (ares_serve_row){
        .prompt = ares_arena_calloc(arena, (size_t)first->n_prompt + 1, sizeof *row->prompt),
        .responses = ares_arena_calloc(arena, most, sizeof *row->responses),
        .mask = ares_arena_calloc(arena, most, sizeof *row->mask),
        .log_probs = ares_arena_calloc(arena, most, sizeof *row->log_probs),
        .weights = ares_arena_alloc(arena, most * sizeof *row->weights),
        .n_prompt = first->n_prompt,
        .n = n,
        .records = from->records,
        .n_records = from->n_records,
    };
    for (int64_t i = 0; i < first->n_prompt; i++) row->prompt[i] = first->prompt[i];
    for (int64_t i = 0; i < n; i++) row->weights[i] = -1;
    for (int k = 0; k < from->n_records; k++) {
        const ares_serve_record *r = &records[from->records[k]];
        int64_t at = r->n_prompt - first->n_prompt; /* of its sampled ids in the response */
        for (int64_t i = 0; i < at; i++) row->responses[i] = r->prompt[first->n_prompt + i];
        for (int64_t i = 0; i < r->n; i++) {
            row->responses[at + i] = r->ids[i];
            row->mask[at + i] = 1;
            row->log_probs[at + i] = r->log_probs[i];
            row->weights[at + i] = r->weights;
        }
    }
}

int ares_serve_rows(ares_arena *arena, const ares_serve_record *records, int n,
                    ares_serve_row **rows)
{
    placed *order = ares_arena_calloc(arena, (size_t)n + 1, sizeof *order);
    growing *made = ares_arena_calloc(arena, (size_t)n + 1, sizeof *made);
    int n_order = 0, n_rows = 0;
    for (int i = 0; i < n; i++)
        if (records[i].train) order[n_order++] = (placed){ &records[i], i };
    qsort(order, (size_t)n_order, sizeof *order, by_prompt);
    for (int i = 0; i < n_order; i++) {
        const ares_serve_record *r = order[i].record;
        int at = row_to_extend(made, n_rows, order, r);
        if (at < 0) at = n_rows++;
        growing *row = &made[at];
        if (row->n_records == row->cap) {
            int cap = ARES_MAX(2, 2 * row->cap);
            int *more = ares_arena_calloc(arena, (size_t)cap, sizeof *more);
            if (row->n_records) memcpy(more, row->records, (size_t)row->n_records * sizeof *more);
            row->records = more;
            row->cap = cap;
        }
        row->records[row->n_records++] = order[i].index;
        row->last = i;
        row->n_ids = r->n_prompt + r->n;
    }
    *rows = ares_arena_calloc(arena, (size_t)n_rows + 1, sizeof **rows);
    for (int i = 0; i < n_rows; i++) fill_row(arena, &made[i], records, &(*rows)[i]);
    return n_rows;
}

/* ------------------------------------------------------------------ an agent's line */
static const double most_reward = 1e30;

static bool is_number(const ares_json *v)
{
    return v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT;
}

static bool is_absent(const ares_json *v)
{
    return !v || v->type == ARES_JSON_NULL;
}

/* NULL, or why the line is no judgement. */
static const char *read_judgement(ares_arena *arena, const ares_json *o, ares_serve_line *out)
{
    const ares_json *error = ares_json_get(o, "error"), *reward = ares_json_get(o, "reward"),
                    *success = ares_json_get(o, "success"), *info = ares_json_get(o, "info");
    if (!is_absent(error)) {
        ares_str text = { 0 };
        ares_json_write(&text, error);
        bool is_text = error->type == ARES_JSON_STRING;
        ares_view says = is_text ? error->text : ares_str_view(&text);
        const char *why = ares_arena_copy(arena, says.data, says.len);
        ares_str_fini(&text);
        return why;
    }
    if (is_absent(reward)) return "not judged: its reward is null";
    if (reward->type != ARES_JSON_BOOL && !is_number(reward))
        return "reward is no number; write {\"reward\": 1}";
    double value = reward->type == ARES_JSON_BOOL ? (double)reward->boolean : reward->number;
    if (!(fabs(value) <= most_reward)) return "reward is larger than 1e30 in size";
    if (!is_absent(success) && success->type != ARES_JSON_BOOL)
        return "success is neither true nor false";
    if (!is_absent(info)) {
        if (info->type != ARES_JSON_OBJECT)
            return "info is no object; write \"info\": {\"calls\": 2}";
        for (int64_t i = 0; i < info->count; i++) {
            const ares_json *v = info->members[i].value;
            if (v->type != ARES_JSON_BOOL && !is_number(v))
                return ares_arena_printf(arena, "info.%s is neither a number nor a truth value",
                                         info->members[i].key.data);
        }
        out->info = info;
    }
    out->reward = value;
    out->success = is_absent(success) ? value > 0 : success->boolean;
    return NULL;
}

void ares_serve_line_read(ares_arena *arena, ares_view line, bool with_id, ares_serve_line *out)
{
    const ares_json *o;
    *out = (ares_serve_line){ .kind = ARES_SERVE_LINE_CHATTER };
    if (ares_json_parse(arena, line, "line", &o) != ARES_OK) {
        if (ares_view_starts(line, ARES_VIEW("{\"reward\"")) ||
            ares_view_starts(line, ARES_VIEW("{\"error\""))) {
            out->kind = ARES_SERVE_LINE_FAILURE;
            out->why = ares_arena_printf(arena, "unreadable: %s", ares_error_message());
        }
        ares_error_clear();
        return;
    }
    if (!ares_json_get(o, "reward") && !ares_json_get(o, "error")) return;
    const ares_json *id = ares_json_get(o, "id");
    if (with_id && is_absent(id)) return;
    if (with_id) out->id = id;
    out->why = read_judgement(arena, o, out);
    out->kind = out->why ? ARES_SERVE_LINE_FAILURE : ARES_SERVE_LINE_REWARD;
}
