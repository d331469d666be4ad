/* What a peer asks when it wants to know who we are (RFC 3261 22). */
#ifndef TRUNKLINE_REGISTRATION_AUTH_CHALLENGE_H
#define TRUNKLINE_REGISTRATION_AUTH_CHALLENGE_H

#include <stdbool.h>

#include <pjsip.h>

/* Whether a status asks for credentials. */
bool auth_challenge_is_status(int code);
/* What nonces of ours begin with; copied. Before any message is received. */
void auth_challenge_set_nonce_prefix(const char *mark);
/* Leave out challenges of our own, which somebody hands back to us: who knew our answer could come in by it. Whether there
 * was one. */
bool auth_challenge_drop_reflected(pjsip_msg *message);
/* RFC 8760 2.4: of several challenges the topmost that we understand is answered. PJSIP would take the second of a realm
 * for the refusal of what it has just answered to the first. */
void auth_challenge_keep_first(pjsip_msg *message);
/* Whether just the nonce was too old. */
bool auth_challenge_is_stale(const pjsip_msg *message);

#endif
