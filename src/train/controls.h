/*
 * The controls of a run: those of ares_control_list that its options ask for, in its order. A NULL
 * ares_controls has none. (controls.c)
 */
#ifndef ARES_TRAIN_CONTROLS_H
#define ARES_TRAIN_CONTROLS_H

#include "trainer.h"

/* Declares the options of all controls. */
void controls_declare(ares_config *cfg, ares_train_config *out);
/* Of t, data, reward and world must be open. */
int controls_open(const ares_trainer *t, ares_controls **out);
void controls_close(ares_controls *c);
int controls_observe(ares_controls *c, ares_batch *b, ares_metrics *m);
int controls_adapt(ares_controls *c, const ares_batch *b, ares_metrics *m);
/* Why the run is to end, as the first control says that wants it; NULL: it goes on. */
const char *controls_stop(const ares_controls *c);
bool controls_want_generated(const ares_controls *c);
int controls_generated(ares_controls *c, const ares_batch *b);
/* Writes what shaping a score reads, where a filter needs shaped scores before the step's end. */
int controls_provisional(const ares_controls *c, ares_batch *b);
bool controls_want_validation(const ares_controls *c);
int controls_validate(ares_controls *c, ares_batch *b, ares_metrics *m);
/* After a validation of training, with its metrics. */
int controls_validated(ares_controls *c, const ares_metrics *m);
/* Takes prompts out of the source that a control does not want to see again. */
void controls_skip(const ares_controls *c, ares_source *s);
/*
 * The pass over all training rows: prompts per batch; 0 where no control asks for it or it is
 * complete. *done: prompts answered so far.
 */
int64_t controls_bootstrap(const ares_controls *c, int64_t *done);
int controls_bootstrap_add(ares_controls *c, ares_batch *b, ares_metrics *m);
int controls_bootstrap_finish(ares_controls *c, ares_metrics *m);
void controls_save(const ares_controls *c, ares_str *json); /* {"<name>": state, ..} */
int controls_load(ares_controls *c, const ares_json *json, const char *path);
/*
 * For a validation alone: loads a state of any data set and model. A control that it lacks stays as
 * it was opened.
 */
int controls_look(ares_controls *c, const ares_json *json, const char *path);
#endif
