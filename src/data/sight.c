/* One token per picture and video, as a template writes them -> as many as it has. */
#include "sight.h"

typedef struct kind {
    int32_t token;
    int64_t found, wanted, media; /* tokens in the ids, tokens and number of the media */
    const ares_medium *items;
    const char *name, *option;
} kind;

static kind kind_of(const ares_sight_rules *r, const ares_media *m, bool video)
{
    kind k = { .token = video ? r->video_token : r->image_token,
               .media = video ? m->n_videos : m->n_images,
               .items = m->items + (video ? m->n_images : 0),
               .name = video ? "video" : "image",
               .option = video ? "<video>" : "<image>" };
    for (int64_t i = 0; i < k.media; i++)
        k.wanted += ares_medium_tokens(&k.items[i], r->processor.merge);
    return k;
}

static int check_count(const kind *k)
{
    if (k->found == k->media || k->found == k->wanted) return ARES_OK;
    return ares_fail(ARES_EFORMAT,
                     "%lld %ss and %lld places for them in the prompt; put %s into it once "
                     "for each",
                     (long long)k->media, k->name, (long long)k->found, k->option);
}

/* Of ids that are expanded already: whether the next medium's tokens stand together from i on. */
static bool stands_whole(const kind *k, const int32_t *ids, int64_t n, int64_t i, int64_t tokens)
{
    int64_t run = 0;
    while (i + run < n && run < tokens && ids[i + run] == k->token) run++;
    return run == tokens;
}

int sight_expand(const ares_sight_rules *r, const ares_media *media, const int32_t *ids, int64_t n,
                 const int64_t (*offsets)[2], ares_ids *out)
{
    kind kinds[] = { kind_of(r, media, false), kind_of(r, media, true) };
    int64_t next[ARES_COUNT(kinds)] = { 0 };
    for (int k = 0; k < ARES_COUNT(kinds); k++) {
        for (int64_t i = 0; i < n; i++) kinds[k].found += ids[i] == kinds[k].token;
        ARES_TRY(check_count(&kinds[k]));
    }
    for (int64_t i = 0; i < n;) {
        const kind *k = ids[i] == kinds[0].token   ? &kinds[0]
                        : ids[i] == kinds[1].token ? &kinds[1]
                                                   : NULL;
        int64_t copies = 1, taken = 1;
        if (k) {
            copies = ares_medium_tokens(&k->items[next[k - kinds]++], r->processor.merge);
            if (k->found != k->media) taken = copies;
            if (taken > 1 && !stands_whole(k, ids, n, i, taken))
                return ares_fail(ARES_EFORMAT,
                                 "the %lld tokens of %s number %lld, from token %lld on, do not "
                                 "stand together",
                                 (long long)copies, k->name, (long long)next[k - kinds],
                                 (long long)i);
        }
        for (int64_t c = 0; c < copies; c++)
            ares_ids_add(out, ids[i], offsets ? offsets[i][0] : 0, offsets ? offsets[i][1] : 0);
        i += taken;
    }
    return ARES_OK;
}
