/*
 * A video's file by FFmpeg, which only libares_video.so knows. It is opened when the first such
 * file is: the program starts, and builds, without it.
 */
#include "source.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* dlopen counts its callers and gives all of them one library, so that nothing is kept here. */
static int find(const char *name, void **function)
{
    char path[4200];
    ares_path_of_program("ARES_VIDEO_LIB", "libares_video.so", path, sizeof path);
    if (access(path, R_OK) != 0)
        return ares_fail(ARES_EUNSUPPORTED,
                         "this build does not read files of videos (no %s); install "
                         "libavformat-dev, libavcodec-dev and libswscale-dev and build again, or "
                         "give the video as a list of frames",
                         path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return ares_fail(ARES_EUNSUPPORTED,
                         "files of videos: %s; install FFmpeg's libraries, or build again",
                         dlerror());
    *function = dlsym(library, name);
    if (*function) return ARES_OK;
    return ares_fail(ARES_EUNSUPPORTED, "%s is of another version; build it again", path);
}

/* Files are read piece by piece, so that only a text in base64 has a limit. */
static int open_input(const media_entry *e, media_input *in)
{
    return media_entry_open(e, e->path ? INT64_MAX : MEDIA_MOST_FILE, in);
}

int media_video_open(const media_entry *e, int64_t *frames, double *rate, media_size *size)
{
    media_video_count_fn *count;
    media_video_facts facts;
    media_input in;
    char why[256] = "";
    ARES_TRY(open_input(e, &in));
    int rc = find("ares_video_count", (void **)&count);
    if (rc == ARES_OK) rc = media_container_check(&in);
    if (rc == ARES_OK && count(&in, MEDIA_MOST_PIXELS, &facts, why, sizeof why) != 0)
        rc = ares_fail(ARES_EFORMAT, "%s", why);
    media_input_close(&in);
    if (rc != ARES_OK) return rc;
    *frames = facts.frames;
    *rate = facts.rate;
    *size = (media_size){ facts.w, facts.h };
    return ARES_OK;
}

int media_video_read(const media_entry *e, const media_frames *chosen, media_size size,
                     uint8_t *rgb, media_frame_fn *take, void *ctx)
{
    media_video_frames_fn *read;
    media_input in;
    char why[256] = "";
    ARES_TRY(open_input(e, &in));
    int rc = find("ares_video_frames", (void **)&read);
    if (rc == ARES_OK &&
        read(&in, chosen->index, chosen->n, size.w, size.h, rgb, take, ctx, why, sizeof why) != 0)
        rc = ares_fail(ARES_EFORMAT, "%s", why);
    media_input_close(&in);
    return rc;
}
