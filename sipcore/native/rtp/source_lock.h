/* Whose RTP is heard in a call: a state machine without sockets or clocks.
 *
 *   OPEN      nothing has been taken yet. A packet from the announced place (the SDP's address and port) settles it. Those
 *             from other ports of that address, or of the address that SIP comes from, are candidates on probation: the
 *             best of them settles it, unless something came from the announced place meanwhile.
 *   PROBED    settled by probation: the announced place, should it speak at last, still takes over.
 *   ANNOUNCED settled on the announced place.
 *
 * A probation takes PROBATION_NS, in which packets must come as RTP comes: numbered one after the other, 10 to 100 ms
 * apart. Of several candidates the one with the most packets wins: neighbours behind one public address cannot be told
 * apart in any other way.
 *
 * A settled lock takes packets of its source and SSRC only. Another SSRC of that source (a PBX that connects two callers
 * changes it) takes its place when it has come for SSRC_SILENCE_NS while the first was silent. One that has come between
 * the first one's packets is no successor: it must wait for RIVAL_SILENCE_NS.
 *
 * A source that has been silent for SOURCE_SILENCE_NS may have moved to another port (a translator's new binding, a PBX
 * that says nothing of it): another place of its host is taken at once when it goes on with the same SSRC, else on
 * probation. Should the source speak again, it comes back unless the new one has been heard for longer than it.
 *
 * An offer or answer that changes the media opens the lock; what was settled before is still trusted when it announces
 * the same place. While the peer holds the call, no RTP need come from it, so there are no candidates; afterwards all is
 * as it was before. */
#ifndef TRUNKLINE_RTP_SOURCE_LOCK_H
#define TRUNKLINE_RTP_SOURCE_LOCK_H

#include "rtp/source_probation.h"

#include <pjlib.h>
#include <stdbool.h>
#include <stdint.h>

#define SSRC_SILENCE_NS 200000000LL
#define RIVAL_SILENCE_NS 2000000000LL
#define RIVAL_PACKETS 3     /* of the first one, in between; fewer may have come out of order */
#define SOURCE_SILENCE_NS 1000000000LL

enum source_lock_state { SOURCE_LOCK_OPEN, SOURCE_LOCK_PROBED, SOURCE_LOCK_ANNOUNCED };
enum rtp_verdict { RTP_DROP, RTP_TAKE, RTP_TAKE_NEW_SOURCE };

typedef struct source_lock {
    enum source_lock_state state;
    bool held;
    pj_sockaddr announced, announced_rtcp; /* no family: none */
    pj_sockaddr signalling;                /* where the peer's SIP comes from; its port says nothing */
    pj_sockaddr source;                    /* of a settled lock; of an open one, what was settled before */
    uint32_t ssrc;
    int64_t settled_ns, heard_ns;          /* of the source; an open lock's counts as heard when it was opened */
    pj_sockaddr former;                    /* had fallen silent when the source was let in */
    uint32_t former_ssrc;
    int64_t former_heard_ns;               /* for how long */
    pj_sockaddr talk_announced, talk_source; /* before the call was held */
    uint32_t next_ssrc;                    /* that wants to take its place */
    int64_t next_since_ns;                 /* since when it has come alone; 0: there is none */
    int next_dropped;                      /* how many packets of it have been dropped */
    int reclassified;                          /* packets that were dropped and turned out to be the peer's */
    int interrupted;                       /* how many packets of `ssrc` have come since it appeared */
    source_candidate_t candidates[MAX_CANDIDATES];
    bool rtcp_settled;
    pj_sockaddr rtcp_source;
} source_lock_t;

/* An offer and answer name these places. `held`: by them, the peer need not send RTP. */
void source_lock_open(source_lock_t *lock, const pj_sockaddr *announced, const pj_sockaddr *announced_rtcp, bool held,
                      int64_t now_ns);
enum rtp_verdict source_lock_judge(source_lock_t *lock, const pj_sockaddr *from, const rtp_arrival_t *packet);
/* How many packets that were dropped turned out to be the peer's since the last call: those of a probation that has been
 * passed, and the first ones of a new SSRC. */
int source_lock_take_reclassified(source_lock_t *lock);
/* Nothing has been taken yet, and what comes from there may be. */
bool source_lock_may_be_peer(const source_lock_t *lock, const pj_sockaddr *from);
/* `ssrc`: of the packet's sender (RFC 3550, 6.4). */
enum rtp_verdict source_lock_judge_rtcp(source_lock_t *lock, const pj_sockaddr *from, uint32_t ssrc);
/* Where the peer is. */
void source_lock_targets(const source_lock_t *lock, pj_sockaddr *rtp, pj_sockaddr *rtcp);

#endif
