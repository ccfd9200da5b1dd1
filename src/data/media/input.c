#include "input.h"

#include "ares/core_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int too_large(int64_t size, int64_t most)
{
    return ares_fail(ARES_EUNSUPPORTED, "%lld bytes: more than %lld", (long long)size,
                     (long long)most);
}

int media_input_file(const char *path, int64_t most, media_input *out)
{
    struct stat st;
    const char *why;
    *out = (media_input){ .fd = -1 };
    int fd = ares_file_open(path, &why);
    if (why) return ares_fail(ARES_EIO, "%s", why);
    int rc = ARES_OK;
    if (fstat(fd, &st) != 0) rc = ares_fail(ARES_EIO, "%s", strerror(errno));
    else if (st.st_size == 0) rc = ares_fail(ARES_EFORMAT, "an empty file");
    else if (st.st_size > most) rc = too_large(st.st_size, most);
    if (rc != ARES_OK) close(fd);
    else *out = (media_input){ .size = st.st_size, .fd = fd };
    return rc;
}

/* The value of a digit; 64: white space, 65: padding, 66: neither. */
static int digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    if (c == '/') return 63;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') return 64;
    return c == '=' ? 65 : 66;
}

int media_input_base64(ares_view text, int64_t most, media_input *out)
{
    uint32_t bits = 0;
    int n = 0, padding = 0; /* of the group of four at hand */
    *out = (media_input){ .fd = -1 };
    if (text.len > (uint64_t)most / 3 * 4 + 4) return too_large((int64_t)(text.len / 4 * 3), most);
    uint8_t value[256], *data = ares_malloc(text.len / 4 * 3 + 3), *to = data;
    for (int c = 0; c < 256; c++) value[c] = (uint8_t)digit((unsigned char)c);
    for (size_t i = 0; i < text.len; i++) {
        uint8_t v = value[(unsigned char)text.data[i]];
        if (v == 64) continue;
        bool right = v < 64 ? padding == 0 : v == 65 && n + padding >= 2 && padding < 2 && n;
        if (!right) {
            ares_free(data);
            return ares_fail(ARES_EFORMAT, "not base64: byte 0x%02x at character %zu",
                             (unsigned char)text.data[i], i + 1);
        }
        if (v == 65) padding++;
        else bits = bits << 6 | v, n++;
        if (n == 4) {
            *to++ = (uint8_t)(bits >> 16);
            *to++ = (uint8_t)(bits >> 8);
            *to++ = (uint8_t)bits;
            n = 0;
        }
    }
    if (n + padding != 0 && n + padding != 4) {
        ares_free(data);
        return ares_fail(ARES_EFORMAT, "not base64: it ends within a group of four characters");
    }
    if (n >= 2) *to++ = (uint8_t)(n == 2 ? bits >> 4 : bits >> 10);
    if (n == 3) *to++ = (uint8_t)(bits >> 2);
    *out = (media_input){ .data = data, .owned = data, .size = to - data, .fd = -1 };
    if (out->size > 0 && out->size <= most) return ARES_OK;
    int rc = out->size ? too_large(out->size, most) : ares_fail(ARES_EFORMAT, "no bytes");
    media_input_close(out);
    return rc;
}

void media_input_close(media_input *in)
{
    ares_free(in->owned);
    if (in->fd >= 0) close(in->fd);
    *in = (media_input){ .fd = -1 };
}

size_t media_input_at(const media_input *in, int64_t offset, void *to, size_t n)
{
    if (offset < 0 || offset >= in->size) return 0;
    n = (size_t)ARES_MIN((int64_t)n, in->size - offset);
    if (in->data) {
        memcpy(to, in->data + offset, n);
        return n;
    }
    size_t got = 0;
    while (got < n) {
        ssize_t r = pread(in->fd, (char *)to + got, n - got, offset + (int64_t)got);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) break;
        got += (size_t)r;
    }
    return got;
}

int media_input_load(media_input *in)
{
    if (in->data) return ARES_OK;
    uint8_t *data = ares_malloc((size_t)in->size);
    size_t got = media_input_at(in, 0, data, (size_t)in->size);
    if (got != (size_t)in->size) {
        ares_free(data);
        return ares_fail(ARES_EIO, "only %zu of its %lld bytes could be read", got,
                         (long long)in->size);
    }
    in->data = in->owned = data;
    return ARES_OK;
}
