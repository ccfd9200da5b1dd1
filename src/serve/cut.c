/*
 * The text of an answer while it grows: stop strings, whole characters, calls and thoughts, and
 * which tokens go with which piece of text.
 *
 * Two texts are kept. `text` is what stop strings and calls are searched in: every token, special
 * ones as their text, bytes that are no character as U+FFFD. `shown` is bytes that a client may
 * see: those of special tokens are left out before bytes become characters, as `generate` does, so
 * a character may lie around a hidden token. `at` leads from a byte of text to one of shown.
 *
 * Stop strings are followed by the automaton of Knuth, Morris and Pratt, a state per string: the
 * longest state is what may begin a stop string and is held back.
 */
#include "openai.h"

#include <stdlib.h>

const char *const serve_finish_names[] = { "stop", "length", "tool_calls" };

static const ares_view think = { "<think>", 7 };

typedef struct stop_string {
    char *data;
    size_t len, matched; /* matched: bytes that the end of the text has of it */
    uint32_t *border; /* [len] of its first i + 1 bytes: the longest proper prefix at their end */
} stop_string;

typedef enum { THOUGHT_UNKNOWN, THOUGHT_OPEN, THOUGHT_OVER } thought_state;

struct serve_cut {
    serve_cut_options options;
    stop_string *stop;
    ares_str text;
    size_t *at, cap_at; /* [text.len] of the character of each byte: bytes of `shown` before it */
    unsigned char broken[4];
    size_t broken_at[4]; /* bytes that may become a character, and where shown was before each */
    int n_broken;
    ares_str shown;
    size_t seen, out;  /* of shown: read, and given out or passed over; white space between them */
    bool at_beginning; /* white space is passed over until there is a character */
    int64_t *ends;     /* [n_tokens] of shown, after each token */
    int64_t n_tokens, cap_tokens, next; /* next: the first token that no piece has carried */

    /* of text */
    size_t content_from; /* where content begins, after thoughts */
    size_t scanned;      /* searched for </think> */
    size_t thought_end;  /* after the first </think>; 0: none so far */
    size_t calls_from;   /* searched for <tool_call> up to here */
    bool in_call, no_one_call;
    size_t call_at;  /* in_call: where the first call begins */
    size_t one_call; /* where the call ends that ended the answer; 0: none did */
    thought_state thought;
    bool thought_begun;

    bool ended, by_id;
    size_t cut;       /* stop >= 0: where content ends */
    size_t shown_end; /* by_id: of shown, before the last token */
    ares_str content, reasoning, sampled;
    size_t content_out, reasoning_out; /* of these: what earlier pieces have given */
    ares_arena arena;
    serve_answer answer;
};

static bool is_white(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ------------------------------------------------------------------ stop strings */
static void stop_init(stop_string *s, ares_view text)
{
    ARES_ASSERT(text.len);
    *s = (stop_string){ .data = ares_malloc(text.len), .len = text.len };
    memcpy(s->data, text.data, text.len);
    s->border = ares_calloc(text.len, sizeof *s->border);
    for (size_t i = 1, k = 0; i < s->len; i++) {
        while (k && s->data[i] != s->data[k]) k = s->border[k - 1];
        if (s->data[i] == s->data[k]) k++;
        s->border[i] = (uint32_t)k;
    }
}

/* True: the string is complete with this byte. */
static bool stop_step(stop_string *s, char c)
{
    if (s->matched == s->len) s->matched = s->border[s->len - 1];
    while (s->matched && s->data[s->matched] != c) s->matched = s->border[s->matched - 1];
    if (s->data[s->matched] == c) s->matched++;
    return s->matched == s->len;
}

/* ------------------------------------------------------------------ bytes to characters */
/* A character of text; `before`: shown's bytes before it. */
static void add_character(serve_cut *c, ares_view bytes, size_t before, bool sampled)
{
    if (c->text.len + bytes.len > c->cap_at) {
        c->cap_at = ARES_MAX(c->text.len + bytes.len, 2 * c->cap_at);
        c->at = ares_realloc(c->at, c->cap_at * sizeof *c->at);
    }
    for (size_t i = 0; i < bytes.len; i++) {
        c->at[c->text.len] = before;
        ares_str_add_char(&c->text, bytes.data[i]);
        for (int k = 0; sampled && k < c->options.n_stop; k++) {
            if (!stop_step(&c->stop[k], bytes.data[i])) continue;
            size_t begins = c->text.len - c->stop[k].len;
            /* the one that begins first, then the first of the list */
            if (c->answer.stop >= 0) {
                size_t other = c->cut;
                if (begins > other || (begins == other && k >= c->answer.stop)) continue;
            }
            c->answer.stop = k;
            c->cut = begins;
        }
    }
}

/* Whether bytes at the end of what is there may become a character with more of them. */
static bool may_grow(int len, size_t left, unsigned char lead)
{
    return len < 0 && (size_t)-len == left && lead >= 0xC2 && lead <= 0xF4;
}

/* Makes characters of c->broken; final: what is left is broken for good. */
static void take_characters(serve_cut *c, bool final)
{
    while (c->n_broken) {
        uint32_t code;
        const char *p = (const char *)c->broken;
        int len = ares_utf8_next(p, p + c->n_broken, &code), taken = abs(len);
        if (!final && may_grow(len, (size_t)c->n_broken, c->broken[0])) return;
        add_character(c, len > 0 ? (ares_view){ p, (size_t)len } : ARES_VIEW("\xEF\xBF\xBD"),
                      c->broken_at[0], true);
        c->n_broken -= taken;
        memmove(c->broken, c->broken + taken, (size_t)c->n_broken);
        memmove(c->broken_at, c->broken_at + taken, (size_t)c->n_broken * sizeof c->broken_at[0]);
    }
}

/* The byte of shown at which the character at byte i of the text begins. */
static size_t shown_at(const serve_cut *c, size_t i)
{
    return i < c->text.len ? c->at[i] : c->n_broken ? c->broken_at[0] : c->shown.len;
}

/* ------------------------------------------------------------------ shown to pieces */
/*
 * Gives shown's characters up to `limit` to a piece. final: bytes that wait for more become U+FFFD.
 * trim: white space at the end waits, because what follows may make it vanish.
 */
static void give(serve_cut *c, size_t limit, bool final, bool trim, ares_str *to)
{
    while (c->seen < limit) {
        const char *p = c->shown.data + c->seen;
        uint32_t code;
        int len = ares_utf8_next(p, c->shown.data + limit, &code);
        if (!final && may_grow(len, limit - c->seen, (unsigned char)*p)) break;
        size_t from = c->seen;
        c->seen += (size_t)abs(len);
        if (is_white((unsigned char)*p) && (c->at_beginning || trim)) {
            if (c->at_beginning) c->out = c->seen;
            continue;
        }
        c->at_beginning = false;
        ares_str_add(to, c->shown.data + c->out, from - c->out);
        if (len > 0) ares_str_add(to, p, (size_t)len);
        else ares_str_add_z(to, "\xEF\xBF\xBD");
        c->out = c->seen;
    }
    if (trim || c->out >= c->seen) return;
    ares_str_add(to, c->shown.data + c->out, c->seen - c->out);
    c->out = c->seen;
}

/* Passes over shown up to a byte. */
static void pass(serve_cut *c, size_t to)
{
    c->out = c->seen = to;
    c->at_beginning = true;
}

/* How many bytes at the end of the text may begin the tag. */
static size_t may_begin(ares_view text, ares_view tag)
{
    size_t n = ARES_MIN(text.len, tag.len - 1);
    while (n && memcmp(text.data + text.len - n, tag.data, n) != 0) n--;
    return n;
}

static int64_t find_from(ares_view text, ares_view tag, size_t *scanned)
{
    int64_t found = ares_view_find(text, tag, *scanned);
    *scanned = text.len - may_begin(text, tag);
    return found;
}

/*
 * The byte of the text from which on a call may stand; all before is content. certain: the text
 * that no stop string can cut any more.
 */
static size_t before_calls(serve_cut *c, ares_view certain)
{
    size_t begin = c->thought_end;
    if (c->options.form == SERVE_FORM_HERMES) {
        if (c->calls_from < begin) c->calls_from = begin, c->in_call = false;
        if (!c->in_call && c->calls_from < certain.len) {
            int64_t tag = find_from(certain, serve_call_tag, &c->calls_from);
            c->in_call = tag >= 0;
            c->call_at = c->in_call ? (size_t)tag : 0;
        }
        return c->in_call ? c->call_at : ARES_MAX(begin, c->calls_from);
    }
    while (begin < certain.len && is_white((unsigned char)certain.data[begin])) begin++;
    ares_view rest = { certain.data + begin, certain.len - begin };
    bool may = rest.len == 0 || rest.data[0] == '{' || ares_view_starts(rest, serve_python_tag) ||
               ares_view_starts(serve_python_tag, rest);
    c->in_call = rest.len && may && ares_view_find(rest, ARES_VIEW("{"), 0) >= 0;
    c->call_at = begin;
    return may ? begin : certain.len;
}

/*
 * Thoughts are given to `reasoning` as soon as it is sure that they are some: the answer begins
 * with <think>, the prompt has opened it, or </think> has come. True: what follows is content.
 */
static bool give_thoughts(serve_cut *c, ares_view certain, size_t end_of_shown, bool final)
{
    if (!c->options.reasoning || c->thought == THOUGHT_OVER) return true;
    if (!c->thought_begun) {
        size_t i = 0;
        while (i < certain.len && is_white((unsigned char)certain.data[i])) i++;
        ares_view rest = { certain.data + i, certain.len - i };
        bool starts = ares_view_starts(rest, think);
        if (!starts && ares_view_starts(think, rest) && !final)
            return false; /* it may become one */
        c->thought_begun = true;
        pass(c, starts ? shown_at(c, i + think.len) : 0);
        if (starts || c->options.opened) c->thought = THOUGHT_OPEN;
    }
    if (c->thought_end) {
        give(c, shown_at(c, c->thought_end - serve_think_end.len), true, true, &c->reasoning);
        pass(c, shown_at(c, c->thought_end));
        c->content_from = c->thought_end;
        c->thought = THOUGHT_OVER;
        return true;
    }
    if (c->thought == THOUGHT_OPEN) {
        size_t held = certain.len - may_begin(certain, serve_think_end);
        give(c, final ? end_of_shown : shown_at(c, held), final, true, &c->reasoning);
    }
    return false;
}

static ares_view since(const ares_str *s, size_t from)
{
    return from < s->len ? (ares_view){ s->data + from, s->len - from } : ARES_VIEW("");
}

/* The piece since the last one, with the tokens up to `end`. */
static void take_piece(serve_cut *c, int64_t end, serve_piece *piece)
{
    *piece = (serve_piece){
        .content = since(&c->content, c->content_out),
        .reasoning = since(&c->reasoning, c->reasoning_out),
        .first = c->next,
        .end = end,
    };
    c->content_out = c->content.len;
    c->reasoning_out = c->reasoning.len;
    c->next = end;
}

/* Whether the text's first call is complete, for answers that end there. */
static bool first_call_is_complete(serve_cut *c, ares_view token)
{
    ares_view text = ares_str_view(&c->text);
    if (!c->options.one_call || c->no_one_call || !c->in_call) return false;
    size_t end = 0;
    if (c->options.form == SERVE_FORM_HERMES) {
        int64_t found = ares_view_find(text, serve_call_close, c->call_at + serve_call_tag.len);
        end = found < 0 ? 0 : (size_t)found + serve_call_close.len;
    } else if (ares_view_find(token, ARES_VIEW("}"), 0) >= 0) {
        end = serve_json_end(text, (size_t)ares_view_find(text, ARES_VIEW("{"), c->call_at));
    }
    if (!end) return false;
    ares_arena arena = { 0 };
    serve_calls calls;
    serve_calls_read(&arena, c->options.form, (ares_view){ text.data, end }, &calls);
    ares_arena_fini(&arena);
    c->no_one_call = calls.n == 0; /* malformed: no call of this answer will be read */
    c->one_call = calls.n ? end : 0;
    return calls.n > 0;
}

/* ------------------------------------------------------------------ the answer */
serve_cut *serve_cut_new(const serve_cut_options *options)
{
    serve_cut *c = ares_calloc(1, sizeof *c);
    c->options = *options;
    c->stop = ares_calloc((size_t)options->n_stop + 1, sizeof *c->stop);
    for (int k = 0; k < options->n_stop; k++) stop_init(&c->stop[k], options->stop[k]);
    c->answer.stop = -1;
    ares_str_reserve(&c->text, 64); /* never NULL */
    ares_str_reserve(&c->shown, 64);
    ares_str_add_view(&c->shown, options->opening);
    for (size_t i = 0; i < options->opening.len;) {
        const char *p = options->opening.data + i;
        uint32_t code;
        size_t len = (size_t)abs(ares_utf8_next(p, p + options->opening.len - i, &code));
        add_character(c, (ares_view){ p, len }, i, false);
        i += len;
    }
    return c;
}

void serve_cut_free(serve_cut *c)
{
    if (!c) return;
    for (int k = 0; k < c->options.n_stop; k++) {
        ares_free(c->stop[k].data);
        ares_free(c->stop[k].border);
    }
    ares_free(c->stop);
    ares_str_fini(&c->text);
    ares_free(c->at);
    ares_str_fini(&c->shown);
    ares_free(c->ends);
    ares_str_fini(&c->content);
    ares_str_fini(&c->reasoning);
    ares_str_fini(&c->sampled);
    ares_arena_fini(&c->arena);
    ares_free(c);
}

bool serve_cut_add(serve_cut *c, ares_view bytes, bool special, serve_token_kind kind,
                   serve_piece *piece)
{
    ARES_ASSERT(!c->ended);
    bool is_shown = !special || !c->options.skip_special;
    *piece = (serve_piece){ .first = c->next, .end = c->next };
    c->shown_end = c->shown.len;
    c->by_id = kind == SERVE_TOKEN_EOS || kind == SERVE_TOKEN_STOP;
    for (size_t i = 0; i < bytes.len; i++) {
        /* an id that ends the answer goes before strings: its text is not searched, nor read */
        if (!c->by_id) {
            c->broken_at[c->n_broken] = c->shown.len;
            c->broken[c->n_broken++] = (unsigned char)bytes.data[i];
        }
        if (is_shown) ares_str_add_char(&c->shown, bytes.data[i]);
        if (!c->by_id) take_characters(c, false);
    }
    if (c->n_tokens == c->cap_tokens) {
        c->cap_tokens = ARES_MAX(16, 2 * c->cap_tokens);
        c->ends = ares_realloc(c->ends, (size_t)c->cap_tokens * sizeof *c->ends);
    }
    c->ends[c->n_tokens++] = (int64_t)c->shown.len;
    c->answer.by_stop_id = kind == SERVE_TOKEN_STOP;
    if (c->by_id || c->answer.stop >= 0) return c->ended = true;

    size_t held = 0;
    for (int k = 0; k < c->options.n_stop; k++) held = ARES_MAX(held, c->stop[k].matched);
    ares_view certain = { c->text.data, c->text.len - held };
    bool reads = c->options.form != SERVE_FORM_NONE;
    if ((reads || c->options.reasoning) && !c->thought_end && certain.len) {
        int64_t found = find_from(certain, serve_think_end, &c->scanned);
        if (found >= 0) c->thought_end = (size_t)found + serve_think_end.len;
    }
    size_t end = reads ? before_calls(c, certain) : certain.len;
    if (give_thoughts(c, certain, 0, false))
        give(c, ARES_MAX(shown_at(c, end), c->seen), false, reads, &c->content);
    if (first_call_is_complete(c, bytes)) return c->ended = true;
    if (kind == SERVE_TOKEN_LAST) return true;
    if (c->content.len == c->content_out && c->reasoning.len == c->reasoning_out) return false;
    int64_t out = c->next;
    while (out < c->n_tokens && c->ends[out] <= (int64_t)c->out) out++;
    take_piece(c, out, piece);
    return false;
}

/* Appends characters of shown's bytes. */
static void add_characters(const serve_cut *c, size_t first, size_t end, ares_str *to)
{
    for (const char *p = c->shown.data + first, *stop = c->shown.data + end; p < stop;) {
        uint32_t code;
        int len = ares_utf8_next(p, stop, &code);
        if (len > 0) ares_str_add(to, p, (size_t)len);
        else ares_str_add_z(to, "\xEF\xBF\xBD");
        p += abs(len);
    }
}

/* Content of an answer with calls: what stands outside of them. */
static void give_parts(serve_cut *c, const serve_calls *calls, size_t end_of_text,
                       size_t end_of_shown)
{
    ares_str all = { 0 }, part = { 0 };
    for (int k = 0; k < calls->n_parts; k++) {
        size_t first = ARES_MAX(calls->parts[k][0], c->content_from), end = calls->parts[k][1];
        if (first >= end) continue;
        ares_str_clear(&part);
        add_characters(c, shown_at(c, first), end == end_of_text ? end_of_shown : shown_at(c, end),
                       &part);
        ares_view text = ares_str_view(&part);
        if (c->thought == THOUGHT_OVER) text = ares_view_trim(text);
        serve_content_add(&all, k, text);
    }
    /* what went out was certain */
    ARES_ASSERT(all.len >= c->content.len &&
                (!c->content.len || memcmp(all.data, c->content.data, c->content.len) == 0));
    ares_str_add(&c->content, all.data ? all.data + c->content.len : "", all.len - c->content.len);
    ares_str_fini(&all);
    ares_str_fini(&part);
    c->answer.content_is_null = c->content.len == 0;
}

void serve_cut_finish(serve_cut *c, serve_piece *piece)
{
    serve_answer *a = &c->answer;
    int stop = a->stop;
    size_t cut = c->cut;
    take_characters(c, true); /* U+FFFD of a character cut short completes no stop string */
    a->stop = stop;
    size_t end = c->text.len, shown_end = c->shown.len, read_end = shown_end;
    a->whole = true;
    if (stop >= 0 && !c->by_id) {
        end = cut + (c->options.include_stop ? c->stop[stop].len : 0);
        a->whole = end == c->text.len && c->options.include_stop;
        shown_end = read_end = shown_at(c, end);
    } else if (c->by_id) {
        read_end = c->shown_end;
    }
    ares_view text = { c->text.data, end };
    bool reads = c->options.form != SERVE_FORM_NONE;
    if (!c->thought_end) {
        int64_t found = ares_view_find(text, serve_think_end, 0);
        if (found >= 0) c->thought_end = (size_t)found + serve_think_end.len;
    }
    bool thinks = !give_thoughts(c, text, shown_end, true);
    a->has_reasoning = c->thought != THOUGHT_UNKNOWN;
    serve_calls calls = { 0 };
    if (!thinks || c->thought == THOUGHT_UNKNOWN) {
        if (reads) serve_calls_read(&c->arena, c->options.form, text, &calls);
        /* the rest of the last token may be the beginning of a second call: it does not count */
        if (!calls.n && c->one_call)
            serve_calls_read(&c->arena, c->options.form, (ares_view){ text.data, c->one_call },
                             &calls);
        if (c->thought == THOUGHT_UNKNOWN) c->at_beginning = false; /* no thought: all is content */
        if (calls.n) give_parts(c, &calls, end, read_end);
        else if (c->thought == THOUGHT_UNKNOWN && c->options.reasoning)
            add_characters(c, 0, shown_end, &c->content);
        else give(c, shown_end, true, false, &c->content);
    }
    bool stopped = c->ended;
    c->ended = true;
    a->finish = !stopped  ? SERVE_FINISH_LENGTH
                : calls.n ? SERVE_FINISH_TOOL_CALLS
                          : SERVE_FINISH_STOP;
    a->n_tokens = c->n_tokens;
    a->calls = calls.calls;
    a->n_calls = calls.n;
    add_characters(c, c->options.opening.len, c->shown.len, &c->sampled);
    a->sampled = since(&c->sampled, 0);
    a->content = since(&c->content, 0);
    a->reasoning = since(&c->reasoning, 0);
    take_piece(c, c->n_tokens, piece);
}

const serve_answer *serve_cut_answer(const serve_cut *c)
{
    ARES_ASSERT(c->ended);
    return &c->answer;
}
