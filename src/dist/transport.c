/* The only file that calls MPI, and its replacement in a build without MPI. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * Variables of Open MPI; of MPICH, its relatives and srun --mpi=pmi2; of srun. In a job's script,
 * where no srun has started this process, the last one is not set.
 */
int dist_transport_size(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                         "SLURM_STEP_NUM_TASKS" };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        const char *text = getenv(names[i]);
        int64_t size;
        if (text && ares_parse_i64(ares_view_of(text), &size) && size > 0) return (int)size;
    }
    return 1;
}

#ifdef ARES_HAVE_MPI

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * Under the address sanitizer: MPI leaks when it starts and ends, and unloads its plugins before
 * the search for leaks, so that tests/lsan.supp could not name them. The plugins stay loaded, and
 * leaks of start and end are not counted.
 */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#define LEAKS_OF_OTHERS(call) (__lsan_disable(), call, __lsan_enable())
int dlclose(void *handle);
int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
#else
#define LEAKS_OF_OTHERS(call) ((void)(call))
#endif

/* MPI's result as one of ours, with MPI's own text. */
static int checked(int mpi_rc, const char *what)
{
    if (mpi_rc == MPI_SUCCESS) return ARES_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    MPI_Error_string(mpi_rc, text, &len);
    return ares_fail(ARES_EDIST, "dist: %s: %s", what, text);
}

/*
 * Makes w->status, which the ranks of this machine share. The system frees it when the last of them
 * ends.
 */
static int share_status(MPI_Comm local, ares_world *w)
{
    MPI_Win window;
    MPI_Aint bytes = (MPI_Aint)sizeof *w->status;
    int unit;
    void *own;
    ARES_TRY(checked(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, local, &own, &window),
                     "shared memory"));
    /* contiguous: the memory of the other ranks follows that of rank 0 */
    ARES_TRY(checked(MPI_Win_shared_query(window, 0, &bytes, &unit, &w->status), "shared memory"));
    dist_watch_open(w);
    return checked(MPI_Barrier(local), "start");
}

/*
 * Processes that MPI has not connected would each run alone and write to the same run directory.
 * Where Slurm gives a process its number, only the first prints the error.
 */
static int refuse_to_be_alone(void)
{
    const char *task = getenv("SLURM_PROCID");
    if (task && strcmp(task, "0") != 0) return ares_fail(ARES_EUSE, "%s", "");
    return ares_fail(ARES_EUSE,
                     "dist: %d processes were started, but not in a way that this program's MPI "
                     "knows, and each would train alone; start them with mpirun, or with srun "
                     "--mpi=pmix (docs/ranks.md)",
                     dist_transport_size());
}

int dist_transport_open(ares_world *w)
{
    /* srun without --mpi=pmix: MPI itself would end the process with a long message */
    if (!getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMIX_RANK") && getenv("SLURM_STEP_NUM_TASKS"))
        return refuse_to_be_alone();
    /*
     * Ranks on one machine read each other's memory with a system call that some containers forbid;
     * Open MPI then fails in the middle of a message. A container that forbids the call also
     * forbids it on the process itself: try that, and if it fails, tell Open MPI not to use it.
     */
    char from = 1, to = 0;
    struct iovec own = { &to, 1 }, remote = { &from, 1 };
    if (process_vm_readv(getpid(), &own, 1, &remote, 1, 0) != 1) {
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
        setenv("OMPI_MCA_btl_sm_single_copy_mechanism", "none", 0);
    }
    /* Open MPI prints no stack for SIGABRT, because whoever calls abort has said why */
    setenv("OMPI_MCA_opal_signal", "7,8,11", 0);
    int got = 0, started;
    sigset_t every, before; /* signals are for the main thread, not for those that MPI starts */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    LEAKS_OF_OTHERS(started = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &got));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ARES_TRY(checked(started, "MPI_Init_thread"));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->size);
    if (w->size == 1) return refuse_to_be_alone();
    if (got < MPI_THREAD_FUNNELED)
        return ares_fail(ARES_EDIST, "dist: this MPI was built without threads");
    /* the ranks of this machine, in the order of their numbers */
    MPI_Comm local;
    ARES_TRY(checked(
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL, &local),
        "start"));
    MPI_Comm_rank(local, &w->local_rank);
    MPI_Comm_size(local, &w->local_size);
    /*
     * CPUs per rank. The affinity masks of this machine's ranks may be the same CPUs (unbound),
     * different ones (bound by mpirun) or overlap: of their union each rank gets the share that its
     * mask has in the sum of all masks. A quota is shared evenly.
     */
    cpu_set_t mine, both;
    CPU_ZERO(&mine);
    /* one CPU, where the system does not say */
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_SET(0, &mine);
    cpu_set_t *all = ares_calloc((size_t)w->local_size, sizeof *all);
    int rc = checked(
        MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, all, (int)sizeof mine, MPI_BYTE, local),
        "start");
    CPU_ZERO(&both);
    int64_t sum = 0, cpus = CPU_COUNT(&mine), granted = ares_cpu_count();
    for (int i = 0; i < w->local_size; i++) {
        CPU_OR(&both, &both, &all[i]);
        sum += CPU_COUNT(&all[i]);
    }
    int64_t share = sum > 0 ? cpus * CPU_COUNT(&both) / sum : 1;
    /* a container may grant less time than its mask has CPUs */
    if (granted < cpus) share = ARES_MIN(share, granted / w->local_size);
    w->threads = (int)ARES_MAX(share, 1);
    ares_free(all);
    if (rc == ARES_OK) rc = share_status(local, w);
    MPI_Comm_free(&local);
    return rc;
}

/*
 * Polls a collective that has begun until it has ended: one that blocks could not see that a rank
 * does not come.
 */
static int finish(ares_world *w, dist_wait *wait, int begun, MPI_Request *request, const char *what)
{
    int done = 0, rc = begun;
    while (rc == MPI_SUCCESS) {
        rc = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done) break;
        dist_watch_pause(w, wait);
    }
    dist_watch_leave(w);
    return checked(rc, what);
}

void dist_transport_close(ares_world *w)
{
    MPI_Request request;
    dist_watch_name(w, DIST_END, 0);
    dist_wait wait = dist_watch_enter(w);
    (void)finish(w, &wait, MPI_Ibarrier(MPI_COMM_WORLD, &request), &request, "end");
    dist_watch_close();
    LEAKS_OF_OTHERS(MPI_Finalize());
}

void dist_transport_abort(int exit_code)
{
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    _Exit(exit_code);
}

int dist_broadcast(ares_world *w, void *data, size_t bytes, int root)
{
    MPI_Request request;
    dist_wait wait = dist_watch_enter(w);
    int begun = MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD, &request);
    return finish(w, &wait, begun, &request, "broadcast");
}

/* mine NULL: it already lies in its place of all. */
int dist_gather_equal(ares_world *w, const void *mine, void *all, size_t bytes_each)
{
    MPI_Request request;
    int count = (int)bytes_each;
    dist_wait wait = dist_watch_enter(w);
    int begun = MPI_Iallgather(mine ? mine : MPI_IN_PLACE, count, MPI_BYTE, all, count, MPI_BYTE,
                               MPI_COMM_WORLD, &request);
    return finish(w, &wait, begun, &request, "gather");
}

int dist_gather_sized(ares_world *w, const void *mine, void *all, const int *bytes,
                      const int *starts)
{
    MPI_Request request;
    dist_wait wait = dist_watch_enter(w);
    int begun = MPI_Iallgatherv(mine, bytes[w->rank], MPI_BYTE, all, bytes, starts, MPI_BYTE,
                                MPI_COMM_WORLD, &request);
    return finish(w, &wait, begun, &request, "gather");
}

int dist_exchange(ares_world *w, const void *to_each, void *from_each, size_t bytes_each)
{
    MPI_Request request;
    int count = (int)bytes_each;
    dist_wait wait = dist_watch_enter(w);
    int begun = MPI_Ialltoall(to_each, count, MPI_BYTE, from_each, count, MPI_BYTE, MPI_COMM_WORLD,
                              &request);
    return finish(w, &wait, begun, &request, "exchange");
}

/* ---------------- groups */
struct dist_comm {
    MPI_Comm mpi;
    int size, stride;
};

int dist_comm_open(ares_world *w, int size, int stride, dist_comm **out)
{
    /* size 2, stride 4 of 8 ranks: 0 and 4, 1 and 5, ..; the color is the number of the group */
    int color = w->rank / (size * stride) * stride + w->rank % stride;
    dist_comm *c = ares_calloc(1, sizeof *c);
    *c = (dist_comm){ .mpi = MPI_COMM_NULL, .size = size, .stride = stride };
    int rc = checked(MPI_Comm_split(MPI_COMM_WORLD, color, w->rank, &c->mpi), "groups");
    if (rc != ARES_OK) {
        ares_free(c);
        c = NULL;
    }
    *out = c;
    return rc;
}

void dist_comm_close(dist_comm *c)
{
    if (c) MPI_Comm_free(&c->mpi);
    ares_free(c);
}

/* A group of all ranks counts as the world: its calls are compared over all ranks. */
static dist_wait enter(ares_world *w, const dist_comm *c)
{
    return c->size == w->size ? dist_watch_enter(w) : dist_watch_enter_group(w, c->size, c->stride);
}

/*
 * `rows` rows of `bytes` that are `stride` from each other; an array of such blocks has one every
 * `apart` bytes.
 */
static int make_type(int64_t rows, size_t bytes, size_t stride, size_t apart, MPI_Datatype *out)
{
    MPI_Datatype block;
    int rc = MPI_Type_create_hvector((int)rows, (int)bytes, (MPI_Aint)stride, MPI_BYTE, &block);
    if (rc != MPI_SUCCESS) return rc;
    rc = MPI_Type_create_resized(block, 0, (MPI_Aint)apart, out);
    MPI_Type_free(&block);
    return rc == MPI_SUCCESS ? MPI_Type_commit(out) : rc;
}

int dist_comm_gather(ares_world *w, dist_comm *c, const void *mine, void *all, int64_t rows,
                     size_t bytes, size_t stride, size_t apart)
{
    MPI_Datatype block;
    MPI_Request request;
    ARES_TRY(checked(make_type(rows, bytes, stride, apart, &block), "gather in a group"));
    dist_wait wait = enter(w, c);
    int begun = MPI_Iallgather(mine ? mine : MPI_IN_PLACE, (int)(rows * (int64_t)bytes), MPI_BYTE,
                               all, 1, block, c->mpi, &request);
    int rc = finish(w, &wait, begun, &request, "gather in a group");
    MPI_Type_free(&block);
    return rc;
}

int dist_comm_exchange(ares_world *w, dist_comm *c, const void *to_each, size_t apart,
                       void *from_each, size_t bytes)
{
    MPI_Datatype block;
    MPI_Request request;
    ARES_TRY(checked(make_type(1, bytes, bytes, apart, &block), "exchange in a group"));
    dist_wait wait = enter(w, c);
    int begun = MPI_Ialltoall(to_each, 1, block, from_each, (int)bytes, MPI_BYTE, c->mpi, &request);
    int rc = finish(w, &wait, begun, &request, "exchange in a group");
    MPI_Type_free(&block);
    return rc;
}

#else

int dist_transport_open(ares_world *w)
{
    (void)w;
    return ares_fail(ARES_EUNSUPPORTED,
                     "dist: started as %d ranks, but this build has no MPI; configure it with "
                     "-DARES_MPI=ON, or start one process",
                     dist_transport_size());
}

void dist_transport_close(ares_world *w)
{
    (void)w;
}

void dist_transport_abort(int exit_code)
{
    _Exit(exit_code);
}

/* A world of one rank makes no call, and this build has no other. */
static int unreachable(void)
{
    ares_abort(__FILE__, __LINE__, "one rank in a build without MPI");
}

int dist_broadcast(ares_world *w, void *data, size_t bytes, int root)
{
    (void)w, (void)data, (void)bytes, (void)root;
    return unreachable();
}

int dist_gather_equal(ares_world *w, const void *mine, void *all, size_t bytes_each)
{
    (void)w, (void)mine, (void)all, (void)bytes_each;
    return unreachable();
}

int dist_gather_sized(ares_world *w, const void *mine, void *all, const int *bytes,
                      const int *starts)
{
    (void)w, (void)mine, (void)all, (void)bytes, (void)starts;
    return unreachable();
}

int dist_exchange(ares_world *w, const void *to_each, void *from_each, size_t bytes_each)
{
    (void)w, (void)to_each, (void)from_each, (void)bytes_each;
    return unreachable();
}

int dist_comm_open(ares_world *w, int size, int stride, dist_comm **out)
{
    (void)w, (void)size, (void)stride, (void)out;
    return unreachable();
}

void dist_comm_close(dist_comm *c)
{
    (void)c;
}

int dist_comm_gather(ares_world *w, dist_comm *c, const void *mine, void *all, int64_t rows,
                     size_t bytes, size_t stride, size_t apart)
{
    (void)w, (void)c, (void)mine, (void)all, (void)rows, (void)bytes, (void)stride, (void)apart;
    return unreachable();
}

int dist_comm_exchange(ares_world *w, dist_comm *c, const void *to_each, size_t apart,
                       void *from_each, size_t bytes)
{
    (void)w, (void)c, (void)to_each, (void)apart, (void)from_each, (void)bytes;
    return unreachable();
}

#endif
