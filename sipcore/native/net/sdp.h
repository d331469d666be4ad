/* The addresses that SDP names: ours, and a peer's. */
#ifndef TRUNKLINE_NET_SDP_H
#define TRUNKLINE_NET_SDP_H

#include <pjsua-lib/pjsua.h>

/* Write an address of ours wherever the SDP names one. */
void sdp_set_address(pjmedia_sdp_session *sdp, pj_pool_t *pool, const pj_sockaddr *ours);
/* What its sender does: encoding is sending, decoding is receiving (RFC 8866, 6.7). */
pjmedia_dir sdp_direction(const pjmedia_sdp_session *sdp, unsigned media);
/* No name stands in the place of an address: PJSIP would look it up on the thread that all calls share. */
pj_bool_t sdp_has_ip_literals(const pjmedia_sdp_session *sdp);

#endif
