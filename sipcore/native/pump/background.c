#include "pump/background.h"

#include "pump/pcm.h"

#include <math.h>
#include <stdlib.h>

#define ATTACK_MS 100           /* ramp down to the ducked gain, when the agent begins to speak */
#define HOLD_MS 200             /* time at the ducked gain after the agent's last sound */
#define RELEASE_MS 400          /* ramp back to the volume, as unnoticed as possible */
#define START_STOP_FADE_MS 200  /* ramp from silence to the volume, and back */

void background_set(background_mixer_t *mixer, background_t *sound, float volume, float ducked)
{
    background_setting_t *next = malloc(sizeof *next);
    if (!next)
        return;
    if (sound)
        atomic_fetch_add(&sound->refs, 1);
    *next = (background_setting_t){sound, volume, ducked};
    background_setting_t *replaced = atomic_exchange(&mixer->next, next);
    if (replaced)
        background_release(replaced->sound);
    free(replaced);
}

void background_release(background_t *sound)
{
    if (sound && atomic_fetch_sub(&sound->refs, 1) == 1)
        free(sound);
}

static void free_setting(background_setting_t *setting)
{
    if (setting)
        background_release(setting->sound);
    free(setting);
}

void background_drop(background_mixer_t *mixer)
{
    free_setting(atomic_exchange(&mixer->next, NULL));
    free_setting(mixer->pending);
    mixer->pending = NULL;
    background_release(mixer->setting.sound);
    mixer->setting = (background_setting_t){0};
}

void background_reset(background_mixer_t *mixer)
{
    mixer->reached = false;
    mixer->gain = 0;
    mixer->at = mixer->hold_samples = 0;
}

static void apply_setting(background_mixer_t *mixer, background_setting_t *setting)
{
    if (setting->sound != mixer->setting.sound) {
        mixer->at = 0;
        mixer->reached = false;
    }
    const float loudest = fmaxf(setting->volume, setting->ducked);
    mixer->ramp_span = fmaxf(fmaxf(loudest, mixer->gain), 0.01f);
    background_release(mixer->setting.sound);
    mixer->setting = *setting;
    free(setting);
}

/* Another gain of the same sound applies at once; another sound waits until this one is silent. */
static void poll_setting(background_mixer_t *mixer)
{
    background_setting_t *next = atomic_exchange(&mixer->next, NULL);
    if (next) {
        free_setting(mixer->pending);
        mixer->pending = next;
    }
    next = mixer->pending;
    if (next && (next->sound == mixer->setting.sound || mixer->gain <= 0)) {
        mixer->pending = NULL;
        apply_setting(mixer, next);
    }
}

/* Returns the target gain, and in `step` its change per sample. The duration of a ramp does not depend on the volume. */
static float next_gain(background_mixer_t *mixer, uint32_t rate, bool speaking, float *step)
{
    const background_setting_t *now = &mixer->setting;
    const float target = mixer->pending ? 0 : speaking ? now->ducked : now->volume;
    mixer->reached |= mixer->gain == target;
    const bool starts_or_stops = mixer->pending || !mixer->reached;
    const int ms = starts_or_stops ? START_STOP_FADE_MS : speaking ? ATTACK_MS : RELEASE_MS;
    *step = mixer->ramp_span * 1000 / ((float)ms * (float)rate);
    return target;
}

void background_mix(background_mixer_t *mixer, uint32_t rate, int16_t *out, uint32_t count, bool speaking)
{
    poll_setting(mixer);
    if (speaking)
        mixer->hold_samples = rate * HOLD_MS / 1000;
    const bool down = mixer->hold_samples > 0;
    mixer->hold_samples -= mixer->hold_samples < count ? mixer->hold_samples : count;
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
