/*
 * Every kind of architecture beside the plain one of the other tests, fresh and tiny: two steps of
 * GRPO, supervised fine-tuning, adapters, and what must change no bit of them. Numbers against
 * transformers are in tests/model/test_golden_models.c.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "e2e.h"

/* A window of 8 is shorter than every prompt. */
static const struct kind {
    const char *arch, *init;
} kinds[] = {
    { "mistral", "--layers 2 --window 8" },     { "smollm3", "--layers 4 --window 8" },
    { "olmo2", "--layers 2 --untied" },         { "olmo3", "--layers 4 --window 8" },
    { "gemma3_text", "--layers 6 --window 8" }, { "qwen3_5_text", "--layers 4" },
};
/* What the kind needs of every run; NULL: nothing. */
static const char *words_of(const struct kind *k)
{
    return strcmp(k->arch, "qwen3_5_text") == 0 ? "worker.actor.share_prompts=false" : "";
}

static const char *model_of(const struct kind *k)
{
    const char *dir = test_file(k->arch);
    if (!ares_dir_exists(dir))
        CHECK_EQ(e2e_program(NULL,
                             "init --arch %s --hidden 32 --heads 4 --kv-heads 2 --vocab 288 "
                             "--initializer-range 0.2 --seed 5 %s --out '%s'",
                             k->arch, k->init, dir),
                 0);
    return dir;
}

static bool trained(const struct kind *k, const char *run, const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out,
                         "--config '%s' worker.actor.model.model_path='%s' trainer.max_steps=2 "
                         "trainer.save_freq=1 worker.actor.optim.lr=1e-2 %s %s",
                         e2e_train_words(run), model_of(k), words_of(k), words);
    bool good = CHECK_MSG(rc == 0, "%s: %s", k->arch, out.data ? out.data : "");
    ares_str_fini(&out);
    for (int64_t step = 1; step <= 2 && good; step++) {
        good = CHECK_EQ(e2e_metric(run, step, "exact/rollout_train_max_abs"), 0) &&
               CHECK(e2e_metric(run, step, "actor/grad_norm") > 0);
        if (!good) printf("  %s, step %d, %s\n", k->arch, (int)step, words);
    }
    return good;
}

static void forget(const char *run)
{
    CHECK_OK(ares_dir_remove(test_file(run)));
}

/* Seen to fail: with the rotation left in layers without rope, in decoding alone. */
TEST(every_kind_trains_on_what_it_sampled_however_the_work_is_cut)
{
    static const char *const ways[] = {
        "trainer.threads=1 worker.actor.max_token_len_per_device=40 worker.actor.round_tokens=60 "
        "worker.actor.model.enable_gradient_checkpointing=true",
        "trainer.threads=3 worker.rollout.cache_tokens=256 "
        "worker.rollout.enable_prefix_caching=false worker.actor.offload.offload_params=true "
        "worker.actor.offload.offload_optimizer=true",
    };
    for (int i = 0; i < ARES_COUNT(kinds); i++) {
        if (!trained(&kinds[i], "plain", "")) continue;
        for (int w = 0; w < ARES_COUNT(ways); w++) {
            if (trained(&kinds[i], "way", ways[w]))
                CHECK_MSG(test_shell(NULL, "cmp '%s' '%s'",
                                     test_file("plain/checkpoints/step_000002/model/"
                                               "model.safetensors"),
                                     test_file("way/checkpoints/step_000002/model/"
                                               "model.safetensors")) == 0,
                          "%s: other weights with %s", kinds[i].arch, ways[w]);
            forget("way");
        }
        /* a checkpoint is read as it was written, and goes on to the same bits */
        if (e2e_go_back("plain", "whole", 1) && trained(&kinds[i], "plain", ""))
            e2e_same_runs("plain", "whole", 2);
        forget("plain");
        forget("whole");
    }
}

TEST(every_kind_has_adapters_and_learns_from_examples)
{
    for (int i = 0; i < ARES_COUNT(kinds); i++) {
        ares_str out = { 0 };
        bool nets = *words_of(&kinds[i]);
        ares_str said = { 0 };
        if (nets) { /* which have none yet */
            CHECK(e2e_program(&said,
                              "--config '%s' worker.actor.model.model_path='%s' "
                              "worker.actor.model.lora.rank=4 %s",
                              e2e_train_words("none"), model_of(&kinds[i]),
                              words_of(&kinds[i])) != 0);
            CHECK_CONTAINS(said.data, "adapters beside a qwen3_5_text are not built");
            ares_str_clear(&said);
            CHECK(e2e_program(&said, "--config '%s' worker.actor.model.model_path='%s'",
                              e2e_train_words("none"), model_of(&kinds[i])) != 0);
            CHECK_CONTAINS(said.data, "set worker.actor.share_prompts=false");
        }
        ares_str_fini(&said);
        trained(&kinds[i], "lora",
                nets ? "worker.actor.arithmetic=bf16 algorithm.disable_kl=false "
                       "algorithm.use_kl_loss=true"
                     : "worker.actor.model.lora.rank=4 worker.actor.arithmetic=bf16 "
                       "algorithm.disable_kl=false algorithm.use_kl_loss=true");
        CHECK(e2e_metric("lora", 1, "actor/kl_loss") == 0);
        forget("lora");
        int rc = e2e_program(&out, "sft --config '%s' worker.actor.model.model_path='%s'",
                             e2e_sft_words("sft"), model_of(&kinds[i]));
        if (CHECK_MSG(rc == 0, "%s: %s", kinds[i].arch, out.data ? out.data : ""))
            CHECK(e2e_metric("sft", 6, "train/loss") < e2e_metric("sft", 1, "train/loss"));
        forget("sft");
        ares_str_fini(&out);
    }
}
