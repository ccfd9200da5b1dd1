/* Rows that are left out because of their images or videos. */
#include "prompt.h"

int ares_prompt_try_media(const ares_prompt_encoder *e, const ares_sight *sight)
{
    for (int32_t i = 0; sight && e->cfg->filter_unreadable_media && i < sight->n_places; i++) {
        uint8_t *pixels = NULL;
        uint64_t key;
        ARES_TRY(ares_medium_read(sight->places[i].medium, &e->sight->processor, &pixels, &key));
        ares_free(pixels);
    }
    return ARES_OK;
}

int ares_prompt_leave_out(const ares_prompt_encoder *e, const ares_row *row, int rc,
                          const char *message, ares_unseen *n)
{
    enum { SHOWN = 5 };
    if (rc == ARES_ELIMIT && e->cfg->filter_overlong_prompts) return n->thin++, ARES_OK;
    if (!e->cfg->filter_unreadable_media)
        return ares_fail(rc, "data: %s:%lld: %s", row->file, (long long)row->line, message);
    if (n->unreadable++ < SHOWN)
        ares_warn("data: %s:%lld: dropped: %s", row->file, (long long)row->line, message);
    return ARES_OK;
}

void ares_unseen_tell(const ares_unseen *n, int64_t rows)
{
    if (n->thin)
        ares_info("data: %lld of %lld rows dropped: a side of an image is too long for the other",
                  (long long)n->thin, (long long)rows);
    if (n->unreadable)
        ares_warn("data: %lld of %lld rows dropped: their images or videos cannot be read",
                  (long long)n->unreadable, (long long)rows);
}
