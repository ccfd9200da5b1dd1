/* Reinforcement learning as a kind of run, and its validation alone. */
#include "report/report.h"
#include "run.h"

static ares_trainer *trainer_of(training *t)
{
    return (ares_trainer *)(void *)t; /* which it is the first member of */
}

static int open_trainer(ares_config *cfg, const ares_train_config *c, ares_world *world,
                        const char *weights, training **out)
{
    ares_trainer *t = ares_calloc(1, sizeof *t);
    *out = &t->run;
    return trainer_open(t, cfg, c, world, weights);
}

static void close_trainer(training *t)
{
    trainer_close(trainer_of(t));
    ares_free(trainer_of(t));
}

static int begin(training *t, ares_metrics *m)
{
    return trainer_bootstrap(trainer_of(t), m);
}

static int step(training *t, ares_metrics *m)
{
    if (trainer_of(t)->ref && !trainer_of(t)->vapor &&
        ares_kl_acts(&t->cfg->algorithm) == ARES_KL_NOWHERE)
        return ares_fail(ARES_ECONFIG,
                         "config: algorithm.kl_coef: its schedule gives 0 at step %lld, and 0 "
                         "switches the KL off; let it stay above 0",
                         (long long)t->step);
    ares_source_begin_step(&t->source, t->step);
    return ares_train_step(trainer_of(t), m);
}

static int validate(training *t, ares_metrics *m, ares_str *samples)
{
    return trainer_validate(trainer_of(t), m, samples);
}

static int record(training *t, ares_tracker *tracker)
{
    ARES_TRY(report_rollouts(trainer_of(t)));
    return report_histograms(trainer_of(t), tracker);
}

static int draw(training *t, ares_tracker *tracker)
{
    const ares_loss_sums *sums = &trainer_of(t)->actor.sums; /* empty before the first update */
    double edge[ARES_LOSS_BINS + 1];
    for (int i = 0; i <= ARES_LOSS_BINS; i++) edge[i] = ares_loss_bin_edge(i);
    return ares_tracker_bins(tracker, t->step, "actor/log_ratio", edge, sums->bins, ARES_LOSS_BINS);
}

static const run_kind by_rewards = { .declare = ares_train_config_declare,
                                     .open = open_trainer,
                                     .close = close_trainer,
                                     .begin = begin,
                                     .step = step,
                                     .validate = validate,
                                     .record = record,
                                     .draw = draw };

int ares_train_run(ares_config *cfg, const ares_train_config *c, ares_world *world)
{
    return train_run(&by_rewards, cfg, c, world);
}

int ares_eval_run(ares_config *cfg, const ares_train_config *c, ares_world *world,
                  const char *output)
{
    return train_validate_only(&by_rewards, cfg, c, world, false, output);
}
