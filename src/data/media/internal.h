/*
 * Private to data/media: a picture's or video's bytes, sizes, decoding, resampling, and its entry
 * in a row.
 */
#ifndef ARES_DATA_MEDIA_INTERNAL_H
#define ARES_DATA_MEDIA_INTERNAL_H

#include "ares/core.h"
#include "ares/media.h"

/*
 * Reads the headers of a row's images and videos: lists of entries, or NULL. An entry is a path, a
 * data: URL, bare base64, {"bytes": ..., "path": ...}, and of a video also a list of frames
 * (docs/vision.md#rows). In the arena, which must live as long as `out`; entries are borrowed. The
 * error names the entry. ARES_ELIMIT: a picture's sides differ too much (docs/vision.md#limits);
 * the caller may drop the row, as it drops one whose prompt is too long.
 */
int media_open(const ares_json *images, const ares_json *videos, const ares_processor *p,
               const ares_media_options *o, ares_arena *arena, ares_media *out);

/* The bytes of a picture or video: in memory, or of a regular file, read where they are needed. */

typedef struct media_input {
    const uint8_t *data; /* NULL: of fd */
    uint8_t *owned;      /* data, to be freed */
    int64_t size;
    int fd; /* -1: none */
} media_input;

/*
 * Opens a file of at most `most` bytes. Only a regular one: to open a pipe could wait for ever.
 * Errors lack the name.
 */
int media_input_file(const char *path, int64_t most, media_input *out);
/* Decodes a text in base64; white space in it is ignored. */
int media_input_base64(ares_view text, int64_t most, media_input *out);
void media_input_close(media_input *in);
/* Copies up to n bytes from an offset on; returns how many. */
size_t media_input_at(const media_input *in, int64_t offset, void *to, size_t n);
/* Reads all of it: afterwards in->data holds in->size bytes. */
int media_input_load(media_input *in);

/* Sizes, and which frames of a video: functions of numbers alone (docs/vision.md#limits). */

typedef struct media_size {
    int32_t w, h;
} media_size;

#define MEDIA_MOST_PIXELS 178956970 /* of a picture: where Pillow refuses */
#define MEDIA_MOST_SIDE 65535
#define MEDIA_MOST_FILE ((int64_t)256 << 20)

/* Fails where a side or the number of pixels is beyond the limits; `what` begins the message. */
int media_check_size(media_size s, const char *what);

/* EasyR1's own resize: at most max pixels, then at least min; 0: no limit. */
int media_easyr1_size(media_size in, int64_t min, int64_t max, media_size *out);
/* The processor's: multiples of factor, between min and max pixels. Also checks the aspect. */
int media_smart_resize(media_size in, int32_t factor, int64_t min, int64_t max, media_size *out);
/* EasyR1's resize of a video's frames, before the processor's; min and max as above. */
int media_video_size(media_size in, int32_t frames, int32_t factor, int64_t min, int64_t max,
                     media_size *out);

typedef struct media_frames {
    int32_t n;
    int32_t *index; /* [n], rising, from 0; some may be equal */
    double sample_fps;
} media_frames;
/*
 * Which of `total` frames at `rate` per second stand for a video that is wanted at `fps` frames per
 * second: an even number of them from 4 to 768, evenly spaced, the first and the last among them.
 */
int media_video_frames(int64_t total, double rate, double fps, ares_arena *arena,
                       media_frames *out);

/*
 * Picture files by their first bytes: what their headers say, and their pixels as RGB of 8 bits
 * (docs/vision.md#rows). Errors lack the file's name.
 */

typedef enum { MEDIA_PNG, MEDIA_JPEG, MEDIA_WEBP } media_format;

typedef struct media_header {
    media_format format;
    media_size size;
    bool turned; /* EXIF data ask for a turn or a mirror image */
} media_header;

/* What the header says; sizes are checked against the limits, and nothing large is read. */
int media_header_read(const media_input *in, media_header *out);
/*
 * Decodes all of in->data. rgb: [h][w][3] of `header`, which must be this input's: other sizes are
 * an error. place: the name for a warning about data that are damaged but readable.
 */
int media_decode(const media_input *in, const media_header *header, const char *place,
                 uint8_t *rgb);

/* Whether a TIFF structure of EXIF data at an offset, with or without "Exif\0\0", asks for a turn.
 */
bool media_exif_turns(const media_input *in, int64_t offset, int64_t bytes);
/* Fails with the message for a file that was exchanged after its header was read. */
int media_changed(void);

/*
 * Bicubic resampling of RGB bytes, bit for bit as the libraries of EasyR1's data path do it
 * (docs/vision.md#processor). Two passes, rows before columns; a pass that changes nothing is left
 * out.
 */

typedef enum {
    MEDIA_PILLOW,    /* weights of 22 bits, bytes between the passes */
    MEDIA_TORCH_U8,  /* weights of 16 bits, bytes between the passes */
    MEDIA_TORCH_F32, /* no rounding before the end */
} media_filter;

/* Writes the picture in [from.h][from.w][3] at another size to out [to.h][to.w][3]. */
void media_resample(media_filter filter, const uint8_t *in, media_size from, uint8_t *out,
                    media_size to);

/*
 * The two functions of libares_video.so, the only code that calls FFmpeg. Both return 0, or -1 with
 * a message. They read the input's data, or its fd by pread; they start no threads and open
 * nothing.
 */

typedef struct media_video_facts {
    int64_t frames; /* decoded from first to last */
    double rate;    /* frames per second, on average */
    int32_t w, h;   /* of every frame */
} media_video_facts;
/* Decodes the video and counts; more than most_pixels in a frame is an error. */
typedef int media_video_count_fn(const media_input *in, int64_t most_pixels, media_video_facts *out,
                                 char *error, size_t error_size);
/* Called with number i of the chosen frames, [h][w][3], which lives for the call. */
typedef void media_frame_fn(void *ctx, int32_t i, const uint8_t *rgb);
/* Hands over the frames numbered index[0..n), which rise, one by one. rgb: room for a frame. */
typedef int media_video_frames_fn(const media_input *in, const int32_t *index, int32_t n, int32_t w,
                                  int32_t h, uint8_t *rgb, media_frame_fn *take, void *ctx,
                                  char *error, size_t error_size);

/* What a row says about a picture or video: where it comes from (docs/vision.md#rows). */

/* An entry: a file, or bytes as a text in base64. */
typedef struct media_entry {
    const char *path;  /* NULL: of base64 */
    ares_view base64;  /* borrowed from the entry */
    const char *place; /* for messages: "media: images[1] = 'a.png'" */
} media_entry;
/* `where` is "images[1]". */
int media_entry_read(const ares_json *entry, const char *where, const char *image_dir,
                     ares_arena *arena, media_entry *out);
int media_entry_open(const media_entry *e, int64_t most, media_input *out);

typedef struct media_source {
    const media_entry *entries; /* [n]: a picture, the pictures of a video, or the video's file */
    int32_t n;
    bool file; /* a video's file, of which `chosen` are taken */
    media_frames chosen;
    media_size size, sized; /* as decoded, and after the first resize */
    media_filter filter;    /* of the first resize; the second is always torch's of bytes */
} media_source;

/* XXH64 of bytes: one number for one picture (media.c). */
uint64_t media_hash(const uint8_t *data, size_t n, uint64_t seed);

/* Fails where the file of a video is shorter than its containers say (media.c). */
int media_container_check(const media_input *in);
#endif
