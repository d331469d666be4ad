/* Background sound: a loop mixed under the outgoing speech, ducked while the agent speaks. Python hands over a setting; the
 * pump's thread applies it at its next tick. */
#ifndef TRUNKLINE_PUMP_BACKGROUND_H
#define TRUNKLINE_PUMP_BACKGROUND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A looped sound, shared by all slots that play it. */
typedef struct background {
    _Atomic int refs;
    uint32_t length;
    int16_t samples[];
} background_t;

typedef struct background_setting {
    background_t *sound;    /* NULL: none */
    float volume;           /* gain while the agent is silent */
    float ducked;           /* gain while the agent speaks */
} background_setting_t;

typedef struct background_mixer {
    background_setting_t setting;
    background_setting_t *pending;  /* another sound, which waits until the present one has faded out */
    uint32_t at;                    /* position in the sound */
    float gain;                     /* follows volume or ducked */
    float ramp_span;                /* gain difference of a whole ramp */
    bool reached;                   /* the gain has reached its target once */
    uint32_t hold_samples;          /* samples for which the agent still counts as speaking */
    _Atomic(background_setting_t *) next;
} background_mixer_t;

/* Python's side. */
void background_set(background_mixer_t *mixer, background_t *sound, float volume, float ducked);
void background_release(background_t *sound);

/* The pump's side. Another call begins, with silence. */
void background_reset(background_mixer_t *mixer);
/* Mixes the sound into `out`, at `rate` Hz. `speaking`: the agent speaks, so the sound is ducked. */
void background_mix(background_mixer_t *mixer, uint32_t rate, int16_t *out, uint32_t count, bool speaking);
/* The call is over: releases its sounds. */
void background_drop(background_mixer_t *mixer);

#endif
