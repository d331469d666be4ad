#include "sip/glare.h"

#include <stdbool.h>

#include <pjsua-lib/pjsua_internal.h>

#define RECHECK_MS 500     /* until the next check whether the peer's own request is over */

typedef struct retry {
    pj_timer_entry timer;
    const pjsip_inv_session *inv;   /* identifies the call; never dereferenced */
} retry_t;

static retry_t retries[PJSUA_MAX_CALLS];

/* The owner of the Call-ID waits 2.1..4 s, the other side 0..2 s, in steps of 10 ms (RFC 3261 14.1). */
static unsigned delay_ms(const pjsip_dialog *dialog)
{
    return dialog->role == PJSIP_ROLE_UAC ? 2100 + (unsigned)(pj_rand() % 191) * 10 : (unsigned)(pj_rand() % 201) * 10;
}

static void schedule(retry_t *retry, unsigned ms)
{
    pj_time_val delay = {0, (long)ms};
    pj_time_val_normalize(&delay);
    pjsip_endpt_cancel_timer(pjsua_get_pjsip_endpt(), &retry->timer);
    pjsip_endpt_schedule_timer(pjsua_get_pjsip_endpt(), &retry->timer, &delay);
}

/* The peer has left several codecs to choose from: what crossed was our offer of one of them. */
static bool is_undecided(pjsip_inv_session *inv)
{
    const pjmedia_sdp_session *answer;
    unsigned codecs = 0;
    if (!pjmedia_sdp_neg_was_answer_remote(inv->neg) || pjmedia_sdp_neg_get_active_remote(inv->neg, &answer) != PJ_SUCCESS)
        return false;
    const pjmedia_sdp_media *media = answer->media_count ? answer->media[0] : NULL;
    for (unsigned i = 0; media && i < media->desc.fmt_count; i++) {
        pjmedia_sdp_rtpmap map;
        const pjmedia_sdp_attr *attr = pjmedia_sdp_media_find_attr2(media, "rtpmap", &media->desc.fmt[i]);
        bool named = attr && pjmedia_sdp_attr_get_rtpmap(attr, &map) == PJ_SUCCESS;
        codecs += !named || (pj_stricmp2(&map.enc_name, "telephone-event") != 0 && pj_stricmp2(&map.enc_name, "CN") != 0);
    }
    return codecs > 1;
}

/* A request that changes nothing, with the session timer's headers (RFC 4028 7.4). */
static void refresh(pjsip_inv_session *inv)
{
    const pj_str_t update = {"UPDATE", 6};
    const pjmedia_sdp_session *offer;
    pjsip_tx_data *tdata = NULL;
    pj_status_t status = pjmedia_sdp_neg_get_active_local(inv->neg, &offer);
    if (status == PJ_SUCCESS &&
        pjsip_dlg_remote_has_cap(inv->dlg, PJSIP_H_ALLOW, NULL, &update) == PJSIP_DIALOG_CAP_SUPPORTED)
        status = pjsip_inv_update(inv, NULL, NULL, &tdata);
    else if (status == PJ_SUCCESS)
        status = pjsip_inv_reinvite(inv, NULL, offer, &tdata);
    if (status == PJ_SUCCESS && tdata)
        pjsip_inv_send_msg(inv, tdata);
}

static void on_timer(pj_timer_heap_t *heap, pj_timer_entry *entry)
{
    retry_t *retry = entry->user_data;
    pjsua_call *call;
    pjsip_dialog *dialog;
    (void)heap;
    if (acquire_call("glare", (pjsua_call_id)(retry - retries), &call, &dialog) != PJ_SUCCESS)
        return;
    pjsip_inv_session *inv = call->inv;
    if (inv == retry->inv && inv->state == PJSIP_INV_STATE_CONFIRMED && !call->hanging_up) {
        if (inv->invite_tsx || pjmedia_sdp_neg_get_state(inv->neg) != PJMEDIA_SDP_NEG_STATE_DONE)
            schedule(retry, RECHECK_MS);
        else if (is_undecided(inv))
            pjsua_call_schedule_reinvite_check(call, 0);
        else
            refresh(inv);
    }
    pjsip_dlg_dec_lock(dialog);
}

/* The dialog is locked. True if the request will be sent again. */
static bool schedule_retry(pjsip_dialog *dialog)
{
    const pjsua_call *call = dialog->mod_data[pjsua_var.mod.id];
    pjsip_inv_session *inv = pjsip_dlg_get_inv_session(dialog);
    if (!call || !inv || inv->state != PJSIP_INV_STATE_CONFIRMED)
        return false;
    retry_t *retry = &retries[call->index];
    retry->inv = inv;
    schedule(retry, delay_ms(dialog));
    return true;
}

static bool is_offer_or_refresh(const pjsip_method *method)
{
    return method->id == PJSIP_INVITE_METHOD || pj_stricmp2(&method->name, "UPDATE") == 0;
}

/* After any status below 600 PJSIP's session timer sends an UPDATE without SDP again at once, with SDP. */
static void prevent_update_with_sdp(pjsip_rx_data *rdata)
{
    if (rdata->msg_info.cseq->method.id != PJSIP_INVITE_METHOD)
        rdata->msg_info.msg->line.status.code = PJSIP_SC_NOT_ACCEPTABLE_ANYWHERE;
}

void glare_on_response(pjsip_rx_data *rdata)
{
    if (rdata->msg_info.msg->line.status.code != PJSIP_SC_REQUEST_PENDING || !rdata->msg_info.to->tag.slen ||
        !is_offer_or_refresh(&rdata->msg_info.cseq->method))
        return;
    pjsip_dialog *dialog = pjsip_ua_find_dialog(&rdata->msg_info.cid->id, &rdata->msg_info.from->tag,
                                                &rdata->msg_info.to->tag, PJ_TRUE);
    if (!dialog)
        return;
    if (schedule_retry(dialog))
        prevent_update_with_sdp(rdata);
    pjsip_dlg_dec_lock(dialog);
}

void glare_install(void)
{
    for (int i = 0; i < PJSUA_MAX_CALLS; i++)
        pj_timer_entry_init(&retries[i].timer, 0, &retries[i], on_timer);
}
