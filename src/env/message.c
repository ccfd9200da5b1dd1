/* From a model's answer to its actions, and what a conversation with an environment says. */
#include <stdio.h>
#include <string.h>

#include "ares/env.h"

/*
 * From what the model wrote to the actions, and to the text that the conversation keeps, as RAGEN's
 * context manager does it. In addition, every special token of the template is removed from the
 * text, even one that appears only when another is removed, so that no answer can end a turn or
 * forge a role.
 */

/* RAGEN's defaults; training sets them from the options. */
ares_env_format ares_env_format_default(void)
{
    static const char *const specials[] = { "<|im_start|>", "<|im_end|>" };
    return (ares_env_format){ .think = true,
                              .separator = "||",
                              .max_actions_per_turn = 2,
                              .specials = specials,
                              .n_specials = ARES_COUNT(specials) };
}

/* ---------------- white space, as Python's str.strip and \s know it */
/* Bytes of the white space that begins here; 0: none does. */
static size_t space_at(const char *s, size_t len)
{
    static const char *const wide[] = {
        "\xc2\x85", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",
        "\u2004",   "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
        "\u2028",   "\u2029", "\u202f", "\u205f", "\u3000",
    };
    unsigned char c = len ? (unsigned char)*s : 'x';
    if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    for (int i = 0; i < ARES_COUNT(wide); i++) {
        size_t n = strlen(wide[i]);
        if (n <= len && memcmp(s, wide[i], n) == 0) return n;
    }
    return 0;
}

/* Without white space at both ends. A character of white space has three bytes at most. */
static ares_view stripped(ares_view v)
{
    for (size_t n; (n = space_at(v.data, v.len)) != 0; v.len -= n) v.data += n;
    for (;;) {
        size_t n = 0;
        for (size_t k = 1; k <= 3 && k <= v.len && !n; k++)
            if (space_at(v.data + v.len - k, k) == k) n = k;
        if (!n) return v;
        v.len -= n;
    }
}

/* ---------------- taking out */
/* v without the token, taken out once from left to right as Python's replace does, and stripped. */
static ares_view without(ares_view v, ares_view token, ares_arena *arena)
{
    int64_t at = ares_view_find(v, token, 0);
    if (at < 0) return stripped(v);
    char *copy = ares_arena_alloc(arena, v.len + 1);
    size_t from = 0, n = 0;
    for (; at >= 0; at = ares_view_find(v, token, from)) {
        memcpy(copy + n, v.data + from, (size_t)at - from);
        n += (size_t)at - from;
        from = (size_t)at + token.len;
    }
    memcpy(copy + n, v.data + from, v.len - from);
    return stripped((ares_view){ copy, n + v.len - from });
}

/* v without special tokens; removing one may complete another, which is removed too. */
ares_view ares_env_without_specials(const ares_env_format *f, ares_view v, ares_arena *arena)
{
    bool any = false;
    for (int i = 0; i < f->n_specials; i++)
        any = any || ares_view_find(v, ares_view_of(f->specials[i]), 0) >= 0;
    if (!any) return v; /* the usual case: nothing is copied */
    char *copy = ares_arena_alloc(arena, v.len + 1);
    size_t n = 0;
    for (size_t at = 0; at < v.len; at++) {
        copy[n++] = v.data[at];
        for (int i = 0; i < f->n_specials; i++) {
            size_t length = strlen(f->specials[i]);
            if (n >= length && memcmp(copy + n - length, f->specials[i], length) == 0) n -= length;
        }
    }
    return (ares_view){ copy, n };
}

/* A part of the answer without tags and special tokens. */
static ares_view cleaned(const ares_env_format *f, ares_view v, ares_arena *arena)
{
    static const char *const tags[] = { "<think>", "</think>", "<answer>", "</answer>" };
    for (int i = 0; i < ARES_COUNT(tags); i++) v = without(v, ares_view_of(tags[i]), arena);
    for (int i = 0; i < f->n_specials; i++) v = without(v, ares_view_of(f->specials[i]), arena);
    return stripped(ares_env_without_specials(f, v, arena));
}

/* ---------------- the parts */
/* The bytes [begin, end) of v. */
static ares_view between(ares_view v, size_t begin, size_t end)
{
    return (ares_view){ v.data + begin, end - begin };
}

/*
 * Finds thought and answer in v, where both views lie. The thought ends at the first </think> that
 * <answer> follows after white space at most; the answer ends at the first </answer>.
 */
static bool find_parts(ares_view v, bool think, ares_view *thought, ares_view *answer)
{
    const ares_view open = ARES_VIEW("<think>"), close = ARES_VIEW("</think>"),
                    begin = ARES_VIEW("<answer>"), end = ARES_VIEW("</answer>");
    int64_t at, from = 0, last;
    if (think) {
        if ((at = ares_view_find(v, open, 0)) < 0) return false;
        size_t inside = (size_t)at + open.len, next;
        at = (int64_t)inside;
        for (;;) {
            if ((at = ares_view_find(v, close, (size_t)at)) < 0) return false;
            *thought = between(v, inside, (size_t)at);
            next = (size_t)at + close.len;
            for (size_t n; (n = space_at(v.data + next, v.len - next)) != 0;) next += n;
            if (ares_view_starts(between(v, next, v.len), begin)) break;
            at = (int64_t)next;
        }
        from = (int64_t)(next + begin.len);
    } else {
        if ((at = ares_view_find(v, begin, 0)) < 0) return false;
        from = at + (int64_t)begin.len;
    }
    if ((last = ares_view_find(v, end, (size_t)from)) < 0) return false;
    *answer = between(v, (size_t)from, (size_t)last);
    return true;
}

/* Splits the answer; returns it, rebuilt where actions were left out. */
static ares_view split(const ares_env_format *f, ares_view answer, ares_arena *arena,
                       ares_env_answer *out)
{
    ares_view separator = ares_view_of(f->separator);
    size_t from = 0;
    int64_t most = f->max_actions_per_turn, pieces = 1;
    for (int64_t at = -1; (at = ares_view_find(answer, separator, from)) >= 0; pieces++)
        from = (size_t)at + separator.len;
    out->actions = ares_arena_alloc(arena, (size_t)ARES_MIN(pieces, most) * sizeof *out->actions);
    bool more = false;
    from = 0;
    for (int64_t i = 0; i < pieces && !more; i++) { /* empty pieces are no actions */
        int64_t at = ares_view_find(answer, separator, from);
        ares_view action = stripped(between(answer, from, at < 0 ? answer.len : (size_t)at));
        from = (size_t)at + separator.len;
        if (!action.len) continue;
        if (out->n_actions == most) more = true;
        else out->actions[out->n_actions++] = action;
    }
    if (!more) return answer;
    /* The text grows by no more than the two blanks around each separator. */
    char *text = ares_arena_alloc(arena, answer.len + 2 * (size_t)out->n_actions + 1), *to = text;
    for (int i = 0; i < out->n_actions; i++) {
        if (i) to += sprintf(to, " %s ", f->separator);
        to = mempcpy(to, out->actions[i].data, out->actions[i].len);
    }
    return (ares_view){ text, (size_t)(to - text) };
}

/* "Left || Up</answer>" after "..</think><answer>" gives the actions "Left" and "Up". */
void ares_env_answer_parse(const ares_env_format *f, ares_view generated, ares_arena *arena,
                           ares_env_answer *out)
{
    ares_view thought = { "", 0 }, answer;
    const char *first = f->think ? "<think>" : "<answer>";
    ARES_ASSERT(*f->separator && f->max_actions_per_turn >= 1);
    size_t head = strlen(first);
    /* the prompt ends with the first tag, which the model therefore does not write */
    char *whole = ares_arena_alloc(arena, head + generated.len + 1);
    memcpy(whole, first, head);
    if (generated.len) memcpy(whole + head, generated.data, generated.len);
    *out = (ares_env_answer){ .raw = { whole, head + generated.len } };
    out->matched = find_parts(out->raw, f->think, &thought, &answer);
    if (!out->matched) {
        out->text = ares_env_without_specials(f, out->raw, arena);
        return;
    }
    thought = cleaned(f, thought, arena);
    answer = split(f, cleaned(f, answer, arena), arena, out);
    size_t size = thought.len + answer.len + sizeof "<think></think><answer></answer>";
    char *text = ares_arena_alloc(arena, size), *to = text;
    if (f->think) {
        to = stpcpy(to, "<think>");
        to = mempcpy(to, thought.data, thought.len);
        to = stpcpy(to, "</think>");
    }
    to = stpcpy(to, "<answer>");
    to = mempcpy(to, answer.data, answer.len);
    to = stpcpy(to, "</answer>");
    out->text = (ares_view){ text, (size_t)(to - text) };
}

/* What a conversation with an environment says; wording and blanks are RAGEN's. */

/* The first message: the task, the symbols of states, the actions. */
void ares_env_system_message(const ares_env *e, const ares_env_format *f, ares_str *out)
{
    const ares_env_definition *d = e->definition;
    int n;
    ares_str_addf(out, "You're a helpful assistant. %s", d->texts.instruction);
    if (d->type->vocabulary) {
        ares_str_add_z(out, "\nThe meaning of each symbol in the state is:\n");
        d->type->vocabulary(d->options, out);
    }
    /* a built-in type whose actions differ by episode (bandit) names them in its states */
    if (!d->type->action_names && !d->type->waits) return;
    const char *const *names = ares_env_actions(e, &n);
    if (names) ares_str_add_z(out, "\nYour available actions are:\n");
    for (int i = 0; names && i < n; i++) ares_str_addf(out, "%s%s", i ? ", " : "", names[i]);
    ares_str_addf(out,
                  "\nYou can make up to %lld actions, separated by the action separator \" %s \"\n",
                  (long long)d->texts.max_actions, f->separator);
}

/* "Reward:\n-0.1\n", after each turn. */
void ares_env_reward_message(ares_env_reward reward, ares_str *out)
{
    ares_str_add_z(out, "Reward:\n");
    ares_env_reward_write(out, reward);
    ares_str_add_char(out, '\n');
}

/* The state, and how an answer must look. */
void ares_env_turn_message(const ares_env *e, const ares_env_format *f, ares_str *out)
{
    ares_str_addf(out, "\nTurn %lld:\nState:\n", (long long)e->turns + 1);
    ares_env_render(e, out);
    ares_str_add_char(out, '\n');
    if (e->no_valid_action)
        ares_str_add_z(out, "No valid action provided previously. Environment state remains the "
                            "same. Please try again.\n");
    ares_str_addf(
        out,
        "You have %lld actions left. Always output: %s<answer> [your answer] </answer> "
        "with no extra text. Strictly follow this format. Max response length: %lld words "
        "(tokens).\n",
        (long long)ares_env_actions_left(e), f->think ? "<think> [Your thoughts] </think> " : "",
        (long long)e->definition->texts.max_tokens);
}
