#define _GNU_SOURCE
#include "pump/pump.h"

#include "net/monotonic_clock.h"
#include "net/realtime_thread.h"
#include "pump/null_port.h"
#include "pump/pcm_port.h"
#include "rtp/media_transport.h"
#include "rtp/rtp_reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define STATS_POLL_TICKS 5      /* each slot's packet count and jitter buffer are read every 100 ms */
#define MAX_CATCH_UP_TICKS 5    /* a longer standstill is skipped instead of being sent in a burst */
#define REALTIME_PRIORITY 10
#define NO_SLOT (-1)
#define MAX_READER_WAIT_NS 8000000LL

pump_t pump = {.event_fd = -1};

/* ---- slots ---- */

static int least_loaded_shard(void)
{
    int best = 0;
    for (int i = 1; i < pump.shards; i++)
        if (atomic_load(&pump.shard[i].calls) < atomic_load(&pump.shard[best].calls))
            best = i;
    return best;
}

static slot_t *free_slot(void)
{
    for (int i = 0; i < pump.max_slots; i++)
        if (atomic_load_explicit(&pump.slots[i].state, memory_order_acquire) == SLOT_FREE)
            return &pump.slots[i];
    return NULL;
}

/* The lock is held. `call` is PJSUA_INVALID_ID, and `stream` NULL, without RTP. */
static slot_t *open_slot(pjsua_call_id call, pjmedia_port *port, pjmedia_stream *stream, rtp_stats_t *stats)
{
    slot_t *slot = free_slot();
    if (!slot) {
        rtp_stats_release(stats);
        return NULL;
    }
    const int shard = least_loaded_shard();
    atomic_store(&slot->shard, shard);
    atomic_store(&slot->next_shard, shard);
    slot->ticked_ns = 0;
    if (slot_open(slot, call, port, stream, stats) != 0) {
        rtp_stats_release(stats);
        return NULL;
    }
    atomic_fetch_add(&pump.shard[shard].calls, 1);
    if (slot->index >= atomic_load(&pump.high))
        atomic_store(&pump.high, slot->index + 1);
    if (call != PJSUA_INVALID_ID)
        atomic_store(&pump.of_call[call], slot->index);
    return slot;
}

/* A slot that was released, and perhaps given to another call since, is not this call's any more. */
slot_t *pump_slot_of(pjsua_call_id call)
{
    int index = call >= 0 && call < PJSUA_MAX_CALLS && pump.slots ? atomic_load(&pump.of_call[call]) : -1;
    if (index < 0 || atomic_load(&pump.slots[index].state) != SLOT_OPEN || pump.slots[index].call != call)
        return NULL;
    return &pump.slots[index];
}

void pump_detach_call(pjsua_call_id call)
{
    if (call >= 0 && call < PJSUA_MAX_CALLS)
        atomic_store(&pump.of_call[call], -1);
}

void pump_move_slot(pjsua_call_id before, pjsua_call_id after)
{
    pthread_mutex_lock(&pump.open_lock);
    slot_t *slot = pump_slot_of(before);
    if (slot && after >= 0 && after < PJSUA_MAX_CALLS) {
        slot->call = after;
        atomic_store(&pump.of_call[after], slot->index);
        atomic_store(&pump.of_call[before], -1);
    }
    pthread_mutex_unlock(&pump.open_lock);
}

static rtp_stats_t *stats_of_call(pjsua_call_id call)
{
    slot_t *slot = pump_slot_of(call);
    return slot ? slot_rtp_stats(slot) : NULL;
}

static void move_call(slot_t *to, slot_t *from)
{
    if (to->call >= 0 && atomic_load(&pump.of_call[to->call]) == to->index)
        atomic_store(&pump.of_call[to->call], -1);
    to->call = from->call;
    from->call = PJSUA_INVALID_ID;
    atomic_store(&pump.of_call[to->call], to->index);
}

bool pump_take_over_stream(slot_t *to, slot_t *from)
{
    pthread_mutex_lock(&pump.open_lock);
    null_port_t *null = to != from ? from->null : NULL;
    pjmedia_port *port = null && from->port == null->stream_port ? null->stream_port : NULL;
    pjmedia_stream *stream = from->stream;
    if (port)
        slot_detach(from); /* first: two slots must never drive one stream. `null` holds it meanwhile. */
    bool moved = port && slot_attach(to, port, stream) == 0;
    if (moved) {
        move_call(to, from);
        from->null = NULL;
        to->null = null;
        null->slot = to;
    }
    pthread_mutex_unlock(&pump.open_lock);
    return moved;
}

/* The same call's next stream goes into the same slot. */
static slot_t *slot_for(pjsua_call_id call, pjsua_on_stream_created_param *param)
{
    slot_t *slot = pump_slot_of(call);
    if (!slot)
        return open_slot(call, param->port, param->stream, media_transport_stats(call, param->stream_idx));
    return slot_attach(slot, param->port, param->stream) == 0 ? slot : NULL;
}

void pump_on_stream_created(pjsua_call_id call, pjsua_on_stream_created_param *param)
{
    if (!atomic_load(&pump.running) || call < 0 || call >= PJSUA_MAX_CALLS)
        return;
    pthread_mutex_lock(&pump.open_lock);
    slot_t *slot = slot_for(call, param);
    null_port_t *null = slot ? null_port_create(slot, param->port, &pump.open_lock) : NULL;
    if (null)
        slot->null = null;
    pthread_mutex_unlock(&pump.open_lock);
    if (!null) {
        PJ_LOG(1, ("pump", "No slot for call %d", call));
        return;
    }
    param->port = &null->base;
    param->destroy_port = PJ_TRUE;
}

long long pump_handle_of(const slot_t *slot)
{
    return ((long long)atomic_load(&slot->generation) << 16) | slot->index;
}

slot_t *pump_open_pcm(pcm_channel_t *channel)
{
    pjmedia_port *port = atomic_load(&pump.running) ? pcm_port_create(channel) : NULL;
    if (!port)
        return NULL;
    pthread_mutex_lock(&pump.open_lock);
    slot_t *slot = open_slot(PJSUA_INVALID_ID, port, NULL, NULL);
    pthread_mutex_unlock(&pump.open_lock);
    pjmedia_port_dec_ref(port); /* the slot has one */
    return slot;
}

/* ---- the threads ---- */

static void packet_sent(void *arg, int64_t interval_ns)
{
    int64_t deviation = interval_ns - TICK_NS;
    histogram_add(&((shard_t *)arg)->deviation, deviation < 0 ? -deviation : deviation);
}

/* Python has released the slot: drops its stream and frees it. */
static void close_slot(shard_t *shard, slot_t *slot)
{
    slot_close(slot);
    atomic_fetch_sub(&shard->calls, 1);
    atomic_store_explicit(&slot->state, SLOT_FREE, memory_order_release);
}

/* Once a period. A slot that changes its phase or its thread has no tick in the present one any more. */
static void group_by_phase(shard_t *shard)
{
    for (int phase = 0; phase < TICK_PHASES; phase++)
        shard->first[phase] = NO_SLOT;
    for (int i = atomic_load(&pump.high) - 1; i >= 0; i--) {
        slot_t *slot = &pump.slots[i];
        const int state = atomic_load_explicit(&slot->state, memory_order_acquire);
        if (state == SLOT_FREE || atomic_load(&slot->shard) != shard->index)
            continue;
        if (state == SLOT_CLOSING) {
            close_slot(shard, slot);
            continue;
        }
        const int phase = atomic_load(&slot->phase);
        shard->next[i] = shard->first[phase];
        shard->first[phase] = (int16_t)i;
    }
}

/* A slot that another thread has handed over in this tick has had it, and one that has changed its phase has had another less
 * than 20 ms ago. */
static bool has_tick(const shard_t *shard, const slot_t *slot, const tick_t *tick)
{
    return atomic_load_explicit(&slot->state, memory_order_acquire) == SLOT_OPEN &&
           atomic_load(&slot->shard) == shard->index && atomic_load(&slot->phase) == tick->phase &&
           slot->ticked_ns + TICK_NS <= tick->due_ns;
}

/* The first half of a tick, of the slots of its phase. */
static void receive(shard_t *shard, const tick_t *tick)
{
    shard->ticking_count = 0;
    for (int i = shard->first[tick->phase]; i != NO_SLOT; i = shard->next[i]) {
        slot_t *slot = &pump.slots[i];
        if (!has_tick(shard, slot, tick))
            continue;
        slot->ticked_ns = tick->due_ns;
        slot_receive(slot, tick);
        shard->ticking[shard->ticking_count++] = (int16_t)i;
    }
}

static void hand_over(shard_t *shard, slot_t *slot)
{
    const int next = atomic_load(&slot->next_shard);
    if (next == shard->index)
        return;
    atomic_fetch_sub(&shard->calls, 1);
    atomic_fetch_add(&pump.shard[next].calls, 1);
    atomic_store(&slot->shard, next); /* last: the slot is the other thread's from here on */
}

static void tick_shard(shard_t *shard, const tick_t *tick)
{
    const uint64_t ticks = atomic_load(&shard->ticks);
    if (tick->phase == 0)
        group_by_phase(shard);
    receive(shard, tick);
    for (int at = 0; at < shard->ticking_count; at++) {
        slot_t *slot = &pump.slots[shard->ticking[at]];
        slot_send(slot, tick->now_ns, packet_sent, shard);
        if ((ticks + (uint64_t)slot->index) % STATS_POLL_TICKS == 0)
            slot_poll_stats(slot, tick->now_ns);
        slot_follow_phase(slot);
        hand_over(shard, slot);
    }
}

void pump_pair_slots(slot_t *one, slot_t *other)
{
    const int shard = atomic_load(&one->next_shard), other_shard = atomic_load(&other->next_shard);
    const bool first = atomic_load(&pump.shard[shard].calls) <= atomic_load(&pump.shard[other_shard].calls);
    atomic_store(&one->next_shard, first ? shard : other_shard);
    atomic_store(&other->next_shard, first ? shard : other_shard);
}

void pump_rest(int ticks)
{
    atomic_store(&pump.rest_ticks, ticks);
    if (atomic_exchange(&pump.woken, false))
        atomic_store(&pump.rest_ticks, 1);
}

void pump_wake(void)
{
    atomic_store(&pump.woken, true);
    atomic_store(&pump.rest_ticks, 1);
}

/* The last shard of a tick wakes Python, if that waits for this tick. */
static void tick_done(void)
{
    if (atomic_fetch_sub(&pump.pending, 1) > 1)
        return;
    atomic_store(&pump.pending, pump.shards);
    if (atomic_load(&pump.rest_ticks) > 1) {
        atomic_fetch_sub(&pump.rest_ticks, 1);
        return;
    }
    uint64_t one = 1;
    if (write(pump.event_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        PJ_LOG(1, ("pump", "Cannot wake the reader: errno %d", errno));
}

static void sleep_until(int64_t ns)
{
    struct timespec at = {ns / 1000000000LL, ns % 1000000000LL};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

/* The tick of one phase. Returns the beginning of its period: a later one after a long standstill. */
static int64_t run_tick(shard_t *shard, int64_t begin_ns, int phase)
{
    tick_t tick = {.due_ns = begin_ns + phase * TICK_NS / TICK_PHASES, .shard = shard->index, .phase = phase};
    sleep_until(tick.due_ns);
    rtp_reader_wait(tick.due_ns, tick.due_ns + MAX_READER_WAIT_NS);
    tick.now_ns = monotonic_ns();
    const int64_t late_ns = tick.now_ns - tick.due_ns;
    histogram_add(&shard->lateness, late_ns);
    if (late_ns > MAX_CATCH_UP_TICKS * TICK_NS) {
        atomic_fetch_add(&shard->skipped_ticks, (uint64_t)(late_ns / TICK_NS));
        tick.due_ns += late_ns / TICK_NS * TICK_NS;
    }
    for (int i = 0; i < TICK_PHASES; i++)
        tick.lead_ns[i] = rtp_reader_lead_ns(i);
    tick_shard(shard, &tick);
    return tick.due_ns - phase * TICK_NS / TICK_PHASES;
}

/* The ticks of the phases that have slots; phase 0 has a tick in any case. */
static int64_t run_period(shard_t *shard, int64_t begin_ns)
{
    begin_ns = run_tick(shard, begin_ns, 0);
    atomic_fetch_add(&shard->ticks, 1);
    tick_done();
    for (int phase = 1; phase < TICK_PHASES; phase++)
        if (shard->first[phase] != NO_SLOT)
            begin_ns = run_tick(shard, begin_ns, phase);
    return begin_ns;
}

static void *run_shard(void *arg)
{
    shard_t *shard = arg;
    char name[16];
    snprintf(name, sizeof name, "pump-%d", shard->index);
    pthread_setname_np(pthread_self(), name);
    static __thread pj_thread_desc descriptor;
    pj_thread_t *thread;
    pj_thread_register("pump", descriptor, &thread);
    if (realtime_thread_become(REALTIME_PRIORITY))
        atomic_store(&pump.realtime, true);
    int64_t begin_ns = monotonic_ns() / TICK_NS * TICK_NS; /* all shards share one grid */
    while (atomic_load(&pump.running)) {
        begin_ns = run_period(shard, begin_ns + TICK_NS);
        struct timespec cpu;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
        atomic_store(&shard->cpu_ns, (uint64_t)cpu.tv_sec * 1000000000ULL + (uint64_t)cpu.tv_nsec);
    }
    return NULL;
}

/* Once a process: a port that PJSIP destroys late may still point at its slot, and a reader may still wait on the
 * eventfd, so neither is ever freed. */
static int make_slots(void)
{
    pump.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (pump.event_fd < 0)
        return -1;
    pump.slots = calloc(MAX_SLOTS, sizeof *pump.slots);
    if (!pump.slots) {
        close(pump.event_fd);
        return -1;
    }
    for (int i = 0; i < MAX_SLOTS; i++)
        slot_init(&pump.slots[i], i);
    pthread_mutex_init(&pump.open_lock, NULL);
    return 0;
}

int pump_start(int max_slots)
{
    if (atomic_load(&pump.running) || max_slots < 1 || max_slots > MAX_SLOTS)
        return -1;
    if (!pump.slots && make_slots() != 0)
        return -1;
    for (int i = 0; i < PJSUA_MAX_CALLS; i++)
        atomic_store(&pump.of_call[i], -1);
    media_transport_continue_stats(stats_of_call);
    pump.max_slots = max_slots;
    pump.shards = (max_slots + SHARD_SLOTS - 1) / SHARD_SLOTS;
    memset(pump.shard, 0, sizeof pump.shard);
    atomic_store(&pump.high, 0);
    eventfd_t earlier;
    eventfd_read(pump.event_fd, &earlier);
    atomic_store(&pump.pending, pump.shards);
    if (rtp_reader_start(TICK_NS) != 0)
        return -1;
    atomic_store(&pump.running, true);
    for (int i = 0; i < pump.shards; i++) {
        pump.shard[i].index = i;
        if (pthread_create(&pump.shard[i].thread, NULL, run_shard, &pump.shard[i]) != 0) {
            pump.shards = i;
            pump_stop();
            return -1;
        }
    }
    return 0;
}

/* Call it after PJSUA has hung up everything and before it is destroyed. */
void pump_stop(void)
{
    if (!atomic_exchange(&pump.running, false))
        return;
    for (int i = 0; i < pump.shards; i++)
        pthread_join(pump.shard[i].thread, NULL);
    rtp_reader_stop();
    for (int i = 0; i < pump.max_slots; i++) {
        slot_close(&pump.slots[i]);
        atomic_store(&pump.slots[i].state, SLOT_FREE);
    }
    atomic_store(&pump.high, 0);
}
