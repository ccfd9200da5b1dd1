/*
 * The store of features. A medium is decoded by a job of the pool, or by whoever needs it first;
 * what its pixels hash to finds the entry that holds the features.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../internal.h"
#include "ares/model.h"

typedef enum { UNREAD, QUEUED, READING, READ } read_state;
/* A medium that was asked for, and its pixels once it is decoded. */
typedef struct picture {
    struct ares_features *store;
    const ares_medium *medium;
    read_state state; /* these four under the store's lock */
    int rc;
    char *message;
    uint8_t *pixels; /* NULL: dropped */
    uint64_t key;
    int64_t entry; /* -1: its key is not known yet */
} picture;

typedef struct entry {
    float *features; /* NULL: not computed, or dropped */
    size_t bytes;
    int64_t used; /* when they were asked for last */
} entry;

struct ares_features {
    ares_model *model;
    const ares_adapter *adapter; /* what adapts the tower; NULL: nothing */
    ares_processor processor;
    size_t keep_bytes, bytes;
    ares_map *by_address, *by_key; /* numbers of pictures and of entries */
    picture **pictures;
    entry *entries;
    int64_t n_pictures, picture_cap, n_entries, entry_cap, clock;
    int64_t version; /* of the weights that made them, where the tower is trained */
    double seconds;
    pthread_mutex_t lock;
    pthread_cond_t read;
};

int ares_features_new(ares_model *m, const ares_adapter *a, const ares_processor *p,
                      size_t keep_bytes, ares_features **out)
{
    ares_features *f = *out = ares_calloc(1, sizeof *f);
    f->model = m;
    f->adapter = a && a->tower ? a : NULL;
    f->processor = *p;
    f->keep_bytes = keep_bytes;
    f->by_address = ares_map_new();
    f->by_key = ares_map_new();
    (void)pthread_mutex_init(&f->lock, NULL);
    (void)pthread_cond_init(&f->read, NULL);
    return ARES_OK;
}

/* Sets the state to `to` if it is `from`, and says whether it was. */
static bool turn(picture *p, read_state from, read_state to)
{
    pthread_mutex_lock(&p->store->lock);
    bool was = p->state == from;
    if (was) p->state = to;
    pthread_mutex_unlock(&p->store->lock);
    return was;
}

void ares_features_free(ares_features *f)
{
    if (!f) return;
    for (int64_t i = 0; i < f->n_pictures; i++) (void)turn(f->pictures[i], QUEUED, UNREAD);
    ares_pool_drain(f->model->device->pool); /* waits for decoders that are still at work */
    for (int64_t i = 0; i < f->n_pictures; i++) {
        ares_free(f->pictures[i]->pixels);
        ares_free(f->pictures[i]->message);
        ares_free(f->pictures[i]);
    }
    for (int64_t i = 0; i < f->n_entries; i++) ares_free(f->entries[i].features);
    ares_free(f->pictures);
    ares_free(f->entries);
    ares_map_free(f->by_address);
    ares_map_free(f->by_key);
    (void)pthread_mutex_destroy(&f->lock);
    (void)pthread_cond_destroy(&f->read);
    ares_free(f);
}

static ares_view bytes_of(const void *p, size_t n)
{
    return (ares_view){ p, n };
}

/* Made when a medium is first asked for. */
static picture *picture_of(ares_features *f, const ares_medium *x)
{
    int64_t i;
    if (ares_map_get(f->by_address, bytes_of(&x, sizeof x), &i)) return f->pictures[i];
    if (f->n_pictures == f->picture_cap) {
        f->picture_cap = f->picture_cap * 2 + 64;
        f->pictures = ares_realloc(f->pictures, (size_t)f->picture_cap * sizeof *f->pictures);
    }
    picture *p = f->pictures[f->n_pictures] = ares_calloc(1, sizeof *p);
    *p = (picture){ .store = f, .medium = x, .entry = -1 };
    ares_map_put(f->by_address, bytes_of(&x, sizeof x), f->n_pictures++);
    return p;
}

/* ------------------------------------------------------------------ decoding */
/* On any thread, after the state has become READING. */
static void decode(picture *p)
{
    ares_features *f = p->store;
    uint8_t *pixels = NULL;
    uint64_t key = 0;
    int rc = ares_medium_read(p->medium, &f->processor, &pixels, &key);
    char *message = rc == ARES_OK ? NULL : ares_strdup(ares_error_message());
    pthread_mutex_lock(&f->lock);
    /* it was decoded before, and its pixels were dropped since */
    if (rc == ARES_OK && p->entry >= 0 && key != p->key) {
        rc = ARES_EIO;
        message = ares_strdup("media: an image or video has changed since the run read it first; "
                              "put the file back");
        ares_free(pixels);
        pixels = NULL;
    }
    p->rc = rc;
    p->message = message;
    p->pixels = pixels;
    p->key = key;
    p->state = READ;
    pthread_cond_broadcast(&f->read);
    pthread_mutex_unlock(&f->lock);
}

static void decode_queued(void *ctx)
{
    picture *p = ctx;
    if (turn(p, QUEUED, READING)) decode(p);
}

static bool stored(const ares_features *f, const picture *p)
{
    return p->entry >= 0 && f->entries[p->entry].features;
}

void ares_features_ahead(ares_features *f, const ares_row_media *s)
{
    for (int32_t i = 0; i < s->n_places; i++) {
        picture *p = picture_of(f, s->places[i].medium);
        if (!stored(f, p) && turn(p, UNREAD, QUEUED))
            ares_pool_post(f->model->device->pool, decode_queued, p);
    }
}
bool ares_features_ready(ares_features *f, const ares_row_media *s)
{
    for (int32_t i = 0; i < s->n_places; i++) {
        picture *p = picture_of(f, s->places[i].medium);
        if (!stored(f, p) && !turn(p, READ, READ)) return false;
    }
    return true;
}

/* Waits for the picture's pixels; this thread decodes them unless another has begun to. */
static int read_pixels(picture *p)
{
    ares_features *f = p->store;
    if (turn(p, UNREAD, READING) || turn(p, QUEUED, READING)) decode(p);
    pthread_mutex_lock(&f->lock);
    while (p->state != READ) pthread_cond_wait(&f->read, &f->lock);
    pthread_mutex_unlock(&f->lock);
    return p->rc == ARES_OK ? ARES_OK : ares_fail(p->rc, "%s", p->message);
}

static void drop_pixels(picture *p)
{
    pthread_mutex_lock(&p->store->lock);
    if (p->state == READ && p->rc == ARES_OK) {
        ares_free(p->pixels);
        p->pixels = NULL;
        p->state = UNREAD;
    }
    pthread_mutex_unlock(&p->store->lock);
}

/* ------------------------------------------------------------------ features */
/* A clip at another rate is another entry: its tokens have other positions. */
static void find_entry(ares_features *f, picture *p)
{
    struct {
        uint64_t pixels;
        double seconds;
    } key = { p->key, p->medium->video ? p->medium->second_per_grid : 0 };
    if (p->entry >= 0 || ares_map_get(f->by_key, bytes_of(&key, sizeof key), &p->entry)) return;
    if (f->n_entries == f->entry_cap) {
        f->entry_cap = f->entry_cap * 2 + 64;
        f->entries = ares_realloc(f->entries, (size_t)f->entry_cap * sizeof *f->entries);
    }
    f->entries[f->n_entries] = (entry){ 0 };
    ares_map_put(f->by_key, bytes_of(&key, sizeof key), f->n_entries);
    p->entry = f->n_entries++;
}

static size_t bytes_of_features(const ares_features *f, const ares_medium *x)
{
    const ares_vision_config *v = &f->model->cfg.vision;
    return (size_t)ares_medium_tokens(x, v->merge) * (size_t)v->out * sizeof(float);
}

static void write_patches(const void *of, int32_t first, int32_t n, float *values)
{
    const picture *p = of;
    ares_medium_patches(p->medium, &p->store->processor, p->pixels, first, n, values);
}

/* Of a picture whose pixels are there. */
static tower_input input_of(const picture *p)
{
    return (tower_input){ p->medium->grid, write_patches, p };
}

/* Computes the features of a picture's entry and stores them. */
static int store(ares_features *f, picture *p)
{
    size_t bytes = bytes_of_features(f, p->medium);
    const tower_input in = input_of(p);
    float *features = ares_malloc(bytes);
    int rc = tower_features(f->model, f->adapter, &in, features);
    if (rc != ARES_OK) {
        ares_free(features);
        return rc;
    }
    entry *e = &f->entries[p->entry];
    e->features = features;
    e->bytes = bytes;
    f->bytes += bytes;
    return ARES_OK;
}
int ares_features_get(ares_features *f, const ares_medium *x, ares_seen *out)
{
    picture *p = picture_of(f, x);
    double started = ares_now_s();
    int rc = ARES_OK;
    if (!stored(f, p)) rc = read_pixels(p);
    if (!stored(f, p) && rc == ARES_OK) {
        find_entry(f, p);
        if (!stored(f, p)) rc = store(f, p);
        if (!ares_features_trained(f)) drop_pixels(p); /* else the update reads them again */
    }
    f->seconds += ares_now_s() - started;
    ARES_TRY(rc);
    f->entries[p->entry].used = ++f->clock;
    *out = (ares_seen){ f->entries[p->entry].features, (int32_t)p->entry };
    return ARES_OK;
}

int ares_features_show(ares_features *f, ares_packed *p, float *in)
{
    int64_t width = f->model->cfg.hidden;
    for (int32_t i = 0; i < p->n_shown; i++) {
        const ares_shown *x = &p->shown[i];
        ares_seen seen;
        ARES_TRY(ares_features_get(f, x->medium, &seen));
        memcpy(in + x->at * width, seen.features + x->from * width,
               (size_t)(x->n * width) * sizeof *in);
    }
    p->features = in;
    return ARES_OK;
}

/* ------------------------------------------------------------------ a trained tower */
bool ares_features_trained(const ares_features *f)
{
    return ares_model_trains_tower(f->model, f->adapter);
}

void ares_features_at(ares_features *f, int64_t version)
{
    if (!ares_features_trained(f) || f->version == version) return;
    ares_features_forget(f);
    f->version = version;
}
/* The rows of a medium's features as the weights make them now. */
static int show_one(ares_features *f, const ares_shown *x, float *to, double *off)
{
    picture *p = picture_of(f, x->medium);
    size_t width = (size_t)f->model->cfg.hidden, bytes = bytes_of_features(f, x->medium);
    ARES_TRY(read_pixels(p));
    find_entry(f, p);
    const tower_input in = input_of(p);
    float *all = ares_malloc(bytes);
    int rc = tower_features(f->model, f->adapter, &in, all);
    if (rc == ARES_OK) {
        const float *before = stored(f, p) ? f->entries[p->entry].features : NULL;
        for (size_t i = 0; before && i < bytes / sizeof *all; i++)
            *off = fmax(*off, fabs((double)all[i] - (double)before[i]));
        memcpy(to, all + (size_t)x->from * width, (size_t)x->n * width * sizeof *to);
    }
    ares_free(all);
    return rc;
}

int ares_features_show_fresh(ares_features *f, ares_packed *p, float *in, double *off)
{
    int64_t width = f->model->cfg.hidden;
    double started = ares_now_s();
    int rc = ARES_OK;
    for (int32_t i = 0, k; i < p->n_shown && rc == ARES_OK; i++) {
        const ares_shown *x = &p->shown[i], *y = x;
        for (k = 0; k < i; k++) { /* several rows may show one picture */
            y = &p->shown[k];
            if (y->medium == x->medium && y->from == x->from && y->n == x->n) break;
        }
        if (k < i)
            memcpy(in + x->at * width, in + y->at * width, (size_t)(x->n * width) * sizeof *in);
        else rc = show_one(f, x, in + x->at * width, off);
    }
    f->seconds += ares_now_s() - started;
    p->features = in;
    return rc;
}

int ares_features_backward(ares_features *f, ares_keep keep, const ares_packed *p, const float *d)
{
    size_t width = (size_t)f->model->cfg.hidden;
    double started = ares_now_s();
    int rc = ARES_OK;
    for (int32_t i = 0; i < p->n_shown && rc == ARES_OK; i++) {
        const ares_shown *x = &p->shown[i];
        picture *of = picture_of(f, x->medium);
        rc = read_pixels(of);
        if (rc != ARES_OK) break;
        const tower_input in = input_of(of);
        float *all = ares_calloc(1, bytes_of_features(f, x->medium));
        memcpy(all + (size_t)x->from * width, d + (size_t)x->at * width,
               (size_t)x->n * width * sizeof *all);
        rc = tower_backward_of(f->model, f->adapter, keep, &in, all);
        ares_free(all);
    }
    f->seconds += ares_now_s() - started;
    return rc;
}

/* ------------------------------------------------------------------ what is kept */
/* The entry stays, so that its number does: cached blocks are found by it. */
static void drop(ares_features *f, entry *e)
{
    if (!e->features) return;
    f->bytes -= e->bytes;
    ares_free(e->features);
    e->features = NULL;
}

static int by_use(const void *a, const void *b)
{
    const entry *x = *(entry *const *)a, *y = *(entry *const *)b;
    return ARES_CMP(x->used, y->used);
}

void ares_features_trim(ares_features *f)
{
    for (int64_t i = 0; i < f->n_pictures; i++) drop_pixels(f->pictures[i]);
    if (f->bytes <= f->keep_bytes) return;
    entry **oldest = ares_malloc((size_t)f->n_entries * sizeof *oldest);
    for (int64_t i = 0; i < f->n_entries; i++) oldest[i] = &f->entries[i];
    qsort(oldest, (size_t)f->n_entries, sizeof *oldest, by_use);
    for (int64_t i = 0; i < f->n_entries && f->bytes > f->keep_bytes; i++) drop(f, oldest[i]);
    ares_free(oldest);
}

void ares_features_forget(ares_features *f)
{
    for (int64_t i = 0; i < f->n_entries; i++) drop(f, &f->entries[i]);
}

double ares_features_seconds(ares_features *f)
{
    double seconds = f->seconds;
    f->seconds = 0;
    return seconds;
}
