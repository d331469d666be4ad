/* Strangers who connect to the TLS port: the kernel hands their connections not to PJSIP, which would shake hands, but to a
 * socket of ours beside it, where they are counted and closed. Where the kernel cannot do that, they get no answer. */
#ifndef TRUNKLINE_TLS_UNKNOWN_SOURCES_H
#define TRUNKLINE_TLS_UNKNOWN_SOURCES_H

#include <pjsua-lib/pjsua.h>

#define TLS_NO_SOCKET (-1)

/* Part the connections to `listening`, which is bound to `bound`; `strangers` is the socket of the last time, or
 * TLS_NO_SOCKET. Returns theirs, TLS_NO_SOCKET when everybody may shake hands or the kernel cannot part them. */
int tls_strangers_part(int listening, const pj_sockaddr *bound, int strangers);
/* Returns TLS_NO_SOCKET. */
int tls_strangers_close(int strangers);
/* Close the connections that have come to their socket. */
void tls_strangers_turn_away(int strangers);

#endif
