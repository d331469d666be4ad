/* Places that want to be a call's source of RTP, on probation: each is judged by its own packets. */
#ifndef TRUNKLINE_RTP_SOURCE_PROBATION_H
#define TRUNKLINE_RTP_SOURCE_PROBATION_H

#include <pjlib.h>
#include <stdbool.h>
#include <stdint.h>

#define PROBATION_NS 400000000LL
#define PROBATION_MOST_NS 800000000LL   /* a better candidate that came later is waited for until then */
#define MAX_CANDIDATES 4
#define CANDIDATE_GAP_NS 200000000LL    /* a candidate that is silent for longer begins its probation anew */

/* What a packet says of itself, and when it came. */
typedef struct rtp_arrival {
    uint32_t ssrc;
    uint16_t sequence;
    int64_t ns;
} rtp_arrival_t;

typedef struct source_candidate {
    pj_sockaddr address;          /* no family: none */
    uint32_t ssrc;
    uint16_t sequence;
    int in_order, out_of_order;      /* packets since then: those that follow the one before, and others */
    int missing;                /* sequence numbers */
    int64_t since_ns, heard_ns;
} source_candidate_t;

/* Count a packet of a candidate; whether it has passed its probation by it, and no better one is about to. `before`: how many
 * packets of its probation came before this one. */
bool source_probation_passed(source_candidate_t *candidates, const pj_sockaddr *from, const rtp_arrival_t *packet, int *before);

bool rtp_same_address(const pj_sockaddr *a, const pj_sockaddr *b);
bool rtp_same_host(const pj_sockaddr *a, const pj_sockaddr *b);

#endif
