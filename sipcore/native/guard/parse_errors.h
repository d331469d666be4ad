/* What PJSIP's parser throws away: a header that it cannot read makes it drop the whole message. */
#ifndef TRUNKLINE_GUARD_PARSE_ERRORS_H
#define TRUNKLINE_GUARD_PARSE_ERRORS_H

#include <pjsua-lib/pjsua.h>

/* Count what is thrown away. A request of a trunk is answered with 400 where that is possible, and read all the same when
 * only its credentials are of a kind that PJSIP does not know. */
pj_status_t parse_errors_install(pjsip_tpmgr *transports);

#endif
