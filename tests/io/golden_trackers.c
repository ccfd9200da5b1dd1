/* Names of Trackio's files: look.json. */
#include "golden.h"

#include "../../src/core/tracker.h"

GOLDEN(look, trackio_file)
{
    ares_str file = { 0 };
    tracker_trackio_file(&file, golden_z(g, "project"));
    golden_text(g, "file", ares_str_view(&file), golden_want(g, "file"));
    ares_str_fini(&file);
}
