/*
 * The table of controls. To add one: a file in control/ and a word here. The order is that of
 * observe and adapt.
 */
#include "ares/algo_control.h"

#define CONTROL_LIST(X) \
    X(adaptive_kl) X(aepo) X(early_stop) X(low_success) X(empty_filter) X(collapse)

#define DECLARE(name) extern const ares_control ares_control_##name;
#define ENTRY(name) &ares_control_##name,
CONTROL_LIST(DECLARE)
static const ares_control *const table[] = { CONTROL_LIST(ENTRY) };

const ares_control *const *ares_control_list(int *n)
{
    *n = ARES_COUNT(table);
    return table;
}
