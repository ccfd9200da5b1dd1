/*
 * Tensors of a model into files, by one rank or by several. Every rank takes its stretch of each
 * region and writes the rectangles that it is made of at their places, so that no rank needs more
 * than it holds, and the bytes of the files are those that one rank would write. Where the ranks do
 * not see the same files, they send their rectangles to rank 0, a turn at a time.
 */
#include "save.h"

#include <stdio.h>
#include <string.h>

#include "region.h"
#include "transfer.h"

typedef struct saving {
    const ares_model *m;
    const save_file *f;
    ares_world *world;
    bool sends;                 /* rectangles go to rank 0 */
    ares_behind *behind;        /* writes copies of them; NULL: they are written at once */
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

const ares_tensor_info *save_find(const ares_safetensors *s, const ares_param *p, piece_kind kind)
{
    char name[128];
    return ares_safetensors_find(s, tensor_name(p, kind, name));
}

save_file save_weights(const ares_model *m, const char *path)
{
    return (save_file){ path, 0, m->n_params, { OF_WEIGHTS }, 1, m->cfg.file_dtype };
}

save_file save_states(const ares_model *m, const char *path)
{
    return (save_file){ path, 0, m->n_params, { OF_M, OF_V, OF_MASTER }, 3, ARES_F32 };
}

static int open_file(saving *s)
{
    char name[128];
    bool lead = ares_world_rank(s->world) == 0;
    if (s->sends && !lead) return ARES_OK;
    ARES_TRY(ares_safetensors_create_shared(s->f->path, lead, &s->w));
    for (int i = s->f->first; i < s->f->end; i++)
        for (int k = 0; k < s->f->n_kinds; k++) {
            const ares_param *p = &s->m->params[i];
            piece_kind kind = s->f->kinds[k];
            if (pieces_exist(s->m, p, kind))
                ares_safetensors_declare(s->w, tensor_name(p, kind, name), s->f->dtype, p->rank,
                                         p->shape);
        }
    return ARES_OK;
}

static int write_rows(const saving *s, const wire *x, const void *rows)
{
    char name[128];
    tensor_name(&s->m->params[x->param], (piece_kind)x->kind, name);
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

static void post(const saving *s, const wire *x, const void *rows, size_t bytes)
{
    late *l = ares_malloc(sizeof *l + bytes);
    l->w = s->w;
    l->at = *x;
    tensor_name(&s->m->params[x->param], (piece_kind)x->kind, l->name);
    memcpy(l->rows, rows, bytes);
    ares_behind_post(s->behind, write_late, l);
}

static int save_piece(void *ctx, const piece *x)
{
    saving *s = ctx;
    wire head = { x->p - s->m->params, s->kind, x->row, x->rows, x->column, x->columns };
    if (head.param < s->f->first || head.param >= s->f->end) return ARES_OK;
    size_t bytes = (size_t)(x->rows * x->columns) * ares_dtype_bytes(s->f->dtype);
    void *rows = ares_malloc(bytes);
    int rc = model_get(s->m, &x->memory, rows, s->f->dtype);
    if (rc == ARES_OK) fingerprint_add(s->m, x, s->kind, rows, s->f->dtype, &s->sum);
    if (rc == ARES_OK && s->sends) {
        ares_str_add(&s->out, (const char *)&head, sizeof head);
        ares_str_add(&s->out, rows, bytes);
    } else if (rc == ARES_OK && s->w && s->behind) post(s, &head, rows, bytes);
    else if (rc == ARES_OK && s->w) rc = write_rows(s, &head, rows);
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
        at += (size_t)(head.rows * head.columns) * ares_dtype_bytes(s->f->dtype);
    }
    ares_str_fini(&all);
    ares_str_clear(&s->out);
    return rc;
}

/* This rank's stretch of a region; a rank that has failed still takes part in the turns. */
static int save_region(saving *s, int region)
{
    int rank = ares_world_rank(s->world), ranks = ares_world_size(s->world);
    int64_t turns = pieces_turns(&s->m->regions[region], ranks);
    for (int64_t t = 0; t < turns; t++) {
        if (s->rc == ARES_OK)
            s->rc = pieces_of_turn(s->m, region, s->kind, rank, ranks, t, save_piece, s);
        if (s->sends) ARES_TRY(deliver(s));
    }
    return ARES_OK;
}

/* All turns of a file whose path is NULL, too: only the sum is made. */
static int save_all(saving *s)
{
    for (int k = 0; k < s->f->n_kinds; k++)
        for (int i = 0; i < regions_count(s->m); i++) {
            s->kind = s->f->kinds[k];
            ARES_TRY(save_region(s, i));
        }
    return ARES_OK;
}

int save_tensors(const ares_model *m, const save_file *f, const ares_writers *by, uint64_t *sum)
{
    saving s = { .m = m, .f = f, .world = by ? by->world : NULL };
    s.sends = by && f->path && !by->same_files && ares_world_size(s.world) > 1;
    s.behind = by && !s.sends ? by->behind : NULL;
    if (f->path) s.rc = open_file(&s);
    int rc = save_all(&s), finished = ARES_OK;
    if (s.w && s.behind) ares_behind_post(s.behind, finish_late, s.w);
    else if (s.w) finished = ares_safetensors_finish(s.w);
    if (s.rc == ARES_OK) s.rc = finished;
    ares_str_fini(&s.out);
    *sum += s.sum;
    return rc == ARES_OK ? s.rc : rc;
}

typedef struct sizes {
    int64_t all, largest; /* bytes: of all rectangles, and of one */
    ares_dtype dtype;
} sizes;

static int count_piece(void *ctx, const piece *x)
{
    sizes *s = ctx;
    int64_t bytes = x->rows * x->columns * (int64_t)ares_dtype_bytes(s->dtype);
    s->all += bytes;
    s->largest = ARES_MAX(s->largest, bytes);
    return ARES_OK;
}

static void add_sizes(const ares_model *m, const save_file *f, int ranks, sizes *s)
{
    s->dtype = f->dtype;
    for (int k = 0; k < f->n_kinds; k++)
        for (int i = 0; i < regions_count(m); i++)
            for (int64_t t = 0; t < pieces_turns(&m->regions[i], ranks); t++)
                (void)pieces_of_turn(m, i, f->kinds[k], 0, ranks, t, count_piece, s);
}

int64_t ares_model_save_bytes(const ares_model *m, bool states, int ranks, int64_t *largest)
{
    save_file of_weights = save_weights(m, NULL), of_states = save_states(m, NULL);
    sizes s = { 0 };
    add_sizes(m, &of_weights, ranks, &s);
    if (states) add_sizes(m, &of_states, ranks, &s);
    if (largest) *largest = s.largest;
    return s.all;
}

int save_agree(const ares_writers *by, int rc, uint64_t *sum)
{
    ares_world *w = by ? by->world : NULL;
    ARES_TRY(ares_world_agree(w, rc));
    /* in two halves, whose sums fit */
    int64_t half[] = { (int64_t)(*sum & 0xffffffff), (int64_t)(*sum >> 32) };
    ARES_TRY(ares_world_sum_i64(w, half, ARES_COUNT(half)));
    *sum = (uint64_t)half[0] + ((uint64_t)half[1] << 32);
    return ARES_OK;
}

int ares_model_sum(const ares_model *m, ares_world *world, uint64_t *weights, uint64_t *states)
{
    ares_writers by = { .world = world };
    save_file of_weights = save_weights(m, NULL), of_states = save_states(m, NULL);
    *weights = *states = 0;
    int rc = save_tensors(m, &of_weights, &by, weights);
    if (rc == ARES_OK && m->states) rc = save_tensors(m, &of_states, &by, states);
    ARES_TRY(save_agree(&by, rc, weights));
    return save_agree(&by, ARES_OK, states);
}
