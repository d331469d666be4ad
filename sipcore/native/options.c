#define _GNU_SOURCE
#include "options.h"

#include "tls.h"

#include <time.h>

#include <pjsua-lib/pjsua_internal.h>

/* In the pool of its request, which the transaction keeps until after its end was told. */
typedef struct question {
    long long token, sent_us;
    bool told;
} question_t;

static options_callback_t *tell;

static long long now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static void on_end(void *token, pjsip_event *event)
{
    question_t *question = token;
    const pjsip_transaction *tsx = event->body.tsx_state.tsx;
    const bool answered = event->body.tsx_state.type == PJSIP_EVENT_RX_MSG;
    const char *refused = answered ? NULL : tls_refused(tsx->last_tx);
    char why[TLS_WHY] = "";
    if (!answered)
        pj_ansi_snprintf(why, sizeof why, "%.*s", (int)tsx->status_text.slen, tsx->status_text.ptr);
    question->told = true;
    if (tell)
        tell(question->token, answered, tsx->status_code, now_us() - question->sent_us, refused ? refused : why);
}

void options_install(options_callback_t *callback)
{
    tell = callback;
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

pj_status_t options_send(pjsua_acc_id account, const char *text, long long token)
{
    const pj_str_t uri = pj_str((char *)text);
    pjsip_tx_data *tdata;
    if (!pjsua_acc_is_valid(account))
        return PJ_EINVAL;
    pj_status_t status = compose(account, &uri, &tdata);
    if (status != PJ_SUCCESS)
        return status;
    question_t *question = PJ_POOL_ZALLOC_T(tdata->pool, question_t);
    *question = (question_t){.token = token, .sent_us = now_us()};
    pjsip_tx_data_add_ref(tdata);
    status = pjsip_endpt_send_request(pjsua_get_pjsip_endpt(), tdata, -1, question, on_end);
    if (question->told) /* what could not be sent has ended before we are told so */
        status = PJ_SUCCESS;
    pjsip_tx_data_dec_ref(tdata);
    return status;
}
