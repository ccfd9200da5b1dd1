#ifndef ARES_TRAIN_RUN_VALIDATE_H
#define ARES_TRAIN_RUN_VALIDATE_H

#include "ares/data_trajectory.h"
#include "trainer.h"

/* Appends a JSON line of an answer; data_set: NULL, or its name. (validate.c) */
void validation_write(const ares_trainer *t, const char *data_set, const ares_row *row,
                      const ares_trajectory *s, ares_str *out);
#endif
