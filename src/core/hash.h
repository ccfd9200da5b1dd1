/*
 * The hash of ares_map and of the JSON reader's search for duplicate keys: fast, without a seed,
 * not cryptographic.
 */
#ifndef ARES_CORE_HASH_H
#define ARES_CORE_HASH_H

#include <stdint.h>
#include <string.h>

static inline uint64_t core_hash_mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t core_hash(const char *data, size_t len)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ len;
    for (; len > 0;) {
        uint64_t word = 0;
        size_t take = len < 8 ? len : 8;
        memcpy(&word, data, take);
        hash = core_hash_mix(hash ^ word, 0xD6E8FEB86659FD93u) + 0xA0761D6478BD642Fu;
        data += take;
        len -= take;
    }
    return core_hash_mix(hash, 0xE7037ED1A0B428DBu);
}

#endif
