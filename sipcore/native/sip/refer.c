#define _GNU_SOURCE
#include "sip/refer.h"

#include <pthread.h>
#include <stdio.h>

#include <pjsua-lib/pjsua_internal.h>

#define MAX_TEXT 1024
#define MAX_TARGET 900
#define MAX_PENDING 256     /* requests whose status Python has not set yet, at most one of a call */

/* A request that waits for its response, by call and CSeq number. `tsx` NULL: the entry is free. */
typedef struct pending {
    pjsua_call_id call;
    int cseq;
    bool no_subscription;
    pjsip_transaction *tsx;
    pjsip_tx_data *response;
} pending_t;

static struct {
    pthread_mutex_t lock;   /* never held while PJSIP is called */
    pending_t pending[MAX_PENDING];
} refers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void (*next_transfer_request)(pjsua_call_id, const pj_str_t *, pjsip_status_code *, pjsua_call_setting *);

static void decline(pjsua_call_id call, const pj_str_t *target, pjsip_status_code *code, pjsua_call_setting *setting)
{
    (void)call, (void)target, (void)setting;
    *code = PJSIP_SC_DECLINE;
}

void refer_hook(pjsua_callback *callback)
{
    next_transfer_request = callback->on_call_transfer_request2;
    callback->on_call_transfer_request = NULL;
    callback->on_call_transfer_request2 = decline;
}

static const pjsip_generic_string_hdr *find(const pjsip_rx_data *rdata, char *full, char *compact)
{
    const pj_str_t name = pj_str(full), brief = pj_str(compact);
    return pjsip_msg_find_hdr_by_names(rdata->msg_info.msg, &name, &brief, NULL);
}

/* RFC 3515 2.4.1: there is exactly one. */
static const pjsip_generic_string_hdr *only_refer_to(const pjsip_rx_data *rdata)
{
    const pj_str_t name = pj_str("Refer-To"), brief = pj_str("r");
    const pjsip_generic_string_hdr *found = find(rdata, "Refer-To", "r");
    return found && !pjsip_msg_find_hdr_by_names(rdata->msg_info.msg, &name, &brief, found->next) ? found : NULL;
}

/* The transaction is ours, so the dialog has to note that the request's CSeq number is used (RFC 3261 12.2.2). */
static pjsua_call_id call_of(const pjsip_rx_data *rdata)
{
    pjsua_call_id number = PJSUA_INVALID_ID;
    pjsip_dialog *dialog = pjsip_ua_find_dialog(&rdata->msg_info.cid->id, &rdata->msg_info.to->tag,
                                                &rdata->msg_info.from->tag, PJ_TRUE);
    if (!dialog)
        return number;
    const pjsua_call *call = dialog->mod_data[pjsua_var.mod.id];
    if (call && !call->hanging_up) {
        number = call->index;
        dialog->remote.cseq = rdata->msg_info.cseq->cseq;
    }
    pjsip_dlg_dec_lock(dialog);
    return number;
}

/* ---- pending requests ---- */

static pj_status_t create_transaction(pjsip_rx_data *rdata, pending_t *pending)
{
    pjsip_endpoint *endpoint = pjsua_get_pjsip_endpt();
    pj_status_t status = pjsip_endpt_create_response(endpoint, rdata, PJSIP_SC_ACCEPTED, NULL, &pending->response);
    if (status != PJ_SUCCESS)
        return status;
    status = pjsip_tsx_create_uas(NULL, rdata, &pending->tsx);
    if (status != PJ_SUCCESS) {
        pjsip_tx_data_dec_ref(pending->response);
        return status;
    }
    pj_grp_lock_add_ref(pending->tsx->grp_lock);
    pjsip_tsx_recv_msg(pending->tsx, rdata);
    return PJ_SUCCESS;
}

static void respond(pending_t *pending, int code)
{
    const pj_str_t name = {"Refer-Sub", 9}, no = {"false", 5};
    pjsip_tx_data *response = pending->response;
    response->msg->line.status.code = code;
    response->msg->line.status.reason = *pjsip_get_status_text(code);
    if (pending->no_subscription && code < 300)
        pjsip_msg_add_hdr(response->msg, (pjsip_hdr *)pjsip_generic_string_hdr_create(response->pool, &name, &no));
    if (pjsip_tsx_send_msg(pending->tsx, response) != PJ_SUCCESS)
        pjsip_tx_data_dec_ref(response);
    pj_grp_lock_dec_ref(pending->tsx->grp_lock);
}

/* A pending request with the same call and CSeq belongs to an ended call: `former` receives it. False if no entry is free. */
static bool add_pending(const pending_t *pending, pending_t *former)
{
    pending_t *entry = NULL;
    *former = (pending_t){0};
    pthread_mutex_lock(&refers.lock);
    for (int i = 0; i < MAX_PENDING; i++) {
        pending_t *each = &refers.pending[i];
        if (each->tsx && each->call == pending->call && each->cseq == pending->cseq)
            *former = *(entry = each);
        else if (!each->tsx && !entry)
            entry = each;
        if (former->tsx)
            break;
    }
    if (entry)
        *entry = *pending;
    pthread_mutex_unlock(&refers.lock);
    return entry != NULL;
}

static pending_t take_pending(pjsua_call_id call, int cseq)
{
    pending_t found = {0};
    pthread_mutex_lock(&refers.lock);
    for (int i = 0; i < MAX_PENDING && !found.tsx; i++)
        if (refers.pending[i].tsx && refers.pending[i].call == call && refers.pending[i].cseq == cseq) {
            found = refers.pending[i];
            refers.pending[i].tsx = NULL;
        }
    pthread_mutex_unlock(&refers.lock);
    return found;
}

void refer_respond(pjsua_call_id call, int cseq, int code)
{
    pending_t pending = take_pending(call, cseq);
    if (pending.tsx)
        respond(&pending, code);
}

void refer_drop_pending(void)
{
    for (int i = 0; i < MAX_PENDING; i++) {
        pthread_mutex_lock(&refers.lock);
        pending_t pending = refers.pending[i];
        refers.pending[i].tsx = NULL;
        pthread_mutex_unlock(&refers.lock);
        if (pending.tsx)
            respond(&pending, PJSIP_SC_SERVICE_UNAVAILABLE);
    }
}

/* ---- a new request ---- */

/* Python gets one text: the CSeq number; the sum of 1 if the peer wants a subscription (NOTIFY) and 2 if the target had to be
 * cut; the source address; the Refer-To. */
static pjsip_status_code status_of(pjsip_rx_data *rdata, pjsua_call_id call, bool no_subscription)
{
    char text[MAX_TEXT];
    pjsua_call_setting setting;
    pjsip_status_code code = PJSIP_SC_DECLINE;
    const pjsip_generic_string_hdr *refer_to = only_refer_to(rdata);
    if (!refer_to)
        return PJSIP_SC_BAD_REQUEST;
    int size = (int)refer_to->hvalue.slen, flags = (int)!no_subscription;
    if (size > MAX_TARGET) {
        size = MAX_TARGET;
        flags += 2;
    }
    int length = snprintf(text, sizeof text, "%d %d %s %.*s", rdata->msg_info.cseq->cseq, flags, rdata->pkt_info.src_name,
                          size, refer_to->hvalue.ptr);
    if (length < 0 || length >= MAX_TEXT || !next_transfer_request)
        return PJSIP_SC_DECLINE;
    const pj_str_t target = {text, length};
    pjsua_call_setting_default(&setting);
    next_transfer_request(call, &target, &code, &setting);
    return code;
}

bool refer_handle_request(pjsip_rx_data *rdata)
{
    if (pjsip_method_cmp(&rdata->msg_info.msg->line.req.method, pjsip_get_refer_method()) != 0)
        return false;
    pending_t former, pending = {.call = call_of(rdata), .cseq = rdata->msg_info.cseq->cseq};
    if (pending.call == PJSUA_INVALID_ID)
        return false;
    const pjsip_generic_string_hdr *sub = find(rdata, "Refer-Sub", "Refer-Sub");
    pending.no_subscription = sub && pj_stricmp2(&sub->hvalue, "false") == 0; /* RFC 4488 4 */
    if (create_transaction(rdata, &pending) != PJ_SUCCESS)
        return true;
    if (!add_pending(&pending, &former)) {
        respond(&pending, PJSIP_SC_SERVICE_UNAVAILABLE);
        return true;
    }
    if (former.tsx)
        respond(&former, PJSIP_SC_CALL_TSX_DOES_NOT_EXIST);
    pjsip_status_code code = status_of(rdata, pending.call, pending.no_subscription);
    if (code >= 200) /* else the status comes later, if it has not come already */
        refer_respond(pending.call, pending.cseq, code);
    return true;
}
