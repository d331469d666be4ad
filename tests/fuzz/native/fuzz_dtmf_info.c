/* The body of an INFO, rewritten as a key in the one way that PJSUA reads, or as none. The first byte is its type. */
#include "stack.h"

#include <string.h>

#include "sip/dtmf_info.h"

static const char none[] = "None=\r\n", key[] = "Signal=?\r\nDuration=160\r\n";

static bool is_key(const char *text, unsigned size)
{
    return size == sizeof key - 1 && memcmp(text, key, 7) == 0 && strchr("0123456789*#ABCD", text[7]) &&
           memcmp(text + 8, key + 8, size - 8) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pjsip_rx_data rdata;
    static const char *const types[] = {"dtmf", "dtmf-relay", "DTMF", "other"};
    if (!size)
        return 0;
    pj_pool_t *pool = rdata.tp_info.pool = stack_pool();
    pjsip_msg *msg = rdata.msg_info.msg = pjsip_msg_create(pool, PJSIP_REQUEST_MSG);
    const pj_str_t info = pj_str("INFO"), type = pj_str("application"), subtype = pj_str((char *)types[data[0] % 4]);
    pj_str_t text = {(char *)data + 1, (pj_ssize_t)size - 1};
    pjsip_method_init(&msg->line.req.method, pool, &info);
    msg->body = pjsip_msg_body_create(pool, &type, &subtype, &text);
    dtmf_info_normalize(&rdata);
    if (size > 1 && data[0] % 4 != 3)
        must(is_key(msg->body->data, msg->body->len) ||
                 (msg->body->len == sizeof none - 1 && memcmp(msg->body->data, none, sizeof none - 1) == 0),
             "the body is one normalized key, or none");
    return 0;
}
