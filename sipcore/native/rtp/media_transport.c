#define _GNU_SOURCE
#include "rtp/media_transport.h"

#include "net/ip_literal.h"
#include "net/monotonic_clock.h"
#include "net/sdp.h"
#include "rtp/bpf_source_filter.h"
#include "rtp/port_pool.h"
#include "rtp/rtp_packet.h"
#include "rtp/rtp_reader.h"
#include "rtp/send_consent.h"
#include "rtp/source_lock.h"
#include "rtp/srtp.h"

#include <pjsua-lib/pjsua_internal.h>

typedef struct adapter {
    pjmedia_transport base;
    pj_pool_t *pool;
    pjmedia_transport *slave;       /* SRTP, which passes everything in a call without it */
    pjmedia_transport *udp;         /* below that: it knows the sockets and the source of each packet */
    pjsua_call_id call;
    send_consent_t consent;         /* in front of its sockets */
    rtp_stats_t *stats;
    _Atomic uint32_t kernel_drops;  /* that `stats` counts already */

    pthread_mutex_t lock;           /* guards what follows; no callback runs while it is held */
    source_lock_t source;
    bool negotiated, held;          /* media has been negotiated; by the latest SDP, the peer need not send any */
    pjmedia_transport_attach_param stream; /* the stream's own callbacks; without user_data there is no stream */
    pj_sockaddr rtp_target, rtcp_target;
} adapter_t;

static _Atomic bool symmetric = true;
static _Atomic(rtp_stats_source_t *) stats_source;

void media_transport_continue_stats(rtp_stats_source_t *source)
{
    atomic_store(&stats_source, source);
}

void media_transport_set_symmetric(bool on)
{
    atomic_store(&symmetric, on);
}

/* ---- the peer ---- */

/* The address that the INVITE came from, or was sent to, from its transaction. */
static void update_signalling(adapter_t *adapter)
{
    const pjsip_inv_session *inv = pjsua_var.calls[adapter->call].inv;
    if (!inv)
        return;
    send_consent_update(&adapter->consent, inv);
    if (!inv->invite_tsx)
        return;
    pthread_mutex_lock(&adapter->lock);
    pj_sockaddr_cp(&adapter->source.signalling, &inv->invite_tsx->addr);
    pthread_mutex_unlock(&adapter->lock);
}

static pjmedia_transport_info info_of(const adapter_t *adapter)
{
    pjmedia_transport_info info;
    pjmedia_transport_info_init(&info);
    pjmedia_transport_get_info(adapter->udp, &info);
    return info;
}

static uint16_t local_port(const adapter_t *adapter)
{
    pjmedia_transport_info info = info_of(adapter);
    return pj_sockaddr_get_port(&info.sock_info.rtp_addr_name);
}

static void filter_hosts(adapter_t *adapter, const pj_sockaddr *announced)
{
    pjmedia_transport_info info = info_of(adapter);
    bpf_source_filter_attach(info.sock_info.rtp_sock, announced, &adapter->source.signalling);
    bpf_source_filter_attach(info.sock_info.rtcp_sock, announced, &adapter->source.signalling);
}

/* Called by the threads that send and that end streams. If one counts too much because it has read the counter earlier, the
 * other counts a negative number. */
static void count_kernel_drops(adapter_t *adapter)
{
    uint32_t drops = bpf_source_filter_drops(info_of(adapter).sock_info.rtp_sock);
    if (drops)
        rtp_stats_kernel_dropped(adapter->stats, (int32_t)(drops - atomic_exchange(&adapter->kernel_drops, drops)));
}

/* ---- the address that packets are sent to ---- */

/* The lock is held. Follows the source lock; true if packets must be sent to another address from now on. */
static bool update_targets(adapter_t *adapter)
{
    pj_sockaddr rtp, rtcp;
    if (!adapter->stream.user_data || !atomic_load(&symmetric))
        return false;
    source_lock_targets(&adapter->source, &rtp, &rtcp);
    if (pj_sockaddr_cmp(&rtp, &adapter->rtp_target) == 0 && pj_sockaddr_cmp(&rtcp, &adapter->rtcp_target) == 0)
        return false;
    pj_sockaddr_cp(&adapter->rtp_target, &rtp);
    pj_sockaddr_cp(&adapter->rtcp_target, &rtcp);
    return true;
}

static void on_rtp(pjmedia_tp_cb_param *param);
static void on_rtcp(void *user_data, void *packet, pj_ssize_t size);

static pj_status_t attach_slave(adapter_t *adapter)
{
    pjmedia_transport_attach_param param = adapter->stream;
    pj_sockaddr_cp(&param.rem_addr, &adapter->rtp_target);
    pj_sockaddr_cp(&param.rem_rtcp, &adapter->rtcp_target);
    param.user_data = adapter;
    param.rtp_cb = NULL;
    param.rtp_cb2 = on_rtp;
    param.rtcp_cb = on_rtcp;
    return pjmedia_transport_attach2(adapter->slave, &param);
}

/* Called by the thread that reads the sockets. The transport below learns targets only by being attached to; the group
 * lock makes a detachment that has begun meanwhile come second. */
static void follow_source(adapter_t *adapter)
{
    pj_grp_lock_acquire(adapter->base.grp_lock);
    pthread_mutex_lock(&adapter->lock);
    bool moved = update_targets(adapter);
    pthread_mutex_unlock(&adapter->lock);
    if (moved && attach_slave(adapter) != PJ_SUCCESS)
        PJ_LOG(1, ("rtp", "Call %d: cannot send to the source of the peer's RTP", adapter->call));
    pj_grp_lock_release(adapter->base.grp_lock);
}

/* ---- received packets ---- */

/* The stream gets no source address: it has a policy of its own for other sources. */
static void deliver(adapter_t *adapter, const pjmedia_tp_cb_param *param)
{
    pthread_mutex_lock(&adapter->lock);
    pjmedia_transport_attach_param stream = adapter->stream;
    pthread_mutex_unlock(&adapter->lock);
    pjmedia_tp_cb_param packet_param = *param;
    packet_param.user_data = stream.user_data;
    packet_param.src_addr = NULL;
    if (stream.user_data && stream.rtp_cb2)
        stream.rtp_cb2(&packet_param);
    else if (stream.user_data && stream.rtp_cb)
        stream.rtp_cb(stream.user_data, param->pkt, param->size);
}

static void receive_rtcp(adapter_t *adapter, const pj_sockaddr *from, uint8_t *packet, pj_ssize_t size)
{
    pthread_mutex_lock(&adapter->lock);
    enum rtp_verdict verdict = source_lock_on_rtcp(&adapter->source, from, rtp_32(packet + 4));
    const bool may_be_peer = source_lock_may_be_peer(&adapter->source, from);
    pjmedia_transport_attach_param stream = adapter->stream;
    pthread_mutex_unlock(&adapter->lock);
    if (verdict == RTP_DROP) {
        if (!may_be_peer)
            rtp_stats_dropped(adapter->stats, false);
        return;
    }
    rtp_stats_rtcp_received(adapter->stats, packet, (size_t)size, rtp_reader_arrival_ns());
    if (verdict == RTP_ACCEPT_NEW_SOURCE)
        follow_source(adapter);
    if (stream.user_data && stream.rtcp_cb)
        stream.rtcp_cb(stream.user_data, packet, size);
}

static void on_rtp(pjmedia_tp_cb_param *param)
{
    adapter_t *adapter = param->user_data;
    if (!adapter)
        return; /* it is being detached */
    if (param->size < 0) {
        deliver(adapter, param); /* an error */
        return;
    }
    pj_sockaddr from;
    pj_sockaddr_cp(&from, param->src_addr); /* attaching wipes the original */
    if (rtp_is_rtcp(param->pkt, param->size)) {
        receive_rtcp(adapter, &from, param->pkt, param->size);
        return;
    }
    if (!rtp_is_rtp(param->pkt, param->size)) {
        rtp_stats_dropped(adapter->stats, true);
        return;
    }
    const int64_t now_ns = rtp_reader_arrival_ns();
    const rtp_arrival_t packet = {rtp_ssrc(param->pkt), rtp_16((const uint8_t *)param->pkt + 2), now_ns};
    pthread_mutex_lock(&adapter->lock);
    enum rtp_verdict verdict = source_lock_on_rtp(&adapter->source, &from, &packet);
    const int reclassified = source_lock_take_reclassified(&adapter->source);
    pthread_mutex_unlock(&adapter->lock);
    if (reclassified)
        rtp_stats_reclassified(adapter->stats, reclassified);
    if (verdict == RTP_DROP) {
        rtp_stats_dropped(adapter->stats, false);
        return;
    }
    rtp_stats_received(adapter->stats, param->pkt, (size_t)param->size, now_ns);
    if (verdict == RTP_ACCEPT_NEW_SOURCE)
        follow_source(adapter);
    deliver(adapter, param);
}

static void on_rtcp(void *user_data, void *packet, pj_ssize_t size)
{
    adapter_t *adapter = user_data;
    if (!adapter || size < 0)
        return;
    if (!rtp_is_rtcp(packet, size)) {
        rtp_stats_dropped(adapter->stats, true);
        return;
    }
    pjmedia_transport_info info = info_of(adapter);
    receive_rtcp(adapter, &info.src_rtcp_name, packet, size);
}

/* ---- the operations of a transport ---- */

static pj_status_t get_info(pjmedia_transport *tp, pjmedia_transport_info *info)
{
    return pjmedia_transport_get_info(((adapter_t *)tp)->slave, info);
}

/* A stream begins: the media is new, or a re-INVITE or UPDATE has changed it. */
static pj_status_t attach(pjmedia_transport *tp, pjmedia_transport_attach_param *param)
{
    adapter_t *adapter = (adapter_t *)tp;
    pj_sockaddr rtcp;
    pj_sockaddr_cp(&rtcp, &param->rem_addr);
    if (pj_sockaddr_has_addr(&param->rem_rtcp))
        pj_sockaddr_cp(&rtcp, &param->rem_rtcp);
    else
        pj_sockaddr_set_port(&rtcp, (pj_uint16_t)(pj_sockaddr_get_port(&param->rem_addr) + 1));
    update_signalling(adapter);
    filter_hosts(adapter, &param->rem_addr);
    rtp_stats_begin_stream(adapter->stats);
    pthread_mutex_lock(&adapter->lock);
    const bool held = adapter->held || !pj_sockaddr_has_addr(&param->rem_addr); /* RFC 3264, 8.4: the old way to hold */
    source_lock_open(&adapter->source, &param->rem_addr, &rtcp, held, monotonic_ns());
    adapter->negotiated = true;
    adapter->stream = *param;
    pj_sockaddr_cp(&adapter->rtp_target, &param->rem_addr);
    pj_sockaddr_cp(&adapter->rtcp_target, &rtcp);
    pthread_mutex_unlock(&adapter->lock);
    return attach_slave(adapter);
}

static void detach(pjmedia_transport *tp, void *stream)
{
    adapter_t *adapter = (adapter_t *)tp;
    PJ_UNUSED_ARG(stream);
    pthread_mutex_lock(&adapter->lock);
    bool attached = adapter->stream.user_data != NULL;
    pj_bzero(&adapter->stream, sizeof adapter->stream);
    pthread_mutex_unlock(&adapter->lock);
    if (!attached)
        return;
    count_kernel_drops(adapter);
    pjmedia_transport_detach(adapter->slave, adapter);
}

static pj_status_t send_rtp(pjmedia_transport *tp, const void *packet, pj_size_t size)
{
    adapter_t *adapter = (adapter_t *)tp;
    if (!send_consent_admit(&adapter->consent, RTP_CHANNEL, monotonic_ns()))
        return PJ_SUCCESS;
    if (size >= RTP_HEADER)
        rtp_stats_sent(adapter->stats, packet);
    return pjmedia_transport_send_rtp(adapter->slave, packet, size);
}

/* PJMEDIA measures jitter at the delivery of packets, which is later than their arrival. */
static pj_status_t send_rtcp2(pjmedia_transport *tp, const pj_sockaddr_t *to, unsigned length, const void *original,
                              pj_size_t size)
{
    adapter_t *adapter = (adapter_t *)tp;
    uint8_t packet[PJMEDIA_MAX_MTU];
    if (size > sizeof packet)
        return PJ_ETOOBIG;
    memcpy(packet, original, size);
    rtp_stats_write_jitter(adapter->stats, packet, size);
    if (!to && !send_consent_admit(&adapter->consent, RTCP_CHANNEL, monotonic_ns()))
        return PJ_SUCCESS;
    rtp_stats_rtcp_sent(adapter->stats, packet, size, monotonic_ns());
    count_kernel_drops(adapter);
    if (!to)
        return pjmedia_transport_send_rtcp(adapter->slave, packet, size);
    return pjmedia_transport_send_rtcp2(adapter->slave, to, length, packet, size);
}

static pj_status_t send_rtcp(pjmedia_transport *tp, const void *packet, pj_size_t size)
{
    return send_rtcp2(tp, NULL, 0, packet, size);
}

static void filter_before_answer(adapter_t *adapter, const pjmedia_sdp_session *remote, unsigned media)
{
    const pjmedia_sdp_conn *conn = remote->media[media]->conn ? remote->media[media]->conn : remote->conn;
    pj_sockaddr announced;
    update_signalling(adapter);
    if (conn && ip_literal_parse(&conn->addr, &announced) && pj_sockaddr_has_addr(&announced))
        filter_hosts(adapter, &announced);
}

static pj_status_t media_create(pjmedia_transport *tp, pj_pool_t *pool, unsigned options, const pjmedia_sdp_session *remote,
                                unsigned media)
{
    adapter_t *adapter = (adapter_t *)tp;
    if (remote && media < remote->media_count)
        filter_before_answer(adapter, remote, media);
    return pjmedia_transport_media_create(adapter->slave, pool, options, remote, media);
}

static pj_status_t encode_sdp(pjmedia_transport *tp, pj_pool_t *pool, pjmedia_sdp_session *local,
                              const pjmedia_sdp_session *remote, unsigned media)
{
    return pjmedia_transport_encode_sdp(((adapter_t *)tp)->slave, pool, local, remote, media);
}

/* Music on hold comes from the peer's former source, or from the announced address. A peer that has been sendonly from the
 * beginning does not hold the call. */
static pj_status_t media_start(pjmedia_transport *tp, pj_pool_t *pool, const pjmedia_sdp_session *local,
                               const pjmedia_sdp_session *remote, unsigned media)
{
    adapter_t *adapter = (adapter_t *)tp;
    update_signalling(adapter);
    const pjmedia_dir peers = media < remote->media_count ? sdp_direction(remote, media) : PJMEDIA_DIR_NONE;
    pthread_mutex_lock(&adapter->lock);
    adapter->held = !(peers & PJMEDIA_DIR_ENCODING) || (adapter->negotiated && !(peers & PJMEDIA_DIR_DECODING));
    pthread_mutex_unlock(&adapter->lock);
    return pjmedia_transport_media_start(adapter->slave, pool, local, remote, media);
}

static pj_status_t media_stop(pjmedia_transport *tp)
{
    adapter_t *adapter = (adapter_t *)tp;
    rtp_reader_pause(adapter->udp);
    return pjmedia_transport_media_stop(adapter->slave);
}

static pj_status_t simulate_lost(pjmedia_transport *tp, pjmedia_dir direction, unsigned percent)
{
    return pjmedia_transport_simulate_lost(((adapter_t *)tp)->slave, direction, percent);
}

static void on_destroyed(void *user_data)
{
    adapter_t *adapter = user_data;
    rtp_stats_release(adapter->stats);
    send_consent_destroy(&adapter->consent);
    pthread_mutex_destroy(&adapter->lock);
    pj_pool_release(adapter->pool);
}

static pj_status_t destroy(pjmedia_transport *tp)
{
    adapter_t *adapter = (adapter_t *)tp;
    uint16_t port = local_port(adapter);
    rtp_reader_pause(adapter->udp);
    pjmedia_transport_close(adapter->slave);
    port_pool_release(port);
    pj_grp_lock_dec_ref(adapter->base.grp_lock);
    return PJ_SUCCESS;
}

static pjmedia_transport_op operations = {
    .get_info = get_info,
    .detach = detach,
    .send_rtp = send_rtp,
    .send_rtcp = send_rtcp,
    .send_rtcp2 = send_rtcp2,
    .media_create = media_create,
    .encode_sdp = encode_sdp,
    .media_start = media_start,
    .media_stop = media_stop,
    .simulate_lost = simulate_lost,
    .destroy = destroy,
    .attach2 = attach,
};

/* The call that a new call will replace (RFC 3891), PJSUA_INVALID_ID for none: PJSUA lets both have the same user data
 * until pjsua2 sets it; no other two calls ever have. */
static pjsua_call_id replaced_by(pjsua_call_id call)
{
    const void *owner = pjsua_var.calls[call].user_data;
    for (int i = 0; owner && i < (int)pjsua_var.ua_cfg.max_calls; i++)
        if (i != call && pjsua_var.calls[i].inv && pjsua_var.calls[i].user_data == owner)
            return i;
    return PJSUA_INVALID_ID;
}

/* A re-INVITE may replace the transport, Replaces the call: the statistics go on. */
static rtp_stats_t *stats_for(pjsua_call_id call)
{
    pjsua_call_id before = replaced_by(call);
    rtp_stats_source_t *source = atomic_load(&stats_source);
    rtp_stats_t *stats = source ? source(before == PJSUA_INVALID_ID ? call : before) : NULL;
    return stats ? stats : rtp_stats_create();
}

/* Without memory PJSUA rejects the call: there is no transport without a source lock. */
pjmedia_transport *media_transport_create(pjsua_call_id call, unsigned media, pjmedia_transport *slave, unsigned flags)
{
    pj_pool_t *pool = pjsua_pool_create("trunkline-rtp", sizeof(adapter_t) + 512, 512);
    rtp_stats_t *stats = stats_for(call);
    pjmedia_transport *udp = pjsua_var.calls[call].media_prov[media].tp_orig;
    PJ_UNUSED_ARG(flags);
    if (!pool || !stats || !slave->grp_lock || !rtp_reader_install(udp, stats)) {
        rtp_stats_release(stats);
        if (pool)
            pj_pool_release(pool);
        pjmedia_transport_close(slave);
        return NULL;
    }
    srtp_apply_requirement(slave);
    adapter_t *adapter = PJ_POOL_ZALLOC_T(pool, adapter_t);
    pj_ansi_strxcpy(adapter->base.name, pool->obj_name, sizeof adapter->base.name);
    adapter->base.type = (pjmedia_transport_type)(PJMEDIA_TRANSPORT_TYPE_USER + 1);
    adapter->base.op = &operations;
    adapter->pool = pool;
    adapter->slave = slave;
    adapter->udp = udp;
    send_consent_install(&adapter->consent, adapter->udp);
    adapter->call = call;
    adapter->stats = stats;
    pthread_mutex_init(&adapter->lock, NULL);
    adapter->base.grp_lock = slave->grp_lock;
    pj_grp_lock_add_ref(slave->grp_lock);
    pj_grp_lock_add_handler(slave->grp_lock, pool, adapter, on_destroyed);
    port_pool_acquire(local_port(adapter));
    return &adapter->base;
}

rtp_stats_t *media_transport_stats(pjsua_call_id call, unsigned media)
{
    const pjmedia_transport *tp = pjsua_var.calls[call].media[media].tp;
    return tp && tp->op == &operations ? rtp_stats_add_ref(((const adapter_t *)tp)->stats) : NULL;
}

bool media_transport_allows_speech(pjmedia_transport *tp, int64_t now_ns)
{
    return !tp || tp->op != &operations || send_consent_allows_speech(&((adapter_t *)tp)->consent, now_ns);
}

void media_transport_set_phase(pjmedia_transport *tp, int phase)
{
    if (tp && tp->op == &operations)
        rtp_reader_set_phase(((adapter_t *)tp)->udp, phase);
}
