/*
 * ares-train generate: samples from a model with the engine that training uses. All lines are
 * decoded together; the answers are written in the order of the lines.
 */
#include <stdio.h>
#include <string.h>

#include "ares/rollout.h"
#include "see.h"

typedef struct answer {
    int64_t request;
    char *error;
    ares_completion *samples;
} answer;

typedef struct job {
    const char *model, *input, *prompt, *image, *video, *device, *dtype, *stop;
    bool raw, ignore_eos;
    int64_t max_new_tokens, top_k, n, seed, threads, max_num_seqs, cache_tokens;
    double temperature, top_p;
    ares_sampling sampling;
    ares_str dir, text;
    ares_device d;
    ares_model *m;
    verb_see_options sight;
    verb_see see;
    ares_rollout *rollout;
    ares_ids ids;
    ares_arena arena;
    answer *answers;
    int64_t n_answers, cap;
    ares_completion *samples; /* of all requests */
} job;

/* What stands in the places of the line's images and videos. */
static int see(job *j, const ares_sight *sight, ares_request *r)
{
    if (!sight) return ARES_OK;
    ares_seen *seen = ares_arena_alloc(&j->see.arena, (size_t)(sight->n_places + 1) * sizeof *seen);
    for (int32_t i = 0; i < sight->n_places; i++)
        ARES_TRY(ares_features_get(j->see.features, sight->places[i].medium, &seen[i]));
    r->sight = sight;
    r->seen = seen;
    return ARES_OK;
}

static int ask(job *j, const ares_json *line, ares_rng_key key, int64_t *request)
{
    const ares_sight *sight = NULL;
    ARES_TRY(verb_see_encode(&j->see, "generate", line, j->raw, &j->ids, &sight));
    ares_request r = { .prompt = j->ids.ids,
                       .prompt_len = (int32_t)j->ids.n,
                       .n = (int32_t)j->n,
                       .sampling = j->sampling,
                       .key = key };
    ARES_TRY(see(j, sight, &r));
    return ares_rollout_add(j->rollout, &r, request);
}

static void add(job *j, const ares_json *line, int bad)
{
    if (j->n_answers == j->cap) {
        j->cap = j->cap * 2 + 64;
        j->answers = ares_realloc(j->answers, (size_t)j->cap * sizeof *j->answers);
    }
    answer *a = &j->answers[j->n_answers];
    *a = (answer){ .request = -1 };
    int rc = bad;
    /* the key of line i: its samples depend on its number, not on the lines around it */
    ares_rng_key key = ares_rng_sub(
        ares_rng_sub(ares_rng_root((uint64_t)j->seed, ARES_RNG_SAMPLE), 0, (uint64_t)j->n_answers),
        0, 0);
    if (rc == ARES_OK) rc = ask(j, line, key, &a->request);
    if (rc != ARES_OK) a->error = ares_strdup(ares_error_message());
    j->n_answers++;
}

/* "images": ["FILE"], where a file is named; its place comes first where the prompt has none. */
static void add_file(ares_str *line, const char *key, const char *file, const char *place,
                     ares_str *prompt)
{
    if (!file) return;
    ares_json_begin(ares_json_key(line, key), '[');
    ares_json_write_string(line, ares_view_of(file));
    ares_json_end(line, ']');
    ares_view text = ares_str_view(prompt);
    if (ares_view_find(text, ares_view_of(place), 0) >= 0) return;
    ares_str whole = { 0 };
    ares_str_add_z(&whole, place);
    ares_str_add_view(&whole, text);
    ares_str_fini(prompt);
    *prompt = whole;
}

static int read_prompt(job *j)
{
    ares_str s = { 0 }, prompt = { 0 };
    ares_str_add_z(&prompt, j->prompt);
    ares_json_begin(&s, '{');
    add_file(&s, "videos", j->video, "<video>", &prompt);
    add_file(&s, "images", j->image, "<image>", &prompt);
    ares_json_write_string(ares_json_key(&s, "prompt"), ares_str_view(&prompt));
    ares_json_end(&s, '}');
    const ares_json *line;
    int rc = ares_json_parse(&j->arena, ares_str_view(&s), "--prompt", &line);
    if (rc == ARES_OK) add(j, line, ARES_OK);
    ares_str_fini(&prompt);
    ares_str_fini(&s);
    return rc;
}

static int read_input(job *j)
{
    if (j->prompt) return read_prompt(j);
    ares_jsonl *r;
    const ares_json *line;
    ARES_TRY(ares_jsonl_open_input(j->input, &r));
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
    ares_completion *all = j->samples = ares_calloc((size_t)(requests * j->n) + 1, sizeof *all);
    int rc = ARES_OK;
    while (active && rc == ARES_OK) {
        ares_completion c;
        rc = ares_rollout_step(j->rollout, &active);
        while (rc == ARES_OK && ares_rollout_next(j->rollout, &c))
            all[c.request * j->n + c.index] = c;
    }
    for (int64_t i = 0; i < j->n_answers; i++)
        if (j->answers[i].request >= 0) j->answers[i].samples = all + j->answers[i].request * j->n;
    return rc;
}

static int write_sample(job *j, const ares_completion *c, ares_str *out)
{
    ares_str_clear(&j->text);
    if (j->see.tokenizer)
        ARES_TRY(ares_tokenizer_decode(j->see.tokenizer, c->ids, c->n_tokens, true, &j->text));
    ares_json_begin(out, '{');
    if (j->see.tokenizer)
        ares_json_write_string(ares_json_key(out, "text"), ares_str_view(&j->text));
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
    int64_t bad = 0, first_bad = 0;
    for (int64_t i = 0; i < j->n_answers; i++) {
        const answer *a = &j->answers[i];
        ares_str_clear(&out);
        if (a->error) {
            if (!bad++) first_bad = i + 1;
            if (j->prompt) break;
            verb_write_error(&out, a->error);
        } else if (j->prompt) {
            for (int64_t k = 0; k < j->n; k++) {
                if (k) ares_str_add_z(&out, "\n---\n");
                ARES_TRY(ares_tokenizer_decode(j->see.tokenizer, a->samples[k].ids,
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
    return bad ? verb_bad_lines("generate", j->input, bad, j->n_answers, first_bad) : ARES_OK;
}

static int open_all(job *j)
{
    ares_model_options opt = { .storage = strcmp(j->dtype, "bf16") == 0 ? ARES_BF16 : ARES_F32 };
    /* a card computes in the type that the weights are stored in, as in training */
    ARES_TRY(ares_device_open_table(j->device, "native", opt.storage, (int)j->threads, &j->d));
    ARES_TRY(ares_model_find(j->model, &j->dir));
    ARES_TRY(ares_model_load(j->dir.data, &j->d, &opt, &j->m));
    const ares_sampling_word sampled[] = { { "temperature", "--temperature", j->temperature },
                                           { "top_p", "--top-p", j->top_p },
                                           { "top_k", "--top-k", (double)j->top_k } };
    ARES_TRY(ares_model_tell_sampling(j->dir.data, sampled, ARES_COUNT(sampled)));
    ARES_TRY(verb_see_open(&j->see, &j->sight, j->dir.data, j->m));
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
    return ares_rollout_new(j->m, j->see.tokenizer, &o, &j->rollout);
}

static void close_all(job *j)
{
    for (int64_t i = 0; i < j->n_answers; i++) ares_free(j->answers[i].error);
    ares_free(j->answers);
    ares_free(j->samples);
    ares_rollout_free(j->rollout);
    verb_see_close(&j->see);
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
              .sight = VERB_SEE_DEFAULTS,
              .max_num_seqs = 64 };
    bool helped;
    const verb_option options[] = {
        VERB_OPTION(TEXT, j.model, "--model", "DIR", "a model, checkpoint or run directory",
                    .required = true),
        VERB_INPUT(j.input),
        VERB_OPTION(TEXT, j.prompt, "--prompt", "TEXT", "one prompt, in place of --input"),
        VERB_OPTION(TEXT, j.image, "--image", "FILE",
                    "an image that --prompt asks about; it comes first, or where the prompt says "
                    "<image>"),
        VERB_OPTION(TEXT, j.video, "--video", "FILE", "likewise a video; <video>"),
        VERB_SEE(j.sight),
        VERB_OPTION(FLAG, j.raw, "--raw", NULL, "prompts are plain text, no chat template"),
        VERB_OPTION(I64, j.max_new_tokens, "--max-new-tokens", "N", "tokens of an answer at most",
                    .least = 1, .most = 1 << 30),
        VERB_OPTION(F64, j.temperature, "--temperature", "X", "of sampling; 0 is greedy"),
        VERB_OPTION(F64, j.top_p, "--top-p", "X", "nucleus sampling; 1 is off"),
        VERB_OPTION(I64, j.top_k, "--top-k", "N",
                    "sample from the N likeliest tokens; -1 and 0 are off", .least = -1,
                    .most = 1 << 30),
        VERB_OPTION(I64, j.n, "--n", "N", "answers per line", .least = 1, .most = 1 << 20),
        VERB_OPTION(I64, j.seed, "--seed", "N", "of sampling"),
        VERB_OPTION(TEXT, j.stop, "--stop", "TEXT", "ends an answer"),
        VERB_OPTION(FLAG, j.ignore_eos, "--ignore-eos", NULL,
                    "continue sampling after an end-of-sequence token"),
        VERB_OPTION(TEXT, j.device, "--device", "DEVICE", "cpu, cuda or cuda:1"),
        VERB_OPTION(I64, j.threads, "--threads", "N", "CPU threads; 0: all CPUs at hand",
                    .most = 1 << 16),
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
                 "with \"images\":[..] and \"videos\":[..] for a vision model (docs/vision.md), "
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
    if ((j.image || j.video) && !j.prompt)
        return ares_fail(ARES_EUSE, "generate: --image and --video go with --prompt; lines of "
                                    "--input have \"images\" and \"videos\"");
    int rc = open_all(&j);
    if (rc == ARES_OK) rc = read_input(&j);
    if (rc == ARES_OK) rc = run(&j);
    if (rc == ARES_OK) rc = write_answers(&j);
    close_all(&j);
    return rc;
}
