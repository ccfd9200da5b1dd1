/* Tinker's requests in JSON, and the names of its checkpoints. */
#include "tinker.h"

#include <math.h>
#include <string.h>

/* ---------------- names */

static bool word(ares_view v, const char *others)
{
    for (size_t i = 0; i < v.len; i++) {
        char c = v.data[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!letter && !ares_is_digit(c) && (!c || !strchr(others, c))) return false;
    }
    return v.len > 0;
}

bool tinker_name_ok(ares_view name)
{
    return name.len <= 128 && word(name, "._-") && !ares_view_is(name, ".") &&
           !ares_view_is(name, "..");
}

/* What stands before the first c, which is taken away with it; all of it where there is none. */
static ares_view before(ares_view *rest, char c)
{
    const char *at = rest->len ? memchr(rest->data, c, rest->len) : NULL;
    ares_view v = { rest->data, at ? (size_t)(at - rest->data) : rest->len };
    *rest = at ? (ares_view){ at + 1, rest->len - v.len - 1 } : (ares_view){ "", 0 };
    return v;
}

bool tinker_model_id_ok(ares_view id)
{
    ares_view session = before(&id, ':'), train = before(&id, ':');
    if (!word(session, "-") || session.len > 64 || !ares_view_is(train, "train")) return false;
    for (size_t i = 0; i < id.len; i++)
        if (!ares_is_digit(id.data[i])) return false;
    return id.len > 0 && id.len <= 19;
}

bool tinker_path_read(ares_view text, tinker_path *out)
{
    if (!ares_view_starts(text, ARES_VIEW("tinker://"))) return false;
    ares_view rest = { text.data + 9, text.len - 9 };
    out->model_id = before(&rest, '/');
    ares_view kind = before(&rest, '/');
    out->name = rest;
    out->sampler = ares_view_is(kind, "sampler_weights");
    return tinker_model_id_ok(out->model_id) && (out->sampler || ares_view_is(kind, "weights")) &&
           tinker_name_ok(out->name);
}

/* ---------------- which call it is */

static const struct {
    const char *method, *path;
} calls[] = {
#define CALL(name, method, path) { method, path },
    TINKER_CALLS(CALL)
#undef CALL
};

const char *tinker_call_path(tinker_call call)
{
    return calls[call].path;
}

/* What the API has and this server has not: [0] the path, or its beginning; [1] what to do. */
static const char *const refused[][2] = {
    { "auth/token", "this server takes the API key as it is" },
    { "copy_weights", "checkpoints are PEFT directories below --state-dir; copy them" },
    { "create_custom_loss", "use forward_backward_custom of the client" },
    { "retrieve_futures", "use retrieve_future" },
    { "join_sampling_session", "make a sampling client of its own" },
    { "publish", "this server has no other users" },
    { "ttl", "checkpoints stay until they are deleted" },
    { "archive", "checkpoints stay until they are deleted" },
    { "audit", "this server keeps no audit log" },
    { "billing/", "this server bills nobody" },
    { "sessions/search", "name the session" },
    { "trace_export", "this server exports no traces" },
    { "project", "this server has no projects" },
};

/* Whether the path has the form of the pattern; id receives the parts that * stands for. */
static bool matches(const char *pattern, ares_view path, ares_view *id)
{
    for (ares_view rest = ares_view_of(pattern); rest.len || path.len;) {
        if (!rest.len || !path.len) return false;
        ares_view part = before(&rest, '/'), own = before(&path, '/');
        if (ares_view_is(part, "*")) {
            if (!own.len) return false;
            *id++ = own;
        } else if (!ares_view_eq(part, own)) {
            return false;
        }
    }
    return true;
}

int tinker_route(const char *method, ares_view path, tinker_request *out)
{
    ares_view rest = path;
    const char *allowed = NULL;
    *out = (tinker_request){ 0 };
    if (!ares_view_starts(path, ARES_VIEW("/api/v1/"))) {
        ares_fail(ARES_EUSE, "no such path: %.*s", (int)path.len, path.data);
        return 404;
    }
    rest = (ares_view){ path.data + 8, path.len - 8 };
    for (int i = 0; i < ARES_COUNT(refused); i++)
        if (ares_view_starts(rest, ares_view_of(refused[i][0]))) {
            ares_fail(ARES_EUSE, "%.*s is not served: %s", (int)path.len, path.data, refused[i][1]);
            return 404;
        }
    for (int i = 0; i < TINKER_N_CALLS; i++) {
        if (!matches(calls[i].path, rest, out->id)) continue;
        out->call = (tinker_call)i;
        if (strcmp(method, calls[i].method) == 0) return 0;
        allowed = calls[i].method;
    }
    if (allowed) ares_fail(ARES_EUSE, "%.*s is asked with %s", (int)path.len, path.data, allowed);
    else ares_fail(ARES_EUSE, "no such path: %.*s", (int)path.len, path.data);
    return allowed ? 405 : 404;
}

/* ---------------- fields */

enum { TEXT, NUMBER, FLAG, OBJECT };
#define IN(call) (1u << TINKER_##call)
/* Calls that must have a field, and others that may; elsewhere it is not looked at. */
static const struct {
    const char *key;
    int type;
    size_t at;
    unsigned must, may;
    int64_t least; /* of numbers */
} fields[] = {
#define FIELD(key, type, at, ...) { key, type, offsetof(tinker_request, at), __VA_ARGS__ }
    FIELD("model_id", TEXT, model_id,
          IN(INFO) | IN(STEP) | IN(SAVE) | IN(SAVE_EXTERNAL) | IN(SAVE_FOR_SAMPLER) | IN(UNLOAD),
          IN(LOAD), 0),
    FIELD("seq_id", NUMBER, seq_id, IN(STEP) | IN(SAVE) | IN(SAVE_FOR_SAMPLER) | IN(SAVE_EXTERNAL),
          IN(LOAD), 1),
    FIELD("seq_id", NUMBER, seq_id, IN(SAMPLE), 0, 0),
    FIELD("session_id", TEXT, session_id, IN(HEARTBEAT) | IN(CREATE_MODEL) | IN(CREATE_SAMPLER),
          IN(LOAD), 0),
    FIELD("model_seq_id", NUMBER, model_seq_id, IN(CREATE_MODEL), IN(LOAD), 0),
    FIELD("sampling_session_seq_id", NUMBER, sampler_seq_id, IN(CREATE_SAMPLER),
          IN(SAVE_FOR_SAMPLER), 0),
    FIELD("base_model", TEXT, base_model, IN(CREATE_MODEL), IN(CREATE_SAMPLER), 0),
    FIELD("model_path", TEXT, model_path, 0, IN(CREATE_SAMPLER), 0),
    FIELD("path", TEXT, path, IN(LOAD), IN(SAVE) | IN(SAVE_FOR_SAMPLER), 0),
    FIELD("tinker_path", TEXT, tinker_path, IN(WEIGHTS_INFO), 0, 0),
    FIELD("request_id", TEXT, request_id, IN(FUTURE) | IN(CANCEL), 0, 0),
    FIELD("sampling_session_id", TEXT, sampling_session_id, IN(SAMPLE), 0, 0),
    FIELD("ttl_seconds", NUMBER, ttl_seconds, 0, IN(SAVE) | IN(SAVE_FOR_SAMPLER), 0),
    FIELD("optimizer", FLAG, optimizer, 0, IN(LOAD), 0),
    FIELD("overwrite", FLAG, overwrite, 0, IN(SAVE) | IN(SAVE_FOR_SAMPLER), 0),
    FIELD("user_metadata", OBJECT, user_metadata, 0,
          IN(CREATE_SESSION) | IN(CREATE_MODEL) | IN(SAVE) | IN(SAVE_FOR_SAMPLER), 0),
    FIELD("prompt", OBJECT, prompt, IN(SAMPLE), 0, 0),
    FIELD("sampling_params", OBJECT, sampling_params, IN(SAMPLE), 0, 0),
    FIELD("target_prompt_logprobs", OBJECT, targets, 0, IN(SAMPLE), 0),
    FIELD("num_samples", NUMBER, num_samples, 0, IN(SAMPLE), INT64_MIN),
    FIELD("prompt_logprobs", FLAG, prompt_log_probs, 0, IN(SAMPLE), 0),
    FIELD("topk_prompt_logprobs", NUMBER, topk_prompt, 0, IN(SAMPLE), INT64_MIN),
    FIELD("topk_sample_logprobs", NUMBER, topk_sampled, 0, IN(SAMPLE), INT64_MIN),
    FIELD("prompt_logprobs_last_n", NUMBER, last_n, 0, IN(SAMPLE), INT64_MIN),
    FIELD("prompt_alt_tokens_k", NUMBER, alt_tokens, 0, IN(SAMPLE), INT64_MIN),
#undef FIELD
};

static int unprocessable(const char *key, const char *what)
{
    ares_fail(ARES_EUSE, "%s: %s", key, what);
    return 422;
}

static const ares_json *present(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type != ARES_JSON_NULL ? v : NULL;
}

static bool whole(const ares_json *v)
{
    return (v->type == ARES_JSON_INT && !v->big) ||
           (v->type == ARES_JSON_FLOAT && v->number == (double)v->integer && v->number > -9e15 &&
            v->number < 9e15);
}

/* Goes on after a field that is wrong, so that model_id and seq_id are known; the first counts. */
static int read_fields(const ares_json *body, tinker_request *out)
{
    int status = 0;
    for (int i = 0; i < ARES_COUNT(fields); i++) {
        if (!((fields[i].must | fields[i].may) & 1u << out->call)) continue;
        const ares_json *v = present(body, fields[i].key);
        void *to = (char *)out + fields[i].at;
        const char *wrong = NULL;
        if (!v) {
            if (fields[i].must & 1u << out->call) wrong = "it is missing";
        } else if (fields[i].type == TEXT) {
            if (v->type != ARES_JSON_STRING) wrong = "not a text";
            else memcpy(to, &v->text, sizeof v->text);
        } else if (fields[i].type == NUMBER) {
            if (!whole(v)) wrong = "not a whole number";
            else if (v->integer < fields[i].least) wrong = fields[i].least ? "below 1" : "below 0";
            else memcpy(to, &v->integer, sizeof v->integer);
        } else if (fields[i].type == FLAG) {
            if (v->type != ARES_JSON_BOOL) wrong = "neither true nor false";
            else memcpy(to, &v->boolean, sizeof v->boolean);
        } else {
            if (v->type != ARES_JSON_OBJECT) wrong = "not an object";
            else memcpy(to, &v, sizeof v);
        }
        if (wrong && !status) status = unprocessable(fields[i].key, wrong);
    }
    return status;
}

/* Any 64 bits, as a signed or an unsigned number. */
static int read_seed(const ares_json *o, uint64_t *seed, bool *has)
{
    const ares_json *v = present(o, "seed");
    *has = v != NULL;
    *seed = 0;
    if (!v) return 0;
    if (whole(v)) {
        *seed = (uint64_t)v->integer;
        return 0;
    }
    bool fits = v->type == ARES_JSON_INT && v->text.len && v->text.len <= 20;
    for (size_t i = 0; fits && i < v->text.len; i++) {
        uint64_t digit = (uint64_t)(v->text.data[i] - '0');
        fits = digit <= 9 && *seed <= (UINT64_MAX - digit) / 10;
        *seed = *seed * 10 + digit;
    }
    return fits ? 0 : unprocessable("seed", "not a whole number of 64 bits");
}

static int read_lora(const ares_json *body, tinker_request *out)
{
    const ares_json *o = present(body, "lora_config"), *rank = present(o, "rank"),
                    *optimizer = present(body, "optimizer_config"),
                    *type = present(optimizer, "type");
    ares_tinker_lora *l = &out->lora;
    const struct {
        const char *key;
        bool *to;
    } parts[] = { { "train_attn", &l->attn },
                  { "train_mlp", &l->mlp },
                  { "train_unembed", &l->unembed } };
    if (!o || o->type != ARES_JSON_OBJECT)
        return unprocessable("lora_config",
                             "it is missing; adapters alone are trained, of a rank such as 32");
    if (rank && (!whole(rank) || rank->integer < 1 || rank->integer > INT32_MAX))
        return unprocessable("lora_config.rank", "not a whole number from 1");
    l->rank = rank ? (int32_t)rank->integer : 32;
    for (int i = 0; i < ARES_COUNT(parts); i++) {
        const ares_json *v = present(o, parts[i].key);
        *parts[i].to = !v || v->boolean;
        if (v && v->type != ARES_JSON_BOOL) return unprocessable(parts[i].key, "not true or false");
    }
    if (!l->attn && !l->mlp && !l->unembed)
        return unprocessable("lora_config",
                             "train_attn, train_mlp and train_unembed are all false; one must be "
                             "true");
    if (optimizer && type && !(type->type == ARES_JSON_STRING && ares_view_is(type->text, "adamw")))
        return unprocessable("optimizer_config.type", "adamw is the only one that is served");
    return read_seed(o, &l->seed, &out->has_seed);
}

int tinker_adam_read(const ares_json *o, ares_tinker_adam *a)
{
    const struct {
        const char *key;
        double absent, least, below;
        double *to;
    } numbers[] = { { "learning_rate", 1e-4, -INFINITY, INFINITY, &a->learning_rate },
                    { "beta1", 0.9, 0, 1, &a->beta1 },
                    { "beta2", 0.95, 0, 1, &a->beta2 },
                    { "eps", 1e-12, 0, INFINITY, &a->eps },
                    { "weight_decay", 0, 0, INFINITY, &a->weight_decay },
                    { "grad_clip_norm", 0, 0, INFINITY, &a->grad_clip_norm } };
    for (int i = 0; i < ARES_COUNT(numbers); i++) {
        const ares_json *v = present(o, numbers[i].key);
        bool number = v && (v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT);
        *numbers[i].to = number ? v->number : numbers[i].absent;
        if ((v && !number) || !isfinite(*numbers[i].to))
            return ares_fail(ARES_EUSE, "adam_params.%s: not a number", numbers[i].key);
        if (*numbers[i].to < numbers[i].least || *numbers[i].to >= numbers[i].below)
            return ares_fail(ARES_EUSE, "adam_params.%s: %g is out of range", numbers[i].key,
                             *numbers[i].to);
    }
    return ARES_OK;
}

/* limit and offset of a list: "limit=20&offset=40" */
static int read_query(ares_view query, tinker_request *out)
{
    out->limit = 20;
    out->offset = 0;
    while (query.len) {
        ares_view value = before(&query, '&'), key = before(&value, '=');
        bool limit = ares_view_is(key, "limit");
        int64_t n;
        if (!limit && !ares_view_is(key, "offset")) continue;
        if (!ares_parse_i64(value, &n) || n < 0)
            return unprocessable(limit ? "limit" : "offset", "not a whole number from 0");
        *(limit ? &out->limit : &out->offset) = n;
    }
    return 0;
}

int tinker_request_read(ares_arena *arena, ares_view body, ares_view query, tinker_request *out)
{
    const ares_json *o = NULL, *flag;
    out->seq_id = out->model_seq_id = out->sampler_seq_id = out->ttl_seconds = -1;
    out->last_n = -1;
    out->num_samples = 1;
    if (out->call == TINKER_FORWARD) {
        int rc = tinker_forward_read(arena, body, &out->forward);
        out->model_id = out->forward.model_id;
        out->seq_id = out->forward.seq_id ? out->forward.seq_id : -1;
        return rc == ARES_OK ? 0 : rc == ARES_EFORMAT ? 400 : 422;
    }
    if (strcmp(calls[out->call].method, "POST") != 0) return read_query(query, out);
    if (ares_json_parse(arena, body, "request", &o) != ARES_OK) return 400;
    if (o->type != ARES_JSON_OBJECT) {
        ares_fail(ARES_EUSE, "request: not an object");
        return 422;
    }
    int status = read_fields(o, out);
    if (status) return status;
    switch (out->call) {
    case TINKER_CREATE_MODEL: return read_lora(o, out);
    case TINKER_STEP:
        if (present(o, "optimizer_params"))
            return unprocessable("optimizer_params", "not served; give adam_params");
        if (!present(o, "adam_params") || present(o, "adam_params")->type != ARES_JSON_OBJECT)
            return unprocessable("adam_params", "it is missing, or not an object");
        return tinker_adam_read(present(o, "adam_params"), &out->adam) == ARES_OK ? 0 : 422;
    case TINKER_LOAD: {
        bool by_model = out->model_id.data && out->seq_id >= 0,
             by_session = out->session_id.data && out->model_seq_id >= 0;
        if (by_model == by_session)
            return unprocessable("load_weights",
                                 "give either model_id and seq_id, or session_id and model_seq_id");
        return 0;
    }
    case TINKER_SAVE_FOR_SAMPLER:
        if (!out->path.data == (out->sampler_seq_id < 0))
            return unprocessable("save_weights_for_sampler",
                                 "give either path or sampling_session_seq_id");
        return 0;
    case TINKER_SAVE_EXTERNAL:
        return unprocessable("save_weights_external",
                             "not served; checkpoints are PEFT directories below --state-dir");
    case TINKER_CREATE_SAMPLER:
        if (!out->base_model.data && !out->model_path.data)
            return unprocessable("create_sampling_session", "give base_model or model_path");
        return 0;
    case TINKER_SAMPLE:
        flag = present(o, "record_stability_info");
        if (flag && !(flag->type == ARES_JSON_BOOL && !flag->boolean))
            return unprocessable("record_stability_info",
                                 "loss_fn stable_reinforce is not served; use "
                                 "importance_sampling, ppo, cispo, gspo or dro");
        return read_seed(out->sampling_params, &out->sample.seed, &out->has_seed);
    default: return 0;
    }
}

/* ---------------- what a sample asks for */

static int wrong(const char *what)
{
    return ares_fail(ARES_EUSE, "%s", what);
}

/* A number among sampling_params. */
static int param(const ares_json *o, const char *key, double absent, double *out)
{
    const ares_json *v = present(o, key);
    *out = v ? v->number : absent;
    if (v && v->type != ARES_JSON_INT && v->type != ARES_JSON_FLOAT)
        return ares_fail(ARES_EUSE, "sampling_params.%s: not a number", key);
    return ARES_OK;
}

static int read_prompt(ares_arena *arena, const ares_json *prompt, int32_t vocab, int32_t context,
                       tinker_sample *s)
{
    const ares_json *chunks = ares_json_get(prompt, "chunks");
    int64_t n = 0;
    if (!chunks || chunks->type != ARES_JSON_ARRAY) return wrong("prompt: it has no chunks");
    for (int64_t i = 0; i < chunks->count; i++) {
        const ares_json *type = ares_json_get(&chunks->items[i], "type"),
                        *tokens = ares_json_get(&chunks->items[i], "tokens");
        if (type && !(type->type == ARES_JSON_STRING && ares_view_is(type->text, "encoded_text")))
            return wrong("prompt: image chunks are not served");
        if (!tokens || tokens->type != ARES_JSON_ARRAY)
            return wrong("prompt: a chunk has no tokens");
        n += tokens->count;
    }
    if (n == 0) return wrong("prompt: it is empty");
    if (n > context)
        return ares_fail(ARES_EUSE, "prompt of %lld tokens exceeds the context of %d", (long long)n,
                         context);
    int32_t *to = ares_arena_alloc(arena, (size_t)n * sizeof *to);
    s->prompt = to;
    s->prompt_len = (int32_t)n;
    for (int64_t i = 0; i < chunks->count; i++) {
        const ares_json *tokens = ares_json_get(&chunks->items[i], "tokens");
        for (int64_t k = 0; k < tokens->count; k++) {
            const ares_json *t = &tokens->items[k];
            if (!whole(t) || t->integer < 0 || t->integer >= vocab)
                return ares_fail(ARES_EUSE, "prompt: token %lld lies outside the vocabulary of %d",
                                 (long long)t->integer, vocab);
            *to++ = (int32_t)t->integer;
        }
    }
    return ARES_OK;
}

/* Absent: end-of-sequence ids; a text, texts, or ids: these too; the empty list: none at all. */
static int read_stop(ares_arena *arena, const ares_json *stop, int32_t vocab, tinker_sample *s)
{
    s->stops = true;
    if (!stop) return ARES_OK;
    bool one = stop->type == ARES_JSON_STRING;
    if (!one && stop->type != ARES_JSON_ARRAY) return wrong("stop: neither a text nor a list");
    int64_t n = one ? 1 : stop->count;
    if (n > 1024) return wrong("stop: more than 1024");
    s->stops = n > 0;
    const char **texts = ares_arena_alloc(arena, (size_t)n * sizeof *texts + 1);
    int32_t *ids = ares_arena_alloc(arena, (size_t)n * sizeof *ids + 1);
    for (int64_t i = 0; i < n; i++) {
        const ares_json *v = one ? stop : &stop->items[i];
        if (v->type == ARES_JSON_STRING) {
            if (v->text.len == 0 || strlen(v->text.data) != v->text.len)
                return wrong("stop: a text is empty, or holds a zero byte");
            texts[s->n_stop_strings++] = v->text.data;
        } else if (whole(v) && v->integer >= 0 && v->integer < vocab) {
            ids[s->n_stop_ids++] = (int32_t)v->integer;
        } else {
            return wrong("stop: neither a text nor a token of the vocabulary");
        }
    }
    if (s->n_stop_strings && s->n_stop_ids) return wrong("stop: a list of texts, or of tokens");
    s->stop_strings = texts;
    s->stop_ids = ids;
    return ARES_OK;
}

static int64_t *numbers_of(ares_arena *arena, const ares_json *list, int64_t n)
{
    if (!list || list->type != ARES_JSON_ARRAY || list->count != n) return NULL;
    int64_t *to = ares_arena_alloc(arena, (size_t)n * sizeof *to + 1);
    for (int64_t i = 0; i < n; i++) {
        if (!whole(&list->items[i])) return NULL;
        to[i] = list->items[i].integer;
    }
    return to;
}

/* target_prompt_logprobs: int64 [prompt_len - 1][K], dense or CSR. */
static int read_targets(ares_arena *arena, const ares_json *o, int32_t vocab, tinker_sample *s)
{
    const ares_json *data = ares_json_get(o, "data"), *dtype = ares_json_get(o, "dtype"),
                    *crow = present(o, "sparse_crow_indices"),
                    *col = present(o, "sparse_col_indices");
    int64_t rows = s->prompt_len - 1, *shape = numbers_of(arena, ares_json_get(o, "shape"), 2);
    if (dtype && !(dtype->type == ARES_JSON_STRING && ares_view_is(dtype->text, "int64")))
        return wrong("target_prompt_logprobs: its dtype is not int64");
    if (!shape || shape[0] != rows || shape[1] < 1 || shape[1] > 1 << 20)
        return ares_fail(ARES_EUSE, "target_prompt_logprobs: its shape is not [%lld, K]",
                         (long long)rows);
    if (rows * shape[1] > 1 << 25)
        return wrong("target_prompt_logprobs: more than 33554432 cells; ask for fewer at once");
    int64_t cells = rows * shape[1], n = crow && data ? data->count : cells;
    int64_t *values = numbers_of(arena, data, n);
    int32_t *targets = ares_arena_alloc(arena, (size_t)cells * sizeof *targets + 1);
    if (!values) return wrong("target_prompt_logprobs: its data are not those of its shape");
    for (int64_t i = 0; i < n; i++)
        if (values[i] < -1 || values[i] >= vocab)
            return ares_fail(ARES_EUSE,
                             "target_prompt_logprobs: token %lld lies outside the vocabulary of %d",
                             (long long)values[i], vocab);
    for (int64_t i = 0; i < cells; i++) targets[i] = crow ? -1 : (int32_t)values[i];
    s->targets = targets;
    s->n_targets = (int32_t)shape[1];
    if (!crow) return ARES_OK;
    int64_t *from = numbers_of(arena, crow, rows + 1), *columns = numbers_of(arena, col, n);
    if (!from || !columns || from[0] != 0 || from[rows] != n)
        return wrong("target_prompt_logprobs: its sparse indices are not those of its shape");
    for (int64_t r = 0; r < rows; r++) {
        if (from[r] > from[r + 1] || from[r + 1] > n)
            return wrong("target_prompt_logprobs: its rows go back, or beyond the data");
        for (int64_t i = from[r], last = -1; i < from[r + 1]; last = columns[i++]) {
            if (columns[i] <= last || columns[i] >= shape[1])
                return wrong("target_prompt_logprobs: columns of a row do not ascend within the "
                             "shape");
            targets[r * shape[1] + columns[i]] = (int32_t)values[i];
        }
    }
    s->crow = from;
    s->col = columns;
    s->n_cells = n;
    return ARES_OK;
}

int tinker_sample_check(ares_arena *arena, int32_t vocab, int32_t context, tinker_request *out)
{
    const ares_json *p = out->sampling_params, *most = present(p, "max_tokens");
    tinker_sample *s = &out->sample;
    double top_k;
    ARES_TRY(read_prompt(arena, out->prompt, vocab, context, s));
    ARES_TRY(param(p, "temperature", 1, &s->temperature));
    ARES_TRY(param(p, "top_p", 1, &s->top_p));
    ARES_TRY(param(p, "top_k", -1, &top_k));
    if (!(s->temperature >= 0) || !isfinite((float)s->temperature))
        return wrong("temperature: below 0, or not finite");
    if (!(s->top_p > 0 && s->top_p <= 1)) return wrong("top_p: outside (0, 1]");
    if (top_k == 0 || top_k < -1 || top_k > INT32_MAX || top_k != floor(top_k))
        return wrong("top_k: neither -1 nor a number from 1");
    s->top_k = (int32_t)top_k;
    if (out->num_samples < 1 || out->num_samples > 4096)
        return wrong("num_samples: outside 1 to 4096");
    s->n = (int32_t)out->num_samples;
    int64_t left = context - s->prompt_len, max = most ? most->integer : left;
    if (most && (!whole(most) || max < 1)) return wrong("max_tokens: not a number from 1");
    if (max > left || max < 1)
        return ares_fail(ARES_EUSE,
                         "prompt of %d tokens and max_tokens %lld exceed the context of %d",
                         s->prompt_len, (long long)ARES_MAX(max, 1), context);
    s->max_tokens = (int32_t)max;
    if (out->topk_prompt < 0 || out->topk_sampled < 0 || out->topk_prompt > 1024 ||
        out->topk_sampled > 1024)
        return wrong("topk_prompt_logprobs, topk_sample_logprobs: outside 0 to 1024");
    if (out->alt_tokens > 0) return wrong("prompt_alt_tokens_k: not served");
    if (out->last_n < -1) return wrong("prompt_logprobs_last_n: below 0");
    s->prompt_log_probs = out->prompt_log_probs;
    s->topk_prompt = (int32_t)out->topk_prompt;
    s->topk_sampled = (int32_t)out->topk_sampled;
    s->last_n = s->prompt_len - 1;
    if (out->last_n >= 0) s->last_n = (int32_t)ARES_MIN(out->last_n, (int64_t)s->last_n);
    ARES_TRY(read_stop(arena, present(p, "stop"), vocab, s));
    return out->targets ? read_targets(arena, out->targets, vocab, s) : ARES_OK;
}
