/*
 * Children are killed when late. Lines are answered in order, so whatever goes wrong is blamed on
 * the first unanswered line: it fails, the process is started again, and the other lines are sent
 * again. After GIVE_UP such failures in a row the rest of the queue fails too; otherwise a program
 * that hangs on every line would take its time-out for each of a step's responses.
 */
#include "child_queue.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "ares/core_child.h"
#include "ares/dist.h"

enum { LONGEST_ANSWER = 1 << 16, GIVE_UP = 16 };
static const double look_s = 0.5; /* for a signal that ends the work */

typedef struct call {
    char *line;
    size_t len;
    reward_call *result;
} call;

struct reward_child {
    reward_child_options o;
    char *name;
    char **argv;
    ares_child process;
    call *calls;
    int64_t n, head, cap; /* [head, n) have no answer yet */
    int64_t sent;         /* lines written whole, and sent_bytes of the next one */
    size_t sent_bytes;
    ares_str answer;
    double since; /* when the head became the next in line */
    int in_a_row; /* failures since the last answer */
};

reward_child *reward_child_new(const reward_child_options *o)
{
    reward_child *c = ares_calloc(1, sizeof *c);
    int n = 0;
    while (o->argv[n]) n++;
    c->o = *o;
    c->name = ares_strdup(o->name);
    c->argv = ares_calloc((size_t)n + 1, sizeof *c->argv);
    for (int i = 0; i < n; i++) c->argv[i] = ares_strdup(o->argv[i]);
    c->process = ARES_CHILD_NONE;
    return c;
}

static void stop(reward_child *c)
{
    ares_child_stop(&c->process);
    c->sent = c->head;
    c->sent_bytes = 0;
    ares_str_clear(&c->answer);
}

void reward_child_free(reward_child *c)
{
    if (!c) return;
    stop(c);
    for (int64_t i = c->head; i < c->n; i++) ares_free(c->calls[i].line);
    for (char **a = c->argv; *a; a++) ares_free(*a);
    ares_free(c->argv);
    ares_free(c->name);
    ares_free(c->calls);
    ares_str_fini(&c->answer);
    ares_free(c);
}

static int start(reward_child *c)
{
    ARES_TRY(ares_child_start(&c->process, c->argv, c->o.memory_bytes));
    c->since = ares_now_s();
    return ARES_OK;
}

/* Ends the call at the head, with its answer or with why there is none. */
static void finish_call(reward_child *c, double score, double accuracy, const char *why)
{
    call *k = &c->calls[c->head++];
    *k->result = (reward_call){ .score = score, .accuracy = accuracy, .failed = why != NULL };
    if (why) snprintf(k->result->why, sizeof k->result->why, "%s", why);
    c->in_a_row = why ? c->in_a_row + 1 : 0;
    ares_free(k->line);
    k->line = NULL;
    c->since = ares_now_s();
    if (c->head == c->n) c->head = c->n = c->sent = 0;
}

static void fail_head(reward_child *c, const char *why)
{
    if (c->head < c->n) finish_call(c, 0, 0, why);
    stop(c);
}

/*
 * Writes until the pipe is full. A child that closed its input shows in its answers: they end, or
 * come too late.
 */
static void send_some(reward_child *c)
{
    while (c->process.pid && c->sent < c->n) {
        call *k = &c->calls[c->sent];
        c->sent_bytes +=
            ares_child_send(&c->process, k->line + c->sent_bytes, k->len - c->sent_bytes);
        if (c->sent_bytes < k->len) return;
        c->sent++;
        c->sent_bytes = 0;
    }
}

/* No call is open: a process that ended, or that wrote more, would answer the next line wrongly. */
static void end_if_out_of_step(reward_child *c)
{
    int64_t n;
    while ((n = ares_child_receive(&c->process, &c->answer)) > 0)
        if (ares_view_trim(ares_str_view(&c->answer)).len) break;
    if (n > 0)
        ares_warn("reward: %s: wrote more answers than lines were sent; started again", c->name);
    if (n != 0) stop(c);
}

void reward_child_send(reward_child *c, ares_view line, reward_call *result)
{
    if (c->process.pid && c->head == c->n) end_if_out_of_step(c);
    if (c->n == c->cap) {
        c->cap = c->cap * 2 + 64;
        c->calls = ares_realloc(c->calls, (size_t)c->cap * sizeof *c->calls);
    }
    char *copy = ares_malloc(line.len + 1);
    memcpy(copy, line.data, line.len);
    copy[line.len] = '\n';
    if (c->head == c->n) c->since = ares_now_s();
    c->calls[c->n++] = (call){ copy, line.len + 1, result };
    if (!c->process.pid && start(c) != ARES_OK)
        return; /* reward_child_wait tries again and reports it */
    send_some(c);
}

/*
 * `0.5`, or {"score": 0.5, "accuracy": 1}. Anything else fails the call and ends the child, whose
 * answers no longer match the lines.
 */
static bool take_answer(reward_child *c, ares_view line)
{
    ares_arena arena = { 0 };
    const ares_json *v;
    double score = 0, accuracy = 0;
    bool good = ares_json_parse(&arena, line, c->name, &v) == ARES_OK, judged = false;
    if (good && v->type == ARES_JSON_OBJECT) {
        const ares_json *a = ares_json_get(v, "accuracy");
        judged = a && (a->type == ARES_JSON_INT || a->type == ARES_JSON_FLOAT);
        if (judged) accuracy = a->number;
        judged = judged && __builtin_isfinite(accuracy);
        v = ares_json_get(v, "score");
    }
    good = good && v && (v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT);
    if (good) score = v->number;
    /* a line that was not sent whole cannot have been read */
    good = good && __builtin_isfinite((float)score) && c->head < c->sent;
    ares_arena_fini(&arena);
    ares_error_clear();
    if (good) finish_call(c, score, judged ? accuracy : __builtin_nan(""), NULL);
    else {
        char why[160];
        if (c->head >= c->sent)
            snprintf(why, sizeof why, "wrote more answers than lines were sent");
        else
            snprintf(why, sizeof why, "answered '%.*s'; expected a number or {\"score\": number}",
                     (int)ARES_MIN(line.len, 60), line.data);
        fail_head(c, why);
    }
    return good;
}

static void receive(reward_child *c)
{
    int64_t n = ares_child_receive(&c->process, &c->answer);
    if (n < 0) {
        char why[160];
        ares_child_describe_end(&c->process, why, sizeof why);
        fail_head(c, why);
    }
    if (n <= 0) return;
    size_t at = 0;
    while (c->process.pid && c->head < c->n) {
        int64_t end = ares_view_find(ares_str_view(&c->answer), ARES_VIEW("\n"), at);
        if (end < 0) break;
        ares_view line = ares_view_trim((ares_view){ c->answer.data + at, (size_t)end - at });
        at = (size_t)end + 1;
        if (line.len && !take_answer(c, line)) return;
    }
    size_t rest = c->answer.len - at;
    if (c->head < c->n && rest > LONGEST_ANSWER) {
        fail_head(c, "floods its output");
        return;
    }
    if (c->head == c->n && ares_view_trim((ares_view){ c->answer.data + at, rest }).len) {
        ares_warn("reward: %s: wrote more answers than lines were sent; started again", c->name);
        stop(c);
        return;
    }
    memmove(c->answer.data, c->answer.data + at, rest);
    c->answer.len = rest;
}

void reward_child_wait(reward_child *c, bool *timed_out)
{
    c->since = ares_now_s();
    while (c->head < c->n) {
        if (ares_signal_poll() != ARES_OK) {
            fail_head(c, ares_error_message());
            continue;
        }
        if (c->in_a_row >= GIVE_UP) {
            char why[160];
            snprintf(why, sizeof why, "not asked: the %d before it failed", GIVE_UP);
            finish_call(c, 0, 0, why);
            continue;
        }
        if (!c->process.pid && start(c) != ARES_OK) {
            char why[160];
            snprintf(why, sizeof why, "cannot be started: %.120s", ares_error_message());
            finish_call(c, 0, 0, why);
            continue;
        }
        send_some(c);
        double left = c->since + c->o.timeout_s - ares_now_s();
        if (left <= 0) {
            char why[160];
            snprintf(why, sizeof why, "gave no answer within %g s", c->o.timeout_s);
            fail_head(c, why);
            *timed_out = true;
            continue;
        }
        struct pollfd fds[2] = { { .fd = c->process.from, .events = POLLIN },
                                 { .fd = c->sent < c->n ? c->process.to : -1, .events = POLLOUT } };
        poll(fds, 2, (int)(ARES_MIN(left, look_s) * 1000) + 1);
        if (fds[0].revents) receive(c);
    }
    c->in_a_row = 0; /* the next step tries again */
}
