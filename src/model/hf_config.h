#ifndef ARES_MODEL_HF_CONFIG_H
#define ARES_MODEL_HF_CONFIG_H

#include "ares/model.h"

/*
 * Writes config.json with `rope_scaling`, the older of the two forms of rope options; transformers
 * reads both from 4.43 on.
 */
int model_config_save(const ares_model_config *c, const char *dir);
#endif
