/* Close reasons of outbound TLS connections: PJSIP reports them to a request only if it was queued by then. */
#ifndef TRUNKLINE_TLS_CLOSE_REASONS_H
#define TRUNKLINE_TLS_CLOSE_REASONS_H

#include "tls/peer_verify.h"

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

void tls_close_reason_set(const pj_sockaddr *peer, const char *reason);
/* Reason of the last closed connection to that peer; false if none has closed within the last 2 s. */
bool tls_close_reason_get(const pj_sockaddr *peer, char reason[TLS_REASON_SIZE]);

#endif
