#include "trunks/registration_flow.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct flow {
    pjsip_transport *transport;
    pj_sockaddr peer;
    int peer_len;
} flow_t;

static struct {
    pthread_mutex_t lock;   /* never held while PJSIP is called */
    flow_t flows[PJSUA_MAX_ACC];
    registration_flow_callback_t *lost;
    pjsip_tp_state_callback next_state_callback;
} flow_table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Replaces the transport; returns the one before. */
static pjsip_transport *swap(pjsua_acc_id account, pjsip_transport *transport, const pj_sockaddr *peer, int peer_len)
{
    flow_t *flow = &flow_table.flows[account];
    pthread_mutex_lock(&flow_table.lock);
    pjsip_transport *former = flow->transport;
    flow->transport = transport;
    if (peer)
        flow->peer = *peer;
    flow->peer_len = peer_len;
    pthread_mutex_unlock(&flow_table.lock);
    return former;
}

void registration_flow_set(pjsua_acc_id account, const pjsip_transaction *tsx)
{
    const pj_sockaddr *peer = &tsx->last_tx->tp_info.dst_addr;
    if (tsx->transport)
        pjsip_transport_add_ref(tsx->transport);
    pjsip_transport *former = swap(account, tsx->transport, peer, tsx->last_tx->tp_info.dst_addr_len);
    if (former)
        pjsip_transport_dec_ref(former);
}

void registration_flow_release(pjsua_acc_id account)
{
    pjsip_transport *former = swap(account, NULL, NULL, 0);
    if (former)
        pjsip_transport_dec_ref(former);
}

static bool clear_if(pjsua_acc_id account, const pjsip_transport *transport)
{
    pthread_mutex_lock(&flow_table.lock);
    bool there = flow_table.flows[account].transport == transport;
    if (there)
        flow_table.flows[account].transport = NULL;
    pthread_mutex_unlock(&flow_table.lock);
    return there;
}

static void on_transport_state(pjsip_transport *transport, pjsip_transport_state state, const pjsip_transport_state_info *info)
{
    for (int i = 0; state == PJSIP_TP_STATE_DISCONNECTED && i < PJSUA_MAX_ACC; i++)
        if (clear_if(i, transport)) {
            if (flow_table.lost)
                flow_table.lost(i);
            pjsip_transport_dec_ref(transport);
        }
    if (flow_table.next_state_callback)
        flow_table.next_state_callback(transport, state, info);
}

void registration_flow_keep_alive(pjsua_acc_id account)
{
    const flow_t *flow = &flow_table.flows[account];
    pthread_mutex_lock(&flow_table.lock);
    pjsip_transport *transport = flow->transport;
    bool needed = transport && !(transport->flag & PJSIP_TRANSPORT_RELIABLE);
    pj_sockaddr peer = flow->peer;
    int peer_len = flow->peer_len;
    pthread_mutex_unlock(&flow_table.lock);
    if (!needed) /* PJSIP does it for connections; a UDP transport lives as long as we do */
        return;
    pjsip_tpselector over = {.type = PJSIP_TPSELECTOR_TRANSPORT, .u.transport = transport};
    pjsip_tpmgr_send_raw(pjsip_endpt_get_tpmgr(pjsua_get_pjsip_endpt()), transport->key.type, &over, NULL, "\r\n\r\n", 4,
                         &peer, peer_len, NULL, NULL);
}

int registration_flow_install(registration_flow_callback_t *lost)
{
    pjsip_tpmgr *transports = pjsip_endpt_get_tpmgr(pjsua_get_pjsip_endpt());
    flow_table.lost = lost;
    flow_table.next_state_callback = pjsip_tpmgr_get_state_cb(transports);
    return pjsip_tpmgr_set_state_cb(transports, on_transport_state) == PJ_SUCCESS ? 0 : -1;
}

void registration_flow_remove(void)
{
    flow_table.lost = NULL;
    for (int i = 0; i < PJSUA_MAX_ACC; i++)
        registration_flow_release(i);
}
