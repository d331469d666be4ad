/* Verification of the peer's certificate on outbound TLS connections. */
#ifndef TRUNKLINE_TLS_PEER_VERIFY_H
#define TRUNKLINE_TLS_PEER_VERIFY_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

#define TLS_REASON_SIZE 256

/* Off: any certificate of a peer is accepted. */
void tls_peer_set_verify(bool on);
/* True if a peer's certificate is not accepted; `reason`, of TLS_REASON_SIZE bytes, receives the fault, else "". */
bool tls_peer_is_untrusted(const pjsip_transport *transport, const pj_ssl_sock_info *ssl, char *reason);

#endif
