#define _GNU_SOURCE
#include "trunks/qualify.h"

#include "net/monotonic_clock.h"
#include "trunks/client_transaction.h"

#include <pjsua-lib/pjsua_internal.h>

/* In the pool of its request, which the transaction keeps until its end has been reported. */
typedef struct qualify_request {
    long long token, sent_us;
} qualify_request_t;

static void on_tsx_state(pjsip_transaction *tsx, pjsip_event *event);

static qualify_callback_t *on_result;
static pjsip_module module = {
    .name = {"mod-trunkline-options", 21},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_APPLICATION,
    .on_tsx_state = on_tsx_state,
};

/* The transaction's lock is held. */
static void on_tsx_state(pjsip_transaction *tsx, pjsip_event *event)
{
    qualify_request_t *request = module.id < 0 ? NULL : tsx->mod_data[module.id]; /* PJSUA ends: its pools go with it */
    if (!request || tsx->status_code < 200 || event->type != PJSIP_EVENT_TSX_STATE)
        return;
    const bool answered = event->body.tsx_state.type == PJSIP_EVENT_RX_MSG;
    char reason[CLIENT_TRANSACTION_FAILURE_SIZE] = "";
    tsx->mod_data[module.id] = NULL;
    if (!answered)
        client_transaction_failure(tsx, reason);
    if (on_result)
        on_result(request->token, answered, tsx->status_code, monotonic_ns() / 1000 - request->sent_us, reason);
}

int qualify_install(qualify_callback_t *callback)
{
    on_result = callback;
    if (!callback || module.id != -1)
        return 0;
    return pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

static pj_status_t compose(pjsua_acc_id account, const pj_str_t *uri, pjsip_tx_data **tdata)
{
    const pj_str_t name = {"User-Agent", 10};
    pj_pool_t *pool = pjsua_pool_create("options", 1000, 1000);
    pj_str_t contact;
    if (!pool)
        return PJ_ENOMEM;
    pj_status_t status = pjsua_acc_create_uac_contact(pool, &contact, account, uri);
    if (status == PJ_SUCCESS)
        status = pjsip_endpt_create_request(pjsua_get_pjsip_endpt(), pjsip_get_options_method(), uri, &contact, uri, &contact,
                                            NULL, -1, NULL, tdata);
    pj_pool_release(pool);
    if (status == PJ_SUCCESS && pjsua_var.ua_cfg.user_agent.slen)
        pjsip_msg_add_hdr((*tdata)->msg,
                          (pjsip_hdr *)pjsip_generic_string_hdr_create((*tdata)->pool, &name, &pjsua_var.ua_cfg.user_agent));
    return status;
}

pj_status_t qualify_send(pjsua_acc_id account, const char *text, long long token)
{
    const pj_str_t uri = pj_str((char *)text);
    pjsip_tx_data *tdata;
    if (!pjsua_acc_is_valid(account))
        return PJ_EINVAL;
    pj_status_t status = compose(account, &uri, &tdata);
    if (status != PJ_SUCCESS)
        return status;
    qualify_request_t *request = PJ_POOL_ZALLOC_T(tdata->pool, qualify_request_t);
    *request = (qualify_request_t){.token = token, .sent_us = monotonic_ns() / 1000};
    return client_transaction_send(&module, tdata, request, NULL);
}
