/* Why connections of ours ended lately: PJSIP tells their own requests only where these had been queued by then. */
#ifndef TRUNKLINE_TLS_CLOSE_REASONS_H
#define TRUNKLINE_TLS_CLOSE_REASONS_H

#include "tls/peer_verify.h"

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

void tls_ended_note(const pj_sockaddr *peer, const char *why);
/* Why the last one to that peer ended, within the last seconds; false: none has. */
bool tls_ended_why(const pj_sockaddr *peer, char why[TLS_WHY]);

#endif
