/* Tinker's messages, losses, distributions and paths: requests as its SDK writes them. */
#include "golden.h"

#include <math.h>
#include <string.h>

#include "tinker.h"

/* ---------------------------------------------------------------- bytes */

/* The bytes of a text in base64. */
static ares_view bytes_of(golden *g, ares_view text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = ares_arena_alloc(g->arena, text.len + 1);
    size_t n = 0;
    uint32_t bits = 0;
    int have = 0;
    for (size_t i = 0; i < text.len && text.data[i] != '='; i++) {
        const char *at = strchr(digits, text.data[i]);
        if (!at) golden_fail(g, "not base64");
        bits = bits << 6 | (uint32_t)((at ? at : digits) - digits);
        have += 6;
        if (have < 8) continue;
        have -= 8;
        out[n++] = (char)(bits >> have & 0xff);
    }
    return (ares_view){ out, n };
}

static void same_bytes(golden *g, const ares_str *got)
{
    ares_view want = bytes_of(g, golden_want(g, "bytes")->text), have = ares_str_view(got);
    g->checks++;
    size_t at = 0;
    while (at < want.len && at < have.len && want.data[at] == have.data[at]) at++;
    if (at != want.len || at != have.len)
        golden_fail(g, "%zu bytes, not %zu; the first that differs is number %zu", have.len,
                    want.len, at);
}

/* ---------------------------------------------------------------- requests */

static void compare_inputs(golden *g, const tinker_datum *d, const ares_json *want)
{
    const ares_json *tokens = ares_json_get(want, "tokens"),
                    *inputs = ares_json_get(want, "loss_fn_inputs");
    if (tokens->count != d->n || inputs->count != d->n_inputs) {
        golden_fail(g, "%lld tokens and %d inputs", (long long)d->n, d->n_inputs);
        return;
    }
    for (int64_t i = 0; i < d->n; i++) golden_equal(g, "token", d->tokens[i], &tokens->items[i]);
    for (int i = 0; i < d->n_inputs; i++) {
        const tinker_tensor *t = &d->inputs[i];
        const ares_json *x = ares_json_find(inputs, t->name), *shape = ares_json_get(x, "shape"),
                        *values = ares_json_get(x, "values");
        if (!x) {
            golden_fail(g, "input %.*s", (int)t->name.len, t->name.data);
            continue;
        }
        golden_text(g, "dtype", ares_view_of(t->dtype == TINKER_I64 ? "int64" : "float32"),
                    ares_json_get(x, "dtype"));
        golden_equal(g, "dimensions", t->axes,
                     &(ares_json){ .type = ARES_JSON_INT,
                                   .integer = shape->count,
                                   .number = (double)shape->count });
        for (int k = 0; k < t->axes; k++) golden_equal(g, "shape", t->shape[k], &shape->items[k]);
        if (values->count != t->shape[0] * t->shape[1]) golden_fail(g, "number of values");
        for (int64_t k = 0; k < values->count && !g->failed; k++) {
            if (t->i64) golden_equal(g, "value", t->i64[k], &values->items[k]);
            else if ((double)t->f32[k] != values->items[k].number)
                golden_fail(g, "value %lld is %.9g, not %.9g", (long long)k, (double)t->f32[k],
                            values->items[k].number);
        }
    }
}

GOLDEN(tinker, tinker_request)
{
    tinker_forward f;
    int rc = tinker_forward_read(g->arena, bytes_of(g, golden_string(g, "bytes")), &f);
    const ares_json *error = ares_json_get(g->expected, "error");
    g->checks++;
    if (error) {
        golden_text(g, "error",
                    ares_view_of(rc == ARES_EFORMAT ? "malformed"
                                 : rc == ARES_EUSE  ? "refused"
                                                    : "none"),
                    error);
        return;
    }
    if (!golden_ok(g, rc)) return;
    const ares_json *options = golden_want(g, "loss_fn_config"), *data = golden_want(g, "data");
    golden_text(g, "model_id", f.model_id, golden_want(g, "model_id"));
    golden_equal(g, "seq_id", f.seq_id, golden_want(g, "seq_id"));
    golden_equal(g, "forward_only", f.forward_only, golden_want(g, "forward_only"));
    golden_text(g, "loss_fn", f.loss_fn, golden_want(g, "loss_fn"));
    if (options->count != f.n_options) golden_fail(g, "%d options", f.n_options);
    for (int i = 0; i < f.n_options; i++) {
        const ares_json *want = ares_json_find(options, f.options[i].name);
        if (!want)
            golden_fail(g, "option %.*s", (int)f.options[i].name.len, f.options[i].name.data);
        else if (f.options[i].is_text) golden_text(g, "option", f.options[i].text, want);
        else golden_near(g, "option", f.options[i].number, want);
    }
    if (data->count != f.n_data) golden_fail(g, "%lld datums", (long long)f.n_data);
    for (int64_t i = 0; i < f.n_data && !g->failed; i++)
        compare_inputs(g, &f.data[i], &data->items[i]);
}

/* ---------------------------------------------------------------- answers */

static float *floats(golden *g, const ares_json *v, int64_t *n)
{
    const double *x = golden_flat(g, v, n);
    float *f = ares_arena_alloc(g->arena, (size_t)(*n + 1) * sizeof *f);
    for (int64_t i = 0; i < *n; i++) f[i] = (float)x[i];
    return f;
}

GOLDEN(tinker, tinker_forward_backward_output)
{
    const ares_json *x = golden_in(g, "logprobs"), *m = golden_in(g, "metrics");
    tinker_log_probs *data = ares_arena_alloc(g->arena, (size_t)x->count * sizeof *data + 1);
    tinker_metric *metrics = ares_arena_alloc(g->arena, (size_t)m->count * sizeof *metrics + 1);
    ares_str out = { 0 };
    for (int64_t i = 0; i < x->count; i++) {
        const ares_json *d = &x->items[i];
        bool wide = d->count && d->items[0].type == ARES_JSON_ARRAY;
        int64_t cells;
        data[i] = (tinker_log_probs){ .axes = wide ? 2 : 1,
                                      .n = d->count,
                                      .k = wide ? d->items[0].count : 1,
                                      .x = floats(g, d, &cells) };
    }
    for (int64_t i = 0; i < m->count; i++)
        metrics[i] = (tinker_metric){ m->members[i].key.data, m->members[i].value->number };
    tinker_forward_write(data, x->count, metrics, (int)m->count, &out);
    same_bytes(g, &out);
    ares_str_fini(&out);
}

static int32_t *ids(golden *g, const ares_json *v, int64_t *n)
{
    const double *x = golden_flat(g, v, n);
    int32_t *to = ares_arena_alloc(g->arena, (size_t)(*n + 1) * sizeof *to);
    for (int64_t i = 0; i < *n; i++) to[i] = (int32_t)x[i];
    return to;
}

/* Rows of [token, log-prob] pairs; null: a row without any. */
static void pairs(golden *g, const ares_json *rows, int32_t *k, const int32_t **tokens,
                  const float **log_probs)
{
    for (int64_t r = 0; r < rows->count; r++) *k = (int32_t)ARES_MAX(*k, rows->items[r].count);
    int64_t cells = rows->count * *k;
    int32_t *to = ares_arena_alloc(g->arena, (size_t)cells * sizeof *to + 1);
    float *of = ares_arena_alloc(g->arena, (size_t)cells * sizeof *of + 1);
    for (int64_t i = 0; i < cells; i++) {
        const ares_json *row = &rows->items[i / *k];
        const ares_json *cell = i % *k < row->count ? row->items[i % *k].items : NULL;
        to[i] = cell ? (int32_t)cell[0].integer : TINKER_NO_TOKEN;
        of[i] = cell ? (float)cell[1].number : TINKER_NO_LOG_PROB;
    }
    *tokens = to;
    *log_probs = of;
}

GOLDEN(tinker, tinker_sample_response)
{
    const ares_json *s = golden_in(g, "sequences"), *p = golden_in(g, "prompt_logprobs"),
                    *top = golden_in(g, "topk_prompt_logprobs");
    tinker_sequence *sequences =
        ares_arena_calloc(g->arena, (size_t)s->count + 1, sizeof *sequences);
    tinker_sample asked = { .n = (int32_t)s->count };
    tinker_sampled got = { .sequences = sequences };
    ares_str out = { 0 };
    int64_t n;
    for (int64_t i = 0; i < s->count; i++) {
        const ares_json *q = &s->items[i];
        sequences[i].tokens = ids(g, ares_json_get(q, "tokens"), &n);
        sequences[i].n = (int32_t)n;
        sequences[i].log_probs = floats(g, ares_json_get(q, "logprobs"), &n);
        sequences[i].length = ares_view_is(ares_json_get(q, "stop_reason")->text, "length");
    }
    if (p->type == ARES_JSON_ARRAY) {
        asked.prompt_log_probs = true;
        got.prompt_log_probs = floats(g, p, &n);
        asked.prompt_len = (int32_t)n;
    }
    if (top->type == ARES_JSON_ARRAY) {
        asked.prompt_len = (int32_t)top->count;
        pairs(g, top, &asked.topk_prompt, &got.topk_prompt, &got.topk_prompt_log_probs);
    }
    tinker_sample_write(&asked, &got, &out);
    same_bytes(g, &out);
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- losses */

GOLDEN(tinker, tinker_loss)
{
    const ares_json *config = golden_in(g, "loss_fn_config");
    tinker_option *options =
        ares_arena_calloc(g->arena, (size_t)config->count + 1, sizeof *options);
    tinker_loss loss;
    int64_t n, clipped = 0;
    double sum = 0;
    for (int64_t i = 0; i < config->count; i++)
        options[i] = (tinker_option){ .name = config->members[i].key,
                                      .number = config->members[i].value->number };
    tinker_loss_inputs in = { .log_probs = floats(g, golden_in(g, "target_logprobs"), &n) };
    const struct {
        const char *key;
        const float **to;
    } inputs[] = { { "weights", &in.weights },
                   { "logprobs", &in.old_log_probs },
                   { "advantages", &in.advantages },
                   { "sequence_ratio_mask", &in.ratio_mask } };
    for (int i = 0; i < ARES_COUNT(inputs); i++) {
        const ares_json *v = ares_json_get(g->inputs, inputs[i].key);
        if (v) *inputs[i].to = floats(g, v, &n);
    }
    in.cells = n;
    float *derivative = ares_arena_alloc(g->arena, (size_t)n * sizeof *derivative + 1);
    double *each = ares_arena_alloc(g->arena, (size_t)(2 * n + 1) * sizeof *each);
    if (!golden_ok(
            g, tinker_loss_find(golden_string(g, "loss_fn"), options, (int)config->count, &loss)))
        return;
    tinker_loss_of(&loss, &in, &sum, &clipped, derivative, each);
    golden_near(g, "loss_sum", sum, golden_want(g, "loss_sum"));
    golden_numbers(g, "elementwise", each, n, golden_want(g, "elementwise"));
    for (int64_t i = 0; i < n; i++) each[n + i] = (double)derivative[i];
    golden_numbers(g, "gradient", each + n, n, golden_want(g, "gradient"));
}

GOLDEN(tinker, tinker_distribution)
{
    int64_t vocab, n = 0;
    const float *logits = floats(g, golden_in(g, "logits"), &vocab);
    double *log_probs = ares_arena_alloc(g->arena, (size_t)(3 * vocab) * sizeof *log_probs);
    double *kept = log_probs + vocab, *of_kept = kept + vocab;
    tinker_distribution(logits, (int32_t)vocab, golden_number(g, "temperature"),
                        (int32_t)golden_number(g, "top_k"), golden_number(g, "top_p"), -1,
                        log_probs);
    for (int64_t t = 0; t < vocab; t++) {
        if (log_probs[t] == -(double)INFINITY) continue;
        kept[n] = (double)t;
        of_kept[n++] = log_probs[t];
    }
    golden_numbers(g, "kept", kept, n, golden_want(g, "kept"));
    golden_numbers(g, "log_probs", of_kept, n, golden_want(g, "log_probs"));
}

/* ---------------------------------------------------------------- names */

GOLDEN(tinker, tinker_path)
{
    tinker_path p;
    bool ok = tinker_path_read(golden_string(g, "path"), &p);
    g->checks++;
    if (ok != (g->expected->type == ARES_JSON_OBJECT)) {
        golden_fail(g, "read: %d", ok);
        return;
    }
    if (!ok) return;
    golden_text(g, "model_id", p.model_id, golden_want(g, "model_id"));
    golden_text(g, "kind", ares_view_of(p.sampler ? "sampler_weights" : "weights"),
                golden_want(g, "kind"));
    golden_text(g, "name", p.name, golden_want(g, "name"));
}
