/*
 * The table, the device that it makes of an open native one, and its first failure. Memory is the
 * host's, so allocation and copies are the native table's own. The program finds ares_aten_open and
 * ares_aten_close by name (kernels/device.c).
 */
#include "aten.h"

#include <stdio.h>

enum { SLOTS = ATEN_SLOTS };

typedef struct aten_context {
    ares_device host;
    int code; /* of the first failure since the last sync */
    char message[512];
    struct {
        void *p;
        size_t bytes;
    } slot[SLOTS];
} aten_context;

at_scope *aten_enter(ares_device *d, const char *entry)
{
    const aten_context *c = d->scratch;
    return c->code == ARES_OK ? at_scope_open_no_grad(entry) : NULL;
}

void aten_leave(ares_device *d, at_scope *s)
{
    aten_context *c = d->scratch;
    int rc = at_scope_close(s, NULL);
    if (rc == ARES_OK) return;
    c->code = rc;
    snprintf(c->message, sizeof c->message, "%s", ares_error_message());
    ares_error_clear();
}

ares_device *aten_host(ares_device *d)
{
    return &((aten_context *)d->scratch)->host;
}

float *aten_scratch(ares_device *d, aten_slot slot, int64_t floats)
{
    aten_context *c = d->scratch;
    size_t bytes = (size_t)floats * sizeof(float);
    if (c->slot[slot].bytes < bytes) {
        ares_pages_free(c->slot[slot].p, c->slot[slot].bytes);
        c->slot[slot].bytes = (bytes + bytes / 4 + 65535) / 65536 * 65536;
        c->slot[slot].p = ares_pages_new(c->slot[slot].bytes);
    }
    return c->slot[slot].p;
}

at_tensor aten_matrix(const ares_matrix *w)
{
    ARES_ASSERT(w->layout == ARES_ROWS && w->dtype != ARES_F16);
    return at_view(w->data, w->dtype == ARES_F32 ? AT_F32 : AT_BF16,
                   (const int64_t[]){ w->n, w->k }, (const int64_t[]){ w->k, 1 }, 2);
}
at_tensor aten_weight(const ares_matrix *w)
{
    return at_to(aten_matrix(w), AT_F32);
}

/* ------------------------------------------------------------------ memory */

static void *host_alloc(ares_device *d, size_t bytes)
{
    return aten_host(d)->k->alloc(d, bytes);
}
static void host_release(ares_device *d, void *p, size_t bytes)
{
    aten_host(d)->k->release(d, p, bytes);
}
static void host_copy_in(ares_device *d, void *device, const void *host, size_t bytes)
{
    aten_host(d)->k->copy_in(d, device, host, bytes);
}
static void host_copy_out(ares_device *d, void *host, const void *device, size_t bytes)
{
    aten_host(d)->k->copy_out(d, host, device, bytes);
}
static void host_copy(ares_device *d, void *to, const void *from, size_t bytes)
{
    aten_host(d)->k->copy(d, to, from, bytes);
}
static void host_zero(ares_device *d, void *p, size_t bytes)
{
    aten_host(d)->k->zero(d, p, bytes);
}
static void host_convert(ares_device *d, void *to, ares_dtype to_type, const void *from,
                         ares_dtype from_type, int64_t n)
{
    aten_host(d)->k->convert(d, to, to_type, from, from_type, n);
}
static int report(ares_device *d)
{
    aten_context *c = d->scratch;
    int rc = c->code;
    c->code = ARES_OK;
    return rc == ARES_OK ? rc : ares_fail(rc, "kernels: aten: %s", c->message);
}

/* ------------------------------------------------------------------ the table */

static const ares_kernels table = {
    .name = "aten cpu",
    .layout = ARES_ROWS,
    .act = ARES_F32,
    .alloc = host_alloc,
    .release = host_release,
    .copy_in = host_copy_in,
    .copy_out = host_copy_out,
    .copy = host_copy,
    .zero = host_zero,
    .convert = host_convert,
    .sync = report,
    .linear = aten_linear,
    .linear_backward = aten_linear_backward,
    .embedding = aten_embedding,
    .embedding_backward = aten_embedding_backward,
    .rms_norm = aten_rms_norm,
    .rms_norm_backward = aten_rms_norm_backward,
    .rope = aten_rope,
    .silu_mul = aten_silu_mul,
    .silu_mul_backward = aten_silu_mul_backward,
    .store_kv = aten_store_kv,
    .attention = aten_attention,
    .attention_backward = aten_attention_backward,
    .head = aten_head,
    .head_backward = aten_head_backward,
    .head_fused = aten_head_fused,
    .sample = aten_sample,
    .adamw = aten_adamw,
    .square_sums = aten_square_sums,
    .add = aten_add,
};

void ares_aten_open(ares_device *d);
void ares_aten_close(ares_device *d);

/* d is an open native device. */
void ares_aten_open(ares_device *d)
{
    aten_context *c = ares_calloc(1, sizeof *c);
    c->host = *d;
    d->k = &table;
    d->scratch = c;
}

/* d becomes the native device again. */
void ares_aten_close(ares_device *d)
{
    aten_context *c = d->scratch;
    for (int i = 0; i < SLOTS; i++) ares_pages_free(c->slot[i].p, c->slot[i].bytes);
    d->k = c->host.k;
    d->scratch = c->host.scratch;
    ares_free(c);
}
