/*
 * What a run writes of its answers' tokens (docs/runs.md#columns-of-tokens): that nothing of the
 * run depends on it, that the numbers are those of the model, who gets them, and what is made of
 * them by export-tokens; and run.json.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/text.h"
#include "e2e.h"

#define FILE_OF(step) "rollouts/step_00000" #step ".jsonl"
/* two passes over one mini-batch, of which the second sees other weights; a KL in the loss */
#define MOVES                                                                          \
    "worker.actor.ppo_epochs=2 worker.actor.optim.lr=3e-2 algorithm.disable_kl=false " \
    "algorithm.use_kl_loss=true algorithm.kl_coef=0.01 worker.rollout.temperature=1 "  \
    "worker.actor.clip_ratio_low=0.2 worker.actor.clip_ratio_high=0.3 trainer.max_steps=1 "

static bool run_of(const char *run, const char *launch, const char *more)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "%s --config '%s' %s", launch, e2e_train_words(run), more);
    bool good = CHECK_MSG(rc == 0, "%s: exit code %d\n%s", more, rc, out.data ? out.data : "");
    ares_str_fini(&out);
    return good;
}

/* Entry i of a list of the row; NaN where it is null, or the row has no such list. */
static double at(const ares_json *row, const char *key, int64_t i)
{
    const ares_json *x = ares_json_get(row, key);
    if (!x || x->type != ARES_JSON_ARRAY || i >= x->count) return NAN;
    x = &x->items[i];
    return x->type == ARES_JSON_NULL ? NAN : x->number;
}

/* Whether token i lies in runs [first, count] of the row. */
static bool in_runs(const ares_json *row, const char *key, int64_t i)
{
    const ares_json *runs = ares_json_get(row, key);
    for (int64_t k = 0; runs && k < runs->count; k++) {
        int64_t first = runs->items[k].items[0].integer, n = runs->items[k].items[1].integer;
        if (i >= first && i < first + n) return true;
    }
    return false;
}

/* Two numbers of which one was written with so many significant digits. */
static bool near_digits(double got, double want, int digits)
{
    return fabs(got - want) <=
           0.51 * pow(10, floor(log10(fabs(want) + 1e-300)) + 1 - digits) + 1e-6;
}

/*
 * Scores the answers of rows [n] with a model: log-probs and entropies of the tokens of row r are
 * entries [prompt - 1, ...) of scores[r]. Rows of a group without prompt_ids have those above.
 */
static const ares_json **score(ares_arena *arena, const char *model, const ares_json **rows,
                               int64_t n, int64_t *prompt_len)
{
    ares_str input = { 0 };
    const ares_json *prompt = NULL;
    for (int64_t r = 0; r < n; r++) {
        const ares_json *own = ares_json_get(rows[r], "prompt_ids"),
                        *ids = ares_json_get(rows[r], "token_ids");
        if (own) prompt = own;
        prompt_len[r] = prompt->count;
        ares_json_begin(&input, '{');
        ares_json_begin(ares_json_key(&input, "input_ids"), '[');
        for (int64_t i = 0; i < prompt->count; i++) ares_json_write(&input, &prompt->items[i]);
        for (int64_t i = 0; i < ids->count; i++) ares_json_write(&input, &ids->items[i]);
        ares_json_end(&input, ']');
        ares_json_end(&input, '}');
        ares_str_add_char(&input, '\n');
    }
    const char *path = e2e_write("score_in.jsonl", input.data);
    ares_str_fini(&input);
    CHECK_EQ(test_shell(NULL, "'%s' score --model '%s' --input '%s' > '%s'", test_program(), model,
                        path, test_file("score_out.jsonl")),
             0);
    int64_t m;
    const ares_json **scores = e2e_rows(arena, ".", "score_out.jsonl", &m);
    return CHECK_EQ(m, n) ? scores : NULL;
}

TEST(what_is_logged_of_tokens_changes_no_bit_of_a_run)
{
    static const char *const kinds[] = { "tokens", "text", "none" };
    char words[600];
    for (int i = 0; i < ARES_COUNT(kinds); i++) {
        snprintf(words, sizeof words, MOVES "trainer.max_steps=3 trainer.rollout_log=%s", kinds[i]);
        if (!run_of(kinds[i], "", words)) return;
    }
    for (int i = 1; i < ARES_COUNT(kinds); i++)
        CHECK_EQ(test_shell(NULL, "cd '%s' && diff -r tokens/checkpoints %s/checkpoints",
                            test_dir(), kinds[i]),
                 0);
    CHECK(!ares_dir_exists(test_file("none/rollouts")));
    /* text: the same rows without any column of tokens */
    ares_arena arena = { 0 };
    int64_t n, m;
    const ares_json **text = e2e_rows(&arena, "text", FILE_OF(3), &n),
                    **all = e2e_rows(&arena, "tokens", FILE_OF(3), &m);
    CHECK_EQ(n, 16);
    CHECK_EQ(m, 16);
    for (int64_t r = 0; r < n && r < m; r++) {
        CHECK(text[r]->count < all[r]->count);
        for (int64_t k = 0; k < text[r]->count; k++) {
            ares_str x = { 0 }, y = { 0 };
            CHECK(ares_view_eq(text[r]->members[k].key, all[r]->members[k].key));
            CHECK(text[r]->members[k].value->type != ARES_JSON_ARRAY);
            ares_json_write(&x, text[r]->members[k].value);
            ares_json_write(&y, all[r]->members[k].value);
            CHECK_STR(x.data, y.data);
            ares_str_fini(&x);
            ares_str_fini(&y);
        }
    }
    ares_arena_fini(&arena);
}

TEST(logged_numbers_are_those_of_the_models_that_sampled_trained_and_compared)
{
    ares_arena arena = { 0 };
    ares_tokenizer *tokenizer;
    int64_t n, moved = 0, clipped = 0, prompt[16];
    if (!run_of("once", "", MOVES "worker.actor.ppo_epochs=1") || !run_of("twice", "", MOVES))
        return;
    const ares_json **rows = e2e_rows(&arena, "twice", FILE_OF(1), &n);
    if (!CHECK_EQ(n, 16)) return;
    /* the second pass saw the weights that a run of one pass ends with */
    const ares_json **old = score(&arena, e2e_model(), rows, n, prompt),
                    **new = score(&arena, test_file("once"), rows, n, prompt);
    if (!old || !new || !CHECK_OK(ares_tokenizer_load(e2e_model(), &tokenizer))) return;
    for (int64_t r = 0; r < n; r++) {
        int64_t tokens = ares_json_get(rows[r], "n_tokens")->integer;
        static const char *const columns[] = { "token_ids", "pieces",       "entropies", "logprobs",
                                               "kl",        "ref_logprobs", "ratio" };
        for (int i = 0; i < ARES_COUNT(columns); i++)
            CHECK_EQ(ares_json_get(rows[r], columns[i])->count, tokens);
        CHECK_EQ(ares_json_get(rows[r], "prompt_ids") != NULL, r % 4 == 0);
        CHECK(!ares_json_get(rows[r], "advantages") && !ares_json_get(rows[r], "trained"));
        ares_str joined = { 0 }, whole = { 0 };
        int32_t ids[12];
        double advantage = e2e_number(rows[r], "advantage");
        for (int64_t i = 0; i < tokens && i < 12; i++) {
            double before = at(old[r], "log_probs", prompt[r] - 1 + i),
                   after = at(new[r], "log_probs", prompt[r] - 1 + i), x = before - after,
                   ratio = exp(after - before);
            CHECK(near_digits(at(rows[r], "logprobs", i), before, 4));
            CHECK(near_digits(at(rows[r], "ref_logprobs", i), before, 4));
            CHECK(near_digits(at(rows[r], "entropies", i),
                              at(old[r], "entropies", prompt[r] - 1 + i), 3));
            CHECK(near_digits(at(rows[r], "ratio", i), ratio, 4));
            CHECK(near_digits(at(rows[r], "kl", i), exp(x) - x - 1, 4)); /* low_var_kl */
            CHECK_EQ(in_runs(rows[r], "clipped", i), (advantage > 0 && ratio > 1.3) ||
                                                         (advantage < 0 && ratio < 0.8) ||
                                                         (advantage < 0 && ratio > 3));
            moved += fabs(ratio - 1) > 0.01;
            clipped += in_runs(rows[r], "clipped", i);
            ids[i] = (int32_t)ares_json_get(rows[r], "token_ids")->items[i].integer;
            ares_str_add_view(&joined, ares_json_get(rows[r], "pieces")->items[i].text);
        }
        CHECK_OK(ares_tokenizer_decode(tokenizer, ids, tokens, false, &whole));
        CHECK_STR(joined.data, whole.data);
        ares_str_fini(&joined);
        ares_str_fini(&whole);
    }
    CHECK(moved > 100);
    CHECK(clipped > 10);
    /* one update, whose weights are those that sampled: every ratio is 1, and there is no column */
    CHECK_EQ(test_shell(NULL, "cd '%s' && grep -q logprobs %s && ! grep -q '\"ratio\"' %s",
                        test_file("once"), FILE_OF(1), FILE_OF(1)),
             0);
    ares_tokenizer_free(tokenizer);
    ares_arena_fini(&arena);
}

TEST(columns_depend_on_no_thread_micro_batch_or_rank)
{
    if (!run_of("one", "", MOVES "worker.actor.global_batch_size=2")) return;
    if (run_of("threads", "",
               MOVES "worker.actor.global_batch_size=2 trainer.threads=3 "
                     "worker.actor.max_token_len_per_device=60"))
        CHECK(e2e_same_rollouts("one", "threads", 1));
    if (!e2e_has_mpi()) return;
    /* one update, and half of the tokens: after an update ranks differ in the last digit */
#define HALF MOVES "worker.actor.ppo_epochs=1 trainer.rollout_log_tokens=96 "
    if (run_of("whole", "", HALF) && run_of("ranks", "--ranks 2", HALF))
        CHECK(e2e_same_rollouts("whole", "ranks", 1));
    if (!run_of("moved", "--ranks 2", MOVES) || !run_of("still", "", MOVES)) return;
    ares_arena arena = { 0 };
    int64_t n, m;
    const ares_json **x = e2e_rows(&arena, "moved", FILE_OF(1), &n),
                    **y = e2e_rows(&arena, "still", FILE_OF(1), &m);
    CHECK_EQ(n, m);
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < m; k++) {
            if (e2e_number(x[r], "draw") != e2e_number(y[k], "draw") ||
                e2e_number(x[r], "sample") != e2e_number(y[k], "sample"))
                continue;
            for (int64_t i = 0; i < 12; i++)
                CHECK_NEAR(at(x[r], "ratio", i), at(y[k], "ratio", i), 2e-3 * at(y[k], "ratio", i));
        }
    ares_arena_fini(&arena);
}

TEST(groups_with_the_widest_spread_of_advantages_get_columns_first)
{
    static const int64_t limits[] = { 1, 48, 100, 143, 192 };
    ares_arena arena = { 0 };
    char words[600];
    for (int l = 0; l < ARES_COUNT(limits); l++) {
        int64_t n, left = limits[l], chosen = 0;
        snprintf(words, sizeof words,
                 "trainer.max_steps=1 'worker.reward.rewards=[{name: format, pattern: "
                 "'\"'.*[0-9].*'\"', finished: false}, {name: random}]' "
                 "trainer.rollout_log_tokens=%lld",
                 (long long)limits[l]);
        if (!run_of("run", "", words)) return;
        const ares_json **rows = e2e_rows(&arena, "run", FILE_OF(1), &n);
        if (!CHECK_EQ(n, 16)) return;
        double spread[4];
        for (int g = 0; g < 4; g++) {
            double low = INFINITY, high = -INFINITY;
            for (int s = 0; s < 4; s++) {
                low = fmin(low, e2e_number(rows[g * 4 + s], "advantage"));
                high = fmax(high, e2e_number(rows[g * 4 + s], "advantage"));
            }
            spread[g] = high - low;
        }
        for (int pick = 0; pick < 4; pick++) { /* every answer has 12 tokens */
            int best = -1;
            for (int g = 0; g < 4; g++)
                if (spread[g] >= 0 && (best < 0 || spread[g] > spread[best])) best = g;
            bool want = pick == 0 || left >= 48;
            if (want) left -= 48;
            for (int s = 0; s < 4; s++)
                CHECK_EQ(ares_json_get(rows[best * 4 + s], "logprobs") != NULL, want);
            chosen += want;
            spread[best] = -1;
        }
        CHECK_EQ(chosen, ARES_MAX(1, limits[l] / 48));
        CHECK_EQ(test_shell(NULL, "rm -r '%s'", test_file("run")), 0);
    }
    ares_arena_fini(&arena);
}

TEST(a_file_comes_every_so_many_steps_and_with_the_first_and_the_last)
{
    ares_str out = { 0 };
    CHECK(run_of("run", "", "trainer.max_steps=7 trainer.rollout_log_freq=3 trainer.save_freq=1"));
    CHECK_EQ(test_shell(&out, "cd '%s/rollouts' && echo *", test_file("run")), 0);
    CHECK_STR(out.data,
              "step_000001.jsonl step_000003.jsonl step_000006.jsonl step_000007.jsonl\n");
    /* a run that goes on after step 4 writes what it would have written */
    CHECK(e2e_go_back("run", "whole", 4));
    CHECK(run_of("run", "", "trainer.max_steps=7 trainer.rollout_log_freq=3 trainer.save_freq=1"));
    CHECK(e2e_same_runs("whole", "run", 7));
    /* a control ends the run after a validation, or before an update */
    ares_str_clear(&out);
    CHECK(run_of("stopped", "",
                 "data.val_files=examples/data/sums/val.jsonl trainer.val_freq=1 "
                 "worker.reward.accuracy=exact 'worker.reward.rewards=[{name: exact}]' "
                 "trainer.max_steps=8 algorithm.early_stop_low_success=0.01 "
                 "algorithm.early_stop_low_success_validations=3 trainer.rollout_log_freq=5"));
    CHECK_EQ(test_shell(&out, "cd '%s/rollouts' && echo *; grep -o '\"stopped\":[^,]*' ../run.json",
                        test_file("stopped")),
             0);
    CHECK_STR(out.data,
              "step_000001.jsonl step_000003.jsonl\n\"stopped\":\"low_validation_success\"\n");
    ares_str_fini(&out);
}

TEST(a_loss_of_rows_logs_the_rows_ratio_and_a_critic_its_values)
{
    ares_arena arena = { 0 };
    int64_t n, prompt[16];
    if (!run_of("once", "", MOVES "worker.actor.loss_type=gspo worker.actor.ppo_epochs=1") ||
        !run_of("twice", "", MOVES "worker.actor.loss_type=gspo"))
        return;
    const ares_json **rows = e2e_rows(&arena, "twice", FILE_OF(1), &n);
    const ares_json **old = score(&arena, e2e_model(), rows, n, prompt),
                    **new = score(&arena, test_file("once"), rows, n, prompt);
    for (int64_t r = 0; r < n && old && new; r++) {
        double sum = 0, mean;
        for (int64_t i = 0; i < 12; i++)
            sum += at(new[r], "log_probs", prompt[r] - 1 + i) -
                   at(old[r], "log_probs", prompt[r] - 1 + i);
        mean = exp(sum / 12);
        for (int64_t i = 0; i < 12; i++) CHECK(near_digits(at(rows[r], "ratio", i), mean, 4));
    }
    if (!run_of("gae", "", "algorithm.adv_estimator=gae trainer.max_steps=2")) return;
    rows = e2e_rows(&arena, "gae", FILE_OF(2), &n);
    for (int64_t r = 0; r < n; r++) {
        const ares_json *runs = ares_json_get(rows[r], "advantages");
        int64_t tokens = 0;
        if (!CHECK(runs && runs->count > 1)) continue;
        CHECK(near_digits(runs->items[0].items[0].number, e2e_number(rows[r], "advantage"), 4));
        for (int64_t i = 0; i < runs->count; i++) tokens += runs->items[i].items[1].integer;
        CHECK_EQ(tokens, 12);
        CHECK_EQ(ares_json_get(rows[r], "values")->count, 12);
        CHECK(!isnan(at(rows[r], "values", 0)));
    }
    ares_arena_fini(&arena);
}

TEST(exported_tokens_have_the_keys_lengths_and_identities_of_prime_rl)
{
    static const char keys[] =
        " schema_version step rank micro_step micro_sequence_idx export_sequence_idx env_name "
        "token_ids position_ids loss_mask advantages inference_logprobs trainer_logprobs entropy "
        "mismatch_kl log_importance_ratio importance_ratio prob_delta is_masked is_masked_high "
        "is_masked_low rl_weights ce_weights ref_kl_weights";
    ares_arena arena = { 0 };
    ares_str out = { 0 };
    int64_t n, m, masked = 0;
    if (!run_of("run", "", MOVES "trainer.rollout_log_tokens=96 trainer.max_steps=2")) return;
    CHECK_EQ(e2e_program(&out, "export-tokens '%s' --out '%s' --step 2", test_file("run"),
                         test_file("out")),
             0);
    CHECK_CONTAINS(out.data, "8 rows of 1 steps; 8 rows without columns of tokens are left out");
    CHECK(ares_file_exists(test_file("out/token_exports/step_2/STABLE")));
    CHECK(!ares_dir_exists(test_file("out/token_exports/step_1")));
    const ares_json **rows = e2e_rows(&arena, "out", "token_exports/step_2/rank_0.jsonl", &n),
                    **from = e2e_rows(&arena, "run", FILE_OF(2), &m);
    CHECK_EQ(n, 8);
    for (int64_t r = 0, of = 0; r < n; r++, of++) {
        ares_str names = { 0 };
        while (!ares_json_get(from[of], "token_ids")) of++;
        for (int64_t k = 0; k < rows[r]->count; k++) {
            ares_str_add_char(&names, ' ');
            ares_str_add_view(&names, rows[r]->members[k].key);
        }
        CHECK_STR(names.data, keys);
        ares_str_fini(&names);
        CHECK_EQ(ares_json_get(rows[r], "export_sequence_idx")->integer, r);
        CHECK_EQ(ares_json_get(rows[r], "step")->integer, 2);
        int64_t all = ares_json_get(rows[r], "token_ids")->count, prompt = all - 12;
        for (int64_t k = 7; k < rows[r]->count - 2; k++)
            CHECK_EQ(rows[r]->members[k].value->count, all);
        double advantage = e2e_number(from[of], "advantage");
        for (int64_t i = 0; i < all; i++) {
            bool answer = i >= prompt, clip = answer && in_runs(from[of], "clipped", i - prompt);
            double ratio = at(rows[r], "importance_ratio", i),
                   inference = at(rows[r], "inference_logprobs", i),
                   trainer = at(rows[r], "trainer_logprobs", i);
            CHECK_EQ(at(rows[r], "position_ids", i), (double)i);
            CHECK_EQ(ares_json_get(rows[r], "loss_mask")->items[i].boolean, answer);
            CHECK_EQ(at(rows[r], "rl_weights", i), answer);
            CHECK_EQ(at(rows[r], "advantages", i), answer ? advantage : 0);
            CHECK_NEAR(at(rows[r], "log_importance_ratio", i), log(ratio), 1e-12);
            CHECK_NEAR(trainer, inference + log(ratio), 1e-12);
            CHECK_NEAR(at(rows[r], "mismatch_kl", i), ratio - log(ratio) - 1, 1e-12);
            CHECK_NEAR(at(rows[r], "prob_delta", i), exp(trainer) - exp(inference), 1e-12);
            CHECK_EQ(ares_json_get(rows[r], "is_masked")->items[i].boolean, clip);
            CHECK_EQ(ares_json_get(rows[r], "is_masked_high")->items[i].boolean,
                     clip && advantage > 0);
            CHECK_EQ(ares_json_get(rows[r], "is_masked_low")->items[i].boolean,
                     clip && advantage < 0);
            masked += clip;
            if (!answer) CHECK(ratio == 1 && inference == 0 && at(rows[r], "entropy", i) == 0);
            else {
                CHECK_EQ(ratio, at(from[of], "ratio", i - prompt));
                CHECK_EQ(inference, at(from[of], "logprobs", i - prompt));
                CHECK_EQ(at(rows[r], "entropy", i), at(from[of], "entropies", i - prompt));
                CHECK_EQ(at(rows[r], "token_ids", i), at(from[of], "token_ids", i - prompt));
            }
        }
    }
    CHECK(masked > 5);
    /* what cannot be exported says so, and nothing is replaced unasked */
    CHECK_EQ(e2e_program(&out, "export-tokens '%s' --out '%s'", test_file("run"), test_file("out")),
             2);
    CHECK_CONTAINS(out.data,
                   "token_exports/step_2 is there; name another directory, or add --force");
    CHECK_EQ(e2e_program(&out, "export-tokens '%s' --out '%s' --force", test_file("run"),
                         test_file("out")),
             0);
    CHECK_EQ(e2e_program(&out, "export-tokens '%s' --out '%s' --step 7", test_file("run"),
                         test_file("out")),
             2);
    CHECK_CONTAINS(out.data, "has no such step; it has 2, from 1 to 2");
    CHECK(run_of("text", "", "trainer.max_steps=1 trainer.rollout_log=text"));
    CHECK_EQ(
        e2e_program(&out, "export-tokens '%s' --out '%s'", test_file("text"), test_file("none")),
        2);
    CHECK_CONTAINS(out.data, "make the run with trainer.rollout_log: tokens");
    CHECK(!ares_dir_exists(test_file("none")));
    /* columns of other lengths, runs beyond the answer and torn lines do not get through */
    e2e_write(
        "run/rollouts/step_000003.jsonl",
        "{\"draw\":1,\"advantage\":1,\"prompt_ids\":[1],\"token_ids\":[1,2],\"logprobs\":[0],"
        "\"entropies\":[0,0]}\n"
        "{\"draw\":1,\"advantage\":1,\"prompt_ids\":[1],\"token_ids\":[1,2],\"logprobs\":[0,0]"
        ",\"entropies\":[0,0],\"clipped\":[[1,9223372036854775807]]}\n"
        "{\"draw\":1,\"advantage\":1,\"prompt_ids\":[1],\"token_ids\":[1,2],\"logprobs\":[0,0]"
        ",\"entropies\":[0,0],\"advantages\":[[1,1]]}\n"
        "{\"draw\":2,\"advantage\":1,\"token_ids\":[1],\"logprobs\":[0],\"entropies\":[0]}\n"
        "{\"draw\":1,\"advantage\":1,\"token_ids\":[1,2],\"logprobs\":[-1,null],\"entropies\":"
        "[0,0]}\n"
        "{\"draw\":1,\"adv");
    CHECK_EQ(e2e_program(&out, "export-tokens '%s' --out '%s' --step 3", test_file("run"),
                         test_file("out")),
             0);
    CHECK_CONTAINS(out.data, "1 rows of 1 steps; 4 rows without columns");
    CHECK_CONTAINS(out.data, "its last line is half written and was left out");
    CHECK_EQ(test_shell(NULL, "grep -q '\"inference_logprobs\":\\[0.0,-1.0,null\\]' '%s'",
                        test_file("out/token_exports/step_3/rank_0.jsonl")),
             0);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
}

TEST(run_json_says_who_made_a_run_and_how_it_went)
{
    ares_arena arena = { 0 };
    ares_str said = { 0 };
    int64_t n;
    /* stopped by a signal, then it goes on to its end */
    CHECK_EQ(
        e2e_stop("run", "TERM", 2, "--config '%s' trainer.max_steps=4000", e2e_train_words("run")),
        143);
    const ares_json **x = e2e_rows(&arena, "run", "run.json", &n);
    if (!CHECK_EQ(n, 1)) return;
    CHECK_CONTAINS(ares_json_get(x[0], "stopped")->text.data, "run: stopped by signal 15");
    CHECK(ares_json_get(x[0], "ended")->type == ARES_JSON_STRING);
    CHECK_EQ(ares_json_get(x[0], "resumed")->count, 0);
    const ares_json *command = ares_json_get(x[0], "command");
    CHECK_EQ(command->count, 4);
    CHECK_VIEW(command->items[3].text, "trainer.max_steps=4000");
    CHECK_EQ(ares_json_get(ares_json_get(x[0], "model"), "parameters")->integer, 41248);
    CHECK_EQ(test_shell(&said, "sed -n '$p' '%s' | grep -o '\"step\":[0-9]*'",
                        test_file("run/metrics.jsonl")),
             0);
    long long last = atoll(said.data + 7);
    char words[64];
    snprintf(words, sizeof words, "trainer.max_steps=%lld --force", last + 2);
    if (!run_of("run", "", words)) return;
    const ares_json **y = e2e_rows(&arena, "run", "run.json", &n);
    if (!CHECK_EQ(n, 1)) return;
    CHECK(ares_view_eq(ares_json_get(x[0], "started")->text, ares_json_get(y[0], "started")->text));
    CHECK(ares_json_get(y[0], "stopped")->type == ARES_JSON_NULL);
    CHECK(ares_json_get(y[0], "ended")->type == ARES_JSON_STRING);
    if (CHECK_EQ(ares_json_get(y[0], "resumed")->count, 1))
        CHECK_EQ(ares_json_get(&ares_json_get(y[0], "resumed")->items[0], "step")->integer, last);
    /* a run that fails says why, a run that is killed has no end; a run of examples has the file */
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' 'data.train_files=[%s]' worker.reward.rewards="
                         "'[{name: command, command: /bin/false}]'",
                         e2e_train_words("failed"), "examples/data/sums/train.jsonl"),
             1);
    CHECK_EQ(test_shell(NULL, "grep '\"stopped\":\"[^\"]' '%s'", test_file("failed/run.json")), 0);
    CHECK_EQ(e2e_stop("killed", "KILL", 1, "--config '%s' trainer.max_steps=4000",
                      e2e_train_words("killed")),
             137);
    CHECK_EQ(test_shell(NULL, "grep '\"ended\":null,\"stopped\":null' '%s'",
                        test_file("killed/run.json")),
             0);
    CHECK_EQ(e2e_program(NULL, "sft --config '%s'", e2e_sft_words("sft")), 0);
    CHECK_EQ(test_shell(NULL, "grep '\"ended\":\"20' '%s'", test_file("sft/run.json")), 0);
    ares_str_fini(&said);
    ares_arena_fini(&arena);
}
