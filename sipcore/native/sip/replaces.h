/* INVITE with Replaces (RFC 3891): a new call replaces an established one, and takes over its audio. */
#ifndef TRUNKLINE_SIP_REPLACES_H
#define TRUNKLINE_SIP_REPLACES_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Hooks `on_call_replaced`: the slot moves to the new call before pjsua2's callback runs. */
void replaces_hook(pjsua_callback *callback);
/* True if a request has a Replaces header. */
bool replaces_is_requested(const pjsip_rx_data *rdata);

#endif
