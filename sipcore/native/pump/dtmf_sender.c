/* Keys that we press: RFC 4733 events where the peer has negotiated them, else tones in the sound (ITU-T Q.23). They go
 * out in the place of the agent's speech, which waits, and an interruption does not reach them. Python hands a request
 * over; the pump's thread takes it at its next tick and keeps the time. */
#include "pump/slot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ON_MS 100           /* more than the 40 ms that every receiver must notice (ITU-T Q.24), both ways */
#define OFF_MS 100
#define PAUSE_MS 500
#define LOW_LEVEL 7200      /* peak: -10 dBm0 */
#define HIGH_LEVEL 9060     /* peak: -8 dBm0: lines lose more of the high tones */

static const char keypad[] = "123A456B789C*0#D";
static const double low_hz[] = {697, 770, 852, 941}, high_hz[] = {1209, 1336, 1477, 1633};

static uint32_t samples_of(const slot_t *slot, char key)
{
    uint32_t ms = key == 'w' || key == ',' ? PAUSE_MS : ON_MS + OFF_MS;
    return ms * (atomic_load(&slot->rate) / 1000);
}

static uint32_t samples_from(const slot_t *slot, const char *keys)
{
    uint32_t sum = 0;
    for (; *keys; keys++)
        sum += samples_of(slot, *keys);
    return sum;
}

/* ---- Python's side ---- */

int slot_dial(slot_t *slot, const char *keys)
{
    dial_t *next = calloc(1, sizeof *next);
    if (!next)
        return -1;
    strncpy(next->keys, keys, DIAL_MOST);
    next->after = atomic_load(&slot->tx_written);
    next->number = atomic_load(&slot->dial_asked) + 1;
    atomic_store(&slot->dial_total, samples_from(slot, next->keys));
    atomic_store(&slot->dial_asked, next->number);
    free(atomic_exchange(&slot->dial_next, next));
    return 0;
}

uint32_t slot_dial_left(const slot_t *slot)
{
    uint64_t state = atomic_load(&slot->dial_state);
    return state >> 32 == atomic_load(&slot->dial_asked) ? (uint32_t)state : atomic_load(&slot->dial_total);
}

/* ---- the pump's side ---- */

/* A key that is under way is finished: what it would be cut to might be taken for another press. */
static void take_request(slot_t *slot)
{
    dial_t *next = atomic_exchange(&slot->dial_next, NULL);
    if (!next)
        return;
    char under_way = slot->dial_at ? slot->dial.keys[slot->dial_key] : 0;
    uint64_t after = under_way ? 0 : next->after;
    slot->dial = *next;
    slot->dial.after = after;
    slot->dial_key = 0;
    if (under_way) {
        memmove(slot->dial.keys + 1, slot->dial.keys, DIAL_MOST);
        slot->dial.keys[0] = under_way;
    }
    free(next);
}

static uint32_t speech_first(const slot_t *slot)
{
    uint64_t read = atomic_load(&slot->tx_read);
    return slot->dial.after > read ? (uint32_t)(slot->dial.after - read) : 0;
}

/* Keys begin with a frame: the one after the last with speech in it. */
uint32_t dial_speech(slot_t *slot, uint32_t count)
{
    take_request(slot);
    if (!slot->dial.keys[slot->dial_key])
        return count;
    uint32_t first = slot->dial_at ? 0 : speech_first(slot);
    return first < count ? first : count;
}

/* PJMEDIA sends the events in the place of the frames that come next, and repeats their end (RFC 4733, 2.5.1.4). */
static bool begin_event(slot_t *slot, char key)
{
    pj_str_t digit = {&key, 1};
    return pjmedia_stream_dial_dtmf2(slot->stream, &digit, ON_MS) == PJ_SUCCESS;
}

static int32_t tone(const slot_t *slot, char key)
{
    const uint32_t rate = atomic_load(&slot->rate), on = rate / 1000 * ON_MS, ramp = rate / 1000 * FADE_MS;
    const uint32_t at = slot->dial_at, place = (uint32_t)(strchr(keypad, key) - keypad);
    if (at >= on)
        return 0;
    const double radians = 2 * M_PI * at / rate;
    const double edge = at < ramp ? (double)at / ramp : on - at < ramp ? (double)(on - at) / ramp : 1;
    return (int32_t)lrint(edge * (LOW_LEVEL * sin(radians * low_hz[place / 4]) + HIGH_LEVEL * sin(radians * high_hz[place % 4])));
}

/* The next sample of the keys; `*silent` when it is none of a tone. */
static int32_t next_sample(slot_t *slot, char key)
{
    const bool pause = key == 'w' || key == ',';
    if (slot->dial_at == 0)
        slot->dial_event = !pause && begin_event(slot, key);
    int32_t sample = pause || slot->dial_event ? 0 : tone(slot, key);
    if (++slot->dial_at == samples_of(slot, key)) {
        slot->dial_at = 0;
        slot->dial_key++;
    }
    return sample;
}

void dial_mix(slot_t *slot, int16_t *out, uint32_t count)
{
    for (uint32_t i = 0; i < count && slot->dial.keys[slot->dial_key]; i++)
        out[i] = saturated(out[i] + next_sample(slot, slot->dial.keys[slot->dial_key]));
}

void dial_tell(slot_t *slot)
{
    if (!slot->dial.number)
        return;
    uint32_t left = samples_from(slot, slot->dial.keys + slot->dial_key) - slot->dial_at;
    if (left)
        left += speech_first(slot);
    atomic_store(&slot->dial_state, (uint64_t)slot->dial.number << 32 | left);
}

void dial_drop(slot_t *slot)
{
    free(atomic_exchange(&slot->dial_next, NULL));
    slot->dial = (dial_t){0};
    slot->dial_key = slot->dial_at = 0;
    atomic_store(&slot->dial_asked, 0);
    atomic_store(&slot->dial_state, 0);
}
