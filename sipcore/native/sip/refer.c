#define _GNU_SOURCE
#include "sip/refer.h"

#include <pthread.h>
#include <stdio.h>

#include <pjsua-lib/pjsua_internal.h>

#define LONGEST 1024
#define LONGEST_TARGET 900
#define MOST_HELD 256       /* requests that Python thinks about, one of a call */

/* A request that waits for its answer, by call and number. `tsx` NULL: the place is free. */
typedef struct held {
    pjsua_call_id call;
    int cseq;
    bool quiet;
    pjsip_transaction *tsx;
    pjsip_tx_data *response;
} held_t;

static struct {
    pthread_mutex_t lock;   /* never held while PJSIP is called */
    held_t held[MOST_HELD];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void (*ask)(pjsua_call_id, const pj_str_t *, pjsip_status_code *, pjsua_call_setting *);

static void refuse(pjsua_call_id call, const pj_str_t *target, pjsip_status_code *code, pjsua_call_setting *setting)
{
    (void)call, (void)target, (void)setting;
    *code = PJSIP_SC_DECLINE;
}

void refer_hook(pjsua_callback *callback)
{
    ask = callback->on_call_transfer_request2;
    callback->on_call_transfer_request = NULL;
    callback->on_call_transfer_request2 = refuse;
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

/* The transaction is ours, so the dialog has to be told that the request's number is taken (RFC 3261 12.2.2). */
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

/* ---- requests that wait for their answer ---- */

static pj_status_t begin(pjsip_rx_data *rdata, held_t *held)
{
    pjsip_endpoint *endpoint = pjsua_get_pjsip_endpt();
    pj_status_t status = pjsip_endpt_create_response(endpoint, rdata, PJSIP_SC_ACCEPTED, NULL, &held->response);
    if (status != PJ_SUCCESS)
        return status;
    status = pjsip_tsx_create_uas(NULL, rdata, &held->tsx);
    if (status != PJ_SUCCESS) {
        pjsip_tx_data_dec_ref(held->response);
        return status;
    }
    pj_grp_lock_add_ref(held->tsx->grp_lock);
    pjsip_tsx_recv_msg(held->tsx, rdata);
    return PJ_SUCCESS;
}

static void finish(held_t *held, int code)
{
    const pj_str_t name = {"Refer-Sub", 9}, no = {"false", 5};
    pjsip_tx_data *response = held->response;
    response->msg->line.status.code = code;
    response->msg->line.status.reason = *pjsip_get_status_text(code);
    if (held->quiet && code < 300)
        pjsip_msg_add_hdr(response->msg, (pjsip_hdr *)pjsip_generic_string_hdr_create(response->pool, &name, &no));
    if (pjsip_tsx_send_msg(held->tsx, response) != PJ_SUCCESS)
        pjsip_tx_data_dec_ref(response);
    pj_grp_lock_dec_ref(held->tsx->grp_lock);
}

/* What is held under the same name belongs to a call that is gone: that one is handed out. False: there is no place. */
static bool keep(const held_t *held, held_t *former)
{
    held_t *place = NULL;
    *former = (held_t){0};
    pthread_mutex_lock(&all.lock);
    for (int i = 0; i < MOST_HELD; i++) {
        held_t *each = &all.held[i];
        if (each->tsx && each->call == held->call && each->cseq == held->cseq)
            *former = *(place = each);
        else if (!each->tsx && !place)
            place = each;
        if (former->tsx)
            break;
    }
    if (place)
        *place = *held;
    pthread_mutex_unlock(&all.lock);
    return place != NULL;
}

static held_t take(pjsua_call_id call, int cseq)
{
    held_t found = {0};
    pthread_mutex_lock(&all.lock);
    for (int i = 0; i < MOST_HELD && !found.tsx; i++)
        if (all.held[i].tsx && all.held[i].call == call && all.held[i].cseq == cseq) {
            found = all.held[i];
            all.held[i].tsx = NULL;
        }
    pthread_mutex_unlock(&all.lock);
    return found;
}

void refer_answer(pjsua_call_id call, int cseq, int code)
{
    held_t held = take(call, cseq);
    if (held.tsx)
        finish(&held, code);
}

void refer_forget(void)
{
    for (int i = 0; i < MOST_HELD; i++) {
        pthread_mutex_lock(&all.lock);
        held_t held = all.held[i];
        all.held[i].tsx = NULL;
        pthread_mutex_unlock(&all.lock);
        if (held.tsx)
            finish(&held, PJSIP_SC_SERVICE_UNAVAILABLE);
    }
}

/* ---- a new request ---- */

/* Python gets one text: the number of the request, 1 when it wants to hear more and 2 when what follows had to be cut,
 * added up, who sent it, and whom it names. */
static pjsip_status_code status_of(pjsip_rx_data *rdata, pjsua_call_id call, bool quiet)
{
    char text[LONGEST];
    pjsua_call_setting setting;
    pjsip_status_code code = PJSIP_SC_DECLINE;
    const pjsip_generic_string_hdr *refer_to = only_refer_to(rdata);
    if (!refer_to)
        return PJSIP_SC_BAD_REQUEST;
    int size = (int)refer_to->hvalue.slen, facts = (int)!quiet;
    if (size > LONGEST_TARGET) {
        size = LONGEST_TARGET;
        facts += 2;
    }
    int length = snprintf(text, sizeof text, "%d %d %s %.*s", rdata->msg_info.cseq->cseq, facts, rdata->pkt_info.src_name,
                          size, refer_to->hvalue.ptr);
    if (length < 0 || length >= LONGEST || !ask)
        return PJSIP_SC_DECLINE;
    const pj_str_t target = {text, length};
    pjsua_call_setting_default(&setting);
    ask(call, &target, &code, &setting);
    return code;
}

bool refer_answers(pjsip_rx_data *rdata)
{
    if (pjsip_method_cmp(&rdata->msg_info.msg->line.req.method, pjsip_get_refer_method()) != 0)
        return false;
    held_t former, held = {.call = call_of(rdata), .cseq = rdata->msg_info.cseq->cseq};
    if (held.call == PJSUA_INVALID_ID)
        return false;
    const pjsip_generic_string_hdr *sub = find(rdata, "Refer-Sub", "Refer-Sub");
    held.quiet = sub && pj_stricmp2(&sub->hvalue, "false") == 0; /* RFC 4488 4 */
    if (begin(rdata, &held) != PJ_SUCCESS)
        return true;
    if (!keep(&held, &former)) {
        finish(&held, PJSIP_SC_SERVICE_UNAVAILABLE);
        return true;
    }
    if (former.tsx)
        finish(&former, PJSIP_SC_CALL_TSX_DOES_NOT_EXIST);
    pjsip_status_code code = status_of(rdata, held.call, held.quiet);
    if (code >= 200) /* else the answer comes later, if it has not come already */
        refer_answer(held.call, held.cseq, code);
    return true;
}
