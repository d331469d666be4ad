/* Orphaned dialogs: BYE and CANCEL in the dialogs of a process that has died, by their records. */
#ifndef TRUNKLINE_TRUNKS_ORPHANED_DIALOG_H
#define TRUNKLINE_TRUNKS_ORPHANED_DIALOG_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

#include "sip/dialog_record.h"

/* `user` "": a challenge is the final response. */
typedef struct orphaned_dialog_params {
    long long token;        /* identifies the dialog in the callback */
    const char *reason;     /* value of the Reason header (RFC 3326) */
    const char *user, *password;
    dialog_record_t record;
} orphaned_dialog_params_t;

/* On PJSIP's threads, once for each dialog. `status` is 0 without a response, and `reason` says why. */
typedef void orphaned_dialog_callback_t(long long token, int status, const char *reason);

int orphaned_dialog_install(orphaned_dialog_callback_t *on_result);
void orphaned_dialog_remove(void);
/* Sends a BYE, or for an unanswered INVITE a CANCEL. Late responses to that INVITE get their ACK, and an answer also a BYE. An
 * error: nothing was sent, and nothing will be reported. */
pj_status_t orphaned_dialog_end(const orphaned_dialog_params_t *params);
/* True if this is a response to a cancelled INVITE of the former process, from where that INVITE went. */
bool orphaned_dialog_expects(const pjsip_rx_data *rdata);

#endif
