#ifndef ARES_DATA_DATASET_H
#define ARES_DATA_DATASET_H

#include "ares/data.h"

struct ares_dataset {
    ares_arena arena;
    ares_row *rows;
    int64_t count, cap;
};
#endif
