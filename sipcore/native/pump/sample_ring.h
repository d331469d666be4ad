/* Samples in a ring whose size is a power of two; any thread may read one while another is written. */
#ifndef TRUNKLINE_PUMP_SAMPLE_RING_H
#define TRUNKLINE_PUMP_SAMPLE_RING_H

#include <stdatomic.h>
#include <stdint.h>

static inline int16_t sample_of(const _Atomic int16_t *ring, uint64_t at, uint32_t mask)
{
    return atomic_load_explicit(&ring[at & mask], memory_order_relaxed);
}

static inline void put_sample(_Atomic int16_t *ring, uint64_t at, uint32_t mask, int16_t sample)
{
    atomic_store_explicit(&ring[at & mask], sample, memory_order_relaxed);
}

#endif
