/*
 * libares_video.so: the frames of a video's file, by FFmpeg's libraries. A file is untrusted: it
 * cannot name other files (playlists are not among the formats, and opening is refused), and what
 * FFmpeg would conceal (damaged or missing parts of a frame) is an error.
 */
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/imgutils.h>
#include <libswscale/swscale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define EXPORT __attribute__((visibility("default")))
/* Containers; FFmpeg's readers of playlists, pictures and devices stay out. */
#define FORMATS "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,flv,ogg,asf,m4v,h264,hevc"
enum { IO_BYTES = 1 << 16 };

typedef struct reader {
    const media_input *in;
    int64_t at;
    AVIOContext *io;
    AVFormatContext *format;
    AVCodecContext *codec;
    AVPacket *packet;
    AVFrame *frame;
    int stream;
    int32_t w, h; /* of the first frame */
    char *error;
    size_t error_size;
} reader;

static int fail(reader *r, const char *what, int code)
{
    char why[128] = "";
    if (code < 0) av_strerror(code, why, sizeof why);
    snprintf(r->error, r->error_size, "%s%s%s", what, *why ? ": " : "", why);
    return -1;
}

static int read_bytes(void *opaque, uint8_t *to, int n)
{
    reader *r = opaque;
    int64_t left = r->in->size - r->at;
    /* pread, because other threads may read the same file */
    ssize_t got = n < left ? n : (ssize_t)left;
    if (got <= 0) return AVERROR_EOF;
    if (r->in->data) memcpy(to, r->in->data + r->at, (size_t)got);
    else got = pread(r->in->fd, to, (size_t)got, r->at);
    if (got < 0) return AVERROR(EIO);
    r->at += got;
    return got ? (int)got : AVERROR_EOF;
}

/* FFmpeg also asks for the size in this way. */
static int64_t seek(void *opaque, int64_t offset, int whence)
{
    reader *r = opaque;
    if (whence & AVSEEK_SIZE) return r->in->size;
    int from = whence & ~AVSEEK_FORCE;
    int64_t at = offset + (from == SEEK_CUR ? r->at : from == SEEK_END ? r->in->size : 0);
    if (at < 0) return AVERROR(EINVAL);
    return r->at = at;
}

/* A container that names another file (a playlist, a reference of QuickTime) gets none. */
static int refuse_to_open(AVFormatContext *s, AVIOContext **pb, const char *url, int flags,
                          AVDictionary **options)
{
    (void)s, (void)pb, (void)url, (void)flags, (void)options;
    return AVERROR(EPERM);
}

/* Opens the container and the codec of its best video stream. */
static int open_reader(reader *r, int64_t most_pixels)
{
    const AVCodec *codec = NULL;
    /* the container is read through read_bytes alone: no other file or network can be reached */
    uint8_t *buffer = av_malloc(IO_BYTES);
    r->format = avformat_alloc_context();
    r->io = buffer ? avio_alloc_context(buffer, IO_BYTES, 0, r, read_bytes, NULL, seek) : NULL;
    if (!r->io || !r->format) {
        if (!r->io) av_free(buffer);
        return fail(r, "not enough memory", 0);
    }
    r->format->pb = r->io;
    r->format->io_open = refuse_to_open;
    AVDictionary *options = NULL;
    av_dict_set(&options, "format_whitelist", FORMATS, 0);
    av_dict_set(&options, "protocol_whitelist", "", 0);
    int rc = avformat_open_input(&r->format, NULL, NULL, &options);
    av_dict_free(&options);
    if (rc < 0) return fail(r, "not a video that FFmpeg reads", rc);
    rc = avformat_find_stream_info(r->format, NULL);
    if (rc < 0) return fail(r, "no streams", rc);
    rc = av_find_best_stream(r->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (rc < 0 || !codec) return fail(r, "no video in it that FFmpeg decodes", rc);
    r->stream = rc;
    r->codec = avcodec_alloc_context3(codec);
    r->packet = av_packet_alloc();
    r->frame = av_frame_alloc();
    if (!r->codec || !r->packet || !r->frame) return fail(r, "not enough memory", 0);
    rc = avcodec_parameters_to_context(r->codec, r->format->streams[r->stream]->codecpar);
    r->codec->thread_count = 1; /* videos of a batch are decoded side by side */
    r->codec->max_pixels = most_pixels;
    /* damage is an error, where FFmpeg would conceal it */
    r->codec->err_recognition = AV_EF_CRCCHECK | AV_EF_EXPLODE;
    if (rc >= 0) rc = avcodec_open2(r->codec, codec, NULL);
    return rc < 0 ? fail(r, "the video's codec", rc) : 0;
}
/* The buffer belongs to the context by now, and may be another than open_reader gave. */
static void close_reader(reader *r)
{
    av_frame_free(&r->frame);
    av_packet_free(&r->packet);
    avcodec_free_context(&r->codec);
    avformat_close_input(&r->format);
    if (r->io) av_freep(&r->io->buffer);
    avio_context_free(&r->io);
}
/* 1 and r->frame; 0: the end; -1: an error. */
static int next_frame(reader *r)
{
    for (;;) {
        int rc = avcodec_receive_frame(r->codec, r->frame);
        if (rc == 0) {
            if (!r->w) r->w = r->frame->width, r->h = r->frame->height;
            if (r->frame->width != r->w || r->frame->height != r->h)
                return fail(r, "its frames are not all of one size", 0);
            if (r->frame->decode_error_flags || r->frame->flags & AV_FRAME_FLAG_CORRUPT)
                return fail(r, "a damaged frame", 0);
            return 1;
        }
        if (rc == AVERROR_EOF) return 0;
        /* EAGAIN: the codec wants another packet, first past those of sound and subtitles */
        if (rc != AVERROR(EAGAIN)) return fail(r, "a frame cannot be decoded", rc);
        do {
            av_packet_unref(r->packet);
            rc = av_read_frame(r->format, r->packet);
        } while (rc == 0 && r->packet->stream_index != r->stream);
        if (rc < 0 && rc != AVERROR_EOF) return fail(r, "it cannot be read to its end", rc);
        if (rc == 0 && r->packet->flags & AV_PKT_FLAG_CORRUPT)
            return fail(r, "it ends within a frame, or is damaged", 0);
        /* NULL at the end: the codec hands out the frames that it holds back */
        rc = avcodec_send_packet(r->codec, rc == 0 ? r->packet : NULL);
        av_packet_unref(r->packet);
        if (rc < 0 && rc != AVERROR_EOF) return fail(r, "a frame cannot be decoded", rc);
    }
}

/* One way to RGB on every processor: no rounding that depends on its instructions. */
static int to_rgb(reader *r, struct SwsContext **sws, uint8_t *rgb)
{
    uint8_t *data[4] = { 0 };
    int line[4];
    const AVFrame *f = r->frame;
    *sws = sws_getCachedContext(
        *sws, f->width, f->height, f->format, f->width, f->height, AV_PIX_FMT_RGB24,
        SWS_BILINEAR | SWS_ACCURATE_RND | SWS_BITEXACT | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP,
        NULL, NULL, NULL);
    if (!*sws) return fail(r, "colours that FFmpeg does not turn to RGB", 0);
    /* the matrix that the video names; full range out, and in where it is JPEG's */
    const int *matrix = sws_getCoefficients(f->colorspace);
    sws_setColorspaceDetails(*sws, matrix, f->color_range == AVCOL_RANGE_JPEG, matrix, 1, 0,
                             1 << 16, 1 << 16);
    /* rows with room behind them, which the fast paths write to */
    int rc = av_image_alloc(data, line, f->width, f->height, AV_PIX_FMT_RGB24, 64);
    if (rc < 0) return fail(r, "not enough memory", rc);
    rc = sws_scale(*sws, (const uint8_t *const *)f->data, f->linesize, 0, f->height, data, line);
    av_image_copy_plane(rgb, 3 * f->width, data[0], line[0], 3 * f->width, f->height);
    av_freep(&data[0]);
    return rc == f->height ? 0 : fail(r, "a frame cannot be turned to RGB", rc);
}

EXPORT media_video_count_fn ares_video_count;
EXPORT media_video_frames_fn ares_video_frames;

EXPORT int ares_video_count(const media_input *in, int64_t most_pixels, media_video_facts *out,
                            char *error, size_t error_size)
{
    reader r = { .in = in, .error = error, .error_size = error_size };
    int rc = open_reader(&r, most_pixels);
    *out = (media_video_facts){ 0 };
    while (rc == 0) {
        int more = next_frame(&r);
        if (more < 0) rc = -1;
        if (more <= 0) break;
        out->frames++;
    }
    if (rc == 0) {
        AVRational rate = r.format->streams[r.stream]->avg_frame_rate;
        out->rate = rate.den ? av_q2d(rate) : 0;
        out->w = r.w;
        out->h = r.h;
    }
    close_reader(&r);
    return rc;
}

EXPORT int ares_video_frames(const media_input *in, const int32_t *index, int32_t n, int32_t w,
                             int32_t h, uint8_t *rgb, media_frame_fn *take, void *ctx, char *error,
                             size_t error_size)
{
    reader r = { .in = in, .error = error, .error_size = error_size, .w = w, .h = h };
    struct SwsContext *sws = NULL;
    int rc = open_reader(&r, (int64_t)w * h), at = 0;
    for (int64_t i = 0; rc == 0 && at < n; i++) {
        int more = next_frame(&r);
        if (more == 0) rc = fail(&r, "fewer frames than when it was first read", 0);
        else if (more < 0) rc = -1;
        else if (index[at] == i) rc = to_rgb(&r, &sws, rgb);
        /* a short video may be asked for the same frame more than once */
        for (; rc == 0 && at < n && index[at] == i; at++) take(ctx, at, rgb);
    }
    sws_freeContext(sws);
    close_reader(&r);
    return rc;
}

__attribute__((constructor)) static void quiet(void)
{
    av_log_set_level(AV_LOG_QUIET); /* errors come back as texts */
}
