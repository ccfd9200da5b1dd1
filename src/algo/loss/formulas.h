/*
 * The formulas of all losses, without their entries: for cuda/loss.cu, and for tests of formulas. A
 * word of LOSS_LIST whose file is missing here has no struct loss_of_NAME in cuda/loss.cu.
 */
#ifndef ARES_ALGO_LOSS_FORMULAS_H
#define ARES_ALGO_LOSS_FORMULAS_H

#define LOSS_FORMULAS_ONLY
#include "cispo.c"
#include "cov.c"
#include "dppo.c"
#include "dro.c"
#include "gmpo.c"
#include "gpg.c"
#include "gspo.c"
#include "ppo.c"
#include "sapo.c"
#include "vapor.c"
#endif
