/* Parse errors: messages that PJSIP's parser rejects. A header that it cannot read makes it drop the whole message. */
#ifndef TRUNKLINE_GUARD_PARSE_ERRORS_H
#define TRUNKLINE_GUARD_PARSE_ERRORS_H

#include <pjsua-lib/pjsua.h>

/* Counts rejected messages. A request of a trunk gets 400 if possible; it is processed if its only fault is credentials
 * of a scheme that PJSIP does not know. */
pj_status_t parse_errors_install(pjsip_tpmgr *transports);

#endif
