#include "rtp_lock.h"

#include <string.h>

bool rtp_same_host(const pj_sockaddr *a, const pj_sockaddr *b)
{
    return a->addr.sa_family && a->addr.sa_family == b->addr.sa_family &&
           memcmp(pj_sockaddr_get_addr(a), pj_sockaddr_get_addr(b), pj_sockaddr_get_addr_len(a)) == 0;
}

static bool same_place(const pj_sockaddr *a, const pj_sockaddr *b)
{
    return rtp_same_host(a, b) && pj_sockaddr_get_port(a) == pj_sockaddr_get_port(b);
}

static enum rtp_verdict settle(rtp_lock_t *lock, enum rtp_lock_state state, const pj_sockaddr *from, uint32_t ssrc)
{
    lock->state = state;
    pj_sockaddr_cp(&lock->source, from);
    lock->ssrc = ssrc;
    lock->next_since_ns = 0;
    return RTP_TAKE_NEW_SOURCE;
}

static enum rtp_verdict judge_ssrc(rtp_lock_t *lock, uint32_t ssrc, int64_t now_ns)
{
    if (ssrc == lock->ssrc) {
        if (lock->next_since_ns) {
            lock->interrupted++;
            lock->next_since_ns = now_ns;
        }
        return RTP_TAKE;
    }
    if (!lock->next_since_ns || ssrc != lock->next_ssrc) {
        lock->next_ssrc = ssrc;
        lock->next_since_ns = now_ns;
        lock->interrupted = 0;
    }
    if (now_ns - lock->next_since_ns < (lock->interrupted < RIVAL_PACKETS ? SSRC_SILENCE_NS : RIVAL_SILENCE_NS))
        return RTP_DROP;
    lock->ssrc = ssrc;
    lock->next_since_ns = 0;
    return RTP_TAKE;
}

static enum rtp_verdict judge_candidate(rtp_lock_t *lock, const pj_sockaddr *from, uint32_t ssrc, int64_t now_ns)
{
    bool silent = now_ns - lock->candidate_heard_ns > CANDIDATE_GAP_NS || !lock->candidate.addr.sa_family;
    bool known = same_place(from, &lock->candidate) && ssrc == lock->candidate_ssrc;
    if (!known && !silent)
        return RTP_DROP;
    if (silent) {
        pj_sockaddr_cp(&lock->candidate, from);
        lock->candidate_ssrc = ssrc;
        lock->candidate_since_ns = now_ns;
    }
    lock->candidate_heard_ns = now_ns;
    if (now_ns - lock->candidate_since_ns < PROBATION_NS)
        return RTP_DROP;
    return settle(lock, RTP_LOCK_PROBED, from, ssrc);
}

void rtp_lock_open(rtp_lock_t *lock, const pj_sockaddr *announced, const pj_sockaddr *announced_rtcp)
{
    if (!same_place(announced, &lock->announced))
        pj_bzero(&lock->source, sizeof lock->source);
    lock->state = RTP_LOCK_OPEN;
    pj_sockaddr_cp(&lock->announced, announced);
    pj_sockaddr_cp(&lock->announced_rtcp, announced_rtcp);
    pj_bzero(&lock->candidate, sizeof lock->candidate);
    lock->rtcp_settled = false;
}

enum rtp_verdict rtp_lock_judge(rtp_lock_t *lock, const pj_sockaddr *from, uint32_t ssrc, int64_t now_ns)
{
    bool settled = lock->state != RTP_LOCK_OPEN, as_before = same_place(from, &lock->source);
    if (settled && as_before)
        return judge_ssrc(lock, ssrc, now_ns);
    if (same_place(from, &lock->announced))
        return settle(lock, RTP_LOCK_ANNOUNCED, from, ssrc);
    if (settled)
        return RTP_DROP;
    if (as_before)
        return settle(lock, RTP_LOCK_PROBED, from, ssrc);
    if (rtp_same_host(from, &lock->announced) || rtp_same_host(from, &lock->signalling))
        return judge_candidate(lock, from, ssrc, now_ns);
    return RTP_DROP;
}

enum rtp_verdict rtp_lock_judge_rtcp(rtp_lock_t *lock, const pj_sockaddr *from, uint32_t ssrc)
{
    bool announced = same_place(from, &lock->announced_rtcp);
    bool of_source = lock->state != RTP_LOCK_OPEN && ssrc == lock->ssrc && rtp_same_host(from, &lock->source);
    if (lock->rtcp_settled && same_place(from, &lock->rtcp_source))
        return announced || of_source ? RTP_TAKE : RTP_DROP;
    if (!announced && (lock->rtcp_settled || !of_source))
        return RTP_DROP;
    lock->rtcp_settled = true;
    pj_sockaddr_cp(&lock->rtcp_source, from);
    return RTP_TAKE_NEW_SOURCE;
}
