/*
 * Whoever asks, and finds that nobody reads the process's output, reads it for all until its own
 * answer is there; then the next one who waits does. So no thread is needed beside the callers'.
 * Only this reader touches the pipes while somebody waits.
 *
 * A process is late when it has said nothing for timeout_s although somebody waits, or when an
 * answer has taken timeout_s for each of the questions that were open when it was asked: a program
 * that answers one by one has that time for each.
 */
#include "process.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ares/core_child.h"
#include "ares/dist.h"

static const double look_s = 0.5; /* for a signal that ends the work */

typedef struct process process;

struct seat {
    process *at;
    int64_t id;
    int64_t life; /* of the process, in which the episode began */
    bool waiting;
    double asked;  /* when */
    int64_t ahead; /* questions open then, this one included */
    ares_str line;
    reply *reply;
    pthread_cond_t told; /* answered, or to read for the others */
};

struct process {
    processes *all;
    pthread_mutex_t lock;
    ares_child child;
    int64_t life;          /* how often it was started */
    bool answered;         /* in this life */
    bool led;              /* a caller reads */
    int wake;              /* eventfd: there is more to write; -1: no other seat could say so */
    ares_str out, in;      /* not yet written; not yet a whole line */
    double heard;          /* when it last answered, or when somebody began to wait */
    seat **seats;          /* [all->o.seats] NULL: free */
    int64_t n_seats, open; /* taken; questions without an answer */
    char why[400];         /* how its last life ended */
    bool by_clock, quit;   /* late; of its own accord */
    int64_t unasked;       /* lines that nobody asked for, since a reply told of them */
};

struct processes {
    process_options o;
    char **argv;
    pthread_mutex_t lock;
    process **items;
    int64_t n, next_id;
};

/* ---------------- opening */
processes *processes_new(const process_options *o)
{
    processes *all = ares_calloc(1, sizeof *all);
    all->o = *o;
    all->argv = ares_calloc((size_t)o->words + 1, sizeof *all->argv);
    for (int64_t i = 0; i < o->words; i++) all->argv[i] = ares_strdup(o->argv[i]);
    pthread_mutex_init(&all->lock, NULL);
    return all;
}

/* NULL, and an error: the system has no descriptor for it. */
static process *process_new(processes *all)
{
    int wake = all->o.seats > 1 ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (all->o.seats > 1 && wake < 0) {
        ares_fail(ARES_EIO, "env: command: eventfd: %s", strerror(errno));
        return NULL;
    }
    process *p = ares_calloc(1, sizeof *p);
    p->all = all;
    p->child = ARES_CHILD_NONE;
    p->wake = wake;
    p->seats = ares_calloc((size_t)all->o.seats, sizeof(seat *));
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

static void process_free(process *p)
{
    ares_child_stop(&p->child);
    if (p->wake >= 0) close(p->wake);
    ares_str_fini(&p->out);
    ares_str_fini(&p->in);
    ares_free(p->seats);
    pthread_mutex_destroy(&p->lock);
    ares_free(p);
}

void processes_free(processes *all)
{
    if (!all) return;
    for (int64_t i = 0; i < all->n; i++) process_free(all->items[i]);
    for (char **a = all->argv; *a; a++) ares_free(*a);
    ares_free(all->argv);
    ares_free(all->items);
    pthread_mutex_destroy(&all->lock);
    ares_free(all);
}

seat *seat_new(processes *all)
{
    int64_t i = 0;
    pthread_mutex_lock(&all->lock);
    while (i < all->n && all->items[i]->n_seats == all->o.seats) i++;
    if (i == all->n) {
        process *another = process_new(all);
        if (!another) {
            pthread_mutex_unlock(&all->lock);
            return NULL;
        }
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

void seat_free(seat *s)
{
    if (!s) return;
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
}

static bool has_ids(const process *p)
{
    return p->all->o.seats > 1;
}

int64_t seat_id(const seat *s)
{
    return has_ids(s->at) ? s->id : -1;
}

int64_t processes_descriptors(int64_t seats, int64_t n)
{
    return (n + seats - 1) / seats * (seats > 1 ? 4 : 3); /* three pipes, and what wakes a reader */
}

/* ---------------- ends of a life */
static void fail_seat(process *p, seat *s)
{
    s->reply->failed = true;
    s->reply->by_clock = p->by_clock;
    s->reply->replayable = !p->by_clock && !has_ids(p);
    snprintf(s->reply->why, sizeof s->reply->why, "the program %s", p->why);
    if (s->waiting) p->open--;
    s->waiting = false;
}

/* The process is stopped, and whoever waits for it is told why. */
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
/* Whose line it is; NULL: nobody's. */
static seat *addressee(process *p, ares_view line)
{
    ares_arena arena = { 0 };
    const ares_json *v, *id = NULL;
    seat *found = NULL;
    if (has_ids(p) && ares_json_parse(&arena, line, "", &v) == ARES_OK) id = ares_json_get(v, "id");
    for (int64_t i = 0; i < p->all->o.seats; i++) {
        seat *s = p->seats[i];
        if (!s || !s->waiting) continue;
        if (!has_ids(p) || (id && id->type == ARES_JSON_INT && id->integer == s->id)) found = s;
    }
    ares_error_clear();
    ares_arena_fini(&arena);
    return found;
}

static void take_line(process *p, ares_view line)
{
    seat *s = addressee(p, line);
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

/* Whole lines of what was read; blank ones mean nothing. */
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

/* false: there is nothing, or the process has quit */
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

static void send_some(process *p)
{
    size_t n = ares_child_send(&p->child, p->out.data, p->out.len);
    if (!n) return;
    memmove(p->out.data, p->out.data + n, p->out.len - n);
    p->out.len -= n;
}

/* ---------------- waiting */
/* Seconds until the process is late; *why says how. */
static double time_left(const process *p, char *why, size_t size)
{
    const process_options *o = &p->all->o;
    double one = p->answered ? o->timeout_s : o->start_timeout_s, now = ares_now_s();
    double left = p->heard + one - now;
    for (int64_t i = 0; i < o->seats; i++) {
        const seat *s = p->seats[i];
        if (s && s->waiting) left = ARES_MIN(left, s->asked + one * (double)s->ahead - now);
    }
    snprintf(why, size, "gave no answer within %g s", one);
    return left;
}

/* One wait of the reader, without the lock. */
static void serve_once(process *p)
{
    char why[160];
    send_some(p);
    double left = time_left(p, why, sizeof why);
    if (left <= 0) {
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

static void lead(process *p, seat *s)
{
    p->led = true;
    while (s->waiting) serve_once(p);
    p->led = false;
    for (int64_t i = 0; i < p->all->o.seats; i++)
        if (p->seats[i] && p->seats[i]->waiting) {
            pthread_cond_signal(&p->seats[i]->told);
            return;
        }
}

/* ---------------- asking */
/*
 * What came when nobody waited. Between episodes a program may end; a line that nobody asked for
 * would be taken for the next answer.
 */
static void look_at_idle(process *p)
{
    int reads = 64; /* blank lines may have no end */
    while (p->child.pid && reads-- && receive(p)) {}
}

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

/* Whether the process is there to be asked. */
static bool prepare(process *p, seat *s, bool begins)
{
    if (!p->led && !p->open) look_at_idle(p);
    if (!begins) return p->child.pid && s->life == p->life;
    if (!p->child.pid && !start(p)) return false;
    s->life = p->life;
    return true;
}

static void wait_for_answer(process *p, seat *s, ares_view question)
{
    ares_str_add_view(&p->out, question);
    ares_str_add_char(&p->out, '\n');
    s->asked = ares_now_s();
    if (!p->open) p->heard = s->asked;
    s->ahead = ++p->open;
    s->waiting = true;
    if (p->led) eventfd_write(p->wake, 1);
    while (s->waiting)
        if (p->led) pthread_cond_wait(&s->told, &p->lock);
        else lead(p, s);
}

void seat_ask(seat *s, ares_view question, bool begins, reply *r)
{
    process *p = s->at;
    int64_t unasked = 0;
    s->reply = r;
    pthread_mutex_lock(&p->lock);
    for (bool again = true; again;) {
        int64_t life = p->life;
        *r = (reply){ 0 };
        if (prepare(p, s, begins)) wait_for_answer(p, s, question);
        else fail_seat(p, s);
        unasked += p->unasked;
        p->unasked = 0;
        /* one that quits after an episode may still be there when the next one is asked for */
        again = r->failed && begins && p->quit && s->life == life;
    }
    r->unasked = unasked;
    /* when such a line is read depends on the time */
    if (unasked) r->replayable = false;
    pthread_mutex_unlock(&p->lock);
}

void seat_give_up(seat *s)
{
    process *p = s->at;
    pthread_mutex_lock(&p->lock);
    if (!has_ids(p)) ares_child_stop(&p->child);
    pthread_mutex_unlock(&p->lock);
}
