#include "tls/peer_verify.h"

#include "net/host_table.h"
#include "net/ip_literal.h"
#include "tls/unverified_address.h"

#include <string.h>

#define NAMES_TOLD 3 /* of a certificate for somebody else */

static bool verify = true;

void tls_verify(bool on)
{
    verify = on;
}

/* RFC 6125 6.4.3: a star stands for one label, the first. RFC 5922 7.2 forbids it, yet carriers have such certificates. */
static bool matches_star(const pj_str_t *pattern, const pj_str_t *name)
{
    const char *dot = memchr(name->ptr, '.', (size_t)name->slen);
    if (pattern->slen <= 2 || pattern->ptr[0] != '*' || pattern->ptr[1] != '.' || !dot || dot == name->ptr)
        return false;
    const pj_str_t rest = {(char *)dot, name->ptr + name->slen - dot}, wanted = {pattern->ptr + 1, pattern->slen - 1};
    return memchr(wanted.ptr + 1, '.', (size_t)wanted.slen - 1) && pj_stricmp(&wanted, &rest) == 0;
}

static bool is_for(const char *host, const void *context)
{
    const pj_ssl_cert_info *certificate = context;
    const pj_str_t name = pj_str((char *)host);
    bool has_names = false;
    for (unsigned i = 0; i < certificate->subj_alt_name.cnt; i++) {
        const pj_str_t *entry = &certificate->subj_alt_name.entry[i].name;
        if (certificate->subj_alt_name.entry[i].type != PJ_SSL_CERT_NAME_DNS)
            continue;
        has_names = true;
        if (pj_stricmp(entry, &name) == 0 || matches_star(entry, &name))
            return true;
    }
    return !has_names && pj_stricmp(&certificate->subject.cn, &name) == 0;
}

/* A connection is made to the name that stands in the URI, or to an address: that of a trunk's host, or the one that a
 * peer has put into its Contact. There a certificate for any host of ours at that address will do; not for a trunk's host,
 * which may be of others. */
static bool is_for_peer(const pjsip_transport *transport, const pj_ssl_cert_info *certificate)
{
    const pj_str_t *name = &transport->remote_name.host;
    char host[256] = "";
    if ((size_t)name->slen >= sizeof host) /* it is no DNS name */
        return false;
    memcpy(host, name->ptr, (size_t)name->slen);
    if (is_for(host, certificate))
        return true;
    return literal_is_address(name) && names_any_at(&transport->key.rem_addr, is_for, certificate) &&
           tls_borrowed_allow(transport);
}

/* ---- what is wrong with it ---- */

static void append(char *why, const char *words, pj_ssize_t length)
{
    size_t used = strlen(why), room = TLS_WHY - 1 - used;
    size_t size = (size_t)length < room ? (size_t)length : room;
    if (size) /* what is empty has no memory */
        memcpy(why + used, words, size);
    why[used + size] = 0;
}

static void say_for_whom(const pjsip_transport *transport, const pj_ssl_cert_info *certificate, char *why)
{
    const pj_str_t *wanted = &transport->remote_name.host, *common = &certificate->subject.cn;
    unsigned count = certificate->subj_alt_name.cnt;
    strcpy(why, "its certificate is for ");
    for (unsigned i = 0; i < count && i < NAMES_TOLD; i++) {
        append(why, ", ", i ? 2 : 0);
        append(why, certificate->subj_alt_name.entry[i].name.ptr, certificate->subj_alt_name.entry[i].name.slen);
    }
    if (!count)
        append(why, common->slen ? common->ptr : "nobody", common->slen ? common->slen : 6);
    append(why, ", ...", count > NAMES_TOLD ? 5 : 0);
    append(why, ", not for ", 10);
    append(why, wanted->ptr, wanted->slen);
}

static const char *words_for(pj_uint32_t status)
{
    const char *words[32];
    unsigned count = PJ_ARRAY_SIZE(words);
    if (status & PJ_SSL_CERT_EVALIDITY_PERIOD)
        return "its certificate has expired or is not valid yet";
    if (status & (PJ_SSL_CERT_EUNTRUSTED | PJ_SSL_CERT_EISSUER_NOT_FOUND | PJ_SSL_CERT_EISSUER_MISMATCH))
        return "its certificate is from an authority that is not trusted here ([sip] tls_ca)";
    return pj_ssl_cert_get_verify_status_strings(status, words, &count) == PJ_SUCCESS && count ? words[0] : "invalid";
}

bool tls_peer_is_false(const pjsip_transport *transport, const pj_ssl_sock_info *ssl, char *why)
{
    const pj_ssl_cert_info *certificate = ssl->remote_cert_info;
    pj_uint32_t status = ssl->verify_status & ~(pj_uint32_t)PJ_SSL_CERT_EIDENTITY_NOT_MATCH;
    *why = 0;
    if (!verify)
        return false;
    if (!certificate || !certificate->version)
        strcpy(why, "it has shown no certificate");
    else if (status)
        strcpy(why, words_for(status));
    else if ((ssl->verify_status & PJ_SSL_CERT_EIDENTITY_NOT_MATCH) && !is_for_peer(transport, certificate))
        say_for_whom(transport, certificate, why);
    return *why != 0;
}
