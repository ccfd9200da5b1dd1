#include "laws.h"

#include <math.h>
#include <stdio.h>

static const char *const difficulties[] = { "easy", "medium", "hard" };

static bool is_number(const ares_json *v)
{
    return v && (v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT);
}

static double get(const ares_json *row, const char *name)
{
    const ares_json *v = ares_json_get(row, name);
    return is_number(v) ? v->number : NAN;
}

static double get_named(const ares_json *row, const char *before, ares_view stem,
                        const char *behind)
{
    char name[200];
    snprintf(name, sizeof name, "%s%.*s%s", before, (int)stem.len, stem.data, behind);
    return get(row, name);
}

static bool ends_with(ares_view key, const char *with)
{
    size_t n = strlen(with);
    return key.len >= n && memcmp(key.data + key.len - n, with, n) == 0;
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fmax(1e-2, fmax(fabs(a), fabs(b)));
}

/* A law about an absent metric (NaN) holds; conditions are written so that NaN passes. */
#define LAW(held, ...)                                            \
    do {                                                          \
        if (!(held)) good = CHECK_MSG(held, __VA_ARGS__) && good; \
    } while (0)

static bool is_share(ares_view key)
{
    static const char *const endings[] = { "_frac",
                                           "/clip_ratio",
                                           "filter_kept_ratio",
                                           "accuracy",
                                           "acc_mean",
                                           "/batch_fill",
                                           "ratio_saturated",
                                           "fail_rate",
                                           "pg_clipfrac_higher",
                                           "pg_clipfrac_lower",
                                           "vf_clipfrac",
                                           "/exhausted" };
    for (int i = 0; i < ARES_COUNT(endings); i++)
        if (ends_with(key, endings[i])) return true;
    return false;
}

static bool is_never_negative(ares_view key)
{
    static const char *const endings[] = {
        "grad_norm",   "ppo_kl_k2",        "ppo_kl_k3", "actor/entropy",  "rollout/entropy",
        "vf_loss",     "_updates",         "/count",    "_minibatches",   "generated_groups",
        "kept_groups", "generated_tokens", "ratio_min", "policy_loss_abs"
    };
    for (int i = 0; i < ARES_COUNT(endings); i++)
        if (ends_with(key, endings[i])) return true;
    return false;
}

/*
 * Checks each number by itself. null is allowed where a mean is over nothing, such as the accuracy
 * of an empty bin.
 */
static bool check_numbers(const ares_json *row, const char *where)
{
    bool good = true;
    for (int64_t i = 0; i < row->count; i++) {
        ares_view key = row->members[i].key;
        const ares_json *v = row->members[i].value;
        if (v->type == ARES_JSON_NULL) {
            LAW(ares_view_starts(key, ARES_VIEW("entropy_vs_acc/")), "%s: %.*s is null", where,
                (int)key.len, key.data);
            continue;
        }
        double x = v->number;
        LAW(isfinite(x), "%s: %.*s = %g", where, (int)key.len, key.data, x);
        LAW(!is_share(key) || (x >= 0 && x <= 1), "%s: %.*s = %.17g lies outside [0, 1]", where,
            (int)key.len, key.data, x);
        LAW(!is_never_negative(key) || x >= 0, "%s: %.*s = %g is negative", where, (int)key.len,
            key.data, x);
        if (!ends_with(key, "/mean")) continue;
        ares_view stem = { key.data, key.len - 5 };
        double low = get_named(row, "", stem, "/min"), high = get_named(row, "", stem, "/max");
        LAW(!(x < low - 1e-6 * fabs(low)) && !(x > high + 1e-6 * fabs(high)),
            "%s: %.*s = %.17g, min %.17g, max %.17g", where, (int)key.len, key.data, x, low, high);
    }
    return good;
}

/* Checks metrics that are sums of others. */
static bool check_sums(const ares_json *row, const char *where)
{
    bool good = true;
    double generated = get(row, "filter/generated_groups"),
           kept = get(row, "rollout/filter_kept_count"), dropped = 0;
    for (int64_t i = 0; i < row->count; i++)
        if (ares_view_starts(row->members[i].key, ARES_VIEW("rollout/dynamic_filter/drop_")))
            dropped += row->members[i].value->number;
    LAW(isnan(kept) || kept + dropped == generated, "%s: %g groups kept and %g dropped of %g",
        where, kept, dropped, generated);
    LAW(isnan(kept) || get(row, "rollout/filter_kept_ratio") == kept / generated,
        "%s: rollout/filter_kept_ratio = %g, not %g", where, get(row, "rollout/filter_kept_ratio"),
        kept / generated);
    LAW(!(get(row, "filter/kept_groups") > generated), "%s: %g groups kept of %g", where,
        get(row, "filter/kept_groups"), generated);
    LAW(isnan(get(row, "critic/score/mean")) ||
            near(get(row, "critic/score/mean"), get(row, "reward/overall"), 1e-12),
        "%s: critic/score/mean %g, reward/overall %g", where, get(row, "critic/score/mean"),
        get(row, "reward/overall"));
    double higher = get(row, "actor/pg_clipfrac_higher"),
           lower = get(row, "actor/pg_clipfrac_lower");
    LAW(!(higher + lower > 1), "%s: %g of the tokens clipped above, %g below", where, higher,
        lower);
    double skipped = get(row, "actor/skipped_updates");
    LAW(!(skipped > 0), "%s: %g updates left out", where, skipped);
    LAW(!(get(row, "critic/skipped_updates") > 0), "%s: %g updates of the critic left out", where,
        get(row, "critic/skipped_updates"));
    LAW(isnan(get(row, "exact/rollout_train_max_abs")) ||
            get(row, "exact/rollout_train_max_abs") == 0,
        "%s: trainer and rollout differ by %g", where, get(row, "exact/rollout_train_max_abs"));
    LAW(isnan(get(row, "actor/kl_loss")) || isnan(get(row, "critic/kl")),
        "%s: the KL is in the loss and in the reward", where);
    return good;
}

/* Checks that the loss is the sum of its terms; entropy_coeff is 0 without an entropy bonus. */
static bool check_terms(const ares_json *row, double entropy_coeff, const char *where)
{
    bool good = true;
    double loss = get(row, "actor/pg_loss"), kl = get(row, "actor/kl_loss"),
           whole = get(row, "actor/final_loss");
    double distilled = get(row, "actor/distillation_loss");
    double sum = loss + (isnan(kl) ? 0 : get(row, "actor/kl_coef") * kl) +
                 (isnan(distilled) ? 0 : distilled) -
                 entropy_coeff * get(row, "actor/entropy_loss");
    LAW(isnan(whole) || near(whole, sum, 1e-9),
        "%s: actor/final_loss = %.17g, its terms make %.17g", where, whole, sum);
    double score = get(row, "critic/score/mean"), reward = get(row, "critic/rewards/mean");
    LAW(!isnan(get(row, "critic/kl")) || isnan(score) || near(score, reward, 1e-9),
        "%s: without a KL in it the reward is %g of a score of %g", where, reward, score);
    return good;
}

/* Checks that each sample that counts belongs to one of AEPO's difficulties. */
static bool check_difficulties(const ares_json *row, bool masks_old, const char *where)
{
    bool good = true, any = false;
    double count = 0, accuracy = 0, length = 0;
    for (int d = 0; d < ARES_COUNT(difficulties); d++) {
        ares_view name = ares_view_of(difficulties[d]);
        double n = get_named(row, "reward/", name, "/count"), bins = 0;
        if (isnan(n)) continue;
        any = true;
        count += n;
        accuracy += n * get_named(row, "reward/", name, "/accuracy");
        length += n * get_named(row, "response_length/", name, "/mean");
        for (int i = 1; i <= 3; i++) {
            char bin[32];
            snprintf(bin, sizeof bin, "/count/bin%d", i);
            bins += get_named(row, "entropy_vs_acc/", name, bin);
        }
        LAW(isnan(bins) || bins == n, "%s: bins of %s prompts hold %g of %g samples", where,
            difficulties[d], bins, n);
        LAW(get_named(row, "response_length/", name, "/count") == n,
            "%s: lengths of %g %s samples of %g", where,
            get_named(row, "response_length/", name, "/count"), difficulties[d], n);
    }
    if (!any || isnan(get(row, "reward/overall"))) return good;
    LAW(near(accuracy / count, get(row, "reward/batch_accuracy"), 1e-9),
        "%s: accuracies of difficulties make %g, the batch's is %g", where, accuracy / count,
        get(row, "reward/batch_accuracy"));
    /* tokens of an answer that went on may be masked, and AEPO counts those of mask 1 */
    bool less = masks_old && length / count < get(row, "response_length/mean");
    LAW(less || near(length / count, get(row, "response_length/mean"), 1e-9),
        "%s: lengths of difficulties make %g, the batch's is %g", where, length / count,
        get(row, "response_length/mean"));
    return good;
}

bool laws_hold(const char *run, int steps, double entropy_coeff, bool masks_old, const char *where)
{
    ares_arena arena = { 0 };
    int64_t n, trained = 0;
    bool good = true;
    const ares_json **rows = e2e_rows(&arena, run, "metrics.jsonl", &n);
    for (int64_t i = 0; i < n; i++) {
        trained += get(rows[i], "step") > 0;
        good = check_numbers(rows[i], where) && check_sums(rows[i], where) &&
               check_terms(rows[i], entropy_coeff, where) &&
               check_difficulties(rows[i], masks_old, where) && good;
    }
    LAW(trained == steps, "%s: %lld rows of metrics", where, (long long)trained);
    ares_arena_fini(&arena);
    return good;
}

bool laws_of_finished(const char *run, int steps, const char *where)
{
    static const char *const columns[] = { "score", "accuracy", "n_tokens" }, *const means[] = {
        "reward/overall", "reward/batch_accuracy", "response_length/mean"
    };
    bool good = true;
    for (int step = 1; step <= steps; step++) {
        ares_arena arena = { 0 };
        char file[64];
        int64_t n;
        double sum[ARES_COUNT(columns)] = { 0 }, finished = 0;
        snprintf(file, sizeof file, "rollouts/step_%06d.jsonl", step);
        const ares_json **rows = e2e_rows(&arena, run, file, &n);
        for (int64_t i = 0; i < n; i++) {
            const ares_json *done = ares_json_get(rows[i], "finished");
            if (!done->boolean) {
                LAW(get(rows[i], "advantage") == 0, "%s: a masked answer has the advantage %g",
                    where, get(rows[i], "advantage"));
                continue;
            }
            finished++;
            for (int k = 0; k < ARES_COUNT(columns); k++) sum[k] += get(rows[i], columns[k]);
        }
        for (int k = 0; k < ARES_COUNT(columns); k++) {
            double have = e2e_metric(run, step, means[k]);
            /* NaN: where a teacher alone teaches nothing is judged */
            bool known = finished > 0 && !isnan(sum[k]);
            LAW(known ? near(have, sum[k] / finished, 1e-6) : isnan(have),
                "%s: %s is %g, of the %g finished answers %g", where, means[k], have, finished,
                sum[k] / finished);
        }
        ares_arena_fini(&arena);
    }
    return good;
}

static bool has_part(ares_view key, const char *const *parts)
{
    char name[200];
    snprintf(name, sizeof name, "%.*s", (int)key.len, key.data);
    for (; parts && *parts; parts++)
        if (strstr(name, *parts)) return true;
    return false;
}

static bool same_value(const ares_json *a, const ares_json *b, double tolerance)
{
    if (!a || !b || is_number(a) != is_number(b)) return false;
    if (!is_number(a)) return true;
    return tolerance > 0 ? near(a->number, b->number, tolerance) : a->number == b->number;
}

/* Checks that b has the keys of a, with the same values. */
static bool all_there(const ares_json *a, const ares_json *b, double tolerance,
                      const char *const *without, const char *where)
{
    bool good = true;
    for (int64_t i = 0; i < a->count; i++) {
        ares_view key = a->members[i].key;
        const ares_json *x = a->members[i].value, *y = ares_json_find(b, key);
        if (e2e_of_speed(key) || has_part(key, without)) continue;
        bool same = same_value(x, y, tolerance);
        LAW(same, "%s: %.*s is %.17g, then %.17g", where, (int)key.len, key.data, x->number,
            y ? y->number : NAN);
    }
    return good;
}

bool laws_same(const char *a, const char *b, int rows, double tolerance, const char *const *without,
               const char *where)
{
    ares_arena arena = { 0 };
    int64_t n, m;
    const ares_json **x = e2e_rows(&arena, a, "metrics.jsonl", &n),
                    **y = e2e_rows(&arena, b, "metrics.jsonl", &m);
    bool good = CHECK_MSG(n >= rows && m >= rows, "%s: %lld and %lld rows of metrics", where,
                          (long long)n, (long long)m);
    for (int i = 0; i < rows && good; i++)
        good = all_there(x[i], y[i], tolerance, without, where) &&
               all_there(y[i], x[i], tolerance, without, where);
    ares_arena_fini(&arena);
    return good;
}
