/* Where PJSIP finds the addresses of host names: in a table that Python fills. Its threads never ask a resolver. */
#ifndef TRUNKLINE_NET_HOST_TABLE_H
#define TRUNKLINE_NET_HOST_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

#define HOST_TABLE_MAX 4096         /* entries of the table */
#define HOST_TABLE_MAX_UNKNOWN 32        /* unknown names remembered between two looks */
#define HOST_NAME_SIZE 254       /* a DNS name as text, with its end (RFC 1035 2.3.4) */

typedef struct host_table_entry {
    char host[HOST_NAME_SIZE];               /* lower case */
    uint16_t port;                          /* 0: none was given */
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
/* Takes over an array from malloc. */
void host_table_set(host_table_entry_t *entries, int count);
/* UDP, TCP or TLS; PJSIP_TRANSPORT_UNSPECIFIED for anything else. */
pjsip_transport_type_e host_table_transport(const char *text);
/* Add an address as text to an entry; -1 when it is none or the entry is full. */
int host_table_add_target(host_table_entry_t *entry, const char *address, uint16_t port, pjsip_transport_type_e transport);
/* Hand out and forget which unknown names were asked for since the last look; returns how many, `*more` counts the
 * questions for further ones. */
int host_table_take_unknown(host_table_unknown_t *out, uint64_t *more);
/* Whether one of the names that are at an address is accepted; `accepts` is called while the table is locked. */
bool host_table_any_at(const pj_sockaddr *address, bool (*accepts)(const char *host, const void *context), const void *context);
/* A message says where later requests of its dialog go, in the Record-Route next to us or else in Contact. When that is a
 * name that is not in the table, put the address in its place that the message came from. */
void host_table_pin_target(pjsip_rx_data *rdata);
/* A response says where our request was seen to come from; what is no address there would be looked up. */
void host_table_pin_via(pjsip_rx_data *rdata);
/* The first address that a URI leads to, without asking anybody; false when that is not known. */
bool host_table_address_of(const pjsip_sip_uri *uri, pj_sockaddr *address);
/* Whether an address is one of those that a URI's host has, by whatever transport. */
bool host_table_leads_to(const pjsip_sip_uri *uri, const pj_sockaddr *address);

#endif
