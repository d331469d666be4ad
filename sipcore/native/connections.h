/* Connections that others have made to us: a bounded number of each source, and none that never says anything. */
#ifndef TRUNKLINE_CONNECTIONS_H
#define TRUNKLINE_CONNECTIONS_H

#include "sources.h"

#define CONNECTIONS_OF_ONE 64
#define CONNECTIONS_MOST 2048

/* Remember a connection; false when its source, or everybody, has as many as may be. */
bool connections_add(pjsip_transport *transport, const address_key_t *source, int64_t now_ms);
/* PJSIP is about to end, or has: it does not tell of each. */
void connections_forget(void);
void connections_remove(const pjsip_transport *transport);
/* It has sent something: from now on the message has to become whole. */
void connections_began(const pjsip_transport *transport, int64_t now_ms);
/* It has sent a whole message. */
void connections_whole(const pjsip_transport *transport);
/* A connection whose message has not become whole in time, with a reference that the caller gives back; else NULL. */
pjsip_transport *connections_slow(int64_t now_ms, int64_t allowed_ms);

#endif
