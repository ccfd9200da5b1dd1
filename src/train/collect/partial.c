#include "collect/partial.h"

#include <string.h>

int32_t partial_budget(int32_t max_response_length, int32_t had)
{
    return ARES_MAX(max_response_length - had, 0);
}

void partial_mask(uint8_t *mask, int32_t had, int32_t n, bool mask_offpolicy)
{
    if (mask_offpolicy && had) memset(mask, 0, (size_t)had);
    memset(mask + had, 1, (size_t)n);
}
