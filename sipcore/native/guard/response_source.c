#include "guard/response_source.h"

#include "guard/dialog_peers.h"
#include "net/ip_set.h"

/* The client transaction of a response, with a reference. */
static pjsip_transaction *transaction_of(pjsip_rx_data *rdata)
{
    pj_str_t key;
    if (pjsip_tsx_create_key(rdata->tp_info.pool, &key, PJSIP_ROLE_UAC, &rdata->msg_info.cseq->method, rdata) != PJ_SUCCESS)
        return NULL;
    return pjsip_tsx_layer_find_tsx2(&key, PJ_TRUE);
}

/* The dialog of a response, locked. */
static pjsip_dialog *dialog_of(const pjsip_rx_data *rdata)
{
    return pjsip_ua_find_dialog(&rdata->msg_info.cid->id, &rdata->msg_info.from->tag, &rdata->msg_info.to->tag, PJ_TRUE);
}

bool response_matches_request(pjsip_rx_data *rdata)
{
    const pjsip_fromto_hdr *from = rdata->msg_info.from, *to = rdata->msg_info.to;
    pjsip_transaction *tsx = transaction_of(rdata);
    if (tsx)
        pj_grp_lock_dec_ref(tsx->grp_lock);
    return tsx || pjsip_ua_find_dialog(&rdata->msg_info.cid->id, &from->tag, &to->tag, PJ_FALSE) != NULL;
}

/* The lock is held while a request is being sent: its response may come before that ends. */
static bool is_target(pjsip_transaction *tsx, const pj_sockaddr *source)
{
    pj_grp_lock_acquire(tsx->grp_lock);
    bool same = tsx->addr_len && ip_same_host(&tsx->addr, source);
    pj_grp_lock_release(tsx->grp_lock);
    return same;
}

bool response_is_from_target(pjsip_rx_data *rdata)
{
    const pj_sockaddr *source = &rdata->pkt_info.src_addr;
    const pjsip_transport *transport = rdata->tp_info.transport;
    if (PJSIP_TRANSPORT_IS_RELIABLE(transport) && transport->dir == PJSIP_TP_DIR_OUTGOING)
        return true;
    pjsip_transaction *tsx = transaction_of(rdata);
    if (tsx) {
        bool expected = is_target(tsx, source);
        pj_grp_lock_dec_ref(tsx->grp_lock);
        return expected;
    }
    pjsip_dialog *dialog = dialog_of(rdata);
    bool peer = dialog && dialog_peers_has(dialog, source);
    if (dialog)
        pjsip_dlg_dec_lock(dialog);
    return peer;
}
