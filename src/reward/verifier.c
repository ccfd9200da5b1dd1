/*
 * What verifiers share: a verifier opened with its options, the table of verifiers, and the
 * details and metrics that a verdict carries. Each verifier is in the file of its subject.
 */
#include "verifier.h"

#include <string.h>

ares_judge *judge_of(const ares_verifier *v, bool boxed)
{
    ares_judge *j = ares_calloc(1, sizeof *j);
    ares_str name = { 0 };
    ares_str_addf(&name, "%s%s", boxed ? ARES_BOXED_PREFIX : "", v->name);
    *j = (ares_judge){ .verifier = v, .boxed = boxed, .name = ares_strdup(name.data) };
    j->options = ares_calloc(1, v->options_size + 1); /* never empty: some have no options */
    ares_str_fini(&name);
    return j;
}

void ares_judge_free(ares_judge *j)
{
    if (!j) return;
    if (j->verifier->close) j->verifier->close(j->options);
    ares_config_free(j->defaults);
    ares_free(j->options);
    ares_free(j->name);
    ares_free(j->unusable);
    ares_free(j);
}

ares_option_table *ares_judge_options(ares_judge *j, void **into)
{
    *into = j->options;
    return j->verifier->options;
}

/* What no option can say by itself, as safe_length < max_length; faults go to cfg. */
void ares_judge_check(ares_judge *j, ares_config *cfg, const char *path)
{
    if (j->verifier->open) j->verifier->open(j->options, cfg, path);
    if (j->verifier->check && j->verifier->check(j->options) != ARES_OK)
        ares_config_fault(cfg, path, "%s", ares_error_message());
}

void judge_use_defaults(ares_judge *j)
{
    j->defaults = ares_config_new();
    if (j->verifier->options)
        ares_config_add_options(j->defaults, "", j->verifier->options, j->options);
    ares_config_resolve(j->defaults);
    ares_judge_check(j, j->defaults, "");
    if (ares_config_finish(j->defaults) == ARES_OK) return;
    /* no fault yet: only a row that asks for this verifier needs its options */
    j->unusable = ares_strdup(ares_error_message());
    ares_error_clear();
}

bool judge_limit(const ares_judge *j, int64_t *limit, double *penalty)
{
    if (j->verifier->limit) *limit = j->verifier->limit(j->options, penalty);
    return j->verifier->limit;
}

/* Whether its results have an accuracy: it says so, or right and wrong answers differ in score. */
bool judge_judges(const ares_judge *j)
{
    return j->verifier->judges || j->verifier->right != j->verifier->wrong;
}

/* A verifier that opens others (auto) may hand the row to one that reads the ground truth. */
bool judge_reads_truth(const ares_judge *j)
{
    return !j->verifier->any_truth || j->verifier->open;
}

int ares_judge_run(const ares_judge *j, const ares_verify_in *in, ares_verify_out *out)
{
    ares_verify_in own = *in;
    if (j->unusable)
        return ares_fail(ARES_ECONFIG, "reward: %s: it needs options: %s", j->name, j->unusable);
    if (j->boxed) { /* the verifier judges the content of the last box as if it were all */
        own.response = verifier_last_boxed(in->response, BOX_BRACE_NEEDED);
        out->no_answer = !own.response.data;
    }
    bool several = j->verifier->several && j->verifier->several(j->options);
    if (in->structured && !j->verifier->any_truth && !several)
        return ares_fail(ARES_ECONFIG,
                         "reward: %s: the ground truth %.*s is a list or an object, and this "
                         "verifier compares a text; name the answer inside it by a path, as in "
                         "data.answer_key=KEY.KEY or KEY[0]",
                         j->name, (int)ARES_MIN(in->ground_truth.len, 60), in->ground_truth.data);
    own.options = j->options;
    if (!own.response.data) own.response = ARES_VIEW(""); /* no verifier sees a NULL text */
    return j->verifier->verify(&own, out);
}

/* The table of built-in verifiers by name: those of the list, and `auto`, which opens them. */

#define NAME(name) #name,
VERIFY_DECLARE(auto)
static const ares_verifier *const table[] = { VERIFY_LIST(VERIFY_ENTRY) VERIFY_ENTRY(auto) };
static const char *const names[] = { VERIFY_LIST(NAME) NAME(auto) };

const char *const *ares_verifier_names(int *n)
{
    *n = ARES_COUNT(names);
    return names;
}

const ares_verifier *ares_verifier_find(const char *name)
{
    int i;
    return ares_lookup(ARES_ECONFIG, "reward: verifier", name, names, ARES_COUNT(names), &i) ==
                   ARES_OK
               ? table[i]
               : NULL;
}

int ares_judge_new(const char *name, ares_judge **out)
{
    size_t prefix = sizeof ARES_BOXED_PREFIX - 1;
    bool boxed = strncmp(name, ARES_BOXED_PREFIX, prefix) == 0;
    const ares_verifier *v = ares_verifier_find(boxed ? name + prefix : name);
    *out = v ? judge_of(v, boxed) : NULL;
    return v ? ARES_OK : ARES_ECONFIG;
}

/* Members of a result's details, metrics of a verifier's own, and inputs that must be there. */

void grade_detail(ares_verify_out *out, const char *key, ares_view value)
{
    ares_json_key(&out->details, key);
    if (value.data) ares_json_write_string(&out->details, value);
    else ares_json_write_null(&out->details);
}

int grade_need_length(const ares_verify_in *in, const char *who)
{
    if (in->response_tokens >= 0) return ARES_OK;
    return ares_fail(ARES_EFORMAT,
                     "reward: %s: the response's number of tokens is not known (in lines: "
                     "'response_length' or 'output_ids')",
                     who);
}

/* The name is copied: a caller may have built it for this call. */
void grade_add_value(ares_verify_out *out, const char *name, double value)
{
    int i = 0;
    while (i < out->n_values && strcmp(out->values[i].name, name) != 0) i++;
    ARES_ASSERT(i < ARES_COUNT(out->values) && strlen(name) < sizeof out->values[i].name);
    if (i == out->n_values) {
        memcpy(out->values[i].name, name, strlen(name) + 1);
        out->n_values++;
    }
    out->values[i].sum += value;
    out->values[i].count += 1;
}
