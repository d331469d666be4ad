/* REFER within a call (RFC 3515): the other side wants us to go on with somebody else. */
#ifndef TRUNKLINE_REFER_H
#define TRUNKLINE_REFER_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Keep pjsua2's callback for REFER; PJSUA itself, which would call whomever it is told to, refuses every one. */
void refer_hook(pjsua_callback *callback);
/* Answer a new REFER of a live call with what Python says of it. False: it is none. */
bool refer_answers(pjsip_rx_data *rdata);

#endif
