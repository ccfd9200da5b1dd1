/* Workers: which cards or CPUs a run gets, and the child that it is. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "queue.h"

extern char **environ;

/* ---------------------------------------------------------------- workers */
static bool on_cards(const sweep *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->runs[i].on_cards) return true;
    return s->o.gpus.count > 0;
}

/* Consecutive cards make a group. */
static int group_cards(sweep_queue *q)
{
    sweep *s = q->s;
    ares_texts cards;
    int64_t each = s->o.ranks;
    ARES_TRY(sweep_cards(s, &cards));
    if (!cards.count || cards.count % each)
        return ares_fail(ARES_EUSE,
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

static int make_workers(sweep_queue *q)
{
    sweep *s = q->s;
    if (on_cards(s)) return group_cards(q);
    q->n_workers = (int)ARES_MIN(s->o.jobs, (int64_t)s->n);
    q->workers = ares_arena_calloc(&s->arena, (size_t)q->n_workers, sizeof *q->workers);
    for (int i = 0; i < q->n_workers; i++)
        q->workers[i].label = sweep_card_label(&s->arena, NULL, s->o.ranks);
    return ARES_OK;
}

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

/* This process's environment, with the worker's cards. */
static char **environment(const sweep_queue *q, const sweep_worker *w)
{
    static const char name[] = "CUDA_VISIBLE_DEVICES=";
    int n = 0, out = 0;
    while (environ[n]) n++;
    char **all = ares_arena_calloc(&q->s->arena, (size_t)n + 2, sizeof *all);
    for (int i = 0; i < n; i++)
        if (!w->cards || strncmp(environ[i], name, sizeof name - 1) != 0) all[out++] = environ[i];
    if (w->cards) all[out] = ares_arena_printf(&q->s->arena, "%s%s", name, w->cards);
    return all;
}

int sweep_spawn(sweep_queue *q, sweep_worker *w, const sweep_run *r)
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
    int failed =
        posix_spawn(&w->pid, q->self, &files, &attributes, command(q, r), environment(q, w));
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (!failed) return ARES_OK;
    w->pid = 0;
    return ares_fail(ARES_ECHILD, "sweep: %s (log: %s): %s", q->self, r->log, strerror(failed));
}

static int find_self(sweep_queue *q)
{
    ssize_t n = readlink("/proc/self/exe", q->self, sizeof q->self - 1);
    if (n < 0) return ares_fail(ARES_EIO, "sweep: cannot find this program: %s", strerror(errno));
    q->self[n] = 0;
    return ARES_OK;
}

int sweep_open_queue(sweep_queue *q, sweep *s)
{
    *q = (sweep_queue){ .s = s };
    ARES_TRY(find_self(q));
    return make_workers(q);
}

/* ---------------------------------------------------------------- --dry-run */
static void print_word(const char *word)
{
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
        for (char **w = command(&q, r); *w; w++) print_word(*w);
        putchar('\n');
    }
    printf("\nresults: %s\n", s->summary);
    return ARES_OK;
}
