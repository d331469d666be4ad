/* RTP and RTCP statistics of a call, over all its streams. Times are CLOCK_MONOTONIC, in ns. */
#ifndef TRUNKLINE_RTP_RTP_STATS_H
#define TRUNKLINE_RTP_RTP_STATS_H

#include <pjmedia.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SENDER_REPORTS 4    /* sent sender reports that a peer's report may refer to */

typedef struct rtp_totals {
    uint64_t received, received_octets;
    uint64_t lost;                                      /* sequence numbers without a packet */
    uint64_t loss_runs;                                 /* gaps of one or more lost packets */
    uint64_t duplicate, reordered;
    uint64_t foreign;                                   /* from another source: dropped */
    uint64_t malformed;                                 /* not RTP of version 2: dropped */
    uint64_t sent;
    double jitter_ms, jitter_mean_ms, jitter_max_ms;    /* RFC 3550, 6.4.1 */
    double packet_ms;                                   /* audio in one packet; 0: unknown */
    double buffer_ms;                                   /* mean delay of the jitter buffer */
    double discarded_ms;                                /* audio that the jitter buffer discarded: too late, or too much */
    /* the peer's RTCP reports about our packets */
    uint64_t reports;
    int64_t remote_lost;                                /* may be negative (RFC 3550, 6.4.1) */
    uint64_t remote_expected;
    double remote_jitter_mean_ms, remote_jitter_max_ms;
    uint64_t round_trips;
    double round_trip_mean_ms, round_trip_max_ms;
} rtp_totals_t;

typedef struct rtp_mean {
    double last, sum, max;
    uint64_t count;
} rtp_mean_t;

/* One RTP source as it is received: RFC 3550, A.1, A.3 and A.8. */
typedef struct rtp_reception {
    bool begun;
    uint16_t newest;            /* sequence number */
    uint64_t window;            /* bit n: packet newest - n has come */
    uint32_t counted;           /* how many sequence numbers the window covers, at most 64 */
    uint16_t restart_at;        /* next sequence number that confirms a restart */
    bool restarting;
    uint32_t timestamp;
    int64_t arrival_ns;
    double jitter;              /* in units of the RTP clock */
} rtp_reception_t;

typedef struct rtp_stats {
    _Atomic int refs;
    pthread_mutex_t lock;
    uint32_t clock_rate;        /* of RTP timestamps, Hz; 0: not known yet */
    uint32_t ssrc;              /* of the source that is received */
    uint32_t own_ssrc;
    uint32_t packet_units;      /* timestamps from one packet to the next */
    rtp_reception_t reception;
    rtp_totals_t totals;
    rtp_mean_t jitter, remote_jitter, round_trip, buffer;
    int64_t remote_lost_before; /* of our earlier SSRCs */
    uint64_t remote_expected_before;
    uint32_t remote_base;       /* our first sequence number under this SSRC */
    int64_t remote_lost;
    uint64_t remote_expected;
    struct {
        uint32_t middle;        /* of its NTP timestamp */
        int64_t sent_ns;
    } reports[SENDER_REPORTS];
    unsigned next_report;
    _Atomic int64_t unreachable_ns;
} rtp_stats_t;

rtp_stats_t *rtp_stats_create(void);
rtp_stats_t *rtp_stats_add_ref(rtp_stats_t *stats);
void rtp_stats_release(rtp_stats_t *stats);

/* Another stream begins: its first sequence number is no loss. */
void rtp_stats_begin_stream(rtp_stats_t *stats);
void rtp_stats_set_clock_rate(rtp_stats_t *stats, uint32_t clock_rate);
/* Packets begin with a whole RTP header, or RTCP header. */
void rtp_stats_received(rtp_stats_t *stats, const uint8_t *packet, size_t size, int64_t now_ns);
/* When the newest packet came; 0 if none has since the stream began. */
int64_t rtp_stats_arrival_ns(rtp_stats_t *stats);
/* When an ICMP message said that the port is closed to which RTP is sent, or RTCP if the peer has sent some; 0: never. */
void rtp_stats_unreachable(rtp_stats_t *stats, int64_t now_ns);
int64_t rtp_stats_unreachable_ns(rtp_stats_t *stats);
/* Writes the jitter of the received packets into the report block of an RTCP packet that is to be sent. */
void rtp_stats_write_jitter(rtp_stats_t *stats, uint8_t *packet, size_t size);
void rtp_stats_sent(rtp_stats_t *stats, const uint8_t *packet);
void rtp_stats_rtcp_received(rtp_stats_t *stats, const uint8_t *packet, size_t size, int64_t now_ns);
void rtp_stats_rtcp_sent(rtp_stats_t *stats, const uint8_t *packet, size_t size, int64_t now_ns);
void rtp_stats_dropped(rtp_stats_t *stats, bool malformed);
/* Packets that were counted as foreign turned out to be the peer's. */
void rtp_stats_reclassified(rtp_stats_t *stats, int packets);
/* Packets that the BPF source filter dropped; a negative number corrects a count that was too high. */
void rtp_stats_kernel_dropped(rtp_stats_t *stats, int32_t packets);
/* State of the jitter buffer: its delay, and the audio that it discarded since the last call. */
void rtp_stats_jitter_buffer(rtp_stats_t *stats, double delay_ms, double discarded_ms);
rtp_totals_t rtp_stats_totals(rtp_stats_t *stats);

/* RTP clock rate of a stream, in Hz. */
uint32_t rtp_clock_rate_of(const pjmedia_stream_info *info);
/* Sets the clock rate of PJMEDIA's RTCP session: PJMEDIA would use Opus's sampling rate, and report wrong jitter. */
void rtp_clock_set_for_rtcp(pjmedia_stream *stream, uint32_t clock_rate);

#endif
