/*
 * Signals are noted here and handled where nothing is lost. SIGUSR1 and SIGUSR2 stand for SIGINT
 * and SIGTERM, because they are the two that mpirun passes to its ranks without killing them.
 */
#include "world.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static const int ends_run[] = { SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2 };
static volatile sig_atomic_t hangups, interrupts, terminations;
static volatile sig_atomic_t effect; /* ares_signal_effect */
static int agreed;                   /* what another rank noted */

static void end_at_once(const char *text, int exit_code)
{
    if (dist_watch_reports() && write(STDERR_FILENO, text, strlen(text)) < 0) {
        /* nothing else to do */
    }
    dist_watch_end();
    _exit(exit_code);
}

static void note(int signal)
{
    if (effect == ARES_SIGNAL_ENDS) {
        if (signal == SIGTERM) dist_watch_tell_gone();
        end_at_once("stopped by a signal before a step was begun: nothing is lost; give the same "
                    "command again\n",
                    ares_signal_exit_code(signal));
    }
    if (signal == SIGHUP) {
        hangups = 1;
        ares_signal_lose_readers();
        return;
    }
    if (signal == SIGTERM || signal == SIGUSR2) {
        terminations = 1;
        if (signal == SIGTERM) dist_watch_tell_gone(); /* mpirun sends it when a rank has died */
        return;
    }
    if (interrupts++ == 0) return;
    end_at_once("interrupted twice: ending at once; the last checkpoint is complete\n", 130);
}

/* nohup ignores SIGHUP for the program that it starts. */
static bool is_unwanted(int signal)
{
    struct sigaction now;
    return signal == SIGHUP && sigaction(signal, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void ares_signal_install(ares_signal_effect of_first)
{
    struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    hangups = interrupts = terminations = agreed = 0;
    effect = of_first;
    for (int i = 0; i < ARES_COUNT(ends_run); i++)
        if (!is_unwanted(ends_run[i])) sigaction(ends_run[i], &action, NULL);
}

void ares_signal_block(sigset_t *set, sigset_t *before)
{
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (int i = 0; i < ARES_COUNT(ends_run); i++)
        if (!is_unwanted(ends_run[i])) sigaddset(set, ends_run[i]);
    sigprocmask(SIG_BLOCK, set, before);
}

void ares_signal_lose_readers(void)
{
    signal(SIGPIPE, SIG_IGN);
}

int ares_signal_pending(void)
{
    return terminations ? SIGTERM : interrupts ? SIGINT : hangups ? SIGHUP : agreed;
}

void ares_signal_expect(ares_signal_effect of_first)
{
    effect = of_first;
}

int ares_signal_poll(void)
{
    int signal = ares_signal_pending();
    if (effect != ARES_SIGNAL_DROPS || !signal) return ARES_OK;
    return ares_fail(ARES_EINTERRUPTED, "run: stopped by signal %d", signal);
}

int ares_world_signal(ares_world *w, int *signal)
{
    int64_t most = ares_signal_pending();
    _Static_assert(SIGTERM > SIGINT && SIGINT > SIGHUP, "the larger wins");
    ARES_TRY(ares_world_max_i64(w, &most, 1));
    *signal = agreed = (int)most;
    return ARES_OK;
}

int ares_signal_exit_code(int signal)
{
    return 128 + (signal == SIGUSR1 ? SIGINT : signal == SIGUSR2 ? SIGTERM : signal);
}
