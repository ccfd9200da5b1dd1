/* What verbs read of the rollouts of a run: the answers and episodes of a step (rollouts.c). */
#ifndef ARES_VERB_ROLLOUTS_H
#define ARES_VERB_ROLLOUTS_H

#include "ares/core.h"

/* An answer or an episode: rows of the file, which the reader has checked. */
typedef struct rollouts_episode {
    int64_t n;
    const ares_json **rows; /* [n] in the order of their turns, none twice */
    int64_t copies;         /* rows of the file that say the same as another (batch_adjust_mode) */
    bool played;            /* false: a plain answer */
    int64_t n_turns;
    int64_t n_answered;     /* n_turns, or one less: the last one did not fit in the context */
    const ares_json *turns; /* [n_turns] */
    ares_view failure;      /* why somebody else's program failed it; empty: none did */
} rollouts_episode;

typedef struct rollouts_step {
    int64_t step, n;
    rollouts_episode *episodes; /* [n] by prompt drawn, then by sample */
    bool half_written;          /* the last line has no end, and was left out */
    const char *path;
} rollouts_step;

/*
 * Reads rollouts/step_<step>.jsonl of a run directory into the arena, or that file of validation/.
 * step -1: the last one there is. verb: for messages. ARES_EUSE: there is no such run or step, and
 * which there are.
 */
int rollouts_read(ares_arena *arena, const char *verb, const char *dir, bool validation,
                  int64_t step, rollouts_step *out);
/* A number of a row or turn that is there, or else `absent`. */
double rollouts_number(const ares_json *o, const char *key, double absent);
/* A text that is there, or else an empty one. */
ares_view rollouts_text(const ares_json *o, const char *key);
#endif
