/*
 * Tinker's calls: what the service thread answers at once, and what becomes a future
 * (tinker_state.h). The worker's part is tinker_work.c.
 */
#include "tinker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "ares/io.h"
#include "tinker_state.h"

static const char json_type[] = "application/json", binary_type[] = "application/x-protobuf";

/* ---------------- answers */

void tinker_error_body(const char *message, ares_str *out)
{
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "detail"), ares_view_of(message));
    ares_json_end(out, '}');
}

/* The thread's error as the answer. */
static bool refuse(tinker_answer *a, int status)
{
    a->status = status;
    ares_str_clear(&a->body);
    tinker_error_body(ares_error_message(), &a->body);
    a->retry_after = status == 429;
    return true;
}

static bool refuse_with(tinker_answer *a, int status, const char *what)
{
    ares_fail(ARES_EUSE, "%s", what);
    return refuse(a, status);
}

/* The error of a future: {"error": message, "category": whose fault}. */
static void error_result(int rc, const char *message, ares_str *out)
{
    bool server = rc == ARES_EIO || rc == ARES_EDEVICE || rc == ARES_ECHILD || rc == ARES_EDIST;
    ares_str_clear(out);
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "error"), ares_view_of(message));
    ares_json_write_string(ares_json_key(out, "category"),
                           ares_view_of(server ? "server" : "user"));
    ares_json_end(out, '}');
}

static void write_key(ares_str *o, const char *key, const char *text)
{
    ares_json_write_string(ares_json_key(o, key), ares_view_of(text));
}

void tinker_time(char text[24])
{
    struct tm tm;
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(text, 24, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* An answer for a call that was kept, to be given once the lock is free. */
static void reply_to(tinker *t, void *call, int status, const char *type, ares_view body)
{
    if (t->n_replies == t->cap_replies) {
        t->cap_replies = t->cap_replies * 2 + 16;
        t->replies = ares_realloc(t->replies, (size_t)t->cap_replies * sizeof *t->replies);
    }
    reply *r = &t->replies[t->n_replies++];
    *r = (reply){ .call = call, .status = status, .type = type };
    ares_str_add_view(&r->body, body);
}

static void answer_polls(tinker *t, int64_t number, int status, const char *type, ares_view body)
{
    int kept = 0;
    for (int i = 0; i < t->n_polls; i++) {
        poll p = t->polls[i];
        if (number >= 0 && p.number != number) t->polls[kept++] = p;
        else reply_to(t, p.call, status, type, body);
    }
    t->n_polls = kept;
}

void tinker_answer_polls(tinker *t, int64_t number, int status, ares_view body)
{
    answer_polls(t, number, status, json_type, body);
}

void tinker_unlock(tinker *t)
{
    int n = t->n_replies;
    reply *r = t->replies;
    t->replies = NULL;
    t->n_replies = t->cap_replies = 0;
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < n; i++) {
        t->o.answer(t->o.ctx, r[i].call, r[i].status, r[i].type, ares_str_view(&r[i].body));
        ares_str_fini(&r[i].body);
    }
    ares_free(r);
}

void tinker_random(void *out, size_t bytes)
{
    ARES_ASSERT(getrandom(out, bytes, 0) == (ssize_t)bytes); /* at once, for so few */
}

/* ---------------- futures */

void tinker_push(queue *q, future *f)
{
    if (!q->first) q->last = &q->first;
    *q->last = f;
    q->last = &f->next;
    f->next = NULL;
}

void tinker_take_out(queue *q, future *f)
{
    future **at = &q->first;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    if (q->last == &f->next) q->last = at;
    f->next = NULL;
}

static future **bucket_of(tinker *t, uint64_t owner, int64_t seq)
{
    const uint64_t key[] = { owner, (uint64_t)seq };
    return &t->bucket[ares_fnv1a(ARES_FNV1A, key, sizeof key) & (uint64_t)(t->buckets - 1)];
}

/* The call that the owner has made under this number; NULL: none, or one that is forgotten. */
static future *find_same(tinker *t, uint64_t owner, int64_t seq)
{
    future *f = *bucket_of(t, owner, seq);
    while (f && !(f->owner == owner && f->seq == seq)) f = f->same;
    return f;
}

void tinker_grow_buckets(tinker *t)
{
    int64_t old = t->buckets;
    future **from = t->bucket;
    t->buckets = old ? 2 * old : 1024;
    t->bucket = ares_calloc((size_t)t->buckets, sizeof *t->bucket);
    for (int64_t i = 0; i < old; i++)
        for (future *f = from[i], *next; f; f = next) {
            future **to = bucket_of(t, f->owner, f->seq);
            next = f->same;
            f->same = *to;
            *to = f;
        }
    ares_free(from);
}

static future *future_at(const tinker *t, int64_t number)
{
    int64_t i = number - t->first;
    return i >= 0 && i < t->n ? t->futures[i] : NULL;
}

/* A future that takes the request and its arena. */
static future *new_future(tinker *t, ares_arena *arena, const tinker_request *r, uint64_t hash)
{
    future *f = ares_calloc(1, sizeof *f);
    int64_t gone = 0;
    if (t->n == t->cap) {
        while (gone < t->n && !t->futures[gone]) gone++;
        if (2 * gone > t->n) { /* as many moves as futures have gone */
            memmove(t->futures, t->futures + gone, (size_t)(t->n - gone) * sizeof *t->futures);
            t->first += gone;
            t->n -= gone;
        } else {
            t->cap = t->cap * 2 + 256;
            t->futures = ares_realloc(t->futures, (size_t)t->cap * sizeof *t->futures);
        }
    }
    *f = (future){ .number = t->first + t->n,
                   .hash = hash,
                   .of = t,
                   .arrived_s = t->o.now_s(),
                   .arena = *arena,
                   .request = *r };
    *arena = (ares_arena){ 0 };
    t->futures[t->n++] = f;
    t->unfinished++;
    return f;
}

/* Its call is known from now on by its owner and number. */
static void make_known(tinker *t, future *f, uint64_t owner, int64_t seq)
{
    if (t->known >= t->buckets) tinker_grow_buckets(t);
    f->owner = owner;
    f->seq = seq;
    future **to = bucket_of(t, owner, seq);
    f->same = *to;
    *to = f;
    t->known++;
}

/* Nobody can ask for it any more; its memory stays. */
static void forget(tinker *t, future *f)
{
    t->futures[f->number - t->first] = NULL;
    if (!f->owner) return;
    future **at = bucket_of(t, f->owner, f->seq);
    while (*at != f) at = &(*at)->same;
    *at = f->same;
    t->known--;
}

static void free_future(future *f)
{
    ares_arena_fini(&f->arena);
    ares_str_fini(&f->result);
    ares_free(f->refusal);
    ares_free(f);
}

static size_t bytes_of(const future *f)
{
    return f->result.len + FUTURE_BYTES;
}

void tinker_complete(tinker *t, future *f)
{
    t->unfinished--;
    f->state = DONE;
    ares_arena_fini(&f->arena);
    f->model = NULL;
    f->sampler = NULL;
    if (f->dropped) {
        free_future(f);
        return;
    }
    answer_polls(t, f->number, 200, f->binary ? binary_type : json_type, ares_str_view(&f->result));
    tinker_push(&t->done, f);
    t->done_bytes += bytes_of(f);
    while (t->done_bytes - bytes_of(t->done.first) >= RESULTS_BYTES) {
        future *old = t->done.first;
        t->done_bytes -= bytes_of(old);
        tinker_take_out(&t->done, old);
        forget(t, old);
        free_future(old);
    }
}

void tinker_fail(tinker *t, future *f, int rc, const char *message)
{
    f->binary = false;
    error_result(rc, message, &f->result);
    tinker_complete(t, f);
}

/* A future leaves its queue, its result unwanted. */
static void drop(tinker *t, future *f, const char *message)
{
    bool samples = f->request.call == TINKER_SAMPLE;
    ares_str body = { 0 };
    forget(t, f);
    tinker_error_body(message, &body);
    answer_polls(t, f->number, 410, json_type, ares_str_view(&body));
    ares_str_fini(&body);
    f->dropped = true;
    if (f->state == RUNNING) {
        f->cancels = samples; /* freed when it is done */
        return;
    }
    if (f->state == DONE) t->done_bytes -= bytes_of(f);
    else t->unfinished--;
    tinker_take_out(f->state == DONE ? &t->done : samples ? &t->sampling : &t->training, f);
    free_future(f);
}

static void add_id(const tinker *t, ares_str *out, int64_t number)
{
    ares_str_addf(out, "req-%s-%lld", t->nonce, (long long)number);
}

/* The number of a future of this process; -1: no such id. */
static int64_t number_of(const tinker *t, ares_view id)
{
    int64_t number;
    if (id.len < 14 || memcmp(id.data, "req-", 4) != 0 || memcmp(id.data + 4, t->nonce, 8) != 0 ||
        id.data[12] != '-' || !ares_parse_i64((ares_view){ id.data + 13, id.len - 13 }, &number))
        return -1;
    return number >= 0 && number < t->first + t->n ? number : -1;
}

/* ---------------- sessions and what they own */

static void end_session(tinker *t, session *s)
{
    s->finished = true;
    for (int64_t i = 0; i < t->n; i++) {
        future *f = t->futures[i];
        if (f && f->session == s) drop(t, f, "its session has ended");
    }
    for (model *m; (m = s->models);) {
        s->models = m->next;
        m->dead = true;
        m->next = t->dead_models;
        t->dead_models = m;
    }
    for (sampler *x; (x = s->samplers);) {
        s->samplers = x->next;
        x->dead = true;
        x->next = t->dead_samplers;
        t->dead_samplers = x;
    }
    t->o.wake(t->o.ctx);
}

void tinker_end_sessions(tinker *t, bool all)
{
    double now = t->o.now_s(), most = t->o.session_timeout_s;
    for (session *s = t->session; s; s = s->next)
        if (!s->finished && (all || (most > 0 && now - s->heard_s > most))) end_session(t, s);
}

/* The session of an id such as S, S:train:0 or S:sample:0. 0, or 404, 410 and the message. */
static int find_session(tinker *t, ares_view id, session **out)
{
    const char *colon = id.len ? memchr(id.data, ':', id.len) : NULL;
    ares_view own = { id.data, colon ? (size_t)(colon - id.data) : id.len };
    *out = t->session;
    while (*out && !ares_view_is(own, (*out)->id)) *out = (*out)->next;
    if (!*out) {
        ares_fail(ARES_EUSE, "there is no session %.*s", (int)own.len, own.data);
        return 404;
    }
    if ((*out)->finished) {
        ares_fail(ARES_EUSE, "session %s has ended", (*out)->id);
        return 410;
    }
    (*out)->heard_s = t->o.now_s();
    return 0;
}

static int find_model(tinker *t, ares_view id, model **out)
{
    session *s;
    int status = find_session(t, id, &s);
    if (status) return status;
    *out = s->models;
    while (*out && !ares_view_is(id, (*out)->id)) *out = (*out)->next;
    if (*out) return 0;
    ares_fail(ARES_EUSE, "there is no model %.*s", (int)id.len, id.data);
    return 404;
}

static int find_sampler(tinker *t, ares_view id, sampler **out)
{
    session *s;
    int status = find_session(t, id, &s);
    if (status) return status;
    *out = s->samplers;
    while (*out && !ares_view_is(id, (*out)->id)) *out = (*out)->next;
    if (*out) return 0;
    ares_fail(ARES_EUSE, "there is no sampling session %.*s", (int)id.len, id.data);
    return 404;
}

static bool served(const tinker *t, ares_view name)
{
    for (int i = 0; i < t->o.n_names; i++)
        if (ares_view_is(name, t->o.names[i])) return true;
    return ares_view_is(name, t->o.model_dir);
}

static void fail_unserved(const tinker *t, ares_view name)
{
    ares_str names = { 0 };
    for (int i = 0; i < t->o.n_names; i++)
        ares_str_addf(&names, "%s%s", i ? ", " : "", t->o.names[i]);
    ares_fail(ARES_EUSE, "base_model %.*s is not served; use one of: %s", (int)name.len, name.data,
              names.data ? names.data : t->o.model_dir);
    ares_str_fini(&names);
}

static model *new_model(tinker *t, session *s, int64_t seq, const ares_tinker_lora *lora,
                        const ares_json *metadata)
{
    model *m = ares_calloc(1, sizeof *m);
    ares_str text = { 0 };
    *m = (model){ .number = ++t->numbers, .session = s, .seq = seq, .lora = *lora, .next_seq = 1 };
    snprintf(m->id, sizeof m->id, "%s:train:%lld", s->id, (long long)seq);
    tinker_time(m->time);
    if (metadata) ares_json_write(&text, metadata);
    m->metadata = metadata ? ares_str_take(&text) : ares_strdup("{}");
    m->next = s->models;
    s->models = m;
    return m;
}

sampler *tinker_new_sampler(tinker *t, session *s, int64_t seq)
{
    sampler *x = ares_calloc(1, sizeof *x);
    *x = (sampler){ .number = ++t->numbers, .session = s, .seq = seq, .used = ++t->uses };
    snprintf(x->id, sizeof x->id, "%s:sample:%lld", s->id, (long long)seq);
    x->next = s->samplers;
    s->samplers = x;
    return x;
}

static int64_t alive(const tinker *t)
{
    int64_t n = 0;
    for (const session *s = t->session; s; s = s->next)
        for (const model *m = s->models; m; m = m->next) n += !m->failed;
    return n;
}

/* A seed for a request without one: of --seed, what it is for, and three numbers. */
static uint64_t derived_seed(const tinker *t, uint64_t what, uint64_t session, int64_t a, int64_t b)
{
    const uint64_t key[] = { t->o.seed, what, session, (uint64_t)a, (uint64_t)b };
    return ares_fnv1a(ARES_FNV1A, key, sizeof key) >> 1;
}

/* ---------------- calls that become futures */

static bool tell_future(const tinker *t, const future *f, const char *model_id, tinker_answer *a)
{
    ares_str id = { 0 };
    add_id(t, &id, f->number);
    ares_json_begin(&a->body, '{');
    ares_json_write_string(ares_json_key(&a->body, "request_id"), ares_str_view(&id));
    if (model_id) write_key(&a->body, "model_id", model_id);
    ares_json_end(&a->body, '}');
    ares_str_fini(&id);
    return true;
}

static bool full(tinker *t, tinker_answer *a)
{
    if (t->unfinished < t->o.max_queue) return false;
    ares_fail(ARES_EUSE, "%lld requests are unfinished (--max-queue)", (long long)t->unfinished);
    return refuse(a, 429);
}

/* The same request again, or another under its number: answered. */
static bool answered_before(tinker *t, const future *f, uint64_t hash, const char *id,
                            const char *model_id, tinker_answer *a)
{
    if (f->hash == hash) return tell_future(t, f, model_id, a);
    ares_fail(ARES_EUSE, "seq_id %lld of %s was another request", (long long)f->seq, id);
    return refuse(a, 422);
}

/* Training calls of a model. status: 422 where the call itself is refused, in its turn. */
static bool ask_training(tinker *t, ares_arena *arena, const tinker_request *r, int status,
                         uint64_t hash, tinker_answer *a)
{
    char *refusal = status ? ares_strdup(ares_error_message()) : NULL;
    model *m;
    int rc = find_model(t, r->model_id, &m);
    const future *same = rc ? NULL : find_same(t, m->number, r->seq_id);
    if (rc || same || full(t, a)) {
        ares_free(refusal);
        if (rc) return refuse(a, rc);
        return same ? answered_before(t, same, hash, m->id, m->id, a) : true;
    }
    future *f = new_future(t, arena, r, hash);
    make_known(t, f, m->number, r->seq_id);
    f->session = m->session;
    f->model = m;
    f->refusal = refusal;
    tinker_time(m->time);
    tell_future(t, f, m->id, a);
    if (r->seq_id < m->next_seq) {
        ares_fail(ARES_EUSE, "seq_id %lld came too late: the next of %s is %lld",
                  (long long)r->seq_id, m->id, (long long)m->next_seq);
        tinker_fail(t, f, ARES_EUSE, ares_error_message());
    } else {
        tinker_push(&t->training, f);
        t->o.wake(t->o.ctx);
    }
    return true;
}

/* create_model, and load_weights into a new model. */
static bool ask_model(tinker *t, ares_arena *arena, tinker_request *r, uint64_t hash,
                      tinker_answer *a)
{
    session *s;
    tinker_path path;
    tinker_checkpoint c;
    int status = find_session(t, r->session_id, &s);
    if (status) return refuse(a, status);
    const future *same = find_same(t, s->ordinal << 32, r->model_seq_id);
    char id[64];
    snprintf(id, sizeof id, "%s:train:%lld", s->id, (long long)r->model_seq_id);
    if (same) return answered_before(t, same, hash, id, id, a);
    for (const model *m = s->models; m; m = m->next)
        if (m->seq == r->model_seq_id) {
            ares_fail(ARES_EUSE, "model_seq_id %lld is taken", (long long)m->seq);
            return refuse(a, 422);
        }
    char *missing = NULL;
    if (r->call == TINKER_CREATE_MODEL) {
        if (!served(t, r->base_model)) {
            fail_unserved(t, r->base_model);
            return refuse(a, 404);
        }
        if (!r->has_seed) r->lora.seed = derived_seed(t, 1, s->ordinal, r->model_seq_id, 0);
    } else {
        int rc = tinker_path_read(r->path, &path)
                     ? tinker_store_read(arena, t->o.state_dir, &path, &c)
                     : ares_fail(ARES_EUSE, "path: not tinker://MODEL_ID/weights/NAME");
        if (rc == ARES_OK) r->lora = c.lora;
        else missing = ares_strdup(ares_error_message());
    }
    if (r->lora.rank > t->o.max_lora_rank) {
        ares_fail(ARES_EUSE, "lora_config.rank: %d exceeds %lld (--max-lora-rank)", r->lora.rank,
                  (long long)t->o.max_lora_rank);
        return refuse(a, 422);
    }
    if (!missing && alive(t) >= t->o.max_models) {
        ares_fail(ARES_EUSE,
                  "%lld training clients are alive (--max-models); close one, or end its session",
                  (long long)alive(t));
        return refuse(a, 422);
    }
    if (full(t, a)) {
        ares_free(missing);
        return true;
    }
    model *m = new_model(t, s, r->model_seq_id, &r->lora, r->user_metadata);
    future *f = new_future(t, arena, r, hash);
    make_known(t, f, s->ordinal << 32, r->model_seq_id);
    f->session = s;
    f->model = m;
    tell_future(t, f, m->id, a);
    if (missing) {
        tinker_fail(t, f, ARES_EUSE, missing);
        m->failed = missing;
    } else {
        tinker_push(&t->training, f);
        t->o.wake(t->o.ctx);
    }
    return true;
}

static bool ask_unload(tinker *t, ares_arena *arena, const tinker_request *r, tinker_answer *a)
{
    model *m;
    int status = find_model(t, r->model_id, &m);
    if (status) return refuse(a, status);
    if (full(t, a)) return true;
    future *f = new_future(t, arena, r, 0);
    f->session = m->session;
    f->model = m;
    tinker_push(&t->training, f);
    t->o.wake(t->o.ctx);
    return tell_future(t, f, m->id, a);
}

/* num_samples ids, of which the client wants one for each sample. */
static bool tell_samples(const tinker *t, const future *f, const char *sampler_id, int64_t samples,
                         tinker_answer *a)
{
    ares_str id = { 0 };
    add_id(t, &id, f->number);
    ares_json_begin(&a->body, '{');
    ares_json_write_string(ares_json_key(&a->body, "request_id"), ares_str_view(&id));
    ares_json_begin(ares_json_key(&a->body, "sample_sequence_ids"), '[');
    for (int64_t i = 0; i < ARES_MIN(samples, 4096); i++) {
        ares_str_clear(&id);
        ares_str_addf(&id, "%s:%lld:%lld", sampler_id, (long long)f->seq, (long long)i);
        ares_json_write_string(&a->body, ares_str_view(&id));
    }
    ares_json_end(&a->body, ']');
    ares_json_end(&a->body, '}');
    ares_str_fini(&id);
    return true;
}

static bool ask_sample(tinker *t, ares_arena *arena, tinker_request *r, uint64_t hash,
                       tinker_answer *a)
{
    sampler *x;
    int status = find_sampler(t, r->sampling_session_id, &x);
    if (status) return refuse(a, status);
    const future *same = find_same(t, x->number, r->seq_id);
    if (same) {
        if (same->hash == hash) return tell_samples(t, same, x->id, r->num_samples, a);
        return answered_before(t, same, hash, x->id, NULL, a);
    }
    if (full(t, a)) return true;
    int rc = tinker_sample_check(arena, t->o.vocab, t->o.context, r);
    char *wrong = rc == ARES_OK ? NULL : ares_strdup(ares_error_message());
    if (!r->has_seed) r->sample.seed = derived_seed(t, 2, x->session->ordinal, x->seq, r->seq_id);
    future *f = new_future(t, arena, r, hash);
    make_known(t, f, x->number, r->seq_id);
    f->session = x->session;
    f->sampler = x;
    tell_samples(t, f, x->id, r->num_samples, a);
    if (wrong) {
        tinker_fail(t, f, rc, wrong);
    } else {
        tinker_push(&t->sampling, f);
        t->o.wake(t->o.ctx);
    }
    ares_free(wrong);
    return true;
}

/* ---------------- calls that are answered at once */

static bool ask_session(tinker *t, tinker_answer *a)
{
    if (tinker_open_state(t) != ARES_OK) return refuse(a, 422);
    session *s = ares_calloc(1, sizeof *s), **last = &t->session;
    uint8_t random[6];
    tinker_random(random, sizeof random);
    s->id[0] = 's';
    for (size_t i = 0; i < sizeof random; i++) snprintf(s->id + 1 + 2 * i, 3, "%02x", random[i]);
    s->ordinal = ++t->sessions;
    s->heard_s = t->o.now_s();
    while (*last) last = &(*last)->next;
    *last = s;
    ares_json_begin(&a->body, '{');
    write_key(&a->body, "type", "create_session");
    write_key(&a->body, "session_id", s->id);
    ares_json_end(&a->body, '}');
    return true;
}

static bool ask_sampler(tinker *t, ares_arena *arena, const tinker_request *r, tinker_answer *a)
{
    session *s;
    tinker_path path;
    tinker_checkpoint c;
    int status = find_session(t, r->session_id, &s);
    if (status) return refuse(a, status);
    sampler *x = s->samplers;
    while (x && x->seq != r->sampler_seq_id) x = x->next;
    if (x && (x->path ? !ares_view_is(r->model_path, x->path) : !x->base || r->model_path.data)) {
        ares_fail(ARES_EUSE, "sampling_session_seq_id %lld was another request", (long long)x->seq);
        return refuse(a, 422);
    }
    if (!x && r->base_model.data && !served(t, r->base_model)) {
        fail_unserved(t, r->base_model);
        return refuse(a, 404);
    }
    if (!x && r->model_path.data) {
        if (!tinker_path_read(r->model_path, &path)) {
            ares_fail(ARES_EUSE,
                      "model_path %.*s: not tinker://MODEL_ID/weights/NAME, nor "
                      ".../sampler_weights/NAME",
                      (int)r->model_path.len, r->model_path.data);
            return refuse(a, 404);
        }
        if (tinker_store_read(arena, t->o.state_dir, &path, &c) != ARES_OK) return refuse(a, 404);
        if (!ares_view_is(c.fingerprint, t->o.fingerprint))
            return refuse_with(a, 422, "model_path: it was trained beside another base model");
    }
    if (!x) {
        x = tinker_new_sampler(t, s, r->sampler_seq_id);
        x->base = !r->model_path.data;
        if (!x->base) {
            ares_str dir = { 0 };
            tinker_store_dir(&dir, t->o.state_dir, &path);
            x->dir = ares_str_take(&dir);
            x->path = ares_strdup(ares_arena_copy(arena, r->model_path.data, r->model_path.len));
        }
    }
    ares_json_begin(&a->body, '{');
    write_key(&a->body, "type", "create_sampling_session");
    write_key(&a->body, "sampling_session_id", x->id);
    ares_json_end(&a->body, '}');
    return true;
}

static bool ask_info(tinker *t, const tinker_request *r, tinker_answer *a)
{
    model *m;
    int status = find_model(t, r->model_id, &m);
    if (status) return refuse(a, status);
    if (m->failed) return refuse_with(a, 404, m->failed);
    ares_json_begin(&a->body, '{');
    write_key(&a->body, "type", "get_info");
    write_key(&a->body, "model_id", m->id);
    write_key(&a->body, "model_name", t->o.names[0]);
    ares_json_write_bool(ares_json_key(&a->body, "is_lora"), true);
    ares_json_write_i64(ares_json_key(&a->body, "lora_rank"), m->lora.rank);
    ares_json_begin(ares_json_key(&a->body, "model_data"), '{');
    write_key(&a->body, "arch", t->o.arch);
    write_key(&a->body, "model_name", t->o.names[0]);
    write_key(&a->body, "tokenizer_id", t->o.local ? t->o.model_dir : t->o.names[0]);
    ares_json_end(&a->body, '}');
    ares_json_end(&a->body, '}');
    return true;
}

static void write_lora(ares_str *o, const ares_tinker_lora *l)
{
    ares_json_write_bool(ares_json_key(o, "is_lora"), true);
    ares_json_write_i64(ares_json_key(o, "lora_rank"), l->rank);
    ares_json_write_bool(ares_json_key(o, "train_attn"), l->attn);
    ares_json_write_bool(ares_json_key(o, "train_mlp"), l->mlp);
    ares_json_write_bool(ares_json_key(o, "train_unembed"), l->unembed);
}

static bool ask_weights_info(tinker *t, ares_arena *arena, const tinker_request *r,
                             tinker_answer *a)
{
    tinker_path path;
    tinker_checkpoint c;
    if (!tinker_path_read(r->tinker_path, &path))
        return refuse_with(a, 404, "tinker_path: not tinker://MODEL_ID/weights/NAME");
    if (tinker_store_read(arena, t->o.state_dir, &path, &c) != ARES_OK) return refuse(a, 404);
    ares_json_begin(&a->body, '{');
    ares_json_write_string(ares_json_key(&a->body, "base_model"), c.base_model);
    write_lora(&a->body, &c.lora);
    ares_json_end(&a->body, '}');
    return true;
}

/* A model as a training run. */
static void write_run(ares_str *o, ares_view id, ares_view base, const ares_tinker_lora *lora,
                      ares_view when, ares_view metadata)
{
    ares_json_begin(o, '{');
    ares_json_write_string(ares_json_key(o, "training_run_id"), id);
    ares_json_write_string(ares_json_key(o, "base_model"), base);
    write_key(o, "model_owner", "local");
    write_lora(o, lora);
    ares_json_write_string(ares_json_key(o, "last_request_time"), when);
    ares_json_splice(ares_json_key(o, "user_metadata"), metadata);
    ares_json_end(o, '}');
}

/*
 * Runs, those alive first, then those of which there are checkpoints. id empty: runs [offset,
 * offset + limit) of all of them; otherwise that one. Returns how many there are.
 */
static int64_t write_runs(tinker *t, ares_arena *arena, ares_view id, int64_t offset, int64_t limit,
                          ares_str *o)
{
    tinker_checkpoint *c;
    int64_t n, at = 0;
    for (const session *s = t->session; s; s = s->next)
        for (const model *m = s->models; m; m = m->next) {
            if (m->failed || (id.len && !ares_view_is(id, m->id))) continue;
            if (at >= offset && at - offset < limit)
                write_run(o, ares_view_of(m->id), ares_view_of(t->o.names[0]), &m->lora,
                          ares_view_of(m->time), ares_view_of(m->metadata));
            at++;
        }
    if (id.len && at) return at;
    tinker_store_list(arena, t->o.state_dir, id, &c, &n);
    for (int64_t i = 0; i < n; i++) {
        const ares_view *own = &c[i].path.model_id;
        bool shown = i > 0 && ares_view_eq(*own, c[i - 1].path.model_id);
        for (const session *s = t->session; s; s = s->next)
            for (const model *m = s->models; m; m = m->next)
                shown = shown || ares_view_is(*own, m->id);
        if (shown) continue;
        if (at >= offset && at - offset < limit)
            write_run(o, *own, c[i].base_model, &c[i].lora, c[i].time, c[i].run_metadata);
        at++;
    }
    return at;
}

static bool ask_run(tinker *t, ares_arena *arena, const tinker_request *r, tinker_answer *a)
{
    if (write_runs(t, arena, r->id[0], 0, 1, &a->body)) return true;
    ares_fail(ARES_EUSE, "there is no training run %.*s", (int)r->id[0].len, r->id[0].data);
    return refuse(a, 404);
}

static bool ask_runs(tinker *t, ares_arena *arena, const tinker_request *r, tinker_answer *a)
{
    ares_json_begin(&a->body, '{');
    ares_json_begin(ares_json_key(&a->body, "training_runs"), '[');
    int64_t n = write_runs(t, arena, ARES_VIEW(""), r->offset, r->limit, &a->body);
    ares_json_end(&a->body, ']');
    ares_json_begin(ares_json_key(&a->body, "cursor"), '{');
    ares_json_write_i64(ares_json_key(&a->body, "offset"), r->offset);
    ares_json_write_i64(ares_json_key(&a->body, "limit"), r->limit);
    ares_json_write_i64(ares_json_key(&a->body, "total_count"), n);
    ares_json_end(&a->body, '}');
    ares_json_end(&a->body, '}');
    return true;
}

static bool ask_checkpoints(tinker *t, ares_arena *arena, const tinker_request *r, tinker_answer *a)
{
    tinker_checkpoint *c;
    int64_t n;
    ares_str text = { 0 }, *o = &a->body;
    tinker_store_list(arena, t->o.state_dir, r->id[0], &c, &n);
    ares_json_begin(o, '{');
    ares_json_begin(ares_json_key(o, "checkpoints"), '[');
    for (int64_t i = 0; i < n; i++) {
        const tinker_path *p = &c[i].path;
        ares_str_clear(&text);
        ares_str_addf(&text, "%s/%.*s", p->sampler ? "sampler_weights" : "weights",
                      (int)p->name.len, p->name.data);
        ares_json_begin(o, '{');
        ares_json_write_string(ares_json_key(o, "checkpoint_id"), ares_str_view(&text));
        write_key(o, "checkpoint_type", p->sampler ? "sampler" : "training");
        ares_json_write_string(ares_json_key(o, "time"), c[i].time);
        ares_str path = { 0 };
        ares_str_addf(&path, "tinker://%.*s/%s", (int)p->model_id.len, p->model_id.data, text.data);
        ares_json_write_string(ares_json_key(o, "tinker_path"), ares_str_view(&path));
        ares_str_fini(&path);
        ares_json_write_i64(ares_json_key(o, "size_bytes"), c[i].size_bytes);
        ares_json_splice(ares_json_key(o, "user_metadata"), c[i].metadata);
        ares_json_end(o, '}');
    }
    ares_json_end(o, ']');
    ares_json_end(o, '}');
    ares_str_fini(&text);
    return true;
}

static bool ask_delete(tinker *t, const tinker_request *r, tinker_answer *a)
{
    tinker_path p = { .model_id = r->id[0],
                      .name = r->id[2],
                      .sampler = ares_view_is(r->id[1], "sampler_weights") };
    if ((!p.sampler && !ares_view_is(r->id[1], "weights")) || !tinker_model_id_ok(p.model_id) ||
        !tinker_name_ok(p.name))
        return refuse_with(a, 404, "no checkpoint has such a name");
    int rc = tinker_open_state(t);
    if (rc == ARES_OK) rc = tinker_store_remove(t->o.state_dir, &p);
    if (rc != ARES_OK) return refuse(a, rc == ARES_EUSE ? 404 : 500);
    ares_json_write_null(&a->body);
    return true;
}

static bool ask_future(tinker *t, const tinker_request *r, void *call, tinker_answer *a)
{
    int64_t number = number_of(t, r->request_id);
    const future *f = future_at(t, number);
    if (number < 0) {
        ares_fail(ARES_EUSE, "there is no future %.*s", (int)r->request_id.len, r->request_id.data);
        return refuse(a, 404);
    }
    if (!f) return refuse_with(a, 410, "the result of this future is gone");
    if (f->state == DONE) {
        a->content_type = f->binary ? binary_type : json_type;
        ares_str_add_view(&a->body, ares_str_view(&f->result));
        return true;
    }
    if (t->n_polls == t->cap_polls) {
        t->cap_polls = t->cap_polls * 2 + 64;
        t->polls = ares_realloc(t->polls, (size_t)t->cap_polls * sizeof *t->polls);
    }
    t->polls[t->n_polls++] = (poll){ call, number };
    return false;
}

static bool ask_cancel(tinker *t, const tinker_request *r, tinker_answer *a)
{
    future *f = future_at(t, number_of(t, r->request_id));
    if (f && f->request.call == TINKER_SAMPLE) {
        if (f->state == QUEUED) {
            tinker_take_out(&t->sampling, f);
            tinker_fail(t, f, ARES_EUSE, "it was cancelled");
        } else if (f->state == RUNNING) {
            f->cancels = true;
            t->o.wake(t->o.ctx);
        }
    }
    ares_json_write_null(&a->body);
    return true;
}

static bool ask_capabilities(const tinker *t, tinker_answer *a)
{
    ares_str *o = &a->body;
    ares_json_begin(o, '{');
    ares_json_begin(ares_json_key(o, "supported_models"), '[');
    for (int i = 0; i < t->o.n_names; i++) {
        ares_json_begin(o, '{');
        write_key(o, "model_name", t->o.names[i]);
        ares_json_write_i64(ares_json_key(o, "max_context_length"), t->o.context);
        ares_json_write_bool(ares_json_key(o, "trainable"), true);
        ares_json_write_bool(ares_json_key(o, "sampleable"), true);
        ares_json_end(o, '}');
    }
    ares_json_end(o, ']');
    ares_json_end(o, '}');
    return true;
}

static bool ask_session_ids(tinker *t, const tinker_request *r, tinker_answer *a)
{
    session *s;
    int status = find_session(t, r->id[0], &s);
    if (status) return refuse(a, status);
    ares_json_begin(&a->body, '{');
    ares_json_begin(ares_json_key(&a->body, "training_run_ids"), '[');
    for (const model *m = s->models; m; m = m->next)
        ares_json_write_string(&a->body, ares_view_of(m->id));
    ares_json_end(&a->body, ']');
    ares_json_begin(ares_json_key(&a->body, "sampler_ids"), '[');
    for (const sampler *x = s->samplers; x; x = x->next)
        ares_json_write_string(&a->body, ares_view_of(x->id));
    ares_json_end(&a->body, ']');
    ares_json_end(&a->body, '}');
    return true;
}

static bool ask_sampler_info(tinker *t, const tinker_request *r, tinker_answer *a)
{
    sampler *x;
    int status = find_sampler(t, r->id[0], &x);
    if (status) return refuse(a, status);
    ares_json_begin(&a->body, '{');
    write_key(&a->body, "sampler_id", x->id);
    write_key(&a->body, "base_model", t->o.names[0]);
    if (x->path) write_key(&a->body, "model_path", x->path);
    else ares_json_write_null(ares_json_key(&a->body, "model_path"));
    ares_json_end(&a->body, '}');
    return true;
}

static bool ask_heartbeat(tinker *t, ares_view id, tinker_answer *a)
{
    session *s;
    int status = find_session(t, id, &s);
    if (status) return refuse(a, status);
    ares_str_add_z(&a->body, "{\"type\":\"session_heartbeat\"}");
    return true;
}

static bool ask_finish(tinker *t, ares_view id, tinker_answer *a)
{
    session *s;
    int status = find_session(t, id, &s);
    if (status == 404) return refuse(a, status);
    if (status == 0) end_session(t, s);
    ares_json_write_null(&a->body);
    return true;
}

/* A call with the lock held. */
static bool answer(tinker *t, ares_arena *arena, tinker_request *r, int status, uint64_t hash,
                   void *call, tinker_answer *a)
{
    bool by_model = r->model_id.data && r->seq_id >= 1;
    switch (r->call) {
    case TINKER_FORWARD:
    case TINKER_STEP:
    case TINKER_SAVE:
    case TINKER_SAVE_EXTERNAL:
    case TINKER_SAVE_FOR_SAMPLER:
    case TINKER_LOAD:
        /* the client counts on after an error: the number is used in any case */
        if (by_model && (status == 0 || status == 422))
            return ask_training(t, arena, r, status, hash, a);
        break;
    default: break;
    }
    if (status) return refuse(a, status);
    switch (r->call) {
    case TINKER_HEALTHZ: ares_str_add_z(&a->body, "{\"status\":\"ok\"}"); return true;
    case TINKER_CAPABILITIES: return ask_capabilities(t, a);
    case TINKER_CONFIG:
        ares_str_add_z(&a->body, "{\"pjwt_auth_enabled\":false,\"parallel_fwdbwd_chunks\":false,"
                                 "\"proto_compress_fwdbwd\":false,"
                                 "\"create_model_via_load_weights\":true,"
                                 "\"sample_enable_stuck_detection\":false}");
        return true;
    case TINKER_DYNAMIC_CONFIG:
        ares_str_add_z(&a->body, "{\"refresh_interval_sec\":300,\"sample_cancel_enabled\":true}");
        return true;
    case TINKER_TELEMETRY: ares_str_add_z(&a->body, "{\"status\":\"accepted\"}"); return true;
    case TINKER_CREATE_SESSION: return ask_session(t, a);
    case TINKER_HEARTBEAT: return ask_heartbeat(t, r->session_id, a);
    case TINKER_FINISH: return ask_finish(t, r->id[0], a);
    case TINKER_SESSION: return ask_session_ids(t, r, a);
    case TINKER_CREATE_MODEL:
    case TINKER_LOAD: return ask_model(t, arena, r, hash, a);
    case TINKER_INFO: return ask_info(t, r, a);
    case TINKER_UNLOAD: return ask_unload(t, arena, r, a);
    case TINKER_CREATE_SAMPLER: return ask_sampler(t, arena, r, a);
    case TINKER_SAMPLER: return ask_sampler_info(t, r, a);
    case TINKER_SAMPLE: return ask_sample(t, arena, r, hash, a);
    case TINKER_FUTURE: return ask_future(t, r, call, a);
    case TINKER_CANCEL: return ask_cancel(t, r, a);
    case TINKER_WEIGHTS_INFO: return ask_weights_info(t, arena, r, a);
    case TINKER_RUN: return ask_run(t, arena, r, a);
    case TINKER_RUNS: return ask_runs(t, arena, r, a);
    case TINKER_RUN_CHECKPOINTS:
    case TINKER_CHECKPOINTS: return ask_checkpoints(t, arena, r, a);
    case TINKER_DELETE_CHECKPOINT: return ask_delete(t, r, a);
    default: ARES_ASSERT(false); return true;
    }
}

bool tinker_ask(tinker *t, const serve_request_head *head, void *call, tinker_answer *a)
{
    ares_arena arena = { 0 };
    tinker_request r;
    *a = (tinker_answer){ .status = 200, .content_type = json_type };
    int status = tinker_route(head->method, head->path, &r);
    bool done = status && refuse(a, status);
    if (!status) {
        /* the id in a path is part of what was asked, and so is the call */
        uint64_t hash = ares_fnv1a(ARES_FNV1A, head->path.data, head->path.len);
        hash = ares_fnv1a(hash, head->body.data, head->body.len);
        status = tinker_request_read(&arena, head->body, head->query, &r);
        pthread_mutex_lock(&t->lock);
        tinker_end_sessions(t, false);
        if (t->stopping) done = refuse_with(a, 503, "the server is stopping");
        else done = answer(t, &arena, &r, status, hash, call, a);
        tinker_unlock(t);
    }
    if (done)
        ares_log(ARES_LOG_DEBUG, "serve: %s %.*s: %d", head->method, (int)head->path.len,
                 head->path.data, a->status);
    ares_arena_fini(&arena);
    return done;
}

void tinker_expire(tinker *t, void *call)
{
    ares_str body = { 0 }, id = { 0 };
    int kept = 0;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < t->n_polls; i++) {
        poll p = t->polls[i];
        if (p.call != call) {
            t->polls[kept++] = p;
            continue;
        }
        add_id(t, &id, p.number);
        ares_json_begin(&body, '{');
        write_key(&body, "type", "try_again");
        ares_json_write_string(ares_json_key(&body, "request_id"), ares_str_view(&id));
        write_key(&body, "queue_state", "active");
        ares_json_end(&body, '}');
        reply_to(t, p.call, 408, json_type, ares_str_view(&body));
    }
    t->n_polls = kept;
    tinker_unlock(t);
    ares_str_fini(&body);
    ares_str_fini(&id);
}
