/* Qualify: outbound OPTIONS that test whether a peer is reachable (RFC 3261 11). Python decides when. */
#ifndef TRUNKLINE_TRUNKS_QUALIFY_H
#define TRUNKLINE_TRUNKS_QUALIFY_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* On PJSIP's threads. `code`: of the final response, else PJSIP's own 408, 502 or 503 (`answered` is false then), and `reason`
 * as text; `microseconds`: since the request. */
typedef void qualify_callback_t(long long token, bool answered, int code, long long microseconds, const char *reason);

/* NULL: results are no longer reported. */
int qualify_install(qualify_callback_t *on_result);
/* Sends OPTIONS to `uri` from an account that has a route to it. An error: nothing was sent, and nothing will be reported. */
pj_status_t qualify_send(pjsua_acc_id account, const char *uri, long long token);

#endif
