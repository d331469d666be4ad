/* Where speech begins and where it stops: ramps of FADE_MS, so that nothing clicks. */
#include "pump/slot.h"

#include <string.h>

static int16_t comfort_noise(slot_t *slot)
{
    slot->noise = slot->noise * 1664525u + 1013904223u;
    return (int16_t)((int32_t)(slot->noise >> 28) - 8); /* about -76 dBFS */
}

/* Sound stops here: let what would have followed (`count` samples are known; then the last one stands) fade out under
 * whatever comes. The played-samples clock does not count it: after a pause the same samples fade in again. */
static void begin_tail(slot_t *slot, const int16_t *ahead, uint32_t count, int32_t last)
{
    const int32_t ramp = (int32_t)(atomic_load(&slot->rate) * FADE_MS / 1000);
    for (int32_t k = 0; k < ramp; k++) {
        last = (uint32_t)k < count ? ahead[k] : last;
        slot->tail[k] = (int16_t)(last * (ramp - k) / ramp);
    }
    slot->tail_at = 0;
    slot->tail_count = (uint32_t)ramp;
}

static void add_tail(slot_t *slot, int16_t *out, uint32_t count)
{
    for (uint32_t i = 0; i < count && slot->tail_at < slot->tail_count; i++)
        out[i] = saturated(out[i] + slot->tail[slot->tail_at++]);
}

void edges_smooth(slot_t *slot, int16_t *out, const taken_t *taken, uint32_t count, bool short_of)
{
    const uint32_t ramp = atomic_load(&slot->rate) * FADE_MS / 1000, have = taken->count;
    const uint32_t flushes = atomic_load(&slot->flushes);
    const bool cut = slot->sounding && flushes != slot->flushes_seen;
    slot->flushes_seen = flushes;
    if (have && (cut || !slot->sounding))
        for (uint32_t i = 0; i < ramp && i < have; i++)
            out[i] = (int16_t)((int32_t)out[i] * (int32_t)i / (int32_t)ramp);
    if (cut || (slot->sounding && !have))
        begin_tail(slot, slot->ahead, slot->ahead_count, slot->last);
    add_tail(slot, out, have);
    if (have < count) {
        if (have)
            begin_tail(slot, NULL, 0, out[have - 1]);
        for (uint32_t i = have; i < count; i++)
            out[i] = short_of ? comfort_noise(slot) : 0;
        add_tail(slot, out + have, count - have);
    }
    slot->sounding = have == count;
    slot->last = out[count - 1];
    slot->ahead_count = taken->ahead_count;
    memcpy(slot->ahead, taken->ahead, taken->ahead_count * sizeof(int16_t));
}

void edges_comfort(slot_t *slot, int16_t *out, uint32_t count)
{
    const taken_t none = {0};
    edges_smooth(slot, out, &none, count, true);
}
