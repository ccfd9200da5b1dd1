/* What a checkpoint would hold of a source now. */
#ifndef TESTS_SAVED_SOURCE_H
#define TESTS_SAVED_SOURCE_H

#include "ares/data_source.h"

static inline void saved_source(const ares_source *s, ares_str *json)
{
    ares_source_snapshot now;
    ares_source_take_snapshot(s, &now);
    ares_source_snapshot_write(&now, json);
    ares_source_snapshot_fini(&now);
}
#endif
