/* TLS connections from unknown sources: the kernel hands them to a second socket on the same port, where they are counted
 * and closed, and not to PJSIP, which would begin a handshake. If the kernel cannot do that, they are dropped. */
#ifndef TRUNKLINE_TLS_REJECT_UNKNOWN_SOURCES_H
#define TRUNKLINE_TLS_REJECT_UNKNOWN_SOURCES_H

#include <pjsua-lib/pjsua.h>

#define TLS_NO_SOCKET (-1)

/* Splits the connections to `listening`, which is bound to `bound`; `unknown_socket` is the socket of the last call, or
 * TLS_NO_SOCKET. Returns the socket of unknown sources, TLS_NO_SOCKET if every source may connect or the kernel cannot
 * split them. */
int tls_unknown_sources_split(int listening, const pj_sockaddr *bound, int unknown_socket);
/* Returns TLS_NO_SOCKET. */
int tls_unknown_sources_close(int unknown_socket);
/* Closes and counts the connections that have come to the socket. */
void tls_unknown_sources_reject(int unknown_socket);

#endif
