#define _GNU_SOURCE
#include "sip/reason_header.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include <pjsua-lib/pjsua_internal.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char reasons[PJSUA_MAX_CALLS][REASON_HEADER_SIZE];
static void (*next_call_state)(pjsua_call_id, pjsip_event *);

static bool is_call(pjsua_call_id call)
{
    return call >= 0 && call < PJSUA_MAX_CALLS;
}

/* Several headers become one list (RFC 3261 7.3.1); a value that does not fit is left out. */
static void append(char *text, const pj_str_t *value)
{
    size_t have = strlen(text), more = (size_t)value->slen, comma = have ? 2 : 0;
    if (value->slen <= 0 || memchr(value->ptr, 0, more) || have + comma + more >= REASON_HEADER_SIZE)
        return;
    memcpy(text + have, ", ", comma);
    memcpy(text + have + comma, value->ptr, more);
    text[have + comma + more] = 0;
}

static void store_reason(pjsua_call_id call, const pjsip_msg *message)
{
    const pj_str_t name = {"Reason", 6};
    const pjsip_generic_string_hdr *header = NULL;
    char text[REASON_HEADER_SIZE] = "";
    while ((header = pjsip_msg_find_hdr_by_name(message, &name, header ? header->next : NULL)))
        append(text, &header->hvalue);
    pthread_mutex_lock(&lock);
    memcpy(reasons[call], text, sizeof text);
    pthread_mutex_unlock(&lock);
}

static const pjsip_msg *received(const pjsip_event *event)
{
    return event && event->type == PJSIP_EVENT_TSX_STATE && event->body.tsx_state.type == PJSIP_EVENT_RX_MSG
               ? event->body.tsx_state.src.rdata->msg_info.msg
               : NULL;
}

/* The 487 that follows a CANCEL ends the call, not the CANCEL itself. */
static void on_tsx_state(pjsua_call_id call, pjsip_transaction *transaction, pjsip_event *event)
{
    const pjsip_msg *message = received(event);
    if (is_call(call) && message && message->type == PJSIP_REQUEST_MSG && transaction->role == PJSIP_ROLE_UAS &&
        transaction->method.id == PJSIP_CANCEL_METHOD)
        store_reason(call, message);
}

/* The caller of this function has locked the dialog. */
static bool is_final_message(pjsua_call_id call, const pjsip_msg *message)
{
    const pjsip_inv_session *session = pjsua_var.calls[call].inv;
    bool final = message->type == PJSIP_REQUEST_MSG ? message->line.req.method.id == PJSIP_BYE_METHOD
                                                    : message->line.status.code >= 300;
    return final && session && session->state == PJSIP_INV_STATE_DISCONNECTED;
}

static void on_call_state(pjsua_call_id call, pjsip_event *event)
{
    const pjsip_msg *message = received(event);
    if (is_call(call) && message && is_final_message(call, message))
        store_reason(call, message);
    if (next_call_state)
        next_call_state(call, event);
}

void reason_header_hook(pjsua_callback *callback)
{
    next_call_state = callback->on_call_state;
    callback->on_call_state = on_call_state;
    callback->on_call_tsx_state = on_tsx_state;
}

void reason_header_take(pjsua_call_id call, char text[REASON_HEADER_SIZE])
{
    text[0] = 0;
    if (!is_call(call))
        return;
    pthread_mutex_lock(&lock);
    memcpy(text, reasons[call], REASON_HEADER_SIZE);
    reasons[call][0] = 0;
    pthread_mutex_unlock(&lock);
}
