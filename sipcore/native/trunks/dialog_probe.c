#define _GNU_SOURCE
#include "trunks/dialog_probe.h"

#include "trunks/client_transaction.h"

#include <stdbool.h>

#include <pjsua-lib/pjsua_internal.h>

typedef struct probe {
    long long token;
    pjsip_dialog *dialog;   /* only while it is locked */
} probe_t;

static dialog_probe_callback_t *report;

static void on_tsx_state(pjsip_transaction *tsx, pjsip_event *event);

static pjsip_module module = {
    .name = {"mod-trunkline-dialog-probe", 26},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_APPLICATION,
    .on_tsx_state = on_tsx_state,
};

static pj_status_t compose(pjsip_dialog *dialog, pjsip_tx_data **tdata)
{
    pj_status_t status = pjsip_dlg_create_request(dialog, pjsip_get_options_method(), -1, tdata);
    if (status != PJ_SUCCESS)
        return status;
    pjsip_cseq_hdr *cseq = pjsip_msg_find_hdr((*tdata)->msg, PJSIP_H_CSEQ, NULL);
    cseq->cseq = dialog->local.cseq++;
    if (dialog->via_addr.host.slen) {
        (*tdata)->via_addr = dialog->via_addr;
        (*tdata)->via_tp = dialog->via_tp;
    }
    return PJ_SUCCESS;
}

/* The transport that the dialog is bound to. The request refers to the dialog whenever it is sent, also again after the call's
 * end: so the transaction keeps the dialog, and its lock includes the dialog's, as that of the dialog's own transactions. */
static void bind_to_dialog(void *data, const pjsip_transaction *begun)
{
    pjsip_dialog *dialog = ((const probe_t *)data)->dialog;
    pjsip_transaction *tsx = (pjsip_transaction *)begun;
    pj_grp_lock_add_ref(dialog->grp_lock_);
    pj_grp_lock_chain_lock(tsx->grp_lock, (pj_lock_t *)dialog->grp_lock_, 0);
    tsx->chained_lock = dialog->grp_lock_;
    pjsip_tsx_set_transport(tsx, &dialog->tp_sel);
}

/* The transaction is ours, not the dialog's: PJSIP would end the call when a request in it gets 481 or no response. */
static void transmit(pjsip_dialog *dialog, pjsip_tx_data *tdata, long long token)
{
    probe_t *probe = PJ_POOL_ALLOC_T(tdata->pool, probe_t); /* which the transaction holds */
    *probe = (probe_t){.token = token, .dialog = dialog};
    if (client_transaction_send(&module, tdata, probe, bind_to_dialog) != PJ_SUCCESS && report)
        report(token, 0);
}

static bool is_answered(const pjsua_call *call)
{
    return call->inv && !call->hanging_up && call->inv->state == PJSIP_INV_STATE_CONFIRMED;
}

pj_status_t dialog_probe_send(pjsua_call_id number, long long token)
{
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    pjsip_tx_data *tdata;
    pj_status_t status = acquire_call("probe", number, &call, &dialog);
    if (status != PJ_SUCCESS)
        return status;
    status = is_answered(call) && module.id >= 0 ? compose(dialog, &tdata) : PJ_EINVALIDOP;
    if (status == PJ_SUCCESS)
        transmit(dialog, tdata, token);
    pjsip_dlg_dec_lock(dialog);
    return status;
}

static void on_tsx_state(pjsip_transaction *tsx, pjsip_event *event)
{
    const probe_t *probe = module.id < 0 ? NULL : tsx->mod_data[module.id]; /* PJSUA ends: its pools go with it */
    if (!probe || tsx->status_code < 200 || event->type != PJSIP_EVENT_TSX_STATE)
        return;
    tsx->mod_data[module.id] = NULL;
    if (report)
        report(probe->token, event->body.tsx_state.type == PJSIP_EVENT_RX_MSG ? tsx->status_code : 0);
}

int dialog_probe_install(dialog_probe_callback_t *on_response)
{
    report = on_response;
    return pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

void dialog_probe_remove(void)
{
    report = NULL;
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
}
