/*
 * Distillation on tiny models: its first step beside another implementation's
 * (tests/golden/distill_run), what equal models give, and what may not change a bit of a run.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent_runs.h"
#include "e2e.h"

#define GOLDEN "tests/golden/distill_run/"
#define D "distillation."
#define LOSS D "distillation_loss."
#define TEACHER D "teacher_model."

/* A run on the golden's rows and student; its answers have 8 tokens. */
static const char *words(const char *run)
{
    static char text[3000];
    snprintf(text, sizeof text,
             "data.train_files=" GOLDEN "rows.jsonl data.rollout_batch_size=8 data.shuffle=false "
             "data.max_prompt_length=64 data.max_response_length=8 "
             "worker.actor.model.model_path=" GOLDEN "student worker.rollout.n=2 "
             "worker.actor.global_batch_size=4 worker.actor.optim.lr=3e-3 "
             "worker.actor.optim.weight_decay=0 algorithm.disable_kl=true "
             "algorithm.use_kl_loss=false trainer.max_steps=3 trainer.save_freq=1 "
             "trainer.val_freq=-1 trainer.logger='[console]' trainer.threads=1 " D
             "enabled=true trainer.run_dir='%s'",
             test_file(run));
    return text;
}

static const char row_context[] = D "context=row " D "privileged_context_key=hint";

TEST(the_first_step_of_a_distillation_is_that_of_torch)
{
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    const ares_json *file = NULL;
    REQUIRE_OK(ares_file_read(GOLDEN "expected.json", &text));
    REQUIRE_OK(ares_json_parse(&arena, ares_str_view(&text), "expected.json", &file));
    const ares_json *cases = ares_json_get(file, "cases");
    for (int64_t i = 0; i < 2 * cases->count; i++) {
        const ares_json *c = &cases->items[i / 2], *options = ares_json_get(c, "options"),
                        *expected = ares_json_get(c, "expected");
        ares_str more = { 0 };
        char run[32];
        for (int64_t k = 0; k < options->count; k++) {
            const ares_json_member *o = &options->members[k];
            bool path = ares_view_is(o->key, TEACHER "model_path");
            ares_str_addf(&more, " '%.*s=%s", (int)o->key.len, o->key.data, path ? GOLDEN : "");
            if (path) ares_str_add_view(&more, o->value->text);
            else ares_json_write(&more, o->value);
            ares_str_add_z(&more, "'");
        }
        if (i % 2) ares_str_add_z(&more, " worker.actor.max_token_len_per_device=40");
        snprintf(run, sizeof run, "golden_%d", (int)i);
        REQUIRE(e2e_program(NULL,
                            "train %s data.max_response_length=64 worker.rollout.n=1 " D
                            "lmbda=0 worker.actor.global_batch_size=8 worker.actor.optim.lr=0 "
                            "worker.actor.max_grad_norm=1e9 trainer.max_steps=1 %s",
                            words(run), more.data) == 0);
        for (int64_t k = 0; k < expected->count; k++) {
            const ares_json_member *e = &expected->members[k];
            char name[80];
            double want =
                e->value->type == ARES_JSON_INT ? (double)e->value->integer : e->value->number;
            snprintf(name, sizeof name, "%.*s", (int)e->key.len, e->key.data);
            double got = e2e_metric(run, 1, name);
            CHECK_MSG(fabs(got - want) <= 2e-4 * fmax(fabs(want), 1e-3),
                      "case %d: %s is %.9g, not %.9g", (int)i, name, got, want);
        }
        ares_str_fini(&more);
        /* stored answers are nobody's: no length, no score */
        CHECK(isnan(e2e_metric(run, 1, "response_length/mean")));
        CHECK(isnan(e2e_metric(run, 1, "critic/score/mean")));
        CHECK(e2e_metric(run, 1, "timing_s/teacher") > 0);
        if (i % 2) { /* cuts change no bit */
            char other[32];
            snprintf(other, sizeof other, "golden_%d", (int)i - 1);
            CHECK(e2e_same_runs(other, run, 1));
        }
    }
    ares_str_fini(&text);
    ares_arena_fini(&arena);
}

TEST(a_teacher_that_is_the_student_gives_exactly_0_in_every_form)
{
    static const char *const forms[] = {
        LOSS "beta=0",       LOSS "beta=0.3",
        LOSS "beta=1",       LOSS "loss_mode=k2",
        LOSS "loss_mode=k3", LOSS "loss_mode=k1 " LOSS "use_policy_gradient=true"
    };
    for (int i = 0; i < ARES_COUNT(forms); i++) {
        char run[32];
        snprintf(run, sizeof run, "same_%d", i);
        REQUIRE(e2e_program(NULL, "train %s " TEACHER "model_path=" GOLDEN "student %s", words(run),
                            forms[i]) == 0);
        for (int step = 1; step <= 3; step++) {
            CHECK_NEAR(e2e_metric(run, step, "distillation/reverse_kl"), 0, 0);
            CHECK_NEAR(e2e_metric(run, step, "actor/grad_norm"), 0, 0);
            CHECK_NEAR(e2e_metric(run, step, "exact/rollout_train_max_abs"), 0, 0);
        }
    }
}

TEST(a_teacher_stored_in_bf16_multiplies_as_the_policy_does)
{
    static const char *const teachers[] = {
        TEACHER "model_path=" GOLDEN "student " TEACHER "fsdp.torch_dtype=bf16",
        TEACHER "model_path=" GOLDEN "student",
        "distillation.context=row distillation.privileged_context_key=hint",
    };
    for (int i = 0; i < ARES_COUNT(teachers); i++) {
        char run[32];
        snprintf(run, sizeof run, "bf16_%d", i);
        REQUIRE(e2e_program(NULL,
                            "train %s worker.actor.arithmetic=bf16 worker.actor.optim.lr=0 %s",
                            words(run), teachers[i]) == 0);
        for (int step = 1; step <= 3; step++) {
            double kl = e2e_metric(run, step, "distillation/reverse_kl");
            CHECK_MSG(i == 0 ? kl == 0 : kl > 0 && kl < 1, "teacher %d: a KL of %g", i, kl);
            CHECK_NEAR(e2e_metric(run, step, "exact/rollout_train_max_abs"), 0, 0);
        }
    }
}

/* A larger model that has learnt what answers look like, and a student that has not. */
TEST(a_student_comes_near_its_teacher_on_its_own_answers)
{
    static const struct {
        const char *form;
        double falls_to; /* of the first step's reverse KL */
    } cases[] = { { LOSS "beta=1", 0.25 },
                  { LOSS "beta=0", 0.25 },
                  { LOSS "beta=0.5", 0.25 },
                  { LOSS "loss_mode=k2", 0.5 },
                  { LOSS "loss_mode=k1 " LOSS "use_policy_gradient=true", 0.85 } };
    static const char sums[] = "examples/data/sums/train.jsonl";
    REQUIRE(e2e_program(NULL,
                        "init --arch qwen2 --hidden 64 --layers 2 --initializer-range 0.1 --seed 7 "
                        "--out '%s'",
                        test_file("student")) == 0);
    REQUIRE(e2e_program(NULL,
                        "init --arch qwen2 --hidden 96 --layers 2 --initializer-range 0.1 --seed 8 "
                        "--out '%s'",
                        test_file("untaught")) == 0);
    char untaught[500], student[500], teacher[500];
    snprintf(untaught, sizeof untaught, "%s", test_file("untaught"));
    snprintf(student, sizeof student, "%s", test_file("student"));
    snprintf(teacher, sizeof teacher, "%s", test_file("taught/checkpoints/step_000060/model"));
    REQUIRE(e2e_program(NULL,
                        "sft data.train_files=%s sft.response_key=answer sft.batch_size=8 "
                        "worker.actor.model.model_path='%s' worker.actor.optim.lr=1e-2 "
                        "trainer.max_steps=60 trainer.run_dir='%s' trainer.threads=1",
                        sums, untaught, test_file("taught")) == 0);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char run[32];
        snprintf(run, sizeof run, "falls_%d", i);
        REQUIRE(
            e2e_program(NULL,
                        "train %s data.train_files=%s worker.actor.model.model_path='%s' " TEACHER
                        "model_path='%s' worker.rollout.n=4 trainer.save_freq=-1 "
                        "trainer.max_steps=24 %s",
                        words(run), sums, student, teacher, cases[i].form) == 0);
        double first = e2e_metric(run, 1, "distillation/reverse_kl"), last = 0;
        for (int step = 22; step <= 24; step++)
            last += e2e_metric(run, step, "distillation/reverse_kl") / 3;
        CHECK_MSG(first > 5 && last < cases[i].falls_to * first, "%s: from %g to %g", cases[i].form,
                  first, last);
        for (int step = 1; step <= 24; step++)
            CHECK_NEAR(e2e_metric(run, step, "exact/rollout_train_max_abs"), 0, 0);
    }
}

TEST(nothing_that_divides_the_work_changes_a_bit_of_a_distillation)
{
    static const char *const others[] = { "worker.actor.max_token_len_per_device=16",
                                          "trainer.threads=2",
                                          "worker.actor.model.enable_gradient_checkpointing=true",
                                          "worker.actor.offload.offload_params=true",
                                          TEACHER "offload.offload_params=true",
                                          "worker.actor.skip_zero_gradients=false" };
    static const char with[] = TEACHER "kind=ema " LOSS "beta=0.5 " LOSS "is_clip=2";
    REQUIRE(e2e_program(NULL, "train %s %s %s", words("plain"), row_context, with) == 0);
    CHECK(e2e_metric("plain", 1, "distillation/reverse_kl") > 0);
    CHECK_NEAR(e2e_metric("plain", 1, "distillation/reprompt_sample_fraction"), 0.75, 0);
    for (int i = 0; i < ARES_COUNT(others); i++) {
        char run[32];
        snprintf(run, sizeof run, "other_%d", i);
        REQUIRE(e2e_program(NULL, "train %s %s %s %s", words(run), row_context, with, others[i]) ==
                0);
        CHECK_MSG(e2e_same_runs("plain", run, 3), "%s", others[i]);
    }
}

TEST(a_resumed_run_of_an_average_equals_an_uninterrupted_one)
{
    static const char with[] = TEACHER "kind=ema " TEACHER "update_rate=0.3";
    REQUIRE(e2e_program(NULL, "train %s %s %s", words("whole"), row_context, with) == 0);
    REQUIRE(e2e_program(NULL, "train %s %s %s", words("again"), row_context, with) == 0);
    for (int step = 1; step < 3; step++) {
        /* where its weights lie may change between two parts of a run */
        const char *moved = step == 1 ? ""
                                      : TEACHER "fsdp.enable_full_shard=true " TEACHER
                                                "fsdp.fsdp_size=1 " TEACHER
                                                "offload.offload_params=true";
        REQUIRE(e2e_go_back("again", "again_whole", step));
        REQUIRE(e2e_program(NULL, "train %s %s %s %s", words("again"), row_context, with, moved) ==
                0);
        CHECK_MSG(e2e_same_runs("whole", "again", 3), "from step %d", step);
    }
}

TEST(a_distillation_through_libtorch_is_that_of_the_native_kernels)
{
    static const char *const betas[] = { "0", "0.5", "1" }, *const names[] = {
        "distillation/loss",
        "distillation/reverse_kl",
        "distillation/teacher_entropy",
        "distillation/argmax_agreement",
        "actor/final_loss",
        "actor/grad_norm"
    };
    for (int i = 0; i < ARES_COUNT(betas); i++) {
        for (int k = 0; k < 2; k++) /* stored answers, so that both see the same */
            REQUIRE(e2e_program(NULL,
                                "train %s " TEACHER "model_path=" GOLDEN
                                "teacher data.max_response_length=64 " D "lmbda=0 "
                                "trainer.max_steps=1 trainer.save_freq=-1 trainer.kernels=%s " LOSS
                                "beta=%s",
                                words(k ? "aten" : "native"), k ? "aten" : "native",
                                betas[i]) == 0);
        for (int k = 0; k < ARES_COUNT(names); k++) {
            double native = e2e_metric("native", 1, names[k]),
                   aten = e2e_metric("aten", 1, names[k]);
            CHECK_MSG(fabs(aten - native) <= 1e-5 * fabs(native), "beta %s: %s is %.9g, not %.9g",
                      betas[i], names[k], aten, native);
        }
        ares_dir_remove(test_file("native"));
        ares_dir_remove(test_file("aten"));
    }
}

TEST(a_run_does_not_go_on_with_another_teacher)
{
    ares_str weights = { 0 }, out = { 0 };
    char by[600], file[600];
    snprintf(by, sizeof by, TEACHER "model_path='%s'", test_file("teacher"));
    REQUIRE(test_shell(NULL, "cp -r " GOLDEN "teacher '%s'", test_file("teacher")) == 0);
    REQUIRE(e2e_program(NULL, "train %s %s", words("taught"), by) == 0);
    REQUIRE(e2e_go_back("taught", "taught_whole", 1));
    snprintf(file, sizeof file, "%s/model.safetensors", test_file("teacher"));
    REQUIRE_OK(ares_file_read(file, &weights));
    weights.data[weights.len - 2] ^= 1;
    REQUIRE_OK(ares_file_write(file, weights.data, weights.len));
    CHECK_EQ(e2e_program(&out, "train %s %s", words("taught"), by), 1);
    CHECK_CONTAINS(out.data, "the run began with another teacher than is in "
                             "distillation.teacher_model.model_path");
    CHECK_EQ(e2e_program(NULL, "train --force %s %s", words("taught"), by), 0);
    ares_str_fini(&weights);
    ares_str_fini(&out);
}

TEST(two_ranks_distil_as_one_does)
{
    static const char *const shares[] = { "", "worker.actor.fsdp.enable_full_shard=true " TEACHER
                                              "fsdp.enable_full_shard=true" };
    E2E_NEEDS_MPI();
    static const char with[] = TEACHER "kind=base " LOSS "beta=0.5";
    REQUIRE(e2e_program(NULL, "train %s %s %s", words("one"), row_context, with) == 0);
    for (int i = 0; i < ARES_COUNT(shares); i++) {
        char run[32];
        snprintf(run, sizeof run, "two_%d", i);
        REQUIRE(e2e_program(NULL, "train --ranks 2 %s %s %s %s", words(run), row_context, with,
                            shares[i]) == 0);
        static const char *const names[] = { "distillation/loss", "distillation/reverse_kl_p90",
                                             "distillation/tokens", "actor/final_loss",
                                             "actor/grad_norm" };
        for (int k = 0; k < ARES_COUNT(names); k++) {
            double one = e2e_metric("one", 1, names[k]), two = e2e_metric(run, 1, names[k]);
            CHECK_MSG(fabs(one - two) <= 1e-5 * fabs(one), "%s: %g and %g", names[k], one, two);
        }
    }
}

TEST(stored_answers_are_learnt_beside_sampled_ones)
{
    REQUIRE(e2e_program(NULL,
                        "train %s " TEACHER "model_path=" GOLDEN "teacher " D
                        "lmbda=0.5 worker.actor.model.model_path=" GOLDEN "teacher",
                        words("stored")) == 0);
    double stored = 0;
    for (int step = 1; step <= 3; step++) {
        stored += e2e_metric("stored", step, "distillation/stored_frac") / 3;
        CHECK_NEAR(e2e_metric("stored", step, "exact/rollout_train_max_abs"), 0, 0);
    }
    CHECK(stored > 0 && stored < 1);
}

TEST(a_student_of_more_rows_than_its_teacher_says_which_answers_have_none)
{
    REQUIRE(e2e_program(NULL, "train %s " TEACHER "model_path=" GOLDEN "teacher",
                        words("unreadable")) == 0);
    CHECK(e2e_metric("unreadable", 1, "distillation/unreadable_frac") > 0.5);
    CHECK(e2e_metric("unreadable", 1, "actor/empty_minibatches") > 0);
}

TEST(a_teacher_of_the_present_weights_takes_no_memory_for_weights)
{
    static const char *const teachers[] = { D "enabled=false " D "context=none " D
                                              "privileged_context_key=privileged_context",
                                            TEACHER "kind=live", TEACHER "kind=base" };
    double gb[3], weights;
    struct stat file;
    REQUIRE(e2e_program(NULL, "init --arch qwen2 --hidden 256 --layers 4 --out %s",
                        test_file("large")) == 0);
    REQUIRE(stat(test_file("large/model.safetensors"), &file) == 0);
    weights = (double)file.st_size / 1073741824.0;
    for (int i = 0; i < 3; i++) {
        char run[32], model[500];
        snprintf(run, sizeof run, "memory_%d", i);
        snprintf(model, sizeof model, "%s", test_file("large"));
        REQUIRE(e2e_program(NULL,
                            "train %s %s %s worker.actor.model.model_path='%s' "
                            "trainer.save_freq=-1 trainer.max_steps=1",
                            words(run), row_context, teachers[i], model) == 0);
        gb[i] = e2e_metric(run, 1, "perf/max_memory_allocated_gb");
    }
    CHECK_MSG(gb[1] - gb[0] < 0.4 * weights, "live: %g of the weights", (gb[1] - gb[0]) / weights);
    CHECK_MSG(gb[2] - gb[0] > 0.7 * weights, "base: %g of the weights", (gb[2] - gb[0]) / weights);
}

/* A text of a column of a run's first rollouts; "": the first row has none. */
static const char *first_text(const char *run, const char *key)
{
    static char text[4000];
    ares_arena arena = { 0 };
    int64_t n;
    const ares_json **rows = e2e_rows(&arena, run, "rollouts/step_000001.jsonl", &n),
                    *v = n ? ares_json_get(rows[0], key) : NULL;
    snprintf(text, sizeof text, "%.*s", v ? (int)v->text.len : 0, v ? v->text.data : "");
    ares_arena_fini(&arena);
    return text;
}

/* Two steps of two groups of episodes. options: of the distillation */
static bool plays(const char *run, const char *options, const char *more)
{
    return CHECK_EQ(
        e2e_program(NULL,
                    "train --config '%s' algorithm.adv_estimator=grpo env.train.groups=2 "
                    "trainer.run_dir='%s' trainer.save_freq=1 trainer.max_steps=2 "
                    "trainer.threads=1 " D "enabled=true " D "%s %s",
                    agent_words("of"), test_file(run), options, more),
        0);
}

TEST(a_teacher_reads_a_context_in_the_first_message_of_an_episode)
{
    static const struct {
        const char *name, *options, *shown;
    } cases[] = {
        { "hint", "context=row env.definitions.FrozenLake.privileged_context='Mind the {holes}'",
          "Mind the {holes}" },
        { "told", "context=group " D "include_environment_feedback=true " TEACHER "kind=ema",
          "The following is feedback from your unsuccessful earlier attempt:\n\nReward:\n" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const char *run = cases[i].name;
        REQUIRE(plays(run, cases[i].options, ""));
        CHECK_CONTAINS(first_text(run, "teacher_prompt"), cases[i].shown);
        CHECK_MSG(!strstr(first_text(run, "prompt"), cases[i].shown), "%s: the student reads it",
                  run);
        for (int step = 1; step <= 2; step++) {
            CHECK(e2e_metric(run, step, "distillation/reverse_kl") > 0);
            CHECK_NEAR(e2e_metric(run, step, "exact/rollout_train_max_abs"), 0, 0);
        }
    }
    REQUIRE(e2e_go_back("told", "told_whole", 1));
    REQUIRE(plays("told", cases[1].options, "trainer.threads=2"));
    CHECK(e2e_same_runs("told_whole", "told", 2));
}

/* Its prompt is decoded and encoded again, and must be the student's. */
TEST(a_context_that_adds_nothing_to_an_episode_gives_exactly_0)
{
    static const char nothing[] = "context=row env.definitions.FrozenLake.privileged_context=x " D
                                  "teacher_prompt_template='{prompt}'";
    static const char *const rows[] = { "", "env.token_exact=false" };
    for (int i = 0; i < ARES_COUNT(rows); i++) {
        char run[32];
        snprintf(run, sizeof run, "nothing_%d", i);
        REQUIRE(plays(run, nothing, rows[i]));
        CHECK_CONTAINS(first_text(run, "teacher_prompt"), "Turn 1:\nState:\n");
        for (int step = 1; step <= 2; step++) {
            CHECK(e2e_metric(run, step, "distillation/tokens") > 0);
            CHECK_NEAR(e2e_metric(run, step, "distillation/reverse_kl"), 0, 0);
        }
    }
}

TEST(a_context_that_an_episode_cannot_have_is_refused_by_name)
{
    static const char *const refused[][2] = {
        { "context=row", "set env.definitions.FrozenLake.privileged_context" },
        { "context=row env.context_window_mode=single_turn", "makes a row of every turn" },
    };
    for (int i = 0; i < ARES_COUNT(refused); i++) {
        ares_str out = { 0 };
        CHECK(e2e_program(
                  &out,
                  "train --check --config '%s' trainer.run_dir='%s' " D "enabled=true " D "%s",
                  agent_words_of(e2e_model(), "of"), test_file("refused"), refused[i][0]) != 0);
        CHECK_CONTAINS(out.data, refused[i][1]);
        ares_str_fini(&out);
    }
}

TEST(a_distillation_that_cannot_be_is_refused_by_name)
{
    static const struct {
        const char *options, *says;
    } cases[] = { { TEACHER "model_path=/nowhere/teacher", TEACHER "model_path" },
                  { "", "context" },
                  { TEACHER "kind=base " D "context=row " D "privileged_context_key=solution",
                    "no row has" },
                  { TEACHER "kind=base " D "lmbda=0.5 " D "response_key=missing", "missing" },
                  { TEACHER "kind=base trainer.device=cuda", LOSS "loss_mode" } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        CHECK_MSG(e2e_program(&out, "train --check %s %s", words("refused"), cases[i].options) != 0,
                  "%s", cases[i].options);
        CHECK_MSG(out.data && strstr(out.data, cases[i].says), "%s: %s", cases[i].options,
                  out.data ? out.data : "");
        ares_str_fini(&out);
    }
}
