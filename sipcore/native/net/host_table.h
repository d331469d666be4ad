/* Host table: PJSIP resolves host names in a table that Python fills. Its threads never query a resolver. */
#ifndef TRUNKLINE_NET_HOST_TABLE_H
#define TRUNKLINE_NET_HOST_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#define HOST_TABLE_MAX 4096         /* entries of the table */
#define HOST_TABLE_MAX_UNKNOWN 32   /* unknown names between two calls of host_table_take_unknown */
#define HOST_NAME_SIZE 254          /* a DNS name as text, with the final zero (RFC 1035 2.3.4) */

typedef struct host_table_entry {
    char host[HOST_NAME_SIZE];              /* lower case */
    uint16_t port;                          /* 0: none */
    pjsip_transport_type_e transport;       /* UDP, TCP or TLS; without the flag for IPv6 */
    int count;                              /* at least one */
    struct {
        pj_sockaddr address;
        pjsip_transport_type_e transport;   /* with that flag */
    } target[PJSIP_MAX_RESOLVED_ADDRESSES]; /* by preference */
} host_table_entry_t;

typedef struct host_table_unknown {
    char host[HOST_NAME_SIZE];
    uint64_t count;
} host_table_unknown_t;

int host_table_install(void);
/* Takes ownership of an array from malloc. */
void host_table_set(host_table_entry_t *entries, int count);
/* UDP, TCP or TLS; PJSIP_TRANSPORT_UNSPECIFIED for anything else. */
pjsip_transport_type_e host_table_transport(const char *text);
/* Adds an address as text to an entry; returns -1 if the text is not an address or the entry is full. */
int host_table_add_target(host_table_entry_t *entry, const char *address, uint16_t port, pjsip_transport_type_e transport);
/* Moves the unknown names that were looked up since the last call into `out` and returns their number; `*more` counts the
 * look-ups of further names. */
int host_table_take_unknown(host_table_unknown_t *out, uint64_t *more);
/* True if `accepts` returns true for a name at that address; it is called while the table is locked. */
bool host_table_any_at(const pj_sockaddr *address, bool (*accepts)(const char *host, const void *context),
                       const void *context);
/* The remote target of a dialog is the Record-Route nearest to this endpoint, else the Contact. If it is a name that is
 * not in the table, the message's source address replaces it. */
void host_table_pin_target(pjsip_rx_data *rdata);
/* A response's Via names the address that its sender saw (`received`); a host name there is replaced, because PJSIP would
 * look it up. */
void host_table_pin_via(pjsip_rx_data *rdata);
/* The first address of a URI's host, from the table or a literal; false if it is not known. */
bool host_table_address_of(const pjsip_sip_uri *uri, pj_sockaddr *address);
/* True if an address is one of a URI's host, for any transport. */
bool host_table_resolves_to(const pjsip_sip_uri *uri, const pj_sockaddr *address);

#endif
