/* Slot: the pair of audio rings of one call, and its stream.
 *
 * Threads:
 *   - the pump thread of the slot's shard is the only consumer of `tx` and the only producer of `rx`;
 *   - Python is the producer of `tx` and the consumer of `rx`; the GIL makes it a single one;
 *   - PJSIP's worker attaches and detaches the stream, under `stream_lock`, which Python never takes.
 * A call without RTP has a PCM channel instead of a stream.
 * So no tick ever waits for Python. All positions count samples since the slot opened and never wrap (64 bits). Those of `rx`
 * follow the clock from the slot's first tick on: silence is stored for ticks that the slot has missed or had no stream in.
 */
#ifndef TRUNKLINE_PUMP_SLOT_H
#define TRUNKLINE_PUMP_SLOT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#include "pump/background.h"
#include "pump/bridge.h"
#include "pump/dtmf_sender.h"
#include "pump/fade.h"
#include "pump/jitter_buffer.h"
#include "pump/packet_arrival.h"
#include "pump/pcm.h"
#include "pump/pcm_channel.h"
#include "pump/tick.h"
#include "rtp/rtp_stats.h"

#define RX_MS 1400                  /* delay of Python's reads after which the oldest audio is dropped: `UNREAD_MS` in Python */
#define TX_MS 30000                 /* audio that may be written ahead of playout */
#define MAX_FRAME (MAX_RATE * 60 / 1000)

enum slot_state { SLOT_FREE, SLOT_OPEN, SLOT_CLOSING };

typedef struct slot {
    _Atomic int state;
    _Atomic uint32_t generation;
    int index;
    _Atomic int shard;              /* the pump thread that ticks the slot; changed by that thread alone */
    _Atomic int next_shard;         /* the one that is to tick it from now on: bridged slots have the same one */
    _Atomic int phase;              /* of the slot's ticks; changed by that thread alone, 0 except while it is bridged */
    int64_t ticked_ns;              /* the tick that the slot has had, on the grid of all pump threads */
    _Atomic pjsua_call_id call;     /* set by PJSIP's worker; any thread may compare it */

    struct null_port *null;         /* replaces the stream in the conference bridge; under the pump's `open_lock` */
    pthread_mutex_t stream_lock;
    _Atomic(pjmedia_port *) port;   /* the RTP stream's port, with a reference. Any thread may test it for NULL */
    pjmedia_port *source;           /* what the pump drives: `port`, or a resampler in front of it */
    pj_pool_t *resampler_pool;      /* NULL without a resampler */
    pjmedia_stream *stream;         /* NULL without RTP */
    pcm_channel_t *pcm;             /* of `port`, if that is a PCM port; under `stream_lock` */
    pthread_mutex_t stats_lock;     /* held briefly, within `stream_lock` or alone */
    rtp_stats_t *stats;             /* with a reference; NULL while the slot is free */
    _Atomic uint32_t rate;          /* Hz */
    uint32_t frame;                 /* samples per frame of `source`, at the slot's rate */
    jitter_buffer_t jitter;
    packet_arrival_t arrival;
    uint32_t due;                   /* samples due to the stream in this tick */
    int64_t accounted_ns;           /* the tick up to which `owed` has counted, and */
    uint64_t owed;                  /* samples that are to be stored for the time until then */
    uint64_t timestamp;
    int16_t received[MAX_FRAME];    /* received frames of this tick, until frames are sent for them */
    uint32_t received_count;        /* samples */

    /* received and sent audio, written together: sample n of one belongs to sample n of the other. Only the position tells,
     * after a read, whether samples were overwritten meanwhile: so they are atomic */
    _Atomic int16_t *rx_audio, *tx_audio;
    uint32_t rx_mask;
    _Atomic uint64_t rx_read, rx_written;
    _Atomic uint64_t live_end;      /* position after the last sample that a stream has given */
    _Atomic int64_t origin_ns;      /* CLOCK_MONOTONIC time of position 0; 0 before the first tick */
    _Atomic int64_t rx_ns;          /* when the newest packet came */
    _Atomic int64_t tick_ns;        /* when the last frame went through the pump */
    _Atomic int32_t jitter_ms;

    _Atomic int16_t *tx;
    uint32_t tx_mask;
    _Atomic uint64_t tx_base;       /* position at tx[0], moved when the ring is empty, so that few pages are touched */
    _Atomic uint64_t tx_read, tx_written;
    _Atomic bool paused, open;
    _Atomic uint32_t interruptions; /* flushes that have cut speech short */
    uint32_t interruptions_seen;

    fade_t fade;
    background_mixer_t background;
    dtmf_sender_t dtmf;
    bridge_port_t bridge;
    bool speaking;                  /* the agent, gaps within an answer included */

    int64_t last_sent_ns;
    uint64_t last_packet_count;
    _Atomic int64_t last_packet_ns;
    int64_t last_report_ns;         /* of `receiver_report_send` */
    _Atomic uint64_t frames_sent, frames_received, frames_missing, under_runs, over_runs;
} slot_t;

void slot_init(slot_t *slot, int index);
/* Takes over the caller's reference of `stats` unless it fails. `stream` is NULL for a PCM port, which has no `stats`. */
int slot_open(slot_t *slot, pjsua_call_id call, pjmedia_port *port, pjmedia_stream *stream, rtp_stats_t *stats);
int slot_attach(slot_t *slot, pjmedia_port *port, pjmedia_stream *stream);
void slot_detach(slot_t *slot);
/* The call's RTP statistics, with a reference; NULL if it has none. */
rtp_stats_t *slot_rtp_stats(slot_t *slot);
/* The call is over: releases the stream, the background sound and the statistics. */
void slot_close(slot_t *slot);

/* The pump's side. A tick receives the frames that are due, then sends as many. All slots of a pump thread receive before the
 * first one sends, so that a bridge adds no delay. */
void slot_receive(slot_t *slot, const tick_t *tick);
void slot_send(slot_t *slot, int64_t now_ns, void (*sent)(void *, int64_t), void *arg);
/* After both: the slot's next tick has the phase that its bridge has chosen, 20 to 37.5 ms after the present one. */
void slot_follow_phase(slot_t *slot);
/* Reads the stream's packet count and jitter buffer. */
void slot_poll_stats(slot_t *slot, int64_t now_ns);

/* Python's side. */
uint32_t slot_write(slot_t *slot, const int16_t *samples, uint32_t count);
uint64_t slot_flush(slot_t *slot);
/* Reads nothing while the slot holds fewer than `least` samples. */
uint32_t slot_read(slot_t *slot, int16_t *rx_audio, int16_t *tx_audio, uint32_t capacity, uint32_t least, uint64_t *position);

#endif
