/* OPTIONS within a call (RFC 3261, 11.2 and 12.2): asks whether the peer still has the dialog. Whatever the answer, the call
 * goes on. */
#ifndef TRUNKLINE_TRUNKS_DIALOG_PROBE_H
#define TRUNKLINE_TRUNKS_DIALOG_PROBE_H

#include <pjsua-lib/pjsua.h>

/* With a lock of PJSIP held, once for each request. `status` is 0 when there was no response, or it could not be sent. */
typedef void dialog_probe_callback_t(long long token, int status);

int dialog_probe_install(dialog_probe_callback_t *on_response);
void dialog_probe_remove(void);
/* Sends OPTIONS in the dialog of an answered call. `token` identifies it in the callback. An error: there is no such call, or
 * another thread holds its lock; nothing will be reported. */
pj_status_t dialog_probe_send(pjsua_call_id call, long long token);

#endif
