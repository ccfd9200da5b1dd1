/*
 * Before anything starts: every configuration is whole, what it names can be opened, and no run
 * directory holds something else. The trainer checks all this again; here it fails at once, not run
 * by run over hours.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ares/io.h"
#include "ares/train.h"
#include "sweep.h"

/* A directory that a living process trains in: a sweep that was killed leaves its children. */
static int check_unlocked(const sweep_run *r)
{
    int fd;
    if (!ares_dir_exists(r->run_dir)) return ARES_OK;
    int rc = ares_lock_take(r->run_dir, &fd);
    if (rc == ARES_OK) ares_lock_drop(fd);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "sweep: run %s", r->name);
}

static int take_state(sweep *s, sweep_run *r, const ares_config *cfg, const ares_train_config *c,
                      ares_str *refused)
{
    ares_run_state state;
    ares_str changed = { 0 };
    ARES_TRY(check_unlocked(r));
    int rc = ares_run_look(cfg, c, &state, &changed);
    if (rc == ARES_OK) {
        r->begins_anew = s->force && (state == ARES_RUN_FINISHED || state == ARES_RUN_CHANGED);
        r->goes_on = state == ARES_RUN_UNFINISHED;
        if (state == ARES_RUN_FINISHED && !s->force) r->state = SWEEP_DONE;
        if (state == ARES_RUN_CHANGED && !s->force)
            ares_str_addf(refused, "\n  %s (%s)", r->run_dir,
                          changed.len ? changed.data : "its DONE has another hash");
    }
    ares_str_fini(&changed);
    return rc;
}

/*
 * What the run itself does before its first step. Runs that differ only in their seeds open the
 * same.
 */
static int rehearse(const sweep *s, const sweep_run *r, ares_config *cfg,
                    const ares_train_config *c)
{
    ares_str needs = { 0 };
    int ranks = (int)s->o.ranks;
    if (r->state == SWEEP_DONE || (r->seed >= 0 && r->seed != s->o.seeds.items[0])) return ARES_OK;
    int rc = ares_train_plan_check(cfg, c, ranks, ranks, true, true, &needs);
    if (rc == ARES_OK) rc = ares_train_rehearse(cfg, c, ranks);
    ares_str_fini(&needs);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "sweep: run %s", r->name);
}

static int check_run(sweep *s, sweep_run *r, bool open, ares_str *refused)
{
    ares_str needs = { 0 };
    ares_train_config c;
    ares_config *cfg = ares_config_new();
    memset(&c, 0, sizeof c);
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, r->n_words, r->words);
    ares_config_resolve(cfg);
    bool one_card = c.trainer.device && strncmp(c.trainer.device, "cuda:", 5) == 0;
    if (open && !one_card)
        ares_train_memory_check(cfg, &c, (int)s->o.ranks, (int)s->o.ranks, true, &needs);
    int rc = ares_config_fault_count(cfg) ? ares_config_finish(cfg)
                                          : ares_train_config_check(cfg, &c, (int)s->o.ranks);
    if (rc != ARES_OK) ares_fail_in(rc, "sweep: run %s", r->name);
    else if (one_card)
        rc =
            ares_fail(ARES_EUSE,
                      "sweep: run %s: trainer.device = '%s': a sweep gives each run its cards; set "
                      "trainer.device=cuda, and name the cards with --gpus %s",
                      r->name, c.trainer.device, c.trainer.device + 5);
    else {
        r->on_cards = strcmp(c.trainer.device, "cuda") == 0;
        r->shares_cpus = c.trainer.threads == ARES_NULL_I64;
        rc = take_state(s, r, cfg, &c, refused);
        if (rc == ARES_OK && open) rc = rehearse(s, r, cfg, &c);
    }
    ares_str_fini(&needs);
    ares_config_free(cfg);
    return rc;
}

int sweep_check_runs(sweep *s, bool open)
{
    ares_str refused = { 0 };
    int rc = ARES_OK;
    for (int i = 0; i < s->n && rc == ARES_OK; i++) {
        /* what the first configuration has to say, the others would repeat */
        ares_log_set(i ? ARES_LOG_ERROR : ARES_LOG_WARN, 0);
        rc = check_run(s, &s->runs[i], open, &refused);
    }
    ares_log_set(ARES_LOG_INFO, 0);
    if (rc == ARES_OK && refused.len)
        rc = ares_fail(ARES_ESTATE,
                       "sweep: these hold runs with other options:%s\nRestore the options to go "
                       "on with them, give the sweep another --name or --dir, or pass --force to "
                       "begin them anew (what is there is moved aside)",
                       refused.data);
    ares_str_fini(&refused);
    return rc;
}

/* Renames a directory to DIR.before_1, or the first such name that is free. */
static int move_aside(const char *dir)
{
    ares_str to = { 0 };
    int n = 0;
    do {
        ares_str_clear(&to);
        ares_str_addf(&to, "%s.before_%d", dir, ++n);
    } while (access(to.data, F_OK) == 0);
    int rc = rename(dir, to.data) == 0
                 ? ARES_OK
                 : ares_fail(ARES_EIO, "sweep: '%s' cannot be renamed to '%s'", dir, to.data);
    if (rc == ARES_OK) printf("begins anew: %s, kept as %s\n", dir, to.data);
    ares_str_fini(&to);
    return rc;
}

int sweep_clear(sweep *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->runs[i].begins_anew) ARES_TRY(move_aside(s->runs[i].run_dir));
    return ARES_OK;
}
