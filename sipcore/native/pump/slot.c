#define _GNU_SOURCE
#include "pump/slot.h"

#include "net/monotonic_clock.h"
#include "pump/pcm_port.h"
#include "pump/receiver_report.h"
#include "pump/sample_ring.h"
#include "rtp/media_transport.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint32_t power_of_two(uint32_t n)
{
    uint32_t p = 1;
    while (p < n)
        p <<= 1;
    return p;
}

void slot_init(slot_t *slot, int index)
{
    memset(slot, 0, sizeof *slot);
    slot->index = index;
    slot->call = PJSUA_INVALID_ID;
    fade_init(&slot->fade, index);
    pthread_mutex_init(&slot->stream_lock, NULL);
    pthread_mutex_init(&slot->stats_lock, NULL);
}

static int allocate_rings(slot_t *slot, uint32_t rate)
{
    uint32_t rx = power_of_two(rate * RX_MS / 1000 + MAX_FRAME), tx = power_of_two(rate / 1000 * TX_MS);
    free(slot->rx_audio);
    free(slot->tx_audio);
    free(slot->tx);
    slot->rx_audio = malloc(rx * sizeof(int16_t));
    slot->tx_audio = malloc(rx * sizeof(int16_t));
    slot->tx = malloc(tx * sizeof(int16_t));
    slot->rx_mask = rx - 1;
    slot->tx_mask = tx - 1;
    return slot->rx_audio && slot->tx_audio && slot->tx ? 0 : -1;
}

static void read_codec_info(slot_t *slot, pjmedia_stream *stream)
{
    pjmedia_stream_info info;
    const bool known = stream && pjmedia_stream_get_info(stream, &info) == PJ_SUCCESS;
    jitter_buffer_begin(&slot->jitter, known ? &info : NULL);
    if (!known)
        return;
    uint32_t clock_rate = rtp_clock_rate_of(&info);
    rtp_clock_set_for_rtcp(stream, clock_rate);
    if (slot->stats)
        rtp_stats_set_clock_rate(slot->stats, clock_rate);
}

/* The stream lock is held. */
static void set_phase(slot_t *slot, int phase)
{
    atomic_store(&slot->phase, phase);
    slot->last_sent_ns = 0;
    jitter_buffer_watch(&slot->jitter);
    if (slot->stream)
        media_transport_set_phase(pjmedia_stream_get_transport(slot->stream), phase);
}

static void set_stream(slot_t *slot, pjmedia_port *port, pjmedia_port *source, pjmedia_stream *stream)
{
    pjmedia_port_add_ref(port);
    pthread_mutex_lock(&slot->stream_lock);
    slot->port = port;
    slot->source = source;
    slot->stream = stream;
    slot->pcm = stream ? NULL : pcm_port_channel(port);
    slot->interruptions_seen = atomic_load(&slot->interruptions);
    slot->frame = PJMEDIA_PIA_SPF(&source->info);
    read_codec_info(slot, stream);
    slot->due = slot->received_count = 0;
    slot->arrival = (packet_arrival_t){0};
    set_phase(slot, atomic_load(&slot->phase));
    slot->last_packet_count = 0;
    slot->last_report_ns = 0;
    atomic_store(&slot->last_packet_ns, monotonic_ns());
    pthread_mutex_unlock(&slot->stream_lock);
}

static rtp_stats_t *exchange_stats(slot_t *slot, rtp_stats_t *stats)
{
    pthread_mutex_lock(&slot->stream_lock);
    pthread_mutex_lock(&slot->stats_lock);
    rtp_stats_t *before = slot->stats;
    slot->stats = stats;
    pthread_mutex_unlock(&slot->stats_lock);
    pthread_mutex_unlock(&slot->stream_lock);
    return before;
}

/* A free slot becomes a call's. Called by PJSIP's worker only, so two openings never meet. */
int slot_open(slot_t *slot, pjsua_call_id call, pjmedia_port *port, pjmedia_stream *stream, rtp_stats_t *stats)
{
    uint32_t rate = PJMEDIA_PIA_SRATE(&port->info);
    if (PJMEDIA_PIA_CCNT(&port->info) != 1)
        return -1;
    if ((rate != atomic_load(&slot->rate) || !slot->tx) && allocate_rings(slot, rate) != 0)
        return -1;
    slot_detach(slot); /* a re-INVITE may have met the release of the slot's last call */
    atomic_store(&slot->rate, rate);
    slot->call = call;
    slot->timestamp = 0;
    slot->speaking = false;
    atomic_store(&slot->phase, 0);
    fade_reset(&slot->fade);
    background_reset(&slot->background);
    bridge_reset(&slot->bridge, slot->index);
    atomic_store(&slot->rx_read, 0);
    atomic_store(&slot->rx_written, 0);
    atomic_store(&slot->live_end, 0);
    atomic_store(&slot->origin_ns, 0);
    slot->owed = 0;
    atomic_store(&slot->rx_ns, monotonic_ns());
    atomic_store(&slot->tick_ns, monotonic_ns());
    atomic_store(&slot->jitter_ms, 0);
    atomic_store(&slot->tx_base, 0);
    atomic_store(&slot->tx_read, 0);
    atomic_store(&slot->tx_written, 0);
    atomic_store(&slot->paused, false);
    atomic_store(&slot->open, false);
    atomic_store(&slot->frames_sent, 0);
    atomic_store(&slot->frames_received, 0);
    atomic_store(&slot->frames_missing, 0);
    atomic_store(&slot->under_runs, 0);
    atomic_store(&slot->over_runs, 0);
    exchange_stats(slot, stats);
    set_stream(slot, port, port, stream);
    atomic_fetch_add(&slot->generation, 1);
    atomic_store_explicit(&slot->state, SLOT_OPEN, memory_order_release);
    return 0;
}

/* A re-INVITE made a new stream for the same call. The rings go on at the slot's rate: their readers and writers need
 * not know, so another codec's rate is converted here. */
int slot_attach(slot_t *slot, pjmedia_port *port, pjmedia_stream *stream)
{
    const unsigned options = PJMEDIA_RESAMPLE_USE_SMALL_FILTER | PJMEDIA_RESAMPLE_DONT_DESTROY_DN;
    pjmedia_port *source = port;
    pj_pool_t *pool = NULL;
    slot_detach(slot);
    if (PJMEDIA_PIA_CCNT(&port->info) != 1)
        return -1;
    if (PJMEDIA_PIA_SRATE(&port->info) != atomic_load(&slot->rate)) {
        pool = pjsua_pool_create("trunkline-resample", 4000, 4000);
        if (!pool || pjmedia_resample_port_create(pool, port, atomic_load(&slot->rate), options, &source) != PJ_SUCCESS) {
            if (pool)
                pj_pool_release(pool);
            return -1;
        }
    }
    slot->resampler_pool = pool; /* no other thread reads it while no stream is attached */
    set_stream(slot, port, source, stream);
    return 0;
}

/* The stream lock is held. */
static void update_jitter_buffer_stats(slot_t *slot)
{
    if (slot->stream && slot->stats)
        jitter_buffer_count(&slot->jitter, slot->stream, slot->stats);
}

void slot_detach(slot_t *slot)
{
    pthread_mutex_lock(&slot->stream_lock);
    update_jitter_buffer_stats(slot);
    pjmedia_port *port = slot->port, *source = slot->source;
    pj_pool_t *pool = slot->resampler_pool;
    slot->port = NULL;
    slot->source = NULL;
    slot->stream = NULL;
    slot->pcm = NULL;
    slot->resampler_pool = NULL;
    slot->due = slot->received_count = 0; /* `fill_time_line` makes up for what was due */
    pthread_mutex_unlock(&slot->stream_lock);
    if (pool) {
        pjmedia_port_destroy(source);
        pj_pool_release(pool);
    }
    if (port)
        pjmedia_port_dec_ref(port);
}

void slot_close(slot_t *slot)
{
    slot_detach(slot);
    background_drop(&slot->background);
    dtmf_drop(&slot->dtmf);
    bridge_drop(&slot->bridge);
    rtp_stats_release(exchange_stats(slot, NULL));
}

/* Python calls it, too, and must not keep the pump waiting. */
rtp_stats_t *slot_rtp_stats(slot_t *slot)
{
    pthread_mutex_lock(&slot->stats_lock);
    rtp_stats_t *stats = rtp_stats_add_ref(slot->stats);
    pthread_mutex_unlock(&slot->stats_lock);
    return stats;
}

/* ---- outgoing audio ---- */

/* Takes up to `count` queued samples. A concurrent flush wins: none of the samples that it dropped is sent. */
static void dequeue_speech(slot_t *slot, int16_t *out, uint32_t count, speech_t *queued)
{
    const uint32_t fade = atomic_load(&slot->rate) * FADE_MS / 1000;
    queued->count = queued->ahead_count = 0;
    while (!atomic_load_explicit(&slot->paused, memory_order_acquire)) {
        uint64_t read = atomic_load_explicit(&slot->tx_read, memory_order_acquire);
        uint64_t written = atomic_load_explicit(&slot->tx_written, memory_order_acquire);
        uint64_t base = atomic_load_explicit(&slot->tx_base, memory_order_acquire);
        uint32_t have = written - read < count ? (uint32_t)(written - read) : count;
        uint32_t ahead = written - read - have < fade ? (uint32_t)(written - read - have) : fade;
        get_samples(slot->tx, read - base, slot->tx_mask, out, have);
        get_samples(slot->tx, read - base + have, slot->tx_mask, queued->ahead, ahead);
        if (have && !atomic_compare_exchange_strong(&slot->tx_read, &read, read + have))
            continue;
        queued->count = have;
        queued->ahead_count = ahead;
        return;
    }
}

static bool allows_speech(const slot_t *slot, int64_t now_ns)
{
    return !slot->stream || media_transport_allows_speech(pjmedia_stream_get_transport(slot->stream), now_ns);
}

/* Audio that may not be sent yet waits, DTMF and background included. */
static void next_outgoing(slot_t *slot, int16_t *out, uint32_t count, int64_t now_ns)
{
    const uint32_t rate = atomic_load(&slot->rate);
    speech_t queued;
    if (!allows_speech(slot, now_ns)) {
        fade_comfort_noise(&slot->fade, rate, out, count);
        return;
    }
    const uint32_t speech = dtmf_speech_samples(&slot->dtmf, &slot->tx_read, count);
    dequeue_speech(slot, out, speech, &queued);
    const bool more = atomic_load(&slot->open) && !atomic_load(&slot->paused) && speech == count;
    if (queued.count < count && more)
        atomic_fetch_add(&slot->under_runs, 1);
    fade_apply(&slot->fade, rate, out, &queued, count, more);
    if (!speech)
        dtmf_mix(&slot->dtmf, slot->stream, rate, out, count);
    dtmf_publish_left(&slot->dtmf, &slot->tx_read, rate);
    slot->speaking = queued.count || (slot->speaking && more);
    background_mix(&slot->background, rate, out, count, slot->speaking || !speech);
    bridge_mix(&slot->bridge, rate, out, count);
}

/* ---- incoming audio ---- */

static void next_incoming(slot_t *slot, int16_t *in, uint32_t count)
{
    pjmedia_frame frame = {.buf = in, .size = count * 2, .type = PJMEDIA_FRAME_TYPE_AUDIO};
    frame.timestamp.u64 = slot->timestamp;
    if (pjmedia_port_get_frame(slot->source, &frame) != PJ_SUCCESS || frame.type != PJMEDIA_FRAME_TYPE_AUDIO) {
        memset(in, 0, count * 2);
        atomic_fetch_add(&slot->frames_missing, 1);
    } else {
        if (frame.size < count * 2)
            memset((char *)in + frame.size, 0, count * 2 - frame.size);
        atomic_fetch_add(&slot->frames_received, 1);
    }
}

/* Publishes the delay of a PCM channel's audio, as `follow_jitter_buffer`. */
static void follow_pcm_channel(slot_t *slot, int64_t now_ns)
{
    const int64_t newest_ns = atomic_load(&slot->pcm->newest_ns);
    atomic_store(&slot->jitter_ms, (int32_t)pcm_channel_waiting_ms(slot->pcm));
    packet_arrival_add(&slot->arrival, newest_ns);
    atomic_store(&slot->rx_ns, packet_arrival_newest_ns(&slot->arrival, now_ns));
}

/* Publishes the delay of the received audio: the newest packet's arrival, and the audio that is queued behind the present
 * frame. A bridged slot's jitter buffer is kept short. */
static void follow_jitter_buffer(slot_t *slot, const int16_t *in, int64_t now_ns)
{
    pjmedia_jb_state jitter;
    atomic_store(&slot->tick_ns, now_ns);
    if (slot->pcm)
        follow_pcm_channel(slot, now_ns);
    if (!slot->stream || pjmedia_stream_get_stat_jbuf(slot->stream, &jitter) != PJ_SUCCESS)
        return;
    atomic_store(&slot->jitter_ms, (int32_t)(jitter.size * slot->jitter.frame_ms));
    packet_arrival_add(&slot->arrival, slot->stats ? rtp_stats_arrival_ns(slot->stats) : 0);
    atomic_store(&slot->rx_ns, packet_arrival_newest_ns(&slot->arrival, now_ns));
    if (bridge_is_open(&slot->bridge))
        jitter_buffer_shorten(&slot->jitter, slot->stream, jitter.size, in, slot->frame);
    else
        jitter_buffer_watch(&slot->jitter);
}

/* Store one frame of both directions. When Python has not read for RX_MS, the oldest audio is dropped. */
static void store(slot_t *slot, const int16_t *in, const int16_t *out, uint32_t count)
{
    uint64_t written = atomic_load_explicit(&slot->rx_written, memory_order_relaxed);
    uint64_t limit = (uint64_t)atomic_load(&slot->rate) * RX_MS / 1000;
    uint64_t read = atomic_load(&slot->rx_read);
    while (written + count - read > limit)
        if (atomic_compare_exchange_strong(&slot->rx_read, &read, written + count - limit)) {
            atomic_fetch_add(&slot->over_runs, 1);
            break;
        }
    put_samples(slot->rx_audio, written, slot->rx_mask, in, count);
    put_samples(slot->tx_audio, written, slot->rx_mask, out, count);
    atomic_store_explicit(&slot->rx_written, written + count, memory_order_release);
}

/* Of a long standstill the ring keeps the end alone: positions jump where nothing but silence is left to read. */
static void store_silence(slot_t *slot, uint64_t count)
{
    static const int16_t silence[MAX_FRAME];
    const uint64_t ring = slot->rx_mask + 1;
    for (uint64_t stored = 0; count > 0;) {
        const uint32_t part = count < MAX_FRAME ? (uint32_t)count : MAX_FRAME;
        store(slot, silence, silence, part);
        stored += part;
        count -= part;
        if (stored >= ring && count > ring) {
            atomic_fetch_add(&slot->rx_written, count - ring);
            count = ring;
        }
    }
}

/* The time since the slot's last tick: 20 ms, unless it has missed some, or has changed its phase. */
static void account_for(slot_t *slot, int64_t due_ns)
{
    if (!atomic_load(&slot->origin_ns)) {
        slot->accounted_ns = due_ns - TICK_NS;
        atomic_store(&slot->origin_ns, slot->accounted_ns);
    }
    const int64_t ticks = (due_ns - slot->accounted_ns) / TICK_NS;
    slot->accounted_ns += ticks * TICK_NS;
    slot->owed += (uint64_t)ticks * atomic_load(&slot->rate) * TICK_MS / 1000;
}

/* Silence for what the stream will not give any more, before what it has given in this tick. */
static void fill_time_line(slot_t *slot, int64_t now_ns)
{
    const uint64_t given = slot->received_count + slot->due;
    if (slot->owed > given) {
        store_silence(slot, slot->owed - given);
        slot->owed = given;
    }
    if (!slot->port) {
        atomic_store(&slot->tick_ns, now_ns);
        atomic_store(&slot->rx_ns, now_ns);
        atomic_store(&slot->jitter_ms, 0);
    }
}

static void receive_frame(slot_t *slot, int64_t now_ns)
{
    int16_t *in = slot->received + slot->received_count;
    next_incoming(slot, in, slot->frame);
    bridge_put(&slot->bridge, in, slot->frame);
    follow_jitter_buffer(slot, in, now_ns);
    slot->received_count += slot->frame;
}

/* What the peer has not played of interrupted speech is to be dropped. */
static void report_interruption(slot_t *slot)
{
    const uint32_t interruptions = atomic_load(&slot->interruptions);
    if (slot->pcm && interruptions != slot->interruptions_seen)
        pcm_channel_clear(slot->pcm);
    slot->interruptions_seen = interruptions;
}

/* Sends a frame, and stores it with the received one. */
static void send_frame(slot_t *slot, const int16_t *in, int64_t now_ns)
{
    int16_t out[MAX_FRAME], sent[MAX_FRAME];
    const uint32_t count = slot->frame;
    next_outgoing(slot, out, count, now_ns);
    pjmedia_frame frame = {.buf = out, .size = count * 2, .type = PJMEDIA_FRAME_TYPE_AUDIO};
    frame.timestamp.u64 = slot->timestamp;
    memcpy(sent, out, count * 2); /* an encoder may work in place */
    if (pjmedia_port_put_frame(slot->source, &frame) == PJ_SUCCESS)
        atomic_fetch_add(&slot->frames_sent, 1);
    slot->timestamp += count;
    atomic_store(&slot->live_end, atomic_load(&slot->rx_written) + count); /* first: what is read counts as live */
    store(slot, in, sent, count);
    slot->owed -= count;
}

void slot_receive(slot_t *slot, const tick_t *tick)
{
    pthread_mutex_lock(&slot->stream_lock);
    slot->received_count = 0;
    account_for(slot, tick->due_ns);
    if (slot->port && slot->frame && slot->frame <= MAX_FRAME)
        for (slot->due += atomic_load(&slot->rate) * TICK_MS / 1000; slot->due >= slot->frame; slot->due -= slot->frame)
            receive_frame(slot, tick->now_ns);
    bridge_report_tick(&slot->bridge, tick, packet_arrival_offset_ns(&slot->arrival, tick->now_ns));
    pthread_mutex_unlock(&slot->stream_lock);
}

void slot_follow_phase(slot_t *slot)
{
    const int present = atomic_load(&slot->phase), phase = bridge_phase(&slot->bridge, present);
    if (phase == present)
        return;
    pthread_mutex_lock(&slot->stream_lock);
    set_phase(slot, phase);
    pthread_mutex_unlock(&slot->stream_lock);
}

/* The frames of a stream that has ended meanwhile are dropped: `slot_detach` has set `received_count` to 0. */
void slot_send(slot_t *slot, int64_t now_ns, void (*sent)(void *, int64_t), void *arg)
{
    pthread_mutex_lock(&slot->stream_lock);
    fill_time_line(slot, now_ns);
    if (slot->port && slot->received_count) {
        report_interruption(slot);
        for (uint32_t at = 0; at < slot->received_count; at += slot->frame)
            send_frame(slot, slot->received + at, now_ns);
        int64_t at_ns = monotonic_ns();
        if (slot->last_sent_ns && slot->frame * 1000 == atomic_load(&slot->rate) * TICK_MS)
            sent(arg, at_ns - slot->last_sent_ns);
        slot->last_sent_ns = at_ns;
    }
    pthread_mutex_unlock(&slot->stream_lock);
}

void slot_poll_stats(slot_t *slot, int64_t now_ns)
{
    pthread_mutex_lock(&slot->stream_lock);
    if (slot->stream) {
        pjmedia_rtcp_stat stat;
        if (pjmedia_stream_get_stat(slot->stream, &stat) == PJ_SUCCESS && stat.rx.pkt != slot->last_packet_count) {
            slot->last_packet_count = stat.rx.pkt;
            atomic_store(&slot->last_packet_ns, now_ns);
        }
        receiver_report_send(slot->stream, atomic_load(&slot->last_packet_ns), now_ns, &slot->last_report_ns);
        update_jitter_buffer_stats(slot);
    } else if (slot->pcm && atomic_load(&slot->pcm->newest_ns)) {
        atomic_store(&slot->last_packet_ns, atomic_load(&slot->pcm->newest_ns));
    }
    pthread_mutex_unlock(&slot->stream_lock);
}
