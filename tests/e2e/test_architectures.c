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
    { "mistral", "--layers 2 --window 8" },
    { "smollm3", "--layers 4 --window 8" },
    { "olmo2", "--layers 2 --untied" },
    { "olmo3", "--layers 4 --window 8" },
    { "gemma3_text", "--layers 6 --window 8" },
    { "qwen3_5_text", "--layers 4" },
    { "qwen3_moe", "--layers 2 --experts 8 --experts-per-token 3 --expert-width 20" },
    { "olmoe", "--layers 2 --untied" },
};
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

/* Gives experts 1 and 2 of each layer of a model with experts the same router: a tie everywhere. */
static void tie_routers(const char *dir)
{
    ares_arena arena = { 0 };
    ares_str path = { 0 }, file = { 0 };
    const ares_json *header;
    uint64_t length;
    int tied = 0;
    CHECK_OK(ares_file_read(ares_path_join(&path, dir, "model.safetensors"), &file));
    memcpy(&length, file.data, sizeof length);
    REQUIRE_OK(
        ares_json_parse(&arena, (ares_view){ file.data + 8, (size_t)length }, path.data, &header));
    for (int64_t i = 0; i < header->count; i++) {
        const ares_json *t = header->members[i].value, *shape = ares_json_get(t, "shape"),
                        *at = ares_json_get(t, "data_offsets");
        char name[200];
        snprintf(name, sizeof name, "%.*s", (int)header->members[i].key.len,
                 header->members[i].key.data);
        if (!strstr(name, ".mlp.gate.weight")) continue;
        size_t row = (size_t)shape->items[1].integer * sizeof(float);
        char *rows = file.data + 8 + length + at->items[0].integer;
        memcpy(rows + 2 * row, rows + row, row);
        tied++;
    }
    CHECK_EQ(tied, 2);
    CHECK_OK(ares_file_write(path.data, file.data, file.len));
    ares_str_fini(&file);
    ares_str_fini(&path);
    ares_arena_fini(&arena);
}

static bool trained(const struct kind *k, const char *run, const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out,
                         "--config '%s' worker.actor.model.model_path='%s' trainer.max_steps=2 "
                         "trainer.save_freq=1 worker.actor.optim.lr=1e-2 "
                         "\"worker.reward.rewards=[{name: format, pattern: '.*[0-5].*', "
                         "finished: false}]\" %s",
                         e2e_train_words(run), model_of(k), words);
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

TEST(every_kind_trains_on_what_it_sampled_however_the_work_is_cut)
{
    static const char *const ways[] = {
        "trainer.threads=1 worker.actor.max_token_len_per_device=40 worker.actor.round_tokens=60 "
        "worker.actor.model.enable_gradient_checkpointing=true",
        "trainer.threads=3 worker.rollout.cache_tokens=256 "
        "worker.rollout.enable_prefix_caching=false worker.actor.offload.offload_params=true "
        "worker.actor.offload.offload_optimizer=true",
        "worker.actor.skip_zero_gradients=false",
    };
    int moved = 0;
    bool experts_moved = false;
    for (int i = 0; i < ARES_COUNT(kinds); i++) {
        int before = moved;
        if (!trained(&kinds[i], "plain", "")) continue;
        moved += e2e_metric("plain", 1, "perf/backward_frac") < 0.94;
        if (strstr(kinds[i].arch, "moe")) experts_moved |= moved > before;
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
    CHECK(moved >= 3 && experts_moved); /* rows without a derivative were left out */
}

TEST(every_kind_has_adapters_and_learns_from_examples)
{
    for (int i = 0; i < ARES_COUNT(kinds); i++) {
        ares_str out = { 0 };
        trained(&kinds[i], "lora",
                "worker.actor.model.lora.rank=4 worker.actor.arithmetic=bf16 "
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

/* The scores of the first of n sequences, as they are printed. */
static void score_first(const char *dir, int n, const char *words, ares_str *out)
{
    ares_str rows = { 0 };
    for (int i = 0; i < n; i++) {
        ares_str_add_z(&rows, "{\"input_ids\": [");
        for (int t = 0; t < 30 + i % 7; t++)
            ares_str_addf(&rows, t ? ", %d" : "%d", (i * 53 + t * (11 + i)) % 256);
        ares_str_add_z(&rows, "]}\n");
    }
    CHECK_OK(ares_file_write(test_file("rows.jsonl"), rows.data, rows.len));
    ares_str_clear(out);
    CHECK_EQ(e2e_program(out, "score --model '%s' --input '%s' %s | sed 1q", dir,
                         test_file("rows.jsonl"), words),
             0);
    ares_str_fini(&rows);
}

/* Where two experts tie at every token, whom a row goes to depends on nothing but its logits. */
TEST(experts_that_tie_are_chosen_alike_in_every_pass)
{
    /* the last two kinds */
    static const struct kind *of[] = { &kinds[ARES_COUNT(kinds) - 2],
                                       &kinds[ARES_COUNT(kinds) - 1] };
    for (int i = 0; i < ARES_COUNT(of); i++) {
        ares_str alone = { 0 }, among = { 0 };
        const char *dir = model_of(of[i]);
        for (int tie = 0; tie < 2; tie++) {
            if (tie) tie_routers(dir);
            score_first(dir, 1, "--threads 1", &alone);
            CHECK_CONTAINS(alone.data, "log_probs");
            for (int threads = 1; threads <= 5; threads += 2) {
                char words[32];
                snprintf(words, sizeof words, "--threads %d", threads);
                score_first(dir, 64, words, &among);
                CHECK_STR(among.data, alone.data);
            }
        }
        if (!trained(of[i], "plain", "") ||
            !trained(of[i], "way",
                     "trainer.threads=5 worker.actor.max_token_len_per_device=40 "
                     "worker.rollout.max_num_seqs=3"))
            continue;
        CHECK_EQ(test_shell(NULL, "cmp '%s' '%s'",
                            test_file("plain/checkpoints/step_000002/model/model.safetensors"),
                            test_file("way/checkpoints/step_000002/model/model.safetensors")),
                 0);
        double load = e2e_metric("plain", 1, "moe/load_max"),
               entropy = e2e_metric("plain", 1, "moe/router_entropy");
        CHECK(load >= 1 && load <= 8.0 / 2);
        CHECK(entropy > 0.5 && entropy < log(8) + 1e-6);
        CHECK(e2e_metric("plain", 1, "moe/load_unused") >= 0);
        CHECK_EQ(e2e_metric("way", 2, "moe/router_entropy"),
                 e2e_metric("plain", 2, "moe/router_entropy"));
        forget("plain");
        forget("way");
        ares_str_fini(&alone);
        ares_str_fini(&among);
    }
}

/* What is not built is refused by name, with what to do. */
TEST(what_an_architecture_does_not_have_is_refused)
{
    static const struct {
        const char *arch, *words, *part;
    } cases[] = {
        { "olmoe", "algorithm.adv_estimator=gae",
          "a critic that starts as a olmoe is not offered" },
        { "gemma3_text", "algorithm.adv_estimator=gae", "is not offered" },
        { "olmo3", "algorithm.adv_estimator=gae", "is not offered" },
        { "olmoe",
          "worker.actor.model.lora.rank=4 "
          "worker.actor.model.lora.target_modules=[q_proj,gate_proj]",
          "'gate_proj' is of experts" },
        { "qwen3_moe",
          "worker.actor.model.lora.rank=4 worker.actor.model.lora.target_modules=[gate]",
          "adapters of gate are not offered" },
        { "qwen3_moe",
          "worker.actor.model.lora.rank=4 "
          "'worker.actor.model.lora.target_modules=.*experts.*down_proj'",
          "is of experts" },
        { "qwen3_5_text",
          "worker.actor.model.lora.rank=4 "
          "worker.actor.model.lora.target_modules=[linear_attn.conv1d]",
          "adapters of conv1d are not offered" },
        { "qwen3_5_text", "trainer.kernels=aten worker.actor.fsdp.torch_dtype=bf16",
          "trainer.kernels=native" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const struct kind *k = kinds;
        ares_str out = { 0 };
        while (strcmp(k->arch, cases[i].arch) != 0) k++;
        int rc = e2e_program(&out, "--config '%s' worker.actor.model.model_path='%s' %s",
                             e2e_train_words("refused"), model_of(k), cases[i].words);
        CHECK(rc == 1 || rc == 2);
        CHECK_CONTAINS(out.data, cases[i].part);
        ares_str_fini(&out);
    }
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--check --config '%s' worker.actor.model.model_path='%s'",
                         e2e_train_words("none"), test_file("qwen3_5_text")),
             0);
    CHECK_CONTAINS(out.data, "the configuration is good");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "init --arch llama --experts 4 --out '%s'", test_file("none")), 2);
    CHECK_CONTAINS(out.data, "a llama has no experts");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "init --arch olmo2 --window 4 --out '%s'", test_file("none")), 2);
    CHECK_CONTAINS(out.data, "no layer of this olmo2 has a window");
    ares_str_fini(&out);
}

/* Of models whose kind transformers has with a head for values. */
TEST(critics_start_as_mistral_smollm3_qwen3_5_and_qwen3_moe)
{
    static const char *const archs[] = { "mistral", "smollm3", "qwen3_5_text", "qwen3_moe" };
    for (int i = 0; i < ARES_COUNT(archs); i++) {
        const struct kind *k = kinds;
        while (strcmp(k->arch, archs[i]) != 0) k++;
        if (trained(k, "values", "algorithm.adv_estimator=gae"))
            CHECK(e2e_metric("values", 2, "critic/vf_loss") > 0);
        ares_str text = { 0 };
        CHECK_OK(
            ares_file_read(test_file("values/checkpoints/step_000002/critic/config.json"), &text));
        CHECK_CONTAINS(text.data, "ForTokenClassification");
        ares_str_fini(&text);
        forget("values");
    }
}
