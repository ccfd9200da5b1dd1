/* Members of a result's details, metrics of a verifier's own, and inputs that must be there. */
#include "details.h"

#include <string.h>

#include "math/answers.h"

void grade_detail(ares_verify_out *out, const char *key, ares_view value)
{
    ares_json_key(&out->details, key);
    if (value.data) ares_json_write_string(&out->details, value);
    else ares_json_write_null(&out->details);
}

void grade_answer_details(ares_verify_out *out, ares_view extracted, const char *decided_by)
{
    while (extracted.len > MATH_MAX_BYTES) {
        extracted.len = MATH_MAX_BYTES;
        while (extracted.len && ((unsigned char)extracted.data[extracted.len] & 0xc0) == 0x80)
            extracted.len--;
    }
    grade_detail(out, "extracted", extracted);
    grade_detail(out, "decided_by", ares_view_of(decided_by));
}

int grade_need_truth(const ares_verify_in *in, const char *who)
{
    if (in->ground_truth.data) return ARES_OK;
    return ares_fail(ARES_EFORMAT, "reward: %s: the row has no ground truth", who);
}

int grade_need_length(const ares_verify_in *in, const char *who)
{
    if (in->response_tokens >= 0) return ARES_OK;
    return ares_fail(ARES_EFORMAT,
                     "reward: %s: the response's number of tokens is not known (in lines: "
                     "'response_length' or 'output_ids')",
                     who);
}

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
