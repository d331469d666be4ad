/* Certificate name mismatch that is allowed: TLS connections to an IP address whose peer's certificate has a trunk's host
 * name at that address, and not the address. Such a connection carries requests within dialogs only, whose Contact has the
 * address. A request outside of dialogs goes to an address only if a trunk's host is that address, perhaps another trunk's,
 * which requires a certificate for it. */
#ifndef TRUNKLINE_TLS_CERTIFICATE_NAME_MISMATCH_H
#define TRUNKLINE_TLS_CERTIFICATE_NAME_MISMATCH_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

/* True if a new connection may go on with a certificate for the name instead of the address. */
bool tls_name_mismatch_allow(const pjsip_transport *transport);
/* True if a request may go over its connection. To be called for each request. */
bool tls_name_mismatch_admit_request(const pjsip_tx_data *request);
/* The connection is gone; NULL: all are. */
void tls_name_mismatch_remove(const pjsip_transport *transport);

#endif
