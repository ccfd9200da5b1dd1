/* Limits of pictures. EasyR1 applies the largest size, then the smallest, even where it is larger.
 */
#include "pixels.h"

void pixels_check(ares_config *cfg, const ares_data_config *d)
{
    if (d->min_pixels == ARES_NULL_I64 || d->max_pixels == ARES_NULL_I64 ||
        d->min_pixels <= d->max_pixels)
        return;
    ares_config_fault(cfg, "data.min_pixels",
                      "exceeds data.max_pixels = %lld; lower it, or set one of them to null",
                      (long long)d->max_pixels);
}
