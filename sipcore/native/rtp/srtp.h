/* SRTP: the keying that a call has negotiated, and the role in DTLS handshakes. */
#ifndef TRUNKLINE_RTP_SRTP_H
#define TRUNKLINE_RTP_SRTP_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

/* Key exchange: in the SDP (RFC 4568), or by DTLS on the media path (RFC 5763). */
enum srtp_keying { SRTP_KEYING_NONE, SRTP_KEYING_SDES, SRTP_KEYING_DTLS };

/* Keying of the active SDP. `peer` receives the address of the call's SIP peer, "" if it is not known any more; `signalling`
 * receives true if that SIP is encrypted. */
enum srtp_keying srtp_keying_of(pjsua_call_id call, char *peer, int size, bool *signalling);
/* While it is on, the calls that this thread makes offer RTP/SAVP and accept no plain answer, whatever their account's use of
 * SRTP, which must not be off. */
void srtp_require(bool on);
/* To be called with the SRTP transport of a new call before its media is created. */
void srtp_apply_requirement(pjmedia_transport *srtp);
/* An offer with `a=setup:actpass` is answered as passive, so that the offerer begins the handshake: our first packet, sent
 * before the answer, would be lost, and the next one would follow a second later. */
void srtp_prefer_passive_dtls(pjsip_rx_data *request);

#endif
