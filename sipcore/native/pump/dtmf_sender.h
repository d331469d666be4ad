/* Outgoing DTMF: RFC 4733 events where the peer has negotiated them, else tones in the audio (ITU-T Q.23). Keys replace the
 * agent's speech, which waits, and an interruption does not stop them. Python hands over a request; the pump's thread takes
 * it at its next tick and times the keys. */
#ifndef TRUNKLINE_PUMP_DTMF_SENDER_H
#define TRUNKLINE_PUMP_DTMF_SENDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <pjmedia.h>

#define DTMF_MAX_KEYS 64    /* keys and pauses of one request */

/* Keys to send once the speech up to position `after` has been sent: 0-9 * # A-D, and w and , for a pause. */
typedef struct dtmf_request {
    uint64_t after;
    uint32_t number;        /* of the request, counted by the sender */
    char keys[DTMF_MAX_KEYS + 2];
} dtmf_request_t;

typedef struct dtmf_sender {
    dtmf_request_t request;
    uint32_t key, at;               /* index of the present key, and its samples that have been sent */
    bool event;                     /* the key goes out as RFC 4733 events, not as a tone */
    _Atomic(dtmf_request_t *) next;
    _Atomic uint32_t requested, total;  /* number of the latest request, and its samples */
    _Atomic uint64_t state;         /* number of the present request << 32 | its samples that are left */
} dtmf_sender_t;

/* Python's side. Sends keys instead of those that have not begun, after the speech up to position `after`, at `rate` Hz;
 * returns -1 if out of memory. */
int dtmf_send(dtmf_sender_t *sender, uint32_t rate, uint64_t after, const char *keys);
/* Samples until the keys of the latest request have been sent; 0 then. */
uint32_t dtmf_left(const dtmf_sender_t *sender);

/* The pump's side; `stream` is NULL without RTP; `sent` is the position up to which speech has been sent. Returns how many of the next `count` samples may
 * be speech; with 0, dtmf_mix adds the keys to the frame. */
uint32_t dtmf_speech_samples(dtmf_sender_t *sender, const _Atomic uint64_t *sent, uint32_t count);
void dtmf_mix(dtmf_sender_t *sender, pjmedia_stream *stream, uint32_t rate, int16_t *out, uint32_t count);
/* Publishes how much of the request is left, for dtmf_left, once a frame. */
void dtmf_publish_left(dtmf_sender_t *sender, const _Atomic uint64_t *sent, uint32_t rate);
/* The call is over. */
void dtmf_drop(dtmf_sender_t *sender);

#endif
