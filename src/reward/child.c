/*
 * Rewards in programs of the user's own: first the process that runs a user's C function, then
 * the queues of lines to such processes, last the published reward functions that built-in
 * verifiers replace.
 */
#include "internal.h"

#include <dlfcn.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "ares/core.h"
#include "ares/dist.h"
#include "ares/io.h"
#include "ares/reward.h"

/*
 * `ares-train __reward FILE.so SYMBOL`: the process in which a user's C function runs. What the
 * function prints goes to stderr.
 */

typedef double user_function(const char *response, const char *ground_truth, const char *row_json);

/* A string member as text that ends with NUL; "" where there is none. */
static const char *text_of(ares_arena *arena, const ares_json *line, const char *key)
{
    const ares_json *v = ares_json_get(line, key);
    return v && v->type == ARES_JSON_STRING ? ares_arena_copy(arena, v->text.data, v->text.len)
                                            : "";
}

int ares_reward_child_main(int argc, char **argv)
{
    if (argc != 3)
        return ares_fail(ARES_EUSE, "__reward: started by the trainer, with FILE.so and SYMBOL");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *path = strchr(argv[1], '/') ? ares_strdup(argv[1]) : NULL;
    if (!path) { /* dlopen searches system folders for a bare name */
        ares_str s = { 0 };
        ares_path_join(&s, ".", argv[1]);
        path = ares_str_take(&s);
    }
    const char *why;
    int fd = ares_file_open(path, &why); /* dlopen would wait for a pipe */
    if (fd >= 0) close(fd);
    void *library = why ? NULL : dlopen(path, RTLD_NOW);
    ares_free(path);
    if (why) return ares_fail(ARES_ECHILD, "reward: %s: %s", argv[1], why);
    if (!library) return ares_fail(ARES_ECHILD, "reward: %s", dlerror());
    user_function *function;
    *(void **)&function = dlsym(library, argv[2]);
    if (!function)
        return ares_fail(ARES_ECHILD, "reward: %s has no function '%s'", argv[1], argv[2]);

    FILE *answers = fdopen(dup(1), "w");
    dup2(2, 1);
    ares_jsonl *lines;
    const ares_json *line;
    ares_arena arena = { 0 };
    ares_str row = { 0 };
    int rc;
    ARES_TRY(ares_jsonl_open_input("-", &lines));
    while ((rc = ares_jsonl_next(lines, &line, NULL)) > 0) {
        const ares_json *v = ares_json_get(line, "row");
        ares_arena_reset(&arena);
        ares_str_clear(&row);
        if (v) ares_json_write(&row, v);
        double score =
            function(text_of(&arena, line, "response"), text_of(&arena, line, "ground_truth"),
                     row.data ? row.data : "null");
        if (isfinite(score)) fprintf(answers, "%.17g\n", score);
        else fputs("\"not a finite number\"\n", answers);
        fflush(answers);
    }
    ares_jsonl_close(lines);
    ares_arena_fini(&arena);
    ares_str_fini(&row);
    fclose(answers);
    return rc;
}

/*
 * Processes are killed when late. Lines are answered in order, so whatever goes wrong is blamed on
 * the first unanswered line: it fails, the process is started again, and the other lines are sent
 * again. After GIVE_UP such failures in a row the rest of the queue fails too; otherwise a program
 * that hangs on every line would take its time-out for each of a step's responses.
 *
 * Which process has a line is decided by its place in the queue, never by who is free: a program
 * that remembers what it was asked gives the same answers again.
 */

enum { LONGEST_ANSWER = 1 << 16, GIVE_UP = 16 };
/* the longest wait between two looks for a signal that ends the work */
static const double look_s = 0.5;

/* What was sent about one response, and where the result goes. */
typedef struct question {
    char *text;
    size_t len;
    reward_call *result;
    _Atomic int *left;
} question;

/* A line: one question, or an array of some. */
typedef struct call {
    char *line; /* with its newline, no NUL counted */
    size_t len;
    question *of; /* [n] */
    int64_t n;
} call;

typedef struct worker {
    const struct reward_child *of;
    ares_child process;
    call *calls;
    int64_t n, head, cap; /* [head, n) have no answer yet */
    int64_t sent;         /* lines written whole, and sent_bytes of the next one */
    size_t sent_bytes;
    ares_str answer;
    bool answered; /* since it was started */
    double since;  /* when the head became the next in line */
    int in_a_row;  /* failures since the last answer */
} worker;

struct reward_child {
    reward_child_options o;
    char *name;
    char **argv;
    worker *workers; /* [o.processes] */
    int64_t lines;   /* queued so far */
    question *held;  /* batch: [n_held] questions that are sent when somebody waits */
    int64_t n_held, held_cap;
};

reward_child *reward_child_new(const reward_child_options *o)
{
    reward_child *c = ares_calloc(1, sizeof *c);
    int n = 0;
    while (o->argv[n]) n++;
    c->o = *o;
    c->o.processes = ARES_MAX(o->processes, 1);
    c->name = ares_strdup(o->name);
    c->argv = ares_calloc((size_t)n + 1, sizeof *c->argv);
    for (int i = 0; i < n; i++) c->argv[i] = ares_strdup(o->argv[i]);
    c->workers = ares_calloc((size_t)c->o.processes, sizeof *c->workers);
    for (int64_t i = 0; i < c->o.processes; i++)
        c->workers[i] = (worker){ .of = c, .process = ARES_CHILD_NONE };
    return c;
}

/* Ends the process; lines without an answer are sent again to the next one. */
static void stop(worker *w)
{
    ares_child_stop(&w->process);
    w->sent = w->head;
    w->sent_bytes = 0;
    w->answered = false;
    ares_str_clear(&w->answer);
}

static void free_call(call *k)
{
    for (int64_t i = 0; i < k->n; i++) ares_free(k->of[i].text);
    ares_free(k->of);
    ares_free(k->line);
    *k = (call){ 0 };
}

void reward_child_free(reward_child *c)
{
    if (!c) return;
    for (int64_t i = 0; i < c->o.processes; i++) {
        worker *w = &c->workers[i];
        stop(w);
        for (int64_t k = w->head; k < w->n; k++) free_call(&w->calls[k]);
        ares_free(w->calls);
        ares_str_fini(&w->answer);
    }
    for (int64_t i = 0; i < c->n_held; i++) ares_free(c->held[i].text);
    for (char **a = c->argv; *a; a++) ares_free(*a);
    ares_free(c->held);
    ares_free(c->workers);
    ares_free(c->argv);
    ares_free(c->name);
    ares_free(c);
}

/* Starts the process, whose time begins now. */
static int start(worker *w)
{
    ARES_TRY(ares_child_start(&w->process, w->of->argv, w->of->o.memory_bytes));
    w->since = ares_now_s();
    return ARES_OK;
}

/* ---------------- the queue of a process */
/* Takes the questions [n] over. */
static void push(worker *w, const question *of, int64_t n)
{
    ares_str line = { 0 };
    if (w->n == w->cap) {
        w->cap = w->cap * 2 + 64;
        w->calls = ares_realloc(w->calls, (size_t)w->cap * sizeof *w->calls);
    }
    if (w->of->o.batch) ares_str_add_char(&line, '[');
    for (int64_t i = 0; i < n; i++) {
        if (i) ares_str_add_char(&line, ',');
        ares_str_add(&line, of[i].text, of[i].len);
    }
    ares_str_add_z(&line, w->of->o.batch ? "]\n" : "\n");
    if (w->head == w->n) w->since = ares_now_s();
    call *k = &w->calls[w->n++];
    *k = (call){ .len = line.len, .n = n, .of = ares_malloc((size_t)n * sizeof *of) };
    k->line = ares_str_take(&line);
    memcpy(k->of, of, (size_t)n * sizeof *of);
}

void reward_judged(_Atomic int *left)
{
    if (left && atomic_fetch_sub(left, 1) == 1) ares_work_done(ARES_WORK_JUDGED, 1);
}

/* Ends the call at the head with its results [n]. */
static void finish_call(worker *w, const reward_call *results, bool failed)
{
    call *k = &w->calls[w->head++];
    for (int64_t i = 0; i < k->n; i++) {
        *k->of[i].result = results[i];
        reward_judged(k->of[i].left);
    }
    w->in_a_row = failed ? w->in_a_row + 1 : 0;
    free_call(k);
    w->since = ares_now_s();
    if (w->head == w->n) w->head = w->n = w->sent = 0;
}

/* Ends the call at the head; all its questions fail. */
static void finish_without_answer(worker *w, const char *why)
{
    int64_t n = w->calls[w->head].n;
    reward_call *failed = ares_calloc((size_t)n, sizeof *failed);
    for (int64_t i = 0; i < n; i++) {
        failed[i].failed = true;
        snprintf(failed[i].why, sizeof failed[i].why, "%s", why);
    }
    finish_call(w, failed, true);
    ares_free(failed);
}

/* Fails the line that is next to be answered, and ends the process. */
static void fail_head(worker *w, const char *why)
{
    if (w->head < w->n) finish_without_answer(w, why);
    stop(w);
}

/* The same, but of a line of several questions each is asked again by itself. */
static void blame_head(worker *w, const char *why)
{
    if (w->head == w->n || w->calls[w->head].n == 1) {
        fail_head(w, why);
        return;
    }
    call several = w->calls[w->head];
    for (int64_t i = 0; i < several.n; i++) push(w, &several.of[i], 1);
    several.n = 0; /* the others have its texts now */
    free_call(&several);
    w->head++;
    stop(w);
}

/*
 * Writes until the pipe is full. A process that closed its input shows in its answers: they end, or
 * come too late.
 */
static void send_some(worker *w)
{
    ares_child_listen(&w->process);
    while (w->process.pid && w->sent < w->n) {
        call *k = &w->calls[w->sent];
        w->sent_bytes +=
            ares_child_send(&w->process, k->line + w->sent_bytes, k->len - w->sent_bytes);
        if (w->sent_bytes < k->len) return;
        w->sent++;
        w->sent_bytes = 0;
    }
}

/* Takes the questions [n] over as one line, and sends what can be sent. */
static void queue(worker *w, const question *of, int64_t n)
{
    if (w->process.pid && w->head == w->n) {
        /*
         * No call is open: a process that ended, or that wrote more, would answer the next line
         * wrongly.
         */
        int64_t got;
        while ((got = ares_child_receive(&w->process, &w->answer)) > 0)
            if (ares_view_trim(ares_str_view(&w->answer)).len) break;
        if (got > 0)
            ares_warn("reward: %s: wrote more answers than lines were sent; started again",
                      w->of->name);
        if (got != 0) stop(w);
    }
    push(w, of, n);
    if (!w->process.pid && start(w) != ARES_OK)
        return; /* reward_child_wait tries again and reports it */
    send_some(w);
}

void reward_child_send(reward_child *c, ares_view line, reward_call *result, _Atomic int *left)
{
    question q = { ares_malloc(line.len + 1), line.len, result, left };
    memcpy(q.text, line.data, line.len);
    if (!c->o.batch) {
        queue(&c->workers[c->lines++ % c->o.processes], &q, 1);
        return;
    }
    /* a batch is as large as possible, so it is sent when somebody waits */
    if (c->n_held == c->held_cap) {
        c->held_cap = c->held_cap * 2 + 64;
        c->held = ares_realloc(c->held, (size_t)c->held_cap * sizeof *c->held);
    }
    c->held[c->n_held++] = q;
}

/* ---------------- answers */
/* A number as programs of any language write it: true and false are 1 and 0. */
static bool is_number(const ares_json *v, double *out)
{
    if (!v || (v->type != ARES_JSON_INT && v->type != ARES_JSON_FLOAT && v->type != ARES_JSON_BOOL))
        return false;
    *out = v->type == ARES_JSON_BOOL ? v->boolean : v->number;
    return isfinite((float)*out);
}

/*
 * `0.5`, `true`, {"score": 0.5, "accuracy": true, ..}, {"score": null} of a reward that leaves the
 * response to others, or {"error": why}. Returns what is wrong with it, or NULL.
 */
static const char *read_answer(const ares_json *v, reward_call *out)
{
    static const char expected[] = "expected a number or {\"score\": number}";
    *out = (reward_call){ .accuracy = NAN };
    if (v->type != ARES_JSON_OBJECT) return is_number(v, &out->score) ? NULL : expected;
    const ares_json *score = ares_json_get(v, "score"), *accuracy = ares_json_get(v, "accuracy"),
                    *error = ares_json_get(v, "error");
    if (!score && error && error->type == ARES_JSON_STRING) {
        out->failed = true;
        snprintf(out->why, sizeof out->why, "says: %s", error->text.data);
        return NULL;
    }
    out->abstains = score && score->type == ARES_JSON_NULL;
    if (!out->abstains && !is_number(score, &out->score)) return expected;
    if (accuracy && accuracy->type != ARES_JSON_NULL && !is_number(accuracy, &out->accuracy))
        return "its accuracy is neither a number nor true or false";
    ares_str said = { 0 };
    ares_json_write(&said, v);
    out->said = ares_str_take(&said);
    return NULL;
}

static void quote_answer(char *why, size_t size, ares_view text, const char *wrong)
{
    snprintf(why, size, "answered '%.*s'; %s", (int)ARES_MIN(text.len, 60), text.data, wrong);
}

/* Takes an answer to the call at the head; false: it makes no sense, and the process has ended. */
static bool take_answer(worker *w, ares_view line)
{
    char why[400];
    if (w->head >= w->sent) { /* a line that was not sent whole cannot have been read */
        fail_head(w, "wrote more answers than lines were sent");
        return false;
    }
    const call *k = &w->calls[w->head];
    reward_call *results = ares_calloc((size_t)k->n, sizeof *results);
    /* the answers to the questions of the head; where they make no sense the process ends */
    bool batch = w->of->o.batch;
    size_t size = sizeof why;
    ares_arena arena = { 0 };
    const ares_json *v;
    const char *wrong = NULL;
    char no_json[200];
    if (ares_json_parse(&arena, line, "answer", &v) != ARES_OK) {
        snprintf(no_json, sizeof no_json, "expected %s, and it is no JSON: %s",
                 batch ? "an array" : "a number or {\"score\": number}", ares_error_message());
        wrong = no_json;
    } else if (!batch) wrong = read_answer(v, results);
    else if (v->type != ARES_JSON_ARRAY || v->count != k->n)
        wrong = "expected an array with an answer to each question of the line";
    for (int64_t i = 0; i < k->n && batch && !wrong; i++) {
        ares_str text = { 0 };
        const char *why_not = read_answer(&v->items[i], &results[i]);
        if (!why_not) continue;
        ares_json_write(&text, &v->items[i]);
        results[i].failed = true;
        quote_answer(results[i].why, sizeof results[i].why, ares_str_view(&text), why_not);
        ares_str_fini(&text);
    }
    if (wrong) quote_answer(why, size, line, wrong);
    ares_arena_fini(&arena);
    ares_error_clear();
    bool good = (!wrong), failed = true;
    for (int64_t i = 0; i < k->n; i++) failed = failed && results[i].failed;
    if (good) {
        w->answered = true;
        finish_call(w, results, failed);
    } else blame_head(w, why);
    ares_free(results);
    return good;
}

/* Reads what the process has written, and takes the answers of whole lines. */
static void receive(worker *w)
{
    int64_t n = ares_child_receive(&w->process, &w->answer);
    if (n < 0) {
        char why[400];
        ares_child_describe_end(&w->process, why, sizeof why);
        blame_head(w, why);
    }
    if (n <= 0) return;
    size_t at = 0;
    while (w->process.pid && w->head < w->n) {
        int64_t end = ares_view_find(ares_str_view(&w->answer), ARES_VIEW("\n"), at);
        if (end < 0) break;
        ares_view line = ares_view_trim((ares_view){ w->answer.data + at, (size_t)end - at });
        at = (size_t)end + 1;
        if (line.len && !take_answer(w, line)) return;
    }
    size_t rest = w->answer.len - at;
    if (w->head < w->n && rest > LONGEST_ANSWER * (size_t)w->calls[w->head].n) {
        fail_head(w, "floods its output");
        return;
    }
    if (w->head == w->n && ares_view_trim((ares_view){ w->answer.data + at, rest }).len) {
        ares_warn("reward: %s: wrote more answers than lines were sent; started again",
                  w->of->name);
        stop(w);
        return;
    }
    memmove(w->answer.data, w->answer.data + at, rest);
    w->answer.len = rest;
}

/* ---------------- waiting */
/*
 * Does for a process what can be done without waiting. *left: seconds until it is late; 0 where no
 * call is open any more.
 */
static void go_on(worker *w, double *left, bool *timed_out)
{
    const reward_child_options *o = &w->of->o;
    char why[400];
    for (*left = 0; w->head < w->n;) {
        if (ares_signal_poll() != ARES_OK) {
            fail_head(w, ares_error_message());
            continue;
        }
        if (w->in_a_row >= GIVE_UP) {
            snprintf(why, sizeof why, "not asked: the %d before it failed", GIVE_UP);
            finish_without_answer(w, why);
            continue;
        }
        if (!w->process.pid && start(w) != ARES_OK) {
            snprintf(why, sizeof why, "cannot be started: %.300s", ares_error_message());
            finish_without_answer(w, why);
            continue;
        }
        send_some(w);
        /* each question of a line adds its share; a new process has its start on top */
        double allowed =
            o->timeout_s * (double)w->calls[w->head].n + (w->answered ? 0 : o->start_timeout_s);
        *left = w->since + allowed - ares_now_s();
        if (*left > 0) return;
        snprintf(why, sizeof why, "gave no answer within %g s", allowed);
        fail_head(w, why);
        *timed_out = true;
        *left = 0;
    }
    w->in_a_row = 0; /* the next step tries again */
}

void reward_child_wait(reward_child *const *children, int n, bool *timed_out)
{
    int64_t n_workers = 0, open = 1;
    for (int i = 0; i < n; i++) {
        reward_child *c = children[i];
        /* the held questions in equal shares, one array to each process */
        int64_t held = c->n_held, shares = ARES_MIN(c->o.processes, held);
        for (int64_t k = 0; k < shares; k++) {
            int64_t from = held * k / shares;
            queue(&c->workers[k], c->held + from, held * (k + 1) / shares - from);
        }
        c->n_held = 0;
        n_workers += c->o.processes;
        for (int64_t k = 0; k < c->o.processes; k++) c->workers[k].since = ares_now_s();
    }
    struct pollfd *fds = ares_calloc((size_t)n_workers * 3 + 1, sizeof *fds);
    worker **of = ares_calloc((size_t)n_workers + 1, sizeof *of);
    while (open) {
        double left, soonest = look_s;
        open = 0;
        for (int i = 0; i < n; i++)
            for (int64_t k = 0; k < children[i]->o.processes; k++) {
                worker *w = &children[i]->workers[k];
                go_on(w, &left, timed_out);
                if (left <= 0) continue;
                struct pollfd *f = fds + 3 * open;
                f[0] = (struct pollfd){ .fd = w->process.from, .events = POLLIN };
                f[1] =
                    (struct pollfd){ .fd = w->sent < w->n ? w->process.to : -1, .events = POLLOUT };
                f[2] = (struct pollfd){ .fd = w->process.err, .events = POLLIN };
                of[open++] = w;
                soonest = ARES_MIN(soonest, left);
            }
        if (open) poll(fds, (nfds_t)open * 3, (int)(soonest * 1000) + 1);
        for (int64_t i = 0; i < open; i++) {
            if (fds[3 * i + 2].revents) ares_child_listen(&of[i]->process);
            if (fds[3 * i].revents) receive(of[i]);
        }
    }
    ares_free(fds);
    ares_free(of);
}

/*
 * worker.reward.reward_function: names and paths of published reward functions -> the verifiers
 * that compute the same.
 */

static const struct {
    const char *name, *type, *verifier;
} functions[] = {
    { "aepo", "batch", "aepo" },
    { "math", "batch", "math_format" },
    { "dapo", "batch", "dapo_overlong" },
    { "r1v", "sequential", "r1v" },
};

const char *reward_function_verifier(ares_config *cfg, const ares_reward_config *rc)
{
    /* "math", or "./examples/reward_function/math.py:compute_score" */
    const char *value = rc->reward_function, *colon = strrchr(value, ':'),
               *slash = strrchr(value, '/'), *stem = slash ? slash + 1 : value;
    size_t length = strcspn(stem, ":");
    bool python = length > 3 && memcmp(stem + length - 3, ".py", 3) == 0,
         file = slash || colon || python,
         usual = colon && colon >= stem && strcmp(colon + 1, "compute_score") == 0;
    const char *names[ARES_COUNT(functions)];
    char name[32];
    int i, found = ARES_ECONFIG;
    if (python) length -= 3;
    snprintf(name, sizeof name, "%.*s", (int)ARES_MIN(length, sizeof name - 1), stem);
    for (int k = 0; k < ARES_COUNT(functions); k++) names[k] = functions[k].name;
    if (!file || usual) found = ares_lookup(ARES_ECONFIG, NULL, name, names, ARES_COUNT(names), &i);
    if (found != ARES_OK && file)
        ares_fail(ARES_ECONFIG, "there is no such file; write FILE.py:NAME, or of a published "
                                "function its name: aepo, math, dapo, r1v");
    if (found != ARES_OK) {
        ares_config_fault(cfg, "worker.reward.reward_function", "%s", ares_error_message());
        return NULL;
    }
    if (rc->reward_type && strcmp(rc->reward_type, functions[i].type) != 0)
        ares_config_fault(cfg, "worker.reward.reward_type",
                          "reward_function '%s' is %s; set that, or leave reward_type out",
                          functions[i].name, functions[i].type);
    return functions[i].verifier;
}
