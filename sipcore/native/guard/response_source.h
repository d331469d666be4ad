/* Source check of responses. */
#ifndef TRUNKLINE_GUARD_RESPONSE_SOURCE_H
#define TRUNKLINE_GUARD_RESPONSE_SOURCE_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* True if the response belongs to a request that this endpoint sent (RFC 3261 17.1.3), or is a retransmitted 200 of a
 * dialog. */
bool response_matches_request(pjsip_rx_data *rdata);
/* True if the response comes from the address that the request went to, or over a connection that this endpoint opened.
 * The branch proves nothing: other hosts may have seen the request. */
bool response_is_from_target(pjsip_rx_data *rdata);

#endif
