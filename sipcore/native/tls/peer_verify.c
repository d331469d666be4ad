#include "tls/peer_verify.h"

#include "net/host_table.h"
#include "net/ip_literal.h"
#include "tls/certificate_name_mismatch.h"

#include <string.h>

#define MAX_NAMES_IN_REASON 3 /* of a certificate for another host */

static bool verify = true;

void tls_peer_set_verify(bool on)
{
    verify = on;
}

/* RFC 6125 6.4.3: a star stands for one label, the first. RFC 5922 7.2 forbids it, yet carriers have such certificates. */
static bool matches_star(const pj_str_t *pattern, const pj_str_t *name)
{
    const char *dot = memchr(name->ptr, '.', (size_t)name->slen);
    if (pattern->slen <= 2 || pattern->ptr[0] != '*' || pattern->ptr[1] != '.' || !dot || dot == name->ptr)
        return false;
    const pj_str_t rest = {(char *)dot, name->ptr + name->slen - dot}, suffix = {pattern->ptr + 1, pattern->slen - 1};
    return memchr(suffix.ptr + 1, '.', (size_t)suffix.slen - 1) && pj_stricmp(&suffix, &rest) == 0;
}

static bool is_issued_for(const char *host, const void *context)
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

/* A connection goes to the host name of a URI, or to an address: a trunk's host, or the address in a peer's Contact. For the
 * latter, a certificate for any trunk's host name at that address is enough; not for the former, which may be another
 * party's. */
static bool is_issued_for_peer(const pjsip_transport *transport, const pj_ssl_cert_info *certificate)
{
    const pj_str_t *name = &transport->remote_name.host;
    char host[256] = "";
    if ((size_t)name->slen >= sizeof host) /* it is no DNS name */
        return false;
    memcpy(host, name->ptr, (size_t)name->slen);
    if (is_issued_for(host, certificate))
        return true;
    return ip_literal_is_valid(name) && host_table_any_at(&transport->key.rem_addr, is_issued_for, certificate) &&
           tls_name_mismatch_allow(transport);
}

/* ---- the reason of a rejection ---- */

static void append(char *reason, const char *words, pj_ssize_t length)
{
    size_t used = strlen(reason), room = TLS_REASON_SIZE - 1 - used;
    size_t size = (size_t)length < room ? (size_t)length : room;
    if (size) /* an empty string has no memory */
        memcpy(reason + used, words, size);
    reason[used + size] = 0;
}

static void describe_names(const pjsip_transport *transport, const pj_ssl_cert_info *certificate, char *reason)
{
    const pj_str_t *expected = &transport->remote_name.host, *common = &certificate->subject.cn;
    unsigned count = certificate->subj_alt_name.cnt;
    strcpy(reason, "its certificate is for ");
    for (unsigned i = 0; i < count && i < MAX_NAMES_IN_REASON; i++) {
        append(reason, ", ", i ? 2 : 0);
        append(reason, certificate->subj_alt_name.entry[i].name.ptr, certificate->subj_alt_name.entry[i].name.slen);
    }
    if (!count)
        append(reason, common->slen ? common->ptr : "no host", common->slen ? common->slen : 7);
    append(reason, ", ...", count > MAX_NAMES_IN_REASON ? 5 : 0);
    append(reason, ", not for ", 10);
    append(reason, expected->ptr, expected->slen);
}

static const char *describe_status(pj_uint32_t status)
{
    const char *words[32];
    unsigned count = PJ_ARRAY_SIZE(words);
    if (status & PJ_SSL_CERT_EVALIDITY_PERIOD)
        return "its certificate has expired or is not valid yet";
    if (status & (PJ_SSL_CERT_EUNTRUSTED | PJ_SSL_CERT_EISSUER_NOT_FOUND | PJ_SSL_CERT_EISSUER_MISMATCH))
        return "its certificate is from an authority that is not trusted here ([sip] tls_ca)";
    return pj_ssl_cert_get_verify_status_strings(status, words, &count) == PJ_SUCCESS && count ? words[0] : "invalid";
}

bool tls_peer_is_untrusted(const pjsip_transport *transport, const pj_ssl_sock_info *ssl, char *reason)
{
    const pj_ssl_cert_info *certificate = ssl->remote_cert_info;
    pj_uint32_t status = ssl->verify_status & ~(pj_uint32_t)PJ_SSL_CERT_EIDENTITY_NOT_MATCH;
    *reason = 0;
    if (!verify)
        return false;
    if (!certificate || !certificate->version)
        strcpy(reason, "it has sent no certificate");
    else if (status)
        strcpy(reason, describe_status(status));
    else if ((ssl->verify_status & PJ_SSL_CERT_EIDENTITY_NOT_MATCH) && !is_issued_for_peer(transport, certificate))
        describe_names(transport, certificate, reason);
    return *reason != 0;
}
