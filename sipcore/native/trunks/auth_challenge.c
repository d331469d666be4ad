#include "trunks/auth_challenge.h"

#include <string.h>

static char nonce_prefix[64];

bool auth_challenge_is_status(int code)
{
    return code == PJSIP_SC_UNAUTHORIZED || code == PJSIP_SC_PROXY_AUTHENTICATION_REQUIRED;
}

static bool is_challenge(const pjsip_hdr *header)
{
    return header->type == PJSIP_H_WWW_AUTHENTICATE || header->type == PJSIP_H_PROXY_AUTHENTICATE;
}

void auth_challenge_set_nonce_prefix(const char *text)
{
    pj_ansi_snprintf(nonce_prefix, sizeof nonce_prefix, "%s", text);
}

static bool is_ours(const pjsip_www_authenticate_hdr *challenge)
{
    const pj_size_t length = strlen(nonce_prefix);
    const pj_str_t *nonce = &challenge->challenge.digest.nonce;
    return length && pj_stricmp(&challenge->scheme, &pjsip_DIGEST_STR) == 0 && (pj_size_t)nonce->slen >= length &&
           memcmp(nonce->ptr, nonce_prefix, length) == 0;
}

bool auth_challenge_drop_reflected(pjsip_msg *message)
{
    bool found = false;
    for (pjsip_hdr *header = message->hdr.next, *next; header != &message->hdr; header = next) {
        next = header->next;
        if (is_challenge(header) && is_ours((const pjsip_www_authenticate_hdr *)header)) {
            pj_list_erase(header);
            found = true;
        }
    }
    return found;
}

static bool is_understood(const pjsip_www_authenticate_hdr *challenge)
{
    return pj_stricmp(&challenge->scheme, &pjsip_DIGEST_STR) == 0 &&
           pjsip_auth_get_algorithm_by_iana_name(&challenge->challenge.digest.algorithm) != NULL;
}

void auth_challenge_keep_first(pjsip_msg *message)
{
    for (pjsip_hdr *header = message->hdr.next, *next; header != &message->hdr; header = next) {
        next = header->next;
        if (!is_challenge(header))
            continue;
        const pjsip_www_authenticate_hdr *challenge = (const pjsip_www_authenticate_hdr *)header;
        bool keep = is_understood(challenge);
        for (pjsip_hdr *earlier = message->hdr.next; keep && earlier != header; earlier = earlier->next)
            keep = earlier->type != header->type ||
                   pj_stricmp(&((pjsip_www_authenticate_hdr *)earlier)->challenge.common.realm,
                               &challenge->challenge.common.realm);
        if (!keep)
            pj_list_erase(header);
    }
}

bool auth_challenge_is_stale(const pjsip_msg *message)
{
    for (const pjsip_hdr *header = message->hdr.next; header != &message->hdr; header = header->next)
        if (is_challenge(header) && ((const pjsip_www_authenticate_hdr *)header)->challenge.digest.stale)
            return true;
    return false;
}
