/* The ticks of two bridged slots: both come at the phase that suits the arrival of both peers' packets. A packet then waits
 * briefly for its tick, and none comes while packets are being read: else it would be read now before one tick, now before
 * the next, and the jitter buffer would insert audio and discard it. */
#ifndef TRUNKLINE_PUMP_TICK_PAIR_H
#define TRUNKLINE_PUMP_TICK_PAIR_H

#include "pump/tick.h"

#define ANY_PHASE (-1)

typedef struct tick_pair {
    _Atomic int place[2];           /* pump thread and phase of either slot at its last tick */
    _Atomic int64_t arrival_ns[2];  /* as of packet_arrival_offset_ns */
    _Atomic int phase;              /* that both slots are to have; ANY_PHASE: both keep theirs */
    int in_step;                    /* the first slot's: ticks for which both slots have had the same place */
    int64_t chosen_ns;              /* the first slot's: when the phase was chosen, 0: not yet */
} tick_pair_t;

void tick_pair_init(tick_pair_t *pair);
/* A slot (0 or 1) has this tick, before any slot sends in it; the pump's thread chooses the phase in that of slot 0. */
void tick_pair_report(tick_pair_t *pair, int slot, const tick_t *tick, int64_t arrival_ns);

#endif
