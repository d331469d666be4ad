/* Delay that a jitter buffer adds for nothing: PJMEDIA's keeps 10 ms of G.711 and G.722 for good once they have piled up. For
 * bridged calls, where each such delay adds to the other peer's, it is measured and taken out. */
#ifndef TRUNKLINE_PUMP_JITTER_DELAY_H
#define TRUNKLINE_PUMP_JITTER_DELAY_H

#include <stdint.h>

#define JITTER_DELAY_TICKS 250      /* time that is observed before anything is taken out: 5 s */

typedef struct jitter_delay {
    uint32_t ticks;             /* observed so far */
    uint32_t least_left_ms;     /* the least audio that was left in the jitter buffer after a read */
    int64_t least_wait_ns;      /* the shortest time from the arrival of the newest packet to a read */
    uint32_t surplus_ms;        /* found, and not taken out yet */
} jitter_delay_t;

void jitter_delay_reset(jitter_delay_t *delay);
/* One read of 20 ms: what it left in the jitter buffer, and how long ago the newest packet had come. Returns the duration that
 * is to be taken out now, 20 ms at most; 0: none. */
uint32_t jitter_delay_observe(jitter_delay_t *delay, uint32_t left_ms, int64_t wait_ns);
/* Takes out: the last `dropped` samples of `frame` are replaced by the first ones of `next`, which followed it, and faded over. */
void jitter_delay_splice(int16_t *frame, uint32_t count, const int16_t *next, uint32_t dropped, uint32_t ramp);

#endif
