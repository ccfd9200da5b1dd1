/* Format prompts: the file of a template around the text of a prompt, as EasyR1 reads it. */
#include "jinja/jinja.h"

int ares_format_prompt_load(const char *path, ares_template **out)
{
    ares_str text = { 0 };
    *out = NULL;
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK)
        rc = template_parse(path, ares_view_trim(ares_str_view(&text)), TEMPLATE_PLAIN, out);
    ares_str_fini(&text);
    return rc;
}

int ares_format_prompt_render(const ares_template *t, ares_view content, ares_str *out)
{
    ares_json value = { .type = ARES_JSON_STRING, .text = content };
    ares_json_member member = { ARES_VIEW("content"), &value };
    ares_json context = { .type = ARES_JSON_OBJECT, .count = 1, .members = &member };
    return ares_template_render(t, &context, NULL, NULL, out, NULL);
}
