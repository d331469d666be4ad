/* Local address in Via, Contact and SDP: the one on the route to the peer, or the public one behind NAT. */
#ifndef TRUNKLINE_SIP_LOCAL_ADDRESS_H
#define TRUNKLINE_SIP_LOCAL_ADDRESS_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

#include "net/ip_set.h"

int local_address_install(void);
void local_address_remove(void);
/* `bound`: the only address that we listen on, "" for all. `public_address`: the address for peers outside of `local`, "" for
 * none. Takes ownership of `local`. */
void local_address_set(const char *bound, const char *public_address, ip_set_t *local);
/* False without a route to the peer, or if we have no address of its IP version. */
bool local_address_towards(const pj_sockaddr *peer, pj_sockaddr *ours);
/* Writes the local address for this peer into an SDP (PJSUA's callback `on_call_sdp_created`). */
void local_address_on_sdp_created(pjsua_call_id call, pjmedia_sdp_session *sdp, pj_pool_t *pool,
                                  const pjmedia_sdp_session *remote);

/* The accounts whose media use IPv4 and IPv6, PJSUA_INVALID_ID for none. */
void local_address_set_accounts(pjsua_acc_id v4, pjsua_acc_id v6);
/* Replaces PJSUA's choice of an account, unless that account's media use the IP version of the offer. */
void local_address_choose_account(const pjsip_rx_data *rdata, pjsua_acc_id *account);
/* True if we have an account for the IP version of an SDP's media. */
bool local_address_has_version_of(const pjmedia_sdp_session *sdp);

#endif
