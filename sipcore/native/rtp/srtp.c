#define _GNU_SOURCE
#include "rtp/srtp.h"

#include <pjsua-lib/pjsua_internal.h>

static bool has_attribute(const pjmedia_sdp_media *media, const char *name)
{
    return pjmedia_sdp_media_find_attr2(media, name, NULL) != NULL;
}

/* An offer may have keys that its answer does not use. */
static enum srtp_keying negotiated_keying(const pjmedia_sdp_session *local, const pjmedia_sdp_session *remote)
{
    for (unsigned i = 0; i < local->media_count && i < remote->media_count; i++) {
        const pjmedia_sdp_media *media = local->media[i];
        if (media->desc.port == 0 || pj_stricmp2(&media->desc.media, "audio") != 0)
            continue;
        pj_uint32_t protocol = pjmedia_sdp_transport_get_proto((pj_str_t *)&media->desc.transport);
        if (PJMEDIA_TP_PROTO_HAS_FLAG(protocol, PJMEDIA_TP_PROTO_DTLS_SRTP))
            return SRTP_KEYING_DTLS;
        bool both = has_attribute(media, "crypto") && has_attribute(remote->media[i], "crypto");
        return both ? SRTP_KEYING_SDES : SRTP_KEYING_NONE;
    }
    return SRTP_KEYING_NONE;
}

/* From the transaction; when that is over, from the peer's Contact. */
static void update_signalling(const pjsip_inv_session *inv, char *peer, int size, bool *signalling)
{
    const pjsip_transaction *transaction = inv->invite_tsx;
    if (transaction && transaction->transport) {
        *signalling = (transaction->transport->flag & PJSIP_TRANSPORT_SECURE) != 0;
        if (pj_sockaddr_has_addr(&transaction->addr))
            pj_sockaddr_print(&transaction->addr, peer, size, 0);
        return;
    }
    const pjsip_uri *target = inv->dlg->target ? pjsip_uri_get_uri(inv->dlg->target) : NULL;
    if (target && (PJSIP_URI_SCHEME_IS_SIP(target) || PJSIP_URI_SCHEME_IS_SIPS(target)))
        *signalling = PJSIP_URI_SCHEME_IS_SIPS(target) ||
                      pj_stricmp2(&((const pjsip_sip_uri *)target)->transport_param, "tls") == 0;
}

enum srtp_keying srtp_keying_of(pjsua_call_id number, char *peer, int size, bool *signalling)
{
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    const pjmedia_sdp_session *local = NULL, *remote = NULL;
    enum srtp_keying found = SRTP_KEYING_NONE;
    *peer = 0;
    *signalling = false;
    if (acquire_call("srtp", number, &call, &dialog) != PJ_SUCCESS)
        return found;
    if (call->inv && call->inv->neg && pjmedia_sdp_neg_get_active_local(call->inv->neg, &local) == PJ_SUCCESS &&
        pjmedia_sdp_neg_get_active_remote(call->inv->neg, &remote) == PJ_SUCCESS) {
        found = negotiated_keying(local, remote);
        update_signalling(call->inv, peer, size, signalling);
    }
    if (dialog)
        pjsip_dlg_dec_lock(dialog);
    return found;
}

static _Thread_local bool is_required;

void srtp_require(bool on)
{
    is_required = on;
}

void srtp_apply_requirement(pjmedia_transport *srtp)
{
    pjmedia_srtp_setting setting;
    if (!is_required || pjmedia_transport_srtp_get_setting(srtp, &setting) != PJ_SUCCESS)
        return;
    setting.use = PJMEDIA_SRTP_MANDATORY;
    pjmedia_transport_srtp_modify_setting(srtp, &setting);
}

void srtp_prefer_passive_dtls(pjsip_rx_data *request)
{
    pjmedia_sdp_session *offer = request->msg_info.msg->body ? pjsip_rdata_get_sdp_info(request)->sdp : NULL;
    for (unsigned i = 0; offer && i < offer->media_count; i++) {
        pjmedia_sdp_attr *setup = pjmedia_sdp_media_find_attr2(offer->media[i], "setup", NULL);
        if (!setup)
            setup = pjmedia_sdp_attr_find2(offer->attr_count, offer->attr, "setup", NULL);
        if (setup && pj_stricmp2(&setup->value, "actpass") == 0)
            setup->value = pj_str("active");
    }
}
