/* A host table, each line of it a sign, a transport's letter, a host and an address; and URIs, one a line. A URI's address
 * is a literal or in the table, both for our own look-ups and for PJSIP's. */
#include "stack.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "net/ip_literal.h"
#include "net/host_table.h"
#include "net/ip_set.h"

#define MAX_ENTRIES 16
#define SIGN '='

static struct {
    char host[HOST_NAME_SIZE];
    pj_sockaddr address;
} row[MAX_ENTRIES + 1];
static int rows, resolved;

/* ---- the table ---- */

static void add_row(host_table_entry_t *entries, int *count, const char *line)
{
    char host[HOST_NAME_SIZE], address[64], letter;
    pjsip_transport_type_e transport;
    if (*count == MAX_ENTRIES || sscanf(line, "%c %253s %63s", &letter, host, address) != 3)
        return;
    transport = letter == 's' ? PJSIP_TRANSPORT_TLS : letter == 't' ? PJSIP_TRANSPORT_TCP : PJSIP_TRANSPORT_UDP;
    host_table_entry_t *entry = &entries[*count];
    *entry = (host_table_entry_t){.count = 0};
    for (size_t i = 0; i <= strlen(host); i++)
        entry->host[i] = row[rows].host[i] = (char)pj_tolower((unsigned char)host[i]);
    entry->transport = transport;
    if (host_table_add_target(entry, address, 5060, transport) != 0)
        return;
    while (host_table_add_target(entry, address, 5060, transport) == 0)
        must(entry->count <= PJSIP_MAX_RESOLVED_ADDRESSES, "the targets of an entry are bounded");
    row[rows++].address = entry->target[0].address;
    (*count)++;
}

static bool is_in_table(const pj_str_t *host, const pj_sockaddr *address)
{
    pj_str_t name = *host;
    name.slen -= name.slen && name.ptr[name.slen - 1] == '.';
    for (int i = 0; i < rows; i++)
        if (pj_stricmp2(&name, row[i].host) == 0 && ip_same_host(&row[i].address, address))
            return true;
    return false;
}

/* ---- look-ups ---- */

static bool leads_to(const pj_str_t *host, const pj_sockaddr *address)
{
    pj_sockaddr literal;
    return ip_literal_parse(host, &literal) ? ip_same_host(&literal, address) : is_in_table(host, address);
}

static void on_resolved(pj_status_t status, void *token, const struct pjsip_server_addresses *found)
{
    const pj_str_t *host = token;
    resolved++;
    must((status == PJ_SUCCESS) == (found && found->count), "a successful look-up has addresses");
    for (unsigned i = 0; found && i < found->count; i++) {
        const bool v6 = found->entry[i].type & PJSIP_TRANSPORT_IPV6;
        must(leads_to(host, &found->entry[i].addr), "each address is of the host");
        must(v6 == (found->entry[i].addr.addr.sa_family == pj_AF_INET6()), "its transport has its IP version");
        must(pj_sockaddr_get_port(&found->entry[i].addr), "it has a port");
    }
}

static void check(pj_pool_t *pool, const pjsip_sip_uri *uri)
{
    const pj_str_t *host = uri->maddr_param.slen ? &uri->maddr_param : &uri->host;
    const bool secure = PJSIP_URI_SCHEME_IS_SIPS(uri);
    pjsip_host_info target = {.flag = secure ? PJSIP_TRANSPORT_SECURE | PJSIP_TRANSPORT_RELIABLE : 0,
                                    .type = pjsip_transport_get_type_from_name(&uri->transport_param),
                                    .addr = {.host = *host, .port = uri->port}};
    pj_sockaddr address;
    if (host_table_address_of(uri, &address)) {
        must(leads_to(host, &address), "an address is of the host");
        must(host_table_resolves_to(uri, &address), "the URI resolves to it");
    }
    resolved = 0;
    pjsip_endpt_resolve(pjsua_get_pjsip_endpt(), pool, &target, (void *)host, on_resolved);
    must(resolved == 1, "a look-up is answered at once, and once");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static host_table_unknown_t unknown[HOST_TABLE_MAX_UNKNOWN];
    uint64_t more;
    pj_pool_t *pool = stack_pool();
    host_table_entry_t *entries = calloc(MAX_ENTRIES, sizeof *entries);
    char *text = pj_pool_alloc(pool, size + 1), *at = text, *line;
    int count = rows = 0;
    memcpy(text, data, size);
    text[size] = 0;
    while (*at == SIGN && (line = strsep(&at, "\n")) && at)
        add_row(entries, &count, line + 1);
    host_table_set(entries, count);
    while ((line = strsep(&at, "\n"))) {
        pjsip_uri *uri = pjsip_parse_uri(pool, line, strlen(line), 0);
        if (uri && (PJSIP_URI_SCHEME_IS_SIP(uri) || PJSIP_URI_SCHEME_IS_SIPS(uri)))
            check(pool, pjsip_uri_get_uri(uri));
    }
    must(host_table_take_unknown(unknown, &more) <= HOST_TABLE_MAX_UNKNOWN, "unknown names are bounded");
    return 0;
}
