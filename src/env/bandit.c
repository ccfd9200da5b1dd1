/*
 * `bandit`: one pull of one of two arms whose names hint at their risk
 * (docs/environments.md#bandit).
 */
#include <string.h>

#include "ares/core.h"
#include "internal.h"

#define BANDIT_OPTIONS(X)                                                                   \
    X(choice, split, "split", "train", "train|test", "which names the arms have")           \
    X(text, safe, "lo_arm_name", "null", "nonempty",                                        \
      "the safe arm's name in every episode, in place of those of split")                   \
    X(text, risky, "hi_arm_name", "null", "nonempty", "the risky arm's name, likewise")     \
    X(f64, low, "lo_arm_score", "0.1", "", "what the safe arm pays")                        \
    X(f64, high_loss, "hi_arm_loscore", "0.0", "", "what the risky arm pays when it loses") \
    X(f64, high_win, "hi_arm_hiscore", "1.0", "", "what the risky arm pays when it wins")   \
    X(f64, p, "hi_arm_hiscore_prob", "0.25", "[0,1]", "probability that the risky arm wins")
ARES_OPTION_STRUCT(bandit_options, BANDIT_OPTIONS);
static ARES_OPTION_TABLE(bandit_table, bandit_options, BANDIT_OPTIONS);

/* Names of the arms: safe, risky. Training and test share none. */
typedef const char *pair[2];
static const pair train[] = {
    { "Teacher", "Trader" },           { "Nurse", "StartupFounder" },
    { "Librarian", "Investor" },       { "Accountant", "StockBroker" },
    { "Engineer", "RealEstateAgent" }, { "Pharmacist", "Musician" },
    { "Clerk", "Freelancer" },         { "Technician", "Youtuber" },
    { "Planner", "Artist" },           { "Postman", "Pilot" },
    { "Banker", "VentureCapitalist" }, { "Gardener", "Cryptominer" },
};
static const pair test[] = {
    { "Receptionist", "Explorer" }, { "Archivist", "Filmmaker" },
    { "Bookkeeper", "Consultant" }, { "SocialWorker", "Photographer" },
    { "Mechanic", "GameDesigner" }, { "Secretary", "Entrepreneur" },
    { "Cashier", "DataScientist" }, { "CivilServant", "StartupAccelerator" },
};

typedef struct bandit {
    const bandit_options *o;
    ares_pcg64 stream; /* of the names, the places and the risky arm's pay */
    const char *arm[2];
    int risky;   /* place of the risky arm in `arm` */
    int pulled;  /* place of the arm that was pulled; -1: none yet */
    double paid; /* for the pull */
} bandit;

static int open_bandit(const void *options, const void *shared, void **env)
{
    (void)shared;
    bandit *b = *env = ares_calloc(1, sizeof *b);
    b->o = options;
    return ARES_OK;
}

/* Draws the names, and which of the two places the risky arm has. */
static int reset(void *env, const ares_env_start *start)
{
    bandit *b = env;
    bool testing = strcmp(b->o->split, "test") == 0, named = b->o->safe || b->o->risky;
    const pair *pairs = testing ? test : train;
    const pair given = { b->o->safe ? b->o->safe : "phoenix",
                         b->o->risky ? b->o->risky : "dragon" }; /* RAGEN's names */
    int n = testing ? ARES_COUNT(test) : ARES_COUNT(train);
    /* as in RAGEN: with given names nothing is drawn, and all bandits of a group are alike */
    ares_pcg64_seed(&b->stream, start->seed + (named ? 0 : (uint64_t)start->id));
    const pair *names = named ? &given : &pairs[(int)(ares_pcg64_random(&b->stream) * n)];
    b->risky = ares_pcg64_random(&b->stream) < 0.5;
    b->arm[b->risky] = (*names)[1];
    b->arm[!b->risky] = (*names)[0];
    b->pulled = -1;
    return ARES_OK;
}

/* One pull ends the episode; success is the choice of the risky arm, whatever it pays. */
static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    bandit *b = env;
    b->pulled = action.id;
    b->paid = b->o->low;
    if (b->pulled == b->risky)
        b->paid = ares_pcg64_random(&b->stream) < b->o->p ? b->o->high_win : b->o->high_loss;
    out->reward.value = b->paid;
    out->done = true;
    out->success = b->pulled == b->risky;
    env_tell(out, "action_is_effective", 1);
    env_tell(out, "action_is_valid", 1);
    return ARES_OK;
}

/* The question, or after the pull what it paid; wording is RAGEN's. */
static void render(const void *env, ares_str *out)
{
    const bandit *b = env;
    const char *a = b->arm[0], *c = b->arm[1];
    if (b->pulled >= 0) {
        ares_str_addf(out, "%s: ", b->arm[b->pulled]);
        ares_str_add_double(out, b->paid);
        ares_str_add_z(out, " points");
        return;
    }
    ares_str_addf(
        out,
        "You are playing a bandit game. Goal: Maximize your total reward by choosing "
        "which arm to pull. \nGame Rules: \n1. There are 2 arms, named %s and %s\n2. Each "
        "arm has its own reward distribution, related to their names. \n3. Analyze the "
        "symbolic meaning of each arm's name to guess how their reward distribution "
        "might behave.\n4. Based on the symbolic meaning of their names, which arm do you "
        "think is more likely to give higher rewards on average? Choose between %s and "
        "%s, and output like <answer> %s </answer> or <answer> %s </answer>.\n",
        a, c, a, c, a, c);
}

/* The actions differ by episode: the names of its arms. */
static const char *const *arms(const void *env, int *n)
{
    *n = 2;
    return ((const bandit *)env)->arm;
}

const ares_env_type ares_env_type_bandit = {
    .name = "bandit",
    .doc = "one pull of a safe or a risky arm, told apart by their names",
    .options = bandit_table,
    .options_size = sizeof(bandit_options),
    .open = open_bandit,
    .close = ares_free,
    .reset = reset,
    .step = step,
    .render = render,
    .actions = arms,
};
