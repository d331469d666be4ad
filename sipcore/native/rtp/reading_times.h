/* When sockets are read: shortly before a tick, so early that the reading ends before it. Ticks come at eight phases of a
 * period. Times are CLOCK_MONOTONIC, in ns. */
#ifndef TRUNKLINE_RTP_READING_TIMES_H
#define TRUNKLINE_RTP_READING_TIMES_H

#include <stdatomic.h>
#include <stdint.h>

#define READING_PHASES 8    /* phase n is n eighths of a period after its beginning */

typedef struct reading_times {
    int64_t period_ns;
    int64_t begin_ns;                           /* of the period of the next reading's tick */
    int phase;                                  /* of the next reading */
    _Atomic int64_t lead_ns[READING_PHASES];    /* how long before its tick a reading begins. Any thread may read it */
} reading_times_t;

/* The first reading is that of phase 0 of the next period. */
void reading_times_init(reading_times_t *times, int64_t period_ns, int64_t now_ns);
/* When the next reading begins: in the past if it is late. After a long standstill readings are skipped. */
int64_t reading_times_begin(reading_times_t *times, int64_t now_ns);
/* The tick that the next reading is for. */
int64_t reading_times_tick(const reading_times_t *times);
/* The reading has taken this long; goes on to the next phase of `phases` (bit n: phase n has sockets). Phase 0 always has. */
void reading_times_done(reading_times_t *times, int64_t duration_ns, unsigned phases);

#endif
