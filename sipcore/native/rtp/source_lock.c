#include "rtp/source_lock.h"

/* The RTCP source is unsettled, too, when the RTP source has moved. */
static enum rtp_verdict settle(source_lock_t *lock, enum source_lock_state state, const pj_sockaddr *from,
                               const rtp_arrival_t *packet)
{
    if (lock->state != SOURCE_LOCK_OPEN && !rtp_same_address(from, &lock->source))
        lock->rtcp_settled = false;
    lock->state = state;
    pj_sockaddr_cp(&lock->source, from);
    lock->ssrc = packet->ssrc;
    lock->settled_ns = lock->last_packet_ns = packet->ns;
    lock->next_since_ns = 0;
    pj_bzero(&lock->former, sizeof lock->former);
    pj_bzero(lock->candidates, sizeof lock->candidates);
    return RTP_ACCEPT_NEW_SOURCE;
}

static enum rtp_verdict on_packet_of_source(source_lock_t *lock, uint32_t ssrc, int64_t now_ns)
{
    if (ssrc == lock->ssrc) {
        if (lock->next_since_ns) {
            lock->interrupted++;
            lock->next_since_ns = now_ns;
        }
        return RTP_ACCEPT;
    }
    if (!lock->next_since_ns || ssrc != lock->next_ssrc) {
        lock->next_ssrc = ssrc;
        lock->next_since_ns = now_ns;
        lock->interrupted = lock->next_dropped = 0;
    }
    if (now_ns - lock->next_since_ns < (lock->interrupted < RIVAL_PACKETS ? SSRC_SILENCE_NS : RIVAL_SILENCE_NS)) {
        lock->next_dropped++;
        return RTP_DROP;
    }
    lock->reclassified += lock->next_dropped;
    lock->ssrc = ssrc;
    lock->next_since_ns = 0;
    return RTP_ACCEPT;
}

static bool is_former(const source_lock_t *lock, const pj_sockaddr *from, const rtp_arrival_t *packet)
{
    return rtp_same_address(from, &lock->former) && packet->ssrc == lock->former_ssrc &&
           lock->former_received_ns > packet->ns - lock->settled_ns;
}

/* True if this address may become a candidate. */
static bool may_be_candidate(const source_lock_t *lock, const pj_sockaddr *from, int64_t now_ns)
{
    const bool has_source = lock->source.addr.sa_family != 0;
    if (lock->held || (has_source && now_ns - lock->last_packet_ns < SOURCE_SILENCE_NS))
        return false;
    if (source_lock_may_be_peer(lock, from))
        return true;
    return has_source && rtp_same_host(from, &lock->source);
}

static enum rtp_verdict on_packet_of_candidate(source_lock_t *lock, const pj_sockaddr *from, const rtp_arrival_t *packet)
{
    const bool has_source = lock->source.addr.sa_family != 0;
    if (has_source && packet->ssrc == lock->ssrc)
        return settle(lock, SOURCE_LOCK_PROBED, from, packet);
    int dropped = 0;
    if (!source_probation_count(lock->candidates, from, packet, &dropped))
        return RTP_DROP;
    lock->reclassified += dropped;
    const source_lock_t before = *lock;
    settle(lock, SOURCE_LOCK_PROBED, from, packet);
    if (has_source) {
        pj_sockaddr_cp(&lock->former, &before.source);
        lock->former_ssrc = before.ssrc;
        lock->former_received_ns = before.last_packet_ns - before.settled_ns;
    }
    return RTP_ACCEPT_NEW_SOURCE;
}

/* The state before a hold is restored when the peer resumes the call, whatever came meanwhile. Assigned, because
 * pj_sockaddr_cp copies nothing of an address without a family. */
static void set_held(source_lock_t *lock, bool held)
{
    if (held && !lock->held) {
        lock->announced_before_hold = lock->announced;
        lock->source_before_hold = lock->source;
    } else if (lock->held && !held) {
        lock->announced = lock->announced_before_hold;
        lock->source = lock->source_before_hold;
    }
    lock->held = held;
}

void source_lock_open(source_lock_t *lock, const pj_sockaddr *announced, const pj_sockaddr *announced_rtcp, bool held,
                      int64_t now_ns)
{
    set_held(lock, held);
    if (!rtp_same_address(announced, &lock->announced))
        pj_bzero(&lock->source, sizeof lock->source);
    lock->state = SOURCE_LOCK_OPEN;
    lock->last_packet_ns = now_ns;
    pj_sockaddr_cp(&lock->announced, announced);
    pj_sockaddr_cp(&lock->announced_rtcp, announced_rtcp);
    pj_bzero(&lock->former, sizeof lock->former);
    pj_bzero(lock->candidates, sizeof lock->candidates);
    lock->rtcp_settled = false;
}

enum rtp_verdict source_lock_on_rtp(source_lock_t *lock, const pj_sockaddr *from, const rtp_arrival_t *packet)
{
    const bool settled = lock->state != SOURCE_LOCK_OPEN, as_before = rtp_same_address(from, &lock->source);
    if (settled && as_before) {
        lock->last_packet_ns = packet->ns;
        return on_packet_of_source(lock, packet->ssrc, packet->ns);
    }
    if (rtp_same_address(from, &lock->announced))
        return settle(lock, SOURCE_LOCK_ANNOUNCED, from, packet);
    if (as_before || is_former(lock, from, packet))
        return settle(lock, SOURCE_LOCK_PROBED, from, packet);
    return may_be_candidate(lock, from, packet->ns) ? on_packet_of_candidate(lock, from, packet) : RTP_DROP;
}

int source_lock_take_reclassified(source_lock_t *lock)
{
    int reclassified = lock->reclassified;
    lock->reclassified = 0;
    return reclassified;
}

bool source_lock_may_be_peer(const source_lock_t *lock, const pj_sockaddr *from)
{
    return lock->state == SOURCE_LOCK_OPEN && (rtp_same_host(from, &lock->announced) || rtp_same_host(from, &lock->signalling));
}

enum rtp_verdict source_lock_on_rtcp(source_lock_t *lock, const pj_sockaddr *from, uint32_t ssrc)
{
    bool announced = rtp_same_address(from, &lock->announced_rtcp);
    bool of_source = lock->state != SOURCE_LOCK_OPEN && ssrc == lock->ssrc && rtp_same_host(from, &lock->source);
    if (lock->rtcp_settled && rtp_same_address(from, &lock->rtcp_source))
        return announced || of_source ? RTP_ACCEPT : RTP_DROP;
    if (!announced && (lock->rtcp_settled || !of_source))
        return RTP_DROP;
    lock->rtcp_settled = true;
    pj_sockaddr_cp(&lock->rtcp_source, from);
    return RTP_ACCEPT_NEW_SOURCE;
}

/* Before any RTCP packet, RTCP goes to the port after RTP's (RFC 3550, 11), unless both share one (RFC 5761). */
void source_lock_targets(const source_lock_t *lock, pj_sockaddr *rtp, pj_sockaddr *rtcp)
{
    const bool shared = pj_sockaddr_cmp(&lock->announced, &lock->announced_rtcp) == 0;
    pj_sockaddr_cp(rtp, lock->state == SOURCE_LOCK_PROBED ? &lock->source : &lock->announced);
    pj_sockaddr_cp(rtcp, lock->rtcp_settled ? &lock->rtcp_source : &lock->announced_rtcp);
    if (lock->rtcp_settled || lock->state != SOURCE_LOCK_PROBED)
        return;
    pj_sockaddr_cp(rtcp, rtp);
    if (!shared)
        pj_sockaddr_set_port(rtcp, (pj_uint16_t)(pj_sockaddr_get_port(rtp) + 1));
}
