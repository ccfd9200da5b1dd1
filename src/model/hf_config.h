#ifndef ARES_MODEL_HF_CONFIG_H
#define ARES_MODEL_HF_CONFIG_H

#include "ares/model.h"

/*
 * A file being read. After a failure the getters do nothing; the caller adds the path to it. Each
 * number has its range, also where the key is absent.
 */
typedef struct config_reader {
    const ares_json *root;
    const char *path; /* for warnings */
    int rc;
} config_reader;
int32_t config_i32(config_reader *r, const ares_json *o, const char *key, int64_t absent,
                   int32_t least, int32_t most);
double config_double(config_reader *r, const ares_json *o, const char *key, double absent,
                     double least, double most);
/*
 * The tower of a model whose config.json is `top`: vision_config and the ids of its tokens; gated:
 * of Qwen2.5-VL. The text part has been read. (vision/config.c)
 */
void config_read_vision(config_reader *top, bool gated, ares_model_config *c);

/*
 * Writes config.json with `rope_scaling`, the older of the two forms of rope options; transformers
 * reads both from 4.43 on.
 */
int model_config_save(const ares_model_config *c, const char *dir);
#endif
