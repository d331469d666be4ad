/* Why the peer ended a call: the Reason headers (RFC 3326) of its BYE, its CANCEL or its refusal. */
#ifndef TRUNKLINE_SIP_REASON_HEADER_H
#define TRUNKLINE_SIP_REASON_HEADER_H

#include <pjsua-lib/pjsua.h>

#define REASON_HEADER_SIZE 256

/* Take over the callbacks that see these messages, those of pjsua2 included. */
void reason_header_hook(pjsua_callback *callback);
/* What the peer gave for this call, "" when nothing; it is forgotten then. */
void reason_header_take(pjsua_call_id call, char text[REASON_HEADER_SIZE]);

#endif
