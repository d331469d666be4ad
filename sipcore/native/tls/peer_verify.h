/* Whose certificates we take on connections that we make. */
#ifndef TRUNKLINE_TLS_PEER_VERIFY_H
#define TRUNKLINE_TLS_PEER_VERIFY_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

#define TLS_REASON_SIZE 256

/* Off: peers that we connect to need no certificate that we trust. */
void tls_peer_set_verify(bool on);
/* Whether a peer proves nothing; `reason`, of TLS_REASON_SIZE bytes, receives what is wrong with its certificate, else "". */
bool tls_peer_is_untrusted(const pjsip_transport *transport, const pj_ssl_sock_info *ssl, char *reason);

#endif
