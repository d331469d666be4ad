/* Fades: ramps at every edge between sound and silence, against clicks. On the pump's thread, except for fade_on_flush. */
#ifndef TRUNKLINE_PUMP_FADE_H
#define TRUNKLINE_PUMP_FADE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pump/pcm.h"

#define FADE_MS 5
#define MAX_FADE (MAX_RATE * FADE_MS / 1000)

/* Speech of one frame: the number of its samples, and the samples that would follow. */
typedef struct speech {
    uint32_t count, ahead_count;
    int16_t ahead[MAX_FADE];
} speech_t;

typedef struct fade {
    int16_t ahead[MAX_FADE];        /* samples after the last sent one: they fade out when the sound is stopped */
    uint32_t ahead_count;
    int16_t tail[MAX_FADE];         /* the end of stopped sound, fading out under the present one */
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
/* Fades in sound that begins, and fades out sound that stops; after a flush in mid-sound, both at once. `out` holds the
 * samples of `speech` and has room for `count`, at `rate` Hz. `under_run`: more speech is expected, and is late. */
void fade_apply(fade_t *fade, uint32_t rate, int16_t *out, const speech_t *speech, uint32_t count, bool under_run);
/* Fills a frame with comfort noise; speech of the frame before fades out. */
void fade_comfort_noise(fade_t *fade, uint32_t rate, int16_t *out, uint32_t count);
/* On Python's thread: the queued speech has been flushed. */
void fade_on_flush(fade_t *fade);

#endif
