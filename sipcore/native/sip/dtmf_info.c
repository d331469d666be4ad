#include "sip/dtmf_info.h"

#include <stdbool.h>
#include <string.h>

#define NORMALIZED "Signal=%c\r\nDuration=160\r\n"
#define NO_KEY "None=\r\n"  /* answered with 400 */

static const char events[] = "0123456789*#ABCD"; /* in the order of RFC 4733, 3.2 */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static pj_str_t trimmed(pj_str_t text)
{
    while (text.slen && is_space(*text.ptr))
        text.ptr++, text.slen--;
    while (text.slen && is_space(text.ptr[text.slen - 1]))
        text.slen--;
    return text;
}

/* Cut the first line off `rest`. */
static pj_str_t next_line(pj_str_t *rest)
{
    pj_str_t line = *rest;
    for (line.slen = 0; line.slen < rest->slen && line.ptr[line.slen] != '\n' && line.ptr[line.slen] != '\r';)
        line.slen++;
    pj_ssize_t used = line.slen < rest->slen ? line.slen + 1 : line.slen;
    rest->ptr += used;
    rest->slen -= used;
    return line;
}

/* The value of the line `Signal=...`, "" without one. */
static pj_str_t signal_in(pj_str_t body)
{
    const pj_str_t name = {"Signal", 6};
    while (body.slen) {
        pj_str_t line = trimmed(next_line(&body));
        if (line.slen <= name.slen || pj_strnicmp(&line, &name, name.slen) != 0)
            continue;
        pj_str_t value = {line.ptr + name.slen, line.slen - name.slen};
        value = trimmed(value);
        if (value.slen && *value.ptr == '=') {
            pj_str_t after = {value.ptr + 1, value.slen - 1};
            return trimmed(after);
        }
    }
    return (pj_str_t){body.ptr, 0};
}

/* The key of a text, 0 for none. */
static char key_of(pj_str_t text)
{
    if (text.slen == 1 && *text.ptr) {
        const char *found = strchr(events, pj_toupper((unsigned char)*text.ptr));
        return found ? *found : 0;
    }
    if (text.slen == 2 && text.ptr[0] == '1' && text.ptr[1] >= '0' && text.ptr[1] <= '5')
        return events[10 + text.ptr[1] - '0'];
    return 0;
}

static bool is_application(const pjsip_msg_body *body, const char *subtype)
{
    return pj_stricmp2(&body->content_type.type, "application") == 0 &&
           pj_stricmp2(&body->content_type.subtype, subtype) == 0;
}

bool dtmf_info_is_dtmf(const pjsip_msg_body *body)
{
    return is_application(body, "dtmf") || is_application(body, "dtmf-relay");
}

void dtmf_info_normalize(pjsip_rx_data *rdata)
{
    const pj_str_t info = {"INFO", 4};
    pjsip_msg_body *body = rdata->msg_info.msg->body;
    if (pj_strcmp(&rdata->msg_info.msg->line.req.method.name, &info) != 0 || !body || !body->len || !dtmf_info_is_dtmf(body))
        return;
    bool is_alone = is_application(body, "dtmf");
    pj_str_t text = {body->data, (pj_ssize_t)body->len};
    char key = key_of(signal_in(text));
    if (!key && is_alone)
        key = key_of(trimmed(text));
    char *normalized = pj_pool_alloc(rdata->tp_info.pool, sizeof NORMALIZED);
    body->len = (unsigned)pj_ansi_snprintf(normalized, sizeof NORMALIZED, key ? NORMALIZED : NO_KEY, key);
    body->data = normalized;
    body->content_type.subtype = pj_str("dtmf-relay");
}
