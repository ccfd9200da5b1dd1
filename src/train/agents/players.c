/*
 * Users' programs as players (docs/serve.md#agents). In order: what an episode and a process are;
 * starting an episode in a process; its end; lines that programs write; what the endpoint asks; the
 * rows of an episode; a draw.
 *
 * One thread does all of it: it pumps the endpoint, which makes a step of decoding, and reads what
 * programs wrote. Nothing that is trained on depends on the order in which requests, lines or
 * episodes come: keys of samples follow from ids, and rows and sums are made in an order of their
 * own. A process plays one episode after the other; what goes wrong in a process that has played
 * before, ahead of the episode's first request, may be left over from the episode before it, so the
 * episode then begins again in a new process.
 */
#include "agents.h"
#include "report/report.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "ares/serve.h"

enum {
    KEY = 40,          /* bytes of a key, its NUL included */
    CHATTER = 4 << 10, /* bytes that are kept of what a program writes beside its reward */
    FLOOD = 1 << 20,   /* of that in an episode; more fails it */
    READS = 64         /* blocks that are read from a process before others have their turn */
};
static const double look_s = 0.5; /* for a signal that ends the work */

typedef struct player player;

/* An episode, from its line to its rows. */
typedef struct played {
    int64_t prompt; /* number of its group in the job */
    int32_t item;   /* its number within the group */
    const agents_row *row;
    ares_env_start start;
    ares_rng_key samples; /* key of its samples */
    char key[KEY];
    int64_t id; /* in lines of a process that plays several */
    player *at; /* the process that plays it; NULL: it has not begun, or is over */
    bool over;
    bool first; /* of its process */
    /* what it asked */
    int64_t requests, reencoded, cut; /* cut: answers that were ended by their length */
    ares_map *equal;                  /* hash of a prompt's ids -> requests with them */
    struct serve_session *kept;
    /* its own time: it stands while requests are open */
    int64_t open;
    double own_s, since, limit_s;
    /* [n_records] what was sampled; all in the arena of the job */
    struct sampled *records;
    int64_t n_records, cap;
    ares_str chatter; /* the last bytes of it */
    int64_t chatter_bytes;
    /* how it ended */
    bool failed, replayable, success;
    double reward;
    char why[600];
    ares_env_info info[EPISODE_INFO]; /* names in the arena */
    int n_info;
    int64_t dropped, trained, rows; /* trained: tokens with mask 1 */
} played;

/* A record with the entropies of its tokens. */
typedef struct sampled {
    ares_serve_record record; /* first: they are sorted as records */
    const float *entropies, *entropies_1;
} sampled;

/* A process of a pool, or the place of one. */
struct player {
    const ares_env_program *program;
    ares_child child;
    char key[KEY];    /* in its OPENAI_API_KEY; "": it plays several episodes */
    ares_str out, in; /* not yet written; not yet a whole line */
    size_t early;     /* bytes of `in` that were written before its episode's first request */
    int64_t begun;    /* episodes since it was started */
    played **seats;   /* [program->per_process] NULL: free */
    int64_t n_seats;  /* that are taken */
};

/* The processes of a definition. */
typedef struct pool {
    const ares_env_definition *definition;
    player *items; /* [n] */
    int64_t n;
} pool;

struct players {
    ares_trainer *t;
    ares_server *server;
    pool *pools; /* [n_pools] */
    int64_t n_pools, next_id;
    struct pollfd *fds;
    int64_t fds_cap;
    char url[64];
    ares_str no_proxy; /* its value, for programs */
    /* while a draw is played */
    ares_arena *arena;
    played *episodes; /* [n] in the order of groups and their members */
    int64_t n, left;
    ares_serve_play play;
    ares_sampling sampling;
};

/* ---------------- opening */
static void write_key(char out[KEY])
{
    unsigned char bits[16];
    for (size_t got = 0; got < sizeof bits;) {
        ssize_t n = getrandom(bits + got, sizeof bits - got, 0);
        ARES_ASSERT(n > 0 || errno == EINTR);
        if (n > 0) got += (size_t)n;
    }
    strcpy(out, "ares-");
    for (size_t i = 0; i < sizeof bits; i++) snprintf(out + 5 + 2 * i, 3, "%02x", bits[i]);
}

static void add_pools(players *p, const agents_side *s)
{
    for (int64_t k = 0; k < s->cfg->tags.count; k++) {
        const ares_env_definition *d = &s->definitions[k];
        if (!d->type->program) continue;
        const ares_env_program *program = d->type->program(d->shared);
        pool *of = &p->pools[p->n_pools++];
        *of = (pool){ d, ares_calloc((size_t)program->processes, sizeof *of->items),
                      program->processes };
        for (int64_t i = 0; i < of->n; i++) {
            of->items[i] = (player){ .program = program, .child = ARES_CHILD_NONE };
            of->items[i].seats =
                ares_calloc((size_t)program->per_process, sizeof *of->items[i].seats);
        }
    }
}

int players_open(ares_trainer *t, players **out)
{
    const ares_train_config *c = t->run.cfg;
    static const char *const names[] = { "policy" };
    players *p = *out = ares_calloc(1, sizeof *p);
    const char *before = getenv("NO_PROXY");
    ares_serve_options o = { ARES_SERVE_DEFAULTS };
    o.port = 0;
    o.names = names;
    o.n_names = 1;
    o.model_dir = t->run.model_dir.data;
    o.tokenizer_dir = t->run.tokenizer_dir.data;
    o.chat = ares_prompt_encoder_chat(t->run.encoder);
    o.max_model_len = (int32_t)trainer_longest(t);
    o.max_num_seqs = (int32_t)c->rollout.max_num_seqs;
    o.rollout = t->rollout;
    o.version = ARES_VERSION;
    p->t = t;
    p->pools = ares_calloc((size_t)(c->agents_train.tags.count + c->agents_val.tags.count),
                           sizeof *p->pools);
    if (!before) before = getenv("no_proxy");
    ares_str_addf(&p->no_proxy, "127.0.0.1%s%s", before && *before ? "," : "",
                  before ? before : "");
    add_pools(p, &t->agents->train);
    add_pools(p, &t->agents->val);
    ARES_TRY(ares_server_open(&o, t->run.model, t->run.tokenizer, &p->server));
    snprintf(p->url, sizeof p->url, "http://127.0.0.1:%d/v1", ares_server_port(p->server));
    return ARES_OK;
}

/* Kills the process, with all that it started. */
static void stop(player *q)
{
    ares_child_stop(&q->child);
    ares_str_clear(&q->out);
    ares_str_clear(&q->in);
    q->early = 0;
}

void players_close(players *p)
{
    if (!p) return;
    for (int64_t k = 0; k < p->n_pools; k++) {
        for (int64_t i = 0; i < p->pools[k].n; i++) {
            player *q = &p->pools[k].items[i];
            stop(q);
            ares_str_fini(&q->out);
            ares_str_fini(&q->in);
            ares_free(q->seats);
        }
        ares_free(p->pools[k].items);
    }
    ares_server_close(p->server);
    ares_free(p->pools);
    ares_free(p->fds);
    ares_str_fini(&p->no_proxy);
    ares_free(p);
}

/* ---------------- the end of an episode */
/* The episode has ended, well or not: its key is valid no longer, its open requests are cut. */
static void leave(players *p, played *x)
{
    player *q = x->at;
    if (!x->open) x->own_s += ares_now_s() - x->since;
    x->over = true;
    p->left--;
    ares_work_done(ARES_WORK_EPISODES, 1);
    if (q) {
        for (int64_t i = 0; i < q->program->per_process; i++)
            if (q->seats[i] == x) q->seats[i] = NULL;
        q->n_seats--;
    }
    x->at = NULL;
    ares_server_forget(p->server, x);
}

static void fail(players *p, played *x, bool replayable, const char *why)
{
    if (x->over) return;
    player *q = x->at;
    x->failed = true;
    x->replayable = replayable;
    snprintf(x->why, sizeof x->why, "%s", why);
    leave(p, x);
    if (q && q->program->per_process == 1) stop(q);
}

/* ---------------- the beginning of an episode */
static int start(players *p, player *q)
{
    const char *const names[] = { "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY",
                                  "NO_PROXY", "no_proxy" };
    const char *const values[] = { p->url, p->url, q->key, p->no_proxy.data, p->no_proxy.data };
    ares_str texts[ARES_COUNT(names)] = { 0 };
    const char *more[ARES_COUNT(names) + 1] = { NULL };
    stop(q);
    write_key(q->key);
    q->begun = 0;
    for (int i = 0; i < ARES_COUNT(names); i++) {
        ares_str_addf(&texts[i], "%s=%s", names[i], values[i]);
        more[i] = texts[i].data;
    }
    int rc = ares_child_start_with(&q->child, q->program->argv, more, q->program->memory_bytes);
    for (int i = 0; i < ARES_COUNT(names); i++) ares_str_fini(&texts[i]);
    return rc;
}

/* {"id":3,"episode":{"key","seed","number","step","split","task"},"base_url","model"} */
static void write_line(const players *p, const played *x, ares_str *out)
{
    const ares_env_program *program = x->at->program;
    char seed[24];
    int n = snprintf(seed, sizeof seed, "%llu", (unsigned long long)x->start.seed);
    ares_json_begin(out, '{');
    if (program->per_process > 1) ares_json_write_i64(ares_json_key(out, "id"), x->id);
    ares_json_begin(ares_json_key(out, "episode"), '{');
    ares_json_write_string(ares_json_key(out, "key"), ares_view_of(x->key));
    ares_json_splice(ares_json_key(out, "seed"), (ares_view){ seed, (size_t)n });
    ares_json_write_i64(ares_json_key(out, "number"), x->start.id);
    ares_json_write_i64(ares_json_key(out, "step"), p->t->run.step);
    ares_json_write_string(ares_json_key(out, "split"), ares_view_of(x->row->split));
    ares_json_key(out, "task");
    if (program->n_tasks)
        ares_json_splice(out, program->tasks[x->start.seed % (uint64_t)program->n_tasks]);
    else ares_json_write_null(out);
    ares_json_end(out, '}');
    ares_json_write_string(ares_json_key(out, "base_url"), ares_view_of(p->url));
    ares_json_write_string(ares_json_key(out, "model"), ARES_VIEW("policy"));
    ares_json_end(out, '}');
    ares_str_add_char(out, '\n');
}

/* The episode begins in a free place of the process, which is started where none runs. */
static void begin(players *p, played *x, player *q)
{
    const ares_env_program *program = q->program;
    int64_t seat = 0;
    while (q->seats[seat]) seat++;
    q->seats[seat] = x;
    q->n_seats++;
    x->at = q;
    x->since = ares_now_s();
    x->own_s = 0;
    if (!q->child.pid && start(p, q) != ARES_OK) {
        char why[300];
        snprintf(why, sizeof why, "the program cannot be started: %.200s", ares_error_message());
        ares_error_clear();
        fail(p, x, true, why);
        return;
    }
    x->first = q->begun++ == 0;
    x->limit_s = program->timeout_s + (x->first ? program->start_timeout_s : 0);
    x->id = p->next_id++;
    write_key(x->key);
    write_line(p, x, &q->out);
}

/*
 * Something went wrong before the episode's first request in a process that has played before: the
 * episode begins again in a new one. false: the process is new, or plays several episodes.
 */
static bool begin_again(players *p, played *x)
{
    player *q = x->at;
    if (x->first || x->requests || q->program->per_process > 1) return false;
    stop(q);
    q->seats[0] = NULL;
    q->n_seats = 0;
    ares_str_clear(&x->chatter);
    x->chatter_bytes = 0;
    begin(p, x, q);
    return true;
}

/* ---------------- lines */
/* Adds what is neither reward nor error to its episodes; false: it is a flood. */
static bool add_chatter(player *q, ares_view line)
{
    bool flood = false;
    for (int64_t i = 0; i < q->program->per_process; i++) {
        played *x = q->seats[i];
        if (!x) continue;
        x->chatter_bytes += (int64_t)line.len + 1;
        ares_str_add_view(&x->chatter, line);
        ares_str_add_char(&x->chatter, '\n');
        size_t old = x->chatter.len > CHATTER ? x->chatter.len - CHATTER : 0;
        if (old) {
            memmove(x->chatter.data, x->chatter.data + old, x->chatter.len - old);
            x->chatter.len -= old;
            x->chatter.data[x->chatter.len] = 0;
        }
        flood = flood || x->chatter_bytes > FLOOD;
    }
    return !flood;
}

/* All episodes of a process fail, and it is killed. by_clock: it was late */
static void fail_process(players *p, player *q, bool by_clock, const char *why)
{
    bool alone = q->program->per_process == 1;
    stop(q);
    for (int64_t i = 0; i < q->program->per_process; i++)
        if (q->seats[i]) fail(p, q->seats[i], alone && !by_clock, why);
}

/* The process has ended, or is to end: its episode fails, or begins again in a new one. */
static void spoil(players *p, player *q, const char *why)
{
    played *x = q->seats[0];
    if (!x || !begin_again(p, x)) fail_process(p, q, false, why);
}

/* Keeps the numbers of a line's info as they are shown in metrics. */
static void take_info(players *p, played *x, const ares_json *info)
{
    for (int64_t i = 0; info && i < info->count; i++) {
        const ares_json *v = info->members[i].value;
        ares_view name = info->members[i].key;
        double value = v->type == ARES_JSON_BOOL ? (double)v->boolean : v->number;
        bool fit = name.len > 0 && name.len < 64 && isfinite(value); /* to be a metric's name */
        for (size_t k = 0; k < name.len && fit; k++)
            fit = name.data[k] > ' ' && name.data[k] < 0x7f;
        if (!fit || x->n_info == EPISODE_INFO) x->dropped++;
        else
            x->info[x->n_info++] =
                (ares_env_info){ ares_arena_printf(p->arena, "%.*s", (int)name.len, name.data),
                                 value };
    }
}

/* A line that the program wrote; early: before the first request of its episode. */
static void take_line(players *p, player *q, ares_view line, bool early)
{
    ares_arena arena = { 0 };
    ares_serve_line l;
    bool many = q->program->per_process > 1;
    ares_serve_line_read(&arena, line, many, &l);
    played *x = NULL;
    for (int64_t i = 0; i < q->program->per_process && l.kind != ARES_SERVE_LINE_CHATTER; i++) {
        played *other = q->seats[i];
        if (other && (!many || (l.id && l.id->type == ARES_JSON_INT && l.id->integer == other->id)))
            x = other;
    }
    bool asked = x && x->requests && !early;
    if (!x) { /* chatter, or a second reward of an episode that is over */
        if (!add_chatter(q, line))
            spoil(p, q, "the program floods its output: more than 1 MiB in an episode");
    } else if (!asked && begin_again(p, x)) {
    } else if (l.kind == ARES_SERVE_LINE_FAILURE) {
        char why[400];
        snprintf(why, sizeof why, "the program's line: %.300s", l.why);
        fail(p, x, true, why);
    } else if (!asked) {
        fail(p, x, true,
             "the program wrote a reward and had asked for nothing; let it ask the "
             "endpoint in OPENAI_BASE_URL, with the key of its line");
    } else {
        x->reward = l.reward;
        x->success = l.success;
        take_info(p, x, l.info);
        leave(p, x);
    }
    ares_arena_fini(&arena);
}

/* The whole lines of what was read; blank ones are skipped. ended: the last one may lack its end.
 */
static void take_lines(players *p, player *q, bool ended)
{
    size_t at = 0;
    const int pid = q->child.pid;
    if (ended && q->in.len && q->in.data[q->in.len - 1] != '\n') ares_str_add_char(&q->in, '\n');
    for (int64_t end; (end = ares_view_find(ares_str_view(&q->in), ARES_VIEW("\n"), at)) >= 0;) {
        ares_view line = ares_view_trim((ares_view){ q->in.data + at, (size_t)end - at });
        bool early = at < q->early;
        at = (size_t)end + 1;
        if (line.len) take_line(p, q, line, early);
        if (q->child.pid != pid) return; /* it was stopped, and its output forgotten */
    }
    if (at) memmove(q->in.data, q->in.data + at, q->in.len - at);
    q->in.len -= at;
    q->early = q->early > at ? q->early - at : 0;
    if (q->in.len > FLOOD) spoil(p, q, "the program floods its output: a line of more than 1 MiB");
}

/* Reads what the process wrote, and notices its end. */
static void listen_to(players *p, player *q)
{
    int64_t n = 0;
    const int pid = q->child.pid;
    if (!pid) return;
    size_t sent = ares_child_send(&q->child, q->out.data, q->out.len);
    if (sent) {
        memmove(q->out.data, q->out.data + sent, q->out.len - sent);
        q->out.len -= sent;
    }
    ares_child_listen(&q->child);
    for (int i = 0; i < READS && (n = ares_child_receive(&q->child, &q->in)) > 0; i++) {
        take_lines(p, q, false);
        if (q->child.pid != pid) return;
    }
    if (n >= 0) return;
    take_lines(p, q, true);
    if (q->child.pid != pid) return;
    char why[400], text[450];
    ares_child_describe_end(&q->child, why, sizeof why);
    snprintf(text, sizeof text, "before its line the program %s", why);
    spoil(p, q, text);
}

/* ---------------- what the endpoint asks while a draw is played (ares_serve_play) */
static void *episode_of(void *ctx, ares_view key)
{
    players *p = ctx;
    for (int64_t e = 0; e < p->n; e++) {
        played *x = &p->episodes[e];
        if (!x->at) continue;
        bool alone = x->at->program->per_process == 1;
        if (ares_view_is(key, x->key) || (alone && ares_view_is(key, x->at->key))) return x;
    }
    return NULL;
}

static bool request_begun(void *ctx, void *episode, double arrived_s, struct serve_session **kept,
                          ares_rng_key *key, int32_t *index, uint64_t *line)
{
    players *p = ctx;
    played *x = episode;
    player *q = x->at;
    if (x->requests == q->program->max_requests) return false;
    if (x->requests++ == 0 && !x->first && q->program->per_process == 1) {
        /* what it wrote until now may belong to the episode before */
        for (int i = 0; i < READS && ares_child_receive(&q->child, &q->in) > 0; i++) {}
        q->early = q->in.len;
    }
    if (x->open++ == 0) x->own_s += fmax(arrived_s - x->since, 0);
    *kept = x->kept;
    *key = x->samples;
    *index = x->item;
    *line = (uint64_t)(x - p->episodes);
    return true;
}

static void request_ended(void *ctx, void *episode, bool encoded_anew)
{
    played *x = episode;
    (void)ctx;
    x->reencoded += encoded_anew;
    if (--x->open == 0) x->since = ares_now_s();
}

static int64_t equal_before(void *ctx, void *episode, const int32_t *ids, int64_t n)
{
    played *x = episode;
    uint64_t hash = ares_fnv1a(ARES_FNV1A, ids, (size_t)n * sizeof *ids);
    ares_view key = { (const char *)&hash, sizeof hash };
    int64_t before = 0;
    (void)ctx;
    (void)ares_map_get(x->equal, key, &before);
    ares_map_put(x->equal, key, before + 1);
    return before;
}

static const void *copied(ares_arena *arena, const void *from, int64_t n)
{
    return n ? ares_arena_copy(arena, from, (size_t)n * 4) : NULL;
}

static void take_record(void *ctx, void *episode, const ares_serve_record *r,
                        const float *entropies, const float *entropies_1)
{
    players *p = ctx;
    played *x = episode;
    if (x->n_records == x->cap) {
        int64_t cap = x->cap * 2 + 4;
        x->records = arena_grown(p->arena, x->records, x->n_records, cap, sizeof *x->records);
        x->cap = cap;
    }
    sampled *s = &x->records[x->n_records++];
    *s = (sampled){ .record = *r,
                    .entropies = copied(p->arena, entropies, r->n),
                    .entropies_1 = copied(p->arena, entropies_1, r->n) };
    s->record.prompt = copied(p->arena, r->prompt, r->n_prompt);
    s->record.ids = copied(p->arena, r->ids, r->n);
    s->record.log_probs = copied(p->arena, r->log_probs, r->n);
    x->cut += r->by_length;
}

/* ---------------- rows */
static int by_record(const void *a, const void *b)
{
    return ares_serve_record_cmp(&((const sampled *)a)->record, &((const sampled *)b)->record);
}

/* An episode of which nothing can be trained on has a row without tokens. */
static void empty_row(const players *p, const played *x, ares_trajectory_row *y)
{
    int32_t *one = ares_arena_calloc(p->arena, 1, sizeof *one);
    const ares_serve_record *r = x->n_records ? &x->records[0].record : NULL;
    ares_trajectory_row_init(y, r ? r->prompt : one, r ? (int32_t)r->n_prompt : 1, 0, p->arena);
    y->turn_ends = ares_arena_calloc(p->arena, 1, sizeof *y->turn_ends);
    if (p->t->agents->style.turn_scores)
        y->turn_scores = ares_arena_calloc(p->arena, 1, sizeof *y->turn_scores);
}

static void fill_row(const players *p, played *x, const ares_serve_row *from,
                     ares_trajectory_row *y)
{
    size_t n = (size_t)from->n;
    ares_trajectory_row_init(y, from->prompt, (int32_t)from->n_prompt, (int32_t)n, p->arena);
    y->turn_ends = ares_arena_calloc(p->arena, n + 1, sizeof *y->turn_ends);
    memcpy(y->responses, from->responses, n * sizeof *y->responses);
    memcpy(y->response_mask, from->mask, n);
    memcpy(y->rollout_log_probs, from->log_probs, n * sizeof *y->rollout_log_probs);
    for (size_t i = 0; i < n; i++) y->weight_versions[i] = (int32_t)from->weights[i];
    int64_t end = 0;
    for (int k = 0; k < from->n_records; k++) {
        const sampled *s = &x->records[from->records[k]];
        int64_t at = s->record.n_prompt - from->n_prompt;
        end = at + s->record.n;
        memcpy(y->entropies + at, s->entropies, (size_t)s->record.n * sizeof *y->entropies);
        memcpy(y->entropies_1 + at, s->entropies_1, (size_t)s->record.n * sizeof *y->entropies_1);
        y->turn_ends[end - 1] = 1;
        x->trained += s->record.n;
    }
    if (!p->t->agents->style.turn_scores) return;
    y->turn_scores = ares_arena_calloc(p->arena, n + 1, sizeof *y->turn_scores);
    y->turn_scores[end - 1] = (float)x->reward;
}

/* Its requests, as the rollouts file shows them. */
static int write_turns(const players *p, const played *x, ares_str *out)
{
    ares_str text = { 0 };
    int rc = ARES_OK;
    ares_json_begin(out, '[');
    for (int64_t i = 0; i < x->n_records && rc == ARES_OK; i++) {
        const ares_serve_record *r = &x->records[i].record;
        ares_str_clear(&text);
        rc = ares_tokenizer_decode(p->t->run.tokenizer, r->ids, r->n, false, &text);
        ares_json_begin(out, '{');
        ares_json_write_string(ares_json_key(out, "response"), ares_str_view(&text));
        ares_json_begin(ares_json_key(out, "actions"), '['); /* show reads a list in every turn */
        ares_json_end(out, ']');
        ares_json_write_i64(ares_json_key(out, "prompt_tokens"), r->n_prompt);
        ares_json_write_i64(ares_json_key(out, "n_tokens"), r->n);
        ares_json_write_i64(ares_json_key(out, "k"), r->k);
        ares_json_write_i64(ares_json_key(out, "index"), r->index);
        if (!r->train) ares_json_write_bool(ares_json_key(out, "train"), false);
        ares_json_end(out, '}');
    }
    if (x->failed) { /* as the last entry, as for other environments */
        ares_json_begin(out, '{');
        ares_json_write_string(ares_json_key(out, "failure"), ares_view_of(x->why));
        ares_json_write_bool(ares_json_key(out, "replayable"), x->replayable);
        ares_json_end(out, '}');
    }
    ares_json_end(out, ']');
    ares_str_fini(&text);
    return rc;
}

/* What a row of the rollouts file has beside: why the episode failed, what it said. */
static void write_details(const played *x, ares_str *out)
{
    ares_json_begin(out, '{');
    ares_json_write_i64(ares_json_key(out, "requests"), x->requests);
    if (x->failed) {
        ares_json_write_string(ares_json_key(out, "failure"), ares_view_of(x->why));
        ares_json_write_bool(ares_json_key(out, "replayable"), x->replayable);
    }
    if (x->chatter.len)
        ares_json_write_string(ares_json_key(out, "chatter"), ares_str_view(&x->chatter));
    ares_json_begin(ares_json_key(out, "info"), '{');
    for (int i = 0; i < x->n_info; i++)
        ares_json_write_double(ares_json_key(out, x->info[i].name), x->info[i].value);
    ares_json_end(out, '}');
    ares_json_end(out, '}');
}

static ares_view in_arena(ares_arena *arena, ares_str *text)
{
    ares_view copy = { ares_arena_copy(arena, text->data ? text->data : "", text->len), text->len };
    ares_str_fini(text);
    return copy;
}

/* The finished episode as a trajectory: each row has its score, as in limited_multi_turn. */
static int end_episode(const players *p, played *x, ares_trajectory *y)
{
    const ares_trainer *t = p->t;
    double failure_score = t->run.cfg->agents.failure_score;
    ares_str turns = { 0 }, details = { 0 }, text = { 0 };
    ares_serve_row *rows;
    if (x->failed) x->reward = ares_is_null_f64(failure_score) ? 0 : failure_score;
    *y = (ares_trajectory){ .index = x->item,
                            .stopped = !x->failed,
                            .turn_count = (int32_t)ARES_MAX(x->n_records, 1),
                            .turns_cut = (int32_t)x->cut,
                            .score = (float)x->reward,
                            .unshaped = (float)x->reward,
                            .failed = x->failed,
                            .accuracy =
                                x->failed && answer_discards_failures(t) ? NAN : (float)x->success,
                            .parts = ares_arena_calloc(p->arena, 1, sizeof *y->parts) };
    if (x->n_records) qsort(x->records, (size_t)x->n_records, sizeof *x->records, by_record);
    ares_serve_record *records =
        ares_arena_calloc(p->arena, (size_t)x->n_records + 1, sizeof *records);
    for (int64_t i = 0; i < x->n_records; i++) records[i] = x->records[i].record;
    int n = ares_serve_rows(p->arena, records, (int)x->n_records, &rows);
    x->rows = n;
    y->n_rows = ARES_MAX(n, 1);
    y->rows = ares_arena_calloc(p->arena, (size_t)y->n_rows, sizeof *y->rows);
    for (int r = 0; r < n; r++) fill_row(p, x, &rows[r], &y->rows[r]);
    if (!n) empty_row(p, x, &y->rows[0]);
    if (report_collapse_due(t)) {
        ares_thought *thoughts =
            ares_arena_calloc(p->arena, (size_t)x->n_records + 1, sizeof *thoughts);
        for (int64_t i = 0; i < x->n_records; i++) {
            const ares_serve_record *s = &records[i];
            thoughts[i] = (ares_thought){ .prompt = s->prompt,
                                          .prompt_len = (int32_t)s->n_prompt,
                                          .ids = s->ids,
                                          .n = conversation_thought_length(t->run.tokenizer, s->ids,
                                                                           (int32_t)s->n) };
        }
        y->thoughts = thoughts;
        y->n_thoughts = (int32_t)x->n_records;
    }
    int rc = write_turns(p, x, &turns);
    y->turns = in_arena(p->arena, &turns);
    write_details(x, &details);
    y->details = in_arena(p->arena, &details);
    for (int32_t r = 0; r < y->n_rows && rc == ARES_OK; r++)
        rc = ares_tokenizer_decode(t->run.tokenizer, y->rows[r].responses, y->rows[r].n_tokens,
                                   false, &text);
    y->response = in_arena(p->arena, &text);
    return rc;
}

/* Adds the episode's numbers to metrics. */
static void count(const played *x, bool discards, measures *m)
{
    const char *tag = x->row->definition->tag;
    measures_count(m, tag, "failed", "failed", x->failed);
    measures_add(m, "replayable", NULL, !x->failed || x->replayable);
    if (x->failed && discards) return;
    const struct {
        const char *name;
        double value;
    } numbers[] = { { "success", x->success && !x->failed },
                    { "requests", (double)x->requests },
                    { "rows", (double)x->rows },
                    { "reencoded", (double)x->reencoded },
                    { "own_s", x->own_s },
                    { "dropped_info", (double)x->dropped } };
    for (int i = 0; i < ARES_COUNT(numbers); i++)
        measures_count(m, tag, "success", numbers[i].name, numbers[i].value);
    for (int i = 0; i < x->n_info; i++) {
        char name[96];
        snprintf(name, sizeof name, "info/%s", x->info[i].name);
        measures_count(m, tag, "success", name, x->info[i].value);
    }
    measures_add(m, "response_length", NULL, (double)x->trained / (double)ARES_MAX(x->rows, 1));
}

/* ---------------- a draw */
static void open_episodes(players *p, const answer_job *job, ares_group *out)
{
    p->episodes =
        ares_arena_calloc(p->arena, (size_t)(job->n_prompts * job->n) + 1, sizeof *p->episodes);
    for (int64_t g = 0; g < job->n_prompts; g++) {
        const answer_prompt *from = &job->prompts[g];
        ares_rng_key of_draw =
            ares_rng_sub(job->key, (uint64_t)p->t->run.step, (uint64_t)from->draw);
        for (int32_t i = 0; i < out[g].n; i++) {
            const agents_row *row = (const agents_row *)(const void *)from->row;
            p->episodes[p->n++] =
                (played){ .prompt = g,
                          .item = i,
                          .row = row,
                          .start = { agents_seed(row, from->draw), row->first_id + i },
                          .samples = ares_rng_sub(of_draw, (uint64_t)job->attempt, 0),
                          .equal = ares_map_new(),
                          .kept = ares_serve_session_new(),
                          .replayable = true };
        }
    }
    p->left = p->n;
}

/* Gives episodes that have not begun to processes with a free place, in order. */
static void give(players *p, int64_t *next)
{
    for (int64_t k = 0; k < p->n_pools; k++) {
        pool *of = &p->pools[k];
        for (int64_t i = 0; i < of->n; i++) {
            player *q = &of->items[i];
            while (q->n_seats < q->program->per_process) {
                int64_t *e = &next[k];
                while (*e < p->n && p->episodes[*e].row->definition != of->definition) (*e)++;
                if (*e == p->n) break;
                begin(p, &p->episodes[(*e)++], q);
            }
        }
    }
}

/* Fails episodes whose own time was over at `now`; all that had come until then is known. */
static void fail_late(players *p, double now)
{
    for (int64_t e = 0; e < p->n; e++) {
        played *x = &p->episodes[e];
        if (!x->at || x->open || x->own_s + (now - x->since) <= x->limit_s) continue;
        char why[160];
        snprintf(why, sizeof why, "the program used more than %g s of its own before its line",
                 x->limit_s);
        fail_process(p, x->at, true, why);
    }
}

/* Waits until a program or a client has something, an episode is late, or a signal may have come.
 */
static void wait_for_any(players *p)
{
    int64_t n = 0, most = 1;
    double now = ares_now_s(), left = look_s;
    for (int64_t k = 0; k < p->n_pools; k++) most += 3 * p->pools[k].n;
    if (most > p->fds_cap) {
        p->fds_cap = most;
        p->fds = ares_realloc(p->fds, (size_t)most * sizeof *p->fds);
    }
    p->fds[n++] = (struct pollfd){ .fd = ares_server_event(p->server), .events = POLLIN };
    for (int64_t k = 0; k < p->n_pools; k++)
        for (int64_t i = 0; i < p->pools[k].n; i++) {
            const player *q = &p->pools[k].items[i];
            if (!q->child.pid) continue;
            p->fds[n++] = (struct pollfd){ .fd = q->child.from, .events = POLLIN };
            p->fds[n++] = (struct pollfd){ .fd = q->child.err, .events = POLLIN };
            if (q->out.len) p->fds[n++] = (struct pollfd){ .fd = q->child.to, .events = POLLOUT };
        }
    for (int64_t e = 0; e < p->n; e++) {
        const played *x = &p->episodes[e];
        if (x->at && !x->open) left = fmin(left, x->limit_s - x->own_s - (now - x->since));
    }
    poll(p->fds, (nfds_t)n, (int)(fmax(left, 0) * 1000) + 1);
}

static int play(players *p)
{
    int64_t *next = ares_arena_calloc(p->arena, (size_t)p->n_pools + 1, sizeof *next);
    while (p->left > 0) {
        bool worked;
        ARES_TRY(ares_signal_poll());
        give(p, next);
        double now = ares_now_s();
        ARES_TRY(ares_server_pump(p->server, 0, &worked));
        for (int64_t k = 0; k < p->n_pools; k++)
            for (int64_t i = 0; i < p->pools[k].n; i++) listen_to(p, &p->pools[k].items[i]);
        fail_late(p, now);
        if (!worked && p->left > 0) wait_for_any(p);
    }
    return ares_signal_poll();
}

int players_answer(players *p, const answer_job *job, ares_arena *arena, ares_group *out)
{
    ares_trainer *t = p->t;
    agents *a = t->agents;
    const ares_train_config *c = t->run.cfg;
    int32_t *stops =
        ares_arena_calloc(arena, (size_t)c->rollout.stop_token_ids.count + 1, sizeof *stops);
    for (int64_t i = 0; i < c->rollout.stop_token_ids.count; i++)
        stops[i] = (int32_t)c->rollout.stop_token_ids.items[i];
    p->arena = arena;
    p->n = 0;
    p->sampling = *job->sampling;
    p->sampling.n_stop_ids = (int32_t)c->rollout.stop_token_ids.count;
    p->sampling.stop_ids = stops;
    p->play = (ares_serve_play){ .ctx = p,
                                 .sampling = &p->sampling,
                                 .adapter = trainer_adapter(t),
                                 .weight_version = t->actor.learner.optim.updates,
                                 .episode = episode_of,
                                 .begun = request_begun,
                                 .ended = request_ended,
                                 .record = take_record,
                                 .equal = equal_before };
    for (int64_t g = 0; g < job->n_prompts; g++) {
        const answer_prompt *from = &job->prompts[g];
        out[g] = (ares_group){ .draw = from->draw,
                               .local = from->local,
                               .source_step = from->source_step,
                               .source_weight = from->source_weight,
                               .step = t->run.step,
                               .attempt = job->attempt,
                               .row = from->row,
                               .n = job->n };
        out[g].items = ares_arena_calloc(arena, (size_t)job->n + 1, sizeof *out[g].items);
    }
    open_episodes(p, job, out);
    int rc = ares_server_play(p->server, &p->play);
    if (rc == ARES_OK) rc = play(p);
    for (int64_t e = 0; e < p->n; e++) /* after a failure, or a signal */
        if (p->episodes[e].at) fail(p, &p->episodes[e], false, "the run ended");
    if (rc == ARES_OK || rc == ARES_EINTERRUPTED) {
        int ended = ares_server_play(p->server, NULL);
        if (rc == ARES_OK) rc = ended;
    }
    /* in this order, whichever episode ended first, so that sums are equal bit for bit */
    for (int64_t e = 0, told = 0; e < p->n && rc == ARES_OK; e++) {
        played *x = &p->episodes[e];
        rc = end_episode(p, x, &out[x->prompt].items[x->item]);
        if (job->baseline) continue;
        count(x, answer_discards_failures(t), &a->measures);
        if (x->failed) agents_tell_failure(t, x->row->definition->tag, x->why, &told);
    }
    for (int64_t e = 0; e < p->n; e++) {
        played *x = &p->episodes[e];
        ares_map_free(x->equal);
        ares_serve_session_free(x->kept);
        ares_str_fini(&x->chatter);
    }
    p->n = p->left = 0;
    p->episodes = NULL;
    return rc;
}
