/* How we end a call: BYE, CANCEL or a refusal, with our Reason (RFC 3326) in whichever it comes to be. PJSIP itself writes
 * some of them, later: the BYE when the ACK or a crossing 200 has come, the CANCEL after the first response. */
#ifndef TRUNKLINE_SIP_HANGUP_H
#define TRUNKLINE_SIP_HANGUP_H

#include <pjsua-lib/pjsua.h>

int hangup_install(void);
void hangup_remove(void);
/* `code`: of a refusal, 0 for PJSUA's own. `reason`: the header's value, "" for none. PJ_ETIMEDOUT: another thread has kept
 * the call's lock for 2 s. */
pj_status_t hangup(pjsua_call_id call, unsigned code, const char *reason);

#endif
