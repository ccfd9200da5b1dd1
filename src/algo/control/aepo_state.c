/*
 * The state of the AEPO control outside a step: saved to and read from a checkpoint, and its
 * metrics.
 */
#include "aepo.h"

#include <math.h>
#include <stdio.h>

/*
 * AEPO's memory as one JSON object (docs/aepo.md#state-in-a-checkpoint). Doubles are written so
 * that they read back as the same bits.
 */

/* ---------------------------------------------------------------- saving */

/* One number per difficulty, as {"easy": .., "medium": .., "hard": ..}. */
static void save_numbers(ares_str *json, const char *key, const double *x)
{
    ares_json_begin(ares_json_key(json, key), '{');
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        ares_json_write_double(ares_json_key(json, ares_difficulty_names[d]), x[d]);
    ares_json_end(json, '}');
}

void aepo_save(const void *state, ares_str *json)
{
    const aepo *s = state;
    ares_json_begin(json, '{');
    ares_json_key(json, "tau");
    /* null until the first step has measured a threshold */
    if (s->tau_known) ares_json_write_double(json, s->tau);
    else ares_json_write_null(json);
    ares_json_write_bool(ares_json_key(json, "tau_ema_started"), s->tau_started);
    ares_json_write_i64(ares_json_key(json, "steps"), s->steps);
    ares_json_begin(ares_json_key(json, "target"), '{');
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        if (s->aims.target_known[d])
            ares_json_write_i64(ares_json_key(json, ares_difficulty_names[d]), s->aims.target[d]);
    ares_json_end(json, '}');
    save_numbers(json, "alpha", s->aims.alpha);
    save_numbers(json, "kl_lambda", s->lambda);
    ares_json_begin(ares_json_key(json, "kl_beta"), '{');
    ares_json_write_i64(ares_json_key(json, "updates"), s->beta_updates);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        ares_json_begin(ares_json_key(json, ares_difficulty_names[d]), '{');
        ares_json_write_double(ares_json_key(json, "beta"), s->beta[d].beta);
        ares_json_key(json, "kl_ema");
        if (s->beta[d].started) ares_json_write_double(json, s->beta[d].kl_ema);
        else ares_json_write_null(json);
        ares_json_write_double(ares_json_key(json, "error_ema"), s->beta[d].error_ema);
        ares_json_end(json, '}');
    }
    ares_json_end(json, '}');
    ares_json_begin(ares_json_key(json, "difficulty"), '{');
    for (int64_t i = 0; i < ares_map_count(s->difficulty); i++)
        ares_json_write_string(
            ares_json_key_view(json, ares_map_key(s->difficulty, i)),
            ares_view_of(ares_difficulty_names[ares_map_value(s->difficulty, i)]));
    ares_json_end(json, '}');
    ares_json_begin(ares_json_key(json, "skip_gid"), '[');
    for (int64_t i = 0; i < ares_map_count(s->skip); i++)
        ares_json_write_string(json, ares_map_key(s->skip, i));
    ares_json_end(json, ']');
    bool any = false; /* null: no bootstrap pass has measured a baseline */
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) any = any || s->baseline_known[d];
    ares_json_key(json, "bootstrap_baseline");
    /* only difficulties that the pass has seen */
    if (any) ares_json_begin(json, '{');
    else ares_json_write_null(json);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        if (!s->baseline_known[d]) continue;
        ares_json_begin(ares_json_key(json, ares_difficulty_names[d]), '{');
        ares_json_write_double(ares_json_key(json, "acc_mean"), s->baseline_accuracy[d]);
        ares_json_write_double(ares_json_key(json, "len_mean"), s->baseline_length[d]);
        ares_json_end(json, '}');
    }
    if (any) ares_json_end(json, '}');
    /* how far the bootstrap pass has come, and the sums of the prompts it has seen */
    ares_json_begin(ares_json_key(json, "bootstrap"), '{');
    ares_json_write_bool(ares_json_key(json, "done"), s->bootstrap_done);
    ares_json_write_i64(ares_json_key(json, "prompts"), s->bootstrap_prompts);
    ares_json_write_i64(ares_json_key(json, "tokens"), s->bootstrap_tokens);
    ares_json_begin(ares_json_key(json, "seen"), '{');
    for (int64_t i = 0; i < ares_map_count(s->bootstrap_index); i++) {
        const aepo_seen *p = &s->bootstrap_seen[i];
        ares_json_begin(ares_json_key_view(json, ares_map_key(s->bootstrap_index, i)), '[');
        ares_json_write_i64(json, p->samples);
        ares_json_write_double(json, p->accuracy);
        ares_json_write_double(json, p->hwe);
        ares_json_write_double(json, p->length);
        ares_json_end(json, ']');
    }
    ares_json_end(json, '}');
    ares_json_end(json, '}');
    ares_json_end(json, '}');
}

/* ---------------------------------------------------------------- loading */

/* The failure for a member that a state has but cannot have written. */
static int misfit(const char *key, const char *what)
{
    return ares_fail(ARES_EFORMAT, "%s: saved state: '%s' %s", AEPO_WHO, key, what);
}

/* A member of a state that must be an object. */
static int object(const ares_json *o, const char *key, const ares_json **out)
{
    ARES_TRY(control_member(o, AEPO_WHO, key, out));
    return (*out)->type == ARES_JSON_OBJECT ? ARES_OK : misfit(key, "is no object");
}

/* A member that must be true or false. */
static int boolean(const ares_json *o, const char *key, bool *out)
{
    const ares_json *v;
    ARES_TRY(control_member(o, AEPO_WHO, key, &v));
    if (v->type != ARES_JSON_BOOL) return misfit(key, "is neither true nor false");
    *out = v->boolean;
    return ARES_OK;
}

/* A number for each difficulty; with known NULL all are required, else known says which exist. */
static int numbers(const ares_json *o, const char *key, double *x, bool *known)
{
    const ares_json *map;
    ARES_TRY(object(o, key, &map));
    for (int64_t i = 0; i < map->count; i++)
        if (!difficulty_find(map->members[i].key))
            return misfit(key, "has a member that is none of easy, medium, hard");
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        bool there = ares_json_get(map, ares_difficulty_names[d]) != NULL;
        if (known) known[d] = there;
        /* known NULL: a number that is not there is a fault */
        if (there || !known)
            if (control_number(map, AEPO_WHO, ares_difficulty_names[d], &x[d]) != ARES_OK)
                return ares_fail_in(ARES_EFORMAT, "%s", key);
    }
    return ARES_OK;
}

/* A state of another data set would drop and weigh prompts that are not there. */
static int check_gid(const aepo *s, const char *key, ares_view gid)
{
    if (!s->env.gids || ares_map_get(s->env.gids, gid, NULL)) return ARES_OK;
    return ares_fail(ARES_ESTATE,
                     "%s: saved state: '%s' names the prompt '%.*s', which no training row has; "
                     "the state is of another data set",
                     AEPO_WHO, key, (int)gid.len, gid.data);
}

aepo_seen *aepo_bootstrap_at(aepo *s, ares_view gid)
{
    int64_t at;
    if (ares_map_get(s->bootstrap_index, gid, &at)) return &s->bootstrap_seen[at];
    /* a map numbers its keys from 0 in the order they came, and so are the sums */
    at = ares_map_count(s->bootstrap_index);
    if (at == s->bootstrap_cap) {
        s->bootstrap_cap = s->bootstrap_cap * 2 + 256;
        s->bootstrap_seen =
            ares_realloc(s->bootstrap_seen, (size_t)s->bootstrap_cap * sizeof *s->bootstrap_seen);
    }
    ares_map_put(s->bootstrap_index, gid, at);
    s->bootstrap_seen[at] = (aepo_seen){ 0 };
    return &s->bootstrap_seen[at];
}

/* "seen" maps a gid to [samples, sum of accuracy, of HWE tokens, of length]. */
static int load_bootstrap(aepo *s, const ares_json *json)
{
    const ares_json *map, *seen;
    ARES_TRY(object(json, "bootstrap", &map));
    ARES_TRY(boolean(map, "done", &s->bootstrap_done));
    ARES_TRY(control_integer(map, AEPO_WHO, "prompts", &s->bootstrap_prompts));
    s->bootstrap_tokens = 0;
    /* absent in states of older versions */
    if (ares_json_get(map, "tokens"))
        ARES_TRY(control_integer(map, AEPO_WHO, "tokens", &s->bootstrap_tokens));
    ARES_TRY(object(map, "seen", &seen));
    ares_map_free(s->bootstrap_index);
    s->bootstrap_index = ares_map_new();
    for (int64_t i = 0; i < seen->count; i++) {
        const ares_json_member *x = &seen->members[i];
        const ares_json *v = x->value;
        bool fits = v->type == ARES_JSON_ARRAY && v->count == 4 &&
                    v->items[0].type == ARES_JSON_INT && v->items[0].integer > 0;
        for (int k = 1; fits && k < 4; k++)
            fits = v->items[k].type == ARES_JSON_INT || v->items[k].type == ARES_JSON_FLOAT;
        if (!fits)
            return ares_fail(ARES_EFORMAT,
                             "%s: saved state: 'bootstrap.seen' of '%.*s' is no list of four sums",
                             AEPO_WHO, (int)x->key.len, x->key.data);
        ARES_TRY(check_gid(s, "bootstrap.seen", x->key));
        *aepo_bootstrap_at(s, x->key) = (aepo_seen){ .samples = v->items[0].integer,
                                                     .accuracy = v->items[1].number,
                                                     .hwe = v->items[2].number,
                                                     .length = v->items[3].number };
    }
    return ARES_OK;
}

int aepo_load(void *state, const ares_json *json)
{
    aepo *s = state;
    const ares_json *tau, *betas, *skip, *baseline;
    /* doubles hold the targets exactly: they are numbers of tokens */
    double target[ARES_DIFFICULTIES] = { 0 };
    ARES_TRY(control_member(json, AEPO_WHO, "tau", &tau));
    s->tau_known = tau->type != ARES_JSON_NULL;
    if (s->tau_known) ARES_TRY(control_number(json, AEPO_WHO, "tau", &s->tau));
    ARES_TRY(boolean(json, "tau_ema_started", &s->tau_started));
    if (s->tau_started && !s->tau_known)
        return misfit("tau", "is null though its average has started");
    ARES_TRY(control_integer(json, AEPO_WHO, "steps", &s->steps));
    ARES_TRY(numbers(json, "target", target, s->aims.target_known));
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) s->aims.target[d] = (int64_t)target[d];
    ARES_TRY(numbers(json, "alpha", s->aims.alpha, NULL));
    ARES_TRY(numbers(json, "kl_lambda", s->lambda, NULL));
    ARES_TRY(object(json, "kl_beta", &betas));
    ARES_TRY(control_integer(betas, AEPO_WHO, "updates", &s->beta_updates));
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        const ares_json *one, *ema;
        ARES_TRY(object(betas, ares_difficulty_names[d], &one));
        ARES_TRY(control_number(one, AEPO_WHO, "beta", &s->beta[d].beta));
        ARES_TRY(control_number(one, AEPO_WHO, "error_ema", &s->beta[d].error_ema));
        ARES_TRY(control_member(one, AEPO_WHO, "kl_ema", &ema));
        s->beta[d].started = ema->type != ARES_JSON_NULL; /* null until the first measurement */
        s->beta[d].kl_ema = 0;
        if (s->beta[d].started)
            ARES_TRY(control_number(one, AEPO_WHO, "kl_ema", &s->beta[d].kl_ema));
        if (s->beta[d].beta <= 0) return misfit("kl_beta", "is not above 0");
    }
    const ares_json *map; /* {"gid": "easy", ..} */
    ARES_TRY(object(json, "difficulty", &map));
    ares_map_free(s->difficulty);
    s->difficulty = ares_map_new();
    for (int64_t i = 0; i < map->count; i++) {
        const ares_json_member *x = &map->members[i];
        ares_difficulty d = x->value->type == ARES_JSON_STRING ? difficulty_find(x->value->text)
                                                               : ARES_DIFFICULTY_NONE;
        if (!d)
            return ares_fail(
                ARES_EFORMAT,
                "%s: saved state: 'difficulty' of '%.*s' is none of easy, medium, hard", AEPO_WHO,
                (int)x->key.len, x->key.data);
        ARES_TRY(check_gid(s, "difficulty", x->key));
        ares_map_put(s->difficulty, x->key, d);
    }
    ARES_TRY(control_member(json, AEPO_WHO, "skip_gid", &skip));
    if (skip->type != ARES_JSON_ARRAY) return misfit("skip_gid", "is no list");
    /* loading replaces what the run has */
    ares_map_free(s->skip);
    s->skip = ares_map_new();
    for (int64_t i = 0; i < skip->count; i++) {
        if (skip->items[i].type != ARES_JSON_STRING)
            return misfit("skip_gid", "has an item that is no string");
        ARES_TRY(check_gid(s, "skip_gid", skip->items[i].text));
        ares_map_put(s->skip, skip->items[i].text, i);
    }
    ARES_TRY(control_member(json, AEPO_WHO, "bootstrap_baseline", &baseline));
    if (baseline->type != ARES_JSON_NULL && baseline->type != ARES_JSON_OBJECT)
        return misfit("bootstrap_baseline", "is neither null nor an object");
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        const ares_json *one = ares_json_get(baseline, ares_difficulty_names[d]);
        s->baseline_known[d] = one != NULL;
        if (!one) continue;
        ARES_TRY(control_number(one, AEPO_WHO, "acc_mean", &s->baseline_accuracy[d]));
        ARES_TRY(control_number(one, AEPO_WHO, "len_mean", &s->baseline_length[d]));
    }
    return load_bootstrap(s, json);
}

/*
 * Metrics of AEPO by difficulty, under the names of ARES (docs/aepo.md#metrics). A difficulty
 * without samples has none.
 */

void aepo_metric(ares_metrics *m, const char *prefix, int difficulty, const char *suffix,
                 double value)
{
    char name[96];
    snprintf(name, sizeof name, "%s/%s%s", prefix, ares_difficulty_names[difficulty], suffix);
    ares_metrics_set(m, name, value);
}

void aepo_report_state(const aepo *s, ares_metrics *m, const char *prefix)
{
    char name[64];
    snprintf(name, sizeof name, "%s/tau", prefix);
    if (s->tau_known) ares_metrics_set(m, name, s->tau);
    snprintf(name, sizeof name, "%s/target", prefix);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        if (s->aims.target_known[d]) aepo_metric(m, name, d, "", (double)s->aims.target[d]);
}

/* Under our names and under those of ARES. */
void aepo_report_validation(const aepo *s, ares_metrics *m)
{
    aepo_report_state(s, m, "val/aepo");
    if (s->tau_known) ares_metrics_set(m, "val/self.high_entropy_token_threshold", s->tau);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        if (s->aims.target_known[d])
            aepo_metric(m, "val/self.expected_high_entropy_token_num", d, "",
                        (double)s->aims.target[d]);
}

/* Sums over the samples of one difficulty. */
typedef struct sums {
    int64_t n;
    double accuracy, length, hwe, invalid, longest, shortest;
} sums;

/*
 * Accuracy by number of HWE tokens, under the published name (with _ for its spaces) and under
 * ours. The published metric is NaN for an empty bin; ours is left out.
 */
static void report_bins(const control_gathered *all, int difficulty, int64_t n, ares_metrics *m)
{
    /* of fewer samples three bins say nothing */
    if (n < 3) return;
    ares_arena arena = { 0 };
    int64_t *hwe = ares_arena_alloc(&arena, (size_t)n * sizeof *hwe), at = 0;
    double *accuracy = ares_arena_alloc(&arena, (size_t)n * sizeof *accuracy);
    for (int64_t i = 0; i < all->n_samples; i++) {
        const control_sample *s = &all->samples[i];
        if (s->difficulty != difficulty) continue;
        hwe[at] = s->hwe;
        accuracy[at++] = (double)s->accuracy;
    }
    accuracy_bins bins;
    accuracy_by_hwe(hwe, accuracy, n, &bins);
    for (int i = 0; i < 3; i++) {
        char suffix[32];
        snprintf(suffix, sizeof suffix, "/accuracy/bin%d", i + 1);
        aepo_metric(m, "entropy_vs_acc", difficulty, suffix, bins.accuracy[i]);
        snprintf(suffix, sizeof suffix, "/count/bin%d", i + 1);
        aepo_metric(m, "entropy_vs_acc", difficulty, suffix, (double)bins.count[i]);
        snprintf(suffix, sizeof suffix, "/bin%d", i + 1);
        if (bins.count[i]) aepo_metric(m, "aepo/acc_by_hwe", difficulty, suffix, bins.accuracy[i]);
    }
    ares_arena_fini(&arena);
}

void aepo_report_batch(const aepo *s, const control_gathered *all, ares_metrics *m)
{
    sums by[ARES_DIFFICULTIES] = { 0 };
    double tokens = 0, hwe = 0;
    for (int64_t i = 0; i < all->n_samples; i++) {
        const control_sample *x = &all->samples[i];
        sums *y = &by[x->difficulty];
        double length = x->length;
        /* the first sample sets both bounds */
        y->longest = y->n ? fmax(y->longest, length) : length;
        y->shortest = y->n ? fmin(y->shortest, length) : length;
        y->n++;
        y->accuracy += (double)x->accuracy;
        y->length += length;
        y->hwe += x->hwe;
        y->invalid += x->invalid;
        tokens += length;
        hwe += x->hwe;
    }
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        const sums *y = &by[d];
        if (!y->n) continue;
        double n = (double)y->n, accuracy = y->accuracy / n, length = y->length / n;
        aepo_metric(m, "reward", d, "/accuracy", accuracy);
        aepo_metric(m, "reward", d, "/count", n);
        aepo_metric(m, "train", d, "/acc_mean", accuracy);
        aepo_metric(m, "train", d, "/len_mean", length);
        /* the gain since the bootstrap pass, at every tenth step as ARES has it */
        if (s->baseline_known[d] && s->steps % 10 == 0) {
            aepo_metric(m, "progress", d, "/dacc", accuracy - s->baseline_accuracy[d]);
            aepo_metric(m, "progress", d, "/dlen", length - s->baseline_length[d]);
        }
        aepo_metric(m, "response_length", d, "/mean", length);
        aepo_metric(m, "response_length", d, "/max", y->longest);
        aepo_metric(m, "response_length", d, "/min", y->shortest);
        aepo_metric(m, "response_length", d, "/count", n);
        aepo_metric(m, "reasoning_tokens_statistics", d, "/valid_mean", y->hwe / n);
        aepo_metric(m, "reasoning_tokens_statistics", d, "/invalid_mean", y->invalid / n);
        aepo_metric(m, "reasoning_tokens_statistics", d, "/count", n);
        report_bins(all, d, y->n, m);
    }
    aepo_report_state(s, m, "aepo");
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        aepo_metric(m, "aepo/alpha", d, "", s->aims.alpha[d]);
    if (tokens > 0) ares_metrics_set(m, "aepo/hwe_frac", hwe / tokens);
    ares_metrics_set(m, "epoch/skip_gid_count", (double)ares_map_count(s->skip));
}
