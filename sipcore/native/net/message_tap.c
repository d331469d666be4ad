#define _GNU_SOURCE
#include "net/message_tap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Records are from `head` (the oldest) to `tail`, each contiguous. The lock is held for one copy, never for Python. */
static struct {
    pthread_mutex_t lock;
    uint8_t *bytes;
    uint32_t head, tail, used; /* `used` includes what is skipped at the end of the ring */
    uint64_t lost;
    bool reader_waits;
    int descriptor;
} tap = {.lock = PTHREAD_MUTEX_INITIALIZER, .descriptor = -1};

static __thread bool is_muted;

void tap_mute(bool muted)
{
    is_muted = muted;
}

/* ---- the ring; the lock is held ---- */

/* Distance from the record at `at` to the next one. */
static uint32_t step_at(uint32_t at)
{
    uint32_t size = TAP_RING_SIZE - at < sizeof(tap_header_t) ? 0 : ((tap_header_t *)(tap.bytes + at))->size;
    return size ? size : TAP_RING_SIZE - at;
}

static bool is_skip(uint32_t at)
{
    return TAP_RING_SIZE - at < sizeof(tap_header_t) || ((tap_header_t *)(tap.bytes + at))->size == 0;
}

static void drop_oldest(void)
{
    uint32_t step = step_at(tap.head);
    tap.lost += !is_skip(tap.head);
    tap.head = (tap.head + step) % TAP_RING_SIZE;
    tap.used -= step;
}

static void make_room(uint32_t size)
{
    while (tap.used && TAP_RING_SIZE - tap.used < size)
        drop_oldest();
    tap.used += size;
}

/* Reserves memory for a record of this size at the tail. */
static uint8_t *reserve(uint32_t size)
{
    uint32_t left = TAP_RING_SIZE - tap.tail;
    if (left < size) {
        make_room(left);
        if (left >= sizeof(tap_header_t))
            ((tap_header_t *)(tap.bytes + tap.tail))->size = 0;
        tap.tail = 0;
    }
    make_room(size);
    uint8_t *at = tap.bytes + tap.tail;
    tap.tail = (tap.tail + size) % TAP_RING_SIZE;
    return at;
}

/* ---- writing ---- */

static uint16_t bounded(pj_ssize_t length, pj_ssize_t max)
{
    return (uint16_t)(length < 0 ? 0 : length < max ? length : max);
}

static uint8_t *append(uint8_t *at, const char *bytes, size_t length)
{
    if (length)
        memcpy(at, bytes, length);
    return at + length;
}

static void copy_host(char out[PJ_INET6_ADDRSTRLEN], const char *host, pj_ssize_t length)
{
    memset(out, 0, PJ_INET6_ADDRSTRLEN);
    append((uint8_t *)out, host, bounded(length, PJ_INET6_ADDRSTRLEN - 1));
}

static const pj_str_t *method_of(const pjsip_msg *msg, const pjsip_cseq_hdr *cseq)
{
    static const pj_str_t none = {"", 0};
    return cseq ? &cseq->method.name : msg->type == PJSIP_REQUEST_MSG ? &msg->line.req.method.name : &none;
}

/* RFC 8866. A multipart body may carry an SDP, too: its text is searched for one. */
static bool has_sdp(const pjsip_msg *msg)
{
    const pj_str_t sdp = {"sdp", 3};
    return msg->body && pj_stricmp(&msg->body->content_type.subtype, &sdp) == 0;
}

typedef struct names {
    const pjsip_cid_hdr *call_id;
    const pjsip_fromto_hdr *from, *to;
    const pjsip_cseq_hdr *cseq;
} names_t;

static void append_record(tap_header_t *header, const pjsip_msg *msg, names_t names, const char *text, pj_ssize_t length)
{
    const pj_str_t *method = method_of(msg, names.cseq);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    header->at_ns = now.tv_sec * 1000000000LL + now.tv_nsec;
    header->cseq = names.cseq ? (uint32_t)names.cseq->cseq : 0;
    header->status = msg->type == PJSIP_RESPONSE_MSG ? (uint16_t)msg->line.status.code : 0;
    header->with_sdp = has_sdp(msg);
    header->call_id = names.call_id ? bounded(names.call_id->id.slen, TAP_MAX_CALL_ID) : 0;
    header->from_tag = names.from ? bounded(names.from->tag.slen, TAP_MAX_TAG) : 0;
    header->to_tag = names.to ? bounded(names.to->tag.slen, TAP_MAX_TAG) : 0;
    header->method = bounded(method->slen, TAP_MAX_METHOD);
    header->text = bounded(length, TAP_MAX_TEXT);
    uint32_t size = header->call_id + header->from_tag + header->to_tag + header->method + header->text;
    header->size = ((uint32_t)sizeof *header + size + 7) & ~7u;

    pthread_mutex_lock(&tap.lock);
    bool wake = tap.bytes && tap.reader_waits;
    if (tap.bytes) {
        uint8_t *at = append(reserve(header->size), (const char *)header, sizeof *header);
        at = append(at, names.call_id ? names.call_id->id.ptr : NULL, header->call_id);
        at = append(at, names.from ? names.from->tag.ptr : NULL, header->from_tag);
        at = append(at, names.to ? names.to->tag.ptr : NULL, header->to_tag);
        append(append(at, method->ptr, header->method), text, header->text);
        tap.reader_waits = false;
    }
    if (wake)
        eventfd_write(tap.descriptor, 1);
    pthread_mutex_unlock(&tap.lock);
}

static void init_record(tap_header_t *header, const pjsip_transport *transport)
{
    memset(header, 0, sizeof *header);
    strncpy(header->transport, transport->type_name, sizeof header->transport - 1);
    copy_host(header->local, transport->local_name.host.ptr, transport->local_name.host.slen);
    header->local_port = (uint16_t)transport->local_name.port;
}

void tap_received(pjsip_rx_data *rdata)
{
    tap_header_t header;
    names_t names = {rdata->msg_info.cid, rdata->msg_info.from, rdata->msg_info.to, rdata->msg_info.cseq};
    init_record(&header, rdata->tp_info.transport);
    copy_host(header.peer, rdata->pkt_info.src_name, (pj_ssize_t)strnlen(rdata->pkt_info.src_name, PJ_INET6_ADDRSTRLEN));
    header.peer_port = (uint16_t)rdata->pkt_info.src_port;
    append_record(&header, rdata->msg_info.msg, names, rdata->msg_info.msg_buf, rdata->msg_info.len);
}

/* Below the transport layer's own module: the message is printed, and its destination known. */
static pj_status_t on_sent(pjsip_tx_data *tdata)
{
    tap_header_t header;
    const pjsip_msg *msg = tdata->msg;
    if (is_muted || !msg || !tdata->tp_info.transport)
        return PJ_SUCCESS;
    names_t names = {pjsip_msg_find_hdr(msg, PJSIP_H_CALL_ID, NULL), pjsip_msg_find_hdr(msg, PJSIP_H_FROM, NULL),
                     pjsip_msg_find_hdr(msg, PJSIP_H_TO, NULL), pjsip_msg_find_hdr(msg, PJSIP_H_CSEQ, NULL)};
    init_record(&header, tdata->tp_info.transport);
    header.sent = true;
    copy_host(header.peer, tdata->tp_info.dst_name, (pj_ssize_t)strnlen(tdata->tp_info.dst_name, PJ_INET6_ADDRSTRLEN));
    header.peer_port = (uint16_t)tdata->tp_info.dst_port;
    append_record(&header, msg, names, tdata->buf.start, tdata->buf.cur - tdata->buf.start);
    return PJ_SUCCESS; /* else it would not be sent */
}

/* ---- reading ---- */

int tap_descriptor(void)
{
    return tap.descriptor;
}

uint32_t tap_read(uint8_t *out, uint32_t room, uint64_t *lost)
{
    uint32_t taken = 0;
    eventfd_t ignored;
    if (tap.descriptor >= 0)
        eventfd_read(tap.descriptor, &ignored);
    pthread_mutex_lock(&tap.lock);
    while (tap.used) {
        uint32_t step = step_at(tap.head);
        if (!is_skip(tap.head)) {
            if (room - taken < step)
                break;
            memcpy(out + taken, tap.bytes + tap.head, step);
            taken += step;
        }
        tap.head = (tap.head + step) % TAP_RING_SIZE;
        tap.used -= step;
    }
    tap.reader_waits = !tap.used;
    *lost = tap.lost;
    pthread_mutex_unlock(&tap.lock);
    return taken;
}

/* ---- install and remove ---- */

static pjsip_module module = {
    .name = {"mod-trunkline-tap", 17},
    .id = -1,
    .priority = PJSIP_MOD_PRIORITY_TRANSPORT_LAYER - 2,
    .on_tx_request = on_sent,
    .on_tx_response = on_sent,
};

int tap_install(void)
{
    pthread_mutex_lock(&tap.lock);
    tap.bytes = tap.bytes ? tap.bytes : malloc(TAP_RING_SIZE);
    tap.descriptor = tap.descriptor >= 0 ? tap.descriptor : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    tap.head = tap.tail = tap.used = 0;
    tap.lost = 0;
    tap.reader_waits = true;
    bool ready = tap.bytes && tap.descriptor >= 0;
    pthread_mutex_unlock(&tap.lock);
    return ready && pjsip_endpt_register_module(pjsua_get_pjsip_endpt(), &module) == PJ_SUCCESS ? 0 : -1;
}

void tap_remove(void)
{
    if (module.id != -1)
        pjsip_endpt_unregister_module(pjsua_get_pjsip_endpt(), &module);
    pthread_mutex_lock(&tap.lock);
    free(tap.bytes);
    tap.bytes = NULL;
    if (tap.descriptor >= 0)
        close(tap.descriptor);
    tap.descriptor = -1;
    pthread_mutex_unlock(&tap.lock);
}
