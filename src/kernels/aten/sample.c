/*
 * Sampling: libtorch computes the logits of a chunk of rows, and the native sampler of the host
 * takes them from there. Its random numbers are ours (Philox by row and token), which libtorch does
 * not have; so both tables draw the same token from the same logits.
 */
#include "aten.h"

static const int64_t LOGITS = 1 << 24;

/* The arguments of rows [row, row + n), whose logits are z. */
static ares_sample_args rows_of(const ares_sample_args *a, int32_t row, int32_t n, const float *z)
{
    ares_sample_args b = *a;
    b.rows = n;
    b.logits = z;
    b.temperature += row;
    if (a->top_p) b.top_p += row;
    if (a->top_k) b.top_k += row;
    if (a->key) b.key += row;
    b.token += row;
    b.log_prob += row;
    b.entropy += row;
    if (a->log_prob_1) {
        b.log_prob_1 += row;
        b.entropy_1 += row;
    }
    if (a->n_likely) {
        b.likely_token += (int64_t)row * a->n_likely;
        b.likely_log_prob += (int64_t)row * a->n_likely;
    }
    return b;
}

void aten_sample(ares_device *d, const ares_sample_args *a)
{
    int32_t most = (int32_t)ARES_MIN((int64_t)a->rows, ARES_MAX(1, LOGITS / a->vocab));
    for (int32_t row = 0; row < a->rows; row += most) {
        int32_t n = ARES_MIN(most, a->rows - row);
        at_scope *s = aten_enter(d, "sample");
        if (!s) return;
        const float *logits = a->logits ? a->logits + (int64_t)row * a->vocab : NULL;
        if (!logits) {
            float *z = aten_scratch(d, ATEN_LOGITS, (int64_t)most * a->vocab);
            at_mm_out(aten_rows(d, z, n, a->vocab, a->vocab),
                      aten_acts(d, aten_at(d, a->x, row * a->ldx), n, a->w->k, a->ldx),
                      at_transpose(at_narrow(aten_matrix(d, a->w), 0, 0, a->vocab), 0, 1));
            logits = z;
        }
        bool failed = at_scope_failed();
        aten_leave(d, s);
        if (failed) return;
        ares_sample_args part = rows_of(a, row, n, logits);
        aten_under(d)->sample(d, &part);
    }
}
