/* Headers of a 401 or 407: one challenge of each realm is left, and none of our own. */
#include "stack.h"

#include <string.h>

#include "trunks/auth_challenge.h"

static bool is_challenge(const pjsip_hdr *header)
{
    return header->type == PJSIP_H_WWW_AUTHENTICATE || header->type == PJSIP_H_PROXY_AUTHENTICATE;
}

static void check(const pjsip_www_authenticate_hdr *challenge, const pjsip_msg *msg)
{
    const pj_str_t *nonce = &challenge->challenge.digest.nonce;
    must(pj_stricmp2(&challenge->scheme, "digest") == 0, "a challenge that is left is understood");
    must(nonce->slen < 4 || memcmp(nonce->ptr, "ours", 4) != 0, "none that is left is ours");
    for (const pjsip_hdr *other = msg->hdr.next; other != &msg->hdr; other = other->next)
        must(other == (const pjsip_hdr *)challenge || other->type != challenge->type ||
                 pj_stricmp(&((const pjsip_www_authenticate_hdr *)other)->challenge.common.realm,
                            &challenge->challenge.common.realm) != 0,
             "a realm has one challenge of a kind");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char first[] = "SIP/2.0 401 Unauthorized\r\n", last[] = "\r\n\r\n";
    pj_pool_t *pool = stack_pool();
    pjsip_parser_err_report errors;
    char *text = pj_pool_alloc(pool, size + sizeof first + sizeof last);
    memcpy(text, first, sizeof first - 1);
    memcpy(text + sizeof first - 1, data, size);
    memcpy(text + sizeof first - 1 + size, last, sizeof last);
    pj_list_init(&errors);
    pjsip_msg *msg = pjsip_parse_msg(pool, text, size + sizeof first + sizeof last - 2, &errors);
    if (!msg)
        return 0;
    auth_challenge_drop_reflected(msg);
    auth_challenge_keep_first(msg);
    auth_challenge_is_stale(msg);
    for (const pjsip_hdr *header = msg->hdr.next; header != &msg->hdr; header = header->next)
        if (is_challenge(header))
            check((const pjsip_www_authenticate_hdr *)header, msg);
    return 0;
}
