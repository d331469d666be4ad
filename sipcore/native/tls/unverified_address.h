/* TLS connections to an IP address whose peer's certificate matches a trunk's host name at that address, not the address.
 * Such a connection carries requests within dialogs only, whose Contact has the address. A request outside of dialogs goes
 * to an address only if a trunk's host is that address, perhaps another trunk's, which requires a certificate for it. */
#ifndef TRUNKLINE_TLS_UNVERIFIED_ADDRESS_H
#define TRUNKLINE_TLS_UNVERIFIED_ADDRESS_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

/* True if a new connection may go on with a certificate for the name instead of the address. */
bool tls_unverified_allow(const pjsip_transport *transport);
/* True if a request may go over its connection. To be called for each request. */
bool tls_unverified_admit_request(const pjsip_tx_data *request);
/* The connection is gone; NULL: all are. */
void tls_unverified_remove(const pjsip_transport *transport);

#endif
