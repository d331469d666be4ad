/* Where a peer's SDP may want sound to go ([sip] media_networks). */
#ifndef TRUNKLINE_RTP_MEDIA_ADDRESS_POLICY_H
#define TRUNKLINE_RTP_MEDIA_ADDRESS_POLICY_H

#include "net/ip_set.h"

#include <pjsua-lib/pjsua.h>

enum media_address_class {
    MEDIA_HELD,         /* no address, or nothing but zeros: how calls were held once (RFC 3264 8.4) */
    MEDIA_SIGNALLING,          /* where the peer's SIP comes from */
    MEDIA_ALLOWED,      /* a trunk's, or in the networks */
    MEDIA_UNLISTED,    /* only what speaks first is spoken to */
    MEDIA_FORBIDDEN         /* no host can have it, or a metadata service has */
};

/* Takes over both. */
void media_address_policy_set(ip_set_t *allowed, ip_set_t *forbidden);
/* `peer`: where its SIP comes from; without a family, nobody knows. */
enum media_address_class media_address_classify(const pj_sockaddr *place, const pj_sockaddr *peer);

#endif
