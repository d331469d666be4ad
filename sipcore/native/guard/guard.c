#define _GNU_SOURCE
#include "guard/guard.h"

#include "guard/connection_limit.h"
#include "guard/dialog_peers.h"
#include "guard/invite_rate_limit.h"
#include "guard/parse_errors.h"
#include "guard/response_source.h"
#include "guard/sdp_policy.h"
#include "net/drop_counters.h"
#include "net/force_close.h"
#include "net/host_table.h"
#include "net/ip_literal.h"
#include "net/ip_set.h"
#include "net/message_tap.h"
#include "net/monotonic_clock.h"
#include "net/source_acl.h"
#include "rtp/port_pool.h"
#include "rtp/srtp.h"
#include "sip/call_table.h"
#include "sip/dtmf_info.h"
#include "sip/glare.h"
#include "sip/replaces.h"
#include "sip/uas_conformance.h"
#include "tls/tls_listener.h"
#include "trunks/orphaned_dialog.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_TIMEOUT_MS 10000    /* time in which a connection has to send a whole message */
#define CHECK_INTERVAL_MS 500       /* between two checks for slow connections */

typedef char address_t[PJ_INET6_ADDRSTRLEN];

static struct {
    pthread_mutex_t lock;
    bool refuse_unknown, accepting;
    int retry_after_s, message_timeout_ms;
} guard = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .accepting = true, .retry_after_s = 10, .message_timeout_ms = MESSAGE_TIMEOUT_MS};

static pjsip_tp_state_callback next_state_callback;

void guard_set_message_timeout(int milliseconds)
{
    pthread_mutex_lock(&guard.lock);
    guard.message_timeout_ms = milliseconds;
    pthread_mutex_unlock(&guard.lock);
}

void guard_set_policy(bool refuse_unknown_with_403, bool accepting, int retry_after_s)
{
    pthread_mutex_lock(&guard.lock);
    guard.refuse_unknown = refuse_unknown_with_403;
    guard.accepting = accepting;
    guard.retry_after_s = retry_after_s;
    pthread_mutex_unlock(&guard.lock);
}

/* Out-of-dialog requests have no To tag (RFC 3261 8.2.2). */
static bool is_out_of_dialog(const pjsip_rx_data *rdata)
{
    return rdata->msg_info.to && rdata->msg_info.to->tag.slen == 0;
}

/* Tags alone do not identify a dialog, because every host on the path sees them: only the dialog's peers, and trunks, may send
 * requests in it. */
static bool is_in_dialog(const pjsip_rx_data *rdata, bool from_known)
{
    if (is_out_of_dialog(rdata) || !rdata->msg_info.from || !rdata->msg_info.cid)
        return false;
    pjsip_dialog *dialog = pjsip_ua_find_dialog(&rdata->msg_info.cid->id, &rdata->msg_info.to->tag,
                                                &rdata->msg_info.from->tag, PJ_TRUE);
    bool found = dialog && (from_known || dialog_peers_has(dialog, &rdata->pkt_info.src_addr));
    if (dialog)
        pjsip_dlg_dec_lock(dialog);
    return found;
}

/* True if the transaction's request came from this host. */
static bool is_from_same_host(pjsip_transaction *tsx, const pj_sockaddr *source)
{
    pj_sockaddr first;
    pj_grp_lock_acquire(tsx->grp_lock);
    bool same = ip_literal_parse(&tsx->res_addr.dst_host.addr.host, &first) && ip_same_host(&first, source);
    pj_grp_lock_release(tsx->grp_lock);
    return same;
}

/* True for a retransmission, and for the CANCEL or ACK of a request that we have (RFC 3261 17.2.3). */
static bool is_in_transaction(pjsip_rx_data *rdata, bool from_known)
{
    const pjsip_method *method = &rdata->msg_info.msg->line.req.method;
    pjsip_transaction *tsx = NULL;
    pj_str_t key;
    if (method->id == PJSIP_CANCEL_METHOD)
        method = pjsip_get_invite_method();
    if (pjsip_tsx_create_key(rdata->tp_info.pool, &key, PJSIP_ROLE_UAS, method, rdata) == PJ_SUCCESS)
        tsx = pjsip_tsx_layer_find_tsx2(&key, PJ_TRUE);
    if (!tsx)
        return false;
    bool found = from_known || is_from_same_host(tsx, &rdata->pkt_info.src_addr);
    pj_grp_lock_dec_ref(tsx->grp_lock);
    return found;
}

static void respond(pjsip_rx_data *rdata, int code, int retry_after_s)
{
    const pj_str_t allow = pj_str("Allow"), methods = pj_str("INVITE, ACK, CANCEL, BYE, OPTIONS");
    const bool options = rdata->msg_info.msg->line.req.method.id == PJSIP_OPTIONS_METHOD;
    pj_pool_t *pool = rdata->tp_info.pool;
    pjsip_hdr headers;
    pj_list_init(&headers);
    if (code == 503)
        pj_list_push_back(&headers, pjsip_retry_after_hdr_create(pool, retry_after_s));
    if (code == 405)
        pj_list_push_back(&headers, pjsip_generic_string_hdr_create(pool, &allow, &methods));
    if (options && code != 403)
        uas_add_capabilities(pool, &headers);
    pjsip_endpt_respond_stateless(pjsua_get_pjsip_endpt(), rdata, code, NULL, &headers, NULL);
}

/* Responses to a flood are not traced. */
static void respond_untraced(pjsip_rx_data *rdata, int code, int retry_after_s)
{
    tap_mute(true);
    respond(rdata, code, retry_after_s);
    tap_mute(false);
}

/* An unknown source's connection is closed after its response. */
static pj_bool_t reject_unknown(pjsip_rx_data *rdata, bool refuse)
{
    pjsip_transport *transport = rdata->tp_info.transport;
    if (refuse && rdata->msg_info.msg->line.req.method.id != PJSIP_ACK_METHOD)
        respond_untraced(rdata, 403, 0);
    if ((transport->flag & PJSIP_TRANSPORT_RELIABLE) && transport->dir == PJSIP_TP_DIR_INCOMING)
        pjsip_transport_shutdown(transport);
    return PJ_TRUE;
}

/* Methods that may come outside of dialogs (RFC 3261 8.2.1). PJSUA would send 200 to a MESSAGE that is never read. */
static bool may_be_out_of_dialog(pjsip_method_e method)
{
    return method == PJSIP_INVITE_METHOD || method == PJSIP_ACK_METHOD || method == PJSIP_CANCEL_METHOD;
}

static pj_bool_t pass_to_stack(pjsip_rx_data *rdata)
{
    host_table_pin_target(rdata);
    if (sdp_policy_accept(rdata)) {
        srtp_prefer_passive_dtls(rdata);
        return PJ_FALSE;
    }
    if (rdata->msg_info.msg->line.req.method.id == PJSIP_ACK_METHOD) {
        sdp_policy_strip(rdata);
        return PJ_FALSE;
    }
    sdp_policy_reject(rdata);
    return PJ_TRUE;
}

static pj_bool_t on_response(pjsip_rx_data *rdata)
{
    bool expected = source_acl_is_trunk(&rdata->pkt_info.src_addr) || response_is_from_target(rdata) ||
                    orphaned_dialog_expects(rdata);
    connection_limit_message_complete(rdata->tp_info.transport, expected);
    if (!expected) {
        drop_count(DROP_UNKNOWN_SOURCE, rdata->pkt_info.src_name);
        return PJ_TRUE;
    }
    if (response_matches_request(rdata))
        tap_received(rdata);
    glare_on_response(rdata);
    if (!sdp_policy_accept(rdata))
        sdp_policy_strip(rdata);
    host_table_pin_via(rdata);
    host_table_pin_target(rdata);
    return PJ_FALSE;
}

static bool take_invite_token(const pjsip_rx_data *rdata)
{
    ip_key_t address;
    return !ip_key_of(&rdata->pkt_info.src_addr, &address) || invite_rate_limit_take(&address, monotonic_ms());
}

/* Called for every request before the transaction layer; PJ_TRUE consumes it. Requests of an admitted call are accepted until
 * its end, even if its source is no longer known. */
static pj_bool_t on_request(pjsip_rx_data *rdata)
{
    const pjsip_method_e method = rdata->msg_info.msg->line.req.method.id;
    const char *source = rdata->pkt_info.src_name;
    const enum source_class source_class = source_acl_class(&rdata->pkt_info.src_addr);
    const bool known = source_class == SOURCE_TRUNK;
    const bool probe = source_class == SOURCE_PROBE && method == PJSIP_OPTIONS_METHOD;
    pthread_mutex_lock(&guard.lock);
    bool refuse = guard.refuse_unknown, accepting = guard.accepting;
    int retry_after_s = guard.retry_after_s;
    pthread_mutex_unlock(&guard.lock);
    bool in_call = is_in_dialog(rdata, known), forged_cancel = uas_is_forged_cancel(rdata);
    bool in_progress = in_call || (is_in_transaction(rdata, known) && !forged_cancel);
    bool admitted = known || in_progress || (probe && is_out_of_dialog(rdata));
    connection_limit_message_complete(rdata->tp_info.transport, admitted);

    if (!admitted) {
        drop_count(DROP_UNKNOWN_SOURCE, source);
        return reject_unknown(rdata, refuse);
    }
    rdata->msg_info.via->maddr_param.slen = 0; /* responses go to the source, not to a multicast group (RFC 3261 18.2.2) */
    if (!in_progress && method == PJSIP_INVITE_METHOD && accepting && !take_invite_token(rdata)) {
        drop_count(DROP_TOO_MANY_INVITES, source);
        respond_untraced(rdata, 503, INVITE_BURST_S);
        return PJ_TRUE;
    }
    tap_received(rdata);
    if (uas_is_malformed(rdata)) {
        if (method != PJSIP_ACK_METHOD)
            respond(rdata, 400, 0);
        return PJ_TRUE;
    }
    if (forged_cancel) {
        respond(rdata, 481, 0);
        return PJ_TRUE;
    }
    if (in_progress || !is_out_of_dialog(rdata)) {
        if (in_call && uas_handle_request(rdata))
            return PJ_TRUE;
        dtmf_info_normalize(rdata);
        return pass_to_stack(rdata);
    }
    if (method == PJSIP_OPTIONS_METHOD)
        respond(rdata, accepting ? 200 : 503, retry_after_s);
    else if (!may_be_out_of_dialog(method))
        respond(rdata, method == PJSIP_BYE_METHOD ? 481 : 405, 0);
    else if (method == PJSIP_INVITE_METHOD && !accepting && !replaces_is_requested(rdata)) /* Replaces adds no call */
        respond(rdata, 503, retry_after_s);
    else if (method == PJSIP_INVITE_METHOD && !port_pool_left()) {
        port_pool_count_exhaustion();
        respond(rdata, 503, retry_after_s);
    }
    else {
        call_table_make_room();
        return pass_to_stack(rdata);
    }
    return PJ_TRUE;
}

static void peer_of(const pjsip_transport *transport, address_t peer)
{
    pj_sockaddr_print(&transport->key.rem_addr, peer, sizeof(address_t), 0);
}

/* An unknown source's connection is closed at once, or after a 403: its connections never use up the sockets that calls
 * need. */
static bool admit_connection(pjsip_transport *transport)
{
    address_t peer = {0};
    ip_key_t address;
    peer_of(transport, peer);
    if (!ip_key_of(&transport->key.rem_addr, &address))
        return false;
    const bool known = source_acl_has(&transport->key.rem_addr);
    pthread_mutex_lock(&guard.lock);
    bool allowed = known || guard.refuse_unknown; /* a source that is to get 403 must be able to send a request */
    if (!allowed)
        drop_count(DROP_UNKNOWN_SOURCE, peer);
    pthread_mutex_unlock(&guard.lock);
    if (allowed && !connection_limit_add(transport, &address, !known, monotonic_ms())) {
        drop_count(DROP_TOO_MANY_CONNECTIONS, peer);
        return false;
    }
    return allowed;
}

static void on_transport_state(pjsip_transport *transport, pjsip_transport_state state, const pjsip_transport_state_info *info)
{
    if (state == PJSIP_TP_STATE_CONNECTED && transport->dir == PJSIP_TP_DIR_INCOMING && !admit_connection(transport))
        force_close(transport);
    if (state == PJSIP_TP_STATE_DISCONNECTED || state == PJSIP_TP_STATE_DESTROY)
        connection_limit_remove(transport);
    tls_on_transport_state(transport, state, info);
    if (next_state_callback)
        next_state_callback(transport, state, info);
}

static pj_status_t on_data(pjsip_tp_rx_data *data)
{
    connection_limit_message_started(data->tp, monotonic_ms());
    return PJ_SUCCESS;
}

/* On PJSIP's worker thread, as every close of a connection. */
static void close_slow_connections(pj_timer_heap_t *heap, pj_timer_entry *timer)
{
    const pj_time_val again = {0, CHECK_INTERVAL_MS};
    pjsip_transport *slow;
    (void)heap;
    pthread_mutex_lock(&guard.lock);
    int message_timeout_ms = guard.message_timeout_ms;
    pthread_mutex_unlock(&guard.lock);
    while ((slow = connection_limit_next_slow(monotonic_ms(), message_timeout_ms))) {
        address_t peer = {0};
        peer_of(slow, peer);
        drop_count(DROP_SLOW_CONNECTION, peer);
        force_close(slow);
        pjsip_transport_dec_ref(slow);
    }
    tls_listener_reject_unknown();
    pjsip_endpt_schedule_timer(pjsua_get_pjsip_endpt(), timer, &again);
}

static pj_timer_entry slow_connection_timer;

static pjsip_module module = {
    .name = {"mod-trunkline-guard", 19},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TRANSPORT_LAYER + 2,
    .on_rx_request = on_request,
    .on_rx_response = on_response,
};

int guard_install(void)
{
    pjsip_tpmgr *transports = pjsip_endpt_get_tpmgr(pjsua_get_pjsip_endpt());
    connection_limit_clear();
    if (pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) != PJ_SUCCESS)
        return -1;
    glare_install();
    if (uas_install() != 0 || dialog_peers_install() != 0)
        return -1;
    next_state_callback = pjsip_tpmgr_get_state_cb(transports);
    if (pjsip_tpmgr_set_state_cb(transports, on_transport_state) != PJ_SUCCESS)
        return -1;
    pjsip_tpmgr_set_recv_data_cb(transports, on_data);
    pj_timer_entry_init(&slow_connection_timer, 0, NULL, close_slow_connections);
    close_slow_connections(NULL, &slow_connection_timer);
    return parse_errors_install(transports) == PJ_SUCCESS ? 0 : -1;
}

void guard_remove(void)
{
    uas_remove();
    dialog_peers_remove();
    if (module.id == -1)
        return;
    pjsip_endpt_cancel_timer(pjsua_get_pjsip_endpt(), &slow_connection_timer);
    connection_limit_clear();
    pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
}
