/*
 * How the runs of a sweep are executed: which cards it uses, workers with a child process per
 * run, and the queue from which workers take runs.
 */
#include "sweep.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ares/core.h"
#include "ares/dist.h"

/* A folder per card, named by its bus address. */
static const char *const driver = "/proc/driver/nvidia/gpus";

/* For scandir: not "." and "..". */
static int is_entry(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* The cards' folders, by bus address, which is the order of their numbers. */
static int list_cards(struct dirent ***entries)
{
    int n = scandir(driver, entries, is_entry, alphasort);
    return n > 0 ? n : 0;
}

static void free_list(struct dirent **entries, int n)
{
    for (int i = 0; i < n; i++) free(entries[i]);
    if (n) free(entries);
}

/* Numbers must be of cards that are there; names (UUIDs) and n = 0, no driver, are not checked. */
int sweep_check_cards(const ares_texts *cards, int n)
{
    for (int64_t i = 0; n && i < cards->count; i++) {
        int64_t index;
        if (ares_parse_i64(ares_view_of(cards->items[i]), &index) && (index < 0 || index >= n))
            return ares_fail(ARES_EUSE,
                             "sweep: --gpus: card %lld: this machine has %d, of numbers 0 to %d; "
                             "name these",
                             (long long)index, n, n - 1);
    }
    return ARES_OK;
}

/*
 * The cards to use: those named, else CUDA_VISIBLE_DEVICES, else what the driver lists. No run is
 * given a card that is not there.
 */
static int sweep_cards(sweep *s, ares_texts *out)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct dirent **entries;
    int n = list_cards(&entries);
    free_list(entries, n);
    if (s->o.gpus.count) {
        *out = s->o.gpus;
        return sweep_check_cards(out, n);
    }
    if (visible && *visible) {
        const char **items = ares_arena_alloc(&s->arena, (strlen(visible) + 1) * sizeof *items);
        *out = (ares_texts){ items, 0 };
        char *rest = ares_arena_copy(&s->arena, visible, strlen(visible)), *save = NULL;
        for (char *w = strtok_r(rest, ", ", &save); w; w = strtok_r(NULL, ", ", &save))
            items[out->count++] = w;
        return ARES_OK;
    }
    const char **numbers = ares_arena_alloc(&s->arena, (size_t)n * sizeof *numbers);
    for (int i = 0; i < n; i++) numbers[i] = ares_arena_printf(&s->arena, "%d", i);
    *out = (ares_texts){ numbers, n };
    return n ? ARES_OK
             : ares_fail(ARES_EUSE, "sweep: this machine shows no card; name those to use, as in "
                                    "--gpus 0,1, or set trainer.device=cpu");
}

/* ---------------------------------------------------------------- names of cards */
/*
 * The length of a model's name that begins here, such as "H100" or "V100"; 0: none does. A letter
 * takes three digits at most, as RAGEN's rule does: "A6000" becomes "A600".
 */
static size_t model_length(const char *at)
{
    static const char *const others[] = { "V100", "T4", "P100", "K80" };
    if (*at && strchr("BHAL", *at)) {
        size_t digits = strspn(at + 1, "0123456789");
        if (digits >= 2) return 1 + ARES_MIN(digits, (size_t)3);
    }
    for (int i = 0; i < ARES_COUNT(others); i++)
        if (strncmp(at, others[i], strlen(others[i])) == 0) return strlen(others[i]);
    return 0;
}

/* RAGEN's rule: without makers and families; then a known model's name, else the first word. */
void sweep_short_card_name(const char *name, ares_str *out)
{
    static const char *const before[] = { "NVIDIA ", "Tesla ", "GeForce ", "Quadro ", "RTX " };
    for (int i = 0; i < ARES_COUNT(before); i++)
        if (strncmp(name, before[i], strlen(before[i])) == 0) name += strlen(before[i]);
    for (const char *at = name; *at; at++) {
        size_t length = model_length(at);
        if (!length) continue;
        ares_str_add(out, at, length);
        return;
    }
    ares_str_add(out, name, strcspn(name, " "));
}

/* The name of card number `index`, from the driver; false where it says none. */
static bool card_name(int64_t index, ares_str *out)
{
    struct dirent **entries;
    int n = list_cards(&entries);
    ares_str path = { 0 }, text = { 0 };
    bool found = false;
    if (index >= 0 && index < n) {
        ares_str_addf(&path, "%s/%s/information", driver, entries[index]->d_name);
        if (ares_file_read(path.data, &text) == ARES_OK) {
            const char *model = text.data ? strstr(text.data, "Model:") : NULL;
            for (model = model ? model + 6 : ""; isblank((unsigned char)*model);) model++;
            ares_str_add(out, model, strcspn(model, "\n"));
            found = out->len > 0;
        }
    }
    free_list(entries, n);
    ares_str_fini(&path);
    ares_str_fini(&text);
    return found;
}

/* "2xH100", "4xmixed", "1xCPU": the hardware that a result was made on. */
const char *sweep_card_label(ares_arena *arena, const char *cards, int64_t ranks)
{
    if (!cards) return ares_arena_printf(arena, "%lldxCPU", (long long)ranks);
    ares_str first = { 0 }, name = { 0 }, model = { 0 };
    char *rest = ares_arena_copy(arena, cards, strlen(cards)), *save = NULL;
    int n = 0;
    for (char *w = strtok_r(rest, ",", &save); w; w = strtok_r(NULL, ",", &save), n++) {
        int64_t index;
        ares_str_clear(&name);
        ares_str_clear(&model);
        if (ares_parse_i64(ares_view_of(w), &index) && card_name(index, &name))
            sweep_short_card_name(name.data, &model);
        else ares_str_addf(&model, "GPU%s", w);
        if (!n) ares_str_add_view(&first, ares_str_view(&model));
        else if (!ares_view_eq(ares_str_view(&first), ares_str_view(&model))) {
            ares_str_clear(&first);
            ares_str_add_z(&first, "mixed");
        }
    }
    const char *label = ares_arena_printf(arena, "%dx%s", n, first.data ? first.data : "GPU");
    ares_str_fini(&first);
    ares_str_fini(&name);
    ares_str_fini(&model);
    return label;
}

extern char **environ;

/* ---------------------------------------------------------------- workers */
typedef struct sweep_worker {
    const char *cards; /* "0,1"; NULL: the CPU */
    const char *label;
    pid_t pid; /* 0: idle */
    sweep_run *run;
    size_t log_bytes;        /* size of its log before it began: that of earlier attempts */
    double started, free_at; /* free_at: when its cooldown is over */
    /* steps that its log tells: the last one, of how many, and the first one seen, with its time */
    long long step, steps, first_step;
    double first_seen;
} sweep_worker;

/* The list of runs, the workers, and how far they are. */
typedef struct sweep_queue {
    sweep *s;
    sweep_worker *workers;
    int n_workers, next; /* next: place of the run to start next */
    int signals, first_signal;
    ares_progress *progress;
    double took; /* seconds that the runs took which this command has finished, */
    int ended;   /* and how many such runs there are */
    char self[4096];
} sweep_queue;

/* ---------------------------------------------------------------- a child */
/* The program, the verb, and the run's words; runs side by side share the CPUs. */
static char **command(const sweep_queue *q, const sweep_run *r)
{
    sweep *s = q->s;
    char **words = ares_arena_calloc(&s->arena, (size_t)r->n_words + 6, sizeof *words);
    int n = 0;
    words[n++] = (char *)q->self;
    words[n++] = "train";
    if (s->o.ranks > 1) {
        words[n++] = "--ranks";
        words[n++] = ares_arena_printf(&s->arena, "%lld", (long long)s->o.ranks);
    }
    for (int i = 0; i < r->n_words; i++) words[n++] = (char *)r->words[i];
    int64_t shares = q->n_workers * s->o.ranks;
    if (r->shares_cpus && q->n_workers > 1)
        words[n++] = ares_arena_printf(&s->arena, "trainer.threads=%lld",
                                       (long long)ARES_MAX(1, ares_cpu_count() / shares));
    return words;
}

/* Starts a run as a child of the worker; what it prints is appended to its log. */
static int sweep_spawn(sweep_queue *q, sweep_worker *w, const sweep_run *r)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    struct stat log;
    ARES_TRY(sweep_make_folder_of(r->log));
    w->log_bytes = stat(r->log, &log) == 0 ? (size_t)log.st_size : 0;
    sigemptyset(&none);
    sigemptyset(&defaults); /* a shell's background job ignores Ctrl-C; a run must not */
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGTERM);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, r->log, O_WRONLY | O_CREAT | O_APPEND,
                                     0666);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETSIGMASK);
    /* this process's environment, with the worker's cards */
    static const char cards[] = "CUDA_VISIBLE_DEVICES=";
    int n = 0, out = 0;
    while (environ[n]) n++;
    char **all = ares_arena_calloc(&q->s->arena, (size_t)n + 2, sizeof *all);
    for (int i = 0; i < n; i++)
        if (!w->cards || strncmp(environ[i], cards, sizeof cards - 1) != 0) all[out++] = environ[i];
    if (w->cards) all[out] = ares_arena_printf(&q->s->arena, "%s%s", cards, w->cards);
    int failed = posix_spawn(&w->pid, q->self, &files, &attributes, command(q, r), all);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (!failed) return ARES_OK;
    w->pid = 0;
    return ares_fail(ARES_ECHILD, "sweep: %s (log: %s): %s", q->self, r->log, strerror(failed));
}

/* Finds this program and makes the workers of a sweep, in its arena. */
static int sweep_open_queue(sweep_queue *q, sweep *s)
{
    *q = (sweep_queue){ .s = s };
    ssize_t length = readlink("/proc/self/exe", q->self, sizeof q->self - 1);
    if (length < 0)
        return ares_fail(ARES_EIO, "sweep: cannot find this program: %s", strerror(errno));
    q->self[length] = 0;
    bool on_cards = s->o.gpus.count > 0;
    for (int i = 0; i < s->n; i++) on_cards = on_cards || s->runs[i].on_cards;
    if (on_cards) {
        /* a worker for each group of --ranks consecutive cards */
        ares_texts cards;
        int64_t each = s->o.ranks;
        ARES_TRY(sweep_cards(s, &cards));
        if (!cards.count || cards.count % each)
            return ares_fail(
                ARES_EUSE,
                "sweep: --ranks = %lld: does not divide the %lld cards; name other cards "
                "with --gpus",
                (long long)each, (long long)cards.count);
        q->n_workers = (int)(cards.count / each);
        q->workers = ares_arena_calloc(&s->arena, (size_t)q->n_workers, sizeof *q->workers);
        for (int i = 0; i < q->n_workers; i++) {
            ares_str group = { 0 };
            for (int64_t k = 0; k < each; k++)
                ares_str_addf(&group, "%s%s", k ? "," : "", cards.items[i * each + k]);
            q->workers[i].cards = ares_arena_copy(&s->arena, group.data, group.len);
            q->workers[i].label = sweep_card_label(&s->arena, q->workers[i].cards, each);
            ares_str_fini(&group);
        }
        return ARES_OK;
    }
    q->n_workers = (int)ARES_MIN(s->o.jobs, (int64_t)s->n);
    q->workers = ares_arena_calloc(&s->arena, (size_t)q->n_workers, sizeof *q->workers);
    for (int i = 0; i < q->n_workers; i++)
        q->workers[i].label = sweep_card_label(&s->arena, NULL, s->o.ranks);
    return ARES_OK;
}

/* ---------------------------------------------------------------- --dry-run */

/* What would be started, in order, with the commands as a user would type them. */
int sweep_print(sweep *s)
{
    sweep_queue q;
    ARES_TRY(sweep_open_queue(&q, s));
    printf("%s: %d runs, %d at a time\n", s->name, s->n, q.n_workers);
    for (int i = 0; i < q.n_workers && q.workers[i].cards; i++)
        printf("  worker %d: CUDA_VISIBLE_DEVICES=%s\n", i + 1, q.workers[i].cards);
    for (int i = 0; i < s->n; i++) {
        const sweep_run *r = &s->runs[i];
        const char *what = r->state == SWEEP_DONE ? " (finished)"
                           : r->begins_anew       ? " (begins anew)"
                           : r->goes_on           ? " (goes on)"
                                                  : "";
        printf("\n[%d/%d] %s%s\n  log: %s\n  run directory: %s\n ", i + 1, s->n, r->name, what,
               r->log, r->run_dir);
        for (char **w = command(&q, r); *w; w++) {
            /* a word as a shell reads it: quoted where it has other characters */
            const char *word = *w;
            static const char plain[] =
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
            if (*word && strspn(word, plain) == strlen(word)) printf(" %s", word);
            else {
                printf(" '");
                for (; *word; word++)
                    if (*word == '\'') printf("'\\''");
                    else putchar(*word);
                putchar('\'');
            }
        }
        putchar('\n');
    }
    printf("\nresults: %s\n", s->summary);
    return ARES_OK;
}

/*
 * The queue: a fixed number of workers, each a group of cards or a share of the CPUs, take the next
 * run of one list until it is empty. Every run is a child in a process group of its own, so that
 * Ctrl-C on the terminal reaches this process alone, which passes it on: the children save and end.
 */

/* ---------------------------------------------------------------- beginning and end of a run */
/* "[3/6] starts: lr_1e-5-seed_1" */
static void say(const sweep_queue *q, const sweep_run *r, const char *what)
{
    ares_say("[%d/%d] %s %s\n", (int)(r - q->s->runs) + 1, q->s->n, what, r->name);
}

/* Gives the worker the next run that is not done. */
static int start(sweep_queue *q, sweep_worker *w)
{
    while (q->next < q->s->n && q->s->runs[q->next].state == SWEEP_DONE)
        say(q, &q->s->runs[q->next++], "is finished:");
    if (q->next == q->s->n) return ARES_OK;
    sweep_run *r = &q->s->runs[q->next++];
    ARES_TRY(sweep_spawn(q, w, r));
    w->run = r;
    w->started = ares_now_s();
    w->step = w->steps = w->first_step = 0;
    r->state = SWEEP_RUNNING;
    r->gpu = w->label;
    say(q, r, r->goes_on ? "goes on:" : "starts:");
    return sweep_write_manifest(q->s);
}

/* The last line with text of a log, after its first `from` bytes. */
static const char *last_line(sweep *s, const char *path, size_t from)
{
    ares_str text = { 0 };
    if (ares_file_read(path, &text) != ARES_OK) return "no log";
    from = ARES_MIN(from, text.len);
    ares_view all = ares_view_trim((ares_view){ text.data + from, text.len - from });
    size_t begin = all.len;
    while (begin && all.data[begin - 1] != '\n') begin--;
    const char *line = "it wrote nothing";
    if (all.len > begin)
        line = ares_arena_copy(&s->arena, all.data + begin, ARES_MIN(all.len - begin, (size_t)400));
    ares_str_fini(&text);
    return line;
}

/* Notes how a child ended, with its status from waitpid. */
static int end(sweep_queue *q, sweep_worker *w, int status)
{
    sweep_run *r = w->run;
    r->wall_s += ares_now_s() - w->started;
    w->free_at = ares_now_s() + q->s->o.cooldown;
    w->pid = 0;
    w->run = NULL;
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    ares_str done = { 0 }; /* exit code 0 alone does not say it: a finished run has DONE */
    good = good && ares_file_exists(ares_path_join(&done, r->run_dir, "DONE"));
    ares_str_fini(&done);
    int code = WIFSIGNALED(status) ? ares_signal_exit_code(WTERMSIG(status)) : WEXITSTATUS(status);
    bool by_signal = q->signals && (code == 128 + SIGHUP || code == 128 + SIGINT ||
                                    code == 128 + SIGTERM || code == 128 + SIGKILL);
    if (good) {
        r->state = SWEEP_DONE;
        q->took += ares_now_s() - w->started;
        q->ended++;
    } else if (by_signal) r->state = SWEEP_STOPPED;
    else {
        r->state = SWEEP_FAILED;
        r->why = WIFSIGNALED(status)
                     ? ares_arena_printf(&q->s->arena, "killed by signal %d (%s)", WTERMSIG(status),
                                         strsignal(WTERMSIG(status)))
                     : last_line(q->s, r->log, w->log_bytes);
    }
    say(q, r,
        r->state == SWEEP_DONE     ? "finished:"
        : r->state == SWEEP_FAILED ? "failed:"
                                   : "stopped:");
    /* first the manifest: a result that is missing is made from it */
    ARES_TRY(sweep_write_manifest(q->s));
    return r->state == SWEEP_STOPPED ? ARES_OK : sweep_record(q->s, r);
}

/* ---------------------------------------------------------------- the loop */
/* Workers with a child. */
static int running(const sweep_queue *q)
{
    int n = 0;
    for (int i = 0; i < q->n_workers; i++) n += q->workers[i].pid != 0;
    return n;
}

/* Sends a signal that came to all children; from the third on they are killed. */
static void pass_on(sweep_queue *q, int signal)
{
    int n = running(q);
    if (signal == SIGHUP && q->signals) return; /* it comes twice where a terminal closes */
    if (signal == SIGHUP) ares_signal_lose_readers();
    if (!q->signals++) q->first_signal = signal;
    if (q->signals == 1 && n)
        ares_say("stopping: %d %s to the end of a step and %s; a second Ctrl-C ends at once\n", n,
                 n > 1 ? "runs go on" : "run goes on", n > 1 ? "save" : "saves");
    for (int i = 0; i < q->n_workers; i++)
        if (q->workers[i].pid) kill(q->workers[i].pid, q->signals > 2 ? SIGKILL : signal);
}

/* ---------------------------------------------------------------- how far they are */
enum { TAIL = 8192, LOOK_EVERY_S = 1 }; /* bytes of a log that are read; how often, in seconds */

/* The last "step 12/40 | .." of its log, as a run prints it at the end of a step. */
static void read_step(sweep_worker *w)
{
    char tail[TAIL + 1];
    const char *why;
    int log = ares_file_open(w->run->log, &why);
    if (log < 0) return;
    off_t from = ARES_MAX((off_t)w->log_bytes, lseek(log, 0, SEEK_END) - TAIL);
    ssize_t n = pread(log, tail, TAIL, from);
    close(log);
    tail[ARES_MAX(n, 0)] = 0;
    for (char *at = tail; at; at = strchr(at, '\n')) {
        long long step, steps;
        int read = 0;
        at += *at == '\n';
        if (sscanf(at, "step %lld/%lld |%n", &step, &steps, &read) < 2 || !read) continue;
        if (!w->first_step) {
            w->first_step = step;
            w->first_seen = ares_now_s();
        }
        w->step = step;
        w->steps = steps;
    }
}

/*
 * Seconds until all runs have ended; -1: nobody knows yet. A run that waits is taken to last as
 * long as the mean of those that have ended or are running.
 */
static double rest_of_all(const sweep_queue *q)
{
    double rest = 0, longest = 0, took = q->took;
    int known = q->ended, waiting = 0;
    for (int i = q->next; i < q->s->n; i++) waiting += q->s->runs[i].state != SWEEP_DONE;
    for (int i = 0; i < q->n_workers; i++) {
        const sweep_worker *w = &q->workers[i];
        double own = 0, steps = (double)(w->step - w->first_step); /* seen by this command */
        if (w->pid && !(steps > 0)) return -1;
        if (w->pid) own = (ares_now_s() - w->first_seen) / steps * (double)(w->steps - w->step);
        if (own < 0) return -1;
        rest += own;
        longest = ARES_MAX(longest, own);
        if (w->pid) took += own + ares_now_s() - w->started, known++;
    }
    if (!known) return -1;
    return ARES_MAX(longest, (rest + waiting * took / known) / q->n_workers);
}

/* Until the list is empty and all children have ended. */
static int loop(sweep_queue *q, const sigset_t *set)
{
    for (;;) {
        /* idle workers whose cooldown is over get runs; after a signal none starts */
        for (int i = 0; i < q->n_workers && !q->signals; i++)
            if (!q->workers[i].pid && q->workers[i].free_at <= ares_now_s())
                ARES_TRY(start(q, &q->workers[i]));
        if (!running(q) && (q->signals || q->next == q->s->n)) return ARES_OK;
        /* "2 of 6 runs | lr_1e-5-seed_1 12/40, lr_1e-6-seed_1 3/40 | eta 0:12" */
        ares_str text = { 0 };
        const char *before = " | ";
        int over = 0;
        for (int i = 0; i < q->s->n; i++)
            over += q->s->runs[i].state == SWEEP_DONE || q->s->runs[i].state == SWEEP_FAILED;
        ares_str_addf(&text, "%d of %d runs", over, q->s->n);
        for (int i = 0; i < q->n_workers; i++) {
            sweep_worker *w = &q->workers[i];
            if (!w->pid) continue;
            read_step(w);
            ares_str_addf(&text, "%s%s ", before, w->run->name);
            if (w->steps) ares_str_addf(&text, "%lld/%lld", w->step, w->steps);
            else ares_str_add_z(&text, "begins");
            before = ", ";
        }
        double rest = rest_of_all(q);
        if (rest >= 0)
            ares_str_addf(&text, " | eta %ld:%02ld:%02ld", (long)rest / 3600, (long)rest / 60 % 60,
                          (long)rest % 60);
        ares_progress_tell(q->progress, text.data);
        ares_str_fini(&text);
        /* waits for a signal, at most until a worker has cooled down, or until logs are read */
        double now = ares_now_s(), until = now + LOOK_EVERY_S;
        for (int i = 0; i < q->n_workers; i++) {
            const sweep_worker *w = &q->workers[i];
            if (!w->pid && w->free_at > now) until = ARES_MIN(until, w->free_at);
        }
        double seconds = until - now;
        struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
        int signal = sigtimedwait(set, NULL, &t), status;
        if (signal > 0 && signal != SIGCHLD) pass_on(q, signal);
        for (int i = 0; i < q->n_workers && signal == SIGCHLD; i++) {
            sweep_worker *w = &q->workers[i]; /* one SIGCHLD may stand for several children */
            if (w->pid && waitpid(w->pid, &status, WNOHANG) == w->pid) ARES_TRY(end(q, w, status));
        }
    }
}

/* *signal: the one that stopped it; 0: none did. */
int sweep_work(sweep *s, int *signal)
{
    sweep_queue q;
    sigset_t set, before;
    ARES_TRY(sweep_open_queue(&q, s));
    ares_signal_block(&set, &before);
    ares_work_begin("sweep");
    q.progress = ares_progress_new("run", "auto");
    int rc = loop(&q, &set);
    ares_progress_free(q.progress);
    /* after a failure of the sweep itself, such as a full disk, children are not left behind */
    for (int i = 0; i < q.n_workers && rc != ARES_OK; i++)
        if (q.workers[i].pid) kill(q.workers[i].pid, SIGTERM);
    for (int i = 0; i < q.n_workers && rc != ARES_OK; i++)
        while (q.workers[i].pid && waitpid(q.workers[i].pid, NULL, 0) < 0 && errno == EINTR) {}
    sigprocmask(SIG_SETMASK, &before, NULL);
    *signal = q.first_signal;
    return rc;
}
