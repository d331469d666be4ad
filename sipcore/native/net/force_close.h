/* Closes a connection at once. */
#ifndef TRUNKLINE_NET_FORCE_CLOSE_H
#define TRUNKLINE_NET_FORCE_CLOSE_H

#include <pjsip.h>

/* The connection sends nothing more, and its listeners are notified. PJSIP's own function for that
 * (pjsip_transport_shutdown2) notifies while it holds the connection's lock: PJSUA then waits for its own lock, which a
 * thread that makes a call holds while it waits for the connection's. */
void force_close(pjsip_transport *transport);

#endif
