/* This process among the ranks. A world of one does not use MPI, whose start takes 0.3 s. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int ares_world_open(ares_world **out)
{
    ares_world *w = ares_calloc(1, sizeof *w);
    *w = (ares_world){ .size = 1, .local_size = 1 };
    int rc = ARES_OK;
    if (dist_transport_size() > 1) rc = dist_transport_open(w);
    else w->threads = ares_cpu_count();
    if (rc == ARES_OK) dist_launch_answer();
    if (rc != ARES_OK) {
        ares_free(w);
        w = NULL;
    }
    *out = w;
    return rc;
}

void ares_world_close(ares_world *w)
{
    if (!w) return;
    if (w->size > 1) dist_transport_close(w);
    ares_free(w->buffer);
    ares_free(w);
}

int ares_world_rank(const ares_world *w)
{
    return w ? w->rank : 0;
}

int ares_world_size(const ares_world *w)
{
    return w ? w->size : 1;
}

int ares_world_local_rank(const ares_world *w)
{
    return w ? w->local_rank : 0;
}

int ares_world_local_size(const ares_world *w)
{
    return w ? w->local_size : 1;
}

int ares_world_threads(const ares_world *w)
{
    return w ? w->threads : ares_cpu_count();
}

void ares_world_set_timeout(ares_world *w, double seconds)
{
    if (w) w->timeout_s = seconds;
}

void ares_world_set_transport(ares_world *w, const char *name)
{
    static const char *const names[] = { "auto", "staged", "nccl" };
    int i;
    if (ares_lookup(ARES_ECONFIG, "dist: transport", name, names, ARES_COUNT(names), &i) == ARES_OK)
        w->transport = (dist_transport)i;
    else ARES_ASSERT(!"the option has no other choices");
}

void ares_world_abort(const ares_world *w, int code)
{
    int exit_code = ares_error_exit_code(code);
    if (ares_world_size(w) == 1) {
        ares_log(ARES_LOG_ERROR, "%s", ares_error_message());
        fflush(NULL);
        _Exit(exit_code);
    }
    dist_watch_end();
    if (dist_watch_reports())
        ares_log(ARES_LOG_ERROR, "%s; ending all ranks", ares_error_message());
    else nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL); /* the other's message comes first */
    fflush(NULL);
    dist_groups_abort(w);
    dist_transport_abort(exit_code);
}

char *dist_buffer(ares_world *w, size_t bytes)
{
    if (bytes > w->buffer_bytes) {
        ares_free(w->buffer);
        w->buffer = ares_malloc(bytes);
        w->buffer_bytes = bytes;
    }
    return w->buffer;
}
