#include "pump/fade.h"

#include <string.h>

void fade_init(fade_t *fade, int seed)
{
    *fade = (fade_t){.noise = 0x9E3779B9u ^ (uint32_t)seed};
}

void fade_reset(fade_t *fade)
{
    fade->last = 0;
    fade->sounding = false;
    fade->ahead_count = fade->tail_count = fade->tail_at = 0;
}

void fade_on_flush(fade_t *fade)
{
    atomic_fetch_add(&fade->flushes, 1);
}

static int16_t comfort_noise(fade_t *fade)
{
    fade->noise = fade->noise * 1664525u + 1013904223u;
    return (int16_t)((int32_t)(fade->noise >> 28) - 8); /* about -76 dBFS */
}

/* Audio stops here: the samples that would have followed (`count` are known; then the last one is repeated) fade out under the
 * next audio. The played-samples clock does not count it: after a pause the same samples fade in again. */
static void begin_tail(fade_t *fade, int32_t ramp, const int16_t *ahead, uint32_t count, int32_t last)
{
    for (int32_t k = 0; k < ramp; k++) {
        last = (uint32_t)k < count ? ahead[k] : last;
        fade->tail[k] = (int16_t)(last * (ramp - k) / ramp);
    }
    fade->tail_at = 0;
    fade->tail_count = (uint32_t)ramp;
}

static void add_tail(fade_t *fade, int16_t *out, uint32_t count)
{
    for (uint32_t i = 0; i < count && fade->tail_at < fade->tail_count; i++)
        out[i] = pcm_saturate(out[i] + fade->tail[fade->tail_at++]);
}

void fade_apply(fade_t *fade, uint32_t rate, int16_t *out, const speech_t *speech, uint32_t count, bool under_run)
{
    const uint32_t ramp = rate * FADE_MS / 1000, have = speech->count;
    const uint32_t flushes = atomic_load(&fade->flushes);
    const bool cut = fade->sounding && flushes != fade->flushes_seen;
    fade->flushes_seen = flushes;
    if (have && (cut || !fade->sounding))
        for (uint32_t i = 0; i < ramp && i < have; i++)
            out[i] = (int16_t)((int32_t)out[i] * (int32_t)i / (int32_t)ramp);
    if (cut || (fade->sounding && !have))
        begin_tail(fade, (int32_t)ramp, fade->ahead, fade->ahead_count, fade->last);
    add_tail(fade, out, have);
    if (have < count) {
        if (have)
            begin_tail(fade, (int32_t)ramp, NULL, 0, out[have - 1]);
        for (uint32_t i = have; i < count; i++)
            out[i] = under_run ? comfort_noise(fade) : 0;
        add_tail(fade, out + have, count - have);
    }
    fade->sounding = have == count;
    fade->last = out[count - 1];
    fade->ahead_count = speech->ahead_count;
    memcpy(fade->ahead, speech->ahead, speech->ahead_count * sizeof(int16_t));
}

void fade_comfort_noise(fade_t *fade, uint32_t rate, int16_t *out, uint32_t count)
{
    const speech_t none = {0};
    fade_apply(fade, rate, out, &none, count, true);
}
