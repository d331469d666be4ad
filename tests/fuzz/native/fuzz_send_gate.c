/* The send gate of a call: each step is a byte for the event, one for the host, and one for the time in units of 20 ms. What
 * is sent is compared with the rules for its destination. */
#include "stack.h"

#include <string.h>

#include <pjsua-lib/pjsua_internal.h>

#include "rtp/send_gate.h"
#include "net/monotonic_clock.h"

#define STEP_NS 20000000LL

enum { NOWHERE, ZEROS, OF_THE_PEER, OF_ANOTHER_PEER, OF_A_TRUNK, IN_THE_NETWORK, LOOPBACK, ELSEWHERE, FURTHER, FORBIDDEN, HOSTS };
enum { ATTACH, DETACH, LEARN, CONFIRM, RTP_COMES, RTCP_COMES, SEND, SEND_TO, LAST_STEP };

static const char *const hosts[HOSTS] = {"",          "0.0.0.0",   "198.51.100.1", "198.51.100.2", KNOWN_ADDRESS,
                                         "192.0.2.1", "127.0.0.9", "198.51.100.3", "2001:db8::1",  "203.0.113.1"};

/* The rules once more, by the numbers of hosts. */
static struct {
    int target[RTP_CHANNELS], class[RTP_CHANNELS], peer;
    bool received[RTP_CHANNELS], confirmed;
    int64_t began_ns;           /* 0: nothing has been sent unconfirmed */
    int sent;
    pj_sockaddr rtcp_from;      /* of the latest RTCP */
} call;

static pj_sockaddr place(int host)
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
    if (host == LOOPBACK || (host == OF_A_TRUNK && call.peer != LOOPBACK)) /* our own host */
        return MEDIA_UNLISTED;
    return host == OF_A_TRUNK || host == IN_THE_NETWORK ? MEDIA_ALLOWED : MEDIA_UNLISTED;
}

/* ---- the transport below: it has no sockets ---- */

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

static void take(pjmedia_tp_cb_param *param)
{
    (void)param;
}

static void take_rtcp(void *user, void *packet, pj_ssize_t size)
{
    (void)user, (void)packet, (void)size;
}

static void aim(int way, int host)
{
    call.received[way] = call.received[way] && host > NOWHERE && host == call.target[way];
    call.target[way] = host;
    call.class[way] = class_of(host);
}

static void attach_call(pjmedia_transport *tp, int rtp, int rtcp)
{
    pjmedia_transport_attach_param param = {.user_data = &call, .rtp_cb2 = take, .rtcp_cb = take_rtcp};
    param.rem_addr = place(rtp);
    param.rem_rtcp = place(rtcp);
    must(tp->op->attach2(tp, &param) == PJ_SUCCESS, "a stream is attached");
    aim(RTP_CHANNEL, rtp);
    aim(RTCP_CHANNEL, rtcp > ZEROS ? rtcp : rtp);
}

static void learn(send_gate_t *gate, int peer, bool confirmed)
{
    pjsip_transaction transaction = {.addr = place(peer)};
    const pjsip_inv_session inv = {.invite_tsx = &transaction,
                                   .state = confirmed ? PJSIP_INV_STATE_CONFIRMED : PJSIP_INV_STATE_EARLY};
    send_gate_update(gate, &inv);
    call.peer = peer > NOWHERE ? peer : call.peer;
    call.confirmed = call.confirmed || confirmed;
    for (int way = 0; way < RTP_CHANNELS; way++)
        aim(way, call.target[way]);
}

static void come(int host, bool rtcp)
{
    pj_sockaddr from = call.rtcp_from = place(host);
    uint8_t packet[12] = {0};
    pjmedia_tp_cb_param param = {.user_data = attached.user_data, .pkt = packet, .size = sizeof packet, .src_addr = &from};
    if (!attached.user_data)
        return;
    if (rtcp)
        attached.rtcp_cb(attached.user_data, packet, sizeof packet);
    else
        attached.rtp_cb2(&param);
    for (int way = 0; way < RTP_CHANNELS; way++)
        call.received[way] = call.received[way] || (host > NOWHERE && host == call.target[way]);
}

static void look(send_gate_t *gate, enum rtp_channel way, int64_t now_ns)
{
    const bool received = call.received[way], unconfirmed = !received && !call.confirmed;
    const bool speech = send_gate_allows_speech(gate, now_ns), lets = send_gate_admit(gate, way, now_ns);
    must(!lets || (call.class[way] != MEDIA_FORBIDDEN && call.class[way] != MEDIA_HELD), "nothing goes where none may go");
    must(!lets || call.class[way] != MEDIA_UNLISTED || received, "an unlisted address receives nothing before it has sent");
    if (lets && unconfirmed && !call.began_ns)
        call.began_ns = now_ns;
    must(!lets || !unconfirmed || now_ns - call.began_ns < UNCONFIRMED_NS, "unconfirmed, a second is all");
    must(lets || !received || call.class[way] == MEDIA_FORBIDDEN || call.class[way] == MEDIA_HELD,
         "a source that was received is answered");
    if (way == RTP_CHANNEL && speech && call.class[way] != MEDIA_HELD)
        must(lets && (!unconfirmed || call.class[way] == MEDIA_SIGNALLING), "speech goes where the call is");
}

static bool may_go(int kind, bool received)
{
    return kind != MEDIA_FORBIDDEN && kind != MEDIA_HELD && (kind != MEDIA_UNLISTED || received);
}

static void look_at_packet(int kind, bool received)
{
    must(!call.sent || may_go(kind, received), "the gate is in front of the sockets");
    if (call.sent && !received && !call.confirmed && !call.began_ns)
        call.began_ns = monotonic_ns();
    call.sent = 0;
}

/* Packets themselves, by the clock of the process: RTP, and RTCP that says where it goes. */
static void send_packets(pjmedia_transport *tp, int host)
{
    const pj_sockaddr to = place(host);
    tp->op->send_rtp(tp, "", 1);
    look_at_packet(call.class[RTP_CHANNEL], call.received[RTP_CHANNEL]);
    tp->op->send_rtcp2(tp, &to, sizeof to, "", 1);
    look_at_packet(class_of(host), call.received[RTCP_CHANNEL] && host == call.target[RTCP_CHANNEL]);
    tp->op->send_rtcp(tp, "", 1);
    look_at_packet(call.class[RTCP_CHANNEL], call.received[RTCP_CHANNEL]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    send_gate_t gate = {.confirmed = false};
    pjmedia_transport udp = {.op = &operations};
    int64_t now_ns = monotonic_ns();
    stack_start();
    memset(&call, 0, sizeof call);
    memset(&attached, 0, sizeof attached);
    send_gate_install(&gate, &udp);
    for (; size >= 3; data += 3, size -= 3) {
        const int host = data[1] % HOSTS;
        now_ns += data[2] * STEP_NS;
        switch (data[0] % LAST_STEP) {
        case ATTACH: attach_call(&udp, host, data[1] / HOSTS % HOSTS); break;
        case DETACH:
            if (attached.user_data)
                udp.op->detach(&udp, &call);
            break;
        case LEARN: learn(&gate, host, false); break;
        case CONFIRM: learn(&gate, host, true); break;
        case RTP_COMES: come(host, false); break;
        case RTCP_COMES: come(host, true); break;
        case SEND: look(&gate, data[1] & 1, now_ns); break;
        default: send_packets(&udp, host);
        }
    }
    send_gate_destroy(&gate);
    return 0;
}
