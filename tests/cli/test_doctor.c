/* ares-train doctor: each line seen to be right and to be wrong, with the command that mends it. */
#include <stdio.h>
#include <string.h>

#include "test.h"

/* Without libtorch, which takes a second of a CPU to open; TORCH among the variables opens it. */
#define TORCH "ARES_TORCH_LIB= "
static int doctor(ares_str *out, const char *variables, const char *words)
{
    ares_str_clear(out);
    return test_shell(out,
                      "cd '%s' && LC_ALL=C.UTF-8 ARES_TORCH_LIB=/no/such.so %s '%s' doctor %s 2>&1",
                      test_dir(), variables, test_program(), words);
}

/* A model, rows and a configuration of both, as small as they come. */
static void write_run(void)
{
    static const char config[] =
        "data: {train_files: rows.jsonl, max_prompt_length: 16, max_response_length: 4, "
        "rollout_batch_size: 1, apply_chat_template: false}\n"
        "algorithm: {adv_estimator: grpo, disable_kl: true}\n"
        "worker:\n"
        "  actor: {model: {model_path: models/mine}, global_batch_size: 1}\n"
        "  rollout: {n: 2}\n"
        "  reward: {rewards: [{name: number}]}\n"
        "trainer: {project_name: p, experiment_name: e, max_steps: 4}\n";
    static const char rows[] = "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n";
    CHECK_OK(ares_file_write(test_file("run.yaml"), config, sizeof config - 1));
    CHECK_OK(ares_file_write(test_file("rows.jsonl"), rows, sizeof rows - 1));
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && '%s' init --arch qwen2 --hidden 16 --layers 1 --heads 2 "
                        "--out models/mine >/dev/null",
                        test_dir(), test_program()),
             0);
}

/* The whole line that begins so, as a copy of the test's; "": there is none. */
static const char *line_of(const ares_str *out, const char *begins)
{
    static char line[2048];
    const char *at = out->data ? strstr(out->data, begins) : NULL;
    while (at && at != out->data && at[-1] != '\n') at = strstr(at + 1, begins);
    snprintf(line, sizeof line, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
    return line;
}

TEST(doctor_says_what_the_machine_has)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    ares_arena arena = { 0 };
    const ares_json *o;
    char cores[64];
    CHECK_EQ(doctor(&out, TORCH, ""), 0);
    CHECK(!strstr(out.data, "/no/such.so"));
    snprintf(cores, sizeof cores, "; %d of ", ares_cpu_count());
    CHECK_CONTAINS(line_of(&out, "ok       processor"), cores);
    CHECK_CONTAINS(line_of(&out, "ok       processor"), "kernels: cpu ");
    CHECK_CONTAINS(line_of(&out, "ok       locale"), "UTF-8");
    CHECK_CONTAINS(line_of(&out, "ok       disk"), " free at .");
    CHECK(*line_of(&out, "ok       memory") || *line_of(&out, "warn     memory"));
    CHECK_EQ(doctor(&out, "ARES_ISA=plain", ""), 0);
    CHECK_CONTAINS(line_of(&out, "ok       processor"), "kernels: cpu plain, as ARES_ISA says");
    CHECK_EQ(doctor(&out, "ARES_ISA=sse9", ""), 1);
    CHECK_CONTAINS(line_of(&out, "fails    processor"), "ARES_ISA = 'sse9': unknown");
    CHECK_CONTAINS(out.data, "-> unset ARES_ISA\n");
    CHECK_CONTAINS(out.data, "doctor: 1 line says why a run would not work\n");
    /* the same as JSON */
    CHECK_EQ(doctor(&out, "", "--json"), 0);
    REQUIRE_OK(ares_json_parse(&arena, ares_view_trim(ares_str_view(&out)), "json", &o));
    const ares_json *lines = ares_json_get(o, "lines"), *ok = ares_json_get(o, "ok");
    REQUIRE(lines && lines->type == ARES_JSON_ARRAY && lines->count >= 12 && ok && ok->boolean);
    for (int64_t i = 0; i < lines->count; i++)
        CHECK(ares_json_get(&lines->items[i], "name") && ares_json_get(&lines->items[i], "state") &&
              ares_json_get(&lines->items[i], "text") && ares_json_get(&lines->items[i], "mend"));
    CHECK_EQ(doctor(&out, "", "--jsn"), 2);
    CHECK_CONTAINS(out.data, "did you mean '--json'?");
    ares_arena_fini(&arena);
    ares_str_fini(&out);
}

TEST(doctor_names_what_is_missing_and_how_to_have_it)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    CHECK_EQ(doctor(&out, "ARES_PARQUET_LIB=/no/such.so ARES_VIDEO_LIB=/no/such.so", ""), 0);
    CHECK_CONTAINS(line_of(&out, "missing  pyarrow"),
                   "no /no/such.so: without it no Parquet files");
    CHECK_CONTAINS(out.data, "-> scripts/setup.sh --parquet && cmake --preset release && cmake "
                             "--build build\n");
    CHECK_CONTAINS(line_of(&out, "missing  FFmpeg"), "files of videos");
    /* a file that is no library */
    CHECK_OK(ares_file_write(test_file("torn.so"),
                             "\x7f"
                             "ELF",
                             4));
    CHECK_EQ(doctor(&out, "ARES_TORCH_LIB=./torn.so", ""), 0);
    CHECK_CONTAINS(line_of(&out, "missing  libtorch"), "torn.so: file too short");
    CHECK_EQ(doctor(&out, "ARES_CUDA_LIB=/no/such.so", ""), 0);
    CHECK_CONTAINS(line_of(&out, "missing  libares_cuda"), "no /no/such.so");
    CHECK_CONTAINS(out.data, "-> scripts/setup.sh && cmake --preset release -DARES_CUDA=ON");
    if (!ares_file_exists("/proc/driver/nvidia/version")) {
        CHECK_EQ(doctor(&out, "ARES_CUDA_LIB=", ""), 0);
        CHECK_CONTAINS(line_of(&out, "missing  card"), "runs compute on the CPU");
        write_run();
        CHECK_EQ(doctor(&out, "ARES_CUDA_LIB=", "--config run.yaml trainer.device=cuda"), 1);
        CHECK_CONTAINS(line_of(&out, "fails    card"), "no driver of a CUDA card");
        CHECK_CONTAINS(out.data, "-> trainer.device=cpu\n");
    }
    CHECK_EQ(doctor(&out, "PATH=/no/such", ""), 0);
    CHECK_CONTAINS(line_of(&out, "missing  python3"), "not in PATH");
    CHECK(*line_of(&out, "missing  MPI"));
    CHECK_EQ(doctor(&out, "LC_ALL=C", ""), 0);
    CHECK_CONTAINS(out.data, "warn     locale");
    CHECK_CONTAINS(out.data, "-> export LC_ALL=C.UTF-8\n");
    CHECK_EQ(doctor(&out, "LC_ALL=xx_YY.UTF-8", ""), 0);
    CHECK_CONTAINS(line_of(&out, "warn     locale"), "not installed");
    ares_str_fini(&out);
}

TEST(doctor_says_what_a_configuration_would_use)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 }, before = { 0 }, after = { 0 };
    static const char list[] = "cd '%s' && find . -type f | sort | xargs cksum";
    write_run();
    CHECK_EQ(test_shell(&before, list, test_dir()), 0);
    CHECK_EQ(doctor(&out, TORCH, "--config run.yaml"), 0);
    CHECK_CONTAINS(line_of(&out, "ok       configuration"), "train can run with");
    CHECK_CONTAINS(line_of(&out, "ok       model"), "models/mine: worker.actor.model.model_path, ");
    CHECK_CONTAINS(line_of(&out, "ok       rows"), "rows.jsonl: data.train_files");
    CHECK_CONTAINS(line_of(&out, "ok       plan"), "a process needs ");
    CHECK_CONTAINS(line_of(&out, "ok       run directory"), "runs/p/e: a new run");
    CHECK_CONTAINS(line_of(&out, "ok       disk"), "checkpoints take up to ");
    CHECK(*line_of(&out, "ok       files"));
    /* it has written nothing */
    CHECK_EQ(test_shell(&after, list, test_dir()), 0);
    CHECK_STR(after.data, before.data);
    /* a library that the configuration asks for */
    CHECK_EQ(doctor(&out, "ARES_TORCH_LIB=/no/such.so", "--config run.yaml trainer.kernels=aten"),
             1);
    CHECK_CONTAINS(line_of(&out, "fails    libtorch"), "no /no/such.so");
    /* attention of a card in bf16, which is its own choice */
    (void)doctor(&out, "ARES_TORCH_LIB=/no/such.so", "--config run.yaml trainer.device=cuda");
    CHECK_CONTAINS(line_of(&out, "fails    libtorch"),
                   "without it no trainer.kernels=aten, and bf16");
    (void)doctor(&out, "ARES_TORCH_LIB=/no/such.so",
                 "--config run.yaml trainer.device=cuda worker.actor.fsdp.torch_dtype=fp32");
    CHECK(*line_of(&out, "missing  libtorch"));
    (void)doctor(&out, "ARES_TORCH_LIB=none", "--config run.yaml trainer.device=cuda");
    CHECK_CONTAINS(line_of(&out, "missing  libtorch"), "left out (ARES_TORCH_LIB=none)");
    /* a configuration of sft */
    static const char pairs[] = "{\"prompt\":\"1+1=?\",\"response\":\"2\"}\n";
    static const char sft[] = "data: {train_files: pairs.jsonl}\nsft: {batch_size: 1}\n"
                              "worker: {actor: {model: {model_path: models/mine}}}\n"
                              "trainer: {max_steps: 1}\n";
    CHECK_OK(ares_file_write(test_file("pairs.jsonl"), pairs, sizeof pairs - 1));
    CHECK_OK(ares_file_write(test_file("sft.yaml"), sft, sizeof sft - 1));
    CHECK_EQ(doctor(&out, "", "--config sft.yaml"), 0);
    CHECK_CONTAINS(line_of(&out, "ok       configuration"), "sft can run with");
    ares_str_fini(&out);
    ares_str_fini(&before);
    ares_str_fini(&after);
}

/* Each breaks one thing of a run that works, and is told by one line. */
TEST(doctor_says_why_a_run_would_not_work)
{
    static const struct {
        const char *breaks, *words, *begins, *says, *mend;
    } cases[] = {
        { "", "worker.actor.model.model_path=models/none", "fails    model", "models/none",
          "ares-train init --arch qwen2 --out models/none" },
        { "head -c 100 models/mine/model.safetensors > x; mkdir models/torn; cp "
          "models/mine/*.json models/torn; mv x models/torn/model.safetensors",
          "worker.actor.model.model_path=models/torn", "fails    model", "model.safetensors",
          "worker.actor.model.model_path=DIR, of a whole model" },
        { "mkdir models/SmolLM2-135M-Instruct; rmdir models/SmolLM2-135M-Instruct",
          "worker.actor.model.model_path=models/SmolLM2-135M-Instruct", "fails    model", "SmolLM2",
          "scripts/fetch_smollm2.sh models/SmolLM2-135M-Instruct" },
        { "", "data.train_files=none.jsonl", "fails    rows", "none.jsonl",
          "data.train_files=FILE" },
        { "echo '{\"prompt\": ' > torn.jsonl", "data.val_files=torn.jsonl", "fails    rows",
          "torn.jsonl", "data.val_files=FILE" },
        { "mkfifo pipe.jsonl", "data.train_files=pipe.jsonl", "fails    rows", "pipe.jsonl",
          "data.train_files=FILE" },
        { "", "worker.rollout.m=8", "fails    configuration", "worker.rollout.m", "--help-config" },
        { "", "'worker.reward.rewards=[{command: [no_such_program, x]}]'", "fails    reward",
          "no_such_program: no such program in PATH", "name a program" },
        { "", "trainer.save_freq=1 trainer.max_steps=900000000", "fails    disk",
          "checkpoints take ", "trainer.save_limit=1" },
        { "", "data.rollout_batch_size=100000000 worker.actor.global_batch_size=100000000",
          "fails    plan", "; there are ", "take a smaller model, or more memory" },
        { "mkdir -p runs/p/e; echo '{\"step\":4,\"stopped\":null}' > runs/p/e/DONE; echo 'trainer: "
          "{max_steps: 4}' > runs/p/e/config.yaml; echo '{\"step\":4}' > runs/p/e/metrics.jsonl",
          "", "fails    run directory", "runs/p/e", "trainer.experiment_name=NAME" },
    };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    char words[512];
    write_run();
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_EQ(test_shell(NULL, "cd '%s' && { %s; }", test_dir(),
                            *cases[i].breaks ? cases[i].breaks : "true"),
                 0);
        snprintf(words, sizeof words, "--config run.yaml %s", cases[i].words);
        int rc = doctor(&out, "", words);
        CHECK_MSG(rc == 1, "%s: exit code %d\n%s", cases[i].begins, rc, out.data);
        CHECK_CONTAINS(line_of(&out, cases[i].begins), cases[i].says);
        CHECK_CONTAINS(out.data, cases[i].mend);
        CHECK_CONTAINS(out.data, "doctor: 1 line says why this run would not work\n");
    }
    /* the mending that is named for a model works */
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && rm -r runs && PATH=\"$(dirname '%s'):$PATH\" && ares-train "
                        "init --arch qwen2 --out models/none >/dev/null",
                        test_dir(), test_program()),
             0);
    CHECK_EQ(doctor(&out, "", "--config run.yaml worker.actor.model.model_path=models/none"), 0);
    CHECK_EQ(doctor(&out, "",
                    "--config run.yaml trainer.save_freq=1 trainer.max_steps=900000000 "
                    "trainer.save_limit=1"),
             0);
    ares_str_fini(&out);
}

/* What the disk line counts with is what a checkpoint takes. */
TEST(doctor_knows_what_a_checkpoint_takes)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    ares_arena arena = { 0 };
    const ares_json *plan;
    double whole, bytes;
    write_run();
    CHECK_EQ(test_shell(&out, "cd '%s' && '%s' plan --config run.yaml --json", test_dir(),
                        test_program()),
             0);
    REQUIRE_OK(ares_json_parse(&arena, ares_view_trim(ares_str_view(&out)), "plan", &plan));
    CHECK_OK(ares_json_get_double(plan, "checkpoint_bytes", 0, &whole));
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out,
                        "cd '%s' && '%s' --config run.yaml trainer.max_steps=1 >log 2>&1; cat "
                        "runs/p/e/checkpoints/step_000001/model/*.safetensors "
                        "runs/p/e/checkpoints/step_000001/*.safetensors | wc -c",
                        test_dir(), test_program()),
             0);
    bytes = atof(out.data);
    /* headers of files are some 3 kB */
    CHECK_MSG(whole > 1e4 && bytes >= whole && bytes < whole + 8000, "%.0f, on the disk %.0f",
              whole, bytes);
    ares_arena_fini(&arena);
    ares_str_fini(&out);
}
