/*
 * AEPO with the entropies and trigger words of the published run: only tokens that counted without
 * trigger words count, and fewer of them. The run is the same however it is interrupted, divided
 * into forward passes or divided among ranks. These tests failed when the candidates were left out
 * of what ranks exchange, and when the column stayed empty.
 */
#include "e2e.h"

#include <stdio.h>

#define AEPO                                                                                   \
    "algorithm.aepo=true data.max_response_length=24 worker.rollout.temperature=0.8 "          \
    "'worker.reward.rewards=[{name: format, pattern: \".*[0-9].*\", finished: false}, {name: " \
    "exact}]'"
#define TAIL "worker.rollout.entropy_mode=topk_tail worker.rollout.entropy_topk=5"

static const char *letters(void)
{
    ares_str text = { 0 };
    for (char c = 'a'; c <= 'z'; c++) ares_str_addf(&text, "%s\"%c\"", text.len ? ", " : "[", c);
    ares_str_add_z(&text, ", \"nonsense\"]");
    const char *path = e2e_write("letters.json", text.data);
    ares_str_fini(&text);
    return path;
}

enum { ROWS = 16, TOKENS = 24 };
typedef struct marks {
    int rows, total;
    bool on[ROWS][TOKENS];
} marks;

static void read_marks(const char *file, marks *out)
{
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    *out = (marks){ 0 };
    REQUIRE_OK(ares_file_read(test_file(file), &text));
    char *save = NULL;
    for (char *line = strtok_r(text.data, "\n", &save); line && out->rows < ROWS;
         line = strtok_r(NULL, "\n", &save)) {
        const ares_json *row;
        if (!CHECK_OK(ares_json_parse(&arena, ares_view_of(line), file, &row))) break;
        const ares_json *hwe = ares_json_get(row, "hwe");
        for (int64_t i = 0; hwe && i < hwe->count; i++)
            for (int k = 0; k < (int)hwe->items[i].items[1].number; k++, out->total++)
                out->on[out->rows][(int)hwe->items[i].items[0].number + k] = true;
        out->rows++;
    }
    ares_arena_fini(&arena);
    ares_str_fini(&text);
}

/*
 * With and without a list of words, the samples of the first step and its threshold are the same.
 */
TEST(with_trigger_words_a_part_of_the_high_entropy_tokens_counts)
{
    static const struct {
        const char *name, *more;
    } runs[] = { { "all", "" },
                 { "argmax", "" },
                 { "sampled", "worker.rollout.trigger_match=sampled" } };
    marks m[3];
    ares_str out = { 0 };
    for (int i = 0; i < 3; i++) {
        ares_str_clear(&out);
        CHECK_EQ(e2e_program(
                     &out,
                     "--config '%s' trainer.max_steps=1 %s algorithm.entropy_percentile=60 %s%s %s",
                     e2e_train_words(runs[i].name), AEPO,
                     i ? "worker.rollout.trigger_tokens_file=" : "", i ? letters() : "",
                     runs[i].more),
                 0);
        if (i)
            CHECK_CONTAINS(
                out.data,
                "1 of 27 words are no single token of this model and never count (nonsense)");
        char file[64];
        snprintf(file, sizeof file, "%s/rollouts/step_000001.jsonl", runs[i].name);
        read_marks(file, &m[i]);
        CHECK_EQ(m[i].rows, ROWS);
        /* no answer is right, so all prompts are hard */
        CHECK_NEAR(e2e_metric(runs[i].name, 1, "aepo/hwe_num/hard"), m[i].total / (double)ROWS,
                   1e-9);
    }
    for (int i = 1; i < 3; i++) {
        int outside = 0;
        for (int r = 0; r < ROWS; r++)
            for (int t = 0; t < TOKENS; t++) outside += m[i].on[r][t] && !m[0].on[r][t];
        CHECK_EQ(outside, 0);
        CHECK_MSG(m[i].total > 0 && m[i].total < m[0].total,
                  "%s: %d tokens count, of %d without a list", runs[i].name, m[i].total,
                  m[0].total);
        CHECK_NEAR(e2e_metric(runs[i].name, 1, "aepo/tau"), e2e_metric("all", 1, "aepo/tau"), 0);
    }
    CHECK(memcmp(m[1].on, m[2].on, sizeof m[1].on) != 0);
    ares_str_fini(&out);
}

TEST(entropies_of_the_likeliest_tokens_lower_the_threshold_and_leave_the_samples)
{
    CHECK_EQ(
        e2e_program(NULL, "--config '%s' trainer.max_steps=1 %s", e2e_train_words("full"), AEPO),
        0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=1 %s %s", e2e_train_words("tail"),
                         AEPO, TAIL),
             0);
    double full = e2e_metric("full", 1, "aepo/tau"), tail = e2e_metric("tail", 1, "aepo/tau");
    CHECK_MSG(tail > 0 && tail < 0.5 * full,
              "tau %g, exact %g: nearly all of a flat distribution is in the tail", tail, full);
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' trainer.max_steps=1 %s %s worker.rollout.entropy_topk=2",
                         e2e_train_words("two"), AEPO, TAIL),
             0);
    double two = e2e_metric("two", 1, "aepo/tau");
    CHECK_MSG(two > 0 && two < 0.9 * tail, "tau %g of two tokens, %g of five", two, tail);
    /* the entropy of the policy itself stays exact */
    CHECK_NEAR(e2e_metric("tail", 1, "actor/entropy"), e2e_metric("full", 1, "actor/entropy"), 0);
    CHECK_NEAR(e2e_metric("tail", 1, "exact/rollout_train_max_abs"), 0, 0);
    CHECK_EQ(test_shell(NULL,
                        "for r in full tail; do sed 's/,\"digest\".*//' "
                        "'%s/'$r/rollouts/step_000001.jsonl > '%s/'$r.cut; done; cmp '%s' '%s'",
                        test_dir(), test_dir(), test_file("full.cut"), test_file("tail.cut")),
             0);
}

TEST(a_run_in_the_published_modes_goes_on_bit_for_bit_and_knows_no_cuts)
{
    char words[1000];
    snprintf(words, sizeof words,
             "%s %s worker.rollout.trigger_tokens_file=%s trainer.max_steps=30 trainer.save_freq=5",
             AEPO, TAIL, letters());
    CHECK_EQ(e2e_stop("part", "KILL", 8, "--config '%s' %s", e2e_train_words("part"), words), 137);
    CHECK_EQ(e2e_program(NULL, "--config '%s' %s", e2e_train_words("part"), words), 0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' %s", e2e_train_words("whole"), words), 0);
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' %s worker.rollout.max_num_seqs=3 "
                         "worker.actor.max_token_len_per_device=64 trainer.threads=1",
                         e2e_train_words("cut"), words),
             0);
    e2e_same_runs("whole", "part", 30);
    e2e_same_runs("whole", "cut", 30);
}

TEST_MPI(two_ranks_exchange_the_candidates_with_their_groups)
{
    E2E_NEEDS_MPI();
    char words[1400];
    snprintf(words, sizeof words,
             "%s trainer.max_steps=1 trainer.threads=1 algorithm.entropy_percentile=60 "
             "worker.rollout.trigger_tokens_file=%s algorithm.online_filtering=true "
             "algorithm.filter_key=overall "
             "algorithm.filter_low=0.3 algorithm.filter_high=0.7 trainer.max_try_make_batch=0 "
             "trainer.balance_batch=false data.rollout_batch_size=8",
             AEPO, letters());
    CHECK_EQ(e2e_program(NULL, "--config '%s' %s", e2e_train_words("alone"), words), 0);
    CHECK_EQ(e2e_program(NULL, "--ranks 2 --config '%s' %s", e2e_train_words("two"), words), 0);
    CHECK(e2e_same_rollouts("alone", "two", 1));
    CHECK_EQ(test_shell(NULL, "grep -q 'hwe\":\\[\\[' '%s'",
                        test_file("alone/rollouts/step_000001.jsonl")),
             0);
    /*
     * Rank 0 answers the prompts with even draw numbers, and its sixteen rows come first: a row
     * with an odd one has come from rank 1.
     */
    CHECK_EQ(test_shell(NULL, "head -n 16 '%s' | grep -q '\"draw\":[0-9]*[13579],'",
                        test_file("two/rollouts/step_000001.jsonl")),
             0);
}
