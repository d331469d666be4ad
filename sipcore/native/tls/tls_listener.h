/* SIP over TLS: listeners, the sources that may connect to them, and connections that failed. */
#ifndef TRUNKLINE_TLS_TLS_LISTENER_H
#define TRUNKLINE_TLS_TLS_LISTENER_H

#include "tls/peer_verify.h"

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>
#include <stdint.h>

#define TLS_EVENTS 32

/* Paths of PEM files; "" for none. `authorities`: those of a private CA, besides the system's in `folder`. */
typedef struct {
    const char *certificate, *key, *authorities, *folder;
} tls_files_t;

typedef struct {
    char peer[80], reason[TLS_REASON_SIZE];
    uint64_t count;
} tls_event_t;

/* Listens on an address; messages contain `name` until their receiver is known. Port 0: for outbound connections only; the
 * socket drops inbound ones. */
pj_status_t tls_listener_open(const char *host, int port, const char *name, const tls_files_t *files);
/* Uses other files for new connections. Waits for PJSIP's thread. */
pj_status_t tls_listener_reload(const tls_files_t *files);
/* Removes all listeners; PJSUA closes them. */
void tls_listener_clear(void);
/* Attaches the accept filters to all listening sockets. False if a port is not listened on: PJSIP reports no such failure. */
bool tls_listener_apply_filters(void);

/* True if a listener accepts inbound connections; else peers can only use this endpoint's outbound ones. */
bool tls_listener_accepts(void);
/* Sets the addresses and networks ("192.0.2.0/24") that may connect. */
void tls_listener_allow(const char *const *sources, int count, const char *const *more, int more_count);
/* True: every source may connect. False at first. */
void tls_listener_allow_all(bool on);
/* Closes connections of sources that may not connect. */
void tls_listener_reject_unknown(void);
/* Closes a new outbound connection whose peer's certificate is not accepted. To be called for each state of each transport. */
void tls_on_transport_state(pjsip_transport *transport, pjsip_transport_state state, const pjsip_transport_state_info *info);
/* Moves the connections that failed since the last call into `out`, TLS_EVENTS at most; `*more` counts the others. */
int tls_take_events(tls_event_t *out, uint64_t *more);

#endif
