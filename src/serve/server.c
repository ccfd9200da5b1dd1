/*
 * The server: its door (paths and what is answered at once), the queue, the worker's rounds, and
 * what can be watched. The service thread runs `handle`, which leaves large bodies to the reader;
 * everything below "rounds" belongs to the worker, who calls ares_server_pump.
 */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "ares/dist.h"

enum {
    ROWS = 512,
    STOP_S = 5,
    LARGE = 65536,         /* bytes of a body that the reader reads: 10 ms where all is busy */
    MOST_VALUES = 4000000, /* of a body's JSON: up to 200 bytes each while it is read */
    HUGE_BODY = 16 << 20   /* after which the memory that it took is given back to the system */
};
static const char no_learner[] =
    "it runs on a card, or its --model is a run of an adapter; serve the base model with "
    "--device cpu";
static const ares_view of_tinker = { "/api/v1/", 8 }; /* paths */
static const uint64_t OF_DRAWS = UINT64_MAX; /* the line that all of Tinker's samples wait in */
static const double bounds[SERVE_BUCKETS - 1] = { 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100 };

/* ------------------------------------------------------------------ watching */
static void count(serve_histogram *h, double seconds)
{
    int i = 0;
    while (i < SERVE_BUCKETS - 1 && seconds > bounds[i]) i++;
    h->count[i]++;
    h->sum += seconds;
}

static void write_histogram(ares_str *out, const char *name, const serve_histogram *h)
{
    int64_t n = 0;
    ares_str_addf(out, "# TYPE %s histogram\n", name);
    for (int i = 0; i < SERVE_BUCKETS; i++) {
        n += h->count[i];
        if (i < SERVE_BUCKETS - 1)
            ares_str_addf(out, "%s_bucket{le=\"%g\"} %lld\n", name, bounds[i], (long long)n);
        else ares_str_addf(out, "%s_bucket{le=\"+Inf\"} %lld\n", name, (long long)n);
    }
    ares_str_addf(out, "%s_sum %.6f\n%s_count %lld\n", name, h->sum, name, (long long)n);
}

static int64_t resident_bytes(void)
{
    long pages = 0;
    ares_str text = { 0 };
    if (ares_file_read("/proc/self/statm", &text) != ARES_OK ||
        sscanf(text.data, "%*d %ld", &pages) != 1)
        ares_error_clear();
    ares_str_fini(&text);
    return pages * 4096;
}

static void write_metrics(ares_server *s, ares_str *out)
{
    pthread_mutex_lock(&s->lock);
    ares_str_add_z(out, "# TYPE ares:requests_total counter\n");
    for (int64_t i = 0; i < ares_map_count(s->answered); i++) {
        ares_view key = ares_map_key(s->answered, i);
        int64_t space = ares_view_find(key, ARES_VIEW(" "), 0);
        ares_str_addf(out, "ares:requests_total{path=\"%.*s\",status=\"%.*s\"} %lld\n", (int)space,
                      key.data, (int)(key.len - (size_t)space - 1), key.data + space + 1,
                      (long long)ares_map_value(s->answered, i));
    }
#define COUNTER(name, shown, text) \
    ares_str_addf(out, "# TYPE %s counter\n%s %lld\n", shown, shown, (long long)s->name);
    SERVE_COUNTERS(COUNTER)
#undef COUNTER
    const struct {
        const char *name;
        double value;
    } gauges[] = { { "ares:requests_running", (double)s->running },
                   { "ares:requests_waiting", (double)s->waiting },
                   { "ares:connections", serve_http_connections(s->http) },
                   { "ares:sessions", (double)s->n_sessions },
                   { "ares:kv_cache_usage", s->cache_use },
                   { "process_resident_memory_bytes", (double)resident_bytes() },
                   { "process_start_time_seconds", s->started } };
    for (int i = 0; i < ARES_COUNT(gauges); i++)
        ares_str_addf(out, "# TYPE %s gauge\n%s %.17g\n", gauges[i].name, gauges[i].name,
                      gauges[i].value);
    ares_str_add_z(out, "# TYPE ares:weight_version gauge\n");
    for (int i = 0; i < s->n_models; i++) {
        ares_str name = { 0 };
        ares_json_write_string(&name, ares_view_of(s->models[i]));
        const ares_adapter *a =
            i < s->o.n_names ? s->o.adapter : s->o.adapters[i - s->o.n_names].adapter;
        ares_str_addf(out, "ares:weight_version{model=%s} %llu\n", name.data,
                      (unsigned long long)(a ? a->version : 0));
        ares_str_fini(&name);
    }
    write_histogram(out, "ares:time_to_first_token_seconds", &s->first_token);
    write_histogram(out, "ares:request_seconds", &s->whole);
    pthread_mutex_unlock(&s->lock);
}

/* Under the lock: "path status" has one more answer. */
static void count_answer(ares_server *s, ares_view path, int status)
{
    ares_str key = { 0 };
    int64_t n = 0;
    ares_str_add_view(&key, path);
    ares_str_addf(&key, " %d", status);
    (void)ares_map_get(s->answered, ares_str_view(&key), &n);
    ares_map_put(s->answered, ares_str_view(&key), n + 1);
    ares_str_fini(&key);
}

/* A line of --request-log: no text, no key. */
static void log_job(const serve_job *j, int status)
{
    const serve_asked *q = &j->asked;
    ares_server *s = j->server;
    FILE *log = s->log;
    if (!log) return;
    char now[32];
    time_t t = time(NULL);
    struct tm tm;
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
    int64_t prompt = 0, cached = 0, completion = 0;
    for (int64_t i = 0; j->prompts && i < q->n_prompts; i++) {
        prompt += j->prompts[i].ids.n;
        cached += ARES_MAX(j->prompts[i].cached, 0);
    }
    for (int64_t i = 0; j->choices && i < j->n_choices; i++) completion += j->choices[i].n;
    ares_str line = { 0 };
    ares_json_begin(&line, '{');
    ares_json_write_string(ares_json_key(&line, "time"), ares_view_of(now));
    ares_json_write_string(ares_json_key(&line, "id"), ares_view_of(j->id));
    ares_json_write_string(ares_json_key(&line, "path"), serve_call_head(j->call)->path);
    ares_json_write_string(ares_json_key(&line, "model"),
                           ares_view_of(j->server->models[q->model]));
    if (q->session.len) ares_json_write_string(ares_json_key(&line, "session"), q->session);
    ares_json_write_i64(ares_json_key(&line, "status"), status);
    if (j->code != SERVE_NO_ERROR)
        ares_json_write_string(ares_json_key(&line, "code"),
                               ares_view_of(serve_code_name(j->code)));
    ares_json_write_i64(ares_json_key(&line, "prompt_tokens"), prompt);
    ares_json_write_i64(ares_json_key(&line, "cached_tokens"), cached);
    ares_json_write_i64(ares_json_key(&line, "completion_tokens"), completion);
    ares_json_write_i64(ares_json_key(&line, "n"), q->n);
    ares_json_key(&line, "finish");
    if (j->n_choices && j->ended == j->n_choices && j->code == SERVE_NO_ERROR)
        ares_json_write_string(
            &line, ares_view_of(serve_finish_names[serve_cut_answer(j->choices[0].cut)->finish]));
    else ares_json_write_null(&line);
    ares_json_key(&line, "ttft_ms");
    if (j->first_s > 0) ares_json_write_rounded(&line, 1e3 * (j->first_s - j->arrived_s), 6);
    else ares_json_write_null(&line);
    ares_json_write_rounded(ares_json_key(&line, "ms"), 1e3 * (ares_now_s() - j->arrived_s), 6);
    ares_json_write_bool(ares_json_key(&line, "stream"), q->stream);
    ares_json_end(&line, '}');
    ares_str_add_char(&line, '\n');
    if ((fwrite(line.data, 1, line.len, log) != line.len || fflush(log) != 0) && !s->log_failed) {
        s->log_failed = true;
        ares_warn("serve: --request-log %s cannot be written; requests are missing in it from now "
                  "on",
                  s->o.request_log);
    }
    ares_str_fini(&line);
}

/* ------------------------------------------------------------------ the door */
static void answer(serve_call *c, int status, const char *type, const ares_str *body)
{
    serve_call_answer(c, status, type, ares_str_view(body));
}

/* Refuses a request that became no job. */
static void refuse_call(ares_server *s, serve_call *c, const serve_error *e, const char *allow)
{
    ares_str body = { 0 };
    char id[32];
    pthread_mutex_lock(&s->lock);
    uint64_t number = ++s->errors;
    count_answer(s, ARES_VIEW("other"), serve_status(e->code));
    pthread_mutex_unlock(&s->lock);
    snprintf(id, sizeof id, "req-%016llx",
             (unsigned long long)ares_fnv1a(ARES_FNV1A ^ s->o.seed, &number, sizeof number));
    serve_call_header(c, "x-request-id", id);
    if (allow) serve_call_header(c, "allow", allow);
    serve_error_write(&body, e);
    answer(c, serve_status(e->code), "application/json", &body);
    ares_str_fini(&body);
    serve_call_drop(c);
}

/* http.c: an error that it answers by itself */
static void http_error(void *ctx, ares_view path, int status, const char *type, const char *code,
                       const char *message, ares_str *out)
{
    ares_server *s = ctx;
    pthread_mutex_lock(&s->lock);
    count_answer(s, ARES_VIEW("other"), status);
    pthread_mutex_unlock(&s->lock);
    if (ares_view_starts(path, of_tinker)) tinker_error_body(message, out);
    else serve_error_write_words(out, type, code, NULL, message);
}

static void write_model(const ares_server *s, int i, ares_str *out)
{
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "id"), ares_view_of(s->models[i]));
    ares_json_write_string(ares_json_key(out, "object"), ARES_VIEW("model"));
    ares_json_write_i64(ares_json_key(out, "created"), (int64_t)s->started);
    ares_json_write_string(ares_json_key(out, "owned_by"), ARES_VIEW("ares-train"));
    ares_json_write_string(ares_json_key(out, "root"), ares_view_of(s->models[i]));
    ares_json_key(out, "parent");
    if (i < s->o.n_names) ares_json_write_null(out);
    else ares_json_write_string(out, ares_view_of(s->models[0]));
    ares_json_write_i64(ares_json_key(out, "max_model_len"), s->o.max_model_len);
    ares_json_end(out, '}');
}

/* The text of a special token, or null. */
static void write_role(const ares_server *s, const char *key, ares_token_role role, ares_str *out)
{
    int32_t id = ares_tokenizer_role_id(s->tokenizer, role);
    ares_json_key(out, key);
    if (id < 0) ares_json_write_null(out);
    else ares_json_write_string(out, ares_tokenizer_token_bytes(s->tokenizer, id));
}

/* Paths that are read: answered at once. False: there is no such path. */
static bool answer_get(ares_server *s, serve_call *c, ares_view path)
{
    ares_str body = { 0 };
    const char *type = "application/json";
    int status = 200;
    const ares_view models = ARES_VIEW("/v1/models");
    if (ares_view_is(path, "/health")) {
        pthread_mutex_lock(&s->lock);
        if (s->stopping) status = 503;
        pthread_mutex_unlock(&s->lock);
        ares_str_add_z(&body, status == 200 ? "{\"status\":\"ok\"}" : "{\"status\":\"stopping\"}");
    } else if (ares_view_is(path, "/metrics")) {
        type = "text/plain; version=0.0.4; charset=utf-8";
        write_metrics(s, &body);
    } else if (ares_view_is(path, "/version")) {
        ares_json_begin(&body, '{');
        ares_json_write_string(ares_json_key(&body, "version"), ares_view_of(s->o.version));
        ares_json_end(&body, '}');
    } else if (ares_view_is(path, "/tokenizer_info")) {
        ares_view chat = ares_tokenizer_chat_template(s->tokenizer, NULL);
        ares_json_begin(&body, '{');
        write_role(s, "bos_token", ARES_TOKEN_BOS, &body);
        write_role(s, "eos_token", ARES_TOKEN_EOS, &body);
        write_role(s, "pad_token", ARES_TOKEN_PAD, &body);
        ares_json_key(&body, "chat_template");
        if (chat.data) ares_json_write_string(&body, chat);
        else ares_json_write_null(&body);
        ares_json_end(&body, '}');
    } else if (ares_view_is(path, models.data)) {
        ares_json_begin(&body, '{');
        ares_json_write_string(ares_json_key(&body, "object"), ARES_VIEW("list"));
        ares_json_begin(ares_json_key(&body, "data"), '[');
        for (int i = 0; i < s->n_models; i++) write_model(s, i, &body);
        ares_json_end(&body, ']');
        ares_json_end(&body, '}');
    } else if (ares_view_starts(path, models) && path.len > models.len + 1 &&
               path.data[models.len] == '/') {
        ares_view name = { path.data + models.len + 1, path.len - models.len - 1 };
        int i = 0;
        while (i < s->n_models && !ares_view_is(name, s->models[i])) i++;
        if (i < s->n_models) write_model(s, i, &body);
        else {
            ares_arena a = { 0 };
            serve_error e;
            serve_refuse(&e, &a, SERVE_model_not_found, "model",
                         "no model '%.*s' is served; /v1/models lists those that are",
                         (int)name.len, name.data);
            refuse_call(s, c, &e, NULL);
            ares_arena_fini(&a);
            ares_str_fini(&body);
            return true;
        }
    } else {
        ares_str_fini(&body);
        return false;
    }
    pthread_mutex_lock(&s->lock);
    count_answer(s, ares_view_starts(path, models) ? models : path, status);
    pthread_mutex_unlock(&s->lock);
    answer(c, status, type, &body);
    ares_str_fini(&body);
    serve_call_drop(c);
    return true;
}

/* Whether the path answers GET. */
static bool is_read(ares_view path)
{
    static const char *const paths[] = { "/health", "/metrics", "/version", "/tokenizer_info",
                                         "/v1/models" };
    for (int i = 0; i < ARES_COUNT(paths); i++)
        if (ares_view_is(path, paths[i])) return true;
    return ares_view_starts(path, ARES_VIEW("/v1/models/"));
}

/* Fields that are ignored are named in the log, each once. Under the lock. */
static void tell_ignored(ares_server *s, const serve_asked *q)
{
    for (int i = 0; i < q->n_ignored; i++) {
        if (ares_map_get(s->ignored, ares_view_of(q->ignored[i]), NULL)) continue;
        ares_map_put(s->ignored, ares_view_of(q->ignored[i]), 1);
        ares_info("serve: '%s' of requests has no effect here; it is ignored", q->ignored[i]);
    }
}

static bool is_stopping(ares_server *s)
{
    pthread_mutex_lock(&s->lock);
    bool stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    return stopping;
}

/* Reads the body and queues the job; a failure is answered at once. */
static void accept_job(ares_server *s, serve_call *c, serve_endpoint endpoint)
{
    const serve_request_head *head = serve_call_head(c);
    serve_job *j = ares_calloc(1, sizeof *j);
    const serve_reading reading = { .models = s->models,
                                    .n_models = s->n_models,
                                    .vocab_size = s->model->cfg.vocab,
                                    .vision = s->encoder != NULL,
                                    .training = s->o.rollout != NULL,
                                    .form = s->form,
                                    .session_header = head->session_id };
    *j = (serve_job){ .server = s,
                      .call = c,
                      .created = (int64_t)time(NULL),
                      .arrived_s = head->arrived_s,
                      .line = head->connection };
    j->code = serve_request_read(&j->arena, &reading, endpoint, head->body, &j->asked, &j->error);
    if (j->code == SERVE_NO_ERROR && j->asked.stream && j->asked.prompt_logprobs >= 0)
        j->code = serve_refuse(&j->error, &j->arena, SERVE_unsupported_value, "prompt_logprobs",
                               "prompt_logprobs go with a whole answer; leave out stream");
    if (j->code == SERVE_NO_ERROR && head->body.len >= LARGE && !is_stopping(s))
        serve_job_encode(j);
    pthread_mutex_lock(&s->lock);
    bool stopping = s->stopping, full = s->unfinished >= s->o.max_queue;
    uint64_t number = ++s->errors;
    if (j->code == SERVE_NO_ERROR && stopping)
        j->code = serve_refuse(&j->error, &j->arena, SERVE_shutting_down, NULL,
                               "the server is stopping; ask again when it is back");
    else if (j->code == SERVE_NO_ERROR && full)
        j->code = serve_refuse(&j->error, &j->arena, SERVE_queue_full, NULL,
                               "%lld requests are waiting (--max-queue); ask again in a second",
                               (long long)s->unfinished);
    if (j->code == SERVE_NO_ERROR) tell_ignored(s, &j->asked);
    s->unfinished++;
    pthread_mutex_unlock(&s->lock);
    uint64_t id = ares_fnv1a(ARES_FNV1A, &number, sizeof number);
    id = ares_fnv1a(id, &s->started, sizeof s->started);
    const char *prefix = j->code != SERVE_NO_ERROR                     ? "req"
                         : endpoint == SERVE_COMPLETIONS               ? "cmpl"
                         : endpoint & (SERVE_CHAT | SERVE_CHAT_TOKENS) ? "chatcmpl"
                                                                       : "req";
    snprintf(j->id, sizeof j->id, "%s-%016llx", prefix, (unsigned long long)id);
    if (j->code != SERVE_NO_ERROR) {
        j->asked.stream = false;
        serve_job_end(j, serve_job_answer(j));
        return;
    }
    if (j->encoded && endpoint & (SERVE_TOKENIZE | SERVE_DETOKENIZE)) {
        serve_job_end(j, serve_job_tokens(j));
        return;
    }
    int adapter = j->asked.model - s->o.n_names;
    if (!s->o.rollout) j->adapter = adapter < 0 ? s->o.adapter : s->o.adapters[adapter].adapter;
    pthread_mutex_lock(&s->lock);
    if (s->queued_last) s->queued_last->next = j;
    else s->queued = j;
    s->queued_last = j;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->event >= 0) eventfd_write(s->event, 1);
}

/* ---------------- Tinker's calls */
/* tinker_options.wake */
static void wake(void *ctx)
{
    ares_server *s = ctx;
    pthread_mutex_lock(&s->lock);
    s->woken = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static void ask_tinker(ares_server *s, serve_call *c)
{
    if (s->tinker) {
        tinker_handle(s->tinker, c);
        return;
    }
    ares_str body = { 0 };
    ares_str why = { 0 };
    ares_str_addf(&why, "this server trains nothing: %s", no_learner);
    tinker_error_body(why.data, &body);
    ares_str_fini(&why);
    answer(c, 404, "application/json", &body);
    serve_call_drop(c);
    ares_str_fini(&body);
}

/* A request whose body is whole: in the service thread, or in the reader. */
static void take_request(ares_server *s, serve_call *c)
{
    const serve_request_head *head = serve_call_head(c);
    serve_endpoint endpoint = serve_endpoint_of(head->path);
    if (ares_view_starts(head->path, of_tinker)) {
        ask_tinker(s, c);
        return;
    }
    bool get = strcmp(head->method, "GET") == 0 || strcmp(head->method, "HEAD") == 0;
    if (get && answer_get(s, c, head->path)) return;
    if (endpoint && strcmp(head->method, "POST") == 0) {
        accept_job(s, c, endpoint);
        return;
    }
    ares_arena a = { 0 };
    serve_error e;
    const char *allow = endpoint ? "POST" : is_read(head->path) ? "GET" : NULL;
    if (allow)
        serve_refuse(&e, &a, SERVE_method_not_allowed, NULL, "%s is not a method of %.*s; use %s",
                     head->method, (int)head->path.len, head->path.data, allow);
    else serve_refuse_path(&e, &a, head->path);
    refuse_call(s, c, &e, allow);
    ares_arena_fini(&a);
}

/* In the service thread. */
static void handle(void *ctx, serve_call *c)
{
    ares_server *s = ctx;
    if (serve_call_head(c)->body.len < LARGE) {
        take_request(s, c);
        return;
    }
    pthread_mutex_lock(&s->lock);
    if (s->n_large == s->cap_large) {
        s->cap_large = s->cap_large * 2 + 16;
        s->large = ares_realloc(s->large, (size_t)s->cap_large * sizeof(serve_call *));
    }
    s->large[s->n_large++] = c;
    pthread_cond_signal(&s->comes);
    pthread_mutex_unlock(&s->lock);
}

/* How many values the JSON has at most: what ends one, outside of strings. */
static int64_t count_values(ares_view json)
{
    int64_t n = 1;
    bool inside = false;
    for (size_t i = 0; i < json.len; i++) {
        char c = json.data[i];
        if (c == '"') inside = !inside;
        else if (c == '\\' && inside) i++;
        else n += !inside && (c == ',' || c == '[' || c == '{');
    }
    return n;
}

/* A large body is read, unless what is read of it would fill the memory. */
static void take_large(ares_server *s, serve_call *c)
{
    const serve_request_head *head = serve_call_head(c);
    bool json = !ares_view_is(head->path, "/api/v1/forward_backward");
    ares_str body = { 0 };
    if (serve_call_gone(c)) serve_call_drop(c);
    else if (!json || count_values(head->body) <= MOST_VALUES) take_request(s, c);
    else {
        http_error(s, head->path, 400, "invalid_request_error", "invalid_json",
                   "the body holds more than 4 million values of JSON; send less at once", &body);
        answer(c, 400, "application/json", &body);
        serve_call_drop(c);
    }
    ares_str_fini(&body);
}

/* The reader: large bodies, one after the other, so that their trees are not all in memory. */
static void *read_large(void *ctx)
{
    ares_server *s = ctx;
    pthread_mutex_lock(&s->lock);
    while (!s->reader_ends) {
        s->reading = s->n_large > 0;
        if (!s->reading) {
            pthread_cond_wait(&s->comes, &s->lock);
            continue;
        }
        serve_call *c = s->large[0];
        memmove(s->large, s->large + 1, (size_t)--s->n_large * sizeof(serve_call *));
        pthread_mutex_unlock(&s->lock);
        bool huge = serve_call_head(c)->body.len >= HUGE_BODY;
        take_large(s, c);
        if (huge) malloc_trim(0);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Whether the reader has something to read. */
static bool reads(ares_server *s)
{
    pthread_mutex_lock(&s->lock);
    bool busy = s->reading || s->n_large;
    pthread_mutex_unlock(&s->lock);
    return busy;
}

static int open_reader(ares_server *s)
{
    sigset_t every, before;
    sigfillset(&every); /* blocked in the new thread: the main thread takes them */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int rc = pthread_create(&s->reader, NULL, read_large, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return ares_fail(ARES_EIO, "serve: a thread for large bodies: %s", strerror(rc));
    s->has_reader = true;
    return ARES_OK;
}

static void close_reader(ares_server *s)
{
    if (!s->has_reader) return;
    pthread_mutex_lock(&s->lock);
    s->reader_ends = true;
    pthread_cond_signal(&s->comes);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->reader, NULL);
    for (int i = 0; i < s->n_large; i++) serve_call_drop(s->large[i]);
    ares_free(s->large);
}

/* ------------------------------------------------------------------ the end of a job */
void serve_job_end(serve_job *j, int status)
{
    ares_server *s = j->server;
    double now = ares_now_s();
    if (j->episode) s->play->ended(s->play->ctx, j->episode, j->encoded_anew);
    j->episode = NULL;
    log_job(j, status);
    pthread_mutex_lock(&s->lock);
    count_answer(s, serve_call_head(j->call)->path, status);
    for (int64_t i = 0; j->prompts && i < j->asked.n_prompts; i++)
        if (j->prompts[i].cached >= 0) {
            s->prompt_tokens += j->prompts[i].ids.n;
            s->cached_tokens += j->prompts[i].cached;
        }
    for (int64_t i = 0; j->choices && i < j->n_choices; i++)
        s->generation_tokens += j->choices[i].n;
    if (j->first_s > 0) count(&s->first_token, j->first_s - j->arrived_s);
    count(&s->whole, now - j->arrived_s);
    s->unfinished--;
    pthread_mutex_unlock(&s->lock);
    serve_call_drop(j->call);
    j->call = NULL;
    if (j->sees) { /* features know its pictures by their address */
        j->next = s->keeps;
        s->keeps = j;
    } else serve_job_free(j);
}

/* ------------------------------------------------------------------ rounds of the worker */
/* Nobody waits for the job's samples any more. */
static void abandon(ares_server *s, const serve_job *j)
{
    for (int i = 0; i < s->n_runs; i++) {
        serve_run *r = &s->runs[i];
        if (r->job != j) continue;
        r->job = NULL;
        for (int32_t k = 0; k < r->n; k++) {
            const job_choice *c = &j->choices[r->first + k];
            if (!c->ended) ares_rollout_cut(s->rollout, r->id, r->first_index + k, c->n);
        }
    }
}

/* Takes over what was queued. */
static bool take_jobs(ares_server *s)
{
    eventfd_t told;
    if (s->event >= 0) eventfd_read(s->event, &told); /* before: what comes now is told again */
    pthread_mutex_lock(&s->lock);
    serve_job *j = s->queued;
    s->queued = s->queued_last = NULL;
    pthread_mutex_unlock(&s->lock);
    serve_job **at = &s->jobs;
    while (*at) at = &(*at)->next;
    *at = j;
    return j != NULL;
}

/* Whose turn it is: how often they were served. */
static serve_turn_of *turn_of(ares_server *s, uint64_t line)
{
    for (int i = 0; i < s->n_turns; i++)
        if (s->turns[i].line == line) return &s->turns[i];
    if (s->n_turns == s->turns_cap) {
        s->turns_cap = s->turns_cap * 2 + 16;
        s->turns = ares_realloc(s->turns, (size_t)s->turns_cap * sizeof *s->turns);
    }
    s->turns[s->n_turns] = (serve_turn_of){ line, 0 };
    return &s->turns[s->n_turns++];
}

/* Of lines that have no request any more, nothing is remembered. */
static void forget_turns(ares_server *s)
{
    int kept = 0;
    for (int i = 0; i < s->n_turns; i++) {
        const serve_job *j = s->jobs;
        while (j && j->line != s->turns[i].line) j = j->next;
        if (j || (s->draws && s->turns[i].line == OF_DRAWS)) s->turns[kept++] = s->turns[i];
    }
    s->n_turns = kept;
}

static void add_run(ares_server *s, serve_run r)
{
    if (s->n_runs == s->runs_cap) {
        s->runs_cap = s->runs_cap * 2 + 16;
        s->runs = ares_realloc(s->runs, (size_t)s->runs_cap * sizeof *s->runs);
    }
    s->runs[s->n_runs++] = r;
}

/* Asks the engine for the next samples of a job, at most `room`; returns how many. */
static int32_t ask_for_job(ares_server *s, serve_job *j, int32_t room)
{
    int64_t of_prompt = j->asked.n - j->next_choice % j->asked.n, id;
    ares_request r = serve_job_request(j, j->next_choice, (int32_t)ARES_MIN(of_prompt, room));
    int32_t n = r.n;
    if (ares_rollout_add(s->rollout, &r, &id) != ARES_OK) {
        j->code = serve_refuse(&j->error, &j->arena, SERVE_invalid_value, NULL, "%s",
                               ares_error_message());
        return 0;
    }
    add_run(s, (serve_run){ .id = id,
                            .job = j,
                            .first = j->next_choice,
                            .first_index = r.first_index,
                            .n = n,
                            .left = n });
    j->next_choice += n;
    j->running += n;
    return n;
}

static int32_t ask_for_draw(ares_server *s, serve_draw *d, int32_t room)
{
    int64_t id, first;
    int rc;
    int32_t n = serve_draw_ask(d, room, &id, &first, &rc);
    if (n) add_run(s, (serve_run){ .id = id, .draw = d, .first = first, .n = n, .left = n });
    else serve_draw_fail(d, rc);
    return n;
}

/*
 * Fills the engine: the next samples are those of the line served least recently; a line's own
 * requests take turns in order of arrival.
 */
static void admit(ares_server *s)
{
    int32_t running = 0;
    for (int i = 0; i < s->n_runs; i++) running += s->runs[i].left;
    while (running < s->o.max_num_seqs) {
        serve_job *next = NULL;
        serve_draw *draw = serve_draw_next(s);
        uint64_t least = draw ? turn_of(s, OF_DRAWS)->served : UINT64_MAX, line = OF_DRAWS;
        for (serve_job *j = s->jobs; j; j = j->next) {
            if (j->code != SERVE_NO_ERROR || !j->prepared || j->next_choice == j->n_choices)
                continue;
            uint64_t served = turn_of(s, j->line)->served;
            if (served >= least) continue;
            least = served;
            line = j->line;
            next = j;
        }
        if (!next && !draw) return;
        /* several lines wait: each gets a few samples in its turn */
        int32_t room = ARES_MIN(s->o.max_num_seqs - running, s->n_turns > 1 ? 8 : INT32_MAX);
        turn_of(s, line)->served = ++s->served;
        running += next ? ask_for_job(s, next, room) : ask_for_draw(s, draw, room);
    }
}

static serve_run *run_of(ares_server *s, int64_t id)
{
    for (int i = 0; i < s->n_runs; i++)
        if (s->runs[i].id == id) return &s->runs[i];
    ARES_ASSERT(false);
    return NULL;
}

/* Tokens of samples that go on. */
static void take_tokens(ares_server *s)
{
    for (int i = 0; i < s->n_runs; i++) {
        serve_run *r = &s->runs[i];
        for (int32_t k = 0; r->job && k < r->n; k++) {
            serve_job *j = r->job;
            job_choice *c = &j->choices[r->first + k];
            ares_completion now;
            if (c->ended) continue;
            int32_t index = r->first_index + k;
            ares_rollout_look(s->rollout, r->id, index, &now);
            if (now.n_tokens > c->n && serve_job_take(j, r->first + k, &now))
                ares_rollout_cut(s->rollout, r->id, index, ARES_MAX(c->n, 0));
        }
    }
}

/* Samples that the engine has finished. */
static void take_finished(ares_server *s)
{
    ares_completion c;
    while (ares_rollout_next(s->rollout, &c)) {
        serve_run *r = run_of(s, c.request);
        serve_job *j = r->job;
        r->left--;
        if (r->draw) serve_draw_take(r->draw, r->id, &c);
        if (j) {
            int64_t choice = r->first + c.index - r->first_index;
            if (c.finish == ARES_FINISH_BROKEN && j->code == SERVE_NO_ERROR)
                j->code = serve_refuse(&j->error, &j->arena, SERVE_internal_error, NULL,
                                       "the model's logits are not finite: its weights, or its "
                                       "adapter's, hold NaN or infinity");
            if (choice % j->asked.n == 0) {
                ares_prompt_scores scores;
                ares_rollout_prompt_scores(s->rollout, r->id, &scores);
                if (scores.width) serve_job_scores(j, choice, &scores);
            }
            (void)serve_job_take(j, choice, &c);
            j->running--;
            if (j->code == SERVE_NO_ERROR) {
                serve_job_close_choice(j, choice);
                j->ended++;
            }
        }
        if (r->left) continue;
        if (!s->o.rollout) ares_rollout_drop(s->rollout, r->id);
        *r = s->runs[--s->n_runs];
    }
}

/* Jobs that are over leave: answered, failed, too late, or without a client. */
static void end_jobs(ares_server *s)
{
    double now = ares_now_s();
    for (serve_job **at = &s->jobs, *j; (j = *at);) {
        bool gone = j->lost || serve_call_gone(j->call);
        if (!gone && j->code == SERVE_NO_ERROR && s->o.request_timeout_s > 0 &&
            now - j->arrived_s > s->o.request_timeout_s)
            j->code = serve_refuse(&j->error, &j->arena, SERVE_request_timeout, NULL,
                                   "the request took longer than %g s (--request-timeout)",
                                   s->o.request_timeout_s);
        if (!gone && j->code == SERVE_NO_ERROR && j->ended < j->n_choices) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        abandon(s, j);
        if (gone) {
            pthread_mutex_lock(&s->lock);
            s->cancelled++;
            pthread_mutex_unlock(&s->lock);
            serve_job_end(j, 499);
        } else serve_job_end(j, serve_job_answer(j));
    }
    forget_turns(s);
}

static void free_features(ares_server *s)
{
    for (int i = 0; s->features && i <= s->o.n_adapters; i++) {
        ares_features_free(s->features[i]);
        s->features[i] = NULL;
    }
}

/* Pictures are let go when nothing is under way that could name them. */
static int rest(ares_server *s)
{
    if (!s->shown || s->jobs || s->n_runs) return ARES_OK;
    ares_rollout_clear(s->rollout);
    s->drafted_before = s->accepted_before = 0;
    free_features(s);
    for (serve_job *j = s->keeps, *next; j; j = next) {
        next = j->next;
        serve_job_free(j);
    }
    s->keeps = NULL;
    s->shown = false;
    return ARES_OK;
}

static void publish(ares_server *s)
{
    ares_rollout_stats stats;
    ares_rollout_get_stats(s->rollout, &stats);
    int64_t running = 0, waiting = 0;
    for (const serve_job *j = s->jobs; j; j = j->next) {
        running += j->running > 0;
        waiting += j->running == 0;
    }
    pthread_mutex_lock(&s->lock);
    s->running = running;
    s->waiting = waiting;
    s->n_sessions = serve_sessions_count(s->sessions);
    /* a training run clears its engine itself */
    if (stats.drafted_tokens < s->drafted_before) s->drafted_before = s->accepted_before = 0;
    s->drafted_tokens += stats.drafted_tokens - s->drafted_before;
    s->accepted_tokens += stats.accepted_tokens - s->accepted_before;
    s->drafted_before = stats.drafted_tokens;
    s->accepted_before = stats.accepted_tokens;
    s->cache_use = (double)stats.used_blocks / (double)ARES_MAX(stats.total_blocks, 1);
    pthread_mutex_unlock(&s->lock);
}

/*
 * Hands Tinker's samples to the engine, and does its next training call; while answers wait for
 * their tokens, decoding then gets as long as that call took.
 */
static bool work_for_tinker(ares_server *s)
{
    if (!s->tinker) return false;
    int kinds = tinker_waits(s->tinker);
    double now = ares_now_s();
    if (s->n_runs && now < s->decode_until_s) kinds &= ~TINKER_TRAINING;
    bool worked = tinker_work(s->tinker, kinds);
    if (kinds & TINKER_TRAINING) {
        double end = ares_now_s();
        s->decode_until_s = end + (end - now);
    }
    return worked;
}

int ares_server_pump(ares_server *s, double wait_s, bool *worked)
{
    bool taken = take_jobs(s);
    taken |= work_for_tinker(s);
    *worked = taken || s->n_runs;
    if (!*worked && wait_s > 0) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t ns = until.tv_nsec + (int64_t)(wait_s * 1e9);
        until.tv_sec += ns / 1000000000;
        until.tv_nsec = ns % 1000000000;
        pthread_mutex_lock(&s->lock);
        if (!s->queued && !s->woken) pthread_cond_timedwait(&s->wake, &s->lock, &until);
        s->woken = false;
        pthread_mutex_unlock(&s->lock);
        taken = take_jobs(s);
        (void)work_for_tinker(s);
    }
    for (serve_job *j = s->jobs; j; j = j->next)
        if (!j->prepared) {
            if (s->o.rollout) serve_job_enter(j);
            if (j->code == SERVE_NO_ERROR) serve_job_prepare(j);
            j->prepared = true;
        }
    for (serve_job **at = &s->jobs, *j; (j = *at);) {
        if (j->code == SERVE_NO_ERROR && j->asked.endpoint & (SERVE_TOKENIZE | SERVE_DETOKENIZE)) {
            *at = j->next;
            serve_job_end(j, serve_job_tokens(j));
        } else at = &j->next;
    }
    admit(s);
    if (s->n_runs) {
        int64_t active;
        ARES_TRY(ares_rollout_step(s->rollout, &active));
        take_tokens(s);
        take_finished(s);
        *worked = true;
    }
    serve_draws_end(s);
    end_jobs(s);
    publish(s);
    return rest(s);
}

int ares_server_run(ares_server *s)
{
    int rc = ARES_OK;
    bool worked;
    while (rc == ARES_OK && !ares_signal_pending()) rc = ares_server_pump(s, 0.1, &worked);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    if (s->tinker) tinker_stop(s->tinker); /* waiting polls are answered 503 */
    take_jobs(s);
    /* what is in work is finished, or dropped after STOP_S: nothing of it was told */
    for (double end = ares_now_s() + STOP_S;
         rc == ARES_OK && (s->jobs || reads(s)) && ares_now_s() < end;)
        rc = ares_server_pump(s, 0.05, &worked);
    take_jobs(s);
    for (serve_job *j = s->jobs; j; j = j->next)
        if (j->code == SERVE_NO_ERROR)
            j->code = serve_refuse(&j->error, &j->arena, SERVE_shutting_down, NULL,
                                   "the server is stopping; ask again when it is back");
    end_jobs(s);
    return rc;
}

/* ------------------------------------------------------------------ opening */
static int open_chat(ares_server *s)
{
    const ares_serve_options *o = &s->o;
    if (o->chat) s->chat = o->chat;
    else if (!ares_tokenizer_chat_template(s->tokenizer, NULL).data) {
        s->chat_error = ares_strdup("the model has no chat template: put chat_template.jinja into "
                                    "its directory, or ask /v1/completions");
    } else {
        ARES_TRY(ares_chat_load(o->tokenizer_dir, NULL, &s->own_chat));
        s->chat = s->own_chat;
    }
    bool automatic = strcmp(o->tool_parser, "auto") == 0;
    if (s->chat && automatic) s->form = serve_form_of(s->chat);
    for (int i = 0; i < ARES_COUNT(serve_form_names) && !automatic; i++)
        if (strcmp(o->tool_parser, serve_form_names[i]) == 0) s->form = (serve_form)i;
    s->generic_tools =
        s->chat && s->form == SERVE_FORM_HERMES && !ares_chat_reads(s->chat, ARES_VIEW("tools"));
    ares_info("serve: calls of tools are read as %s%s", serve_form_names[s->form],
              s->generic_tools ? " (the chat template knows none: they are described in the system "
                                 "message)"
                               : "");
    return ARES_OK;
}

static int open_vision(ares_server *s)
{
    if (!s->model->cfg.vision.depth || s->o.rollout) return ARES_OK; /* episodes are text alone */
    s->data = (ares_data_config){ .prompt_key = "prompt",
                                  .image_key = "images",
                                  .video_key = "videos",
                                  .min_pixels = ARES_NULL_I64,
                                  .max_pixels = ARES_NULL_I64,
                                  .video_fps = 2 };
    ARES_TRY(ares_media_rules_load(&s->model->cfg, s->o.model_dir, &s->rules));
    s->features = ares_calloc((size_t)s->o.n_adapters + 1, sizeof *s->features);
    return ares_prompt_encoder_new(&(ares_prompt_options){ .cfg = &s->data,
                                                           .tokenizer = s->tokenizer,
                                                           .row_media = &s->rules },
                                   &s->encoder);
}

static int check_options(const ares_serve_options *o, const ares_model *m)
{
    if (o->max_model_len > m->cfg.max_position)
        return ares_fail(ARES_EUSE,
                         "serve: --max-model-len = %d: the model has %d positions; set at most "
                         "that, or leave it out",
                         o->max_model_len, m->cfg.max_position);
    if (!(o->request_timeout_s >= 0))
        return ares_fail(ARES_EUSE, "serve: --request-timeout = %g: set seconds, or 0 for none",
                         o->request_timeout_s);
    return ARES_OK;
}

/* Names of the model and of adapters. */
static void open_names(ares_server *s)
{
    const ares_serve_options *o = &s->o;
    s->models = ares_calloc((size_t)(o->n_names + o->n_adapters), sizeof *s->models);
    for (int i = 0; i < o->n_names; i++) s->models[s->n_models++] = o->names[i];
    for (int i = 0; i < o->n_adapters; i++) s->models[s->n_models++] = o->adapters[i].name;
}

static int open_tinker(ares_server *s)
{
    const ares_serve_options *o = &s->o;
    if (!o->learner) {
        if (!o->rollout) ares_info("serve: the Tinker API is not served here: %s", no_learner);
        return ARES_OK;
    }
    static const char *const local[] = { "127.0.0.1", "localhost", "::1" };
    bool here = false;
    for (int i = 0; i < ARES_COUNT(local); i++) here |= strcmp(o->host, local[i]) == 0;
    s->engine = (tinker_engine){ s, serve_draw_begin, serve_draw_cancel };
    tinker_options t = { TINKER_DEFAULTS, .names = o->names, .n_names = o->n_names };
    char *whole = realpath(o->model_dir, NULL); /* clients may stand in another folder */
    const char *dir = whole ? whole : o->model_dir;
    t.model_dir = ares_arena_copy(&s->arena, dir, strlen(dir));
    free(whole);
    t.arch = s->model->cfg.model_type;
    uint64_t print;
    ARES_TRY(ares_model_fingerprint(o->model_dir, &print));
    snprintf(t.fingerprint, sizeof t.fingerprint, "%016llx", (unsigned long long)print);
    t.vocab = s->model->cfg.vocab;
    t.context = o->max_model_len;
    t.local = here;
    if (o->state_dir) t.state_dir = o->state_dir;
    t.state_later = !o->state_dir;
    t.max_lora_rank = o->max_lora_rank;
    t.max_models = o->max_models;
    t.max_queue = o->max_queue;
    t.session_timeout_s = o->session_timeout_s;
    t.seed = o->seed;
    t.learner = o->learner;
    t.engine = &s->engine;
    t.wake = wake;
    t.answer = tinker_answer_call;
    t.ctx = s;
    return tinker_open(&t, &s->tinker);
}

static int open_all(ares_server *s)
{
    ares_serve_options *o = &s->o;
    ARES_TRY(check_options(o, s->model));
    if (!o->max_model_len) o->max_model_len = s->model->cfg.max_position;
    ARES_TRY(open_chat(s));
    ARES_TRY(open_vision(s));
    open_names(s);
    int32_t rank = o->adapter ? o->adapter->rank : 0;
    for (int i = 0; i < o->n_adapters; i++) rank = ARES_MAX(rank, o->adapters[i].adapter->rank);
    const ares_rollout_options rollout = { .max_num_seqs = o->max_num_seqs,
                                           .max_num_batched_tokens = ROWS,
                                           .max_model_len = o->max_model_len,
                                           .cache_tokens = o->cache_tokens,
                                           .drafts_tokens = o->drafts_tokens,
                                           .state_snapshots = o->state_snapshots,
                                           .adapter_rank = rank,
                                           .n_likely = SERVE_MOST_LIKELY,
                                           .serves = true };
    if (o->rollout) s->rollout = o->rollout;
    else ARES_TRY(ares_rollout_new(s->model, s->tokenizer, &rollout, &s->rollout));
    if (o->rollout && (s->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return ares_fail(ARES_EIO, "serve: eventfd: %s", strerror(errno));
    int log =
        o->request_log ? open(o->request_log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (o->request_log && (log < 0 || !(s->log = fdopen(log, "a"))))
        return ares_fail(ARES_EIO, "serve: --request-log = '%s': it cannot be written",
                         o->request_log);
    ARES_TRY(open_tinker(s));
    ARES_TRY(open_reader(s));
    serve_http_options http = { SERVE_HTTP_DEFAULTS, .error = http_error, .handle = handle };
    http.ctx = s;
    http.host = o->host;
    http.port = o->port;
    http.api_key = o->api_key;
    http.origins = o->origins;
    http.n_origins = o->n_origins;
    http.max_body_bytes = o->max_body_mb << 20;
    return serve_http_open(&http, &s->http);
}

int ares_server_open(const ares_serve_options *o, ares_model *m, const ares_tokenizer *tokenizer,
                     ares_server **out)
{
    ares_server *s = ares_calloc(1, sizeof *s);
    pthread_condattr_t clock;
    *s = (ares_server){ .o = *o, .model = m, .tokenizer = tokenizer, .event = -1 };
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &clock);
    pthread_cond_init(&s->comes, NULL);
    pthread_condattr_destroy(&clock);
    s->sessions = serve_sessions_new(SERVE_MOST_SESSIONS, SERVE_MOST_SESSION_BYTES);
    s->seen_before = ares_map_new();
    s->answered = ares_map_new();
    s->ignored = ares_map_new();
    s->started = (double)time(NULL);
    int rc = open_all(s);
    if (rc != ARES_OK) {
        ares_server_close(s);
        return rc;
    }
    *out = s;
    return ARES_OK;
}

int ares_server_play(ares_server *s, const ares_serve_play *play)
{
    bool worked;
    for (serve_job *j = s->jobs; j; j = j->next)
        if (j->code == SERVE_NO_ERROR)
            j->code = serve_refuse(&j->error, &j->arena, SERVE_invalid_api_key, NULL,
                                   "the episode is over");
    end_jobs(s);
    while (s->n_runs) ARES_TRY(ares_server_pump(s, 0, &worked));
    s->play = play;
    return ARES_OK;
}

int ares_server_event(const ares_server *s)
{
    return s->event;
}

void ares_server_forget(ares_server *s, const void *episode)
{
    for (serve_job *j = s->jobs; j; j = j->next)
        if (j->episode == episode && j->code == SERVE_NO_ERROR)
            j->code = serve_refuse(&j->error, &j->arena, SERVE_invalid_api_key, NULL,
                                   "the episode is over");
    end_jobs(s);
}

serve_session *ares_serve_session_new(void)
{
    return serve_session_new();
}

void ares_serve_session_free(serve_session *session)
{
    serve_session_free(session);
}

int ares_server_port(const ares_server *s)
{
    return serve_http_port(s->http);
}

void ares_server_close(ares_server *s)
{
    if (!s) return;
    if (s->http) {
        serve_http_stop(s->http);
        serve_http_close(s->http, STOP_S);
    }
    close_reader(s);
    while (s->draws) serve_draw_fail(s->draws, ares_fail(ARES_EINTERRUPTED, "the server stops"));
    if (s->tinker) tinker_close(s->tinker);
    for (serve_job *lists[] = { s->jobs, s->queued, s->keeps }, **at = lists;
         at < lists + ARES_COUNT(lists); at++)
        for (serve_job *j = *at, *next; j; j = next) {
            next = j->next;
            if (j->call) serve_call_drop(j->call);
            serve_job_free(j);
        }
    if (!s->o.rollout) ares_rollout_free(s->rollout);
    free_features(s);
    ares_free(s->features);
    ares_prompt_encoder_free(s->encoder);
    if (s->event >= 0) close(s->event);
    ares_chat_free(s->own_chat);
    ares_free(s->chat_error);
    serve_sessions_free(s->sessions);
    ares_map_free(s->seen_before);
    ares_map_free(s->answered);
    ares_map_free(s->ignored);
    if (s->log) fclose(s->log);
    ares_free(s->models);
    ares_free(s->runs);
    ares_free(s->turns);
    ares_arena_fini(&s->arena);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->comes);
    pthread_mutex_destroy(&s->lock);
    ares_free(s);
}
