/* Requests of ours outside of dialogs, each with a transaction of its own. */
#ifndef TRUNKLINE_REGISTRATION_CLIENT_TRANSACTION_H
#define TRUNKLINE_REGISTRATION_CLIENT_TRANSACTION_H

#include <pjsua-lib/pjsua.h>

#define CLIENT_TRANSACTION_FAILURE_SIZE 256

/* Takes over `tdata`. `user` hears of the states, and finds `data` in the transaction's mod_data until it puts NULL there.
 * `begun`, unless NULL, is called before anything is sent. An error: nothing was sent and nothing will be reported. */
pj_status_t client_transaction_send(pjsip_module *user, pjsip_tx_data *tdata, void *data,
                                    void (*begun)(void *data, const pjsip_transaction *tsx));
/* Why one ended without a response: what is known of the connection, else PJSIP's words. */
void client_transaction_failure(const pjsip_transaction *tsx, char reason[CLIENT_TRANSACTION_FAILURE_SIZE]);

#endif
