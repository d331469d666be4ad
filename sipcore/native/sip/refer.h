/* REFER within a call (RFC 3515): the other side wants us to go on with somebody else. */
#ifndef TRUNKLINE_SIP_REFER_H
#define TRUNKLINE_SIP_REFER_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Keep pjsua2's callback for REFER; PJSUA itself, which would call whomever it is told to, refuses every one. */
void refer_hook(pjsua_callback *callback);
/* Answer a new REFER of a live call with what Python says of it, at once or, after 100, by `refer_respond`. False: it is
 * none. */
bool refer_handle_request(pjsip_rx_data *rdata);
/* The final status of a call's REFER with this number in CSeq; nothing when it has one. */
void refer_respond(pjsua_call_id call, int cseq, int code);
/* Nobody will answer those that are left. */
void refer_drop_pending(void);

#endif
