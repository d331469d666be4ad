#include "guard/parse_errors.h"

#include "guard/connection_limit.h"
#include "net/drop_counters.h"
#include "net/message_tap.h"
#include "net/source_acl.h"
#include "sip/cseq_validation.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The message of a packet that begins here; NULL when that is not known: in a stream it may have come behind another,
 * mostly at an address that no message can have. */
static pjsip_rx_data *rdata_of(const pjsip_tp_dropped_data *dropped, const char *packet)
{
    if (!packet)
        return NULL;
    if ((uintptr_t)(packet - offsetof(pjsip_rx_data, pkt_info.packet)) % _Alignof(pjsip_rx_data) != 0)
        return NULL;
    pjsip_rx_data *rdata = (pjsip_rx_data *)(packet - offsetof(pjsip_rx_data, pkt_info.packet));
    return rdata->tp_info.transport == dropped->tp && rdata->msg_info.msg_buf == dropped->data ? rdata : NULL;
}

/* The peer of the connection, or the sender of the datagram. False if neither is known. */
static bool source_of(const pjsip_tp_dropped_data *dropped, const pjsip_rx_data *rdata, pj_sockaddr *source)
{
    if (dropped->tp->flag & PJSIP_TRANSPORT_RELIABLE)
        *source = dropped->tp->key.rem_addr;
    else if (rdata)
        *source = rdata->pkt_info.src_addr;
    else
        return false;
    return true;
}

/* True if all headers that a response needs could be read. */
static bool has_required_headers(const pjsip_tp_dropped_data *dropped, const pjsip_rx_data *rdata)
{
    return dropped->status == PJSIP_EINVALIDMSG && rdata && rdata->msg_info.msg && rdata->msg_info.cid &&
           rdata->msg_info.cid->id.slen && rdata->msg_info.from && rdata->msg_info.to && rdata->msg_info.via &&
           rdata->msg_info.cseq;
}

/* True for the headers of credentials and challenges (RFC 3261 20.7, 20.27, 20.28, 20.44). */
static bool is_auth_header(const pj_str_t *name)
{
    static const char *const names[] = {"Authorization", "Proxy-Authorization", "WWW-Authenticate", "Proxy-Authenticate"};
    for (unsigned i = 0; i < PJ_ARRAY_SIZE(names); i++)
        if (pj_stricmp2(name, names[i]) == 0)
            return true;
    return false;
}

static bool only_credentials_unreadable(const pjsip_rx_data *rdata)
{
    const pjsip_parser_err_report *all = &rdata->msg_info.parse_err;
    for (const pjsip_parser_err_report *error = all->next; error != all; error = error->next)
        if (!is_auth_header(&error->hname))
            return false;
    return true;
}

/* Sets `received` and `rport` of the Via, as PJSIP does for a message that it has parsed (RFC 3261 18.2.1, RFC 3581 4). */
static void set_via_received(pjsip_rx_data *rdata)
{
    pjsip_via_hdr *via = rdata->msg_info.via;
    if (!via)
        return;
    via->maddr_param.slen = 0;
    pj_strdup2(rdata->tp_info.pool, &via->recvd_param, rdata->pkt_info.src_name);
    if (via->rport_param == 0)
        via->rport_param = rdata->pkt_info.src_port;
}

static void process(pjsip_rx_data *rdata)
{
    pj_bool_t handled = PJ_FALSE;
    pjsip_process_rdata_param how;
    pjsip_process_rdata_param_default(&how);
    how.silent = PJ_TRUE;
    pjsip_endpt_process_rx_data(pjsua_get_pjsip_endpt(), rdata, &how, &handled);
    pj_bzero(&rdata->endpt_info, sizeof rdata->endpt_info);
}

static bool is_request(const pjsip_rx_data *rdata)
{
    return rdata->msg_info.msg->type == PJSIP_REQUEST_MSG;
}

static bool has_valid_status(const pjsip_rx_data *rdata)
{
    const int code = rdata->msg_info.msg->line.status.code;
    return code >= 100 && code < 700;
}

/* Responds with 400; without `complete`, only if nothing but the CSeq is unreadable. */
static void reject(pjsip_rx_data *rdata, bool complete)
{
    tap_received(rdata);
    connection_limit_message_complete(rdata->tp_info.transport, true);
    if (!complete)
        cseq_reject_out_of_range(rdata);
    else if (rdata->msg_info.msg->line.req.method.id != PJSIP_ACK_METHOD)
        pjsip_endpt_respond_stateless(pjsua_get_pjsip_endpt(), rdata, PJSIP_SC_BAD_REQUEST, NULL, NULL, NULL);
}

/* True if the message was processed after all. */
static bool recover(pjsip_rx_data *rdata)
{
    if (is_request(rdata))
        set_via_received(rdata);
    if (!only_credentials_unreadable(rdata) || (!is_request(rdata) && !has_valid_status(rdata)))
        return false;
    process(rdata);
    return true;
}

static void count_with_message(const pjsip_tp_dropped_data *dropped, const pjsip_rx_data *rdata, const char *source)
{
    static const pj_str_t none = {"", 0};
    const pjsip_parser_err_report *errors = rdata ? &rdata->msg_info.parse_err : NULL;
    const bool has_errors = errors && errors->next && errors->next != errors;
    drop_count_message(DROP_UNPARSABLE, source, has_errors ? &errors->next->hname : &none, dropped->data, dropped->len);
}

/* CRLFs in front of a message are reported first, on their own: alone, they are a keep-alive. */
static void on_dropped(pjsip_tp_dropped_data *dropped)
{
    static __thread const char *skipped_from, *skipped_to;
    const char *data = dropped->data;
    if (dropped->status == PJ_EIGNORED) {
        skipped_from = data;
        skipped_to = data + dropped->len;
        return;
    }
    char name[PJ_INET6_ADDRSTRLEN] = "unknown";
    pj_sockaddr address;
    pjsip_rx_data *rdata = rdata_of(dropped, data && data == skipped_to ? skipped_from : data);
    bool has_source = source_of(dropped, rdata, &address), known = has_source && source_acl_is_trunk(&address);
    bool complete = has_required_headers(dropped, rdata), request = rdata && rdata->msg_info.msg && is_request(rdata);
    if (known && complete && recover(rdata))
        return;
    if (has_source)
        pj_sockaddr_print(&address, name, sizeof name, 0);
    if (known)
        count_with_message(dropped, rdata, name);
    else
        drop_count(DROP_UNPARSABLE, name);
    if (known && request && !complete && dropped->status == PJSIP_EINVALIDMSG)
        set_via_received(rdata);
    if (known && request && dropped->status == PJSIP_EINVALIDMSG)
        reject(rdata, complete);
}

pj_status_t parse_errors_install(pjsip_tpmgr *transports)
{
    return pjsip_tpmgr_set_drop_data_cb(transports, on_dropped);
}
