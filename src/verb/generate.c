/*
 * ares-train generate: samples from a model with the engine that training uses. All lines are
 * decoded together; the answers are written in the order of the lines.
 */
#include <stdio.h>
#include <string.h>

#include "ares/rollout.h"
#include "ares/template.h"
#include "verb.h"

typedef struct answer {
    int64_t request;
    char *error;
    ares_completion *samples;
} answer;

typedef struct job {
    const char *model, *input, *prompt, *device, *dtype, *stop;
    bool raw, ignore_eos;
    int64_t max_new_tokens, top_k, n, seed, threads, max_num_seqs, cache_tokens;
    double temperature, top_p;
    ares_sampling sampling;
    ares_str dir, text;
    ares_device d;
    ares_model *m;
    ares_tokenizer *tokenizer;
    ares_chat *chat;
    ares_rollout *rollout;
    ares_ids ids;
    ares_arena arena;
    answer *answers;
    int64_t n_answers, cap;
} job;

/* A prompt as messages: one message of the user. */
static const ares_json *user_message(ares_arena *a, ares_view text)
{
    ares_str s = { 0 };
    const ares_json *v = NULL;
    ares_json_begin(&s, '{');
    ares_json_begin(ares_json_key(&s, "messages"), '[');
    ares_json_begin(&s, '{');
    ares_json_write_string(ares_json_key(&s, "role"), ARES_VIEW("user"));
    ares_json_write_string(ares_json_key(&s, "content"), text);
    ares_json_end(&s, '}');
    ares_json_end(&s, ']');
    ares_json_write_bool(ares_json_key(&s, "add_generation_prompt"), true);
    ares_json_end(&s, '}');
    char *copy = ares_arena_copy(a, s.data, s.len);
    int rc = ares_json_parse(a, (ares_view){ copy, s.len }, "prompt", &v);
    ares_str_fini(&s);
    return rc == ARES_OK ? v : NULL;
}

/*
 * The line's template variables, and add_generation_prompt or continue_final_message as for the
 * prompt of a data set, unless the line has one of them.
 */
static const ares_json *with_generation_prompt(ares_arena *a, const ares_json *line)
{
    static const ares_json yes = { .type = ARES_JSON_BOOL, .boolean = true };
    const ares_json *open = ares_json_get(line, "continue_final_message");
    bool closed =
        open && (open->type == ARES_JSON_NULL || (open->type == ARES_JSON_BOOL && !open->boolean));
    if (ares_json_get(line, "add_generation_prompt") || (open && !closed)) return line;
    ares_view ready = closed ? ARES_VIEW("add_generation_prompt")
                             : ares_chat_prompt_variable(ares_json_get(line, "messages"));
    ares_json_member *members = ares_arena_alloc(a, (size_t)(line->count + 1) * sizeof *members);
    memcpy(members, line->members, (size_t)line->count * sizeof *members);
    members[line->count] = (ares_json_member){ ready, &yes };
    ares_json *out = ares_arena_calloc(a, 1, sizeof *out);
    *out = (ares_json){ .type = ARES_JSON_OBJECT, .count = line->count + 1, .members = members };
    return out;
}

static int encode(job *j, const ares_json *line)
{
    const ares_json *ids = ares_json_get(line, "input_ids"),
                    *messages = ares_json_get(line, "messages"),
                    *prompt = ares_json_get(line, "prompt");
    ares_ids_clear(&j->ids);
    ares_str_clear(&j->text);
    if (ids && ids->type == ARES_JSON_ARRAY)
        return verb_read_ids("generate", line, "input_ids", &j->ids);
    if (!j->tokenizer) ARES_TRY(ares_tokenizer_load(j->dir.data, &j->tokenizer));
    if (messages && messages->type == ARES_JSON_ARRAY) {
        if (!j->chat) ARES_TRY(ares_chat_load(j->dir.data, NULL, &j->chat));
        ARES_TRY(
            ares_chat_render(j->chat, with_generation_prompt(&j->arena, line), NULL, &j->text));
    } else if (prompt && prompt->type == ARES_JSON_STRING) {
        bool chat = !j->raw && ares_tokenizer_chat_template(j->tokenizer, NULL).data;
        if (!chat) {
            ares_str_add_view(&j->text, prompt->text);
            return ares_tokenizer_encode(j->tokenizer, ares_str_view(&j->text), true, &j->ids);
        }
        if (!j->chat) ARES_TRY(ares_chat_load(j->dir.data, NULL, &j->chat));
        ARES_TRY(ares_chat_render(j->chat, user_message(&j->arena, prompt->text), NULL, &j->text));
    } else
        return ares_fail(
            ARES_EFORMAT,
            "generate: a line needs 'prompt' (a string), 'messages' or 'input_ids' (lists)");
    return ares_tokenizer_encode(j->tokenizer, ares_str_view(&j->text), false, &j->ids);
}

static void add(job *j, const ares_json *line, int bad)
{
    if (j->n_answers == j->cap) {
        j->cap = j->cap * 2 + 64;
        j->answers = ares_realloc(j->answers, (size_t)j->cap * sizeof *j->answers);
    }
    answer *a = &j->answers[j->n_answers];
    *a = (answer){ .request = -1 };
    int rc = bad != ARES_OK ? bad : encode(j, line);
    /* the key of line i: its samples depend on its number, not on the lines around it */
    ares_rng_key key = ares_rng_sub(
        ares_rng_sub(ares_rng_root((uint64_t)j->seed, ARES_RNG_SAMPLE), 0, (uint64_t)j->n_answers),
        0, 0);
    if (rc == ARES_OK)
        rc = ares_rollout_add(j->rollout,
                              &(ares_request){ .prompt = j->ids.ids,
                                               .prompt_len = (int32_t)j->ids.n,
                                               .n = (int32_t)j->n,
                                               .sampling = j->sampling,
                                               .key = key },
                              &a->request);
    if (rc != ARES_OK) a->error = ares_strdup(ares_error_message());
    j->n_answers++;
}

static int read_input(job *j)
{
    if (j->prompt) {
        ares_str s = { 0 };
        ares_json_begin(&s, '{');
        ares_json_write_string(ares_json_key(&s, "prompt"), ares_view_of(j->prompt));
        ares_json_end(&s, '}');
        const ares_json *line;
        int rc = ares_json_parse(&j->arena, ares_str_view(&s), "--prompt", &line);
        if (rc == ARES_OK) add(j, line, ARES_OK);
        ares_str_fini(&s);
        return rc;
    }
    ares_jsonl *r;
    const ares_json *line;
    ARES_TRY(ares_jsonl_open(j->input, &r));
    for (int rc; (rc = ares_jsonl_next(r, &line, NULL)) != 0;) {
        if (rc == ARES_EIO) {
            ares_jsonl_close(r);
            return rc;
        }
        ares_arena_reset(&j->arena);
        add(j, line, rc < 0 ? rc : ARES_OK);
    }
    ares_jsonl_close(r);
    return ARES_OK;
}

static int run(job *j)
{
    int64_t active = 1, requests = 0;
    for (int64_t i = 0; i < j->n_answers; i++) requests += j->answers[i].request >= 0;
    ares_completion *all = ares_calloc((size_t)(requests * j->n) + 1, sizeof *all);
    int rc = ARES_OK;
    while (active && rc == ARES_OK) {
        ares_completion c;
        rc = ares_rollout_step(j->rollout, &active);
        while (rc == ARES_OK && ares_rollout_next(j->rollout, &c))
            all[c.request * j->n + c.index] = c;
    }
    for (int64_t i = 0; i < j->n_answers; i++)
        if (j->answers[i].request >= 0) j->answers[i].samples = all + j->answers[i].request * j->n;
    if (rc != ARES_OK) ares_free(all);
    return rc;
}

static int write_sample(job *j, const ares_completion *c, ares_str *out)
{
    ares_str_clear(&j->text);
    if (j->tokenizer)
        ARES_TRY(ares_tokenizer_decode(j->tokenizer, c->ids, c->n_tokens, true, &j->text));
    ares_json_begin(out, '{');
    if (j->tokenizer) ares_json_write_string(ares_json_key(out, "text"), ares_str_view(&j->text));
    verb_write_ids(ares_json_key(out, "output_ids"), c->ids, c->n_tokens);
    verb_write_floats(ares_json_key(out, "log_probs"), c->log_probs, c->n_tokens);
    verb_write_floats(ares_json_key(out, "entropies"), c->entropies, c->n_tokens);
    ares_json_write_string(ares_json_key(out, "finish_reason"),
                           ares_view_of(c->finish == ARES_FINISH_STOP ? "stop" : "length"));
    ares_json_end(out, '}');
    return ARES_OK;
}

static int write_answers(job *j)
{
    ares_str out = { 0 };
    int64_t bad = 0;
    for (int64_t i = 0; i < j->n_answers; i++) {
        const answer *a = &j->answers[i];
        ares_str_clear(&out);
        if (a->error) {
            bad++;
            if (j->prompt) break;
            verb_write_error(&out, a->error);
        } else if (j->prompt) {
            for (int64_t k = 0; k < j->n; k++) {
                if (k) ares_str_add_z(&out, "\n---\n");
                ARES_TRY(ares_tokenizer_decode(j->tokenizer, a->samples[k].ids,
                                               a->samples[k].n_tokens, true, &out));
            }
        } else if (j->n == 1) ARES_TRY(write_sample(j, &a->samples[0], &out));
        else {
            ares_json_begin(&out, '{');
            ares_json_begin(ares_json_key(&out, "samples"), '[');
            for (int64_t k = 0; k < j->n; k++) ARES_TRY(write_sample(j, &a->samples[k], &out));
            ares_json_end(&out, ']');
            ares_json_end(&out, '}');
        }
        ares_str_add_char(&out, '\n');
        if (fwrite(out.data, 1, out.len, stdout) != out.len)
            return ares_fail(ARES_EIO, "generate: stdout cannot be written");
    }
    ares_str_fini(&out);
    if (fflush(stdout) != 0) return ares_fail(ARES_EIO, "generate: stdout cannot be written");
    if (bad && j->prompt) return ares_fail(ARES_EFORMAT, "%s", j->answers[0].error);
    return bad ? ares_fail(
                     ARES_EFORMAT,
                     "generate: %s: %lld of %lld lines are bad (each has its error in its place)",
                     j->input, (long long)bad, (long long)j->n_answers)
               : ARES_OK;
}

static int open_all(job *j)
{
    ares_model_options opt = { .storage = strcmp(j->dtype, "bf16") == 0 ? ARES_BF16 : ARES_F32 };
    /* a card computes in the type that the weights are stored in, as in training */
    ARES_TRY(ares_device_open_table(j->device, "native", opt.storage, (int)j->threads, &j->d));
    ARES_TRY(ares_model_find(j->model, &j->dir));
    ARES_TRY(ares_model_load(j->dir.data, &j->d, &opt, &j->m));
    /* the first line that needs it reports the failure again */
    if (ares_tokenizer_load(j->dir.data, &j->tokenizer) != ARES_OK) j->tokenizer = NULL;
    ares_rollout_options o = { .max_num_seqs = (int32_t)j->max_num_seqs,
                               .max_num_batched_tokens = 2048,
                               .cache_tokens = j->cache_tokens };
    j->sampling = (ares_sampling){ .temperature = (float)j->temperature,
                                   .top_p = (float)j->top_p,
                                   .top_k = (int32_t)j->top_k,
                                   .max_new_tokens = (int32_t)j->max_new_tokens,
                                   .ignore_eos = j->ignore_eos,
                                   .n_stop_strings = j->stop ? 1 : 0,
                                   .stop_strings = &j->stop };
    return ares_rollout_new(j->m, j->tokenizer, &o, &j->rollout);
}

static void close_all(job *j)
{
    for (int64_t i = 0; i < j->n_answers; i++) ares_free(j->answers[i].error);
    for (int64_t i = 0; i < j->n_answers; i++)
        if (j->answers[i].request == 0) ares_free(j->answers[i].samples);
    ares_free(j->answers);
    ares_rollout_free(j->rollout);
    ares_chat_free(j->chat);
    ares_tokenizer_free(j->tokenizer);
    if (j->m) ares_model_free(j->m);
    ares_device_close(&j->d);
    ares_ids_fini(&j->ids);
    ares_str_fini(&j->dir);
    ares_str_fini(&j->text);
    ares_arena_fini(&j->arena);
}

int ares_verb_generate(int argc, char **argv)
{
    job j = { .input = "-",
              .device = "cpu",
              .dtype = "fp32",
              .max_new_tokens = 128,
              .temperature = 1,
              .top_p = 1,
              .top_k = -1,
              .n = 1,
              .seed = 1,
              .max_num_seqs = 64 };
    bool helped;
    const verb_option options[] = {
        VERB_OPTION(TEXT, j.model, "--model", "DIR", "a model, checkpoint or run directory",
                    .required = true),
        VERB_INPUT(j.input),
        VERB_OPTION(TEXT, j.prompt, "--prompt", "TEXT", "one prompt, in place of --input"),
        VERB_OPTION(FLAG, j.raw, "--raw", NULL, "prompts are plain text, no chat template"),
        VERB_OPTION(I64, j.max_new_tokens, "--max-new-tokens", "N", "tokens of an answer at most",
                    .least = 1, .most = 1 << 30),
        VERB_OPTION(F64, j.temperature, "--temperature", "X", "of sampling; 0 is greedy"),
        VERB_OPTION(F64, j.top_p, "--top-p", "X", "nucleus sampling; 1 is off"),
        VERB_OPTION(I64, j.top_k, "--top-k", "N", "sample from the N likeliest tokens; -1 is off"),
        VERB_OPTION(I64, j.n, "--n", "N", "answers per line", .least = 1, .most = 1 << 20),
        VERB_OPTION(I64, j.seed, "--seed", "N", "of sampling"),
        VERB_OPTION(TEXT, j.stop, "--stop", "TEXT", "ends an answer"),
        VERB_OPTION(FLAG, j.ignore_eos, "--ignore-eos", NULL,
                    "continue sampling after an end-of-sequence token"),
        VERB_OPTION(TEXT, j.device, "--device", "DEVICE", "cpu, cuda or cuda:1"),
        VERB_OPTION(I64, j.threads, "--threads", "N", "CPU threads; 0: all CPUs at hand"),
        VERB_DTYPE(j.dtype),
        VERB_OPTION(I64, j.max_num_seqs, "--max-num-seqs", "N",
                    "answers decoded at once; changes speed, no result", .least = 1,
                    .most = 1 << 16),
        VERB_OPTION(I64, j.cache_tokens, "--cache-tokens", "N",
                    "size of the KV cache; changes speed, no result; 0: what full answers need",
                    .most = INT64_MAX),
    };
    const verb_command command = {
        .name = "generate",
        .usage = "--model DIR [--prompt TEXT | --input FILE] [options]",
        .about = "Reads {\"prompt\":\"..\"}, {\"messages\":[..]} or {\"input_ids\":[..]} per line, "
                 "writes {\"text\":..,\"output_ids\":[..],\"log_probs\":[..],\"entropies\":[..],"
                 "\"finish_reason\":\"stop|length\"} per line, or {\"samples\":[..]} of these when "
                 "n > 1. With --prompt: the text alone.\n"
                 "A prompt becomes a user message where the model has a chat template. Messages "
                 "that end with the assistant's are continued.",
        .example = "ares-train generate --model models/SmolLM2-135M-Instruct --prompt \"What is "
                   "the capital of France?\" --temperature 0",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    ARES_TRY(verb_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    int rc = open_all(&j);
    if (rc == ARES_OK) rc = read_input(&j);
    if (rc == ARES_OK) rc = run(&j);
    if (rc == ARES_OK) rc = write_answers(&j);
    close_all(&j);
    return rc;
}
