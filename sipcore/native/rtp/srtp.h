/* Encrypted sound: how a call's is, and whose turn it is to shake hands. */
#ifndef TRUNKLINE_RTP_SRTP_H
#define TRUNKLINE_RTP_SRTP_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

/* How the two sides agree on keys: in the SDP (RFC 4568), or by DTLS beside the sound (RFC 5763). */
enum srtp_keying { SRTP_KEYING_NONE, SRTP_KEYING_SDES, SRTP_KEYING_DTLS };

/* Of the sound that has been agreed on last. `peer`: the address that the call's SIP comes from or goes to, "" when it is
 * not known any more; `signalling`: whether that is encrypted. */
enum srtp_keying srtp_keying_of(pjsua_call_id call, char *peer, int size, bool *signalling);
/* Let who offers DTLS in either role begin the handshake: our first packet, sent before the answer that makes the peer
 * listen, would be lost, and the next one comes a second later. */
void srtp_prefer_passive_dtls(pjsip_rx_data *request);

#endif
