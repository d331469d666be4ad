/* Digest challenges of peers, 401 and 407 (RFC 3261 22). */
#ifndef TRUNKLINE_TRUNKS_AUTH_CHALLENGE_H
#define TRUNKLINE_TRUNKS_AUTH_CHALLENGE_H

#include <stdbool.h>

#include <pjsip.h>

/* True for 401 and 407. */
bool auth_challenge_is_status(int code);
/* Sets the prefix of our own nonces; copied. To be called before any message is received. */
void auth_challenge_set_nonce_prefix(const char *nonce_prefix);
/* Removes our own challenges that a peer reflects to us: our response to one would be a valid response to us. True if there
 * was one. */
bool auth_challenge_drop_reflected(pjsip_msg *message);
/* Keeps the topmost supported challenge (RFC 8760 2.4). PJSIP would take the second of a realm for a rejection of its response
 * to the first. */
void auth_challenge_keep_first(pjsip_msg *message);
/* True if only the nonce was too old (stale=true). */
bool auth_challenge_is_stale(const pjsip_msg *message);

#endif
