/*
 * Products by libtorch: the vocabulary head with its log-probs and gradients, the linear layers,
 * the embedding, and sampling from the head's logits.
 */
#include "aten.h"

#include <string.h>

/*
 * The vocabulary head in chunks of rows, whose logits lie in scratch: log-softmax in place, from it
 * log-probs and entropies, then in place the derivatives. head_fused computes a chunk's logits
 * once, head_backward those of head again.
 *
 * With z the log-softmax, p = exp(z) and H the entropy, the gradient by the logits is
 * -p (c + ce (z + H)), plus c at the target, plus ck p (z - log q - KL) with a reference q, all
 * times inv_temperature.
 */

/* Logits of a chunk at most: 64 MiB. But never less than a row. */
static const int64_t LOGITS = 1 << 24;

typedef struct chunk {
    ares_device *d;
    const ares_head_args *a;
    int64_t row, rows;
    at_tensor target; /* [rows][1] */
    at_tensor z, p;   /* [rows][vocab]: log-probs; the second is scratch for probabilities */
    at_tensor r;      /* log-probs of the reference; NULL: none */
} chunk;

static int64_t chunk_rows(const ares_head_args *a)
{
    return ARES_MIN((int64_t)a->rows, ARES_MAX(1, LOGITS / a->vocab));
}

/* The weight's rows of tokens, and of a gradient */
static at_tensor of_vocab(const ares_head_args *a, at_tensor w)
{
    return at_narrow(w, 0, 0, a->vocab);
}

/* A column of host memory, one number per row of the chunk */
static at_tensor column(const chunk *c, const float *x)
{
    return aten_rows(c->d, x + c->row, c->rows, 1, 1);
}

/* Rows of the chunk of an array of activations */
static at_tensor acts(const chunk *c, const void *x, int64_t columns, int64_t ld)
{
    return aten_acts(c->d, aten_at(c->d, x, c->row * ld), c->rows, columns, ld);
}

/* [rows][vocab] log-probs of the chunk in scratch; lse: written [rows], before z is overwritten. */
static at_tensor log_probs(const chunk *c, aten_slot slot, const void *x, int64_t ldx,
                           const ares_matrix *w, float *lse)
{
    const ares_head_args *a = c->a;
    at_tensor z = aten_rows(c->d, aten_scratch(c->d, slot, chunk_rows(a) * a->vocab), c->rows,
                            a->vocab, a->vocab);
    at_mm_out(z, acts(c, x, w->k, ldx), at_transpose(of_vocab(a, aten_matrix(c->d, w)), 0, 1));
    const ares_head_adapter *l = slot == ATEN_LOGITS ? a->adapter : a->ref_adapter;
    if (l) {
        const ares_matrix *b = l->b;
        at_addmm_out(z, z, acts(c, l->u, b->k, b->k),
                     at_transpose(of_vocab(a, aten_matrix(c->d, b)), 0, 1));
    }
    if (a->inv_temperature != 1.0f) at_mul_s_(z, a->inv_temperature);
    /* log-softmax subtracts the lse from every logit: one logit before and after gives it */
    at_tensor before = lse ? at_gather(z, 1, c->target) : NULL;
    at_log_softmax_out(z, z, 1);
    if (lse) at_copy_(column(c, lse), at_sub(before, at_gather(z, 1, c->target)));
    return z;
}

static chunk chunk_of(ares_device *d, const ares_head_args *a, int64_t row, float *lse,
                      float *ref_lse)
{
    chunk c = { .d = d, .a = a, .row = row, .rows = ARES_MIN(chunk_rows(a), a->rows - row) };
    c.target = at_reshape(aten_ids(d, a->target + row, c.rows), AT_DIMS(c.rows, 1));
    c.z = log_probs(&c, ATEN_LOGITS, a->x, a->ldx, a->w, lse);
    if (a->ref_x) c.r = log_probs(&c, ATEN_REFERENCE, a->ref_x, a->ld_ref, a->ref_w, ref_lse);
    c.p = aten_rows(d, aten_scratch(d, ATEN_PROBABILITIES, chunk_rows(a) * a->vocab), c.rows,
                    a->vocab, a->vocab);
    return c;
}

/* The loss's inputs of the chunk's rows: log_prob, entropy, and kl with a reference. */
static void statistics(const chunk *c)
{
    const ares_head_args *a = c->a;
    at_copy_(column(c, a->log_prob), at_gather(c->z, 1, c->target));
    at_mul_(at_exp_out(c->p, c->z), c->z);
    at_copy_(column(c, a->entropy), at_neg(at_sum_dim(c->p, 1, true)));
    if (!c->r) return;
    at_exp_out(c->p, c->z);
    at_mul_(c->p, at_sub(c->z, c->r));
    /* only rounding makes it negative */
    at_copy_(column(c, a->kl), at_clamp(at_sum_dim(c->p, 1, true), 0, 1e30));
}

/* c, ce: of the chunk's first row on; ce may be NULL. z becomes the gradient by the logits. */
static void backward(const chunk *k, const float *c, const float *ce)
{
    const ares_head_args *a = k->a;
    at_tensor of_target = aten_rows(k->d, c, k->rows, 1, 1);
    at_exp_out(k->p, k->z);
    if (k->r) /* - ck (z - log q - KL) */
        at_mul_(at_add_(at_sub_(k->r, k->z), column(k, a->kl)), column(k, a->c_kl));
    if (ce) at_mul_(at_add_(k->z, column(k, a->entropy)), aten_rows(k->d, ce, k->rows, 1, 1));
    else at_mul_s_(k->z, 0);
    at_add_(k->z, of_target);
    if (k->r) at_add_(k->z, k->r);
    at_mul_s_(at_mul_(k->z, k->p), -1);
    at_scatter_add_(k->z, 1, k->target, of_target);
    if (a->inv_temperature != 1.0f) at_mul_s_(k->z, a->inv_temperature);
    if (a->dx)
        at_mm_out(acts(k, a->dx, a->w->k, a->lddx), k->z, of_vocab(a, aten_matrix(k->d, a->w)));
    if (a->dw) {
        at_tensor dw = of_vocab(a, aten_matrix(k->d, a->dw));
        at_addmm_out(dw, dw, at_transpose(k->z, 0, 1), acts(k, a->x, a->w->k, a->ldx));
    }
    const ares_head_adapter *l = a->adapter;
    if (!l) return;
    at_tensor du = acts(k, l->du, l->b->k, l->b->k), db = of_vocab(a, aten_matrix(k->d, l->db));
    at_mm_out(du, k->z, of_vocab(a, aten_matrix(k->d, l->b)));
    at_mul_s_(du, l->scale);
    at_addmm_out(db, db, at_transpose(k->z, 0, 1), acts(k, l->u, l->b->k, l->b->k));
}

/* This table computes whole heads only, no parts; a wrong target is the caller's mistake. */
static void check(const ares_head_args *a)
{
    ARES_ASSERT(!a->parts);
    ARES_ASSERT(a->vocab <= a->w->n && (!a->ref_x || a->vocab <= a->ref_w->n));
    for (int32_t r = 0; r < a->rows; r++) ARES_ASSERT(a->target[r] >= 0 && a->target[r] < a->vocab);
}

static void head(ares_device *d, const ares_head_args *a)
{
    check(a);
    for (int64_t row = 0; row < a->rows; row += chunk_rows(a)) {
        at_scope *s = aten_enter(d, "head");
        if (!s) return;
        chunk c = chunk_of(d, a, row, a->lse, a->ref_lse);
        statistics(&c);
        aten_leave(d, s);
    }
}

static void head_backward(ares_device *d, const ares_head_args *a)
{
    check(a);
    for (int64_t row = 0; row < a->rows; row += chunk_rows(a)) {
        at_scope *s = aten_enter(d, "head_backward");
        if (!s) return;
        chunk c = chunk_of(d, a, row, NULL, NULL);
        backward(&c, a->c_log_prob + row, a->c_entropy ? a->c_entropy + row : NULL);
        aten_leave(d, s);
    }
}

static void head_fused(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss, void *ctx)
{
    check(a);
    ARES_ASSERT(!a->ref_x);
    if (a->rows == 0) return;
    size_t most = (size_t)chunk_rows(a);
    float *of_log_prob = ares_calloc(2 * most, sizeof *of_log_prob), *of_entropy;
    for (int64_t row = 0; row < a->rows; row += (int64_t)most) {
        at_scope *s = aten_enter(d, "head_fused");
        if (!s) break;
        chunk c = chunk_of(d, a, row, a->lse, NULL);
        statistics(&c);
        if (!at_scope_failed()) { /* otherwise there are no numbers for the loss */
            memset(of_log_prob, 0, 2 * most * sizeof *of_log_prob);
            of_entropy = of_log_prob + most;
            loss(ctx, (int32_t)row, (int32_t)c.rows, a->log_prob + row, a->entropy + row,
                 of_log_prob, of_entropy);
            backward(&c, of_log_prob, of_entropy);
        }
        aten_leave(d, s);
    }
    ares_free(of_log_prob);
}

/* Products by mm and addmm, and look-ups of rows. */

/* Whether next lies `bytes` after x. */
static bool follows(const void *next, const void *x, int64_t bytes)
{
    return (const char *)next == (const char *)x + bytes;
}

/* Whether b multiplies the same rows as a, and its weight, bias and result follow a's. */
static bool goes_on(const ares_device *d, const ares_linear_args *a, const ares_linear_args *b)
{
    const ares_matrix *v = a->w, *w = b->w;
    int64_t act = (int64_t)ares_dtype_bytes(d->k->act),
            of_w = (int64_t)ares_dtype_bytes(v->dtype) * v->k;
    return b->m == a->m && b->x == a->x && b->ldx == a->ldx && b->ldy == a->ldy && w->k == v->k &&
           b->scale == a->scale && w->dtype == v->dtype && follows(w->data, v->data, v->n * of_w) &&
           follows(b->y, a->y, v->n * act) && !a->residual && !b->residual &&
           (a->bias ? follows(b->bias, a->bias, v->n * act) : !b->bias);
}

void aten_linear(ares_device *d, const ares_linear_args *args, int n)
{
    at_scope *s = aten_enter(d, "linear");
    if (!s) return;
    for (int i = 0, next; i < n; i = next) { /* q, k and v are one product; gate and up another */
        const ares_linear_args *a = &args[i];
        ares_matrix w = *a->w;
        for (next = i + 1; next < n && goes_on(d, &args[next - 1], &args[next]); next++)
            w.n += args[next].w->n;
        if (a->m <= 0) continue;
        int64_t columns = w.n;
        at_tensor x = aten_acts(d, a->x, a->m, w.k, a->ldx),
                  turned = at_transpose(aten_matrix(d, &w), 0, 1),
                  y = aten_acts(d, a->y, a->m, columns, a->ldy),
                  bias = a->bias ? aten_acts(d, a->bias, 1, columns, columns) : NULL;
        if (a->residual && a->residual == a->y) { /* it is read before y is written */
            ARES_ASSERT(a->ldr == a->ldy && a->scale == 0);
            at_addmm_out(y, y, x, turned);
            if (a->bias) at_add_(y, bias);
            continue;
        }
        if (a->bias && a->scale == 0)
            at_addmm_out(y, at_reshape(bias, AT_DIMS(columns)), x, turned);
        else at_mm_out(y, x, turned);
        if (a->scale != 0) at_mul_s_(y, a->scale);
        if (a->scale != 0 && a->bias) at_add_(y, bias);
        if (a->residual) at_add_(y, aten_acts(d, a->residual, a->m, columns, a->ldr));
    }
    aten_leave(d, s);
}

static void product_backward(ares_device *d, const ares_linear_backward_args *a)
{
    int64_t n = a->w->n, k = a->w->k;
    at_tensor dy = aten_acts(d, a->dy, a->m, n, a->lddy);
    if (a->dx) {
        at_tensor dx = aten_acts(d, a->dx, a->m, k, a->lddx), w = aten_matrix(d, a->w);
        if (a->accumulate) at_addmm_out(dx, dx, dy, w);
        else at_mm_out(dx, dy, w);
        if (a->scale != 0) at_mul_s_(dx, a->scale);
    }
    if (a->dw) {
        ARES_ASSERT(a->dw->dtype == ARES_F32);
        at_tensor dw = aten_matrix(d, a->dw);
        at_addmm_out(dw, dw, at_transpose(dy, 0, 1), aten_acts(d, a->x, a->m, k, a->ldx));
    }
    if (a->dbias) {
        at_tensor sum = at_zeros_beside(dy, AT_F32, AT_DIMS(n));
        at_add_(aten_vector(d, a->dbias, n), at_sum_dim_out(sum, dy, 0));
    }
}

void aten_linear_backward(ares_device *d, const ares_linear_backward_args *args, int n)
{
    for (int i = 0; i < n; i++) {
        at_scope *s = args[i].m > 0 ? aten_enter(d, "linear_backward") : NULL;
        if (!s) continue;
        product_backward(d, &args[i]);
        aten_leave(d, s);
    }
}

static void embedding(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                      int64_t ldy, float scale)
{
    at_scope *s = n > 0 ? aten_enter(d, "embedding") : NULL;
    if (!s) return;
    at_tensor rows = at_index_select(aten_matrix(d, e), 0, aten_ids(d, ids, n));
    if (scale != 0) rows = at_mul_s(at_to(rows, AT_F32), (double)scale);
    at_copy_(aten_acts(d, y, n, e->k, ldy), rows);
    aten_leave(d, s);
}

static void embedding_backward(ares_device *d, const ares_matrix *de, const int32_t *ids, int32_t n,
                               const void *dy, int64_t lddy, float scale)
{
    at_scope *s = n > 0 ? aten_enter(d, "embedding_backward") : NULL;
    if (!s) return;
    ARES_ASSERT(scale == 0 || de->dtype == ARES_F32);
    at_tensor rows = at_to(aten_acts(d, dy, n, de->k, lddy), aten_type(de->dtype));
    if (scale != 0) rows = at_mul_s(rows, (double)scale);
    at_index_add_(aten_matrix(d, de), 0, aten_ids(d, ids, n), rows);
    aten_leave(d, s);
}

/*
 * Sampling: libtorch computes the logits of a chunk of rows, and the native sampler of the host
 * takes them from there. Its random numbers are ours (Philox by row and token), which libtorch does
 * not have; so both tables draw the same token from the same logits.
 */

static const int64_t SAMPLE_LOGITS = 1 << 24;

static void sample(ares_device *d, const ares_sample_args *a)
{
    int32_t most = (int32_t)ARES_MIN((int64_t)a->rows, ARES_MAX(1, SAMPLE_LOGITS / a->vocab));
    for (int32_t row = 0; row < a->rows; row += most) {
        int32_t n = ARES_MIN(most, a->rows - row);
        at_scope *s = aten_enter(d, "sample");
        if (!s) return;
        const float *logits = a->logits ? a->logits + (int64_t)row * a->vocab : NULL;
        /* without logits of the caller, those of the head, over the real tokens alone */
        if (!logits) {
            float *z = aten_scratch(d, ATEN_LOGITS, (int64_t)most * a->vocab);
            const ares_matrix *b = a->adapter ? a->adapter->b : NULL;
            at_tensor all = aten_rows(d, z, n, a->vocab, a->vocab);
            at_mm_out(all, aten_acts(d, aten_at(d, a->x, row * a->ldx), n, a->w->k, a->ldx),
                      at_transpose(at_narrow(aten_matrix(d, a->w), 0, 0, a->vocab), 0, 1));
            if (b)
                at_addmm_out(all, all,
                             aten_acts(d, aten_at(d, a->adapter->u, row * b->k), n, b->k, b->k),
                             at_transpose(at_narrow(aten_matrix(d, b), 0, 0, a->vocab), 0, 1));
            logits = z;
        }
        bool failed = at_scope_failed();
        aten_leave(d, s);
        if (failed) return;
        /* the same arguments from this row on */
        ares_sample_args b = *a;
        b.rows = n;
        b.logits = logits;
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
        aten_under(d)->sample(d, &b);
    }
}

void aten_fill_products(ares_kernels *k)
{
    k->head = head;
    k->head_backward = head_backward;
    k->head_fused = head_fused;
    k->linear = aten_linear;
    k->linear_backward = aten_linear_backward;
    k->embedding = embedding;
    k->embedding_backward = embedding_backward;
    k->sample = sample;
}
