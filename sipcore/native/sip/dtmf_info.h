/* Keys that come by SIP INFO. */
#ifndef TRUNKLINE_SIP_DTMF_INFO_H
#define TRUNKLINE_SIP_DTMF_INFO_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* `application/dtmf` or `application/dtmf-relay`. */
bool dtmf_info_is_dtmf(const pjsip_msg_body *body);

/* Phones write a key in several ways: `application/dtmf` with nothing but the key, `application/dtmf-relay` with or
 * without a duration, * and # and the letters as the numbers of their RFC 4733 events. Write it in the one way that
 * PJSUA reads; it would take the 1 of "123" for a key, so what is no key is written as none. */
void dtmf_info_normalize(pjsip_rx_data *rdata);

#endif
