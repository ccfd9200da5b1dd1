/*
 * libFuzzer entry for the readers of Tinker's requests: the binary message, the JSON of each call,
 * and paths of checkpoints. The first byte picks the call. Checks, besides that nothing crashes:
 * what was read keeps the promises of tinker.h, and a refusal has a message.
 */
#include <math.h>
#include <stdlib.h>

/* the sources themselves: fuzzers are built without the room */
#include "../../src/serve/tinker_request.c"
#include "../../src/serve/tinker_wire.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 512, CONTEXT = 64 };

static void check_forward(const tinker_forward *f)
{
    uint32_t sum = 0;
    ARES_ASSERT(f->seq_id >= 1 && f->n_data >= 1 && ares_view_is_utf8(f->model_id));
    for (int i = 0; i < f->n_options; i++)
        ARES_ASSERT(f->options[i].is_text || isfinite(f->options[i].number));
    for (int64_t d = 0; d < f->n_data; d++) {
        const tinker_datum *x = &f->data[d];
        ARES_ASSERT(x->n >= 1);
        for (int64_t i = 0; i < x->n; i++) sum += (uint32_t)x->tokens[i];
        for (int i = 0; i < x->n_inputs; i++) {
            const tinker_tensor *t = &x->inputs[i];
            int64_t cells = t->shape[0] * t->shape[1];
            ARES_ASSERT(t->axes >= 1 && t->axes <= 2 && (t->f32 != NULL) != (t->i64 != NULL));
            for (int64_t k = 0; k < cells; k++) {
                if (t->f32) ARES_ASSERT(isfinite(t->f32[k]));
                else sum += (uint32_t)t->i64[k];
            }
            for (int k = 0; k < i; k++) ARES_ASSERT(!ares_view_eq(x->inputs[k].name, t->name));
        }
    }
    if (sum == 0x9e3779b9) ares_error_clear(); /* so that the numbers are read */
}

static void check_sample(const tinker_sample *s)
{
    ARES_ASSERT(s->prompt_len >= 1 && s->max_tokens >= 1 && s->n >= 1 &&
                s->prompt_len + s->max_tokens <= CONTEXT && s->last_n < s->prompt_len);
    ARES_ASSERT(s->temperature >= 0 && s->top_p > 0 && s->top_p <= 1 &&
                (s->top_k == -1 || s->top_k >= 1));
    for (int32_t i = 0; i < s->prompt_len; i++)
        ARES_ASSERT(s->prompt[i] >= 0 && s->prompt[i] < VOCAB);
    for (int i = 0; i < s->n_stop_ids; i++)
        ARES_ASSERT(s->stop_ids[i] >= 0 && s->stop_ids[i] < VOCAB);
    for (int i = 0; i < s->n_stop_strings; i++) ARES_ASSERT(s->stop_strings[i][0]);
    for (int64_t i = 0; i < (s->prompt_len - 1) * (int64_t)s->n_targets; i++)
        ARES_ASSERT(s->targets[i] >= -1 && s->targets[i] < VOCAB);
    for (int64_t i = 0; i < s->n_cells; i++)
        ARES_ASSERT(s->col[i] >= 0 && s->col[i] < s->n_targets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ares_arena arena = { 0 };
    if (!size) return 0;
    ares_view body = { (const char *)data + 1, size - 1 };
    tinker_path path;
    ares_error_clear();
    if (tinker_path_read(body, &path))
        ARES_ASSERT(tinker_name_ok(path.name) && tinker_model_id_ok(path.model_id));
    tinker_request r = { 0 };
    int found = tinker_route("POST", body, &r);
    ARES_ASSERT(!found || ares_error_message()[0]);
    r = (tinker_request){ .call = (tinker_call)(data[0] % TINKER_N_CALLS) };
    int status = tinker_request_read(&arena, body, body, &r);
    ARES_ASSERT(!status || ((status == 400 || status == 422) && ares_error_message()[0]));
    if (!status && r.call == TINKER_FORWARD) check_forward(&r.forward);
    if (!status && r.call == TINKER_SAMPLE &&
        tinker_sample_check(&arena, VOCAB, CONTEXT, &r) == ARES_OK)
        check_sample(&r.sample);
    ares_arena_fini(&arena);
    return 0;
}
