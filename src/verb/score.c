/*
 * ares-train score: log-prob and entropy of every token of a sequence under a model, computed by
 * the functions that training uses.
 */
#include <string.h>

#include "ares/train.h"
#include "verb.h"

typedef struct job {
    ares_model *model;
    ares_workspace *workspace;
    ares_tokenizer *tokenizer;
    const char *tokenizer_error;
    ares_ids ids;
    ares_batch batch;
    ares_train_config cfg;
} job;

static int read_ids(job *j, const ares_json *line)
{
    const ares_json *ids = ares_json_get(line, "input_ids"), *text = ares_json_get(line, "text");
    ares_ids_clear(&j->ids);
    if (ids && ids->type == ARES_JSON_ARRAY) {
        ARES_TRY(verb_read_ids("score", line, "input_ids", &j->ids));
    } else if (text && text->type == ARES_JSON_STRING) {
        if (!j->tokenizer)
            return ares_fail(ARES_EFORMAT, "score: a text needs a tokenizer: %s",
                             j->tokenizer_error);
        ARES_TRY(ares_tokenizer_encode(j->tokenizer, text->text, true, &j->ids));
    } else
        return ares_fail(ARES_EFORMAT,
                         "score: a line needs 'input_ids' (a list) or 'text' (a string)");
    if (j->ids.n < 1) return ares_fail(ARES_EFORMAT, "score: the sequence is empty");
    if (j->ids.n > j->model->cfg.max_position)
        return ares_fail(ARES_ELIMIT, "score: %lld tokens; the model has %d positions",
                         (long long)j->ids.n, j->model->cfg.max_position);
    return ares_model_check_ids(j->model, j->ids.ids, j->ids.n);
}

static int score_line(void *ctx, const ares_json *line, ares_str *out)
{
    job *j = ctx;
    ARES_TRY(read_ids(j, line));
    ares_batch *b = &j->batch;
    int64_t n = j->ids.n - 1;
    ares_batch_clear(b);
    ares_sample row = { .prompt = j->ids.ids, .prompt_len = 1 };
    ares_batch_begin_group(b);
    ares_batch_add_row(b, &row, n);
    ARES_PUT(b, responses);
    memcpy(b->responses, j->ids.ids + 1, (size_t)n * sizeof *b->responses);
    float *stats = ares_arena_calloc(&b->arena, (size_t)(2 * n + 1), sizeof *stats);
    if (n)
        ARES_TRY(ares_train_log_probs(j->model, j->workspace, &j->cfg, b, 0, 1, stats, stats + n));
    ares_json_begin(out, '{');
    verb_write_floats(ares_json_key(out, "log_probs"), stats, n);
    verb_write_floats(ares_json_key(out, "entropies"), stats + n, n);
    ares_json_end(out, '}');
    return ARES_OK;
}

int ares_verb_score(int argc, char **argv)
{
    const char *model = NULL, *input = "-", *device = "cpu", *dtype = "fp32";
    int64_t threads = 0;
    bool helped;
    const verb_option options[] = {
        VERB_OPTION(TEXT, model, "--model", "DIR", "a model, checkpoint or run directory",
                    .required = true),
        VERB_INPUT(input),
        VERB_OPTION(TEXT, device, "--device", "DEVICE", "cpu, cuda or cuda:1"),
        VERB_OPTION(I64, threads, "--threads", "N", "CPU threads; 0: all CPUs at hand"),
        VERB_DTYPE(dtype),
    };
    const verb_command command = {
        .name = "score",
        .usage = "--model DIR [--input FILE] [--device cpu] [--threads N] [--dtype fp32|bf16]",
        .about = "Reads {\"input_ids\":[..]} or {\"text\":\"..\"} per line, writes "
                 "{\"log_probs\":[..],\"entropies\":[..]} per line: T-1 numbers each for T tokens; "
                 "entry t is about token t+1 given tokens 0..t; natural logarithm, temperature 1, "
                 "exact over the whole vocabulary.",
        .example = "echo '{\"text\":\"The capital of France is Paris.\"}' |\n"
                   "    ares-train score --model models/SmolLM2-135M-Instruct",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    ARES_TRY(verb_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    job j = { .cfg = { .actor = { .max_token_len = INT32_MAX, .share_prompts = false },
                       .rollout = { .temperature = 1 } } };
    ares_device d;
    ares_model_options opt = { .storage = strcmp(dtype, "bf16") == 0 ? ARES_BF16 : ARES_F32 };
    ares_str dir = { 0 };
    ares_batch_init(&j.batch);
    /* a card computes in the type that the weights are stored in, as in training */
    ARES_TRY(ares_device_open_table(device, "native", opt.storage, (int)threads, &d));
    int rc = ares_model_load(model, &d, &opt, &j.model);
    if (rc == ARES_OK) rc = ares_workspace_new(j.model, ARES_KEEP_NOTHING, &j.workspace);
    if (rc == ARES_OK) rc = ares_model_find(model, &dir);
    if (rc == ARES_OK && ares_tokenizer_load(dir.data, &j.tokenizer) != ARES_OK)
        j.tokenizer_error = ares_strdup(ares_error_message());
    if (rc == ARES_OK) rc = verb_each_line("score", input, score_line, &j);
    ares_free((char *)j.tokenizer_error);
    ares_str_fini(&dir);
    ares_batch_fini(&j.batch);
    ares_ids_fini(&j.ids);
    ares_tokenizer_free(j.tokenizer);
    ares_workspace_free(j.workspace);
    ares_model_free(j.model);
    ares_device_close(&d);
    return rc;
}
