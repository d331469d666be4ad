/* Headers of a message that ends a call: the call's reason is that of its Reason headers. The first byte is the message. */
#include "stack.h"

#include <string.h>

#include <pjsua-lib/pjsua_internal.h>

#include "sip/reason_header.h"

static const char *const messages[] = {"BYE sip:h SIP/2.0\r\n", "CANCEL sip:h SIP/2.0\r\n", "SIP/2.0 603 Decline\r\n",
                                       "SIP/2.0 180 Ringing\r\n"};

static pjsip_msg *read_message(const char *first, const uint8_t *headers, size_t size)
{
    pj_pool_t *pool = stack_pool();
    char *text = pj_pool_alloc(pool, strlen(first) + size + 5);
    const size_t before = strlen(first);
    memcpy(text, first, before);
    memcpy(text + before, headers, size);
    memcpy(text + before + size, "\r\n\r\n", 5);
    pjsip_parser_err_report errors;
    pj_list_init(&errors);
    return pjsip_parse_msg(pool, text, before + size + 4, &errors);
}

/* Each reported header is in the text; the others have no room, or cannot be text. */
static void check(const pjsip_msg *msg, const char *text)
{
    const pj_str_t name = {"Reason", 6};
    const pjsip_generic_string_hdr *header = NULL;
    size_t at = 0;
    while ((header = pjsip_msg_find_hdr_by_name(msg, &name, header ? header->next : NULL))) {
        const size_t size = (size_t)header->hvalue.slen, comma = at ? 2 : 0;
        if (header->hvalue.slen > 0 && !memchr(header->hvalue.ptr, 0, size) && at + comma + size < REASON_HEADER_SIZE) {
            must(memcmp(text + at, ", ", comma) == 0, "values become a list");
            must(memcmp(text + at + comma, header->hvalue.ptr, size) == 0, "a value is reported unchanged");
            at += comma + size;
        }
    }
    must(strlen(text) == at, "nothing else is reported");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pjsip_rx_data rdata;
    static pjsip_transaction transaction = {.role = PJSIP_ROLE_UAS};
    char text[REASON_HEADER_SIZE];
    pjsua_callback callback = {.on_call_state = NULL};
    stack_start();
    const unsigned kind = size ? data[0] % PJ_ARRAY_SIZE(messages) : 0;
    pjsip_msg *msg = size ? read_message(messages[kind], data + 1, size - 1) : NULL;
    if (!msg)
        return 0;
    pjsip_event event = {.type = PJSIP_EVENT_TSX_STATE, .body.tsx_state = {.src.rdata = &rdata, .type = PJSIP_EVENT_RX_MSG}};
    rdata.msg_info.msg = msg;
    transaction.method = msg->type == PJSIP_REQUEST_MSG ? msg->line.req.method : *pjsip_get_bye_method();
    reason_header_hook(&callback);
    pjsua_var.calls[0].inv->state = PJSIP_INV_STATE_DISCONNECTED;
    callback.on_call_state(0, &event);
    callback.on_call_tsx_state(0, &transaction, &event);
    pjsua_var.calls[0].inv->state = PJSIP_INV_STATE_CONFIRMED;
    reason_header_take(0, text);
    if (kind < 3)
        check(msg, text);
    else
        must(!*text, "a message that does not end the call has no reason");
    reason_header_take(0, text);
    must(!*text, "a reason is returned once");
    return 0;
}
