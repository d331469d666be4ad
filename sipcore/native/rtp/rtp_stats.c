#include "rtp/rtp_stats.h"

#include "rtp/rtp_packet.h"

#include <stdlib.h>
#include <arpa/inet.h>
#include <string.h>

#define MAX_DROPOUT 3000    /* RFC 3550, A.1 */
#define WINDOW 64
#define REPORT_BLOCK 24
#define SENDER_REPORT 200
#define RECEIVER_REPORT 201
#define MAX_PACKET_MS 200
#define RESYNC_MS 1000      /* a timestamp that differs by more belongs to another clock */

rtp_stats_t *rtp_stats_create(void)
{
    rtp_stats_t *stats = calloc(1, sizeof *stats);
    if (stats) {
        atomic_init(&stats->refs, 1);
        pthread_mutex_init(&stats->lock, NULL);
    }
    return stats;
}

rtp_stats_t *rtp_stats_add_ref(rtp_stats_t *stats)
{
    if (stats)
        atomic_fetch_add(&stats->refs, 1);
    return stats;
}

void rtp_stats_release(rtp_stats_t *stats)
{
    if (!stats || atomic_fetch_sub(&stats->refs, 1) > 1)
        return;
    pthread_mutex_destroy(&stats->lock);
    free(stats);
}

static void add(rtp_mean_t *mean, double value)
{
    mean->last = value;
    mean->sum += value;
    mean->count++;
    if (value > mean->max)
        mean->max = value;
}

static double mean_of(const rtp_mean_t *mean)
{
    return mean->count ? mean->sum / (double)mean->count : 0;
}

/* ---- reception ---- */

static void start_source(rtp_reception_t *r, uint16_t sequence)
{
    memset(r, 0, sizeof *r);
    r->begun = true;
    r->newest = sequence;
    r->window = 1;
    r->counted = 1;
}

/* A packet `step` sequence numbers ahead; those in between are lost unless they come late. */
static void count_ahead(rtp_stats_t *stats, uint16_t sequence, uint16_t step)
{
    rtp_reception_t *r = &stats->reception;
    r->window = step < WINDOW ? r->window << step | 1 : 1;
    r->counted = r->counted + step < WINDOW ? r->counted + step : WINDOW;
    r->newest = sequence;
    if (step > 1) {
        stats->totals.lost += step - 1U;
        stats->totals.loss_runs++;
    }
}

/* A packet `back` behind the newest: one that was counted as lost, or a duplicate. */
static void count_late(rtp_stats_t *stats, uint16_t back)
{
    rtp_reception_t *r = &stats->reception;
    if (back >= r->counted) { /* from before the first packet, or too old */
        stats->totals.reordered++;
        return;
    }
    if (r->window >> back & 1) {
        stats->totals.duplicate++;
        return;
    }
    bool newer = r->window >> (back - 1) & 1;
    bool older = back + 1U >= r->counted || (r->window >> (back + 1) & 1);
    r->window |= 1ULL << back;
    stats->totals.reordered++;
    stats->totals.lost--;
    if (newer && older)
        stats->totals.loss_runs--;
    else if (!newer && !older)
        stats->totals.loss_runs++;
}

/* RFC 3550, A.8. Packets that share a timestamp (RFC 4733 events) do not measure the network. */
static void measure_jitter(rtp_stats_t *stats, uint32_t timestamp, int64_t now_ns)
{
    rtp_reception_t *r = &stats->reception;
    if (r->arrival_ns && timestamp != r->timestamp && stats->clock_rate) {
        double came = (double)(now_ns - r->arrival_ns) * stats->clock_rate / 1e9;
        double off = came - (double)(int32_t)(timestamp - r->timestamp);
        if (off < 0)
            off = -off;
        if (off * 1000 < (double)RESYNC_MS * stats->clock_rate) {
            r->jitter += (off - r->jitter) / 16;
            add(&stats->jitter, r->jitter * 1000 / stats->clock_rate);
        }
    }
    if (!r->arrival_ns || timestamp != r->timestamp) {
        r->timestamp = timestamp;
        r->arrival_ns = now_ns;
    }
}

/* Gaps in which the peer sends nothing (RFC 3550, 5.1: the timestamp goes on) and events are no measure. */
static void measure_packet_time(rtp_stats_t *stats, uint32_t timestamp, uint16_t ahead)
{
    uint32_t units = timestamp - stats->reception.timestamp;
    if (ahead == 1 && units && units * 1000ULL <= (uint64_t)MAX_PACKET_MS * stats->clock_rate)
        stats->packet_units = units;
}

static void count_sequence(rtp_stats_t *stats, uint16_t sequence, uint32_t timestamp, int64_t now_ns)
{
    rtp_reception_t *r = &stats->reception;
    if (!r->begun)
        start_source(r, sequence);
    else {
        uint16_t ahead = (uint16_t)(sequence - r->newest), back = (uint16_t)(r->newest - sequence);
        if (ahead == 0)
            stats->totals.duplicate++;
        else if (ahead < MAX_DROPOUT) {
            measure_packet_time(stats, timestamp, ahead);
            count_ahead(stats, sequence, ahead);
        }
        else if (back < 2 * WINDOW) {
            count_late(stats, back);
            return;
        } else if (r->restarting && sequence == r->restart_at)
            start_source(r, sequence);
        else {
            r->restarting = true;
            r->restart_at = (uint16_t)(sequence + 1);
            return;
        }
    }
    measure_jitter(stats, timestamp, now_ns);
}

void rtp_stats_begin_stream(rtp_stats_t *stats)
{
    pthread_mutex_lock(&stats->lock);
    stats->reception.begun = false;
    pthread_mutex_unlock(&stats->lock);
}

void rtp_stats_set_clock_rate(rtp_stats_t *stats, uint32_t clock_rate)
{
    pthread_mutex_lock(&stats->lock);
    if (stats->clock_rate != clock_rate)
        stats->reception.arrival_ns = 0;
    stats->clock_rate = clock_rate;
    pthread_mutex_unlock(&stats->lock);
}

void rtp_stats_received(rtp_stats_t *stats, const uint8_t *packet, size_t size, int64_t now_ns)
{
    uint32_t ssrc = rtp_ssrc(packet);
    pthread_mutex_lock(&stats->lock);
    if (ssrc != stats->ssrc)
        stats->reception.begun = false;
    stats->ssrc = ssrc;
    stats->totals.received++;
    stats->totals.received_octets += size - RTP_HEADER;
    count_sequence(stats, rtp_16(packet + 2), rtp_32(packet + 4), now_ns);
    pthread_mutex_unlock(&stats->lock);
}

void rtp_stats_dropped(rtp_stats_t *stats, bool malformed)
{
    pthread_mutex_lock(&stats->lock);
    if (malformed)
        stats->totals.malformed++;
    else
        stats->totals.foreign++;
    pthread_mutex_unlock(&stats->lock);
}

void rtp_stats_reclassified(rtp_stats_t *stats, int packets)
{
    pthread_mutex_lock(&stats->lock);
    stats->totals.foreign -= (uint64_t)packets;
    pthread_mutex_unlock(&stats->lock);
}

void rtp_stats_kernel_dropped(rtp_stats_t *stats, int32_t packets)
{
    pthread_mutex_lock(&stats->lock);
    stats->totals.foreign += (uint64_t)(int64_t)packets;
    pthread_mutex_unlock(&stats->lock);
}

void rtp_stats_jitter_buffer(rtp_stats_t *stats, double delay_ms, double discarded_ms)
{
    pthread_mutex_lock(&stats->lock);
    add(&stats->buffer, delay_ms);
    stats->totals.discarded_ms += discarded_ms;
    pthread_mutex_unlock(&stats->lock);
}

/* ---- sending, and the peer's reports about it ---- */

void rtp_stats_sent(rtp_stats_t *stats, const uint8_t *packet)
{
    uint32_t ssrc = rtp_ssrc(packet);
    pthread_mutex_lock(&stats->lock);
    if (ssrc != stats->own_ssrc || !stats->totals.sent) {
        stats->remote_lost_before += stats->remote_lost;
        stats->remote_expected_before += stats->remote_expected;
        stats->remote_lost = 0;
        stats->remote_expected = 0;
        stats->own_ssrc = ssrc;
        stats->remote_base = rtp_16(packet + 2);
    }
    stats->totals.sent++;
    pthread_mutex_unlock(&stats->lock);
}

int64_t rtp_stats_arrival_ns(rtp_stats_t *stats)
{
    pthread_mutex_lock(&stats->lock);
    const int64_t arrival_ns = stats->reception.arrival_ns;
    pthread_mutex_unlock(&stats->lock);
    return arrival_ns;
}

void rtp_stats_unreachable(rtp_stats_t *stats, int64_t now_ns)
{
    atomic_store(&stats->unreachable_ns, now_ns);
}

int64_t rtp_stats_unreachable_ns(rtp_stats_t *stats)
{
    return atomic_load(&stats->unreachable_ns);
}

void rtp_stats_write_jitter(rtp_stats_t *stats, uint8_t *packet, size_t size)
{
    const size_t block = size >= 2 && packet[1] == SENDER_REPORT ? 28 : 8;
    if (size < block + 24 || (packet[1] != SENDER_REPORT && packet[1] != RECEIVER_REPORT) || !(packet[0] & 0x1F))
        return;
    pthread_mutex_lock(&stats->lock);
    const bool same_source = rtp_32(packet + block) == stats->ssrc;
    const uint32_t jitter = htonl((uint32_t)stats->reception.jitter);
    pthread_mutex_unlock(&stats->lock);
    if (same_source)
        memcpy(packet + block + 12, &jitter, sizeof jitter);
}

/* The middle 32 bits of an NTP timestamp are how a report refers to ours (RFC 3550, 6.4.1). */
void rtp_stats_rtcp_sent(rtp_stats_t *stats, const uint8_t *packet, size_t size, int64_t now_ns)
{
    if (size < 28 || packet[1] != SENDER_REPORT)
        return;
    pthread_mutex_lock(&stats->lock);
    stats->reports[stats->next_report].middle = rtp_32(packet + 10);
    stats->reports[stats->next_report].sent_ns = now_ns;
    stats->next_report = (stats->next_report + 1) % SENDER_REPORTS;
    pthread_mutex_unlock(&stats->lock);
}

static void measure_round_trip(rtp_stats_t *stats, uint32_t last_report, uint32_t delay, int64_t now_ns)
{
    for (int i = 0; i < SENDER_REPORTS && last_report; i++) {
        if (stats->reports[i].middle != last_report || !stats->reports[i].sent_ns)
            continue;
        double ms = (double)(now_ns - stats->reports[i].sent_ns) / 1e6 - delay * 1000.0 / 65536;
        if (ms >= 0 && ms < 60000)
            add(&stats->round_trip, ms);
        return;
    }
}

static void read_report_block(rtp_stats_t *stats, const uint8_t *block, int64_t now_ns)
{
    if (rtp_32(block) != stats->own_ssrc || !stats->totals.sent)
        return;
    int32_t lost = (int32_t)(rtp_32(block + 4) << 8) >> 8;
    uint32_t highest = rtp_32(block + 8);
    stats->totals.reports++;
    stats->remote_lost = lost;
    stats->remote_expected = highest >= stats->remote_base ? highest - stats->remote_base + 1ULL : 0;
    if (stats->clock_rate)
        add(&stats->remote_jitter, rtp_32(block + 12) * 1000.0 / stats->clock_rate);
    measure_round_trip(stats, rtp_32(block + 16), rtp_32(block + 20), now_ns);
}

/* A compound packet (RFC 3550, 6.1): each part says its type, and its length in words less one. */
void rtp_stats_rtcp_received(rtp_stats_t *stats, const uint8_t *packet, size_t size, int64_t now_ns)
{
    pthread_mutex_lock(&stats->lock);
    while (size >= 8 && packet[0] >> 6 == 2) {
        size_t length = (rtp_16(packet + 2) + 1U) * 4U, at = packet[1] == SENDER_REPORT ? 28 : 8;
        if (length > size)
            break;
        if (packet[1] == SENDER_REPORT || packet[1] == RECEIVER_REPORT)
            for (int i = packet[0] & 0x1F; i > 0 && at + REPORT_BLOCK <= length; i--, at += REPORT_BLOCK)
                read_report_block(stats, packet + at, now_ns);
        packet += length;
        size -= length;
    }
    pthread_mutex_unlock(&stats->lock);
}

rtp_totals_t rtp_stats_totals(rtp_stats_t *stats)
{
    pthread_mutex_lock(&stats->lock);
    rtp_totals_t totals = stats->totals;
    totals.jitter_ms = stats->jitter.last;
    totals.jitter_mean_ms = mean_of(&stats->jitter);
    totals.jitter_max_ms = stats->jitter.max;
    totals.packet_ms = stats->clock_rate ? stats->packet_units * 1000.0 / stats->clock_rate : 0;
    totals.buffer_ms = mean_of(&stats->buffer);
    totals.remote_lost = stats->remote_lost_before + stats->remote_lost;
    totals.remote_expected = stats->remote_expected_before + stats->remote_expected;
    totals.remote_jitter_mean_ms = mean_of(&stats->remote_jitter);
    totals.remote_jitter_max_ms = stats->remote_jitter.max;
    totals.round_trips = stats->round_trip.count;
    totals.round_trip_mean_ms = mean_of(&stats->round_trip);
    totals.round_trip_max_ms = stats->round_trip.max;
    pthread_mutex_unlock(&stats->lock);
    return totals;
}

/* G.722's RTP clock runs at half its sampling rate (RFC 3551, 4.5.2), Opus's at 48 kHz whatever its rate (RFC 7587, 4.1). */
uint32_t rtp_clock_rate_of(const pjmedia_stream_info *info)
{
    if (info->fmt.pt == PJMEDIA_RTP_PT_G722)
        return 8000;
    return pj_stricmp2(&info->fmt.encoding_name, "opus") == 0 ? 48000 : info->fmt.clock_rate;
}

void rtp_clock_set_for_rtcp(pjmedia_stream *stream, uint32_t clock_rate)
{
    pjmedia_stream_rtp_sess_info session;
    if (pjmedia_stream_get_rtp_session_info(stream, &session) == PJ_SUCCESS)
        ((pjmedia_rtcp_session *)session.rtcp)->clock_rate = clock_rate;
}
