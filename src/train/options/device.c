/* The device of a run, and whose arithmetic it does: what both kinds of runs check. */
#include "device.h"

#include <string.h>

void device_check(ares_config *cfg, const ares_trainer_config *c)
{
    bool cpu = strncmp(c->device, "cpu", 3) == 0;
    if (!cpu && strncmp(c->device, "cuda", 4) != 0)
        ares_config_fault(cfg, "trainer.device", "no such device (choices: cpu, cuda, cuda:<n>)");
    else if (!cpu && strcmp(c->kernels, "aten") == 0)
        ares_config_fault(cfg, "trainer.kernels",
                          "aten computes on the CPU, not on trainer.device=%s; set native, or "
                          "trainer.device=cpu",
                          c->device);
}
