/*
 * Ranks that were not started alike, as mpirun's ":" starts them: one message that names the rank,
 * the option and both values, before a run directory is touched, and no rank that waits.
 */
#include "e2e.h"

#include <stdio.h>
#include <string.h>

typedef struct start {
    const char *options; /* of mpirun */
    const char *program, *words;
} start;

static int launch(ares_str *out, const start *zero, const start *last)
{
    ares_str_clear(out);
    return test_shell(out,
                      "cd '%s' && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                      "timeout 200 mpirun --oversubscribe --bind-to none %s '%s' %s : %s '%s' %s "
                      "2>&1",
                      test_file("."), zero->options, zero->program, zero->words, last->options,
                      last->program, last->words);
}

/* Both texts stand in the one message, and nothing has begun. */
static void refused(const start *zero, const start *last, const char *who, const char *what)
{
    ares_str out = { 0 };
    int rc = launch(&out, zero, last);
    const char *first = strstr(out.data, who);
    CHECK_MSG(rc == 2, "exit %d: %s", rc, out.data);
    CHECK_MSG(first && !strstr(first + 1, who), "not once '%s': %s", who, out.data);
    CHECK_CONTAINS(out.data, what);
    CHECK(!ares_dir_exists(test_file("run")) && !ares_dir_exists(test_file("disk_0/run")));
    ares_str_fini(&out);
}

/* The same configuration, and more words for either. */
static void refused_words(const char *verb, const char *config, const char *zero, const char *one,
                          const char *what)
{
    char a[1500], b[1500];
    (void)snprintf(a, sizeof a, "%s --config '%s' %s", verb, config, zero);
    (void)snprintf(b, sizeof b, "%s --config '%s' %s", verb, config, one);
    refused(&(start){ "-n 1", test_program(), a }, &(start){ "-n 1", test_program(), b },
            "error: rank 1: run: not started as rank 0 was (", what);
}

TEST_MPI(options_that_differ_between_ranks_are_named_with_both_values)
{
    E2E_NEEDS_MPI();
    const char *words = e2e_train_words("run");
    refused_words("train", words, "worker.actor.optim.lr=2e-3 worker.rollout.temperature=0.5",
                  "data.seed=9007199254740993 data.train_files=other.jsonl "
                  "'worker.reward.rewards.0.pattern=x'",
                  "(data.train_files: \"other.jsonl\", rank 0 has \"");
    refused_words("train", words, "worker.actor.optim.lr=2e-3 data.seed=9007199254740992",
                  "worker.rollout.temperature=0.5 data.seed=9007199254740993 "
                  "'worker.reward.rewards.0.pattern=x'",
                  "(data.seed: 9007199254740993, rank 0 has 9007199254740992; "
                  "worker.rollout.temperature: 0.5, rank 0 has 1.0; "
                  "worker.actor.optim.lr: 0.001, rank 0 has 0.002; "
                  "worker.reward.rewards.0.pattern: \"x\", rank 0 has \".*[0-9].*\"); start all ");
    /* what changes no result, but what ranks do together */
    refused_words("train", words, "",
                  "worker.actor.fsdp.enable_full_shard=true trainer.save_freq=1",
                  "worker.actor.fsdp.enable_full_shard: true, rank 0 has null; ");
}

TEST_MPI(other_commands_and_programs_of_a_rank_are_named)
{
    E2E_NEEDS_MPI();
    char words[600];
    const char *config = e2e_train_words("run");
    refused_words("train", config, "", "--check",
                  "(command: \"train --check\", rank 0 has \"train\");");
    (void)snprintf(words, sizeof words, "--config '%s'", config);
    CHECK_EQ(test_shell(NULL, "cp '%s' '%s' && echo >>'%s'", test_program(), test_file("other"),
                        test_file("other")),
             0);
    refused(&(start){ "-n 2", test_program(), words },
            &(start){ "-n 1", test_file("other"), words },
            "error: rank 2: run: not started as rank 0 was (", "(fingerprint of the program: \"");
}

/* ---------------- files: two folders stand for the disks of two machines */
static void shell(const char *words)
{
    CHECK_MSG(test_shell(NULL, "cd '%s' && %s", test_file("."), words) == 0, "%s", words);
}

static void model(const char *name, int seed)
{
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2 --hidden 16 --layers 1 --heads 2 --kv-heads 1 --seed "
                         "%d --out '%s'",
                         seed, test_file(name)),
             0);
}

static void make_disks(void)
{
    model("disk_0/model", 1);
    model("disk_0/critic", 2);
    model("other", 3);
    CHECK_EQ(test_shell(NULL, "cp '%s' '%s/a.jsonl'", test_source("examples/data/sums/train.jsonl"),
                        test_file("disk_0")),
             0);
    CHECK_EQ(test_shell(NULL, "cp '%s' '%s/sft.jsonl'", test_source("examples/data/sums/sft.jsonl"),
                        test_file("disk_0")),
             0);
    e2e_write("run.yaml",
              "trainer: {run_dir: run, max_steps: 1, logger: [console], save_freq: 1}\n"
              "data: {train_files: a.jsonl, max_prompt_length: 48, max_response_length: 8,\n"
              "       rollout_batch_size: 4}\n"
              "algorithm: {adv_estimator: grpo, disable_kl: true}\n"
              "worker:\n"
              "  actor: {model: {model_path: model}, global_batch_size: 4}\n"
              "  rollout: {n: 2}\n"
              "  reward: {rewards: [{name: format, pattern: '.*[0-9].*', finished: false}]}\n");
    e2e_write("sft.yaml", "trainer: {run_dir: run, max_steps: 1, logger: [console]}\n"
                          "data: {train_files: sft.jsonl}\n"
                          "sft: {batch_size: 8, max_length: 128}\n"
                          "worker: {actor: {model: {model_path: model}}}\n");
    shell("cd disk_0 && mkdir rows && head -n 8 a.jsonl >val.jsonl && cp val.jsonl rows/b.jsonl && "
          "echo '{{ "
          "content }}' >format.jinja && cd .. && cp -r disk_0 disk_1");
}

/* Each rank in its folder. */
static int on_disks(ares_str *out, const char *zero, const char *one)
{
    return launch(out, &(start){ "-n 1 --wdir disk_0", test_program(), zero },
                  &(start){ "-n 1 --wdir disk_1", test_program(), one });
}

enum { DIFFERENT = 5 };

static void refused_files(const char *words, const char *const what[DIFFERENT])
{
    ares_str out = { 0 };
    static const char who[] = "error: rank 1: run: other contents than on rank 0, by their ";
    int rc = on_disks(&out, words, words);
    const char *first = strstr(out.data, who);
    CHECK_MSG(rc == 2, "%s: exit %d: %s", words, rc, out.data);
    CHECK_MSG(first && !strstr(first + 1, who), "not once '%s': %s", who, out.data);
    for (int i = 0; i < DIFFERENT && what[i]; i++) CHECK_CONTAINS(out.data, what[i]);
    ares_str_fini(&out);
}

TEST_MPI(models_and_files_that_differ_between_ranks_are_named)
{
    E2E_NEEDS_MPI();
    static const struct {
        const char *words, *edit, *what[DIFFERENT];
    } cases[] = {
        { "train --config ../run.yaml data.format_prompt=format.jinja",
          "rm -r model && cp -r ../other model && sed -i 's/\"rms_norm_eps\": */&1/' "
          "model/config.json && echo >>model/tokenizer_config.json && echo >>format.jinja && "
          "sed -i '7s/answer\":\"/&1/' a.jsonl",
          { "(worker.actor.model.model_path: model (",
            "; worker.actor.model.model_path/config.json: model/config.json (",
            "; worker.actor.model.model_path/tokenizer_config.json: model/tokenizer_config.json (",
            "; data.format_prompt: format.jinja (", "; data.train_files.0: a.jsonl (" } },
        { "train --config ../run.yaml 'data.train_files=[\"a.jsonl@[0:20]\",rows,val.jsonl]' "
          "worker.actor.model.tokenizer_path=critic algorithm.adv_estimator=gae "
          "worker.critic.model.model_path=critic",
          "rm -r critic && cp -r ../other critic && echo >>critic/tokenizer.json && mv "
          "rows/b.jsonl rows/c.jsonl && rm val.jsonl",
          { "(worker.actor.model.tokenizer_path/tokenizer.json: critic/tokenizer.json (",
            "; worker.critic.model.model_path: critic (", "; data.train_files.1: rows (",
            "; data.train_files.2: val.jsonl (cannot be read), rank 0 has val.jsonl (" } },
        { "eval --config ../run.yaml 'data.val_files=[a.jsonl,val.jsonl]' 'eval.datasets={x: "
          "{path: "
          "a.jsonl}, y: {path: rows/b.jsonl}}'",
          "echo >>val.jsonl && sed -i 1d rows/b.jsonl",
          { "(data.val_files.1: val.jsonl (", "; eval.datasets.y: rows/b.jsonl (" } },
        { "sft --config ../sft.yaml",
          "sed -i '1d' sft.jsonl",
          { "(data.train_files.0: sft.jsonl (" } },
    };
    ares_str edit = { 0 };
    make_disks();
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&edit);
        ares_str_addf(&edit, "rm -rf disk_1 && cp -r disk_0 disk_1 && cd disk_1 && %s",
                      cases[i].edit);
        shell(edit.data);
        refused_files(cases[i].words, cases[i].what);
        shell("test ! -e disk_0/run && test ! -e disk_1/run");
    }
    ares_str_fini(&edit);
}

TEST_MPI(a_model_may_lie_elsewhere_and_a_checkpoint_must_be_the_same)
{
    E2E_NEEDS_MPI();
    static const char next[] =
        "train --config ../run.yaml trainer.run_dir=next trainer.max_steps=2 "
        "trainer.load_checkpoint_path=run",
                      look[] = "eval --config ../run.yaml data.val_files=val.jsonl "
                               "trainer.load_checkpoint_path=run";
    static const char *const state[DIFFERENT] = { "(state of the checkpoint: "
                                                  "run/checkpoints/step_000001/state.json (" },
                             *const weights[DIFFERENT] = { "(weights of the checkpoint: "
                                                           "run/checkpoints/step_000001/model (" };
    ares_str out = { 0 };
    make_disks();
    shell("mv disk_1/model disk_1/copy");
    int rc = on_disks(&out, "train --config ../run.yaml trainer.threads=1",
                      "train --config ../run.yaml worker.actor.model.model_path=copy "
                      "trainer.threads=2");
    CHECK_MSG(rc == 0, "%s", out.data);
    rc = on_disks(&out, "train --config ../run.yaml worker.critic.model.model_path=critic",
                  "train --config ../run.yaml worker.actor.model.model_path=copy "
                  "worker.actor.model.tokenizer_path=critic/tokenizer.json");
    CHECK_MSG(rc == 2, "%d: %s", rc, out.data);
    CHECK_CONTAINS(out.data, "(worker.actor.model.tokenizer_path: critic/tokenizer.json (");
    CHECK_CONTAINS(out.data, "), rank 0 has none; worker.critic.model.model_path: none, rank 0 ");
    shell("mv disk_1/copy disk_1/model && cp -r disk_0/run disk_1 && "
          "sed -i 's/\"validated_score\": */&1/' disk_1/run/checkpoints/step_000001/state.json");
    refused_files(next, state);
    shell("rm -rf disk_0/next disk_1/run && cp -r disk_0/run disk_1 && cp other/model.safetensors "
          "disk_1/run/checkpoints/step_000001/model");
    refused_files(look, weights);
    shell("rm -rf disk_1/run && cp -r disk_0/run disk_1");
    rc = on_disks(&out, look, look);
    CHECK_MSG(rc == 0, "%s", out.data);
    rc = on_disks(&out, next, next);
    CHECK_MSG(rc == 0, "%s", out.data);
    CHECK_CONTAINS(out.data, "going on from ");
    ares_str_fini(&out);
}
