/* Places that want to be a call's source of RTP, on probation: each is judged by its own packets. */
#ifndef TRUNKLINE_RTP_SOURCE_PROBATION_H
#define TRUNKLINE_RTP_SOURCE_PROBATION_H

#include "rtp/source_lock.h"

/* Count a packet of a candidate; whether it has passed its probation by it, and no better one is about to. `before`: how many
 * packets of its probation came before this one. */
bool rtp_candidates_passed(rtp_candidate_t *candidates, const pj_sockaddr *from, const rtp_arrival_t *packet, int *before);

#endif
