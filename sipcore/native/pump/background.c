#include "pump/background.h"

#include "pump/pcm.h"

#include <math.h>
#include <stdlib.h>

#define ATTACK_MS 100       /* under the agent's first word */
#define HOLD_MS 200         /* how long it stays down after the agent's last sound */
#define RELEASE_MS 400      /* a return that is noticed as little as possible */
#define SWELL_MS 200        /* from nothing to the volume, and back */

void background_set(background_mixer_t *mixer, background_t *sound, float volume, float ducked)
{
    background_setting_t *next = malloc(sizeof *next);
    if (!next)
        return;
    if (sound)
        atomic_fetch_add(&sound->refs, 1);
    *next = (background_setting_t){sound, volume, ducked};
    background_setting_t *unseen = atomic_exchange(&mixer->next, next);
    if (unseen)
        background_release(unseen->sound);
    free(unseen);
}

void background_release(background_t *sound)
{
    if (sound && atomic_fetch_sub(&sound->refs, 1) == 1)
        free(sound);
}

static void forget(background_setting_t *setting)
{
    if (setting)
        background_release(setting->sound);
    free(setting);
}

void background_drop(background_mixer_t *mixer)
{
    forget(atomic_exchange(&mixer->next, NULL));
    forget(mixer->waiting);
    mixer->waiting = NULL;
    background_release(mixer->setting.sound);
    mixer->setting = (background_setting_t){0};
}

void background_reset(background_mixer_t *mixer)
{
    mixer->up = false;
    mixer->gain = 0;
    mixer->at = mixer->hold = 0;
}

static void adopt(background_mixer_t *mixer, background_setting_t *setting)
{
    if (setting->sound != mixer->setting.sound) {
        mixer->at = 0;
        mixer->up = false;
    }
    const float loudest = fmaxf(setting->volume, setting->ducked);
    mixer->whole = fmaxf(fmaxf(loudest, mixer->gain), 0.01f);
    background_release(mixer->setting.sound);
    mixer->setting = *setting;
    free(setting);
}

/* Another gain of the same sound applies at once; another sound waits until this one is silent. */
static void take_setting(background_mixer_t *mixer)
{
    background_setting_t *next = atomic_exchange(&mixer->next, NULL);
    if (next) {
        forget(mixer->waiting);
        mixer->waiting = next;
    }
    next = mixer->waiting;
    if (next && (next->sound == mixer->setting.sound || mixer->gain <= 0)) {
        mixer->waiting = NULL;
        adopt(mixer, next);
    }
}

/* The gain to go to, and by how much in a sample. A ramp takes its time whatever the volume is. */
static float next_gain(background_mixer_t *mixer, uint32_t rate, bool speaking, float *step)
{
    const background_setting_t *now = &mixer->setting;
    const float target = mixer->waiting ? 0 : speaking ? now->ducked : now->volume;
    mixer->up |= mixer->gain == target;
    const bool swells = mixer->waiting || !mixer->up;
    const int ms = swells ? SWELL_MS : speaking ? ATTACK_MS : RELEASE_MS;
    *step = mixer->whole * 1000 / ((float)ms * (float)rate);
    return target;
}

void background_mix(background_mixer_t *mixer, uint32_t rate, int16_t *out, uint32_t count, bool speaking)
{
    take_setting(mixer);
    if (speaking)
        mixer->hold = rate * HOLD_MS / 1000;
    const bool down = mixer->hold > 0;
    mixer->hold -= mixer->hold < count ? mixer->hold : count;
    background_t *sound = mixer->setting.sound;
    if (!sound)
        return;
    float step, target = next_gain(mixer, rate, down, &step);
    for (uint32_t i = 0; i < count; i++) {
        const float off = target - mixer->gain;
        mixer->gain = fabsf(off) <= step ? target : mixer->gain + copysignf(step, off);
        const float sample = (float)sound->samples[mixer->at] * mixer->gain;
        out[i] = pcm_saturate(out[i] + (int32_t)(sample + 32768.5f) - 32768); /* rounded */
        mixer->at = mixer->at + 1 < sound->length ? mixer->at + 1 : 0;
    }
}
