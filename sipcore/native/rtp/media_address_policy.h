/* Where a peer's SDP may want sound to go ([sip] media_networks). */
#ifndef TRUNKLINE_RTP_MEDIA_ADDRESS_POLICY_H
#define TRUNKLINE_RTP_MEDIA_ADDRESS_POLICY_H

#include "net/ip_set.h"

#include <pjsua-lib/pjsua.h>

enum media_place {
    MEDIA_HELD,         /* no address, or nothing but zeros: how calls were held once (RFC 3264 8.4) */
    MEDIA_OWN,          /* where the peer's SIP comes from */
    MEDIA_ALLOWED,      /* a trunk's, or in the networks */
    MEDIA_ELSEWHERE,    /* only what speaks first is spoken to */
    MEDIA_NEVER         /* no host can have it, or a metadata service has */
};

/* Takes over both. */
void media_places_set(sources_t *networks, sources_t *never);
/* `peer`: where its SIP comes from; without a family, nobody knows. */
enum media_place media_place_of(const pj_sockaddr *place, const pj_sockaddr *peer);

#endif
