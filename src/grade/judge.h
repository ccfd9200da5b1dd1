/* What `auto`, which opens judges itself, needs to know of them. */
#ifndef ARES_GRADE_JUDGE_H
#define ARES_GRADE_JUDGE_H

#include "ares/grade.h"

/* Which option without a default is missing, after ares_judge_use_defaults; NULL: none. */
const char *judge_unusable(const ares_judge *j);
#endif
