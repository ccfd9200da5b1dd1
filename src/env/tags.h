/* The built-in tags. */
#ifndef ENV_TAGS_H
#define ENV_TAGS_H

typedef struct env_tag {
    const char *name, *type, *instruction;
    int max_actions, max_tokens;
    const char *options; /* a JSON object */
} env_tag;
extern const env_tag env_tags[];
extern const int env_tag_count;

#endif
