/*
 * Whether a run can fit where it would run, from the options and config.json alone: no weight is
 * read, no device opened. Only what a process holds in any case is counted: its part of weights,
 * gradients, optimizer states, the reference and the critic. Activations and the rollout's cache
 * need more, so what is refused here could never have run.
 */
#include <dirent.h>
#include <math.h>
#include <string.h>

#include "options/sharing.h"
#include "run.h"
#include "run/sizes.h"

/*
 * Parameters of the model at path, by its config.json; 0: there is no model. A damaged one fails
 * when it is loaded.
 */
static double parameters_at(const char *path)
{
    ares_str dir = { 0 };
    ares_model_config m;
    double n = 0;
    if (path && ares_model_find(path, &dir) == ARES_OK &&
        ares_model_config_load(dir.data, &m) == ARES_OK)
        n = (double)ares_model_config_count(&m);
    ares_error_clear();
    ares_str_fini(&dir);
    return n;
}

/* What of a model is a rank's own: parts that ranks share, and what is not in the host's memory. */
typedef struct parts {
    double weights, gradients, states;
} parts;

static parts parts_of(const ares_json *full_shard, int64_t fsdp_size, int ranks,
                      bool weights_elsewhere, bool states_elsewhere)
{
    double part = 1.0 / sharing_size(fsdp_size, ranks);
    bool all = full_shard->type == ARES_JSON_BOOL && full_shard->boolean;
    return (parts){ .weights = weights_elsewhere ? 0
                               : all             ? part
                                                 : 1,
                    .gradients = all ? part : 1,
                    .states = states_elsewhere ? 0 : part };
}

/*
 * Trained weights have a gradient and two moments in fp32, and an fp32 master where they are stored
 * in bf16; with adamw_bf16 these three have 16 bits (region.c). optim NULL: not trained
 */
static double bytes_of(double parameters, const char *dtype, const ares_optim_config *optim,
                       parts own)
{
    bool bf16 = dtype && strcmp(dtype, "bf16") == 0;
    double weight = bf16 ? 2 : 4, states = 8;
    if (optim && bf16) states = strcmp(optim->strategy, "adamw_bf16") == 0 ? 6 : 12;
    if (!optim) return parameters * weight * own.weights;
    return parameters * (weight * own.weights + 4 * own.gradients + states * own.states);
}

typedef struct needs {
    double parameters, actor, reference, critic, all;
} needs;

static needs needs_of(const ares_train_config *c, int ranks, bool reinforcement)
{
    const ares_adv *adv = ares_adv_find(c->algorithm.adv_estimator);
    bool trained = !c->trainer.val_only, roles = trained && reinforcement,
         card = strncmp(c->trainer.device, "cuda", 4) == 0;
    needs n = { .parameters = parameters_at(c->actor.model_path) };
    if (n.parameters == 0 && !ares_is_null_f64(c->actor.parameters))
        n.parameters = c->actor.parameters;
    double critic = c->critic.model_path ? parameters_at(c->critic.model_path) : n.parameters;
    n.actor =
        bytes_of(n.parameters, c->actor.dtype, trained ? &c->optim : NULL,
                 parts_of(c->actor.full_shard, c->actor.fsdp_size, ranks,
                          card && c->actor.offload_params, card && c->actor.offload_optimizer));
    if (roles && trainer_needs_reference(c))
        n.reference = bytes_of(n.parameters, c->ref.dtype ? c->ref.dtype : "bf16", NULL,
                               parts_of(c->ref.full_shard, c->ref.fsdp_size, ranks,
                                        card && c->ref.offload_params, false));
    if (roles && adv && (adv->needs & ARES_NEEDS_VALUES))
        n.critic = bytes_of(critic, c->critic.dtype, &c->critic_optim,
                            parts_of(c->critic.full_shard, c->critic.fsdp_size, ranks,
                                     card && c->critic.offload_params,
                                     card && c->critic.offload_optimizer));
    n.all = n.actor + n.reference + n.critic;
    return n;
}

static void describe(ares_str *out, const needs *n, bool trained)
{
    const char *what = trained ? "weights, gradients and optimizer states" : "weights";
    bool billions = n->parameters >= 1e9;
    ares_str_addf(out, "a process holds at least %.1f GB (%s of %.2f %s parameters: %.1f",
                  n->all / 1e9, what, n->parameters / (billions ? 1e9 : 1e6),
                  billions ? "billion" : "million", n->actor / 1e9);
    if (n->reference > 0) ares_str_addf(out, "; the reference: %.1f", n->reference / 1e9);
    if (n->critic > 0) ares_str_addf(out, "; the critic: %.1f", n->critic / 1e9);
    ares_str_add_char(out, ')');
}

int train_cards(const char *folder, double *least_bytes)
{
    DIR *cards = opendir(folder);
    ares_str path = { 0 }, text = { 0 };
    int n = 0;
    *least_bytes = INFINITY;
    for (struct dirent *card; cards && (card = readdir(cards));) {
        if (*card->d_name == '.') continue;
        ares_path_join(&path, folder, card->d_name);
        ares_str_add_z(&path, "/information");
        n++;
        double bytes =
            ares_file_read(path.data, &text) == ARES_OK ? train_card_bytes(text.data) : INFINITY;
        *least_bytes = ARES_MIN(*least_bytes, bytes);
    }
    bool known = cards != NULL;
    if (cards) closedir(cards);
    ares_error_clear();
    ares_str_fini(&path);
    ares_str_fini(&text);
    return known ? n : -1;
}

void train_check_cards(ares_config *cfg, const char *device, int local_ranks, double bytes,
                       const char *words, int cards, double least, const char *remedy)
{
    bool own = strcmp(device, "cuda") == 0; /* cuda:1 is one card for all */
    if (cards == 0)
        ares_config_fault(
            cfg, "trainer.device",
            "no CUDA device on this machine; %s; use trainer.device=cpu, or a machine with cards",
            words);
    else if (own && cards > 0 && local_ranks > cards)
        ares_config_fault(cfg, "trainer.device",
                          "%d processes take a card each, and this machine has %d; start no more "
                          "than it has (--ranks)",
                          local_ranks, cards);
    if (cards > 0 && bytes * (own ? 1 : local_ranks) > least)
        ares_config_fault(cfg, "worker.actor.model.model_path",
                          "%s; a card of this machine has %.1f GB; %s", words, least / 1e9, remedy);
}

void ares_train_memory_check(ares_config *cfg, const ares_train_config *c, int ranks,
                             int local_ranks, bool reinforcement, ares_str *words)
{
    /* a fault already */
    if (!c->actor.model_path || !c->trainer.device || !c->algorithm.adv_estimator) return;
    needs n = needs_of(c, ranks, reinforcement);
    const char *remedy = reinforcement ? "see which options 'ares-train plan' proposes, take a "
                                         "smaller model, or a machine with more"
                                       : "take a smaller model, or a machine with more";
    bool cuda = strncmp(c->trainer.device, "cuda", 4) == 0;
    if (n.all > 0) describe(words, &n, !c->trainer.val_only);
    else
        ares_str_addf(words,
                      "what it needs is not known: no model at '%s', and "
                      "worker.actor.model.parameters is not set",
                      c->actor.model_path);
    if (cuda) {
        double least = INFINITY;
        int cards = ares_cuda_expected() ? train_cards("/proc/driver/nvidia/gpus", &least) : 0;
        train_check_cards(cfg, c->trainer.device, local_ranks, n.all, words->data, cards, least,
                          remedy);
    } else if (n.all * local_ranks > ares_memory_bytes())
        ares_config_fault(cfg, "worker.actor.model.model_path",
                          "%s; this machine has %.1f GB for %d; %s", words->data,
                          ares_memory_bytes() / 1e9, local_ranks, remedy);
}
