/*
 * Regular expressions (PCRE2, UTF-8, `.` matches newlines too) within a fixed amount of matching
 * work.
 */
#ifndef ARES_GRADE_BOUNDED_REGEX_H
#define ARES_GRADE_BOUNDED_REGEX_H

#include "ares/grade.h"

int bounded_regex_check(const char *who, const char *pattern);
/*
 * 1 matches, 0 does not, -1 the work limit was reached. whole: the whole text, else any part of it.
 * The expression was checked.
 */
int bounded_regex_match(const char *pattern, bool whole, ares_view text);
#endif
