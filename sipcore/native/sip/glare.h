/* Requests of ours that crossed one of the peer's (RFC 3261 14.1). */
#ifndef TRUNKLINE_SIP_GLARE_H
#define TRUNKLINE_SIP_GLARE_H

#include <pjsua-lib/pjsua.h>

void glare_install(void);
/* Look at a response before PJSIP does, which would not try again: a refresh that got 491 would be the last of its call. */
void glare_on_response(const pjsip_rx_data *rdata);

#endif
