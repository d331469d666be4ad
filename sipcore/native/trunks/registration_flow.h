/* Registration flow: the connection, or the pair of UDP addresses, that an account is registered over. Inbound calls use
 * it. */
#ifndef TRUNKLINE_TRUNKS_REGISTRATION_FLOW_H
#define TRUNKLINE_TRUNKS_REGISTRATION_FLOW_H

#include <pjsua-lib/pjsua.h>

/* On PJSIP's threads: the connection is closed. */
typedef void registration_flow_callback_t(pjsua_acc_id account);

int registration_flow_install(registration_flow_callback_t *lost);
void registration_flow_remove(void);
/* Takes a reference to the connection of this transaction, and releases the connection before. */
void registration_flow_set(pjsua_acc_id account, const pjsip_transaction *tsx);
void registration_flow_release(pjsua_acc_id account);
/* Sends CRLFCRLF over UDP, which keeps the NAT binding. */
void registration_flow_keep_alive(pjsua_acc_id account);

#endif
