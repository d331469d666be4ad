/* Which ports a call's sound gets: pairs, RTP on the lower and RTCP on the next, given in turn to the calls of all accounts.
 * A pair whose call has ended rests for some seconds, so that what is still on its way to that call meets no other one,
 * unless all others are in use. */
#ifndef TRUNKLINE_RTP_PORT_POOL_H
#define TRUNKLINE_RTP_PORT_POOL_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>
#include <stdint.h>

#define PORT_REST_NS 5000000000LL

/* The whole range, both ends included; nothing is in use then. The first call gets the pair of that number. */
void port_pool_set(uint16_t first, uint16_t last, uint16_t begin);
/* How many pairs no call has. */
int port_pool_left(void);
/* PJSUA's callback `on_call_media_transport_state`: it says when a call is about to get its ports. */
pj_status_t port_pool_on_media_state(pjsua_call_id call, const pjsua_med_tp_state_info *info);
/* A call has got this one, or has let go of it. */
void port_pool_take(uint16_t port);
void port_pool_release(uint16_t port);
/* Calls that got no ports since the last look. */
uint64_t port_pool_take_misses(void);
void port_pool_count_miss(void);
/* Whether this dialog is that of the call which this thread could get no ports for last. */
bool port_pool_missed_by(const pjsip_dialog *dialog);

#endif
