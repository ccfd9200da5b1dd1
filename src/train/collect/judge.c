/* Finished answers are judged while others are still decoded; their scores are there at the end. */
#include "collect/judge.h"

typedef struct judged {
    ares_reward_item item;
    ares_trajectory *trajectory;
    struct judged *next;
} judged;

void judge_open(judge *j, const ares_trainer *t, ares_arena *arena)
{
    *j = (judge){ .reward = t->reward,
                  .tokenizer = t->run.tokenizer,
                  .skip_special_tokens = t->run.cfg->reward.skip_special_tokens,
                  .arena = arena };
}

int judge_submit(judge *j, const ares_row *row, ares_trajectory *y)
{
    const ares_trajectory_row *answer = &y->rows[0];
    judged *x = ares_arena_calloc(j->arena, 1, sizeof *x);
    ares_str_clear(&j->text);
    ARES_TRY(ares_tokenizer_decode(j->tokenizer, answer->responses, answer->n_tokens,
                                   j->skip_special_tokens, &j->text));
    y->response =
        (ares_view){ ares_arena_copy(j->arena, j->text.data ? j->text.data : "", j->text.len),
                     j->text.len };
    y->n_parts = ares_reward_count(j->reward);
    y->parts = ares_arena_calloc(j->arena, (size_t)y->n_parts + 1, sizeof *y->parts);
    *x = (judged){ .item = { .in = { .response = y->response,
                                     .ground_truth = row->ground_truth,
                                     .prompt = row->prompt_text,
                                     .stopped = y->stopped,
                                     .row = row->json,
                                     .ids = answer->responses,
                                     .response_tokens = answer->n_tokens },
                             .parts = y->parts },
                   .trajectory = y,
                   .next = j->first };
    j->first = x;
    ares_reward_submit(j->reward, &x->item);
    return ARES_OK;
}

void judge_close(judge *j, ares_metrics *m)
{
    double started = ares_now_s();
    ares_reward_wait(j->reward);
    if (m) ares_metrics_add(m, "timing_s/reward", ares_now_s() - started);
    for (const judged *x = j->first; x; x = x->next) {
        x->trajectory->score = x->item.score;
        x->trajectory->unshaped = x->item.unshaped;
        x->trajectory->accuracy = x->item.accuracy;
    }
    ares_str_fini(&j->text);
}
