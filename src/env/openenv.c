/*
 * Environments on a server of the OpenEnv protocol: first addresses and schemas of actions, then
 * the type.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ares/text.h"

/* ---------------- addresses */
/* "ws://host:8000/env/ws" gives host, port 8000 and base "/env". NULL, or what is wrong. */
const char *openenv_read_url(const char *url, openenv_address *out)
{
    static const char *const schemes[] = { "ws://", "http://" };
    /* an address may come without a scheme */
    const char *at = strstr(url, "://") ? NULL : url;
    for (int i = 0; i < ARES_COUNT(schemes); i++)
        if (strncmp(url, schemes[i], strlen(schemes[i])) == 0) at = url + strlen(schemes[i]);
    if (!at)
        return "only ws:// and http:// are spoken; for a server behind TLS open a tunnel to it";
    size_t host = strcspn(at, ":/?#"), rest = host + strcspn(at + host, "/?#"),
           path = strlen(at + rest);
    *out = (openenv_address){ .port = 80 };
    /* an @ would be a user's name and password */
    if (!host || host >= sizeof out->host || memchr(at, '@', host + path))
        return "expected ws://host:port/path";
    memcpy(out->host, at, host);
    if (at[host] == ':') {
        int64_t port;
        ares_view text = { at + host + 1, rest - host - 1 };
        if (!ares_parse_i64(text, &port) || port < 1 || port > 65535)
            return "its port is no number";
        out->port = (int)port;
    }
    if (path >= sizeof out->base - 16 || strpbrk(at + rest, "?# "))
        return "expected ws://host:port/path";
    /* base: the path without /ws, because the schema is at base/schema */
    while (path && at[rest + path - 1] == '/') path--;
    if (path >= 3 && memcmp(at + rest + path - 3, "/ws", 3) == 0) path -= 3;
    memcpy(out->base, at + rest, path);
    return NULL;
}

/* ---------------- JSON Schemas of actions, as pydantic writes them */
void openenv_form_fini(openenv_form *f)
{
    ares_arena_fini(&f->arena);
    *f = (openenv_form){ 0 };
}

/* Resolves {"$ref": "#/$defs/Move"}, which may also be the only item of allOf. */
static const ares_json *follow(const ares_json *schema, const ares_json *property)
{
    const ares_json *all = ares_json_get(property, "allOf");
    if (all && all->type == ARES_JSON_ARRAY && all->count == 1) property = &all->items[0];
    const ares_json *ref = ares_json_get(property, "$ref");
    static const char defs[] = "#/$defs/";
    if (!ref || ref->type != ARES_JSON_STRING || !ares_view_starts(ref->text, ares_view_of(defs)))
        return property;
    ares_view name = { ref->text.data + strlen(defs), ref->text.len - strlen(defs) };
    const ares_json *found = ares_json_find(ares_json_get(schema, "$defs"), name);
    return found ? found : property;
}

/*
 * How many fields an answer could fill: the required ones, or all where none is required, without
 * those that `constants` fill. *name: the last of them.
 */
static int find_field(const ares_json *schema, const ares_json *constants, ares_view *name)
{
    const ares_json *required = ares_json_get(schema, "required"),
                    *properties = ares_json_get(schema, "properties");
    int n = 0;
    for (int64_t i = 0; required && required->type == ARES_JSON_ARRAY && i < required->count; i++) {
        ares_view key = required->items[i].text;
        if (required->items[i].type != ARES_JSON_STRING || ares_json_find(constants, key)) continue;
        *name = key;
        n++;
    }
    if (n) return n;
    for (int64_t i = 0; properties && i < properties->count; i++) {
        ares_view key = properties->members[i].key;
        if (ares_view_is(key, "metadata") || ares_json_find(constants, key)) continue;
        *name = key;
        n++;
    }
    return n;
}

/* The failure where the field of an answer is not known; it lists the schema's fields. */
static int no_field(const ares_json *properties, const char *what)
{
    ares_str fields = { 0 }; /* "move, speed" */
    char quote[160];
    for (int64_t i = 0; properties && i < properties->count && fields.len < 1000; i++)
        if (!ares_view_is(properties->members[i].key, "metadata"))
            ares_str_addf(&fields, "%s%s", fields.len ? ", " : "",
                          foreign_quote(properties->members[i].key, quote));
    int rc = ares_fail(ARES_ECONFIG,
                       "%s (fields of the server's actions: %s); name one in action_field and "
                       "give the others in action, or set action_field to '*'",
                       what, fields.len ? fields.data : "none");
    ares_str_fini(&fields);
    return rc;
}

/* Finds the field of an action that an answer fills, and what it takes. */
int openenv_form_read(openenv_form *f, const ares_json *schema, const char *field,
                      const ares_json *constants)
{
    /* a schema without properties allows any field */
    const ares_json *properties = ares_json_get(schema, "properties");
    ares_view name = ares_view_of(field);
    static const struct {
        const char *name;
        ares_json_type type;
    } types[] = { { "string", ARES_JSON_STRING }, { "integer", ARES_JSON_INT },
                  { "number", ARES_JSON_FLOAT },  { "boolean", ARES_JSON_BOOL },
                  { "array", ARES_JSON_ARRAY },   { "object", ARES_JSON_OBJECT } };
    *f = (openenv_form){ .type = ARES_JSON_OBJECT };
    /* the answer is a whole action */
    if (field && strcmp(field, "*") == 0) return ARES_OK;
    if (properties && properties->type != ARES_JSON_OBJECT) properties = NULL;
    if (!field && find_field(schema, constants, &name) != 1)
        return no_field(properties, "it is not clear where an answer goes");
    const ares_json *property = ares_json_find(properties, name);
    if (!property && properties) {
        char what[160];
        snprintf(what, sizeof what, "action_field = '%.100s': no such field", name.data);
        return no_field(properties, what);
    }
    f->field = ares_arena_copy(&f->arena, name.data, name.len);
    property = follow(schema, property);
    const ares_json *type = ares_json_get(property, "type"),
                    *values = ares_json_get(property, "enum");
    f->type = ARES_JSON_STRING; /* a property without a type that is known takes any text */
    for (int i = 0; i < ARES_COUNT(types); i++)
        if (type && type->type == ARES_JSON_STRING && ares_view_is(type->text, types[i].name))
            f->type = types[i].type;
    /* the values of an enum are the names of the actions */
    if (!values || values->type != ARES_JSON_ARRAY || !values->count) return ARES_OK;
    f->names = ares_arena_calloc(&f->arena, (size_t)values->count, sizeof *f->names);
    for (int64_t i = 0; i < values->count; i++) {
        const ares_json *v = &values->items[i];
        ares_str text = { 0 };
        if (v->type == ARES_JSON_STRING) ares_str_add_view(&text, v->text);
        else ares_json_write(&text, v);
        f->names[i] = ares_arena_copy(&f->arena, text.data ? text.data : "", text.len);
        ares_str_fini(&text);
    }
    f->n_names = (int)values->count;
    return ARES_OK;
}

/* ---------------- actions */
/* The members of an object, inside one that is open. */
static void write_members(const ares_json *object, ares_str *out)
{
    for (int64_t i = 0; object->type == ARES_JSON_OBJECT && i < object->count; i++)
        ares_json_write(ares_json_key_view(out, object->members[i].key), object->members[i].value);
}

/* The action that an answer makes; false: its text does not fit the field's type. */
bool openenv_form_write(const openenv_form *f, const ares_json *constants, ares_view text,
                        ares_str *out)
{
    bool good = true;
    ares_json_begin(out, '{');
    write_members(constants, out);
    if (f->type == ARES_JSON_STRING) ares_json_write_string(ares_json_key(out, f->field), text);
    else {
        /* the text must be JSON of the field's type */
        ares_arena arena = { 0 };
        const ares_json *v;
        good = ares_json_parse(&arena, text, "action", &v) == ARES_OK;
        if (!good) ares_error_clear();
        good = good &&
               (v->type == f->type || (f->type == ARES_JSON_FLOAT && v->type == ARES_JSON_INT));
        if (good && f->field) ares_json_write(ares_json_key(out, f->field), v);
        else if (good) write_members(v, out);
        ares_arena_fini(&arena);
    }
    ares_json_end(out, '}');
    return good;
}

/*
 * `openenv`: an environment on a server of the OpenEnv protocol
 * (docs/environments.md#a-server-of-openenv). A connection is a session, and a session is an
 * environment: it is opened with the environment and reset for each episode.
 */

#define OPENENV_OPTIONS(X)                                                                       \
    X(text, url, "url", "???", "nonempty", "the server, ws://127.0.0.1:8000/ws")                 \
    X(text, observation, "observation", "null", "?nonempty",                                     \
      "Jinja template of the state over the fields of an observation; null: its only text, or "  \
      "all "                                                                                     \
      "fields as JSON where there is not one text")                                              \
    X(text, action_field, "action_field", "null", "?nonempty",                                   \
      "field of the server's actions that an answer fills; null: the only one that an action "   \
      "must "                                                                                    \
      "have; '*': an answer is a whole action, a JSON object")                                   \
    X(tree, action, "action", "{}", "map", "further fields, the same in every action")           \
    X(tree, reset, "reset", "{}", "map", "further fields of every reset, beside the seed")       \
    X(choice, reward, "reward", "sum", "sum|last",                                               \
      "what an episode is worth: the sum of the server's rewards, or the last one")              \
    X(f64, timeout_s, "timeout_s", "60", "(0,1e6]",                                              \
      "seconds for one answer; a connection that is late is closed, and its episode has failed") \
    X(f64, connect_timeout_s, "connect_timeout_s", "10", "(0,1e6]",                              \
      "seconds in which the server has to be reached and to have a free session")
ARES_OPTION_STRUCT(openenv_options, OPENENV_OPTIONS);
static ARES_OPTION_TABLE(openenv_table, openenv_options, OPENENV_OPTIONS);

/* What all environments of a definition share. */
typedef struct server {
    sockets *sockets;
    openenv_form form;
    ares_template *observation; /* NULL: a state is the only text, or all fields as JSON */
    char path[600];             /* of sessions */
} server;

typedef struct openenv {
    foreign f;
    const openenv_options *o;
    const server *server;
    connection *c;
    double last; /* the server's last reward, for options.reward = last */
    ares_str line;
    ares_arena arena; /* of one answer */
} openenv;

/* ---------------- the server */
/* What can be told without the server, before anything starts. */
static void check(const void *options, ares_config *cfg, const char *path)
{
    const openenv_options *o = options;
    openenv_address address;
    ares_template *observation = NULL;
    char where[300];
    snprintf(where, sizeof where, "%s.url", path);
    const char *wrong = openenv_read_url(o->url, &address);
    if (wrong) ares_config_fault(cfg, where, "%s", wrong);
    if (!sockets_offered())
        ares_config_fault(cfg, where,
                          "this build has no libwebsockets; install "
                          "libwebsockets-dev and build again");
    /* fields that would be in a message twice */
    snprintf(where, sizeof where, "%s.reset", path);
    if (ares_json_get(o->reset, "seed"))
        ares_config_fault(cfg, where, "the seed is the episode's; leave it out");
    snprintf(where, sizeof where, "%s.action", path);
    if (o->action_field && ares_json_get(o->action, o->action_field))
        ares_config_fault(cfg, where, "'%s' is what the model says (action_field); leave it out",
                          o->action_field);
    snprintf(where, sizeof where, "%s.observation", path);
    if (o->observation &&
        ares_template_new("observation", ares_view_of(o->observation), &observation) != ARES_OK)
        ares_config_fault(cfg, where, "%s", ares_error_message());
    ares_template_free(observation);
}

static void unload(void *shared)
{
    server *s = shared;
    if (!s) return;
    sockets_free(s->sockets);
    openenv_form_fini(&s->form);
    ares_template_free(s->observation);
    ares_free(s);
}

static int load(const void *options, void **shared)
{
    const openenv_options *o = options;
    server *s = ares_calloc(1, sizeof *s);
    openenv_address a;
    const char *wrong = openenv_read_url(o->url, &a);
    ARES_ASSERT(!wrong); /* check() has read it */
    snprintf(s->path, sizeof s->path, "%s/ws", a.base);
    int rc = ARES_OK;
    if (o->observation)
        rc = ares_template_new("observation", ares_view_of(o->observation), &s->observation);
    if (rc == ARES_OK) rc = sockets_new(a.host, a.port, FOREIGN_ANSWER_BYTES, &s->sockets);
    if (rc == ARES_OK) {
        /* the schema of actions; a server that may be starting is tried until connect_timeout_s */
        char path[600], quote[160];
        const double end = ares_now_s() + o->connect_timeout_s; /* of all tries together */
        connection *c = connection_new(s->sockets);
        ares_arena arena = { 0 };
        const ares_json *v;
        socket_reply r;
        char why[sizeof r.why] = "";
        snprintf(path, sizeof path, "%s/schema", a.base);
        for (;;) {
            connection_get(c, path, ARES_MAX(end - ares_now_s(), 0.001), &r);
            if (!r.by_clock || !why[0]) strcpy(why, r.why); /* the last try may be cut short */
            if (!r.failed || ares_now_s() + 0.1 > end) break;
            nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
        }
        if (r.failed)
            rc = ares_fail(ARES_EIO, "the server %s; start it first, or raise connect_timeout_s",
                           why);
        else if (r.status != 200)
            rc = ares_fail(ARES_EIO, "GET %s answered %d: is this the address of an environment?",
                           path, r.status);
        else if (ares_json_parse(&arena, r.text, "schema", &v) != ARES_OK ||
                 !ares_json_get(v, "action"))
            rc = ares_fail(ARES_EIO, "GET %s answered '%s'; expected the schema of an environment",
                           path, foreign_quote(r.text, quote));
        else
            rc =
                openenv_form_read(&s->form, ares_json_get(v, "action"), o->action_field, o->action);
        ares_arena_fini(&arena);
        connection_free(c);
    }
    *shared = rc == ARES_OK ? s : NULL;
    if (rc == ARES_OK) return ARES_OK;
    unload(s);
    return ares_fail_in(rc, "env: openenv: url = '%s'", o->url);
}

/* ---------------- answers */
/* A text member as a quote; empty where it is missing. */
static const char *text_of(const ares_json *object, const char *key, char quote[160])
{
    const ares_json *v = ares_json_get(object, key);
    /* a quote: the server may send anything */
    ares_view text = { "", 0 };
    return foreign_quote(v && v->type == ARES_JSON_STRING ? v->text : text, quote);
}

/* Whether a message is of a type: "observation", "error", .. */
static bool has_type(const ares_json *v, const char *type)
{
    const ares_json *t = ares_json_get(v, "type");
    return t && t->type == ARES_JSON_STRING && ares_view_is(t->text, type);
}

/* The server's own error fails the episode. */
static void say_error(openenv *e, const ares_json *data)
{
    char code[160], message[160];
    foreign_fail(&e->f, false, "the server says: %s: %s", text_of(data, "code", code),
                 text_of(data, "message", message));
}

/* The answer as an object; NULL: the episode has failed. */
static const ares_json *read_answer(openenv *e, const socket_reply *r)
{
    const ares_json *v;
    char quote[160];
    if (r->failed) {
        foreign_fail(&e->f, r->by_clock, "the server %s", r->why);
        e->f.replayable = false; /* others play on the server: a second run may differ */
        return NULL;
    }
    ares_arena_reset(&e->arena);
    if (ares_json_parse(&e->arena, r->text, "answer", &v) == ARES_OK && ares_json_get(v, "data") &&
        ares_json_get(v, "data")->type == ARES_JSON_OBJECT)
        return v;
    ares_error_clear();
    foreign_fail(&e->f, false, "the server answered '%s'; expected {\"type\": .., \"data\": {..}}",
                 foreign_quote(r->text, quote));
    connection_close(e->c);
    return NULL;
}

/* An answer that is JSON, but not of the protocol. */
static void fail_with_answer(openenv *e, const socket_reply *r)
{
    char quote[160];
    foreign_fail(
        &e->f, false,
        "the server answered '%s'; expected {\"type\": \"observation\", \"data\": "
        "{\"observation\": {..}, \"reward\": number up to 1e30 or null, \"done\": true or false}}",
        foreign_quote(r->text, quote));
    connection_close(e->c);
}

/* Bounds for a template, which reads whatever a server says. */
static const ares_template_limits limits = { .steps = 1000000,
                                             .memory_bytes = 64 << 20,
                                             .output_bytes = FOREIGN_ANSWER_BYTES };

/* Sets the state's text from an answer; false: the answer has no observation. */
static bool read_state(openenv *e, const ares_json *data)
{
    const ares_json *observation = ares_json_get(data, "observation");
    if (!observation || observation->type != ARES_JSON_OBJECT) return false;
    ares_str_clear(&e->f.state);
    /* the last text member, and how many there are */
    const ares_json *text = NULL;
    int texts = 0;
    for (int64_t i = 0; i < observation->count; i++) {
        const ares_json *v = observation->members[i].value;
        if (v->type == ARES_JSON_STRING) text = v, texts++;
    }
    /* the state: what the template makes, else the only text, else all fields but metadata */
    const ares_template *template = e->server->observation;
    char quote[160];
    if (template) {
        if (ares_template_render(template, observation, NULL, &limits, &e->f.state, NULL) ==
            ARES_OK)
            return true;
        foreign_fail(&e->f, false, "the observation does not suit the template: %s",
                     foreign_quote(ares_view_of(ares_error_message()), quote));
        ares_error_clear();
    } else if (texts == 1) ares_str_add_view(&e->f.state, text->text);
    else {
        ares_json_begin(&e->f.state, '{');
        for (int64_t i = 0; i < observation->count; i++)
            if (!ares_view_is(observation->members[i].key, "metadata"))
                ares_json_write(ares_json_key_view(&e->f.state, observation->members[i].key),
                                observation->members[i].value);
        ares_json_end(&e->f.state, '}');
    }
    return true;
}

/* ---------------- sessions */
/*
 * Opens a session, trying again until connect_timeout_s; false: the episode has failed. Its first
 * question shows whether the server has a place: one that is full sends an error unasked.
 */
static bool connect_session(openenv *e)
{
    const double end = ares_now_s() + e->o->connect_timeout_s;
    char why[sizeof e->f.why] = "";
    socket_reply r;
    for (;;) {
        foreign_begin(&e->f);
        connection_open(e->c, e->server->path, ARES_VIEW("{\"type\":\"state\"}"),
                        ARES_MAX(end - ares_now_s(), 0.001), &r);
        const ares_json *v = read_answer(e, &r), *data = ares_json_get(v, "data");
        char code[160];
        if (v &&
            (!has_type(v, "error") || strcmp(text_of(data, "code", code), "EXECUTION_ERROR") == 0))
            return true; /* some environments have no state before a reset */
        if (v) {
            say_error(e, data);
            e->f.replayable = false;
            connection_close(e->c);
        }
        if (r.by_clock && why[0]) strcpy(e->f.why, why); /* the last try may be cut short */
        strcpy(why, e->f.why);
        if (ares_now_s() + 0.1 > end) return false;
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
}

static void close_openenv(void *env)
{
    openenv *e = env;
    connection_free(e->c);
    foreign_fini(&e->f);
    ares_str_fini(&e->line);
    ares_arena_fini(&e->arena);
    ares_free(e);
}

/* Opens the session at once, so that a full server fails here and not in an episode. */
static int open_openenv(const void *options, const void *shared, void **env)
{
    openenv *e = ares_calloc(1, sizeof *e);
    e->o = options;
    e->server = shared;
    e->c = connection_new(e->server->sockets);
    *env = e;
    if (connect_session(e)) return ARES_OK;
    int rc = ares_fail(ARES_EIO,
                       "env: openenv: url = '%s': no session: %s (environments that play at once "
                       "need a session each: max_concurrent_envs of the server)",
                       e->o->url, e->f.why);
    close_openenv(e);
    *env = NULL;
    return rc;
}

/* One socket per environment. */
static int64_t descriptors(const void *options, int64_t n)
{
    (void)options;
    return n;
}

/* ---------------- episodes */
/* Begins an episode; a failure of the server is the episode's, not the run's. */
static int reset(void *env, const ares_env_start *start)
{
    openenv *e = env;
    socket_reply r;
    /* a failed episode may have closed the session */
    bool was_open = connection_is_open(e->c);
    foreign_begin(&e->f);
    e->last = 0;
    char seed[24]; /* as text: all 64 bits count, without a sign */
    int n = snprintf(seed, sizeof seed, "%llu", (unsigned long long)start->seed);
    ares_str_clear(&e->line);
    ares_json_begin(&e->line, '{');
    ares_json_write_string(ares_json_key(&e->line, "type"), ARES_VIEW("reset"));
    ares_json_begin(ares_json_key(&e->line, "data"), '{');
    ares_json_splice(ares_json_key(&e->line, "seed"), (ares_view){ seed, (size_t)n });
    write_members(e->o->reset, &e->line);
    ares_json_end(&e->line, '}');
    ares_json_end(&e->line, '}');
    if (!was_open && !connect_session(e)) return ARES_OK;
    connection_ask(e->c, ares_str_view(&e->line), e->o->timeout_s, &r);
    if (r.failed && !r.by_clock && was_open) { /* the server closed it between the episodes */
        if (!connect_session(e)) return ARES_OK;
        connection_ask(e->c, ares_str_view(&e->line), e->o->timeout_s, &r);
    }
    const ares_json *v = read_answer(e, &r), *data = ares_json_get(v, "data");
    if (!v) return ARES_OK;
    if (has_type(v, "error")) {
        say_error(e, data);
        return ARES_OK;
    }
    const ares_json *done = ares_json_get(data, "done");
    if (!has_type(v, "observation") || !read_state(e, data)) fail_with_answer(e, &r);
    e->f.over = done && done->type == ARES_JSON_BOOL && done->boolean;
    return ARES_OK;
}

/* null, as servers also write NaN, is no reward; yes and no are 1 and 0. false: something else. */
static bool read_reward(openenv *e, const ares_json *v, ares_env_outcome *out)
{
    ares_env_reward reward = { 0, true };
    bool none = !v || v->type == ARES_JSON_NULL;
    if (none) env_tell(out, "no_reward", 1);
    else if (v->type == ARES_JSON_BOOL) reward.value = v->boolean;
    else if (!foreign_read_reward(v, &reward)) return false;
    out->reward = reward;
    out->success = reward.value > 0;
    if (strcmp(e->o->reward, "last") != 0) return true;
    if (none) reward.value = e->last;
    /* rewards are summed: the difference makes the sum equal to the last one */
    out->reward = (ares_env_reward){ reward.value - e->last, false };
    out->success = reward.value > 0;
    e->last = reward.value;
    return true;
}

/* Reads the answer to a step; false: it is not what the protocol says. */
static bool read_step(openenv *e, const ares_json *data, ares_env_outcome *out)
{
    const ares_json *done = ares_json_get(data, "done"),
                    *told = ares_json_get(ares_json_get(data, "observation"), "metadata");
    if (!done || done->type != ARES_JSON_BOOL ||
        !read_reward(e, ares_json_get(data, "reward"), out) || !read_state(e, data))
        return false;
    out->done = done->boolean;
    out->success = out->done && out->success;
    if (!told) told = ares_json_get(data, "metadata");
    return !told || told->type != ARES_JSON_OBJECT || foreign_tell(&e->f, told, out);
}

/* An action that the server's schema refuses is no action; other errors end the episode. */
static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    openenv *e = env;
    socket_reply r;
    char code[160];
    ares_str_clear(&e->line);
    ares_json_begin(&e->line, '{');
    ares_json_write_string(ares_json_key(&e->line, "type"), ARES_VIEW("step"));
    ares_json_key(&e->line, "data");
    out->refused = !openenv_form_write(&e->server->form, e->o->action, action.text, &e->line);
    if (out->refused) return ARES_OK;
    ares_json_end(&e->line, '}');
    connection_ask(e->c, ares_str_view(&e->line), e->o->timeout_s, &r);
    const ares_json *v = read_answer(e, &r), *data = ares_json_get(v, "data");
    if (!v) return ARES_OK;
    if (!has_type(v, "error")) {
        if (!has_type(v, "observation") || !read_step(e, data, out)) fail_with_answer(e, &r);
        return ARES_OK;
    }
    out->refused = strcmp(text_of(data, "code", code), "VALIDATION_ERROR") == 0;
    if (!out->refused) say_error(e, data);
    return ARES_OK;
}

/* The state is kept as text since the last answer. */
/* The values of the field's enum; NULL: any text. */
static const char *const *actions_of(const void *env, int *n)
{
    const openenv_form *f = &((const openenv *)env)->server->form;
    *n = f->n_names;
    return *n ? f->names : NULL;
}

const ares_env_type ares_env_type_openenv = {
    .name = "openenv",
    .doc = "an environment on a server of the OpenEnv protocol",
    .options = openenv_table,
    .options_size = sizeof(openenv_options),
    .check = check,
    .load = load,
    .unload = unload,
    .open = open_openenv,
    .close = close_openenv,
    .reset = reset,
    .step = step,
    .render = foreign_render,
    .actions = actions_of,
    .waits = true,
    .failure = foreign_failure,
    .over = foreign_over,
    .descriptors = descriptors,
};
