/* What environments in somebody else's program have in common. */
#include "foreign.h"
#include "types.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void forget_actions(foreign *f)
{
    for (int i = 0; i < f->n_actions; i++) ares_free((char *)f->actions[i]);
    ares_free(f->actions);
    f->actions = NULL;
    f->n_actions = 0;
}

void foreign_fini(foreign *f)
{
    forget_actions(f);
    for (int i = 0; i < f->n_names; i++) ares_free(f->names[i]);
    ares_str_fini(&f->state);
    *f = (foreign){ 0 };
}

void foreign_begin(foreign *f)
{
    forget_actions(f);
    ares_str_clear(&f->state);
    f->failed = f->over = false;
    f->replayable = true;
    f->unasked = 0;
}

void foreign_fail(foreign *f, bool by_clock, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->why, sizeof f->why, format, args);
    va_end(args);
    f->failed = true;
    if (by_clock) f->replayable = false;
}

const char *foreign_failure(const foreign *f, bool *replayable, int64_t *unasked)
{
    *replayable = f->replayable;
    *unasked = f->unasked;
    return f->failed ? f->why : NULL;
}

/* ---------------- what an answer holds */
bool foreign_read_actions(foreign *f, const ares_json *list)
{
    if (list->type != ARES_JSON_ARRAY || !list->count) return false;
    for (int64_t i = 0; i < list->count; i++)
        if (list->items[i].type != ARES_JSON_STRING || !list->items[i].text.len) return false;
    forget_actions(f);
    f->actions = ares_calloc((size_t)list->count, sizeof *f->actions);
    for (int64_t i = 0; i < list->count; i++) f->actions[i] = ares_strdup(list->items[i].text.data);
    f->n_actions = (int)list->count;
    return true;
}

/* The name as it lives as long as the environment; NULL: no name for a metric, or one too many. */
static const char *known_name(foreign *f, ares_view name)
{
    bool printable = name.len > 0 && name.len < FOREIGN_NAME_BYTES;
    for (size_t i = 0; i < name.len && printable; i++)
        printable = name.data[i] > ' ' && name.data[i] < 0x7f;
    for (int i = 0; i < f->n_names; i++)
        if (ares_view_is(name, f->names[i])) return f->names[i];
    if (!printable || f->n_names == FOREIGN_NAMES) return NULL;
    f->names[f->n_names] = ares_calloc(name.len + 1, 1);
    memcpy(f->names[f->n_names], name.data, name.len);
    return f->names[f->n_names++];
}

bool foreign_tell(foreign *f, const ares_json *object, ares_env_outcome *out)
{
    for (int64_t i = 0; i < object->count; i++) {
        const ares_json *v = object->members[i].value;
        bool yes_or_no = v->type == ARES_JSON_BOOL,
             success = ares_view_is(object->members[i].key, "success");
        if (!yes_or_no && v->type != ARES_JSON_INT && v->type != ARES_JSON_FLOAT) {
            if (success && v->type != ARES_JSON_NULL) return false;
            continue;
        }
        double value = yes_or_no ? v->boolean : v->number;
        if (!__builtin_isfinite(value)) continue; /* 400 digits */
        if (success) out->success = value != 0;
        const char *name = known_name(f, object->members[i].key);
        if (name) env_tell_again(out, name, value);
        else out->dropped++;
    }
    return true;
}

bool foreign_read_reward(const ares_json *value, ares_env_reward *out)
{
    if (!value || (value->type != ARES_JSON_INT && value->type != ARES_JSON_FLOAT)) return false;
    *out = (ares_env_reward){ value->number, value->type == ARES_JSON_INT };
    return fabs(value->number) <= FOREIGN_REWARD; /* NaN is not */
}

/* ---------------- messages */
const char *foreign_quote(ares_view text, char out[160])
{
    size_t n = ARES_MIN(text.len, (size_t)140);
    for (size_t i = 0; i < n; i++)
        out[i] = text.data[i] >= ' ' && text.data[i] < 0x7f ? text.data[i] : '?';
    strcpy(out + n, text.len > n ? "..." : "");
    return out;
}

bool foreign_is_not_finite(ares_view text)
{
    return ares_view_find(text, ARES_VIEW("NaN"), 0) >= 0 ||
           ares_view_find(text, ARES_VIEW("Infinity"), 0) >= 0;
}
