#include "pump/bridge.h"

#include <stdlib.h>
#include <string.h>

#define MASK (BRIDGE_RING - 1)
#define MAX_FRAME RATE_CONVERSION_MAX_BLOCK
#define MAX_LEFT_MS 40      /* audio that may be left after a read; what a pause of the reader has piled up is more */
#define SURPLUS_READS 25    /* audio that was left after each of so many reads only adds delay, and is dropped */
#define MIN_SURPLUS_MS 5

static void release(bridge_t *bridge)
{
    if (bridge && atomic_fetch_sub(&bridge->refs, 1) == 1)
        free(bridge);
}

/* ---- Python's side ---- */

static bridge_t *make_bridge(uint32_t one_rate, uint32_t other_rate)
{
    const uint32_t rate[2] = {one_rate, other_rate};
    bridge_t *bridge = calloc(1, sizeof *bridge);
    if (!bridge)
        return NULL;
    for (int i = 0; i < 2; i++) {
        bridge->side[i] = (bridge_side_t){bridge, &bridge->ring[i], &bridge->ring[1 - i]};
        if ((rate[i] != 8000 && rate[i] != 16000) ||
            !rate_conversion_init(&bridge->ring[i].conversion, rate[1 - i], rate[i])) {
            free(bridge);
            return NULL;
        }
    }
    tick_pair_init(&bridge->ticks);
    atomic_init(&bridge->refs, 4); /* of_python and next, twice */
    return bridge;
}

static void connect(bridge_port_t *port, bridge_t *bridge, int side)
{
    bridge_disconnect(port);
    port->of_python = bridge;
    bridge_side_t *skipped = atomic_exchange(&port->next, &bridge->side[side]);
    if (skipped)
        release(skipped->bridge);
}

int bridge_connect(bridge_port_t *one, uint32_t one_rate, bridge_port_t *other, uint32_t other_rate)
{
    bridge_t *bridge = make_bridge(one_rate, other_rate);
    if (!bridge)
        return -1;
    connect(one, bridge, 0);
    connect(other, bridge, 1);
    return 0;
}

void bridge_disconnect(bridge_port_t *port)
{
    bridge_t *bridge = port->of_python;
    port->of_python = NULL;
    if (bridge)
        atomic_store(&bridge->ended, true);
    release(bridge);
}

/* ---- the pump's side ---- */

void bridge_reset(bridge_port_t *port, int seed)
{
    fade_init(&port->fade, seed);
}

/* The bridge of this tick; NULL if there is none. */
static bridge_side_t *present_side(bridge_port_t *port)
{
    bridge_side_t *next = atomic_load_explicit(&port->next, memory_order_relaxed) ? atomic_exchange(&port->next, NULL) : NULL;
    if (next) {
        release(port->side ? port->side->bridge : NULL);
        port->side = next;
    }
    if (port->side && atomic_load(&port->side->bridge->ended)) {
        release(port->side->bridge);
        port->side = NULL;
    }
    return port->side;
}

/* The producer. A consumer that does not read (its peer has put us on hold) loses the newest audio, and drops the rest when it
 * reads again. */
void bridge_put(bridge_port_t *port, const int16_t *in, uint32_t count)
{
    int16_t converted[2 * MAX_FRAME];
    bridge_side_t *side = present_side(port);
    if (!side || count > MAX_FRAME)
        return;
    bridge_ring_t *ring = side->incoming;
    count = rate_conversion_apply(&ring->conversion, in, count, converted);
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    if (written + count - atomic_load_explicit(&ring->read, memory_order_acquire) > BRIDGE_RING)
        return;
    for (uint32_t i = 0; i < count; i++)
        ring->samples[(written + i) & MASK] = converted[i];
    atomic_store_explicit(&ring->written, written + count, memory_order_release);
}

/* How many samples to drop, so that the delay stays low: all that a pause has piled up, or what was left after every read of
 * half a second. */
static uint32_t surplus(bridge_ring_t *ring, uint32_t rate, uint32_t left)
{
    if (left > rate / 1000 * MAX_LEFT_MS) {
        ring->least_left = ring->reads = 0;
        return left;
    }
    ring->least_left = ring->reads && ring->least_left < left ? ring->least_left : left;
    if (++ring->reads < SURPLUS_READS)
        return 0;
    ring->reads = 0;
    return ring->least_left >= rate / 1000 * MIN_SURPLUS_MS ? ring->least_left : 0;
}

/* Takes `count` samples, or none if there are fewer. Where audio is dropped, it fades over into what follows. */
static uint32_t take(bridge_ring_t *ring, uint32_t rate, int16_t *out, uint32_t count)
{
    const uint32_t ramp = rate * FADE_MS / 1000;
    uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    uint64_t available = atomic_load_explicit(&ring->written, memory_order_acquire) - read;
    if (available < count) {
        ring->least_left = ring->reads = 0;
        return 0;
    }
    const uint32_t dropped = surplus(ring, rate, (uint32_t)(available - count));
    for (uint32_t i = 0; i < count; i++)
        out[i] = ring->samples[(read + dropped + i) & MASK];
    for (uint32_t i = 0; dropped && i < ramp && i < count; i++) {
        int32_t before = ring->samples[(read + i) & MASK];
        out[i] = (int16_t)((before * (int32_t)(ramp - i) + out[i] * (int32_t)i) / (int32_t)ramp);
    }
    atomic_store_explicit(&ring->read, read + dropped + count, memory_order_release);
    return count;
}

void bridge_mix(bridge_port_t *port, uint32_t rate, int16_t *out, uint32_t count)
{
    int16_t other[MAX_FRAME];
    speech_t speech = {0};
    bridge_side_t *side = present_side(port);
    if (count > MAX_FRAME || (!side && !port->fade.sounding && port->fade.tail_at >= port->fade.tail_count))
        return;
    if (side)
        speech.count = take(side->outgoing, rate, other, count);
    fade_apply(&port->fade, rate, other, &speech, count, side != NULL);
    for (uint32_t i = 0; i < count; i++)
        out[i] = pcm_saturate(out[i] + other[i]);
}

bool bridge_is_open(const bridge_port_t *port)
{
    return port->side;
}

void bridge_report_tick(bridge_port_t *port, const tick_t *tick, int64_t arrival_ns)
{
    bridge_side_t *side = present_side(port);
    if (side)
        tick_pair_report(&side->bridge->ticks, (int)(side - side->bridge->side), tick, arrival_ns);
}

int bridge_phase(bridge_port_t *port, int present)
{
    const bridge_side_t *side = present_side(port);
    const int wanted = side ? atomic_load(&side->bridge->ticks.phase) : 0;
    return wanted == ANY_PHASE ? present : wanted;
}

void bridge_drop(bridge_port_t *port)
{
    bridge_side_t *next = atomic_exchange(&port->next, NULL);
    bridge_disconnect(port);
    if (next)
        release(next->bridge);
    if (port->side)
        release(port->side->bridge);
    port->side = NULL;
}
