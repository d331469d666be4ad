#define _GNU_SOURCE
#include "refer.h"

#include <stdio.h>

#include <pjsua-lib/pjsua_internal.h>

#define LONGEST 1024

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

/* Python gets one text: the number of the request, whether it wants to hear more, who sent it, and whom it names. */
static pjsip_status_code status_of(pjsip_rx_data *rdata, pjsua_call_id call, bool quiet)
{
    char text[LONGEST];
    pjsua_call_setting setting;
    pjsip_status_code code = PJSIP_SC_DECLINE;
    const pjsip_generic_string_hdr *refer_to = only_refer_to(rdata);
    if (!refer_to)
        return PJSIP_SC_BAD_REQUEST;
    int length = snprintf(text, sizeof text, "%d %d %s %.*s", rdata->msg_info.cseq->cseq, !quiet, rdata->pkt_info.src_name,
                          (int)refer_to->hvalue.slen, refer_to->hvalue.ptr);
    if (length < 0 || length >= LONGEST || !ask)
        return PJSIP_SC_DECLINE;
    const pj_str_t target = {text, length};
    pjsua_call_setting_default(&setting);
    ask(call, &target, &code, &setting);
    return code;
}

bool refer_answers(pjsip_rx_data *rdata)
{
    const pj_str_t name = {"Refer-Sub", 9}, no = {"false", 5};
    pjsip_hdr headers;
    if (pjsip_method_cmp(&rdata->msg_info.msg->line.req.method, pjsip_get_refer_method()) != 0)
        return false;
    pjsua_call_id call = call_of(rdata);
    if (call == PJSUA_INVALID_ID)
        return false;
    const pjsip_generic_string_hdr *sub = find(rdata, "Refer-Sub", "Refer-Sub");
    bool quiet = sub && pj_stricmp2(&sub->hvalue, "false") == 0; /* RFC 4488 4 */
    pjsip_status_code code = status_of(rdata, call, quiet);
    pj_list_init(&headers);
    if (quiet && code < 300)
        pj_list_push_back(&headers, pjsip_generic_string_hdr_create(rdata->tp_info.pool, &name, &no));
    pjsip_endpt_respond(pjsua_get_pjsip_endpt(), NULL, rdata, code, NULL, &headers, NULL, NULL);
    return true;
}
