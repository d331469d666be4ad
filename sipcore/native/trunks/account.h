/* PJSUA accounts of trunks: the Route set of an account, and its deletion once it has no calls. */
#ifndef TRUNKLINE_TRUNKS_ACCOUNT_H
#define TRUNKLINE_TRUNKS_ACCOUNT_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Assigns inbound calls to the default account of their IP version, whatever trunk's they look like: admission finds the
 * trunk. */
void account_install(void);
/* Sets the Route headers of requests outside of dialogs, first hop first. */
pj_status_t account_set_route(pjsua_acc_id account, const char *const *routes, int count);
/* False while the account has calls. */
bool account_delete(pjsua_acc_id account);

#endif
