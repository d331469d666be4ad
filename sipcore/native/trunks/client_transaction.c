#include "trunks/client_transaction.h"

#include "tls/close_reasons.h"

#include <errno.h>
#include <stdbool.h>

#define RECLAIM_MS 1000

/* ---- messages in a connection's queue ----
 * PJSIP releases messages that wait for a TLS connection when that fails, but not a message that is queued in that moment:
 * message and connection then keep each other alive. */

/* The lock of the transaction is held: while that lives, so does the connection. */
static bool is_stuck(const pjsip_transaction *tsx, const pjsip_tx_data *tdata)
{
    return tsx->state < PJSIP_TSX_STATE_TERMINATED && tdata->is_pending && tdata->tp_info.transport &&
           tdata->tp_info.transport->is_shutdown;
}

/* PJSIP's queue keeps its entry in the message's memory until the connection is closed. */
static void release_when_idle(void *data)
{
    pjsip_tx_data *tdata = data;
    if (tdata->op_key.tdata)
        pjsua_schedule_timer2(release_when_idle, tdata, RECLAIM_MS);
    else
        pjsip_tx_data_dec_ref(tdata);
}

/* Runs long after PJSIP would have released it. */
static void reclaim(void *data)
{
    pjsip_tx_data *tdata = data;
    pjsip_transport *transport = tdata->tp_info.transport;
    pjsip_transport_callback sent = tdata->op_key.callback;
    if (tdata->is_pending && sent) {
        tdata->op_key.callback = NULL;
        sent(transport, tdata->op_key.token, -PJ_ECANCELLED);
    }
    pjsip_transport_dec_ref(transport);
    release_when_idle(tdata);
}

static void reclaim_later(pjsip_tx_data *tdata)
{
    pjsip_tx_data_add_ref(tdata);
    pjsip_transport_add_ref(tdata->tp_info.transport);
    if (pjsua_schedule_timer2(reclaim, tdata, RECLAIM_MS) == PJ_SUCCESS)
        return;
    pjsip_transport_dec_ref(tdata->tp_info.transport);
    pjsip_tx_data_dec_ref(tdata);
}

/* ---- sending ---- */

/* The lock of the transaction is held: else its end could be reported while it is still being sent. */
static pj_status_t send_locked(pjsip_module *user, pjsip_transaction *tsx, pjsip_tx_data *tdata)
{
    pjsip_tx_data_add_ref(tdata);
    pj_status_t status = pjsip_tsx_send_msg(tsx, NULL);
    if (status == PJ_SUCCESS && is_stuck(tsx, tdata)) {
        reclaim_later(tdata);
        pjsip_tsx_terminate(tsx, PJSIP_SC_SERVICE_UNAVAILABLE);
    }
    pjsip_tx_data_dec_ref(tdata);
    if (status == PJ_SUCCESS)
        return status;
    bool reported = tsx->mod_data[user->id] == NULL;
    tsx->mod_data[user->id] = NULL;
    pjsip_tx_data_dec_ref(tdata);
    pjsip_tsx_terminate(tsx, PJSIP_SC_SERVICE_UNAVAILABLE);
    return reported ? PJ_SUCCESS : status;
}

pj_status_t client_transaction_send(pjsip_module *user, pjsip_tx_data *tdata, void *data,
                                    void (*begun)(void *data, const pjsip_transaction *tsx))
{
    pjsip_transaction *tsx;
    pj_status_t status = pjsip_tsx_create_uac(user, tdata, &tsx);
    if (status != PJ_SUCCESS) {
        pjsip_tx_data_dec_ref(tdata);
        return status;
    }
    pj_grp_lock_add_ref(tsx->grp_lock);
    pj_grp_lock_acquire(tsx->grp_lock);
    tsx->mod_data[user->id] = data;
    if (begun)
        begun(data, tsx);
    status = send_locked(user, tsx, tdata);
    pj_grp_lock_release(tsx->grp_lock);
    pj_grp_lock_dec_ref(tsx->grp_lock);
    return status;
}

/* A stored close reason may be of an earlier connection: PJSIP's own error goes first, if it says anything. */
static bool is_uninformative(pj_status_t error)
{
    return error == PJ_SUCCESS || error == PJ_STATUS_FROM_OS(ENOTCONN) || error == PJ_STATUS_FROM_OS(EPIPE);
}

void client_transaction_failure(const pjsip_transaction *tsx, char reason[CLIENT_TRANSACTION_FAILURE_SIZE])
{
    const bool unsent = tsx->status_code == PJSIP_SC_SERVICE_UNAVAILABLE && tsx->last_tx;
    if (!unsent || !is_uninformative(tsx->transport_err) || !tls_close_reason_get(&tsx->last_tx->tp_info.dst_addr, reason))
        pj_ansi_snprintf(reason, CLIENT_TRANSACTION_FAILURE_SIZE, "%.*s", (int)tsx->status_text.slen, tsx->status_text.ptr);
}
