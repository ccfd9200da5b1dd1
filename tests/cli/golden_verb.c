/* The published sweeps' names and options: the files of configs/sweeps, read by the product. */
#include <string.h>

#include "../../src/cli/sweep.h"
#include "golden.h"

typedef struct published {
    const char *file, *over, *rand; /* rand: NULL: no such parameter */
    const char *values, *model;     /* keys of the inputs */
} published;

/* "--over", "entropy=0,0.1" */
static const char *over(golden *g, const char *parameter, const ares_json *values)
{
    ares_str text = { 0 };
    ares_str_addf(&text, "%s=", parameter);
    for (int64_t i = 0; i < values->count; i++)
        ares_str_addf(&text, "%s%s", i ? "," : "", values->items[i].text.data);
    const char *copy = ares_arena_copy(g->arena, text.data, text.len);
    ares_str_fini(&text);
    return copy;
}

static bool read_sweep(golden *g, const published *p, sweep *s)
{
    const char *words[] = {
        "--over",
        over(g, p->over, golden_in(g, p->values)),
        "--let",
        ares_arena_printf(g->arena, "model_path=Qwen/%s", golden_z(g, p->model)),
        "--over",
        p->rand                                 ? ares_arena_printf(g->arena, "rand=%s", p->rand)
        : golden_number(g, "include_zero") != 0 ? "include_zero=True"
                                                : "include_zero=False",
    };
    bool third = strcmp(p->over, "top_p") != 0 || p->rand;
    const sweep_words w = { .file = p->file, .n = third ? 6 : 4, .words = words };
    return golden_ok(g, sweep_read(s, &w));
}

/* What the words of a run give an option. */
static const char *given(const sweep_run *r, const char *option)
{
    size_t length = strlen(option);
    const char *value = "";
    for (int i = 0; i < r->n_words; i++)
        if (strncmp(r->words[i], option, length) == 0 && r->words[i][length] == '=')
            value = r->words[i] + length + 1;
    return value;
}

static void check_names(golden *g, const sweep *s, const char *key)
{
    const ares_json *want = golden_want(g, key);
    if (s->n != want->count) golden_fail(g, "%s: %d runs", key, s->n);
    for (int i = 0; i < s->n && i < want->count; i++)
        golden_text(g, key, ares_view_of(s->runs[i].name), &want->items[i]);
}

static void check_flags(golden *g, const sweep *s, const char *option, const char *key)
{
    const ares_json *want = golden_want(g, key);
    for (int i = 0; i < s->n && i < want->count; i++)
        golden_equal(g, key, strcmp(given(&s->runs[i], option), "True") == 0, &want->items[i]);
}

GOLDEN(agentic, sweep_experiment_names)
{
    static const published sweeps[] = {
        { "configs/sweeps/sokoban_entropy.yaml", "entropy", NULL, "entropy_values", "model_name" },
        { "configs/sweeps/sokoban_kl.yaml", "kl", NULL, "kl_values", "model_name" },
        { "configs/sweeps/sokoban_top_p.yaml", "top_p", NULL, "top_p_values", "model_name" },
        { "configs/sweeps/frozen_lake_rand_top_p.yaml", "top_p", "high", "frozenlake_top_p",
          "frozenlake_model_name" },
        { "configs/sweeps/frozen_lake_rand_top_p.yaml", "top_p", "low", "frozenlake_top_p",
          "frozenlake_model_name" },
    };
    static const char *const keys[] = { "entropy", "kl", "top_p", "frozenlake_high",
                                        "frozenlake_low" };
    for (int i = 0; i < ARES_COUNT(sweeps); i++) {
        sweep s = { 0 };
        if (read_sweep(g, &sweeps[i], &s)) {
            check_names(g, &s, keys[i]);
            if (i == 1) check_flags(g, &s, "algorithm.use_kl_loss", "kl_use_kl_loss");
            if (i == 2)
                check_flags(g, &s, "worker.rollout.rollout_filter_include_zero",
                            "top_p_include_zero");
            const ares_json *value = i == 2 ? golden_want(g, "top_p_filter_value") : NULL;
            for (int k = 0; value && k < s.n; k++)
                golden_text(g, "top_p_filter_value",
                            ares_view_of(given(&s.runs[k], "worker.rollout.rollout_filter_value")),
                            &value->items[k]);
        }
        sweep_fini(&s);
    }
}
