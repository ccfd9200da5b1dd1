/*
 * Weights between files and memory. In order: one parameter between host and device; the pieces
 * of tensors that a rank has; fingerprints; writing; reading, and new weights; optimizer states;
 * a reference that follows the policy.
 */
#include "internal.h"

#include <ctype.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ares/io.h"

/*
 * A parameter's tensors between row-major host memory and the layout and memory of its device. On a
 * CPU they are packed in place; for another device they are packed on the host and copied.
 */

static bool lies_in(const char *p, const char *memory, size_t bytes)
{
    return memory && p >= memory && p < memory + bytes;
}

/* Weights and optimizer states may lie in host memory beside a card, too. */
static bool on_host(const ares_params *ps, const ares_matrix *t)
{
    return ps->device->index < 0 || lies_in(t->data, ps->host_weights, ps->host_weights_bytes) ||
           (ps->windows && lies_in(t->data, ps->states, ps->states_bytes));
}

static size_t tensor_bytes(const ares_matrix *w)
{
    return (size_t)ares_matrix_elements(w->layout, w->n, w->k) * ares_dtype_bytes(w->dtype);
}

/* Rows [n][k] of the given type in host memory -> a parameter's tensor; the reverse of model_get.
 */
int model_put(const ares_params *ps, const ares_matrix *to, const void *rows, ares_dtype dtype)
{
    ares_device *d = ps->device;
    if (on_host(ps, to)) {
        ares_matrix_pack(to, rows, dtype);
        return ARES_OK;
    }
    size_t bytes = tensor_bytes(to);
    ares_matrix host = *to;
    host.data = ares_malloc(bytes);
    ares_matrix_pack(&host, rows, dtype);
    d->k->copy_in(d, to->data, host.data, bytes);
    int rc = d->k->sync(d);
    ares_free(host.data);
    return rc;
}

int model_get(const ares_params *ps, const ares_matrix *from, void *rows, ares_dtype dtype)
{
    ares_device *d = ps->device;
    if (on_host(ps, from)) {
        ares_matrix_unpack(from, rows, dtype);
        return ARES_OK;
    }
    size_t bytes = tensor_bytes(from);
    ares_matrix host = *from;
    host.data = ares_malloc(bytes);
    d->k->copy_out(d, host.data, from->data, bytes);
    int rc = d->k->sync(d);
    if (rc == ARES_OK) ares_matrix_unpack(&host, rows, dtype);
    ares_free(host.data);
    return rc;
}

/*
 * What stretches of regions are in files, as rectangles of tensors, and what of them a rank holds
 * and what it writes. A region is cut anywhere between its elements (in panels: between columns, or
 * pairs of them), so the ends of a stretch are parts of a row or panel and everything between is
 * whole ones.
 */

/* Elements [low, high) of a parameter's memory. */
static void pieces_of(const ares_param *p, int64_t low, int64_t high, rectangle_fn *fn, void *ctx)
{
    ares_layout layout = p->weight.layout;
    int64_t lanes = layout == ARES_ROWS ? 1 : 32, k = p->weight.k,
            band = lanes * ares_layout_inputs(layout, k),
            least = layout == ARES_PANEL32_PAIRS ? 2 * lanes : lanes; /* a cut is between these */
    while (low < high) {
        int64_t row = low / band * lanes, inside = low % band, n;
        if (inside || high - low < band) {
            n = ARES_MIN(high - low, band - inside);
            ARES_ASSERT(inside % least == 0 && n % least == 0);
            int64_t column = inside / lanes;
            fn(ctx, p, row, ARES_MIN(lanes, p->weight.n - row), column,
               ARES_MIN(n / lanes, k - column), p->at + low);
        } else {
            n = (high - low) / band * band;
            fn(ctx, p, row, ARES_MIN(n / band * lanes, p->weight.n - row), 0, k, p->at + low);
        }
        low += n;
    }
}

void pieces_of_region(const ares_params *ps, int r, int64_t first, int64_t n, rectangle_fn *fn,
                      void *ctx)
{
    for (int i = 0; i < ps->n; i++) {
        const ares_param *p = &ps->list[i];
        if (p->region != r) continue;
        int64_t low = ARES_MAX(first - p->at, 0), high = ARES_MIN(first + n - p->at, p->elements);
        if (low < high) pieces_of(p, low, high, fn, ctx);
    }
}

/* ---------------------------------------------------------------- in this rank's memory */
/* Elements [first, first + n) of a region, which lie at data; NULL: there are none. */
typedef struct stretch {
    int64_t first, n;
    char *data;
    ares_dtype dtype;
} stretch;

/* Where this rank has weights of the region: all of them, or its own part. */
static stretch held_weights(const ares_region *r)
{
    if (r->in_parts && !r->weights)
        return (stretch){ r->own_first, r->own, r->host ? r->host : r->own_weights, r->dtype };
    return (stretch){ 0, r->elements, r->host && !r->in_parts ? r->host : r->weights, r->dtype };
}

/* What a model has a number of per element; the last three once the optimizer has memory. */
typedef enum { OF_WEIGHTS, OF_M, OF_V, OF_MASTER } piece_kind;

/* The same for numbers of any kind. */
static stretch held(const ares_params *ps, const ares_region *r, piece_kind kind)
{
    char *data = kind == OF_M ? r->m : kind == OF_V ? r->v : r->master;
    bool frozen = r - ps->regions >= ps->n_regions;
    /* norms and biases are f32 in memory, though the model's files may round them */
    bool is_weight = kind == OF_MASTER && !data && ps->file_dtype != ARES_F32;
    if (frozen && (r->decay || r->tower)) is_weight = false;
    if (frozen && kind != OF_WEIGHTS && !is_weight) return (stretch){ 0 };
    if (kind == OF_WEIGHTS || is_weight) return held_weights(r);
    return (stretch){ r->own_first, r->own, data, r->states };
}

/* Whether files have numbers of that kind for the parameter. */
static bool pieces_exist(const ares_params *ps, const ares_param *p, piece_kind kind)
{
    return held(ps, &ps->regions[p->region], kind).data != NULL;
}

/* The rectangle as it lies in a stretch. */
static ares_matrix lying(const stretch *s, const piece *x)
{
    ares_matrix y = { .dtype = s->dtype,
                      .layout = x->p->weight.layout,
                      .n = (int32_t)x->rows,
                      .k = (int32_t)x->columns };
    int64_t n = ares_matrix_elements(y.layout, y.n, y.k);
    ARES_ASSERT(x->at >= s->first && x->at + n <= s->first + s->n);
    y.data = s->data + (size_t)(x->at - s->first) * ares_dtype_bytes(s->dtype);
    return y;
}

typedef int piece_fn(void *ctx, const piece *x);

typedef struct visit {
    stretch held;
    piece_fn *fn;
    void *ctx;
    int rc;
} visit;

/* A rectangle_fn: gives a rectangle its memory, and calls the visit's function unless one failed.
 */
static void meet(void *ctx, const ares_param *p, int64_t row, int64_t rows, int64_t column,
                 int64_t columns, int64_t at)
{
    visit *v = ctx;
    if (v->rc != ARES_OK) return;
    piece x = { .p = p, .row = row, .rows = rows, .column = column, .columns = columns, .at = at };
    x.memory = lying(&v->held, &x);
    v->rc = v->fn(v->ctx, &x);
}

static int pieces_held_of(const ares_params *ps, int region, piece_kind kind, piece_fn *fn,
                          void *ctx)
{
    visit v = { .held = held(ps, &ps->regions[region], kind), .fn = fn, .ctx = ctx };
    if (v.held.data) pieces_of_region(ps, region, v.held.first, v.held.n, meet, &v);
    return v.rc;
}

/* Everything of that kind in this rank's memory. Ends with the first failure. */
static int pieces_held(const ares_params *ps, piece_kind kind, piece_fn *fn, void *ctx)
{
    int rc = ARES_OK;
    for (int i = 0; i < regions_count(ps) && rc == ARES_OK; i++)
        rc = pieces_held_of(ps, i, kind, fn, ctx);
    return rc;
}

/* ---------------------------------------------------------------- what each rank writes */
enum { TURN = 1 << 24 }; /* elements */

/* Of matrices each rank writes an equal run of chunks, of norms and biases rank 0 everything. */
static int64_t share_of(const ares_region *r, int ranks)
{
    int64_t chunks = ares_region_chunks(r);
    return r->decay ? (chunks + ranks - 1) / ranks * ARES_SUM_CHUNK : r->elements;
}

/*
 * What rank `rank` of `ranks` writes of a region, in turns of at most 16 million elements; the
 * ranks together write everything once. Every rank has the same number of turns, some of them
 * empty.
 */
static int64_t pieces_turns(const ares_region *r, int ranks)
{
    return (share_of(r, ranks) + TURN - 1) / TURN;
}

static int pieces_of_turn(const ares_params *ps, int region, piece_kind kind, int rank, int ranks,
                          int64_t turn, piece_fn *fn, void *ctx)
{
    const ares_region *r = &ps->regions[region];
    visit v = { .held = held(ps, r, kind), .fn = fn, .ctx = ctx };
    /* which of the runs is rank's: ranks that have the same part of a region write it together */
    int shards = ares_params_shards(ps), number = rank % shards * (ranks / shards) + rank / shards;
    int64_t share = share_of(r, ranks), run = number * share, first = run + turn * TURN,
            end = ARES_MIN(ARES_MIN(run + share, first + TURN), r->elements);
    if (!v.held.data || first >= end) return ARES_OK;
    ARES_ASSERT(first >= v.held.first && end <= v.held.first + v.held.n);
    pieces_of_region(ps, region, first, end - first, meet, &v);
    return v.rc;
}

/* ---------------------------------------------------------------- rectangles of whole tensors */
/* tensor: the whole one in host memory, of which the rectangle is taken. */
static int piece_put(ares_params *ps, const piece *x, const void *tensor, ares_dtype dtype)
{
    size_t size = ares_dtype_bytes(dtype), row = (size_t)x->columns * size;
    int64_t k = x->p->weight.k;
    const char *from = (const char *)tensor + (size_t)(x->row * k + x->column) * size;
    if (x->columns == k) return model_put(ps, &x->memory, from, dtype);
    char *rows = ares_malloc((size_t)x->rows * row);
    for (int64_t i = 0; i < x->rows; i++)
        memcpy(rows + (size_t)i * row, from + (size_t)(i * k) * size, row);
    int rc = model_put(ps, &x->memory, rows, dtype);
    ares_free(rows);
    return rc;
}

/*
 * Two numbers that tell weights apart. One says which weights a directory holds, from the names,
 * types and shapes of all tensors and some bytes of each. Reading all bytes of a large model would
 * take seconds, and two models that were trained apart differ nearly everywhere. The other is of
 * everything that a checkpoint holds: the sum of a hash per number, keyed by tensor and position,
 * so that ranks may add any parts of it in any order.
 */

enum { PLACES = 16, PIECE = 64 }; /* places in a tensor, bytes at each */
int ares_model_fingerprint(const char *dir, uint64_t *out)
{
    ares_safetensors *s;
    uint64_t h = ARES_FNV1A;
    ARES_TRY(ares_safetensors_open(dir, &s));
    for (int64_t i = 0; i < ares_safetensors_count(s); i++) {
        const ares_tensor_info *t = ares_safetensors_at(s, i);
        h = ares_fnv1a(h, t->name, strlen(t->name) + 1);
        h = ares_fnv1a(h, t->dtype_name, strlen(t->dtype_name) + 1);
        h = ares_fnv1a(h, t->shape, (size_t)t->rank * sizeof *t->shape);
        for (int64_t k = 0; k < PLACES; k++) {
            int64_t at = t->bytes / PLACES * k;
            h = ares_fnv1a(h, (const char *)t->data + at, (size_t)ARES_MIN(PIECE, t->bytes - at));
        }
    }
    ares_safetensors_close(s);
    *out = h;
    return ARES_OK;
}

/* ---------------------------------------------------------------- of all numbers */
typedef struct hash_job {
    uint64_t key;
    const void *rows;
    ares_dtype dtype;
    int64_t n, columns, at, stride; /* element i stands at `at` + its row x stride + its column */
    _Atomic uint64_t sum;
} hash_job;

enum { HASH_CHUNK = 1 << 16 };

/* Of one number, by tensor and position: adding such hashes in any order gives the same sum. */
static uint64_t hash_of(uint64_t key, int64_t at, uint64_t bits)
{
    uint64_t h = key + (uint64_t)at * 0x9e3779b97f4a7c15u;
    h = (h ^ bits) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 32) * 0x94d049bb133111ebu;
    return h ^ h >> 29;
}

static void hash_chunk(void *ctx, int64_t task, int worker)
{
    (void)worker;
    hash_job *j = ctx;
    int64_t i = task * HASH_CHUNK, end = ARES_MIN(j->n, i + HASH_CHUNK);
    uint64_t sum = 0;
    while (i < end) { /* row by row */
        int64_t column = i % j->columns, stop = ARES_MIN(end, i + j->columns - column),
                at = j->at + i / j->columns * j->stride + column;
        if (j->dtype == ARES_F32)
            for (const uint32_t *x = j->rows; i < stop; i++) sum += hash_of(j->key, at++, x[i]);
        else
            for (const uint16_t *x = j->rows; i < stop; i++) sum += hash_of(j->key, at++, x[i]);
    }
    atomic_fetch_add(&j->sum, sum);
}

/*
 * Tensors of a model into files, by one rank or by several. Every rank takes its stretch of each
 * region and writes the rectangles that it is made of at their places, so that no rank needs more
 * than it holds, and the bytes of the files are those that one rank would write. Where the ranks do
 * not see the same files, they send their rectangles to rank 0, a turn at a time.
 */

/* A file with tensors of parameters [first, end); path NULL: none, only the sum is made. */
typedef struct save_file {
    const char *path;
    int first, end;
    piece_kind kinds[3];
    int n_kinds;
    ares_dtype dtype;
    const char *note, *text; /* in the file's metadata; NULL: none */
} save_file;

typedef struct saving {
    const ares_params *ps;
    const save_file *f;
    ares_world *world;
    bool sends;                 /* rectangles go to rank 0 */
    ares_write_queue *behind;   /* writes copies of them; NULL: they are written at once */
    ares_safetensors_writer *w; /* NULL: rank 0 has it, or nothing is written */
    piece_kind kind;
    uint64_t sum;
    ares_str out; /* this turn's rectangles */
    int rc;       /* the first failure of this rank */
} saving;

/* Before the numbers of a rectangle that is sent. */
typedef struct wire {
    int64_t param, kind, row, rows, column, columns;
} wire;

static const char *tensor_name(const ares_param *p, piece_kind kind, char name[static 128])
{
    static const char *const suffixes[] = { "", ".m", ".v", ".master" };
    snprintf(name, 128, "%s%s", p->name, suffixes[kind]);
    return name;
}

/* The tensor of that kind in a file; NULL: absent. */
static const ares_tensor_info *save_find(const ares_safetensors *s, const ares_param *p,
                                         piece_kind kind)
{
    char name[128];
    return ares_safetensors_find(s, tensor_name(p, kind, name));
}

/* of all parameters */
static save_file save_weights(const ares_params *ps, const char *path)
{
    return (save_file){ path, 0, ps->n, { OF_WEIGHTS }, 1, ps->file_dtype, NULL, NULL };
}

static save_file save_states(const ares_params *ps, const char *path)
{
    return (save_file){ path, 0, ps->n, { OF_M, OF_V, OF_MASTER }, 3, ARES_F32, NULL, NULL };
}

/* The type of a parameter's tensor in the file. */
static ares_dtype dtype_in(const save_file *f, const ares_param *p)
{
    return p->wide ? ARES_F32 : f->dtype;
}

/* Declares all tensors of the file on every rank that writes into it; the lead rank makes it. */
static int open_file(saving *s)
{
    char name[128];
    bool lead = ares_world_rank(s->world) == 0;
    if (s->sends && !lead) return ARES_OK;
    ARES_TRY(ares_safetensors_create_shared(s->f->path, lead, &s->w));
    if (s->f->note) ares_safetensors_add_note(s->w, s->f->note, s->f->text);
    for (int i = s->f->first; i < s->f->end; i++)
        for (int k = 0; k < s->f->n_kinds; k++) {
            const ares_param *p = &s->ps->list[i];
            piece_kind kind = s->f->kinds[k];
            if (pieces_exist(s->ps, p, kind))
                ares_safetensors_declare(s->w, tensor_name(p, kind, name), dtype_in(s->f, p),
                                         p->rank, p->shape);
        }
    return ARES_OK;
}

static int write_rows(const saving *s, const wire *x, const void *rows)
{
    char name[128];
    tensor_name(&s->ps->list[x->param], (piece_kind)x->kind, name);
    return ares_safetensors_write_at(s->w, name, x->row, x->rows, x->column, x->columns, rows);
}

/* A rectangle that is written when the program has gone on; it is released then. */
typedef struct late {
    ares_safetensors_writer *w;
    char name[128];
    wire at;
    char rows[];
} late;

static int write_late(void *ctx)
{
    late *l = ctx;
    int rc = ares_safetensors_write_at(l->w, l->name, l->at.row, l->at.rows, l->at.column,
                                       l->at.columns, l->rows);
    ares_free(l);
    return rc;
}

static int finish_late(void *ctx)
{
    return ares_safetensors_finish(ctx);
}
/* A piece_fn: hashes a rectangle, and sends it, queues a copy or writes it. */
static int save_piece(void *ctx, const piece *x)
{
    saving *s = ctx;
    wire head = { x->p - s->ps->list, s->kind, x->row, x->rows, x->column, x->columns };
    if (head.param < s->f->first || head.param >= s->f->end) return ARES_OK;
    int64_t n = x->rows * x->columns, k = x->p->weight.k;
    ares_dtype dtype = dtype_in(s->f, x->p);
    size_t bytes = (size_t)n * ares_dtype_bytes(dtype);
    void *rows = ares_malloc(bytes);
    int rc = model_get(s->ps, &x->memory, rows, dtype);
    if (rc == ARES_OK) { /* what these numbers contribute to the fingerprint */
        uint64_t name = ares_fnv1a(ARES_FNV1A, x->p->name, strlen(x->p->name));
        hash_job j = { .key = ares_fnv1a(name, &(char){ (char)s->kind }, 1),
                       .rows = rows,
                       .dtype = dtype,
                       .n = n,
                       .columns = x->columns,
                       .at = x->row * k + x->column,
                       .stride = k };
        ares_pool_run(s->ps->device->pool, (n + HASH_CHUNK - 1) / HASH_CHUNK, hash_chunk, &j);
        s->sum += j.sum;
    }
    if (rc == ARES_OK && s->sends) {
        ares_str_add(&s->out, (const char *)&head, sizeof head);
        ares_str_add(&s->out, rows, bytes);
    } else if (rc == ARES_OK && s->w && s->behind) {
        late *l = ares_malloc(sizeof *l + bytes);
        l->w = s->w;
        l->at = head;
        tensor_name(x->p, s->kind, l->name);
        memcpy(l->rows, rows, bytes);
        ares_write_queue_post(s->behind, write_late, l);
    } else if (rc == ARES_OK && s->w) rc = write_rows(s, &head, rows);
    ares_free(rows);
    return rc;
}

/* Rank 0 writes what all ranks have sent. Fails where ranks can no longer communicate. */
static int deliver(saving *s)
{
    ares_str all = { 0 };
    int rc = ares_world_gather_all(s->world, s->out.data, s->out.len, &all, NULL);
    for (size_t at = 0; rc == ARES_OK && s->w && at < all.len;) {
        wire head;
        memcpy(&head, all.data + at, sizeof head);
        at += sizeof head;
        if (s->rc == ARES_OK) s->rc = write_rows(s, &head, all.data + at);
        at += (size_t)(head.rows * head.columns) *
              ares_dtype_bytes(dtype_in(s->f, &s->ps->list[head.param]));
    }
    ares_str_fini(&all);
    ares_str_clear(&s->out);
    return rc;
}

/*
 * All turns of this rank's stretches, of a file whose path is NULL, too: only the sum is made. A
 * rank that has failed still takes part in the turns.
 */
static int save_all(saving *s)
{
    int rank = ares_world_rank(s->world), ranks = ares_world_size(s->world);
    for (int k = 0; k < s->f->n_kinds; k++)
        for (int i = 0; i < regions_count(s->ps); i++) {
            int64_t turns = pieces_turns(&s->ps->regions[i], ranks);
            s->kind = s->f->kinds[k];
            for (int64_t t = 0; t < turns; t++) {
                if (s->rc == ARES_OK)
                    s->rc = pieces_of_turn(s->ps, i, s->kind, rank, ranks, t, save_piece, s);
                if (s->sends) ARES_TRY(deliver(s));
            }
        }
    return ARES_OK;
}

/*
 * A collective of by's ranks (NULL: this process alone), unless it fails with ARES_EDIST. Another
 * failure is this rank's own. *sum grows by what this rank has written contributes to the
 * fingerprint.
 */
static int save_tensors(const ares_params *ps, const save_file *f, const ares_writers *by,
                        uint64_t *sum)
{
    saving s = { .ps = ps, .f = f, .world = by ? by->world : NULL };
    s.sends = by && f->path && !by->same_files && ares_world_size(s.world) > 1;
    s.behind = by && !s.sends ? by->behind : NULL;
    if (f->path) s.rc = open_file(&s);
    int rc = save_all(&s), finished = ARES_OK;
    if (s.w && s.behind) ares_write_queue_post(s.behind, finish_late, s.w);
    else if (s.w) finished = ares_safetensors_finish(s.w);
    if (s.rc == ARES_OK) s.rc = finished;
    ares_str_fini(&s.out);
    *sum += s.sum;
    return rc == ARES_OK ? s.rc : rc;
}

typedef struct sizes {
    int64_t all, largest; /* bytes: of all rectangles, and of one */
    const save_file *f;
} sizes;

static int count_piece(void *ctx, const piece *x)
{
    sizes *s = ctx;
    int64_t bytes = x->rows * x->columns * (int64_t)ares_dtype_bytes(dtype_in(s->f, x->p));
    s->all += bytes;
    s->largest = ARES_MAX(s->largest, bytes);
    return ARES_OK;
}

static void add_sizes(const ares_params *ps, const save_file *f, int ranks, sizes *s)
{
    s->f = f;
    for (int k = 0; k < f->n_kinds; k++)
        for (int i = 0; i < regions_count(ps); i++)
            for (int64_t t = 0; t < pieces_turns(&ps->regions[i], ranks); t++)
                (void)pieces_of_turn(ps, i, f->kinds[k], 0, ranks, t, count_piece, s);
}

int64_t ares_params_save_bytes(const ares_params *ps, bool states, int ranks, int64_t *largest)
{
    save_file of_weights = save_weights(ps, NULL), of_states = save_states(ps, NULL);
    sizes s = { 0 };
    add_sizes(ps, &of_weights, ranks, &s);
    if (states) add_sizes(ps, &of_states, ranks, &s);
    if (largest) *largest = s.largest;
    return s.all;
}

/* A collective: the first failure of any rank, or *sum over all ranks. */
static int save_agree(const ares_writers *by, int rc, uint64_t *sum)
{
    ares_world *w = by ? by->world : NULL;
    ARES_TRY(ares_world_share_error(w, rc));
    /* in two halves, whose sums fit */
    int64_t half[] = { (int64_t)(*sum & 0xffffffff), (int64_t)(*sum >> 32) };
    ARES_TRY(ares_world_sum_i64(w, half, ARES_COUNT(half)));
    *sum = (uint64_t)half[0] + ((uint64_t)half[1] << 32);
    return ARES_OK;
}

int params_save(const ares_params *ps, const char *path, const ares_writers *by, const char *note,
                const char *text, uint64_t *sum)
{
    save_file file = save_weights(ps, path);
    uint64_t own = 0;
    file.note = note;
    file.text = text;
    ARES_TRY(save_agree(by, save_tensors(ps, &file, by, &own), &own));
    if (sum) *sum = own;
    return ARES_OK;
}

int ares_params_sum(const ares_params *ps, ares_world *world, uint64_t *weights, uint64_t *states)
{
    ares_writers by = { .world = world };
    save_file of_weights = save_weights(ps, NULL), of_states = save_states(ps, NULL);
    *weights = *states = 0;
    int rc = save_tensors(ps, &of_weights, &by, weights);
    if (rc == ARES_OK && ps->states) rc = save_tensors(ps, &of_states, &by, states);
    ARES_TRY(save_agree(&by, rc, weights));
    return save_agree(&by, ARES_OK, states);
}

/*
 * Parameters from and to Hugging Face's files, and new ones. Files always hold row-major tensors;
 * panels exist in memory only.
 */

/* A rotary table, which old files have per layer. */
static bool is_frequencies(const char *name)
{
    return model_name_ends(name, ".rotary_emb.inv_freq");
}

/* Frequencies of a file against those that config.json asks for, which are used. */
static bool are_ours(const ares_model *m, const ares_tensor_info *t)
{
    const ares_rope_config *rope = &m->cfg.rope;
    if (rope->kind != ARES_ROPE_DEFAULT || !t->is_float || t->dtype != ARES_F32 ||
        t->count != m->cfg.head_dim / 2)
        return false;
    for (int64_t i = 0; i < t->count; i++) {
        float have;
        double want = pow(rope->theta, -2.0 * (double)i / m->cfg.head_dim);
        memcpy(&have, (const char *)t->data + i * (int64_t)sizeof have, sizeof have);
        if (!(fabs(have - want) <= 1e-3 * want)) return false;
    }
    return true;
}

/* What config.json says of quantised weights; *method lives in the arena. Data NULL: nothing. */
static void find_quantisation(const char *dir, ares_arena *arena, ares_view *method)
{
    ares_str path = { 0 }, text = { 0 };
    const ares_json *root = NULL;
    *method = (ares_view){ 0 };
    if (ares_file_read(ares_path_join(&path, dir, "config.json"), &text) == ARES_OK &&
        ares_json_parse(arena, ares_str_view(&text), path.data, &root) == ARES_OK) {
        const ares_json *q = ares_json_get(root, "quantization_config"),
                        *name = ares_json_get(q, "quant_method");
        if (q && q->type == ARES_JSON_OBJECT && q->count) *method = ARES_VIEW("unnamed scheme");
        if (name && name->type == ARES_JSON_STRING) *method = name->text;
    }
    ares_str_fini(&path);
    ares_str_fini(&text);
}

/* Whether a tensor is of a part that is not built, and is kept as it is (docs/model.md). */
static bool is_unread(const ares_model_config *c, const ares_tensor_info *t)
{
    static const char *const parts[] = { "model.visual.", "visual.", "mtp." };
    for (int i = 0; i < ARES_COUNT(parts) && c->net.v_heads; i++)
        if (strncmp(t->name, parts[i], strlen(parts[i])) == 0) return t->is_float;
    return false;
}

/* A tensor that belongs to no parameter, by what its name is known for. */
static int refuse_tensor(const ares_model *m, const ares_tensor_info *t, ares_view method)
{
    static const struct {
        const char *part, *scheme;
    } quantised[] = {
        { ".qweight", "GPTQ or AWQ" },
        { ".qzeros", "GPTQ or AWQ" },
        { ".scales", "GPTQ or AWQ" },
        { ".g_idx", "GPTQ" },
        { ".weight_scale", "FP8 or compressed-tensors" },
        { ".input_scale", "FP8 or compressed-tensors" },
        { ".weight_packed", "compressed-tensors" },
        { ".weight_zero_point", "compressed-tensors" },
        { ".absmax", "bitsandbytes" },
        { ".quant_", "bitsandbytes" },
        { ".SCB", "bitsandbytes" },
    };
    for (int i = 0; i < ARES_COUNT(quantised); i++)
        if (strstr(t->name, quantised[i].part)) {
            if (!method.data) method = ares_view_of(quantised[i].scheme);
            return ares_fail(ARES_EUNSUPPORTED,
                             "model: %s: tensor '%s' is of quantised weights (%.*s), which are not "
                             "read; take the unquantised model that they were made from",
                             t->file, t->name, (int)method.len, method.data);
        }
    if (m->cfg.experts && strstr(t->name, ".mlp.experts.") && !strstr(t->name, "_proj.weight"))
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: %s: tensor '%s' holds the experts of a layer together, which is "
                         "not read; save the model by save_pretrained() of transformers 5, which "
                         "writes a matrix per expert",
                         t->file, t->name);
    if (strstr(t->name, ".lora_"))
        return ares_fail(
            ARES_EUNSUPPORTED,
            "model: %s: tensor '%s' is of an adapter, which is not read; merge it into "
            "its base model (in Python: PeftModel's merge_and_unload()) and save that",
            t->file, t->name);
    return ares_fail(ARES_EFORMAT,
                     "model: %s: tensor '%s' belongs to no parameter of a %s; is config.json of "
                     "another model?",
                     t->file, t->name, m->cfg.model_type);
}

static const char *shape_text(ares_str *s, int rank, const int64_t *shape)
{
    ares_str_clear(s);
    ares_str_add_char(s, '[');
    for (int i = 0; i < rank; i++) ares_str_addf(s, i ? ", %lld" : "%lld", (long long)shape[i]);
    ares_str_add_char(s, ']');
    return s->data;
}

/* t: the file's tensor of that name; NULL: missing */
static int check_param(const ares_param *p, const ares_tensor_info *t, const char *dir)
{
    ares_str want = { 0 }, have = { 0 };
    int rc = ARES_OK;
    shape_text(&want, p->rank, p->shape);
    if (!t)
        rc = ares_fail(ARES_EFORMAT, "model: %s: tensor '%s' is missing; expected shape %s", dir,
                       p->name, want.data);
    else if (!t->is_float)
        rc = ares_fail(ARES_EUNSUPPORTED,
                       "model: %s: tensor '%s' is %s, of quantised weights; take the model that "
                       "they were made from (choices: F32, BF16, F16)",
                       t->file, p->name, t->dtype_name);
    else if (!param_has_shape(p, t))
        rc = ares_fail(ARES_EFORMAT, "model: %s: tensor '%s' has shape %s; config.json asks for %s",
                       t->file, p->name, shape_text(&have, t->rank, t->shape), want.data);
    ares_str_fini(&want);
    ares_str_fini(&have);
    return rc;
}

typedef struct loading {
    ares_model *m;
    const ares_safetensors *s;
    float *fresh; /* the weight of a value head that the files lack; NULL: they have it */
} loading;

/*
 * As transformers 5: a model that config.json ties stays tied where the files lack a head of its
 * own or have the same numbers there; another head holds.
 */
void model_untie(const ares_safetensors *s, const char *dir, ares_model_config *c)
{
    static const char head[] = "lm_head.weight";
    const ares_tensor_info *own = ares_safetensors_find(s, head), *shared = NULL;
    for (int64_t i = 0; own && i < ares_safetensors_count(s) && !shared; i++)
        if (strstr(ares_safetensors_at(s, i)->name, "embed_tokens.weight"))
            shared = ares_safetensors_at(s, i);
    if (!c->tied || !shared) return;
    if (own->bytes == shared->bytes && own->dtype == shared->dtype &&
        memcmp(own->data, shared->data, (size_t)own->bytes) == 0)
        return;
    c->tied = false;
    ares_warn("model: %s: tie_word_embeddings is true in config.json, but %s is not %s; the head "
              "of its own holds, as in transformers 5; set tie_word_embeddings to false",
              dir, head, shared->name);
}

/* transformers converts what it loads to the type that config.json names. */
static void compare_dtypes(const ares_safetensors *s, const char *dir, const ares_model_config *c)
{
    static const char *const names[] = {
        [ARES_F32] = "float32", [ARES_BF16] = "bfloat16", [ARES_F16] = "float16"
    };
    const ares_tensor_info *first = NULL;
    for (int64_t i = 0; c->says_dtype && i < ares_safetensors_count(s) && !first; i++)
        if (ares_safetensors_at(s, i)->is_float && ares_safetensors_at(s, i)->rank > 1)
            first = ares_safetensors_at(s, i);
    if (first && first->dtype != c->file_dtype)
        ares_warn("model: %s: config.json says %s, and the first matrix, '%s', is %s; weights are "
                  "read as they are stored, where transformers 5 converts them",
                  dir, names[c->file_dtype], first->name, first->dtype_name);
}

static int load_piece(void *ctx, const piece *x)
{
    static const float zero;
    loading *l = ctx;
    if (l->fresh && x->p == l->m->value) return piece_put(&l->m->params, x, l->fresh, ARES_F32);
    if (l->fresh && x->p == l->m->value_bias) return piece_put(&l->m->params, x, &zero, ARES_F32);
    const ares_tensor_info *t = ares_safetensors_find(l->s, x->p->name);
    return piece_put(&l->m->params, x, t->data, t->dtype);
}

void model_draw_value_head(uint64_t seed, int32_t hidden, float *out)
{
    ares_rng_key key = ares_rng_sub(ares_rng_root(seed, ARES_RNG_INIT), UINT64_MAX, 0);
    for (int32_t i = 0; i < hidden; i++) out[i] = (float)(0.02 * ares_rng_normal(key, (uint64_t)i));
}

static int load_weights(ares_model *m, const ares_safetensors *s, const char *dir,
                        uint64_t value_seed)
{
    loading l = { .m = m, .s = s };
    ares_arena arena = { 0 };
    ares_view method;
    bool told = false;
    int rc = ARES_OK;
    find_quantisation(dir, &arena, &method);
    for (int64_t i = 0; i < ares_safetensors_count(s) && rc == ARES_OK; i++) {
        const ares_tensor_info *t = ares_safetensors_at(s, i);
        bool tied_head =
            m->cfg.tied && strcmp(t->name, "lm_head.weight") == 0; /* as model_untie says */
        if (!model_param(m, t->name) && !tied_head && !is_frequencies(t->name) &&
            !is_unread(&m->cfg, t))
            rc = refuse_tensor(m, t, method);
        else if (is_frequencies(t->name) && !told && !are_ours(m, t)) {
            told = true;
            ares_warn("model: %s: tensor '%s' is not used, and differs from the rope that "
                      "config.json asks for (rope_theta %g), which holds, as in transformers 5",
                      t->file, t->name, m->cfg.rope.theta);
        }
    }
    bool fresh = m->value && !ares_safetensors_find(s, m->value->name);
    for (int i = 0; i < m->params.n && rc == ARES_OK; i++)
        if (!fresh || (&m->params.list[i] != m->value && &m->params.list[i] != m->value_bias))
            rc = check_param(&m->params.list[i], ares_safetensors_find(s, m->params.list[i].name),
                             dir);
    for (int i = 0; i < m->params.n && rc == ARES_OK; i++) {
        ares_param *p = &m->params.list[i];
        if (p->wide) p->wide = ares_safetensors_find(s, p->name)->dtype == ARES_F32;
    }
    if (rc == ARES_OK && method.data)
        ares_warn("model: %s/config.json: quantization_config (%.*s) is not applied: the weights "
                  "are not quantised, and are trained as they stand",
                  dir, (int)method.len, method.data);
    ares_arena_fini(&arena);
    if (fresh) { /* the weight as transformers draws it; load_piece makes the bias 0 */
        l.fresh = ares_calloc((size_t)m->cfg.hidden, sizeof *l.fresh);
        model_draw_value_head(value_seed, m->cfg.hidden, l.fresh);
    }
    if (rc == ARES_OK) rc = pieces_held(&m->params, OF_WEIGHTS, load_piece, &l);
    if (rc == ARES_OK) rc = regions_refresh(&m->params);
    ares_free(l.fresh);
    return rc;
}

/* owner/name, as models are called on the Hugging Face hub. */
static bool is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    if (!slash || slash == path || !slash[1] || strchr(slash + 1, '/')) return false;
    for (const char *c = path; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("/-_.", *c)) return false;
    return path[0] != '.' && path[0] != '-';
}

static int refuse_path(const char *path)
{
    ares_str probe = { 0 }, text = { 0 };
    ares_arena arena = { 0 };
    int rc;
    if (!ares_dir_exists(path)) {
        size_t n = strlen(path);
        if (n > 5 && strcmp(path + n - 5, ".gguf") == 0)
            rc = ares_fail(ARES_EUNSUPPORTED,
                           "model: %s: GGUF is not read; take the model that it was made from, in "
                           "safetensors",
                           path);
        else if (ares_file_exists(path))
            rc = ares_fail(ARES_EIO, "model: %s: a file; name the directory that holds it", path);
        else if (is_hub_name(path))
            rc =
                ares_fail(ARES_EIO,
                          "model: %s: no such directory; models are not fetched: if this is a "
                          "name on the Hugging Face hub, run 'hf download %s --local-dir %s' first",
                          path, path, path);
        else rc = ares_fail(ARES_EIO, "model: %s: no such directory", path);
    } else if (ares_file_exists(ares_path_join(&probe, path, "adapter_config.json"))) {
        const ares_json *root = NULL, *base = NULL;
        if (ares_file_read(probe.data, &text) == ARES_OK &&
            ares_json_parse(&arena, ares_str_view(&text), probe.data, &root) == ARES_OK)
            base = ares_json_get(root, "base_model_name_or_path");
        bool named = base && base->type == ARES_JSON_STRING && base->text.len;
        rc = ares_fail(ARES_EUNSUPPORTED,
                       "model: %s: an adapter, not a model; name what 'ares-train merge --model "
                       "%.*s --adapter %s --out DIR' writes",
                       path, named ? (int)base->text.len : 4, named ? base->text.data : "BASE",
                       path);
    } else
        rc = ares_fail(ARES_EFORMAT,
                       "model: %s: neither a model (no config.json), nor a checkpoint (no "
                       "model/config.json), nor a run (no checkpoints/)",
                       path);
    ares_str_fini(&probe);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return rc;
}

/*
 * The folder that a checkpoint, or a run's latest one, has: model/, or adapter/ where an adapter
 * was trained, without model/ (*adapted). Empty: path is neither, or a model directory itself.
 */
static int find_inside(const char *path, ares_str *dir, bool *adapted)
{
    ares_str probe = { 0 }, inside = { 0 }, name = { 0 };
    int rc = ARES_OK;
    ares_str_clear(dir);
    *adapted = false;
    ares_str_add_z(&inside, path);
    bool whole = ares_file_exists(ares_path_join(&probe, path, "config.json"));
    if (!whole && ares_dir_exists(ares_path_join(&probe, path, "checkpoints"))) {
        rc = ares_checkpoint_latest(probe.data, &name);
        if (rc == ARES_OK && !name.len)
            rc = ares_fail(ARES_EFORMAT, "model: %s: the run has no checkpoint yet", path);
        if (rc == ARES_OK) (void)ares_path_join(&inside, probe.data, name.data);
    }
    static const char *const files[] = { "model/config.json", "adapter/adapter_config.json" };
    for (int i = 0; i < ARES_COUNT(files) && rc == ARES_OK && !whole && !dir->len; i++) {
        if (!ares_file_exists(ares_path_join(&probe, inside.data, files[i]))) continue;
        ares_str_add(dir, probe.data, (size_t)(strrchr(probe.data, '/') - probe.data));
        *adapted = i == 1;
    }
    if (rc == ARES_OK && name.len && !dir->len)
        rc = ares_fail(ARES_EFORMAT, "model: %s: neither model/ nor adapter/ in the checkpoint",
                       inside.data);
    ares_str_fini(&probe);
    ares_str_fini(&inside);
    ares_str_fini(&name);
    return rc;
}

/* The model that an adapter's folder names as its base. */
static int base_of(const char *adapter, ares_str *base)
{
    ares_str path = { 0 }, text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *root, *name = NULL;
    int rc = ares_file_read(ares_path_join(&path, adapter, "adapter_config.json"), &text);
    if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), path.data, &root);
    if (rc == ARES_OK) name = ares_json_get(root, "base_model_name_or_path");
    ares_str_clear(base);
    if (name && name->type == ARES_JSON_STRING) ares_str_add_view(base, name->text);
    if (rc == ARES_OK &&
        !ares_file_exists(ares_path_join(&text, base->len ? base->data : "", "config.json")))
        rc = ares_fail(ARES_EFORMAT,
                       "model: %s: the adapter's base model, '%s', is not there; name the base as "
                       "the model, and this folder as the adapter",
                       path.data, base->len ? base->data : "");
    ares_str_fini(&path);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return rc;
}

bool ares_model_adapted(const char *path)
{
    ares_str dir = { 0 };
    bool adapted = false;
    if (find_inside(path, &dir, &adapted) != ARES_OK) ares_error_clear();
    ares_str_fini(&dir);
    return adapted;
}

int ares_model_adapter(const char *model, const char *adapter, const char **out)
{
    bool own = ares_model_adapted(model);
    *out = own ? model : adapter;
    if (!own || !adapter) return ARES_OK;
    return ares_fail(ARES_EUSE,
                     "--adapter: '%s' is of an adapter already; leave --adapter out, or name its "
                     "base as --model",
                     model);
}

int ares_model_find(const char *path, ares_str *dir)
{
    ares_str probe = { 0 }, adapter = { 0 };
    bool adapted = false;
    ares_str_clear(dir);
    if (ares_file_exists(ares_path_join(&probe, path, "config.json"))) ares_str_add_z(dir, path);
    int rc = dir->len ? ARES_OK : find_inside(path, dir, &adapted);
    if (rc == ARES_OK && !dir->len) rc = refuse_path(path);
    if (rc == ARES_OK && adapted) {
        ares_str_add_view(&adapter, ares_str_view(dir));
        rc = base_of(adapter.data, dir);
    }
    ares_str_fini(&probe);
    ares_str_fini(&adapter);
    return rc;
}

int ares_model_find_tokenizer(const char *path, ares_str *dir)
{
    ares_str inside = { 0 }, probe = { 0 };
    bool adapted = false;
    int rc = ares_model_find(path, dir);
    if (rc == ARES_OK) rc = find_inside(path, &inside, &adapted);
    if (rc == ARES_OK && adapted &&
        (ares_file_exists(ares_path_join(&probe, inside.data, "tokenizer.json")) ||
         ares_file_exists(ares_path_join(&probe, inside.data, "vocab.json")))) {
        ares_str_clear(dir);
        ares_str_add_view(dir, ares_str_view(&inside));
    }
    ares_str_fini(&inside);
    ares_str_fini(&probe);
    return rc;
}

/* The two forms of a vision model's names, which say nothing about that of its config.json. */
void model_find_names(const ares_safetensors *s, ares_model_config *c)
{
    for (int64_t i = 0; i < ares_safetensors_count(s) && (c->vision.depth || c->wrapped); i++) {
        const char *name = ares_safetensors_at(s, i)->name;
        if (strncmp(name, "model.language_model.", 21) == 0) c->text_names = "model.language_model";
        if (strncmp(name, "model.visual.", 13) == 0) c->vision_names = "model.visual";
    }
}

int ares_model_load(const char *path, ares_device *device, const ares_model_options *opt,
                    ares_model **out)
{
    ares_str dir = { 0 }, config = { 0 }, text = { 0 };
    ares_model_config cfg;
    ares_model *m = NULL;
    ares_safetensors *s = NULL;
    int rc = ares_model_find(path, &dir);
    if (rc == ARES_OK) rc = ares_model_config_load(dir.data, &cfg);
    if (rc == ARES_OK && !device->counting) rc = ares_safetensors_open(dir.data, &s);
    if (s) model_find_names(s, &cfg);
    if (s && !opt->value_head) model_untie(s, dir.data, &cfg);
    if (s && rc == ARES_OK) compare_dtypes(s, dir.data, &cfg);
    if (rc == ARES_OK) rc = model_allocate(&cfg, device, opt, NULL, &m);
    if (rc == ARES_OK) { /* its config.json is kept */
        rc = ares_file_read(ares_path_join(&config, dir.data, "config.json"), &text);
        if (rc == ARES_OK && text.len) m->config_text = ares_strdup(text.data);
    }
    if (rc == ARES_OK && s) rc = load_weights(m, s, dir.data, opt->value_seed);
    for (int64_t i = 0; rc == ARES_OK && s && i < ares_safetensors_count(s); i++)
        if (is_unread(&m->cfg, ares_safetensors_at(s, i))) m->unread = s;
    if (s && !(m && m->unread)) ares_safetensors_close(s);
    ares_str_fini(&dir);
    ares_str_fini(&config);
    ares_str_fini(&text);
    if (rc != ARES_OK) {
        ares_model_free(m);
        return rc;
    }
    *out = m;
    return ARES_OK;
}

typedef struct init_job {
    ares_model *m;
    uint64_t seed;
    ares_rng_key key; /* of this rectangle's parameter */
    const piece *x;
    float *rows;
} init_job;

enum { INIT_CHUNK = 1 << 14 };

static void init_chunk(void *ctx, int64_t task, int worker)
{
    (void)worker;
    init_job *j = ctx;
    const piece *x = j->x;
    int64_t end = ARES_MIN(x->rows * x->columns, (task + 1) * INIT_CHUNK);
    for (int64_t i = task * INIT_CHUNK; i < end; i++) {
        int64_t row = x->row + i / x->columns, column = x->column + i % x->columns;
        j->rows[i] = (float)(j->m->cfg.initializer_range *
                             ares_rng_normal(j->key, (uint64_t)(row * x->p->weight.k + column)));
    }
}

static int init_piece(void *ctx, const piece *x)
{
    init_job *j = ctx;
    int64_t n = x->rows * x->columns;
    size_t length = strlen(x->p->name);
    bool norm = x->p->rank == 1 && strcmp(x->p->name + length - 7, ".weight") == 0;
    float *rows = ares_calloc((size_t)n, sizeof *rows);
    bool own = strstr(x->p->name, ".linear_attn."); /* of a delta net, whose norm has plain w */
    if (norm)
        for (int64_t e = 0; e < n; e++) rows[e] = j->m->cfg.norm_plus_one && !own ? 0.0f : 1.0f;
    if (own && model_name_ends(x->p->name, ".dt_bias"))
        for (int64_t e = 0; e < n; e++) rows[e] = 1.0f;
    if (x->p->rank > 1) {
        /* keyed by the name, so that a parameter's values do not depend on the others */
        j->key = ares_rng_sub(ares_rng_root(j->seed, ARES_RNG_INIT),
                              ares_fnv1a(ARES_FNV1A, x->p->name, length), 0);
        j->x = x;
        j->rows = rows;
        ares_pool_run(j->m->device->pool, (n + INIT_CHUNK - 1) / INIT_CHUNK, init_chunk, j);
    }
    if (own && model_name_ends(x->p->name, ".A_log")) { /* log of U(0.01, 16) */
        ares_rng_key key = ares_rng_sub(ares_rng_root(j->seed, ARES_RNG_INIT),
                                        ares_fnv1a(ARES_FNV1A, x->p->name, length), 0);
        for (int64_t e = 0; e < n; e++)
            rows[e] =
                (float)ares_f64_log(0.01 + 15.99 * ares_rng_uniform(key, (uint64_t)(x->row + e)));
    }
    int rc = model_put(&j->m->params, &x->memory, rows, ARES_F32);
    ares_free(rows);
    return rc;
}

int ares_model_new(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   uint64_t seed, ares_model **out)
{
    ares_model *m;
    ARES_TRY(model_allocate(cfg, device, opt, NULL, &m));
    init_job job = { .m = m, .seed = seed };
    int rc = pieces_held(&m->params, OF_WEIGHTS, init_piece, &job);
    if (rc == ARES_OK) rc = regions_refresh(&m->params);
    if (rc != ARES_OK) {
        ares_model_free(m);
        return rc;
    }
    *out = m;
    return ARES_OK;
}

static int64_t file_bytes(const ares_model *m, const ares_param *p)
{
    return (int64_t)p->weight.n * p->weight.k *
           (int64_t)ares_dtype_bytes(p->wide ? ARES_F32 : m->cfg.file_dtype);
}

static const int64_t shard_limit = 5000000000;

/* The first parameter after the shard that starts at `first`. */
static int shard_end(const ares_model *m, int first)
{
    int64_t bytes = 0;
    int i = first;
    for (; i < m->params.n; i++) {
        bytes += file_bytes(m, &m->params.list[i]);
        if (bytes > shard_limit && i > first) break;
    }
    return i;
}

/*
 * Tensors that were not read, as they came, in a file of their own, which is the last: `n` of them,
 * and their bytes. path NULL: they are only counted.
 */
static int save_unread(const ares_model *m, const char *path, int *n, int64_t *bytes)
{
    ares_safetensors_writer *w = NULL;
    int64_t count = m->unread ? ares_safetensors_count(m->unread) : 0;
    int rc = ARES_OK;
    *n = 0;
    *bytes = 0;
    if (path) ARES_TRY(ares_safetensors_create(path, &w));
    for (int64_t i = 0; i < count; i++) {
        const ares_tensor_info *t = ares_safetensors_at(m->unread, i);
        if (!is_unread(&m->cfg, t)) continue;
        ++*n;
        *bytes += t->bytes;
        if (w) ares_safetensors_declare(w, t->name, t->dtype, t->rank, t->shape);
    }
    for (int64_t i = 0; i < count && w && rc == ARES_OK; i++) {
        const ares_tensor_info *t = ares_safetensors_at(m->unread, i);
        if (is_unread(&m->cfg, t)) rc = ares_safetensors_write(w, t->data, (size_t)t->bytes);
    }
    int finished = w ? ares_safetensors_finish(w) : ARES_OK;
    return rc == ARES_OK ? finished : rc;
}

/* The name of file f of so many. */
static const char *shard_name(int f, int files, char name[static 64])
{
    snprintf(name, 64, "model-%05d-of-%05d.safetensors", f, files);
    return files > 1 ? name : "model.safetensors";
}

/* Which file holds which tensor; unread: how many are in the last file, after the model's own. */
static int save_index(const ares_model *m, const char *dir, int files, int unread,
                      int64_t unread_bytes)
{
    ares_str index = { 0 }, path = { 0 };
    int64_t total = unread_bytes;
    for (int i = 0; i < m->params.n; i++) total += file_bytes(m, &m->params.list[i]);
    ares_json_begin(&index, '{');
    ares_json_begin(ares_json_key(&index, "metadata"), '{');
    ares_json_write_i64(ares_json_key(&index, "total_size"), total);
    ares_json_end(&index, '}');
    ares_json_begin(ares_json_key(&index, "weight_map"), '{');
    char name[64];
    for (int f = 1, first = 0; f <= files - (unread > 0); f++) {
        shard_name(f, files, name);
        int end = shard_end(m, first);
        for (int i = first; i < end; i++)
            ares_json_write_string(ares_json_key(&index, m->params.list[i].name),
                                   ares_view_of(name));
        first = end;
    }
    shard_name(files, files, name);
    for (int64_t i = 0; unread && i < ares_safetensors_count(m->unread); i++)
        if (is_unread(&m->cfg, ares_safetensors_at(m->unread, i)))
            ares_json_write_string(ares_json_key(&index, ares_safetensors_at(m->unread, i)->name),
                                   ares_view_of(name));
    ares_json_end(&index, '}');
    ares_json_end(&index, '}');
    ares_str_add_char(&index, '\n');
    int rc = ares_file_write(ares_path_join(&path, dir, "model.safetensors.index.json"), index.data,
                             index.len);
    ares_str_fini(&index);
    ares_str_fini(&path);
    return rc;
}

/* own: those of the model, the first ones of `files` */
static int save_files(const ares_model *m, const char *dir, int own, int files,
                      const ares_writers *by, uint64_t *sum)
{
    ares_str path = { 0 };
    save_file file = save_weights(&m->params, NULL);
    int rc = ARES_OK;
    for (int f = 1, first = 0; f <= own && rc != ARES_EDIST; f++) {
        char name[64];
        file.path = ares_path_join(&path, dir, shard_name(f, files, name));
        file.first = first;
        first = file.end = shard_end(m, first);
        int saved = save_tensors(&m->params, &file, by, sum);
        if (rc == ARES_OK) rc = saved;
    }
    ares_str_fini(&path);
    return rc;
}

static int begin_save(const ares_model *m, const char *dir)
{
    ARES_TRY(ares_dir_make(dir));
    return m->config_text ? model_config_keep(m, dir) : model_config_save(&m->cfg, dir);
}

int ares_model_save(const ares_model *m, const char *dir, const ares_writers *by, uint64_t *sum)
{
    ares_world *world = by ? by->world : NULL;
    bool lead = ares_world_rank(world) == 0;
    uint64_t own = 0;
    int files = 0, unread = 0;
    int64_t unread_bytes = 0;
    for (int i = 0; i < m->params.n; i = shard_end(m, i)) files++;
    (void)save_unread(m, NULL, &unread, &unread_bytes);
    int all = files + (unread > 0);
    ARES_TRY(ares_world_share_error(world, lead ? begin_save(m, dir) : ARES_OK));
    int rc = save_files(m, dir, files, all, by, &own);
    if (rc == ARES_OK && lead && unread) {
        char name[64];
        ares_str path = { 0 };
        rc = save_unread(m, ares_path_join(&path, dir, shard_name(all, all, name)), &unread,
                         &unread_bytes);
        ares_str_fini(&path);
    }
    if (rc == ARES_OK && lead && all > 1) rc = save_index(m, dir, all, unread, unread_bytes);
    ARES_TRY(save_agree(by, rc, &own));
    if (sum) *sum = own;
    return ARES_OK;
}

/*
 * Optimizer states <-> a safetensors file: <parameter>.m, .v and, for models stored in bf16,
 * .master; row-major f32, so that any number of ranks and any layout can load it. States of 16 bits
 * are widened, which loses nothing. Vectors are f32 in memory for every storage type: their .master
 * is the weight itself, which the model's files round.
 */

int ares_params_optimizer_save(const ares_params *ps, const char *path, const ares_writers *by,
                               uint64_t *sum)
{
    ARES_ASSERT(ps->states);
    save_file file = save_states(ps, path);
    uint64_t own = 0;
    ARES_TRY(save_agree(by, save_tensors(ps, &file, by, &own), &own));
    if (sum) *sum = own;
    return ARES_OK;
}

typedef struct state_loading {
    ares_params *ps;
    const ares_safetensors *s;
    piece_kind kind;
} state_loading;

static int load_state_piece(void *ctx, const piece *x)
{
    const state_loading *l = ctx;
    return piece_put(l->ps, x, save_find(l->s, x->p, l->kind)->data, ARES_F32);
}
int ares_params_optimizer_load(ares_params *ps, const char *path)
{
    static const piece_kind kinds[] = { OF_M, OF_V, OF_MASTER };
    ares_safetensors *s;
    int rc = ARES_OK;
    ARES_ASSERT(ps->states);
    ARES_TRY(ares_safetensors_open(path, &s));
    for (int i = 0; i < ps->n && rc == ARES_OK; i++) {
        const ares_param *p = &ps->list[i];
        bool rests = p->region >= ps->n_regions && !ps->regions[p->region].tower;
        if (rests && save_find(s, p, OF_M))
            rc = ares_fail(ARES_EFORMAT,
                           "model: %s: has states of '%s', which model.trainable leaves out; a "
                           "run that goes on trains the same parameters",
                           path, p->name);
    }
    for (int k = 0; k < ARES_COUNT(kinds) && rc == ARES_OK; k++) {
        state_loading l = { ps, s, kinds[k] };
        for (int i = 0; i < ps->n && rc == ARES_OK; i++) {
            const ares_param *p = &ps->list[i];
            if (!pieces_exist(ps, p, kinds[k])) continue;
            const ares_tensor_info *t = save_find(s, p, kinds[k]);
            if (!t || !t->is_float || t->dtype != ARES_F32 || !param_has_shape(p, t))
                rc = ares_fail(ARES_EFORMAT,
                               "model: %s: the states of '%s' are missing or of another shape; "
                               "the checkpoint belongs to another model or storage type, or its "
                               "run trained other parameters (model.trainable)",
                               path, p->name);
        }
        if (rc == ARES_OK) rc = pieces_held(ps, kinds[k], load_state_piece, &l);
    }
    ares_safetensors_close(s);
    return rc == ARES_OK ? regions_refresh(ps) : rc; /* some .master are weights */
}

/* A model that follows another one, as a reference that is moved towards the policy. */

typedef struct mixing {
    ares_model *into;
    const ares_model *from;
    double share;
} mixing;

void model_mix(float *into, const float *from, int64_t n, double share)
{
    for (int64_t k = 0; k < n; k++)
        into[k] = (float)(share * (double)from[k] + (1 - share) * (double)into[k]);
}

static int mix_piece(void *ctx, const piece *x)
{
    const mixing *j = ctx;
    ares_dtype file = j->into->cfg.file_dtype;
    int64_t n = x->rows * x->columns;
    float *mine = ares_malloc((size_t)n * sizeof *mine),
          *other = ares_malloc((size_t)n * sizeof *other);
    stretch whole = held_weights(&j->from->params.regions[x->p->region]); /* this rank has them */
    ares_matrix theirs = lying(&whole, x);
    int rc = model_get(&j->into->params, &x->memory, mine, ARES_F32);
    if (rc == ARES_OK) rc = model_get(&j->from->params, &theirs, other, ARES_F32);
    if (rc == ARES_OK) model_mix(mine, other, n, j->share);
    if (rc == ARES_OK) rc = model_put(&j->into->params, &x->memory, mine, ARES_F32);
    /* as it comes back from a checkpoint */
    if (rc == ARES_OK) rc = model_get(&j->into->params, &x->memory, mine, file);
    if (rc == ARES_OK) rc = model_put(&j->into->params, &x->memory, mine, file);
    ares_free(mine);
    ares_free(other);
    return rc;
}

/* The ranks may hold other parts of `from` than of `into`, so `from` is gathered region by region.
 */
int ares_model_interpolate(ares_model *into, ares_model *from, double share)
{
    mixing j = { into, from, share };
    bool gathers = from->params.share.how == ARES_SHARE_ALL;
    int rc = ARES_OK;
    ARES_ASSERT(into->params.n == from->params.n &&
                into->params.n_regions == from->params.n_regions &&
                into->params.n_frozen == from->params.n_frozen);
    for (int i = 0; i < regions_count(&into->params); i++) { /* a rank that has failed gathers on */
        if (gathers) ares_region_load(&from->params, i);
        if (rc == ARES_OK) rc = pieces_held_of(&into->params, i, OF_WEIGHTS, mix_piece, &j);
        if (gathers) ares_region_unload(&from->params, i);
    }
    if (rc == ARES_OK && gathers) rc = ares_params_sync(&from->params);
    return rc == ARES_OK ? regions_refresh(&into->params) : rc;
}
