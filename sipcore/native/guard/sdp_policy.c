#include "guard/sdp_policy.h"

#include "net/drop_counters.h"
#include "net/ip_literal.h"
#include "net/sdp.h"
#include "rtp/media_address_policy.h"
#include "sip/local_address.h"

#define INCOMPATIBLE_ADDRESS 301
#define MISCELLANEOUS 399

static const pjmedia_sdp_session *sdp_of(pjsip_rx_data *rdata)
{
    return rdata->msg_info.msg->body ? pjsip_rdata_get_sdp_info(rdata)->sdp : NULL;
}

static bool is_usable(const pjmedia_sdp_session *sdp)
{
    return sdp_has_ip_literals(sdp) && local_address_has_version_of(sdp);
}

/* ---- the addresses of an SDP ---- */

typedef struct worst {
    const pj_sockaddr *peer;
    enum media_address_class class;
    pj_str_t address;
} worst_t;

static void check_address(worst_t *worst, const pj_str_t *address)
{
    pj_sockaddr parsed;
    enum media_address_class class = MEDIA_HELD;
    if (ip_literal_parse(address, &parsed))
        class = media_address_classify(&parsed, worst->peer);
    if (class > worst->class) {
        worst->class = class;
        worst->address = *address;
    }
}

static void check_media(worst_t *worst, const pjmedia_sdp_session *sdp, const pjmedia_sdp_media *media)
{
    const pjmedia_sdp_conn *conn = media->conn ? media->conn : sdp->conn;
    if (conn)
        check_address(worst, &conn->addr);
    for (unsigned i = 0; i < media->attr_count; i++) {
        pjmedia_sdp_rtcp_attr rtcp;
        if (pj_strcmp2(&media->attr[i]->name, "rtcp") == 0 &&
            pjmedia_sdp_attr_get_rtcp(media->attr[i], &rtcp) == PJ_SUCCESS && rtcp.addr.slen)
            check_address(worst, &rtcp.addr);
    }
}

/* A rejected media stream (port 0, RFC 3264 6) has no address. */
static worst_t worst_address(pjsip_rx_data *rdata, const pjmedia_sdp_session *sdp)
{
    worst_t worst = {.peer = &rdata->pkt_info.src_addr, .class = MEDIA_HELD};
    for (unsigned i = 0; i < sdp->media_count; i++)
        if (sdp->media[i]->desc.port)
            check_media(&worst, sdp, sdp->media[i]);
    return worst;
}

static void count_drop(pjsip_rx_data *rdata, enum drop_kind class, const pj_str_t *address)
{
    drop_count_message(class, rdata->pkt_info.src_name, address, rdata->msg_info.msg_buf, (pj_size_t)rdata->msg_info.len);
}

bool sdp_policy_accept(pjsip_rx_data *rdata)
{
    const pjmedia_sdp_session *sdp = sdp_of(rdata);
    if (!sdp)
        return true;
    if (!is_usable(sdp))
        return false;
    const worst_t worst = worst_address(rdata, sdp);
    if (worst.class >= MEDIA_UNLISTED)
        count_drop(rdata, worst.class == MEDIA_FORBIDDEN ? DROP_MEDIA_FORBIDDEN : DROP_MEDIA_UNLISTED, &worst.address);
    return worst.class != MEDIA_FORBIDDEN;
}

/* ---- rejection ---- */

void sdp_policy_reject(pjsip_rx_data *request)
{
    const pj_str_t us = pj_str("trunkline");
    pj_pool_t *pool = request->tp_info.pool;
    pj_str_t why = pj_str("The SDP names a host instead of its address");
    int code = INCOMPATIBLE_ADDRESS;
    char text[160];
    pjsip_hdr headers;
    if (is_usable(sdp_of(request))) {
        const worst_t worst = worst_address(request, sdp_of(request));
        code = MISCELLANEOUS;
        why.ptr = text;
        why.slen = pj_ansi_snprintf(text, sizeof text, "The SDP names %.*s, where no media may be sent",
                                    (int)worst.address.slen, worst.address.ptr);
    }
    pj_list_init(&headers);
    pj_list_push_back(&headers, pjsip_warning_hdr_create(pool, code, &us, &why));
    pjsip_endpt_respond_stateless(pjsua_get_pjsip_endpt(), request, PJSIP_SC_NOT_ACCEPTABLE_HERE, NULL, &headers, NULL);
}

void sdp_policy_strip(pjsip_rx_data *rdata)
{
    pj_bzero(pjsip_rdata_get_sdp_info(rdata), sizeof(pjsip_rdata_sdp_info));
    rdata->msg_info.msg->body = NULL;
}
