/* An INVITE with Replaces (RFC 3891) puts a new call into the place of one that goes on: its sound goes on too. */
#ifndef TRUNKLINE_SIP_REPLACES_H
#define TRUNKLINE_SIP_REPLACES_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Let sound follow before pjsua2 hears that a call was replaced. */
void replaces_hook(pjsua_callback *callback);
/* Whether a request asks for it. */
bool replaces_is_requested(const pjsip_rx_data *rdata);

#endif
