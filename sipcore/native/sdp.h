/* The addresses that SDP names: ours, and a peer's. */
#ifndef TRUNKLINE_SDP_H
#define TRUNKLINE_SDP_H

#include <pjsua-lib/pjsua.h>

/* Name the local address that the peer is reached from (pjsua callback `on_call_sdp_created`). */
void sdp_on_created(pjsua_call_id call, pjmedia_sdp_session *sdp, pj_pool_t *pool, const pjmedia_sdp_session *remote);
/* Off when a public address is configured: then that one stands. */
void sdp_follow_route(pj_bool_t on);
/* Read an address of either family; its port is 0. PJ_FALSE: it is none. */
pj_bool_t sdp_parse_address(const pj_str_t *host, pj_sockaddr *address);
/* No name stands in the place of an address: PJSIP would look it up on the thread that all calls share. */
pj_bool_t sdp_has_addresses(const pjmedia_sdp_session *sdp);

#endif
