/* Connection limit: a bounded number of inbound connections per source, closed if they do not send whole messages in time.
 * Unknown sources have a small limit of their own, so they never use up that of known peers. */
#ifndef TRUNKLINE_GUARD_CONNECTION_LIMIT_H
#define TRUNKLINE_GUARD_CONNECTION_LIMIT_H

#include "net/ip_set.h"

#define MAX_CONNECTIONS_PER_SOURCE 64
#define MAX_CONNECTIONS 2048
#define MAX_CONNECTIONS_PER_UNKNOWN_SOURCE 4
#define MAX_CONNECTIONS_OF_UNKNOWN_SOURCES 64

/* Adds a connection; false if its source, or its kind of sources, has reached the limit. A source is an IPv4 address or an
 * IPv6 /64, which is one site (RFC 4291, 2.5.4). */
bool connection_limit_add(pjsip_transport *transport, const ip_key_t *source, bool unknown, int64_t now_ms);
/* Removes all connections. Called at the end of PJSIP, which does not report each of them. */
void connection_limit_clear(void);
void connection_limit_remove(const pjsip_transport *transport);
/* The connection has sent data: the time for its message begins. */
void connection_limit_message_started(const pjsip_transport *transport, int64_t now_ms);
/* The connection has sent a whole message. The time of an unknown source still runs, unless the message makes it `known`, for
 * instance because it belongs to a call. */
void connection_limit_message_complete(const pjsip_transport *transport, bool known);
/* Returns a connection whose message is not complete after `allowed_ms`, with a reference; NULL if there is none. */
pjsip_transport *connection_limit_next_slow(int64_t now_ms, int64_t allowed_ms);

#endif
