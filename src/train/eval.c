/* Validation by itself: a model, its rows, a table. Nothing is written but what is asked for. */
#include <stdio.h>

#include "ares/train.h"

static int report(ares_trainer *t, ares_world *world, const char *output)
{
    ares_metrics *m = ares_metrics_new();
    ares_str mine = { 0 }, all = { 0 };
    int rc = ares_trainer_validate(t, m, &mine);
    if (rc == ARES_OK) rc = ares_world_gather_all(world, mine.data, mine.len, &all, NULL);
    bool lead = ares_world_rank(world) == 0;
    for (int i = 0; rc == ARES_OK && lead && i < ares_metrics_count(m); i++) printf("%-44s%10.4f\n", ares_metrics_name(m, i), ares_metrics_value(m, i));
    if (rc == ARES_OK && lead && output) rc = ares_file_write_atomic(output, all.data ? all.data : "", all.len);
    ares_str_fini(&mine);
    ares_str_fini(&all);
    ares_metrics_free(m);
    return ares_world_agree(world, rc);
}

int ares_eval_run(ares_config *cfg, const ares_train_config *c, ares_world *world, const char *output)
{
    ares_trainer t;
    int rc = ares_trainer_open(&t, cfg, c, world, NULL);
    if (rc == ARES_OK) rc = report(&t, world, output);
    ares_trainer_close(&t);
    return rc;
}
