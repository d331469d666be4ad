#define _GNU_SOURCE
#include "sip/local_address.h"

#include "net/host_table.h"
#include "net/ip_literal.h"
#include "net/sdp.h"
#include "tls/tls_listener.h"
#include "tls/certificate_name_mismatch.h"

#include <pjsua-lib/pjsua_internal.h>
#include <pthread.h>
#include <string.h>

#define MAX_NAMES 64 /* local addresses that can ever be used */

static struct {
    pthread_mutex_t lock;
    pj_sockaddr bound, public_address; /* without a family: none */
    ip_set_t *local;
    char names[MAX_NAMES][PJ_INET6_ADDRSTRLEN];
    int count;
    pjsua_acc_id v4, v6;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .v4 = PJSUA_INVALID_ID, .v6 = PJSUA_INVALID_ID};

/* ---- which address ---- */

static pj_sockaddr parse_address(const char *text)
{
    pj_sockaddr address;
    const pj_str_t host = pj_str((char *)text);
    ip_literal_parse(&host, &address); /* all zero when it is none */
    return address;
}

void local_address_set(const char *bound, const char *public_address, ip_set_t *local)
{
    pthread_mutex_lock(&state.lock);
    state.bound = parse_address(bound);
    state.public_address = parse_address(public_address);
    ip_set_free(state.local);
    state.local = local;
    pthread_mutex_unlock(&state.lock);
}

/* The source address of the route: a connected UDP socket knows it, and no packet is sent. */
static bool address_on_route(const pj_sockaddr *peer, pj_sockaddr *ours)
{
    pj_sockaddr remote;
    pj_sock_t sock;
    int length = sizeof *ours;
    pj_sockaddr_cp(&remote, peer);
    pj_sockaddr_set_port(&remote, 9);
    if (pj_sock_socket(remote.addr.sa_family, pj_SOCK_DGRAM(), 0, &sock) != PJ_SUCCESS)
        return false;
    bool found = pj_sock_connect(sock, &remote, pj_sockaddr_get_len(&remote)) == PJ_SUCCESS &&
                 pj_sock_getsockname(sock, ours, &length) == PJ_SUCCESS;
    pj_sock_close(sock);
    return found;
}

/* The lock is held. */
static bool is_local(const pj_sockaddr *peer)
{
    ip_key_t key;
    return ip_key_of(peer, &key) && ip_set_contains(state.local, &key);
}

bool local_address_towards(const pj_sockaddr *peer, pj_sockaddr *ours)
{
    const int family = peer->addr.sa_family;
    pthread_mutex_lock(&state.lock);
    const bool is_public = state.public_address.addr.sa_family == family && !is_local(peer);
    const pj_sockaddr *configured = is_public ? &state.public_address : &state.bound;
    pj_sockaddr known = *configured;
    pthread_mutex_unlock(&state.lock);
    if (known.addr.sa_family == 0)
        return pj_sockaddr_has_addr(peer) && address_on_route(peer, ours);
    pj_sockaddr_cp(ours, &known);
    return known.addr.sa_family == family;
}

/* The address as text that is never freed: headers and dialogs keep pointers to it. NULL if there are too many. */
static const char *interned_name(const pj_sockaddr *address)
{
    char text[PJ_INET6_ADDRSTRLEN];
    pj_sockaddr_print(address, text, sizeof text, 0);
    pthread_mutex_lock(&state.lock);
    int i = 0;
    while (i < state.count && strcmp(state.names[i], text) != 0)
        i++;
    if (i == state.count && i < MAX_NAMES)
        strcpy(state.names[state.count++], text);
    pthread_mutex_unlock(&state.lock);
    return i < MAX_NAMES ? state.names[i] : NULL;
}

/* ---- outgoing messages ---- */

static pjsip_sip_uri *contact_uri(const pjsip_contact_hdr *contact)
{
    pjsip_uri *uri = contact->star || !contact->uri ? NULL : pjsip_uri_get_uri(contact->uri);
    return uri && (PJSIP_URI_SCHEME_IS_SIP(uri) || PJSIP_URI_SCHEME_IS_SIPS(uri)) ? (pjsip_sip_uri *)uri : NULL;
}

static bool is_unregistration(const pjsip_msg *msg)
{
    const pjsip_expires_hdr *expires = pjsip_msg_find_hdr(msg, PJSIP_H_EXPIRES, NULL);
    return msg->type == PJSIP_REQUEST_MSG && msg->line.req.method.id == PJSIP_REGISTER_METHOD && expires && !expires->ivalue;
}

/* Only the host is replaced, in PJSIP's own headers: a registration finds its Contact in the registrar's response, and an ACK
 * the Via of its INVITE. */
static void set_contact_hosts(pjsip_msg *msg, const pj_str_t *host)
{
    pjsip_contact_hdr *contact = NULL;
    while ((contact = pjsip_msg_find_hdr(msg, PJSIP_H_CONTACT, contact ? contact->next : NULL))) {
        pjsip_sip_uri *uri = contact_uri(contact);
        if (uri)
            uri->host = *host;
        if (contact->next == (void *)&msg->hdr)
            return;
    }
}

/* Without a listener, the way back is our outbound connection, so the Contact names its port, and TLS. A registration is
 * removed under the port that it was made with; one that is renewed over another connection has the former Contact behind
 * it, which may have got the same port once more. */
static void set_contact_connection(pjsip_tx_data *tdata)
{
    const pjsip_transport *transport = tdata->tp_info.transport;
    pjsip_msg *msg = tdata->msg;
    pjsip_contact_hdr *contact = pjsip_msg_find_hdr(msg, PJSIP_H_CONTACT, NULL);
    pjsip_sip_uri *uri = contact ? contact_uri(contact) : NULL;
    if (!uri || !transport || !(transport->flag & PJSIP_TRANSPORT_SECURE) || tls_listener_accepts() || is_unregistration(msg))
        return;
    uri->port = pj_sockaddr_get_port(&transport->local_addr);
    uri->transport_param = pj_str("TLS");
    pjsip_contact_hdr *former = pjsip_msg_find_hdr(msg, PJSIP_H_CONTACT, contact->next);
    if (former && former != contact && contact_uri(former) &&
        pjsip_uri_cmp(PJSIP_URI_IN_CONTACT_HDR, uri, contact_uri(former)) == PJ_SUCCESS)
        pj_list_erase(former);
}

/* The offer of an initial INVITE is written before PJSIP knows the INVITE's destination. */
static void set_offer_address(pjsip_tx_data *tdata, const pj_sockaddr *ours)
{
    const pjsip_to_hdr *to = PJSIP_MSG_TO_HDR(tdata->msg);
    const pjsip_msg_body *body = tdata->msg->body;
    if (tdata->msg->line.req.method.id == PJSIP_INVITE_METHOD && to && !to->tag.slen && body &&
        pj_stricmp2(&body->content_type.subtype, "sdp") == 0 && body->print_body != &pjsip_print_text_body)
        sdp_set_address(body->data, tdata->pool, ours);
}

static pj_status_t on_tx_request(pjsip_tx_data *tdata)
{
    pj_sockaddr ours;
    if (!tls_name_mismatch_admit_request(tdata))
        return PJSIP_TLS_ECERTVERIF;
    const char *name = local_address_towards(&tdata->tp_info.dst_addr, &ours) ? interned_name(&ours) : NULL;
    pjsip_via_hdr *via = pjsip_msg_find_hdr(tdata->msg, PJSIP_H_VIA, NULL);
    if (!name)
        return PJ_SUCCESS;
    const pj_str_t host = pj_str((char *)name);
    if (via)
        via->sent_by.host = host;
    set_contact_hosts(tdata->msg, &host);
    set_contact_connection(tdata);
    set_offer_address(tdata, &ours);
    return PJ_SUCCESS;
}

static pj_status_t on_tx_response(pjsip_tx_data *tdata)
{
    pj_sockaddr ours;
    const char *name = local_address_towards(&tdata->tp_info.dst_addr, &ours) ? interned_name(&ours) : NULL;
    if (!name)
        return PJ_SUCCESS;
    const pj_str_t host = pj_str((char *)name);
    set_contact_hosts(tdata->msg, &host);
    set_contact_connection(tdata);
    return PJ_SUCCESS;
}

static pjsip_module module = {
    .name = {"mod-trunkline-address", 21},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TRANSPORT_LAYER + 2, /* before the message is printed */
    .on_tx_request = on_tx_request,
    .on_tx_response = on_tx_response,
};

int local_address_install(void)
{
    return pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

void local_address_remove(void)
{
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
    local_address_set_accounts(PJSUA_INVALID_ID, PJSUA_INVALID_ID);
}

/* ---- the SDP of a call ---- */

/* Destination of an outbound INVITE: its first Route, which is the account's until the dialog has a route set. */
static pj_bool_t callee_address(pjsua_call_id call, pj_sockaddr *address)
{
    const pjsua_call *outbound = &pjsua_var.calls[call];
    /* The offer of an outbound call is written before its INVITE session exists. */
    pjsip_dialog *dialog = outbound->inv ? outbound->inv->dlg : outbound->async_call.dlg;
    if (!dialog)
        return PJ_FALSE;
    const pj_bool_t begun = !pj_list_empty(&dialog->route_set) || dialog->state == PJSIP_DIALOG_STATE_ESTABLISHED;
    const pjsip_route_hdr *routes = begun ? &dialog->route_set : &pjsua_var.acc[outbound->acc_id].route_set;
    pjsip_uri *next = pj_list_empty(routes) ? dialog->target : routes->next->name_addr.uri;
    if (!next || !(PJSIP_URI_SCHEME_IS_SIP(next) || PJSIP_URI_SCHEME_IS_SIPS(next)))
        return PJ_FALSE;
    return host_table_address_of(pjsip_uri_get_uri(next), address);
}

static pj_bool_t remote_address(pjsua_call_id call, const pjmedia_sdp_session *remote, pj_sockaddr *address)
{
    if (!remote)
        return callee_address(call, address);
    const pjmedia_sdp_conn *conn = remote->conn || !remote->media_count ? remote->conn : remote->media[0]->conn;
    return conn && ip_literal_parse(&conn->addr, address);
}

/* 0.0.0.0 was the way to hold a call (RFC 2543). */
void local_address_on_sdp_created(pjsua_call_id call, pjmedia_sdp_session *sdp, pj_pool_t *pool,
                                  const pjmedia_sdp_session *remote)
{
    pj_sockaddr peer, ours;
    pj_bool_t known = remote_address(call, remote, &peer);
    if (remote && (!known || !pj_sockaddr_has_addr(&peer)))
        known = remote_address(call, NULL, &peer);
    if (known && local_address_towards(&peer, &ours))
        sdp_set_address(sdp, pool, &ours);
}

/* ---- which version of IP ---- */

void local_address_set_accounts(pjsua_acc_id v4, pjsua_acc_id v6)
{
    pthread_mutex_lock(&state.lock);
    state.v4 = v4;
    state.v6 = v6;
    pthread_mutex_unlock(&state.lock);
}

static bool is_v6(const pjmedia_sdp_conn *conn)
{
    return conn && pj_stricmp2(&conn->addr_type, "IP6") == 0;
}

/* Of the first media stream. */
static bool uses_v6(const pjmedia_sdp_session *sdp)
{
    const pjmedia_sdp_conn *own = sdp->media_count ? sdp->media[0]->conn : NULL;
    return is_v6(own ? own : sdp->conn);
}

void local_address_choose_account(const pjsip_rx_data *rdata, pjsua_acc_id *account)
{
    const pjmedia_sdp_session *sdp =
        rdata->msg_info.msg->body ? pjsip_rdata_get_sdp_info((pjsip_rx_data *)rdata)->sdp : NULL;
    bool v6 = sdp ? uses_v6(sdp) : rdata->pkt_info.src_addr.addr.sa_family == pj_AF_INET6();
    if (*account >= 0 && (pjsua_var.acc[*account].cfg.ipv6_media_use == PJSUA_IPV6_ENABLED_USE_IPV6_ONLY) == v6)
        return;
    pthread_mutex_lock(&state.lock);
    pjsua_acc_id other = v6 ? state.v6 : state.v4;
    pthread_mutex_unlock(&state.lock);
    if (other != PJSUA_INVALID_ID)
        *account = other;
}

bool local_address_has_version_of(const pjmedia_sdp_session *sdp)
{
    pthread_mutex_lock(&state.lock);
    bool has_account = (uses_v6(sdp) ? state.v6 : state.v4) != PJSUA_INVALID_ID;
    pthread_mutex_unlock(&state.lock);
    return has_account;
}
