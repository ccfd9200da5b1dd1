#ifndef ARES_MODEL_ROPE_H
#define ARES_MODEL_ROPE_H

#include "ares/model.h"

typedef struct ares_rope ares_rope;
ares_rope *rope_new(const ares_model_config *c);
void rope_free(ares_rope *r);
#endif
