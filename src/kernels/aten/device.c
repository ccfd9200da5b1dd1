/*
 * The tables made of libtorch's operators, and what a device keeps for them: its first failure and
 * its scratch. On the CPU the table is complete, but its memory, and the sampler that draws tokens
 * from its logits, are the native table's; what a card takes is in card.c. The program finds the
 * ares_aten_ functions by name (kernels/device.c).
 */
#include "aten.h"

#include <stdio.h>

enum { SLOTS = ATEN_SLOTS };

typedef struct aten_context {
    ares_kernels table;        /* in use: the one under it, and our entries */
    const ares_kernels *under; /* as the device was opened */
    int code;                  /* of the first failure since the last sync */
    char message[512];
    struct {
        void *p;
        size_t bytes;
    } slot[SLOTS];
} aten_context;

const ares_kernels *aten_under(const ares_device *d)
{
    return ((const aten_context *)d->aten)->under;
}

/* Takes the pending error rc, if it is one; gives rc. */
static int keep_failure(ares_device *d, int rc)
{
    aten_context *c = d->aten;
    if (rc != ARES_OK && c->code == ARES_OK) {
        c->code = rc;
        snprintf(c->message, sizeof c->message, "%s%s", ares_error_message(),
                 rc == ARES_ELIMIT ? "; lower worker.rollout.gpu_memory_utilization or the tokens "
                                     "of a micro-batch"
                                   : "");
    }
    if (rc != ARES_OK) ares_error_clear();
    return rc;
}

/* What was released is freed at a wait, whose failure is what sync reports then. */
static bool free_released(void *ctx)
{
    ares_device *d = ctx;
    return keep_failure(d, aten_under(d)->sync(d)) == ARES_OK;
}

at_scope *aten_enter(ares_device *d, const char *entry)
{
    const aten_context *c = d->aten;
    if (c->code != ARES_OK) return NULL;
    at_scope *s = d->index < 0 ? at_scope_open_no_grad(entry)
                               : at_scope_open_stream(entry, d->index, d->stream);
    at_scope_retry(s, free_released, d);
    return s;
}

void aten_leave(ares_device *d, at_scope *s)
{
    (void)keep_failure(d, at_scope_close(s, NULL));
}

float *aten_scratch(ares_device *d, aten_slot slot, int64_t floats)
{
    aten_context *c = d->aten;
    size_t bytes = (size_t)floats * sizeof(float);
    if (c->slot[slot].bytes < bytes) {
        ares_pages_free(c->slot[slot].p, c->slot[slot].bytes);
        c->slot[slot].bytes = (bytes + bytes / 4 + 65535) / 65536 * 65536;
        c->slot[slot].p = ares_pages_new(c->slot[slot].bytes);
    }
    return c->slot[slot].p;
}

/* ------------------------------------------------------------------ views */

static at_tensor rows_of(const ares_device *d, at_dtype type, const void *x, int64_t rows,
                         int64_t columns, int64_t ld)
{
    return at_view(x, type, d->index, (const int64_t[]){ rows, columns },
                   (const int64_t[]){ ld, 1 }, 2);
}
at_tensor aten_acts(const ares_device *d, const void *x, int64_t rows, int64_t columns, int64_t ld)
{
    return rows_of(d, aten_type(d->k->act), x, rows, columns, ld);
}
at_tensor aten_wide(const ares_device *d, const void *x, int64_t rows, int64_t columns, int64_t ld)
{
    return at_to(aten_acts(d, x, rows, columns, ld), AT_F32);
}
at_tensor aten_rows(const ares_device *d, const float *x, int64_t rows, int64_t columns, int64_t ld)
{
    return rows_of(d, AT_F32, x, rows, columns, ld);
}
at_tensor aten_vector(const ares_device *d, const float *x, int64_t n)
{
    return at_view(x, AT_F32, d->index, (const int64_t[]){ n }, (const int64_t[]){ 1 }, 1);
}
at_tensor aten_ids(const ares_device *d, const int32_t *ids, int64_t n)
{
    return at_view(ids, AT_I32, d->index, (const int64_t[]){ n }, (const int64_t[]){ 1 }, 1);
}
at_tensor aten_matrix(const ares_device *d, const ares_matrix *w)
{
    ARES_ASSERT(w->layout == ARES_ROWS);
    return rows_of(d, aten_type(w->dtype), w->data, w->n, w->k, w->k);
}

/* ------------------------------------------------------------------ the tables */

int aten_report(ares_device *d, int under)
{
    aten_context *c = d->aten;
    int rc = c->code;
    c->code = ARES_OK;
    return rc == ARES_OK ? under : ares_fail(rc, "kernels: aten: %s", c->message);
}
static int report(ares_device *d)
{
    return aten_report(d, aten_under(d)->sync(d));
}

ares_kernels *aten_put_on(ares_device *d)
{
    aten_context *c = ares_calloc(1, sizeof *c);
    c->under = d->k;
    c->table = *d->k;
    c->table.sync = report;
    d->aten = c;
    d->k = &c->table;
    return &c->table;
}

void ares_aten_open(ares_device *d, ares_dtype act);

/* Puts the complete table on an open native device of the CPU. */
void ares_aten_open(ares_device *d, ares_dtype act)
{
    ares_kernels *k = aten_put_on(d);
    k->name = act == ARES_F32 ? "aten cpu" : "aten cpu bf16";
    k->layout = ARES_ROWS;
    k->act = act;
    k->linear = aten_linear;
    k->linear_backward = aten_linear_backward;
    k->embedding = aten_embedding;
    k->embedding_backward = aten_embedding_backward;
    k->rms_norm = aten_rms_norm;
    k->rms_norm_backward = aten_rms_norm_backward;
    k->layer_norm = aten_layer_norm;
    k->layer_norm_backward = aten_layer_norm_backward;
    k->activation = aten_activation;
    k->activation_backward = aten_activation_backward;
    k->rope = aten_rope;
    k->silu_mul = aten_silu_mul;
    k->silu_mul_backward = aten_silu_mul_backward;
    k->store_kv = aten_store_kv;
    k->lists_keys = true;
    k->attention = aten_attention;
    k->attention_backward = aten_attention_backward;
    k->head = aten_head;
    k->head_backward = aten_head_backward;
    k->head_fused = aten_head_fused;
    k->sample = aten_sample;
    k->adamw = aten_adamw;
    k->square_sums = aten_square_sums;
    k->add = aten_add;
}

void ares_aten_close(ares_device *d)
{
    aten_context *c = d->aten;
    for (int i = 0; i < SLOTS; i++) ares_pages_free(c->slot[i].p, c->slot[i].bytes);
    d->k = c->under;
    d->aten = NULL;
    ares_free(c);
}
