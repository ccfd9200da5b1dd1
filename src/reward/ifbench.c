/*
 * Instruction following (docs/rewards.md#instruction-following): the checks of IFEval and IFBench
 * that a row names. `ifeval` is another name of `ifbench`; `format_verify` is the fraction followed
 * in the text after the last </think>.
 *
 * A row holds instruction_id_list and kwargs, or checkers: [{id, kwargs}]; at its top level, or in
 * its metadata, extra_info, reward_model or ground truth. A row with Python `functions` and without
 * `checkers` cannot be judged.
 */
#include <string.h>

#include "ifeval/ifeval.h"
#include "verifier.h"

#define IFBENCH_OPTIONS(X)                                                                        \
    X(choice, mode, "mode", "strict_all", "strict_all|strict_fraction|loose_all|loose_fraction",  \
      "1 when all instructions are followed, or the fraction followed; loose: in any of 8 "       \
      "variants of the text")                                                                     \
    X(flag, strip_think, "strip_think", "true", "",                                               \
      "judge only the text after the last </think>; false: the whole response, as the reference " \
      "code does")
ARES_OPTION_STRUCT(ifbench_options, IFBENCH_OPTIONS);
static ARES_OPTION_TABLE(ifbench_table, ifbench_options, IFBENCH_OPTIONS);

/* ---------------- where a row keeps its instructions */
typedef struct source {
    const ares_json *ids, *kwargs; /* kwargs NULL: the row gives none */
} source;

/* The object or list that a string holds, because some data sets store them so; else v itself. */
static const ares_json *parsed(const ares_json *v, ares_arena *arena)
{
    const ares_json *inner = NULL; /* "{\"id\": 1}" as a string -> the object */
    if (!v || v->type != ARES_JSON_STRING || !v->text.len || !memchr("{[", v->text.data[0], 2))
        return v;
    return ares_json_parse(arena, v->text, "row", &inner) == ARES_OK ? inner : v;
}

/* The k-th object that may hold a row's instructions, from 0; NULL: the row has no such object. */
static const char *const places[] = { "metadata", "extra_info", "ground_truth", "label",
                                      "reward_model" };
enum { PLACES = 2 * ARES_COUNT(places) + 2 };
static const ares_json *place(const ares_verify_in *in, int k, ares_arena *arena)
{
    if (k == 0) return in->row;
    if (k == PLACES - 1) {
        ares_json *truth = ares_arena_calloc(arena, 1, sizeof *truth);
        *truth = (ares_json){ .type = ARES_JSON_STRING, .text = in->ground_truth };
        return parsed(truth, arena);
    }
    const ares_json *inner = parsed(ares_json_get(in->row, places[(k - 1) / 2]), arena);
    return k % 2 ? inner : parsed(ares_json_get(inner, "ground_truth"), arena);
}

/* The first instructions that the row has; checkers come before ids where both are. */
static bool find_source(const ares_verify_in *in, ares_arena *arena, source *out)
{
    for (int k = 0; k < PLACES; k++) {
        const ares_json *object = place(in, k, arena),
                        *checkers = ares_json_get(object, "checkers");
        *out = (source){ ares_json_get(object, "instruction_id_list"),
                         ares_json_get(object, "kwargs") };
        if (checkers && checkers->type == ARES_JSON_ARRAY && checkers->count) {
            /* [{"id": .., "kwargs": {..}}] as the two lists: ids, and kwargs */
            size_t n = (size_t)checkers->count;
            ares_json *lists = ares_arena_calloc(arena, 2, sizeof *lists),
                      *ids = ares_arena_calloc(arena, n, sizeof *ids),
                      *kwargs = ares_arena_calloc(arena, n, sizeof *kwargs);
            for (int64_t i = 0; i < checkers->count; i++) {
                const ares_json *own = ares_json_get(&checkers->items[i], "kwargs");
                ids[i] = *ares_json_get(&checkers->items[i], "id"); /* check_row has seen it */
                if (own) kwargs[i] = *own;
            }
            lists[0] = (ares_json){ .type = ARES_JSON_ARRAY, .count = checkers->count };
            lists[1] = lists[0];
            lists[0].items = ids;
            lists[1].items = kwargs;
            *out = (source){ &lists[0], &lists[1] };
        }
        if (!out->ids) out->ids = ares_json_get(object, "instruction_id");
        if (out->ids && out->ids->type != ARES_JSON_NULL) return true;
    }
    ares_error_clear();
    return false;
}

/* ---------------------------------------------------------------- rows that cannot be judged */
/* Whether a member is there and says something. */
static bool given(const ares_json *v)
{
    return v && v->type != ARES_JSON_NULL && !(v->type == ARES_JSON_ARRAY && !v->count);
}

/* The first member of that name in the places that may hold instructions. */
static const ares_json *find_key(const ares_verify_in *in, const char *key, ares_arena *arena)
{
    for (int k = 0; k < PLACES; k++) {
        const ares_json *v = ares_json_get(place(in, k, arena), key);
        if (given(v)) return v;
    }
    ares_error_clear();
    return NULL;
}

/* Fails unless entry k of checkers has a known id and the arguments that it needs. */
static int check_checker(const ares_json *checker, int64_t k)
{
    const ares_json *id = ares_json_get(checker, "id"), *kwargs = ares_json_get(checker, "kwargs");
    if (!id || id->type != ARES_JSON_STRING)
        return ares_fail(
            ARES_ECONFIG,
            "reward: checkers[%lld] has no 'id'; write {\"id\": \"..\", \"kwargs\": {..}}",
            (long long)k);
    ares_view name = ifeval_trim(id->text);
    int shown = (int)ARES_MIN(name.len, 80);
    if (ifeval_check_find(name) < 0)
        return ares_fail(
            ARES_ECONFIG,
            "reward: checkers[%lld].id = '%.*s': no such check; take one of IFEval or IFBench",
            (long long)k, shown, name.data);
    if (given(kwargs) && kwargs->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_ECONFIG,
                         "reward: checkers[%lld].kwargs: not an object; write {\"id\": \"..\", "
                         "\"kwargs\": {..}}",
                         (long long)k);
    const char *fault = ifeval_check_fault(name, kwargs);
    if (!fault) return ARES_OK;
    return ares_fail(ARES_ECONFIG,
                     "reward: checkers[%lld].kwargs: '%s' is missing or wrong; %.*s needs it",
                     (long long)k, fault, shown, name.data);
}

/*
 * `checkers` are written for this program, so all of them must be known. They stand in for
 * `functions`, which are Python and are not run.
 */
static int check_row(const ares_verify_in *in, ares_arena *arena)
{
    const ares_json *functions = find_key(in, "functions", arena),
                    *checkers = find_key(in, "checkers", arena);
    if (functions && !checkers && !find_key(in, "instruction_id_list", arena) &&
        !find_key(in, "instruction_id", arena))
        return ares_fail(
            ARES_ECONFIG,
            "reward: the row has 'functions' in Python, which is not run, and no 'checkers'; "
            "give it checkers: [{\"id\": \"..\", \"kwargs\": {..}}], one for each function");
    if (!checkers) return ARES_OK;
    if (checkers->type != ARES_JSON_ARRAY)
        return ares_fail(
            ARES_ECONFIG,
            "reward: 'checkers' is no list; write checkers: [{\"id\": \"..\", \"kwargs\": {..}}]");
    if (functions && functions->type == ARES_JSON_ARRAY && functions->count != checkers->count)
        return ares_fail(ARES_ECONFIG,
                         "reward: the row has %lld functions and %lld checkers; give each function "
                         "its checker, or leave 'functions' out",
                         (long long)functions->count, (long long)checkers->count);
    for (int64_t k = 0; k < checkers->count; k++) ARES_TRY(check_checker(&checkers->items[k], k));
    return ARES_OK;
}

/* ---------------------------------------------------------------- judging */
/* A member of the details: one true or false per instruction. */
static void write_flags(ares_str *s, const char *key, const bool *flags, int64_t n)
{
    ares_json_begin(ares_json_key(s, key), '[');
    for (int64_t i = 0; i < n; i++) ares_json_write_bool(s, flags[i]);
    ares_json_end(s, ']');
}

/* Judges the text by the instructions of the row; mode decides the score alone. */
static int judge(const ares_verify_in *in, ares_verify_out *out, ares_view text, ifeval_mode mode)
{
    ares_arena arena = { 0 };
    source from;
    ifeval_verdict v = { 0 };
    int rc = check_row(in, &arena);
    if (rc != ARES_OK) return ares_arena_fini(&arena), rc;
    if (find_source(in, &arena, &from)) ifeval_judge(from.ids, from.kwargs, text, &arena, &v);
    if (!v.n && !v.exhausted) {
        ares_arena_fini(&arena);
        return ares_fail(ARES_ECONFIG,
                         "reward: the row names no instruction: neither 'instruction_id_list' nor "
                         "'checkers' has any; write instruction_id_list: "
                         "[\"punctuation:no_comma\"] with kwargs: [{}], or checkers: [{\"id\": "
                         "\"punctuation:no_comma\", \"kwargs\": {}}]");
    }
    bool loose = mode == IFEVAL_MODE_loose_all || mode == IFEVAL_MODE_loose_fraction;
    out->score = ifeval_score(&v, mode);
    out->accuracy = ifeval_score(&v, loose ? IFEVAL_MODE_loose_all : IFEVAL_MODE_strict_all);
    out->exhausted = v.exhausted;
    /* if/<group>/rate: the group is the part of a known id before its colon */
    for (int64_t i = 0; i < v.n && out->n_values < ARES_COUNT(out->values); i++) {
        int known = ifeval_check_find(v.ids[i]);
        if (known < 0) continue;
        const char *id = ifeval_check_id(known);
        ares_str metric = { 0 };
        ares_str_addf(&metric, "if/%.*s/rate", (int)strcspn(id, ":"), id);
        grade_add_value(out, metric.data, v.strict[i]);
        ares_str_fini(&metric);
    }
    write_flags(&out->details, "strict", v.strict, v.n);
    write_flags(&out->details, "loose", v.loose, v.n);
    if (v.exhausted)
        grade_detail(out, "reason",
                     ARES_VIEW("the text is too long, or the work limit was reached"));
    ares_arena_fini(&arena);
    return ARES_OK;
}

/* What follows a </think> is trimmed; a response without one is judged as it stands. */
static int ifbench(const ares_verify_in *in, ares_verify_out *out)
{
    static const char *const modes[] = {
#define IFEVAL_MODE_NAME_(name) #name,
        IFEVAL_MODE_LIST(IFEVAL_MODE_NAME_)
    };
    const ifbench_options usual = { .mode = "strict_all", .strip_think = true },
                          *o = in->options ? in->options : &usual;
    int mode = 0;
    while (mode + 1 < IFEVAL_MODE_COUNT && strcmp(o->mode, modes[mode]) != 0) mode++;
    ares_view text = o->strip_think ? ifeval_strip_think(in->response) : in->response;
    return judge(in, out, text.len == in->response.len ? text : ifeval_trim(text),
                 (ifeval_mode)mode);
}

static int format_verify(const ares_verify_in *in, ares_verify_out *out)
{
    return judge(in, out, ifeval_strip_think(in->response), IFEVAL_MODE_strict_fraction);
}

const ares_verifier ares_verifier_ifbench = {
    .name = "ifbench",
    .doc = "the checks of IFEval and IFBench that the row's instruction_id_list names",
    .options = ifbench_table,
    .options_size = sizeof(ifbench_options),
    .verify = ifbench,
    .judges = true,
    .any_truth = true,
};
const ares_verifier ares_verifier_ifeval = {
    .name = "ifeval",
    .doc = "another name of ifbench",
    .options = ifbench_table,
    .options_size = sizeof(ifbench_options),
    .verify = ifbench,
    .judges = true,
    .any_truth = true,
};
const ares_verifier ares_verifier_format_verify = {
    .name = "format_verify",
    .doc = "fraction of the row's instructions followed after the last </think>",
    .verify = format_verify,
    .judges = true,
    .any_truth = true,
};
