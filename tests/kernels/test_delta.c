/*
 * Gated delta nets: the convolution and the recurrence against f64 and its finite differences, and
 * what must not change a bit. The net of the reference is written as the formulas stand in
 * kernels.h, with nothing of the kernels.
 */
#include "kernels_test.h"

enum { KERNEL = 4 };
typedef struct shape {
    int32_t k_heads, v_heads, k_dim, v_dim, kernel;
} shape;
static int32_t width_of(shape n)
{
    return 2 * n.k_heads * n.k_dim + n.v_heads * n.v_dim;
}
static int32_t out_of(shape n)
{
    return n.v_heads * n.v_dim;
}

/* What a net reads: rows of the products, and its parameters. */
typedef struct inputs {
    shape n;
    int32_t rows;
    float *x, *a, *b, *w, *a_log, *dt_bias;
    float *d_o;
} inputs;
static inputs inputs_new(shape n, int32_t rows)
{
    inputs in = { .n = n, .rows = rows };
    in.x = normals(1, (int64_t)rows * width_of(n), 1);
    in.a = normals(2, (int64_t)rows * n.v_heads, 1);
    in.b = normals(3, (int64_t)rows * n.v_heads, 1);
    in.w = normals(4, (int64_t)width_of(n) * n.kernel, 0.5);
    in.a_log = normals(5, n.v_heads, 1);
    in.dt_bias = normals(6, n.v_heads, 1);
    in.d_o = normals(7, (int64_t)rows * out_of(n), 1);
    /* a head that hardly forgets, and an argument where softplus is its argument */
    in.a_log[0] = -4;
    if (rows > 2) in.a[2 * n.v_heads] = 25;
    return in;
}
static void inputs_free(inputs *in)
{
    ares_free(in->x), ares_free(in->a), ares_free(in->b), ares_free(in->w), ares_free(in->a_log),
        ares_free(in->dt_bias), ares_free(in->d_o);
}

/* What a pass over some of the rows writes. states and window: one slot per segment, NULL: none */
typedef struct outputs {
    float *y, *gates, *norms, *kept, *o, *dqkv, *dx, *da, *db, *dw, *da_log, *d_dt_bias;
} outputs;
static outputs outputs_new(shape n, int32_t rows)
{
    int64_t width = width_of(n);
    return (outputs){ .y = filled(rows * width, NAN),
                      .gates = filled(rows * 2ll * n.v_heads, NAN),
                      .norms = filled(rows * 2ll * n.k_heads, NAN),
                      .kept = filled(rows / ARES_DELTA_KEPT * (int64_t)out_of(n) * n.k_dim, NAN),
                      .o = filled(rows * (int64_t)out_of(n), NAN),
                      .dqkv = filled(rows * width, NAN),
                      .dx = filled(rows * width, NAN),
                      .da = filled(rows * (int64_t)n.v_heads, NAN),
                      .db = filled(rows * (int64_t)n.v_heads, NAN),
                      .dw = filled(width * n.kernel, 0),
                      .da_log = filled(n.v_heads, 0),
                      .d_dt_bias = filled(n.v_heads, 0) };
}
static void outputs_free(outputs *u)
{
    ares_free(u->y), ares_free(u->gates), ares_free(u->norms), ares_free(u->kept), ares_free(u->o),
        ares_free(u->dqkv), ares_free(u->dx), ares_free(u->da), ares_free(u->db), ares_free(u->dw),
        ares_free(u->da_log), ares_free(u->d_dt_bias);
}

typedef struct carried {
    float *states, *window;
    const int32_t *from, *to;
    const int32_t *prefix_len, *prefix_row; /* of packed segments that go on from earlier ones */
    const int32_t *kept_at;
} carried;

/* Rows [first, ...) of the inputs as segments of these lengths, into the same rows of u. */
static void run(ares_device *d, const inputs *in, int32_t first, const int32_t *lengths, int32_t n,
                const carried *c, bool backward, const outputs *u)
{
    shape of = in->n;
    int32_t start[16] = { 0 };
    for (int32_t s = 0; s < n; s++) start[s + 1] = start[s] + lengths[s];
    int64_t width = width_of(of), out = out_of(of), heads = of.v_heads;
    ares_segments seg = { .n = n, .rows = start[n], .start = start };
    const ares_matrix w = { in->w, ARES_F32, ARES_ROWS, (int32_t)width, of.kernel },
                      dw = { u->dw, ARES_F32, ARES_ROWS, (int32_t)width, of.kernel };
    ares_conv_args conv = { .seg = seg,
                            .width = (int32_t)width,
                            .kernel = of.kernel,
                            .x = in->x + first * width,
                            .ldx = width,
                            .w = &w,
                            .y = u->y + first * width,
                            .ldy = width,
                            .dy = u->dqkv + first * width,
                            .lddy = width,
                            .dx = u->dx + first * width,
                            .lddx = width,
                            .dw = &dw };
    ares_delta_args delta = { .seg = seg,
                              .k_heads = of.k_heads,
                              .v_heads = of.v_heads,
                              .k_dim = of.k_dim,
                              .v_dim = of.v_dim,
                              .qkv = u->y + first * width,
                              .ldqkv = width,
                              .a = in->a + first * heads,
                              .b = in->b + first * heads,
                              .ldab = heads,
                              .a_log = in->a_log,
                              .dt_bias = in->dt_bias,
                              .gates = u->gates + first * 2 * heads,
                              .norms = u->norms + first * 2 * of.k_heads,
                              .kept = u->kept,
                              .o = u->o + first * out,
                              .ldo = out,
                              .d_o = in->d_o + first * out,
                              .lddo = out,
                              .dqkv = u->dqkv + first * width,
                              .lddqkv = width,
                              .da = u->da + first * heads,
                              .db = u->db + first * heads,
                              .lddab = heads,
                              .da_log = u->da_log,
                              .d_dt_bias = u->d_dt_bias };
    if (c) {
        conv.window = c->window;
        conv.from = delta.from = c->from;
        conv.to = delta.to = c->to;
        delta.states = c->states;
        conv.seg.prefix_len = delta.seg.prefix_len = c->prefix_len;
        conv.seg.prefix_row = delta.seg.prefix_row = c->prefix_row;
        if (!c->states) delta.to = c->kept_at;
    }
    d->k->conv(d, &conv);
    d->k->delta(d, &delta);
    if (!backward) return;
    d->k->conv(d, &conv); /* q and k were normed in place */
    d->k->delta_backward(d, &delta);
    d->k->conv_backward(d, &conv);
}

/* ---------------- the reference in f64 */

typedef struct reference {
    double *x, *a, *b, *w, *a_log, *dt_bias; /* as inputs */
} reference;
static double *widened(const float *x, int64_t n)
{
    double *y = ares_malloc((size_t)n * sizeof *y);
    for (int64_t i = 0; i < n; i++) y[i] = x[i];
    return y;
}
/* o of one sequence, rows [first, end). */
static void net_by_hand(const reference *in, shape n, int32_t first, int32_t end, double *o)
{
    int32_t width = width_of(n), keys = n.k_heads * n.k_dim;
    double *y = ares_malloc((size_t)width * sizeof *y),
           *state = ares_calloc((size_t)(out_of(n) * n.k_dim), sizeof *state);
    for (int32_t t = first; t < end; t++) {
        for (int32_t c = 0; c < width; c++) {
            double sum = 0;
            for (int32_t i = 0; i < n.kernel; i++)
                if (t - n.kernel + 1 + i >= first)
                    sum += in->w[c * n.kernel + i] * in->x[(t - n.kernel + 1 + i) * width + c];
            y[c] = sum / (1 + exp(-sum));
        }
        for (int32_t h = 0; h < 2 * n.k_heads; h++) {
            double square = 0, *q = y + h * n.k_dim;
            for (int32_t i = 0; i < n.k_dim; i++) square += q[i] * q[i];
            for (int32_t i = 0; i < n.k_dim; i++) {
                q[i] /= sqrt(square + 1e-6);
                if (h < n.k_heads) q[i] /= sqrt(n.k_dim);
            }
        }
        for (int32_t h = 0; h < n.v_heads; h++) {
            double z = in->a[t * n.v_heads + h] + in->dt_bias[h],
                   beta = 1 / (1 + exp(-in->b[t * n.v_heads + h])),
                   decay = exp(-exp(in->a_log[h]) * (z > 20 ? z : log1p(exp(z)))), *s = state;
            const double *q = y + h / (n.v_heads / n.k_heads) * n.k_dim, *k = q + keys,
                         *v = y + 2 * keys + h * n.v_dim;
            s += (int64_t)h * n.k_dim * n.v_dim;
            for (int32_t j = 0; j < n.v_dim; j++) {
                double m = 0, sum = 0;
                for (int32_t i = 0; i < n.k_dim; i++) m += decay * s[i * n.v_dim + j] * k[i];
                for (int32_t i = 0; i < n.k_dim; i++) {
                    double *at = &s[i * n.v_dim + j];
                    *at = decay * *at + k[i] * beta * (v[j] - m);
                    sum += *at * q[i];
                }
                o[t * out_of(n) + h * n.v_dim + j] = sum;
            }
        }
    }
    ares_free(y), ares_free(state);
}
static void all_by_hand(const reference *in, shape n, const int32_t *lengths, int32_t segments,
                        double *o)
{
    for (int32_t s = 0, at = 0; s < segments; at += lengths[s++])
        net_by_hand(in, n, at, at + lengths[s], o);
}
static reference reference_new(const inputs *in)
{
    shape n = in->n;
    return (reference){ widened(in->x, (int64_t)in->rows * width_of(n)),
                        widened(in->a, (int64_t)in->rows * n.v_heads),
                        widened(in->b, (int64_t)in->rows * n.v_heads),
                        widened(in->w, (int64_t)width_of(n) * n.kernel),
                        widened(in->a_log, n.v_heads),
                        widened(in->dt_bias, n.v_heads) };
}
static void reference_free(reference *r)
{
    ares_free(r->x), ares_free(r->a), ares_free(r->b), ares_free(r->w), ares_free(r->a_log),
        ares_free(r->dt_bias);
}

/* |got - want| within a share of the largest |want|. */
static void near(const char *what, const float *got, const double *want, int64_t n, double share)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= share * most)) {
            CHECK_MSG(false, "%s[%lld] = %.9g, by hand %.9g (largest %.3g)", what, (long long)i,
                      got[i], want[i], most);
            return;
        }
}

static int32_t sum_of(const int32_t *lengths, int32_t n)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += lengths[i];
    return sum;
}

TEST(a_delta_net_is_its_formula_at_every_size)
{
    static const shape shapes[] = {
        { 2, 4, 12, 16, 4 },   { 3, 3, 16, 8, 3 },  { 2, 6, 10, 7, 4 },
        { 1, 1, 128, 128, 4 }, { 1, 17, 3, 40, 1 }, { 2, 2, 33, 65, 16 }
    };
    static const int32_t lengths[] = { 5, 1, 150, 0, 64 };
    for (int i = 0; i < ARES_COUNT(shapes); i++) {
        inputs in = inputs_new(shapes[i], sum_of(lengths, 5));
        reference ref = reference_new(&in);
        int64_t numbers = (int64_t)in.rows * out_of(in.n);
        double *want = ares_malloc((size_t)numbers * sizeof *want);
        all_by_hand(&ref, in.n, lengths, 5, want);
        ares_device d;
        if (CHECK_OK(ares_device_open("cpu", 2, &d))) {
            outputs u = outputs_new(in.n, in.rows);
            run(&d, &in, 0, lengths, 5, NULL, false, &u);
            near("o", u.o, want, numbers, 2e-5);
            outputs_free(&u);
            ares_device_close(&d);
        }
        ares_free(want);
        reference_free(&ref);
        inputs_free(&in);
    }
}

/* d loss / d x by central differences, loss = sum of d_o o. */
static void differences(const inputs *in, const reference *ref, const int32_t *lengths, int32_t n,
                        double *x, int64_t numbers, double *out)
{
    int64_t outs = (int64_t)in->rows * out_of(in->n);
    double *o = ares_malloc((size_t)outs * sizeof *o), step = 1e-5;
    for (int64_t i = 0; i < numbers; i++) {
        double was = x[i], loss[2] = { 0 };
        for (int side = 0; side < 2; side++) {
            x[i] = was + (side ? step : -step);
            all_by_hand(ref, in->n, lengths, n, o);
            for (int64_t k = 0; k < outs; k++) loss[side] += in->d_o[k] * o[k];
        }
        x[i] = was;
        out[i] = (loss[1] - loss[0]) / (2 * step);
    }
    ares_free(o);
}

TEST(a_delta_nets_gradients_are_finite_differences)
{
    static const shape shapes[] = { { 1, 2, 5, 3, KERNEL }, { 2, 2, 3, 4, 1 } };
    static const int32_t lengths[] = { 3, 69, 1, 2 };
    for (int i = 0; i < ARES_COUNT(shapes); i++) {
        inputs in = inputs_new(shapes[i], sum_of(lengths, 4));
        reference ref = reference_new(&in);
        ares_device d;
        if (CHECK_OK(ares_device_open("cpu", 2, &d))) {
            outputs u = outputs_new(in.n, in.rows);
            run(&d, &in, 0, lengths, 4, NULL, true, &u);
            struct {
                const char *name;
                double *x;
                const float *got;
                int64_t n;
            } all[] = { { "dx", ref.x, u.dx, (int64_t)in.rows * width_of(in.n) },
                        { "da", ref.a, u.da, (int64_t)in.rows * in.n.v_heads },
                        { "db", ref.b, u.db, (int64_t)in.rows * in.n.v_heads },
                        { "dw", ref.w, u.dw, (int64_t)width_of(in.n) * in.n.kernel },
                        { "da_log", ref.a_log, u.da_log, in.n.v_heads },
                        { "d_dt_bias", ref.dt_bias, u.d_dt_bias, in.n.v_heads } };
            for (int k = 0; k < ARES_COUNT(all); k++) {
                double *want = ares_malloc((size_t)all[k].n * sizeof *want);
                differences(&in, &ref, lengths, 4, all[k].x, all[k].n, want);
                near(all[k].name, all[k].got, want, all[k].n, 3e-5);
                ares_free(want);
            }
            outputs_free(&u);
            ares_device_close(&d);
        }
        reference_free(&ref);
        inputs_free(&in);
    }
}

/* Two prompts, one shorter than the convolution, and answers to both in turns. */
enum { FAMILY = 7, FAMILY_ROWS = 70 + 3 + 2 + 67 + 1 + 3 + 2, ALONE_ROWS = FAMILY_ROWS + 140 };
static const int32_t family_length[FAMILY] = { 70, 3, 2, 67, 1, 3, 2 };
static const int32_t family_prefix[FAMILY] = { 0, 70, 0, 70, 2, 70, 0 };
static const int32_t family_row[FAMILY] = { 0, 0, 0, 0, 73, 0, 0 };

/* ---------------- libtorch's, token by token, whose gradients are autograd's */

TEST(aten_a_delta_net_and_its_gradients_agree_with_the_cpu)
{
    static const shape shapes[] = { { 2, 4, 12, 16, 4 }, { 2, 6, 10, 7, 1 } };
    for (int i = 0; i < ARES_COUNT(shapes); i++) {
        shape of = shapes[i];
        inputs in = inputs_new(of, FAMILY_ROWS);
        const carried c = { .prefix_len = family_prefix, .prefix_row = family_row };
        ares_device d, other;
        if (!CHECK_OK(ares_device_open("cpu", 2, &d)) ||
            !CHECK_OK(ares_device_open_table("cpu", "aten", ARES_F32, 1, &other)))
            return;
        outputs u = outputs_new(of, in.rows), v = outputs_new(of, in.rows);
        run(&d, &in, 0, family_length, FAMILY, &c, true, &u);
        run(&other, &in, 0, family_length, FAMILY, &c, true, &v);
        CHECK_OK(other.k->sync(&other));
        struct {
            const char *name;
            const float *got, *want;
            int64_t n;
        } all[] = { { "o", u.o, v.o, (int64_t)in.rows * out_of(of) },
                    { "dx", u.dx, v.dx, (int64_t)in.rows * width_of(of) },
                    { "da", u.da, v.da, (int64_t)in.rows * of.v_heads },
                    { "db", u.db, v.db, (int64_t)in.rows * of.v_heads },
                    { "dw", u.dw, v.dw, (int64_t)width_of(of) * of.kernel },
                    { "da_log", u.da_log, v.da_log, of.v_heads },
                    { "d_dt_bias", u.d_dt_bias, v.d_dt_bias, of.v_heads } };
        for (int k = 0; k < ARES_COUNT(all); k++) {
            double *want = widened(all[k].want, all[k].n);
            near(all[k].name, all[k].got, want, all[k].n, 2e-5);
            ares_free(want);
        }
        outputs_free(&u), outputs_free(&v);
        inputs_free(&in);
        ares_device_close(&d), ares_device_close(&other);
    }
}

TEST(aten_a_sequence_goes_on_from_the_state_that_it_left)
{
    enum { LONG = 9 };
    shape of = { 2, 4, 6, 5, 3 };
    inputs in = inputs_new(of, LONG);
    int64_t state = (int64_t)out_of(of) * of.k_dim,
            window = (int64_t)(of.kernel - 1) * width_of(of);
    const int32_t none = -1, zero = 0, one = 1;
    ares_device d;
    if (!CHECK_OK(ares_device_open_table("cpu", "aten", ARES_F32, 1, &d))) return;
    outputs whole = outputs_new(of, LONG), u = outputs_new(of, LONG);
    carried c = { .states = filled(2 * state, NAN),
                  .window = filled(2 * window, NAN),
                  .from = &none,
                  .to = &one };
    run(&d, &in, 0, (const int32_t[]){ LONG }, 1, &c, false, &whole);
    for (int32_t t = 0; t < LONG; t += 2) {
        c.from = t ? &zero : &none;
        c.to = &zero;
        run(&d, &in, t, (const int32_t[]){ ARES_MIN(2, LONG - t) }, 1, &c, false, &u);
    }
    CHECK_OK(d.k->sync(&d));
    double *want = widened(whole.o, (int64_t)LONG * out_of(of)),
           *of_state = widened(c.states + state, state);
    near("o", u.o, want, (int64_t)LONG * out_of(of), 1e-5);
    near("state", c.states, of_state, state, 1e-5);
    CHECK_MEM(c.window, c.window + window, (size_t)window * sizeof(float));
    ares_free(want), ares_free(of_state), ares_free(c.states), ares_free(c.window);
    outputs_free(&whole), outputs_free(&u);
    inputs_free(&in);
    ares_device_close(&d);
}

/* ---------------- bits */

static const shape of_bits = { 2, 4, 20, 40, KERNEL };

/* Whether all that the two passes wrote is equal in every bit. */
static void same(const outputs *a, const outputs *b, shape n, int32_t rows)
{
    size_t each = sizeof(float), r = (size_t)rows;
    CHECK_MEM(a->o, b->o, r * (size_t)out_of(n) * each);
    CHECK_MEM(a->dx, b->dx, r * (size_t)width_of(n) * each);
    CHECK_MEM(a->da, b->da, r * (size_t)n.v_heads * each);
    CHECK_MEM(a->db, b->db, r * (size_t)n.v_heads * each);
    CHECK_MEM(a->dw, b->dw, (size_t)(width_of(n) * n.kernel) * each);
    CHECK_MEM(a->da_log, b->da_log, (size_t)n.v_heads * each);
    CHECK_MEM(a->d_dt_bias, b->d_dt_bias, (size_t)n.v_heads * each);
}

TEST(a_delta_net_has_the_same_bits_for_every_thread_count_instruction_set_and_micro_batch)
{
    static const int32_t lengths[] = { 70, 5, 1, 130, 64 };
    static const int threads[] = { 1, 2, 5 };
    inputs in = inputs_new(of_bits, sum_of(lengths, 5));
    outputs first = outputs_new(in.n, in.rows);
    bool have = false;
    for (int i = 0; i < ISAS; i++)
        for (int t = 0; t < ARES_COUNT(threads); t++) {
            ares_device d;
            if (!device_of(isas[i], threads[t], &d)) continue;
            outputs u = outputs_new(in.n, in.rows);
            run(&d, &in, 0, lengths, 5, NULL, true, have ? &u : &first);
            if (have) same(&u, &first, in.n, in.rows);
            have = true;
            outputs_free(&u);

            /* each sequence alone: the gradients of vectors go on from one to the next */
            u = outputs_new(in.n, in.rows);
            for (int s = 0, at = 0; s < 5; at += lengths[s++])
                run(&d, &in, at, lengths + s, 1, NULL, true, &u);
            same(&u, &first, in.n, in.rows);
            outputs_free(&u);
            ares_device_close(&d);
        }
    outputs_free(&first);
    inputs_free(&in);
}

TEST(a_sequence_cut_anywhere_goes_on_from_its_state_as_if_it_had_not_been)
{
    enum { LONG = 71 };
    inputs in = inputs_new(of_bits, LONG);
    shape n = in.n;
    int64_t state = (int64_t)out_of(n) * n.k_dim, window = (int64_t)(n.kernel - 1) * width_of(n);
    ares_device d;
    if (!CHECK_OK(ares_device_open("cpu", 2, &d))) return;
    outputs whole = outputs_new(n, LONG), u = outputs_new(n, LONG);
    const int32_t none = -1, two = 2, one = 1;
    carried c = { .states = filled(3 * state, NAN),
                  .window = filled(3 * window, NAN),
                  .from = &none,
                  .to = &two };
    run(&d, &in, 0, (const int32_t[]){ LONG }, 1, &c, false, &whole);
    for (int32_t cut = 1; cut < LONG; cut++) {
        c.from = &none;
        c.to = &one;
        run(&d, &in, 0, (const int32_t[]){ cut }, 1, &c, false, &u);
        c.from = &one;
        run(&d, &in, cut, (const int32_t[]){ LONG - cut }, 1, &c, false, &u);
        if (!CHECK_MEM(u.o, whole.o, (size_t)(LONG * out_of(n)) * 4) ||
            !CHECK_MEM(c.states + state, c.states + 2 * state, (size_t)state * 4) ||
            !CHECK_MEM(c.window + window, c.window + 2 * window, (size_t)window * 4))
            break;
    }

    /* one token after the other, and beside it a second sequence that starts from the same state */
    c.from = &none;
    c.to = &one;
    run(&d, &in, 0, (const int32_t[]){ 1 }, 1, &c, false, &u);
    for (int32_t t = 1; t < LONG; t++) {
        c.from = (const int32_t[]){ 1, -1 };
        c.to = (const int32_t[]){ 1, 0 };
        inputs pair = in;
        pair.x = in.x + (int64_t)t * width_of(n);
        outputs at = u;
        at.o = filled(2ll * out_of(n), NAN);
        pair.a = in.a + t * n.v_heads;
        pair.b = in.b + t * n.v_heads;
        if (t + 1 < LONG) run(&d, &pair, 0, (const int32_t[]){ 1, 1 }, 2, &c, false, &at);
        else run(&d, &pair, 0, (const int32_t[]){ 1 }, 1, &c, false, &at);
        CHECK_MEM(at.o, whole.o + t * out_of(n), (size_t)out_of(n) * 4);
        ares_free(at.o);
    }
    CHECK_MEM(c.states + state, c.states + 2 * state, (size_t)state * 4);
    ares_free(c.states), ares_free(c.window);
    outputs_free(&whole);
    outputs_free(&u);
    ares_device_close(&d);
    inputs_free(&in);
}

/* ---------------- segments that go on from an earlier one */

/* The same as sequences of their own, each answer behind a copy of its prompt: lengths, rows. */
static int32_t family_apart(int32_t *lengths, int32_t *rows)
{
    int32_t n = 0, start = 0, segments = 0;
    bool prompt[FAMILY] = { true, false, true };
    for (int s = 0; s < FAMILY; start += family_length[s++]) {
        int32_t from = n;
        if (prompt[s]) continue;
        for (int32_t i = 0; i < family_prefix[s]; i++) rows[n++] = family_row[s] + i;
        for (int32_t i = 0; i < family_length[s]; i++) rows[n++] = start + i;
        lengths[segments++] = n - from;
    }
    return segments;
}

/* Rows of the inputs, with a derivative of o where it is a row's first copy. */
static inputs inputs_of_rows(const inputs *in, const int32_t *rows, int32_t n)
{
    inputs out = inputs_new(in->n, n);
    int64_t width = width_of(in->n), o = out_of(in->n), heads = in->n.v_heads;
    bool met[FAMILY_ROWS] = { false };
    for (int32_t r = 0; r < n; r++) {
        memcpy(out.x + r * width, in->x + rows[r] * width, (size_t)width * sizeof *out.x);
        memcpy(out.a + r * heads, in->a + rows[r] * heads, (size_t)heads * sizeof *out.a);
        memcpy(out.b + r * heads, in->b + rows[r] * heads, (size_t)heads * sizeof *out.b);
        for (int64_t i = 0; i < o; i++)
            out.d_o[r * o + i] = met[rows[r]] ? 0 : in->d_o[rows[r] * o + i];
        met[rows[r]] = true;
    }
    return out;
}

TEST(answers_go_on_from_their_prompt_as_if_each_had_a_copy_of_it)
{
    /* seen to fail: without the prefix in the window, and with dS of the last answer alone */
    static const shape shapes[] = { { 2, 4, 20, 40, KERNEL }, { 1, 1, 12, 7, 1 } };
    for (int k = 0; k < ARES_COUNT(shapes); k++) {
        int32_t lengths[FAMILY], rows[ALONE_ROWS], segments = family_apart(lengths, rows),
                                                   n = sum_of(lengths, segments);
        shape of = shapes[k];
        inputs in = inputs_new(of, FAMILY_ROWS), apart = inputs_of_rows(&in, rows, n);
        ares_device d;
        CHECK_EQ(n, ALONE_ROWS);
        if (!CHECK_OK(ares_device_open("cpu", 2, &d))) return;
        outputs u = outputs_new(of, FAMILY_ROWS), v = outputs_new(of, n);
        const carried c = { .prefix_len = family_prefix, .prefix_row = family_row };
        run(&d, &in, 0, family_length, FAMILY, &c, true, &u);
        run(&d, &apart, 0, lengths, segments, NULL, true, &v);
        struct {
            const char *name;
            const float *got, *each;
            int64_t width;
        } all[] = { { "dx", u.dx, v.dx, width_of(of) },
                    { "da", u.da, v.da, of.v_heads },
                    { "db", u.db, v.db, of.v_heads } };
        for (int32_t r = 0; r < n; r++) /* the recurrence is the same, to the bit */
            CHECK_MEM(u.o + rows[r] * out_of(of), v.o + r * out_of(of),
                      (size_t)out_of(of) * sizeof(float));
        for (int i = 0; i < ARES_COUNT(all); i++) { /* a prompt has the sum over its copies */
            double *sum = ares_calloc((size_t)(FAMILY_ROWS * all[i].width), sizeof *sum);
            for (int64_t at = 0; at < n * all[i].width; at++)
                sum[rows[at / all[i].width] * all[i].width + at % all[i].width] += all[i].each[at];
            near(all[i].name, all[i].got, sum, FAMILY_ROWS * all[i].width, 1e-5);
            ares_free(sum);
        }
        struct {
            const char *name;
            const float *got, *want;
            int64_t n;
        } sums[] = { { "dw", u.dw, v.dw, (int64_t)width_of(of) * of.kernel },
                     { "da_log", u.da_log, v.da_log, of.v_heads },
                     { "d_dt_bias", u.d_dt_bias, v.d_dt_bias, of.v_heads } };
        for (int i = 0; i < ARES_COUNT(sums); i++) {
            double *want = widened(sums[i].want, sums[i].n);
            near(sums[i].name, sums[i].got, want, sums[i].n, 1e-5);
            ares_free(want);
        }
        outputs_free(&u), outputs_free(&v);
        inputs_free(&in), inputs_free(&apart);
        ares_device_close(&d);
    }
}

TEST(gradients_of_a_shared_prompt_have_the_same_bits_for_every_thread_count_and_instruction_set)
{
    static const int threads[] = { 1, 5 };
    /* places in another order: no bit depends on where states are kept */
    static const int32_t kept_at[FAMILY] = { 1, 0, 0, 0, 0, 0, 0 };
    inputs in = inputs_new(of_bits, FAMILY_ROWS);
    outputs first = outputs_new(in.n, in.rows);
    bool have = false;
    for (int i = 0; i < ISAS; i++)
        for (int t = 0; t < ARES_COUNT(threads); t++) {
            ares_device d;
            if (!device_of(isas[i], threads[t], &d)) continue;
            outputs u = outputs_new(in.n, in.rows);
            const carried c = { .prefix_len = family_prefix,
                                .prefix_row = family_row,
                                .kept_at = t ? kept_at : NULL };
            run(&d, &in, 0, family_length, FAMILY, &c, true, have ? &u : &first);
            if (have) same(&u, &first, in.n, in.rows);
            have = true;
            outputs_free(&u);
            ares_device_close(&d);
        }
    outputs_free(&first);
    inputs_free(&in);
}

/* ---------------- attention whose q and gate lie side by side in each head */

enum {
    GATED_ROWS = 5,
    GATED_HEADS = 3,
    GATED_DIM = 20,
    GATED = GATED_ROWS * GATED_HEADS * GATED_DIM
};

TEST(a_norm_reads_heads_that_lie_apart_and_gives_them_their_gradients_there)
{
    float *apart = normals(1, 2 * GATED, 1), *w = normals(2, GATED_DIM, 1),
          *dy = normals(3, GATED, 1), *x = filled(GATED, 0);
    for (int i = 0; i < GATED; i++) x[i] = apart[i / GATED_DIM * 2 * GATED_DIM + i % GATED_DIM];
    ares_device d;
    if (!CHECK_OK(ares_device_open("cpu", 1, &d))) return;
    float *y[2], *dx[2], *dw[2], rstd[2][GATED_ROWS * GATED_HEADS];
    for (int k = 0; k < 2; k++) {
        int64_t each = k ? 2 : 1;
        y[k] = filled(GATED, 0), dx[k] = filled(each * GATED, 0), dw[k] = filled(GATED_DIM, 0);
        ares_rms_norm_args a = { .rows = GATED_ROWS * GATED_HEADS,
                                 .k = GATED_DIM,
                                 .heads = GATED_HEADS,
                                 .x = k ? apart : x,
                                 .ldx = each * GATED_HEADS * GATED_DIM,
                                 .x_head = k ? 2 * GATED_DIM : 0,
                                 .w = w,
                                 .plus_one = true,
                                 .eps = 1e-6f,
                                 .y = y[k],
                                 .ldy = GATED_HEADS * GATED_DIM,
                                 .rstd = rstd[k],
                                 .dy = dy,
                                 .lddy = GATED_HEADS * GATED_DIM,
                                 .dx = dx[k],
                                 .lddx = each * GATED_HEADS * GATED_DIM,
                                 .dw = dw[k] };
        d.k->rms_norm(&d, &a);
        d.k->rms_norm_backward(&d, &a);
    }
    CHECK_MEM(y[1], y[0], GATED * sizeof(float));
    CHECK_MEM(dw[1], dw[0], GATED_DIM * sizeof(float));
    for (int i = 0; i < 2 * GATED; i++) {
        int at = i % (2 * GATED_DIM);
        float want = at < GATED_DIM ? dx[0][i / (2 * GATED_DIM) * GATED_DIM + at] : 0.0f;
        if (!CHECK(dx[1][i] == want)) break;
    }
    for (int k = 0; k < 2; k++) ares_free(y[k]), ares_free(dx[k]), ares_free(dw[k]);
    ares_free(apart), ares_free(w), ares_free(dy), ares_free(x);
    ares_device_close(&d);
}

TEST(a_sigmoid_gate_beside_each_head_multiplies_it_and_gets_its_gradient_there)
{
    float *gates = normals(1, 2 * GATED, 2), *o = normals(2, GATED, 1), *dy = normals(3, GATED, 1),
          *y = filled(GATED, NAN), *d_gates = filled(2 * GATED, 7), *d_o = filled(GATED, NAN);
    ares_device d;
    if (!CHECK_OK(ares_device_open("cpu", 2, &d))) return;
    ares_gate_mul_args a = { .f = ARES_SIGMOID,
                             .rows = GATED_ROWS * GATED_HEADS,
                             .k = GATED_DIM,
                             .gate = gates + GATED_DIM,
                             .up = o,
                             .ldgu = 2 * GATED_DIM,
                             .ld_up = GATED_DIM,
                             .y = y,
                             .ldy = GATED_DIM,
                             .dy = dy,
                             .lddy = GATED_DIM,
                             .d_gate = d_gates + GATED_DIM,
                             .d_up = d_o,
                             .lddgu = 2 * GATED_DIM };
    d.k->gate_mul(&d, &a);
    for (int i = 0; i < GATED; i++) {
        double g = gates[(i / GATED_DIM * 2 + 1) * GATED_DIM + i % GATED_DIM],
               s = 1 / (1 + exp(-g));
        if (!CHECK_NEAR(y[i], o[i] * s, 1e-6)) break;
    }
    d.k->gate_mul_backward(&d, &a);
    for (int i = 0; i < GATED; i++) {
        int at = i / GATED_DIM * 2 * GATED_DIM + i % GATED_DIM;
        double s = 1 / (1 + exp(-(double)gates[at + GATED_DIM]));
        if (!CHECK_NEAR(d_o[i], dy[i] * s, 1e-6) || !CHECK(d_gates[at] == 7) ||
            !CHECK_NEAR(d_gates[at + GATED_DIM], dy[i] * o[i] * s * (1 - s), 1e-6))
            break;
    }
    ares_free(gates), ares_free(o), ares_free(dy), ares_free(y), ares_free(d_gates), ares_free(d_o);
    ares_device_close(&d);
}

TEST(rope_turns_the_first_numbers_of_a_head_alone_where_it_is_told_so)
{
    enum { TURNED = 6 };
    float *x = normals(1, GATED, 1), *tight = filled(GATED, 0),
          *angles = normals(2, GATED_ROWS * TURNED, 1), *start = filled(GATED, 0);
    memcpy(start, x, GATED * sizeof *x);
    for (int i = 0; i < GATED; i++)
        if (i % GATED_DIM < TURNED) tight[i / GATED_DIM * TURNED + i % GATED_DIM] = x[i];
    ares_device d;
    if (!CHECK_OK(ares_device_open("cpu", 2, &d))) return;
    for (int back = 0; back < 2; back++) {
        d.k->rope(&d, GATED_ROWS, GATED_HEADS, GATED_DIM, TURNED, x, GATED_HEADS * GATED_DIM,
                  angles, back);
        d.k->rope(&d, GATED_ROWS, GATED_HEADS, TURNED, 0, tight, GATED_HEADS * TURNED, angles,
                  back);
        for (int i = 0; i < GATED; i++) {
            int at = i % GATED_DIM;
            float want = at < TURNED ? tight[i / GATED_DIM * TURNED + at] : start[i];
            if (!CHECK(x[i] == want)) break;
        }
    }
    ares_free(x), ares_free(tight), ares_free(angles), ares_free(start);
    ares_device_close(&d);
}
