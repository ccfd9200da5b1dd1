/* What the dispatcher, `auto` and the tests share of judges. */
#ifndef ARES_GRADE_JUDGE_H
#define ARES_GRADE_JUDGE_H

#include "ares/grade.h"

extern const ares_verifier ares_verifier_auto;

/*
 * The name that a row is judged by: metadata.rm_type or rm_type, trimmed; else what `sources` (a
 * map, may be NULL) says of its data_source; else fallback (may be NULL); else the verifier known
 * for that data_source, or the data_source itself. Empty when there is none of them. (curriculum.md
 * section 9)
 */
ares_view judge_rm_type(const ares_json *row, const ares_json *sources, const char *fallback);
#endif
