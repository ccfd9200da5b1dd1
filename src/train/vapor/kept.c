/*
 * What the reference said of stored answers. It is asked once per pair, because its weights and
 * these tokens do not change; every rank knows what any rank was told, and a checkpoint holds it
 * (stored_answers.safetensors, a tensor per pair). The name of a tensor is the row and a hash of
 * everything that its numbers follow from, so that those of other answers or another reference are
 * not found again.
 */
#include <stdio.h>
#include <string.h>

#include "vapor/vapor.h"

static int64_t tokens_of(const vapor *v, int64_t row)
{
    return v->pairs.pair[row].chosen.n + v->pairs.pair[row].rejected.n;
}

void vapor_keep(vapor *v, int64_t row, const float *log_probs)
{
    size_t bytes = (size_t)tokens_of(v, row) * sizeof *log_probs;
    if (v->ref[row]) return;
    v->ref[row] = ares_malloc(bytes);
    memcpy(v->ref[row], log_probs, bytes);
    v->fresh[v->n_fresh++] = row;
}

void vapor_forget(vapor *v)
{
    for (int64_t i = 0; i < v->pairs.n && v->ref; i++) {
        ares_free(v->ref[i]);
        v->ref[i] = NULL;
    }
}

/* Takes what another rank has told: a row, its log-probs, the next row. */
static void take(vapor *v, const char *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        int64_t row;
        memcpy(&row, data + at, sizeof row);
        at += sizeof row;
        float *x = ares_malloc((size_t)tokens_of(v, row) * sizeof *x);
        memcpy(x, data + at, (size_t)tokens_of(v, row) * sizeof *x);
        at += (size_t)tokens_of(v, row) * sizeof *x;
        vapor_keep(v, row, x);
        ares_free(x);
    }
}

int vapor_share(vapor *v, ares_world *w)
{
    ares_str mine = { 0 }, all = { 0 };
    if (ares_world_size(w) == 1) return ARES_OK;
    for (int64_t i = 0; i < v->n_fresh; i++) {
        int64_t row = v->fresh[i];
        ares_str_add(&mine, (const char *)&row, sizeof row);
        ares_str_add(&mine, (const char *)v->ref[row],
                     (size_t)tokens_of(v, row) * sizeof *v->ref[row]);
    }
    int rc = ares_world_gather_all(w, mine.data, mine.len, &all, NULL);
    if (rc == ARES_OK) take(v, all.data, all.len);
    ares_str_fini(&mine);
    ares_str_fini(&all);
    return rc;
}

/* ---------------------------------------------------------------- in a checkpoint */
enum { NAME = 40 };

static uint64_t hash_of(const vapor *v, int64_t row)
{
    const ares_stored_answer *answers[] = { &v->pairs.pair[row].chosen,
                                            &v->pairs.pair[row].rejected };
    uint64_t h = ares_fnv1a(ARES_FNV1A, &v->reference, sizeof v->reference);
    for (int i = 0; i < ARES_COUNT(answers); i++) {
        const ares_stored_answer *a = answers[i];
        int32_t sizes[] = { a->prompt_len, a->n };
        h = ares_fnv1a(h, sizes, sizeof sizes);
        h = ares_fnv1a(h, a->ids, (size_t)(a->prompt_len + a->n) * sizeof *a->ids);
    }
    return h;
}

static void name_of(const vapor *v, int64_t row, char name[static NAME])
{
    snprintf(name, NAME, "%lld.%016llx", (long long)row, (unsigned long long)hash_of(v, row));
}

int vapor_save(const vapor *v, const char *path)
{
    ares_safetensors_writer *w;
    char name[NAME];
    int rc = ARES_OK;
    ARES_TRY(ares_safetensors_create(path, &w));
    for (int64_t i = 0; i < v->pairs.n && v->ref; i++) {
        if (!v->ref[i]) continue;
        name_of(v, i, name);
        ares_safetensors_declare(w, name, ARES_F32, 1, (int64_t[]){ tokens_of(v, i) });
    }
    for (int64_t i = 0; i < v->pairs.n && v->ref && rc == ARES_OK; i++)
        if (v->ref[i])
            rc = ares_safetensors_write(w, v->ref[i], (size_t)tokens_of(v, i) * sizeof(float));
    int finished = ares_safetensors_finish(w);
    return rc != ARES_OK ? rc : finished;
}

int vapor_load(vapor *v, const char *path)
{
    ares_safetensors *s;
    char name[NAME];
    if (!v->ref || !ares_file_exists(path)) return ARES_OK; /* older checkpoints do not have it */
    ARES_TRY(ares_safetensors_open(path, &s));
    for (int64_t i = 0; i < v->pairs.n; i++) {
        if (!v->pairs.pair[i].chosen.n) continue;
        name_of(v, i, name);
        const ares_tensor_info *t = ares_safetensors_find(s, name);
        if (!t || !t->is_float || t->dtype != ARES_F32 || t->count != tokens_of(v, i)) continue;
        v->ref[i] = ares_malloc((size_t)t->bytes);
        memcpy(v->ref[i], t->data, (size_t)t->bytes);
    }
    ares_safetensors_close(s);
    return ARES_OK;
}
