/*
 * From which state a run resumes: its own, a named one, and never that of another data set or model
 * unless forced. These tests failed when the vectors of a bf16 model were rounded by its checkpoint
 * (the resumed run differed).
 */
#include "../../src/kernels/host.h"
#include "ares/io.h"
#include "ares/kernels.h"
#include "e2e.h"

#include <math.h>
#include <stdio.h>

#define STEPS "trainer.max_steps=4 trainer.save_freq=2"

/* Starts a new run from a state; out: what it prints. Gives the exit status. */
static int start_from(ares_str *out, const char *state, const char *more)
{
    ares_str_clear(out);
    int rc = e2e_program(out, "--config '%s' " STEPS " trainer.load_checkpoint_path='%s' %s",
                         e2e_train_words("next"), state, more);
    ares_dir_remove(test_file("next"));
    return rc;
}

TEST(a_checkpoint_and_a_run_directory_may_be_named_and_an_absent_folder_is_refused)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS, e2e_train_words("first")), 0);
    CHECK_EQ(start_from(&out, test_file("first/checkpoints/step_000002"), ""), 0);
    CHECK_CONTAINS(out.data, "step_000002, step 2 of 4");
    CHECK_EQ(start_from(&out, test_file("first"), "trainer.max_steps=5"), 0);
    CHECK_CONTAINS(out.data, "step_000004, step 4 of 5");
    CHECK_EQ(start_from(&out, test_file("first"), "trainer.max_steps=3"), 0);
    CHECK_CONTAINS(out.data, "step_000004, step 4 of 3"); /* all is done: the run ends at once */
    CHECK_EQ(start_from(&out, test_file("nowhere"), ""), 2);
    CHECK_CONTAINS(out.data, "nowhere': no such folder; name a checkpoint or a run directory, or "
                             "leave it out to begin with worker.actor.model.model_path");
    CHECK_OK(ares_dir_make(test_file("empty")));
    CHECK(start_from(&out, test_file("empty"), "") != 0);
    CHECK_CONTAINS(out.data, "neither a checkpoint");
    ares_str_fini(&out);
}

TEST(a_state_of_another_data_set_is_refused_unless_forced)
{
    ares_str out = { 0 };
    const char *rows = e2e_write(
        "rows.jsonl",
        "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n{\"prompt\":\"1+2=?\",\"answer\":\"3\"}\n{"
        "\"prompt\":\"1+3=?\",\"answer\":\"4\"}\n"
        "{\"prompt\":\"2+2=?\",\"answer\":\"4\"}\n{\"prompt\":\"2+3=?\",\"answer\":\"5\"}\n");
    char files[600], forced[700], controls[700];
    snprintf(files, sizeof files, "data.train_files=['%s']", rows);
    snprintf(forced, sizeof forced, "--force \"%s\"", files);
    snprintf(controls, sizeof controls,
             "\"%s\" algorithm.aepo=true 'worker.reward.rewards=[{name: exact}]'", files);
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' " STEPS
                         " algorithm.aepo=true 'worker.reward.rewards=[{name: exact}]'",
                         e2e_train_words("first")),
             0);
    CHECK(start_from(&out, test_file("first/checkpoints/step_000002"), controls) != 0);
    CHECK_CONTAINS(out.data, "controls.json: the state is of another data set");
    char quoted[700];
    snprintf(quoted, sizeof quoted, "\"%s\"", files);
    CHECK(start_from(&out, test_file("first/checkpoints/step_000002"), quoted) != 0);
    CHECK_CONTAINS(out.data, "training rows, the data set has 5 now");
    CHECK_EQ(start_from(&out, test_file("first/checkpoints/step_000002"), forced), 0);
    CHECK_CONTAINS(out.data, "going on from");
    ares_str_fini(&out);
}

/* All files have the same number of rows; the state is from step 2 of a run on the first file. */
TEST(a_state_is_refused_where_a_prompt_an_answer_or_an_id_of_a_row_has_changed)
{
    static const struct {
        const char *what, *last;
    } rows[] = {
        { "nothing", "{\"prompt\":\"2+3=?\",\"answer\":\"5\",\"global_id\":\"d\"}" },
        { "the answer", "{\"prompt\":\"2+3=?\",\"answer\":\"6\",\"global_id\":\"d\"}" },
        { "the prompt", "{\"prompt\":\"2+4=?\",\"answer\":\"5\",\"global_id\":\"d\"}" },
        { "the id", "{\"prompt\":\"2+3=?\",\"answer\":\"5\",\"global_id\":\"e\"}" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(rows); i++) {
        char text[400], name[40], files[700];
        snprintf(text, sizeof text,
                 "{\"prompt\":\"1+1=?\",\"answer\":\"2\",\"global_id\":\"a\"}\n"
                 "{\"prompt\":\"1+2=?\",\"answer\":\"3\",\"global_id\":\"b\"}\n"
                 "{\"prompt\":\"1+3=?\",\"answer\":\"4\",\"global_id\":\"c\"}\n%s\n",
                 rows[i].last);
        snprintf(name, sizeof name, "rows_%d.jsonl", i);
        snprintf(files, sizeof files, "'data.train_files=[%s]'", e2e_write(name, text));
        if (i == 0)
            CHECK_EQ(
                e2e_program(NULL, "--config '%s' " STEPS " %s", e2e_train_words("first"), files),
                0);
        int rc = start_from(&out, test_file("first/checkpoints/step_000002"), files);
        CHECK_MSG((rc == 0) == (i == 0), "%s differs: exit status %d: %s", rows[i].what, rc,
                  out.data);
        CHECK_CONTAINS(out.data, i ? "the state is of another data set than data.train_files"
                                   : "going on from");
    }
    ares_str_fini(&out);
}

TEST(a_state_of_a_run_that_began_with_other_weights_is_refused_unless_forced)
{
    ares_str out = { 0 };
    char words[700];
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS, e2e_train_words("first")), 0);
    CHECK_EQ(
        e2e_program(
            NULL,
            "init --arch qwen2 --hidden 32 --layers 2 --heads 2 --kv-heads 1 --seed 4 --out '%s'",
            test_file("other")),
        0);
    snprintf(words, sizeof words, "worker.actor.model.model_path='%s'", test_file("other"));
    CHECK(start_from(&out, test_file("first"), words) != 0);
    CHECK_CONTAINS(out.data,
                   "the run began with other weights than are in worker.actor.model.model_path");
    snprintf(words, sizeof words, "worker.actor.model.model_path='%s' trainer.max_steps=5 --force",
             test_file("other"));
    CHECK_EQ(start_from(&out, test_file("first"), words), 0);
    CHECK_CONTAINS(out.data, "the state is of another model");
    ares_str_fini(&out);
}

/*
 * In fp32 bf16 weights keep their masters under adamw, and what rounding left out under adamw_bf16.
 */
TEST(optimizer_states_of_another_strategy_are_refused_of_actor_and_critic)
{
    static const char *const roles[] = { "actor", "critic" };
    static const char both[] = "algorithm.adv_estimator=gae worker.actor.fsdp.torch_dtype=bf16"
                               " worker.critic.fsdp.torch_dtype=bf16";
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS " %s", e2e_train_words("first"), both), 0);
    for (int i = 0; i < ARES_COUNT(roles); i++)
        for (int force = 0; force < 2; force++) {
            char words[400], message[200];
            snprintf(words, sizeof words, "%s worker.%s.optim.strategy=adamw_bf16%s", both,
                     roles[i], force ? " --force" : "");
            snprintf(
                message, sizeof message,
                "the states are those of worker.%s.optim.strategy = 'adamw', not of 'adamw_bf16'",
                roles[i]);
            CHECK(start_from(&out, test_file("first/checkpoints/step_000002"), words) != 0);
            CHECK_CONTAINS(out.data, message);
        }
    CHECK_EQ(start_from(&out, test_file("first/checkpoints/step_000002"), both), 0);
    /* files of bf16 are rounded, and fp32 has no copy to read beside them */
    for (int i = 0; i < ARES_COUNT(roles); i++) {
        char words[400], message[200];
        snprintf(words, sizeof words, "%s worker.%s.fsdp.torch_dtype=fp32 --force", both, roles[i]);
        snprintf(message, sizeof message,
                 "the states are those of worker.%s.fsdp.torch_dtype = 'bf16', not of 'fp32'",
                 roles[i]);
        CHECK(start_from(&out, test_file("first/checkpoints/step_000002"), words) != 0);
        CHECK_CONTAINS(out.data, message);
    }
    ares_str_fini(&out);
}

/* Each file in turn is truncated, as by a full disk; the rest of the checkpoint is sound. */
TEST(a_checkpoint_with_a_damaged_file_is_refused_and_the_file_named)
{
    static const char *const files[] = { "model/model.safetensors",
                                         "critic/model.safetensors",
                                         "optimizer.safetensors",
                                         "critic_optimizer.safetensors",
                                         "controls.json",
                                         "source.json",
                                         "state.json" };
    static const char words[] = "trainer.max_steps=3 algorithm.adv_estimator=gae "
                                "algorithm.disable_kl=false algorithm.use_kl_in_reward=true "
                                "algorithm.kl_type=adaptive algorithm.kl_horizon=100";
    ares_str out = { 0 };
    const char *config = e2e_train_words("run");
    int trained = e2e_program(&out, "--config '%s' %s trainer.max_steps=2", config, words);
    if (!CHECK_MSG(trained == 0, "%s", out.data)) return;
    const char *whole = test_file("whole");
    CHECK_EQ(test_shell(NULL, "mv '%s/checkpoints/step_000002' '%s'", test_file("run"), whole), 0);
    for (int i = 0; i <= ARES_COUNT(files); i++) {
        const char *file = i < ARES_COUNT(files) ? files[i] : NULL;
        char damaged[40];
        snprintf(damaged, sizeof damaged, "damaged_%d", i);
        CHECK_EQ(test_shell(NULL, "cp -r '%s' '%s'", whole, test_file(damaged)), 0);
        if (file) CHECK_EQ(test_shell(NULL, "truncate -s 40 '%s/%s'", test_file(damaged), file), 0);
        int rc = start_from(&out, test_file(damaged), words);
        CHECK_MSG((rc == 0) == !file, "%s: status %d\n%s", file ? file : "nothing", rc, out.data);
        if (file) CHECK_CONTAINS(out.data, file);
    }
    ares_str_fini(&out);
}

TEST(a_state_of_the_source_that_is_missing_or_forged_is_refused_and_the_file_named)
{
    static const struct {
        const char *edit, *message;
    } cases[] = {
        { "rm source.json", "source.json: no such file; the checkpoint is damaged" },
        { ": >source.json", "train: the checkpoint is damaged: " },
        { "truncate -s 40 source.json", "source.json:1:39: " },
        { "echo [] >source.json", "source.json: no count 'prompts_drawn'" },
        { "sed -i 's/\"dataset\"/\"mixture\"/' source.json",
          "source.json: the state is of a source 'mixture', and the run draws from a 'dataset'" },
        { "sed -i 's/\"skipped_rows\":\\[/&[3000,0]/' source.json",
          "source.json: 'skipped_rows' holds no pairs of a row and an epoch" },
        { "sed -i 's/\"training_rows\":/&1/' source.json", "training rows, the data set has" },
        { "sed -i 's/\"prompts_drawn\":8/\"prompts_drawn\":9/' source.json",
          "9 prompts drawn are not a whole number of draws of 4" },
        { "sed -i 's/\"version\":[^0-9]*3,/\"version\": 2,/' state.json",
          "version 2 of the state; this program reads version 3: begin a new run" },
        { "true", "going on from" },
    };
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS, e2e_train_words("first")), 0);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char forged[40];
        snprintf(forged, sizeof forged, "forged_%d", i);
        CHECK_EQ(test_shell(NULL, "cp -r '%s/checkpoints/step_000002' '%s' && cd '%s' && %s",
                            test_file("first"), test_file(forged), test_file(forged),
                            cases[i].edit),
                 0);
        int rc = start_from(&out, test_file(forged), "");
        CHECK_MSG((rc == 0) == (i == ARES_COUNT(cases) - 1), "%s: status %d", cases[i].edit, rc);
        CHECK_CONTAINS(out.data, cases[i].message);
    }
    ares_str_fini(&out);
}

#define FIFTY "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwx"
TEST(an_option_of_any_kind_that_has_changed_is_named_and_refused)
{
    static const struct {
        const char *kind, *option, *value, *shown;
    } changed[] = {
        { "a flag", "worker.rollout.ignore_eos", "=true", "false, now true" },
        { "a flag that was on", "data.shuffle", "=false", "true, now false" },
        { "a number", "worker.actor.ppo_epochs", "=2", "1, now 2" },
        { "a fraction", "worker.actor.clip_ratio_low", "=0.1", "0.2, now 0.1" },
        { "a choice", "worker.actor.loss_avg_mode", "=seq-mean-token-mean",
          "\"token-mean\", now \"seq-mean-token-mean\"" },
        { "a list", "worker.actor.optim.betas", "=[0.9, 0.99]", "[0.9,0.999], now [0.9,0.99]" },
        { "an item added", "worker.rollout.stop", "=[x]", "[], now [\"x\"]" },
        { "a member of a map", "worker.rollout.val_override_config.n", "=3", "2, now 3" },
        { "what a map has gained", "worker.rollout.val_override_config.top_k", "=5",
          "null, now 5" },
        { "what a map has lost", "worker.actor.model.override_config.max_position_embeddings", "",
          "512, now not set" },
        { "a member of a map of a list", "worker.reward.rewards.0.pattern", "=x",
          "\".*[0-9].*\", now \"x\"" },
        { "a number of 54 bits", "data.seed", "=9007199254740993",
          "9007199254740992, now 9007199254740993" },
        { "what was null", "worker.actor.early_stop_imp_ratio", "=2", "null, now 2" },
        { "what becomes null", "trainer.max_steps", "=null", "1, now null" },
        { "a long list", "worker.rollout.stop", "=[" FIFTY "," FIFTY "," FIFTY "," FIFTY "]",
          "[], now [\"" FIFTY "\",\"" FIFTY "\",\"" FIFTY
          "\",\"abcdefghijklmnopqrstuvwxyzabcdefghijklm..." },
    };
    ares_str out = { 0 };
    const char *words = e2e_train_words("run");
    static const char began[] = "trainer.max_steps=1 data.seed=9007199254740992 "
                                "'worker.rollout.val_override_config={n: 2}' "
                                "'worker.actor.model.override_config={max_position_embeddings: "
                                "512}'";
    CHECK_EQ(e2e_program(NULL, "--config '%s' %s", words, began), 0);
    for (int i = 0; i < ARES_COUNT(changed); i++) {
        char message[400];
        ares_str_clear(&out);
        CHECK_EQ(test_shell(NULL, "rm -f '%s'", test_file("run/DONE")), 0);
        CHECK(e2e_program(&out, "--config '%s' %s '%s%s%s'", words, began,
                          *changed[i].value ? "" : "~", changed[i].option, changed[i].value) != 0);
        snprintf(message, sizeof message, "holds a run with other options (%s: %s)",
                 changed[i].option, changed[i].shown);
        CHECK_MSG(strstr(out.data, message), "%s changed, not refused as \"%s\":\n%s",
                  changed[i].kind, message, out.data);
    }
    ares_str_fini(&out);
}

TEST(other_options_and_an_own_checkpoint_that_shall_not_count_are_refused)
{
    ares_str out = { 0 };
    const char *words = e2e_train_words("run");
    CHECK_EQ(e2e_stop("run", "KILL", 3, "--config '%s' trainer.max_steps=3000 trainer.save_freq=1",
                      words),
             137);
    CHECK(e2e_program(
              &out,
              "--config '%s' trainer.max_steps=3000 trainer.save_freq=1 worker.actor.optim.lr=0.5",
              words) != 0);
    CHECK_CONTAINS(out.data, "other options (worker.actor.optim.lr: 0.001, now 0.5)");
    CHECK_CONTAINS(out.data, "--force");
    ares_str_clear(&out);
    CHECK(e2e_program(&out,
                      "--config '%s' trainer.max_steps=3000 trainer.save_freq=1 "
                      "trainer.find_last_checkpoint=false",
                      words) != 0);
    CHECK_CONTAINS(out.data, "find_last_checkpoint");
    ares_str_clear(&out);
    CHECK_EQ(
        e2e_program(&out, "--config '%s' trainer.max_steps=40 trainer.save_freq=1 --force", words),
        0);
    CHECK_CONTAINS(out.data, "goes on with other options");
    ares_str_fini(&out);
}

TEST(a_checkpoint_of_the_model_alone_says_so)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS " trainer.save_model_only=true",
                         e2e_train_words("first")),
             0);
    CHECK(!ares_file_exists(test_file("first/checkpoints/step_000002/optimizer.safetensors")));
    CHECK(start_from(&out, test_file("first"), "") != 0);
    CHECK_CONTAINS(out.data, "without optimizer states");
    ares_str_fini(&out);
}

/* Each file that another kind of run does not write, or that is lost; and the ways out, followed.
 */
TEST(a_checkpoint_without_a_part_names_ways_out)
{
    static const struct {
        const char *file, *why, *words;
    } cases[] = {
        { "optimizer.safetensors", "a model without optimizer states", "" },
        { "source.json", "the checkpoint is damaged", "" },
        { "controls.json", "of a run without the controls of this one", "" },
        { "critic_optimizer.safetensors", "of a run without a critic",
          "algorithm.adv_estimator=gae" },
    };
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS, e2e_train_words("first")), 0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS " algorithm.adv_estimator=gae",
                         e2e_train_words("valued")),
             0);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char part[64], from[600], told[1500];
        snprintf(part, sizeof part, "part_%d", i);
        CHECK_EQ(test_shell(NULL, "cd '%s' && cp -r %s/checkpoints/step_000002 %s && rm %s/%s",
                            test_dir(), *cases[i].words ? "valued" : "first", part, part,
                            cases[i].file),
                 0);
        snprintf(from, sizeof from, "%s", test_file(part));
        CHECK_EQ(start_from(&out, from, cases[i].words), 1);
        snprintf(told, sizeof told, "train: %s/%s: no such file; ", from, cases[i].file);
        CHECK_CONTAINS(out.data, told);
        CHECK_CONTAINS(out.data, cases[i].why);
        snprintf(told, sizeof told,
                 "; begin a new run (trainer.experiment_name) from another checkpoint "
                 "(trainer.load_checkpoint_path), or from the weights of this one "
                 "(worker.actor.model.model_path=%s)",
                 from);
        CHECK_CONTAINS(out.data, told);
        snprintf(told, sizeof told, "worker.actor.model.model_path='%s' %s", from, cases[i].words);
        CHECK_EQ(start_from(&out, "null", told), 0);
    }
    ares_str_fini(&out);
}

static void goes_on_in_bf16(const char *more)
{
    const char *words = e2e_train_words("part");
    CHECK_EQ(e2e_stop("part", "KILL", 20,
                      "--config '%s' trainer.max_steps=60 trainer.save_freq=5 "
                      "worker.actor.fsdp.torch_dtype=bf16 %s",
                      words, more),
             137);
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' trainer.max_steps=60 trainer.save_freq=5 "
                         "worker.actor.fsdp.torch_dtype=bf16 %s",
                         words, more),
             0);
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' trainer.max_steps=60 trainer.save_freq=5 "
                         "worker.actor.fsdp.torch_dtype=bf16 %s",
                         e2e_train_words("whole"), more),
             0);
    e2e_same_runs("whole", "part", 60);
}

TEST(a_killed_run_in_bf16_goes_on_bit_for_bit)
{
    goes_on_in_bf16("");
}
TEST(a_killed_run_with_products_in_bf16_goes_on_bit_for_bit)
{
    goes_on_in_bf16("worker.actor.arithmetic=bf16");
}
TEST(a_killed_run_with_kahan_sums_goes_on_bit_for_bit)
{
    goes_on_in_bf16("worker.actor.optim.strategy=adamw_bf16");
}

/* A weight from a file in f32 or bf16, rounded to bf16. */
static double weight_at(const ares_tensor_info *t, int64_t i)
{
    uint16_t half;
    float x;
    if (t->dtype == ARES_BF16) memcpy(&half, (const char *)t->data + 2 * i, sizeof half);
    else {
        memcpy(&x, (const char *)t->data + 4 * i, sizeof x);
        half = kernels_f32_to_bf16(x);
    }
    return (double)kernels_bf16_to_f32(half);
}

/*
 * A step of 2e-5 is less than half of the distance between neighbouring bf16 values above 0.02: a
 * weight that changes has kept what rounding left out of the steps before. Both runs draw nearly
 * the same answers, so their weights end up close together.
 */
TEST(kahan_sums_learn_what_a_master_in_f32_learns)
{
#define SMALL "trainer.max_steps=10 worker.actor.fsdp.torch_dtype=bf16 worker.actor.optim.lr=2e-5"
    static const char *const folders[] = { "model", "master/checkpoints/step_000010/model",
                                           "kahan/checkpoints/step_000010/model" };
    ares_safetensors *s[3];
    double apart = 0, way = 0;
    int64_t moved = 0;
    CHECK_EQ(e2e_program(NULL, "--config '%s' " SMALL, e2e_train_words("master")), 0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' " SMALL " worker.actor.optim.strategy=adamw_bf16",
                         e2e_train_words("kahan")),
             0);
    for (int i = 0; i < 3; i++) REQUIRE_OK(ares_safetensors_open(test_file(folders[i]), &s[i]));
    for (int64_t k = 0; k < ares_safetensors_count(s[0]); k++) {
        const ares_tensor_info *t = ares_safetensors_at(s[0], k), *of[2] = { NULL };
        for (int i = 0; i < 2; i++) of[i] = ares_safetensors_find(s[i + 1], t->name);
        if (!CHECK(of[0] && of[1])) continue;
        for (int64_t e = 0; t->rank == 2 && e < t->count; e++) {
            double before = weight_at(t, e), master = weight_at(of[0], e),
                   kahan = weight_at(of[1], e);
            if (fabs(before) < 0.02) continue;
            apart += fabs(kahan - master);
            way += fabs(master - before);
            moved += kahan != before;
        }
    }
    CHECK_MSG(moved > 1000, "%lld weights moved", (long long)moved);
    CHECK_MSG(apart < 0.1 * way, "%g apart after a way of %g", apart, way);
    CHECK_NEAR(e2e_metric("kahan", 10, "actor/grad_norm"),
               e2e_metric("master", 10, "actor/grad_norm"), 1e-2);
    for (int i = 0; i < 3; i++) ares_safetensors_close(s[i]);
}

/* Sums over the answers of a step, from rollouts/. */
typedef struct step_sums {
    double rows, tokens, clipped, score[3], accuracy, advantage[3], length[3], entropy, marked;
    double random, format; /* parts of the reward */
} step_sums;

static void extend(double sum_max_min[3], double v, double weight, bool first)
{
    sum_max_min[0] += weight * v;
    sum_max_min[1] = first ? v : fmax(sum_max_min[1], v);
    sum_max_min[2] = first ? v : fmin(sum_max_min[2], v);
}

static double number(const ares_json *row, const char *name)
{
    const ares_json *v = row ? ares_json_get(row, name) : NULL;
    CHECK_MSG(v, "a row of rollouts/ has no %s", name);
    return v ? v->number : NAN;
}

static void add_row(step_sums *s, const ares_json *row, double longest)
{
    const ares_json *entropies = ares_json_get(row, "entropies"), *hwe = ares_json_get(row, "hwe"),
                    *parts = ares_json_get(row, "rewards");
    double n = number(row, "n_tokens");
    extend(s->score, number(row, "score"), 1, s->rows == 0);
    extend(s->advantage, number(row, "advantage"), n, s->rows == 0);
    extend(s->length, n, 1, s->rows == 0);
    s->accuracy += number(row, "accuracy");
    s->random += number(parts, "random");
    s->format += number(parts, "format");
    s->clipped += n == longest;
    s->tokens += n;
    s->rows++;
    for (int64_t i = 0; entropies && i < entropies->count; i++)
        s->entropy += entropies->items[i].number;
    for (int64_t i = 0; hwe && i < hwe->count; i++) s->marked += hwe->items[i].items[1].number;
}

static step_sums sums_of(const char *run, int step, double longest)
{
    ares_jsonl *file;
    const ares_json *row;
    char name[80];
    step_sums s = { 0 };
    snprintf(name, sizeof name, "%s/rollouts/step_%06d.jsonl", run, step);
    if (!CHECK_OK(ares_jsonl_open(test_file(name), &file))) return s;
    while (ares_jsonl_next(file, &row, NULL) == 1) add_row(&s, row, longest);
    ares_jsonl_close(file);
    return s;
}

typedef struct expectation {
    const char *name;
    double value, within;
} expectation;
static void check_metrics(const char *run, int step, const expectation *e, int n)
{
    for (int i = 0; i < n; i++) {
        double v = e2e_metric(run, step, e[i].name);
        CHECK_MSG(fabs(v - e[i].value) <= e[i].within * fmax(1, fabs(e[i].value)),
                  "step %d: %s is %.9g, expected %.9g", step, e[i].name, v, e[i].value);
    }
}
#define CHECK_METRICS(run, step, ...)                              \
    check_metrics(run, step, (const expectation[]){ __VA_ARGS__ }, \
                  (int)(sizeof((const expectation[]){ __VA_ARGS__ }) / sizeof(expectation)))

/* Checks that times agree with each other. */
static void check_speed(const char *run, int step, double answers, double all)
{
    double gen = e2e_metric(run, step, "timing_s/gen"),
           update = e2e_metric(run, step, "timing_s/update_actor"),
           whole = e2e_metric(run, step, "timing_s/step");
    CHECK(gen > 0 && update > 0 && whole >= gen + update);
    CHECK_METRICS(run, step, { "timing_per_token_ms/gen", 1000 * gen / answers, 1e-12 },
                  { "timing_per_token_ms/update_actor", 1000 * update / all, 1e-12 },
                  { "perf/time_per_step", whole, 0 }, { "perf/throughput", all / whole, 1e-12 });
    CHECK(e2e_metric(run, step, "perf/mfu_actor") >= 0 &&
          e2e_metric(run, step, "perf/max_memory_allocated_gb") > 0);
}

/* The metrics that follow from the answers of the step. */
static void check_answers(const char *run, int step, const step_sums *s)
{
    double bonus = e2e_metric(run, step, "reward/high_entropy_token_num_score");
    CHECK_METRICS(
        run, step, { "reward/overall", s->score[0] / 16, 1e-6 },
        { "reward/overall", (s->random + 0.5 * s->format) / 16 + 0.25 * bonus, 1e-6 },
        { "critic/score/mean", s->score[0] / 16, 1e-6 }, { "critic/score/max", s->score[1], 1e-6 },
        { "critic/score/min", s->score[2], 1e-6 },
        { "critic/rewards/mean", s->score[0] / 16, 1e-6 },
        { "reward/accuracy", s->accuracy / 16, 1e-6 },
        { "reward/batch_accuracy", s->accuracy / 16, 1e-6 },
        { "reward/random", s->random / 16, 1e-6 }, { "reward/format/mean", s->format / 16, 1e-6 },
        { "reward/random/mean", s->random / 16, 1e-6 });
    CHECK_METRICS(
        run, step, { "critic/advantages/mean", s->advantage[0] / s->tokens, 1e-5 },
        { "critic/advantages/max", s->advantage[1], 1e-5 },
        { "critic/advantages/min", s->advantage[2], 1e-5 },
        { "critic/returns/mean", s->advantage[0] / s->tokens, 1e-5 },
        { "response_length/mean", s->tokens / 16, 1e-9 },
        { "response_length/max", s->length[1], 0 }, { "response_length/min", s->length[2], 0 },
        { "response_length/clip_ratio", s->clipped / 16, 1e-9 },
        { "prompt_length/clip_ratio", 0, 0 }, { "rollout/generated_tokens", s->tokens, 0 });
    CHECK_METRICS(run, step, { "aepo/hwe_frac", s->marked / s->tokens, 1e-6 },
                  { "rollout/entropy", s->entropy / s->tokens, 6e-3 },
                  { "actor/entropy", s->entropy / s->tokens, 6e-3 },
                  { "actor/ratio_mean", 1, 1e-6 }, { "exact/rollout_train_max_abs", 0, 0 });
    CHECK(e2e_metric(run, step, "aepo/tau") > 0 &&
          e2e_metric(run, step, "actor/entropy_loss") > 0 &&
          e2e_metric(run, step, "actor/grad_norm") > 0);
}

/* The metrics of one rank's batch of `all` tokens, prompts included, and of an epoch of two steps.
 */
static void check_batch(const char *run, int step, double all)
{
    CHECK_METRICS(
        run, step, { "perf/total_num_tokens", all, 1e-12 }, { "global_seqlen/mean", all, 1e-12 },
        { "global_seqlen/min", all, 1e-12 }, { "global_seqlen/max", all, 1e-12 },
        { "global_seqlen/minmax_diff", 0, 0 }, { "global_seqlen/balanced_min", all, 1e-12 },
        { "global_seqlen/balanced_max", all, 1e-12 }, { "filter/generated_groups", 4, 0 },
        { "filter/kept_groups", 4, 0 }, { "filter/tries", 1, 0 }, { "epoch/id", (step - 1) / 2, 0 },
        { "epoch/iter_num", 2, 0 }, { "epoch/skip_gid_count", 0, 0 });
}

/* Every answer counts under one difficulty. */
static void check_difficulties(const char *run, int step, const step_sums *s)
{
    static const char *const difficulties[] = { "easy", "medium", "hard" };
    double counted = 0, right = 0, marked = 0;
    for (int d = 0; d < 3; d++) {
        char name[64];
        snprintf(name, sizeof name, "reward/%s/count", difficulties[d]);
        double count = e2e_metric(run, step, name);
        if (isnan(count)) continue;
        counted += count;
        snprintf(name, sizeof name, "reward/%s/accuracy", difficulties[d]);
        right += count * e2e_metric(run, step, name);
        snprintf(name, sizeof name, "aepo/hwe_num/%s", difficulties[d]);
        marked += count * e2e_metric(run, step, name);
    }
    CHECK_EQ(counted, 16);
    CHECK_NEAR(right, s->accuracy, 1e-5);
    CHECK_NEAR(marked, s->marked, 1e-5);
}

/*
 * 8 rows and 4 per step: an epoch has two steps, and epoch/id is the one that a step begins in.
 * Rewards are random, and shaped; letters end an answer.
 */
TEST(the_usual_metrics_are_what_the_answers_of_the_step_say_and_distributions_are_written)
{
    ares_str rows = { 0 };
    for (int i = 0; i < 8; i++)
        ares_str_addf(&rows, "{\"prompt\":\"%d?\",\"answer\":\"1\"}\n", i % 2 ? i : 100 * (i + 1));
    const char *file = e2e_write("rows.jsonl", rows.data);
    CHECK_EQ(
        e2e_program(
            NULL,
            "--config '%s' trainer.max_steps=3 trainer.logger=[tensorboard] "
            "data.train_files='%s' algorithm.aepo=true worker.reward.accuracy=random "
            "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t]' "
            "'worker.reward.rewards=[{name: random}, {name: format, weight: 0.5, "
            "pattern: \".*[0-9].*\", finished: false}, {name: aepo, weight: 0.25}]'",
            e2e_train_words("run"), file),
        0);
    double lengths = 0;
    for (int step = 1; step <= 3; step++) {
        step_sums s = sums_of("run", step, 12);
        CHECK_EQ(s.rows, 16);
        CHECK(s.length[1] > s.length[2] && s.score[1] > s.score[2] && s.accuracy > 0 &&
              s.accuracy < 16 && s.marked > 0);
        double all = e2e_metric("run", step, "prompt_length/mean") * 16 + s.tokens;
        check_answers("run", step, &s);
        check_batch("run", step, all);
        check_difficulties("run", step, &s);
        check_speed("run", step, s.tokens, all);
        lengths += e2e_metric("run", step, "prompt_length/max") -
                   e2e_metric("run", step, "prompt_length/min");
    }
    CHECK(lengths >= 2);
    CHECK_EQ(test_shell(NULL,
                        "grep -aq rollout/entropy_distribution '%s'/events* && grep -aq "
                        "rollout/window_entropy_distribution '%s'/events*",
                        test_file("run"), test_file("run")),
             0);
    ares_str_fini(&rows);
}

/* At temperatures 0.85 and 1.05, 1.0f / (float)T and (float)(1 / T) differ in their last bit. */
TEST(an_update_sees_the_log_probs_of_rollout_bit_for_bit_at_other_temperatures)
{
    static const char *const temperatures[] = { "0.85", "1.05" };
    for (int i = 0; i < ARES_COUNT(temperatures); i++) {
        const char *run = temperatures[i];
        CHECK_EQ(e2e_program(NULL,
                             "--config '%s' trainer.max_steps=2 worker.rollout.temperature=%s",
                             e2e_train_words(run), run),
                 0);
        for (int step = 1; step <= 2; step++)
            CHECK_NEAR(e2e_metric(run, step, "exact/rollout_train_max_abs"), 0, 0);
    }
}

/* ------------------------------------------------------------------ validation alone */
#define SHAPED "algorithm.aepo=true 'worker.reward.rewards=[{name: exact}, {name: aepo}]'"

/* The printed value of a metric; NaN where it is not printed. */
static double printed(const ares_str *out, const char *name)
{
    const char *at = out->data ? strstr(out->data, name) : NULL;
    double value = NAN;
    if (at) sscanf(at + strlen(name), " %lf", &value);
    return value;
}

static double validated(ares_str *out, const char *verb, const char *run, const char *more)
{
    ares_str_clear(out);
    CHECK_MSG(e2e_program(out, "%s --config '%s' data.val_files='%s' %s", verb,
                          e2e_train_words(run), test_source("examples/data/sums/val.jsonl"),
                          more) == 0,
              "%s", out->data);
    return printed(out, "val/reward_score");
}

/* Lists the files of a run with their digests, except its lock. */
static void listing(const char *run, ares_str *out)
{
    ares_str_clear(out);
    CHECK_EQ(test_shell(out, "cd '%s' && find . -type f ! -name lock | sort | xargs sha256sum",
                        test_file(run)),
             0);
}

static void trained(const char *more)
{
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS " data.val_files='%s' trainer.val_freq=2 %s",
                         e2e_train_words("first"), test_source("examples/data/sums/val.jsonl"),
                         more),
             0);
}

TEST(validation_alone_gives_what_training_gave_and_leaves_a_finished_run_as_it_is)
{
    ares_str out = { 0 }, before = { 0 }, after = { 0 };
    char path[700];
    trained(SHAPED);
    listing("first", &before);
    double two = e2e_metric("first", 2, "val/reward_score"),
           four = e2e_metric("first", 4, "val/reward_score"),
           none = e2e_metric("first", 0, "val/reward_score");
    CHECK(fabs(two - four) > 2e-4);
    CHECK_NEAR(validated(&out, "", "first", "trainer.val_only=true " SHAPED), four, 6e-5);
    CHECK_CONTAINS(out.data, "checkpoints/step_000004");
    snprintf(path, sizeof path, SHAPED " trainer.load_checkpoint_path='%s/checkpoints/step_000002'",
             test_file("first"));
    CHECK_NEAR(validated(&out, "eval", "first", path), two, 6e-5);
    snprintf(path, sizeof path,
             SHAPED
             " trainer.val_only=true trainer.load_checkpoint_path='%s/checkpoints/step_000002'",
             test_file("first"));
    CHECK_NEAR(validated(&out, "", "first", path), two, 6e-5);
    snprintf(path, sizeof path, SHAPED " trainer.load_checkpoint_path='%s'", test_file("first"));
    CHECK_NEAR(validated(&out, "eval", "other", path), four, 6e-5);
    snprintf(path, sizeof path,
             SHAPED " worker.actor.model.model_path='%s/checkpoints/step_000002'",
             test_file("first"));
    CHECK_NEAR(validated(&out, "eval", "other", path), two, 6e-5);
    /* no state is named: the model itself is validated */
    CHECK_NEAR(validated(&out, "eval", "first", SHAPED), none, 6e-5);
    CHECK_NEAR(validated(&out, "", "first",
                         SHAPED " trainer.val_only=true trainer.find_last_checkpoint=false"),
               none, 6e-5);
    CHECK_NEAR(validated(&out, "", "fresh", SHAPED " trainer.val_only=true"), none, 6e-5);
    CHECK(!ares_dir_exists(test_file("fresh")));
    listing("first", &after);
    CHECK_STR(after.data, before.data);
    ares_str_fini(&out), ares_str_fini(&before), ares_str_fini(&after);
}

TEST(validation_alone_leaves_a_run_that_is_under_way_as_it_is)
{
    ares_str out = { 0 }, before = { 0 }, after = { 0 };
    const char *words = e2e_train_words("run"), *rows = test_source("examples/data/sums/val.jsonl");
    CHECK_EQ(e2e_stop("run", "INT", 5, "--config '%s' trainer.max_steps=60 data.val_files='%s'",
                      words, rows),
             130);
    listing("run", &before);
    CHECK(validated(&out, "", "run",
                    "trainer.max_steps=60 trainer.val_only=true worker.rollout.n=2") >= 0);
    CHECK_CONTAINS(out.data, "validating");
    CHECK_CONTAINS(out.data, "checkpoints/rolling_0000");
    listing("run", &after);
    CHECK_STR(after.data, before.data);
    CHECK_EQ(
        e2e_program(NULL, "--config '%s' trainer.max_steps=60 data.val_files='%s'", words, rows),
        0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=60 data.val_files='%s'",
                         e2e_train_words("whole"), rows),
             0);
    e2e_same_runs("whole", "run", 60);
    ares_str_fini(&out), ares_str_fini(&before), ares_str_fini(&after);
}

TEST(validation_alone_takes_a_model_without_optimizer_states_and_refuses_what_does_not_fit)
{
    ares_str out = { 0 };
    char path[700];
    const char *other = test_file("wide"), *rows = test_source("examples/data/sums/val.jsonl");
    trained("trainer.save_model_only=true");
    snprintf(path, sizeof path, "trainer.load_checkpoint_path='%s'", test_file("first"));
    CHECK_NEAR(validated(&out, "eval", "other", path), e2e_metric("first", 4, "val/reward_score"),
               6e-5);
    CHECK_NEAR(validated(&out, "", "first", "trainer.val_only=true"),
               e2e_metric("first", 4, "val/reward_score"), 6e-5);
    static const char *const verbs[] = { "eval", "" };
    CHECK_EQ(
        e2e_program(
            NULL,
            "init --arch qwen2 --hidden 48 --layers 2 --heads 2 --kv-heads 1 --seed 3 --out '%s'",
            other),
        0);
    for (int i = 0; i < 2; i++) {
        ares_str_clear(&out);
        CHECK_EQ(e2e_program(&out,
                             "%s --config '%s' data.val_files='%s' trainer.val_only=true "
                             "trainer.load_checkpoint_path='%s'",
                             verbs[i], e2e_train_words("x"), rows, test_file("nowhere")),
                 2);
        CHECK_CONTAINS(out.data, "nowhere': no such folder; name a checkpoint or a run directory");
        ares_str_clear(&out);
        CHECK(e2e_program(&out,
                          "%s --config '%s' data.val_files='%s' trainer.val_only=true %s "
                          "worker.actor.model.model_path='%s'",
                          verbs[i], e2e_train_words("x"), rows, path, other) != 0);
        CHECK_CONTAINS(out.data, "the state is of another model");
    }
    ares_str_fini(&out);
}

TEST(a_state_of_a_run_without_its_control_is_validated_with_a_warning)
{
    ares_str out = { 0 };
    char path[700];
    trained("");
    snprintf(path, sizeof path, SHAPED " trainer.load_checkpoint_path='%s'", test_file("first"));
    CHECK(validated(&out, "eval", "other", path) >= 0);
    CHECK_CONTAINS(out.data, "no state of 'aepo'");
    ares_str_fini(&out);
}

TEST(supervised_validation_alone_takes_the_latest_checkpoint)
{
    ares_str out = { 0 }, before = { 0 }, after = { 0 };
    const char *words = e2e_sft_words("run"), *rows = test_source("examples/data/sums/sft.jsonl");
    CHECK_EQ(e2e_program(NULL, "sft --config '%s' " STEPS " data.val_files='%s'", words, rows), 0);
    listing("run", &before);
    CHECK_EQ(e2e_program(&out, "sft --config '%s' data.val_files='%s' trainer.val_only=true", words,
                         rows),
             0);
    CHECK_NEAR(printed(&out, "val/loss"), e2e_metric("run", 4, "val/loss"), 6e-5);
    listing("run", &after);
    CHECK_STR(after.data, before.data);
    ares_str_fini(&out), ares_str_fini(&before), ares_str_fini(&after);
}

TEST_MPI(two_ranks_validate_alone_what_one_does)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    char path[700];
    trained(SHAPED);
    snprintf(path, sizeof path,
             SHAPED " trainer.threads=1 trainer.load_checkpoint_path='%s/checkpoints/step_000002'",
             test_file("first"));
    CHECK_NEAR(validated(&out, "eval --ranks 2", "other", path),
               e2e_metric("first", 2, "val/reward_score"), 6e-5);
    CHECK_NEAR(
        validated(&out, "--ranks 2", "first", "trainer.val_only=true trainer.threads=1 " SHAPED),
        e2e_metric("first", 4, "val/reward_score"), 6e-5);
    ares_str_fini(&out);
}
