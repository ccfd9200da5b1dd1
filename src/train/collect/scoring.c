/* Finished answers are judged while others are still decoded; their scores are there at the end. */
#include "collect/scoring.h"

#include "vapor/vapor.h"

typedef struct judged {
    ares_reward_item item;
    ares_trajectory *trajectory;
    struct judged *next;
} judged;

void scoring_open(scoring *s, const ares_trainer *t, ares_arena *arena)
{
    *s = (scoring){ .reward = t->reward,
                    .tokenizer = t->run.tokenizer,
                    .skip_special_tokens = t->run.cfg->reward.skip_special_tokens,
                    .span = vapor_wanted(t->run.cfg) ? &t->run.cfg->vapor : NULL,
                    .arena = arena };
}

int scoring_submit(scoring *s, const ares_row *row, ares_trajectory *y)
{
    const ares_trajectory_row *answer = &y->rows[0];
    ares_str_clear(&s->text);
    ARES_TRY(ares_tokenizer_decode(s->tokenizer, answer->responses, answer->n_tokens,
                                   s->skip_special_tokens, &s->text));
    y->response =
        (ares_view){ ares_arena_copy(s->arena, s->text.data ? s->text.data : "", s->text.len),
                     s->text.len };
    y->n_parts = ares_reward_count(s->reward);
    y->parts = ares_arena_calloc(s->arena, (size_t)y->n_parts + 1, sizeof *y->parts);
    ares_view text = y->response;
    if (s->span && !vapor_span(s->span, s->tokenizer, y, s->arena, &text))
        return ARES_OK; /* its score is 0, and nothing of it is right */
    judged *x = ares_arena_calloc(s->arena, 1, sizeof *x);
    *x = (judged){ .item = { .in = { .response = text,
                                     .ground_truth = row->ground_truth,
                                     .structured = row->structured,
                                     .prompt = row->prompt_text,
                                     .stopped = y->stopped,
                                     .row = row->json,
                                     .ids = answer->responses,
                                     .response_tokens = answer->n_tokens },
                             .parts = y->parts,
                             .arena = s->arena,
                             .asks_answer = s->votes },
                   .trajectory = y,
                   .next = s->first };
    s->first = x;
    ares_reward_submit(s->reward, &x->item);
    return ARES_OK;
}

void scoring_wait(scoring *s, ares_metrics *m)
{
    double started = ares_now_s();
    ares_reward_wait(s->reward);
    if (m) ares_metrics_add(m, "timing_s/reward", ares_now_s() - started);
    for (const judged *x = s->first; x; x = x->next) {
        x->trajectory->score = x->item.score;
        x->trajectory->unshaped = x->item.unshaped;
        x->trajectory->accuracy = x->item.accuracy;
        x->trajectory->details = x->item.details;
        x->trajectory->vote = x->item.answer;
        x->trajectory->failed = x->item.failed;
    }
    s->first = NULL;
}

void scoring_close(scoring *s, ares_metrics *m)
{
    scoring_wait(s, m);
    ares_str_fini(&s->text);
}
