#define _GNU_SOURCE
#include "rtp/send_gate.h"

#include "net/ip_set.h"
#include "net/monotonic_clock.h"

#include <stddef.h>

#include <pjsua-lib/pjsua_internal.h>

static void (*next_call_state)(pjsua_call_id, pjsip_event *);

static pj_status_t send_rtp(pjmedia_transport *tp, const void *packet, pj_size_t size);

static send_gate_t *gate_of(const pjmedia_transport *tp)
{
    return (send_gate_t *)((char *)tp->op - offsetof(send_gate_t, op));
}

/* ---- admission; the lock is held ---- */

static bool is_open(const send_gate_t *gate, const send_target_t *to, int64_t now_ns)
{
    if (to->class == MEDIA_HELD || to->class == MEDIA_FORBIDDEN)
        return false;
    if (to->received || to->class == MEDIA_UNLISTED)
        return to->received;
    return gate->confirmed || !gate->began_ns || now_ns - gate->began_ns < UNCONFIRMED_NS;
}

static bool admit(send_gate_t *gate, const send_target_t *to, int64_t now_ns)
{
    const bool open = is_open(gate, to, now_ns);
    if (open && !to->received && !gate->confirmed && !gate->began_ns)
        gate->began_ns = now_ns;
    return open;
}

static void set_target(const send_gate_t *gate, send_target_t *to, const pj_sockaddr *address)
{
    to->received = to->received && ip_same_host(&to->address, address);
    to->address = *address;
    to->class = media_address_classify(address, &gate->signalling);
}

static void note_received(send_gate_t *gate, const pj_sockaddr *from)
{
    for (int channel = 0; channel < RTP_CHANNELS; channel++)
        gate->to[channel].received = gate->to[channel].received || ip_same_host(&gate->to[channel].address, from);
}

/* ---- questions ---- */

bool send_gate_admit(send_gate_t *gate, enum rtp_channel channel, int64_t now_ns)
{
    pthread_mutex_lock(&gate->lock);
    bool open = admit(gate, &gate->to[channel], now_ns);
    pthread_mutex_unlock(&gate->lock);
    return open;
}

/* A peer that holds the call has no address: speech goes nowhere, but its time runs. */
bool send_gate_allows_speech(send_gate_t *gate, int64_t now_ns)
{
    pthread_mutex_lock(&gate->lock);
    const send_target_t *to = &gate->to[RTP_CHANNEL];
    bool speech = to->class == MEDIA_HELD || (is_open(gate, to, now_ns) &&
                                              (to->received || gate->confirmed || to->class == MEDIA_SIGNALLING));
    pthread_mutex_unlock(&gate->lock);
    return speech;
}

/* ---- in front of the transport ---- */

static bool admit_to(send_gate_t *gate, const pj_sockaddr *address)
{
    send_target_t other = {.class = MEDIA_HELD};
    pthread_mutex_lock(&gate->lock);
    other.received = gate->to[RTCP_CHANNEL].received;
    other.address = gate->to[RTCP_CHANNEL].address;
    set_target(gate, &other, address);
    bool open = admit(gate, &other, monotonic_ns());
    pthread_mutex_unlock(&gate->lock);
    return open;
}

static pj_status_t send_rtp(pjmedia_transport *tp, const void *packet, pj_size_t size)
{
    send_gate_t *gate = gate_of(tp);
    return send_gate_admit(gate, RTP_CHANNEL, monotonic_ns()) ? gate->below->send_rtp(tp, packet, size) : PJ_SUCCESS;
}

static pj_status_t send_rtcp2(pjmedia_transport *tp, const pj_sockaddr_t *to, unsigned length, const void *packet,
                              pj_size_t size)
{
    send_gate_t *gate = gate_of(tp);
    bool open = to ? admit_to(gate, to) : send_gate_admit(gate, RTCP_CHANNEL, monotonic_ns());
    return open ? gate->below->send_rtcp2(tp, to, length, packet, size) : PJ_SUCCESS;
}

static pj_status_t send_rtcp(pjmedia_transport *tp, const void *packet, pj_size_t size)
{
    return send_rtcp2(tp, NULL, 0, packet, size);
}

static pjmedia_transport_attach_param note_source(send_gate_t *gate, const pj_sockaddr *from)
{
    pthread_mutex_lock(&gate->lock);
    pjmedia_transport_attach_param user = gate->user;
    note_received(gate, from);
    pthread_mutex_unlock(&gate->lock);
    return user;
}

static void on_rtp(pjmedia_tp_cb_param *param)
{
    const pj_sockaddr nowhere = {.addr = {0}};
    send_gate_t *gate = param->user_data;
    if (!gate)
        return; /* it is being detached */
    pjmedia_transport_attach_param user = note_source(gate, param->size > 0 ? param->src_addr : &nowhere);
    if (!user.user_data)
        return;
    param->user_data = user.user_data;
    if (user.rtp_cb2)
        user.rtp_cb2(param);
    else if (user.rtp_cb)
        user.rtp_cb(user.user_data, param->pkt, param->size);
}

/* Only the transport knows the source; this is its thread. */
static void on_rtcp(void *user_data, void *packet, pj_ssize_t size)
{
    send_gate_t *gate = user_data;
    pjmedia_transport_info info;
    if (!gate)
        return;
    pjmedia_transport_info_init(&info);
    gate->below->get_info(gate->udp, &info);
    pjmedia_transport_attach_param user = note_source(gate, &info.src_rtcp_name);
    if (user.user_data && user.rtcp_cb)
        user.rtcp_cb(user.user_data, packet, size);
}

static pj_status_t attach2(pjmedia_transport *tp, pjmedia_transport_attach_param *param)
{
    send_gate_t *gate = gate_of(tp);
    pjmedia_transport_attach_param ours = *param;
    pj_sockaddr rtcp = pj_sockaddr_has_addr(&param->rem_rtcp) ? param->rem_rtcp : param->rem_addr;
    pthread_mutex_lock(&gate->lock);
    gate->user = *param;
    set_target(gate, &gate->to[RTP_CHANNEL], &param->rem_addr);
    set_target(gate, &gate->to[RTCP_CHANNEL], &rtcp);
    pthread_mutex_unlock(&gate->lock);
    ours.user_data = gate;
    ours.rtp_cb = NULL;
    ours.rtp_cb2 = on_rtp;
    ours.rtcp_cb = on_rtcp;
    return gate->below->attach2(tp, &ours);
}

static void detach(pjmedia_transport *tp, void *user)
{
    send_gate_t *gate = gate_of(tp);
    (void)user;
    pthread_mutex_lock(&gate->lock);
    gate->user.user_data = NULL;
    pthread_mutex_unlock(&gate->lock);
    gate->below->detach(tp, gate);
}

void send_gate_install(send_gate_t *gate, pjmedia_transport *udp)
{
    pthread_mutex_init(&gate->lock, NULL);
    gate->udp = udp;
    gate->below = udp->op;
    gate->op = *udp->op;
    gate->op.attach = NULL;
    gate->op.attach2 = attach2;
    gate->op.detach = detach;
    gate->op.send_rtp = send_rtp;
    gate->op.send_rtcp = send_rtcp;
    gate->op.send_rtcp2 = send_rtcp2;
    udp->op = &gate->op;
}

void send_gate_destroy(send_gate_t *gate)
{
    pthread_mutex_destroy(&gate->lock);
}

/* ---- how far the call is ---- */

static bool is_confirmed(const pjsip_inv_session *inv)
{
    return inv->state == PJSIP_INV_STATE_CONFIRMED ||
           (inv->role == PJSIP_ROLE_UAC && inv->state == PJSIP_INV_STATE_CONNECTING);
}

void send_gate_update(send_gate_t *gate, const pjsip_inv_session *inv)
{
    pthread_mutex_lock(&gate->lock);
    if (inv->invite_tsx && inv->invite_tsx->addr.addr.sa_family)
        gate->signalling = inv->invite_tsx->addr;
    gate->confirmed = gate->confirmed || is_confirmed(inv);
    for (int channel = 0; channel < RTP_CHANNELS; channel++)
        set_target(gate, &gate->to[channel], &gate->to[channel].address);
    pthread_mutex_unlock(&gate->lock);
}

static void update_media(const pjsua_call_media *media, const pjsip_inv_session *inv)
{
    if (media->tp_orig && media->tp_orig->op->send_rtp == send_rtp)
        send_gate_update(gate_of(media->tp_orig), inv);
}

/* The caller of this function has locked the dialog. */
static void on_call_state(pjsua_call_id number, pjsip_event *event)
{
    const pjsua_call *call = &pjsua_var.calls[number];
    for (unsigned i = 0; call->inv && i < PJSUA_MAX_CALL_MEDIA; i++) {
        if (i < call->med_cnt)
            update_media(&call->media[i], call->inv);
        if (i < call->med_prov_cnt)
            update_media(&call->media_prov[i], call->inv);
    }
    if (next_call_state)
        next_call_state(number, event);
}

void send_gate_hook(pjsua_callback *callback)
{
    next_call_state = callback->on_call_state;
    callback->on_call_state = on_call_state;
}
