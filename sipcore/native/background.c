/* A looped sound under a call's outgoing speech. Python hands a setting over; the pump's thread takes it at its next tick. */
#include "slot.h"

#include <stdlib.h>

void slot_set_background(slot_t *slot, background_t *sound, int32_t volume, int32_t ducked)
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

void background_drop(slot_t *slot)
{
    background_setting_t *unseen = atomic_exchange(&slot->background_next, NULL);
    if (unseen)
        background_release(unseen->sound);
    free(unseen);
    background_release(slot->background.sound);
    slot->background = (background_setting_t){0};
}

static void take_background_setting(slot_t *slot)
{
    background_setting_t *next = atomic_exchange(&slot->background_next, NULL);
    if (!next)
        return;
    background_release(slot->background.sound);
    slot->background = *next;
    slot->background_at = 0;
    free(next);
}

void background_mix(slot_t *slot, int16_t *out, uint32_t count, bool speaking)
{
    take_background_setting(slot);
    background_t *sound = slot->background.sound;
    if (!sound)
        return;
    int32_t target = speaking ? slot->background.ducked : slot->background.volume;
    int32_t step = (int32_t)(32768 * 5 / atomic_load(&slot->rate)) + 1; /* full swing in about 200 ms */
    for (uint32_t i = 0; i < count; i++) {
        int32_t off = target - slot->background_gain;
        slot->background_gain += off > step ? step : off < -step ? -step : off;
        out[i] = saturated(out[i] + (((int32_t)sound->samples[slot->background_at] * slot->background_gain) >> 15));
        slot->background_at = slot->background_at + 1 < sound->length ? slot->background_at + 1 : 0;
    }
}
