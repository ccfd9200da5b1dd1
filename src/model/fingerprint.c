/*
 * A number that tells which weights a directory holds, from the names, types and shapes of all
 * tensors and some bytes of each. Reading all bytes of a large model would take seconds, and two
 * models that were trained apart differ nearly everywhere.
 */
#include <string.h>

#include "ares/io.h"
#include "ares/model.h"

enum { PLACES = 16, PIECE = 64 }; /* places in a tensor, bytes at each */

static uint64_t tensor(uint64_t h, const ares_tensor_info *t)
{
    h = ares_fnv1a(h, t->name, strlen(t->name) + 1);
    h = ares_fnv1a(h, t->dtype_name, strlen(t->dtype_name) + 1);
    h = ares_fnv1a(h, t->shape, (size_t)t->rank * sizeof *t->shape);
    for (int64_t i = 0; i < PLACES; i++) {
        int64_t at = t->bytes / PLACES * i;
        h = ares_fnv1a(h, (const char *)t->data + at, (size_t)ARES_MIN(PIECE, t->bytes - at));
    }
    return h;
}

int ares_model_fingerprint(const char *dir, uint64_t *out)
{
    ares_safetensors *s;
    uint64_t h = ARES_FNV1A;
    ARES_TRY(ares_safetensors_open(dir, &s));
    for (int64_t i = 0; i < ares_safetensors_count(s); i++)
        h = tensor(h, ares_safetensors_at(s, i));
    ares_safetensors_close(s);
    *out = h;
    return ARES_OK;
}
