/*
 * What a signal does while a run waits for somebody who takes an hour: the tests' own time limit
 * sees a run that waits, too.
 */
#include "e2e.h"

#include <stdio.h>
#include <string.h>

#include "agent_runs.h"

/*
 * A reward command that scores by the length of the line. At line `$2` of a run it sends the signal
 * `$1` once to whoever has started it, and sleeps; in folder `$3` it counts.
 */
static const char slow_reward[] =
    "while read -r line; do\n"
    "  echo >>\"$3/lines\"; n=$(($(wc -l <\"$3/lines\")))\n"
    "  if [ $2 -gt 0 ] && [ $n -ge $2 ] && mkdir \"$3/asked\" 2>/dev/null\n"
    "  then kill -$1 $PPID; exec sleep 3600; fi\n"
    "  echo 0.$((${#line} % 10))\n"
    "done\n";

/* Words of a run that it judges; line 0: it never sleeps. */
static const char *slow_words(const char *run, const char *signal, int line, const char *more)
{
    static char words[3000];
    char dir[64];
    snprintf(dir, sizeof dir, "slow_%s", run);
    CHECK_OK(ares_dir_make(test_file(dir)));
    const char *script = e2e_write("slow.sh", slow_reward);
    snprintf(words, sizeof words,
             "--config '%s' trainer.max_steps=3 trainer.save_minutes=null "
             "\"worker.reward.rewards=[{name: own, timeout_s: 3600, command: [sh, '%s', %s, '%d', "
             "'%s']}]\" %s",
             e2e_train_words(run), script, signal, line, test_file(dir), more);
    return words;
}

/* The line is judged in the second step, which is left out, and made by the same command. */
static void check_dropped(const char *run, const char *ranks, const char *signal, int code,
                          int line, const char *more)
{
    ares_str out = { 0 };
    const char *words = slow_words(run, signal, line, more);
    CHECK_EQ(e2e_program(&out, "%s %s", ranks, words), code);
    CHECK_CONTAINS(out.data, " after step 1 of 3; the same command goes on from there");
    CHECK(!strstr(out.data, "scored 0"));
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "%s %s", ranks, words), 0);
    CHECK_CONTAINS(out.data, "checkpoints/rolling_000001, step 1 of 3");
    CHECK_EQ(e2e_program(NULL, "%s %s", ranks, slow_words("whole", signal, 0, more)), 0);
    e2e_same_runs("whole", run, 3);
    ares_str_fini(&out);
}

TEST(a_signal_ends_the_wait_for_a_reward_and_drops_the_step)
{
    check_dropped("part", "", "INT", 130, 16 + 5, "");
}
TEST(a_signal_ends_the_wait_for_a_reward_of_samples_that_are_more_than_a_batch)
{
    check_dropped("part", "", "TERM", 143, 24 + 5,
                  "curriculum.over_sampling_batch_size=6 "
                  "algorithm.dynamic_sampling_filter=nonzero_std");
}
/* One of two ranks gets it; the other one learns of it. */
TEST_MPI(a_signal_to_a_rank_drops_the_step_of_all)
{
    E2E_NEEDS_MPI();
    check_dropped("part", "--ranks 2", "USR2", 143, 16 + 5, "worker.actor.fsdp.fsdp_size=2");
}

TEST(a_signal_in_the_first_validation_ends_at_once)
{
    ares_str out = { 0 };
    char more[400];
    snprintf(more, sizeof more, "trainer.val_before_train=true data.val_files='%s'",
             e2e_write("val.jsonl", "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n"
                                    "{\"prompt\":\"1+2=?\",\"answer\":\"3\"}\n"));
    CHECK_EQ(e2e_program(&out, "%s", slow_words("part", "TERM", 1, more)), 143);
    CHECK_CONTAINS(
        out.data,
        "stopped by a signal before a step was begun: nothing is lost; give the same command");
    ares_str_clear(&out);
    CHECK_MSG(e2e_program(&out, "%s", slow_words("part", "TERM", 1, more)) == 0, "%s", out.data);
    CHECK_EQ(e2e_program(NULL, "%s", slow_words("whole", "TERM", 0, more)), 0);
    e2e_same_runs("whole", "part", 3);
    ares_str_fini(&out);
}

/* The second reset of the run: the first episodes are played by then. */
static const char slow_walk[] =
    "import json, os, signal, sys, time\n"
    "for line in sys.stdin:\n"
    "    q = json.loads(line)\n"
    "    if 'reset' in q and q['reset']['seed'] == 10005:\n"
    "        try: os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL))\n"
    "        except FileExistsError: pass\n"
    "        else: os.kill(os.getppid(), signal.SIGINT)\n"
    "        time.sleep(3600)\n"
    "    print(json.dumps({'observation': 'state', 'reward': 0.5, 'done': True}), flush=True)\n";

TEST(a_signal_ends_the_wait_for_an_environment_and_drops_the_step)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' env.train.tags=Own env.definitions.Own.type=command "
                         "'env.definitions.Own.options.command=[python3, %s, %s]' "
                         "env.definitions.Own.options.timeout_s=3600 "
                         "env.definitions.Own.options.start_timeout_s=3600",
                         agent_words_of(e2e_model(), "run"), e2e_write("walk.py", slow_walk),
                         test_file("asked")),
             130);
    CHECK_CONTAINS(out.data, "stopped by signal 2 after step 1 of 3");
    CHECK(ares_file_exists(test_file("run/checkpoints/rolling_000001/state.json")));
    ares_str_fini(&out);
}

TEST(a_signal_ends_the_wait_of_a_player_for_an_environment)
{
    static const char step[] = "import json, os, signal, sys, time\n"
                               "for line in sys.stdin:\n"
                               "    if 'step' in json.loads(line):\n"
                               "        os.kill(os.getppid(), signal.SIGINT)\n"
                               "        time.sleep(3600)\n"
                               "    print(json.dumps({'observation': 'state'}), flush=True)\n";
    ares_str out = { 0 };
    char text[600];
    snprintf(text, sizeof text,
             "env: {definitions: {Own: {type: command, options: {timeout_s: 3600, command: "
             "[python3, '%s']}}}}\n",
             e2e_write("step.py", step));
    CHECK_EQ(e2e_program(&out, "play --config '%s' --env Own --actions '%s'",
                         e2e_write("play.yaml", text), e2e_write("actions", "left\nright\n")),
             130);
    CHECK_CONTAINS(out.data, "--- end\ninterrupted");
    ares_str_fini(&out);
}
