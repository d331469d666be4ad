#define _GNU_SOURCE
#include "net/host_table.h"

#include "net/ip_literal.h"
#include "net/ip_set.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct {
    pthread_mutex_t lock;
    host_table_entry_t *entries;     /* sorted */
    int count;
    host_table_unknown_t unknown[HOST_TABLE_MAX_UNKNOWN];
    int unknown_count;
    uint64_t more;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

pjsip_transport_type_e host_table_transport(const char *text)
{
    if (strcmp(text, "udp") == 0)
        return PJSIP_TRANSPORT_UDP;
    if (strcmp(text, "tcp") == 0)
        return PJSIP_TRANSPORT_TCP;
    return strcmp(text, "tls") == 0 ? PJSIP_TRANSPORT_TLS : PJSIP_TRANSPORT_UNSPECIFIED;
}

static pjsip_transport_type_e of_family(pjsip_transport_type_e transport, const pj_sockaddr *address)
{
    int bare = (int)transport & ~PJSIP_TRANSPORT_IPV6;
    return (pjsip_transport_type_e)(address->addr.sa_family == pj_AF_INET6() ? bare | PJSIP_TRANSPORT_IPV6 : bare);
}

int host_table_add_target(host_table_entry_t *entry, const char *text, uint16_t port, pjsip_transport_type_e transport)
{
    pj_str_t address = pj_str((char *)text);
    if (entry->count == PJSIP_MAX_RESOLVED_ADDRESSES || !ip_literal_parse(&address, &entry->target[entry->count].address))
        return -1;
    pj_sockaddr_set_port(&entry->target[entry->count].address, port);
    entry->target[entry->count].transport = of_family(transport, &entry->target[entry->count].address);
    entry->count++;
    return 0;
}

/* ---- the table ---- */

static int compare(const void *a, const void *b)
{
    const host_table_entry_t *one = a, *other = b;
    int difference = strcmp(one->host, other->host);
    if (!difference)
        difference = (int)one->port - (int)other->port;
    return difference ? difference : (int)one->transport - (int)other->transport;
}

void host_table_set(host_table_entry_t *entries, int count)
{
    if (count)
        qsort(entries, (size_t)count, sizeof *entries, compare);
    pthread_mutex_lock(&table.lock);
    host_table_entry_t *old = table.entries;
    table.entries = entries;
    table.count = count;
    pthread_mutex_unlock(&table.lock);
    free(old);
}

static bool is_at(const host_table_entry_t *entry, const pj_sockaddr *address)
{
    for (int i = 0; i < entry->count; i++) {
        const pj_sockaddr *target = &entry->target[i].address;
        if (target->addr.sa_family == address->addr.sa_family &&
            memcmp(pj_sockaddr_get_addr(target), pj_sockaddr_get_addr(address), pj_sockaddr_get_addr_len(address)) == 0)
            return true;
    }
    return false;
}

bool host_table_any_at(const pj_sockaddr *address, bool (*accepts)(const char *host, const void *context),
                       const void *context)
{
    bool found = false;
    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < table.count && !found; i++)
        found = is_at(&table.entries[i], address) && accepts(table.entries[i].host, context);
    pthread_mutex_unlock(&table.lock);
    return found;
}

/* Lower case, without a final dot; false if it is too long for a host name. */
static bool normal_name(const pj_str_t *host, char *name)
{
    pj_ssize_t length = host->slen > 0 && host->ptr[host->slen - 1] == '.' ? host->slen - 1 : host->slen;
    if (length <= 0 || length >= HOST_NAME_SIZE)
        return false;
    for (pj_ssize_t i = 0; i < length; i++)
        name[i] = (char)tolower((unsigned char)host->ptr[i]);
    name[length] = 0;
    return true;
}

/* RFC 3263 4.1: UDP by default, TLS for SIPS. */
static pjsip_transport_type_e transport_of(pjsip_transport_type_e type, unsigned flags)
{
    if (type != PJSIP_TRANSPORT_UNSPECIFIED)
        return (pjsip_transport_type_e)((int)type & ~PJSIP_TRANSPORT_IPV6);
    if (flags & PJSIP_TRANSPORT_SECURE)
        return PJSIP_TRANSPORT_TLS;
    return flags & PJSIP_TRANSPORT_RELIABLE ? PJSIP_TRANSPORT_TCP : PJSIP_TRANSPORT_UDP;
}

/* The lock is held. */
static const host_table_entry_t *find(const char *host, uint16_t port, pjsip_transport_type_e transport)
{
    static __thread host_table_entry_t key; /* not on the stack: it is large */
    memcpy(key.host, host, strlen(host) + 1);
    key.port = port;
    key.transport = transport;
    return table.count ? bsearch(&key, table.entries, (size_t)table.count, sizeof key, compare) : NULL;
}

/* The lock is held. */
static void count_unknown(const char *host)
{
    for (int i = 0; i < table.unknown_count; i++)
        if (strcmp(table.unknown[i].host, host) == 0) {
            table.unknown[i].count++;
            return;
        }
    if (table.unknown_count == HOST_TABLE_MAX_UNKNOWN) {
        table.more++;
        return;
    }
    host_table_unknown_t *unknown = &table.unknown[table.unknown_count++];
    memcpy(unknown->host, host, strlen(host) + 1);
    unknown->count = 1;
}

int host_table_take_unknown(host_table_unknown_t *out, uint64_t *more)
{
    pthread_mutex_lock(&table.lock);
    int count = table.unknown_count;
    memcpy(out, table.unknown, (size_t)count * sizeof *out);
    *more = table.more;
    table.unknown_count = 0;
    table.more = 0;
    pthread_mutex_unlock(&table.lock);
    return count;
}

/* ---- PJSIP's resolver ---- */

static void add_record(pjsip_server_addresses *found, const pj_str_t *name, const pj_sockaddr *address,
                       pjsip_transport_type_e transport)
{
    pjsip_server_address_record *record = &found->entry[found->count++];
    record->name = *name;
    record->type = transport;
    record->priority = found->count; /* in the order of the table */
    record->weight = 0;
    record->addr = *address;
    record->addr_len = (int)pj_sockaddr_get_len(address);
}

static void add_literal(const pjsip_host_info *target, pj_sockaddr *address, pjsip_server_addresses *found)
{
    pjsip_transport_type_e transport = of_family(transport_of(target->type, target->flag), address);
    int port = target->addr.port ? target->addr.port : pjsip_transport_get_default_port_for_type(transport);
    pj_sockaddr_set_port(address, (pj_uint16_t)port);
    add_record(found, &target->addr.host, address, transport);
}

static void add_from_table(const pjsip_host_info *target, pjsip_server_addresses *found)
{
    char name[HOST_NAME_SIZE];
    if (!normal_name(&target->addr.host, name))
        return;
    pthread_mutex_lock(&table.lock);
    const host_table_entry_t *entry = find(name, (uint16_t)target->addr.port, transport_of(target->type, target->flag));
    for (int i = 0; entry && i < entry->count; i++)
        add_record(found, &target->addr.host, &entry->target[i].address, entry->target[i].transport);
    if (!entry)
        count_unknown(name);
    pthread_mutex_unlock(&table.lock);
}

static void resolve(pjsip_resolver_t *resolver, pj_pool_t *pool, const pjsip_host_info *target, void *token,
                    pjsip_resolver_callback *callback)
{
    pjsip_server_addresses found = {.count = 0};
    pj_sockaddr address;
    (void)resolver, (void)pool;
    if (ip_literal_parse(&target->addr.host, &address))
        add_literal(target, &address, &found);
    else
        add_from_table(target, &found);
    /* PJSIP's transactions fail at once on PJ_ERESOLVE, and retry after other errors. */
    callback(found.count ? PJ_SUCCESS : PJ_ERESOLVE, token, found.count ? &found : NULL);
}

int host_table_install(void)
{
    static pjsip_ext_resolver ours = {.resolve = resolve};
    return pjsip_endpt_set_ext_resolver(pjsua_get_pjsip_endpt(), &ours) == PJ_SUCCESS ? 0 : -1;
}

/* ---- host names in peers' messages ---- */

static pjsip_sip_uri *sip_uri(void *uri)
{
    if (!uri || (!PJSIP_URI_SCHEME_IS_SIP(uri) && !PJSIP_URI_SCHEME_IS_SIPS(uri)))
        return NULL;
    return pjsip_uri_get_uri(uri);
}

/* RFC 3261 12.1.1 and 12.1.2: the route set is the list of Record-Routes, in reverse for the caller. */
static pjsip_sip_uri *nearest_route(const pjsip_msg *msg, bool *has_route)
{
    const bool backwards = msg->type == PJSIP_RESPONSE_MSG;
    const pjsip_hdr *hdr = backwards ? msg->hdr.prev : msg->hdr.next;
    for (; hdr != &msg->hdr; hdr = backwards ? hdr->prev : hdr->next)
        if (hdr->type == PJSIP_H_RECORD_ROUTE) {
            *has_route = true;
            return sip_uri(((pjsip_rr_hdr *)hdr)->name_addr.uri);
        }
    return NULL;
}

/* Requests of a dialog with a route set go to its first Route: the proxies resolve the Contact. */
static bool has_route(const pjsip_rx_data *rdata)
{
    const bool request = rdata->msg_info.msg->type == PJSIP_REQUEST_MSG;
    const pj_str_t *from = &rdata->msg_info.from->tag, *to = &rdata->msg_info.to->tag;
    pjsip_dialog *dialog = pjsip_ua_find_dialog(&rdata->msg_info.cid->id, request ? to : from, request ? from : to, PJ_TRUE);
    bool found = dialog && !pj_list_empty(&dialog->route_set);
    if (dialog)
        pjsip_dlg_dec_lock(dialog);
    return found;
}

static pjsip_sip_uri *target_of(const pjsip_rx_data *rdata)
{
    bool routed = false;
    pjsip_sip_uri *route = nearest_route(rdata->msg_info.msg, &routed);
    if (routed)
        return route;
    pjsip_contact_hdr *contact = pjsip_msg_find_hdr(rdata->msg_info.msg, PJSIP_H_CONTACT, NULL);
    pjsip_sip_uri *uri = contact && !contact->star ? sip_uri(contact->uri) : NULL;
    const pj_str_t *host = uri && uri->maddr_param.slen ? &uri->maddr_param : uri ? &uri->host : NULL;
    return host && !ip_literal_is_valid(host) && !has_route(rdata) ? uri : NULL;
}

bool host_table_address_of(const pjsip_sip_uri *uri, pj_sockaddr *address)
{
    const pj_str_t *host = uri->maddr_param.slen ? &uri->maddr_param : &uri->host;
    char name[HOST_NAME_SIZE];
    if (ip_literal_parse(host, address))
        return true;
    if (!normal_name(host, name))
        return false;
    const unsigned flags = PJSIP_URI_SCHEME_IS_SIPS(uri) ? PJSIP_TRANSPORT_SECURE : 0;
    pjsip_transport_type_e type = pjsip_transport_get_type_from_name(&uri->transport_param);
    pthread_mutex_lock(&table.lock);
    const host_table_entry_t *entry = find(name, (uint16_t)uri->port, transport_of(type, flags));
    if (entry)
        *address = entry->target[0].address;
    pthread_mutex_unlock(&table.lock);
    return entry != NULL;
}

bool host_table_resolves_to(const pjsip_sip_uri *uri, const pj_sockaddr *address)
{
    const pj_str_t *host = uri->maddr_param.slen ? &uri->maddr_param : &uri->host;
    char name[HOST_NAME_SIZE];
    pj_sockaddr literal;
    bool found = false;
    if (ip_literal_parse(host, &literal))
        return ip_same_host(&literal, address);
    if (!normal_name(host, name))
        return false;
    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < table.count && !found; i++)
        found = strcmp(table.entries[i].host, name) == 0 && is_at(&table.entries[i], address);
    pthread_mutex_unlock(&table.lock);
    return found;
}

static bool is_known(const pjsip_sip_uri *uri)
{
    pj_sockaddr address;
    char name[HOST_NAME_SIZE];
    if (host_table_address_of(uri, &address))
        return true;
    if (normal_name(uri->maddr_param.slen ? &uri->maddr_param : &uri->host, name)) {
        pthread_mutex_lock(&table.lock);
        count_unknown(name);
        pthread_mutex_unlock(&table.lock);
    }
    return false;
}

static bool has_remote_target(const pjsip_msg *msg)
{
    return msg->type == PJSIP_REQUEST_MSG || msg->line.status.code < 300;
}

void host_table_pin_target(pjsip_rx_data *rdata)
{
    if (!has_remote_target(rdata->msg_info.msg) || !rdata->msg_info.from || !rdata->msg_info.to || !rdata->msg_info.cid)
        return;
    pjsip_sip_uri *uri = target_of(rdata);
    if (!uri || is_known(uri))
        return;
    const pjsip_transport *transport = rdata->tp_info.transport;
    pj_strdup2(rdata->tp_info.pool, &uri->host, rdata->pkt_info.src_name);
    uri->port = rdata->pkt_info.src_port;
    uri->maddr_param.slen = 0;
    uri->transport_param.slen = 0;
    if (transport->flag & PJSIP_TRANSPORT_RELIABLE)
        pj_strdup2(rdata->tp_info.pool, &uri->transport_param, transport->flag & PJSIP_TRANSPORT_SECURE ? "tls" : "tcp");
}

void host_table_pin_via(pjsip_rx_data *rdata)
{
    pjsip_via_hdr *via = rdata->msg_info.via;
    if (via->recvd_param.slen && !ip_literal_is_valid(&via->recvd_param))
        via->recvd_param.slen = 0;
    if (!via->recvd_param.slen && !ip_literal_is_valid(&via->sent_by.host))
        via->sent_by.host = rdata->tp_info.transport->local_name.host;
}
