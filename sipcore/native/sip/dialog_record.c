#define _GNU_SOURCE
#include "sip/dialog_record.h"

#include <string.h>

#include <pjsua-lib/pjsua_internal.h>

static bool copy(const pj_str_t *from, char *to, size_t size)
{
    const bool fits = from->slen >= 0 && (size_t)from->slen < size && (!from->slen || !memchr(from->ptr, 0, (size_t)from->slen));
    if (fits && from->slen)
        memcpy(to, from->ptr, (size_t)from->slen);
    to[fits ? from->slen : 0] = 0;
    return fits;
}

static bool print_uri(pjsip_uri_context_e context, const void *uri, char to[DIALOG_RECORD_TEXT_SIZE])
{
    const int length = uri ? pjsip_uri_print(context, uri, to, DIALOG_RECORD_TEXT_SIZE - 1) : -1;
    to[length > 0 ? length : 0] = 0;
    return length > 0;
}

static bool copy_party(const pjsip_fromto_hdr *party, char uri[DIALOG_RECORD_TEXT_SIZE], char tag[DIALOG_RECORD_TEXT_SIZE])
{
    return print_uri(PJSIP_URI_IN_FROMTO_HDR, party->uri, uri) && copy(&party->tag, tag, DIALOG_RECORD_TEXT_SIZE);
}

static bool add_route(dialog_record_t *record, const pjsip_route_hdr *route)
{
    return record->route_count < DIALOG_RECORD_MAX_ROUTES &&
           print_uri(PJSIP_URI_IN_ROUTING_HDR, &route->name_addr, record->route[record->route_count++]);
}

/* ---- an answered call; the dialog is locked ---- */

static bool copy_dialog(const pjsip_dialog *dialog, dialog_record_t *record)
{
    bool fits = copy(&dialog->call_id->id, record->call_id, sizeof record->call_id) &&
                copy_party(dialog->local.info, record->local, record->local_tag) &&
                copy_party(dialog->remote.info, record->remote, record->remote_tag) &&
                print_uri(PJSIP_URI_IN_REQ_URI, dialog->target, record->target);
    record->cseq = (unsigned)dialog->local.cseq;
    for (const pjsip_route_hdr *route = dialog->route_set.next; fits && route != &dialog->route_set; route = route->next)
        fits = add_route(record, route);
    return fits;
}

/* ---- an unanswered INVITE of ours; the dialog is locked ---- */

static bool copy_first_hop(const pjsip_tx_data *request, const pjsip_via_hdr *via, dialog_record_invite_t *invite)
{
    const pjsip_server_addresses *targets = &request->dest_info.addr;
    const unsigned current = request->dest_info.cur_addr;
    if (current >= targets->count || !pj_sockaddr_has_addr(&targets->entry[current].addr))
        return false;
    const char *transport = pjsip_transport_get_type_name(targets->entry[current].type & ~PJSIP_TRANSPORT_IPV6);
    pj_sockaddr_print(&targets->entry[current].addr, invite->address, sizeof invite->address, 3);
    pj_ansi_snprintf(invite->transport, sizeof invite->transport, "%s", transport);
    const pj_str_t *host = &via->sent_by.host;
    const int length = pj_ansi_snprintf(invite->sent_by, sizeof invite->sent_by,
                                        memchr(host->ptr, ':', (size_t)host->slen) ? "[%.*s]:%d" : "%.*s:%d",
                                        (int)host->slen, host->ptr, via->sent_by.port);
    return length > 0 && (size_t)length < sizeof invite->sent_by &&
           copy(&via->branch_param, invite->branch, sizeof invite->branch) && *invite->branch &&
           copy(&request->dest_info.name, invite->server_name, sizeof invite->server_name);
}

static bool copy_invite(const pjsip_tx_data *request, dialog_record_t *record)
{
    const pjsip_msg *message = request->msg;
    const pjsip_cid_hdr *call_id = PJSIP_MSG_CID_HDR(message);
    const pjsip_cseq_hdr *cseq = PJSIP_MSG_CSEQ_HDR(message);
    const pjsip_via_hdr *via = pjsip_msg_find_hdr(message, PJSIP_H_VIA, NULL);
    if (message->line.req.method.id != PJSIP_INVITE_METHOD || !via || !via->sent_by.host.slen)
        return false;
    record->cseq = (unsigned)cseq->cseq;
    bool fits = copy(&call_id->id, record->call_id, sizeof record->call_id) &&
                copy_party(PJSIP_MSG_FROM_HDR(message), record->local, record->local_tag) &&
                copy_party(PJSIP_MSG_TO_HDR(message), record->remote, record->remote_tag) &&
                print_uri(PJSIP_URI_IN_REQ_URI, message->line.req.uri, record->target) &&
                copy_first_hop(request, via, &record->invite);
    for (const pjsip_hdr *header = message->hdr.next; fits && header != &message->hdr; header = header->next)
        if (header->type == PJSIP_H_ROUTE)
            fits = add_route(record, (const pjsip_route_hdr *)header);
    return fits;
}

static bool copy_call(const pjsua_call *call, const pjsip_dialog *dialog, dialog_record_t *record)
{
    const pjsip_inv_session *inv = call->inv;
    const pjsip_inv_state state = inv ? inv->state : PJSIP_INV_STATE_NULL;
    if (state == PJSIP_INV_STATE_CONNECTING || state == PJSIP_INV_STATE_CONFIRMED)
        return copy_dialog(dialog, record);
    return (state == PJSIP_INV_STATE_CALLING || state == PJSIP_INV_STATE_EARLY) && inv->role == PJSIP_ROLE_UAC &&
           inv->invite_tsx && inv->invite_tsx->last_tx && copy_invite(inv->invite_tsx->last_tx, record);
}

bool dialog_record_of(pjsua_call_id number, dialog_record_t *record)
{
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    record->route_count = 0;
    memset(&record->invite, 0, sizeof record->invite);
    if (acquire_call("dialog record", number, &call, &dialog) != PJ_SUCCESS)
        return false;
    const bool found = dialog && copy_call(call, dialog, record);
    if (dialog)
        pjsip_dlg_dec_lock(dialog);
    return found;
}
