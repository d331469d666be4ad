/* Audio pump: real-time threads that move one frame in each direction for every call, every 20 ms. */
#ifndef TRUNKLINE_PUMP_PUMP_H
#define TRUNKLINE_PUMP_PUMP_H

#include "pump/histogram.h"
#include "pump/slot.h"

#define MAX_SLOTS 4096
#define SHARD_SLOTS 250
#define MAX_SHARDS (MAX_SLOTS / SHARD_SLOTS + 1)

typedef struct shard {
    int index;
    pthread_t thread;
    _Atomic int calls;
    _Atomic uint64_t ticks, skipped_ticks, cpu_ns;
    histogram_t lateness, deviation;
    int16_t ticking[MAX_SLOTS];     /* indices of the slots that have received in this tick, and are to send */
    int ticking_count;
    int16_t first[TICK_PHASES];     /* the first slot of each phase, -1 for none, and the one after each slot */
    int16_t next[MAX_SLOTS];
} shard_t;

typedef struct pump {
    slot_t *slots;
    int max_slots, shards;
    int event_fd;
    _Atomic int high;                       /* one above the highest slot that was ever open */
    _Atomic bool running;
    _Atomic int pending;                    /* shards that have not finished the present tick */
    _Atomic int rest_ticks;                 /* until the tick that wakes Python; each one does from 1 on */
    _Atomic bool woken;                     /* Python's next wait is for one tick, however many it asks for */
    _Atomic bool realtime;
    shard_t shard[MAX_SHARDS];
    pthread_mutex_t open_lock;      /* guards which slot has which stream; the pump's threads never take it, and no
                                     * holder waits for Python */
    _Atomic int of_call[PJSUA_MAX_CALLS];   /* slot index of a call, -1 when it has none */
} pump_t;

extern pump_t pump;

int pump_start(int max_slots);
void pump_stop(void);
/* Python waits for the `ticks`-th tick from now on, unless it is woken: then for the next one. */
void pump_rest(int ticks);
void pump_wake(void);
/* Replaces PJSUA's stream with a null port and drives the stream from the pump (PJSUA's callback `on_stream_created2`). */
void pump_on_stream_created(pjsua_call_id call, pjsua_on_stream_created_param *param);
/* Opens a slot for a call without RTP; NULL if none is free. On a thread of PJLIB. */
slot_t *pump_open_pcm(pcm_channel_t *channel);
/* The slot as Python knows it: the row in the low 16 bits, the generation above. */
long long pump_handle_of(const slot_t *slot);
/* The open slot of a live call, or NULL. */
slot_t *pump_slot_of(pjsua_call_id call);
/* The call is over: PJSUA gives its number to another call. */
void pump_detach_call(pjsua_call_id call);
/* The slot of a call continues with another call, whose stream is still to come. */
void pump_move_slot(pjsua_call_id before, pjsua_call_id after);
/* A slot continues with the stream and the call of another slot. False if that has no stream (any more). */
bool pump_take_over_stream(slot_t *to, slot_t *from);
/* One thread, the less loaded of theirs, ticks both bridged slots from one of the next ticks on. */
void pump_pair_slots(slot_t *one, slot_t *other);

#endif
