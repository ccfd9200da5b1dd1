/*
 * What environments in somebody else's program have in common: the state that the program told, and
 * why an episode failed. Nothing that the program says is trusted.
 */
#ifndef ARES_ENV_FOREIGN_H
#define ARES_ENV_FOREIGN_H

#include "ares/env.h"

enum {
    FOREIGN_ANSWER_BYTES = 1 << 20, /* an answer may have; a longer one fails the episode */
    FOREIGN_NAMES = 64,             /* different numbers that an environment may tell in its life */
    FOREIGN_NAME_BYTES = 64
};

/* No reward is larger: sums over an episode stay finite as floats, which training takes them as. */
#define FOREIGN_REWARD 1e30

typedef struct foreign {
    ares_str state; /* text of the present state */
    const char **actions;
    int n_actions; /* 0: any text is an action */
    char *names[FOREIGN_NAMES];
    int n_names;
    bool failed, replayable;
    bool over;       /* with the reset */
    int64_t unasked; /* lines that came unasked in the episode, or before it */
    char why[600];
} foreign;

void foreign_fini(foreign *f);
/* the state of a new episode: none yet, and not failed */
void foreign_begin(foreign *f);
void foreign_fail(foreign *f, bool by_clock, const char *format, ...) ARES_PRINTF(3, 4);
/* for ares_env_type.failure */
const char *foreign_failure(const foreign *f, bool *replayable, int64_t *unasked);

/* ["left", "right"]; false where it is no list of texts */
bool foreign_read_actions(foreign *f, const ares_json *list);
/*
 * Numbers and yes or no of an object are told; `success` also decides out->success, and false comes
 * back where it is neither. A name has to be printable ASCII without blanks.
 */
bool foreign_tell(foreign *f, const ares_json *object, ares_env_outcome *out);
/* The number, or false: FOREIGN_REWARD at most either way. 1 is an integer, 1.0 is none. */
bool foreign_read_reward(const ares_json *value, ares_env_reward *out);
/* The beginning of a text for a message: printable ASCII, "?" for other bytes. Returns out. */
const char *foreign_quote(ares_view text, char out[160]);
/* Whether a text that is no JSON has a number that JSON does not know, as Python writes it. */
bool foreign_is_not_finite(ares_view text);

#endif
