/* SDP: connection addresses (c=, o=, a=rtcp) and media direction. */
#ifndef TRUNKLINE_NET_SDP_H
#define TRUNKLINE_NET_SDP_H

#include <pjsua-lib/pjsua.h>

/* Writes the address `ours` wherever the SDP names one. */
void sdp_set_address(pjmedia_sdp_session *sdp, pj_pool_t *pool, const pj_sockaddr *ours);
/* Direction as its sender means it: encoding is sending, decoding is receiving (RFC 8866, 6.7). */
pjmedia_dir sdp_direction(const pjmedia_sdp_session *sdp, unsigned media);
/* True if all connection addresses are IP literals: PJSIP would look up a name on the thread that all calls share. */
pj_bool_t sdp_has_ip_literals(const pjmedia_sdp_session *sdp);

#endif
