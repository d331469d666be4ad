/* Bridge: the received audio of each of two slots is the outgoing audio of the other one, without Python. Both slots may have
 * different rates, frame durations and pump threads.
 *
 * Each direction is a ring with one producer, the pump thread of the slot that receives the audio, and one consumer, the pump
 * thread of the slot that sends it. It adds no delay once one thread ticks both slots, which then receive before they send; and
 * one frame at most before. */
#ifndef TRUNKLINE_PUMP_BRIDGE_H
#define TRUNKLINE_PUMP_BRIDGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pump/fade.h"
#include "pump/rate_conversion.h"
#include "pump/tick_pair.h"

#define BRIDGE_RING 4096u       /* samples; 256 ms at 16 kHz */

typedef struct bridge_ring {
    int16_t samples[BRIDGE_RING];
    _Atomic uint64_t read, written;
    rate_conversion_t conversion;   /* the producer's */
    uint32_t least_left, reads;     /* the consumer's: the fewest samples that were left by the last `reads` reads */
} bridge_ring_t;

struct bridge;

typedef struct bridge_side {
    struct bridge *bridge;
    bridge_ring_t *outgoing;    /* what this side sends: the other side's received audio */
    bridge_ring_t *incoming;    /* what this side receives, for the other side */
} bridge_side_t;

typedef struct bridge {
    _Atomic int refs;
    _Atomic bool ended;
    bridge_ring_t ring[2];
    bridge_side_t side[2];
    tick_pair_t ticks;
} bridge_t;

/* A slot's connection to a bridge. */
typedef struct bridge_port {
    bridge_t *of_python;            /* the bridge as Python knows it, with a reference */
    _Atomic(bridge_side_t *) next;  /* what the pump's thread takes at its next tick, with a reference */
    bridge_side_t *side;            /* the pump's, with a reference; NULL: not bridged */
    fade_t fade;
} bridge_port_t;

/* Python's side. Bridges two slots of these rates, instead of the bridges that they are in. Returns -1 without memory, and for
 * rates other than 8000 and 16000 Hz. */
int bridge_connect(bridge_port_t *one, uint32_t one_rate, bridge_port_t *other, uint32_t other_rate);
/* Ends the slot's bridge for both slots. Does nothing if the slot is in none. */
void bridge_disconnect(bridge_port_t *port);

/* The pump's side. Another call begins. */
void bridge_reset(bridge_port_t *port, int seed);
/* Passes received audio to the other slot. */
void bridge_put(bridge_port_t *port, const int16_t *in, uint32_t count);
/* Mixes the other slot's audio into `out`, at `rate` Hz. */
void bridge_mix(bridge_port_t *port, uint32_t rate, int16_t *out, uint32_t count);
/* True if the slot was bridged when its audio last passed. */
bool bridge_is_open(const bridge_port_t *port);
/* As tick_pair_report. Does nothing if the slot is in no bridge. */
void bridge_report_tick(bridge_port_t *port, const tick_t *tick, int64_t arrival_ns);
/* The phase that a slot of this phase is to have: that of its bridge, 0 without one. */
int bridge_phase(bridge_port_t *port, int present);
/* The call is over: ends its bridge. */
void bridge_drop(bridge_port_t *port);

#endif
