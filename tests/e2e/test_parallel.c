/*
 * Whole runs in which ranks decode as one (docs/ranks.md#tensor-parallelism): every bit that the
 * same ranks write when each decodes by itself.
 */
#include <stdio.h>
#include <string.h>

#include "e2e.h"

/* Four kv heads, and a vocabulary of three chunks. */
static const char *model(void)
{
    const char *dir = test_file("heads");
    if (!ares_dir_exists(dir))
        CHECK_EQ(e2e_program(NULL,
                             "init --arch qwen2 --hidden 64 --layers 2 --heads 8 --kv-heads 4 "
                             "--intermediate 96 --vocab 1500 --seed 3 --out '%s'",
                             dir),
                 0);
    return dir;
}

static void trains(const char *config, int ranks, const char *words, int parts)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out,
                         "--ranks %d --config '%s' trainer.threads=1 trainer.max_steps=2 "
                         "worker.actor.model.model_path='%s' %s "
                         "worker.rollout.tensor_parallel_size=%d",
                         ranks, config, model(), words, parts);
    CHECK_MSG(rc == 0, "%s", out.data);
    ares_str_fini(&out);
}

static void same(int ranks, int parts, const char *words)
{
    char alone[32], together[32];
    snprintf(alone, sizeof alone, "alone_%d_%d", ranks, parts);
    snprintf(together, sizeof together, "together_%d_%d", ranks, parts);
    trains(e2e_train_words(alone), ranks, words, 1);
    trains(e2e_train_words(together), ranks, words, parts);
    CHECK(e2e_same_runs(alone, together, 2));
    CHECK_EQ(e2e_metric(together, 2, "exact/rollout_train_max_abs"), 0);
}

TEST_MPI(ranks_that_decode_as_one_train_as_each_by_itself)
{
    E2E_NEEDS_MPI();
    char words[300];
    snprintf(words, sizeof words,
             "data.val_files='%s' data.val_batch_size=3 worker.rollout.top_p=0.9 "
             "worker.rollout.cache_tokens=256",
             test_source("examples/data/sums/val.jsonl"));
    same(2, 2, words);
    same(4, 2,
         "curriculum.over_sampling_batch_size=6 curriculum.partial_rollout=true "
         "algorithm.adv_estimator=remax worker.rollout.max_num_seqs=5");
}

/* Environments that answer at once: turns of two ranks come at different steps. */
static const char *episodes(const char *run)
{
    char text[1200], file[64];
    snprintf(text, sizeof text,
             "env:\n"
             "  train: {tags: Bandit, groups: 2, group_size: 2}\n"
             "  max_turns: 2\n"
             "  enable_think: false\n"
             "  token_exact: true\n"
             "algorithm: {adv_estimator: grpo, disable_kl: true}\n"
             "data: {max_response_length: 8}\n"
             "worker:\n"
             "  rollout: {max_model_len: 1200}\n"
             "  actor: {mini_batch_unit: rows, global_batch_size: 4}\n"
             "trainer: {logger: [console], run_dir: '%s'}\n",
             test_file(run));
    snprintf(file, sizeof file, "episodes_%s.yaml", run);
    return e2e_write(file, text);
}

TEST_MPI(ranks_that_decode_as_one_play_the_same_episodes)
{
    E2E_NEEDS_MPI();
    trains(episodes("alone"), 2, "", 1);
    trains(episodes("together"), 2, "", 2);
    CHECK(e2e_same_runs("alone", "together", 2));
}

TEST_MPI(a_model_that_does_not_divide_among_the_ranks_is_refused)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--ranks 3 --config '%s' data.rollout_batch_size=3 "
                         "worker.actor.global_batch_size=3 worker.actor.model.model_path='%s' "
                         "worker.rollout.tensor_parallel_size=3",
                         e2e_train_words("refused"), model()),
             2);
    CHECK_CONTAINS(out.data, "worker.rollout.tensor_parallel_size = 3: does not divide 8 heads, "
                             "4 kv heads, an intermediate size of 96 and a hidden size of 64 "
                             "(choices: 1, 2, 4)");
    ares_str_fini(&out);
}
