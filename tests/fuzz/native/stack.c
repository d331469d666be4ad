#include "stack.h"

#include <pjsua-lib/pjsua_internal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../sipcore/native/address.h"
#include "../../../sipcore/native/challenge.h"
#include "../../../sipcore/native/guard.h"
#include "../../../sipcore/native/limits.h"
#include "../../../sipcore/native/names.h"
#include "../../../sipcore/native/register.h"
#include "../../../sipcore/native/rtp_ports.h"
#include "../../../sipcore/native/tap.h"

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
#define LONGEST (PJSIP_MAX_PKT_LEN - 2)

static pjsip_transport datagrams, stream;
static pjsip_rx_data received;
static pj_pool_t *input_pool;
static char local_tag[64];
static seen_t seen;

void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

/* ---- transports that send nowhere ---- */

static pj_status_t send_nowhere(pjsip_transport *transport, pjsip_tx_data *tdata, const pj_sockaddr_t *address, int length,
                                void *token, pjsip_transport_callback callback)
{
    (void)transport, (void)address, (void)length, (void)token, (void)callback;
    const size_t size = (size_t)(tdata->buf.cur - tdata->buf.start);
    seen.sent++;
    seen.longest_sent = size > seen.longest_sent ? size : seen.longest_sent;
    return PJ_SUCCESS;
}

static pj_status_t stay(pjsip_transport *transport)
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
    transport->send_msg = send_nowhere;
    transport->do_shutdown = stay;
    transport->destroy = stay;
    must(pjsip_transport_register(transport->tpmgr, transport) == PJ_SUCCESS, "a transport can be registered");
    pjsip_transport_add_ref(transport);
}

/* ---- what the guard lets in goes no further ---- */

static pj_bool_t take(pjsip_rx_data *rdata)
{
    (void)rdata;
    seen.let_in++;
    return PJ_TRUE;
}

static pjsip_module end_of_the_way = {
    .name = {"mod-fuzz-end", 12},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TSX_LAYER - 1,
    .on_rx_request = take,
    .on_rx_response = take,
};

/* ---- a dialog that messages can name ---- */

static void begin_dialog(void)
{
    pjsip_dialog *dialog;
    pjsip_inv_session *session;
    const pj_str_t ours = pj_str("<sip:trunkline@127.0.0.1>"), theirs = pj_str("<sip:them@127.0.0.1>");
    must(pjsip_dlg_create_uac(pjsip_ua_instance(), &ours, NULL, &theirs, NULL, &dialog) == PJ_SUCCESS, "a dialog begins");
    dialog->call_id->id = pj_str(CALL_ID);
    dialog->remote.info->tag = pj_str(REMOTE_TAG);
    dialog->remote.cseq = 1;
    must(pjsip_inv_create_uac(dialog, NULL, 0, &session) == PJ_SUCCESS, "a session begins");
    pj_ansi_snprintf(local_tag, sizeof local_tag, "%.*s", (int)dialog->local.info->tag.slen, dialog->local.info->tag.ptr);
    must(strlen(local_tag) == strlen(LOCAL_TAG), "PJSIP's tags are as long as their stand-in");
}

/* ---- in ---- */

static void ignore_outcome(const register_outcome_t *outcome)
{
    (void)outcome;
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
    address_set_accounts(id, PJSUA_INVALID_ID);
}

static void set_names(void)
{
    names_entry_t *entry = calloc(1, sizeof *entry);
    strcpy(entry->host, "known.example");
    entry->transport = PJSIP_TRANSPORT_UDP;
    must(names_add_target(entry, KNOWN_ADDRESS, 5060, PJSIP_TRANSPORT_UDP) == 0, "an address is one");
    names_set(entry, 1);
}

void stack_start(void)
{
    static bool begun;
    const char *const known[] = {KNOWN_ADDRESS}, *const probes[] = {PROBE_ADDRESS};
    if (begun)
        return;
    begun = true;
    start_pjsua();
    limits_set(0);
    rtp_ports_set(10000, 10999, 0);
    address_set(KNOWN_ADDRESS, "", sources_make(NULL, 0));
    challenge_set_mark("ours");
    guard_set_sources(known, 1, probes, 1);
    must(guard_install() == 0 && names_install() == 0 && address_install() == 0, "the guard is there");
    must(register_install(ignore_outcome) == 0 && tap_install() == 0, "so is what looks at answers, and the tap");
    must(pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &end_of_the_way) == PJ_SUCCESS, "so is the end of the way");
    set_names();
    begin_dialog();
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

static void name_dialog(char *packet, size_t size)
{
    const size_t length = sizeof LOCAL_TAG - 1;
    for (size_t at = 0; at + length <= size; at++)
        if (memcmp(packet + at, LOCAL_TAG, length) == 0)
            memcpy(packet + at, local_tag, length);
}

static void empty_tap(void)
{
    static uint8_t batch[BATCH];
    uint64_t lost;
    for (uint32_t size; (size = tap_take(batch, sizeof batch, &lost));)
        for (uint32_t at = 0; at < size;) {
            tap_facts_t facts;
            memcpy(&facts, batch + at, sizeof facts);
            must(facts.size % 8 == 0 && facts.size >= sizeof facts && at + facts.size <= size, "a record of the tap is whole");
            must(facts.call_id + facts.from_tag + facts.to_tag + facts.method + facts.text + sizeof facts <= facts.size,
                 "what a record of the tap says of itself fits in");
            at += facts.size;
        }
    must(lost == 0, "no record is lost");
}

static void revive(pjsip_transport *transport)
{
    transport->is_shutdown = transport->is_destroying = PJ_FALSE;
}

seen_t stack_receive(const uint8_t *data, size_t size, const char *source, bool over_stream)
{
    stack_start();
    size = size < LONGEST ? size : LONGEST;
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
    name_dialog(received.pkt_info.packet, size);
    received.pkt_info.len = (pj_ssize_t)size;
    char *rest = received.pkt_info.packet + size + 1;
    POISON(rest, sizeof received.pkt_info.packet - size - 1);
    pjsip_tpmgr_receive_packet(transport->tpmgr, &received);
    UNPOISON(rest, sizeof received.pkt_info.packet - size - 1);
    pj_pool_reset(received.tp_info.pool);
    revive(transport);
    empty_tap();
    return seen;
}
