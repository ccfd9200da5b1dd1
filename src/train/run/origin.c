/* Fingerprints that tell a run's own state from that of other data or another model. */
#include "origin.h"

#include <stdio.h>

/* Of a row with images or videos: which they are, and their sizes. */
static uint64_t sight_hash(uint64_t h, const ares_data_config *c, const ares_row *row)
{
    const char *const keys[] = { c->prompt_key, c->image_key, c->video_key };
    ares_str text = { 0 };
    for (int k = 0; k < ARES_COUNT(keys); k++) {
        const ares_json *v = keys[k] ? ares_row_at(row->json, keys[k]) : NULL;
        if (v) ares_json_write(&text, v);
        ares_str_add_char(&text, '\xff');
    }
    for (int32_t i = 0; i < row->sight->n_places; i++) {
        const ares_grid *g = &row->sight->places[i].medium->grid;
        ares_str_addf(&text, "%dx%dx%d ", g->t, g->h, g->w);
    }
    h = ares_fnv1a(h, text.data, text.len);
    ares_str_fini(&text);
    return h;
}

static uint64_t data_hash(const ares_source *s, const ares_data_config *c)
{
    uint64_t h = ARES_FNV1A; /* over the id, prompt, images and answer of every row */
    for (int64_t i = 0; i < ares_source_count(s); i++) {
        const ares_row *row = ares_source_row(s, i);
        const ares_view parts[] = { ares_view_of(row->gid ? row->gid : ""), row->prompt_text,
                                    row->ground_truth };
        for (int k = 0; k < ARES_COUNT(parts); k++)
            h = ares_fnv1a(ares_fnv1a(h, parts[k].data, parts[k].len), "\xff", 1);
        if (row->sight) h = sight_hash(h, c, row);
    }
    return h;
}

train_origin train_origin_of(const training *t)
{
    train_origin o;
    snprintf(o.data, sizeof o.data, "%016llx",
             (unsigned long long)data_hash(&t->source, &t->cfg->data));
    snprintf(o.model, sizeof o.model, "%016llx", (unsigned long long)t->model_weights);
    return o;
}

void origin_describe_model(const ares_model_config *c, ares_str *out)
{
    ares_str_addf(out, "%s, %d layers of %d, %d ids", c->model_type, c->layers, c->hidden,
                  c->vocab);
}
