/*
 * The life of a request to OpenAI's endpoints, on the worker: its prompts (rendered, continued from
 * a session, encoded), what it asks of the engine, and its answer, whole or as a stream of pieces.
 * Both are made of the same pieces (cut.c), so they cannot differ.
 */
#include <math.h>
#include <string.h>

#include "server.h"

enum {
    KEPT_BYTES = 1 << 28, /* of features of pictures, which a trim would leave */
    /* contexts of a freshly encoded prompt that no ids of a session could shorten to one */
    FAR = 2
};

/* ------------------------------------------------------------------ prompts */
/* An object of these members; NULL values are left out. */
static const ares_json *object_of(ares_arena *a, const ares_json_member *members, int n)
{
    ares_json_member *list = ares_arena_alloc(a, (size_t)n * sizeof *list);
    ares_json *out = ares_arena_calloc(a, 1, sizeof *out);
    *out = (ares_json){ .type = ARES_JSON_OBJECT, .members = list };
    for (int i = 0; i < n; i++)
        if (members[i].value) list[out->count++] = members[i];
    return out;
}

/* What the chat template reads. last: the request's own generation prompt, or none of it. */
static const ares_json *variables_of(serve_job *j, const ares_json *messages, bool last)
{
    static const ares_json yes = { .type = ARES_JSON_BOOL, .boolean = true };
    const serve_asked *q = &j->asked;
    const ares_server *s = j->server;
    const serve_for_template how = { .generic = s->generic_tools, .vision = s->encoder != NULL };
    const ares_json_member members[] = {
        { ARES_VIEW("messages"), serve_messages_for_template(&j->arena, messages, q->tools, how) },
        { ARES_VIEW("tools"), s->generic_tools ? NULL : q->tools },
        { ARES_VIEW("chat_template_kwargs"), q->chat_template_kwargs },
        { ARES_VIEW("add_generation_prompt"), last && q->add_generation_prompt ? &yes : NULL },
        { ARES_VIEW("continue_final_message"), last && q->continue_final_message ? &yes : NULL },
    };
    return object_of(&j->arena, members, ARES_COUNT(members));
}

/* serve_render_fn */
static int render(void *ctx, const ares_json *messages, bool last, ares_str *out)
{
    serve_job *j = ctx;
    return ares_chat_render(j->server->chat, variables_of(j, messages, last), NULL, out);
}

/* Whether a prompt's end opens the model's thoughts. */
static bool opens_thoughts(ares_view text)
{
    const ares_view tag = ARES_VIEW("<think>");
    text = ares_view_trim(text);
    return text.len >= tag.len && memcmp(text.data + text.len - tag.len, tag.data, tag.len) == 0;
}

static serve_code refuse(serve_job *j, serve_code code, const char *param)
{
    return j->code = serve_refuse(&j->error, &j->arena, code, param, "%s", ares_error_message());
}

/* The pictures of a conversation: their places among the ids, and what the tower makes of them. */
static int show(serve_job *j, const ares_prompt_media *media, job_prompt *p)
{
    ares_server *s = j->server;
    ARES_TRY(ares_prompt_see(s->encoder, media, &j->arena, &p->ids, &p->row_media));
    if (!p->row_media) return ARES_OK;
    ares_seen *seen =
        ares_arena_calloc(&j->arena, (size_t)p->row_media->n_places + 1, sizeof *seen);
    j->sees = s->shown = true;
    /* an adapter may change what the tower makes of a picture */
    ares_features **of = &s->features[ARES_MAX(j->asked.model - s->o.n_names + 1, 0)];
    if (!*of)
        ARES_TRY(ares_features_new(s->model, j->adapter, &s->rules.processor, KEPT_BYTES, of));
    for (int32_t i = 0; i < p->row_media->n_places; i++)
        ARES_TRY(ares_features_get(*of, p->row_media->places[i].medium, &seen[i]));
    p->seen = seen;
    return ARES_OK;
}

/* A vision model's conversation: all of it is encoded anew each time. */
static int encode_seeing(serve_job *j, job_prompt *p, ares_str *text)
{
    ares_server *s = j->server;
    const ares_json_member images = { ARES_VIEW("images"), j->asked.images };
    ares_prompt_media media;
    const ares_json *variables = variables_of(j, j->asked.messages, true);
    ARES_TRY(
        ares_prompt_media_of(&s->data, object_of(&j->arena, &images, 1), NULL, &j->arena, &media));
    ARES_TRY(ares_prompt_check_media(s->encoder, &media));
    ARES_TRY(ares_chat_render(s->chat, variables, NULL, text));
    ARES_TRY(ares_tokenizer_encode(s->tokenizer, ares_str_view(text), false, &p->ids));
    return show(j, &media, p);
}

/* Where the ids of answers are kept that the request may continue; NULL: nowhere. */
static serve_session *session_of(serve_job *j)
{
    if (j->episode) return j->kept;
    if (!j->asked.session.len) return NULL;
    return serve_sessions_open(j->server->sessions, j->asked.session);
}

/*
 * Continues the ids that the session keeps of the conversation. False: it keeps none, or what
 * follows them cannot be told apart.
 */
static bool continue_session(serve_job *j, serve_session *session, job_prompt *p, ares_str *text)
{
    ares_server *s = j->server;
    const serve_asked *q = &j->asked;
    const serve_talk talk = { q->messages, q->tools, q->chat_template_kwargs,
                              q->continue_final_message };
    serve_kept kept;
    int64_t at = serve_session_match(session, &talk, &kept);
    if (at < 0) return false;
    if (serve_text_after(&j->arena, q->messages, at, render, j, text) &&
        serve_ids_after(s->tokenizer, &kept, ares_str_view(text), s->model->cfg.eos,
                        s->model->cfg.n_eos, &p->ids) == ARES_OK)
        return true;
    ares_error_clear();
    ares_str_clear(text);
    ares_ids_clear(&p->ids);
    j->encoded_anew = true;
    pthread_mutex_lock(&s->lock);
    s->reencoded++;
    pthread_mutex_unlock(&s->lock);
    return false;
}

/* fresh: without what a session keeps, and without pictures. */
static void prepare_chat(serve_job *j, bool fresh)
{
    ares_server *s = j->server;
    const serve_asked *q = &j->asked;
    job_prompt *p = &j->prompts[0];
    serve_session *session;
    ares_str text = { 0 };
    if (!s->chat) {
        j->code = serve_refuse(&j->error, &j->arena, SERVE_template_error, "messages", "%s",
                               s->chat_error);
        return;
    }
    if (s->encoder && !fresh) {
        if (encode_seeing(j, p, &text) != ARES_OK) refuse(j, SERVE_template_error, "messages");
    } else if (fresh || !(session = session_of(j)) || !continue_session(j, session, p, &text)) {
        if (render(j, q->messages, true, &text) != ARES_OK)
            refuse(j, SERVE_template_error, "messages");
        else if (ares_tokenizer_encode(s->tokenizer, ares_str_view(&text), q->add_special_tokens,
                                       &p->ids) != ARES_OK)
            refuse(j, SERVE_invalid_value, "messages");
    }
    p->opened = opens_thoughts(ares_str_view(&text));
    ares_str_fini(&text);
}

/* Opening of a forced call: it is part of the prompt. */
static void add_opening(serve_job *j, job_prompt *p)
{
    const serve_asked *q = &j->asked;
    ares_view opening = serve_opening(&j->arena, j->server->form, q->tool_choice, q->tool_name);
    if (opening.len && ares_tokenizer_encode_rest(j->server->tokenizer, opening, &p->ids) < 0)
        refuse(j, SERVE_invalid_value, "tool_choice");
}

static void prepare_text(serve_job *j, const serve_prompt *asked, job_prompt *p, bool fresh)
{
    ares_server *s = j->server;
    const serve_asked *q = &j->asked;
    if (!asked->is_text) {
        for (int64_t i = 0; i < asked->n; i++) ares_ids_add(&p->ids, asked->ids[i], 0, 0);
        return;
    }
    p->text = asked->text;
    serve_kept kept;
    size_t had = 0;
    serve_session *session = fresh ? NULL : session_of(j);
    if (session) had = serve_session_match_text(session, asked->text, &kept);
    for (int64_t i = 0; had && i < kept.n; i++) ares_ids_add(&p->ids, kept.ids[i], 0, 0);
    ares_view rest = { asked->text.data + had, asked->text.len - had };
    int rc = had ? ares_tokenizer_encode_rest(s->tokenizer, rest, &p->ids)
                 : ares_tokenizer_encode(s->tokenizer, rest, q->add_special_tokens, &p->ids);
    if (rc != ARES_OK) refuse(j, SERVE_invalid_value, "prompt");
}

/* How many requests with the same ids and sampling came before this one. */
static uint64_t count_equal(ares_server *s, const job_prompt *p, const serve_asked *q)
{
    uint64_t h = ares_fnv1a(ARES_FNV1A, p->ids.ids, (size_t)p->ids.n * sizeof *p->ids.ids);
    double words[] = { q->temperature, q->top_p, (double)q->top_k };
    h = ares_fnv1a(h, words, sizeof words);
    int64_t n = 0;
    ares_view key = { (const char *)&h, sizeof h };
    (void)ares_map_get(s->seen_before, key, &n);
    ares_map_put(s->seen_before, key, n + 1);
    return (uint64_t)n;
}

/* Length and seed of a prompt that is encoded. */
static void check_prompt(serve_job *j, job_prompt *p)
{
    ares_server *s = j->server;
    const serve_asked *q = &j->asked;
    bool tokens = q->endpoint & (SERVE_TOKENIZE | SERVE_DETOKENIZE);
    if (j->code != SERVE_NO_ERROR || tokens) return;
    if (p->ids.n < 1) {
        j->code = serve_refuse(&j->error, &j->arena, SERVE_invalid_value,
                               q->endpoint == SERVE_COMPLETIONS ? "prompt" : "messages",
                               "the prompt is empty; a model needs one token to start from");
        return;
    }
    /* of an episode, an answer is cut to the room */
    int64_t wanted = j->episode ? 1 : ARES_MAX(q->max_tokens, q->max_tokens == 0 ? 0 : 1);
    if (p->ids.n + wanted > s->o.max_model_len || p->ids.n >= s->o.max_model_len) {
        j->code = serve_refuse_length(&j->error, &j->arena,
                                      q->endpoint == SERVE_COMPLETIONS ? "prompt" : "messages",
                                      s->o.max_model_len, p->ids.n, q->max_tokens);
        return;
    }
    if (j->episode) {
        p->k = (uint64_t)s->play->equal(s->play->ctx, j->episode, p->ids.ids, p->ids.n);
        return;
    }
    if (q->has_seed) {
        p->seed = q->seed;
        return;
    }
    /* greedy answers need no counting, and are most of what is asked again and again */
    p->k = q->temperature == 0 ? 0 : count_equal(s, p, q);
    p->seed = serve_seed((int64_t)s->o.seed, p->ids.ids, p->ids.n, q->temperature, q->top_p,
                         q->top_k, (int64_t)p->k);
}

static void open_choices(serve_job *j)
{
    const serve_asked *q = &j->asked;
    ares_server *s = j->server;
    bool chat = q->endpoint != SERVE_COMPLETIONS;
    bool reads = chat && q->tools && q->tool_choice != SERVE_CHOOSE_NONE;
    j->n_choices = q->n_prompts * q->n;
    j->choices = ares_calloc((size_t)j->n_choices, sizeof *j->choices);
    j->n_likely = (int32_t)ARES_MAX(q->logprobs, 0);
    for (int64_t i = 0; i < j->n_choices; i++) {
        const serve_cut_options o = {
            .stop = q->stop,
            .n_stop = q->n_stop,
            .include_stop = q->include_stop_str_in_output,
            .skip_special = q->skip_special_tokens,
            .form = reads ? s->form : SERVE_FORM_NONE,
            .opening = chat ? serve_opening(&j->arena, s->form, q->tool_choice, q->tool_name)
                            : (ares_view){ 0 },
            .one_call =
                reads && (q->tool_choice == SERVE_CHOOSE_FUNCTION || !q->parallel_tool_calls),
            .reasoning = chat && strcmp(s->o.reasoning, "think") == 0,
            .opened = j->prompts[i / q->n].opened,
        };
        j->choices[i].cut = serve_cut_new(&o);
    }
}

/* Fields that the run decides, where the request says otherwise: each is named once. */
static void tell_overridden(ares_server *s, const serve_asked *q, const ares_sampling *run)
{
    const struct {
        const char *name;
        double asked, used;
    } words[] = { { "temperature", q->temperature, (double)run->temperature },
                  { "top_p", q->top_p, (double)run->top_p },
                  { "top_k", (double)q->top_k, (double)run->top_k },
                  { "seed", 1, 0 } };
    for (int i = 0; i < ARES_COUNT(words); i++) {
        const ares_json *v = ares_json_get(q->body, words[i].name);
        if (!v || v->type == ARES_JSON_NULL || words[i].asked == words[i].used) continue;
        pthread_mutex_lock(&s->lock);
        bool told = ares_map_get(s->ignored, ares_view_of(words[i].name), NULL);
        ares_map_put(s->ignored, ares_view_of(words[i].name), 1);
        pthread_mutex_unlock(&s->lock);
        if (!told)
            ares_info("serve: '%s' of requests is the run's own while it trains; the request's is "
                      "not used",
                      words[i].name);
    }
}

/* What ends the run's answers ends those of its episodes, too. */
static void take_stops(serve_job *j, const ares_sampling *run)
{
    serve_asked *q = &j->asked;
    size_t n = (size_t)q->n_stop_token_ids, more = (size_t)run->n_stop_ids;
    int32_t *ids = ares_arena_calloc(&j->arena, n + more + 1, sizeof *ids);
    if (n) memcpy(ids, q->stop_token_ids, n * sizeof *ids);
    if (more) memcpy(ids + n, run->stop_ids, more * sizeof *ids);
    q->stop_token_ids = ids;
    q->n_stop_token_ids += run->n_stop_ids;
    ares_view *stop =
        ares_arena_calloc(&j->arena, (size_t)(q->n_stop + run->n_stop_strings) + 1, sizeof *stop);
    for (int i = 0; i < q->n_stop; i++) stop[i] = q->stop[i];
    for (int i = 0; i < run->n_stop_strings; i++)
        stop[q->n_stop + i] = ares_view_of(run->stop_strings[i]);
    q->stop = stop;
    q->n_stop += run->n_stop_strings;
    q->ignore_eos = q->ignore_eos || run->ignore_eos;
}

void serve_job_enter(serve_job *j)
{
    ares_server *s = j->server;
    const ares_serve_play *play = s->play;
    serve_asked *q = &j->asked;
    void *episode = play ? play->episode(play->ctx, serve_call_head(j->call)->key) : NULL;
    if (!episode) {
        j->code = serve_refuse(&j->error, &j->arena, SERVE_invalid_api_key, NULL,
                               "the key is of no episode that is being played; use the key that "
                               "stands in OPENAI_API_KEY or in the episode's line");
        return;
    }
    if (!play->begun(play->ctx, episode, j->arrived_s, &j->kept, &j->key, &j->index, &j->line)) {
        j->code = serve_refuse(&j->error, &j->arena, SERVE_episode_limit, NULL,
                               "the episode has made as many requests as it may (max_requests)");
        return;
    }
    j->episode = episode;
    j->adapter = play->adapter;
    if (q->endpoint & (SERVE_TOKENIZE | SERVE_DETOKENIZE)) return;
    tell_overridden(s, q, play->sampling);
    q->temperature = (double)play->sampling->temperature;
    q->top_p = (double)play->sampling->top_p;
    q->top_k = play->sampling->top_k;
    q->has_seed = false;
    take_stops(j, play->sampling);
    int64_t most = play->sampling->max_new_tokens;
    q->max_tokens = q->max_tokens < 0 ? most : ARES_MIN(q->max_tokens, most);
    if (q->logprobs > 0 || q->prompt_logprobs >= 0)
        j->code = serve_refuse(&j->error, &j->arena, SERVE_unsupported_parameter,
                               q->logprobs > 0 ? "top_logprobs" : "prompt_logprobs",
                               "a training run records the drawn tokens' log-probs alone; leave "
                               "it out");
}

static void encode_prompts(serve_job *j, bool fresh)
{
    const serve_asked *q = &j->asked;
    int64_t n = ARES_MAX(q->n_prompts, 1);
    j->asked.n_prompts = n;
    j->prompts = ares_calloc((size_t)n, sizeof *j->prompts);
    /* with /tokens, the ids are the prompt, whatever the messages say */
    if (q->messages && q->endpoint != SERVE_CHAT_TOKENS) prepare_chat(j, fresh);
    else
        for (int64_t i = 0; i < n && q->prompts && j->code == SERVE_NO_ERROR; i++)
            prepare_text(j, &q->prompts[i], &j->prompts[i], fresh);
}

static void free_prompts(serve_job *j)
{
    for (int64_t i = 0; j->prompts && i < j->asked.n_prompts; i++)
        ares_ids_fini(&j->prompts[i].ids);
    ares_free(j->prompts);
    j->prompts = NULL;
}

void serve_job_encode(serve_job *j)
{
    const ares_server *s = j->server;
    const serve_asked *q = &j->asked;
    int64_t longest = 0;
    encode_prompts(j, true);
    for (int64_t i = 0; i < q->n_prompts; i++) longest = ARES_MAX(longest, j->prompts[i].ids.n);
    bool far = longest > FAR * (int64_t)s->o.max_model_len;
    bool tokens = q->endpoint & (SERVE_TOKENIZE | SERVE_DETOKENIZE);
    j->encoded = !s->o.rollout && !s->encoder && (!q->session.len || (tokens && far));
    if (j->encoded) return;
    free_prompts(j); /* sessions, pictures and keys of episodes are the worker's */
    j->code = SERVE_NO_ERROR;
    if (far && !tokens)
        j->code = serve_refuse_length(&j->error, &j->arena,
                                      q->endpoint == SERVE_COMPLETIONS ? "prompt" : "messages",
                                      s->o.max_model_len, longest, q->max_tokens);
}

void serve_job_prepare(serve_job *j)
{
    const serve_asked *q = &j->asked;
    if (!j->encoded) encode_prompts(j, false);
    if (q->endpoint & (SERVE_TOKENIZE | SERVE_DETOKENIZE)) return;
    if (q->endpoint != SERVE_COMPLETIONS && j->code == SERVE_NO_ERROR) add_opening(j, j->prompts);
    for (int64_t i = 0; i < q->n_prompts; i++) {
        j->prompts[i].cached = -1;
        check_prompt(j, &j->prompts[i]);
    }
    if (j->code == SERVE_NO_ERROR) open_choices(j);
}

/* Most tokens of an answer to this prompt. */
static int32_t longest(const serve_job *j, const job_prompt *p)
{
    int64_t room = j->server->o.max_model_len - p->ids.n, asked = j->asked.max_tokens;
    return (int32_t)(asked < 0 ? room : ARES_MIN(ARES_MAX(asked, 1), room));
}

ares_request serve_job_request(serve_job *j, int64_t choice, int32_t n)
{
    const serve_asked *q = &j->asked;
    ares_server *s = j->server;
    const job_prompt *p = &j->prompts[choice / q->n];
    const ares_sampling *run = j->episode ? s->play->sampling : NULL;
    ares_request r = {
        .prompt = p->ids.ids,
        .prompt_len = (int32_t)p->ids.n,
        .n = n,
        .first_index = (int32_t)(choice % q->n),
        .sampling = { .temperature = (float)q->temperature,
                      .top_p = (float)q->top_p,
                      .top_k = (int32_t)q->top_k,
                      .max_new_tokens = longest(j, p),
                      .ignore_eos = q->ignore_eos,
                      .n_stop_ids = (int32_t)q->n_stop_token_ids,
                      .stop_ids = q->stop_token_ids },
        .key = ares_rng_sub(ares_rng_sub(ares_rng_root(p->seed, ARES_RNG_SAMPLE), 0, 0), 0, 0),
        .row_media = p->row_media,
        .seen = p->seen,
        .adapter = j->adapter,
        .n_likely = j->n_likely,
    };
    if (run) { /* samples of an episode have a key each */
        r.n = 1;
        r.first_index = j->index;
        r.key = j->key;
        r.turn = serve_turn(p->ids.ids, p->ids.n, (int64_t)p->k, choice % q->n);
    }
    bool echo = q->echo && q->logprobs >= 0;
    if (choice % q->n == 0 && (q->prompt_logprobs >= 0 || echo) && p->ids.n > 1)
        r.scores = (ares_prompt_scores_wanted){ .width = 1,
                                                .n_likely = (int32_t)ARES_MAX(
                                                    q->prompt_logprobs, echo ? q->logprobs : 0),
                                                .ranks = q->prompt_logprobs >= 0 };
    return r;
}

/* A copy in the job's arena; NULL stays. */
static void *kept(serve_job *j, const void *from, int64_t n)
{
    return from ? ares_arena_copy(&j->arena, from, (size_t)n * 4) : NULL;
}

void serve_job_scores(serve_job *j, int64_t choice, const ares_prompt_scores *s)
{
    job_prompt *p = &j->prompts[choice / j->asked.n];
    p->rows = s->rows;
    p->n_likely = s->n_likely;
    p->log_probs = kept(j, s->log_probs, s->rows);
    p->ranks = kept(j, s->ranks, s->rows);
    p->likely_tokens = kept(j, s->likely_tokens, (int64_t)s->rows * s->n_likely);
    p->likely_log_probs = kept(j, s->likely_log_probs, (int64_t)s->rows * s->n_likely);
}

/* ------------------------------------------------------------------ parts of answers */
static ares_view bytes_of(const serve_job *j, int32_t id)
{
    return ares_tokenizer_token_bytes(j->server->tokenizer, id);
}

/* "token": its text, or token_id:N. */
static void write_token(const serve_job *j, ares_str *out, int32_t id)
{
    if (!j->asked.return_tokens_as_token_ids) {
        ares_json_write_string(out, bytes_of(j, id));
        return;
    }
    char text[32];
    snprintf(text, sizeof text, "token_id:%d", id);
    ares_json_write_string(out, ares_view_of(text));
}

static void write_ids(ares_str *out, const char *key, const int32_t *ids, int64_t n)
{
    ares_json_begin(ares_json_key(out, key), '[');
    for (int64_t i = 0; i < n; i++) ares_json_write_i64(out, ids[i]);
    ares_json_end(out, ']');
}

/* {token, logprob, bytes} without its end */
static void begin_entry(const serve_job *j, ares_str *out, int32_t id, float log_prob)
{
    ares_view bytes = bytes_of(j, id);
    ares_json_begin(out, '{');
    write_token(j, ares_json_key(out, "token"), id);
    ares_json_write_float(ares_json_key(out, "logprob"), log_prob);
    ares_json_begin(ares_json_key(out, "bytes"), '[');
    for (size_t i = 0; i < bytes.len; i++) ares_json_write_i64(out, (unsigned char)bytes.data[i]);
    ares_json_end(out, ']');
}

/* logprobs of chat, for tokens [first, end) */
static void write_chat_logprobs(const serve_job *j, const job_choice *c, int64_t first, int64_t end,
                                ares_str *out)
{
    ares_json_key(out, "logprobs");
    if (j->asked.logprobs < 0) {
        ares_json_write_null(out);
        return;
    }
    ares_json_begin(out, '{');
    ares_json_begin(ares_json_key(out, "content"), '[');
    for (int64_t i = first; i < end; i++) {
        begin_entry(j, out, c->ids[i], c->log_probs_1[i]);
        ares_json_begin(ares_json_key(out, "top_logprobs"), '[');
        for (int32_t k = 0; k < j->n_likely; k++) {
            int32_t id = c->likely_tokens[i * j->n_likely + k];
            if (id < 0) break;
            begin_entry(j, out, id, c->likely_log_probs[i * j->n_likely + k]);
            ares_json_end(out, '}');
        }
        ares_json_end(out, ']');
        ares_json_end(out, '}');
    }
    ares_json_end(out, ']');
    ares_json_write_null(ares_json_key(out, "refusal"));
    ares_json_end(out, '}');
}

/* {"ID":{"logprob","rank","decoded_token"}} of a row of a prompt's scores */
static void write_prompt_entry(const serve_job *j, ares_str *out, int32_t id, float log_prob,
                               int32_t rank)
{
    char key[16];
    snprintf(key, sizeof key, "%d", id);
    ares_json_begin(ares_json_key(out, key), '{');
    ares_json_write_float(ares_json_key(out, "logprob"), log_prob);
    ares_json_write_i64(ares_json_key(out, "rank"), rank);
    ares_json_write_string(ares_json_key(out, "decoded_token"), bytes_of(j, id));
    ares_json_end(out, '}');
}

static void write_prompt_logprobs(const serve_job *j, const job_prompt *p, ares_str *out)
{
    ares_json_begin(ares_json_key(out, "prompt_logprobs"), '[');
    ares_json_write_null(out);
    for (int32_t t = 0; t < p->rows; t++) {
        int32_t own = p->ids.ids[t + 1];
        bool listed = false;
        ares_json_begin(out, '{');
        for (int32_t k = 0; k < j->asked.prompt_logprobs; k++) {
            int32_t id = p->likely_tokens[t * p->n_likely + k];
            if (id < 0) break;
            write_prompt_entry(j, out, id, p->likely_log_probs[t * p->n_likely + k], k + 1);
            listed |= id == own;
        }
        if (!listed) write_prompt_entry(j, out, own, p->log_probs[t], p->ranks[t]);
        ares_json_end(out, '}');
    }
    ares_json_end(out, ']');
}

/* A token of completions' logprobs: whose log-prob may be missing, and the likeliest beside it. */
typedef struct told_token {
    int32_t id;
    const float *log_prob;
    int32_t n_likely;
    const int32_t *likely;
    const float *likely_log_probs;
} told_token;

/* Entry of a top_logprobs map; of two ids with one text the likelier stands. */
static void write_top(const serve_job *j, const told_token *t, ares_str *out)
{
    if (!j->asked.logprobs || !t->log_prob) {
        ares_json_write_null(out);
        return;
    }
    ares_map *told = ares_map_new();
    bool own = false;
    ares_json_begin(out, '{');
    for (int32_t k = 0; k <= t->n_likely; k++) {
        bool last = k == t->n_likely;
        if (last && own) break;
        int32_t id = last ? t->id : t->likely[k];
        if (id < 0) continue;
        float log_prob = last ? *t->log_prob : t->likely_log_probs[k];
        own |= id == t->id;
        ares_str name = { 0 };
        if (j->asked.return_tokens_as_token_ids) ares_str_addf(&name, "token_id:%d", id);
        else ares_str_add_view(&name, bytes_of(j, id));
        if (!ares_map_get(told, ares_str_view(&name), NULL)) {
            ares_map_put(told, ares_str_view(&name), 1);
            ares_json_write_float(ares_json_key_view(out, ares_str_view(&name)), log_prob);
        }
        ares_str_fini(&name);
    }
    ares_json_end(out, '}');
    ares_map_free(told);
}

/* Code points that begin in a text. */
static int64_t code_points(ares_view text)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.len; i++) n += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return n;
}

/* logprobs of completions. *offset: code points of `text` before the first of the tokens */
static void write_completion_logprobs(const serve_job *j, const told_token *t, int64_t n,
                                      int64_t *offset, ares_str *out)
{
    static const char *const lists[] = { "tokens", "token_logprobs", "top_logprobs",
                                         "text_offset" };
    ares_json_begin(ares_json_key(out, "logprobs"), '{');
    for (int list = 0; list < ARES_COUNT(lists); list++) {
        ares_json_begin(ares_json_key(out, lists[list]), '[');
        for (int64_t i = 0; i < n; i++) {
            if (list == 0) write_token(j, out, t[i].id);
            if (list == 1 && t[i].log_prob) ares_json_write_float(out, *t[i].log_prob);
            else if (list == 1) ares_json_write_null(out);
            if (list == 2) write_top(j, &t[i], out);
            if (list < 3) continue;
            ares_json_write_i64(out, *offset);
            bool shown = !j->asked.skip_special_tokens ||
                         !ares_tokenizer_is_special(j->server->tokenizer, t[i].id);
            if (shown) *offset += code_points(bytes_of(j, t[i].id));
        }
        ares_json_end(out, ']');
    }
    ares_json_end(out, '}');
}

/* Tokens [first, end) of a choice, after those of the prompt where they are echoed. */
static void write_told(const serve_job *j, int64_t choice, int64_t first, int64_t end,
                       int64_t *offset, ares_str *out)
{
    const job_choice *c = &j->choices[choice];
    const job_prompt *p = &j->prompts[choice / j->asked.n];
    if (j->asked.logprobs < 0) {
        ares_json_write_null(ares_json_key(out, "logprobs"));
        return;
    }
    int64_t echoed = j->asked.echo ? p->ids.n : 0, n = 0;
    told_token *told = ares_calloc((size_t)(echoed + end - first) + 1, sizeof *told);
    for (int64_t i = 0; i < echoed; i++, n++) {
        int64_t row = i - 1;
        told[n].id = p->ids.ids[i];
        if (row < 0) continue;
        told[n].log_prob = &p->log_probs[row];
        told[n].n_likely = j->n_likely;
        told[n].likely = p->likely_tokens + row * p->n_likely;
        told[n].likely_log_probs = p->likely_log_probs + row * p->n_likely;
    }
    for (int64_t i = first; i < end; i++, n++)
        told[n] = (told_token){ .id = c->ids[i],
                                .log_prob = &c->log_probs_1[i],
                                .n_likely = j->n_likely,
                                .likely = c->likely_tokens + i * j->n_likely,
                                .likely_log_probs = c->likely_log_probs + i * j->n_likely };
    write_completion_logprobs(j, told, n, offset, out);
    ares_free(told);
}

static void write_finish(const serve_job *j, const job_choice *c, ares_str *out)
{
    const serve_answer *a = serve_cut_answer(c->cut);
    ares_json_write_string(ares_json_key(out, "finish_reason"),
                           ares_view_of(serve_finish_names[a->finish]));
    ares_json_key(out, "stop_reason");
    if (a->stop >= 0) ares_json_write_string(out, j->asked.stop[a->stop]);
    else if (a->by_stop_id) ares_json_write_i64(out, c->ids[a->n_tokens - 1]);
    else ares_json_write_null(out);
}

static void write_usage(const serve_job *j, ares_str *out)
{
    int64_t prompt = 0, cached = 0, completion = 0;
    for (int64_t i = 0; i < j->asked.n_prompts; i++) {
        prompt += j->prompts[i].ids.n;
        cached += ARES_MAX(j->prompts[i].cached, 0);
    }
    for (int64_t i = 0; i < j->n_choices; i++)
        if (j->asked.max_tokens != 0) completion += j->choices[i].n;
    ares_json_begin(ares_json_key(out, "usage"), '{');
    ares_json_write_i64(ares_json_key(out, "prompt_tokens"), prompt);
    ares_json_write_i64(ares_json_key(out, "completion_tokens"), completion);
    ares_json_write_i64(ares_json_key(out, "total_tokens"), prompt + completion);
    ares_json_begin(ares_json_key(out, "prompt_tokens_details"), '{');
    ares_json_write_i64(ares_json_key(out, "cached_tokens"), cached);
    ares_json_end(out, '}');
    ares_json_end(out, '}');
}

static void call_id(const serve_job *j, int64_t choice, int32_t number, char out[SERVE_CALL_ID])
{
    const job_choice *c = &j->choices[choice];
    const job_prompt *p = &j->prompts[choice / j->asked.n];
    serve_call_id(p->ids.ids, p->ids.n, c->ids, c->n, number, out);
}

static void write_calls(const serve_job *j, int64_t choice, int first, int end, bool numbered,
                        ares_str *out)
{
    const serve_answer *a = serve_cut_answer(j->choices[choice].cut);
    char id[SERVE_CALL_ID];
    ares_json_begin(ares_json_key(out, "tool_calls"), '[');
    for (int i = first; i < end; i++) {
        call_id(j, choice, i, id);
        ares_json_begin(out, '{');
        if (numbered) ares_json_write_i64(ares_json_key(out, "index"), i);
        ares_json_write_string(ares_json_key(out, "id"), ares_view_of(id));
        ares_json_write_string(ares_json_key(out, "type"), ARES_VIEW("function"));
        ares_json_begin(ares_json_key(out, "function"), '{');
        ares_json_write_string(ares_json_key(out, "name"), a->calls[i].name);
        ares_json_write_string(ares_json_key(out, "arguments"), a->calls[i].arguments);
        ares_json_end(out, '}');
        ares_json_end(out, '}');
    }
    ares_json_end(out, ']');
}

/* What every answer and every chunk begins with. */
static void begin_answer(const serve_job *j, const char *object, ares_str *out)
{
    const ares_server *s = j->server;
    uint64_t version = j->episode   ? (uint64_t)s->play->weight_version
                       : j->adapter ? j->adapter->version
                                    : 0;
    char print[96];
    snprintf(print, sizeof print, "ares-%s-w%llu", s->o.version, (unsigned long long)version);
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "id"), ares_view_of(j->id));
    ares_json_write_string(ares_json_key(out, "object"), ares_view_of(object));
    ares_json_write_i64(ares_json_key(out, "created"), j->created);
    ares_json_write_string(ares_json_key(out, "model"), ares_view_of(s->models[j->asked.model]));
    ares_json_write_string(ares_json_key(out, "system_fingerprint"), ares_view_of(print));
    ares_json_write_i64(ares_json_key(out, "weight_version"), (int64_t)version);
}

/* Signed where the request's was; otherwise, as it is taken, from 0 up. */
static void write_seed(const serve_job *j, uint64_t seed, ares_str *out)
{
    ares_json_key(out, "seed");
    if (j->asked.has_seed && j->asked.seed_is_signed) ares_json_write_i64(out, (int64_t)seed);
    else if (seed <= INT64_MAX) ares_json_write_i64(out, (int64_t)seed);
    else {
        char digits[24];
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)seed);
        ares_json_splice(out, ares_view_of(digits));
    }
}

/* ------------------------------------------------------------------ streams */
static const char *chunk_object(const serve_job *j)
{
    return j->asked.endpoint == SERVE_COMPLETIONS ? "text_completion" : "chat.completion.chunk";
}

static void send_event(serve_job *j, const ares_str *json)
{
    ares_str line = { 0 };
    ares_str_add_z(&line, "data: ");
    ares_str_add_view(&line, ares_str_view(json));
    ares_str_add_z(&line, "\n\n");
    serve_call_piece(j->call, ares_str_view(&line));
    ares_str_fini(&line);
}

/* Ends a chunk that holds one choice, and sends it. */
static void send_chunk(serve_job *j, ares_str *out)
{
    ares_json_end(out, '}');
    ares_json_end(out, ']');
    if (j->asked.include_usage) ares_json_write_null(ares_json_key(out, "usage"));
    ares_json_end(out, '}');
    send_event(j, out);
    ares_str_fini(out);
}

static void begin_chunk(serve_job *j, int64_t choice, ares_str *out)
{
    begin_answer(j, chunk_object(j), out);
    ares_json_begin(ares_json_key(out, "choices"), '[');
    ares_json_begin(out, '{');
    ares_json_write_i64(ares_json_key(out, "index"), choice);
}

/* {"role":"assistant","content":""}; the very first chunk has the prompt's ids. */
static void send_role(serve_job *j, int64_t choice)
{
    ares_str out = { 0 };
    begin_answer(j, chunk_object(j), &out);
    if (choice == 0 && j->asked.return_token_ids)
        write_ids(&out, "prompt_token_ids", j->prompts[0].ids.ids, j->prompts[0].ids.n);
    ares_json_begin(ares_json_key(&out, "choices"), '[');
    ares_json_begin(&out, '{');
    ares_json_write_i64(ares_json_key(&out, "index"), choice);
    ares_json_begin(ares_json_key(&out, "delta"), '{');
    ares_json_write_string(ares_json_key(&out, "role"), ARES_VIEW("assistant"));
    ares_json_write_string(ares_json_key(&out, "content"), ARES_VIEW(""));
    ares_json_end(&out, '}');
    ares_json_write_null(ares_json_key(&out, "logprobs"));
    ares_json_write_null(ares_json_key(&out, "finish_reason"));
    send_chunk(j, &out);
}

/* A piece of text and the tokens that go with it. */
static void send_piece(serve_job *j, int64_t choice, const serve_piece *p)
{
    job_choice *c = &j->choices[choice];
    ares_str out = { 0 };
    bool chat = j->asked.endpoint != SERVE_COMPLETIONS;
    bool tokens = p->end > p->first && (j->asked.logprobs >= 0 || j->asked.return_token_ids);
    if (!p->content.len && !p->reasoning.len && !tokens) return;
    begin_chunk(j, choice, &out);
    if (chat) {
        ares_json_begin(ares_json_key(&out, "delta"), '{');
        if (p->reasoning.len)
            ares_json_write_string(ares_json_key(&out, "reasoning_content"), p->reasoning);
        if (p->content.len || !p->reasoning.len)
            ares_json_write_string(ares_json_key(&out, "content"), p->content);
        ares_json_end(&out, '}');
        write_chat_logprobs(j, c, p->first, p->end, &out);
    } else {
        ares_json_write_string(ares_json_key(&out, "text"), p->content);
        write_told(j, choice, p->first, p->end, &c->offset, &out);
        if (choice % j->asked.n == 0 && p->first == 0 && j->asked.return_token_ids)
            write_ids(&out, "prompt_token_ids", j->prompts[choice / j->asked.n].ids.ids,
                      j->prompts[choice / j->asked.n].ids.n);
    }
    ares_json_write_null(ares_json_key(&out, "finish_reason"));
    if (j->asked.return_token_ids)
        write_ids(&out, "token_ids", c->ids + p->first, p->end - p->first);
    send_chunk(j, &out);
}

/* Calls, then the chunk that says how the choice ended. */
static void send_finish(serve_job *j, int64_t choice)
{
    const job_choice *c = &j->choices[choice];
    const serve_answer *a = serve_cut_answer(c->cut);
    bool chat = j->asked.endpoint != SERVE_COMPLETIONS;
    for (int i = 0; chat && i < a->n_calls; i++) {
        ares_str out = { 0 };
        begin_chunk(j, choice, &out);
        ares_json_begin(ares_json_key(&out, "delta"), '{');
        write_calls(j, choice, i, i + 1, true, &out);
        ares_json_end(&out, '}');
        ares_json_write_null(ares_json_key(&out, "logprobs"));
        ares_json_write_null(ares_json_key(&out, "finish_reason"));
        send_chunk(j, &out);
    }
    ares_str out = { 0 };
    begin_chunk(j, choice, &out);
    if (chat) {
        ares_json_begin(ares_json_key(&out, "delta"), '{');
        ares_json_end(&out, '}');
    } else ares_json_write_string(ares_json_key(&out, "text"), ARES_VIEW(""));
    ares_json_write_null(ares_json_key(&out, "logprobs"));
    write_finish(j, c, &out);
    if (!chat) write_seed(j, j->prompts[choice / j->asked.n].seed, &out);
    send_chunk(j, &out);
}

static void begin_stream(serve_job *j)
{
    if (j->streams) return;
    serve_call_header(j->call, "x-request-id", j->id);
    j->lost = !serve_call_begin(j->call, 200, "text/event-stream; charset=utf-8", true);
    j->streams = true;
}

/* ------------------------------------------------------------------ tokens as they come */
/* The columns of a choice with room for n tokens. */
static void reserve(serve_job *j, job_choice *c, int32_t n)
{
    if (n <= c->cap) return;
    c->cap = ARES_MAX(n, c->cap * 2 + 32);
    size_t cap = (size_t)c->cap, likely = cap * (size_t)j->n_likely;
    c->ids = ares_realloc(c->ids, cap * sizeof *c->ids);
    c->log_probs = ares_realloc(c->log_probs, cap * sizeof *c->log_probs);
    c->log_probs_1 = ares_realloc(c->log_probs_1, cap * sizeof *c->log_probs_1);
    c->entropies = ares_realloc(c->entropies, cap * sizeof *c->entropies);
    c->entropies_1 = ares_realloc(c->entropies_1, cap * sizeof *c->entropies_1);
    if (!likely) return;
    c->likely_tokens = ares_realloc(c->likely_tokens, likely * sizeof *c->likely_tokens);
    c->likely_log_probs = ares_realloc(c->likely_log_probs, likely * sizeof *c->likely_log_probs);
}

/* What the choice's latest token is. */
static serve_token_kind kind_of(const serve_job *j, const job_prompt *p, const job_choice *c,
                                int32_t id)
{
    const serve_asked *q = &j->asked;
    for (int64_t i = 0; i < q->n_stop_token_ids; i++)
        if (q->stop_token_ids[i] == id) return SERVE_TOKEN_STOP;
    if (!q->ignore_eos && ares_model_ends(&j->server->model->cfg, id)) return SERVE_TOKEN_EOS;
    return c->n == longest(j, p) ? SERVE_TOKEN_LAST : SERVE_TOKEN_PLAIN;
}

bool serve_job_take(serve_job *j, int64_t choice, const ares_completion *got)
{
    job_choice *c = &j->choices[choice];
    job_prompt *p = &j->prompts[choice / j->asked.n];
    const ares_tokenizer *t = j->server->tokenizer;
    if (p->cached < 0) p->cached = got->cached_tokens;
    if (got->n_tokens && j->first_s == 0) j->first_s = ares_now_s();
    if (j->asked.stream && j->asked.endpoint != SERVE_COMPLETIONS && !c->begun) {
        begin_stream(j);
        send_role(j, choice);
    }
    c->begun = true;
    reserve(j, c, got->n_tokens);
    while (!c->ended && c->n < got->n_tokens) {
        int32_t i = c->n++, id = got->ids[i], likely = j->n_likely;
        c->ids[i] = id;
        c->log_probs[i] = got->log_probs[i];
        c->log_probs_1[i] = got->log_probs_1[i];
        c->entropies[i] = got->entropies[i];
        c->entropies_1[i] = got->entropies_1[i];
        for (int32_t k = 0; k < likely; k++) {
            c->likely_tokens[i * likely + k] = got->likely_tokens[i * likely + k];
            c->likely_log_probs[i * likely + k] = got->likely_log_probs[i * likely + k];
        }
        if (j->asked.max_tokens == 0) { /* it only had to be scored */
            c->n = 0;
            c->ended = true;
            break;
        }
        serve_piece piece;
        c->ended = serve_cut_add(c->cut, bytes_of(j, id), ares_tokenizer_is_special(t, id),
                                 kind_of(j, p, c, id), &piece);
        if (!c->ended && j->asked.stream && !serve_piece_is_empty(&piece)) {
            begin_stream(j);
            send_piece(j, choice, &piece);
        }
    }
    return c->ended;
}

/* The session keeps the answer's ids, for requests that go on from it. */
static void keep(serve_job *j, int64_t choice)
{
    const serve_asked *q = &j->asked;
    ares_server *s = j->server;
    const job_choice *c = &j->choices[choice];
    const job_prompt *p = &j->prompts[choice / q->n];
    const serve_answer *a = serve_cut_answer(c->cut);
    bool text = q->endpoint == SERVE_COMPLETIONS;
    if (q->endpoint == SERVE_CHAT_TOKENS || (text && !p->text.data)) return;
    if (!text && !a->whole) return;
    serve_session *session = session_of(j);
    if (!session) return;
    ares_ids ids = { 0 };
    for (int64_t i = 0; i < p->ids.n; i++) ares_ids_add(&ids, p->ids.ids[i], 0, 0);
    for (int32_t i = 0; i < c->n; i++) ares_ids_add(&ids, c->ids[i], 0, 0);
    const serve_kept kept = { ids.ids, ids.n, (int64_t)p->k, choice % q->n };
    if (text) serve_session_keep_text(session, p->text, a->sampled, &kept);
    else {
        char(*names)[SERVE_CALL_ID] =
            ares_arena_calloc(&j->arena, (size_t)a->n_calls + 1, sizeof *names);
        const char **call_ids =
            ares_arena_calloc(&j->arena, (size_t)a->n_calls + 1, sizeof *call_ids);
        for (int i = 0; i < a->n_calls; i++) {
            call_id(j, choice, i, names[i]);
            call_ids[i] = names[i];
        }
        const serve_talk talk = { q->messages, q->tools, q->chat_template_kwargs,
                                  q->continue_final_message };
        serve_session_keep(session, &talk, a, call_ids, &kept);
    }
    serve_sessions_trim(s->sessions);
    ares_ids_fini(&ids);
}

void serve_job_close_choice(serve_job *j, int64_t choice)
{
    job_choice *c = &j->choices[choice];
    serve_piece rest;
    c->ended = true;
    serve_cut_finish(c->cut, &rest);
    keep(j, choice);
    if (j->episode && j->code == SERVE_NO_ERROR && c->n) {
        const ares_serve_play *play = j->server->play;
        const job_prompt *p = &j->prompts[choice / j->asked.n];
        const ares_serve_record record = { .prompt = p->ids.ids,
                                           .ids = c->ids,
                                           .log_probs = c->log_probs,
                                           .n_prompt = p->ids.n,
                                           .n = c->n,
                                           .k = (int64_t)p->k,
                                           .index = choice % j->asked.n,
                                           .weights = play->weight_version,
                                           .train = j->asked.train,
                                           .by_length = serve_cut_answer(c->cut)->finish ==
                                                        SERVE_FINISH_LENGTH };
        play->record(play->ctx, j->episode, &record, c->entropies, c->entropies_1);
    }
    if (!j->asked.stream || j->code != SERVE_NO_ERROR) return;
    begin_stream(j);
    send_piece(j, choice, &rest);
    send_finish(j, choice);
}

/* ------------------------------------------------------------------ answers */
static void write_message(const serve_job *j, int64_t choice, ares_str *out)
{
    const serve_answer *a = serve_cut_answer(j->choices[choice].cut);
    ares_json_begin(ares_json_key(out, "message"), '{');
    ares_json_write_string(ares_json_key(out, "role"), ARES_VIEW("assistant"));
    ares_json_key(out, "content");
    if (a->content_is_null) ares_json_write_null(out);
    else ares_json_write_string(out, a->content);
    ares_json_write_null(ares_json_key(out, "refusal"));
    if (a->n_calls) write_calls(j, choice, 0, a->n_calls, false, out);
    if (a->has_reasoning)
        ares_json_write_string(ares_json_key(out, "reasoning_content"), a->reasoning);
    ares_json_end(out, '}');
}

/* The text of a choice of completions: the prompt first where it is echoed. */
static void write_text(const serve_job *j, int64_t choice, ares_str *out)
{
    const serve_answer *a = serve_cut_answer(j->choices[choice].cut);
    const job_prompt *p = &j->prompts[choice / j->asked.n];
    ares_str text = { 0 };
    if (j->asked.echo && p->text.data) ares_str_add_view(&text, p->text);
    else if (j->asked.echo)
        (void)ares_tokenizer_decode(j->server->tokenizer, p->ids.ids, p->ids.n,
                                    j->asked.skip_special_tokens, &text);
    ares_str_add_view(&text, a->content);
    ares_json_write_string(ares_json_key(out, "text"), ares_str_view(&text));
    ares_str_fini(&text);
}

static void write_choice(const serve_job *j, int64_t choice, ares_str *out)
{
    const serve_asked *q = &j->asked;
    const job_choice *c = &j->choices[choice];
    const job_prompt *p = &j->prompts[choice / q->n];
    bool chat = q->endpoint != SERVE_COMPLETIONS;
    int64_t offset = 0;
    ares_json_begin(out, '{');
    ares_json_write_i64(ares_json_key(out, "index"), choice);
    if (chat) write_message(j, choice, out);
    else write_text(j, choice, out);
    write_finish(j, c, out);
    if (chat) write_chat_logprobs(j, c, 0, c->n, out);
    else write_told(j, choice, 0, c->n, &offset, out);
    if (q->return_token_ids) write_ids(out, "token_ids", c->ids, c->n);
    if (!chat) {
        if (q->return_token_ids) write_ids(out, "prompt_token_ids", p->ids.ids, p->ids.n);
        if (q->prompt_logprobs >= 0) write_prompt_logprobs(j, p, out);
        write_seed(j, p->seed, out);
    }
    ares_json_end(out, '}');
}

static void write_whole(serve_job *j, ares_str *out)
{
    const serve_asked *q = &j->asked;
    bool chat = q->endpoint != SERVE_COMPLETIONS;
    begin_answer(j, chat ? "chat.completion" : "text_completion", out);
    ares_json_begin(ares_json_key(out, "choices"), '[');
    for (int64_t i = 0; i < j->n_choices; i++) write_choice(j, i, out);
    ares_json_end(out, ']');
    write_usage(j, out);
    if (chat) {
        write_seed(j, j->prompts[0].seed, out);
        if (q->return_token_ids)
            write_ids(out, "prompt_token_ids", j->prompts[0].ids.ids, j->prompts[0].ids.n);
        if (q->prompt_logprobs >= 0) write_prompt_logprobs(j, &j->prompts[0], out);
    }
    ares_json_end(out, '}');
}

/* {"tokens","count","max_model_len","token_strs"}, or {"prompt"} */
int serve_job_tokens(serve_job *j)
{
    const serve_asked *q = &j->asked;
    const ares_ids *ids = &j->prompts[0].ids;
    ares_str out = { 0 };
    ares_json_begin(&out, '{');
    if (q->endpoint == SERVE_DETOKENIZE) {
        ares_str text = { 0 };
        (void)ares_tokenizer_decode(j->server->tokenizer, ids->ids, ids->n, false, &text);
        ares_json_write_string(ares_json_key(&out, "prompt"), ares_str_view(&text));
        ares_str_fini(&text);
    } else {
        write_ids(&out, "tokens", ids->ids, ids->n);
        ares_json_write_i64(ares_json_key(&out, "count"), ids->n);
        ares_json_write_i64(ares_json_key(&out, "max_model_len"), j->server->o.max_model_len);
        ares_json_key(&out, "token_strs");
        if (q->return_token_strs) {
            ares_json_begin(&out, '[');
            for (int64_t i = 0; i < ids->n; i++)
                ares_json_write_string(&out, bytes_of(j, ids->ids[i]));
            ares_json_end(&out, ']');
        } else ares_json_write_null(&out);
    }
    ares_json_end(&out, '}');
    serve_call_header(j->call, "x-request-id", j->id);
    serve_call_answer(j->call, 200, "application/json", ares_str_view(&out));
    ares_str_fini(&out);
    return 200;
}

int serve_job_answer(serve_job *j)
{
    ares_str out = { 0 };
    int status = j->code == SERVE_NO_ERROR ? 200 : serve_status(j->code);
    if (j->streams) { /* its status has gone out */
        if (j->code != SERVE_NO_ERROR) {
            serve_error_write(&out, &j->error);
            send_event(j, &out);
        } else if (j->asked.include_usage) {
            begin_answer(j, chunk_object(j), &out);
            ares_json_begin(ares_json_key(&out, "choices"), '[');
            ares_json_end(&out, ']');
            write_usage(j, &out);
            ares_json_end(&out, '}');
            send_event(j, &out);
        }
        serve_call_piece(j->call, ARES_VIEW("data: [DONE]\n\n"));
        serve_call_end(j->call);
    } else {
        if (j->code != SERVE_NO_ERROR) serve_error_write(&out, &j->error);
        else write_whole(j, &out);
        serve_call_header(j->call, "x-request-id", j->id);
        if (j->code == SERVE_queue_full) serve_call_header(j->call, "retry-after", "1");
        serve_call_answer(j->call, status, "application/json", ares_str_view(&out));
    }
    ares_str_fini(&out);
    return status;
}

void serve_job_free(serve_job *j)
{
    for (int64_t i = 0; j->choices && i < j->n_choices; i++) {
        job_choice *c = &j->choices[i];
        serve_cut_free(c->cut);
        ares_free(c->ids);
        ares_free(c->log_probs);
        ares_free(c->log_probs_1);
        ares_free(c->entropies);
        ares_free(c->entropies_1);
        ares_free(c->likely_tokens);
        ares_free(c->likely_log_probs);
    }
    free_prompts(j);
    ares_free(j->choices);
    ares_arena_fini(&j->arena);
    ares_free(j);
}
