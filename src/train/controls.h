/* The open controls of a run (controls.c). A NULL ares_controls has none. */
#ifndef ARES_TRAIN_CONTROLS_H
#define ARES_TRAIN_CONTROLS_H

#include "trainer.h"

/* the options of all, wanted or not */
void controls_declare(ares_config *cfg, ares_train_config *out);
/* t: its data, reward and world are open */
int controls_open(const ares_trainer *t, ares_controls **out);
void controls_close(ares_controls *c);
int controls_observe(ares_controls *c, ares_batch *b, ares_metrics *m);
int controls_adapt(ares_controls *c, const ares_batch *b, ares_metrics *m);
bool controls_want_generated(const ares_controls *c);
int controls_generated(ares_controls *c, const ares_batch *b);
/* what a shaped score needs, for a filter */
int controls_provisional(const ares_controls *c, ares_batch *b);
bool controls_want_validation(const ares_controls *c);
int controls_validate(ares_controls *c, ares_batch *b, ares_metrics *m);
/* prompts that shall not come again */
void controls_skip(const ares_controls *c, ares_loader *l);
/*
 * A pass over all training rows: prompts a batch, 0: none is asked for or all is done; *done:
 * prompts it has had.
 */
int64_t controls_bootstrap(const ares_controls *c, int64_t *done);
int controls_bootstrap_add(ares_controls *c, ares_batch *b, ares_metrics *m);
int controls_bootstrap_finish(ares_controls *c, ares_metrics *m);
void controls_save(const ares_controls *c, ares_str *json); /* {"<name>": state, ..} */
int controls_load(ares_controls *c, const ares_json *json, const char *path);
/*
 * For a validation alone: of whatever data the state is; a control that it lacks stays as it is
 * opened.
 */
int controls_look(ares_controls *c, const ares_json *json, const char *path);
/*
 * Where a state comes from, as it says itself: hashes of all training rows and of the model the run
 * began with (state.c).
 */
typedef struct train_origin {
    char data[24], model[24];
} train_origin;
train_origin train_origin_of(const training *t);
#endif
