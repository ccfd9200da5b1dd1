/* What `auto`, which opens judges itself, and the table of verifiers need of judges. */
#ifndef ARES_GRADE_JUDGE_H
#define ARES_GRADE_JUDGE_H

#include "ares/grade.h"

/* A judge of v, plain or of the content of the last \boxed{}. ares_judge_free. */
ares_judge *judge_of(const ares_verifier *v, bool boxed);
/* Which option without a default is missing, after ares_judge_use_defaults; NULL: none. */
const char *judge_unusable(const ares_judge *j);
#endif
