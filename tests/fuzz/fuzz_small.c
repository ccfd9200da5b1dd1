/*
 * libFuzzer entry for the small verifiers and the dispatcher: every verifier of the table by name,
 * on a response, a ground truth and a row, which 0xFE bytes separate in the input. Checks, besides
 * that nothing crashes: scores are finite, judging twice gives the same, and the details are
 * members of a JSON object.
 */
#include <math.h>
#include <string.h>

#include "ares/grade.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 64 };
static ares_judge *judges[MOST];
static ares_config *configs[MOST];
static int n_judges;

/* Values for options without a default. */
static void open_all(void)
{
    static const struct {
        const char *name, *word;
    } needed[] = {
        { "regex", "pattern=(a|b)*c+$" },
        { "dapo_overlong", "max_response_length=20" },
        { "dapo_overlong", "overlong_buffer_length=10" },
        { "dapo_overlong", "overlong_penalty_factor=1" },
    };
    int n;
    const char *const *names = ares_verifier_names(&n);
    ARES_ASSERT(n <= MOST);
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < n; i++) {
        void *options;
        ARES_ASSERT(ares_judge_new(names[i], &judges[i]) == ARES_OK);
        configs[i] = ares_config_new();
        ares_option_table *table = ares_judge_options(judges[i], &options);
        if (table) ares_config_add_options(configs[i], "", table, options);
        for (int k = 0; k < ARES_COUNT(needed); k++)
            if (strcmp(needed[k].name, names[i]) == 0)
                ares_config_override(configs[i], needed[k].word);
        ares_config_resolve(configs[i]);
        ares_judge_check(judges[i], configs[i], "");
        ARES_ASSERT(ares_config_finish(configs[i]) == ARES_OK);
    }
    n_judges = n;
}

static ares_view piece(ares_view *rest)
{
    const char *cut = rest->len ? memchr(rest->data, 0xFE, rest->len) : NULL;
    ares_view v = { rest->data, cut ? (size_t)(cut - rest->data) : rest->len };
    *rest = cut ? (ares_view){ cut + 1, rest->len - v.len - 1 } : (ares_view){ "", 0 };
    return v;
}

static void run(const ares_judge *j, const ares_verify_in *in)
{
    ares_verify_out a = { .accuracy = NAN }, b = { .accuracy = NAN };
    int first = ares_judge_run(j, in, &a), second = ares_judge_run(j, in, &b);
    ARES_ASSERT(first == second);
    if (first == ARES_OK) {
        ARES_ASSERT(isfinite(a.score) && a.score == b.score &&
                    (isnan(a.accuracy) ? isnan(b.accuracy) : a.accuracy == b.accuracy));
        ARES_ASSERT(isnan(a.accuracy) || a.accuracy == 0 || a.accuracy == 1);
        ares_arena arena = { 0 };
        ares_str object = { 0 };
        const ares_json *parsed;
        ares_str_addf(&object, "{");
        ares_str_add_view(&object, ares_str_view(&a.details));
        ares_str_addf(&object, "}");
        ARES_ASSERT(ares_json_parse(&arena, ares_str_view(&object), "details", &parsed) == ARES_OK);
        ares_str_fini(&object);
        ares_arena_fini(&arena);
    } else ARES_ASSERT(ares_error_message()[0]);
    ares_str_fini(&a.details);
    ares_str_fini(&b.details);
}

/*
 * The first byte picks the verifier; the rest is response, ground truth, row, each ended by 0xFE.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!n_judges) open_all();
    if (size < 1 || size > 20000) return 0;
    ares_view rest = { (const char *)data + 1, size - 1 };
    ares_arena arena = { 0 };
    ares_verify_in in = { .response = piece(&rest),
                          .ground_truth = piece(&rest),
                          .stopped = true,
                          .response_tokens = -1 };
    ares_view row = piece(&rest);
    int32_t ids[512];
    if (size % 2) {
        in.response_tokens = (int64_t)ARES_MIN(in.response.len, ARES_COUNT(ids));
        for (int64_t i = 0; i < in.response_tokens; i++)
            ids[i] = (unsigned char)in.response.data[i];
        in.ids = ids;
    }
    if (ares_json_parse(&arena, row, "row", &in.row) != ARES_OK) in.row = NULL;
    run(judges[data[0] % n_judges], &in);
    ares_arena_fini(&arena);
    return 0;
}
