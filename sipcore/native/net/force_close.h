/* Ends a connection at once. */
#ifndef TRUNKLINE_NET_FORCE_CLOSE_H
#define TRUNKLINE_NET_FORCE_CLOSE_H

#include <pjsip.h>

/* Nothing more is sent over it, and whoever waits for it is told. PJSIP's own way to force that
 * (pjsip_transport_shutdown2) tells of the end with the connection's lock held: PJSUA then asks for its own lock, which a
 * thread that makes a call holds while it asks for the connection's. */
void force_close(pjsip_transport *transport);

#endif
