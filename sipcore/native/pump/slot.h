/* One call's pair of rings, and the stream that feeds them.
 *
 * Who touches what:
 *   - the pump thread of the slot's shard is the only consumer of `tx` and the only producer of `rx`;
 *   - Python is the producer of `tx` and the consumer of `rx`; the GIL makes it a single one;
 *   - PJSIP's worker attaches and detaches the stream, under `stream_lock`, which Python never takes.
 * So no tick ever waits for Python. All positions count samples since the slot opened and never wrap (64 bits).
 */
#ifndef TRUNKLINE_PUMP_SLOT_H
#define TRUNKLINE_PUMP_SLOT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#include "rtp/rtp_stats.h"

#define TICK_MS 20
#define TICK_NS 20000000LL
#define RX_MS 400           /* what Python may be late before the oldest sound is dropped */
#define TX_MS 30000         /* what may be written ahead of playout */
#define MAX_RATE 48000
#define MAX_FRAME (MAX_RATE * 60 / 1000)
#define ARRIVAL_LIMIT_NS 60000000LL /* a newer packet than this must have come, else none is coming */
#define FADE_MS 5           /* ramp at every edge between sound and silence, so that nothing clicks */
#define MAX_FADE (MAX_RATE * FADE_MS / 1000)
#define DIAL_MOST 64        /* keys and pauses that are dialled at a time */

enum slot_state { SLOT_FREE, SLOT_OPEN, SLOT_CLOSING };

/* A looped sound, shared by all slots that play it. */
typedef struct background {
    _Atomic int refs;
    uint32_t length;
    int16_t samples[];
} background_t;

typedef struct background_setting {
    background_t *sound;    /* NULL: none */
    float volume;           /* gain while the agent is silent */
    float ducked;           /* gain while the agent speaks */
} background_setting_t;

/* Keys to send in the place of speech, once what was written up to `after` has been sent: 0-9 * # A-D, and w and , for
 * a pause. */
typedef struct dial {
    uint64_t after;
    uint32_t number;        /* of the request, counted by the slot */
    char keys[DIAL_MOST + 2];
} dial_t;

/* What is sent next, and a look at what would follow it. */
typedef struct taken {
    uint32_t count, ahead_count;
    int16_t ahead[MAX_FADE];
} taken_t;

typedef struct slot {
    _Atomic int state;
    _Atomic uint32_t generation;
    int index;
    int shard;
    _Atomic pjsua_call_id call;     /* PJSIP's worker sets it, anybody may compare it */

    struct null_port *null;         /* what stands in the conference bridge for the stream, under the pump's `open_lock` */
    pthread_mutex_t stream_lock;
    _Atomic(pjmedia_port *) port;   /* the RTP stream's own port; we hold a reference. Anybody may ask whether there is one */
    pjmedia_port *source;           /* what the pump drives: `port`, or a resampler in front of it */
    pj_pool_t *resampler_pool;      /* NULL without a resampler */
    pjmedia_stream *stream;
    pthread_mutex_t quality_lock;   /* taken for a moment, within `stream_lock` or alone */
    rtp_quality_t *quality;         /* we hold a reference; NULL while the slot is free */
    _Atomic uint32_t rate;          /* Hz */
    uint32_t frame;                 /* samples per frame of `source`, at the slot's rate */
    uint32_t jitter_frame_ms;       /* duration of one frame in the stream's jitter buffer */
    uint32_t due;                   /* samples that this tick owes the stream */
    uint64_t timestamp;

    /* heard and said, written in the same breath: sample n of one belongs to sample n of the other. Whether what was read
     * of a ring was overwritten meanwhile only its position tells, afterwards: so its samples are atomic */
    _Atomic int16_t *heard, *said;
    uint32_t rx_mask;
    _Atomic uint64_t rx_read, rx_written;
    _Atomic int64_t rx_ns;          /* when the newest packet came */
    _Atomic int64_t tick_ns;        /* when the last frame went through the pump */
    _Atomic int32_t jitter_ms;

    _Atomic int16_t *tx;
    uint32_t tx_mask;
    _Atomic uint64_t tx_base;       /* position that lies at tx[0]: moved when the ring is empty, so that few pages are touched */
    _Atomic uint64_t tx_read, tx_written;
    _Atomic bool paused, open;

    background_setting_t background;
    background_setting_t *background_waiting; /* another sound, until the present one has faded out */
    uint32_t background_at;
    float background_gain;          /* follows volume or ducked */
    float background_whole;         /* how far a whole ramp goes */
    bool background_up;             /* it has reached them once */
    bool speaking;                  /* the agent, gaps within an answer included */
    uint32_t background_hold;       /* samples for which it still counts as speaking */
    _Atomic(background_setting_t *) background_next;

    dial_t dial;
    uint32_t dial_key, dial_at;     /* which of the keys, and how many samples of it are over */
    bool dial_event;                /* the key goes out as RFC 4733 events, not as a tone */
    _Atomic(dial_t *) dial_next;
    _Atomic uint32_t dial_asked, dial_total; /* number of the latest request, and its samples */
    _Atomic uint64_t dial_state;    /* number of the request that is dialled << 32 | samples that are left of it */

    /* the edges between sound and silence */
    int16_t ahead[MAX_FADE];        /* what follows the sound that was sent last: it fades out when the sound is stopped */
    uint32_t ahead_count;
    int16_t tail[MAX_FADE];         /* the end of what was stopped, fading out under whatever comes now */
    uint32_t tail_at, tail_count;
    int16_t last;
    bool sounding;
    uint32_t noise;
    _Atomic uint32_t flushes;
    uint32_t flushes_seen;

    int64_t last_sent_ns;
    uint64_t last_packet_count;
    unsigned discarded_frames;      /* of the stream's jitter buffer, as far as the quality counts them */
    _Atomic int64_t last_packet_ns;
    _Atomic uint64_t frames_sent, frames_heard, frames_missing, under_runs, over_runs;
} slot_t;

void slot_init(slot_t *slot, int index);
/* Takes over the caller's reference of `quality` unless it fails. */
int slot_open(slot_t *slot, pjsua_call_id call, pjmedia_port *port, pjmedia_stream *stream, rtp_quality_t *quality);
int slot_attach(slot_t *slot, pjmedia_port *port, pjmedia_stream *stream);
void slot_detach(slot_t *slot);
/* The account of the call's packets so far, NULL when it has none; to be given back with rtp_quality_release. */
rtp_quality_t *slot_quality(slot_t *slot);
/* The call is over: let go of the stream and of the background sound. */
void slot_close(slot_t *slot);

/* The pump's side. Returns frames sent. */
unsigned slot_tick(slot_t *slot, int64_t now_ns, void (*sent)(void *, int64_t), void *arg);
/* Once in a while: did packets come? */
void slot_survey(slot_t *slot, int64_t now_ns);

/* Python's side. */
uint32_t slot_write(slot_t *slot, const int16_t *samples, uint32_t count);
uint64_t slot_flush(slot_t *slot);
uint32_t slot_read(slot_t *slot, int16_t *heard, int16_t *said, uint32_t capacity, uint64_t *position);
void slot_set_background(slot_t *slot, background_t *sound, float volume, float ducked);
void background_release(background_t *sound);
/* Keys in place of those that are not begun yet; returns -1 without memory. */
int slot_dial(slot_t *slot, const char *keys);
/* Samples until the keys of the latest request have been sent; 0 then. */
uint32_t slot_dial_left(const slot_t *slot);

/* fade.c, for the pump's side. Ramp what begins up from silence, and what stopped down to it; after a flush in mid-sound,
 * both at once. `short_of`: more was to come, and is late. */
void edges_smooth(slot_t *slot, int16_t *out, const taken_t *taken, uint32_t count, bool short_of);
/* Nothing but comfort noise, which what was said before fades out under. */
void edges_comfort(slot_t *slot, int16_t *out, uint32_t count);

/* background.c, for the pump's side. `speaking`: the agent is to be heard well. */
void background_mix(slot_t *slot, int16_t *out, uint32_t count, bool speaking);
void background_drop(slot_t *slot);

/* dtmf_sender.c, for the pump's side. How many of the next `count` samples may be speech: with none of them, the keys are
 * added to `out`. */
uint32_t dial_speech(slot_t *slot, uint32_t count);
void dial_mix(slot_t *slot, int16_t *out, uint32_t count);
/* Tell Python how much of its request is left, once a frame. */
void dial_tell(slot_t *slot);
void dial_drop(slot_t *slot);

static inline int16_t saturated(int32_t sample)
{
    return (int16_t)(sample > 32767 ? 32767 : sample < -32768 ? -32768 : sample);
}

int64_t now_monotonic_ns(void);

#endif
