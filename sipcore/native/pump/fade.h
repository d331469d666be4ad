/* Ramps at every edge between sound and silence, so that nothing clicks. On the pump's thread, but for fade_on_flush. */
#ifndef TRUNKLINE_PUMP_FADE_H
#define TRUNKLINE_PUMP_FADE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pump/pcm.h"

#define FADE_MS 5
#define MAX_FADE (MAX_RATE * FADE_MS / 1000)

/* The speech of one frame: how many samples of it there are, and what would follow them. */
typedef struct speech {
    uint32_t count, ahead_count;
    int16_t ahead[MAX_FADE];
} speech_t;

typedef struct fade {
    int16_t ahead[MAX_FADE];        /* what follows the sound that was sent last: it fades out when the sound is stopped */
    uint32_t ahead_count;
    int16_t tail[MAX_FADE];         /* the end of what was stopped, fading out under whatever comes now */
    uint32_t tail_at, tail_count;
    int16_t last;
    bool sounding;
    uint32_t noise;                 /* state of the comfort noise */
    _Atomic uint32_t flushes;
    uint32_t flushes_seen;
} fade_t;

void fade_init(fade_t *fade, int seed);
/* Another call begins, with silence. */
void fade_reset(fade_t *fade);
/* Ramp what begins up from silence, and what stopped down to it; after a flush in mid-sound, both at once. `out` holds the
 * samples of `speech` and has room for `count`, at `rate` Hz. `short_of`: more was to come, and is late. */
void fade_apply(fade_t *fade, uint32_t rate, int16_t *out, const speech_t *speech, uint32_t count, bool short_of);
/* Nothing but comfort noise, which what was said before fades out under. */
void fade_comfort_noise(fade_t *fade, uint32_t rate, int16_t *out, uint32_t count);
/* On Python's thread: the sound that was queued is gone. */
void fade_on_flush(fade_t *fade);

#endif
