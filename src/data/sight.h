/* Ids of prompts with images and videos. (sight.c, positions.c) */
#ifndef ARES_DATA_SIGHT_PRIVATE_H
#define ARES_DATA_SIGHT_PRIVATE_H

#include "ares/data_sight.h"
#include "ares/text.h"

/*
 * Ids in which one token stands for each picture and video, as a chat template writes them: it is
 * repeated as often as the medium has tokens. Ids that have so many tokens already are taken as
 * they are. offsets of a repeated token are those of the one. Another number of tokens is an error
 * that names both.
 */
int sight_expand(const ares_sight_rules *r, const ares_media *media, const int32_t *ids, int64_t n,
                 const int64_t (*offsets)[2], ares_ids *out);
/*
 * The places and positions of expanded ids (docs/vision.md#positions; Wang et al., arXiv
 * 2409.12191, section 2.1). In the arena; media is borrowed.
 */
int sight_of(const ares_sight_rules *r, const ares_media *media, const int32_t *ids, int32_t n,
             ares_arena *arena, ares_sight *out);
#endif
