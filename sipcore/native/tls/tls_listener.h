/* SIP over TLS: the listeners, who may begin a handshake with them, and whose certificates we take. */
#ifndef TRUNKLINE_TLS_TLS_LISTENER_H
#define TRUNKLINE_TLS_TLS_LISTENER_H

#include "tls/peer_verify.h"

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>
#include <stdint.h>

#define TLS_EVENTS 32

/* Paths of PEM files; "" for none. `authorities` are those that a private CA adds to the system's in `folder`. */
typedef struct {
    const char *certificate, *key, *authorities, *folder;
} tls_files_t;

typedef struct {
    char peer[80], reason[TLS_REASON_SIZE];
    uint64_t count;
} tls_event_t;

/* Listen on an address; `name` is the address that stands in messages until their receiver is known. Port 0: only for
 * connections that we make; whoever finds the socket gets no answer. */
pj_status_t tls_listener_open(const char *host, int port, const char *name, const tls_files_t *files);
/* Take other files for the connections that come and are made from now on. Waits for PJSIP's thread. */
pj_status_t tls_listener_renew(const tls_files_t *files);
/* All listeners are forgotten; PJSUA closes them. */
void tls_listener_forget_all(void);
/* Whether the port is really listened on: PJSIP does not say when it could not be opened. */
bool tls_listener_apply_filters(void);

/* Whether somebody can connect to us; else peers can only use the connections that we make. */
bool tls_listener_accepts(void);
/* Addresses and networks ("192.0.2.0/24") that may connect. */
void tls_listener_allow(const char *const *sources, int count, const char *const *more, int more_count);
/* Off at first. */
void tls_listener_allow_all(bool on);
/* Close the connections of those who may not. */
void tls_listener_reject_unknown(void);
/* Ends a new connection of ours whose peer proves nothing. To be called for each state of each transport. */
void tls_on_transport_state(pjsip_transport *transport, pjsip_transport_state state, const pjsip_transport_state_info *info);
/* Connections that failed since the last call, at most TLS_EVENTS, the rest only counted. */
int tls_take_events(tls_event_t *out, uint64_t *more);

#endif
