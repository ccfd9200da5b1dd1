/* A verifier with its options, and the prefix "boxed_". */
#include "judge.h"

#include "math/answers.h"

struct ares_judge {
    const ares_verifier *verifier;
    void *options; /* the verifier's own */
    bool boxed;
    char *name;
    char *unusable;        /* why it cannot judge: an option without a default is missing */
    ares_config *defaults; /* owns the texts of options that took their defaults */
};

ares_judge *judge_of(const ares_verifier *v, bool boxed)
{
    ares_judge *j = ares_calloc(1, sizeof *j);
    ares_str name = { 0 };
    ares_str_addf(&name, "%s%s", boxed ? ARES_BOXED_PREFIX : "", v->name);
    *j = (ares_judge){ .verifier = v, .boxed = boxed, .name = ares_strdup(name.data) };
    j->options = ares_calloc(1, v->options_size + 1);
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

const char *ares_judge_name(const ares_judge *j)
{
    return j->name;
}

const char *judge_unusable(const ares_judge *j)
{
    return j->unusable;
}

ares_option_table *ares_judge_options(ares_judge *j, void **into)
{
    *into = j->options;
    return j->verifier->options;
}

void ares_judge_check(ares_judge *j, ares_config *cfg, const char *path)
{
    if (j->verifier->open) j->verifier->open(j->options, cfg, path);
    if (j->verifier->check && j->verifier->check(j->options) != ARES_OK)
        ares_config_fault(cfg, path, "%s", ares_error_message());
}

void ares_judge_use_defaults(ares_judge *j)
{
    j->defaults = ares_config_new();
    if (j->verifier->options)
        ares_config_add_options(j->defaults, "", j->verifier->options, j->options);
    ares_config_resolve(j->defaults);
    ares_judge_check(j, j->defaults, "");
    if (ares_config_finish(j->defaults) == ARES_OK) return;
    j->unusable = ares_strdup(ares_error_message());
    ares_error_clear();
}

bool ares_judge_limit(const ares_judge *j, int64_t *limit, double *penalty)
{
    if (j->verifier->limit) *limit = j->verifier->limit(j->options, penalty);
    return j->verifier->limit;
}

bool ares_judge_worth(const ares_judge *j, double *right, double *wrong)
{
    *right = j->verifier->right;
    *wrong = j->verifier->wrong;
    return *right != *wrong;
}

bool ares_judge_judges(const ares_judge *j)
{
    return j->verifier->judges || j->verifier->right != j->verifier->wrong;
}

bool ares_judge_reads_truth(const ares_judge *j)
{
    return !j->verifier->any_truth || j->verifier->open;
}

int ares_judge_run(const ares_judge *j, const ares_verify_in *in, ares_verify_out *out)
{
    ares_verify_in own = *in;
    if (j->unusable)
        return ares_fail(ARES_ECONFIG, "reward: %s: it needs options: %s", j->name, j->unusable);
    if (j->boxed) {
        own.response = math_last_boxed(in->response);
        out->no_answer = !own.response.data;
    }
    if (in->structured && !j->verifier->any_truth)
        return ares_fail(ARES_ECONFIG,
                         "reward: %s: the ground truth %.*s is a list or an object, and this "
                         "verifier compares a text; name the answer inside it by a path, as in "
                         "data.answer_key=KEY.KEY or KEY[0]",
                         j->name, (int)ARES_MIN(in->ground_truth.len, 60), in->ground_truth.data);
    own.options = j->options;
    if (!own.response.data) own.response = ARES_VIEW("");
    return j->verifier->verify(&own, out);
}
