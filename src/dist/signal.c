/*
 * Signals are noted here and handled between steps. SIGUSR1 and SIGUSR2 stand for SIGINT and
 * SIGTERM, because they are the two that mpirun passes to its ranks without killing them.
 */
#include "world.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t interrupts, terminations;
static int agreed; /* what another rank noted */

static void note(int signal)
{
    if (signal == SIGTERM || signal == SIGUSR2) {
        terminations = 1;
        if (signal == SIGTERM) dist_watch_tell_gone(); /* mpirun sends it when a rank has died */
        return;
    }
    if (interrupts++ == 0) return;
    static const char text[] =
        "interrupted twice: ending at once; the last checkpoint is complete\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) { /* nothing else to do */
    }
    dist_watch_end();
    _exit(130);
}

void ares_signal_install(void)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGUSR1, SIGUSR2 };
    struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    interrupts = terminations = agreed = 0;
    for (int i = 0; i < ARES_COUNT(signals); i++) sigaction(signals[i], &action, NULL);
}

int ares_signal_pending(void)
{
    return terminations ? SIGTERM : interrupts ? SIGINT : agreed;
}

int ares_world_signal(ares_world *w, int *signal)
{
    int64_t most = ares_signal_pending();
    _Static_assert(SIGTERM > SIGINT, "the larger wins");
    ARES_TRY(ares_world_max_i64(w, &most, 1));
    *signal = agreed = (int)most;
    return ARES_OK;
}

int ares_signal_exit_code(int signal)
{
    return 128 + signal;
}
