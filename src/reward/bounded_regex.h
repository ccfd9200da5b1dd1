/*
 * Regular expressions (PCRE2, UTF-8, `.` matches newlines too) with a bounded amount of matching
 * work.
 */
#ifndef ARES_GRADE_BOUNDED_REGEX_H
#define ARES_GRADE_BOUNDED_REGEX_H

#include "ares/grade.h"

/* who: the verifier, for the message */
int bounded_regex_check(const char *who, const char *pattern);
/*
 * 1: matches; 0: does not; -1: the work limit was reached. whole: the expression must match the
 * whole text, else some part of it. The expression has passed bounded_regex_check.
 */
int bounded_regex_match(const char *pattern, bool whole, ares_view text);
#endif
