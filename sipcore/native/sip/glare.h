/* Glare: our re-INVITE or UPDATE crossed one of the peer's and got 491 (RFC 3261 14.1). */
#ifndef TRUNKLINE_SIP_GLARE_H
#define TRUNKLINE_SIP_GLARE_H

#include <pjsua-lib/pjsua.h>

void glare_install(void);
/* To be called for each response before PJSIP sees it. PJSIP does not retry: a session refresh that got 491 would be the last
 * of its call. The 491 of an UPDATE that will be sent again becomes a 606 for PJSIP. */
void glare_on_response(pjsip_rx_data *rdata);

#endif
