/* Client transactions of our requests outside of dialogs, and of those in dialogs that PJSIP must not act on. */
#ifndef TRUNKLINE_TRUNKS_CLIENT_TRANSACTION_H
#define TRUNKLINE_TRUNKS_CLIENT_TRANSACTION_H

#include <pjsua-lib/pjsua.h>

#define CLIENT_TRANSACTION_FAILURE_SIZE 256

/* Takes ownership of `tdata`. The module `user` gets the transaction's states, and finds `data` in its mod_data until it sets
 * NULL there. `begun`, unless NULL, is called before the request is sent. An error: nothing was sent, and nothing will be
 * reported. */
pj_status_t client_transaction_send(pjsip_module *user, pjsip_tx_data *tdata, void *data,
                                    void (*begun)(void *data, const pjsip_transaction *tsx));
/* Failure of a transaction without a response: the close reason of its connection, else PJSIP's text. */
void client_transaction_failure(const pjsip_transaction *tsx, char reason[CLIENT_TRANSACTION_FAILURE_SIZE]);

#endif
