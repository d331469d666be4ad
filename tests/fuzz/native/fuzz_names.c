/* URIs, one a line: the address that each leads to is that of a literal, or of the one name in the table. */
#include "stack.h"

#include <string.h>

#include "../../../sipcore/native/literal.h"
#include "../../../sipcore/native/names.h"

static bool is_known_address(const pj_sockaddr *address)
{
    char text[PJ_INET6_ADDRSTRLEN];
    return strcmp(pj_sockaddr_print(address, text, sizeof text, 0), KNOWN_ADDRESS) == 0;
}

static void look(const pjsip_sip_uri *uri)
{
    const pj_str_t *host = uri->maddr_param.slen ? &uri->maddr_param : &uri->host;
    pj_sockaddr address, literal;
    if (!names_address_of(uri, &address))
        return;
    if (literal_address(host, &literal))
        must(pj_sockaddr_cmp(&address, &literal) == 0, "a literal is its own address");
    else
        must(is_known_address(&address) && pj_strnicmp2(host, "known.example", 13) == 0, "a name is in the table");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static names_unknown_t unknown[NAMES_UNKNOWN];
    uint64_t more;
    pj_pool_t *pool = stack_pool();
    char *text = pj_pool_alloc(pool, size + 1), *line;
    memcpy(text, data, size);
    text[size] = 0;
    while ((line = strsep(&text, "\n"))) {
        pjsip_uri *uri = pjsip_parse_uri(pool, line, strlen(line), 0);
        if (uri && (PJSIP_URI_SCHEME_IS_SIP(uri) || PJSIP_URI_SCHEME_IS_SIPS(uri)))
            look(pjsip_uri_get_uri(uri));
    }
    must(names_take_unknown(unknown, &more) <= NAMES_UNKNOWN, "what is not known is bounded");
    return 0;
}
