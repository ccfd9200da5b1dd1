/* A GGUF file, read back by a reader of its own, beside what llama.cpp's tools make of a model. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/model.h"
#include "golden.h"

static void copy_into(golden *g, const char *from, const char *to)
{
    ares_str path = { 0 }, text = { 0 };
    DIR *d = opendir(from);
    if (!d) {
        golden_fail(g, "no folder %s", from);
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        ares_str_clear(&text);
        golden_ok(g, ares_file_read(ares_path_join(&path, from, e->d_name), &text));
        golden_ok(g, ares_file_write(ares_path_join(&path, to, e->d_name), text.data, text.len));
    }
    closedir(d);
    ares_str_fini(&path);
    ares_str_fini(&text);
}

typedef struct reader {
    golden *g;
    const char *at, *end;
} reader;

static uint64_t take(reader *r, size_t bytes)
{
    uint64_t x = 0;
    if ((size_t)(r->end - r->at) < bytes) {
        golden_fail(r->g, "the file ends too early");
        r->at = r->end;
        return 0;
    }
    memcpy(&x, r->at, bytes);
    r->at += bytes;
    return x;
}
static ares_view take_text(reader *r)
{
    ares_view t = { .len = (size_t)take(r, 8) };
    if ((size_t)(r->end - r->at) < t.len) t.len = 0;
    t.data = r->at;
    r->at += t.len;
    return t;
}

static void check_hash(golden *g, const char *what, const void *data, size_t bytes,
                       const ares_json *want)
{
    char hex[20];
    snprintf(hex, sizeof hex, "%016llx",
             (unsigned long long)ares_fnv1a(0xcbf29ce484222325u, data, bytes));
    golden_text(g, what, ares_view_of(hex), want);
}

/* The keys whose values a case knows; the others must be well formed. */
static void read_keys(reader *r, uint64_t n)
{
    static const struct {
        const char *key, *name;
    } known[] = { { "general.architecture", "architecture" },
                  { "tokenizer.ggml.pre", "pre" },
                  { "tokenizer.ggml.tokens", "tokens" },
                  { "tokenizer.ggml.token_type", "token_type" },
                  { "tokenizer.ggml.merges", "merges" } };
    static const size_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    for (uint64_t i = 0; i < n && !r->g->failed; i++) {
        ares_view key = take_text(r), text = { 0 };
        uint32_t type = (uint32_t)take(r, 4), of = type;
        uint64_t count = 1;
        if (type == 9) {
            of = (uint32_t)take(r, 4);
            count = take(r, 8);
        }
        const char *first = r->at;
        for (uint64_t k = 0; k < count && r->at < r->end; k++)
            if (of == 8) text = take_text(r);
            else (void)take(r, of < ARES_COUNT(sizes) ? sizes[of] : 0);
        for (int k = 0; k < ARES_COUNT(known); k++) {
            if (!ares_view_is(key, known[k].key)) continue;
            const ares_json *want = golden_want(r->g, known[k].name);
            if (type == 8) golden_text(r->g, known[k].key, text, want);
            else check_hash(r->g, known[k].key, first, (size_t)(r->at - first), want);
        }
    }
}

static void read_tensors(reader *r, uint64_t n, const char *file)
{
    const ares_json *want = golden_want(r->g, "tensors");
    struct entry {
        ares_view name;
        uint64_t at;
        const ares_json *want;
    } *e = ares_arena_calloc(r->g->arena, (size_t)n + 1, sizeof *e);
    golden_equal(r->g, "tensors", (long long)n,
                 &(ares_json){ .type = ARES_JSON_INT,
                               .integer = want->count,
                               .number = (double)want->count });
    for (uint64_t i = 0; i < n && !r->g->failed; i++) {
        e[i].name = take_text(r);
        const char *name = ares_arena_copy(r->g->arena, e[i].name.data, e[i].name.len);
        if (!(e[i].want = ares_json_get(want, name))) {
            golden_fail(r->g, "no tensor %s is expected", name);
            return;
        }
        uint64_t rank = take(r, 4);
        for (uint64_t k = 0; k < rank; k++)
            golden_equal(r->g, name, (long long)take(r, 8), &e[i].want->items[1].items[k]);
        golden_equal(r->g, name, (long long)take(r, 4), &e[i].want->items[0]);
        e[i].at = take(r, 8);
    }
    const char *data = file + ((size_t)(r->at - file) + 31) / 32 * 32;
    for (uint64_t i = 0; i < n && !r->g->failed; i++) {
        /* a type's bytes per row of the fastest size */
        int64_t type = e[i].want->items[0].integer, count = 1;
        const ares_json *sizes = &e[i].want->items[1];
        for (int64_t k = 0; k < sizes->count; k++) count *= sizes->items[k].integer;
        int64_t bytes = type == 0 ? 4 * count : type == 8 ? count / 32 * 34 : 2 * count;
        if (e[i].at % 32 || data + e[i].at + bytes > r->end)
            golden_fail(r->g, "tensor %llu does not lie in the file", (unsigned long long)i);
        else check_hash(r->g, "bytes", data + e[i].at, (size_t)bytes, &e[i].want->items[2]);
    }
}

GOLDEN(gguf, gguf_export)
{
    char folder[] = "/tmp/ares_golden_XXXXXX";
    if (!mkdtemp(folder)) return;
    ares_str file = { 0 };
    const char *path = ares_arena_printf(g->arena, "%s/model.gguf", folder);
    copy_into(g, ares_arena_printf(g->arena, "%s/%s", g->folder, golden_z(g, "tokenizer")), folder);
    copy_into(g, ares_arena_printf(g->arena, "%s/%s", g->folder, golden_z(g, "model")), folder);
    (void)remove(ares_arena_printf(g->arena, "%s/grads.safetensors", folder));
    if (golden_ok(g, ares_gguf_export(folder, NULL, golden_z(g, "type"), path)) &&
        golden_ok(g, ares_file_read(path, &file))) {
        reader r = { .g = g, .at = file.data, .end = file.data + file.len };
        if (take(&r, 4) != 0x46554747u || take(&r, 4) != 3) golden_fail(g, "not GGUF 3");
        uint64_t tensors = take(&r, 8), keys = take(&r, 8);
        read_keys(&r, keys);
        read_tensors(&r, tensors, file.data);
    }
    ares_str_fini(&file);
    (void)ares_dir_remove(folder);
}
