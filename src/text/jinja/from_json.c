/* Values of a JSON document. */
#include "jinja.h"

jinja_value jinja_from_json(jinja_run *r, const ares_json *j)
{
    jinja_enter(r);
    jinja_value v = jinja_none();
    switch (j->type) {
    case ARES_JSON_NULL: break;
    case ARES_JSON_BOOL: v = jinja_bool(j->boolean); break;
    case ARES_JSON_INT:
        if (j->big) {
            v = jinja_str_view(r, j->text.data, j->text.len);
            v.kind = JV_BIG;
        } else {
            v = jinja_int(j->integer);
        }
        break;
    case ARES_JSON_FLOAT: v = jinja_float(j->number); break;
    case ARES_JSON_STRING:
        v = jinja_str_view(r, j->text.data ? j->text.data : "", j->text.len);
        break;
    case ARES_JSON_ARRAY:
        v = jinja_list_new(r, j->count, JV_LIST);
        for (int64_t i = 0; i < j->count; i++) v.u.l->items[i] = jinja_from_json(r, &j->items[i]);
        break;
    case ARES_JSON_OBJECT:
        v = (jinja_value){ .kind = JV_DICT, .u.d = jinja_dict_new(r) };
        for (int64_t i = 0; i < j->count; i++)
            jinja_dict_put(r, v.u.d,
                           jinja_str_view(r, j->members[i].key.data ? j->members[i].key.data : "",
                                          j->members[i].key.len),
                           jinja_from_json(r, j->members[i].value));
        break;
    }
    r->depth--;
    return v;
}
