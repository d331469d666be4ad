/* Connections to an address whose peer has not proved that address, but the name of a trunk's host that is there. Such a
 * connection carries what belongs to a call: its Contact has the address. What begins something goes to an address only
 * when a trunk's host is one, perhaps somebody else's, who has to see that address proved. */
#ifndef TRUNKLINE_TLS_UNVERIFIED_ADDRESS_H
#define TRUNKLINE_TLS_UNVERIFIED_ADDRESS_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

/* Whether a connection that has just been made may go on with a name in the place of its address. */
bool tls_unverified_allow(const pjsip_transport *transport);
/* Whether a request may go over its connection. To be asked for each. */
bool tls_unverified_admit_request(const pjsip_tx_data *request);
/* The connection is gone; NULL: all are. */
void tls_unverified_forget(const pjsip_transport *transport);

#endif
