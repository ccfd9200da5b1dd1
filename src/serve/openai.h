/*
 * Private to the serve room: the OpenAI-compatible protocol as functions of texts, JSON and ids. No
 * socket, no engine, no model: what a request asks (openai_request.c), tool calls (tools.c),
 * what of an answer is certain and may go out, thoughts too (cut.c), ids that sessions keep
 * (session.c), records of episodes and lines of agents (records.c).
 *
 * Texts are UTF-8 and may hold NUL. What a function returns through an arena lives in that arena;
 * requests and messages are borrowed for as long as the results are used.
 */
#ifndef ARES_SERVE_OPENAI_H
#define ARES_SERVE_OPENAI_H

#include "ares/core.h"
#include "ares/serve.h"
#include "ares/text.h"

/* ------------------------------------------------------------------ errors (openai_request.c)
 * {"error":{"message","type","param","code"}}. A code has one status and one type.
 */
#define SERVE_ERROR_LIST(X)                                     \
    X(invalid_json, 400, "invalid_request_error")               \
    X(invalid_type, 400, "invalid_request_error")               \
    X(invalid_value, 400, "invalid_request_error")              \
    X(missing_required_parameter, 400, "invalid_request_error") \
    X(unknown_parameter, 400, "invalid_request_error")          \
    X(unsupported_parameter, 400, "invalid_request_error")      \
    X(unsupported_value, 400, "invalid_request_error")          \
    X(unsupported_content, 400, "invalid_request_error")        \
    X(context_length_exceeded, 400, "invalid_request_error")    \
    X(template_error, 400, "invalid_request_error")             \
    X(invalid_api_key, 401, "authentication_error")             \
    X(origin_not_allowed, 403, "permission_error")              \
    X(episode_limit, 403, "permission_error")                   \
    X(model_not_found, 404, "invalid_request_error")            \
    X(not_found, 404, "invalid_request_error")                  \
    X(method_not_allowed, 405, "invalid_request_error")         \
    X(request_timeout, 408, "timeout_error")                    \
    X(length_required, 411, "invalid_request_error")            \
    X(body_too_large, 413, "invalid_request_error")             \
    X(unsupported_encoding, 415, "invalid_request_error")       \
    X(queue_full, 429, "rate_limit_error")                      \
    X(internal_error, 500, "server_error")                      \
    X(shutting_down, 503, "server_error")
#define SERVE_ERROR_ID(name, status, type) SERVE_##name,
typedef enum { SERVE_NO_ERROR, SERVE_ERROR_LIST(SERVE_ERROR_ID) SERVE_ERROR_COUNT } serve_code;
#undef SERVE_ERROR_ID

typedef struct serve_error {
    serve_code code;
    const char *message, *param; /* param NULL: null */
} serve_error;
/* Writes the error into *e, texts into the arena; returns code, never SERVE_NO_ERROR. */
serve_code serve_refuse(serve_error *e, ares_arena *arena, serve_code code, const char *param,
                        const char *format, ...) ARES_PRINTF(5, 6);
int serve_status(serve_code code);
const char *serve_code_name(serve_code code);
/* Appends {"error":{...}}. The second form is for http.c, which has words in place of a code. */
void serve_error_write(ares_str *out, const serve_error *e);
void serve_error_write_words(ares_str *out, const char *type, const char *code, const char *param,
                             const char *message);
/* context_length_exceeded with the words that clients look for */
serve_code serve_refuse_length(serve_error *e, ares_arena *arena, const char *param,
                               int64_t max_model_len, int64_t prompt_tokens, int64_t max_tokens);

/* ------------------------------------------------------------------ tools (tools.c) */
typedef enum { SERVE_FORM_NONE, SERVE_FORM_HERMES, SERVE_FORM_LLAMA3_JSON } serve_form;
/* "none", "hermes", "llama3_json" */
extern const char *const serve_form_names[3];
/* </think>, <tool_call>, </tool_call>, <|python_tag|> */
extern const ares_view serve_think_end, serve_call_tag, serve_call_close, serve_python_tag;
/* The form of calls that a chat template teaches: --tool-parser auto. */
serve_form serve_form_of(const ares_chat *chat);

typedef enum {
    SERVE_CHOOSE_AUTO,
    SERVE_CHOOSE_NONE, /* tools stay in the prompt, the answer is not read */
    SERVE_CHOOSE_REQUIRED,
    SERVE_CHOOSE_FUNCTION
} serve_choose;

/* ------------------------------------------------------------------ requests (openai_request.c) */
typedef enum {
    SERVE_CHAT = 1,        /* /v1/chat/completions */
    SERVE_CHAT_TOKENS = 2, /* /v1/chat/completions/tokens */
    SERVE_COMPLETIONS = 4, /* /v1/completions */
    SERVE_TOKENIZE = 8,    /* /tokenize */
    SERVE_DETOKENIZE = 16  /* /detokenize */
} serve_endpoint;

/* What requests are read against; the same for all of them but for the header. */
typedef struct serve_reading {
    const char *const *models; /* names, [n_models]; a request without one gets the first */
    int n_models;
    int64_t vocab_size;
    bool vision;   /* the model sees images */
    bool training; /* of an episode: any model name, `train` counts, no images, no session_id */
    serve_form form;
    ares_view session_header; /* X-Session-ID; empty: absent */
} serve_reading;

/* One prompt of /v1/completions, or the tokens of /v1/chat/completions/tokens and /detokenize. */
typedef struct serve_prompt {
    bool is_text;
    ares_view text;
    const int32_t *ids;
    int64_t n;
} serve_prompt;

typedef struct serve_asked {
    serve_endpoint endpoint;
    const ares_json *body; /* the whole body, for the options that training overrides */
    int model;             /* index in models */

    const ares_json *messages;             /* a list as sent; NULL: absent */
    const ares_json *tools;                /* a list that is not empty; NULL: none */
    const ares_json *chat_template_kwargs; /* an object; NULL: none */
    bool add_generation_prompt, continue_final_message;
    serve_choose tool_choice;
    ares_view tool_name; /* of SERVE_CHOOSE_FUNCTION */
    bool parallel_tool_calls;
    /*
     * The URLs of messages' images, data:image/...;base64, in the order of messages and parts: a
     * row's list of images as the data room reads it. NULL: none.
     */
    const ares_json *images;

    const serve_prompt *prompts; /* [n_prompts]; one of ids for endpoints with `tokens` */
    int64_t n_prompts;
    bool echo;

    int64_t max_tokens; /* -1: absent, to the end of the context */
    double temperature, top_p;
    int64_t top_k; /* -1: all */
    int64_t n;
    bool has_seed, seed_is_signed; /* signed: below 0, print it as int64_t */
    uint64_t seed;
    const ares_view *stop; /* [n_stop], none empty */
    int n_stop;
    const int32_t *stop_token_ids;
    int64_t n_stop_token_ids;
    bool ignore_eos, include_stop_str_in_output, add_special_tokens, skip_special_tokens;
    bool stream, include_usage;
    bool return_token_ids, return_tokens_as_token_ids, return_token_strs;
    int64_t logprobs;        /* -1: none; 0: the drawn token's alone; k: and the k likeliest */
    int64_t prompt_logprobs; /* -1: none */
    bool train;              /* false: no token of it is trained on */
    ares_view session;       /* empty: none */

    const char *const *ignored; /* names of fields that were sent and are ignored, sorted */
    int n_ignored;
} serve_asked;

/* The endpoint of a path that takes a body; 0: none of them. */
serve_endpoint serve_endpoint_of(ares_view path);
/* SERVE_NO_ERROR, or what is wrong, in *e. On success everything lives in the arena or the body. */
serve_code serve_request_read(ares_arena *arena, const serve_reading *reading,
                              serve_endpoint endpoint, ares_view body, serve_asked *out,
                              serve_error *e);
/* 404 for a path that is not served: says what is served, and how a near path is spelled. */
serve_code serve_refuse_path(serve_error *e, ares_arena *arena, ares_view path);

/* ------------------------------------------------------------------ tools (tools.c)
 * Messages and tools as a template reads them: developer is system, parts are one text (with
 * `vision` they stay a list), an absent or null content is "", arguments of calls are parsed.
 * generic: for a template that knows no tools (SERVE_FORM_HERMES, and the name `tools` is not in
 * it): tools stand in the system message, calls and results in texts. messages NULL gives NULL.
 */
typedef struct serve_for_template {
    bool generic, vision;
} serve_for_template;
const ares_json *serve_messages_for_template(ares_arena *arena, const ares_json *messages,
                                             const ares_json *tools, serve_for_template how);
/* Text that is written after the prompt so that a call follows; "" for auto and none. */
ares_view serve_opening(ares_arena *arena, serve_form form, serve_choose choose, ares_view name);

typedef struct serve_tool_call {
    ares_view name, arguments; /* arguments: as sampled */
} serve_tool_call;
typedef struct serve_calls {
    serve_tool_call *calls;
    int n;
    /* What stands outside of calls: [n_parts] ranges of bytes of the text, not trimmed. */
    size_t (*parts)[2];
    int n_parts;
} serve_calls;
/* Reads the calls of a whole text. n 0: there is none, or one is malformed: all is content. */
void serve_calls_read(ares_arena *arena, serve_form form, ares_view text, serve_calls *out);
/* Text of a message's content: a string, or parts of text joined by \n; null is "". */
ares_view serve_content_text(ares_arena *arena, const ares_json *content);
/* The end of the JSON value that begins at byte i; 0: the text ends before it does. */
size_t serve_json_end(ares_view text, size_t i);
/* Appends part number k of a content: white space cut, joined by \n; an empty part adds nothing. */
void serve_content_add(ares_str *content, int k, ares_view part);

/* call_ and 16 hex digits: a function of prompt, answer and number of the call within it. */
enum { SERVE_CALL_ID = 22 };
void serve_call_id(const int32_t *prompt, int64_t n_prompt, const int32_t *ids, int64_t n,
                   int32_t number, char out[SERVE_CALL_ID]);

/* ------------------------------------------------------------------ text of an answer (cut.c)
 * An answer grows token by token; a piece is what of its text is certain. Whole answers are joined
 * pieces, so streams and whole answers cannot differ.
 */
typedef struct serve_cut_options {
    const ares_view *stop; /* [n_stop], none empty */
    int n_stop;
    bool include_stop, skip_special;
    serve_form form;   /* SERVE_FORM_NONE: calls are not read */
    ares_view opening; /* of a forced call: part of the text that is read */
    bool one_call;     /* the answer ends with the token that completes its first call */
    /*
     * --reasoning think: what stands before the first </think>, less <think> and white space, is
     * reasoning; without </think> all of it, if the answer or the prompt's end opened <think>.
     */
    bool reasoning;
    bool opened; /* the prompt's end has opened <think> */
} serve_cut_options;

typedef enum {
    SERVE_TOKEN_PLAIN,
    SERVE_TOKEN_EOS,  /* an end token of the model that counts here: the answer ends */
    SERVE_TOKEN_STOP, /* one of stop_token_ids: the answer ends */
    SERVE_TOKEN_LAST  /* there is no room for another: the answer ends at its length */
} serve_token_kind;

/* [first, end): tokens whose text is out with this piece. Texts live until the next call. */
typedef struct serve_piece {
    ares_view content, reasoning;
    int64_t first, end;
} serve_piece;
static inline bool serve_piece_is_empty(const serve_piece *p)
{
    return !p->content.len && !p->reasoning.len && p->first == p->end;
}

typedef enum { SERVE_FINISH_STOP, SERVE_FINISH_LENGTH, SERVE_FINISH_TOOL_CALLS } serve_finish;
extern const char *const serve_finish_names[3];

typedef struct serve_cut serve_cut;
/* The options are copied, their texts too. */
serve_cut *serve_cut_new(const serve_cut_options *options);
void serve_cut_free(serve_cut *c);
/*
 * A sampled token and the bytes of its text (ares_tokenizer_token_bytes). True: the answer ends
 * with this token; the caller samples no more, and serve_cut_finish gives what is left. False:
 * *piece is what can go out now, often nothing.
 */
bool serve_cut_add(serve_cut *c, ares_view bytes, bool special, serve_token_kind kind,
                   serve_piece *piece);
/* Ends the answer, at its length where nothing else ended it. *piece: the rest. Call it once. */
void serve_cut_finish(serve_cut *c, serve_piece *piece);

/* After serve_cut_finish. */
typedef struct serve_answer {
    serve_finish finish;
    int stop;        /* index of the stop string; -1: none */
    bool by_stop_id; /* the last token is one of stop_token_ids: stop_reason is its id */
    int64_t n_tokens;
    ares_view content; /* all pieces joined */
    bool content_is_null, has_reasoning;
    ares_view reasoning;
    const serve_tool_call *calls;
    int n_calls;
    /* Everything sampled, as text: stop string and what follows it in its token included. */
    ares_view sampled;
    /* The client saw all of it: no stop string has cut the text. Else a session keeps nothing. */
    bool whole;
} serve_answer;
const serve_answer *serve_cut_answer(const serve_cut *c); /* lives as long as the cut */

/* ------------------------------------------------------------------ sessions (session.c)
 * Ids of answers that a later request continues. A history is known by a hash (SHA-256) of scope
 * and of the normal form of all messages up to an answer.
 */

/*
 * Appends the normal form of a message, a JSON list: [role, text, calls, name, images]. answer (may
 * be NULL): goes on with the message, or is one by itself (message NULL), as a client will send it.
 */
void serve_message_normal(ares_str *out, const ares_json *message, const serve_answer *answer);
/* Appends canonical JSON: keys by bytes, no spaces, numbers as %.17g. */
void serve_json_canonical(ares_str *out, const ares_json *value);

/* One session. The caller locks: nothing here is safe for several threads. */
typedef struct serve_session serve_session;
serve_session *serve_session_new(void); /* of an episode */
void serve_session_free(serve_session *s);

/* Sessions by name, at most 1024 and 64 MiB of ids; the longest unused are forgotten. */
typedef struct serve_sessions serve_sessions;
enum { SERVE_MOST_SESSIONS = 1024, SERVE_MOST_SESSION_BYTES = 64 << 20 };
serve_sessions *serve_sessions_new(int most, int64_t most_bytes);
void serve_sessions_free(serve_sessions *t);
/* Makes it where there is none. Valid until the next serve_sessions_ call. */
serve_session *serve_sessions_open(serve_sessions *t, ares_view name);
/* Forgets what is too much; after every serve_session_keep into a session of the table. */
void serve_sessions_trim(serve_sessions *t);
int serve_sessions_count(const serve_sessions *t);

/* What a request says of its conversation. */
typedef struct serve_talk {
    const ares_json *messages, *tools, *chat_template_kwargs; /* as in serve_asked */
    bool continue_final_message;
} serve_talk;

/* An answer to be kept: ids are prompt and sampled ids together. */
typedef struct serve_kept {
    const int32_t *ids;
    int64_t n;
    int64_t k, choice; /* of equal histories the lowest counts */
} serve_kept;
/*
 * Keeps a chat answer after the messages of its request (a continued message is joined with it).
 * call_ids [answer->n_calls]: ids that the calls went out with. Call it before the last byte goes
 * out, and only where answer->whole.
 */
void serve_session_keep(serve_session *s, const serve_talk *talk, const serve_answer *answer,
                        const char *const *call_ids, const serve_kept *kept);
/*
 * From the last assistant message backwards the first whose history is kept. The message's index;
 * -1: none. *kept borrows from the session.
 */
int64_t serve_session_match(serve_session *s, const serve_talk *talk, serve_kept *kept);
/* The same for texts of /v1/completions: text is prompt and whole answer. */
void serve_session_keep_text(serve_session *s, ares_view prompt, ares_view sampled,
                             const serve_kept *kept);
/* The longest kept text that begins `prompt`; returns its length in bytes, 0: none. */
size_t serve_session_match_text(serve_session *s, ares_view prompt, serve_kept *kept);

/*
 * Renders messages as sent by the client (the callback calls serve_messages_for_template) and
 * appends the text. last: add_generation_prompt and continue_final_message are those of the
 * request, else both are false. ARES_E* where the template raises.
 */
typedef int serve_render_fn(void *ctx, const ares_json *messages, bool last, ares_str *out);
/*
 * The text that a template writes after message number `message`, which is kept: up to the end of
 * the prompt. False: no such text can be told apart, all is to be rendered and encoded anew.
 */
bool serve_text_after(ares_arena *arena, const ares_json *messages, int64_t message,
                      serve_render_fn *render, void *ctx, ares_str *out);
/*
 * Appends kept ids, then those of `tail` (encoded without special tokens), less an end token at
 * its beginning that the kept ids end with. ends [n_ends]: the model's end tokens.
 */
int serve_ids_after(const ares_tokenizer *t, const serve_kept *kept, ares_view tail,
                    const int32_t *ends, int n_ends, ares_ids *out);

/* ------------------------------------------------------------------ seeds, records (records.c) */
/* The seed of a request without one; k: requests with equal fields before since the start. */
uint64_t serve_seed(int64_t server_seed, const int32_t *ids, int64_t n, double temperature,
                    double top_p, int64_t top_k, int64_t k);
/* The turn of a sample's key in training; k: requests of the episode with equal ids before. */
uint64_t serve_turn(const int32_t *ids, int64_t n, int64_t k, int64_t choice);

#endif
