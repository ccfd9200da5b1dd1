/*
 * The commands that run a model without training it: what they share (from a line of JSON to ids
 * and pictures), then generate and score.
 */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/model.h"
#include "ares/rollout.h"
#include "ares/train.h"

/* Options for images and videos, which generate and score share. */
typedef struct cli_media_options {
    const char *image_dir;
    int64_t min_pixels, max_pixels;
    double video_fps;
} cli_media_options;
#define CLI_MEDIA_DEFAULTS { .video_fps = 2 }
#define CLI_MEDIA(o)                                                                   \
    CLI_OPTION(TEXT, (o).image_dir, "--image-dir", "DIR",                              \
               "where relative paths of images and videos begin"),                     \
        CLI_OPTION(I64, (o).min_pixels, "--min-pixels", "N",                           \
                   "enlarge images of fewer pixels; 0: as the model's processor says", \
                   .most = INT32_MAX),                                                 \
        CLI_OPTION(I64, (o).max_pixels, "--max-pixels", "N",                           \
                   "shrink images of more pixels; 0: as the model's processor says",   \
                   .most = INT32_MAX),                                                 \
        CLI_OPTION(F64, (o).video_fps, "--video-fps", "X", "frames per second of a video")

/* What lines of a model are encoded with. */
typedef struct cli_media {
    const char *tokenizer_dir;
    ares_data_config cfg;
    ares_media_rules rules;
    ares_tokenizer *tokenizer; /* NULL: it cannot be loaded; tokenizer_error says why */
    char *tokenizer_error;
    ares_prompt_encoder *encoder; /* opened without a chat template */
    ares_chat *chat;              /* NULL: not needed yet, or none */
    ares_features *features;      /* NULL: the model reads text alone */
    ares_arena arena;             /* what ids and pictures of lines point into */
} cli_media;

/* From a line of JSON to the ids and pictures that a model reads, as for rows of a data set. */

enum { KEPT_BYTES = 1 << 28 }; /* of image features, kept for further lines with the same file */

/*
 * All but s are borrowed; dir, tokenizer: the directories of model and tokenizer. A model without a
 * tokenizer is fine where lines have ids alone.
 */
static int cli_media_open(cli_media *s, const cli_media_options *o, const char *dir,
                          const char *tokenizer, ares_model *m, const ares_adapter *a)
{
    *s = (cli_media){ .tokenizer_dir = tokenizer,
                      .cfg = { .prompt_key = "prompt",
                               .image_key = "images",
                               .video_key = "videos",
                               .image_dir = o->image_dir,
                               .min_pixels = o->min_pixels ? o->min_pixels : ARES_NULL_I64,
                               .max_pixels = o->max_pixels ? o->max_pixels : ARES_NULL_I64,
                               .video_fps = o->video_fps } };
    if (!(o->video_fps > 0))
        return ares_fail(ARES_EUSE, "--video-fps = %g: must be above 0", o->video_fps);
    if (o->min_pixels && o->max_pixels && o->min_pixels > o->max_pixels)
        return ares_fail(ARES_EUSE, "--min-pixels = %lld exceeds --max-pixels = %lld",
                         (long long)o->min_pixels, (long long)o->max_pixels);
    /* a model without a vision tower refuses images and videos */
    bool sees = m->cfg.vision.depth > 0;
    if (ares_tokenizer_load(tokenizer, &s->tokenizer) != ARES_OK) {
        s->tokenizer = NULL;
        s->tokenizer_error = ares_strdup(ares_error_message());
        ares_error_clear();
    } else
        ARES_TRY(
            ares_model_add_eos(&m->cfg, ares_tokenizer_role_id(s->tokenizer, ARES_TOKEN_EOS), dir));
    if (sees) {
        ARES_TRY(ares_media_rules_load(&m->cfg, dir, &s->rules));
        ARES_TRY(ares_features_new(m, a, &s->rules.processor, KEPT_BYTES, &s->features));
    }
    return ares_prompt_encoder_new(&(ares_prompt_options){ .cfg = &s->cfg,
                                                           .tokenizer = s->tokenizer,
                                                           .row_media = sees ? &s->rules : NULL },
                                   &s->encoder);
}

/* Also for one that was never opened, or opened in part. */
static void cli_media_close(cli_media *s)
{
    ares_features_free(s->features);
    ares_prompt_encoder_free(s->encoder);
    ares_chat_free(s->chat);
    ares_tokenizer_free(s->tokenizer);
    ares_free(s->tokenizer_error);
    ares_arena_fini(&s->arena);
}

/* [{"role": "user", "content": text}] */
static const ares_json *user_message(ares_arena *a, ares_view text)
{
    ares_json *v = ares_arena_calloc(a, 4, sizeof *v), *list = v, *message = v + 1;
    ares_json_member *m = ares_arena_calloc(a, 2, sizeof *m);
    v[2] = (ares_json){ .type = ARES_JSON_STRING, .text = ARES_VIEW("user") };
    v[3] = (ares_json){ .type = ARES_JSON_STRING, .text = text };
    m[0] = (ares_json_member){ ARES_VIEW("role"), &v[2] };
    m[1] = (ares_json_member){ ARES_VIEW("content"), &v[3] };
    *message = (ares_json){ .type = ARES_JSON_OBJECT, .members = m, .count = 2 };
    *list = (ares_json){ .type = ARES_JSON_ARRAY, .items = message, .count = 1 };
    return list;
}

/*
 * The line with add_generation_prompt, or continue_final_message where its last message is the
 * assistant's, as for the prompts of a data set; unchanged where it sets one of them itself.
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

/* Says only now why there is none: lines of ids do without. */
static int need_tokenizer(const cli_media *s)
{
    return s->tokenizer
               ? ARES_OK
               : ares_fail(ARES_EFORMAT, "a text needs a tokenizer: %s", s->tokenizer_error);
}

/* The ids of a conversation. line: has images and videos; variables: of the chat template. */
static int encode_chat(cli_media *s, const ares_json *line, const ares_json *variables,
                       ares_ids *ids, const ares_row_media **row_media)
{
    ares_prompt_media media;
    ares_str text = { 0 };
    /* loaded by the first conversation: lines of ids need none */
    if (!s->chat) ARES_TRY(ares_chat_load(s->tokenizer_dir, NULL, &s->chat));
    ARES_TRY(ares_prompt_media_of(&s->cfg, line, ares_json_get(variables, "messages"), &s->arena,
                                  &media));
    ARES_TRY(ares_prompt_check_media(s->encoder, &media));
    variables =
        ares_prompt_place_media(with_generation_prompt(&s->arena, variables), &media, &s->arena);
    int rc = ares_chat_render(s->chat, variables, NULL, &text);
    if (rc == ARES_OK) rc = ares_tokenizer_encode(s->tokenizer, ares_str_view(&text), false, ids);
    if (rc == ARES_OK) rc = ares_prompt_see(s->encoder, &media, &s->arena, ids, row_media);
    ares_str_fini(&text);
    return rc;
}

/* The ids of a text without a chat template, with the images and videos of a line. */
static int cli_media_text(cli_media *s, const ares_json *line, ares_view text, ares_ids *ids,
                          const ares_row_media **row_media)
{
    ares_prompt_media media;
    ARES_TRY(need_tokenizer(s));
    ARES_TRY(ares_prompt_media_of(&s->cfg, line, NULL, &s->arena, &media));
    ARES_TRY(ares_tokenizer_encode(s->tokenizer, text, true, ids));
    return ares_prompt_see(s->encoder, &media, &s->arena, ids, row_media);
}

/*
 * The ids of a line: input_ids; else messages or a prompt through the chat template (raw: a prompt
 * as it is), ready for an answer. *row_media: its images and videos; NULL: there are none. The line
 * must live until their features have been asked for.
 */
static int cli_media_encode(cli_media *s, const char *verb, const ares_json *line, bool raw,
                            ares_ids *ids, const ares_row_media **row_media)
{
    ARES_TRY(ares_row_adopt(line, "messages", false, &s->arena, &line));
    const ares_json *given = ares_json_get(line, "input_ids"),
                    *messages = ares_json_get(line, "messages"),
                    *prompt = ares_json_get(line, "prompt");
    ares_ids_clear(ids);
    if (given && given->type == ARES_JSON_ARRAY) {
        ares_prompt_media media;
        ARES_TRY(ares_prompt_media_of(&s->cfg, line, NULL, &s->arena, &media));
        ARES_TRY(cli_read_ids(verb, line, "input_ids", ids));
        return ares_prompt_see(s->encoder, &media, &s->arena, ids, row_media);
    }
    ARES_TRY(need_tokenizer(s));
    if (messages && messages->type == ARES_JSON_ARRAY)
        return encode_chat(s, line, line, ids, row_media);
    if (!prompt || prompt->type != ARES_JSON_STRING)
        return ares_fail(ARES_EFORMAT,
                         "%s: a line needs 'prompt' (a string), 'messages' or 'input_ids' (lists)",
                         verb);
    /* a base model has no template: the prompt is continued as it is */
    if (raw || !ares_tokenizer_chat_template(s->tokenizer, NULL).data)
        return cli_media_text(s, line, prompt->text, ids, row_media);
    const ares_json *one = user_message(&s->arena, prompt->text);
    return encode_chat(
        s, line, ares_prompt_variables(line, one, ARES_VIEW("add_generation_prompt"), &s->arena),
        ids, row_media);
}

/*
 * --model and --adapter: the model's directory, and the model with its adapter. A checkpoint or run
 * of an adapter names both.
 */
typedef struct cli_adapted {
    const char *model, *adapter; /* as typed */
    ares_str dir, tokenizer;     /* their directories */
    ares_adapter *a;             /* NULL: none */
} cli_adapted;
#define CLI_ADAPTED(o)                                                                        \
    CLI_OPTION(TEXT, (o).model, "--model", "DIR", "a model, checkpoint or run directory",     \
               .required = true),                                                             \
        CLI_OPTION(TEXT, (o).adapter, "--adapter", "DIR",                                     \
                   "an adapter (LoRA) beside the model: a PEFT directory, checkpoint or run", \
                   .once = true)

static int cli_adapted_open(cli_adapted *o, ares_device *d, const ares_model_options *opt,
                            ares_model **m)
{
    const char *path;
    ARES_TRY(ares_model_adapter(o->model, o->adapter, &path));
    ARES_TRY(ares_model_find(o->model, &o->dir));
    ARES_TRY(ares_model_find_tokenizer(o->model, &o->tokenizer));
    ARES_TRY(ares_model_load(o->dir.data, d, opt, m));
    return path ? ares_adapter_load(*m, o->dir.data, path, &o->a) : ARES_OK;
}

static void cli_adapted_close(cli_adapted *o)
{
    ares_adapter_free(o->a);
    ares_str_fini(&o->dir);
    ares_str_fini(&o->tokenizer);
}

/*
 * ares-train generate: samples from a model with the engine that training uses. All lines are
 * decoded together; the answers are written in the order of the lines.
 */

/* What a line of the input gets. */
typedef struct answer {
    int64_t request; /* number in the engine; -1: the line is bad */
    char *error;     /* why the line is bad; NULL: it is not */
    ares_completion *samples;
} answer;

/* The options of the command, then what they open. */
typedef struct generate_job {
    const char *input, *prompt, *image, *video, *device, *stop, *speculation;
    cli_types types;
    bool raw, ignore_eos;
    int64_t max_new_tokens, top_k, n, seed, threads, max_num_seqs, cache_tokens;
    double temperature, top_p;
    ares_sampling sampling;
    cli_adapted of;
    ares_str text;
    ares_device d;
    ares_model *m;
    cli_media_options row_media;
    cli_media see;
    ares_rollout *rollout;
    ares_ids ids;
    ares_arena arena;
    answer *answers; /* [n_answers], one per line */
    int64_t n_answers, cap;
    ares_completion *samples; /* of all requests */
} generate_job;

/* Adds the request of a line to the engine, which decodes when all are there. */
static int ask(generate_job *j, const ares_json *line, ares_rng_key key, int64_t *request)
{
    const ares_row_media *row_media = NULL;
    ARES_TRY(cli_media_encode(&j->see, "generate", line, j->raw, &j->ids, &row_media));
    ares_request r = { .prompt = j->ids.ids,
                       .prompt_len = (int32_t)j->ids.n,
                       .n = (int32_t)j->n,
                       .sampling = j->sampling,
                       .adapter = j->of.a,
                       .key = key };
    if (row_media) { /* the features of its images and videos, in the order of their places */
        ares_seen *seen =
            ares_arena_alloc(&j->see.arena, (size_t)(row_media->n_places + 1) * sizeof *seen);
        for (int32_t i = 0; i < row_media->n_places; i++)
            ARES_TRY(ares_features_get(j->see.features, row_media->places[i].medium, &seen[i]));
        r.row_media = row_media;
        r.seen = seen;
    }
    return ares_rollout_add(j->rollout, &r, request);
}

/* Adds an answer and its request. bad: the line could not be read; its failure is the answer. */
static void add(generate_job *j, const ares_json *line, int bad)
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

/*
 * Adds the member "images": ["FILE"]. A prompt that does not say where the image stands, as
 * "<image>", gets that place at its beginning.
 */
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

/* --prompt as a line of JSON with --image and --video, so that one reader serves both. */
static int read_prompt(generate_job *j)
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

/*
 * Adds a request for each line, or for --prompt; a line that is no JSON becomes an error in its
 * place.
 */
static int read_input(generate_job *j)
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

/* Decodes all requests at once. Completions come as they end; each finds its place by request. */
static int run(generate_job *j)
{
    /* bad lines have no request */
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
    ares_rollout_stats stats;
    ares_rollout_get_stats(j->rollout, &stats);
    if (rc == ARES_OK && stats.drafted_tokens)
        ares_info("generate: %lld tokens in %lld forward passes: of %lld drafted tokens %lld were "
                  "right",
                  (long long)stats.decoded_tokens, (long long)stats.steps,
                  (long long)stats.drafted_tokens, (long long)stats.accepted_tokens);
    for (int64_t i = 0; i < j->n_answers; i++)
        if (j->answers[i].request >= 0) j->answers[i].samples = all + j->answers[i].request * j->n;
    return rc;
}

/* Appends a sample as JSON; a model without a tokenizer gives no text. */
static int write_sample(generate_job *j, const ares_completion *c, ares_str *out)
{
    ares_str_clear(&j->text);
    if (j->see.tokenizer)
        ARES_TRY(ares_tokenizer_decode(j->see.tokenizer, c->ids, c->n_tokens, true, &j->text));
    ares_json_begin(out, '{');
    if (j->see.tokenizer)
        ares_json_write_string(ares_json_key(out, "text"), ares_str_view(&j->text));
    cli_write_ids(ares_json_key(out, "output_ids"), c->ids, c->n_tokens);
    cli_write_floats(ares_json_key(out, "log_probs"), c->log_probs, c->n_tokens);
    cli_write_floats(ares_json_key(out, "entropies"), c->entropies, c->n_tokens);
    ares_json_write_string(ares_json_key(out, "finish_reason"),
                           ares_view_of(c->finish == ARES_FINISH_STOP ? "stop" : "length"));
    ares_json_end(out, '}');
    return ARES_OK;
}

/* Lines in, lines out; with --prompt the texts alone, "---" between several. */
static int write_answers(generate_job *j)
{
    ares_str out = { 0 };
    /* lines are numbered from 1 */
    int64_t bad = 0, first_bad = 0;
    for (int64_t i = 0; i < j->n_answers; i++) {
        const answer *a = &j->answers[i];
        ares_str_clear(&out);
        if (a->error) {
            if (!bad++) first_bad = i + 1;
            if (j->prompt) break;
            cli_write_error(&out, a->error);
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
    return bad ? cli_bad_lines("generate", j->input, bad, j->n_answers, first_bad) : ARES_OK;
}

/* Opens device, model, tokenizer and engine; close_all closes what was opened. */
static int open_all(generate_job *j)
{
    ares_model_options opt;
    ARES_TRY(cli_types_of("generate", &j->types, j->device, &opt));
    /* a card computes in the type that the weights are stored in, as in training */
    ARES_TRY(ares_device_open_table(j->device, "native", opt.storage, (int)j->threads, &j->d));
    ARES_TRY(cli_adapted_open(&j->of, &j->d, &opt, &j->m));
    const ares_sampling_word sampled[] = { { "temperature", "--temperature", j->temperature },
                                           { "top_p", "--top-p", j->top_p },
                                           { "top_k", "--top-k", (double)j->top_k } };
    ARES_TRY(ares_model_tell_sampling(j->of.dir.data, sampled, ARES_COUNT(sampled)));
    ARES_TRY(cli_media_open(&j->see, &j->row_media, j->of.dir.data, j->of.tokenizer.data, j->m,
                            j->of.a));
    ares_rollout_options o = { .max_num_seqs = (int32_t)j->max_num_seqs,
                               .max_num_batched_tokens = 2048,
                               .drafts_tokens = strcmp(j->speculation, "auto") == 0,
                               .cache_tokens = j->cache_tokens,
                               .state_snapshots = -1 /* no line goes on from another */ };
    j->sampling = (ares_sampling){ .temperature = (float)j->temperature,
                                   .top_p = (float)j->top_p,
                                   .top_k = (int32_t)j->top_k,
                                   .max_new_tokens = (int32_t)j->max_new_tokens,
                                   .ignore_eos = j->ignore_eos,
                                   .n_stop_strings = j->stop ? 1 : 0,
                                   .stop_strings = &j->stop };
    return ares_rollout_new(j->m, j->see.tokenizer, &o, &j->rollout);
}

/* Frees what was opened, also after a failure in between. */
static void close_all(generate_job *j)
{
    for (int64_t i = 0; i < j->n_answers; i++) ares_free(j->answers[i].error);
    ares_free(j->answers);
    ares_free(j->samples);
    ares_rollout_free(j->rollout);
    cli_media_close(&j->see);
    cli_adapted_close(&j->of);
    if (j->m) ares_model_free(j->m);
    ares_device_close(&j->d);
    ares_ids_fini(&j->ids);
    ares_str_fini(&j->text);
    ares_arena_fini(&j->arena);
}

int ares_cli_generate(int argc, char **argv)
{
    generate_job j = { .input = "-",
                       .device = "cpu",
                       .speculation = "auto",
                       .max_new_tokens = 128,
                       .temperature = 1,
                       .top_p = 1,
                       .top_k = -1,
                       .n = 1,
                       .seed = 1,
                       .row_media = CLI_MEDIA_DEFAULTS,
                       .max_num_seqs = 64 };
    bool helped;
    const cli_option options[] = {
        CLI_ADAPTED(j.of),
        CLI_INPUT(j.input),
        CLI_OPTION(TEXT, j.prompt, "--prompt", "TEXT", "one prompt, in place of --input"),
        CLI_OPTION(TEXT, j.image, "--image", "FILE",
                   "an image that --prompt asks about; it comes first, or where the prompt says "
                   "<image>"),
        CLI_OPTION(TEXT, j.video, "--video", "FILE", "likewise a video; <video>"),
        CLI_MEDIA(j.row_media),
        CLI_OPTION(FLAG, j.raw, "--raw", NULL, "prompts are plain text, no chat template"),
        CLI_OPTION(I64, j.max_new_tokens, "--max-new-tokens", "N", "tokens of an answer at most",
                   .least = 1, .most = 1 << 30),
        CLI_OPTION(F64, j.temperature, "--temperature", "X", "of sampling; 0 is greedy"),
        CLI_OPTION(F64, j.top_p, "--top-p", "X", "nucleus sampling; 1 is off"),
        CLI_OPTION(I64, j.top_k, "--top-k", "N",
                   "sample from the N likeliest tokens; -1 and 0 are off", .least = -1,
                   .most = 1 << 30),
        CLI_OPTION(I64, j.n, "--n", "N", "answers per line", .least = 1, .most = 1 << 20),
        CLI_OPTION(I64, j.seed, "--seed", "N", "of sampling"),
        CLI_OPTION(TEXT, j.stop, "--stop", "TEXT", "ends an answer"),
        CLI_OPTION(FLAG, j.ignore_eos, "--ignore-eos", NULL,
                   "continue sampling after an end-of-sequence token"),
        CLI_OPTION(TEXT, j.device, "--device", "DEVICE", "cpu, cuda or cuda:1",
                   .offered = cli_devices, .n_offered = 2),
        CLI_OPTION(I64, j.threads, "--threads", "N", "CPU threads; 0: all CPUs at hand",
                   .most = 1 << 16),
        CLI_TYPES(j.types),
        CLI_OPTION(I64, j.max_num_seqs, "--max-num-seqs", "N",
                   "answers decoded at once; changes speed, no result", .least = 1,
                   .most = 1 << 16),
        CLI_OPTION(I64, j.cache_tokens, "--cache-tokens", "N",
                   "size of the KV cache; changes speed, no result; 0: what full answers need",
                   .most = INT64_MAX),
        CLI_SPECULATION(j.speculation),
    };
    const cli_command command = {
        .name = "generate",
        .usage = "--model DIR [--adapter DIR] [--prompt TEXT | --input FILE] [options]",
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
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    /* lines name their own images */
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

/*
 * ares-train score: log-prob and entropy of every token of a sequence under a model, computed by
 * the functions that training uses.
 */

/* What all lines are scored with. */
typedef struct score_job {
    cli_adapted of;
    ares_model *model;
    ares_workspace *workspace;
    cli_media see;
    ares_ids ids;
    ares_batch batch;
    ares_train_config cfg;
} score_job;

/* The ids of a line: its conversation with its response, its text, or its ids. */
static int read_ids(score_job *j, const ares_json *line, const ares_row_media **row_media)
{
    const ares_json *text = ares_json_get(line, "text");
    bool asked = ares_json_get(line, "messages") || ares_json_get(line, "prompt");
    ares_ids_clear(&j->ids);
    *row_media = NULL;
    if (ares_json_get(line, "input_ids") || asked) {
        ARES_TRY(cli_media_encode(&j->see, "score", line, false, &j->ids, row_media));
        /* the response follows as its own tokens, as a model would have sampled it */
        const ares_json *response = asked ? ares_json_get(line, "response") : NULL;
        if (response && response->type == ARES_JSON_NULL) response = NULL;
        if (response && response->type != ARES_JSON_STRING)
            return ares_fail(ARES_EFORMAT, "score: 'response' is no string");
        if (response)
            ARES_TRY(ares_tokenizer_encode(j->see.tokenizer, response->text, false, &j->ids));
    } else if (text && text->type == ARES_JSON_STRING) {
        ARES_TRY(cli_media_text(&j->see, line, text->text, &j->ids, row_media));
    } else
        return ares_fail(ARES_EFORMAT,
                         "score: a line needs 'input_ids' (a list), 'text' (a string), or 'prompt' "
                         "or 'messages' with a 'response'");
    if (j->ids.n < 1) return ares_fail(ARES_EFORMAT, "score: the sequence is empty");
    if (j->ids.n > j->model->cfg.max_position)
        return ares_fail(ARES_ELIMIT, "score: %lld tokens; the model has %d positions",
                         (long long)j->ids.n, j->model->cfg.max_position);
    return ares_model_check_ids(j->model, j->ids.ids, j->ids.n, *row_media);
}

/* A batch of one row whose prompt is the first token, as training scores rollouts. */
static int score_line(void *ctx, const ares_json *line, ares_str *out)
{
    score_job *j = ctx;
    const ares_row_media *row_media;
    ARES_TRY(read_ids(j, line, &row_media));
    ares_batch *b = &j->batch;
    int64_t n = j->ids.n - 1; /* nothing predicts the first token: it is the row's prompt */
    ares_batch_clear(b);
    ares_sample row = { .prompt = j->ids.ids, .prompt_len = 1, .row_media = row_media };
    ares_batch_begin_group(b);
    ares_batch_add_row(b, &row, n);
    ARES_PUT(b, responses);
    memcpy(b->responses, j->ids.ids + 1, (size_t)n * sizeof *b->responses);
    /* [2n]: log-probs, then entropies */
    float *stats = ares_arena_calloc(&b->arena, (size_t)(2 * n + 1), sizeof *stats);
    if (n)
        ARES_TRY(ares_train_log_probs(j->model, j->of.a, j->workspace, j->see.features, &j->cfg, b,
                                      0, 1, stats, stats + n));
    if (j->see.features) ares_features_trim(j->see.features);
    for (int64_t t = 0; t < n; t++)
        if (!isfinite(stats[t]) || !isfinite(stats[n + t]))
            return ares_fail(ARES_ENUMERIC,
                             "score: log-prob %g and entropy %g of token %lld (of 0 to %lld); the "
                             "weights hold NaN or infinity",
                             stats[t], stats[n + t], (long long)t + 1, (long long)n);
    ares_json_begin(out, '{');
    cli_write_floats(ares_json_key(out, "log_probs"), stats, n);
    cli_write_floats(ares_json_key(out, "entropies"), stats + n, n);
    ares_json_end(out, '}');
    return ARES_OK;
}

int ares_cli_score(int argc, char **argv)
{
    const char *input = "-", *device = "cpu";
    cli_types types = { 0 };
    int64_t threads = 0;
    cli_media_options row_media = CLI_MEDIA_DEFAULTS;
    score_job j = { .cfg = { .actor = { .max_token_len = INT32_MAX, .share_prompts = false },
                             .rollout = { .temperature = 1 } } };
    bool helped;
    const cli_option options[] = {
        CLI_ADAPTED(j.of),
        CLI_INPUT(input),
        CLI_OPTION(TEXT, device, "--device", "DEVICE", "cpu, cuda or cuda:1",
                   .offered = cli_devices, .n_offered = 2),
        CLI_OPTION(I64, threads, "--threads", "N", "CPU threads; 0: all CPUs at hand",
                   .most = 1 << 16),
        CLI_TYPES(types),
        CLI_MEDIA(row_media),
    };
    const cli_command command = {
        .name = "score",
        .usage = "--model DIR [--adapter DIR] [--input FILE] [--device cpu] [--threads N]",
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
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    ares_device d;
    ares_model_options opt;
    ARES_TRY(cli_types_of("score", &types, device, &opt));
    ares_batch_init(&j.batch);
    /* a card computes in the type that the weights are stored in, as in training */
    ARES_TRY(ares_device_open_table(device, "native", opt.storage, (int)threads, &d));
    int rc = cli_adapted_open(&j.of, &d, &opt, &j.model);
    if (rc == ARES_OK) rc = ares_workspace_new(j.model, ARES_KEEP_NOTHING, &j.workspace);
    if (rc == ARES_OK && j.of.a) (void)ares_workspace_adapt(j.workspace, j.of.a->rank);
    if (rc == ARES_OK)
        rc =
            cli_media_open(&j.see, &row_media, j.of.dir.data, j.of.tokenizer.data, j.model, j.of.a);
    if (rc == ARES_OK) rc = cli_each_line("score", input, score_line, &j);
    cli_media_close(&j.see);
    ares_batch_fini(&j.batch);
    ares_ids_fini(&j.ids);
    ares_workspace_free(j.workspace);
    cli_adapted_close(&j.of);
    ares_model_free(j.model);
    ares_device_close(&d);
    return rc;
}
