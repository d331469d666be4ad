/* DTMF that we send: RFC 4733 events where the peer has negotiated them, else tones in the sound (ITU-T Q.23). Keys go out
 * in the place of the agent's speech, which waits, and an interruption does not reach them. Python hands a request over; the
 * pump's thread takes it at its next tick and keeps the time. */
#ifndef TRUNKLINE_PUMP_DTMF_SENDER_H
#define TRUNKLINE_PUMP_DTMF_SENDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <pjmedia.h>

#define DTMF_MAX_KEYS 64    /* keys and pauses of one request */

/* Keys to send in the place of speech, once what was written up to `after` has been sent: 0-9 * # A-D, and w and , for
 * a pause. */
typedef struct dtmf_request {
    uint64_t after;
    uint32_t number;        /* of the request, counted by the sender */
    char keys[DTMF_MAX_KEYS + 2];
} dtmf_request_t;

typedef struct dtmf_sender {
    dtmf_request_t request;
    uint32_t key, at;               /* which of the keys, and how many samples of it are over */
    bool event;                     /* the key goes out as RFC 4733 events, not as a tone */
    _Atomic(dtmf_request_t *) next;
    _Atomic uint32_t asked, total;  /* number of the latest request, and its samples */
    _Atomic uint64_t state;         /* number of the request that is sent << 32 | samples that are left of it */
} dtmf_sender_t;

/* Python's side. Send keys in the place of those that are not begun yet, after the speech up to position `after`, at `rate`
 * Hz; -1 without memory. */
int dtmf_send(dtmf_sender_t *sender, uint32_t rate, uint64_t after, const char *keys);
/* Samples until the keys of the latest request have been sent; 0 then. */
uint32_t dtmf_left(const dtmf_sender_t *sender);

/* The pump's side; `sent` is the position up to which speech has been sent. How many of the next `count` samples may be
 * speech: with none of them, the keys are added to `out`. */
uint32_t dtmf_speech(dtmf_sender_t *sender, const _Atomic uint64_t *sent, uint32_t count);
void dtmf_mix(dtmf_sender_t *sender, pjmedia_stream *stream, uint32_t rate, int16_t *out, uint32_t count);
/* Let Python see how much of its request is left, once a frame. */
void dtmf_report(dtmf_sender_t *sender, const _Atomic uint64_t *sent, uint32_t rate);
/* The call is over. */
void dtmf_drop(dtmf_sender_t *sender);

#endif
