/*
 * loss_type vapor: one ratio per completion, with that of the row's stored pair of answers, which a
 * batch of tokens does not have. vapor_loss.c computes it.
 */
#include "entry.h"

LOSS_OF_PAIRS(vapor, .words = "vapor",
              .doc = "one clipped ratio of verifiable span and stored preference",
              .formula = "-min(r' A, clip(r', 1 - low, 1 + high) A), log r' = clamp(S + beta "
                         "(L_chosen - L_rejected), -20, 20), S and L sums of log pi - log ref over "
                         "spans",
              .paper = "VAPOR", .reads = "vapor.*")
