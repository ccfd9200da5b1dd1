/*
 * What verifiers share: the members they write into a result's details, their own metrics, and the
 * inputs without which they cannot judge.
 */
#ifndef ARES_GRADE_DETAILS_H
#define ARES_GRADE_DETAILS_H

#include "ares/grade.h"

/* Appends a string member to out->details; null where data is NULL. */
void grade_detail(ares_verify_out *out, const char *key, ares_view value);
/*
 * Appends "extracted" (cut at MATH_MAX_BYTES, beyond which nothing is an answer) and "decided_by".
 */
void grade_answer_details(ares_verify_out *out, ares_view extracted, const char *decided_by);
/*
 * Adds a value to a metric: `name` ("reward/format", "if/keywords/rate") becomes the mean of the
 * values that all responses of a step have added.
 */
void grade_add_value(ares_verify_out *out, const char *name, double value);
/* Fails when the row has no ground truth at all; an empty one makes every answer wrong. */
int grade_need_truth(const ares_verify_in *in, const char *verifier);
/* Fails when the number of the response's tokens is not known. */
int grade_need_length(const ares_verify_in *in, const char *verifier);
#endif
