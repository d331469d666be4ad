/* Whose RTP is heard in a call: a state machine without sockets or clocks.
 *
 *   OPEN      nothing has been taken yet. A packet from the announced place (the SDP's address and port) settles it. One
 *             from another port of that address, or of the address that SIP comes from, is on probation: it settles it
 *             when packets have kept coming for PROBATION_NS and nothing came from the announced place meanwhile.
 *   PROBED    settled by probation: the announced place, should it speak at last, still takes over.
 *   ANNOUNCED settled on the announced place.
 *
 * A settled lock takes packets of its source and SSRC only. Another SSRC of that source (a PBX that connects two callers
 * changes it) takes its place when it has come for SSRC_SILENCE_NS while the first was silent. One that has come between
 * the first one's packets is no successor: it must wait for RIVAL_SILENCE_NS. An offer or answer that changes the media
 * opens the lock. */
#ifndef TRUNKLINE_RTP_LOCK_H
#define TRUNKLINE_RTP_LOCK_H

#include <pjlib.h>
#include <stdbool.h>
#include <stdint.h>

#define PROBATION_NS 400000000LL
#define SSRC_SILENCE_NS 200000000LL
#define RIVAL_SILENCE_NS 2000000000LL
#define RIVAL_PACKETS 3     /* of the first one, in between; fewer may have come out of order */
#define CANDIDATE_GAP_NS 200000000LL /* a candidate that is silent for longer begins its probation anew */

enum rtp_lock_state { RTP_LOCK_OPEN, RTP_LOCK_PROBED, RTP_LOCK_ANNOUNCED };
enum rtp_verdict { RTP_DROP, RTP_TAKE, RTP_TAKE_NEW_SOURCE };

typedef struct rtp_lock {
    enum rtp_lock_state state;
    pj_sockaddr announced, announced_rtcp; /* no family: none */
    pj_sockaddr signalling;                /* where the peer's SIP comes from; its port says nothing */
    pj_sockaddr source;                    /* of a settled lock; of an open one, what was settled before */
    uint32_t ssrc;
    uint32_t next_ssrc;                    /* that wants to take its place */
    int64_t next_since_ns;                 /* since when it has come alone; 0: there is none */
    int interrupted;                       /* how many packets of `ssrc` have come since it appeared */
    pj_sockaddr candidate;
    uint32_t candidate_ssrc;
    int64_t candidate_since_ns, candidate_heard_ns;
    bool rtcp_settled;
    pj_sockaddr rtcp_source;
} rtp_lock_t;

/* An offer and answer name these places. What was settled before is trusted at once when they are the same as before. */
void rtp_lock_open(rtp_lock_t *lock, const pj_sockaddr *announced, const pj_sockaddr *announced_rtcp);
enum rtp_verdict rtp_lock_judge(rtp_lock_t *lock, const pj_sockaddr *from, uint32_t ssrc, int64_t now_ns);
/* `ssrc`: of the packet's sender (RFC 3550, 6.4). */
enum rtp_verdict rtp_lock_judge_rtcp(rtp_lock_t *lock, const pj_sockaddr *from, uint32_t ssrc);
bool rtp_same_host(const pj_sockaddr *a, const pj_sockaddr *b);

#endif
