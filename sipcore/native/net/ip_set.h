/* A set of addresses and networks that can be asked for an address in no more time than it has lengths of prefixes. */
#ifndef TRUNKLINE_NET_IP_SET_H
#define TRUNKLINE_NET_IP_SET_H

#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

/* An address of IPv4 as its IPv6 form, ::ffff:a.b.c.d (RFC 4291 2.5.5.2): so both ways of writing it are the same. */
typedef struct ip_key_of {
    uint8_t byte[16];
} ip_key_t;

typedef struct ip_set ip_set_t;

/* `address` or `address/bits`; what is neither is left out. NULL when there is no memory. */
ip_set_t *ip_set_create(const char *const *texts, int count);
void ip_set_free(ip_set_t *set);
/* NULL holds nothing. */
bool ip_set_contains(const ip_set_t *set, const ip_key_t *address);
/* The /64 that an address of IPv6 lies in; one of IPv4 itself. */
ip_key_t ip_key_site(const ip_key_t *address);
/* false for what is no address of IP. */
bool ip_key_of(const pj_sockaddr *address, ip_key_t *key);
/* Both are addresses of IP, and the same one, whatever their ports. */
bool ip_same_host(const pj_sockaddr *one, const pj_sockaddr *other);

#endif
