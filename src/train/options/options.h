/*
 * Private to train: declaring and checking the options of special subjects and of other trainers,
 * for ares_train_config_declare and ares_train_config_check.
 */
#ifndef ARES_TRAIN_OPTIONS_OPTIONS_H
#define ARES_TRAIN_OPTIONS_OPTIONS_H

#include "ares/config.h"
#include "ares/data.h"
#include "ares/train.h"

/* Declares the names that other trainers have for options. (aliases.c) */
void train_add_aliases(ares_config *cfg);

/* Checks trainer.device, and the kernels and transport that go with it. (options.c) */
void device_check(ares_config *cfg, const ares_trainer_config *c);

/* Whether groups are taken as they end, instead of draw by draw. (options.c) */
bool oversampling_wanted(const ares_train_config *c);

/* Refuses limits of pictures that exclude each other. (options.c) */
void pixels_check(ares_config *cfg, const ares_data_config *d);

/* The one key of worker.actor.model.override_config that has an effect. */
#define PUBLISHED_POSITIONS "max_position_embeddings"

/*
 * Words of DAPO and of slime's curriculum from which other options follow: declares and translates
 * them. (presets.c)
 */
void presets_declare(ares_config *cfg, ares_train_config *out);
/* The words of slime's curriculum, once all options have their values. (presets.c) */
void slime_check(ares_config *cfg, const ares_train_config *c);

/*
 * Options of EasyR1 and ARES: faults go to cfg; options that are set and have no effect are logged.
 * (presets.c)
 */
void published_check(ares_config *cfg, const ares_train_config *c, int world);

/*
 * Warns of options that a user has set to something else than their default and that nothing of the
 * run reads. reward: NULL where none can be opened. (unread.c)
 */
void unread_tell(ares_config *cfg, const ares_train_config *c, const ares_reward *reward);
#endif
