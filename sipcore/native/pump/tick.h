/* The pump's ticks. Each slot has one every 20 ms, at one of eight phases: n times 2.5 ms after a multiple of 20 ms of
 * CLOCK_MONOTONIC. */
#ifndef TRUNKLINE_PUMP_TICK_H
#define TRUNKLINE_PUMP_TICK_H

#include <stdint.h>

#include "rtp/reading_times.h"

#define TICK_MS 20
#define TICK_NS 20000000LL
#define TICK_PHASES READING_PHASES

typedef struct tick {
    int64_t due_ns, now_ns;
    int shard, phase;               /* the pump thread, and the phase of its slots that have this tick */
    int64_t lead_ns[TICK_PHASES];   /* how long before a tick of each phase its packets are read */
} tick_t;

#endif
