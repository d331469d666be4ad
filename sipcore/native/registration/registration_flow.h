/* The connection, or the pair of UDP addresses, that an account is registered over: calls come in over it. */
#ifndef TRUNKLINE_REGISTRATION_REGISTRATION_FLOW_H
#define TRUNKLINE_REGISTRATION_REGISTRATION_FLOW_H

#include <pjsua-lib/pjsua.h>

/* On PJSIP's threads: the connection is gone. */
typedef void registration_flow_callback_t(pjsua_acc_id account);

int registration_flow_install(registration_flow_callback_t *lost);
void registration_flow_remove(void);
/* Keep the connection of this transaction, and let go of the one before. */
void registration_flow_keep(pjsua_acc_id account, const pjsip_transaction *tsx);
void registration_flow_release(pjsua_acc_id account);
/* Four bytes that keep a NAT's way to us open, when it is UDP. */
void registration_flow_keep_alive(pjsua_acc_id account);

#endif
