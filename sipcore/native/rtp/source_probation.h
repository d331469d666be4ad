/* Source probation: a candidate for the RTP source of a call passes when its own packets have had the pace of RTP for a
 * while (as in RFC 3550 A.1 and Asterisk's option `probation`). */
#ifndef TRUNKLINE_RTP_SOURCE_PROBATION_H
#define TRUNKLINE_RTP_SOURCE_PROBATION_H

#include <pjlib.h>
#include <stdbool.h>
#include <stdint.h>

#define PROBATION_NS 400000000LL
#define MAX_PROBATION_NS 800000000LL   /* longest wait for a better candidate that came later */
#define MAX_CANDIDATES 4
#define CANDIDATE_GAP_NS 200000000LL    /* a candidate that is silent for longer begins its probation again */

/* A packet's SSRC, sequence number and arrival (CLOCK_MONOTONIC). */
typedef struct rtp_arrival {
    uint32_t ssrc;
    uint16_t sequence;
    int64_t ns;
} rtp_arrival_t;

typedef struct source_candidate {
    pj_sockaddr address;        /* no family: none */
    uint32_t ssrc;
    uint16_t sequence;
    int in_order, out_of_order; /* packets that follow the one before, and others, since the beginning */
    int missing;                /* sequence numbers */
    int64_t since_ns, last_packet_ns;
} source_candidate_t;

/* Counts a candidate's packet. True if the candidate has passed its probation with it, and no better candidate is about to
 * pass. `before`: number of its packets before this one. */
bool source_probation_count(source_candidate_t *candidates, const pj_sockaddr *from, const rtp_arrival_t *packet,
                            int *before);

bool rtp_same_address(const pj_sockaddr *a, const pj_sockaddr *b);
bool rtp_same_host(const pj_sockaddr *a, const pj_sockaddr *b);

#endif
