/* DTMF by SIP INFO. */
#ifndef TRUNKLINE_SIP_DTMF_INFO_H
#define TRUNKLINE_SIP_DTMF_INFO_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* True for `application/dtmf` and `application/dtmf-relay`. */
bool dtmf_info_is_dtmf(const pjsip_msg_body *body);

/* Rewrites the body of an INFO in the one way that PJSUA reads. Phones send `application/dtmf` with nothing but the key,
 * `application/dtmf-relay` with or without a duration, and *, # and letters as the numbers of their RFC 4733 events. Any
 * other body is rewritten as no key: PJSUA would take the 1 of "123" for a key. */
void dtmf_info_normalize(pjsip_rx_data *rdata);

#endif
