#define _GNU_SOURCE
#include "sip/refer_client.h"

#include <string.h>

#include <pjsip_simple.h>
#include <pjsua-lib/pjsua_internal.h>

/* The REFERs of one dialog, under its lock. */
typedef struct refer {
    long long token;        /* of the one that is followed; 0: none */
    int cseq;               /* its CSeq number */
    pjsip_transaction *tsx; /* its transaction, until the final response */
    bool subscribed;        /* the subscription has not ended */
    bool former_subscribed; /* that of an earlier REFER, which is not followed any more, may not have ended */
} refer_t;

static void on_tsx_state(pjsip_transaction *tsx, pjsip_event *event);

static struct {
    refer_client_response_callback_t *on_response;
    refer_client_notify_callback_t *on_notify;
} state;

static pjsip_module module = {
    .name = {"mod-trunkline-refer", 19},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_APPLICATION,
    .on_tsx_state = on_tsx_state,
};

/* The dialog is locked; NULL if it has had no REFER of ours. */
static refer_t *refer_of(const pjsip_dialog *dialog)
{
    return module.id < 0 ? NULL : dialog->mod_data[module.id];
}

static pj_str_t text(const char *words)
{
    return pj_str((char *)words);
}

/* From the 2xx on: the ACK may be on its way. */
static bool is_answered(const pjsua_call *call)
{
    return call->inv && !call->hanging_up &&
           (call->inv->state == PJSIP_INV_STATE_CONNECTING || call->inv->state == PJSIP_INV_STATE_CONFIRMED);
}

/* ---- the dialog to replace ---- */

static bool copy(const pj_str_t *from, char to[REFER_CLIENT_ID_SIZE])
{
    const bool fits = from->slen > 0 && from->slen < REFER_CLIENT_ID_SIZE && !memchr(from->ptr, 0, (size_t)from->slen);
    if (fits) {
        memcpy(to, from->ptr, (size_t)from->slen);
        to[from->slen] = 0;
    }
    return fits;
}

bool refer_client_dialog_id(pjsua_call_id number, refer_client_dialog_id_t *id)
{
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    if (acquire_call("dialog id", number, &call, &dialog) != PJ_SUCCESS)
        return false;
    bool found = is_answered(call) && copy(&dialog->call_id->id, id->call_id) &&
                 copy(&dialog->local.info->tag, id->local_tag) && copy(&dialog->remote.info->tag, id->remote_tag);
    pjsip_dlg_dec_lock(dialog);
    return found;
}

/* ---- the request; the dialog is locked ---- */

static pj_status_t compose(pjsip_dialog *dialog, const refer_client_params_t *params, pjsip_tx_data **tdata)
{
    pj_status_t status = pjsip_dlg_create_request(dialog, pjsip_get_refer_method(), -1, tdata);
    for (int i = 0; status == PJ_SUCCESS && i < params->header_count; i++) {
        const pj_str_t name = text(params->headers[i].name), value = text(params->headers[i].value);
        pjsip_msg_add_hdr((*tdata)->msg, (pjsip_hdr *)pjsip_generic_string_hdr_create((*tdata)->pool, &name, &value));
    }
    return status;
}

/* The transaction is ours, not the dialog's: PJSIP would end the call when a request in it gets 481 or no response. Its lock
 * includes the dialog's, as that of the dialog's own transactions. */
static pj_status_t create_transaction(pjsip_dialog *dialog, pjsip_tx_data *tdata, pjsip_transaction **tsx)
{
    pj_status_t status = pjsip_tsx_create_uac(&module, tdata, tsx);
    if (status != PJ_SUCCESS)
        return status;
    pj_grp_lock_add_ref(dialog->grp_lock_);
    pj_grp_lock_chain_lock((*tsx)->grp_lock, (pj_lock_t *)dialog->grp_lock_, 0);
    (*tsx)->chained_lock = dialog->grp_lock_;
    (*tsx)->mod_data[module.id] = dialog;
    return pjsip_tsx_set_transport(*tsx, &dialog->tp_sel);
}

static void number_request(pjsip_dialog *dialog, refer_t *refer, pjsip_tx_data *tdata)
{
    pjsip_cseq_hdr *cseq = pjsip_msg_find_hdr(tdata->msg, PJSIP_H_CSEQ, NULL);
    refer->cseq = cseq->cseq = dialog->local.cseq++;
    pjsip_tx_data_invalidate_msg(tdata);
    if (dialog->via_addr.host.slen) {
        tdata->via_addr = dialog->via_addr;
        tdata->via_tp = dialog->via_tp;
    }
}

/* Takes ownership of `tdata`. */
static pj_status_t transmit(pjsip_dialog *dialog, refer_t *refer, pjsip_tx_data *tdata)
{
    pjsip_transaction *tsx = NULL;
    number_request(dialog, refer, tdata);
    pj_status_t status = create_transaction(dialog, tdata, &tsx);
    if (!tsx) {
        pjsip_tx_data_dec_ref(tdata);
        return status;
    }
    pj_grp_lock_add_ref(tsx->grp_lock);
    refer->tsx = tsx;
    if (status == PJ_SUCCESS)
        status = pjsip_tsx_send_msg(tsx, tdata);
    if (status != PJ_SUCCESS) {
        if (refer->tsx == tsx)
            refer->tsx = NULL;
        else
            status = PJ_SUCCESS; /* its failure has been reported */
        tsx->mod_data[module.id] = NULL;
        pjsip_tsx_terminate(tsx, PJSIP_SC_SERVICE_UNAVAILABLE);
        pjsip_tx_data_dec_ref(tdata);
    }
    pj_grp_lock_dec_ref(tsx->grp_lock);
    return status;
}

/* An inbound call's account is that of all trunks and has no credentials. */
static void set_credentials(pjsip_dialog *dialog, const refer_client_params_t *params)
{
    const pjsip_cred_info credentials = {
        .realm = text("*"), .scheme = text("digest"), .username = text(params->user),
        .data_type = PJSIP_CRED_DATA_PLAIN_PASSWD, .data = text(params->password),
    };
    if (*params->user && !dialog->auth_sess.cred_cnt)
        pjsip_auth_clt_set_credentials(&dialog->auth_sess, 1, &credentials);
}

static pj_status_t send_locked(pjsip_dialog *dialog, const refer_client_params_t *params)
{
    pjsip_tx_data *tdata;
    refer_t *refer = refer_of(dialog);
    if (!refer)
        refer = dialog->mod_data[module.id] = PJ_POOL_ZALLOC_T(dialog->pool, refer_t);
    if (refer->token)
        return PJ_EBUSY;
    set_credentials(dialog, params);
    pj_status_t status = compose(dialog, params, &tdata);
    if (status != PJ_SUCCESS)
        return status;
    refer->token = params->token;
    refer->subscribed = true;
    status = transmit(dialog, refer, tdata);
    if (status != PJ_SUCCESS)
        refer->token = 0;
    return status;
}

pj_status_t refer_client_send(const refer_client_params_t *params)
{
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    pj_status_t status = acquire_call("refer", params->call, &call, &dialog);
    if (status != PJ_SUCCESS)
        return status;
    status = is_answered(call) && module.id >= 0 ? send_locked(dialog, params) : PJ_EINVALIDOP;
    pjsip_dlg_dec_lock(dialog);
    return status;
}

void refer_client_end(pjsua_call_id number, long long token)
{
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    if (acquire_call("refer", number, &call, &dialog) != PJ_SUCCESS)
        return;
    refer_t *refer = refer_of(dialog);
    if (refer && refer->token == token) {
        refer->token = 0;
        refer->former_subscribed = refer->former_subscribed || refer->subscribed;
        if (refer->tsx)
            pjsip_tsx_terminate(refer->tsx, PJSIP_SC_REQUEST_TIMEOUT);
    }
    pjsip_dlg_dec_lock(dialog);
}

/* ---- its response ---- */

static bool is_live(pjsip_dialog *dialog)
{
    const pjsip_inv_session *inv = pjsip_dlg_get_inv_session(dialog);
    return inv && inv->state < PJSIP_INV_STATE_DISCONNECTED;
}

/* True when another request is on its way. PJSIP answers a second challenge of a realm only if it says that the nonce was
 * too old (RFC 3261 22.2). */
static bool answer_challenge(pjsip_dialog *dialog, refer_t *refer, const pjsip_transaction *tsx, const pjsip_rx_data *rdata)
{
    pjsip_tx_data *tdata;
    return refer->token && is_live(dialog) &&
           pjsip_auth_clt_reinit_req(&dialog->auth_sess, rdata, tsx->last_tx, &tdata) == PJ_SUCCESS &&
           transmit(dialog, refer, tdata) == PJ_SUCCESS;
}

/* The locks of the transaction and the dialog are held. */
static void on_tsx_state(pjsip_transaction *tsx, pjsip_event *event)
{
    pjsip_dialog *dialog = module.id < 0 ? NULL : tsx->mod_data[module.id]; /* PJSUA ends: its pools go with it */
    if (!dialog || tsx->status_code < 200 || event->type != PJSIP_EVENT_TSX_STATE)
        return;
    refer_t *refer = refer_of(dialog);
    pjsip_rx_data *rdata = event->body.tsx_state.type == PJSIP_EVENT_RX_MSG ? event->body.tsx_state.src.rdata : NULL;
    const int status = rdata ? tsx->status_code : 0;
    tsx->mod_data[module.id] = NULL;
    refer->tsx = NULL;
    if ((status == PJSIP_SC_UNAUTHORIZED || status == PJSIP_SC_PROXY_AUTHENTICATION_REQUIRED) &&
        answer_challenge(dialog, refer, tsx, rdata))
        return;
    if (status >= 300)
        refer->subscribed = false;
    if (refer->token && state.on_response)
        state.on_response(refer->token, status);
}

/* ---- NOTIFY ---- */

/* NULL if the NOTIFY is of another event package. */
static const pjsip_event_hdr *refer_event(const pjsip_msg *message)
{
    const pj_str_t name = {"Event", 5}, brief = {"o", 1};
    const pjsip_event_hdr *event = pjsip_msg_find_hdr_by_names(message, &name, &brief, NULL);
    return event && pj_stricmp2(&event->event_type, "refer") == 0 ? event : NULL;
}

static bool is_terminated(const pjsip_msg *message)
{
    const pj_str_t name = {"Subscription-State", 18};
    const pjsip_sub_state_hdr *header = pjsip_msg_find_hdr_by_name(message, &name, NULL);
    return header && pj_stricmp2(&header->sub_state, "terminated") == 0;
}

static bool is_number(const pj_str_t *words, int number)
{
    char digits[16];
    const int length = pj_ansi_snprintf(digits, sizeof digits, "%d", number);
    return words->slen == length && pj_strncmp2(words, digits, (pj_size_t)length) == 0;
}

/* True if the NOTIFY is about the REFER that is followed. The id is the REFER's CSeq number; only the first subscription of a
 * dialog may go without (RFC 3515 2.4.6), so that a NOTIFY without one may be about a former REFER. */
static bool is_followed(refer_t *refer, const pjsip_event_hdr *event, bool terminated)
{
    const bool followed = refer->token && (event->id_param.slen ? is_number(&event->id_param, refer->cseq)
                                                                : !refer->former_subscribed);
    if (terminated && followed)
        refer->subscribed = false;
    else if (terminated)
        refer->former_subscribed = false;
    return followed;
}

static void report(const refer_t *refer, const pjsip_msg_body *body, bool terminated)
{
    refer_client_notify_t notify = {.token = refer->token, .terminated = terminated};
    if (body) {
        notify.type = body->content_type.type;
        notify.subtype = body->content_type.subtype;
        notify.body = (pj_str_t){body->data, (pj_ssize_t)body->len};
    }
    if (state.on_notify)
        state.on_notify(&notify);
}

/* The dialog is locked. The response goes first: what is reported may lead to a BYE. */
static void take_notify(pjsip_dialog *dialog, refer_t *refer, pjsip_rx_data *rdata, const pjsip_event_hdr *event)
{
    const bool terminated = is_terminated(rdata->msg_info.msg);
    dialog->remote.cseq = rdata->msg_info.cseq->cseq; /* RFC 3261 12.2.2: the transaction is ours, not the dialog's */
    pjsip_endpt_respond(pjsua_get_pjsip_endpt(), NULL, rdata, PJSIP_SC_OK, NULL, NULL, NULL, NULL);
    if (is_followed(refer, event, terminated))
        report(refer, rdata->msg_info.msg->body, terminated);
}

bool refer_client_handle_notify(pjsip_rx_data *rdata)
{
    const pjsip_msg *message = rdata->msg_info.msg;
    const pjsip_event_hdr *event =
        pjsip_method_cmp(&message->line.req.method, pjsip_get_notify_method()) == 0 ? refer_event(message) : NULL;
    pjsip_dialog *dialog = event ? pjsip_ua_find_dialog(&rdata->msg_info.cid->id, &rdata->msg_info.to->tag,
                                                        &rdata->msg_info.from->tag, PJ_TRUE)
                                 : NULL;
    if (!dialog)
        return false;
    refer_t *refer = refer_of(dialog);
    if (refer)
        take_notify(dialog, refer, rdata, event);
    pjsip_dlg_dec_lock(dialog);
    return refer != NULL;
}

/* ---- install and remove ---- */

int refer_client_install(refer_client_response_callback_t *on_response, refer_client_notify_callback_t *on_notify)
{
    state.on_response = on_response;
    state.on_notify = on_notify;
    return pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

void refer_client_remove(void)
{
    state.on_response = NULL;
    state.on_notify = NULL;
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
}
