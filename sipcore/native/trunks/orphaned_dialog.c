#define _GNU_SOURCE
#include "trunks/orphaned_dialog.h"

#include "net/ip_set.h"
#include "net/monotonic_clock.h"
#include "trunks/auth_challenge.h"
#include "trunks/client_transaction.h"

#include <pthread.h>
#include <string.h>

#include <pjsua-lib/pjsua_internal.h>

/* Requests of the former process that its record does not count, such as re-INVITEs. Any higher number is in order (RFC 3261
 * 12.2.2). */
#define CSEQ_GAP 1000
#define MAX_CSEQ 0x7fffffffu
/* 64*T1 and some more: a callee repeats its answer that long, and a refusal comes that late (RFC 3261 13.3.1.4, 17.2.1). */
#define LATE_RESPONSES_MS 40000
#define MAX_CHALLENGES 3
#define MAX_ANSWERS 8           /* of the forks of an INVITE; further ones get no BYE */

typedef struct request {
    pj_pool_t *pool;
    long long token;    /* 0: its outcome is not reported */
    int challenge_responses;
    pjsip_auth_clt_sess auth;
} request_t;

/* A cancelled INVITE, in its own pool, until the stack ends. */
typedef struct cancelled {
    struct cancelled *next;
    pjsip_tx_data *invite;
    unsigned long long until_ms;
    pj_str_t reason, user, password;
    pj_str_t answered_by[MAX_ANSWERS];  /* To tags of the answers that got a BYE */
    int answers;
} cancelled_t;

static struct {
    pthread_mutex_t lock;   /* never held while PJSIP sends */
    cancelled_t *cancelled;
    orphaned_dialog_callback_t *on_result;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_tsx_state(pjsip_transaction *tsx, pjsip_event *event);
static pj_bool_t on_response(pjsip_rx_data *rdata);

static pjsip_module module = {
    .name = {"mod-trunkline-orphaned-dialog", 29},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TSX_LAYER + 1, /* responses without a transaction */
    .on_rx_response = on_response,
    .on_tsx_state = on_tsx_state,
};

static pj_str_t text(const char *words)
{
    return pj_str((char *)words);
}

/* ---- composition ---- */

static void add_text_header(pjsip_tx_data *tdata, const char *name, const pj_str_t *value)
{
    const pj_str_t header = text(name);
    if (value->slen)
        pjsip_msg_add_hdr(tdata->msg, (pjsip_hdr *)pjsip_generic_string_hdr_create(tdata->pool, &header, value));
}

static pj_status_t add_routes(pjsip_tx_data *tdata, const dialog_record_t *record)
{
    const pj_str_t name = text("Route");
    for (int i = 0; i < record->route_count; i++) {
        pj_str_t copy, given = text(record->route[i]);
        pj_strdup_with_null(tdata->pool, &copy, &given); /* the parser needs a zero, and memory of its own */
        pjsip_hdr *route = pjsip_parse_hdr(tdata->pool, &name, copy.ptr, (pj_size_t)copy.slen, NULL);
        if (!route)
            return PJSIP_EINVALIDHDR;
        pjsip_msg_add_hdr(tdata->msg, route);
    }
    return PJ_SUCCESS;
}

static pj_status_t compose(const pjsip_method *method, const dialog_record_t *record, unsigned cseq, pjsip_tx_data **tdata)
{
    const pj_str_t target = text(record->target), local = text(record->local), remote = text(record->remote);
    const pj_str_t call_id = text(record->call_id), local_tag = text(record->local_tag), remote_tag = text(record->remote_tag);
    pj_status_t status = pjsip_endpt_create_request(pjsua_get_pjsip_endpt(), method, &target, &local, &remote, NULL, &call_id,
                                                    (int)cseq, NULL, tdata);
    if (status != PJ_SUCCESS)
        return status;
    pj_strdup((*tdata)->pool, &PJSIP_MSG_FROM_HDR((*tdata)->msg)->tag, &local_tag);
    pj_strdup((*tdata)->pool, &PJSIP_MSG_TO_HDR((*tdata)->msg)->tag, &remote_tag);
    status = add_routes(*tdata, record);
    if (status != PJ_SUCCESS)
        pjsip_tx_data_dec_ref(*tdata);
    return status;
}

static void add_headers(pjsip_tx_data *tdata, const pj_str_t *reason)
{
    add_text_header(tdata, "Reason", reason);
    add_text_header(tdata, "User-Agent", &pjsua_var.ua_cfg.user_agent);
}

/* ---- requests and their outcome ---- */

static void release(request_t *request)
{
    pjsip_auth_clt_deinit(&request->auth);
    pj_pool_secure_release(&request->pool);
}

static request_t *new_request(long long token, const char *user, const char *password)
{
    pj_pool_t *pool = pjsua_pool_create("orphaned dialog", 1000, 1000);
    request_t *request = pool ? PJ_POOL_ZALLOC_T(pool, request_t) : NULL;
    if (!request)
        return NULL;
    request->pool = pool;
    request->token = token;
    pjsip_auth_clt_init(&request->auth, pjsua_get_pjsip_endpt(), pool, 0);
    const pjsip_cred_info credentials = {
        .realm = text("*"), .scheme = text("digest"), .username = text(user),
        .data_type = PJSIP_CRED_DATA_PLAIN_PASSWD, .data = text(password),
    };
    pjsip_auth_clt_set_credentials(&request->auth, *user ? 1 : 0, &credentials);
    return request;
}

/* Takes ownership of `tdata`. */
static pj_status_t transmit(pjsip_tx_data *tdata, long long token, const char *user, const char *password)
{
    request_t *request = new_request(token, user, password);
    if (!request) {
        pjsip_tx_data_dec_ref(tdata);
        return PJ_ENOMEM;
    }
    pj_status_t status = client_transaction_send(&module, tdata, request, NULL);
    if (status != PJ_SUCCESS)
        release(request);
    return status;
}

/* A second challenge means that the password is wrong, unless it says that just the nonce was too old (RFC 3261 22.2). True
 * when another request is on its way. */
static bool answer_challenge(request_t *request, const pjsip_transaction *tsx, const pjsip_rx_data *rdata)
{
    pjsip_tx_data *tdata;
    if (!request->auth.cred_cnt || request->challenge_responses >= MAX_CHALLENGES ||
        (request->challenge_responses && !auth_challenge_is_stale(rdata->msg_info.msg)) ||
        pjsip_auth_clt_reinit_req(&request->auth, rdata, tsx->last_tx, &tdata) != PJ_SUCCESS)
        return false;
    PJSIP_MSG_CSEQ_HDR(tdata->msg)->cseq++;
    request->challenge_responses++;
    pjsip_tx_data_invalidate_msg(tdata);
    return client_transaction_send(&module, tdata, request, NULL) == PJ_SUCCESS;
}

static void report(const request_t *request, const pjsip_transaction *tsx, const pjsip_rx_data *rdata)
{
    char reason[CLIENT_TRANSACTION_FAILURE_SIZE];
    if (!request->token || !state.on_result)
        return;
    if (rdata)
        pj_ansi_snprintf(reason, sizeof reason, "%.*s", (int)tsx->status_text.slen, tsx->status_text.ptr);
    else
        client_transaction_failure(tsx, reason);
    state.on_result(request->token, rdata ? tsx->status_code : 0, reason);
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
    report(request, tsx, rdata);
    release(request);
}

/* ---- BYE ---- */

static pj_status_t send_bye(const orphaned_dialog_params_t *params)
{
    static const pjsip_method bye = {PJSIP_BYE_METHOD, {"BYE", 3}};
    const pj_str_t reason = text(params->reason);
    pjsip_tx_data *tdata;
    if (params->record.cseq > MAX_CSEQ - CSEQ_GAP - MAX_CHALLENGES)
        return PJ_ETOOBIG;
    pj_status_t status = compose(&bye, &params->record, params->record.cseq + CSEQ_GAP, &tdata);
    if (status != PJ_SUCCESS)
        return status;
    add_headers(tdata, &reason);
    return transmit(tdata, params->token, params->user, params->password);
}

/* ---- CANCEL ---- */

static pj_status_t set_first_hop(pjsip_tx_data *tdata, const dialog_record_invite_t *invite)
{
    const pj_str_t address = text(invite->address), name = text(invite->server_name), transport = text(invite->transport);
    pjsip_server_address_record *hop = &tdata->dest_info.addr.entry[0];
    pjsip_transport_type_e type = pjsip_transport_get_type_from_name(&transport);
    pj_status_t status = pj_sockaddr_parse(pj_AF_UNSPEC(), 0, &address, &hop->addr);
    if (status != PJ_SUCCESS || type == PJSIP_TRANSPORT_UNSPECIFIED || !pj_sockaddr_get_port(&hop->addr))
        return status != PJ_SUCCESS ? status : PJSIP_EUNSUPTRANSPORT;
    hop->type = hop->addr.addr.sa_family == pj_AF_INET6() ? type | PJSIP_TRANSPORT_IPV6 : type;
    hop->addr_len = (int)pj_sockaddr_get_len(&hop->addr);
    tdata->dest_info.addr.count = 1;
    pj_strdup(tdata->pool, &tdata->dest_info.name, &name);
    return PJ_SUCCESS;
}

static pj_status_t set_via(pjsip_tx_data *tdata, const dialog_record_invite_t *invite)
{
    const pj_str_t sent_by = text(invite->sent_by), branch = text(invite->branch), transport = text(invite->transport);
    pjsip_via_hdr *via = pjsip_msg_find_hdr(tdata->msg, PJSIP_H_VIA, NULL);
    pj_str_t host;
    pj_uint16_t port;
    int family;
    pj_status_t status = pj_sockaddr_parse2(pj_AF_UNSPEC(), 0, &sent_by, &host, &port, &family);
    if (status != PJ_SUCCESS || !via)
        return status != PJ_SUCCESS ? status : PJSIP_EMISSINGHDR;
    pj_strdup(tdata->pool, &via->sent_by.host, &host);
    pj_strdup(tdata->pool, &via->branch_param, &branch);
    pj_strdup(tdata->pool, &via->transport, &transport);
    via->sent_by.port = port;
    via->rport_param = pjsip_cfg()->endpt.disable_rport ? -1 : 0;
    return PJ_SUCCESS;
}

/* The INVITE as it was sent. It is never sent again: it could ring a second time. */
static pj_status_t compose_invite(const dialog_record_t *record, pjsip_tx_data **invite)
{
    if (record->cseq > MAX_CSEQ)
        return PJ_ETOOBIG;
    pj_status_t status = compose(pjsip_get_invite_method(), record, record->cseq, invite);
    if (status != PJ_SUCCESS)
        return status;
    status = set_first_hop(*invite, &record->invite);
    if (status == PJ_SUCCESS)
        status = set_via(*invite, &record->invite);
    if (status != PJ_SUCCESS)
        pjsip_tx_data_dec_ref(*invite);
    return status;
}

/* Takes ownership of `invite`. */
static void await_late_responses(pjsip_tx_data *invite, const orphaned_dialog_params_t *params)
{
    cancelled_t *cancelled = PJ_POOL_ZALLOC_T(invite->pool, cancelled_t);
    *cancelled = (cancelled_t){.invite = invite, .until_ms = (unsigned long long)monotonic_ms() + LATE_RESPONSES_MS};
    pj_strdup2_with_null(invite->pool, &cancelled->reason, params->reason);
    pj_strdup2_with_null(invite->pool, &cancelled->user, params->user);
    pj_strdup2_with_null(invite->pool, &cancelled->password, params->password);
    pthread_mutex_lock(&state.lock);
    cancelled->next = state.cancelled;
    state.cancelled = cancelled;
    pthread_mutex_unlock(&state.lock);
}

static pj_status_t send_cancel(const orphaned_dialog_params_t *params)
{
    const pj_str_t reason = text(params->reason);
    pjsip_tx_data *invite, *cancel;
    pj_status_t status = compose_invite(&params->record, &invite);
    if (status != PJ_SUCCESS)
        return status;
    status = pjsip_endpt_create_cancel(pjsua_get_pjsip_endpt(), invite, &cancel);
    if (status != PJ_SUCCESS) {
        pjsip_tx_data_dec_ref(invite);
        return status;
    }
    add_headers(cancel, &reason);
    await_late_responses(invite, params); /* first: a response may come before this returns */
    return transmit(cancel, params->token, "", ""); /* a CANCEL cannot be challenged (RFC 3261 22.1) */
}

/* ---- late responses to a cancelled INVITE ---- */

static bool is_response_to(const pjsip_rx_data *rdata, const cancelled_t *cancelled)
{
    const pjsip_msg *invite = cancelled->invite->msg;
    return pj_strcmp(&rdata->msg_info.cid->id, &PJSIP_MSG_CID_HDR(invite)->id) == 0 &&
           pj_strcmp(&rdata->msg_info.from->tag, &PJSIP_MSG_FROM_HDR(invite)->tag) == 0 &&
           rdata->msg_info.cseq->cseq == PJSIP_MSG_CSEQ_HDR(invite)->cseq &&
           ip_same_host(&cancelled->invite->dest_info.addr.entry[0].addr, &rdata->pkt_info.src_addr) &&
           (unsigned long long)monotonic_ms() < cancelled->until_ms;
}

static cancelled_t *cancelled_of(const pjsip_rx_data *rdata)
{
    if (rdata->msg_info.cseq->method.id != PJSIP_INVITE_METHOD)
        return NULL;
    pthread_mutex_lock(&state.lock);
    cancelled_t *cancelled = state.cancelled;
    while (cancelled && !is_response_to(rdata, cancelled))
        cancelled = cancelled->next;
    pthread_mutex_unlock(&state.lock);
    return cancelled;
}

bool orphaned_dialog_expects(const pjsip_rx_data *rdata)
{
    return cancelled_of(rdata) != NULL;
}

static void send_stateless(pjsip_tx_data *tdata)
{
    if (pjsip_endpt_send_request_stateless(pjsua_get_pjsip_endpt(), tdata, NULL, NULL) != PJ_SUCCESS)
        pjsip_tx_data_dec_ref(tdata);
}

static void acknowledge_refusal(const cancelled_t *cancelled, const pjsip_rx_data *rdata)
{
    pjsip_tx_data *ack;
    if (pjsip_endpt_create_ack(pjsua_get_pjsip_endpt(), cancelled->invite, rdata, &ack) != PJ_SUCCESS)
        return;
    ack->dest_info.addr = cancelled->invite->dest_info.addr;
    pj_strdup(ack->pool, &ack->dest_info.name, &cancelled->invite->dest_info.name);
    send_stateless(ack);
}

/* A request in the dialog that an answer has established (RFC 3261 12.1.2). */
static pj_status_t compose_in_dialog(const pjsip_method *method, const cancelled_t *cancelled, const pjsip_rx_data *rdata,
                                     pj_int32_t cseq, pjsip_tx_data **tdata)
{
    const pjsip_msg *invite = cancelled->invite->msg;
    const pjsip_contact_hdr *contact = pjsip_msg_find_hdr(rdata->msg_info.msg, PJSIP_H_CONTACT, NULL);
    pjsip_uri *target = contact && !contact->star && contact->uri ? pjsip_uri_get_uri(contact->uri) : invite->line.req.uri;
    pj_status_t status = pjsip_endpt_create_request_from_hdr(pjsua_get_pjsip_endpt(), method, target, PJSIP_MSG_FROM_HDR(invite),
                                                             rdata->msg_info.to, NULL, PJSIP_MSG_CID_HDR(invite), cseq, NULL,
                                                             tdata);
    if (status != PJ_SUCCESS)
        return status;
    const pjsip_hdr *headers = &rdata->msg_info.msg->hdr;
    for (const pjsip_hdr *header = headers->prev; header != headers; header = header->prev) {
        if (header->type != PJSIP_H_RECORD_ROUTE)
            continue;
        pjsip_route_hdr *route = pjsip_route_hdr_create((*tdata)->pool);
        pjsip_name_addr_assign((*tdata)->pool, &route->name_addr, &((const pjsip_rr_hdr *)header)->name_addr);
        pjsip_msg_add_hdr((*tdata)->msg, (pjsip_hdr *)route);
    }
    return PJ_SUCCESS;
}

/* True once for each dialog that the INVITE has led to. */
static bool is_new_answer(cancelled_t *cancelled, const pj_str_t *tag)
{
    pthread_mutex_lock(&state.lock);
    bool is_new = cancelled->answers < MAX_ANSWERS;
    for (int i = 0; i < cancelled->answers; i++)
        is_new = is_new && pj_strcmp(&cancelled->answered_by[i], tag) != 0;
    if (is_new)
        pj_strdup_with_null(cancelled->invite->pool, &cancelled->answered_by[cancelled->answers++], tag);
    pthread_mutex_unlock(&state.lock);
    return is_new;
}

/* The answer crossed the CANCEL, or came while no process was there. */
static void end_answered(cancelled_t *cancelled, const pjsip_rx_data *rdata)
{
    static const pjsip_method bye = {PJSIP_BYE_METHOD, {"BYE", 3}};
    const pj_int32_t cseq = PJSIP_MSG_CSEQ_HDR(cancelled->invite->msg)->cseq;
    pjsip_tx_data *tdata;
    if (compose_in_dialog(pjsip_get_ack_method(), cancelled, rdata, cseq, &tdata) == PJ_SUCCESS)
        send_stateless(tdata);
    if (!is_new_answer(cancelled, &rdata->msg_info.to->tag) ||
        compose_in_dialog(&bye, cancelled, rdata, cseq + 1, &tdata) != PJ_SUCCESS)
        return;
    add_headers(tdata, &cancelled->reason);
    transmit(tdata, 0, cancelled->user.ptr, cancelled->password.ptr);
}

static pj_bool_t on_response(pjsip_rx_data *rdata)
{
    cancelled_t *cancelled = cancelled_of(rdata);
    const int status = rdata->msg_info.msg->line.status.code;
    if (!cancelled)
        return PJ_FALSE;
    if (status >= 300)
        acknowledge_refusal(cancelled, rdata);
    else if (status >= 200)
        end_answered(cancelled, rdata);
    return PJ_TRUE;
}

/* ---- install and remove ---- */

pj_status_t orphaned_dialog_end(const orphaned_dialog_params_t *params)
{
    return *params->record.invite.branch ? send_cancel(params) : send_bye(params);
}

int orphaned_dialog_install(orphaned_dialog_callback_t *on_result)
{
    state.on_result = on_result;
    return pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

void orphaned_dialog_remove(void)
{
    state.on_result = NULL;
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
    pthread_mutex_lock(&state.lock);
    cancelled_t *cancelled = state.cancelled;
    state.cancelled = NULL;
    pthread_mutex_unlock(&state.lock);
    while (cancelled) {
        cancelled_t *next = cancelled->next; /* it is in the INVITE's pool */
        explicit_bzero(cancelled->password.ptr, (size_t)cancelled->password.slen);
        pjsip_tx_data_dec_ref(cancelled->invite);
        cancelled = next;
    }
}
