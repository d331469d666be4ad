#include "rtp/source_probation.h"

#include <string.h>

#define MIN_INTERVAL_NS 8000000LL   /* between packets, on average: 10 ms of sound, and clocks that go fast */
#define MAX_INTERVAL_NS 100000000LL  /* 60 ms of sound, and some loss */
#define MAX_SEQUENCE_STEP 50            /* sequence numbers that the network may lose at a time */
#define RIVAL_MIN_PACKETS 3     /* packets that make a rival worth waiting for */

bool rtp_same_host(const pj_sockaddr *a, const pj_sockaddr *b)
{
    return a->addr.sa_family && a->addr.sa_family == b->addr.sa_family &&
           memcmp(pj_sockaddr_get_addr(a), pj_sockaddr_get_addr(b), pj_sockaddr_get_addr_len(a)) == 0;
}

bool rtp_same_address(const pj_sockaddr *a, const pj_sockaddr *b)
{
    return rtp_same_host(a, b) && pj_sockaddr_get_port(a) == pj_sockaddr_get_port(b);
}

static bool is_live(const source_candidate_t *candidate, int64_t now_ns)
{
    return candidate->address.addr.sa_family && now_ns - candidate->last_packet_ns <= CANDIDATE_GAP_NS;
}

static void begin(source_candidate_t *candidate, const rtp_arrival_t *packet)
{
    candidate->ssrc = packet->ssrc;
    candidate->sequence = packet->sequence;
    candidate->in_order = candidate->out_of_order = candidate->missing = 0;
    candidate->since_ns = candidate->last_packet_ns = packet->ns;
}

/* True if packets come at the pace of RTP, with little loss. */
static bool has_rtp_pacing(const source_candidate_t *candidate)
{
    int64_t lasted_ns = candidate->last_packet_ns - candidate->since_ns;
    return candidate->in_order * MIN_INTERVAL_NS <= lasted_ns && candidate->in_order * MAX_INTERVAL_NS >= lasted_ns &&
           candidate->missing <= candidate->in_order && 2 * candidate->out_of_order <= candidate->in_order;
}

static bool sends_faster(const source_candidate_t *a, const source_candidate_t *b)
{
    return a->in_order * (b->last_packet_ns - b->since_ns) > b->in_order * (a->last_packet_ns - a->since_ns);
}

/* An entry for a new candidate: a free one, else that of a candidate that sends no RTP. NULL for none. */
static source_candidate_t *free_entry(source_candidate_t *candidates, int64_t now_ns)
{
    source_candidate_t *found = NULL;
    for (int i = 0; i < MAX_CANDIDATES; i++) {
        if (!is_live(&candidates[i], now_ns))
            return &candidates[i];
        if (candidates[i].in_order + candidates[i].out_of_order > 0 && !has_rtp_pacing(&candidates[i]))
            found = &candidates[i];
    }
    return found;
}

static source_candidate_t *find(source_candidate_t *candidates, const pj_sockaddr *from, const rtp_arrival_t *packet)
{
    for (int i = 0; i < MAX_CANDIDATES; i++)
        if (is_live(&candidates[i], packet->ns) && candidates[i].ssrc == packet->ssrc &&
            rtp_same_address(&candidates[i].address, from))
            return &candidates[i];
    return NULL;
}

static void count(source_candidate_t *candidate, const rtp_arrival_t *packet)
{
    uint16_t step = (uint16_t)(packet->sequence - candidate->sequence);
    candidate->last_packet_ns = packet->ns;
    if (step == 0 || step > MAX_SEQUENCE_STEP) {
        candidate->out_of_order++;
        if (step < 0x8000) /* else it is late */
            candidate->sequence = packet->sequence;
        return;
    }
    candidate->in_order++;
    candidate->missing += step - 1;
    candidate->sequence = packet->sequence;
}

static bool has_better_rival(const source_candidate_t *candidates, const source_candidate_t *candidate, int64_t now_ns)
{
    for (int i = 0; i < MAX_CANDIDATES; i++) {
        const source_candidate_t *rival = &candidates[i];
        if (rival != candidate && is_live(rival, now_ns) && rival->in_order >= RIVAL_MIN_PACKETS && has_rtp_pacing(rival) &&
            sends_faster(rival, candidate))
            return true;
    }
    return false;
}

bool source_probation_count(source_candidate_t *candidates, const pj_sockaddr *from, const rtp_arrival_t *packet,
                            int *before)
{
    source_candidate_t *candidate = find(candidates, from, packet);
    if (!candidate) {
        candidate = free_entry(candidates, packet->ns);
        if (candidate) {
            pj_sockaddr_cp(&candidate->address, from);
            begin(candidate, packet);
        }
        return false;
    }
    count(candidate, packet);
    *before = candidate->in_order + candidate->out_of_order;
    int64_t lasted_ns = packet->ns - candidate->since_ns;
    if (lasted_ns < PROBATION_NS)
        return false;
    if (!has_rtp_pacing(candidate)) {
        begin(candidate, packet);
        return false;
    }
    return lasted_ns >= MAX_PROBATION_NS || !has_better_rival(candidates, candidate, packet->ns);
}
