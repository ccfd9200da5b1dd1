/* What the verifiers of math answers share. */
#include "answer.h"

void answer_details(ares_verify_out *out, ares_view extracted, const char *decided_by)
{
    while (extracted.len > MATH_MAX_BYTES) {
        extracted.len = MATH_MAX_BYTES;
        while (extracted.len && ((unsigned char)extracted.data[extracted.len] & 0xc0) == 0x80)
            extracted.len--;
    }
    if (extracted.data) verify_detail(out, "extracted", extracted);
    else ares_str_addf(&out->details, "%s\"extracted\":null", out->details.len ? "," : "");
    verify_detail(out, "decided_by", ares_view_of(decided_by));
}

int answer_need_truth(const ares_verify_in *in, const char *who)
{
    if (in->ground_truth.data) return ARES_OK;
    return ares_fail(ARES_EFORMAT, "reward: %s: the row has no ground truth", who);
}
