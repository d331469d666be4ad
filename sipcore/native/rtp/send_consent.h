/* Consent to send: whether RTP, RTCP and DTLS handshakes of a call may be sent to the peer's media address yet. Without
 * it one small INVITE from one address could make this endpoint send media for half a minute to another host, which its
 * SDP names and which has not consented (media amplification, "voice hammer"; RFC 7675 is the same check with ICE). The
 * check is in front of the sockets.
 *
 * Until the call is confirmed (the caller's ACK, the callee's 200), or a packet has come from the destination, packets go
 * there for at most UNCONFIRMED_NS in a call, and without speech unless the destination is the address that SIP comes
 * from. Nothing is sent to MEDIA_UNLISTED before a packet has come from it, and nothing at all to MEDIA_FORBIDDEN. */
#ifndef TRUNKLINE_RTP_SEND_CONSENT_H
#define TRUNKLINE_RTP_SEND_CONSENT_H

#include "rtp/media_address_policy.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#define UNCONFIRMED_NS 1000000000LL

enum rtp_channel { RTP_CHANNEL, RTCP_CHANNEL, RTP_CHANNELS };

typedef struct send_target {
    pj_sockaddr address;
    enum media_address_class class;
    bool received;             /* a packet has come from that host */
} send_target_t;

typedef struct send_consent {
    pjmedia_transport_op op;            /* the transport's operations with ours in front; identifies the send_consent */
    pjmedia_transport_op *below;
    pjmedia_transport *udp;
    pthread_mutex_t lock;                   /* guards what follows; no callback runs while it is held */
    pjmedia_transport_attach_param user;    /* receiver of incoming packets */
    pj_sockaddr signalling;
    send_target_t to[RTP_CHANNELS];
    bool confirmed;
    int64_t began_ns;                       /* time of the first packet before confirmation; 0: none yet */
} send_consent_t;

/* Installs the check in front of a transport that has sockets; it must live as long as the transport. */
void send_consent_install(send_consent_t *consent, pjmedia_transport *udp);
void send_consent_destroy(send_consent_t *consent);
/* Updates the signalling address and the call's state. The dialog is locked. */
void send_consent_update(send_consent_t *consent, const pjsip_inv_session *inv);
/* True if a packet may leave now. The first packet before confirmation starts its time limit. */
bool send_consent_admit(send_consent_t *consent, enum rtp_channel channel, int64_t now_ns);
/* True if speech may be sent; else it waits, and comfort noise takes its place. */
bool send_consent_allows_speech(send_consent_t *consent, int64_t now_ns);
/* Hooks PJSUA's callback `on_call_state`, which sets `confirmed`. */
void send_consent_hook(pjsua_callback *callback);

#endif
