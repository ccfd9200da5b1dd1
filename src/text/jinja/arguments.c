/* The arguments of a builtin, by the names that its table gives. */
#include <string.h>

#include "jinja.h"

void jinja_bind(jinja_run *r, const char *name, const char *spec, jinja_args *a)
{
    if (!spec || *spec == '*') return;
    bool keywords = *spec != '/';
    if (!keywords) spec++;
    ares_view names[8];
    int n = 0, required = -1;
    for (const char *s = spec; *s;) {
        if (*s == '|') required = n;
        if (*s == ' ' || *s == '|') {
            s++;
            continue;
        }
        size_t len = strcspn(s, " |");
        names[n++] = (ares_view){ s, len };
        s += len;
    }
    if (required < 0) required = n;
    if (a->n > n)
        JINJA_FAIL(r, "%s() takes at most %d arguments (%lld given)", name, n, (long long)a->n);
    jinja_value *pos = jinja_alloc(r, sizeof *pos * 8);
    for (int i = 0; i < 8; i++) pos[i] = i < a->n ? a->pos[i] : (jinja_value){ .kind = JV_MISSING };
    for (int64_t k = 0; k < a->n_kw; k++) {
        int i = 0;
        while (i < n && !ares_view_eq(names[i], a->kw[k].name)) i++;
        if (!keywords || i == n)
            JINJA_FAIL(r, "%s() got an unexpected keyword argument '%.*s'", name,
                       jinja_shown(a->kw[k].name), a->kw[k].name.data);
        if (pos[i].kind != JV_MISSING)
            JINJA_FAIL(r, "%s() got multiple values for argument '%.*s'", name,
                       jinja_shown(names[i]), names[i].data);
        pos[i] = a->kw[k].value;
    }
    for (int i = 0; i < required; i++)
        if (pos[i].kind == JV_MISSING)
            JINJA_FAIL(r, "%s() missing required argument '%.*s'", name, jinja_shown(names[i]),
                       names[i].data);
    *a = (jinja_args){ .pos = pos, .n = n };
}
