/* Media transport between a call's stream and PJMEDIA's own transport (SRTP over UDP): it accepts packets of the locked
 * source only, sends to that source (symmetric RTP), and keeps statistics of both directions. */
#ifndef TRUNKLINE_RTP_MEDIA_TRANSPORT_H
#define TRUNKLINE_RTP_MEDIA_TRANSPORT_H

#include "rtp/rtp_stats.h"

#include <pjsua-lib/pjsua.h>

/* Symmetric RTP (RFC 4961): send to the source of the peer's RTP, even if its SDP names another address. */
void media_transport_set_symmetric(bool on);
/* The statistics of a call that is under way, with a reference; NULL when it has none. */
typedef rtp_stats_t *rtp_stats_source_t(pjsua_call_id call);
/* A further transport of a call, or of the call that replaces it, continues these statistics. */
void media_transport_continue_stats(rtp_stats_source_t *source);
/* PJSUA's callback `on_create_media_transport`. */
pjmedia_transport *media_transport_create(pjsua_call_id call, unsigned media, pjmedia_transport *slave, unsigned flags);
/* True if speech may be sent now through a stream's transport; else it has to wait. */
bool media_transport_allows_speech(pjmedia_transport *tp, int64_t now_ns);
/* RTP of a stream's transport is read before ticks of this phase (rtp_reader.h). */
void media_transport_set_phase(pjmedia_transport *tp, int phase);
/* The statistics of a call's media, with a reference; NULL if there are none. */
rtp_stats_t *media_transport_stats(pjsua_call_id call, unsigned media);

#endif
