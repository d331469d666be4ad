#include "stack.h"

#include <pjsua-lib/pjsua_internal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sip/local_address.h"
#include "trunks/auth_challenge.h"
#include "guard/guard.h"
#include "guard/invite_rate_limit.h"
#include "net/ip_literal.h"
#include "rtp/media_address_policy.h"
#include "net/host_table.h"
#include "sip/refer.h"
#include "rtp/port_pool.h"
#include "net/message_tap.h"
#include "net/source_acl.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define POISON(at, size) ASAN_POISON_MEMORY_REGION(at, size)
#define UNPOISON(at, size) ASAN_UNPOISON_MEMORY_REGION(at, size)
#endif
#endif
#ifndef POISON
#define POISON(at, size) ((void)(at), (void)(size))
#define UNPOISON(at, size) ((void)(at), (void)(size))
#endif

#define BATCH (256u << 10)
#define MAX_SIZE (PJSIP_MAX_PKT_LEN - 2)
#define MAX_TRANSACTIONS 64     /* begun by one packet */

static pjsip_transport datagrams, stream;
static pjsip_rx_data received;
static pj_pool_t *input_pool, *key_pool;
static pjsip_dialog *dialog;
static char local_tag[64], last_sent[MAX_SIZE + 2];
static seen_t seen;
static pj_str_t begun_keys[MAX_TRANSACTIONS]; /* keys of transactions that the packet began */
static int begun_count;
static bool admits_responses;

void (*stack_on_outcome)(const register_outcome_t *outcome);

void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

/* ---- transactions that a packet begins ---- */

static void add_key(const pj_str_t *key)
{
    must(begun_count < MAX_TRANSACTIONS, "a packet begins few transactions");
    pj_strdup(key_pool, &begun_keys[begun_count++], key);
}

static pj_bool_t on_request(pjsip_rx_data *rdata)
{
    pj_str_t key;
    if (pjsip_method_cmp(&rdata->msg_info.msg->line.req.method, pjsip_get_refer_method()) == 0 &&
        pjsip_tsx_create_key(rdata->tp_info.pool, &key, PJSIP_ROLE_UAS, pjsip_get_refer_method(), rdata) == PJ_SUCCESS)
        add_key(&key);
    return PJ_FALSE;
}

static pjsip_module first_module = {
    .name = {"mod-fuzz-begin", 14},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TRANSPORT_LAYER + 1,
    .on_rx_request = on_request,
};

/* PJSIP frees ended transactions when it polls its timers. */
void stack_end_transactions(void)
{
    const pj_time_val at_once = {0, 0};
    refer_drop_pending();
    for (int i = 0; i < begun_count; i++) {
        pjsip_transaction *transaction = pjsip_tsx_layer_find_tsx2(&begun_keys[i], PJ_TRUE);
        if (!transaction)
            continue;
        pjsip_tsx_terminate(transaction, PJSIP_SC_REQUEST_TIMEOUT);
        pj_grp_lock_dec_ref(transaction->grp_lock);
    }
    for (int i = 0; i < begun_count; i += PJSIP_MAX_TIMED_OUT_ENTRIES)
        pjsip_endpt_handle_events(pjsua_get_pjsip_endpt(), &at_once);
    must(pjsip_tsx_layer_get_tsx_count() == 1, "only the INVITE transaction is left");
    begun_count = 0;
    pj_pool_reset(key_pool);
    dialog->remote.cseq = 1;
}

/* ---- transports that discard what they send ---- */

static pj_status_t send_message(pjsip_transport *transport, pjsip_tx_data *tdata, const pj_sockaddr_t *address, int length,
                                void *token, pjsip_transport_callback callback)
{
    (void)transport, (void)address, (void)length, (void)token, (void)callback;
    const size_t size = (size_t)(tdata->buf.cur - tdata->buf.start);
    pjsip_transaction *transaction = tdata->mod_data[pjsip_tsx_layer_instance()->id];
    if (transaction && transaction->method.id != PJSIP_INVITE_METHOD)
        add_key(&transaction->transaction_key);
    pj_ansi_snprintf(last_sent, sizeof last_sent, "%.*s", (int)size, tdata->buf.start);
    seen.sent++;
    seen.longest_sent = size > seen.longest_sent ? size : seen.longest_sent;
    return PJ_SUCCESS;
}

static pj_status_t do_nothing(pjsip_transport *transport)
{
    (void)transport;
    return PJ_SUCCESS;
}

static void open_transport(pjsip_transport *transport, pjsip_transport_type_e type)
{
    pjsip_endpoint *endpoint = pjsua_get_pjsip_endpt();
    const pj_str_t host = pj_str(KNOWN_ADDRESS);
    transport->pool = pjsip_endpt_create_pool(endpoint, "nowhere", 1000, 1000);
    pj_ansi_snprintf(transport->obj_name, sizeof transport->obj_name, "nowhere");
    pj_atomic_create(transport->pool, 0, &transport->ref_cnt);
    pj_lock_create_recursive_mutex(transport->pool, "nowhere", &transport->lock);
    transport->key.type = type;
    pj_sockaddr_init(pj_AF_INET(), &transport->key.rem_addr, type == PJSIP_TRANSPORT_TCP ? &host : NULL, 0);
    transport->type_name = (char *)pjsip_transport_get_type_name(type);
    transport->flag = pjsip_transport_get_flag_from_type(type);
    transport->info = "nowhere";
    transport->addr_len = sizeof(pj_sockaddr_in);
    pj_sockaddr_init(pj_AF_INET(), &transport->local_addr, &host, 5060);
    transport->local_name.host = host;
    transport->local_name.port = 5060;
    transport->dir = type == PJSIP_TRANSPORT_TCP ? PJSIP_TP_DIR_INCOMING : PJSIP_TP_DIR_NONE;
    transport->endpt = endpoint;
    transport->tpmgr = pjsip_endpt_get_tpmgr(endpoint);
    transport->send_msg = send_message;
    transport->do_shutdown = do_nothing;
    transport->destroy = do_nothing;
    must(pjsip_transport_register(transport->tpmgr, transport) == PJ_SUCCESS, "a transport can be registered");
    pjsip_transport_add_ref(transport);
}

/* ---- messages that the guard admits end here ---- */

static bool is_forbidden(const pj_str_t *text)
{
    static const uint8_t network[15] = {[10] = 0xFF, 0xFF, 203, 0, 113};
    pj_sockaddr address;
    ip_key_t key;
    must(ip_literal_parse(text, &address) && ip_key_of(&address, &key), "a media address is an IP literal");
    return memcmp(key.byte, network, sizeof network) == 0; /* FORBIDDEN_NETWORK, in either notation */
}

/* Reads the addresses as PJMEDIA does. */
static void check_addresses(const pjmedia_sdp_session *sdp)
{
    pjmedia_sdp_rtcp_attr rtcp;
    for (unsigned i = 0; i < sdp->media_count; i++) {
        const pjmedia_sdp_media *media = sdp->media[i];
        const pjmedia_sdp_conn *conn = media->conn ? media->conn : sdp->conn;
        const pjmedia_sdp_attr *attribute = pjmedia_sdp_media_find_attr2(media, "rtcp", NULL);
        if (!media->desc.port)
            continue;
        must(!conn || !is_forbidden(&conn->addr), "no RTP is sent to a forbidden address");
        if (attribute && pjmedia_sdp_attr_get_rtcp(attribute, &rtcp) == PJ_SUCCESS && rtcp.addr.slen)
            must(!is_forbidden(&rtcp.addr), "no RTCP is sent to a forbidden address");
    }
}

static pj_bool_t on_admitted(pjsip_rx_data *rdata)
{
    pjsua_acc_id account = PJSUA_INVALID_ID;
    const pjmedia_sdp_session *sdp = rdata->msg_info.msg->body ? pjsip_rdata_get_sdp_info(rdata)->sdp : NULL;
    local_address_choose_account(rdata, &account);
    if (sdp)
        check_addresses(sdp);
    seen.admitted++;
    return !(admits_responses && rdata->msg_info.msg->type == PJSIP_RESPONSE_MSG);
}

static pjsip_module last_module = {
    .name = {"mod-fuzz-end", 12},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TSX_LAYER - 1,
    .on_rx_request = on_admitted,
    .on_rx_response = on_admitted,
};

/* ---- a call to which messages can belong ---- */

/* Python's part of a REFER: those with an odd CSeq number are answered later. */
static void on_refer(pjsua_call_id number, const pj_str_t *target, pjsip_status_code *code, pjsua_call_setting *setting)
{
    int cseq = 0, flags = -1;
    char source[64] = "";
    (void)setting;
    must(number == 0 && target->slen < 1024 && !target->ptr[target->slen], "a REFER is of the call, and reported as text");
    must(sscanf(target->ptr, "%d %d %63s", &cseq, &flags, source) == 3, "its source is reported");
    must(flags >= 0 && flags <= 3 && strncmp(source, "127.0.0.", 8) == 0, "and its flags");
    *code = cseq & 1 ? PJSIP_SC_TRYING : PJSIP_SC_ACCEPTED;
}

/* Without retransmissions. */
static void invite(pjsip_inv_session *session)
{
    pjsip_endpoint *endpoint = pjsua_get_pjsip_endpt();
    pjsip_tx_data *tdata;
    must(pjsip_inv_invite(session, &tdata) == PJ_SUCCESS, "an INVITE is created");
    pjsip_via_hdr *via = pjsip_via_hdr_create(tdata->pool);
    via->branch_param = pj_str(BRANCH);
    pjsip_msg_insert_first_hdr(tdata->msg, (pjsip_hdr *)via);
    must(pjsip_inv_send_msg(session, tdata) == PJ_SUCCESS, "it is sent");
    pjsip_endpt_cancel_timer(endpoint, &session->invite_tsx->retransmit_timer);
    pjsip_endpt_cancel_timer(endpoint, &session->invite_tsx->timeout_timer);
}

/* The call is confirmed without PJSUA, which gets no messages. */
static void begin_call(void)
{
    pjsua_call *call = &pjsua_var.calls[0];
    const pj_str_t ours = pj_str("<sip:trunkline@127.0.0.1>"), theirs = pj_str("<sip:them@" PEER_ADDRESS ">");
    must(pjsip_dlg_create_uac(pjsip_ua_instance(), &ours, NULL, &theirs, NULL, &dialog) == PJ_SUCCESS, "a dialog begins");
    dialog->call_id->id = pj_str(CALL_ID);
    dialog->remote.info->tag = pj_str(REMOTE_TAG);
    must(pjsip_inv_create_uac(dialog, NULL, 0, &call->inv) == PJ_SUCCESS, "a session begins");
    pj_ansi_snprintf(local_tag, sizeof local_tag, "%.*s", (int)dialog->local.info->tag.slen, dialog->local.info->tag.ptr);
    must(strlen(local_tag) == strlen(LOCAL_TAG), "PJSIP's tags are as long as LOCAL_TAG");
    invite(call->inv);
    call->inv->state = PJSIP_INV_STATE_CONFIRMED;
    dialog->mod_data[pjsua_var.mod.id] = call;
    pjsua_callback callback = {.on_call_transfer_request2 = on_refer};
    refer_hook(&callback);
}

/* ---- start ---- */

static void report_outcome(const register_outcome_t *outcome)
{
    if (stack_on_outcome)
        stack_on_outcome(outcome);
}

static void start_pjsua(void)
{
    pjsua_config config;
    pjsua_logging_config logging;
    pjsua_media_config media;
    pjsua_acc_config account;
    pjsua_acc_id id;
    pjsua_transport_id transport;
    pj_log_set_level(0);
    must(pjsua_create() == PJ_SUCCESS, "PJSUA is created");
    pjsua_config_default(&config);
    pjsua_logging_config_default(&logging);
    pjsua_media_config_default(&media);
    config.thread_cnt = 0;
    logging.level = logging.console_level = 0;
    media.thread_cnt = 0;
    media.has_ioqueue = PJ_FALSE;
    must(pjsua_init(&config, &logging, &media) == PJ_SUCCESS, "PJSUA is ready");
    open_transport(&datagrams, PJSIP_TRANSPORT_UDP);
    open_transport(&stream, PJSIP_TRANSPORT_TCP);
    must(pjsua_transport_register(&datagrams, &transport) == PJ_SUCCESS, "PJSUA knows a transport");
    pjsua_acc_config_default(&account);
    account.id = pj_str("sip:trunkline@127.0.0.1");
    must(pjsua_acc_add(&account, PJ_TRUE, &id) == PJ_SUCCESS, "there is an account");
    local_address_set_accounts(id, PJSUA_INVALID_ID);
}

static void set_media_networks(void)
{
    const char *const networks[] = {ALLOWED_NETWORK}, *const forbidden[] = {FORBIDDEN_NETWORK};
    media_address_policy_set(ip_set_create(networks, 1), ip_set_create(forbidden, 1));
}

static void set_host_table(void)
{
    host_table_entry_t *entry = calloc(1, sizeof *entry);
    strcpy(entry->host, "known.example");
    entry->transport = PJSIP_TRANSPORT_UDP;
    must(host_table_add_target(entry, KNOWN_ADDRESS, 5060, PJSIP_TRANSPORT_UDP) == 0, "an IP address is a target");
    host_table_set(entry, 1);
}

void stack_start(void)
{
    static bool started;
    const char *const known[] = {KNOWN_ADDRESS}, *const probes[] = {PROBE_ADDRESS};
    if (started)
        return;
    started = true;
    start_pjsua();
    invite_rate_limit_set(0);
    port_pool_set(10000, 10999, 0);
    local_address_set(KNOWN_ADDRESS, "", ip_set_create(NULL, 0));
    auth_challenge_set_nonce_prefix("ours");
    source_acl_set(known, 1, probes, 1);
    must(guard_install() == 0 && host_table_install() == 0 && local_address_install() == 0, "the guard is installed");
    must(register_install(report_outcome) == 0, "REGISTER is installed");
    must(pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &first_module) == PJ_SUCCESS, "the first module is registered");
    must(pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &last_module) == PJ_SUCCESS, "the last module is registered");
    set_media_networks();
    set_host_table();
    key_pool = pjsua_pool_create("keys", 4000, 4000);
    begin_call();
    must(tap_install() == 0, "the tap is installed");
    input_pool = pjsua_pool_create("input", 4000, 4000);
    received.tp_info.pool = pjsua_pool_create("received", 4000, 4000);
}

pj_pool_t *stack_pool(void)
{
    stack_start();
    pj_pool_reset(input_pool);
    return input_pool;
}

/* ---- a packet ---- */

static void insert_local_tag(char *packet, size_t size)
{
    const size_t length = sizeof LOCAL_TAG - 1;
    for (size_t at = 0; at + length <= size; at++)
        if (memcmp(packet + at, LOCAL_TAG, length) == 0)
            memcpy(packet + at, local_tag, length);
}

static void drain_tap(void)
{
    static uint8_t batch[BATCH];
    uint64_t lost;
    for (uint32_t size; (size = tap_read(batch, sizeof batch, &lost));)
        for (uint32_t at = 0; at < size;) {
            tap_header_t header;
            memcpy(&header, batch + at, sizeof header);
            must(header.size % 8 == 0 && header.size >= sizeof header && at + header.size <= size, "a record of the tap is whole");
            must(header.call_id + header.from_tag + header.to_tag + header.method + header.text + sizeof header <= header.size,
                 "the lengths of a record fit into its size");
            at += header.size;
        }
    must(lost == 0, "no record is lost");
}

static void reset_shutdown(pjsip_transport *transport)
{
    transport->is_shutdown = transport->is_destroying = PJ_FALSE;
}

void stack_admit_responses(void)
{
    admits_responses = true;
}

const char *stack_last_sent(void)
{
    return last_sent;
}

seen_t stack_receive(const uint8_t *data, size_t size, const char *source, bool over_stream)
{
    stack_start();
    size = size < MAX_SIZE ? size : MAX_SIZE;
    memset(&seen, 0, sizeof seen);
    if (!size)
        return seen;
    const pj_str_t host = pj_str((char *)source);
    pjsip_transport *transport = over_stream ? &stream : &datagrams;
    pj_sockaddr_init(pj_AF_INET(), &received.pkt_info.src_addr, &host, 5060);
    if (over_stream)
        pj_sockaddr_cp(&stream.key.rem_addr, &received.pkt_info.src_addr);
    received.tp_info.transport = transport;
    received.pkt_info.src_addr_len = sizeof(pj_sockaddr_in);
    pj_ansi_snprintf(received.pkt_info.src_name, sizeof received.pkt_info.src_name, "%s", source);
    received.pkt_info.src_port = 5060;
    memcpy(received.pkt_info.packet, data, size);
    insert_local_tag(received.pkt_info.packet, size);
    received.pkt_info.len = (pj_ssize_t)size;
    char *rest = received.pkt_info.packet + size + 1;
    POISON(rest, sizeof received.pkt_info.packet - size - 1);
    pjsip_tpmgr_receive_packet(transport->tpmgr, &received);
    UNPOISON(rest, sizeof received.pkt_info.packet - size - 1);
    if (!admits_responses) /* else a response may follow */
        stack_end_transactions();
    pj_pool_reset(received.tp_info.pool);
    reset_shutdown(transport);
    drain_tap();
    return seen;
}
