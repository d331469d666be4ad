#include "sip/cseq_validation.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define MAX_VALUE 200 /* longest value: its method has no limit of its own */

static const char *skip(const char *at, const char *end, bool (*belongs)(char))
{
    while (at < end && belongs(*at))
        at++;
    return at;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* RFC 3261 25.1: a token. */
static bool is_token(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("-.!%*_+`'~", c));
}

/* The header's value, after the colon; NULL if there is none before the body. */
static const char *value_in(const char *at, const char *end)
{
    for (; at < end && *at != '\r' && *at != '\n'; at++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (end - at > 4 && strncasecmp(at, "cseq", 4) == 0) {
            const char *colon = skip(at + 4, end, is_space);
            if (colon < end && *colon == ':')
                return colon + 1;
        }
        if (!line_end)
            return NULL;
        at = line_end;
    }
    return NULL;
}

/* Parses "2147483648 INVITE", with any white space in between. False for anything else. */
static bool read_value(const pjsip_rx_data *request, pj_str_t *number, pj_str_t *method)
{
    const char *begin = request->msg_info.msg_buf, *end = begin + request->msg_info.len;
    const char *first_line_end = memchr(begin, '\n', (size_t)(end - begin));
    const char *at = first_line_end ? value_in(first_line_end + 1, end) : NULL;
    if (!at)
        return false;
    number->ptr = (char *)skip(at, end, is_space);
    const char *number_end = skip(number->ptr, end, is_digit);
    number->slen = number_end - number->ptr;
    method->ptr = (char *)skip(number_end, end, is_space);
    method->slen = skip(method->ptr, end, is_token) - method->ptr;
    return number->slen > 0 && method->ptr > number_end && method->slen > 0 && number->slen + 1 + method->slen < MAX_VALUE;
}

/* Replaces the CSeq that PJSIP wrote from the request's parsed one. */
static void replace_cseq(pjsip_tx_data *response, const pj_str_t *number, const pj_str_t *method)
{
    const pj_str_t name = pj_str("CSeq");
    char text[MAX_VALUE];
    pj_str_t value = {text, 0};
    value.slen = pj_ansi_snprintf(text, sizeof text, "%.*s %.*s", (int)number->slen, number->ptr, (int)method->slen,
                                  method->ptr);
    pjsip_hdr *header = pjsip_msg_find_hdr(response->msg, PJSIP_H_CSEQ, NULL);
    pj_list_insert_before(header, pjsip_generic_string_hdr_create(response->pool, &name, &value));
    pj_list_erase(header);
}

void cseq_reject_out_of_range(pjsip_rx_data *request)
{
    pj_str_t number, method;
    pjsip_tx_data *response = NULL;
    const pjsip_msg *msg = request->msg_info.msg;
    if (msg->line.req.method.id == PJSIP_ACK_METHOD || request->msg_info.cseq || !request->msg_info.via ||
        !request->msg_info.from || !request->msg_info.to || !request->msg_info.cid || !read_value(request, &number, &method))
        return;
    request->msg_info.cseq = pjsip_cseq_hdr_create(request->tp_info.pool);
    request->msg_info.cseq->method = msg->line.req.method;
    if (pjsip_endpt_create_response(pjsua_get_pjsip_endpt(), request, PJSIP_SC_BAD_REQUEST, NULL, &response) != PJ_SUCCESS)
        return;
    replace_cseq(response, &number, &method);
    if (pjsip_endpt_send_response2(pjsua_get_pjsip_endpt(), request, response, NULL, NULL) != PJ_SUCCESS)
        pjsip_tx_data_dec_ref(response);
}
