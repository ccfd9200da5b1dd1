/*
 * ares-train score: log-prob and entropy of every token of a sequence under a model, computed by
 * the functions that training uses.
 */
#include <math.h>
#include <string.h>

#include "ares/train.h"
#include "see.h"

typedef struct job {
    ares_model *model;
    ares_workspace *workspace;
    verb_see see;
    ares_ids ids;
    ares_batch batch;
    ares_train_config cfg;
} job;

/* The answer to a prompt follows it, as its tokens alone would. */
static int add_response(job *j, const ares_json *line)
{
    const ares_json *response = ares_json_get(line, "response");
    if (!response || response->type == ARES_JSON_NULL) return ARES_OK;
    if (response->type != ARES_JSON_STRING)
        return ares_fail(ARES_EFORMAT, "score: 'response' is no string");
    return ares_tokenizer_encode(j->see.tokenizer, response->text, false, &j->ids);
}

static int read_ids(job *j, const ares_json *line, const ares_sight **sight)
{
    const ares_json *text = ares_json_get(line, "text");
    bool asked = ares_json_get(line, "messages") || ares_json_get(line, "prompt");
    ares_ids_clear(&j->ids);
    *sight = NULL;
    if (ares_json_get(line, "input_ids") || asked) {
        ARES_TRY(verb_see_encode(&j->see, "score", line, false, &j->ids, sight));
        if (asked) ARES_TRY(add_response(j, line));
    } else if (text && text->type == ARES_JSON_STRING) {
        ARES_TRY(verb_see_text(&j->see, line, text->text, &j->ids, sight));
    } else
        return ares_fail(ARES_EFORMAT,
                         "score: a line needs 'input_ids' (a list), 'text' (a string), or 'prompt' "
                         "or 'messages' with a 'response'");
    if (j->ids.n < 1) return ares_fail(ARES_EFORMAT, "score: the sequence is empty");
    if (j->ids.n > j->model->cfg.max_position)
        return ares_fail(ARES_ELIMIT, "score: %lld tokens; the model has %d positions",
                         (long long)j->ids.n, j->model->cfg.max_position);
    return ares_model_check_ids(j->model, j->ids.ids, j->ids.n, *sight);
}

static int score_line(void *ctx, const ares_json *line, ares_str *out)
{
    job *j = ctx;
    const ares_sight *sight;
    ARES_TRY(read_ids(j, line, &sight));
    ares_batch *b = &j->batch;
    int64_t n = j->ids.n - 1;
    ares_batch_clear(b);
    ares_sample row = { .prompt = j->ids.ids, .prompt_len = 1, .sight = sight };
    ares_batch_begin_group(b);
    ares_batch_add_row(b, &row, n);
    ARES_PUT(b, responses);
    memcpy(b->responses, j->ids.ids + 1, (size_t)n * sizeof *b->responses);
    float *stats = ares_arena_calloc(&b->arena, (size_t)(2 * n + 1), sizeof *stats);
    if (n)
        ARES_TRY(ares_train_log_probs(j->model, j->workspace, j->see.features, &j->cfg, b, 0, 1,
                                      stats, stats + n));
    if (j->see.features) ares_features_trim(j->see.features);
    for (int64_t t = 0; t < n; t++)
        if (!isfinite(stats[t]) || !isfinite(stats[n + t]))
            return ares_fail(ARES_ENUMERIC,
                             "score: log-prob %g and entropy %g of token %lld (of 0 to %lld); the "
                             "weights hold NaN or infinity",
                             stats[t], stats[n + t], (long long)t + 1, (long long)n);
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
    verb_see_options sight = VERB_SEE_DEFAULTS;
    bool helped;
    const verb_option options[] = {
        VERB_OPTION(TEXT, model, "--model", "DIR", "a model, checkpoint or run directory",
                    .required = true),
        VERB_INPUT(input),
        VERB_OPTION(TEXT, device, "--device", "DEVICE", "cpu, cuda or cuda:1"),
        VERB_OPTION(I64, threads, "--threads", "N", "CPU threads; 0: all CPUs at hand",
                    .most = 1 << 16),
        VERB_DTYPE(dtype),
        VERB_SEE(sight),
    };
    const verb_command command = {
        .name = "score",
        .usage = "--model DIR [--input FILE] [--device cpu] [--threads N] [--dtype fp32|bf16]",
        .about = "Reads {\"input_ids\":[..]}, {\"text\":\"..\"}, or {\"prompt\":\"..\"} or "
                 "{\"messages\":[..]} with a \"response\" per line, with \"images\":[..] and "
                 "\"videos\":[..] for a vision model (docs/vision.md); writes "
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
    if (rc == ARES_OK) rc = verb_see_open(&j.see, &sight, dir.data, j.model);
    if (rc == ARES_OK) rc = verb_each_line("score", input, score_line, &j);
    verb_see_close(&j.see);
    ares_str_fini(&dir);
    ares_batch_fini(&j.batch);
    ares_ids_fini(&j.ids);
    ares_workspace_free(j.workspace);
    ares_model_free(j.model);
    ares_device_close(&d);
    return rc;
}
