#define _GNU_SOURCE
#include "guard.h"

#include "glare.h"
#include "info.h"
#include "names.h"
#include "sdp.h"
#include "tap.h"
#include "tls.h"
#include "uas.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef char address_t[PJ_INET6_ADDRSTRLEN];

static struct {
    pthread_mutex_t lock;
    address_t *known, *probes;
    int known_count, probe_count;
    bool refuse_unknown, accepting;
    int retry_after_s;
    guard_event_t events[GUARD_EVENTS];
    int event_count;
    uint64_t more;
} guard = {.lock = PTHREAD_MUTEX_INITIALIZER, .accepting = true, .retry_after_s = 10};

static pjsip_tp_state_callback next_state_callback;

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool contains(const address_t *list, int count, const char *address)
{
    return count && bsearch(address, list, (size_t)count, sizeof *list, compare) != NULL;
}

static address_t *copy_sorted(const char *const *list, int count)
{
    address_t *copy = calloc((size_t)count + 1, sizeof *copy);
    for (int i = 0; copy && i < count; i++)
        strncpy(copy[i], list[i], sizeof copy[i] - 1);
    if (copy)
        qsort(copy, (size_t)count, sizeof *copy, compare);
    return copy;
}

void guard_set_sources(const char *const *known, int known_count, const char *const *probes, int probe_count)
{
    address_t *k = copy_sorted(known, known_count), *p = copy_sorted(probes, probe_count);
    pthread_mutex_lock(&guard.lock);
    free(guard.known);
    free(guard.probes);
    guard.known = k;
    guard.probes = p;
    guard.known_count = k ? known_count : 0;
    guard.probe_count = p ? probe_count : 0;
    pthread_mutex_unlock(&guard.lock);
}

void guard_set_answers(bool refuse_unknown_with_403, bool accepting, int retry_after_s)
{
    pthread_mutex_lock(&guard.lock);
    guard.refuse_unknown = refuse_unknown_with_403;
    guard.accepting = accepting;
    guard.retry_after_s = retry_after_s;
    pthread_mutex_unlock(&guard.lock);
}

/* The lock is held. */
static void note(enum guard_event_kind kind, const char *source)
{
    for (int i = 0; i < guard.event_count; i++)
        if (guard.events[i].kind == kind && strcmp(guard.events[i].source, source) == 0) {
            guard.events[i].count++;
            return;
        }
    if (guard.event_count == GUARD_EVENTS) {
        guard.more++;
        return;
    }
    guard_event_t *event = &guard.events[guard.event_count++];
    event->kind = kind;
    event->count = 1;
    strncpy(event->source, source, sizeof event->source - 1);
    event->source[sizeof event->source - 1] = 0;
}

int guard_take_events(guard_event_t *out, uint64_t *more)
{
    pthread_mutex_lock(&guard.lock);
    int count = guard.event_count;
    memcpy(out, guard.events, (size_t)count * sizeof *out);
    *more = guard.more;
    guard.event_count = 0;
    guard.more = 0;
    pthread_mutex_unlock(&guard.lock);
    return count;
}

/* RFC 3261 8.2.2: out-of-dialog requests have no To tag. */
static bool out_of_dialog(const pjsip_rx_data *rdata)
{
    return rdata->msg_info.to && rdata->msg_info.to->tag.slen == 0;
}

/* A dialog that exists, as strangers cannot know its tags. */
static bool in_dialog(const pjsip_rx_data *rdata)
{
    return !out_of_dialog(rdata) && rdata->msg_info.from && rdata->msg_info.cid &&
           pjsip_ua_find_dialog(&rdata->msg_info.cid->id, &rdata->msg_info.to->tag, &rdata->msg_info.from->tag, PJ_FALSE);
}

/* A request that came already, or the CANCEL or ACK of one (RFC 3261 17.2.3). */
static bool in_transaction(pjsip_rx_data *rdata)
{
    const pjsip_method *method = &rdata->msg_info.msg->line.req.method;
    pj_str_t key;
    if (method->id == PJSIP_CANCEL_METHOD)
        method = pjsip_get_invite_method();
    return pjsip_tsx_create_key(rdata->tp_info.pool, &key, PJSIP_ROLE_UAS, method, rdata) == PJ_SUCCESS &&
           pjsip_tsx_layer_find_tsx2(&key, PJ_FALSE) != NULL;
}

static void answer(pjsip_rx_data *rdata, int code, int retry_after_s)
{
    const pj_str_t allow = pj_str("Allow"), methods = pj_str("INVITE, ACK, CANCEL, BYE, OPTIONS");
    const bool options = rdata->msg_info.msg->line.req.method.id == PJSIP_OPTIONS_METHOD;
    pj_pool_t *pool = rdata->tp_info.pool;
    pjsip_hdr headers;
    pj_list_init(&headers);
    if (code == 503)
        pj_list_push_back(&headers, pjsip_retry_after_hdr_create(pool, retry_after_s));
    if (code == 405)
        pj_list_push_back(&headers, pjsip_generic_string_hdr_create(pool, &allow, &methods));
    if (options && code != 403)
        uas_describe(pool, &headers);
    pjsip_endpt_respond_stateless(pjsua_get_pjsip_endpt(), rdata, code, NULL, &headers, NULL);
}

static pj_bool_t refuse_stranger(pjsip_rx_data *rdata, bool refuse)
{
    if (refuse && rdata->msg_info.msg->line.req.method.id != PJSIP_ACK_METHOD) {
        tap_mute(true);
        answer(rdata, 403, 0);
        tap_mute(false);
    }
    return PJ_TRUE;
}

/* What may begin something (RFC 3261 8.2.1). PJSUA would say 200 to a MESSAGE that nobody reads. */
static bool may_begin(pjsip_method_e method)
{
    return method == PJSIP_INVITE_METHOD || method == PJSIP_ACK_METHOD || method == PJSIP_CANCEL_METHOD;
}

static bool has_unusable_sdp(pjsip_rx_data *rdata)
{
    const pjmedia_sdp_session *sdp = rdata->msg_info.msg->body ? pjsip_rdata_get_sdp_info(rdata)->sdp : NULL;
    return sdp && !sdp_has_addresses(sdp);
}

/* Too late to refuse it: go on as if it had not been sent. */
static void drop_sdp(pjsip_rx_data *rdata)
{
    pj_bzero(pjsip_rdata_get_sdp_info(rdata), sizeof(pjsip_rdata_sdp_info));
    rdata->msg_info.msg->body = NULL;
}

static pj_bool_t let_in(pjsip_rx_data *rdata)
{
    names_settle_target(rdata);
    if (!has_unusable_sdp(rdata))
        return PJ_FALSE;
    if (rdata->msg_info.msg->line.req.method.id == PJSIP_ACK_METHOD) {
        drop_sdp(rdata);
        return PJ_FALSE;
    }
    answer(rdata, 488, 0);
    return PJ_TRUE;
}

/* An answer to a request of ours (RFC 3261 17.1.3), or the repeated 200 of a dialog. */
static bool answers_us(pjsip_rx_data *rdata)
{
    pj_str_t key;
    const pjsip_fromto_hdr *from = rdata->msg_info.from, *to = rdata->msg_info.to;
    return (pjsip_tsx_create_key(rdata->tp_info.pool, &key, PJSIP_ROLE_UAC, &rdata->msg_info.cseq->method, rdata) == PJ_SUCCESS &&
            pjsip_tsx_layer_find_tsx2(&key, PJ_FALSE) != NULL) ||
           pjsip_ua_find_dialog(&rdata->msg_info.cid->id, &from->tag, &to->tag, PJ_FALSE) != NULL;
}

static pj_bool_t on_response(pjsip_rx_data *rdata)
{
    if (answers_us(rdata))
        tap_received(rdata);
    glare_on_response(rdata);
    if (has_unusable_sdp(rdata))
        drop_sdp(rdata);
    names_settle_via(rdata);
    names_settle_target(rdata);
    return PJ_FALSE;
}

/* Called for every request before the transaction layer sees it; PJ_TRUE ends its way here. A call that was let in goes
 * on to its end, whoever is unknown or refused by now. */
static pj_bool_t on_request(pjsip_rx_data *rdata)
{
    const pjsip_method_e method = rdata->msg_info.msg->line.req.method.id;
    const char *source = rdata->pkt_info.src_name;
    bool of_call = in_dialog(rdata), ongoing = of_call || in_transaction(rdata);
    pthread_mutex_lock(&guard.lock);
    bool known = ongoing || contains(guard.known, guard.known_count, source);
    bool probe = method == PJSIP_OPTIONS_METHOD && contains(guard.probes, guard.probe_count, source);
    bool refuse = guard.refuse_unknown, accepting = guard.accepting;
    int retry_after_s = guard.retry_after_s;
    if (!known && !probe)
        note(GUARD_UNKNOWN_SOURCE, source);
    pthread_mutex_unlock(&guard.lock);

    if (!known && !probe)
        return refuse_stranger(rdata, refuse);
    tap_received(rdata);
    if (uas_is_malformed(rdata)) {
        if (method != PJSIP_ACK_METHOD)
            answer(rdata, 400, 0);
        return PJ_TRUE;
    }
    if (ongoing || !out_of_dialog(rdata)) {
        if (of_call && uas_answers(rdata))
            return PJ_TRUE;
        info_spell_key(rdata);
        return let_in(rdata);
    }
    if (method == PJSIP_OPTIONS_METHOD)
        answer(rdata, accepting ? 200 : 503, retry_after_s);
    else if (!may_begin(method))
        answer(rdata, method == PJSIP_BYE_METHOD ? 481 : 405, 0);
    else if (method == PJSIP_INVITE_METHOD && !accepting)
        answer(rdata, 503, retry_after_s);
    else
        return let_in(rdata);
    return PJ_TRUE;
}

/* A connection knows its peer. A datagram's source stands in the `pjsip_rx_data` whose packet buffer it begins in. */
static void source_of(const pjsip_tp_dropped_data *dropped, const char *packet, address_t source)
{
    pj_bzero(source, sizeof(address_t));
    if (dropped->tp->flag & PJSIP_TRANSPORT_RELIABLE) {
        const pj_str_t *host = &dropped->tp->remote_name.host;
        pj_size_t length = (pj_size_t)host->slen < sizeof(address_t) ? (pj_size_t)host->slen : sizeof(address_t) - 1;
        memcpy(source, host->ptr, length);
    } else if (packet) {
        const pjsip_rx_data *rdata = (const pjsip_rx_data *)(packet - offsetof(pjsip_rx_data, pkt_info.packet));
        if (rdata->tp_info.transport == dropped->tp)
            memcpy(source, rdata->pkt_info.src_name, sizeof(address_t));
        source[sizeof(address_t) - 1] = 0;
    }
}

/* What the parser threw away. Line ends before a message are reported first, apart from it: alone, they are a keep-alive. */
static void on_dropped(pjsip_tp_dropped_data *dropped)
{
    static __thread const char *skipped_from, *skipped_to;
    const char *data = dropped->data;
    if (dropped->status == PJ_EIGNORED) {
        skipped_from = data;
        skipped_to = data + dropped->len;
        return;
    }
    address_t source;
    source_of(dropped, data && data == skipped_to ? skipped_from : data, source);
    pthread_mutex_lock(&guard.lock);
    note(GUARD_GARBAGE, *source ? source : "unknown");
    pthread_mutex_unlock(&guard.lock);
}

static bool may_connect(const pjsip_transport *transport)
{
    address_t peer = {0};
    const pj_str_t *host = &transport->remote_name.host;
    memcpy(peer, host->ptr, (pj_size_t)host->slen < sizeof peer ? (pj_size_t)host->slen : sizeof peer - 1);
    pthread_mutex_lock(&guard.lock);
    bool known = contains(guard.known, guard.known_count, peer) || contains(guard.probes, guard.probe_count, peer);
    bool allowed = known || guard.refuse_unknown; /* who is to be told 403 must be listened to */
    if (!allowed)
        note(GUARD_UNKNOWN_SOURCE, peer);
    pthread_mutex_unlock(&guard.lock);
    return allowed;
}

/* A stranger's connection is closed at once: however many come, they take none of the sockets that calls need. */
static void on_transport_state(pjsip_transport *transport, pjsip_transport_state state, const pjsip_transport_state_info *info)
{
    if (state == PJSIP_TP_STATE_CONNECTED && transport->dir == PJSIP_TP_DIR_INCOMING && !may_connect(transport))
        pjsip_transport_shutdown2(transport, PJ_TRUE);
    tls_on_state(transport, state, info);
    if (next_state_callback)
        next_state_callback(transport, state, info);
}

static pjsip_module module = {
    .name = {"mod-trunkline-guard", 19},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TRANSPORT_LAYER + 2,
    .on_rx_request = on_request,
    .on_rx_response = on_response,
};

int guard_install(void)
{
    pjsip_tpmgr *transports = pjsip_endpt_get_tpmgr(pjsua_get_pjsip_endpt());
    if (pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) != PJ_SUCCESS)
        return -1;
    glare_install();
    if (uas_install() != 0)
        return -1;
    next_state_callback = pjsip_tpmgr_get_state_cb(transports);
    if (pjsip_tpmgr_set_state_cb(transports, on_transport_state) != PJ_SUCCESS)
        return -1;
    return pjsip_tpmgr_set_drop_data_cb(transports, on_dropped) == PJ_SUCCESS ? 0 : -1;
}

void guard_remove(void)
{
    uas_remove();
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
}
