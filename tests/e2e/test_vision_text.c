/* Text alone, to a model that sees: the bits of the plain Qwen2 model with the same weights. */
#include <math.h>
#include <stdio.h>

#include "ares/io.h"
#include "vision_runs.h"

/* The configuration without what a text model has none of. */
static const char config[] =
    "{\"model_type\": \"qwen2\", \"vocab_size\": 512, \"hidden_size\": 64, \"num_hidden_layers\": "
    "2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 192, "
    "\"max_position_embeddings\": 2048, \"tie_word_embeddings\": true, \"architectures\": "
    "[\"Qwen2ForCausalLM\"], \"torch_dtype\": \"float32\", \"hidden_act\": \"silu\", "
    "\"use_sliding_window\": false, \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, "
    "\"bos_token_id\": 256, \"eos_token_id\": 258, \"pad_token_id\": 256}";

/* Tensors of the file that are not of the tower, declared or written. */
static int copy_text(const ares_safetensors *in, ares_safetensors_writer *w, bool declare)
{
    int n = 0;
    for (int64_t i = 0; i < ares_safetensors_count(in); i++) {
        const ares_tensor_info *t = ares_safetensors_at(in, i);
        if (strstr(t->name, "visual.")) continue;
        if (declare) ares_safetensors_declare(w, t->name, t->dtype, t->rank, t->shape);
        else CHECK_OK(ares_safetensors_write(w, t->data, (size_t)t->bytes));
        n++;
    }
    return n;
}

/* The text part of vision_model, as a model of its own. */
static const char *text_model(void)
{
    const char *dir = test_file("reads");
    ares_safetensors *in;
    ares_safetensors_writer *w;
    CHECK_EQ(test_shell(NULL,
                        "cp -r '%s' '%s' && cd '%s' && rm preprocessor_config.json *.safetensors",
                        vision_model(), dir, dir),
             0);
    e2e_write("reads/config.json", config);
    if (!CHECK_OK(ares_safetensors_open(test_file("sees/model.safetensors"), &in)) ||
        !CHECK_OK(ares_safetensors_create(test_file("reads/model.safetensors"), &w)))
        return dir;
    CHECK(copy_text(in, w, true) > 20);
    copy_text(in, w, false);
    CHECK_OK(ares_safetensors_finish(w));
    ares_safetensors_close(in);
    return dir;
}

static void same_output(const char *input, const char *format, const char *a, const char *b)
{
    ares_str x = { 0 }, y = { 0 };
    const char *path = e2e_write("lines.jsonl", input);
    CHECK_EQ(e2e_program(&x, format, a, path), 0);
    CHECK_EQ(e2e_program(&y, format, b, path), 0);
    CHECK_STR(x.data, y.data);
    CHECK(x.len > 100);
    ares_str_fini(&x);
    ares_str_fini(&y);
}

TEST(lines_of_text_have_the_log_probs_and_answers_of_the_plain_model)
{
    const char *plain = text_model(), *sees = vision_model();
    same_output("{\"text\":\"What do you see here?\"}\n"
                "{\"prompt\":\"Why?\",\"response\":\"because\"}\n",
                "score --model '%s' --input '%s'", sees, plain);
    same_output("{\"prompt\":\"Why?\"}\n{\"prompt\":\"Which of these?\"}\n",
                "generate --model '%s' --input '%s' --max-new-tokens 12 --seed 3", sees, plain);
}

TEST(a_run_over_text_is_that_of_the_plain_model_bit_for_bit)
{
    static const char words[] = "algorithm.disable_kl=false algorithm.use_kl_loss=true "
                                "worker.actor.global_batch_size=2 trainer.max_steps=3 "
                                "trainer.threads=1 data.filter_overlong_prompts=false ";
    const char *rows = test_source("examples/data/sums/train.jsonl");
    char plain[300];
    int64_t tensors;
    snprintf(plain, sizeof plain, "worker.actor.model.model_path='%s'", text_model());
    vision_trains("plain", "data.train_files='%s' %s %s", rows, words, plain);
    vision_trains("sees", "data.train_files='%s' %s", rows, words);
    vision_trains("options",
                  "data.train_files='%s' %s data.min_pixels=500 data.max_pixels=600 "
                  "data.video_fps=3 data.vision_cache_gb=0 worker.rollout.limit_images=1 "
                  "data.filter_unreadable_media=true",
                  rows, words);
    for (int step = 1; step <= 3; step++) {
        CHECK(e2e_same_rollouts("plain", "sees", step));
        CHECK_NEAR(e2e_metric("sees", step, "actor/grad_norm"),
                   e2e_metric("plain", step, "actor/grad_norm"), 0);
        CHECK_NEAR(e2e_metric("sees", step, "actor/kl_loss"),
                   e2e_metric("plain", step, "actor/kl_loss"), 0);
        CHECK_NEAR(e2e_metric("sees", step, "data/image_tokens"), 0, 0);
    }
    const char *const weights[] = {
        test_file("plain/checkpoints/step_000003/model/model.safetensors"),
        test_file("sees/checkpoints/step_000003/model/model.safetensors")
    };
    CHECK_EQ(vision_changed(weights[0], weights[1], "model.", &tensors), 0);
    CHECK(tensors > 20);
    e2e_same_runs("sees", "options", 3);
    /* no row has a picture, so that a trained tower has no gradient, and does not change */
    vision_trains("trained",
                  "data.train_files='%s' %s worker.actor.model.freeze_vision_tower=false", rows,
                  words);
    CHECK(e2e_same_rollouts("sees", "trained", 3));
    CHECK_EQ(vision_changed(test_file("sees/model.safetensors"),
                            test_file("trained/checkpoints/step_000003/model/model.safetensors"),
                            "visual.", &tensors),
             0);
}
