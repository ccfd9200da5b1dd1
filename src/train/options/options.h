/*
 * Private to train: declaring and checking the options of special subjects and of other trainers,
 * for ares_train_config_declare and ares_train_config_check.
 */
#ifndef ARES_TRAIN_OPTIONS_OPTIONS_H
#define ARES_TRAIN_OPTIONS_OPTIONS_H

#include "ares/config.h"
#include "ares/data.h"
#include "ares/train.h"

/* Declares the names that other trainers have for options. */
void train_add_aliases(ares_config *cfg);

/* DAPO's options, and their translation into others */
void dapo_declare(ares_config *cfg, ares_train_config *out);

void device_check(ares_config *cfg, const ares_trainer_config *c);

/* The options of over-sampling and of partial rollouts. (options.c) */

/* Whether groups are taken as they end, instead of draw by draw. */
bool oversampling_wanted(const ares_train_config *c);

/* Refuses limits of pictures that exclude each other. */
void pixels_check(ares_config *cfg, const ares_data_config *d);

/* The key of worker.actor.model.override_config that has an effect. */
#define PUBLISHED_POSITIONS "max_position_embeddings"

void published_declare(ares_config *cfg, ares_train_config *out);
/* faults go to cfg; options that are set and have no effect are logged */
void published_check(ares_config *cfg, const ares_train_config *c, int world);

/* Words of slime's curriculum: declared and translated; then, after resolve, checked. */
void slime_declare(ares_config *cfg, ares_train_config *out);
void slime_check(ares_config *cfg, const ares_train_config *c);

/*
 * Warns of options that a user has set to something else than their default and that nothing of the
 * run reads. reward: NULL where none can be opened. (unread.c)
 */
void unread_tell(ares_config *cfg, const ares_train_config *c, const ares_reward *reward);
#endif
