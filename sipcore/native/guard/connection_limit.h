/* Connections that others have made to us: a bounded number of each source, and none that never says anything. Strangers
 * have few places of their own, for a short time each: they never take one from a known peer. */
#ifndef TRUNKLINE_GUARD_CONNECTION_LIMIT_H
#define TRUNKLINE_GUARD_CONNECTION_LIMIT_H

#include "net/ip_set.h"

#define CONNECTIONS_OF_ONE 64
#define CONNECTIONS_MOST 2048
#define CONNECTIONS_OF_STRANGER 4
#define CONNECTIONS_OF_STRANGERS 64

/* Remember a connection; false when its source, or everybody of its kind, has as many as may be. A source is an address
 * of IPv4, or a /64 of IPv6: all its addresses are one site's (RFC 4291, 2.5.4). */
bool connections_add(pjsip_transport *transport, const address_key_t *source, bool stranger, int64_t now_ms);
/* PJSIP is about to end, or has: it does not tell of each. */
void connections_forget(void);
void connections_remove(const pjsip_transport *transport);
/* It has sent something: from now on the message has to become whole. */
void connections_began(const pjsip_transport *transport, int64_t now_ms);
/* It has sent a whole message. A stranger's time goes on, unless by it, being of a call for instance, it is `known`. */
void connections_whole(const pjsip_transport *transport, bool known);
/* A connection whose message has not become whole in time, with a reference that the caller gives back; else NULL. */
pjsip_transport *connections_slow(int64_t now_ms, int64_t allowed_ms);

#endif
