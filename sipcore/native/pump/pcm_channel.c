#define _GNU_SOURCE
#include "pump/pcm_channel.h"

#include "net/monotonic_clock.h"
#include "pump/sample_ring.h"

#include <pjmedia/alaw_ulaw.h>

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MASK (PCM_CHANNEL_RING - 1)
#define FILL 640u           /* samples that wait before audio begins, and again after it has run out: 40 ms */
#define SURPLUS 960u        /* of more than 60 ms, quiet audio is skipped: a clock that runs fast adds no delay */
#define QUIET_PEAK 300
#define MAX_BLOCK (PCM_CHANNEL_RATE * 60 / 1000)

pcm_channel_t *pcm_channel_create(bool telephone)
{
    pcm_channel_t *channel = calloc(1, sizeof *channel);
    if (!channel)
        return NULL;
    channel->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    channel->telephone = telephone;
    const uint32_t rate = pcm_channel_slot_rate(channel);
    if (channel->event_fd < 0 || !rate_conversion_init(&channel->down, PCM_CHANNEL_RATE, rate) ||
        !rate_conversion_init(&channel->up, rate, PCM_CHANNEL_RATE)) {
        if (channel->event_fd >= 0)
            close(channel->event_fd);
        free(channel);
        return NULL;
    }
    channel->filling = true;
    atomic_init(&channel->refs, 1);
    return channel;
}

void pcm_channel_add_ref(pcm_channel_t *channel)
{
    atomic_fetch_add(&channel->refs, 1);
}

void pcm_channel_release(pcm_channel_t *channel)
{
    if (!channel || atomic_fetch_sub(&channel->refs, 1) > 1)
        return;
    close(channel->event_fd);
    free(channel);
}

uint32_t pcm_channel_slot_rate(const pcm_channel_t *channel)
{
    return channel->telephone ? PCM_CHANNEL_RATE / 2 : PCM_CHANNEL_RATE;
}

/* ---- rings ---- */

static void put(pcm_ring_t *ring, const int16_t *samples, uint32_t count)
{
    const uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    uint64_t read = atomic_load(&ring->read);
    while (written + count - read > PCM_CHANNEL_LIMIT) {
        const uint64_t oldest = written + count - PCM_CHANNEL_LIMIT;
        if (atomic_compare_exchange_strong(&ring->read, &read, oldest)) {
            atomic_fetch_add(&ring->dropped, oldest - read);
            break;
        }
    }
    put_samples(ring->samples, written, MASK, samples, count);
    atomic_store_explicit(&ring->written, written + count, memory_order_release);
}

static uint64_t waiting(const pcm_ring_t *ring)
{
    const uint64_t read = atomic_load(&ring->read); /* first: the writer may move it on */
    return atomic_load_explicit(&ring->written, memory_order_acquire) - read;
}

/* Takes between `least` and `most` samples, or none. `position` is that of the first one. */
static uint32_t take(pcm_ring_t *ring, int16_t *out, uint32_t least, uint32_t most, uint64_t *position)
{
    uint64_t read = atomic_load(&ring->read);
    for (;;) {
        const uint64_t available = atomic_load_explicit(&ring->written, memory_order_acquire) - read;
        const uint32_t count = available < least ? 0 : available < most ? (uint32_t)available : most;
        get_samples(ring->samples, read, MASK, out, count);
        *position = read;
        if (atomic_compare_exchange_strong(&ring->read, &read, read + count))
            return count;
    }
}

/* ---- Python's side ---- */

void pcm_channel_write(pcm_channel_t *channel, const int16_t *samples, uint32_t count)
{
    put(&channel->from_peer, samples, count);
    atomic_fetch_add(&channel->frames, 1);
    atomic_store(&channel->newest_ns, monotonic_ns());
}

uint32_t pcm_channel_read(pcm_channel_t *channel, int16_t *samples, uint32_t capacity, int32_t *clear)
{
    eventfd_t signals;
    uint64_t position;
    eventfd_read(channel->event_fd, &signals);
    const uint64_t clear_at = atomic_exchange(&channel->clear_at, 0);
    const uint32_t count = take(&channel->to_peer, samples, 0, capacity, &position);
    *clear = -1;
    if (clear_at) {
        const uint64_t before = clear_at - 1 > position ? clear_at - 1 - position : 0;
        *clear = (int32_t)(before < count ? before : count);
    }
    return count;
}

/* ---- the pump's side ---- */

static void compand(int16_t *samples, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        samples[i] = (int16_t)pjmedia_ulaw2linear(pjmedia_linear2ulaw(samples[i]));
}

static bool is_quiet(const int16_t *samples, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (samples[i] > QUIET_PEAK || samples[i] < -QUIET_PEAK)
            return false;
    return true;
}

/* Takes `count` samples of the peer at 16 kHz, or none. */
static bool take_block(pcm_channel_t *channel, int16_t *out, uint32_t count)
{
    pcm_ring_t *ring = &channel->from_peer;
    uint64_t position;
    channel->filling = channel->filling && waiting(ring) < FILL;
    if (channel->filling || take(ring, out, count, count, &position) == 0) {
        channel->filling = true;
        return false;
    }
    while (waiting(ring) >= SURPLUS && is_quiet(out, count) && take(ring, out, count, count, &position))
        atomic_fetch_add(&ring->dropped, count);
    return true;
}

bool pcm_channel_take(pcm_channel_t *channel, int16_t *out, uint32_t count)
{
    int16_t block[MAX_BLOCK];
    const uint32_t at_peer = channel->telephone ? 2 * count : count;
    if (at_peer > MAX_BLOCK || !take_block(channel, block, at_peer)) {
        atomic_fetch_add(&channel->missing, 1);
        return false;
    }
    rate_conversion_apply(&channel->down, block, at_peer, out);
    if (channel->telephone)
        compand(out, count);
    return true;
}

void pcm_channel_put(pcm_channel_t *channel, const int16_t *in, uint32_t count)
{
    int16_t line[MAX_BLOCK], block[2 * MAX_BLOCK];
    if (count > MAX_BLOCK / (channel->telephone ? 2 : 1))
        return;
    memcpy(line, in, count * sizeof *in);
    if (channel->telephone)
        compand(line, count);
    count = rate_conversion_apply(&channel->up, line, count, block);
    put(&channel->to_peer, block, count);
    eventfd_write(channel->event_fd, 1);
}

void pcm_channel_clear(pcm_channel_t *channel)
{
    atomic_store(&channel->clear_at, 1 + atomic_load_explicit(&channel->to_peer.written, memory_order_relaxed));
}

uint32_t pcm_channel_waiting_ms(const pcm_channel_t *channel)
{
    return (uint32_t)(waiting(&channel->from_peer) * 1000 / PCM_CHANNEL_RATE);
}
