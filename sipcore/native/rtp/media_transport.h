/* A media transport between the stream and PJMEDIA's own (UDP, with SRTP on it): it lets the stream hear its peer only,
 * sends to where the peer is, and keeps account of both directions. */
#ifndef TRUNKLINE_RTP_MEDIA_TRANSPORT_H
#define TRUNKLINE_RTP_MEDIA_TRANSPORT_H

#include "rtp/rtp_stats.h"

#include <pjsua-lib/pjsua.h>

/* Whether we send to where a peer's RTP comes from when that is not where its SDP says (symmetric RTP, RFC 4961). */
void media_transport_set_symmetric(bool on);
/* The statistics of a call that is under way, with a reference; NULL when it has none. */
typedef rtp_stats_t *rtp_stats_source_t(pjsua_call_id call);
/* A further transport of a call, or of the call that replaces it, goes on with these statistics. */
void media_transport_continue_stats(rtp_stats_source_t *source);
/* PJSUA's callback `on_create_media_transport`. */
pjmedia_transport *media_transport_create(pjsua_call_id call, unsigned media, pjmedia_transport *slave, unsigned flags);
/* Whether speech may be sent now through the transport of a stream; else it has to wait. */
bool media_transport_allows_speech(pjmedia_transport *tp, int64_t now_ns);
/* The account of a call's sound; the caller gives it back with rtp_stats_release. NULL when there is none. */
rtp_stats_t *media_transport_stats(pjsua_call_id call, unsigned media);

#endif
