#define _GNU_SOURCE
#include "rtp/send_consent.h"

#include "net/ip_set.h"
#include "net/monotonic_clock.h"

#include <stddef.h>

#include <pjsua-lib/pjsua_internal.h>

static void (*next_call_state)(pjsua_call_id, pjsip_event *);

static pj_status_t send_rtp(pjmedia_transport *tp, const void *packet, pj_size_t size);

static send_consent_t *consent_of(const pjmedia_transport *tp)
{
    return (send_consent_t *)((char *)tp->op - offsetof(send_consent_t, op));
}

/* ---- admission; the lock is held ---- */

static bool is_open(const send_consent_t *consent, const send_target_t *to, int64_t now_ns)
{
    if (to->class == MEDIA_HELD || to->class == MEDIA_FORBIDDEN)
        return false;
    if (to->received || to->class == MEDIA_UNLISTED)
        return to->received;
    return consent->confirmed || !consent->began_ns || now_ns - consent->began_ns < UNCONFIRMED_NS;
}

static bool admit(send_consent_t *consent, const send_target_t *to, int64_t now_ns)
{
    const bool open = is_open(consent, to, now_ns);
    if (open && !to->received && !consent->confirmed && !consent->began_ns)
        consent->began_ns = now_ns;
    return open;
}

static void set_target(const send_consent_t *consent, send_target_t *to, const pj_sockaddr *address)
{
    to->received = to->received && ip_same_host(&to->address, address);
    to->address = *address;
    to->class = media_address_classify(address, &consent->signalling);
}

static void mark_received(send_consent_t *consent, const pj_sockaddr *from)
{
    for (int channel = 0; channel < RTP_CHANNELS; channel++)
        consent->to[channel].received = consent->to[channel].received || ip_same_host(&consent->to[channel].address, from);
}

/* ---- before a packet is sent ---- */

bool send_consent_admit(send_consent_t *consent, enum rtp_channel channel, int64_t now_ns)
{
    pthread_mutex_lock(&consent->lock);
    bool open = admit(consent, &consent->to[channel], now_ns);
    pthread_mutex_unlock(&consent->lock);
    return open;
}

/* While the peer holds the call it has no media address: speech is discarded, but its clock runs. */
bool send_consent_allows_speech(send_consent_t *consent, int64_t now_ns)
{
    pthread_mutex_lock(&consent->lock);
    const send_target_t *to = &consent->to[RTP_CHANNEL];
    bool speech = to->class == MEDIA_HELD || (is_open(consent, to, now_ns) &&
                                              (to->received || consent->confirmed || to->class == MEDIA_SIGNALLING));
    pthread_mutex_unlock(&consent->lock);
    return speech;
}

/* ---- in front of the transport ---- */

static bool admit_to(send_consent_t *consent, const pj_sockaddr *address)
{
    send_target_t other = {.class = MEDIA_HELD};
    pthread_mutex_lock(&consent->lock);
    other.received = consent->to[RTCP_CHANNEL].received;
    other.address = consent->to[RTCP_CHANNEL].address;
    set_target(consent, &other, address);
    bool open = admit(consent, &other, monotonic_ns());
    pthread_mutex_unlock(&consent->lock);
    return open;
}

static pj_status_t send_rtp(pjmedia_transport *tp, const void *packet, pj_size_t size)
{
    send_consent_t *consent = consent_of(tp);
    return send_consent_admit(consent, RTP_CHANNEL, monotonic_ns()) ? consent->below->send_rtp(tp, packet, size) : PJ_SUCCESS;
}

static pj_status_t send_rtcp2(pjmedia_transport *tp, const pj_sockaddr_t *to, unsigned length, const void *packet,
                              pj_size_t size)
{
    send_consent_t *consent = consent_of(tp);
    bool open = to ? admit_to(consent, to) : send_consent_admit(consent, RTCP_CHANNEL, monotonic_ns());
    return open ? consent->below->send_rtcp2(tp, to, length, packet, size) : PJ_SUCCESS;
}

static pj_status_t send_rtcp(pjmedia_transport *tp, const void *packet, pj_size_t size)
{
    return send_rtcp2(tp, NULL, 0, packet, size);
}

static pjmedia_transport_attach_param on_packet_from(send_consent_t *consent, const pj_sockaddr *from)
{
    pthread_mutex_lock(&consent->lock);
    pjmedia_transport_attach_param user = consent->user;
    mark_received(consent, from);
    pthread_mutex_unlock(&consent->lock);
    return user;
}

static void on_rtp(pjmedia_tp_cb_param *param)
{
    const pj_sockaddr nowhere = {.addr = {0}};
    send_consent_t *consent = param->user_data;
    if (!consent)
        return; /* it is being detached */
    pjmedia_transport_attach_param user = on_packet_from(consent, param->size > 0 ? param->src_addr : &nowhere);
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
    send_consent_t *consent = user_data;
    pjmedia_transport_info info;
    if (!consent)
        return;
    pjmedia_transport_info_init(&info);
    consent->below->get_info(consent->udp, &info);
    pjmedia_transport_attach_param user = on_packet_from(consent, &info.src_rtcp_name);
    if (user.user_data && user.rtcp_cb)
        user.rtcp_cb(user.user_data, packet, size);
}

static pj_status_t attach2(pjmedia_transport *tp, pjmedia_transport_attach_param *param)
{
    send_consent_t *consent = consent_of(tp);
    pjmedia_transport_attach_param param_below = *param;
    pj_sockaddr rtcp = pj_sockaddr_has_addr(&param->rem_rtcp) ? param->rem_rtcp : param->rem_addr;
    pthread_mutex_lock(&consent->lock);
    consent->user = *param;
    set_target(consent, &consent->to[RTP_CHANNEL], &param->rem_addr);
    set_target(consent, &consent->to[RTCP_CHANNEL], &rtcp);
    pthread_mutex_unlock(&consent->lock);
    param_below.user_data = consent;
    param_below.rtp_cb = NULL;
    param_below.rtp_cb2 = on_rtp;
    param_below.rtcp_cb = on_rtcp;
    return consent->below->attach2(tp, &param_below);
}

static void detach(pjmedia_transport *tp, void *user)
{
    send_consent_t *consent = consent_of(tp);
    (void)user;
    pthread_mutex_lock(&consent->lock);
    consent->user.user_data = NULL;
    pthread_mutex_unlock(&consent->lock);
    consent->below->detach(tp, consent);
}

void send_consent_install(send_consent_t *consent, pjmedia_transport *udp)
{
    pthread_mutex_init(&consent->lock, NULL);
    consent->udp = udp;
    consent->below = udp->op;
    consent->op = *udp->op;
    consent->op.attach = NULL;
    consent->op.attach2 = attach2;
    consent->op.detach = detach;
    consent->op.send_rtp = send_rtp;
    consent->op.send_rtcp = send_rtcp;
    consent->op.send_rtcp2 = send_rtcp2;
    udp->op = &consent->op;
}

void send_consent_destroy(send_consent_t *consent)
{
    pthread_mutex_destroy(&consent->lock);
}

/* ---- the state of the call ---- */

static bool is_confirmed(const pjsip_inv_session *inv)
{
    return inv->state == PJSIP_INV_STATE_CONFIRMED ||
           (inv->role == PJSIP_ROLE_UAC && inv->state == PJSIP_INV_STATE_CONNECTING);
}

void send_consent_update(send_consent_t *consent, const pjsip_inv_session *inv)
{
    pthread_mutex_lock(&consent->lock);
    if (inv->invite_tsx && inv->invite_tsx->addr.addr.sa_family)
        consent->signalling = inv->invite_tsx->addr;
    consent->confirmed = consent->confirmed || is_confirmed(inv);
    for (int channel = 0; channel < RTP_CHANNELS; channel++)
        set_target(consent, &consent->to[channel], &consent->to[channel].address);
    pthread_mutex_unlock(&consent->lock);
}

static void update_media(const pjsua_call_media *media, const pjsip_inv_session *inv)
{
    if (media->tp_orig && media->tp_orig->op->send_rtp == send_rtp)
        send_consent_update(consent_of(media->tp_orig), inv);
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

void send_consent_hook(pjsua_callback *callback)
{
    next_call_state = callback->on_call_state;
    callback->on_call_state = on_call_state;
}
