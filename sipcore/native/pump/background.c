/* A looped sound under a call's outgoing speech. Python hands a setting over; the pump's thread takes it at its next tick. */
#include "pump/slot.h"

#include <math.h>
#include <stdlib.h>

#define ATTACK_MS 100       /* under the agent's first word */
#define HOLD_MS 200         /* so long after the agent's last sound it stays down */
#define RELEASE_MS 400      /* a return that is noticed as little as possible */
#define SWELL_MS 200        /* from nothing to the volume, and back */

void slot_set_background(slot_t *slot, background_t *sound, float volume, float ducked)
{
    background_setting_t *next = malloc(sizeof *next);
    if (!next)
        return;
    if (sound)
        atomic_fetch_add(&sound->refs, 1);
    *next = (background_setting_t){sound, volume, ducked};
    background_setting_t *unseen = atomic_exchange(&slot->background_next, next);
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

void background_drop(slot_t *slot)
{
    forget(atomic_exchange(&slot->background_next, NULL));
    forget(slot->background_waiting);
    slot->background_waiting = NULL;
    background_release(slot->background.sound);
    slot->background = (background_setting_t){0};
}

static void adopt(slot_t *slot, background_setting_t *setting)
{
    if (setting->sound != slot->background.sound) {
        slot->background_at = 0;
        slot->background_up = false;
    }
    const float loudest = fmaxf(setting->volume, setting->ducked);
    slot->background_whole = fmaxf(fmaxf(loudest, slot->background_gain), 0.01f);
    background_release(slot->background.sound);
    slot->background = *setting;
    free(setting);
}

/* Another loudness of the same sound counts at once; another sound waits until this one is silent. */
static void take_background_setting(slot_t *slot)
{
    background_setting_t *next = atomic_exchange(&slot->background_next, NULL);
    if (next) {
        forget(slot->background_waiting);
        slot->background_waiting = next;
    }
    next = slot->background_waiting;
    if (next && (next->sound == slot->background.sound || slot->background_gain <= 0)) {
        slot->background_waiting = NULL;
        adopt(slot, next);
    }
}

/* The gain to go to, and by how much in a sample. A ramp takes its time whatever the volume is. */
static float next_gain(slot_t *slot, bool speaking, float *step)
{
    const background_setting_t *now = &slot->background;
    const float target = slot->background_waiting ? 0 : speaking ? now->ducked : now->volume;
    slot->background_up |= slot->background_gain == target;
    const bool swells = slot->background_waiting || !slot->background_up;
    const int ms = swells ? SWELL_MS : speaking ? ATTACK_MS : RELEASE_MS;
    *step = slot->background_whole * 1000 / ((float)ms * (float)atomic_load(&slot->rate));
    return target;
}

void background_mix(slot_t *slot, int16_t *out, uint32_t count, bool speaking)
{
    take_background_setting(slot);
    if (speaking)
        slot->background_hold = atomic_load(&slot->rate) * HOLD_MS / 1000;
    const bool down = slot->background_hold > 0;
    slot->background_hold -= slot->background_hold < count ? slot->background_hold : count;
    background_t *sound = slot->background.sound;
    if (!sound)
        return;
    float step, target = next_gain(slot, down, &step);
    for (uint32_t i = 0; i < count; i++) {
        const float off = target - slot->background_gain;
        slot->background_gain = fabsf(off) <= step ? target : slot->background_gain + copysignf(step, off);
        const float sample = (float)sound->samples[slot->background_at] * slot->background_gain;
        out[i] = saturated(out[i] + (int32_t)(sample + 32768.5f) - 32768); /* rounded */
        slot->background_at = slot->background_at + 1 < sound->length ? slot->background_at + 1 : 0;
    }
}
