/* Which SDP of a peer is taken: its addresses must be such that sound may go there. */
#ifndef TRUNKLINE_GUARD_SDP_POLICY_H
#define TRUNKLINE_GUARD_SDP_POLICY_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

/* Whether the message has no SDP, or one that may be taken; notes what else there is to say of it. */
bool sdp_policy_accept(pjsip_rx_data *rdata);
/* 488 to a request whose SDP is not taken, with a Warning that says why (RFC 3261 20.43). */
void sdp_policy_reject(pjsip_rx_data *request);
/* Too late to refuse it: go on as if it had not been sent. */
void sdp_policy_strip(pjsip_rx_data *rdata);

#endif
