/*
 * The formulas of all losses, without their entries: for cuda/loss.cu, and for tests of formulas.
 * Includes NAME.c of every word of LOSS_LIST: the words become file names, and one slot after the
 * other includes its file. Slots beyond the last word include list.h, which adds nothing.
 */
#ifndef ARES_ALGO_LOSS_FORMULAS_H
#define ARES_ALGO_LOSS_FORMULAS_H

#include <assert.h>

#define LOSS_FORMULAS_ONLY
#include "entry.h"
#include "list.h"

enum { LOSS_SLOTS = 16 };
#define LOSS_ONE(name) +1
static_assert(LOSS_LIST(LOSS_ONE) <= LOSS_SLOTS, "formulas.h has a slot for every loss");

/* clang-format off */
#define LOSS_QUOTED(file) #file
#define LOSS_FILE(name) LOSS_QUOTED(name.c),
#define LOSS_NONE "list.h", "list.h", "list.h", "list.h", "list.h", "list.h", "list.h", "list.h"
#define LOSS_FILES LOSS_LIST(LOSS_FILE) LOSS_NONE, LOSS_NONE, LOSS_NONE
#define LOSS_PICK(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, slot, ...) slot
#define LOSS_EXPAND(pick, ...) pick(__VA_ARGS__)
#define LOSS_AT(...) LOSS_EXPAND(LOSS_PICK, __VA_ARGS__ LOSS_FILES)
#include LOSS_AT(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0, 0,)
#include LOSS_AT(0, 0, 0,)
#include LOSS_AT(0, 0,)
#include LOSS_AT(0,)
/* clang-format on */
#endif
