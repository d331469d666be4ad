/* Responses to what we have asked: whose they are. */
#ifndef TRUNKLINE_GUARD_RESPONSE_SOURCE_H
#define TRUNKLINE_GUARD_RESPONSE_SOURCE_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* It belongs to a request of ours (RFC 3261 17.1.3), or is the repeated 200 of a dialog. */
bool response_matches_request(pjsip_rx_data *rdata);
/* It comes from where the request went, or by a connection that we have opened. Who else knows the branch of a request has
 * seen it on its way, and is not the one who was asked. */
bool response_is_from_target(pjsip_rx_data *rdata);

#endif
