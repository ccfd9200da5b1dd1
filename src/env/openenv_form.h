/* How a server of environments is reached, and how a text becomes one of its actions. */
#ifndef ARES_ENV_OPENENV_FORM_H
#define ARES_ENV_OPENENV_FORM_H

#include "ares/core.h"

typedef struct openenv_address {
    char host[256];
    int port;
    char base[512]; /* of paths: "", "/lake" */
} openenv_address;
/*
 * ws://host:port/path, http:// or no scheme alike; a "/ws" at its end belongs to every server.
 * NULL, or what is wrong.
 */
const char *openenv_read_url(const char *url, openenv_address *out);

/* Where an action's text goes. */
typedef struct openenv_form {
    const char *field;   /* NULL: the text is the whole action, a JSON object */
    ares_json_type type; /* of its value; STRING takes any text */
    const char **names;  /* [n_names] its values, as texts; 0: not listed */
    int n_names;
    ares_arena arena;
} openenv_form;
void openenv_form_fini(openenv_form *f);
/*
 * From the server's schema of actions. field: the user's choice, "*" for whole actions, NULL for
 * the only field that an action must have beside those of `constants`. ARES_ECONFIG names the
 * fields.
 */
int openenv_form_read(openenv_form *f, const ares_json *schema, const char *field,
                      const ares_json *constants);
/* {..} appended to out; false: the text is no such action */
bool openenv_form_write(const openenv_form *f, const ares_json *constants, ares_view text,
                        ares_str *out);

#endif
