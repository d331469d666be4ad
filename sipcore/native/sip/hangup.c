#include "sip/hangup.h"

#include <stdbool.h>

#include <pjsua-lib/pjsua_internal.h>

static const pj_str_t name = {"Reason", 6};

static pj_status_t on_tx_request(pjsip_tx_data *tdata);

static pjsip_module module = {
    .name = {"mod-trunkline-hangup", 20},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TRANSPORT_LAYER + 3, /* before the message is printed */
    .on_tx_request = on_tx_request,
};

static bool is_bye_or_cancel(const pjsip_method *method)
{
    return method->id == PJSIP_BYE_METHOD || method->id == PJSIP_CANCEL_METHOD;
}

static pj_status_t on_tx_request(pjsip_tx_data *tdata)
{
    const pjsip_dialog *dialog = is_bye_or_cancel(&tdata->msg->line.req.method) ? pjsip_tdata_get_dlg(tdata) : NULL;
    const pj_str_t *reason = dialog ? dialog->mod_data[module.id] : NULL;
    if (reason && !pjsip_msg_find_hdr_by_name(tdata->msg, &name, NULL)) {
        pjsip_generic_string_hdr *header = pjsip_generic_string_hdr_create(tdata->pool, &name, reason);
        pjsip_msg_add_hdr(tdata->msg, (pjsip_hdr *)header);
    }
    return PJ_SUCCESS;
}

/* The dialog is locked; the copy lives as long as it does. */
static void store_reason(pjsip_dialog *dialog, const char *reason)
{
    pj_str_t *copy = PJ_POOL_ALLOC_T(dialog->pool, pj_str_t);
    pj_strdup2(dialog->pool, copy, reason);
    dialog->mod_data[module.id] = copy;
}

/* We have accepted the call, and its ACK has not come yet: until then there is no BYE (RFC 3261 15). */
static bool waits_for_ack(const pjsua_call *call)
{
    return call->inv && call->inv->role == PJSIP_ROLE_UAS && call->inv->state == PJSIP_INV_STATE_CONNECTING;
}

/* PJSUA sends a BYE when the ACK has come, and PJSIP the one that it keeps: there would be two. Without an ACK PJSIP sends
 * its BYE only if nothing else is the cause. */
static void drop_pending_bye(pjsip_inv_session *inv)
{
    if (inv->pending_bye)
        pjsip_tx_data_dec_ref(inv->pending_bye);
    inv->pending_bye = NULL;
    inv->cause = (pjsip_status_code)0;
}

static void hang_up_with_reason(pjsua_call_id call, unsigned code, const char *reason)
{
    pjsua_msg_data message;
    pjsip_generic_string_hdr header;
    const pj_str_t value = pj_str((char *)reason);
    pjsua_msg_data_init(&message);
    pjsip_generic_string_hdr_init2(&header, (pj_str_t *)&name, (pj_str_t *)&value);
    if (value.slen)
        pj_list_push_back(&message.hdr_list, &header);
    pjsua_call_hangup(call, code, NULL, &message);
}

pj_status_t hangup(pjsua_call_id number, unsigned code, const char *reason)
{
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    pj_status_t status = acquire_call("hangup", number, &call, &dialog);
    if (status != PJ_SUCCESS)
        return status;
    const bool early = waits_for_ack(call);
    if (dialog && *reason && module.id != -1)
        store_reason(dialog, reason);
    hang_up_with_reason(number, early && !code ? PJSIP_SC_OK : code, reason);
    if (early && call->inv)
        drop_pending_bye(call->inv);
    if (dialog)
        pjsip_dlg_dec_lock(dialog);
    return PJ_SUCCESS;
}

int hangup_install(void)
{
    return pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

void hangup_remove(void)
{
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
}
