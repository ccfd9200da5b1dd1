/*
 * The controls of a run: those of ares_control_list that its options ask for, in its order. A NULL
 * controls has none. (controls.c)
 */
#ifndef ARES_TRAIN_CONTROLS_H
#define ARES_TRAIN_CONTROLS_H

#include "trainer.h"

/* Declares the options of all controls. */
void controls_declare(ares_config *cfg, ares_train_config *out);
/*
 * Reports what makes no sense of the options of the controls that they ask for. reward: NULL where
 * none can be opened, or environments score their episodes.
 */
void controls_check(ares_config *cfg, const ares_train_config *c, const ares_reward *reward);
/* Whether the options ask for control i of ares_control_list. */
bool controls_wants(const ares_train_config *c, const ares_reward *reward, int i);
/* Of t, data, reward and world must be open. */
int controls_open(const ares_trainer *t, controls **out);
void controls_close(controls *c);
int controls_observe(controls *c, ares_batch *b, ares_metrics *m);
int controls_adapt(controls *c, const ares_batch *b, ares_metrics *m);
/* Why the run is to end, as the first control says that wants it; NULL: it goes on. */
const char *controls_stop(const controls *c);
bool controls_want_generated(const controls *c);
int controls_generated(controls *c, const ares_batch *b);
/* Writes what shaping a score reads, where a filter needs shaped scores before the step's end. */
int controls_provisional(const controls *c, ares_batch *b);
bool controls_want_validation(const controls *c);
int controls_validate(controls *c, ares_batch *b, ares_metrics *m);
/* After a validation of training, with its metrics. */
int controls_validated(controls *c, const ares_metrics *m);
/* Takes prompts out of the source that a control does not want to see again. */
void controls_skip(const controls *c, ares_source *s);
/*
 * The pass over all training rows: prompts per batch; 0 where no control asks for it or it is
 * complete. *done: prompts answered so far.
 */
int64_t controls_bootstrap(const controls *c, int64_t *done);
int controls_bootstrap_add(controls *c, ares_batch *b, ares_metrics *m);
int controls_bootstrap_finish(controls *c, ares_metrics *m);
void controls_save(const controls *c, ares_str *json); /* {"<name>": state, ..} */
int controls_load(controls *c, const ares_json *json, const char *path);
/*
 * For a validation alone: loads a state of any data set and model. A control that it lacks stays as
 * it was opened.
 */
int controls_look(controls *c, const ares_json *json, const char *path);
#endif
