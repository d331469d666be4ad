/* Connections that others have made to us: a bounded number of each source, and none that never says anything. Strangers
 * have few places of their own, for a short time each: they never take one from a known peer. */
#ifndef TRUNKLINE_GUARD_CONNECTION_LIMIT_H
#define TRUNKLINE_GUARD_CONNECTION_LIMIT_H

#include "net/ip_set.h"

#define MAX_CONNECTIONS_PER_SOURCE 64
#define MAX_CONNECTIONS 2048
#define MAX_CONNECTIONS_PER_UNKNOWN_SOURCE 4
#define MAX_CONNECTIONS_OF_UNKNOWN_SOURCES 64

/* Remember a connection; false when its source, or everybody of its kind, has as many as may be. A source is an address
 * of IPv4, or a /64 of IPv6: all its addresses are one site's (RFC 4291, 2.5.4). */
bool connection_limit_add(pjsip_transport *transport, const ip_key_t *source, bool unknown, int64_t now_ms);
/* PJSIP is about to end, or has: it does not tell of each. */
void connection_limit_clear(void);
void connection_limit_remove(const pjsip_transport *transport);
/* It has sent something: from now on the message has to become whole. */
void connection_limit_message_started(const pjsip_transport *transport, int64_t now_ms);
/* It has sent a whole message. A stranger's time goes on, unless by it, being of a call for instance, it is `known`. */
void connection_limit_message_complete(const pjsip_transport *transport, bool known);
/* A connection whose message has not become whole in time, with a reference that the caller gives back; else NULL. */
pjsip_transport *connection_limit_next_slow(int64_t now_ms, int64_t allowed_ms);

#endif
