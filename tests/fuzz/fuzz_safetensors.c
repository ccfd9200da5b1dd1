/*
 * libFuzzer entry for safetensors files. Checks that a file that opens can be read to its last
 * byte, that its tensors cover every byte of its data once, and that each is found by its name.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ares/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const ares_safetensors *s, uint64_t data_bytes)
{
    uint64_t covered = 0;
    volatile unsigned sum = 0;
    for (int64_t i = 0; i < ares_safetensors_count(s); i++) {
        const ares_tensor_info *t = ares_safetensors_at(s, i);
        int64_t count = 1;
        for (int d = 0; d < t->rank; d++) count *= t->shape[d];
        ARES_ASSERT(ares_safetensors_find(s, t->name) == t && count == t->count && t->dtype_name);
        ARES_ASSERT(!t->is_float || t->bytes == t->count * (int64_t)ares_dtype_bytes(t->dtype));
        for (int64_t k = 0; k < t->bytes; k++) sum += ((const unsigned char *)t->data)[k];
        covered += (uint64_t)t->bytes;
    }
    ARES_ASSERT(covered == data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    ares_safetensors *s;
    if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
    ARES_ASSERT(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (ares_safetensors_open(path, &s) != ARES_OK) {
        ARES_ASSERT(!s && ares_error_message()[0]);
        return 0;
    }
    uint64_t header = 0;
    for (int i = 0; i < 8; i++) header |= (uint64_t)data[i] << (8 * i);
    check(s, size - 8 - header);
    ares_safetensors_close(s);
    return 0;
}
