/* A set of addresses and networks that can be asked for an address in no more time than it has lengths of prefixes. */
#ifndef TRUNKLINE_NET_IP_SET_H
#define TRUNKLINE_NET_IP_SET_H

#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

/* An address of IPv4 as its IPv6 form, ::ffff:a.b.c.d (RFC 4291 2.5.5.2): so both ways of writing it are the same. */
typedef struct address_key {
    uint8_t byte[16];
} address_key_t;

typedef struct sources sources_t;

/* `address` or `address/bits`; what is neither is left out. NULL when there is no memory. */
sources_t *sources_make(const char *const *texts, int count);
void sources_free(sources_t *sources);
/* NULL holds nothing. */
bool sources_contain(const sources_t *sources, const address_key_t *address);
/* The /64 that an address of IPv6 lies in; one of IPv4 itself. */
address_key_t address_key_site(const address_key_t *address);
/* false for what is no address of IP. */
bool address_key(const pj_sockaddr *address, address_key_t *key);
/* Both are addresses of IP, and the same one, whatever their ports. */
bool sources_same_host(const pj_sockaddr *one, const pj_sockaddr *other);

#endif
