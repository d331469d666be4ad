#define _GNU_SOURCE
#include "sdp.h"

#include "names.h"

#include <pjsua-lib/pjsua.h>
#include <pjsua-lib/pjsua_internal.h>

/* Sockets that are bound to every address would otherwise offer the host's first one, which is wrong on a machine with
 * several networks (RFC 4566 5.7: c= is where this session's media is received). */
static pj_bool_t follow_route = PJ_FALSE;

void sdp_follow_route(pj_bool_t on)
{
    follow_route = on;
}

pj_bool_t sdp_parse_address(const pj_str_t *host, pj_sockaddr *address)
{
    const int families[] = {pj_AF_INET(), pj_AF_INET6()};
    pj_bzero(address, sizeof *address);
    for (int i = 0; i < 2 && host->slen > 0; i++)
        if (pj_inet_pton(families[i], host, i ? (void *)&address->ipv6.sin6_addr : &address->ipv4.sin_addr) == PJ_SUCCESS) {
            address->addr.sa_family = (pj_uint16_t)families[i];
            return PJ_TRUE;
        }
    return PJ_FALSE;
}

/* Where the INVITE of a call that we make goes: along its route, which is the account's until the dialog has one. */
static pj_bool_t callee_address(pjsua_call_id call, pj_sockaddr *address)
{
    const pjsua_call *made = &pjsua_var.calls[call];
    pjsip_dialog *dialog = made->inv ? made->inv->dlg : made->async_call.dlg; /* the offer of a call that we make comes first */
    if (!dialog)
        return PJ_FALSE;
    const pj_bool_t begun = !pj_list_empty(&dialog->route_set) || dialog->state == PJSIP_DIALOG_STATE_ESTABLISHED;
    const pjsip_route_hdr *routes = begun ? &dialog->route_set : &pjsua_var.acc[made->acc_id].route_set;
    pjsip_uri *next = pj_list_empty(routes) ? dialog->target : routes->next->name_addr.uri;
    if (!next || !(PJSIP_URI_SCHEME_IS_SIP(next) || PJSIP_URI_SCHEME_IS_SIPS(next)))
        return PJ_FALSE;
    return names_address_of(pjsip_uri_get_uri(next), address);
}

static pj_bool_t remote_address(pjsua_call_id call, const pjmedia_sdp_session *remote, pj_sockaddr *address)
{
    if (!remote)
        return callee_address(call, address);
    const pjmedia_sdp_conn *conn = remote->conn || !remote->media_count ? remote->conn : remote->media[0]->conn;
    return conn && sdp_parse_address(&conn->addr, address);
}

/* Ask the routing table: a connected UDP socket knows its own address, and no packet is sent. */
static pj_bool_t local_address_to(pj_sockaddr *remote, pj_sockaddr *local)
{
    pj_sock_t sock;
    int length = sizeof *local;
    pj_sockaddr_set_port(remote, 9);
    if (pj_sock_socket(remote->addr.sa_family, pj_SOCK_DGRAM(), 0, &sock) != PJ_SUCCESS)
        return PJ_FALSE;
    pj_bool_t found = pj_sock_connect(sock, remote, pj_sockaddr_get_len(remote)) == PJ_SUCCESS &&
                      pj_sock_getsockname(sock, local, &length) == PJ_SUCCESS;
    pj_sock_close(sock);
    return found;
}

static void name_address(pjmedia_sdp_conn *conn, pj_pool_t *pool, const char *address, pj_bool_t v6)
{
    if (!conn)
        return;
    conn->addr_type = pj_str(v6 ? "IP6" : "IP4");
    pj_strdup2(pool, &conn->addr, address);
}

void sdp_on_created(pjsua_call_id call, pjmedia_sdp_session *sdp, pj_pool_t *pool, const pjmedia_sdp_session *remote)
{
    pj_sockaddr local, peer;
    char address[PJ_INET6_ADDRSTRLEN];
    if (!follow_route || !remote_address(call, remote, &peer) || !local_address_to(&peer, &local))
        return;
    pj_sockaddr_print(&local, address, sizeof address, 0);
    pj_bool_t v6 = local.addr.sa_family == pj_AF_INET6();
    name_address(sdp->conn, pool, address, v6);
    for (unsigned i = 0; i < sdp->media_count; i++)
        name_address(sdp->media[i]->conn, pool, address, v6);
}

static pj_bool_t is_address(const pj_str_t *host)
{
    pj_sockaddr address;
    return sdp_parse_address(host, &address);
}

/* RFC 3605: a=rtcp may name an address of its own. */
static pj_bool_t media_has_addresses(const pjmedia_sdp_media *media)
{
    if (media->conn && !is_address(&media->conn->addr))
        return PJ_FALSE;
    for (unsigned i = 0; i < media->attr_count; i++) {
        pjmedia_sdp_rtcp_attr rtcp;
        if (pj_strcmp2(&media->attr[i]->name, "rtcp") == 0 &&
            pjmedia_sdp_attr_get_rtcp(media->attr[i], &rtcp) == PJ_SUCCESS && rtcp.addr.slen && !is_address(&rtcp.addr))
            return PJ_FALSE;
    }
    return PJ_TRUE;
}

pj_bool_t sdp_has_addresses(const pjmedia_sdp_session *sdp)
{
    if (sdp->conn && !is_address(&sdp->conn->addr))
        return PJ_FALSE;
    for (unsigned i = 0; i < sdp->media_count; i++)
        if (!media_has_addresses(sdp->media[i]))
            return PJ_FALSE;
    return PJ_TRUE;
}
