#include "rtp/source_probation.h"

#include <string.h>

#define SHORTEST_NS 8000000LL   /* between packets, on average: 10 ms of sound, and clocks that go fast */
#define LONGEST_NS 100000000LL  /* 60 ms of sound, and some loss */
#define STEP_MOST 50            /* sequence numbers that the network may lose at a time */
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

static bool is_live(const source_candidate_t *one, int64_t now_ns)
{
    return one->address.addr.sa_family && now_ns - one->heard_ns <= CANDIDATE_GAP_NS;
}

static void begin(source_candidate_t *one, const rtp_arrival_t *packet)
{
    one->ssrc = packet->ssrc;
    one->sequence = packet->sequence;
    one->in_order = one->out_of_order = one->missing = 0;
    one->since_ns = one->heard_ns = packet->ns;
}

/* No flood, and no noise. */
static bool is_like_rtp(const source_candidate_t *one)
{
    int64_t lasted_ns = one->heard_ns - one->since_ns;
    return one->in_order * SHORTEST_NS <= lasted_ns && one->in_order * LONGEST_NS >= lasted_ns &&
           one->missing <= one->in_order && 2 * one->out_of_order <= one->in_order;
}

static bool sends_more(const source_candidate_t *a, const source_candidate_t *b)
{
    return a->in_order * (b->heard_ns - b->since_ns) > b->in_order * (a->heard_ns - a->since_ns);
}

/* An entry for a new candidate: a free one, else that of a candidate that sends no RTP. NULL for none. */
static source_candidate_t *free_entry(source_candidate_t *candidates, int64_t now_ns)
{
    source_candidate_t *found = NULL;
    for (int i = 0; i < MAX_CANDIDATES; i++) {
        if (!is_live(&candidates[i], now_ns))
            return &candidates[i];
        if (candidates[i].in_order + candidates[i].out_of_order > 0 && !is_like_rtp(&candidates[i]))
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

static void count(source_candidate_t *one, const rtp_arrival_t *packet)
{
    uint16_t step = (uint16_t)(packet->sequence - one->sequence);
    one->heard_ns = packet->ns;
    if (step == 0 || step > STEP_MOST) {
        one->out_of_order++;
        if (step < 0x8000) /* else it is late */
            one->sequence = packet->sequence;
        return;
    }
    one->in_order++;
    one->missing += step - 1;
    one->sequence = packet->sequence;
}

static bool has_better_rival(const source_candidate_t *candidates, const source_candidate_t *one, int64_t now_ns)
{
    for (int i = 0; i < MAX_CANDIDATES; i++) {
        const source_candidate_t *rival = &candidates[i];
        if (rival != one && is_live(rival, now_ns) && rival->in_order >= RIVAL_MIN_PACKETS && is_like_rtp(rival) &&
            sends_more(rival, one))
            return true;
    }
    return false;
}

bool source_probation_passed(source_candidate_t *candidates, const pj_sockaddr *from, const rtp_arrival_t *packet, int *before)
{
    source_candidate_t *one = find(candidates, from, packet);
    if (!one) {
        one = free_entry(candidates, packet->ns);
        if (one) {
            pj_sockaddr_cp(&one->address, from);
            begin(one, packet);
        }
        return false;
    }
    count(one, packet);
    *before = one->in_order + one->out_of_order;
    int64_t lasted_ns = packet->ns - one->since_ns;
    if (lasted_ns < PROBATION_NS)
        return false;
    if (!is_like_rtp(one)) {
        begin(one, packet);
        return false;
    }
    return lasted_ns >= PROBATION_MOST_NS || !has_better_rival(candidates, one, packet->ns);
}
