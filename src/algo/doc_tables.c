/*
 * The tables of docs/algorithms.md, as `ares-train --help-algorithms` prints them: the entries of
 * algo's own tables in their order, and notes on methods that have no entry because they are a
 * choice or a number of an option.
 */
#include <stdio.h>
#include <string.h>

#include "adv/adv.h"
#include "ares/algo.h"
#include "ares/algo_control.h"
#include "ares/algo_filter.h"
#include "ares/algo_loss.h"
#include "filter/filter.h"
#include "loss/loss.h"

typedef struct note {
    const char *name, *doc, *formula, *paper, *needs, *option;
} note;

static const note aggregation_counts[] = {
    { "global", "N and B of the mini-batch over all ranks: no memory knob changes a gradient",
      "as above", "", "", "worker.actor.loss_norm=global" },
    { "micro",
      "N and B of each micro-batch of micro_batch_size_per_device_for_update samples, weights over "
      "the micro-batches of all ranks",
      "as above / micro-batches of all ranks", "verl, RLinf", "", "worker.actor.loss_norm=micro" },
    { "valid_token_scope", "N of all mini-batches of the step", "1 / N of the step", "RLinf",
      "token-mean", "worker.actor.valid_token_scope=rollout" },
};

static const note critic[] = {
    { "value", "squared error, clipped around the old value",
      "max((v - R)^2, (clip(v, old - range, old + range) - R)^2) / 2", "arXiv 1707.06347",
      "a critic", "worker.critic.cliprange_value=0.5" },
};

static const note entropies[] = {
    { "token entropy", "exact, over the whole vocabulary, with its gradient",
      "H = log sum exp z - sum p z", "", "logits", "" },
    { "entropy bonus", "a term of the loss", "- entropy_coeff H", "arXiv 1707.06347, equation 9",
      "", "worker.actor.entropy_coeff=0.001" },
    { "top-k with tail",
      "of the likeliest candidates, what they leave of the mass as one more outcome",
      "H = - sum p log p - rest log rest", "ARES's source", "", "ares_entropy_top_k in C" },
    { "window entropy", "the mean entropy of the w tokens after a token",
      "W_t = (H_{t+1} + ... + H_{t+w}) / w", "ARES, arXiv 2510.08457", "",
      "worker.rollout.window_size=4" },
    { "sample's threshold",
      "a percentile of a response's windows, those without enough tokens at their mean",
      "percentile(W, q), linear between order statistics", "ARES, arXiv 2510.08457", "",
      "algorithm.entropy_percentile=95" },
    { "tau", "the threshold, a moving average", "tau <- ema tau + (1 - ema) median over responses",
      "ARES, arXiv 2510.08457", "", "algorithm.entropy_threshold_ema=0.99" },
    { "HWE tokens", "tokens of high window entropy, and their number", "W_t >= tau",
      "ARES, arXiv 2510.08457", "", "algorithm.aepo=true" },
};

static const note controllers[] = {
    { "fixed", "KL in the reward at a constant coefficient", "r_t - kl_coef KL_t",
      "arXiv 1909.08593", "a reference", "algorithm.kl_type=fixed" },
    { "KL loss", "KL as a term of the loss at a constant coefficient", "+ kl_coef KL_t",
      "arXiv 2402.03300", "a reference", "algorithm.use_kl_loss=true" },
    { "dynamic KL", "KL weighed by token: less at HWE tokens, steered by difficulty",
      "KL_t x factor of the difficulty x (hwe_kl_scale at HWE tokens)", "ARES, arXiv 2510.08457",
      "a reference, prompts told apart", "worker.actor.dynamic_kl_loss=true" },
    { "dual_ascent", "dynamic KL: a budget of KL by difficulty",
      "lambda <- max(0, lambda + kl_lambda_lr (KL - budget))", "ARES, arXiv 2510.08457",
      "dynamic KL", "algorithm.kl_bucket_controller=dual_ascent" },
    { "log_space", "dynamic KL: a target of KL by difficulty",
      "ln beta <- ln beta + lr clip(error, -c, c), error smoothed of KL / target - 1",
      "ARES, arXiv 2510.08457", "dynamic KL", "algorithm.kl_bucket_controller=log_space" },
    { "difficulty_aware_kl_penalty", "KL by difficulty",
      "KL_t x 2, 1, 0.5 for easy, medium, hard prompts", "ARES, arXiv 2510.08457",
      "a reference, prompts told apart", "algorithm.difficulty_aware_kl_penalty=true" },
    { "second chance", "less KL for answers that explore and fail", "KL_t x second_chance_kl_relax",
      "ARES, arXiv 2510.08457", "a reference", "worker.actor.enable_second_chance_kl=true" },
};

static const note corrections[] = {
    { "token", "a weight for each token", "w = exp(log old - log rollout)", "Yao et al. 2025", "",
      "worker.actor.rollout_is=token" },
    { "sequence", "one for a row: of the product of its tokens", "w = exp(sum over the row)",
      "verl", "whole rows", "worker.actor.rollout_is=sequence" },
    { "geometric", "one for a row: of their geometric mean", "w = exp(mean over the row)", "verl",
      "whole rows", "worker.actor.rollout_is=geometric" },
    { "truncate", "weights held between thresholds", "max(lower, min(w, rollout_is_threshold))",
      "Yao et al. 2025", "rollout_is", "worker.actor.rollout_is_mode=truncate" },
    { "mask", "0 outside of the thresholds", "w where lower <= w <= rollout_is_threshold, else 0",
      "IcePop; verl", "rollout_is", "worker.actor.rollout_is_mode=mask" },
    { "batch mean", "weights divided by their mean over the step", "w / mean w", "verl",
      "rollout_is", "worker.actor.rollout_is_batch_normalize=true" },
    { "token_k1 ... seq_max_k3", "tokens or rows that leave the update",
      "k1 = -x, k2 = x^2 / 2, k3 = e^x - 1 - x, x = log old - log rollout; of tokens, or sum, "
      "mean, "
      "largest of a row; kept within rollout_rs_threshold",
      "verl", "", "worker.actor.rollout_rs=token_k1 worker.actor.rollout_rs_threshold=0.5_2.0" },
    { "veto", "rows with a token that the trainer finds far less likely leave the update",
      "kept where x >= log rollout_token_veto_threshold of all tokens", "verl", "whole rows",
      "worker.actor.rollout_token_veto_threshold=1e-4" },
    { "importance_sampling_fix", "advantages weighed in place of losses",
      "A min(exp(log old - log rollout), importance_sampling_clip)", "RLinf", "",
      "algorithm.importance_sampling_fix=true" },
    { "early stop", "tokens whose mean ratio is too large teach nothing",
      "gradient 0 where mean r > early_stop_imp_ratio", "RLinf", "whole mini-batch, or micro",
      "worker.actor.early_stop_imp_ratio=5" },
};

/* ---------------------------------------------------------------- Markdown */
/* Text of a cell: what Markdown would read as markup gets a backslash. */
static void add_text(ares_str *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("|<\\*", *text)) ares_str_add_char(out, '\\');
        ares_str_add_char(out, *text);
    }
}

/* A cell set as code, where only | must be escaped; nothing for an empty text. */
static void add_code(ares_str *out, const char *text)
{
    if (!*text) return;
    ares_str_add_char(out, '`');
    /* GitHub unescapes it, also in code */
    for (; *text; text++) ares_str_addf(out, "%s%c", *text == '|' ? "\\" : "", *text);
    ares_str_add_char(out, '`');
}

/* A heading and the first two lines of its table. */
static void head(ares_str *out, const char *title, const char *formula)
{
    ares_str_addf(
        out, "%s## %s\n\n| name | what | %s | from | needs | option |\n|---|---|---|---|---|---|\n",
        out->len ? "\n" : "", title, formula);
}

/*
 * A row of the table. words: the name and its aliases, "name=alias=alias". A name with blanks is no
 * option's value and is not set as code.
 */
static void row(ares_str *out, const char *words, const note *n)
{
    ares_str_add_z(out, "| ");
    if (strchr(n->name, ' ')) add_text(out, n->name);
    else add_code(out, n->name);
    for (const char *w = strchr(words, '='); w; w = strchr(w + 1, '=')) {
        size_t len = strcspn(w + 1, "=");
        ares_str_addf(out, ", `%.*s`", (int)len, w + 1);
    }
    ares_str_add_z(out, " | ");
    add_text(out, n->doc);
    ares_str_add_z(out, " | ");
    add_code(out, n->formula);
    ares_str_add_z(out, " | ");
    add_text(out, n->paper);
    ares_str_add_z(out, " | ");
    add_text(out, n->needs);
    ares_str_add_z(out, " | ");
    add_code(out, n->option);
    ares_str_add_z(out, " |\n");
}

static void notes(ares_str *out, const note *n, int count)
{
    for (int i = 0; i < count; i++) row(out, n[i].name, &n[i]);
}

static const char *option_of(char text[128], const char *path, const char *name)
{
    (void)snprintf(text, 128, "%s=%s", path, name);
    return text;
}

/* The page docs/ has of all methods: written from the entries, so that it cannot fall behind. */
/* p: student, q: teacher, x = log p - log q of the sampled token. */
static const note distillation[] = {
    { "forward KL", "mass-covering: the student covers what the teacher may write",
      "sum over the vocabulary of q (log q - log p)", "GKD, arXiv 2306.13649", "a teacher's logits",
      "distillation.distillation_loss.beta=0" },
    { "reverse KL", "mode-seeking: the student leaves what the teacher would not write",
      "sum over the vocabulary of p (log p - log q)", "GKD; On-Policy Distillation, 2025",
      "a teacher's logits", "distillation.distillation_loss.beta=1" },
    { "generalised JSD", "between the two; beta is the teacher's share of the mixture",
      "beta KL(q || m) + (1 - beta) KL(p || m), m = (1 - beta) p + beta q", "GKD, arXiv 2306.13649",
      "a teacher's logits", "distillation.distillation_loss.beta=0.5" },
    { "k2, k3, k1+ ...", "the estimators of algorithm.kl_penalty, to the teacher", "as of the KL",
      "verl", "a teacher", "distillation.distillation_loss.loss_mode=k3" },
    { "policy gradient", "the log-ratio of the sampled token is an advantage",
      "A - distillation_loss_coef r_t, r_t = x_t + kl_discount_factor r_{t+1}",
      "tinker-cookbook; slime", "a teacher",
      "distillation.distillation_loss.loss_mode=k1 "
      "distillation.distillation_loss.use_policy_gradient=true" },
    { "stored answers", "a share of prompts is learnt from answers in the data", "1 - lmbda",
      "GKD, arXiv 2306.13649", "stored answers", "distillation.lmbda=0.5" },
    { "self-teacher with a hint", "the policy that has read the row's solution teaches it",
      "q: the policy after teacher_prompt_template", "SDFT, arXiv 2601.19897; OPSD, 2601.18734",
      "the context in the row", "distillation.context=row" },
    { "self-teacher of a group", "the policy that has read a right answer, or feedback, teaches it",
      "q: the policy after reprompt_template", "SDPO, arXiv 2601.20802", "groups, or feedback",
      "distillation.context=group" },
    { "moving teacher", "an average of the policies so far",
      "teacher <- (1 - update_rate) teacher + update_rate policy", "SDPO, arXiv 2601.20802",
      "one copy of the weights", "distillation.teacher_model.kind=ema" },
};

void ares_algo_tables(ares_str *out)
{
    char option[128];
    int count;
    head(out, "Advantages", "of a token");
    const ares_adv *const *adv = adv_list(&count);
    for (int i = 0; i < count; i++) {
        unsigned f = adv[i]->needs;
        const char *needs = f & ARES_NEEDS_VALUES     ? "a critic"
                            : f & ARES_NEEDS_BASELINE ? "a greedy answer to each prompt"
                            : f & ARES_NEEDS_SUM_PI_SQUARED
                                ? "groups, and a second pass for old log-probs"
                            : f & ARES_NEEDS_GROUPS ? "groups (rollout.n of 2 or more)"
                                                    : "";
        row(out, adv[i]->name,
            &(note){ adv[i]->name, adv[i]->doc, adv[i]->formula, adv[i]->paper, needs,
                     option_of(option, "algorithm.adv_estimator", adv[i]->name) });
    }

    head(out, "Policy losses", "of a token");
    const ares_loss *const *loss = loss_list(&count);
    for (int i = 0; i < count; i++) {
        unsigned f = loss[i]->flags;
        const char *needs = f & ARES_LOSS_LOCAL   ? "the token alone"
                            : f & ARES_LOSS_ROWS  ? "whole rows"
                            : f & ARES_LOSS_BATCH ? "the whole mini-batch, on all ranks"
                                                  : "stored answers beside the completions";
        row(out, loss[i]->words, /* all words of the option, aliases included */
            &(note){ loss[i]->name, loss[i]->doc, loss[i]->formula, loss[i]->paper, needs,
                     option_of(option, "worker.actor.loss_type", loss[i]->name) });
    }
    notes(out, critic, ARES_COUNT(critic));

    head(out, "From token losses to one", "weight of a token");
    const agg_mode *agg = agg_list(&count);
    for (int i = 0; i < count; i++)
        row(out, agg[i].name,
            &(note){ agg[i].name, agg[i].doc, agg[i].formula, agg[i].paper, "",
                     option_of(option, "worker.actor.loss_avg_mode", agg[i].name) });
    notes(out, aggregation_counts, ARES_COUNT(aggregation_counts));

    head(out, "KL to the reference model", "value, x = log pi - log ref");
    const char *const *words = ares_kl_names(&count);
    for (int i = 0; i < count; i++) {
        char name[32]; /* the first of the words "name=alias=alias" */
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(words[i], "="), words[i]);
        const ares_kl *kl = ares_kl_find(name);
        row(out, words[i],
            &(note){ kl->name, kl->doc, kl->formula, kl->paper,
                     kl->value ? "a reference" : "the logits of both models",
                     option_of(option, "algorithm.kl_penalty", kl->name) });
    }

    head(out, "Distillation", "value of a token");
    notes(out, distillation, ARES_COUNT(distillation));

    head(out, "Entropy", "formula");
    notes(out, entropies, ARES_COUNT(entropies));

    head(out, "Group filters", "what stays");
    const ares_filter *const *filter = ares_filter_list(&count);
    for (int i = 0; i < count; i++)
        row(out, filter[i]->name,
            &(note){ filter[i]->name, filter[i]->doc, filter[i]->formula, filter[i]->paper,
                     "groups", filter[i]->option });

    head(out, "Controllers", "rule");
    const ares_control *const *control = ares_control_list(&count);
    for (int i = 0; i < count; i++)
        row(out, control[i]->name,
            &(note){ control[i]->name, control[i]->doc, control[i]->formula, control[i]->paper,
                     control[i]->needs & ARES_CONTROL_NEEDS_GIDS ? "prompts told apart" : "",
                     control[i]->option });
    notes(out, controllers, ARES_COUNT(controllers));

    head(out, "When the sampler is not the trainer", "rule");
    notes(out, corrections, ARES_COUNT(corrections));
}
