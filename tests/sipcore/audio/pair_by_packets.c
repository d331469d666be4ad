/* Two bridged slots without a pump: test_tick_pair.py says when packets come, and gets how many of them each tick reads. */
#include "pump/packet_arrival.h"
#include "pump/tick_pair.h"

#include <stdbool.h>
#include <stdlib.h>

#define MAX_WAITING 64

typedef struct pair {
    tick_pair_t ticks;
    packet_arrival_t arrival[2];
    int64_t waiting[2][MAX_WAITING];
    int waiting_count[2];
    int64_t lead_ns, next_ns;
    int phase;
} pair_t;

pair_t *create(int64_t lead_ns, int64_t begin_ns)
{
    pair_t *pair = calloc(1, sizeof *pair);
    tick_pair_init(&pair->ticks);
    pair->lead_ns = lead_ns;
    pair->next_ns = begin_ns;
    return pair;
}

void drop(pair_t *pair)
{
    free(pair);
}

void packet_comes(pair_t *pair, int slot, int64_t at_ns)
{
    pair->waiting[slot][pair->waiting_count[slot]++] = at_ns;
}

/* The packets that have come when the reading begins. */
static int read_packets(pair_t *pair, int slot, int64_t now_ns)
{
    int read = 0, kept = 0;
    for (int i = 0; i < pair->waiting_count[slot]; i++) {
        const int64_t at_ns = pair->waiting[slot][i];
        if (at_ns > now_ns) {
            pair->waiting[slot][kept++] = at_ns;
            continue;
        }
        packet_arrival_add(&pair->arrival[slot], at_ns);
        read++;
    }
    pair->waiting_count[slot] = kept;
    return read;
}

int64_t next_tick_ns(const pair_t *pair)
{
    return pair->next_ns;
}

int phase_of(const pair_t *pair)
{
    return pair->phase;
}

/* The next tick of both slots: how many packets of each it has read. */
void tick(pair_t *pair, int *read)
{
    tick_t tick = {.due_ns = pair->next_ns, .now_ns = pair->next_ns, .phase = pair->phase};
    for (int i = 0; i < TICK_PHASES; i++)
        tick.lead_ns[i] = pair->lead_ns;
    for (int slot = 0; slot < 2; slot++) {
        read[slot] = read_packets(pair, slot, tick.due_ns - pair->lead_ns);
        tick_pair_report(&pair->ticks, slot, &tick, packet_arrival_offset_ns(&pair->arrival[slot], tick.due_ns));
    }
    const int phase = atomic_load(&pair->ticks.phase);
    if (phase == ANY_PHASE)
        pair->next_ns += TICK_NS;
    else
        pair->next_ns += TICK_NS + (phase - pair->phase + TICK_PHASES) % TICK_PHASES * TICK_NS / TICK_PHASES;
    pair->phase = phase == ANY_PHASE ? pair->phase : phase;
}
