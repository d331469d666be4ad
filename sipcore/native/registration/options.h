/* OPTIONS that we send, to see whether a peer is there (RFC 3261 11). When, is not decided here. */
#ifndef TRUNKLINE_REGISTRATION_OPTIONS_H
#define TRUNKLINE_REGISTRATION_OPTIONS_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* On PJSIP's threads. `code`: of the final response, or PJSIP's own 408, 502 and 503 when there is none (`answered` is
 * false then), and `reason` in words; `microseconds`: since it was sent. */
typedef void options_callback_t(long long token, bool answered, int code, long long microseconds, const char *reason);

/* NULL: nothing is told any more. */
int options_install(options_callback_t *on_result);
/* Ask `uri`, from an account that has an address towards it. An error: nothing was sent and nothing will be told. */
pj_status_t options_send(pjsua_acc_id account, const char *uri, long long token);

#endif
