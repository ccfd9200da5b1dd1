/* Fingerprints that tell a run's own state from that of other data or another model. */
#include "origin.h"

#include <stdio.h>

static uint64_t data_hash(const ares_source *s)
{
    uint64_t h = ARES_FNV1A; /* over the id, prompt and answer of every row */
    for (int64_t i = 0; i < ares_source_count(s); i++) {
        const ares_row *row = ares_source_row(s, i);
        const ares_view parts[] = { ares_view_of(row->gid ? row->gid : ""), row->prompt_text,
                                    row->ground_truth };
        for (int k = 0; k < ARES_COUNT(parts); k++)
            h = ares_fnv1a(ares_fnv1a(h, parts[k].data, parts[k].len), "\xff", 1);
    }
    return h;
}

train_origin train_origin_of(const training *t)
{
    train_origin o;
    snprintf(o.data, sizeof o.data, "%016llx", (unsigned long long)data_hash(&t->source));
    snprintf(o.model, sizeof o.model, "%016llx", (unsigned long long)t->model_weights);
    return o;
}

void origin_describe_model(const ares_model_config *c, ares_str *out)
{
    ares_str_addf(out, "%s, %d layers of %d, %d ids", c->model_type, c->layers, c->hidden,
                  c->vocab);
}
