/* Reason headers (RFC 3326) of the peer's BYE, CANCEL or final response. */
#ifndef TRUNKLINE_SIP_REASON_HEADER_H
#define TRUNKLINE_SIP_REASON_HEADER_H

#include <pjsua-lib/pjsua.h>

#define REASON_HEADER_SIZE 256

/* Hooks the callbacks that see these messages, and calls those of pjsua2 from them. */
void reason_header_hook(pjsua_callback *callback);
/* Moves the peer's Reason of this call into `text`; "" for none. */
void reason_header_take(pjsua_call_id call, char text[REASON_HEADER_SIZE]);

#endif
