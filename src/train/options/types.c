/*
 * In what type products are computed and weights are stored: what follows where an option is left
 * open, and the rules between the two (docs/update.md#arithmetic-and-storage). Once all layers are
 * read both options of a model have a value, so that a run directory says what its run does.
 */
#include "options.h"

#include <stdio.h>
#include <string.h>

#include "trainer.h"

/* The full name of an option of a side, in memory of the block around the call. */
#define PATH(name, key) path_of((char[64]){ 0 }, name, key)
#define ARITHMETIC(name) PATH(name, "arithmetic")
#define STORAGE(name) PATH(name, "fsdp.torch_dtype")
static const char *path_of(char *out, const char *name, const char *key)
{
    snprintf(out, 64, "worker.%s.%s", name, key);
    return out;
}

static bool is_bf16(const char *word)
{
    return word && (strcmp(word, "bf16") == 0 || strcmp(word, "bfloat16") == 0);
}

/*
 * Cards and libtorch's operators multiply numbers of the type that weights are stored in; the CPU's
 * own kernels do so in bf16, and widen bf16 weights where they compute in fp32.
 */
static bool multiplies_as_stored(const char *device, const char *kernels)
{
    return (device && strncmp(device, "cuda", 4) == 0) || (kernels && strcmp(kernels, "aten") == 0);
}

/*
 * The value of an option, which gets this one where it is left open. A word that is none of the
 * choices is told where options are bound, and nothing follows it.
 */
static const char *settle(ares_config *cfg, const char *path, const char *value)
{
    const char *given = ares_config_given(cfg, path);
    if (!given) ares_config_follow(cfg, path, value, path);
    return is_bf16(given ? given : value) ? "bf16" : "fp32";
}

/*
 * A file of another trainer may keep fp32 weights beside products in bf16: here these are the
 * optimizer's copy.
 */
static void take_mixed_precision(ares_config *cfg, const char *name)
{
    const char *arithmetic = ARITHMETIC(name), *storage = STORAGE(name),
               *word = ares_config_word(cfg, arithmetic), *given = ares_config_given(cfg, storage);
    bool foreign = word && strcmp(word, arithmetic) != 0;
    if (!foreign || !is_bf16(ares_config_given(cfg, arithmetic)) || !given || is_bf16(given))
        return;
    ares_log(ARES_LOG_INFO,
             "config: %s -> bf16: %s asks for products in bf16, and the fp32 weights are the "
             "optimizer's copy",
             storage, word);
    ares_config_follow(cfg, storage, "bf16", storage);
}

void types_translate(ares_config *cfg)
{
    static const char *const sides[] = { "actor", "ref", "critic" };
    const char *device = ares_config_given(cfg, "trainer.device");
    bool card = device && strncmp(device, "cuda", 4) == 0,
         one = multiplies_as_stored(device, ares_config_given(cfg, "trainer.kernels"));
    /*
     * A card's tensor cores multiply bf16 some ten times as fast, and the optimizer's copy is in
     * fp32; who says fp32 of one model means it of all, which compute in one type there.
     */
    const char *open = card ? "bf16" : "fp32";
    const char *arithmetic = "fp32", *storage = NULL; /* the actor's, once they are known */
    for (int i = 0; i < ARES_COUNT(sides); i++) {
        take_mixed_precision(cfg, sides[i]);
        const char *given[] = { ares_config_given(cfg, ARITHMETIC(sides[i])),
                                ares_config_given(cfg, STORAGE(sides[i])) };
        for (int k = 0; k < ARES_COUNT(given); k++)
            if (given[k] && !is_bf16(given[k])) open = "fp32";
    }
    for (int i = 0; i < ARES_COUNT(sides); i++) {
        const char *name = sides[i], *own, *stored;
        if (one) {
            own = ares_config_given(cfg, ARITHMETIC(name));
            if (own) own = is_bf16(own) ? "bf16" : "fp32";
            stored = settle(cfg, STORAGE(name), own ? own : storage ? storage : open);
            own = settle(cfg, ARITHMETIC(name), stored);
        } else {
            /* models that are the actor's base, with adapters of their own or none, are as it is */
            bool base = i && adapters_on_actors_base(cfg, name);
            own = settle(cfg, ARITHMETIC(name), arithmetic);
            stored = settle(cfg, STORAGE(name), base ? storage : own);
        }
        if (i) continue;
        arithmetic = own;
        storage = stored;
    }
}

/* Of one model, beside the actor's types. */
static void check_side(ares_config *cfg, const ares_train_config *c, const char *name,
                       const char *arithmetic, const char *storage)
{
    bool one = multiplies_as_stored(c->trainer.device, c->trainer.kernels),
         actor = strcmp(name, "actor") == 0;
    const char *by =
        strcmp(c->trainer.kernels, "aten") == 0 ? "trainer.kernels=aten" : "trainer.device=cuda";
    if (is_bf16(arithmetic) && !is_bf16(storage))
        ares_config_fault(cfg, STORAGE(name),
                          "%s=bf16 multiplies weights in bf16, and the fp32 copy is the "
                          "optimizer's; set bf16, or leave it out",
                          ARITHMETIC(name));
    else if (one && is_bf16(storage) && !is_bf16(arithmetic))
        ares_config_fault(cfg, ARITHMETIC(name),
                          "with %s products have the type of the weights, and %s=bf16; set fp32 "
                          "there, or leave this out",
                          by, STORAGE(name));
    /* where the device computes in bf16, every model must be stored so */
    else if (one && !actor && is_bf16(c->actor.dtype) && !is_bf16(storage))
        ares_config_fault(cfg, STORAGE(name),
                          "worker.actor.fsdp.torch_dtype=bf16 makes this device compute in bf16, "
                          "and its products take one type; set bf16 here too, or leave it out");
}

/* The actor's base is in memory once, in one type, and its products are computed in one way. */
static void check_base(ares_config *cfg, const ares_train_config *c, const char *name,
                       const char *arithmetic, const char *storage)
{
    static const char *const types[] = { "fp32", "bf16" };
    const char *what = strcmp(name, "ref") == 0 ? "the reference" : "the critic's";
    if (is_bf16(storage) != is_bf16(c->actor.dtype))
        ares_config_fault(cfg, STORAGE(name),
                          "%s is the actor's own model with its adapters left out, and that is "
                          "stored in %s (worker.actor.fsdp.torch_dtype); leave it out",
                          what, types[is_bf16(c->actor.dtype)]);
    if (is_bf16(arithmetic) != is_bf16(c->actor.arithmetic))
        ares_config_fault(cfg, ARITHMETIC(name),
                          "%s is the actor's own model with its adapters left out, and that "
                          "computes in %s (worker.actor.arithmetic); leave it out",
                          what, types[is_bf16(c->actor.arithmetic)]);
}

/* Of a model beside the actor. */
static void check_other(ares_config *cfg, const ares_train_config *c, const char *name,
                        const char *arithmetic, const char *storage)
{
    if (adapters_on_actors_base(cfg, name)) check_base(cfg, c, name, arithmetic, storage);
    else check_side(cfg, c, name, arithmetic, storage);
}

void types_check(ares_config *cfg, const ares_train_config *c, bool reinforcement)
{
    check_side(cfg, c, "actor", c->actor.arithmetic, c->actor.dtype);
    if (reinforcement && trainer_needs_reference(c))
        check_other(cfg, c, "ref", c->ref.arithmetic, c->ref.dtype);
    if (reinforcement && trainer_needs_critic(c))
        check_other(cfg, c, "critic", c->critic.arithmetic, c->critic.dtype);
}
