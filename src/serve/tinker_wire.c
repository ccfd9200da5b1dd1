/*
 * Tinker's binary messages by hand: the reader of ForwardBackwardRequest, the writers of
 * ForwardBackwardOutput and SampleResponse. Field numbers are those of the SDK `tinker` 0.38.0 (its
 * package tinker_public), of which 0.25.0 has a subset.
 *
 * What is no protocol buffer is ARES_EFORMAT; what is one, but not a request that can be served, is
 * ARES_EUSE and names datum and field. The reader checks all that needs neither the model nor the
 * loss. It reads a body from anywhere: every length is compared with what is left, and what a few
 * bytes can ask to have unfolded is limited.
 */
#include "tinker.h"

#include <math.h>
#include <string.h>

enum {
    WIRE_VARINT = 0,
    WIRE_I64 = 1,
    WIRE_BYTES = 2,
    WIRE_GROUP = 3,
    WIRE_GROUP_END = 4,
    WIRE_I32 = 5,
    MOST_GROUPS = 64, /* one within the other */
    MOST_DATA = 1 << 20,
    MOST_NAMES = 64,            /* of inputs of a datum, or options */
    MOST_SPARSE_CELLS = 1 << 25 /* of all sparse tensors of a request, once unfolded */
};

/* ---------------- fields */

typedef struct field {
    uint32_t number;
    int wire;
    uint64_t value;  /* WIRE_VARINT, WIRE_I64 */
    ares_view bytes; /* WIRE_BYTES */
} field;

static int malformed(const char *what)
{
    return ares_fail(ARES_EFORMAT, "tinker: not a ForwardBackwardRequest: %s", what);
}

static int read_varint(ares_view *in, uint64_t *out)
{
    *out = 0;
    for (unsigned i = 0; i < 10 && i < in->len; i++) {
        uint8_t byte = (uint8_t)in->data[i];
        if (i == 9 && byte > 1) return malformed("a number has more than 64 bits");
        *out |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte & 0x80) continue;
        *in = (ares_view){ in->data + i + 1, in->len - i - 1 };
        return ARES_OK;
    }
    return malformed("a number has no end");
}

static int take(ares_view *in, uint64_t len, ares_view *out)
{
    if (len > in->len) return malformed("a field goes beyond the end");
    *out = (ares_view){ in->data, (size_t)len };
    *in = (ares_view){ in->data + len, in->len - (size_t)len };
    return ARES_OK;
}

static uint64_t little_endian(const char *p, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)(uint8_t)p[i] << 8 * i;
    return x;
}

/* The next field, or the end of a group; groups themselves are skipped. in->len is not 0 before. */
static int read_field(ares_view *in, int depth, field *f)
{
    uint64_t tag;
    ares_view fixed = { 0 };
    ARES_TRY(read_varint(in, &tag));
    if (tag > UINT32_MAX || tag >> 3 == 0) return malformed("a field's number is out of range");
    *f = (field){ .number = (uint32_t)(tag >> 3), .wire = (int)(tag & 7) };
    switch (f->wire) {
    case WIRE_VARINT: return read_varint(in, &f->value);
    case WIRE_I32:
    case WIRE_I64:
        ARES_TRY(take(in, f->wire == WIRE_I64 ? 8 : 4, &fixed));
        f->value = little_endian(fixed.data, (int)fixed.len);
        return ARES_OK;
    case WIRE_BYTES: ARES_TRY(read_varint(in, &f->value)); return take(in, f->value, &f->bytes);
    case WIRE_GROUP:
        if (depth == MOST_GROUPS) return malformed("groups are nested too deeply");
        for (field inner;;) {
            if (!in->len) return malformed("a group has no end");
            ARES_TRY(read_field(in, depth + 1, &inner));
            if (inner.wire != WIRE_GROUP_END) continue;
            if (inner.number != f->number) return malformed("a group ends as another");
            return ARES_OK;
        }
    case WIRE_GROUP_END:
        return depth ? ARES_OK : malformed("the end of a group that did not begin");
    default: return malformed("a field has no such wire type");
    }
}

/* One field after the other: 1; none is left: 0; a failure. */
static int next_field(ares_view *in, field *f)
{
    if (!in->len) return 0;
    int rc = read_field(in, 0, f);
    return rc == ARES_OK ? 1 : rc;
}

static bool is(const field *f, uint32_t number, int wire)
{
    return f->number == number && f->wire == wire;
}

static int read_text(const field *f, ares_view *out)
{
    if (!ares_view_is_utf8(f->bytes)) return malformed("a text is not UTF-8");
    *out = f->bytes;
    return ARES_OK;
}

/* ---------------- tensors */

enum { EMPTY, DENSE, SPARSE }; /* a tensor's encoding */
enum { MOST_AXES = 2 };
/* A Tensor as it stands in the message; of a message that comes in pieces, all together. */
typedef struct raw_tensor {
    ares_view name;
    int encoding;
    ares_view dense, values, crow, col;
    int64_t dtype;
    int64_t axes, shape[MOST_AXES];
} raw_tensor;

static void add_axis(raw_tensor *t, uint64_t size)
{
    if (t->axes < MOST_AXES) t->shape[t->axes] = (int64_t)size;
    t->axes++;
}

static int read_tensor(ares_view in, raw_tensor *t)
{
    field f;
    int more;
    while ((more = next_field(&in, &f)) > 0) {
        if (is(&f, 1, WIRE_BYTES)) {
            t->encoding = DENSE;
            t->dense = f.bytes;
        } else if (is(&f, 2, WIRE_BYTES)) {
            ares_view csr = f.bytes;
            if (t->encoding != SPARSE) t->values = t->crow = t->col = (ares_view){ 0 };
            t->encoding = SPARSE;
            while ((more = next_field(&csr, &f)) > 0) {
                if (is(&f, 1, WIRE_BYTES)) t->values = f.bytes;
                else if (is(&f, 2, WIRE_BYTES)) t->crow = f.bytes;
                else if (is(&f, 3, WIRE_BYTES)) t->col = f.bytes;
            }
            if (more < 0) return more;
        } else if (is(&f, 3, WIRE_VARINT)) {
            t->dtype = (int32_t)(uint32_t)f.value;
        } else if (is(&f, 4, WIRE_VARINT)) {
            add_axis(t, f.value);
        } else if (is(&f, 4, WIRE_BYTES)) {
            for (uint64_t size; f.bytes.len;) {
                ARES_TRY(read_varint(&f.bytes, &size));
                add_axis(t, size);
            }
        }
    }
    return more;
}

/* What a request has unfolded so far, and where a failure lies. */
typedef struct reader {
    ares_arena *arena;
    int64_t sparse_cells;
    int64_t datum; /* at hand */
} reader;

static int refuse(const reader *r, const raw_tensor *t, const char *what)
{
    return ares_fail(ARES_EUSE, "datum %lld: %.*s: %s", (long long)r->datum, (int)t->name.len,
                     t->name.data, what);
}

/* One number of a dense array or of a sparse one's values, with its type. */
static void put(tinker_tensor *out, int64_t to, const char *from)
{
    if (out->dtype == TINKER_I64) {
        ((int64_t *)(uintptr_t)out->i64)[to] = (int64_t)little_endian(from, 8);
    } else {
        uint32_t bits = (uint32_t)little_endian(from, 4);
        memcpy((float *)(uintptr_t)out->f32 + to, &bits, sizeof bits);
    }
}

static int unfold(reader *r, const raw_tensor *t, tinker_tensor *out)
{
    int64_t rows = out->shape[0], columns = out->shape[1], width = out->dtype == TINKER_I64 ? 8 : 4;
    size_t n = t->col.len / 8;
    if (t->axes != 2) return refuse(r, t, "a sparse tensor has two dimensions");
    if (t->crow.len % 8 || t->crow.len / 8 != (size_t)rows + 1)
        return refuse(r, t, "crow_indices has not rows + 1 numbers");
    if (t->col.len % 8 || t->values.len != n * (size_t)width)
        return refuse(r, t, "values and col_indices differ in length");
    int64_t from = (int64_t)little_endian(t->crow.data, 8);
    if (from != 0) return refuse(r, t, "crow_indices does not begin with 0");
    for (int64_t row = 0; row < rows; row++) {
        int64_t end = (int64_t)little_endian(t->crow.data + 8 * (row + 1), 8), last = -1;
        if (end < from) return refuse(r, t, "crow_indices goes back");
        if (end > (int64_t)n) return refuse(r, t, "crow_indices goes beyond the values");
        for (; from < end; from++) {
            int64_t column = (int64_t)little_endian(t->col.data + 8 * from, 8);
            if (column <= last || column >= columns)
                return refuse(r, t, "col_indices of a row do not ascend within the shape");
            put(out, row * columns + column, t->values.data + width * from);
            last = column;
        }
    }
    return from == (int64_t)n ? ARES_OK : refuse(r, t, "crow_indices ends before the values");
}

/* The tensor, dense, in the arena. */
static int make_tensor(reader *r, const raw_tensor *t, tinker_tensor *out)
{
    int64_t width = t->dtype == TINKER_I64 ? 8 : 4;
    if (t->dtype != TINKER_F32 && t->dtype != TINKER_I64)
        return refuse(r, t, "its dtype is neither float32 nor int64");
    *out = (tinker_tensor){ .name = t->name, .dtype = (int)t->dtype, .axes = (int)t->axes };
    out->shape[0] = t->axes ? t->shape[0] : (int64_t)t->dense.len / width;
    out->shape[1] = t->axes == 2 ? t->shape[1] : 1;
    if (!t->axes) out->axes = 1;
    if (t->axes > MOST_AXES) return refuse(r, t, "its shape has more than two dimensions");
    if (out->shape[0] < 0 || out->shape[1] < 0 || out->shape[0] > INT32_MAX ||
        out->shape[1] > INT32_MAX)
        return refuse(r, t, "its shape is out of range");
    int64_t cells = out->shape[0] * out->shape[1];
    if (t->encoding == SPARSE) {
        r->sparse_cells += cells;
        if (cells > MOST_SPARSE_CELLS || r->sparse_cells > MOST_SPARSE_CELLS)
            return refuse(r, t,
                          "the sparse tensors of a request have more than 33554432 cells; "
                          "send fewer datums in a call");
    } else {
        ares_view dense = t->encoding == DENSE ? t->dense : (ares_view){ 0 };
        if (dense.len % (size_t)width || (int64_t)(dense.len / (size_t)width) != cells)
            return refuse(r, t, "its bytes are not those of its shape");
    }
    if (width == 8) out->i64 = ares_arena_calloc(r->arena, (size_t)cells + 1, 8);
    else out->f32 = ares_arena_calloc(r->arena, (size_t)cells + 1, 4);
    if (t->encoding == SPARSE) ARES_TRY(unfold(r, t, out));
    else
        for (int64_t i = 0; i < cells; i++) put(out, i, t->dense.data + width * i);
    for (int64_t i = 0; out->f32 && i < cells; i++)
        if (!isfinite(out->f32[i])) return refuse(r, t, "it holds NaN or infinity");
    return ARES_OK;
}

/* ---------------- datums */

/* The tokens of a chunk; kind: the number of its oneof's field, 0 where there is none. */
static int read_chunk(ares_view in, int *kind, ares_view *tokens)
{
    field f;
    int more;
    *kind = 0;
    *tokens = (ares_view){ 0 };
    while ((more = next_field(&in, &f)) > 0) {
        if (f.wire != WIRE_BYTES || f.number > 3) continue;
        ares_view text = f.bytes;
        if (*kind != (int)f.number) *tokens = (ares_view){ 0 };
        *kind = (int)f.number;
        if (f.number != 1) continue;
        while ((more = next_field(&text, &f)) > 0)
            if (is(&f, 1, WIRE_BYTES)) *tokens = f.bytes;
        if (more < 0) return more;
    }
    return more;
}

static int read_map_key(ares_view entry, ares_view *key)
{
    field f;
    int more;
    *key = (ares_view){ "", 0 };
    while ((more = next_field(&entry, &f)) > 0)
        if (is(&f, 1, WIRE_BYTES)) ARES_TRY(read_text(&f, key));
    return more;
}

static const tinker_tensor *input(const tinker_datum *d, const char *name)
{
    for (int i = 0; i < d->n_inputs; i++)
        if (ares_view_is(d->inputs[i].name, name)) return &d->inputs[i];
    return NULL;
}

/* The inputs agree with the tokens and with each other. */
static int check_inputs(const reader *r, const tinker_datum *d)
{
    static const char *const floats[] = { "weights", "logprobs", "advantages",
                                          "sequence_ratio_mask" };
    const tinker_tensor *of = input(d, "target_tokens");
    if (!of)
        return ares_fail(ARES_EUSE, "datum %lld: target_tokens is missing", (long long)r->datum);
    if (of->dtype != TINKER_I64)
        return ares_fail(ARES_EUSE, "datum %lld: target_tokens: its dtype is not int64",
                         (long long)r->datum);
    if (of->shape[0] != d->n)
        return ares_fail(ARES_EUSE,
                         "datum %lld: target_tokens has %lld positions, and the input %lld tokens",
                         (long long)r->datum, (long long)of->shape[0], (long long)d->n);
    if (of->shape[1] == 0)
        return ares_fail(ARES_EUSE, "datum %lld: target_tokens has no target", (long long)r->datum);
    for (int i = 0; i < ARES_COUNT(floats); i++) {
        const tinker_tensor *t = input(d, floats[i]);
        if (!t) continue;
        if (t->dtype != TINKER_F32)
            return ares_fail(ARES_EUSE, "datum %lld: %s: its dtype is not float32",
                             (long long)r->datum, floats[i]);
        if (t->axes != of->axes || t->shape[0] != of->shape[0] || t->shape[1] != of->shape[1])
            return ares_fail(ARES_EUSE, "datum %lld: %s has another shape than target_tokens",
                             (long long)r->datum, floats[i]);
    }
    return ARES_OK;
}

/* First a count of tokens and of inputs, then both. */
static int read_datum(reader *r, ares_view bytes, tinker_datum *d)
{
    field f;
    int more, kind, n_entries = 0;
    ares_view in = bytes, tokens;
    bool image = false, audio = false, broken = false, many = false;
    *d = (tinker_datum){ 0 };
    while ((more = next_field(&in, &f)) > 0) {
        if (is(&f, 1, WIRE_BYTES)) {
            ARES_TRY(read_chunk(f.bytes, &kind, &tokens));
            d->n += (int64_t)tokens.len / 4;
            image = image || kind == 2;
            audio = audio || kind == 3;
            broken = broken || kind == 0 || tokens.len % 4;
        } else if (is(&f, 2, WIRE_BYTES)) {
            many = many || n_entries == MOST_NAMES;
            n_entries += !many;
        }
    }
    if (more < 0) return more;
    if (many)
        return ares_fail(ARES_EUSE, "datum %lld: more than %d inputs", (long long)r->datum,
                         MOST_NAMES);
    int32_t *to = ares_arena_alloc(r->arena, (size_t)d->n * sizeof *to + 1);
    raw_tensor *raw = ares_calloc((size_t)n_entries + 1, sizeof *raw);
    int n = 0, rc = ARES_OK;
    d->tokens = to;
    for (in = bytes; rc == ARES_OK && next_field(&in, &f) > 0;) {
        if (is(&f, 1, WIRE_BYTES)) {
            rc = read_chunk(f.bytes, &kind, &tokens);
            for (size_t i = 0; i + 4 <= tokens.len; i += 4)
                *to++ = (int32_t)(uint32_t)little_endian(tokens.data + i, 4);
        } else if (is(&f, 2, WIRE_BYTES)) {
            /* of a key that comes twice the last entry counts, and of an entry all pieces */
            ares_view key, entry = f.bytes;
            int at = 0;
            rc = read_map_key(entry, &key);
            while (at < n && !ares_view_eq(raw[at].name, key)) at++;
            raw[at] = (raw_tensor){ .name = key };
            if (at == n) n++;
            while (rc == ARES_OK && (more = next_field(&entry, &f)) > 0)
                if (is(&f, 2, WIRE_BYTES)) rc = read_tensor(f.bytes, &raw[at]);
        }
    }
    const char *what = image       ? "image chunks are not served"
                       : audio     ? "audio chunks are not served"
                       : broken    ? "a chunk of tokens is not an array of int32"
                       : d->n == 0 ? "it has no tokens"
                                   : NULL;
    if (rc == ARES_OK && what)
        rc = ares_fail(ARES_EUSE, "datum %lld: %s", (long long)r->datum, what);
    tinker_tensor *inputs = ares_arena_alloc(r->arena, (size_t)(n + 1) * sizeof *inputs);
    for (int i = 0; i < n && rc == ARES_OK; i++) {
        rc = make_tensor(r, &raw[i], &inputs[i]);
        if (rc != ARES_OK) break;
        inputs[i].name.data = ares_arena_copy(r->arena, raw[i].name.data, raw[i].name.len);
    }
    d->inputs = inputs;
    d->n_inputs = n;
    ares_free(raw);
    return rc == ARES_OK ? check_inputs(r, d) : rc;
}

/* ---------------- the request */

/* An entry of loss_fn_config (v2 false: number) or loss_fn_config_v2 (a number or a text). */
static int read_option(ares_arena *arena, ares_view entry, bool v2, tinker_option *options, int *n)
{
    field f;
    int more, at = 0;
    bool found = !v2; /* an absent number is 0 */
    tinker_option o = { 0 };
    ARES_TRY(read_map_key(entry, &o.name));
    while ((more = next_field(&entry, &f)) > 0) {
        ares_view value = f.bytes;
        if (!v2 && is(&f, 2, WIRE_I64)) memcpy(&o.number, &f.value, sizeof o.number);
        if (!v2 || !is(&f, 2, WIRE_BYTES)) continue;
        while ((more = next_field(&value, &f)) > 0) {
            if (is(&f, 1, WIRE_I64)) memcpy(&o.number, &f.value, sizeof o.number);
            else if (is(&f, 2, WIRE_BYTES)) ARES_TRY(read_text(&f, &o.text));
            else continue;
            o.is_text = f.number == 2;
            found = true;
        }
        if (more < 0) return more;
    }
    if (more < 0) return more;
    while (at < *n && !ares_view_eq(options[at].name, o.name)) at++;
    if (!found || (!o.is_text && !isfinite(o.number)))
        return ares_fail(ARES_EUSE, "loss_fn_config: %.*s: %s", (int)o.name.len, o.name.data,
                         found ? "it is not a finite number" : "it has no value");
    o.name.data = ares_arena_copy(arena, o.name.data, o.name.len);
    if (o.is_text) o.text.data = ares_arena_copy(arena, o.text.data, o.text.len);
    else o.text = (ares_view){ 0 };
    options[at] = o;
    if (at == *n) ++*n;
    return ARES_OK;
}

/* Keeps the first refusal while the rest is read, which may be no message at all. */
static int and_then(int rc, int next, ares_str *message)
{
    if (next == ARES_EFORMAT || rc == ARES_EFORMAT) return ARES_EFORMAT;
    if (next != ARES_OK && rc == ARES_OK) {
        ares_str_add_z(message, ares_error_message());
        return next;
    }
    return rc;
}

int tinker_forward_read(ares_arena *arena, ares_view bytes, tinker_forward *out)
{
    field f;
    int more, n_options = 0, rc = ARES_OK;
    int64_t n_data = 0;
    ares_view in = bytes;
    ares_str first = { 0 };
    *out = (tinker_forward){ .model_id = { "", 0 }, .loss_fn = { "", 0 } };
    while ((more = next_field(&in, &f)) > 0) {
        if (is(&f, 1, WIRE_BYTES)) ARES_TRY(read_text(&f, &out->model_id));
        else if (is(&f, 2, WIRE_VARINT)) out->seq_id = (int32_t)(uint32_t)f.value;
        else if (is(&f, 3, WIRE_BYTES)) n_data++;
        else if (is(&f, 4, WIRE_BYTES)) ARES_TRY(read_text(&f, &out->loss_fn));
        else if (is(&f, 5, WIRE_BYTES) || is(&f, 7, WIRE_BYTES)) n_options++;
        else if (is(&f, 6, WIRE_VARINT)) out->forward_only = f.value != 0;
    }
    if (more < 0) return more;
    out->model_id.data = ares_arena_copy(arena, out->model_id.data, out->model_id.len);
    out->loss_fn.data = ares_arena_copy(arena, out->loss_fn.data, out->loss_fn.len);
    if (out->seq_id < 1) {
        out->seq_id = 0;
        rc = and_then(rc, ares_fail(ARES_EUSE, "seq_id is missing, or below 1"), &first);
    }
    if (n_data == 0) rc = and_then(rc, ares_fail(ARES_EUSE, "data is empty"), &first);
    if (n_data > MOST_DATA || n_options > 2 * MOST_NAMES) {
        int many = ares_fail(ARES_EUSE, "more than %d datums or %d options", MOST_DATA, MOST_NAMES);
        rc = and_then(rc, many, &first);
        n_data = n_options = 0;
    }
    reader r = { .arena = arena };
    tinker_datum *data = ares_arena_alloc(arena, (size_t)n_data * sizeof *data + 1);
    tinker_option *options = ares_arena_alloc(arena, (size_t)n_options * sizeof *options + 1);
    for (in = bytes; n_data && next_field(&in, &f) > 0;)
        if (is(&f, 3, WIRE_BYTES)) {
            rc = and_then(rc, read_datum(&r, f.bytes, &data[r.datum]), &first);
            r.datum++;
        }
    for (uint32_t number = 5; n_options && number <= 7; number += 2) /* the later map wins */
        for (in = bytes; next_field(&in, &f) > 0;)
            if (is(&f, number, WIRE_BYTES))
                rc = and_then(
                    rc, read_option(arena, f.bytes, number == 7, options, &out->n_options), &first);
    if (rc == ARES_EUSE) ares_fail(rc, "%s", first.data);
    ares_str_fini(&first);
    out->options = options;
    out->data = data;
    out->n_data = rc == ARES_OK ? n_data : 0;
    return rc;
}

/* ---------------- writing */

static void write_varint(ares_str *o, uint64_t x)
{
    for (; x >= 0x80; x >>= 7) ares_str_add_char(o, (char)(x | 0x80));
    ares_str_add_char(o, (char)x);
}

static void write_tag(ares_str *o, uint32_t number, int wire)
{
    write_varint(o, (uint64_t)number << 3 | (uint64_t)wire);
}

/* 0 is not written. */
static void write_number(ares_str *o, uint32_t number, uint64_t x)
{
    if (x == 0) return;
    write_tag(o, number, WIRE_VARINT);
    write_varint(o, x);
}

static void write_bytes(ares_str *o, uint32_t number, const void *data, size_t len)
{
    write_tag(o, number, WIRE_BYTES);
    write_varint(o, len);
    ares_str_add(o, data, len);
}

static void write_text(ares_str *o, uint32_t number, const char *text)
{
    write_bytes(o, number, text, strlen(text));
}

/* A message within: begin, its fields, end, which puts the length before them. */
static size_t begin_message(ares_str *o, uint32_t number)
{
    write_tag(o, number, WIRE_BYTES);
    return o->len;
}

static void end_message(ares_str *o, size_t at)
{
    ares_str length = { 0 };
    size_t len = o->len - at;
    write_varint(&length, len);
    ares_str_reserve(o, o->len + length.len + 1);
    memmove(o->data + at + length.len, o->data + at, len);
    memcpy(o->data + at, length.data, length.len);
    o->len += length.len;
    o->data[o->len] = 0;
    ares_str_fini(&length);
}

/* Numbers as bytes, little end first whatever the machine. */
static void write_words(ares_str *o, uint32_t number, const void *data, int64_t n, int width)
{
    write_tag(o, number, WIRE_BYTES);
    write_varint(o, (uint64_t)n * (uint64_t)width);
    ares_str_reserve(o, o->len + (size_t)n * (size_t)width + 1);
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = 0;
        uint32_t half;
        if (width == 8) memcpy(&x, (const char *)data + 8 * i, 8);
        else memcpy(&half, (const char *)data + 4 * i, 4), x = half;
        char le[8];
        for (int b = 0; b < width; b++) le[b] = (char)(x >> 8 * b);
        ares_str_add(o, le, (size_t)width);
    }
}

static void write_shape(ares_str *o, const int64_t *shape, int axes)
{
    size_t at = begin_message(o, 4);
    for (int i = 0; i < axes; i++) write_varint(o, (uint64_t)shape[i]);
    end_message(o, at);
}

/* An ArrayRecord: datums of one trailing shape, [] or [k]. */
static void write_record(ares_str *o, const tinker_log_probs *data, int64_t n)
{
    ares_arena arena = { 0 };
    int64_t cells = 0, *offsets = ares_arena_alloc(&arena, (size_t)(n + 1) * sizeof *offsets);
    size_t record = begin_message(o, 2);
    write_text(o, 1, "ArrayRecord");
    size_t entry = begin_message(o, 2);
    write_text(o, 1, "logprobs");
    size_t tensor = begin_message(o, 2);
    offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        cells += data[i].n * data[i].k;
        offsets[i + 1] = cells * 4;
    }
    float *all = ares_arena_alloc(&arena, (size_t)cells * sizeof *all + 1), *to = all;
    for (int64_t i = 0; i < n; to += data[i].n * data[i].k, i++)
        if (data[i].n) memcpy(to, data[i].x, (size_t)(data[i].n * data[i].k) * sizeof *to);
    if (cells) write_words(o, 1, all, cells, 4);
    write_words(o, 2, offsets, n + 1, 8);
    write_number(o, 3, TINKER_F32);
    if (data->axes == 2) write_shape(o, &data->k, 1);
    end_message(o, tensor);
    end_message(o, entry);
    write_number(o, 3, (uint64_t)n);
    end_message(o, record);
    ares_arena_fini(&arena);
}

void tinker_forward_write(const tinker_log_probs *data, int64_t n, const tinker_metric *metrics,
                          int n_metrics, ares_str *out)
{
    write_text(out, 1, "ArrayRecord");
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && data[end].axes == data[i].axes &&
                          (data[i].axes == 1 || data[end].k == data[i].k);)
            end++;
        write_record(out, data + i, end - i);
    }
    for (int i = 0; i < n_metrics; i++) {
        uint64_t bits;
        memcpy(&bits, &metrics[i].value, sizeof bits);
        size_t entry = begin_message(out, 3);
        write_text(out, 1, metrics[i].name);
        write_tag(out, 2, WIRE_I64);
        for (int b = 0; b < 8; b++) ares_str_add_char(out, (char)(bits >> 8 * b));
        end_message(out, entry);
    }
}

static void write_topk(ares_str *o, uint32_t number, const int32_t *tokens, const float *log_probs,
                       int64_t length, int32_t k)
{
    size_t at = begin_message(o, number);
    if (length) {
        write_words(o, 1, tokens, length * k, 4);
        write_words(o, 2, log_probs, length * k, 4);
    }
    write_number(o, 3, (uint64_t)k);
    write_number(o, 4, (uint64_t)length);
    end_message(o, at);
}

/* The log-probs of targets in the layout they were asked in. */
static void write_targets(ares_str *o, const tinker_sample *a, const float *x)
{
    const int64_t shape[2] = { a->prompt_len - 1, a->n_targets };
    size_t at = begin_message(o, 5);
    if (a->crow) {
        ares_arena arena = { 0 };
        float *cells = ares_arena_alloc(&arena, (size_t)a->n_cells * sizeof *cells + 1);
        for (int64_t row = 0; row < shape[0]; row++)
            for (int64_t i = a->crow[row]; i < a->crow[row + 1]; i++)
                cells[i] = x[row * shape[1] + a->col[i]];
        size_t csr = begin_message(o, 2);
        if (a->n_cells) write_words(o, 1, cells, a->n_cells, 4);
        write_words(o, 2, a->crow, shape[0] + 1, 8);
        if (a->n_cells) write_words(o, 3, a->col, a->n_cells, 8);
        end_message(o, csr);
        ares_arena_fini(&arena);
    } else {
        write_words(o, 1, x, shape[0] * shape[1], 4);
    }
    write_number(o, 3, TINKER_F32);
    write_shape(o, shape, 2);
    end_message(o, at);
}

void tinker_sample_write(const tinker_sample *a, const tinker_sampled *s, ares_str *out)
{
    for (int32_t i = 0; i < a->n; i++) {
        const tinker_sequence *q = &s->sequences[i];
        size_t at = begin_message(out, 1);
        write_number(out, 1, q->length);
        if (q->n) write_words(out, 2, q->tokens, q->n, 4);
        write_words(out, 3, q->log_probs, q->n, 4);
        if (a->topk_sampled) write_topk(out, 4, q->topk, q->topk_log_probs, q->n, a->topk_sampled);
        end_message(out, at);
    }
    if (a->prompt_log_probs) write_words(out, 2, s->prompt_log_probs, a->prompt_len, 4);
    if (a->topk_prompt)
        write_topk(out, 3, s->topk_prompt, s->topk_prompt_log_probs, a->prompt_len, a->topk_prompt);
    write_number(out, 4, (uint64_t)s->cache_hit_tokens);
    if (a->n_targets) write_targets(out, a, s->target_log_probs);
}
