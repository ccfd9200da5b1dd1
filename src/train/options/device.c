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
    if (cpu && strcmp(c->comm_transport, "nccl") == 0)
        ares_config_fault(cfg, "trainer.comm_transport",
                          "nccl moves bytes between cards, and trainer.device=%s is none; set auto",
                          c->device);
}

void device_check_parallel(ares_config *cfg, const ares_train_config *c, int world)
{
    int64_t parts = c->rollout.tensor_parallel_size;
    const char *option = "worker.rollout.tensor_parallel_size";
    if (parts == ARES_NULL_I64 || parts == 1) return;
    if (world % parts)
        ares_config_fault(cfg, option,
                          "the number of ranks, %d, is no multiple of it; start %lld with --ranks, "
                          "or set 1: each rank then decodes by itself",
                          world, (long long)parts);
    else if (strncmp(c->trainer.device, "cpu", 3) != 0)
        ares_config_fault(cfg, option,
                          "cards do not divide a model among ranks yet; set 1: each rank then "
                          "decodes by itself");
    else if (strcmp(c->trainer.kernels, "aten") == 0)
        ares_config_fault(cfg, option,
                          "needs trainer.kernels=native; set that, or 1: each rank then decodes "
                          "by itself");
}
