/* A model directory's rules for pictures, of its config.json and its processor's files. */
#include "ares/model_vision.h"

int ares_sight_rules_load(const ares_model_config *cfg, const char *dir, ares_sight_rules *out)
{
    const ares_vision_config *v = &cfg->vision;
    ARES_ASSERT(v->depth);
    *out = (ares_sight_rules){ .image_token = v->image_token,
                               .video_token = v->video_token,
                               .tokens_per_second = v->tokens_per_second };
    ARES_TRY(ares_processor_load(dir, &out->processor));
    const ares_processor *p = &out->processor;
    if (v->channels != ARES_COUNT(p->mean))
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: %s: vision_config.in_channels = %d; pictures are read with %d",
                         dir, v->channels, ARES_COUNT(p->mean));
    if (p->patch == v->patch && p->merge == v->merge && p->temporal == v->temporal) return ARES_OK;
    return ares_fail(
        ARES_EFORMAT,
        "model: %s: the processor has patches of %d x %d pixels and %d frames, %d x %d "
        "of them a token; config.json has %d, %d and %d; they do not belong together",
        dir, p->patch, p->patch, p->temporal, p->merge, p->merge, v->patch, v->temporal, v->merge);
}
