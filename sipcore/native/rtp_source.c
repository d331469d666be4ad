#define _GNU_SOURCE
#include "rtp_source.h"

#include <linux/filter.h>
#include <pjsua-lib/pjsua_internal.h>
#include <sys/socket.h>

#define IPV4_SOURCE (SKF_NET_OFF + 12)
#define KEEP 0xFFFFFFFFu
#define DROP 0

/* Without this, whoever finds the port of a call is heard in it. Ports are not compared: a peer need not send from the
 * port that it listens on (RFC 4961 only recommends it). A peer behind an address translator names a private address,
 * but its SIP and its RTP come from the same public one. */
static void accept_only(pj_sock_t sock, uint32_t first, uint32_t second)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)IPV4_SOURCE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, DROP),
        BPF_STMT(BPF_RET | BPF_K, KEEP),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    if (sock != PJ_INVALID_SOCKET && setsockopt((int)sock, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0)
        PJ_LOG(1, ("rtp", "Cannot filter RTP by its source"));
}

static uint32_t ipv4_of(const pj_sockaddr *address)
{
    return pj_ntohl(address->ipv4.sin_addr.s_addr);
}

/* Who the INVITE came from, or was sent to: the transaction knows. */
static const pj_sockaddr *sip_peer(pjsua_call_id call)
{
    pjsip_inv_session *inv = pjsua_var.calls[call].inv;
    pjsip_transaction *transaction = inv ? inv->invite_tsx : NULL;
    return transaction && transaction->addr.addr.sa_family == pj_AF_INET() ? &transaction->addr : NULL;
}

void rtp_source_filter(pjsua_call_id call, const pjsua_on_stream_created_param *param)
{
    pjmedia_stream_info stream;
    pjmedia_transport_info transport;
    pjmedia_transport *media = pjsua_var.calls[call].media[param->stream_idx].tp;
    const pj_sockaddr *peer = sip_peer(call);
    if (!media || pjmedia_stream_get_info(param->stream, &stream) != PJ_SUCCESS)
        return;
    if (stream.rem_addr.addr.sa_family != pj_AF_INET())
        return;
    pjmedia_transport_info_init(&transport);
    if (pjmedia_transport_get_info(media, &transport) != PJ_SUCCESS)
        return;
    uint32_t named = ipv4_of(&stream.rem_addr), seen = peer ? ipv4_of(peer) : named;
    accept_only(transport.sock_info.rtp_sock, named, seen);
    accept_only(transport.sock_info.rtcp_sock, named, seen);
}
