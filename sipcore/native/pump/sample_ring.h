/* Samples in a ring whose size is a power of two, 4 at least; any thread may read one while another is written. */
#ifndef TRUNKLINE_PUMP_SAMPLE_RING_H
#define TRUNKLINE_PUMP_SAMPLE_RING_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

/* Four samples, which move at once where a position is a multiple of four: a ring that `malloc` has returned is aligned. */
typedef uint64_t __attribute__((may_alias)) sample_quad_t;

static inline int16_t sample_of(const _Atomic int16_t *ring, uint64_t at, uint32_t mask)
{
    return atomic_load_explicit(&ring[at & mask], memory_order_relaxed);
}

static inline void put_sample(_Atomic int16_t *ring, uint64_t at, uint32_t mask, int16_t sample)
{
    atomic_store_explicit(&ring[at & mask], sample, memory_order_relaxed);
}

static inline void get_samples(const _Atomic int16_t *ring, uint64_t at, uint32_t mask, int16_t *out, uint32_t count)
{
    uint32_t i = 0;
    for (; i < count && (at + i) % 4; i++)
        out[i] = sample_of(ring, at + i, mask);
    for (; i + 4 <= count; i += 4) {
        const uint64_t four = __atomic_load_n((const sample_quad_t *)&ring[(at + i) & mask], __ATOMIC_RELAXED);
        memcpy(out + i, &four, sizeof four);
    }
    for (; i < count; i++)
        out[i] = sample_of(ring, at + i, mask);
}

static inline void put_samples(_Atomic int16_t *ring, uint64_t at, uint32_t mask, const int16_t *samples, uint32_t count)
{
    uint32_t i = 0;
    for (; i < count && (at + i) % 4; i++)
        put_sample(ring, at + i, mask, samples[i]);
    for (; i + 4 <= count; i += 4) {
        uint64_t four;
        memcpy(&four, samples + i, sizeof four);
        __atomic_store_n((sample_quad_t *)&ring[(at + i) & mask], four, __ATOMIC_RELAXED);
    }
    for (; i < count; i++)
        put_sample(ring, at + i, mask, samples[i]);
}

#endif
