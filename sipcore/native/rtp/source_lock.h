/* RTP source lock: the one source whose packets a call accepts ("latching", RFC 7362; "strict RTP" in Asterisk). A state
 * machine without sockets or clocks.
 *
 *   OPEN      no source yet. A packet from the announced address (the SDP's address and port) settles the lock. Packets
 *             from other ports of that host, or of the host that SIP comes from, are candidates on probation: the best of
 *             them settles it, unless a packet came from the announced address meanwhile.
 *   PROBED    settled by probation: the announced address still takes over, once a packet comes from it.
 *   ANNOUNCED settled on the announced address.
 *
 * A probation takes PROBATION_NS, in which packets must have the pace of RTP: consecutive sequence numbers, 10 to 100 ms
 * apart. Of several candidates the one with the most packets wins: several phones behind one public address cannot be
 * distinguished in any other way.
 *
 * A settled lock accepts packets of its source and SSRC only. Another SSRC of that source (a PBX that connects two callers
 * changes it) replaces the first when it has come for SSRC_SILENCE_NS while the first was silent. An SSRC whose packets
 * came between those of the first is no successor: it must wait for RIVAL_SILENCE_NS.
 *
 * A source that has been silent for SOURCE_SILENCE_NS may have moved to another port (a new NAT binding, a PBX that does
 * not signal it): another port of its host is accepted at once when it continues the same SSRC, else on probation. If the
 * former source sends again, it comes back, unless the new one has been received for longer.
 *
 * An offer or answer that changes the media opens the lock; what was settled before is still trusted when it announces the
 * same address. While the peer holds the call, no RTP need come from it, so there are no candidates; afterwards the former
 * state is restored. */
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
enum rtp_verdict { RTP_DROP, RTP_ACCEPT, RTP_ACCEPT_NEW_SOURCE };

typedef struct source_lock {
    enum source_lock_state state;
    bool held;
    pj_sockaddr announced, announced_rtcp;      /* no family: none */
    pj_sockaddr signalling;                     /* the address that the peer's SIP comes from; its port is not compared */
    pj_sockaddr source;                         /* of a settled lock; of an open lock, the source before */
    uint32_t ssrc;
    int64_t settled_ns, last_packet_ns;         /* of the source; of an open lock: when it was opened */
    pj_sockaddr former;                         /* source that had fallen silent when the present one was accepted */
    uint32_t former_ssrc;
    int64_t former_received_ns;                    /* for how long */
    pj_sockaddr announced_before_hold, source_before_hold;    /* values from before the hold */
    uint32_t next_ssrc;                         /* another SSRC that may replace `ssrc` */
    int64_t next_since_ns;                      /* since when it has come without `ssrc` in between; 0: none */
    int next_dropped;                           /* packets of it that have been dropped */
    int reclassified;                           /* dropped packets that turned out to be the peer's */
    int interrupted;                            /* packets of `ssrc` since it appeared */
    source_candidate_t candidates[MAX_CANDIDATES];
    bool rtcp_settled;
    pj_sockaddr rtcp_source;
} source_lock_t;

/* An offer and answer have announced these addresses. `held`: by them, the peer need not send RTP. */
void source_lock_open(source_lock_t *lock, const pj_sockaddr *announced, const pj_sockaddr *announced_rtcp, bool held,
                      int64_t now_ns);
enum rtp_verdict source_lock_on_rtp(source_lock_t *lock, const pj_sockaddr *from, const rtp_arrival_t *packet);
/* Number of dropped packets that turned out to be the peer's since the last call: those of a passed probation, and the first
 * ones of a new SSRC. */
int source_lock_take_reclassified(source_lock_t *lock);
/* True if the lock is open, and a source at this host could settle it. */
bool source_lock_may_be_peer(const source_lock_t *lock, const pj_sockaddr *from);
/* `ssrc`: of the packet's sender (RFC 3550, 6.4). */
enum rtp_verdict source_lock_on_rtcp(source_lock_t *lock, const pj_sockaddr *from, uint32_t ssrc);
/* Addresses to send to. */
void source_lock_targets(const source_lock_t *lock, pj_sockaddr *rtp, pj_sockaddr *rtcp);

#endif
