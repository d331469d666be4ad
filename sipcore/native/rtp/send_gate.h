/* Send gate: whether RTP, RTCP and DTLS handshakes of a call may leave yet. It sits in front of the sockets.
 *
 * SDP comes from one address and may name another, so one small request could make us send media for half a minute to a host
 * that has asked for nothing. Until the call is confirmed (the caller's ACK, the callee's 200), or a packet has come from the
 * destination, packets go there for UNCONFIRMED_NS at most in a call; and without speech, unless the destination is the
 * address that SIP comes from. Nothing goes to MEDIA_UNLISTED before a packet has come from there, and never to
 * MEDIA_FORBIDDEN. */
#ifndef TRUNKLINE_RTP_SEND_GATE_H
#define TRUNKLINE_RTP_SEND_GATE_H

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

typedef struct send_gate {
    pjmedia_transport_op op;            /* the transport's operations with ours in front; the gate is found by this address */
    pjmedia_transport_op *below;
    pjmedia_transport *udp;
    pthread_mutex_t lock;                   /* guards what follows; no callback runs while it is held */
    pjmedia_transport_attach_param user;    /* receiver of incoming packets */
    pj_sockaddr signalling;
    send_target_t to[RTP_CHANNELS];
    bool confirmed;
    int64_t began_ns;                       /* time of the first packet before confirmation; 0: none yet */
} send_gate_t;

/* Installs the gate in front of a transport that has sockets; it must live as long as the transport. */
void send_gate_install(send_gate_t *gate, pjmedia_transport *udp);
void send_gate_destroy(send_gate_t *gate);
/* Updates the signalling address and the call's state. The dialog is locked. */
void send_gate_update(send_gate_t *gate, const pjsip_inv_session *inv);
/* True if a packet may leave now. The first packet before confirmation starts its time limit. */
bool send_gate_admit(send_gate_t *gate, enum rtp_channel channel, int64_t now_ns);
/* True if speech may be sent; else it waits, and comfort noise takes its place. */
bool send_gate_allows_speech(send_gate_t *gate, int64_t now_ns);
/* Hooks PJSUA's call state, so that each gate learns when its call is confirmed. */
void send_gate_hook(pjsua_callback *callback);

#endif
