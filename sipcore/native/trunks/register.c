#include "trunks/register.h"

#include "net/drop_counters.h"
#include "trunks/auth_challenge.h"
#include "trunks/client_transaction.h"
#include "trunks/contact_binding.h"
#include "trunks/registration_flow.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <pjsua-lib/pjsua_internal.h>

#define KEY_SIZE 256 /* longer than our branches with PJSIP's prefix */

typedef struct request {
    pj_pool_t *pool;
    pjsua_acc_id account;
    long long token;
    unsigned expires_s;
    int challenge_responses;
    pjsip_uri *contact;
    pjsip_auth_clt_sess auth;
} request_t;

/* By account: the request whose outcome is awaited, and the key of its transaction. Outcomes of others are ignored. */
typedef struct awaited {
    request_t *request;
    char tsx[KEY_SIZE];
} awaited_t;

static struct {
    pthread_mutex_t lock;   /* never held while PJSIP is called */
    awaited_t awaited[PJSUA_MAX_ACC];
    register_callback_t *on_outcome;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_tsx_state(pjsip_transaction *tsx, pjsip_event *event);
static pj_bool_t on_response(pjsip_rx_data *rdata);

static pjsip_module module = {
    .name = {"mod-trunkline-register", 22},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TSX_LAYER - 1,
    .on_rx_response = on_response,
    .on_tsx_state = on_tsx_state,
};

static pj_str_t text(const char *words)
{
    return pj_str((char *)words);
}

static void release(request_t *request)
{
    pjsip_auth_clt_deinit(&request->auth);
    pj_pool_secure_release(&request->pool);
}

/* ---- the request's headers ---- */

static request_t *new_request(const register_params_t *params)
{
    pj_pool_t *pool = pjsua_pool_create("register", 1000, 1000);
    request_t *request = pool ? PJ_POOL_ZALLOC_T(pool, request_t) : NULL;
    if (!request)
        return NULL;
    request->pool = pool;
    request->account = params->account;
    request->token = params->token;
    request->expires_s = params->expires_s;
    pjsip_auth_clt_init(&request->auth, pjsua_get_pjsip_endpt(), pool, 0);
    pjsip_cred_info credentials = {
        .realm = text("*"), .scheme = text("digest"), .username = text(params->user),
        .data_type = PJSIP_CRED_DATA_PLAIN_PASSWD, .data = text(params->password),
    };
    pjsip_auth_clt_set_credentials(&request->auth, *params->user ? 1 : 0, &credentials);
    return request;
}

static pj_status_t set_contact(const register_params_t *params, request_t *request, pj_str_t *contact)
{
    const pj_str_t registrar = text(params->registrar), name = text("Contact");
    pj_str_t own = text(params->contact);
    pj_status_t status = PJ_SUCCESS;
    if (!own.slen)
        status = pjsua_acc_create_uac_contact(request->pool, &own, params->account, &registrar);
    if (status != PJ_SUCCESS)
        return status;
    pj_strdup_with_null(request->pool, contact, &own);
    pj_str_t parsed;
    pj_strdup_with_null(request->pool, &parsed, &own);
    pjsip_contact_hdr *header = pjsip_parse_hdr(request->pool, &name, parsed.ptr, (pj_size_t)parsed.slen, NULL);
    if (!header)
        return PJSIP_EINVALIDURI;
    request->contact = pjsip_uri_get_uri(header->uri);
    return PJ_SUCCESS;
}

/* First hop first. */
static void add_routes(pjsua_acc_id account, pjsip_tx_data *tdata)
{
    PJSUA_LOCK();
    const pjsip_route_hdr *routes = &pjsua_var.acc[account].route_set;
    for (const pjsip_route_hdr *route = routes->next; route != routes; route = route->next)
        pjsip_msg_add_hdr(tdata->msg, pjsip_hdr_clone(tdata->pool, route));
    PJSUA_UNLOCK();
}

static void add_headers(pjsip_tx_data *tdata, unsigned expires_s)
{
    const pj_str_t name = text("User-Agent");
    const pjsip_hdr *allow = pjsip_endpt_get_capability(pjsua_get_pjsip_endpt(), PJSIP_H_ALLOW, NULL);
    pjsip_msg_add_hdr(tdata->msg, (pjsip_hdr *)pjsip_expires_hdr_create(tdata->pool, expires_s));
    if (allow)
        pjsip_msg_add_hdr(tdata->msg, pjsip_hdr_clone(tdata->pool, allow));
    if (pjsua_var.ua_cfg.user_agent.slen)
        pjsip_msg_add_hdr(tdata->msg, (pjsip_hdr *)pjsip_generic_string_hdr_create(tdata->pool, &name,
                                                                                   &pjsua_var.ua_cfg.user_agent));
}

static pj_status_t compose(const register_params_t *params, const pj_str_t *contact, pjsip_tx_data **tdata)
{
    const pj_str_t registrar = text(params->registrar), aor = text(params->aor), call_id = text(params->call_id);
    pj_status_t status = pjsip_endpt_create_request(pjsua_get_pjsip_endpt(), &pjsip_register_method, &registrar, &aor, &aor,
                                                    contact, &call_id, (int)params->cseq, NULL, tdata);
    if (status != PJ_SUCCESS)
        return status;
    add_routes(params->account, *tdata);
    status = pjsua_acc_get_uac_addr(params->account, (*tdata)->pool, &registrar, &(*tdata)->via_addr, NULL, NULL,
                                    &(*tdata)->via_tp);
    if (status != PJ_SUCCESS) {
        pjsip_tx_data_dec_ref(*tdata);
        return status;
    }
    contact_binding_remove_former(*tdata, params->former, contact);
    add_headers(*tdata, params->expires_s);
    return PJ_SUCCESS;
}

/* ---- the transaction ---- */

static void record_transaction(void *data, const pjsip_transaction *tsx)
{
    request_t *request = data;
    awaited_t *awaited = &state.awaited[request->account];
    pj_size_t length = (pj_size_t)tsx->transaction_key.slen;
    pthread_mutex_lock(&state.lock);
    awaited->request = request;
    *awaited->tsx = 0;
    if (length < sizeof awaited->tsx) {
        memcpy(awaited->tsx, tsx->transaction_key.ptr, length);
        awaited->tsx[length] = 0;
    }
    pthread_mutex_unlock(&state.lock);
}

static bool is_awaited(const request_t *request)
{
    pthread_mutex_lock(&state.lock);
    bool awaited = state.awaited[request->account].request == request;
    pthread_mutex_unlock(&state.lock);
    return awaited;
}

static void stop_awaiting(const request_t *request)
{
    awaited_t *awaited = &state.awaited[request->account];
    pthread_mutex_lock(&state.lock);
    if (awaited->request == request)
        awaited->request = NULL;
    pthread_mutex_unlock(&state.lock);
}

/* Takes ownership of `tdata`. `contact`, unless NULL, receives the Contact if its port was changed while it was sent. An
 * error: nothing will be reported. */
static pj_status_t transmit(request_t *request, pjsip_tx_data *tdata, char *contact, size_t size)
{
    const int port = contact_binding_port(tdata->msg);
    pjsip_tx_data_add_ref(tdata);
    pj_status_t status = client_transaction_send(&module, tdata, request, record_transaction);
    if (contact && contact_binding_port(tdata->msg) != port)
        contact_binding_print(tdata->msg, contact, size);
    pjsip_tx_data_dec_ref(tdata);
    return status;
}

pj_status_t register_send(const register_params_t *params, char *contact, size_t size)
{
    pjsip_tx_data *tdata;
    pj_str_t own;
    if (!pjsua_acc_is_valid(params->account))
        return PJ_EINVAL;
    request_t *request = new_request(params);
    if (!request)
        return PJ_ENOMEM;
    pj_status_t status = set_contact(params, request, &own);
    if (status == PJ_SUCCESS)
        status = compose(params, &own, &tdata);
    if (status == PJ_SUCCESS) {
        pj_ansi_snprintf(contact, size, "%.*s", (int)own.slen, own.ptr);
        status = transmit(request, tdata, contact, size);
    }
    if (status != PJ_SUCCESS) {
        stop_awaiting(request);
        release(request);
    }
    return status;
}

/* ---- challenges ---- */

/* Responses to any request of ours: INVITEs are challenged in the same way. */
static pj_bool_t on_response(pjsip_rx_data *rdata)
{
    if (!auth_challenge_is_status(rdata->msg_info.msg->line.status.code))
        return PJ_FALSE;
    if (auth_challenge_drop_reflected(rdata->msg_info.msg))
        drop_count(DROP_REFLECTED_CHALLENGE, rdata->pkt_info.src_name);
    auth_challenge_keep_first(rdata->msg_info.msg);
    return PJ_FALSE;
}

/* A second challenge means that the password is wrong, unless it says that just the nonce was too old (RFC 3261 22.2). */
static bool may_answer_challenge(const request_t *request, const pjsip_msg *message)
{
    return request->auth.cred_cnt && request->challenge_responses < REGISTER_MAX_CHALLENGES &&
           (!request->challenge_responses || auth_challenge_is_stale(message));
}

/* True when another request is on its way. */
static bool answer_challenge(request_t *request, const pjsip_transaction *tsx, const pjsip_rx_data *rdata)
{
    pjsip_tx_data *tdata;
    if (!may_answer_challenge(request, rdata->msg_info.msg) || !is_awaited(request) ||
        pjsip_auth_clt_reinit_req(&request->auth, rdata, tsx->last_tx, &tdata) != PJ_SUCCESS)
        return false;
    pjsip_cseq_hdr *cseq = pjsip_msg_find_hdr(tdata->msg, PJSIP_H_CSEQ, NULL);
    cseq->cseq++;
    request->challenge_responses++;
    pjsip_tx_data_invalidate_msg(tdata);
    return transmit(request, tdata, NULL, 0) == PJ_SUCCESS;
}

/* ---- the outcome ---- */

static int seconds_in(const pjsip_msg *message, pjsip_hdr_e name)
{
    const pjsip_generic_int_hdr *header = pjsip_msg_find_hdr(message, name, NULL);
    return header && header->ivalue <= PJ_MAXINT32 ? (int)header->ivalue : -1;
}

static enum register_outcome_kind kind_without_response(const pjsip_transaction *tsx)
{
    if (tsx->status_code == PJSIP_SC_BAD_GATEWAY)
        return REGISTER_UNRESOLVED;
    return tsx->status_code == PJSIP_SC_SERVICE_UNAVAILABLE ? REGISTER_UNREACHABLE : REGISTER_NO_RESPONSE;
}

static void describe(const request_t *request, const pjsip_transaction *tsx, pjsip_rx_data *rdata, register_outcome_t *outcome)
{
    *outcome = (register_outcome_t){.token = request->token, .retry_after_s = -1, .min_expires_s = -1};
    if (!rdata) {
        outcome->kind = kind_without_response(tsx);
        client_transaction_failure(tsx, outcome->reason);
        return;
    }
    const pjsip_msg *message = rdata->msg_info.msg;
    const pj_str_t *reason = &message->line.status.reason;
    pj_ansi_snprintf(outcome->reason, sizeof outcome->reason, "%.*s", (int)reason->slen, reason->ptr);
    outcome->code = message->line.status.code;
    const bool challenged = auth_challenge_is_status(outcome->code) && !request->challenge_responses;
    outcome->kind = challenged ? REGISTER_NO_CREDENTIALS : REGISTER_ANSWERED;
    pj_ansi_snprintf(outcome->source, sizeof outcome->source, "%s", rdata->pkt_info.src_name);
    outcome->retry_after_s = seconds_in(message, PJSIP_H_RETRY_AFTER);
    outcome->min_expires_s = seconds_in(message, PJSIP_H_MIN_EXPIRES);
    if (outcome->code / 100 == 2 && request->expires_s)
        outcome->expires_s = contact_binding_granted_s(request->contact, request->expires_s, tsx->last_tx->msg, message);
}

/* The transaction's lock is held. */
static void on_tsx_state(pjsip_transaction *tsx, pjsip_event *event)
{
    request_t *request = module.id < 0 ? NULL : tsx->mod_data[module.id]; /* PJSUA ends: its pools go with it */
    if (!request || tsx->status_code < 200 || event->type != PJSIP_EVENT_TSX_STATE)
        return;
    tsx->mod_data[module.id] = NULL;
    pjsip_rx_data *rdata = event->body.tsx_state.type == PJSIP_EVENT_RX_MSG ? event->body.tsx_state.src.rdata : NULL;
    if (rdata && auth_challenge_is_status(tsx->status_code) && answer_challenge(request, tsx, rdata))
        return;
    register_outcome_t outcome;
    describe(request, tsx, rdata, &outcome);
    bool awaited = is_awaited(request);
    if (awaited && outcome.code / 100 == 2 && outcome.expires_s)
        registration_flow_set(request->account, tsx);
    stop_awaiting(request);
    if (awaited && state.on_outcome)
        state.on_outcome(&outcome);
    release(request);
}

void register_abandon(pjsua_acc_id account)
{
    char words[KEY_SIZE];
    pthread_mutex_lock(&state.lock);
    bool awaited = state.awaited[account].request != NULL;
    memcpy(words, state.awaited[account].tsx, sizeof words);
    pthread_mutex_unlock(&state.lock);
    pj_str_t key = pj_str(words);
    pjsip_transaction *tsx = awaited ? pjsip_tsx_layer_find_tsx2(&key, PJ_TRUE) : NULL;
    if (!tsx)
        return;
    pjsip_tsx_terminate(tsx, PJSIP_SC_REQUEST_TIMEOUT);
    pj_grp_lock_dec_ref(tsx->grp_lock);
}

void register_drop(pjsua_acc_id account)
{
    pthread_mutex_lock(&state.lock);
    state.awaited[account].request = NULL; /* its transaction releases it */
    pthread_mutex_unlock(&state.lock);
    registration_flow_release(account);
}

int register_install(register_callback_t *on_outcome)
{
    state.on_outcome = on_outcome;
    return pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

void register_remove(void)
{
    state.on_outcome = NULL;
    for (int i = 0; i < PJSUA_MAX_ACC; i++)
        register_drop(i);
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
}
