/* PJSUA accounts, each a trunk's: where its requests go, and that its end waits for its calls. */
#ifndef TRUNKLINE_REGISTRATION_ACCOUNT_H
#define TRUNKLINE_REGISTRATION_ACCOUNT_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Calls that come in belong to the default account, or that for the other version of IP, whatever trunk's they look like: admission decides that. */
void account_install(void);
/* The Route headers of the requests that begin something, first hop first. */
pj_status_t account_set_route(pjsua_acc_id account, const char *const *routes, int count);
/* False while it has calls. */
bool account_delete(pjsua_acc_id account);

#endif
