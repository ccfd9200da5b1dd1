/* How a row names its verifier. */
#ifndef ARES_GRADE_AUTO_H
#define ARES_GRADE_AUTO_H

#include "ares/core.h"

/*
 * The name that a row is judged by: metadata.rm_type or rm_type, trimmed; else what `sources` (a
 * map, may be NULL) says of its data_source; else fallback (may be NULL); else the verifier known
 * for that data_source, or the data_source itself. Empty when there is none of them
 * (docs/rewards.md#several-kinds-of-rows-in-one-run).
 */
ares_view auto_rm_type(const ares_json *row, const ares_json *sources, const char *fallback);
#endif
