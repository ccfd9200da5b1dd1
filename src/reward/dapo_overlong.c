/*
 * ARES's dapo reward: a boxed answer scores 1 or -1, less a penalty of length
 * (docs/rewards.md#published-reward-functions). EasyR1's, which reads the line "Answer:", is the
 * sum of two entries: [{name: dapo}, {name: overlong, ...}].
 */
#include "details.h"
#include "easyr1.h"
#include "ifeval/text_parts.h"
#include "length.h"

#define DAPO_OPTIONS(X)                                                     \
    X(i64, max_response_length, "max_response_length", "???", "[1,)",       \
      "tokens from which the penalty is full")                              \
    X(i64, overlong_buffer_length, "overlong_buffer_length", "???", "[1,)", \
      "the penalty grows over this many tokens before max_response_length") \
    X(f64, overlong_penalty_factor, "overlong_penalty_factor", "???", "[0,)", "the full penalty")
ARES_OPTION_STRUCT(dapo_options, DAPO_OPTIONS);
static ARES_OPTION_TABLE(dapo_table, dapo_options, DAPO_OPTIONS);

static int check(const void *options)
{
    const dapo_options *o = options;
    if (o->overlong_buffer_length <= o->max_response_length) return ARES_OK;
    return ares_fail(
        ARES_ECONFIG,
        "reward: dapo_overlong: overlong_buffer_length = %lld: above max_response_length = %lld",
        (long long)o->overlong_buffer_length, (long long)o->max_response_length);
}

static int dapo_overlong(const ares_verify_in *in, ares_verify_out *out)
{
    const dapo_options *o = in->options;
    ares_view extracted;
    ARES_TRY(grade_need_length(in, "dapo_overlong"));
    if (!if_trim(in->ground_truth).len)
        return ares_fail(ARES_EFORMAT, "reward: dapo_overlong: the ground truth is empty");
    easyr1_boxed_accuracy(in, out, &extracted);
    double overlong =
        length_overlong(in->response_tokens, o->max_response_length, o->overlong_buffer_length);
    double accuracy = out->accuracy > 0 ? 1 : -1;
    out->plain = accuracy;
    out->score = easyr1_dapo(accuracy, overlong, o->overlong_penalty_factor);
    grade_detail(out, "extracted", extracted);
    ares_json_write_i64(ares_json_key(&out->details, "accuracy"), (int64_t)accuracy);
    ares_json_write_double(ares_json_key(&out->details, "overlong"), overlong);
    ares_json_write_i64(ares_json_key(&out->details, "accuracy_normalized"),
                        (int64_t)easyr1_normalized(accuracy));
    grade_add_value(out, "reward/overlong", overlong);
    grade_add_value(out, "reward/accuracy_normalized", easyr1_normalized(accuracy));
    return ARES_OK;
}

static int64_t limit(const void *options, double *penalty)
{
    const dapo_options *o = options;
    *penalty = o->overlong_penalty_factor;
    return o->max_response_length;
}

const ares_verifier ares_verifier_dapo_overlong = {
    .name = "dapo_overlong",
    .doc = "1 or -1 for a boxed answer, less a penalty of length (reward_function dapo)",
    .options = dapo_table,
    .options_size = sizeof(dapo_options),
    .check = check,
    .verify = dapo_overlong,
    .right = 1,
    .wrong = -1,
    .limit = limit,
};
