/*
 * Sources of prompts. In order: what all sources share; the order of rows in an epoch; a data set
 * as a source. mixture.c has the other kind.
 */
#include "internal.h"

#include <string.h>

#include "ares/data_source.h"

/* What all kinds of sources have in common: the prompts that are given back, and the state. */

/* The bytes of a group. They never change, so that snapshots of a source share them with it. */
typedef struct answers {
    int64_t users;
    size_t len;
    char data[];
} answers;
typedef struct returned_prompt {
    int64_t draw, id, local;
    answers *partial; /* NULL: it has no answers */
} returned_prompt;

/* A copy of the bytes with one user; NULL where there are none. */
static answers *answers_new(ares_view bytes)
{
    if (!bytes.len) return NULL;
    answers *a = ares_malloc(sizeof *a + bytes.len);
    a->users = 1;
    a->len = bytes.len;
    memcpy(a->data, bytes.data, bytes.len);
    return a;
}

/* One user less; the last one frees. */
static void answers_drop(answers *a)
{
    if (a && !--a->users) ares_free(a);
}

static ares_view answers_view(const answers *a)
{
    return a ? (ares_view){ a->data, a->len } : (ares_view){ "", 0 };
}

/* ---------------------------------------------------------------- drawing */
/* Keeps the list in the order of draw numbers; the new prompt has no answers yet. */
static returned_prompt *insert(ares_source *s, int64_t draw, int64_t id, int64_t local)
{
    int64_t at = s->n_returned++;
    s->returned = ares_realloc(s->returned, (size_t)s->n_returned * sizeof *s->returned);
    /* by insertion: prompts are given back nearly in order */
    for (; at > 0 && s->returned[at - 1].draw > draw; at--) s->returned[at] = s->returned[at - 1];
    s->returned[at] = (returned_prompt){ .draw = draw, .id = id, .local = local };
    return &s->returned[at];
}

/* The first n prompts have been drawn. */
static void drop_first(ares_source *s, int64_t n)
{
    if (!n) return;
    for (int64_t i = 0; i < n; i++) answers_drop(s->returned[i].partial);
    s->n_returned -= n;
    memmove(s->returned, s->returned + n, (size_t)s->n_returned * sizeof *s->returned);
}

/* Decodes the answers of p. now: the present id of its row, whose id in the bytes may be older */
static int read_partial(const ares_source *s, const returned_prompt *p, int64_t now,
                        ares_arena *arena, ares_group **out)
{
    int64_t row;
    ares_view bytes = answers_view(p->partial);
    ares_group *g = *out = ares_arena_calloc(arena, 1, sizeof *g);
    /* the bytes say which prompt they answer: a mix-up must not train on another one's answers */
    ARES_TRY(ares_group_read(&bytes, arena, g, &row));
    if (bytes.len || row != p->id || g->draw != p->draw)
        return ares_fail(ARES_EFORMAT, "data: the answers are those of another prompt");
    ares_group_set_row(g, ares_source_row(s, now));
    return ARES_OK;
}

/* The prompt `at` among those that were given back, as a drawn one; it stays among them. */
static int take(const ares_source *s, int64_t at, ares_arena *arena, ares_drawn *out)
{
    const returned_prompt *p = &s->returned[at];
    ares_group *partial = NULL;
    if (p->partial) ARES_TRY(read_partial(s, p, p->id, arena, &partial));
    *out = (ares_drawn){
        .draw = p->draw, .id = p->id, .partial = partial, .local = p->local, .weight = 1
    };
    return ARES_OK;
}

int ares_source_next(ares_source *s, int64_t n, ares_arena *arena, ares_drawn *out)
{
    if (!n) return ARES_OK;
    if (s->kind->share) {
        /* part after part: of its share first the prompts that were given back, then fresh ones */
        int parts = ares_source_parts(s);
        int64_t step, at = 0;
        ares_share *shares = ares_arena_calloc(arena, (size_t)parts, sizeof *shares);
        ARES_TRY(s->kind->share(s->state, n, &step, shares));
        for (int i = 0; i < parts; i++) {
            int64_t taken = 0, kept = 0, first = at;
            int rc = ARES_OK;
            for (int64_t k = 0; k < s->n_returned; k++) { /* the oldest first */
                bool wanted = rc == ARES_OK && taken < shares[i].count &&
                              ares_source_row(s, s->returned[k].id)->part == i;
                /* what stays moves up in place, in order */
                if (wanted) rc = take(s, k, arena, &out[at + taken]);
                if (wanted && rc == ARES_OK) {
                    answers_drop(s->returned[k].partial);
                    taken++;
                } else s->returned[kept++] = s->returned[k]; /* after a failure too */
            }
            s->n_returned = kept;
            ARES_TRY(rc);
            at += taken;
            ARES_TRY(s->kind->next_of(s->state, i, shares[i].count - taken, out + at));
            at = first + shares[i].count;
            for (int64_t k = first; k < at; k++) {
                out[k].step = step;
                out[k].weight = shares[i].weight;
            }
        }
        return ARES_OK;
    }
    int64_t draw = s->kind->draw(s->state), missing = n - s->n_returned;
    if (missing > 0) {
        /* whole draws: what is more than missing waits for the next call */
        int64_t fresh = (missing + draw - 1) / draw * draw;
        ares_drawn *drawn = ares_arena_alloc(arena, (size_t)fresh * sizeof *drawn);
        ARES_TRY(s->kind->next(s->state, fresh, drawn));
        /* fresh prompts wait among those given back, which orders all of them by draw number */
        for (int64_t i = 0; i < fresh; i++) insert(s, drawn[i].draw, drawn[i].id, drawn[i].draw);
    }
    for (int64_t i = 0; i < n; i++) ARES_TRY(take(s, i, arena, &out[i]));
    drop_first(s, n);
    return ARES_OK;
}

void ares_source_give_back(ares_source *s, const ares_group *g)
{
    /* without parts the number within the part is the draw number */
    int64_t local = s->kind->share ? g->local : g->draw;
    ares_str bytes = { 0 };
    ares_group_write(g, &bytes);
    insert(s, g->draw, g->row->id, local)->partial = answers_new(ares_str_view(&bytes));
    ares_str_fini(&bytes);
}
/* ---------------------------------------------------------------- state */
/* Answers are written as pairs of hexadecimal digits, because the state is JSON. */
static const char hex[] = "0123456789abcdef";

/* false: the text is not pairs of digits */
static bool read_bytes(ares_view text, ares_str *out)
{
    if (text.len % 2) return false;
    for (size_t i = 0; i < text.len; i += 2) {
        const char *high = memchr(hex, text.data[i], 16), *low = memchr(hex, text.data[i + 1], 16);
        if (!high || !low) return false;
        ares_str_add_char(out, (char)((high - hex) << 4 | (low - hex)));
    }
    return true;
}

/* `ahead` of a mixture's part alone may be below 0. */
int source_load_count(const ares_json *json, const char *key, int64_t *out)
{
    const ares_json *v = ares_json_get(json, key);
    bool signed_one = strcmp(key, "ahead") == 0 && v && v->type == ARES_JSON_INT && !v->big;
    if (!signed_one && !is_count(v, INT64_MAX / 2))
        return ares_fail(ARES_EFORMAT, "no count '%s'; the checkpoint is damaged", key);
    *out = v->integer;
    return ARES_OK;
}

void source_save_skipped(ares_str *json, const int64_t *skipped, int64_t rows)
{
    ares_json_begin(ares_json_key(json, "skipped_rows"), '[');
    for (int64_t i = 0; i < rows; i++) {
        if (skipped[i] == LOADER_KEPT) continue;
        ares_json_begin(json, '[');
        ares_json_write_i64(json, i);
        ares_json_write_i64(json, skipped[i]);
        ares_json_end(json, ']');
    }
    ares_json_end(json, ']');
}

void ares_source_take_snapshot(const ares_source *s, ares_source_snapshot *out)
{
    *out = (ares_source_snapshot){ .n_returned = s->n_returned, .parts = s->kind->share != NULL };
    ares_json_begin(&out->begins, '{');
    ares_json_write_string(ares_json_key(&out->begins, "source"), ares_view_of(s->kind->name));
    s->kind->save(s->state, &out->begins);
    if (!s->n_returned) return;
    out->returned = ares_malloc((size_t)s->n_returned * sizeof *out->returned);
    memcpy(out->returned, s->returned, (size_t)s->n_returned * sizeof *out->returned);
    /* the bytes are shared, not copied: they may be many megabytes */
    for (int64_t i = 0; i < out->n_returned; i++)
        if (out->returned[i].partial) out->returned[i].partial->users++;
}

void ares_source_snapshot_write(const ares_source_snapshot *p, ares_str *json)
{
    ares_json_splice(json, ares_str_view(&p->begins));
    if (p->n_returned) ares_json_begin(ares_json_key(json, "given_back"), '[');
    for (int64_t i = 0; i < p->n_returned; i++) {
        const returned_prompt *x = &p->returned[i];
        ares_view bytes = answers_view(x->partial);
        char pairs[4096];
        size_t n = 0;
        ares_json_begin(json, '{');
        ares_json_write_i64(ares_json_key(json, "draw"), x->draw);
        ares_json_write_i64(ares_json_key(json, "row"), x->id);
        if (p->parts) ares_json_write_i64(ares_json_key(json, "local"), x->local);
        ares_str_add_char(ares_json_key(json, "answers"), '"');
        /* through a buffer: appending digit by digit is slow for long answers */
        for (size_t k = 0; k < bytes.len; k++) {
            pairs[n++] = hex[(uint8_t)bytes.data[k] >> 4];
            pairs[n++] = hex[(uint8_t)bytes.data[k] & 15];
            if (n < sizeof pairs && k + 1 < bytes.len) continue;
            ares_str_add(json, pairs, n);
            n = 0;
        }
        ares_str_add_char(json, '"');
        ares_json_end(json, '}');
    }
    if (p->n_returned) ares_json_end(json, ']');
    ares_json_end(json, '}');
}

void ares_source_snapshot_fini(ares_source_snapshot *p)
{
    for (int64_t i = 0; i < p->n_returned; i++) answers_drop(p->returned[i].partial);
    ares_free(p->returned);
    ares_str_fini(&p->begins);
    *p = (ares_source_snapshot){ 0 };
}

/* Reads a prompt that was given back. Its answers are decoded once, to check them. */
static int load_returned(const ares_json *state, const ares_json *json, bool other_rows,
                         ares_source *into)
{
    const ares_json *draw = ares_json_get(json, "draw"), *row = ares_json_get(json, "row"),
                    *local = into->kind->share ? ares_json_get(json, "local") : draw;
    ares_view text;
    int rc = ARES_OK;
    bool good = is_count(draw, INT64_MAX) && is_count(row, INT64_MAX) && is_count(local, INT64_MAX);
    /* the row's id in this run, where the data sets may be others (--force) */
    int64_t id = !good               ? ARES_ROW_NONE
                 : into->kind->moved ? into->kind->moved(into->state, state, row->integer)
                                     : row->integer;
    bool there = id >= 0 && id < ares_source_count(into);
    /* its row is gone, so the prompt is, too */
    if (good && !there && (id == ARES_ROW_GONE || other_rows)) return ARES_OK;
    if (!there)
        return ares_fail(ARES_EFORMAT,
                         "'given_back' holds no draws and rows; the checkpoint is damaged");
    ARES_TRY(ares_json_get_string(json, "answers", "", &text));
    returned_prompt *p = insert(into, draw->integer, row->integer, local->integer);
    ares_str bytes = { 0 };
    if (read_bytes(text, &bytes)) p->partial = answers_new(ares_str_view(&bytes));
    else
        rc = ares_fail(ARES_EFORMAT, "its answers are no pairs of hexadecimal digits; the "
                                     "checkpoint is damaged");
    ares_str_fini(&bytes);
    if (rc == ARES_OK && p->partial) {
        /* the answers' bytes name the row: where that is another one they are written again */
        ares_arena arena = { 0 };
        ares_group *g;
        rc = read_partial(into, p, id, &arena, &g);
        if (rc == ARES_OK && into->answers && g->n != into->answers && !other_rows)
            rc =
                ares_fail(ARES_ESTATE,
                          "it has %d answers, and worker.rollout.n is %lld now; set that to %d, or "
                          "pass --force to go on with as many as each has",
                          g->n, (long long)into->answers, g->n);
        if (rc == ARES_OK && id != p->id) {
            ares_str again = { 0 };
            ares_group_write(g, &again);
            answers_drop(p->partial);
            p->partial = answers_new(ares_str_view(&again));
            ares_str_fini(&again);
        }
        ares_arena_fini(&arena);
    }
    p->id = id;
    return rc == ARES_OK ? rc : ares_fail_in(rc, "'given_back': draw %lld", (long long)p->draw);
}

int ares_source_load(ares_source *s, const ares_json *json, bool other_rows)
{
    ares_view kind;
    const ares_json *list = ares_json_get(json, "given_back");
    /* a state that does not name its source is of a data set */
    ARES_TRY(ares_json_get_string(json, "source", "dataset", &kind));
    /* a curriculum was added or taken away since the checkpoint */
    if (!ares_view_is(kind, s->kind->name)) {
        if (!other_rows)
            return ares_fail(ARES_ESTATE,
                             "the state is of a source '%.*s', and the run draws from a '%s'; "
                             "restore the options of data.* and curriculum.*, or pass --force to "
                             "begin its rows anew",
                             (int)kind.len, kind.data, s->kind->name);
        ares_warn("data: the state is of a source '%.*s', and the run draws from a '%s': its rows "
                  "begin anew",
                  (int)kind.len, kind.data, s->kind->name);
        return ARES_OK;
    }
    /* prompts are loaded into a second list, which replaces the first when all of it is right */
    ares_source loaded = { .kind = s->kind, .state = s->state, .answers = s->answers };
    int rc = ARES_OK;
    if (list && list->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "'given_back' is no list; the checkpoint is damaged");
    for (int64_t i = 0; list && i < list->count && rc == ARES_OK; i++)
        rc = load_returned(json, &list->items[i], other_rows, &loaded);
    if (rc == ARES_OK) rc = s->kind->load(s->state, json, other_rows);
    if (rc == ARES_OK) {
        ares_source before = *s;
        *s = loaded;
        loaded = before;
    }
    drop_first(&loaded, loaded.n_returned);
    ares_free(loaded.returned);
    return rc;
}

void ares_source_close(ares_source *s)
{
    if (s->kind) s->kind->close(s->state);
    drop_first(s, s->n_returned);
    ares_free(s->returned);
    *s = (ares_source){ 0 };
}

int ares_source_gids(const ares_source *s, ares_map **out)
{
    int64_t rows = ares_source_count(s), other;
    if (s->kind->endless) {
        *out = NULL;
        return ares_fail(ARES_ECONFIG,
                         "data: the run draws from %s, where no prompt returns: a method that "
                         "remembers prompts has nothing to remember; leave it out",
                         s->kind->name);
    }
    *out = ares_map_new();
    for (int64_t i = 0; i < rows; i++) {
        const ares_row *row = ares_source_row(s, i);
        /* methods remember prompts under this name, so two rows must not share one */
        if (ares_map_get(*out, ares_view_of(row->gid), &other)) {
            const ares_row *first = ares_source_row(s, other);
            ares_map_free(*out);
            *out = NULL;
            return ares_fail(ARES_EFORMAT,
                             "data: %s:%lld: global_id = '%s': the row at %s:%lld has the same; "
                             "give every row its own",
                             row->file, (long long)row->line, row->gid, first->file,
                             (long long)first->line);
        }
        ares_map_put(*out, ares_view_of(row->gid), i);
    }
    return ARES_OK;
}

/*
 * Order of rows: a shuffle keyed by (seed, epoch). Its state is the number of prompts drawn and,
 * per skipped row, the last epoch that the row is part of. A skip takes effect with the next epoch,
 * so the rows of an epoch are known when it begins.
 */

/* No row is skipped, and no order is made. */
static void loader_reset(loader *l, int64_t drawn)
{
    for (int64_t i = 0; i < l->rows; i++) l->skipped[i] = LOADER_KEPT;
    l->n_skipped = 0;
    l->drawn = drawn;
    l->order_epoch = -1;
}

int loader_init(loader *l, int64_t rows, const ares_order *order)
{
    *l = (loader){ .rows = rows,
                   .batch = order->draw,
                   .shuffle = order->shuffle,
                   .seed = order->seed,
                   .option = order->option ? order->option : "data.rollout_batch_size" };
    if (rows < l->batch)
        return ares_fail(ARES_ECONFIG,
                         "data: %lld rows are fewer than %s = %lld; lower it, or add rows",
                         (long long)rows, l->option, (long long)l->batch);
    l->order = ares_malloc((size_t)rows * sizeof *l->order);
    l->skipped = ares_malloc((size_t)rows * sizeof *l->skipped);
    loader_reset(l, 0);
    return ARES_OK;
}

void loader_fini(loader *l)
{
    ares_free(l->order);
    ares_free(l->skipped);
    *l = (loader){ 0 };
}
/* Rows of an epoch that fill whole batches. */
static int64_t usable(const loader *l, int64_t epoch)
{
    int64_t rows = l->n_skipped ? 0 : l->rows;
    for (int64_t i = 0; i < l->rows && l->n_skipped; i++) rows += l->skipped[i] >= epoch;
    /* a last batch that is not full is left out of the epoch */
    return rows / l->batch * l->batch;
}

/*
 * The epoch of draw number `drawn`; *begins: the draw that the epoch begins with. The search ends
 * at an epoch whose rows fill no batch. It takes epochs with the same rows in one step: the counts
 * of a state that was read from a file may be anything.
 */
static int64_t epoch_of(const loader *l, int64_t drawn, int64_t *begins)
{
    int64_t epoch = 0, n;
    *begins = 0;
    while ((n = usable(l, epoch)) > 0) {
        /* epochs from this one to `last` have the same rows */
        int64_t last = LOADER_KEPT, passed = (drawn - *begins) / n;
        for (int64_t i = 0; i < l->rows && l->n_skipped; i++)
            if (l->skipped[i] >= epoch) last = ARES_MIN(last, l->skipped[i]);
        if (passed <= last - epoch) {
            *begins += passed * n;
            return epoch + passed;
        }
        *begins += (last - epoch + 1) * n;
        epoch = last + 1;
    }
    return epoch;
}

int64_t loader_epoch(const loader *l)
{
    int64_t begins;
    return epoch_of(l, l->drawn, &begins);
}

void loader_skip(loader *l, int64_t row)
{
    ARES_ASSERT(row >= 0 && row < l->rows);
    if (l->skipped[row] != LOADER_KEPT) return;
    int64_t begins;
    /* the current epoch: that of the last draw */
    l->skipped[row] = epoch_of(l, ARES_MAX(l->drawn - 1, 0), &begins);
    l->n_skipped++;
}

/* The rows of a saved state may be named twice; they count once. */
void loader_restore(loader *l, int64_t row, int64_t epoch)
{
    ARES_ASSERT(row >= 0 && row < l->rows);
    l->n_skipped += l->skipped[row] == LOADER_KEPT;
    l->skipped[row] = epoch;
}
int loader_next(loader *l, int64_t *row_ids, int64_t *first_draw)
{
    int64_t begins, epoch = l->drawn < 0 ? 0 : epoch_of(l, l->drawn, &begins);
    if (l->drawn < 0 || (l->drawn - begins) % l->batch != 0)
        return ares_fail(ARES_ESTATE,
                         "data: %lld prompts drawn are not a whole number of draws of %lld: %s has "
                         "changed since the checkpoint; set its old value",
                         (long long)l->drawn, (long long)l->batch, l->option);
    if (usable(l, epoch) == 0)
        return ares_fail(ARES_ESTATE,
                         "data: %lld of %lld rows are skipped, and the rest fills no batch of "
                         "%lld; end the run, or add rows",
                         (long long)l->n_skipped, (long long)l->rows, (long long)l->batch);
    /* from the seed, the epoch and the rows that are left: a resumed run makes the same one */
    if (l->order_epoch != epoch) {
        ares_rng_key key =
            ares_rng_sub(ares_rng_root(l->seed, ARES_RNG_SHUFFLE), (uint64_t)epoch, 0);
        int64_t n = 0;
        for (int64_t i = 0; i < l->rows; i++)
            if (l->skipped[i] >= epoch) l->order[n++] = i;
        if (l->shuffle) ares_rng_shuffle(key, l->order, n);
        l->order_epoch = epoch;
    }
    /* the place within the epoch is the draw number less the one it began with */
    for (int64_t i = 0; i < l->batch; i++) row_ids[i] = l->order[l->drawn - begins + i];
    *first_draw = l->drawn;
    l->drawn += l->batch;
    return ARES_OK;
}

/*
 * A data set as a source. Its state is the number of prompts drawn, and the rows that are skipped
 * with the last epoch that each is part of: the order follows from data.seed.
 */

typedef struct dataset_source {
    ares_dataset *data;
    loader loader;
} dataset_source;

static int64_t draw(const void *state)
{
    return ((const dataset_source *)state)->loader.batch;
}

static int next(void *state, int64_t n, ares_drawn *out)
{
    dataset_source *s = state;
    int64_t batch = s->loader.batch, first;
    ARES_ASSERT(n % batch == 0);
    int rc = ARES_OK;
    int64_t *ids = ares_malloc((size_t)batch * sizeof *ids);
    for (int64_t at = 0; at < n && rc == ARES_OK; at += batch) {
        rc = loader_next(&s->loader, ids, &first);
        /* draw numbers run on through the epochs, so each names one draw of the run */
        for (int64_t i = 0; i < batch && rc == ARES_OK; i++)
            out[at + i] = (ares_drawn){ .draw = first + i, .id = ids[i] };
    }
    ares_free(ids);
    return rc;
}

static const ares_row *row(const void *state, int64_t id)
{
    const dataset_source *s = state;
    return ares_dataset_row(s->data, id);
}

static int64_t count(const void *state)
{
    const dataset_source *s = state;
    return ares_dataset_count(s->data);
}

static int64_t epoch(const void *state)
{
    const dataset_source *s = state;
    return loader_epoch(&s->loader);
}

static int64_t epoch_draws(const void *state)
{
    const dataset_source *s = state;
    return (s->loader.rows - s->loader.n_skipped) / s->loader.batch;
}

static void skip(void *state, int64_t id)
{
    dataset_source *s = state;
    loader_skip(&s->loader, id);
}

static int64_t skipped(const void *state)
{
    const dataset_source *s = state;
    return s->loader.n_skipped;
}

static void save(const void *state, ares_str *json)
{
    const loader *l = &((const dataset_source *)state)->loader;
    ares_json_write_i64(ares_json_key(json, "prompts_drawn"), l->drawn);
    ares_json_write_i64(ares_json_key(json, "training_rows"), l->rows);
    source_save_skipped(json, l->skipped, l->n_skipped ? l->rows : 0);
}

static int load(void *state, const ares_json *json, bool other_rows)
{
    loader *l = &((dataset_source *)state)->loader;
    const ares_json *skips = ares_json_get(json, "skipped_rows");
    int64_t drawn = 0, rows = 0;
    ARES_TRY(source_load_count(json, "prompts_drawn", &drawn));
    ARES_TRY(source_load_count(json, "training_rows", &rows));
    if (rows != l->rows && !other_rows)
        return ares_fail(ARES_ESTATE,
                         "the run had %lld training rows, the data set has %lld now; restore "
                         "data.train_files, or pass --force to go on nevertheless",
                         (long long)rows, (long long)l->rows);
    bool good = skips && skips->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; good && i < skips->count; i++) {
        const ares_json *pair = &skips->items[i];
        /* a row is skipped after an epoch that has begun, and an epoch has at least one prompt */
        good = pair->type == ARES_JSON_ARRAY && pair->count == 2 &&
               is_count(&pair->items[0], rows - 1) && is_count(&pair->items[1], drawn);
    }
    if (!good)
        return ares_fail(ARES_EFORMAT,
                         "'skipped_rows' holds no pairs of a row and an epoch; the checkpoint is "
                         "damaged");
    loader_reset(l, drawn);
    for (int64_t i = 0; i < skips->count; i++) {
        const ares_json *pair = skips->items[i].items;
        if (pair[0].integer < l->rows) loader_restore(l, pair[0].integer, pair[1].integer);
    }
    return ARES_OK;
}

static void close_dataset(void *state)
{
    dataset_source *s = state;
    loader_fini(&s->loader);
    ares_dataset_free(s->data);
    ares_free(s);
}

static const ares_source_kind kind = { .name = "dataset",
                                       .draw = draw,
                                       .next = next,
                                       .row = row,
                                       .count = count,
                                       .epoch = epoch,
                                       .epoch_draws = epoch_draws,
                                       .skip = skip,
                                       .skipped = skipped,
                                       .save = save,
                                       .load = load,
                                       .close = close_dataset };

int ares_source_of_dataset(ares_dataset *d, const ares_order *order, ares_source *out)
{
    dataset_source *s = ares_calloc(1, sizeof *s);
    int rc = loader_init(&s->loader, ares_dataset_count(d), order);
    if (rc != ARES_OK) {
        ares_free(s);
        return rc;
    }
    s->data = d;
    *out = (ares_source){ .kind = &kind, .state = s };
    return ARES_OK;
}
