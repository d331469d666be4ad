/* A TLS peer's certificate: the host that we connect to, then the common name and the alternative names, one a line; the
 * first byte is PJSIP's verification status. The certificate is accepted if a name is that host, or has a star for its
 * first label. */
#include "stack.h"

#include <stdlib.h>
#include <string.h>

#include "net/ip_literal.h"
#include "tls/certificate_name_mismatch.h"
#include "tls/peer_verify.h"

#define MAX_ENTRIES 8

enum { OTHER_NAME = 1, UNTRUSTED = 2, NO_CERTIFICATE = 4, OF_ADDRESSES = 8 };

/* In memory of its own, so that an overrun is found. PJSIP has no memory for an empty string. */
static pj_str_t read_line(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *line_end = memchr(*at, '\n', (size_t)(end - *at));
    const size_t size = (size_t)((line_end ? line_end : end) - *at);
    const pj_str_t line = {size ? malloc(size) : NULL, (pj_ssize_t)size};
    if (size)
        memcpy(line.ptr, *at, size);
    *at = line_end ? line_end + 1 : end;
    return line;
}

static bool matches(const pj_str_t *name, const pj_str_t *host)
{
    const char *dot = host->slen ? memchr(host->ptr, '.', (size_t)host->slen) : NULL;
    if (pj_stricmp(name, host) == 0)
        return true;
    if (!dot || dot == host->ptr || name->slen < 2 || *name->ptr != '*')
        return false;
    const pj_str_t rest = {(char *)dot, host->ptr + host->slen - dot}, behind_star = {name->ptr + 1, name->slen - 1};
    return pj_stricmp(&behind_star, &rest) == 0;
}

/* The common name counts only without alternative names (RFC 6125 6.4.4). */
static bool is_issued_for(const pj_ssl_cert_info *certificate, const pj_str_t *host)
{
    bool has_names = false;
    for (unsigned i = 0; i < certificate->subj_alt_name.cnt; i++) {
        if (certificate->subj_alt_name.entry[i].type != PJ_SSL_CERT_NAME_DNS)
            continue;
        has_names = true;
        if (matches(&certificate->subj_alt_name.entry[i].name, host))
            return true;
    }
    return !has_names && pj_stricmp(&certificate->subject.cn, host) == 0;
}

static void check(const pj_str_t *host, pj_ssl_cert_info *certificate, unsigned flags)
{
    static pjsip_transport transport;
    const pj_str_t address = pj_str(KNOWN_ADDRESS), known = pj_str("known.example");
    const pj_ssl_sock_info ssl = {.remote_cert_info = flags & NO_CERTIFICATE ? NULL : certificate,
                                  .verify_status = (flags & OTHER_NAME ? PJ_SSL_CERT_EIDENTITY_NOT_MATCH : 0u) |
                                                   (flags & UNTRUSTED ? PJ_SSL_CERT_EUNTRUSTED : 0u)};
    char why[TLS_REASON_SIZE];
    pj_sockaddr_init(pj_AF_INET(), &transport.key.rem_addr, &address, 5061);
    transport.remote_name.host = *host;
    const bool rejected = tls_peer_is_untrusted(&transport, &ssl, why);
    must(rejected == (*why != 0) && memchr(why, 0, sizeof why), "a rejection has a reason");
    must(rejected || !(flags & (UNTRUSTED | NO_CERTIFICATE)), "an untrusted certificate is rejected");
    must(rejected || !(flags & OTHER_NAME) || is_issued_for(certificate, host) ||
             (ip_literal_is_valid(host) && is_issued_for(certificate, &known)),
         "a certificate is for the host, or for one that is known to be at the address");
    tls_name_mismatch_remove(NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_str_t line[MAX_ENTRIES + 2] = {{NULL, 0}};
    const uint8_t *at = data + 1, *end = data + size;
    pj_ssl_cert_info certificate = {.version = 3};
    unsigned count = 0;
    stack_start();
    if (!size)
        return 0;
    while (count < PJ_ARRAY_SIZE(line) && at < end)
        line[count++] = read_line(&at, end);
    certificate.subject.cn = line[1];
    certificate.subj_alt_name.cnt = count > 2 ? count - 2 : 0;
    certificate.subj_alt_name.entry = calloc(MAX_ENTRIES, sizeof *certificate.subj_alt_name.entry);
    for (unsigned i = 0; i < certificate.subj_alt_name.cnt; i++) {
        certificate.subj_alt_name.entry[i].type = data[0] & OF_ADDRESSES ? PJ_SSL_CERT_NAME_IP : PJ_SSL_CERT_NAME_DNS;
        certificate.subj_alt_name.entry[i].name = line[i + 2];
    }
    if (line[0].slen && !memchr(line[0].ptr, 0, (size_t)line[0].slen)) /* as in a URI */
        check(&line[0], &certificate, data[0]);
    free(certificate.subj_alt_name.entry);
    for (unsigned i = 0; i < count; i++)
        free(line[i].ptr);
    return 0;
}
