/* Why connections of ours ended lately: PJSIP tells their own requests only where these had been queued by then. */
#ifndef TRUNKLINE_TLS_CLOSE_REASONS_H
#define TRUNKLINE_TLS_CLOSE_REASONS_H

#include "tls/peer_verify.h"

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

void tls_close_reason_set(const pj_sockaddr *peer, const char *reason);
/* Why the last one to that peer ended, within the last seconds; false: none has. */
bool tls_close_reason_get(const pj_sockaddr *peer, char reason[TLS_REASON_SIZE]);

#endif
