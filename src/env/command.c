/*
 * Environments in a program of the user's own. In order: processes that answer lines; what
 * environments in other programs share (openenv.c too); the type `command`.
 */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ares/core.h"
#include "ares/dist.h"

/*
 * No thread beside the callers' is needed: a caller that waits for an answer, and finds that no
 * other one reads the process's output, reads it for all until its own answer is there. Then the
 * next caller that waits takes over. Only this reader touches the pipes while somebody waits.
 *
 * A process is late when it has said nothing for timeout_s although somebody waits, or when an
 * answer has taken timeout_s for each of the questions that were open when it was asked: a program
 * that answers one by one has that time for each.
 */

static const double look_s = 0.5; /* for a signal that ends the work */

typedef struct process process;

struct seat {
    process *at;
    int64_t id;
    int64_t life; /* the process's life in which the episode began */
    bool waiting;
    double asked;  /* time of the question */
    int64_t ahead; /* questions that were open then, this one included */
    ares_str line;
    reply *reply;
    pthread_cond_t told; /* it is answered, or it must read for the others now */
};

struct process {
    processes *all;
    pthread_mutex_t lock;
    ares_child child;
    int64_t life;          /* how often it was started */
    bool answered;         /* at least once in this life */
    bool led;              /* a caller reads */
    int wake;              /* eventfd: there is more to write; -1: one seat, nothing to tell */
    ares_str out, in;      /* not yet written; not yet a whole line */
    double heard;          /* when it last answered, or when somebody began to wait */
    seat **seats;          /* [all->o.seats] NULL: free */
    int64_t n_seats, open; /* taken; questions without an answer */
    char why[400];         /* how its last life ended */
    bool by_clock, quit;   /* its last life ended because it was late; because it exited */
    int64_t unasked;       /* lines that nobody asked for, since a reply told of them */
};

/* What all processes of an environment's definition are run with. */
typedef struct process_options {
    int64_t seats;          /* environments per process; above 1, lines hold an id */
    double timeout_s;       /* for one answer */
    double start_timeout_s; /* for the first answer of a process */
    int64_t memory_bytes;   /* of address space */
    size_t answer_bytes;    /* a longer line is a flood */
} process_options;

/* The processes of a definition; a new one is started when all places are taken. */
struct processes {
    process_options o;
    char **argv; /* the program and its words, then NULL */
    pthread_mutex_t lock;
    process **items;
    int64_t n, next_id;
};

/* ---------------- opening */
/* Takes a free place. A process starts with its first question. NULL and an error: no place. */
static seat *seat_new(processes *all)
{
    int64_t i = 0;
    pthread_mutex_lock(&all->lock);
    while (i < all->n && all->items[i]->n_seats == all->o.seats) i++;
    if (i == all->n) {
        int wake = all->o.seats > 1 ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
        if (all->o.seats > 1 && wake < 0) { /* no descriptor is left */
            ares_fail(ARES_EIO, "env: command: eventfd: %s", strerror(errno));
            pthread_mutex_unlock(&all->lock);
            return NULL;
        }
        process *another = ares_calloc(1, sizeof *another);
        another->all = all;
        another->child = ARES_CHILD_NONE;
        another->wake = wake;
        another->seats = ares_calloc((size_t)all->o.seats, sizeof(seat *));
        pthread_mutex_init(&another->lock, NULL);
        all->items = ares_realloc(all->items, (size_t)(all->n + 1) * sizeof *all->items);
        all->items[all->n++] = another;
    }
    seat *s = ares_calloc(1, sizeof *s);
    pthread_cond_init(&s->told, NULL);
    process *p = s->at = all->items[i];
    s->id = all->next_id++;
    pthread_mutex_lock(&p->lock);
    for (i = 0; p->seats[i];) i++;
    p->seats[i] = s;
    p->n_seats++;
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&all->lock);
    return s;
}

/* Whether lines hold ids: one process serves several environments. */
static bool has_ids(const process *p)
{
    return p->all->o.seats > 1;
}

/* ---------------- ends of a life */
/* Answers the seat's question with how the process ended. */
static void fail_seat(process *p, seat *s)
{
    s->reply->failed = true;
    s->reply->by_clock = p->by_clock;
    s->reply->replayable = !p->by_clock && !has_ids(p);
    snprintf(s->reply->why, sizeof s->reply->why, "the program %s", p->why);
    if (s->waiting) p->open--;
    s->waiting = false;
}

/* Stops the process and tells whoever waits for it why. */
static void end_life(process *p, bool by_clock, const char *why)
{
    snprintf(p->why, sizeof p->why, "%s", why);
    p->by_clock = by_clock;
    p->quit = false;
    ares_child_stop(&p->child);
    ares_str_clear(&p->out);
    ares_str_clear(&p->in);
    for (int64_t i = 0; i < p->all->o.seats; i++) {
        seat *s = p->seats[i];
        if (!s || !s->waiting) continue;
        fail_seat(p, s);
        pthread_cond_signal(&s->told);
    }
}

/* ---------------- lines */
/* Gives a line to the seat that waits for it; a line that nobody waits for ends the process. */
static void take_line(process *p, ares_view line)
{
    ares_arena arena = { 0 };
    const ares_json *v, *id = NULL;
    seat *s = NULL;
    /* one seat takes any line; of several, the one whose id stands in the line */
    if (has_ids(p) && ares_json_parse(&arena, line, "", &v) == ARES_OK) id = ares_json_get(v, "id");
    for (int64_t i = 0; i < p->all->o.seats; i++) {
        seat *other = p->seats[i];
        if (!other || !other->waiting) continue;
        if (!has_ids(p) || (id && id->type == ARES_JSON_INT && id->integer == other->id)) s = other;
    }
    ares_error_clear();
    ares_arena_fini(&arena);
    if (!s) {
        p->unasked++;
        end_life(p, false,
                 has_ids(p) && p->open ? "answered without the id of a question"
                                       : "wrote more lines than it was asked for");
        return;
    }
    ares_str_clear(&s->line);
    ares_str_add_view(&s->line, line);
    s->reply->line = ares_str_view(&s->line);
    s->waiting = false;
    p->open--;
    p->answered = true;
    p->heard = ares_now_s();
    pthread_cond_signal(&s->told);
}

/* Gives the whole lines of what was read to their seats; blank lines are skipped. */
static void take_lines(process *p)
{
    size_t at = 0, most = p->all->o.answer_bytes;
    int64_t end;
    bool flood = false;
    while (p->child.pid &&
           (end = ares_view_find(ares_str_view(&p->in), ARES_VIEW("\n"), at)) >= 0) {
        ares_view line = ares_view_trim((ares_view){ p->in.data + at, (size_t)end - at });
        at = (size_t)end + 1;
        flood = flood || line.len > most;
        if (line.len && !flood) take_line(p, line);
    }
    if (!p->child.pid) return;
    memmove(p->in.data, p->in.data + at, p->in.len - at);
    p->in.len -= at;
    if (flood || p->in.len > most) end_life(p, false, "floods its output");
}

/* Reads once what the process wrote; false: nothing was there, or the process has quit. */
static bool receive(process *p)
{
    char why[400];
    ares_child_listen(&p->child);
    int64_t n = ares_child_receive(&p->child, &p->in);
    if (n > 0) take_lines(p);
    if (n >= 0) return n > 0;
    ares_child_describe_end(&p->child, why, sizeof why);
    end_life(p, false, why);
    p->quit = true;
    return false;
}

/* ---------------- waiting */
/* The reader writes what is open and waits once for more; the lock is free during the wait. */
static void serve_once(process *p)
{
    const process_options *o = &p->all->o;
    size_t sent = ares_child_send(&p->child, p->out.data, p->out.len);
    if (sent) {
        memmove(p->out.data, p->out.data + sent, p->out.len - sent);
        p->out.len -= sent;
    }
    /* seconds until the process is late */
    double one = p->answered ? o->timeout_s : o->start_timeout_s, now = ares_now_s();
    double left = p->heard + one - now;
    for (int64_t i = 0; i < o->seats; i++) {
        const seat *s = p->seats[i];
        if (s && s->waiting) left = ARES_MIN(left, s->asked + one * (double)s->ahead - now);
    }
    if (left <= 0) {
        char why[160];
        snprintf(why, sizeof why, "gave no answer within %g s", one);
        end_life(p, true, why);
        return;
    }
    struct pollfd fds[] = { { .fd = p->child.from, .events = POLLIN },
                            { .fd = p->wake, .events = POLLIN },
                            { .fd = p->out.len ? p->child.to : -1, .events = POLLOUT },
                            { .fd = p->child.err, .events = POLLIN } };
    pthread_mutex_unlock(&p->lock);
    poll(fds, ARES_COUNT(fds), (int)(ARES_MIN(left, look_s) * 1000) + 1);
    pthread_mutex_lock(&p->lock);
    if (ares_signal_poll() != ARES_OK) {
        end_life(p, true, ares_error_message());
        return;
    }
    eventfd_t woken;
    if (fds[1].revents) eventfd_read(p->wake, &woken);
    if (fds[3].revents) ares_child_listen(&p->child);
    if (fds[0].revents) receive(p);
}

/* ---------------- asking */
/* Starts the process: a new life. false: p->why says why not. */
static bool start(process *p)
{
    if (ares_child_start(&p->child, p->all->argv, p->all->o.memory_bytes) == ARES_OK) {
        p->life++;
        p->answered = false;
        return true;
    }
    snprintf(p->why, sizeof p->why, "cannot be started: %.120s", ares_error_message());
    p->by_clock = p->quit = false;
    ares_error_clear();
    return false;
}

/* Whether the process can be asked; where an episode begins, one that does not run is started. */
static bool prepare(process *p, seat *s, bool begins)
{
    /*
     * What came while nobody waited: the program may have ended between episodes, and a line that
     * nobody asked for would be taken for the next answer.
     */
    bool idle = !p->led && !p->open;
    int reads = 64; /* blank lines may have no end */
    while (idle && p->child.pid && reads-- && receive(p)) {}
    if (!begins) return p->child.pid && s->life == p->life;
    if (!p->child.pid && !start(p)) return false;
    s->life = p->life;
    return true;
}

/*
 * Asks one question, a line without its newline, and waits for the answer. begins: the question
 * begins an episode, and starts the process where none runs. Any other question fails when the
 * process has been started again since the episode began.
 */
static void seat_ask(seat *s, ares_view question, bool begins, reply *r)
{
    process *p = s->at;
    int64_t unasked = 0;
    s->reply = r;
    pthread_mutex_lock(&p->lock);
    for (bool again = true; again;) {
        int64_t life = p->life;
        *r = (reply){ 0 };
        if (prepare(p, s, begins)) {
            /* sends the question and waits; reads for all callers where no other one does */
            ares_str_add_view(&p->out, question);
            ares_str_add_char(&p->out, '\n');
            s->asked = ares_now_s();
            if (!p->open) p->heard = s->asked;
            s->ahead = ++p->open;
            s->waiting = true;
            if (p->led) eventfd_write(p->wake, 1);
            while (s->waiting) {
                if (p->led) {
                    pthread_cond_wait(&s->told, &p->lock);
                    continue;
                }
                p->led = true; /* this caller reads for all until its own answer is there */
                while (s->waiting) serve_once(p);
                p->led = false;
                int64_t next = 0; /* another one that waits takes over */
                while (next < p->all->o.seats && !(p->seats[next] && p->seats[next]->waiting))
                    next++;
                if (next < p->all->o.seats) pthread_cond_signal(&p->seats[next]->told);
            }
        } else fail_seat(p, s);
        unasked += p->unasked;
        p->unasked = 0;
        /* a program that exits after each episode may not have done so yet: ask the next one */
        again = r->failed && begins && p->quit && s->life == life;
    }
    r->unasked = unasked;
    if (unasked) r->replayable = false; /* how soon such lines are read depends on the clock */
    pthread_mutex_unlock(&p->lock);
}

/* After an answer that makes no sense: ends the process, unless other seats share it. */
static void seat_give_up(seat *s)
{
    process *p = s->at;
    pthread_mutex_lock(&p->lock);
    if (!has_ids(p)) ares_child_stop(&p->child);
    pthread_mutex_unlock(&p->lock);
}

/* What environments in users' programs and on servers have in common. */

/* The actions of the episode before; their names are copies. */
static void forget_actions(foreign *f)
{
    for (int i = 0; i < f->n_actions; i++) ares_free((char *)f->actions[i]);
    ares_free(f->actions);
    f->actions = NULL;
    f->n_actions = 0;
}

void foreign_fini(foreign *f)
{
    forget_actions(f);
    for (int i = 0; i < f->n_names; i++) ares_free(f->names[i]);
    ares_str_fini(&f->state);
    *f = (foreign){ 0 };
}

/* A new episode: nothing has failed, and the actions are not known yet. */
void foreign_begin(foreign *f)
{
    forget_actions(f);
    ares_str_clear(&f->state);
    f->failed = f->over = false;
    f->replayable = true;
    f->unasked = 0;
}

void foreign_fail(foreign *f, bool by_clock, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->why, sizeof f->why, format, args);
    va_end(args);
    f->failed = true;
    if (by_clock) f->replayable = false;
}

void foreign_render(const void *env, ares_str *out)
{
    ares_str_add_view(out, ares_str_view(&((const foreign *)env)->state));
}

bool foreign_over(const void *env)
{
    return ((const foreign *)env)->over;
}

const char *foreign_failure(const void *env, bool *replayable, int64_t *unasked)
{
    const foreign *f = env;
    *replayable = f->replayable;
    *unasked = f->unasked;
    return f->failed ? f->why : NULL;
}

/* ---------------- what an answer holds */
/* Reads the episode's actions, ["left", "right"]; false: it is no list of texts. */
static bool foreign_read_actions(foreign *f, const ares_json *list)
{
    if (list->type != ARES_JSON_ARRAY || !list->count) return false;
    for (int64_t i = 0; i < list->count; i++)
        if (list->items[i].type != ARES_JSON_STRING || !list->items[i].text.len) return false;
    forget_actions(f);
    f->actions = ares_calloc((size_t)list->count, sizeof *f->actions);
    for (int64_t i = 0; i < list->count; i++) f->actions[i] = ares_strdup(list->items[i].text.data);
    f->n_actions = (int)list->count;
    return true;
}

bool foreign_tell(foreign *f, const ares_json *object, ares_env_outcome *out)
{
    for (int64_t i = 0; i < object->count; i++) {
        const ares_json *v = object->members[i].value;
        bool yes_or_no = v->type == ARES_JSON_BOOL,
             success = ares_view_is(object->members[i].key, "success");
        if (!yes_or_no && v->type != ARES_JSON_INT && v->type != ARES_JSON_FLOAT) {
            if (success && v->type != ARES_JSON_NULL) return false;
            continue;
        }
        double value = yes_or_no ? v->boolean : v->number;
        if (!__builtin_isfinite(value)) continue; /* an integer of 400 digits reads as infinity */
        if (success) out->success = value != 0;
        ares_view name = object->members[i].key;
        bool fit = name.len > 0 && name.len < FOREIGN_NAME_BYTES; /* to be a metric's name */
        for (size_t k = 0; k < name.len && fit; k++)
            fit = name.data[k] > ' ' && name.data[k] < 0x7f;
        int at = 0;
        while (at < f->n_names && !ares_view_is(name, f->names[at])) at++;
        if (at == f->n_names && fit && at < FOREIGN_NAMES) {
            /* an outcome keeps the pointer, so the copy lives as long as the environment */
            f->names[at] = ares_calloc(name.len + 1, 1);
            memcpy(f->names[at], name.data, name.len);
            f->n_names++;
        }
        if (at < f->n_names) env_tell_again(out, f->names[at], value);
        else out->dropped++;
    }
    return true;
}

/* The largest reward allowed, so that the sums over an episode stay finite in training's f32. */
#define FOREIGN_REWARD 1e30

bool foreign_read_reward(const ares_json *value, ares_env_reward *out)
{
    if (!value || (value->type != ARES_JSON_INT && value->type != ARES_JSON_FLOAT)) return false;
    *out = (ares_env_reward){ value->number, value->type == ARES_JSON_INT };
    return fabs(value->number) <= FOREIGN_REWARD; /* NaN is not */
}

/* ---------------- messages */
/* At most 140 bytes, in ASCII: what a program wrote goes into messages. */
const char *foreign_quote(ares_view text, char out[160])
{
    size_t n = ARES_MIN(text.len, (size_t)140);
    for (size_t i = 0; i < n; i++)
        out[i] = text.data[i] >= ' ' && text.data[i] < 0x7f ? text.data[i] : '?';
    strcpy(out + n, text.len > n ? "..." : "");
    return out;
}

/*
 * `command`: an environment in a program of the user's own, in any language
 * (docs/environments.md#a-program-of-your-own).
 *
 *     {"reset":{"seed":7}}          {"observation":"..","actions":["left","right"]}
 *     {"step":{"action":"left"}}    {"observation":"..","reward":0,"done":false,"info":{}}
 */

#define COMMAND_OPTIONS(X)                                                                         \
    X(texts, command, "command", "???", "nonempty#1+",                                             \
      "the program and its words; it reads JSON lines from stdin and answers on stdout")           \
    X(i64, seats, "environments_per_process", "1", "[1,4096]",                                     \
      "environments that one process serves at once; above 1, each line holds an id, and answers " \
      "may come in any order")                                                                     \
    X(f64, timeout_s, "timeout_s", "10", "(0,1e6]",                                                \
      "seconds for one answer; a process that is late is killed, and its episodes have failed")    \
    X(f64, start_timeout_s, "start_timeout_s", "60", "(0,1e6]",                                    \
      "seconds for the first answer of a process, its start included")                             \
    X(i64, memory_mb, "memory_mb", "4096", "[16,1000000000]", "MiB of address space of a process") \
    X(flag, number, "send_number", "false", "",                                                    \
      "a reset also tells the environment's number within its step, which the members of a group " \
      "do not share")
ARES_OPTION_STRUCT(command_options, COMMAND_OPTIONS);
static ARES_OPTION_TABLE(command_table, command_options, COMMAND_OPTIONS);

typedef struct command {
    foreign f;
    const command_options *o;
    seat *seat;
    ares_str line;
    ares_arena arena; /* of one answer */
} command;

/* ---------------- opening */
void foreign_check_program(const char *program, ares_config *cfg, const char *path)
{
    const char *folders = getenv("PATH"), *end;
    char where[300];
    ares_str file = { 0 };
    /* looked for as execvp does: in the folders of PATH, too */
    bool found = strchr(program, '/') ? access(program, X_OK) == 0 : false;
    for (; folders && *folders && !found; folders = *end ? end + 1 : end) {
        end = strchrnul(folders, ':');
        ares_str_clear(&file);
        ares_str_addf(&file, "%.*s/%s", (int)(end - folders), folders, program);
        found = access(file.data, X_OK) == 0;
    }
    ares_str_fini(&file);
    if (found) return;
    snprintf(where, sizeof where, "%s.command", path);
    ares_config_fault(cfg, where, "there is no program '%s' that can be run", program);
}

static void check(const void *options, ares_config *cfg, const char *path)
{
    foreign_check_program(((const command_options *)options)->command.items[0], cfg, path);
}

static int load(const void *options, void **shared)
{
    const command_options *o = options;
    processes *all = *shared = ares_calloc(1, sizeof *all);
    all->o = (process_options){ .seats = o->seats,
                                .timeout_s = o->timeout_s,
                                .start_timeout_s = o->start_timeout_s,
                                .memory_bytes = o->memory_mb << 20,
                                .answer_bytes = FOREIGN_ANSWER_BYTES };
    all->argv = ares_calloc((size_t)o->command.count + 1, sizeof *all->argv);
    for (int64_t i = 0; i < o->command.count; i++) all->argv[i] = ares_strdup(o->command.items[i]);
    pthread_mutex_init(&all->lock, NULL);
    return ARES_OK;
}

static void unload(void *shared)
{
    processes *all = shared; /* all seats have been closed */
    if (!all) return;
    for (int64_t i = 0; i < all->n; i++) {
        process *p = all->items[i];
        ares_child_stop(&p->child);
        if (p->wake >= 0) close(p->wake);
        ares_str_fini(&p->out);
        ares_str_fini(&p->in);
        ares_free(p->seats);
        pthread_mutex_destroy(&p->lock);
        ares_free(p);
    }
    for (char **a = all->argv; *a; a++) ares_free(*a);
    ares_free(all->argv);
    ares_free(all->items);
    pthread_mutex_destroy(&all->lock);
    ares_free(all);
}

static int open_command(const void *options, const void *shared, void **env)
{
    seat *s = seat_new((processes *)shared); /* it has a lock of its own */
    if (!s) return ARES_EIO;
    command *c = *env = ares_calloc(1, sizeof *c);
    c->o = options;
    c->seat = s;
    return ARES_OK;
}

/* Files that n environments keep open. */
static int64_t descriptors(const void *options, int64_t n)
{
    int64_t seats = ((const command_options *)options)->seats; /* to a process */
    return (n + seats - 1) / seats * (seats > 1 ? 4 : 3); /* three pipes, and what wakes a reader */
}

static void close_command(void *env)
{
    command *c = env;
    seat *s = c->seat;
    process *p = s->at;
    pthread_mutex_lock(&p->all->lock);
    pthread_mutex_lock(&p->lock);
    for (int64_t i = 0; i < p->all->o.seats; i++)
        if (p->seats[i] == s) p->seats[i] = NULL;
    if (--p->n_seats == 0) ares_child_stop(&p->child);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&p->all->lock);
    pthread_cond_destroy(&s->told);
    ares_str_fini(&s->line);
    ares_free(s);
    foreign_fini(&c->f);
    ares_str_fini(&c->line);
    ares_arena_fini(&c->arena);
    ares_free(c);
}

/* ---------------- questions and answers */
/* {"id":3,"reset":{ or {"step":{, whose members the caller adds. */
static void begin_line(command *c, const char *what)
{
    ares_str_clear(&c->line);
    ares_json_begin(&c->line, '{');
    if (has_ids(c->seat->at)) ares_json_write_i64(ares_json_key(&c->line, "id"), c->seat->id);
    ares_json_begin(ares_json_key(&c->line, what), '{');
}

/* An answer that is JSON, but not what was asked for. */
static void fail_with_answer(command *c, ares_view line, const char *expected)
{
    char quote[160];
    foreign_fail(&c->f, false, "the program answered '%s'; expected %s", foreign_quote(line, quote),
                 expected);
    seat_give_up(c->seat);
}

/* The answer as an object; NULL: the episode has failed. */
static const ares_json *ask(command *c, bool begins, reply *r)
{
    const ares_json *v;
    char quote[160];
    ares_json_end(&c->line, '}');
    ares_json_end(&c->line, '}');
    seat_ask(c->seat, ares_str_view(&c->line), begins, r);
    c->f.unasked += r->unasked;
    if (r->unasked) c->f.replayable = false;
    if (r->failed) {
        foreign_fail(&c->f, r->by_clock, "%s", r->why);
        c->f.replayable = c->f.replayable && r->replayable;
        return NULL;
    }
    ares_arena_reset(&c->arena);
    if (ares_json_parse(&c->arena, r->line, "answer", &v) != ARES_OK) {
        ares_error_clear();
        /* Python's json writes these numbers, which JSON does not know */
        bool not_finite = ares_view_find(r->line, ARES_VIEW("NaN"), 0) >= 0 ||
                          ares_view_find(r->line, ARES_VIEW("Infinity"), 0) >= 0;
        fail_with_answer(c, r->line,
                         not_finite ? "JSON, which has no NaN and no Infinity" : "a line of JSON");
        return NULL;
    }
    const ares_json *said = ares_json_get(v, "error");
    if (said && said->type == ARES_JSON_STRING) {
        foreign_fail(&c->f, false, "the program says: %s", foreign_quote(said->text, quote));
        seat_give_up(c->seat);
        return NULL;
    }
    return v;
}

/* The state is the observation as it is; false: there is none. */
static bool read_state(command *c, const ares_json *v)
{
    const ares_json *text = ares_json_get(v, "observation");
    if (!text || text->type != ARES_JSON_STRING) return false;
    ares_str_clear(&c->f.state);
    ares_str_add_view(&c->f.state, text->text);
    return true;
}

static int reset(void *env, const ares_env_start *start)
{
    command *c = env;
    char seed[24];
    reply r;
    foreign_begin(&c->f);
    begin_line(c, "reset");
    int n = snprintf(seed, sizeof seed, "%llu", (unsigned long long)start->seed);
    ares_json_splice(ares_json_key(&c->line, "seed"), (ares_view){ seed, (size_t)n });
    if (c->o->number) ares_json_write_i64(ares_json_key(&c->line, "number"), start->id);
    const ares_json *v = ask(c, true, &r), *actions = ares_json_get(v, "actions");
    if (!v) return ARES_OK;
    if (!read_state(c, v) ||
        (actions && actions->type != ARES_JSON_NULL && !foreign_read_actions(&c->f, actions)))
        fail_with_answer(c, r.line, "{\"observation\": text, \"actions\": [text, ..]}");
    const ares_json *done = ares_json_get(v, "done");
    c->f.over = done && done->type == ARES_JSON_BOOL && done->boolean;
    return ARES_OK;
}

static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    command *c = env;
    reply r;
    begin_line(c, "step");
    ares_json_write_string(ares_json_key(&c->line, "action"), action.text);
    const ares_json *v = ask(c, false, &r);
    if (!v) return ARES_OK;
    const ares_json *done = ares_json_get(v, "done"), *info = ares_json_get(v, "info");
    if (!foreign_read_reward(ares_json_get(v, "reward"), &out->reward) || !done ||
        done->type != ARES_JSON_BOOL ||
        (info && info->type != ARES_JSON_OBJECT && info->type != ARES_JSON_NULL) ||
        !read_state(c, v)) {
        fail_with_answer(c, r.line,
                         "{\"observation\": text, \"reward\": number up to 1e30, "
                         "\"done\": true or false, ..}");
        return ARES_OK;
    }
    out->done = done->boolean;
    out->success = out->done && out->reward.value > 0;
    if (info && !foreign_tell(&c->f, info, out))
        fail_with_answer(c, r.line, "\"success\": true or false in info");
    return ARES_OK;
}

static const char *const *actions_of(const void *env, int *n)
{
    const command *c = env;
    *n = c->f.n_actions;
    return *n ? c->f.actions : NULL;
}

const ares_env_type ares_env_type_command = {
    .name = "command",
    .doc = "a program of the user's own, which answers JSON lines",
    .options = command_table,
    .options_size = sizeof(command_options),
    .check = check,
    .load = load,
    .unload = unload,
    .open = open_command,
    .close = close_command,
    .reset = reset,
    .step = step,
    .render = foreign_render,
    .actions = actions_of,
    .waits = true,
    .starts_program = true,
    .failure = foreign_failure,
    .over = foreign_over,
    .descriptors = descriptors,
};
