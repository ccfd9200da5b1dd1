/*
 * A rank that dies or stops ends the run, is named, and costs no more than the steps since the last
 * checkpoint: the run goes on and ends as if nothing had happened, bit for bit.
 */
#include "e2e.h"

#include <signal.h>
#include <stdio.h>

enum { STEPS = 300 };
#define WORDS                                                                        \
    "--config '%s' trainer.max_steps=300 trainer.save_freq=10 trainer.save_limit=2 " \
    "trainer.threads=1 "

/* Where and when a rank meets its end: after a row of metrics.jsonl, and some milliseconds. */
typedef struct end {
    int rank, row, ms;
} end;
static end draw(int n)
{
    ares_rng_key r = ares_rng_sub(ares_rng_root(29, ARES_RNG_TEST), (uint64_t)n, 0);
    end e = { .rank = (int)ares_rng_below(r, 0, 2),
              .row = 20 + (int)ares_rng_below(r, 1, 100),
              .ms = (int)ares_rng_below(r, 2, 30) };
    return e;
}

/* Starts a run and sends the signal to one of its ranks. Gives the exit status and what is printed.
 */
static int struck(ares_str *out, const char *run, const char *options, const char *signal, int n)
{
    end e = draw(n);
    printf("  rank %d after step %d and %d ms\n", e.rank, e.row, e.ms);
    return test_shell(
        out,
        "cd '%s'; config='%s'; run='%s'\n"
        "'%s' %s " WORDS "& pid=$!\n"
        "while kill -0 $pid 2>/dev/null && [ \"$(cat $run/metrics.jsonl 2>/dev/null | wc -l)\" "
        "-lt %d ]; do sleep 0.01; done; sleep 0.%03d\n"
        "for p in $(grep -lzx OMPI_COMM_WORLD_RANK=%d /proc/[0-9]*/environ 2>/dev/null); do\n"
        "  p=${p%%/environ}; grep -qaF $config $p/cmdline && kill -%s ${p#/proc/}\n"
        "done\n"
        "wait $pid",
        test_source("."), e2e_train_words(run), test_file(run), test_program(), options,
        e2e_train_words(run), e.row, e.ms, e.rank, signal);
}

static void check_named(const ares_str *out, int n)
{
    char want[64];
    snprintf(want, sizeof want, "dist: rank %d ", draw(n).rank);
    CHECK_CONTAINS(out->data, want);
    CHECK_CONTAINS(out->data, "ending all ranks");
}

static void whole(const char *run)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "--ranks 2 " WORDS, e2e_train_words(run));
    CHECK_MSG(rc == 0, "%s", ares_str_view(&out).data);
    ares_str_fini(&out);
}

TEST_MPI(a_run_whose_rank_was_killed_or_stopped_goes_on_bit_for_bit)
{
    E2E_NEEDS_MPI();
    static const struct {
        const char *run, *signal;
        int status;
    } cases[] = { { "killed", "KILL", 128 + SIGKILL }, { "stopped", "STOP", 1 } };
    whole("whole");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        const char *options = i ? "--ranks 2 trainer.comm_timeout_s=4" : "--ranks 2";
        CHECK_EQ(struck(&out, cases[i].run, options, cases[i].signal, i), cases[i].status);
        check_named(&out, i);
        ares_str_clear(&out);
        int rc = e2e_program(&out, "--ranks 2 " WORDS, e2e_train_words(cases[i].run));
        CHECK_MSG(rc == 0, "%s", out.data);
        CHECK_CONTAINS(out.data, "going on from ");
        e2e_same_runs("whole", cases[i].run, STEPS);
        ares_str_fini(&out);
    }
}

TEST_MPI(a_failed_run_is_started_again_and_ends_as_if_it_had_not_failed)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    whole("whole");
    CHECK_EQ(struck(&out, "again", "--ranks 2 --restarts 1", "KILL", 2), 0);
    check_named(&out, 2);
    CHECK_CONTAINS(out.data, "dist: the run failed (exit code 137); restart 1 of 1, from "
                             "checkpoint step_0");
    CHECK_CONTAINS(out.data, "going on from ");
    e2e_same_runs("whole", "again", STEPS);
    ares_str_fini(&out);
}

TEST(restarts_that_could_not_go_on_are_refused)
{
    static const struct {
        const char *words, *message;
    } cases[] = {
        { "--restarts x", "--restarts = 'x': not a whole number" },
        { "--restarts -1", "--restarts = -1: out of range; set 0 to 1000" },
        { "eval --restarts 1 --config '%s'", "a validation saves no checkpoint to go on from" },
        { "--restarts 1 --config '%s' trainer.val_only=true", "a validation saves no checkpoint" },
        { "--restarts 1 --config '%s' trainer.find_last_checkpoint=false", "set it to true" },
        { "--restarts 1 --config '%s' worker.rollout.top_p=2", "worker.rollout.top_p = 2" },
        { "--restarts 1 --config '%s' --chekc", "did you mean '--check'?" },
        { "--config '%s' trainer.comm_timeout_s=-1", "trainer.comm_timeout_s = -1: must be in" },
    };
    const char *config = e2e_train_words("run");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        char words[500];
        snprintf(words, sizeof words, cases[i].words, config);
        CHECK_EQ(e2e_program(&out, "%s", words), 2);
        CHECK_CONTAINS(out.data, cases[i].message);
        CHECK(!ares_dir_exists(test_file("run")));
        ares_str_fini(&out);
    }
}

/* The recipe for several machines of docs/ranks.md, with this one as the only host. */
TEST_MPI(ranks_start_by_a_file_of_hosts)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    const char *hosts = e2e_write("hosts", "localhost slots=2\n");
    CHECK_EQ(e2e_program(NULL, "--ranks 2 --config '%s' trainer.max_steps=2 trainer.threads=1",
                         e2e_train_words("ranks")),
             0);
    int rc = test_shell(&out,
                        "cd '%s'; OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                        "mpirun --hostfile '%s' -n 2 --bind-to none '%s' --config '%s' "
                        "trainer.max_steps=2 trainer.threads=1 2>&1",
                        test_source("."), hosts, test_program(), e2e_train_words("hosts_file"));
    CHECK_MSG(rc == 0, "%s", out.data);
    e2e_same_runs("ranks", "hosts_file", 2);
    ares_str_fini(&out);
}

/*
 * A job of Slurm over two machines: --ranks starts its processes on this one alone. srun
 * --mpi=pmix gives a process PMIX_RANK and its own variables, and none of mpirun's.
 */
TEST_MPI(ranks_start_in_a_job_of_slurm)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    int rc = test_shell(&out,
                        "cd '%s'; export SLURM_JOB_ID=7 SLURM_JOBID=7 SLURM_NTASKS=4 "
                        "SLURM_JOB_NODELIST=a,b SLURM_NODELIST=a,b SLURM_NNODES=2 "
                        "SLURM_JOB_NUM_NODES=2 'SLURM_TASKS_PER_NODE=2(x2)'\n"
                        "'%s' --ranks 2 --config '%s' trainer.max_steps=2 trainer.threads=1 2>&1",
                        test_source("."), test_program(), e2e_train_words("ranks"));
    CHECK_MSG(rc == 0, "%s", out.data);
    ares_str_clear(&out);
    rc = test_shell(&out,
                    "cd '%s'; OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun "
                    "--oversubscribe --bind-to none -n 2 sh -c 'exec env -u OMPI_COMM_WORLD_SIZE "
                    "-u OMPI_COMM_WORLD_RANK SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$PMIX_RANK "
                    "\"$@\"' - '%s' --config '%s' trainer.max_steps=2 trainer.threads=1 2>&1",
                    test_source("."), test_program(), e2e_train_words("srun"));
    CHECK_MSG(rc == 0, "%s", out.data);
    e2e_same_runs("ranks", "srun", 2);
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 '%s' --config '%s' 2>&1",
                        test_program(), e2e_train_words("alone")),
             2);
    CHECK_CONTAINS(out.data, "dist: 2 processes were started, but not in a way");
    CHECK(!ares_dir_exists(test_file("alone")));
    ares_str_fini(&out);
}
