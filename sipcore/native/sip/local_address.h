/* Which address of ours a peer is told in Via, Contact and SDP: the one on the route to it, or behind an address translator
 * the public one. */
#ifndef TRUNKLINE_SIP_LOCAL_ADDRESS_H
#define TRUNKLINE_SIP_LOCAL_ADDRESS_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

#include "net/ip_set.h"

int local_address_install(void);
void local_address_remove(void);
/* `bound`: the only address that we listen on, "" for every one. `public_address`: what peers outside `local` are told, ""
 * for none. Takes over `local`. */
void local_address_set(const char *bound, const char *public_address, ip_set_t *local);
/* False when there is no route to it, or its version of IP is not ours. */
bool local_address_towards(const pj_sockaddr *peer, pj_sockaddr *ours);
/* Name the address that the peer is told (PJSUA's callback `on_call_sdp_created`). */
void local_address_on_sdp_created(pjsua_call_id call, pjmedia_sdp_session *sdp, pj_pool_t *pool, const pjmedia_sdp_session *remote);

/* The accounts whose sound goes over IPv4 and IPv6, PJSUA_INVALID_ID for none. */
void local_address_set_accounts(pjsua_acc_id v4, pjsua_acc_id v6);
/* PJSUA's choice stands if that account's sound goes over the version of IP that the offer names. */
void local_address_choose_account(const pjsip_rx_data *rdata, pjsua_acc_id *account);
/* Whether sound can go to where an SDP wants it. */
bool local_address_has_version_of(const pjmedia_sdp_session *sdp);

#endif
