/* The consent to send of a call: each step is a byte for the event, one for the host, and one for the time in units of 20
 * ms. What is sent is compared with the rules for its destination. */
#include "stack.h"

#include <string.h>

#include <pjsua-lib/pjsua_internal.h>

#include "rtp/send_consent.h"
#include "net/monotonic_clock.h"

#define STEP_NS 20000000LL

enum { NONE, ZEROS, PEER, OTHER_PEER, TRUNK, ALLOWED, LOOPBACK, UNLISTED, UNLISTED_V6, FORBIDDEN, HOSTS };
enum { ATTACH, DETACH, UPDATE, CONFIRM, RECEIVE_RTP, RECEIVE_RTCP, SEND, SEND_TO, LAST_STEP };

static const char *const hosts[HOSTS] = {"",          "0.0.0.0",   "198.51.100.1", "198.51.100.2", KNOWN_ADDRESS,
                                         "192.0.2.1", "127.0.0.9", "198.51.100.3", "2001:db8::1",  "203.0.113.1"};

/* A second implementation of the rules, with hosts as indexes. */
static struct {
    int target[RTP_CHANNELS], class[RTP_CHANNELS], peer;
    bool received[RTP_CHANNELS], confirmed;
    int64_t began_ns;           /* 0: nothing has been sent unconfirmed */
    int sent;
    pj_sockaddr rtcp_from;      /* of the latest RTCP */
} call;

static pj_sockaddr address_of(int host)
{
    pj_sockaddr address = {.addr = {0}};
    const pj_str_t text = pj_str((char *)hosts[host]);
    if (text.slen)
        pj_sockaddr_parse(pj_AF_UNSPEC(), 0, &text, &address);
    return address;
}

static int class_of(int host)
{
    if (host <= ZEROS)
        return MEDIA_HELD;
    if (host == FORBIDDEN)
        return MEDIA_FORBIDDEN;
    if (host == call.peer)
        return MEDIA_SIGNALLING;
    if (host == LOOPBACK || (host == TRUNK && call.peer != LOOPBACK)) /* our own host */
        return MEDIA_UNLISTED;
    return host == TRUNK || host == ALLOWED ? MEDIA_ALLOWED : MEDIA_UNLISTED;
}

/* ---- the transport below, without sockets ---- */

static pj_status_t get_info(pjmedia_transport *tp, pjmedia_transport_info *info)
{
    (void)tp;
    info->src_rtcp_name = call.rtcp_from;
    return PJ_SUCCESS;
}

static pjmedia_transport_attach_param attached;

static pj_status_t attach(pjmedia_transport *tp, pjmedia_transport_attach_param *param)
{
    (void)tp;
    attached = *param;
    return PJ_SUCCESS;
}

static void detach(pjmedia_transport *tp, void *user)
{
    (void)tp;
    must(user == attached.user_data, "the attached stream is detached");
    attached.user_data = NULL;
}

static pj_status_t send_rtp(pjmedia_transport *tp, const void *packet, pj_size_t size)
{
    (void)tp, (void)packet, (void)size;
    call.sent++;
    return PJ_SUCCESS;
}

static pj_status_t send_rtcp2(pjmedia_transport *tp, const pj_sockaddr_t *to, unsigned length, const void *packet,
                              pj_size_t size)
{
    (void)to, (void)length;
    return send_rtp(tp, packet, size);
}

static pjmedia_transport_op operations = {
    .get_info = get_info, .attach2 = attach, .detach = detach, .send_rtp = send_rtp, .send_rtcp2 = send_rtcp2};

/* ---- the call above ---- */

static void on_rtp(pjmedia_tp_cb_param *param)
{
    (void)param;
}

static void on_rtcp(void *user, void *packet, pj_ssize_t size)
{
    (void)user, (void)packet, (void)size;
}

static void set_target(int channel, int host)
{
    call.received[channel] = call.received[channel] && host > NONE && host == call.target[channel];
    call.target[channel] = host;
    call.class[channel] = class_of(host);
}

static void attach_call(pjmedia_transport *tp, int rtp, int rtcp)
{
    pjmedia_transport_attach_param param = {.user_data = &call, .rtp_cb2 = on_rtp, .rtcp_cb = on_rtcp};
    param.rem_addr = address_of(rtp);
    param.rem_rtcp = address_of(rtcp);
    must(tp->op->attach2(tp, &param) == PJ_SUCCESS, "a stream is attached");
    set_target(RTP_CHANNEL, rtp);
    set_target(RTCP_CHANNEL, rtcp > ZEROS ? rtcp : rtp);
}

static void update(send_consent_t *consent, int peer, bool confirmed)
{
    pjsip_transaction transaction = {.addr = address_of(peer)};
    const pjsip_inv_session inv = {.invite_tsx = &transaction,
                                   .state = confirmed ? PJSIP_INV_STATE_CONFIRMED : PJSIP_INV_STATE_EARLY};
    send_consent_update(consent, &inv);
    call.peer = peer > NONE ? peer : call.peer;
    call.confirmed = call.confirmed || confirmed;
    for (int channel = 0; channel < RTP_CHANNELS; channel++)
        set_target(channel, call.target[channel]);
}

static void receive(int host, bool rtcp)
{
    pj_sockaddr from = call.rtcp_from = address_of(host);
    uint8_t packet[12] = {0};
    pjmedia_tp_cb_param param = {.user_data = attached.user_data, .pkt = packet, .size = sizeof packet, .src_addr = &from};
    if (!attached.user_data)
        return;
    if (rtcp)
        attached.rtcp_cb(attached.user_data, packet, sizeof packet);
    else
        attached.rtp_cb2(&param);
    for (int channel = 0; channel < RTP_CHANNELS; channel++)
        call.received[channel] = call.received[channel] || (host > NONE && host == call.target[channel]);
}

static void check(send_consent_t *consent, enum rtp_channel channel, int64_t now_ns)
{
    const bool received = call.received[channel], unconfirmed = !received && !call.confirmed;
    const bool speech = send_consent_allows_speech(consent, now_ns), admitted = send_consent_admit(consent, channel, now_ns);
    must(!admitted || (call.class[channel] != MEDIA_FORBIDDEN && call.class[channel] != MEDIA_HELD),
         "nothing is sent to a forbidden address or a held call");
    must(!admitted || call.class[channel] != MEDIA_UNLISTED || received, "an unlisted address receives nothing before it has sent");
    if (admitted && unconfirmed && !call.began_ns)
        call.began_ns = now_ns;
    must(!admitted || !unconfirmed || now_ns - call.began_ns < UNCONFIRMED_NS, "at most a second is sent before confirmation");
    must(admitted || !received || call.class[channel] == MEDIA_FORBIDDEN || call.class[channel] == MEDIA_HELD,
         "a source that was received is answered");
    if (channel == RTP_CHANNEL && speech && call.class[channel] != MEDIA_HELD)
        must(admitted && (!unconfirmed || call.class[channel] == MEDIA_SIGNALLING), "speech is sent to the peer of the call only");
}

static bool may_be_sent(int kind, bool received)
{
    return kind != MEDIA_FORBIDDEN && kind != MEDIA_HELD && (kind != MEDIA_UNLISTED || received);
}

static void check_packet(int kind, bool received)
{
    must(!call.sent || may_be_sent(kind, received), "the check is in front of the sockets");
    if (call.sent && !received && !call.confirmed && !call.began_ns)
        call.began_ns = monotonic_ns();
    call.sent = 0;
}

/* Sends packets, timed by the clock of the process: RTP, and RTCP with and without a destination. */
static void send_packets(pjmedia_transport *tp, int host)
{
    const pj_sockaddr to = address_of(host);
    tp->op->send_rtp(tp, "", 1);
    check_packet(call.class[RTP_CHANNEL], call.received[RTP_CHANNEL]);
    tp->op->send_rtcp2(tp, &to, sizeof to, "", 1);
    check_packet(class_of(host), call.received[RTCP_CHANNEL] && host == call.target[RTCP_CHANNEL]);
    tp->op->send_rtcp(tp, "", 1);
    check_packet(call.class[RTCP_CHANNEL], call.received[RTCP_CHANNEL]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    send_consent_t consent = {.confirmed = false};
    pjmedia_transport udp = {.op = &operations};
    int64_t now_ns = monotonic_ns();
    stack_start();
    memset(&call, 0, sizeof call);
    memset(&attached, 0, sizeof attached);
    send_consent_install(&consent, &udp);
    for (; size >= 3; data += 3, size -= 3) {
        const int host = data[1] % HOSTS;
        now_ns += data[2] * STEP_NS;
        switch (data[0] % LAST_STEP) {
        case ATTACH: attach_call(&udp, host, data[1] / HOSTS % HOSTS); break;
        case DETACH:
            if (attached.user_data)
                udp.op->detach(&udp, &call);
            break;
        case UPDATE: update(&consent, host, false); break;
        case CONFIRM: update(&consent, host, true); break;
        case RECEIVE_RTP: receive(host, false); break;
        case RECEIVE_RTCP: receive(host, true); break;
        case SEND: check(&consent, data[1] & 1, now_ns); break;
        default: send_packets(&udp, host);
        }
    }
    send_consent_destroy(&consent);
    return 0;
}
