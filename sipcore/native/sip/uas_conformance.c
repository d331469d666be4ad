#include "sip/uas_conformance.h"

#include "rtp/port_pool.h"
#include "sip/dtmf_info.h"
#include "sip/refer.h"
#include "sip/refer_client.h"

#define RETRY_AFTER_S 10

static const char *const methods[] = {"INVITE", "ACK",    "CANCEL", "BYE",   "OPTIONS",
                                      "PRACK",  "UPDATE", "INFO",   "REFER", "NOTIFY"};
static const char *const bodies[] = {"application/sdp"};
static const char *const extensions[] = {"100rel", "timer", "replaces", "norefersub"};

static bool is_listed(const char *const *list, unsigned count, const pj_str_t *word)
{
    for (unsigned i = 0; i < count; i++)
        if (pj_stricmp2(word, list[i]) == 0)
            return true;
    return false;
}

static void keep_only(pjsip_hdr_e type, const char *const *list, unsigned count)
{
    pjsip_generic_array_hdr *header =
        (pjsip_generic_array_hdr *)pjsip_endpt_get_capability(pjsua_get_pjsip_endpt(), type, NULL);
    unsigned kept = 0;
    for (unsigned i = 0; header && i < header->count; i++)
        if (is_listed(list, count, &header->values[i]))
            header->values[kept++] = header->values[i];
    if (header)
        header->count = kept;
}

/* PJSIP responds 500 to a re-INVITE whose offer has no common codec, and 406 to an offer whose SRTP it cannot use: both should
 * be 488 (RFC 3261 14.2 and 21.4.26). */
static bool is_unacceptable_offer(const pjsip_status_line *line)
{
    return line->code == PJSIP_SC_NOT_ACCEPTABLE ||
           (line->code == PJSIP_SC_INTERNAL_SERVER_ERROR && pj_strcmp2(&line->reason, "SDP negotiation failed") == 0);
}

/* PJSIP sends 500 if there is no free RTP port: there may be one a moment later. */
static void set_retry_later(pjsip_tx_data *tdata)
{
    pjsip_status_line *line = &tdata->msg->line.status;
    line->code = PJSIP_SC_SERVICE_UNAVAILABLE;
    line->reason = *pjsip_get_status_text(line->code);
    pjsip_msg_add_hdr(tdata->msg, (pjsip_hdr *)pjsip_retry_after_hdr_create(tdata->pool, RETRY_AFTER_S));
}

static pj_status_t on_response(pjsip_tx_data *tdata)
{
    pjsip_status_line *line = &tdata->msg->line.status;
    const pjsip_cseq_hdr *cseq = pjsip_msg_find_hdr(tdata->msg, PJSIP_H_CSEQ, NULL);
    if (is_unacceptable_offer(line) && cseq->method.id == PJSIP_INVITE_METHOD) {
        line->code = PJSIP_SC_NOT_ACCEPTABLE_HERE;
        line->reason = *pjsip_get_status_text(line->code);
    }
    if (line->code == PJSIP_SC_INTERNAL_SERVER_ERROR && port_pool_exhausted_for(pjsip_tdata_get_dlg(tdata)))
        set_retry_later(tdata);
    return PJ_SUCCESS;
}

static pjsip_module module = {
    .name = {"mod-trunkline-uas", 17},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TRANSPORT_LAYER + 3,
    .on_tx_response = on_response,
};

int uas_install(void)
{
    keep_only(PJSIP_H_ALLOW, methods, PJ_ARRAY_SIZE(methods));
    keep_only(PJSIP_H_ACCEPT, bodies, PJ_ARRAY_SIZE(bodies));
    keep_only(PJSIP_H_SUPPORTED, extensions, PJ_ARRAY_SIZE(extensions));
    return pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

void uas_remove(void)
{
    refer_drop_pending();
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
}

static void add_capability(pj_pool_t *pool, pjsip_hdr *headers, pjsip_hdr_e type)
{
    const pjsip_hdr *header = pjsip_endpt_get_capability(pjsua_get_pjsip_endpt(), type, NULL);
    if (header)
        pj_list_push_back(headers, pjsip_hdr_clone(pool, header));
}

void uas_add_capabilities(pj_pool_t *pool, pjsip_hdr *headers)
{
    add_capability(pool, headers, PJSIP_H_ALLOW);
    add_capability(pool, headers, PJSIP_H_ACCEPT);
    add_capability(pool, headers, PJSIP_H_SUPPORTED);
}

/* PJSIP takes a multipart body apart and forgets its length. */
static bool is_truncated(const pjsip_rx_data *rdata)
{
    const pjsip_msg_body *body = rdata->msg_info.msg->body;
    const int announced = rdata->msg_info.clen ? rdata->msg_info.clen->len : 0;
    if (body && pj_stricmp2(&body->content_type.type, "multipart") == 0)
        return false;
    return announced > 0 && (unsigned)announced > (body ? body->len : 0);
}

bool uas_is_malformed(const pjsip_rx_data *rdata)
{
    const pjsip_msg *msg = rdata->msg_info.msg;
    return is_truncated(rdata) || pjsip_method_cmp(&msg->line.req.method, &rdata->msg_info.cseq->method) != 0;
}

static bool is_sent_by(pjsip_transaction *tsx, const pjsip_host_port *sent_by)
{
    pj_grp_lock_acquire(tsx->grp_lock);
    const pjsip_via_hdr *via = tsx->last_tx ? pjsip_msg_find_hdr(tsx->last_tx->msg, PJSIP_H_VIA, NULL) : NULL;
    bool same = !via || (pj_stricmp(&via->sent_by.host, &sent_by->host) == 0 && via->sent_by.port == sent_by->port);
    pj_grp_lock_release(tsx->grp_lock);
    return same;
}

bool uas_is_forged_cancel(pjsip_rx_data *rdata)
{
    pj_str_t key;
    pjsip_transaction *tsx = NULL;
    if (rdata->msg_info.msg->line.req.method.id != PJSIP_CANCEL_METHOD)
        return false;
    if (pjsip_tsx_create_key(rdata->tp_info.pool, &key, PJSIP_ROLE_UAS, pjsip_get_invite_method(), rdata) == PJ_SUCCESS)
        tsx = pjsip_tsx_layer_find_tsx2(&key, PJ_TRUE);
    if (!tsx)
        return false;
    bool forged = !is_sent_by(tsx, &rdata->msg_info.via->sent_by);
    pj_grp_lock_dec_ref(tsx->grp_lock);
    return forged;
}

static void respond(pjsip_rx_data *rdata, int code, pjsip_hdr *headers)
{
    pjsip_endpt_respond_stateless(pjsua_get_pjsip_endpt(), rdata, code, NULL, headers, NULL);
}

/* The extensions that the request requires and we do not support; NULL for none. */
static pjsip_unsupported_hdr *unsupported(pjsip_rx_data *rdata)
{
    pjsip_unsupported_hdr *found = NULL;
    const pjsip_msg *msg = rdata->msg_info.msg;
    const pjsip_require_hdr *require = pjsip_msg_find_hdr(msg, PJSIP_H_REQUIRE, NULL);
    for (; require; require = pjsip_msg_find_hdr(msg, PJSIP_H_REQUIRE, require->next))
        for (unsigned i = 0; i < require->count; i++) {
            const pj_str_t *word = &require->values[i];
            if (pjsip_endpt_has_capability(pjsua_get_pjsip_endpt(), PJSIP_H_SUPPORTED, NULL, word))
                continue;
            if (!found)
                found = pjsip_unsupported_hdr_create(rdata->tp_info.pool);
            if (found->count < PJSIP_GENERIC_ARRAY_MAX_COUNT)
                found->values[found->count++] = *word;
        }
    return found;
}

enum dialog_state { DIALOG_LIVE, DIALOG_OVER, DIALOG_OUT_OF_ORDER };

/* RFC 3261 12.2.2: PJSIP rejects any request that is out of order. A dialog stays for 32 s after its call. */
static enum dialog_state dialog_state_of(const pjsip_rx_data *rdata)
{
    enum dialog_state dialog_state = DIALOG_OVER;
    pjsip_dialog *dialog = pjsip_ua_find_dialog(&rdata->msg_info.cid->id, &rdata->msg_info.to->tag,
                                                &rdata->msg_info.from->tag, PJ_TRUE);
    if (!dialog)
        return DIALOG_OVER;
    const pjsip_inv_session *inv = pjsip_dlg_get_inv_session(dialog);
    if (rdata->msg_info.cseq->cseq <= dialog->remote.cseq)
        dialog_state = DIALOG_OUT_OF_ORDER;
    else if (inv && inv->state < PJSIP_INV_STATE_DISCONNECTED)
        dialog_state = DIALOG_LIVE;
    pjsip_dlg_dec_lock(dialog);
    return dialog_state;
}

/* RFC 6086 4.2.2: an INFO with an unsupported body is rejected, one without a body gets 200. */
static int status_of_info(const pjsip_rx_data *rdata, pjsip_hdr *headers)
{
    const pj_str_t accept = pj_str("Accept"), keys = pj_str("application/dtmf-relay, application/dtmf");
    const pjsip_msg_body *body = rdata->msg_info.msg->body;
    if (!body || !body->len)
        return 200;
    if (dtmf_info_is_dtmf(body))
        return 0;
    pj_list_push_back(headers, pjsip_generic_string_hdr_create(rdata->tp_info.pool, &accept, &keys));
    return 415;
}

/* The status that needs no call, with its headers; 0 if PJSIP is to handle the request. */
static int status_of(pjsip_rx_data *rdata, pjsip_hdr *headers)
{
    const pj_str_t info = {"INFO", 4};
    const pjsip_method *method = &rdata->msg_info.msg->line.req.method;
    pjsip_unsupported_hdr *unknown = unsupported(rdata);
    if (unknown) {
        pj_list_push_back(headers, unknown);
        return 420;
    }
    if (!is_listed(methods, PJ_ARRAY_SIZE(methods), &method->name)) {
        add_capability(rdata->tp_info.pool, headers, PJSIP_H_ALLOW);
        return 405;
    }
    if (method->id == PJSIP_OPTIONS_METHOD) {
        uas_add_capabilities(rdata->tp_info.pool, headers);
        return 200;
    }
    return pj_strcmp(&method->name, &info) == 0 ? status_of_info(rdata, headers) : 0;
}

bool uas_handle_request(pjsip_rx_data *rdata)
{
    const pjsip_method_e method = rdata->msg_info.msg->line.req.method.id;
    enum dialog_state dialog_state = dialog_state_of(rdata);
    pjsip_hdr headers;
    if (method == PJSIP_ACK_METHOD || method == PJSIP_CANCEL_METHOD || dialog_state == DIALOG_OUT_OF_ORDER)
        return false;
    if (dialog_state == DIALOG_LIVE && !unsupported(rdata) && refer_handle_request(rdata))
        return true;
    if (!unsupported(rdata) && refer_client_handle_notify(rdata)) /* a subscription outlives the BYE (RFC 5057) */
        return true;
    pj_list_init(&headers);
    int code = dialog_state == DIALOG_LIVE ? status_of(rdata, &headers) : method == PJSIP_BYE_METHOD ? 0 : 481;
    if (code)
        respond(rdata, code, &headers);
    return code != 0;
}
