/*
 * Safetensors, mapped and checked whole at open, so that its tensors can then be read without
 * further checks.
 */
#include "ares/core.h"
#include "ares/io.h"
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_LIMIT = 100 * 1000 * 1000 }; /* bytes; as in the reference library */

/* A file of the model in memory. */
typedef struct mapping {
    char *path;
    void *base;
    size_t bytes;
} mapping;

/* An open model: one file, or the shards that an index names. */
struct ares_safetensors {
    ares_arena arena;
    mapping *maps;
    int n_maps;
    ares_tensor_info *tensors; /* [count] of all files, with pointers into the mappings */
    int64_t count, cap;
    ares_map *by_name;      /* name -> place in `tensors` */
    const ares_json *notes; /* the first file's metadata; NULL: none */
};

/* The types of the format. is_float: weights of a model, which are read as the type `dtype`. */
static const struct {
    const char *name;
    int bits;
    bool is_float;
    ares_dtype dtype;
} dtypes[] = {
    { "F32", 32, true, ARES_F32 }, { "BF16", 16, true, ARES_BF16 }, { "F16", 16, true, ARES_F16 },
    { "F64", 64, false, 0 },       { "I64", 64, false, 0 },         { "I32", 32, false, 0 },
    { "I16", 16, false, 0 },       { "I8", 8, false, 0 },           { "U64", 64, false, 0 },
    { "U32", 32, false, 0 },       { "U16", 16, false, 0 },         { "U8", 8, false, 0 },
    { "BOOL", 8, false, 0 },       { "F8_E4M3", 8, false, 0 },      { "F8_E5M2", 8, false, 0 },
};

/* In the order of the bytes in the file; empty tensors before others at the same place. */
static int by_data(const void *a, const void *b)
{
    const ares_tensor_info *x = a, *y = b;
    if (x->data != y->data) return ARES_CMP(x->data, y->data);
    return ARES_CMP(x->bytes, y->bytes);
}

/*
 * One entry of the header: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, where
 * the offsets count from `data`, the first of the data_bytes bytes after the header.
 */
static int read_entry(ares_safetensors *s, const char *path, const ares_json_member *e,
                      const char *data, uint64_t data_bytes)
{
    char *name = ares_arena_copy(&s->arena, e->key.data, e->key.len);
    if (strlen(name) != e->key.len) /* C strings would cut it */
        return ares_fail(ARES_EFORMAT, "io: %s: a tensor's name holds NUL", path);
    if (e->value->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "io: %s: tensor '%s': its entry is not an object", path,
                         name);
    const ares_json *dtype = ares_json_get(e->value, "dtype"),
                    *shape = ares_json_get(e->value, "shape"),
                    *range = ares_json_get(e->value, "data_offsets");
    if (!dtype || dtype->type != ARES_JSON_STRING || !shape || shape->type != ARES_JSON_ARRAY ||
        !range || range->type != ARES_JSON_ARRAY || range->count != 2)
        return ares_fail(
            ARES_EFORMAT,
            "io: %s: tensor '%s': entry needs dtype, shape and data_offsets [begin, end]", path,
            name);

    int d = 0;
    while (d < ARES_COUNT(dtypes) && !ares_view_is(dtype->text, dtypes[d].name)) d++;
    if (d == ARES_COUNT(dtypes))
        return ares_fail(ARES_EFORMAT, "io: %s: tensor '%s': unknown dtype '%.*s'", path, name,
                         (int)dtype->text.len, dtype->text.data);
    ares_tensor_info t = { .name = name,
                           .file = path,
                           .dtype_name = dtypes[d].name,
                           .is_float = dtypes[d].is_float,
                           .dtype = dtypes[d].dtype };

    if (shape->count > ARES_COUNT(t.shape))
        return ares_fail(ARES_EFORMAT,
                         "io: %s: tensor '%s' has %lld dimensions; at most 8 are read", path, name,
                         (long long)shape->count);
    t.rank = (int)shape->count;
    t.count = 1;
    for (int i = 0; i < t.rank; i++) {
        const ares_json *size = &shape->items[i];
        if (size->type != ARES_JSON_INT || size->big || size->integer < 0 ||
            __builtin_mul_overflow(t.count, size->integer, &t.count))
            return ares_fail(ARES_EFORMAT, "io: %s: tensor '%s': dimension %d is not a size", path,
                             name, i);
        t.shape[i] = size->integer;
    }

    for (int i = 0; i < 2; i++)
        if (range->items[i].type != ARES_JSON_INT || range->items[i].big ||
            range->items[i].integer < 0)
            return ares_fail(ARES_EFORMAT,
                             "io: %s: tensor '%s': data_offsets are not byte positions", path,
                             name);
    uint64_t begin = (uint64_t)range->items[0].integer, end = (uint64_t)range->items[1].integer;
    /* checked here once, so that readers of the data need no bounds */
    if (begin > end || end > data_bytes)
        return ares_fail(ARES_EFORMAT,
                         "io: %s: tensor '%s' claims bytes %llu to %llu of %llu; the file is "
                         "truncated or damaged",
                         path, name, (unsigned long long)begin, (unsigned long long)end,
                         (unsigned long long)data_bytes);
    if (__builtin_mul_overflow(t.count, dtypes[d].bits / 8, &t.bytes) ||
        (uint64_t)t.bytes != end - begin)
        return ares_fail(
            ARES_EFORMAT, "io: %s: tensor '%s': %s with %lld elements does not fill its %llu bytes",
            path, name, t.dtype_name, (long long)t.count, (unsigned long long)(end - begin));
    t.data = data + begin;

    if (ares_map_get(s->by_name, ares_view_of(name), NULL))
        return ares_fail(ARES_EFORMAT, "io: %s: tensor '%s' appears twice", path, name);
    /* room for twice as many; files have hundreds of tensors */
    if (s->count == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 256;
        s->tensors = ares_realloc(s->tensors, (size_t)s->cap * sizeof *s->tensors);
    }
    ares_map_put(s->by_name, ares_view_of(name), s->count);
    s->tensors[s->count++] = t;
    return ARES_OK;
}

/* The format wants tensors to fill the data without gaps, from its start to the end of the file. */
static int check_layout(const ares_safetensors *s, const char *path, int64_t first,
                        const char *data, uint64_t data_bytes)
{
    /* sorted copies: a header may list tensors in any order */
    int64_t n = s->count - first;
    ares_tensor_info *sorted = ares_malloc((size_t)(n ? n : 1) * sizeof *sorted);
    if (n) memcpy(sorted, s->tensors + first, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_data);
    const char *at = data;
    int rc = ARES_OK;
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        const char *d = sorted[i].data;
        if (d < at)
            rc = ares_fail(ARES_EFORMAT, "io: %s: tensor '%s' overlaps another", path,
                           sorted[i].name);
        if (d > at)
            rc = ares_fail(ARES_EFORMAT, "io: %s: %lld unused bytes before tensor '%s'", path,
                           (long long)(d - at), sorted[i].name);
        at = d + sorted[i].bytes;
    }
    if (rc == ARES_OK && at != data + data_bytes)
        rc = ares_fail(
            ARES_EFORMAT,
            "io: %s: %llu bytes after the last tensor; the header does not belong to this file",
            path, (unsigned long long)(data + data_bytes - at));
    ares_free(sorted);
    return rc;
}

/* Maps a file, reads its header and adds its tensors. */
static int map_file(ares_safetensors *s, const char *path)
{
    const char *why;
    struct stat st;
    int fd = ares_file_open(path, &why);
    if (fd >= 0 && fstat(fd, &st) != 0) {
        why = strerror(errno);
        close(fd);
    }
    if (why) return ares_fail(ARES_EIO, "io: %s: %s", path, why);
    size_t bytes = (size_t)st.st_size;
    /* an empty file cannot be mapped */
    if (bytes < 8) {
        close(fd);
        return ares_fail(ARES_EFORMAT, "io: %s: %zu bytes are too few for a safetensors file", path,
                         bytes);
    }
    /* private and read-only: pages are read when a tensor is */
    void *base = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (base == MAP_FAILED) return ares_fail(ARES_EIO, "io: %s: mmap: %s", path, strerror(errno));
    s->maps = ares_realloc(s->maps, (size_t)(s->n_maps + 1) * sizeof *s->maps);
    s->maps[s->n_maps++] = (mapping){ ares_strdup(path), base, bytes };
    path = s->maps[s->n_maps - 1].path; /* tensors keep it as the name of their file */

    /* the file: length of the header in 8 bytes, little-endian; the header; the data */
    uint64_t header = 0;
    for (int i = 0; i < 8; i++) header |= (uint64_t)((const unsigned char *)base)[i] << (8 * i);
    if (header > HEADER_LIMIT || header > bytes - 8)
        return ares_fail(ARES_EFORMAT,
                         "io: %s: header of %llu bytes does not fit in the file of %zu bytes; it "
                         "is truncated, or no safetensors file",
                         path, (unsigned long long)header, bytes);
    /* names of tensors live in the arena, with the header's JSON */
    const ares_json *root;
    ares_str where = { 0 };
    /* the parser adds line and column */
    ares_str_addf(&where, "io: %s: header", path);
    int rc = ares_json_parse(&s->arena, (ares_view){ (const char *)base + 8, (size_t)header },
                             where.data, &root);
    ares_str_fini(&where);
    ARES_TRY(rc);
    if (root->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "io: %s: header is not a JSON object", path);

    const char *data = (const char *)base + 8 + header;
    uint64_t data_bytes = bytes - 8 - header;
    int64_t first = s->count; /* tensors of files before this one */
    for (int64_t i = 0; i < root->count; i++) {
        if (ares_view_is(root->members[i].key, "__metadata__")) { /* texts, no tensor */
            if (!s->notes) s->notes = root->members[i].value;
            continue;
        }
        ARES_TRY(read_entry(s, path, &root->members[i], data, data_bytes));
    }
    return check_layout(s, path, first, data, data_bytes);
}

const char *ares_safetensors_note(const ares_safetensors *s, const char *key)
{
    const ares_json *x = s->notes ? ares_json_get(s->notes, key) : NULL;
    return x && x->type == ARES_JSON_STRING ? x->text.data : NULL;
}

/*
 * The index maps names of tensors to names of files in its directory; every tensor must be in the
 * file that the index names.
 */
static int open_index(ares_safetensors *s, const char *path)
{
    ares_str text = { 0 }, shard = { 0 };
    ares_map *files = ares_map_new();
    const ares_json *root, *map = NULL;
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) {
        char *copy = ares_arena_copy(&s->arena, text.data, text.len);
        rc = ares_json_parse(&s->arena, (ares_view){ copy, text.len }, path, &root);
    }
    if (rc == ARES_OK) {
        map = ares_json_get(root, "weight_map");
        if (!map || map->type != ARES_JSON_OBJECT)
            rc = ares_fail(ARES_EFORMAT, "io: %s: no object 'weight_map'", path);
    }
    /* maps each shard once */
    const char *slash = strrchr(path, '/');
    for (int64_t i = 0; rc == ARES_OK && i < map->count; i++) {
        const ares_json *file = map->members[i].value; /* its name */
        if (file->type != ARES_JSON_STRING || memchr(file->text.data, '/', file->text.len)) {
            rc = ares_fail(ARES_EFORMAT, "io: %s: tensor '%.*s' is in no file of this directory",
                           path, (int)map->members[i].key.len, map->members[i].key.data);
            break;
        }
        if (ares_map_get(files, file->text, NULL)) continue;
        ares_map_put(files, file->text, 1);
        ares_str_clear(&shard);
        if (slash) ares_str_add(&shard, path, (size_t)(slash - path) + 1);
        ares_str_add_view(&shard, file->text);
        if (!ares_file_exists(shard.data))
            rc = ares_fail(ARES_EIO,
                           "io: %s names the shard '%.*s', which is missing; fetch it again", path,
                           (int)file->text.len, file->text.data);
        else rc = map_file(s, shard.data);
    }
    /* then every name must be where the index puts it, or a stale shard would go unseen */
    for (int64_t i = 0; rc == ARES_OK && i < map->count; i++) {
        ares_view name = map->members[i].key, promised = map->members[i].value->text;
        int64_t at;
        const char *found =
            ares_map_get(s->by_name, name, &at) ? strrchr(s->tensors[at].file, '/') : NULL;
        if (!ares_map_get(s->by_name, name, NULL))
            rc = ares_fail(ARES_EFORMAT, "io: %s: tensor '%.*s' is in none of the shards", path,
                           (int)name.len, name.data);
        else if (!ares_view_is(promised, found ? found + 1 : s->tensors[at].file))
            rc = ares_fail(ARES_EFORMAT, "io: %s: tensor '%.*s' is in %s, not in '%.*s'", path,
                           (int)name.len, name.data, s->tensors[at].file, (int)promised.len,
                           promised.data);
    }
    ares_map_free(files);
    ares_str_fini(&text);
    ares_str_fini(&shard);
    return rc;
}

/* The only *.safetensors of a directory that has neither usual name. */
static int only_file(const char *dir, ares_str *out)
{
    DIR *d = opendir(dir);
    if (!d) return ares_fail(ARES_EIO, "io: %s: %s", dir, strerror(errno));
    int found = 0;
    bool pickled = false, gguf = false;
    /* other formats are looked for only to say what to do about them */
    for (struct dirent *e; (e = readdir(d));) {
        const char *name = e->d_name;
        gguf |= ares_ends_with(name, ".gguf");
        pickled |= ares_ends_with(name, ".bin") || ares_ends_with(name, ".pt") ||
                   ares_ends_with(name, ".pth");
        if (ares_ends_with(name, ".safetensors") && found++ == 0) ares_path_join(out, dir, name);
    }
    closedir(d);
    if (found == 1) return ARES_OK;
    return ares_fail(
        ARES_EFORMAT, "io: %s: %s", dir,
        found  ? "several *.safetensors and no model.safetensors.index.json"
        : gguf ? "no model.safetensors here, and GGUF is not read; take the model that it was made "
                 "from, in safetensors"
        : pickled
            ? "no model.safetensors here, and weights in PyTorch's own format are not read; in "
              "Python, AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT) makes it"
            : "no model.safetensors here");
}

int ares_safetensors_open(const char *path, ares_safetensors **out)
{
    *out = NULL;
    /* a folder: its index, else its model.safetensors, else the only file of the format */
    ares_safetensors *s = ares_calloc(1, sizeof *s);
    s->by_name = ares_map_new();
    ares_str file = { 0 };
    int rc = ARES_OK;
    if (!ares_dir_exists(path))
        rc = ares_ends_with(path, ".json") ? open_index(s, path) : map_file(s, path);
    else if (ares_file_exists(ares_path_join(&file, path, "model.safetensors.index.json")))
        rc = open_index(s, file.data);
    else if (ares_file_exists(ares_path_join(&file, path, "model.safetensors")))
        rc = map_file(s, file.data);
    else {
        rc = only_file(path, &file);
        if (rc == ARES_OK) rc = map_file(s, file.data);
    }
    ares_str_fini(&file);
    if (rc != ARES_OK) {
        ares_safetensors_close(s);
        return rc;
    }
    *out = s;
    return ARES_OK;
}

void ares_safetensors_close(ares_safetensors *s)
{
    /* tensors that were handed out end with their mappings */
    if (!s) return;
    for (int i = 0; i < s->n_maps; i++) {
        munmap(s->maps[i].base, s->maps[i].bytes);
        ares_free(s->maps[i].path);
    }
    ares_free(s->maps);
    ares_free(s->tensors);
    ares_map_free(s->by_name);
    ares_arena_fini(&s->arena);
    ares_free(s);
}

int64_t ares_safetensors_count(const ares_safetensors *s)
{
    return s->count;
}
const ares_tensor_info *ares_safetensors_at(const ares_safetensors *s, int64_t i)
{
    return &s->tensors[i];
}

const ares_tensor_info *ares_safetensors_find(const ares_safetensors *s, const char *name)
{
    int64_t i;
    return ares_map_get(s->by_name, ares_view_of(name), &i) ? &s->tensors[i] : NULL;
}

/* ---------------------------------------------------------------- writer */
typedef struct declared {
    uint64_t at; /* byte of the data where the tensor begins */
    /* the tensor as a matrix: its first dimension, and the product of the others */
    int64_t rows, columns;
    size_t size; /* of an element */
} declared;
/*
 * Declares all tensors, then writes their data in the same order. Ranks that share a file write
 * parts of tensors at their places.
 */
struct ares_safetensors_writer {
    char *path;
    int fd, rc; /* rc: the first failure */
    /* shared: several ranks write the file; lead: this one sets its size and header */
    bool shared, lead;
    ares_str entries, notes; /* of the header and of its metadata, without their braces */
    /* bytes of data declared, and written; bytes of the header, 0 until it is made */
    uint64_t bytes, written, header;
    declared *tensors;
    int64_t count, cap;
    ares_map *by_name;
    char *buffer; /* [WRITE_BUFFER], of which `used` bytes wait; NULL where ranks share the file */
    size_t used;
};
enum { WRITE_BUFFER = 1 << 20 };

static int create(const char *path, bool shared, bool lead, ares_safetensors_writer **out)
{
    /* a shared file is not emptied: another rank may have written to it; the lead sets its size */
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (shared ? 0 : O_TRUNC), 0644);
    if (fd < 0) return ares_fail(ARES_EIO, "io: %s: %s", path, strerror(errno));
    ares_safetensors_writer *w = ares_calloc(1, sizeof *w);
    w->path = ares_strdup(path);
    w->fd = fd;
    w->shared = shared;
    w->lead = lead;
    w->by_name = ares_map_new();
    if (!shared) w->buffer = ares_malloc(WRITE_BUFFER);
    *out = w;
    return ARES_OK;
}

int ares_safetensors_create(const char *path, ares_safetensors_writer **out)
{
    return create(path, false, true, out);
}
int ares_safetensors_create_shared(const char *path, bool lead, ares_safetensors_writer **out)
{
    return create(path, true, lead, out);
}

/* Adds the entry of a tensor to the header; its data follows that of the tensor before. */
void ares_safetensors_declare(ares_safetensors_writer *w, const char *name, ares_dtype dtype,
                              int rank, const int64_t *shape)
{
    ARES_ASSERT(w->header == 0);
    static const char *const names[] = { "F32", "BF16", "F16" };
    uint64_t bytes = ares_dtype_bytes(dtype); /* of an element, then of the tensor */
    int64_t columns = 1;
    for (int i = 0; i < rank; i++) bytes *= (uint64_t)shape[i];
    for (int i = 1; i < rank; i++) columns *= shape[i];
    ares_str *e = &w->entries;
    ares_json_begin(ares_json_key(e, name), '{');
    ares_json_write_string(ares_json_key(e, "dtype"), ares_view_of(names[dtype]));
    ares_json_begin(ares_json_key(e, "shape"), '[');
    for (int i = 0; i < rank; i++) ares_json_write_i64(e, shape[i]);
    ares_json_end(e, ']');
    ares_json_begin(ares_json_key(e, "data_offsets"), '[');
    ares_json_write_i64(e, (int64_t)w->bytes);
    ares_json_write_i64(e, (int64_t)(w->bytes + bytes));
    ares_json_end(e, ']');
    ares_json_end(e, '}');
    if (w->shared) { /* ares_safetensors_write_at looks tensors up by name */
        if (w->count == w->cap) {
            w->cap = w->cap ? w->cap * 2 : 256;
            w->tensors = ares_realloc(w->tensors, (size_t)w->cap * sizeof *w->tensors);
        }
        ares_map_put(w->by_name, ares_view_of(name), w->count);
        w->tensors[w->count++] = (declared){ .at = w->bytes,
                                             .rows = rank > 0 ? shape[0] : 1,
                                             .columns = columns,
                                             .size = ares_dtype_bytes(dtype) };
    }
    w->bytes += bytes;
}

void ares_safetensors_add_note(ares_safetensors_writer *w, const char *key, const char *text)
{
    ARES_ASSERT(w->header == 0);
    ares_json_write_string(ares_json_key(&w->notes, key), ares_view_of(text));
}

/* Writes what the buffer holds; the first failure is kept in rc. */
static int flush(ares_safetensors_writer *w)
{
    if (w->rc == ARES_OK) w->rc = io_write_all(w->fd, w->path, w->buffer, w->used, -1);
    w->used = 0;
    return w->rc;
}

/* Adds bytes to the buffer, which is written whenever it is full: tensors may be small. */
static int put(ares_safetensors_writer *w, const char *data, size_t bytes)
{
    while (bytes && w->rc == ARES_OK) {
        size_t n = ARES_MIN(bytes, WRITE_BUFFER - w->used);
        memcpy(w->buffer + w->used, data, n);
        w->used += n;
        data += n;
        bytes -= n;
        if (w->used == WRITE_BUFFER) flush(w);
    }
    return w->rc;
}

/*
 * Makes the header, which is padded so that data is aligned, and writes its length and it before
 * the first byte of data. Every rank makes it, because it says where data begins; in a shared file
 * the lead writes it.
 */
static int put_header(ares_safetensors_writer *w)
{
    ares_str h = { 0 };
    char length[8]; /* little-endian */
    ares_json_begin(&h, '{');
    /* texts about the file */
    ares_json_begin(ares_json_key(&h, "__metadata__"), '{');
    ares_json_write_string(ares_json_key(&h, "format"), ARES_VIEW("pt")); /* transformers asks */
    ares_json_splice(&h, ares_str_view(&w->notes));
    ares_json_end(&h, '}');
    ares_json_splice(&h, ares_str_view(&w->entries));
    ares_json_end(&h, '}');
    while (h.len % 8) ares_str_add_char(&h, ' ');
    w->header = h.len;
    for (int i = 0; i < 8; i++) length[i] = (char)(w->header >> (8 * i));
    if (!w->shared) {
        put(w, length, sizeof length);
        put(w, h.data, h.len);
    } else if (w->lead) {
        if (ftruncate(w->fd, (off_t)(8 + w->header + w->bytes)) != 0)
            w->rc = ares_fail(ARES_EIO, "io: %s: %s", w->path, strerror(errno));
        if (w->rc == ARES_OK) w->rc = io_write_all(w->fd, w->path, length, sizeof length, 0);
        if (w->rc == ARES_OK) w->rc = io_write_all(w->fd, w->path, h.data, h.len, sizeof length);
    }
    ares_str_fini(&h);
    return w->rc;
}

int ares_safetensors_write(ares_safetensors_writer *w, const void *data, size_t bytes)
{
    ARES_ASSERT(!w->shared);
    if (w->header == 0) ARES_TRY(put_header(w));
    w->written += bytes;
    return put(w, data, bytes);
}

int ares_safetensors_write_at(ares_safetensors_writer *w, const char *name, int64_t row,
                              int64_t rows, int64_t column, int64_t columns, const void *data)
{
    int64_t i = 0;
    ARES_ASSERT(w->shared);
    if (w->header == 0) ARES_TRY(put_header(w));
    bool known = ares_map_get(w->by_name, ares_view_of(name), &i);
    ARES_ASSERT(known);
    const declared *t = &w->tensors[i];
    ARES_ASSERT(row >= 0 && column >= 0 && row + rows <= t->rows && column + columns <= t->columns);
    /* whole rows are one run of bytes */
    int64_t runs = columns == t->columns ? 1 : rows;
    size_t run = (size_t)(columns * (rows / runs)) * t->size; /* bytes */
    uint64_t at = 8 + w->header + t->at + (uint64_t)(row * t->columns + column) * t->size;
    for (int64_t k = 0; k < runs && w->rc == ARES_OK; k++)
        w->rc = io_write_all(w->fd, w->path, (const char *)data + (size_t)k * run, run,
                             (int64_t)(at + (uint64_t)(k * t->columns) * t->size));
    return w->rc;
}

int ares_safetensors_finish(ares_safetensors_writer *w)
{
    if (w->header == 0) put_header(w);
    if (!w->shared) flush(w);
    if (w->rc == ARES_OK && !w->shared && w->written != w->bytes)
        w->rc = ares_fail(ARES_ESTATE, "io: %s: %llu of %llu declared bytes were written", w->path,
                          (unsigned long long)w->written, (unsigned long long)w->bytes);
    if (w->rc == ARES_OK && fsync(w->fd) != 0)
        w->rc = ares_fail(ARES_EIO, "io: %s: fsync: %s", w->path, strerror(errno));
    /* some file systems report a failed write only here */
    if (close(w->fd) != 0 && w->rc == ARES_OK)
        w->rc = ares_fail(ARES_EIO, "io: %s: close: %s", w->path, strerror(errno));
    int rc = w->rc;
    ares_str_fini(&w->entries);
    ares_str_fini(&w->notes);
    ares_map_free(w->by_name);
    ares_free(w->tensors);
    ares_free(w->buffer);
    ares_free(w->path);
    ares_free(w);
    return rc;
}
