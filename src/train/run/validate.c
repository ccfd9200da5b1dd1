/*
 * All sampling without training. In order: metrics over several answers to a prompt (pass@k,
 * best@k, maj@k); the data sets of eval.* and their options; validation on data.val_files; the
 * bootstrap pass over the training rows.
 */
#include "agents/agents.h"
#include "collect/collect.h"
#include "run.h"
#include "trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The value of an answer is its accuracy, or its score where not all answers to the prompt have an
 * accuracy: verl, too, prefers `acc` to the reward. best@k, worst@k and maj@k are the expected
 * values (and deviations) that verl estimates by 1000 draws with replacement, computed without
 * noise and seed; pass@k draws without replacement.
 */

enum { MOST_VOTES_K = 64 }; /* majorities of more draws take too long to count */

/* The i-th k; 0: there is none. */
static int64_t k_of(int64_t n, int i)
{
    int64_t k = (int64_t)1 << i, before = k / 2;
    return k < n ? k : before < n ? n : 0;
}

/* Adds a prompt with n values. votes: NULL: none; right: correct answers, -1: not judged */
static void add_prompt(several *x, const double *values, const int32_t *votes, int64_t n,
                       int64_t right, int64_t of)
{
    double sum = 0, squares = 0, least = INFINITY, most = -INFINITY, std = 0;
    double *negated = ares_malloc((size_t)n * sizeof *negated);
    for (int64_t i = 0; i < n; i++) {
        sum += values[i];
        least = fmin(least, values[i]);
        most = fmax(most, values[i]);
        negated[i] = -values[i];
    }
    double mean = least == most ? least : sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
    x->prompts++;
    x->mean += sum / (double)n;
    x->std += sqrt(squares / (double)n);
    x->voted += votes != NULL;
    for (int i = 0; i < SEVERAL_KS && k_of(of, i); i++) {
        int64_t k = k_of(of, i);
        several_at_k *at = &x->at[i];
        at->best += ares_best_at_k(values, n, k, &std);
        at->best_std += std;
        at->worst -= ares_best_at_k(negated, n, k, &std);
        at->worst_std += std;
        if (votes && k <= MOST_VOTES_K) {
            at->maj += least == most ? least : ares_maj_at_k(values, votes, n, k, &std);
            at->maj_std += least == most ? 0 : std;
        }
        if (right < 0 || n < k) continue;
        at->pass += ares_pass_at_k(n, right, k);
        at->passed++;
    }
    ares_free(negated);
}

/* Adds the answers to one prompt, except those that could not be judged. */
static void several_add(several *x, const ares_trainer *t, const ares_group *g)
{
    if (g->n < 2) return;
    size_t count = (size_t)g->n;
    double *values = ares_malloc(count * sizeof *values);
    int32_t *votes = ares_malloc(count * sizeof *votes);
    ares_view *texts = ares_malloc(count * sizeof *texts);
    int64_t n = 0, right = 0;
    bool judged = true, voted = true;
    for (int32_t i = 0; i < g->n; i++)
        judged = judged && (g->items[i].failed || !isnan(g->items[i].accuracy));
    for (int32_t i = 0; i < g->n; i++) {
        const ares_trajectory *y = &g->items[i];
        if (y->failed && answer_discards_failures(t)) continue;
        double accuracy = y->failed ? 0 : (double)y->accuracy;
        values[n] = judged ? accuracy : (double)y->score;
        right += accuracy == 1;
        voted = voted && y->vote.data;
        /* equal votes have the index of the first one */
        texts[n] = y->vote;
        votes[n] = 0;
        while (voted && !ares_view_eq(texts[votes[n]], y->vote)) votes[n]++;
        n++;
    }
    if (n) add_prompt(x, values, voted ? votes : NULL, n, judged ? right : -1, g->n);
    ares_free(values);
    ares_free(votes);
    ares_free(texts);
}

/* A metric "<prefix><name>@<k><what>": the mean over prompts, none where no prompt counts. */
static void put_at_k(ares_metrics *m, const char *prefix, const char *name, int64_t k,
                     const char *what, double sum, double count)
{
    char key[240];
    (void)snprintf(key, sizeof key, "%s%s@%lld%s", prefix, name, (long long)k, what);
    if (count > 0) ares_metrics_set(m, key, sum / count);
}

/*
 * A collective: <prefix>mean@n, std@n, pass@k, and mean and std of best@k, worst@k and maj@k, for k
 * = 1, 2, 4 .. and n (docs/curriculum.md#several-answers); nothing where n is 1.
 */
static int several_put(const several *own, ares_world *world, int64_t n, const char *prefix,
                       ares_metrics *m)
{
    several x = *own; /* an array of doubles to the sum over ranks */
    if (n < 2) return ARES_OK;
    ARES_TRY(ares_world_sum_f64(world, (double *)(void *)&x, sizeof x / sizeof(double)));
    put_at_k(m, prefix, "mean", n, "", x.mean, x.prompts);
    put_at_k(m, prefix, "std", n, "", x.std, x.prompts);
    for (int i = 0; i < SEVERAL_KS && k_of(n, i); i++) {
        int64_t k = k_of(n, i);
        const several_at_k *at = &x.at[i];
        double voted = k <= MOST_VOTES_K ? x.voted : 0;
        put_at_k(m, prefix, "pass", k, "", at->pass, at->passed);
        put_at_k(m, prefix, "best", k, "/mean", at->best, x.prompts);
        put_at_k(m, prefix, "best", k, "/std", at->best_std, x.prompts);
        put_at_k(m, prefix, "worst", k, "/mean", at->worst, x.prompts);
        put_at_k(m, prefix, "worst", k, "/std", at->worst_std, x.prompts);
        put_at_k(m, prefix, "maj", k, "/mean", at->maj, voted);
        put_at_k(m, prefix, "maj", k, "/std", at->maj_std, voted);
    }
    return ARES_OK;
}

/* Data sets of an evaluation: their rows, their answers, their metrics. */

/* ---------------------------------------------------------------- opening */
int eval_sets_open(ares_trainer *t)
{
    for (int64_t i = 0; i < t->evals.n; i++) {
        eval_set *e = &t->evals.items[i];
        const ares_row_file file = { .path = e->path, .source = e->name, .metadata = e->metadata };
        ares_dataset *d = NULL;
        int rc = training_open_encoder(&t->run, &e->data, &e->encoder);
        if (rc == ARES_OK)
            rc =
                ares_dataset_load_files(&file, 1, &e->data, ares_reward_reads_truth(t->reward), &d);
        if (rc == ARES_OK) {
            rc = trainer_take_rows(t, d, e->encoder, false);
            if (rc == ARES_OK)
                rc = ares_source_of_dataset(d, &(ares_order){ .draw = 1 }, &e->source);
            if (rc != ARES_OK) ares_dataset_free(d);
        }
        if (rc != ARES_OK) return ares_fail_in(rc, "eval.datasets: '%s'", e->name);
    }
    return ARES_OK;
}

void eval_sets_close(eval_sets *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        ares_source_close(&e->items[i].source);
        ares_prompt_encoder_free(e->items[i].encoder);
    }
    *e = (eval_sets){ 0 };
}

/* ---------------------------------------------------------------- metrics */
/* An answer as ranks send it to each other. */
typedef struct answered {
    int64_t row, index; /* they order answers */
    double score, accuracy, length, stopped;
    bool failed, scored; /* both are true with on_failure: score */
} answered;

static void put_of_set(ares_metrics *m, const char *set, const char *name, double value)
{
    char key[200];
    (void)snprintf(key, sizeof key, "eval/%s%s", set, name);
    ares_metrics_set(m, key, value);
}

/* x: n answers in order of their prompts, e->n to each */
static void put_pass_at_k(ares_metrics *m, const eval_set *e, const answered *x, int64_t n)
{
    for (int i = 0; i < ares_pass_at_k_count(e->n); i++) {
        char name[40];
        int64_t k = (int64_t)1 << i;
        double sum = 0, prompts = 0;
        for (int64_t p = 0; p < n; p += e->n) {
            int64_t right = 0, scored = 0;
            for (int64_t a = p; a < p + e->n; a++) {
                right += x[a].scored && x[a].score == 1;
                scored += x[a].scored;
            }
            if (scored < k) continue;
            sum += ares_pass_at_k(scored, right, k);
            prompts++;
        }
        (void)snprintf(name, sizeof name, "-pass@%lld", (long long)k);
        if (prompts > 0) put_of_set(m, e->name, name, sum / prompts);
    }
}

/* The metrics of a set, from the n answers of all ranks. */
static void put_set(ares_metrics *m, const eval_set *e, const answered *x, int64_t n)
{
    double score = 0, tokens = 0, cut = 0, right = 0, judged = 0, scored = 0, failed = 0;
    double *length = ares_malloc(((size_t)n + 1) * sizeof *length);
    for (int64_t i = 0; i < n; i++) {
        failed += x[i].failed;
        scored += x[i].scored;
        if (x[i].scored) score += x[i].score;
        tokens += length[i] = x[i].length;
        cut += !(x[i].stopped > 0);
        if (isnan(x[i].accuracy) || !x[i].scored) continue;
        right += x[i].accuracy;
        judged++;
    }
    ares_sort_f64(length, n);
    if (scored > 0) put_of_set(m, e->name, "", score / scored);
    put_of_set(m, e->name, "/failed_frac", failed / (double)n);
    if (judged > 0) put_of_set(m, e->name, "/accuracy", right / judged);
    put_of_set(m, e->name, "/response_len/mean", tokens / (double)n);
    put_of_set(m, e->name, "/response_len/median",
               n % 2 ? length[n / 2] : (length[n / 2 - 1] + length[n / 2]) / 2);
    put_of_set(m, e->name, "/response_len/max", length[n - 1]);
    put_of_set(m, e->name, "/response_len/min", length[0]);
    /* under the program's form of names, and under slime's */
    put_of_set(m, e->name, "/truncated_ratio", cut / (double)n);
    put_of_set(m, e->name, "-truncated_ratio", cut / (double)n);
    put_pass_at_k(m, e, x, n);
    ares_free(length);
}

/* ---------------------------------------------------------------- answering */
/* A collective: all ranks get the answers of all, and put the set's metrics. */
static int gather(ares_trainer *t, const eval_set *e, const ares_group *groups, int64_t count,
                  ares_metrics *m)
{
    int64_t n = 0;
    char prefix[200];
    several together = { 0 };
    answered *mine = ares_malloc(((size_t)(count * e->n) + 1) * sizeof *mine);
    for (int64_t g = 0; g < count; g++) several_add(&together, t, &groups[g]);
    for (int64_t g = 0; g < count; g++)
        for (int32_t i = 0; i < groups[g].n; i++) {
            const ares_trajectory *y = &groups[g].items[i];
            mine[n++] = (answered){ groups[g].row->id,
                                    y->index,
                                    (double)y->score,
                                    (double)y->accuracy,
                                    (double)ares_trajectory_tokens(y),
                                    y->stopped,
                                    y->failed,
                                    !(y->failed && answer_discards_failures(t)) };
        }
    ares_str all = { 0 };
    int rc = ares_world_gather_all(t->run.world, mine, (size_t)n * sizeof *mine, &all, NULL);
    ares_free(mine);
    if (rc == ARES_OK) {
        n = (int64_t)(all.len / sizeof *mine);
        answered *x = ares_malloc(((size_t)n + 1) * sizeof *x);
        memcpy(x, all.data, all.len);
        /* the same order of sums for any number of ranks */
        ares_sort_records(x, n, sizeof *x);
        put_set(m, e, x, n);
        ares_free(x);
    }
    ares_str_fini(&all);
    (void)snprintf(prefix, sizeof prefix, "eval/%s/", e->name);
    return rc == ARES_OK ? several_put(&together, t->run.world, e->n, prefix, m) : rc;
}

/* Answers this rank's share of all rows of a source, in draws of val_batch_size. */
static int answer_all(ares_trainer *t, const answer_pass *pass, ares_arena *arena, ares_group *out,
                      int64_t *count)
{
    int64_t total = ares_source_count(pass->source), size = t->run.cfg->data.val_batch_size;
    if (size <= 0) size = total;
    *count = 0;
    for (int64_t at = 0; at < total; at += size) {
        ares_group *groups;
        int64_t n;
        ARES_TRY(answer_rows(t, pass, at, ARES_MIN(total, at + size), arena, &groups, &n));
        if (n) memcpy(out + *count, groups, (size_t)n * sizeof *out);
        *count += n;
    }
    return ARES_OK;
}

/* Appends a JSON line of an answer; data_set: NULL, or its name. */
static void validation_write(const ares_trainer *t, const char *data_set, const ares_row *row,
                             const ares_trajectory *s, ares_str *out)
{
    const ares_json *question = ares_row_at(row->json, t->run.cfg->data.prompt_key);
    bool given = question && question->type == ARES_JSON_STRING;
    ares_json_begin(out, '{');
    ares_json_write_i64(ares_json_key(out, "step"), t->run.step);
    if (data_set) ares_json_write_string(ares_json_key(out, "data_set"), ares_view_of(data_set));
    ares_json_write_i64(ares_json_key(out, "row"), row->id);
    ares_json_write_i64(ares_json_key(out, "sample"), s->index);
    ares_json_write_string(ares_json_key(out, "question"),
                           given ? question->text : row->prompt_text);
    ares_json_write_string(ares_json_key(out, "prompt"), row->prompt_text);
    ares_json_write_string(ares_json_key(out, "response"), s->response);
    ares_json_write_string(ares_json_key(out, "ground_truth"), row->ground_truth);
    if (s->turns.len) ares_json_splice(ares_json_key(out, "turns"), s->turns);
    ares_json_write_float(ares_json_key(out, "score"),
                          s->failed && answer_discards_failures(t) ? NAN : s->score);
    ares_json_begin(ares_json_key(out, "rewards"), '{');
    for (int k = 0; k < ares_reward_count(t->reward); k++)
        ares_json_write_float(ares_json_key(out, ares_reward_name(t->reward, k)), s->parts[k]);
    ares_json_end(out, '}');
    if (s->failed) ares_json_write_bool(ares_json_key(out, "failed"), true);
    if (s->details.len) ares_json_splice(ares_json_key(out, "details"), s->details);
    ares_json_write_float(ares_json_key(out, "accuracy"), s->accuracy);
    ares_json_write_i64(ares_json_key(out, "n_tokens"), ares_trajectory_tokens(s));
    ares_json_write_bool(ares_json_key(out, "finished"), s->stopped);
    ares_json_end(out, '}');
    ares_str_add_char(out, '\n');
}

static int validate_set(ares_trainer *t, int64_t which, ares_arena *arena, ares_metrics *m,
                        ares_str *samples)
{
    const eval_set *e = &t->evals.items[which];
    const answer_pass pass = {
        .source = &e->source, .sampling = &e->sampling, .n = e->n, .key = ANSWER_EVALUATION + which
    };
    int64_t count;
    char prefix[200];
    ares_group *groups =
        ares_arena_calloc(arena, (size_t)ares_source_count(&e->source) + 1, sizeof *groups);
    ARES_TRY(ares_world_share_error(t->run.world, answer_all(t, &pass, arena, groups, &count)));
    ARES_TRY(gather(t, e, groups, count, m));
    for (int64_t g = 0; g < count && samples; g++)
        for (int32_t i = 0; i < groups[g].n; i++)
            validation_write(t, e->name, groups[g].row, &groups[g].items[i], samples);
    (void)snprintf(prefix, sizeof prefix, "eval/%s/", e->name);
    return ares_reward_report(t->reward, t->run.world, prefix, m);
}

/* Metrics eval/<name>...; samples (may be NULL) as in trainer_validate. A collective. */
static int eval_sets_validate(ares_trainer *t, ares_metrics *m, ares_str *samples)
{
    double sum = 0, value = 0, sets = 0;
    for (int64_t i = 0; i < t->evals.n; i++) {
        ares_arena arena = { 0 };
        int rc = validate_set(t, i, &arena, m, samples);
        ares_arena_fini(&arena);
        if (rc != ARES_OK) return ares_fail_in(rc, "eval '%s'", t->evals.items[i].name);
        char key[200];
        (void)snprintf(key, sizeof key, "eval/%s", t->evals.items[i].name);
        if (!ares_metrics_get(m, key, &value)) continue; /* no answer of the set could be judged */
        sum += value;
        sets++;
    }
    /* checkpoints are compared by this metric; data.val_files give it where there are any */
    if (sets > 0 && !ares_metrics_get(m, "val/reward_score", &value))
        ares_metrics_set(m, "val/reward_score", sum / sets);
    return ARES_OK;
}

/* The options of eval.*, with the names that slime's files of evaluations have. */

#define SET_OPTIONS(X)                                                                           \
    X(text, name, "name", "null", "nonempty", "part of the names of its metrics")                \
    X(text, path, "path", "null", "nonempty", "file of its rows")                                \
    X(text, rm_type, "rm_type", "null", "nonempty", "verifier of its rows")                      \
    X(text, input_key, "input_key", "null", "nonempty", "null: data.prompt_key")                 \
    X(text, label_key, "label_key", "null", "nonempty", "null: data.answer_key")                 \
    X(text, tool_key, "tool_key", "null", "", "not offered")                                     \
    X(text, metadata_key, "metadata_key", "null", "nonempty", "null: data.metadata_key")         \
    X(i64, n, "n_samples_per_eval_prompt", "null", "[1,1000000]", "answers to each prompt")      \
    X(f64, temperature, "temperature", "null", "[0,)", "0 is greedy")                            \
    X(f64, top_p, "top_p", "null", "(0,1]", "nucleus sampling")                                  \
    X(i64, top_k, "top_k", "null", "-1|[1,1000000000]", "-1 is off")                             \
    X(i64, max_response_len, "max_response_len", "null", "[1,1000000000]",                       \
      "tokens of an answer at most")                                                             \
    X(texts, stop, "stop", "null", "nonempty", "strings that end an answer")                     \
    X(i64s, stop_token_ids, "stop_token_ids", "null", "[0,2147483647]",                          \
      "token ids that end an answer")                                                            \
    X(i64, min_new_tokens, "min_new_tokens", "null", "[0,0]", "not offered")                     \
    X(text, generate, "custom_generate_function_path", "null", "", "not offered: no code loads") \
    X(tree, metadata, "metadata_overrides", "{}", "map", "members for each row's metadata")
ARES_OPTION_STRUCT(set_options, SET_OPTIONS);
static ARES_OPTION_TABLE(set_table, set_options, SET_OPTIONS);

/* The members that each row's metadata gets: rm_type, unless `more` names one, then `more`. */
static const ares_json *metadata_of(ares_config *cfg, const char *rm_type, const ares_json *more)
{
    if (!rm_type && !more->count) return NULL;
    struct {
        ares_json all, type;
        ares_json_member members[];
    } *m = ares_config_alloc(cfg, sizeof *m + (size_t)(more->count + 1) * sizeof *m->members);
    m->type = (ares_json){ .type = ARES_JSON_STRING, .text = ares_view_of(rm_type ? rm_type : "") };
    m->all = (ares_json){ .type = ARES_JSON_OBJECT, .members = m->members };
    if (rm_type && !ares_json_get(more, "rm_type"))
        m->members[m->all.count++] = (ares_json_member){ ARES_VIEW("rm_type"), &m->type };
    for (int64_t i = 0; i < more->count; i++) m->members[m->all.count++] = more->members[i];
    return &m->all;
}

#define FIRST_TEXT(field) (o->field ? o->field : d->field)
#define FIRST_NUMBER(field) (o->field != ARES_NULL_I64 ? o->field : d->field)
#define FIRST_REAL(field) (ares_is_null_f64(o->field) ? d->field : o->field)
#define FIRST_LIST(field) (o->field.count ? o->field : d->field)

/* s, *n: validation's; replaced by values of the set (o), or else of eval.defaults (d) */
static void resolve_sampling(ares_config *cfg, const set_options *o, const set_options *d,
                             ares_sampling *s, int64_t *n)
{
    double temperature = FIRST_REAL(temperature), top_p = FIRST_REAL(top_p);
    int64_t count = FIRST_NUMBER(n), top_k = FIRST_NUMBER(top_k),
            tokens = FIRST_NUMBER(max_response_len);
    ares_texts stop = FIRST_LIST(stop);
    ares_i64s ids = FIRST_LIST(stop_token_ids);
    if (count != ARES_NULL_I64) *n = count;
    if (!ares_is_null_f64(temperature)) s->temperature = (float)temperature;
    if (!ares_is_null_f64(top_p)) s->top_p = (float)top_p;
    if (top_k != ARES_NULL_I64) s->top_k = (int32_t)top_k;
    if (tokens != ARES_NULL_I64) s->max_new_tokens = (int32_t)tokens;
    if (stop.count) {
        s->n_stop_strings = (int32_t)stop.count;
        s->stop_strings = stop.items;
    }
    if (!ids.count) return;
    int32_t *own = ares_config_alloc(cfg, (size_t)ids.count * sizeof *own);
    for (int64_t i = 0; i < ids.count; i++) own[i] = (int32_t)ids.items[i];
    s->n_stop_ids = (int32_t)ids.count;
    s->stop_ids = own;
}

/* Words of slime that ask for turns of tools or for code. */
static void refuse(ares_config *cfg, const char *path, const set_options *o)
{
    if (o->tool_key || o->generate)
        ares_config_fault(cfg, path,
                          "%s is not offered: an answer is one turn of the policy; leave it out",
                          o->tool_key ? "tool_key" : "custom_generate_function_path");
}

enum { NAME_BYTES = 80 };

/* Reads a data set; false: it has no name or path, which is a fault. name: its key in a map */
static bool read_set(ares_config *cfg, const ares_train_config *c, const char *path,
                     const ares_json *item, const char *name, const set_options *d, eval_set *out)
{
    set_options bound, *o = &bound;
    if (item->type != ARES_JSON_OBJECT) {
        ares_config_fault(cfg, path, "a data set is a map, as in {name: aime, path: aime.jsonl}");
        return false;
    }
    ares_config_bind(cfg, path, set_table, o);
    refuse(cfg, path, o);
    *out = (eval_set){ .name = o->name ? o->name : name, .path = o->path, .data = c->data };
    if (!out->name || !out->path) {
        ares_config_fault(cfg, path, "a data set has a name and a path; give both");
        return false;
    }
    if (!*out->name || strlen(out->name) > NAME_BYTES || strpbrk(out->name, "/ \t\r\n"))
        ares_config_fault(cfg, path,
                          "name '%s' is part of names of metrics; use 1 to %d characters, neither "
                          "'/' nor blanks",
                          out->name, NAME_BYTES);
    if (FIRST_TEXT(input_key)) out->data.prompt_key = FIRST_TEXT(input_key);
    if (FIRST_TEXT(label_key)) out->data.answer_key = FIRST_TEXT(label_key);
    if (FIRST_TEXT(metadata_key)) out->data.metadata_key = FIRST_TEXT(metadata_key);
    out->metadata = metadata_of(cfg, FIRST_TEXT(rm_type), o->metadata);
    validation_sampling(cfg, c, &out->sampling, &out->n);
    resolve_sampling(cfg, o, d, &out->sampling, &out->n);
    if (c->rollout.max_model_len != ARES_NULL_I64 &&
        c->data.max_prompt_length + out->sampling.max_new_tokens > c->rollout.max_model_len)
        ares_config_fault(cfg, path,
                          "max_response_len = %d and data.max_prompt_length = %lld do not fit in "
                          "worker.rollout.max_model_len = %lld",
                          out->sampling.max_new_tokens, (long long)c->data.max_prompt_length,
                          (long long)c->rollout.max_model_len);
    return true;
}

void eval_sets_read(ares_config *cfg, const ares_train_config *c, eval_sets *out)
{
    const ares_json *list = c->eval.datasets;
    set_options defaults;
    *out = (eval_sets){ 0 };
    ares_config_bind(cfg, "eval.defaults", set_table, &defaults);
    refuse(cfg, "eval.defaults", &defaults);
    if (defaults.name || defaults.path || defaults.metadata->count)
        ares_config_fault(cfg, "eval.defaults",
                          "name, path and metadata_overrides are those of one data set; write them "
                          "under eval.datasets");
    out->items = ares_config_alloc(cfg, (size_t)list->count * sizeof *out->items);
    for (int64_t i = 0; i < list->count; i++) {
        ares_str path = { 0 }, name = { 0 };
        bool map = list->type == ARES_JSON_OBJECT;
        if (map) ares_str_add_view(&name, list->members[i].key);
        else ares_str_addf(&name, "%lld", (long long)i);
        ares_str_addf(&path, "eval.datasets.%s", name.data);
        char *own = NULL;
        if (map) {
            own = ares_config_alloc(cfg, name.len + 1);
            memcpy(own, name.data, name.len);
        }
        const ares_json *item = map ? list->members[i].value : &list->items[i];
        if (map && strchr(own, '.')) /* it would be a path of options */
            ares_config_fault(cfg, "eval.datasets",
                              "the key '%s' has a dot in it; write a list of {name: %s, path: ...}",
                              own, own);
        else if (read_set(cfg, c, path.data, item, own, &defaults, &out->items[out->n])) out->n++;
        ares_str_fini(&name);
        ares_str_fini(&path);
    }
    for (int64_t i = 0; i < out->n; i++)
        for (int64_t k = 0; k < i; k++)
            if (strcmp(out->items[i].name, out->items[k].name) == 0)
                ares_config_fault(cfg, "eval.datasets",
                                  "'%s' is the name of two data sets; give each its own",
                                  out->items[i].name);
}

int64_t eval_sets_longest(const eval_sets *e)
{
    int64_t most = 0;
    for (int64_t i = 0; i < e->n; i++) most = ARES_MAX(most, e->items[i].sampling.max_new_tokens);
    return most;
}

/*
 * Validation: every row of data.val_files is answered, sampled as val_override_config says, and
 * judged by the rewards of training.
 */

#define VAL_OPTIONS(X)                                                         \
    X(i64, n, "n", "1", "[1,)", "samples of a prompt")                         \
    X(f64, temperature, "temperature", "null", "[0,)", "null: as in training") \
    X(f64, top_p, "top_p", "null", "(0,1]", "null: as in training")            \
    X(i64, top_k, "top_k", "null", "-1|[1,)", "null: as in training")          \
    X(flag, do_sample, "do_sample", "true", "", "false: greedy")               \
    X(i64, max_new_tokens, "max_new_tokens", "null", "[1,)", "null: data.max_response_length")
ARES_OPTION_STRUCT(val_options, VAL_OPTIONS);
static ARES_OPTION_TABLE(val_option_table, val_options, VAL_OPTIONS);

enum { GROUPS_MAX = 64 }; /* rows with further values of the key are counted in no group */

/* Sums over all rows, or over the rows with one value of data.val_group_key. */
typedef struct tally {
    const char *name; /* "<key>=<value>"; NULL: of all rows */
    double rows, score, accuracy, judged, tokens, stopped, failed, scored, *parts;
    several several; /* answers to a prompt */
} tally;

typedef struct validation {
    ares_trainer *t;
    int parts; /* rewards that a score is made of */
    tally all, groups[GROUPS_MAX];
    int n_groups;    /* the same on every rank, and so is their order */
    ares_map *names; /* value of the key -> its group */
    ares_arena arena;
} validation;

/* unscored: the answer could not be judged, and has no score */
static void add(tally *y, const ares_trajectory *s, int parts, bool unscored)
{
    y->rows++;
    y->failed += s->failed;
    y->tokens += (double)ares_trajectory_tokens(s);
    y->stopped += s->stopped;
    if (unscored) return;
    y->scored++;
    y->score += (double)s->score;
    if (!isnan(s->accuracy)) {
        y->accuracy += (double)s->accuracy;
        y->judged++;
    }
    for (int i = 0; i < parts; i++) {
        if (isnan(s->parts[i])) continue; /* the reward does not judge this answer */
        y->parts[i] += (double)s->parts[i];
        y->parts[parts + i]++;
    }
}

/* A collective: the metrics of a tally. */
static int put(const validation *v, const tally *y, ares_metrics *m)
{
    const ares_trainer *t = v->t;
    int parts = v->parts;
    enum { NUMBERS = 8 };
    double *sums = ares_malloc((size_t)(NUMBERS + 2 * parts) * sizeof *sums);
    memcpy(sums,
           (double[NUMBERS]){ y->rows, y->score, y->accuracy, y->judged, y->tokens, y->stopped,
                              y->failed, y->scored },
           NUMBERS * sizeof *sums);
    memcpy(sums + NUMBERS, y->parts, (size_t)(2 * parts) * sizeof *sums);
    int rc = ares_world_sum_f64(t->run.world, sums, NUMBERS + 2 * parts);
    char key[200];
    const char *slash = y->name ? "/" : "", *name = y->name ? y->name : "";
    if (rc == ARES_OK && sums[0] > 0) {
        snprintf(key, sizeof key, "val%s%s/reward_score", slash, name);
        if (sums[7] > 0) ares_metrics_set(m, key, sums[1] / sums[7]);
        snprintf(key, sizeof key, "val%s%s/failed_frac", slash, name);
        ares_metrics_set(m, key, sums[6] / sums[0]);
        snprintf(key, sizeof key, "val%s%s/accuracy", slash, name);
        if (sums[3] > 0) ares_metrics_set(m, key, sums[2] / sums[3]);
        /* EasyR1's name for it */
        if (sums[3] > 0 && !y->name) ares_metrics_set(m, "val/accuracy_reward", sums[2] / sums[3]);
        snprintf(key, sizeof key, "val%s%s/response_length", slash, name);
        ares_metrics_set(m, key, sums[4] / sums[0]);
        for (int i = 0; i < parts && !y->name; i++) {
            double scored = sums[NUMBERS + parts + i];
            snprintf(key, sizeof key, "val/%s_reward", ares_reward_name(t->reward, i));
            if (scored > 0) ares_metrics_set(m, key, sums[NUMBERS + i] / scored);
        }
        snprintf(key, sizeof key, "val/finished_frac");
        if (!y->name) ares_metrics_set(m, key, sums[5] / sums[0]);
    }
    snprintf(key, sizeof key, "val%s%s/", slash, name);
    if (rc == ARES_OK) rc = several_put(&y->several, t->run.world, t->val_n, key, m);
    ares_free(sums);
    return rc;
}

/* The group of a row; NULL: the row has none. A new value makes a new group. */
static tally *group_of(validation *v, const ares_row *row)
{
    const char *key = v->t->run.cfg->data.val_group_key;
    const ares_json *x = key ? ares_row_at(row->json, key) : NULL;
    if (!x) return NULL;
    ares_view value =
        x->type == ARES_JSON_BOOL ? (x->boolean ? ARES_VIEW("true") : ARES_VIEW("false")) : x->text;
    int64_t i;
    if (!value.data) return NULL;
    if (ares_map_get(v->names, value, &i)) return &v->groups[i];
    if (v->n_groups == GROUPS_MAX) return NULL;
    ares_map_put(v->names, value, v->n_groups);
    v->groups[v->n_groups] =
        (tally){ .name = ares_arena_printf(&v->arena, "%s=%.*s", key, (int)value.len, value.data),
                 .parts = ares_arena_calloc(&v->arena, (size_t)v->parts * 2 + 1, sizeof(double)) };
    return &v->groups[v->n_groups++];
}

void validation_sampling(ares_config *cfg, const ares_train_config *c, ares_sampling *s, int64_t *n)
{
    val_options o;
    ares_config_bind(cfg, "worker.rollout.val_override_config", val_option_table, &o);
    answer_sampling(c, s);
    if (!ares_is_null_f64(o.temperature)) s->temperature = (float)o.temperature;
    if (!o.do_sample) s->temperature = 0;
    if (!ares_is_null_f64(o.top_p)) s->top_p = (float)o.top_p;
    if (o.top_k != ARES_NULL_I64) s->top_k = (int32_t)o.top_k;
    if (o.max_new_tokens != ARES_NULL_I64)
        s->max_new_tokens = (int32_t)ARES_MIN(o.max_new_tokens, INT32_MAX);
    *n = o.n;
}

int64_t validation_longest(const ares_train_config *c, const ares_sampling *validation,
                           const eval_sets *evals)
{
    bool validates = c->data.val_files.count || c->agents_val.tags.count;
    return ARES_MAX(validates ? validation->max_new_tokens : 0, eval_sets_longest(evals));
}

/* val_response_length and val_prompt_length, as EasyR1 has them. */
static int lengths(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    /* sums: rows, lengths of responses, of prompts; bounds: largest and -smallest of each */
    double sums[3] = { (double)b->rows },
           bounds[4] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    for (int64_t r = 0; r < b->rows; r++) {
        const double length[2] = { (double)(b->row_start[r + 1] - b->row_start[r]),
                                   b->samples[r].prompt_len };
        for (int k = 0; k < 2; k++) {
            sums[1 + k] += length[k];
            bounds[2 * k] = fmax(bounds[2 * k], length[k]);
            bounds[2 * k + 1] = fmax(bounds[2 * k + 1], -length[k]);
        }
    }
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, 3));
    ARES_TRY(ares_world_max_f64(t->run.world, bounds, 4));
    for (int k = 0; k < 2 && sums[0] > 0; k++) {
        const char *const names[2][3] = {
            { "val_response_length/mean", "val_response_length/max", "val_response_length/min" },
            { "val_prompt_length/mean", "val_prompt_length/max", "val_prompt_length/min" }
        };
        ares_metrics_set(m, names[k][0], sums[1 + k] / sums[0]);
        ares_metrics_set(m, names[k][1], bounds[2 * k]);
        ares_metrics_set(m, names[k][2], -bounds[2 * k + 1]);
    }
    return ARES_OK;
}

/*
 * A first validation in which no answer could be judged ends the run; after a step, the step is
 * saved before. A later such validation only warns.
 */
static int check_failures(ares_trainer *t, const ares_metrics *m)
{
    double failed = 0;
    const char *why = t->agents ? t->agents->last_failure : ares_reward_last_failure(t->reward);
    (void)ares_metrics_get(m, "val/failed_frac", &failed);
    if (failed < 1) return ARES_OK;
    if (t->run.step == 0 || t->run.cfg->trainer.val_only)
        return ares_fail(ARES_ECHILD, "%s: validation: nothing could be judged (%s)",
                         t->agents ? "env" : "reward", why && *why ? why : "on other ranks");
    if (ares_world_rank(t->run.world) == 0)
        ares_warn("validation: nothing could be judged; there is no score");
    t->run.unjudged = t->run.validated_step < 0;
    return ARES_OK;
}

static int validate(ares_trainer *t, validation *v, ares_batch *b, ares_metrics *m,
                    ares_str *samples)
{
    int64_t total = ares_source_count(&t->run.val), row = 0, count;
    ares_group *answered = ares_arena_calloc(&v->arena, (size_t)total + 1, sizeof *answered);
    /* groups are made in the order of all rows, so that ranks have the same ones */
    for (int64_t i = 0; i < total; i++) (void)group_of(v, ares_source_row(&t->run.val, i));
    const answer_pass pass = {
        .source = &t->run.val, .sampling = &t->val_sampling, .n = t->val_n, .key = ANSWER_VALIDATION
    };
    ARES_TRY(
        ares_world_share_error(t->run.world, answer_all(t, &pass, &v->arena, answered, &count)));
    ares_batch_fill(b, answered, count);
    ARES_TRY(ares_world_share_error(t->run.world, controls_validate(t->run.controls, b, m)));
    ares_reward_shape(t->reward, b);
    for (int64_t g = 0; g < count; g++) {
        tally *named = group_of(v, answered[g].row);
        for (int32_t i = 0; i < answered[g].n; row += answered[g].items[i++].n_rows) {
            ares_trajectory *y = &answered[g].items[i];
            y->score = b->samples[row].score; /* a shaper may have added to it */
            bool unscored = y->failed && answer_discards_failures(t);
            add(&v->all, y, v->parts, unscored);
            if (named) add(named, y, v->parts, unscored);
            if (samples) validation_write(t, NULL, answered[g].row, y, samples);
        }
        several_add(&v->all.several, t, &answered[g]);
        if (named) several_add(&named->several, t, &answered[g]);
    }

    double format;
    ARES_TRY(put(v, &v->all, m));
    ARES_TRY(check_failures(t, m));
    if (t->generator->report) ARES_TRY(t->generator->report(t, "val-env/", m));
    ARES_TRY(ares_reward_report(t->reward, t->run.world, "val/", m));
    if (ares_metrics_get(m, "val/reward/format", &format))
        ares_metrics_set(m, "val/format_reward", format);
    ARES_TRY(lengths(t, b, m));
    for (int g = 0; g < v->n_groups; g++) ARES_TRY(put(v, &v->groups[g], m));
    return ARES_OK;
}

int trainer_validate(ares_trainer *t, ares_metrics *m, ares_str *samples)
{
    validation v = { .t = t, .parts = ares_reward_count(t->reward), .names = ares_map_new() };
    v.all.parts = ares_arena_calloc(&v.arena, (size_t)v.parts * 2 + 1, sizeof(double));
    ares_batch b;
    ares_batch_init(&b);
    answer_expect(t, answer_share(t, ares_source_count(&t->run.val)), t->val_n);
    for (int64_t i = 0; i < t->evals.n; i++)
        answer_expect(t, answer_share(t, ares_source_count(&t->evals.items[i].source)),
                      t->evals.items[i].n);
    int rc = ares_source_count(&t->run.val) ? validate(t, &v, &b, m, samples) : ARES_OK;
    if (rc == ARES_OK) rc = eval_sets_validate(t, m, samples);
    ares_batch_fini(&b);
    ares_map_free(v.names);
    ares_arena_fini(&v.arena);
    return rc;
}

/*
 * The pass over all training rows that a control may ask for before the first step (data.bootstrap,
 * docs/aepo.md#bootstrap-pass): every prompt is answered and judged as in training. After each
 * batch the controls' state is written to <run>/bootstrap.json, so that an interrupted pass goes on
 * where it stopped, and a complete one is not repeated: until a checkpoint holds its conclusions,
 * they are drawn from this file again.
 */

/* Rank 0 writes the controls' state. A collective. */
static int save(const ares_trainer *t, const char *path)
{
    ares_str json = { 0 };
    int rc = ARES_OK;
    if (ares_world_rank(t->run.world) == 0 && !t->run.replays) {
        controls_save(t->run.controls, &json);
        ares_str_add_char(&json, '\n');
        /* whole or not at all, whenever the run is killed */
        rc = ares_file_write_atomic(path, json.data, json.len);
    }
    ares_str_fini(&json);
    return ares_world_share_error(t->run.world, rc);
}

/* All ranks read the state of an earlier pass, where there is one. A collective. */
static int load(ares_trainer *t, const char *path)
{
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *json;
    int rc = ares_file_exists(path) ? ares_file_read(path, &text) : ARES_OK;
    if (rc == ARES_OK && text.len) rc = ares_json_parse(&arena, ares_str_view(&text), path, &json);
    if (rc == ARES_OK && text.len) rc = controls_load(t->run.controls, json, path);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
    return ares_world_share_error(t->run.world, rc);
}

/* Answers this rank's share of rows [at, end) of the source, and shows them to the controls. */
static int answer_bootstrap(ares_trainer *t, int64_t at, int64_t end, ares_metrics *m)
{
    int64_t n = t->run.cfg->rollout.n, count;
    ares_batch *b = &t->batch;
    ares_sampling sampling;
    ares_group *groups;
    answer_sampling(t->run.cfg, &sampling);
    const answer_pass pass = {
        .source = &t->run.source, .sampling = &sampling, .n = n, .key = ANSWER_BOOTSTRAP
    };
    ares_batch_clear(b);
    ARES_TRY(ares_world_share_error(t->run.world,
                                    answer_rows(t, &pass, at, end, &b->arena, &groups, &count)));
    answer_discard(t, groups, count);
    ares_batch_fill(b, groups, count);
    return controls_bootstrap_add(t->run.controls, b, m);
}

int trainer_bootstrap(ares_trainer *t, ares_metrics *m)
{
    int64_t done = 0, total = ares_source_count(&t->run.source);
    if (!controls_bootstrap(t->run.controls, &done)) return ARES_OK;
    ares_str path = { 0 };
    ares_path_join(&path, t->run.run_dir.data, "bootstrap.json");
    int rc = load(t, path.data);
    (void)controls_bootstrap(t->run.controls, &done); /* again: as far as the earlier pass went */
    ares_work_begin("bootstrap");
    answer_expect(t, answer_share(t, total - done), t->run.cfg->rollout.n);
    for (int64_t size; rc == ARES_OK && (size = controls_bootstrap(t->run.controls, &done)) > 0;) {
        int signal = 0;
        if (done >= total) {
            rc =
                ares_world_share_error(t->run.world, controls_bootstrap_finish(t->run.controls, m));
            continue;
        }
        int64_t end = ARES_MIN(total, done + size);
        int answered = ares_world_share_error(t->run.world, answer_bootstrap(t, done, end, m));
        if (answered == ARES_EINTERRUPTED) end = done; /* the saved state is without this batch */
        else rc = answered == ARES_OK ? save(t, path.data) : answered;
        if (rc == ARES_OK) rc = ares_world_signal(t->run.world, &signal);
        if (rc == ARES_OK && signal)
            rc = ares_fail(ARES_EINTERRUPTED,
                           "run: stopped by signal %d in the bootstrap pass, after %lld of %lld "
                           "prompts; the same command goes on from there",
                           signal, (long long)end, (long long)total);
        if (rc == ARES_OK && ares_world_rank(t->run.world) == 0)
            ares_say("bootstrap: %lld of %lld prompts\n", (long long)end, (long long)total);
    }
    ares_str_fini(&path);
    ares_batch_clear(&t->batch);
    if (rc != ARES_OK) return rc;
    /* reporting clears what rewards have counted in this pass, which is not the first step's */
    ares_metrics *unused = ares_metrics_new();
    rc = ares_reward_report(t->reward, t->run.world, "", unused);
    ares_metrics_free(unused);
    return rc;
}
