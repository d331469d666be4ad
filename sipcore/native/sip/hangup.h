/* Hangup: BYE, CANCEL or a final response ends a call, with our Reason header (RFC 3326). PJSIP creates some of these messages
 * later: the BYE when the ACK or a crossing 200 has come, the CANCEL after the first response. */
#ifndef TRUNKLINE_SIP_HANGUP_H
#define TRUNKLINE_SIP_HANGUP_H

#include <pjsua-lib/pjsua.h>

int hangup_install(void);
void hangup_remove(void);
/* `code`: status of a final response, 0 for PJSUA's default. `reason`: the header's value, "" for none. PJ_ETIMEDOUT: another
 * thread has held the call's lock for 2 s. */
pj_status_t hangup(pjsua_call_id call, unsigned code, const char *reason);

#endif
