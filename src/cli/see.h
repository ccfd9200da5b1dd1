/* Images and videos beside the lines of generate, score and render. (see.c) */
#ifndef ARES_VERB_SEE_H
#define ARES_VERB_SEE_H

#include "ares/model_vision.h"
#include "verb.h"

/* Options of a command line; rows of its table. */
typedef struct verb_see_options {
    const char *image_dir;
    int64_t min_pixels, max_pixels;
    double video_fps;
} verb_see_options;
#define VERB_SEE_DEFAULTS { .video_fps = 2 }
#define VERB_SEE(o)                                                                     \
    VERB_OPTION(TEXT, (o).image_dir, "--image-dir", "DIR",                              \
                "where relative paths of images and videos begin"),                     \
        VERB_OPTION(I64, (o).min_pixels, "--min-pixels", "N",                           \
                    "enlarge images of fewer pixels; 0: as the model's processor says", \
                    .most = INT32_MAX),                                                 \
        VERB_OPTION(I64, (o).max_pixels, "--max-pixels", "N",                           \
                    "shrink images of more pixels; 0: as the model's processor says",   \
                    .most = INT32_MAX),                                                 \
        VERB_OPTION(F64, (o).video_fps, "--video-fps", "X", "frames per second of a video")

/* What lines of a model are encoded with. */
typedef struct verb_see {
    const char *dir; /* the model's */
    ares_data_config cfg;
    ares_sight_rules rules;
    ares_tokenizer *tokenizer; /* NULL: it cannot be loaded, for the reason that follows */
    char *tokenizer_error;
    ares_prompt_encoder *encoder; /* opened without a chat template */
    ares_chat *chat;              /* NULL: not needed yet, or none */
    ares_features *features;      /* NULL: the model reads text alone */
    ares_arena arena;             /* of everything that lines leave behind */
} verb_see;
/* dir and m are borrowed. A model without a tokenizer is fine where lines have ids alone. */
int verb_see_open(verb_see *s, const verb_see_options *o, const char *dir, ares_model *m);
void verb_see_close(verb_see *s);
/*
 * The ids of a line: input_ids; else messages or a prompt through the chat template (raw: a prompt
 * as it is), ready for an answer. *sight: of its images and videos; NULL: there are none. The line
 * must live until their features have been asked for.
 */
int verb_see_encode(verb_see *s, const char *verb, const ares_json *line, bool raw, ares_ids *ids,
                    const ares_sight **sight);
/* The same of a text as it is, with the images and videos of a line. */
int verb_see_text(verb_see *s, const ares_json *line, ares_view text, ares_ids *ids,
                  const ares_sight **sight);
#endif
