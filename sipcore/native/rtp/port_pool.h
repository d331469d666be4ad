/* RTP port pool: pairs of ports, RTP on the lower and RTCP on the next, assigned in turn to the calls of all accounts. A pair
 * is quarantined for PORT_QUARANTINE_NS after its call, so that late packets of that call reach no other call, unless all
 * other pairs are in use. */
#ifndef TRUNKLINE_RTP_PORT_POOL_H
#define TRUNKLINE_RTP_PORT_POOL_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>
#include <stdint.h>

#define PORT_QUARANTINE_NS 5000000000LL

/* Sets the range, both ends included, with no pair in use. The first call gets the pair with number `begin`. */
void port_pool_set(uint16_t first, uint16_t last, uint16_t begin);
/* Number of free pairs. */
int port_pool_left(void);
/* PJSUA's callback `on_call_media_transport_state`, called before a call gets its ports. */
pj_status_t port_pool_on_media_state(pjsua_call_id call, const pjsua_med_tp_state_info *info);
/* A call's transport has opened, or closed, this port. */
void port_pool_acquire(uint16_t port);
void port_pool_release(uint16_t port);
/* Number of calls that got no ports since the last call of this function. */
uint64_t port_pool_take_exhaustions(void);
void port_pool_count_exhaustion(void);
/* True if the last call for which this thread got no ports is that of the dialog. */
bool port_pool_exhausted_for(const pjsip_dialog *dialog);

#endif
