/* Source access list: the addresses of trunks, and those that may only send OPTIONS (probes). */
#ifndef TRUNKLINE_NET_SOURCE_ACL_H
#define TRUNKLINE_NET_SOURCE_ACL_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

enum source_class { SOURCE_UNKNOWN, SOURCE_PROBE, SOURCE_TRUNK };

/* Addresses and networks as text, copied. */
void source_acl_set(const char *const *trunks, int trunk_count, const char *const *probes, int probe_count);
/* An address in both lists is a trunk's; anything but an IP address is unknown. Its port does not count. */
enum source_class source_acl_class(const pj_sockaddr *source);
/* True if the address is a trunk's. */
bool source_acl_is_trunk(const pj_sockaddr *source);
/* True if the address is a trunk's or a probe's. */
bool source_acl_has(const pj_sockaddr *source);

#endif
