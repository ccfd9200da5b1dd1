/*
 * dist: several processes as one program. Ranks, collectives on small and large host arrays, the
 * launcher, signals.
 *
 * A program started without a launcher is a world of one and makes no MPI call. A NULL world is a
 * world of one too, so code that may run alone passes NULL. Every function here is called by the
 * main thread (MPI_THREAD_FUNNELED), and a collective by all ranks in the same order; it fails with
 * ARES_EDIST on the rank that saw the failure, after which ares_world_abort is the only way out
 * that does not leave the others waiting.
 *
 * No result depends on how MPI orders its messages: sums add the ranks from 0 up, for every
 * element.
 */
#ifndef ARES_DIST_H
#define ARES_DIST_H

#include "ares/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ the world (world.c) */
typedef struct ares_world ares_world;

/*
 * Joins the ranks that mpirun started. A build without MPI fails with ARES_EUNSUPPORTED when there
 * are several.
 */
int ares_world_open(ares_world **out);
void ares_world_close(ares_world *w); /* waits for the other ranks, as MPI_Finalize does */
int ares_world_rank(const ares_world *w);
int ares_world_size(const ares_world *w);
int ares_world_local_rank(const ares_world *w); /* among the ranks on this machine */
int ares_world_local_size(const ares_world *w);
/* this rank's share of the CPUs that are ours, at least 1 */
int ares_world_threads(const ares_world *w);
/* Prints the last message and ends every rank with the exit code of `code`. */
void ares_world_abort(const ares_world *w, int code) __attribute__((noreturn));

/* ------------------------------------------------------------------ collectives (collective.c) */
int ares_world_broadcast(ares_world *w, void *data, size_t bytes, int root);
/* In place, the same bits on every rank. f32 is added in double and rounded once. */
int ares_world_sum_f64(ares_world *w, double *x, int64_t n);
int ares_world_sum_f32(ares_world *w, float *x, int64_t n);
int ares_world_sum_i64(ares_world *w, int64_t *x, int64_t n);
int ares_world_max_f64(ares_world *w, double *x, int64_t n); /* a NaN on any rank gives NaN */
int ares_world_max_i64(ares_world *w, int64_t *x, int64_t n);
/*
 * The bytes of all ranks, one after the other, replacing `out`; start [size + 1] (may be NULL) says
 * where each begins.
 */
int ares_world_gather_all(ares_world *w, const void *data, size_t bytes, ares_str *out,
                          size_t *start);
/*
 * Makes one result of many: when any rank gives a failure, every rank returns the code of the first
 * rank that failed, with its message. Between stages that can fail on some ranks only:
 *     ARES_TRY(ares_world_agree(w, load(...)));
 */
int ares_world_agree(ares_world *w, int rc);

/* ---------------- the launcher (launch.c)
 * Runs this program again as `ranks` processes under mpirun, with these arguments (argv[0] is not
 * among them), and waits for them. SIGINT and SIGTERM reach the ranks as SIGUSR1 and SIGUSR2,
 * because mpirun kills its children a second after it gets one of the former; a third signal kills
 * mpirun all the same. `exit_code` is that of the first rank that gave another than 0; 130 or 143
 * when a signal came before the ranks listened.
 */
int ares_launch(int ranks, int argc, char *const *argv, int *exit_code);

/* ---------------- signals (signal.c)
 * A first SIGINT or SIGTERM (or SIGUSR1, SIGUSR2 in their stead) is only noted, so that the step
 * can end and be saved; a second SIGINT leaves at once with exit code 130.
 */
void ares_signal_install(void);
int ares_signal_pending(void);         /* 0, SIGINT or SIGTERM; of this process */
int ares_signal_exit_code(int signal); /* 130 for SIGINT, 143 for SIGTERM */
/* A collective: the same answer on every rank; SIGTERM wins. */
int ares_world_signal(ares_world *w, int *signal);

#ifdef __cplusplus
}
#endif
#endif
