/* REFER within a call (RFC 3515): the peer asks this endpoint to call another party. */
#ifndef TRUNKLINE_SIP_REFER_H
#define TRUNKLINE_SIP_REFER_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Stores pjsua2's callback for REFER, and makes PJSUA itself, which would call any target, decline each one. */
void refer_hook(pjsua_callback *callback);
/* Responds to a new REFER of a live call with the status that Python returns, at once or, after 100, by `refer_respond`.
 * False for any other request. */
bool refer_handle_request(pjsip_rx_data *rdata);
/* Sends the final status of the call's REFER with this CSeq number, unless it has been sent. */
void refer_respond(pjsua_call_id call, int cseq, int code);
/* Responds with 503 to the pending requests. */
void refer_drop_pending(void);

#endif
