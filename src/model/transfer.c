/*
 * A parameter's tensors between row-major host memory and the layout and memory of its device. On a
 * CPU they are packed in place; for another device they are packed on the host and copied.
 */
#include "transfer.h"

static bool lies_in(const char *p, const char *memory, size_t bytes)
{
    return memory && p >= memory && p < memory + bytes;
}

/* Weights and optimizer states may lie in host memory beside a card, too. */
static bool on_host(const ares_model *m, const ares_matrix *t)
{
    return m->device->index < 0 || lies_in(t->data, m->host_weights, m->host_weights_bytes) ||
           (m->windows && lies_in(t->data, m->states, m->states_bytes));
}

static size_t tensor_bytes(const ares_matrix *w)
{
    return (size_t)ares_matrix_elements(w->layout, w->n, w->k) * ares_dtype_bytes(w->dtype);
}

int model_put(ares_model *m, const ares_matrix *to, const void *rows, ares_dtype dtype)
{
    ares_device *d = m->device;
    if (on_host(m, to)) {
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

int model_get(const ares_model *m, const ares_matrix *from, void *rows, ares_dtype dtype)
{
    ares_device *d = m->device;
    if (on_host(m, from)) {
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
