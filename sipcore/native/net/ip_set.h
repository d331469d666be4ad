/* A set of IP addresses and networks. A look-up takes one binary search for each prefix length in the set. */
#ifndef TRUNKLINE_NET_IP_SET_H
#define TRUNKLINE_NET_IP_SET_H

#include <stdbool.h>
#include <stdint.h>

#include <pjsua-lib/pjsua.h>

/* An IPv4 address in its IPv6 form, ::ffff:a.b.c.d (RFC 4291 2.5.5.2), so that both notations are equal. */
typedef struct ip_key {
    uint8_t byte[16];
} ip_key_t;

typedef struct ip_set ip_set_t;

/* From texts `address` or `address/bits`; other texts are left out. NULL if out of memory. */
ip_set_t *ip_set_create(const char *const *texts, int count);
void ip_set_free(ip_set_t *set);
/* A NULL set is empty. */
bool ip_set_contains(const ip_set_t *set, const ip_key_t *address);
/* The /64 of an IPv6 address; an IPv4 address itself. */
ip_key_t ip_key_prefix64(const ip_key_t *address);
/* False if the address is neither IPv4 nor IPv6. */
bool ip_key_of(const pj_sockaddr *address, ip_key_t *key);
/* True if both are the same IP address; ports do not count. */
bool ip_same_host(const pj_sockaddr *one, const pj_sockaddr *other);

#endif
