/* The linker redirects the product's ares_now_s, poll and usleep here (--wrap). */
#include "clock.h"

#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

#include "ares/core.h"

enum { SLICE_MS = 5, HANG_S = 100000 }; /* longer than any time-out of the tests */

static double passed; /* seconds that have passed on this clock only */
static const char *hang_file, *slow_file;
static double slow_s;

void clock_hang_file(const char *path)
{
    hang_file = path;
}

void clock_slow_file(const char *path, double seconds)
{
    slow_file = path;
    slow_s = seconds;
}

double __real_ares_now_s(void);
double __wrap_ares_now_s(void);
int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __real_usleep(useconds_t us);
int __wrap_usleep(useconds_t us);

double __wrap_ares_now_s(void)
{
    return __real_ares_now_s() + passed;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
    for (int waited = 0; waited < ms; waited += SLICE_MS) {
        int ready = __real_poll(fds, n, SLICE_MS);
        if (ready != 0) return ready;
        bool hangs = hang_file && unlink(hang_file) == 0;
        bool slow = !hangs && slow_file && unlink(slow_file) == 0;
        if (!hangs && !slow) continue;
        passed += hangs ? HANG_S : slow_s;
        return 0;
    }
    return 0;
}

/* A closed pipe waits ten times as long for the exit that closed it, for busy machines. */
int __wrap_usleep(useconds_t us)
{
    return __real_usleep(10 * us);
}
