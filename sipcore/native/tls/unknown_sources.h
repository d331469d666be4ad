/* Strangers who connect to the TLS port: the kernel hands their connections not to PJSIP, which would shake hands, but to a
 * socket of ours beside it, where they are counted and closed. Where the kernel cannot do that, they get no answer. */
#ifndef TRUNKLINE_TLS_UNKNOWN_SOURCES_H
#define TRUNKLINE_TLS_UNKNOWN_SOURCES_H

#include <pjsua-lib/pjsua.h>

#define TLS_NO_SOCKET (-1)

/* Part the connections to `listening`, which is bound to `bound`; `unknown_socket` is the socket of the last time, or
 * TLS_NO_SOCKET. Returns theirs, TLS_NO_SOCKET when everybody may shake hands or the kernel cannot part them. */
int tls_unknown_split(int listening, const pj_sockaddr *bound, int unknown_socket);
/* Returns TLS_NO_SOCKET. */
int tls_unknown_close(int unknown_socket);
/* Close the connections that have come to their socket. */
void tls_unknown_reject(int unknown_socket);

#endif
