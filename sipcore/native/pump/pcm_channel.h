/* PCM channel: the audio of a call without RTP. Python writes the frames of the peer and reads those for it, at 16 kHz in any
 * case; the pump's thread takes and puts 20 ms at the slot's rate, which is 16 kHz, or 8 kHz as on a telephone line: with
 * G.711 companding. Neither side ever waits for the other one: a full ring loses its oldest audio. */
#ifndef TRUNKLINE_PUMP_PCM_CHANNEL_H
#define TRUNKLINE_PUMP_PCM_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pump/rate_conversion.h"

#define PCM_CHANNEL_RATE 16000u
#define PCM_CHANNEL_RING 16384u     /* samples */
#define PCM_CHANNEL_LIMIT 8000u     /* samples that wait at most: 500 ms */

typedef struct pcm_ring {
    _Alignas(8) _Atomic int16_t samples[PCM_CHANNEL_RING];
    _Atomic uint64_t read, written, dropped;    /* dropped: samples */
} pcm_ring_t;

typedef struct pcm_channel {
    _Atomic int refs;
    bool telephone;
    int event_fd;                       /* readable when there is audio for the peer */
    pcm_ring_t from_peer, to_peer;
    _Atomic int64_t newest_ns;          /* when the peer's newest frame came; 0 before any */
    _Atomic uint64_t frames, missing;   /* that the peer has sent; ticks without enough audio of the peer */
    _Atomic uint64_t clear_at;          /* 1 + the position in `to_peer` of the latest interruption; 0: it was reported */
    bool filling;                       /* the pump's: no audio until enough is there */
    rate_conversion_t down, up;         /* the pump's */
} pcm_channel_t;

/* Returns a channel with one reference; NULL without memory or descriptors. */
pcm_channel_t *pcm_channel_create(bool telephone);
void pcm_channel_add_ref(pcm_channel_t *channel);
void pcm_channel_release(pcm_channel_t *channel);
/* The rate of its slot, Hz. */
uint32_t pcm_channel_slot_rate(const pcm_channel_t *channel);

/* Python's side, on one thread. `count` is PCM_CHANNEL_LIMIT at most. */
void pcm_channel_write(pcm_channel_t *channel, const int16_t *samples, uint32_t count);
/* Takes up to `capacity` samples. `clear`: how many of them precede the latest interruption, -1 without one since the read
 * before. */
uint32_t pcm_channel_read(pcm_channel_t *channel, int16_t *samples, uint32_t capacity, int32_t *clear);

/* The pump's side; `count` samples at the slot's rate. Returns false if the peer has not sent enough. */
bool pcm_channel_take(pcm_channel_t *channel, int16_t *out, uint32_t count);
void pcm_channel_put(pcm_channel_t *channel, const int16_t *in, uint32_t count);
/* The agent was interrupted: the peer is to drop the audio that was put before. */
void pcm_channel_clear(pcm_channel_t *channel);
/* The peer's audio that waits, in ms. */
uint32_t pcm_channel_waiting_ms(const pcm_channel_t *channel);

#endif
