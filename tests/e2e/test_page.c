/*
 * Reports opened by a browser (page.py): runs of this program, of each kind that has charts of its
 * own, texts that want to be obeyed, answers of 4,096 tokens, several runs. The browser sees no
 * network.
 */
#include "e2e.h"

#include <stdio.h>

/* Two steps of a tiny model, validated before and after. */
static int train_tiny(const char *name, const char *more)
{
    return test_shell(
        NULL,
        "cd '%s' && '%s' worker.actor.model.model_path=model data.train_files='%s' "
        "data.val_files='%s' data.val_batch_size=4 data.rollout_batch_size=2 "
        "worker.actor.global_batch_size=1 worker.rollout.n=4 data.max_response_length=24 "
        "'worker.reward.rewards=[{name: random}]' trainer.max_steps=2 trainer.val_freq=2 "
        "trainer.save_freq=-1 trainer.threads=1 trainer.run_dir=%s %s > %s.log 2>&1",
        test_dir(), test_program(), test_source("examples/data/sums/train.jsonl"),
        test_source("examples/data/sums/val.jsonl"), name, more, name);
}

/* Two steps of each kind of run whose page has charts and columns of its own. */
static void train_kinds(void)
{
    static const char *const kinds[][2] = {
        { "aepo", "--config experiments/AEPO/config.yaml --config experiments/AEPO/tiny.yaml "
                  "data.bootstrap=false data.max_response_length=24 trainer.val_freq=-1 "
                  "worker.reward.accuracy=random data.rollout_batch_size=2 worker.rollout.n=4 "
                  "worker.actor.global_batch_size=2" },
        { "vapor",
          "--config experiments/VAPOR/config.yaml --config experiments/VAPOR/tiny.yaml "
          "data.train_files=\"$dir\"/pairs.jsonl data.apply_chat_template=false "
          "data.rollout_batch_size=2 worker.rollout.n=4 worker.actor.global_batch_size=2" },
        { "frozen_lake", "--config configs/presets/_3_frozen_lake.yaml env.train.groups=2 "
                         "env.train.group_size=4 env.val.groups=2 env.max_turns=2 "
                         "data.max_response_length=16 worker.rollout.max_model_len=2000 "
                         "worker.actor.global_batch_size=4 worker.critic.global_batch_size=4 "
                         "worker.rollout.rollout_filter_value=1 trainer.val_freq=2" },
    };
    e2e_write("pairs.jsonl",
              "{\"prompt\":\"1<N>\",\"answer\":\"1\",\"chosen\":\"<N>1</N><S>sure</S>\","
              "\"rejected\":\"<N>1</N><S>maybe</S>\"}\n"
              "{\"prompt\":\"2<N>\",\"answer\":\"2\",\"chosen\":\"<N>2</N><S>sure</S>\","
              "\"rejected\":\"<N>2</N><S>maybe</S>\"}\n");
    for (int i = 0; i < ARES_COUNT(kinds); i++)
        CHECK_EQ(test_shell(NULL,
                            "dir='%s' && cd '%s' && '%s' %s worker.actor.model.model_path=\"$dir\""
                            "/model trainer.max_steps=2 trainer.save_freq=-1 trainer.threads=1 "
                            "trainer.run_dir=\"$dir\"/%s > \"$dir\"/%s.log 2>&1",
                            test_dir(), test_source("."), test_program(), kinds[i][1], kinds[i][0],
                            kinds[i][0]),
                 0);
}

TEST_SLOW(reports_stand_in_a_browser_by_keys_alone_and_obey_no_text)
{
    ares_str said = { 0 };
    if (test_shell(NULL, "python3 --version > /dev/null 2>&1") != 0)
        SKIP("page.py needs a python3; apt-get install python3");
    if (test_shell(NULL, "for p in chromium chromium-browser google-chrome chrome; do "
                         "command -v $p > /dev/null && exit 0; done; exit 1") != 0)
        SKIP("there is no browser; scripts/setup.sh --browser");
    REQUIRE(test_shell(NULL,
                       "cd '%s' && '%s' init --arch qwen2 --hidden 32 --layers 2 --heads 2 "
                       "--kv-heads 1 --seed 3 --out model > /dev/null && python3 '%s' make .",
                       test_dir(), test_program(), test_source("tests/e2e/page.py")) == 0);
    /* the run writes its own report; the second one is told not to */
    CHECK_EQ(train_tiny("run_1", "data.seed=1"), 0);
    CHECK_EQ(train_tiny("run_2", "data.seed=2 trainer.report=false"), 0);
    CHECK(ares_file_exists(test_file("run_1/report.html")));
    CHECK(!ares_file_exists(test_file("run_2/report.html")));
    train_kinds();
    REQUIRE_OK(ares_file_read(test_file("run_1/summary.txt"), &said));
    CHECK_CONTAINS(said.data, "\nreport         run_1/report.html\n");
    CHECK_CONTAINS(said.data, "\ngood  Finished: 2 of 2 steps\n");
    CHECK_CONTAINS(said.data, "\ngood  Sampled is trained: ");
    ares_str_clear(&said);
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && mkdir two && '%s' report hostile > /dev/null && '%s' report "
                        "long > /dev/null && '%s' report run_1 run_2 --out two/report.html",
                        test_dir(), test_program(), test_program(), test_program()),
             0);
    int rc = test_shell(&said,
                        "cd '%s' && python3 '%s' check run_1/report.html hostile/report.html "
                        "long/report.html two/report.html aepo/report.html vapor/report.html "
                        "frozen_lake/report.html 2>&1",
                        test_dir(), test_source("tests/e2e/page.py"));
    printf("%s", said.data ? said.data : "");
    CHECK_EQ(rc, 0);
    ares_str_fini(&said);
}
