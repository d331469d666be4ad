#include "pump/dtmf_sender.h"

#include "pump/fade.h"
#include "pump/pcm.h"

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

static uint32_t samples_of(uint32_t rate, char key)
{
    uint32_t ms = key == 'w' || key == ',' ? PAUSE_MS : ON_MS + OFF_MS;
    return ms * (rate / 1000);
}

static uint32_t samples_from(uint32_t rate, const char *keys)
{
    uint32_t sum = 0;
    for (; *keys; keys++)
        sum += samples_of(rate, *keys);
    return sum;
}

/* ---- Python's side ---- */

int dtmf_send(dtmf_sender_t *sender, uint32_t rate, uint64_t after, const char *keys)
{
    dtmf_request_t *next = calloc(1, sizeof *next);
    if (!next)
        return -1;
    strncpy(next->keys, keys, DTMF_MAX_KEYS);
    next->after = after;
    next->number = atomic_load(&sender->requested) + 1;
    atomic_store(&sender->total, samples_from(rate, next->keys));
    atomic_store(&sender->requested, next->number);
    free(atomic_exchange(&sender->next, next));
    return 0;
}

uint32_t dtmf_left(const dtmf_sender_t *sender)
{
    uint64_t state = atomic_load(&sender->state);
    return state >> 32 == atomic_load(&sender->requested) ? (uint32_t)state : atomic_load(&sender->total);
}

/* ---- the pump's side ---- */

/* The present key is finished: cut short, it might count as another press. */
static void accept_request(dtmf_sender_t *sender)
{
    dtmf_request_t *next = atomic_exchange(&sender->next, NULL);
    if (!next)
        return;
    char present = sender->at ? sender->request.keys[sender->key] : 0;
    uint64_t after = present ? 0 : next->after;
    sender->request = *next;
    sender->request.after = after;
    sender->key = 0;
    if (present) {
        memmove(sender->request.keys + 1, sender->request.keys, DTMF_MAX_KEYS);
        sender->request.keys[0] = present;
    }
    free(next);
}

static uint32_t speech_before_keys(const dtmf_sender_t *sender, const _Atomic uint64_t *sent)
{
    uint64_t position = atomic_load(sent);
    return sender->request.after > position ? (uint32_t)(sender->request.after - position) : 0;
}

/* Keys begin with a frame: the one after the last with speech in it. */
uint32_t dtmf_speech_samples(dtmf_sender_t *sender, const _Atomic uint64_t *sent, uint32_t count)
{
    accept_request(sender);
    if (!sender->request.keys[sender->key])
        return count;
    uint32_t first = sender->at ? 0 : speech_before_keys(sender, sent);
    return first < count ? first : count;
}

/* PJMEDIA sends the events in the place of the frames that come next, and repeats their end (RFC 4733, 2.5.1.4). */
static bool begin_event(pjmedia_stream *stream, char key)
{
    pj_str_t digit = {&key, 1};
    return stream && pjmedia_stream_dial_dtmf2(stream, &digit, ON_MS) == PJ_SUCCESS;
}

static int32_t tone(const dtmf_sender_t *sender, uint32_t rate, char key)
{
    const uint32_t on = rate / 1000 * ON_MS, ramp = rate / 1000 * FADE_MS;
    const uint32_t at = sender->at, place = (uint32_t)(strchr(keypad, key) - keypad);
    if (at >= on)
        return 0;
    const double radians = 2 * M_PI * at / rate;
    const double edge = at < ramp ? (double)at / ramp : on - at < ramp ? (double)(on - at) / ramp : 1;
    const double low = LOW_LEVEL * sin(radians * low_hz[place / 4]), high = HIGH_LEVEL * sin(radians * high_hz[place % 4]);
    return (int32_t)lrint(edge * (low + high));
}

/* The next sample of the keys: silence in a pause and where events stand for the tone. */
static int32_t next_sample(dtmf_sender_t *sender, pjmedia_stream *stream, uint32_t rate, char key)
{
    const bool pause = key == 'w' || key == ',';
    if (sender->at == 0)
        sender->event = !pause && begin_event(stream, key);
    int32_t sample = pause || sender->event ? 0 : tone(sender, rate, key);
    if (++sender->at == samples_of(rate, key)) {
        sender->at = 0;
        sender->key++;
    }
    return sample;
}

void dtmf_mix(dtmf_sender_t *sender, pjmedia_stream *stream, uint32_t rate, int16_t *out, uint32_t count)
{
    for (uint32_t i = 0; i < count && sender->request.keys[sender->key]; i++)
        out[i] = pcm_saturate(out[i] + next_sample(sender, stream, rate, sender->request.keys[sender->key]));
}

void dtmf_publish_left(dtmf_sender_t *sender, const _Atomic uint64_t *sent, uint32_t rate)
{
    if (!sender->request.number)
        return;
    uint32_t left = samples_from(rate, sender->request.keys + sender->key) - sender->at;
    if (left)
        left += speech_before_keys(sender, sent);
    atomic_store(&sender->state, (uint64_t)sender->request.number << 32 | left);
}

void dtmf_drop(dtmf_sender_t *sender)
{
    free(atomic_exchange(&sender->next, NULL));
    sender->request = (dtmf_request_t){0};
    sender->key = sender->at = 0;
    atomic_store(&sender->requested, 0);
    atomic_store(&sender->state, 0);
}
