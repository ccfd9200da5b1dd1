/* What the verifiers of math answers share. */
#ifndef ARES_GRADE_ANSWER_H
#define ARES_GRADE_ANSWER_H

#include "boxes.h"
#include "math/math.h"

/* "extracted" (null for data NULL; cut where it is too long to be an answer) and "decided_by". */
void answer_details(ares_verify_out *out, ares_view extracted, const char *decided_by);
/* Fails when there is no ground truth at all; an empty one is a wrong answer's. */
int answer_need_truth(const ares_verify_in *in, const char *who);
#endif
