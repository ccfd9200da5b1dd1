/*
 * ares-train verify and exactness.json: a step that is made again is the run's, to the last bit,
 * for every kind of run; whatever was changed is found. Seen to fail: with the digest, the sum of
 * the weights, the source of prompts or the state of the controls left out, with a logit of
 * decoding off by 1e-6, with a bootstrap pass that writes, and with the counts left out of
 * state.json.
 */
#include "agent_runs.h"
#include "e2e.h"
#include "vapor_runs.h"
#include "vision_runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT "trainer.save_freq=1 trainer.threads=1 trainer.max_steps=3 "
#define STOPS                                                                                   \
    "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w]' " \
    "data.max_response_length=40 "

/* Verifies a run of this test's folder; what it prints has `says` in it. */
static int verify(const char *run, const char *words, const char *says)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "verify '%s' %s", test_file(run), words);
    if (says) CHECK_CONTAINS(out.data, says);
    ares_str_fini(&out);
    return rc;
}

static bool equal(const char *run, const char *words)
{
    return CHECK_EQ(verify(run, words, "\nequal\n"), 0);
}

static bool trained(const char *run, const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "--config '%s' %s", e2e_train_words(run), words);
    bool good = CHECK_MSG(rc == 0, "%s: %s", words, out.data ? out.data : "");
    ares_str_fini(&out);
    return good;
}

/* A run of two mini-batches a step, made once. */
static void usual(const char *run)
{
    (void)trained(run, KEPT "worker.actor.global_batch_size=2");
}

TEST(a_step_is_made_again_to_the_last_bit)
{
    static const char list[] = "cd '%s' && find . | sort | xargs stat -c '%%n %%s %%Y %%y' && find "
                               ". -type f | sort | xargs sha256sum";
    ares_str before = { 0 }, after = { 0 };
    usual("run");
    CHECK_EQ(test_shell(&before, list, test_file("run")), 0);
    equal("run", "");
    equal("run", "--step 1");
    equal("run", "--step 2 --rows 3");
    equal("run", "trainer.threads=3 worker.rollout.max_num_seqs=3 "
                 "worker.actor.max_token_len_per_device=100");
    CHECK_EQ(verify("run", "--rows 7", "logits                             7 of 7 rows of 512"), 0);
    CHECK_EQ(verify("run", "--rows 0", "\nequal\n"), 0);
    CHECK_EQ(test_shell(&after, list, test_file("run")), 0);
    CHECK_STR(after.data, before.data); /* nothing was written, not even a time */
    ares_str_fini(&before), ares_str_fini(&after);
}

TEST(every_instruction_set_makes_the_same_step)
{
    static const char *const sets[] = { "plain", "avx2", "avx512" };
    usual("run");
    for (int i = 0; i < ARES_COUNT(sets); i++) {
        if (!test_has_isa(sets[i])) continue;
        CHECK_EQ(test_shell(NULL, "ARES_ISA=%s '%s' verify '%s'", sets[i], test_program(),
                            test_file("run")),
                 0);
    }
}

/* ---------------------------------------------------------------- what was changed is found */

/* Changes a copy of the run by a Python program that has its path in `d`, and verifies it. */
static void found(const char *change, const char *words, int status, const char *says)
{
    ares_str script = { 0 };
    ares_str_addf(
        &script,
        "import json, os, sys\nd = sys.argv[1]\nstep = d + '/rollouts/step_000003.jsonl'\n"
        "rows = [json.loads(x) for x in open(step)]\ntext = None\n%s\n"
        "open(step, 'w').write(text if text is not None else ''.join(json.dumps(x, "
        "ensure_ascii=False) + '\\n' for x in rows))\n",
        change);
    const char *path = e2e_write("change.py", script.data);
    CHECK_EQ(test_shell(NULL, "rm -rf '%s'; cp -r '%s' '%s' && python3 '%s' '%s'",
                        test_file("changed"), test_file("run"), test_file("changed"), path,
                        test_file("changed")),
             0);
    CHECK_MSG(verify("changed", words, says) == status, "%s", change);
    ares_str_fini(&script);
}

TEST(a_change_of_what_was_written_is_found)
{
    usual("run");
    found("", "", 0, "\nequal\n"); /* the same numbers in another spelling */
    found("rows[4]['score'] = 0.25", "", 1, "row 5 (draw 9, sample 0): score: the run wrote 0.25");
    found("rows[0]['response'] = 'Z' + rows[0]['response']", "", 1, "row 1");
    found("rows[2]['prompt'] += ' '", "", 1, "prompt: from there on the run wrote");
    found("rows[2]['token_ids'][3] += 1", "", 1, "token_ids of token 3: the run wrote");
    found("rows[5]['logprobs'][1] -= 0.001", "", 1, "logprobs of token 1");
    found("rows[5]['entropies'][0] += 0.01", "", 1, "entropies of token 0");
    found("x = rows[6]['digest']; rows[6]['digest'] = ('0' if x[0] != '0' else '1') + x[1:]", "", 1,
          "bits of ids, log-probabilities or entropies differ");
    found("rows[6]['advantage'] += 1e-6", "", 1, "row 7 (draw 9, sample 2): advantage");
    found("del rows[3]", "", 1, "again it is there, and the run wrote none");
    found("rows.append(dict(rows[3], sample=9))", "", 1, "and again there is none");
    found("rows.append(rows[3])", "", 1, "and again there is none");
    found("del rows[3]['response']", "", 1, "row 4 (draw 8, sample 3): response: the run wrote {}");
    found("rows = []", "", 1, "the run wrote none");
    found("text = open(step).read()[:-40]", "", 1, "the file ends within a line");
    found("text = open(step).read().replace('{', '[', 1)", "", 1, "step_000003.jsonl:1");
    found("text = '7\\n'", "", 1, "no object");
    found("rows[0]['response'] = 'a\\u001b[31mb\\u009b'", "", 1, "row 1"); /* shown, not sent */
    /* what an older program or a smaller trainer.rollout_log_tokens leaves out is not missed */
    found("for x in rows: x.pop('digest'), x.pop('logprobs', 0), x.pop('token_ids', 0)", "", 0,
          "all bits of the answers' tokens    not written");
    found("os.remove(step)\nstep = d + '/other'", "", 0, "step 2 of");
    found("os.remove(step)\nstep = d + '/other'", "--step 3", 2,
          "the run has no rollouts of it; the steps that can be compared: 1 to 2");
}

TEST(a_changed_weight_or_row_of_data_is_found)
{
    static const char flip[] = "p = d + '/%s'; b = bytearray(open(p, 'rb').read()); b[-6] ^= 1; "
                               "open(p, 'wb').write(b)";
    char change[300], words[400];
    usual("run");
    snprintf(change, sizeof change, flip, "checkpoints/step_000002/model/model.safetensors");
    found(change, "", 1, "does not hold the numbers that were saved");
    found(change, "--step 2", 0, "\nequal\n");
    snprintf(change, sizeof change, flip, "model.safetensors");
    CHECK_EQ(test_shell(NULL, "cp -r '%s' '%s' && python3 -c \"d = '%s'; %s\"", e2e_model(),
                        test_file("other"), test_file("other"), change),
             0);
    snprintf(words, sizeof words, "worker.actor.model.model_path='%s'", test_file("other"));
    CHECK_EQ(verify("run", words, "other weights"), 1);
    strcat(words, " --step 1");
    CHECK_EQ(verify("run", words, "the model (worker.actor.model.model_path)"), 1);
    /* the same rows at another place are the same; one digit of a prompt is found */
    CHECK_EQ(test_shell(NULL, "cp '%s' '%s' && sed '17s/1/2/' '%s' >'%s'",
                        test_source("examples/data/sums/train.jsonl"), test_file("rows.jsonl"),
                        test_file("rows.jsonl"), test_file("wrong.jsonl")),
             0);
    snprintf(words, sizeof words, "data.train_files='%s'", test_file("rows.jsonl"));
    equal("run", words);
    snprintf(words, sizeof words, "data.train_files='%s'", test_file("wrong.jsonl"));
    CHECK_EQ(verify("run", words, "another data set"), 1);
    strcat(words, " --step 1");
    CHECK_EQ(verify("run", words, "training rows (data.train_files)"), 1);
    /* of a run without fingerprints the prompts and answers tell */
    CHECK_EQ(test_shell(NULL, "rm '%s'; sed 's/1/2/' '%s' >'%s'", test_file("run/exactness.json"),
                        test_file("rows.jsonl"), test_file("wrong.jsonl")),
             0);
    CHECK_EQ(verify("run", words, "different: row"), 1);
}

TEST(what_cannot_be_compared_says_why)
{
    char words[300];
    usual("run");
    CHECK_EQ(verify("nowhere", "", "no such directory; name that of a run"), 2);
    CHECK_EQ(verify(".", "", "no config.yaml there"), 2);
    CHECK_EQ(verify("run", "--step 9", "no rollouts of it; the steps that can be compared: 1 to 3"),
             2);
    CHECK_EQ(verify("run", "worker.rollout.n=2", "only those that change no result"), 2);
    CHECK_EQ(verify("run", "nonsense", "only those that change no result"), 2);
    CHECK_EQ(verify("run", "--nonsense", "--nonsense"), 2);
    snprintf(words, sizeof words, "worker.actor.model.model_path='%s'", test_file("gone"));
    CHECK_EQ(verify("run", words, "nothing was compared"), 2);
    CHECK_EQ(test_shell(NULL, "rm '%s'", test_file("run/checkpoints/step_000002/source.json")), 0);
    CHECK_EQ(verify("run", "", "nothing was compared"), 2);
    CHECK_EQ(test_shell(NULL, "rm -r '%s'", test_file("run/checkpoints/step_000002")), 0);
    CHECK_EQ(verify("run", "--step 3", "the state that it began with is not kept"), 2);
    equal("run", ""); /* the latest that can be: 2 */
    CHECK_EQ(verify("run", "", "step 2 of"), 0);
    CHECK_EQ(test_shell(NULL, "rm -r '%s'", test_file("run/rollouts")), 0);
    CHECK_EQ(verify("run", "", "there are no rollouts to compare with"), 2);
    CHECK(trained("silent", KEPT "trainer.rollout_log=none"));
    CHECK_EQ(verify("silent", "", "there are no rollouts to compare with"), 2);
    CHECK_EQ(
        test_shell(NULL, "grep -q 'rollout_log is none' '%s'", test_file("silent/exactness.json")),
        0);
    /* weights of bf16 lie in a model alone less exactly than in the run's memory */
    CHECK(trained("model", KEPT "worker.actor.fsdp.torch_dtype=bf16 trainer.save_model_only=true "
                                "trainer.max_steps=2"));
    CHECK_EQ(verify("model", "--step 2", "is a model alone (trainer.save_model_only)"), 2);
    equal("model", "--step 1");
    CHECK_EQ(e2e_program(NULL, "sft --config '%s'", e2e_sft_words("taught")), 0);
    CHECK_EQ(verify("taught", "", "is a supervised run"), 2);
    CHECK(!ares_file_exists(test_file("taught/exactness.json")));
}

/* A whole number of exactness.json, and one of its reasons; -1: it is not there. */
static int64_t count(const char *run, const char *key, const char *reason)
{
    char name[80];
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *o;
    int64_t n = -1;
    snprintf(name, sizeof name, "%s/exactness.json", run);
    if (CHECK_OK(ares_file_read(test_file(name), &text)) &&
        CHECK_OK(ares_json_parse(&arena, ares_str_view(&text), name, &o))) {
        if (reason) o = ares_json_get(o, key);
        CHECK_OK(ares_json_get_i64(o, reason ? reason : key, -1, &n));
    }
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return n;
}

/* ---------------------------------------------------------------- every kind of run */

TEST(steps_of_every_kind_of_run_are_made_again)
{
    static const char *const kinds[] = {
        "",
        "trainer.rollout_log=text",
        "trainer.rollout_log_tokens=40",
        "worker.rollout.top_p=0.8 worker.rollout.top_k=20 data.shuffle=true",
        "algorithm.adv_estimator=gae",
        "algorithm.adv_estimator=remax",
        "algorithm.adv_estimator=reinforce_plus_plus",
        "algorithm.disable_kl=false algorithm.use_kl_loss=true worker.actor.ppo_epochs=2",
        "algorithm.disable_kl=false algorithm.use_kl_loss=false",
        "worker.actor.mini_batch_unit=rows worker.actor.global_batch_size=8",
        "worker.actor.fsdp.torch_dtype=bf16",
        "worker.actor.arithmetic=bf16",
        "worker.actor.offload.offload_params=true",
        "worker.actor.model.lora.rank=4",
        "algorithm.aepo=true algorithm.disable_kl=false worker.actor.dynamic_kl_loss=true "
        "algorithm.use_kl_loss=true worker.reward.accuracy=random "
        "'worker.reward.rewards=[{name: random}, {name: aepo}]'",
        "'worker.reward.rewards=[{name: random}]' " STOPS
        "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score",
        "'worker.reward.rewards=[{name: random}]' " STOPS
        "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score "
        "algorithm.dynamic_sampling.mode=same_prompt algorithm.max_resample=30",
        "'worker.reward.rewards=[{name: exact}]' algorithm.filter_groups.enable=true "
        "algorithm.max_resample=1",
        "'worker.reward.rewards=[{name: random}]' worker.reward.accuracy=random " STOPS
        "curriculum.over_sampling_batch_size=8 curriculum.partial_rollout=true "
        "curriculum.recycle_surplus=true",
        "worker.actor.mini_batch_unit=rows worker.actor.global_batch_size=8 "
        "algorithm.batch_adjust_mode=copy algorithm.adv_estimator=gae "
        "'worker.reward.rewards=[{name: random}]' worker.rollout.rollout_filter_strategy=top_k "
        "worker.rollout.rollout_filter_value=0.75",
        "algorithm.mask_truncated=true",
        "trainer.critic_warmup=2 algorithm.adv_estimator=gae",
    };
    for (int i = 0; i < ARES_COUNT(kinds); i++) {
        char run[32], words[900];
        snprintf(run, sizeof run, "kind%d", i);
        snprintf(words, sizeof words, KEPT "trainer.max_steps=2 %s", kinds[i]);
        if (!trained(run, words)) continue;
        CHECK_MSG(equal(run, i % 4 ? "" : "--step 1"), "%s", kinds[i]);
    }
}

TEST(a_bootstrap_pass_and_a_curriculum_are_part_of_what_a_step_begins_with)
{
    char words[1500], a[300], b[300];
    snprintf(a, sizeof a, "%s",
             e2e_write("a.jsonl", "{\"prompt\":\"a 1\",\"answer\":\"1\"}\n"
                                  "{\"prompt\":\"a 2\",\"answer\":\"2\"}\n"
                                  "{\"prompt\":\"a 3\",\"answer\":\"3\"}\n"));
    snprintf(b, sizeof b, "%s",
             e2e_write("b.jsonl", "{\"prompt\":\"b 1\",\"answer\":\"1\"}\n"
                                  "{\"prompt\":\"b 2\",\"answer\":\"2\"}\n"));
    snprintf(words, sizeof words,
             KEPT "data.train_files='%s' data.bootstrap=true data.bootstrap_batch_size=2 "
                  "algorithm.disable_kl=false algorithm.use_kl_loss=true "
                  "algorithm.kl_penalty=low_var_kl algorithm.online_filtering=true "
                  "algorithm.filter_key=accuracy algorithm.filter_low=0.01 "
                  "algorithm.filter_high=0.99 worker.actor.dynamic_kl_loss=true "
                  "worker.rollout.window_size=2 '~worker.reward.rewards' "
                  "worker.reward.reward_function=aepo worker.reward.accuracy=random "
                  "trainer.max_try_make_batch=0 data.rollout_batch_size=2 "
                  "worker.actor.global_batch_size=2",
             a);
    if (trained("aepo", words)) {
        equal("aepo", "");
        equal("aepo", "--step 1"); /* by what the pass has left in bootstrap.json */
        CHECK_EQ(test_shell(NULL, "rm '%s'", test_file("aepo/bootstrap.json")), 0);
        equal("aepo", "--step 1"); /* by the pass itself, which writes nothing */
        CHECK(!ares_file_exists(test_file("aepo/bootstrap.json")));
    }
    snprintf(words, sizeof words,
             KEPT "'data.train_files=[%s, %s]' data.rollout_batch_size=6 "
                  "worker.actor.global_batch_size=6 'worker.reward.rewards=[{name: random}]' "
                  "algorithm.dynamic_sampling_filter=reward_cap " STOPS
                  "'curriculum.weights=[\"0.8 - 0.1 * step\", increasing_weight]' "
                  "'curriculum.reward_caps=[0.6, \"0.4 + step / 20\"]' "
                  "curriculum.over_sampling_batch_size=12 curriculum.partial_rollout=true "
                  "curriculum.recycle_surplus=true",
             a, b);
    if (!trained("mixed", words)) return;
    equal("mixed", "");
    equal("mixed", "--step 1");
    CHECK_EQ(test_shell(NULL, "grep -q '\"older_weights\": [1-9]' '%s'",
                        test_file("mixed/exactness.json")),
             0); /* answers have gone on over a step */
}

/* ---------------------------------------------------------------- programs of the user's */

TEST(a_reward_that_answers_otherwise_is_told_and_what_was_sampled_is_compared)
{
    char words[500], command[300];
    snprintf(command, sizeof command, "%s",
             e2e_write("moody.py", "import json, random, sys\n"
                                   "for line in sys.stdin:\n"
                                   "    print(random.SystemRandom().random(), flush=True)\n"));
    snprintf(words, sizeof words,
             KEPT "'~worker.reward.rewards' 'worker.reward.rewards=[{command: [python3, %s]}]'",
             command);
    if (!trained("run", words)) return;
    CHECK_EQ(verify("run", "", "0 of 16 rows equal (the user's programs decide them)"), 0);
    CHECK_EQ(verify("run", "", "all bits of the answers' tokens    16 of 16 rows equal"), 0);
    found("rows[2]['token_ids'][3] += 1", "", 1, "token_ids of token 3");
    found("x = rows[6]['digest']; rows[6]['digest'] = ('0' if x[0] != '0' else '1') + x[1:]", "", 1,
          "bits of ids");
    CHECK_EQ(test_shell(NULL,
                        "grep -q '\"replayable\": false' '%s' && grep -q 'may judge the same "
                        "answer otherwise' '%s'",
                        test_file("run/exactness.json"), test_file("run/exactness.json")),
             0);
}

static bool acted(const char *config, const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "--config '%s' %s", config, words);
    bool good = CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
    ares_str_fini(&out);
    return good;
}

TEST_SLOW(episodes_are_played_again)
{
    static const char program[] =
        "import json, random, sys\nmoody = len(sys.argv) > 1\n"
        "for line in sys.stdin:\n"
        "    say = 'state %s' % (random.SystemRandom().random() if moody else 1)\n"
        "    print(json.dumps({'observation': say, 'reward': 0.5, 'done': False}), flush=True)\n";
    char words[900], path[300];
    snprintf(path, sizeof path, "%s", e2e_write("own.py", program));
    if (!acted(agent_words("turns"), KEPT "env.context_window_mode=limited_multi_turn "
                                          "trainer.max_steps=2"))
        return;
    equal("turns", "");
    /* a program that answers alike is compared in full; of one that does not, up to that answer */
    for (int moody = 0; moody < 2; moody++) {
        const char *run = moody ? "moody" : "steady";
        snprintf(words, sizeof words,
                 KEPT "trainer.max_steps=2 'env.train.tags=[FrozenLake, Own]' "
                      "env.definitions.Own.type=command "
                      "'env.definitions.Own.options.command=[python3, %s%s]'",
                 path, moody ? ", moody" : "");
        if (!acted(agent_words(run), words)) return;
        CHECK_EQ(verify(run, "",
                        moody ? "8 rows whose environment answered otherwise"
                              : "all bits of the answers' tokens    16 of 16"),
                 0);
    }
    CHECK_EQ(test_shell(NULL, "grep -q 'the environment Own is a program' '%s'",
                        test_file("moody/exactness.json")),
             0);
}

TEST(programs_that_play_by_themselves_play_again)
{
    char text[1500];
    snprintf(text, sizeof text,
             "env:\n"
             "  definitions:\n"
             "    A: {type: agent, options: {command: [python3, tests/e2e/player.py, good], "
             "processes: 2}}\n"
             "  train: {tags: A, groups: 2, group_size: 4}\n"
             "algorithm: {adv_estimator: grpo, disable_kl: true}\n"
             "data: {max_response_length: 12}\n"
             "worker:\n"
             "  rollout: {max_model_len: 400}\n"
             "  actor: {model: {model_path: '%s'}, mini_batch_unit: rows, global_batch_size: 4, "
             "optim: {lr: 1.0e-3}}\n"
             "trainer: {max_steps: 2, save_freq: 1, logger: [console], run_dir: '%s'}\n",
             e2e_model(), test_file("run"));
    if (!acted(e2e_write("players.yaml", text), "")) return;
    equal("run", "");
    equal("run", "--step 1");
}

/* ---------------------------------------------------------------- other models */

TEST(pictures_are_seen_again)
{
    if (!vision_trains("run", "trainer.save_freq=1")) return;
    equal("run", "");
    equal("run", "--step 1");
    if (vision_trains("tower", "trainer.save_freq=1 worker.actor.model.freeze_vision_tower=false"))
        equal("tower", "");
}

TEST(steps_of_vapor_are_made_again)
{
    char words[900];
    snprintf(words, sizeof words,
             "algorithm.name=vapor vapor.verifiable_term_split='[<N>, </N>]' "
             "vapor.preference_term_split='[<S>, </S>]' data.train_files='%s' "
             "worker.actor.model.model_path='%s' data.rollout_batch_size=4 worker.rollout.n=8 "
             "worker.actor.global_batch_size=2 data.max_prompt_length=64 "
             "data.max_response_length=32 worker.actor.optim.lr=3e-3 trainer.max_steps=2 "
             "trainer.save_freq=1 trainer.val_freq=-1 trainer.logger='[console]' "
             "vapor.sync_ref_model=true vapor.ref_model_sync_steps=1 trainer.run_dir='%s'",
             vapor_rows(), vapor_model(), test_file("run"));
    ares_str out = { 0 };
    int rc = e2e_program(&out, "train %s", words);
    CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
    equal("run", "");
    equal("run", "--step 1");
    ares_str_fini(&out);
}

TEST(kernels_that_agree_within_an_error_say_by_how_much)
{
    static const char aten[] = KEPT "trainer.max_steps=2 trainer.kernels=aten";
    ares_str out = { 0 };
    if (!trained("run", aten)) return;
    CHECK_EQ(verify("run", "", "the difference\nis told, and is none of the run"), 0);
    CHECK_EQ(e2e_program(&out, "verify '%s' --rows 32", test_file("run")), 0);
    CHECK_CONTAINS(out.data, "of 32 rows of 512 equal, largest difference");
    CHECK(!strstr(out.data, " 32 of 32 rows of 512")); /* or the comparison would see nothing */
    ares_str_fini(&out);
    /* another arithmetic is another run, in bits that the file's digits do not show */
    CHECK_EQ(verify("run", "trainer.kernels=native", "different: row"), 1);
    CHECK_EQ(count("run", "first_difference", "step"), 1);
    int64_t at = count("run", "first_difference", "token");
    CHECK(at >= 0 && at < 12);
}

/* ---------------------------------------------------------------- ranks, and runs that go on */

TEST(another_number_of_ranks_makes_the_same_step)
{
    E2E_NEEDS_MPI();
    char wide[400];
    snprintf(wide, sizeof wide,
             "worker.rollout.tensor_parallel_size=2 worker.actor.model.model_path='%s'",
             test_file("wide"));
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2 --hidden 32 --layers 2 --heads 2 --kv-heads 2 "
                         "--seed 3 --out '%s'",
                         test_file("wide")),
             0);
    const char *const kinds[] = {
        "worker.actor.fsdp.enable_full_shard=true algorithm.adv_estimator=reinforce_plus_plus",
        wide,
        /* three groups stay, and a fourth fills the batch of two ranks */
        "'worker.reward.rewards=[{name: random}]' worker.rollout.rollout_filter_strategy=top_k "
        "worker.rollout.rollout_filter_value=0.75",
    };
    for (int i = 0; i < ARES_COUNT(kinds); i++) {
        char run[32], words[500];
        snprintf(run, sizeof run, "two%d", i);
        snprintf(words, sizeof words, "--ranks 2 " KEPT "%s", kinds[i]);
        if (!trained(run, words)) continue;
        CHECK_MSG(equal(run, "") && equal(run, "--ranks 2"), "%s", kinds[i]);
    }
    CHECK_EQ(verify("two2", "", "4 masked rows that fill a batch of 2 ranks"), 0);
    usual("one");
    equal("one", "--ranks 2 --step 2");
}

TEST(exactness_says_when_force_went_on_with_other_options)
{
    static const char *const rates[] = { "1e-4", "2e-4" };
    ares_str text = { 0 };
    char words[300];
    CHECK(trained("run", KEPT "trainer.max_steps=1"));
    for (int i = 0; i < ARES_COUNT(rates); i++) {
        snprintf(words, sizeof words,
                 KEPT "trainer.max_steps=%d worker.actor.optim.lr=%s trainer.force=true", 2 + i,
                 rates[i]);
        CHECK(trained("run", words));
    }
    CHECK(trained("run", KEPT "trainer.max_steps=4 worker.actor.optim.lr=2e-4")); /* as it is now */
    REQUIRE_OK(ares_file_read(test_file("run/exactness.json"), &text));
    CHECK_CONTAINS(text.data, "\"after_step\": 1");
    CHECK_CONTAINS(text.data, "\"after_step\": 2");
    CHECK(!strstr(text.data, "\"after_step\": 3"));
    CHECK_CONTAINS(text.data, "worker.actor.optim.lr: 0.0001, now 0.0002\"");
    CHECK_CONTAINS(text.data, "\"replayable\": false");
    CHECK_CONTAINS(text.data, "the run went on with other options (--force)");
    ares_str_fini(&text);
}

TEST(exactness_counts_every_token_and_goes_on_with_the_run)
{
    char words[300];
    int64_t tokens = 0;
    usual("run");
    for (int step = 1; step <= 3; step++) {
        char file[64];
        int64_t n;
        ares_arena arena = { 0 };
        snprintf(file, sizeof file, "rollouts/step_%06d.jsonl", step);
        const ares_json **rows = e2e_rows(&arena, "run", file, &n);
        for (int64_t i = 0; i < n; i++) tokens += (int64_t)e2e_number(rows[i], "n_tokens");
        ares_arena_fini(&arena);
    }
    CHECK_EQ(count("run", "steps", NULL), 3);
    CHECK(count("run", "tokens_compared", NULL) > 0);
    CHECK_EQ(count("run", "tokens_compared", NULL) +
                 count("run", "tokens_not_compared", "after_update"),
             tokens);
    CHECK_EQ(test_shell(NULL, "cp -r '%s' '%s'", test_file("run"), test_file("first")), 0);
    /* taken back to step 1 and made again, the counts are those of a run that never stopped */
    CHECK(e2e_go_back("run", "whole", 1));
    usual("run");
    CHECK_EQ(test_shell(NULL, "cmp '%s' '%s'", test_file("run/exactness.json"),
                        test_file("whole/exactness.json")),
             0);
    equal("run", "");
    equal("run", "--step 2");
    /* a longer run, of which the critic's warm-up leaves steps without an update */
    snprintf(words, sizeof words,
             KEPT "algorithm.adv_estimator=gae trainer.critic_warmup=2 trainer.max_steps=3");
    if (!trained("warm", words)) return;
    CHECK(count("warm", "tokens_not_compared", "no_forward") > 0);
    CHECK(count("warm", "tokens_compared", NULL) > 0);
}

TEST(a_run_that_began_with_a_checkpoint_is_made_again_from_there)
{
    char words[400];
    usual("run");
    snprintf(words, sizeof words,
             "trainer.load_checkpoint_path='%s' trainer.max_steps=5 trainer.save_freq=-1 "
             "trainer.threads=1 worker.actor.global_batch_size=2",
             test_file("run/checkpoints/step_000002"));
    if (!trained("more", words)) return;
    CHECK_EQ(verify("more", "", "step 3 of"), 0); /* nothing else is kept */
    CHECK_EQ(verify("more", "--step 1", "the steps that can be compared: 3"), 2);
    CHECK_EQ(test_shell(NULL, "mv '%s' '%s'", test_file("run"), test_file("moved")), 0);
    CHECK_EQ(verify("more", "", "nothing can be compared"), 2);
    equal("moved", ""); /* a run directory may have another name */
}

TEST(a_run_under_way_is_not_disturbed)
{
    const char *config = e2e_train_words("run"), *dir = test_file("run");
    /* it stands in its lock, with rollouts and checkpoints of the first steps */
    int rc = test_shell(
        NULL,
        "cd '%s'; '%s' --config '%s' trainer.max_steps=2000 trainer.save_freq=5 "
        "trainer.threads=1 >/dev/null 2>&1 & pid=$!\n"
        "while kill -0 $pid 2>/dev/null && [ ! -e '%s/checkpoints/step_000010' ]; do "
        "sleep 0.01; done\n"
        "'%s' verify '%s' --step 6; rc=$?; '%s' verify '%s' >/dev/null; latest=$?\n"
        "kill -0 $pid || rc=7; kill -INT $pid; wait $pid\n"
        "[ $? = 130 ] || rc=8; [ $latest = 0 ] || rc=9; exit $rc",
        test_source("."), test_program(), config, dir, test_program(), dir, test_program(), dir);
    CHECK_EQ(rc, 0);
    equal("run",
          ""); /* the rolling checkpoint of the signal is a state, too, once a step follows */
}
