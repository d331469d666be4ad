/* Media address policy: which addresses of a peer's SDP may receive RTP ([sip] media_networks). */
#ifndef TRUNKLINE_RTP_MEDIA_ADDRESS_POLICY_H
#define TRUNKLINE_RTP_MEDIA_ADDRESS_POLICY_H

#include "net/ip_set.h"

#include <pjsua-lib/pjsua.h>

enum media_address_class {
    MEDIA_HELD,         /* no address, or 0.0.0.0: the old way to hold a call (RFC 3264 8.4) */
    MEDIA_SIGNALLING,   /* the address that the peer's SIP comes from */
    MEDIA_ALLOWED,      /* a trunk's address, or in the allowed networks */
    MEDIA_UNLISTED,     /* receives nothing before it has sent something */
    MEDIA_FORBIDDEN     /* never a destination: no host can have it, or a metadata service has it */
};

/* Takes ownership of both. */
void media_address_policy_set(ip_set_t *allowed, ip_set_t *forbidden);
/* `peer`: source address of the peer's SIP, without a family if not known. */
enum media_address_class media_address_classify(const pj_sockaddr *place, const pj_sockaddr *peer);

#endif
