/* RTP and RTCP at a call's ports, and offers in between: each is a byte for the source, a byte for the milliseconds since the
 * last, two bytes of length, and that many bytes. A source that was never announced is never accepted. */
#include "stack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rtp/source_lock.h"
#include "rtp/rtp_packet.h"
#include "rtp/rtp_stats.h"

#define HOSTS 4                 /* the last of them is never announced, nor is it the source of SIP */

static pj_sockaddr address_of(unsigned host, unsigned port)
{
    pj_sockaddr address;
    char name[] = "192.0.2.0";
    name[sizeof name - 2] = (char)('1' + host % HOSTS);
    const pj_str_t text = pj_str(name);
    pj_sockaddr_init(pj_AF_INET(), &address, &text, (pj_uint16_t)(4000 + port % 8));
    return address;
}

static void open_lock(source_lock_t *lock, uint8_t sdp, int64_t now_ns)
{
    const pj_sockaddr rtp = address_of(sdp % (HOSTS - 1), sdp >> 3), rtcp = address_of(sdp % (HOSTS - 1), (sdp >> 3) + (sdp & 1));
    source_lock_open(lock, &rtp, &rtcp, sdp & 4, now_ns);
}

static void receive(source_lock_t *lock, rtp_stats_t *stats, uint8_t from, const uint8_t *data, size_t size, int64_t now_ns)
{
    uint8_t *packet = malloc(size ? size : 1); /* no byte more, so that an overrun is found */
    memcpy(packet, data, size);
    const pj_sockaddr source = address_of(from & 3, from >> 2);
    enum rtp_verdict verdict = RTP_DROP;
    if (rtp_is_rtcp(packet, (ptrdiff_t)size)) {
        verdict = source_lock_on_rtcp(lock, &source, rtp_32(packet + 4));
        if (verdict != RTP_DROP)
            rtp_stats_rtcp_received(stats, packet, size, now_ns);
    } else if (rtp_is_rtp(packet, (ptrdiff_t)size)) {
        const rtp_arrival_t arrival = {rtp_ssrc(packet), rtp_16(packet + 2), now_ns};
        verdict = source_lock_on_rtp(lock, &source, &arrival);
        if (verdict != RTP_DROP)
            rtp_stats_received(stats, packet, size, now_ns);
    }
    must(verdict == RTP_DROP || (from & 3) != HOSTS - 1, "a source that was never announced is never accepted");
    free(packet);
}

/* PJMEDIA sends whole headers. */
static void count_sent(rtp_stats_t *stats, bool rtcp, const uint8_t *data, size_t size, int64_t now_ns)
{
    if (rtcp && size >= RTCP_HEADER)
        rtp_stats_rtcp_sent(stats, data, size, now_ns);
    else if (!rtcp && size >= RTP_HEADER)
        rtp_stats_sent(stats, data);
}

static void check(rtp_stats_t *stats, const source_lock_t *lock)
{
    pj_sockaddr rtp, rtcp;
    const rtp_totals_t totals = rtp_stats_totals(stats);
    const pj_sockaddr unannounced = address_of(HOSTS - 1, 0);
    source_lock_targets(lock, &rtp, &rtcp);
    must(!rtp_same_host(&rtp, &unannounced) && !rtp_same_host(&rtcp, &unannounced),
         "nothing is sent to a host that was never announced");
    must(isfinite(totals.jitter_ms) && isfinite(totals.jitter_mean_ms) && totals.jitter_ms >= 0, "the jitter is a number");
    must(isfinite(totals.round_trip_mean_ms) && totals.round_trip_mean_ms >= 0, "the round trip is a number");
    must(totals.lost <= totals.received * 70000 + 70000, "losses are bounded by the gaps in the sequence numbers");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    source_lock_t lock = {.signalling = address_of(1, 0)};
    rtp_stats_t *stats = rtp_stats_create();
    int64_t now_ns = 1000000000;
    rtp_stats_set_clock_rate(stats, 8000);
    open_lock(&lock, 0, now_ns);
    for (const uint8_t *end = data + size; end - data >= 4;) {
        const uint8_t kind = data[0];
        size_t length = rtp_16(data + 2);
        now_ns += data[1] * 1000000LL;
        data += 4;
        length = length < (size_t)(end - data) ? length : (size_t)(end - data);
        if (kind & 0x80)
            open_lock(&lock, kind & 0x7F, now_ns);
        else if (kind & 0x40)
            count_sent(stats, kind & 1, data, length, now_ns);
        else
            receive(&lock, stats, kind, data, length, now_ns);
        data += length;
    }
    check(stats, &lock);
    rtp_stats_release(stats);
    return 0;
}
