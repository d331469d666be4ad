/* Whether what a call sends may leave yet: a gate in front of the sockets, for RTP, RTCP and the handshakes of DTLS alike.
 *
 * SDP comes from one place and may name another, so one small request could make us send for half a minute to somebody who
 * has asked for nothing. Until the call is confirmed (the caller's ACK, the callee's 200), or something has come from the
 * place that packets go to, they go there for UNCONFIRMED_NS at most in a call; and unless it is where SIP comes from,
 * without any speech. To MEDIA_UNLISTED nothing goes before something has come from there, to MEDIA_FORBIDDEN nothing at all. */
#ifndef TRUNKLINE_RTP_SEND_GATE_H
#define TRUNKLINE_RTP_SEND_GATE_H

#include "rtp/media_address_policy.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#define UNCONFIRMED_NS 1000000000LL

enum rtp_channel { RTP_CHANNEL, RTCP_CHANNEL, RTP_CHANNELS };

typedef struct rtp_target {
    pj_sockaddr address;
    enum media_address_class class;
    bool received;             /* something has come from that host */
} send_target_t;

typedef struct send_gate {
    pjmedia_transport_op op;            /* those of the transport, with ours in front: it is found by them */
    pjmedia_transport_op *below;
    pjmedia_transport *udp;
    pthread_mutex_t lock;               /* guards what follows; nobody is called while it is held */
    pjmedia_transport_attach_param user; /* who gets what comes in */
    pj_sockaddr signalling;
    send_target_t to[RTP_CHANNELS];
    bool confirmed;
    int64_t began_ns;                   /* when the first unconfirmed packet went out; 0: none has */
} send_gate_t;

/* In front of a transport that has sockets; as long as the transport lives. */
void send_gate_install(send_gate_t *gate, pjmedia_transport *udp);
void send_gate_destroy(send_gate_t *gate);
/* Where the peer's SIP comes from, and how far its call is. The dialog is locked. */
void send_gate_update(send_gate_t *gate, const pjsip_inv_session *inv);
/* Whether a packet would leave now. */
bool send_gate_admit(send_gate_t *gate, enum rtp_channel channel, int64_t now_ns);
/* Whether speech may be sent; else it waits, and comfort noise takes its place. */
bool send_gate_allows_speech(send_gate_t *gate, int64_t now_ns);
/* Learn of each call when it is confirmed. */
void send_gate_hook(pjsua_callback *callback);

#endif
