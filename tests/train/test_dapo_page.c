/*
 * The worked example of docs/dapo.md: its options and every number of its tables are read from the
 * page and recomputed with the functions that a step calls. The page's numbers come from a
 * calculation apart from this program.
 */
#include "../../src/algo/stats.h"
#include "ares/algo.h"
#include "ares/algo_filter.h"
#include "ares/algo_loss.h"
#include "ares/reward.h"
#include "ares/train.h"
#include "faults.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ANSWERS = 12, GROUPS = 4, PER_GROUP = 3, ROWS = 9, MOST_TOKENS = 64, CELLS = 8 };

/* ---------------------------------------------------------------- tables of the page */
typedef struct table {
    char cell[16][CELLS][48];
    int rows;
} table;

static void trim_into(char *out, size_t bytes, const char *text, size_t n)
{
    while (n && *text == ' ') text++, n--;
    while (n && text[n - 1] == ' ') n--;
    snprintf(out, bytes, "%.*s", (int)n, text);
}

static void read_line(table *t, const char *line, size_t n)
{
    if (!CHECK(t->rows < 16)) return;
    const char *at = line + 1, *end = line + n;
    for (int i = 0; i < CELLS && at < end; i++) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        if (!bar) break;
        trim_into(t->cell[t->rows][i], sizeof t->cell[0][0], at, (size_t)(bar - at));
        at = bar + 1;
    }
    t->rows++;
}

/* The rows under the heading row that begins with these words. */
static table read_table(const char *page, const char *heading)
{
    table t = { .rows = 0 };
    const char *at = strstr(page, heading);
    if (!CHECK_MSG(at != NULL, "the page has no table '%s'", heading)) return t;
    for (int line = 0; *at == '|'; line++) {
        size_t n = strcspn(at, "\n");
        if (line >= 2) read_line(&t, at, n);
        at += n + (at[n] == '\n');
    }
    return t;
}

/* A number as the page rounds it: within half a unit of its last digit. */
static void check_number(const char *name, const char *cell, double value)
{
    char *end;
    double is = strtod(cell, &end);
    const char *point = strchr(cell, '.');
    double unit = point ? pow(10, -(double)strlen(point + 1)) : 1;
    double room = point ? 0.5 * unit + 1e-6 : 1e-6;
    CHECK_MSG(*cell && !*end && fabs(is - value) <= room, "%s: the page has '%s', recomputed %.6f",
              name, cell, value);
}
static void check_word(const char *name, const char *cell, const char *word)
{
    CHECK_MSG(strcmp(cell, word) == 0, "%s: the page has '%s', recomputed '%s'", name, cell, word);
}
static int64_t whole(const char *cell)
{
    return strtoll(cell, NULL, 10);
}

/* ---------------------------------------------------------------- the example */
typedef struct example {
    char *page; /* from its heading on */
    ares_str file;
    ares_config *cfg;
    ares_train_config c;
    table answers;
    ares_reward_item item[ANSWERS];
    float parts[ANSWERS][4];
    uint8_t counts[ANSWERS]; /* 0: discarded */
    int64_t order[GROUPS], groups, masked;
    ares_batch batch;
} example;

static bool open_example(example *x)
{
    static const char *const words[] = { "data.train_files=[train.jsonl]",
                                         "worker.actor.model.model_path=m" };
    *x = (example){ .cfg = ares_config_new() };
    ares_batch_init(&x->batch);
    ares_log_set(ARES_LOG_ERROR, 0);
    ares_train_config_declare(x->cfg, &x->c);
    if (!CHECK_OK(ares_file_read(test_source("docs/dapo.md"), &x->file))) return false;
    x->page = strstr(x->file.data, "\n## Worked example\n");
    char *yaml = x->page ? strstr(x->page, "```yaml\n") : NULL, *end = NULL;
    if (yaml) end = strstr(yaml += 8, "```");
    if (!CHECK_MSG(end != NULL, "docs/dapo.md has no worked example with its options"))
        return false;
    ares_config_load_text(x->cfg, "docs/dapo.md", (ares_view){ yaml, (size_t)(end - yaml) });
    ares_config_read_args(x->cfg, ARES_COUNT(words), words);
    ares_config_resolve(x->cfg);
    (void)ares_train_config_check(x->cfg, &x->c, 1);
    x->answers = read_table(x->page, "| answer | round |");
    return CHECK_STR(faults_text(x->cfg), "") && CHECK_EQ(x->answers.rows, ANSWERS);
}

static void close_example(example *x)
{
    ares_batch_fini(&x->batch);
    ares_config_free(x->cfg);
    ares_str_fini(&x->file);
}

/* Each answer is judged; the response of a right one is the ground truth. */
static void check_rewards(example *x)
{
    ares_reward *reward;
    if (!CHECK_OK(ares_reward_open(x->cfg, &x->c.reward, NULL, &reward))) return;
    if (!CHECK_EQ(ares_reward_count(reward), 2)) return; /* exact, and the penalty of length */
    for (int i = 0; i < ANSWERS; i++) {
        char(*cell)[48] = x->answers.cell[i];
        bool right = strcmp(cell[3], "yes") == 0;
        x->item[i] = (ares_reward_item){ .in = { .response = ares_view_of(right ? "4" : "5"),
                                                 .ground_truth = ares_view_of("4"),
                                                 .stopped = true,
                                                 .response_tokens = whole(cell[2]) },
                                         .parts = x->parts[i] };
        ares_reward_submit(reward, &x->item[i]);
    }
    ares_reward_wait(reward);
    for (int i = 0; i < ANSWERS; i++) {
        char(*cell)[48] = x->answers.cell[i];
        bool discarded = ares_answer_discarded(&x->c.filter, whole(cell[2]),
                                               ares_reward_max_length(reward), true);
        x->counts[i] = !discarded;
        CHECK_EQ(x->item[i].accuracy, strcmp(cell[3], "yes") == 0);
        check_number(cell[0], cell[4], (double)x->parts[i][1]);
        check_number(cell[0], cell[5], (double)x->item[i].score);
        check_word(cell[0], cell[6], discarded ? "yes" : "no");
    }
    ares_reward_close(reward);
}

/* Rounds of draws, as long as the batch lacks groups and a round is left. */
static void check_groups(example *x)
{
    static const int64_t start[] = { 0, 3, 6, 9, 12 };
    static const char *const place[] = { "first", "second", "third", "fourth" };
    table t = read_table(x->page, "| group | right |");
    ares_resampling s = { .target = x->c.data.rollout_batch_size,
                          .batch = x->c.data.mini_rollout_batch_size,
                          .max_resample = x->c.filter.max_resample };
    double accuracy[ANSWERS], score[ANSWERS];
    int64_t kept[GROUPS], dropped[GROUPS], n;
    ares_verdict verdict[GROUPS];
    const char *outcome;
    for (int i = 0; i < ANSWERS; i++) {
        accuracy[i] = (double)x->item[i].accuracy;
        score[i] = (double)x->item[i].unshaped;
    }
    while ((n = ares_resampling_draw(&s)) > 0) {
        int64_t first = s.drawn;
        if (!CHECK(first + n <= GROUPS)) return;
        ares_groups g = { .groups = n,
                          .group_start = start,
                          .score = score + first * PER_GROUP,
                          .accuracy = accuracy + first * PER_GROUP,
                          .valid = x->counts + first * PER_GROUP };
        bool keep[GROUPS];
        if (!CHECK_OK(ares_filter_groups(&x->c.filter, &g, verdict + first))) return;
        for (int64_t i = 0; i < n; i++) {
            keep[i] = verdict[first + i].keep;
            CHECK_EQ(whole(x->answers.cell[(first + i) * PER_GROUP][1]), s.rounds + 1);
        }
        ares_resampling_add(&s, keep, n, kept, dropped);
    }
    CHECK_EQ(s.drawn, GROUPS);
    CHECK_OK(ares_resampling_finish(&s, ares_filter_on_exhausted(&x->c.filter), kept, dropped,
                                    x->order, &x->groups, &x->masked, &outcome));
    CHECK_STR(outcome, "filled");
    for (int g = 0; g < GROUPS && CHECK_EQ(t.rows, GROUPS); g++) {
        char is[48] = "no";
        double right = 0, counted = 0;
        for (int i = g * PER_GROUP; i < (g + 1) * PER_GROUP; i++) {
            right += x->counts[i] ? accuracy[i] : 0;
            counted += x->counts[i];
        }
        for (int64_t i = 0; i < x->groups; i++)
            if (x->order[i] == g)
                snprintf(is, sizeof is, "%s%s", place[i], i >= x->masked ? ", masked" : "");
        check_number(t.cell[g][0], t.cell[g][1], right);
        check_number(t.cell[g][0], t.cell[g][2], counted);
        check_word(t.cell[g][0], t.cell[g][3], verdict[g].keep ? "kept" : verdict[g].reason);
        check_word(t.cell[g][0], t.cell[g][4], is);
    }
}

/* ---------------------------------------------------------------- the batch */
static void make_rows(const example *x, ares_batch *b)
{
    for (int64_t g = 0; g < x->groups; g++) {
        ares_batch_begin_group(b);
        for (int64_t i = x->order[g] * PER_GROUP; i < (x->order[g] + 1) * PER_GROUP; i++)
            ares_batch_add_row(b, &(ares_sample){ .draw = i }, whole(x->answers.cell[i][2]));
    }
    ARES_PUT(b, response_mask);
    ARES_PUT(b, token_level_rewards);
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t i = b->samples[r].draw, end = b->row_start[r + 1];
        bool trained = x->counts[i] && r < b->group_start[x->masked];
        b->token_level_rewards[end - 1] = x->item[i].score;
        for (int64_t t = b->row_start[r]; t < end; t++) b->response_mask[t] = trained;
    }
}

static void check_statistics(const example *x, const ares_batch *in_group)
{
    table t = read_table(x->page, "| of | numbers |");
    double reward[MOST_TOKENS];
    if (!CHECK_EQ(t.rows, 3)) return;
    for (int k = 0; k < 3; k++) {
        int64_t n = 0, group = t.cell[k][0][strlen(t.cell[k][0]) - 1] - 'A';
        for (int64_t i = group * PER_GROUP; k < 2 && i < (group + 1) * PER_GROUP; i++)
            if (x->counts[i]) reward[n++] = (double)x->item[i].score;
        for (int64_t i = 0; k == 2 && i < in_group->tokens; i++)
            if (in_group->response_mask[i]) reward[n++] = (double)in_group->advantages[i];
        double mean = stats_mean(reward, n), deviation = stats_std(reward, n, mean);
        if (k == 2) deviation *= sqrt((double)(n - 1) / (double)n); /* by n, as in docs/dapo.md */
        check_number(t.cell[k][0], t.cell[k][1], (double)n);
        check_number(t.cell[k][0], t.cell[k][2], mean);
        check_number(t.cell[k][0], t.cell[k][3], deviation);
    }
}

static void check_advantages(example *x)
{
    table t = read_table(x->page, "| answer | reward |");
    ares_algorithm_config plain = x->c.algorithm;
    const ares_adv *adv = ares_adv_find(x->c.algorithm.adv_estimator);
    ares_batch *b = &x->batch, in_group;
    ares_batch_init(&in_group);
    make_rows(x, b);
    make_rows(x, &in_group);
    CHECK(x->c.algorithm.normalize_advantages);
    plain.normalize_advantages = false;
    if (CHECK(adv) && CHECK_OK(adv->compute(&x->c.algorithm, NULL, b)) &&
        CHECK_OK(adv->compute(&plain, NULL, &in_group)) && CHECK_EQ(b->rows, ROWS) &&
        CHECK_EQ(t.rows, ROWS)) {
        for (int r = 0; r < ROWS; r++) {
            int64_t first = b->row_start[r], ones = 0;
            for (int64_t i = first; i < b->row_start[r + 1]; i++) ones += b->response_mask[i];
            check_word("order of the batch", t.cell[r][0], x->answers.cell[b->samples[r].draw][0]);
            check_number(t.cell[r][0], t.cell[r][1], (double)x->item[b->samples[r].draw].score);
            check_number(t.cell[r][0], t.cell[r][2], (double)in_group.advantages[first]);
            check_number(t.cell[r][0], t.cell[r][3], (double)b->advantages[first]);
            check_number(t.cell[r][0], t.cell[r][4], (double)ones);
        }
        check_statistics(x, &in_group);
    }
    ares_batch_fini(&in_group);
}

/* ---------------------------------------------------------------- the loss */
static int loss_of(const example *x, const ares_loss_config *cfg, int64_t first, int64_t n,
                   const float *log_prob, const float *old, const float *weight, float *gradient,
                   ares_loss_sums *sums)
{
    ares_loss_sums_init(sums);
    return ares_loss_find(cfg->loss_type)
        ->compute(&(ares_loss_args){ .cfg = cfg,
                                     .n = n,
                                     .log_prob = log_prob + first,
                                     .old_log_prob = old + first,
                                     .advantage = x->batch.advantages + first,
                                     .weight = weight,
                                     .mask = x->batch.response_mask + first,
                                     .d_log_prob = gradient,
                                     .sums = sums });
}

/* The loss of the mini-batch, averaged as cfg says. */
static double averaged(const example *x, const ares_loss_config *cfg, const float *log_prob,
                       const float *old, float *gradient, ares_loss_sums *sums)
{
    const ares_batch *b = &x->batch;
    ares_agg_counts counts = { .max_len = (double)x->c.data.max_response_length };
    float weight[MOST_TOKENS] = { 0 };
    ares_agg_count(b, 0, b->rows, &counts);
    CHECK_OK(ares_agg_weights(cfg->loss_avg_mode, b, 0, b->rows, &counts, weight));
    memset(gradient, 0, MOST_TOKENS * sizeof *gradient);
    CHECK_OK(loss_of(x, cfg, 0, b->tokens, log_prob, old, weight, gradient, sums));
    return ares_loss_total(sums, x->c.loss.entropy_coeff, x->c.algorithm.kl_coef);
}

/* Reads log-probs into the tokens of mask 1; the others hold what no loss may read. */
static bool read_log_probs(const example *x, const table *t, int64_t *token, float *log_prob,
                           float *old)
{
    const ares_batch *b = &x->batch;
    int row = 0;
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
            char name[64];
            log_prob[i] = old[i] = NAN;
            if (!b->response_mask[i]) continue;
            if (!CHECK(row < t->rows)) return false;
            snprintf(name, sizeof name, "%s.%d", x->answers.cell[b->samples[r].draw][0],
                     (int)(i - b->row_start[r] + 1));
            check_word("order of tokens", t->cell[row][0], name);
            old[i] = strtof(t->cell[row][1], NULL);
            log_prob[i] = strtof(t->cell[row][2], NULL);
            token[row++] = i;
        }
    return CHECK_EQ(row, t->rows);
}

static void check_loss(const example *x)
{
    table t = read_table(x->page, "| token | old log-prob |"),
          all = read_table(x->page, "| of the mini-batch |");
    float log_prob[MOST_TOKENS], old[MOST_TOKENS], gradient[MOST_TOKENS], other[MOST_TOKENS],
        one = 1;
    int64_t token[MOST_TOKENS];
    ares_loss_sums sums, of_one;
    ares_loss_config by_row = x->c.loss, symmetric = x->c.loss;
    if (!CHECK(x->batch.tokens <= MOST_TOKENS && x->batch.advantages) || !CHECK_EQ(all.rows, 6) ||
        !read_log_probs(x, &t, token, log_prob, old))
        return;
    double loss = averaged(x, &x->c.loss, log_prob, old, gradient, &sums);
    for (int i = 0; i < t.rows; i++) {
        const char *name = t.cell[i][0];
        float ignored = 0;
        CHECK_OK(loss_of(x, &x->c.loss, token[i], 1, log_prob, old, &one, &ignored, &of_one));
        check_number(name, t.cell[i][3], of_one.ratio);
        check_number(name, t.cell[i][4], of_one.loss);
        check_word(name, t.cell[i][5],
                   of_one.clip_high <= 0 ? ""
                   : of_one.ratio > 1    ? "high"
                                         : "low");
        check_number(name, t.cell[i][6], (double)gradient[token[i]]);
    }
    for (int64_t i = 0; i < x->batch.tokens; i++)
        CHECK(x->batch.response_mask[i] || gradient[i] == 0);
    by_row.loss_avg_mode = "seq-mean-token-mean";
    symmetric.clip_ratio_high = 0.2;
    ares_loss_sums ignored;
    check_number("loss", all.cell[0][1], loss);
    check_number("loss by rows", all.cell[1][1],
                 averaged(x, &by_row, log_prob, old, other, &ignored));
    check_number("loss without clip-higher", all.cell[2][1],
                 averaged(x, &symmetric, log_prob, old, other, &ignored));
    double ratio = sums.ratio / sums.tokens;
    check_number("mean ratio", all.cell[3][1], ratio);
    CHECK(!ares_early_stop(&ratio, 1, x->c.loss.early_stop_imp_ratio, NULL));
    check_number("clipped", all.cell[4][1], sums.clip_high / sums.tokens);
    check_number("dual clip", all.cell[5][1], sums.clip_low / sums.tokens);
}

TEST(the_worked_example_of_dapo_is_what_the_program_computes)
{
    static example x;
    if (open_example(&x)) {
        check_rewards(&x);
        check_groups(&x);
        check_advantages(&x);
        check_loss(&x);
    }
    close_example(&x);
}
