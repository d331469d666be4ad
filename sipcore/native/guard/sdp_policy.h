/* SDP policy: an SDP is accepted if all its addresses may receive media. */
#ifndef TRUNKLINE_GUARD_SDP_POLICY_H
#define TRUNKLINE_GUARD_SDP_POLICY_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

/* True if the message has no SDP, or one that is accepted. Counts forbidden and unlisted addresses. */
bool sdp_policy_accept(pjsip_rx_data *rdata);
/* Responds with 488 to a request whose SDP is not accepted, with the reason in a Warning (RFC 3261 20.43). */
void sdp_policy_reject(pjsip_rx_data *request);
/* Removes the SDP from an ACK or a response, which cannot be rejected. */
void sdp_policy_strip(pjsip_rx_data *rdata);

#endif
